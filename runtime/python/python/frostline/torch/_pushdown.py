"""Functions that divide a module and read its activations."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import re
import sys
import warnings
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import onnx
import torch

import frostline
from frostline import _native
from frostline._samples import listed
from frostline._source import Source, cache_settings
from frostline._temporary import TemporaryFolder
from frostline.torch import _network as network
from frostline.torch import _pixels
from frostline.torch._activations import Activations, check_options
from frostline.torch._augmentation import Augmentation
from frostline.torch._divide import Evaluating, kept_generators, path_of, suffix_of

if TYPE_CHECKING:
    import pyarrow

LOG = logging.getLogger("frostline")
MODEL_BYTES = 2 << 30
"""ONNX's limit for a file, and the limit of the embedded host for a model."""

COMPARED_BATCHES = 8
"""Maximum number of pairs of images to try for a comparison of activations, if images cannot be decoded."""


@kept_generators()
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
    size: int | None = None,
    labels: str | os.PathLike[str] | None = None,
    task: str = "classes",
    validation: float | None = None,
    layout: str = "auto",
    augment: Augmentation | None = None,
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
    """Divide `model` at the module `freeze`, and let `hosts` run the frozen layers.

    Returns `(suffix, data)`. `suffix` is a module with the layers after the cut, which shares the model's Parameters.
    `data` is the `Activations` dataset to train it with. `data.validation` and `data.test` are the datasets of these
    parts, or None.

    Raises `ValueError` if the model cannot be divided or if hosts return other activations than PyTorch for two images of
    the data, and `frostline.Error` if a host refuses a request. With `torch.distributed`, call this function in all
    processes. All processes use the frozen layers of rank 0.

    :param model: An image classifier with float32 input `[n, 3, size, size]`. It is not modified.
    :param data: A path, `s3://bucket/prefix`, `gs://`, `az://` or `https://`, with the layout that `frostline train`
        expects.
    :param hosts: Addresses of the hosts. Without hosts, one is started on this machine.
    :param freeze: A module or its path, such as `layer4.0`. The network is frozen up to its output. `freeze_points` lists
        valid modules. `none` freezes no layers.
    :param batch: Total number of samples per batch of all processes. The last batch of an epoch can be smaller.
    :param seed: Seed of the division into parts and of the order of epochs.
    :param split: Cut from which hosts send activations: `none`, `input`, or a module or tensor at or before `freeze`. `auto`
        measures host, link and this machine, as `frostline plan` does. If a `guest` is set or no hosts are set, `auto` is
        the freeze cut. The split does not affect the activations at the freeze cut.
    :param encoding: Encoding in transit: `f32`, `f16` or `int8`, optionally with `+lz4` or `+zstd`. `auto` is the encoding
        of the plan, or without a plan `u8` for the split `input` and `f32` for other splits.
    :param suffix: Module after the freeze cut, if `model` cannot be divided automatically.
    :param prefix_precision: `int8` quantizes the frozen layers with images of the data as calibration samples, which reduces
        their time to between a half and a quarter. `auto` quantizes them if this is faster and precise enough.
    :param allow_imprecise: Accepts quantized layers with a cosine similarity to f32 below 0.99.
    :param pixels: A recipe from `frostline.pixels`, or a source for `pixels_of` such as an image processor of transformers.
        Defaults to the recipe of a timm model. For other models, ImageNet's recipe is used with a warning.
    :param size: Height and width of the input in pixels. Defaults to the size for which a timm model was built or trained, and
        to 224 for other models.
    :param labels: CSV file with labels.
    :param task: `classes`, `labels` (a column of 0 and 1 for each column of a labels table, or for each class), or with a labels table
        `numbers`.
    :param validation: Fraction of the samples to use for validation, if the data have no validation part.
    :param layout: `auto`, `objects` or `shards`.
    :param augment: Augmentation of the training images, such as `Augmentation(hflip=0.5)`.
    :param shuffle: Whether training samples are shuffled. Otherwise they are in the order of the listing.
    :param drop_last: Whether to drop a smaller last batch.
    :param columns: Additional fields of each sample: `key`, `version` and `size`. If set, batches are `(x, y, columns)` with
        a dictionary of lists.
    :param on_bad_sample: `fail` raises `frostline.BadSample`, `skip` omits the sample.
    :param guest: Guest to use instead of the stock guest.
    :param parameters: Parameters of the guest.
    :param threads: Number of threads for the layers from the split to the freeze cut. 0 uses all cores.
    :param feature_cache: Disk limit for cached features on this machine, in bytes or as `"4GiB"`. Frozen layers then run once
        per image, including later epochs and programs. Defaults to half of the free disk space. `off` disables the cache.
        Features of augmented images are never cached.
    :param rank: See `Activations`.
    :param world: See `Activations`.
    :param token: Token for the hosts.
    :param token_file: File with the token.
    :param ca: File with trusted certificates in PEM.
    :param ahead: Maximum number of prefetched batches.
    :param memory: Memory limit of the batches in flight in bytes.
    :param open_requests: Maximum number of requests in flight per host.
    :param request_samples: Maximum number of samples per request.
    :param priority: See `frostline train`.
    :param fixed_batch: See `frostline train`.
    """
    if on_bad_sample not in ("fail", "skip"):
        raise ValueError(f"invalid on_bad_sample {on_bad_sample!r}; use 'fail' or 'skip'")
    if prefix_precision not in ("f32", "int8", "auto"):
        raise ValueError(f"invalid prefix_precision {prefix_precision!r}; use 'f32', 'int8' or 'auto'")
    stream = {"ahead": ahead, "memory": memory, "open_requests": open_requests, "request_samples": request_samples}
    stream |= {"priority": priority, "fixed_batch": fixed_batch}
    stream = {name: value for name, value in stream.items() if value is not None}
    common = {"batch": batch, "seed": seed, "columns": columns, "rank": rank, "world": world}
    check_options(**common, augment=augment)
    client, data = frostline.Client(hosts, token, token_file=token_file, ca=ca), os.fspath(data)
    guest, labels = guest and os.fspath(guest), labels and os.fspath(labels)
    config = client.config(data)
    # Check these settings before the export, which can take a minute.
    _native.Stream(config | stream | ({} if encoding == "auto" else {"encoding": encoding}))
    listing = {"layout": layout, "labels": labels, "task": task, "validation": validation, "seed": seed}
    # If an object were added between two listings, processes would use different samples or wait for each other forever.
    train, held_out, test, classes = _on_rank_zero(lambda: listed(config, **listing, any_files=guest is not None))
    count = len(train) + len(held_out) + len(test)
    if pixels is not None or parameters is None and guest is None:
        pixels = _pixels.chosen(pixels, model, size)
    settings = {**config, "parameters": parameters if parameters is not None else pixels or ""}
    middle = row = None
    frozen_here = []
    rows = cache_settings(feature_cache, None, "none", count)
    if freeze == "none":
        suffix, split = model, "none"
        # Same default as `frostline train` for an input of this size.
        settings["parameters"] = settings["parameters"] or _pixels.default_recipe(size)
    else:
        if split != "none":
            _check_size(model)
        example = _example(pixels, size, next(model.parameters(), torch.empty(0)).device)
        if suffix is None or not isinstance(freeze, str):
            freeze = path_of(model, freeze)
        if suffix is None:
            suffix = suffix_of(model, freeze, example)
        _warn_of_trainable(model, suffix, freeze)
        if task == "classes":
            _check_head(model, example, len(classes))

        def provided():
            # The parameters of the stock guest are also a recipe.
            recipe = pixels or (parameters if guest is None else None)
            frozen = _Frozen(model, freeze, suffix, example, recipe)
            frozen_here.append(frozen)
            if prefix_precision != "f32":
                frozen.quantize(client, data, prefix_precision, allow_imprecise, layout, guest)
            where, planned = frozen.plan(client, data, split, encoding, guest, listing | {"batch": batch})
            rows = cache_settings(feature_cache, frozen.layers, frozen.cut, count, stock=guest is None)
            # Without a guest, the recipe is sufficient to compute the pixels on this machine.
            local = where == "none" and guest is None and (settings["parameters"] or _native.layers(frozen.layers, "input")[1])
            sent = {"parameters": local} if local else frozen.sent(client, guest)
            middle = frozen.middle(where)
            source = Source(settings | stream | planned | sent, where, middle, threads, on_bad_sample="skip")
            frozen.compare(model, freeze, source, train.take(slice(2 * COMPARED_BATCHES)), guest)
            return where, planned | sent, middle, rows, frozen.row

        split, planned, middle, rows, row = _on_rank_zero(provided)
        settings |= planned
    source = Source(settings | stream, split, middle, threads, on_bad_sample, row=row, cache=rows)
    activations = Activations(source, train, shuffle=shuffle, drop_last=drop_last, augment=augment, **common)
    activations.classes = classes
    if frozen_here:
        weakref.finalize(activations, frozen_here[0].folder.remove)
    for name, samples in (("validation", held_out), ("test", test)):
        if len(samples):
            part = Activations(source, samples, shuffle=False, **common)
            part.classes = classes
            setattr(activations, name, part)
    return suffix, activations


