"""The command in the package, executed directly and from Python."""

import json
import os
import pathlib
import subprocess
import sys
import time
import unittest

import bundled
import datasets
import frostline
import numpy
import pyarrow
import pyarrow.ipc
import pyarrow.parquet
from frostline import _command, _program

client = frostline.Client()


class Command(bundled.Case):
    def test_one_epoch_is_trained(self):
        events = []
        flags = {"freeze": "features", "epochs": 1, "batch": 32, "lr": 0.05, "feature_cache": "off"}
        out = self.folder / "tuned.onnx"
        done = client.train(bundled.MODEL, bundled.PHOTOS, out=out, runs=self.folder / "runs", on_event=events.append, **flags)
        self.assertEqual(done["event"], "done")
        self.assertTrue(out.is_file())
        self.assertEqual(sum(event["event"] == "epoch" for event in events), 1)

    def test_plans_and_profiles_are_dictionaries(self):
        plan = client.plan(bundled.MODEL, bundled.PHOTOS, freeze="features", batch=32)
        self.assertIn("link", plan)
        profile = client.profile(bundled.MODEL, bundled.PHOTOS, freeze="features")
        self.assertIn("profile", profile)

    def test_command_errors_have_a_kind(self):
        with self.assertRaises(frostline.CommandError) as usage:
            client.train(bundled.MODEL, bundled.PHOTOS, nonsense=1)
        self.assertEqual((usage.exception.kind, usage.exception.code), ("usage", 2))
        with self.assertRaises(frostline.CommandError) as failed:
            client.plan(self.folder / "absent.onnx", bundled.PHOTOS)
        self.assertEqual(failed.exception.code, 1)
        self.assertIn("absent.onnx", str(failed.exception))

    def test_hints_name_parameters(self):
        def hint(**flags):
            flags = {"freeze": "features", "epochs": 1, "runs": self.folder / "runs", "feature_cache": "off"} | flags
            with self.assertRaises(frostline.CommandError) as failed:
                client.train(bundled.MODEL, bundled.PHOTOS, **flags)
            self.assertNotIn("--", str(failed.exception))
            return failed.exception.hint

        self.assertEqual(hint(validation=0.2), "leave out validation")
        self.assertEqual(hint(head="keep"), "set head='replace'")
        self.assertIn("epochs", hint(epoch=2))
        self.assertEqual(client.train(bundled.MODEL, bundled.PHOTOS, freeze="features", epochs=1, head="replace", runs=self.folder / "runs")["event"], "done")
        calls = [["train", "--resume", "runs/7", "--on-bad-sample", "skip"], ["model", "show", "a b.onnx"]]
        self.assertEqual(
            [_command._call(call) for call in calls],
            ["train(..., resume='runs/7', on_bad_sample='skip')", "frostline model show 'a b.onnx'"],
        )

    def test_tokens_reach_the_command_through_no_file(self):
        reached = client.config(bundled.PHOTOS)
        with open(reached["token_file"]) as file:
            known = frostline.Client(reached["hosts"], file.read().strip())
        self.assertIn("profile", known.profile(bundled.MODEL, bundled.PHOTOS, freeze="features"))
        with self.assertRaises(frostline.CommandError) as denied:
            frostline.Client(reached["hosts"], "wrong").profile(bundled.MODEL, bundled.PHOTOS)
        self.assertEqual(denied.exception.kind, "unauthorized")

    def test_commands_are_stopped_at_the_timeout(self):
        with self.assertRaises(frostline.CommandError) as late:
            client.profile(bundled.MODEL, bundled.PHOTOS, timeout=0.0)
        self.assertEqual(late.exception.kind, "timeout")


