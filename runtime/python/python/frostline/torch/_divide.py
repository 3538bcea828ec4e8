"""Division of a model at one or several modules. The suffix computes everything after their outputs and shares the model's Parameters.

The model is not traced. The suffix executes the model's code with three changes: modules that finish before the last module of the cut return
placeholders without computing, the modules at the cut return the activations, and the images are replaced by a placeholder. Therefore control flow, random and in-place
operations, both modes, keyword arguments such as `labels=` and output classes work as in the model. Placeholders contain NaN. If a value bypasses
the cut, the output is NaN, and the division is refused. Branches and comparisons do not propagate NaN, so verification repeats the pass with
placeholders of other values.
"""

import contextlib
import copy
import dataclasses
import difflib
import math
import re
import warnings
import weakref
import zlib
from collections.abc import Sequence

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from frostline.torch._flow import Flow, address, tensors
from frostline.torch._model import CannotDivide, Evaluating, kept_generators, line_of, output_of, prepared
from frostline.torch._pixels import DEFAULT_SIZE, built_size

TOLERANCE = 1e-3
"""Maximum difference between divided and whole model, relative to the largest value.

This permits different rounding in kernels. Wrong cuts cause differences of about 1.
"""
OTHER_PLACEHOLDERS = (0.0, 1e4, -1e4)
"""Mean values of placeholders for which the output is compared, in addition to NaN. f16 represents them."""
MEMBERS = ("_parameters", "_buffers", "_modules")
WRAPPED = re.compile(r"^((module|_orig_mod|base_model\.model)\.)+")
"""Names that DataParallel, `torch.compile` and peft add to the paths of modules."""


def suffix_of(model: torch.nn.Module, modules: str | torch.nn.Module | Sequence[str | torch.nn.Module], example: torch.Tensor) -> "Suffix":
    """Return the module that maps the outputs of `modules` to the output of `model`.

    Parameters, buffers, their names and the modes of modules are shared with the model: `train()` and `eval()` of the
    suffix or the model affect both. Raises `CannotDivide`.

    :param modules: A module inside `model`, its path, or several of them.
    :param example: Two input samples to verify the division in both modes, including gradients.
    """
    paths = paths_of(model, modules)
    calls = Calls(model, example)
    try:
        suffix, used = _verified(calls, paths, example)
    except BypassError as error:
        valid = _valid_modules(calls, paths, example)
        raise CannotDivide(f"{error}; {_advice(valid)}", valid) from None
    suffix.drop_unused(used)
    suffix.drop_frozen()
    return suffix


def paths_of(model: torch.nn.Module, modules: str | torch.nn.Module | Sequence[str | torch.nn.Module]) -> list[str]:
    """Return the path of each module, see `path_of`."""
    several = [modules] if isinstance(modules, (str, torch.nn.Module)) else list(modules)
    return list(dict.fromkeys(path_of(model, module) for module in several))


def _advice(valid):
    """Return what to freeze instead, if the code after the modules reads other values too."""
    if len(valid) > 1:
        return f"freeze={list(valid)!r} includes these values"
    return f"freeze={valid[0]!r} is the nearest valid module" if valid else "frostline.torch.freeze_points lists valid modules"


def _valid_modules(calls, paths, example):
    """Return the nearest module around a single path at which the model can be divided, or else the modules that together
    separate it: `paths` and those whose outputs later code reads. Returns an empty tuple if there are none.
    """
    if len(paths) == 1:
        parents = [paths[0].rsplit(".", up)[0] for up in range(1, paths[0].count(".") + 1)]
        legal = next((parent for parent in parents if suffix_if_valid(calls, parent, example)), None)
        if legal:
            return (legal,)
    try:
        bypassing = _bypassing(calls, paths, example)
        if bypassing:
            together = sorted({*paths, *bypassing}, key=calls.paths[0].index)
            _verified(calls, together, example)
            return tuple(together)
    except CannotDivide:
        pass
    return ()


