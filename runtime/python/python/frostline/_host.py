"""The embedded host: a child process that serves data on this machine and exits with its parent."""

from __future__ import annotations

import atexit
import json
import os
import selectors
import subprocess
import threading
from collections import deque
from typing import NamedTuple

from ._errors import Error, Unreachable
from ._program import environment, program
from ._temporary import TemporaryFolder

_START_TIMEOUT = 60.0
"""Timeout in seconds for the start of the host, which does not compile anything."""
_EXIT_TIMEOUT = 5.0
"""Timeout in seconds for the exit of the host. Work in progress is discarded."""
_STDERR_LINES = 20
"""Maximum number of buffered lines of standard error, for messages."""


class Embedded(NamedTuple):
    url: str
    token_file: str


_running: dict[tuple[int, str, str], "_Process"] = {}
_starting = threading.Lock()


def embedded(data: str, device: str) -> Embedded:
    """Return the host of this process that serves ``data``, and start it if necessary."""
    key = (os.getpid(), data, device)
    with _starting:
        running = _running.get(key)
        if running is None or running.process.poll() is not None:
            running = _Process(data, device)
            _running[key] = running
        return running.reached


class _Process:
    def __init__(self, data: str, device: str) -> None:
        self.owner = os.getpid()
        self.stderr_lines: deque[str] = deque(maxlen=_STDERR_LINES)
        self.folder = TemporaryFolder()
        atexit.register(self.end)
        token_file = self.folder.path / "token"
        words = ["serve", "--json", "--until-input-ends", "--ephemeral", "--listen", "127.0.0.1:0", "--data", data, "--device", device]
        self.process = subprocess.Popen(
            [program(), *words, "--state", str(self.folder.path), "--token-file", str(token_file)],
            # The host exits at the end of input, when this process and all forked workers have closed the pipe.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
            start_new_session=True,
        )
        self.stderr_reader = threading.Thread(target=self._read_stderr, daemon=True)
        self.stderr_reader.start()
        try:
            url = self._read_address()
        except BaseException:
            self.end()
            raise
        self.reached = Embedded(url, str(token_file))

    def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.stderr_lines.append(line.decode(errors="replace").strip())

    def _read_address(self) -> str:
        """Read the address from the first line of output."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            ready = selector.select(_START_TIMEOUT)
        line = self.process.stdout.readline() if ready else b""
        if not line:
            message = ""
            if not ready:
                raise Unreachable(f"the embedded host did not listen within {_START_TIMEOUT:.0f} s")
            self.process.wait(_EXIT_TIMEOUT)
            self.stderr_reader.join(_EXIT_TIMEOUT)
            for text in self.stderr_lines:
                try:
                    message = json.loads(text)["error"]
                except (ValueError, KeyError, TypeError):
                    message = message or text
            raise Error(f"cannot start the embedded host: {message or 'no error message'}")
        return str(json.loads(line)["url"])

    def end(self) -> None:
        if os.getpid() != self.owner:
            return
        atexit.unregister(self.end)
        process = getattr(self, "process", None)
        if process is not None:
            process.terminate()
            try:
                process.wait(_EXIT_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self.stderr_reader.join(_EXIT_TIMEOUT)
            for pipe in (process.stdin, process.stdout, process.stderr):
                pipe.close()
        self.folder.remove()


def _replace_lock() -> None:
    """Replace the lock after a fork. If another thread held it, it would never be released in the child."""
    global _starting
    _starting = threading.Lock()


os.register_at_fork(after_in_child=_replace_lock)
