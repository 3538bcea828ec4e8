"""The fine-tuning task of dataloader.py and extract_once.py: photos in a bucket, and a torchvision network frozen up to the paper's cut.

The network has random weights, which do not affect times, and a classifier for the bucket's classes. The freeze cut is defined in
models/zoo/freeze_cuts.json, so the trained layers are the same as in Frostline. Needs torch, torchvision, Pillow and boto3.
"""

import argparse
import io
import json
import pathlib
import sys

import torch
import torchvision
from PIL import Image
from torch import nn
from torchvision import transforms

FREEZE_CUTS = json.loads((pathlib.Path(__file__).resolve().parents[3] / "models" / "zoo" / "freeze_cuts.json").read_text())
IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
PHOTO_SUFFIXES = (".jpg", ".jpeg", ".png")
PREFETCHED_BATCHES = 2


def parse_arguments(description, extend=None):
    """Parses the arguments of the task. Scripts can add arguments with `extend(parser)`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--endpoint", required=True, help="URL of the S3 server. Set the credentials in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    parser.add_argument("--bucket", required=True)
    parser.add_argument("--prefix", default="", help="prefix of photos in the form PREFIX/[train/]CLASS/*.jpg")
    parser.add_argument("--network", required=True, choices=list(FREEZE_CUTS))
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1, help="torch threads in the training process")
    parser.add_argument("--workers", type=int, default=2, help="data processes, each with one S3 client")
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=0)
    if extend:
        extend(parser)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(arguments.threads)
    return arguments


def connect(endpoint):
    """Creates an S3 client. Each process needs a separate client because clients must not be forked."""
    # gpu.py imports this module on machines without boto3.
    import boto3

    return boto3.client("s3", endpoint_url=endpoint)


class Bucket:
    """Reads objects with a separate client in each process."""

    def __init__(self, arguments):
        self.endpoint, self.name = arguments.endpoint, arguments.bucket
        self.client = None

    def read(self, key):
        if self.client is None:
            self.client = connect(self.endpoint)
        return self.client.get_object(Bucket=self.name, Key=key)["Body"].read()


def list_photos(arguments):
    """Returns (keys, labels, class names) of the training photos, sorted by key."""
    root = arguments.prefix.strip("/")
    root = f"{root}/" if root else ""
    keys = []
    for page in connect(arguments.endpoint).get_paginator("list_objects_v2").paginate(Bucket=arguments.bucket, Prefix=root):
        keys += [entry["Key"] for entry in page.get("Contents", []) if entry["Key"].lower().endswith(PHOTO_SUFFIXES)]
    training = [key for key in keys if key.startswith(f"{root}train/")]
    keys = sorted(training or keys)
    class_names = [key.split("/")[-2] if "/" in key else "" for key in keys]
    classes = sorted(set(class_names))
    if len(classes) < 2:
        sys.exit(f"{arguments.bucket}/{root} contains {len(keys)} photos in {len(classes)} classes; expected two classes in {root}[train/]CLASS/*.jpg")
    return keys, [classes.index(name) for name in class_names], classes


class Photos(torch.utils.data.Dataset):
    """Dataset of (pixels f32[3, 224, 224], label, bytes read) with torchvision's transforms for ImageNet."""

    def __init__(self, arguments, keys, labels):
        self.bucket = Bucket(arguments)
        self.keys, self.labels = keys, labels
        steps = [transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor(), transforms.Normalize(*IMAGENET)]
        self.transform = transforms.Compose(steps)

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, index):
        content = self.bucket.read(self.keys[index])
        photo = Image.open(io.BytesIO(content)).convert("RGB")
        return self.transform(photo), self.labels[index], len(content)


class Shuffled(torch.utils.data.Sampler):
    """Yields `count` indices below `size` as a single long epoch of consecutive random orders, to avoid pauses with small data sets."""

    def __init__(self, size, count):
        self.size, self.count = size, count

    def __len__(self):
        return self.count

    def __iter__(self):
        left = self.count
        while left > 0:
            order = torch.randperm(self.size).tolist()[:left]
            left -= len(order)
            yield from order


def loader(dataset, arguments, **options):
    """Creates a DataLoader as recommended for slow sources: with persistent worker processes that prefetch."""
    if arguments.workers > 0:
        options |= {"num_workers": arguments.workers, "persistent_workers": True, "prefetch_factor": PREFETCHED_BATCHES}
    return torch.utils.data.DataLoader(dataset, **options)


class Patches(nn.Module):
    """Vision Transformer layers before the encoder blocks: patches, class token and positions."""

    def __init__(self, network):
        super().__init__()
        self.projection = network.conv_proj
        self.class_token, self.positions = network.class_token, network.encoder.pos_embedding

    def forward(self, x):
        patches = self.projection(x).flatten(2).transpose(1, 2)
        return torch.cat([self.class_token.expand(len(x), -1, -1), patches], dim=1) + self.positions


class ClassToken(nn.Module):
    def forward(self, x):
        return x[:, 0]


def within(network, *paths):
    """Returns (path, module) for all children of the modules at the paths."""
    return [(f"{path}.{name}", child) for path in paths for name, child in network.get_submodule(path).named_children()]


def stages(family, network):
    """Returns the network as a sequence of (torchvision module path, module)."""
    if family.startswith("resnet"):
        stem = [(name, network.get_submodule(name)) for name in ("conv1", "bn1", "relu", "maxpool")]
        blocks = within(network, "layer1", "layer2", "layer3", "layer4")
        return [*stem, *blocks, ("avgpool", network.avgpool), ("flatten", nn.Flatten()), ("fc", network.fc)]
    if family.startswith("densenet"):
        pool = [("relu", nn.ReLU()), ("avgpool", nn.AdaptiveAvgPool2d(1)), ("flatten", nn.Flatten())]
        return [*within(network, "features"), *pool, ("classifier", network.classifier)]
    if family.startswith("vit"):
        blocks = [("patches", Patches(network)), ("encoder.dropout", network.encoder.dropout), *within(network, "encoder.layers")]
        return [*blocks, ("encoder.ln", network.encoder.ln), ("token", ClassToken()), *within(network, "heads")]
    pool = [("avgpool", network.avgpool), ("flatten", nn.Flatten())]
    return [*within(network, "features"), *pool, *within(network, "classifier")]


def split_network(name, classes):
    """Returns (frozen layers in evaluation mode, trained layers with a new classifier)."""
    paths, modules = zip(*stages(name, torchvision.models.get_model(name, weights=None)))
    cut = paths.index(FREEZE_CUTS[name]["export"]) + 1
    classifier = nn.Linear(modules[-1].in_features, classes)
    frozen = nn.Sequential(*modules[:cut]).eval().requires_grad_(False)
    return frozen, nn.Sequential(*modules[cut:-1], classifier).train()


class Trainer:
    """Trains the suffix with SGD and cross-entropy."""

    def __init__(self, suffix, arguments):
        self.suffix = suffix
        self.optimizer = torch.optim.SGD(suffix.parameters(), lr=arguments.lr, momentum=arguments.momentum)

    def step(self, activations, labels):
        """Performs an update and returns the loss before the update."""
        loss = nn.functional.cross_entropy(self.suffix(activations), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def report(**fields):
    """Prints the fields as a line of JSON."""
    print(json.dumps(fields), flush=True)
