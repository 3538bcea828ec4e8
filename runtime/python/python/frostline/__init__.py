"""Frostline: fine-tune vision models on images in an object store, and run the frozen layers next to the images.

* :class:`Client`: access to hosts, with the operations of the ``frostline`` command.
* :func:`pixels`: preprocessing recipes for images.
* :class:`Error`: base class of the errors.
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
