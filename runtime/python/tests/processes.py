"""Groups of training processes on this machine."""

import socket
import traceback

import torch

DEADLINE = 1200
"""Timeout in seconds for the processes of a group."""


def free_port():
    """Return an unused loopback port."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def together(world, work, *arguments):
    """Run `work(*arguments)` in each of `world` processes of a gloo group, and return the results by rank.

    `work` must be a function of a test module, so that it can be pickled.
    """
    context = torch.multiprocessing.get_context("spawn")
    results, port = context.SimpleQueue(), free_port()
    members = [context.Process(target=_member, args=(rank, world, port, results, work, arguments), daemon=True) for rank in range(world)]
    for member in members:
        member.start()
    for member in members:
        member.join(DEADLINE)
        if member.is_alive():
            member.kill()
    found = {}
    while not results.empty():
        rank, value, failure = results.get()
        if failure:
            raise AssertionError(f"process {rank}: {failure}")
        found[rank] = value
    if len(found) != world:
        raise AssertionError(f"of {world} processes, only the ranks {sorted(found)} finished")
    return [found[rank] for rank in range(world)]


def _member(rank, world, port, results, work, arguments):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    try:
        results.put((rank, work(*arguments), None))
    except BaseException:
        results.put((rank, None, traceback.format_exc()))
    torch.distributed.destroy_process_group()
