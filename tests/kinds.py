"""Every kind of model a user may have, in float64: those of `networks`, and those that read or return other things."""

from collections import namedtuple
from collections.abc import Callable, Mapping
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
from tests.networks import BUILDERS, Multiplier

EXAMPLES = 3


class Mlp(nn.Module):
    """Two layers with a smooth non-linearity between them, which the kinds below vary."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        return self.last(self.middle(self.first(x)))

    def middle(self, h: Tensor) -> Tensor:
        return h.tanh()


class Checkpointed(Mlp):
    """Activation checkpointing: the layer's forward pass is run again in the backward pass."""

    def forward(self, x: Tensor) -> Tensor:
        return self.last(checkpoint(lambda z: self.first(z).tanh(), x, use_reentrant=False))


class CheckpointedReentrant(Mlp):
    """The older kind, which `torch.autograd.grad` refuses."""

    def middle(self, h: Tensor) -> Any:
        return checkpoint(torch.tanh, h, use_reentrant=True)


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

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x**3

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 3 * x**2 * gradient


class CubeOnce(torch.autograd.Function):
    """x³ that cannot be differentiated twice."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 3 * x**2 * gradient


class OwnFunction(Mlp):
    """A user's own `autograd.Function`, followed by a learnable scalar."""

    function: type[torch.autograd.Function] = Cube

    def __init__(self) -> None:
        super().__init__()
        self.gain = Multiplier()

    def middle(self, h: Tensor) -> Tensor:
        return self.gain(self.function.apply(h))


class OwnFunctionWithSetup(OwnFunction):
    function = CubeWithSetup


class OwnFunctionOnce(OwnFunction):
    function = CubeOnce


class NoGradInside(Mlp):
    """A scale computed without gradients, of a learnable scalar's output."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = Multiplier()

    def middle(self, h: Tensor) -> Tensor:
        h = self.gain(h.tanh())
        with torch.no_grad():
            scale = h.square().mean(dim=1, keepdim=True)
        return h * scale


class NoGradLayer(Mlp):
    """A layer that is called without gradients, and once more with them."""

    def middle(self, h: Tensor) -> Tensor:
        with torch.no_grad():
            target = self.first(h.tanh())
        return h.tanh() + target


class Detached(Mlp):
    """A straight-through estimator."""

    def middle(self, h: Tensor) -> Tensor:
        return h + (h.sign() - h).detach()


class Loops(Mlp):
    """A layer used a number of times that the data do not decide."""

    def middle(self, h: Tensor) -> Tensor:
        for step in range(3):
            h = h.tanh() if step % 2 == 0 else self.first(h) + h
        return h


class Branches(Mlp):
    """A branch on the values of one example at a time."""

    def middle(self, h: Tensor) -> Tensor:
        return torch.stack([row.tanh() if bool(row.sum() > 0) else row.square() for row in h])


class BranchesOnBatch(Mlp):
    """A branch on the values of the whole batch: an example's output depends on the others."""

    def middle(self, h: Tensor) -> Tensor:
        return h.tanh() if float(h.detach().square().sum()) > 2 else h.square()


class CentredOnBatch(Mlp):
    """The mean over the batch is taken away, without gradients."""

    def middle(self, h: Tensor) -> Tensor:
        return (h - h.mean(0).detach()).tanh()


class Masked(Mlp):
    """A choice between two branches by `torch.where`."""

    def middle(self, h: Tensor) -> Tensor:
        return torch.where(h > 0, h.tanh(), 0.1 * h.square())


class InPlace(Mlp):
    """Slices written in place."""

    def middle(self, h: Tensor) -> Tensor:
        h = h.tanh()
        out = torch.zeros_like(h)
        out[:, :2] = h[:, 2:]
        out[:, 2:] += h[:, :2].square()
        return out


class KeepsActivations(Mlp):
    """The last activations are kept in an attribute, and the calls counted."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: Tensor | None = None
        self.calls = 0

    def middle(self, h: Tensor) -> Tensor:
        self.kept = h.tanh()
        self.calls += 1
        return self.kept


class Functional(nn.Module):
    """Weights of the model's own, used through `torch.nn.functional` and einsum."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 4))
        self.mixing = nn.ParameterList([nn.Parameter(torch.randn(3, 3)), nn.Parameter(torch.randn(3))])

    def forward(self, x: Tensor) -> Tensor:
        h = F.linear(x, self.weight).tanh()
        return torch.einsum("bi,oi->bo", h, self.mixing[0]) + self.mixing[1]


