"""HD4xx: what can learn. Each rule reads a `Net` and yields its findings."""

from __future__ import annotations

from collections.abc import Iterator

from hessdiag.diagnosis.rules.network_view import Net
from hessdiag.diagnosis.rules.scheme import draw_anew, how_drawn
from hessdiag.results.findings import Finding, Repair
from hessdiag.results.numbers import short
from hessdiag.results.signals import ParameterSignals

DEAD, DEAD_FAULT = 0.8, 0.95
MIN_SAMPLES = 16  # of a unit, before it is called dead


def cannot_learn(net: Net) -> Iterator[Finding]:
    """HD401: exactly zero gradients that no zero weight on their way, itself with a gradient, explains."""
    stuck = [p for p in net.parameters if p.trainable and p.gradient == "zero"]
    stuck = [p for p in stuck if not explained(net, p) and not _is_idle(net, p)]
    telling = [p for p in stuck if len(p.shape) > 1 or p.weight_sq > 0]
    if not telling:
        return
    both = [p for p in telling if p.weight_sq == 0]
    beside = {owner for p in telling for owner in p.owners}
    biases = [p for p in stuck if p not in telling and beside & set(p.owners)]
    blocks = tuple(p.name for p in (*both, *(p for p in telling if p.weight_sq > 0), *biases))
    opened: dict[str, str] = {}  # of the zeros side by side, the first is to be drawn
    for p in both:
        opened.setdefault(_neighbourhood(p), p.name)
    drawn = tuple(draw_anew(net, name) for name in opened.values() if len(net.named[name].shape) > 1)
    yield Finding(
        rule="HD401",
        severity="fault" if both else "warning",
        blocks=blocks,
        message=f"{net.listed(blocks)} cannot learn: {'its' if len(blocks) == 1 else 'their'} gradient is exactly zero,"
        " and no other weight that learns will change that.",
        advice=_advise(net, tuple(opened.values()), drawn),
        value=0.0,
        threshold=0.0,
        repairs=drawn,
    )


def _advise(net: Net, opened: tuple[str, ...], drawn: tuple[Repair, ...]) -> str:
    """Say what opens the way: of weights that are zero side by side, the first drawn at random."""
    if not opened:
        return "Look for what multiplies them by zero: a dead ReLU, a zero gate, a detached branch."
    how = f" ({how_drawn(drawn[0])})" if drawn else ""
    return f"Draw {net.listed(opened)} at random{how}; only the last factor of a product may start at zero."


def _is_idle(net: Net, p: ParameterSignals) -> bool:
    """Whether nothing of this batch was sent to the layer, as to an expert."""
    layers = [net.layers[owner] for owner in p.owners if owner in net.layers]
    return bool(layers) and all(layer.samples == 0 for layer in layers)


def _neighbourhood(p: ParameterSignals) -> str:
    """The module in which a low-rank pair lives: that of two parameters, or of two modules with one each."""
    owner = p.owners[0] if p.owners else ""
    return owner.rpartition(".")[0] if p.attribute == "weight" else owner


def explained(net: Net, stuck: ParameterSignals) -> bool:
    """Whether some weight, gain or scale that starts at zero and has a gradient will open the way."""
    zeros = [p for p in net.parameters if p.trainable and p.weight_sq == 0 and p.gradient == "some"]
    return any(_explains(net, zero, stuck) for zero in zeros if "bias" not in zero.attribute)  # a bias opens nothing


def _explains(net: Net, zero: ParameterSignals, stuck: ParameterSignals) -> bool:
    """Whether the zero weight lies behind the stuck parameter, or beside it in the same module."""
    if set(zero.owners) & set(stuck.owners):
        return True
    place = max((net.order.get(o, -1) for o in zero.owners), default=-1)
    own = min((net.order.get(o, len(net.order)) for o in stuck.owners), default=0)
    return place >= own


