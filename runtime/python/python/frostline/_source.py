"""Sources of features: the cache on this machine's disk, or hosts up to the split and this process after it."""

import dataclasses
import importlib.metadata
import json
import logging
import os

import numpy

import frostline
from frostline import _host, _native

LOG = logging.getLogger("frostline")


def cache_settings(feature_cache, network, cut, count, stock=True):
    """Return the cache settings of a `Source`, or `None` if features are not cached.

    :param feature_cache: Limit in the format of `--feature-cache`. `None` uses the environment variable
        `FROSTLINE_FEATURE_CACHE`, or half of the free disk space.
    :param network: Path or content of an ONNX file with the layers, an `Upload`, or `None`.
    :param cut: The freeze cut.
    :param count: Expected number of samples.
    :param stock: Whether the guest is the stock guest.
    """
    words = feature_cache if feature_cache is not None else os.environ.get("FROSTLINE_FEATURE_CACHE") or None
    limit = None if words is None else _native.feature_limit(str(words))
    if words is not None and limit is None:
        return None
    tensors = []
    if isinstance(network, (str, bytes, os.PathLike)):
        try:
            layers, usual = _native.layers(network, cut)
            tensors = json.loads(_native.joint_tensors(network, cut))
        except frostline.Error as error:
            LOG.warning("features are not cached for later epochs: %s", error)
            return None
    else:
        layers, usual = "" if network is None or cut in ("none", "input") else f"{network.sha256} up to {cut}", ""
    library = _version("onnxruntime") or _version("onnxruntime-gpu")
    made = {"freeze": cut, "layers": layers, "usual": usual if stock else "", "library": library, "tensors": tensors}
    return {"made": made, "limit": limit, "rows": count}


def _version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


@dataclasses.dataclass(frozen=True)
class Source:
    """Settings to compute features, and what this process uses for that.

    A source is picklable. Each process opens its own connections in `rows`, and uses its own feature cache. Both, and the
    uploads on an embedded host, are released when the source is closed or collected, in this process only.
    """

    stream: dict
    """Settings of `frostline._native.Stream`."""
    split: str
    """The split: `none`, `input` or the tensor of a cut."""
    middle: bytes | None = None
    """Layers from the split to the freeze cut as an ONNX model, unless both are the same."""
    threads: int = 0
    """Number of threads for these layers. 0 uses all cores."""
    on_bad_sample: str = "fail"
    """`fail` raises an exception for a bad sample, `skip` omits it."""
    row: tuple | None = None
    """Shape of a row, if known."""
    cache: dict | None = None
    """Cache settings from `cache_settings`."""

    def __post_init__(self):
        self._begin_use()

    def __getstate__(self):
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)} | {"_used": self._used and {}}

    def __setstate__(self, state):
        self.__dict__.update(state)
        if self._used is not None:
            self._begin_use()

    def __repr__(self):
        return f"Source(split={self.split!r}, hosts={self.stream.get('hosts')!r})"

    def _begin_use(self):
        # The stream and the cache are opened when they are needed.
        self.__dict__["_used"] = {"host": _host.use_of(self.stream)}

    def close(self):
        """Release what this process uses for the source. Later calls and passes in progress raise `frostline.Error`."""
        used = self._used or {}
        self.__dict__["_used"] = None
        if host := used.pop("host", None):
            host.close()

    def _open(self):
        """Return what this process uses: `host`, `stream` and `cache`. Raises `frostline.Error` if it was released."""
        if self._used is None:
            raise frostline.Error("this data set is closed; create it again")
        return self._used

    def shape(self):
        """Return the shape of a row.

        Queries a host if the shape is unknown and hosts compute all frozen layers.
        """
        if self.row is not None:
            return list(self.row)
        if not self.middle:
            return self._stream().shape(self.split)
        return _session(self.middle, 1).get_outputs()[0].shape[1:]

    def tensors(self):
        """Return (name, type, shape) of each tensor that a row concatenates. Empty for a single tensor."""
        return [] if self.middle else self._stream().tensors(self.split)

    def rows(self, samples, batch, view=None, repeats=True):
        """Yield (rows, indices, failures) for each batch of samples, in order.

        Rows are float32 `[n, *shape]`, where `n` is the number of usable samples in the batch. The indices refer to
        `samples`. Failures are [(key, reason)]. Cached features are not computed again.

        :param samples: [(key, version, size)].
        :param batch: Number of samples per batch.
        :param view: Augmentation of the images.
        :param repeats: Whether features of the view are cached, because it repeats.
        """
        cache = self._cache() if repeats else None
        middle = _middle(self.middle, self.threads) if self.middle else None
        batches = self._stream().rows(samples, self.split, batch, view=view, cache=cache, middle=middle)
        try:
            for got in batches:
                self._open()
                if self.on_bad_sample == "fail":
                    refuse_bad(got["failed"], "remove it, or pass on_bad_sample='skip'")
                yield got["data"], got["index"], got["failed"]
        finally:
            batches.close()
            for message in cache.settle() if cache else ():
                LOG.warning("%s", message)

    def _cache(self):
        used = self._open()
        if self.cache is not None and "cache" not in used:
            folder = os.environ.get("FROSTLINE_FEATURE_FOLDER") or None
            made = self.cache["made"] | {"shape": list(self.shape())}
            where = {"folder": folder, "stream": self.stream, "split": self.split, "made": made}
            try:
                used["cache"] = _native.FeatureCache(self.cache | where)
            except frostline.Error as error:
                LOG.warning("features are not cached for later epochs: %s", error)
                used["cache"] = None
        return used.get("cache")

    def _stream(self):
        used = self._open()
        if "stream" not in used:
            # Files to upload again may not exist on another machine.
            gone = [name for name in ("model_file", "guest_file") if not os.path.exists(self.stream.get(name) or "")]
            used["stream"] = _native.Stream({name: value for name, value in self.stream.items() if name not in gone})
        return used["stream"]


def refuse_bad(failed, advice):
    """Raise `frostline.BadSample` for the first of the failed samples [(key, reason)]."""
    for key, reason in failed:
        raise frostline.BadSample(f"the sample '{key}' cannot be used: {reason}; {advice}", key=key)


def _middle(model, threads):
    """Return a function that computes the layers from the split to the freeze cut."""
    session = _session(model, threads)
    (entry,), (end,) = session.get_inputs(), session.get_outputs()

    def run(rows):
        # Some kernels do not accept an empty batch.
        if not len(rows):
            return numpy.empty((0, *end.shape[1:]), numpy.float32)
        return session.run([end.name], {entry.name: rows})[0]

    return run


def _session(model, threads):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    # Spinning threads would occupy cores that the training step needs.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
