"""The signals of a network: the size of everything that runs through it on one batch, and of its weights.

They are summed during the pass over the examples in which moments are measured: hooks on every module with parameters
of its own, normalisations and embeddings too, note what it reads and writes, and one backward pass gives the gradients
there. Chunk by chunk the sums add up, so that what is found does not depend on the memory.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypedDict

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from hessdiag.data.batch import Batch
from hessdiag.derivatives.losses import CrossEntropy, Loss, MeanSquaredError
from hessdiag.derivatives.magnitude import largest_entry
from hessdiag.diagnosis.roles import Graph, Role, peaked_attention
from hessdiag.errors import HessdiagError
from hessdiag.network.blocks import stores_inputs_first
from hessdiag.network.trace import backpropagate
from hessdiag.results.signals import Gradient, LayerSignals, ParameterSignals, Signals

MAX_EXAMPLES = 64
TINY = torch.finfo(torch.float32).tiny  # denormals count as zero
FEW, NOISES = 4, 3  # examples and random vectors of `_radial_shares`: one vector alone is near 0 by chance


def network_signals(model: nn.Module, batch: Batch, loss: Loss, *, chunk: int = MAX_EXAMPLES) -> Signals:
    """Measure the signals alone, of the first `MAX_EXAMPLES`, where the model's state is preserved."""
    sums, batch = SignalSums(), batch.narrow(0, MAX_EXAMPLES)
    for part in batch.chunks(max(1, chunk)):
        with sums.watching(model, part) as seen:
            y = part.call(model)
            own = loss.gradient(y.detach(), part.targets).unsqueeze(0)
            sums.add(seen, y, backpropagate(y, seen.edges, own), own, loss)
    found, missing = sums.found(model, batch, loss, chunk=chunk)
    if found is None:
        raise HessdiagError(f"there are no signals: {missing}")
    return found


@dataclass
class Moments:
    """E[v²] of values that come in chunks, and the share of it that varies between examples.

    Deviations from the mean are summed chunk by chunk and joined by Chan, Golub & LeVeque's formula, which is precise
    also where hardly anything varies.

    >>> values = torch.tensor([[1.0], [2.0], [6.0]], dtype=torch.float64)
    >>> whole, parts = Moments.of(values, 3), Moments.of(values[:2], 2)
    >>> parts.join(Moments.of(values[2:], 1))
    >>> [round(number, 12) for number in (whole.sq, parts.sq, whole.varies * whole.sq, parts.varies * parts.sq)]
    [13.666666666667, 13.666666666667, 7.0, 7.0]
    """

    count: int = 0
    squares: float = 0.0
    rows: int = 0
    mean: Tensor | None = None  # over examples
    deviation: float = 0.0  # Σ (v − mean)²

    @classmethod
    def of(cls, values: Tensor, examples: int) -> Moments:
        """Those of some examples."""
        sq, dim = mean_sq(values), example_dim(values.shape, examples)
        rows = values.shape[dim]
        if rows == 1:
            return cls(values.numel(), sq * values.numel(), 1, values.squeeze(dim).double())
        scale = math.sqrt(sq) if 0 < sq < math.inf else 1.0
        scaled = values / scale
        mean = scaled.mean(dim, keepdim=True)  # var_mean over a first dimension takes fifty times as long
        deviation = scale * scale * float(scaled.sub_(mean).square_().sum(dtype=torch.float64))
        return cls(values.numel(), sq * values.numel(), rows, scale * mean.squeeze(dim).double(), deviation)

    def join(self, other: Moments) -> None:
        """Add those of other examples."""
        self.count += other.count
        self.squares += other.squares
        if self.mean is None or other.mean is None:
            self.mean = other.mean if self.mean is None else self.mean
            self.rows, self.deviation = self.rows + other.rows, self.deviation + other.deviation
        elif self.mean.shape != other.mean.shape:  # of a layer that sees as many positions as it likes
            self.deviation = math.nan
        else:
            apart, total = other.mean - self.mean, self.rows + other.rows
            between = mean_sq(apart) * apart.numel() * self.rows * other.rows / total
            self.deviation += other.deviation + between
            self.mean = self.mean.add(apart, alpha=other.rows / total)
            self.rows = total

    @property
    def sq(self) -> float:
        """E[v²]; NaN of nothing."""
        return self.squares / self.count if self.count else math.nan

    @property
    def varies(self) -> float:
        """Share of E[v²] that differs from one example to the other; NaN for a single one."""
        if self.count and self.sq == 0:
            return 0.0
        if self.mean is None or self.rows < 2 or not self.sq < math.inf:
            return math.nan
        return self.deviation / (self.rows - 1) / self.mean.numel() / self.sq


