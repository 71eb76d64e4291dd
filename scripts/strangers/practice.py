"""Diagnose networks as practitioners write them, healthy and with one mistake: figures/practice.json.

    python scripts/strangers/practice.py            # all, a few minutes on one core
    python scripts/strangers/practice.py vit dlrm   # some

Their authors wrote them from memory, as tutorials, notebooks and repositories have them, without sight of the rules and
of what they say of any network; they trained both twins for 150 steps on fresh batches, noted what share of the healthy
one's progress the mistake costs, and judged whether the guilty layer is named ("named": first, three, no). That, and
what was said at first, stays in the file beside what is said now.
"""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import hessdiag

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parents[1] / "figures" / "practice.json"
Twin = tuple[torch.nn.Module, Any, Any, dict[str, Any]]


def twins() -> Iterator[tuple[str, bool, Twin]]:
    """By name, whether the mistake is in, and what `hessdiag.diagnose` is given."""
    sys.path.insert(0, str(HERE / "practised"))
    for path in sorted((HERE / "practised").glob("nets_*.py")):
        importlib.import_module(path.stem)
    import common
    import harness

    for name, (make, bug, _) in harness.CASES.items():
        for planted in (False, True) if bug else (False,):
            parts = make(planted)
            torch.manual_seed(0)
            model, (x, t) = parts["model"](), parts["data"](12345)
            options = {"loss": parts["loss"]} | {k: v for k, v in parts.get("diag", {}).items() if v is not None}
            yield f"{name} f", planted, (model, x, None if options.pop("targets_none", 0) else t, options)
    for name, entry in common.CASES.items():
        for planted in (False, True) if entry["bug"] else (False,):
            torch.manual_seed(0)
            parts = entry["make"](planted)
            x, t = parts["batch"](common.G(5))
            yield f"{name} e", planted, (parts["model"], x, t, {"loss": parts["loss"]} | entry["options"])


def said(model: torch.nn.Module, x: Any, t: Any, options: dict[str, Any]) -> list[str]:
    """Warnings and faults, gravest first, or the refusal."""
    try:
        report = hessdiag.diagnose(model, x, t, quick=True, progress=False, **options)
    except hessdiag.HessdiagError as error:
        return [f"refused: {error}"]
    return [f"{each.rule} {each.severity}: {each.message}" for each in report.findings if each.severity != "note"]


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    held = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    for name, planted, twin in twins():
        if not sys.argv[1:] or name.split()[0] in sys.argv[1:]:
            told = held.setdefault(name, {}).setdefault("planted" if planted else "healthy", {})
            told["now"] = said(*twin)
            told.setdefault("first", told["now"])
            print(name, "planted" if planted else "healthy", *told["now"], sep=" | ", flush=True)
    RESULTS.write_text(json.dumps(held, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
