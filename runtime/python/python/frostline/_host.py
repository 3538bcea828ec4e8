"""The embedded host: a storage host on this machine, a process that ends with the one that started it."""

from __future__ import annotations

import atexit
import json
import os
import selectors
import shutil
import subprocess
import tempfile
import threading
from collections import deque
from pathlib import Path
from typing import NamedTuple

from ._errors import Error, Unreachable
from ._program import environment, program

_START = 60.0
"""Seconds it may take to listen: it compiles nothing before."""
_END = 5.0
"""Seconds it may take to end; what it still runs belongs to nobody."""
_SAID = 20
"""Lines of its standard error that are kept to be shown."""


class Embedded(NamedTuple):
    url: str
    token_file: str


_running: dict[tuple[int, str, str], "_Process"] = {}
_starting = threading.Lock()


def embedded(data: str, device: str) -> Embedded:
    """The host of this process that may read ``data``, started if there is none."""
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
        self.said: deque[str] = deque(maxlen=_SAID)
        self.folder = Path(tempfile.mkdtemp(prefix="frostline-"))
        atexit.register(self.end)
        token_file = self.folder / "token"
        words = ["serve", "--json", "--until-input-ends", "--ephemeral", "--listen", "127.0.0.1:0", "--data", data, "--device", device]
        self.process = subprocess.Popen(
            [program(), *words, "--state", str(self.folder), "--token-file", str(token_file)],
            # Held open here and in forked workers: when the last of them is gone, it ends.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
            start_new_session=True,
        )
        self.hearing = threading.Thread(target=self._hear, daemon=True)
        self.hearing.start()
        try:
            url = self._listening()
        except BaseException:
            self.end()
            raise
        self.reached = Embedded(url, str(token_file))

    def _hear(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line.decode(errors="replace").strip())

    def _listening(self) -> str:
        """Its address, which is the first thing it says."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            ready = selector.select(_START)
        line = self.process.stdout.readline() if ready else b""
        if not line:
            said = ""
            if not ready:
                raise Unreachable(f"the embedded host did not listen within {_START:.0f} s")
            self.process.wait(_END)
            self.hearing.join(_END)
            for text in self.said:
                try:
                    said = json.loads(text)["error"]
                except (ValueError, KeyError, TypeError):
                    said = said or text
            raise Error(f"cannot start the embedded host: {said or 'it ended without a word'}")
        return str(json.loads(line)["url"])

    def end(self) -> None:
        if os.getpid() != self.owner:
            return
        atexit.unregister(self.end)
        process = getattr(self, "process", None)
        if process is not None:
            process.terminate()
            try:
                process.wait(_END)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self.hearing.join(_END)
            for pipe in (process.stdin, process.stdout, process.stderr):
                pipe.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _forget() -> None:
    """A lock that another thread held at a fork would never be free in the child."""
    global _starting
    _starting = threading.Lock()


os.register_at_fork(after_in_child=_forget)
