"""Runs the code of the tutorial notebook in the folder of the notebook."""

import contextlib
import importlib.util
import io
import json
import os
import unittest

import bundled

TUTORIALS = bundled.REPOSITORY / "runtime/docs/tutorials"


class Notebook(unittest.TestCase):
    def test_nearest_neighbors(self):
        for module in ("matplotlib", "PIL", "pyarrow"):
            if importlib.util.find_spec(module) is None:
                self.skipTest(f"{module} is not installed")
        import matplotlib

        matplotlib.use("agg")
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(TUTORIALS)
        cells = json.loads((TUTORIALS / "nearest-neighbors.ipynb").read_text())["cells"]
        known: dict[str, object] = {"__name__": "notebook"}
        for number, cell in enumerate(cells):
            if cell["cell_type"] != "code":
                continue
            # Skip Jupyter commands.
            code = "".join(line for line in cell["source"] if not line.startswith("%"))
            with self.subTest(cell=number), contextlib.redirect_stdout(io.StringIO()):
                exec(compile(code, f"cell {number}", "exec"), known)
        # Fraction of neighbors with the class of the query. The expected value for random neighbors is 0.125.
        self.assertGreater(known["hits"].mean(), 0.5)


if __name__ == "__main__":
    unittest.main()