def dead(net: Net) -> Iterator[Finding]:
    """HD402: a layer whose outputs, or the units behind them, do not change with the inputs; the first one."""
    for path, layer in net.layers.items():
        own, bias = net.gain_of(path), net.bias_of(path)
        alive = layer.x_sq > 0 and layer.x_varies != 0
        if path == net.head or not own or not alive or "add" in layer.labels:
            continue  # the last gain of a residual branch is zero on purpose
        if "Norm" in layer.kind and own.weight_sq == 0 and not layer.out_varies > 0:
            yield Finding(
                rule="HD402",
                severity="fault",
                blocks=(own.name,),
                message=f"The gain {own.name} is zero, so that nothing passes this normalisation.",
                advice=f"Start it at one: `nn.init.ones_(model.get_parameter({own.name!r}))`.",
                value=0.0,
                threshold=0.0,
                repairs=(Repair(parameter=own.name, action="fill", value=1.0),),
            )
            return
        rectified = {"relu", "relu6"} & set(layer.labels)
        if own.weight_sq > 0 and rectified and layer.off_share > DEAD and layer.samples >= MIN_SAMPLES:
            yield _dead_units(net, path, own, bias)
            return


def _dead_units(net: Net, path: str, own: ParameterSignals, bias: ParameterSignals | None) -> Finding:
    layer = net.layers[path]
    sunk = bias is not None and bias.mean < 0 and bias.mean**2 > 0.5 * layer.out_sq
    blocks = (bias.name, own.name) if bias is not None and sunk else (own.name,)
    return Finding(
        rule="HD402",
        severity="fault" if layer.off_share > DEAD_FAULT else "warning",
        blocks=blocks,
        message=f"{100 * layer.off_share:.0f} % of the ReLUs behind {path or 'the model'} never fire on this batch"
        f" (above {100 * DEAD:.0f} % is unusual)"
        + (f"; the mean of the bias is {short(bias.mean)}." if bias is not None and sunk else "."),
        advice=f"Start the bias at zero: `nn.init.zeros_(model.get_parameter({blocks[0]!r}))`."
        if sunk
        else "Draw the weights with mean zero, and check that the inputs of the layer are not all of one sign.",
        value=layer.off_share,
        threshold=DEAD,
        repairs=(Repair(parameter=blocks[0], action="zero"),) if sunk else (),
    )


def frozen(net: Net) -> Iterator[Finding]:
    """HD403: frozen, unlike siblings."""
    learning = {net.siblings[p.name] for p in net.parameters if p.trainable}
    found = tuple(p.name for p in net.matrices if not p.trainable and net.siblings[p.name] in learning)
    if found:
        yield Finding(
            rule="HD403",
            severity="note",
            blocks=found,
            message=f"{net.listed(found)} {'is' if len(found) == 1 else 'are'} frozen, while the same layers at other"
            " depths learn.",
            advice=f"If that is not meant: `model.get_parameter({found[0]!r}).requires_grad_()`.",
            value=float(len(found)),
            threshold=0.0,
        )


def unused(net: Net) -> Iterator[Finding]:
    """HD403: parameters that the outputs do not depend on."""
    names = [p for p in net.parameters if p.trainable and p.gradient == "none"]
    if not names:
        return
    used = {net.siblings[p.name] for p in net.parameters if p.gradient != "none"}
    forgotten = [p.name for p in names if net.siblings[p.name] in used and len(p.shape) > 1]
    forgotten = [name for name in forgotten if "expert" not in name.lower()]  # this batch may not need them all
    blocks = tuple(forgotten + [p.name for p in names if p.name not in forgotten])
    yield Finding(
        rule="HD403",
        severity="warning" if forgotten else "note",
        blocks=blocks,
        message=f"The outputs do not depend on {net.listed(blocks)}"
        + (", while they do on the same layers at other depths." if forgotten else "."),
        advice="Call the layer in the forward pass, or leave it out."
        if forgotten
        else "Nothing to do where another mode of the model uses it.",
        value=float(len(blocks)),
        threshold=0.0,
    )


RULES = (cannot_learn, dead, frozen, unused)
