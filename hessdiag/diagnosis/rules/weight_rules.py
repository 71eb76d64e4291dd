"""HD2xx: how weights were drawn. Each rule reads a `Net` and yields its findings."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median

from hessdiag.diagnosis.rules.network_view import Net, mode, worst_first
from hessdiag.diagnosis.rules.scheme import CLEAR, FOLLOWED, UNITS, draw_anew, how_drawn, laws, scale_back
from hessdiag.results.findings import Finding, Repair
from hessdiag.results.numbers import short, trimmed
from hessdiag.results.signals import ParameterSignals

KURTOSIS, KURTOSIS_FAULT = 10.0, 50.0
SIBLING, SIBLING_FAULT = 4.0, 25.0
PART, PART_FAULT = 6.0, 25.0
GROUPS = 8.0
BIAS = 4.0
ABOVE, ABOVE_WARNING, ABOVE_FIRST = 4.0, 20.0, 100.0
GAIN = 50.0
ALIKE = 1e-9
SAME_INPUT = 4.0


def outliers(net: Net) -> Iterator[Finding]:
    """HD201: a few entries far outside the rest of their tensor."""
    tails = {p.name: p.kurtosis for p in net.matrices if p.zeros < 0.2 and not math.isnan(p.kurtosis)}
    if not tails:
        return
    limit = max(KURTOSIS, 3 * median(tails.values()))
    hit = {
        p.name: p.kurtosis
        for p in net.matrices
        if p.name in tails and p.numel >= 64 and p.largest > 8
        and (p.kurtosis > limit or (p.kurtosis > 30 and p.largest > 30))
    }  # fmt: skip
    if not hit:
        return
    blocks = worst_first(hit)
    worst = net.named[blocks[0]]
    yield Finding(
        rule="HD201",
        severity="fault" if worst.kurtosis > KURTOSIS_FAULT else "warning",
        blocks=blocks,
        message=f"The weights of {net.listed(blocks)} have outliers: the kurtosis is {short(worst.kurtosis)} (3 for a"
        f" normal, above {trimmed(KURTOSIS)} is unusual), and the largest entry is {short(worst.largest)} times the"
        " rms.",
        advice="Draw these entries anew: a truncated normal needs its bounds in standard deviations,"
        " `nn.init.trunc_normal_(w, std=s, a=-2 * s, b=2 * s)`.",
        value=worst.kurtosis,
        threshold=KURTOSIS,
        repairs=tuple(Repair(parameter=name, action="redraw-outliers", value=6.0) for name in blocks),
    )


def sibling(net: Net) -> Iterator[Finding]:
    """HD202: one tensor is scaled differently from those of the same name and shape at other depths."""
    families: dict[str, list[ParameterSignals]] = defaultdict(list)
    for p in net.matrices:
        if p.weight_sq > 0:
            families[net.siblings[p.name]].append(p)
    hit: dict[str, float] = {}
    for family in families.values():
        away: dict[str, float] = {}
        for p in family if len(family) > 2 else []:
            others = [math.log(o.weight_sq) for o in family if o is not p]
            middle = median(others)
            spread = median(abs(o - middle) for o in others)
            ratio = math.log(p.weight_sq) - middle
            if abs(ratio) > max(math.log(SIBLING), 6 * spread):
                away[p.name] = ratio
        if len(away) <= max(1, len(family) // 4):  # else there are two populations, not an outlier
            hit |= away
    if not hit:
        return
    blocks = worst_first({name: abs(ratio) for name, ratio in hit.items()})
    ratio = hit[blocks[0]]
    worst, factor = math.exp(abs(ratio)), math.exp(-ratio / 2)
    yield Finding(
        rule="HD202",
        severity="fault" if worst > SIBLING_FAULT else "warning",
        blocks=blocks,
        message=f"E[W²] of {blocks[0]} is {short(worst)} times {'above' if ratio > 0 else 'below'} that of the same"
        f" layer at other depths (above {trimmed(SIBLING)} is unusual)"
        + (f"; also {net.listed(blocks[1:])}." if len(blocks) > 1 else "."),
        advice=f"Initialise it as its siblings are: multiply {blocks[0]} by {short(factor)}.",
        value=worst,
        threshold=SIBLING,
        repairs=scale_back(hit, blocks),
    )


def fused_part(net: Net) -> Iterator[Finding]:
    """HD203: one part of a fused tensor (query, key, value; the gates of an LSTM) differs from the others."""
    hit: dict[str, tuple[float, int]] = {}
    for p in net.matrices:
        if len(p.parts) < 3 or min(p.parts) <= 0:
            continue
        peers = [o for o in net.matrices if o is not p and net.siblings[o.name] == net.siblings[p.name]]
        peers = [o for o in peers if len(o.parts) == len(p.parts) and min(o.parts) > 0]
        usual = [median(math.log(o.parts[i]) for o in peers) if peers else 0.0 for i in range(len(p.parts))]
        moved = [math.log(value) - u for value, u in zip(p.parts, usual, strict=True)]
        away = [m - median(moved) for m in moved]
        part = max(range(len(away)), key=lambda i: abs(away[i]))
        if abs(away[part]) > math.log(PART):
            hit[p.name] = (away[part], part)
    if not hit:
        return
    blocks = worst_first({name: abs(ratio) for name, (ratio, _) in hit.items()})
    ratio, part = hit[blocks[0]]
    worst, count = math.exp(abs(ratio)), len(net.named[blocks[0]].parts)
    yield Finding(
        rule="HD203",
        severity="fault" if worst > PART_FAULT else "warning",
        blocks=blocks,
        message=f"Part {part + 1} of the {count} that are fused in {blocks[0]} has an E[W²] {short(worst)} times"
        f" {'above' if ratio > 0 else 'below'} that of the others (above {trimmed(PART)} is unusual).",
        advice=f"Initialise the parts alike: multiply chunk {part} of `{blocks[0].rpartition('.')[2]}.chunk({count})`"
        f" by {short(math.exp(-ratio / 2))}.",
        value=worst,
        threshold=PART,
        repairs=tuple(
            Repair(
                parameter=n,
                action="scale",
                value=math.exp(-hit[n][0] / 2),
                part=hit[n][1],
                parts=len(net.named[n].parts),
            )
            for n in blocks
        ),
    )


def groups_forgotten(net: Net) -> Iterator[Finding]:
    """HD204: depthwise convolutions were drawn with fans that were not divided by their groups."""
    grouped = [p for p in net.weights if p.groups > 1 and p.kernel > 1 and p.weight_sq > 0]
    dense = [p for p in net.weights if p.groups == 1 and len(p.shape) == 4 and p.weight_sq > 0]
    if len(dense) < 2 or len(grouped) < 2:
        return
    for law, unit in UNITS.items():
        plain = [math.log(unit(p) * p.weight_sq) for p in dense]
        constant = mode(plain)
        if sum(abs(v - constant) < 0.2 for v in plain) < 0.6 * len(plain):
            continue
        missing = {p.name: constant - math.log(unit(p) * p.weight_sq) for p in grouped}
        misread = {
            p.name: missing[p.name]
            for p in grouped
            if p.groups >= GROUPS and abs(missing[p.name] - math.log(p.groups)) < math.log(2.5)
        }
        if len(misread) < 0.6 * len(grouped):
            continue
        blocks = worst_first(misread)
        worst = math.exp(misread[blocks[0]])
        calibrated = net.signals.fixed_norms > 0 and not net.signals.fresh_norms
        yield Finding(
            rule="HD204",
            severity="note" if net.normalised or calibrated else "warning",
            blocks=blocks,
            message=f"E[W²] of {net.listed(blocks)} is {up_to(blocks)}{short(worst)} times below the {law} scheme of"
            " the dense convolutions, as if the fan had not been divided by the groups.",
            advice=f"Divide the {law} by `groups`: multiply each by the root of its groups, {blocks[0]} by"
            f" {short(math.sqrt(worst))}.",
            value=worst,
            threshold=GROUPS,
            repairs=scale_back({name: -factor for name, factor in misread.items()}, blocks),
        )
        return


def summed_fans(net: Net) -> Iterator[Finding]:
    """HD204: Xavier's fans were summed over all dimensions of a kernel."""
    summed = [
        p
        for p in net.weights
        if len(p.shape) >= 3 and p.kernel > 1 and p.groups == 1
        and _near(p.weight_sq * (sum(p.shape[2:]) + p.fan_in + p.fan_out), 2.0, p.numel)
    ]  # fmt: skip
    if len(summed) < 2:
        return
    summed.sort(key=lambda p: -p.numel)  # in a small tensor it may be chance
    scales = {p.name: math.sqrt(2 / (p.kernel * (p.fan_in + p.fan_out)) / p.weight_sq) for p in summed}
    blocks = tuple(scales)
    yield Finding(
        rule="HD204",
        severity="note" if net.normalised else "warning",
        blocks=blocks,
        message=f"E[W²] of {net.listed(blocks)} is 2 / (k + k + n + n'), the sum over all dimensions of the kernel;"
        f" Xavier's fans are k² n and k² n', about {summed[0].kernel} times as many.",
        advice=f"Use `nn.init.xavier_normal_`, or multiply {blocks[0]} by {short(scales[blocks[0]])}.",
        value=float(summed[0].kernel),
        threshold=1.0,
        repairs=tuple(Repair(parameter=name, action="scale", value=factor) for name, factor in scales.items()),
    )


