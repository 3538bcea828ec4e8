"""Recipes of other libraries as hosts follow them."""

import json
import types
import unittest

import torch

import frostline
from frostline.torch import pixels_of
from frostline.torch._pixels import warn_of
from frostline.torch._pushdown import _check_head

TIMM = {"input_size": (3, 224, 224), "crop_pct": 0.875, "interpolation": "bilinear", "mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
PROCESSOR = {
    "size": {"shortest_edge": 256},
    "do_center_crop": True,
    "crop_size": {"height": 224, "width": 224},
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "resample": 2,
}
HALVES = frostline.pixels(256, 224, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


class Recipes(unittest.TestCase):
    def test_each_library_states_the_same(self):
        weights = types.SimpleNamespace(resize_size=[256], crop_size=[224], interpolation="bilinear", mean=[0.5] * 3, std=[0.5] * 3)
        for source in (TIMM, types.SimpleNamespace(pretrained_cfg=TIMM), PROCESSOR, weights):
            self.assertEqual(json.loads(pixels_of(source)), json.loads(HALVES))

    def test_what_hosts_cannot_follow_is_refused_by_name(self):
        bicubic = TIMM | {"interpolation": "bicubic"}
        with self.assertRaisesRegex(ValueError, "bicubic"):
            pixels_of(bicubic)
        self.assertEqual(pixels_of(bicubic, interpolation="bilinear"), HALVES)
        for source, words in (
            (PROCESSOR | {"size": {"height": 224, "width": 224}}, "without a crop"),
            (PROCESSOR | {"rescale_factor": 1 / 127.5}, "scaled by 1/255"),
            (PROCESSOR | {"resample": 3}, "bicubic"),
            (TIMM | {"crop_mode": "squash"}, "squash"),
            (torch.nn.Identity(), "Identity"),
        ):
            with self.assertRaisesRegex(ValueError, words):
                pixels_of(source)

    def test_a_model_that_states_another_recipe_is_warned_of(self):
        model = torch.nn.Identity()
        self.assertIsNone(warn_of(model, 224))
        model.pretrained_cfg = TIMM
        self.assertIn("pass pixels=", warn_of(model, 224))
        model.pretrained_cfg = TIMM | {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
        self.assertIsNone(warn_of(model, 224))


class Heads(unittest.TestCase):
    def test_a_head_of_too_few_outputs_is_refused(self):
        model, example = torch.nn.Linear(4, 8), torch.zeros(2, 4)
        _check_head(model, example, 8)
        with self.assertRaisesRegex(ValueError, "8 outputs, the data 9 classes"):
            _check_head(model, example, 9)
        with self.assertWarnsRegex(UserWarning, "other classes"):
            _check_head(model, example, 2)


if __name__ == "__main__":
    unittest.main()
