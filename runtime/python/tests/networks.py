"""Variants of the small network whose code is difficult to divide or to export."""

import torch

import small


class Branching(small.Network):
    """The code depends on the shape of the input, which torch.fx cannot trace."""

    def forward(self, x):
        if x.shape[1] != 3:
            raise ValueError("three channels are required")
        return super().forward(x)


class Bypassing(small.Network):
    """Layers after the cut also read the images."""

    def forward(self, x):
        return super().forward(x) + x.mean()


class BypassingInTraining(small.Network):
    def forward(self, x):
        return super().forward(x) + (x.mean() if self.training else 0)


class Branch(small.Network):
    """The code after the cut depends on a comparison of the images, with a result that is false for noise and for NaN."""

    def __init__(self, condition):
        super().__init__()
        self.condition = condition

    def forward(self, x):
        logits = super().forward(x)
        return logits * 2 if self.condition(x, self.training) else logits


BRANCHES = {
    "large": lambda x, training: x.mean() > 0.5,
    "small": lambda x, training: x.mean() < -0.5,
    "empty": lambda x, training: x.abs().amax() < 1e-3,
    "spread": lambda x, training: x.std() > 10,
    "training": lambda x, training: training and x.mean() > 0.5,
}


class Dropping(small.Network):
    """Stochastic depth as in timm, with an in-place operation whose result is unused, and functional dropout."""

    def forward(self, x):
        x = self.blocks(torch.nn.functional.dropout(self.stem(x), 0.1, self.training))
        if self.training:
            kept = x.new_empty((len(x), 1, 1, 1)).bernoulli_(0.5)
            kept.div_(0.5)
            x = x * kept
        return self.head(torch.nn.functional.dropout(x, 0.5, self.training).mean((2, 3)))


class Centering(torch.nn.Module):
    """Subtracts the mean of the batch from each image."""

    def forward(self, x):
        return x - x.mean(0, keepdim=True)


def depending_on_the_batch(layer):
    model = small.network()
    model.blocks.insert(1, layer)
    return model


class Inside(torch.nn.Module):
    """A container with functional dropout around a cut."""

    def __init__(self, blocks):
        super().__init__()
        self.blocks = blocks

    def forward(self, x):
        return torch.nn.functional.dropout(self.blocks(x), 0.5, self.training)


class DroppingInside(small.Network):
    def __init__(self):
        super().__init__()
        self.blocks = Inside(self.blocks)


class Tied(small.Network):
    """The code after the cut computes with a weight of a frozen layer."""

    def __init__(self):
        super().__init__()
        self.first = small.Block(16)

    def forward(self, x):
        x = self.blocks(self.first(self.stem(x)))
        return self.head(x.mean((2, 3))) + self.first.convolution.weight.mean()


class InPlace(small.Network):
    def forward(self, x):
        return self.head(self.blocks(torch.nn.functional.relu(self.stem(x), inplace=True)).mean((2, 3)))


class Positions(small.Network):
    """Has one Parameter that earlier layers read, and one that later layers read."""

    def __init__(self):
        super().__init__()
        self.positions = torch.nn.Parameter(torch.randn(1, 16, 11, 11))
        self.scale = torch.nn.Parameter(torch.ones(8))

    def forward(self, x):
        return self.head(self.blocks(self.stem(x) + self.positions).mean((2, 3))) * self.scale


class Table(torch.nn.Module):
    """Returns a table that depends only on the shape of the input."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(1, 16, 1, 1))

    def forward(self, x):
        return self.weight.expand(len(x), -1, -1, -1)


class Tabled(small.Network):
    """Computes a table before the cut and reads it after the cut."""

    def __init__(self):
        super().__init__()
        self.table = Table()

    def forward(self, x):
        x = self.stem(x)
        table = self.table(x)
        return self.head((self.blocks(x) + table).mean((2, 3)))


class Pooling(torch.nn.Module):
    """Returns a feature map and the means of the features."""

    def __init__(self, blocks):
        super().__init__()
        self.blocks = blocks

    def forward(self, x):
        features = self.blocks(x)
        return features, features.mean((2, 3))


class Pooled(small.Network):
    """Layers after the blocks read only the second tensor that the blocks return."""

    def __init__(self):
        super().__init__()
        self.blocks = Pooling(self.blocks)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x))[1])


class WithLoss(small.Network):
    """Accepts labels and returns a dictionary, like the models of transformers."""

    def forward(self, x, labels=None):
        logits = super().forward(x)
        loss = None if labels is None else torch.nn.functional.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits}
