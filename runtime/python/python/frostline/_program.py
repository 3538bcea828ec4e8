"""Locations of the ``frostline`` command in this package and of ONNX Runtime."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ._errors import Error

_LIBRARY = "ORT_DYLIB_PATH"


def program() -> str:
    """Return the path of the command that was installed with this package, or of the command on the ``PATH``."""
    from importlib.metadata import PackageNotFoundError, files

    try:
        installed = files("frostline") or []
    except PackageNotFoundError:
        installed = []
    for file in installed:
        if file.name == "frostline" and file.parent.name == "bin":
            path = Path(str(file.locate())).resolve()
            if path.is_file():
                return str(path)
    found = shutil.which("frostline")
    if found is None:
        raise Error("the frostline command is neither installed with this package nor on the PATH; install frostline again")
    return found


def environment() -> dict[str, str]:
    """Return the environment variables for the command.

    Sets ``ORT_DYLIB_PATH`` to the library in the package ``onnxruntime``, unless the variable is already set.
    """
    variables = dict(os.environ)
    if not variables.get(_LIBRARY):
        library = _library()
        if library is not None:
            variables[_LIBRARY] = str(library)
    return variables


def _library() -> Path | None:
    from importlib.util import find_spec

    # Locate the package without an import, because this process does not use it.
    spec = find_spec("onnxruntime")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        capi = Path(folder) / "capi"
        libraries = [*capi.glob("libonnxruntime.so*"), *capi.glob("libonnxruntime*.dylib")]
        if libraries:
            return max(libraries)
    return None
