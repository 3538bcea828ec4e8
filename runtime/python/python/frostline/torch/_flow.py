"""Dependencies of values on the images in a forward pass, for the choice of modules at which a model can be divided."""

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary


class Flow(TorchDispatchMode):
    """Dispatch mode that records the values of a forward pass that depend on the images.

    These values are nodes, which are numbered in the order of execution, from 0 for the images.

    :param images: Input of the model.
    """

    def __init__(self, images):
        # This import logs a warning if triton is not installed.
        from torch.utils.flop_counter import flop_registry

        super().__init__()
        self.inputs = []
        """Nodes that a node was computed from, by node."""
        self.branches = []
        """Nodes that the model's code read as Python numbers, for example for a branch."""
        self.flops = 0
        """Number of floating-point operations for all nodes."""
        self.other_flops = 0
        """Number of floating-point operations for values that do not depend on the images."""
        self._formulas, self._nodes = flop_registry, WeakTensorKeyDictionary()
        # Last node that was written to memory in place, by address. Other tensors can share the memory.
        self._written = {}
        self._add(images, [])

    def nodes(self, values):
        """Return the nodes that the tensors in `values` depend on."""
        found = []
        for tensor in tensors(values):
            own, written = self._nodes.get(tensor, -1), self._written.get(address(tensor), -1)
            found += [own] if own >= 0 else []
            found += [written] if written > own else []
        return found

    def crossing(self, output, count):
        """Return the nodes among the first `count` from which later nodes and `output` are computed.

        Nodes that do not affect the output are ignored.
        """
        ends = self.nodes(output) + self.branches
        reached, left = set(), list(ends)
        while left:
            node = left.pop()
            if node not in reached:
                reached.add(node)
                left += self.inputs[node] if node >= count else []
        return {node for node in reached if node < count}

    def _add(self, tensor, inputs):
        self._nodes[tensor] = len(self.inputs)
        self.inputs.append(inputs)

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        packet = operator._overloadpacket
        # These operators read only the shape of a tensor.
        inputs = [] if packet.__name__.startswith("new_") or packet.__name__.endswith("_like") else self.nodes((args, kwargs))
        output = operator(*args, **kwargs)
        flops = self._formulas[packet](*args, **kwargs, out_val=output) if packet in self._formulas else 0
        known = {address(tensor) for tensor in tensors((args, kwargs))}
        for tensor in tensors(output):
            if address(tensor) not in known:
                # This memory may have belonged to a tensor that no longer exists.
                self._written.pop(address(tensor), None)
        if not inputs:
            self.other_flops += flops
            return output
        self.flops += flops
        for tensor in tensors(output):
            self._add(tensor, inputs)
        for tensor in tensors(_written_arguments(operator, args, kwargs)):
            self._add(tensor, inputs)
            self._written[address(tensor)] = self._nodes[tensor]
        if not tensors(output):
            self.branches += inputs
        return output


def tensors(values):
    """Return the tensors in a nested structure of containers."""
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def address(tensor):
    """Return the address of the memory that a tensor shares with its views."""
    return tensor.untyped_storage().data_ptr()


def _written_arguments(operator, args, kwargs):
    """Return the arguments that an operator modifies in place."""
    arguments = operator._schema.arguments
    values = dict(zip((argument.name for argument in arguments), args)) | kwargs
    return [values[each.name] for each in arguments if each.alias_info is not None and each.alias_info.is_write and each.name in values]
