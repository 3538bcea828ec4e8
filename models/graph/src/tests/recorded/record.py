"""Exports the first layers of two networks of Keras with tf2onnx, for `normalization.rs`.

    python3 models/graph/src/tests/recorded/record.py

Both networks take pixels from 0 to 255 and normalize them. All other weights are random: nothing is downloaded. Needs tensorflow and tf2onnx.
"""

import pathlib
import subprocess
import sys
import tempfile

import keras
import numpy
import onnx
from keras.src.applications import efficientnet
from keras.src.models import Functional

FOLDER = pathlib.Path(__file__).parent
SIZE = 32
MEAN, STD = numpy.float32((0.485, 0.456, 0.406)), numpy.float32((0.229, 0.224, 0.225))


def efficientnet_b0():
    """EfficientNetB0 as with ImageNet's weights, for which Keras adds a layer that divides by the root of the standard deviation."""
    efficientnet.file_utils.get_file = lambda *_, **__: "not downloaded"
    Functional.load_weights = lambda *_, **__: None
    network = keras.applications.EfficientNetB0(weights="imagenet", include_top=False, input_shape=(SIZE, SIZE, 3))
    layer = network.get_layer(index=2)
    layer.set_weights([MEAN, STD**2, numpy.int64(0)])
    layer.finalize_state()
    return network, "stem_conv"


def mobilenet_v3():
    return keras.applications.MobileNetV3Small(weights=None, include_top=False, input_shape=(SIZE, SIZE, 3)), "conv"


def export(name, network, last):
    """Export the layers up to `last`, with the usual layout of ONNX."""
    images = keras.Input((SIZE, SIZE, 3), name="images")
    first = keras.Model(network.inputs, network.get_layer(last).output)
    model = keras.Model(images, keras.layers.GlobalAveragePooling2D()(first(images)))
    path = FOLDER / f"{name}.onnx"
    with tempfile.TemporaryDirectory() as saved:
        model.export(saved, verbose=False)
        words = ["--saved-model", saved, "--output", path, "--opset", "17", "--inputs-as-nchw", "images"]
        subprocess.run([sys.executable, "-m", "tf2onnx.convert", *words], check=True)
    exported = onnx.load(path)
    exported.graph.doc_string = ""  # names the temporary folder
    onnx.save(exported, path)


if __name__ == "__main__":
    export("efficientnet", *efficientnet_b0())
    export("mobilenet", *mobilenet_v3())