def _bypassing(calls, paths, example):
    """Return the paths of the modules before the cut whose outputs affect the suffix."""
    model = calls.model
    suffix = calls.suffix([(path, leaf) for path in paths for leaf in calls.rows(path)])
    one, other, *_ = OTHER_PLACEHOLDERS
    found = []
    with NonzeroWeights(suffix), Evaluating(model), Evaluating(suffix), kept_generators(), torch.no_grad():
        _, rows = _run_detached(model, example, suffix)
        expected = _run_suffix(suffix, rows, one)
        for path, output in suffix.silent.items():
            output.fill = other
            if difference(expected, _run_suffix(suffix, rows, one)):
                found.append(path)
            output.fill = None
    return found


def _verified(calls, paths, example):
    """Return (suffix, names of its trained Parameters).

    The cut is the first output tensor of a single module that all later values depend on, or else all tensors of the
    modules' outputs.
    """
    tensors = [(path, leaf) for path in paths for leaf in calls.rows(path)]
    choices = [[tensor] for tensor in tensors] if len(paths) == 1 else []
    for points in choices if len(tensors) == 1 else [*choices, tensors]:
        suffix = calls.suffix(points)
        try:
            return suffix, verify(calls.model, suffix, example)
        except BypassError as error:
            bypass = error
    raise bypass


@dataclasses.dataclass(frozen=True)
class FreezePoint:
    """A module at which a model can be divided."""

    module: str
    shape: tuple[int, ...]
    """Shape of a sample's activations."""
    bytes: int
    """Size in bytes of one sample's activations as float32."""
    compute: float
    """Fraction of the model's floating-point operations in the frozen layers, 0 to 1."""


@kept_generators()
def freeze_points(model: torch.nn.Module, size: int | None = None) -> list[FreezePoint]:
    """List the modules at which `model` can be divided as `FreezePoint` objects, in the order in which they finish.

    The list is derived from one recorded pass. `pushdown` verifies the division at the selected module.

    :param size: Height and width of the images in pixels. Defaults to the size for which a timm model was built, and to 224
        for other models.
    """
    model = prepared(model)
    size = size or built_size(model) or DEFAULT_SIZE
    images = torch.randn(3, 3, size, size, device=next(model.parameters(), torch.empty(0)).device)
    pair, calls = images[:2], []
    with torch.no_grad(), Evaluating(model), Flow(pair) as flow:

        def finish(path, output):
            leaves = pytree.tree_leaves(output)
            calls.append((path, len(flow.inputs), flow.flops, [(flow.nodes(leaf), getattr(leaf, "shape", ())) for leaf in leaves]))

        with hooked(model, finish):
            output = output_of(model, pair)
    paths, candidates = [path for path, *_ in calls], {}
    for path, count, flops, leaves in calls:
        # The tensors with one row per sample from which alone all later values are computed.
        crossing = list(flow.crossing(output, count))
        rows = [number for number, (nodes, shape) in enumerate(leaves) if nodes == crossing and shape[:1] == (2,)]
        if path and rows and paths.count(path) == 1:
            candidates[path] = rows[0], leaves[rows[0]][1][1:], flops
    batch, alone = {}, {}
    read_outputs(model, candidates, images, batch)
    # A model that normalizes with the statistics of the batch can fail for one image.
    with contextlib.suppress(Exception):
        read_outputs(model, candidates, images[:1], alone)
    total = max(flow.flops + flow.other_flops, 1)
    points = []
    for path, (leaf, shape, flops) in candidates.items():
        rows = batch[path][leaf]
        if rows.shape == (3, *shape) and path in alone and not difference(rows[:1], alone[path][leaf]):
            points.append(FreezePoint(path, tuple(shape), 4 * shape.numel(), round(flops / total, 4)))
    return points


