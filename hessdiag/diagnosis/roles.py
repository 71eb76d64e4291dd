"""What each layer is for, read off the autograd graph: where its output goes, and what happens to it there.

From the node of a layer's output the graph is followed to its consumers, through nodes that only change the shape,
products with scalars or parameters, and biases, until something else comes: for whatever autograd can differentiate.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import reduce
from itertools import accumulate, product
from operator import mul

import torch
import torch.nn.functional as F
from torch import Tensor

from hessdiag.derivatives.targets import sums_to_one
from hessdiag.network.trace import Node, parents_of, walk

FLAT = 0.99  # of the range of a tanh or sigmoid
ROUNDINGS = 8  # of one number

_TRANSPARENT = re.compile(
    r"(View|UnsafeView|Reshape\w*|Transpose|T|Permute|Expand|Slice|Squeeze|Unsqueeze|Clone|Alias|Split|SplitWithSizes"
    r"|Select|ToCopy|Copy|CopySlices|NativeDropout|Unbind|Chunk|Index|Mean|MaxPool2DWithIndices|AvgPool2D|Stack"
    r"|AdaptiveAvgPool2D|Neg|Cat|Roll|Unfold)Backward\d*"
)
_NONLINEARITIES = {
    "Relu": "relu", "Gelu": "gelu", "Silu": "silu", "Tanh": "tanh", "Sigmoid": "sigmoid", "Sin": "sin", "Elu": "elu",
    "LeakyRelu": "leaky_relu", "Hardtanh": "relu6", "Softplus": "softplus", "Softmax": "softmax", "Glu": "gate",
    "LogSigmoid": "softplus", "Exp": "exp",
}  # fmt: skip

_LOOKUP = re.compile(r"(Embedding|Index|Gather)")
_LAYER = re.compile(r"\w*(Conv|Rnn|Lstm|Gru|Trilinear|Linear)")  # what they read comes first
_PRODUCT = re.compile(r"(Bmm|Mm|Addmm|Baddbmm)Backward\d*")
_REPEATS = re.compile(r"(Expand|Cat|Stack)")
_VIEW = re.compile(r"(UnsafeView|View|ReshapeAlias)Backward")
_DENSE = re.compile(r"(Addmm|Mm)Backward")
_POOLS = re.compile(r"(Max|Min|Amax|Amin|Mean)Backward")
_KEEPS_AXES = re.compile(r"(\w*Relu|P?Elu|Gelu|Silu|Tanh|Softplus|Hard|\w*BatchNorm|NativeDropout|Expand)")
_TURNS = re.compile(r"(Permute|Transpose)")
_JOINS = re.compile(rf"(Add|Sub|Cat|Stack|Where|\w*Norm)Backward|{_PRODUCT.pattern}|{_LAYER.pattern}")  # data, perhaps
LOG, DISTANCE, SCALED = "LogSoftmax", "distance", "scaled"


class Graph:
    """The autograd graph behind one output, with the nodes that normalisations read."""

    def __init__(self, root: Node, norms: Collection[Node], leaves: Collection[Node]) -> None:
        self.root, self.norms = root, norms
        self.consumers: dict[Node, list[tuple[Node, int]]] = defaultdict(list)
        for node in walk(root, parents_of):
            for position, (parent, _) in enumerate(node.next_functions):
                if parent is not None:
                    self.consumers[parent].append((node, position))
        self.constant = self._constant(leaves)

    def _constant(self, leaves: Collection[Node]) -> set[Node]:
        """Nodes that were computed from parameters alone."""
        unknown: dict[Node, int] = {}
        found, ready = set(leaves), list(leaves)
        while ready:
            for after, _ in self.consumers.get(ready.pop(), ()):
                unknown[after] = unknown.get(after, len(parents_of(after))) - 1
                joins = _JOINS.match(after.name()) and any(parent is None for parent, _ in after.next_functions)
                if not unknown[after] and not joins and not _LOOKUP.match(after.name()):
                    found.add(after)
                    ready.append(after)
        return found

    def counting(self) -> set[Node]:
        """Nodes that reach the outputs elsewhere than through attention to one key, whose weight is 1."""
        return {*walk(self.root, lambda node: [] if _is_of_one(node) and _products(self, node) else parents_of(node))}

    def uses_of(self, leaf: Node) -> set[str]:
        """What the network does with a parameter: see `hessdiag.results.signals.ParameterSignals`. The parameter is
        followed through whatever is made of parameters alone and is no larger than it, such as a transposed or
        standardised weight. A gain that multiplies this weight is smaller, and so is none.
        """
        uses: set[str] = set()

        def onwards(node: Node) -> list[Node]:
            found = []
            for after, position in self.consumers.get(node, ()):
                factors = [parent for parent, _ in after.next_functions] if after.name().startswith("Mul") else []
                gains = len(factors) > 1 and not _scaled_by(after) and factors[1 - position] not in self.constant
                if gains and (node is leaf or passes_unchanged(node)):
                    uses.update({"branch"} if "add" in self.role_of(after)[0] else ())
                elif self._multiplies(after, position):
                    uses.update({"product"}, {"output"} & self.role_of(after)[0])
                    uses.update({"convolution"} if "Conv" in after.name() else ())
                elif _LOOKUP.match(after.name()):
                    uses.add("lookup")
                elif after.name().startswith("Add") and after not in self.constant:
                    uses.add("sum")
                elif after in self.constant and not _PRODUCT.fullmatch(after.name()) and _keeps_size(node, after):
                    found.append(after)
            return found

        for _ in walk(leaf, onwards):
            pass
        return uses

    def _multiplies(self, node: Node, position: int) -> bool:
        """Whether a node is a matrix product or convolution, and what it reads at this position is the weight in it."""
        if _LAYER.match(node.name()):
            return position > 0
        if not _PRODUCT.fullmatch(node.name()):
            return False
        first = len(node.next_functions) - 2  # of the factors; a summand stands before them
        return position > first or (position == first and node.next_functions[-1][0] not in self.constant)

    def role_of(self, start: Node) -> tuple[set[str], dict[str, float]]:
        """Follow the output that a node wrote: labels and numbers of `LayerSignals`."""
        *_, end = unchanged(start)  # a module may have a nonlinearity there
        labels, numbers = set[str](), _what_it_did(end, _NONLINEARITIES.get(_operation(end.name()), ""))

        def onwards(node: Node) -> list[Node]:
            return [o for o, position in self.consumers[node] if self._passes(o, position, start, labels, numbers)]

        for node in walk(start, onwards):
            if node is self.root:
                labels.add("output")
            if node in self.norms:
                labels.add("norm")
        return labels, numbers

    def _passes(self, after: Node, position: int, start: Node, labels: set[str], numbers: dict[str, float]) -> bool:
        """Whether the output goes on through a consumer; else the consumer's label is noted."""
        name = after.name().removeprefix("torch::autograd::")
        kind = _NONLINEARITIES.get(_operation(name))
        if re.match(r"(Native|Cudnn|Miopen)BatchNorm|NativeLayerNorm|NativeGroupNorm|FusedRmsNorm", name):
            labels.add("norm")
            return "BatchNorm" in name  # the others are called as functions
        if kind:
            idle = _is_idle(after, kind)
            selu = kind == "elu" and getattr(after, "_saved_scale", 1.0) != 1.0  # ELU's node, with a scale
            labels.add("idle" if idle else "selu" if selu else kind)
            numbers |= {} if kind == "relu" and "norm" in labels else _what_it_did(after, kind)
            return idle
        if _TRANSPARENT.fullmatch(name):
            labels.update({"max"} if name.startswith("MaxPool") else ())
            return True
        factor = _PRODUCT.fullmatch(name) and position == len(after.next_functions) - 2
        linear = factor and not self._multiplies(after, position) and _writes_linearly(start)
        if linear or ("idle" in labels and _LAYER.match(name) and not position):
            labels.add("linear")
        if not re.fullmatch(r"(Add|Sub|Mul|Div)Backward\d", name):
            return False
        others = [p for i, (p, _) in enumerate(after.next_functions) if p is not None and i != position]
        if not others or others[0] in self.constant:
            return True
        if name.startswith(("Mul", "Div")):
            labels.add("gate")
            return False
        oldest = start._sequence_nr()  # what is older cannot have been computed from it
        both = start in walk(others[0], lambda n: [p for p in parents_of(n) if p._sequence_nr() >= oldest])
        labels.add("self-add" if both else "add")
        return both


