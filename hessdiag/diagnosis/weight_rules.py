"""HD2xx to HD4xx: weights, curvature and what can learn. Each rule reads a `Net` and returns what it finds, or None."""

from __future__ import annotations

import math
from collections import defaultdict
from statistics import median

from hessdiag.diagnosis.network_view import (
    BELOW_EPS,
    CLEAR,
    FOLLOWED,
    GATES,
    SMALL,
    UNITS,
    Net,
    graded,
    how_drawn,
    laws,
    mode,
    worst_first,
)
from hessdiag.results.findings import Finding, Severity
from hessdiag.results.numbers import short
from hessdiag.results.signals import ALIKE, ParameterSignals

KURTOSIS, KURTOSIS_FAULT, HELD = 10.0, 50.0, 0.05
SIBLING, SIBLING_FAULT = 4.0, 25.0
PART, PART_FAULT = 6.0, 25.0
GROUPS = 8.0
BIAS = 4.0
SATURATED = 0.5
ABOVE, ABOVE_WARNING, ABOVE_FIRST = 4.0, 20.0, 100.0
GAIN = 50.0
BLIND = 1e-6  # share of a gradient along its weight, about 1 in general: the scale of that changes nothing


def outliers(net: Net) -> Finding | None:
    """HD201: a few entries far outside the rest of their tensor."""
    tails = {p.name: p.kurtosis for p in net.matrices if p.zeros < 0.2 and not math.isnan(p.kurtosis)}
    if not tails:
        return None
    limit = max(KURTOSIS, 3 * median(tails.values()))
    large = {p.name: limit if p.largest < 30 else min(limit, 30) for p in net.matrices if p.numel >= 64 < 8 * p.largest}
    hit = {name: tail for name, tail in tails.items() if name in large and tail > large[name]}
    if not (blocks := worst_first(hit)):
        return None
    worst = net.named[blocks[0]]
    message = f"{net.listed(blocks)} {'has' if len(blocks) == 1 else 'have'} outliers: the largest entry is"
    message += f" {short(worst.largest)} times the root mean square, with a kurtosis of {short(worst.kurtosis)}"
    advice = "Draw the weight anew, as `nn.init.trunc_normal_(w, std=s, a=-2 * s, b=2 * s)` does."
    held = max(net.named[name].kurtosis / net.named[name].largest ** 2 for name in blocks)  # of E[W²], about
    severity = graded(worst.kurtosis, 0, KURTOSIS_FAULT) if held > HELD else "note"
    return Finding("HD201", severity, blocks, f"{message} (usual: 3).", advice, worst.kurtosis, KURTOSIS)


def sibling(net: Net) -> Finding | None:
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
    if not (blocks := worst_first({name: abs(ratio) for name, ratio in hit.items()})):
        return None
    ratio = hit[blocks[0]]
    worst, factor = math.exp(abs(ratio)), math.exp(-ratio / 2)
    also = f"; also {net.listed(blocks[1:])}" if len(blocks) > 1 else ""
    message = f"{blocks[0]} is {short(math.sqrt(worst))}× {'larger' if ratio > 0 else 'smaller'} than the same layer at"
    message += f" other depths (usual: within {short(math.sqrt(SIBLING))}×){also}."
    advice = f"Initialise it as its siblings are: multiply {blocks[0]} by {short(factor)}."
    return Finding("HD202", graded(worst, 0, SIBLING_FAULT), blocks, message, advice, worst, SIBLING)


def fused_part(net: Net) -> Finding | None:
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
        chance = 3 * math.sqrt(4 * len(p.parts) / p.numel)  # standard errors of the difference of two logarithms
        if abs(away[part]) > math.log(PART) + chance:
            hit[p.name] = (away[part], part)
    if not (blocks := worst_first({name: abs(ratio) for name, (ratio, _) in hit.items()})):
        return None
    ratio, part = hit[blocks[0]]
    worst, count = math.exp(abs(ratio)), len(net.named[blocks[0]].parts)
    message = f"Part {part + 1} of the {count} in {blocks[0]} is {short(math.sqrt(worst))}×"
    message += f" {'larger' if ratio > 0 else 'smaller'} than the others (usual: within {short(math.sqrt(PART))}×)."
    factor, attribute = short(math.exp(-ratio / 2)), blocks[0].rpartition(".")[2]
    advice = f"Initialise the parts alike: multiply chunk {part} of `{attribute}.chunk({count})` by {factor}."
    return Finding("HD203", graded(worst, 0, PART_FAULT), blocks, message, advice, worst, PART)


