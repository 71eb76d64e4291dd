"""Write into docs/gallery.md what hessdiag says to the cases, and how they trained (from figures/gallery.json).

python scripts/gallery_page.py

What is said are the verdict and the findings that `hessdiag.diagnose` prints first. They follow from the signals alone,
so the curvature, which takes seconds, is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from strangers.gallery import CASES
from strangers.gallery.case import Case, Variant

import hessdiag
from hessdiag.results.findings import Finding, judge, told
from hessdiag.results.text_table import arranged

ROOT = Path(__file__).resolve().parent.parent
PAGE, TRAINED = ROOT / "docs" / "gallery.md", ROOT / "figures" / "gallery.json"
OPTIMIZERS = {"adam": "Adam", "sgd": "SGD"}


def _marked(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- {re.escape(name)} -->\n```text\n)(.*?)(^```$)", re.MULTILINE | re.DOTALL)


def shown(text: str, name: str) -> list[str]:
    """The lines of the output of that name."""
    found = _marked(name).search(text)
    assert found, f"the page has no output {name!r}"
    return found[2].splitlines()


def replaced(text: str, name: str, lines: Sequence[str]) -> str:
    """The page with another output of that name."""
    shown(text, name)
    body = "\n".join(lines) + "\n"
    return _marked(name).sub(lambda found: found[1] + body + found[3], text)


def summary(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line a case and optimiser: best rates, mean losses at the end, and whether the seeds' ranges are apart."""
    lines = [f"{'':20}{'':6}{'best rate':>20}{'loss at the end':>22}"]
    lines.append(f"{'':20}{'':6}{'before':>10}{'after':>10}{'before':>12}{'after':>10}  seeds apart")
    pairs = {(run["case"], run["optimizer"]): run for run in runs if run["variant"] == "before"}
    for (case, optimizer), before in pairs.items():
        after = next(r for r in runs if (r["case"], r["optimizer"], r["variant"]) == (case, optimizer, "after"))
        rates = "".join(f"{run['rate']:>10.2g}" for run in (before, after))
        losses = f"{_mean(before):>12}{_mean(after):>10}"
        lines.append(f"{case:20}{OPTIMIZERS[optimizer]:6}{rates}{losses}  {_apart(before, after)}")
    return lines


def _mean(run: Mapping[str, Any]) -> str:
    scores = run["scores"]
    return "diverges" if None in scores else f"{sum(scores) / len(scores):.3g}"


def _apart(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Whether every seed after the repair ends below every one before."""
    worst = max(float("inf") if score is None else score for score in after["scores"])
    best = min(float("inf") if score is None else score for score in before["scores"])
    return "yes" if worst < best else "no"


def told_of_training(runs: Sequence[Mapping[str, Any]], case: str) -> list[str]:
    """How the networks of a case trained, each at the best of the rates that were tried."""
    own = [run for run in runs if run["case"] == case]
    first = own[0]
    lines = [f"{first['network']}; {first['data']}; {first['steps']} steps"]
    header = f"{'':14}{'rates tried':>22}{'best rate':>12}{'at the start':>14}{'at the end, three seeds':>32}"
    lines.append(header)
    for run in own:
        tried = [float(rate) for rate in run["tried"]]
        span = f"{len(tried)}, {min(tried):.2g} to {max(tried):.2g}"
        start = sum(run["first"]) / len(run["first"])
        ends = "  ".join("diverges" if score is None else f"{score:.3g}" for score in run["scores"])
        label = f"{OPTIMIZERS[run['optimizer']]}, {run['variant']}"
        lines.append(f"{label:14}{span:>22}{run['rate']:>12.2g}{start:>14.3g}{ends:>32}")
    return lines


@cache
def runs() -> list[dict[str, Any]]:
    """How the networks trained."""
    found: list[dict[str, Any]] = json.loads(TRAINED.read_text(encoding="utf-8"))["runs"]
    return found


@cache
def findings_of(case: Case, variant: Variant) -> tuple[Finding, ...]:
    """Findings on a case at the width that it was trained at, seed 0."""
    inputs, targets = case.batch()
    network = next(run["network"] for run in runs() if run["case"] == case.name)
    model = case.build(variant, width=int(re.findall(r"width (\d+)", network)[0]))
    return tuple(hessdiag.diagnose(model, inputs, targets, loss=case.loss, quick=True).findings)


def said(case: Case, variant: Variant) -> list[str]:
    """The same as printed."""
    findings = findings_of(case, variant)
    return arranged([[judge(findings)[1]], *map(told, findings)]).splitlines()


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for case in CASES:
        for variant in ("before", "after"):
            text = replaced(text, f"{case.name}, {variant}", said(case, variant))  # type: ignore[arg-type]
        text = replaced(text, f"{case.name}, trained", told_of_training(runs(), case.name))
    text = replaced(text, "summary", summary(runs()))
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