def _keeps_size(node: Node, after: Node) -> bool:
    """Whether a node wrote no more numbers than the one before it, unless as one of several or as copies."""
    before, behind = (sum(math.prod(each.shape) for each in n._input_metadata) for n in (node, after))
    return behind <= before or _REPEATS.match(after.name()) is not None


def _operation(name: str) -> str:
    """What a node of this name is the backward pass of."""
    return re.sub(r"Backward\d*$", "", name)


def passes_unchanged(node: Node) -> bool:
    """Whether a node only changes the shape."""
    return _TRANSPARENT.fullmatch(node.name()) is not None


def _writes_linearly(node: Node) -> bool:
    """Whether what a module wrote is a product with its weight, and no function of one: its own activation, say."""
    while (passes_unchanged(node) or _scaled_by(node)) and len(parents_of(node)) == 1:
        node = parents_of(node)[0]
    bent = any(_operation(each.name()) in _NONLINEARITIES for each in parents_of(node))  # of summands
    return re.match(rf"{_PRODUCT.pattern}|{_LAYER.pattern}" + "|Add|Sub" * (not bent), node.name()) is not None


def _is_idle(node: Node, kind: str) -> bool:
    """Whether a nonlinearity gives back all that it reads: a slope of 1, or a ReLU of what is all positive."""
    if kind == "leaky_relu":
        return float(node._saved_negative_slope) == 1.0
    result = node._saved_result.detach() if kind == "relu" else None
    return result is not None and bool((result[:1] > 0).all()) and bool((result > 0).all())


