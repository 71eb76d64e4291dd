"""Losses as the curvature sees them: value and gradient per example, and products with the Hessian in the outputs.

Every method works on outputs `y` of shape (B, *out) whose first dimension runs over examples, and treats each on its
own. A loss gives its value; gradient and Hessian follow by autograd, or in closed form for the built-in ones.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hessdiag.arguments import is_finite, one_line
from hessdiag.data.batch import IGNORED, Form, Layout, mapped
from hessdiag.data.seeds import Noise, stream, user_code
from hessdiag.derivatives.targets import check_values, class_dimension, cut_short, is_like_outputs, required
from hessdiag.errors import REFUSALS, CoupledError, HessdiagError
from hessdiag.network.torch_state import seeded_rng
from hessdiag.network.trace import first_broken, leaves_of, numbers_written

LossFunction = Callable[[Tensor, Tensor | None], Tensor]

MAX_OUTPUTS = 2**14  # of a random quadratic: 2 GiB
EXAMPLES_TRIED, NUMBERS_TRIED = 64, 2**22  # examples and outputs on which a function is tried, at most
HOW = "write a function of these two that returns a scalar; of a model's output object pick the tensor with output=..."
NEARLY = 1e-5  # rounding
SAME = {torch.float32: 1e-3, torch.float64: 1e-8}  # of the loss of a batch and the mean of its examples'


def unit_cotangents(y: Tensor) -> Tensor:
    """The N basis vectors of an example's outputs for every example, (N, B, *out)."""
    count = math.prod(y.shape[1:])
    return torch.eye(count, dtype=y.dtype, device=y.device).view(count, 1, *y.shape[1:]).expand(count, *y.shape)


class Loss:
    """A loss of each example's outputs: (B, *out) in, one value an example out."""

    name: str  # as shown in tables and files
    has_root = False  # whether S = A Aᵀ is known in closed form, with S the Hessian of an example's loss in its outputs
    couples = False  # whether the loss of a batch compares its examples, of which none has a loss of its own then
    held: tuple[str, ...] = ()  # weights of the model that it reads beside the outputs

    def of_batch(self, targets: Tensor | None, like: Tensor) -> Loss:
        """The same for a batch with these targets: what the batch's mean divides by depends on them all."""
        return self

    def check_targets(self, targets: Tensor | None, like: Tensor) -> None:
        """Refuse targets of a later batch that do not fit outputs `like` these, of any number of examples."""

    def of_all(self, y: Tensor, targets: Tensor | None) -> Tensor:
        """What the loss's author gets for all examples together, a scalar."""
        return self.value(y, targets).mean()

    def at_once(self, y: Tensor, targets: Tensor | None) -> Loss:
        """The same, called with all examples of a batch where it is the mean of theirs."""
        return self

    def value(self, y: Tensor, targets: Tensor | None) -> Tensor:
        """Loss of each example, shape (B,)."""
        raise NotImplementedError

    def gradient(self, y: Tensor, targets: Tensor | None) -> Tensor:
        """Gradient of each example's loss in its own outputs, shape (B, *out)."""
        return Loss._gradient(self, y, targets)[1].detach()

    def hessian_product(self, y: Tensor, targets: Tensor | None, v: Tensor) -> Tensor:
        """S v; `v` and the result are (B, *out)."""
        return self.hessian_products(y, targets, v.unsqueeze(0))[0]

    def hessian_products(self, y: Tensor, targets: Tensor | None, z: Tensor) -> Tensor:
        """S v of several v, (q, B, *out), by reverse mode twice."""
        at, gradient = self._gradient(y, targets)
        if not gradient.requires_grad:  # a linear loss
            return torch.zeros_like(z)
        found = [torch.autograd.grad(gradient, at, v, retain_graph=True, materialize_grads=True)[0] for v in z]
        return torch.stack(found)

    def hessian_matrix(self, y: Tensor, targets: Tensor | None) -> Tensor:
        """S as a matrix over an example's flattened outputs, shape (B, N, N)."""
        return self.hessian_products(y, targets, unit_cotangents(y)).flatten(2).permute(1, 2, 0)

    def root_products(self, y: Tensor, targets: Tensor | None, z: Tensor) -> Tensor:
        """A v of several v, (q, B, *out); only where `has_root`."""
        raise TypeError(f"the Hessian of {self.name} has no root in closed form")

    root_transposed_product = root_products  # Aᵀ z, of `z`'s shape; likewise

    def _gradient(self, y: Tensor, targets: Tensor | None) -> tuple[Tensor, Tensor]:
        """Where the outputs are, and the gradient there with its graph."""
        with torch.enable_grad():
            at = y.detach().clone().requires_grad_()
            if not (value := self.value(at, targets).sum()).requires_grad:
                return at, torch.zeros_like(at)
            (gradient,) = torch.autograd.grad(value, at, create_graph=True, materialize_grads=True)
        return at, gradient


