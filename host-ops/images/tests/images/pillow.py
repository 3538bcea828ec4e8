"""Reproduces torchvision's Resize(256) and CenterCrop(224) on Pillow images, using only Pillow.

Reads paths from standard input and writes 3x224x224 bytes per path to standard output.
"""
import sys

from PIL import Image

SHORT, CROP = 256, 224


def load(path):
    image = Image.open(path).convert("RGB")
    width, height = image.size
    if width <= height:
        size = SHORT, int(SHORT * height / width)
    else:
        size = int(SHORT * width / height), SHORT
    image = image.resize(size, Image.Resampling.BILINEAR)
    left, top = (int(round((side - CROP) / 2.0)) for side in size)
    crop = image.crop((left, top, left + CROP, top + CROP))
    return b"".join(channel.tobytes() for channel in crop.split())


for line in sys.stdin:
    sys.stdout.buffer.write(load(line.rstrip("\n")))
