"""Storage hosts on this machine that tests can stop and restart."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
PHOTOS = REPOSITORY / "models" / "zoo" / "demo" / "photos"
DEADLINE = 600
"""Timeout in seconds for the exit of a host."""


def command():
    """Return the path of the `frostline` command: `FROSTLINE`, or the command next to this interpreter or on the `PATH`."""
    beside = pathlib.Path(sys.executable).with_name("frostline")
    return os.environ.get("FROSTLINE") or (str(beside) if beside.exists() else shutil.which("frostline"))


class Host:
    """Process of `frostline serve` for the demo photos.

    The state is stored in `folder`. All hosts of a folder share a token. A restarted host uses the same port.
    """

    def __init__(self, folder, name, data=PHOTOS, before=()):
        """Start the host. `before` contains arguments to insert before the command, for example to set its CPU affinity."""
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
        """Kill the host to simulate a crash."""
        self.process.kill()
        self._gone()

    def stop(self):
        """Stop the host as an operator does. The host finishes work in progress."""
        self.process.send_signal(signal.SIGTERM)
        self._gone()

    def _gone(self):
        self.process.wait(DEADLINE)
        self.process.stdout.close()

    def end(self):
        if self.process.poll() is None:
            self.kill()
