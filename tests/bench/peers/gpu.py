"""Measures PyTorch on a device, for `cargo xtask bench gpu`.

    python gpu.py forward --network resnet50 --precision tf32 --batch 128 --rows 2048 --device cuda:0
    python gpu.py job --network resnet50 --precision f32 --batch 64 --epochs 2 --data photos --device cuda:0

`forward` measures the layers up to the paper's freeze cut on pixels in device memory, using the faster of two memory layouts. `job` measures the
last epoch on photos in class folders: a DataLoader decodes with a worker per core, and all layers run on the device. Prints a line of JSON with
`images_per_second`.
"""

import argparse
import json
import os
import time

import torch
import torchvision
from torch import nn
from torchvision import transforms

from photo_task import IMAGENET, split_network

WARM = 3


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


def forward(arguments):
    """Returns the images per second in the faster memory layout."""
    frozen, _ = split_network(arguments.network, 10)
    dtype = torch.float16 if arguments.precision == "f16" else torch.float32
    frozen = frozen.to(arguments.device, dtype)
    pixels = torch.rand(arguments.batch, 3, 224, 224, device=arguments.device, dtype=dtype)
    batches = max(3, -(-arguments.rows // arguments.batch))
    best = 0.0
    for layout in (torch.contiguous_format, torch.channels_last):
        network, batch = frozen.to(memory_format=layout), pixels.to(memory_format=layout)
        with torch.inference_mode():
            for _ in range(WARM):
                network(batch)
            synchronize(arguments.device)
            start = time.perf_counter()
            for _ in range(batches):
                network(batch)
            synchronize(arguments.device)
        best = max(best, batches * arguments.batch / (time.perf_counter() - start))
    return best


def job(arguments):
    """Returns the images per second in the last epoch."""
    steps = [transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor(), transforms.Normalize(*IMAGENET)]
    photos = torchvision.datasets.ImageFolder(arguments.data, transforms.Compose(steps))
    workers = os.cpu_count()
    options = {"num_workers": workers, "persistent_workers": True, "prefetch_factor": 4, "pin_memory": arguments.device != "cpu"}
    loader = torch.utils.data.DataLoader(photos, arguments.batch, shuffle=True, **options)
    frozen, suffix = split_network(arguments.network, len(photos.classes))
    frozen, suffix = frozen.to(arguments.device), suffix.to(arguments.device)
    optimizer = torch.optim.SGD(suffix.parameters(), lr=0.001, momentum=0.9)
    for _ in range(arguments.epochs):
        start = time.perf_counter()
        for pixels, labels in loader:
            with torch.no_grad():
                activations = frozen(pixels.to(arguments.device, non_blocking=True))
            optimizer.zero_grad()
            nn.functional.cross_entropy(suffix(activations), labels.to(arguments.device)).backward()
            optimizer.step()
        synchronize(arguments.device)
        seconds = time.perf_counter() - start
    return len(photos) / seconds


def main():
    arguments = parse_arguments()
    allowed = arguments.precision != "f32"
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed
    torch.backends.cudnn.benchmark = True
    measure = forward if arguments.what == "forward" else job
    print(json.dumps({"images_per_second": measure(arguments), "torch": torch.__version__}))


if __name__ == "__main__":
    main()
