"""The case study of arXiv 1906.04267, Section 11: how well the layers of three ResNets are conditioned as initialised.

γ, ν and σ² of every convolution and of the last layer, on random images with random losses. The paper's claim is that
in its pre-activation block "all convolutions are well-conditioned both across blocks and against the initial and final
layers". Biases and learnable scalars are left out: they would cost more than all the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from hessdiag.diagnosis.random_setups import measure_setups
from hessdiag.execution.work import Work
from hessdiag.experiments.figure import Figure
from hessdiag.loading.model_source import ModelSource, Network
from hessdiag.loading.model_spec import resolve_model
from hessdiag.loading.prepare import AS_BUILT, random_inputs, random_network
from hessdiag.results.numbers import Array, spread
from hessdiag.results.records import Record
from hessdiag.results.setups import Setups

SETUPS, QUICK_SETUPS = 10, 3
BATCH_SIZE, QUICK_BATCH_SIZE = 1, 4
# Title, name of the network, its arguments, and the products that sketching its 1000 outputs may spend on a set-up.
NETWORKS: tuple[tuple[str, str, Mapping[str, Any], int], ...] = (
    ("preconditioned", "preconditioned-resnet", {}, 48),
    ("RescaleNet", "rescalenet", {}, 48),
    ("standard", "resnet", {}, 48),
    ("preconditioned, c = β²", "preconditioned-resnet", {"curvature": True}, 48),
    ("preconditioned, biases 0", "preconditioned-resnet", {"centred": False}, 16),
    ("as printed, biases 0", "preconditioned-resnet", {"centred": False, "printed": True}, 16),
)


@dataclass(frozen=True)
class Conditioning(Record):
    """What was measured of each network, by title.

    Attributes:
        panels: γ, ν and σ² over set-ups.
        moments: (S, blocks) E[x²] after every residual block.
        design: E[x²] after every block by design; NaN where there is none.
    """

    schema: ClassVar[str] = "hessdiag.resnet/1"

    panels: Mapping[str, Setups]
    moments: Mapping[str, Array]
    design: Mapping[str, float]


def steps(*, quick: bool) -> int:
    """Count the units of work."""
    return len(NETWORKS) * (QUICK_SETUPS if quick else SETUPS)


def measure(*, quick: bool = False, seed: int = 0, device: str = "cpu", work: Work) -> Conditioning:
    """Measure all on the same seeds: ResNet-50 on 224 x 224 images, or ResNet-14 on 32 x 32 ones when quick."""
    setups = QUICK_SETUPS if quick else SETUPS
    panels, moments, design = {}, {}, {}
    for title, name, arguments, products in NETWORKS:
        source = weights_only(resolve_model(f"{name}{14 if quick else 50}", arguments=arguments))
        panels[title] = measure_setups(
            source,
            setups=setups,
            batch_size=QUICK_BATCH_SIZE if quick else BATCH_SIZE,
            seed=seed,
            device=device,
            max_products=products,
            work=work.within(title),
        )
        rows = [block_moments(source, seed=number) for number in range(seed, seed + setups)]
        moments[title] = np.array(rows)
        design[title] = design_moment(source)
    return Conditioning(panels, moments, design)


def weights_only(source: ModelSource) -> ModelSource:
    """Freeze everything in the networks but matrices and kernels."""

    def build() -> Network:
        network = source.build()
        for parameter in network.module.parameters():
            parameter.requires_grad_(parameter.dim() > 1)
        return network

    return ModelSource(source.name, build)


def block_moments(source: ModelSource, *, seed: int) -> list[float]:
    """Measure E[x²] after every residual block, of the network and inputs of one set-up."""
    network = random_network(source, init=AS_BUILT, seed=seed)
    batch = random_inputs(network, source, batch_size=QUICK_BATCH_SIZE, seed=seed)
    seen: list[float] = []

    def record(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        seen.append(float(output.double().square().mean()))

    blocks = network.module.get_submodule("blocks")
    handles = [block.register_forward_hook(record) for block in blocks.children()]
    with torch.no_grad():
        batch.call(network.module)
    for handle in handles:
        handle.remove()
    return seen


def design_moment(source: ModelSource) -> float:
    """Return E[x²] after each block of a `PreconditionedResNet` by design: that after its stem, √(n / n') / √(n k²)."""
    stem = getattr(source.build().module, "stem", None)
    if not isinstance(stem, nn.Conv2d) or "preconditioned" not in source.name:
        return float("nan")
    n, k_sq = stem.in_channels, stem.kernel_size[0] * stem.kernel_size[1]
    return float((n / stem.out_channels) ** 0.5 / (n * k_sq) ** 0.5)


def draw(measured: Conditioning) -> Any:
    """Draw one panel a quantity, one line a network."""
    from hessdiag.plots import draw_conditioning

    return draw_conditioning(measured.panels)


def summary(measured: Conditioning) -> list[str]:
    """Write spreads of means over set-ups, of all layers and of convolutions alone, and E[x²] after the blocks."""
    count = " or ".join(dict.fromkeys(str(len(panel)) for panel in measured.panels.values()))
    head = f"max/min over the layers ({count} set-ups)"
    lines = [f"{head:36} {'γ':>8} {'ν':>8} {'σ²':>8} {'γ convs':>8} {'γ/σ²':>19} {'E[x²] after blocks':>20}"]
    for title, panel in measured.panels.items():
        values = [spread(typical(panel, key)) for key in ("gamma", "nu", "avg_sq_singular_value")]
        values.append(spread(typical(panel, "gamma")[:-1]))
        moments = measured.moments[title].mean(axis=0)  # (blocks,)
        ratios = np.divide(typical(panel, "gamma"), typical(panel, "avg_sq_singular_value"))
        row = " ".join(f"{value:8.3g}" for value in values)
        lines.append(f"{title:36} {row} {_range(ratios):>19} {_range(moments):>20}")
    known = {title: value for title, value in measured.design.items() if not np.isnan(value)}
    lines += [f"by design E[x²] of the preconditioned networks is {value:.3g}" for value in sorted(set(known.values()))]
    return lines


def typical(panel: Setups, key: str) -> Sequence[float]:
    """Return the mean over set-ups of every block: unbiased, also where σ² was sampled."""
    return [float(value) for value in panel.columns[key].mean(axis=0)]


def _range(values: Array) -> str:
    return f"{values.min():.3g} to {values.max():.3g}"


FIGURE = Figure(
    name="resnet",
    steps=steps,
    measure=measure,
    write=Conditioning.to_json,
    read=Conditioning.from_json,
    draw=draw,
    summary=summary,
)
