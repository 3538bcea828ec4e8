"""The fine-tuning task that dataloader.py and extract_once.py share: photos in a bucket, a torchvision network frozen up to the paper's cut.

The network has random weights (time does not depend on them) and a classifier for the bucket's classes. The freeze cut is the one of
models/zoo/freeze_cuts.json, so the same layers are trained as by Frostline. Needs torch, torchvision, Pillow and boto3.
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
    """Arguments of the task; `extend(parser)` adds a peer's own."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--endpoint", required=True, help="URL of the S3 server; credentials by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    parser.add_argument("--bucket", required=True)
    parser.add_argument("--prefix", default="", help="photos lie in PREFIX/[train/]CLASS/*.jpg")
    parser.add_argument("--network", required=True, choices=list(FREEZE_CUTS))
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1, help="of torch in the training process")
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
    """An S3 client; one per process, as clients must not cross a fork."""
    # The peer on a GPU reads a folder, on machines without boto3.
    import boto3

    return boto3.client("s3", endpoint_url=endpoint)


class Bucket:
    """Reads objects with a client of its own in every process."""

    def __init__(self, arguments):
        self.endpoint, self.name = arguments.endpoint, arguments.bucket
        self.client = None

    def read(self, key):
        if self.client is None:
            self.client = connect(self.endpoint)
        return self.client.get_object(Bucket=self.name, Key=key)["Body"].read()


def list_photos(arguments):
    """(keys, labels, class names) of the training photos, sorted by key."""
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
        sys.exit(f"{arguments.bucket}/{root} holds {len(keys)} photos in {len(classes)} classes; expected {root}[train/]CLASS/*.jpg")
    return keys, [classes.index(name) for name in class_names], classes


class Photos(torch.utils.data.Dataset):
    """(pixels f32[3, 224, 224], label, bytes read) of each photo, by torchvision's recipe for ImageNet."""

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
    """`count` indices below `size`: one random order after another, as one long epoch, so that a small data set costs no pauses."""

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
    """A DataLoader as its documentation advises for a slow source: persistent worker processes that prefetch."""
    if arguments.workers > 0:
        options |= {"num_workers": arguments.workers, "persistent_workers": True, "prefetch_factor": PREFETCHED_BATCHES}
    return torch.utils.data.DataLoader(dataset, **options)


class Patches(nn.Module):
    """The part of a Vision Transformer before its encoder blocks: patches, class token, positions."""

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
    """(path, module) of the children of the modules at the paths."""
    return [(f"{path}.{name}", child) for path in paths for name, child in network.get_submodule(path).named_children()]


def stages(family, network):
    """The network as a sequence of (torchvision module path, module)."""
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
    """(frozen part in evaluation mode, part to train with a new classifier)."""
    paths, modules = zip(*stages(name, torchvision.models.get_model(name, weights=None)))
    cut = paths.index(FREEZE_CUTS[name]["export"]) + 1
    classifier = nn.Linear(modules[-1].in_features, classes)
    frozen = nn.Sequential(*modules[:cut]).eval().requires_grad_(False)
    return frozen, nn.Sequential(*modules[cut:-1], classifier).train()


class Trainer:
    """SGD with momentum on the cross-entropy of the suffix."""

    def __init__(self, suffix, arguments):
        self.suffix = suffix
        self.optimizer = torch.optim.SGD(suffix.parameters(), lr=arguments.lr, momentum=arguments.momentum)

    def step(self, activations, labels):
        """One update; returns the loss before it."""
        loss = nn.functional.cross_entropy(self.suffix(activations), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def report(**fields):
    """One JSON object, one line."""
    print(json.dumps(fields), flush=True)
