"""Recipes from image to network input, as other libraries state them."""

import json
import math

import frostline

RECIPES = "frostline.pixels states them by hand"
BILINEAR = 2
"""Pillow's number of the interpolation."""
NAMES = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}


def pixels_of(source, interpolation=None):
    """The recipe (`pixels=` of `pushdown`) that `source` states: a timm model or its `pretrained_cfg`, an image processor of transformers, or
    the transforms of torchvision's pretrained weights.

    `interpolation="bilinear"` takes that instead of the stated one. Raises `ValueError` if hosts cannot follow the recipe.
    """
    config = getattr(source, "pretrained_cfg", source)
    config = config.to_dict() if hasattr(config, "to_dict") and not isinstance(config, dict) else config
    if isinstance(config, dict) and "crop_pct" in config:
        stated, recipe = _timm(config)
    elif isinstance(config, dict) and "image_mean" in config:
        stated, recipe = _transformers(config)
    elif hasattr(source, "crop_size") and hasattr(source, "resize_size"):
        stated, recipe = str(getattr(source.interpolation, "value", source.interpolation)), _torchvision(source)
    else:
        raise ValueError(f"no recipe is known of a {type(source).__name__}; {RECIPES}")
    if (interpolation or stated) != "bilinear":
        raise ValueError(f"images are resized bilinearly, the recipe states {stated}; pass interpolation='bilinear' to accept the difference")
    return recipe


def warn_of(model, size):
    """A warning if a timm model states another recipe than the default of `size`; `None` if it does not, or states none."""
    if not isinstance(getattr(model, "pretrained_cfg", None), dict):
        return None
    ours = frostline.pixels(round(size / 0.875), size)
    try:
        stated = pixels_of(model)
    except ValueError as error:
        stated = str(error)
    if stated == ours:
        return None
    return f"images are resized and normalised as ImageNet's ({ours}), but the model states otherwise ({stated}); pass pixels="


def _timm(config):
    _, height, width = config["input_size"]
    if config.get("crop_mode", "center") != "center":
        raise ValueError(f"images are resized by their short side, the recipe states crop_mode {config['crop_mode']!r}; {RECIPES}")
    if height != width:
        raise ValueError(f"the recipe states an input of {height} x {width}; {RECIPES}")
    resize = math.floor(height / config["crop_pct"])
    return config["interpolation"], frostline.pixels(resize, height, tuple(config["mean"]), tuple(config["std"]))


def _transformers(config):
    size, crop = config.get("size") or {}, config.get("crop_size") or {}
    if "shortest_edge" not in size or not config.get("do_center_crop"):
        raise ValueError(f"images are resized by their short side and cropped, the processor states size {json.dumps(size)} without a crop; {RECIPES}")
    if not math.isclose(config.get("rescale_factor", 1 / 255), 1 / 255):
        raise ValueError(f"pixels are scaled by 1/255, the processor states {config['rescale_factor']}; {RECIPES}")
    mean, std = config["image_mean"], config["image_std"]
    if not config.get("do_normalize", True):
        mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    stated = config.get("resample", BILINEAR)
    return NAMES.get(stated, str(stated)), frostline.pixels(size["shortest_edge"], (crop["height"], crop["width"]), tuple(mean), tuple(std))


def _torchvision(transforms):
    (resize,), (crop,) = transforms.resize_size, transforms.crop_size
    return frostline.pixels(resize, crop, tuple(transforms.mean), tuple(transforms.std))
