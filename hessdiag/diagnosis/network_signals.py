"""The signals of a whole network: one forward and one backward pass over some examples of a batch.

The pass has hooks of its own beside those of the measurement: it watches every module with parameters, normalisations
and embeddings too, keeps the graph whole where parameters are frozen, and asks it for roles.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from hessdiag.data.batch import Batch
from hessdiag.derivatives.losses import Loss
from hessdiag.diagnosis.chance_loss import chance_loss
from hessdiag.diagnosis.parameter_signals import TINY, mean_sq, parameter_signals
from hessdiag.diagnosis.roles import Graph, Role
from hessdiag.results.signals import LayerSignals, Signals

MAX_EXAMPLES = 64
FEW = 4  # examples that tell whether the network is blind to the scale of a weight
NOISES = 3  # vectors sent back for that: one alone is near 0 by chance in a percent of cases


def network_signals(model: nn.Module, batch: Batch, loss: Loss, *, examples: int = MAX_EXAMPLES) -> Signals:
    """Run the first examples forward and the gradient of each one's own loss backward.

    To be called where the model's state is preserved. Parameters that are frozen are differentiated during the pass.

    Args:
        model: left as it was.
        batch: inputs and targets.
        loss: of the outputs.
        examples: at most so many of them.
    """
    batch = batch.narrow(0, max(1, min(examples, MAX_EXAMPLES)))
    trainable = {name: p.requires_grad for name, p in model.named_parameters()}
    with torch.random.fork_rng(devices=[]), _thawed(model):
        seen, y = _watch(model, batch)
        cotangent, sent_back = _cotangent(loss, y.detach(), batch.targets)
        gradients = _differentiate(model, seen, y, cotangent)
        roles = _roles(seen, y)
        layers = tuple(_layer(each, roles.get(path)) for path, each in seen.layers.items())
        radial = _radial(model, batch, layers)
    values = loss.value(y.detach(), batch.targets).detach().double()
    kind, chance = chance_loss(loss, y, batch.targets)
    flat = y.detach().double()
    fixed = [m for m in model.modules() if _uses_running_statistics(m)]
    averaged = {name: None if g is None else g / batch.size for name, g in gradients.items()}
    return Signals(
        examples=batch.size,
        initial_loss=float(values.mean()),
        initial_loss_stderr=float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else 0.0,
        chance_loss=chance,
        loss_kind=kind,
        output_sq=mean_sq(flat),
        output_variance=float(flat.var(correction=0)),
        input_sq=_input_sq(batch),
        sent_back=sent_back,
        fixed_norms=len(fixed),
        fresh_norms=sum(_is_fresh(m) for m in fixed),
        layers=layers,
        parameters=parameter_signals(model, averaged, trainable, radial),
    )


@dataclass
class _Seen:
    """What a hook noted of one layer."""

    numbers: dict[str, Any]
    channel: int
    x_edge: GradientEdge | None
    edge: GradientEdge | None
    node: Any


@dataclass
class _Pass:
    """What the hooks noted of a forward pass."""

    layers: dict[str, _Seen] = field(default_factory=dict)
    norms: dict[Any, str] = field(default_factory=dict)  # node of what a normalisation reads -> its path
    readers: list[Tensor] = field(default_factory=list)

    def number(self, x: Tensor) -> int:
        """Give the same number to every layer that reads the same tensor."""
        for index, other in enumerate(self.readers):
            if other.data_ptr() == x.data_ptr() and other.numel() == x.numel():
                return index
        self.readers.append(x)
        return len(self.readers) - 1


def _watch(model: nn.Module, batch: Batch) -> tuple[_Pass, Tensor]:
    """Run the model on a batch with every module watched that has parameters of its own, or normalises."""
    seen = _Pass()
    layers = {path: m for path, m in model.named_modules() if _is_layer(m)}
    owners = {path: m for path, m in layers.items() if "parametrizations." not in path}  # these normalise weights
    handles = []
    try:
        for path, module in owners.items():
            handles.append(module.register_forward_hook(_note(path, seen), with_kwargs=True, prepend=True))
        y = batch.outputs(model).y
    finally:
        for handle in handles:
            handle.remove()
    return seen, y


def _is_layer(module: nn.Module) -> bool:
    bare_norm = _is_norm(module) and not any(True for _ in module.children())
    return bare_norm or any(p is not None for p in module._parameters.values())


def _is_norm(module: nn.Module) -> bool:
    """By its name, as that of T5 or LLaMA, which are written out."""
    return "Norm" in type(module).__name__


def _note(path: str, seen: _Pass) -> Any:
    """The hook of one module: numbers at once, since what it wrote may be overwritten in place."""

    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        x = args[0] if args else next(iter(kwargs.values()), None)
        out = output[0] if isinstance(output, tuple) and output else output
        x = x if isinstance(x, Tensor) else None
        is_norm = _is_norm(module)
        if is_norm and x is not None and x.grad_fn is not None:
            seen.norms[x.grad_fn] = path
        if not isinstance(out, Tensor) or not out.is_floating_point() or out.dim() == 0 or path in seen.layers:
            return
        if out.numel() == 0:  # an expert to which nothing of this batch was sent
            seen.layers[path] = _Seen({"path": path, "kind": type(module).__name__}, 0, None, None, None)
            return
        channel = _channel(module, out)
        numbers: dict[str, Any] = {f"out_{key}": value for key, value in _moments(out.detach()).items()}
        if x is not None and x.is_floating_point():
            numbers |= {f"x_{key}": value for key, value in _moments(x.detach()).items()}
        others = [dim for dim in range(out.dim()) if dim != channel]
        numbers["samples"] = math.prod(out.shape[dim] for dim in others)
        top = out.detach().amax(others) if others else out.detach()
        numbers["off_share"] = float((top <= 0).double().mean())
        numbers |= {"path": path, "kind": type(module).__name__}
        numbers["reads"] = -1 if x is None else seen.number(x)
        numbers["normalises"] = is_norm and not _uses_running_statistics(module)
        differentiable = out.requires_grad and out.grad_fn is not None
        seen.layers[path] = _Seen(
            numbers,
            channel,
            get_gradient_edge(x) if x is not None and x.requires_grad and x.is_floating_point() else None,
            get_gradient_edge(out) if differentiable else None,
            out.grad_fn if differentiable else None,
        )

    return hook


def _channel(module: nn.Module, out: Tensor) -> int:
    """The dimension of the output that runs over units."""
    name = type(module).__name__
    first = hasattr(module, "kernel_size") or "BatchNorm" in name or "GroupNorm" in name
    return 1 if first and out.dim() > 2 else out.dim() - 1


def _moments(values: Tensor) -> dict[str, float]:
    """E[v²] and the share of it that varies between examples."""
    sq = mean_sq(values)
    if not 0 < sq < math.inf:
        return {"sq": sq, "varies": 0.0 if sq == 0 else math.nan}
    varies = float((values / math.sqrt(sq)).var(0).mean()) if len(values) > 1 else math.nan
    return {"sq": sq, "varies": varies}


def _cotangent(loss: Loss, y: Tensor, targets: Tensor | None) -> tuple[Tensor, str]:
    """Gradient of each example's loss in its outputs; noise where it vanishes, as of a quadratic loss at y = 0."""
    gradient = loss.gradient(y, targets).detach()
    if bool((gradient.abs() >= TINY).any()):
        return gradient, "loss"
    return _noise(y, 1)[0], "noise"


