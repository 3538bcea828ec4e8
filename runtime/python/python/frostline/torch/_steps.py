"""Which samples a process trains on in which step: pure, so that it is the same everywhere."""

import dataclasses

import torch

MOST_WORKERS = 64
"""Data workers of one process, at most: the table of what they have begun has a place for each."""


@dataclasses.dataclass(frozen=True)
class Share:
    """What one of `world` processes has of every global batch: a contiguous part, as even as can be, the first ranks having the larger ones."""

    rank: int = 0
    world: int = 1

    def of(self, count):
        """(first, end) of this rank's part of `count` samples."""
        each, over = divmod(count, self.world)
        first = self.rank * each + min(self.rank, over)
        return first, first + each + (self.rank < over)

    @classmethod
    def present(cls):
        """That of this process by `torch.distributed`; all where that is not in use."""
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return cls(distributed.get_rank(), distributed.get_world_size())
        return None


@dataclasses.dataclass(frozen=True)
class Steps:
    """How `count` samples are divided into steps of `batch` samples over all processes, the last one of what is left."""

    count: int
    batch: int
    drop_last: bool = False

    def __len__(self):
        return self.count // self.batch if self.drop_last else -(-self.count // self.batch)

    def sizes(self, number):
        """(first, end) of the samples of this step, in the order of the epoch."""
        return number * self.batch, min((number + 1) * self.batch, self.count)

    def check(self, world):
        """Refuses a division in which a process has nothing to train on: the mean over its loss would be no number."""
        smallest = self.batch if len(self) == 0 or self.drop_last else self.count - (len(self) - 1) * self.batch
        if smallest < world:
            raise ValueError(
                f"the last batch of {self.count} samples in batches of {self.batch} has {smallest}, for {world} processes: "
                "take another batch or drop_last=True"
            )

    def share(self, order, share, numbers):
        """The places in `order` (an epoch's, of samples) that this share has in the steps `numbers`, one array a step."""
        for number in numbers:
            first, end = self.sizes(number)
            own, own_end = share.of(end - first)
            yield order[first + own : first + own_end]


class Progress:
    """Where the passes over the data stand, for this process and its data workers, forked or spawned: it lies in memory that they share.

    Every pass is an epoch of its own, the next one after the last, unless `seek` says which. Workers cannot ask each other how far they are,
    and some begin a pass while others end theirs; what all of them do alike is to begin. So each counts what it has begun, in a place of its
    own for each number of workers.
    """

    def __init__(self, seed):
        # Epoch and step of the first pass from here on; how often they were set; how many workers began the last pass; the seed; how far
        # epochs are ahead of that count, since workers were told to go on elsewhere.
        self._goal = torch.tensor([0, 0, 0, 0, seed, 0], dtype=torch.int64).share_memory_()
        # [workers, worker]: how often the goal was set when it last began a pass, and how many it has begun since.
        self._begun = torch.zeros(MOST_WORKERS + 1, MOST_WORKERS, 2, dtype=torch.int64).share_memory_()

    def __setstate__(self, state):
        # A spawned worker gets the same memory, whoever else unpickles this a copy that its own workers share.
        self.__dict__.update({name: part if part.is_shared() else part.share_memory_() for name, part in state.items()})

    @property
    def seed(self):
        """What orders are drawn from."""
        return int(self._goal[4])

    def seek(self, epoch, step, seed=None):
        """The next pass is `epoch` from `step` on."""
        self._goal[0], self._goal[1] = epoch, step
        self._goal[4] = self.seed if seed is None else seed
        self._goal[5] = 0
        self._goal[2] += 1

    def resume(self, begun, epoch, seed):
        """The pass that began as the epoch `begun` is `epoch`, and the next ones follow it. All workers say the same."""
        self._goal[5] += epoch - begun
        self._goal[4] = seed
        return epoch

    def begin(self, worker=0, workers=0):
        """(epoch, first step) of the pass that this worker begins; 0 workers: the process itself."""
        if workers > MOST_WORKERS:
            raise ValueError(f"{workers} data workers; at most {MOST_WORKERS} are possible, and none is needed: batches are fetched ahead anyway")
        epoch, step, settings = self._goal[:3].tolist()
        place = self._begun[workers, worker]
        if place[0] != settings:
            place[0], place[1] = settings, 0
        passes = int(place[1]) + self._elsewhere(workers)
        place[1] += 1
        self._goal[3] = workers
        return epoch + passes + int(self._goal[5]), step if passes == 0 else 0

    def _elsewhere(self, workers):
        """Passes since `seek` that were begun by another number of workers."""
        begun = torch.where(self._begun[..., 0] == self._goal[2], self._begun[..., 1], 0).amax(dim=1)
        return int(begun.sum() - begun[workers])

    def last(self):
        """(epoch, workers) of the last pass that was begun since `seek`; the epoch is `None` where none was."""
        epoch, _, settings, workers = self._goal[:4].tolist()
        set_at, passes = self._begun[workers, 0].tolist()
        begun = set_at == settings and passes > 0
        passes += self._elsewhere(workers) + int(self._goal[5])
        return (epoch + passes - 1 if begun else None), workers

    def next(self):
        """(epoch, step) of the next pass, where none was begun since `seek`."""
        return tuple(self._goal[:2].tolist())
