"""Decodes JPEGs with libjpeg-turbo, and with nvJPEG on a GPU, for the benchmark `decode`.

    python decode.py --photos FOLDER --out FOLDER --count 48 [--device cuda:0]

Prints a JSON line with the files of each set of photos, which are written to --out: `110kb`, and `large` with a short side of 1,024 pixels. Then
answers lines on standard input with a JSON line of images per second. On one thread, these are seconds of CPU time:

    SET decode        Pillow on one thread, RGB pixels of the whole photo
    SET torchvision   torchvision's decoder on one thread, likewise
    SET pixels        decoding by Pillow, and the recipe: short side 256, center 224 x 224
    SET scaled        the same, with scaling in the DCT domain (`draft`) if the short side remains at least 256
    SET all_cores     `pixels` in a process per core
    SET gpu           decoding by nvJPEG in batches of 64, or null without a GPU

`SET accuracy FILE` writes the pixels of all photos to FILE, and compares those of `scaled` with them. Needs torch, torchvision, numpy, Pillow.
"""

import argparse
import io
import json
import multiprocessing
import os
import pathlib
import sys
import time

import numpy
import torch
from PIL import Image
from torchvision.io import ImageReadMode, decode_jpeg

from enlarge import encoded, enlarged

RESIZE, CROP = 256, 224
GPU_BATCH = 64
LARGE_SIDE, LARGE_QUALITY = 1024, 90


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--count", type=int, default=48, help="photos per set")
    parser.add_argument("--device", default="cpu")
    return parser.parse_args()


def prepare(photos, out, count):
    """Writes the photos of both sets. Returns the files by set."""
    found = sorted(path for path in photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
    sets = {"110kb": [], "large": []}
    for number, file in enumerate(found[:: max(1, len(found) // count)][:count]):
        photo = Image.open(file).convert("RGB")
        for name, data in (("110kb", enlarged(file)), ("large", encoded(photo, LARGE_SIDE, LARGE_QUALITY))):
            sets[name].append(out / f"{name}-{number}.jpg")
            sets[name][-1].write_bytes(data)
    return sets


def decode(data):
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


def recipe(image):
    """Resizes and crops like torchvision."""
    short = min(image.size)
    resized = image.resize([RESIZE * side // short for side in image.size], Image.Resampling.BILINEAR)
    left, top = (round((side - CROP) / 2) for side in resized.size)
    return numpy.asarray(resized.crop((left, top, left + CROP, top + CROP)))


def pixels(data):
    return recipe(decode(data))


def scaled(data):
    image = Image.open(io.BytesIO(data))
    image.draft("RGB", (RESIZE, RESIZE))
    return recipe(image)


def torchvision(data):
    return decode_jpeg(data, mode=ImageReadMode.RGB)


def rate(work, photos):
    """Returns the images per second of CPU time."""
    start = time.thread_time()
    for photo in photos:
        work(photo)
    return len(photos) / (time.thread_time() - start)


def all_cores(pool, workers, photos):
    repeated = photos * workers
    start = time.perf_counter()
    pool.map(pixels_done, repeated, chunksize=max(1, len(photos) // 4))
    return len(repeated) / (time.perf_counter() - start)


def pixels_done(data):
    """Decodes in a worker, without sending the pixels back."""
    pixels(data)


def gpu(device, photos):
    """Returns the rate of nvJPEG, or None without a GPU."""
    if device == "cpu":
        return None
    repeated = (photos * GPU_BATCH)[: 8 * GPU_BATCH]
    batches = [repeated[start : start + GPU_BATCH] for start in range(0, len(repeated), GPU_BATCH)]
    decode_jpeg(batches[0], mode=ImageReadMode.RGB, device=device)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for batch in batches:
        decode_jpeg(batch, mode=ImageReadMode.RGB, device=device)
    torch.cuda.synchronize()
    return len(repeated) / (time.perf_counter() - start)


def accuracy(photos, file):
    """Compares scaled with exact decoding after the recipe. Writes the exact pixels as planes of 8 bits."""
    exact = numpy.stack([pixels(photo) for photo in photos]).astype(numpy.float32)
    rounded = numpy.stack([scaled(photo) for photo in photos]).astype(numpy.float32)
    pathlib.Path(file).write_bytes(exact.astype(numpy.uint8).transpose(0, 3, 1, 2).tobytes())
    product = float((exact * rounded).sum(dtype=numpy.float64))
    norms = [float(numpy.square(side).sum(dtype=numpy.float64)) ** 0.5 for side in (exact, rounded)]
    return {"difference": float(numpy.abs(exact - rounded).mean()), "cosine": product / (norms[0] * norms[1])}


def main():
    arguments = parse_arguments()
    torch.set_num_threads(1)
    workers = os.cpu_count()
    pool = multiprocessing.get_context("fork").Pool(workers)
    sets = prepare(arguments.photos, arguments.out, arguments.count)
    photos = {name: [file.read_bytes() for file in files] for name, files in sets.items()}
    tensors = {name: [torch.frombuffer(bytearray(data), dtype=torch.uint8) for data in files] for name, files in photos.items()}
    print(json.dumps({name: [str(file) for file in files] for name, files in sets.items()}), flush=True)
    for line in sys.stdin:
        name, what, *rest = line.split(maxsplit=2)
        if what == "accuracy":
            answer = accuracy(photos[name], rest[0].strip())
        elif what == "all_cores":
            answer = all_cores(pool, workers, photos[name])
        elif what == "gpu":
            answer = gpu(arguments.device, tensors[name])
        elif what == "torchvision":
            answer = rate(torchvision, tensors[name])
        else:
            answer = rate({"decode": decode, "pixels": pixels, "scaled": scaled}[what], photos[name])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