def example_dim(shape: torch.Size, examples: int) -> int:
    """Find the dimension that runs over the examples: the first, unless only the second can.

    Sequences that come first and are as long as there are examples cannot be told from examples; they are rare.

    >>> example_dim(torch.Size([6, 3, 8]), 6), example_dim(torch.Size([5, 6, 8]), 6)  # sequences first
    (0, 1)
    """
    first = shape[0] % examples == 0 if examples > 1 else shape[0] == 1
    return 1 if not first and len(shape) > 2 and shape[1] == examples else 0


def mean_sq(values: Tensor) -> float:
    """E[v²] in Python's numbers, which do not overflow where those of the tensor would.

    >>> mean_sq(torch.tensor([3e30, 4e30]))  # doctest: +ELLIPSIS
    1.25...e+61
    """
    top = largest_entry(values)
    return float((values.detach() / top).square().mean()) * top * top if 0 < top < math.inf else top


@dataclass
class LayerSums:
    """All sums of one layer; in a pass over a chunk, also where its gradients are to be had."""

    path: str
    kind: str
    reads: int = -1
    normalises: bool = False
    samples: int = 0
    x: Moments = field(default_factory=Moments)
    out: Moments = field(default_factory=Moments)
    written: Tensor | None = None  # the largest output of each unit
    back: Tensor | None = None  # the largest gradient of each unit
    gradient: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])  # Σ Δ², elements, examples
    x_gradient: list[float] = field(default_factory=lambda: [0.0, 0.0])
    role: Role | None = None
    behind: dict[str, list[float]] = field(default_factory=dict)  # of what is behind it: sum, examples
    channel: int = 0
    x_edge: GradientEdge | None = None
    edge: GradientEdge | None = None

    def measure(self, numbers: Mapping[str, float], examples: int) -> None:
        """Add shares, and roots of mean squares, of what is behind it."""
        for key, value in numbers.items():
            row = self.behind.setdefault(key, [0.0, 0.0])
            row[0] += examples * (value**2 if key.endswith("_rms") else value)
            row[1] += examples

    def send_back(self, gradient: Tensor | None, x_gradient: Tensor | None, examples: int) -> None:
        """Add the gradients of some examples where it writes and where it reads; None where there is no way to it."""
        if gradient is not None:
            self.gradient = [mean_sq(gradient) * gradient.numel(), gradient.numel(), examples]
            self.back = _top(gradient.abs(), self.channel)
        if self.x_edge is not None:
            squares = 0.0 if x_gradient is None else mean_sq(x_gradient) * self.x.count
            self.x_gradient = [squares, self.x.count]

    def join(self, other: LayerSums) -> None:
        """Add those of other examples."""
        if not self.out.count:
            self.reads, self.normalises = other.reads, other.normalises
        self.samples += other.samples
        self.x.join(other.x)
        self.out.join(other.out)
        self.written = _larger(self.written, other.written)
        self.back = _larger(self.back, other.back)
        self.gradient = [old + new for old, new in zip(self.gradient, other.gradient, strict=True)]
        self.x_gradient = [old + new for old, new in zip(self.x_gradient, other.x_gradient, strict=True)]
        self.role = self.role or other.role
        for key, (total, examples) in other.behind.items():
            row = self.behind.setdefault(key, [0.0, 0.0])
            row[0], row[1] = row[0] + total, row[1] + examples

    def signals(self) -> LayerSignals:
        """The numbers in the end."""
        role = self.role or Role()
        if not self.out.count:  # an expert to which nothing of this batch was sent
            return LayerSignals(path=self.path, kind=self.kind)
        numbers: dict[str, Any] = {key: total / weight for key, (total, weight) in self.behind.items()}
        numbers = {key: math.sqrt(v) if key.endswith("_rms") else v for key, v in numbers.items()}
        squares, count, examples = self.gradient
        return LayerSignals(
            path=self.path,
            kind=self.kind,
            labels=tuple(sorted(role.labels)),
            stream=role.stream,
            reads=self.reads,
            normalises=self.normalises,
            samples=self.samples,
            x_sq=self.x.sq,
            x_varies=self.x.varies,
            out_sq=self.out.sq,
            out_varies=self.out.varies,
            x_gradient_sq=self.x_gradient[0] / self.x_gradient[1] if self.x_gradient[1] else math.nan,
            out_gradient_sq=squares / count if count else 0.0,
            out_gradient_total=squares / examples if examples else 0.0,
            off_share=0.0 if self.written is None else float((self.written <= 0).double().mean()),
            dead_share=1.0 if self.back is None else float((self.back < TINY).double().mean()),
            **numbers,
        )


