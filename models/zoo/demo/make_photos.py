"""Makes the demo's photos: photos/{train,validation}/<class>/<number>.jpg, cut from the photographs that sources.py names.

    python3 models/zoo/demo/make_photos.py [--out FOLDER]

Training and validation patches come from disjoint regions of each photograph. Needs Pillow, NumPy and pip. The same seed gives the same
photos, to the byte with the same Pillow.
"""

import argparse
import pathlib

import numpy

import patches
import sources

SEED = 20261121
PER_CLASS = {"train": 24, "validation": 12}
PIXELS = 192
JPEG_QUALITY = 88


def make_split(root, split, region, generator):
    """Writes one split; returns its bytes."""
    total = 0
    for name, regions in sources.TASK.items():
        photograph = sources.load(name)
        folder = root / split / name
        folder.mkdir(parents=True, exist_ok=True)
        scale = max(1.0, min(photograph.size) / 512)
        for number in range(PER_CLASS[split]):
            patch = patches.cut(photograph, regions[region], (88 * scale, 176 * scale), PIXELS, generator)
            path = folder / f"{number:02}.jpg"
            patches.relight(patch, generator).save(path, quality=JPEG_QUALITY, optimize=True)
            total += path.stat().st_size
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "photos")
    root = parser.parse_args().out
    for region, split in enumerate(PER_CLASS):
        generator = numpy.random.default_rng([SEED, region])
        total = make_split(root, split, region, generator)
        count = PER_CLASS[split] * len(sources.TASK)
        print(f"{split}: {count} photos, {total} bytes, {total // count} a photo")


if __name__ == "__main__":
    main()
