"""Divides networks from models/zoo/classifiers.py with `frostline.torch.pushdown`, runs the frozen layers on a storage host, and compares both parts
with the complete network in plain PyTorch. Used by `cargo xtask bench zoo`.

    python zoo_pushdown.py --host http://127.0.0.1:8443 --token-file token --data photos --blocks 3 resnet18 hf_vit

Each network is divided twice at each block: with a head of zeros, as in scripts that fine-tune a new head, and with the original head. With zeros,
the output is the same for any frozen layers. The original weights are restored before losses and gradients are compared. Exports are cached, so the
second division reuses the export.

Prints a JSON line for each network and block with `network`, `block`, and either `equal` (true), `refused` (reason for refusing both divisions) or
`differs` (description of different activations, or of a different loss or gradients of the suffix in evaluation or training mode, or of different
results of the two divisions). Activations are extracted on the host. Random operations in training mode use the same seeds. The final line contains
the host's `lane_crashes`.

If a block alone does not separate the network, such as a branch of HRNet, the network is divided at the modules that the error names.
"""

import argparse
import contextlib
import json
import os
import pathlib
import sys
import tempfile
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
SMALL_WEIGHT = 1e-3
"""Weights whose values are all smaller are replaced by `enlarge_small_weights`."""
MOST = 0.8
"""A child module with at least this share of the parameters contains the blocks."""


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help="networks to check (default: all)")
    parser.add_argument("--host", required=True)
    parser.add_argument("--token-file", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--blocks", type=int, default=3, metavar="N")
    parser.add_argument("--share", type=int, nargs=2, default=(0, 1), metavar=("N", "COUNT"), help="check every COUNT-th network from N, as one of COUNT scripts")
    return parser.parse_args()


def size_of(module):
    return sum(parameter.numel() for parameter in module.parameters())


def logits_of(output):
    logits = getattr(output, "logits", output)
    # Some networks have multiple outputs in training mode.
    return logits[0] if isinstance(logits, tuple) else logits


def called_modules(model, size):
    """Returns the modules called by `model` and the shapes of their outputs, ordered by completion. The last one is `model`.

    Some networks bypass a ModuleList or Sequential and call the children directly.
    """
    called, hooks = [], []
    for module in model.modules():
        hooks.append(module.register_forward_hook(lambda module, _, output: called.append((module, getattr(logits_of(output), "shape", ())))))
    with torch.no_grad():
        model(torch.zeros(1, 3, size, size))
    for hook in hooks:
        hook.remove()
    return called


def head_of(called):
    """Returns the last layers with weights, whose outputs have a column for each class. Some networks have multiple heads."""
    (_, (_, classes)), head = called[-1], []
    for module, shape in reversed(called):
        if any(module.children()) or not size_of(module):
            continue
        if shape[1:2] != (classes,):
            break
        head.append(module)
    return head


def enlarge_small_weights(model):
    """Replaces weights that are initialized to about zero, such as scales in ConvNeXt and the head of torchvision's ViT.

    They would hide most differences in the layers before them.
    """
    for name, weight in model.named_parameters():
        if not name.endswith("bias") and float(weight.detach().abs().max()) < SMALL_WEIGHT:
            torch.nn.init.uniform_(weight, 0.2, 0.8)


@contextlib.contextmanager
def zeros_in(layers):
    """Context manager that sets the weights of `layers` to zero, and then restores them."""
    saved = [(weight, weight.detach().clone()) for layer in layers for weight in layer.parameters()]
    with torch.no_grad():
        for weight, _ in saved:
            weight.zero_()
    try:
        yield
    finally:
        with torch.no_grad():
            for weight, original in saved:
                weight.copy_(original)


def children_of(module, path, called):
    """Yields (path, module) for each child with parameters. Replaces uncalled children with the next level of modules."""
    for name, child in module.named_children():
        inner = f"{path}.{name}".lstrip(".")
        if size_of(child) and child in called:
            yield inner, child
        elif size_of(child):
            yield from children_of(child, inner, called)


def blocks_of(model, count, called):
    """Returns the paths of `count` evenly spaced blocks. The last block or the head remains trainable."""
    called = {module for module, _ in called}
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
    return torch.nn.functional.cross_entropy(logits_of(output), labels)


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


def hooked(model, modules, hook):
    """Returns the handles of forward hooks that call `hook` with the path and the output of each of the modules."""
    return [model.get_submodule(path).register_forward_hook(lambda _, __, output, path=path: hook(path, output)) for path in modules]


def plain_step(model, modules, images, labels, parameters, training):
    """Runs a step of the complete network: evaluation mode up to `modules`, mode `training` for the remaining layers.

    Returns (outputs of the modules by path, result of `step`).
    """
    frozen = {}
    hooks = hooked(model, modules, lambda path, output: frozen.update({path: copied(output)}))
    with torch.no_grad():
        model.eval()(images)
    for hook in hooks:
        hook.remove()

    def replace(path, _):
        torch.manual_seed(0)
        return copied(frozen[path])

    hooks = hooked(model, modules, replace)
    statistics = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        model.train(training)
        return frozen, step(model, images, labels, parameters)
    finally:
        for hook in hooks:
            hook.remove()
        model.eval()
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                buffer.copy_(statistics[name])


def differences(model, suffix, images, rows, labels):
    """Describes the difference between the divided and the complete network, or returns `None`.

    :param rows: The activations of the host, one tensor for each of `suffix.points`.
    """
    modules = list(dict.fromkeys(path for path, _ in suffix.points))
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    parameters = list(suffix.parameters())
    for training in (False, True):
        mode = "training" if training else "evaluation"
        outputs, (loss, gradients) = plain_step(model, modules, images, labels, parameters, training)
        leaves = {path: torch.utils._pytree.tree_leaves(output) for path, output in outputs.items()}
        expected = [leaves[path][leaf].detach() for path, leaf in suffix.points]
        for own, plain in zip(rows, expected, strict=True):
            off = distance(own, plain)
            if not off <= TOLERANCE:
                return f"activations differ by {off:.2g}"
        statistics = {name: buffer.clone() for name, buffer in suffix.named_buffers()}
        suffix.train(training)
        # Use activations from PyTorch: rounding differences on the host would hide differences in the suffix.
        ours, own = step(lambda copies: suffix(*copies), [each.clone() for each in expected], labels, parameters)
        suffix.eval()
        with torch.no_grad():
            for name, buffer in suffix.named_buffers():
                buffer.copy_(statistics[name])
        if not loss.isfinite() or not distance(ours, loss) <= TOLERANCE:
            return f"the loss in {mode} mode is {ours:.6g}, not {loss:.6g}"
        largest = max((float(gradient.abs().max()) for gradient in gradients if gradient is not None), default=0.0)
        if not largest > 0:
            return f"the gradients of the complete network in {mode} mode cannot be compared: the largest is {largest}"
        for one, other in zip(own, gradients, strict=True):
            if (one is None) != (other is None) or (one is not None and not float((one - other).abs().max()) <= TOLERANCE * largest):
                return f"gradients differ in {mode} mode"
    return None


def first_batch(data):
    return next(iter(torch.utils.data.DataLoader(data, batch_size=None)))


def check_once(model, block, zeros, images, labels, arguments, common):
    """Divides the network while the weights of the layers `zeros` are zero, and compares both parts with the original weights."""
    def divide(modules):
        freeze, split = list(modules), ",".join(modules)
        with zeros_in(zeros):
            suffix, data = fl.pushdown(model, arguments.data, arguments.host, freeze=freeze, split=split, encoding="f32", **common)
            return suffix, first_batch(data)

    try:
        try:
            suffix, (rows, own_labels) = divide([block])
        except fl.CannotDivide as error:
            # A single valid module contains the block and is a block of its own.
            if len(error.modules) < 2:
                raise
            suffix, (rows, own_labels) = divide(error.modules)
    except (ValueError, frostline.Error) as error:
        return {"refused": " ".join(str(error).split())}
    assert torch.equal(labels, own_labels), "both passes must have the same order"
    why = differences(model, suffix, images, [rows] if isinstance(rows, torch.Tensor) else rows, labels)
    return {"differs": why} if why else {"equal": True}


def check(model, block, head, *rest):
    # The second division uses the exported layers of the first one.
    with_zeros, original = check_once(model, block, head, *rest), check_once(model, block, [], *rest)
    if with_zeros.keys() != original.keys():
        return {"differs": f"with a head of zeros {with_zeros}, otherwise {original}"}
    return with_zeros


def check_network(name, arguments, common):
    def report(**figures):
        print(json.dumps({"network": name} | figures), flush=True)

    try:
        model, shape = classifiers.build(name)
    except Exception as error:  # This release of the library does not support the network.
        report(block="", refused=f"cannot build: {error}")
        return
    enlarge_small_weights(model)
    size = shape[-1]
    common = common | {"size": size}
    _, whole = fl.pushdown(model, arguments.data, arguments.host, freeze="none", **common)
    images, labels = first_batch(whole)
    called = called_modules(model, size)
    head = head_of(called)
    with zeros_in(head), torch.no_grad():
        assert not logits_of(model(images)).any(), f"the output of {name} depends on more layers than {head}"
    for block in blocks_of(model, arguments.blocks, called):
        report(block=block, **check(model, block, head, images, labels, arguments, common))


def main():
    arguments = parse_arguments()
    warnings.simplefilter("ignore")
    common = {"batch": BATCH, "seed": 1, "feature_cache": "off", "token_file": arguments.token_file}
    first, count = arguments.share
    for name in (arguments.networks or [name for name in classifiers.NETWORKS if name != classifiers.MLP])[first::count]:
        with tempfile.TemporaryDirectory() as exports:
            os.environ["FROSTLINE_EXPORT_CACHE"] = exports
            check_network(name, arguments, common)
    print(json.dumps({"lane_crashes": lane_crashes(arguments.host)}), flush=True)


def lane_crashes(host):
    with urllib.request.urlopen(f"{host}/metrics") as metrics:
        lines = metrics.read().decode().splitlines()
    return int(float(next(line.split()[1] for line in lines if line.startswith("frostline_lane_crashes_total "))))


if __name__ == "__main__":
    main()
