"""Division of models into frozen layers for hosts and a suffix to train."""

import contextlib
import copy
import io
import shutil
import unittest
import warnings
from unittest import mock

import torch
from torch.utils.flop_counter import FlopCounterMode

import bundled
import frostline
import frostline.torch as fl
import small
from frostline.torch import _network as network
from frostline.torch._divide import Calls, CannotDivide, freeze_points, path_of, suffix_of
from frostline.torch._pushdown import _Frozen

EXAMPLE = torch.randn(2, 3, small.SIZE, small.SIZE)


class Branching(small.Network):
    """The code depends on the shape of the input, which torch.fx cannot trace."""

    def forward(self, x):
        if x.shape[1] != 3:
            raise ValueError("three channels are required")
        return super().forward(x)


class Bypassing(small.Network):
    """Layers after the cut also read the images."""

    def forward(self, x):
        return super().forward(x) + x.mean()


class BypassingInTraining(small.Network):
    def forward(self, x):
        return super().forward(x) + (x.mean() if self.training else 0)


class Branch(small.Network):
    """The code after the cut depends on a comparison of the images, with a result that is false for noise and for NaN."""

    def __init__(self, condition):
        super().__init__()
        self.condition = condition

    def forward(self, x):
        logits = super().forward(x)
        return logits * 2 if self.condition(x, self.training) else logits


BRANCHES = {
    "large": lambda x, training: x.mean() > 0.5,
    "small": lambda x, training: x.mean() < -0.5,
    "empty": lambda x, training: x.abs().amax() < 1e-3,
    "spread": lambda x, training: x.std() > 10,
    "training": lambda x, training: training and x.mean() > 0.5,
}


class Dropping(small.Network):
    """Stochastic depth as in timm, with an in-place operation whose result is unused, and functional dropout."""

    def forward(self, x):
        x = self.blocks(torch.nn.functional.dropout(self.stem(x), 0.1, self.training))
        if self.training:
            kept = x.new_empty((len(x), 1, 1, 1)).bernoulli_(0.5)
            kept.div_(0.5)
            x = x * kept
        return self.head(torch.nn.functional.dropout(x, 0.5, self.training).mean((2, 3)))


class Centering(torch.nn.Module):
    """Subtracts the mean of the batch from each image."""

    def forward(self, x):
        return x - x.mean(0, keepdim=True)


def depending_on_the_batch(layer):
    model = small.network()
    model.blocks.insert(1, layer)
    return model


class Inside(torch.nn.Module):
    """A container with functional dropout around a cut."""

    def __init__(self, blocks):
        super().__init__()
        self.blocks = blocks

    def forward(self, x):
        return torch.nn.functional.dropout(self.blocks(x), 0.5, self.training)


class DroppingInside(small.Network):
    def __init__(self):
        super().__init__()
        self.blocks = Inside(self.blocks)


class Tied(small.Network):
    """The code after the cut computes with a weight of a frozen layer."""

    def __init__(self):
        super().__init__()
        self.first = small.Block(16)

    def forward(self, x):
        x = self.blocks(self.first(self.stem(x)))
        return self.head(x.mean((2, 3))) + self.first.convolution.weight.mean()


class InPlace(small.Network):
    def forward(self, x):
        return self.head(self.blocks(torch.nn.functional.relu(self.stem(x), inplace=True)).mean((2, 3)))


class Positions(small.Network):
    """Has one Parameter that earlier layers read, and one that later layers read."""

    def __init__(self):
        super().__init__()
        self.positions = torch.nn.Parameter(torch.randn(1, 16, 11, 11))
        self.scale = torch.nn.Parameter(torch.ones(8))

    def forward(self, x):
        return self.head(self.blocks(self.stem(x) + self.positions).mean((2, 3))) * self.scale


