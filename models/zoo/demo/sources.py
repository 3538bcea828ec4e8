"""Photographs used by the demo, with their source, license and regions.

The photographs are part of the Python packages scikit-image and scikit-learn. `load` downloads the package's wheel once with pip to
target/zoo and verifies the SHA-256 of the photograph. All photographs are CC0, public domain or CC BY.
"""

import dataclasses
import hashlib
import io
import pathlib
import subprocess
import sys
import zipfile

from PIL import Image

CACHE = pathlib.Path(__file__).resolve().parents[3] / "target" / "zoo"


@dataclasses.dataclass(frozen=True)
class Photograph:
    """Photograph in the wheel of a package."""

    package: str
    path: str
    sha256: str


def scikit_image(file, sha256):
    return Photograph("scikit-image", f"skimage/data/{file}", sha256)


def scikit_learn(file, sha256):
    return Photograph("scikit-learn", f"sklearn/datasets/images/{file}", sha256)


PHOTOGRAPHS = {
    "astronaut": scikit_image("astronaut.png", "88431cd9653ccd539741b555fb0a46b61558b301d4110412b5bc28b5e3ea6cb5"),
    "brick": scikit_image("brick.png", "7966caf324f6ba843118d98f7a07746d22f6a343430add0233eca5f6eaaa8fcf"),
    "camera": scikit_image("camera.png", "b0793d2adda0fa6ae899c03989482bff9a42d3d5690fc7e3648f2795d730c23a"),
    "cat": scikit_image("chelsea.png", "596aa1e7cb875eb79f437e310381d26b338a81c2da23439704a73c4651e8c4bb"),
    "cell": scikit_image("cell.png", "8d23a7fb81f7cc877cd09f330357fc7f595651306e84e17252f6e0a1b3f61515"),
    "coffee": scikit_image("coffee.png", "cc02f8ca188b167c775a7101b5d767d1e71792cf762c33d6fa15a4599b5a8de7"),
    "flower": scikit_learn("flower.jpg", "a77f6ec41e353afdf8bdff2ea981b2955535d8d83294f8cfa49cf4e423dd5638"),
    "grass": scikit_image("grass.png", "b6b6022426b38936c43a4ac09635cd78af074e90f42ffa8227ac8b7452d39f89"),
    "gravel": scikit_image("gravel.png", "c48615b451bf1e606fbd72c0aa9f8cc0f068ab7111ef7d93bb9b0f2586440c12"),
    "pagoda": scikit_learn("china.jpg", "8378025ad2519d649d02e32bd98990db4ab572357d9f09841c2fbfbb4fefad29"),
    "retina": scikit_image("retina.jpg", "38a07f36f27f095e818aea7b96d34202c05176d30253c66733f2e00379e9e0e6"),
    "rocket": scikit_image("rocket.jpg", "c2dd0de7c538df8d111e479619b129464d0269d0ae5fd18ca91d33a7fdfea95c"),
    "stars": scikit_image("hubble_deep_field.jpg", "3a19c5dd8a927a9334bb1229a6d63711b1c0c767fb27e2286e7c84a3e2c2f5f4"),
}

# Photographs for pretraining the backbone. They are not used for the demo's photos.
PRETRAINING = ["astronaut", "camera", "cell", "pagoda", "rocket"]

# class -> (left, top, right, bottom) in the source for training and for validation. The regions are disjoint, with a margin in between.
TASK = {
    "brick": ((0, 0, 512, 310), (0, 326, 512, 512)),
    "cat": ((20, 0, 240, 300), (252, 0, 400, 300)),
    "coffee": ((0, 0, 296, 400), (312, 0, 600, 400)),
    "flower": ((160, 80, 302, 365), (314, 80, 456, 365)),
    "grass": ((0, 0, 512, 310), (0, 326, 512, 512)),
    "gravel": ((0, 0, 512, 310), (0, 326, 512, 512)),
    "retina": ((230, 270, 690, 1140), (720, 270, 1180, 1140)),
    "stars": ((0, 0, 600, 872), (624, 0, 1000, 872)),
}


def wheel(package):
    """Returns the path of the package's wheel, which is downloaded if necessary."""
    pattern = f"{package.replace('-', '_')}-*.whl"
    if not list(CACHE.glob(pattern)):
        CACHE.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "-d", str(CACHE), package]
        subprocess.run(command, check=True)
    return next(CACHE.glob(pattern))


def load(name):
    """Returns the photograph as an RGB image."""
    photograph = PHOTOGRAPHS[name]
    with zipfile.ZipFile(wheel(photograph.package)) as archive:
        data = archive.read(photograph.path)
    digest = hashlib.sha256(data).hexdigest()
    if digest != photograph.sha256:
        expected = f"{photograph.path} of {photograph.package} should have SHA-256 {photograph.sha256}"
        sys.exit(f"{expected}, but it has {digest}; the photograph changed: check its license and update sources.py")
    return Image.open(io.BytesIO(data)).convert("RGB")
