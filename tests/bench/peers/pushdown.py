"""Fine-tuning by the PyTorch loop of dataloader.py, fed by `frostline.torch.pushdown`: a side of `cargo xtask bench loops`.

    python pushdown.py --endpoint http://127.0.0.1:5000 --bucket photos --network resnet18 --host http://store:8443 --token-file token

The network is frozen up to the same cut, with a classifier for the bucket's classes; split and encoding are planned. Prints a line of JSON a
step (`step`, `loss`, `t`: seconds since the first batch was asked for) and a last one: `iteration_seconds_median`, `split`, `steps`.
"""

import statistics
import time

import torch
import torchvision

import frostline.torch as fl
from dataloader import steady_iterations
from photo_task import FREEZE_CUTS, Trainer, list_photos, parse_arguments, report


def add_arguments(parser):
    parser.add_argument("--host", required=True, help="a storage host's address")
    parser.add_argument("--token-file", required=True)


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
        threads=arguments.threads,
    )
    trainer, ends = Trainer(suffix, arguments), []
    start = time.perf_counter()
    while len(ends) < arguments.steps:
        for x, y in torch.utils.data.DataLoader(data, batch_size=None):
            loss = trainer.step(x, y)
            ends.append(time.perf_counter() - start)
            report(step=len(ends) - 1, loss=loss, t=round(ends[-1], 4))
            if len(ends) == arguments.steps:
                break
    return ends, data.source.split, data.source.stream.get("ahead", 3)


def main():
    arguments = parse_arguments(__doc__, add_arguments)
    ends, split, ahead = train(arguments)
    iterations = steady_iterations(ends, ahead)
    report(iteration_seconds_median=round(statistics.median(iterations), 4), split=split, steps=len(ends))


if __name__ == "__main__":
    main()
