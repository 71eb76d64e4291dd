"""The terms of a loss, told by how it changes with its outputs: sums beside means, penalties, divergences of codes from
a normal distribution; and outputs that are not what it takes them for, as the log-determinant of a normalising flow.
"""

import math
import re
from collections.abc import Callable, Iterator
from contextlib import suppress

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge

from hessdiag.data.batch import IGNORED, Batch, Layout
from hessdiag.derivatives.losses import CrossEntropy, Loss, MeanSquaredError
from hessdiag.derivatives.targets import class_dimension, sums_to_one
from hessdiag.diagnosis.checks import differentiable, moved
from hessdiag.diagnosis.loss_calls import Calls
from hessdiag.diagnosis.roles import Bound, alike, dim_of, joined_at, unchanged
from hessdiag.errors import HessdiagError
from hessdiag.network.torch_state import fixed_statistics
from hessdiag.network.trace import Node, gradients_of, parents_of, walk
from hessdiag.results.numbers import short

NEAR = 0.01  # relative, of numbers that are computed in two ways
NOISES = 3  # random vectors like the outputs, beside the first
TRIALS, FASTER, SLOWER = 40, 1.5, 0.5
ANY_FALL = 3.0  # of a fall over half of the way, more than in proportion
FEW, WIDE, MANY = 4, 64, 8  # examples; dimensions of a flow; targets
REACHED = 30.0  # by confident logits
CLEARLY, ALIKE, EXACT = 0.01, 0.1, 1e4  # log-determinants, how near, relative, and how Jacobians are conditioned


def noise_like(y: Tensor, batch: Batch, number: int = 0) -> Tensor:
    """Draw normal numbers like the outputs (B, *out) of a batch; an example's are the same in whatever batch it is."""
    generators = [torch.Generator().manual_seed(example * (NOISES + 1) + number) for example in batch.numbers]
    return torch.stack([torch.randn(y.shape[1:], generator=each) for each in generators]).to(y)


def descended(of: Callable[[Tensor], Tensor], start: Tensor, enough: float = -math.inf) -> tuple[float, Tensor]:
    """The least loss, or one that is enough, and its outputs, by steps along the signs of the gradient (Rprop)."""
    least, best, at = math.inf, start, start
    step, before = 0.1 * start.abs().clamp(min=1.0), torch.zeros_like(start)
    for _ in range(TRIALS):
        value, slope = with_slope(of, at)
        if not bool(value.isfinite()) or not bool(slope.isfinite().all()):
            at, step, before = best, step * SLOWER, torch.zeros_like(start)
            continue
        least, best = min((least, best), (float(value), at), key=lambda pair: pair[0])
        if least < enough:
            break
        step = torch.where(slope * before < 0, step * SLOWER, step * FASTER)
        at, before = at - step * slope.sign(), slope
    return least, best


def with_slope(of: Callable[[Tensor], Tensor], at: Tensor) -> tuple[Tensor, Tensor]:
    """A loss of some outputs, and its gradient there."""
    with torch.enable_grad():
        value = of(watched := at.clone().requires_grad_())
    if not value.requires_grad:
        return value, torch.zeros_like(at)
    return value.detach(), torch.autograd.grad(value, watched, materialize_grads=True)[0]


Of = Callable[[Tensor, Tensor | None], Tensor]


def are_inputs(part: Batch, dims: int | None = None) -> bool:
    """Whether the targets, of so many dimensions, are among the inputs."""
    told = part.targets
    return told is not None and dims in (None, told.dim()) and any(torch.equal(v, told) for v in part.leaves[:-1])


def pieces_of(part: Batch) -> list[slice]:
    """The columns of each tensor in outputs (B, N) that are of several; all where there is one."""
    return [c for c in part.output.columns if c.start < c.stop] if isinstance(part.output, Layout) else [slice(None)]


