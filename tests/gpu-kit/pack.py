"""Packs the GPU kit as an archive in parts of limited size, for machines that accept only small transfers.

    python3 pack.py --out target/gpu-kit --file bin/frostline=target/release/frostline --source . [--photos DIR] [--arch 90]

Called by `cargo xtask gpu-kit`. In ONNX Runtime's CUDA provider, GPU code for architectures other than `--arch` is replaced by zeros. This
reduces the compressed size from 284 to 50 MB.
"""

import argparse
import io
import lzma
import pathlib
import shutil
import struct
import subprocess
import tarfile

PROVIDER = "libonnxruntime_providers_cuda.so"
# Folders with scripts that the benchmark runs.
SOURCES = ["models/zoo", "tests/bench/peers"]
FAT_BINARY = struct.pack("<I", 0xBA55ED50)
GPU_CODE = 2


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--file", action="append", default=[], metavar="NAME=PATH", help="file to pack, with its path in the kit")
    parser.add_argument("--source", type=pathlib.Path, required=True, help="root of the repository")
    parser.add_argument("--photos", type=pathlib.Path, help="folder with a subfolder of photos per class [default: the photos of the demo]")
    parser.add_argument("--arch", type=int, default=90, help="compute capability, such as 90 for Hopper; 0 keeps all GPU code")
    parser.add_argument("--preset", type=int, default=3, help="preset of xz, from 0 (fast) to 9 (small)")
    parser.add_argument("--part-mib", type=int, default=50)
    return parser.parse_args()


def pruned(library, arch):
    """Replaces GPU code for other architectures by zeros. A container has entries. The header of an entry contains the kind, the size of
    the header, the size of the payload, and the architecture at byte 28."""
    data = bytearray(library)
    start = 0
    while (start := data.find(FAT_BINARY, start)) >= 0:
        _, version, header, size = struct.unpack_from("<IHHQ", data, start)
        if (version, header) != (1, 16):
            start += len(FAT_BINARY)
            continue
        entry, end = start + header, start + header + size
        while entry < end:
            kind, _, header, payload = struct.unpack_from("<HHIQ", data, entry)
            (found,) = struct.unpack_from("<I", data, entry + 28)
            if kind == GPU_CODE and found != arch:
                data[entry + header : entry + header + payload] = bytes(payload)
            entry += header + payload
        start = end
    return bytes(data)


def content(path, arch):
    if path.name == PROVIDER and arch:
        return pruned(path.read_bytes(), arch)
    return path.read_bytes()


def add(archive, name, data):
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), 0o755
    archive.addfile(info, io.BytesIO(data))


def tracked(repository):
    """Lists the committed files in SOURCES."""
    listed = subprocess.run(["git", "ls-files", "-z", *SOURCES], cwd=repository, capture_output=True, check=True)
    return [name.decode() for name in listed.stdout.split(b"\0") if name]


def main():
    arguments = parse_arguments()
    shutil.rmtree(arguments.out, ignore_errors=True)
    arguments.out.mkdir(parents=True)
    whole = io.BytesIO()
    with lzma.open(whole, "wb", preset=arguments.preset) as packed, tarfile.open(fileobj=packed, mode="w|") as archive:
        for file in arguments.file:
            name, path = file.split("=", 1)
            add(archive, name, content(pathlib.Path(path), arguments.arch))
        for name in tracked(arguments.source):
            add(archive, f"source/{name}", (arguments.source / name).read_bytes())
        photos = arguments.photos or arguments.source / "models/zoo/demo/photos/train"
        for photo in sorted(path for path in photos.rglob("*") if path.is_file()):
            add(archive, f"photos/{photo.relative_to(photos)}", photo.read_bytes())
    data, size = whole.getvalue(), arguments.part_mib << 20
    for index, start in enumerate(range(0, len(data), size)):
        part = arguments.out / f"part-{index}" / f"kit.tar.xz.{index:02}"
        part.parent.mkdir()
        part.write_bytes(data[start : start + size])
    shutil.copy(arguments.source / "tests/gpu-kit/run.py", arguments.out / "run.py")
    print(f"{len(data) / 1e6:.0f} MB in {index + 1} parts: {arguments.out}/part-*")


if __name__ == "__main__":
    main()
