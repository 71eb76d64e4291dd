"""HD1xx: what runs through the network. Each rule reads a `Net` and returns what it finds, or None."""

import math
import re

from hessdiag.diagnosis.network_view import (
    ADAM,
    BLIND,
    DROPPED,
    GATES,
    LEARNABLE,
    LEVEL,
    RARE,
    SATURATED,
    SWING,
    TINY,
    Net,
    graded,
    how_drawn,
    listed,
    log_ratio,
    multiplied,
    worst_first,
)
from hessdiag.results.findings import Finding, Severity
from hessdiag.results.numbers import root, short, trimmed, whole
from hessdiag.results.signals import ALIKE

CLASSES, NUMBERS = (2.0, 5.0, 15.0), (3.0, 100.0, 100.0)  # note, warning, fault of a cross-entropy, and of other losses
TABLES = (3.0, 20.0, 100.0)  # of whose rows each is shrunk by itself
SURE, YES_OR_NO, RARELY = 3.0, 0.7, 10.0  # of a binary cross-entropy: of logits that are wrong, ln 2; times a guess
UNDRAWN = 1e12  # E[W²] of no weight which was drawn
MOSTLY = 0.5  # of E[y²]
RULES_IT, NOT_IT, ENLARGES = 0.5, 0.1, 4.0  # powers of the loss in a size, 1 or 2 of what sets it; and of E[x²]
SMALLER = 10.0  # times E[y²] of the outputs, that the targets want
SILENT = 1e-11  # varying E[x²] at the head: 6e-10 trains, and rounding begins at 1e-13
SQUASHED = 1e-5  # the same over E[x²] behind sigmoids alone, whose means the head learns first; healthy: 4.8e-5
INPUT_SQ, RAW_FAULT, SMALL_INPUT_SQ, TARGET_SQ, PULL = 100.0, 1e5, 1e-5, 1000.0, 1000.0  # bytes are below a fault
CHAIN, CHAIN_FAULT, DECAY, DEEP = 1e4, 1e6, 1e11, 12  # of what decays in fewer layers Adam brings back more
RESIDUAL, RESIDUAL_FAULT, BRANCH = 30.0, 1e5, 16.0
VARIES = 1e-3
TINY_GAIN = 0.01  # n E[W²], below which it is the weights that lose the signal, whatever follows them
BETWEEN = "Put normalisations or skip connections between these layers, or nonlinearities that do not saturate."
OPENS = {"branch", "product", "lookup"}  # what a parameter of zeros will let through
BOUNDED = ("softmax", "sigmoid", "tanh")
STANDARDISE = "Standardise each input or channel: subtract its mean over the data, and divide by its deviation."
OUT_OF_REACH, OUT_OF_REACH_FAULT, OUTSIDE = 0.25, 0.8, 0.1
FLAT, AGAINST, FELT, STALLED, PADDED, WEIGHS = 1e-6, -0.4, 0.15, 0.1, 0.6, 2.0
RECURRENT = re.compile("RNN|LSTM|GRU")
REPEATED_OUTPUTS = 0.35
STAYS, RISES = 0.8, 1.02  # of the first loss
STEP, FEW = 5e-6, 3  # of the loss; layers that are named


def initial_loss(net: Net) -> Finding | None:
    """HD101: the first loss is far above that of a constant guess."""
    signals, ratio = net.signals, net.loss_ratio
    logits = signals.logits not in ("", "log") and signals.chance_loss < YES_OR_NO
    logits = logits and (signals.output_sq > LARGE or signals.initial_loss > SURE)
    classes = signals.loss_kind == "cross-entropy" or logits
    note, warn, fault = CLASSES if classes else NUMBERS if net.weights else TABLES
    if not ratio > note:
        return None
    surely = (signals.initial_loss - 2 * signals.initial_loss_stderr) / signals.chance_loss  # what sampling leaves
    surely = surely if surely > note / 2 else min(ratio, signals.typical_loss / signals.chance_loss)  # or the median
    steep = surely > warn and signals.bounded in BOUNDED  # near in probabilities may be far in logits
    steep |= bool(signals.logits) and surely > RARELY  # of few positive ones, by whose number it is divided
    near = signals.output_sq < 1 or signals.chance_sq > SMALLER * signals.output_sq  # the targets are reached from here
    if not surely > note / 2 or (near and not (classes or steep)) or raw_inputs(net) or raw_targets(net):
        return None
    if (met := meeting(net)) and met.severity != "note":  # as sums over the batch
        return None
    what = f"The initial loss is {short(ratio)}× that of a constant guess (usual: below {trimmed(note)}×)"
    path = net.head or next((o for o in signals.sources if steep and o in net.weight_of), None)
    if signals.output_sq < 1 and path and not logits:  # yet a bad guess: the bias does not know the labels
        name = (net.held(path, "bias") or net.weight_of[path]).name
        message = f"{what}, although outputs are small: their mean is not that of the targets."
        advice = "Set the bias of the last layer to the logarithm of the label counts plus one, padding left out."
        return Finding("HD101", graded(ratio, NUMBERS[0]), (name,), message, advice, ratio, note)
    biases = [p for o in dict.fromkeys((net.head, *signals.sources)) if o is not None and (p := net.held(o, "bias"))]
    bias = max(biases, key=net.power, default=None)
    if bias and bias.weight_sq > MOSTLY * signals.output_sq and net.power(bias) > NOT_IT:
        message = f"{what}: the bias {bias.name} makes most of the outputs."
        advice = f"Start it at zero: `nn.init.zeros_(model.get_parameter({bias.name!r}))`."
        return Finding("HD101", graded(surely, warn, fault), (bias.name,), message, advice, ratio, note)
    excess = {name: times for name, times in _excesses(net).items() if net.named[name].gradient != "none"}
    powers = {p.name: v for p in net.parameters if p.trainable and p.shape[1:] and math.isfinite(v := net.power(p))}
    blocks, ruling = worst_first(excess)[:1], worst_first(powers)[:1]
    if ruling and powers[ruling[0]] > RULES_IT and not (blocks and powers.get(blocks[0], 1.0) > NOT_IT):
        blocks = ruling
    ends = logits and signals.bounded in BOUNDED
    size = f"saturate the {signals.bounded}" if ends else f"are of size {root(signals.output_sq)}"
    message = f"{what}. Outputs {size}, through {listed(blocks)}."
    name = blocks[0] if blocks else "the last layer"
    advice = f"Make {name} smaller, or start it at zero: `torch.nn.init.zeros_`."
    if name in excess and net.named[name].fan_in and net.named[name].weight_sq > UNDRAWN:
        advice = f"Draw {name} anew ({how_drawn(net, name)}): it holds what was in its memory, as `torch.empty` does."
    elif excess.get(name, 1.0) > 1:
        factors = multiplied(net, _factors(net, excess, powers))
        advice = f"Multiply {factors}, so that no output is larger than its input."
    elif name not in excess and blocks:
        advice = f"Start {name} smaller: the loss grows with its size."
    severity = graded(surely, warn, fault if excess or classes else math.inf)
    return Finding("HD101", severity, blocks, message, advice, ratio, note)


