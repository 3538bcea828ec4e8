"""Cuts patches out of a photograph with random rotation, scale and light."""

import math

import numpy
from PIL import Image, ImageEnhance, ImageFilter

LARGEST_TURN = 20.0


def footprint(side, degrees):
    """Returns the side of the bounding box of a square with side `side` rotated by `degrees`."""
    turn = math.radians(abs(degrees))
    return side * (math.cos(turn) + math.sin(turn))


def cut(photograph, box, sides, size, generator):
    """Returns a `size` x `size` patch from inside `box`. `sides` is the range of the source square's side, in pixels."""
    left, top, right, bottom = box
    degrees = generator.uniform(-LARGEST_TURN, LARGEST_TURN)
    largest = min(right - left, bottom - top) / footprint(1.0, degrees)
    side = generator.uniform(min(sides[0], largest), min(sides[1], largest))
    half = footprint(side, degrees) / 2.0
    x = generator.uniform(left + half, right - half)
    y = generator.uniform(top + half, bottom - half)
    return turned_square(photograph, (x, y), side, degrees, size, mirrored=generator.random() < 0.5)


def turned_square(photograph, center, side, degrees, size, mirrored):
    """Resamples the rotated square around `center` to `size` x `size` (bicubic, with double resolution first for downscaling)."""
    turn = math.radians(degrees)
    oversampled = size * 2 if side > size else size
    step = side / oversampled
    flip = -1.0 if mirrored else 1.0
    a, b = step * math.cos(turn) * flip, -step * math.sin(turn)
    d, e = step * math.sin(turn) * flip, step * math.cos(turn)
    middle = oversampled / 2.0
    offset_x = center[0] - a * middle - b * middle
    offset_y = center[1] - d * middle - e * middle
    coefficients = (a, b, offset_x, d, e, offset_y)
    patch = photograph.transform((oversampled, oversampled), Image.Transform.AFFINE, coefficients, Image.Resampling.BICUBIC)
    return patch if oversampled == size else patch.resize((size, size), Image.Resampling.BOX)


def relight(patch, generator):
    """Randomly changes brightness, contrast, saturation and color of the light, and adds a slight blur to half of the patches."""
    patch = ImageEnhance.Color(patch).enhance(generator.uniform(0.0, 1.1))
    patch = ImageEnhance.Contrast(patch).enhance(generator.uniform(0.6, 1.4))
    if generator.random() < 0.5:
        patch = patch.filter(ImageFilter.GaussianBlur(generator.uniform(0.2, 1.2)))
    pixels = numpy.asarray(patch, dtype=numpy.float32)
    pixels = pixels * generator.uniform(0.6, 1.4) * generator.uniform(0.75, 1.25, size=3)
    pixels = pixels + generator.uniform(-25.0, 25.0)
    return Image.fromarray(numpy.clip(pixels, 0, 255).astype(numpy.uint8))
