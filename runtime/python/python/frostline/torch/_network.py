"""Export of a module to ONNX, with cuts named by modules."""

import ast
import contextlib
import difflib
import inspect
import io
import unittest.mock
import warnings

import onnx
import onnx.utils
import onnx_ir.passes.common as passes
import onnxscript.optimizer
import torch

from frostline.torch._activations import Packing
from frostline.torch._divide import NonzeroWeights, difference, read_outputs
from frostline.torch._model import Evaluating, line_of

JOINT = "frostline.joint/"
"""Prefix of the names of nodes that join the tensors of a cut. The command names its nodes alike."""
MOST_TENSORS = 8
"""Maximum number of tensors of a cut."""
SCOPES = "pkg.torch.onnx.name_scopes"
"""Metadata key in which torch's exporter stores the modules of a node."""
INPUT, OUTPUT = "input", "output"
FUSED_ATTENTION = torch.nn.functional.scaled_dot_product_attention


def plain_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, **more):
    """Compute `scaled_dot_product_attention` with basic operators.

    The exporter supports the fused operator only for four axes. It also assumes an output layout for which later views
    (Swin, BEiT, MaxViT) cannot be exported with a variable number of samples.
    """
    if is_causal or any(more.values()):
        return FUSED_ATTENTION(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, **more)
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if attn_mask is not None:
        # Do not invert the mask. The exporter would share the inverted mask of the first block with all other blocks, and the
        # network could not be divided after it.
        scores = torch.where(attn_mask, scores, float("-inf")) if attn_mask.dtype == torch.bool else scores + attn_mask
    return torch.nn.functional.dropout(scores.softmax(-1), dropout_p) @ value


def export(model, example, fuse=True):
    """Export `model` in evaluation mode as an ONNX model with a variable number of samples.

    Raises `ValueError` if the exporter or the model fails.

    :param example: Input samples.
    :param fuse: Whether the exporter can fuse nodes, for example a convolution with its normalization.
    """
    # The images can be the first of any number of arguments, as in a module that calls another one.
    first = next(iter(inspect.signature(model.forward).parameters.values()))
    axes = {0: torch.export.Dim("batch")}
    try:
        plain = unittest.mock.patch.object(torch.nn.functional, "scaled_dot_product_attention", plain_attention)
        with Evaluating(model), plain, warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                model,
                (example,),
                dynamo=True,
                optimize=fuse,
                verbose=False,
                dynamic_shapes=((axes,),) if first.kind == first.VAR_POSITIONAL else (axes,),
                input_names=[INPUT],
                output_names=[OUTPUT],
            )
    except Exception as error:  # Exceptions of the exporter and the model have arbitrary types.
        raise ValueError(
            f"torch.onnx cannot export this {type(model).__name__}: {line_of(error.__cause__ or error)}; "
            "torch.onnx.export(model, (images,), dynamo=True) shows the details"
        ) from error
    if not fuse:
        _fold(program.model)
    exported = program.model_proto
    # The documentation strings contain source locations of the user's code. Do not send them to hosts.
    for part in (exported, exported.graph, *exported.graph.node, *exported.graph.value_info, *exported.graph.initializer):
        part.ClearField("doc_string")
    scoped = {}
    for node in exported.graph.node:
        noted = [entry for entry in node.metadata_props if entry.key == SCOPES]
        # Nodes that the exporter adds, such as Split, have no scopes. They belong to the module of their input.
        noted = noted or next((scoped[name] for name in node.input if name in scoped), [])
        node.ClearField("metadata_props")
        node.metadata_props.extend(noted)
        scoped.update(dict.fromkeys(node.output, noted))
    return exported


def _fold(model):
    """Fold constants without the other optimizations of the exporter."""
    onnxscript.optimizer.inline(model)
    onnxscript.optimizer.fold_constants(model)
    cleaning = (
        passes.RemoveUnusedNodesPass(),
        passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        passes.DeduplicateInitializersPass(),
        passes.OutputFixPass(),
        passes.NameFixPass(),
    )
    for each in cleaning:
        each(model)