def _near(value: float, expected: float, numel: int) -> bool:
    """Within four standard errors of a sample's second moment (Gaussian: relative √(2/P)), and 1 % for rounding."""
    return abs(value / expected - 1) < 4 * math.sqrt(2 / numel) + 0.01


def large_bias(net: Net) -> Iterator[Finding]:
    """HD205: a bias drowns what its layer computes from the inputs."""
    hit: dict[str, float] = {}
    for path in net.hidden:
        bias, layer = net.bias_of(path), net.layers[path]
        if bias and bias.weight_sq > BIAS and bias.weight_sq > 0.8 * layer.out_sq:
            hit[bias.name] = bias.weight_sq / max(layer.out_sq - bias.weight_sq, 0.01 * bias.weight_sq)
            hit.setdefault(net.name_of(path), 0.0)
    if not hit:
        return
    blocks = worst_first(hit)
    value = net.named[blocks[0]].weight_sq
    yield Finding(
        rule="HD205",
        severity="warning",
        blocks=blocks,
        message=f"E[b²] of {blocks[0]} is {short(value)} (above {trimmed(BIAS)} is unusual): the bias drowns what"
        " the layer"
        " computes from its inputs.",
        advice=f"Start it at zero: `nn.init.zeros_(model.get_parameter({blocks[0]!r}))`.",
        value=value,
        threshold=BIAS,
        repairs=tuple(Repair(parameter=name, action="zero") for name in blocks if hit[name] > 0),
    )


