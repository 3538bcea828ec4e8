"""Creates a Python environment with a CPU version of PyTorch, and prints the interpreter's path.

    python3 tests/bench/peers/setup_torch.py [--venv target/torch] [--vision] [--zoo]

Existing environments and interpreters with torch are used unchanged, after a check that needs a few seconds. On Linux x86-64, PyPI's torch is
the CUDA build, and the CUDA libraries would add gigabytes that are not used on CPUs. Therefore torch is installed without these libraries, and
each missing library is replaced by a stub in torch/lib, where all symbols required by torch return "no CUDA device".

Needs pip, gcc and readelf (binutils). Downloads about 550 MB and uses 1.2 GB on disk. `--vision` adds torchvision and the dependencies of
models/zoo/export.py and the S3 scripts (90 MB), `--zoo` also adds timm (3 MB) for models/zoo/classifiers.py, and `--trainers` also adds Ray,
Lightning and transformers (180 MB) for the tests of the Python package.
"""

import argparse
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import venv

TORCH = "torch==2.15.0"
TORCHVISION = "torchvision==0.29.2"
TIMM = ["timm==1.0.31", "pyyaml>=6,<7"]
# Installed without dependencies because torch would require the CUDA packages.
TRAINERS = ["lightning==2.6.6", "pytorch-lightning==2.6.6", "torchmetrics==1.9.0", "lightning-utilities==0.15.3"]
TRAINERS += ["transformers==5.23.0", "accelerate==1.15.0", "torchdata==0.11.0", "peft==0.21.2"]
TRAINER_DEPENDENCIES = ["ray==2.60.0", "pyarrow==26.0.1", "pandas>=2,<4", "pydantic>=2,<3"]
TRAINER_DEPENDENCIES += ["huggingface_hub", "tokenizers", "safetensors", "regex", "tqdm", "psutil", "typer", "mypy==2.4.1"]
VISION_DEPENDENCIES = ["onnx>=1.20,<2", "onnxscript==0.7.2", "onnxruntime==1.31.1", "pillow>=11,<14", "boto3>=1.40,<2"]
PURE_DEPENDENCIES = ["typing_extensions", "sympy", "filelock", "jinja2", "networkx", "fsspec", "numpy", "tqdm"]
REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
# Benchmarks need a convolution with a backward pass, which is a better check than `import torch`.
CHECK = """
import torch
x = torch.randn(2, 3, 8, 8)
layer = torch.nn.Conv2d(3, 4, 3)
layer(x).sum().backward()
assert layer.weight.grad is not None and not torch.cuda.is_available()
print(torch.__version__)
"""
VISION_CHECK = """
import boto3, onnx, onnxruntime, onnxscript, torchvision
torchvision.models.resnet18(weights=None)
"""
TRAINERS_CHECK = """
import lightning, peft, ray.data, ray.train.torch, torchdata, transformers
"""
ZOO_CHECK = """
import timm
"""
CUDA_ERROR_NO_DEVICE = 100
CUDA_NAME = re.compile(r"(cu|nccl|nvrtc|nvshmem|__cuda|nvJitLink)")
TEXT_FUNCTIONS = re.compile(r"(ErrorString|ErrorName|StatusString|cudnnGetErrorString|GetLastErrorString)")


def works(python, check):
    """Returns true if the interpreter passes the check."""
    try:
        return subprocess.run([python, "-c", check], capture_output=True, timeout=300).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def has_torch(python):
    """Returns true if torch is installed. Does not import torch."""
    find = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    return subprocess.run([python, "-c", find], capture_output=True).returncode == 0


def undefined_symbols(library):
    """Yields (name, version or None) for each undefined symbol in the library."""
    table = subprocess.run(["readelf", "-W", "--dyn-syms", library], capture_output=True, text=True, check=True).stdout
    for line in table.splitlines():
        columns = line.split()
        if len(columns) >= 8 and columns[6] == "UND":
            name, _, version = columns[7].partition("@")
            yield name, version.lstrip("@") or None


def missing_libraries(libraries):
    """Returns the names of required libraries that are missing in torch/lib and on the system."""
    missing = set()
    for library in libraries:
        loaded = subprocess.run(["ldd", library], capture_output=True, text=True).stdout
        missing.update(re.findall(r"(\S+) => not found", loaded))
    return sorted(missing)


def version_owners(library):
    """Maps symbol versions required by the library to library names."""
    section = subprocess.run(["readelf", "-W", "-V", library], capture_output=True, text=True, check=True).stdout
    owners = {}
    soname = None
    for line in section.splitlines():
        if file := re.search(r"Version: 1\s+File: (\S+)", line):
            soname = file.group(1)
        elif soname and (name := re.search(r"Name: (\S+)\s+Flags", line)):
            owners[name.group(1)] = soname
    return owners


