"""Design help: the E[W²] of every layer and the fixed multipliers that make all γ equal.

A layer y = W x followed by a multiplier z = α y gives the same signals, forward and backward, for all E[W²] and α with
α² E[W²] = s. Its γ does change: with x and Δz given, γ = ρ'² E[x²] E[Δz²] s / E[W²]². So

1. s is chosen for the forward pass alone: every layer's output gets the second moment 1 (a residual stream then grows
   by at most 1 a block), the network's output the one asked for;
2. with γ⁰ the scaling factor at E[W²] = s, α = 1, and γ* their geometric mean,
   E[W²] = s √(γ⁰/γ*) and α² = √(γ*/γ⁰) make every γ equal γ*.

In a plain network this is the paper's geometric-mean initialisation with its corrections for kernel sizes (Section
6.2), in a weighted residual network also its factors β and α (Section 9), and it holds for borders, pooling and
whatever else the moment model covers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import nn

from hessdiag.calculus.call import KERNEL, MOMENTS
from hessdiag.calculus.graph import Graph, trace_graph
from hessdiag.calculus.input_moments import InputMoments, example_inputs
from hessdiag.calculus.prediction import BlockPrediction, predict_graph
from hessdiag.calculus.unit_outputs import output_layer, unit_outputs
from hessdiag.calculus.weight_moments import WeightMoments, weight_moments
from hessdiag.errors import HessdiagError
from hessdiag.network.blocks import Block, find_blocks
from hessdiag.network.layers import has_rule
from hessdiag.results.numbers import geometric_mean, spread
from hessdiag.results.records import NumbersRecord, Record
from hessdiag.results.rendering import Tabled
from hessdiag.surgery import insert_scale

SCHEMA = "hessdiag.prescription/1"


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerPrescription(NumbersRecord):
    """What one layer should be.

    Attributes:
        name: of the weight.
        path: of the module that holds it.
        shape: of the weight.
        gamma_before, weight_sq_before: γ and E[W²] of the network as it is.
        weight_sq: the E[W²] to initialise with.
        multiplier: the fixed number to multiply the layer's output by.
        out_sq: E[z²] behind the multiplier.
        gamma: γ of the prescribed network, equal for all where γ is balanced.
        curvature_before, curvature: σ² measured over random set-ups of the network as it is and as prescribed; NaN
            where nothing was measured.
    """

    name: str
    path: str
    shape: tuple[int, ...]
    gamma_before: float
    weight_sq_before: float
    weight_sq: float
    multiplier: float
    out_sq: float
    gamma: float
    curvature_before: float = math.nan
    curvature: float = math.nan


@dataclass(frozen=True, repr=False)
class Prescription(Tabled, Record):
    """What `prescribe` found. Its `repr` is a table.

    Attributes:
        layers: one entry a weight.
        left_out: `(name, reason)` of weights that no prescription covers.
        model, loss, moments: what was asked for.
        balance: `"gamma"`, by theory alone, or `"sigma"`, see `hessdiag.diagnosis.measured_balance`.
        setups: random set-ups that σ² is the median over; 0 where nothing was measured.
    """

    schema: ClassVar[str] = SCHEMA
    derived: ClassVar[tuple[str, ...]] = ("spread_before", "code")

    layers: tuple[LayerPrescription, ...]
    left_out: tuple[tuple[str, str], ...]
    model: str
    loss: str
    moments: str
    balance: str = "gamma"
    setups: int = 0

    @property
    def spread_before(self) -> float:
        """Divide the largest by the smallest predicted γ of the network as it is."""
        return spread([layer.gamma_before for layer in self.layers])

    @property
    def code(self) -> str:
        """Write Python that applies the prescription to `model`, as `apply_prescription` does."""
        lines = ["from hessdiag.surgery import insert_scale", "from torch import nn", ""]
        for layer in self.layers:
            where = f"model.get_submodule({layer.path!r})"
            lines.append(f"nn.init.normal_({where}.weight, std={math.sqrt(layer.weight_sq):.6g})")
            lines.append(f"if {where}.bias is not None: nn.init.zeros_({where}.bias)")
        lines += [f"insert_scale(model, {x.multiplier:.6g}, after={x.path!r})" for x in self.layers]
        return "\n".join(lines) + "\n"

    def to_code(self) -> str:
        """Return `code`."""
        return self.code


def prescribe(
    model: nn.Module,
    inputs: Any,
    *,
    loss: str = "random-quadratic",
    moments: str = KERNEL,
    output_sq: float = 1.0,
) -> Prescription:
    """Find the E[W²] and the fixed multipliers that make all γ of an architecture equal; nothing is measured.

    Args:
        model: any module, also on the meta device; it is left as it is.
        inputs, loss, moments: as in `hessdiag.predict`.
        output_sq: E[y²] that the network's output shall have; the paper suggests 0.0025 to 0.1 for cross-entropy.

    Raises:
        HessdiagError: an argument cannot be used, or γ cannot be predicted for any layer.
    """
    if moments not in MOMENTS:
        raise HessdiagError(f"moments {moments!r}: use {' or '.join(MOMENTS)}")
    if not (math.isfinite(output_sq) and output_sq > 0):
        raise HessdiagError(f"output_sq {output_sq!r}: pass a second moment above 0, such as 1.0")
    args, kwargs, given = example_inputs(model, inputs)
    graph = trace_graph(model, args, kwargs)
    weights = weight_moments(model)
    blocks = {block.name: block for block in find_blocks(model)[0]}
    left_out = {name: _reason(model, block) for name, block in blocks.items() if block.kind == "weight"}
    target = {name for name, reason in left_out.items() if not reason}

    def gammas(known: WeightMoments) -> dict[str, BlockPrediction]:
        prediction = predict_graph(model, graph, known, inputs=given, loss=loss, moments=moments, batch_size=64)
        return {block.name: block for block in prediction.weights}

    forward = _forward_weights(graph, weights, blocks, target, given, moments, output_sq)
    before, plain = gammas(weights), gammas(forward)
    found = {name: block for name, block in plain.items() if name in target and block.gamma > 0}
    if not found:
        raise HessdiagError(f"{type(model).__name__}: γ cannot be predicted for any of its layers")
    goal = geometric_mean([block.gamma for block in found.values()])
    layers = []
    for name, block in found.items():
        excess = math.sqrt(block.gamma / goal)
        layers.append(
            LayerPrescription(
                name=name,
                path=blocks[name].owners[0],
                shape=block.shape,
                gamma_before=before[name].gamma,
                weight_sq_before=before[name].weight_sq,
                weight_sq=forward.sq[name] * excess,
                multiplier=1 / math.sqrt(excess),
                out_sq=block.out_sq,
                gamma=goal,
            )
        )
    reasons = {name: reason or "its γ cannot be predicted" for name, reason in left_out.items() if name not in found}
    return Prescription(tuple(layers), tuple(reasons.items()), type(model).__name__, loss, moments)


def apply_prescription(
    model: nn.Module, prescription: Prescription, *, generator: torch.Generator | None = None
) -> nn.Module:
    """Initialise a model as prescribed and put the multipliers in, in place; `hessdiag.surgery.undo` takes them out.

    Raises:
        HessdiagError: the prescription is of another architecture.
    """
    for layer in prescription.layers:
        try:
            module = model.get_submodule(layer.path)
            fits = module.get_parameter("weight").shape == layer.shape
        except AttributeError:
            fits = False
        if not fits:
            raise HessdiagError(
                f"the prescription is for a layer {layer.path!r} of shape {layer.shape}: not this model"
            )
    with torch.no_grad():
        for layer in prescription.layers:
            module = model.get_submodule(layer.path)
            bias = getattr(module, "bias", None)
            module.get_parameter("weight").normal_(0.0, math.sqrt(layer.weight_sq), generator=generator)
            if isinstance(bias, torch.Tensor):
                bias.zero_()
    for layer in prescription.layers:
        insert_scale(model, layer.multiplier, after=layer.path)
    return model


def _reason(model: nn.Module, block: Block) -> str:
    """Say why a weight cannot be prescribed; empty where it can."""
    if len(block.owners) > 1:
        return "shared by several layers"
    if not has_rule(model.get_submodule(block.owners[0])):
        return f"no multiplier can stand behind a {block.layer}"
    return ""


def _forward_weights(
    graph: Graph,
    weights: WeightMoments,
    blocks: Mapping[str, Block],
    target: set[str],
    inputs: InputMoments,
    moments: str,
    output_sq: float,
) -> WeightMoments:
    """Find the E[W²] that gives every layer's output the second moment 1, the last one's `output_sq`; biases are 0."""
    owners = {blocks[name].owners[0] for name in target}
    silent = {name: 0.0 for name, block in blocks.items() if block.kind == "bias" and block.owners[0] in owners}
    start = replace(weights, sq={**weights.sq, **silent}, source="prescribed")
    sq = {**start.sq, **unit_outputs(graph, start, target, moments=moments, inputs=inputs)}
    last = output_layer(graph, target)
    if last in sq:
        sq[last] *= output_sq
    return replace(start, sq=sq)
