"""What the calculus knows without values: second moments of activations, gradients, weights and inputs."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from hessdiag import init as initialisations
from hessdiag.arguments import kind_of
from hessdiag.errors import HessdiagError
from hessdiag.network.blocks import STRUCTURED, TRANSPOSED, initialised_layers, is_linear, parameter_slots
from hessdiag.network.torch_state import seeded_rng

M = TypeVar("M", bound="Moments")
FEW = 4096  # entries that are not looked at one by one
ROWS, EXAMPLES = 1024, 8  # of a table, that are compared with each other, and of token ids
NODES, REACH = 400, 7.0  # midpoints of a symmetric grid: a kink at 0 falls between two of them
InputMoments = tuple[float, float]  # E[x²] of the network's inputs, their correlation between positions and examples
NORMAL = (1.0, 0.0)  # of N(0, 1)


@dataclass(frozen=True)
class Moments:
    """Second moments of one tensor, over random weights and inputs. They are a tensor of the same shape, so that
    reshaping, slicing and concatenating are done to the moments by the very same operation. Equal entries are expanded
    views: they take no memory.
    """

    sq: Tensor  # E[x²], float64, of the tensor's shape (B, ...)
    site_correlation: float = 0.0  # E[x_s x_s'] / E[x²] of one channel at two positions s ≠ s' of an example
    example_correlation: float = 0.0  # E[x_a x_b] / E[x²] of one entry for two examples a ≠ b
    # (T,) of a causal network: covariance of a position with those before it, over its mean; None where all are alike
    profile: Tensor | None = None

    @property
    def second_moment(self) -> float:
        """E[x²], the average over all entries."""
        return float(average(self.sq))

    def scaled(self: M, factor: Tensor | float) -> M:
        """Multiply all second moments by a factor."""
        return replace(self, sq=compactly(lambda sq: sq * factor, self.sq))

    def independent(self: M) -> M:
        """Take all entries as centred and i.i.d., as the paper does: every one has the mean moment."""
        return type(self)(average(self.sq).expand(self.sq.shape))


@dataclass(frozen=True)
class Activation(Moments):
    """Second moments of what an operation returns, or of a parameter or buffer."""

    mean: float = 0.0  # part of the second moment that is the square of the mean over channels; 1/π after a ReLU
    positions: int = 1  # number of positions per example
    parameter: str = ""  # name of the parameter or buffer whose values it holds; empty for an activation
    before: Before | None = None  # the Gaussian below a nonlinearity, for max pooling
    alike: float = 0.0  # mean square of the cosine of what differs between two positions; 0 for 1/n, of n channels
    read: float = 0.0  # the same of the input of the linear layer below, with what rotations leave of it
    pairs: float = 0.0  # mean square of E[x_s x_s'] over that of E[x²], of positions s ≠ s'; 0 for `site_correlation`²

    @classmethod
    def of(cls, actual: Tensor, name: str) -> Activation:
        """Those of a parameter or buffer whose numbers are at hand."""
        return cls(actual.double().square(), example_correlation=1.0, parameter=name, **alike(actual))

    @property
    def near(self) -> float:
        """What neighbouring positions have in common: borders take half of what they take from distant ones."""
        return max(self.site_correlation, (self.site_correlation + self.example_correlation) / 2)

    @property
    def gaussian(self) -> Before:
        """Find the Gaussian below a nonlinearity, or take the entries themselves for one."""
        return self.before or Before(leaky_relu(1.0), self.mean, self.near)

    def weakened(self, sq: Tensor, keep: float) -> Activation:
        """Replace the moments, of which the mean part and what is in common stay as large as `keep` says."""
        kept = {key: min(getattr(self, key) * keep, 1.0) for key in ("mean", "site_correlation", "example_correlation")}
        return replace(self, sq=sq, before=None, **kept)


class Before(NamedTuple):
    """A Gaussian N(mean, 1 - mean²), its correlation between positions, and what acted on it."""

    phi: Nonlinearity
    mean: float
    site_correlation: float


@dataclass(frozen=True)
class Gradient(Moments):
    """Second moments of the gradient of an activation."""

    slope: float = 1.0  # factor on E[φ'²] of the nonlinearity below: a max pooling or a second ReLU chooses entries
    lean: float = 0.0  # E[x_s x_t Δ_s Δ_t] / (E[x²] E[Δ²]) of two positions of a nonlinearity's input; 0 for unknown
    along: float = 0.0  # share that points along the activation, as of a squared error: a normalisation takes it out

    def through_weights(self, sq: Tensor, kept: float = 1.0) -> Gradient:
        """What a layer sends to its input: its correlations, but nothing of the nonlinearity or the loss above."""
        sites = min(self.site_correlation * kept, 1.0)
        return replace(self, sq=sq, site_correlation=sites, slope=1.0, lean=0.0, along=0.0)


def mean_of_pairs(later: Tensor) -> float:
    """Average over pairs of positions what depends on the later one alone, (T,)."""
    T = len(later)
    return float(later @ torch.arange(T, dtype=torch.float64)) * 2 / max(T * (T - 1), 1)


def over_size(x: Moments, size: Tensor) -> dict[str, Any]:
    """What is left of correlations between positions where each is divided by its own size² (..., T, 1)."""
    kept = by_position(size) if size.dim() > 2 else size
    if x.profile is None or len(kept) != len(x.profile):
        return {}
    inverse = kept.rsqrt()
    before = (inverse.cumsum(0) - inverse) / torch.arange(len(kept)).clamp(min=1)
    profile = x.profile * inverse * before
    mean = mean_of_pairs(profile)
    left = mean * x.second_moment / float(average(compactly(torch.div, x.sq, size.expand(x.sq.shape))))
    return {"site_correlation": min(x.site_correlation * left, 1.0), "profile": profile / mean}


def flattened(profile: Tensor | None, flat: float, whole: float) -> Tensor | None:
    """The profile of a correlation of which a part is that of all positions alike."""
    share = min(max(flat / whole, 0.0), 1.0) if whole > 0 else 0.0
    return None if profile is None else share + (1 - share) * profile


def by_position(sq: Tensor) -> Tensor:
    """E[x²] of each position, the one dimension before the last."""
    kept = distinct(sq)
    return kept.mean([d for d in range(kept.dim()) if d != kept.dim() - 2]).expand(sq.shape[-2])


def mixed(sizes: Sequence[float], moments: Sequence[Moments]) -> Tensor | None:
    """The profile of a sum of uncorrelated parts."""
    parts = [(size * each.site_correlation, each.profile) for size, each in zip(sizes, moments, strict=True)]
    lengths = {len(profile) for _, profile in parts if profile is not None}
    total = sum(size for size, _ in parts)
    if len(lengths) != 1 or total <= 0:
        return None
    flat = torch.ones(lengths.pop(), dtype=torch.float64)
    return sum((size / total * (flat if profile is None else profile) for size, profile in parts), 0 * flat)


def distinct(sq: Tensor) -> Tensor:
    """Keep one entry of each dimension that a tensor repeats without memory."""
    for d, size in enumerate(sq.shape):
        sq = sq.narrow(d, 0, 1) if size > 1 and sq.stride(d) == 0 else sq
    return sq


def thin(sq: Tensor) -> Tensor:
    """Keep equal entries once, as an expanded view."""
    kept = distinct(sq)
    for d in (d for d in range(kept.dim()) if kept.shape[d] > 1):
        first = kept.narrow(d, 0, 1)
        kept = first if torch.equal(first.expand(kept.shape), kept) else kept
    return kept.expand(sq.shape)


def compactly(function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """Apply a function entry by entry to tensors of one shape, once where all are expanded views."""
    return function(*map(distinct, tensors)).expand(tensors[0].shape)


def average(sq: Tensor) -> Tensor:
    """Average all entries; of an expanded view, those that it has in memory."""
    return distinct(sq).mean()


def add_gradients(gradients: Sequence[Gradient]) -> Gradient:
    """Add gradients that come back along several paths, uncorrelated because each went through other weights."""
    if len(gradients) == 1:
        return replace(gradients[0], sq=thin(gradients[0].sq))
    sizes = [g.second_moment for g in gradients]
    sq = compactly(lambda *parts: sum(parts[1:], parts[0]), *(g.sq for g in gradients))
    joint = weighted(sizes, gradients, "site_correlation", "example_correlation", "slope")
    return Gradient(thin(sq), profile=mixed(sizes, gradients), **joint)


def weighted(sizes: Sequence[float], moments: Sequence[Moments], *names: str) -> dict[str, float]:
    """Average attributes, by sizes."""
    total = sum(sizes) or 1.0
    return {n: float(sum(s * getattr(m, n) for s, m in zip(sizes, moments, strict=True)) / total) for n in names}


@dataclass(frozen=True)
class Nonlinearity:
    """A function of one number, applied entry by entry."""

    name: str
    function: Callable[[Tensor], Tensor] = field(compare=False)
    slope: float | None = None  # below 0, of one that has slope 1 above: φ(s x) = s φ(x) for s > 0
    nodes: int = NODES  # of a grid for two variables; fewer for what is written out by hand: smooth, and costly

    def derivative(self, x: Tensor) -> Tensor:
        """Apply φ' to every entry."""
        with torch.enable_grad():
            leaf = x.detach().clone().requires_grad_()
            return torch.autograd.grad(self.function(leaf).sum() + 0 * leaf.sum(), leaf)[0]  # 0 of a step


