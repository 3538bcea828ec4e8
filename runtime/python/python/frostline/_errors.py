"""What can go wrong, as classes."""

from __future__ import annotations


class Error(Exception):
    """Anything that Frostline could not do. The text says what happened, to whom, and what to do next."""


class SettingsError(Error, ValueError):
    """What was asked for cannot be: an address, a token, a cut or a setting is wrong. Asking again gives the same."""


class Unreachable(Error):
    """A host does not answer, fell silent, or was cut off, however often it was tried."""


class Refused(Error):
    """A host said no."""

    def __init__(self, message: str = "", *, kind: str = "", status: int = 0) -> None:
        super().__init__(message)
        self.kind = kind
        """What can be done about it: request, unauthorized, not-found, too-large, busy, stopping, guest or host."""
        self.status = status
        """The HTTP status."""


class Busy(Refused):
    """A host has no room now, or is about to stop: ask later."""


class NotFound(Refused):
    """A host has no such data root, model or guest, or not for this token."""


class Denied(Refused):
    """A host does not know the token."""


class Lost(Error):
    """Samples did not arrive, however often they were asked for."""

    def __init__(self, message: str = "", *, samples: int = 0, first: str = "") -> None:
        super().__init__(message)
        self.samples = samples
        """How many are missing."""
        self.first = first
        """The key of one of them."""


class BadSample(Error):
    """A sample cannot be used: an image that is none, say."""

    def __init__(self, message: str = "", *, key: str = "") -> None:
        super().__init__(message)
        self.key = key
        """The sample's key."""


class ProtocolError(Error):
    """A host sent something that is not understood; versions may differ."""


class CommandError(Error):
    """The ``frostline`` command failed."""

    def __init__(self, message: str = "", *, kind: str = "failed", code: int = 1, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message} ({hint})")
        self.kind = kind
        """``usage``, ``interrupted``, ``timeout``, ``failed``, or what a host says of it (see :class:`Refused`)."""
        self.code = code
        """Its exit code; negative for the signal that ended it."""
        self.hint = hint
        """What to do about it, where that is known."""
