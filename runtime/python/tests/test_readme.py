"""Runs each snippet of the README, in a folder that has what they speak of."""

import contextlib
import io
import os
import re
import shutil
import unittest

import bundled

README = bundled.REPOSITORY / "runtime/python/README.md"


class Readme(bundled.Case):
    def test_each_snippet_runs(self):
        snippets = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)
        self.assertGreater(len(snippets), 3)
        shutil.copy(bundled.MODEL, self.folder / "backbone.onnx")
        (self.folder / "photos").symlink_to(bundled.PHOTOS)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        known: dict[str, object] = {"__name__": "readme"}
        for number, snippet in enumerate(snippets):
            with self.subTest(snippet=number), contextlib.redirect_stdout(io.StringIO()):
                if "frostline.torch" in snippet:
                    try:
                        import torch  # noqa: F401
                        import torchvision  # noqa: F401
                    except ImportError:
                        self.skipTest("torch and torchvision are not installed")
                exec(compile(snippet, f"snippet {number}", "exec"), known)


if __name__ == "__main__":
    unittest.main()
