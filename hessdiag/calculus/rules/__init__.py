"""The table of rules: one row an operation, to be held against the paper line by line.

Every rule has two columns. `paper` is that of arXiv 1906.04267, whose activations are i.i.d. with one moment each;
`kernel` also has the mean part, correlations between positions, borders of padding and overlap of strides. Rules that
the paper does not have carry a note, which a prediction lists.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from hessdiag.calculus.graph import NOT_IN_PAPER, Call, Step
from hessdiag.calculus.rules import layers, positions
from hessdiag.calculus.rules.attention import scaled_dot_product_attention
from hessdiag.calculus.rules.composed import SAME
from hessdiag.calculus.rules.elementwise import add, dropout, multiply, negate, nonlinearity, of_angle, rectified


@dataclass(frozen=True)
class Rule:
    """One row of the calculus.

    Attributes:
        operation: in words.
        targets: operations of the traced graph that it covers.
        forward, backward: the formulas of the `paper` column.
        maintains: whether ς stays: the ✓ and ✗ of the paper's Table 1, or our own verdict.
        source: where the paper has it; empty where it has none.
        apply: the rule itself.
    """

    operation: str
    targets: tuple[str, ...]
    forward: str
    backward: str
    maintains: str
    source: str
    apply: Callable[[Call], Step]


_NORMALISED = ("E[w²]", "E[w²] E[Δy²] / E[x²]", "✓", "")
_WEIGHTS = ("n E[W²] E[x²]", "n' E[W²] E[Δy²]", "✓", "Table 1")
_MOVED = ("E[x²]", "E[Δy²]", "✓", "")
_MOVES = """
    view reshape _unsafe_view flatten unflatten permute transpose t squeeze unsqueeze expand slice select movedim
    moveaxis narrow repeat repeat_interleave numpy_T mT roll flip expand_as pixel_shuffle pixel_unshuffle
    channel_shuffle swapaxes
"""
_LEGIT = "_native_batch_norm_legit"
_BATCH_NORMS = f"batch_norm {_LEGIT}_functional {_LEGIT}_no_training {_LEGIT}"
_STRIDED = "✓ if stride = kernel"
_OUTSIDE = f"{NOT_IN_PAPER} outside its linear regime"

# Operation, names in the graph, forward, backward, whether ς is maintained, source, rule.
_ROWS: tuple[tuple[Any, ...], ...] = (
    ("linear layer", "linear", *_WEIGHTS, layers.linear),
    ("linear layer", "addmm", *_WEIGHTS, layers.addmm),
    ("linear layer", "matmul mm", *_WEIGHTS, layers.matmul),
    ("convolution", "conv1d conv2d conv3d convolution",
     "n k² E[W²] E[x²]", "ρ'² n' k² E[W²] E[Δy²] / ρ²", _STRIDED, "Table 1, appendix B.1", layers.convolution),
    ("embedding", "embedding", "E[W²]", "–", "–", "", layers.embedding),
    ("skip connection, sum", "add sub", "E[x²] + a² E[y²]", "E[Δ²], a² E[Δ²]", "✓", "Table 1, appendix B.7", add),
    ("scalar multiplier", "mul div multiply divide", "E[u²] E[x²]", "E[u²] E[Δy²]", "✓", "appendix B.6", multiply),
    ("sign", "neg", *_MOVED, negate),
    ("average pooling", "avg_pool1d avg_pool2d avg_pool3d",
     "E[x²] / K", "E[Δy²] / K²", _STRIDED, "Table 1, appendix B.3", positions.average_pool),
    ("global pooling", "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d",
     "E[x²] / ρ²", "E[Δy²] / ρ⁴", "✓", "appendix B.3", positions.average_pool),
    ("mean over positions", "mean", "E[x²] / K", "E[Δy²] / K²", "✓", "appendix B.3", positions.mean),
    ("max pooling", "max_pool1d max_pool2d max_pool3d", "E[x²]", "E[Δy²] / K", "✗", "Table 1", positions.max_pool),
    ("dropout", "dropout native_dropout feature_dropout",
     "E[x²] / (1 - p)", "E[Δy²] / (1 - p)", "✓", "Table 1, appendix B.5", dropout),
    ("ReLU", "relu", "E[x²] / 2", "E[Δy²] / 2", "✓", "Table 1, appendix B.4", rectified),
    ("leaky ReLU", "leaky_relu prelu",
     "(1 + a²) E[x²] / 2", "(1 + a²) E[Δy²] / 2", "✓", "Table 1", rectified),
    ("tanh", "tanh", "E[x²]", "E[Δy²]", "✗", "Table 1", partial(nonlinearity, note=f"tanh: {_OUTSIDE}", linear=(0, 1))),
    ("sigmoid", "sigmoid", "1/4 + E[x²] / 16", "E[Δy²] / 16", "✗", "Table 1",
     partial(nonlinearity, note=f"sigmoid: {_OUTSIDE}", linear=(1 / 4, 1 / 16))),
    *(
        (name, name, "E[φ(x)²]", "E[φ'(x)²] E[Δy²]", "✗", "", partial(nonlinearity, note=f"{name}: {NOT_IN_PAPER}"))
        for name in ["gelu", "silu", "elu", "selu", "softplus", "mish", "relu6", "hardtanh", "hardswish", "hardsigmoid"]
    ),
    ("attention", "scaled_dot_product_attention", "E[v²] / m", "E[Δ²] / m to v", "✗", "", scaled_dot_product_attention),
    ("angle", "cos sin", "1/2", "–", "–", "", of_angle),
    ("batch normalisation", _BATCH_NORMS, "E[w²] E[x²] / v", "E[w²] E[Δy²] / v", "✓", "", layers.batch_norm),
    ("layer normalisation", "layer_norm rms_norm", *_NORMALISED, layers.layer_norm),
    ("group normalisation", "group_norm", *_NORMALISED, layers.group_norm),
    ("reshaping", _MOVES, *_MOVED, positions.reshaped),
    ("picking by indices", "index", *_MOVED, positions.picked),
    ("copying", SAME, *_MOVED, positions.copied),
    ("detaching", "detach", "E[x²]", "0", "–", "", positions.detached),
    ("padding", "pad constant_pad_nd", *_MOVED, positions.pad),
    ("taking apart", "chunk split unbind split_with_sizes tensor_split", *_MOVED, positions.take_apart),
    ("taking apart", "getitem", *_MOVED, positions.get_item),
    ("concatenation", "cat stack concat", *_MOVED, positions.concatenate),
)  # fmt: skip

RULES = tuple(
    Rule(operation, tuple(n if n == "getitem" else f"aten.{n}" for n in names.split()), *rest)
    for operation, names, *rest in _ROWS
)

BY_TARGET: dict[str, Rule] = {target: rule for rule in RULES for target in rule.targets}
