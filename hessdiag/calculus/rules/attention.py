"""Attention, whole or written as products and a softmax: averages over positions with weights that are activations.

One head: scores S_st = a q_s · k_t, weights A = softmax(S), result o_s = Σ_t A_st v_t. What all keys have in common
drops out of the softmax, so that scores of a query are Gaussian with variance χ u², u² = a² n E[q²] E[k²] (1 - c_k); χ,
|q_s|² and the keys' weight in its direction, varies by 2/n + 2/d. Means are taken over random scores of m visible keys
with a fixed seed: P = E Σ_t A_st², what tr(C²) of the covariance C of unit vectors under A is, F = E[P - 2 Σ A³ + P²],
and τ = E[χ F] / F. κ² is the mean product of two positions' chance similarities in k and in v, 1/d for both read from d
independent channels, n the channels of a head, and h_s = √E[g_s²]:

    E[o_s²]  = E[v²] (c_v + (1 - c_v) (P + (1 - P) u² κ²))
    E[Δv_t²] = Σ_s P_s/m_s g_s² + c_g e^{c_q u²} Σ_{s≠s'} h_s h_s' / (m_s m_s')
    E[Δq_s²] = a² n E[k²] E[v²] (1 - c_k) (1 - c_v) g_s² (F + (1 - P)² κ²)
    E[Δk_t²] = a² n E[q²] E[v²] (1 - c_v) (Σ_s F_s/m_s g_s² (1 + (τ - 1)/(1 + n/d)) + c_q × pairs as of v)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from hessdiag.calculus.graph import NOT_IN_PAPER, Call, Mixing, Ref, Scores, Step, UnsupportedError
from hessdiag.calculus.moments import Activation, Gradient, by_position, distinct, mean_of_pairs, weighted
from hessdiag.calculus.rules.composed import SAME
from hessdiag.data.seeds import stream

HIDDEN = -1e4  # a mask's numbers below this hide a key
LARGE_BIAS = 100.0  # above it in the mean square, a bias also masks
OF_INPUTS = "its mask depends on the inputs: leave attention_mask out"
_KEEP = frozenset(("dropout", "expand", "view", "reshape", "_unsafe_view", *SAME.split()))
DRAWN = 2**18  # random scores for one attention
NOTE = f"attention: {NOT_IN_PAPER}, scores are taken as Gaussian and independent of the values"


def scaled_dot_product_attention(call: Call) -> Step:
    """Attention in one operation."""
    query = call.activation("query")
    scale = call.number("scale")
    factor = 1 / math.sqrt(query.sq.shape[-1]) if scale is None else scale
    scores = Scores(call.ref("query"), call.ref("key"), factor=factor)
    Q, K = query.sq.shape[-2], call.activation("key").sq.shape[-2]
    if call.arguments.get("is_causal"):
        scores = replace(scores, mask=torch.ones(Q, K, dtype=torch.bool).tril())
    mask = call.arguments.get("attn_mask")
    return _attend(call, _shifted(call, scores, mask) if isinstance(mask, Ref) else scores, call.ref("value"))


def product(call: Call) -> Step | None:
    """A product of two activations: scores of queries and keys, or a mean of values; None where it is neither."""
    if len(call.operation.refs) != 2:
        return None
    left, right = call.operation.refs
    first, second = call.values[left.name], call.values[right.name]
    if isinstance(first, Scores):
        return _attend(call, first, right) if first.normalised else None
    both = isinstance(first, Activation) and isinstance(second, Activation)
    if not both or call.operation.shape is None or len(call.shape) < 3:
        return None
    return Step(Scores(left, right, key_last=True))


def on_scores(call: Call) -> Step:
    """Multiply, mask, shift or normalise scores, or leave them be."""
    name = call.operation.target.removeprefix("aten.")
    ref, scores = next((r, value) for r in call.operation.refs if isinstance(value := call.values[r.name], Scores))
    others = [r for r in call.operation.refs if r != ref]
    if name in ("softmax", "_softmax", "_safe_softmax"):
        if scores.normalised or int(call.arguments["dim"]) not in (-1, len(call.shape) - 1):
            raise UnsupportedError("a softmax over something else than keys")
        return Step(replace(scores, normalised=True))
    if name in ("mul", "div") and not scores.normalised:
        return Step(replace(scores, factor=scores.factor * _factor(call, name, ref, others)))
    if name == "add" and len(others) == 1 and not scores.normalised:
        return Step(_shifted(call, scores, others[0]))
    if name in ("where", "masked_fill") and not scores.normalised:
        return Step(_masked(scores, _visible(call, ref)))
    if name in _KEEP:  # examples and heads apart or together; dropout is off, as in a diagnosis
        return Step(scores)
    raise UnsupportedError("no rule for this operation on attention scores")


def _factor(call: Call, name: str, scores: Ref, others: list[Ref]) -> float:
    actual = call.numbers.get(others[0].name) if others else None
    number = float(actual) if actual is not None and actual.numel() == 1 else call.number("other")
    if number is None or call.arguments["self"] != scores:
        raise UnsupportedError("scores times an activation")
    return number if name == "mul" else 1 / number


def _visible(call: Call, scores: Ref) -> Tensor:
    where = call.operation.target == "aten.where"
    mask = call.arguments["condition" if where else "mask"]
    actual = call.numbers.get(mask.name) if isinstance(mask, Ref) else None
    if actual is None or (where and call.arguments["self"] != scores):
        raise UnsupportedError(OF_INPUTS)
    return actual if where else ~actual


def _shifted(call: Call, scores: Scores, mask: Ref) -> Scores:
    numbers, value = call.numbers.get(mask.name), call.values[mask.name]
    if numbers is None and isinstance(value, Activation) and value.example_correlation > 1 - 1e-9:
        sq = distinct(value.sq)
        visible = sq <= LARGE_BIAS  # above it a mask was added too
        if not bool(visible.any()):
            raise UnsupportedError("a mask that is a parameter")
        shifted = replace(scores, shift=scores.shift + float(sq[visible].mean()))
        return shifted if bool(visible.all()) else _masked(shifted, visible)
    if numbers is None:
        raise UnsupportedError(OF_INPUTS)
    if numbers.dtype == torch.bool:
        return _masked(scores, numbers)
    numbers = distinct(numbers)
    visible = numbers > HIDDEN
    if bool(visible.any()) and bool((visible & (numbers < numbers.amax())).any()):
        raise UnsupportedError("scores with a fixed slope over positions")
    return _masked(scores, visible)


def _masked(scores: Scores, visible: Tensor) -> Scores:
    visible = distinct(visible)
    visible = visible.reshape(-1, *visible.shape[-2:])
    visible = visible[0] if bool((visible == visible[:1]).all()) else visible
    return replace(scores, mask=visible if scores.mask is None else scores.mask & visible)


def concentration(variance: float, keys: int, freedom: float = math.inf) -> tuple[Tensor, ...]:
    """P, F, τ, E[(Σ A²)²], E Σ A³ and E Σ A⁴ for 1, 2, ... `keys` keys, each (keys,). Scores of a row are N(0, χ
    `variance`) with χ of that row, a mean of `freedom` squared Gaussians. Without variance they are 1/m, 1/m - 1/m², 1,
    1/m², 1/m² and 1/m³.
    """
    rows = min(max(DRAWN // keys, 64), 4096)
    level = (torch.arange(rows, dtype=torch.float64) + 0.5) / rows
    # χ of each row: quantiles, by Wilson and Hilferty's approximation
    chi = (1 - 2 / (9 * freedom) + torch.special.ndtri(level) * math.sqrt(2 / (9 * freedom))).clamp(min=0) ** 3
    chi = (chi / chi.mean())[:, None]
    scores = torch.randn(rows, keys, generator=stream(0, "attention scores"), dtype=torch.float64)
    e = ((variance * chi).sqrt() * scores).exp()
    total = e.cumsum(1)
    A2, A3, A4 = ((e**power).cumsum(1) / total**power for power in (2, 3, 4))
    F = A2 - 2 * A3 + A2.square()
    P, F, long, P2, A3, A4 = (each.mean(0) for each in (A2, F, F * chi, A2.square(), A3, A4))
    return P, F, torch.where(F > 0, long / F, 1.0), P2, A3, A4


@dataclass(frozen=True)
class _Sight:
    """What a mask alone decides: E[A_st] (Q, K), its rows' one value above 0 (Q,), and (Σ_t E[A_st] E[A_s't])²."""

    count: Tensor
    mean: Tensor
    height: Tensor
    overlap: Tensor
    causal: bool

    @classmethod
    def of(cls, seen: Tensor) -> _Sight:
        """Of a mask (Q, K), True where a query sees a key."""
        count = seen.sum(1).clamp(min=1)
        mean = seen / count[:, None].double()
        causal = torch.equal(seen, torch.ones(len(seen), len(seen), dtype=torch.bool).tril())
        return cls(count, mean, mean.amax(1), (mean @ mean.T).square(), causal)


class _Sent(NamedTuple):
    """E[g_s²] of a gradient, c with E[g_s g_s'] = c h_s h_s' and, of a causal network, E[g_s g_s'] by the later one."""

    size: Tensor
    correlation: float
    later: Tensor | None = None

    @property
    def total(self) -> float:
        """E[(Σ g_s)²]."""
        return float(self.size.sum() + self.correlation * (self.size.sqrt().sum() ** 2 - self.size.sum()))


@dataclass(frozen=True)
class _Head:
    """One head: queries, keys and values, which keys are in sight, and what `concentration` gives (Q,)."""

    q: Activation
    k: Activation
    v: Activation
    factor: float
    variance: float
    sight: _Sight
    P: Tensor
    F: Tensor
    tau: Tensor
    P2: Tensor
    A3: Tensor
    A4: Tensor

    @property
    def chance(self) -> float:
        return math.sqrt(self.k.read * self.v.read)

    @property
    def between(self) -> float:
        """E[A_st A_s't] of two queries over the product of their means."""
        return math.exp(min(self.variance * max(self.q.site_correlation, 0.0), 20.0))

    def pairs(self, sent: _Sent, factor: Tensor | float = 1.0) -> Tensor:
        """Σ_{s≠s'} E[A_st A_s't] E[g_s g_s'] √(f_s f_s') for every t, with a factor f on squares."""
        mean, height = self.sight.mean, self.sight.height
        if sent.later is None or not self.sight.causal:
            h = (sent.size * factor).sqrt()
            return self.between * sent.correlation * ((h @ mean).square() - (height * h.square()) @ mean)
        each = height * torch.ones_like(height).mul(factor).sqrt()  # of any key that a query sees
        below, weight = each.cumsum(0) - each, sent.later * each
        both, later = (value.flip(0).cumsum(0).flip(0) for value in (weight * below, weight))
        return 2 * self.between * (both - later * below)

    def alike(self, x: Activation) -> Tensor:
        """The correlation of the keys or values that a query sees, (Q,)."""
        c = max(min(x.site_correlation, 1.0), 0.0)
        if not self.sight.causal or x.profile is None or len(x.profile) != len(self.P):
            return torch.full_like(self.P, c)
        m = torch.arange(1, len(self.P) + 1, dtype=torch.float64)
        return (c * 2 * (x.profile * (m - 1)).cumsum(0) / (m * (m - 1)).clamp(min=1)).clamp(max=1)


def _head(call: Call, scores: Scores, value: Ref) -> _Head:
    q, k, v = call.at(scores.query), call.at(scores.key), call.at(value)
    k = replace(k, sq=k.sq.transpose(-1, -2)) if scores.key_last else k
    Q, K, n = q.sq.shape[-2], k.sq.shape[-2], q.sq.shape[-1]
    if v.sq.shape[-2] != K or k.sq.shape[-1] != n:
        raise UnsupportedError("a product of two activations")
    sight = _Sight.of(torch.ones(Q, K, dtype=torch.bool) if scores.mask is None else scores.mask.expand(Q, K))
    variance = scores.factor**2 * n * q.second_moment * k.second_moment * (1 - min(k.site_correlation, 1.0))
    variance += scores.shift
    if not math.isfinite(variance):
        raise UnsupportedError("queries or keys have no second moment")
    means = concentration(variance, K, 1 / (1 / n + k.read))
    return _Head(q, k, v, scores.factor, variance, sight, *(each[sight.count - 1] for each in means))


def _attend(call: Call, scores: Scores, value: Ref) -> Step:
    if scores.mask is None or scores.mask.dim() == 2:
        return _attend_once(call, scores, value)
    masks, counts = torch.unique(scores.mask, dim=0, return_counts=True)
    steps = [_attend_once(call, replace(scores, mask=mask), value) for mask in masks]
    return _mean_of(steps, (counts / counts.sum()).tolist())


def _mean_of(steps: Sequence[Step], shares: Sequence[float]) -> Step:
    """Average over heads, windows or examples that see different keys."""

    def joined(found: Sequence[Any]) -> Any:
        sizes = [share * each.second_moment for share, each in zip(shares, found, strict=True)]
        names = [name for name in ("site_correlation", "example_correlation", "pairs") if hasattr(found[0], name)]
        sq = sum(share * each.sq for share, each in zip(shares, found, strict=True))
        return replace(found[0], sq=sq, profile=None, **weighted(sizes, found, *names))

    def mean(*values: float) -> float:
        return sum(share * value for share, value in zip(shares, values, strict=True))

    backs = [(ref, lambda g, i=i: joined([s.back[i][1](g) for s in steps])) for i, (ref, _) in enumerate(steps[0].back)]
    first, *others = (step.attention for step in steps if step.attention)
    mixing = tree_map(mean, first, *others)._replace(heads=first.heads)
    return replace(steps[0], out=joined([step.out for step in steps]), back=tuple(backs), attention=mixing)


def _attend_once(call: Call, scores: Scores, value: Ref) -> Step:
    head = _head(call, scores, value)
    v, own, alike = head.v, 1 - min(head.v.site_correlation, 1.0), head.alike(head.v)
    size, mean, height = by_position(v.sq), head.sight.mean, head.sight.height
    together = mean @ size  # (Q,) of values in common
    apart = (head.P + (1 - head.P) * head.variance * head.chance) * together
    sq = alike * together + (1 - alike) * apart
    Q = len(sq)
    received = mean.sum(0)  # by each key
    shared = head.between * (received.square() @ size - height @ together)
    across = (1 - own) * float(together.mean()) + own * float(shared) / max(Q * (Q - 1), 1)
    profile = _of_means(head) if head.sight.causal and Q > 1 else None
    if profile is not None:
        across = mean_of_pairs(profile) * v.second_moment
        profile = profile / mean_of_pairs(profile)
    total = float(sq.mean()) or 1.0
    both = received.square().sum() - height.sum()  # Σ_{s≠s'} Σ_t E[A_st] E[A_s't]
    squares = head.sight.overlap.sum() - height.square().sum()
    seen = (1 - own) ** 2 * Q * (Q - 1) + 2 * own * (1 - own) * both + own**2 * squares
    pairs = float(seen) * v.second_moment**2 / (max(Q * (Q - 1), 1) * total**2)  # of E[o_s o_s'] over E[v²], squared
    everywhere = min(v.site_correlation, v.example_correlation)  # what all positions of all examples have in common
    examples = everywhere + float(head.P.mean()) * max(v.example_correlation - everywhere, 0.0)
    windows = call.shape[0] // call.batch if len(call.shape) > 3 else 1  # of positions that do not see each other
    common = (1 - own) * float(together.mean()) / total
    out = Activation(
        sq=sq[:, None].expand(call.shape), example_correlation=min(examples * v.second_moment / total, 1.0),
        site_correlation=_over_windows(min(max(across / total, 0.0), 1.0) if Q > 1 else 0.0, common, Q, windows),
        positions=Q * windows if len(call.shape) > 2 else 1, alike=v.alike, pairs=pairs, profile=profile,
    )  # fmt: skip
    back = partial(_back, head=head, key_last=scores.key_last, windows=windows)
    backs = ((scores.query, partial(back, to="q")), (scores.key, partial(back, to="k")), (value, partial(back, to="v")))
    return Step(out, backs, note=NOTE, attention=_mixing(head))


def _of_means(head: _Head) -> Tensor:
    """The mean covariance of a causal mean with those before it, over E[v²], where any key weighs the same."""
    c, T = max(min(head.v.site_correlation, 1.0), 0.0), len(head.P)
    w = head.v.profile if head.v.profile is not None and len(head.v.profile) == T else torch.ones_like(head.P)
    m, whole = torch.arange(1, T + 1, dtype=torch.float64), w.cumsum(0)
    within = 2 * (w * (m - 1)).cumsum(0) + whole  # of all pairs of the first m
    left = ((within / m - whole).cumsum(0) - (within / m - whole)) / (m - 1).clamp(min=1)
    return (c * (left + whole) + (1 - c) * head.between) / m


def _mixing(head: _Head) -> Mixing:
    """Fourth moments of what goes to queries, keys and values, over squares of its second."""
    n, chance, P, F, sight = head.q.sq.shape[-1], head.chance, head.P, head.F, head.sight
    mean, height, T = sight.mean, sight.height, sight.mean.shape[1]
    spread = F + (1 - P).square() * chance  # tr C² of the covariance C of the keys under A; below tr C⁴
    fourth = head.A4 + 6 * head.A3 * chance + 6 * P * chance**2 + chance**3
    uneven, weight = head.P2 / P.square(), spread.square() / spread.square().sum()
    few = (fourth / spread.square().clamp(min=1e-30)).clamp(max=1)
    left = F / P
    own = ((left * height) @ mean).square().sum()
    single, alone = F @ mean, (head.A4 * left.square()) @ mean
    near = float((spread @ height) / (F @ height)) ** 2
    seen = sight.overlap.sum() - (height @ mean).square().sum() + (P @ mean).square().sum()
    ones = torch.ones(len(P), dtype=torch.float64)
    apart, alike = (float(_to_value(head, _Sent(ones, c))[0].sum()) / len(ones) for c in (0.0, 1.0))
    common = (float(left @ sight.overlap @ left / own) - 1) * (1 / n + chance)
    return Mixing(
        heads=head.q.sq.shape[-3] if head.q.sq.dim() > 3 else 1,
        query=(float(weight @ uneven), float(weight @ (uneven + n * few))),
        key=(near, common, n * (float(alone.sum() / single.square().sum()) + chance), n * (float(P.mean()) + chance)),
        value=float(seen) / (alike**2 + (T * apart - alike) ** 2 / max(T - 1, 1)),
    )


def _over_windows(within: float, between: float, positions: int, windows: int) -> float:
    """Average a correlation over pairs in one window, of so many positions each, and in two."""
    pairs = positions - 1, positions * (windows - 1)
    return (within * pairs[0] + between * pairs[1]) / max(sum(pairs), 1)


def _back(g: Gradient, head: _Head, to: str, key_last: bool, windows: int) -> Gradient:
    sq, correlation, profile = {"q": _to_query, "k": _to_key, "v": _to_value}[to](head, _sent(g))
    shape = getattr(head, to).sq.shape
    groups = g.sq.shape[-3] / shape[-3] if len(shape) > 3 else 1.0  # heads that share keys and values
    whole = (sq[:, None] * groups).expand(shape)
    between = g.site_correlation * g.second_moment / (float(sq.mean()) or 1.0) if to == "v" else 0.0
    correlation = _over_windows(correlation, between, len(sq), windows)
    whole = whole.transpose(-1, -2) if to == "k" and key_last else whole
    return Gradient(whole, correlation, g.example_correlation if to == "v" else 0.0, profile)


def _sent(g: Gradient) -> _Sent:
    size = by_position(g.sq)
    count, mean = len(size), float(size.mean())
    most = float(size.sqrt().sum() ** 2 - size.sum())
    common = g.site_correlation * count * (count - 1) * mean
    later = g.profile * g.site_correlation * mean if g.profile is not None and len(g.profile) == count else None
    return _Sent(size, min(max(common / most, 0.0), 1.0) if most else 0.0, later)


def _over_pairs(pairs: float, sq: Tensor) -> float:
    most = float(sq.sum()) * (len(sq) - 1)
    return min(max(pairs / most, -1.0), 1.0) if most else 0.0


def _to_value(head: _Head, sent: _Sent) -> tuple[Tensor, float, Tensor | None]:
    joint = head.pairs(sent)
    sq = (head.P * sent.size) @ head.sight.mean + joint
    correlation = _over_pairs(sent.total - float(sq.sum()), sq)  # Σ_t Δv_t = Σ_s g_s
    if not head.sight.causal or len(sq) < 2:
        return sq, correlation, None
    later = ((1 - head.P) / head.sight.count * sent.size) @ head.sight.mean + joint  # from queries that see both
    return sq, correlation, later / mean_of_pairs(later)


def _to_query(head: _Head, sent: _Sent) -> tuple[Tensor, float, None]:
    keys = head.factor**2 * head.q.sq.shape[-1] * head.k.second_moment * (1 - head.alike(head.k))
    factor = keys * head.v.second_moment * (1 - head.alike(head.v))
    sq = factor * sent.size * (head.F + (1 - head.P).square() * head.chance)
    own = sent._replace(size=sent.size * factor)
    alike = float(head.pairs(sent, factor).sum()) + head.chance * (own.total - float(own.size.sum()))
    return sq, _over_pairs(alike, sq), None


def _to_key(head: _Head, sent: _Sent) -> tuple[Tensor, float, None]:
    n = head.q.sq.shape[-1]
    left = head.F / head.P  # of a value's square, less the mean that the softmax takes away
    factor = by_position(head.q.sq) * (1 - head.alike(head.v))
    own_length = 1 / (1 + n * head.k.read)  # share of the queries in what χ varies by; the rest is the keys' weight
    alone = (head.F * factor * sent.size * (1 + (head.tau - 1) * own_length)) @ head.sight.mean
    pairs = max(head.q.site_correlation, 0.0) * head.pairs(sent, left * factor)
    sq = head.factor**2 * n * by_position(head.v.sq) * (alone + pairs)
    return sq, -1 / max(len(sq) - 1, 1), None  # Σ_t Δk_t = 0 where all queries are alike
