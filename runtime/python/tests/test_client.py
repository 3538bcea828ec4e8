"""Hosts, uploads and activations, tested with the embedded host."""

import json
import multiprocessing
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import unittest

import bundled
import frostline
import numpy
from frostline import _native

client = frostline.Client()


def stream(data=bundled.PHOTOS, **options):
    model = client.push_model(bundled.MODEL)
    guest = client.push_guest()
    pins = {"model": (model.name, model.sha256), "guest": (guest.name, guest.sha256)}
    return _native.Stream(client.config(data) | pins | options)


def first(rows, keys, queue):
    """Fetch one batch in a worker process."""
    try:
        queue.put(next(rows.rows(keys, bundled.CUT, 4))["data"])
    except BaseException as error:  # Report the error in the parent.
        queue.put(repr(error))


class Hosts(bundled.Case):
    def test_samples_are_listed_with_class_and_part(self):
        objects = client.objects(bundled.PHOTOS)
        self.assertEqual(len(objects), 288)
        self.assertEqual([each.key for each in objects], sorted(each.key for each in objects))
        photo = objects[0]
        self.assertEqual((photo.key, photo.label, photo.part), ("train/brick/00.jpg", "brick", "train"))
        self.assertEqual(photo.size, (bundled.PHOTOS / photo.key).stat().st_size)

    def test_one_name_stands_for_all_of_its_hosts(self):
        reached = client.config(bundled.PHOTOS)
        (url,) = reached["hosts"]
        named = frostline.Client(f"dns+http://localhost:{url.rpartition(':')[2]}", token_file=reached["token_file"])
        self.assertEqual(named.objects(bundled.PHOTOS), client.objects(bundled.PHOTOS))
        reader = named.extract(bundled.PHOTOS, bundled.MODEL, bundled.CUT)
        self.assertEqual(reader.read_all(), client.extract(bundled.PHOTOS, bundled.MODEL, bundled.CUT).read_all())
        with self.assertRaises(frostline.SettingsError):
            frostline.Client(["dns://store:8443", url], "token").objects(bundled.PHOTOS)

    def test_nothing_is_sent_twice(self):
        client.push_model(bundled.MODEL)
        again = client.push_model(bundled.MODEL.read_bytes(), name="mine")
        self.assertEqual((again.name, again.skipped), ("mine", False))
        self.assertTrue(client.push_model(bundled.MODEL).skipped)
        (load,) = client.load().values()
        self.assertGreaterEqual(load["lanes"], 1)

    def test_errors_have_classes(self):
        data = bundled.PHOTOS
        reached = client.config(data)
        url, token = reached["hosts"], reached["token_file"]
        with self.assertRaises(frostline.NotFound) as missing:
            frostline.Client(url, token_file=token).objects("/etc")
        self.assertEqual((missing.exception.kind, missing.exception.status), ("not-found", 404))
        with self.assertRaises(frostline.Denied):
            frostline.Client(url, "wrong").objects(data)
        with self.assertRaises(frostline.Refused):
            client.push_model(b"no network")
        with self.assertRaises(frostline.SettingsError):
            frostline.Client("nonsense", "token").objects(data)
        with self.assertRaises(frostline.SettingsError) as cut:
            stream().shape("nope")
        self.assertIn("features", str(cut.exception))
        with self.assertRaises(frostline.SettingsError):
            stream(unknown=1)
        with self.assertRaises(frostline.Error):
            frostline.Client().objects(self.folder / "absent")

    def test_a_token_is_shown_nowhere(self):
        secret = frostline.Client("http://127.0.0.1:9", "s3cret")
        with self.assertRaises(frostline.Unreachable) as error:
            secret.objects("/data")
        self.assertNotIn("s3cret", repr(secret) + str(error.exception))
        for wrong in ({"hosts": "http://a:s3cret@b"}, {"hosts": ["http://a"], "embedded": "s3cret, expected x"}):
            with self.assertRaises(frostline.SettingsError) as error:
                _native.Hosts(wrong)
            self.assertNotIn("s3cret", str(error.exception))
            self.assertIn(next(reversed(wrong)), str(error.exception))

    def test_the_interpreter_goes_on_while_something_is_waited_for(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            seen = threading.Event()

            def hang_up():
                # Reached only if the other thread waits without the interpreter's lock. Otherwise the test would need minutes.
                connection, _ = server.accept()
                seen.set()
                connection.close()

            threading.Thread(target=hang_up, daemon=True).start()
            url = f"http://127.0.0.1:{server.getsockname()[1]}"
            (answer,) = frostline.Client(url, "token").load().values()
            self.assertTrue(seen.is_set())
            self.assertIn("error", answer)

    def test_ctrl_c_ends_a_wait(self):
        # Background jobs of a shell ignore SIGINT, and children inherit this.
        script = """
import signal, socket, sys, frostline
signal.signal(signal.SIGINT, signal.default_int_handler)
server = socket.create_server(("127.0.0.1", 0))
print("ready", flush=True)
frostline.Client(f"http://127.0.0.1:{server.getsockname()[1]}", "token").load()
"""
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as waiting:
            self.assertEqual(waiting.stdout.readline(), b"ready\n")
            waiting.send_signal(signal.SIGINT)
            _, said = waiting.communicate()
        self.assertIn(b"KeyboardInterrupt", said)


class Rows(bundled.Case):
    def test_rows_are_ordered_and_writable(self):
        objects, rows = client.objects(bundled.PHOTOS), stream()
        self.assertEqual(rows.shape(bundled.CUT), [128])
        one_by_one = rows.rows(objects[:5], bundled.CUT, 1)
        self.assertEqual(len(one_by_one), 5)
        expected = numpy.concatenate([batch["data"] for batch in one_by_one])
        batches = list(rows.rows(objects, bundled.CUT, 50))
        self.assertEqual([len(batch["keys"]) for batch in batches], [50] * 5 + [38])
        self.assertEqual([key for batch in batches for key in batch["keys"]], [each.key for each in objects])
        self.assertEqual([place for batch in batches for place in batch["index"]], list(range(288)))
        data = batches[0]["data"]
        self.assertEqual((data.dtype, data.shape), (numpy.float32, (50, 128)))
        self.assertTrue(data.flags.writeable and data.flags.c_contiguous)
        numpy.testing.assert_allclose(data[:5], expected, atol=1e-4)
        data[:] = 0

    def test_objects_and_pixels_become_the_same_input(self):
        objects, rows = client.objects(bundled.PHOTOS)[:3], stream()
        here, there = (next(rows.rows(objects, cut, 3))["data"] for cut in ("none", "input"))
        self.assertEqual(here.shape, (3, 3, 128, 128))
        numpy.testing.assert_array_equal(here, there)

    def test_bad_samples_are_named_and_leave_a_gap(self):
        root = self.few()
        (root / "brick/broken.jpg").write_bytes(b"no image")
        keys = [each.key for each in client.objects(root)]
        (batch,) = stream(root).rows(keys, bundled.CUT, 100)
        ((key, reason),) = batch["failed"]
        self.assertEqual(key, "brick/broken.jpg")
        self.assertTrue(reason)
        self.assertEqual(len(batch["data"]), 8)
        self.assertNotIn(keys.index(key), batch["index"])
        (nothing,) = stream(root).rows(["absent.jpg"], bundled.CUT, 4)
        self.assertEqual(nothing["data"].shape, (0, 128))

    def test_views_augment_pixels(self):
        objects, rows = client.objects(bundled.PHOTOS)[:2], stream()
        views = [{"augmentation": {"hflip": 1.0}, "seed": 0, "number": 1}, None]
        flipped, plain = (next(rows.rows(objects, "input", 2, view=view))["data"] for view in views)
        numpy.testing.assert_array_equal(flipped, plain[..., ::-1])

    def test_streams_serve_spawned_workers(self):
        self.workers("spawn")

    def test_streams_serve_forked_workers(self):
        self.workers("fork")

    def workers(self, method):
        keys = [(each.key, each.etag) for each in client.objects(bundled.PHOTOS)[:4]]
        rows = stream()
        under_way = rows.rows(keys, bundled.CUT, 1)
        expected = next(rows.rows(keys, bundled.CUT, 4))["data"]
        next(under_way)
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        workers = [context.Process(target=first, args=(rows, keys, queue)) for _ in range(2)]
        for worker in workers:
            worker.start()
        for got in [queue.get(timeout=600) for _ in workers]:
            self.assertIsInstance(got, numpy.ndarray, got)
            numpy.testing.assert_allclose(got, expected, atol=1e-4)
        for worker in workers:
            worker.join(600)
        self.assertEqual(len(list(under_way)), 3)

    def test_a_pass_belongs_to_its_process(self):
        keys = ["train/brick/00.jpg"]
        rows = stream().rows(keys, bundled.CUT, 1)
        child = os.fork()
        if child == 0:
            try:
                next(rows)
            except frostline.Error:
                os._exit(7)
            os._exit(1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 7)
        self.assertEqual(len(list(rows)), 1)

    def test_settings_are_all_that_is_pickled(self):
        again = pickle.loads(pickle.dumps(client))
        self.assertEqual(len(again.objects(bundled.PHOTOS)), 288)
        rows = pickle.loads(pickle.dumps(stream()))
        self.assertEqual(rows.shape(bundled.CUT), [128])


class Extract(bundled.Case):
    def test_a_reader_has_all_rows(self):
        table = client.extract(bundled.PHOTOS, bundled.MODEL, bundled.CUT, batch=100).read_all()
        self.assertEqual(table.num_rows, 288)
        self.assertEqual(table.column_names, ["key", "split", "label", "activation"])
        self.assertEqual(table["split"][0].as_py(), "train")
        self.assertEqual(table["label"][0].as_py(), "brick")
        self.assertEqual(table["activation"].null_count, 0)
        values = table["activation"].chunk(0).to_numpy_ndarray()
        # The metadata of the bundled network contain a recipe.
        _, recipe = _native.layers(bundled.MODEL, "input")
        self.assertEqual(json.loads(recipe)["resize"], 144)
        (batch,) = stream(parameters=recipe).rows(table["key"].to_pylist()[:100], bundled.CUT, 100)
        numpy.testing.assert_allclose(values, batch["data"], atol=1e-4)

    def test_a_module_names_a_cut(self):
        reader = client.extract(bundled.PHOTOS, bundled.MODEL, "mix.0", keys=["train/brick/00.jpg"])
        shape = reader.schema.field("activation").type.shape
        self.assertEqual(reader.read_all().num_rows, 1)
        self.assertEqual(len(shape), 3)

    def test_bad_samples_fail_or_are_skipped(self):
        root = self.few()
        (root / "stars/broken.jpg").write_bytes(b"no image")
        with self.assertRaises(frostline.BadSample) as bad:
            client.extract(root, bundled.MODEL, bundled.CUT).read_all()
        self.assertEqual(bad.exception.key, "stars/broken.jpg")
        table = client.extract(root, bundled.MODEL, bundled.CUT, on_bad_sample="skip", batch=3).read_all()
        self.assertEqual(table.num_rows, 8)


if __name__ == "__main__":
    unittest.main()