def _what_it_did(node: Node, kind: str) -> dict[str, float]:
    """What a nonlinearity did, from the tensor that it saved for its backward pass."""
    if kind == "relu":  # of what was added behind the layer, too
        return {"on_share": int((node._saved_result.detach() > 0).count_nonzero()) / max(node._saved_result.numel(), 1)}
    if kind == "sin":
        return {"phase_rms": float(node._saved_self.detach().square().mean().sqrt())}
    if kind in ("tanh", "sigmoid"):
        result = node._saved_result.detach()
        result = result if kind == "tanh" else 2 * result - 1
        return {"saturated": float((result.abs() > FLAT).to(result.dtype).mean())}
    return {}


NEARLY_ALL, MOSTLY_INSIDE = 0.99, 0.5  # of a row's weight; of the places that are sampled
CLOSE = 1e-3  # of norms to each other
_SOFTMAX = re.compile(r"(Safe)?SoftmaxBackward\d*")
_SHIFTS = r"(Add|Sub|Mul|Div|MaskedFill|Where|Index)\w*Backward"  # scores, or scales or masks them


def attentions(
    graph: Graph, layers: Mapping[Node, str], owners: Mapping[int, str], inputs: Sequence[Tensor]
) -> Iterator[tuple[list[str], float, set[str]]]:
    """Every softmax whose result is multiplied by a matrix, which a router's or a classifier's is not.

    `layers` has the path of the layer that wrote at a node, `owners` that of a matrix's module; `inputs` are (B, *in).

    Yields:
        The paths of what makes its argument, the layers of query and key or the module that multiplies by a matrix of
        its own, as `nn.MultiheadAttention` does; the share of the rows that put nearly all weight on one of several
        keys; labels: "astray" where its weights sum to 1 over another dimension than the one that is mixed,
        "one key" where there is no other, "padding" where it hides all that is none.
    """
    softmaxes = [each for each in graph.consumers if _SOFTMAX.fullmatch(each.name()) and each not in graph.constant]
    for node in softmaxes:
        if products := _products(graph, node):
            result, peaked = node._saved_result.detach(), math.nan
            rows = result.movedim(dim_of(node), -1) if result.dim() > 2 else result[:0]
            rows = rows[(rows > 0).sum(-1) > 1]  # a mask may leave a row a single key
            if rows.numel() and _multiplies(node):
                peaked = float((rows.amax(-1) > NEARLY_ALL).double().mean())
            one_key = any(weights is not None and weights.shape[-1] == 1 for weights in products)
            labels = {"one key"} if one_key else {"astray"} if any(map(_is_astray, products)) else set()
            labels |= {"padding"} if any(_sees_padding(result, each) for each in inputs) else set()
            yield written_by(node, layers, owners), peaked, labels


def _multiplies(softmax: Node) -> bool:
    """Whether what a softmax reads was multiplied, as queries by keys, and is not a distance, meant to be sharp."""
    read = (node for each in parents_of(softmax) for node in _behind(each, _SHIFTS))
    return any(_PRODUCT.fullmatch(node.name()) for node in read)


