"""Further processes of one command, which share its work as those that torchrun starts do.

Small set-ups leave a processor's cores idle, however many threads there are: a process on each of them does not.
Nothing here imports torch, so that all of them load it at the same time.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

REFUSED = 2
PATIENCE = 30.0  # seconds for the others to end once this one has


def usable_cores() -> int:
    """Cores that this process may use, and was told to."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    told = os.environ.get("OMP_NUM_THREADS", "")
    return min(here, int(told)) if told.isdecimal() and int(told) > 0 else here


def is_launched() -> bool:
    """Whether this is one of several processes that torchrun, or `in_processes`, started."""
    size = os.environ.get("WORLD_SIZE", "")
    return size.isdecimal() and int(size) > 1


@contextmanager
def in_processes(count: int, arguments: Sequence[str]) -> Iterator[None]:
    """Run this command in `count` processes, of which this is the first; the cores are dealt out among them.

    The others are silent but for errors, and end when this one does, however that happens.

    Args:
        count: 1 starts none.
        arguments: of the command line, which the others are given as well.
    """
    if count == 1:
        yield
        return
    shared = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "OMP_NUM_THREADS": str(max(1, usable_cores() // count)),
    }
    command = [sys.executable, "-m", "hessdiag", *arguments]
    others = [_start(command, shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(1, count)]
    own = shared | {"RANK": "0", "LOCAL_RANK": "0"}
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    ending = threading.Event()
    for other in others:
        threading.Thread(target=_end_with, args=(other, ending), daemon=True).start()
    try:
        yield
        ending.set()  # all is measured and written: how the others end is of no matter
        for other in others:
            with suppress(subprocess.TimeoutExpired):
                other.wait(PATIENCE)
    finally:
        ending.set()
        for other in others:
            other.kill()
            other.wait()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _start(command: Sequence[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        preexec_fn=_end_with_parent if sys.platform == "linux" else None,
    )


def _end_with(other: subprocess.Popen[bytes], ending: threading.Event) -> None:
    """End this process when another one has failed: it might wait for that one for ever, where nothing interrupts."""
    if other.wait() != 0 and not ending.is_set():
        print("hessdiag: another process of this run is gone: start it again", file=sys.stderr, flush=True)
        os._exit(REFUSED)


def _end_with_parent() -> None:
    """Ask the kernel to kill this process when its parent is gone, as by a signal that nothing can handle."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
