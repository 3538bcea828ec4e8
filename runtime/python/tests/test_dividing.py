"""Division of models into frozen layers for hosts and a suffix to train."""

import contextlib
import copy
import functools
import io
import unittest
import warnings

import torch
from torch.utils.flop_counter import FlopCounterMode

import networks
import small
from frostline.torch import CannotDivide, freeze_points
from frostline.torch import _network as network
from frostline.torch._divide import Calls, _verified, path_of, suffix_of
from frostline.torch._frozen import FrozenLayers
from frostline.torch._stages import Stages

EXAMPLE = torch.randn(2, 3, small.SIZE, small.SIZE)


def setUpModule():
    # Several threads take longer for networks of this size.
    torch.set_num_threads(1)


@functools.cache
def exported_network():
    """Return the export of `small.network()`, which is the same for all its copies."""
    return network.export(small.network(), EXAMPLE)


def divided(model, module="blocks.1", suffix=None):
    """Divide a model and its export, and compare them with the model."""
    suffix = suffix or suffix_of(model, module, EXAMPLE)
    exported = exported_network() if type(model) is small.Network else network.export(model, EXAMPLE)
    cut = network.cut(exported, module)
    layers = network.piece(exported, network.INPUT, cut)
    network.check(model, layers, suffix, EXAMPLE, module)
    return suffix, exported, cut


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
        suffix = suffix_of(networks.Pooled(), "blocks", EXAMPLE)
        self.assertEqual(list(map(len, suffix.row_shapes)), [1])

    def test_modes_mean_what_they_do_in_the_model(self):
        model = networks.Dropping().train()
        model.stem.eval()
        suffix = suffix_of(model, "blocks.1", EXAMPLE)
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
        for model, module in (networks.Dropping().train(), "blocks.1"), (networks.DroppingInside().train(), "blocks.blocks.1"):
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
        for model in (networks.Branching(), networks.InPlace(), networks.Tabled()):
            suffix, _, _ = divided(model.train())
            names = [name for name, _ in suffix.named_parameters()]
            self.assertEqual("table.weight" in names, isinstance(model, networks.Tabled))
            self.assertTrue(model.training)

    def test_parameters_that_only_earlier_layers_read_are_not_trained(self):
        model = networks.Positions()
        suffix, _, _ = divided(model)
        names = dict(suffix.named_parameters())
        self.assertNotIn("positions", names)
        self.assertIs(names["scale"], model.scale)
        self.assertNotIn("positions", suffix.state_dict())
        self.assertTrue(all(parameter.requires_grad for parameter in model.parameters()))

    def test_arguments_and_outputs_are_the_models(self):
        model = networks.WithLoss()
        suffix, _, _ = divided(model)
        images, labels = torch.randn(5, 3, small.SIZE, small.SIZE), torch.arange(5)
        expected = model.eval()(images, labels=labels)
        rows = model.blocks[1](model.blocks[0](model.stem(images)))
        output = suffix.eval()(rows, labels=labels)
        torch.testing.assert_close(output, expected)
        output["loss"].backward()
        self.assertIsNotNone(model.head.weight.grad)

    def test_verifying_leaves_the_model_as_it_was(self):
        model = networks.Dropping().train()
        before = {name: value.clone() for name, value in model.state_dict().items()}
        divided(model)
        torch.testing.assert_close(dict(model.state_dict()), before, rtol=0, atol=0)
        self.assertTrue(all(parameter.grad is None for parameter in model.parameters()))

    def test_a_suffix_is_copied_and_saved(self):
        suffix = suffix_of(networks.Positions(), "blocks.1", EXAMPLE)
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

        for model in (small.network(), networks.Tied()):
            suffix = suffix_of(model.eval(), "blocks.1", EXAMPLE)
            rows, file = torch.randn(3, 16, 11, 11), io.BytesIO()
            torch.save(suffix.eval(), file)
            self.assertTrue(content(model.head.weight) in file.getvalue())
            self.assertFalse(content(model.blocks[0].convolution.weight) in file.getvalue())
            if isinstance(model, networks.Tied):
                self.assertTrue(content(model.first.convolution.weight) in file.getvalue())
            file.seek(0)
            loaded = torch.load(file, weights_only=False)
            self.assertTrue(torch.equal(loaded(rows), suffix(rows)))
            self.assertEqual(loaded.state_dict().keys(), suffix.state_dict().keys())
            self.assertEqual(loaded.blocks[0].convolution.weight.shape, model.blocks[0].convolution.weight.shape)

    def test_branches_on_images_are_refused(self):
        for name, condition in networks.BRANCHES.items():
            with self.subTest(name):
                model = networks.Branch(condition)
                with self.assertRaisesRegex(CannotDivide, "'blocks.1' also reads values that do not pass through it"):
                    suffix_of(model, "blocks.1", EXAMPLE)
                torch.nn.init.zeros_(model.head.weight)
                torch.nn.init.zeros_(model.head.bias)
                with self.assertRaisesRegex(CannotDivide, "also reads values"):
                    suffix_of(model, "blocks.1", EXAMPLE)

    def test_activations_that_depend_on_the_batch_are_refused(self):
        for layer in (torch.nn.BatchNorm2d(16, track_running_stats=False), networks.Centering()):
            model = networks.depending_on_the_batch(layer)
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
            (networks.Bypassing(), "blocks.1", "'blocks.1' also reads values that do not pass through it"),
            (networks.BypassingInTraining(), "blocks.1", "in training mode"),
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
        with self.assertRaisesRegex(ValueError, "has no module '0', because"):
            network.cut(network.export(model, EXAMPLE), "0")
        frozen = FrozenLayers(model, "0", suffix, EXAMPLE, None, Stages(False, 1))
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
        def suffixes(model):
            """Return the verified suffixes of all modules with a single tensor at the cut, in the order in which the modules finish."""
            calls, found = Calls(model, EXAMPLE), {}
            for path in filter(None, calls.paths[0]):
                with contextlib.suppress(CannotDivide):
                    found[path], _ = _verified(calls, [path], EXAMPLE)
            return {path: suffix for path, suffix in found.items() if len(suffix.points) == 1}

        def flops(module, x):
            with FlopCounterMode(display=False) as counter:
                module(x)
            return counter.get_total_flops()

        kinds = ("Bypassing", "Tabled", "Pooled", "Positions", "InPlace", "WithLoss", "DroppingInside", "Tied")
        others = [getattr(networks, kind)() for kind in kinds]
        for model in (small.network(), *others, networks.Branch(networks.BRANCHES["large"])):
            with self.subTest(type(model).__name__):
                points, expected, total = freeze_points(model.eval(), small.SIZE), suffixes(model), flops(model, EXAMPLE)
                self.assertEqual([point.module for point in points], list(expected))
                for point in points:
                    suffix = expected[point.module]
                    self.assertEqual((point.shape,), suffix.row_shapes)
                    rest = flops(suffix, torch.zeros(2, *point.shape)) / total
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
