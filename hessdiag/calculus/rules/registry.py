"""The table of rules: one row an operation, to be held against the paper line by line.

Every rule has two columns. `paper` is that of arXiv 1906.04267, whose activations are i.i.d. with one moment each;
`kernel` also has the mean part, correlations between positions, borders of padding and overlap of strides. Rules that
the paper does not have carry a note, which a prediction lists.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hessdiag.calculus.graph import NOT_IN_PAPER, Call, Step
from hessdiag.calculus.rules.arithmetic import add, multiply, negate
from hessdiag.calculus.rules.nonlinearities import dropout, nonlinearity, prelu
from hessdiag.calculus.rules.normalisation import batch_norm, group_norm, layer_norm
from hessdiag.calculus.rules.pooling import average_pool, max_pool, mean
from hessdiag.calculus.rules.reshaping import concatenate, copied, detached, get_item, pad, reshaped, take_apart
from hessdiag.calculus.rules.weight_layers import addmm, convolution, embedding, linear, matmul


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


def _named(*names: str) -> tuple[str, ...]:
    return tuple(f"aten.{name}" for name in names)


_MOVES = (
    "view", "reshape", "_unsafe_view", "flatten", "unflatten", "permute", "transpose", "t", "squeeze", "unsqueeze",
    "expand", "slice", "select", "movedim", "moveaxis", "narrow", "repeat", "numpy_T", "mT", "roll", "flip",
    "expand_as", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "swapaxes",
)  # fmt: skip
_COPIES = ("clone", "contiguous", "alias", "to", "_to_copy", "type_as", "lift_fresh_copy")
_BATCH_NORMS = (
    "batch_norm", "_native_batch_norm_legit_functional", "_native_batch_norm_legit_no_training",
    "_native_batch_norm_legit",
)  # fmt: skip

TANH = f"tanh: {NOT_IN_PAPER} outside its linear regime"
SIGMOID = f"sigmoid: {NOT_IN_PAPER} outside its linear regime"
CURVED = f"{{}}: {NOT_IN_PAPER}"

RULES: tuple[Rule, ...] = (
    Rule("linear layer", ("aten.linear",), "n E[W²] E[x²]", "n' E[W²] E[Δy²]", "✓", "Table 1", linear),
    Rule("linear layer", ("aten.addmm",), "n E[W²] E[x²]", "n' E[W²] E[Δy²]", "✓", "Table 1", addmm),
    Rule("linear layer", _named("matmul", "mm"), "n E[W²] E[x²]", "n' E[W²] E[Δy²]", "✓", "Table 1", matmul),
    Rule(
        "convolution",
        _named("conv1d", "conv2d", "conv3d", "convolution"),
        "n k² E[W²] E[x²]",
        "ρ'² n' k² E[W²] E[Δy²] / ρ²",
        "✓ if stride = kernel",
        "Table 1, appendix B.1",
        convolution,
    ),
    Rule("embedding", ("aten.embedding",), "E[W²]", "–", "–", "", embedding),
    Rule(
        "skip connection, sum",
        _named("add", "sub"),
        "E[x²] + a² E[y²]",
        "E[Δ²], a² E[Δ²]",
        "✓",
        "Table 1, appendix B.7",
        add,
    ),
    Rule(
        "scalar multiplier",
        _named("mul", "div", "multiply", "divide"),
        "E[u²] E[x²]",
        "E[u²] E[Δy²]",
        "✓",
        "appendix B.6",
        multiply,
    ),
    Rule("sign", _named("neg"), "E[x²]", "E[Δy²]", "✓", "", negate),
    Rule(
        "average pooling",
        _named("avg_pool1d", "avg_pool2d", "avg_pool3d"),
        "E[x²] / K",
        "E[Δy²] / K²",
        "✓ if stride = kernel",
        "Table 1, appendix B.3",
        average_pool,
    ),
    Rule(
        "global pooling",
        _named("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"),
        "E[x²] / ρ²",
        "E[Δy²] / ρ⁴",
        "✓",
        "appendix B.3",
        average_pool,
    ),
    Rule("mean over positions", ("aten.mean",), "E[x²] / K", "E[Δy²] / K²", "✓", "appendix B.3", mean),
    Rule(
        "max pooling",
        _named("max_pool1d", "max_pool2d", "max_pool3d"),
        "E[x²]",
        "E[Δy²] / K",
        "✗",
        "Table 1",
        max_pool,
    ),
    Rule(
        "dropout",
        _named("dropout", "native_dropout", "feature_dropout"),
        "E[x²] / (1 - p)",
        "E[Δy²] / (1 - p)",
        "✓",
        "Table 1, appendix B.5",
        dropout,
    ),
    Rule("ReLU", _named("relu"), "E[x²] / 2", "E[Δy²] / 2", "✓", "Table 1, appendix B.4", nonlinearity("relu")),
    Rule(
        "leaky ReLU",
        _named("leaky_relu"),
        "(1 + a²) E[x²] / 2",
        "(1 + a²) E[Δy²] / 2",
        "✓",
        "Table 1",
        nonlinearity("leaky_relu", "negative_slope"),
    ),
    Rule("leaky ReLU", ("aten.prelu",), "(1 + a²) E[x²] / 2", "(1 + a²) E[Δy²] / 2", "✓", "Table 1", prelu),
    Rule("tanh", _named("tanh"), "E[x²]", "E[Δy²]", "✗", "Table 1", nonlinearity("tanh", note=TANH)),
    Rule(
        "sigmoid",
        _named("sigmoid"),
        "1/4 + E[x²] / 16",
        "E[Δy²] / 16",
        "✗",
        "Table 1",
        nonlinearity("sigmoid", note=SIGMOID),
    ),
    *(
        Rule(
            name,
            _named(target),
            "E[φ(x)²]",
            "E[φ'(x)²] E[Δy²]",
            "✗",
            "",
            nonlinearity(name, *parameters, note=CURVED.format(target)),
        )
        for name, target, parameters in (
            ("gelu", "gelu", ()),
            ("silu", "silu", ()),
            ("elu", "elu", ("alpha",)),
            ("selu", "selu", ()),
            ("softplus", "softplus", ()),
            ("mish", "mish", ()),
            ("relu6", "relu6", ()),
            ("hardtanh", "hardtanh", ("min_val", "max_val")),
            ("hardswish", "hardswish", ()),
            ("hardsigmoid", "hardsigmoid", ()),
        )
    ),
    Rule("batch normalisation", _named(*_BATCH_NORMS), "E[w²] E[x²] / v", "E[w²] E[Δy²] / v", "✓", "", batch_norm),
    Rule(
        "layer normalisation",
        ("aten.layer_norm", "aten.rms_norm"),
        "E[w²]",
        "E[w²] E[Δy²] / E[x²]",
        "✓",
        "",
        layer_norm,
    ),
    Rule("group normalisation", ("aten.group_norm",), "E[w²]", "E[w²] E[Δy²] / E[x²]", "✓", "", group_norm),
    Rule("reshaping", _named(*_MOVES), "E[x²]", "E[Δy²]", "✓", "", reshaped),
    Rule("copying", _named(*_COPIES), "E[x²]", "E[Δy²]", "✓", "", copied),
    Rule("detaching", ("aten.detach",), "E[x²]", "0", "–", "", detached),
    Rule("padding", ("aten.pad", "aten.constant_pad_nd"), "E[x²]", "E[Δy²]", "✓", "", pad),
    Rule(
        "taking apart",
        _named("chunk", "split", "unbind", "split_with_sizes", "tensor_split"),
        "E[x²]",
        "E[Δy²]",
        "✓",
        "",
        take_apart,
    ),
    Rule("taking apart", ("getitem",), "E[x²]", "E[Δy²]", "✓", "", get_item),
    Rule("concatenation", ("aten.cat", "aten.stack", "aten.concat"), "E[x²]", "E[Δy²]", "✓", "", concatenate),
)

BY_TARGET: dict[str, Rule] = {target: rule for rule in RULES for target in rule.targets}

# In the one activation that they read.
LINEAR = (linear, addmm, matmul, convolution, reshaped, copied, take_apart, get_item, pad)
