"""Access to hosts, with the operations of the command."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _native
from ._errors import Error, SettingsError

if TYPE_CHECKING:
    import pyarrow
    from typing_extensions import Self

    from ._host import HostUse
    from ._source import Source

PathLike = "str | os.PathLike[str]"


class Object(NamedTuple):
    """A sample under a data root."""

    key: str
    """Key relative to the root."""
    etag: str | None
    """Version of the object. Reading another version fails."""
    size: int
    """Size in bytes."""
    label: str | None
    """Class according to the shard or the folder."""
    part: str | None
    """``train``, ``validation`` or ``test`` according to the name of the folder or shard."""
    changed: int | None = None
    """Time of a file's last change in nanoseconds since 1970. Not part of the version. Only set for files in a folder."""


class Upload(NamedTuple):
    """A model or a guest on the hosts."""

    name: str
    """Name on the hosts."""
    sha256: str
    """SHA-256 of the content in lowercase hex."""
    bytes: int
    """Size in bytes."""
    skipped: bool
    """True if nothing was sent, because all hosts had it already."""


class Client:
    """Client of one or more hosts that serve the same data to one tenant.

    Without ``hosts``, a host is started on this machine on first use. It can open every data root that this user can,
    and exits when all clients, readers and data sets that use it are closed or collected, in all processes. Every method
    can raise :class:`frostline.Error`.

    A client is a context manager that calls :meth:`close`. It can be pickled and used after a fork: a copy has its own
    connections, and closing one copy does not affect the others. A forked copy uses the host of its parent. A copy that
    was unpickled in another process starts its own.

    :param hosts: Addresses of the hosts, for example ``["https://store-1:8443"]``. Each object is read at one host.
        If a host fails, the other hosts take over its work.
    :param token: Token for the hosts. It is never displayed, but is part of a pickled client.
    :param token_file: File with the token. It is read again if a host refuses the token.
    :param ca: File with trusted certificates in PEM. Defaults to the certificates of the system.
    :param device: Device of hosts started on this machine: ``cpu`` or ``cuda:0``.
    """

    def __init__(
        self,
        hosts: str | Sequence[str] | None = None,
        token: str | None = None,
        *,
        token_file: str | os.PathLike[str] | None = None,
        ca: str | os.PathLike[str] | None = None,
        device: str = "cpu",
    ) -> None:
        if token is not None and token_file is not None:
            raise SettingsError("token and token_file are both set; pass only one")
        self._hosts = [hosts] if isinstance(hosts, str) else list(hosts or [])
        if not self._hosts and (token or token_file or ca):
            raise SettingsError("token, token_file and ca require hosts; pass hosts= as well")
        self._token = token
        self._token_file = None if token_file is None else os.fspath(token_file)
        self._ca = None if ca is None else os.fspath(ca)
        self._device = device
        self._native: dict[str, _native.Hosts] = {}
        self._use: HostUse | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"frostline.Client({self._hosts or 'embedded'})"

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_native": {}, "_use": None}

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections of this process, after which other methods raise :class:`frostline.Error`.

        On the host on this machine, models and guests that this client uploaded are removed, unless another client,
        reader or data set uses them. On other hosts they stay; see :meth:`remove_model`. Readers and data sets made
        with this client remain usable.
        """
        self._closed = True
        self._native = {}
        use, self._use = self._use, None
        if use is not None:
            use.close()

    def _check_open(self) -> None:
        if self._closed:
            raise Error("this client is closed; create another one")

    @property
    def hosts(self) -> list[str]:
        """Addresses of the hosts. Empty if the client uses a host on this machine."""
        return list(self._hosts)

    def config(self, data: str | os.PathLike[str]) -> dict[str, Any]:
        """Return plain settings to reach ``data`` from other processes.

        Starts a host on this machine if the client has no hosts. Forked and spawned workers with these settings use
        the same host while this client is open. The settings include the token.
        """
        return self._access() | {"data": _url(data)}

    def _access(self) -> dict[str, Any]:
        self._check_open()
        if self._hosts:
            return {"hosts": self._hosts, "token": self._token, "token_file": self._token_file, "ca": self._ca}
        if self._use is None or not self._use.host_runs():
            from ._host import embedded

            self._use = embedded(self._device)
        return self._use.settings()

    def _reach(self) -> _native.Hosts:
        access = self._access()
        key = json.dumps(access["hosts"])
        if key not in self._native:
            self._native[key] = _native.Hosts(access)
        return self._native[key]

    def objects(self, data: str | os.PathLike[str], layout: str = "auto") -> list[Object]:
        """List the samples under a data root in ascending order of keys.

        Images are recognized by name. Hidden files are skipped.

        :param data: A path, ``s3://bucket/prefix``, ``gs://``, ``az://`` or ``https://``.
        :param layout: ``auto``, ``objects`` or ``shards`` (tar archives).
        """
        return [Object(*each) for each in self._reach().objects(_url(data), layout)]

    def push_model(
        self,
        model: str | os.PathLike[str] | bytes,
        name: str | None = None,
    ) -> Upload:
        """Upload a network to every host that does not have it.

        :param model: Path or content of an ONNX file.
        :param name: Name on the hosts. Defaults to the file name with the first digits of the hash.
        """
        return self._push("model", *_content(model, "model"), name)

    def push_guest(
        self,
        guest: str | os.PathLike[str] | bytes | None = None,
        name: str | None = None,
    ) -> Upload:
        """Upload a guest (a component or core module) to every host that does not have it.

        :param guest: Path or content of a guest. Defaults to the stock guest.
        :param name: Name on the hosts. Defaults to the file name with the first digits of the hash.
        """
        if guest is None:
            return self._push("guest", _native.stock_guest(), "prefix", name)
        return self._push("guest", *_content(guest, "guest"), name)

    def _push(self, kind: str, content: bytes, stem: str, name: str | None) -> Upload:
        hosts = self._reach()
        name = name or _native.content_name(stem, hashlib.sha256(content).hexdigest())
        if self._use is not None:
            self._use.hold(kind, name)
        return Upload(*hosts.push(kind == "guest", name, content))

    def uploaded_bytes(self) -> int:
        """Return the number of bytes of the latest upload that a host has received. Other threads can call this meanwhile."""
        return self._reach().sent()

    def remove_model(self, name: str) -> bool:
        """Remove a model with all versions from all hosts, also for other jobs of this tenant.

        Returns true if a host had it. A data set that uses the model raises :class:`frostline.NotFound` until it is
        created again.
        """
        return self._reach().remove(False, name)

    def remove_guest(self, name: str) -> bool:
        """Remove a guest with all versions from all hosts, in the same way as :meth:`remove_model`."""
        return self._reach().remove(True, name)

    def load(self) -> dict[str, dict[str, Any]]:
        """Return the load of each host by address.

        A load includes ``queued`` and ``running`` extractions, ``lanes``, ``samples_per_second`` and the part of this
        tenant. If a host does not answer, its value is ``{"error": text}``.
        """
        answers = self._reach().load()
        return {url: json.loads(text) if answered else {"error": text} for url, answered, text in answers}

    def extract(
        self,
        data: str | os.PathLike[str],
        model: str | os.PathLike[str] | bytes | Upload | None,
        cut: str,
        *,
        keys: Iterable[Object | str] | None = None,
        guest: str | os.PathLike[str] | bytes | Upload | None = None,
        parameters: str = "",
        batch: int = 64,
        encoding: str = "f32",
        on_bad_sample: str = "fail",
        layout: str = "auto",
        feature_cache: int | str | None = "off",
        output: str | None = None,
        image_size: int | None = None,
        **options: Any,
    ) -> pyarrow.RecordBatchReader:
        """Read the activations of samples at a cut, in record batches of up to ``batch`` rows.

        Rows are in the requested order. The columns are ``key`` (string), ``split`` (``train``, ``validation``, ``test``
        or null), ``label`` (class as a string, or null) and ``activation`` (fixed-shape tensor of float32 with the shape
        of one sample at the cut; ``tensor.to_numpy_ndarray()`` returns ``[rows, *shape]``). A cut through several tensors has
        a column ``activation/NAME`` for each of them instead, and integers are integers. Activations are never null.
        The reader raises an exception on failure, so reading to the end yields all rows.

        :param model: Path or content of an ONNX file, or the result of :meth:`push_model`. Can be ``None`` at the cut
            ``none``.
        :param cut: Name of a tensor. If ``model`` is a path, the name of a module in ``frostline model show`` is also
            accepted. The cut ``input`` returns normalized pixels from the hosts, ``none`` the same pixels computed on
            this machine.
        :param keys: Samples to read. Defaults to all samples under ``data``.
        :param guest: Guest to use instead of the stock guest.
        :param parameters: Parameters of the guest. For the stock guest, a recipe from :func:`frostline.pixels`. Defaults
            to the recipe in the metadata of ``model``, or ImageNet's.
        :param encoding: Encoding in transit: ``f32``, ``f16`` or ``int8``, optionally with ``+lz4`` or ``+zstd``.
        :param on_bad_sample: ``fail`` raises :class:`frostline.BadSample`, ``skip`` omits the sample.
        :param feature_cache: Disk limit for cached activations on this machine, in bytes or as ``"4GiB"``. Later calls
            reuse cached activations. ``None`` uses the environment variable ``FROSTLINE_FEATURE_CACHE``, or half of the free disk
            space, as in ``frostline train``.
        :param output: Output to use, if the network in the file ``model`` has several. Layers and inputs that only other
            outputs need are removed. With ``output`` or ``image_size``, ``cut`` must be the name of a tensor.
        :param image_size: Image side in pixels, if the network in the file ``model`` supports any size.
        :param options: Further settings of :class:`frostline._native.Stream`, such as ``priority``, ``ahead`` and
            ``fixed_batch``.
        """
        if on_bad_sample not in ("fail", "skip"):
            raise SettingsError(f"on_bad_sample must be 'fail' or 'skip', not {on_bad_sample!r}")
        from . import _native, _source

        if output is not None or image_size is not None:
            if not isinstance(model, (str, os.PathLike)):
                raise SettingsError("output and image_size require a model in a file")
            model = _native.network(model, output, image_size)
        listed = as_objects(self.objects(data, layout) if keys is None else keys)
        config = self.config(data)
        network = None
        if cut != "none" or model is not None:
            pushed = model if isinstance(model, Upload) else self.push_model(_required(model, cut))
            helper = guest if isinstance(guest, Upload) else self.push_guest(guest)
            config |= {"model": (pushed.name, pushed.sha256), "guest": (helper.name, helper.sha256)}
            if isinstance(model, (str, os.PathLike)):
                config["model_file"] = os.path.abspath(model)
                cut = _resolve_cut(model, cut)
            network = model
            if not parameters and guest is None and not isinstance(model, Upload):
                # Same as `frostline extract`: the metadata of a tuned model contain the recipe.
                _, parameters = _native.layers(_required(model, cut), "input")
                if not parameters:
                    raise SettingsError("the stock guest cannot prepare this network's input; pass guest= or parameters=")
        stream = config | options | {"parameters": parameters, "encoding": encoding}
        cache = _source.cache_settings(feature_cache, network, cut, len(listed), stock=guest is None)
        return record_batches(_source.Source(stream, cut, on_bad_sample=on_bad_sample, cache=cache), listed, batch)

    def plan(self, model: str | os.PathLike[str], data: str | os.PathLike[str], *, timeout: float | None = 1800, **flags: Any) -> dict[str, Any]:
        """Choose the split of a job, and return the output of ``frostline plan --json``.

        Measures the network unless a stored profile is still valid.

        :param timeout: Time limit in seconds.
        :param flags: Flags of the command, such as ``freeze="layer4.0"`` and ``batch=64``. ``True`` sets a flag without
            a value, and a list repeats the flag.
        """
        return self._command("plan", {"model": model, "data": data} | flags, timeout, None)

    def quantize(
        self,
        model: str | os.PathLike[str],
        data: str | os.PathLike[str],
        out: str | os.PathLike[str],
        *,
        timeout: float | None = 1800,
        **flags: Any,
    ) -> dict[str, Any]:
        """Quantize the layers up to a cut to int8, and return the output of ``frostline model quantize --json``.

        :param out: ONNX file to write.
        :param timeout: Time limit in seconds.
        :param flags: Flags of the command, such as ``freeze="layer4.0"``, ``prefix_precision="auto"`` and
            ``allow_imprecise=True``.
        """
        return self._command("model quantize", {"data": data, "out": out, "device": None} | flags, timeout, None, os.fspath(model))

    def profile(
        self, model: str | os.PathLike[str], data: str | os.PathLike[str], *, timeout: float | None = 1800, **flags: Any
    ) -> dict[str, Any]:
        """Measure the cost of a network at each possible cut, and return the output of ``frostline profile --json``.

        Sizes are in bytes and times in seconds.
        """
        return self._command("profile", {"model": model, "data": data} | flags, timeout, None)

    def train(
        self,
        model: str | os.PathLike[str],
        data: str | os.PathLike[str],
        *,
        out: str | os.PathLike[str] | None = None,
        on_event: Callable[[dict[str, Any]], None] | None = None,
        timeout: float | None = None,
        **flags: Any,
    ) -> dict[str, Any]:
        """Fine-tune a network with ``frostline train`` in a child process, and return the last event, ``done``.

        Ctrl-C writes a checkpoint and the best model so far, and raises ``KeyboardInterrupt``.

        :param out: Additional path for the tuned ONNX model. The model is always written to the run's folder in
            ``runs/``.
        :param on_event: Called with each event as a dictionary, for example ``split``, ``step`` or ``epoch``. The key
            ``event`` contains the kind.
        :param timeout: Time limit in seconds. Defaults to no limit.
        :param flags: Flags of the command, such as ``freeze="layer4.0"``, ``epochs=20`` and ``lr=0.01``. ``True`` sets a
            flag without a value, and a list repeats the flag.
        """
        return self._command("train", {"model": model, "data": data, "out": out} | flags, timeout, on_event)

    def _command(
        self,
        word: str,
        flags: dict[str, Any],
        timeout: float | None,
        on_event: Callable[[dict[str, Any]], None] | None,
        *files: str,
    ) -> dict[str, Any]:
        from ._command import run, words

        self._check_open()
        reach: dict[str, Any] = {"host": self._hosts, "token_file": self._token_file, "ca": self._ca}
        if not self._hosts and self._device != "cpu":
            reach["device"] = self._device
        return run([*word.split(), *files, *words(reach | flags)], secret=self._token, timeout=timeout, on_event=on_event)


def pixels(
    resize: int = 256,
    crop: int | tuple[int, int] = 224,
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406),
    std: tuple[float, float, float] = (0.229, 0.224, 0.225),
    *,
    interpolation: str = "bilinear",
    resize_mode: str = "short",
    fill: tuple[int, int, int] = (0, 0, 0),
    channels: str = "rgb",
) -> str:
    """Return a preprocessing recipe in torchvision's terms, for the ``parameters`` of the stock guest.

    The short side is resized to ``resize`` pixels, the center is cropped, each channel is scaled to 0..1, and ``mean``
    is subtracted before the division by ``std``. For input in -1..1, use 0.5 as ``mean`` and ``std``. For input in
    0..255, use 0 as ``mean`` and 1/255 as ``std``.

    :param resize: Length of the short side in pixels.
    :param crop: Size of the crop in pixels, as a number or (height, width).
    :param mean: Mean of each channel.
    :param std: Standard deviation of each channel.
    :param interpolation: ``nearest``, ``bilinear``, ``bicubic`` or ``lanczos``. All except ``nearest`` are antialiased.
    :param resize_mode: ``short`` preserves the aspect ratio. ``squash`` resizes to the shape of the crop, with a short
        side of ``resize`` pixels. ``pad`` fits the image into this shape and adds borders.
    :param fill: Color of the borders.
    :param channels: ``rgb`` or ``bgr``, the channel order of the input, ``mean`` and ``std``.
    """
    height, width = (crop, crop) if isinstance(crop, int) else crop
    recipe = {"resize": resize, "crop_height": height, "crop_width": width, "mean": list(mean), "std": list(std)}
    said = {"interpolation": interpolation, "resize_mode": resize_mode, "fill": list(fill), "channels": channels}
    usual = {"interpolation": "bilinear", "resize_mode": "short", "fill": [0, 0, 0], "channels": "rgb"}
    return json.dumps(recipe | {name: value for name, value in said.items() if value != usual[name]})


def _url(data: str | os.PathLike[str]) -> str:
    """Make a path absolute, because a host can run in another folder."""
    data = os.fspath(data)
    return data if "://" in data else os.path.abspath(data)


def _content(what: str | os.PathLike[str] | bytes, stem: str) -> tuple[bytes, str]:
    if isinstance(what, bytes):
        return what, stem
    with open(what, "rb") as file:
        return file.read(), os.path.splitext(os.path.basename(what))[0]


def _required(model: str | os.PathLike[str] | bytes | None, cut: str) -> str | os.PathLike[str] | bytes:
    if model is None:
        raise SettingsError(f"the cut {cut!r} requires a model; only 'none' works without one")
    return model


def _resolve_cut(model: str | os.PathLike[str], cut: str) -> str:
    """Resolve the name of a tensor or module to the name of the tensor."""
    if cut in ("none", "input"):
        return cut
    from ._command import run

    shown = run(["model", "show", os.fspath(model)], timeout=600)
    for each in shown.get("cuts", []):
        if cut in (each.get("name"), each.get("module")):
            return str(each["name"])
    return cut


def as_objects(keys: Iterable[Object | str]) -> list[Object]:
    """Return objects for a list that can contain keys."""
    return [key if isinstance(key, Object) else Object(key, None, 0, None, None) for key in keys]


def record_batches(source: Source, listed: list[Object], batch: int) -> pyarrow.RecordBatchReader:
    """Return a reader of the features of objects, as documented for :meth:`Client.extract`."""
    import pyarrow

    shape = source.shape()
    source = dataclasses.replace(source, row=tuple(shape))
    elements = {"u8": pyarrow.uint8(), "i32": pyarrow.int32(), "i64": pyarrow.int64()}
    tensors = source.tensors()
    kinds = [pyarrow.fixed_shape_tensor(elements.get(kind, pyarrow.float32()), dims) for _, kind, dims in tensors or [("", "f32", shape)]]
    names = [f"activation/{name}" for name, *_ in tensors] or ["activation"]
    fields = [
        pyarrow.field("key", pyarrow.string(), nullable=False),
        pyarrow.field("split", pyarrow.string()),
        pyarrow.field("label", pyarrow.string()),
        *(pyarrow.field(name, kind, nullable=False) for name, kind in zip(names, kinds, strict=True)),
    ]
    schema = pyarrow.schema(fields)

    def batches() -> Iterator[pyarrow.RecordBatch]:
        for data, places, _ in source.rows(listed, batch):
            columns = [pyarrow.array([getattr(listed[place], name) for place in places], pyarrow.string()) for name in ("key", "part", "label")]
            rows, start = data.reshape(len(data), math.prod(shape)), 0
            for kind in kinds:
                end = start + math.prod(kind.shape)
                values = pyarrow.array(rows[:, start:end].reshape(-1).astype(kind.value_type.to_pandas_dtype(), copy=False))
                storage = pyarrow.FixedSizeListArray.from_arrays(values, math.prod(kind.shape))
                columns.append(pyarrow.ExtensionArray.from_storage(kind, storage))
                start = end
            yield pyarrow.RecordBatch.from_arrays(columns, schema=schema)

    return pyarrow.RecordBatchReader.from_batches(schema, batches())
