"""Recipes of all image processors of transformers and all configurations of timm, compared with the libraries."""

import dataclasses
import importlib.util
import inspect
import json
import math
import pathlib
import unittest

import numpy
import transformers
from PIL import Image

from frostline.torch import pixels_of

RESAMPLING = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3}
VARIANTS = (
    {},
    {"size": 240},
    {"size": {"shortest_edge": 224}},
    {"size": {"height": 250, "width": 250}, "do_center_crop": True, "crop_size": 224},
    {"do_center_crop": True, "crop_size": {"height": 192, "width": 192}},
    {"do_normalize": False},
    {"do_rescale": False},
    {"rescale_factor": 1 / 127.5, "rescale_offset": True},
    {"include_top": False},
    {"crop_pct": 0.8, "size": 200},
    {"resample": 1},
)
"""Settings of processors. Classes ignore those that they do not have."""


def photo(width, height):
    draw = numpy.random.default_rng(width)
    small = draw.integers(0, 256, (height // 8, width // 8, 3), dtype=numpy.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


PHOTOS = (photo(500, 375), photo(375, 601))


def resized(recipe, image):
    """Width and height after the resize."""
    resize, height, width = recipe["resize"], recipe["crop_height"], recipe["crop_width"]
    width, height = image.size if recipe.get("resize_mode", "short") == "short" else (width, height)
    short = min(width, height)
    return resize * width // short, resize * height // short


def applied(recipe, image, rounded):
    """Preprocess an image as a host does, with another rounding of the crop's position."""
    height, width = recipe["crop_height"], recipe["crop_width"]
    image = image.resize(resized(recipe, image), RESAMPLING[recipe.get("interpolation", "bilinear")])
    left, top = rounded((image.width - width) / 2), rounded((image.height - height) / 2)
    pixels = numpy.asarray(image.crop((left, top, left + width, top + height)), "float64") / 255
    pixels = pixels[:, :, ::-1] if recipe.get("channels") == "bgr" else pixels
    return ((pixels - recipe["mean"]) / recipe["std"]).transpose(2, 0, 1)


def classes():
    """Yield the names and classes of all image processors."""
    folder = pathlib.Path(transformers.__file__).parent
    for file in sorted(folder.glob("models/*/image_processing_*.py")):
        if file.stem == "image_processing_auto":
            continue
        module = importlib.import_module(f"transformers.models.{file.parent.name}.{file.stem}")
        for name in getattr(module, "__all__", ()):
            found = getattr(module, name)
            if inspect.isclass(found) and issubclass(found, transformers.image_processing_utils.BaseImageProcessor):
                yield name, found


def created(class_, **settings):
    """A processor, or `None` if the class needs other packages or further settings, or refuses these."""
    try:
        return class_(**settings)
    except (ImportError, TypeError, ValueError, KeyError, AttributeError):
        return None


def values(processor, image):
    """The input of the network, or `None` if it is not a single image."""
    try:
        features = processor(image)
    except (ImportError, TypeError, ValueError, KeyError, AttributeError, AssertionError):
        return None
    pixels = numpy.asarray(features["pixel_values"][0], "float64")
    return pixels if pixels.ndim == 3 else None


class Processors(unittest.TestCase):
    def check(self, processor, recipe, what):
        recipe = json.loads(recipe)
        for image in PHOTOS:
            theirs = values(processor, image)
            if theirs is None:
                continue
            # Hosts and torchvision round the position of the crop, transformers rounds it down.
            ours = applied(recipe, image, math.floor)
            self.assertEqual(ours.shape, theirs.shape, what)
            # In units of bytes. The resize of torchvision rounds differently from that of Pillow.
            difference = abs(ours - theirs) * numpy.reshape(recipe["std"], (3, 1, 1)) * 255
            self.assertLess(difference.mean(), 0.5, what)

    def test_each_class_is_followed_or_refused_by_name(self):
        transformers.logging.set_verbosity_error()
        followed = set()
        for name, class_ in classes():
            processor = created(class_)
            if processor is None:
                continue
            config = json.loads(processor.to_json_string())
            try:
                recipe = pixels_of(config)
            except ValueError as error:
                self.assertRegex(str(error), f"{name.removesuffix('Pil')}|crop", name)
                continue
            followed.add(name.removesuffix("Pil"))
            self.check(processor, recipe, name)
            with self.subTest(name):
                self.assertEqual(pixels_of({"image_processor_type": name}), recipe, "other defaults")
        self.assertGreaterEqual(len(followed), 30, followed)
        self.assertLessEqual({"ViTImageProcessor", "CLIPImageProcessor", "ConvNextImageProcessor", "EfficientNetImageProcessor"}, followed)

    def test_settings_have_the_meaning_of_the_class(self):
        followed = 0
        for name, class_ in classes():
            for settings in VARIANTS:
                try:
                    recipe = pixels_of({"image_processor_type": name} | settings)
                except ValueError:
                    continue
                processor = created(class_, **settings)
                if processor is not None:
                    followed += 1
                    with self.subTest(name, **settings):
                        self.check(processor, recipe, name)
        self.assertGreater(followed, 300)

    @unittest.skipUnless(importlib.util.find_spec("timm"), "timm is not installed")
    def test_configurations_of_timm(self):
        from timm.data import create_transform, resolve_data_config
        from timm.models import _registry

        followed = 0
        for name, config in _registry._model_pretrained_cfgs.items():
            resolved = resolve_data_config(pretrained_cfg=dataclasses.asdict(config))
            for stated in (config.to_dict(), {"architecture": name, "pretrained_cfg": dataclasses.asdict(config)}):
                if resolved["crop_pct"] > 1:
                    self.assertRaisesRegex(ValueError, "crop .* larger", pixels_of, stated)
                    continue
                recipe = json.loads(pixels_of(stated))
                resize, crop, *_, normalize = create_transform(**resolved).transforms
                if resolved["crop_mode"] == "center":
                    self.assertEqual(resize.size, recipe["resize"], name)
                else:
                    self.assertEqual(tuple(resize.size), resized(recipe, None)[::-1], name)
                self.assertEqual(tuple(crop.size), (recipe["crop_height"], recipe["crop_width"]), name)
                modes = {"center": "short", "squash": "squash", "border": "pad"}
                self.assertEqual(recipe.get("resize_mode", "short"), modes[resolved["crop_mode"]], name)
                self.assertEqual(recipe.get("fill", [0, 0, 0]), list(getattr(crop, "fill", [0, 0, 0])), name)
                self.assertEqual(recipe.get("interpolation", "bilinear"), resize.interpolation.value, name)
                numpy.testing.assert_allclose(recipe["mean"], normalize.mean, rtol=1e-6)
                numpy.testing.assert_allclose(recipe["std"], normalize.std, rtol=1e-6)
                followed += 1
        self.assertGreater(followed, 2000)


if __name__ == "__main__":
    unittest.main()
