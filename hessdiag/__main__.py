"""`hessdiag` and `python -m hessdiag`: run a command, and turn what goes wrong into one line and an exit status."""

import os
import sys
import warnings

from hessdiag.cli import app
from hessdiag.errors import HessdiagError, RankGoneError


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; 0 fine, 1 a gate failed, 2 bad input, 130 interrupted."""
    with warnings.catch_warnings():
        if not sys.warnoptions:  # asked for with python -W, they are shown
            warnings.simplefilter("ignore")
        try:
            result = app(arguments, prog_name="hessdiag", standalone_mode=False)
        except HessdiagError as error:
            return _refuse(str(error), by_all=isinstance(error, RankGoneError))
        except KeyboardInterrupt:
            print("hessdiag: interrupted", file=sys.stderr)
            return 130
        except Exception as error:
            if isinstance(error, RuntimeError) and _ran_out_of_memory(error):
                return _refuse("out of memory: use a smaller --batch-size or model")
            format_message = getattr(error, "format_message", None)  # a usage error of the command-line library
            if format_message is None:
                raise
            return _refuse(f"{format_message()} (see hessdiag --help)")
    return result if isinstance(result, int) else 0


def _ran_out_of_memory(error: RuntimeError) -> bool:
    from hessdiag.execution.memory import is_out_of_memory  # with torch, which --help does without

    return is_out_of_memory(error)


def _refuse(message: str, *, by_all: bool = False) -> int:
    """Say it once: of several processes, those after the first are silent about what the first says too."""
    if by_all or os.environ.get("RANK", "0") == "0":
        print("hessdiag: " + " ".join(message.split()), file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