class MeanLoss(Loss):
    """The mean of a loss over a batch that counts as one example: outputs (1, B, *out)."""

    def __init__(self, loss: Loss) -> None:
        self.loss, self.name, self.has_root, self.held = loss, loss.name, loss.has_root, loss.held

    def of_batch(self, targets: Tensor | None, like: Tensor) -> Loss:
        return MeanLoss(self.loss.of_batch(targets, like[0]))

    def check_targets(self, targets: Tensor | None, like: Tensor) -> None:
        self.loss.check_targets(targets, like[0])

    def value(self, y: Tensor, targets: Tensor | None) -> Tensor:
        return self.loss.of_all(y[0], targets).unsqueeze(0)

    def gradient(self, y: Tensor, targets: Tensor | None) -> Tensor:
        return self.loss.gradient(y[0], targets).unsqueeze(0) / y.shape[1]

    def hessian_products(self, y: Tensor, targets: Tensor | None, z: Tensor) -> Tensor:
        return self.loss.hessian_products(y[0], targets, z[:, 0]).unsqueeze(1) / y.shape[1]

    def root_products(self, y: Tensor, targets: Tensor | None, z: Tensor) -> Tensor:
        return self.loss.root_products(y[0], targets, z[:, 0]).unsqueeze(1) / math.sqrt(y.shape[1])


class RandomQuadratic(Loss):
    """yᵀRy with the entries of R drawn from N(0, 1) (Section 5.1 of arXiv 1906.04267): the paper's random loss.

    Its Hessian R + Rᵀ is indefinite. R is drawn in float64 on the CPU, so that a seed means the same loss everywhere.

    >>> loss = RandomQuadratic(R=torch.tensor([[1.0, 2.0], [0.0, 3.0]]))
    >>> loss.value(torch.tensor([[1.0, 1.0]]), None)
    tensor([6.])
    >>> loss.gradient(torch.tensor([[1.0, 1.0]]), None)
    tensor([[4., 8.]])
    """

    name = "random-quadratic"

    def __init__(self, R: Tensor) -> None:
        self.R = R
        self.S = R + R.T  # (N, N)

    @classmethod
    def draw(cls, outputs: int, *, seed: int, like: Tensor) -> RandomQuadratic:
        """R for a network with `outputs` outputs per example, with the device and dtype of `like`."""
        if outputs > MAX_OUTPUTS:
            message = f"loss 'random-quadratic' needs a matrix of {outputs} x {outputs} numbers for this network's"
            raise HessdiagError(f"{message} outputs: use loss 'cross-entropy' or 'mse'")
        return cls(torch.randn(outputs, outputs, generator=stream(seed, "loss"), dtype=torch.float64).to(like))

    def value(self, y: Tensor, targets: Tensor | None) -> Tensor:
        flat = y.flatten(1)  # (B, N)
        return ((flat @ self.R) * flat).sum(dim=1)

    def hessian_products(self, y: Tensor, targets: Tensor | None, z: Tensor) -> Tensor:
        return (z.flatten(2) @ self.S).view_as(z)


class MeanSquaredError(Loss):
    """(y − t)² averaged over an example's outputs, so that the mean over a batch is torch's `mse_loss`. Written out,
    because `F.mse_loss` fails under forward over reverse mode (pytorch#123996).
    """

    name = "mse"
    has_root = True

    def check_targets(self, targets: Tensor | None, like: Tensor) -> None:
        check_values(like, required(self.name, targets))

    def value(self, y: Tensor, targets: Tensor | None) -> Tensor:
        t = required(self.name, targets).to(y.dtype).reshape(y.shape)  # (B,) for one output (B, 1) too
        return (y - t).square().flatten(1).mean(dim=1)

    def hessian_products(self, y: Tensor, targets: Tensor | None, z: Tensor) -> Tensor:
        return z * (2 / y[0].numel())

    def root_products(self, y: Tensor, targets: Tensor | None, z: Tensor) -> Tensor:
        return z * math.sqrt(2 / y[0].numel())

    root_transposed_product = root_products  # A is a multiple of the identity


