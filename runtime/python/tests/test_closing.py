"""What clients and data sets hold on this machine, and release when they are closed or collected."""

import multiprocessing
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import time
import unittest

import bundled
import frostline
import numpy
from frostline._source import Source

KEYS = [f"train/brick/0{number}.jpg" for number in range(4)]
DEADLINE = 600


def source(client, name=None):
    """Return a source like that of a data set, with the uploads of `client`."""
    model, guest = client.push_model(bundled.MODEL, name), client.push_guest()
    pins = {"model": (model.name, model.sha256), "guest": (guest.name, guest.sha256), "model_file": str(bundled.MODEL)}
    return Source(client.config(bundled.PHOTOS) | pins, bundled.CUT)


def rows(made):
    ((data, *_),) = made.rows([(key, None, 0) for key in KEYS], len(KEYS))
    return data


def late(made, ready, closed, results):
    """Read rows in a worker after its parent has closed all of its handles."""
    ready.set()
    closed.wait(DEADLINE)
    try:
        results.put(rows(made))
    except BaseException as error:  # Report the error in the parent.
        results.put(repr(error))
    made.close()


def state(client):
    """Return the folder of the embedded host that `client` uses."""
    return pathlib.Path(client.config(bundled.PHOTOS)["token_file"]).parent


def models(folder):
    """Return the names of the models on the embedded host with this state."""
    return sorted(path.name.partition(".")[2] for path in (folder.parent / "uploads").glob("model.*"))


