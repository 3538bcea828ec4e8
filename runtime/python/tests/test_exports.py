"""The cache of exported models."""

import os
import unittest
from unittest import mock

import torch

import bundled
import frostline.torch as fl
import small
from frostline.torch import _exports, _frozen, _network
from frostline.torch._divide import suffix_of

EXAMPLE = torch.randn(2, 3, small.SIZE, small.SIZE)


def key_of(model, freeze="blocks.1", example=EXAMPLE):
    return _exports.key_of(model, [*model.blocks[2].parameters(), *model.blocks[2].buffers(), *model.head.parameters()], example, freeze)


class Scaled(small.Network):
    def forward(self, x):
        return super().forward(x * 2)


class Twice(small.Network):
    """Calls a layer before and after the cut."""

    def __init__(self):
        super().__init__()
        self.shared = torch.nn.Conv2d(16, 16, 1)

    def forward(self, x):
        x = self.blocks(self.shared(self.stem(x)))
        return self.head(self.shared(x).mean((2, 3)))


class Exports(bundled.Case):
    def setUp(self):
        super().setUp()
        self.cache = self.folder / "exports"
        environment = mock.patch.dict(os.environ, {"FROSTLINE_EXPORT_CACHE": str(self.cache)})
        environment.start()
        self.addCleanup(environment.stop)

    def pushdown(self, model):
        """Return the rows of the first batch, and whether the model was exported."""
        with mock.patch.object(_network, "export", side_effect=_network.export) as export:
            _, data = fl.pushdown(model, bundled.PHOTOS, freeze="blocks.1", size=small.SIZE, batch=8)
            with data:
                rows, _ = next(iter(data))
        return rows, export.called

    def test_a_model_with_the_same_frozen_layers_is_exported_once(self):
        model = small.network()
        rows, exported = self.pushdown(model)
        self.assertTrue(exported)
        with torch.no_grad():
            model.head.weight.zero_()
            model.blocks[2].convolution.weight += 1
        again, exported = self.pushdown(model)
        self.assertFalse(exported)
        self.assertTrue(torch.equal(rows, again))
        with torch.no_grad():
            model.stem[0].weight *= 2
        _, exported = self.pushdown(model)
        self.assertTrue(exported)

    def test_a_wrong_or_damaged_entry_is_exported_again(self):
        model, other = small.network(), small.network()
        with torch.no_grad():
            other.stem[0].weight += 1
        with mock.patch.object(_exports, "key_of", return_value="same"):
            self.pushdown(other)
            rows, exported = self.pushdown(model)
            self.assertTrue(exported)
            again, exported = self.pushdown(model)
            self.assertFalse(exported)
            self.assertTrue(torch.equal(rows, again))
            (entry,) = self.cache.iterdir()
            entry.write_bytes(entry.read_bytes()[:1000])
            _, exported = self.pushdown(model)
            self.assertTrue(exported)

    def test_an_entry_belongs_to_what_determines_the_export(self):
        model = small.network()
        keys = {key_of(model), key_of(model, "stem"), key_of(model, example=EXAMPLE[..., :32, :32])}
        scaled = Scaled()
        scaled.load_state_dict(model.state_dict())
        keys.add(key_of(scaled.eval()))
        model.stem[0].stride = (2, 2)
        keys.add(key_of(model))
        model.stem[0].stride = (4, 4)
        model.scale = 0.5
        keys.add(key_of(model))
        model.scale = torch.float16
        keys.add(key_of(model))
        with torch.no_grad():
            model.blocks[0].norm.running_mean += 1
        keys.add(key_of(model))
        with mock.patch.object(_exports, "_versions", return_value={}):
            keys.add(key_of(model))
        self.assertEqual(len(keys), 9)
        self.assertEqual(key_of(model), key_of(model.train()))

    def test_weights_that_frozen_and_trained_layers_share_belong_to_the_key(self):
        model = Twice().eval()
        suffix = suffix_of(model, "blocks.1", EXAMPLE)
        key = lambda: _exports.key_of(model, _frozen._trained(model, suffix), EXAMPLE, "blocks.1")
        first = key()
        with torch.no_grad():
            model.blocks[2].convolution.weight += 1e-6
            model.head.weight += 1e-6
        self.assertEqual(key(), first)
        with torch.no_grad():
            model.shared.weight += 1e-6
        self.assertNotEqual(key(), first)

    def test_the_least_recently_used_entries_are_removed(self):
        model = _network.export(small.network(), EXAMPLE)
        size = len(model.SerializeToString())
        with mock.patch.object(_exports, "LIMIT_BYTES", 3 * size):
            for number, key in enumerate("abc"):
                _exports.save(key, model)
                os.utime(self.cache / f"{key}.onnx", (number, number))
            self.assertIsNotNone(_exports.load("a"))
            _exports.save("d", model)
            self.assertEqual(sorted(file.stem for file in self.cache.iterdir()), ["a", "c", "d"])
        with mock.patch.object(_exports, "LIMIT_BYTES", size - 1):
            _exports.save("e", model)
        self.assertIsNone(_exports.load("e"))

    def test_a_cache_that_cannot_be_used_does_not_affect_results(self):
        self.cache.write_text("no folder")
        with self.assertLogs("frostline", "WARNING") as logged:
            rows, _ = self.pushdown(small.network())
        self.assertIn("not cached for later runs", logged.output[0])
        with mock.patch.dict(os.environ, {"FROSTLINE_EXPORT_CACHE": "off"}):
            again, exported = self.pushdown(small.network())
        self.assertTrue(exported)
        self.assertTrue(torch.equal(rows, again))


if __name__ == "__main__":
    unittest.main()