def _factors(net: Net, excess: dict[str, float], powers: dict[str, float]) -> dict[str, float]:
    """What to multiply weights by, those that enlarge most first, until the outputs are of size 1 or the targets'."""
    left, found = net.signals.output_sq / max(1.0, net.signals.chance_sq), dict[str, float]()
    for name in worst_first(excess):
        if not found or (left > ENLARGES and excess[name] > 1 and powers.get(name, 1.0) > NOT_IT):
            found[name], left = excess[name] ** -0.5, left / excess[name]
    return found


def _excesses(net: Net) -> dict[str, float]:
    """By what factor each weight behind the last normalisation enlarges E[x²]."""
    ends = [net.name_of(net.head)] if net.head else [p.name for p in net.matrices if "output" in p.uses]
    if not (ends or net.weights):  # products of tables
        ends = [p.name for p in net.matrices if p.weight_sq]
    alone = [p for p in net.parameters if p.numel == 1 and p.trainable and "bias" not in p.attribute]
    scalars = {p.name: p.weight_sq * p.gradient_sq for p in alone}
    if not ends and scalars and net.signals.output_sq > LARGE:  # a temperature
        return {worst_first(scalars)[0]: net.signals.output_sq}
    if ends and (not net.head or net.signals.output_sq > 4 * net.layers[net.head].out_sq):  # multiplied behind the head
        return dict.fromkeys(ends, net.signals.output_sq)
    last_norm = max((net.order[path] for path, layer in net.layers.items() if layer.normalises), default=-1)
    excess: dict[str, float] = {}
    for path in net.backbone:
        layer, name = net.layers[path], net.name_of(path)
        if net.order[path] > last_norm and layer.x_sq > 0:
            excess[name] = max(layer.out_sq / layer.x_sq / (net.critical(path) or 1.0), excess.get(name, 0.0))
    return excess