@kept_generators()
def extract(
    model: torch.nn.Module,
    cut: str | torch.nn.Module,
    data: str | os.PathLike[str],
    hosts: str | Sequence[str] | None = None,
    *,
    pixels: str | None = None,
    size: int | None = None,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    ca: str | os.PathLike[str] | None = None,
    **options: Any,
) -> pyarrow.RecordBatchReader:
    """Read the activations of all images under `data`, labeled or not, at the output of the module `cut`.

    The model runs in evaluation mode. Returns a reader of record batches with the columns `key`, `split`, `label` and
    `activation`; see `frostline.Client.extract`. Raises the same exceptions as `pushdown`.

    :param model: See `pushdown`.
    :param cut: A module or its path.
    :param data: See `pushdown`.
    :param hosts: See `pushdown`.
    :param pixels: See `pushdown`.
    :param size: See `pushdown`.
    :param token: Token for the hosts.
    :param token_file: File with the token.
    :param ca: File with trusted certificates in PEM.
    :param options: Further arguments of `Client.extract`, such as `keys`, `batch`, `encoding`, `on_bad_sample`, `layout` and
        `feature_cache`.
    """
    if unknown := {"parameters", "model", "guest"} & set(options):
        raise TypeError(f"extract() got an unexpected keyword argument {sorted(unknown)[0]!r}")
    _check_size(model)
    pixels = _pixels.chosen(pixels, model, size)
    example = _example(pixels, size, next(model.parameters(), torch.empty(0)).device)
    cut = path_of(model, cut)
    frozen = _Frozen(model, cut, suffix_of(model, cut, example), example, pixels)
    client = frostline.Client(hosts, token, token_file=token_file, ca=ca)
    options["keys"] = list(client.objects(data, options.get("layout", "auto")) if options.get("keys") is None else options["keys"])
    pins = {"model": client.push_model(frozen.layers), "guest": client.push_guest()}
    settings = client.config(data) | {kind: (pin.name, pin.sha256) for kind, pin in pins.items()} | {"parameters": pixels or ""}
    frozen.compare(model, cut, Source(settings, frozen.cut, on_bad_sample="skip"), options["keys"][: 2 * COMPARED_BATCHES])
    return client.extract(data, frozen.layers, frozen.cut, parameters=pixels or "", **options)


