"""Augmentation of training images. The transforms and their defaults are those of torchvision."""

from __future__ import annotations

import dataclasses
from typing import Any

from frostline import _native


@dataclasses.dataclass(frozen=True)
class RandomResizedCrop:
    """Crops a rectangle with random size, aspect ratio and position."""

    scale: tuple[float, float] = (0.08, 1.0)
    """Range of the crop's area relative to the image, from 0 to 1."""
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """Range of the ratio of width to height."""


@dataclasses.dataclass(frozen=True)
class RandAugment:
    """Applies operations chosen at random from a set of 14."""

    num_ops: int = 2
    """Number of operations, up to 8."""
    magnitude: int = 9
    """Strength of each operation, from 0 to 30."""


@dataclasses.dataclass(frozen=True)
class ColorJitter:
    """Changes colors by random factors in random order.

    Each factor is drawn uniformly from `max(0, 1 - x)` to `1 + x` for a deviation `x` from 0 to 10.
    """

    brightness: float = 0.0
    """Deviation of the brightness factor."""
    contrast: float = 0.0
    """Deviation of the contrast factor."""
    saturation: float = 0.0
    """Deviation of the saturation factor."""
    hue: float = 0.0
    """Maximum rotation of the hue in either direction, from 0 to 0.5 turns."""


@dataclasses.dataclass(frozen=True)
class RandomErasing:
    """Fills a rectangle with random size, aspect ratio and position."""

    p: float = 0.5
    """Probability, from 0 to 1."""
    scale: tuple[float, float] = (0.02, 0.33)
    """Range of the rectangle's area relative to the input, from 0 to 1."""
    ratio: tuple[float, float] = (0.3, 3.3)
    """Range of the ratio of height to width."""
    value: float = 0.0
    """Fill value after normalization."""


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """Random transforms of the training images, different for each epoch and the same at every split.

    Raises `frostline.SettingsError` with the valid range if a value is outside of it.
    """

    random_resized_crop: RandomResizedCrop | None = None
    """Replaces the resize and the center crop."""
    hflip: float = 0.0
    """Probability of mirroring the image horizontally, from 0 to 1."""
    rand_augment: RandAugment | None = None
    color_jitter: ColorJitter | None = None
    random_erasing: RandomErasing | None = None

    def __post_init__(self) -> None:
        _native.check_augmentation(self.settings())

    def settings(self) -> dict[str, Any]:
        """Return the augmentation of a request."""
        return dataclasses.asdict(self)