def _sees_padding(weights: Tensor, tokens: Tensor) -> bool:
    """Whether weights (B · heads, ..., queries, T) are above zero where tokens (B, T, ...) are alike, and no others."""
    if tokens.dim() < 2 or weights.dim() < 3 or weights.shape[-1] != tokens.shape[1] or len(weights) % len(tokens):
        return False
    shown = weights > 0
    seen = shown.reshape(len(tokens), -1, tokens.shape[1]).any(1)
    last = shown[..., -1, :].reshape(len(tokens), -1, tokens.shape[1]).all(1)  # of no head that one key rules
    some = seen.any(1) & ~seen.all(1) & (seen == last).all(1)  # a mask that hides all may be none
    told, left = tokens[some][seen[some]], tokens[some][~seen[some]]
    return len(told) > 0 and bool((told == told[0]).all()) and not bool((left == left[0]).all())


def _is_of_one(node: Node) -> bool:
    sized = _SOFTMAX.fullmatch(node.name()) and node._saved_result.dim()
    return bool(sized and node._saved_result.shape[dim_of(node)] == 1)


def _products(graph: Graph, start: Node) -> list[Tensor | None]:
    """A result as matrix products take it, reshaped, with the dimension that they sum over last; else None."""

    def unchanged(node: Node) -> list[Node]:  # or masked
        after = [each for each, _ in graph.consumers[node]]
        return [o for o in after if passes_unchanged(o) or (o.name().startswith("Mul") and len(parents_of(o)) == 1)]

    after = [each for node in walk(start, unchanged) for each in graph.consumers[node]]
    places = [(node, place) for node, place in after if _PRODUCT.fullmatch(node.name())]
    kept = [(getattr(node, {0: "_saved_self", 1: "_saved_mat2"}.get(place, ""), None), place) for node, place in places]
    weighing = [getattr(node, "_saved_self", None) if place == 1 else None for node, place in places]
    kept = [each for each, w in zip(kept, weighing, strict=True) if w is None or not sums_to_one(w, -1)]
    return [None if w is None else w.detach().mT if place else w.detach() for w, place in kept]


def _is_astray(weights: Tensor | None) -> bool:
    """Whether weights sum to 1 along the dimension that a product keeps, and not along the one that it sums over."""
    if weights is None or weights.dim() < 2 or 1 in weights.shape[-2:]:
        return False
    return sums_to_one(weights, -2) and not sums_to_one(weights, -1)


def mixing_views(graph: Graph, examples: int) -> list[Node]:
    """The views in a graph that mix axes."""
    return [node for node in (graph.root, *graph.consumers) if _mixes_axes(graph, node, examples)]


def _mixes_axes(graph: Graph, view: Node, examples: int) -> bool:
    """Whether a view does what looks like a transposition, and is none: axes are joined out of order, or change places,
    or one passes a factor of the last, as heads do that are split off. One that skews has a padding or slice beside it.
    """
    if not _VIEW.match(view.name()) or 0 in view._saved_self_sym_sizes:
        return False
    around = [*(node.name() for node in parents_of(view)), *("to " + node.name() for node, _ in graph.consumers[view])]
    if any(re.match(r"(to )?(Slice|ConstantPadNd|AsStrided)Backward|CatBackward", name) for name in around):
        return False
    both = (view._saved_self_sym_sizes, view._input_metadata[0].shape)
    before, after = ([n for n in sizes if n > 1] for sizes in both)
    one, other = (set(accumulate(reversed(sizes), mul)) for sizes in (before, after))
    between = [[c for c in one & other if min(a, b) < c < max(a, b)] for a in one - other for b in other - one]
    ordered = before[:1] == [examples] and examples not in before[1:]  # and axes can be told from each other
    read = _transposed(view)  # as anchors are split off channels that were moved last
    ordered = ordered and not (_moves_examples(read) or (_moves_last(read) and before[-1] % after[-1] == 0))
    first = before[:1] != [examples] == after[:1] and before.count(examples) == 1
    told = first or (ordered and len(after) <= len(before))  # (heads, nodes, width) as (nodes, heads · width)
    if told and not other <= one and _names_axes(before, after):
        return True
    places = [before[:1] + before[:0:-1], [*after[:2], math.prod(after[2:])]]  # (B, H · W, C) as (B, C, H, W)
    if ordered and len(before) == 3 < len(after) and places[0] == places[1] and before[1] != before[2]:
        readers = [node for node, _ in graph.consumers[view]]
        readers += [other for node in readers if _VIEW.match(node.name()) for other, _ in graph.consumers[node]]
        return not readers or any(node.name().startswith("Convolution") for node in readers)
    split = after[:1] == [examples] and examples not in before and len(before) < len(after)
    if split and not one <= other and _names_axes(after, before):  # (B · T, C, H) as (B, C, T, H)
        return True
    limits = [(max((c for c in one if c < b), default=1), min(c for c in one if c > b), b) for b in other - one]
    if any(b % low or high % b for low, high, b in limits):  # an axis is cut across
        return True
    if all(between) or min(len(before), len(after)) < 3:  # each axis is split or joined alone
        return False
    short, long = sorted((before[-1], after[-1]))
    return bool(before[-2] == after[-2] and short < long and long % short == 0)


