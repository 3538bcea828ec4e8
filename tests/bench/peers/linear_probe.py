"""Validation accuracy that a head on frozen features reaches, by ONNX Runtime, Pillow and NumPy: what `frostline train` should match.

    python3 tests/bench/peers/linear_probe.py --model squeezenet1_1_pooled.onnx --cut features --data clothing
    python3 tests/bench/peers/linear_probe.py --model squeezenet1_1.onnx --cut 52 --data clothing --lr 0.03

A cut of one vector per photo gets a linear head; a cut [channels, height, width] gets SqueezeNet's: a 1x1 convolution, ReLU, global average
pool. SGD with momentum on the cross-entropy, the photos shuffled each epoch. Prints one line of JSON with the accuracy after the last epoch for
each seed. Activations are kept in `--cache FILE.npz` when asked.
"""

import argparse
import json
import pathlib
import sys

import numpy
import onnx
import onnxruntime

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "models" / "zoo"))
import pixels  # noqa: E402


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--cut", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--weight-decay", type=float, default=0.0)
    parser.add_argument("--initial", choices=("uniform", "normal", "zero"), default="uniform")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--cache", type=pathlib.Path)
    return parser.parse_args()


def extract(model_path, cut, data):
    """Activations at the cut and labels of both splits."""
    model = onnx.load(model_path)
    del model.graph.output[:]
    model.graph.output.add().name = cut
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    arrays = {}
    for split in ("train", "validation"):
        paths, labels, _ = pixels.list_split(data, split)
        arrays[split] = pixels.run(session, paths, pixels.spec_of(session))
        arrays[f"{split}_labels"] = labels
    return arrays


def load_or_extract(arguments):
    if arguments.cache and arguments.cache.exists():
        return dict(numpy.load(arguments.cache))
    arrays = extract(arguments.model, arguments.cut, arguments.data)
    if arguments.cache:
        numpy.savez(arguments.cache, **arrays)
    return arrays


def initial_head(kind, classes, channels, generator):
    """[weights, bias]: PyTorch's default for a linear layer, SqueezeNet's normal of 0.01, or zero."""
    shapes = ((classes, channels), (classes,))
    if kind == "zero":
        return [numpy.zeros(shape, numpy.float32) for shape in shapes]
    if kind == "normal":
        return [generator.normal(0.0, 0.01, shapes[0]).astype(numpy.float32), numpy.zeros(shapes[1], numpy.float32)]
    bound = 1.0 / numpy.sqrt(channels)
    return [generator.uniform(-bound, bound, shape).astype(numpy.float32) for shape in shapes]


def softmax_error(logits, labels):
    """Gradient of the mean cross-entropy with respect to the logits."""
    error = numpy.exp(logits - logits.max(axis=1, keepdims=True))
    error /= error.sum(axis=1, keepdims=True)
    error[numpy.arange(len(labels)), labels] -= 1.0
    return error / len(labels)


class LinearHead:
    """Features [n, channels]."""

    def logits(self, state, x):
        return x @ state[0].T + state[1]

    def gradients(self, state, x, labels):
        error = softmax_error(self.logits(state, x), labels)
        return error.T @ x, error.sum(axis=0)


class ConvolutionHead:
    """Activations [n, channels, places]: 1x1 convolution, ReLU, mean over the places."""

    def scores(self, state, x):
        return numpy.einsum("kc,ncp->nkp", state[0], x, optimize=True) + state[1][:, None]

    def logits(self, state, x):
        return numpy.maximum(self.scores(state, x), 0.0).mean(axis=2)

    def gradients(self, state, x, labels):
        scores = self.scores(state, x)
        error = softmax_error(numpy.maximum(scores, 0.0).mean(axis=2), labels)
        spread = (scores > 0.0) * (error / scores.shape[2])[:, :, None]
        return numpy.einsum("nkp,ncp->kc", spread, x, optimize=True), spread.sum(axis=(0, 2))


def train(head, state, x, labels, arguments, generator):
    velocity = [numpy.zeros_like(array) for array in state]
    for _ in range(arguments.epochs):
        order = generator.permutation(len(labels))
        for start in range(0, len(order), arguments.batch):
            chosen = order[start : start + arguments.batch]
            gradients = head.gradients(state, x[chosen], labels[chosen])
            for array, speed, gradient in zip(state, velocity, gradients):
                speed *= arguments.momentum
                speed += gradient + arguments.weight_decay * array
                array -= arguments.lr * speed


def main():
    arguments = parse_arguments()
    arrays = load_or_extract(arguments)
    x, held_out = arrays["train"], arrays["validation"]
    x, held_out = (rows.reshape(*rows.shape[:2], -1) for rows in (x, held_out))
    head = ConvolutionHead()
    if x.shape[2] == 1:
        head, x, held_out = LinearHead(), x[:, :, 0], held_out[:, :, 0]
    accuracies = []
    for seed in range(arguments.seeds):
        generator = numpy.random.default_rng(seed)
        state = initial_head(arguments.initial, int(arrays["train_labels"].max()) + 1, x.shape[1], generator)
        train(head, state, x, arrays["train_labels"], arguments, generator)
        predicted = head.logits(state, held_out).argmax(axis=1)
        accuracies.append(round(float((predicted == arrays["validation_labels"]).mean()), 4))
    settings = {"lr": arguments.lr, "batch": arguments.batch, "epochs": arguments.epochs, "initial": arguments.initial}
    print(json.dumps(settings | {"mean": round(float(numpy.mean(accuracies)), 4), "accuracies": accuracies}))


if __name__ == "__main__":
    main()
