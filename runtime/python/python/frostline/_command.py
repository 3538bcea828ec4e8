"""Runs the ``frostline`` command and reads what it says."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import IO, Any

from ._errors import CommandError
from ._program import environment, program

_KEPT = 200
"""Lines of standard error that are kept: the last one says why it failed."""
_END = 30.0
"""Seconds that an interrupted command may take to write what it has."""


def words(flags: dict[str, Any]) -> list[str]:
    """``{"batch": 64, "host": ["a", "b"], "augment": True, "out": None}`` as one would type it."""
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
    """Runs the command with ``--json`` and returns the last object it prints; ``on_event`` gets each as it comes.

    ``secret`` is a token, which the command reads from a pipe: it is in no file and on no command line.
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
            # Held open here: when this process is gone, however that came, the job ends as by Ctrl-C.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
            pass_fds=inherited,
            # Ctrl-C comes here and is passed on once.
            start_new_session=True,
        )
    finally:
        for descriptor in inherited:
            os.close(descriptor)
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    said: deque[bytes] = deque(maxlen=_KEPT)
    hearing = threading.Thread(target=said.extend, args=(process.stderr,), daemon=True)
    hearing.start()
    overdue = threading.Event()
    watch = threading.Timer(timeout, _give_up, (process, overdue)) if timeout is not None else None
    since = time.monotonic()
    if watch is not None:
        watch.daemon = True
        watch.start()
    try:
        for line in process.stdout:
            yield json.loads(line)
        code = process.wait()
    except BaseException:
        # What it still says must not stop it from ending.
        threading.Thread(target=_drain, args=(process.stdout,), daemon=True).start()
        _interrupt(process)
        raise
    finally:
        if watch is not None:
            watch.cancel()
        hearing.join(_END)
        process.stderr.close()
        process.stdin.close()
    process.stdout.close()
    if code != 0 or overdue.is_set():
        if overdue.is_set():
            raise CommandError(f"frostline {arguments[0]} was ended after {time.monotonic() - since:.0f} s", kind="timeout", code=code)
        raise _failure(arguments[0], code, said)


def _drain(said: IO[bytes]) -> None:
    with said:
        for _ in said:
            pass


def _failure(word: str, code: int, said: deque[bytes]) -> CommandError:
    for line in reversed(said):
        try:
            failure = json.loads(line)
            return CommandError(failure["error"], kind=failure["kind"], code=failure["code"], hint=failure.get("hint"))
        except (ValueError, KeyError, TypeError):
            continue
    last = said[-1].decode(errors="replace").strip() if said else "it said nothing"
    return CommandError(f"frostline {word} ended with {code}: {last}", code=code)


def _give_up(process: subprocess.Popen[bytes], overdue: threading.Event) -> None:
    overdue.set()
    _interrupt(process)


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    """As Ctrl-C would; ends it after a while in any case."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_END)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
