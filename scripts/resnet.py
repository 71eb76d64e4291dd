"""The case study of the paper, step by step: three ResNet-50 at initialisation, γ, ν and σ² of every layer.

    python scripts/resnet.py

It does what `hessdiag reproduce resnet` does, written out for a reader.
"""

from pathlib import Path

from hessdiag import plots
from hessdiag.diagnosis.random_setups import measure_setups
from hessdiag.experiments.resnet_figure import weights_only
from hessdiag.loading.model_spec import resolve_model
from hessdiag.results.report import spread

OUT = Path("figures")

# 1. Measure: 10 networks of each kind, each on one random image with a random loss. Biases are left out.
names = {
    "preconditioned": "preconditioned-resnet50",
    "RescaleNet": "rescalenet50",
    "standard": "resnet50",
}
panels = {
    title: measure_setups(weights_only(resolve_model(name)), setups=10, batch_size=1, max_products=48)
    for title, name in names.items()
}

# 2. Draw.
plots.save(plots.draw_conditioning(panels), OUT / "resnet")

for title, panel in panels.items():
    spreads = (spread(panel.columns[key].mean(axis=0).tolist()) for key in ("gamma", "nu", "avg_sq_singular_value"))
    print(title, "max/min of γ, ν, σ²:", ", ".join(f"{value:.3g}" for value in spreads))