def above_scheme(net: Net) -> Iterator[Finding]:
    """HD206: a layer is much larger than the scheme that most others follow. Smaller is on purpose, mostly."""
    found = laws(net)
    if not found or found.share < FOLLOWED:
        return
    large = {name: away for name, away in found.away.items() if away > math.log(ABOVE)}
    if not large:
        return
    blocks = worst_first(large)
    worst = math.exp(large[blocks[0]])
    first = bool(net.backbone) and net.backbone[0] in net.named[blocks[0]].owners
    few = len(large) <= max(2, len(found.away) // 6) and found.share >= CLEAR
    yield Finding(
        rule="HD206",
        severity="warning" if worst > (ABOVE_FIRST if first else ABOVE_WARNING) and few else "note",
        blocks=blocks,
        message=f"E[W²] of {net.listed(blocks)} is {up_to(blocks)}{short(worst)} times above the {found.law} scheme"
        f" that {100 * found.share:.0f} % of the other weights follow (above {trimmed(ABOVE)} is unusual).",
        advice=f"Draw it by that scheme too: multiply {blocks[0]} by {short(worst**-0.5)}.",
        value=worst,
        threshold=ABOVE,
        repairs=scale_back(large, blocks),
    )


def norm_gain(net: Net) -> Iterator[Finding]:
    """HD207: a normalisation's gain is far from one, without being zero or ending a residual branch."""
    hit: dict[str, float] = {}
    for path, layer in net.layers.items():
        own, bias = net.gain_of(path), net.bias_of(path)
        if "Norm" not in layer.kind or not own or "add" in layer.labels or not own.weight_sq > 0:
            continue
        if layer.normalises and (layer.x_sq < 1e-4 or math.isnan(layer.x_sq)):
            continue  # HD109
        # Measured, where the layer normalises: Gemma's gain is 1 + weight.
        effective = layer.out_sq - (bias.weight_sq if bias else 0.0) if layer.normalises else own.weight_sq
        if not 1 / GAIN < effective < GAIN:
            hit[own.name] = max(effective, 1e-300)
    if not hit:
        return
    blocks = worst_first({name: abs(math.log(v)) for name, v in hit.items()})
    worst = hit[blocks[0]]
    yield Finding(
        rule="HD207",
        severity="warning",
        blocks=blocks,
        message=f"The gain of {net.listed(blocks)} has a second moment of {short(worst)}, where 1 is usual (outside 1 /"
        f" {trimmed(GAIN)} to {trimmed(GAIN)}).",
        advice=f"Start gains at one: `nn.init.ones_(model.get_parameter({blocks[0]!r}))`; a normal initialisation"
        " of all parameters may have met them by mistake.",
        value=max(worst, 1 / worst),
        threshold=GAIN,
        repairs=tuple(Repair(parameter=name, action="fill", value=1.0) for name in blocks),
    )


def identical_units(net: Net) -> Iterator[Finding]:
    """HD208: all outputs of a layer have the same weights, so that they learn the same."""
    alike = tuple(
        p.name for p in net.weights if p.weight_sq > 0 and p.unlike < ALIKE and p.shape[0] > 1 and p.trainable
    )
    if not alike:
        return
    value = net.named[alike[0]].unlike
    drawn = tuple(draw_anew(net, name) for name in alike)
    yield Finding(
        rule="HD208",
        severity="fault",
        blocks=alike,
        message=f"All units of {net.listed(alike)} have the same weights: what differs between them is"
        f" {short(value)} of"
        f" E[W²] (below {trimmed(ALIKE)}), so that they learn the same.",
        advice=f"Draw random weights ({how_drawn(drawn[0])}).",
        value=value,
        threshold=ALIKE,
        repairs=drawn,
    )


def same_input(net: Net) -> Iterator[Finding]:
    """HD209: layers that read the same tensor and have the same shape are scaled differently."""
    readers: dict[tuple[int, str], list[str]] = defaultdict(list)
    for path in net.backbone:
        p = net.weight_of[path]
        if p.weight_sq > 0 and net.layers[path].reads >= 0:
            readers[net.layers[path].reads, str(p.shape)].append(path)
    law = laws(net)
    hit: dict[str, float] = {}
    for paths in readers.values():
        logs = {net.name_of(path): math.log(net.weight_of[path].weight_sq) for path in paths}
        if max(logs.values()) - min(logs.values()) < math.log(SAME_INPUT):
            continue
        middle = median(logs.values())
        # Of two that differ, the one farther from what the rest of the network does.
        away = {name: abs(law.away.get(name, v - middle) if law else v - middle) for name, v in logs.items()}
        hit |= {name: v for name, v in away.items() if v > math.log(2)} or away
    if not hit:
        return
    blocks = worst_first(hit)
    worst = math.exp(hit[blocks[0]])
    yield Finding(
        rule="HD209",
        severity="note",
        blocks=blocks,
        message=f"E[W²] of {net.listed(blocks)} differs by {up_to(blocks)}{short(worst)} from layers of the same shape"
        f" that read the same tensor (above {trimmed(SAME_INPUT)}).",
        advice="Check that it is meant, as T5's small q and DeepNorm's v are.",
        value=worst,
        threshold=SAME_INPUT,
    )


def up_to(blocks: Sequence[str]) -> str:
    """The words before the worst number of several blocks; none before that of one."""
    return "up to " if len(blocks) > 1 else ""


RULES = (
    outliers, sibling, fused_part, groups_forgotten, summed_fans, large_bias, above_scheme, norm_gain, identical_units,
    same_input,
)  # fmt: skip
