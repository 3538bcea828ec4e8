"""From a module and images to what a training loop needs."""

from __future__ import annotations

import json
import logging
import os
import pathlib
import re
import sys
import tempfile
import warnings
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import onnx
import torch

import frostline
from frostline._samples import listed
from frostline._source import Source, kept
from frostline.torch import _network as network
from frostline.torch import _pixels
from frostline.torch._activations import Activations
from frostline.torch._divide import Evaluating, path_of, suffix_of

if TYPE_CHECKING:
    import pyarrow

LOG = logging.getLogger("frostline")


def pushdown(
    model: torch.nn.Module,
    data: str | os.PathLike[str],
    hosts: str | Sequence[str] | None = None,
    *,
    freeze: str | torch.nn.Module,
    batch: int = 64,
    seed: int = 0,
    split: str = "auto",
    encoding: str = "auto",
    suffix: torch.nn.Module | None = None,
    prefix_precision: str = "f32",
    allow_imprecise: bool = False,
    pixels: str | None = None,
    size: int = 224,
    labels: str | os.PathLike[str] | None = None,
    task: str = "classes",
    validation: float | None = None,
    layout: str = "auto",
    augment: Mapping[str, Any] | None = None,
    shuffle: bool = True,
    drop_last: bool = False,
    columns: Sequence[str] = (),
    on_bad_sample: str = "fail",
    guest: str | os.PathLike[str] | None = None,
    parameters: str | None = None,
    threads: int = 0,
    feature_cache: int | str | None = None,
    rank: int | None = None,
    world: int | None = None,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    ca: str | os.PathLike[str] | None = None,
    ahead: int | None = None,
    memory: int | None = None,
    open_requests: int | None = None,
    request_samples: int | None = None,
    priority: int | None = None,
    fixed_batch: int | None = None,
) -> tuple[torch.nn.Module, Activations]:
    """Has `hosts` run `model` up to the module `freeze`; returns `(suffix, data)`: a module with what follows, which shares the model's
    Parameters, and the `Activations` to train it on, whose `validation` and `test` are those of these parts of the data, if there are any.

    * `model`: an image classifier that takes float32 `[n, 3, size, size]`; it is left as it is.
    * `data`: a path, `s3://bucket/prefix`, `gs://`, `az://` or `https://`, laid out as `frostline train` has it; its words are also those of
      `labels` (a CSV file), `validation` (a share), `layout`, `on_bad_sample` (`fail` or `skip`) and `guest` with `parameters`.
    * `hosts`: their addresses; without, one is started beside this process.
    * `freeze`: a module or its path, such as `layer4.0`, up to whose output the network is frozen (`freeze_points` lists them); `none` freezes nothing.
    * `batch`: samples of a batch of all processes together; the last one of an epoch may have fewer, unless `drop_last`.
      `shuffle`: off for a test set, which is in the order of the listing.
    * `split`: where hosts stop and this process goes on: `none`, `input`, or a module or tensor at or before `freeze`; `auto` measures host, link
      and this machine, as `frostline plan` does. The activations are the same wherever it lies.
      Where a `guest` is given, `auto` has it run all of them.
    * `encoding`: how activations travel: `f32`, `f16`, `int8`, each with `+lz4` or `+zstd`; `auto` as it was planned.
    * `suffix`: the module after the freeze cut, where `model` cannot be divided by itself.
    * `prefix_precision`: `int8` quantizes the frozen layers, calibrated on images of the data: a half to a quarter of the time; `auto` does so if it is
      faster and precise enough. `allow_imprecise` accepts a cosine similarity to f32 below 0.99.
    * `pixels`: a recipe by `frostline.pixels`, or what states one to `pixels_of`, such as an image processor of transformers. Without one it is
      timm's own of the model, else ImageNet's for the `size`, with a warning. `augment`: how training images are varied.
    * `columns`: of `key`, `version` and `size`; with any, batches are `(x, y, columns)`, a dictionary with a list for each.
    * `task`: `classes`, or, of a table of labels, `labels` (columns of 0 and 1) or `numbers`.
    * `feature_cache`: disk that activations may take on this machine, in bytes or as `"4GiB"`, so that frozen layers run once for each image, in later
      epochs and later programs too; by default half of what it has free, `off` keeps none. Those of images that are varied are never kept.
    * `threads`: of the layers between split and freeze cut, 0 for all cores. `rank`, `world`: see `Activations`.
    * `ahead`: batches that are fetched ahead; `memory`: bytes that they may take; `open_requests` and `request_samples`: requests in flight, and samples of
      each; `priority`, `fixed_batch`: as for `frostline train`.

    Raises `ValueError` for what cannot be divided, and `frostline.Error` for what hosts refuse. Where `torch.distributed` is in use, all processes
    call it: the first one's frozen layers are everyone's.
    """
    if on_bad_sample not in ("fail", "skip"):
        raise ValueError(f"on_bad_sample is {on_bad_sample!r}; it is 'fail' or 'skip'")
    if prefix_precision not in ("f32", "int8", "auto"):
        raise ValueError(f"prefix_precision is {prefix_precision!r}; it is 'f32', 'int8' or 'auto'")
    stream = {"ahead": ahead, "memory": memory, "open_requests": open_requests, "request_samples": request_samples}
    stream |= {"priority": priority, "fixed_batch": fixed_batch}
    stream = {name: value for name, value in stream.items() if value is not None}
    client, data = frostline.Client(hosts, token, token_file=token_file, ca=ca), os.fspath(data)
    guest, labels = guest and os.fspath(guest), labels and os.fspath(labels)
    config = client.config(data)
    listing = {"layout": layout, "labels": labels, "task": task, "validation": validation, "seed": seed}
    # One object added between two listings, and processes would train on other samples or wait for each other for ever.
    train, held_out, test, classes = _once(lambda: listed(config, **listing, any_files=guest is not None))
    count = len(train) + len(held_out) + len(test)
    if pixels is not None or parameters is None and guest is None:
        pixels = _pixels.chosen(pixels, model, size)
    settings = {**config, "parameters": parameters if parameters is not None else pixels or ""}
    middle = row = None
    frozen_here = []
    rows = kept(feature_cache, None, "none", count)
    if freeze == "none":
        suffix, split = model, "none"
        # As `frostline train` has it of a network whose input has this size.
        settings["parameters"] = settings["parameters"] or frostline.pixels(round(size / 0.875), size)
    else:
        example = _example(pixels, size, next(model.parameters(), torch.empty(0)).device)
        if suffix is None or not isinstance(freeze, str):
            freeze = path_of(model, freeze)
        if suffix is None:
            suffix = suffix_of(model, freeze, example)
        _warn_of_trainable(model, suffix, freeze)
        if task == "classes":
            _check_head(model, example, len(classes))

        def provided():
            # The stock guest's parameters are a recipe too.
            recipe = pixels or (parameters if guest is None else None)
            frozen = _Frozen(model, freeze, suffix, example, recipe)
            frozen_here.append(frozen)
            if prefix_precision != "f32":
                frozen.quantize(client, data, prefix_precision, allow_imprecise, layout, guest)
            where, planned = frozen.plan(client, data, split, encoding, guest, listing | {"batch": batch})
            rows = kept(feature_cache, frozen.layers, frozen.cut, count, stock=guest is None)
            return where, planned | frozen.sent(client, data, guest), frozen.middle(where), rows, frozen.row

        split, planned, middle, rows, row = _once(provided)
        settings |= planned
    source = Source(settings | stream, split, middle, threads, on_bad_sample, row=row, kept=rows)
    common = {"batch": batch, "seed": seed, "columns": columns, "rank": rank, "world": world}
    activations = Activations(source, train, shuffle=shuffle, drop_last=drop_last, augment=augment, **common)
    activations.classes = classes
    if frozen_here:
        weakref.finalize(activations, frozen_here[0].folder.cleanup)
    for name, samples in (("validation", held_out), ("test", test)):
        if len(samples):
            part = Activations(source, samples, shuffle=False, **common)
            part.classes = classes
            setattr(activations, name, part)
    return suffix, activations


