"""Converts photos to network input with Pillow and NumPy. This is the reference for the Rust implementation.

The recipe is the same as in torchvision: resize the short side (bilinear, antialiased), crop the center, scale to 0..1, subtract mean, divide by std.
"""

import json
import pathlib
import sys

import numpy
from PIL import Image

METADATA_KEY = "frostline.pixels"
IMAGENET = {
    "resize": 256,
    "crop_height": 224,
    "crop_width": 224,
    "mean": [0.485, 0.456, 0.406],
    "std": [0.229, 0.224, 0.225],
}


def spec_of(session):
    """Returns the pixel spec in the model's metadata, by default ImageNet's for 224 x 224."""
    text = session.get_modelmeta().custom_metadata_map.get(METADATA_KEY)
    return json.loads(text) if text else IMAGENET


def load(path, spec):
    """Returns the photo as f32[3, crop_height, crop_width]."""
    image = Image.open(path).convert("RGB")
    short = min(image.size)
    width, height = (int(spec["resize"] * side / short) for side in image.size)
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    left = int(round((width - spec["crop_width"]) / 2.0))
    top = int(round((height - spec["crop_height"]) / 2.0))
    image = image.crop((left, top, left + spec["crop_width"], top + spec["crop_height"]))
    pixels = numpy.asarray(image, dtype=numpy.float32) / 255.0
    normalized = (pixels - numpy.float32(spec["mean"])) / numpy.float32(spec["std"])
    return normalized.transpose(2, 0, 1)


def list_split(root, split):
    """Returns paths, labels and class names of the images in <root>/<split>/<class>/. Classes and photos are sorted by name."""
    folder = pathlib.Path(root) / split
    if not folder.is_dir():
        sys.exit(f"{folder} is not a folder; store photos in <root>/{split}/<class>/*.jpg")
    classes = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    paths, labels = [], []
    for label, name in enumerate(classes):
        for path in sorted((folder / name).iterdir()):
            if path.suffix.lower() in (".jpg", ".jpeg", ".png"):
                paths.append(path)
                labels.append(label)
    return paths, numpy.array(labels), classes


def run(session, paths, spec, batch=32, output=None):
    """Returns the session's output for all photos, in order. `output` selects the output by name, by default the first."""
    name = session.get_inputs()[0].name
    wanted = [output or session.get_outputs()[0].name]
    rows = []
    for start in range(0, len(paths), batch):
        images = numpy.stack([load(path, spec) for path in paths[start : start + batch]])
        rows.append(session.run(wanted, {name: images})[0])
    return numpy.concatenate(rows)
