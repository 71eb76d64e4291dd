"""What a loss is made of: the operations in one call of it, and what they are handed."""

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from hessdiag.data.batch import Batch, Layout
from hessdiag.derivatives.losses import Loss, LossFunction
from hessdiag.derivatives.targets import sums_to_one
from hessdiag.diagnosis import roles
from hessdiag.diagnosis.checks import moved
from hessdiag.diagnosis.network_view import LEARNABLE, SWING
from hessdiag.errors import REFUSALS
from hessdiag.results.numbers import short

ELEMENTWISE = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
TAKES = {"cross_entropy": "logits", "log_softmax": "logits", "logsumexp": "logits"}
TAKES |= {"nll_loss": "logarithms", "kl_div": "logarithms"}
LOGITS = ("binary_cross_entropy_with_logits", "cross_entropy")
LOGISTIC = ("binary_cross_entropy", "binary_cross_entropy_with_logits", "log_sigmoid")
LOGARITHMS = ("log", "log2", "log10")
SUMS = ("add", "radd", "iadd", "sub", "rsub", "isub")
COMPARE = (*ELEMENTWISE, "sub", "rsub")
SEVERAL, HARDLY = 8, 0.01  # examples; of the gradients elsewhere
AFFINE = ("Addmm", "Convolution")  # what ends a network that writes both signs