class Table(torch.nn.Module):
    """Returns a table that depends only on the shape of the input."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(1, 16, 1, 1))

    def forward(self, x):
        return self.weight.expand(len(x), -1, -1, -1)


class Tabled(small.Network):
    """Computes a table before the cut and reads it after the cut."""

    def __init__(self):
        super().__init__()
        self.table = Table()

    def forward(self, x):
        x = self.stem(x)
        table = self.table(x)
        return self.head((self.blocks(x) + table).mean((2, 3)))


class Pooling(torch.nn.Module):
    """Returns a feature map and the means of the features."""

    def __init__(self, blocks):
        super().__init__()
        self.blocks = blocks

    def forward(self, x):
        features = self.blocks(x)
        return features, features.mean((2, 3))


class Pooled(small.Network):
    """Layers after the blocks read only the second tensor that the blocks return."""

    def __init__(self):
        super().__init__()
        self.blocks = Pooling(self.blocks)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x))[1])


class WithLoss(small.Network):
    """Accepts labels and returns a dictionary, like the models of transformers."""

    def forward(self, x, labels=None):
        logits = super().forward(x)
        loss = None if labels is None else torch.nn.functional.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits}


def divided(model, module="blocks.1", suffix=None):
    suffix = suffix or suffix_of(model, module, EXAMPLE)
    exported = network.export(model, EXAMPLE)
    cut = network.cut(exported, module)
    layers = network.piece(exported, network.INPUT, cut)
    network.check(model, layers, suffix, EXAMPLE, module)
    return suffix, exported, cut


class Data(bundled.Case):
    def hint(self, data, **options):
        """Return the advice of the error for these settings."""
        with self.assertRaises(frostline.SettingsError) as failed:
            small.divided(data, **options)
        return str(failed.exception).rpartition("; ")[2]

    def test_hints_name_parameters_that_help(self):
        undivided = self.few()
        self.assertEqual(self.hint(undivided), "set validation, for example to 0.2")
        small.divided(undivided, validation=0.2)
        self.assertEqual(self.hint(bundled.PHOTOS, validation=0.2), "leave out validation")
        small.divided(bundled.PHOTOS)
        photos = sorted(path.relative_to(undivided) for path in undivided.rglob("*.*"))
        for task, values in ("labels", ("1,0", "0,1")), ("numbers", ("1.5,0", "0,2.5")):
            table = self.folder / "table.csv"
            lines = [f"{photo},{values[number % 2]}" for number, photo in enumerate(photos)]
            table.write_text("\n".join(["file,first,second", *lines]))
            self.assertEqual(self.hint(undivided, labels=table, validation=0.2), f"set task to '{task}'")
            small.divided(undivided, labels=table, validation=0.2, task=task)


class Comparing(bundled.Case):
    """Comparison of the activations that hosts return with PyTorch's."""

    def setUp(self):
        super().setUp()
        warnings.simplefilter("ignore")
        self.model = small.network()
        torch.nn.init.zeros_(self.model.head.weight)
        self.changed = copy.deepcopy(self.model)
        self.changed.blocks[0].convolution.weight.data *= 1.5
        self.settings = {"freeze": "blocks.1", "size": small.SIZE, "split": "blocks.1"}

    def pushdown(self, data=bundled.PHOTOS, **settings):
        return fl.pushdown(self.model, data, **{**self.settings, **settings})

    def computing_other_layers(self):
        """Replace the layers that hosts compute by those of another model."""
        exported = network.export(self.changed, EXAMPLE)
        other = network.piece(exported, network.INPUT, network.cut(exported, "blocks.1"))
        send, push = _Frozen.sent, frostline.Client.push_model

        def sent(frozen, *arguments):
            with mock.patch.object(frozen, "layers", other):
                return send(frozen, *arguments)

        def pushed(client, model, **options):
            return push(client, other if isinstance(model, bytes) else model, **options)

        patched = contextlib.ExitStack()
        patched.enter_context(mock.patch.object(_Frozen, "sent", sent))
        patched.enter_context(mock.patch.object(frostline.Client, "push_model", pushed))
        return patched

    def exporting_another_model(self):
        """Replace the exported model. The comparison of noise is skipped, because it would fail first."""
        export = network.export
        check = mock.patch.object(network, "check", lambda *_: (16, 11, 11))
        return check, mock.patch.object(network, "export", lambda _, example, fuse=True: export(self.changed, example, fuse))

    def test_activations_of_hosts_are_compared_even_if_the_head_is_zero(self):
        self.pushdown()
        fl.extract(self.model, "blocks.1", bundled.PHOTOS, size=small.SIZE)
        with self.computing_other_layers():
            # The exported layers are right, so the host computes them wrongly.
            why = "activations of '.*/.*jpg', '.*/.*jpg' differ from PyTorch's at 'blocks.1': off by .*without optimizations agrees with PyTorch"
            with self.assertRaisesRegex(ValueError, why):
                self.pushdown()
            with self.assertRaisesRegex(ValueError, why):
                fl.extract(self.model, "blocks.1", bundled.PHOTOS, size=small.SIZE)
            # This process computes the layers of these splits.
            for split in ("none", "input"):
                self.pushdown(split=split)

    def test_exported_layers_are_compared_for_all_settings(self):
        guest = bundled.REPOSITORY / "runtime/python/guest/prefix/prefix.wasm"
        guided = {"guest": guest, "parameters": frostline.pixels(small.SIZE, small.SIZE)}
        splits = [{"split": split} for split in ("none", "input", "stem", "blocks.1")]
        for settings in (*splits, {"encoding": "int8"}, {"prefix_precision": "int8"}, guided):
            with self.subTest(**settings):
                self.pushdown(**settings)
                check, export = self.exporting_another_model()
                with check, export, self.assertRaisesRegex(ValueError, "activations of .* differ .*the export differs"):
                    self.pushdown(**settings)

    def test_layers_that_optimizations_change_are_refused(self):
        # ONNX Runtime 1.31.1 replaces padding with zeros by the padding of MaxPool, which has no lower bound.
        self.model.stem.append(torch.nn.ConstantPad2d(1, 0.0))
        self.model.stem.append(torch.nn.MaxPool2d(3, stride=1))
        self.model.stem[1] = torch.nn.Tanh()
        exported = network.export(self.model, EXAMPLE)
        layers = network.piece(exported, network.INPUT, network.cut(exported, "blocks.1"))
        if torch.allclose(network.run(layers, EXAMPLE), network.run(layers, EXAMPLE, optimize=False), atol=1e-4):
            self.skipTest("this version of ONNX Runtime computes the layers correctly")
        with self.assertRaisesRegex(ValueError, "differ from PyTorch's at 'blocks.1': off by .*without optimizations agrees with PyTorch"):
            self.pushdown()

    def test_noise_is_compared_even_if_the_head_is_zero(self):
        exported = network.export(self.changed, EXAMPLE)
        layers = network.piece(exported, network.INPUT, network.cut(exported, "blocks.1"))
        with self.assertRaisesRegex(ValueError, "exported layers for noise differ"):
            network.check(self.model, layers, suffix_of(self.model, "blocks.1", EXAMPLE), EXAMPLE, "blocks.1")
        self.assertFalse(self.model.head.weight.any())

    def test_images_that_cannot_be_decoded_are_not_compared(self):
        photos = sorted(self.few(each=4).rglob("*.*"))
        root = self.folder / "divided"
        check, export = self.exporting_another_model()
        for bad, refused in (3, True), (8, False):
            with self.subTest(bad=bad):
                for number, photo in enumerate(photos):
                    file = root / "train" / photo.parent.name / photo.name
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(b"no image" if number < bad else photo.read_bytes())
                file = root / "validation" / photos[0].parent.name / photos[0].name
                file.parent.mkdir(parents=True)
                file.write_bytes(photos[0].read_bytes())
                with check, export:
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
        fl.extract(self.model, "blocks.1", self.folder / "photos", size=small.SIZE)
        check, export = self.exporting_another_model()
        with check, export, self.assertRaisesRegex(ValueError, "activations of 'brick/[^,]*' differ .*the export differs"):
            fl.extract(self.model, "blocks.1", self.folder / "photos", size=small.SIZE)

    def test_generators_are_not_advanced(self):
        class Drawing(small.Network):
            def forward(self, x):
                torch.rand(1)
                return super().forward(x)

        self.model = Drawing()
        work = {
            "pushdown": self.pushdown,
            "extract": lambda: fl.extract(self.model, "blocks.1", bundled.PHOTOS, size=small.SIZE),
            "freeze_points": lambda: freeze_points(self.model, small.SIZE),
        }
        for name, call in work.items():
            torch.manual_seed(5)
            expected = torch.rand(3)
            torch.manual_seed(5)
            with self.subTest(name):
                call()
                self.assertTrue(torch.equal(torch.rand(3), expected))


