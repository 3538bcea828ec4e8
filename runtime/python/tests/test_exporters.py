"""A step of training after both exporters of PyTorch, which store equal weights once."""

import inspect
import pathlib
import tempfile
import unittest
import warnings

import frostline
import numpy
import onnx
import onnx.helper
import onnx.numpy_helper
import onnx.reference
import torch
from PIL import Image
from torch import nn

SIDE, WIDTH, IMAGES = 16, 8, 6
LR = 0.5
SHARED = ("first", "second")


class Network(nn.Module):
    """A network whose normalizations begin with the same scales, and with the same biases as a linear layer.

    The newer exporter removes biases of convolutions that are zero, so this one is not.
    """

    def __init__(self):
        super().__init__()
        self.patches, self.head = nn.Conv2d(3, WIDTH, 4, stride=4), nn.Linear(WIDTH, 2)
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mixed = nn.Linear(WIDTH, WIDTH)
        nn.init.zeros_(self.mixed.bias)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = x + torch.nn.functional.gelu(self.mixed(self.first(x)))
        return self.head(self.second(x).square().mean(1))


def export(network, path, dynamo):
    example, names = torch.zeros(2, 3, SIDE, SIDE), {"input_names": ["pixels"], "output_names": ["logits"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if dynamo:
            shapes = {next(iter(inspect.signature(network.forward).parameters)): {0: torch.export.Dim("batch")}}
            torch.onnx.export(network, (example,), str(path), dynamic_shapes=shapes, verbose=False, **names)
        else:
            axes = dict.fromkeys(("pixels", "logits"), {0: "batch"})
            torch.onnx.export(network, (example,), str(path), dynamo=False, dynamic_axes=axes, **names)
    model = onnx.load(path)
    # `frostline train` keeps the classifier of a network with named classes.
    onnx.helper.set_model_props(model, {"frostline.classes": '["a", "b"]'})
    onnx.save(model, path)


def normalizations(path):
    """Return the stored names and the values of (scale, bias) of each layer normalization, in the order of execution."""
    graph = onnx.load(path).graph
    stored = {weight.name: onnx.numpy_helper.to_array(weight) for weight in graph.initializer}
    # The older exporter writes uses of a merged weight as Identity.
    same = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "Identity"}
    names = [[same.get(name, name) for name in node.input[1:3]] for node in graph.node if node.op_type == "LayerNormalization"]
    return names, [[stored[name] for name in pair] for pair in names]


class Exporters(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        draw = numpy.random.default_rng(1)
        self.pixels = draw.integers(0, 256, (IMAGES, SIDE, SIDE, 3), dtype=numpy.uint8)
        for part in ("train", "validation"):
            for number, pixels in enumerate(self.pixels):
                file = self.folder / "photos" / part / "ab"[number % 2] / f"{number}.png"
                file.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels).save(file)

    def step(self, network):
        """Train `network` with one step of SGD on all images."""
        x = torch.from_numpy(self.pixels).permute(0, 3, 1, 2) / 255 - 0.5
        optimizer = torch.optim.SGD(network.parameters(), LR)
        nn.functional.cross_entropy(network(x), torch.arange(IMAGES) % 2).backward()
        optimizer.step()

    def test_weights_that_an_exporter_merged_are_trained_separately(self):
        for dynamo in (True, False):
            with self.subTest(dynamo=dynamo):
                torch.manual_seed(3)
                network = Network()
                exported, tuned = self.folder / "exported.onnx", self.folder / "tuned.onnx"
                export(network, exported, dynamo)
                (first, second), _ = normalizations(exported)
                self.assertEqual(first, second, "the exporter did not merge the weights")

                self.step(network)
                flags = {"freeze": "none", "head": "keep", "epochs": 1, "batch": IMAGES, "lr": LR, "optimizer": "sgd", "momentum": 0, "lr_scheduler": "constant", "warmup_ratio": 0}
                pixels = {"resize": SIDE, "mean": "0.5,0.5,0.5", "std": "1,1,1", "feature_cache": "off"}
                client = frostline.Client()
                client.train(exported, self.folder / "photos", out=tuned, runs=self.folder / "runs", **flags, **pixels)

                _, trained = normalizations(tuned)
                for name, values in zip(SHARED, trained, strict=True):
                    expected = network.get_submodule(name)
                    for value, parameter in zip(values, (expected.weight, expected.bias), strict=True):
                        numpy.testing.assert_allclose(value, parameter.detach(), rtol=0, atol=1e-5)
                for one, other in zip(*trained, strict=True):
                    self.assertGreater(abs(one - other).max(), 1e-3)
                other = torch.randn(4, 3, SIDE, SIDE)
                (logits,) = onnx.reference.ReferenceEvaluator(onnx.load(tuned)).run(None, {"pixels": other.numpy()})
                numpy.testing.assert_allclose(logits, network(other).detach(), rtol=0, atol=1e-4)


if __name__ == "__main__":
    unittest.main()
