"""Measure the gallery and score the rules on it: every case, variant, seed and width, and every healthy network.

python scripts/gallery.py measure gallery.jsonl [--kinds cases,healthy] [--seeds 5] [--only NAME]
python scripts/gallery.py score gallery.jsonl [--without HD101]
python scripts/gallery.py show gallery.jsonl --only NAME
python scripts/gallery.py leave-out gallery.jsonl    # every case without the rule that names it
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from strangers.gallery.case import match  # noqa: E402

from hessdiag.diagnosis import rules as causes  # noqa: E402
from hessdiag.results.findings import Finding  # noqa: E402
from hessdiag.results.signals import Signals  # noqa: E402

KINDS = ("cases", "extra", "unseen", "variants", "healthy", "apart")


@dataclass(frozen=True)
class Row:
    """One network of the gallery, and its signals."""

    kind: str
    name: str
    variant: str
    width: int
    seed: int
    guilty: tuple[str, ...]
    signals: Signals

    @property
    def place(self) -> str:
        """Kind and name."""
        return f"{self.kind}:{self.name}"

    def findings(self, without: str = "") -> tuple[Finding, ...]:
        """What the rules say, one of them left out."""
        if not without:
            return causes.find(self.signals)
        rules = causes.RULES
        try:
            causes.RULES = tuple(_silenced(rule, without) for rule in rules)  # type: ignore[assignment]
            return causes.find(self.signals)
        finally:
            causes.RULES = rules


def _silenced(rule: Any, name: str) -> Any:
    return lambda net: found if (found := rule(net)) and found.rule != name else None


def networks(kinds: Sequence[str], seeds: int, only: str = "") -> Iterator[tuple[dict[str, Any], Any, Any, Any, str]]:
    """Every network: what it is, the model, its inputs and targets, and the loss."""
    from strangers.gallery.apart import TABLES

    for kind in kinds:
        for case in TABLES[kind]:
            if only not in case.name:
                continue
            for seed in range(seeds):
                healthy = kind in ("healthy", "apart")
                widths = (0,) if healthy else case.widths
                for width in widths:
                    for variant in ("healthy",) if healthy else ("before", "after"):
                        guilty = case.guilty if variant == "before" else ()
                        what = {"kind": kind, "name": case.name, "variant": variant, "width": width, "seed": seed}
                        model = case.build(seed=seed) if healthy else case.build(variant, seed=seed, width=width)
                        batch = case.batch(seed=seed)
                        yield what | {"guilty": guilty}, model, *batch, case.loss


def measure(path: Path, kinds: Sequence[str], seeds: int, only: str) -> None:
    import hessdiag
    from hessdiag.results.records import dumps

    with path.open("w") as file:
        for what, model, inputs, targets, loss in networks(kinds, seeds, only):
            found = hessdiag.diagnose(model, inputs, targets, loss=loss, quick=True, seed=0).signals
            file.write(json.dumps(json.loads(dumps(what | {"signals": found}))) + "\n")
            print(*list(what.values())[:5], file=sys.stderr)


def load(files: Sequence[Path]) -> list[Row]:
    rows = []
    for file in files:
        for line in file.open():
            record = json.loads(line)
            signals = Signals.from_dict(record.pop("signals"))
            rows.append(Row(**(record | {"guilty": tuple(record["guilty"])}), signals=signals))
    return rows


def blamed(found: Sequence[Finding]) -> list[str]:
    """Blocks in the order in which a reader meets them."""
    return list(dict.fromkeys(name for finding in found for name in finding.blocks))


def label(found: Sequence[Finding]) -> str:
    return "+".join(f"{f.rule}{f.severity[0]}" for f in found[:3]) or "none"


def recalls(rows: Sequence[Row], without: str = "") -> dict[str, list[tuple[bool, bool, str]]]:
    """For each case, whether a guilty block comes first, and among the first three."""
    hits: dict[str, list[tuple[bool, bool, str]]] = defaultdict(list)
    for row in rows:
        if row.variant == "before":
            found = row.findings(without)
            guilty = [match(name, row.guilty) for name in blamed(found)[:3]]
            hits[row.place].append((any(guilty[:1]), any(guilty), label(found)))
    return hits


def score(rows: Sequence[Row], without: str = "") -> None:
    hits = recalls(rows, without)
    for place, results in hits.items():
        first, third = (sum(r[k] for r in results) for k in (0, 1))
        seen = dict(Counter(r[2] for r in results))
        print(f"{place:32} recall@1 {first}/{len(results)} recall@3 {third}/{len(results)}", seen)
    for kind in KINDS:
        flat = [r for place, results in hits.items() if place.startswith(kind + ":") for r in results]
        if flat:
            first, third = (sum(r[k] for r in flat) / len(flat) for k in (0, 1))
            print(f"{kind}: recall@1 {first:.3f} recall@3 {third:.3f} of {len(flat)}")
    alarms: dict[str, Counter[str]] = defaultdict(Counter)
    totals: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        if row.variant != "before":
            found = row.findings(without)
            totals[row.kind][found[0].severity if found else "none"] += 1
            alarms[f"{row.place}:{row.variant}"][label(found)] += 1
    for place, counter in alarms.items():
        if set(counter) != {"none"}:
            print(f"{place:50}", dict(counter))
    for kind, counter in totals.items():
        print(f"{kind}, healthy or repaired:", dict(counter))


def leave_out(rows: Sequence[Row]) -> None:
    """Every case without the rule that names it: is there a second witness?"""
    for place in dict.fromkeys(row.place for row in rows if row.variant == "before"):
        own = [row for row in rows if row.place == place and row.variant == "before"]
        found = own[0].findings()
        rule = found[0].rule if found else ""
        results = recalls(own, rule)[place]
        first, third = (sum(r[k] for r in results) for k in (0, 1))
        seen = dict(Counter(r[2] for r in results))
        print(f"{place:32} without {rule}: recall@1 {first}/{len(results)} recall@3 {third}/{len(results)}", seen)


def show(rows: Sequence[Row], only: str) -> None:
    for row in rows:
        if only in row.name and row.seed == 0:
            print("==", row.name, row.variant, row.width, *row.guilty)
            for f in row.findings():
                print(f"  {f.rule} {f.severity}: {f.message} {f.advice} [{f.value:.3g} {f.threshold:.3g}]")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("measure", "score", "show", "leave-out"))
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--only", default="")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--kinds", default="cases,healthy")
    parser.add_argument("--without", default="")
    options = parser.parse_args()
    if options.what == "measure":
        measure(options.files[0], options.kinds.split(","), options.seeds, options.only)
        return
    rows = load(options.files)
    if options.what == "score":
        score(rows, options.without)
    elif options.what == "show":
        show(rows, options.only)
    else:
        leave_out(rows)


if __name__ == "__main__":
    main()
