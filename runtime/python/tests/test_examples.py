"""Runs each example on a few of the bundled photos."""

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import local_hosts

EXAMPLES = local_hosts.REPOSITORY / "runtime" / "python" / "examples"
EACH = 2
"""Photos per class and part."""
DEADLINE = 1200


@unittest.skipUnless(local_hosts.command(), "the frostline command is not installed, and FROSTLINE is not set")
class Examples(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.photos = pathlib.Path(folder.name)
        for part in ("train", "validation"):
            for kind in (local_hosts.PHOTOS / part).iterdir():
                (self.photos / part / kind.name).mkdir(parents=True)
                for photo in sorted(kind.iterdir())[:EACH]:
                    shutil.copy(photo, self.photos / part / kind.name)

    def said(self, example, needs, part=""):
        for module in ("torchvision", *needs):
            if importlib.util.find_spec(module) is None:
                self.skipTest(f"{module} is not installed")
        command = [sys.executable, str(EXAMPLES / example), str(self.photos / part)]
        environment = os.environ | {"HF_HUB_OFFLINE": "1"}
        ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, cwd=self.photos, env=environment)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        return ended.stdout

    def test_the_plain_loop(self):
        self.assertIn("epoch 1: loss", self.said("plain.py", (), "train"))

    def test_the_loop_with_three_other_lines(self):
        self.assertIn("epoch 1: loss", self.said("pushdown.py", ()))

    def test_a_vit_of_timm(self):
        self.assertIn("epoch 1: loss", self.said("timm_vit.py", ("timm",)))

    def test_dinov2_of_transformers(self):
        self.assertIn("epoch 1: loss", self.said("dinov2.py", ("transformers",)))

    def test_lightning(self):
        self.assertIn("'accuracy':", self.said("with_lightning.py", ("lightning",)))

    def test_transformers(self):
        self.assertIn("'train_loss':", self.said("with_transformers.py", ("transformers", "accelerate")))


if __name__ == "__main__":
    unittest.main()
