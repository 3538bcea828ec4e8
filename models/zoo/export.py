"""Exports torchvision's classifiers to ONNX with tensors named after modules, so that cuts such as `layer4.0` have the same name in all exports.

    python3 models/zoo/export.py resnet18 vgg19 --out networks --weights pretrained
    frostline train --model networks/resnet18.onnx --freeze layer4.0 ...

The input is `input` f32[batch, 3, 224, 224], the output is `logits`, and the network is in evaluation mode. Block outputs have the path of
the torchvision module as their name. They are identified by comparing values and verified with a different input; names are not guessed. The
metadata contains the freeze cut of freeze_cuts.json as `frostline.freeze` and, for pretrained weights, the expected pixels as
`frostline.pixels`. Above 2 GB, the weights are stored in FILE.data. Requires torch, torchvision, onnx, onnxruntime, and onnxscript for the
dynamo exporter.
"""

import argparse
import json
import pathlib
import re
import sys
import tempfile
import warnings

import numpy
import onnx
import onnxruntime
import torch
import torchvision

FREEZE_CUTS = pathlib.Path(__file__).with_name("freeze_cuts.json")
# Modules with named outputs. These are the block boundaries at which a network can be split.
BOUNDARIES = {
    "alexnet": r"features\.\d+|avgpool|classifier\.\d+",
    "resnet18": r"relu|maxpool|layer\d\.\d+|avgpool",
    "resnet50": r"relu|maxpool|layer\d\.\d+|avgpool",
    "vgg11": r"features\.\d+|avgpool|classifier\.\d+",
    "vgg19": r"features\.\d+|avgpool|classifier\.\d+",
    "densenet121": r"features\.(relu0|pool0|denseblock\d|transition\d|norm5)",
    "vit_b_16": r"encoder\.(dropout|layers\.encoder_layer_\d+|ln)",
    "squeezenet1_1": r"features\.\d+|classifier\.3",
}
# Networks in addition to the seven of the paper. SqueezeNet requires the least compute and is frozen up to the pooled features.
BEYOND_THE_PAPER = {"squeezenet1_1": "classifier.3"}
DEFAULT_OPSET = {"dynamo": 20, "legacy": 17}
# protobuf is limited to 2 GiB. The difference is reserved for the graph.
INLINE_LIMIT_MB = 2000
TOLERANCE = 1e-4


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="+", choices=[*BOUNDARIES, "all"], metavar="NETWORK", help=", ".join([*BOUNDARIES, "all"]))
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument("--weights", choices=("pretrained", "random"), default="random")
    parser.add_argument("--exporter", choices=("dynamo", "legacy"), default="dynamo", help="exporter of torch")
    parser.add_argument("--opset", type=int, help="default: 20 for dynamo, 17 for legacy")
    parser.add_argument("--seed", type=int, default=0, help="seed of random weights and of the input for verification")
    parser.add_argument("--external-above-mb", type=float, default=INLINE_LIMIT_MB, help="store weights in FILE.data above this size")
    return parser.parse_args()


def build(name, weights):
    """Returns the network in evaluation mode and the expected pixels, or None for random weights."""
    if weights == "random":
        return torchvision.models.get_model(name, weights=None).eval(), None
    pretrained = torchvision.models.get_model_weights(name).DEFAULT
    recipe = pretrained.transforms()
    pixels = {
        "resize": recipe.resize_size[0],
        "crop_height": recipe.crop_size[0],
        "crop_width": recipe.crop_size[0],
        "mean": recipe.mean,
        "std": recipe.std,
    }
    return torchvision.models.get_model(name, weights=pretrained).eval(), pixels


def export(network, example, exporter, opset):
    """Exports the network with torch and removes metadata about source files of this machine."""
    names = {"input_names": ["input"], "output_names": ["logits"], "opset_version": opset}
    # Fused attention is specific to torch; plain operators give the same result.
    torch.backends.mha.set_fastpath_enabled(False)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = pathlib.Path(folder, "model.onnx")
        if exporter == "dynamo":
            shapes = ({0: torch.export.Dim("batch")},)
            torch.onnx.export(network, (example,), path, dynamo=True, dynamic_shapes=shapes, verbose=False, **names)
        else:
            axes = {"input": {0: "batch"}, "logits": {0: "batch"}}
            torch.onnx.export(network, (example,), str(path), dynamo=False, dynamic_axes=axes, **names)
        model = onnx.load(path)
    for part in (model.graph, *model.graph.node, *model.graph.value_info, *model.graph.initializer):
        part.ClearField("doc_string")
        part.ClearField("metadata_props")
    return model


