"""Hosts, with the words of the command."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _native
from ._errors import SettingsError

if TYPE_CHECKING:
    import pyarrow

    from ._source import Source

PathLike = "str | os.PathLike[str]"


class Object(NamedTuple):
    """A sample under a data root."""

    key: str
    """Its key, relative to the root."""
    etag: str | None
    """The version that is meant; a read of another one fails."""
    size: int
    """Bytes."""
    label: str | None
    """Its class, by its shard or the folder it lies in."""
    part: str | None
    """``train``, ``validation`` or ``test``, where its folder or shard is called so."""


class Upload(NamedTuple):
    """A model or a guest on the hosts."""

    name: str
    """What it is called there."""
    sha256: str
    """Of its bytes, lower-case hex."""
    bytes: int
    """Their number."""
    skipped: bool
    """Whether all hosts had it, so that nothing was sent."""


class Client:
    """One or more hosts that serve the same data, as a tenant uses them.

    Without ``hosts`` a host is started on this machine when it is first needed, one for each data root; it ends with this process.
    Holds settings and nothing else: it may be pickled, and used after a fork. Every call may raise :class:`frostline.Error`.

    :param hosts: addresses, such as ``["https://store-1:8443"]``; each object is read at one of them, and when one fails the others
        do its work.
    :param token: the token for them; it is shown nowhere, but travels where this object is pickled.
    :param token_file: a file with it instead, which is read again when a host refuses it.
    :param ca: a file with the certificates, in PEM, that they are to be trusted by; by default those the system trusts.
    :param device: where a host that is started here computes: ``cpu`` or ``cuda:0``.
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
            raise SettingsError("token and token_file are both given; one of them is enough")
        self._hosts = [hosts] if isinstance(hosts, str) else list(hosts or [])
        if not self._hosts and (token or token_file or ca):
            raise SettingsError("token, token_file and ca are for hosts, and none is given")
        self._token = token
        self._token_file = None if token_file is None else os.fspath(token_file)
        self._ca = None if ca is None else os.fspath(ca)
        self._device = device
        self._native: dict[str, _native.Hosts] = {}

    def __repr__(self) -> str:
        return f"frostline.Client({self._hosts or 'embedded'})"

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_native": {}}

    def config(self, data: str | os.PathLike[str]) -> dict[str, Any]:
        """How ``data`` is reached, as plain settings for other processes: starts a host here where none is given.

        Forked and spawned workers that get it use the same host. It holds the token.
        """
        data = _url(data)
        reach = {"hosts": self._hosts, "token": self._token, "token_file": self._token_file, "ca": self._ca}
        if not self._hosts:
            from ._host import embedded

            host = embedded(data, self._device)
            reach |= {"hosts": [host.url], "token_file": host.token_file, "embedded": True}
        return reach | {"data": data}

    def _reach(self, data: str | os.PathLike[str] | None) -> _native.Hosts:
        if data is None and not self._hosts:
            raise SettingsError("without hosts, data is needed: it says which of the hosts on this machine is meant")
        config = self.config(data or "")
        key = json.dumps(config["hosts"])
        del config["data"]
        return self._native.setdefault(key, _native.Hosts(config))

    def objects(self, data: str | os.PathLike[str], layout: str = "auto") -> list[Object]:
        """The samples under a data root, ascending by key: images by their names, hidden ones left out.

        :param data: a path, ``s3://bucket/prefix``, ``gs://``, ``az://`` or ``https://``.
        :param layout: ``auto``, ``objects`` or ``shards`` (tar archives).
        """
        return [Object(*each) for each in self._reach(data).objects(_url(data), layout)]

    def push_model(
        self,
        model: str | os.PathLike[str] | bytes,
        name: str | None = None,
        *,
        data: str | os.PathLike[str] | None = None,
    ) -> Upload:
        """Uploads a network, an ONNX file or its bytes, to every host that has it not.

        :param name: what to call it there; by default the file's name and the first digits of its hash.
        :param data: which host on this machine is meant, where no hosts are given.
        """
        content, stem = _content(model, "model")
        return Upload(*self._reach(data).push({"guest": False, "stem": stem, "name": name}, content))

    def push_guest(
        self,
        guest: str | os.PathLike[str] | bytes | None = None,
        name: str | None = None,
        *,
        data: str | os.PathLike[str] | None = None,
    ) -> Upload:
        """Uploads a guest (a component or core module), by default the stock one, to every host that has it not."""
        hosts = self._reach(data)
        if guest is None:
            return Upload(*hosts.push_stock_guest(name))
        content, stem = _content(guest, "guest")
        return Upload(*hosts.push({"guest": True, "stem": stem, "name": name}, content))

    def load(self, data: str | os.PathLike[str] | None = None) -> dict[str, dict[str, Any]]:
        """How busy each host is, by its address: ``queued`` and ``running`` extractions, ``lanes``, ``samples_per_second``,
        and what falls to this tenant. Of a host that does not answer, ``{"error": text}``."""
        answers = self._reach(data).load()
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
        **options: Any,
    ) -> pyarrow.RecordBatchReader:
        """Activations of samples at a cut, as a reader of record batches of at most ``batch`` rows, in the order asked for.

        Columns: ``key`` (string), ``split`` (``train``, ``validation``, ``test`` or null), ``label`` (string or null: its class), ``activation`` (fixed-shape tensor of float32, of the shape
        that one sample has at the cut: ``tensor.to_numpy_ndarray()`` is ``[rows, *shape]``). Rows are never null. Whoever reads to the
        end has all of them: where something fails, the reader raises.

        :param model: an ONNX file, its bytes, or what :meth:`push_model` returned; ``None`` at the cut ``none``.
        :param cut: the tensor's name, or the module's as ``frostline model show`` lists it; ``input`` for normalized pixels made on
            the hosts, ``none`` for the same made here.
        :param keys: which samples; by default all under ``data``.
        :param guest: another guest than the stock one.
        :param parameters: what the guest is told; for the stock one :func:`frostline.pixels`, by default what the model's metadata says, else
            ImageNet's.
        :param encoding: how rows travel: ``f32``, ``f16`` or ``int8``, each with ``+lz4`` or ``+zstd``.
        :param on_bad_sample: ``fail`` raises :class:`frostline.BadSample`, ``skip`` leaves it out.
        :param feature_cache: disk that rows may take to be kept on this machine for the next call, in bytes or as ``"4GiB"``; ``None`` for half
            of what it has free, as ``frostline train`` has it.
        :param options: others of :class:`frostline._native.Stream`, such as ``priority``, ``ahead``, ``fixed_batch``.
        """
        if on_bad_sample not in ("fail", "skip"):
            raise SettingsError(f"on_bad_sample is 'fail' or 'skip', not {on_bad_sample!r}")
        from . import _source

        listed = self.objects(data, layout) if keys is None else [_object(key) for key in keys]
        config = self.config(data)
        network = None
        if cut != "none" or model is not None:
            pushed = model if isinstance(model, Upload) else self.push_model(_given(model, cut), data=data)
            helper = guest if isinstance(guest, Upload) else self.push_guest(guest, data=data)
            config |= {"model": (pushed.name, pushed.sha256), "guest": (helper.name, helper.sha256)}
            if isinstance(model, (str, os.PathLike)):
                config["model_file"] = os.path.abspath(model)
                cut = _tensor(model, cut)
            network = model
            if not parameters and guest is None and not isinstance(model, Upload):
                # As `frostline extract`: a tuned model says how its input is made.
                _, parameters = _native.layers(_given(model, cut), "input")
                if not parameters:
                    raise SettingsError("the stock guest cannot make this network's input: pass guest=, or parameters=")
        stream = config | options | {"parameters": parameters, "encoding": encoding}
        kept = _source.kept(feature_cache, network, cut, len(listed), stock=guest is None)
        return _reader(_source.Source(stream, cut, on_bad_sample=on_bad_sample, kept=kept), listed, batch)

    def plan(self, model: str | os.PathLike[str], data: str | os.PathLike[str], *, timeout: float | None = 1800, **flags: Any) -> dict[str, Any]:
        """Where a job would divide the network, and why: what ``frostline plan --json`` prints. Measures unless that was done before.

        :param timeout: seconds it may take.
        :param flags: the command's, such as ``freeze="layer4.0"``, ``batch=64``; ``True`` gives a flag without a value, a list repeats it.
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
        """Quantizes a network's layers up to a cut to int8; returns what ``frostline model quantize --json`` prints.

        :param out: the ONNX file to write.
        :param timeout: seconds it may take.
        :param flags: the command's, such as ``freeze="layer4.0"``, ``prefix_precision="auto"``, ``allow_imprecise=True``.
        """
        return self._command("model quantize", {"data": data, "out": out, "device": None} | flags, timeout, None, os.fspath(model))

    def profile(
        self, model: str | os.PathLike[str], data: str | os.PathLike[str], *, timeout: float | None = 1800, **flags: Any
    ) -> dict[str, Any]:
        """What a network takes at each place it could be divided: what ``frostline profile --json`` prints (bytes, seconds)."""
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
        """Fine-tunes a network as ``frostline train`` does, in a process of its own; returns its last event, ``done``.

        Ctrl-C leaves a checkpoint and the best model so far, and raises ``KeyboardInterrupt``.

        :param out: where to write the tuned ONNX model; it lies in the run's folder, ``runs/``, in any case.
        :param on_event: gets each event as a dictionary as it comes: ``split``, ``step``, ``epoch`` and others, by its ``event``.
        :param timeout: seconds it may take; by default as long as the job does.
        :param flags: the command's, such as ``freeze="layer4.0"``, ``epochs=20``, ``lr=0.01``; ``True`` gives a flag without a value, a
            list repeats it.
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
    """How an image becomes a network's input, in torchvision's terms, as the stock guest is told (``parameters``): the short side is
    resized to ``resize`` pixels, the center cropped to ``crop`` (height, width), each channel scaled to 0..1, less ``mean``, divided by ``std``.

    ``interpolation``: ``nearest``, ``bilinear``, ``bicubic`` or ``lanczos``, all but the first antialiased. ``resize_mode``: ``short``; ``squash``
    to the crop's shape, with ``resize`` as its short side; ``pad`` into that shape, with ``fill`` around. ``channels``: ``rgb`` or ``bgr``, the
    order of ``mean`` and ``std``. A network for -1..1 has 0.5 as ``mean`` and ``std``, one for 0..255 has 1/255 as ``std``."""
    height, width = (crop, crop) if isinstance(crop, int) else crop
    recipe = {"resize": resize, "crop_height": height, "crop_width": width, "mean": list(mean), "std": list(std)}
    said = {"interpolation": interpolation, "resize_mode": resize_mode, "fill": list(fill), "channels": channels}
    usual = {"interpolation": "bilinear", "resize_mode": "short", "fill": [0, 0, 0], "channels": "rgb"}
    return json.dumps(recipe | {name: value for name, value in said.items() if value != usual[name]})


