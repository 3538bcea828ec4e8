"""Runs an S3 server (moto) with photos in a bucket, re-encoded to about the size of ImageNet photos.

    python3 tests/bench/peers/photo_store.py --photos FOLDER --cache FOLDER --train 256 --validation 20

Listens on all addresses of the current network namespace on a free port. Prints a JSON line when the bucket is ready, and exits when standard
input closes. FOLDER contains train/<class>/ and validation/<class>/, or only <class>/. In the second case, a tenth of the photos is used for
validation. The data root is s3://photos/set, with train/<class>/*.jpg and validation/<class>/*.jpg. Resized photos are cached in the folder
--cache.
"""

import argparse
import hashlib
import json
import logging
import pathlib
import sys

import boto3
from moto.server import ThreadedMotoServer

from enlarge import QUALITY, TARGET_BYTES, enlarged

BUCKET, PREFIX = "photos", "set"
SUFFIXES = (".jpg", ".jpeg", ".png")
# Without a validation folder, every tenth photo in a class (at least one) is used for validation.
VALIDATION_STEP = 10


def divided(photos):
    """Returns the photos by part and class: {"train": [[path, ..], ..], "validation": [[path, ..], ..]}."""

    def classes(folder):
        folders = sorted(entry for entry in folder.iterdir() if entry.is_dir())
        return [sorted(file for file in entry.iterdir() if file.suffix.lower() in SUFFIXES) for entry in folders]

    if (photos / "train").is_dir() and (photos / "validation").is_dir():
        parts = {part: classes(photos / part) for part in ("train", "validation")}
    else:
        every = classes(photos)
        parts = {
            "train": [[file for place, file in enumerate(files) if place % VALIDATION_STEP] for files in every],
            "validation": [files[::VALIDATION_STEP] for files in every],
        }
    if any(sum(map(bool, part)) < 2 for part in parts.values()):
        sys.exit(f"{photos} contains fewer than two classes of photos; expected train/<class>/ and validation/<class>/, or <class>/")
    return parts


def chosen(classes, count):
    """Selects `count` photos, distributed evenly over the classes. The selection is deterministic."""
    turns = max(len(files) for files in classes)
    in_turn = [files[turn] for turn in range(turns) for files in classes if turn < len(files)]
    return in_turn[:count]


def prepare(photos, cache, counts):
    """Resizes photos that are missing in the cache. Returns (key, path) for each photo."""
    prepared = []
    parts = divided(photos)
    # Source folders are cached separately.
    folder = cache / f"jpeg{QUALITY}-{TARGET_BYTES}-{hashlib.sha256(str(photos.resolve()).encode()).hexdigest()[:12]}"
    for part, count in counts.items():
        for file in chosen(parts[part], count):
            key = f"{part}/{file.parent.name}/{file.name}"
            target = folder / key
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                unfinished = target.with_name(target.name + ".part")
                unfinished.write_bytes(enlarged(file))
                unfinished.rename(target)
            prepared.append((key, target))
    return prepared


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=pathlib.Path, required=True)
    parser.add_argument("--cache", type=pathlib.Path, required=True)
    parser.add_argument("--train", type=int, default=256)
    parser.add_argument("--validation", type=int, default=20)
    arguments = parser.parse_args()
    files = prepare(arguments.photos, arguments.cache, {"train": arguments.train, "validation": arguments.validation})
    # Logging a line per request would be as slow as a small request.
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="0.0.0.0", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    store = boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{port}",
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    store.create_bucket(Bucket=BUCKET)
    sizes = {"train": [], "validation": []}
    for key, path in files:
        data = path.read_bytes()
        sizes[key.split("/")[0]].append(len(data))
        store.put_object(Bucket=BUCKET, Key=f"{PREFIX}/{key}", Body=data)
    training = sizes["train"]
    ready = {
        "port": port,
        "url": f"s3://{BUCKET}/{PREFIX}",
        "train": len(training),
        "validation": len(sizes["validation"]),
        "mean_bytes": sum(training) / len(training),
        "smallest": min(training),
        "largest": max(training),
    }
    print(json.dumps(ready), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
