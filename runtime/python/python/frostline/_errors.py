"""Exception classes."""

from __future__ import annotations


class Error(Exception):
    """Base class of all errors. The message contains the reason, the affected host or file, and the next step."""


class SettingsError(Error, ValueError):
    """An address, a token, a cut or a setting is invalid. A retry fails in the same way."""


class Unreachable(Error):
    """A host does not answer, or the connection is interrupted, after all retries."""


class Refused(Error):
    """A host refused the request."""

    def __init__(self, message: str = "", *, kind: str = "", status: int = 0) -> None:
        super().__init__(message)
        self.kind = kind
        """Class of the refusal: request, unauthorized, not-found, too-large, busy, stopping, guest or host."""
        self.status = status
        """HTTP status, or 0 if unknown."""


class Busy(Refused):
    """A host has no free capacity or is draining. Retry later."""


class NotFound(Refused):
    """The data root, model or guest does not exist on the host, or the token has no access to it."""


class Denied(Refused):
    """A host does not accept the token."""


class Lost(Error):
    """Samples are missing after all retries."""

    def __init__(self, message: str = "", *, samples: int = 0, first: str = "") -> None:
        super().__init__(message)
        self.samples = samples
        """Number of missing samples, or 0 if unknown."""
        self.first = first
        """Key of the first missing sample."""


class BadSample(Error):
    """A sample cannot be used, for example because it is not an image."""

    def __init__(self, message: str = "", *, key: str = "") -> None:
        super().__init__(message)
        self.key = key
        """Key of the sample."""


class ProtocolError(Error):
    """A host sent an invalid answer. The versions may differ."""


class CommandError(Error):
    """The ``frostline`` command failed."""

    def __init__(self, message: str = "", *, kind: str = "failed", code: int = 1, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message} ({hint})")
        self.kind = kind
        """``usage``, ``interrupted``, ``timeout``, ``failed``, or the class of a refusal (see :class:`Refused`)."""
        self.code = code
        """Exit code, or the negative number of the signal that killed the command."""
        self.hint = hint
        """Next step, if known."""
