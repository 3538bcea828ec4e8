"""Compact, picklable lists of samples."""

import hashlib
import logging

import numpy

import frostline
from frostline import _native

LOG = logging.getLogger("frostline")


class Samples:
    """Labeled samples in the order of the listing.

    Keys and versions are stored in two arrays, which need about as many bytes as the text.
    """

    def __init__(self, keys, etags, sizes, labels, changed=None):
        """Create a list of samples.

        :param keys: Keys as strings.
        :param etags: Versions as strings or None.
        :param sizes: Sizes in bytes.
        :param labels: int64 `[n]`, or float32 `[n, k]` if a table contains `k` values per sample.
        :param changed: Times of the last change of files in nanoseconds since 1970, or None.
        """
        self._keys = numpy.array([key.encode() for key in keys], dtype=bytes)
        self._etags = numpy.array([(etag or "").encode() for etag in etags], dtype=bytes)
        self._sizes = numpy.asarray(sizes, dtype=numpy.int64)
        self._changed = numpy.array([time or 0 for time in changed or [None] * len(keys)], dtype=numpy.int64)
        self.labels = numpy.asarray(labels)
        if not len(self._keys) == len(self._etags) == len(self._sizes) == len(self.labels):
            raise ValueError(f"the lists have different lengths: {len(self._keys)} keys, {len(self._etags)} versions, {len(self._sizes)} sizes and {len(self.labels)} labels")

    def __len__(self):
        return len(self._keys)

    def take(self, indices):
        """Return the samples with these indices in the form of `frostline.Object`."""
        parts = (part[indices].tolist() for part in (self._keys, self._etags, self._sizes, self._changed))
        return [(key.decode(), etag.decode() or None, size, None, None, changed or None) for key, etag, size, changed in zip(*parts)]

    def digest(self):
        """Return the SHA-256 of keys, versions, sizes and labels in hex, which identifies the listing."""
        digest = hashlib.sha256()
        for part in (self._keys, self._etags, self._sizes, self.labels):
            digest.update(f"{part.dtype} {part.shape}\n".encode())
            digest.update(numpy.ascontiguousarray(part).tobytes())
        return digest.hexdigest()


def listed(config, **wanted):
    """List and divide the samples of a data root according to the rules of `frostline train`.

    Returns (training samples, validation samples, test samples, names of classes or values).

    :param config: Result of `Client.config`.
    :param wanted: `layout`, `labels`, `task`, `validation`, `seed` and `any_files`; see `_native.pyi`. The task can also be
        `none`.
    """
    reach = {key: value for key, value in config.items() if key != "data"}
    if wanted["task"] == "none":
        return *_unlabeled(_native.Hosts(reach), config["data"], wanted), []
    found = _native.dataset(_native.Hosts(reach), config["data"], wanted)
    count, first = found["left_out"]
    if count:
        LOG.warning("%s: omitted %d objects that are not samples, for example %s", config["data"], count, ", ".join(first))
    for warning in found["warnings"]:
        LOG.warning("%s: %s", config["data"], warning)
    text_order = _number_in_text_order(found["classes"]) if wanted["task"] == "classes" else None
    if text_order:
        LOG.warning("%s: the classes are numbers in the order of text, as in torchvision: label %d is the class '%s'", config["data"], *text_order)
    return *(_part(found[part], wanted["task"]) for part in ("train", "validation", "test")), found["classes"]


def _unlabeled(hosts, data, wanted):
    """Return the training, validation and test samples without labels. Names of folders and shards are their parts."""
    if wanted["labels"] is not None:
        raise frostline.SettingsError("task='none' uses no labels; leave out labels=")
    objects = hosts.objects(data, wanted["layout"])
    if not objects:
        raise frostline.SettingsError(f"{data} has no images; pass the folder or prefix that contains them")
    parts = {part: [each for each in objects if each[4] == part] for part in ("validation", "test")}
    train = [each for each in objects if each[4] not in parts]
    share = wanted["validation"]
    if share is not None:
        if not 0 < share < 1:
            raise frostline.SettingsError(f"invalid validation {share}; it must be more than 0 and less than 1")
        if parts["validation"]:
            raise frostline.SettingsError("the data have a validation part; leave out validation=")
        # Epochs are counted from 1, so this order differs from theirs.
        order = _native.order(len(train), wanted["seed"], 0).tolist()
        chosen = set(order[: round(share * len(train))])
        parts["validation"] = [each for number, each in enumerate(train) if number in chosen]
        train = [each for number, each in enumerate(train) if number not in chosen]
    return [_without_labels(objects) for objects in (train, parts["validation"], parts["test"])]


def _without_labels(objects):
    keys, etags, sizes, _, _, changed = zip(*objects, strict=True) if objects else ((),) * 6
    return Samples(keys, etags, sizes, numpy.zeros((len(keys), 0), numpy.float32), list(changed))


def _number_in_text_order(classes):
    """Return the first label and class that differ, if all classes are numbers in another order than their numbers."""
    if not all(name.isdecimal() for name in classes) or classes == sorted(classes, key=int):
        return None
    return next((label, name) for label, name in enumerate(classes) if label != int(name))


def _part(found, task):
    count, labels = len(found["keys"]), found["labels"]
    if task != "classes" and count:
        labels = labels.reshape(count, -1)
    return Samples(found["keys"], found["etags"], found["sizes"], labels, found["changed"])