def scopes(node):
    """Return the paths of the modules that contain an exported node, starting with the outermost module."""
    note = next((entry.value for entry in node.metadata_props if entry.key == SCOPES), "[]")
    return [path for path in ast.literal_eval(note)[:-1] if path]


def cut(exported: onnx.ModelProto, module: str) -> str:
    """Return the only output tensor of the module with this path, or `module` if it is the name of a tensor.

    Raises `ValueError` with the names of similar modules if the module does not exist, and `ValueError` if later layers
    read more than one of its tensors.
    """
    if any(module in node.output for node in exported.graph.node) and not any(module in scopes(node) for node in exported.graph.node):
        return module
    ends = _ends(exported, module)
    if len(ends) != 1:
        raise ValueError(f"the module {module!r} passes {len(ends)} tensors to later layers; choose a module that passes exactly one")
    return ends[0]


def _ends(exported, module):
    """Return the output tensors of the module with this path that later layers read.

    Raises `ValueError` with the names of similar modules if the module does not exist.
    """
    inside = [node for node in exported.graph.node if module in scopes(node)]
    if not inside:
        found = dict.fromkeys(path for node in exported.graph.node for path in scopes(node))
        near = ", ".join(difflib.get_close_matches(module, found, 8) or found)
        raise ValueError(
            f"the exported network has no module {module!r}, because it does not exist or is fused with the next one; choose another module: {near}"
        )
    made = {name for node in inside for name in node.output}
    outside = [node for node in exported.graph.node if module not in scopes(node)]
    read = {name for node in outside for name in node.input} | {output.name for output in exported.graph.output}
    return sorted(made & read)


def join(exported, model, points, example):
    """Add nodes to `exported` that flatten and concatenate the tensors of a cut, as `Model::with_cut` of the command does.

    Returns the name of the joint tensor and the `Packing`. Raises `ValueError` if a tensor does not exist in the exported
    network.

    :param points: The tensors of the cut, as in `Suffix.points`.
    :param example: Input samples.
    """
    paths, found = dict.fromkeys(path for path, _ in points), {}
    read_outputs(model, paths, example, found)
    expected = [found[path][leaf] for path, leaf in points]
    candidates = sorted({end for path in paths for end in _ends(exported, path)})
    actual = dict(zip(candidates, _outputs(exported, candidates, example), strict=True))
    names = []
    for (path, _), leaf in zip(points, expected, strict=True):
        same = [name for name, rows in actual.items() if rows.shape == leaf.shape and not difference(leaf, rows)]
        if not same:
            raise ValueError(f"the exported network has no tensor with the output of {path!r}; choose another module")
        names.append(same[0])
    order = [name for node in exported.graph.node for name in node.output if name in names]
    if len(order) > MOST_TENSORS:
        raise ValueError(f"{len(order)} tensors cross the cut, but the limit is {MOST_TENSORS}; choose later modules")
    offsets, size = {}, 0
    for name in order:
        offsets[name] = size
        size += actual[name][0].numel()
    packing = Packing(tuple((offsets[name], tuple(leaf.shape[1:])) for name, leaf in zip(names, expected, strict=True)))
    joint = ",".join(order)
    add_joint(exported, joint, (size,))
    return joint, packing


def add_joint(exported, joint, row):
    """Add nodes that make `joint` of the tensors in its name, if it names several and does not exist.

    :param row: Shape of a row of `joint`.
    """
    names = joint.split(",")
    if len(names) < 2 or any(joint in node.output for node in exported.graph.node):
        return
    flat = [f"{JOINT}flat/{joint}/{number}" for number in range(len(names))]
    for name, output in zip(names, flat, strict=True):
        exported.graph.node.append(onnx.helper.make_node("Flatten", [name], [output], output, axis=1))
    exported.graph.node.append(onnx.helper.make_node("Concat", flat, [joint], JOINT + joint, axis=1))
    exported.graph.value_info.append(onnx.helper.make_tensor_value_info(joint, onnx.TensorProto.FLOAT, ["batch", *row]))