def runs_still(process):
    """Return true if the process exists and is not a zombie."""
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Orphans(bundled.Case):
    """Children of a process that is killed."""

    def killed(self, script):
        """Run a script until it prints a line, kill it, and return the line and the child processes."""
        words = [sys.executable, "-c", script, bundled.MODEL, bundled.PHOTOS, self.folder / "runs"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            line = process.stdout.readline().strip()
            children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            process.kill()
        self.assertTrue(children)
        return line, children

    def wait_until(self, done):
        deadline = time.monotonic() + 120
        while not done():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)

    def test_a_job_ends_with_who_started_it(self):
        script = """
import sys, frostline
model, photos, runs = sys.argv[1:]
tell = lambda event: print(event["event"], flush=True) if event["event"] == "epoch" else None
frostline.Client().train(model, photos, runs=runs, freeze="features", epochs=1000000, batch=32, lr=0.01, on_event=tell)
"""
        line, children = self.killed(script)
        self.assertEqual(line, "epoch")
        self.wait_until(lambda: not any(runs_still(child) for child in children))
        (run,) = (self.folder / "runs").iterdir()
        self.assertTrue(any(run.rglob("*.onnx")), "the best model so far is missing")

    def test_a_host_leaves_nothing_behind(self):
        script = """
import signal, sys, frostline
client = frostline.Client()
print(client.config(sys.argv[2])["token_file"], flush=True)
signal.pause()
"""
        token_file, _ = self.killed(script)
        self.wait_until(lambda: not pathlib.Path(token_file).parent.exists())


class Alone(bundled.Case):
    """The command, executed as in a shell, without the environment that the package sets."""

    def extract(self, name, *more, data=bundled.PHOTOS):
        out = self.folder / name
        words = ["extract", "--json", "--model", bundled.MODEL, "--data", data, "--cut", bundled.CUT, "--out", out, *more]
        environment = {name: value for name, value in os.environ.items() if name != "ORT_DYLIB_PATH"}
        ended = subprocess.run([_program.program(), *words], env=environment, capture_output=True, text=True)
        return out, ended

    def check(self, table):
        self.assertEqual(table.num_rows, 288)
        field = table.schema.field("activation")
        self.assertEqual(field.type, pyarrow.list_(pyarrow.float32(), 128))
        self.assertEqual(json.loads(field.metadata[b"shape"]), [128])
        self.assertFalse(table.schema.field("activation").nullable or table.schema.field("key").nullable)
        self.assertEqual(sum(chunk.null_count for chunk in table["activation"].chunks), 0)
        self.assertEqual(table["label"].to_pylist()[0], "brick")
        expected = client.extract(bundled.PHOTOS, bundled.MODEL, bundled.CUT).read_all()
        self.assertEqual(table["key"], expected["key"])
        values = table["activation"].combine_chunks().flatten().to_numpy().reshape(288, 128)
        numpy.testing.assert_allclose(values, expected["activation"].combine_chunks().to_numpy_ndarray(), atol=1e-4)

    def test_arrow_files_are_read_by_pyarrow(self):
        out, ended = self.extract("rows.arrow")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        done = json.loads(ended.stdout)
        self.assertEqual((done["rows"], done["shape"]), (288, [128]))
        with pyarrow.memory_map(str(out)) as file:
            self.check(pyarrow.ipc.open_file(file).read_all())

    def test_parquet_files_are_read_by_pyarrow(self):
        out, ended = self.extract("rows.parquet")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.check(pyarrow.parquet.read_table(out))

    def test_files_are_read_by_datasets(self):
        for kind, name in (("parquet", "rows.parquet"), ("arrow", "rows.arrow")):
            out, ended = self.extract(name)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            rows = datasets.load_dataset(kind, data_files=str(out), cache_dir=str(self.folder / "cache"), split="train")
            self.assertEqual((len(rows), len(rows[0]["activation"])), (288, 128))

    def test_a_file_is_written_whole_or_not_at_all(self):
        root = self.few()
        (root / "brick/broken.jpg").write_bytes(b"no image")
        out, ended = self.extract("rows.parquet", data=root)
        self.assertEqual(ended.returncode, 1)
        self.assertIn("broken.jpg", ended.stderr)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["photos"])
        out, ended = self.extract("rows.parquet", "--on-bad-sample", "skip", data=root)
        self.assertEqual(json.loads(ended.stdout)["left_out"], 1)
        self.assertEqual(pyarrow.parquet.read_table(out).num_rows, 8)


if __name__ == "__main__":
    unittest.main()
