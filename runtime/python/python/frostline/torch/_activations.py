"""Datasets of activations."""

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
from frostline.torch._augmentation import Augmentation
from frostline.torch._steps import Progress, Share, Steps

LOG = logging.getLogger("frostline")
STRETCH = 512
"""Number of batches per call of `Source.rows`. The keys of a complete epoch would need seconds and hundreds of MB."""
NAMED = 20
"""Maximum number of samples in `Activations.skipped`."""
COLUMNS = ("key", "version", "size")
"""Fields of a sample in the order of `Samples.take`."""


def check_options(*, batch, seed, augment, columns, rank, world):
    """Raise `ValueError` or `TypeError` for options that `Activations` does not accept."""
    if not isinstance(batch, int) or batch < 1:
        raise ValueError(f"invalid batch {batch!r}; it must be an integer of at least 1")
    if (rank is None) != (world is None) or (world is not None and not 0 <= rank < world):
        raise ValueError(f"invalid rank {rank} and world {world}; pass both or none, with rank less than world")
    if not 0 <= seed < 1 << 63:
        raise ValueError(f"invalid seed {seed}; it must be at least 0 and less than 2^63")
    if augment is not None and not isinstance(augment, Augmentation):
        raise TypeError(f"augment is a {type(augment).__name__}; pass a frostline.torch.Augmentation")
    if isinstance(columns, str) or (unknown := [column for column in columns if column not in COLUMNS]):
        raise ValueError(f"invalid columns {columns if isinstance(columns, str) else unknown[0]!r}; use a list of {', '.join(COLUMNS)}")


class Batch(tuple):
    """A batch `(x, y)` or `(x, y, columns)`, which a DataLoader must not collate again."""


def _refuse(*_, **__):
    raise ValueError("the data set yields batches: pass batch_size=None to the DataLoader")


# A DataLoader with a batch size calls this function for a list of batches.
default_collate_fn_map[Batch] = _refuse


