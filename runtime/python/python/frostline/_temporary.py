"""Temporary folders, which later processes remove if this one is killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import weakref
from pathlib import Path
from typing import BinaryIO

# The names are the same in the command, so that each removes the folders of the other.
_PREFIX = "frostline-"
_STATE = "state"


class TemporaryFolder:
    """Folder that only the current user can access, and that is locked by this process and its forks.

    It is removed by `remove`, or when the object is collected. Processes that need it longer lock the file `LOCK` next to
    the folder.
    """

    LOCK = "lock"

    def __init__(self, *, removed_at_exit: bool = True) -> None:
        _remove_abandoned(Path(tempfile.gettempdir()))
        folder, lock = _locked_folder()
        self.path = folder / _STATE
        self._finalizer = weakref.finalize(self, _remove, folder, lock, os.getpid())
        self._finalizer.atexit = removed_at_exit

    def remove(self) -> None:
        self._finalizer()


def lock_shared(path: Path, flags: int = os.O_RDWR) -> int:
    """Open a file with a shared lock, which forks inherit, and return the descriptor."""
    while True:
        file = os.open(path, flags, 0o600)
        fcntl.flock(file, fcntl.LOCK_SH)
        # Another process may have removed the file before it was locked.
        if os.fstat(file).st_nlink:
            return file
        os.close(file)


def _locked_folder() -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        (folder / _STATE).mkdir(mode=0o700)
        # Another process may have removed the folder before it was locked.
        with contextlib.suppress(FileNotFoundError):
            return folder, lock_shared(folder / TemporaryFolder.LOCK, os.O_RDWR | os.O_CREAT)


def _try_lock(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove(folder: Path, lock: int, owner: int) -> None:
    # A forked process inherits the object, but the folder is still in use.
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _remove_abandoned(parent: Path) -> None:
    """Remove the unlocked folders of the current user. Folders without a lock file belong to something else."""
    for folder in parent.glob(f"{_PREFIX}*"):
        try:
            about = folder.lstat()
            if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
                continue
            with open(folder / TemporaryFolder.LOCK, "r+b") as lock:
                if _try_lock(lock):
                    # The lock file is removed last. If this process is killed meanwhile, a later one continues.
                    shutil.rmtree(folder / _STATE, ignore_errors=True)
                    shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue
