"""Exports small networks from PyTorch and records the losses of 50 training steps, for `pytorch.rs`.

    python3 models/training/src/tests/recorded/record.py

All steps use SGD with momentum and the same four rows, with numbers and labels computed from the index. Needs torch, onnx and onnxscript.
"""

import pathlib
import tempfile
import warnings

import onnx
import torch
from torch import nn
from torch.nn import functional

FOLDER = pathlib.Path(__file__).parent
ROWS, CLASSES, STEPS = 4, 3, 50
RATE, MOMENTUM = 0.05, 0.9
EXPORTS = [("legacy", 17), ("dynamo", 18), ("dynamo", 20), ("dynamo", 23), ("dynamo", 24), ("dynamo", 25)]


class Encoder(nn.Module):
    """Encoder like ViT in torchvision: class token, positions, nn.MultiheadAttention and GELU."""

    row = (6, 8)

    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.zeros(1, 1, 8))
        self.positions = nn.Parameter(torch.empty(1, 7, 8).normal_(std=0.02))
        self.first, self.second, self.last = nn.LayerNorm(8, eps=1e-6), nn.LayerNorm(8, eps=1e-6), nn.LayerNorm(8, eps=1e-6)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.wide, self.narrow, self.head = nn.Linear(8, 16), nn.Linear(16, 8), nn.Linear(8, CLASSES)

    def forward(self, x):
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.positions
        y = self.first(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        x = x + self.narrow(functional.gelu(self.wide(self.second(x))))
        return self.head(self.last(x)[:, 0])


class Scaled(nn.Module):
    """Encoder like ViT in timm and DINOv2: a single product for QKV, layer scale, mean over tokens, L2-normalized features."""

    row = (6, 8)

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.LayerNorm(8), nn.LayerNorm(8)
        self.qkv, self.out, self.head = nn.Linear(8, 24), nn.Linear(8, 8), nn.Linear(8, CLASSES)
        self.scale = nn.Parameter(torch.full((8,), 0.3))

    def forward(self, x):
        rows, tokens, width = x.shape
        q, k, v = self.qkv(self.first(x)).reshape(rows, tokens, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        y = functional.scaled_dot_product_attention(q, k, v)
        x = x + self.scale * self.out(y.transpose(1, 2).reshape(rows, tokens, width))
        x = self.last(x).mean(1)
        return self.head(4 * x / x.norm(dim=-1, keepdim=True))


class Windows(nn.Module):
    """Block like in Swin: shifted windows, a table of relative positions, a mask between windows, merging by strided slices."""

    row = (4, 4, 6)
    # The newer exporter folds the lookup because the table is small.
    exports = [("legacy", 17)]

    def __init__(self):
        super().__init__()
        self.norm, self.merged = nn.LayerNorm(6), nn.LayerNorm(24)
        self.qkv, self.out, self.head = nn.Linear(6, 18), nn.Linear(6, 6), nn.Linear(24, CLASSES)
        self.table = nn.Parameter(torch.empty(9, 2).normal_(std=0.1))
        places = torch.stack(torch.meshgrid(torch.arange(2), torch.arange(2), indexing="ij")).flatten(1)
        offsets = (places[:, :, None] - places[:, None]).permute(1, 2, 0) + 1
        self.register_buffer("index", offsets[..., 0].mul(3).add(offsets[..., 1]).flatten())

    def bias(self):
        return self.table[self.index].view(4, 4, -1).permute(2, 0, 1).contiguous().unsqueeze(0)

    def windows(self, x):
        rows, _, _, width = x.shape
        return x.view(rows, 2, 2, 2, 2, width).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, width)

    def mask(self, x):
        regions, count = x.new_zeros((4, 4)), 0
        for high in ((0, -2), (-2, -1), (-1, None)):
            for wide in ((0, -2), (-2, -1), (-1, None)):
                regions[high[0] : high[1], wide[0] : wide[1]] = count
                count += 1
        regions = regions.view(2, 2, 2, 2).permute(0, 2, 1, 3).reshape(4, 4)
        apart = regions.unsqueeze(1) - regions.unsqueeze(2)
        return apart.masked_fill(apart != 0, -100.0).masked_fill(apart == 0, 0.0)

    def forward(self, x):
        rows = x.shape[0]
        shifted = torch.roll(self.norm(x), shifts=(-1, -1), dims=(1, 2))
        qkv = self.qkv(self.windows(shifted)).reshape(-1, 4, 3, 2, 3).permute(2, 0, 3, 1, 4)
        scores = (qkv[0] * 3**-0.5).matmul(qkv[1].transpose(-2, -1))
        scores = scores + self.bias()
        scores = scores.view(rows, 4, 2, 4, 4) + self.mask(x).unsqueeze(1).unsqueeze(0)
        y = functional.softmax(scores.view(-1, 2, 4, 4), dim=-1).matmul(qkv[2])
        y = self.out(y.transpose(1, 2).reshape(-1, 4, 6))
        y = y.view(rows, 2, 2, 2, 2, 6).permute(0, 1, 3, 2, 4, 5).reshape(rows, 4, 4, 6)
        x = x + torch.roll(y, shifts=(1, 1), dims=(1, 2))
        x = torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1)
        return self.head(self.merged(x).flatten(1, 2).mean(1))