def _url(data: str | os.PathLike[str]) -> str:
    """As a host is to open it, which may run in another folder."""
    data = os.fspath(data)
    return data if "://" in data else os.path.abspath(data)


def _content(what: str | os.PathLike[str] | bytes, stem: str) -> tuple[bytes, str]:
    if isinstance(what, bytes):
        return what, stem
    with open(what, "rb") as file:
        return file.read(), os.path.splitext(os.path.basename(what))[0]


def _given(model: str | os.PathLike[str] | bytes | None, cut: str) -> str | os.PathLike[str] | bytes:
    if model is None:
        raise SettingsError(f"the cut {cut!r} needs a model; only at 'none' there is none")
    return model


def _tensor(model: str | os.PathLike[str], cut: str) -> str:
    """The tensor that a module's output is, where a cut is named by its module."""
    if cut in ("none", "input"):
        return cut
    from ._command import run

    shown = run(["model", "show", os.fspath(model)], timeout=600)
    for each in shown.get("cuts", []):
        if cut in (each.get("name"), each.get("module")):
            return str(each["name"])
    return cut


def _object(key: Object | str) -> Object:
    return key if isinstance(key, Object) else Object(key, None, 0, None, None)


def _reader(source: Source, listed: list[Object], batch: int) -> pyarrow.RecordBatchReader:
    import pyarrow

    shape = source.shape()
    source = dataclasses.replace(source, row=tuple(shape))
    kind = pyarrow.fixed_shape_tensor(pyarrow.float32(), shape)
    fields = [
        pyarrow.field("key", pyarrow.string(), nullable=False),
        pyarrow.field("split", pyarrow.string()),
        pyarrow.field("label", pyarrow.string()),
        pyarrow.field("activation", kind, nullable=False),
    ]
    schema = pyarrow.schema(fields)

    def batches() -> Iterator[pyarrow.RecordBatch]:
        for data, places, _ in source.rows(listed, batch):
            values = pyarrow.array(data.reshape(-1))
            storage = pyarrow.FixedSizeListArray.from_arrays(values, data.size // len(data)) if len(data) else pyarrow.array([], kind.storage_type)
            columns = [pyarrow.array([getattr(listed[place], name) for place in places], pyarrow.string()) for name in ("key", "part", "label")]
            columns.append(pyarrow.ExtensionArray.from_storage(kind, storage))
            yield pyarrow.RecordBatch.from_arrays(columns, schema=schema)

    return pyarrow.RecordBatchReader.from_batches(schema, batches())