def hosts():
    """Return the process IDs of the embedded hosts that this process started."""
    children = pathlib.Path(f"/proc/{os.getpid()}/task").glob("*/children")
    known = [child for file in children for child in file.read_text().split()]
    return [child for child in known if b"serve" in pathlib.Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")]


class Closing(bundled.Case):
    def wait_until(self, done):
        deadline = time.monotonic() + DEADLINE
        while not done():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)

    def client(self):
        made = frostline.Client()
        self.addCleanup(made.close)
        return made

    def test_one_host_serves_all_data_roots(self):
        roots = [self.folder / str(number) for number in range(12)]
        photo = (bundled.PHOTOS / KEYS[0]).read_bytes()
        for root in roots:
            (root / "brick").mkdir(parents=True)
            (root / "brick/00.jpg").write_bytes(photo)
        clients = [self.client() for _ in roots]
        for root, client in zip(roots, clients):
            self.assertEqual([each.key for each in client.objects(root)], ["brick/00.jpg"])
        self.assertEqual(len({state(client) for client in clients}), 1)
        self.assertEqual(len(hosts()), 1)
        for refused in ("/etc", self.folder / "absent"):
            with self.assertRaises(frostline.Error) as error:
                clients[0].objects(refused)
            self.assertIn(str(refused), str(error.exception))

    def test_a_closed_client_refuses_calls_and_ends_the_host(self):
        with frostline.Client() as client:
            folder = state(client)
            copy = pickle.loads(pickle.dumps(client))
        calls = {
            "objects": (bundled.PHOTOS,),
            "config": (bundled.PHOTOS,),
            "extract": (bundled.PHOTOS, bundled.MODEL, bundled.CUT),
            "load": (),
            "plan": (bundled.MODEL, bundled.PHOTOS),
            "push_guest": (),
            "push_model": (bundled.MODEL,),
            "remove_model": ("any",),
            "train": (bundled.MODEL, bundled.PHOTOS),
            "__enter__": (),
        }
        for closed in (client, pickle.loads(pickle.dumps(client))):
            for name, arguments in calls.items():
                with self.subTest(name), self.assertRaisesRegex(frostline.Error, "this client is closed"):
                    getattr(closed, name)(*arguments)
        client.close()
        self.wait_until(lambda: not folder.parent.exists())
        self.wait_until(lambda: not hosts())
        # A copy from before is another client.
        self.assertEqual(len(copy.objects(bundled.PHOTOS)), 288)
        copy.close()

    def test_a_host_exits_with_its_last_handle(self):
        first, second = self.client(), self.client()
        folder = state(first)
        reader = first.extract(bundled.PHOTOS, bundled.MODEL, bundled.CUT)
        first.close()
        self.assertEqual(state(second), folder)
        second.close()
        self.assertEqual(reader.read_all().num_rows, 288)
        del reader
        self.wait_until(lambda: not folder.parent.exists())

    def test_uploads_are_removed_with_their_last_handle(self):
        other, first, second = self.client(), self.client(), self.client()
        folder = state(other)
        blobs, prepared = folder / "blobs/models", lambda: list((folder / "stages").glob("*/model.onnx"))
        made = source(first, "mine")
        second.push_model(bundled.MODEL, "mine")
        self.assertEqual(rows(made).shape, (4, 128))
        self.wait_until(prepared)
        for handle in (first, second):
            handle.close()
            self.assertEqual(models(folder), ["mine"])
        made.close()
        self.assertEqual(models(folder), [])
        self.assertEqual([path for path in blobs.rglob("*") if path.is_file()], [])
        self.wait_until(lambda: not prepared())
        with self.assertRaisesRegex(frostline.Error, "this data set is closed"):
            rows(made)
        # Collected handles release the same.
        made = source(frostline.Client(), "collected")
        self.assertEqual(models(folder), ["collected"])
        del made
        self.assertEqual(models(folder), [])

    def test_a_pass_in_progress_ends_when_its_source_is_closed(self):
        made = source(self.client())
        batches = made.rows([(key, None, 0) for key in KEYS], 1)
        next(batches)
        made.close()
        with self.assertRaisesRegex(frostline.Error, "this data set is closed"):
            list(batches)

    def test_uploads_are_removed_by_name(self):
        client = self.client()
        made = source(client, "removed")
        expected, copy = rows(made), pickle.loads(pickle.dumps(made))
        self.assertTrue(client.remove_model("removed"))
        self.assertFalse(client.remove_model("removed"))
        with self.assertRaises(frostline.NotFound):
            rows(made)
        # New connections upload the file again.
        numpy.testing.assert_allclose(rows(copy), expected, atol=1e-4)
        guest = client.push_guest(name="extra")
        self.assertTrue(client.remove_guest(guest.name))
        self.assertFalse(client.remove_guest(guest.name))

    def test_closing_does_not_affect_other_processes(self):
        for method in ("fork", "spawn"):
            with self.subTest(method):
                client = self.client()
                made, folder = source(client, method), state(client)
                expected = rows(made)
                context = multiprocessing.get_context(method)
                ready, closed, results = context.Event(), context.Event(), context.Queue()
                worker = context.Process(target=late, args=(made, ready, closed, results))
                worker.start()
                self.assertTrue(ready.wait(DEADLINE))
                made.close()
                client.close()
                closed.set()
                found = results.get(timeout=DEADLINE)
                self.assertIsInstance(found, numpy.ndarray, found)
                numpy.testing.assert_allclose(found, expected, atol=1e-4)
                worker.join(DEADLINE)
                self.wait_until(lambda folder=folder: not folder.parent.exists())

    def test_a_forked_client_uses_the_host_of_its_parent(self):
        client = self.client()
        folder = state(client)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with client:
                    code = 7 if state(client) == folder and state(frostline.Client()) == folder else 2
            finally:
                os._exit(code)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 7)
        self.assertEqual(len(client.objects(bundled.PHOTOS)), 288)

    def test_uploads_of_killed_processes_are_removed(self):
        client = self.client()
        folder = state(client)
        script = """
import os, pickle, signal, sys
held = pickle.load(sys.stdin.buffer)
print("held", flush=True)
signal.pause()
"""
        made = source(client, "killed")
        words, paths = [sys.executable, "-c", script], os.pathsep.join(sys.path)
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": paths}) as process:
            process.stdin.write(pickle.dumps(made))
            process.stdin.close()
            self.assertEqual(process.stdout.readline(), b"held\n")
            made.close()
            client.close()
            other = self.client()
            self.assertEqual(state(other), folder)
            self.assertEqual(models(folder), ["killed"])
            process.send_signal(signal.SIGKILL)
        source(other, "next").close()
        self.assertEqual(models(folder), ["next"])

    def test_a_host_that_was_killed_is_replaced(self):
        client = self.client()
        folder = state(client)
        (host,) = hosts()
        os.kill(int(host), signal.SIGKILL)
        self.wait_until(lambda: not folder.parent.exists())
        self.assertEqual(len(client.objects(bundled.PHOTOS)), 288)
        self.assertNotEqual(state(client), folder)


if __name__ == "__main__":
    unittest.main()
