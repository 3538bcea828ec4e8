"""Modules divided at a module: what hosts get, and what is left to train."""

import copy
import unittest
import warnings

import torch

import small
from frostline.torch import _network as network
from frostline.torch._divide import CannotDivide, suffix_of

EXAMPLE = torch.randn(2, 3, small.SIZE, small.SIZE)


class Winding(small.Network):
    """torch.fx cannot follow it, torch.export can."""

    def forward(self, x):
        if x.shape[1] != 3:
            raise ValueError("three channels are wanted")
        return super().forward(x)


class Leaping(small.Network):
    """What follows the first block reads the images too."""

    def forward(self, x):
        return super().forward(x) + x.mean()


class Dropping(small.Network):
    """Training mode has operations that evaluation mode has not."""

    def forward(self, x):
        x = self.blocks(self.stem(x))
        if self.training:
            x = x * torch.bernoulli(torch.full_like(x[:, :1, :1, :1], 0.5))
        return self.head(torch.nn.functional.dropout(x, 0.5, self.training).mean((2, 3)))


class Stubborn(small.Network):
    """torch.fx can follow it in evaluation mode alone."""

    def forward(self, x):
        x = self.stem(x)
        return super().forward(x) if self.training and x.sum() > 0 else self.head(self.blocks(x).mean((2, 3)))


class Asking(small.Network):
    """Neither can follow this."""

    def forward(self, x):
        return super().forward(x) if x.sum().item() > 0 else super().forward(-x)


def divided(model, module="blocks.1", suffix=None):
    suffix = suffix or suffix_of(model, module, EXAMPLE)
    exported = network.export(model, EXAMPLE)
    cut = network.cut(exported, module)
    layers = network.piece(exported, network.INPUT, cut)
    network.check(model, layers, suffix, EXAMPLE)
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

    def test_a_mode_that_cannot_be_followed_is_told(self):
        with self.assertWarnsRegex(UserWarning, "evaluation mode: .* training mode"):
            divided(Stubborn())

    def test_every_module_that_gives_one_tensor_is_a_cut(self):
        for module in ("stem.0", "blocks"):
            divided(small.network(), module)

    def test_what_fx_cannot_follow_is_exported(self):
        model = Winding().eval()
        with self.assertWarnsRegex(UserWarning, "evaluation mode"):
            suffix, _, _ = divided(model)
        self.assert_shared(suffix, model)

    def test_what_cannot_be_divided_says_why(self):
        for model, module, why in (
            (Leaping(), "blocks.1", "reads the model's input 'x' too"),
            (Asking(), "blocks.1", "neither by torch.fx .* nor by torch.export .* suffix="),
            (small.network(), "blocks.7", "calls no module 'blocks.7'"),
        ):
            with self.assertRaisesRegex(CannotDivide, why):
                suffix_of(model.eval(), module, EXAMPLE)
        with self.assertRaisesRegex(ValueError, "it has stem, .*blocks.1.norm"):
            divided(small.network(), "blocks.7", torch.nn.Identity())

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