def extract(
    model: torch.nn.Module,
    cut: str | torch.nn.Module,
    data: str | os.PathLike[str],
    hosts: str | Sequence[str] | None = None,
    *,
    pixels: str | None = None,
    size: int = 224,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    ca: str | os.PathLike[str] | None = None,
    **options: Any,
) -> pyarrow.RecordBatchReader:
    """Activations of all images under `data`, labeled or not, at the output of the module `cut`, in evaluation mode and by `frostline.Client.extract`:
    a reader of record batches with the columns `key`, `label` and `activation`.

    `model`, `data`, `hosts`, `pixels` and `size` are those of `pushdown`; `options` those of `Client.extract`: `keys`, `batch`, `encoding`,
    `on_bad_sample`, `layout`, `feature_cache` and others. Raises as `pushdown` does.
    """
    if unknown := {"parameters", "model", "guest"} & set(options):
        raise TypeError(f"extract() got an unexpected keyword argument {sorted(unknown)[0]!r}")
    pixels = _pixels.chosen(pixels, model, size)
    example = _example(pixels, size, next(model.parameters(), torch.empty(0)).device)
    cut = path_of(model, cut)
    frozen = _Frozen(model, cut, suffix_of(model, cut, example), example, pixels)
    client = frostline.Client(hosts, token, token_file=token_file, ca=ca)
    return client.extract(data, frozen.layers, frozen.cut, parameters=pixels or "", **options)


