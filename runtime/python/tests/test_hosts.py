"""Training with real hosts, alone and in process groups, while hosts stop and start."""

import os
import pathlib
import pickle
import signal
import tempfile
import unittest
from unittest import mock

import torch

import bundled
import frostline
import frostline.torch as fl
import local_hosts
import small
from frostline.torch import _network, _pushdown
from local_hosts import PHOTOS, Host
from processes import together

NEEDS = unittest.skipUnless(local_hosts.command(), "the frostline command is not installed, and FROSTLINE is not set")


def member(hosts, token_file, options, kill):
    """Train in one process of a job. Rank 0 kills the host with the process ID `kill` after the second step."""
    torch.set_num_threads(1)
    rank = torch.distributed.get_rank()
    after = lambda step: os.kill(kill, signal.SIGKILL) if kill and rank == 0 and step == 1 else None
    return small.train(*small.divided(PHOTOS, hosts, token_file=token_file, **options), after)


def member_epochs(hosts, token_file, options, kill):
    """Train for two epochs. Rank 0 kills the hosts with the process IDs in `kill` between the epochs."""
    torch.set_num_threads(1)
    suffix, data = small.divided(PHOTOS, hosts, token_file=token_file, **options)
    losses, _ = small.train(suffix, data)
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        if torch.distributed.get_rank() == 0:
            for host in kill:
                os.kill(host, signal.SIGKILL)
        torch.distributed.barrier()
    more, keys = small.train(suffix, data)
    return losses + more, keys


