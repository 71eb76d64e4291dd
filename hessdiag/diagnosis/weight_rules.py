"""HD109, HD117, and HD2xx to HD4xx: weights, and what can learn. Each reads a `Net`, and returns a finding or None."""

import math
import re
from collections import Counter, defaultdict
from statistics import median

from hessdiag.diagnosis.network_view import (
    BLIND,
    GATES,
    SMALL,
    UNITS,
    Net,
    graded,
    how_drawn,
    law_of,
    listed,
    mode,
    multiplied,
    worst_first,
)
from hessdiag.results.findings import Finding, Severity
from hessdiag.results.numbers import root, short, trimmed, whole
from hessdiag.results.signals import ALIKE, FIXED, ParameterSignals

KURTOSIS, OUTLYING, OUTLYING_WARNING = 10.0, 8.0, 0.1  # the last: their share of a tensor's squares
SIBLING, SIBLING_FAULT = 9.0, 25.0
GROUPS, LARGE = 8.0, 1000
BIAS = 4.0
PASSING = {"linear", "add", "self-add", "gate", "attention", "output"}  # labels of what is no end of its own
ABOVE, ABOVE_WARNING = 4.0, 20.0
GAIN = 50.0
BELOW_EPS, BELOW_EPS_WARNING = 0.25, (1e-5, 0.01)  # of what a normalisation writes: of what is small, or one alone
CLOSE = 0.1  # of weights around one number that is not zero
NEARLY = 0.5  # of units with one number in all weights: one such layer among random ones has .99
ALIVE = 0.025  # share of the values behind a ReLU that are above zero
LEAST_ROWS, TABLE = 8, 4
SEVERAL, FEW_DRAWS = 4, 32  # units, or outputs; and examples times units, all off by chance
CHANCE = 8  # units: fewer may all be positive, as those of a narrow squeeze


def outliers(net: Net) -> Finding | None:
    """HD201: a few entries far outside the rest of their tensor."""
    tails = {p.name: p.kurtosis for p in net.matrices if p.zeros < 0.2 and not math.isnan(p.kurtosis)}
    limit = max(KURTOSIS, 3 * median([*tails.values()] or [0.0]))
    hit = {name: tail for name, tail in tails.items() if tail > limit and net.named[name].largest > OUTLYING}
    if not (blocks := worst_first(hit)):
        return None
    worst = net.named[blocks[0]]
    sizes = f"{short(worst.largest)} times the rms, with a kurtosis of {short(worst.kurtosis)}"
    message = f"Outliers in {listed(blocks)}: the largest entry is {sizes} (usual: 3)."
    advice = "Draw the weight anew, as `nn.init.trunc_normal_(w, std=s, a=-2 * s, b=2 * s)` does."
    severity = graded((worst.kurtosis - 3) / worst.largest**2, OUTLYING_WARNING)
    return Finding("HD201", severity, blocks, message, advice, worst.kurtosis, KURTOSIS)