def _transposed(view: Node) -> Node | None:
    read = next(iter(parents_of(view)), view)
    return _transposed(read) if read.name().startswith("Clone") else read if _TURNS.match(read.name()) else None


def _moves_examples(turn: Node | None) -> bool:
    """Whether a transposition had another axis first before, as of (examples · heads, positions, width)."""
    first = getattr(turn, "_saved_dims", (0,))[0]
    return bool(first) or 0 in (getattr(turn, "_saved_dim0", 1), getattr(turn, "_saved_dim1", 1))


def _moves_last(turn: Node | None) -> bool:
    count = len(turn._input_metadata[0].shape) if turn is not None else 0
    if dims := getattr(turn, "_saved_dims", ()):
        return _axis(dims[-1], count) != count - 1
    return turn is not None and count - 1 in (_axis(turn._saved_dim0, count), _axis(turn._saved_dim1, count))


def _axis(saved: int, count: int) -> int:
    """A dimension of so many; torch shows negative ones as unsigned."""
    return ((saved + 2**63) % 2**64 - 2**63) % count


def _names_axes(before: Sequence[int], after: Sequence[int]) -> bool:
    """Whether axes are products of others, in whatever order: (B, C, T, H) as (B · T, C, H)."""
    places = product(range(len(after)), repeat=len(before))
    pairs = ([*zip(before, place, strict=True)] for place in places)
    return any(all(math.prod(n for n, at in each if at == i) == m for i, m in enumerate(after)) for each in pairs)


def shapes_of(view: Node) -> str:
    """What a view takes as what."""
    return f"{view._saved_self_sym_sizes} as {tuple(view._input_metadata[0].shape)}"


def endless_slopes(graph: Graph) -> Iterator[Node]:
    """Square roots of numbers of which some are zero, or as small as rounding, and that no constant keeps off zero; and
    arc cosines of numbers that a clamp lets be 1, as it does below 1 by less than rounding.
    """
    for node in (graph.root, *graph.consumers):
        clamps = parents_of(node) if node.name() in ("AcosBackward0", "AsinBackward0") else []
        for most in (getattr(clamp, "_saved_max", None) for clamp in clamps):
            if most is not None and torch.tensor(float(most), dtype=torch.float32) >= 1:
                yield node
        root = node._saved_result if node.name() == "SqrtBackward0" else None
        if root is not None and root.is_floating_point() and root.numel() > 1:
            (below,), (least, most) = parents_of(node), root.square().aminmax()
            kept = getattr(below, "_saved_min", None) or (below.name().startswith("Add") and not parents_of(below)[1:])
            squares = any(each.name().startswith("Pow") for each in _behind(below, "Sum|Mean|Index"))  # do not cancel
            if not kept and least <= (0 if squares else ROUNDINGS * torch.finfo(most.dtype).eps * most):
                yield node


def norms_of_places(graph: Graph) -> Iterator[Node]:
    """Norms over the channels alone of (B, C, H, W), less one, as of a penalty of gradients, which is of an example."""
    for node in (each for each in graph.consumers if each.name() == "SubBackward0" and len(parents_of(each)) == 1):
        *_, norm = unchanged(parents_of(node)[0])
        places = re.match(r"(LinalgVector)?NormBackward", norm.name()) and norm._saved_self.dim() > 3
        if places and getattr(norm, "_saved_dim", None) == (1,):
            yield norm


