"""Execution of the ``frostline`` command."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import IO, Any

from ._errors import CommandError
from ._program import environment, program

_STDERR_LINES = 200
"""Maximum number of buffered lines of standard error. The last line contains the error message."""
_EXIT_TIMEOUT = 30.0
"""Timeout in seconds for the exit of an interrupted command, which first writes its results."""


def words(flags: dict[str, Any]) -> list[str]:
    """Convert flags such as ``{"batch": 64, "host": ["a", "b"], "augment": True, "out": None}`` to arguments."""
    typed: list[str] = []
    for name, value in flags.items():
        flag = "--" + name.replace("_", "-")
        for each in value if isinstance(value, (list, tuple)) else [value]:
            if each is True:
                typed.append(flag)
            elif each is not None and each is not False:
                typed += [flag, os.fspath(each) if isinstance(each, os.PathLike) else str(each)]
    return typed


def run(
    arguments: list[str],
    *,
    secret: str | None = None,
    timeout: float | None = None,
    on_event: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Run the command with ``--json``, call ``on_event`` with each printed object, and return the last object.

    ``secret`` is a token. The command reads it from a pipe, so that it appears neither in a file nor in the arguments.
    """
    last: dict[str, Any] = {}
    with contextlib.closing(_events(arguments, secret, timeout)) as events:
        for event in events:
            last = event
            if on_event is not None:
                on_event(event)
    return last


def _events(arguments: list[str], secret: str | None, timeout: float | None) -> Generator[dict[str, Any], None, None]:
    inherited: tuple[int, ...] = ()
    if secret is not None:
        reading, writing = os.pipe()
        os.write(writing, secret.encode())
        os.close(writing)
        arguments = [*arguments, "--token-file", f"/dev/fd/{reading}"]
        inherited = (reading,)
    try:
        process = subprocess.Popen(
            [program(), *arguments, "--json", "--until-input-ends"],
            # The command treats the end of input like Ctrl-C. The pipe closes if this process exits for any reason.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
            pass_fds=inherited,
            # Ctrl-C reaches only this process, which forwards it once.
            start_new_session=True,
        )
    finally:
        for descriptor in inherited:
            os.close(descriptor)
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    stderr_lines: deque[bytes] = deque(maxlen=_STDERR_LINES)
    stderr_reader = threading.Thread(target=stderr_lines.extend, args=(process.stderr,), daemon=True)
    stderr_reader.start()
    overdue = threading.Event()
    watch = threading.Timer(timeout, _on_timeout, (process, overdue)) if timeout is not None else None
    since = time.monotonic()
    if watch is not None:
        watch.daemon = True
        watch.start()
    try:
        for line in process.stdout:
            yield json.loads(line)
        code = process.wait()
    except BaseException:
        # Continue to read the output, because a full pipe would block the command.
        threading.Thread(target=_drain, args=(process.stdout,), daemon=True).start()
        _interrupt(process)
        raise
    finally:
        if watch is not None:
            watch.cancel()
        stderr_reader.join(_EXIT_TIMEOUT)
        process.stderr.close()
        process.stdin.close()
    process.stdout.close()
    if code != 0 or overdue.is_set():
        if overdue.is_set():
            raise CommandError(f"frostline {arguments[0]} timed out after {time.monotonic() - since:.0f} s", kind="timeout", code=code)
        raise _failure(arguments[0], code, stderr_lines)


def _drain(output: IO[bytes]) -> None:
    with output:
        for _ in output:
            pass


def _failure(word: str, code: int, stderr_lines: deque[bytes]) -> CommandError:
    for line in reversed(stderr_lines):
        try:
            failure = json.loads(line)
            return CommandError(_named(failure["error"]), kind=failure["kind"], code=failure["code"], hint=_hint(failure))
        except (ValueError, KeyError, TypeError):
            continue
    last = stderr_lines[-1].decode(errors="replace").strip() if stderr_lines else "no error message"
    return CommandError(f"frostline {word} exited with code {code}: {last}", code=code)


def _named(message: str) -> str:
    """Replace the flags in a message by the parameters that set them, for example ``--image-size`` by ``image_size``."""
    return re.sub(r"(?<![\w-])--([a-z][a-z0-9-]*)", lambda flag: flag[1].replace("-", "_"), message)


def _hint(failure: dict[str, Any]) -> str | None:
    """Describe the next steps after a failure in terms of this package."""
    if "hint" in failure and "next" not in failure:
        return _named(failure["hint"].partition(" Usage: ")[0])
    return "; or ".join(_step(step) for step in failure.get("next", ())) or None


def _step(step: dict[str, Any]) -> str:
    if "run" in step:
        return "run " + _call(step["run"])
    set_to = [f"{name}=..." if value is None else f"{name}={value!r}" for name, value in step.get("set", {}).items()]
    changes = ["set " + ", ".join(set_to)] if set_to else []
    changes += ["leave out " + ", ".join(step["unset"])] if step.get("unset") else []
    return " and ".join(changes)


def _call(arguments: list[str]) -> str:
    """Return the call of :meth:`Client.train` for arguments such as ``["train", "--resume", "runs/7"]``, or the command
    line for other commands."""
    word, *rest = arguments
    if word != "train":
        return shlex.join(["frostline", *arguments])
    flags = zip(rest[::2], rest[1::2])
    return f"train(..., {', '.join(f'{_named(flag)}={value!r}' for flag, value in flags)})"


def _on_timeout(process: subprocess.Popen[bytes], overdue: threading.Event) -> None:
    overdue.set()
    _interrupt(process)


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    """Send the signal of Ctrl-C, and kill the process if it does not exit in time."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_EXIT_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
