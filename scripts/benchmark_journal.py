"""Items of a benchmark, kept one by one as they come, so that a run that is stopped loses nothing; and their table."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from alternating import clock_of
from floors import Peak
from rich.table import Table

from hessdiag.results.files import write_text
from hessdiag.results.text_table import make_table, plain_text

Item = dict[str, Any]


@dataclass
class BenchmarkJournal:
    """A JSON file of items by name."""

    path: Path
    schema: str

    def items(self) -> dict[str, Item]:
        """What the file holds; nothing where there is none."""
        if not self.path.exists():
            return {}
        held: dict[str, Item] = json.loads(self.path.read_text(encoding="utf-8"))["items"]
        return held

    def keep(self, name: str, item: Item) -> None:
        """Add an item, or put it in place of that of the same name."""
        self._write(self.items() | {name: item})

    def forget(self, names: Sequence[str]) -> None:
        """Drop items, so that they are measured again."""
        held = self.items()
        if any(name in held for name in names):
            self._write({name: item for name, item in held.items() if name not in names})

    def missing(self, names: Sequence[str]) -> list[str]:
        """Names of what has not been measured."""
        held = self.items()
        return [name for name in names if name not in held]

    def _write(self, items: Mapping[str, Item]) -> None:
        rows = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in items.items())
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.path, f'{{\n "schema": {json.dumps(self.schema)},\n "items": {{\n{rows}\n }}\n}}\n')


def machine(device: torch.device, peak: Peak) -> dict[str, Any]:
    """On what times were taken."""
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return {
        "device": gpu or _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "clock": clock_of(device)[0],
        "peak operations": peak.operations,
        "peak bytes": peak.bytes,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def table_of(items: Mapping[str, Item]) -> str:
    """All items as they are printed: times in gradients, errors, and how far the best is from the floor."""
    return plain_text([_times_table(items), *_memory_table(items)])


def _times_table(items: Mapping[str, Item]) -> Table:
    rows = []
    for item in items.values():
        rows.append((item["title"], *[""] * 6))
        own, unit = (item["methods"][name]["seconds"]["median"] for name in ("hessdiag", "gradient"))
        rows += [(f"  {name}", *_cells(method, own)) for name, method in item["methods"].items()]
        floor = item["floor"]["seconds"]
        cells = (f"{floor:.3g}", f"{floor / unit:.3g}", "", f"{floor / own:.2g}×", "", "")
        rows.append((f"  floor: {item['floor']['of']}", *cells))
    return make_table(("work, by", "seconds", "gradients", "range", "hessdiag's", "error", "worst"), rows)


def _cells(method: Item, own: float) -> tuple[str, ...]:
    if reason := method.get("skipped"):
        return (reason.split(" (")[0], *[""] * 5)
    gradients, error = method["gradients"], method.get("error")
    times = method["seconds"]["median"]
    return (
        f"{times:.3g}",
        f"{gradients['median']:.3g}",
        f"{gradients['least']:.3g}-{gradients['most']:.3g}",
        f"{times / own:.3g}×",
        *("" if error is None else f"{100 * error[kind]:.2g} %" for kind in ("median", "worst")),
    )


def _memory_table(items: Mapping[str, Item]) -> list[str | Table]:
    rows = []
    for item in items.values():
        if memory := item.get("memory"):
            cells = (memory["at rest"], memory["gradient"], memory["hessdiag"])
            ratio = memory["hessdiag"] / memory["gradient"]
            rows.append((item["title"], *(f"{cell / 2**30:.2f}" for cell in cells), f"{ratio:.2f}×"))
    return ["", make_table(("memory, GiB", "at rest", "gradient", "hessdiag", "ratio"), rows)] if rows else []


def run_items(
    journal: BenchmarkJournal, items: Mapping[str, Callable[[], Item]], say: Callable[[str], None]
) -> dict[str, Item]:
    """Measure what the journal does not hold, keep each as it comes, and return all that were asked for and came out.

    One whose process fails, as for want of memory, is said and left out.
    """
    for name in journal.missing(list(items)):
        say(name)
        try:
            journal.keep(name, items[name]())
        except subprocess.CalledProcessError as error:
            last = (error.stderr or "").strip().splitlines()[-1:] or ["it said nothing"]
            say(f"{name} failed with exit status {error.returncode}: {last[0]}")
    held = journal.items()
    return {name: held[name] for name in items if name in held}
