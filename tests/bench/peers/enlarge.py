"""Enlarges photos to the file size of ImageNet's. Needs Pillow."""

import io

from PIL import Image

TARGET_BYTES = 110_000
# The available photos are 400 pixels wide. The mean size in ImageNet is 469 x 387.
SHORT_SIDES = [round(400 * 1.07**step) for step in range(16)]
QUALITY = 98


def encoded(photo, short_side, quality=QUALITY):
    """Returns the photo as JPEG with this short side in pixels."""
    scale = short_side / min(photo.size)
    scaled = photo.resize([round(side * scale) for side in photo.size], Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    scaled.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def enlarged(file):
    """Returns the photo as JPEG, enlarged to about TARGET_BYTES."""
    photo = Image.open(file).convert("RGB")
    tried = []
    for short_side in SHORT_SIDES:
        tried.append(encoded(photo, short_side))
        if len(tried[-1]) >= TARGET_BYTES:
            break
    return min(tried, key=lambda data: abs(len(data) - TARGET_BYTES))