def leaky_relu(slope: float) -> Nonlinearity:
    """Make a leaky ReLU: a ReLU with slope 0, the identity with slope 1."""
    return Nonlinearity(f"leaky ReLU {slope}", partial(F.leaky_relu, negative_slope=slope), slope)


class Response(NamedTuple):
    """What φ makes of x ~ N(m, v) with E[x²] = q: E[y²] and E[y]² of y = φ(x), E[φ'²] and E[φ'⁴] / E[φ'²]²."""

    sq: float
    mean_sq: float
    slope_sq: float
    slope_kurtosis: float = 1.0


def respond(phi: Nonlinearity, q: float, mean: float) -> Response:
    """Find the moments of φ(x), x Gaussian with E[x²] = q, of which `mean` is the square of the mean."""
    if phi.slope is not None and mean == 0:
        a = phi.slope
        slope_sq = (1 + a * a) / 2
        return Response(q * slope_sq, q * (1 - a) ** 2 / (2 * math.pi), slope_sq, (1 + a**4) / 2 / slope_sq**2)
    sq, average_y, slope_sq, fourth = map(float, responses(phi, torch.tensor([q], dtype=torch.float64), mean))
    return Response(sq, average_y**2, slope_sq, fourth / slope_sq**2 if slope_sq else 1.0)