class Activations(torch.utils.data.IterableDataset):
    """Iterable dataset of batches `(x, y)` of activations at the freeze cut and labels, with prefetch.

        for x, y in torch.utils.data.DataLoader(data, batch_size=None): ...

    `x` is float32 `[n, *shape]`. `y` is int64 `[n]`, or float32 `[n, k]` if a labels table contains `k` values per
    sample. Both are writable. If `columns` is set, batches are `(x, y, columns)` with a dictionary of lists.

    Each pass is the next epoch with a different order of samples, which does not depend on the machine or the number of
    processes. With `torch.distributed`, each process receives its part of every batch, and `batch` is the total size.
    Data workers are supported but not required.
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
        augment: Augmentation | None = None,
        columns: Sequence[str] = (),
        rank: int | None = None,
        world: int | None = None,
    ) -> None:
        """Create a dataset. `frostline.torch.pushdown` does this for the parts of a data root.

        :param source: Source of the features.
        :param samples: Samples of the dataset.
        :param batch: Total number of samples per batch.
        :param seed: Seed of the order of all epochs, from 0 to 2^63 - 1.
        :param shuffle: Whether epochs are shuffled. Otherwise the samples are in the order of the listing.
        :param drop_last: Whether to drop a smaller last batch.
        :param augment: Augmentation of the images.
        :param columns: Additional fields of each sample: `key`, `version` and `size`.
        :param rank: Replaces the rank of `torch.distributed`. If other code divides batches among processes, as
            accelerate does, pass `rank=0, world=1`.
        :param world: Replaces the number of processes of `torch.distributed`.
        """
        check_options(batch=batch, seed=seed, augment=augment, columns=columns, rank=rank, world=world)
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
        """Return the number of steps per epoch."""
        return len(self._steps)

    def __repr__(self) -> str:
        encoding = self.source.stream.get("encoding", "f32")
        shape = "x".join(map(str, self.source.row or ())) or "unknown"
        return f"Activations({len(self.samples)} samples in batches of {self.batch}, rows {shape}, split {self.source.split!r}, encoding {encoding!r})"

    @property
    def batch(self) -> int:
        """Total number of samples per batch of all processes."""
        return self._steps.batch

    @property
    def seed(self) -> int:
        """Seed of the order of all epochs."""
        return self._progress.seed

    def close(self) -> None:
        """Release the connections, the feature store and the uploads on an embedded host, in this process.

        Later batches of this data set, of `validation` and of `test` raise `frostline.Error`. Copies in other processes, such
        as data workers, are not affected. A data set that is collected releases the same.
        """
        self.source.close()

    def __enter__(self) -> Activations:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def as_map(self) -> ActivationMap:
        """Return the same samples as a map-style dataset, for use with samplers."""
        return ActivationMap(self.source, self.samples)

    def set_epoch(self, epoch: int) -> None:
        """Select the epoch of the next pass, counted from 0.

        The pass starts at the first step, unless `load_state_dict` restored a position in this epoch.
        """
        begun, _ = self._progress.last()
        if begun is not None or self._progress.next()[0] != epoch:
            self._seek(epoch, 0)

    def state_dict(self, step: int | None = None) -> dict[str, Any]:
        """Return the position in the current pass for `load_state_dict`.

        The state contains the seed, the epoch, the number of completed steps, the batch size and a hash of the samples.

        :param step: Number of completed steps of the epoch. Required with data workers, which are ahead of the loop.
        """
        epoch, done = self._at
        if torch.utils.data.get_worker_info() is None:
            begun, workers = self._progress.last()
            if step is None and begun is not None and workers > 0:
                raise ValueError("data workers are ahead of the training loop; pass the number of completed steps: state_dict(step=...)")
            epoch = begun if begun is not None else epoch
        done = done if step is None else step
        # Not in a data worker: when one worker finishes its part, other workers may not have finished.
        if done >= len(self) and torch.utils.data.get_worker_info() is None:
            epoch, done = epoch + 1, 0
        return {"seed": self.seed, "epoch": epoch, "step": done, "batch": self.batch, "samples": self._hash()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue at the position of `state_dict` without fetching earlier batches.

        The number of processes can be different.
        """
        for key, mine, what in (
            ("samples", self._hash(), "the samples differ: images were added, removed, replaced or relabeled"),
            ("batch", self.batch, f"its batch size is {state['batch']} instead of {self.batch}"),
        ):
            if state[key] != mine:
                raise ValueError(f"this state does not match the dataset: {what}")
        if torch.utils.data.get_worker_info() is None:
            self._seek(state["epoch"], state["step"], state["seed"])
        else:
            self._resumed = state["epoch"], state["step"], state["seed"]
            self._at = self._resumed[:2]

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        worker = torch.utils.data.get_worker_info()
        return self._begin(worker.id, worker.num_workers) if worker else self._begin_later()

    def _begin_later(self):
        # A pass begins with its first batch. Some loaders create a second iterator that they do not use.
        yield from self._begin(0, 0)

    def _begin(self, number, workers):
        epoch, first = self._progress.begin(number, workers)
        first += number
        # Loaders that save a state per worker restore it in each worker.
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
        # Validation requires no joint steps, so a process without samples in the last batch skips it.
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
        return {"augmentation": self.augment.settings(), "seed": self.seed, "number": epoch + 1} if self.augment else None

    def _note(self, failed):
        for key, reason in failed:
            if key not in self.skipped:
                LOG.warning("skipped %s: %s", key, reason)
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
        # A spawned data worker does not belong to a process group, so it receives the share of its parent.
        return self.__dict__ | {"_share": self._share or Share.present()}


class ActivationMap(torch.utils.data.Dataset):
    """Map-style dataset of activations and labels `(x, y)` of single samples, for custom samplers.

        DataLoader(data.as_map(), batch_size=64, sampler=WeightedRandomSampler(weights, len(weights)))

    The index is the position of the sample in the listing, and `x` is float32 `[*shape]`. Cached features are read from
    this machine's disk. All other features of a batch are requested together. Images are not augmented. A bad sample
    raises `frostline.BadSample`.
    """

    def __init__(self, source: Source, samples: Samples) -> None:
        self.source, self.samples = source, samples

    @property
    def labels(self) -> numpy.ndarray:
        """Labels of all samples: int64 `[n]`, or float32 `[n, k]`."""
        return self.samples.labels

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        chosen = numpy.asarray(numbers)
        ((rows, _, failed),) = self.source.rows(self.samples.take(chosen), len(chosen))
        refuse_bad(failed, "exclude its index from the sampler")
        return list(zip(torch.from_numpy(rows), torch.from_numpy(self.samples.labels[chosen]), strict=True))


def mean(values: torch.Tensor) -> torch.Tensor:
    """Return the mean of per-row losses `[n]` over the rows of all processes, for DistributedDataParallel.

    DistributedDataParallel averages gradients over processes. This equals the average over rows only if all processes
    have the same number of rows, which is not the case if the last batch cannot be divided evenly or if bad samples are
    skipped. `values` can be empty.
    """
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return values.sum() / max(len(values), 1)
    count = torch.tensor(float(len(values)), dtype=values.dtype, device=values.device)
    distributed.all_reduce(count)
    return values.sum() * (distributed.get_world_size() / count.clamp(min=1))
