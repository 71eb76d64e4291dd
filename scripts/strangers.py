"""Score the rules on all networks, healthy and with one planted fault: docs/strangers.md.

    python scripts/strangers.py                     # all without curvature, a few minutes on one core
    python scripts/strangers.py "nanoGPT" "U-Net"   # some, beside what figures/strangers.json holds of the others
    python scripts/strangers.py --train             # what each fault costs in training, and what is said of the trained
    python scripts/strangers.py --pairs             # whether findings depend on seed and number of examples
    python scripts/strangers.py --full              # with curvature: the time of a call in training steps

A network is as its author has it: just built, in training mode, with its own loss and batch. What `hessdiag` first said
of a network stays in the file beside what it says now.
"""

from __future__ import annotations

import json
import re
import sys
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from strangers import STRANGERS, Stranger, Task
from strangers.gallery import enter
from strangers.page import PAGE, PAIRS, RESULTS, TRAINING, counts, grave, page, told

import hessdiag

GUILTY = 3  # of the names of a finding, the most suspicious first
STEPS = 5  # timed
TRAINED, TRIED = 60, (1e-3, 1e-2)  # steps and rates of Adam


def measure(stranger: Stranger, *, planted: bool, full: bool = False) -> dict[str, Any]:
    """What one call of `diagnose` says, or the sentence or the error in its place."""
    torch.manual_seed(0)
    task = stranger.task(planted)
    began = time.process_time()
    found = said(task, quick=not full)
    if full and not planted and "findings" in found:
        found |= {"steps": round((time.process_time() - began) / step_time(task), 1)}
    return found


def said(task: Task, *, quick: bool = True) -> dict[str, Any]:
    try:
        report = hessdiag.diagnose(task.model, *task.arguments, **task.options, progress=False, quick=quick)
    except hessdiag.HessdiagError as error:
        return {"verdict": "refused", "said": str(error)}
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        return {"verdict": "crashed", "said": f"{reason} ({Path(where.filename).name}:{where.lineno})"}
    findings = [
        {"rule": each.rule, "severity": each.severity, "blocks": each.blocks[:GUILTY], "message": each.message,
         "advice": each.advice}
        for each in report.findings
    ]  # fmt: skip
    chance = report.signals.chance_loss if report.signals is not None else float("nan")
    found: dict[str, Any] = {"verdict": report.verdict.level, "mode": report.mode, "findings": findings}
    missing = "" if report.signals is not None else report.signals_missing
    return found | {"missing": missing, "chance": chance if chance == chance else None}


def step_time(task: Task) -> float:
    """Seconds of one training step: the median of a few."""
    optimizer, times = torch.optim.SGD([p for p in task.model.parameters() if p.requires_grad], lr=1e-6), []
    for _ in range(STEPS + 1):
        began = time.process_time()
        optimizer.zero_grad()
        task.loss().backward()
        optimizer.step()
        times.append(time.process_time() - began)
    return median(times[1:])


def named(stranger: Stranger, found: Mapping[str, Any]) -> str:
    """Where the fault is named: "first" or "three" of the layers in warnings and faults, or "no"."""
    if "findings" not in found:
        return "first" if re.search(stranger.says, found["said"], re.IGNORECASE) else str(found["verdict"])
    blamed: list[str] = []
    for each in grave(found):
        if re.search(stranger.says, each["message"], re.IGNORECASE):
            return "three" if blamed else "first"
        blamed += [name for name in each["blocks"] if name not in blamed]
    hits = [bool(re.search(stranger.guilty, name)) for name in blamed[:GUILTY]]
    return "first" if any(hits[:1]) else "three" if any(hits) else "no"


def train(stranger: Stranger) -> dict[str, Any]:
    """What the fault costs: the share of the healthy twin's progress that is lost, each at its better rate."""
    ends: dict[bool, list[float]] = {False: [], True: []}
    starts: dict[bool, float] = {}
    after: dict[str, Any] = {}
    for planted in (False, True) if stranger.fault else (False,):
        for rate in TRIED:
            torch.manual_seed(0)
            task = stranger.task(planted)
            optimizer = torch.optim.Adam([p for p in task.model.parameters() if p.requires_grad], lr=rate)
            losses = []
            for _ in range(TRAINED):
                optimizer.zero_grad()
                try:
                    (loss := task.loss()).backward()
                except RuntimeError:  # the loss takes no such outputs
                    losses += [float("inf")] * 5
                    break
                optimizer.step()
                losses.append(float(loss.detach()))
            starts[planted] = losses[0]
            last = sum(losses[-5:]) / 5
            ends[planted].append(last if last == last else float("inf"))
            if not planted and last == min(ends[False]):
                after = said(task)
    found: dict[str, Any] = {"trained": after}
    if stranger.fault:
        found |= {"starts": [starts[False], starts[True]], "ends": [min(ends[False]), min(ends[True])]}
    return found


def pairs(stranger: Stranger) -> dict[str, Any]:
    """Rules and first layers of warnings and faults, with other seeds and half of the examples."""
    found: dict[str, Any] = {}
    for planted in (False, True) if stranger.fault else (False,):
        for label, seed, share in (("as is", 0, 1.0), ("seed", 1, 1.0), ("quarter", 0, 0.25)):
            torch.manual_seed(seed)
            task = stranger.task(planted)
            given = task.arguments
            if share < 1 and all(isinstance(each, torch.Tensor) for each in given) and len(given) == 2:
                keep = max(8, int(share * len(given[0])))
                given = tuple(each[:keep] for each in given)
            told_ = said(Task(task.model, given, task.loss, task.options))
            blocks = [[each["rule"], re.sub(r"\d+", "#", (each["blocks"] or [""])[0])] for each in grave(told_)]
            found[f"{'planted' if planted else 'healthy'}, {label}"] = blocks
    return found


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    enter()
    hessdiag.diagnose(torch.nn.Linear(2, 2), torch.randn(4, 2))  # what is imported at the first call
    flags = [each for each in sys.argv[1:] if each.startswith("--")]
    asked = [each for each in sys.argv[1:] if each not in flags] or list(STRANGERS)
    beside = {"--train": (TRAINING, train), "--pairs": (PAIRS, pairs)}
    for flag in [each for each in flags if each in beside]:
        path, run = beside[flag]
        kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        for name in asked if sys.argv[2:] else [each for each in asked if each not in kept]:
            kept[name] = run(STRANGERS[name])
            path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if not flags or "--full" in flags:
        score(asked, full="--full" in flags)
    held = json.loads(RESULTS.read_text(encoding="utf-8"))
    PAGE.write_text(page(held), encoding="utf-8")
    print(*counts(held["now"]), sep="\n")


def score(asked: Sequence[str], *, full: bool) -> None:
    held = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"first": {}, "now": {}}
    for name in asked:
        case, before = STRANGERS[name], held["now"].get(name, {}).get("healthy", {})
        now: dict[str, Any] = {"healthy": measure(case, planted=False, full=full)}
        now["healthy"] |= {"steps": before["steps"]} if "steps" in before and not full else {}
        if case.fault:
            now["planted"] = measure(case, planted=True)
            now["named"] = named(case, now["planted"])
        held["now"][name] = now
        held["first"].setdefault(name, now)
        print(f"{name:30}{told(now['healthy'])[:60]:62}{now.get('named', '')}", flush=True)
        held = {key: {each: held[key][each] for each in STRANGERS if each in held[key]} for key in ("first", "now")}
        RESULTS.write_text(json.dumps(held, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
