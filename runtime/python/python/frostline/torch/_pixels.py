"""Conversion of the preprocessing of other libraries to recipes."""

from __future__ import annotations

import functools
import json
import warnings
from typing import Any

import torch

import frostline
from frostline import _native

RECIPES = "create a recipe with frostline.pixels"
RESAMPLE = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3}
"""Interpolation constants of Pillow."""
DEFAULT_SIZE = 224
"""Height and width of the input of models without a recipe."""
CONVERSIONS = {"ToImage": "conversion", "PILToTensor": "conversion"} | dict.fromkeys(("ToTensor", "MaybeToTensor", "ConvertImageDtype", "ToDtype"), "scaling")
"""Transforms of torchvision and timm that convert an image to a tensor, and of these, the ones that scale it to 0..1."""
NOT_BEFORE = {
    "conversion": {"Normalize"},
    "scaling": {"scaling", "Normalize"},
    "Resize": {"Resize", "CenterCrop", "Normalize"},
    "CenterCrop": {"CenterCrop", "Normalize"},
    "Normalize": {"Normalize"},
}
"""Transforms in a `Compose` that a recipe can express, and those that cannot precede them."""


def pixels_of(source: object, interpolation: str | None = None) -> str:
    """Convert the preprocessing of another library to a recipe for `pixels=` of `pushdown`.

    Raises `ValueError` if hosts do not support the preprocessing.

    :param source: A timm model, the `pretrained_cfg` of a timm model, an image processor of transformers, weights of
        torchvision such as `ResNet18_Weights.DEFAULT`, their transforms, or a `Compose` of `Resize`, `CenterCrop`, `ToTensor`
        and `Normalize`.
    :param interpolation: Replaces the interpolation of `source`, for example with `"bilinear"`.
    """
    if interpolation is not None and interpolation not in RESAMPLE:
        raise ValueError(f"invalid interpolation {interpolation!r}; use one of {', '.join(RESAMPLE)}")
    config: Any = getattr(source, "pretrained_cfg", source)
    # A processor of transformers for images and text contains one for images.
    config = getattr(config, "image_processor", config)
    config = config.to_dict() if hasattr(config, "to_dict") and not isinstance(config, dict) else config
    if isinstance(config, dict):
        if interpolation:
            # timm reads the first name and transformers the second.
            config = config | {"interpolation": interpolation, "resample": RESAMPLE[interpolation]}
        return json.dumps(json.loads(_native.stated_pixels(json.dumps(config, default=str))))
    # Weights of torchvision have a partial that creates their transforms.
    config = getattr(config, "transforms", config)
    config = config() if isinstance(config, functools.partial) else config
    if hasattr(config, "crop_size") and hasattr(config, "resize_size"):
        (resize,), (crop,) = config.resize_size, config.crop_size
        return frostline.pixels(resize, crop, tuple(config.mean), tuple(config.std), interpolation=interpolation or _name(config.interpolation))
    if isinstance(config, list):
        return _composed(config, interpolation)
    if isinstance(source, type):
        what = f"{source.__name__}.DEFAULT" if hasattr(source, "DEFAULT") else f"an object of the class {source.__name__}"
        raise ValueError(f"cannot convert the preprocessing of the class {source.__name__}; pass {what}")
    raise ValueError(f"cannot convert the preprocessing of a {type(source).__name__}; {RECIPES}")


def _name(interpolation: Any) -> str:
    """Return the name of an interpolation mode of torchvision. Raises `ValueError` if hosts do not support it."""
    name = str(getattr(interpolation, "value", interpolation))
    if name not in RESAMPLE:
        raise ValueError(f"hosts do not support the interpolation {name!r}; pass pixels_of(source, interpolation=...) with one of {', '.join(RESAMPLE)}")
    return name


