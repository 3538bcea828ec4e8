"""Measures PyTorch on a device, for `cargo xtask bench gpu`.

    python gpu.py forward --network resnet50 --rows 2048 --device cuda:0
    python gpu.py job --network resnet50 --precision tf32 --batch 64 --epochs 4 --data photos --device cuda:0

`forward` measures the layers up to the paper's freeze cut on pixels in device memory. It prints a JSON line when it is ready, and answers lines of
the form `PRECISION BATCH` with the images per second by memory layout. `PRECISION BATCH BACKEND` measures `torch.compile` with this backend.

`job` trains on photos in class folders: a DataLoader decodes with a worker per core, and all layers run on the device. It prints a JSON line with
the `seconds` of each epoch and the number of `photos`.

With `f16`, weights are f32 and layers run in autocast.
"""

import argparse
import json
import os
import sys
import time

import torch
import torchvision
from torch import nn
from torchvision import transforms

from photo_task import IMAGENET, split_network

WARM = 3
LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("forward", "job"))
    parser.add_argument("--network", required=True)
    parser.add_argument("--precision", choices=("f32", "tf32", "f16"), default="f32")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--data")
    parser.add_argument("--device", default="cpu")
    return parser.parse_args()


def synchronize(device):
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def computing(precision, device):
    """Selects the precision, and returns the context for computations."""
    torch.backends.cuda.matmul.allow_tf32 = precision != "f32"
    torch.backends.cudnn.allow_tf32 = precision != "f32"
    return torch.autocast(device.split(":")[0], torch.float16, enabled=precision == "f16")


def rate(network, pixels, rows, device):
    """Returns the images per second in batches like `pixels`."""
    batches = max(3, -(-rows // len(pixels)))
    for _ in range(WARM):
        network(pixels)
    synchronize(device)
    start = time.perf_counter()
    for _ in range(batches):
        network(pixels)
    synchronize(device)
    return batches * len(pixels) / (time.perf_counter() - start)


def forward(arguments):
    frozen, _ = split_network(arguments.network, 10)
    frozen = frozen.to(arguments.device).eval()
    print(json.dumps({"torch": torch.__version__}), flush=True)
    for line in sys.stdin:
        precision, batch, *backend = line.split()
        pixels = torch.rand(int(batch), 3, 224, 224, device=arguments.device)
        rates = {}
        with torch.inference_mode(), computing(precision, arguments.device):
            for name, layout in LAYOUTS.items():
                if backend and name == "contiguous":
                    continue
                network = frozen.to(memory_format=layout)
                if backend:
                    network = torch.compile(network, backend=backend[0])
                rates[name] = rate(network, pixels.to(memory_format=layout), arguments.rows, arguments.device)
        print(json.dumps(rates), flush=True)


def job(arguments):
    steps = [transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor(), transforms.Normalize(*IMAGENET)]
    photos = torchvision.datasets.ImageFolder(arguments.data, transforms.Compose(steps))
    options = {"num_workers": os.cpu_count(), "persistent_workers": True, "prefetch_factor": 4, "pin_memory": arguments.device != "cpu"}
    loader = torch.utils.data.DataLoader(photos, arguments.batch, shuffle=True, **options)
    frozen, suffix = split_network(arguments.network, len(photos.classes))
    frozen, suffix = frozen.to(arguments.device, memory_format=torch.channels_last), suffix.to(arguments.device)
    optimizer = torch.optim.SGD(suffix.parameters(), lr=0.001, momentum=0.9)
    seconds = []
    for _ in range(arguments.epochs):
        start = time.perf_counter()
        for pixels, labels in loader:
            pixels = pixels.to(arguments.device, non_blocking=True, memory_format=torch.channels_last)
            with torch.no_grad(), computing(arguments.precision, arguments.device):
                activations = frozen(pixels).float()
            optimizer.zero_grad()
            nn.functional.cross_entropy(suffix(activations), labels.to(arguments.device)).backward()
            optimizer.step()
        synchronize(arguments.device)
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"seconds": seconds, "photos": len(photos), "torch": torch.__version__}))


def main():
    arguments = parse_arguments()
    torch.backends.cudnn.benchmark = True
    measure = forward if arguments.what == "forward" else job
    measure(arguments)


if __name__ == "__main__":
    main()