def groups_forgotten(net: Net) -> Finding | None:
    """HD204: depthwise convolutions were drawn with fans that were not divided by their groups."""
    grouped = [p for p in net.weights if p.groups > 1 and p.kernel > 1 and p.weight_sq > 0]
    dense = [p for p in net.weights if p.groups == 1 and len(p.shape) == 4 and p.weight_sq > 0]
    if len(dense) < 2 or len(grouped) < 2:
        return None
    for law, unit in UNITS.items():
        plain = [math.log(unit(p) * p.weight_sq) for p in dense]
        constant = mode(plain)
        if sum(abs(v - constant) < 0.2 for v in plain) < 0.6 * len(plain):
            continue
        missing = {p.name: constant - math.log(unit(p) * p.weight_sq) for p in grouped}
        large = {p.name: math.log(p.groups) for p in grouped if p.groups >= GROUPS}
        misread = {o: missing[o] for o, groups in large.items() if abs(missing[o] - groups) < math.log(2.5)}
        if len(misread) < 0.6 * len(grouped):
            continue
        worst = math.exp(misread[(blocks := worst_first(misread))[0]])
        calibrated, root = net.signals.fixed_norms > 0 and not net.signals.fresh_norms, short(math.sqrt(worst))
        message = f"{net.listed(blocks)} {'is' if len(blocks) == 1 else 'are'} {root}× smaller than the {law} of the"
        message += " dense convolutions wants, as if it had not been divided by the groups."
        advice = f"Divide the {law} by `groups`: multiply each by the root of its groups, {blocks[0]} by {root}."
        severity: Severity = "note" if net.normalised or calibrated else "warning"
        return Finding("HD204", severity, blocks, message, advice, worst, GROUPS)
    return None


def summed_fans(net: Net) -> Finding | None:
    """HD204: Xavier's fans were summed over all dimensions of a kernel."""
    summed = [
        p
        for p in net.weights
        if "convolution" in p.uses and p.kernel > 1 and p.groups == 1
        and abs(p.weight_sq * (sum(p.shape[2:]) + p.fan_in + p.fan_out) / 2 - 1) < 4 * math.sqrt(2 / p.numel) + 0.01
    ]  # fmt: skip
    if len(summed := [p for p in summed if not _is_plain(p)]) < 2:
        return None
    summed.sort(key=lambda p: -p.numel)  # in a small tensor it may be chance
    blocks = tuple(p.name for p in summed)
    message = f"{net.listed(blocks)} {'has' if len(blocks) == 1 else 'have'} Xavier's fans without the kernel's size."
    grade: Severity = "note" if net.normalised else "warning"
    return Finding("HD204", grade, blocks, message, "Use `nn.init.xavier_normal_` for each.", summed[0].kernel, 1.0)


def _is_plain(p: ParameterSignals) -> bool:
    """Whether a usual scheme gives the same: fans with a gain of 1 or of ReLUs, or PyTorch's default."""
    return any(abs(unit(p) * p.weight_sq / gain - 1) < 0.1 for unit in UNITS.values() for gain in (1 / 3, 1, 2))


def large_bias(net: Net) -> Finding | None:
    """HD205: a bias drowns what its layer computes from the inputs, or holds gates open or shut."""
    hit: dict[str, float] = {}
    for path in net.hidden:
        layer = net.layers[path]
        if GATES & set(layer.labels):
            continue  # it sets how long or how much, as that of Mamba's steps
        for bias in (p for p in net.parameters if path in p.owners and len(p.shape) == 1 and "bias" in p.attribute):
            drive = layer.out_sq - bias.weight_sq if bias.attribute == "bias" else net.scale(path) * layer.x_sq
            if bias.weight_sq > max(BIAS, 4 * drive) and not bias.median_sq <= BIAS:  # of one gate on purpose
                hit[bias.name] = bias.weight_sq / max(drive, 0.01 * bias.weight_sq)
                hit.setdefault(net.name_of(path), 0.0)
    if not (blocks := worst_first(hit)):
        return None
    worst, usual = net.named[blocks[0]].weight_sq, short(math.sqrt(BIAS))
    message = f"The bias {blocks[0]} is of size {short(math.sqrt(worst))} (usual: below {usual}):"
    advice = f"Start it at zero: `nn.init.zeros_(model.get_parameter({blocks[0]!r}))`."
    return Finding("HD205", "warning", blocks, f"{message} it drowns the inputs of its layer.", advice, worst, BIAS)