def build_stub(folder, soname, symbols):
    """Compiles a stub library from (name, version or None). Functions return "no device", or a string if torch expects a string."""
    functions = ['.section .rodata', 'text: .asciz "stub: this torch runs on the CPU only"', ".text"]
    versions = {}
    for symbol, version in sorted(symbols, key=str):
        body = "lea text(%rip), %rax" if TEXT_FUNCTIONS.search(symbol) else f"mov ${CUDA_ERROR_NO_DEVICE}, %eax"
        functions += [f".globl {symbol}", f".type {symbol}, @function", f"{symbol}: {body}", "ret"]
        versions.setdefault(version, []).append(symbol)
    functions.append('.section .note.GNU-stack,"",@progbits')
    script = "".join(f"{version} {{ global: {'; '.join(names)}; }};\n" for version, names in versions.items() if version)
    with tempfile.TemporaryDirectory() as temporary:
        source = pathlib.Path(temporary, "stub.s")
        source.write_text("\n".join(functions) + "\n")
        command = ["gcc", "-shared", "-nostdlib", f"-Wl,-soname,{soname}", "-o", str(folder / soname), str(source)]
        if script:
            version_script = pathlib.Path(temporary, "versions")
            version_script.write_text(script)
            command.append(f"-Wl,--version-script,{version_script}")
        subprocess.run(command, check=True)


def stub_cuda(torch_lib):
    """Creates a stub in torch/lib for each missing CUDA library. Returns the names of the stubs."""
    libraries = [str(path) for path in torch_lib.glob("*.so*")]
    stubs = {soname: set() for soname in missing_libraries(libraries)}
    if not stubs:
        return []
    anonymous = set()
    for library in libraries:
        owners = version_owners(library)
        for name, version in undefined_symbols(library):
            owner = owners.get(version)
            if owner in stubs:
                stubs[owner].add((name, version))
            elif version is None and CUDA_NAME.match(name):
                anonymous.add((name, None))
    for soname, symbols in stubs.items():
        # Symbols without a version may belong to any library, so all stubs without versioned symbols contain them.
        build_stub(torch_lib, soname, symbols or anonymous)
    return sorted(stubs)


def pip_install(python, arguments):
    """Runs pip. Output is printed only on failure because pip warns about the omitted CUDA packages."""
    command = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", *arguments]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode != 0:
        sys.exit(f"pip install {' '.join(arguments)} failed:\n{result.stdout[-3000:]}")


def install_torch(environment):
    """Creates the environment and installs torch. Returns the interpreter's path."""
    python = str(environment / "bin" / "python")
    if not pathlib.Path(python).exists():
        venv.create(environment, with_pip=True, system_site_packages=True)
    is_cuda_build = sys.platform == "linux" and platform.machine() == "x86_64"
    if not is_cuda_build:
        pip_install(python, [TORCH, "numpy"])
        return python
    pip_install(python, PURE_DEPENDENCIES)
    if not has_torch(python):
        pip_install(python, ["--no-deps", TORCH])
    torch_lib = next(environment.glob("lib/python*/site-packages/torch/lib"), None)
    if torch_lib and (names := stub_cuda(torch_lib)):
        print(f"{len(names)} CUDA libraries replaced by stubs: {', '.join(names)}", file=sys.stderr)
    return python


def install_vision(python):
    """Installs torchvision without dependencies, which would include the CUDA packages."""
    pip_install(python, VISION_DEPENDENCIES)
    pip_install(python, ["--no-deps", TORCHVISION])


def install_zoo(python):
    """Installs timm without the dependencies for downloading weights."""
    name, yaml = TIMM
    pip_install(python, [yaml])
    pip_install(python, ["--no-deps", name])


def install_trainers(python):
    """Installs Ray, Lightning and transformers."""
    pip_install(python, TRAINER_DEPENDENCIES)
    pip_install(python, ["--no-deps", *TRAINERS])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venv", type=pathlib.Path, default=REPOSITORY / "target" / "torch")
    parser.add_argument("--vision", action="store_true", help="also install torchvision, onnx and boto3")
    parser.add_argument("--zoo", action="store_true", help="like --vision, and timm")
    parser.add_argument("--trainers", action="store_true", help="like --vision, and Ray, Lightning and transformers")
    arguments = parser.parse_args()
    environment = arguments.venv.resolve()
    vision = arguments.vision or arguments.zoo or arguments.trainers
    check = CHECK + (VISION_CHECK if vision else "") + (ZOO_CHECK if arguments.zoo else "") + (TRAINERS_CHECK if arguments.trainers else "")
    made_earlier = str(environment / "bin" / "python")
    for python in (made_earlier, sys.executable):
        if works(python, check):
            print(python)
            return
    print(f"installing {TORCH}{' and ' + TORCHVISION if vision else ''} into {environment}", file=sys.stderr)
    python = install_torch(environment)
    if vision:
        install_vision(python)
    if arguments.zoo:
        install_zoo(python)
    if arguments.trainers:
        install_trainers(python)
    if not works(python, check):
        result = subprocess.run([python, "-c", check], capture_output=True, text=True)
        sys.exit(f"torch in {environment} does not work: {result.stderr.strip()[-2000:]}\nremove the folder and try again")
    print(python)


if __name__ == "__main__":
    main()
