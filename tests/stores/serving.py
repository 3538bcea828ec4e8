"""Common code of the server scripts. `cargo xtask stores` starts each script, which prints its connection as one line of JSON."""
import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

BUCKET = "frostline"


def folder():
    """Creates the folder for the server's files and returns its path."""
    path = pathlib.Path(sys.argv[1])
    path.mkdir(parents=True, exist_ok=True)
    return path


def missing(reason):
    print(json.dumps({"missing": reason}), flush=True)
    sys.exit()


def free_ports(count):
    """Returns distinct free ports."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def run(command):
    """Runs a command. If it fails, reports the server as unavailable and exits."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        missing(f"`{' '.join(map(str, command))}`: {error}")
    if done.returncode != 0:
        last = done.stdout.strip().splitlines()[-1:]
        missing(f"`{' '.join(map(str, command))}` failed: {' '.join(last)}")


def request(url, method="GET", headers=None, body=None):
    """Sends a request and returns the status and the body of the answer."""
    request_object = urllib.request.Request(url, method=method, headers=headers or {}, data=body)
    try:
        with urllib.request.urlopen(request_object, timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def serve(programs, url, prepare, **connection):
    """Starts `programs`, waits until `url` answers, prints the connection, and stops the programs when standard input closes."""
    log = open(folder() / "log", "wb")
    children = [
        subprocess.Popen(program, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        for program in programs
    ]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                request(url)
                break
            except OSError as error:
                if time.monotonic() > deadline or any(child.poll() is not None for child in children):
                    missing(f"no answer ({error}); see {log.name}")
                time.sleep(0.1)
        prepare()
        print(json.dumps(connection), flush=True)
        sys.stdin.read()
    finally:
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
