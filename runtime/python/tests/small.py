"""A small network for small images, and a training loop that records the samples."""

import copy

import torch

import frostline.torch as fl

SIZE = 48


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.convolution = torch.nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(width)

    def forward(self, x):
        return torch.relu(x + self.norm(self.convolution(x)))


class Network(torch.nn.Module):
    def __init__(self, classes=8):
        super().__init__()
        self.stem = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 5, stride=4), torch.nn.ReLU())
        self.blocks = torch.nn.Sequential(Block(16), Block(16), Block(16))
        self.head = torch.nn.Linear(16, classes)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def network():
    """Create a network with fixed weights and non-default running statistics."""
    torch.manual_seed(0)
    made = Network()
    for name, value in made.named_buffers():
        if name.endswith("running_var"):
            value.copy_(torch.rand(value.shape) * 0.1 + 0.01)
        elif name.endswith("running_mean"):
            value.copy_(torch.rand(value.shape) * 0.2 - 0.1)
    return made.eval()


class Noted:
    """A source that records the keys of each batch."""

    def __init__(self, source):
        self.source, self.keys = source, []

    def rows(self, samples, *rest):
        for data, places, failed in self.source.rows(samples, *rest):
            self.keys.append([samples[place][0] for place in places])
            yield data, places, failed


def divided(data, hosts=None, batch=16, **options):
    """Return (suffix, activations) of the small network, with recorded keys."""
    suffix, activations = fl.pushdown(network(), data, hosts, freeze="blocks.1", batch=batch, size=SIZE, **{"split": "blocks.1", **options})
    activations.source = Noted(activations.source)
    return suffix, activations


def train(suffix, activations, after=lambda step: None, lr=0.05):
    """Train for an epoch, alone or in a process group, and return (losses, keys by step).

    Calls `after(step)` after each step.
    """
    module = suffix.eval()  # Use stored statistics, so that rows do not affect each other.
    distributed = torch.distributed.is_initialized()
    if distributed:
        module = torch.nn.parallel.DistributedDataParallel(module)
    optimizer, losses = torch.optim.SGD(module.parameters(), lr), []
    for step, (x, y) in enumerate(torch.utils.data.DataLoader(activations, batch_size=None)):
        loss = fl.mean(torch.nn.functional.cross_entropy(module(x), y, reduction="none"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss = loss.detach()
        if distributed:
            torch.distributed.all_reduce(loss)
            loss /= torch.distributed.get_world_size()
        losses.append(float(loss))
        after(step)
    return losses, copy.deepcopy(activations.source.keys)
