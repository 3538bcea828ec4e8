"""Functions that divide a module and read its activations."""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch

import frostline
from frostline import _native
from frostline._client import as_objects, record_batches
from frostline._samples import listed
from frostline._source import Source, cache_settings
from frostline.torch import _pixels
from frostline.torch._activations import Activations, check_options
from frostline.torch._augmentation import Augmentation
from frostline.torch._divide import Calls, Suffix, path_of, paths_of, suffix_of
from frostline.torch._frozen import COMPARED_BATCHES, FrozenLayers
from frostline.torch._model import kept_generators, output_of, prepared
from frostline.torch._options import Fetching, Prefix, Sampling
from frostline.torch._stages import Stages, is_shown
from frostline.torch._targets import Targets

if TYPE_CHECKING:
    import pyarrow

LOG = logging.getLogger("frostline")
MODEL_BYTES = 2 << 30
"""ONNX's limit for a file, and the limit of the embedded host for a model."""


@kept_generators()
def pushdown(
    model: torch.nn.Module,
    data: str | os.PathLike[str],
    hosts: str | Sequence[str] | None = None,
    *,
    freeze: str | torch.nn.Module | Sequence[str | torch.nn.Module],
    batch: int = 64,
    seed: int = 0,
    split: str = "auto",
    encoding: str = "auto",
    suffix: torch.nn.Module | None = None,
    pixels: object = None,
    size: int | None = None,
    augment: Augmentation | None = None,
    views: int | None = None,
    labels: str | os.PathLike[str] | None = None,
    task: str = "classes",
    validation: float | None = None,
    layout: str = "auto",
    columns: Sequence[str] = (),
    targets: Targets | None = None,
    on_bad_sample: str = "fail",
    feature_cache: int | str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    device: str = "cpu",
    client: frostline.Client | None = None,
    sampling: Sampling = Sampling(),
    prefix: Prefix = Prefix(),
    fetching: Fetching = Fetching(),
    progress: bool | None = None,
) -> tuple[torch.nn.Module, Activations]:
    """Divide `model` at the module `freeze`, or at several modules, and let `hosts` run the frozen layers.

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
        valid modules. `none` freezes no layers. With a list, the network is frozen up to the outputs of all these modules, for
        example the features of several layers or skip connections. Then `x` is a tuple of tensors in this order, and
        `suffix(*x)` returns the output. The same applies to a module with several output tensors.
    :param batch: Total number of samples per batch of all processes. The last batch of an epoch can be smaller.
    :param seed: Seed of the division into parts and of the order of epochs.
    :param split: Cut from which hosts send activations: `none`, `input`, or modules or tensors at or before `freeze`, such as
        `a,b` for `freeze=["a", "b"]`. `auto` measures hosts, link and this machine, as `frostline plan` does. If a guest or no
        hosts are set, `auto` is the freeze cut, or `none` if the host on this machine refuses the layers. The split does not
        affect the activations at the freeze cut.
    :param encoding: Encoding in transit: `f32`, `f16` or `int8`, optionally with `+lz4` or `+zstd`. `auto` is the encoding
        of the plan, or without a plan `u8` for the split `input` and `f32` for other splits.
    :param suffix: Module after the freeze cut, if `model` cannot be divided automatically.
    :param pixels: A recipe from `frostline.pixels`, or a source for `pixels_of` such as an image processor of transformers.
        Defaults to the recipe of a timm model. For other models, ImageNet's recipe is used with a warning.
    :param size: Height and width of the input in pixels. Defaults to the size for which a timm model was built or trained, and
        to 224 for other models.
    :param augment: Augmentation of the training images, such as `Augmentation(hflip=0.5)`.
    :param views: Number of fixed augmentations per image, which repeat every `views` epochs, so that augmented features are
        cached as well. By default, each epoch has new ones.
    :param labels: CSV file with labels.
    :param task: `classes`, `labels` (a column of 0 and 1 for each column of a labels table, or for each class), `numbers`
        (with a labels table), or `none` for images without labels, whose `y` is float32 `[n, 0]`.
    :param validation: Fraction of the samples to use for validation, if the data have no validation part.
    :param layout: `auto`, `objects` or `shards`.
    :param columns: Additional fields of each sample: `key`, `version`, `size` and `index`. If set, batches are
        `(x, y, columns)` with a dictionary of lists. `index` is an int64 tensor `[n]` of positions in the listing, for example
        for a table of earlier predictions.
    :param targets: Function that returns the targets of a batch, such as masks, boxes or captions, for a list of `Sample`. `y` is
        what it returns. Threads call it ahead of time, for several batches at once. Each sample has its key, epoch and label, and
        a `Transform` that moves masks and boxes as its image was moved.
    :param on_bad_sample: `fail` raises `frostline.BadSample`, `skip` omits the sample.
    :param feature_cache: Disk limit for cached features on this machine, in bytes or as `"4GiB"`. Frozen layers then run once
        per image, including later epochs and programs. Defaults to half of the free disk space. `off` disables the cache.
        Without `views`, features of augmented images are never cached.
    :param token_file: File with the token for the hosts.
    :param device: Device of a host that is started on this machine: `cpu` or `cuda:0`.
    :param client: Client to use instead of `hosts`, `token_file` and `device`. It is not closed.
    :param sampling: Order of the training samples, and their division among processes.
    :param prefix: Computation of the frozen layers.
    :param fetching: Requests to hosts.
    :param progress: Whether to show progress bars for the preparation and the first epoch. By default, they are shown in
        terminals and notebooks.
    """
    _check_words(on_bad_sample, size)
    _check_groups(sampling=(sampling, Sampling), prefix=(prefix, Prefix), fetching=(fetching, Fetching))
    common = {"batch": batch, "seed": seed, "columns": columns, "rank": sampling.rank, "world": sampling.world}
    check_options(**common, augment=augment, views=views, targets=targets)
    trains_all = isinstance(freeze, str) and freeze == "none"
    if not trains_all:
        model = prepared(model)
    client, data = _client(client, hosts, token_file, device), os.fspath(data)
    guest = None if prefix.guest is None else os.fspath(prefix.guest)
    labels = None if labels is None else os.fspath(labels)
    config = client.config(data)
    # Check these settings before the export, which can take a minute.
    _native.Stream(config | fetching.settings() | ({} if encoding == "auto" else {"encoding": encoding}))
    cache_settings(feature_cache, None, "none", 0)
    listing = {"layout": layout, "labels": labels, "task": task, "validation": validation, "seed": seed}
    # If an object were added between two listings, processes would use different samples or wait for each other forever.
    train, held_out, test, classes = _on_rank_zero(lambda: listed(config, **listing, any_files=guest is not None))
    count = len(train) * (views or 1) + len(held_out) + len(test)
    if pixels is not None or prefix.parameters is None and guest is None:
        pixels = _pixels.chosen(pixels, model, size)
    settings = {**config, **fetching.settings(), "parameters": prefix.parameters if prefix.parameters is not None else pixels or ""}
    shown = is_shown(progress)
    frozen_here: list[FrozenLayers] = []
    middle = None
    row = packing = None
    rows = cache_settings(feature_cache, None, "none", count)
    if trains_all:
        suffix, split = model, "none"
        # Same default as `frostline train` for an input of this size.
        settings["parameters"] = settings["parameters"] or _pixels.default_recipe(size)
    else:
        if split != "none":
            _check_size(model)
        example = _example(pixels, size, next(model.parameters(), torch.empty(0)).device)
        # With a suffix of the user, the name of a tensor is accepted too.
        paths = [freeze] if suffix is not None and isinstance(freeze, str) else paths_of(model, freeze)
        freeze = ",".join(paths)
        if suffix is None:
            suffix = suffix_of(model, paths, example)
        points = _crossing(model, suffix, paths, example)
        _warn_of_trainable(model, suffix, freeze)
        if task == "classes":
            _check_head(model, example, len(classes))

        def provided():
            # The parameters of the stock guest are also a recipe.
            recipe = pixels or (prefix.parameters if guest is None else None)
            frozen = FrozenLayers(model, freeze, suffix, example, recipe, Stages(shown, 3 if prefix.precision == "f32" else 4), points)
            frozen_here.append(frozen)
            if prefix.precision != "f32":
                frozen.quantize(client, data, prefix, layout)
            table = frozen.table_of(train, held_out) if task == "none" else {}
            where, planned = frozen.plan(client, data, split, encoding, guest, listing | table | {"batch": batch})
            cache = cache_settings(feature_cache, frozen.layers, frozen.cut, count, stock=guest is None)
            samples = train.take(slice(2 * COMPARED_BATCHES))
            try:
                where, sent, middle = frozen.provide(client, where, settings | planned, prefix, samples)
            except frostline.Refused as error:
                is_temporary = isinstance(error, (frostline.Busy, frostline.Denied, frostline.NotFound))
                if is_temporary or split != "auto" or client.hosts or guest is not None:
                    raise
                LOG.warning("the frozen layers run in this process, because the host on this machine refuses them: %s", error)
                where, sent, middle = frozen.provide(client, "none", settings | planned, prefix, samples)
            return where, planned | sent, middle, cache, frozen.row, frozen.packing

        split, planned, middle, rows, row, packing = _on_rank_zero(provided)
        settings |= planned
    source = Source(settings, split, middle, prefix.threads, on_bad_sample, row=row, cache=rows)
    recipe = None if guest is not None else _pixels.read_recipe(settings["parameters"] or _pixels.default_recipe(size))
    common |= {"targets": targets, "recipe": recipe, "packing": packing}
    order = {"shuffle": sampling.shuffle, "drop_last": sampling.drop_last}
    activations = Activations(source, train, augment=augment, views=views, progress=shown, **order, **common)
    activations.classes = classes
    if frozen_here:
        activations.own_files(frozen_here[0].folder.remove)
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
    keys: Iterable[frostline.Object | str] | None = None,
    batch: int = 64,
    encoding: str = "f32",
    pixels: object = None,
    size: int | None = None,
    layout: str = "auto",
    on_bad_sample: str = "fail",
    feature_cache: int | str | None = "off",
    token_file: str | os.PathLike[str] | None = None,
    device: str = "cpu",
    client: frostline.Client | None = None,
    fetching: Fetching = Fetching(),
    progress: bool | None = None,
) -> pyarrow.RecordBatchReader:
    """Read the activations of all images under `data`, labeled or not, at the output of the module `cut`.

    The model runs in evaluation mode. Returns a reader of record batches with the columns `key`, `split`, `label` and
    `activation`, or `activation/NAME` for each of several tensors; see `frostline.Client.extract`. Raises the same exceptions as `pushdown`.

    :param model: See `pushdown`.
    :param cut: A module or its path.
    :param data: See `pushdown`.
    :param hosts: See `pushdown`.
    :param keys: Samples to read. Defaults to all samples under `data`.
    :param batch: Maximum number of rows of a record batch.
    :param encoding: Encoding in transit: `f32`, `f16` or `int8`, optionally with `+lz4` or `+zstd`.
    :param pixels: See `pushdown`.
    :param size: See `pushdown`.
    :param layout: `auto`, `objects` or `shards`.
    :param on_bad_sample: `fail` raises `frostline.BadSample`, `skip` omits the sample.
    :param feature_cache: See `frostline.Client.extract`.
    :param token_file: See `pushdown`.
    :param device: See `pushdown`.
    :param client: See `pushdown`.
    :param fetching: Requests to hosts.
    :param progress: Whether to show a progress bar for the preparation. By default, it is shown in terminals and notebooks.
    """
    _check_words(on_bad_sample, size)
    _check_groups(fetching=(fetching, Fetching))
    model = prepared(model)
    client = _client(client, hosts, token_file, device)
    settings = client.config(data) | fetching.settings() | {"encoding": encoding}
    _native.Stream(settings)
    _check_size(model)
    pixels = _pixels.chosen(pixels, model, size)
    example = _example(pixels, size, next(model.parameters(), torch.empty(0)).device)
    cut = path_of(model, cut)
    objects = as_objects(client.objects(data, layout) if keys is None else keys)
    suffix = suffix_of(model, cut, example)
    frozen = FrozenLayers(model, cut, suffix, example, pixels, Stages(is_shown(progress), 3), _crossing(model, suffix, [cut], example))
    settings["parameters"] = pixels or ""
    _, sent, _ = frozen.provide(client, frozen.cut, settings, Prefix(), objects[: 2 * COMPARED_BATCHES])
    cache = cache_settings(feature_cache, frozen.layers, frozen.cut, len(objects))
    source = Source(settings | sent, frozen.cut, on_bad_sample=on_bad_sample, row=frozen.row, cache=cache)
    return record_batches(source, objects, batch)