def squashed(graph: Graph) -> Iterator[Node]:
    """Softmaxes and sigmoids whose results go on as logits, as in a model that computes its own loss."""
    readers = {"LogSoftmax", "Logsumexp", "BinaryCrossEntropyWithLogits"}
    for reader in (graph.root, *graph.consumers):
        logits = _behind(reader, rf"({'|'.join(readers)}|Add)Backward\d*$")
        found = [*logits] if _operation(reader.name()) in readers else []
        if _SOFTMAX.fullmatch(reader.name()):  # a softmax of shares is nearly even
            found = [[*unchanged(parents_of(reader)[0])][-1]]
        for node in found:
            if _operation(node.name()) in ("Softmax", "Sigmoid") and node not in graph.constant:
                yield node


def outside(graph: Graph) -> Iterator[Node]:
    """What every `grid_sample` reads at places of which most are outside, beyond −1 to 1."""
    samples = [each for each in (graph.root, *graph.consumers) if each.name().startswith("GridSampler")]
    inside = [float((node._saved_grid.detach().abs() <= 1).all(-1).double().mean()) for node in samples]
    return iter(samples if max(inside, default=1.0) < MOSTLY_INSIDE else ())  # of windows some overhang


def pooled(graph: Graph) -> Iterator[Node]:
    """Maxima and means over a layer's channels, a number a position, where a dense layer reads these, or copies."""

    def onwards(node: Node) -> list[Node]:
        after = (each for each, _ in graph.consumers.get(node, ()))
        return [each for each in after if passes_unchanged(each) or _KEEPS_AXES.match(each.name())]

    for node in [each for each in (graph.root, *graph.consumers) if _POOLS.match(each.name())]:
        read, saved = parents_of(node)[0], getattr(node, "_saved_dim", None)
        sizes = read._input_metadata[0].shape
        dims = saved if isinstance(saved, tuple) else () if saved is None else (saved,)
        axes = [_axis(dim, len(sizes)) for dim in dims]
        left = [size for axis, size in enumerate(sizes) if axis and axis not in axes]
        if len(axes) == 1 and max(left, default=1) > 1 and axes[0] == _channel(read):
            kept = [*walk(node, onwards)]
            copied = any(each.name().startswith("Expand") for each in kept)
            read_by = [after.name() for each in kept for after, _ in graph.consumers.get(each, ())]
            if any(_DENSE.match(name) or (copied and name.startswith("Cat")) for name in read_by):
                yield node


def _channel(node: Node) -> int | None:
    """The axis of the channels in what a layer wrote, at most normalised and through activations; of others none."""
    sizes = node._input_metadata[0].shape
    while not re.match(r"\w*Conv", node.name()):
        before = [p for p in parents_of(node) if p._input_metadata and p._input_metadata[0].shape[:2] == sizes[:2]]
        if _VIEW.match(node.name()) and any(_DENSE.match(parent.name()) for parent in parents_of(node)):
            return len(sizes) - 1
        if not before or not re.match(rf"Add|Squeeze|{_KEEPS_AXES.pattern}|{_VIEW.pattern}", node.name()):
            return None
        node = before[0]
    return 1


NOTED = {"root": endless_slopes, "squashed": squashed, "outside": outside, "pooled": pooled}
Bound = Callable[[Tensor], Tensor]


def joined_at(root: Node | None, count: int) -> list[Node | None]:
    """What made each of several tensors that a node joins; nothing where it does not join so many."""
    ahead = [] if root is None else [parent for parent, _ in root.next_functions]
    if root is not None and root.name().startswith("Unsqueeze"):  # of a batch as one
        return joined_at(ahead[0], count)
    return ahead if len(ahead) == count > 1 else []


