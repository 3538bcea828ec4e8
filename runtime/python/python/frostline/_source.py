"""Where rows at the freeze cut come from: this machine's disk, or hosts up to the split and this process from there."""

import dataclasses
import functools
import importlib.metadata
import json
import logging
import os

import numpy

import frostline
from frostline import _native

LOG = logging.getLogger("frostline")


def kept(feature_cache, network, cut, count, stock=True):
    """What rows of `count` samples at the freeze cut `cut` are kept by, for a `Source`; `None` where they are not.

    `feature_cache`: bytes as `--feature-cache` has them, or `None` for what the environment says, or half of what the disk has free. `network`: the
    layers as a file or bytes; what hosts have under a hash otherwise; or `None`. `stock`: whether the guest is the stock one.
    """
    words = feature_cache if feature_cache is not None else os.environ.get("FROSTLINE_FEATURE_CACHE") or None
    limit = None if words is None else _native.feature_limit(str(words))
    if words is not None and limit is None:
        return None
    if isinstance(network, (str, bytes, os.PathLike)):
        try:
            layers, usual = _native.layers(network, cut)
        except frostline.Error as error:
            LOG.warning("rows are not kept for later epochs: %s", error)
            return None
    else:
        layers, usual = "" if network is None or cut in ("none", "input") else f"{network.sha256} up to {cut}", ""
    library = _version("onnxruntime") or _version("onnxruntime-gpu")
    made = {"freeze": cut, "layers": layers, "usual": usual if stock else "", "library": library}
    return {"made": made, "limit": limit, "rows": count}


def _version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


@dataclasses.dataclass(frozen=True)
class Source:
    """How rows are made. Configuration only, so that it travels to other processes; connections are opened by `rows`, in each its own."""

    stream: dict
    """What `frostline._native.Stream` takes."""
    split: str
    """Where hosts stop: `none`, `input` or a cut's tensor."""
    middle: bytes | None = None
    """The layers from the split to the freeze cut as an ONNX model, where these are not the same place."""
    threads: int = 0
    """Threads that run them; 0 takes all cores."""
    on_bad_sample: str = "fail"
    """`fail`, or `skip`: a sample that cannot be used is left out, and told of in the log of this package."""
    row: tuple | None = None
    """The shape of one row, where it is known."""
    kept: dict | None = None
    """What rows are kept by, see `kept`."""

    def __repr__(self):
        return f"Source(split={self.split!r}, hosts={self.stream.get('hosts')!r})"

    def shape(self):
        """The shape of one row. Asks a host, where it is not known and these end at the freeze cut."""
        if self.row is not None:
            return list(self.row)
        if not self.middle:
            return self._open().shape(self.split)
        return _session(self.middle, 1).get_outputs()[0].shape[1:]

    def rows(self, samples, batch, view=None):
        """(rows float32 `[n, *shape]`, their places among `samples`, failures) of every `batch` of the samples [(key, version, size)], in their order.

        `n` is what of the batch could be used. Rows that are kept are not made again; those of a `view` never are.
        """
        store = self._store() if view is None else None
        if store is None:
            return self._made(samples, batch, view)
        return self._through(store, samples, batch)

    def _store(self):
        if self.kept is None:
            return None
        folder = os.environ.get("FROSTLINE_FEATURE_FOLDER") or None
        made = self.kept["made"] | {"shape": list(self.shape())}
        where = {"folder": folder, "stream": self.stream, "split": self.split, "made": made}
        return _opened(json.dumps(self.kept | where, sort_keys=True))

    def _through(self, store, samples, batch):
        """`rows`, those that `store` has from there, the others kept in it."""
        there = store.has(samples)
        batches = [range(first, min(first + batch, len(samples))) for first in range(0, len(samples), batch)]
        lacking = [place for place, has in enumerate(there) if not has]
        sizes = [size for places in batches if (size := sum(not there[place] for place in places))]
        made = self._kept_of(store, samples, lacking, sizes)
        try:
            for places in batches:
                known = [place for place in places if there[place]]
                parts = [next(made)] if len(known) < len(places) else []
                if known:
                    data, found = store.read([samples[place] for place in known])
                    parts.append((data, [known[place] for place in found], []))
                    # What was not what had been written is made again.
                    gone = [place for place in known if place not in set(parts[-1][1])]
                    parts += self._kept_of(store, samples, gone, [len(gone)] if gone else [])
                yield _joined(parts)
        finally:
            made.close()
            for news in store.settle():
                LOG.warning("%s", news)

    def _kept_of(self, store, samples, places, sizes):
        """Rows of the samples at `places`, in batches of `sizes`, each kept."""
        if not sizes:
            return
        for data, index, failed in self._made([samples[place] for place in places], sizes):
            found = [places[place] for place in index]
            store.keep([samples[place] for place in found], data)
            yield data, found, failed

    def _made(self, samples, batch, view=None):
        """`rows` by hosts and this process; `batch` may be the size of each."""
        run = _middle(self.middle, self.threads) if self.middle else None
        rows = self._open().rows(samples, self.split, batch, view=view)
        try:
            for got in rows:
                if self.on_bad_sample == "fail":
                    refuse_bad(got["failed"], "leave it out, or with on_bad_sample='skip'")
                data = got["data"]
                yield (run(data) if run else data), got["index"], got["failed"]
        finally:
            rows.close()

    def _open(self):
        # On another machine the files are not there that hosts are given again from.
        gone = [name for name in ("model_file", "guest_file") if not os.path.exists(self.stream.get(name) or "")]
        return _stream(json.dumps({name: value for name, value in self.stream.items() if name not in gone}))


def refuse_bad(failed, advice):
    """Raises `frostline.BadSample` for the first of the samples [(key, reason)] that failed."""
    for key, reason in failed:
        raise frostline.BadSample(f"the sample '{key}' cannot be used: {reason}; {advice}", key=key)


@functools.lru_cache(maxsize=2)
def _stream(settings):
    """This process' connections, for all passes over rows that are made so."""
    return _native.Stream(json.loads(settings))


@functools.lru_cache(maxsize=4)
def _opened(settings):
    """This process' store of rows; `None` where it cannot be: that is told, and costs the rows only."""
    opened = _native.Kept(json.loads(settings))
    try:
        opened.has([])
    except frostline.Error as error:
        LOG.warning("rows are not kept for later epochs: %s", error)
        return None
    return opened


def _joined(parts):
    """One batch of its parts, by ascending places."""
    if len(parts) == 1:
        return parts[0]
    places = numpy.concatenate([numpy.asarray(found, dtype=numpy.int64) for _, found, _ in parts])
    order = numpy.argsort(places)
    data = numpy.concatenate([rows for rows, _, _ in parts])[order]
    return data, places[order].tolist(), [each for _, _, failed in parts for each in failed]


def _middle(model, threads):
    """A function from rows at the split to rows at the freeze cut."""
    session = _session(model, threads)
    (entry,), (end,) = session.get_inputs(), session.get_outputs()

    def run(rows):
        # Not all kernels take no rows at all.
        if not len(rows):
            return numpy.empty((0, *end.shape[1:]), numpy.float32)
        return session.run([end.name], {entry.name: rows})[0]

    return run


def _session(model, threads):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    # The threads of a step that trains need the cores that spinning ones would hold.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
