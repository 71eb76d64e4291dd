"""Every kind of model a user may have, in float64: those of `networks`, and those that read or return other things."""

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint
from transformers.modeling_outputs import SequenceClassifierOutput

from tests.embeddings import EMBEDDINGS
from tests.layouts import MIXING, WITHOUT_RULES
from tests.networks import BUILDERS, Multiplier, Net, having

EXAMPLES = 3
Make = Callable[[], nn.Module]


def mlp(
    middle: Callable[[Any, Tensor], Any] = lambda m, h: h.tanh(), wrap: Callable[[Tensor], Any] = lambda y: y,
    **held: Callable[[], Any],
) -> Make:  # fmt: skip
    """Two layers with something between them, a smooth non-linearity at least, and around what they return."""

    def make() -> nn.Module:
        layers = {"first": nn.Linear(4, 4), "last": nn.Linear(4, 3)}
        return Net(lambda m, x: wrap(m.last(middle(m, m.first(x)))), **layers, **{n: of() for n, of in held.items()})

    return make


class Cube(torch.autograd.Function):
    """x³, without a forward-mode rule and without one for vmap."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 3 * x**2 * gradient


class CubeWithSetup(torch.autograd.Function):
    """x³ in the form that torch.func asks for, still without a forward-mode rule."""

    generate_vmap_rule = True
    backward = staticmethod(Cube.backward)

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x**3

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)


class CubeOnce(Cube):
    """x³ that cannot be differentiated twice."""

    backward = staticmethod(torch.autograd.function.once_differentiable(Cube.backward))


def own_function(function: type[torch.autograd.Function] = Cube) -> nn.Module:
    """A user's own `autograd.Function`, followed by a learnable scalar."""
    return mlp(lambda m, h: m.gain(function.apply(h)), gain=Multiplier)()


def checkpointed() -> nn.Module:
    """Activation checkpointing: the layer's forward pass is run again in the backward pass."""
    again = lambda m, x: checkpoint(lambda z: m.first(z).tanh(), x, use_reentrant=False)  # noqa: E731
    return Net(lambda m, x: m.last(again(m, x)), first=nn.Linear(4, 4), last=nn.Linear(4, 3))


def no_grad_inside() -> nn.Module:
    """A scale computed without gradients, of a learnable scalar's output."""

    def middle(m: Any, h: Tensor) -> Tensor:
        h = m.gain(h.tanh())
        with torch.no_grad():
            scale = h.square().mean(dim=1, keepdim=True)
        return h * scale

    return mlp(middle, gain=Multiplier)()


def no_grad_layer(m: Any, h: Tensor) -> Tensor:
    """A layer that is called without gradients, and once more with them."""
    with torch.no_grad():
        target = m.first(h.tanh())
    return h.tanh() + target


def loops(m: Any, h: Tensor) -> Tensor:
    """A layer used a number of times that the data do not decide."""
    for step in range(3):
        h = h.tanh() if step % 2 == 0 else m.first(h) + h
    return h


def in_place(m: Any, h: Tensor) -> Tensor:
    h = h.tanh()
    out = torch.zeros_like(h)
    out[:, :2] = h[:, 2:]
    out[:, 2:] += h[:, :2].square()
    return out


def keeps(m: Any, h: Tensor) -> Tensor:
    """The last activations are kept in an attribute, and the calls counted."""
    m.kept = h.tanh()
    m.calls += 1
    return m.kept


def functional() -> nn.Module:
    """Weights of the model's own, used through `torch.nn.functional` and einsum."""
    weight = nn.Parameter(torch.randn(3, 4))
    mixing = nn.ParameterList([nn.Parameter(torch.randn(3, 3)), nn.Parameter(torch.randn(3))])
    mixed = lambda m, h: torch.einsum("bi,oi->bo", h, m.mixing[0]) + m.mixing[1]  # noqa: E731
    return Net(lambda m, x: mixed(m, F.linear(x, m.weight).tanh()), weight=weight, mixing=mixing)


def scores(m: Any, tokens: Tensor) -> Tensor:
    return m.head(m.mix(m.embed(tokens)).tanh())


def language_model() -> nn.Module:
    """Token indices to logits (B, T, V), the head tied to the embedding."""
    layers = {"embed": nn.Embedding(6, 3), "mix": nn.Linear(3, 3), "head": nn.Linear(3, 6, bias=False)}
    having(layers["head"], weight=layers["embed"].weight)
    return Net(scores, **layers)


