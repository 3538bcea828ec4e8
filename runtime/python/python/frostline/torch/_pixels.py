"""Conversion of the preprocessing of other libraries to recipes."""

import json
import warnings

import frostline
from frostline import _native

RECIPES = "create a recipe with frostline.pixels"
RESAMPLE = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3}
"""Interpolation constants of Pillow."""


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


def chosen(pixels, model, size, stacklevel=3):
    """Select the recipe for `model`.

    Uses `pixels` (a recipe or a source for `pixels_of`) if given, otherwise the recipe of the model. If the model has
    none, this function warns that ImageNet's recipe for `size` is used, and returns `None`.
    """
    if pixels is not None:
        return pixels if isinstance(pixels, str) else pixels_of(pixels)
    ours = frostline.pixels(round(size / 0.875), size)
    why = "the model states no preprocessing"
    if isinstance(getattr(model, "pretrained_cfg", None), dict):
        try:
            return _sized(pixels_of(model), size)
        except (ValueError, KeyError) as error:
            why = f"the model's preprocessing is not supported ({error})"
    warnings.warn(f"using ImageNet's preprocessing ({ours}), because {why}; pass pixels= to select another", stacklevel=stacklevel)
    return None


def _sized(recipe, size):
    """Scale a recipe to `size`, unless it is the default size or the size of the recipe."""
    stated = json.loads(recipe)
    crop = stated["crop_height"]
    if size in (224, crop):
        return recipe
    return json.dumps(stated | {"resize": round(stated["resize"] * size / crop), "crop_height": size, "crop_width": size})