def sibling(net: Net) -> Finding | None:
    """HD202: one tensor is scaled differently from those of the same name and shape at other depths."""
    families: dict[str, list[ParameterSignals]] = defaultdict(list)
    for p in (p for p in net.matrices if p.weight_sq > 0):
        families[net.siblings[p.name]].append(p)
    hit: dict[str, float] = {}
    for family in families.values():
        middle = median(math.log(p.weight_sq) for p in family)
        ratios = {p.name: math.log(p.weight_sq) - middle for p in family}
        spread = median(map(abs, ratios.values()))
        away = {name: ratio for name, ratio in ratios.items() if abs(ratio) > max(math.log(SIBLING), 6 * spread)}
        if len(family) > 2 and len(away) <= max(1, len(family) // 4):  # else there are two populations, not an outlier
            hit |= away
    if not (blocks := worst_first({name: abs(ratio) for name, ratio in hit.items()})):
        return None
    ratio = hit[blocks[0]]
    worst, factor, how = math.exp(abs(ratio)), math.exp(-ratio / 2), "larger" if ratio > 0 else "smaller"
    message = f"{blocks[0]} is {root(worst)}× {how} than siblings at other depths (usual: within {root(SIBLING)}×)."
    advice = f"Initialise it as its siblings are: multiply {blocks[0]} by {short(factor)}."
    return Finding("HD202", graded(worst, 0, SIBLING_FAULT), blocks, message, advice, worst, SIBLING)


def groups_forgotten(net: Net) -> Finding | None:
    """HD204: depthwise convolutions were drawn with fans that were not divided by their groups."""
    grouped = [p for p in net.weights if p.groups >= GROUPS and p.weight_sq > 0]
    dense = [p for p in net.weights if p.groups == 1 and p.weight_sq > 0]
    if len(dense) < 2 or len(grouped) < 2:
        return None
    for law, unit in UNITS.items():
        constant = mode([math.log(unit(p) * p.weight_sq) for p in dense])
        missing = {p.name: constant - math.log(unit(p) * p.weight_sq) for p in grouped}
        misread = {o: v for o, v in missing.items() if abs(v - math.log(net.named[o].groups)) < math.log(2.5)}
        if len(misread) < 0.6 * len(grouped):
            continue
        worst, blocks = math.exp(max(misread.values())), worst_first(misread)
        times, own = root(worst), short(math.exp(misread[blocks[0]] / 2))
        message = f"{listed(blocks)}: {times}× too small for the {law} of the others, as if not divided by the groups."
        advice = f"Divide the {law} by `groups`: multiply each by the root of its groups, {blocks[0]} by {own}."
        return Finding("HD204", "note" if net.normalised else "warning", blocks, message, advice, worst, GROUPS)
    return None


def summed_fans(net: Net) -> Finding | None:
    """HD204: Xavier's fans were summed over all dimensions of a kernel."""
    large = [p for p in net.weights if p.kernel > 1 and p.numel > LARGE]  # in small tensors it may be chance
    kernels = sorted((p for p in large if "convolution" in p.uses and not _is_plain(p)), key=lambda p: -p.numel)
    times = {p.name: p.weight_sq * (sum(p.shape[2:]) + p.fan_in + p.fan_out) / 2 for p in kernels}
    summed = [p for p in kernels if abs(times[p.name] - 1) < 4 * math.sqrt(2 / p.numel) + 0.01]
    if len(summed) < 2:
        return None
    blocks = tuple(p.name for p in summed)
    message = f"{listed(blocks)} have Xavier's fans without the kernel's size."
    grade: Severity = "note" if net.normalised else "warning"
    return Finding("HD204", grade, blocks, message, "Use `nn.init.xavier_normal_` for each.", summed[0].kernel, 1.0)


def _is_plain(p: ParameterSignals) -> bool:
    """Whether a usual scheme gives the same: fans with a gain of 1 or of ReLUs, or PyTorch's default."""
    return any(abs(unit(p) * p.weight_sq / gain - 1) < 0.1 for unit in UNITS.values() for gain in (1 / 3, 1, 2))


def large_bias(net: Net) -> Finding | None:
    """HD205: a bias drowns what its layer computes from the inputs, or holds gates open or shut."""
    hit: dict[str, float] = {}
    for path in (o for o in net.hidden if not (o in net.signals.sources or GATES & {*net.layers[o].labels})):
        layer = net.layers[path]  # no gate, which sets how long or how much, and none of several heads
        drive = net.scale(path) * layer.x_sq
        for bias in (p for p in net.parameters if path in p.owners and "bias" in p.attribute):
            size = bias.weight_sq - bias.mean**2 * ("softmax" in layer.labels)  # which takes the mean away
            if size > max(BIAS, 4 * drive) and not bias.median_sq <= BIAS:  # of one gate on purpose
                hit[bias.name] = size / max(drive, 0.01 * size)
                hit.setdefault(net.name_of(path), 0.0)
    if not (blocks := worst_first(hit)):
        return None
    worst = net.named[blocks[0]].weight_sq
    what = f"The bias {blocks[0]} is of size {root(worst)} (usual: below {root(BIAS)})"
    advice = f"Start it at zero: `nn.init.zeros_(model.get_parameter({blocks[0]!r}))`."
    return Finding("HD205", "warning", blocks, f"{what}: it drowns the inputs of its layer.", advice, worst, BIAS)


def above_scheme(net: Net) -> Finding | None:
    """HD206: a layer is much larger than the scheme that most others follow. Smaller is on purpose, mostly."""
    if not (found := law_of(net)):
        return None
    drawn = [p for p in net.weights if p.along >= BLIND and p.trainable and p.kind != "Embedding"]  # nor normalised
    wide = {p.name for p in drawn if p.fan_in * p.kernel * p.weight_sq > ABOVE}  # by itself, as no depthwise one
    wide -= {p.name for p in drawn if "Transpose" in p.kind and _is_plain(p)}  # PyTorch takes the other fan
    states = [(p, p.shape[0] // {"LST": 4, "GRU": 3}.get(p.kind[:3], 1)) for p in drawn if "_ih" in p.attribute]
    wide -= {p.name for p, size in states if abs(3 * size * p.weight_sq - 1) < 0.1}  # of a state
    large = {name: away for name, away in found.away.items() if away > math.log(ABOVE) and name in wide}
    if not (blocks := worst_first(large)):
        return None
    worst = math.exp(max(large.values()))
    far, law, usual = root(worst), found.name, root(ABOVE)
    message = f"{listed(blocks)}: {far}× larger than the {law} scheme of most weights (usual: within {usual}×)."
    factors = {name: math.exp(-large[name] / 2) for name in blocks}
    advice = f"Draw {'them' if blocks[1:] else 'it'} by that scheme too: multiply {multiplied(net, factors)}."
    first, few = net.named[blocks[0]], len(large) <= found.share * len(found.away) / 2
    known = re.fullmatch(r"Linear|Conv(Transpose)?\dd|Conv1D|(RNN|LSTM|GRU)(Cell)?", first.kind)  # not guessed
    severity = graded(worst, ABOVE_WARNING) if few and known and first.attribute.startswith("weight") else "note"
    return Finding("HD206", severity, blocks, message, advice, worst, ABOVE)


def norm_gain(net: Net) -> Finding | None:
    """HD207: a gain is far from one, without being zero or ending a residual branch, or enlarges such a branch."""
    hit = {p.name: p.weight_sq for p in net.parameters if "branch" in p.uses and p.weight_sq > GAIN}
    for path, layer in net.layers.items():
        own = None if path in net.weight_of else net.held(path, "weight")  # a table may normalise its rows
        if "Norm" in layer.kind and "add" not in layer.labels and own and own.weight_sq > 0:
            if 0.5 < own.weight_sq < 2:
                continue
            bias = net.held(path, "bias")
            written = layer.out_sq - (bias.weight_sq if bias else 0.0)  # as the gain acts: Gemma's is 1 + weight
            gain_sq = max(written, 1e-300) if layer.x_sq >= SMALL else own.weight_sq
            hit |= {} if 1 / GAIN < gain_sq < GAIN else {own.name: gain_sq}
    if not (blocks := worst_first({name: abs(math.log(v)) for name, v in hit.items()})):
        return None
    worst = hit[blocks[0]]
    message = f"Gains of {listed(blocks)} are of size {root(worst)} (usual: within {root(GAIN)}× of 1)."
    advice = f"Start gains at one: `nn.init.ones_(model.get_parameter({blocks[0]!r}))`."
    severity: Severity = "warning" if net.signals.loss_kind == "cross-entropy" else "note"  # may start small on purpose
    return Finding("HD207", severity, blocks, message, advice, max(worst, 1 / worst), GAIN)


def below_epsilon(net: Net) -> Finding | None:
    """HD109: ε outweighs what a normalisation reads, so that it is not normalised."""
    hit: dict[str, float] = {}
    sources: list[str] = []
    for path, layer in net.layers.items():
        gain = net.held(path, "weight")
        if not layer.normalises or not gain or not 0.5 < gain.weight_sq < 2 or not layer.x_sq * layer.x_varies > 0:
            continue
        share = 1.0 if math.isclose(layer.out_sq, layer.x_sq, rel_tol=1e-3) else layer.out_sq / gain.weight_sq
        if share < BELOW_EPS and (layer.x_sq >= SMALL or not share):
            hit[gain.name] = share
        elif share < BELOW_EPS:
            before = [o for o in net.weight_of if net.order[o] < net.order[path]]
            source = net.name_of(max(before, key=net.order.__getitem__)) if before else gain.name
            hit |= {source: min(share, hit.get(source, 1.0)), gain.name: share}
            sources.append(source)
    if not hit:
        return None
    blocks = tuple(sorted(hit, key=lambda name: (hit[name], name not in sources)))
    worst = hit[blocks[0]]
    what = f"{blocks[0]} is so small that ε outweighs it: the normalisation after it"
    table = "lookup" in net.named[blocks[0]].uses
    how = "a standard deviation of 0.02 is usual" if table else "look for a missing skip connection, too"
    advice = f"Make {blocks[0]} larger ({how}), or ε smaller."
    if alone := blocks[0] not in sources:
        what = f"What reaches {listed(blocks)} hardly differs, is one number, or small beside ε: the worst of these"
        advice = "Normalise more numbers (fewer groups, another axis, ahead of a pooling), or make ε smaller (1e-5)."
    message = f"{what} writes {root(worst)} (usual: above {root(BELOW_EPS)})."
    return Finding("HD109", graded(-worst, -BELOW_EPS_WARNING[alone]), blocks, message, advice, worst, BELOW_EPS)


def identical_units(net: Net) -> Finding | None:
    """HD208: all outputs of a layer have the same weights, so that they learn the same."""
    drawn = [p for p in net.matrices if p.shape[0] > 1 and p.trainable]
    read = {o for layer in net.layers.values() for o in layer.sources}  # outputs have targets of their own
    even = {p.name for p in drawn if p.weight_sq > 0 and math.isnan(p.kurtosis) and read & {*p.owners}}
    mean = {p.name for p in net.weights if p.fan_in > 1 and p.mean**2 > (1 - CLOSE) * p.weight_sq}
    limits = {p.name: NEARLY if p.name in even else CLOSE if p.name in mean else ALIKE for p in drawn}
    apart = {(p.owners[:1], p.shape) for p in drawn if not p.unlike < limits[p.name]}  # as means beside deviations
    units = [p for p in drawn if p.unlike < limits[p.name] and (p.owners[:1], p.shape) not in apart]
    alike, table = tuple(p.name for p in units), net.signals.one_frequency
    if table and not alike:
        message = f"Of the columns of {table} no more than two differ, as of sines of one frequency."
        advice = "Divide as floats, `torch.arange(0, d, 2) / d`, not by `//`."
        return Finding("HD208", "warning", (table,), message, advice, 2.0, 2.0)
    if not alike:
        return None
    value = min(net.named[name].unlike for name in alike)
    same = "the same weights and gradients, so that they stay the same" if value < ALIKE else "nearly the same weights"
    message = f"All units of {listed(alike)} have {same}."
    one = math.isnan((first := net.named[alike[0]]).kurtosis)
    advice = f"Draw random weights ({how_drawn(net, first.name) if one else f'around zero, not {short(first.mean)}'})."
    return Finding("HD208", "fault" if value < ALIKE else "warning", alike, message, advice, value, limits[alike[0]])


def cannot_learn(net: Net) -> Finding | None:
    """HD401: gradients that are exactly zero, and stay it when the other weights learn."""
    stuck = [p for p in net.parameters if p.trainable and p.gradient == "zero" and not _is_meant(net, p)]
    stuck.sort(key=net.place, reverse=True)
    learn = {net.siblings[p.name] for p in net.parameters if p.gradient in ("some", "later")}
    free = {p for p in stuck if p.numel > 1 and not re.search("weight|bias", p.attribute)}
    bare = (p for p in stuck if len(p.shape) > 1 or (p in free and net.siblings[p.name] not in learn))
    telling = sorted(bare, key=lambda p: p.weight_sq > 0)  # zeros first
    if net.signals.solved or not telling:
        return _unmoved(net)
    zeros = [p.name for p in telling if p.weight_sq == 0 and len(p.shape) > 1]
    blocks = tuple(p.name for p in (*telling, *(p for p in stuck if p not in telling)))
    message = f"{listed(blocks)} cannot learn: the gradient there is exactly zero, also once others have moved."
    advice = "Look for a dead ReLU, a zero input, gate, mask or state, rounding, a softmax of one number, or `detach`."
    if net.signals.bounded and not any(p.gradient in ("some", "later") for p in net.parameters):
        message += f" None passes the {net.signals.bounded} that ends the network."
    opened = {_neighbourhood(p): p.name for p in reversed(net.parameters) if p.name in zeros}  # the first of each
    if zeros and "factor" in net.named[zeros[0]].uses:
        how = how_drawn(net, zeros[0])
        advice = f"Draw {listed([*opened.values()][::-1])} at random ({how}): only a product's last factor may be zero."
    severity: Severity = "fault" if len(opened) < len(zeros) else "warning"  # where it is no other factor that is zero
    return Finding("HD401", severity, blocks, message, advice, 0.0, 0.0)


def cancelled(net: Net) -> Finding | None:
    """HD401: rows or columns of a matrix whose gradient is rounding: what they add is taken away again."""
    ends = {*net.signals.sources}  # of which a loss may mask some
    inner = (p for p in net.matrices if p.gradient == "some" and not ends & {*p.owners})
    hit = {p.name: p.cancelled for p in inner if p.trainable and p.cancelled}
    if not (blocks := worst_first(hit)):
        return None
    message = f"{whole(hit[blocks[0]])} of the rows or columns of {listed(blocks)} cannot learn: what they add cancels."
    advice = "Look for what a softmax, norm or difference takes away: of query and key, add a tanh ahead of the score."
    return Finding("HD401", "warning", blocks, message, advice, hit[blocks[0]], 0.0)


def undefined(net: Net) -> Finding | None:
    """HD401: gradients that are no numbers, or become NaN, though the loss is one; those nearest the outputs first."""
    hit = [p for p in net.parameters if not math.isfinite(p.gradient_sq)]
    if blocks := net.labelled("root"):
        message = f"A sqrt or acos behind {listed(blocks)} reads zeros or ones, where its slope is infinite: NaN."
        advice = "Keep what it reads off there: `(x + 1e-6).sqrt()`, or `x.clamp(1e-6 - 1, 1 - 1e-6).acos()`."
        return Finding("HD401", "fault" if hit else "warning", blocks, message, advice, math.nan if hit else 0.0, 0.0)
    if blocks := tuple(p.name for p in sorted(hit, key=net.place, reverse=True)):
        message = f"The gradients of {listed(blocks)} are NaN or infinite, while the loss is a number."
        advice = f"Look behind {blocks[0]} for 0/0, or a root or norm at 0, that is masked later: mask what it reads."
        return Finding("HD401", "fault", blocks, message, advice, math.nan, 0.0)
    return None


def _neighbourhood(p: ParameterSignals) -> str:
    """The module in which a low-rank pair lives: that of two parameters, or of two modules with one each."""
    owner = p.owners[0] if p.owners else ""
    return owner.rpartition(".")[0] if p.attribute == "weight" else owner


def _is_meant(net: Net, p: ParameterSignals) -> bool:
    """Whether a gradient of zero is no fault: of attention to one key; of a reversed recurrence whose last output alone
    is read; of a layer to which nothing of this batch was sent, as to an expert; of one that reads zeros, while what
    writes these learns through it, as spikes; or, while others of its stack learn, of attention that writes zeros, as
    among a decoder's queries of zeros, or of what is last, as of coordinates that nothing reads any more.
    """
    if "one key" in p.uses or re.fullmatch(r"weight_hh_.*_reverse", p.attribute):
        return True
    layers = [net.layers[owner] for owner in p.owners if owner in net.layers]
    learning = [each for each in net.parameters if each.gradient == "some"]
    writers = {o for layer in layers if layer.x_sq == 0 < layer.x_gradient_sq for o in layer.sources}
    attends = [layer.out_sq for layer in layers if "attention" in layer.labels]
    sent = any(writers & {*each.owners} for each in learning)
    stack = [each for each in learning if net.siblings[each.name] == net.siblings[p.name]]
    idle = bool(layers) and not any(layer.samples for layer in layers)
    last = len(stack) > 1 and _is_last(net, p.name)
    return idle or sent or last or (bool(stack and attends) and not any(attends))


def _unmoved(net: Net) -> Finding | None:
    """Outputs that the loss would move, and no weight does."""
    if not (count := net.signals.unmoved):
        return None
    message = f"The gradients of {count} outputs are zero, whatever the weights are, not so that of the loss."
    advice = "Look for inputs handed on in their place; of derivatives take smooth activations: a ReLU's second is 0."
    return Finding("HD401", "warning", (), message, advice, 0.0, 0.0)


def dead(net: Net) -> Finding | None:
    """HD402: a layer whose outputs, or the units behind them, do not change with the inputs; the first one."""
    for path, layer in net.layers.items():
        own, bias = net.held(path, "weight"), net.held(path, "bias")
        last = path == net.head and net.signals.output_varies > 0
        if last or layer.x_varies == 0 or own is None or "add" in layer.labels:
            continue  # the last gain of a residual branch is zero on purpose
        if layer.normalises and own.weight_sq == 0 and not net.signals.output_varies > 0:
            gains = [p for o, each in net.layers.items() if each.normalises and (p := net.held(o, "weight"))]
            zeros = tuple(p.name for p in gains if p.weight_sq == 0)
            message = f"Gains of {listed(zeros)} are zero: nothing passes the normalisation, and outputs are the same."
            advice = f"Start them at one: `nn.init.ones_(model.get_parameter({own.name!r}))`."
            severity: Severity = "warning" if own.gradient in ("some", "later") else "fault"
            return Finding("HD402", severity, zeros, message, advice, 0.0, 0.0)
        again = not math.isnan(layer.x_sq_last) and net.signals.output_varies > 0  # and may fire then
        if {"relu", "relu6"} & {*layer.labels} and layer.out_sq > 0 and layer.on_share < ALIVE and not again:
            on, usual = short(100 * layer.on_share), trimmed(100 * ALIVE)
            message = f"The ReLU after {path or 'the model'} fires for {on} % of its inputs (usual: above {usual} %)."
            blocks: tuple[str, ...] = (own.name,)
            advice = "Draw the weights with mean zero; look for inputs of one sign, and what is taken off before it."
            if path in net.signals.sources:
                advice = f"Return the outputs of {own.name} without the ReLU, or behind `F.softplus`."
            elif bias and bias.weight_sq > 0.5 * layer.out_sq:
                blocks = (bias.name, own.name)
                advice = f"Start the bias at zero: `nn.init.zeros_(model.get_parameter({bias.name!r}))`."
            lone = own.shape[0] < SEVERAL or own.shape[0] * net.signals.examples < FEW_DRAWS
            lone &= net.signals.output_varies > 0 and path not in net.signals.sources
            return Finding("HD402", "warning" if lone else "fault", blocks, message, advice, layer.on_share, ALIVE)
    return None


def linear_pair(net: Net) -> Finding | None:
    """HD117: a layer reads what another one wrote, with nothing between that is not linear: both are one layer. What is
    nonlinear elsewhere learns all the same. Where nothing is, a batch normalisation is taken for linear, too.
    """
    readers = Counter(o for layer in net.layers.values() for o in layer.sources)
    convolved = {o for layer in net.layers.values() if "Conv" in layer.kind for o in layer.sources}
    ahead = [o for path, o in net.layers.items() if (path,) != net.signals.sources]
    normed = {o.path: o.sources[0] for o in ahead if o.labels == ("batch",) and len(o.sources) == 1}
    plain = [{*o.labels} - {"norm" if o.path in normed.values() else "batch"} for o in ahead]
    linear = all({"linear", "output"} >= o for o in plain) and all(o.labels or o.path in convolved for o in ahead)
    hit: dict[str, None] = {}
    for path in (path for path in net.backbone if len(net.layers[path].sources) == 1):
        layer, second, (wrote,) = net.layers[path], net.weight_of[path], net.layers[path].sources
        source = net.layers[normed.get(wrote, wrote) if linear else wrote]
        first = net.weight_of.get(source.path)
        alone = readers[source.path] == 1 and "gate" not in layer.labels  # one half of a gated unit
        if first and (source.labels == ("linear",) or source.path != wrote) and alone:
            direct = math.isclose(net.layers[wrote].out_sq, layer.x_sq, rel_tol=1e-5)  # not pooled
            if direct and first.fan_out == second.fan_in >= min(first.fan_in, second.fan_out):
                hit |= {first.name: None, second.name: None}
    wide = {o: p.name for o, p in net.weight_of.items() if p.fan_out >= CHANCE}
    if idle := [name for o, name in wide.items() if {"linear", "idle"} == {*net.layers[o].labels} - {"norm"}]:
        message = f"The activations behind {listed(idle)} do nothing: they are linear on all that they read."
        advice = "Look at the slope, a number (`nn.LeakyReLU(0.2)`), and whether all that they read is positive."
        return Finding("HD117", "warning", tuple(idle), message, advice, 1.0, 0.0)
    if not hit:
        return None
    message = f"Nothing nonlinear stands between {listed(hit)}: they do no more than one layer would."
    advice = f"Put an activation, such as a ReLU, after {next(iter(hit)).rpartition('.')[0]}."
    return Finding("HD117", "warning" if linear else "note", tuple(hit), message, advice, 1.0, 0.0)


def one_number(net: Net) -> Finding | None:
    """HD120: all that the outputs see of an example is one number behind a nonlinearity, and they have to tell more."""
    for path, name in ((o, net.name_of(o)) for o in net.hidden if "bottleneck" in net.layers[o].labels):
        labels = {*net.layers[path].labels}
        if len(labels) > 1 and not PASSING & labels and net.named[name].numel > 1:
            message = f"All that the outputs see of an example is the one number that {name} writes."
            return Finding("HD120", "warning", (name,), message, "Give it more units, or leave it out.", 1.0, 0.0)
    return None


def one_row(net: Net) -> Finding | None:
    """HD405: a table of which one row alone gets a gradient, as positions do that are all looked up at 0."""
    tables = [p for p in net.parameters if p.rows == 1 and (not p.uses or {"lookup", "sum"} & {*p.uses})]
    hit = [p for p in tables if p.numel // p.shape[-1] >= LEAST_ROWS]
    if not hit or net.signals.examples < 2:
        return None
    blocks = tuple(p.name for p in hit)
    message = f"One row alone of {listed(blocks)} gets a gradient, of {hit[0].numel // hit[0].shape[-1]}."
    advice = "Look up a row for each position, `torch.arange(x.shape[1])`, none for padding; read causal outputs last."
    return Finding("HD405", "warning", blocks, message, advice, 1.0, 1.0)


def unregistered(net: Net) -> Finding | None:
    """HD404: the outputs depend on tensors that require a gradient and are no parameters of the model."""
    cut = any(p.gradient in ("cut", "targets") for p in net.parameters)  # of which parameters are made on the way
    names = tuple(name for name in net.signals.unregistered if not (cut and name.startswith("Parameter(")))
    if not names:
        return None
    message = f"The outputs depend on {listed(names)}: tensors that are not registered."
    advice = "Keep layers in `nn.ModuleList`, tensors in `nn.Parameter`, made in `__init__`: "
    advice += "an optimizer sees no others."
    moved = not all(name.endswith(FIXED) or re.fullmatch(r"Parameter\(\d+,\)", name) for name in names)  # no matrices
    return Finding("HD404", "fault" if moved else "warning", names, message, advice, float(len(names)), 0.0)


def frozen(net: Net) -> Finding | None:
    """HD403: frozen, unlike most layers, before it and after it."""
    places = {p.name: net.order[o] for p in net.weights for o in p.owners[:1] if o and o in net.order}
    learn = [place for name, place in places.items() if net.named[name].trainable] or [0]
    kept = {p.name for p in net.weights if not p.trainable}
    amid = tuple(name for name, at in places.items() if name in kept and min(learn) < at < max(learn))
    few = 0 < len(amid) <= len(places) / 4  # of adapters the rest is frozen, of a fine-tuned network the beginning
    if not few or any(_adapted(net, net.named[name]) for name in kept):
        return None
    message = f"{listed(amid)} {'is' if len(amid) == 1 else 'are'} frozen, amid layers that learn."
    advice = f"If that is not meant: `model.get_parameter({amid[0]!r}).requires_grad_()`."
    return Finding("HD403", "warning", amid, message, advice, float(len(amid)), 0.0)


def _adapted(net: Net, frozen: ParameterSignals) -> bool:
    """Whether smaller matrices of its module, or of the one around it, learn in its place, as in LoRA, or free ones."""
    around = (f"{frozen.owners[0]}.", frozen.owners[0].rpartition(".")[0] + ".")
    beside = (p for p in net.parameters if p.trainable and len(p.shape) > 1 and p.name.startswith(around))
    return any(min(p.shape) < min(frozen.shape) or not re.search("weight|bias", p.attribute) for p in beside)


def detached(net: Net) -> Finding | None:
    """HD403: the outputs depend on parameters that no gradient reaches; those nearest the output first."""
    cut = [p for p in net.parameters if p.trainable and p.gradient == "cut"]
    if blocks := tuple(p.name for p in sorted(cut, key=net.place, reverse=True)):
        message = f"The outputs depend on {listed(blocks)}, but no gradient gets there."
        advice = f"If not on purpose: look behind {blocks[0]} for `detach`, `no_grad`, `argmax` or `>`."
        return Finding("HD403", "warning", blocks, message, advice, float(len(blocks)), 0.0)
    if blocks := tuple(p.name for p in net.parameters if p.trainable and p.gradient == "targets"):
        message = f"No gradient gets to {listed(blocks)}, as where a copy of what learns makes the targets."
        return Finding("HD403", "note", blocks, message, "Nothing, if that is meant.", float(len(blocks)), 0.0)
    if blocks := net.labelled("let go"):
        message = f"The state of {listed(blocks)} is detached at each step, so that no gradient gets to earlier ones."
        advice = "Leave out `detach()` within a sequence: it belongs between two of them."
        return Finding("HD403", "warning", blocks, message, advice, float(len(blocks)), 0.0)
    if blocks := net.labelled("sampled"):
        message = f"The first output changes with {listed(blocks)}, and sends no gradient there."
        advice = "Draw by `rsample()`, not `sample()`; of codes pass on `z + (q - z).detach()`; a policy may mean it."
        return Finding("HD403", "warning", blocks, message, advice, float(len(blocks)), 0.0)
    return None


def left_out(net: Net) -> Finding | None:
    """HD403: parameters of outputs that the loss does not read."""
    blocks = tuple(p.name for p in net.parameters if p.trainable and p.gradient == "left")
    if not any(len(net.named[name].shape) > 1 for name in blocks):
        return None
    read = {net.siblings[p.name] for p in net.parameters if p.gradient == "some"}
    severity: Severity = "note" if read.issuperset(net.siblings[name] for name in blocks) else "warning"
    message = f"The loss does not read what is made of {listed(blocks)}."
    return Finding("HD403", severity, blocks, message, "If it is to be learnt: add its loss.", float(len(blocks)), 0.0)


def unused(net: Net) -> Finding | None:
    """HD403: parameters that the outputs do not depend on."""
    if not (names := [p for p in net.parameters if p.trainable and p.gradient in ("none", "unread")]):
        return None
    used = {net.siblings[p.name] for p in net.parameters if p.gradient not in ("none", "unread")}
    unread = [p.name for p in names if p.gradient == "unread" and net.siblings[p.name] not in used]
    if matrices := [name for name in unread if len(net.named[name].shape) > 1]:
        message = f"Nothing reads what is made of {listed(matrices)}, or only as indices."
        advice = "Pass on what the layer returns, or leave it out."
        unread = list(dict.fromkeys((*matrices, *unread)))
        severity: Severity = "note" if _ends(net, matrices) else "warning"
        return Finding("HD403", severity, tuple(unread), message, advice, float(len(unread)), 0.0)
    forgotten = [p.name for p in names if net.siblings[p.name] in used and len(p.shape) > 1]
    forgotten = [o for o in forgotten if "expert" not in o.lower() and not _is_last(net, o)]  # some experts may rest
    blocks = tuple(forgotten + [p.name for p in names if p.name not in forgotten])
    while_on = ", while they do on the same layers at other depths" if forgotten else ""
    message = f"The outputs do not depend on {listed(blocks)}{while_on}."
    advice = "Call the layer in the forward pass, or leave it out."
    learn = any(p.gradient in ("some", "later") for p in net.parameters if p.trainable and len(p.shape) > 1)
    tables = [p for p in names if p.shape and p.numel >= TABLE * p.shape[-1] and _stands_alone(net, p)]
    severity = "warning" if forgotten or tables or not learn else "note"
    return Finding("HD403", severity, blocks, message, advice, float(len(blocks)), 0.0)


def _stands_alone(net: Net, p: ParameterSignals) -> bool:
    """Whether it is a table or another tensor that no layer multiplies by, of which there is one, as of positions."""
    alike = [name for name, family in net.siblings.items() if family == net.siblings[p.name]]
    return len(alike) == 1 and ("Embedding" in p.kind or not re.search("weight|bias", p.attribute))


def _ends(net: Net, unread: list[str]) -> bool:
    """Whether layers are called after all in their part of the model that are read, as a pooler that is passed by."""
    own, around = [net.order.get(net.named[name].owners[0], -1) for name in unread], unread[0].split(".")[0] + "."
    read = {p.name: net.order.get(p.owners[0], -1) for p in net.weights if p.name not in unread}
    beside = [place for name, place in read.items() if name.startswith(around)]
    return bool(beside) and min(own) > max(beside)


def _is_last(net: Net, name: str) -> bool:
    """Whether a layer is called after all of its siblings: nothing may be left to read its output, as in WaveNet."""
    places = {p.name: net.place(p) for p in net.parameters if net.siblings[p.name] == net.siblings[name]}
    return 0 <= places[name] == max(places.values())


RULES = (
    outliers, sibling, groups_forgotten, summed_fans, large_bias, above_scheme, norm_gain, below_epsilon,
    identical_units, cannot_learn, cancelled, undefined, dead, linear_pair, frozen, detached, left_out, unused,
    one_number, one_row, unregistered,
)  # fmt: skip
