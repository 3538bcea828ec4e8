"""Runs the GPU kit on a machine without network, Rust or this repository.

    python3 run.py keep part-0          # after each transfer: copies the part to the folder that `all` uses
    python3 run.py all --seconds 480    # unpacks, tests and measures within this time

Needs Linux on x86-64 and Python with torch, torchvision, onnx, onnxruntime, numpy and Pillow. `--device cuda:0` also needs CUDA 13 and cuDNN 9;
the libraries installed with torch are found. Measurements are skipped if the time is too short. Each figure is written to figures.jsonl in --out
as soon as it is measured. At the end, the figures are compared with their targets.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import threading
import time

KEPT = pathlib.Path(tempfile.gettempdir(), "frostline-gpu-kit")
# Measurements in order of importance, with their fraction of the remaining time. The last one may use all of it.
PARTS = {"job": 0.45, "loops": 0.6, "decode": 0.6, "memory": 1.0}
# Seconds below which a measurement would return nothing.
LEAST = 10
# Questions in order of importance: the name of the figures that answer it, and their limits (lower, upper).
QUESTIONS = [
    ("Is the planned split within 5 % of the best fixed split?", r"job_\w+_regret", (None, 0.05)),
    ("Is a whole job as fast as in PyTorch with a data worker per core?", r"job_\w+_ratio_vs_pytorch", (1.0, None)),
    ("Do the frozen layers reach 0.95 of PyTorch's rate?", r"(?!job_)\w+_ratio_vs_pytorch", (0.95, None)),
    ("Is there no switch that hosts leave off and that makes the layers more than 3 % faster?", r"\w+_over_usual", (None, 1.03)),
    ("Are activations in reduced precision close to those in f32?", r"\w+_(tf32|f16)(_\w+)?_cosine", (0.999, None)),
    ("Does decoding reach half of the device's rate, so that a decoder on the GPU is not needed?", "decoding_of_device_rate", (0.5, None)),
    ("Does the ledger cover the memory in use?", "memory_used_of_ledger", (None, 1.05)),
    ("Is device memory returned after the jobs?", "memory_end_used_bytes", (None, 64 << 20)),
]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    keep = commands.add_parser("keep", help="copy parts to the folder that `all` uses")
    keep.add_argument("parts", nargs="+", type=pathlib.Path)
    run = commands.add_parser("all", help="unpack, test and measure")
    run.add_argument("--device", default="cuda:0", help="cuda:0 or cpu")
    run.add_argument("--seconds", type=float, default=480, help="time limit for all steps")
    run.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    run.add_argument("--quick", action="store_true", help="run only the smallest measurements, to test the kit")
    run.add_argument("--networks", help="comma-separated networks [default: those of the benchmark]")
    run.add_argument("--out", type=pathlib.Path, help="folder for figures.jsonl and the benchmark's files [default: out in the unpacked kit]")
    run.add_argument("--from", dest="kept", type=pathlib.Path, default=KEPT, help="folder with the parts")
    return parser.parse_args()


def keep(parts):
    KEPT.mkdir(exist_ok=True)
    for part in parts:
        for file in part.iterdir():
            shutil.copy(file, KEPT / file.name)
            print(f"copied {file.name}, {file.stat().st_size / 1e6:.1f} MB")


class Joined:
    """Concatenated parts, which can be read once."""

    def __init__(self, files):
        self.files = [open(file, "rb") for file in files]

    def read(self, size=-1):
        while self.files:
            if data := self.files[0].read(size):
                return data
            self.files.pop(0).close()
        return b""


def unpack(kept, folder):
    """Unpacks the parts below `kept`, unless they were unpacked before."""
    done = folder / "unpacked"
    if done.exists():
        return
    parts = sorted(kept.rglob("kit.tar.xz.*"))
    if not parts:
        sys.exit(f"cannot find parts of the kit in {kept}; run `run.py keep part-0` for each part first")
    with tarfile.open(fileobj=Joined(parts), mode="r|xz") as archive:
        archive.extractall(folder, filter="data")
    done.touch()


def environment(folder, out):
    site = pathlib.Path(sysconfig.get_path("purelib"))
    libraries = sorted({str(file.parent) for file in site.glob("nvidia/**/lib/*.so*")})
    return os.environ | {
        "LD_LIBRARY_PATH": ":".join([*libraries, os.environ.get("LD_LIBRARY_PATH", "")]).strip(":"),
        "ORT_DYLIB_PATH": str(folder / "lib/libonnxruntime.so"),
        "FROSTLINE_SOURCE": str(folder / "source"),
        "FROSTLINE_TORCH_PYTHON": sys.executable,
        "FROSTLINE_BENCH_OUT": str(out),
        "FROSTLINE_FEATURE_CACHE": "off",
    }


class Kit:
    def __init__(self, arguments, folder, out, end):
        self.arguments, self.folder, self.end = arguments, folder, end
        self.environment = environment(folder, out)
        self.figures = {}
        self.file = open(out / "figures.jsonl", "w")

    def left(self):
        return self.end - time.monotonic()

    def record(self, figures):
        """Adds figures, and writes them immediately, in case this program is killed."""
        self.figures |= figures
        self.file.write(json.dumps(figures) + "\n")
        self.file.flush()

    def call(self, what, program, *words, seconds):
        """Runs a program of the kit, prints its output and records the figures in it. Returns the exit code and the output. After the time limit,
        kills the program and its child processes, which would keep the output open."""
        seconds = max(1.0, min(seconds, self.left()))
        print(f"\n== {what}, limit {seconds:.0f} s", flush=True)
        command = [str(self.folder / "bin" / program), *words]
        process = subprocess.Popen(command, env=self.environment, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        timer = threading.Timer(seconds, lambda: os.killpg(process.pid, signal.SIGKILL))
        timer.start()
        started = time.monotonic()
        output = []
        for line in process.stdout:
            if "--stream" in words and line.startswith("{"):
                self.record(json.loads(line))
            else:
                print(line, end="", flush=True)
            output.append(line)
        process.wait()
        timer.cancel()
        if process.returncode == -signal.SIGKILL:
            print(f"{what}: stopped at the limit; {self.file.name} has the figures so far")
        self.record({f"{what}_exit_code": process.returncode, f"{what}_seconds": round(time.monotonic() - started, 1)})
        return "".join(output)

    def doctor(self):
        self.call("doctor", "frostline", "doctor", "--device", self.arguments.device, "--json", seconds=60)

    def tests(self):
        gpu = self.arguments.device != "cpu"
        words = ["--ignored", "needs_gpu", "--test-threads", "1"] if gpu else ["an_absent_gpu"]
        output = self.call("tests", "engine-tests", *words, seconds=90)
        counts = re.findall(r"(\d+) passed; (\d+) failed", output)
        passed, failed = counts[-1] if counts else (0, 0)
        self.record({"tests_passed": int(passed), "tests_failed": int(failed)})

    def measure(self, part):
        arguments = self.arguments
        if self.left() < LEAST:
            print(f"\n== {part} skipped: {max(0, self.left()):.0f} s left")
            return
        is_last = part == [known for known in PARTS if known in arguments.only][-1]
        share = self.left() * (1.0 if is_last else PARTS[part])
        words = ["decode"] if part == "decode" else ["gpu", "--parts", part]
        words += ["--stream", "--device", arguments.device, "--photos", str(self.folder / "photos")]
        # Reserve time to complete the measurement that runs when the time is up.
        words += ["--seconds", str(int(share * 0.8))]
        words += ["--quick"] if arguments.quick else []
        words += ["--networks", arguments.networks] if arguments.networks and part != "decode" else []
        self.call(part, "frostline-bench", *words, seconds=share)


def derived(figures):
    """Returns figures that combine those of several measurements."""
    found = {}
    device = [value for name, value in figures.items() if re.fullmatch(r"resnet\d+_(f32|tf32|f16)_(b\d+|two_lanes)_images_per_second", name)]
    decoding = figures.get("110kb_ours_all_cores_images_per_second")
    if device and decoding:
        found["decoding_of_device_rate"] = decoding / max(device)
    used, ledger = (figures.get(f"memory_peak_{side}_bytes") for side in ("used", "ledger"))
    if used and ledger:
        found["memory_used_of_ledger"] = used / ledger
    return found


def show_targets(figures):
    """Prints the figures with targets, and the first question that they leave open."""
    unanswered = []
    print(f"\n{'figure':<44} {'value':>12} {'target':>10}")
    for question, pattern, (lower, upper) in QUESTIONS:
        target = f">= {lower}" if upper is None else f"<= {upper}"
        found = {name: value for name, value in figures.items() if re.fullmatch(pattern, name) and value is not None}
        for name, value in found.items():
            reached = value >= lower if upper is None else value <= upper
            print(f"{name:<44} {value:>12.4g} {target:>10}  {'reached' if reached else 'MISSED'}")
            if not reached:
                unanswered.append(f"{question} {name} is {value:.4g}")
        if not found:
            print(f"not measured: {question}")
            unanswered.append(f"{question} It was not measured")
    print(f"\nnext open question: {unanswered[0]}" if unanswered else "\nno open question")


def run_all(arguments):
    end = time.monotonic() + arguments.seconds
    folder = arguments.kept.resolve() / "kit"
    out = (arguments.out or folder / "out").resolve()
    for path in (folder, out):
        path.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    unpack(arguments.kept, folder)
    kit = Kit(arguments, folder, out, end)
    kit.record({"unpack_seconds": round(time.monotonic() - started, 1)})
    kit.doctor()
    kit.tests()
    for part in PARTS:
        if part in arguments.only:
            kit.measure(part)
    kit.record(derived(kit.figures) | {"seconds": round(time.monotonic() - started, 1)})
    show_targets(kit.figures)
    print(json.dumps(kit.figures))
    failed = [name for name, value in kit.figures.items() if name.endswith("_exit_code") and value != 0]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


def main():
    arguments = parse_arguments()
    if arguments.command == "keep":
        keep(arguments.parts)
    else:
        run_all(arguments)


if __name__ == "__main__":
    main()
