"""Trains the suffix of a torchvision network in PyTorch, for `cargo xtask bench training`.

    python training_step.py --suffix resnet18 --batch 8 --threads 2 --onnx suffix.onnx

Creates the suffix with random weights and writes it as ONNX. BatchNorm is folded into preceding convolutions, as exporters do. Prints a line of
JSON with the dimensions of a batch and the faster memory layout for convolutions (`dims`, `layout`). Then it answers commands on standard input:
`times N` with the milliseconds of N steps, `losses N` with the losses of the first N steps from the weights in the file, and `memory N` with the
MB that N steps use in a separate process (see `measure_memory`).

A step is forward, cross-entropy, backward and an SGD update with momentum 0.9 on a single batch in evaluation mode: dropout is off, and BatchNorm
uses stored statistics. Activations and labels are functions of the index (`hashed`, `labels`) that the benchmark also computes.
"""

import argparse
import contextlib
import copy
import ctypes
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

import numpy
import torch
import torchvision
from torch import nn
from torch.fx.experimental.optimization import fuse

CLASSES = 1000
MOMENTUM = 0.9
TRIED_STEPS = 3


class AfterEncoder(nn.Module):
    """Vision transformer suffix: last blocks, norm, and head on the class token."""

    def __init__(self, network, blocks):
        super().__init__()
        self.blocks = nn.Sequential(*list(network.encoder.layers)[len(network.encoder.layers) - blocks :])
        self.ln, self.heads = network.encoder.ln, network.heads

    def forward(self, x):
        return self.heads(self.ln(self.blocks(x))[:, 0])


def sequence(*parts):
    return fuse(nn.Sequential(*parts).eval())


def tail(modules, count):
    """Returns the last `count` modules."""
    modules = list(modules)
    return modules[len(modules) - count :]


def classifier(network, features, pool):
    """Returns the last `features` feature modules with the pool and the classifier."""
    return sequence(*tail(network.features, features), *pool, nn.Flatten(1), network.classifier)


def densenet(network, blocks):
    last = [network.features.denseblock4, network.features.norm5] if blocks else []
    return sequence(*last, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(1), network.classifier)


def resnet(network, blocks):
    flat = [network.avgpool, nn.Flatten(1), network.fc]
    return sequence(*blocks(network), *flat)


# Network, sample shape, and trained layers after the paper's cut (`earlier`: with an additional block).
SUFFIXES = {
    "alexnet": ("alexnet", [4096], lambda n: sequence(*tail(n.classifier, 4))),
    "alexnet_earlier": ("alexnet", [256, 13, 13], lambda n: classifier(n, 3, [n.avgpool])),
    "vgg11": ("vgg11", [4096], lambda n: sequence(*tail(n.classifier, 5))),
    "vgg11_earlier": ("vgg11", [512, 14, 14], lambda n: classifier(n, 5, [n.avgpool])),
    "resnet18": ("resnet18", [512, 7, 7], lambda n: resnet(n, lambda n: [n.layer4[1]])),
    "resnet18_earlier": ("resnet18", [256, 14, 14], lambda n: resnet(n, lambda n: [n.layer4])),
    "resnet50": ("resnet50", [2048], lambda n: sequence(n.fc)),
    "resnet50_earlier": ("resnet50", [2048, 7, 7], lambda n: resnet(n, lambda n: [n.layer4[2]])),
    "densenet121": ("densenet121", [1024, 7, 7], lambda n: densenet(n, 0)),
    "densenet121_earlier": ("densenet121", [512, 7, 7], lambda n: densenet(n, 1)),
    "vit_b_16": ("vit_b_16", [197, 768], lambda n: AfterEncoder(n, 0)),
    "vit_b_16_earlier": ("vit_b_16", [197, 768], lambda n: AfterEncoder(n, 1)),
    "mobilenet_v3": ("mobilenet_v3_large", [160, 7, 7], lambda n: classifier(n, 2, [n.avgpool])),
    "squeezenet1_1": ("squeezenet1_1", [3, 224, 224], lambda n: nn.Sequential(*n.features, *n.classifier, nn.Flatten(1))),
    "convnext_tiny": ("convnext_tiny", [768, 7, 7], lambda n: sequence(n.features[7][2], n.avgpool, n.classifier)),
}


def make_suffix(name):
    """Returns the module and the shape of a sample. All tensors are distinct and nonzero because exporters deduplicate or omit others."""
    torch.manual_seed(0)
    network, sample, make = SUFFIXES[name]
    module = make(torchvision.models.get_model(network, weights=None).eval()).eval()
    # Folding creates biases without gradients.
    module.requires_grad_(True)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))
    for part in module.modules():
        if isinstance(part, (nn.ReLU, nn.Hardswish, nn.Hardsigmoid)):
            part.inplace = False
    return module, sample


