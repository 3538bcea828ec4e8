"""Division of models into frozen layers for hosts and a suffix to train."""

import copy
import io
import unittest
import warnings

import torch

import bundled
import frostline
import small
from frostline.torch import _network as network
from frostline.torch._divide import CannotDivide, freeze_points, path_of, suffix_of
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


class Dropping(small.Network):
    """Stochastic depth as in timm, with an in-place operation whose result is unused, and functional dropout."""

    def forward(self, x):
        x = self.blocks(torch.nn.functional.dropout(self.stem(x), 0.1, self.training))
        if self.training:
            kept = x.new_empty((len(x), 1, 1, 1)).bernoulli_(0.5)
            kept.div_(0.5)
            x = x * kept
        return self.head(torch.nn.functional.dropout(x, 0.5, self.training).mean((2, 3)))


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
    network.check(model, layers, suffix, EXAMPLE)
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