def like_transformers() -> nn.Module:
    """Tied as Hugging Face ties: the parameter is assigned after both modules are built, and listed as tied."""

    def forward(m: Any, input_ids: Tensor, attention_mask: Tensor) -> Any:
        h = scores(m, input_ids)[:, :, :3] * attention_mask.unsqueeze(2)  # (B, T, 3)
        return SequenceClassifierOutput(logits=h.mean(1), hidden_states=(h, h))

    model = having(language_model(), rule=forward, head=nn.Linear(3, 6), _tied_weights_keys=("head.weight",))
    having(model.head, weight=model.embed.weight)
    return model


def module_list() -> nn.Module:
    """A loop over a `ModuleList`, and layers in a dict."""

    def forward(m: Any, x: Tensor) -> Tensor:
        for layer in m.layers:
            x = x + layer(x).sigmoid()
        return torch.cat([head(x) for head in m.heads.values()], dim=1)

    layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
    return Net(forward, layers=layers, heads=nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Linear(4, 1)}))


def compiled_copy() -> nn.Module:
    """`torch.compile(model)`, already compiled by a first call."""
    model = torch.compile(mlp()().double(), backend="eager")
    model(rows())
    return model


def compiled_in_place() -> nn.Module:
    """`module.compile()`, already compiled by a first call; one of its layers is compiled on its own."""
    model = mlp()().double()
    model.last.compile(backend="eager")
    model.compile(backend="eager")
    model(rows())
    return model


def class_token() -> nn.Module:
    """A parameter that no layer reads is put before the sites."""
    seen = lambda m, x: torch.cat([m.token.expand(len(x), -1, -1), x.unflatten(1, (2, 2))], dim=1)  # noqa: E731
    held = {"token": nn.Parameter(torch.randn(1, 1, 2)), "mix": nn.Linear(2, 2), "head": nn.Linear(2, 3)}
    return Net(lambda m, x: m.head(m.mix(seen(m, x)).tanh().mean(1)), **held)


def scaled_twice() -> nn.Module:
    """Its scalar multiplies in two places, and so does its layer."""
    rule = lambda m, x: m.scale(m.layer(torch.tanh(m.scale(m.layer(x)))))  # noqa: E731
    return Net(rule, layer=nn.Linear(4, 4), scale=Multiplier(1.5))


def parametrized(how: Callable[[nn.Module], nn.Module]) -> Make:
    return lambda: nn.Sequential(how(nn.Linear(4, 3)), nn.Tanh(), nn.Linear(3, 2)).eval()


def rows() -> Tensor:
    return torch.randn(EXAMPLES, 4, dtype=torch.float64)


def tokens() -> Tensor:
    return torch.randint(6, (EXAMPLES, 3))


def next_tokens() -> Tensor:
    """Targets of which some are left out, of one example all but one."""
    targets = tokens()
    targets[0, 1] = targets[1, :2] = -100
    return targets


def running() -> nn.Module:
    """Batch normalisation that has seen some data."""
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)).double()
    model(rows())
    return model


@dataclass(frozen=True)
class Kind:
    """A model, what it reads, and where in what it returns the outputs are."""

    make: Make
    inputs: Callable[[], Any] = rows
    targets: Callable[[], Tensor] | None = None
    outputs: Callable[[Any], Tensor] = lambda y: y


Pair = namedtuple("Pair", ["logits", "state"])
TWO_INPUTS = lambda: having(mlp()(), rule=lambda m, a, b, scale=2.0: m.last(m.first(a + scale * b).tanh()))  # noqa: E731
TRANSPOSED = lambda: Net(  # noqa: E731  a tied pair with the weight stored the other way round: x W and h Wᵀ
    lambda m, x: (x @ m.weight).tanh() @ m.weight.T, weight=nn.Parameter(torch.randn(4, 3))
)

