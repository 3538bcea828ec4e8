"""Targets other than labels, such as masks, boxes or captions, and the position of each input in its image."""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from frostline import _native

THREADS = 4
"""Number of threads that load the targets of a data set."""


@dataclasses.dataclass(frozen=True)
class Transform:
    """Maps positions in the network's input to positions in the image, for a sample in an epoch.

    It includes the resize, the crop, and the geometric operations of the augmentation: `random_resized_crop`, `hflip`, and
    those of `rand_augment`. Masks and boxes refer to the image in the orientation of its EXIF data.
    """

    recipe: str
    """Recipe of the input, from `frostline.pixels`."""
    key: str
    """Key of the sample, which determines the random choices."""
    view: dict[str, Any] | None = None
    """Augmentation, seed and number of the view, or `None` without augmentation."""

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the input in pixels."""
        spec = json.loads(self.recipe)
        return spec["crop_height"], spec["crop_width"]

    def matrix(self, height: int, width: int) -> torch.Tensor:
        """Return the affine matrix that maps a position `(x, y, 1)` in the input to `(x, y)` in the image.

        The matrix is float64 `[2, 3]`. Positions are measured in pixels from the top left corner, so the center of the first
        pixel is at 0.5.

        :param height: Height of the image in pixels.
        :param width: Width of the image in pixels.
        """
        if not (0 < height < 1 << 32 and 0 < width < 1 << 32):
            raise ValueError(f"invalid image of {height} x {width} pixels; pass its height and width")
        values = _native.position_in_image(json.loads(self.recipe), self.view, self.key, height, width)
        return torch.tensor(values, dtype=torch.float64).reshape(2, 3)

    def mask(self, mask: torch.Tensor, fill: float = 0) -> torch.Tensor:
        """Return the values of `mask` at the pixels of the input.

        Each pixel has the value at its nearest position in the mask, so that class numbers are not mixed.

        :param mask: `[..., height, width]` of any type, as large as the image.
        :param fill: Value of pixels outside of the image.
        """
        height, width = mask.shape[-2:]
        rows, columns = self.size
        down, across = torch.meshgrid(torch.arange(rows) + 0.5, torch.arange(columns) + 0.5, indexing="ij")
        positions = torch.stack([across, down, torch.ones_like(down)]).to(torch.float64).flatten(1)
        x, y = (self.matrix(height, width) @ positions).floor().long().reshape(2, rows, columns).to(mask.device)
        inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
        found = mask[..., y.clamp(0, height - 1), x.clamp(0, width - 1)]
        return torch.where(inside, found, torch.full_like(found, fill))

    def points(self, points: torch.Tensor, height: int, width: int) -> torch.Tensor:
        """Return the positions of points of the image in the input. They can be outside of it.

        :param points: `[..., 2]` of `(x, y)` in pixels of the image.
        :param height: Height of the image in pixels.
        :param width: Width of the image in pixels.
        """
        matrix = self.matrix(height, width).to(points.device)
        inverse = torch.linalg.inv(matrix[:, :2])
        return ((points.to(torch.float64) - matrix[:, 2]) @ inverse.T).to(points.dtype if points.is_floating_point() else torch.float32)

    def boxes(self, boxes: torch.Tensor, height: int, width: int) -> torch.Tensor:
        """Return the boxes around the same objects in the input, clipped to it.

        A box of an object outside of the input has no area. Rotated boxes become larger, as in torchvision.

        :param boxes: `[n, 4]` of `(left, top, right, bottom)` in pixels of the image.
        :param height: Height of the image in pixels.
        :param width: Width of the image in pixels.
        """
        corners = boxes[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2)
        moved = self.points(corners, height, width)
        rows, columns = self.size
        most = torch.tensor([columns, rows], dtype=moved.dtype, device=moved.device)
        least, largest = (torch.minimum(edge.clamp(min=0), most) for edge in (moved.amin(1), moved.amax(1)))
        return torch.cat([least, largest], 1)


@dataclasses.dataclass(frozen=True)
class Sample:
    """A sample of a batch, for which `targets=` returns the target."""

    key: str
    """Key of the image, relative to the data root."""
    index: int
    """Position in the listing of the part."""
    epoch: int
    """Epoch, counted from 0."""
    label: Any
    """Label or labels according to `task=`."""
    _transform: Transform | None = dataclasses.field(repr=False)

    @property
    def transform(self) -> Transform:
        """Position of the network's input in the image. Raises `ValueError` with a custom guest."""
        return require_transform(self._transform)


def require_transform(transform: Transform | None) -> Transform:
    """Return the transform. Raises `ValueError` if there is none, because a custom guest selects the crop."""
    if transform is None:
        raise ValueError("a custom guest selects which part of an image it uses; move the targets without a transform")
    return transform


Targets = Callable[[list[Sample]], Any]
"""Returns the targets of a batch of samples."""


def ahead_of_time(targets: Targets, batches: Iterable[list[Sample]], ahead: int) -> Iterator[concurrent.futures.Future[Any]]:
    """Yield the pending targets of each batch in order, and call `targets` for up to `ahead` further batches in threads."""
    pool = concurrent.futures.ThreadPoolExecutor(min(THREADS, ahead + 1), "frostline-targets")
    pending: collections.deque[concurrent.futures.Future[Any]] = collections.deque()
    try:
        for samples in batches:
            pending.append(pool.submit(targets, samples))
            if len(pending) > ahead:
                yield pending.popleft()
        while pending:
            yield pending.popleft()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