def _check_size(model):
    """Raise `ValueError` if the model does not fit into an ONNX file."""
    parameters = sum(parameter.nbytes for parameter in model.parameters())
    if parameters > MODEL_BYTES:
        raise ValueError(
            f"the Parameters of {type(model).__name__} have {parameters / (1 << 30):.1f} GiB, but hosts accept models of up to "
            f"{MODEL_BYTES >> 30} GiB; pass split='none' to compute all layers on this machine"
        )


def _check_head(model, example, classes):
    """Raise `ValueError` if the model has fewer outputs than classes, and warn if it has more."""
    with Evaluating(model), torch.no_grad():
        output = model(example)
    logits = getattr(output, "logits", output)
    if not isinstance(logits, torch.Tensor) or logits.dim() != 2 or logits.shape[1] == classes:
        return
    what = f"the model has {logits.shape[1]} outputs, the data {classes} classes"
    if logits.shape[1] < classes:
        raise ValueError(f"{what}: replace its head first")
    warnings.warn(f"{what}: its head may belong to other classes", stacklevel=3)


def _warn_of_trainable(model, suffix, freeze):
    """Warn about trainable Parameters before the cut if others are frozen, for example adapters in all layers."""
    trained = {id(parameter) for parameter in suffix.parameters()}
    before = [parameter for parameter in model.parameters() if id(parameter) not in trained]
    trainable = [parameter for parameter in before if parameter.requires_grad]
    if trainable and len(trainable) < len(before):
        numbers = sum(parameter.numel() for parameter in trainable)
        warnings.warn(f"{len(trainable)} trainable Parameters ({numbers:,} numbers) are before {freeze!r} and are not trained", stacklevel=3)


def _on_rank_zero(work):
    """Run `work` in rank 0 and return its result in all processes.

    All processes share the listing and layers of rank 0, as DistributedDataParallel shares its Parameters. Other
    processes do not disturb measurements.
    """
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return work()
    found = [None]
    if distributed.get_rank() == 0:
        try:
            found = [work()]
        except Exception as error:  # The other processes wait for a result.
            found = [error]
    distributed.broadcast_object_list(found, 0)
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


