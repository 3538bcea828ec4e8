"""Pretrains the demo's backbone and exports it to backbone.onnx.

    python models/zoo/demo/pretrain.py [--steps 600] [--out FILE]

The backbone is a small ResNet. It is trained without photos of the demo's task, on five other photographs in sources.py. It learns to
distinguish tiles of these photographs under rotation, zoom and light (exemplar networks: Dosovitskiy et al., "Discriminative Unsupervised
Feature Learning with Convolutional Neural Networks", 2014). The classes of the head are the tiles. Requires torch (installed by
tests/bench/peers/setup_torch.py), onnx, NumPy, Pillow and pip. The training takes about five minutes on one core. `--steps 0` exports the
initial backbone with measured BatchNorm statistics, for comparison.
"""

import argparse
import json
import pathlib
import time

import numpy
import onnx
import torch
from torch import nn

import patches
import sources

SEED = 20261121
CROP = 128
TILE = 128
SAMPLES_PER_TILE = 128
BATCH = 64
FEATURES = 128
PIXELS = {
    "resize": 144,
    "crop_height": CROP,
    "crop_width": CROP,
    "mean": [0.485, 0.456, 0.406],
    "std": [0.229, 0.224, 0.225],
}


def convolution(inputs, outputs, kernel, stride=1):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs)
    )


class Block(nn.Module):
    """Basic block of a ResNet."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = convolution(inputs, outputs, 3, stride)
        self.conv2 = convolution(outputs, outputs, 3)
        self.shortcut = nn.Identity() if inputs == outputs and stride == 1 else convolution(inputs, outputs, 1, stride)
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.relu(self.conv2(self.relu(self.conv1(x))) + self.shortcut(x))


class Backbone(nn.Module):
    """Network from [batch, 3, 128, 128] to [batch, classes], with 128 features before the classifier."""

    def __init__(self, classes):
        super().__init__()
        self.stem = nn.Sequential(*convolution(3, 16, 3, 2), nn.ReLU())
        self.stage1 = nn.Sequential(Block(16, 16, 2), Block(16, 16, 1))
        self.stage2 = nn.Sequential(Block(16, 32, 2))
        self.stage3 = nn.Sequential(Block(32, 64, 2))
        self.mix = nn.Sequential(*convolution(64, FEATURES, 1), nn.ReLU())
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.classifier = nn.Linear(FEATURES, classes)

    def forward(self, x):
        x = self.stage3(self.stage2(self.stage1(self.stem(x))))
        return self.classifier(self.flatten(self.pool(self.mix(x))))


def tiles():
    """Yields the photograph and the box of all tiles, except those with little contrast."""
    for name in sources.PRETRAINING:
        photograph = sources.load(name)
        for top in range(0, photograph.height - TILE + 1, TILE):
            for left in range(0, photograph.width - TILE + 1, TILE):
                box = (left, top, left + TILE, top + TILE)
                if numpy.asarray(photograph.crop(box).convert("L"), dtype=numpy.float32).std() > 12.0:
                    yield photograph, box


def make_samples():
    """Returns SAMPLES_PER_TILE patches per tile as u8[n, 3, CROP, CROP], and the classes."""
    generator = numpy.random.default_rng([SEED, 2])
    images, labels = [], []
    for label, (photograph, box) in enumerate(tiles()):
        for _ in range(SAMPLES_PER_TILE):
            patch = patches.cut(photograph, box, (40.0, TILE), CROP, generator)
            pixels = numpy.asarray(patches.relight(patch, generator))
            images.append(pixels.transpose(2, 0, 1))
            labels.append(label)
    return torch.from_numpy(numpy.stack(images)), torch.tensor(labels)


def normalize(images):
    mean = torch.tensor(PIXELS["mean"]).view(1, 3, 1, 1)
    std = torch.tensor(PIXELS["std"]).view(1, 3, 1, 1)
    return (images.float() / 255.0 - mean) / std


def train(module, images, labels, steps):
    """Trains with SGD and a one-cycle cosine schedule of the learning rate."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=max(steps, 2))
    order = torch.Generator().manual_seed(SEED)
    start = time.monotonic()
    right = 0
    for step in range(1, steps + 1):
        chosen = torch.randint(len(labels), (BATCH,), generator=order)
        logits = module(normalize(images[chosen]))
        loss = nn.functional.cross_entropy(logits, labels[chosen], label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        right += int((logits.argmax(1) == labels[chosen]).sum())
        if step % 100 == 0:
            seconds = time.monotonic() - start
            print(f"step {step}: loss {loss.item():.3f}, accuracy {right / (100 * BATCH):.3f}, {seconds:.0f} s", flush=True)
            right = 0


def measure_statistics(module, images):
    """Measures the BatchNorm statistics of an untrained network, for a fair baseline."""
    with torch.no_grad():
        for start in range(0, 50 * BATCH, BATCH):
            module(normalize(images[start::50][:BATCH]))


def rename(model, names):
    """Renames values in all nodes."""
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]


def readable_names(model):
    """Returns new names by the exporter's names. The last value of a block gets the name of the block."""
    names = {}
    for node in model.graph.node:
        value = node.output[0]
        path = [part for part in value.split("/")[:-1] if part]
        if not path:
            continue
        block = path[1] if path[0].startswith("stage") else path[0]
        names[value] = block
    last = {block: value for value, block in names.items()}
    renamed = {value: block for block, value in last.items() if value not in {o.name for o in model.graph.output}}
    renamed |= {value: readable for value, readable in ((last.get("pool"), "pooled"), (last.get("flatten"), "features")) if value}
    return renamed


def export(module, path):
    """Exports the module to ONNX in evaluation mode, with folded BatchNorm, a dynamic batch, and the pixel spec as metadata."""
    module.eval()
    example = torch.zeros(2, 3, CROP, CROP)
    torch.onnx.export(
        module,
        (example,),
        str(path),
        dynamo=False,
        opset_version=17,
        input_names=["image"],
        output_names=["logits"],
        dynamic_axes={"image": {0: "batch"}, "logits": {0: "batch"}},
    )
    model = onnx.load(path)
    rename(model, readable_names(model))
    onnx.helper.set_model_props(model, {"frostline.pixels": json.dumps(PIXELS)})
    model.doc_string = "Demo backbone of Frostline, pretrained by models/zoo/demo/pretrain.py"
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "backbone.onnx")
    arguments = parser.parse_args()
    torch.manual_seed(SEED)
    torch.set_num_threads(arguments.threads)
    images, labels = make_samples()
    classes = int(labels.max()) + 1
    module = Backbone(classes)
    parameters = sum(parameter.numel() for parameter in module.parameters())
    print(f"{classes} tiles, {len(labels)} samples, {parameters} parameters", flush=True)
    if arguments.steps == 0:
        measure_statistics(module, images)
    train(module, images, labels, arguments.steps)
    export(module, arguments.out)
    print(f"{arguments.out}: {arguments.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
