"""The embedded host: a child process that serves data on this machine, and exits when no process uses it any more."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import re
import selectors
import subprocess
import threading
import weakref
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import _native
from ._errors import Error, Unreachable
from ._program import environment, program
from ._temporary import TemporaryFolder, lock_shared

_START_TIMEOUT = 60.0
"""Timeout in seconds for the start of the host, which does not compile anything."""
_EXIT_TIMEOUT = 5.0
"""Timeout in seconds for the exit of the host. Work in progress is discarded."""
_STDERR_LINES = 20
"""Maximum number of buffered lines of standard error, for messages."""
_ALIVE = "alive"
"""FIFO that is the standard input of the host, locked by its users. The host exits when no process has opened it for
writing. The last user removes it first, so that no process uses a host that is about to exit."""
_UPLOADS = "uploads"
"""Folder with a file for each upload. The file is locked while a process uses the upload."""
_WRITE_FIFO = os.O_WRONLY | os.O_NONBLOCK
"""Flags to open the FIFO, which fails if the host does not read it."""
_NAME = re.compile("[a-z0-9][a-z0-9._-]{0,62}")
"""Names of uploads that hosts accept."""


class HostUse:
    """Use of an embedded host and of uploads on it, by one handle of this process and its forks.

    Other processes of the user can use the same host. The kernel ends the use when the process exits.
    """

    def __init__(self, url: str, token_file: str) -> None:
        """Raise `Unreachable` if the host has exited."""
        self.url, self.token_file = url, token_file
        self._folder = Path(token_file).parent.parent
        self._upload_files: dict[Path, int] = {}
        try:
            self._host_file = lock_shared(self._folder / _ALIVE, _WRITE_FIFO)
            try:
                # Another process must not remove the folder if the one that created it has exited.
                self._folder_file = lock_shared(self._folder / TemporaryFolder.LOCK)
            except OSError:
                os.close(self._host_file)
                raise
        except OSError as error:
            raise Unreachable("the embedded host has exited; create the client or the data set again") from error
        held = self._host_file, self._folder_file, self._upload_files
        self._finalizer = weakref.finalize(self, _end_use, self.settings(), self._folder, *held)
        self._finalizer.atexit = False
        _uses.add(self)

    def settings(self) -> dict[str, Any]:
        """Return the settings of `_native.Hosts` for this host."""
        return {"hosts": [self.url], "token": None, "token_file": self.token_file, "ca": None, "embedded": True}

    def host_runs(self) -> bool:
        try:
            os.close(os.open(self._folder / _ALIVE, _WRITE_FIFO))
        except OSError:
            return False
        return True

    def hold(self, kind: str, name: str) -> None:
        """Keep the `guest` or `model` with this name on the host while this handle is open.

        Call this before the upload. Otherwise another process can remove it.
        """
        path = self._folder / _UPLOADS / f"{kind}.{name}"
        if _NAME.fullmatch(name) and path not in self._upload_files:
            self._upload_files[path] = lock_shared(path, os.O_RDWR | os.O_CREAT)

    def close(self) -> None:
        """End the use. Remove the uploads that no handle of any process uses any more."""
        self._finalizer()

    def leave(self) -> None:
        """End the use without a request to the host."""
        if self._finalizer.detach():
            _close_files(self._folder, self._host_file, self._folder_file)


_uses: weakref.WeakSet[HostUse] = weakref.WeakSet()
_running: dict[str, _Process] = {}
_starting = threading.Lock()
_watching: set[threading.Thread] = set()


def embedded(device: str) -> HostUse:
    """Use the host of this process or its parent, and start it if necessary."""
    with _starting:
        if running := _running.get(device):
            with contextlib.suppress(Unreachable):
                return HostUse(running.url, running.token_file)
        running = _running[device] = _Process(device)
        return running.first_use()


def use_of(settings: Mapping[str, Any]) -> HostUse | None:
    """Use the embedded host and the uploads in the settings of a stream, which can come from another process.

    Returns `None` for other hosts, and if the host has exited.
    """
    if not settings.get("embedded"):
        return None
    try:
        use = HostUse(settings["hosts"][0], settings["token_file"])
        for kind in ("model", "guest"):
            if upload := settings.get(kind):
                use.hold(kind, upload[0])
    except (Unreachable, OSError):
        return None
    return use


def _end_use(settings: dict[str, Any], folder: Path, host_file: int, folder_file: int, upload_files: dict[Path, int]) -> None:
    for file in upload_files.values():
        os.close(file)
    # If the host does not answer, its state is removed when it exits.
    with contextlib.suppress(Error, OSError):
        _remove_unused(settings, folder / _UPLOADS)
    _close_files(folder, host_file, folder_file)


def _close_files(folder: Path, host_file: int, folder_file: int) -> None:
    """Close the files of a user, and remove the FIFO if no other process, handle or fork uses the host."""
    with contextlib.suppress(OSError):
        # A fork shares the lock of `host_file`, so another one is needed.
        last = os.open(folder / _ALIVE, _WRITE_FIFO)
        os.close(host_file)
        host_file = last
        fcntl.flock(host_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (folder / _ALIVE).unlink()
    os.close(host_file)
    os.close(folder_file)


def _remove_unused(settings: dict[str, Any], uploads: Path) -> None:
    """Remove the uploads that no process uses. Includes those of processes that were killed."""
    hosts = _native.Hosts(settings)
    for path in uploads.iterdir():
        with open(path, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            # Another process may have removed it, and a third one may have uploaded it again.
            if os.fstat(file.fileno()).st_nlink:
                kind, _, name = path.name.partition(".")
                hosts.remove(kind == "guest", name)
                path.unlink()


class _Process:
    """An embedded host that this process or its parent started."""

    def __init__(self, device: str) -> None:
        self.stderr_lines: deque[str] = deque(maxlen=_STDERR_LINES)
        self.address_was_read = False
        self.folder = TemporaryFolder(removed_at_exit=False)
        folder = self.folder.path.parent
        (folder / _UPLOADS).mkdir()
        os.mkfifo(folder / _ALIVE, 0o600)
        self.token_file = str(self.folder.path / "token")
        reading = os.open(folder / _ALIVE, os.O_RDONLY | os.O_NONBLOCK)
        self.writing = os.open(folder / _ALIVE, _WRITE_FIFO)
        os.set_blocking(reading, True)
        # Without users, there is no work to finish.
        words = ["serve", "--json", "--until-input-ends", "--embedded", "--drain", "0", "--listen", "127.0.0.1:0", "--device", device]
        try:
            self.process = subprocess.Popen(
                [program(), *words, "--state", str(self.folder.path), "--token-file", self.token_file],
                stdin=reading,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment(),
                start_new_session=True,
            )
        finally:
            os.close(reading)
        self.watcher = threading.Thread(target=self._watch, daemon=True)
        _watching.add(self.watcher)
        self.watcher.start()
        try:
            self.url = self._read_address()
        except BaseException:
            self.process.kill()
            raise

    def first_use(self) -> HostUse:
        try:
            return HostUse(self.url, self.token_file)
        finally:
            os.close(self.writing)

    def _watch(self) -> None:
        """Buffer the last lines of standard error until the host exits, and remove its folder then."""
        assert self.process.stderr is not None and self.process.stdout is not None
        for line in self.process.stderr:
            self.stderr_lines.append(line.decode(errors="replace").strip())
        self.process.wait()
        # The thread that starts the host can still read the output of a host that exited at once.
        if self.address_was_read:
            self.process.stdout.close()
        self.process.stderr.close()
        self.folder.remove()
        _watching.discard(threading.current_thread())

    def _read_address(self) -> str:
        """Read the address from the first line of output."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            ready = selector.select(_START_TIMEOUT)
        line = self.process.stdout.readline() if ready else b""
        self.address_was_read = True
        if not line:
            message = ""
            if not ready:
                raise Unreachable(f"the embedded host did not listen within {_START_TIMEOUT:.0f} s")
            self.watcher.join(_EXIT_TIMEOUT)
            for text in self.stderr_lines:
                try:
                    message = json.loads(text)["error"]
                except (ValueError, KeyError, TypeError):
                    message = message or text
            raise Error(f"cannot start the embedded host: {message or 'no error message'}")
        return str(json.loads(line)["url"])


@atexit.register
def _exit() -> None:
    """End all uses, and wait until the hosts that no other process uses have removed their files."""
    for use in list(_uses):
        use.leave()
    for watcher in list(_watching):
        watcher.join(_EXIT_TIMEOUT)


def _replace_lock() -> None:
    """Replace the lock after a fork. If another thread held it, it would never be released in the child."""
    global _starting
    _starting = threading.Lock()


os.register_at_fork(after_in_child=_replace_lock)