def module_outputs(network, boundary, example):
    """Runs a forward pass. Returns the outputs by module path, in call order, and the logits."""
    outputs, hooks = {}, []

    def keep(path, output):
        # Copy the output, because a subsequent ReLU may modify it in place.
        outputs[path] = output.numpy().copy()

    for path, module in network.named_modules():
        if re.fullmatch(boundary, path):
            hooks.append(module.register_forward_hook(lambda _module, _inputs, output, path=path: keep(path, output)))
    with torch.no_grad():
        logits = network(example).numpy()
    for hook in hooks:
        hook.remove()
    return outputs, logits


def run(model, names, example):
    """Computes the named values of the ONNX model with ONNX Runtime, without optimizations."""
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    del probe.graph.output[:]
    for name in names:
        probe.graph.output.add().name = name
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "probe.onnx")
        save(probe, path, INLINE_LIMIT_MB)
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return session.run(names, {"input": example.numpy()})


def difference(found, expected):
    """Returns the largest difference relative to the largest expected value, or infinity if the shapes differ."""
    if found.shape != expected.shape:
        return float("inf")
    scale = max(float(numpy.abs(expected).max()), numpy.finfo(numpy.float32).tiny)
    return float(numpy.abs(found - expected).max()) / scale


def find_values(model, expected, example):
    """Returns the module path by value name. For each module, this is the first value equal to its output, searched after the previous module's value.

    Modules without a separate value, such as Dropout or a layer folded into the next one, are omitted.
    """
    graph_outputs = {output.name for output in model.graph.output}
    names = [name for node in model.graph.node for name in node.output if name and name not in graph_outputs]
    values = run(model, names, example)
    found, start = {}, 0
    for path, output in expected.items():
        for place in range(start, len(names)):
            if difference(values[place], output) < TOLERANCE:
                found[names[place]] = path
                start = place + 1
                break
    return found


def rename(model, new_names):
    """Renames values in nodes and annotations."""
    graph = model.graph
    taken = {name for node in graph.node for name in (*node.input, *node.output)} - set(new_names)
    if clash := taken & set(new_names.values()):
        sys.exit(f"the exporter has other values named {sorted(clash)}")
    for node in graph.node:
        node.input[:] = [new_names.get(name, name) for name in node.input]
        node.output[:] = [new_names.get(name, name) for name in node.output]
    for value in graph.value_info:
        value.name = new_names.get(value.name, value.name)


def largest_difference(model, network, boundary, named, example):
    """Returns the largest difference between torch and ONNX Runtime for the logits and all named values."""
    outputs, logits = module_outputs(network, boundary, example)
    expected = {"logits": logits} | {path: outputs[path] for path in named}
    differences = {name: difference(value, expected[name]) for name, value in zip(expected, run(model, list(expected), example))}
    worst = max(differences, key=differences.get)
    if not differences[worst] < TOLERANCE:
        sys.exit(f"{worst} differs from torch's by {differences[worst]:.1e} of its largest value; nothing was written")
    return differences[worst]


def save(model, path, inline_limit_mb):
    """Writes the model, with a separate file for weights above the limit. Modifies the model. Returns the megabytes written."""
    data = path.with_name(path.name + ".data")
    data.unlink(missing_ok=True)
    weights_mb = sum(len(tensor.raw_data) for tensor in model.graph.initializer) / 1e6
    if weights_mb > inline_limit_mb:
        onnx.save(model, path, save_as_external_data=True, location=data.name)
    else:
        onnx.save(model, path)
    return sum(file.stat().st_size for file in (path, data) if file.exists()) / 1e6


def export_one(name, freeze, arguments):
    torch.manual_seed(arguments.seed)
    network, pixels = build(name, arguments.weights)
    seen, unseen = torch.randn(2, 3, 224, 224), torch.randn(3, 3, 224, 224)
    model = export(network, seen, arguments.exporter, arguments.opset or DEFAULT_OPSET[arguments.exporter])
    outputs, _ = module_outputs(network, BOUNDARIES[name], seen)
    new_names = find_values(model, outputs, seen)
    if freeze not in new_names.values():
        sys.exit(f"{name}: no value of the {arguments.exporter} export equals the output of {freeze}")
    rename(model, new_names)
    worst = largest_difference(model, network, BOUNDARIES[name], new_names.values(), unseen)
    metadata = {"frostline.freeze": freeze} | ({"frostline.pixels": json.dumps(pixels)} if pixels else {})
    onnx.helper.set_model_props(model, metadata)
    path = arguments.out / f"{name}.onnx"
    megabytes = save(model, path, arguments.external_above_mb)
    onnx.checker.check_model(str(path))
    print(f"{path}: {megabytes:.1f} MB, freeze cut {freeze}, {len(new_names)} values named, within {worst:.0e} of torch", flush=True)


def main():
    arguments = parse_arguments()
    freeze_cuts = {name: entry["export"] for name, entry in json.loads(FREEZE_CUTS.read_text()).items()} | BEYOND_THE_PAPER
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in BOUNDARIES if "all" in arguments.networks else arguments.networks:
        export_one(name, freeze_cuts[name], arguments)


if __name__ == "__main__":
    main()
