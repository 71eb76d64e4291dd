"""σ² = ‖Jᵀ S J‖² / P: what of the loss's Hessian S arrives at a layer, times what the layer reads.

With M = Φᵀ S Φ of the outputs at T positions and x_t the inputs, ‖G‖² = Σ (x_t·x_s) (x_t'·x_s') tr[M_s't M_st'].
Inputs are split into what all positions have in common, of size λ_c = n k² E[x²] (1 + (T - 1) c), and the rest,
λ_d = n k² E[x²] (1 - c); then ‖G‖² = Σ_ab λ_a λ_b ‖M_ab‖². Each side of M goes back as a gradient would, by the rules
as they are: from outputs of which S joins all entries, ‖M_ab‖² = ‖S‖² l_a l_b with l the growth of a squared gradient;
where S joins no positions, a mean over gradients that are alike at all positions and such that are not. That is the
part of independent sides. Both go through the same weights, and M has a part along the identity, E[M] = α_ts I, of
square Σ α² n. A layer adds that to ‖M‖² of its input; a nonlinearity multiplies it by E[φ'⁴] / E[φ'²]²; attention as in
`Mixing`. That of a layer's own outputs gives n α² tr(ΓXΓX), with products of inputs X and of gradients Γ between
positions. `Sent.gain` is ‖M‖² over that of independent sides.
"""

import math
from dataclasses import dataclass, replace

import torch

from hessdiag.calculus.graph import Step
from hessdiag.calculus.moments import Activation, Gradient, add_gradients, average, compactly, distinct
from hessdiag.calculus.propagation import Propagation
from hessdiag.network.blocks import Block


@dataclass(frozen=True)
class Sent:
    """Gradients of size 1 at the outputs on their way back."""

    apart: Gradient  # as it arrives from outputs that are independent between positions
    alike: Gradient | None  # the same from outputs that are alike at all positions; None where S joins all outputs
    gain: float = 1.0  # ‖M‖² over that of independent sides


def send_back(found: Propagation) -> dict[str, Sent]:
    """Find what of S arrives at the results of operations with parameters, by name."""
    ones = Gradient(torch.ones((), dtype=torch.float64).expand(found.output.sq.shape))
    several = found.loss.positions > 1
    waiting = {found.graph.output.name: [Sent(ones, replace(ones, site_correlation=1.0) if several else None)]}
    kept: dict[str, Sent] = {}
    for operation, step in reversed(found.steps):
        if operation.name not in waiting:
            continue
        here = _joined(waiting.pop(operation.name), found)
        if step.weight or step.bias or step.scalar:
            kept[operation.name] = here
        for number, (ref, back) in enumerate(step.back):
            there = Sent(back(here.apart), back(here.alike) if here.alike else None)
            own = step.attention is not None or (step.weight and ref == step.source)
            gain = _gain(step, number, here, there if own else None, found)
            waiting.setdefault(ref.name, []).append(replace(there, gain=gain))
    return kept


def _joined(arrived: list[Sent], found: Propagation) -> Sent:
    """Several paths join: ‖M‖ adds up, since each side of M takes every one of them."""
    both = [each.alike for each in arrived if each.alike]
    alike = add_gradients(both) if both else None
    whole = Sent(add_gradients([each.apart for each in arrived]), alike, arrived[0].gain)
    if len(arrived) == 1:
        return whole
    size = _independent(whole, found)
    sizes = [(each.gain, _independent(each, found)) for each in arrived]
    roots = sum(math.sqrt(gain * each) for gain, each in sizes if each)  # where nothing arrives there is no gain
    return replace(whole, gain=roots**2 / size if size else 1.0)


def _growth(g: Gradient, found: Propagation) -> float:
    return float(average(g.sq)) * g.sq.numel() / found.output.sq.numel()


def _sides(sent: Sent, found: Propagation) -> list[tuple[float, float, float]]:
    """‖S‖² of a kind of output, what a squared gradient has grown by from there, and its correlation c."""
    loss, T = found.loss, found.loss.positions
    apart, c = _growth(sent.apart, found), sent.apart.site_correlation
    if sent.alike is None:
        return [(loss.square, apart, c)]
    alike, c_alike = _growth(sent.alike, found), sent.alike.site_correlation
    rest = (T * apart - alike) / (T - 1)
    c_rest = (T * apart * c - alike * c_alike) / (T - 1) / rest if rest else 0.0
    return [(loss.square / T, alike, c_alike), (loss.square * (1 - 1 / T), rest, c_rest)]


def _independent(sent: Sent, found: Propagation) -> float:
    return sum(square * growth**2 for square, growth, _ in _sides(sent, found))


