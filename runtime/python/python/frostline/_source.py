"""Where rows at the freeze cut come from: hosts up to the split, and this process from there."""

import dataclasses
import os

import numpy

import frostline
from frostline import _native


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

    def __repr__(self):
        return f"Source(split={self.split!r}, hosts={self.stream.get('hosts')!r})"

    def shape(self):
        """The shape of one row. Asks a host, where these end at the freeze cut."""
        if not self.middle:
            return self._open().shape(self.split)
        return _session(self.middle, 1).get_outputs()[0].shape[1:]

    def rows(self, samples, batch, view=None):
        """(rows float32 `[n, *shape]`, their places among `samples`, failures) of every `batch` of the samples [(key, version, size)], in their order.

        `n` is what of the batch could be used.
        """
        run = _middle(self.middle, self.threads) if self.middle else None
        rows = self._open().rows(samples, self.split, batch, view=view)
        try:
            for got in rows:
                if got["failed"] and self.on_bad_sample == "fail":
                    key, reason = got["failed"][0]
                    what = f"the sample '{key}' cannot be used: {reason}; leave it out, or with on_bad_sample='skip'"
                    raise frostline.BadSample(what, key=key)
                data = got["data"]
                yield (run(data) if run else data), got["index"], got["failed"]
        finally:
            rows.close()

    def _open(self):
        # On another machine the files are not there that hosts are given again from.
        gone = [name for name in ("model_file", "guest_file") if not os.path.exists(self.stream.get(name) or "")]
        return _native.Stream({name: value for name, value in self.stream.items() if name not in gone})


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
