"""Errors for models that cannot be divided, and models inside wrappers."""

import importlib.util
import unittest
import warnings

import torch

import small
from frostline.torch import CannotDivide, FreezePoint, freeze_points
from frostline.torch import _network as network
from frostline.torch._divide import path_of, suffix_of
from frostline.torch._model import output_of, prepared

EXAMPLE = torch.randn(2, 3, small.SIZE, small.SIZE)


class Wrapper(torch.nn.Module):
    """A user's module that passes all arguments to a model."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *args, **kwargs):
        return self.model(*args, **kwargs)


class Gray(small.Network):
    """Reads images with one channel."""

    def __init__(self):
        super().__init__()
        self.stem[0] = torch.nn.Conv2d(1, 16, 5, stride=4)


class Converting(Wrapper):
    def forward(self, images):
        return self.model(images.mean(1, keepdim=True))


class Words(torch.nn.Module):
    """Reads indices of words `[n, words]`."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(10, 4)

    def forward(self, words):
        count, length = words.shape
        return self.table(words).sum(1) / length


class OfOneSize(small.Network):
    """Has position embeddings for images of 48 x 48 pixels only."""

    def __init__(self):
        super().__init__()
        self.positions = torch.nn.Parameter(torch.zeros(16, 11, 11))

    def forward(self, x):
        return self.head(self.blocks(self.stem(x) + self.positions).mean((2, 3)))


class Models(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("ignore")

    def assert_refused(self, model, why):
        with self.assertRaisesRegex(CannotDivide, why) as failed:
            freeze_points(model, small.SIZE)
        self.assertNotIn("--", str(failed.exception))

    def test_other_objects_are_refused(self):
        for model, why in (
            ("resnet18", "model is a str, not a torch.nn.Module; pass a model object"),
            (small.network, "model is a function"),
            (small.Network, "model is a type"),
            (None, "model is a NoneType"),
            (small.network().state_dict(), "model is a OrderedDict.*has loaded this state dict"),
        ):
            with self.assertRaisesRegex(TypeError, why):
                freeze_points(model)
        for module in (["blocks.1"], 4):
            with self.assertRaisesRegex(TypeError, "pass a module of the model or its path"):
                path_of(small.network(), module)

    def test_wrapped_models_are_refused_with_the_way_to_unwrap_them(self):
        self.assert_refused(torch.nn.DataParallel(small.network()), "wrapped in DataParallel; pass the wrapped model .`model.module`.")
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
        self.addCleanup(torch.distributed.destroy_process_group)
        parallel = torch.nn.parallel.DistributedDataParallel(small.network())
        self.assert_refused(parallel, "wrapped in DistributedDataParallel; pass the wrapped model")
        self.assertTrue(freeze_points(parallel.module, small.SIZE))
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
        self.assert_refused(torch.distributed.fsdp.fully_shard(small.network(), mesh=mesh), "is sharded.*before it is sharded")

    def test_compiled_models_are_refused_with_the_way_to_the_original(self):
        compiled = torch.compile(small.network(), backend="eager")
        self.assert_refused(compiled, "is compiled; pass the original module .`model._orig_mod`., and compile the suffix")
        inside = small.network()
        inside.blocks[2] = torch.compile(inside.blocks[2], backend="eager")
        self.assert_refused(inside, "the module 'blocks.2' is compiled")
        in_place = small.network()
        in_place.compile(backend="eager")
        self.assert_refused(in_place, r"is compiled; divide the model before its compile\(\)")
        # The advice works.
        suffix = suffix_of(compiled._orig_mod, path_of(compiled._orig_mod, "_orig_mod.blocks.1"), EXAMPLE)
        rows = torch.randn(4, 16, 11, 11)
        torch.testing.assert_close(torch.compile(suffix, backend="eager")(rows), suffix(rows))

    def test_torchscript_is_refused(self):
        for made in (torch.jit.script, lambda model: torch.jit.trace(model, EXAMPLE)):
            self.assert_refused(made(small.network()), "is TorchScript.*pass the model from which it was created")

    def test_weights_that_hosts_cannot_use_are_refused(self):
        for dtype in (torch.bfloat16, torch.float16, torch.float64):
            name = str(dtype).removeprefix("torch.")
            self.assert_refused(small.network().to(dtype), rf"has {name} weights, but hosts compute in float32; pass model.float\(\)")
        mixed = small.network()
        mixed.head.bfloat16()
        self.assert_refused(mixed, "bfloat16 weights")
        self.assertTrue(freeze_points(mixed.float(), small.SIZE))
        with torch.device("meta"):
            self.assert_refused(small.Network(), "Parameters without values.*load its weights")
        self.assert_refused(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(4)), "without a shape; call it once with images")

    def test_a_suffix_trains_in_mixed_precision(self):
        suffix = suffix_of(small.network(), "blocks.1", EXAMPLE)
        with torch.autocast("cpu", torch.bfloat16):
            loss = suffix(torch.randn(4, 16, 11, 11)).square().mean()
        loss.backward()
        self.assertEqual(suffix.head.weight.grad.dtype, torch.float32)

    def test_models_of_other_input_are_refused(self):
        what = r"does not accept float32 images \[2, 3, 48, 48\]"
        self.assert_refused(Words(), f"this Words {what} .ValueError: too many values to unpack.*; pass an image classifier")
        with self.assertRaisesRegex(CannotDivide, f"this OfOneSize does not accept float32 images .2, 3, 64, 64..*with size="):
            freeze_points(OfOneSize(), 64)
        self.assertTrue(freeze_points(OfOneSize(), 48))
        with self.assertRaisesRegex(CannotDivide, what):
            suffix_of(Words(), "table", EXAMPLE)
        with self.assertRaisesRegex(CannotDivide, what):
            output_of(Words(), EXAMPLE)

    def test_gray_models_are_refused_with_the_way_to_convert_images(self):
        self.assert_refused(Gray(), r"first convolution 'stem.0' reads 1 channels; .*self.model\(images.mean\(1, keepdim=True\)\)")
        # The advice works.
        points = [point.module for point in freeze_points(Converting(Gray()), small.SIZE)]
        self.assertIn("model.blocks.1", points)
        suffix_of(Converting(Gray()), "model.blocks.1", EXAMPLE)

    @unittest.skipUnless(importlib.util.find_spec("transformers"), "transformers is not installed")
    def test_language_models_are_refused(self):
        import transformers

        config = transformers.BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, vocab_size=9)
        self.assert_refused(transformers.BertForSequenceClassification(config), "BertForSequenceClassification does not accept float32 images")

    def test_modules_that_pass_all_arguments_are_divided(self):
        model = Wrapper(small.network()).eval()
        self.assertIn("model.blocks.1", [point.module for point in freeze_points(model, small.SIZE)])
        suffix = suffix_of(model, "model.blocks.1", EXAMPLE)
        exported = network.export(model, EXAMPLE)
        layers = network.piece(exported, network.INPUT, network.cut(exported, "model.blocks.1"))
        self.assertEqual(network.check(model, layers, suffix, EXAMPLE, "model.blocks.1"), (16, 11, 11))
        # The number of images is variable.
        self.assertEqual(len(network.run(layers, torch.randn(5, 3, small.SIZE, small.SIZE))), 5)


