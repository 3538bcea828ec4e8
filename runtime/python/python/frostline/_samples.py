"""Which samples there are, in a form that is small and travels between processes."""

import hashlib
import logging
import re

import numpy

from frostline import _native
from frostline._errors import SettingsError

LOG = logging.getLogger("frostline")


class Samples:
    """Labeled samples in the order of the listing. Keys and versions lie in two arrays, about as many bytes as their texts."""

    def __init__(self, keys, etags, sizes, labels):
        """`keys`: texts; `etags`: a text or None for each; `sizes`: in bytes; `labels`: int64 `[n]`, or float32 `[n, k]` where a table says `k`
        values of each."""
        self._keys = numpy.array([key.encode() for key in keys], dtype=bytes)
        self._etags = numpy.array([(etag or "").encode() for etag in etags], dtype=bytes)
        self._sizes = numpy.asarray(sizes, dtype=numpy.int64)
        self.labels = numpy.asarray(labels)
        if not len(self._keys) == len(self._etags) == len(self._sizes) == len(self.labels):
            raise ValueError(f"{len(self._keys)} keys, {len(self._etags)} versions, {len(self._sizes)} sizes and {len(self.labels)} labels")

    def __len__(self):
        return len(self._keys)

    def take(self, indices):
        """[(key, version or None, size)] of these samples."""
        parts = (self._keys[indices].tolist(), self._etags[indices].tolist(), self._sizes[indices].tolist())
        return [(key.decode(), etag.decode() or None, size) for key, etag, size in zip(*parts)]

    def digest(self):
        """SHA-256 of keys, versions, sizes and labels, as hexadecimal digits: another one is another listing."""
        digest = hashlib.sha256()
        for part in (self._keys, self._etags, self._sizes, self.labels):
            digest.update(f"{part.dtype} {part.shape}\n".encode())
            digest.update(numpy.ascontiguousarray(part).tobytes())
        return digest.hexdigest()


def listed(config, **wanted):
    """(training samples, validation samples, test samples, names of classes or values) of the data that `config` of a `Client` names, by the rules of
    `frostline train`. `wanted`: `layout`, `labels`, `task`, `validation`, `seed` and `any_files`, see `_native.pyi`.
    """
    reach = {key: value for key, value in config.items() if key != "data"}
    try:
        found = _native.dataset(_native.Hosts(reach), config["data"], wanted)
    except SettingsError as error:
        # The command's flags are arguments here.
        raise SettingsError(re.sub(r"--([a-z]+) ([\d.]+)", r"\1=\2", str(error))) from None
    count, first = found["left_out"]
    if count:
        LOG.warning("left out of %s, as they are no samples: %d, such as %s", config["data"], count, ", ".join(first))
    for warning in found["warnings"]:
        LOG.warning("%s: %s", config["data"], warning)
    return *(_part(found[part], wanted["task"]) for part in ("train", "validation", "test")), found["classes"]


def _part(found, task):
    count, labels = len(found["keys"]), found["labels"]
    if task != "classes" and count:
        labels = labels.reshape(count, -1)
    return Samples(found["keys"], found["etags"], found["sizes"], labels)
