"""Creates the demo's photos, photos/{train,validation}/<class>/<number>.jpg, from the photographs listed in sources.py.

    python3 models/zoo/demo/make_photos.py [--out FOLDER]

Training and validation patches are cut from disjoint regions of a photograph. Requires Pillow, NumPy and pip. The photos only depend on the
seed; with the same version of Pillow, the files are identical.
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
    """Writes a split and returns the number of bytes."""
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
        print(f"{split}: {count} photos, {total} bytes, {total // count} bytes per photo")


if __name__ == "__main__":
    main()
