"""Conversion of the preprocessing of other libraries to recipes."""

import json
import warnings

import frostline
from frostline import _native

RECIPES = "create a recipe with frostline.pixels"
RESAMPLE = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3}
"""Interpolation constants of Pillow."""
DEFAULT_SIZE = 224
"""Height and width of the input of models without a recipe."""


def pixels_of(source, interpolation=None):
    """Convert the preprocessing of another library to a recipe for `pixels=` of `pushdown`.

    Raises `ValueError` if hosts do not support the preprocessing.

    :param source: A timm model, the `pretrained_cfg` of a timm model, an image processor of transformers, or the
        transforms of pretrained torchvision weights.
    :param interpolation: Replaces the interpolation of `source`, for example with `"bilinear"`.
    """
    if interpolation is not None and interpolation not in RESAMPLE:
        raise ValueError(f"invalid interpolation {interpolation!r}; use one of {', '.join(RESAMPLE)}")
    config = getattr(source, "pretrained_cfg", source)
    config = config.to_dict() if hasattr(config, "to_dict") and not isinstance(config, dict) else config
    if isinstance(config, dict):
        if interpolation:
            # timm reads the first name and transformers the second.
            config = config | {"interpolation": interpolation, "resample": RESAMPLE[interpolation]}
        return json.dumps(json.loads(_native.stated_pixels(json.dumps(config, default=str))))
    if hasattr(source, "crop_size") and hasattr(source, "resize_size"):
        (resize,), (crop,) = source.resize_size, source.crop_size
        stated = str(getattr(source.interpolation, "value", source.interpolation))
        return frostline.pixels(resize, crop, tuple(source.mean), tuple(source.std), interpolation=interpolation or stated)
    raise ValueError(f"cannot convert the preprocessing of a {type(source).__name__}; {RECIPES}")


def built_size(model):
    """Return the height and width for which a timm model was built, or `None` if it accepts others."""
    embed = getattr(model, "patch_embed", None)
    if not getattr(embed, "strict_img_size", False) or not embed.img_size:
        return None
    height, width = embed.img_size
    return height if height == width else None


def default_recipe(size):
    """Return ImageNet's recipe for `size` or, if it is `None`, for 224."""
    size = size or DEFAULT_SIZE
    return frostline.pixels(round(size / 0.875), size)


def chosen(pixels, model, size, stacklevel=3):
    """Select the recipe for `model`.

    Uses `pixels` (a recipe or a source for `pixels_of`) if given, otherwise the recipe of the model, scaled to `size` or
    to the size for which the model was built. If the model has none, this function warns that ImageNet's recipe for
    `size` is used, and returns `None`.
    """
    if pixels is not None:
        return pixels if isinstance(pixels, str) else pixels_of(pixels)
    ours = default_recipe(size)
    why = "the model states no preprocessing"
    if isinstance(getattr(model, "pretrained_cfg", None), dict):
        try:
            return _sized(pixels_of(model), size or built_size(model))
        except (ValueError, KeyError) as error:
            why = f"the model's preprocessing is not supported ({error})"
    warnings.warn(f"using ImageNet's preprocessing ({ours}), because {why}; pass pixels= to select another", stacklevel=stacklevel)
    return None


def _sized(recipe, size):
    """Scale a recipe to `size`, if given."""
    stated = json.loads(recipe)
    crop = stated["crop_height"]
    if size in (None, crop):
        return recipe
    return json.dumps(stated | {"resize": round(stated["resize"] * size / crop), "crop_height": size, "crop_width": size})
