"""Fine-tunes in PyTorch with a DataLoader that reads photos from S3, for `cargo xtask bench peers`.

    python dataloader.py --endpoint http://127.0.0.1:5000 --bucket photos --prefix clothing --network resnet18 --batch 32 --steps 20

Each step reads photos, decodes them in worker processes, runs the frozen layers without gradients and trains the remaining layers. Prints a
JSON line per step (`step`, `loss`, `t`: seconds since the start of the workers). The final line contains `iteration_seconds_median`,
`iteration_seconds_mean`, `bytes_received` (trained photos without HTTP overhead), `steps`, `threads` and `workers`.

Workers deliver batches in bursts, so iteration times are averaged over a window of `workers` steps. The first steps are excluded because the
batches were prefetched during startup: 2 x `workers` steps, limited to half of all steps.
"""

import statistics
import time

import torch

from photo_task import PREFETCHED_BATCHES, Photos, Shuffled, Trainer, list_photos, loader, parse_arguments, report, split_network


def steady_iterations(ends, workers):
    """Returns the seconds per iteration for each window of `workers` steps after the warm-up. Parameter `ends`: end times of the steps."""
    width = min(max(workers, 1), max(len(ends) // 4, 1))
    warm_up = min(max(workers, 1) * PREFETCHED_BATCHES, len(ends) // 2)
    steady = ends[max(warm_up - 1, 0) :]
    return [(later - earlier) / width for earlier, later in zip(steady, steady[width:])]


def train(arguments):
    keys, labels, classes = list_photos(arguments)
    prefix, suffix = split_network(arguments.network, len(classes))
    trainer = Trainer(suffix, arguments)
    sampler = Shuffled(len(keys), arguments.steps * arguments.batch)
    batches = loader(Photos(arguments, keys, labels), arguments, batch_size=arguments.batch, sampler=sampler)
    ends, received = [], 0
    start = time.perf_counter()
    for step, (photos, targets, sizes) in enumerate(batches):
        with torch.no_grad():
            activations = prefix(photos)
        loss = trainer.step(activations, targets)
        ends.append(time.perf_counter() - start)
        received += int(sizes.sum())
        report(step=step, loss=loss, t=round(ends[-1], 4))
    return ends, received


def main():
    arguments = parse_arguments(__doc__)
    if arguments.steps < 2:
        raise SystemExit("--steps must be 2 or more to measure the time between steps")
    ends, received = train(arguments)
    iterations = steady_iterations(ends, arguments.workers)
    report(
        iteration_seconds_median=round(statistics.median(iterations), 4),
        iteration_seconds_mean=round(statistics.fmean(iterations), 4),
        bytes_received=received,
        steps=len(ends),
        threads=arguments.threads,
        workers=arguments.workers,
    )


if __name__ == "__main__":
    main()
