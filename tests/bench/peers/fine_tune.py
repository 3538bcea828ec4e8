"""Fine-tunes an ONNX network on photos with PyTorch and the default recipe of `frostline train`. Reference for `cargo xtask bench accuracy`.

    python tests/bench/peers/fine_tune.py --model squeezenet1_1_pooled.onnx --freeze features --data clothing --seed 0 [--augment]

Executes the network's nodes with torch.nn.functional, with gradients after the freeze cut. The last Gemm is replaced by a classifier for the
photos' classes with normally distributed weights (standard deviation 0.01). Uses SGD with momentum, cross-entropy, and a half-cosine schedule
with warm-up (get_cosine_schedule_with_warmup in Hugging Face's transformers). With `--augment`, training photos are loaded with torchvision's
RandomResizedCrop and RandomHorizontalFlip, otherwise with Resize and CenterCrop. Prints a line of JSON: `accuracy` after the last epoch, `seconds`.
"""

import argparse
import json
import math
import pathlib
import sys
import time

import numpy
import onnx
import torch
import torch.nn.functional as functional
from PIL import Image
from torchvision import transforms

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "models" / "zoo"))
import pixels


def attributes(node):
    return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}


def pads(given, spatial=2):
    """Converts ONNX padding to torch. Exits if the padding is asymmetric."""
    given = list(given or [0] * 2 * spatial)
    if given[:spatial] != given[spatial:]:
        sys.exit(f"asymmetric padding {given} is not supported")
    return given[:spatial]


def conv(inputs, given):
    x, weight, *bias = inputs
    bias = bias[0] if bias else None
    return functional.conv2d(x, weight, bias, given.get("strides", 1), pads(given.get("pads")), given.get("dilations", 1), given.get("group", 1))


def gemm(inputs, given):
    x, weight, *bias = inputs
    product = x @ (weight.T if given.get("transB") else weight)
    return product + bias[0] if bias else product


OPERATORS = {
    "Conv": conv,
    "Gemm": gemm,
    "Relu": lambda inputs, given: functional.relu(inputs[0]),
    "Add": lambda inputs, given: inputs[0] + inputs[1],
    "Concat": lambda inputs, given: torch.cat(inputs, given["axis"]),
    "Flatten": lambda inputs, given: inputs[0].flatten(given.get("axis", 1)),
    "GlobalAveragePool": lambda inputs, given: inputs[0].mean((2, 3), keepdim=True),
    "MaxPool": lambda inputs, given: functional.max_pool2d(
        inputs[0], given["kernel_shape"], given.get("strides"), pads(given.get("pads")), ceil_mode=bool(given.get("ceil_mode", 0))
    ),
}


class Network:
    """ONNX nodes before and after the freeze cut."""

    def __init__(self, file, freeze, classes):
        graph = onnx.load(file).graph
        self.weights = {w.name: torch.from_numpy(onnx.numpy_helper.to_array(w).copy()) for w in graph.initializer}
        self.input, self.freeze, self.output = graph.input[0].name, freeze, graph.output[0].name
        after = {freeze}
        for node in graph.node:
            if after.intersection(node.input):
                after.update(node.output)
        after.discard(freeze)
        self.prefix = [node for node in graph.node if not after.intersection(node.output)]
        self.suffix = [node for node in graph.node if after.intersection(node.output)]
        head = self.suffix[-1]
        if head.op_type != "Gemm":
            sys.exit(f"the last node of {file} is {head.op_type}; expected Gemm")
        shape = [classes, self.weights[head.input[1]].shape[1]]
        self.weights[head.input[1]] = torch.randn(shape) * 0.01
        self.weights[head.input[2]] = torch.zeros(classes)
        self.trained = [self.weights[name] for node in self.suffix for name in node.input if name in self.weights]
        for weight in self.trained:
            weight.requires_grad_()

    def run(self, nodes, name, value, wanted):
        values = {**self.weights, name: value}
        for node in nodes:
            inputs = [values[name] for name in node.input]
            (values[node.output[0]],) = [OPERATORS[node.op_type](inputs, attributes(node))]
        return values[wanted]

    def frozen(self, photos):
        with torch.no_grad():
            return self.run(self.prefix, self.input, photos, self.freeze)

    def rest(self, activations):
        return self.run(self.suffix, self.freeze, activations, self.output)


class Photos(torch.utils.data.Dataset):
    def __init__(self, paths, transform):
        self.paths, self.transform = paths, transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return self.transform(Image.open(self.paths[index]).convert("RGB"))


def transform(spec, augment):
    size = [spec["crop_height"], spec["crop_width"]]
    if augment:
        first = [transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip()]
    else:
        first = [transforms.Resize(spec["resize"]), transforms.CenterCrop(size)]
    return transforms.Compose([*first, transforms.ToTensor(), transforms.Normalize(spec["mean"], spec["std"])])


def activations(network, paths, spec, augment):
    batches = torch.utils.data.DataLoader(Photos(paths, transform(spec, augment)), batch_size=50, num_workers=0)
    return torch.cat([network.frozen(batch) for batch in batches])


def factor(update, total, warm):
    if update < warm:
        return update / warm
    return 0.5 * (1 + math.cos(math.pi * (update - warm) / max(1, total - warm)))


def train(arguments, spec):
    paths, labels, classes = pixels.list_split(arguments.data, "train")
    checked, expected, _ = pixels.list_split(arguments.data, "validation")
    network = Network(arguments.model, arguments.freeze, len(classes))
    labels = torch.from_numpy(labels)
    updates = math.ceil(len(paths) / arguments.batch)
    total = updates * arguments.epochs
    optimizer = torch.optim.SGD(network.trained, arguments.lr, momentum=0.9)
    warm = math.ceil(total * 0.05)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda update: factor(update, total, warm))
    rows = None
    for epoch in range(arguments.epochs):
        if rows is None or arguments.augment:
            rows = activations(network, paths, spec, arguments.augment)
        for chosen in torch.randperm(len(paths)).split(arguments.batch):
            optimizer.zero_grad()
            functional.cross_entropy(network.rest(rows[chosen]), labels[chosen]).backward()
            optimizer.step()
            scheduler.step()
    with torch.no_grad():
        scores = network.rest(activations(network, checked, spec, False)).flatten(1)
    return float((scores.argmax(1).numpy() == numpy.asarray(expected)).mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--freeze", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--augment", action="store_true")
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(2)
    started = time.perf_counter()
    accuracy = train(arguments, {**pixels.IMAGENET, **spec_in(arguments.model)})
    print(json.dumps({"accuracy": accuracy, "seconds": round(time.perf_counter() - started, 2)}))


def spec_in(model):
    """Returns the pixel spec from the file's metadata, or an empty dictionary."""
    found = [entry.value for entry in onnx.load(model, load_external_data=False).metadata_props if entry.key == pixels.METADATA_KEY]
    return json.loads(found[0]) if found else {}


if __name__ == "__main__":
    main()
