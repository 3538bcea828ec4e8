"""Divides networks from models/zoo/classifiers.py with `frostline.torch.pushdown`, runs the frozen layers on a storage host, and compares both parts
with the complete network in plain PyTorch. Used by `cargo xtask bench zoo`.

    python zoo_pushdown.py --host http://127.0.0.1:8443 --token-file token --data photos --blocks 3 resnet18 hf_vit

Prints a JSON line for each network and block with `network`, `block`, and either `equal` (true), `refused` (reason for refusing the division) or
`differs` (description of different activations, or of a different loss or gradients of the suffix in evaluation or training mode). Activations are
extracted on the host. Random operations in training mode use the same seeds. The final line contains the host's `lane_crashes`.
"""

import argparse
import json
import pathlib
import sys
import urllib.request
import warnings

import torch

import frostline
import frostline.torch as fl

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "models" / "zoo"))
import classifiers

BATCH = 4
TOLERANCE = 1e-3
"""Maximum difference relative to the largest value. Kernels round differently."""
MOST = 0.8
"""A child module with at least this share of the parameters contains the blocks."""


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help="networks to check (default: all)")
    parser.add_argument("--host", required=True)
    parser.add_argument("--token-file", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--blocks", type=int, default=3, metavar="N")
    return parser.parse_args()


def size_of(module):
    return sum(parameter.numel() for parameter in module.parameters())


def called_modules(model, size):
    """Returns the modules called by `model`. Some networks bypass a ModuleList or Sequential and call the children directly."""
    called, hooks = set(), []
    for module in model.modules():
        hooks.append(module.register_forward_hook(lambda module, _, __: called.add(module)))
    with torch.no_grad():
        model(torch.zeros(1, 3, size, size))
    for hook in hooks:
        hook.remove()
    return called


def children_of(module, path, called):
    """Yields (path, module) for each child with parameters. Replaces uncalled children with the next level of modules."""
    for name, child in module.named_children():
        inner = f"{path}.{name}".lstrip(".")
        if size_of(child) and child in called:
            yield inner, child
        elif size_of(child):
            yield from children_of(child, inner, called)


def blocks_of(model, count, size):
    """Returns the paths of `count` evenly spaced blocks. The last block or the head remains trainable."""
    called = called_modules(model, size)
    children = list(children_of(model, "", called))
    while True:
        path, largest = max(children, key=lambda pair: size_of(pair[1]))
        inside = list(children_of(largest, path, called))
        if size_of(largest) < MOST * size_of(model) or not inside:
            break
        children = inside
    paths = [path for path, _ in children[:-1]]
    chosen = [paths[len(paths) * (number + 1) // (count + 1)] for number in range(count)] if paths else []
    return list(dict.fromkeys(chosen))


def loss_of(output, labels):
    logits = getattr(output, "logits", output)
    # Some networks have multiple outputs in training mode.
    logits = logits[0] if isinstance(logits, tuple) else logits
    return torch.nn.functional.cross_entropy(logits, labels)


def step(module, rows, labels, parameters):
    """Returns (loss, gradients) of a step with a fixed seed."""
    for parameter in parameters:
        parameter.grad = None
    torch.manual_seed(0)
    loss = loss_of(module(rows), labels)
    loss.backward()
    return loss.detach(), [None if parameter.grad is None else parameter.grad.clone() for parameter in parameters]


def distance(ours, theirs):
    if ours is None or theirs is None:
        return 0.0 if ours is theirs else float("inf")
    if ours.shape != theirs.shape:
        return float("inf")
    return float((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1e-12))


def copied(output):
    """Copies the output because subsequent modules may change it in place."""
    return torch.utils._pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, output)


def plain_step(model, block, images, labels, parameters, training):
    """Runs a step of the complete network: evaluation mode up to the block, mode `training` for the remaining layers."""
    frozen = {}
    part = model.get_submodule(block)
    note = part.register_forward_hook(lambda _, __, output: frozen.update(output=copied(output)))
    with torch.no_grad():
        model.eval()(images)
    note.remove()

    def replace(_, __, output):
        torch.manual_seed(0)
        return copied(frozen["output"])

    hook = part.register_forward_hook(replace)
    statistics = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        model.train(training)
        return frozen["output"], step(model, images, labels, parameters)
    finally:
        hook.remove()
        model.eval()
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                buffer.copy_(statistics[name])


def differences(model, suffix, block, images, rows, labels):
    """Describes the difference between the divided and the complete network, or returns `None`."""
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    parameters = list(suffix.parameters())
    for training in (False, True):
        mode = "training" if training else "evaluation"
        output, (loss, gradients) = plain_step(model, block, images, labels, parameters, training)
        leaves = torch.utils._pytree.tree_leaves(output)
        output = next(leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.shape == rows.shape)
        off = distance(rows, output.detach())
        if off > TOLERANCE:
            return f"activations differ by {off:.2g}"
        statistics = {name: buffer.clone() for name, buffer in suffix.named_buffers()}
        suffix.train(training)
        # Use activations from PyTorch: rounding differences on the host would hide differences in the suffix.
        ours, own = step(suffix, output.detach().clone(), labels, parameters)
        suffix.eval()
        with torch.no_grad():
            for name, buffer in suffix.named_buffers():
                buffer.copy_(statistics[name])
        if not loss.isfinite() or distance(ours, loss) > TOLERANCE:
            return f"the loss in {mode} mode is {ours:.6g}, not {loss:.6g}"
        largest = max((float(gradient.abs().max()) for gradient in gradients if gradient is not None), default=0.0)
        for one, other in zip(own, gradients, strict=True):
            if (one is None) != (other is None) or (one is not None and float((one - other).abs().max()) > TOLERANCE * largest):
                return f"gradients differ in {mode} mode"
    return None


def first_batch(data):
    return next(iter(torch.utils.data.DataLoader(data, batch_size=None)))


def check(name, block, model, images, labels, arguments, common):
    try:
        suffix, data = fl.pushdown(model, arguments.data, arguments.host, freeze=block, split=block, encoding="f32", **common)
        rows, own_labels = first_batch(data)
    except (ValueError, frostline.Error) as error:
        return {"refused": " ".join(str(error).split())}
    assert torch.equal(labels, own_labels), "both passes must have the same order"
    why = differences(model, suffix, block, images, rows, labels)
    return {"differs": why} if why else {"equal": True}


def main():
    arguments = parse_arguments()
    warnings.simplefilter("ignore")
    common = {"batch": BATCH, "seed": 1, "feature_cache": "off", "token_file": arguments.token_file}
    for name in arguments.networks or [name for name in classifiers.NETWORKS if name != classifiers.MLP]:
        try:
            model, shape = classifiers.build(name)
        except Exception as error:  # This release of the library does not support the network.
            print(json.dumps({"network": name, "block": "", "refused": f"cannot build: {error}"}), flush=True)
            continue
        size = shape[-1]
        _, whole = fl.pushdown(model, arguments.data, arguments.host, freeze="none", size=size, **common)
        images, labels = first_batch(whole)
        for block in blocks_of(model, arguments.blocks, size):
            verdict = check(name, block, model, images, labels, arguments, common | {"size": size})
            print(json.dumps({"network": name, "block": block} | verdict), flush=True)
    print(json.dumps({"lane_crashes": lane_crashes(arguments.host)}), flush=True)


def lane_crashes(host):
    with urllib.request.urlopen(f"{host}/metrics") as metrics:
        lines = metrics.read().decode().splitlines()
    return int(float(next(line.split()[1] for line in lines if line.startswith("frostline_lane_crashes_total "))))


if __name__ == "__main__":
    main()