def classes_like(y: Tensor, targets: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Dimensions of outputs like y (B, *out) that may run over classes, targets in these, and as levels, 1 up to it."""
    for dim in {1, y.dim() - 1} - {0} if not targets.is_floating_point() else ():
        others = y.shape[:dim] + y.shape[dim + 1 :]
        if others == targets.shape and bool(((targets >= 0) & (targets < y.shape[dim])).all()):
            ones = nn.functional.one_hot(targets.long(), y.shape[dim]).movedim(-1, dim).to(y)
            yield dim, ones, ones.flip(dim).cumsum(dim).flip(dim)


def normalised(y: Tensor, part: Batch) -> bool:
    """Whether vectors in the outputs, or in each of several, all have the same length."""
    pieces = (y[..., piece] for piece in pieces_of(part))
    rows = [each for each in pieces if each.numel()]
    return len(y) > 1 and all(each.shape[-1] > 1 and alike(each.norm(dim=-1)) for each in rows)


def are_fractions(y: Tensor) -> bool:
    """Whether all numbers are from 0 to 1."""
    return float(y.min()) >= 0 and float(y.max()) <= 1


def summed(loss: Loss, y: Tensor, part: Batch) -> float:
    """The gradient in tensors that a loss sums over examples over that in others, of which it takes means; else 0."""
    pieces, found = pieces_of(part), {1: 0.0, 2: 0.0}
    if len(pieces) < 2 or part.as_one:
        return 0.0

    def slope(times: int) -> Tensor:
        theirs = None if part.targets is None else torch.cat([part.targets] * times)
        return with_slope(lambda z: loss.of_all(z, theirs), torch.cat([y] * times))[1].double()

    with suppress(Exception):  # a loss of the user's, of as many examples as it was made for
        one, two = slope(1), slope(2)
        for piece in pieces:
            felt, again = (float((each[-len(y) :][..., piece] * y[..., piece]).sum()) for each in (one, two))
            times = 2 * again / felt if felt else 0.0
            if (whole := round(times)) in found and abs(times - whole) < NEAR:
                found[whole] = max(found[whole], float(one[..., piece].abs().sum()))
        return found[2] / found[1] if found[1] else 0.0
    return 0.0


def outweighs(loss: Loss, y: Tensor, part: Batch, given: Tensor, bound: Bound, root: Node) -> float:
    """What a nat costs each example in a divergence KL(N(m, s²) ‖ N(0, 1)) of codes, over what the first principal
    component of the targets gains: above 2 no code of a linear VAE pays (Lucas et al. 2019, arXiv:1911.02469). Which
    columns of the outputs are m and s is told by gradients: in proportion to m, and to s − 1/s, or as of log s or log
    s². NaN where there are none such, infinity where a term without targets falls without end.
    """

    def of(z: Tensor) -> Tensor:
        return loss.of_all(bound(z), part.targets)

    def weight(shape: Tensor) -> Tensor:
        each = (slopes / shape).flatten(0, 1)  # the same for all examples, twice
        return torch.where((each - each[0]).abs().amax(0) < NEAR * each[0].abs(), each[0], math.nan)

    with suppress(Exception):  # a loss of the user's, of outputs that it was not made for
        if _falls(loss, y, part, given, bound, root):
            return math.inf
        z = torch.stack([noise_like(y, part, number).abs() + NEAR for number in range(2)])
        slopes = torch.stack([with_slope(of, each)[1] for each in z])
        means = weight(z)
        for spreads in map(weight, (z - 1 / z, z.exp() / 2 - 0.5, (2 * z).exp() - 1)):
            each = float(spreads.nanmedian())
            m, s = ((c - each).abs() < NEAR * each for c in (means, spreads))
            if bool(s.any()) and int(m.sum()) == int(s.sum()):
                least, _ = descended(lambda z, held=m | s | given: of(torch.where(held, y, z)), y)  # type: ignore[misc]
                gains = (float(of(y).detach()) - least) * _first_component(part.targets)
                return len(y) * each / gains if gains > 0 else math.nan
    return math.nan


def _first_component(targets: Tensor | None) -> float:
    """The share of the variance of targets (B, *shape) in their first principal component; 1 where there is one."""
    if targets is None or not targets.is_floating_point() or not bool((apart := targets - targets.mean(0)).any()):
        return 1.0
    squares = torch.linalg.svdvals(apart.flatten(1).double()).square()
    return float(squares[0] / squares.sum())


def _falls(loss: Loss, y: Tensor, part: Batch, given: Tensor, bound: Bound, root: Node) -> bool:
    """Whether a term without targets falls without end; a target is what no weight made, or an equation's residual."""
    whole = pieces_of(part)
    pieces = [piece for piece in whole if not bool(given[..., piece].all())]
    ends = dict(zip([piece.start for piece in whole], joined_at(root, len(whole)), strict=False))
    if part.targets is None or len(pieces) < 2:
        return False
    noise, others = noise_like(y, part), torch.where(given, y.roll(1, 0), y)

    def of(some: list[slice], z: Tensor, base: Tensor = y, targets: Tensor | None = part.targets) -> Tensor:
        moved = base.clone()
        for piece in some:
            moved[..., piece] = z
        return loss.of_all(bound(moved), targets)

    def slope(piece: slice, *there: Tensor) -> Tensor:
        return with_slope(lambda z: of([piece], z, *there), noise[..., piece])[1]

    start = float(loss.of_all(bound(y), part.targets).detach())
    slopes = [(piece, slope(piece), slope(piece, others, part.targets.roll(1, 0))) for piece in pieces]
    told = [piece for piece, one, other in slopes if not torch.equal(one, other)]
    made_of = {node for piece in told if (end := ends.get(piece.start)) for node in walk(end, parents_of)}
    free = [piece for piece, one, other in slopes if torch.equal(one, other) and bool(one.any())]
    for piece in (p for p in free if (end := ends.get(p.start)) and {*unchanged(end)} & made_of):
        them = [other for other in free if y[..., other].shape == y[..., piece].shape]  # a distance?
        far = [float(of(them, n * noise[..., piece]).detach()) for n in (3, 6, 12)]
        one, two, up, higher = (float(of([piece], y[..., piece] + n).detach()) - start for n in (-6, -12, 6, 12))
        falls = one < 0 and abs(two - 2 * one) < -one / 4 and higher > ANY_FALL * up > 0
        if falls or ANY_FALL * max(far[0] - far[1], 0.0) < far[1] - far[2] < math.inf:
            return True
    return False


def tell_outputs(calls: Calls, model: nn.Module, part: Batch, y: Tensor, own: Tensor, loss: Loss) -> None:
    """Tell of outputs that are not what the loss takes them for: shares over other axes, and a flow's numbers."""
    _tell_axes(calls, y, part.targets)
    _tell_one_class(calls, y, part.targets)
    _tell_several_classes(calls, y, part, loss)
    _tell_volume(calls, model, part, own, loss)
    at = y.detach()
    if calls.logs == {False}:
        _tell_exchanged(calls, loss, at, part.targets)
    if not (isinstance(loss, CrossEntropy | MeanSquaredError) or normalised(at, part)):
        _tell_overflow(calls, loss, at, part)


def _tell_one_class(calls: Calls, y: Tensor, targets: Tensor | None) -> None:
    """Tell of classes, of which a layer writes several, that are the same for all of many examples."""
    *_, node = unchanged(y.grad_fn)
    if targets is None or targets.is_floating_point():
        return
    counted = targets[targets != IGNORED]
    written = "Addmm|Convolution|Mm" if targets.dim() > 1 else "Addmm|Convolution"  # no similarities
    several = re.match(written, node.name()) and node._input_metadata[0].shape[1] > 1
    count = counted.numel() // 8 if targets.dim() == 2 else len(targets)  # of positions more are alike
    if not several or count < MANY or not counted.numel():
        return
    low, high = map(int, counted.aminmax())
    if low == high:
        what = f"All {counted.numel()} targets are class {low}: the loss asks for no input."
        calls.tell(what, "Shuffle the data, and look at how the targets are made, as for a division by 255.")


def _tell_overflow(calls: Calls, loss: Loss, y: Tensor, part: Batch) -> None:
    """Tell of a loss that is not finite for outputs, or those like the targets, of a size that training reaches."""
    told, one = part.targets, len(pieces := pieces_of(part)) == 1
    for piece in (p for p in pieces if one or (told is not None and told.numel() == y[..., p].numel())):
        far, z = y.clone(), y[..., piece]
        far[..., piece] *= REACHED / max(float(z.abs().max()), 1e-30)
        if are_fractions(z):
            continue
        with suppress(Exception):  # of a loss of the user's
            if math.isfinite(float(loss.of_all(far, told).detach())):
                continue
            what = f"The loss is not finite where outputs reach {REACHED:.0f}: a logarithm or a ratio of zeros."
            calls.tell(what, "Take logarithms of logits: `log_softmax`, `logsigmoid`, `logsumexp`; or clamp.")


def _tell_exchanged(calls: Calls, loss: Loss, y: Tensor, targets: Tensor | None) -> None:
    """Tell of a loss that is a product of the outputs with logarithms of numbers that these have no part in."""
    with suppress(Exception):  # of a loss of the user's
        less, once, more = (float(loss.of_all(n * y, targets).detach()) for n in (1 / 64, 1, 64))
        if abs(less * more - once**2) < NEAR * once**2 and abs(once) > abs(less) > 0:
            what = "The loss takes logarithms of the targets and none of the outputs: they have changed places."
            calls.tell(what, "Pass outputs and targets in the order in which the loss asks for them.")


def _tell_several_classes(calls: Calls, y: Tensor, part: Batch, loss: Loss) -> None:
    """Tell of a softmax beside targets (B, C) of 0 and 1 with several ones, by its gradient, unless they are inputs."""
    told = part.targets
    if told is None or told.dim() != 2 or told.shape != y.shape or not bool(((told == 0) | (told == 1)).all()):
        return
    several = told.is_floating_point() and int(told.sum(1).max()) > 1
    with suppress(Exception):  # a loss of the user's, of outputs that it was not made for
        if several and not are_inputs(part):
            z = noise_like(y, part)
            own = z.softmax(1) * told.sum(1, keepdim=True) - told
            slope = with_slope(lambda z: loss.of_all(z, told), z)[1]
            apart = slope - own * (slope * own).sum() / own.square().sum()
            if float(apart.abs().max()) < NEAR * float(slope.abs().max()):
                what = "The loss takes a softmax over classes of which an example has several: they compete."
                calls.tell(what, "Take `F.binary_cross_entropy_with_logits`: a yes or no for each class.")


def _tell_axes(calls: Calls, y: Tensor, targets: Tensor | None) -> None:
    """Tell of a softmax at the end over another dimension than the classes'."""
    *_, node = unchanged(y.grad_fn)
    sized = re.match("(Log)?SoftmaxBackward", node.name()) and node._saved_result.shape == y.shape
    with suppress(HessdiagError):  # of targets that are no classes
        if targets is not None and sized and y.dim() > 2:
            own = dim_of(node)
            dim = class_dimension(y, targets, usual=own)
            if own != dim and (not targets.is_floating_point() or sums_to_one(targets, dim)):
                what = f"The softmax at the end runs over dimension {own} of the outputs, where classes are in {dim}."
                calls.tell(what, f"Take it over the classes: `dim={dim}`.")


def _tell_volume(calls: Calls, model: nn.Module, part: Batch, own: Tensor, loss: Loss) -> None:
    """Tell of what a normalising flow returns: z (B, D), of inputs of as many numbers, and a number for each example.
    Where that is log |det ∂z/∂x| or its opposite, at other weights, the loss has to fall with the former; where it is
    neither, a loss that is Σz²/2 less it, by its gradients, takes it for that. `own` are the gradients, (B, N).
    """
    few, floats, edges = differentiable(part.narrow(0, FEW))
    sizes, pieces = [math.prod(value.shape[1:]) for value in floats], pieces_of(part)
    if own.dim() == 2 and own.shape[1] - 1 in sizes and len(pieces) == 1:  # joined in one tensor
        pieces = [slice(own.shape[1] - 1), slice(own.shape[1] - 1, own.shape[1])]
    widths = [own[:1, piece].numel() for piece in pieces]
    maps = [w for w in widths if 1 < w <= WIDE and widths.count(w) == sizes.count(w) == 1]
    for width in maps if 1 in widths else ():
        z, number, noise = pieces[widths.index(width)], pieces[widths.index(1)], noise_like(own, part)
        with suppress(Exception), torch.enable_grad(), fixed_statistics(), moved(model, 0):
            y = few.call(model)
            cotangents = torch.zeros(width, *y.shape).to(y)
            cotangents[range(width), :, range(z.start or 0, z.stop)] = 1
            rows = gradients_of(y, [edges[sizes.index(width)]], cotangents, is_grads_batched=True)[0]
            slope = with_slope(lambda z: loss.of_all(z, part.targets), noise)[1]
            counted = -slope[:, number] * noise[:, z] / slope[:, z]  # how often log |det ∂z/∂x|, beside Σz²/2
            weight = float(counted.mean()) if torch.allclose(counted, counted.mean(), rtol=NEAR) else math.nan
            jacobian = rows.flatten(2).movedim(1, 0).double()  # (B, D, D)
            _tell_map(calls, jacobian, y.detach()[:, number].squeeze(1), own[:, number], weight)
    if own[:1].numel() == len(sizes) == 1 < sizes[0] <= WIDE:
        _tell_density(calls, model, few, edges, floats[0].shape, own.flatten())


def _tell_density(
    calls: Calls, model: nn.Module, few: Batch, edges: list[GradientEdge], shape: torch.Size, own: Tensor
) -> None:
    """The same of a log-density, or its opposite, of inputs of a shape (B, D): -Σz²/2 + log |det ∂z/∂x|, with the one
    square of such a shape, and with the normal distribution's constant or without. `own` are the gradients there, (B,).
    """
    with suppress(Exception), torch.enable_grad(), fixed_statistics(), moved(model, 0):
        y, width = few.call(model).flatten(), math.prod(shape[1:])
        powers = (each for each in walk(y.grad_fn, parents_of) if each.name().startswith("Pow"))
        (square,) = (each for each in powers if each._saved_exponent == 2 and each._saved_self.shape == shape)
        share = -2 * gradients_of(y, [GradientEdge(square, 0)], torch.ones_like(y))[0].mean()
        number = y.detach() / share + square._saved_self.detach().square().sum(1) / 2
        cotangents = torch.eye(width).to(y).unsqueeze(1).expand(-1, len(y), -1)
        (rows,) = gradients_of(GradientEdge(*square.next_functions[0]), edges, cotangents, is_grads_batched=True)
        for constant in (0.0, width * math.log(2 * math.pi) / 2):
            _tell_map(calls, rows.movedim(1, 0).double(), number + constant, own * share, math.nan)


def _tell_map(calls: Calls, jacobian: Tensor, number: Tensor, slope: Tensor, weight: float) -> None:
    """The same of a map with Jacobians (B, D, D), numbers (B,), the slopes of the loss in these, and their `weight`."""
    volume = torch.linalg.slogdet(jacobian).logabsdet
    clear = (volume.abs() > CLEARLY) & (torch.linalg.cond(jacobian) < EXACT)
    if not bool(clear.any()):
        return
    signs = [sign for sign in (1, -1) if bool(((number - sign * volume).abs() < ALIKE * volume.abs())[clear].all())]
    copies = (((jacobian != 0).sum(2) == 1) & (jacobian.amax(2) == 1)).all(0)  # (D,)
    if signs and bool((slope * signs[0] > 0).all()):
        what = "The loss rises with the log-determinant of the map: it falls without end as volumes shrink."
        calls.tell(what, "Change its sign: the density of x is that of z times |det ∂z/∂x|.")
    elif signs and 4 * int(copies.sum()) >= len(copies) and bool((slope * signs[0] < 0).all()):
        what = f"The map leaves {int(copies.sum())} of its {len(copies)} numbers as they come in, in all of its layers."
        calls.tell(what, "Alternate what couplings change: swap the halves, or permute, in between.")
    elif not signs and abs(weight - 1) < NEAR and bool((slope < 0).all()):
        what = "What the model returns beside z is not the log-determinant of its map, for which the loss takes it."
        calls.tell(what, "Compare it with `torch.autograd.functional.jacobian`, layer by layer.")
    elif signs and abs(math.log2(abs(weight))) >= 1:
        what = f"The loss counts the log-determinant {short(abs(weight))} times, where Σz²/2 counts once."
        calls.tell(what, "Take the same mean or sum of both: log p(x) = log p(z) + log |det ∂z/∂x|.")
