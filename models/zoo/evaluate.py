"""Computes the accuracy of an ONNX classifier on photos with Python's ONNX Runtime and Pillow, independently of Frostline's code.

    python3 models/zoo/evaluate.py --model tuned.onnx --data FOLDER [--split validation]

Photos are read from FOLDER/<split>/<class>/*.jpg. The outputs are the classes, sorted by name. The pixel spec is the model's metadata
`frostline.pixels`, by default ImageNet's for 224 x 224. Prints a line of JSON with accuracy, samples and correct.
"""

import argparse
import json
import sys

import numpy
import onnxruntime

import pixels


def open_session(model):
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def evaluate(model, data, split):
    """Returns the numbers of correct predictions and of samples."""
    session = open_session(model)
    paths, labels, classes = pixels.list_split(data, split)
    if not paths:
        sys.exit(f"no photos in {data}/{split}/<class>/")
    scores = pixels.run(session, paths, pixels.spec_of(session)).reshape(len(paths), -1)
    if scores.shape[1] != len(classes):
        sys.exit(f"{model} has {scores.shape[1]} outputs, but {data}/{split} has {len(classes)} classes")
    return int((scores.argmax(axis=1) == labels).sum()), len(paths)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--split", default="validation")
    arguments = parser.parse_args()
    correct, samples = evaluate(arguments.model, arguments.data, arguments.split)
    print(json.dumps({"accuracy": correct / samples, "samples": samples, "correct": correct}))


if __name__ == "__main__":
    main()