class LanguageModel(nn.Module):
    """Token indices to logits (B, T, V), the head tied to the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix, self.head = nn.Embedding(6, 3), nn.Linear(3, 3), nn.Linear(3, 6, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.mix(self.embed(tokens)).tanh())


class Conv1D(nn.Module):
    """Stands for a tied pair with the weight stored the other way round: x W and h Wᵀ."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3))

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.weight).tanh() @ self.weight.T


class HasConfig(LanguageModel):
    """Tied as Hugging Face ties: the parameter is assigned after both modules are built, and listed as tied."""

    _tied_weights_keys = ("head.weight",)

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 6)
        self.head.weight = self.embed.weight

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        h = super().forward(input_ids)[:, :, :3] * attention_mask.unsqueeze(2)  # (B, T, 3)
        return SequenceClassifierOutput(logits=h.mean(1), hidden_states=(h, h))


class TwoInputs(Mlp):
    """Two tensors and a plain number."""

    def forward(self, a: Tensor, b: Tensor, scale: float = 2.0) -> Tensor:
        return super().forward(a + scale * b)


class DictInput(Mlp):
    """One argument that is a dict of tensors."""

    def forward(self, features: Mapping[str, Tensor]) -> Tensor:
        return super().forward(features["a"] * features["b"])


class TupleInput(Mlp):
    """One argument that is a tuple of tensors."""

    def forward(self, pair: tuple[Tensor, Tensor]) -> Tensor:
        return super().forward(pair[0] * pair[1])


