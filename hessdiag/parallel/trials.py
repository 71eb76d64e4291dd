"""Trials of one experiment: shared among processes, and kept in a file, so that a killed run goes on where it was.

The file has a line of JSON for what the trials are of, and then one for each finished trial. A kill leaves at most one
line torn, which is dropped; numbers are written so that they are read back bit for bit.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hessdiag.errors import HessdiagError
from hessdiag.parallel.processes import ALONE, Processes
from hessdiag.parallel.progress import advance, announce
from hessdiag.results.records import versions


class TrialFile:
    """Finished trials in a file.

    Args:
        path: the file; made when missing.
        of: what the trials are of, such as model and seed: a file of something else is refused.
        processes: that measure the trials.
    """

    def __init__(self, path: str | os.PathLike[str], of: Mapping[str, str], processes: Processes = ALONE) -> None:
        self.path = Path(path)
        self.finished = processes.gather(lambda: {} if processes.rank else self._read({**of, **versions()}))[0]

    def add(self, trial: str, result: Any) -> None:
        """Keep the result of a trial, which must be JSON."""
        self._append({"trial": trial, "result": result})
        self.finished[trial] = result

    def _read(self, of: Mapping[str, str]) -> dict[str, Any]:
        """Finished trials by name; what a kill left of a line goes."""
        try:
            text = self.path.read_bytes() if self.path.exists() else b""
            whole = text[: text.rfind(b"\n") + 1]
            lines = [json.loads(line) for line in whole.splitlines()]
            if not lines and not _line({"of": of}).startswith(text):
                raise ValueError("no line of JSON in it")
            with self.path.open("ab") as file:
                file.truncate(len(whole))
            if not lines:
                self._append({"of": of})
            was = lines[0]["of"] if lines else of
            for key in {**was, **of}:
                before, now = (each.get(key, "not given") for each in (was, of))
                if before != now:
                    raise ValueError(f"it is of another measurement, {key} was {before} and is {now}")
            return {line["trial"]: line["result"] for line in lines[1:]}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise HessdiagError(
                f"cannot resume from {str(self.path)!r} ({error}): name a new file in a writable folder, or delete it"
            ) from error

    def _append(self, content: Mapping[str, Any]) -> None:
        with self.path.open("ab", buffering=0) as file:  # one write, so that lines of several processes do not mix
            file.write(_line(content))


def measure_trials(
    name: str, seeds: Sequence[int], measure: Callable[[int], Any], *, file: TrialFile | None = None,
    processes: Processes = ALONE,
) -> list[Any]:  # fmt: skip
    """`measure(seed)` of every trial, in order, on all processes alike; finished trials of the file are skipped."""
    mine = seeds[processes.rank :: processes.size]  # in turn, so that a killed run has shared evenly
    announce("trials", len(mine))

    def measured() -> dict[int, Any]:
        found = {}
        for seed in mine:
            trial, kept = f"{name}, seed {seed}", {} if file is None else file.finished
            found[seed] = kept[trial] if trial in kept else measure(seed)
            if file is not None and trial not in kept:
                file.add(trial, found[seed])
            advance("trials")
        return found

    results = {seed: result for part in processes.gather(measured) for seed, result in part.items()}
    return [results[seed] for seed in seeds]


def _line(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content).encode() + b"\n"
