"""Recipes from image to network input, as other libraries state them."""

import json
import math
import warnings

import frostline

RECIPES = "frostline.pixels states them by hand"
BILINEAR = 2
"""Pillow's number of the interpolation."""
NAMES = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}
FOLLOWED = ("nearest", "bilinear", "bicubic", "lanczos")
MODES = {"center": "short", "squash": "squash", "border": "pad"}
"""Of timm's crop modes, what hosts call them."""
SQUASHED_FROM = 384
"""ConvNextImageProcessor crops below it."""


def pixels_of(source, interpolation=None):
    """The recipe (`pixels=` of `pushdown`) that `source` states: a timm model or its `pretrained_cfg`, an image processor of transformers, or
    the transforms of torchvision's pretrained weights.

    `interpolation="bilinear"` takes that instead of the stated one. Raises `ValueError` if hosts cannot follow the recipe.
    """
    config = getattr(source, "pretrained_cfg", source)
    config = config.to_dict() if hasattr(config, "to_dict") and not isinstance(config, dict) else config
    if isinstance(config, dict) and "crop_pct" in config and "input_size" in config:
        stated, recipe = _timm(config)
    elif isinstance(config, dict) and "image_mean" in config:
        stated, recipe = _transformers(config)
    elif hasattr(source, "crop_size") and hasattr(source, "resize_size"):
        stated, recipe = str(getattr(source.interpolation, "value", source.interpolation)), _torchvision(source)
    else:
        raise ValueError(f"no recipe is known of a {type(source).__name__}; {RECIPES}")
    chosen = interpolation or stated
    if chosen not in FOLLOWED:
        raise ValueError(f"images are resized {', '.join(FOLLOWED)}, the recipe states {stated}; pass interpolation= to accept a difference")
    return frostline.pixels(**recipe, interpolation=chosen)


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
    warnings.warn(f"images are resized and normalised as ImageNet's ({ours}): {why}; pass pixels=", stacklevel=stacklevel)
    return None


def _sized(recipe, size):
    """A recipe for another `size` than the network was trained with, where one is asked for that is not the default."""
    stated = json.loads(recipe)
    crop = stated["crop_height"]
    if size in (224, crop):
        return recipe
    return json.dumps(stated | {"resize": round(stated["resize"] * size / crop), "crop_height": size, "crop_width": size})


def _timm(config):
    _, height, width = config["input_size"]
    mode = config.get("crop_mode") or "center"
    if mode not in MODES:
        raise ValueError(f"the recipe states crop_mode {mode!r}; {RECIPES}")
    recipe = {"resize": math.floor(min(height, width) / config["crop_pct"]), "crop": (height, width), "resize_mode": MODES[mode]}
    recipe |= {"mean": tuple(config["mean"]), "std": tuple(config["std"])}
    if mode == "border":
        recipe["fill"] = tuple(round(255 * value) for value in config["mean"])
    return config["interpolation"], recipe


def _sides(size):
    return (size, size) if isinstance(size, int) else (size["height"], size["width"])


def _transformers(config):
    for setting, followed in (("do_resize", True), ("do_pad", False), ("rescale_offset", False)):
        if bool(config.get(setting) if config.get(setting) is not None else followed) != followed:
            raise ValueError(f"the processor states {setting}={config[setting]}; {RECIPES}")
    size, crop = config.get("size") or {}, config.get("crop_size")
    crop = _sides(crop) if crop and config.get("do_center_crop") else None
    short = size if isinstance(size, int) else size.get("shortest_edge")
    if config.get("crop_pct") and short:
        resize, mode, crop = (short, "squash", (short, short)) if short >= SQUASHED_FROM else (int(short / config["crop_pct"]), "short", (short, short))
    elif isinstance(size, dict) and short and crop:
        resize, mode = short, "short"
    elif isinstance(size, int) or {"height", "width"} <= size.keys():
        height, width = _sides(size)
        resize, mode, crop = min(height, width), "squash", crop or (height, width)
        if (height == width) != (crop[0] == crop[1]):
            raise ValueError(f"the processor states size {json.dumps(size)} and a crop of {crop}; {RECIPES}")
    else:
        raise ValueError(f"images become of one size, the processor states size {json.dumps(size)} without a crop; {RECIPES}")
    mean, std = ((0.0,) * 3, (1.0,) * 3) if not config.get("do_normalize", True) else (config["image_mean"], config["image_std"])
    factor = config.get("rescale_factor", 1 / 255) if config.get("do_rescale", True) else 1.0
    # From what a byte is multiplied by to 0..1.
    if not math.isclose(factor, 1 / 255):
        mean, std = ([value / (factor * 255) for value in values] for values in (mean, std))
    recipe = {"resize": resize, "crop": crop, "mean": tuple(mean), "std": tuple(std), "resize_mode": mode}
    if config.get("do_flip_channel_order"):
        recipe["channels"] = "bgr"
    stated = config.get("resample", BILINEAR)
    return NAMES.get(stated, str(stated)), recipe


def _torchvision(transforms):
    (resize,), (crop,) = transforms.resize_size, transforms.crop_size
    return {"resize": resize, "crop": crop, "mean": tuple(transforms.mean), "std": tuple(transforms.std)}
