"""Runs the GPU kit on a machine without network, Rust or this repository, and prints one line of JSON.

    python3 run.py keep part-0          # after each transfer: copies the part to the folder that `all` uses
    python3 run.py all --seconds 420    # unpacks, tests and measures within this time

Needs Linux on x86-64 and Python with torch, torchvision, onnx, onnxruntime and numpy. `--device cuda:0` also needs CUDA 13 and cuDNN 9; the
libraries installed with torch are found. Measurements are skipped if the time is too short.
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
# Measurements in order, with their fraction of the remaining time. The last one may use all of it.
PARTS = {"job": 0.3, "loops": 0.7, "memory": 1.0}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    keep = commands.add_parser("keep", help="copy parts to the folder that `all` uses")
    keep.add_argument("parts", nargs="+", type=pathlib.Path)
    run = commands.add_parser("all", help="unpack, test and measure")
    run.add_argument("--device", default="cuda:0", help="cuda:0 or cpu")
    run.add_argument("--seconds", type=float, default=420, help="time limit for all steps")
    run.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    run.add_argument("--quick", action="store_true", help="run only the smallest measurements, to test the kit")
    run.add_argument("--networks", help="comma-separated networks [default: those of the benchmark]")
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


def environment(folder):
    site = pathlib.Path(sysconfig.get_path("purelib"))
    libraries = sorted({str(file.parent) for file in site.glob("nvidia/**/lib/*.so*")})
    return os.environ | {
        "LD_LIBRARY_PATH": ":".join([*libraries, os.environ.get("LD_LIBRARY_PATH", "")]).strip(":"),
        "ORT_DYLIB_PATH": str(folder / "lib/libonnxruntime.so"),
        "FROSTLINE_SOURCE": str(folder / "source"),
        "FROSTLINE_TORCH_PYTHON": sys.executable,
        "FROSTLINE_BENCH_OUT": str(folder / "out"),
        "FROSTLINE_FEATURE_CACHE": "off",
    }


class Kit:
    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.environment = environment(folder)
        self.end = time.monotonic() + arguments.seconds

    def left(self):
        return self.end - time.monotonic()

    def call(self, what, program, *words, seconds=None):
        """Runs a program of the kit and prints its output. Returns the exit code and the output. After the time limit, kills the program and its
        child processes, which would keep the output open."""
        seconds = max(1.0, min(seconds or self.left(), self.left()))
        print(f"\n== {what}, limit {seconds:.0f} s", flush=True)
        command = [str(self.folder / "bin" / program), *words]
        process = subprocess.Popen(command, env=self.environment, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        timer = threading.Timer(seconds, lambda: os.killpg(process.pid, signal.SIGKILL))
        timer.start()
        output = []
        for line in process.stdout:
            print(line, end="", flush=True)
            output.append(line)
        process.wait()
        timer.cancel()
        return process.returncode, "".join(output)

    def tests(self):
        gpu = self.arguments.device != "cpu"
        words = ["--ignored", "needs_gpu", "--test-threads", "1"] if gpu else ["an_absent_gpu"]
        code, output = self.call("tests", "engine-tests", *words, seconds=180)
        counts = re.findall(r"(\d+) passed; (\d+) failed", output)
        passed, failed = counts[-1] if counts else (0, 0)
        return {"tests_passed": int(passed), "tests_failed": int(failed), "tests_exit_code": code}

    def doctor(self):
        code, _ = self.call("doctor", "frostline", "doctor", "--device", self.arguments.device, "--json", seconds=120)
        return {"doctor_exit_code": code}

    def measure(self, part):
        arguments = self.arguments
        share = self.left() * (1.0 if part == arguments.only[-1] else PARTS[part])
        words = ["gpu", "--device", arguments.device, "--parts", part, "--photos", str(self.folder / "photos")]
        # Reserve time to complete the measurement that runs when the time is up.
        words += ["--seconds", str(int(share * 0.8))]
        words += ["--quick"] if arguments.quick else []
        words += ["--networks", arguments.networks] if arguments.networks else []
        code, _ = self.call(part, "frostline-bench", *words, seconds=share)
        file = self.folder / "out" / f"gpu-{part}.json"
        figures = json.loads(file.read_text()) if file.exists() else {}
        return figures | {f"{part}_exit_code": code}


def run_all(arguments):
    folder = arguments.kept.resolve() / "kit"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "out").mkdir(exist_ok=True)
    started = time.monotonic()
    unpack(arguments.kept, folder)
    kit = Kit(arguments, folder)
    figures = {"unpack_seconds": round(time.monotonic() - started, 1)}
    figures |= kit.doctor() | kit.tests()
    for part in arguments.only:
        if kit.left() > 10:
            figures |= kit.measure(part)
    figures["seconds"] = round(time.monotonic() - started, 1)
    print(json.dumps(figures))
    failed = [name for name, value in figures.items() if name.endswith("_exit_code") and value != 0]
    sys.exit(1 if failed else 0)


def main():
    arguments = parse_arguments()
    if arguments.command == "keep":
        keep(arguments.parts)
    else:
        run_all(arguments)


if __name__ == "__main__":
    main()