def _noise(y: Tensor, count: int) -> Tensor:
    """Independent normal numbers like the outputs."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, *y.shape, generator=generator).to(y)


def _differentiate(model: nn.Module, seen: _Pass, y: Tensor, cotangent: Tensor) -> dict[str, Tensor | None]:
    """Note the gradients at all layers, and return those of the parameters, summed over the examples."""
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    edges = [edge for each in seen.layers.values() for edge in (each.edge, each.x_edge) if edge is not None]
    wanted: list[Any] = [*edges, *parameters.values()]
    found = iter(torch.autograd.grad(y, wanted, cotangent, allow_unused=True, retain_graph=True))
    for each in seen.layers.values():
        gradient = next(found) if each.edge is not None else None
        each.numbers |= _gradient_numbers(gradient, each.channel)
        if each.x_edge is not None:
            back = next(found)
            each.numbers["x_gradient_sq"] = 0.0 if back is None else mean_sq(back)
    return {name: None if g is None else g.detach() for name, g in zip(parameters, found, strict=True)}


def _gradient_numbers(gradient: Tensor | None, channel: int) -> dict[str, float]:
    if gradient is None:
        return {"out_gradient_sq": 0.0, "out_gradient_total": 0.0, "dead_share": 1.0}
    sq = mean_sq(gradient)
    others = [dim for dim in range(gradient.dim()) if dim != channel]
    top = gradient.abs().amax(others) if others else gradient.abs()
    return {
        "out_gradient_sq": sq,
        "out_gradient_total": sq * gradient[0].numel(),
        "dead_share": float((top < TINY).double().mean()),
    }


def _roles(seen: _Pass, y: Tensor) -> dict[str, Role]:
    graph = Graph(y.grad_fn, seen.norms)
    return {path: graph.role_of(each.node) for path, each in seen.layers.items() if each.node is not None}


def _layer(seen: _Seen, role: Role | None) -> LayerSignals:
    role = role or Role()
    numbers: dict[str, Any] = seen.numbers | role.numbers
    return LayerSignals(labels=tuple(sorted(role.labels)), stream=role.stream, **numbers)


def _radial(model: nn.Module, batch: Batch, layers: Sequence[LayerSignals]) -> dict[str, float]:
    """How much the outputs change along each weight matrix that a normalisation follows; see `ParameterSignals`."""
    behind = {layer.path for layer in layers if "norm" in layer.labels}
    found = {
        name: p
        for name, p in model.named_parameters()
        if p.dim() > 1 and name.rpartition(".")[0] in behind and bool((p.detach() != 0).any())
    }
    if not found or not any(layer.normalises for layer in layers):
        return {}
    y = batch.narrow(0, FEW).outputs(model).y
    shares = dict.fromkeys(found, 0.0)
    for noise in _noise(y.detach(), NOISES):
        gradients = torch.autograd.grad(y, list(found.values()), noise, allow_unused=True, retain_graph=True)
        for (name, p), g in zip(found.items(), gradients, strict=True):
            share = math.nan if g is None else _radial_share(p.detach().double(), g.double())
            shares[name] = max(shares[name], share) if share == share else math.nan
    return shares


def _radial_share(w: Tensor, g: Tensor) -> float:
    norms = float(w.square().sum() * g.square().sum())
    return w.numel() * float((w * g).sum()) ** 2 / norms if norms > 0 else math.nan


@contextmanager
def _thawed(model: nn.Module) -> Iterator[None]:
    """Let gradients into frozen parameters: a skip connection without gradients is a skip connection all the same."""
    frozen = [p for p in model.parameters() if not p.requires_grad and p.is_floating_point()]
    try:
        for p in frozen:
            p.requires_grad_(True)
        yield
    finally:
        for p in frozen:
            p.requires_grad_(False)


def _input_sq(batch: Batch) -> float:
    tensors: Mapping[str, Any] | tuple[Any, ...] = batch.kwargs or batch.args
    values = list(tensors.values()) if isinstance(tensors, Mapping) else list(tensors)
    real = [v for v in values if isinstance(v, Tensor) and v.is_floating_point() and v.numel()]
    count = sum(v.numel() for v in real)
    return sum(mean_sq(v) * v.numel() for v in real) / count if count else math.nan


def _uses_running_statistics(module: nn.Module) -> bool:
    """Whether a batch normalisation is one of fixed numbers, and so normalises nothing."""
    is_norm = isinstance(module, nn.modules.batchnorm._BatchNorm)
    return is_norm and not module.training and module.running_mean is not None


def _is_fresh(module: nn.Module) -> bool:
    mean, variance = module.running_mean, module.running_var
    return bool((mean == 0).all() & (variance == 1).all())  # type: ignore[union-attr]
