"""Cache of exported models on this machine's disk, because an export takes most of the time of `pushdown`.

An entry is identified by what determines the exported frozen layers: the code, attributes and weights of the modules, the
shape of the input and the versions of the libraries. Weights of layers after the freeze cut count only by their shapes, so a
new head finds the same entry. A model can depend on more, for example on global variables, so the caller compares the exported
layers with the model in any case.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import logging
import os
import tempfile
import types
from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx
import torch

LOG = logging.getLogger("frostline")
LIMIT_BYTES = 4 << 30
"""Maximum size of all entries. The entries that were not used for the longest time are removed first."""
FREE_SHARE = 0.5
"""Maximum share of the free disk space that a new entry can use."""
LIBRARIES = ("torch", "onnx", "onnxscript", "onnx-ir", "timm", "transformers", "torchvision")
_SUFFIX = ".onnx"
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype)


def folder() -> Path | None:
    """Return the folder of the cache, or `None` if the environment variable `FROSTLINE_EXPORT_CACHE` is `off`."""
    chosen = os.environ.get("FROSTLINE_EXPORT_CACHE", "")
    if chosen == "off":
        return None
    user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(chosen) if chosen else Path(user) / "frostline" / "exports"


def key_of(model: torch.nn.Module, trained: Iterable[torch.Tensor], example: torch.Tensor, freeze: str) -> str:
    """Return the key of an export as a hash in hex.

    :param trained: Weights of the layers after the cut.
    :param example: Input samples.
    :param freeze: Path of the last frozen module.
    """
    digest = hashlib.blake2b(digest_size=20)
    digest.update(json.dumps([freeze, list(example.shape), str(example.dtype), _versions()]).encode())
    for path, module in model.named_modules():
        digest.update(f"\n{path} {type(module).__module__}.{type(module).__qualname__} {module.extra_repr()}".encode())
        digest.update(repr(sorted(_attributes(module))).encode())
    for kind in dict.fromkeys(type(module) for module in model.modules()):
        for part in _class_code(kind):
            digest.update(part.encode())
    after = {id(weight) for weight in trained}
    for name, weight in [*model.named_parameters(), *model.named_buffers()]:
        digest.update(f"\n{name} {weight.dtype} {tuple(weight.shape)} ".encode())
        if id(weight) not in after:
            digest.update(memoryview(weight.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()) if weight.numel() else b"")
    return digest.hexdigest()


def load(key: str) -> onnx.ModelProto | None:
    """Return the cached export, or `None` if there is none."""
    cache = folder()
    if cache is None:
        return None
    path = cache / (key + _SUFFIX)
    try:
        model = onnx.load(path)
        os.utime(path)
    except FileNotFoundError:
        return None
    except Exception as error:  # The file is damaged, and its parser can raise any exception.
        LOG.info("ignored the cached export %s: %s", path, error)
        return None
    return model


def save(key: str, model: onnx.ModelProto) -> None:
    """Add an export to the cache. If this fails, the next run exports again."""
    cache = folder()
    if cache is None:
        return
    try:
        content = model.SerializeToString()
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = os.statvfs(cache)
        if len(content) > min(LIMIT_BYTES, FREE_SHARE * status.f_bavail * status.f_frsize):
            return
        _evict(cache, LIMIT_BYTES - len(content))
        with tempfile.NamedTemporaryFile(dir=cache, prefix=key, delete=False) as file:
            try:
                file.write(content)
                file.close()
                os.replace(file.name, cache / (key + _SUFFIX))
            except BaseException:
                os.unlink(file.name)
                raise
    except OSError as error:
        LOG.warning("the exported model is not cached for later runs: %s", error)


def _evict(cache: Path, most: int) -> None:
    """Remove the least recently used files until at most `most` bytes remain. Includes files of killed processes."""
    files = []
    for path in cache.iterdir():
        with contextlib.suppress(FileNotFoundError):
            about = path.stat()
            files.append((about.st_mtime, about.st_size, path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= most:
            return
        path.unlink(missing_ok=True)
        total -= size


def _versions() -> dict[str, str]:
    versions = {}
    for name in ("frostline", *LIBRARIES):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def _attributes(module: torch.nn.Module) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of the attributes of a module whose values are plain, configurations or functions."""
    for name, value in vars(module).items():
        if hasattr(value, "to_json_string"):
            # A configuration of transformers.
            yield name, value.to_json_string()
        elif isinstance(value, types.FunctionType):
            yield name, repr(list(_code(value.__code__)))
        elif name != "training" and (text := _text(value)) is not None:
            yield name, text


def _text(value: object) -> str | None:
    """Return a text that is the same in all processes for equal values, or `None` if the value has other parts than plain values."""
    if isinstance(value, dict):
        return _text([part for pair in value.items() for part in pair])
    if isinstance(value, (tuple, list, set, frozenset)):
        parts = [_text(part) for part in value]
        known = [part for part in parts if part is not None]
        return f"[{', '.join(sorted(known) if isinstance(value, (set, frozenset)) else known)}]" if len(known) == len(parts) else None
    return repr(value) if isinstance(value, _PLAIN) else None


def _class_code(kind: type) -> Iterator[str]:
    """Yield the methods and plain members of a class and its bases up to `torch.nn.Module`. A notebook can redefine a class."""
    for base in kind.__mro__:
        if base in (torch.nn.Module, object):
            continue
        for name, member in sorted(vars(base).items()):
            function = getattr(member, "__func__", getattr(member, "fget", member))
            if isinstance(function, types.FunctionType):
                yield name
                yield from _code(function.__code__)
            elif not name.startswith("__") and (text := _text(member)) is not None:
                yield f"{name} {text}"


def _code(code: types.CodeType) -> Iterator[str]:
    """Yield the instructions, names and constants of a function, including inner functions."""
    yield code.co_code.hex()
    yield repr(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code(constant)
        elif (text := _text(constant)) is not None:
            yield text
