"""Conversion of the preprocessing of other libraries to recipes."""

import importlib.util
import json
import types
import unittest
import warnings

import torch

import frostline
from frostline.torch import pixels_of
from frostline.torch._pixels import chosen
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
CONVNEXT = {"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 224}, "crop_pct": 0.875, "do_center_crop": False}
HALVES = frostline.pixels(256, 224, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


class Recipes(unittest.TestCase):
    def test_each_library_states_the_same(self):
        weights = types.SimpleNamespace(resize_size=[256], crop_size=[224], interpolation="bilinear", mean=[0.5] * 3, std=[0.5] * 3)
        for source in (TIMM, types.SimpleNamespace(pretrained_cfg=TIMM), PROCESSOR, weights):
            self.assertEqual(json.loads(pixels_of(source)), json.loads(HALVES))

    def test_interpolation_and_modes_are_said(self):
        def said(source):
            return {name: value for name, value in json.loads(pixels_of(source)).items() if name not in ("mean", "std")}

        square = {"crop_height": 224, "crop_width": 224}
        sides = {"height": 224, "width": 224}
        for source, expected in (
            (TIMM | {"interpolation": "bicubic", "crop_pct": 0.9}, {"resize": 248, "interpolation": "bicubic"}),
            (TIMM | {"crop_mode": "squash", "crop_pct": 1.0}, {"resize": 224, "resize_mode": "squash"}),
            (TIMM | {"crop_mode": "border", "crop_pct": 1.0}, {"resize": 224, "resize_mode": "pad", "fill": [128, 128, 128]}),
            (PROCESSOR | {"resample": 3}, {"resize": 256, "interpolation": "bicubic"}),
            (PROCESSOR | {"size": sides, "do_center_crop": False}, {"resize": 224, "resize_mode": "squash"}),
            (PROCESSOR | CONVNEXT, {"resize": 256}),
            (PROCESSOR | {"do_pad": None, "crop_pct": None, "data_format": None}, {"resize": 256}),
            (PROCESSOR | {"do_flip_channel_order": True}, {"resize": 256, "channels": "bgr"}),
        ):
            self.assertEqual(said(source), square | expected)
        bytes_of = json.loads(pixels_of(PROCESSOR | {"do_rescale": False, "image_std": [1.0] * 3}))
        self.assertAlmostEqual(bytes_of["std"][0], 1 / 255)

    def test_unsupported_preprocessing_is_refused_by_name(self):
        box = TIMM | {"interpolation": "box"}
        with self.assertRaisesRegex(ValueError, "box"):
            pixels_of(box)
        self.assertEqual(pixels_of(box, interpolation="bilinear"), HALVES)
        for source, words in (
            (PROCESSOR | {"do_center_crop": False}, "without a crop"),
            (PROCESSOR | {"resample": 5}, "hamming"),
            (PROCESSOR | {"do_pad": True}, "do_pad"),
            (PROCESSOR | {"image_processor_type": "NoImageProcessor"}, "NoImageProcessor"),
            (TIMM | {"crop_mode": "five"}, "five"),
            (torch.nn.Identity(), "Identity"),
        ):
            with self.assertRaisesRegex(ValueError, words):
                pixels_of(source)

    def test_texts_that_are_no_recipe_are_refused(self):
        model = torch.nn.Identity()
        for text in ("bilinear", "{}", "[256]", '{"crop_height": 224}', HALVES.replace("224", "0")):
            with self.assertRaisesRegex(ValueError, "is not a recipe .*create a recipe with frostline.pixels"):
                chosen(text, model, None)
        self.assertEqual(chosen(HALVES, model, None), HALVES)
        self.assertEqual(json.loads(chosen(json.dumps(PROCESSOR), model, None)), json.loads(HALVES))

    def test_a_models_own_recipe_is_taken_and_none_is_warned_of(self):
        model = torch.nn.Identity()
        with self.assertWarnsRegex(UserWarning, "states no preprocessing"):
            self.assertIsNone(chosen(None, model, 224))
        model.pretrained_cfg = TIMM | {"interpolation": "bicubic"}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertIn("bicubic", chosen(None, model, 224))
            self.assertEqual(json.loads(chosen(None, model, 448))["resize"], 512)
            self.assertEqual(chosen(HALVES, model, 224), HALVES)
            self.assertEqual(chosen(PROCESSOR, model, 224), HALVES)
        model.pretrained_cfg = TIMM | {"input_size": (3, 518, 518), "crop_pct": 1.0}
        for size, crop in ((None, 518), (224, 224), (448, 448)):
            self.assertEqual(json.loads(chosen(None, model, size))["crop_height"], crop)
        model.patch_embed = types.SimpleNamespace(strict_img_size=True, img_size=(224, 224))
        self.assertEqual(json.loads(chosen(None, model, None))["crop_height"], 224)
        model.patch_embed.strict_img_size = False
        self.assertEqual(json.loads(chosen(None, model, None))["crop_height"], 518)
        model.pretrained_cfg = TIMM | {"interpolation": "random"}
        with self.assertWarnsRegex(UserWarning, "is not supported"):
            self.assertIsNone(chosen(None, model, 224))


@unittest.skipUnless(importlib.util.find_spec("torchvision"), "torchvision is not installed")
class Torchvision(unittest.TestCase):
    def test_weights_state_their_recipe(self):
        from torchvision.models import ResNet18_Weights, ViT_B_16_Weights

        weights = ResNet18_Weights.DEFAULT
        for source in (weights, weights.transforms, weights.transforms()):
            self.assertEqual(pixels_of(source), frostline.pixels())
            self.assertEqual(chosen(source, torch.nn.Identity(), None), frostline.pixels())
        self.assertEqual(json.loads(pixels_of(ViT_B_16_Weights.IMAGENET1K_SWAG_E2E_V1))["interpolation"], "bicubic")
        with self.assertRaisesRegex(ValueError, "class ResNet18_Weights; pass ResNet18_Weights.DEFAULT"):
            pixels_of(ResNet18_Weights)
        with self.assertRaisesRegex(ValueError, "pass an object of the class ImageClassification"):
            pixels_of(type(weights.transforms()))

    def test_a_compose_of_known_transforms_is_converted(self):
        from torchvision import transforms as v1
        from torchvision.transforms import InterpolationMode, v2

        half = ([0.5] * 3, [0.5] * 3)
        for steps, recipe in (
            ([v1.Resize(256), v1.CenterCrop(224), v1.ToTensor(), v1.Normalize(*half)], HALVES),
            ([v2.Resize(256), v2.CenterCrop(224), v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(*half)], HALVES),
            ([v2.ToImage(), v2.Resize([256]), v2.CenterCrop((224, 224)), v2.ToDtype(torch.float32, scale=True), v2.Normalize(*half)], HALVES),
            ([v1.Resize(256), v1.CenterCrop(224), v1.PILToTensor(), v1.ConvertImageDtype(torch.float), v1.Normalize(*half)], HALVES),
            ([v1.Resize((224, 224)), v1.ToTensor(), v1.Normalize(*half)], frostline.pixels(224, 224, *half, resize_mode="squash")),
            (
                [v1.Resize((128, 256), InterpolationMode.BICUBIC), v1.CenterCrop((64, 128)), v1.ToTensor()],
                frostline.pixels(128, (64, 128), (0.0,) * 3, (1.0,) * 3, interpolation="bicubic", resize_mode="squash"),
            ),
        ):
            with self.subTest(steps=steps):
                self.assertEqual(json.loads(pixels_of(v2.Compose(steps))), json.loads(recipe))
        bicubic = pixels_of(v1.Compose([v1.Resize(256), v1.CenterCrop(224), v1.ToTensor()]), interpolation="bicubic")
        self.assertEqual(json.loads(bicubic)["interpolation"], "bicubic")

    def test_other_transforms_are_refused_by_name(self):
        from torchvision import transforms as v1
        from torchvision.transforms import v2

        crop, normalize = v1.CenterCrop(224), v1.Normalize([0.5] * 3, [0.5] * 3)
        for steps, why in (
            ([v1.RandomResizedCrop(224), v1.ToTensor(), normalize], "RandomResizedCrop.*pass random transforms with augment="),
            ([v1.Resize(256), crop, v1.RandomHorizontalFlip(), v1.ToTensor()], "RandomHorizontalFlip"),
            ([v1.Resize(256), crop, normalize, v1.ToTensor()], "ToTensor.*in this Compose"),
            ([crop, v1.Resize(256), v1.ToTensor()], "Resize.*in this Compose"),
            ([v1.Resize(300), v1.Resize(256), crop, v1.ToTensor()], "Resize.*in this Compose"),
            ([v1.Resize(256), crop, v2.ToImage(), v2.ToDtype(torch.float32)], "ToDtype.*in this Compose"),
            ([v1.Resize(256), crop, v2.ToImage()], "this Compose has no ToTensor"),
            ([crop, v1.ToTensor()], "this Compose has no Resize"),
            ([v1.Resize(256), v1.ToTensor()], "without a CenterCrop"),
            ([v1.Resize((256, 512)), crop, v1.ToTensor()], "ratios of their sides differ"),
            ([v1.Resize(256, v1.InterpolationMode.NEAREST_EXACT), crop, v1.ToTensor()], "interpolation 'nearest-exact'; pass pixels_of"),
            ([v1.Resize(256, max_size=300), crop, v1.ToTensor()], "max_size"),
        ):
            with self.subTest(steps=steps), self.assertRaisesRegex(ValueError, f"(?s){why}"):
                pixels_of(v1.Compose(steps))


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
