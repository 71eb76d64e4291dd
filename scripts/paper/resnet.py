"""The case study of arXiv 1906.04267, Section 11: how well the layers of three ResNets are conditioned as initialised.

    python scripts/paper/resnet.py              # ResNet-50 on 224 x 224 images, half an hour
    python scripts/paper/resnet.py --quick      # ResNet-14 on 32 x 32 images

γ, ν and σ² of every convolution and of the last layer, on random images with random losses. The paper's claim is that
in its pre-activation block "all convolutions are well-conditioned both across blocks and against the initial and final
layers". Biases and learnable scalars are left out: they would cost more than all the rest.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import study
from matplotlib.figure import Figure
from standard_resnet import STANDARD
from study import array
from torch import nn

from hessdiag import measure_setups
from hessdiag.models import resolve_model
from hessdiag.view.plots import label_decades

# Title, name of the network, its arguments.
NETWORKS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("preconditioned", "preconditioned-resnet", {}),
    ("RescaleNet", "rescalenet", {}),
    ("standard", "resnet", {}),
    ("preconditioned, c = β²", "preconditioned-resnet", {"curvature": True}),
    ("preconditioned, biases 0", "preconditioned-resnet", {"centred": False}),
    ("as printed, biases 0", "preconditioned-resnet", {"centred": False, "printed": True}),
)
KEYS = {"gamma": "γ", "nu": "ν", "avg_sq_singular_value": "σ²"}


def weights_only(name: str, arguments: dict[str, Any]) -> nn.Module:
    """Build a network in which only matrices and kernels are trained."""
    own = STANDARD.get(name)
    network: nn.Module = own() if own else resolve_model(name, arguments=arguments).build().module
    for parameter in network.parameters():
        parameter.requires_grad_(parameter.dim() > 1)
    return network


def measure(asked: Any) -> dict[str, Any]:
    """Measure all networks on the same seeds."""
    runs, panels = study.Runs(asked.out / "resnet.runs.jsonl"), {}
    depth, size, seeds = (14, 4, 3) if asked.quick else (50, 1, 10)
    for title, name, arguments in NETWORKS:
        build = partial(weights_only, f"{name}{depth}", arguments)

        def columns(seed: int, build: Any = build) -> dict[str, Any]:
            how = {"batch_size": size, "seed": seed, "mode": "eval", "device": asked.device}  # fixed batch statistics
            found = measure_setups(build, setups=1, progress=False, **how)
            return {"names": found.names, **{key: found.columns[key][0] for key in KEYS}}

        found = [runs(f"{title} depth {depth} seed {seed}", partial(columns, seed))
                 for seed in range(asked.seed, asked.seed + seeds)]  # fmt: skip
        panels[title] = {
            "names": found[0]["names"], "columns": {key: [each[key] for each in found] for key in KEYS},
        }  # fmt: skip
    return {"schema": "hessdiag.resnet/2", "panels": panels}


def means(panel: dict[str, Any], key: str) -> np.ndarray:
    """Average over networks: unbiased, also where σ² was sampled."""
    return array(panel["columns"][key]).mean(axis=0)


def summary(found: dict[str, Any]) -> str:
    """Write largest over smallest over the layers, of γ also over the convolutions alone."""
    rows = []
    for title, panel in found["panels"].items():
        typical = [means(panel, key) for key in KEYS]
        ratio = typical[0] / typical[2]
        rows.append([title, *(f"{each.max() / each.min():.2g}" for each in (*typical, typical[0][:-1])),
                     f"{ratio.min():.2g} to {ratio.max():.2g}"])  # fmt: skip
    return study.table(("max/min over the layers", *KEYS.values(), "γ convs", "γ/σ²"), rows)


def draw(found: dict[str, Any]) -> Figure:
    """Draw a row a network and a column a quantity, over its geometric mean along the layers; the others in grey."""
    panels = found["panels"]
    note = f"mean over {len(next(iter(panels.values()))['columns']['gamma'])} networks · first layer 0 %, last 100 %"
    size = (8.7, 1.4 * len(panels) + 0.6)
    title = "Are the layers equally conditioned at initialisation?"
    shape = {"figsize": size, "sharex": True, "sharey": "col", "squeeze": False}
    with study.picture(title, note, len(panels), 3, **shape) as (figure, grid):
        for row, name in zip(grid, panels, strict=True):
            for axes, (key, symbol), colour in zip(row, KEYS.items(), study.COLOURS, strict=False):
                for other in (*(each for each in panels if each != name), name):  # the own line last, on top
                    values = means(panels[other], key)
                    own = other == name
                    look = {"color": colour, "marker": "o", "markersize": 2.5} if own else {"color": "#c8c8c8"}
                    relative = values / np.exp(np.log(values).mean())
                    axes.plot(np.linspace(0, 100, len(values)), relative, linewidth=0.9, **look)
                axes.axhline(1, color=study.GREY, linestyle="--", linewidth=0.8)
                axes.set(yscale="log", ylabel=f"{symbol} / mean")
                label_decades(axes.yaxis)
                study.head(axes, name, f"{symbol}: max/min {values.max() / values.min():.3g}")
    return figure


def main() -> None:
    asked = study.options(__doc__)
    study.main("resnet", asked, lambda: measure(asked), summary, draw)


if __name__ == "__main__":
    main()
