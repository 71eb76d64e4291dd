"""The scheme that most weights of a network follow, and how a weight is drawn by it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from hessdiag.diagnosis.rules.network_view import Net, exp, mode
from hessdiag.results.findings import Repair
from hessdiag.results.numbers import short
from hessdiag.results.signals import ParameterSignals

FOLLOWED = 0.4  # share of the weights, from which on a scheme is the one of the network
CLEAR = 0.6  # share from which on leaving it is a warning

Unit = Callable[[ParameterSignals], float]
UNITS: dict[str, Unit] = {
    "fan-out": lambda p: p.fan_out * p.kernel,
    "fan-in": lambda p: p.fan_in * p.kernel,
    "Xavier": lambda p: (p.fan_in + p.fan_out) * p.kernel / 2,
}
SCHEMES: dict[str, Unit] = {"constant": lambda p: 1.0, **{law: UNITS[law] for law in ("fan-in", "fan-out", "Xavier")}}


@dataclass(frozen=True)
class Law:
    """The scheme that most weights follow.

    Attributes:
        share: of the weights that do.
        law: its name, or several where all shapes are alike.
        away: ln of E[W²] over what the scheme gives, by name.
        constants: E[W²] in units of the scheme, of each that as many weights follow.
    """

    share: float
    law: str
    away: dict[str, float]
    constants: dict[str, float]


def laws(net: Net) -> Law | None:
    """Find the scheme that most weights follow, head and embeddings left out; None for fewer than four."""
    candidates = [p for p in net.weights if p.weight_sq > 0 and not (net.head and net.head in p.owners)]
    if len(candidates) < 4:
        return None
    found: list[tuple[int, str, float, dict[str, float]]] = []
    for law, unit in SCHEMES.items():
        logs = {p.name: math.log(unit(p) * p.weight_sq) for p in candidates}
        middle = mode(list(logs.values()))
        away = {name: value - middle for name, value in logs.items()}
        found.append((sum(abs(v) < 0.2 for v in away.values()), law, middle, away))
    most = max(followers for followers, *_ in found)
    best = {law: (middle, away) for followers, law, middle, away in found if followers == most}
    nearest = {p.name: min((away[p.name] for _, away in best.values()), key=abs) for p in candidates}
    return Law(
        most / len(candidates) if most >= 3 else 0.0,
        " or ".join(best) if len(best) < len(SCHEMES) else "common",
        nearest,
        {law: math.exp(middle) for law, (middle, _) in best.items()},
    )


def scale_back(away: Mapping[str, float], names: Iterable[str]) -> tuple[Repair, ...]:
    """Multiply weights such that E[W²] is what it should be; `away` is ln of how many times it is that."""
    return tuple(Repair(parameter=name, action="scale", value=exp(-away[name] / 2)) for name in names)


def draw_anew(net: Net, name: str) -> Repair:
    """Draw a weight by the scheme that the others follow, as HD206 has it, else by Kaiming's, which ReLUs want."""
    law, p = laws(net), net.named[name]
    if law is None or law.share < FOLLOWED:
        return Repair(parameter=name, action="kaiming")
    scheme = "fan-in" if "fan-in" in law.constants else next(iter(law.constants))
    return Repair(parameter=name, action="normal", value=math.sqrt(law.constants[scheme] / SCHEMES[scheme](p)))


def how_drawn(repair: Repair) -> str:
    """Say what a repair draws from, such as `Kaiming` or `standard deviation 0.02, as the other weights`."""
    if repair.action == "kaiming":
        return "Kaiming"
    return f"normal, standard deviation {short(repair.value)} as in the other weights"
