import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypedDict, final

import numpy
from numpy.typing import NDArray

__version__: str

class Batch(TypedDict):
    data: NDArray[numpy.float32]
    """Rows ``[len(keys), *shape of one sample]``, C order, writable, its memory nobody else's."""
    keys: list[str]
    """Those that worked, in the order asked for."""
    index: list[int]
    """Their places among all keys that were given to :meth:`Stream.rows`."""
    failed: list[tuple[str, str]]
    """Those that did not, with the reason."""

@final
class Hosts:
    def __init__(self, config: Mapping[str, Any]) -> None: ...
    def objects(self, data: str, layout: str) -> list[tuple[str, str | None, int, str | None, str | None]]: ...
    def push(self, upload: Mapping[str, Any], content: bytes) -> tuple[str, str, int, bool]:
        """``upload``: ``guest``, whether it is one or a model; ``name``, or None for one by its content, after ``stem``."""

    def push_stock_guest(self, name: str | None = None) -> tuple[str, str, int, bool]: ...
    def load(self) -> list[tuple[str, bool, str]]: ...

@final
class Stream:
    """Rows at a cut, for any number of passes. Nothing is sent before :meth:`rows`; may be pickled, and used after a fork.

    ``config`` is what :meth:`frostline.Client.config` returns and

    * ``model``, ``guest``: ``(name, sha256)`` of uploads; left out only for the cut ``none``.
    * ``parameters`` (``""``), ``encoding`` (``"f32"``): as for :meth:`frostline.Client.extract`.
    * ``model_file``, ``guest_file``: paths; hosts that come back without them are given them again.
    * ``open_requests`` (8): at once at each host; ``request_samples`` (32): samples of one at most.
    * ``ahead`` (3): batches under way while one is used; ``memory`` (1 GiB): bytes that all of them may hold.
    * ``threads``: that decode here; by default one for each core.
    * ``priority``, ``fixed_batch``, ``precision``: as the command's flags.
    """

    def __init__(self, config: Mapping[str, Any]) -> None: ...
    def rows(
        self,
        keys: Sequence[str | tuple[Any, ...]],
        cut: str,
        batch: int | Sequence[int],
        *,
        view: Mapping[str, Any] | None = None,
    ) -> Rows:
        """Batches of ``batch`` rows (the last may have fewer), the first of ``keys[:batch]`` and so on, in this order; or of as many as
        ``batch`` says of each.

        ``keys`` are keys, ``(key, etag)``, or :class:`frostline.Object`. ``view`` says how pixels are augmented. A sample that fails
        leaves its batch smaller, and an error ends the pass.
        """

    def shape(self, cut: str) -> list[int]:
        """The shape of one sample at the cut."""

@final
class Rows(Iterator[Batch]):
    """One pass; belongs to the process that asked for it."""

    def __iter__(self) -> Rows: ...
    def __next__(self) -> Batch: ...
    def __len__(self) -> int:
        """Batches left."""

    def close(self) -> None:
        """Cancels what is under way."""

@final
class Kept:
    """Rows on this machine's disk that are made in one way; may be used after a fork, and by many processes at once. ``frostline train`` finds them
    too, and they find its rows.

    ``config``: ``folder``, ``None`` for the user's own; ``limit`` in bytes, ``None`` for half of what the disk has free; ``stream``, what :class:`Stream`
    takes; ``split``, where rows come from; how many ``rows`` to make room for; ``made``: ``freeze``, where they are kept; ``layers`` and ``usual`` of
    :func:`layers`; ``library``, the version of ONNX Runtime here; ``shape`` of a row. Samples are ``(key, etag)`` or longer; those without an etag are found by the
    process that kept them alone.
    """

    def __init__(self, config: Mapping[str, Any]) -> None: ...
    def has(self, samples: Sequence[tuple[Any, ...]]) -> list[bool]:
        """Which of them have a row, also by what other processes kept until now."""

    def read(self, samples: Sequence[tuple[Any, ...]]) -> tuple[NDArray[numpy.float32], list[int]]:
        """(rows ``[found, *shape]``, which of the samples they are of, ascending). A row that is not what was written is not found."""

    def keep(self, samples: Sequence[tuple[Any, ...]], rows: NDArray[numpy.float32]) -> None:
        """Keeps a copy of these rows. Does not wait for the disk."""

    def settle(self) -> list[str]:
        """Waits until they are written, or cannot be; returns what there is to tell of that."""

def feature_limit(word: str) -> int | None:
    """Bytes that a word such as ``4GiB`` allows; None for ``off``."""

def layers(network: str | bytes | os.PathLike[str], cut: str) -> tuple[str, str]:
    """(a hash of the layers before ``cut``, ``""`` where that is ``none`` or ``input``; the recipe for the network's input where nobody says one: its own, else ImageNet's)."""

def stated_pixels(config: str) -> str:
    """The recipe, as JSON, that a configuration of timm or transformers states; `SettingsError` for one that hosts cannot follow."""

class Part(TypedDict):
    keys: list[str]
    etags: list[str | None]
    sizes: NDArray[numpy.int64]
    labels: NDArray[numpy.int64] | NDArray[numpy.float32]
    """Of each sample its class; else the values of one sample after those of another."""

class Dataset(TypedDict):
    classes: list[str]
    """Names of classes, sorted, or of the values."""
    train: Part
    validation: Part
    test: Part
    left_out: tuple[int, list[str]]
    warnings: list[str]
    """How many objects are none of them, and the keys of the first."""

def dataset(hosts: Hosts, root: str, wanted: Mapping[str, Any]) -> Dataset:
    """Samples divided as ``frostline train`` does. ``wanted``: ``layout``; ``labels``, a CSV file or None; ``task``: ``classes``, ``labels`` or
    ``numbers``; ``validation``, a share or None; ``seed``; ``any_files``, whether others than images are samples."""

def order(count: int, seed: int, epoch: int) -> NDArray[numpy.uint32]:
    """``range(count)`` in the order of an epoch of ``frostline train``, counted from 1."""
