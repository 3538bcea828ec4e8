"""A module as an ONNX network, and its cuts by the names of its modules."""

import ast
import contextlib
import difflib
import io
import unittest.mock
import warnings

import onnx
import onnx.utils
import onnx_ir.passes.common as passes
import onnxscript.optimizer
import torch

from frostline.torch._divide import Evaluating, difference, line_of

SCOPES = "pkg.torch.onnx.name_scopes"
"""Where torch's exporter notes the modules around a node."""
INPUT, OUTPUT = "input", "output"


FUSED_ATTENTION = torch.nn.functional.scaled_dot_product_attention


def plain_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, **more):
    """`scaled_dot_product_attention` of plain operators. The exporter translates the fused one for four axes only, and assumes an output layout with
    which views behind it (Swin, BEiT, MaxViT) cannot be exported for any number of samples.
    """
    if is_causal or any(more.values()):
        return FUSED_ATTENTION(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, **more)
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if attn_mask is not None:
        # No inverted mask: the exporter would make one in the first block for all of them, and nothing could be divided behind it.
        scores = torch.where(attn_mask, scores, float("-inf")) if attn_mask.dtype == torch.bool else scores + attn_mask
    return torch.nn.functional.dropout(scores.softmax(-1), dropout_p) @ value


def export(model, example, fuse=True):
    """`model` in evaluation mode as an ONNX model with the input `input`, of any number of samples like those of `example`.

    `fuse`: whether the exporter may replace nodes by others, such as a convolution and the normalization behind it by one.
    """
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
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                input_names=[INPUT],
                output_names=[OUTPUT],
            )
    except Exception as error:  # the exporter's own, and the model's
        raise ValueError(f"torch.onnx cannot export this {type(model).__name__}: {line_of(error.__cause__ or error)}") from error
    if not fuse:
        _fold(program.model)
    exported = program.model_proto
    # Where in somebody's source a node came from is nobody's business.
    for part in (exported, exported.graph, *exported.graph.node, *exported.graph.value_info, *exported.graph.initializer):
        part.ClearField("doc_string")
    scoped = {}
    for node in exported.graph.node:
        noted = [entry for entry in node.metadata_props if entry.key == SCOPES]
        # The exporter leaves out some that it adds itself, such as Split: they belong to the module whose output they divide.
        noted = noted or next((scoped[name] for name in node.input if name in scoped), [])
        node.ClearField("metadata_props")
        node.metadata_props.extend(noted)
        scoped.update(dict.fromkeys(node.output, noted))
    return exported


def _fold(model):
    """Computes what is constant, and nothing else of what the exporter does to a network."""
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
    """The paths of the modules that an exported node lies in, from the outermost one."""
    note = next((entry.value for entry in node.metadata_props if entry.key == SCOPES), "[]")
    return [path for path in ast.literal_eval(note)[:-1] if path]


def cut(exported, module):
    """The tensor that carries everything out of the module of this path, or `module` itself where it names a tensor.

    Raises `ValueError`, with the modules there are.
    """
    inside = [node for node in exported.graph.node if module in scopes(node)]
    if not inside:
        if any(module in node.output for node in exported.graph.node):
            return module
        found = dict.fromkeys(path for node in exported.graph.node for path in scopes(node))
        near = ", ".join(difflib.get_close_matches(module, found, 8) or found)
        raise ValueError(
            f"the exported network has no module {module!r} of its own (a convolution is fused with the normalization behind it); freeze another module: {near}"
        )
    made = {name for node in inside for name in node.output}
    outside = [node for node in exported.graph.node if module not in scopes(node)]
    read = {name for node in outside for name in node.input} | {output.name for output in exported.graph.output}
    ends = sorted(made & read)
    if len(ends) != 1:
        raise ValueError(f"module {module!r} gives {len(ends)} tensors to what follows it ({', '.join(ends)}); the network can be divided where it gives one")
    return ends[0]


def counts_samples(node):
    """Whether an exported node gives the size of the input's first axis, and reads nothing else of it."""
    axes = {attribute.name: attribute.i for attribute in node.attribute}
    return node.op_type == "Shape" and node.input[0] == INPUT and axes.get("start", 0) == 0 and axes.get("end") == 1


def piece(exported, begin, end):
    """The layers from the tensor `begin` to `end`, as bytes of an ONNX model. Raises `ValueError` where something else crosses `begin`."""
    known = {value.name for value in (*exported.graph.value_info, *exported.graph.input, *exported.graph.output)}
    if missing := {begin, end} - known:
        raise ValueError(f"the exporter left no shape of {', '.join(sorted(missing))}")
    # How many samples there are (masks are made of it) the layers can tell from `begin` as well.
    counting = [node for node in exported.graph.node if counts_samples(node)]
    try:
        for node in counting:
            node.input[0] = begin
        sliced = onnx.utils.Extractor(exported).extract_model([begin], [end])
        onnx.checker.check_model(sliced)
    except (ValueError, onnx.checker.ValidationError) as error:
        raise ValueError(f"the layers from {begin!r} to {end!r} cannot be taken out of the network: {error}") from error
    finally:
        for node in counting:
            node.input[0] = INPUT
    _requantize(exported, sliced, begin)
    sliced.metadata_props.extend(exported.metadata_props)
    return sliced.SerializeToString()


def _requantize(exported, sliced, begin):
    """Quantizes `begin` again in a piece that begins behind a `DequantizeLinear`, which changes no value and lets engines compute in integers."""
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


def run(model, rows):
    """What an ONNX model of one input and output makes of `rows`, a tensor."""
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(None, {session.get_inputs()[0].name: rows.cpu().numpy()})[0])


def check(model, prefix, suffix, example):
    """Holds the divided network against the whole one; returns the shape of a row between them. Raises `ValueError` where they differ."""
    with Evaluating(model), Evaluating(suffix), torch.no_grad():
        whole = model(example)
        rows = run(prefix, example)
        try:
            divided = suffix(rows.to(example.device))
        except Exception as error:  # the model's own, of rows in another layout
            shape = tuple(rows.shape[1:])
            raise ValueError(f"the suffix does not take the rows {shape} of the exported frozen layers: {line_of(error)}; freeze another module") from error
    if off := difference(whole, divided):
        raise ValueError(f"frozen layers and suffix together give another output than the model: {off}")
    return tuple(rows.shape[1:])