def without_joint(exported):
    """Return a copy of `exported` without the nodes that `join` adds."""
    copy = onnx.ModelProto()
    copy.CopyFrom(exported)
    added = [node for node in copy.graph.node if node.name.startswith(JOINT)]
    names = {name for node in added for name in node.output}
    for node in added:
        copy.graph.node.remove(node)
    for value in [value for value in copy.graph.value_info if value.name in names]:
        copy.graph.value_info.remove(value)
    return copy


def _outputs(exported, names, example):
    """Return the tensors `names` of the exported network for `example`."""
    model = onnx.ModelProto()
    model.CopyFrom(exported)
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return _run_all(model.SerializeToString(), example, names)


def split_cut(exported: onnx.ModelProto, split: str, freeze: str) -> str:
    """Return the tensor of the module `split`, or `split` if it is the name of a tensor.

    Raises `ValueError` if the module `freeze` is not computed from this tensor alone.
    """
    begin, end = cut(exported, split), cut(exported, freeze)
    makers = {name: node for node in exported.graph.node for name in node.output if not counts_samples(node)}
    read, left = {end}, [end]
    while left:
        name = left.pop()
        inputs = set(makers[name].input) - read if name in makers and name != begin else set()
        read |= inputs
        left += inputs
    if begin not in read:
        raise ValueError(f"split={split!r} is not before freeze={freeze!r}; choose a module that the frozen layers contain, or split='auto'")
    if INPUT in read and begin != INPUT:
        raise ValueError(
            f"the layers from split={split!r} to freeze={freeze!r} also read values that do not pass through {split!r}; choose a module that contains it"
        )
    return begin


def counts_samples(node):
    """Return true if a node computes the number of samples from the network's input."""
    axes = {attribute.name: attribute.i for attribute in node.attribute}
    return node.op_type == "Shape" and node.input[0] == INPUT and axes.get("start", 0) == 0 and axes.get("end") == 1


def piece(exported, begin, end):
    """Extract the layers from the tensor `begin` to `end` as a serialized ONNX model.

    Raises `ValueError` if the layers also read other tensors.
    """
    known = {value.name for value in (*exported.graph.value_info, *exported.graph.input, *exported.graph.output)}
    if missing := {begin, end} - known:
        raise ValueError(f"torch.onnx did not record the shape of {', '.join(sorted(missing))}; choose another module")
    # Layers can read the number of samples, for example for masks. Read it from `begin` instead of the input.
    counting = [node for node in exported.graph.node if counts_samples(node)]
    try:
        for node in counting:
            node.input[0] = begin
        sliced = onnx.utils.Extractor(exported).extract_model([begin], [end])
        onnx.checker.check_model(sliced)
    except (ValueError, onnx.checker.ValidationError) as error:
        raise ValueError(f"the layers from {begin!r} to {end!r} cannot be extracted from the network ({line_of(error)}); choose another module") from error
    finally:
        for node in counting:
            node.input[0] = INPUT
    _requantize(exported, sliced, begin)
    sliced.metadata_props.extend(exported.metadata_props)
    return sliced.SerializeToString()


def with_metadata(layers, exported):
    """Return serialized layers with the metadata of `exported`."""
    model = onnx.load_model_from_string(layers)
    model.metadata_props.extend(exported.metadata_props)
    return model.SerializeToString()


