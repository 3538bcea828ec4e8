"""Base class for tests with the bundled network and photos."""

import contextlib
import shutil
import tempfile
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

REPOSITORY = Path(__file__).resolve().parents[3]
MODEL = REPOSITORY / "models/zoo/demo/backbone.onnx"
PHOTOS = REPOSITORY / "models/zoo/demo/photos"
CUT = "features"
"""The cut before the network's classifier, with 128 values per image."""


@contextlib.contextmanager
def computed() -> Iterator[list[str]]:
    """Record the keys of the samples whose features are computed instead of read from the cache."""
    from frostline._source import Source

    keys: list[str] = []
    opened = Source._stream

    class Recorded:
        def __init__(self, source: Source) -> None:
            self.stream = opened(source)
            self.shape, self.tensors = self.stream.shape, self.stream.tensors

        def rows(self, samples: list[Any], *arguments: Any, **options: Any) -> Iterator[Any]:
            for batch in self.stream.rows(samples, *arguments, **options):
                keys.extend(samples[place][0] for place in batch["fetched"])
                keys.extend(key for key, _ in batch["failed"])
                yield batch

    with mock.patch.object(Source, "_stream", lambda source: Recorded(source)):
        yield keys


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
