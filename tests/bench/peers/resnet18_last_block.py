"""Step time of ResNet18's last block in PyTorch: the peer of `cargo xtask bench training`.

    python resnet18_last_block.py --batch 8 --threads 2 --steps 30 [--classes 1000] [--weights initial.npz]

The block is layer4.1 as the eval export has it, BatchNorm folded into the convolutions: two 3x3 convolutions 512 -> 512 with bias,
ReLU, the residual, ReLU, global average pool, a linear layer. One step is forward, cross-entropy, backward and an SGD update with
momentum on one fixed batch of activations [batch, 512, 7, 7]. Prints one line of JSON: the median step in milliseconds after
warm-up, and the loss of every step. `--weights` gives start weights and the batch under the names of INPUT_NAMES and of the
module's parameters (conv1.weight, conv1.bias, conv2.weight, conv2.bias, fc.weight, fc.bias); `--save` writes what was used.
"""

import argparse
import json
import statistics
import time

import numpy
import torch
from torch import nn

INPUT_NAMES = ("activations", "labels")


class LastBlock(nn.Module):
    """ResNet18 after `layer4.0`."""

    def __init__(self, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(512, 512, 3, padding=1)
        self.conv2 = nn.Conv2d(512, 512, 3, padding=1)
        self.fc = nn.Linear(512, classes)

    def forward(self, x):
        y = self.conv2(torch.relu(self.conv1(x)))
        return self.fc(torch.relu(y + x).mean(dim=(2, 3)))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=30, help="measured steps")
    parser.add_argument("--warm-up", type=int, default=5, help="steps before the measured ones")
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--weights", help="an .npz with start weights, and optionally the batch")
    parser.add_argument("--save", help="write start weights and batch to this .npz")
    return parser.parse_args()


def make_problem(arguments):
    """(module, activations, labels): random by the seed, overridden by --weights."""
    torch.manual_seed(arguments.seed)
    module = LastBlock(arguments.classes)
    activations = torch.relu(torch.randn(arguments.batch, 512, 7, 7))
    labels = torch.randint(arguments.classes, (arguments.batch,))
    if arguments.weights:
        given = {name: torch.from_numpy(array) for name, array in numpy.load(arguments.weights).items()}
        activations = given.pop("activations", activations)
        labels = given.pop("labels", labels).long()
        module.load_state_dict(given)
    if arguments.save:
        arrays = {name: value.numpy() for name, value in module.state_dict().items()}
        numpy.savez(arguments.save, activations=activations.numpy(), labels=labels.numpy(), **arrays)
    return module, activations, labels


def main():
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    torch.set_num_interop_threads(1)
    module, activations, labels = make_problem(arguments)
    optimizer = torch.optim.SGD(module.parameters(), lr=arguments.lr, momentum=arguments.momentum)
    milliseconds, losses = [], []
    for _ in range(arguments.warm_up + arguments.steps):
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(module(activations), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        milliseconds.append((time.perf_counter() - start) * 1000.0)
    measured = milliseconds[arguments.warm_up :]
    print(
        json.dumps(
            {
                "median_ms": round(statistics.median(measured), 3),
                "fastest_ms": round(min(measured), 3),
                "batch": len(labels),
                "threads": arguments.threads,
                "torch": torch.__version__,
                "losses": losses,
            }
        )
    )


if __name__ == "__main__":
    main()
