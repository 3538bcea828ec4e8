"""Base class for tests with the bundled network and photos."""

import shutil
import tempfile
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
MODEL = REPOSITORY / "models/zoo/demo/backbone.onnx"
PHOTOS = REPOSITORY / "models/zoo/demo/photos"
CUT = "features"
"""The cut before the network's classifier, with 128 values per image."""


class Case(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="frostline-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def few(self, each: int = 4) -> Path:
        """Create a data root with `each` photos in each of two classes."""
        root = self.folder / "photos"
        for name in ("brick", "stars"):
            (root / name).mkdir(parents=True)
            for photo in sorted((PHOTOS / "train" / name).iterdir())[:each]:
                shutil.copy(photo, root / name)
        return root
