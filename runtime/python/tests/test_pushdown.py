"""Comparison of the activations that hosts return with PyTorch's, and hints for settings of the data."""

import contextlib
import copy
import os
import shutil
import unittest
import warnings
from unittest import mock

import torch

import bundled
import frostline
import frostline.torch as fl
import networks
import small
from frostline.torch import _network as network
from frostline.torch._divide import freeze_points, suffix_of
from frostline.torch._frozen import FrozenLayers

EXAMPLE = torch.randn(2, 3, small.SIZE, small.SIZE)
EXPORT = network.export


def setUpModule():
    # Several threads take longer for networks of this size.
    torch.set_num_threads(1)
    # Tests replace the exporter, which a cached export would not call.
    os.environ["FROSTLINE_EXPORT_CACHE"] = "off"


class Hosted(bundled.Case):
    """Tests with one host on this machine, which runs until the client is closed."""

    @classmethod
    def setUpClass(cls):
        cls.client = frostline.Client()
        cls.addClassCleanup(cls.client.close)
        cls.client.config(bundled.PHOTOS)


class Data(Hosted):
    def divided(self, data, **options):
        return small.divided(data, client=self.client, **options)

    def hint(self, data, **options):
        """Return the advice of the error for these settings."""
        with self.assertRaises(frostline.SettingsError) as failed:
            self.divided(data, **options)
        return str(failed.exception).rpartition("; ")[2]

    def test_hints_name_parameters_that_help(self):
        # All networks are the same, so only the first is exported.
        cached = mock.patch.dict(os.environ, {"FROSTLINE_EXPORT_CACHE": str(self.folder / "exports")})
        cached.start()
        self.addCleanup(cached.stop)
        undivided = self.few()
        self.assertEqual(self.hint(undivided), "set validation, for example to 0.2")
        self.divided(undivided, validation=0.2)
        self.assertEqual(self.hint(bundled.PHOTOS, validation=0.2), "leave out validation")
        self.divided(bundled.PHOTOS)
        photos = sorted(path.relative_to(undivided) for path in undivided.rglob("*.*"))
        for task, values in ("labels", ("1,0", "0,1")), ("numbers", ("1.5,0", "0,2.5")):
            table = self.folder / "table.csv"
            lines = [f"{photo},{values[number % 2]}" for number, photo in enumerate(photos)]
            table.write_text("\n".join(["file,first,second", *lines]))
            self.assertEqual(self.hint(undivided, labels=table, validation=0.2), f"set task to '{task}'")
            self.divided(undivided, labels=table, validation=0.2, task=task)