def ending(
    root: Node, y: Tensor, pieces: Sequence[slice], terms: Tensor | None = None
) -> tuple[tuple[str, ...], Bound | None]:  # fmt: skip
    """Names of the operations that bound the outputs y (B, *out), last first, and all of them as a function of free
    numbers (B, *out); or the name of what made the outputs, and None. Changes of shape are passed over. Of outputs that
    are joined of `pieces`, columns, each has its own, and the first names them; `terms` of a loss, (N,), have none.
    """
    if parts := joined_at(root, len(pieces)):
        free = [terms is not None and bool(terms[piece].all()) for piece in pieces]
        found = [_bounds(None if term else part) for part, term in zip(parts, free, strict=True)]

        def joined(z: Tensor) -> Tensor:
            each = zip(found, pieces, strict=True)
            return torch.cat([step(z[..., piece]) if step else z[..., piece] for (_, step), piece in each], -1)

        return next(((names, joined) for names, step in found if step), (("Cat",), None))
    *_, node = unchanged(root)
    last = _operation(node.name())
    if size := size_of_products(root):
        return ("cosine",), lambda z: size * (z / size).tanh()
    norms, scales = y.norm(dim=-1), bool(_scaled_by(node)) or getattr(node, "_saved_weight", None) is not None
    if re.match("Div|NativeLayerNorm", last) and not scales and alike(norms):
        return ("normalisation",), lambda z: float(norms.mean()) * F.normalize(z, dim=-1)
    names, bound = _bounds(root)
    return (names, bound) if bound else ((_NONLINEARITIES.get(last, last),), None)


def _bounds(node: Node | None) -> tuple[tuple[str, ...], Bound | None]:
    """The same of one output; the first operation alone reads free numbers, the others what it writes."""
    found: list[tuple[str, Bound, Bound]] = []
    while node is not None and (one := _bound_of(node := _end_of(node))):
        found.append(one)
        node = next(iter(parents_of(node)), None) if one[0] != DISTANCE else None
    while found and found[-1][0] in (LOG, SCALED):  # by themselves they bound nothing
        found.pop()
    names = tuple(name for name, _, _ in found if name != SCALED)
    if {*names} <= {DISTANCE} or ("softmax" in names and len(names) < len(found)):  # which may be far, or sum to any
        return (), None
    *later, (_, free, _) = found
    return names, lambda z: reduce(lambda at, one: one[2](at), reversed(later), free(z))


def _end_of(root: Node) -> Node:
    """The node that made the numbers of the outputs, some of them, or one of several alike that were joined."""
    *_, node = unchanged(root)
    ends = [[*unchanged(each)][-1] for each in parents_of(node) if re.match("Cat|Stack|Gather", node.name())]
    return ends[0] if len({end.name() for end in ends}) == 1 and _operation(ends[0].name()) in _RANGES else node


def _bound_of(node: Node) -> tuple[str, Bound, Bound] | None:
    """Name of an operation that bounds what it writes, one with the same range that is flat nowhere, and itself."""
    name = _operation(node.name())
    low, high = (getattr(node, f"_saved_{end}", getattr(node, f"_saved_{end}_val", None)) for end in ("min", "max"))
    if re.match("Clamp|Hardtanh", name) and not isinstance(low, Tensor) and not isinstance(high, Tensor):

        def cut(z: Tensor) -> Tensor:  # with the slopes of what it reads
            return z + (z.clamp(low, high) - z).detach()

        return ("relu6" if (low, high) == (0, 6) else "clamp"), cut, cut
    result = getattr(node, "_saved_result", None)
    if name in ("Softmax", LOG) and isinstance(result, Tensor):
        shape, dim, function = result.shape, dim_of(node), F.log_softmax if name == LOG else F.softmax

        # Of all of it, of positions or the like that were taken from it, or of one of the classes.
        def over(z: Tensor) -> Tensor:
            if z.numel() * shape[dim] == shape.numel() and (z.dim() == 1 or z.shape[-1] != shape[dim]):
                return F.logsigmoid(z) if name == LOG else z.sigmoid()
            return function(z.view(shape), dim).view(z.shape) if z.numel() == shape.numel() else function(z, -1)

        return (LOG if name == LOG else "softmax"), over, over
    factor = getattr(node, "_saved_other", None)
    if name in ("Mul", "Div") and isinstance(factor, Tensor) and factor.numel() == 1 and len(parents_of(node)) == 1:
        by = float(factor) if name == "Mul" else 1 / float(factor)
        return SCALED, (lambda z: by * z), (lambda z: by * z)
    if name == "Pow" and getattr(node, "_saved_exponent", None) in (2, 4):
        return "square", F.softplus, torch.square
    if re.fullmatch("Sqrt|Norm|LinalgVectorNorm|EuclideanDist|Cdist", name) or _sums_positive(node):
        return DISTANCE, F.softplus, torch.abs
    if name == "MkldnnRnnLayer" or (name == "CudnnRnn" and node._saved_mode):  # but those of ReLUs
        return "recurrent layer", torch.tanh, torch.tanh
    return (_NONLINEARITIES.get(name, name.lower()), *_RANGES[name]) if name in _RANGES else None


