"""Reproduces preprocessing by timm, transformers and torchvision on Pillow images, using only Pillow.

Reads lines of JSON {"path", "library", "config"} from standard input. For each line, writes 3 x height x width bytes to standard output, which
are the pixels before scaling and normalization.
"""
import json
import math
import sys

from PIL import Image

NAMES = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}


def by_short_side(image, short, resample):
    width, height = image.size
    if width <= height:
        size = short, int(short * height / width)
    else:
        size = int(short * width / height), short
    return image.resize(size, resample)


def center(image, height, width):
    left = int(round((image.width - width) / 2.0))
    top = int(round((image.height - height) / 2.0))
    return image.crop((left, top, left + width, top + height))


def timm(image, config):
    """Equal to `transforms_imagenet_eval`."""
    _, height, width = config["input_size"]
    resample = Image.Resampling[config["interpolation"].upper()]
    scale = math.floor(height / config["crop_pct"]), math.floor(width / config["crop_pct"])
    mode = config.get("crop_mode", "center")
    if mode == "squash":
        image = image.resize((scale[1], scale[0]), resample)
    elif mode == "border":
        ratio = max(image.height / scale[0], image.width / scale[1])
        image = image.resize((round(image.width / ratio), round(image.height / ratio)), resample)
        canvas = Image.new("RGB", (max(width, image.width), max(height, image.height)), tuple(round(255 * v) for v in config["mean"]))
        canvas.paste(image, (max(0, (width - image.width) // 2), max(0, (height - image.height) // 2)))
        image = canvas
    else:
        image = by_short_side(image, scale[0], resample)
    return center(image, height, width)


def transformers(image, config):
    size, crop = config["size"], config.get("crop_size")
    resample = Image.Resampling[NAMES[config["resample"]].upper()]
    if "shortest_edge" in size and "crop_pct" in config:
        # Equal to ConvNextImageProcessor.
        short = size["shortest_edge"]
        if short >= 384:
            return image.resize((short, short), resample)
        return center(by_short_side(image, int(short / config["crop_pct"]), resample), short, short)
    if "shortest_edge" in size:
        image = by_short_side(image, size["shortest_edge"], resample)
    else:
        image = image.resize((size["width"], size["height"]), resample)
    return center(image, crop["height"], crop["width"]) if config.get("do_center_crop") else image


def torchvision(image, config):
    """Equal to `ImageClassification`."""
    resample = Image.Resampling[config["interpolation"].upper()]
    return center(by_short_side(image, config["resize_size"], resample), config["crop_size"], config["crop_size"])


for line in sys.stdin:
    asked = json.loads(line)
    pixels = globals()[asked["library"]](Image.open(asked["path"]).convert("RGB"), asked["config"])
    sys.stdout.buffer.write(b"".join(channel.tobytes() for channel in pixels.split()))
