"""Runs each snippet of the package's README and of the repository's README in a folder with the files that they use, and
checks their types."""

import contextlib
import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
import unittest

import bundled
import local_hosts

README = bundled.REPOSITORY / "runtime/python/README.md"
FRONT = bundled.REPOSITORY / "README.md"
HAS_TORCH = all(importlib.util.find_spec(name) for name in ("torch", "torchvision"))
MODEL = "import torch\nimport torchvision\nmodel: torch.nn.Module = torchvision.models.resnet18(weights=None, num_classes=8)\n"
"""Model of the snippet on the front page."""
MYPY = """
[mypy]
strict = True
# torch does not declare the types of `Tensor.backward`, and torchvision has no types.
untyped_calls_exclude = torch
[mypy-torchvision.*]
ignore_missing_imports = True
"""
MISTAKES = """
frostline.Client(hosts=8443)
client.objects(3)
client.uploaded_byte()
"""
TORCH_MISTAKES = """
fl.freeze_points("resnet18")
fl.freeze_points(model)[0].module + 1
fl.pixels_of(model) + 1
fl.Augmentation(hflip="always")
fl.pushdown(model, "photos", freeze="layer4.0", batch="64")
fl.pushdown(model, "photos", freeze="layer4.0")[1].classes + 1
fl.extract(model, "layer4.0", "photos", device=0)
fl.CannotDivide.reason
"""
"""Each line has a type error."""


def snippets_of(page):
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


def needs_torch(snippet):
    return re.search(r"\b(fl|torch)\.|frostline\.torch", snippet) is not None


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
                if needs_torch(snippet):
                    try:
                        import torch  # noqa: F401
                        import torchvision  # noqa: F401
                    except ImportError:
                        self.skipTest("torch and torchvision are not installed")
                exec(compile(snippet, f"snippet {number}", "exec"), known)

    @unittest.skipUnless(importlib.util.find_spec("mypy"), "mypy is not installed")
    def test_types_of_the_snippets_are_accepted(self):
        snippets = snippets_of(README)
        mistakes = ["import frostline", "client = frostline.Client()", *MISTAKES.strip().splitlines()]
        files = {"readme": "".join(snippets if HAS_TORCH else (snippet for snippet in snippets if not needs_torch(snippet)))}
        if HAS_TORCH:
            files["front"] = MODEL + "".join(snippets_of(FRONT))
            mistakes = [*MODEL.splitlines(), "import frostline.torch as fl", *mistakes, *TORCH_MISTAKES.strip().splitlines()]
        files["mistakes"] = "\n".join(mistakes)
        for name, content in files.items():
            (self.folder / f"{name}.py").write_text(content)
        (self.folder / "mypy.ini").write_text(MYPY)
        command = [sys.executable, "-m", "mypy", "--config-file=mypy.ini", "--no-error-summary", *(f"{name}.py" for name in files)]
        checked = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(checked.stderr, "")
        errors = [line for line in checked.stdout.splitlines() if ": error: " in line]
        self.assertEqual([error for error in errors if not error.startswith("mistakes.py:")], [])
        found = {int(error.split(":")[1]) for error in errors}
        known = [number for number, line in enumerate(mistakes, 1) if line in (MISTAKES + TORCH_MISTAKES).splitlines()]
        self.assertEqual(sorted(found), known, checked.stdout)
        if not HAS_TORCH:
            self.skipTest("torch and torchvision are not installed, so only the snippets without them were checked")

    def test_the_lines_of_the_front_page_run(self):
        try:
            import torch
            import torchvision
        except ImportError:
            self.skipTest("torch and torchvision are not installed")
        [snippet] = snippets_of(FRONT)
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