def _check_head(model, example, classes):
    """Refuses a model with fewer outputs than there are classes, and warns of one with more."""
    with Evaluating(model), torch.no_grad():
        output = model(example)
    logits = getattr(output, "logits", output)
    if not isinstance(logits, torch.Tensor) or logits.dim() != 2 or logits.shape[1] == classes:
        return
    what = f"the model has {logits.shape[1]} outputs, the data {classes} classes"
    if logits.shape[1] < classes:
        raise ValueError(f"{what}: replace its head first")
    warnings.warn(f"{what}: its head may be of other classes", stacklevel=3)


def _warn_of_trainable(model, suffix, freeze):
    """Where only some Parameters before the cut are frozen, the others were probably meant to be trained: adapters in all layers, say."""
    trained = {id(parameter) for parameter in suffix.parameters()}
    before = [parameter for parameter in model.parameters() if id(parameter) not in trained]
    trainable = [parameter for parameter in before if parameter.requires_grad]
    if trainable and len(trainable) < len(before):
        numbers = sum(parameter.numel() for parameter in trainable)
        warnings.warn(f"{len(trainable)} trainable Parameters ({numbers:,} numbers) lie before {freeze!r} and are not trained", stacklevel=3)


def _once(work):
    """What `work` gives in the first of several processes. Its listing and layers are everyone's, as its Parameters are with
    DistributedDataParallel; and who measures is not disturbed by the others.
    """
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return work()
    found = [None]
    if distributed.get_rank() == 0:
        try:
            found = [work()]
        except Exception as error:  # the others wait for an answer
            found = [error]
    distributed.broadcast_object_list(found, 0)
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


def _say(what):
    """Tells a person who waits what is done now."""
    LOG.info("%s", what)
    if not LOG.isEnabledFor(logging.INFO) and (sys.stderr.isatty() or "ipykernel" in sys.modules):
        print(f"frostline: {what}", file=sys.stderr)


def _example(pixels, size, device):
    """Two samples of the shape of the network's input."""
    spec = json.loads(pixels) if pixels else {}
    return torch.randn(2, 3, spec.get("crop_height", size), spec.get("crop_width", size), device=device)