def nothing_arrives(net: Net) -> Finding | None:
    """HD102: the outputs do not depend on the inputs any more."""
    largest = max((p.gradient_sq for p in net.parameters if p.trainable), default=0.0)
    ends = [net.layers[o] for o in net.backbone if "output" in net.layers[o].labels]  # one of which may read ones
    if net.signals.solved or (not any(net.scale(o.path) for o in ends) if ends else not 0 < largest < ADAM**2):
        return None
    varying = max([o.x_sq * o.x_varies for o in ends] or [net.signals.output_sq * net.signals.output_varies])
    zeros = [p for p in net.parameters if p.weight_sq == 0 and "bias" not in p.attribute and p.gradient == "some"]
    varies = any(layer.out_varies > VARIES for layer in net.layers.values())  # what a gate may let through
    opens = any(OPENS & {*p.uses} or (len(p.shape) < 2 and varies) for p in zeros)
    alone = net.labelled("sigmoid")[1:] and not (net.normalised or net.residual)
    limit = max([SILENT, *(SQUASHED * o.x_sq for o in ends if alone)])
    if not varying <= limit or net.zero_heads or opens or any(o.x_sq < o.x_sq_last for o in ends):  # as spikes later
        return None
    first = [layer for layer in net.layers.values() if not layer.sources]
    if all((layer.out_varies if math.isnan(layer.x_varies) else layer.x_varies) == 0 for layer in first):
        message = "All examples of the batch have the same inputs, at least where the first layers read them."
        advice = "Pass a batch of different examples, or look at what is done to them ahead of these layers."
        if alike := [p.name for p in net.parameters if p.rows > 1 and "lookup" in p.uses]:
            message, advice = f"All rows looked up in {listed(alike)} are alike.", "Draw them: `nn.init.normal_`."
        return Finding("HD102", "warning", (), message, advice, varying, limit)
    hidden = [net.layers[path] for path in net.hidden]
    cuts = {path for path, o in net.layers.items() if path and o.varying[0] > 0 == o.varying[1]}  # nothing behind
    cut = [p.name for p in net.parameters if cuts.intersection(p.owners[:1]) - {net.head} and "bias" not in p.attribute]
    lost = [o for o in hidden if o.varying[0] == 0 < max((net.layers[s].varying[1] for s in o.sources), default=0.0)]
    learns = {path for path, o in net.layers.items() if o.out_gradient_sq > 0 and o.out_varies > VARIES}
    passes = bool(lost) and all(learns & {*o.sources} for o in lost)
    if passes and all(o.x_sq > 0 for o in lost) and not (net.signals.meeting or raw_inputs(net)):
        return None  # gradients pass, as by a codebook of which all examples take one code
    wrote = {o.path: max((net.layers[s].varying[1] for s in o.sources), default=0.0) for o in ends}
    lost = lost or [o for o in ends if o.varying[0] < SILENT * wrote[o.path]]  # as by a mean of what is normalised
    steps = {net.name_of(o.path): log_ratio(o.x_sq, o.out_sq) for o in hidden}
    blocks = tuple(cut or [net.name_of(o.path) for o in lost]) or worst_first(steps)[: max(3, len(steps) // 3)]
    which = "The input of the last layer varies" if ends else "The outputs vary"
    at = "ahead of" if lost and not cut and lost[0] in ends else "at"
    message = f"{which} by {root(varying)} between examples (usual: above {root(limit)}), lost {at} {listed(blocks)}."
    advice = "Initialise by `hessdiag.init.apply(model, 'fan-in')`, or look for an index or a mask there."
    drawn = {name for name in blocks if net.named[name].fan_in * net.named[name].weight_sq > TINY_GAIN}
    placed = drawn and (lost or not varying)
    advice = "Look for an index, a mask, one code for all or a norm of one number." if placed else advice
    advice = BETWEEN if drawn & {*net.labelled("sigmoid")} else advice
    return Finding("HD102", "warning" if varying or passes else "fault", blocks, message, advice, varying, limit)


def even(net: Net) -> Finding | None:
    """HD102 between positions: the outputs are the same at all of them, and their targets are not."""
    again = net.names_of(o for o, layer in net.layers.items() if layer.x_sq_last > 0)
    if net.signals.unplaced and not net.signals.even and (blocks := net.labelled("attention") or again):
        message = "The outputs are the same wherever one token stands, whose targets are not: nothing tells its place."
        advice = "Add positions to what attention reads (rotate along them, not heads); hand on what a step returns."
        return Finding("HD102", "warning", blocks, message, advice, 0.0, 0.0)
    if net.signals.orderless:
        message = "The outputs are the same for pictures whose parts change places: nothing tells positions."
        return Finding("HD102", "warning", (), message, "Add positions, or mix what is at different ones.", 0.0, 0.0)
    if not (net.signals.even and net.signals.output_varies > SILENT):
        return _one_place(net)
    alike = tuple(p.name for p in net.parameters if p.unlike < ALIKE and not p.uses)  # as of queries
    message = "The outputs are the same at all positions, whose targets are not."
    advice = "Look for copies of one query, inputs that are the same everywhere, or a missing skip connection."
    return Finding("HD102", "warning", alike or net.labelled("attention"), message, advice, 0.0, 0.0)


def _one_place(net: Net) -> Finding | None:
    """HD102 between positions, inside: a layer reads the same at all of them, of layers that write others."""
    mixed = {"attention", "softmax"}  # not rounded to one code; and a recurrence may decode copies
    told = {o for o, e in net.layers.items() if e.out_places > 0 and ({*e.labels} & mixed or RECURRENT.match(e.kind))}
    for layer in net.layers.values():
        sources = [o for o in layer.sources if o in told]
        if layer.x_places == 0 < layer.x_sq and sources and not RECURRENT.match(layer.kind):
            blocks = net.names_of(sources)
            message = f"What {layer.path} reads is the same at all positions, what {listed(blocks)} wrote is not."
            advice = "Look for scores of zero, a missing skip connection, or a mean or softmax over positions."
            return Finding("HD102", "warning", blocks, message, advice, 0.0, 0.0)
    return None


def depth_scale(net: Net) -> Finding | None:
    """HD103: in a chain without normalisation or skips the scale multiplies up, or down, with depth."""
    chain = net.chain
    if net.normalised or net.residual or len(chain) < 4 or net.learnt:
        return None
    parted = GATES | {"softmax"}  # what tells shares, or multiplies, is no link of a chain
    if any("LSTM" in (o := net.layers[path]).kind or parted & {*o.labels} or not net.scale(path) > 0 for path in chain):
        return None
    steps = {path: math.log(net.scale(path) / need) for path in chain if (need := net.critical(path))}
    product = sum(steps.values())
    first, last = net.layers[chain[0]], net.layers[chain[-1]]
    ends = [(first.out_gradient_total, last.out_gradient_total), (last.out_sq, first.out_sq)]
    backward, forward = (log_ratio(*pair) if min(pair) > 0 else 0.0 for pair in ends)  # zeros are HD401's and HD402's
    if outdone := product * forward < -(product**2):  # modules do more than their weights say: as measured
        product, steps = forward, {path: log_ratio(net.layers[path].out_sq, net.layers[path].x_sq) for path in chain}
        if sum(steps.values()) * forward < 0:  # between them, as by an input that joins
            return None
    backward = math.copysign(min(abs(backward), abs(product)), backward)  # a mean over positions divides it, too
    measured = max(abs(forward), abs(backward))
    sign = 1 if max(forward, backward, key=abs) > 0 else -1
    limit = CHAIN if sign > 0 or len(chain) >= DEEP else DECAY
    if max(abs(product), measured) < math.log(limit) or measured < math.log(5):
        return None  # a nonlinearity may hold its own scale, as a saturating one does
    severity: Severity = "fault" if sign > 0 and measured > math.log(CHAIN_FAULT) else "warning"
    blamed = {net.name_of(path): sign * step for path, step in steps.items() if sign * step > 0.2}
    blocks = worst_first(blamed) or tuple(net.name_of(path) for path in chain)
    value = math.exp(min(max(measured, abs(product)), 700.0))
    needs = sorted({net.critical(path) or math.nan for path in steps if net.name_of(path) in blamed and not outdone})
    what = f"Signals {'grow' if sign > 0 else 'decay'} {root(value)}× over {len(chain)} layers"
    message = f"{what} (usual: within {root(limit)}×), in {listed(blocks)}."
    how = ": `hessdiag.init.apply(model, 'fan-in')`." if needs == [2.0] else "."
    advice = f"Draw each weight with a variance of {' or '.join(map(trimmed, needs))} over its fan-in{how}"
    if not needs:  # no variance is right
        advice = BETWEEN
    if lopsided := [name for name in blocks if (p := net.named[name]).mean ** 2 > p.weight_sq / 4]:
        advice = f"Draw {listed(lopsided)} around zero: means other than that add up over what a unit reads."
    return Finding("HD103", "note" if net.signals.fixed_norms else severity, blocks, message, advice, value, limit)


def residual_growth(net: Net) -> Finding | None:
    """HD104: residual branches without normalisation double E[x²] again and again."""
    if net.normalised or not net.residual or len(net.hidden) < 6:
        return None
    first = max(next((net.layers[o].out_sq for o in net.hidden if "gate" not in net.layers[o].labels), 0.0), TINY)
    tips = [path for path in net.hidden if "add" in net.layers[path].labels]
    growth = net.layers[net.backbone[-1]].x_sq / first
    if not RESIDUAL <= growth <= BRANCH ** len(tips):  # more is not what sums of branches do
        return None
    blocks = tuple(net.name_of(path) for path in tips)
    severity = "note" if net.signals.fixed_norms else graded(growth, 0, RESIDUAL_FAULT)
    message = f"{len(tips)} residual branches without a normalisation enlarge the signal {root(growth)}×"
    message += f" (usual: below {root(RESIDUAL)}×). They end in {listed(blocks)}."
    advice = f"Start these at zero (`nn.init.zeros_`), or multiply them by 1/√{len(tips)} = {short(len(tips) ** -0.5)}."
    return Finding("HD104", severity, blocks, message, advice, growth, RESIDUAL)


def raw_inputs(net: Net) -> Finding | None:
    """HD105: inputs far from unit scale, such as pixels from 0 to 255, on any path; what never varies is none."""
    passed = {o for o, e in net.layers.items() if not (e.sources or e.normalises or o in net.weight_of)}
    firsts = [o for o in net.backbone if passed.issuperset(net.layers[o].sources) or "raw" in net.layers[o].labels]
    read = {o: e.x_sq for o in firsts if (e := net.layers[o]).x_sq > 0 and e.x_varies != 0}
    learn = [o for o in read if o in net.weight_of and net.weight_of[o].trainable]  # not a frozen copy of them
    path = max(learn or read, key=read.__getitem__, default="")
    value = read.get(path, 1.0)
    if SMALL_INPUT_SQ <= value <= INPUT_SQ:
        return _alike(net)
    limit, usual = (INPUT_SQ, "below") if value > INPUT_SQ else (SMALL_INPUT_SQ, "above")
    size, graver = root(value), graded(value if net.loss_ratio > 4 else limit, 0, RAW_FAULT)
    where = f"The inputs at {path or 'the model'} are not standardised"
    message = f"{where}: of size {size} (usual: {usual} {root(limit)})."
    rescaled = "norm" in net.layers[path].labels or (not net.residual and net.normalised_behind(path))  # on the way
    behind = [e.out_sq for e in net.layers.values() if path in e.sources and "BatchNorm" in e.kind]
    rescaled = rescaled and not (net.signals.fixed_norms and max(behind, default=0.0) > INPUT_SQ)  # by fixed numbers
    return Finding("HD105", "note" if rescaled else graver, (net.name_of(path),), message, STANDARDISE, value, limit)


def _alike(net: Net) -> Finding | None:
    """HD105 of inputs that are mostly one constant, in which examples hardly differ."""
    firsts = {o: layer.x_varies for o in net.backbone if not (layer := net.layers[o]).sources}
    if not (hit := [o for o in firsts if 0 < firsts[o] < VARIES]):
        return None
    path = min(hit, key=firsts.__getitem__)
    usual, least, where = trimmed(100 * VARIES), short(100 * firsts[path]), path or "the model"
    message = f"Only {least} % of the inputs at {where} varies between examples (usual: above {usual} %)."
    return Finding("HD105", "warning", (net.name_of(path),), message, STANDARDISE, firsts[path], VARIES)


def raw_targets(net: Net) -> Finding | None:
    """HD105 of the targets, as they are or as the loss shows them."""
    signals = net.signals
    limit, power = (TARGET_SQ, 1) if (mse := signals.loss_kind == "mse") else (10 * TARGET_SQ, 2)
    target_sq = max(signals.chance_loss, signals.initial_loss) if mse else signals.apart**2  # of an L1 loss
    squared = target_sq > max(limit, 100 * signals.output_sq)  # or scaled inside
    ends = [o for o in (net.head, *signals.sources, *net.backbone[-1:]) if o in net.weight_of]
    path = max(ends, key=lambda o: net.layers[o].out_gradient_sq, default=None)
    raw = raw_inputs(net)  # which pull the outputs themselves
    pulled = signals.pull > PULL and signals.bounded not in BOUNDED and (raw is None or raw.severity == "note")
    if path is None or not (squared or pulled):
        return None
    where, blocks = path or "the model", (net.name_of(path),)
    if not squared:
        size, usual = short(signals.pull), trimmed(PULL)
        message = f"The loss pulls the outputs of {where} by {size} (usual: below {usual}): large targets, or one term."
        advice = "Standardise the targets, scale that term down, or unmask the classes that are asked for."
        return Finding("HD105", "warning", blocks, message, advice, signals.pull, PULL)
    size, usual, deviation = map(root, (target_sq, limit, signals.chance_loss**power))
    message = f"The targets of {where} are not standardised: of size {size} (usual: below {usual})."
    advice = f"Standardise the targets: subtract their mean, and divide by their standard deviation, about {deviation}."
    grade: Severity = "fault" if net.loss_ratio > 4 and target_sq > 10 * limit else "warning"
    return Finding("HD105", grade, blocks, message, advice, target_sq, limit)


def operations(net: Net) -> Finding | None:
    """HD115: what happens between two layers enlarges the signal up to the head, whatever their weights are."""
    ends = [net.layers[path].x_sq for path in net.signals.sources]
    bounded = not max(ends, default=0.0) > LARGE  # a normalisation on the way puts it right
    fed = None if bounded and net.normalised else _fed_back(net)
    if fed or bounded:
        return fed
    written = {path: sum(net.layers[o].out_sq for o in net.layers[path].sources) for path in net.backbone}
    read = {path: net.layers[path].x_sq for path in net.backbone}
    grow = [o for o in net.backbone if "raw" not in net.layers[o].labels]  # else inputs are large there
    apart = {(read[o], net.layers[o].sources): o for o in grow}.values()  # what several read counts once
    grown = {net.name_of(o): math.log(read[o] / written[o]) for o in apart if read[o] > written[o] > 0}
    if not (total := math.exp(sum(grown.values()))) > GROWN:
        return None
    blocks = worst_first({name: times for name, times in grown.items() if times > max(grown.values()) / 4})
    wrote = worst_first({o: net.layers[o].out_sq for o in net.layers[net.named[blocks[0]].owners[0]].sources})
    sources = [p.name for o in wrote if (p := net.weight_of.get(o))]
    more, usual = f", and {len(blocks) - 1} more times," if len(blocks) > 1 else "", root(GROWN)
    message = f"Between {listed(sources)} and {blocks[0]}{more} signals grow {root(total)}× (usual: below {usual}×)."
    advice = "Take means in place of sums there, over neighbours, points or branches, and add nothing twice."
    grade: Severity = "note" if net.loss_ratio < CLASSES[1] else "warning"  # it does not reach the loss
    return Finding("HD115", grade, tuple(dict.fromkeys((*sources, *blocks))), message, advice, total, GROWN)


def _fed_back(net: Net) -> Finding | None:
    """HD115 of what is applied again and again, as in a recurrence or an integrator."""
    held = [(net.name_of(o), layer) for o, layer in net.layers.items() if o in net.weight_of and layer.x_sq > 0]
    grown = {name: o.x_sq_last / o.x_sq for name, o in held if o.x_sq_last > max(LARGE, GROWN * o.x_sq)}
    if not (blocks := worst_first(grown)):
        return None
    times, usual = root(grown[blocks[0]]), root(GROWN)
    message = f"What {blocks[0]} reads grows {times}× from its first to its last call (usual: below {usual}×)."
    advice = "Make the step or the factor smaller by which each call adds to the state, or normalise the state."
    return Finding("HD115", "warning", blocks, message, advice, grown[blocks[0]], GROWN)


def drowned(net: Net) -> Finding | None:
    """HD110: what a layer reads of a softmax over units is nearly the same for every example."""
    thin = [layer for layer in net.layers.values() if 0 < layer.x_varies < VARIES][:1]
    units = [o for o in thin if (p := net.weight_of.get(o.path)) and o.x_sq * p.fan_in**2 > 0.5]  # that sum to 1
    sources = [o for layer in units for o in layer.sources if o in net.weight_of]
    shared = tuple(net.name_of(o) for o in sources if "softmax" in net.layers[o].labels)
    if not shared or len(shared) < len(sources):  # of the mean that attention takes of what others wrote
        return None
    varies, where, usual = thin[0].x_varies, thin[0].path, trimmed(100 * VARIES)
    message = f"Only {short(100 * varies)} % of the input of {where} varies between examples (usual: above {usual} %)."
    return Finding("HD110", "warning", shared, message, "Take a ReLU in place of that softmax.", varies, VARIES)


def out_of_reach(net: Net) -> Finding | None:
    """HD113: the loss cannot fall far, because the outputs are bounded, or compared with the wrong targets."""
    signals, blocks = net.signals, tuple(net.name_of(path) for path in net.signals.sources if path in net.weight_of)
    alike = blocks and signals.output_varies == 0 and net.layers[signals.sources[0]].out_varies > 0
    if alike and signals.bounded in BOUNDED and not raw_inputs(net):
        message, first = f"The {signals.bounded} at the end writes the same for every example.", listed(blocks[:1])
        advice = f"Return a sigmoid of the outputs of {first}, or these as they are if the loss takes logits."
        return Finding("HD113", "fault", blocks, message, advice, 0.0, 0.0)
    if unasked := _unasked(net):
        return unasked
    if signals.unbounded and net.head is not None:
        message = "The loss falls without end as outputs rise: it wants log-probabilities, an `abs` or targets up to 1."
        advice = "End the network in `log_softmax`, scale the targets, or look for a wrong sign or minimum in the loss."
        return Finding("HD113", "fault", blocks, message, advice, 1.0, 0.0)
    if signals.plunges:
        message = "The loss has no lower bound: it falls ever faster as outputs follow it, as a negative square does."
        advice = "Look for a minus that is missing, or a weight or a divisor below zero."
        return Finding("HD113", "fault", blocks, message, advice, 1.0, 0.0)
    ends = signals.bounded.removeprefix("LogSoftmax of a ")
    bounded = [o for o in net.weight_of if o in signals.sources and {*ends.split(" of a ")} & {*net.layers[o].labels}]
    blocks = tuple(net.name_of(o) for o in bounded) or blocks  # of several outputs
    logits = signals.loss_kind == "cross-entropy" or ends != signals.bounded
    if (ends == "relu" and logits) or ends == "softmax of a relu":
        message = "The network ends in a ReLU, and the loss expects logits of both signs: at 0 they get no gradient."
        advice = f"Return the outputs of {listed(blocks)} without the ReLU."
        return Finding("HD113", "warning", blocks, message, advice, 0.0, 0.0)
    if signals.beyond > OUTSIDE and math.isnan(signals.floor):
        share, usual = map(whole, (signals.beyond, OUTSIDE))
        what = f"{ends} at the end" if ends in BOUNDED else "softmax in the loss"
        message = f"{share} of the targets are outside of the range of the {what} (usual: below {usual})."
        advice = f"Return the outputs of {listed(blocks)} without it, with `F.mse_loss`, or scale the targets."
        return Finding("HD113", "warning", blocks, message, advice, signals.beyond, OUTSIDE)
    if not signals.floor > OUT_OF_REACH:
        return _misfit(net, blocks)
    share, usual = map(whole, (min(signals.floor, 1.0), OUT_OF_REACH))
    message = f"The network ends in a {ends}, which keeps {share} of the loss out of reach (usual: below {usual})."
    advice = f"Take the {ends} away, or scale the targets into its range."
    if signals.bounded == "cosine" and signals.loss_kind != "mse":
        advice = "Divide cosines by a temperature, of 0.05 or 0.1."
    elif signals.loss_kind != "mse" and not signals.beyond and (logits or ends in ("sigmoid", "softmax")):
        more = logits or ends != "softmax"
        why = ": the loss is lower beyond its range." if more else ", or behind a sigmoid where it takes probabilities."
        advice = f"Return the outputs of {listed(blocks)} without the {ends}{why}"
    grade = graded(signals.floor, 0.0, OUT_OF_REACH_FAULT)
    return Finding("HD113", grade, blocks, message, advice, signals.floor, OUT_OF_REACH)


def _misfit(net: Net, blocks: tuple[str, ...]) -> Finding | None:
    """HD113 of what the loss is made of: a function that takes other numbers, or shapes that another would join."""
    signals = net.signals
    if signals.takes:
        return Finding("HD113", "warning", (), signals.takes, signals.remedy, 1.0, 0.0)
    if signals.stalled > STALLED and not raw_inputs(net):
        share = whole(signals.stalled)
        message = f"The loss of {share} of the examples is high, and flat: no gradient leaves it there."
        message += f" The network ends in a {signals.bounded}." * (signals.bounded in ("relu", "clamp"))
        advice = "Clamp nothing that is yet to be learnt: hand logits to `F.cross_entropy` or its like."
        return Finding("HD113", "warning", (), message, advice, signals.stalled, STALLED)
    if signals.padded > PADDED:
        message = f"{whole(signals.padded)} of what the loss counts is padding: places with one token and one target."
        advice = "Leave these out: `ignore_index`, or a mask that the mean over places is taken with."
        return Finding("HD113", "warning", (), message, advice, signals.padded, PADDED)
    if signals.felt < FELT and not (net.learnt or (signals.loss_kind == "other" and not signals.felt)):
        message = f"The loss sends a gradient to {short(100 * signals.felt)} % of the examples (usual: all)."
        advice = "Look for a minimum, a maximum, an index, a weight or a mask in the loss that leaves the others out."
        return Finding("HD113", "warning", (), message, advice, signals.felt, FELT)
    if signals.summed > WEIGHS:
        times, usual = short(signals.summed), trimmed(WEIGHS)
        what = f"A loss term that is a sum over the batch drowns another, which is a mean: {times}× its gradient"
        advice = "Take the mean over the examples of both: `.sum(1).mean()`."
        return Finding("HD113", "warning", blocks, f"{what} (usual: below {usual}×).", advice, signals.summed, WEIGHS)
    if signals.outweighs == math.inf:
        message = "A loss term without targets falls without end as its outputs grow: its sign is the opposite one."
        return Finding("HD113", "fault", (), message, "Change the sign of that term.", math.inf, WEIGHS)
    if signals.outweighs > WEIGHS:
        times, usual = short(signals.outweighs), trimmed(WEIGHS)
        message = f"A nat of the code costs {times}× what it can gain (usual: below {usual}×): the posterior collapses."
        advice = "Make the divergence's weight smaller; or take sums of both, or means: of pixels, and of latents."
        latent = tuple(name for name in blocks if not net.head or name != net.name_of(net.head))
        return Finding("HD113", "warning", latent, message, advice, signals.outweighs, WEIGHS)
    if told := net.labelled("squashed"):
        message = f"What a softmax or sigmoid wrote behind {listed(told)} goes on as logits, which are of both signs."
        return Finding("HD113", "warning", told, message, "Leave it out: the loss is lower beyond its range.", 1.0, 0.0)
    if signals.would_broadcast:
        message = f"nn.MSELoss would broadcast {signals.would_broadcast}; here each output has its own target."
        return Finding("HD113", "note", (), message, "", 0.0, 0.0)
    return None


def _unasked(net: Net) -> Finding | None:
    """What of HD113 is no layer's: a loss that asks for no outputs which differ, or for the opposite of the targets."""
    signals = net.signals
    if signals.broadcast:
        what = f"The loss broadcasts the shapes {signals.broadcast}: outputs meet targets of others."
        advice = "Give both the same shape: `squeeze` the axis of size 1 that the other lacks, or index a spare one."
        return Finding("HD113", "fault", (), what, advice, 1.0, 0.0)
    if signals.dropped and (signals.dropped_share >= DROPPED or signals.loss_kind == "mse"):  # logits bear less
        share = signals.dropped_share
        of, usual = ("the signal", "up to 50 %") if share >= DROPPED else ("the outputs", "none")
        what = f"{trimmed(100 * share)} % of {of} is dropped in training, by {signals.dropped} (usual: {usual})."
        advice = "Pass the share to drop, not that to keep, and leave out a dropout behind the last layer."
        return Finding("HD113", "fault" if share == 1 else "warning", (), what, advice, share, 0.5)
    if signals.stuck:
        zeros = tuple(p.name for p in net.weights if p.weight_sq == 0)
        if zeros and signals.output_varies == 0:
            what = "all examples have the same outputs, where the loss has no gradient."
            advice = f"Draw {listed(zeros)} at random ({how_drawn(net, zeros[0])})."
            return Finding("HD113", "fault", zeros, f"Through zeros in {listed(zeros)} {what}", advice, 0.0, 0.0)
        what = "The loss sends no gradient to the outputs, though it is not at its least there: nothing can learn."
        advice = "Compute it of the outputs, without `detach` or `argmax`, and look for a flat part, or an infinity."
        return Finding("HD113", "fault" if signals.initial_loss else "warning", (), what, advice, 0.0, 0.0)
    if signals.undefined > RARE:
        what = f"In 1 batch of {1 / signals.undefined:.0f}, of some examples alone, the loss is NaN or infinite (0/0)."
        advice = "Divide by at least one, `count.clamp(min=1)`, or leave out a batch without targets."
        return Finding("HD113", "warning", (), what, advice, signals.undefined, RARE)
    if signals.floor > OUT_OF_REACH or signals.takes:  # which tell more
        return None
    if signals.swing < SWING:
        usual, least = trimmed(100 * SWING), short(100 * signals.swing)
        what = f"Whatever the outputs, the loss changes by {least} % (usual: above {usual} %): it normalises them away."
        severity, advice = graded(-signals.swing, -SWING, -FLAT), "Look for a sum or norm over a wrong axis in it."
        return Finding("HD113", severity, (), what, advice, signals.swing, SWING)
    if signals.agrees < AGAINST:
        what = "The loss falls as the outputs move away from the targets: its sign is the opposite one."
        return Finding("HD113", "warning", (), what, "Change the sign of the loss.", signals.agrees, AGAINST)
    if signals.learnable < LEARNABLE and not signals.beyond > OUT_OF_REACH:
        what = "The loss is least where the outputs are constant, whatever the targets are: it asks for no input."
        advice = "Look at its sign, and at the targets: a hinge takes ±1, not 0 and 1."
        return Finding("HD113", "warning", (), what, advice, signals.learnable, LEARNABLE)
    return None


def astray(net: Net) -> Finding | None:
    """HD114: attention whose weights do not sum to one over what they mix."""
    if blocks := net.labelled("astray"):
        message = f"The softmax behind {listed(blocks)} sums to 1 over another dimension than is mixed."
        advice = "Take it over the keys: `scores.softmax(-1) @ values`."
    elif blocks := net.labelled("mixed"):
        message = f"A view behind {listed(blocks)} mixes axes: it takes numbers of one for those of another."
        advice = "Transpose first: `y.transpose(1, 2).flatten(2)` joins heads, `x.flatten(2).transpose(1, 2)` pixels."
    elif blocks := net.labelled("pooled"):
        message = f"The pooling behind {listed(blocks)} runs over channels, and leaves a number for each position."
        advice = "Pool over positions: `x.amax(1)` of (B, positions, channels), `x.mean((2, 3))` of (B, C, H, W)."
    elif net.signals.poured:
        blocks = tuple(net.name_of(o) for o in net.backbone[:1])
        message = f"The inputs are viewed from {net.signals.poured}, which mixes their axes."
        advice = "Transpose instead: `x.transpose(1, 2)`, or `x.permute(0, 3, 1, 2)` of pictures (B, H, W, C)."
    return Finding("HD114", "warning", blocks, message, advice, 1.0, 0.0) if blocks else None


def unseen(net: Net) -> Finding | None:
    """HD120: a part of the inputs that does not reach the outputs, or examples that cannot be told apart there."""
    signals = net.signals
    if blocks := net.labelled("padding"):
        message = f"Attention of {listed(blocks)} sees the padding alone: its mask hides all other positions."
        advice = "Invert it: a `key_padding_mask` of torch is True at padding, other masks are False there."
        return Finding("HD120", "warning", blocks, message, advice, 1.0, 0.0)
    if blocks := net.labelled("padded"):
        message = f"Of most examples the outputs read what {listed(blocks)} has for their padding alone."
        advice = "Read the last real position, pack them (`nn.utils.rnn.pack_padded_sequence`), or invert the mask."
        return Finding("HD120", "warning", blocks, message, advice, 1.0, 0.0)
    if blocks := net.labelled("one end"):
        message = f"Outputs read {listed(blocks)} at one end, where one of the directions has seen a single step."
        advice = "Read its last states, `torch.cat([h[-2], h[-1]], -1)`, or a mean or maximum over the steps."
        return Finding("HD120", "warning", blocks, message, advice, 1.0, 0.0)
    if signals.level:
        share, usual = whole(signals.level), whole(LEVEL)
        message = "The outputs do not follow the mean of each example: with it,"
        message = f"{message} the loss would be {share} less (usual: below {usual})."
        advice = "A normalisation takes it away: put mean and deviation back behind the network, or leave it out."
        return Finding("HD120", "warning", net.names_of(signals.sources), message, advice, signals.level, LEVEL)
    if blocks := net.labelled("outside"):
        message = f"Of the places that `grid_sample` reads behind {listed(blocks)} most are outside of what it samples."
        return Finding("HD120", "warning", blocks, message, "Scale them from pixels to the range −1 to 1.", 1.0, 0.0)
    waits = (p for p in net.parameters if p.gradient == "later" or (p.gradient == "zero" and p.shape[1:]))  # may open
    waiting = any(not p.attribute.startswith("weight_hh") for p in waits)
    if signals.unseen and not waiting:
        blocks = net.names_of(signals.unseen[1:])
        message = f"The outputs do not depend on {signals.unseen[0]}."
        advice = "Look for a state not carried on, an output read too early, a slice, or another input in its place."
        return Finding("HD120", "warning", blocks, message, advice, 1.0, 0.0)
    if not (signals.output_varies > SILENT or signals.examples == 1):  # which is HD102's
        return None
    moves = any(p.gradient == "cut" for p in net.parameters) or any(p.weight_sq == 0 for p in net.weights)  # in steps
    if moves or not signals.repeated > REPEATED_OUTPUTS:
        return None
    share, usual = map(whole, (signals.repeated, REPEATED_OUTPUTS))
    message = f"{share} of the examples have exactly the outputs of others, whose inputs differ (usual: below {usual})."
    advice = "Look for a mean over the batch, inputs outside of a range, closed gates, an inverted mask, or rounding."
    blocks = tuple(map(net.name_of, net.backbone[:1]))
    return Finding("HD120", "warning", blocks, message, advice, signals.repeated, REPEATED_OUTPUTS)


def meeting(net: Net) -> Finding | None:
    """HD122: the outputs of an example depend on the others of its batch."""
    if not net.signals.meeting:
        return None
    path, ordered = net.signals.meeting
    blocks = (net.name_of(path),) if path in net.weight_of else ()
    where = f" behind {listed(blocks)}" if blocks else ""
    order = ", and on their order" if ordered else ""
    message = f"Examples of the batch meet{where}: the outputs of one depend on the others{order}."
    advice = "Look for a layer without batch_first=True, positions viewed as examples, or a sum or softmax over them."
    advice += " If time is the first dimension of the inputs, pass batch_dim=1."
    if net.signals.by_place:
        message = "The outputs of an example depend on its place in the batch: something is counted along the examples."
        advice = "Look for positions that are cut to `x.shape[0]`, for (T, B, C), where (B, T, C) comes: `x.shape[1]`."
    behind = [layer for layer in net.layers.values() if path in layer.sources]
    meant = blocks and net.named[blocks[0]].along < BLIND and not any("batch" in o.labels for o in behind)
    names = (layer.kind for layer in behind)
    own = [k for k in names if "Norm" in k and k[-1] != "d" and not any(map(k.count, ("RMS", "Layer", "Group")))]
    many = net.signals.all_change or net.signals.output_varies == 0
    told = blocks or ordered or many  # else rounding may have turned a sign
    unsure = (own or meant) and not ordered  # which no normalisation minds
    return Finding("HD122", "note" if unsure or not told else "warning", blocks, message, advice, 1.0, 0.0)


SHOWN = {
    "ahead": ("The output at each position sees what comes after it, and that is its target.",
              "Mask later positions (`is_causal=True`); pad convolutions on the left alone; normalise none over time."),
    "own": ("The target of each position is its own token, the last one that the output there sees.",
            "Shift the targets by one: `logits[:, :-1]` is compared with `tokens[:, 1:]`."),
    "kept": ("The inputs hold the targets at their own positions: the tokens to guess are not masked there.",
             "Mask them in what the model reads, and keep them in the targets alone."),
    "past": ("The target of each position is the token before its own, which the output there has seen.",
             "Shift the other way: `logits[:, :-1]` is compared with `tokens[:, 1:]`."),
    "skips": ("The target of each position is the token after the next: it was shifted twice.",
              "Shift the targets once, in the data or in the loss."),
}  # fmt: skip


def shown(net: Net) -> Finding | None:
    """HD116: the target stands in what the output sees, which then copies it."""
    if not (told := SHOWN.get({"next": "ahead"}.get(net.signals.shown, net.signals.shown))):
        return None
    return Finding("HD116", "warning" if net.signals.shown in ("skips", "next") else "fault", (), *told, 1.0, 0.0)


SATURATED_FAULT, SETTLED = 0.9, 0.3
PEAKED, CARRIED = 0.1, 4.0  # what is larger, as embeddings times √d, is what a skip connection carries past attention
PHASE, MEANT, WIDE = 1.0, 0.8, 2 * math.pi
MAX_COORDINATES = 8  # inputs of a network of coordinates
GROWN, LARGE = 30.0, 30.0


def saturation(net: Net) -> Finding | None:
    """HD106: a tanh or sigmoid is flat for most of its inputs."""
    ends = net.signals.sources if net.loss_ratio < 1 else ()  # that targets ask for
    meant = {o for o, p in net.weight_of.items() if o in ends or not p.trainable}
    hit = {o: s for o in net.hidden if (s := net.layers[o].saturated) > SATURATED and o not in meant}
    if not (paths := worst_first(hit)) or net.signals.settled > SETTLED:  # they are there for a reason
        return None
    worst, blocks = hit[paths[0]], tuple(dict.fromkeys(map(net.name_of, paths)))
    share, usual = map(whole, (worst, SATURATED))
    message = f"{share} of the units after {listed(blocks)} are at an end of tanh or sigmoid (usual: below {usual})."
    factors = {net.name_of(o): max(net.layers[o].out_sq, 1.0) ** -0.5 for o in paths}
    advice = f"Multiply {multiplied(net, factors)}: {'they then write' if blocks[1:] else 'it then writes'} size 1."
    aside = paths[0] not in net.chain or (net.signals.bounded and paths[0] in net.signals.sources)  # as targets may
    fault = math.inf if aside else SATURATED_FAULT
    return Finding("HD106", graded(worst, 0, fault), blocks, message, advice, worst, SATURATED)


def peaked_attention(net: Net) -> Finding | None:
    """HD112: attention puts nearly all of its weight on one key."""
    hit = {p.name: net.layers[path].peaked for path, p in net.weight_of.items() if net.layers[path].peaked > PEAKED}
    if not (blocks := worst_first(hit)):
        return None
    carried = all(net.layers[o].x_sq > CARRIED for o, p in net.weight_of.items() if p.name in hit)
    share, usual = map(whole, (hit[blocks[0]], PEAKED))
    message = f"In {share} of its rows attention of {listed(blocks)} is on one key alone (usual: below {usual})."
    advice = "Draw queries and keys smaller, normalise them, or divide the logits by the root of the width of a head."
    return Finding("HD112", "note" if carried else "warning", blocks, message, advice, hit[blocks[0]], PEAKED)


def narrow_phase(net: Net) -> Finding | None:
    """HD107: the first sines of a coordinate network are nearly linear, or later ones hash what they read."""
    behind = [o for o in net.hidden if any("sin" in net.layers[source].labels for source in net.layers[o].sources)]
    if wide := {net.name_of(o): net.layers[o].phase_rms for o in behind if net.layers[o].phase_rms > WIDE}:
        worst = wide[(blocks := worst_first(wide))[0]]
        message = f"Sines behind sines are noise: {listed(blocks)} give them up to {short(worst)} rad (usual: 1)."
        advice = f"Draw them from U(±√(6/n)/ω): multiply {multiplied(net, {o: 1.5 / wide[o] for o in blocks})}."
        return Finding("HD107", "warning", blocks, message, advice, worst, WIDE)
    sines = [path for path in net.hidden if net.layers[path].labels == ("sin",)]
    meant = any(net.layers[o].phase_rms > MEANT for o in behind)  # else all is smooth on purpose
    if len(sines) < 2 or not meant or (n := net.weight_of[sines[0]].fan_in) > MAX_COORDINATES:
        return None
    first, layer = net.weight_of[sines[0]], net.layers[sines[0]]
    spread = layer.phase_rms * math.sqrt(n * first.weight_sq * layer.x_sq / (layer.out_sq or math.inf))  # no biases
    if not 0 < spread < PHASE:
        return None
    message = f"The first sines are nearly linear: {first.name} gives them {short(spread)} rad (usual: above 1)."
    advice = f"Draw {first.name} from U(±1/n): `nn.init.uniform_(w, -1 / {n}, 1 / {n})`; the sines' ω multiplies it."
    return Finding("HD107", "warning", (first.name,), message, advice, spread, PHASE)


def stays(net: Net) -> Finding | None:
    """HD121: training on the batch itself leaves its loss about where it was, or a first step hardly changes it."""
    first, last = net.signals.initial_loss, net.signals.fitted_loss
    if not (first > 0 and STAYS * first < last < RISES * first):
        return _stands(net)
    share, usual = map(whole, (last / first, STAYS))
    message = f"Training on this batch alone leaves {share} of its loss (usual: below {usual})."
    advice = "Look for a wrong axis, sign or scale in the loss, inputs that do not arrive, and frozen weights."
    if after := net.signals.fitted:
        message += f" After that: {after.message}"
        advice = f"Look for what in the loss drives {listed(after.blocks)} there: its sign, its scale or an axis."
    return Finding("HD121", "fault", after.blocks if after else (), message, advice, last / first, STAYS)


def _stands(net: Net) -> Finding | None:
    """HD121 of a first step, before any is taken. It has many causes, and whatever else is found tells more."""
    step = net.first_step([p for p in net.parameters if p.trainable])
    if not 0 < step < STEP or net.learnt:
        return None
    kept = net.first_step(net.parameters) > STEP
    weights = [p for p in net.weights if p.trainable != kept]
    blocks = tuple(p.name for p in sorted(weights, key=lambda p: p.gradient_sq * p.numel**2)[:FEW])
    share, usual = short(100 * step), short(100 * STEP)
    message = f"A first step of Adam at 0.001 takes at most {share} % of the loss away (usual: above {usual} %)."
    advice = "Look for a tiny factor behind these layers, for another size of the loss or targets, or normalise."
    advice = "Let some of these learn: `requires_grad_()`." if kept else advice
    return Finding("HD121", "warning", blocks, message, advice, step, STEP)


RULES = (
    initial_loss, stays, nothing_arrives, even, depth_scale, residual_growth, raw_inputs, raw_targets, operations,
    drowned, out_of_reach, astray, unseen, meeting, shown, saturation, peaked_attention, narrow_phase,
)  # fmt: skip
