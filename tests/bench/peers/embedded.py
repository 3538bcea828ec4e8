"""Measures `frostline.torch.pushdown` with the host that it starts on this machine, for `cargo xtask bench embedded`.

    python embedded.py first-batch --data photos --folder new --network vit_b_16
    python embedded.py calls --data photos --folder new
    python embedded.py roots --data photos --folder new

The folder contains the caches and the temporary files. Prints a JSON line for each measurement:

- `first-batch`: `pushdown_seconds` (duration of the call) and `first_batch_seconds` (until the first batch of activations, including the call).
  Imports and the construction of the network are not included.
- `calls`: resources after 1, 10 and 20 `calls` in one process, as if a notebook's cell were repeated. Each network has other weights.
- `roots`: resources with data sets of 12 `roots` in one process, and after they were closed (0).

Resources are `processes`, `memory_mb` (proportional set size of all processes), `host_memory_mb` (without this process), `disk_mb` (temporary files
of this process and of the host) and `cache_mb` (cached exports). Requires Linux, torchvision and timm.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import tempfile
import time
import warnings

import timm
import torch
import torchvision

import frostline.torch as fl

CLASSES = 8
BATCH = 32
NETWORKS = {
    "resnet18": (lambda: torchvision.models.resnet18(weights=None, num_classes=CLASSES), "layer4.0"),
    "vit_b_16": (lambda: timm.create_model("vit_base_patch16_224", pretrained=False, num_classes=CLASSES), "blocks.10"),
}
CALLS = 20
NOTED_CALLS = (1, 10, CALLS)
ROOTS = 12
IMAGES_PER_CLASS = 4
EXIT_SECONDS = 20.0
"""Timeout for the exit of the host after all data sets were closed."""


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("first-batch", "calls", "roots"))
    parser.add_argument("--data", required=True, type=pathlib.Path)
    parser.add_argument("--folder", required=True, type=pathlib.Path)
    parser.add_argument("--network", choices=NETWORKS, default="resnet18")
    return parser.parse_args()


def use(folder):
    """Redirects caches and temporary files of this process and of its child processes to `folder`."""
    folders = {"TMPDIR": folder / "temporary", "XDG_CACHE_HOME": folder / "caches", "FROSTLINE_EXPORT_CACHE": folder / "exports"}
    for name, path in folders.items():
        path.mkdir(parents=True, exist_ok=True)
        os.environ[name] = str(path)
    tempfile.tempdir = os.environ["TMPDIR"]


def small_resnet():
    """Returns a network with a block per stage and 20 MB of weights, of which 20 kB are in the head."""
    return torchvision.models.resnet.ResNet(torchvision.models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=CLASSES)


def small_pushdown(model, root):
    """Divides a small network, reads a batch and returns the data set."""
    _, data = fl.pushdown(model, root, freeze="layer4.0", batch=BATCH, size=64, feature_cache="off")
    first_batch(data)
    return data


def first_batch(data):
    return next(iter(torch.utils.data.DataLoader(data, batch_size=None)))


def family(process):
    """Returns the IDs of a process and of its descendants."""
    found = [process]
    for children in pathlib.Path(f"/proc/{process}/task").glob("*/children"):
        # A thread can end at any time.
        with contextlib.suppress(FileNotFoundError):
            for child in children.read_text().split():
                found += family(child)
    return found


def megabytes_of(process):
    rollup = pathlib.Path(f"/proc/{process}/smaps_rollup").read_text()
    return int(re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE).group(1)) * 1024 / 1e6


def megabytes_in(folder):
    blocks = 0
    for path in folder.rglob("*"):
        # The host can remove a file at any time.
        with contextlib.suppress(FileNotFoundError):
            blocks += path.lstat().st_blocks
    return blocks * 512 / 1e6


def report_resources(folder, **count):
    own, *others = family(os.getpid())
    host = sum(map(megabytes_of, others))
    report(
        **count,
        processes=1 + len(others),
        memory_mb=host + megabytes_of(own),
        host_memory_mb=host,
        disk_mb=megabytes_in(folder / "temporary"),
        cache_mb=megabytes_in(folder / "exports"),
    )


def report(**figures):
    print(json.dumps(figures), flush=True)


def measure_first_batch(arguments):
    build, freeze = NETWORKS[arguments.network]
    # Processes must use the same weights, because caches depend on them.
    torch.manual_seed(0)
    model, start = build(), time.perf_counter()
    _, data = fl.pushdown(model, arguments.data, freeze=freeze, batch=BATCH, feature_cache="4GiB")
    divided = time.perf_counter()
    first_batch(data)
    report(pushdown_seconds=divided - start, first_batch_seconds=time.perf_counter() - start)


def measure_calls(arguments):
    for number in range(1, CALLS + 1):
        # Like the variable of a cell, `data` refers to the previous data set until the call returns.
        data = small_pushdown(small_resnet(), arguments.data)
        if number in NOTED_CALLS:
            report_resources(arguments.folder, calls=number)
    data.close()


def measure_roots(arguments):
    model = small_resnet()
    opened = [small_pushdown(model, root) for root in roots(arguments)]
    report_resources(arguments.folder, roots=len(opened))
    for data in opened:
        data.close()
    deadline = time.monotonic() + EXIT_SECONDS
    while len(family(os.getpid())) > 1 and time.monotonic() < deadline:
        time.sleep(0.1)
    report_resources(arguments.folder, roots=0)


def roots(arguments):
    """Yields folders with a few images of each class and part."""
    classes = {image.parent for image in arguments.data.rglob("*.jpg")}
    for number in range(ROOTS):
        root = arguments.folder / "roots" / str(number)
        for source in classes:
            copy = root / source.relative_to(arguments.data)
            copy.mkdir(parents=True)
            for image in sorted(source.glob("*.jpg"))[:IMAGES_PER_CLASS]:
                shutil.copy(image, copy)
        yield root


def main():
    arguments = parse_arguments()
    warnings.simplefilter("ignore")
    use(arguments.folder.resolve())
    {"first-batch": measure_first_batch, "calls": measure_calls, "roots": measure_roots}[arguments.part](arguments)


if __name__ == "__main__":
    main()
