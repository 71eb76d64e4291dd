"""Processes of their own, forked from one that has imported the libraries: that takes longer than what they do."""

import multiprocessing
import os
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["torch.fx.experimental.symbolic_shapes", "hessdiag.cli", "hessdiag.diagnosis.diagnose"])
BEGIN = """
import os, signal, sys, torch

for number, name in enumerate(STREAMS):
    os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), number)
os.environ.clear(), os.environ.update(ENVIRONMENT)
sys.argv[1:], sys.path[:0] = ARGUMENTS, [os.getcwd()]
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background has switched off
torch.set_num_threads(1)
"""


def start(code: str, arguments: Sequence[str] = (), streams: Sequence[str] = (), **environment: str) -> BaseProcess:
    """Run code with these arguments in this folder, and the first streams, stdin before all, bound to these files."""
    given = {"STREAMS": streams, "ENVIRONMENT": {**os.environ, **environment}, "ARGUMENTS": arguments}
    process = FORKS.Process(target=exec, args=(BEGIN + code, given))
    process.start()
    return process


def ended(process: BaseProcess, *files: str) -> tuple[int | None, ...]:
    """Exit status of a process that ends by itself, and what it left in files."""
    process.join(120)
    return process.exitcode, *(Path(name).read_text(encoding="utf-8") for name in files)  # type: ignore[return-value]
