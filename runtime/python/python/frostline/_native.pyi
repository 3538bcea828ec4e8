import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypedDict, final

import numpy
from numpy.typing import NDArray

__version__: str

class Batch(TypedDict):
    data: NDArray[numpy.float32]
    """Activations ``[len(keys), *shape of one sample]`` in C order. Writable, and not shared with other arrays."""
    keys: list[str]
    """Keys of the usable samples in the requested order."""
    index: list[int]
    """Indices of the usable samples in the ``keys`` of :meth:`Stream.rows`."""
    fetched: list[int]
    """Those indices in ``index`` whose rows were not cached."""
    failed: list[tuple[str, str]]
    """Keys of the failed samples, with the reason."""

@final
class Hosts:
    def __init__(self, config: Mapping[str, Any]) -> None: ...
    def objects(self, data: str, layout: str) -> list[tuple[str, str | None, int, str | None, str | None]]: ...
    def push(self, guest: bool, name: str, content: bytes) -> tuple[str, str, int, bool]:
        """Upload a guest or a model, and return (name, sha256, bytes, skipped)."""

    def sent(self) -> int:
        """Return the number of bytes of the latest upload that one of the hosts has received."""

    def remove(self, guest: bool, name: str) -> bool:
        """Remove a guest or a model from every host, and return true if a host had it."""

    def load(self) -> list[tuple[str, bool, str]]: ...

@final
class Stream:
    """Source of activations at a cut, for any number of passes.

    A stream sends no requests before :meth:`rows` or :meth:`shape`. It can be pickled and used after a fork.

    ``config`` is the result of :meth:`frostline.Client.config` with these settings (defaults in parentheses):

    * ``model``, ``guest``: ``(name, sha256)`` of uploads. Optional only for the cut ``none``.
    * ``parameters`` (``""``), ``encoding`` (``"f32"``): See :meth:`frostline.Client.extract`.
    * ``model_file``, ``guest_file``: Local files, which are uploaded again if a host loses them.
    * ``open_requests`` (8): Maximum number of requests in flight per host.
    * ``request_samples`` (32): Maximum number of samples per request.
    * ``ahead`` (3): Maximum number of prefetched batches.
    * ``memory`` (1 GiB): Memory limit of the batches in flight in bytes.
    * ``threads``: Number of threads that decode images on this machine. Defaults to the number of cores.
    * ``priority``, ``fixed_batch``, ``precision``: See the flags of the command.
    """

    def __init__(self, config: Mapping[str, Any]) -> None: ...
    def rows(
        self,
        keys: Sequence[str | tuple[Any, ...]],
        cut: str,
        batch: int,
        *,
        view: Mapping[str, Any] | None = None,
        cache: FeatureCache | None = None,
        middle: Callable[[NDArray[numpy.float32]], NDArray[numpy.float32]] | None = None,
    ) -> Rows:
        """Return batches of activations in the order of ``keys``.

        Failed samples are omitted from the batch. An error ends the pass.

        :param keys: Keys, ``(key, etag)`` or :class:`frostline.Object`.
        :param cut: The cut.
        :param batch: Number of samples per batch. The last batch can be smaller.
        :param view: Augmentation of the images, with the keys ``augmentation``, ``seed`` and ``number``.
        :param cache: Cache of the results of ``middle``. Cached rows are not requested, and new ones are added.
        :param middle: Function from activations at the cut to those at the freeze cut, if they are different. It is
            called with a new array of shape ``[n, *shape of one sample]``, where ``n`` can be 0.
        """

    def shape(self, cut: str) -> list[int]:
        """Return the shape of a sample's activations at the cut."""

    def tensors(self, cut: str) -> list[tuple[str, str, list[int]]]:
        """Return (name, type, shape) of each tensor that a row concatenates, in this order. Empty for a single tensor."""

@final
class Rows(Iterator[Batch]):
    """Batches of a pass, for use in the process that called :meth:`Stream.rows`."""

    def __iter__(self) -> Rows: ...
    def __next__(self) -> Batch: ...
    def __len__(self) -> int:
        """Return the number of remaining batches."""

    def close(self) -> None:
        """Cancel the requests in flight, and end the pass."""

