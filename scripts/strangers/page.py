"""The page on strangers' networks, of the numbers that are kept of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from strangers.case import STRANGERS

ROOT = Path(__file__).resolve().parents[2]
RESULTS, PAGE = ROOT / "figures" / "strangers.json", ROOT / "docs" / "strangers.md"
RATES = ROOT / "figures" / "strangers_rates.json"
GRAVE = ("fault", "warning")
NEAR = 4
ASKED = 40  # training steps, in the median


def grave(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Its findings but for notes."""
    return [each for each in found.get("findings", []) if each["severity"] in GRAVE]


def told(found: Mapping[str, Any]) -> str:
    """The verdict with the rules behind it."""
    rules = ", ".join(dict.fromkeys(f"{each['rule']} {each['severity']}" for each in grave(found)))
    if found["verdict"] == "undecided" and found.get("missing"):
        return f"undecided: {found['missing']}"
    return found["verdict"] + (f" ({rules})" if rules else "")


def counts(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Sum up a table, a line each."""
    healthy = [each["healthy"] for each in rows.values()]
    measured = [each for each in healthy if each["verdict"] not in ("refused", "crashed")]
    clean, faults = sum(not grave(each) for each in measured), [each["named"] for each in rows.values()]
    found = len(faults) - sum(each in ("no", "refused", "crashed") for each in faults)
    return [
        f"- {len(measured)} of {len(rows)} measured, {clean} of these without warning or fault",
        f"- median time {median(each['steps'] for each in measured):.0f} training steps; asked: at most {ASKED}",
        f"- {found} of {len(rows)} planted faults named, {faults.count('first')} of these first",
    ]


def table(rows: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield "| network | convention | verdict | mode | steps | planted fault | named |"
    yield "|---|---|---|---|---|---|---|"
    for name, each in rows.items():
        stranger, healthy = STRANGERS[name], each["healthy"]
        cells = [name, stranger.convention, told(healthy), healthy.get("mode", "–"), healthy.get("steps", "–")]
        yield "| " + " | ".join(str(cell) for cell in [*cells, stranger.fault, each["named"]]) + " |"


def rates(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Predicted learning rates beside the best ones."""
    ratios = [max(row["predicted"] / row["best"], row["best"] / row["predicted"]) for row in rows]
    yield f"{sum(ratio <= NEAR for ratio in ratios)} of {len(rows)} are within a factor {NEAR} of the best."
    yield ""
    yield "| network | optimizer | predicted | best | good | off by | steps |"
    yield "|---|---|---|---|---|---|---|"
    for row, ratio in zip(rows, ratios, strict=True):
        numbers = [f"{row['predicted']:.2g}", f"{row['best']:.2g}", f"{row['low']:.2g} to {row['high']:.2g}"]
        cells = [row["network"], row["optimizer"], *numbers, f"×{ratio:.1f}", str(len(row["along"]))]
        yield "| " + " | ".join(cells) + " |"


def page(found: Mapping[str, Any], swept: Sequence[Mapping[str, Any]]) -> str:
    """Both tables, the last one first, and the learning rates."""
    now, first = found["now"], found["first"]
    refused = [
        f"| {name} | {each['healthy']['said']} |" for name, each in now.items()
        if each["healthy"]["verdict"] in ("refused", "crashed")
    ]  # fmt: skip
    parts = [
        "# Strangers' code",
        "",
        "Networks written after public architectures with their authors' conventions for losses, modes",
        "and batches, each measured with one call of `hessdiag.diagnose` as its author has it: just built, in",
        "training mode. Each was measured once more with one planted fault. `scripts/strangers.py` measures",
        "them and writes this page; the networks are in `scripts/strangers/`. A call that was refused with",
        'what to type is repeated as told: `matrix="hessian"` for GCN, the loss as a function for MAE.',
        "",
        "*Steps* is the time of the call over that of one training step of the same network and batch.",
        "*Named* says whether a warning or fault that the healthy network does not get names the planted",
        "fault: its layer among the first three, or the fault in words; *first* where it is the first of the",
        "findings.",
        "",
        *counts(now),
        "",
        *table(now),
        "",
        *(["## Refused", "", "| network | what was said |", "|---|---|", *refused, ""] if refused else []),
        "## Learning rates",
        "",
        "Six of the networks were trained on CIFAR-10 for 200 steps at rates that are powers of two, in",
        "batches of 32 (`scripts/strangers_rates.py`). *Best* is the rate whose loss is lowest over the last",
        "25 steps, *good* are those that lose at most 5 % of its gain, and *predicted* is what",
        "`hessdiag.learning_rates` says before training, along as many virtual *steps*.",
        "",
        *rates(swept),
        "",
        "## Before anything was mended",
        "",
        "The same networks, measured before their findings were looked at.",
        "",
        *counts(first),
        "",
        *table(first),
    ]
    return "\n".join(parts) + "\n"