def _identity(sent: Sent, positions: int, found: Propagation) -> float:
    """Σ_ts n α_ts² over ‖M‖² of independent sides."""
    size = _independent(sent, found)
    scale, g = found.loss.trace / found.output.sq.numel() * found.graph.batch, sent.apart
    squares = float(average(g.sq)) ** 2 if sent.alike else float(average(compactly(torch.square, g.sq)))
    together = 1 + (positions - 1) * g.site_correlation**2
    return scale**2 * squares * together * g.sq.numel() / found.graph.batch / size if size else 0.0


def _gain(step: Step, number: int, here: Sent, there: Sent | None, found: Propagation) -> float:
    """What `Sent.gain` becomes on the way to an argument; `there` where both sides go through the same numbers."""
    assert isinstance(step.out, Activation)
    if not found.loss.trace and not step.attention:
        return here.gain
    positions = step.out.positions
    share = min(_identity(here, positions, found) / here.gain, 1.0)
    if there is None:
        return here.gain * (1 + share * (step.kurtosis - 1))
    added = _identity(there, positions, found)
    if (mixing := step.attention) is None:
        return here.gain + added
    if number == 0:
        return here.gain * mixing.query[0] + added * mixing.query[1]
    if number == 1:
        near, pairs, few, few_of_pairs = mixing.key
        pairs = pairs if here.alike else 0.0
        same_head = share + (1 - share) / mixing.heads
        return near * (here.gain * (1 + same_head * pairs) + added * (few + few_of_pairs * pairs))
    return here.gain * (mixing.value if here.alike else 1.0)


def of_parameter(block: Block, step: Step, sent: Sent, found: Propagation) -> float:
    """σ² of a layer's weight or bias, or of a multiplier; `sent` is what arrives at its outputs."""
    x, batch = step.x, found.graph.batch
    T = sent.apart.sq.numel() // batch // block.fan_out
    if x is None or not T:  # made for all examples at once, from none of them
        return math.nan
    if block.kind == "scalar":  # G = xᵀ M x / u²
        trace = found.loss.trace * _growth(sent.apart, found)
        return x.second_moment**2 * (2 * sent.gain * _independent(sent, found) + trace**2)
    if block.kind == "bias":
        entries, c, length, chance, single, both, pairs = math.inf, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0
    else:
        entries = block.fan_in * math.prod(block.kernel)
        c, length, chance = min(x.site_correlation, 1.0), step.length, x.alike or 1 / entries
        single, both, pairs = _uneven(x, sent.apart, chance)
    wishart = T * (T + 1) / max(T - 1, 1)  # ‖X Xᵀ‖² of T independent inputs has T² + T products of two by chance
    total = 0.0
    for number, (square, growth, g) in enumerate(_sides(sent, found)):
        common = (1 + (T - 1) * c) * (1 + (T - 1) * g) / T
        rest = (1 - c) * (1 - (1 + (T - 1) * g) / T)
        if sent.alike is None:
            common += (T - 1) * max(sent.apart.lean - c * g, 0.0) / entries  # in the direction that a unit reads
            size = common**2 + 2 * common * rest + single * rest**2
            if found.loss.trace and T > 1:
                share = min(_identity(sent, T, found) / sent.gain, 1.0)
                at = sent.apart.sq.mean(1 if block.kernel else -1).reshape(batch, -1)
                places = float((at.sum(1).square() / at.square().sum(1)).mean())  # that would share them evenly
                size += share * (_along_identity(places, c, g, chance) - size)
        else:
            size = common**2 + 2 * common * rest + (both * (1 + wishart * chance) if number else 1.0) * rest**2
        total += square * growth**2 * size
    return sent.gain * length**2 * total * (pairs if sent.alike else 1.0) / block.numel


def _along_identity(T: float, c: float, g: float, chance: float) -> float:
    """tr(ΓXΓX) / tr Γ² of T inputs of length 1 that correlate by c, and gradients that correlate by g."""
    common = (1 + (T - 1) * c) * (1 + (T - 1) * g)
    rest = (T - 1) * ((1 - c) * (1 - g)) ** 2 * (1 + T * chance)
    return (common**2 + rest) / (T * (1 + (T - 1) * g**2))


def _uneven(x: Activation, g: Gradient, chance: float) -> tuple[float, float, float]:
    """What positions of different size change, where S joins them and where not, and by how much pairs are alike."""
    if x.sq.dim() > 3 or x.sq.shape[:-1] != g.sq.shape[:-1]:
        return 1.0, 1.0, 1.0
    q, a = (distinct(sq).mean(-1) for sq in (x.sq, g.sq))
    size = float(q.mean() * a.mean()) or 1.0
    T, own = x.positions, float(q.square().mean() / q.mean().square())
    usual = (1 - x.site_correlation) ** 2 * chance
    pairs = x.pairs or x.site_correlation**2
    alike = (own + (T - 1) * (pairs + usual)) / (own + (T - 1) * (x.site_correlation**2 + usual))
    return float((q * a).mean() / size) ** 2, float((q * a).square().mean()) / size**2, alike
