"""Groups of related arguments of `pushdown`."""

from __future__ import annotations

import dataclasses
import os
from typing import Any


@dataclasses.dataclass(frozen=True)
class Sampling:
    """Order of the training samples, and their division among processes."""

    shuffle: bool = True
    """Whether samples are shuffled. Otherwise they are in the order of the listing."""
    drop_last: bool = False
    """Whether to drop a smaller last batch."""
    rank: int | None = None
    """Replaces the rank of `torch.distributed`. If other code divides batches among processes, as accelerate does, pass
    `rank=0, world=1`."""
    world: int | None = None
    """Replaces the number of processes of `torch.distributed`."""

    def __post_init__(self) -> None:
        if (self.rank is None) != (self.world is None) or (self.rank is not None and self.world is not None and not 0 <= self.rank < self.world):
            raise ValueError(f"invalid rank {self.rank} and world {self.world}; pass both or none, with rank less than world")


@dataclasses.dataclass(frozen=True)
class Prefix:
    """Computation of the frozen layers."""

    precision: str = "f32"
    """`int8` quantizes the frozen layers with images of the data as calibration samples, which reduces their time to between
    a half and a quarter. `auto` quantizes them if this is faster and precise enough."""
    allow_imprecise: bool = False
    """Accepts quantized layers with a cosine similarity to f32 below 0.99."""
    guest: str | os.PathLike[str] | None = None
    """Guest to use instead of the stock guest."""
    parameters: str | None = None
    """Parameters of the guest."""
    threads: int = 0
    """Number of threads for the layers from the split to the freeze cut. 0 uses all cores."""

    def __post_init__(self) -> None:
        if self.precision not in ("f32", "int8", "auto"):
            raise ValueError(f"invalid precision {self.precision!r}; use 'f32', 'int8' or 'auto'")
        if not isinstance(self.threads, int) or self.threads < 0:
            raise ValueError(f"invalid threads {self.threads!r}; it must be an integer of at least 0")
        if self.precision != "f32" and self.guest is not None:
            raise ValueError(f"precision={self.precision!r} requires the stock guest, which provides images for the calibration; leave it at 'f32' with guest=")


@dataclasses.dataclass(frozen=True)
class Fetching:
    """Requests to hosts. `None` selects the default."""

    ahead: int | None = None
    """Maximum number of prefetched batches. Defaults to 3, or to the number of the plan."""
    memory: int | None = None
    """Memory limit of the batches in flight in bytes. Defaults to 1 GiB."""
    open_requests: int | None = None
    """Maximum number of requests in flight per host. Defaults to 8, or to the number of the plan."""
    request_samples: int | None = None
    """Maximum number of samples per request. Defaults to 32, or to the number of the plan."""
    priority: int | None = None
    """Priority of the requests over other jobs of the tenant. See `frostline train`."""
    fixed_batch: int | None = None
    """Number of samples for which hosts execute the frozen layers at a time. See `frostline train`."""

    def settings(self) -> dict[str, Any]:
        """Return the settings of `frostline._native.Stream` that differ from the defaults."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}