def _requantize(exported, sliced, begin):
    """Quantize `begin` again if it is the output of a `DequantizeLinear`.

    This does not change the values, and allows the engine to compute in integers.
    """
    makers = {name: node for node in exported.graph.node for name in node.output}
    dequantize = makers.get(begin)
    quantize = makers.get(dequantize.input[0]) if dequantize is not None and dequantize.op_type == "DequantizeLinear" else None
    if quantize is None or quantize.op_type != "QuantizeLinear":
        return
    integers, dequantized = f"{begin}/integers", f"{begin}/dequantized"
    for node in sliced.graph.node:
        for place, name in enumerate(node.input):
            if name == begin:
                node.input[place] = dequantized
    scale = list(quantize.input[1:])
    first = onnx.helper.make_node("QuantizeLinear", [begin, *scale], [integers], integers)
    second = onnx.helper.make_node("DequantizeLinear", [integers, *scale], [dequantized], dequantized)
    nodes = [first, second, *sliced.graph.node]
    del sliced.graph.node[:]
    sliced.graph.node.extend(nodes)
    known = {weight.name for weight in sliced.graph.initializer}
    sliced.graph.initializer.extend(weight for weight in exported.graph.initializer if weight.name in scale and weight.name not in known)


def run(model, rows, optimize=True):
    """Return the output of an ONNX model with one input and one output for the tensor `rows`.

    :param optimize: Whether ONNX Runtime optimizes the model.
    """
    return _run_all(model, rows, None, optimize)[0]


def _run_all(model, rows, names, optimize=True):
    """Return the outputs `names` of an ONNX model with one input, or all outputs."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    if not optimize:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    outputs = session.run(names, {session.get_inputs()[0].name: rows.cpu().numpy()})
    return [torch.from_numpy(output) for output in outputs]


def check_rows(model, module, prefix, images, rows, source, cut=None):
    """Compare the activations `rows` with the output of `module` in PyTorch for the same images.

    If the name does not belong to a module, compares them with the output of `prefix` without optimizations. Raises
    `ValueError` if they differ.

    :param prefix: The exported layers up to the module.
    :param source: Origin of the activations for the message.
    :param cut: The tensors of the cut and their `Packing`, if there are several.
    """
    points, packing = cut or ((), None)
    modules, found = {path for path, _ in points} or {module} & set(dict(model.named_modules())), {}
    if modules:
        read_outputs(model, modules, images.to(next(model.parameters(), images).device), found)

    def compared(actual):
        if packing:
            parts = zip(points, packing.unpack(actual), strict=True)
            return next((off for (path, leaf), part in parts if (off := difference(found[path][leaf], part))), "")
        outputs = found.get(module) or [run(prefix, images, optimize=False)]
        # The suffix of a user can read any tensor of the output.
        same_size = [leaf for leaf in outputs if isinstance(leaf, torch.Tensor) and leaf.numel() == actual.numel()]
        return min((difference(leaf, actual.reshape(leaf.shape)) for leaf in same_size), key=len, default=f"no output with {tuple(actual.shape)} values")

    if off := compared(rows):
        right = bool(modules) and not compared(run(prefix, images, optimize=False))
        cause = "ONNX Runtime without optimizations agrees with PyTorch, so its optimizations change the result" if right else "the export differs"
        raise ValueError(f"{source} differ from PyTorch's at {module!r}: {off}; {cause}; freeze an earlier module")


def check(model, prefix, suffix, example, module, cut=None):
    """Compare the divided network with the whole network, and return the shape of a row at the cut.

    Raises `ValueError` if the outputs differ, or the activations at `module`.

    :param cut: See `check_rows`.
    """
    with NonzeroWeights(suffix), Evaluating(model), Evaluating(suffix), torch.no_grad():
        whole = model(example)
        rows = run(prefix, example)
        # The suffix can change the activations in place.
        copied = rows.to(example.device, copy=True)
        try:
            divided = suffix(*(cut[1].unpack(copied) if cut else [copied]))
        except Exception as error:  # The suffix can raise any exception for an unexpected layout.
            shape = tuple(rows.shape[1:])
            raise ValueError(f"the suffix does not accept the activations {shape} of the exported frozen layers: {line_of(error)}; freeze another module") from error
    check_rows(model, module, prefix, example, rows, "the activations of the exported layers for noise", cut)
    if off := difference(whole, divided):
        raise ValueError(f"the frozen layers with the suffix return a different output than the model: {off}")
    return tuple(rows.shape[1:])
