"""Recipes from image to network input, as other libraries state them."""

import json
import warnings

import frostline
from frostline import _native

RECIPES = "frostline.pixels states them by hand"
RESAMPLE = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3}
"""Pillow's numbers of interpolations."""


def pixels_of(source, interpolation=None):
    """The recipe (`pixels=` of `pushdown`) that `source` states: a timm model or its `pretrained_cfg`, an image processor of transformers, or
    the transforms of torchvision's pretrained weights.

    `interpolation="bilinear"` takes that instead of the stated one. Raises `ValueError` if hosts cannot follow the recipe.
    """
    if interpolation is not None and interpolation not in RESAMPLE:
        raise ValueError(f"interpolation is {interpolation!r}; it is one of {', '.join(RESAMPLE)}")
    config = getattr(source, "pretrained_cfg", source)
    config = config.to_dict() if hasattr(config, "to_dict") and not isinstance(config, dict) else config
    if isinstance(config, dict) and ("input_size" in config or "image_mean" in config):
        if interpolation:
            own = {"interpolation": interpolation} if "input_size" in config else {"resample": RESAMPLE[interpolation]}
            config = config | own
        return json.dumps(json.loads(_native.stated_pixels(json.dumps(config, default=str))))
    if hasattr(source, "crop_size") and hasattr(source, "resize_size"):
        (resize,), (crop,) = source.resize_size, source.crop_size
        stated = str(getattr(source.interpolation, "value", source.interpolation))
        return frostline.pixels(resize, crop, tuple(source.mean), tuple(source.std), interpolation=interpolation or stated)
    raise ValueError(f"no recipe is known of a {type(source).__name__}; {RECIPES}")


def chosen(pixels, model, size, stacklevel=3):
    """The recipe for `model`: `pixels`, a recipe or what states one; else the model's own; else ImageNet's of `size`, which is warned of (`None`)."""
    if pixels is not None:
        return pixels if isinstance(pixels, str) else pixels_of(pixels)
    ours = frostline.pixels(round(size / 0.875), size)
    why = "the model states no preprocessing"
    if isinstance(getattr(model, "pretrained_cfg", None), dict):
        try:
            return _sized(pixels_of(model), size)
        except (ValueError, KeyError) as error:
            why = f"the model's own cannot be followed ({error})"
    warnings.warn(f"images are resized and normalized as ImageNet's ({ours}): {why}; pass pixels=", stacklevel=stacklevel)
    return None


def _sized(recipe, size):
    """A recipe for another `size` than the network was trained with, where one is asked for that is not the default."""
    stated = json.loads(recipe)
    crop = stated["crop_height"]
    if size in (224, crop):
        return recipe
    return json.dumps(stated | {"resize": round(stated["resize"] * size / crop), "crop_height": size, "crop_width": size})
