"""Diagnose networks as practitioners write them, healthy and with one mistake: figures/practice.json.

    python scripts/strangers/practice.py            # all, some minutes on one core
    python scripts/strangers/practice.py vit dlrm   # some

Their authors wrote them from memory, as tutorials and repositories have them (e, f, u, x), after public reports (a-d,
g, h, j, l-t, v, w, y, z, ab-am), or as well-known networks with slips of one line (i, k), without sight of the rules
and of what they say of any network; they trained both twins for 150 steps on fresh batches, noted what share of the
healthy one's progress it costs, and judged whether the guilty layer is named ("named": first, three, no). That, and
what was said at first, stays here.
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


def registered(folder: Path) -> Iterator[tuple[str, str, Any, bool | str | None]]:
    """Whether healthy or planted, name, function and its argument, of all networks in a folder."""
    known = set(sys.modules)
    sys.path[:0] = [str(folder), str(folder.parent)]  # where some share what they begin with
    modules = [importlib.import_module(path.stem) for path in sorted(folder.glob("*.py"))]
    del sys.path[:2]
    for name in {*sys.modules} - known:  # those of other folders have the same names
        if Path(getattr(sys.modules[name], "__file__", None) or "").parent in (folder, folder.parent):
            del sys.modules[name]
    cases, nets = ({k: v for m in modules for k, v in getattr(m, name, {}).items()} for name in ("CASES", "NETS"))
    for name, (make, slips) in nets.items():
        yield "healthy", name, make, None
        yield from (("planted", f"{name}.{slip}", make, slip) for slip in slips)
    for name, case in cases.items():
        make, bug = (case["make"], case["bug"]) if isinstance(case, dict) else case[:2]
        options = case["options"] if isinstance(case, dict) else {}
        for twin, planted in (("healthy", False), ("planted", True))[: 2 if bug else 1]:
            yield twin, name, lambda planted, make=make, options=options: make(planted) | {"options": options}, planted


def twins() -> Iterator[tuple[str, str, Twin]]:
    """By name, whether healthy or planted, and what `hessdiag.diagnose` is given."""
    for folder in sorted(path for path in (HERE / "practised").iterdir() if any(path.glob("nets_*.py"))):
        for twin, name, make, argument in registered(folder):
            parts = make(argument)
            torch.manual_seed(0)
            model = parts["model"] if isinstance(parts["model"], torch.nn.Module) else parts["model"]()
            batch = parts.get("batch")
            x, t = batch(torch.Generator().manual_seed(5)) if batch else parts["data"](12345)
            options = {"loss": parts["loss"]} | parts.get("options", {}) | parts.get("diag", {})
            t = None if options.pop("targets_none", 0) else t
            yield f"{name} {folder.name}", twin, (model, x, t, {k: v for k, v in options.items() if v is not None})


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
    for name, which, twin in twins():
        if not sys.argv[1:] or name.split()[0] in sys.argv[1:]:
            told = held.setdefault(name, {}).setdefault(which, {})
            told["now"] = said(*twin)
            told.setdefault("first", told["now"])
            print(name, which, *told["now"], sep=" | ", flush=True)
    RESULTS.write_text(json.dumps(held, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
