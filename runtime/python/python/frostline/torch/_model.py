"""Checks of a user's model before it is divided, and of its call for images."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

UNSUPPORTED = {
    "DataParallel": "is wrapped in DataParallel; pass the wrapped model (`model.module`), and wrap the suffix",
    "DistributedDataParallel": "is wrapped in DistributedDataParallel; pass the wrapped model (`model.module`), and wrap the suffix",
    "FullyShardedDataParallel": "is sharded, so this process has only a part of its weights; divide the model before it is sharded",
    "FSDPModule": "is sharded, so this process has only a part of its weights; divide the model before it is sharded",
    "OptimizedModule": "is compiled; pass the original module (`model._orig_mod`), and compile the suffix",
    "ScriptModule": "is TorchScript, which has no Python code to divide; pass the model from which it was created",
}
"""Reasons and next steps for classes of modules that cannot be divided, by the name of the class."""


class CannotDivide(ValueError):
    """A model cannot be divided, or not at this module. The message contains the reason and the next step."""

    def __init__(self, message: str, modules: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.modules = tuple(modules)
        """Valid modules for `freeze=`, if the message names them."""


class Evaluating:
    """Context manager that puts a module in evaluation mode, and then restores the mode of each submodule."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self.modes = [(part, part.training) for part in module.modules()]

    def __enter__(self) -> torch.nn.Module:
        return self.module.eval()

    def __exit__(self, *_: object) -> None:
        for part, training in self.modes:
            part.training = training


@contextlib.contextmanager
def kept_generators() -> Iterator[None]:
    """Context manager and decorator that restores the states of torch's global generators on the CPU and on GPUs."""
    with torch.random.fork_rng(range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()):
        yield


def line_of(error: BaseException) -> str:
    """Return the type and the first line of an error, limited to 200 characters."""
    return f"{type(error).__name__}: {error}".split("\n")[0][:200]


def prepared(model: object) -> torch.nn.Module:
    """Return the module to divide, which is the base model with its adapters for a model of peft.

    Raises `TypeError` if `model` is not a module, and `CannotDivide` if a module in it or its weights cannot be divided.
    """
    if not isinstance(model, torch.nn.Module):
        advice = "a model that has loaded this state dict" if isinstance(model, dict) else "a model object"
        raise TypeError(f"model is a {type(model).__name__}, not a torch.nn.Module; pass {advice}")
    is_of_peft = hasattr(model, "peft_config") and hasattr(model, "get_base_model")
    base: torch.nn.Module = getattr(model, "get_base_model")() if is_of_peft else model
    for path, part in base.named_modules():
        where = f"the module {path!r}" if path else f"this {type(part).__name__}"
        for kind in type(part).__mro__:
            if kind.__name__ in UNSUPPORTED:
                raise CannotDivide(f"{where} {UNSUPPORTED[kind.__name__]}")
        if part._compiled_call_impl is not None:
            raise CannotDivide(f"{where} is compiled; divide the model before its compile() is called, and compile the suffix")
    _check_weights(base)
    return base


def _check_weights(model: torch.nn.Module) -> None:
    weights = list(model.parameters())
    what = f"this {type(model).__name__}"
    if any(torch.nn.parameter.is_lazy(weight) for weight in weights):
        raise CannotDivide(f"{what} has Parameters without a shape; call it once with images")
    devices = sorted({str(weight.device) for weight in weights})
    if "meta" in devices:
        raise CannotDivide(f"{what} has Parameters without values, on the device 'meta'; load its weights")
    if len(devices) > 1:
        raise CannotDivide(f"{what} is on several devices ({', '.join(devices)}); move it to one, for example with model.to({devices[0]!r})")
    kinds = {weight.dtype for weight in weights if weight.is_floating_point()} - {torch.float32}
    if kinds:
        names = ", ".join(sorted(str(kind).removeprefix("torch.") for kind in kinds))
        raise CannotDivide(
            f"{what} has {names} weights, but hosts compute in float32; pass model.float(), and call the suffix inside torch.autocast to train in "
            "mixed precision"
        )


def output_of(model: torch.nn.Module, images: torch.Tensor) -> Any:
    """Return the output of `model` in evaluation mode. Raises `CannotDivide` if it does not accept the images."""
    try:
        with torch.no_grad(), Evaluating(model):
            return model(images)
    except Exception as error:  # The model can raise any exception.
        what = f"this {type(model).__name__} does not accept float32 images {list(images.shape)}"
        convolutions = ((path, part) for path, part in model.named_modules() if isinstance(part, torch.nn.Conv2d))
        path, first = next(convolutions, ("", None))
        if first is not None and first.in_channels != images.shape[1]:
            wanted = "images.mean(1, keepdim=True)" if first.in_channels == 1 else f"images with {first.in_channels} channels"
            raise CannotDivide(
                f"{what}: its first convolution {path!r} reads {first.in_channels} channels; pass a module whose forward converts RGB images, "
                f"for example self.model({wanted})"
            ) from error
        raise CannotDivide(f"{what} ({line_of(error)}); pass an image classifier, with size= if it requires another size") from error
