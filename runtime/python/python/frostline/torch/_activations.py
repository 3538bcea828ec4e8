"""An iterable dataset of activations."""

from __future__ import annotations

import collections
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy
import torch
from torch.utils.data._utils.collate import default_collate_fn_map

from frostline import _native
from frostline._samples import Samples
from frostline._source import Source, refuse_bad
from frostline.torch._steps import Progress, Share, Steps

LOG = logging.getLogger("frostline")
STRETCH = 512
"""Batches that are asked for at a time: the names of all samples of an epoch would take seconds to make, and hundreds of MB."""
NAMED = 20
"""Samples that `skipped` names, at most."""
COLUMNS = ("key", "version", "size")
"""What `Samples.take` tells of a sample, in this order."""


class Batch(tuple):
    """A batch `(x, y)` or `(x, y, columns)`, which a DataLoader must not put into batches again."""


def _refuse(*_, **__):
    raise ValueError("the data set yields batches: pass batch_size=None to the DataLoader")


# What a DataLoader with a batch size calls for a list of them.
default_collate_fn_map[Batch] = _refuse


class Activations(torch.utils.data.IterableDataset):
    """Batches `(x, y)` of activations at the freeze cut and labels, fetched ahead: `x` float32 `[n, *shape]`, `y` int64 `[n]`, or float32
    `[n, k]` where a table of labels says `k` values of each sample. Both may be written to.

        for x, y in torch.utils.data.DataLoader(data, batch_size=None): ...

    With `columns` batches are `(x, y, columns)`, a dictionary with a list for each.

    Each pass is the next epoch: an order of its own, the same on every machine and for every number of processes. With `torch.distributed` each
    process has its part of every batch: `batch` is that of all together. Data workers are not needed, but possible.
    """

    def __init__(
        self,
        source: Source,
        samples: Samples,
        *,
        batch: int = 64,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
        augment: Mapping[str, Any] | None = None,
        columns: Sequence[str] = (),
        rank: int | None = None,
        world: int | None = None,
    ) -> None:
        """`source` and `samples` are those of `frostline.torch.pushdown`; `augment`: how training images are varied, as the wire's `Augmentation`;
        `columns`: of `key`, `version` and `size`, what batches tell of each sample.

        `rank` and `world` in the place of `torch.distributed`'s; 0 and 1 for whoever divides batches himself, as accelerate does.
        """
        if batch < 1:
            raise ValueError(f"batch is {batch}; it must be at least 1")
        if (rank is None) != (world is None) or (world is not None and not 0 <= rank < world):
            raise ValueError(f"rank is {rank} and world {world}; both are given, or none, and rank is below world")
        if not 0 <= seed < 1 << 63:
            raise ValueError(f"seed is {seed}; it must be at least 0 and below 2^63")
        if unknown := [column for column in columns if column not in COLUMNS]:
            raise ValueError(f"columns has {unknown[0]!r}; it may have {', '.join(COLUMNS)}")
        self.source, self.samples, self.columns = source, samples, tuple(columns)
        self.shuffle, self.augment = shuffle, augment
        self.classes: list[str] = []
        self.validation: Activations | None = None
        self.test: Activations | None = None
        self._steps = Steps(len(samples), batch, drop_last)
        self._share = None if rank is None else Share(rank, world)
        self._progress = Progress(seed)
        self._at = (0, 0)
        self._resumed = None
        self._digest = None
        self.skipped: collections.Counter[str] = collections.Counter()

    def __len__(self) -> int:
        """Steps of an epoch."""
        return len(self._steps)

    def __repr__(self) -> str:
        encoding = self.source.stream.get("encoding", "f32")
        shape = "x".join(map(str, self.source.row or ())) or "unknown"
        return f"Activations({len(self.samples)} samples in batches of {self.batch}, rows {shape}, split {self.source.split!r}, encoding {encoding!r})"

    @property
    def batch(self) -> int:
        """Samples of a batch of all processes together."""
        return self._steps.batch

    @property
    def seed(self) -> int:
        """What the orders of all epochs are drawn from."""
        return self._progress.seed

    def as_map(self) -> ActivationMap:
        """The same samples by their number, for samplers: a map-style data set of `(x, y)`, one sample each."""
        return ActivationMap(self.source, self.samples)

    def set_epoch(self, epoch: int) -> None:
        """The next pass is this epoch, from 0 on. From its beginning, unless it is the one that `load_state_dict` is to go on with."""
        begun, _ = self._progress.last()
        if begun is not None or self._progress.next()[0] != epoch:
            self._seek(epoch, 0)

    def state_dict(self, step: int | None = None) -> dict[str, Any]:
        """Where this pass stands, for `load_state_dict`: seed, epoch, steps done, batch, and the hash of the samples.

        `step`: how many steps of the epoch are done; needed with data workers, which are ahead of the loop.
        """
        epoch, done = self._at
        if torch.utils.data.get_worker_info() is None:
            begun, workers = self._progress.last()
            if step is None and begun is not None and workers > 0:
                raise ValueError("with data workers only your loop knows how many steps are done: state_dict(step=...)")
            epoch = begun if begun is not None else epoch
        done = done if step is None else step
        # A data worker has ended its part while others have not.
        if done >= len(self) and torch.utils.data.get_worker_info() is None:
            epoch, done = epoch + 1, 0
        return {"seed": self.seed, "epoch": epoch, "step": done, "batch": self.batch, "samples": self._hash()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where `state_dict` was asked for, fetching nothing of what lies before; the number of processes may be another one."""
        for key, mine, what in (
            ("samples", self._hash(), "the samples are others: images were added, removed, replaced or labeled anew since"),
            ("batch", self.batch, f"its batches have {state['batch']} samples and these {self.batch}"),
        ):
            if state[key] != mine:
                raise ValueError(f"this state is of another epoch of data, {what}")
        if torch.utils.data.get_worker_info() is None:
            self._seek(state["epoch"], state["step"], state["seed"])
        else:
            self._resumed = state["epoch"], state["step"], state["seed"]
            self._at = self._resumed[:2]

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        worker = torch.utils.data.get_worker_info()
        return self._begin(worker.id, worker.num_workers) if worker else self._begin_later()

    def _begin_later(self):
        # A pass begins with its first batch: whoever only asks for an iterator, as some loaders do twice, has begun none.
        yield from self._begin(0, 0)

    def _begin(self, number, workers):
        epoch, first = self._progress.begin(number, workers)
        first += number
        # A loader that asks each of its workers for a state gives it back to each.
        if self._resumed:
            (resumed, first, seed), self._resumed = self._resumed, None
            epoch = self._progress.resume(epoch, resumed, seed)
        self._at = (epoch, first)
        return self._pass(epoch, first, max(workers, 1))

    def _pass(self, epoch, first, stride):
        share = self._share or Share.present() or Share()
        if self.shuffle:
            self._steps.check(share.world)
        order = self._order(epoch)
        numbers = range(first, len(self), stride)
        parts = list(self._steps.share(order, share, numbers))
        # Validation has no step that all take part in: who has nothing of the last batch gets none of it.
        parts = [part for part in parts if len(part)]
        if not parts:
            return
        size, view = len(parts[0]), self._view(epoch)
        for start in range(0, len(parts), STRETCH):
            stretch = parts[start : start + STRETCH]
            chosen = numpy.concatenate(stretch)
            asked, labels = self.samples.take(chosen), self.samples.labels[chosen]
            rows = self.source.rows(asked, size, view)
            for number, (data, places, failed) in zip(numbers[start : start + len(stretch)], rows, strict=True):
                self._note(failed)
                self._at = (epoch, number + stride)
                batch = (torch.from_numpy(data), torch.from_numpy(labels[places]))
                told = {column: [asked[place][COLUMNS.index(column)] for place in places] for column in self.columns}
                yield Batch((*batch, told) if self.columns else batch)

    def _order(self, epoch):
        count = len(self.samples)
        # The command counts epochs from 1.
        return _native.order(count, self.seed, epoch + 1) if self.shuffle else numpy.arange(count)

    def _view(self, epoch):
        return {"augmentation": self.augment, "seed": self.seed, "number": epoch + 1} if self.augment else None

    def _note(self, failed):
        for key, reason in failed:
            if key not in self.skipped:
                LOG.warning("left out %s: %s", key, reason)
            if key in self.skipped or len(self.skipped) < NAMED:
                self.skipped[key] += 1

    def _seek(self, epoch, step, seed=None):
        self._progress.seek(epoch, step, seed)
        self._at = (epoch, step)

    def _hash(self):
        if self._digest is None:
            self._digest = self.samples.digest()
        return self._digest

    def __getstate__(self):
        # A spawned data worker is of no process group; it is told of its parent's.
        return self.__dict__ | {"_share": self._share or Share.present()}


class ActivationMap(torch.utils.data.Dataset):
    """Activations `(x, y)` of one sample each by its number in the listing, `x` float32 `[*shape]`, in any order: for samplers of your own.

        DataLoader(data.as_map(), batch_size=64, sampler=WeightedRandomSampler(weights, len(weights)))

    Rows that are kept come from this machine's disk; hosts are asked for all others of a batch at once. Images are not varied. A sample that cannot
    be used raises `frostline.BadSample`.
    """

    def __init__(self, source: Source, samples: Samples) -> None:
        self.source, self.samples = source, samples

    @property
    def labels(self) -> numpy.ndarray:
        """Of all samples, int64 `[n]`, or float32 `[n, k]`."""
        return self.samples.labels

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        chosen = numpy.asarray(numbers)
        ((rows, _, failed),) = self.source.rows(self.samples.take(chosen), len(chosen))
        refuse_bad(failed, "leave its number out of the sampler")
        return list(zip(torch.from_numpy(rows), torch.from_numpy(self.samples.labels[chosen]), strict=True))


def mean(values: torch.Tensor) -> torch.Tensor:
    """The mean of a loss for each row, `[n]`, over the rows of all processes, as DistributedDataParallel needs it: it averages gradients over
    processes, which is the same as over rows only where all have as many. They have not in a last batch that the processes cannot share
    evenly, or where bad samples are left out. Rows may be none at all.
    """
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return values.sum() / max(len(values), 1)
    count = torch.tensor(float(len(values)), dtype=values.dtype, device=values.device)
    distributed.all_reduce(count)
    return values.sum() * (distributed.get_world_size() / count.clamp(min=1))
