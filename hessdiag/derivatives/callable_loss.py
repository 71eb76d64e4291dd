"""Any `function(outputs, targets) -> scalar` as a loss of each example, by automatic differentiation.

Two ways, and the first that is right is taken: vmapped over examples; or one example after the other by plain
`torch.autograd`, for functions that look at values (`if`, `one_hot`), that torch.func cannot transform, or whose
forward-mode derivative is wrong (`torch.no_grad` inside, pytorch#128600).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor
from torch.func import grad, jvp, vmap

from hessdiag.errors import HessdiagError

# What a function's own code makes of tensors that it was not written for; its other errors are its author's.
UNFIT = (RuntimeError, ValueError, TypeError, AttributeError, LookupError, AssertionError)
SAME = {torch.float32: 1e-3, torch.float64: 1e-8}  # of the two ways


class CallableLoss:
    """Any `function(outputs, targets) -> scalar`, applied to one example (a batch of 1) at a time.

    Args:
        function: the loss.
        scalar: whether it is given outputs (B,), of which this is given (B, 1).
    """

    has_root = False

    def __init__(self, function: Callable[[Tensor, Tensor | None], Tensor], *, scalar: bool = False) -> None:
        self.function = function
        self.scalar = scalar
        self.name = getattr(function, "__name__", type(function).__name__)

    def value(self, y: Tensor, targets: Tensor | None) -> Tensor:
        """Loss of each example, shape (B,)."""
        return self._each(lambda a, t: self._one(a, t), y, targets)

    def gradient(self, y: Tensor, targets: Tensor | None) -> Tensor:
        """By reverse mode, shape (B, *out)."""
        return self._each(lambda a, t: cast(Tensor, grad(self._one)(a, t)), y, targets)

    def hessian_product(self, y: Tensor, targets: Tensor | None, v: Tensor) -> Tensor:
        """By forward over reverse mode, or reverse mode twice where torch lacks a rule (Huber), shape (B, *out)."""

        def forward(a: Tensor, t: Tensor | None, u: Tensor) -> Tensor:
            if t is None or not t.is_floating_point():
                return cast(Tensor, jvp(lambda b: grad(self._one)(b, t), (a,), (u,))[1])
            # Float targets go in as primals with zero tangents: mse_loss crashes otherwise (pytorch#123996).
            return cast(Tensor, jvp(grad(self._one), (a, t), (u, torch.zeros_like(t)))[1])

        def reverse(a: Tensor, t: Tensor | None, u: Tensor) -> Tensor:
            return cast(Tensor, grad(lambda b: (grad(self._one)(b, t) * u).sum())(a))

        try:
            return self._each(forward, y, targets, v)
        except RuntimeError:  # NotImplementedError too
            return self._each(reverse, y, targets, v)

    def root_product(self, y: Tensor, targets: Tensor | None, v: Tensor) -> Tensor:
        """There is none in closed form."""
        raise TypeError(f"the Hessian of {self.name} has no root in closed form")

    root_transposed_product = root_product

    def whole(self, y: Tensor, targets: Tensor | None) -> Tensor:
        """The function of several examples at once, as its author means it."""
        return self.function(y[:, 0] if self.scalar else y, targets)

    def _one(self, a: Tensor, t: Tensor | None) -> Tensor:
        loss = self.whole(a.unsqueeze(0), None if t is None else t.unsqueeze(0))
        if not isinstance(loss, Tensor):
            raise HessdiagError(f"the loss {self.name!r} gave a {type(loss).__name__}: return a scalar tensor")
        if loss.numel() != 1:
            raise HessdiagError(
                f"the loss {self.name!r} gave a tensor of shape {tuple(loss.shape)} for one example:"
                " return a scalar, the mean over the examples it was given"
            )
        return loss.reshape(())

    @staticmethod
    def _each(function: Callable[..., Tensor], y: Tensor, targets: Tensor | None, *more: Tensor) -> Tensor:
        in_dims = (0, None if targets is None else 0, *[0] * len(more))
        return vmap(function, in_dims=in_dims, randomness="same")(y, targets, *more)


class LoopedLoss(CallableLoss):
    """The same, one example after the other and by plain `torch.autograd`."""

    def value(self, y: Tensor, targets: Tensor | None) -> Tensor:
        """Loss of each example, shape (B,)."""
        return torch.stack([self._one(a, t) for a, t in _examples(y, targets)])

    def gradient(self, y: Tensor, targets: Tensor | None) -> Tensor:
        """By reverse mode, shape (B, *out)."""
        return torch.stack([self._gradient(a, t)[1].detach() for a, t in _examples(y, targets)])

    def hessian_product(self, y: Tensor, targets: Tensor | None, v: Tensor) -> Tensor:
        """By reverse mode twice, shape (B, *out)."""
        found = [_again(*self._gradient(a, t), u) for (a, t), u in zip(_examples(y, targets), v, strict=True)]
        return torch.stack(found)

    def hessian_matrix(self, y: Tensor, targets: Tensor | None) -> Tensor:
        """S of every example, (B, N, N): one row of the gradient after the other."""
        each = []
        for a, t in _examples(y, targets):
            at, g = self._gradient(a, t)
            rows = [_again(at, g, u.view(a.shape)) for u in torch.eye(a.numel(), dtype=a.dtype, device=a.device)]
            each.append(torch.stack(rows).flatten(1))
        return torch.stack(each)

    def _gradient(self, a: Tensor, t: Tensor | None) -> tuple[Tensor, Tensor]:
        """Where the outputs are, and the gradient there with its graph."""
        with torch.enable_grad():
            at = a.detach().clone().requires_grad_()
            value = self._one(at, t)
            if not value.requires_grad:
                return at, torch.zeros_like(at)
            (g,) = torch.autograd.grad(value, at, create_graph=True, allow_unused=True, materialize_grads=True)
        return at, g


def callable_loss(
    function: Callable[[Tensor, Tensor | None], Tensor], y: Tensor, targets: Tensor | None, *, scalar: bool
) -> CallableLoss:
    """A loss that is differentiated right, tried on the first examples.

    Args:
        function: the user's.
        y: outputs (B, *out) of the first examples.
        targets: theirs.
        scalar: whether the model returns outputs (B,), of which `y` is (B, 1).

    Raises:
        HessdiagError: the function cannot read them, or cannot be differentiated twice.
    """
    looped, together = LoopedLoss(function, scalar=scalar), CallableLoss(function, scalar=scalar)
    v = torch.linspace(1, 2, y.numel(), dtype=y.dtype, device=y.device).view(y.shape)
    alone, why_not_alone = _attempt(looped, y, targets, v)
    vmapped, why_not_vmapped = _attempt(together, y, targets, v)
    if vmapped is not None and (alone is None or _alike(alone, vmapped)):
        return together
    if alone is not None:
        return looped
    error = why_not_alone or why_not_vmapped
    assert error is not None
    try:
        looped.value(y, targets)
    except HessdiagError:
        raise
    except UNFIT:
        raise HessdiagError(_unusable(looped, y, targets, error)) from error
    raise HessdiagError(
        f"the loss {looped.name!r} cannot be differentiated twice ({_first_line(error)}): write it with operations that"
        " can, such as clamp, exp and sums"
    ) from error


def check_mean_over_examples(loss: CallableLoss, y: Tensor, targets: Tensor | None) -> None:
    """Refuse a loss whose value for several examples is not the mean of theirs, as a weighted mean or a sum is not."""
    try:
        whole = loss.whole(y, targets)
    except UNFIT:  # it reads one example at a time
        return
    mean = loss.value(y, targets).mean().detach()
    if isinstance(whole, Tensor) and whole.numel() == 1 and not _alike([whole.detach().reshape(())], [mean]):
        raise HessdiagError(
            f"the loss {loss.name!r} of {len(y)} examples ({float(whole):.3g}) is not the mean of theirs"
            f" ({float(mean):.3g}), as per='batch' needs it: return the plain mean over examples, or use per='example'"
        )


def _examples(y: Tensor, targets: Tensor | None) -> list[tuple[Tensor, Tensor | None]]:
    return [(a, None if targets is None else targets[b]) for b, a in enumerate(y)]


def _again(at: Tensor, gradient: Tensor, v: Tensor) -> Tensor:
    """The gradient of ⟨gradient, v⟩."""
    if not gradient.requires_grad:
        return torch.zeros_like(at)
    (found,) = torch.autograd.grad(gradient, at, v, retain_graph=True, allow_unused=True, materialize_grads=True)
    return found.detach()


def _attempt(
    loss: CallableLoss, y: Tensor, targets: Tensor | None, v: Tensor
) -> tuple[list[Tensor] | None, Exception | None]:
    """Gradient and Hessian product, or the error in place of them."""
    try:
        return [loss.gradient(y, targets), loss.hessian_product(y, targets, v)], None
    except UNFIT as error:
        return None, error


def _alike(ones: list[Tensor], others: list[Tensor]) -> bool:
    return all(
        torch.allclose(a, b, rtol=SAME[a.dtype], atol=SAME[a.dtype] * float(a.abs().max()), equal_nan=True)
        for a, b in zip(ones, others, strict=True)
    )


def _unusable(loss: CallableLoss, y: Tensor, targets: Tensor | None, error: Exception) -> str:
    """What the loss was called with, what it made of it, and what to write instead."""
    shape = tuple(y[:1].shape[:1] if loss.scalar else y[:1].shape)
    given = "None" if targets is None else f"targets {tuple(targets[:1].shape)}"
    how = "write a function of these two that returns a scalar"
    if targets is None and "NoneType" in str(error):
        how = "pass targets"
    elif isinstance(error, AttributeError) or _reads_by_name(loss.function, targets):
        how = (
            "it is given the tensor of outputs, not the model's output object: pick the tensor with output=..., and"
            " write the loss of it and the targets, or name one, as in loss='cross-entropy'"
        )
    elif targets is not None and not targets.is_floating_point() and isinstance(error, RuntimeError):
        how = f"targets are {targets.dtype}, convert them if the loss compares numbers, as in targets.float()"
    text = f"{type(error).__name__}: {_first_line(error)}"
    return f"the loss {loss.name!r} cannot be called with outputs {shape} and {given} of one example ({text}): {how}"


class _ByNameError(Exception):
    """What was taken for a tensor was asked for something by name."""


class _Asked:
    """Stands for the outputs, and notes whether a dict or an object is expected in their place."""

    def __getitem__(self, key: object) -> None:
        if isinstance(key, str):
            raise _ByNameError


def _reads_by_name(function: Callable[..., Tensor], targets: Tensor | None) -> bool:
    """Whether the first thing that a loss does with the outputs is to take one by its name, as in `out["logits"]`."""
    try:
        function(_Asked(), targets)
    except _ByNameError:
        return True
    except Exception:  # whatever it makes of the stand-in
        return False
    return False


def _first_line(error: Exception) -> str:
    return " ".join((str(error).strip() or type(error).__name__).splitlines()[0].split())[:160]
