"""Figure 2 of the paper, step by step: block maps of LeNet's Hessian and Gauss-Newton matrix, four initialisations.

    python scripts/heatmaps.py

It does what `hessdiag reproduce heatmaps` does, written out for a reader.
"""

from pathlib import Path

from hessdiag import plots
from hessdiag.diagnosis.random_setups import diagnose_random
from hessdiag.loading.model_spec import resolve_model
from hessdiag.results.setups import Setups, study_from_json, study_to_json

OUT = Path("figures")

# 1. Measure: the same 100 seeds for every panel, so that panels differ in nothing but initialisation and matrix.
lenet = resolve_model("lenet")
panels = []
for matrix in ("hessian", "ggn"):
    for init in ("fan-in", "fan-out", "arithmetic", "geometric"):
        options = {"init": init, "matrix": matrix, "batch_size": 1024}
        panels.append(Setups.collect(diagnose_random(lenet, seed=seed, **options) for seed in range(100)))
        print(f"{matrix:8} {init:11} largest over smallest diagonal block {panels[-1].spread:.3g}")

# 2. Save what was measured.
study_to_json(panels, OUT / "heatmaps.json")

# 3. Draw from the saved file.
plots.save(plots.draw_heatmaps(study_from_json(OUT / "heatmaps.json")), OUT / "heatmaps")
