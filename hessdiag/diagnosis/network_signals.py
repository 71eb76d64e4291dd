"""The signals of a whole network: one forward and one backward pass over some examples of a batch.

The pass has hooks of its own beside those of the measurement: it watches every module with parameters, normalisations
and embeddings too, keeps the graph whole where parameters are frozen, and asks it for roles. It goes over the examples
chunk by chunk, as many at once as fit into memory, and sums: what is found does not depend on the memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from hessdiag.data.batch import Batch
from hessdiag.derivatives.losses import Loss
from hessdiag.diagnosis.attention import peaked_attention
from hessdiag.diagnosis.chance_loss import chance_loss
from hessdiag.diagnosis.layer_sums import LayerSums, Moments
from hessdiag.diagnosis.parameter_signals import TINY, mean_sq, parameter_signals
from hessdiag.diagnosis.radial import noise, radial_shares
from hessdiag.diagnosis.roles import Graph
from hessdiag.results.signals import Signals

MAX_EXAMPLES = 64


def network_signals(
    model: nn.Module,
    batch: Batch,
    loss: Loss,
    *,
    chunk: int = MAX_EXAMPLES,
    gradients: Mapping[str, Tensor | None] | None = None,
) -> Signals:
    """Run the first examples forward and the gradient of each one's own loss backward.

    To be called where the model's state is preserved. Parameters that are frozen are differentiated during the pass.

    Args:
        model: left as it was.
        batch: inputs and targets, of which the first `MAX_EXAMPLES` are taken.
        loss: of the outputs.
        chunk: examples that are in memory at once; the numbers do not depend on it.
        gradients: of the mean loss of the whole batch in all trainable parameters, where they are at hand; None of
            those that the outputs do not depend on.
    """
    whole, batch = batch.size, batch.narrow(0, MAX_EXAMPLES)
    trainable = {name: p.requires_grad for name, p in model.named_parameters()}
    if gradients is not None and (batch.size < whole or set(gradients) != set(trainable)):
        gradients = None
    with torch.random.fork_rng(devices=[]), _thawed(model):
        sums = _Sums(model, loss, in_parameters=gradients is None).run(batch, chunk)
        sent_back = "loss"
        if not sums.moved:  # the loss has no gradient anywhere, as a quadratic one at y = 0
            sums, sent_back, gradients = _Sums(model, loss, noise=True).run(batch, chunk), "noise", None
        layers = tuple(layer.signals() for layer in sums.layers.values())
        radial = radial_shares(model, batch, layers, chunk=chunk)
    values = torch.cat(sums.values)
    like = values.new_empty(()).expand(batch.size, *sums.output_shape)
    kind, chance = chance_loss(loss, like, batch.targets)
    fixed = [m for m in model.modules() if _uses_running_statistics(m)]
    if gradients is None:
        gradients = {name: None if g is None else g / batch.size for name, g in sums.gradients.items()}
    return Signals(
        examples=batch.size,
        initial_loss=float(values.mean()),
        initial_loss_stderr=float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else 0.0,
        chance_loss=chance,
        loss_kind=kind,
        output_sq=sums.outputs.sq,
        output_variance=sums.outputs.deviation / sums.outputs.count,
        input_sq=_input_sq(batch),
        sent_back=sent_back,
        fixed_norms=len(fixed),
        fresh_norms=sum(_is_fresh(m) for m in fixed),
        layers=layers,
        parameters=parameter_signals(model, gradients, trainable, radial),
    )


@dataclass
class _Sums:
    """Sums over chunks of everything that one forward and one backward pass show.

    Attributes:
        model, loss: what is run.
        noise: whether random vectors are sent back in place of the loss's gradient.
        in_parameters: whether to differentiate in the parameters, too.
        layers: by path, in the order of their first calls.
        gradients: of the parameters, summed over the examples; None where the outputs do not depend on one.
        outputs: moments of the outputs' entries, one by one.
        values: losses of the examples, chunk by chunk.
        output_shape: of one example.
        moved: whether anything but zero was sent back.
    """

    model: nn.Module
    loss: Loss
    noise: bool = False
    in_parameters: bool = True
    layers: dict[str, LayerSums] = field(default_factory=dict)
    gradients: dict[str, Tensor | None] = field(default_factory=dict)
    outputs: Moments = field(default_factory=Moments)
    values: list[Tensor] = field(default_factory=list)
    output_shape: tuple[int, ...] = ()
    moved: bool = False

    def run(self, batch: Batch, chunk: int) -> _Sums:
        """Add a batch, some examples at a time."""
        for part in batch.chunks(max(1, chunk)):
            self._add(part)
        return self

    def _add(self, part: Batch) -> None:
        seen = _Pass(self.layers, part.size)
        y = seen.watch(self.model, part)
        flat = y.detach().double()
        self.output_shape = tuple(y.shape[1:])
        self.outputs.add(flat.reshape(-1, 1), flat.numel())
        self.values.append(self.loss.value(y.detach(), part.targets).detach().double())
        cotangent = noise(y.detach(), part) if self.noise else self.loss.gradient(y.detach(), part.targets).detach()
        self.moved = self.moved or bool((cotangent.abs() >= TINY).any())
        named = self.model.named_parameters() if self.in_parameters else ()
        parameters = {name: p for name, p in named if p.requires_grad}
        for name, gradient in zip(parameters, seen.differentiate(y, cotangent, parameters), strict=True):
            before = self.gradients.get(name)
            self.gradients[name] = gradient if before is None else before if gradient is None else before + gradient
        seen.assign_roles(y, self.model)


@dataclass
class _Call:
    """The first call of a layer in a chunk: where its gradients are to be had."""

    channel: int
    count: int  # entries of what it reads
    x_edge: GradientEdge | None
    edge: GradientEdge | None
    node: Any


@dataclass
class _Pass:
    """One forward and one backward pass over a chunk, and the sums that it is added to."""

    layers: dict[str, LayerSums]
    examples: int
    calls: dict[str, _Call] = field(default_factory=dict)
    norms: dict[Any, str] = field(default_factory=dict)  # node of what a normalisation reads -> its path
    readers: list[Tensor] = field(default_factory=list)

    def watch(self, model: nn.Module, batch: Batch) -> Tensor:
        """Run the model with every module watched that has parameters of its own, or normalises."""
        layers = {path: m for path, m in model.named_modules() if _is_layer(m)}
        owners = {path: m for path, m in layers.items() if "parametrizations." not in path}  # these normalise weights
        handles = []
        try:
            for path, module in owners.items():
                handles.append(module.register_forward_hook(_note(path, self), with_kwargs=True, prepend=True))
            return batch.outputs(model).y
        finally:
            for handle in handles:
                handle.remove()

    def note(self, path: str, module: nn.Module, x: Tensor | None, out: Tensor) -> None:
        """Add the first call of a layer; numbers at once, since what it wrote may be overwritten in place."""
        sums = self.layers.setdefault(path, LayerSums(path, type(module).__name__))
        if out.numel() == 0:  # an expert to which nothing of this chunk was sent
            self.calls[path] = _Call(0, 0, None, None, None)
            return
        channel = _channel(module, out)
        if not sums.out.count:
            sums.reads = -1 if x is None else self.number(x)
            sums.normalises = _is_norm(module) and not _uses_running_statistics(module)
        elif x is not None:
            self.number(x)
        real = x is not None and x.is_floating_point()
        sums.write(out.detach(), channel, self.examples)
        if x is not None and real:
            sums.x.add(x.detach(), self.examples)
        differentiable = out.requires_grad and out.grad_fn is not None
        self.calls[path] = _Call(
            channel,
            0 if x is None else x.numel(),
            get_gradient_edge(x) if x is not None and x.requires_grad and real else None,
            get_gradient_edge(out) if differentiable else None,
            out.grad_fn if differentiable else None,
        )

    def number(self, x: Tensor) -> int:
        """Give the same number to every layer that reads the same tensor."""
        for index, other in enumerate(self.readers):
            if other.data_ptr() == x.data_ptr() and other.numel() == x.numel():
                return index
        self.readers.append(x)
        return len(self.readers) - 1

    def differentiate(self, y: Tensor, cotangent: Tensor, parameters: Mapping[str, Tensor]) -> list[Tensor | None]:
        """Add the gradients at all layers, and return those of the parameters, summed over the examples."""
        edges = [e for call in self.calls.values() for e in (call.edge, call.x_edge) if e is not None]
        wanted: list[Any] = [*edges, *parameters.values()]
        found = iter(torch.autograd.grad(y, wanted, cotangent, allow_unused=True, retain_graph=True))
        for path, call in self.calls.items():
            gradient = next(found) if call.edge is not None else None
            self.layers[path].send_back(gradient, call.channel, self.examples)
            if call.x_edge is not None:
                self.layers[path].send_back_to_input(next(found), call.count)
        return [None if g is None else g.detach() for g in found]

    def assign_roles(self, y: Tensor, model: nn.Module) -> None:
        """Say of each layer where its output goes, and how peaked the attention there is."""
        graph = Graph(y.grad_fn, self.norms)
        for path, call in self.calls.items():
            if call.node is not None:
                self.layers[path].play(graph.role_of(call.node), self.examples)
        written = {call.node: path for path, call in self.calls.items() if call.node is not None}
        modules = [(path, model.get_submodule(path)) for path in self.calls]
        held = {id(p): path for path, m in modules for p in m._parameters.values() if p is not None and p.dim() > 1}
        for path, share in peaked_attention(graph, written, held).items():
            self.layers[path].measure({"peaked": share}, self.examples)


def _is_layer(module: nn.Module) -> bool:
    bare_norm = _is_norm(module) and not any(True for _ in module.children())
    return bare_norm or any(p is not None for p in module._parameters.values())


def _is_norm(module: nn.Module) -> bool:
    """By its name, as that of T5 or LLaMA, which are written out."""
    return "Norm" in type(module).__name__


def _note(path: str, seen: _Pass) -> Any:
    """The hook of one module."""

    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        x = args[0] if args else next(iter(kwargs.values()), None)
        out = output[0] if isinstance(output, tuple) and output else output
        x = x if isinstance(x, Tensor) else None
        if _is_norm(module) and x is not None and x.grad_fn is not None:
            seen.norms[x.grad_fn] = path
        if isinstance(out, Tensor) and out.is_floating_point() and out.dim() and path not in seen.calls:
            seen.note(path, module, x, out)

    return hook


def _channel(module: nn.Module, out: Tensor) -> int:
    """The dimension of the output that runs over units."""
    name = type(module).__name__
    first = hasattr(module, "kernel_size") or "BatchNorm" in name or "GroupNorm" in name
    return 1 if first and out.dim() > 2 else out.dim() - 1


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
