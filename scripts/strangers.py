"""Score the rules on all networks, healthy and with one planted fault: docs/strangers.md.

    python scripts/strangers.py                     # all without curvature, a few minutes on one core
    python scripts/strangers.py "nanoGPT" "U-Net"   # some, beside what figures/strangers.json holds of the others
    python scripts/strangers.py --cost              # what each fault costs in training
    python scripts/strangers.py --trained           # what is said of healthy networks after training
    python scripts/strangers.py --repair NAMES      # what the advice brings back
    python scripts/strangers.py --fit               # which networks do not fit their batch
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
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from strangers import STRANGERS, Stranger, Task, data
from strangers.gallery import enter
from strangers.page import AFTER, COSTS, FITS, PAGE, PAIRS, REPAIRS, RESULTS, counts, grave, page, told

import hessdiag
from hessdiag.results.findings import Finding

Mend = Callable[[torch.nn.Module], object]
GUILTY = 3  # of the names of a finding, the most suspicious first
STEPS = 5  # timed
TRIED, RATE = (1e-3, 1e-2), 1e-3  # of Adam
SHORT, TRAINED = 60, 200  # steps


def measure(stranger: Stranger, *, planted: bool, full: bool = False) -> dict[str, Any]:
    """What one call of `diagnose` says, or the sentence or the error in its place."""
    torch.manual_seed(0)
    task = stranger.task(planted)
    began = time.process_time()
    found = said(task, quick=not full)
    if full and not planted and "findings" in found:
        found |= {"steps": round((time.process_time() - began) / step_time(task), 1)}
    return found


def said(task: Task, *, quick: bool = True, fit: bool = False) -> dict[str, Any]:
    try:
        report = hessdiag.diagnose(task.model, *task.arguments, **task.options, progress=False, quick=quick, fit=fit)
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
            return "first" if not blamed or re.search(stranger.guilty, blamed[0]) else "three"
        blamed += [name for name in each["blocks"] if name not in blamed]
    hits = [bool(re.search(stranger.guilty, name)) for name in blamed[:GUILTY]]
    return "first" if any(hits[:1]) else "three" if any(hits) else "no"


def cost(stranger: Stranger) -> dict[str, Any]:
    """What the fault costs: losses at the start and the end of the healthy twin and the other, at the better rate."""
    if stranger.blind and not stranger.fault:
        for rate in TRIED:  # the first that halves the loss
            start, end = losses(stranger, False, rate, TRAINED)[1]
            if end < start / 2:
                break
        return {"start": start, "end": end}
    steps = TRAINED if stranger.blind else SHORT
    runs = {(planted, rate): losses(stranger, planted, rate, steps)[1] for planted in (False, True) for rate in TRIED}
    ends = [min(runs[planted, rate][-1] for rate in TRIED) for planted in (False, True)]
    return {"starts": [runs[planted, TRIED[0]][0] for planted in (False, True)], "ends": ends} if stranger.fault else {}


def losses(
    stranger: Stranger, planted: bool, rate: float, steps: int = SHORT, mend: Mend = lambda model: None
) -> tuple[Task, tuple[float, float]]:
    """Train on the one batch: the first loss, and the mean of the last five."""
    torch.manual_seed(0)
    task, found = stranger.task(planted), []
    mend(task.model)
    optimizer = torch.optim.Adam([p for p in task.model.parameters() if p.requires_grad], lr=rate)
    for _ in range(steps):
        optimizer.zero_grad()
        try:
            (loss := task.loss()).backward()
        except RuntimeError:  # the loss takes no such outputs
            found += [float("inf")] * 5
            break
        optimizer.step()
        found.append(float(loss.detach()))
    last = sum(found[-5:]) / 5
    return task, (found[0], last if last == last else float("inf"))


def repair(stranger: Stranger) -> dict[str, Any]:
    """The loss at the end where the first advice is followed, if it is a line of code that changes weights."""
    torch.manual_seed(0)
    task = stranger.task(True)
    try:
        report = hessdiag.diagnose(task.model, *task.arguments, **task.options, progress=False, quick=True)
    except hessdiag.HessdiagError as error:
        return {"rule": "refused", "advice": str(error)}
    first = next((each for each in report.findings if each.severity != "note"), None)
    if first is None:
        return {"rule": "none", "advice": "none"}
    if (mend := mending(first)) is None:
        return {"rule": first.rule, "advice": first.advice}
    ends = [losses(stranger, True, rate, mend=mend)[1][1] for rate in TRIED]
    return {"rule": first.rule, "advice": first.advice, "end": min(ends)}


def mending(finding: Finding) -> Mend | None:
    """What the advice of a finding does to a model: multiply weights, start some at a constant, or draw them anew."""
    advice = finding.advice
    told = advice.partition("ultiply ")[2]
    if factors := re.findall(r"(?:each of )?(\S.*?) by ([\d.e-]+\d)(?:, )?", told):
        each = [(name, float(by)) for names, by in factors for name in names.split(", ")]
        return lambda model: [w.mul_(by) for name, by in each for w in named_in(model, name)]
    if constant := re.search(r"nn\.init\.(zeros_|ones_)\(", advice):
        zeros = constant[1] == "zeros_"
        chosen = [name for name in finding.blocks if not zeros or "bias" in name]
        return lambda model: [model.get_parameter(name).data.fill_(1 - zeros) for name in chosen]
    named = re.search(r"Draw (.+?) (at random|anew)", advice)
    drawn = re.split(r", | and \d+ more", named[1]) if named else [o for o in finding.blocks if "bias" not in o]
    if "`nn.init.kaiming_normal_`)" in advice:
        draw = partial(torch.nn.init.kaiming_normal_, nonlinearity="relu")
    elif deviation := re.search(r"standard deviation ([\d.e-]+\d)", advice) if "normal, " in advice else None:
        draw = partial(torch.nn.init.normal_, std=float(deviation[1]))
    else:
        return None
    return lambda model: [draw(w) for name in drawn if name for w in named_in(model, name) if w.dim() > 1]


def named_in(model: torch.nn.Module, name: str) -> list[torch.Tensor]:
    """The weights of a name, or of several layers that stand in one, as `blocks.#.fc ×2` or `layers 0–4 ×3`."""
    plain = re.sub(r"^layers? | ×\d+$", "", name)
    pattern = re.sub(r"\d+–\d+", "#", plain).replace(".", r"\.").replace("#", r"\d+")
    held = model.named_parameters()
    return [w.data for each, w in held if each == name or re.fullmatch(rf"{pattern}(\.weight)?", each)]


def trained(stranger: Stranger) -> dict[str, Any]:
    """What is said of the healthy network once it is fitted to its batch: on that, and on other examples."""
    task, (start, end) = losses(stranger, False, RATE, TRAINED)
    data.other = 1
    others = stranger.task(False).arguments
    data.other = 0
    return {"start": start, "end": end} | {
        label: said(Task(task.model, given, task.loss, task.options))
        for label, given in (("fitted", task.arguments), ("held out", others))
    }


def fits(stranger: Stranger) -> dict[str, bool | None]:
    """Whether the healthy network and its twin are found not to fit their batch; None where they are not measured."""
    found: dict[str, bool | None] = {}
    for planted in (False, True) if stranger.fault else (False,):
        torch.manual_seed(0)
        findings = said(stranger.task(planted), fit=True).get("findings")
        found["planted" if planted else "healthy"] = (
            None if findings is None else any(each["rule"] == "HD121" for each in findings)
        )
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
    beside = {"--cost": (COSTS, cost), "--trained": (AFTER, trained), "--pairs": (PAIRS, pairs),
              "--repair": (REPAIRS, repair), "--fit": (FITS, fits)}  # fmt: skip
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
    print(*counts(held["now"], held["first"]), sep="\n")


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
