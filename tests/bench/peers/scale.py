"""Measures two trainers and two hosts, for `cargo xtask bench scale`.

    python scale.py --photos photos [--quick]

Trains ResNet18 with random weights on photos in a folder, using PyTorch's DistributedDataParallel over gloo and `frostline.torch` with hosts on
this machine, which are restarted or killed in some jobs. Needs torch, torchvision, the package frostline and the frostline command. Prints a JSON
line per job (`job`, `seconds`, `longest_wait`, ...) and a final line with these figures:

* `ddp_loss_difference_max`: largest loss difference per step between single-process and two-process jobs
* `ddp_speedup_2`: speed-up of an epoch by the second process (single-threaded processes, split at `layer2.1` to make training dominant)
* `lost_samples`, `repeated_samples`: totals over all epochs in all jobs, including jobs with restarts and kills
* `rolling_restart_stall_seconds`: longest wait for a batch while both hosts restart one by one, minus the longest wait in the same job without
  restarts
* `host_kill_stall_seconds`: the same when killing a host
* `hosts_2_vs_1`: rows per second on two hosts with a core each, relative to a single host
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile
import threading
import time

import torch
import torchvision

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "runtime" / "python" / "tests"))
import frostline.torch as fl
from local_hosts import Host
from processes import together

LATE = "layer4.0"
"""Default freeze cut. Hosts run most of the work."""
EARLY = "layer2.1"
"""Freeze cut for measuring training. Trainers run most of the work."""
ROUNDS = 3


def divided(job):
    torch.manual_seed(0)
    model = torchvision.models.resnet18(weights=None, num_classes=job["classes"])
    options = {"freeze": job["freeze"], "split": job["freeze"], "batch": job["batch"], "token_file": job["token_file"]}
    return fl.pushdown(model.eval(), job["photos"], job["hosts"], **options)


def noted(data):
    """Returns a list that will contain the keys of all rows by batch."""
    keys, rows = [], data.source.rows

    def noting(samples, batch, view=None):
        for got in rows(samples, batch, view):
            keys.append([samples[place][0] for place in got[1]])
            yield got

    class Noting:
        rows = staticmethod(noting)

    data.source = Noting
    return keys


def member(job):
    """Trains until the file `until` exists, or for an epoch. Returns [(losses, waits, keys, seconds)] by epoch."""
    torch.set_num_threads(1)
    suffix, data = divided(job)
    keys, rank = noted(data), torch.distributed.get_rank()
    module = torch.nn.parallel.DistributedDataParallel(suffix.eval())
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)
    epochs = []
    while True:
        losses, waits, start = [], [], None
        batches, at = iter(torch.utils.data.DataLoader(data, batch_size=None)), time.perf_counter()
        for x, y in batches:
            waits.append(time.perf_counter() - at)
            # Exclude the first batch, which waits for connections and lanes.
            start = start or time.perf_counter()
            loss = fl.mean(torch.nn.functional.cross_entropy(module(x), y, reduction="none"))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss = loss.detach()
            torch.distributed.all_reduce(loss)
            losses.append(float(loss) / torch.distributed.get_world_size())
            if rank == 0 and len(losses) == 2:
                pathlib.Path(job["begun"]).touch()
            at = time.perf_counter()
        epochs.append((losses, waits[1:], list(keys), time.perf_counter() - start))
        keys.clear()
        done = torch.tensor(float(job["until"] is None or pathlib.Path(job["until"]).exists()))
        torch.distributed.broadcast(done, 0)
        if done:
            return epochs


class Bench:
    def __init__(self, folder, arguments):
        self.folder, self.photos = folder, arguments.photos.resolve()
        self.batch = 16 if arguments.quick else 32
        self.rounds = 1 if arguments.quick else ROUNDS
        self.expected = sorted(str(file.relative_to(self.photos)) for file in (self.photos / "train").rglob("*") if file.is_file())
        self.classes = len(list((self.photos / "train").iterdir()))
        self.lost = self.repeated = 0

    def host(self, name, core):
        return Host(self.folder, name, self.photos, ("taskset", "--cpu-list", str(core)))

    def settings(self, hosts, freeze=LATE):
        begun = self.folder / "begun"
        begun.unlink(missing_ok=True)
        return {
            "photos": str(self.photos),
            "hosts": [host.url for host in hosts],
            "token_file": str(hosts[0].token_file),
            "classes": self.classes,
            "batch": self.batch,
            "freeze": freeze,
            "begun": str(begun),
            "until": None,
        }

    def job(self, name, world, hosts, disturb=None, freeze=LATE):
        """Runs a job and counts lost and repeated samples. Calls `disturb` after the second step.

        Returns the first member's epochs and the longest wait."""
        settings = self.settings(hosts, freeze)
        if disturb:
            until = self.folder / "until"
            until.unlink(missing_ok=True)
            settings["until"] = str(until)
            disturbing = threading.Thread(target=self._disturb, args=(pathlib.Path(settings["begun"]), until, disturb), daemon=True)
            disturbing.start()
        members = together(world, member, settings)
        if disturb:
            disturbing.join()
        for epoch in zip(*members, strict=True):
            keys = [key for _, _, steps, _ in epoch for step in steps for key in step]
            self.lost += len(set(self.expected) - set(keys))
            self.repeated += len(keys) - len(set(keys))
        waits = [wait for epochs in members for _, waits, _, _ in epochs for wait in waits]
        report(job=name, processes=world, epochs=len(members[0]), seconds=round(members[0][0][3], 3), longest_wait=round(max(waits), 3))
        return members[0], max(waits)

    @staticmethod
    def _disturb(begun, until, disturb):
        while not begun.exists():
            time.sleep(0.01)
        try:
            disturb()
        finally:
            until.touch()

    def rate(self, hosts):
        """Returns the rows per second after the first batch."""
        _, data = divided(self.settings(hosts))
        rows, start = 0, None
        for x, _ in data:
            rows += len(x) if start else 0
            start = start or time.perf_counter()
        return rows / (time.perf_counter() - start)


