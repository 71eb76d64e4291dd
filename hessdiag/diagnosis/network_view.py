"""A network as the rules see it: its signals by role, and the scheme that most of its weights follow."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from hessdiag.arguments import few
from hessdiag.results.findings import Severity
from hessdiag.results.numbers import short
from hessdiag.results.signals import ParameterSignals, Signals
from hessdiag.results.text_table import label

# n k² E[W²] at which a nonlinearity keeps E[x²]; SELU holds itself at 1.
CRITICAL = {
    "relu": 2.0, "relu6": 2.0, "leaky_relu": 1.92, "gelu": 2.35, "silu": 2.81, "elu": 1.55, "selu": 1.0, "tanh": 1.0,
}  # fmt: skip
MOST_NAMED = 6  # weights that are to be multiplied
GATES = {"gate", "softplus", "exp"}  # they say how much, or how long
LEARNT, LEARNT_SCALED, ENOUGH = 0.5, 0.8, 16  # of the loss of a constant guess; examples, few of which may lie right
RARE = 1e-4  # batches
SWING = 0.05  # by which a loss changes at least, whatever the outputs are
LEARNABLE = 1e-3  # of the loss: what single outputs must gain beside constant ones
LEVEL = 0.25  # of the loss, which means of examples would take away
DROPPED = 0.9  # of what a layer reads; healthy networks drop 80 % at most
TINY, ADAM_RATE = 1e-300, 1e-3
SATURATED = 0.5  # of the units
ADAM = 1e-8  # the ε that it adds to the root of its second moment: weights with smaller gradients do not move
SMALL = 1e-4  # E[x²] of small signals
BLIND = 1e-6  # share of a gradient along its weight, about 1 in general: the scale of that changes nothing


class Net:
    """Signals of one network by role, and what is derived from them."""

    def __init__(self, signals: Signals) -> None:
        self.signals = signals
        self.parameters = [p for p in signals.parameters if p.numel]
        self.named = {p.name: p for p in self.parameters}
        self.siblings = assign_siblings(self.parameters)
        self.layers = {layer.path: layer for layer in signals.layers}  # in execution order
        self.order = {path: place for place, path in enumerate(self.layers)}
        self.matrices = [p for p in self.parameters if {"product", "lookup"} & set(p.uses)]  # no free parameters
        self.weights = [p for p in self.matrices if "lookup" not in p.uses]  # no tables
        held = [(owner, p) for p in self.matrices for owner in p.owners if owner in self.layers]
        self.weight_of = dict(held) | dict(held[::-1])  # of several the first, which reads the inputs
        tables = {path for path, layer in self.layers.items() if "Embedding" in layer.kind}
        self.backbone = [path for path in self.layers if path in self.weight_of and path not in tables]
        outputs = [path for path in self.backbone if "output" in self.layers[path].labels]
        self.head = outputs[-1] if outputs else None  # the last that writes the output
        self.hidden = [path for path in self.backbone if path != self.head]
        functional = not signals.fixed_norms and any("norm" in layer.labels for layer in signals.layers)
        self.normalised = functional or any(layer.normalises for layer in signals.layers)  # by statistics of the batch
        self.residual = any("add" in layer.labels for layer in signals.layers)

    @property
    def chain(self) -> list[str]:
        """The hidden layers of the shortest way to the head, as past the depth of a U-Net, or to the farthest end."""
        behind: dict[str, list[str]] = {}
        for path in self.backbone:
            before = [behind[o] for o in self.layers[path].sources if o in behind]
            behind[path] = [*min(before, key=len, default=[]), path]
        inner = {o for layer in self.layers.values() for o in layer.sources}
        ends = [way for o, way in behind.items() if o not in inner]
        return behind[self.head][:-1] if self.head else max(ends, key=len, default=[])

    @property
    def zero_heads(self) -> bool:
        """Whether what is zero, and what reads zeros, goes on linearly to the outputs: heads that learn from there."""
        zeros = [layer for o, layer in self.layers.items() if o in self.weight_of and not self.weight_of[o].weight_sq]
        reads = [layer for layer in self.layers.values() if layer.x_sq == 0]
        return bool(zeros) and all({*layer.labels} <= {"linear", "add", "output"} for layer in (*zeros, *reads))

    @property
    def loss_ratio(self) -> float:
        """The initial loss over that of a constant guess; NaN where there is none."""
        chance = self.signals.chance_loss
        return self.signals.initial_loss / chance if chance > 0 else math.nan

    @property
    def learnt(self) -> bool:
        """Whether the outputs tell the targets; of an overfitted network, once they are scaled down."""
        scaled = self.signals.scaled_loss < LEARNT_SCALED * self.signals.chance_loss
        return self.signals.solved or self.loss_ratio < LEARNT or (scaled and self.signals.examples >= ENOUGH)

    def first_step(self, learning: Sequence[ParameterSignals]) -> float:
        """The share of the loss that a first step of Adam, at its usual rate, takes away at most: 0.001 Σ |g| of it."""
        if self.signals.sent_back != "loss" or not self.signals.initial_loss or not learning:
            return math.nan
        return ADAM_RATE * sum(math.sqrt(p.gradient_sq) * p.numel for p in learning) / abs(self.signals.initial_loss)

    def place(self, p: ParameterSignals) -> int:
        """Where the last owner of a parameter is called; -1 where none is."""
        return max((self.order.get(owner, -1) for owner in p.owners), default=-1)

    def scale(self, path: str) -> float:
        """n k² E[W²]: what the layer multiplies E[x²] by, were its inputs uncorrelated."""
        p = self.weight_of[path]
        return p.fan_in * p.kernel * p.weight_sq

    def power(self, p: ParameterSignals) -> float:
        """|⟨W, ∂L/∂W⟩| / L: the power of the size of W with which the loss grows, 1 or 2 where W alone sets it."""
        return math.sqrt(p.along * p.numel * p.weight_sq * p.gradient_sq) / self.signals.initial_loss

    def normalised_behind(self, path: str) -> bool:
        """Whether what a layer wrote is normalised, or what one did that reads it, and so on."""
        found = {path}
        for o, layer in self.layers.items():
            found |= {o} if found & {*layer.sources} else set()
        return self.normalised and any(self.layers[o].normalises or "norm" in self.layers[o].labels for o in found)

    def critical(self, path: str) -> float | None:
        """The scale at which E[x²] stays, for the layer's nonlinearity; None where it is not known."""
        return next((CRITICAL[label] for label in self.layers[path].labels if label in CRITICAL), None)

    def held(self, path: str, attribute: str) -> ParameterSignals | None:
        """A parameter of a module, such as its bias, or the weight that is a gain."""
        return self.named.get(f"{path}.{attribute}".removeprefix("."))

    def labelled(self, label: str) -> tuple[str, ...]:
        """Names of the weights, or gains, of layers with a label."""
        return self.names_of(o for o, layer in self.layers.items() if label in layer.labels)

    def names_of(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Names of the weights, or gains, of layers; those without either have none."""
        found = (self.weight_of.get(o) or self.held(o, "weight") for o in paths)
        return tuple(dict.fromkeys(p.name for p in found if p))

    def name_of(self, path: str) -> str:
        """Name of the weight of a layer."""
        return self.weight_of[path].name


def listed(names: Iterable[str]) -> str:
    """Name the layers of parameters in a sentence, siblings together; no names are those of the whole model."""
    text = label([*names]) or "the model"
    several = "s" if {"×", ","} & {*text} else ""
    return f"layer{several} {text}" if text[0].isdigit() and not text.endswith("bias") else text


def multiplied(net: Net, factors: Mapping[str, float]) -> str:
    """Name weights and what to multiply each by in a sentence, siblings by one factor."""
    families = defaultdict[str, list[str]](list)
    for name in factors:
        families[net.siblings[name]].append(name)
    means = (geometric_mean([factors[name] for name in names]) for names in families.values())
    each = ("each of " + listed(names) if names[1:] else names[0] for names in families.values())
    return few((f"{which} by {short(factor)}" for which, factor in zip(each, means, strict=True)), MOST_NAMED)


def assign_siblings(parameters: Sequence[ParameterSignals]) -> dict[str, str]:
    """Name the family of each parameter: its name with one number struck out, and its shape. Of several numbers the one
    of the largest family: `blocks.3.conv2` is of `blocks.#.conv2`, not `blocks.3.conv#`.
    """
    found = ((p.name, p.shape, re.finditer(r"\d+", p.name)) for p in parameters)
    choices = {name: [f"{name[: m.start()]}#{name[m.end() :]}{shape}" for m in each] for name, shape, each in found}
    members = Counter(key for keys in choices.values() for key in keys)
    return {name: max(keys, key=members.__getitem__) if keys else name for name, keys in choices.items()}


def log_ratio(a: float, b: float) -> float:
    """ln(a / b), of numbers that may be 0."""
    return math.log(max(a, TINY) / max(b, TINY))


def mode(values: Sequence[float]) -> float:
    """The value with most others within 0.2."""
    return max(values, key=lambda v: sum(abs(v - o) < 0.2 for o in values))


def worst_first(numbers: dict[str, float]) -> tuple[str, ...]:
    """Names by falling number, those near the largest in the order of the network."""
    limit = max(numbers.values(), default=0.0) / 1.5  # what is larger by less is so by chance
    return tuple(sorted(numbers, key=lambda name: -min(numbers[name], limit)))


def graded(value: float, warning: float, fault: float = math.inf) -> Severity:
    """Say how grave a number is, the more the larger; up to `warning` it is a note."""
    return "fault" if value > fault else "warning" if value > warning else "note"


FOLLOWED = 0.4  # share of the weights, from which on a scheme is the one of the network

Unit = Callable[[ParameterSignals], float]
UNITS: dict[str, Unit] = {
    "fan-in": lambda p: p.fan_in * p.kernel,
    "fan-out": lambda p: p.fan_out * p.kernel,
    "Xavier": lambda p: (p.fan_in + p.fan_out) * p.kernel / 2,
}
SCHEMES: dict[str, Unit] = {**UNITS, "constant": lambda p: 1.0}


@dataclass(frozen=True)
class Law:
    """The scheme that most weights follow, E[W²] in its units, and ln of E[W²] over what it gives, by name."""

    name: str
    constant: float
    away: dict[str, float]

    @property
    def share(self) -> float:
        """That of the weights that follow it."""
        return sum(abs(v) < 0.2 for v in self.away.values()) / len(self.away)


def law_of(net: Net) -> Law | None:
    """Find the scheme that most weights follow, head and embeddings left out; None where few follow any."""
    candidates = [p for p in net.weights if p.weight_sq > 0 and net.head not in p.owners]
    found: list[Law] = []
    for name, unit in SCHEMES.items() if candidates else ():
        logs = {p.name: math.log(unit(p) * p.weight_sq) for p in candidates}
        middle = mode(list(logs.values()))
        found.append(Law(name, math.exp(middle), {each: value - middle for each, value in logs.items()}))
    law = max(found, key=lambda each: each.share, default=None)
    return law if law and law.share >= max(3 / len(candidates), FOLLOWED) else None


def how_drawn(net: Net, name: str) -> str:
    """Say how to draw a weight: by the scheme that the others follow, as HD206 has it, else Kaiming's for ReLUs."""
    if not (law := law_of(net)):
        return "`nn.init.kaiming_normal_`"
    std = math.sqrt(law.constant / SCHEMES[law.name](net.named[name]))
    return f"normal, standard deviation {short(std)} as in the other weights"