class CrossEntropy(Loss):
    """Log-softmax cross-entropy −Σ_c τ_c log p_c, averaged over an example's further positions.

    Targets are class indices (B, *positions), where `ignore_index` is left out as in torch, or one-hot integers or
    probabilities of y's shape. τ are these, smoothed and weighted as `nn.CrossEntropyLoss` has it. In here logits, p
    and τ are (B, *positions, C). At every position S = s (diag(p) − p pᵀ) with s = Σ_c τ_c over the divisor of the sum.

    Args:
        class_dim: dimension of the classes: 1 as in torch, or -1 for sequences (B, T, V).
        weight: of each class, (C,); an example's sum is divided by the weights of its indices.
        label_smoothing: share of the uniform distribution in the targets.
        ignore_index: class index of positions that are left out.
        reduction: `"mean"` or `"sum"` over positions.
        joint: whether these are those of a whole batch, see `of_batch`, or of each example.
        name: as shown in tables and files.
    """

    has_root = True

    def __init__(
        self, class_dim: int = 1, *, weight: Tensor | None = None, label_smoothing: float = 0.0,
        ignore_index: int = IGNORED, reduction: str = "mean", joint: bool = False, name: str = "cross-entropy",
    ) -> None:  # fmt: skip
        self.class_dim, self.weight, self.label_smoothing = class_dim, weight, label_smoothing
        self.ignore_index, self.reduction, self.joint, self.name = ignore_index, reduction, joint, name
        self.divisor = None if reduction == "mean" else 1.0

    def of_batch(self, targets: Tensor | None, like: Tensor) -> CrossEntropy:
        """With the divisor of the batch, so that the mean over its examples is torch's loss of them all."""
        if not self.joint or self.reduction == "none" or targets is None:
            return self
        counts = self.divisors(like[:1].expand(len(targets), *like.shape[1:]), targets)
        bound = copy.copy(self)
        bound.divisor = 1 / len(targets) if self.reduction == "sum" else float(counts.mean()) or 1.0
        return bound

    def check_targets(self, targets: Tensor | None, like: Tensor) -> None:
        class_dimension(like, required(self.name, targets), asked=self.class_dim, ignore_index=self.ignore_index)

    def of_all(self, y: Tensor, targets: Tensor | None) -> Tensor:
        joint = copy.copy(self)
        joint.joint = True
        return joint.of_batch(targets, y).value(y, targets).mean()

    def value(self, y: Tensor, targets: Tensor | None) -> Tensor:
        log_p = F.log_softmax(self._classes_last(y, y), dim=-1)
        targets = required(self.name, targets)
        return -(self._tau(y, targets) * log_p).flatten(1).sum(dim=1) * self._shares(y, targets)

    def hessian_products(self, y: Tensor, targets: Tensor | None, z: Tensor) -> Tensor:
        p, s = self._softmax(y, targets)
        return self._projected(y, p * s, p, z)

    def root_products(self, y: Tensor, targets: Tensor | None, z: Tensor) -> Tensor:
        """√s (√p∘v − p (√p·v)) at every position, of several v."""
        p, s = self._softmax(y, targets)
        return self._projected(y, (p * s).sqrt(), p, z)

    def root_transposed_product(self, y: Tensor, targets: Tensor | None, z: Tensor) -> Tensor:
        """√s √p∘(v − p·v) at every position."""
        (p, s), v = self._softmax(y, targets), self._classes_last(z, y)
        return ((p * s).sqrt() * (v - (p * v).sum(dim=-1, keepdim=True))).movedim(-1, self.class_dim)

    def divisors(self, y: Tensor, targets: Tensor) -> Tensor:
        """What torch's mean divides the sum over each example's positions by, (B,): positions, or their weights."""
        if is_like_outputs(y, targets):
            return y.new_full((len(targets),), y[0].numel() // y.shape[self.class_dim])
        return self._counted(y, targets).reshape(len(targets), -1).sum(dim=1)

    def _classes_last(self, values: Tensor, y: Tensor) -> Tensor:
        """A view of values like `y`, or of several like it, with the classes in the last dimension."""
        return values.movedim(self.class_dim % y.dim() - y.dim(), -1)

    def _softmax(self, y: Tensor, targets: Tensor | None) -> tuple[Tensor, Tensor]:
        targets = required(self.name, targets)
        tau = self._tau(y, targets)
        s = tau.sum(dim=-1, keepdim=True) * self._shares(y, targets, tau.dim())
        return F.softmax(self._classes_last(y, y), dim=-1), s

    def _projected(self, y: Tensor, factor: Tensor, p: Tensor, z: Tensor) -> Tensor:
        """f∘v − p Σ f∘v of several v, one after the other: all at once do not fit a cache."""
        found = torch.empty_like(z)
        for v, each in zip(self._classes_last(z, y), self._classes_last(found, y), strict=True):
            torch.mul(factor, v, out=each)
            each.addcmul_(p, each.sum(dim=-1, keepdim=True), value=-1)
        return found

    def _tau(self, y: Tensor, targets: Tensor) -> Tensor:
        classes = y.shape[self.class_dim]
        if is_like_outputs(y, targets):
            tau, kept = self._classes_last(targets, y).to(y.dtype), torch.ones((), device=y.device)
        else:
            kept = (targets != self.ignore_index).unsqueeze(-1)
            tau = (kept & (targets.unsqueeze(-1) == torch.arange(classes, device=y.device))).to(y.dtype)
        if self.label_smoothing:
            tau = (1 - self.label_smoothing) * tau + self.label_smoothing / classes * kept.to(y.dtype)
        return tau if self.weight is None else tau * self.weight.to(y)

    def _counted(self, y: Tensor, targets: Tensor) -> Tensor:
        """What each position of class indices counts, like `targets`: the weight of its class, or 1; 0 if left out."""
        kept = targets != self.ignore_index
        if self.weight is None:
            return kept.to(y.dtype)
        return kept * self.weight.to(y)[torch.where(kept, targets, 0).long()]

    def _shares(self, y: Tensor, targets: Tensor, dims: int = 1) -> Tensor:
        """One over what each example's sum is divided by, (B, 1, ...) of so many dimensions."""
        shape = (len(y), *[1] * (dims - 1))
        if self.divisor is not None:
            return y.new_full(shape, 1 / self.divisor)
        number = self.divisors(y, targets).view(shape)
        return 1 / torch.where(number > 0, number, 1)


@dataclass(frozen=True)
class Reading:
    """How outputs and targets are to be read."""

    class_dim: int | None = None  # dimension of the classes that was asked for
    usual: int | None = None  # that by the convention of the model, for where two are possible
    forms: tuple[Form, Form] = (Form(), Form())  # of outputs and targets in the model and the data
    per: str = "example"  # or "batch": whose loss it is
    layout: Layout | None = None  # of the returned object, where the loss is of that
    together: bool = False  # whether a function is only ever called with all of a batch
    matrix: str = ""  # whose curvature has to be one
    linear: bool = False  # whether a loss without curvature will do, where none is measured


class CallableLoss(Loss):
    """Any `function(outputs, targets) -> scalar`, applied to one example (a batch of 1) at a time. Differentiated by
    plain `torch.autograd`: a function may look at values (`if`, `one_hot`), which cannot be vmapped, and what it
    computes under `torch.no_grad` is a constant, which forward mode ignores (pytorch#128600).
    """

    def __init__(self, function: LossFunction, reading: Reading | None = None) -> None:
        self.function, self.reading, self.copies = function, reading or Reading(), 1  # of each example, in a call
        self.name = getattr(function, "__name__", type(function).__name__)

    @property
    def together(self) -> BatchLoss:
        """The same function of a whole batch."""
        return BatchLoss(self.function, self.reading)

    def at_once(self, y: Tensor, targets: Tensor | None) -> Loss:
        return self._chosen(y, targets)[0]

    def value(self, y: Tensor, targets: Tensor | None) -> Tensor:
        rows = [slice(b, b + 1) for b in range(len(y))]
        return torch.stack([self._one(y[b], None if targets is None else targets[b], self.copies) for b in rows])

    def of_all(self, y: Tensor, targets: Tensor | None) -> Tensor:
        with suppress(*REFUSALS):  # unless it reads one example at a time
            return self._one(y, targets)
        return super().of_all(y, targets)

    def check(self, y: Tensor, targets: Tensor | None, *, twice: bool) -> None:
        """Refuse a function that cannot read these examples, or lacks derivatives it needs."""
        try:
            values = self.value(y, targets)
        except REFUSALS as error:
            self.copies, values = 2, y[:0]  # of each example, where `.squeeze()` takes away the dimension of one
            with suppress(*REFUSALS):
                values = self.value(y, targets)
            if not (len(values) and self.is_mean(y, targets)):
                raise self._unusable(y, targets, error) from error
        self._check_whole(y, targets)
        if not is_finite(values):
            if len(y) > 1 and not bool(self.of_all(y, targets).isfinite()):
                why = "look for targets that are NaN or infinite, and leave them out"
                if targets is None or is_finite(targets):
                    why = first_broken(lambda: self.of_all(y, targets))
                raise HessdiagError(f"the loss {self.name!r} is NaN or infinite: {why}")
            how = "pass per='batch' (--per batch)"
            if targets is not None and not targets.is_floating_point():
                how += ", or a name such as 'cross-entropy', which leaves labels -100 out"
            raise CoupledError(f"the loss {self.name!r} is NaN or infinite for some examples on their own: {how}")
        if not twice:
            return
        try:
            self.hessian_product(y, targets, torch.ones_like(y))
        except REFUSALS as error:
            message = f"the loss {self.name!r} cannot be differentiated twice ({one_line(error)}): write it with"
            raise HessdiagError(f"{message} operations that can, or pass quick=True (--quick)") from error

    def _check_whole(self, y: Tensor, targets: Tensor | None) -> None:
        """The same of all examples at once; and refuse a function that calls a model in place of reading outputs."""
        try:
            with torch.enable_grad():
                one = self._one(at := y.detach().requires_grad_(), targets)
        except REFUSALS as error:
            if not isinstance(error, HessdiagError):  # which a number for each example is
                raise self._unusable(y, targets, error, len(y)) from error
            return
        holds = any(isinstance(leaf, nn.Parameter) for leaf in leaves_of(one.grad_fn))
        if holds and torch.autograd.grad(one, at, allow_unused=True)[0] is None:
            what = "has a gradient in weights that it holds, none in the outputs: return it from a module's forward"
            raise HessdiagError(f"the loss {self.name!r} {what}, and pass loss='model' (--loss model)")

    def is_mean(self, y: Tensor, targets: Tensor | None) -> bool:
        """Whether that of several examples is the mean of theirs: in value, gradient and Hessian product."""
        z = torch.randn(y.shape, generator=stream(0, "mean of losses")).to(y)

        def found(loss: Loss) -> list[Tensor]:
            curved = [] if self.reading.linear else [loss.hessian_product(y, targets, z)]
            return [loss.value(y, targets).mean(), loss.gradient(y, targets), *curved]

        try:
            whole = found(self.together)
        except REFUSALS:  # it reads one example at a time
            return self.copies == 1
        with suppress(*REFUSALS):
            return all(_alike(*pair) for pair in zip(whole, found(self), strict=True))
        return False

    def compares(self, y: Tensor, targets: Tensor | None) -> bool:
        """Whether the gradient in the outputs of one example depends on those of another, or is zero without them."""
        z, together = torch.zeros_like(y), self.together
        z[0] = torch.randn(y[0].shape, generator=stream(0, "one of several examples")).to(y)
        try:
            if bool((together.hessian_product(y, targets, z)[1:] != 0).any()):
                return True
            whole, alone = together.gradient(y, targets), self.gradient(y, targets)
        except REFUSALS:
            return False
        return bool(((whole.abs() > SAME[whole.dtype] * whole.abs().max()) & (alone == 0)).any())

    def _gradient(self, y: Tensor, targets: Tensor | None) -> tuple[Tensor, Tensor]:
        return self._chosen(y, targets)[1]

    def _chosen(self, y: Tensor, targets: Tensor | None) -> tuple[Loss, tuple[Tensor, Tensor]]:
        """Itself, or that of all examples at once where its gradient is the same, and faster; with the gradient."""
        apart = super()._gradient(y, targets)
        with suppress(*REFUSALS):  # unless it reads one example at a time
            if len(y) > 1 and _alike((found := Loss._gradient(self.together, y, targets))[1], apart[1]):
                return self.together, found
        return self, apart

    def _one(self, y: Tensor, targets: Tensor | None, copies: int = -1) -> Tensor:
        """The function of several examples at once, or copies of one, as its author means it; it may write to them."""
        y, (layout, (form, form_of_targets)) = y.expand(copies, *y.shape[1:]), (self.reading.layout, self.reading.forms)
        theirs = None if targets is None else form_of_targets.restore(targets.expand(copies, *targets.shape[1:]))
        given = (layout.split(y) if layout else form.restore(y), theirs)
        with user_code():
            loss = self.function(*mapped(given, partial(torch.clone, memory_format=torch.contiguous_format)))
        if not isinstance(loss, Tensor):
            raise HessdiagError(f"the loss {self.name!r} gave a {type(loss).__name__}: return a scalar tensor")
        if loss.numel() != 1:
            message = f"the loss {self.name!r} gave a tensor of shape {tuple(loss.shape)} for one example:"
            raise HessdiagError(f"{message} return a scalar, the mean over the examples it was given")
        return loss.reshape(())

    def _unusable(self, y: Tensor, targets: Tensor | None, error: Exception, count: int = 1) -> HessdiagError:
        """What the loss was called with, and what it made of it; of one that takes several examples, how to pass it."""
        if isinstance(error, HessdiagError):
            return error
        shape = tuple(self.reading.forms[0].restore(y[:count]).shape)
        given = "no targets" if targets is None else f"targets {tuple(targets[:count].shape)} of {targets.dtype}"
        call = f"outputs {shape} and {given} of {'one example' if count == 1 else 'all examples'} ({one_line(error)})"
        how = "take derivatives of outputs in forward, and return them" if "require grad" in str(error) else HOW
        if "should be between 0 and 1" in str(error):
            how = "pass nn.BCEWithLogitsLoss(), which takes logits, or end the network in a sigmoid"
        elif targets is not None and targets[:1].numel() == y[:1].numel():
            alike = (targets.shape[1:], targets.dtype) == (shape[1:], y.dtype)
            how = how if alike else f"pass targets of shape {(len(targets), *shape[1:])} and {y.dtype}"
        message = f"the loss {self.name!r} cannot be called with {call}: {how}{cut_short(y, targets)}"
        several = False
        with suppress(*REFUSALS):
            several = len(y) > count and bool(self._one(y, targets).isfinite())
        return CoupledError(f"{message}, or pass per='batch' (--per batch)") if several else HessdiagError(message)


class BatchLoss(CallableLoss):
    """Any `function(outputs, targets) -> scalar` of a whole batch; the mean over its examples is that number."""

    couples = True

    def value(self, y: Tensor, targets: Tensor | None) -> Tensor:
        return self._one(y, targets).expand(len(y))

    _gradient = Loss._gradient  # as it is: it is of all examples already


def _alike(found: Tensor, expected: Tensor, size: float = 0.0) -> bool:
    found, expected, size = found.detach(), expected.detach(), size or SAME[expected.dtype]
    return torch.allclose(found, expected, size, size * float(expected.abs().nan_to_num().max()), equal_nan=True)


def resolve_loss(
    loss: str | LossFunction, *, y: Tensor, targets: Tensor | None, seed: int, reading: Reading | None = None
) -> Loss:
    """The loss that a name of `LOSSES` or a callable asks for, for outputs like y, and the targets of all examples."""
    reading = reading or Reading()
    second = -1 if reading.forms[0].flat else 1  # of what torch is given
    if loss is F.cross_entropy:  # where two dimensions may hold the classes, it takes the first
        loss, reading = "cross-entropy", replace(reading, usual=second)
    module = nn.CrossEntropyLoss() if loss == "cross-entropy" else loss
    if type(module) is nn.CrossEntropyLoss:
        name = loss if isinstance(loss, str) else type(loss).__name__
        if reading.class_dim is None and name != "cross-entropy":
            reading = replace(reading, class_dim=second)
        return _cross_entropy_of(module, y, required(name, targets), reading, name=name)
    if reading.class_dim is not None:
        raise HessdiagError(f"class_dim {reading.class_dim}: it is for loss 'cross-entropy' alone, leave it out")
    if not isinstance(loss, str):
        if reading.layout is None and (loss is F.mse_loss or (type(loss) is nn.MSELoss and loss.reduction == "mean")):
            shape = reading.forms[0].restore(y).shape[1:]  # (B,) outputs broadcast beside (B, 1) targets
            if targets is not None and targets.is_floating_point() and targets.shape[1:] == shape:
                known = MeanSquaredError()
                known.name = "mse_loss" if loss is F.mse_loss else "MSELoss"
                required(known.name, targets)
                return known
        with seeded_rng(0):
            return _of_function(loss, y, targets, reading)
    if loss == "random-quadratic":
        return RandomQuadratic.draw(math.prod(y.shape[1:]), seed=seed, like=y)
    check_values(y, required(loss, targets))
    return MeanSquaredError()


def _of_function(function: LossFunction, y: Tensor, targets: Tensor | None, reading: Reading) -> Loss:
    """A function's loss, of one example or of the whole batch, as it takes many targets with outputs of few in turn."""
    chosen, written = CallableLoss(function, reading), 1
    with suppress(*REFUSALS), torch.enable_grad(), Noise() as drawn:
        few = chosen.of_all(y.clone().requires_grad_(), None if targets is None else targets[: len(y)])
        written = numbers_written(few)
    if drawn.noted and not reading.linear:
        raise HessdiagError(f"the loss {chosen.name!r} draws random numbers: leave them out, or draw them once")
    if drawn.noted:  # as negatives are: the same at each call
        chosen.function = seeded_rng(0)(function)
    most = min(max(len(y), len(y) * NUMBERS_TRIED // max(y.numel(), written, 1)), EXAMPLES_TRIED)
    many, theirs = y, targets
    sizes = [most] if targets is None else [min(most, len(targets)), len(targets)]  # all may be of none of so few
    for count in [] if reading.together else sizes:
        picked = torch.randint(len(y), (count,), generator=stream(0, "examples of a batch"))  # for no class the same
        many = torch.cat([y, y[picked.to(y.device)]])[:count]
        if targets is not None:
            theirs = targets[torch.linspace(0, len(targets) - 1, count).long().to(targets.device)]
        with suppress(*REFUSALS):
            if bool(chosen.of_all(many, theirs).isfinite()) and bool(chosen.together.gradient(many, theirs).any()):
                break
    if reading.per == "batch" and (reading.together or not chosen.is_mean(many, theirs)):
        chosen = chosen.together
    if reading.per == "example" and chosen.compares(many, theirs):
        message = f"the loss {chosen.name!r} compares the examples of a batch, so that none has a loss of its own: pass"
        raise CoupledError(f"{message} per='batch' (--per batch)")
    chosen.check(many, theirs, twice=not reading.linear)
    if targets is not None and (known := _known(chosen, many, theirs, targets, reading)):
        return known
    return _curved(chosen, many, theirs, reading) if reading.matrix == "ggn" else chosen


def _known(loss: CallableLoss, y: Tensor, some: Tensor | None, targets: Tensor, reading: Reading) -> Loss | None:
    """Mean squared error or cross-entropy, where a function is that: of these outputs, and of others."""
    usual, others = nn.CrossEntropyLoss(), torch.randn(y.shape, generator=stream(0, "other outputs")).to(y)
    seen = targets.is_floating_point() or some is None or len(torch.unique(some)) == len(torch.unique(targets))
    dims = {1, y.dim() - 1} if reading.layout is None and seen else ()  # an unseen class may weigh otherwise
    for dim in (None, *dims) if dims else ():
        with suppress(*REFUSALS):
            known: Loss = MeanSquaredError()
            if dim:
                known = _cross_entropy_of(usual, y, targets, replace(reading, class_dim=dim), name=loss.name)
            known.check_targets(targets, y)
            if not bool(known.gradient(others, some).any()):  # of one class
                continue
            pairs = [(getattr(loss, of), getattr(known, of)) for of in ("value", "gradient", "of_all")]
            if all(_alike(own(z, some), theirs(z, some), NEARLY) for z in (others, y) for own, theirs in pairs):
                known.name = loss.name
                return known
    return None


def _curved(loss: CallableLoss, y: Tensor, targets: Tensor | None, reading: Reading) -> Loss:
    """The loss, or cross-entropy, where it is the same of log-probabilities; refuse any other without curvature. With z
    of log_softmax(z) in place of z, cross-entropy and its Gauss-Newton matrix are the same.
    """
    log_probabilities = [dim for dim in {1, y.dim() - 1} if bool((y.exp().sum(dim) - 1).abs().max() < SAME[y.dtype])]
    if reading.linear and not log_probabilities:
        return loss
    z, gradient = torch.randn(y.shape, generator=stream(0, "curvature of the loss")).to(y), loss.gradient(y, targets)
    with suppress(*(REFUSALS if reading.linear else ())):
        if bool((loss.hessian_product(y, targets, z) != 0).any()) or not bool((gradient != 0).any()):
            return loss
    for dim in log_probabilities if targets is not None and y.dim() > 1 else []:
        given = {key: getattr(loss.function, key, None) for key in ("weight", "ignore_index", "reduction")}
        module = nn.CrossEntropyLoss(**{key: value for key, value in given.items() if value is not None})
        try:
            folded = resolve_loss(module, y=y, targets=targets, seed=0, reading=replace(reading, class_dim=dim))
        except HessdiagError:  # targets that are no classes
            continue
        projected = gradient - y.exp() * gradient.sum(dim, keepdim=True)
        values = [each.value(y, targets).mean() for each in (folded, loss)]
        if _alike(values[0], values[1]) and _alike(folded.gradient(y, targets), projected):
            folded.name = loss.name
            return folded
    if reading.linear:
        return loss
    message = f"the loss {loss.name!r} is linear in the outputs here, so that its Gauss-Newton matrix is zero:"
    how = "diagnose with matrix='hessian' (--matrix hessian), which takes longer, or pass another loss"
    if reading.layout is not None:
        how = f"name the output that it is of, with a loss of this alone, as in output=0 (--output 0); or {how}"
    raise HessdiagError(f"{message} {how}")


def _cross_entropy_of(module: nn.CrossEntropyLoss, y: Tensor, targets: Tensor, reading: Reading, *, name: str) -> Loss:
    """`nn.CrossEntropyLoss` of one example at a time, or an example's share in it as it averages over a whole batch."""
    weight, reduction = module.weight, module.reduction
    dim = class_dimension(y, targets, asked=reading.class_dim, usual=reading.usual, ignore_index=module.ignore_index)
    classes = y.shape[dim]
    if weight is not None and len(weight) != classes:
        raise HessdiagError(f"loss {name!r} has {len(weight)} class weights, but the network has {classes} outputs")
    if reduction == "none" and y.dim() > 2:
        raise HessdiagError(f"loss {name!r} has reduction='none': use 'mean' or 'sum', one number an example")
    how = {key: getattr(module, key) for key in ("weight", "label_smoothing", "ignore_index", "reduction")}
    return CrossEntropy(dim, **how, joint=reading.per == "batch", name=name).of_batch(targets, y)


def sides_of(loss: Loss) -> int:
    """Cotangents of a direction z: A z where the loss has a root, else z and S z."""
    return 1 if loss.has_root else 2


def chance_loss(loss: Loss, y: Tensor, targets: Tensor | None) -> tuple[str, float]:
    """Kind of the loss and the loss of a constant guess, for outputs y (B, *out) and targets; NaN where none is known.

    Each label is guessed from the counts of all *others*, plus one: its own would tell too much of many classes.

    >>> kind, chance = chance_loss(CrossEntropy(), torch.zeros(2, 2), torch.tensor([0, 1]))
    >>> kind, round(chance, 4)  # no better than ln 2
    ('cross-entropy', 0.6931)
    """
    if targets is None:
        return "other", math.nan
    if isinstance(loss, MeanLoss):
        return chance_loss(loss.loss, y[0], targets)
    if isinstance(loss, MeanSquaredError):
        return "mse", _of_values(targets.detach().double())
    if type(loss) is not CrossEntropy or loss.label_smoothing or loss.weight is not None or loss.reduction != "mean":
        return "other", math.nan
    if targets.shape == y.shape:
        return "cross-entropy", _of_probabilities(targets.detach().movedim(loss.class_dim, -1).flatten(0, -2).double())
    labels = targets.detach().flatten().long()
    return "cross-entropy", _of_labels(labels[labels != loss.ignore_index].cpu(), y.shape[loss.class_dim])


def _of_labels(labels: Tensor, classes: int) -> float:
    if not len(labels):
        return math.nan
    if bool((labels == labels[0]).all()):  # the place of what is right among candidates, say: no class to guess
        return math.log(classes)
    counts = torch.bincount(labels, minlength=classes).double()
    guess = counts[labels] / (len(labels) - 1 + classes)  # its own count out, one for every class in
    return min(math.log(classes), float(-guess.log().mean()))


def _of_probabilities(rows: Tensor) -> float:
    others = rows.sum(0) - rows + 1  # of which each row may have several
    guess = others / others.sum(1, keepdim=True)
    return float(torch.minimum(rows.sum() * math.log(rows.shape[1]), -(rows * guess.log()).sum())) / len(rows)


def _of_values(targets: Tensor) -> float:
    """Zero, the mean of all, or each output's mean over the others, whichever is best."""
    count = len(targets)
    own = float(targets.var(0).mean()) * count / (count - 1) if count > 1 else math.inf
    return min(float(targets.square().mean()), float(targets.var()) if targets.numel() > 1 else math.inf, own)
