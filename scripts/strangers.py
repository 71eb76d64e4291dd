"""Measure strangers' networks with one call each, healthy and with one planted fault: docs/strangers.md.

    python scripts/strangers.py                     # all, a few minutes on one core
    python scripts/strangers.py "nanoGPT" "U-Net"   # some, beside what figures/strangers.json holds of the others

A network is as its author has it: just built, in training mode, with its own loss and batch. The time is that of
`hessdiag.diagnose` over that of one training step (forward, backward, SGD) of the same network and batch. What
`hessdiag` first said of a network stays in the file beside what it says now.
"""

from __future__ import annotations

import copy
import json
import re
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import torch
from strangers import STRANGERS, Stranger, Task
from strangers.page import PAGE, RATES, RESULTS, counts, grave, page, told

import hessdiag

GUILTY = 3  # of the names of a finding, the most suspicious first
STEPS = 5  # timed


def measure(stranger: Stranger, *, planted: bool) -> dict[str, Any]:
    """What one call of `diagnose` says, or the sentence or the error in its place."""
    torch.manual_seed(0)
    task = stranger.task(planted)
    began = time.process_time()
    try:
        report = hessdiag.diagnose(task.model, *task.arguments, **task.options, progress=False)
    except hessdiag.HessdiagError as error:
        return {"verdict": "refused", "said": str(error)}
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        return {"verdict": "crashed", "said": f"{said} ({Path(where.filename).name}:{where.lineno})"}
    seconds = time.process_time() - began
    findings = [
        {"rule": each.rule, "severity": each.severity, "blocks": each.blocks[:GUILTY], "message": each.message,
         "advice": each.advice}
        for each in report.findings
    ]  # fmt: skip
    found: dict[str, Any] = {"verdict": report.verdict.level, "mode": report.mode, "method": report.method}
    found |= {"findings": findings, "missing": "" if report.signals is not None else report.signals_missing}
    return found | ({} if planted else {"steps": round(seconds / step_time(task), 1), "seconds": round(seconds, 2)})


def step_time(task: Task) -> float:
    """Seconds of one training step: the median of a few."""
    model = copy.deepcopy(task.model)  # the task's own one is what its loss reads: put back afterwards
    optimizer, times = torch.optim.SGD([p for p in task.model.parameters() if p.requires_grad], lr=1e-6), []
    for _ in range(STEPS + 1):
        began = time.process_time()
        optimizer.zero_grad()
        task.loss().backward()
        optimizer.step()
        times.append(time.process_time() - began)
    task.model.load_state_dict(model.state_dict())
    return median(times[1:])


def named(stranger: Stranger, found: Mapping[str, Any], healthy: Mapping[str, Any]) -> str:
    """Whether a warning or fault that the healthy twin lacks names the planted fault: "first", "yes" or "no"."""
    if found["verdict"] in ("refused", "crashed"):
        return str(found["verdict"])
    before = {(each["rule"], tuple(each["blocks"])) for each in grave(healthy)}
    for place, each in enumerate(grave(found)):
        new = (each["rule"], tuple(each["blocks"])) not in before
        blocks = any(re.search(stranger.guilty, name) for name in each["blocks"])
        if new and (blocks or re.search(stranger.says, each["message"], re.IGNORECASE)):
            return "first" if place == 0 else "yes"
    return "no"


def row(stranger: Stranger) -> dict[str, Any]:
    healthy, planted = (measure(stranger, planted=planted) for planted in (False, True))
    return {"healthy": healthy, "planted": planted, "named": named(stranger, planted, healthy)}


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    asked = sys.argv[1:] or list(STRANGERS)
    held = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"first": {}, "now": {}}
    hessdiag.diagnose(torch.nn.Linear(2, 2), torch.randn(4, 2))  # what is imported at the first call
    for name in asked:
        held["now"][name] = row(STRANGERS[name])
        held["first"].setdefault(name, held["now"][name])
        print(f"{name:24}{told(held['now'][name]['healthy'])[:60]:62}{held['now'][name]['named']}", flush=True)
        order: Callable[[str], int] = list(STRANGERS).index
        held = {key: {each: held[key][each] for each in sorted(held[key], key=order)} for key in ("first", "now")}
        RESULTS.write_text(json.dumps(held, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(page(held, json.loads(RATES.read_text(encoding="utf-8"))["rows"]), encoding="utf-8")
    print(*counts(held["now"]), sep="\n")


if __name__ == "__main__":
    main()
