"""A module divided at one of its modules: what follows it, with the same Parameters."""

import warnings

import torch
import torch.fx

from frostline.torch._network import Evaluating

# Layers whose training mode is another computation.
MODES = (torch.nn.modules.batchnorm._BatchNorm, torch.nn.modules.dropout._DropoutNd)


class CannotDivide(ValueError):
    """Why a module cannot be divided at a place; `suffix=` takes one that was divided by hand."""


def suffix_of(model, module, example):
    """What of `model` follows the output of the module of this path, as a module with one input. It holds the model's own modules, so Parameters,
    buffers and names are the same, and `train()` and `eval()` mean what they do there.

    By torch.fx, in both modes; where that cannot follow the model's code, by torch.export, as the model computes in evaluation mode.
    """
    try:
        graph = _traced(model, False)
    except Exception as error:  # whatever the model's own code raises of values that are none yet
        return _exported_suffix(model, module, example, error)
    evaluation = _cut(model, graph, module)
    try:
        training = _cut(model, _traced(model, True), module)
    except Exception as error:
        _warn("torch.fx cannot follow its training mode", error)
        return evaluation
    return evaluation if training.code == evaluation.code else _BothModes(training, evaluation)


def _traced(model, mode):
    """The graph of the model as it computes where all of its modules are in this mode."""
    before = [(part, part.training) for part in model.modules()]
    try:
        for part, _ in before:
            part.training = mode
        return torch.fx.symbolic_trace(model).graph
    finally:
        for part, training in before:
            part.training = training


class _BothModes(torch.nn.Module):
    """One of two divided modules of the same model, by the mode that this one is in: stochastic depth and functional dropout are operations of the
    one that the other has not, or has otherwise.
    """

    def __init__(self, training, evaluation):
        super().__init__()
        # As methods of this module, which has the modules of both under the names that they call.
        self._forwards = {True: type(training).forward, False: type(evaluation).forward}
        for part in (training, evaluation):
            _merge(self, part)

    def forward(self, activations):
        return self._forwards[self.training](self, activations)


def _merge(into, part):
    """Gives `into` what `part` has; what both have is the model's own, or a folder of such."""
    for name, value in (*part._parameters.items(), *part._buffers.items()):
        if name not in into._parameters and name not in into._buffers:
            (into._parameters if name in part._parameters else into._buffers)[name] = value
    for name, child in part._modules.items():
        there = into._modules.setdefault(name, child)
        if there is not child:
            _merge(there, child)


def _exported_suffix(model, module, example, traced):
    try:
        with Evaluating(model):
            exported = torch.export.export(model, (example,), dynamic_shapes=({0: torch.export.Dim("batch")},))
        whole = exported.module()
    except Exception as error:
        raise CannotDivide(
            f"the model can be divided neither by torch.fx ({_line(traced)}) nor by torch.export ({_line(error)}); "
            "give what follows the freeze cut as suffix=, a module that shares the model's Parameters"
        ) from error
    suffix = _cut(whole, whole.graph, module)
    own = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
    for name in [*dict(suffix.named_parameters(remove_duplicate=False)), *dict(suffix.named_buffers(remove_duplicate=False))]:
        if name in own:
            owner, _, last = name.rpartition(".")
            setattr(suffix.get_submodule(owner), last, own[name])
    if any(isinstance(part, MODES) for part in model.modules()):
        _warn("it was divided by torch.export, as torch.fx cannot", traced)
    return suffix


def _warn(what, error):
    warnings.warn(
        f"the model is trained in evaluation mode: {what} ({_line(error)}), so its suffix drops nothing and uses the stored statistics of its "
        "normalisation; suffix= takes one that does not",
        stacklevel=5,
    )


def _line(error):
    return f"{type(error).__name__}: {error}".split("\n")[0][:200]


def _paths(node):
    """The paths of the modules that a traced node lies in."""
    return [path for path, _ in (node.meta.get("nn_module_stack") or {}).values()]


def _cut(root, graph, module):
    """The nodes of `graph` after the last one of `module`, with one input in its place."""
    inside = [node for node in graph.nodes if module in _paths(node)]
    if not inside:
        raise CannotDivide(f"the model calls no module {module!r}")
    members = set(inside)
    ends = [node for node in inside if any(user not in members for user in node.users)]
    if len(ends) != 1:
        raise CannotDivide(f"module {module!r} gives {len(ends)} values to what follows it; the model can be divided where it gives one")
    (end,) = ends
    needed = _needed(graph, end)
    cut, copies = torch.fx.Graph(), {}
    copies[end] = cut.placeholder("activations")
    for node in graph.nodes:
        if node in needed and node is not end:
            if node.op == "placeholder":
                raise CannotDivide(f"what follows {module!r} reads the model's input {node.target!r} too")
            copies[node] = cut.node_copy(node, lambda other: copies[other])
    cut.lint()
    return torch.fx.GraphModule(root, cut, class_name="Suffix")


def _needed(graph, end):
    """The nodes that the output depends on other than through `end`."""
    needed, open_ = set(), [node for node in graph.nodes if node.op == "output"]
    while open_:
        node = open_.pop()
        if node in needed:
            continue
        needed.add(node)
        if node is not end:
            open_.extend(node.all_input_nodes)
    return needed
