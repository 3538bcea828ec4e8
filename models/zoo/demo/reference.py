"""Computes the expected accuracy of the demo without Frostline, with ONNX Runtime, Pillow and NumPy.

    python3 models/zoo/demo/reference.py [--model backbone.onnx] [--data photos] [--cut features] [--epochs 20] [--lr 0.05]

Extracts the frozen features once and trains a linear head with SGD and momentum 0.9. Prints a line of JSON with the validation accuracy
before and after training. The values are means over `--seeds` initial heads.
"""

import argparse
import json
import pathlib
import sys

import numpy
import onnx
import onnxruntime

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import pixels  # noqa: E402


def open_at(model_path, cut):
    """Opens a session with the tensor `cut` as the only output."""
    model = onnx.load(model_path)
    del model.graph.output[:]
    model.graph.output.add().name = cut
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def extract(session, data, split):
    """Returns the features f32[n, features], the labels and the class names."""
    paths, labels, classes = pixels.list_split(data, split)
    rows = pixels.run(session, paths, pixels.spec_of(session))
    return rows.reshape(len(paths), -1), labels, classes


def train_head(features, labels, classes, arguments, generator):
    """Trains with SGD and momentum on the cross-entropy. Returns weights and bias before and after training."""
    bound = 1.0 / numpy.sqrt(features.shape[1])
    state = [generator.uniform(-bound, bound, shape) for shape in ((classes, features.shape[1]), (classes,))]
    before = [array.copy() for array in state]
    velocity = [numpy.zeros_like(array) for array in state]
    for _ in range(arguments.epochs):
        order = generator.permutation(len(labels))
        for start in range(0, len(order), arguments.batch):
            chosen = order[start : start + arguments.batch]
            gradients = head_gradients(state, features[chosen], labels[chosen])
            for array, speed, gradient in zip(state, velocity, gradients):
                speed *= arguments.momentum
                speed += gradient
                array -= arguments.lr * speed
    return before, state


def head_gradients(state, x, y):
    logits = x @ state[0].T + state[1]
    logits -= logits.max(axis=1, keepdims=True)
    error = numpy.exp(logits)
    error /= error.sum(axis=1, keepdims=True)
    error[numpy.arange(len(y)), y] -= 1.0
    error /= len(y)
    return error.T @ x, error.sum(axis=0)


def accuracy(state, features, labels):
    return float(((features @ state[0].T + state[1]).argmax(axis=1) == labels).mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(HERE / "backbone.onnx"))
    parser.add_argument("--data", default=str(HERE / "photos"))
    parser.add_argument("--cut", default="features")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    session = open_at(arguments.model, arguments.cut)
    features, labels, classes = extract(session, arguments.data, "train")
    held_out, held_out_labels, _ = extract(session, arguments.data, "validation")
    before, after = [], []
    for seed in range(arguments.seeds):
        states = train_head(features, labels, len(classes), arguments, numpy.random.default_rng(seed))
        for state, accuracies in zip(states, (before, after)):
            accuracies.append(accuracy(state, held_out, held_out_labels))
    result = {"before": numpy.mean(before), "after": numpy.mean(after), "worst_after": min(after), "best_after": max(after)}
    print(json.dumps({name: round(float(value), 4) for name, value in result.items()} | {"samples": len(held_out_labels)}))


if __name__ == "__main__":
    main()
