"""The frozen layers of a model as hosts compute them."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import logging
import os
import re
from collections.abc import Sequence
from typing import Any

import onnx
import torch

import frostline
from frostline import _native
from frostline._samples import Samples
from frostline._source import Source
from frostline._temporary import TemporaryFolder
from frostline.torch import _exports as exports
from frostline.torch import _network as network
from frostline.torch._activations import Packing
from frostline.torch._divide import Suffix
from frostline.torch._options import Prefix
from frostline.torch._stages import Stages

LOG = logging.getLogger("frostline")
PIXELS = "frostline.pixels"
"""Metadata key of a model for the recipe of its input."""
COMPARED_BATCHES = 8
"""Maximum number of pairs of images to try for a comparison of activations, if images cannot be decoded."""

EXPORTERS = ("torch.onnx", "onnxscript", "onnx_ir")
"""Loggers that write a line for each of their steps."""

REFUSALS = {"unauthorized": frostline.Denied, "not-found": frostline.NotFound, "busy": frostline.Busy, "stopping": frostline.Busy}
"""Exceptions for refusals of a host, by their class."""


@contextlib.contextmanager
def _quiet_exporter():
    """Limit the log of the exporter to warnings, unless the user has set its level."""
    changed = [logger for logger in map(logging.getLogger, EXPORTERS) if logger.level == logging.NOTSET]
    for logger in changed:
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for logger in changed:
            logger.setLevel(logging.NOTSET)


@contextlib.contextmanager
def _explained_failures():
    """Raise what `pushdown` documents if a command fails. Its next step is in terms of its flags and a temporary file."""
    try:
        yield
    except frostline.CommandError as error:
        if error.kind in REFUSALS:
            raise REFUSALS[error.kind](error.args[0], kind=error.kind) from None
        hint = error.hint or ""
        settings = {"prefix_precision": "precision", "allow_imprecise": "allow_imprecise"}
        found = [f"pass prefix=Prefix({ours}={value})" for theirs, ours in settings.items() if (value := _value_of(theirs, hint))]
        step = "; or ".join(found) or hint
        # The user cannot name a tensor of the exported network or its temporary file.
        step = None if re.search(r"\bfreeze=|\.onnx\b", step) else step or None
        raise frostline.CommandError(error.args[0].removesuffix(f" ({hint})"), kind=error.kind, code=error.code, hint=step) from None


def _value_of(setting, hint):
    """Return the value that a hint suggests for a setting, or `None`."""
    found = re.search(rf"\b{setting}=('\w+'|\w+)", hint)
    return found and found[1]


def _trained(model, suffix):
    """Return the weights of the suffix that the frozen layers do not read."""
    if isinstance(suffix, Suffix):
        modules = [model.get_submodule(path) for path in suffix.later]
        return [weight for module in modules for weight in (*module.parameters(recurse=False), *module.buffers(recurse=False))]
    # A suffix of a user does not state which modules precede the cut.
    return [*suffix.parameters(), *suffix.buffers()]


class FrozenLayers:
    """The exported layers up to the freeze cut."""

    def __init__(
        self,
        model: torch.nn.Module,
        freeze: str,
        suffix: torch.nn.Module,
        example: torch.Tensor,
        pixels: str | None,
        stages: Stages,
        points: Sequence[tuple[str, int]] = (),
    ) -> None:
        """Export the model and verify its division. Raises `ValueError` if it cannot be exported or divided.

        :param freeze: Path of the last frozen module, or several paths separated by commas.
        :param suffix: The layers after this module.
        :param points: The tensors of the cut as in `Suffix.points`, if there are several.
        :param example: Two input samples.
        :param pixels: Recipe of the input, which hosts read from the exported layers.
        """
        self.name = re.sub(r"[^a-z0-9_-]", "-", type(model).__name__.lower())
        self.model = model
        self.freeze = freeze
        self.stages = stages
        self.points = points
        self.packing: Packing | None = None
        with stages.stage(f"exporting {type(model).__name__} and verifying its division at {freeze!r}"), _quiet_exporter():
            key = exports.key_of(model, _trained(model, suffix), example, freeze)
            if not self._use_cached(key, suffix, example, pixels):
                self._export(suffix, example, pixels)
                exports.save(key, self.exported)
        self.folder = TemporaryFolder()

    def _use_cached(self, key, suffix, example, pixels):
        """Use the cached export, and return true if there is one that matches the model."""
        exported = exports.load(key)
        if exported is None:
            return False
        try:
            self._divide(exported, suffix, example, pixels)
        except ValueError as error:
            # Something differs that is not part of the key.
            LOG.info("exporting again, because the cached export does not match the model: %s", error)
            return False
        return True

    def _export(self, suffix, example, pixels):
        try:
            self._divide(network.export(self.model, example), suffix, example, pixels)
        except ValueError as error:
            # The cut may be inside a fused node. Export without fusion, because hosts also fuse nodes.
            try:
                self._divide(network.export(self.model, example, fuse=False), suffix, example, pixels)
            except ValueError:
                raise error from None

    def _divide(self, exported, suffix, example, pixels):
        # A cached export can have another recipe.
        for entry in [entry for entry in exported.metadata_props if entry.key == PIXELS]:
            exported.metadata_props.remove(entry)
        if pixels:
            exported.metadata_props.add(key=PIXELS, value=pixels)
        self.exported = exported
        if self.points:
            self.cut, self.packing = network.join(exported, self.model, self.points, example)
        else:
            self.cut = network.cut(exported, self.freeze)
        self.layers = self.exact = network.piece(exported, network.INPUT, self.cut)
        self.row = network.check(self.model, self.layers, suffix, example, self.freeze, self._joint())

    def _joint(self):
        """Return the tensors of the cut with their packing, or `None` if there is only one."""
        return (self.points, self.packing) if self.packing else None

    def quantize(self, client: frostline.Client, data: str, prefix: Prefix, layout: str) -> None:
        """Quantize the layers to int8 if the precision of `prefix` and the error permit it."""
        whole, rounded = self._whole(), self._file(f"{self.name}-int8.onnx")
        with self.stages.stage("calibrating int8 on images of the data"), _explained_failures():
            written = client.quantize(
                whole, data, rounded, freeze=self.cut, prefix_precision=prefix.precision, allow_imprecise=prefix.allow_imprecise, layout=layout
            )
        LOG.info("int8: %s", written["comparison"])
        if written["quantized"]:
            self.exported = onnx.load(rounded)
            network.add_joint(self.exported, self.cut, self.row)
            self.layers = network.piece(self.exported, network.INPUT, self.cut)
        whole.unlink()
        rounded.unlink()

    def plan(
        self, client: frostline.Client, data: str, split: str, encoding: str, guest: str | None, settings: dict[str, Any]
    ) -> tuple[str, dict[str, Any]]:
        """Return (split, settings of a stream) from a plan or from the arguments.

        With a guest, `auto` selects the freeze cut, so that the guest runs all frozen layers. The same applies to a host
        on this machine, which shares the cores with this process. A measurement would take longer than a split saves.
        """
        if split != "auto" or guest or not client.hosts:
            where = self._where(split)
            usual = "u8" if where == "input" else "f32"
            return where, {"encoding": usual if encoding == "auto" else encoding}
        whole = self._whole()
        loss = {"labels": "bce", "numbers": "mse"}.get(settings["task"], "cross-entropy")
        words = {key: value for key, value in settings.items() if value is not None and key != "task"}
        with self.stages.stage("measuring hosts, link and this machine for split='auto'; any other split skips this"), _explained_failures():
            planned = client.plan(str(whole), data, freeze=self.cut, encoding=encoding, loss=loss, feature_cache="off", **words)
        whole.unlink()
        return planned["split"], {
            "encoding": planned["encoding"],
            "request_samples": planned["request_samples"],
            "open_requests": planned["window"],
            "ahead": planned["batches_ahead"],
        }

    def _where(self, split):
        """Return `none`, `input` or the names of the tensors at a split of the user."""
        if split in ("none", "input"):
            return split
        if split in ("auto", self.freeze):
            return self.cut
        if "," in split:
            return ",".join(network.cut(self.exported, name) for name in split.split(","))
        return network.split_cut(self.exported, split, self.cut)

    def table_of(self, train: Samples, validation: Samples) -> dict[str, Any]:
        """Return settings of a plan for images without labels: a table with a class for each image, which does not affect the costs."""
        file = self._file("labels.csv")
        with open(file, "w", newline="", encoding="utf-8") as rows:
            writer = csv.writer(rows)
            writer.writerow(["key", "class", "split"])
            for part, samples in (("train", train), ("validation", validation)):
                keys = [key for key, *_ in samples.take(slice(None))]
                writer.writerows((key, f"class {number % 2}", part) for number, key in enumerate(keys))
        return {"labels": str(file), "validation": None}

    def provide(
        self, client: frostline.Client, split: str, settings: dict[str, Any], prefix: Prefix, samples: Sequence[Any]
    ) -> tuple[str, dict[str, Any], bytes | None]:
        """Upload the layers if hosts run any, and compare the activations of two images of the data with PyTorch's.

        Returns (split, settings of a stream, layers from the split to the freeze cut). Raises `ValueError` if the
        activations differ.

        :param settings: Settings of a stream.
        :param samples: Samples to try.
        """
        guest = os.fspath(prefix.guest) if prefix.guest is not None else None
        middle = self._split_at(split) if "," in split and split != self.cut else self.middle(split)
        # Without a guest, the recipe is sufficient to compute the pixels on this machine.
        local = split == "none" and guest is None and (settings["parameters"] or _native.layers(self.layers, "input")[1])
        sent = {"parameters": local} if local else self._upload(client, guest)
        source = Source(settings | sent, split, middle, prefix.threads, on_bad_sample="skip")
        with self.stages.stage("comparing the activations of two images with PyTorch's"):
            self._compare(source, samples, guest)
        return split, sent, source.middle

    def _split_at(self, split):
        """Add the cuts through several tensors to the layers for hosts, and return the layers from one of them to the freeze cut."""
        whole = network.without_joint(self.exported).SerializeToString()
        is_exact = self.layers is self.exact
        self.layers, middle = (network.with_metadata(layers, self.exported) for layers in _native.split_layers(whole, self.cut, split))
        if is_exact:
            self.exact = self.layers
        return middle

    def middle(self, split: str) -> bytes | None:
        """Return the layers from the split to the freeze cut, or `None` if there are none."""
        if split == self.cut:
            return None
        begin = network.INPUT if split in ("none", "input") else split
        return network.piece(self.exported, begin, self.cut)

    def _upload(self, client, guest):
        """Upload the layers and the guest, and return the settings of a stream."""
        # The layers are uploaded again from this file if a host loses them.
        file = self._file(f"{self.name}-frozen.onnx")
        file.write_bytes(self.layers)
        total = len(self.layers) / 1e6

        def sent():
            return f"({client.uploaded_bytes() / 1e6:.0f} of {total:.0f} MB)"

        with self.stages.stage("uploading the frozen layers to hosts that do not have them", sent):
            pins = client.push_model(file), client.push_guest(guest)
        (model, helper) = ((pin.name, pin.sha256) for pin in pins)
        return {"model": model, "guest": helper, "model_file": str(file), "guest_file": guest}

    def _compare(self, source, samples, guest):
        """Compare the activations of two images of the data with PyTorch's. Raises `ValueError` if they differ.

        A guest can compute its activations from other pixels than those it returns, and int8 activations differ as
        expected. In both cases, the exported layers run on this machine. They are not compared if the guest returns no
        pixels, or if no image can be decoded.

        :param source: Source of the activations, which omits bad samples.
        """
        encoding = source.stream.get("encoding", "f32")
        stream = source.stream | {"encoding": encoding if encoding.startswith(("f32", "u8")) else "f32"}
        source = dataclasses.replace(source, stream=stream)
        entry = dataclasses.replace(source, split=source.split if source.split in ("none", "input") else "input", middle=None)
        pixels = []
        for first in range(0, len(samples), 2):
            try:
                ((pixels, places, _),) = entry.rows(samples[first : first + 2], 2)
            except frostline.Error as error:
                if guest is None:
                    raise
                LOG.info("activations are not compared with PyTorch's, because the guest returns no pixels: %s", error)
                return
            if len(pixels):
                break
        if not len(pixels):
            LOG.warning("activations are not compared with PyTorch's, because the first %d images cannot be decoded", len(samples))
            return
        chosen, pixels = [samples[first + place] for place in places], torch.from_numpy(pixels)
        if guest or self.layers is not self.exact:
            rows = network.run(self.exact, pixels)
        else:
            ((rows, places, _),) = source.rows(chosen, 2)
            rows, pixels = torch.from_numpy(rows), pixels[places]
        names = ", ".join(repr(each if isinstance(each, str) else each[0]) for each in chosen)
        network.check_rows(self.model, self.freeze, self.exact, pixels, rows, f"the activations of {names}", self._joint())

    def _whole(self):
        file = self._file(f"{self.name}.onnx")
        file.write_bytes(network.without_joint(self.exported).SerializeToString())
        return file

    def _file(self, name):
        return self.folder.path / name
