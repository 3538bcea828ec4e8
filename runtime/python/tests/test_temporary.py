"""Temporary folders of this process and of killed processes."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from frostline._temporary import TemporaryFolder

KEEPER = """
import sys
from frostline._temporary import TemporaryFolder
folder = TemporaryFolder()
(folder.path / "token").write_text("secret")
print(folder.path, flush=True)
sys.stdin.read()
"""


class Temporary(unittest.TestCase):
    def test_folders_of_killed_processes_are_removed(self):
        with tempfile.TemporaryDirectory() as parent, mock.patch("tempfile.tempdir", parent):
            names = lambda: sorted(os.listdir(parent))
            os.mkdir(f"{parent}/frostline-notes")
            environment = {**os.environ, "TMPDIR": parent}
            keeper = subprocess.Popen([sys.executable, "-c", KEEPER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
            with keeper:
                path = Path(keeper.stdout.readline().decode().strip())
                first = TemporaryFolder()
                self.assertEqual((path / "token").read_text(), "secret")
                self.assertEqual(path.stat().st_mode & 0o777, 0o700)
                keeper.kill()
                keeper.wait()
            self.assertTrue(path.exists())
            second = TemporaryFolder()
            self.assertEqual(names(), sorted(["frostline-notes", first.path.parent.name, second.path.parent.name]))
            first.remove()
            del second
            self.assertEqual(names(), ["frostline-notes"])


if __name__ == "__main__":
    unittest.main()
