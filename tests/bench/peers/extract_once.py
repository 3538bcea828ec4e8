"""Extracts features once to a bucket and then fine-tunes on them, for `cargo xtask bench peers`.

    python extract_once.py --endpoint http://127.0.0.1:5000 --bucket photos --prefix clothing --network resnet18 --batch 32 --epochs 5

The first phase reads all photos in random order (to mix classes), runs the frozen layers, and writes the activations to `features/NETWORK/`: an
f32 .npy object per batch, written in parallel with the next batch. The second phase trains the remaining layers for `--epochs` epochs, and reads
the activations again in each epoch. Both phases read with workers as in dataloader.py. `--steps N` limits the data to N batches (default: 0 for all).

With `--memory`, the first phase keeps the activations in memory, and the second phase shuffles rows in each epoch: the best case if all
activations fit in memory.

Prints a JSON line per training step (`step`, `loss`, `t`: seconds since the start of the first phase). The final line contains `seconds`,
`extract_seconds`, `train_seconds`, `iteration_seconds` (both phases divided by the number of training steps), `extract_bytes_received`,
`extract_bytes_sent`, `train_bytes_received`, `samples` and `epochs`. Removing the feature objects afterwards is not included in the times.
"""

import concurrent.futures
import io
import random
import time

import numpy
import torch

from photo_task import Bucket, Photos, Shuffled, Trainer, connect, list_photos, loader, parse_arguments, report, split_network


class Features(torch.utils.data.Dataset):
    """Dataset of (activations, labels, bytes read) for each extracted batch."""

    def __init__(self, arguments, shards):
        self.bucket = Bucket(arguments)
        self.shards = shards

    def __len__(self):
        return len(self.shards)

    def __getitem__(self, index):
        key, labels = self.shards[index]
        content = self.bucket.read(key)
        return torch.from_numpy(numpy.load(io.BytesIO(content))), labels, len(content)


def extract(arguments, prefix, keys, labels):
    """Writes the activations of all photos. Returns ([(key, labels)], bytes received, bytes sent)."""
    client = connect(arguments.endpoint)
    shards, received, sent = [], 0, 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as writer, torch.no_grad():
        written = None
        batches = loader(Photos(arguments, keys, labels), arguments, batch_size=arguments.batch)
        for number, (photos, targets, sizes) in enumerate(batches):
            buffer = io.BytesIO()
            numpy.save(buffer, prefix(photos).numpy())
            if written:
                written.result()
            key = f"features/{arguments.network}/{number:06}.npy"
            written = writer.submit(client.put_object, Bucket=arguments.bucket, Key=key, Body=buffer.getvalue())
            shards.append((key, targets))
            received += int(sizes.sum())
            sent += buffer.tell()
        written.result()
    return shards, received, sent


def extract_to_memory(arguments, prefix, keys, labels):
    """Returns (activations, labels, bytes received) for all photos."""
    rows, targets, received = [], [], 0
    with torch.no_grad():
        for photos, classes, sizes in loader(Photos(arguments, keys, labels), arguments, batch_size=arguments.batch):
            rows.append(prefix(photos))
            targets.append(classes)
            received += int(sizes.sum())
    return torch.cat(rows), torch.cat(targets), received


def train_from_memory(arguments, suffix, rows, labels, start):
    """Trains on activations in memory."""
    trainer, step = Trainer(suffix, arguments), 0
    for _ in range(arguments.epochs):
        for chosen in torch.randperm(len(rows)).split(arguments.batch):
            loss = trainer.step(rows[chosen], labels[chosen])
            report(step=step, loss=loss, t=round(time.perf_counter() - start, 4))
            step += 1


def train(arguments, suffix, shards, start):
    """Trains on activations in the bucket. Returns the bytes received."""
    trainer = Trainer(suffix, arguments)
    sampler = Shuffled(len(shards), arguments.epochs * len(shards))
    batches = loader(Features(arguments, shards), arguments, batch_size=None, sampler=sampler)
    received = 0
    for step, (activations, targets, size) in enumerate(batches):
        loss = trainer.step(activations, targets)
        received += size
        report(step=step, loss=loss, t=round(time.perf_counter() - start, 4))
    return received


def add_arguments(parser):
    parser.set_defaults(steps=0)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--memory", action="store_true", help="keep the activations in memory instead of the bucket")


def shuffled_photos(arguments):
    """Returns (keys, labels, class names) of all photos in random order, limited to `--steps` batches."""
    keys, labels, classes = list_photos(arguments)
    photos = list(zip(keys, labels))
    random.Random(arguments.seed).shuffle(photos)
    if arguments.steps > 0:
        photos = photos[: arguments.steps * arguments.batch]
    keys, labels = zip(*photos)
    return keys, labels, classes


def main():
    arguments = parse_arguments(__doc__, add_arguments)
    keys, labels, classes = shuffled_photos(arguments)
    prefix, suffix = split_network(arguments.network, len(classes))
    start = time.perf_counter()
    if arguments.memory:
        rows, targets, extract_received = extract_to_memory(arguments, prefix, keys, labels)
        sent, train_received = 0, 0
        shards = [(None, None)] * -(-len(rows) // arguments.batch)
        extracted = time.perf_counter()
        train_from_memory(arguments, suffix, rows, targets, start)
    else:
        shards, extract_received, sent = extract(arguments, prefix, keys, labels)
        extracted = time.perf_counter()
        train_received = train(arguments, suffix, shards, start)
    trained = time.perf_counter()
    report(
        seconds=round(trained - start, 4),
        extract_seconds=round(extracted - start, 4),
        train_seconds=round(trained - extracted, 4),
        iteration_seconds=round((trained - start) / (arguments.epochs * len(shards)), 4),
        extract_bytes_received=extract_received,
        extract_bytes_sent=sent,
        train_bytes_received=train_received,
        samples=len(keys),
        epochs=arguments.epochs,
    )
    client = connect(arguments.endpoint)
    for key, _ in () if arguments.memory else shards:
        client.delete_object(Bucket=arguments.bucket, Key=key)


if __name__ == "__main__":
    main()
