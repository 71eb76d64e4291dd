"""Processes that share a measurement, by torch.distributed, most often one; and trials that they keep in a file.

The file has a line of JSON for what the trials are of, and then one for each finished trial, so that a killed run goes
on where it was. A kill leaves at most one line torn, which is dropped; numbers are read back bit for bit.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from hessdiag.arguments import one_line
from hessdiag.data.batch import Batch
from hessdiag.errors import HessdiagError
from hessdiag.parallel.progress import advance, announce
from hessdiag.results.records import versions

T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    """This process among those that share a measurement."""

    rank: int = 0
    size: int = 1

    def share(self, count: int) -> slice:
        """Those of `count` examples or trials that are this process's, as even as can be.

        >>> [Processes(rank, 3).share(7) for rank in range(3)]
        [slice(0, 3, None), slice(3, 5, None), slice(5, 7, None)]
        """
        each, more = divmod(count, self.size)
        start = self.rank * each + min(self.rank, more)
        return slice(start, start + each + (self.rank < more))

    def shares(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """This process's share of every batch that has one."""
        for batch in batches:
            if (mine := self.share(batch.size)).start < mine.stop:
                yield batch.narrow(mine.start, mine.stop)

    def gather(self, measure: Callable[[], T]) -> list[T]:
        """Call `measure` on every process and return all of their results, in order. All processes must call this
        equally often. What `measure` returns must be picklable and on the CPU.
        """
        if self.size == 1:
            return [measure()]
        value, failure = None, None
        try:
            value = measure()
        except Exception as error:
            failure = error
        everything: list[Any] = [None] * self.size
        try:
            dist.all_gather_object(everything, (value, None if failure is None else str(failure) or repr(failure)))
        except RuntimeError as error:
            raise HessdiagError(f"another process of this run is gone ({one_line(error)}): start it again") from error
        if failure is not None:
            raise failure
        for rank, (_, message) in enumerate(everything):
            if message is not None:
                raise HessdiagError(f"process {rank} failed: {message}")
        return [value for value, _ in everything]

    def check_alike(self, held: Mapping[str, Sequence[Tensor]]) -> None:
        """Refuse to go on where processes were given different weights or data."""
        for what, tensors in held.items():
            sums = [float(tensor.detach().double().sum()) for tensor in tensors if not tensor.is_complex()]
            if any(other != sums for other in self.gather(lambda sums=sums: sums)):  # type: ignore[misc]
                how = "give every one the same, seeded alike, and all of the data; hessdiag deals the examples out"
                raise HessdiagError(f"the processes hold different {what}: {how}")


ALONE = Processes()


def default_group() -> Processes:
    """The processes of torch.distributed's default group."""
    if not (dist.is_available() and dist.is_initialized()):
        raise HessdiagError("distributed=True: call torch.distributed.init_process_group first, or use torchrun")
    return Processes(dist.get_rank(), dist.get_world_size())


@contextmanager
def launched(device: str) -> Iterator[Processes]:
    """Join the processes that torchrun started, by NCCL on CUDA, else gloo; this one alone where it started none."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or "RANK" not in os.environ:
        yield ALONE
        return
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    try:
        # Shares may end hours apart; by default gloo gives up after half an hour, NCCL after ten minutes.
        dist.init_process_group("nccl" if device == "cuda" else "gloo", timeout=timedelta(days=1))
    except (RuntimeError, ValueError) as error:  # what cannot connect is a RuntimeError
        raise HessdiagError(f"cannot join the other processes ({one_line(error)}): start them with torchrun") from error
    try:
        yield default_group()
    finally:
        dist.destroy_process_group()


class TrialFile:
    """Finished trials in a file, which is made when missing. `of` is what they are of, such as model and seed: a file
    of something else is refused.
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
            why = f"cannot resume from {str(self.path)!r} ({error})"
            raise HessdiagError(f"{why}: name a new file in a writable folder, or delete it") from error

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
