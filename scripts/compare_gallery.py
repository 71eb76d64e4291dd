"""Measure how often a comparison names the guilty block first, over the gallery: reports first, then the scores.

python scripts/compare_gallery.py collect --reports FOLDER [--kinds cases,healthy,extra,unseen,variants] [--seeds 3]
python scripts/compare_gallery.py score --reports FOLDER --out figures/comparison.json
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

LANGUAGE = (128, 192, 256)  # smaller than the gallery's own: a language model's outputs are what takes time
WITHOUT_REPAIR = ("healthy", "apart")


def tables() -> dict[str, tuple[Any, ...]]:
    from tests.gallery import CASES, HEALTHY
    from tests.gallery.extra import EXTRA
    from tests.gallery.extra_healthy import EXTRA_HEALTHY
    from tests.gallery.unseen import UNSEEN
    from tests.gallery.variants import VARIANTS

    return {
        "cases": CASES,
        "healthy": HEALTHY,
        "extra": EXTRA,
        "unseen": UNSEEN,
        "variants": VARIANTS,
        "apart": EXTRA_HEALTHY,
    }


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
        for case in tables()[kind]:
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

    if kind in WITHOUT_REPAIR:
        model, (inputs, targets) = case.build(seed=seed), case.batch(seed=0)
    else:
        model, (inputs, targets) = case.build(variant, seed=seed, width=width), case.batch(seed=0, width=width)
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
            class_dim=-1 if sequences else None,
            rtol=0.5,
            noise_scale=False,
            max_products=4,
        )


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


if __name__ == "__main__":
    main()
