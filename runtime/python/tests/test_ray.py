"""Ray Train with activations in each worker, and activations as a Ray dataset, with Ray on this machine."""

import json
import os
import pathlib
import tempfile
import types
import unittest

import numpy
import torch

import local_hosts
import small
from frostline._samples import Samples
from local_hosts import PHOTOS, Host

# Do not write a token to the home folder for a cluster that exists only during the tests.
os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_TRAIN_V2_ENABLED": "1"}
try:
    import ray
    import ray.data
    import ray.train.torch
except ImportError as error:
    ray, MISSING = None, str(error)

FALLS = 4
"""Step after which a worker crashes."""


def loop(config):
    """Train for an epoch in a worker of Ray Train, with a checkpoint after every step. A worker crashes once."""
    torch.set_num_threads(1)
    suffix, data = small.divided(PHOTOS, config["hosts"], token_file=config["token_file"])
    module = torch.nn.parallel.DistributedDataParallel(suffix.eval())
    optimizer = torch.optim.SGD(module.parameters(), 0.05)
    context = ray.train.get_context()
    rank, folder = context.get_world_rank(), pathlib.Path(config["folder"])
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as at:
            state = torch.load(pathlib.Path(at, "state.pt"), weights_only=True)
        suffix.load_state_dict(state["suffix"])
        data.load_state_dict(state["data"])
    for x, y in torch.utils.data.DataLoader(data, batch_size=None):
        state = data.state_dict()
        loss = torch.nn.functional.cross_entropy(module(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach()
        torch.distributed.all_reduce(mean)
        # A repeated step overwrites its note.
        step = len(data) if state["epoch"] else state["step"]
        note = {"loss": float(mean) / context.get_world_size(), "keys": data.source.keys[-1]}
        (folder / f"{step:03}-{rank}.json").write_text(json.dumps(note))
        with tempfile.TemporaryDirectory() as at:
            kept = None
            if rank == 0:
                torch.save({"suffix": suffix.state_dict(), "data": data.state_dict()}, pathlib.Path(at, "state.pt"))
                kept = ray.train.Checkpoint.from_directory(at)
            ray.train.report({"step": step}, checkpoint=kept)
        fallen = folder / "fallen"
        if step == FALLS and rank == 1 and not fallen.exists():
            fallen.touch()
            os._exit(1)


class Broken:
    """A source that skips every fourth sample."""

    on_bad_sample = "skip"

    def shape(self):
        return [1]

    def rows(self, samples, batch, view=None):
        places = [place for place, (key, *_) in enumerate(samples) if int(key) % 4]
        yield numpy.array([[int(samples[place][0])] for place in places], dtype=numpy.float32), places, []


@unittest.skipUnless(ray, f"cannot import ray: {ray or MISSING}")
@unittest.skipUnless(local_hosts.command(), "the frostline command is not installed, and FROSTLINE is not set")
class Ray(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        paths = os.pathsep.join([str(pathlib.Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        ray.init(
            num_cpus=4,
            include_dashboard=False,
            object_store_memory=200 << 20,
            log_to_driver=False,
            logging_level="error",
            runtime_env={"env_vars": {"PYTHONPATH": paths}},
        )
        ray.data.DataContext.get_current().enable_progress_bars = False

    @classmethod
    def tearDownClass(cls):
        ray.shutdown()

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        host = Host(self.folder, "host")
        self.addCleanup(host.end)
        self.reach = {"hosts": [host.url], "token_file": str(host.token_file)}
        self.expected = sorted(str(file.relative_to(PHOTOS)) for file in (PHOTOS / "train").rglob("*.jpg"))

    def test_a_worker_that_falls_is_restored_and_no_sample_comes_twice_or_not_at_all(self):
        losses, _ = small.train(*small.divided(PHOTOS, **self.reach))
        notes = self.folder / "notes"
        notes.mkdir()
        trainer = ray.train.torch.TorchTrainer(
            loop,
            train_loop_config=self.reach | {"folder": str(notes)},
            scaling_config=ray.train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1}),
            run_config=ray.train.RunConfig(
                storage_path=str(self.folder / "ray"), failure_config=ray.train.FailureConfig(max_failures=1)
            ),
            torch_config=ray.train.torch.TorchConfig(backend="gloo"),
        )
        trainer.fit()
        self.assertTrue((notes / "fallen").exists())
        found = [json.loads(file.read_text()) for file in sorted(notes.glob("*.json"))]
        self.assertEqual(sorted(key for note in found for key in note["keys"]), self.expected)
        self.assertEqual(len(found), 2 * len(losses))
        for note, loss in zip(found[::2], losses):
            self.assertAlmostEqual(note["loss"], loss, delta=1e-4)

    def test_a_dataset_counts_no_rows_that_were_left_out(self):
        from frostline.ray import ActivationsDatasource

        samples = Samples([str(n) for n in range(20)], [None] * 20, [1] * 20, numpy.arange(20))
        data = types.SimpleNamespace(source=Broken(), samples=samples)
        rows = ray.data.read_datasource(ActivationsDatasource(data), override_num_blocks=2)
        self.assertEqual(rows.count(), 15)

    def test_a_dataset_has_every_row_with_its_label_and_key(self):
        from frostline.ray import ActivationsDatasource

        _, data = small.divided(PHOTOS, **self.reach)
        data.source = data.source.source
        rows = ray.data.read_datasource(ActivationsDatasource(data), override_num_blocks=3)
        self.assertEqual(rows.count(), len(self.expected))
        means = rows.map_batches(lambda batch: {"key": batch["key"], "label": batch["label"], "mean": batch["activations"].mean((2, 3))})
        found = {row["key"]: row for row in means.take_all()}
        self.assertEqual(sorted(found), self.expected)
        data.set_epoch(0)
        alone = small.Noted(data.source)
        data.source = alone
        for x, y in data:
            for row, label, key in zip(x, y, alone.keys[-1]):
                self.assertEqual(found[key]["label"], int(label))
                self.assertLess(float((torch.tensor(found[key]["mean"]) - row.mean((1, 2))).abs().max()), 1e-5)
        for table in rows.iter_batches(batch_format="pyarrow"):
            self.assertEqual([column.null_count for column in table.columns], [0, 0, 0])


if __name__ == "__main__":
    unittest.main()