def hashed(count):
    """Returns numbers from -1 to 1 based on the index, using two rounds of multiply and shift."""
    bits = numpy.arange(count, dtype=numpy.uint32)
    for factor in (0x9E3779B1, 0x85EBCA6B):
        bits = (bits ^ (bits >> 15)) * numpy.uint32(factor)
    return (bits >> 8).astype(numpy.float32) / 2**23 - 1


def export(module, activations, path):
    torch.backends.mha.set_fastpath_enabled(False)
    axes = {"input": {0: "batch"}, "logits": {0: "batch"}}
    names = {"input_names": ["input"], "output_names": ["logits"], "opset_version": 17}
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (activations[:2],), path, dynamo=False, dynamic_axes=axes, **names)


class Trainer:
    def __init__(self, module, activations, labels, rate, layout):
        self.layout = layout
        self.module = module.to(memory_format=layout)
        self.activations = activations.to(memory_format=layout) if activations.ndim == 4 else activations
        self.labels = labels
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=rate, momentum=MOMENTUM)

    def step(self):
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.module(self.activations), self.labels)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def milliseconds(self, steps):
        times = []
        for _ in range(steps):
            start = time.perf_counter()
            self.step()
            times.append((time.perf_counter() - start) * 1000)
        return times


def faster(make, image):
    """Returns a trainer with the faster memory layout for convolutions."""
    best = None
    for layout in (torch.contiguous_format, torch.channels_last) if image else (torch.contiguous_format,):
        trainer = make(layout)
        took = statistics.median(trainer.milliseconds(1 + TRIED_STEPS)[1:])
        if best is None or took < best[0]:
            best = took, trainer
        del trainer
    return best[1]


def megabytes(field):
    """Returns a field of this process's status in MB."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field + ":")) * 1024 / 1e6


def measure_memory(path, dims, rate, layout, steps):
    """Prints the peak of anonymous memory during the steps minus the anonymous memory before loading the module from `path`. Runs a small network
    first, so that libraries are loaded."""
    warm = Trainer(nn.Sequential(nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(16, CLASSES)), torch.zeros(2, 4, 4, 4), torch.zeros(2).long(), rate, layout)
    warm.step()
    del warm
    before = megabytes("RssAnon")
    module = torch.load(path, weights_only=False)
    activations = torch.from_numpy(hashed(numpy.prod(dims))).reshape(dims)
    trainer = Trainer(module, activations, torch.arange(dims[0]) * 31 % CLASSES, rate, layout)
    del module, activations
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")
    for _ in range(steps):
        trainer.step()
    print(json.dumps([megabytes("VmHWM") - megabytes("RssFile") - before]))


def memory_in_child(module, dims, arguments, layout, steps):
    """Returns the output of `measure_memory` in a child process."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "module.pt")
        torch.save(module, path)
        given = {"threads": arguments.threads, "rate": arguments.rate, "module": path, "steps": steps}
        given |= {"dims": ",".join(map(str, dims)), "layout": str(layout).removeprefix("torch.")}
        flags = [part for name, value in given.items() for part in (f"--{name}", str(value))]
        return subprocess.run([sys.executable, __file__, *flags], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suffix", choices=SUFFIXES)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rate", type=float, default=0.0001)
    parser.add_argument("--onnx", help="output file for the suffix")
    parser.add_argument("--module", help="measure the memory of steps of this module instead")
    parser.add_argument("--dims", help="dimensions of a batch for --module")
    parser.add_argument("--layout", help="memory layout for --module")
    parser.add_argument("--steps", type=int, help="number of steps for --module")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.set_num_interop_threads(1)
    if arguments.module:
        dims = [int(size) for size in arguments.dims.split(",")]
        return measure_memory(arguments.module, dims, arguments.rate, getattr(torch, arguments.layout), arguments.steps)
    module, sample = make_suffix(arguments.suffix)
    dims = [arguments.batch, *sample]
    activations = torch.from_numpy(hashed(numpy.prod(dims))).reshape(dims)
    labels = torch.arange(arguments.batch) * 31 % CLASSES
    export(module, activations, arguments.onnx)
    make = lambda layout: Trainer(copy.deepcopy(module), activations, labels, arguments.rate, layout)
    trainer = faster(make, activations.ndim == 4)
    print(json.dumps({"dims": dims, "layout": str(trainer.layout), "torch": torch.__version__}), flush=True)
    for line in sys.stdin:
        what, steps = line.split()
        if what == "times":
            print(json.dumps(trainer.milliseconds(int(steps))), flush=True)
        elif what == "memory":
            print(memory_in_child(module, dims, arguments, trainer.layout, steps), flush=True)
        else:
            fresh = make(trainer.layout)
            print(json.dumps([fresh.step() for _ in range(int(steps))]), flush=True)


if __name__ == "__main__":
    main()
