"""Which conclusions of `hessdiag reproduce libsvm` survive another optimiser or batch size: runs side by side.

    for o in sgd momentum adam; do for b in 32 128; do
        hessdiag reproduce libsvm --optimizer $o --batch-size $b --datasets iris,wine,… --resume run --out runs/$o-$b
    done; done
    python scripts/libsvm_robustness.py runs/*/libsvm.json --out figures/libsvm_robustness.json

Writes one entry a run: the paper's Table 2 on its grid and on the widened one, how many best learning rates lie on an
edge, the rank correlation of balance and loss, and all median losses at the best rate.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hessdiag.results.balance_and_loss import correlate
from hessdiag.results.files import write_text
from hessdiag.results.records import dumps
from hessdiag.results.scheme_ranking import best_losses, rank_schemes
from hessdiag.results.training_study import TrainingStudy
from hessdiag.tables.scheme_ranking_table import rate_ratios

SCHEMA = "hessdiag.libsvm-robustness/1"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=Path("figures/libsvm_robustness.json"))
    asked = parser.parse_args()
    runs = [conclusions(TrainingStudy.from_json(path)) for path in asked.studies]
    write_text(asked.out, dumps({"schema": SCHEMA, "blocks": runs}))
    for run in runs:
        for grid in ("grid", "widened"):
            ranks = ", ".join("{scheme} {average:.2f} ({worst}/{best})".format(**rank) for rank in run[grid])
            print(f"{run['optimizer']:9}{run['batch_size']:4} {grid:8}{ranks}")


def conclusions(study: TrainingStudy) -> dict[str, Any]:
    """Summarise one run."""
    ends = {study.powers[0], study.powers[-1]}
    best = [study.best_power(block, widened=False) for block in study.blocks]
    correlation = correlate(study, "sigma")
    return {
        "optimizer": study.optimizer,
        "batch_size": study.batch_size,
        "datasets": [block.name for block in study.blocks],
        "schemes": study.schemes,
        "grid": [asdict(rank) for rank in rank_schemes(study, study.schemes, widened=False)],
        "widened": [asdict(rank) for rank in rank_schemes(study, study.schemes, widened=True)],
        "on_an_edge": sum(power in ends for powers in best for power in powers),
        "best_rates": sum(map(len, best)),
        "correlation": asdict(correlation),
        "rate_ratio": sorted(rate_ratios(study))[len(rate_ratios(study)) // 2],
        "losses": best_losses(study, study.schemes, widened=True),
        "powers": [study.best_power(block, widened=True) for block in study.blocks],
    }


if __name__ == "__main__":
    main()
