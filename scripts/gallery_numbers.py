"""The number that each rule compares with its threshold, in one network, whether it passed or not."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from statistics import median

from hessdiag.diagnosis import signal_rules, weight_rules
from hessdiag.diagnosis.network_view import Net, laws, log_ratio
from hessdiag.diagnosis.signal_rules import first_phase
from hessdiag.results.signals import Signals

# Rule -> what is on its axis, thresholds from the mildest to the gravest, and whether small numbers are the bad ones.
AXES: dict[str, tuple[str, tuple[float, ...], bool]] = {
    "HD101": ("initial loss over that of a constant guess", signal_rules.LOSS["cross-entropy"], False),
    "HD102": ("varying E[x²] at the head", (signal_rules.SILENT,), True),
    "HD103": ("growth or decay in a chain", (signal_rules.CHAIN, signal_rules.CHAIN_FAULT), False),
    "HD104": ("growth over residual branches", (signal_rules.RESIDUAL, signal_rules.RESIDUAL_FAULT), False),
    "HD105": ("E[x²] of the inputs", (signal_rules.INPUT_SQ,), False),
    "HD106": ("share of saturated units", (signal_rules.SATURATED, signal_rules.SATURATED_FAULT), False),
    "HD107": ("phase of the first sines, rad", (signal_rules.PHASE,), True),
    "HD109": ("E[y²] over E[gain²] behind a normalisation", (signal_rules.BELOW_EPS,), True),
    "HD110": (
        "share of E[x²] that varies",
        (signal_rules.VARIES, signal_rules.VARIES_WARNING, signal_rules.VARIES_FAULT),
        True,
    ),
    "HD112": (
        "share of peaked rows of attention",
        (signal_rules.PEAKED, signal_rules.PEAKED_WARNING),
        False,
    ),
    "HD201": ("kurtosis of the weights", (weight_rules.KURTOSIS, weight_rules.KURTOSIS_FAULT), False),
    "HD202": ("E[W²] against siblings", (weight_rules.SIBLING, weight_rules.SIBLING_FAULT), False),
    "HD203": ("E[W²] among fused parts", (weight_rules.PART, weight_rules.PART_FAULT), False),
    "HD205": ("E[b²] of hidden layers", (weight_rules.BIAS,), False),
    "HD206": ("E[W²] above the others' scheme", (weight_rules.ABOVE, weight_rules.ABOVE_WARNING), False),
    "HD207": ("E[gain²], or one over it", (weight_rules.GAIN,), False),
    "HD402": ("share of units that never fire", (0.8, 0.95), False),
}


def numbers(signals: Signals) -> dict[str, float]:
    """The worst number of each rule that applies to the network."""
    net = Net(signals)
    found = dict(_signals(net)) | dict(_weights(net)) | dict(_norms(net))
    return {rule: value for rule, value in found.items() if math.isfinite(value)}


def _signals(net: Net) -> Iterator[tuple[str, float]]:
    if net.signals.loss_kind == "cross-entropy":
        yield "HD101", net.loss_ratio
    yield "HD105", net.signals.input_sq
    head = net.layers.get(net.head or "")
    if head and net.scale(head.path) > 0:
        yield "HD102", head.x_sq * head.x_varies
    yield from _depth(net)
    reads = [x.x_varies for x in net.layers.values() if x.x_sq > 0 and "Embedding" not in x.kind]
    yield "HD110", min((v for v in reads if v == v), default=math.nan)
    yield "HD106", max((x.saturated for x in net.layers.values() if x.saturated == x.saturated), default=math.nan)
    yield "HD112", max((x.peaked for x in net.layers.values() if x.peaked == x.peaked), default=math.nan)
    if phase := first_phase(net):
        yield "HD107", phase[1]
    off = [
        layer.off_share
        for path, layer in net.layers.items()
        if {"relu", "relu6"} & set(layer.labels) and "add" not in layer.labels and layer.samples >= 16
        and layer.x_sq > 0 and (path not in net.weight_of or net.weight_of[path].weight_sq > 0)
    ]  # fmt: skip
    yield "HD402", max(off, default=math.nan)


def _depth(net: Net) -> Iterator[tuple[str, float]]:
    hidden = net.hidden
    if net.normalised or net.signals.fixed_norms or len(hidden) < 4:
        return
    first, last = net.layers[hidden[0]], net.layers[hidden[-1]]
    backward = log_ratio(first.out_gradient_total, last.out_gradient_total)
    if net.residual and len(hidden) >= 6 and net.head:
        forward = log_ratio(net.layers[net.head].x_sq, first.out_sq)
        yield "HD104", math.exp(min(max(forward, backward), 200))
    elif not net.residual and all(net.scale(path) > 0 for path in hidden):
        forward = log_ratio(last.out_sq, first.out_sq)
        product = sum(math.log(net.scale(path) / need) for path in hidden if (need := net.critical(path)))
        yield "HD103", math.exp(min(max(abs(forward), abs(backward), abs(product)), 200))


def _weights(net: Net) -> Iterator[tuple[str, float]]:
    tails = [p.kurtosis for p in net.matrices if p.zeros < 0.2 and p.kurtosis == p.kurtosis and p.numel >= 64]
    yield "HD201", max(tails, default=math.nan)
    families = defaultdict(list)
    for p in net.matrices:
        if p.weight_sq > 0:
            families[net.siblings[p.name]].append(math.log(p.weight_sq))
    away = [abs(v - median(family)) for family in families.values() if len(family) > 2 for v in family]
    yield "HD202", math.exp(max(away)) if away else math.nan
    parts = [p.parts for p in net.matrices if len(p.parts) > 2 and min(p.parts) > 0]
    yield "HD203", max((max(v) / min(v) for v in parts), default=math.nan)
    biases = [b.weight_sq for path in net.hidden if (b := net.bias_of(path)) and b.weight_sq > 0]
    yield "HD205", max(biases, default=math.nan)
    law = laws(net)
    if law and law.share >= 0.4:
        yield "HD206", math.exp(max(0.0, *law.away.values()))


def _norms(net: Net) -> Iterator[tuple[str, float]]:
    gains, outs = [], []
    for path, layer in net.layers.items():
        own = net.gain_of(path)
        if "Norm" not in layer.kind or not own or not own.weight_sq > 0:
            continue
        if layer.normalises and layer.x_sq > 0 and 0.5 < own.weight_sq < 2:
            outs.append(layer.out_sq / own.weight_sq)
        if "add" not in layer.labels:
            gains.append(max(own.weight_sq, 1 / own.weight_sq))
    yield "HD109", min(outs, default=math.nan)
    yield "HD207", max(gains, default=math.nan)
