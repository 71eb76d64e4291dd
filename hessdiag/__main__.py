"""`hessdiag` and `python -m hessdiag`: run a command, and turn what goes wrong into one line and an exit status."""

import errno
import os
import sys
import warnings

REFUSED, INTERRUPTED = 2, 130


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; 0 fine, 1 a gate failed, 2 bad input, 130 interrupted."""
    with warnings.catch_warnings():
        if not sys.warnoptions:  # asked for with python -W, they are shown
            warnings.simplefilter("ignore")
        try:
            from hessdiag.cli import app

            result = app(arguments, prog_name="hessdiag", standalone_mode=False)
        except KeyboardInterrupt:
            result = INTERRUPTED
        except Exception as error:
            return _say(" ".join(_explain(error).split()), REFUSED)
    if result == INTERRUPTED:  # the command-line library makes a status of it
        return _say("interrupted", INTERRUPTED)
    return result if isinstance(result, int) else 0


def _explain(error: Exception) -> str:
    """One line for what was refused, by us, by the command-line library or by the machine; raise a fault of ours."""
    from hessdiag.errors import HessdiagError

    if isinstance(error, HessdiagError):
        return str(error)
    if hasattr(error, "format_message"):  # of the command-line library
        context = getattr(error, "ctx", None)
        return f"{error.format_message()} (try: {context.command_path if context is not None else 'hessdiag'} -h)"
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"the output cannot be written: {error.strerror}"
    if isinstance(error, (RuntimeError, MemoryError)):
        from hessdiag.data.memory import is_out_of_memory  # with torch, which --help does without

        if is_out_of_memory(error):
            return "out of memory: use a smaller --batch-size, --input-size or model"
    raise error


def _say(message: str, status: int) -> int:
    rank = os.environ.get("RANK", "0")  # of several processes, each speaks for itself
    print(f"hessdiag: {message}" if rank == "0" else f"hessdiag, process {rank}: {message}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
