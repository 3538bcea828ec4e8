"""Exports small networks of each family from PyTorch and records the losses of 50 training steps in losses.txt.

    python3 record.py [OUT]      # needs torch, onnx and onnxscript

A line of losses.txt contains network, optimizer, mode of BatchNormalization and the losses before each of the 50 steps. Samples and
labels are not stored, because `families.rs` implements the same generator.
"""
import pathlib
import sys
import warnings

import onnx
import torch
from torch import nn
from torch.nn import functional as F

OUT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
ROWS, BATCHES, STEPS, CLASSES = 8, 4, 50, 3
SHAPE = (3, 12, 12)


def numbers(count):
    """Returns integers below 2^31 from a linear congruential generator."""
    state, found = 1, []
    for _ in range(count):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        found.append(state)
    return found


def batches():
    size = SHAPE[0] * SHAPE[1] * SHAPE[2]
    drawn = numbers(BATCHES * ROWS * (size + 1))
    found = []
    for batch in range(BATCHES):
        part = drawn[batch * ROWS * (size + 1) : (batch + 1) * ROWS * (size + 1)]
        pixels = torch.tensor([n / 2**30 - 1 for n in part[: ROWS * size]], dtype=torch.float64).float()
        labels = torch.tensor([(n >> 16) % CLASSES for n in part[ROWS * size :]])
        found.append((pixels.reshape(ROWS, *SHAPE), labels))
    return found


class Squeeze(nn.Module):
    """Squeeze and excitation."""

    def __init__(self, channels, act, gate):
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, 2, 1), nn.Conv2d(2, channels, 1)
        self.act, self.gate = act, gate

    def forward(self, x):
        return x * self.gate(self.up(self.act(self.down(F.adaptive_avg_pool2d(x, 1)))))


class Shuffle(nn.Module):
    """Unit of ShuffleNetV2 with the channel shuffle."""

    def __init__(self):
        super().__init__()
        self.one, self.deep, self.two = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.Conv2d(4, 4, 1)

    def forward(self, x):
        kept, y = x.chunk(2, dim=1)
        y = torch.cat((kept, F.relu(self.two(self.deep(F.relu(self.one(y)))))), dim=1)
        n, c, h, w = y.shape
        return y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


class Residual(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.inner = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.inner(x)


def head(channels):
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES)]


def preactivated():
    """Returns a network with norms that exporters cannot fold, because a ReLU is between all norms and convolutions."""
    return nn.Sequential(
        nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 6, 3, stride=2, padding=1), nn.ReLU(), nn.BatchNorm2d(6), nn.ReLU(),
        nn.Conv2d(6, 6, 3, padding=1), *head(6),
    )


NETWORKS = {
    "mobilenet_v2": lambda: nn.Sequential(
        nn.Conv2d(3, 6, 3, stride=2, padding=1), nn.ReLU6(),
        Residual(nn.Conv2d(6, 12, 1), nn.ReLU6(), nn.Conv2d(12, 12, 3, padding=1, groups=12), nn.ReLU6(), nn.Conv2d(12, 6, 1)),
        nn.Conv2d(6, 6, 3, stride=2, padding=1, groups=6), nn.ReLU6(), *head(6),
    ),
    "mobilenet_v3": lambda: nn.Sequential(
        nn.Conv2d(3, 6, 3, stride=2, padding=1), nn.Hardswish(),
        nn.Conv2d(6, 6, 5, padding=2, groups=6), nn.Hardswish(), Squeeze(6, nn.ReLU(), nn.Hardsigmoid()),
        nn.Conv2d(6, 8, 1), nn.Hardswish(), *head(8),
    ),
    "efficientnet": lambda: nn.Sequential(
        nn.Conv2d(3, 6, 3, stride=2, padding=1), nn.SiLU(),
        nn.Conv2d(6, 6, 5, stride=2, padding=2, groups=6), nn.SiLU(), Squeeze(6, nn.SiLU(), nn.Sigmoid()),
        nn.Conv2d(6, 8, 1), nn.SiLU(), *head(8),
    ),
    "regnet": lambda: nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(),
        Residual(nn.Conv2d(8, 8, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.ReLU(), nn.Conv2d(8, 8, 1)),
        nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=4), nn.ReLU(), *head(8),
    ),
    "shufflenet": lambda: nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2, 1), Shuffle(), Shuffle(), *head(8),
    ),
    "alexnet": lambda: nn.Sequential(
        nn.Conv2d(3, 6, 5, padding=2), nn.ReLU(), nn.LocalResponseNorm(3, 0.1, 0.75, 1.0), nn.MaxPool2d(3, 2),
        nn.Conv2d(6, 6, 3, padding=1, groups=2), nn.ReLU(), nn.MaxPool2d(2, 2, ceil_mode=True), nn.Flatten(), nn.Linear(54, CLASSES),
    ),
    "group_norm": lambda: nn.Sequential(
        nn.Conv2d(3, 6, 3, stride=2, padding=1), nn.GroupNorm(2, 6), nn.PReLU(6), nn.Conv2d(6, 6, 3, padding=1),
        nn.InstanceNorm2d(6, affine=True), nn.PReLU(), *head(6),
    ),
    "activations": lambda: nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.Mish(), nn.Conv2d(4, 4, 1), nn.ELU(0.8), nn.Conv2d(4, 4, 1), nn.CELU(0.7),
        nn.Conv2d(4, 4, 1), nn.SELU(), nn.Conv2d(4, 4, 1), nn.Softplus(), nn.Conv2d(4, 4, 1), nn.LeakyReLU(0.2), nn.Conv2d(4, 4, 1),
        nn.Hardtanh(-0.5, 0.7), nn.Conv2d(4, 4, 1), nn.Tanh(), *head(4),
    ),
    "resampled": lambda: nn.Sequential(
        nn.ReflectionPad2d(1), nn.Conv2d(3, 4, 3, stride=2), nn.ReLU(), nn.Upsample(scale_factor=2, mode="nearest"),
        nn.Conv2d(4, 4, 3, padding=2, dilation=2), nn.ReLU(), nn.Upsample(scale_factor=2, mode="bilinear"), nn.ZeroPad2d((0, 1, 1, 0)),
        nn.AvgPool2d(3, 2, 1, ceil_mode=True), nn.Conv2d(4, 8, 1), nn.PixelShuffle(2),
        nn.AvgPool2d(2, 2, count_include_pad=False), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(2, CLASSES),
    ),
    "batch_norm": preactivated,
}