class _Frozen:
    """The layers up to the freeze cut, for hosts."""

    def __init__(self, model, freeze, suffix, example, pixels):
        self.name = re.sub(r"[^a-z0-9_-]", "-", type(model).__name__.lower())
        _say(f"exporting {type(model).__name__} and verifying its division at {freeze!r}")
        try:
            self._divide(network.export(model, example), model, freeze, suffix, example, pixels)
        except ValueError as error:
            # A network cannot be divided inside what the exporter fused. Hosts fuse the nodes themselves.
            try:
                self._divide(network.export(model, example, fuse=False), model, freeze, suffix, example, pixels)
            except ValueError:
                raise error from None
        self.folder = tempfile.TemporaryDirectory(prefix="frostline-")

    def _divide(self, exported, model, freeze, suffix, example, pixels):
        if pixels:
            exported.metadata_props.add(key="frostline.pixels", value=pixels)
        self.exported = exported
        self.cut = network.cut(exported, freeze)
        self.layers = network.piece(exported, network.INPUT, self.cut)
        self.row = network.check(model, self.layers, suffix, example)

    def quantize(self, client, data, precision, allow_imprecise, layout, guest):
        """Quantizes the layers to int8, if `precision` and their error allow it."""
        if guest:
            raise ValueError("prefix_precision: calibration requires the stock guest; leave it at 'f32' with guest=")
        _say("calibrating int8 on images of the data")
        whole, rounded = self._file(f"{self.name}.onnx"), self._file(f"{self.name}-int8.onnx")
        whole.write_bytes(self.exported.SerializeToString())
        written = client.quantize(whole, data, rounded, freeze=self.cut, prefix_precision=precision, allow_imprecise=allow_imprecise, layout=layout)
        LOG.info("int8: %s", written["comparison"])
        if written["quantized"]:
            self.exported = onnx.load(rounded)
            self.layers = network.piece(self.exported, network.INPUT, self.cut)
        whole.unlink()
        rounded.unlink()

    def plan(self, client, data, split, encoding, guest, settings):
        """(split, settings of a stream) as planned, or as they are given. Whoever brings a guest has it run all frozen layers; so does a host
        inside this process, which shares its cores: measuring would take longer than a split saves."""
        if split != "auto" or guest or not client._hosts:
            where = split if split in ("none", "input") else self.cut if split == "auto" else network.cut(self.exported, split)
            usual = "u8" if where == "input" else "f32"
            return where, {"encoding": usual if encoding == "auto" else encoding}
        whole = self._file(f"{self.name}.onnx")
        whole.write_bytes(self.exported.SerializeToString())
        loss = {"classes": "cross-entropy", "labels": "bce", "numbers": "mse"}[settings.pop("task")]
        words = {key: value for key, value in settings.items() if value is not None}
        _say("measuring hosts, link and this machine for split='auto'; any other split skips this")
        planned = client.plan(str(whole), data, freeze=self.cut, encoding=encoding, loss=loss, feature_cache="off", **words)
        whole.unlink()
        return planned["split"], {
            "encoding": planned["encoding"],
            "request_samples": planned["request_samples"],
            "open_requests": planned["window"],
            "ahead": planned["batches_ahead"],
        }

    def middle(self, split):
        """The layers from the split to the freeze cut; `None` where there are none."""
        if split == self.cut:
            return None
        begin = network.INPUT if split in ("none", "input") else split
        return network.piece(self.exported, begin, self.cut)

    def sent(self, client, data, guest):
        """Has the hosts take layers and guest; returns what a stream is told of them."""
        # Hosts that come back without the layers are given them again from here.
        file = self._file(f"{self.name}-frozen.onnx")
        file.write_bytes(self.layers)
        _say(f"sending the frozen layers to the hosts that lack them ({len(self.layers) / 1e6:.1f} MB)")
        pins = client.push_model(file, data=data), client.push_guest(guest, data=data)
        (model, helper) = ((pin.name, pin.sha256) for pin in pins)
        return {"model": model, "guest": helper, "model_file": str(file), "guest_file": guest}

    def _file(self, name):
        return pathlib.Path(self.folder.name) / name