def _crossing(model, suffix, paths, example):
    """Return the tensors that cross the cut as in `Suffix.points` if there are several, and otherwise an empty tuple."""
    if isinstance(suffix, Suffix):
        points = suffix.points
    else:
        calls = Calls(model, example) if len(paths) > 1 else None
        points = tuple((path, leaf) for path in paths for leaf in calls.rows(path)) if calls else ()
    return points if len(points) > 1 else ()


def _check_words(on_bad_sample, size):
    if on_bad_sample not in ("fail", "skip"):
        raise ValueError(f"invalid on_bad_sample {on_bad_sample!r}; use 'fail' or 'skip'")
    if size is not None and (not isinstance(size, int) or size < 1):
        raise ValueError(f"invalid size {size!r}; it must be the height and width of the input in pixels")


def _client(client, hosts, token_file, device):
    """Return `client`, or a client for the other arguments if it is `None`."""
    if client is None:
        return frostline.Client(hosts, token_file=token_file, device=device)
    if not isinstance(client, frostline.Client):
        raise TypeError(f"client is a {type(client).__name__}; pass a frostline.Client")
    if hosts or token_file or device != "cpu":
        raise ValueError("client= already has hosts, a token and a device; pass these to frostline.Client instead")
    return client


def _check_groups(**groups):
    """Raise `TypeError` if a group of arguments does not have its class."""
    for name, (value, kind) in groups.items():
        if not isinstance(value, kind):
            raise TypeError(f"{name} is a {type(value).__name__}; pass a frostline.torch.{kind.__name__}")


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
    output = output_of(model, example)
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


def _example(pixels, size, device):
    """Return two random samples with the shape of the network's input."""
    spec, size = json.loads(pixels) if pixels else {}, size or _pixels.DEFAULT_SIZE
    return torch.randn(2, 3, spec.get("crop_height", size), spec.get("crop_width", size), device=device)
