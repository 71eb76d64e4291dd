"""`hessdiag` and `python -m hessdiag`: run a command, and turn what goes wrong into one line and an exit status.

Nothing is imported at the top that takes time: an interrupt of an import is answered as one of a measurement is.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import NoReturn

INTERRUPTED = 130
RESUMABLE = ("diagnose", "check-init")  # and predict --compare


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; 0 fine, 1 a gate failed, 2 bad input, 130 interrupted."""
    with _noting_interrupts() as interrupts, warnings.catch_warnings():
        if not sys.warnoptions:  # asked for with python -W, they are shown
            warnings.simplefilter("ignore")
        try:
            return _run(arguments, interrupts)
        except BaseException as error:
            if not interrupts and not isinstance(error, KeyboardInterrupt):
                raise
            if os.environ.get("RANK", "0") == "0":
                print(_farewell(sys.argv[1:] if arguments is None else arguments), file=sys.stderr)
            return INTERRUPTED


def _run(arguments: list[str] | None, interrupts: Sequence[int]) -> int:
    """A command, and what it raised as a line; an interrupt passes, also one that was raised as something else."""
    from hessdiag.cli import app
    from hessdiag.cli.wording import as_typed
    from hessdiag.errors import HessdiagError, OneRankError

    try:
        given = sys.argv[1:] if arguments is None else arguments
        result = app(arguments, prog_name="hessdiag", standalone_mode=False, obj=given)
    except Exception as error:
        if interrupts:
            raise KeyboardInterrupt from error
        if not isinstance(error, HessdiagError):
            return _explain(error)
        return _refuse(as_typed(str(error)), by_all=isinstance(error, OneRankError))
    if result == INTERRUPTED:  # the command-line library caught it
        raise KeyboardInterrupt
    return result if isinstance(result, int) else 0


@contextmanager
def _noting_interrupts() -> Iterator[list[int]]:
    """Interrupts that have come; each still raises `KeyboardInterrupt`.

    One that comes while Python runs a finaliser or a callback, where exceptions are dropped, is raised again.
    """
    interrupts: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is not signal.default_int_handler:
        yield interrupts  # somebody else handles them
        return

    def note(number: int, frame: object) -> None:
        interrupts.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, note)
    dropped = sys.unraisablehook
    sys.unraisablehook = lambda about: _again(note) if about.exc_type is KeyboardInterrupt else dropped(about)
    try:
        yield interrupts
    finally:
        sys.unraisablehook = dropped
        signal.signal(signal.SIGINT, before)


def _again(note: Callable[[int, object], None]) -> None:
    """Interrupt once more in a moment."""
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, note)
        signal.setitimer(signal.ITIMER_REAL, 0.01)


def _explain(error: Exception) -> int:
    """Refuse what the command-line library or the machine refused; raise what is a fault of ours."""
    if isinstance(error, RuntimeError) and _ran_out_of_memory(error):
        return _refuse("out of memory: use a smaller --batch-size or model")
    format_message = getattr(error, "format_message", None)
    if format_message is None:
        raise error
    context = getattr(error, "ctx", None)
    return _refuse(f"{format_message()} (try: {context.command_path if context is not None else 'hessdiag'} -h)")


def _farewell(arguments: Sequence[str]) -> str:
    """What an interrupted user wants to know: whether the work is lost."""
    following = dict(pairwise(arguments))
    joined = [argument.partition("=")[2] for argument in arguments if argument.startswith("--resume=")]
    path = following.get("--resume") or next(iter(joined), "")
    if path and os.path.exists(path):
        return f"hessdiag: interrupted; finished units are kept in {path}: run the same command again"
    if path:
        return "hessdiag: interrupted before anything was finished: run the same command again"
    if arguments and (arguments[0] in RESUMABLE or (arguments[0] == "predict" and "--compare" in arguments)):
        return "hessdiag: interrupted; a run with --resume FILE keeps finished units and goes on where it was"
    return "hessdiag: interrupted"


def _ran_out_of_memory(error: RuntimeError) -> bool:
    from hessdiag.execution.memory import is_out_of_memory  # with torch, which --help does without

    return is_out_of_memory(error)


def _refuse(message: str, *, by_all: bool = False) -> int:
    """Say it once: of several processes, those after the first are silent about what the first says too."""
    if by_all or os.environ.get("RANK", "0") == "0":
        print("hessdiag: " + " ".join(message.split()), file=sys.stderr)
    return 2


def end(status: int) -> NoReturn:
    """End the process with this status; one of several without taking Python down around PyTorch's threads.

    Those of a process group that something still holds abort when they meet that (pytorch#190489), now and then.
    """
    from hessdiag.cli.processes import is_launched

    if not is_launched():
        sys.exit(status)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    end(main())