class Calls(TorchFunctionMode):
    """Fields of `Signals` on the operations in a loss of some examples: shapes of one that joins numbers made of the
    outputs with targets of other examples, or as `pairs` may do so, and one that gets what it does not take. Besides,
    the terms of a sum without a gradient in the outputs y (B, *out), where these are not `given`. These are `squashed`
    where a sigmoid wrote some of them. By what the loss does that takes numbers above zero, whether some that outputs
    made are below. Of calls `inside` of a model torch's losses alone are noted.
    """

    def __init__(
        self, examples: int | None, y: Tensor, given: Tensor, *, squashed: Sequence[Tensor] = (), inside: bool = False
    ) -> None:
        super().__init__()
        self.examples, self.y, self.given, self.squashed, self.inside = examples, y, given, squashed, inside
        self.found, self.silent, self.signed = dict[str, str](), list[float](), dict[str, bool]()
        self.compared = list[tuple[Callable[..., Tensor], Tensor, Tensor]]()  # losses inside, of outputs and targets
        self.targets: Tensor | None = None
        self.columns = {torch.Size([examples or 0, 1]), torch.Size([examples or 0])}  # whose difference is a square
        self.logs = set[bool]()  # whether what logarithms are taken of is made of the outputs

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result, name = func(*args, **(kwargs := kwargs or {})), func.__name__
        pair = [v for v in (*args, *kwargs.values()) if isinstance(v, Tensor)][:2]
        if torch._C._are_functorch_transforms_active():  # one example's, or a derivative's
            return result
        crossed = len(pair) == 2 and {v.shape for v in pair} == self.columns and pair[0].is_floating_point()
        crossed = crossed and ("sub" in name or not any(v.requires_grad for v in pair))
        if self.inside and not crossed and name not in {*ELEMENTWISE, *TAKES, *LOGISTIC, "ctc_loss"}:
            return result
        with suppress(LookupError):  # arguments that are passed by name
            self._note(name, pair, result, args, kwargs)
        if self.inside and len(args) == 2 and [v.requires_grad for v in pair] == [True, False]:
            self.compared.append((partial(func, **kwargs), pair[0], pair[1]))
        return result

    def _note(self, name: str, pair: Sequence[Tensor], result: Any, args: Sequence[Any], kwargs: Any) -> None:
        joined = result[0] if name == "broadcast_tensors" else result
        if isinstance(joined, Tensor) and len(pair) == 2:
            self._note_shapes(name, pair, joined)
            if name.strip("_") in COMPARE and any(map(self._are_numbers_of_classes, pair, pair[::-1])):
                what = "The loss compares all outputs of an example with one number, that of its class."
                self.tell(what, "Take `F.cross_entropy`, or compare them with `F.one_hot` of the class.")
        terms = args[0] if name == "stack" else args[:2] if name.strip("_") in SUMS else ()
        if terms and result.grad_fn is not None and result.numel() == (len(terms) if name == "stack" else 1):
            self._note_terms(terms)
        if pair and name in LOGISTIC and pair[0].requires_grad and _are_outputs(pair[0], self.y):
            self.found["logits"] = name
        elif pair and name in LOGARITHMS and roles.sigmoids_in(pair[0].grad_fn, "Clamp|Rsub|Add"):
            self.found.setdefault("logits", "log")
        if pair and name in {*LOGARITHMS, *TAKES, *LOGISTIC}:
            self.logs.add(pair[0].requires_grad)
        positive = pair[1:] if "div" in name else pair[:1] if name in LOGARITHMS else ()
        if positive and positive[0].requires_grad:
            does = "divides by" if "div" in name else "takes logarithms of"
            self.signed[does] = self.signed.get(does, False) or bool((positive[0].real < 0).any())
        for told in (*self._misused(name, pair, args, kwargs), *_misread(name, pair, args, kwargs)) if pair else ():
            self.tell(*told)

    def tell(self, what: str, advice: str) -> None:
        """Note what is said of the loss, the last that is found."""
        self.found |= {"takes": what, "remedy": advice}

    def _note_shapes(self, name: str, pair: Sequence[Tensor], result: Tensor) -> None:
        trained = sum(each.requires_grad for each in pair)
        plain = not trained and name in ("add", "sub", "mul", "__rsub__")
        fixed = plain and len({v.untyped_storage().data_ptr() for v in pair}) > 1  # as of rewards and values, no views
        if trained == 2 and name in ELEMENTWISE and pair[0].dim() != pair[1].dim():
            first, second = (each.shape for each in pair)
            self.found["broadcast"] = f"{tuple(first)} and {tuple(second)} to {_joined(first, second)}"
        if trained == 1 or fixed:
            one, other = (each.shape for each in sorted(pair, key=lambda each: not each.requires_grad))
            shape, apart, over = _joined(one, other), len(one) != len(other), other[:1] == (self.examples,)
            joins = result.numel() == math.prod(shape)
            along = any(a != b and {a, b} == {1, self.examples} for a, b in zip(one, other, strict=False))
            dropped = one == self.y.shape and one[1:2] == (1,) and len(other) > 1 and other == one[:1] + one[2:]
            each_other = (name in ELEMENTWISE and over and (apart or along)) or dropped  # of (B, 1, H, W), (B, H, W)
            longer = max(one, other, key=len)  # of one number for each example, as (B, 1, 1) beside (B, C)
            lone = apart and shape[:2] == one[:1] + other[:1] == longer[:1] * 2 and longer.numel() == longer[0] > 1
            square = one.numel() == other.numel() > 1 and math.prod(shape) == one.numel() ** 2
            paired = one == self.y.shape and self.targets is not None and other == self.targets.shape
            paired = paired and len(one) == len(other) and one != other  # outputs with targets, of other shapes
            if paired and one == shape and name in ELEMENTWISE:
                what = f"The loss compares several outputs with one target: {tuple(one)} with {tuple(other)}."
                self.tell(what, "Return as many outputs as there are targets, or give targets of their shape.")
            compares = name in ELEMENTWISE or (joins and name.strip("_") in COMPARE)
            wide = paired and compares and math.prod(shape) > one.numel()  # one for several
            squared = (joins or name in ELEMENTWISE) and (lone or square)
            summed = joins and over and one.numel() == 1
            told = each_other or wide or (squared and apart)
            if (squared and apart) if fixed else told or squared or summed:  # made on purpose, or by a sum
                key = "broadcast" if told else "pairs"
                self.found[key] = f"{tuple(one)} and {tuple(other)} to {shape}"

    def _are_numbers_of_classes(self, one: Tensor, other: Tensor) -> bool:
        """Whether one tensor is the targets, numbers of classes of which the other has all for each example."""
        told = self.targets
        if told is None or told.is_floating_point() or other.shape != self.y.shape or one.numel() != told.numel():
            return False
        classes = torch.unique(told)
        every = 2 < len(classes) <= other.shape[-1] > classes[-1] and classes[0] >= 0
        return bool(every) and torch.equal(one.flatten(), told.flatten().to(one))

    def _note_terms(self, terms: Sequence[Any]) -> None:
        values = [float((v.detach() if isinstance(v, Tensor) else v).real) for v in terms]
        if 0 not in values[:2] and len({*values}) > 1:  # as of l - l.detach(), which changes what is printed
            silent = [value for value, term in zip(values, terms, strict=True) if self._is_silent(term)]
            self.silent += silent if len(silent) < len(values) else []  # none is learnt of such a sum: of another's ε

    def _is_silent(self, term: Any) -> bool:
        """Whether a term has no gradient in what weights made of the outputs."""
        if not isinstance(term, Tensor) or term.grad_fn is None:
            return True
        if not bool(self.given.any()):
            return False
        (slope,) = torch.autograd.grad(term, self.y, retain_graph=True, allow_unused=True)
        return slope is None or (bool(slope.any()) and not bool((slope * ~self.given).any()))

    def _misused(
        self, name: str, pair: Sequence[Tensor], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Iterator[tuple[str, str]]:
        """What is told of an operation that gets what it does not take, and what to do."""
        if name.startswith("binary_cross_entropy") and pair[1].numel():
            low, high = map(float, pair[1].aminmax())
            if not 0 <= low <= high <= 1:
                what = f"The loss hands targets from {short(low)} to {short(high)} to {name}, which takes 0 to 1."
                yield what, "Scale the targets to 0 to 1, or take another loss."
        shares = name in TAKES and pair[0].requires_grad and bool((pair[0] >= 0).all())
        z, logits = pair[0].detach(), name in LOGITS and pair[0].requires_grad
        written = [v.flatten() for v in (*self.squashed, *roles.sigmoids_in(pair[0].grad_fn))] if logits else []
        if written and bool(torch.isin(z, torch.cat(written).to(z)).all()):
            span = " to ".join(map(short, map(float, z.aminmax())))
            what = f"The loss hands what a sigmoid wrote, {span}, to {name}, which takes logits of both signs."
            yield what, "Leave the sigmoid out, or take the loss of probabilities."
        if shares and any(n > 1 and sums_to_one(pair[0], dim) for dim, n in enumerate(pair[0].shape)):
            advice = "Leave the softmax out." if TAKES[name] == "logits" else "Take `log_softmax` for the softmax."
            yield f"The loss hands probabilities to {name}, which takes {TAKES[name]}.", advice
        yield from _of_pairs(name, pair)
        left = kwargs.get("ignore_index", -1)
        labels = torch.unique(pair[1]).tolist() if 0 <= left < max(pair[0].shape[1:], default=0) else []
        if len(labels) == 2 and left in labels:
            what = f"The loss hands {name} labels of one class beside the one that it leaves out, {left}."
            yield what, "Ignore no class that is to be told: `ignore_index` is for padding."
        dim = kwargs.get("dim", (*args, None, None)[1]) if name.endswith("softmax") else None
        rows, *columns = pair[0].shape if dim == 0 and pair[0].requires_grad else (0,)
        if rows == self.examples and columns and rows not in columns:  # else of pairs
            what = f"The loss hands outputs to {name} over the examples of the batch, not over classes."
            yield what, "Take it over the classes: `dim=1`, or -1 where they come last."


def _of_pairs(name: str, pair: Sequence[Tensor]) -> Iterator[tuple[str, str]]:
    """The same of scores (B, B) of pairs, made in the loss, and numbers (B,) of those that belong together."""
    if name != "cross_entropy" or pair[0].grad_fn is None or pair[0].shape != (n := pair[1].numel(), n) or n < SEVERAL:
        return
    if 0 < roles.size_of_products(pair[0].grad_fn) <= 2:
        what = f"The loss hands cosines to {name}, which cannot tell one of {n} by numbers from −1 to 1."
        yield what, "Divide cosines by a temperature, of 0.05 or 0.1."
    if not pair[1].is_floating_point() and bool((pair[1] == pair[1].flatten()[0]).all()):
        what = f"The loss asks for example {int(pair[1].flatten()[0])} in all {n} rows of a table of pairs."
        yield what, "Ask for its own: `labels = torch.arange(len(scores))`."


def _misread(name: str, pair: Sequence[Tensor], args: Sequence[Any], kwargs: Any) -> Iterator[tuple[str, str]]:
    """The same of logarithms (B, classes, ...), or (T, B, classes) for CTC, and of its labels, (B, S) or in a row."""
    dim = {"nll_loss": 1, "ctc_loss": -1}.get(name)
    logs = dim is not None and pair[0].dim() > 1 and pair[0].requires_grad
    logs = logs and (name == "ctc_loss" or bool((pair[0] < 0).any()))  # else probabilities, of which `TAKES` tells
    if logs and not sums_to_one(pair[0].exp(), dim or 0):
        what = f"The loss hands {name} numbers that are no logarithms of shares of classes."
        yield what, f"Take `log_softmax({dim})` of the outputs, which have classes there."
    if name == "ctc_loss":
        names = ("log_probs", "targets", "input_lengths", "target_lengths", "blank")
        given: dict[str, Any] = {"blank": 0} | dict(zip(names, args, strict=False)) | kwargs
        labels, lengths = pair[1], torch.as_tensor(given["target_lengths"])
        if labels.dim() == 2:
            labels = labels[torch.arange(labels.shape[1], device=lengths.device) < lengths.view(-1, 1)]
        steps = torch.as_tensor(given["input_lengths"])
        if torch.equal(steps, lengths) and int(steps.max()) < len(pair[0]):
            what = f"The loss hands {name} the lengths of the labels for those of the outputs, {len(pair[0])} steps."
            yield what, "Pass as `input_lengths` how many steps the network writes for each example."
        if bool((labels == given["blank"]).any()):
            what = f"The loss hands {name} labels of class {given['blank']}, which it takes for its blank."
            yield what, "Start labels at 1, or set `blank` to a class of its own."


def watched(
    loss: Loss, y: Tensor, part: Batch, given: Tensor, *, squashed: Sequence[Tensor] = ()
) -> tuple[Calls, Tensor]:
    """Call a loss of outputs y (B, *out), of which no weight made what is `given`."""
    rows = part.rows or (len(part.targets) if part.targets is not None and part.targets.dim() else None)  # of a graph
    with torch.enable_grad(), Calls(rows, y.clone().requires_grad_(), given, squashed=squashed) as calls:
        calls.targets = part.targets
        return calls, loss.of_all(calls.y, part.targets)


def tell_more(calls: Calls, own: Tensor, loss: Loss, model: nn.Module, part: Batch, ends: str, **asked: Any) -> None:
    """Tell of targets that are not asked for, terms without a gradient, a loss inside; `ends` is the last operation."""
    signed, y = calls.signed, calls.y.detach()
    _tell_unasked(calls, own, loss, part.targets, **asked)
    _tell_silent(calls, loss, model, part)
    if signed and not any(signed.values()) and not isinstance(part.output, Layout):
        with suppress(Exception):  # a loss of the user's, of outputs that it was not made for
            free = (y < 0).any(0) | (ends in AFFINE)  # not what a softplus wrote
            lower = torch.where(free, -1 - y.abs(), y)
            signed = watched(loss, lower, part, calls.given)[0].signed
    if does := next((does for does, below in signed.items() if below), ""):
        what = f"The loss {does} numbers that may be below zero, as sums of logits, not of probabilities."
        calls.tell(what, "Take a sigmoid or softmax of the outputs ahead of it.")
    if loss.name == "model":
        with suppress(Exception), torch.enable_grad(), Calls(part.rows, calls.y, calls.given, inside=True) as inside:
            part.call(model)
            calls.found |= {key: told for key, told in inside.found.items() if key != "logits"}
            calls.compared = inside.compared


def _tell_silent(calls: Calls, loss: Loss, model: nn.Module, part: Batch) -> None:
    """Tell of a term without a gradient that is another one with other weights."""
    if calls.silent:
        with suppress(Exception):  # a model that takes no other weights
            with moved(model, 0):
                other = part.call(model).detach()
            again, elsewhere = (watched(loss, z, part, calls.given)[0].silent for z in (calls.y.detach(), other))
            term = next(a for a, b, c in zip(calls.silent, again, elsewhere, strict=True) if a == b != c)
            what = f"A term of the loss, {short(term)}, changes with the weights, and sends them no gradient."
            calls.tell(what, "Compute it of the outputs without `detach`, `no_grad`, `.item()`, NumPy or `argmax`.")


def _tell_unasked(
    calls: Calls, own: Tensor, loss: Loss, targets: Tensor | None, *, stuck: bool = False, swing: float = math.inf,
    **_: Any,
) -> None:  # fmt: skip
    """Tell of targets of 0 and 1 where gradients `own` (B, *out) at the ones are next to zero; at zeros it is meant."""
    if targets is None or stuck or not swing > SWING or own.shape != targets.shape:  # as of classes
        return
    asked = targets == 1
    if not bool(((targets == 0) | asked).all() & asked.any()):
        return
    with suppress(*REFUSALS):
        own = loss.gradient((1 + calls.y.detach().sigmoid()) / 3, targets)  # at no end of anything
    if bool(own.any()) and bool(own[asked].abs().mean() < HARDLY * own[~asked].abs().mean()):
        what = "The loss asks nothing of outputs whose targets are 1: its gradient is next to zero there."
        calls.tell(what, "Look at `pos_weight`, other weights, a whole division, and a mean beside a sum.")


def _are_outputs(z: Tensor, y: Tensor) -> bool:
    """Whether a loss made its numbers of one of the outputs y each, or of differences, and no scores or distances."""
    slopes = torch.autograd.grad(z.sum(), y, retain_graph=True, materialize_grads=True)[0].abs()  # 0 inside of a model
    return int(slopes.count_nonzero()) <= z.numel() or torch.unique(slopes).numel() <= 2


def felt_by(own: Tensor, targets: Tensor) -> Tensor | None:
    """Which targets, of the outputs' shape or classes (B, *positions), the gradients (B, *out) of a loss are of."""
    ways = (own != 0, *((own.any(1), own.any(-1)) if own.dim() == targets.dim() + 1 else ()))
    return next((each for each in ways if each.shape == targets.shape), None)


def _joined(one: torch.Size, other: torch.Size) -> tuple[int, ...]:
    with suppress(ValueError):
        return np.broadcast_shapes(one, other)
    return one


def would_broadcast(y: Tensor, targets: Tensor | None, calls: Calls) -> dict[str, str]:
    """What is told, and shapes where `nn.MSELoss` would compare each output with targets of other examples."""
    told = {key: value for key, value in calls.found.items() if key in ("takes", "remedy")}
    if targets is None or y.numel() != targets.numel():
        return told
    flat = y.grad_fn is not None and y.grad_fn.name().startswith("Unsqueeze")  # the model returned (B,)
    given = y.shape[:1] if flat else y.shape
    shape = _joined(given, targets.shape)
    grown = math.prod(shape) > y.numel()
    return told | ({"would_broadcast": f"{tuple(given)} and {tuple(targets.shape)} to {shape}"} if grown else {})


def mixed_in(value: Tensor, calls: Calls, y: Tensor, learnable: float = math.inf, **_: Any) -> dict[str, str]:
    """What `Calls` found in a loss of y (B, *out), of pairs what leaves nothing to learn; views, norms and roots."""
    if (pairs := calls.found.pop("pairs", "")) and learnable < LEARNABLE:
        calls.found.setdefault("broadcast", pairs)
    whole, *own = (roles.Graph(root, (), ()) for root in (y.grad_fn, value.grad_fn) if root is not None)
    if any(any(roles.norms_of_places(graph)) for graph in (whole, *own)):
        what = "The loss takes norms over the channels alone, one at each pixel, and one off them."
        calls.tell(what, "Of a gradient penalty take that of a whole example: `g.flatten(1).norm(dim=1)`.")
    for view in roles.mixing_views(own[0], len(y)) if own else ():
        order = ", ".join(map(str, (0, *range(2, len(view._saved_self_sym_sizes)), 1)))
        advice = f"Transpose instead, as by `permute({order})`, which moves the second axis last."
        calls.tell(f"The loss views outputs of {roles.shapes_of(view)}, which mixes their axes.", advice)
    if any(any(roles.endless_slopes(graph)) for graph in own):
        what = "The loss hands numbers to a sqrt or acos that may be 0 or 1, where its slope has no end."
        calls.tell(what, "Add 1e-6 to what a root reads, and clamp to 1 - 1e-6 what an arc cosine does.")
    return calls.found


def judged(model: nn.Module, loss: LossFunction, targets: Any) -> nn.Module:
    """The model with the same parts that returns its loss: of one that takes derivatives of its outputs, say."""
    judge = copy.copy(model)
    judge.forward = lambda *args, **kwargs: loss(type(model).forward(judge, *args, **kwargs), targets)
    return judge