@NEEDS
class Hosts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.hosts = [Host(folder.name, name) for name in ("a", "b")]
        for host in self.hosts:
            self.addCleanup(host.end)
        self.reach = [host.url for host in self.hosts], str(self.hosts[0].token_file)
        files = sorted(str(file.relative_to(PHOTOS)) for file in (PHOTOS / "train").rglob("*.jpg"))
        self.expected = files

    def divided(self, **options):
        hosts, token_file = self.reach
        return small.divided(PHOTOS, hosts, token_file=token_file, **options)

    def once(self, *steps):
        """Check that each sample was used exactly once."""
        self.assertEqual(sorted(key for keys in steps for step in keys for key in step), self.expected)

    def assert_close(self, losses, expected, within):
        self.assertEqual(len(losses), len(expected))
        for loss, other in zip(losses, expected):
            self.assertAlmostEqual(loss, other, delta=within)

    def test_frozen_layers_compute_in_int8(self):
        exact = self.divided()[1]
        rounded = {split: self.divided(split=split, prefix=fl.Prefix(precision="int8"))[1] for split in ("blocks.1", "none", "stem")}
        rows = {}
        for split, data in {"exact": exact, **rounded}.items():
            data.set_epoch(0)
            rows[split] = next(iter(data))[0]
        for split in ("none", "stem"):
            self.assertTrue(torch.allclose(rows[split], rows["blocks.1"], atol=1e-5), split)
        cosine = torch.nn.functional.cosine_similarity(rows["blocks.1"].flatten(1), rows["exact"].flatten(1)).mean()
        self.assertGreater(cosine, 0.99)
        self.assertFalse(torch.equal(rows["blocks.1"], rows["exact"]))
        with self.assertRaises(ValueError):
            self.divided(prefix=fl.Prefix(precision="int4"))

    def test_two_processes_train_as_one(self):
        losses, keys = small.train(*self.divided())
        self.once(keys)
        pairs = together(2, member, *self.reach, {}, None)
        self.once(*(keys for _, keys in pairs))
        for theirs, _ in pairs:
            self.assert_close(theirs, losses, 1e-4)
        # The split does not affect the result.
        for split in ("none", "input", "stem"):
            elsewhere, keys = small.train(*self.divided(split=split))
            self.once(keys)
            self.assert_close(elsewhere, losses, 1e-4)

    def test_activations_of_a_module_are_the_models(self):
        hosts, token_file = self.reach
        model, reach = small.network(), {"token_file": token_file, "size": small.SIZE}
        _, whole = fl.pushdown(model, PHOTOS, hosts, freeze="none", batch=16, columns=["key"], **reach)
        pixels, _, columns = next(iter(whole))
        reader = fl.extract(model, model.blocks[1], PHOTOS, hosts, keys=columns["key"], pixels=frostline.pixels(round(small.SIZE / 0.875), small.SIZE), **reach)
        rows = reader.read_all()
        self.assertEqual(rows["key"].to_pylist(), columns["key"])
        found = torch.from_numpy(rows["activation"].combine_chunks().to_numpy_ndarray().copy())
        torch.testing.assert_close(found, model.blocks[:2](model.stem(pixels)).detach(), rtol=1e-4, atol=1e-4)
        # Access by index in a custom order.
        _, data = fl.pushdown(model, PHOTOS, hosts, freeze="blocks.1", split="blocks.1", **reach)
        samples = data.as_map()
        x, y = next(iter(torch.utils.data.DataLoader(samples, batch_size=3, sampler=[5, 2, 5])))
        self.assertEqual(y.tolist(), [int(samples.labels[number]) for number in (5, 2, 5)])
        self.assertTrue(torch.equal(x[0], x[2]))
        with self.assertRaises(TypeError):
            fl.extract(model, "blocks.1", PHOTOS, hosts, guest="guest.wasm", **reach)

    def test_a_host_that_dies_costs_no_sample(self):
        losses, _ = small.train(*self.divided())
        pairs = together(2, member, *self.reach, {}, self.hosts[1].process.pid)
        self.once(*(keys for _, keys in pairs))
        for theirs, _ in pairs:
            self.assert_close(theirs, losses, 1e-4)

    def test_a_host_that_refuses_the_token_is_reported(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        # The hosts of another folder have another token.
        refusing = Host(folder.name, "c")
        self.addCleanup(refusing.end)
        token = self.hosts[0].token_file.read_text().strip()
        first, last = (frostline.Client(urls, token=token) for urls in ([refusing.url, self.hosts[0].url], [self.hosts[0].url, refusing.url]))
        # A host answers a few invalid tokens at once, and delays the answers to more of them.
        calls = {
            "objects": lambda: first.objects(PHOTOS),
            "push_guest": first.push_guest,
            "push_model": lambda: last.push_model(bundled.MODEL),
            "extract": lambda: last.extract(PHOTOS, bundled.MODEL, bundled.CUT).read_all(),
            "extract from PyTorch": lambda: fl.extract(small.network(), "blocks.1", PHOTOS, client=last, size=small.SIZE).read_all(),
            "automatic split": lambda: small.divided(PHOTOS, client=last, split="auto"),
            "no split": lambda: small.train(*small.divided(PHOTOS, client=last, split="none")),
        }
        for name, call in calls.items():
            with self.subTest(name):
                with self.assertRaises(frostline.Denied) as denied:
                    call()
                self.assertEqual(denied.exception.kind, "unauthorized")
                # The command that plans splits does not state the HTTP status.
                self.assertEqual(denied.exception.status, 0 if name == "automatic split" else 401)
                self.assertIn(refusing.url, str(denied.exception))
                self.assertIn("ask the operator", str(denied.exception))
        # The first host lists the data.
        self.assertGreater(len(last.objects(PHOTOS)), 0)

    def test_hosts_are_restarted_one_after_the_other_and_steps_go_on_meanwhile(self):
        losses, _ = small.train(*self.divided())
        # Prefetch only one batch, so that most of the epoch is requested while a host is down. The other host serves these steps.
        first, second = self.hosts
        turns = {1: first.stop, 4: first.start, 6: second.stop, 9: second.start}
        theirs, keys = small.train(*self.divided(fetching=fl.Fetching(ahead=1)), lambda step: turns.get(step, int)())
        self.once(keys)
        self.assert_close(theirs, losses, 1e-4)

    def test_cached_features_need_no_host(self):
        keeping = {"feature_cache": "1GiB"}
        losses = [member_epochs(*self.reach, {}, None)[0]]
        with mock.patch.dict(os.environ, {"FROSTLINE_FEATURE_FOLDER": self.folder}):
            hosts = [host.process.pid for host in self.hosts]
            losses += [theirs for theirs, _ in together(2, member_epochs, *self.reach, keeping, hosts)]
        for theirs in losses[1:]:
            self.assert_close(theirs, losses[0], 1e-4)

    def test_workers_of_a_loader_have_connections_of_their_own(self):
        _, data = self.divided()
        alone = [y.tolist() for _, y in data]
        for method in ("fork", "spawn"):
            data.set_epoch(0)
            batches = torch.utils.data.DataLoader(data, batch_size=None, num_workers=2, multiprocessing_context=method)
            self.assertEqual([y.tolist() for _, y in batches], alone)

    def test_validation_images_come_in_their_order(self):
        _, data = self.divided()
        labels = torch.cat([y for _, y in data.validation])
        self.assertEqual(sorted(labels.tolist()), labels.tolist())
        self.assertEqual(len(labels), len(list((PHOTOS / "validation").rglob("*.jpg"))))
        self.assertEqual(data.classes, sorted(folder.name for folder in (PHOTOS / "train").iterdir()))


@NEEDS
class Embedded(unittest.TestCase):
    def test_without_frozen_layers_pixels_have_the_networks_size(self):
        network = small.network()
        suffix, data = fl.pushdown(network, PHOTOS, freeze="none", size=small.SIZE, batch=4)
        x, _ = next(iter(data))
        self.assertEqual(x.shape, (4, 3, small.SIZE, small.SIZE))
        self.assertIs(suffix, network)

    def uploads(self):
        """Return the folder with a file for each model or guest in use on the embedded host."""
        client = frostline.Client()
        self.addCleanup(client.close)
        return pathlib.Path(client.config(PHOTOS)["token_file"]).parents[1] / "uploads"

    def test_data_sets_release_their_frozen_layers(self):
        uploads, models = self.uploads(), lambda: list(uploads.glob("model.*"))
        for number in range(3):
            network = small.network()
            with torch.no_grad():
                network.stem[0].weight += number
            _, data = fl.pushdown(network, PHOTOS, freeze="blocks.1", size=small.SIZE, batch=16)
            next(iter(data))
        self.assertEqual(len(models()), 1)
        del data
        self.assertEqual(models(), [])
        _, data = fl.pushdown(network, PHOTOS, freeze="blocks.1", size=small.SIZE, batch=16)
        file = pathlib.Path(data.source.stream["model_file"])
        self.assertTrue(file.exists())
        pickle.loads(pickle.dumps(data)).close()
        self.assertTrue(file.exists())
        data.close()
        self.assertFalse(file.exists())

    def test_models_beyond_the_limit_are_refused_before_the_export(self):
        options = {"freeze": "blocks.1", "size": small.SIZE, "batch": 16}
        with mock.patch.object(_pushdown, "MODEL_BYTES", 1000):
            with mock.patch.object(_network, "export") as export:
                with self.assertRaisesRegex(ValueError, "GiB; pass split='none'"):
                    fl.pushdown(small.network(), PHOTOS, **options)
                export.assert_not_called()
            # Nothing is uploaded, so the limit does not apply.
            uploads = self.uploads()
            _, data = fl.pushdown(small.network(), PHOTOS, split="none", **options)
            x, _ = next(iter(data))
            self.assertEqual(list(uploads.glob("model.*")), [])
        other = fl.pushdown(small.network(), PHOTOS, split="blocks.1", **options)[1]
        torch.testing.assert_close(x, next(iter(other))[0], rtol=1e-4, atol=1e-4)

    def test_without_hosts_one_is_started_and_the_split_planned(self):
        suffix, data = small.divided(PHOTOS, split="auto")
        losses, keys = small.train(suffix, data)
        self.assertEqual(len(losses), len(data))
        self.assertEqual(sum(map(len, keys)), len(data.samples))


if __name__ == "__main__":
    unittest.main()
