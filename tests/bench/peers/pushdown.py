"""Fine-tunes with the PyTorch loop of dataloader.py and data from `frostline.torch.pushdown`, for `cargo xtask bench python`.

    python pushdown.py --endpoint http://127.0.0.1:5000 --bucket photos --network resnet18 --host http://store:8443 --token-file token

The freeze cut is the same as in dataloader.py, with a classifier for the bucket's classes. Split and encoding are planned. Prints a JSON line
per step (`step`, `loss`, `t`: seconds since the start of the epoch). The final line contains `iteration_seconds_median` (first epoch),
`later_iteration_seconds_median` (last epoch), `split`, and `steps` (per epoch).
"""

import statistics
import time

import torch
import torchvision

import frostline.torch as fl
from dataloader import steady_iterations
from photo_task import FREEZE_CUTS, Trainer, list_photos, parse_arguments, report


def add_arguments(parser):
    parser.add_argument("--host", required=True, help="address of a storage host")
    parser.add_argument("--token-file", required=True)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--prefix-precision", default="f32")


def train(arguments):
    _, _, classes = list_photos(arguments)
    model = torchvision.models.get_model(arguments.network, weights=None, num_classes=len(classes)).eval()
    suffix, data = fl.pushdown(
        model,
        f"s3://{arguments.bucket}/{arguments.prefix}".rstrip("/"),
        [arguments.host],
        token_file=arguments.token_file,
        freeze=FREEZE_CUTS[arguments.network]["export"],
        batch=arguments.batch,
        seed=arguments.seed,
        prefix=fl.Prefix(precision=arguments.prefix_precision, threads=arguments.threads),
    )
    trainer, epochs = Trainer(suffix, arguments), []
    for _ in range(arguments.epochs):
        ends, start = [], time.perf_counter()
        for x, y in torch.utils.data.DataLoader(data, batch_size=None):
            loss = trainer.step(x, y)
            ends.append(time.perf_counter() - start)
            report(step=len(ends) - 1, loss=loss, t=round(ends[-1], 4))
        epochs.append(ends)
    return epochs, data.source.split, data.source.stream.get("ahead", 3)


def main():
    arguments = parse_arguments(__doc__, add_arguments)
    epochs, split, ahead = train(arguments)
    first = statistics.median(steady_iterations(epochs[0], ahead))
    later = statistics.median(steady_iterations(epochs[-1], ahead))
    report(iteration_seconds_median=round(first, 4), later_iteration_seconds_median=round(later, 5), split=split, steps=len(epochs[0]))


if __name__ == "__main__":
    main()