KINDS: dict[str, Kind] = {
    **{name: Kind(make, lambda size=size: torch.randn(EXAMPLES, *size, dtype=torch.float64))
        for name, (make, size) in BUILDERS.items()},
    **{name: Kind(*made) for name, made in (WITHOUT_RULES | EMBEDDINGS).items()},
    "checkpointed": Kind(checkpointed), "own function": Kind(own_function),
    "own function with setup": Kind(lambda: own_function(CubeWithSetup)), "no_grad inside": Kind(no_grad_inside),
    "no_grad layer": Kind(mlp(no_grad_layer)),
    "straight through": Kind(mlp(lambda m, h: h + (h.sign() - h).detach())), "loops": Kind(mlp(loops)),
    "branches": Kind(mlp(lambda m, h: torch.stack([r.tanh() if bool(r.sum() > 0) else r.square() for r in h]))),
    "masked": Kind(mlp(lambda m, h: torch.where(h > 0, h.tanh(), 0.1 * h.square()))), "in place": Kind(mlp(in_place)),
    "moves": Kind(mlp(lambda m, h: m.first.to(h.dtype)(h) @ m.mix, mix=lambda: nn.Parameter(torch.eye(4)))),
    "keeps activations": Kind(mlp(keeps, kept=lambda: None, calls=int)),
    "functional": Kind(functional), "module list": Kind(module_list), "class token": Kind(class_token),
    "scaled twice": Kind(scaled_twice), "tied transposed": Kind(TRANSPOSED),
    "weight norm": Kind(parametrized(parametrizations.weight_norm)),
    "spectral norm eval": Kind(parametrized(parametrizations.spectral_norm)),
    "orthogonal": Kind(parametrized(parametrizations.orthogonal)), "compiled copy": Kind(compiled_copy),
    "compiled in place": Kind(compiled_in_place), "tied to the head": Kind(language_model, tokens),
    "ignore_index": Kind(language_model, tokens, next_tokens),
    "like transformers": Kind(like_transformers,
        lambda: {"input_ids": tokens(), "attention_mask": torch.ones(EXAMPLES, 3, dtype=torch.int64)},
        outputs=lambda y: y.logits),
    "two inputs": Kind(TWO_INPUTS, lambda: (rows(), rows(), 0.5)),
    "inputs by name": Kind(TWO_INPUTS, lambda: {"b": rows(), "a": rows()}),
    "dict output": Kind(mlp(wrap=lambda y: {"scores": y}), outputs=lambda y: y["scores"]),
    "tuple output": Kind(mlp(wrap=lambda y: (y, None, y.sum())), outputs=lambda y: y[0]),
    "named output": Kind(mlp(wrap=lambda y: Pair(y, y.tanh())), outputs=lambda y: y.logits),
}  # fmt: skip
ALONE = "an example on its own gives other outputs than in the batch"
REFUSED: dict[str, tuple[Kind, str]] = {
    "checkpointed reentrant": (Kind(mlp(lambda m, h: checkpoint(torch.tanh, h, use_reentrant=True))),
        "the model uses reentrant activation checkpointing, which torch differentiates by .backward() alone"),
    "bfloat16": (Kind(lambda: mlp()().bfloat16(), lambda: rows().bfloat16()),
        "model and inputs are in bfloat16: convert both, as by model.float()"),
    "float16": (Kind(lambda: mlp()().half(), lambda: rows().half()), "model and inputs are in float16"),
    "two dtypes": (Kind(lambda: mlp()().bfloat16(), lambda: rows().float()), "are in bfloat16 and float32"),
    "no weights": (Kind(lambda: nn.Sequential(nn.ReLU(), nn.Flatten())),
        "the model Sequential has no parameters: there is nothing to measure"),
    "a list of layers": (Kind(lambda: Net(lambda m, x: m._kept[0](x), _kept=[nn.Linear(4, 3)])),
        "has layers that are not registered (_kept[0].weight, _kept[0].bias): keep them in nn.ModuleList"),
    "all frozen": (Kind(lambda: mlp()().requires_grad_(False)), "no weight matrix, bias or scalar"),
    "lazy": (Kind(lambda: nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(3))),
        "parameter '0.weight' has no shape yet: run the model once before measuring it"),
    "several outputs": (Kind(mlp(wrap=lambda y: (y, y.tanh()))),
        "returned a tuple with 2 tensors over the examples (0, 1): wrap it so that it returns one of them"),
    "no outputs": (Kind(mlp(wrap=lambda y: {"loss": y.sum()})), "returned a dict without a tensor over the ex"),
    "nan outputs": (Kind(mlp(wrap=lambda y: y / 0 * 0)), "infinite outputs: div behind 'last' makes the first, of"),
    "a row masked": (Kind(mlp(lambda m, h: h.masked_fill(h < 99, -torch.inf).softmax(1))),
        "infinite outputs: softmax behind 'first' makes the first, of numbers from -inf to -inf; leave an entry of"),
    "autocast inside": (Kind(mlp(wrap=lambda y: y.bfloat16())), "returned torch.bfloat16 outputs: switch autoc"),
    **{name: (Kind(*made), f"{ALONE}: the model runs over the first") for name, made in MIXING.items()},
    "compiled by torch.jit": (
        Kind(lambda: torch.jit.script(nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)))),
        "the model was compiled by torch.jit, which hides its layers: pass the module it is of"),
    "branches on the batch": (Kind(mlp(lambda m, h: h.tanh() if float(h.detach().square().sum()) > 2 else h.square())),
        ALONE),
    "centred on the batch": (Kind(mlp(lambda m, h: (h - h.mean(0).detach()).tanh())), ALONE),
}  # fmt: skip