def path_of(model: torch.nn.Module, module: str | torch.nn.Module) -> str:
    """Return the path of a module that is given as a module or a path.

    The path can begin with the names that wrappers such as peft or `torch.compile` add. Raises `CannotDivide` with similar
    names if the module does not exist.
    """
    if isinstance(module, torch.nn.Module):
        path = next((path for path, each in model.named_modules() if each is module), "")
        if not path:
            raise CannotDivide(f"this {type(module).__name__} is not a module inside the model")
        return path
    if not isinstance(module, str):
        raise TypeError(f"{module!r} is a {type(module).__name__}; pass a module of the model or its path")
    paths = [path for path, _ in model.named_modules() if path]
    inside = WRAPPED.sub("", module)
    if module in paths or inside in paths:
        return module if module in paths else inside
    near = difflib.get_close_matches(module, paths, 5) or [path for path in paths if "." not in path]
    raise CannotDivide(f"the model has no module {module!r}; it has {', '.join(near)}")


class NonzeroWeights:
    """Context manager that replaces the weights of a module that are all zero, such as those of a new head.

    With these weights, the output would not depend on the activations, and comparisons of outputs would be empty.
    """

    def __init__(self, module):
        weights = [weight for weight in module.parameters() if weight.is_floating_point() and weight.numel()]
        self.zeros = [weight for weight in weights if not weight.any()]

    @torch.no_grad()
    def __enter__(self):
        for weight in self.zeros:
            weight.copy_(torch.linspace(-0.1, 0.2, weight.numel()).reshape(weight.shape))

    @torch.no_grad()
    def __exit__(self, *_):
        for weight in self.zeros:
            weight.zero_()


@contextlib.contextmanager
def hooked(model, finish, paths=None):
    """Context manager that calls `finish(path, output)` after each call of a module.

    If `finish` returns a value, it replaces the output.

    :param paths: Paths of the modules. Defaults to all modules.
    """
    hooks = []
    for path, part in model.named_modules():
        if paths is None or path in paths:
            hooks.append(part.register_forward_hook(lambda _, __, output, path=path: finish(path, output)))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


class _AllRead(BaseException):
    """Ends a forward pass after the last module of interest. Model code that handles `Exception` does not catch it."""


def read_outputs(model, paths, images, found):
    """Run `model` in evaluation mode, and add the leaves of the outputs of modules to `found` by path."""

    def finish(path, output):
        found[path] = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in pytree.tree_leaves(output)]
        if len(found) == len(paths):
            raise _AllRead

    with torch.no_grad(), Evaluating(model), hooked(model, finish, paths), contextlib.suppress(_AllRead):
        model(images)


@dataclasses.dataclass(frozen=True)
class Recorded:
    """Shape, type and checksum of a module output."""

    shape: torch.Size
    dtype: torch.dtype
    digest: int

    @classmethod
    def from_tensor(cls, tensor):
        data = tensor.detach().cpu().contiguous().flatten().view(torch.uint8) if tensor.numel() else torch.empty(0, dtype=torch.uint8)
        return cls(tensor.shape, tensor.dtype, zlib.crc32(data.numpy()))


