"""Frostline: fine-tune vision models on images in an object store, with the frozen layers run where the images are.

* :class:`Client`: hosts, with the words of the ``frostline`` command.
* :func:`pixels`: how images become a network's input.
* :class:`Error` and its subclasses: what can go wrong.
"""

from ._client import Client, Object, Upload, pixels
from ._errors import (
    BadSample,
    Busy,
    CommandError,
    Denied,
    Error,
    Lost,
    NotFound,
    ProtocolError,
    Refused,
    SettingsError,
    Unreachable,
)
from ._native import __version__

__all__ = [
    "BadSample",
    "Busy",
    "Client",
    "CommandError",
    "Denied",
    "Error",
    "Lost",
    "NotFound",
    "Object",
    "ProtocolError",
    "Refused",
    "SettingsError",
    "Unreachable",
    "Upload",
    "__version__",
    "pixels",
]