def _log_progress(what):
    """Log progress, and print it in a terminal or notebook."""
    LOG.info("%s", what)
    if not LOG.isEnabledFor(logging.INFO) and (sys.stderr.isatty() or "ipykernel" in sys.modules):
        print(f"frostline: {what}", file=sys.stderr)


def _example(pixels, size, device):
    """Return two random samples with the shape of the network's input."""
    spec, size = json.loads(pixels) if pixels else {}, size or _pixels.DEFAULT_SIZE
    return torch.randn(2, 3, spec.get("crop_height", size), spec.get("crop_width", size), device=device)


class _Frozen:
    """The exported layers up to the freeze cut."""

    def __init__(self, model, freeze, suffix, example, pixels):
        self.name = re.sub(r"[^a-z0-9_-]", "-", type(model).__name__.lower())
        _log_progress(f"exporting {type(model).__name__} and verifying its division at {freeze!r}")
        try:
            self._divide(network.export(model, example), model, freeze, suffix, example, pixels)
        except ValueError as error:
            # The cut may be inside a fused node. Export without fusion, because hosts also fuse nodes.
            try:
                self._divide(network.export(model, example, fuse=False), model, freeze, suffix, example, pixels)
            except ValueError:
                raise error from None
        self.folder = TemporaryFolder()

    def _divide(self, exported, model, freeze, suffix, example, pixels):
        if pixels:
            exported.metadata_props.add(key="frostline.pixels", value=pixels)
        self.exported = exported
        self.cut = network.cut(exported, freeze)
        self.layers = self.exact = network.piece(exported, network.INPUT, self.cut)
        self.row = network.check(model, self.layers, suffix, example, freeze)

    def quantize(self, client, data, precision, allow_imprecise, layout, guest):
        """Quantize the layers to int8 if `precision` and the error permit it."""
        if guest:
            raise ValueError("prefix_precision: calibration requires the stock guest; leave it at 'f32' with guest=")
        _log_progress("calibrating int8 on images of the data")
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
        """Return (split, settings of a stream) from a plan or from the arguments.

        With a guest, `auto` selects the freeze cut, so that the guest runs all frozen layers. The same applies to a host
        on this machine, which shares the cores with this process. A measurement would take longer than a split saves.
        """
        if split != "auto" or guest or not client._hosts:
            where = split if split in ("none", "input") else self.cut if split == "auto" else network.cut(self.exported, split)
            usual = "u8" if where == "input" else "f32"
            return where, {"encoding": usual if encoding == "auto" else encoding}
        whole = self._file(f"{self.name}.onnx")
        whole.write_bytes(self.exported.SerializeToString())
        loss = {"classes": "cross-entropy", "labels": "bce", "numbers": "mse"}[settings.pop("task")]
        words = {key: value for key, value in settings.items() if value is not None}
        _log_progress("measuring hosts, link and this machine for split='auto'; any other split skips this")
        planned = client.plan(str(whole), data, freeze=self.cut, encoding=encoding, loss=loss, feature_cache="off", **words)
        whole.unlink()
        return planned["split"], {
            "encoding": planned["encoding"],
            "request_samples": planned["request_samples"],
            "open_requests": planned["window"],
            "ahead": planned["batches_ahead"],
        }

    def middle(self, split):
        """Return the layers from the split to the freeze cut, or `None` if there are none."""
        if split == self.cut:
            return None
        begin = network.INPUT if split in ("none", "input") else split
        return network.piece(self.exported, begin, self.cut)

    def sent(self, client, guest):
        """Upload the layers and the guest, and return the settings of a stream."""
        # The layers are uploaded again from this file if a host loses them.
        file = self._file(f"{self.name}-frozen.onnx")
        file.write_bytes(self.layers)
        _log_progress(f"uploading the frozen layers to hosts that do not have them ({len(self.layers) / 1e6:.1f} MB)")
        pins = client.push_model(file), client.push_guest(guest)
        (model, helper) = ((pin.name, pin.sha256) for pin in pins)
        return {"model": model, "guest": helper, "model_file": str(file), "guest_file": guest}

    def compare(self, model, freeze, source, samples, guest=None):
        """Compare the activations of two images of the data with PyTorch's. Raises `ValueError` if they differ.

        A guest can compute its activations from other pixels than those it returns, and int8 activations differ as
        expected. In both cases, the exported layers run on this machine. They are not compared if the guest returns no
        pixels, or if no image can be decoded.

        :param source: Source of the activations, which omits bad samples.
        :param samples: Samples to try.
        """
        _log_progress("comparing the activations of two images with PyTorch's")
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
        network.check_rows(model, freeze, self.exact, pixels, rows, f"the activations of {names}")

    def _file(self, name):
        return self.folder.path / name