class Dividing(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("ignore")

    def assert_shared(self, suffix, model):
        own = dict(model.named_parameters())
        for name, parameter in suffix.named_parameters():
            self.assertIs(parameter, own[name])
        expected = [name for name in own if name.startswith(("blocks.2", "head"))]
        self.assertEqual(sorted(dict(suffix.named_parameters())), sorted(expected))

    def test_the_suffix_is_of_the_models_own_modules(self):
        model = small.network().train()
        model.stem.eval()
        suffix, _, _ = divided(model)
        self.assert_shared(suffix, model)
        self.assertIs(suffix.get_submodule("blocks.2.norm"), model.blocks[2].norm)
        self.assertTrue(model.training and model.blocks.training and not model.stem.training)
        suffix.train()
        before = model.blocks[2].norm.running_mean.clone()
        suffix(torch.randn(4, 16, 11, 11))
        self.assertFalse(torch.equal(model.blocks[2].norm.running_mean, before))

    def test_activations_are_the_tensor_that_is_read(self):
        suffix = suffix_of(Pooled(), "blocks", EXAMPLE)
        self.assertEqual(len(suffix.row_shape), 1)

    def test_modes_mean_what_they_do_in_the_model(self):
        model = Dropping().train()
        model.stem.eval()
        suffix, _, _ = divided(model)
        self.assert_shared(suffix, model)
        self.assertTrue(model.blocks.training and not model.stem.training)
        rows = torch.randn(4, 16, 11, 11)
        for each in (suffix, copy.deepcopy(suffix)):
            each.eval()
            self.assertTrue(torch.equal(each(rows), each(rows)))
            each.train()
            self.assertFalse(torch.equal(each(rows), each(rows)))
        self.assertEqual(sorted(suffix.state_dict()), sorted(name for name in model.state_dict() if name.startswith(("blocks.2", "head"))))

    def test_suffix_and_model_share_their_modes(self):
        rows, images = torch.randn(4, 16, 11, 11), torch.randn(2, 3, small.SIZE, small.SIZE)
        for model, module in (Dropping().train(), "blocks.1"), (DroppingInside().train(), "blocks.blocks.1"):
            suffix = suffix_of(model, module, EXAMPLE)
            self.assertTrue(model.training and suffix.training)
            repeats = lambda part, x: torch.equal(part(x), part(x))
            self.assertFalse(repeats(suffix, rows))
            for change, is_repeated in (
                (model.eval, True),
                (model.train, False),
                (suffix.eval, True),
                (suffix.train, False),
                (suffix.eval, True),
                (model.train, False),
                (model.eval, True),
                (suffix.train, False),
            ):
                change()
                self.assertIs(repeats(suffix, rows), is_repeated)
                self.assertIs(model.training, not is_repeated)
            suffix.eval()
            model.stem.eval()
            self.assertTrue(repeats(model, images))
            alone = copy.deepcopy(suffix).train()
            self.assertFalse(repeats(alone, rows))
            self.assertTrue(repeats(suffix, rows) and repeats(model, images))

    def test_every_module_that_gives_one_tensor_is_a_cut(self):
        for module in ("stem.0", "blocks"):
            divided(small.network(), module)

    def test_code_that_no_tracer_follows_is_divided(self):
        for model in (Branching(), InPlace(), Tabled()):
            suffix, _, _ = divided(model.train())
            names = [name for name, _ in suffix.named_parameters()]
            self.assertEqual("table.weight" in names, isinstance(model, Tabled))
            self.assertTrue(model.training)

    def test_parameters_that_only_earlier_layers_read_are_not_trained(self):
        model = Positions()
        suffix, _, _ = divided(model)
        names = dict(suffix.named_parameters())
        self.assertNotIn("positions", names)
        self.assertIs(names["scale"], model.scale)
        self.assertNotIn("positions", suffix.state_dict())
        self.assertTrue(all(parameter.requires_grad for parameter in model.parameters()))

    def test_arguments_and_outputs_are_the_models(self):
        model = WithLoss()
        suffix, _, _ = divided(model)
        images, labels = torch.randn(5, 3, small.SIZE, small.SIZE), torch.arange(5)
        expected = model.eval()(images, labels=labels)
        rows = model.blocks[1](model.blocks[0](model.stem(images)))
        output = suffix.eval()(rows, labels=labels)
        torch.testing.assert_close(output, expected)
        output["loss"].backward()
        self.assertIsNotNone(model.head.weight.grad)

    def test_verifying_leaves_the_model_as_it_was(self):
        model = Dropping().train()
        before = {name: value.clone() for name, value in model.state_dict().items()}
        divided(model)
        torch.testing.assert_close(dict(model.state_dict()), before, rtol=0, atol=0)
        self.assertTrue(all(parameter.grad is None for parameter in model.parameters()))

    def test_a_suffix_is_copied_and_saved(self):
        suffix, _, _ = divided(Positions())
        rows, file = torch.randn(3, 16, 11, 11), io.BytesIO()
        torch.save(suffix.eval(), file)
        file.seek(0)
        for other in (copy.deepcopy(suffix), torch.load(file, weights_only=False)):
            self.assertTrue(torch.equal(other(rows), suffix(rows)))
            self.assertIsNot(other.head.weight, suffix.head.weight)
        suffix.head = torch.nn.Linear(16, 2)
        suffix.scale = torch.nn.Parameter(torch.ones(2))
        self.assertEqual(suffix(rows).shape, (3, 2))

    def test_files_contain_only_weights_that_the_suffix_needs(self):
        def content(weight):
            return weight.detach().numpy().tobytes()

        for model in (small.network(), Tied()):
            suffix = suffix_of(model.eval(), "blocks.1", EXAMPLE)
            rows, file = torch.randn(3, 16, 11, 11), io.BytesIO()
            torch.save(suffix.eval(), file)
            self.assertTrue(content(model.head.weight) in file.getvalue())
            self.assertFalse(content(model.blocks[0].convolution.weight) in file.getvalue())
            if isinstance(model, Tied):
                self.assertTrue(content(model.first.convolution.weight) in file.getvalue())
            file.seek(0)
            loaded = torch.load(file, weights_only=False)
            self.assertTrue(torch.equal(loaded(rows), suffix(rows)))
            self.assertEqual(loaded.state_dict().keys(), suffix.state_dict().keys())
            self.assertEqual(loaded.blocks[0].convolution.weight.shape, model.blocks[0].convolution.weight.shape)

    def test_branches_on_images_are_refused(self):
        for name, condition in BRANCHES.items():
            with self.subTest(name):
                model = Branch(condition)
                with self.assertRaisesRegex(CannotDivide, "'blocks.1' also reads values that do not pass through it"):
                    suffix_of(model, "blocks.1", EXAMPLE)
                torch.nn.init.zeros_(model.head.weight)
                torch.nn.init.zeros_(model.head.bias)
                with self.assertRaisesRegex(CannotDivide, "also reads values"):
                    suffix_of(model, "blocks.1", EXAMPLE)

    def test_activations_that_depend_on_the_batch_are_refused(self):
        for layer in (torch.nn.BatchNorm2d(16, track_running_stats=False), Centering()):
            model = depending_on_the_batch(layer)
            with self.assertRaisesRegex(CannotDivide, "depend on the other images of its batch"):
                suffix_of(model, "blocks.2", EXAMPLE)
            names = [point.module for point in freeze_points(model, small.SIZE)]
            self.assertIn("blocks.0", names)
            self.assertNotIn("blocks.1", names)
            self.assertNotIn("blocks.2", names)
            # The suffix can normalize with the statistics of the batch.
            suffix_of(model, "blocks.0", EXAMPLE)

    def test_refused_divisions_state_the_reason(self):
        for model, module, why in (
            (Bypassing(), "blocks.1", "'blocks.1' also reads values that do not pass through it"),
            (BypassingInTraining(), "blocks.1", "in training mode"),
            (small.network(), "blocks.1.norm", "freeze='blocks.1' is the nearest valid module"),
            (small.network(), "blocks.7", "no module 'blocks.7'; it has .*blocks.1"),
            (small.network(), torch.nn.ReLU(), "not a module inside the model"),
        ):
            with self.assertRaisesRegex(CannotDivide, why):
                suffix_of(model.eval(), module, EXAMPLE)
        with self.assertRaisesRegex(ValueError, "no module 'blocks.7'.*blocks.1.norm"):
            divided(small.network(), "blocks.7", torch.nn.Identity())

    def test_layers_between_two_blocks_may_count_the_samples(self):
        class Masked(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.blocks = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))

            def forward(self, images):
                mask = torch.ones(images.shape[0], 1, 1, dtype=torch.bool) & (torch.arange(4) != 2)
                rows = images.mean(dim=1)
                for block in self.blocks:
                    rows = torch.where(mask, block(rows), rows)
                return rows.mean(dim=1)

        images = torch.randn(2, 3, 4, 4)
        exported = network.export(Masked(), images)
        before = exported.SerializeToString()
        first, last = (network.cut(exported, f"blocks.{index}") for index in (0, 2))
        with self.assertRaisesRegex(ValueError, "cannot be extracted"):
            network.piece(exported, first, last)
        ends = [node.output[0] for node in exported.graph.node if node.op_type == "Where"]
        rows = network.run(network.piece(exported, "input", ends[0]), images)
        through = network.run(network.piece(exported, ends[0], ends[1]), rows)
        self.assertTrue(torch.equal(through, network.run(network.piece(exported, "input", ends[1]), images)))
        self.assertEqual(exported.SerializeToString(), before)

    def test_a_convolution_that_the_exporter_fuses_is_a_cut(self):
        model = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
        )
        suffix = suffix_of(model.eval(), "0", EXAMPLE)
        with self.assertRaisesRegex(ValueError, "has no module '0' "):
            network.cut(network.export(model, EXAMPLE), "0")
        frozen = _Frozen(model, "0", suffix, EXAMPLE, None)
        self.addCleanup(frozen.folder.remove)
        self.assertEqual(frozen.row, tuple(model[0](EXAMPLE).shape[1:]))
        torch.testing.assert_close(network.run(frozen.layers, EXAMPLE), model[0](EXAMPLE))

    def test_freeze_points_are_listed(self):
        model = small.network()
        points = freeze_points(model, small.SIZE)
        names = [point.module for point in points]
        self.assertLess(names.index("stem"), names.index("blocks.0"))
        self.assertNotIn("blocks.0.norm", names)
        block = points[names.index("blocks.1")]
        self.assertEqual((block.shape, block.bytes), ((16, 11, 11), 16 * 11 * 11 * 4))
        self.assertTrue(0 < points[0].compute < block.compute < 1)
        self.assertEqual(path_of(model, model.blocks[1]), "blocks.1")

    def test_freeze_points_are_the_modules_at_which_a_model_can_be_divided(self):
        def can_divide(model, module):
            try:
                return bool(suffix_of(model, module, EXAMPLE))
            except CannotDivide:
                return False

        def flops(module, x):
            with FlopCounterMode(display=False) as counter:
                module(x)
            return counter.get_total_flops()

        others = (Bypassing(), Tabled(), Pooled(), Positions(), InPlace(), WithLoss(), Branch(BRANCHES["large"]), DroppingInside(), Tied())
        for model in (small.network(), *others):
            with self.subTest(type(model).__name__):
                points = freeze_points(model.eval(), small.SIZE)
                listed = [point.module for point in points]
                self.assertEqual(listed, [path for path, _ in Calls(model, EXAMPLE).runs[0] if path and can_divide(model, path)])
                for point in points:
                    suffix = suffix_of(model, point.module, EXAMPLE)
                    self.assertEqual(point.shape, suffix.row_shape)
                    rest = flops(suffix, torch.zeros(2, *point.shape)) / flops(model, EXAMPLE)
                    self.assertAlmostEqual(point.compute, 1 - rest, delta=1e-3)

    def test_freeze_points_need_a_constant_number_of_passes(self):
        def passes(model):
            count = []
            model.stem.register_forward_hook(lambda *_: count.append(1))
            freeze_points(model, small.SIZE)
            return len(count)

        deep = small.network()
        deep.blocks.extend([small.Block(16) for _ in range(5)])
        self.assertEqual(passes(deep.eval()), passes(small.network()))

    def test_a_suffix_by_hand_is_held_against_the_model(self):
        model = small.network()

        class Suffix(torch.nn.Module):
            def __init__(self, first):
                super().__init__()
                self.blocks, self.head = model.blocks[first:], model.head

            def forward(self, x):
                return self.head(self.blocks(x).mean((2, 3)))

        divided(model, "blocks.1", Suffix(2))
        with self.assertRaisesRegex(ValueError, "off by"):
            divided(model, "blocks.1", Suffix(1))

        class Tuple(Suffix):
            def forward(self, x):
                return (super().forward(x),)

        with self.assertRaisesRegex(ValueError, "structure"):
            divided(model, "blocks.1", Tuple(2))

    def test_middles_join_splits_to_the_freeze_cut(self):
        _, exported, cut = divided(small.network())
        whole = network.run(network.piece(exported, network.INPUT, cut), EXAMPLE)
        for module in ("stem", "blocks.0"):
            split = network.cut(exported, module)
            before = network.run(network.piece(exported, network.INPUT, split), EXAMPLE)
            after = network.run(network.piece(exported, split, cut), before)
            self.assertLess(float((after - whole).abs().max()), 1e-5)
        self.assertEqual(network.cut(exported, cut), cut)


if __name__ == "__main__":
    unittest.main()
