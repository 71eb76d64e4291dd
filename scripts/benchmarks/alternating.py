"""Times of several functions that take turns, so that a change of the machine's speed meets all of them alike."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

GRADIENT = "gradient"  # the name of the unit: one gradient of the same model and batch


@dataclass(frozen=True)
class Spread:
    """Median and range of what several turns gave."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of one value or more."""
        return cls(statistics.median(values), min(values), max(values))

    def scaled(self, factor: float) -> Spread:
        """The same in other units."""
        return Spread(self.median * factor, self.least * factor, self.most * factor)

    def __str__(self) -> str:
        return f"{self.median:.3g} ({self.least:.3g}-{self.most:.3g})"


@dataclass(frozen=True)
class Times:
    """Seconds of every function in every turn, by name; `gradient` is among them."""

    seconds: Mapping[str, Sequence[float]]

    def gradients(self, name: str) -> Spread:
        """What a function takes in gradients, each turn divided by its own gradient."""
        return self.ratio(name, GRADIENT)

    def ratio(self, name: str, other: str) -> Spread:
        """How many times as long as another it takes, turn by turn."""
        return Spread.of([a / b for a, b in zip(self.seconds[name], self.seconds[other], strict=True)])

    def record(self) -> dict[str, dict[str, Any]]:
        """By name: all seconds, and medians and ranges in seconds and in gradients."""
        return {
            name: {
                "turns": [round(each, 6) for each in values],
                "seconds": asdict(Spread.of(values)),
                "gradients": asdict(self.gradients(name)),
            }
            for name, values in self.seconds.items()
        }


def clock_of(device: torch.device) -> tuple[str, Callable[[], float]]:
    """What is timed: with one thread processor time, which other programs disturb less, else the wall clock."""
    if device.type == "cpu" and torch.get_num_threads() == 1:
        return "processor", time.process_time
    return "wall", time.perf_counter


def seconds(function: Callable[[], object], device: torch.device) -> float:
    """The time of one call, with all that it started on the device."""
    _, now = clock_of(device)
    _wait(device)
    start = now()
    function()
    _wait(device)
    return now() - start


def alternate(
    functions: Mapping[str, Callable[[], object]], *, turns: int, device: torch.device, warm_up: bool = True
) -> Times:
    """Time all functions once in every turn.

    Args:
        functions: by name; one is called `gradient`, and runs before each of the others as well as after the last:
            its time in a turn is the median of these, since it is the shortest and the unit of all.
        turns: how many.
        device: on which they run.
        warm_up: call each once before the first turn; the gradient always is.
    """
    others = {name: function for name, function in functions.items() if name != GRADIENT}
    gradient = functions[GRADIENT]
    for function in functions.values() if warm_up else [gradient]:
        function()
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(turns):
        units = []
        for name, function in others.items():
            units.append(seconds(gradient, device))
            times[name].append(seconds(function, device))
        units.append(seconds(gradient, device))
        times[GRADIENT].append(statistics.median(units))
    return Times(times)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def machine(device: torch.device) -> dict[str, Any]:
    """Describe what times were taken on."""
    on_gpu = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if on_gpu else _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "clock": clock_of(device)[0],
    }


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def measured_once(
    path: Path, schema: str, items: Mapping[str, Callable[[], dict[str, Any]]], *, again: bool = False
) -> dict[str, dict[str, Any]]:
    """Measure the items that a file lacks, write it after each, and return all that it holds.

    One whose process fails, as for want of memory, is said and left out.
    """
    held = json.loads(path.read_text(encoding="utf-8"))["items"] if path.exists() else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    for name, measure in items.items():
        if name in held and not again:
            continue
        print(name, file=sys.stderr, flush=True)
        try:
            held[name] = measure()
        except subprocess.CalledProcessError as error:
            last = (error.stderr or "").strip().splitlines()[-1:] or ["it said nothing"]
            print(f"{name} failed with exit status {error.returncode}: {last[0]}", file=sys.stderr)
            continue
        text = json.dumps({"schema": schema, "items": held}, indent=1, ensure_ascii=False)
        path.write_text(text + "\n", encoding="utf-8")
    return held
