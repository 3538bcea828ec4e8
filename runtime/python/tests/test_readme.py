"""Runs each snippet of the package's README and of the repository's README in a folder with the files that they use."""

import contextlib
import io
import os
import re
import shutil
import unittest

import bundled
import local_hosts

README = bundled.REPOSITORY / "runtime/python/README.md"


def snippets_of(page):
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


class Readme(bundled.Case):
    def test_each_snippet_runs(self):
        snippets = snippets_of(README)
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

    def test_the_lines_of_the_front_page_run(self):
        try:
            import torch
            import torchvision
        except ImportError:
            self.skipTest("torch and torchvision are not installed")
        [snippet] = snippets_of(bundled.REPOSITORY / "README.md")
        host = local_hosts.Host(self.folder, "store")
        self.addCleanup(host.end)
        for theirs, ours in (("s3://photos/clothing", str(bundled.PHOTOS)), ("https://store-1:8443", host.url)):
            self.assertIn(theirs, snippet)
            snippet = snippet.replace(theirs, ours)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        known = {"torch": torch, "model": torchvision.models.resnet18(weights=None, num_classes=8)}
        exec(compile(snippet, "front page", "exec"), known)
        self.assertEqual(known["x"].shape[1:], (512, 7, 7))


if __name__ == "__main__":
    unittest.main()