def restart(hosts):
    for host in hosts:
        host.stop()
        host.start()


def measure(bench, hosts):
    first, second = hosts
    both, apart = [], []
    divided(bench.settings(hosts))
    for _ in range(bench.rounds):
        apart.append(bench.rate([first]))
        both.append(bench.rate(hosts))
    report(job="rows per second", one=round(statistics.median(apart), 1), two=round(statistics.median(both), 1))
    (alone, *_), _ = bench.job("late, one process", 1, hosts)
    (pair, *_), usual = bench.job("late, two processes", 2, hosts)
    difference = max(abs(one - two) for one, two in zip(alone[0], pair[0], strict=True))
    ratios = []
    for _ in range(bench.rounds):
        (one, *_), _ = bench.job("early, one process", 1, hosts, freeze=EARLY)
        (two, *_), _ = bench.job("early, two processes", 2, hosts, freeze=EARLY)
        difference = max(difference, *(abs(a - b) for a, b in zip(one[0], two[0], strict=True)))
        ratios.append(one[3] / two[3])
    _, restarting = bench.job("late, hosts restarted", 2, hosts, lambda: restart(hosts))
    _, killing = bench.job("late, a host killed", 2, hosts, second.kill)
    report(
        ddp_loss_difference_max=difference,
        ddp_speedup_2=round(statistics.median(ratios), 4),
        lost_samples=bench.lost,
        repeated_samples=bench.repeated,
        rolling_restart_stall_seconds=round(max(restarting - usual, 0.0), 3),
        host_kill_stall_seconds=round(max(killing - usual, 0.0), 3),
        hosts_2_vs_1=round(statistics.median(two / one for one, two in zip(apart, both)), 4),
    )


def report(**fields):
    print(json.dumps(fields), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=pathlib.Path, required=True, help="DIR/train/CLASS/* and DIR/validation/CLASS/*")
    parser.add_argument("--quick", action="store_true", help="run a single round with batches of 16")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(pathlib.Path(folder), arguments)
        hosts = [bench.host("a", 0), bench.host("b", 1)]
        try:
            measure(bench, hosts)
        finally:
            for host in hosts:
                host.end()


if __name__ == "__main__":
    main()
