"""The ``frostline`` command that comes with this package, and the ONNX Runtime it loads."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ._errors import Error

_LIBRARY = "ORT_DYLIB_PATH"


def program() -> str:
    """Where the command lies: where this package was installed with it, else on the ``PATH``."""
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
    """This process' environment, with ONNX Runtime's library as the package ``onnxruntime`` brings it, unless one is named."""
    variables = dict(os.environ)
    if not variables.get(_LIBRARY):
        library = _library()
        if library is not None:
            variables[_LIBRARY] = str(library)
    return variables


def _library() -> Path | None:
    from importlib.util import find_spec

    # Found without being imported: it is no business of this process.
    spec = find_spec("onnxruntime")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        capi = Path(folder) / "capi"
        libraries = [*capi.glob("libonnxruntime.so*"), *capi.glob("libonnxruntime*.dylib")]
        if libraries:
            return max(libraries)
    return None
