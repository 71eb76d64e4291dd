"""Measure the gallery: signals of every case, variant, seed and width, and of every healthy network, as JSON lines.

python scripts/gallery.py --out gallery.jsonl [--only NAME] [--seeds 5] [--extra]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "scripts")]

from gallery_signals import signals  # noqa: E402


def rows(kinds: list[str], seeds: int, only: str) -> Iterator[dict[str, Any]]:
    from tests.gallery import CASES, HEALTHY
    from tests.gallery.extra import EXTRA
    from tests.gallery.extra_healthy import EXTRA_HEALTHY
    from tests.gallery.unseen import UNSEEN
    from tests.gallery.variants import VARIANTS

    tables = {
        "cases": CASES,
        "extra": EXTRA,
        "healthy": HEALTHY,
        "apart": EXTRA_HEALTHY,
        "unseen": UNSEEN,
        "variants": VARIANTS,
    }
    for kind in kinds:
        for case in tables[kind]:
            if only not in case.name:
                continue
            for seed in range(seeds):
                for variant, width in places(kind, case):
                    yield row(kind, case, variant, width, seed)


def places(kind: str, case: Any) -> list[tuple[str, int]]:
    if kind in ("healthy", "apart"):
        return [("healthy", 0)]
    return [(variant, width) for width in case.widths for variant in ("before", "after")]


def row(kind: str, case: Any, variant: str, width: int, seed: int) -> dict[str, Any]:
    if kind in ("healthy", "apart"):
        model, (inputs, targets) = case.build(seed=seed), case.batch(seed=seed)
    else:
        model, (inputs, targets) = case.build(variant, seed=seed, width=width), case.batch(seed=seed, width=width)
    found = signals(model, inputs, targets, loss=case.loss)
    guilty = list(getattr(case, "guilty", ())) if variant == "before" else []
    return {"kind": kind, "name": case.name, "variant": variant, "width": width, "seed": seed, "guilty": guilty} | found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--kinds", default="cases,extra,healthy")
    options = parser.parse_args()
    with options.out.open("w") as file:
        for found in rows(options.kinds.split(","), options.seeds, options.only):
            file.write(json.dumps(found) + "\n")
            print(found["name"], found["variant"], found["width"], found["seed"], file=sys.stderr)


if __name__ == "__main__":
    main()
