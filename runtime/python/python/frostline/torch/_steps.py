"""Assignment of samples to processes and steps. It is a pure function, so all processes agree on it."""

import dataclasses
import sys

import torch

MOST_WORKERS = 64
"""Maximum number of data workers per process, which determines the size of the table in `Progress`."""


@dataclasses.dataclass(frozen=True)
class Share:
    """Part of every global batch that belongs to one of `world` processes.

    Parts are contiguous. Their sizes differ by at most one sample, and the first ranks have the larger parts.
    """

    rank: int = 0
    world: int = 1

    def of(self, count):
        """Return (first, end) of this rank's part of `count` samples."""
        each, over = divmod(count, self.world)
        first = self.rank * each + min(self.rank, over)
        return first, first + each + (self.rank < over)

    @classmethod
    def present(cls):
        """Return the share of this process in `torch.distributed`, or `None` if it is not initialized.

        Raises `ValueError` if accelerate runs several processes, because it divides the batches again.
        """
        state = getattr(sys.modules.get("accelerate.state"), "PartialState", None)
        processes = getattr(state, "_shared_state", {}).get("num_processes", 1)
        if processes > 1:
            raise ValueError(
                f"accelerate runs {processes} processes and divides every batch among them: pass Sampling(rank=0, world=1), or the rank of this "
                "process and the number of processes if accelerate does not prepare the DataLoader"
            )
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return cls(distributed.get_rank(), distributed.get_world_size())
        return None


@dataclasses.dataclass(frozen=True)
class Steps:
    """Division of `count` samples into steps of `batch` samples over all processes.

    The last step contains the remaining samples.
    """

    count: int
    batch: int
    drop_last: bool = False

    def __len__(self):
        return self.count // self.batch if self.drop_last else -(-self.count // self.batch)

    def sizes(self, number):
        """Return (first, end) of the samples of a step in the order of the epoch."""
        return number * self.batch, min((number + 1) * self.batch, self.count)

    def check(self, world):
        """Raise `ValueError` if a process would have an empty batch, because the mean of its loss would be NaN."""
        smallest = self.batch if len(self) == 0 or self.drop_last else self.count - (len(self) - 1) * self.batch
        if smallest < world:
            raise ValueError(
                f"the last batch of {self.count} samples in batches of {self.batch} has {smallest} for {world} processes; "
                "change batch or pass drop_last=True"
            )

    def share(self, order, share, numbers):
        """Yield the sample indices of this share for each of the steps `numbers`.

        `order` contains the sample indices in the order of the epoch.
        """
        for number in numbers:
            first, end = self.sizes(number)
            own, own_end = share.of(end - first)
            yield order[first + own : first + own_end]


class Progress:
    """Position of the passes over the data, in memory shared by this process and its forked or spawned data workers.

    Each pass is the next epoch, unless `seek` selects another. Workers cannot exchange their positions, and a worker can
    begin a pass before others have finished the previous one. But all workers begin each pass. Therefore each worker
    counts the passes that it has begun, separately for each number of workers.
    """

    def __init__(self, seed):
        # Epoch and step of the first pass after the last `seek`; number of `seek` calls; number of workers of the last pass; seed;
        # offset of the epoch after `resume` in workers.
        self._goal = torch.tensor([0, 0, 0, 0, seed, 0], dtype=torch.int64).share_memory_()
        # [workers, worker]: number of `seek` calls when the worker last began a pass, and number of passes begun since that `seek`.
        self._begun = torch.zeros(MOST_WORKERS + 1, MOST_WORKERS, 2, dtype=torch.int64).share_memory_()

    def __setstate__(self, state):
        # A spawned worker receives the same memory. Other processes receive a copy, which they share with their own workers.
        self.__dict__.update({name: part if part.is_shared() else part.share_memory_() for name, part in state.items()})

    @property
    def seed(self):
        """Seed of the order of all epochs."""
        return int(self._goal[4])

    def seek(self, epoch, step, seed=None):
        """Start the next pass at step `step` of epoch `epoch`."""
        self._goal[0], self._goal[1] = epoch, step
        self._goal[4] = self.seed if seed is None else seed
        self._goal[5] = 0
        self._goal[2] += 1

    def resume(self, begun, epoch, seed):
        """Change the epoch of the pass that began as epoch `begun` to `epoch`. Later passes follow it.

        All workers pass the same values.
        """
        self._goal[5] += epoch - begun
        self._goal[4] = seed
        return epoch

    def begin(self, worker=0, workers=0):
        """Begin a pass in a worker and return (epoch, first step). With 0 workers, the process itself begins the pass."""
        if workers > MOST_WORKERS:
            raise ValueError(f"{workers} data workers exceed the limit of {MOST_WORKERS}; use num_workers=0, because batches are prefetched without workers")
        epoch, step, settings = self._goal[:3].tolist()
        place = self._begun[workers, worker]
        if place[0] != settings:
            place[0], place[1] = settings, 0
        passes = int(place[1]) + self._elsewhere(workers)
        place[1] += 1
        self._goal[3] = workers
        return epoch + passes + int(self._goal[5]), step if passes == 0 else 0

    def _elsewhere(self, workers):
        """Return the number of passes since `seek` with a different number of workers."""
        begun = torch.where(self._begun[..., 0] == self._goal[2], self._begun[..., 1], 0).amax(dim=1)
        return int(begun.sum() - begun[workers])

    def last(self):
        """Return (epoch, workers) of the last pass since `seek`. The epoch is `None` if no pass was begun."""
        epoch, _, settings, workers = self._goal[:4].tolist()
        set_at, passes = self._begun[workers, 0].tolist()
        begun = set_at == settings and passes > 0
        passes += self._elsewhere(workers) + int(self._goal[5])
        return (epoch + passes - 1 if begun else None), workers

    def next(self):
        """Return (epoch, step) of the next pass, if no pass was begun since `seek`."""
        return tuple(self._goal[:2].tolist())