class Folded(Windows):
    """Like Windows, with a bias for each pair of positions instead of the table."""

    exports = EXPORTS[1:]

    def __init__(self):
        super().__init__()
        del self.table
        self.pairs = nn.Parameter(torch.empty(1, 2, 4, 4).normal_(std=0.1))

    def bias(self):
        return self.pairs


class ChannelsLast(nn.Module):
    """Block like in ConvNeXt: channels last for the norm and the linear layers, otherwise channels first; layer scale and GELU by tanh."""

    row = (6, 4, 4)

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(6, 6, 3, padding=1), nn.LayerNorm(6, eps=1e-6)
        self.wide, self.narrow, self.head = nn.Linear(6, 12), nn.Linear(12, 6), nn.Linear(6, CLASSES)
        self.scale = nn.Parameter(torch.full((6, 1, 1), 0.5))

    def forward(self, x):
        y = self.norm(self.conv(x).permute(0, 2, 3, 1))
        y = self.narrow(functional.gelu(self.wide(y), approximate="tanh")).permute(0, 3, 1, 2)
        return self.head((x + self.scale * y).mean((2, 3)))


class Features(nn.Module):
    """MLP on features: RMSNorm and a scaled SiLU from basic operators, Einsum, maximum over groups."""

    row = (12,)

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(12)
        self.wide, self.head = nn.Linear(12, 16), nn.Linear(4, CLASSES)
        self.mix = nn.Parameter(torch.empty(4, 4, 4).normal_(std=0.3))

    def forward(self, x):
        x = self.wide(self.norm(x))
        x = x * torch.sigmoid(1.702 * x)
        x = x.reshape(-1, 4, 4)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        return self.head(torch.einsum("ngi,gij->ngj", x, self.mix).amax(1))


class LookingBack(nn.Module):
    """Causal attention like in decoders, with keys shared by queries."""

    row = (6, 8)
    exports = EXPORTS[1:]

    def __init__(self):
        super().__init__()
        self.query, self.keys, self.out, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, CLASSES)

    def forward(self, x):
        rows, tokens, _ = x.shape
        q = self.query(x).reshape(rows, tokens, 4, 2).transpose(1, 2)
        k, v = self.keys(x).reshape(rows, tokens, 2, 2, 2).permute(2, 0, 3, 1, 4).unbind(0)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.head((x + self.out(y.transpose(1, 2).reshape(rows, tokens, 8)))[:, -1])


class Smoothed(nn.Module):
    """Antialiased downscaling like in torchvision."""

    row = (3, 9, 8)
    exports = EXPORTS[1:]

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1), nn.Linear(4 * 3 * 2, CLASSES)

    def forward(self, x):
        x = functional.interpolate(functional.relu(self.first(x)), size=(5, 4), mode="bilinear", antialias=True)
        x = functional.interpolate(functional.relu(self.second(x)), size=(3, 2), mode="bicubic", antialias=True)
        return self.head(x.flatten(1))


NETWORKS = {"encoder": Encoder, "scaled": Scaled, "windows": Windows, "folded": Folded, "channels_last": ChannelsLast, "features": Features}
NETWORKS |= {"looking_back": LookingBack, "smoothed": Smoothed}


def batch(row):
    count = ROWS * torch.Size(row).numel()
    numbers = torch.tensor([(place * 37 % 101) / 50 - 1 for place in range(count)])
    return numbers.reshape(ROWS, *row), torch.arange(ROWS) % CLASSES


def distinct(network):
    """Moves all parameters a little, because exporters merge equal tensors and would tie them."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.1 * torch.randn_like(parameter)


def export(network, x, exporter, opset):
    settings = {"input_names": ["input"], "output_names": ["logits"], "opset_version": opset}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = pathlib.Path(folder, "network.onnx")
        if exporter == "legacy":
            axes = {"input": {0: "batch"}, "logits": {0: "batch"}}
            # Folding would replace a table of positions by one weight per lookup.
            torch.onnx.export(network, (x,), path, dynamo=False, do_constant_folding=False, dynamic_axes=axes, **settings)
        else:
            shapes = ({0: torch.export.Dim("batch")},)
            program = torch.onnx.export(network, (x,), dynamo=True, dynamic_shapes=shapes, verbose=False, **settings)
            program.save(path, external_data=False)
        model = onnx.load(path)
    del model.graph.value_info[:]
    for node in model.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
    return model


def losses(network, x, labels):
    optimizer = torch.optim.SGD(network.parameters(), lr=RATE, momentum=MOMENTUM)
    for _ in range(STEPS):
        loss = functional.cross_entropy(network(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


def main():
    torch.backends.mha.set_fastpath_enabled(False)
    for name, build in NETWORKS.items():
        torch.manual_seed(0)
        network = build().eval()
        distinct(network)
        x, labels = batch(network.row)
        for exporter, opset in getattr(network, "exports", EXPORTS):
            onnx.save(export(network, x, exporter, opset), FOLDER / f"{name}.{exporter}{opset}.onnx")
        lines = [f"{loss:.8f}\n" for loss in losses(network.train(), x, labels)]
        (FOLDER / f"{name}.losses").write_text("".join(lines))
        print(name, lines[0].strip(), lines[-1].strip())


if __name__ == "__main__":
    main()
