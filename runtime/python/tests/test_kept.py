"""Features cached on this machine's disk."""

import multiprocessing
import os
import pathlib
import unittest
from unittest import mock

import bundled
import frostline
import numpy

client = frostline.Client()


def keep(folder, keys):
    """Cache features in a worker process."""
    os.environ["FROSTLINE_FEATURE_FOLDER"] = str(folder)
    client.extract(bundled.PHOTOS, bundled.MODEL, bundled.CUT, keys=keys, batch=3, feature_cache="1GiB").read_all()


class Kept(bundled.Case):
    def setUp(self):
        super().setUp()
        environment = mock.patch.dict(os.environ, {"FROSTLINE_FEATURE_FOLDER": str(self.folder / "features")})
        environment.start()
        self.addCleanup(environment.stop)

    def rows(self, root=bundled.PHOTOS, **options):
        """Return (keys, rows) in the requested order."""
        options = {"feature_cache": "1GiB", "batch": 50} | options
        table = client.extract(root, bundled.MODEL, bundled.CUT, **options).read_all()
        rows = [batch["activation"].to_numpy_ndarray() for batch in table.to_batches() if len(batch)]
        return table["key"].to_pylist(), numpy.concatenate(rows)

    def store(self):
        (store,) = filter(pathlib.Path.is_dir, (self.folder / "features").iterdir())
        return store

    def test_rows_are_made_once_and_are_the_same_in_any_order(self):
        objects = client.objects(bundled.PHOTOS)
        _, some = self.rows(keys=objects[:60])
        with bundled.computed() as made:
            keys, rows = self.rows()
        self.assertEqual(made, [each.key for each in objects[60:]])
        numpy.testing.assert_array_equal(rows[:60], some)
        with bundled.computed() as made:
            turned, again = self.rows(keys=objects[::-1], batch=7)
        self.assertEqual(made, [])
        self.assertEqual(turned, keys[::-1])
        numpy.testing.assert_array_equal(again[::-1], rows)

    def test_rows_are_those_of_the_command_and_the_other_way_round(self):
        # The recipe in the metadata of the network, which the command uses.
        told_guest = frostline.pixels(144, 128)
        words = {"freeze": bundled.CUT, "epochs": 1, "batch": 32, "lr": 0.05, "encoding": "f32", "feature_cache": "1GiB"}

        def train(name):
            events, folder = [], self.folder / name
            client.train(bundled.MODEL, bundled.PHOTOS, out=folder / "tuned.onnx", runs=folder / "runs", on_event=events.append, **words)
            return next(event for event in events if event["event"] == "features")

        (self.folder / "first").mkdir()
        keys, rows = self.rows(parameters=told_guest)
        told = train("first")
        self.assertEqual((told["kept"], told["rows"]), (len(keys), len(keys)))
        os.environ["FROSTLINE_FEATURE_FOLDER"] = str(self.folder / "others")
        (self.folder / "second").mkdir()
        self.assertEqual(train("second")["kept"], 0)
        with bundled.computed() as made:
            again, found = self.rows(parameters=told_guest)
        self.assertEqual((made, again), ([], keys))
        numpy.testing.assert_allclose(found, rows, atol=1e-4)

    def test_features_of_different_settings_are_separate(self):
        objects = client.objects(bundled.PHOTOS)[:4]
        self.rows(keys=objects)
        for options in ({"encoding": "f16"}, {"parameters": frostline.pixels(140, 128)}, {"fixed_batch": 2}):
            with bundled.computed() as made:
                self.rows(keys=objects, **options)
            self.assertEqual(len(made), 4, options)

    def test_a_broken_row_is_made_again(self):
        objects = client.objects(bundled.PHOTOS)[:5]
        _, rows = self.rows(keys=objects)
        with open(self.store() / "rows", "r+b") as file:
            file.seek(4 * 128 * 2)
            (byte,) = file.read(1)
            file.seek(4 * 128 * 2)
            file.write(bytes([byte ^ 1]))
        with bundled.computed() as made, self.assertLogs("frostline") as log:
            _, again = self.rows(keys=objects)
        self.assertEqual(len(made), 1)
        self.assertIn("1 cached features", log.output[0])
        numpy.testing.assert_allclose(again, rows, atol=1e-4)
        with bundled.computed() as made:
            self.rows(keys=objects)
        self.assertEqual(made, [])

    def test_another_version_of_an_image_is_another_row(self):
        root = self.few(each=2)
        self.rows(root)
        (root / "brick/00.jpg").write_bytes((root / "stars/00.jpg").read_bytes() + b" ")
        (root / "stars/broken.jpg").write_bytes(b"no image")
        with bundled.computed() as made:
            keys, _ = self.rows(root, on_bad_sample="skip")
        self.assertEqual(made, ["brick/00.jpg", "stars/broken.jpg"])
        self.assertEqual(keys, ["brick/00.jpg", "brick/01.jpg", "stars/00.jpg", "stars/01.jpg"])

    def test_processes_keep_at_once(self):
        keys = [each for each in client.objects(bundled.PHOTOS)[:60]]
        for method in ("fork", "spawn"):
            folder = self.folder / method
            context = multiprocessing.get_context(method)
            workers = [context.Process(target=keep, args=(folder, keys[part::2])) for part in range(2)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join(120)
                self.assertEqual(worker.exitcode, 0)
            os.environ["FROSTLINE_FEATURE_FOLDER"] = str(folder)
            with bundled.computed() as made:
                self.rows(keys=keys)
            self.assertEqual(made, [])

    def test_nothing_is_cached_if_the_cache_is_off(self):
        objects = client.objects(bundled.PHOTOS)[:2]
        self.rows(keys=objects, feature_cache="off")
        with mock.patch.dict(os.environ, {"FROSTLINE_FEATURE_CACHE": "off"}):
            self.rows(keys=objects, feature_cache=None)
        self.assertFalse((self.folder / "features").exists())
        with self.assertRaises(frostline.SettingsError):
            self.rows(keys=objects, feature_cache="4GB")

    def test_cache_failures_do_not_affect_results(self):
        objects = client.objects(bundled.PHOTOS)[:4]
        (self.folder / "features").write_text("no folder")
        with self.assertLogs("frostline") as log:
            keys, _ = self.rows(keys=objects)
        self.assertEqual(len(keys), 4)
        self.assertIn("not cached", log.output[0])
        (self.folder / "features").unlink()
        with self.assertLogs("frostline") as log:
            self.rows(keys=objects, feature_cache=1000)
        self.assertIn("1000 bytes", log.output[0])


if __name__ == "__main__":
    unittest.main()
