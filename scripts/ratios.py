"""Figure 1 of the paper, step by step: 100 random LeNets, γ over measured σ² of every block, one histogram a block.

    python scripts/ratios.py

It does what `hessdiag reproduce ratios` does, written out for a reader.
"""

from pathlib import Path

import numpy as np

from hessdiag import plots
from hessdiag.diagnosis.random_setups import diagnose_random
from hessdiag.loading.model_spec import resolve_model
from hessdiag.results.setups import Setups

OUT = Path("figures")

# 1. Measure: new weights, new inputs and a new loss matrix R for each seed.
lenet = resolve_model("lenet")
reports = [diagnose_random(lenet, init="geometric", batch_size=1024, seed=seed) for seed in range(100)]

# 2. Save what was measured.
setups = Setups.collect(reports)
setups.to_json(OUT / "ratios.json")

# 3. Draw from the saved file.
plots.save(plots.draw_ratios(Setups.from_json(OUT / "ratios.json")), OUT / "ratios")

for name, ratio in zip(setups.names, np.median(setups.columns["ratio"], axis=0), strict=True):
    print(f"{name:14} median of γ/σ² {ratio:.2f}")