class Comparing(Hosted):
    """Comparison of the activations that hosts return with PyTorch's."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = small.network()
        torch.nn.init.zeros_(cls.model.head.weight)
        cls.changed = copy.deepcopy(cls.model)
        cls.changed.blocks[0].convolution.weight.data *= 1.5
        cls.exports = {model: EXPORT(model, EXAMPLE) for model in (cls.model, cls.changed)}

    def setUp(self):
        super().setUp()
        warnings.simplefilter("ignore")
        export = mock.patch.object(network, "export", self.export)
        export.start()
        self.addCleanup(export.stop)

    def export(self, model, example, fuse=True):
        """Export a model once for all tests."""
        if model not in self.exports:
            self.exports[model] = EXPORT(model, example, fuse)
        return copy.deepcopy(self.exports[model])

    def pushdown(self, data=bundled.PHOTOS, model=None, **settings):
        settings = {"freeze": "blocks.1", "size": small.SIZE, "split": "blocks.1", "client": self.client} | settings
        return fl.pushdown(model or self.model, data, **settings)

    def extract(self, data=bundled.PHOTOS, model=None):
        return fl.extract(model or self.model, "blocks.1", data, size=small.SIZE, client=self.client)

    def computing_other_layers(self):
        """Replace the layers that hosts compute by those of another model."""
        exported = self.exports[self.changed]
        other = network.piece(exported, network.INPUT, network.cut(exported, "blocks.1"))
        upload = FrozenLayers._upload

        def uploaded(frozen, *arguments):
            with mock.patch.object(frozen, "layers", other):
                return upload(frozen, *arguments)

        return mock.patch.object(FrozenLayers, "_upload", uploaded)

    @contextlib.contextmanager
    def exporting_another_model(self):
        """Replace the exported model. The comparison of noise is skipped, because it would fail first."""
        export = lambda *_, **__: copy.deepcopy(self.exports[self.changed])
        with mock.patch.object(network, "check", lambda *_: (16, 11, 11)), mock.patch.object(network, "export", export):
            yield

    def test_activations_of_hosts_are_compared_even_if_the_head_is_zero(self):
        self.pushdown()
        self.extract()
        with self.computing_other_layers():
            # The exported layers are right, so the host computes them wrongly.
            why = "activations of '.*/.*jpg', '.*/.*jpg' differ from PyTorch's at 'blocks.1': off by .*without optimizations agrees with PyTorch"
            with self.assertRaisesRegex(ValueError, why):
                self.pushdown()
            with self.assertRaisesRegex(ValueError, why):
                self.extract()
            # This process computes the layers of these splits.
            for split in ("none", "input"):
                self.pushdown(split=split)

    def test_exported_layers_are_compared_for_all_settings(self):
        guest = bundled.REPOSITORY / "runtime/python/guest/prefix/prefix.wasm"
        guided = {"prefix": fl.Prefix(guest=guest, parameters=frostline.pixels(small.SIZE, small.SIZE))}
        splits = [{"split": split} for split in ("none", "input", "stem", "blocks.1")]
        for settings in (*splits, {"encoding": "int8"}, {"prefix": fl.Prefix(precision="int8")}, guided):
            with self.subTest(**settings):
                self.pushdown(**settings)
                with self.exporting_another_model(), self.assertRaisesRegex(ValueError, "activations of .* differ .*the export differs"):
                    self.pushdown(**settings)

    def test_layers_that_optimizations_change_are_refused(self):
        # ONNX Runtime 1.31.1 replaces padding with zeros by the padding of MaxPool, which has no lower bound.
        model = small.network()
        model.stem.append(torch.nn.ConstantPad2d(1, 0.0))
        model.stem.append(torch.nn.MaxPool2d(3, stride=1))
        model.stem[1] = torch.nn.Tanh()
        exported = network.export(model, EXAMPLE)
        layers = network.piece(exported, network.INPUT, network.cut(exported, "blocks.1"))
        if torch.allclose(network.run(layers, EXAMPLE), network.run(layers, EXAMPLE, optimize=False), atol=1e-4):
            self.skipTest("this version of ONNX Runtime computes the layers correctly")
        with self.assertRaisesRegex(ValueError, "differ from PyTorch's at 'blocks.1': off by .*without optimizations agrees with PyTorch"):
            self.pushdown(model=model)

    def test_noise_is_compared_even_if_the_head_is_zero(self):
        exported = self.exports[self.changed]
        layers = network.piece(exported, network.INPUT, network.cut(exported, "blocks.1"))
        with self.assertRaisesRegex(ValueError, "exported layers for noise differ"):
            network.check(self.model, layers, suffix_of(self.model, "blocks.1", EXAMPLE), EXAMPLE, "blocks.1")
        self.assertFalse(self.model.head.weight.any())

    def test_activations_that_the_next_layer_changes_in_place_are_compared(self):
        model = networks.InPlace()
        # After a ReLU, another one would change nothing.
        model.stem[1] = torch.nn.Tanh()
        self.pushdown(model=model, freeze="stem", split="stem")

    def test_images_that_cannot_be_decoded_are_not_compared(self):
        photos = sorted(self.few(each=4).rglob("*.*"))
        root = self.folder / "divided"
        for bad, refused in (3, True), (8, False):
            with self.subTest(bad=bad):
                for number, photo in enumerate(photos):
                    file = root / "train" / photo.parent.name / photo.name
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(b"no image" if number < bad else photo.read_bytes())
                file = root / "validation" / photos[0].parent.name / photos[0].name
                file.parent.mkdir(parents=True)
                file.write_bytes(photos[0].read_bytes())
                with self.exporting_another_model():
                    if refused:
                        with self.assertRaisesRegex(ValueError, "the export differs"):
                            self.pushdown(root, on_bad_sample="skip")
                    else:
                        with self.assertLogs("frostline", "WARNING") as logged:
                            self.pushdown(root, on_bad_sample="skip")
                        self.assertIn("the first 8 images cannot be decoded", "".join(logged.output))
                shutil.rmtree(root)

    def test_a_single_image_is_compared(self):
        self.few(each=1)
        shutil.rmtree(self.folder / "photos/stars")
        self.extract(self.folder / "photos")
        with self.exporting_another_model(), self.assertRaisesRegex(ValueError, "activations of 'brick/[^,]*' differ .*the export differs"):
            self.extract(self.folder / "photos")

    def test_generators_are_not_advanced(self):
        class Drawing(small.Network):
            def forward(self, x):
                torch.rand(1)
                return super().forward(x)

        model = Drawing()
        work = {
            "pushdown": lambda: self.pushdown(model=model),
            "extract": lambda: self.extract(model=model),
            "freeze_points": lambda: freeze_points(model, small.SIZE),
        }
        for name, call in work.items():
            torch.manual_seed(5)
            expected = torch.rand(3)
            torch.manual_seed(5)
            with self.subTest(name):
                call()
                self.assertTrue(torch.equal(torch.rand(3), expected))


if __name__ == "__main__":
    unittest.main()
