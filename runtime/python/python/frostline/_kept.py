"""Rows that are kept on this machine's disk, so that the frozen layers run once for each sample."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import logging
import os
from typing import Any

from frostline import _native
from frostline._errors import Error, SettingsError

LOG = logging.getLogger("frostline")
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def limit(words: int | str | None) -> int | str | None:
    """Bytes that rows may take, `off`, or `None` for half of what the disk has free; as `--feature-cache` says it."""
    if words is None or words == "off" or isinstance(words, int):
        return words
    number = words.rstrip("KMGiB")
    unit = words.removeprefix(number)
    if not (number.isascii() and number.isdigit() and unit in UNITS):
        raise SettingsError(f"feature_cache is {words!r}; it is a number of bytes, also with KiB, MiB or GiB, or off")
    return int(number) * UNITS[unit]


def store(wanted: int | str | None, kept: dict[str, Any]) -> _native.Kept | None:
    """The store of what `kept` says, for this process; `None` where rows are not kept. What is wrong with it is told, and costs the rows only."""
    words = limit(wanted if wanted is not None else os.environ.get("FROSTLINE_FEATURE_CACHE") or None)
    if words == "off":
        return None
    folder = os.environ.get("FROSTLINE_FEATURE_FOLDER") or None
    return _opened(json.dumps(kept | {"folder": folder, "limit": words}, sort_keys=True))


@functools.lru_cache(maxsize=4)
def _opened(settings):
    opened = _native.Kept(json.loads(settings))
    try:
        opened.has([])
    except Error as error:
        LOG.warning("rows are not kept for later epochs: %s", error)
        return None
    return opened


def made_by(stream: dict[str, Any], split: str, cut: str, middle: bool) -> tuple[dict[str, Any], str]:
    """(what rows depend on beside the sample, how they lie on disk): rows are kept no less exactly than they came."""
    values = stream.get("encoding", "f32").partition("+")[0]
    exact = values in ("f32", "u8")
    made = {
        "layers": (stream.get("model") or ("", ""))[1],
        "guest": (stream.get("guest") or ("", ""))[1],
        "parameters": stream.get("parameters", ""),
        "precision": stream.get("precision"),
        "fixed_batch": stream.get("fixed_batch"),
        "rounding": "exact" if exact else f"{values} at {split}",
        "library": [f"{name} {_version(name)}" for name in ("frostline", "onnxruntime")],
    }
    subject = {"model": (stream.get("model") or ("none", ""))[0], "freeze": cut, "data": stream["data"], "made_by": made}
    return subject, "f16" if values == "f16" and not middle else "f32"


def _version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