def responses(phi: Nonlinearity, q: Tensor, mean: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """E[y²], E[y], E[φ'²] and E[φ'⁴] as in `respond`, of several q (k,) at once, each (k,)."""
    z, weights = _grid()
    x = (mean * q).sqrt()[:, None] + ((1 - mean) * q).sqrt()[:, None] * z  # (k, nodes)
    y, slopes = phi.function(x).double(), phi.derivative(x).square()
    return y.square() @ weights, y @ weights, slopes @ weights, slopes.square() @ weights


def correlate(phi: Nonlinearity, q: float, mean: float, correlation: float) -> tuple[float, ...]:
    """Find what two such variables with E[x x'] = `correlation` q have in common.

    E[φ(x) φ(x')] / E[φ²], E[φ'(x) φ'(x')] / E[φ'²] and E[x φ'(x) x' φ'(x')] / (q E[φ'²]).

    For a ReLU of variables without mean, with ρ = cos θ: (√(1-ρ²) + ρ (π - θ)) / π and 1 - θ/π.
    """
    if math.isnan(correlation):
        return math.nan, math.nan, math.nan
    correlation = min(max(correlation, mean if mean > 0 else -1.0), 1.0)
    if phi.slope == 0 and mean == 0:
        theta = math.acos(correlation)
        together = (math.sin(theta) + correlation * (math.pi - theta)) / math.pi
        return together, 1 - theta / math.pi, together
    alone = respond(phi, q, mean)
    z, weights = _grid(phi.nodes)
    shared = max(correlation - mean, 0.0)  # part of q that both variables have in common
    common = math.sqrt(mean * q) + math.sqrt(shared * q) * z
    x = common[:, None] + math.sqrt(max(1 - mean - shared, 0.0) * q) * z  # (nodes of the shared part, of the own part)
    slopes = phi.derivative(x)
    y, steep, lean = ((each * weights).sum(1) for each in (phi.function(x), slopes, x * slopes))
    sizes = ((y, alone.sq), (steep, alone.slope_sq), (lean, q * alone.slope_sq))
    return tuple(float((weights * v.square()).sum()) / size if size else math.nan for v, size in sizes)


def respond_of_largest(phi: Nonlinearity, mean: float, correlation: float, count: int) -> tuple[float, ...]:
    """The largest of `count` Gaussians with E[x²] = 1 and pairwise E[x x'] = `correlation`, seen through a rising φ.

    Returns:
        E[φ(M)²] / E[φ(x)²], the correlation of two such largest values that share no entry, and
        E[φ'(M)²] / E[φ'(x)²]: the largest is more often on the steep side; and E[M φ'(M) M' φ'(M')] / E[φ'(M)²].
    """
    z, weights = _grid()
    shared = max(correlation - mean, 0.0)
    own = math.sqrt(max(1 - mean - shared, 1e-12))
    # density of the largest of `count` independent standard normals
    step = float(z[1] - z[0])
    mass = torch.special.ndtr(torch.cat([z - step / 2, z[-1:] + step / 2])).pow(count).diff()  # (nodes,)
    x = math.sqrt(mean) + math.sqrt(shared) * z[:, None] + own * z  # (shared, own)
    y, slopes, alone = phi.function(x), phi.derivative(x), respond(phi, 1.0, mean)
    sq, slope = (float((weights * (each.square() * mass).sum(1)).sum()) for each in (y, slopes))
    common, lean = (float((weights * (each * mass).sum(1).square()).sum()) for each in (y, x * slopes))
    return sq / alone.sq, common / sq, slope / alone.slope_sq, lean / slope


def _grid(nodes: int = NODES) -> tuple[Tensor, Tensor]:
    z = (torch.arange(nodes, dtype=torch.float64) + 0.5) * (2 * REACH / nodes) - REACH
    weights = torch.exp(-z.square() / 2)
    return z, weights / weights.sum()


def alike(values: Tensor) -> dict[str, Any]:
    """What the rows of a table (..., T, n) have in common, the square of their means over channels, and their cosines.
    The first two are shares of the mean square, less what independent numbers have by chance; see `Activation`.
    """
    x = values.detach().double()
    x = x.reshape(-1, *x.shape[-2:]) if x.dim() > 1 else x[None, None]
    x = x[:, :: max(x.shape[1] // ROWS, 1)]
    sq, (T, n) = float(x.square().sum()), x.shape[-2:]
    if sq == 0 or not math.isfinite(sq):
        return {}
    common = (float(x.sum(1).square().sum()) / sq - 1) / (T - 1) if T > 1 else 1.0
    mean = (float(x.sum(2).square().sum()) / sq - 1) / (n - 1) if n > 1 else 0.0
    found = {"site_correlation": max(common, 0.0), "mean": max(mean, 0.0)}
    if T > 2:
        rest = x - x.mean(1, keepdim=True)
        size, gram = rest.square().sum(-1), rest.mT @ rest  # (..., T), (..., n, n)
        pairs = float(gram.square().sum() - size.square().sum()) / (T - 1)
        found["alike"] = pairs * T / max(float(size.sum(-1).square().sum()), 1e-300)
    return found


@dataclass(frozen=True)
class WeightMoments:
    """Second moments of the parameters and buffers of a model."""

    sq: Mapping[str, float]  # E[W²] by name
    values: Mapping[str, Tensor]  # the numbers themselves, of buffers and of small parameters such as a multiplier
    alike: Mapping[str, dict[str, Any]]  # of tables such as embeddings, see `alike`
    names: Mapping[str, str]  # the one name of `hessdiag.network.blocks` for every name that a parameter goes by
    source: str  # where they come from, for the table


def weight_moments(model: nn.Module, *, init: str | None = None) -> WeightMoments:
    """Find E[W²] of all parameters."""
    if init:
        initialisations.check_scheme(init)
    drawn_anew = dict(initialised_layers(model)) if init else {}
    c = 2 / initialisations.typical_kernel(model)
    meta = any(parameter.is_meta for parameter in model.parameters())
    drawn = as_drawn(model) if meta and not init else {}
    sq, tables = dict[str, float](), dict[str, dict[str, Any]]()
    values: dict[str, Tensor] = {name: buffer.detach() for name, buffer in model.named_buffers() if not buffer.is_meta}
    for name, ((path, attribute), *_) in parameter_slots(model).items():
        module = model.get_submodule(path)
        parameter = module.get_parameter(attribute).detach()
        if path in drawn_anew and attribute == "weight":
            sq[name] = initialisations.second_moment(parameter, str(init), c=c, **initialisations.layout(module))
        elif path in drawn_anew and attribute == "bias":
            sq[name] = 0.0
        elif parameter.is_meta:
            sq[name] = drawn.get(name, _default(module, attribute))
        else:
            sq[name] = float(parameter.double().square().mean())
            if parameter.numel() == 1 or (parameter.dim() == 1 and parameter.numel() <= FEW):
                values[name] = parameter
            elif not (is_linear(module) or isinstance(module, (*STRUCTURED, *TRANSPOSED))):
                tables[name] = alike(parameter)
    by = "one layer of each kind, drawn as the model does" if drawn else "PyTorch's defaults, by formula"
    source = f"init {init}" if init else by if meta else "the weights as they are"
    first = {id(parameter): name for name, parameter in model.named_parameters()}
    # remove_duplicate: a tied weight goes by every one of its names in a traced graph
    names = {name: first[id(parameter)] for name, parameter in model.named_parameters(remove_duplicate=False)}
    return WeightMoments(sq, values, tables, names, source)


def as_drawn(model: nn.Module) -> dict[str, float]:
    """Find E[W²] by name where a model on the meta device draws weights by `_init_weights`, of one part a kind. Nothing
    where that is no function of a module, as transformers call it, or fails.
    """
    found, kinds = dict[str, float](), dict[object, dict[str, float]]()

    def visit(path: str, module: nn.Module) -> None:
        if any(isinstance(each, nn.ModuleList) for each in module.modules()):
            for name, child in module.named_children():
                visit(f"{path}{name}.", child)
            return
        kind = re.sub(r"\d+", "#", path), tuple((name, p.shape) for name, p in module.named_parameters())
        if kind not in kinds:
            kinds[kind] = _drawn_once(module, model._init_weights)  # type: ignore[arg-type]
        found.update({f"{path}{name}": sq for name, sq in kinds[kind].items()})

    if callable(getattr(model, "_init_weights", None)):
        try:
            with seeded_rng(0), torch.no_grad():
                visit("", model)
        except Exception:  # the model's own code
            return {}
    return found


def _drawn_once(module: nn.Module, draw: Callable[[nn.Module], None]) -> dict[str, float]:
    part = copy.deepcopy(module).to_empty(device="cpu")
    for parameter in part.parameters():
        parameter.fill_(math.nan)
    for each in part.modules():
        if callable(reset := getattr(each, "reset_parameters", None)):
            reset()
    part.apply(draw)
    norms = {name: torch.linalg.vector_norm(p, dtype=torch.float64) for name, p in part.named_parameters()}
    return {name: float(norm) ** 2 / part.get_parameter(name).numel() for name, norm in norms.items() if norm == norm}


def _default(module: nn.Module, attribute: str) -> float:
    """What PyTorch draws: variance 1 / (3 fan-in) for weights and biases, N(0, 1) for embeddings, 1 for norms."""
    if isinstance(module, (*STRUCTURED, *TRANSPOSED)):
        return 1 / (3 * module.weight[0].numel())
    if is_linear(module):  # transformers' Conv1D
        return 0.02**2 if attribute == "weight" else 0.0
    if isinstance(module, nn.Embedding):
        return 1.0
    if "Norm" in type(module).__name__:
        return 1.0 if attribute == "weight" else 0.0
    return 0.25**2 if isinstance(module, nn.PReLU) else math.nan


def example_inputs(model: nn.Module, inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any], InputMoments]:
    """Make arguments to trace with, a few examples of them, and find the moments of the floating-point ones."""
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    size = [inputs] if isinstance(inputs, int) else inputs
    if isinstance(size, (tuple, list)) and size and all(isinstance(v, int) for v in size):
        if min(size) < 1:
            raise HessdiagError(f"input size {tuple(size)}: pass positive sizes such as (3, 32, 32)")
        return (torch.empty(2, *size, device=device, dtype=dtype),), {}, NORMAL
    listed = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    given = ((), dict(inputs)) if isinstance(inputs, Mapping) else (listed, {})
    if not (tensors := [value for value in tree_leaves(given) if isinstance(value, Tensor)]):
        how = "pass the shape of one example such as (3, 32, 32), or tensors"
        raise HessdiagError(f"inputs are {kind_of(inputs)}: {how}")
    if any(value.dim() == 0 or not len(value) for value in tensors):
        raise HessdiagError("inputs hold no example: their first dimension must run over examples")
    # numbers that are no measurements, such as token ids, are used as they are
    ids = [value for value in tensors if not (value.is_floating_point() or value.is_meta or device.type == "meta")]
    count = max(min(max(map(len, ids), default=2), EXAMPLES), 2)

    def few(value: Tensor) -> Tensor:
        if any(value is each for each in ids):
            return value[torch.arange(count) % len(value)].to(device)
        return torch.empty((count, *value.shape[1:]), dtype=value.dtype, device=device)

    args, kwargs = tree_map_only(Tensor, few, given)
    measured = [value for value in tensors if value.is_floating_point() and not value.is_meta]
    return args, kwargs, measured_inputs(measured[0]) if measured else NORMAL


def measured_inputs(x: Tensor) -> InputMoments:
    """Measure E[x²] of given inputs (B, ...) and the correlation between examples."""
    values = x.detach().double().flatten(1)  # (B, P)
    sq = float(values.square().mean())
    if (size := len(values)) < 2 or sq == 0:
        return sq, 0.0
    cross = (values.sum(0).square() - values.square().sum(0)).mean() / (size * (size - 1))
    shared = min(max(float(cross) / sq, 0.0), 1.0)
    return sq, shared if shared > 3 / math.sqrt(values.shape[1] * size * (size - 1) / 2) else 0.0  # not independent