def _composed(transforms: list[Any], interpolation: str | None) -> str:
    """Return the recipe of a `Compose`. Raises `ValueError` with the first transform that a recipe cannot express."""
    parts: dict[str, Any] = {}
    for each in transforms:
        kind = CONVERSIONS.get(type(each).__name__, type(each).__name__)
        if kind not in NOT_BEFORE or NOT_BEFORE[kind] & parts.keys() or getattr(each, "scale", True) is False:
            raise ValueError(
                f"cannot convert {each!r} in this Compose to a recipe, which is a Resize, a CenterCrop, a ToTensor and a Normalize; "
                f"pass random transforms with augment=, or {RECIPES}"
            )
        parts[kind] = each
    size, crop, normalize = parts.get("Resize"), parts.get("CenterCrop"), parts.get("Normalize")
    if size is None or "scaling" not in parts:
        raise ValueError(f"this Compose has no {'ToTensor' if size is not None else 'Resize'}; add it, or {RECIPES}")
    sides = [size.size] if isinstance(size.size, int) else list(size.size)
    area = list(sides if crop is None else [crop.size] * 2 if isinstance(crop.size, int) else crop.size)
    if len(area) == 1 or getattr(size, "max_size", None) is not None:
        raise ValueError(f"cannot convert {size!r} without a CenterCrop or with max_size, because images have different shapes; {RECIPES}")
    if len(sides) == 2 and sides[0] * area[1] != sides[1] * area[0]:
        raise ValueError(f"cannot convert {size!r} with {crop!r}, because the ratios of their sides differ; {RECIPES}")
    mean, std = ((0.0,) * 3, (1.0,) * 3) if normalize is None else ([float(value) for value in each] for each in (normalize.mean, normalize.std))
    return frostline.pixels(
        min(sides),
        (area[0], area[1]),
        (mean[0], mean[1], mean[2]),
        (std[0], std[1], std[2]),
        interpolation=interpolation or _name(size.interpolation),
        resize_mode="short" if len(sides) == 1 else "squash",
    )


def built_size(model: torch.nn.Module) -> int | None:
    """Return the height and width for which a timm model was built, or `None` if it accepts others."""
    embed: Any = getattr(model, "patch_embed", None)
    if not getattr(embed, "strict_img_size", False) or not embed.img_size:
        return None
    height, width = embed.img_size
    return int(height) if height == width else None


def default_recipe(size: int | None) -> str:
    """Return ImageNet's recipe for `size` or, if it is `None`, for 224."""
    size = size or DEFAULT_SIZE
    return frostline.pixels(round(size / 0.875), size)


def chosen(pixels: object, model: torch.nn.Module, size: int | None, stacklevel: int = 3) -> str | None:
    """Select the recipe for `model`.

    Uses `pixels` (a recipe or a source for `pixels_of`) if given, otherwise the recipe of the model, scaled to `size` or
    to the size for which the model was built. If the model has none, this function warns that ImageNet's recipe for
    `size` is used, and returns `None`. Raises `ValueError` if `pixels` is neither.
    """
    if isinstance(pixels, str):
        return read_recipe(pixels)
    if pixels is not None:
        return pixels_of(pixels)
    ours = default_recipe(size)
    why = "the model states no preprocessing"
    if isinstance(getattr(model, "pretrained_cfg", None), dict):
        try:
            return _sized(pixels_of(model), size or built_size(model))
        except (ValueError, KeyError) as error:
            why = f"the model's preprocessing is not supported ({error})"
    warnings.warn(f"using ImageNet's preprocessing ({ours}), because {why}; pass pixels= to select another", stacklevel=stacklevel)
    return None


def read_recipe(text: str) -> str:
    """Return the recipe in a JSON text, which can also be a configuration of timm or transformers."""
    try:
        stated = _native.stated_pixels(text)
    except ValueError as error:
        raise ValueError(f"pixels={text!r} is not a recipe ({error}); {RECIPES}, or pass an image processor or transforms") from None
    return text if "crop_height" in json.loads(text) else stated


def _sized(recipe: str, size: int | None) -> str:
    """Scale a recipe to `size`, if given."""
    stated = json.loads(recipe)
    crop = stated["crop_height"]
    if size in (None, crop):
        return recipe
    return json.dumps(stated | {"resize": round(stated["resize"] * size / crop), "crop_height": size, "crop_width": size})
