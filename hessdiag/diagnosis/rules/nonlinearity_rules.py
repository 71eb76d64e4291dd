"""HD106, HD107, HD109 and HD112: what reaches a nonlinearity or a normalisation that is not made for it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from hessdiag.diagnosis.rules.network_view import Net, worst_first
from hessdiag.results.findings import Finding, Repair
from hessdiag.results.numbers import short, trimmed
from hessdiag.results.signals import ParameterSignals

SATURATED, SATURATED_FAULT = 0.5, 0.9
PEAKED, PEAKED_WARNING = 0.1, 0.5
PHASE = math.pi / 2
MAX_COORDINATES = 8  # inputs of a network of coordinates
BELOW_EPS = 0.3


def saturation(net: Net) -> Iterator[Finding]:
    """HD106: a tanh or sigmoid is flat for most of its inputs."""
    hit = {net.name_of(path): s for path in net.hidden if (s := net.layers[path].saturated) > SATURATED}
    if not hit:
        return
    blocks = worst_first(hit)
    path = next(path for path in net.hidden if net.name_of(path) == blocks[0])
    factor = min(1.0, net.layers[path].out_sq ** -0.5) if net.layers[path].out_sq > 0 else 1.0
    yield Finding(
        rule="HD106",
        severity="fault" if hit[blocks[0]] > SATURATED_FAULT else "warning",
        blocks=blocks,
        message=f"{100 * hit[blocks[0]]:.0f} % of the units behind {blocks[0]} are flat, beyond .99 of the range of"
        f" their tanh or sigmoid (above {100 * SATURATED:.0f} % in {net.listed(blocks)}).",
        advice=f"Make the weights smaller: {blocks[0]} by {short(factor)} gives what it writes a second moment of 1.",
        value=hit[blocks[0]],
        threshold=SATURATED,
    )


def peaked_attention(net: Net) -> Iterator[Finding]:
    """HD112: attention puts nearly all of its weight on one key."""
    shares = {path: layer.peaked for path, layer in net.layers.items() if layer.peaked > PEAKED}
    named = {path: net.weight_of.get(path) or net.gain_of(path) for path in shares}
    hit = {p.name: shares[path] for path, p in named.items() if p is not None}
    if not hit:
        return
    blocks = worst_first(hit)
    yield Finding(
        rule="HD112",
        severity="warning" if hit[blocks[0]] > PEAKED_WARNING else "note",
        blocks=blocks,
        message=f"In {100 * hit[blocks[0]]:.0f} % of its rows the attention behind {blocks[0]} has more than .99 of the"
        f" weight on one key (above {100 * PEAKED:.0f} % in {net.listed(blocks)}): hardly any gradient passes there.",
        advice="Draw the weights of queries and keys smaller, divide the logits by the root of the width of a head, or"
        " normalise queries and keys.",
        value=hit[blocks[0]],
        threshold=PEAKED,
    )


def first_phase(net: Net) -> tuple[ParameterSignals, float] | None:
    """Weight of the first layer of sines, and the rms of ω W x there, biases aside; None for other networks."""
    sines = [path for path in net.hidden if not math.isnan(net.layers[path].phase_rms)]
    if len(sines) < 2 or sines[0] != net.backbone[0] or net.weight_of[sines[0]].fan_in > MAX_COORDINATES:
        return None
    first, layer = net.weight_of[sines[0]], net.layers[sines[0]]
    if not layer.out_sq > 0:
        return None
    omega = layer.phase_rms / math.sqrt(layer.out_sq)
    return first, omega * math.sqrt(first.fan_in * first.weight_sq * layer.x_sq)


def narrow_phase(net: Net) -> Iterator[Finding]:
    """HD107: the first sines of a coordinate network span less than half a period, so that they are nearly linear."""
    found = first_phase(net)
    if not found or not 0 < found[1] < PHASE:
        return
    first, spread = found
    n = first.fan_in
    yield Finding(
        rule="HD107",
        severity="warning",
        blocks=(first.name,),
        message=f"The arguments of the first sines spread by {short(spread)} rad (rms), less than the"
        f" {trimmed(PHASE)} of half a period: they are nearly linear in the coordinates.",
        advice=f"Draw {first.name} from U(±1/n): `nn.init.uniform_(weight, -1 / {n}, 1 / {n})`; the sines' own ω"
        " multiplies it.",
        value=spread,
        threshold=PHASE,
        repairs=(Repair(parameter=first.name, action="scale", value=1 / (n * math.sqrt(3 * first.weight_sq))),),
    )


def below_epsilon(net: Net) -> Iterator[Finding]:
    """HD109: the signal that a normalisation reads is below its ε, so that it is not normalised."""
    hit: dict[str, float] = {}
    sources: list[str] = []
    for path, layer in net.layers.items():
        gain = net.gain_of(path)
        if not layer.normalises or not gain or not 0.5 < gain.weight_sq < 2 or not 0 < layer.x_sq < 1e-4:
            continue
        share = layer.out_sq / gain.weight_sq
        if share < BELOW_EPS:
            before = [o for o in net.weight_of if net.order[o] < net.order[path]]
            source = net.name_of(max(before, key=net.order.__getitem__)) if before else gain.name
            hit |= {source: min(share, hit.get(source, 1.0)), gain.name: share}
            sources.append(source)
    if not hit:
        return
    blocks = tuple(sorted(hit, key=lambda name: (hit[name], name not in sources)))
    worst = hit[blocks[0]]
    yield Finding(
        rule="HD109",
        severity="warning",
        blocks=blocks,
        message=f"What a normalisation reads is below its ε, so that E[y²] behind it is {short(worst)} and not 1"
        f" (healthy above {trimmed(BELOW_EPS)}); it comes from {blocks[0]}.",
        advice=f"Make {blocks[0]} larger (a standard deviation of .02 is usual for embeddings), or ε smaller.",
        value=worst,
        threshold=BELOW_EPS,
        repairs=tuple(
            Repair(parameter=name, action="scale", value=0.02 / math.sqrt(net.named[name].weight_sq))
            for name in dict.fromkeys(sources)
            if len(net.named[name].shape) > 1 and 0 < net.named[name].weight_sq < 4e-4
        ),
    )


RULES = (saturation, peaked_attention, narrow_phase, below_epsilon)