def _sums_positive(node: Node) -> bool:
    """Whether a node sums what an operation wrote that is above zero."""
    summed = _bound_of(parents_of(node)[0]) if re.match("Sum|Mean", node.name()) else None
    return summed is not None and summed[0] in ("relu", "abs", "exp", "square")


_RANGES: dict[str, tuple[Bound, Bound]] = {
    "Sigmoid": (torch.sigmoid, torch.sigmoid), "Hardsigmoid": (torch.sigmoid, F.hardsigmoid),
    "Tanh": (torch.tanh, torch.tanh), "Relu": (F.softplus, F.relu), "Softplus": (F.softplus, F.softplus),
    "Exp": (torch.exp, torch.exp), "Abs": (F.softplus, torch.abs),
}  # fmt: skip


def dim_of(softmax: Node) -> int:
    """The dimension of a softmax."""
    return _axis(softmax._saved_dim, len(softmax._input_metadata[0].shape))


def size_of_products(root: Node) -> float:
    """The bound of products of rows that all have one norm, such as cosines; else 0."""
    size, product = 1.0, root
    while passes_unchanged(product) or _scaled_by(product):
        size, product = size * (_scaled_by(product) or 1.0), parents_of(product)[0]
    at = parents_of(product)[0] if product.name() == "SumBackward1" else product  # of rows, one by one
    if not re.match(r"B?mmBackward" if at is product else "Mul", at.name(), re.IGNORECASE):
        return 0.0
    factors = [getattr(at, name, None) for name in ("_saved_self", "_saved_mat2" if at is product else "_saved_other")]
    dims = (-1, -2 if at is product else -1)
    norms = [f.detach().norm(dim=dim) for f, dim in zip(factors, dims, strict=True) if f is not None and f.dim()]
    return size * math.prod(float(each.max()) for each in norms) if len(norms) == 2 and all(map(alike, norms)) else 0.0


def alike(numbers: Tensor) -> bool:
    """Whether they are all the same."""
    return float(numbers.max() - numbers.min()) < CLOSE * float(numbers.max())


def unchanged(root: Node) -> Iterator[Node]:
    """The node that made the outputs, and those that wrote the same numbers in another shape."""
    yield root
    while passes_unchanged(root) and not root.name().startswith("Neg") and len(parents_of(root)) == 1:
        root = parents_of(root)[0]
        yield root


def sigmoids_in(root: Node, through: str = "Cat|Stack|Slice|Select") -> list[Tensor]:
    """What sigmoids wrote that is a part of what a node wrote, through operations of these names."""
    return [node._saved_result for node in _behind(root, through) if node.name().startswith("Sigmoid")]


def _behind(root: Node, through: str) -> Iterator[Node]:
    """A node, and all that it reads through changes of shape and operations of these names."""
    return walk(root, lambda o: parents_of(o) if passes_unchanged(o) or re.match(through, o.name()) else [])


def _scaled_by(node: Node) -> float:
    """The number that a node multiplies by, if it does that alone; else 0."""
    number = getattr(node, "_saved_other", None)
    if number is None or number.numel() > 1 or len(parents_of(node)) != 1 or not number.item():
        return 0.0
    size = float(abs(number.item()))
    return {"Mul": size, "Div": 1 / size}.get(node.name()[:3], 0.0)


def written_by(start: Node, layers: Mapping[Node, str], owners: Mapping[int, str]) -> list[str]:
    """Paths of the nearest layers before a node, or of the one that wrote there."""
    if start in layers:
        return [layers[start]]

    def held(node: Node) -> list[str]:
        return [owners[id(p)] for p in map(_parameter, parents_of(node)) if id(p) in owners]

    def written(node: Node) -> list[str]:
        return held(node) or [layers[parent] for parent in parents_of(node) if parent in layers]

    def before(node: Node) -> list[Node]:
        return [] if held(node) else [parent for parent in parents_of(node) if parent not in layers]

    return list(dict.fromkeys(path for node in walk(start, before) for path in written(node)))


def _parameter(node: Node) -> Tensor | None:
    """The parameter that a node holds, at most reshaped."""
    while node is not None and passes_unchanged(node):
        node = node.next_functions[0][0]
    return getattr(node, "variable", None)