def above_scheme(net: Net) -> Finding | None:
    """HD206: a layer is much larger than the scheme that most others follow. Smaller is on purpose, mostly."""
    found = laws(net)
    if not found or found.share < FOLLOWED:
        return None
    wide = {p.name for p in net.weights if p.fan_in * p.kernel * p.weight_sq > ABOVE}  # by itself, as no depthwise one
    wide -= {p.name for p in net.weights if p.along < BLIND}  # as of what is normalised before it is used
    large = {name: away for name, away in found.away.items() if away > math.log(ABOVE) and name in wide}
    if not (blocks := worst_first(large)):
        return None
    worst = math.exp(large[blocks[0]])
    first = bool(net.backbone) and net.backbone[0] in net.named[blocks[0]].owners
    few = len(large) <= max(2, len(found.away) // 6) and found.share >= CLEAR
    message = f"{net.listed(blocks)} {'is' if len(blocks) == 1 else 'are up to'} {short(math.sqrt(worst))}× larger than"
    message += f" the {found.law} scheme of most weights gives (usual: within {short(math.sqrt(ABOVE))}×)."
    advice = f"Draw it by that scheme too: multiply {blocks[0]} by {short(worst**-0.5)}."
    severity: Severity = "warning" if worst > (ABOVE_FIRST if first else ABOVE_WARNING) and few else "note"
    return Finding("HD206", severity, blocks, message, advice, worst, ABOVE)


def norm_gain(net: Net) -> Finding | None:
    """HD207: a gain is far from one, without being zero or ending a residual branch, or enlarges such a branch."""
    hit = {p.name: p.weight_sq for p in net.parameters if "branch" in p.uses and p.weight_sq > GAIN}
    ends: dict[str, float] = {}  # of branches: small on purpose, unless others are, too
    for path, layer in net.layers.items():
        own, bias = net.gain_of(path), net.bias_of(path)
        if "Norm" not in layer.kind or path in net.weight_of or not own or not own.weight_sq > 0:
            continue
        small = layer.normalises and not layer.x_sq >= SMALL
        if layer.normalises and (small or layer.out_sq < BELOW_EPS) and 0.5 < own.weight_sq < 2:
            continue  # HD109
        # Measured, where the layer normalises: Gemma's gain is 1 + weight.
        measured = layer.normalises and not small
        effective = layer.out_sq - (bias.weight_sq if bias else 0.0) if measured else own.weight_sq
        if not 1 / GAIN < effective < GAIN:
            (ends if "add" in layer.labels else hit)[own.name] = max(effective, 1e-300)
    hit |= ends if hit else {}
    if not (blocks := worst_first({name: abs(math.log(v)) for name, v in hit.items()})):
        return None
    worst = hit[blocks[0]]
    message = f"{net.listed(blocks)} {'is a gain' if len(blocks) == 1 else 'are gains'} of size"
    message += f" {short(math.sqrt(worst))} (usual: within {short(math.sqrt(GAIN))}× of 1)."
    advice = f"Start gains at one: `nn.init.ones_(model.get_parameter({blocks[0]!r}))`."
    return Finding("HD207", "warning", blocks, message, advice, max(worst, 1 / worst), GAIN)


def identical_units(net: Net) -> Finding | None:
    """HD208: all outputs of a layer have the same weights, so that they learn the same."""
    drawn = [p for p in net.matrices if p.weight_sq > 0 and p.shape[0] > 1 and p.trainable]
    read = {o for layer in net.layers.values() for o in layer.sources}  # outputs have targets of their own
    limits = {p.name: NEARLY if math.isnan(p.kurtosis) and read & {*p.owners} else ALIKE for p in drawn}
    alike = tuple(p.name for p in drawn if p.unlike < limits[p.name])
    if not alike:
        return None
    value = min(net.named[name].unlike for name in alike)
    severity: Severity = "fault" if value < ALIKE else "warning"
    gradients = "gradients, so that they stay the same" if value < ALIKE else "nearly the same gradients"
    message = f"All units of {net.listed(alike)} have the same weights and {gradients}."
    advice = f"Draw random weights ({how_drawn(net, alike[0])})."
    return Finding("HD208", severity, alike, message, advice, value, limits[alike[0]])


NEARLY = 0.5  # of units with one number in all weights: one such layer among random ones has .99
DEAD, DEAD_FAULT = 0.8, 0.95
RARE = 0.01  # share of values above zero
MIN_SAMPLES = 16  # of a unit, before it is called dead


def cannot_learn(net: Net) -> Finding | None:
    """HD401: gradients that are exactly zero, and stay it when the other weights learn."""
    waiting = [p for p in net.parameters if p.trainable and p.gradient in ("zero", "later") and not _is_idle(net, p)]
    stuck = [p for p in waiting if p.gradient == "zero" and not _is_sent(net, p)]
    stuck.sort(key=lambda p: -max((net.order.get(o, -1) for o in p.owners), default=-1))  # nearest the outputs first
    telling = [p for p in stuck if len(p.shape) > 1 or p.weight_sq > 0]
    if starved := _starved(net, waiting):
        return starved
    if not telling:
        return _unmoved(net)
    both = [p for p in telling if p.weight_sq == 0]
    beside = {owner for p in telling for owner in p.owners}
    biases = [p for p in stuck if p not in telling and beside & set(p.owners)]
    blocks = tuple(p.name for p in (*both, *(p for p in telling if p.weight_sq > 0), *biases))
    opened = {_neighbourhood(p): p.name for p in reversed(net.parameters) if p in both}  # the first, side by side
    message = f"{net.listed(blocks)} cannot learn: {'its' if len(blocks) == 1 else 'their'} gradient is exactly zero,"
    message += " and no other weight that learns will change that."
    advice = _advise(net, tuple(opened.values())[::-1])
    shift = all("bias" in p.attribute for p in telling)  # as where a loss compares outputs with one another
    small = all(_has_one_key(net, o) for p in telling for o in p.owners)
    severity: Severity = "note" if shift or small else "fault" if both else "warning"
    return Finding("HD401", severity, blocks, message, advice, 0.0, 0.0)


def _has_one_key(net: Net, path: str) -> bool:
    """Whether a layer makes queries and keys alone of an attention that has one key, as of a small image."""
    readers = [o for o, layer in net.layers.items() if path in layer.sources]
    own = path in net.layers and "one key" in net.layers[path].labels
    return own or (bool(readers) and all(_has_one_key(net, o) for o in readers))


def _is_sent(net: Net, p: ParameterSignals) -> bool:
    """Whether a layer reads zeros alone, and what writes these learns through it: until they are others, as spikes."""
    reads = [layer for o in p.owners if (layer := net.layers.get(o)) and layer.x_sq == 0 < layer.x_gradient_sq]
    writers = {o for layer in reads for o in layer.sources}
    return any(each.gradient == "some" and writers & {*each.owners} for each in net.parameters)


def _unmoved(net: Net) -> Finding | None:
    """Outputs that the loss would move, and no weight does; of a saturated nonlinearity HD106 tells."""
    count = net.signals.unmoved
    if not count or any(layer.saturated > SATURATED for layer in net.layers.values()):
        return None
    message = f"{count} of the outputs {'is' if count == 1 else 'are'} the same for every example, and no weight moves"
    message += f" {'it' if count == 1 else 'them'}, though the loss would: their gradient is exactly zero."
    advice = "Where they are derivatives of a network, take smooth activations: the second derivative of a ReLU is 0."
    return Finding("HD401", "fault", (), message, advice, 0.0, 0.0)


def _starved(net: Net, stuck: list[ParameterSignals]) -> Finding | None:
    """A weight that starts at zero ahead of what cannot learn, which reads zeros: it learns, and opens the way."""
    reads = [layer for p in stuck for o in p.owners if (layer := net.layers.get(o)) and layer.x_sq == 0]
    zeros = [p for each in reads for o in each.sources if (p := net.weight_of.get(o)) and p.weight_sq == 0]
    if not zeros or zeros[0].gradient != "some":
        return None
    name = zeros[0].name
    message = f"{name} is zero, so that {reads[0].path} and all behind it read zeros, whatever the inputs are."
    advice = f"Draw it at random ({how_drawn(net, name)}), or add what it is to change, such as an identity."
    return Finding("HD401", "warning", (name,), message, advice, 0.0, 0.0)


def _advise(net: Net, opened: tuple[str, ...]) -> str:
    """Say what opens the way: of weights that are zero side by side, the first drawn at random."""
    if not opened:
        return "Look for what multiplies by zero: a dead ReLU, a zero gate, a detached branch, a norm of one number."
    matrix = next((name for name in opened if len(net.named[name].shape) > 1), "")
    how = f" ({how_drawn(net, matrix)})" if matrix else ""
    return f"Draw {net.listed(opened)} at random{how}; only the last factor of a product may start at zero."


def _is_idle(net: Net, p: ParameterSignals) -> bool:
    """Whether nothing of this batch was sent to the layer, as to an expert."""
    layers = [net.layers[owner] for owner in p.owners if owner in net.layers]
    return bool(layers) and all(layer.samples == 0 for layer in layers)


def _neighbourhood(p: ParameterSignals) -> str:
    """The module in which a low-rank pair lives: that of two parameters, or of two modules with one each."""
    owner = p.owners[0] if p.owners else ""
    return owner.rpartition(".")[0] if p.attribute == "weight" else owner


def dead(net: Net) -> Finding | None:
    """HD402: a layer whose outputs, or the units behind them, do not change with the inputs; the first one."""
    for path, layer in net.layers.items():
        own, bias = net.gain_of(path), net.bias_of(path)
        if path == net.head or not layer.x_sq > 0 or not layer.x_varies > 0 or "add" in layer.labels or net.waits(path):
            continue  # the last gain of a residual branch is zero on purpose
        if layer.normalises and layer.out_varies == 0:
            around = [each.x_varies for each in net.layers.values() if path in each.sources]
            around += [each.out_varies for name, each in net.layers.items() if path.startswith(f"{name}.")]
            if any(varies > 0 for varies in around):
                continue  # a skip connection, where a gate may stand between
            blocks = (own.name,) if own else tuple(net.name_of(o) for o in layer.sources if o in net.weight_of)
            if own and own.weight_sq == 0:
                message = f"The gain {own.name} is zero, so that nothing passes this normalisation."
                advice = f"Start it at one: `nn.init.ones_(model.get_parameter({own.name!r}))`."
            else:
                message = (
                    f"The normalisation {path} writes the same for every example: it takes the mean of one number."
                )
                advice = "Normalise over more than one number: over all channels, or before the pooling."
            opens = own is not None and own.weight_sq == 0 and own.gradient in ("some", "later")
            return Finding("HD402", "warning" if opens else "fault", blocks, message, advice, 0.0, 0.0)
        rectified = {"relu", "relu6"} & set(layer.labels) and layer.samples >= MIN_SAMPLES
        if own and own.weight_sq > 0 and rectified and (layer.off_share > DEAD or layer.on_share < RARE):
            return _dead_units(net, path, own, bias)
    return None


def _dead_units(net: Net, path: str, own: ParameterSignals, bias: ParameterSignals | None) -> Finding:
    layer, place = net.layers[path], path or "the model"
    sunk = bias is not None and bias.mean < 0 and bias.mean**2 > 0.5 * layer.out_sq
    blocks = (bias.name, own.name) if bias is not None and sunk else (own.name,)
    off, rare = layer.off_share, layer.off_share <= DEAD
    how = f"Only {short(100 * layer.on_share)} % of the values behind {place} are above 0 (usual: 30 %)"
    if not rare:
        how = f"{100 * off:.0f} % of the ReLUs behind {place} never fire (usual: below {100 * DEAD:.0f} %)"
    message = how + (f"; the mean of the bias is {short(bias.mean)}." if bias is not None and sunk else ".")
    advice = (
        f"Start the bias at zero: `nn.init.zeros_(model.get_parameter({blocks[0]!r}))`."
        if sunk
        else "Draw the weights with mean zero, and check that the inputs of the layer are not all of one sign."
    )
    return Finding("HD402", graded(1.0 if rare else off, 0, DEAD_FAULT), blocks, message, advice, off, DEAD)


LEAST_ROWS = 8


def one_row(net: Net) -> Finding | None:
    """HD405: a table of which one row alone gets a gradient, as positions do that are all looked up at 0."""
    tables = [
        p for p in net.parameters if p.trainable and len(p.shape) > 1 and (not p.uses or {"lookup", "sum"} & {*p.uses})
    ]
    hit = [p for p in tables if p.rows == 1 and p.numel // p.shape[-1] >= LEAST_ROWS]
    if not hit or net.signals.examples < 2:
        return None
    blocks = tuple(p.name for p in hit)
    message = f"One row alone of {net.listed(blocks)} gets a gradient, of {hit[0].numel // hit[0].shape[-1]}."
    advice = "Look up a row for each position: `torch.arange(x.shape[1], device=x.device)`."
    return Finding("HD405", "warning", blocks, message, advice, 1.0, 1.0)


def unregistered(net: Net) -> Finding | None:
    """HD404: the outputs depend on tensors that require a gradient and are no parameters of the model."""
    if not (names := net.signals.unregistered):
        return None
    more = f": nor are {len(names) - 1} more tensors" if len(names) > 1 else ""
    message = f"The outputs depend on {names[0]}, which is not registered{more}."
    advice = "Keep layers in `nn.ModuleList` and tensors in `nn.Parameter`: an optimizer sees no others."
    return Finding("HD404", "fault", names, message, advice, float(len(names)), 0.0)


def frozen(net: Net) -> Finding | None:
    """HD403: frozen, unlike siblings, or unlike most layers, before it and after it."""
    learning = {net.siblings[p.name] for p in net.parameters if p.trainable}
    alike = tuple(p.name for p in net.matrices if not p.trainable and net.siblings[p.name] in learning)
    places = {p.name: net.order[o] for p in net.weights for o in p.owners[:1] if o in net.order}
    learn = [place for name, place in places.items() if net.named[name].trainable] or [0]
    kept = {p.name: p for p in net.matrices if not p.trainable and not _adapted(net, p)}
    amid = tuple(name for name, at in places.items() if name in kept and min(learn) < at < max(learn))
    few = 0 < len(amid) <= len(places) / 4  # of adapters the rest is frozen, of a fine-tuned network the beginning
    if not (found := amid if few else alike):
        return None
    which = "most layers learn, before and after" if few else "the same layers at other depths learn"
    message = f"{net.listed(found)} {'is' if len(found) == 1 else 'are'} frozen, while {which}."
    advice = f"If that is not meant: `model.get_parameter({found[0]!r}).requires_grad_()`."
    return Finding("HD403", "warning" if few else "note", found, message, advice, float(len(found)), 0.0)


def _adapted(net: Net, frozen: ParameterSignals) -> bool:
    """Whether smaller matrices of its module, or of the one around it, learn in its place, as in LoRA."""
    around = (f"{frozen.owners[0]}.", frozen.owners[0].rpartition(".")[0] + ".")
    beside = (p for p in net.matrices if p.trainable and p.name.startswith(around))
    return any(min(p.shape) < min(frozen.shape) for p in beside)


def detached(net: Net) -> Finding | None:
    """HD403: the outputs depend on parameters that no gradient reaches; those nearest the output first."""
    cut = [p for p in net.parameters if p.trainable and p.gradient == "cut"]
    cut.sort(key=lambda p: -max((net.order.get(o, -1) for o in p.owners), default=-1))
    if not (blocks := tuple(p.name for p in cut)):
        return None
    whom = "it" if len(blocks) == 1 else "them"
    message = f"The outputs depend on {net.listed(blocks)}, but no gradient reaches {whom}."
    advice = f"If not on purpose: look behind {blocks[0]} for `detach`, `no_grad`, `.data` or `.item()`."
    return Finding("HD403", "warning", blocks, message, advice, float(len(blocks)), 0.0)


def unused(net: Net) -> Finding | None:
    """HD403: parameters that the outputs do not depend on."""
    names = [p for p in net.parameters if p.trainable and p.gradient == "none"]
    if not names:
        return None
    used = {net.siblings[p.name] for p in net.parameters if p.gradient != "none"}
    forgotten = [p.name for p in names if net.siblings[p.name] in used and len(p.shape) > 1]
    forgotten = [o for o in forgotten if "expert" not in o.lower() and not _is_last(net, o)]  # some experts may rest
    blocks = tuple(forgotten + [p.name for p in names if p.name not in forgotten])
    while_on = ", while they do on the same layers at other depths" if forgotten else ""
    message = f"The outputs do not depend on {net.listed(blocks)}{while_on}."
    advice = "Call the layer in the forward pass, or leave it out."
    return Finding("HD403", "warning" if forgotten else "note", blocks, message, advice, float(len(blocks)), 0.0)


def _is_last(net: Net, name: str) -> bool:
    """Whether a layer is called after all of its siblings: nothing may be left to read its output, as in WaveNet."""
    alike = [p for p in net.parameters if net.siblings[p.name] == net.siblings[name]]
    places = {p.name: max((net.order.get(owner, -1) for owner in p.owners), default=-1) for p in alike}
    return 0 <= places[name] == max(places.values())


RULES = (
    outliers, sibling, fused_part, groups_forgotten, summed_fans, large_bias, above_scheme, norm_gain, identical_units,
    cannot_learn, dead, frozen, detached, unused,
    one_row, unregistered,
)  # fmt: skip
