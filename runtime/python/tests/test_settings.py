"""Settings of `pushdown`: clients, views, unlabeled images, progress, and operators that hosts refuse."""

import contextlib
import io
import logging
import os
import shutil
import tempfile
import unittest
import warnings
from unittest import mock

import torch

import bundled
import frostline
import frostline.torch as fl
import local_hosts
import small


class Recurrent(torch.nn.Module):
    """A network with an operator in its frozen layers that hosts refuse."""

    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 4, 8, stride=8)
        self.rows = torch.nn.LSTM(4 * (small.SIZE // 8), 8, batch_first=True)
        self.head = torch.nn.Linear(8, 8)

    def forward(self, x):
        rows, _ = self.rows(self.stem(x).permute(0, 2, 1, 3).flatten(2))
        return self.head(rows[:, -1])


def pushdown(data=bundled.PHOTOS, **options):
    return fl.pushdown(small.network(), data, **{"freeze": "blocks.1", "size": small.SIZE, "batch": 16} | options)


class Settings(bundled.Case):
    @classmethod
    def setUpClass(cls):
        # Most tests divide the same network.
        exports = tempfile.TemporaryDirectory()
        cls.addClassCleanup(exports.cleanup)
        cls.exports = exports.name

    def setUp(self):
        super().setUp()
        warnings.simplefilter("ignore")
        environment = mock.patch.dict(os.environ, {"FROSTLINE_EXPORT_CACHE": self.exports})
        environment.start()
        self.addCleanup(environment.stop)

    def test_views_repeat_and_are_cached(self):
        root = self.few(each=4)
        with mock.patch.dict(os.environ, {"FROSTLINE_FEATURE_FOLDER": str(self.folder / "features")}):
            options = {"augment": fl.Augmentation(hflip=0.5, random_resized_crop=fl.RandomResizedCrop()), "validation": 0.25}
            _, data = pushdown(root, views=2, feature_cache="1GiB", sampling=fl.Sampling(shuffle=False), **options)
            with bundled.computed() as made:
                epochs = [torch.cat([x for x, _ in data]) for _ in range(4)]
            self.assertEqual(len(made), 2 * len(data.samples))
            self.assertFalse(torch.allclose(epochs[0], epochs[1]))
            for first, second in ((0, 2), (1, 3)):
                torch.testing.assert_close(epochs[first], epochs[second])
            # Epochs have the same augmentations as without a limit, until they repeat.
            _, unlimited = pushdown(root, feature_cache="1GiB", sampling=fl.Sampling(shuffle=False), **options)
            torch.testing.assert_close(torch.cat([x for x, _ in unlimited]), epochs[0])
        with self.assertRaisesRegex(ValueError, "views=2 repeats augmentations, but augment= is not set"):
            pushdown(root, views=2)

    def unlabeled(self):
        """Create a data root without folders."""
        root = self.few(each=4)
        for folder in list(root.iterdir()):
            for photo in folder.iterdir():
                shutil.move(photo, root / f"{folder.name}-{photo.name}")
            folder.rmdir()
        return root

    def test_images_without_labels_have_no_classes(self):
        root = self.unlabeled()
        _, data = pushdown(root, task="none", columns=["key", "index"])
        (x, y, columns), = data
        self.assertEqual((x.shape[0], y.shape), (8, (8, 0)))
        self.assertEqual([data.samples.take([number])[0][0] for number in columns["index"]], columns["key"])
        self.assertEqual(data.classes, [])
        _, divided = pushdown(root, task="none", validation=0.25)
        self.assertEqual((len(divided.samples), len(divided.validation.samples)), (6, 2))
        keys = [key for part in (divided, divided.validation) for key, *_ in part.samples.take(range(len(part.samples)))]
        self.assertEqual(sorted(keys), sorted(columns["key"]))
        for wrong, why in (({"labels": "labels.csv"}, "leave out labels="), ({"validation": 1.5}, "less than 1")):
            with self.assertRaisesRegex(frostline.SettingsError, why):
                pushdown(root, task="none", **wrong)

    def test_a_split_is_planned_for_images_without_labels(self):
        root = self.unlabeled()
        host = local_hosts.Host(self.folder, "store", data=root)
        self.addCleanup(host.end)
        _, data = pushdown(root, hosts=[host.url], token_file=host.token_file, task="none", batch=4)
        self.assertEqual(sum(len(x) for x, _ in data), 8)

    def test_a_client_is_used_and_stays_open(self):
        with frostline.Client() as client:
            _, data = pushdown(client=client)
            data.close()
            self.assertTrue(client.objects(bundled.PHOTOS))
            for wrong, error in (({"hosts": ["http://127.0.0.1:9"]}, ValueError), ({"device": "cuda:0"}, ValueError), ({"client": "store"}, TypeError)):
                with self.assertRaises(error):
                    pushdown(**{"client": client} | wrong)
        with self.assertRaisesRegex(frostline.Error, "this client is closed"):
            pushdown(client=client)

    def test_the_device_is_that_of_the_host_on_this_machine(self):
        with self.assertRaisesRegex(frostline.Error, "tpu"):
            pushdown(device="tpu:0")

    def test_layers_that_the_host_on_this_machine_refuses_run_in_this_process(self):
        model = Recurrent().eval()
        options = {"freeze": "rows", "size": small.SIZE, "batch": 8}
        with self.assertRaises(frostline.Refused) as refused:
            fl.pushdown(model, bundled.PHOTOS, split="rows", **options)
        with self.assertLogs("frostline", "WARNING") as logged:
            suffix, data = fl.pushdown(model, bundled.PHOTOS, columns=["key"], **options)
        self.assertIn(str(refused.exception), "".join(logged.output))
        self.assertEqual(data.source.split, "none")
        x, _, columns = next(iter(data))
        _, pixels = fl.pushdown(model, bundled.PHOTOS, freeze="none", size=small.SIZE, batch=8, columns=["key"])
        images, _, same = next(iter(pixels))
        self.assertEqual(columns, same)
        torch.testing.assert_close(suffix(x), model(images), rtol=1e-4, atol=1e-4)

    def test_failures_of_commands_name_arguments_of_pushdown(self):
        whole = "set prefix_precision='auto'; or set allow_imprecise=True"
        for hint, expected in (
            (whole, "too imprecise (pass prefix=Prefix(precision='auto'); or pass prefix=Prefix(allow_imprecise=True))"),
            ("run frostline model show /tmp/network.onnx", "too imprecise"),
            ("check that it is running", "too imprecise (check that it is running)"),
            (None, "too imprecise"),
        ):
            failed = mock.patch.object(frostline.Client, "quantize", side_effect=frostline.CommandError("too imprecise", hint=hint))
            with failed, self.assertRaises(frostline.CommandError) as raised:
                pushdown(prefix=fl.Prefix(precision="int8"))
            self.assertEqual(str(raised.exception), expected)

    def test_progress_is_shown_on_demand_and_logged_in_few_lines(self):
        for shown in (True, False):
            with contextlib.redirect_stderr(io.StringIO()) as output:
                _, data = pushdown(progress=shown)
                for _ in range(2):
                    self.assertEqual(sum(len(x) for x, _ in data), len(data.samples))
            for what in ("exporting Network", "uploading the frozen layers", "comparing the activations", "epoch 1:"):
                self.assertEqual(what in output.getvalue(), shown, what)
            self.assertNotIn("epoch 2:", output.getvalue())
        with self.assertLogs(level=logging.INFO) as logged:
            pushdown()
        self.assertEqual({record.name for record in logged.records}, {"frostline"})
        self.assertEqual(len(logged.records), 3)


if __name__ == "__main__":
    unittest.main()