@dataclasses.dataclass(frozen=True)
class Template:
    """Shape of a tensor for any number of samples.

    Each axis is (length, scales). If `scales` is true, the length is per sample.
    """

    axes: tuple
    dtype: torch.dtype

    @classmethod
    def from_runs(cls, two, three):
        """Derive a template from records for two and for three samples.

        Returns `None` if an axis is neither constant nor proportional to the number of samples.
        """
        axes = []
        for small, large in zip(two.shape, three.shape, strict=True):
            if small != large and small * 3 != large * 2:
                return None
            axes.append((small, False) if small == large else (small // 2, True))
        return cls(tuple(axes), two.dtype)

    def placeholder(self, samples, like, dtype, dense, value):
        """Return a tensor of NaN or of different numbers with the mean `value`, on the device of `like`.

        In-place operations on a tensor of NaN are only supported if `dense` is true.
        """
        shape = [length * samples if scales else length for length, scales in self.axes]
        if math.isnan(value):
            return torch.full(shape if dense else (), value, dtype=dtype, device=like.device).expand(shape)
        return torch.linspace(0.5 * value, 1.5 * value, math.prod(shape), dtype=dtype, device=like.device).reshape(shape)


class Calls:
    """Recorded module calls of a model and their results, ordered by completion."""

    def __init__(self, model, example):
        self.model = model
        other = torch.rand_like(example) - 0.5
        images = (example, other, torch.cat([example, other[:1]]))
        with torch.no_grad(), Evaluating(model):
            self.runs = [self._record(each) for each in images]
        self.images = Template.from_runs(*(Recorded.from_tensor(images[run]) for run in (0, 2)))
        self.paths = [[path for path, _ in run] for run in self.runs]

    def _record(self, images):
        calls = []

        def finish(path, output):
            calls.append((path, pytree.tree_map(lambda leaf: Recorded.from_tensor(leaf) if isinstance(leaf, torch.Tensor) else leaf, output)))

        with hooked(self.model, finish):
            output_of(self.model, images)
        return calls

    def rows(self, cut):
        """Return the indices of the tensors with one row per sample in the output of the module `cut`.

        Raises `CannotDivide` if there are none.
        """
        count = self.paths[0].count(cut)
        if count != 1:
            raise CannotDivide(f"the model calls the module {cut!r} {count} times; freeze a module that it calls once")
        output = self._output(cut)
        rows = [number for number, leaf in enumerate(output.leaves if output else ()) if isinstance(leaf, Template) and leaf.axes[:1] == ((1, True),)]
        if not rows:
            raise CannotDivide(f"the module {cut!r} returns no tensor with one row per sample")
        return rows

    def suffix(self, points):
        """Return the unverified suffix after the tensors `points`, which are (path of a module, index of a tensor in its output)."""
        around, outputs = {}, {path: self._output(path) for path, _ in points}
        for place, (path, leaf) in enumerate(points):
            outputs[path].rows[leaf] = place
        cuts = sorted(outputs, key=self.paths[0].index)
        twin = self._twin(self.model, "", cuts, around, outputs)
        suffix = Suffix(self.model, twin, self.images, around, outputs, points)
        finished = self.paths[0][: self.paths[0].index(cuts[-1]) + 1]
        suffix.later = tuple(path for path in dict.fromkeys(self.paths[0]) if path not in {*around, *finished})
        return suffix

    def _output(self, path):
        """Return the output of a module for any number of samples, or `None` if the structure differs between calls."""
        outputs = [[note for called, note in run if called == path] for run in self.runs]
        structures = {str(pytree.tree_structure(note)) for notes in outputs for note in notes}
        if len(structures) != 1 or len({len(notes) for notes in outputs}) != 1:
            return None
        forms = []
        for two, three in zip(outputs[0], outputs[2], strict=True):
            leaves = zip(pytree.tree_leaves(two), pytree.tree_leaves(three), strict=True)
            forms.append([Template.from_runs(*pair) if isinstance(pair[0], Recorded) else pair[0] for pair in leaves])
        if any(form != forms[0] for form in forms) or any(
            template is None and isinstance(leaf, Recorded) for template, leaf in zip(forms[0], pytree.tree_leaves(outputs[0][0]), strict=True)
        ):
            return None
        return Output(pytree.tree_structure(outputs[0][0]), forms[0])

    def _is_skipped(self, path, cut):
        """Return true if a module can be skipped.

        All its calls must finish before the last module `cut` and return floating-point numbers that depend on the images. Other
        outputs, such as an index or a table of positions, have to be computed.
        """
        end = self.paths[0].index(cut)
        inside = [number for number, each in enumerate(self.paths[0]) if each == path or each.startswith(path + ".")]
        if path not in self.paths[0] or inside[-1] > end:
            return False
        notes = [pytree.tree_leaves([note for called, note in run if called == path]) for run in self.runs[:2]]
        tensors = [pair for pair in zip(*notes, strict=False) if isinstance(pair[0], Recorded)]
        return bool(tensors) and all(one.dtype.is_floating_point and one.digest != other.digest for one, other in tensors)

    def _twin(self, module, path, cuts, around, outputs):
        """Return the version of `module` for the suffix.

        This is the module itself after the cut, a silent copy before the cut, and a copy with shared Parameters if it
        contains a module of the cut.
        """
        if path in outputs:
            return silent(module, outputs[path])
        calls_inside = any(each.startswith(path + ".") for each in self.paths[0])
        contains_cut = any(cut.startswith(path + ".") for cut in cuts)
        if path and not contains_cut and (path in self.paths[0] or not calls_inside):
            output = self._output(path) if self._is_skipped(path, cuts[-1]) else None
            if output is None:
                return module
            outputs[path] = output
            return silent(module, output)
        twin = around[path] = shallow_copy(module)
        for name, child in module._modules.items():
            if child is not None:
                twin._modules[name] = self._twin(child, f"{path}.{name}" if path else name, cuts, around, outputs)
        return twin


class Output:
    """Forward function without computation that returns placeholders, or the activations at the cut."""

    def __init__(self, structure, leaves):
        self.structure, self.leaves = structure, leaves
        self.rows = {}
        """Places among the activations by index of the leaf. Empty before the cut."""
        self.suffix = None
        self.fill = None
        """Mean value of the placeholders, if it differs from that of the suffix."""

    def __call__(self, *_, **__):
        values = [self.suffix.value(leaf, self.rows.get(number), self.fill) for number, leaf in enumerate(self.leaves)]
        return pytree.tree_unflatten(values, self.structure)


def shallow_copy(module):
    """Return a copy of a module with separate dictionaries of the same members."""
    twin = module.__class__.__new__(module.__class__)
    twin.__dict__ = module.__dict__.copy()
    for members in (*MEMBERS, "_non_persistent_buffers_set"):
        twin.__dict__[members] = copy.copy(module.__dict__[members])
    return twin


def silent(module, output):
    """Return a copy of a module that returns `output`.

    Its members become plain attributes, which the model's code can read but which are not trained.
    """
    twin = shallow_copy(module)
    for members in MEMBERS:
        twin.__dict__.update(twin.__dict__[members])
        twin.__dict__[members].clear()
    twin.__dict__["forward"] = output
    return twin


def hollow(value, used, memo):
    """Return a module or a tensor with stand-ins for weights, which have the shape, type and device but no memory.

    Other values are returned unchanged.

    :param used: Addresses of the weights to keep.
    :param memo: Results by `id` of the value.
    """
    if id(value) in memo:
        return memo[id(value)]
    if isinstance(value, torch.nn.Module):
        twin = memo[id(value)] = shallow_copy(value)
        for members in MEMBERS:
            twin.__dict__[members].update({name: hollow(each, used, memo) for name, each in twin.__dict__[members].items()})
        return twin
    # Other classes of weights, for example quantized ones, have more than these properties.
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout != torch.strided or address(value) in used:
        return value
    standin = torch.zeros((), dtype=value.dtype, device=value.device).expand(value.shape)
    memo[id(value)] = torch.nn.Parameter(standin, value.requires_grad) if isinstance(value, torch.nn.Parameter) else standin
    return memo[id(value)]


class Used(TorchDispatchMode):
    """Dispatch mode that adds the addresses of the tensors that operators read to a set."""

    def __init__(self, addresses):
        super().__init__()
        self.addresses = addresses

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        self.addresses.update(address(tensor) for tensor in tensors((args, kwargs)) if tensor.layout == torch.strided)
        return operator(*args, **(kwargs or {}))


class SharedMode:
    """Mode of a module around the cut, which the model's module and its copies in the suffix share."""

    def __init__(self, original, copies):
        self.original, self.copies, self.training = weakref.ref(original), copies, original.training

    def __getstate__(self):
        # A copy of the suffix, for example in a file, does not belong to the model.
        return self.__dict__ | {"original": None}

    def share(self):
        """Set the mode of all parts to the mode of those that were changed since the last call."""
        original = self.original and self.original()
        parts = [*self.copies, *([original] if original is not None else [])]
        # There are only two modes, so all parts that differ from the last mode have the same one.
        if any(part.training != self.training for part in parts):
            self.training = not self.training
        for part in parts:
            part.training = self.training


class Suffix(torch.nn.Module):
    """The layers after the cut.

    `suffix(activations, ...)` returns the output of the model. If several tensors cross the cut, it is `suffix(*activations,
    ...)`, or `suffix(activations)` with a tuple. Further arguments are passed to the model. `train()` and `eval()` of the suffix
    and of the model affect both.
    """

    def __init__(self, original, model, images, around, outputs, points):
        super().__init__()
        # Share the dictionaries of the copied model, so that moved or replaced members change in both.
        for members in (*MEMBERS, "_non_persistent_buffers_set"):
            self.__dict__[members] = model.__dict__[members]
        self.__dict__.update(_model=model, _images=images, _around=around, _activations=None, training=model.training)
        self.dense, self.fill, self.silent = False, math.nan, outputs
        self.points = tuple(points)
        """The tensors of the cut: paths of modules and indices of tensors in their outputs."""
        self.later = ()
        """Paths of the modules that the model calls only after the cut."""
        self.used = set()
        """Addresses of tensors that operators read during the verification."""
        self._modes = [SharedMode(original.get_submodule(path), [twin] if path else [twin, self]) for path, twin in around.items()]
        rows = [outputs[path].leaves[leaf] for path, leaf in points]
        self.row_shapes = tuple(tuple(length for length, _ in each.axes[1:]) for each in rows)
        """Shapes of a row of each tensor."""
        self._rows_dtype = rows[0].dtype
        for output in outputs.values():
            output.suffix = self

    def forward(self, *arguments, **named):
        """Return the model's output for activations `[n, ...]`, which are the first arguments."""
        count = len(self.points)
        if count > 1 and arguments and isinstance(arguments[0], (tuple, list)):
            arguments = (*arguments[0], *arguments[1:])
        if len(arguments) < count:
            raise TypeError(f"{len(arguments)} tensors of activations instead of {count}")
        activations, arguments = arguments[:count], arguments[count:]
        self._share_modes()
        self.__dict__["_activations"] = activations
        try:
            return self._model(self.value(self._images), *arguments, **named)
        finally:
            self.__dict__["_activations"] = None

    @property
    def cut_name(self):
        """The paths of the modules at the cut, quoted."""
        return " and ".join(repr(path) for path in dict.fromkeys(path for path, _ in self.points))

    def train(self, mode=True):
        """Set the mode of the suffix, and of the same modules in the model."""
        # Earlier changes of the model's mode do not override this call.
        self._share_modes()
        self._model.train(mode)
        self._share_modes()
        return self

    def _share_modes(self):
        for mode in self._modes:
            mode.share()

    def value(self, leaf, place=None, fill=None):
        """Return a placeholder or a constant for a leaf of a module's output, or the activations with the number `place`."""
        if self._activations is None:
            raise RuntimeError("a module before the freeze cut was called after the forward pass; checkpointed blocks must begin after the cut")
        if place is not None:
            return self._activations[place]
        if not isinstance(leaf, Template):
            return leaf
        rows = self._activations[0]
        dtype = rows.dtype if leaf.dtype == self._rows_dtype else leaf.dtype
        return leaf.placeholder(len(rows), rows, dtype, self.dense, self.fill if fill is None else fill)

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            if "_model" not in self.__dict__:
                raise
            return getattr(self.__dict__["_model"], name)

    def drop_unused(self, used):
        """Convert Parameters that only earlier layers read to buffers, because the suffix does not train them.

        This affects the modules that contain the cut.
        """
        for path, twin in self._around.items():
            for name, parameter in list(twin._parameters.items()):
                if parameter is not None and (f"{path}.{name}" if path else name) not in used:
                    del twin._parameters[name]
                    twin.register_buffer(name, parameter.detach(), persistent=False)

    def drop_frozen(self):
        """Replace the weights of frozen layers by stand-ins, unless the code after the cut computes with them.

        The suffix then neither keeps these weights in memory nor writes them to files.
        """
        memo = {}
        for path in self.silent:
            members = self._model.get_submodule(path).__dict__
            members.update({name: hollow(value, self.used, memo) for name, value in members.items()})
        self.used = set()


class BypassError(CannotDivide):
    """The output depends on values that do not pass through the cut."""


def suffix_if_valid(calls, path, example):
    """Return the suffix after a module, or `None` if the output differs from the model in evaluation mode."""
    try:
        suffix = calls.suffix([(path, calls.rows(path)[0])])
        verify(calls.model, suffix, example, modes=(False,))
    except CannotDivide:
        return None
    return suffix


def verify(model, suffix, example, modes=(False, True)):
    """Compare the outputs and running statistics of the divided model with the whole model.

    In training mode, gradients are compared as well. Returns the names of the suffix's Parameters that its output
    depends on. Raises `CannotDivide` if there is a difference.

    :param modes: Modes to verify: False for evaluation, True for training.
    """
    flags = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    parameters = dict(suffix.named_parameters())
    used = set(parameters)
    for parameter in parameters.values():
        parameter.requires_grad_(parameter.is_floating_point())
    _check_single_image(model, suffix, example)
    try:
        for training in modes:
            with NonzeroWeights(suffix), Evaluating(model), Evaluating(suffix):
                used = _verify_mode(model, suffix, example, training, parameters)
    finally:
        for parameter, flag in flags:
            parameter.requires_grad_(flag)
    return used


def _check_single_image(model, suffix, example):
    """Raise `CannotDivide` if the activations of an image depend on the other images of its batch."""
    paths = {path for path, _ in suffix.points}
    batch, alone = {}, {}
    read_outputs(model, paths, example, batch)
    try:
        read_outputs(model, paths, example[:1], alone)
    except Exception as error:  # The model can raise any exception.
        raise CannotDivide(f"the layers up to {suffix.cut_name} cannot compute a single image: {line_of(error)}") from error
    for path, leaf in suffix.points:
        if off := difference(batch[path][leaf][:1], alone[path][leaf]):
            raise CannotDivide(
                f"the activations of an image at {path!r} depend on the other images of its batch ({off}), for example because a "
                "normalization has no running statistics; freeze an earlier module"
            )


def _verify_mode(model, suffix, example, training, parameters):
    mode = "training" if training else "evaluation"
    for part in (model, suffix) if training else ():
        part.train()
    # Frozen layers always run in evaluation mode.
    for frozen in suffix.silent:
        model.get_submodule(frozen).eval()
    before = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        # Disable gradients in evaluation mode, because modules can cache results with their graph.
        with kept_generators(), torch.set_grad_enabled(training):
            _seed(example.device)
            try:
                whole, rows = _run_detached(model, example, suffix)
            except Exception as error:  # The model can raise any exception.
                if not training:
                    raise
                warnings.warn(f"the division is not verified in training mode: the model raises {line_of(error)}", stacklevel=4)
                return set(parameters)
            # Compute gradients before the statistics are restored, because normalization uses the statistics for its gradient.
            gradients = _gradients(whole, parameters) if training else {}
            statistics = {name: buffer.clone() for name, buffer in suffix.named_buffers()}
            _restore(before)
            divided = _run_suffix(suffix, rows)
        where = f"divided at {suffix.cut_name}, the model in {mode} mode"
        bypassed = f"the code after {suffix.cut_name} also reads values that do not pass through it (in {mode} mode)"
        if off := difference(whole, divided):
            raise BypassError(bypassed) if "NaN" in off else CannotDivide(f"{where} returns a different output: {off}")
        for name, buffer in suffix.named_buffers():
            if off := difference(statistics[name], buffer):
                raise CannotDivide(f"{where} has a different {name}: {off}")
        divided_gradients = _gradients(divided, parameters) if training else parameters
        for name, expected in gradients.items():
            if name not in divided_gradients:
                raise CannotDivide(f"{where} gives {name} no gradient")
            if off := difference(expected, divided_gradients[name]):
                raise CannotDivide(f"{where} gives {name} a different gradient: {off}")
        for value in OTHER_PLACEHOLDERS:
            _restore(before)
            with kept_generators(), torch.no_grad(), Used(suffix.used):
                if difference(whole, _run_suffix(suffix, rows, value)):
                    raise BypassError(bypassed)
        return set(divided_gradients)
    finally:
        _restore(before)


def _restore(saved):
    with torch.no_grad():
        for buffer, value in saved:
            buffer.copy_(value)


def _seed(device):
    """Seed the global generators of the CPU and of `device`.

    Without a GPU, `torch.manual_seed` would also set the seed with which GPUs are initialized later.
    """
    (torch.default_generator.manual_seed if device.type == "cpu" else torch.manual_seed)(0)


def _run_detached(model, example, suffix):
    """Return (output, activations) of the model without gradients for the frozen layers."""
    found = {}

    def detach(path, output):
        leaves, structure = pytree.tree_flatten(output)
        leaves = [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        found.update({(path, number): leaf.clone() for number, leaf in enumerate(leaves) if (path, number) in suffix.points})
        return pytree.tree_unflatten(leaves, structure)

    with hooked(model, detach, {path for path, _ in suffix.points}):
        output = model(example)
    return output, [found[point] for point in suffix.points]


def _run_suffix(suffix, rows, placeholder=math.nan):
    """Return the output of the suffix with this mean value of the placeholders."""

    def run():
        _seed(rows[0].device)
        return suffix(*(each.clone() for each in rows))

    suffix.fill = placeholder
    try:
        try:
            return run()
        except RuntimeError as error:
            # An in-place operation was applied to a placeholder, whose elements share memory.
            if suffix.dense or "written-to" not in str(error):
                raise
            suffix.dense = True
            return run()
    except Exception as error:  # The model can raise any exception for placeholders.
        raise CannotDivide(f"the model's code around {suffix.cut_name} cannot run without the earlier layers: {line_of(error)}") from error
    finally:
        suffix.fill = math.nan


def _gradients(output, parameters):
    """Return gradients by name for a weighted sum of all values of an output.

    Parameters that do not affect the output are omitted.
    """
    leaves = [leaf for leaf in tensors(output) if leaf.requires_grad]
    trained = {name: parameter for name, parameter in parameters.items() if parameter.requires_grad}
    if not leaves or not trained:
        return {}
    total = sum((leaf.double().flatten() * torch.arange(leaf.numel(), dtype=torch.float64, device=leaf.device).cos()).sum() for leaf in leaves)
    gradients = torch.autograd.grad(total, list(trained.values()), allow_unused=True)
    return {name: gradient for name, gradient in zip(trained, gradients, strict=True) if gradient is not None}


def difference(expected, actual):
    """Describe the difference between two outputs. Returns `""` if they are equal within `TOLERANCE`.

    Supports tensors, dicts, tuples and outputs of transformers.
    """
    pairs = pytree.tree_flatten(expected), pytree.tree_flatten(actual)
    if pairs[0][1] != pairs[1][1]:
        return f"its structure is {pairs[1][1]}, not {pairs[0][1]}"
    for one, other in zip(pairs[0][0], pairs[1][0], strict=True):
        if not isinstance(one, torch.Tensor):
            continue
        if not isinstance(other, torch.Tensor) or one.shape != other.shape:
            return f"{tuple(getattr(other, 'shape', ()))} values instead of {tuple(one.shape)}"
        one, other = one.detach().to(other.device).double(), other.detach().double()
        if other.isnan().any() and not one.isnan().any():
            return "NaN"
        off, largest = (float(values.abs().max()) if values.numel() else 0.0 for values in (one - other, one))
        if not off <= TOLERANCE * largest + 1e-9:
            return f"off by {off:.2g} of {largest:.2g}"
    return ""