class Splits(unittest.TestCase):
    """Cuts from which hosts send activations."""

    @classmethod
    def setUpClass(cls):
        cls.exported = network.export(small.network(), EXAMPLE)

    def test_splits_up_to_the_freeze_cut_are_accepted(self):
        for split in ("stem", "blocks.0", "blocks.1"):
            self.assertEqual(network.split_cut(self.exported, split, "blocks.1"), network.cut(self.exported, split))
        tensor = network.cut(self.exported, "stem")
        self.assertEqual(network.split_cut(self.exported, tensor, "blocks.1"), tensor)

    def test_splits_after_the_freeze_cut_are_refused(self):
        for split in ("blocks.2", "head", network.cut(self.exported, "blocks.2")):
            with self.assertRaisesRegex(ValueError, f"split={split!r} is not before freeze='blocks.1'; choose a module that the frozen layers contain"):
                network.split_cut(self.exported, split, "blocks.1")

    def test_splits_that_values_bypass_are_refused(self):
        inside = next(node.output[0] for node in self.exported.graph.node if node.op_type == "Conv" and "blocks.1" in network.scopes(node))
        with self.assertRaisesRegex(ValueError, "to freeze='blocks.1' also read values that do not pass through"):
            network.split_cut(self.exported, inside, "blocks.1")

    def test_unknown_splits_are_refused(self):
        with self.assertRaisesRegex(ValueError, "no module 'blocks.9'.*choose another module: blocks"):
            network.split_cut(self.exported, "blocks.9", "blocks.1")


class Tuner(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model


class Adapted(torch.nn.Module):
    """Has the interface of `peft.PeftModel`."""

    def __init__(self, model):
        super().__init__()
        self.base_model, self.peft_config = Tuner(model), {}

    def get_base_model(self):
        return self.base_model.model

    def forward(self, *args, **kwargs):
        return self.get_base_model()(*args, **kwargs)


class Adapters(unittest.TestCase):
    def assert_divided(self, adapted):
        """Divide a model with adapters, and return the suffix."""
        points = freeze_points(adapted, small.SIZE)
        self.assertIsInstance(points[0], FreezePoint)
        self.assertIn("blocks.1", [point.module for point in points])
        model = prepared(adapted)
        # Both names of a module are accepted.
        self.assertEqual(path_of(model, "base_model.model.blocks.1"), "blocks.1")
        self.assertEqual(path_of(model, adapted.get_submodule("base_model.model.blocks.1")), "blocks.1")
        suffix = suffix_of(model, "blocks.1", EXAMPLE)
        rows = model.blocks[1](model.blocks[0](model.stem(EXAMPLE)))
        torch.testing.assert_close(suffix(rows), adapted(EXAMPLE))
        return suffix

    def test_models_of_peft_are_divided_with_their_adapters(self):
        self.assert_divided(Adapted(small.network()))

    @unittest.skipUnless(importlib.util.find_spec("peft"), "peft is not installed")
    def test_adapters_of_peft_are_trained(self):
        import peft

        adapted = peft.get_peft_model(small.network(), peft.LoraConfig(target_modules=["convolution"], modules_to_save=["head"], r=2)).eval()
        suffix = self.assert_divided(adapted)
        trained = {id(parameter): name for name, parameter in suffix.named_parameters() if parameter.requires_grad}
        self.assertTrue(all("lora" in name or "modules_to_save" in name for name in trained.values()))
        ours = [parameter for name, parameter in adapted.named_parameters() if "blocks.2" in name and "lora" in name]
        self.assertTrue(ours and all(id(parameter) in trained for parameter in ours))


if __name__ == "__main__":
    unittest.main()