def _top(values: Tensor, channel: int) -> Tensor:
    """The largest value of each unit."""
    others = [dim for dim in range(values.dim()) if dim != channel]
    return values.amax(others) if others else values


def _larger(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    if one is None or other is None:
        return other if one is None else one
    return torch.maximum(one, other)


class SignalPass:
    """What the hooks note of one forward pass: sums of its layers, and places to differentiate at."""

    def __init__(self, model: nn.Module, part: Batch) -> None:
        self.model, self.part = model, part
        self.layers: dict[str, LayerSums] = {}
        self.norms: dict[Any, str] = {}  # node of what a normalisation reads -> its path
        self.entered: dict[str, Tensor | None] = {}
        self.readers: list[Tensor] = []
        self.parameters = {name: p for name, p in model.named_parameters() if p.is_floating_point()}

    @property
    def edges(self) -> list[GradientEdge]:
        """Where gradients are wanted: in what layers write and read, then in the parameters."""
        around = [e for layer in self.layers.values() for e in (layer.edge, layer.x_edge) if e is not None]
        return [*around, *map(get_gradient_edge, self.parameters.values())]

    def enter(self, path: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note what a module reads, before anything else hands it an alias of that."""
        x = args[0] if args else next(iter(kwargs.values()), None)
        x = x if isinstance(x, Tensor) else None
        self.entered[path] = x
        if _is_norm(module) and x is not None and x.grad_fn is not None:
            self.norms[x.grad_fn] = path

    def note(self, path: str, module: nn.Module, output: Any) -> None:
        """Measure the first call of a layer; at once, since what it wrote may be overwritten in place."""
        out, x = output[0] if isinstance(output, tuple) and output else output, self.entered.get(path)
        if not isinstance(out, Tensor) or not out.is_floating_point() or not out.dim() or path in self.layers:
            return
        sums = self.layers[path] = LayerSums(path, type(module).__name__)
        if out.numel() == 0:  # an expert to which nothing of this chunk was sent
            return
        sums.reads = -1 if x is None else self._number(x)
        sums.normalises = _is_norm(module) and not _uses_running_statistics(module)
        sums.channel = _channel(module, out)
        sums.out, sums.written = Moments.of(out.detach(), self.part.size), _top(out.detach(), sums.channel)
        sums.samples = out.numel() // max(out.shape[sums.channel], 1)
        if x is not None and x.is_floating_point():
            sums.x = Moments.of(x.detach(), self.part.size)
            sums.x_edge = get_gradient_edge(x) if x.requires_grad else None
        sums.edge = get_gradient_edge(out) if out.requires_grad and out.grad_fn is not None else None

    def _number(self, x: Tensor) -> int:
        """Give the same number to every layer that reads the same tensor."""
        for index, other in enumerate(self.readers):
            if other.data_ptr() == x.data_ptr() and other.numel() == x.numel():
                return index
        self.readers.append(x)
        return len(self.readers) - 1

    def assign_roles(self, y: Tensor) -> None:
        """Say of each layer where its output goes, and how peaked the attention there is."""
        graph = Graph(y.grad_fn, self.norms)
        written = {layer.edge.node: path for path, layer in self.layers.items() if layer.edge is not None}
        for node, path in written.items():
            role = graph.role_of(node)
            self.layers[path].role = role
            self.layers[path].measure(role.numbers, self.part.size)
        modules = [(path, self.model.get_submodule(path)) for path in self.layers]
        held = {id(p): path for path, m in modules for p in m._parameters.values() if p is not None and p.dim() > 1}
        for path, share in peaked_attention(graph, written, held).items():
            self.layers[path].measure({"peaked": share}, self.part.size)


@dataclass
class SignalSums:
    """Sums over chunks of everything that one forward and one backward pass show.

    Attributes:
        layers: by path, in the order of their first calls.
        gradients: of the parameters, summed over the examples; None where the outputs do not depend on one.
        outputs: moments of the outputs' entries, one by one.
        values: losses of the examples, chunk by chunk.
        output_shape: of one example.
        sent_back: what gradients are of: the loss, or noise where the loss has none on the first chunk.
        trainable: whether each parameter is to learn.
        missing: why there are no signals, if there are none: what goes wrong here costs the measurement nothing.
    """

    layers: dict[str, LayerSums] = field(default_factory=dict)
    gradients: dict[str, Tensor | None] = field(default_factory=dict)
    outputs: Moments = field(default_factory=Moments)
    values: list[Tensor] = field(default_factory=list)
    output_shape: tuple[int, ...] = ()
    sent_back: str = ""
    trainable: dict[str, bool] = field(default_factory=dict)
    missing: str = ""

    @contextmanager
    def watching(self, model: nn.Module, part: Batch) -> Iterator[SignalPass]:
        """Watch every module that has parameters of its own, or normalises; gradients flow into frozen ones, too.

        A skip connection without gradients is a skip connection all the same.
        """
        frozen = [p for p in model.parameters() if not p.requires_grad and p.is_floating_point()]
        self.trainable = self.trainable or {name: p.requires_grad for name, p in model.named_parameters()}
        seen = SignalPass(model, part)
        handles = []
        try:
            for p in frozen:
                p.requires_grad_(True)
            for path, module in model.named_modules():
                if _is_layer(module) and "parametrizations." not in path:  # these normalise weights
                    before, after = self._hooks(path, seen)
                    handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
                    handles.append(module.register_forward_hook(after, with_kwargs=True, prepend=True))
            yield seen
        finally:
            for p in frozen:
                p.requires_grad_(False)
            for handle in handles:
                handle.remove()

    def _hooks(self, path: str, seen: SignalPass) -> tuple[Any, Any]:
        def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            with self._telling():
                seen.enter(path, module, args, kwargs)

        def after(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            with self._telling():
                seen.note(path, module, output)

        return before, after

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Note why there are no signals, of a model that may do anything in its forward pass."""
        try:
            yield
        except Exception as error:
            self.missing = self.missing or " ".join(f"{type(error).__name__}: {error}".split())[:200]

    def add(self, seen: SignalPass, y: Tensor, gradients: Sequence[Tensor | None], own: Tensor, loss: Loss) -> None:
        """Add a pass.

        Args:
            seen: what was noted.
            y: outputs (B, *out), whose graph is alive.
            gradients: (1, *shape) at `seen.edges`, of the cotangent `own` (1, B, *out).
            own: the gradients of the examples' losses.
            loss: of the outputs.
        """
        with self._telling():
            part, flat = seen.part, y.detach().double()
            if not self.sent_back:
                self.sent_back = "loss" if bool((own.abs() >= TINY).any()) else "noise"
            if self.sent_back == "noise":  # the loss has no gradient anywhere, as a quadratic one at y = 0
                gradients = backpropagate(y, seen.edges, _noise(y.detach(), part).unsqueeze(0))
            found = iter([None if g is None else g[0].detach() for g in gradients])
            for layer in seen.layers.values():
                at_output = next(found) if layer.edge is not None else None
                layer.send_back(at_output, next(found) if layer.x_edge is not None else None, part.size)
            seen.assign_roles(y)
            for path, layer in seen.layers.items():
                self.layers.setdefault(path, LayerSums(path, layer.kind)).join(layer)
            for name, gradient in zip(seen.parameters, found, strict=True):
                before = self.gradients.get(name)
                self.gradients[name] = gradient if before is None else before if gradient is None else before + gradient
            self.outputs.join(Moments.of(flat.reshape(-1, 1), flat.numel()))
            self.values.append(loss.value(y.detach(), part.targets).detach().double())
            self.output_shape = tuple(y.shape[1:])

    def found(self, model: nn.Module, batch: Batch, loss: Loss, *, chunk: int) -> tuple[Signals | None, str]:
        """The signals in the end, or why there are none.

        Args:
            model: as it was watched.
            batch: all examples that were added.
            loss: of the outputs.
            chunk: examples that are in memory at once.
        """
        if not self.missing:
            with self._telling():
                return self._signals(model, batch, loss, chunk), ""
        return None, self.missing

    def _signals(self, model: nn.Module, batch: Batch, loss: Loss, chunk: int) -> Signals:
        layers = tuple(layer.signals() for layer in self.layers.values())
        radial = _radial_shares(model, batch, layers, chunk=chunk)
        values = torch.cat(self.values)
        like = values.new_empty(()).expand(batch.size, *self.output_shape)
        kind, chance = chance_loss(loss, like, batch.targets)
        fixed = [m for m in model.modules() if _uses_running_statistics(m)]
        gradients = {name: None if g is None else g / batch.size for name, g in self.gradients.items()}
        return Signals(
            examples=batch.size,
            initial_loss=float(values.mean()),
            initial_loss_stderr=float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else 0.0,
            chance_loss=chance,
            loss_kind=kind,
            output_sq=self.outputs.sq,
            output_variance=self.outputs.deviation / self.outputs.count,
            input_sq=_input_sq(batch),
            sent_back=self.sent_back,
            fixed_norms=len(fixed),
            fresh_norms=sum(map(_is_fresh, fixed)),
            layers=layers,
            parameters=parameter_signals(model, gradients, self.trainable, radial),
        )


def _is_layer(module: nn.Module) -> bool:
    bare_norm = _is_norm(module) and not any(True for _ in module.children())
    return bare_norm or any(p is not None for p in module._parameters.values())


def _is_norm(module: nn.Module) -> bool:
    """By its name, as that of T5 or LLaMA, which are written out."""
    return "Norm" in type(module).__name__


def _channel(module: nn.Module, out: Tensor) -> int:
    """The dimension of the output that runs over units."""
    name = type(module).__name__
    first = hasattr(module, "kernel_size") or "BatchNorm" in name or "GroupNorm" in name
    return 1 if first and out.dim() > 2 else out.dim() - 1


def _uses_running_statistics(module: nn.Module) -> bool:
    """Whether a batch normalisation is one of fixed numbers, and so normalises nothing."""
    is_norm = isinstance(module, nn.modules.batchnorm._BatchNorm)
    return is_norm and not module.training and module.running_mean is not None


def _is_fresh(module: nn.Module) -> bool:
    mean, variance = module.running_mean, module.running_var
    return bool((mean == 0).all() & (variance == 1).all())  # type: ignore[union-attr]


def _input_sq(batch: Batch) -> float:
    real = [v for v in batch.tensors if v.is_floating_point() and v.numel()]
    count = sum(v.numel() for v in real)
    return sum(mean_sq(v) * v.numel() for v in real) / count if count else math.nan


def _radial_shares(model: nn.Module, batch: Batch, layers: Sequence[LayerSignals], *, chunk: int) -> dict[str, float]:
    """Measure how much the outputs change along each weight matrix that a normalisation follows, by name."""
    behind = {layer.path for layer in layers if "norm" in layer.labels}
    weights = {
        name: p
        for name, p in model.named_parameters()
        if p.dim() > 1 and p.requires_grad and name.rpartition(".")[0] in behind and bool((p.detach() != 0).any())
    }
    if not weights or not any(layer.normalises for layer in layers):
        return {}
    parts = list(batch.narrow(0, FEW).chunks(max(1, chunk)))
    kept = parts[0].call(model) if len(parts) == 1 else None
    shares = dict.fromkeys(weights, 0.0)
    for number in range(1, NOISES + 1):
        sums: dict[str, Tensor] = {}
        for part in parts:
            y = part.call(model) if kept is None else kept
            sent = _noise(y.detach(), part, number).unsqueeze(0)
            found = backpropagate(y, [get_gradient_edge(p) for p in weights.values()], sent)
            for name, gradient in zip(weights, found, strict=True):
                if gradient is not None:
                    sums[name] = sums[name] + gradient[0] if name in sums else gradient[0]
        for name, p in weights.items():
            share = _radial_share(p.detach().double(), sums[name].double()) if name in sums else math.nan
            shares[name] = max(shares[name], share) if share == share else math.nan
    return shares


def _radial_share(w: Tensor, g: Tensor) -> float:
    norms = float(w.square().sum() * g.square().sum())
    return w.numel() * float((w * g).sum()) ** 2 / norms if norms > 0 else math.nan


def _noise(y: Tensor, batch: Batch, number: int = 0) -> Tensor:
    """Draw normal numbers like the outputs (B, *out) of a batch; an example's are the same in whatever batch it is."""
    rows = []
    for example in batch.numbers:
        generator = torch.Generator().manual_seed(example * (NOISES + 1) + number)
        rows.append(torch.randn(y.shape[1:], generator=generator))
    return torch.stack(rows).to(y)


def chance_loss(loss: Loss, y: Tensor, targets: Tensor | None) -> tuple[str, float]:
    """Kind of the loss and the loss of a constant guess; NaN where none is known.

    Each label is guessed from the counts of all *others*, plus one: the frequencies themselves would know a few labels
    of many classes far too well.

    Args:
        loss: of the network.
        y: outputs (B, *out).
        targets: of the same examples.

    >>> kind, chance = chance_loss(CrossEntropy(), torch.zeros(2, 2), torch.tensor([0, 1]))
    >>> kind, round(chance, 4)  # no better than ln 2
    ('cross-entropy', 0.6931)
    """
    if targets is None:
        return "other", math.nan
    if isinstance(loss, MeanSquaredError):
        return "mse", _of_values(targets.detach().double())
    plain = type(loss) is CrossEntropy and not loss.label_smoothing and loss.weight is None and loss.divisor is None
    if not plain:
        return "other", math.nan
    assert isinstance(loss, CrossEntropy)
    classes = y.shape[loss.class_dim]
    if targets.shape == y.shape:
        return "cross-entropy", _of_probabilities(targets.detach().movedim(loss.class_dim, -1).flatten(0, -2).double())
    labels = targets.detach().flatten()
    return "cross-entropy", _of_labels(labels[labels != loss.ignore_index].cpu(), classes)


def _of_labels(labels: Tensor, classes: int) -> float:
    if not len(labels):
        return math.nan
    counts = torch.bincount(labels, minlength=classes).double()
    guess = counts[labels] / (len(labels) - 1 + classes)  # its own count out, one for every class in
    return min(math.log(classes), float(-guess.log().mean()))


def _of_probabilities(rows: Tensor) -> float:
    count, classes = rows.shape
    guess = (rows.sum(0) - rows + 1) / (count - 1 + classes)
    return min(math.log(classes), float(-(rows * guess.log()).sum(1).mean()))


def _of_values(targets: Tensor) -> float:
    """Zero, the mean of all, or each output's mean over the others, whichever is best."""
    count = len(targets)
    own = float(targets.var(0).mean()) * count / (count - 1) if count > 1 else math.inf
    overall = float(targets.var()) if targets.numel() > 1 else math.inf
    return min(float(targets.square().mean()), overall, own)


def parameter_signals(
    model: nn.Module,
    gradients: Mapping[str, Tensor | None],
    trainable: Mapping[str, bool],
    radial: Mapping[str, float],
) -> tuple[ParameterSignals, ...]:
    """Describe every floating-point parameter.

    Args:
        model: whose parameters.
        gradients: of the batch's mean loss, by name; None where the outputs do not depend on it.
        trainable: whether it is to learn, by name.
        radial: see `ParameterSignals`, for the names where it was measured.
    """
    places: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for path, module in model.named_modules():
        for attribute, parameter in module._parameters.items():
            if parameter is not None:
                places[id(parameter)].append((path, attribute))
    rows = []
    for name, parameter in model.named_parameters():
        if not parameter.is_floating_point():
            continue
        slots = places[id(parameter)]
        module, w = model.get_submodule(slots[0][0]), parameter.detach()
        gradient = gradients.get(name)
        rows.append(
            ParameterSignals(
                name=name,
                owners=tuple(path for path, _ in slots),
                attribute=slots[0][1],
                kind=type(module).__name__,
                shape=tuple(w.shape),
                numel=w.numel(),
                trainable=trainable[name],
                gradient=_state(gradient),
                gradient_sq=0.0 if gradient is None else mean_sq(gradient),
                radial=radial.get(name, math.nan),
                **_statistics(w),
                **_fans(module, w),
            )
        )
    return tuple(rows)


def _state(gradient: Tensor | None) -> Gradient:
    if gradient is None:
        return "none"
    return "zero" if largest_entry(gradient) < TINY else "some"


class _Statistics(TypedDict):
    weight_sq: float
    mean: float
    unlike: float
    kurtosis: float
    largest: float
    zeros: float


def _statistics(w: Tensor) -> _Statistics:
    """Moments of the entries over the largest of them, so that none over- or underflows."""
    top = largest_entry(w)
    if not 0 < top < math.inf:
        return {"weight_sq": top, "mean": 0.0, "unlike": 1.0, "kurtosis": math.nan, "largest": 0.0, "zeros": 1.0}
    scaled = w / top
    sq, mean = float(scaled.square().mean()), float(scaled.mean())
    squares = (scaled - mean).square_()
    variance = float(squares.mean())
    several = w.dim() > 0 and len(w) > 1
    return {
        "weight_sq": sq * top * top,
        "mean": mean * top,
        "unlike": float((scaled - scaled.mean(0)).square_().mean()) / sq if several else 1.0,
        "kurtosis": float(squares.square_().mean()) / variance**2 if variance > 1e-15 * sq else math.nan,
        "largest": 1 / math.sqrt(sq),
        "zeros": float((w == 0).to(w.dtype).mean()),
    }


class _Fans(TypedDict, total=False):
    fan_in: int
    fan_out: int
    kernel: int
    groups: int
    parts: tuple[float, ...]


def _fans(module: nn.Module, w: Tensor) -> _Fans:
    """Channels that a unit reads and an input reaches, and the parts of a fused tensor."""
    if w.dim() < 2:
        return {}
    groups = int(getattr(module, "groups", 1))
    inputs_first = stores_inputs_first(module)
    n, m = (w.shape[0] // groups, w.shape[1]) if inputs_first else (w.shape[1], w.shape[0] // groups)
    units = 1 if inputs_first and w.dim() == 2 else 0  # dimension of the outputs
    parts = 4 if isinstance(module, nn.LSTM) else 3 if isinstance(module, nn.GRU) else 1
    if w.dim() == 2 and parts == 1 and w.shape[units] == 3 * w.shape[1 - units]:
        parts = 3  # query, key and value
    pieces = w.chunk(parts, units) if parts > 1 else ()
    return {
        "fan_in": n,
        "fan_out": m,
        "kernel": math.prod(w.shape[2:]),
        "groups": groups,
        "parts": tuple(mean_sq(piece) for piece in pieces),
    }
