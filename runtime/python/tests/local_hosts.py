"""Storage hosts on this machine, which can be ended and started again."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
PHOTOS = REPOSITORY / "models" / "zoo" / "demo" / "photos"
DEADLINE = 60
"""Seconds that a host may take to begin or to end."""


def command():
    """The `frostline` command: that of `FROSTLINE`, or the one beside this interpreter."""
    beside = pathlib.Path(sys.executable).with_name("frostline")
    return os.environ.get("FROSTLINE") or (str(beside) if beside.exists() else shutil.which("frostline"))


class Host:
    """`frostline serve` for the demo's photos, its state in `folder`; comes back on the same port. All hosts of a folder have one token."""

    def __init__(self, folder, name, data=PHOTOS, before=()):
        """`before`: words before the command, such as those that pin it to a core."""
        self.folder, self.data, self.listen, self.before = pathlib.Path(folder), data, "127.0.0.1:0", before
        self.state = self.folder / name
        self.token_file = self.folder / "token"
        self.start()

    def start(self):
        words = ["serve", "--json", "--data", str(self.data), "--token-file", str(self.token_file), "--state", str(self.state)]
        words = [*self.before, command(), *words, "--listen", self.listen]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=os.environ | {"RUST_LOG": "warn"})
        listening = json.loads(self.process.stdout.readline())
        self.url = listening["url"]
        self.listen = self.url.removeprefix("http://")

    def kill(self):
        """Ends it as a crash would."""
        self.process.kill()
        self._gone()

    def stop(self):
        """Ends it as an operator does: what runs is finished."""
        self.process.send_signal(signal.SIGTERM)
        self._gone()

    def _gone(self):
        self.process.wait(DEADLINE)
        self.process.stdout.close()

    def end(self):
        if self.process.poll() is None:
            self.kill()
