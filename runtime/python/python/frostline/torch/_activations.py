"""Datasets of activations."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import logging
import math
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy
import torch
from torch.utils.data._utils.collate import default_collate_fn_map

from frostline import _native
from frostline._samples import Samples
from frostline._source import Source, refuse_bad
from frostline.torch._augmentation import Augmentation
from frostline.torch._stages import samples_bar
from frostline.torch._steps import Progress, Share, Steps
from frostline.torch._targets import Sample, Targets, Transform, ahead_of_time, require_transform

LOG = logging.getLogger("frostline")
STRETCH = 512
"""Number of batches per call of `Source.rows`. The keys of a complete epoch would need seconds and hundreds of MB."""
AHEAD = 3
"""Default number of batches whose targets are loaded ahead of time, as for their rows."""
NAMED = 20
"""Maximum number of samples in `Activations.skipped`."""
FIELDS = ("key", "version", "size")
"""Fields of a sample in the order of `Samples.take`."""
COLUMNS = (*FIELDS, "index")
"""Fields that a batch can have. `index` is the position in the listing."""


def check_options(*, batch, seed, augment, views, columns, rank, world, targets=None):
    """Raise `ValueError` or `TypeError` for options that `Activations` does not accept."""
    if not isinstance(batch, int) or batch < 1:
        raise ValueError(f"invalid batch {batch!r}; it must be an integer of at least 1")
    if (rank is None) != (world is None) or (world is not None and not 0 <= rank < world):
        raise ValueError(f"invalid rank {rank} and world {world}; pass both or none, with rank less than world")
    if not isinstance(seed, int) or not 0 <= seed < 1 << 63:
        raise ValueError(f"invalid seed {seed!r}; it must be an integer of at least 0 and less than 2^63")
    if augment is not None and not isinstance(augment, Augmentation):
        raise TypeError(f"augment is a {type(augment).__name__}; pass a frostline.torch.Augmentation")
    if views is not None and (not isinstance(views, int) or views < 1):
        raise ValueError(f"invalid views {views!r}; it must be an integer of at least 1")
    if views is not None and augment is None:
        raise ValueError(f"views={views} repeats augmentations, but augment= is not set; set both or none")
    if targets is not None and not callable(targets):
        raise TypeError(f"targets is a {type(targets).__name__}; pass a function that takes a list of samples and returns their targets")
    if isinstance(columns, str) or (unknown := [column for column in columns if column not in COLUMNS]):
        raise ValueError(f"invalid columns {columns if isinstance(columns, str) else unknown[0]!r}; use a list of {', '.join(COLUMNS)}")


@dataclasses.dataclass(frozen=True)
class Packing:
    """Positions of the tensors of a cut in a row that contains all of them."""

    parts: tuple[tuple[int, tuple[int, ...]], ...]
    """Offset and shape of each tensor."""

    def unpack(self, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the tensors in rows `[n, elements]`."""
        flat = rows.flatten(1)
        return tuple(flat[:, start : start + math.prod(shape)].reshape(len(rows), *shape) for start, shape in self.parts)


class Batch(tuple[Any, ...]):
    """A batch `(x, y)` or `(x, y, columns)`, which a DataLoader must not collate again."""


def _refuse(*_, **__):
    raise ValueError("the data set yields batches: pass batch_size=None to the DataLoader")


# A DataLoader with a batch size calls this function for a list of batches.
default_collate_fn_map[Batch] = _refuse


class Activations(torch.utils.data.IterableDataset[Any]):
    """Iterable dataset of batches `(x, y)` of activations at the freeze cut and labels, with prefetch.

        for x, y in torch.utils.data.DataLoader(data, batch_size=None): ...

    `x` is float32 `[n, *shape]`, or a tuple of such tensors if several tensors cross the cut. `y` is int64 `[n]`, or float32 `[n, k]` if a labels table contains `k` values per
    sample. Both are writable. If `targets` is set, `y` is what it returns. If `columns` is set, batches are `(x, y, columns)`
    with a dictionary of lists, and of an int64 tensor `[n]` for the column `index`.

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
        views: int | None = None,
        columns: Sequence[str] = (),
        targets: Targets | None = None,
        recipe: str | None = None,
        packing: Packing | None = None,
        rank: int | None = None,
        world: int | None = None,
        progress: bool = False,
    ) -> None:
        """Create a dataset. `frostline.torch.pushdown` does this for the parts of a data root.

        :param source: Source of the features.
        :param samples: Samples of the dataset.
        :param batch: Total number of samples per batch.
        :param seed: Seed of the order of all epochs, from 0 to 2^63 - 1.
        :param shuffle: Whether epochs are shuffled. Otherwise the samples are in the order of the listing.
        :param drop_last: Whether to drop a smaller last batch.
        :param augment: Augmentation of the images.
        :param views: Number of augmentations per image, which repeat in later epochs.
        :param columns: Additional fields of each sample: `key`, `version`, `size` and `index`.
        :param targets: Function from a list of `Sample` to their targets, which replace the labels. Threads call it ahead of
            time, for several batches at once.
        :param recipe: Recipe of the network's input, or `None` with a custom guest.
        :param packing: Positions of the tensors in a row, if several tensors cross the cut.
        :param rank: Replaces the rank of `torch.distributed`. If other code divides batches among processes, as
            accelerate does, pass `rank=0, world=1`.
        :param world: Replaces the number of processes of `torch.distributed`.
        :param progress: Whether to show a progress bar for the first pass.
        """
        check_options(batch=batch, seed=seed, augment=augment, views=views, columns=columns, rank=rank, world=world, targets=targets)
        self.source, self.samples, self.columns = source, samples, tuple(columns)
        self.targets, self._recipe, self._packing = targets, recipe, packing
        self.shuffle, self.augment, self.views = shuffle, augment, views
        self._shows_progress = progress
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
        self._remove_files: Callable[[], object] | None = None

    def __len__(self) -> int:
        """Return the number of steps per epoch."""
        return len(self._steps)

    def __getitem__(self, _: object) -> NoReturn:
        raise TypeError(
            "this data set has an order, not indices: index data.as_map() instead, for example in random_split or Subset, or pass "
            "validation= to pushdown for a validation part"
        )

    def __repr__(self) -> str:
        encoding = self.source.stream.get("encoding", "f32")
        shapes = [shape for _, shape in self._packing.parts] if self._packing else [self.source.row or ()]
        shape = " and ".join("x".join(map(str, shape)) or "unknown" for shape in shapes)
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
        """Release the connections, the feature cache, the file of the frozen layers and the uploads on an embedded host, in this process.

        Later batches of this data set, of `validation` and of `test` raise `frostline.Error`. Copies in other processes, such
        as data workers, are not affected. A data set that is collected releases the same.
        """
        self.source.close()
        if self._remove_files is not None:
            self._remove_files()

    def __enter__(self) -> Activations:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def as_map(self) -> ActivationMap:
        """Return the same samples as a map-style dataset, for use with samplers. Its labels are those of the listing."""
        return ActivationMap(self.source, self.samples, self._packing)

    def transform_of(self, key: str, epoch: int = 0) -> Transform:
        """Return the position of the network's input in the image of this sample.

        Raises `ValueError` with a custom guest.

        :param key: Key of the image, relative to the data root.
        :param epoch: Epoch, counted from 0. Without augmentation, all epochs are the same.
        """
        return require_transform(self._transform_of(key, self._view(epoch)))

    def _transform_of(self, key, view):
        return None if self._recipe is None else Transform(self._recipe, key, view)

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

    def __iter__(self) -> Iterator[Any]:
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
        shown = self._shows_progress and torch.utils.data.get_worker_info() is None and share.rank == 0
        self._shows_progress = False
        with samples_bar(shown, f"epoch {epoch + 1}", sum(map(len, parts))) as advance, self._all_targets(parts, epoch) as pending:
            # The first targets are loaded while the first rows are fetched.
            for number, part, loading, (data, chosen, failed) in zip(numbers, parts, pending, self._rows(parts, epoch), strict=False):
                self._note(failed)
                self._at = (epoch, number + stride)
                advance(len(chosen))
                batch = (unpacked(data, self._packing), self._targets(loading, part, chosen, epoch))
                yield Batch((*batch, self._fields(chosen)) if self.columns else batch)

    def _all_targets(self, parts, epoch):
        """Return a context manager with the pending targets of each of the parts, or with `None` for each if there are labels only."""
        if self.targets is None:
            return contextlib.nullcontext(itertools.repeat(None))
        batches = (self._described(part, epoch) for part in parts)
        return contextlib.closing(ahead_of_time(self.targets, batches, self.source.stream.get("ahead", AHEAD)))

    def _targets(self, loading, part, chosen, epoch):
        """Return the targets of the samples with the indices `chosen`, which are those of the part without bad samples."""
        if self.targets is None:
            return torch.from_numpy(self.samples.labels[chosen])
        loaded = loading.result()
        return loaded if len(chosen) == len(part) else self.targets(self._described(chosen, epoch))

    def _described(self, chosen, epoch):
        keys = [sample[0] for sample in self.samples.take(chosen)]
        view = self._view(epoch)
        return [
            Sample(key, int(index), epoch, label, self._transform_of(key, view))
            for key, index, label in zip(keys, chosen, self.samples.labels[chosen].tolist(), strict=True)
        ]

    def _rows(self, parts, epoch):
        """Yield (rows, indices of their samples, failures) for each of the parts, which are lists of sample indices."""
        size, view = len(parts[0]), self._view(epoch)
        repeats = self.augment is None or self.views is not None
        for start in range(0, len(parts), STRETCH):
            stretch = numpy.concatenate(parts[start : start + STRETCH])
            for data, places, failed in self.source.rows(self.samples.take(stretch), size, view, repeats):
                yield data, stretch[places], failed

    def _fields(self, chosen):
        """Return the additional fields of the samples with these indices."""
        samples = self.samples.take(chosen)
        fields = {name: [sample[place] for sample in samples] for place, name in enumerate(FIELDS) if name in self.columns}
        return fields | ({"index": torch.from_numpy(chosen.astype(numpy.int64))} if "index" in self.columns else {})

    def _order(self, epoch):
        count = len(self.samples)
        # The command counts epochs from 1.
        return _native.order(count, self.seed, epoch + 1) if self.shuffle else numpy.arange(count)

    def _view(self, epoch):
        if self.augment is None:
            return None
        number = epoch + 1 if self.views is None else (epoch + 1) % self.views
        return {"augmentation": self.augment.settings(), "seed": self.seed, "number": number}

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
        return self.__dict__ | {"_share": self._share or Share.present(), "_remove_files": None}

    def own_files(self, remove: Callable[[], object]) -> None:
        """Call `remove` when this data set is closed or collected. Copies in other processes do not call it."""
        self._remove_files = weakref.finalize(self, remove)


class ActivationMap(torch.utils.data.Dataset[tuple[Any, torch.Tensor]]):
    """Map-style dataset of activations and labels `(x, y)` of single samples, for custom samplers.

        DataLoader(data.as_map(), batch_size=64, sampler=WeightedRandomSampler(weights, len(weights)))

    The index is the position of the sample in the listing, and `x` is float32 `[*shape]`, or a tuple of such tensors. Cached features are read from
    this machine's disk. All other features of a batch are requested together. Images are not augmented. A bad sample
    raises `frostline.BadSample`.
    """

    def __init__(self, source: Source, samples: Samples, packing: Packing | None = None) -> None:
        self.source, self.samples, self._packing = source, samples, packing

    @property
    def labels(self) -> numpy.ndarray:
        """Labels of all samples: int64 `[n]`, or float32 `[n, k]`."""
        return self.samples.labels

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, number: int) -> tuple[Any, torch.Tensor]:
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[tuple[Any, torch.Tensor]]:
        chosen = numpy.asarray(numbers)
        ((rows, _, failed),) = self.source.rows(self.samples.take(chosen), len(chosen))
        refuse_bad(failed, "exclude its index from the sampler")
        x = unpacked(rows, self._packing)
        features = zip(*x, strict=True) if self._packing else x
        return list(zip(features, torch.from_numpy(self.samples.labels[chosen]), strict=True))


def unpacked(rows: numpy.ndarray, packing: Packing | None) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """Return the tensor of a batch, or the tensors if there is a packing."""
    whole = torch.from_numpy(rows)
    return packing.unpack(whole) if packing else whole


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
