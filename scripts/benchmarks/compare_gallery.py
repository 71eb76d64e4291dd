"""Measure how often a comparison names the guilty block first, over the gallery: reports first, then the scores.

python scripts/benchmarks/compare_gallery.py collect --reports FOLDER [--kinds cases,...] [--seeds 3]
python scripts/benchmarks/compare_gallery.py score --reports FOLDER --out figures/comparison.json
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from strangers.gallery.apart import TABLES  # noqa: E402

LANGUAGE = (128, 192, 256)  # smaller than the gallery's own: a language model's outputs are what takes time
WITHOUT_REPAIR = ("healthy", "apart")
OF_DATA = ("raw-inputs",)  # the data are at fault, so that both networks are the same


def collect(folder: Path, kinds: list[str], seeds: int, widths: int, only: str) -> None:
    """Write the report of every network that has none yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind, case, variant, width, seed in networks(kinds, seeds, widths):
        path = folder / f"{kind}--{case.name}--{variant}--{width}--{seed}.json"
        if path.exists() or only not in case.name:
            continue
        start = time.monotonic()
        try:
            measure(kind, case, variant, width, seed).to_json(path)
            print(f"{path.stem} {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)
        except Exception as error:  # one network less is no reason to stop
            print(f"{path.stem}: {error!r:.300}", file=sys.stderr, flush=True)


def networks(kinds: list[str], seeds: int, widths: int) -> Iterator[tuple[str, Any, str, int, int]]:
    for kind in kinds:
        for case in TABLES[kind]:
            if kind in WITHOUT_REPAIR:
                yield from ((kind, case, "healthy", 0, seed) for seed in range(seeds))
                continue
            sizes = LANGUAGE if is_text(case.batch(seed=0)[0]) else case.widths
            for number, width in enumerate(sizes[:widths]):
                for seed in range(seeds if number == 0 else min(seeds, 2)):
                    for variant in ("before", "after"):
                        yield kind, case, variant, width, seed


def is_text(inputs: Any) -> bool:
    tensors = list(inputs.values()) if isinstance(inputs, Mapping) else [inputs]
    return not any(tensor.is_floating_point() for tensor in tensors)


def measure(kind: str, case: Any, variant: str, width: int, seed: int) -> Any:
    """Diagnose one network; the batch is the same for every seed of the weights."""
    import hessdiag

    inputs, targets = case.batch(seed=0)
    model = case.build(seed=seed) if kind in WITHOUT_REPAIR else case.build(variant, seed=seed, width=width)
    half = len(targets) // 2
    inputs = {k: v[:half] for k, v in inputs.items()} if isinstance(inputs, Mapping) else inputs[:half]
    sequences = case.loss == "cross-entropy" and targets.dim() == 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return hessdiag.diagnose(
            model,
            inputs,
            targets[:half],
            loss=case.loss,
            mode="eval",
            class_dim=-1 if sequences else None,
            rtol=0.5,
            max_products=4,
        )


def score(folder: Path) -> dict[str, Any]:
    """Summarise the reports of a folder."""
    from hessdiag.results.report import Report

    reports = {tuple(path.stem.split("--")): Report.from_json(path) for path in sorted(folder.glob("*.json"))}
    return {"recall": recall(reports), "two_seeds": two_seeds(reports)}


def recall(reports: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    """How often each ranking puts a guilty block first, and among the first three, in each case and in all."""
    from strangers.gallery.case import match

    from hessdiag.results.comparison import compare_reports

    guilty = {(kind, c.name): c.guilty for kind, cs in TABLES.items() for c in cs if kind not in WITHOUT_REPAIR}
    hits: dict[str, dict[str, dict[str, list[tuple[bool, bool]]]]] = {}
    for (kind, name, variant, width, seed), before in reports.items():
        if variant != "before" or name in OF_DATA:
            continue
        for other in [key[4] for key in reports if key[:4] == (kind, name, "after", width)]:
            comparison = compare_reports(before, reports[kind, name, "after", width, other])
            named = [match(block, guilty[kind, name]) for block in comparison.blocks]
            if not any(named) or all(change.score == 0 for change in comparison):
                continue  # what was repaired is no block, or is not in the network
            draws = "same seed" if seed == other else "other seed"
            for ranking, names in rankings(comparison).items():
                found = [match(block, guilty[kind, name]) for block in names]
                of = hits.setdefault(f"{kind}, {draws}", {}).setdefault(name, {})
                of.setdefault(ranking, []).append((found[0], any(found[:3])))
    return {
        kind: {"all": averages(list(cases.values())), "cases": {name: averages([case]) for name, case in cases.items()}}
        for kind, cases in hits.items()
    }


def rankings(comparison: Any) -> dict[str, list[str]]:
    """The library's own, and those by one quantity alone."""
    keys = {"E[W²]": "weight_sq", "ν": "nu", "σ²": "avg_sq_singular_value", "Pσ²E[W²]²": "curvature_scaling"}
    keys |= {"ς": "activation_scaling", "γ": "gamma"}

    def size(change: Any, key: str) -> float:
        ratio = change.ratios[key].value if key == "weight_sq" else change.ratios[key].relative
        return -1.0 if math.isnan(ratio) else abs(math.log(ratio)) if 0 < ratio < math.inf else math.inf

    by_one = {
        label: [c.name for c in sorted(comparison, key=lambda c, key=key: -size(c, key))] for label, key in keys.items()
    }
    return {"hessdiag.compare": list(comparison.blocks)} | by_one


def averages(cases: list[dict[str, list[tuple[bool, bool]]]]) -> dict[str, list[float]]:
    """Mean recall@1 and recall@3 of every ranking, each case weighing alike."""
    means = {ranking: [np.mean(case[ranking], axis=0) for case in cases] for ranking in cases[0]}
    return {ranking: [round(float(v), 3) for v in np.mean(values, axis=0)] for ranking, values in means.items()}


def two_seeds(reports: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    """Quantiles of the factors between two seeds of one healthy network, and how many would get a warning."""
    from hessdiag.results.comparison import compare_reports
    from hessdiag.results.numbers import away

    factors: dict[str, list[float]] = {"standard errors of E[W²]": []}
    groups: dict[tuple[str, ...], list[Any]] = {}
    for key, report in reports.items():
        if key[2] != "before" and "trained" not in key[1]:  # training is no draw of an initialisation
            groups.setdefault(key[:4], []).append(report)
    pairs, warned = 0, dict[str, list[str]]()
    for key, group in groups.items():
        for one, other in itertools.combinations(group, 2):
            comparison = compare_reports(one, other)
            pairs += 1
            rules = [finding.rule for finding in comparison.findings if finding.severity == "warning"]
            if rules:
                warned["--".join(key)] = rules
            for change in comparison:
                ratio = change.ratios["weight_sq"].value
                if 0 < ratio < math.inf:
                    error = math.sqrt(2 * (2 / change.numel + 2 / change.numel**2))
                    factors["standard errors of E[W²]"].append(abs(math.log(ratio)) / error)
                nu, sigma = (change.ratios[name].relative for name in ("nu", "avg_sq_singular_value"))
                factors.setdefault("relative ν", []).append(min(away(nu), away(nu * ratio)))  # and E[ΔW²]
                factors.setdefault("relative σ²", []).append(away(sigma))
            for label, name in (("median ν", "nu"), ("median σ²", "avg_sq_singular_value")):
                factors.setdefault(label, []).append(away(comparison.medians[name]))
    return {
        "pairs": pairs,
        "pairs with a warning": warned,
        "quantiles": {
            label: {str(q): round(float(np.quantile(values, q)), 3) for q in (0.5, 0.9, 0.99, 0.999, 1)}
            for label, values in factors.items()
        },
    }


def show(result: Mapping[str, Any]) -> None:
    for kind, found in result["recall"].items():
        print(f"{kind}, {len(found['cases'])} cases: recall@1 / recall@3")
        for ranking, (first, third) in found["all"].items():
            print(f"  {ranking:18} {first:.2f} / {third:.2f}")
        print("  not first:", [n for n, case in found["cases"].items() if case["hessdiag.compare"][0] < 1])
    print(json.dumps(result["two_seeds"], indent=1, ensure_ascii=False))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["collect", "score"])
    parser.add_argument("--reports", type=Path, required=True)
    parser.add_argument("--kinds", default="cases,healthy,extra,unseen,variants,apart")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--widths", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.step == "collect":
        collect(options.reports, options.kinds.split(","), options.seeds, options.widths, options.only)
    else:
        from hessdiag.results.records import dumps, write_text

        result = score(options.reports)
        show(result)
        if options.out:
            write_text(options.out, dumps(result))


if __name__ == "__main__":
    main()