@final
class FeatureCache:
    """Cache of rows at the freeze cut on this machine's disk.

    A cache can be used after a fork, and by multiple processes at once. It is shared with ``frostline train``. Rows of
    samples without an etag are visible only to the object that cached them.

    ``config`` contains:

    * ``folder``: Cache folder. ``None`` selects the user's cache folder.
    * ``limit``: Limit in bytes. ``None`` selects half of the free disk space.
    * ``stream``: Settings of the :class:`Stream`.
    * ``split``: Split from which hosts send activations.
    * ``rows``: Expected number of rows. Older caches are evicted to make room for them.
    * ``made``: Inputs that determine the rows: ``freeze`` (freeze cut), ``layers`` and ``usual`` (from
      :func:`layers`), ``library`` (ONNX Runtime version of this process) and ``shape`` (of a row).

    Raises `Error` if the files cannot be used.
    """

    def __init__(self, config: Mapping[str, Any]) -> None: ...
    def settle(self) -> list[str]:
        """Wait until all queued rows are written or have failed.

        Returns messages about problems since the last call.
        """

def check_augmentation(augmentation: Mapping[str, Any]) -> None:
    """Raise `SettingsError` if a value of this augmentation is out of range."""

def position_in_image(recipe: Mapping[str, Any], view: Mapping[str, Any] | None, key: str, height: int, width: int) -> list[float]:
    """Return the affine matrix `(a, b, c, d, e, f)` that maps a position in the network's input to the position in the image.

    ``(x, y)`` is mapped to ``(a x + b y + c, d x + e y + f)``. Positions are measured in pixels from the top left corner.
    """

def content_name(stem: str, sha256: str) -> str:
    """Return the name on hosts for contents with this hash: ``stem`` with the first digits of the hash."""

def stock_guest() -> bytes:
    """Return the stock guest's component."""

def feature_limit(word: str) -> int | None:
    """Parse a limit such as ``4GiB`` and return it in bytes, or None for ``off``."""

def layers(network: str | bytes | os.PathLike[str], cut: str) -> tuple[str, str]:
    """Return a hash of the layers before ``cut`` and the default recipe for the network's input.

    The hash is empty at the cuts ``none`` and ``input``. The recipe is JSON from the model's metadata, or ImageNet's,
    without normalization if the network normalizes its input. It is empty if only a guest can prepare the input.
    """

def joint_tensors(network: str | bytes | os.PathLike[str], cut: str) -> str:
    """Return the tensors that a row at ``cut`` concatenates, as a JSON list with ``name``, ``dtype`` and ``shape``.

    The list is empty for a single tensor.
    """

def split_layers(network: str | bytes | os.PathLike[str], freeze: str, split: str) -> tuple[bytes, bytes]:
    """Return the layers before the cut ``freeze`` with the joint cuts at which they can be split, and those after ``split``.

    Raises `SettingsError` if the network has no such cut.
    """

def network(file: str | os.PathLike[str], output: str | None, image_size: int | None) -> bytes:
    """Read an ONNX file with this output and open axes of this size.

    Raises `SettingsError` if the network does not have the output or has another size.
    """

def stated_pixels(config: str) -> str:
    """Convert a configuration of timm or transformers to a recipe as JSON.

    Raises `SettingsError` if hosts do not support the preprocessing.
    """

class Part(TypedDict):
    keys: list[str]
    etags: list[str | None]
    sizes: NDArray[numpy.int64]
    labels: NDArray[numpy.int64] | NDArray[numpy.float32]
    """Class of each sample. For other tasks, the concatenated values of all samples. Classes of folders or shards become
    labels of 0 or 1."""

class Dataset(TypedDict):
    classes: list[str]
    """Sorted class names. For other tasks, the names of the values."""
    train: Part
    validation: Part
    test: Part
    left_out: tuple[int, list[str]]
    """Number of omitted objects, and the first few keys."""
    warnings: list[str]
    """Messages about classes that are missing in the training or validation part."""

def dataset(hosts: Hosts, root: str, wanted: Mapping[str, Any]) -> Dataset:
    """List and divide the samples under ``root`` in the same way as ``frostline train``.

    ``wanted`` contains:

    * ``layout``: ``auto``, ``objects`` or ``shards``.
    * ``labels``: CSV file with labels, or None.
    * ``task``: ``classes``, ``labels`` or ``numbers``.
    * ``validation``: Fraction of the samples to use for validation, or None.
    * ``seed``: Seed of the random division.
    * ``any_files``: Whether files other than images are samples.
    """

def order(count: int, seed: int, epoch: int) -> NDArray[numpy.uint32]:
    """Return ``range(count)`` in the order of an epoch of ``frostline train``. Epochs are counted from 1."""