def stir(network):
    """Moves vectors such as biases and statistics away from 0 and 1, because exporters merge equal tensors."""
    with torch.no_grad():
        for name, tensor in list(network.named_parameters()) + list(network.named_buffers()):
            if tensor.dim() == 1 and tensor.is_floating_point():
                tensor.add_(torch.linspace(-0.15, 0.2, len(tensor)) + 0.01 * (len(name) % 7))


def export(network, name, exporter):
    example, batch = torch.zeros(2, *SHAPE), {0: "batch"}
    path = OUT / f"{name}.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if exporter == "dynamo":
            program = torch.onnx.export(
                network, (example,), dynamo=True, opset_version=18, input_names=["input"], output_names=["logits"],
                dynamic_shapes=[{0: torch.export.Dim("batch")}], verbose=False,
            )
            program.save(str(path))
        else:
            torch.onnx.export(
                network, (example,), str(path), dynamo=False, opset_version=17, input_names=["input"], output_names=["logits"],
                dynamic_axes={"input": batch, "logits": batch},
            )
    model = onnx.load(path)
    for node in model.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
    for value in list(model.graph.initializer) + list(model.graph.value_info) + list(model.graph.input) + list(model.graph.output):
        value.doc_string = ""
        if hasattr(value, "metadata_props"):
            del value.metadata_props[:]
    del model.graph.value_info[:], model.metadata_props[:], model.graph.metadata_props[:]
    onnx.save(model, path)


def train(network, optimizer, norms):
    frozen = {id(p) for m in network.modules() if isinstance(m, nn.BatchNorm2d) for p in m.parameters()} if norms == "frozen" else set()
    weights = [p for p in network.parameters() if id(p) not in frozen]
    if optimizer == "sgd":
        step = torch.optim.SGD(weights, lr=0.02, momentum=0.9, weight_decay=1e-3)
    else:
        step = torch.optim.AdamW(weights, lr=0.01)
    network.train(norms == "updated")
    losses, data = [], batches()
    for turn in range(STEPS):
        pixels, labels = data[turn % BATCHES]
        loss = F.cross_entropy(network(pixels), labels)
        step.zero_grad()
        loss.backward()
        step.step()
        losses.append(loss.item())
    return losses


def main():
    torch.set_num_threads(1)
    lines = []
    for name, build in NETWORKS.items():
        runs = [("sgd", "stored"), ("adamw", "stored")]
        if name == "batch_norm":
            runs += [("sgd", "frozen"), ("sgd", "updated")]
        # The legacy exporter emits LocalResponseNorm with an If.
        for exporter in ["dynamo"] if name == "alexnet" else ["dynamo", "legacy"]:
            torch.manual_seed(5)
            network = build().eval()
            stir(network)
            export(network, f"{name}.{exporter}", exporter)
        state = {key: value.clone() for key, value in network.state_dict().items()}
        for optimizer, norms in runs:
            network.load_state_dict(state)
            losses = train(network, optimizer, norms)
            lines.append(" ".join([name, optimizer, norms, *(f"{loss:.7g}" for loss in losses)]))
            print(name, optimizer, norms, f"{losses[0]:.4f} -> {losses[-1]:.4f}")
    (OUT / "losses.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