class Returns(Mlp):
    """The outputs inside something else."""

    def __init__(self, wrap: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.wrap = wrap

    def forward(self, x: Tensor) -> Any:
        return self.wrap(super().forward(x))


class BareList(nn.Module):
    """A loop over a `ModuleList`, and layers in a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
        self.heads = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Linear(4, 1)})

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x).sigmoid()
        return torch.cat([head(x) for head in self.heads.values()], dim=1)


def compiled_copy() -> nn.Module:
    """`torch.compile(model)`, already compiled by a first call."""
    model = torch.compile(Mlp().double(), backend="eager")
    model(rows())
    return model


def compiled_in_place() -> nn.Module:
    """`module.compile()`, already compiled by a first call; one of its layers is compiled on its own."""
    model = Mlp().double()
    model.last.compile(backend="eager")
    model.compile(backend="eager")
    model(rows())
    return model


def parametrized(how: Callable[[nn.Module], nn.Module]) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        return nn.Sequential(how(nn.Linear(4, 3)), nn.Tanh(), nn.Linear(3, 2)).eval()

    return make


def rows() -> Tensor:
    return torch.randn(EXAMPLES, 4, dtype=torch.float64)


def tokens() -> Tensor:
    return torch.randint(6, (EXAMPLES, 3))


def next_tokens() -> Tensor:
    """Targets of which some are left out, of one example all but one."""
    targets = tokens()
    targets[0, 1] = targets[1, :2] = -100
    return targets


def running(train: bool = True) -> nn.Module:
    """Batch normalisation that has seen some data."""
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)).double()
    model(rows())
    return model.train(train)


@dataclass(frozen=True)
class Kind:
    """A model, what it reads, and where in what it returns the outputs are."""

    make: Callable[[], nn.Module]
    inputs: Callable[[], Any] = rows
    targets: Callable[[], Tensor] | None = None
    outputs: Callable[[Any], Tensor] = lambda y: y


def _of_network(name: str) -> Kind:
    make, size = BUILDERS[name]
    return Kind(make, lambda: torch.randn(EXAMPLES, *size, dtype=torch.float64))


Pair = namedtuple("Pair", ["logits", "state"])

KINDS: dict[str, Kind] = {
    **{name: _of_network(name) for name in BUILDERS},
    **{name: Kind(*made) for name, made in WITHOUT_RULES.items()},
    **{name: Kind(*made) for name, made in EMBEDDINGS.items()},
    "checkpointed": Kind(Checkpointed),
    "own function": Kind(OwnFunction),
    "own function with setup": Kind(OwnFunctionWithSetup),
    "no_grad inside": Kind(NoGradInside),
    "no_grad layer": Kind(NoGradLayer),
    "straight through": Kind(Detached),
    "loops": Kind(Loops),
    "branches": Kind(Branches),
    "masked": Kind(Masked),
    "in place": Kind(InPlace),
    "keeps activations": Kind(KeepsActivations),
    "functional": Kind(Functional),
    "module list": Kind(BareList),
    "tied transposed": Kind(Conv1D),
    "weight norm": Kind(parametrized(parametrizations.weight_norm)),
    "spectral norm eval": Kind(parametrized(parametrizations.spectral_norm)),
    "orthogonal": Kind(parametrized(parametrizations.orthogonal)),
    "compiled copy": Kind(compiled_copy),
    "compiled in place": Kind(compiled_in_place),
    "tied to the head": Kind(LanguageModel, tokens),
    "ignore_index": Kind(LanguageModel, tokens, next_tokens),
    "like transformers": Kind(
        HasConfig,
        lambda: {"input_ids": tokens(), "attention_mask": torch.ones(EXAMPLES, 3, dtype=torch.int64)},
        outputs=lambda y: y.logits,
    ),
    "two inputs": Kind(TwoInputs, lambda: (rows(), rows(), 0.5)),
    "inputs by name": Kind(TwoInputs, lambda: {"b": rows(), "a": rows()}),
    "dict output": Kind(lambda: Returns(lambda y: {"scores": y}), outputs=lambda y: y["scores"]),
    "tuple output": Kind(lambda: Returns(lambda y: (y, None, y.sum())), outputs=lambda y: y[0]),
    "named output": Kind(lambda: Returns(lambda y: Pair(y, y.tanh())), outputs=lambda y: y.logits),
}

REFUSED: dict[str, tuple[Kind, str]] = {
    "checkpointed reentrant": (
        Kind(CheckpointedReentrant),
        "the model uses reentrant activation checkpointing, which torch differentiates by .backward() alone",
    ),
    "batchnorm train": (Kind(running), "batch normalisation '1' is in training mode, call model.eval() first"),
    "dropout train": (
        Kind(lambda: nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.Linear(6, 3))),
        "two forward passes of the same batch differ: dropout or another random layer is in training mode",
    ),
    "bfloat16": (
        Kind(lambda: Mlp().bfloat16(), lambda: rows().bfloat16()),
        "model and inputs are in bfloat16: convert both to float32 or float64",
    ),
    "float16": (Kind(lambda: Mlp().half(), lambda: rows().half()), "model and inputs are in float16"),
    "two dtypes": (Kind(lambda: Mlp().bfloat16(), lambda: rows().float()), "are in bfloat16 and float32"),
    "no weights": (
        Kind(lambda: nn.Sequential(nn.ReLU(), nn.Flatten())),
        "the model Sequential has no parameters: there is nothing to measure",
    ),
    "spectral norm train": (
        Kind(lambda: nn.Sequential(parametrizations.spectral_norm(nn.Linear(4, 30)), nn.Tanh(), nn.Linear(30, 3))),
        "or updates itself; call model.eval() first",
    ),
    "all frozen": (Kind(lambda: Mlp().requires_grad_(False)), "no weight matrix, bias or scalar"),
    "lazy": (
        Kind(lambda: nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(3))),
        "parameter '0.weight' has no shape yet: run the model once before measuring it",
    ),
    "several outputs": (
        Kind(lambda: Returns(lambda y: (y, y.tanh()))),
        "returned a tuple with 2 tensors over the examples (0, 1): wrap it so that it returns one of them",
    ),
    "no outputs": (Kind(lambda: Returns(lambda y: {"loss": y.sum()})), "returned a dict without a tensor over the ex"),
    "nan outputs": (Kind(lambda: Returns(lambda y: y / 0 * 0)), "returned NaN or infinite outputs"),
    "autocast inside": (Kind(lambda: Returns(lambda y: y.bfloat16())), "returned torch.bfloat16 outputs: switch autoc"),
    **{
        name: (
            Kind(*made),
            "an example on its own gives other outputs than in the batch: the model runs over the first",
        )
        for name, made in MIXING.items()
    },
    "compiled by torch.jit": (
        Kind(lambda: torch.jit.script(nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)))),
        "the model was compiled by torch.jit, which hides its layers: pass the module it is of",
    ),
    "branches on the batch": (Kind(BranchesOnBatch), "an example on its own gives other outputs than in the batch"),
    "centred on the batch": (Kind(CentredOnBatch), "an example on its own gives other outputs than in the batch"),
    "nested dict input": (Kind(DictInput, lambda: ({"a": rows(), "b": rows()},)), "inputs hold tensors inside"),
    "nested tuple input": (Kind(TupleInput, lambda: ((rows(), rows()),)), "inputs hold tensors inside a"),
}
