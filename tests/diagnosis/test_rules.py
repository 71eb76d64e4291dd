"""Every rule speaks just above its threshold and is silent just below it, from plain numbers alone."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import hessdiag
from hessdiag.diagnosis.network_view import Net
from hessdiag.diagnosis.rules import CATALOGUE, ORDER, RULES, find
from hessdiag.results.findings import CHECKS, Finding
from hessdiag.results.signals import Signals
from tests import networks
from tests.signals import layer, network, plus, relabelled, vector, weight

Make = Callable[[Any], Signals]


def of(rule: str, signals: Signals) -> list[Finding]:
    found = (each(Net(signals)) for each in RULES)
    return [finding for finding in found if finding and finding.rule == rule]


def chain(growth: float) -> Signals:
    gain = growth ** (1 / 6)
    return network(weights={f"l{i}": {"weight_sq": 0.2 * gain} for i in range(6)}, layers={"l5": {"out_sq": 50.0}})


def residual(growth: float) -> Signals:
    signals = network(layers={"head": {"x_sq": growth}})
    return relabelled(signals, "add", paths=("l1", "l3"))


def sines(spread: float, behind: float = 1.0) -> Signals:
    signals = network(
        layers={"l0": {"phase_rms": spread}, "l1": {"phase_rms": behind, "sources": ("l0",)}},
        weights={"l0": {"fan_in": 2, "weight_sq": 0.5}},
    )
    return relabelled(signals, "sin", paths=("l0", "l1"))


def below_eps(share: float) -> Signals:
    norm = layer("norm", kind="LayerNorm", normalises=True, x_sq=1e-6, out_sq=share)
    token = layer("wte", "norm", kind="Embedding", x_sq=math.nan, out_sq=1e-6)
    gain, table = vector("norm.weight", weight_sq=1.0), weight("wte.weight", kind="Embedding", weight_sq=1e-6)
    return plus(network(), layers=(token, norm), parameters=(gain, table))


def grouped(factor: float) -> Signals:
    convolutions: dict[str, Any] = {"shape": (16, 16, 3, 3), "fan_in": 16, "fan_out": 16, "kernel": 9}
    depthwise = {"shape": (16, 1, 3, 3), "fan_in": 1, "fan_out": 1, "kernel": 9, "groups": 16}
    dense = {f"l{i}": convolutions | {"weight_sq": 2 / (16 * 9)} for i in range(4)}
    rest = {f"l{i}": depthwise | {"weight_sq": 2 / (9 * factor)} for i in (4, 5)}
    return network(weights=dense | rest)


def gain(value: float) -> Signals:
    norm = layer("norm", "relu", kind="BatchNorm2d", out_sq=value)
    return plus(network(), layers=(norm,), parameters=(vector("norm.weight", weight_sq=value),))


def weights_of(key: str) -> Make:
    return lambda value: network(weights={"l2": {key: value}})


def layer_of(key: str, path: str = "l1") -> Make:
    return lambda value: network(layers={path: {key: value}})


def grown_behind(factor: float) -> Signals:
    grown = {"l2": {"x_sq": 40.0, "sources": ("l1",)}, "l1": {"out_sq": 40.0 / factor}}
    return network(layers=grown, sources=("l2",))


def behind_a_linear_one(x_sq: float, *labels: str) -> Signals:
    return relabelled(network(layers={"l2": {"sources": ("l1",), "x_sq": x_sq}}), *labels, paths=("l1",))


def bias(value: float) -> Signals:
    return plus(layer_of("x_sq", "l2")(0.1), parameters=(vector("l2.bias", weight_sq=value),))


FLAT = {"l1": {"saturated": 0.6}}
# rule, signals for a number, a number that is silent and one that speaks
CASES: list[tuple[str, Make, Any, Any]] = [
    ("HD101", lambda v: network(initial_loss=2.3 * v), 1.98, 2.02),
    ("HD101", lambda v: network(initial_loss=2.3 * v, loss_kind="mse"), 2.98, 3.02),
    ("HD102", lambda v: network(layers={"head": {"x_sq": 1e-3, "x_varies": v / 1e-3}}), 1.02e-11, 0.98e-11),
    ("HD102", lambda v: network(layers={"l2": {"out_varies": v}, "head": {"x_varies": v}}), 0.5, 0.0),
    ("HD103", chain, 0.98e4, 1.02e4), ("HD104", residual, 29.5, 30.5),
    ("HD105", lambda v: network(loss_kind="other", pull=v), 999.0, 1001.0),
    ("HD105", lambda v: network(layers={"l0": {"x_varies": v}}), 1.1e-3, 0.9e-3),
    ("HD105", lambda v: network(layers={"l0": {"x_sq": 200.0, "x_varies": v}}), 0.0, 0.1),
    ("HD113", lambda v: network(dropped="drop", dropped_share=v), 0.89, 0.91),
    ("HD105", lambda v: network(layers={"l0": {"x_sq": v}}), 99.0, 101.0),
    ("HD105", lambda v: network(layers={"l0": {"x_sq": v, "out_varies": 1e-3}}), 1.1e-5, 0.9e-5),
    ("HD106", layer_of("saturated"), 0.49, 0.51), ("HD106", lambda v: network(settled=v, layers=FLAT), 0.31, 0.29),
    ("HD107", sines, 1.02, 0.98), ("HD107", lambda v: sines(2.0, v), 6.2, 6.4),
    ("HD109", below_eps, 0.26, 0.24), ("HD205", bias, 3.95, 4.05),
    ("HD110", lambda v: relabelled(layer_of("x_varies", "l2")(v), "relu", "softmax", paths=("l1",)), 1.1e-3, 0.9e-3),
    ("HD112", layer_of("peaked"), 0.09, 0.11),
    ("HD113", lambda v: network(loss_kind="other", outweighs=v, sources=("l4", "head")), 1.9, 2.1),
    ("HD113", lambda v: network(loss_kind="other", summed=v, sources=("l4", "head")), 1.9, 2.1),
    ("HD102", lambda v: network(even=v, output_varies=0.5, weights={"l2": {"uses": (), "unlike": 0.0}}), False, True),
    ("HD105", lambda v: network(loss_kind="mse", initial_loss=v, chance_loss=1.0, output_sq=0.1), 990.0, 1010.0),
    ("HD201", lambda v: network(weights={"l2": {"kurtosis": v, "largest": 9.0}}), 9.8, 10.2),
    ("HD202", lambda v: network(weights={"l2": {"weight_sq": 0.2 * v}}), 8.95, 9.05),
    ("HD202", lambda v: network(weights={"l2": {"weight_sq": 0.2 / v}}), 8.95, 9.05),
    ("HD204", grouped, 16 / 2.6, 16 / 2.4), ("HD204", grouped, 16 * 2.6, 16 * 2.4),
    ("HD205", lambda v: plus(network(), parameters=(vector("l2.bias", weight_sq=9.0, median_sq=v),)), 3.95, 4.05),
    ("HD205", lambda v: plus(layer_of("x_sq", "l2")(1 / v), parameters=(vector("l2.bias", weight_sq=9.0),)), 0.88, 0.9),
    ("HD206", lambda v: network(weights={"l2": {"weight_sq": 0.82, "along": v}}), 0.9e-6, 1.1e-6),
    ("HD206", lambda v: network(weights={"l2": {"weight_sq": 0.2 * v}}), 3.95, 4.05),
    ("HD207", gain, 49.5, 50.5), ("HD207", lambda v: gain(1 / v), 49.5, 50.5),
    ("HD207", lambda v: plus(network(), parameters=(vector("gamma", weight_sq=v, uses=("branch",)),)), 49.5, 50.5),
    ("HD208", weights_of("unlike"), 1.1e-9, 0.9e-9), ("HD115", grown_behind, 29.0, 31.0),
    ("HD113", lambda v: network(bounded="softmax", floor=v, sources=("head",)), 0.24, 0.26),
    ("HD105", lambda v: network(loss_kind="mse", chance_loss=v, initial_loss=v), 990.0, 1010.0),
    ("HD114", lambda v: relabelled(network(), "relu", *v, paths=("l2",)), (), ("astray",)),
    ("HD114", lambda v: relabelled(network(), "relu", *v, paths=("l2",)), (), ("mixed",)),
    ("HD117", lambda v: relabelled(network(), "norm", "linear", *v, paths=("l2",)), (), ("idle",)),
    ("HD120", lambda v: network(unseen=v), (), ("positions 1 to 3 of 4 in dimension 1 of l2", "l2")),
    ("HD120", lambda v: network(output_varies=0.5, repeated=v), 0.34, 0.36),
    ("HD122", lambda v: network(meeting=v), None, ("l2", True)),
    ("HD113", lambda v: network(unbounded=v, sources=("head",)), False, True),
    ("HD113", lambda v: network(plunges=v, sources=("head",)), False, True),
    ("HD113", lambda v: network(beyond=v, bounded="sigmoid", sources=("head",)), 0.09, 0.11),
    ("HD117", lambda v: behind_a_linear_one(1.0, *v), ("relu",), ("linear",)),
    ("HD117", lambda v: behind_a_linear_one(v, "linear"), 1.1, 1.0),
    ("HD404", lambda v: network(unregistered=v), (), ("l1.weight",)),
    ("HD121", lambda v: network(initial_loss=2.0, fitted_loss=v), 1.59, 1.61),
    ("HD121", lambda v: network(initial_loss=2.0, fitted_loss=v), 2.05, 2.03),  # it rises
    ("HD405", lambda v: network(weights={"l2": {"uses": ("lookup",), "rows": v}}), 2, 1),
    ("HD405", lambda v: network(examples=v, weights={"l2": {"uses": ("lookup",), "rows": 1}}), 1, 2),
    ("HD401", weights_of("gradient"), "some", "zero"), ("HD403", weights_of("gradient"), "some", "none"),
    ("HD402", layer_of("on_share", "l2"), 0.03, 0.02),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "make", "below", "above"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_it_speaks_above_the_threshold_alone(rule: str, make: Make, below: Any, above: Any) -> None:
    assert of(rule, make(below)) == []
    (found,) = of(rule, make(above))
    assert found.blocks or rule == "HD121" or " dropped in " in found.message  # which tell that, not where
    assert set(found.blocks) <= {p.name for p in make(above).parameters}
    assert found.message.endswith(".")
    assert found.advice.endswith(".")


ZERO, STUCK, KEPT = {"weight_sq": 0.0, "kurtosis": math.nan}, {"gradient": "zero"}, {"trainable": False}
DEAD = ZERO | STUCK | {"uses": ("factor", "product")}
WIDE = {"shape": (10, 40), "numel": 400, "fan_in": 40}
KERNEL = {"kernel": 9, "uses": ("product", "convolution"), "numel": 10**8}
THIN = {"fan_in": 1, "kernel": 9, "weight_sq": 0.2 * 30}
DROWNED: dict[str, Any] = {"l1": {"out_varies": 0.0}, "l2": {"x_varies": 5e-4}, "head": {"x_varies": 5e-4}}
LOST: dict[str, Any] = {"l3": {"x_varies": 0.0, "out_varies": 0.0, "sources": ("l2",)}, "head": {"x_varies": 0.0}}
NO_SIGNAL: dict[str, Any] = {"l2": {"out_sq": 0.0, "out_varies": 0.0}, "head": {"x_sq": 0.0, "x_varies": 0.0}}


def weights(*paths: str, **values: Any) -> Signals:
    return network(weights=dict.fromkeys(paths, values))


def layers(**values: Any) -> Signals:
    return network(layers=values)


def scaled(scales: list[float]) -> Signals:
    others = {f"l{i}": {"weight_sq": scale} for i, scale in zip((0, 1, 4, 5), scales, strict=True)}
    return network(weights={"l2": DEAD, "l3": DEAD, **others})


def beside_an_adapter(name: str) -> Signals:
    adapter = weight(name, shape=(4, 10), owners=(name[:2],), attribute="a")
    return plus(weights("l2", trainable=False, shape=(10, 11)), parameters=(adapter,))


# rule, signals, severity or nothing, blocks, and a pattern of message and advice, each in a line
TOLD: list[tuple[Any, ...]] = [
    ("HD401", network(weights={"l2": {"gradient": "later"}, "l3": ZERO}), ""),
    ("HD401", weights("l2", "l3", **DEAD), "fault"),
    # A bias beside a weight that cannot learn is named too, and makes it no graver.
    ("HD401", plus(weights("l2", **STUCK), parameters=(vector("l2.bias", **STUCK), vector("l4.bias", **STUCK))),
        "warning", ("l2.weight", "l4.bias", "l2.bias"),
        r"^l2, l4.bias, l2.bias cannot learn: the gradient"),
    *(("HD401", plus(network(), parameters=(vector(f"l4.{name}", **STUCK, attribute=name),)), said)
        for name, said in (("bias", ""), ("length", "warning"))),
    *(("HD112", layers(l2={"peaked": n}, l1={"peaked": 0.5}), "warning", (f"l{first}.weight", f"l{3 - first}.weight"))
        for n, first in ((0.7, 1), (0.8, 2))),
    # What is drawn anew follows the scheme of the others, and their fans: √(2 / 40).
    ("HD401", scaled([0.2] * 4), "fault", None, r"\n.*standard deviation 0\.447"),  # all follow E[W²] = 0.2
    ("HD401", weights("l2", "l3", **ZERO | STUCK), "fault", None, r"\nLook for"),  # a rounding, say
    ("HD401", scaled([1e-4, 2e-3, 0.04, 0.8]), "fault", None, r"\n.*\(`nn.init.kaiming_normal_`\)"),  # no two agree
    ("HD401", scaled([0.2, 0.2, 0.2, 0.04]), "fault", None, r"\n.*standard deviation 0\.447"),
    ("HD401", network(weights={
        "l5": WIDE | DEAD,
        **{f"l{i}": {"fan_in": n, "fan_out": 7, "weight_sq": 2 / n} for i, n in enumerate((10, 20, 80, 160, 320))},
    }), "warning", None, r"\n.*standard deviation 0\.224"),  # alone: another factor is zero
    ("HD104", residual(300.0), ""),  # more than two branches make of it
    ("HD403", weights("l2", **KEPT), "warning"), ("HD403", weights("l0", **KEPT), ""),
    ("HD403", weights("l1", "l3", **KEPT), ""), ("HD403", beside_an_adapter("l2.a"), ""),
    ("HD403", beside_an_adapter("l3.a"), "warning"),
    ("HD103", network(weights={f"l{i}": {"weight_sq": 0.1} for i in range(6)}, layers={
        f"l{i}": {"x_sq": min(1e3 ** (i - 1), 1e6), "out_sq": min(1e3**i, 1e6)} for i in range(1, 6)
    }), "warning", ("l1.weight", "l2.weight"), "grow"),
    # Fans without the kernel are none where a usual scheme gives the same: of one channel into 48, by chance.
    *(("HD204", weights("l1", "l2", **KERNEL, shape=(48, n, 3, 3), fan_in=n, fan_out=48, weight_sq=2 / (54 + n)), said)
        for n, said in ((1, ""), (4, "warning"))),
    *(("HD102", network(weights={"l2": {"weight_sq": 0.0, "gradient": gradient}}, layers=NO_SIGNAL), severity)
        for gradient, severity in (("some", ""), ("zero", "fault"))),
    ("HD102", network(layers=LOST | {"l2": {"out_varies": 0.5}}), "fault", ("l3.weight",)),
    ("HD102", network(layers=LOST | {"l2": {"out_varies": 0.0}}), "fault", ("l2.weight",)),
    ("HD401", network(weights={"l1": {"weight_sq": 0.0}, "l2": {"gradient": "later"}},
        layers={"l2": {"x_sq": 0.0, "sources": ("l1",)}}), ""),
    ("HD110", network(layers=DROWNED), ""),  # under no softmax
    ("HD110", relabelled(layers(l2={"x_varies": 0.0}), "relu", "softmax", paths=("l1",)), ""),
    # Over keys, as of heads that talk: what is read there sums to far less.
    ("HD110", relabelled(layers(l2={"x_varies": 5e-4, "x_sq": 1e-7}), "relu", "softmax", paths=("l1",)), ""),
    ("HD109", below_eps(4e-5), "note"),  # Small beside ε is a note down to a thousandth; one number alone is not small.
    ("HD109", below_eps(1e-7), "warning", ("wte.weight", "norm.weight"), "so small"),
    ("HD109", below_eps(0.0), "warning", ("norm.weight",), "is one number"),
    *(("HD201", network(weights={"l2": {"kurtosis": n, "largest": 100.0}}), said)
        for n, said in ((63.0, "note"), (1100.0, "warning"))),
    ("HD206", network(weights={"l2": {"weight_sq": 0.9, "along": math.nan}}), ""),
    *(("HD115", relabelled(network(layers={"l2": {"x_sq_last": 100.0}}), label, paths=("l4",)), said)
        for label, said in (("norm", ""), ("relu", "warning"))),
    ("HD206", network(depth=8, weights={"l2": THIN}), "warning"),
    ("HD206", network(depth=8, weights={"l2": THIN | {"kernel": 1, "weight_sq": 2.0}}), ""),
    ("HD103", layers(l0={"out_gradient_total": 0.0}), ""),  # A zero that stops all gradients is no decay.
    *(("HD401", network(weights={"l2": STUCK, "l1": {"gradient": gradient}},
        layers={"l2": {"x_sq": 0.0, "x_gradient_sq": 1e-3, "sources": ("l1",)}}), severity)
        for gradient, severity in (("some", ""), ("zero", "warning"))),
    ("HD103", chain(1e5), "warning"),  # A gated network is no plain chain, and means add up.
    ("HD103", replace(chain(1e5), parameters=tuple(replace(p, mean=p.weight_sq**0.5) for p in chain(1e5).parameters)),
        "warning", None, "\nDraw .* around zero"),
    ("HD103", relabelled(chain(1e5), "relu", "gate", paths=("l3",)), ""),
    # A large constant that is wanted is told from outputs that are too large; steps may have a large bias.
    ("HD101", network(loss_kind="other", initial_loss=20.0, chance_sq=900.0, sources=("head",)), ""),
    ("HD101", network(initial_loss=1e9, weights={"l0": {"weight_sq": 1e13}}, layers={"l0": {"out_sq": 9.0}}), "fault",
        ("l0.weight",), "anew"),
    *(("HD101", network(initial_loss=90.0, weights={"head": {"along": of, "gradient_sq": 9e3}, "l2": {"gradient_sq": 9e3
        }}), "fault", (name,)) for of, name in ((0.0, "l2.weight"), (1.0, "head.weight"))),
    *(("HD105", relabelled(network(layers={"l0": {"x_sq": 900.0}, "l1": {"kind": "BatchNorm2d", "out_sq": of}},
        fixed_norms=1), "norm", paths=("l0",)), said) for of, said in ((1.0, "note"), (900.0, "warning"))),
    *(("HD208", plus(network(weights={"l1": {"unlike": of}}), parameters=(weight("l1.rho", unlike=0.0),)), *said)
        for of, said in ((0.0, ("fault", ("l1.weight", "l1.rho"))), (1.0, ("",)))),  # deviations beside means
    ("HD208", network(weights={"l1": {"unlike": 0.01, "mean": 0.44}}), "warning", ("l1.weight",), "around zero, not 0"),
    ("HD205", relabelled(bias(30.0), "softplus", paths=("l2",)), ""),
    ("HD205", replace(bias(30.0), sources=("l2", "head")), ""),  # of several heads one
    *(("HD106", network(layers={"l2": {"saturated": 0.95}, "l3": {"sources": (f"l{n}",)}}), said)
        for n, said in ((2, "fault"), (1, "warning"))),  # beside the way to the outputs
    ("HD206", network(weights={"l2": {"weight_sq": 0.9, "kind": "Embedding"}}), ""),  # codes to compare with
    *(("HD204", weights("l1", "l2", **KERNEL | {"shape": (2, 2, 3, 3), "numel": n}, fan_in=2, fan_out=2), said)
        for n, said in ((36, ""), (3600, "warning"))),  # in small ones it is chance
    ("HD403", weights("l3", gradient="none"), "warning"), ("HD403", weights("l5", gradient="none"), "note"),
    *((("HD113", network(**{field: number}), severity, ()))
        for field, below, above in (("swing", 0.051, 0.049), ("learnable", 1.1e-3, 0.9e-3), ("agrees", -0.39, -0.41))
        for number, severity in ((below, ""), (above, "warning"))),
]  # fmt: skip


@pytest.mark.parametrize("row", TOLD, ids=[f"{row[0]}-{i}" for i, row in enumerate(TOLD)])
def test_exceptions_severities_and_words(row: tuple[Any, ...]) -> None:
    rule, signals, severity, blocks, words, *_ = (*row, None, "")
    found = of(rule, signals)
    assert [each.severity for each in found] == ([severity] if severity else [])
    if severity:
        assert blocks is None or found[0].blocks == blocks
        assert re.search(words or "", f"{found[0].message}\n{found[0].advice}")


LARGE = {"weight_sq": 2.0}  # which ReLUs take back, and of which a larger output remains
# signals, and what is said of them: rule, severity, and the first of the blocks
FOUND: list[tuple[Signals, list[tuple[str, ...]]]] = [
    (network(), []),  # A plain chain is healthy, also where sampling explains its loss.
    *((network(initial_loss=2.3 * 2.5, initial_loss_stderr=2.0, typical_loss=loss), found)  # of half of the examples
        for loss, found in ((2.0, []), (4.0, [("HD101", "note", "head.weight")]))),
    (plus(network(initial_loss=10.0, output_sq=0.1), parameters=(vector("head.bias"),)),
        [("HD101", "warning", "head.bias")]),
    # An effect is left out and lends its gravity to the cause, but for one whose size that does not account for.
    (network(weights={"l2": LARGE}, layers={"l2": {"out_sq": 2.0 * 10}}, initial_loss=2.3 * 16),
        [("HD202", "fault", "l2.weight")]),
    (network(weights={"l2": LARGE}, layers={"head": {"out_sq": 2.0 * 100}}, initial_loss=2.3 * 16),
        [("HD101", "fault", "head.weight"), ("HD202", "warning", "l2.weight")]),
    (network(shown="ahead", initial_loss=0.1), [("HD116", "fault")]),
    (network(shown="own", initial_loss=0.1), [("HD116", "fault")]),
    (relabelled(network(shown="ahead"), "relu", "astray", paths=("l2",)), [("HD114", "fault", "l2.weight")]),
    (network(unmoved=1), [("HD401", "warning")]),
    (network(unregistered=("w (random)",)), [("HD404", "warning", "w (random)")]),
    (network(unregistered=("random_features",)), [("HD404", "fault", "random_features")]),
    (network(layers={"l0": {"peaked": 0.5, "x_sq": 4.1}}), [("HD112", "note", "l0.weight")]),
    (network(layers={"l2": {"on_share": 0.0}}, initial_loss=0.1), [("HD402", "note", "l2.weight")]),
    (network(weights={"l1": STUCK, "l4": STUCK}, layers={"l2": {"on_share": 0.0}, "l4": {"x_sq": 0.0}}),
        [("HD402", "fault", "l2.weight")]),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(FOUND)))
def test_what_all_rules_say_together(number: int) -> None:
    signals, said = FOUND[number]
    assert [(each.rule, each.severity, *each.blocks[:1]) for each in find(signals)] == said


@pytest.mark.parametrize(("factor", "severity"), [(4.9, "note"), (5.1, "warning"), (14.9, "warning"), (15.1, "fault")])
def test_how_grave_an_initial_loss_is(factor: float, severity: str) -> None:
    (found,) = find(network(initial_loss=2.3 * (factor + 0.2), initial_loss_stderr=0.23))
    assert (found.rule, found.severity) == ("HD101", severity)
    assert found.value == pytest.approx(factor + 0.2)


def test_siblings_that_enlarge_alike_are_made_smaller_together() -> None:
    torch.manual_seed(0)
    layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(2)).apply(lambda m: [p.data.mul_(30) for p in m.parameters()])
    model = net(lambda m, x: m.head(m.l[1](m.l[0](x).relu()).relu()), l=layers, head=nn.Linear(8, 3))
    found = hessdiag.diagnose(model, torch.randn(64, 8), torch.arange(64) % 3, quick=True).findings[0]
    assert (found.rule, re.match(r"Multiply each of l\.# ×2 by 0\.0", found.advice) is not None) == ("HD101", True)


def test_the_catalogue_explains_every_rule_and_no_other_and_the_verdict_counts_them() -> None:
    assert len(ORDER) == CHECKS + 1  # one is asked for
    spoken = {rule for rule, *_ in CASES} | {"HD116"} | {f"HD60{number}" for number in range(1, 5)}
    assert set(CATALOGUE) == spoken
    for rule, entry in CATALOGUE.items():
        assert {"What it measures", "Threshold", "Exceptions"} <= set(entry.parts), rule
        assert all((entry.title, *entry.parts.values())), rule
        assert re.search(r"\d|zero", entry.parts["Threshold"]) or rule == "HD403"


def test_what_is_wrong_with_the_batch_is_not_laid_to_weights() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 50), nn.ReLU(), nn.Linear(50, 5))
    x, t = torch.randn(64, 20), torch.arange(64) % 5
    for inputs, targets, rule, what in (
        (x[:1].repeat(64, 1), t, "HD102", "have the same inputs"),
        (x, (torch.arange(64) == 0).long(), "HD101", "although outputs are small"),
    ):
        found = hessdiag.diagnose(model, inputs, targets, quick=True).findings
        assert [(each.rule, what in each.message) for each in found if each.severity != "note"] == [(rule, True)]


def test_zeros_ahead_of_a_normalisation_open_and_shapes_that_torch_would_broadcast_are_a_note() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 50), nn.BatchNorm1d(50), nn.ReLU(), nn.Linear(50, 1))
    x = torch.randn(64, 20)
    (note,) = hessdiag.diagnose(model, x, x[:, 0], quick=True).findings
    assert (note.rule, note.severity, "(64, 1) and (64,) to (64, 64)" in note.message) == ("HD113", "note", True)
    assert hessdiag.diagnose(model, x, x[:, :1], quick=True).findings == ()
    squeezed = networks.Net(lambda m, x: m.inner(x).squeeze(-1), inner=model)
    assert hessdiag.diagnose(squeezed, x, x[:, 0], quick=True).findings == ()
    nn.init.zeros_(model[0].weight)
    assert hessdiag.diagnose(model, x, x[:, :1], quick=True).findings == ()


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_a_loss_that_cannot_see_the_outputs_is_a_fault() -> None:
    torch.manual_seed(0)
    x, t = torch.randn(8, 4), torch.randint(3, (8,))
    for last, loss, what in (
        (nn.Identity(), lambda y, t: y.softmax(1).sum(1).mean(), "Whatever the outputs"),
        (nn.Identity(), lambda y, t: F.cross_entropy(y.detach(), t).requires_grad_(), "sends no gradient"),
        (nn.Identity(), lambda y, t: F.l1_loss(y.gather(1, t[:, None]), t.float()), "(8, 1) and (8,) to (8, 8)"),
        (nn.Identity(), lambda y, t: (y[:, :1] * (t - 0.5)).square().mean(), "(8, 1) and (8,) to (8, 8)"),
        (nn.Identity(), lambda y, t: F.mse_loss(y[:, t], t.float()), "(8, 8) and (8,) to (8, 8)"),
        (nn.Dropout(1.0), "cross-entropy", "100 % of the signal is dropped"),
    ):
        model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), last)
        (found,) = hessdiag.diagnose(model, x, t, loss=loss, quick=True).findings[:1]
        assert (found.rule, found.severity) == ("HD113", "fault")
        assert what in found.message


def masked_late(m: Any, x: Tensor) -> Tensor:
    """A mean over no numbers, 0/0, that is left out after it has been computed: its gradient is NaN nevertheless."""
    kept = (x[:, :2] > 0).to(x)
    means = (m.first(x)[:, :2] * kept).sum(1, keepdim=True) / kept.sum(1, keepdim=True)
    y: Tensor = m.last(torch.where(kept.sum(1, keepdim=True) > 0, means, 0.0))
    return y


def test_gradients_that_are_no_numbers_are_a_fault_of_the_last_layer_that_has_them() -> None:
    torch.manual_seed(0)
    model, x = networks.Net(masked_late, first=nn.Linear(4, 4), last=nn.Linear(1, 1)), torch.randn(16, 4)
    (found,) = hessdiag.diagnose(model, x, x[:, :1], quick=True).findings
    assert (found.rule, found.severity, found.blocks) == ("HD401", "fault", ("first.weight", "first.bias"))
    assert "NaN" in found.message


def test_what_is_flat_inside_a_module_of_its_own_nonlinearity_is_seen() -> None:
    layers = [networks.Net(lambda m, x: m.inner(x).tanh(), inner=nn.Linear(16, 16)) for _ in range(3)]
    model, x = nn.Sequential(*layers, nn.Linear(16, 1)), torch.randn(32, 16)
    assert not hessdiag.diagnose(model, x, x[:, :1], quick=True).findings
    for each in layers:
        nn.init.normal_(each.inner.weight, std=2)
    told = hessdiag.diagnose(model, x, x[:, :1], quick=True).findings
    assert told[0].rule == "HD106"


def test_a_bound_of_one_of_several_outputs_is_seen() -> None:
    torch.manual_seed(0)
    x = torch.randn(32, 4)
    for end, rules in ((nn.Identity(), []), (nn.Sigmoid(), ["HD113"])):
        model = networks.Net(
            lambda m, x: (m.end(m.one(x)), m.other(x)), one=nn.Linear(4, 4), other=nn.Linear(4, 2), end=end
        )
        loss = lambda y, t: F.mse_loss(y[0], 2 * t) + y[1].square().mean()  # noqa: E731
        found = hessdiag.diagnose(model, x, x, loss=loss, quick=True).findings
        assert [each.rule for each in found if each.severity != "note"] == rules


ENDS: dict[str, tuple[list[nn.Module], bool]] = {  # what a network ends in, and whether the targets are out of reach
    "clamp": ([nn.Hardtanh()], True), "relu6": ([nn.ReLU6()], True), "sigmoid of a sigmoid": ([nn.Sigmoid()] * 2, True),
    "softplus": ([nn.Softplus()], True), "exp": ([networks.Net(lambda _, x: x.exp())], True),
    "normalisation": ([networks.Net(lambda _, x: F.normalize(x, dim=1))], True),
    "clamp of a exp": ([networks.Net(lambda _, x: x.exp().clamp(min=1e-4))], True),
    "cosine": ([networks.Net(lambda _, x: F.cosine_similarity(x[:, None], x[:, None] + torch.eye(3), dim=2))], True),
    "Div": ([networks.Net(lambda _, x: x / 2)], False), "Addmm": ([], False),
}  # fmt: skip


@pytest.mark.parametrize(("end", "loss"), [
    (lambda y: y.sigmoid().clamp(1e-6, 1 - 1e-6), F.binary_cross_entropy), (lambda y: y.clamp(-1e5, 1e5), F.mse_loss),
    (lambda y: 2**y, F.mse_loss), (lambda y: y.softmax(-1).clamp(min=1e-8), lambda y, t: -(t * y.log()).sum(1).mean()),
    (lambda y: y.log_softmax(-1).exp(), lambda y, t: F.binary_cross_entropy(y.clamp(0, 1), t)),
    (lambda y: y.softmax(-1), lambda y, t: -((t + 0.1) * y.clamp(1e-3, 0.999).log()).sum(1).mean()),
])  # fmt: skip
def test_what_bounds_outputs_no_more_than_their_targets_is_none(end: Any, loss: Any) -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    model, t = networks.Net(lambda m, x: end(m.last(x)), last=nn.Linear(4, 3)), F.one_hot(torch.arange(64) % 3).float()
    report = hessdiag.diagnose(model, x, t, loss=loss, quick=True)
    assert (report.signals is None, [f for f in report.findings if f.severity != "note"]) == (False, [])


@pytest.mark.parametrize("name", ENDS)
def test_what_bounds_the_outputs_is_named_where_targets_are_beyond(name: str) -> None:
    torch.manual_seed(0)
    (last, beyond), x = ENDS[name], torch.randn(32, 4)
    report = hessdiag.diagnose(nn.Sequential(nn.Linear(4, 3), *last), x, 3 * x[:, :3] - 2, quick=True)
    assert report.signals.bounded == name
    told = [each for each in report.findings if each.rule == "HD113"]
    assert [f"ends in a {name}, which keeps" in each.message for each in told] == [True] * beyond


@pytest.mark.parametrize(("step", "rules"), [(0.1, []), (3.0, ["HD115"])])
def test_what_feeds_on_itself_is_named_and_not_what_reads_it_last(step: float, rules: list[str]) -> None:
    def run(m: Any, x: Tensor) -> Tensor:
        for _ in range(12):
            x = x + step * m.field(x)
        y: Tensor = m.head(x)
        return y

    torch.manual_seed(0)
    model, x = networks.Net(run, field=nn.Linear(8, 8), head=nn.Linear(8, 1)), torch.randn(32, 8)
    found = hessdiag.diagnose(model, x, x[:, :1], quick=True).findings
    assert [(each.rule, each.blocks) for each in found] == [(rule, ("field.weight",)) for rule in rules]


def overlap(y: Tensor, t: Tensor) -> Tensor:
    p, one = y.softmax(1), F.one_hot(t, 3)
    return ((p * one).sum(1) / (p + one - p * one).sum(1)).mean()


def unit(y: Tensor, t: Tensor) -> Tensor:
    return F.cosine_similarity(y, F.one_hot(t, 3) + 0.1 * t.unsqueeze(1)).mean()


ASKED: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor, Tensor], Tensor], str]] = {
    "likelihood": (lambda y, t: -F.nll_loss(y.log_softmax(1), t), lambda y, t: F.nll_loss(y.log_softmax(1), t), "away"),
    "overlap": (overlap, lambda y, t: 1 - overlap(y, t), "away"),
    "cosine": (unit, lambda y, t: 1 - unit(y, t), "away"),
    "hinge": (lambda y, t: F.relu(1 - y * F.one_hot(t, 3)).mean(),
              lambda y, t: F.relu(1 - y * (2 * F.one_hot(t, 3) - 1)).mean(), "constant"),
    "sigmoid": (lambda y, t: F.nll_loss(y.clamp(1e-7, 1 - 1e-7).log(), t),  # of the right one alone
                lambda y, t: F.binary_cross_entropy(y, F.one_hot(t, 3).float()), "logarithms of shares"),
    "norm of all": (
        lambda y, t: F.cross_entropy(0.3 * y / y.norm(), t), lambda y, t: F.cross_entropy(9 * F.normalize(y), t),
        "Whatever",
    ),
    "distances": (
        lambda y, t: y.softmax(1).sum(1).mean(), lambda y, t: F.cross_entropy(-y.square(), t), "Whatever"
    ),
    "pairs": (lambda y, t: (y[:, :1] - t.view(1, -1)).square().mean(), lambda y, t: (y[:, 0] - t).square().mean(),
              "(32, 1) and (1, 32) to (32, 32)"),
    "the sum of all": (
        lambda y, t: (t - y[:, 0].sum()).square().mean(),
        lambda y, t: -(t * ((p := y.log_softmax(1)[:, 0]) - p.detach()).exp()).mean(),  # as of a policy
        "() and (32,) to (32,)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
def test_what_a_loss_asks_is_compared_with_the_targets(name: str) -> None:
    torch.manual_seed(0)
    wrong, right, what = ASKED[name]
    layers = [nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3), *[nn.Sigmoid()] * (name == "sigmoid")]
    model, x, t = nn.Sequential(*layers), torch.randn(32, 8), torch.arange(32) % 3
    how: dict[str, Any] = {"per": "batch", "quick": True}
    (found,) = (f for f in hessdiag.diagnose(model, x, t, loss=wrong, **how).findings if f.severity != "note")
    assert (found.rule, what in found.message) == ("HD113", True)
    assert [f for f in hessdiag.diagnose(model, x, t, loss=right, **how).findings if f.severity != "note"] == []


def test_a_loss_that_takes_long_is_called_a_few_times() -> None:
    """A network judges what is made, as for perceptual losses; one that is quick is called until it is at its least."""
    counts = []
    for size in (2, 256):
        judge, calls = nn.Conv2d(3, size, 7), []
        loss = lambda y, t, judge=judge, calls=calls: (calls.append(1), judge(y - t).square().mean())[1]  # noqa: E731
        hessdiag.diagnose(nn.Conv2d(3, 3, 3, padding=1), torch.rand(4, 3, 16, 16), torch.rand(4, 3, 16, 16), loss=loss,
                          quick=True)  # fmt: skip
        counts.append(len(calls))
    assert counts[0] > 2 * counts[1]
    assert counts[1] < 50


def test_notes_advise_nothing() -> None:
    found = find(network(initial_loss=6.9))
    assert [(each.rule, each.severity, each.advice) for each in found] == [("HD101", "note", "")]


net = networks.Net


def steps(carried: bool) -> nn.Module:
    def run(m: Any, x: Tensor) -> Tensor:
        state = x.new_zeros(len(x), 5)
        for step in x.unbind(1):
            state = m.cell(step, state) if carried else m.cell(step, x.new_ones(len(x), 5)) + state
        return m.last(state)

    return net(run, cell=nn.GRUCell(4, 5), last=nn.Linear(5, 3))


def stepped(m: Any, x: Tensor) -> Tensor:
    """Answer with weights one step further, as a learner of learning does."""
    weights = [m.first.weight, m.first.bias]
    ahead = torch.autograd.grad(F.linear(torch.ones(4), *weights).square().sum(), weights, create_graph=True)
    return F.linear(x, *(w - 0.1 * g for w, g in zip(weights, ahead, strict=True)))


class Renamed(nn.Linear):
    """Answers with twice the parameter where it is asked for it, as factored tensors do with their product."""

    def __getattr__(self, name: str) -> Any:
        held = super().__getattr__(name)
        return 2 * held if name == "weight" else held


def coded(m: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    code = m.table(torch.cdist(z := m.down(x), m.table.weight).argmin(1))
    return m.up(code.detach() + (z - z.detach()) if m.through else code), z, code


X, T = torch.randn(16, 4, generator=torch.Generator().manual_seed(1)), torch.arange(16) % 3
W = torch.randn(16, 1, 17, generator=torch.Generator().manual_seed(0)).cumsum(2)
VIDEO = torch.randn(4, 3, 5, 6, generator=torch.Generator().manual_seed(2))
OTHER = (WORDS := torch.randint(1, 9, (16, 8), generator=torch.Generator().manual_seed(3))).roll(3, 1)


PLACES = torch.linspace(-1, 1, 5), torch.linspace(-1, 1, 6)
SERIES = torch.randn(16, 12, generator=torch.Generator().manual_seed(4)) / 9 + torch.linspace(-3, 3, 16)[:, None]


def unlevelled(m: Any, x: Tensor) -> Tensor:
    mean = x.mean(1, keepdim=True)
    return m.g(m.f(x - mean).relu()) + (mean if m.back else 0)


def decoded(m: Any, x: Tensor) -> Tensor:
    """As DETR does: its first attention reads zeros alone."""
    y = torch.zeros_like(m.q).expand(len(x), -1, -1)
    for attention in m.own:
        y = y + attention(y + m.q, y + m.q, y)[0]
        y = y + m.other(y + m.q, x, x)[0]
    return m.last(y.mean(1))  # type: ignore[no-any-return]


def flow(m: Any, x: Tensor) -> Any:
    total = torch.zeros(len(x))
    for f in m.f:
        (x, y), (s, t) = x.chunk(2, 1), f(x[:, :2]).chunk(2, 1)
        s = s.tanh()
        total += m.times * s.sum(1)
        x = torch.cat([y * s.exp() + t, x] if m.swapped else [x, y * s.exp() + t], 1)
    return total - (x**2).sum(1) / 2 if m.density else (x, total)


def moving(m: Any, x: Tensor) -> Tensor:
    for one in m.layers:
        x = torch.cat([x[:, :4] + one.h(x).tanh(), x[:, 4:] + one.x(x).tanh()], 1)
    return m.o(x[:, :4])  # type: ignore[no-any-return]


def listing() -> Any:
    model: Any = nn.Linear(4, 3)
    model.parameters = lambda recurse=True: [model.weight, model.bias]
    return model


class Plain:  # a layer that is no module
    def __init__(self) -> None:
        self.weight = torch.randn(3, 8, requires_grad=True)

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight)


def hardest(y: Tensor, t: Tensor) -> Tensor:
    apart, same = (y[:, None] - y).square().sum(2), t[:, None] == t
    return F.relu(apart.masked_fill(~same, 0).amax(1) - apart.masked_fill(same, 9).amin(1) + 0.5).mean()


def shifted(bias: float) -> nn.Linear:
    layer = nn.Linear(4, 8)
    nn.init.constant_(layer.bias, bias)
    return layer


SAID: list[tuple[str, Callable[[], nn.Module], tuple[Any, ...], Any, str]] = [
    ("axes joined out of order", lambda: net(lambda m, x: m.last(m.first(x).relu().reshape(-1, 2, 6)).view(len(x), -1),
        first=nn.Conv2d(3, 2, 1), last=nn.Linear(6, 1)), (VIDEO,), None, "HD114"),
    ("axes joined in order", lambda: net(lambda m, x: m.last(m.first(x).relu().movedim(2, 1).reshape(-1, 2, 6))
        .view(len(x), -1), first=nn.Conv2d(3, 2, 1), last=nn.Linear(6, 1)), (VIDEO,), None, ""),
    *((f"{p} are dropped {n} times", lambda p=p, n=n: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), *(nn.Dropout(p) for _ in
        range(n)), nn.Linear(8, 3)), (X, T), None, said) for p, n, said in ((0.9, 1, "HD113"), (0.8, 1, ""),
        (0.6, 3, ""), (0.7, 2, "HD113"))),
    *((f"a cell, carried {carried}", lambda carried=carried: steps(carried), (torch.randn(16, 6, 4), T), None, said)
        for carried, said in ((True, ""), (False, "HD120"))),
    *((f"a term of {name}", lambda: nn.Linear(4, 3), (X, T), lambda y, t, term=term: F.cross_entropy(y, t) + term(y),
        said) for name, said, term in (("numbers", "HD113", lambda y: y.square().mean().item()), ("outputs", "", lambda
        y: y.square().mean()), ("a constant", "", lambda y: 3.0), ("show", "", lambda y: y.mean() - y.mean().detach()),
        ("a stack by name", "", lambda y: torch.stack(tensors=[(1j + y.square().mean()).abs()]).sum()), ("a stack",
        "HD113", lambda y: torch.stack([y.mean(), y.square().mean().detach()]).sum()), ("angles to one", "HD113", lambda
        y: F.normalize(y)[:, 0].clamp(-1, 1).acos().mean()), ("angles", "", lambda y: F.normalize(y)[:, 0].clamp(-0.999,
        0.999).acos().mean()))),
    *((f"far by {size}", lambda: nn.Linear(4, 1), (X, size * X[:, :1]), F.l1_loss, said)
        for size, said in ((90.0, ""), (400.0, "HD105"))),
    *((f"a term {name}", lambda cut=cut: net(lambda m, x: ((h := m.first(x)), cut(h).relu()), first=nn.Linear(4, 3)),
        (X, T), lambda y, t: F.cross_entropy(y[0], t) + y[1].square().mean(), said)
        for name, said, cut in (("cut off", "HD113", torch.detach), ("with gradients", "", lambda h: h))),
    *((f"a gradient above {least}", lambda: nn.Linear(4, 1), (X, T), lambda y, t, least=least: F.relu(y[:, 0] - 0.1 * t
        - least).mean(), said) for least, said in ((-9.0, ""), (0.9, "HD113"))),
    *((f"logits viewed, {at}", lambda: nn.Conv2d(3, 2, 1), (VIDEO, VIDEO[:, 0].gt(0).long()), lambda y, t, at=at:
        F.cross_entropy(y.movedim(1, at).reshape(-1, 2), t.flatten()), said) for at, said in ((-1, ""), (1, "HD113"))),
    *((f"tokens to guess, kept: {kept}", lambda: net(lambda m, x: m.last(m.table(x) + m.table(x).mean(1, True)),
        table=nn.Embedding(9, 4), last=nn.Linear(4, 9)), (WORDS.where(torch.tensor(kept) | (WORDS > 3), 0), WORDS),
        lambda y, t: F.cross_entropy(y[t < 4], t[t < 4]), said) for kept, said in ((False, ""), (True, "HD116"))),
    *((f"an input, handed on: {on}", lambda on=on: net(lambda m, x, z: m.last(m.first(x).relu() + on * m.more(z)
        if on else m.first(x).relu()), first=nn.Linear(4, 8), more=nn.Linear(4, 8), last=nn.Linear(8, 3)), ((X, X + 1),
        T), None, said) for on, said in ((True, ""), (False, "HD120"))),
    *((f"a {type(kept).__name__} of layers", lambda kept=kept: net(lambda m, x: m.last(m._kept["one"](x).relu()),
        _kept=kept, last=nn.Linear(32, 3)), (X, T), None, said)
        for kept, said in ((nn.ModuleDict({"one": nn.Linear(4, 32)}), ""), ({"one": nn.Linear(4, 32)}, "HD404"))),
    *((f"a parameter's {made}", lambda made=made: net(lambda m, x: m.last((x @ m.first).relu()), last=nn.Linear(5, 3),
        first=getattr(nn.Parameter(torch.randn(4, 5)), made)()), (X, T), None, said)
        for made, said in (("requires_grad_", ""), ("clone", "HD404"))),
    *((f"a head, detached: {read}", lambda: net(lambda m, x: (m.last(m.first(x).relu()), m.more(m.first(x))),
        first=nn.Linear(4, 8), last=nn.Linear(8, 3), more=nn.Linear(8, 1)), (X, T), lambda y, t, read=read: read * y[1]
        .detach().square().sum() + F.cross_entropy(y[0], t), said) for read, said in ((0, "HD403"), (1, "HD113"))),
    *((f"a bias that {by} is added to", lambda by=by: net(lambda m, x: m.last((m.first(x) + by).relu()),
        first=shifted(-9.0), last=nn.Linear(8, 3)), (X, T), None, said) for by, said in ((9, "HD205"), (0, "HD402"))),
    *((f"shares as logits, in its own loss: {soft}", lambda soft=soft: net(lambda m, x, t: F.cross_entropy(
        m.f(x).softmax(1) if soft else m.f(x), t), f=nn.Linear(4, 3)), ((X, T),), "model", said)
        for soft, said in ((False, ""), (True, "HD113"))),
    *((f"its own loss of column {at}", lambda at=at: net(lambda m, x, t: F.mse_loss(m.f(x)[:, at], t),
        f=nn.Linear(4, 1)), ((X, X[:, 0]),), "model", said) for at, said in ((0, ""), ([0], "HD113"))),
    *((f"frames of {first} first", lambda first=first: net(lambda m, x: m.last((m.first(x.flatten(0, 1)).relu().view(
        16, 4, 5, 6) if first else m.first(x.flatten(0, 1)).relu().view(16, 5, 4, 6).transpose(1, 2)).mean((2, 3))),
        first=nn.Conv1d(2, 4, 1), last=nn.Linear(4, 3)), (torch.randn(16, 5, 2, 6), T), None, said)
        for first, said in (("", ""), ("channels", "HD114"))),
    *((f"scores times {by}", lambda by=by: net(lambda m, x: m.last((by * m.q(x) @ m.k(x).mT).softmax(2) @ m.v(x)
        ).mean(1), q=nn.Linear(4, 4), k=nn.Linear(4, 4), v=nn.Linear(4, 4), last=nn.Linear(4, 3)), (torch.randn(16, 12,
        4), T), None, said) for by, said in ((1, ""), (0, "HD102"))),
    ("scores of normalised queries times 0", lambda: net(lambda m, x: m.last((0 * m.n(m.q(x)) @ x.mT).softmax(2) @ x)
        .mean(1), q=nn.Linear(4, 4), n=nn.LayerNorm(4), last=nn.Linear(4, 3)), (torch.randn(16, 12, 4), T), None,
        "HD102"),
    *((f"patches with axes {axes}", lambda axes=axes: net(lambda m, x: m.last(m.first(x.unfold(2, 3, 3)
        .unfold(3, 3, 3).permute(axes).reshape(len(x), 4, 27)).relu().mean(1)), first=nn.Linear(27, 8),
        last=nn.Linear(8, 3)), (torch.randn(16, 3, 6, 6), T), None, said)
        for axes, said in (((0, 2, 3, 1, 4, 5), ""), ((0, 1, 2, 3, 4, 5), "HD114"))),
    *((f"a padding mask, inverted: {inverted}", lambda inverted=inverted: net(lambda m, x: m.last(m.a(m.t(x),
        src_key_padding_mask=(x > 0) == inverted).mean(1)), t=nn.Embedding(9, 8), last=nn.Linear(8, 3), a=nn
        .TransformerEncoderLayer(8, 2, 16, batch_first=True)), (WORDS.where(torch.arange(8) < 5, 0), T), None, said)
        for inverted, said in ((False, ""), (True, "HD120"))),
    *((f"maps of {tuple(t.shape)}", lambda: nn.Conv2d(3, 1, 1), (VIDEO, t.float()), lambda y, t: (y.sigmoid() - t)
        .square().mean(), said) for t, said in ((VIDEO[:, :1] > 0, ""), (VIDEO[:, 0] > 0, "HD113"))),
    *((f"Dice of {of.__name__}", lambda: nn.Conv2d(3, 1, 1), (VIDEO, (VIDEO[:, :1] > 0).float()), lambda y, t, of=of:
        1 - 2 * (of(y) * t).sum() / (of(y) + t).sum(), said)
        for of, said in ((torch.sigmoid, ""), (torch.asinh, "HD113"))),
    *((f"logits of {f.__name__}", lambda: nn.Linear(4, 1), (X, (X[:, :1] > 0).float()), lambda y, t, f=f:
        F.binary_cross_entropy_with_logits(f(y), t), said) for f, said in ((torch.asinh, ""), (F.sigmoid, "HD113"))),
    *((f"scores over {by}, of row {row}", lambda: net(lambda m, x: (F.normalize(m.a(x)), F.normalize(m.b(x))), a=nn
        .Linear(4, 4), b=nn.Linear(4, 4)), (X, T), lambda y, t, by=by, row=row: F.cross_entropy(y[0] @ y[1].T / by,
        torch.arange(16) * row), said) for by, row, said in ((0.1, 1, ""), (1, 1, "HD113"), (0.1, 0, "HD113"))),
    *((f"a density times {sign}", lambda: net(lambda m, x: (m.f(x)[:, 0], F.softplus(m.f(x)[:, 1])), f=nn.Linear(4, 2)),
        (X, X[:, 0]), lambda y, t, sign=sign: sign * torch.distributions.Normal(*y).log_prob(t).mean(), said)
        for sign, said in ((-1, ""), (1, "HD113"))),
    *((f"labels turned: {turned}", lambda: nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 9)), (WORDS, OTHER * (OTHER >
        2)), lambda y, t, turned=turned: F.cross_entropy(y.flatten(0, 1), (t.T if turned else t).flatten(),
        ignore_index=0), said) for turned, said in ((False, ""), (True, "HD113"))),
    *((f"a {f.__name__} beside a term", lambda f=f: net(lambda m, x: (m.f(x).square().mean(), f(m.f(x))), f=nn.Linear(4,
        4)), (X, X), lambda y, t: F.mse_loss(y[1], t) + y[0], said) for f, said in ((torch.asinh, ""), (torch.sigmoid,
        "HD113"))),
    *((f"a penalty, flat from {n}", lambda n=n: net(lambda m, x: ((torch.autograd.grad(m.f(x.requires_grad_()).tanh()
        .sum(), x, create_graph=True)[0].flatten(n).norm(dim=1) - 1) ** 2).mean() + m.f(x).mean(), f=nn.Conv2d(3, 1, 1)
        ), (VIDEO,), "model", said) for n, said in ((1, ""), (3, "HD113"))),
    ("a cell of one step", lambda: net(lambda m, x, h: m.last(m.cell(x, h)), cell=nn.GRUCell(4, 5), last=nn.Linear(5,
        3)), ((X, torch.zeros(16, 5)), T), None, ""),
    ("actions that are drawn", lambda: net(lambda m, x: F.one_hot(torch.multinomial(p := m.f(x).softmax(1), 1)[:, 0],
        3) + p - p.detach(), f=nn.Linear(4, 3)), (X, X[:, :3]), lambda y, t: -(y * t).sum(1).mean(), ""),
    *((f"inputs turned beside others: {said}", lambda how=how: net(lambda m, x: m.last(torch.cat([m.first(how(x)), how(
        x)], 2)).mean(1), first=nn.Linear(3, 4), last=nn.Linear(7, 3)), (torch.randn(16, 3, 5), T), None, said)
        for how, said in ((lambda x: x.mT, ""), (lambda x: x.reshape(-1, 5, 3), "HD114"))),
    *((f"a hinge for {least}", lambda: nn.Linear(4, 1), (X, torch.where(X[:, :1] > 0, 1.0, least)), lambda y, t:
        F.relu(1 - y * t).mean(), said) for least, said in ((-1.0, ""), (0.0, "HD113"))),
    *((f"a gate behind {f.__name__}", lambda f=f: net(lambda m, x: m.last(m.first(x).relu() * f(m.gate(x))), first=nn
        .Linear(4, 8), gate=shifted(3.0), last=nn.Linear(8, 3)), (X, T), None, "") for f in (F.logsigmoid, torch.exp)),
    ("an activation in an attribute", lambda: net(lambda m, x: m.last(setattr(m, "seen", m.first(x).relu()) or m.seen),
        first=nn.Linear(4, 8), last=nn.Linear(8, 3)), (X, T), None, ""),
    *((f"labels up to {most}", lambda: nn.Linear(4, 1), (X, most * (X[:, :1] > 0).float()),
        F.binary_cross_entropy_with_logits, said) for most, said in ((1, ""), (255, "HD113"))),
    *((f"a flat output beside {tuple(t.shape)}", lambda: net(lambda m, x: m.first(x).flatten(), first=nn.Linear(4, 1)),
        (X, t), F.mse_loss, said) for t, said in ((X[:, 0], ""), (X[:, :1], "HD113"))),
    *((f"a divergence times {weight}", lambda: net(lambda m, x: (m.up(h := m.down(x)), h), down=nn.Linear(4, 2),
        up=nn.Linear(2, 4)), (X / 9, X / 9), lambda y, t, w=weight: F.mse_loss(y[0], t) + w * (y[1]**2).mean(), said)
        for weight, said in ((0.01, ""), (9, ""), (-1, "HD113"))),
    *((f"a hidden {act}", lambda act=act: nn.Sequential(nn.Linear(4, 64), act, nn.Linear(64, 3)), (0.01 * X, T), None,
        said) for act, said in ((nn.ReLU(), ""), (nn.Softmax(1), "HD110"))),
    *((f"a depth, passed by: {skips}", lambda skips=skips: net(lambda m, x: m.last(torch.cat([m.deep(h := m.first(x)),
        h], 1) if skips else m.deep(m.first(x))), first=nn.Linear(4, 8), deep=nn.Sequential(*(f for _ in
        range(12) for f in (nn.Linear(8, 8), nn.ReLU()))), last=nn.Linear(16 if skips else 8, 3)), (X, T), None, said)
        for skips, said in ((True, ""), (False, "HD103"))),
    *((f"{size} outputs beside one target", lambda size=size: net(lambda m, x: m.first(x)[:, :size] if size < 16
        else m.first(x) @ x.T, first=nn.Linear(4, 4)), (X, X[:, :1]), F.mse_loss, said)
        for size, said in ((1, ""), (16, "HD113"))),
    ("inputs handed on", lambda: net(lambda m, x: (m.first(x), x * torch.tensor([0.0, 1, 1, 1])),
        first=nn.Linear(4, 4)), (X,), lambda y, t: (y[0] - y[1]).square().mean(), ""),
    ("indices among floats", lambda: net(lambda m, x: m.last(torch.cat([m.table(x[:, :2].long()).flatten(1), x[:, 2:]],
        1)), table=nn.Embedding(3, 4), last=nn.Linear(10, 3)), (torch.cat([(3 * torch.rand(16, 2)).floor(),
        X[:, :2]], 1), T), None, ""),
    ("as long as the longest", lambda: net(lambda m, x, n: (m.first(x)[:, : int(n.max())], m.first(x)[:, 0]), first=nn
        .Linear(4, 3)), ((torch.randn(16, 6, 4), 4 + T), T), lambda y, t: y[0].square().mean() + y[1].mean()**2, ""),
    ("a parameter by another name", lambda: setattr(m := nn.Linear(4, 3), "__class__", Renamed) or m, (X, T), None, ""),
    *((f"a stream, added {n} times", lambda n=n: nn.Sequential(nn.Linear(4, 8), *(net(lambda m, x, n=n: n * x + m.f(m
        .norm(x)), norm=nn.LayerNorm(8), f=nn.Linear(8, 8)) for _ in range(8)), nn.Linear(8, 3)), (X, T), None, said)
        for n, said in ((1, ""), (2, "HD115"))),
    *((f"a root of at least {least}", lambda least=least: net(lambda m, x: (m.first(x).square() * 1e-9 ** (x[:,
        :1] > 1)).clamp(min=least).sqrt(), first=nn.Linear(4, 3)), (X, X[:, :3].abs()), None, said)
        for least, said in ((1e-6, ""), (0, "HD401"))),
    *((f"roots from {least}", lambda: nn.Linear(4, 3), (X, X[:, :3]), lambda y, t, least=least: ((y - t).square() * 1e-9
        ** (t.roll(1, 0) > 0)).clamp(min=least).sqrt().mean(), said) for least, said in ((1e-6, ""), (0, "HD113"))),
    *((f"over {least} at least", lambda: nn.Linear(4, 3), (X[:4], T[:4]), lambda y, t, least=least: F.cross_entropy(
        y[t > 0], t[t > 0], reduction="sum") / (t > 0).sum().clamp(min=least), said)
        for least, said in ((1, ""), (0, "HD113"))),
    ("statistics written out", lambda: nn.Sequential(nn.Linear(4, 8), type("EvoNorm", (networks.Net,), {})(lambda m,
        x: m.gain * (x - x.mean(0)) / x.norm(dim=0), gain=nn.Parameter(torch.ones(8))), nn.ReLU(), nn.Linear(8, 3)), (X,
        T), None, ""),
    *((f"biases of {of} for rare places", lambda of=of: nn.Sequential(nn.Linear(4, 1).apply(lambda m: m.bias.data
        .fill_(of)), nn.Sigmoid()), (X.repeat(320, 1).view(8, 640, 4), F.pad(torch.ones(1, 1, 1), (0, 0, 0, 639, 0,7))),
        partial(F.binary_cross_entropy, reduction="sum"), said) for of, said in ((-5.0, ""), (0.0, "HD101"))),
    *((f"codes, straight through: {through}", lambda through=through: net(coded, through=through, down=nn.Linear(4, 2),
        table=nn.Embedding(5, 2), up=nn.Linear(2, 4)), (3 * X, X), lambda y, t: F.mse_loss(y[0], t) + F.mse_loss(y[1],
        y[2].detach()) + F.mse_loss(y[1].detach(), y[2]), said) for through, said in ((True, ""), (False, "HD403"))),
    ("one code for all", lambda: net(lambda m, x: m.up(1 + ((z := m.down(x)) - z.detach())), down=nn.Linear(4, 2),
        up=nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 4))), (X, X), F.mse_loss, ""),
    *((f"labels of {t.dtype}", lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).apply(lambda m: [
        p.data.mul_(20) for p in m.parameters(recurse=False)]), (X, t), None, "HD101") for t in (T, T.byte())),
    ("written to behind a dropout", lambda: net(lambda m, x: m.last(F.dropout(m.first(x).relu()).mul_(2)),
        first=nn.Linear(4, 8), last=nn.Linear(8, 3)), (X, T), None, ""),
    ("a view of nothing", lambda: net(lambda m, x: m.first(x) + m.first(x)[x[:, 0] > 99].view(0, 5).sum(),
        first=nn.Linear(4, 3)), (X, T), None, ""),
    ("adapters beside half of the layers", lambda: nn.Sequential(*(layer for _ in range(2) for layer in (net(lambda m,
        x: m.w(x) + m.b(m.a(x)).relu(), w=nn.Linear(4, 4).requires_grad_(False), a=nn.Linear(4, 2), b=nn.Linear(2, 4)),
        nn.Linear(4, 4).requires_grad_(False), nn.ReLU())), nn.Linear(4, 3)), (X, T), None, ""),
    ("one number in another shape", lambda: net(lambda m, x: m.first(x) * m.scale.view(1, 1), first=nn.Linear(4, 3),
        scale=nn.Parameter(torch.ones(()))), (X, T), None, ""),
    ("layers under vmap", lambda: net(lambda m, x: torch.vmap(lambda row: m.first(row).tanh())(x), first=nn.Linear(4,
        3)), (X, T), None, ""),
    ("a step inside", lambda: net(stepped, first=nn.Linear(4, 3)), (X, T), None, ""),
    *((f"channels last {last}", lambda last=last: net(lambda m, x: (m.head(x).mT if last else m.head(x))
        .reshape(-1, 5), head=nn.Conv1d(3, 5, 1)), (torch.randn(4, 3, 10), torch.randint(5, (4, 10))),
        lambda y, t: F.cross_entropy(y, t.flatten()), said) for last, said in ((True, ""), (False, "HD114"))),
    *((f"several classes, {type(last).__name__}", lambda last=last: nn.Sequential(nn.Linear(4, 6), last),
        (X, X[:, [0, 1, 2, 3, 0, 1]].gt(0).float()), F.binary_cross_entropy, said)
        for last, said in ((nn.Softmax(1), "HD113"), (nn.Sigmoid(), ""))),
    ("a zero head ahead of a linear one", lambda: net(lambda m, x: m.up(m.zero(m.first(x).relu())).flatten(1),
        first=nn.Conv2d(3, 4, 1), zero=nn.Conv2d(4, 2, 1, bias=False).apply(lambda m: m.weight.data.zero_()),
        up=nn.ConvTranspose2d(2, 1, 5)), (VIDEO,), lambda y, t: (y - 1).square().mean(), ""),
    *((f"{soften.__name__} beside {t.dtype}", lambda: nn.Linear(4, 3), (X, t),
        lambda y, t, f=f, soften=soften: f(soften(y, 1), t), said) for f, t in ((F.cross_entropy, T), (partial(F.kl_div,
        reduction="batchmean"), X[:, :3].softmax(1)), (lambda y, t: -torch.distributions.Categorical(logits=y).log_prob(
        t).mean(), T)) for soften, said in ((torch.softmax, "HD113"), (torch.log_softmax, ""))),
    *((f"labels from {low} behind a sigmoid", lambda: nn.Sequential(nn.Linear(4, 1), nn.Sigmoid()),
        (X, low + (1 - low) * (X[:, :1] > 0).float()), lambda y, t, part=part: -(t * y.log() + part * (1 - t)
        * (1 - y).log()).mean(), said) for low, part, said in ((0, 1, ""), (-1, 0, ""), (-1, 1, "HD113"))),
    *((f"{sign} times a square", lambda: nn.Linear(4, 1), (X, X[:, :1]),
        lambda y, t, sign=sign: sign * (y - t).square().mean(), said) for sign, said in ((1, ""), (-1, "HD113"))),
    *((f"left out: {left}", lambda: nn.Linear(4, 3), (X, T % 2), partial(F.cross_entropy, ignore_index=left), said)
        for left, said in ((-1, ""), (2, ""), (0, "HD113"))),
    *((f"no gradient, {end}", lambda: nn.Linear(4, 1), (X, X[:, 0]), lambda y, t, end=end: (y[:, 0] - (t + 0.1 * y[:, 0]
        .detach().view(len(y), *end))).square().mean(), said) for end, said in (((), ""), ((1,), "HD113"))),
    *((f"means' {f.__name__}", lambda: nn.Linear(4, 3), (X, T), lambda y, t, f=f: F.cross_entropy(y, t) + F.kl_div(
        f(y.softmax(1).mean(0)), T[:3] / 3, reduction="sum"), said) for f, said in ((torch.log, ""), (abs, "HD113"))),
    ("a term of the last examples", lambda: nn.Linear(4, 1), (X, X[:, :1]), lambda y, t: (y[:12] - t[:12]).square()
        .mean() + (y[12:] - t[12:]).abs().mean(), ""),
    *((f"two {end.__name__}s, joined", lambda end=end: net(lambda m, x: torch.cat([end(m.last(x)), end(m.last(-x))], 1),
        last=nn.Linear(4, 1)), (X, X[:, :2].gt(0).float()), F.binary_cross_entropy_with_logits, said)
        for end, said in ((torch.sigmoid, "HD113"), (torch.neg, ""))),
    *((f"ids times {use}", lambda use=use: net(lambda m, x, ids: m.last(x + m.table(use * ids)), table=nn.Embedding(5,
        4), last=nn.Linear(4, 3)), ((X, 2 * T), T), None, said) for use, said in ((1, ""), (0, "HD120"))),
    *((f"the sign of {one}", lambda: nn.Linear(4, 10), (X, T), lambda y, t, one=one: one * F.cross_entropy(y, t), said)
        for one, said in ((1, ""), (-1, "HD113"))),
    *((f"a sigmoid of {of}", lambda end=end: net(lambda m, x: end(m.first(x)).sum(1, keepdim=True).sigmoid(),
        first=nn.Linear(4, 8)), (X, X[:, :1].gt(0).float()), F.binary_cross_entropy, said)
        for of, end, said in (("sizes", abs, "HD113"), ("a sum", torch.sin, ""))),
    ("logits of an LSTM", lambda: net(lambda m, x: m.cell(x[:, None])[0][:, 0], cell=nn.LSTM(4, 12, batch_first=True)),
        (X, T), None, "HD113"),
    *((f"logarithms of clamped {of}", lambda: nn.Linear(4, 3), (X, T), lambda y, t, form=form: -form(y).clamp(1e-8, 1)
        .log().gather(1, t[:, None]).mean(), said) for of, form, said in (("logits", abs, ""), ("shares", partial(
        torch.softmax, dim=1), ""), ("numbers", torch.clone, "HD113"))),
    *((f"padding, {left}", lambda: nn.Embedding(9, 9), (words := WORDS * (torch.arange(8) < 2), words * 2 % 9), lambda
        y, t, left=left: F.cross_entropy(y.mT, t, ignore_index=left), said) for left, said in ((0, ""), (-1, "HD113"))),
    ("ratings by tables as they are drawn", lambda: net(lambda m, a, b: (m.u(a) * m.v(b)).sum(1),
        u=nn.Embedding(16, 300), v=nn.Embedding(16, 300)), (((a := torch.arange(16)), a), X[:, 0]), "mse", "HD101"),
    *((f"convolutions, {act.__name__}", lambda act=act: nn.Sequential(nn.Conv2d(3, 4, 1), act(), nn.AvgPool2d(2),
        nn.Conv2d(4, 6, 1), act(), nn.Flatten(), nn.Linear(36, 12), act(), nn.Linear(12, 2)), (VIDEO,), None, said)
        for act, said in ((nn.Identity, "HD117"), (nn.Tanh, ""))),
    ("a head and a table in one", lambda: net(lambda m, x, labels: m.last(m.t(x).cumsum(1) - m.t(x)), last=(last :=
        nn.Linear(4, 9)), t=networks.having(nn.Embedding(9, 4), weight=last.weight)), ({"x": WORDS, "labels": WORDS},
        WORDS), None, ""),
    ("labels for the model", lambda: net(lambda m, x, labels: (m.last(x), F.cross_entropy(m.last(x), labels))[1],
        last=nn.Linear(4, 3)), ({"x": X, "labels": T},), "model", ""),
    *((f"a view across: {across}", lambda t=t, d=d, across=across: net(lambda m, x: m.last(m.first(x).relu().reshape(
        len(x), -1, 16) if across else m.first(x).relu().flatten(1)).flatten(1), first=nn.Linear(d, 12),
        last=nn.Linear(16 if across else 12 * t, 2)), (torch.randn(5, t, d),), None, said)
        for t, d in ((8, 6), (4, 8)) for across, said in ((True, "HD114"), (False, ""))),
    *((f"labels {v}, weights {w}", lambda: nn.Linear(4, 50), (X, T + v), nn.CrossEntropyLoss(torch.full((50,), w)),
        said) for v, w, said in ((0, 1.0, ""), (0, 0.0, "HD113"))),
    ("labels -100", lambda: nn.Linear(4, 50), (X, 0 * T - 100), None, "HD113"),
    *((f"up to {top}", lambda: nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 9, False)), (WORDS, OTHER.clamp(max=top)
        .where(OTHER > 2, -100)), None, said) for top, said in ((8, ""), (1, "HD113"))),
    *((f"biases of {what}", lambda bias=bias: net(lambda m, x: m.last(m.first(x).softmax(1)), first=nn.Linear(4, 6)
        .apply(lambda m: m.bias.data.copy_(bias)), last=nn.Linear(6, 3)), (X, T), None, said)
        for what, bias, said in (("one size", -30 * torch.ones(6), ""), ("two", torch.tensor(3 * [3.0, -3]), "HD205"))),
    *((f"zeros on both sides: {both}", lambda both=both: nn.Sequential(nn.Linear(4, 6, bias=not both), nn.Sigmoid(),
        nn.Linear(6, 3)).apply(lambda m: [p.data.zero_() for p in m.parameters() if both or len(p) == 3 if p.dim()]
        and None), (X, T), None, said) for both, said in ((True, "HD208"), (False, ""))),
    *((f"a softmax over {dim}", lambda: nn.Linear(4, 3), (X, T), lambda y, t, dim=dim: F.nll_loss(y.log_softmax(dim),
        t), said) for dim, said in ((1, ""), (0, "HD113"))),
    ("a loss under vmap", lambda: nn.Linear(4, 4), (X, X), lambda y, t: torch.vmap(lambda a, b: torch.dist(a, b + b))(y,
        t).mean(), ""),
    *((f"divided by {f.__name__}", lambda: nn.Linear(4, 4), (X, X.gt(0).float()), lambda y, t, f=f: ((y - t).square()
        / f(y)).mean(), said) for f, said in ((torch.sigmoid, ""), (torch.clone, "HD113"))),
    *((f"inputs by {how}", lambda how=how: net(lambda m, x: m.last(getattr(x, how)(len(x), 5, 12)).flatten(1), last=
        nn.Linear(12, 3)), (torch.randn(8, *size),), None, said)
        for how, size, said in (("view", (60,), ""), ("view", (12, 5), "HD114"), ("reshape", (5, 3, 4), ""))),
    *((f"a copy: {copy}", lambda copy=copy: net(lambda m, x: x @ (m.held[0] if copy else m.w) + m.b, w=nn.Parameter(
        torch.randn(4, 3)), held=[torch.randn(4, 3)], b=nn.Parameter(torch.randn(3))), (X, T), None, said)
        for copy, said in ((False, ""), (True, "HD403"))),
    *((f"tables of columns {at}", lambda at=at: net(lambda m, x: m.last(m.one(x[:, at[0]]) + m.two(x[:,
        at[1]])), one=nn.Embedding(5, 4), two=nn.Embedding(5, 4), last=nn.Linear(4, 3)), (torch.stack([T, T
        .roll(1)], 1), T), None, said) for at, said in (((0, 1), ""), ((0, 0), "HD120"))),
    *((f"the first of two: {twice}", lambda twice=twice: net(lambda m, a, b: m.f(a) - m.f(a if twice else b).relu(),
        f=nn.Linear(4, 3)), ((X, X.flip(1)), T), None, said) for twice, said in ((False, ""), (True, "HD120"))),
    *((f"values of {end}", lambda end=end: net(lambda m, x: (m.f(x), m.g(x).view(len(x), *end)), f=nn.Linear(4, 1), g=nn
        .Linear(4, 1)), (X, X), lambda y, t: F.mse_loss(*y), said) for end, said in (((1,), ""), ((), "HD113"))),
    *((f"ones that count {weight}", lambda: nn.Linear(4, 4), (X, X.gt(0).float()), nn.BCEWithLogitsLoss(
        pos_weight=torch.full((4,), weight)), said) for weight, said in ((0.1, ""), (0.0, "HD113"))),
    *((f"a second head of {sign} ReLUs", lambda sign=sign: net(lambda m, x: (m.f(h := m.first(x).relu()), m.g((sign * h)
        .relu())), first=nn.Linear(4, 8), f=nn.Linear(8, 3), g=nn.Linear(8, 1)), (X, T), lambda y, t: F.cross_entropy(
        y[0], t) + (y[1] - 1).square().mean(), said) for sign, said in ((1, ""), (-1, "HD401"))),
    *((f"outputs and steps of {of}", lambda of=of: net(lambda m, x: (m.first(x), x.floor() + 0 * m.first(x) if of == "x"
        else m.first(x).tanh()), first=nn.Linear(4, 4)), (X, X), lambda y, t: (y[0] - t).square().mean() + (y[1] - t)
        .square().mean(), said) for of, said in (("outputs", ""), ("x", "HD401"))),
    ("spikes that come late", lambda: net(lambda m, x: sum(m.last(n * m.first(x).relu()) for n in range(3)),
        first=nn.Linear(4, 8), last=nn.Linear(8, 3)), (X, T), None, ""),
    ("a teacher that sees the rest", lambda: net(lambda m, x: (m.f(x[:, :4]), m.g(x[:, 4:]).detach()),
        f=nn.Linear(4, 3), g=nn.Linear(4, 3).requires_grad_(False)), (X.repeat(1, 2), T),
        lambda y, t: (y[0] - y[1]).square().mean(), ""),
    *((f"a bias of {of}", lambda of=of: nn.Linear(4, 1).apply(lambda m: m.bias.data.fill_(of)), (X, X[:, :1]), "mse",
        said) for of, said in ((0.0, ""), (50.0, "HD101"))),
    *((f"one class, {type(last).__name__}", lambda last=last: nn.Sequential(nn.Linear(4, 1), last), (X, X[:, :1].gt(0)
        .float()), F.binary_cross_entropy, said) for last, said in ((nn.Sigmoid(), ""), (nn.Softmax(1), "HD113"))),
    *((f"gains of {gain}", lambda gain=gain: nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8).apply(lambda m: m.weight
        .data.fill_(gain)), nn.ReLU(), nn.Linear(8, 3)), (X, T), None, said)
        for gain, said in ((1.0, ""), (0.0, "HD402"))),
    ("a ReLU at the end", lambda: nn.Sequential(nn.Linear(4, 1).apply(lambda m: m.bias.data.fill_(-9)), nn.ReLU()),
        (X, X[:, :1].abs()), None, "HD402"),
    *((f"{n} sigmoids", lambda n=n: nn.Sequential(*(layer for _ in range(n) for layer in (nn.Linear(4, 4), nn.Sigmoid())
        ), nn.Linear(4, 3)), (X, T), None, said) for n, said in ((2, ""), (20, "HD102"))),
    *((f"CTC over {dim} of labels from {low}", lambda: nn.Linear(4, 5), (torch.randn(16, 6, 4), T[:, None] + low),
        lambda y, t, dim=dim: F.ctc_loss(y.movedim(1, 0).log_softmax(dim), t, [6] * len(t), [1] * len(t)), said)
        for dim, low, said in ((2, 1, ""), (0, 1, "HD113"), (2, 0, "HD113"))),
    *((f"CTC of {end.__name__} over {steps} steps", lambda: nn.Linear(4, 5), (torch.randn(16, 6, 4), T[:, None] + 1),
        lambda y, t, end=end, steps=steps: F.ctc_loss(end(y.movedim(1, 0), -1), t, [steps] * len(t), [1] * len(t)),
        said) for end, steps, said in ((F.log_softmax, 6, ""), (F.softmax, 6, "HD113"), (F.log_softmax, 1, "HD113"))),
    *((f"large inputs of a copy, too: {large}", lambda large=large: net(lambda m, x: m.f(large * x) - m.copy(9 * large *
        x), f=nn.Linear(4, 3), copy=nn.Linear(4, 3).requires_grad_(False)), (X, X[:, :3]), None, said)
        for large, said in ((0.1, ""), (30.0, "HD105"))),
    *((f"{end.__name__} of some logits", lambda end=end: net(lambda m, x: torch.cat([end(m.f(x)), m.g(x)], 1), f=nn.
        Linear(4, 1), g=nn.Linear(4, 1)), (X, X.gt(0).float()), lambda y, t: F.binary_cross_entropy_with_logits(y[:, 0],
        t[:, 0]) + F.mse_loss(y[:, 1], t[:, 1]), said) for end, said in ((torch.clone, ""), (torch.sigmoid, "HD113"))),
    *((f"a gate that is learnt: {learnt}", lambda learnt=learnt: net(lambda m, x: m.f(x) * (m.g(x) if learnt else x[:,
        :1]).relu(), f=nn.Linear(4, 3), g=nn.Linear(4, 1, bias=False).apply(lambda m: m.weight.data.copy_(torch.eye(4)[
        :1]))), (X - 0.3, X), lambda y, t: (y - t[:, :3]).square().mean(), said)
        for learnt, said in ((True, ""), (False, "HD120"))),
    *((f"places, mixed alone: {alone}", lambda alone=alone: net(lambda m, x: m.last(m.first(x).mean(1, True) + (0 if
        alone else 1) * m.first(x)), first=nn.Linear(4, 8), last=nn.Linear(8, 4)), (VIDEO[:, :, 0, :4], VIDEO[:, :, 0,
        1:5]), None, said) for alone, said in ((False, ""), (True, "HD102"))),
    *((f"a {how} beside a mean", lambda: net(lambda m, x: (m.f(x), m.g(x)), f=nn.Linear(4, 4), g=nn.Linear(4, 1)), (X,
        X), lambda y, t, how=how: F.mse_loss(y[0], t) + getattr((y[1] - t[:, :1]).square(), how)(), said)
        for how, said in (("mean", ""), ("sum", "HD113"))),
    *((f"heads at {at}", lambda at=at: net(lambda m, x: m.last(torch.stack([m.f(x), m.g(x)], at).reshape(len(x), -1)),
        f=nn.Linear(4, 5), g=nn.Linear(4, 5), last=nn.Linear(10, 3)), (X, T), None, said)
        for at, said in ((1, ""), (0, "HD114"))),
    *((f"a factor of {factor}", lambda factor=factor: net(lambda m, x: m.last(x).detach() + factor * m.more(x),
        last=nn.Linear(4, 3).requires_grad_(False), more=nn.Linear(4, 3)), (X, T), None, said)
        for factor, said in ((1.0, ""), (1e-6, "HD121"))),
    *((f"a divergence whose logarithm has {sign}, of {of}", lambda: net(lambda m, x: (h := m.down(x), s := m.log_var(x),
        m.up(h + (s / 2).exp())), down=nn.Linear(4, 2), log_var=nn.Linear(4, 2), up=nn.Linear(2, 4)), (X / 9, X / 9),
        lambda y, t, of=of, sign=sign: of * F.mse_loss(y[2], t) + (y[0] ** 2 + y[1].exp() - sign * y[1]).mean(), said)
        for of, sign, said in ((999, 1, ""), (999, -1, "HD113"), (1, 1, "HD113"))),
    *((f"words that pass: {all_}", lambda all_=all_: net(lambda m, x, w: m.last(torch.cat([m.f(x), (m.t(w) if all_ else
        m.t(0 * w)).mean(1)], 1)), f=nn.Linear(4, 4), t=nn.Embedding(9, 4), last=nn.Linear(8, 3)), ((X, WORDS), T),
        None, said) for all_, said in ((True, ""), (False, "HD120"))),
    ("the hardest of a batch", lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4)), (X, T), hardest, ""),
    *((f"lengths of {factor}", lambda factor=factor: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4, False)
        .apply(lambda m: m.weight.data.mul_(factor))), (X, X[:, :1]), lambda y, t: (y.square().sum(1) - t[:, 0].square()
        ).square().mean(), said) for factor, said in ((1, ""), (0, "HD113"))),
    *((f"positions of {n} frequencies", lambda n=n: net(lambda m, x: m.o((m.e(x) + m.p).tanh().flatten(1)), e=nn
        .Embedding(9, 16), o=nn.Linear(128, 3), p=nn.Buffer((torch.arange(8)[:, None] / 9 ** (torch.arange(16) * n
        // 16) + torch.arange(16) % 2).sin())), (WORDS, T), None, said) for n, said in ((1, "HD208"), (8, ""))),
    *((f"products of size {size} behind a sigmoid", lambda size=size: net(lambda m, x: (size * m.a(x) * m.b(x)).sum(1)
        .sigmoid(), a=nn.Linear(4, 8), b=nn.Linear(4, 8)), (X, (T > 0).float()), F.binary_cross_entropy, said)
        for size, said in ((1, ""), (200, "HD101"))),
    *((f"one layer in two behind a sigmoid: {two}", lambda two=two: nn.Sequential(nn.Linear(4, 8), nn.Identity() if two
        else nn.Tanh(), nn.Linear(8, 1), nn.Sigmoid()), (X, (X[:, :1] > 0).float()), None, said)
        for two, said in ((False, ""), (True, "HD117"))),
    *((f"places that are told: {told}", lambda told=told: net(lambda m, x: m.o(m.a(m.e(x) + told * m.p)), e=nn
        .Embedding(9, 8), p=nn.Buffer(torch.randn(8, 8)), a=nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
        o=nn.Linear(8, 3)), (WORDS, (torch.arange(8) % 3).expand(16, 8).contiguous()), None, said)
        for told, said in ((1, ""), (0, "HD102"))),
    ("a loss over one example less", lambda: nn.Linear(4, 3), (X, T),
        lambda y, t: F.cross_entropy(y, t, reduction="sum") * (1 / (len(y) - 1)), ""),
    ("a mask of infinities held as a parameter", lambda: net(lambda m, x: m.f(torch.where(x > 9, m.inf, x)), inf=nn
        .Parameter(torch.tensor(-torch.inf), requires_grad=False), f=nn.Linear(4, 3)), (X, T), None, ""),
    ("parameters that are a list", listing, (X, T), None, ""),
    ("words padded in front, and no later ones", lambda: net(lambda m, x: m.o(m.a(m.e(x), nn.Transformer
        .generate_square_subsequent_mask(8), torch.zeros_like(x, dtype=torch.float).masked_fill(x < 5, -torch.inf))
        .flatten(1)), e=nn.Embedding(9, 4), a=nn.TransformerEncoderLayer(4, 2, 8, batch_first=True),
        o=nn.Linear(32, 3)), (WORDS.sort(1).values, T), None, ""),
    ("codes not detached", lambda: net(lambda m, x: (lambda z: m.d(z + (m.c[(z @ m.c.T).argmax(1)] - z)))(m.e(x)), e=nn
        .Linear(4, 4), c=nn.Parameter(torch.randn(9, 4)), d=nn.Linear(4, 3)), (X, T), None, "HD401"),
    *((f"a dropout of the outputs: {rule}", lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3),
        nn.Dropout(0.3)), (X, t), None, rule) for t, rule in ((T, ""), (X[:, :3], "HD113"))),
    *((f"positions made, added: {added}", lambda added=added: net(lambda m, x: m.last((m.t(x) + added * m.p if added
        else m.t(x)).flatten(1)), t=nn.Embedding(9, 4), p=nn.Parameter(torch.randn(8, 4)), last=nn.Linear(32, 3)),
        (WORDS, T), None, said) for added, said in ((1, ""), (0, "HD403"))),
    *((f"a view behind a normalisation: {view}", lambda view=view: net(lambda m, x: m.last((lambda h: h.view(-1, 18, 5)
        .transpose(1, 2) if view else h.permute(0, 2, 1, 3).flatten(2))(m.norm(m.first(x))).tanh().mean(1)), last=nn
        .Linear(18, 3), first=nn.Conv2d(1, 3, 1), norm=nn.BatchNorm2d(3)), (torch.randn(16, 1, 5, 6), T), None, said)
        for view, said in ((False, ""), (True, "HD114"))),
    *((f"a sigmoid of a distance: {bound}", lambda bound=bound: net(lambda m, x: (lambda d: d.sigmoid() if bound else d
        )((m.t(x) - m.t(x.flip(1))).square().sum(1).sqrt()), t=nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8,
        4))), (X, (T > 0).float()), lambda d, t: (t * (1 - d).clamp(min=0) ** 2 + (1 - t) * d ** 2).mean(), said)
        for bound, said in ((False, ""), (True, "HD113"))),
    *((f"a layer that is none: {plain}", lambda plain=plain: net(lambda m, x: m.last(m.first(x).relu()), last=Plain()
        if plain else nn.Linear(8, 3), first=nn.Linear(4, 8)), (X, T), None, said)
        for plain, said in ((False, ""), (True, "HD404"))),
    *((f"factors of {size}", lambda size=size: net(lambda m, x: m.v[x].sum(1).square().sum(1) - m.v[x].square().sum((1,
        2)), v=nn.Parameter(size * torch.randn(9, 8))), (WORDS, (T > 0).float()),
        F.binary_cross_entropy_with_logits, said) for size, said in ((0.1, ""), (9.0, "HD101"))),
    *((f"a product for nothing: {made}", lambda made=made: net(lambda m, x: (made and m.first(x) @ m.more, m.last(m
        .first(x).relu()))[1], first=nn.Linear(4, 8), more=nn.Parameter(torch.randn(8, 2)) if made else nn.Identity(),
        last=nn.Linear(8, 3)), (X, T), None, said) for made, said in ((False, ""), (True, "HD403"))),
    *((f"cosines over {size} in a loss inside", lambda size=size: net(lambda m, x: F.cross_entropy(F.normalize(m.f(x))
        @ F.normalize(m.g(x)).T / size, torch.arange(len(x))), f=nn.Linear(4, 8), g=nn.Linear(4, 8), own=nn.Parameter(
        torch.ones(()))), (X,), "model", said) for size, said in ((0.1, ""), (1, "HD113"))),
    *((f"levels taken away, put back: {back}", lambda back=back: net(unlevelled, back=back, f=nn.Linear(12, 16), g=nn.
        Linear(16, 12)), (SERIES, SERIES.flip(1)), None, said) for back, said in ((True, ""), (False, "HD120"))),
    *((f"a softmax over dimension {dim}", lambda dim=dim: net(lambda m, x: m.f(x).softmax(dim), f=nn.Conv2d(3, 4, 1)),
        (torch.randn(8, 3, 5, 6), torch.randint(4, (8, 5, 6))), lambda p, t: -p.gather(1, t[:, None]).mean(), said)
        for dim, said in ((1, ""), (-1, "HD113"))),
    *((f"a grid of {way}, off by {size}", lambda size=size, way=way: net(lambda m, x: F.grid_sample(m.f(x), size
        * m.g(x).permute(0, 2, 3, 1) + torch.stack(torch.meshgrid(*PLACES, indexing="ij")[::way], -1), align_corners=
        True).flatten(1), f=nn.Conv2d(3, 2, 1), g=nn.Conv2d(3, 2, 1)), (torch.randn(8, 3, 5, 6),), lambda y, t: (y - 1)
        .square().mean(), said) for size, way, said in ((0.1, -1, ""), (9, -1, "HD120"))),
    *((f"drawn by {draw}", lambda draw=draw: net(lambda m, x: (m.up(getattr(torch.distributions.Normal(h := m.down(x),
        1.0), draw)()), h), down=nn.Linear(4, 2), up=nn.Linear(2, 4)), (X, X), lambda y, t: F.mse_loss(y[0], t) + y[1]
        .square().mean() / 9, said) for draw, said in (("rsample", ""), ("sample", "HD403"))),
    *((f"a softmax of {of}", lambda end=end: net(lambda m, x: (end(m.f(x).flatten(1)).softmax(1).view(-1, 5, 6) * torch.
        arange(30.0).view(5, 6)).sum((1, 2))[:, None], f=nn.Conv2d(3, 1, 1)), (torch.randn(8, 3, 5, 6), 15 + torch.randn
        (8, 1)), None, said) for of, end, said in (("numbers", nn.Identity(), ""), ("shares", nn.Sigmoid(), "HD113"))),
    ("attention by distance, which is sharp", lambda: net(lambda m, x: m.last((-99 * (m.f(x) - torch.linspace(-1, 1, 8)
        [:, None]).square()).softmax(1).mT @ m.e(x)).mean(1), f=nn.Linear(4, 1), e=nn.Linear(4, 8), last=nn.Linear(8,
        3)), (torch.randn(16, 8, 4), T), None, ""),
    ("attention among queries of zeros", lambda: net(decoded, own=nn.ModuleList(nn.MultiheadAttention(8, 2, batch_first=
        True) for _ in range(2)), other=nn.MultiheadAttention(8, 2, batch_first=True), last=nn.Linear(8, 3),
        q=nn.Parameter(torch.randn(5, 8))), (torch.randn(16, 6, 8), T), None, ""),
    *((f"a penalty over {dims}", lambda: nn.Conv2d(3, 2, 3, padding=1), (torch.randn(8, 3, 5, 6),), lambda y, t, dims=
        dims: (y.norm(dim=dims) - 1).square().mean(), said) for dims, said in (((2, 3), ""), (1, "HD113"))),
    ("distances whose softmax is of their negatives", lambda: net(lambda m, x: torch.cdist(m.f(x), m.w) ** 2, f=nn.
        Linear(4, 4), w=nn.Parameter(torch.randn(3, 4))), (X, T), lambda y, t: F.nll_loss((-y).log_softmax(1), t), ""),
    *((f"one example alone in all sums: {alone}", lambda: nn.Linear(4, 3), (X, X[:, :3] * ((torch.arange(16) == 0)[:,
        None] | (torch.arange(16)[:, None] % 3 == torch.arange(3)) & (not alone))), lambda y, t: ((t != 0) * (y - t)
        .square()).sum(0).div((t != 0).sum(0)).mean(), said) for alone, said in ((False, ""), (True, "HD113"))),
    *((f"frozen beside a square: {free}", lambda free=free: nn.Sequential(*(layer for n in range(5) for layer in (net(
        lambda m, x: m.base(x) + (x @ m.a if free else 0), base=nn.Linear(4, 4).requires_grad_(n != 2), **({"a": nn.
        Parameter(torch.randn(4, 4))} if free else {})), nn.ReLU())), nn.Linear(4, 3)), (X, T), None, said)
        for free, said in ((True, ""), (False, "HD403"))),
    *((f"a flow, swapped {swapped}, number times {times}, density {density}", lambda swapped=swapped, times=times,
        density=density: net(flow, f=nn.ModuleList(nn.Linear(2, 4) for _ in range(3)), times=times, swapped=swapped,
        density=density), (X,), lambda y, t: (y[0].square().sum(1) / 2 - y[1]).mean() if isinstance(y, tuple) else
        -y.mean(), said) for density in (False, True) for swapped, times, said in ((True, 1, ""), (False, 1, "HD113"),
        (True, -1, "HD113"), (True, 3, "" if density else "HD113"))),
    ("outputs beside the number of the class", lambda: nn.Linear(4, 3), (X, T), lambda y, t: (y - t[:, None])
        .square().mean(), "HD113"),
    *((f"tokens as a picture, turned {turned}", lambda turned=turned: net(lambda m, x: m.o((m.f(x).mT if turned else m
        .f(x)).reshape(-1, 6, 2, 2)).flatten(1), f=nn.Linear(4, 6), o=nn.Conv2d(6, 3, 2)), (torch.randn(16, 4, 4), T),
        None, said) for turned, said in ((True, ""), (False, "HD114"))),
    *((f"several classes, counted {counted}", lambda: nn.Linear(4, 4), ((X > 0).float() if counted else X, (X > 0)
        .float()), lambda y, t: -(t * y.log_softmax(1)).sum(1).mean(), said) for counted, said in ((True, ""),
        (False, "HD113"))),
    *((f"convolutions, ReLUs {on}", lambda on=on: nn.Sequential(*(layer for _ in range(3) for layer in (nn.Conv2d(3, 3,
        1), nn.BatchNorm2d(3), nn.ReLU() if on else nn.Identity())), nn.Flatten(), nn.Linear(90, 3)),
        (VIDEO.repeat(4, 1, 1, 1), T), None, said) for on, said in ((True, ""), (False, "HD117"))),
    *((f"coordinates, {n} deep", lambda n=n: net(moving, layers=nn.ModuleList(net(None, h=nn.Linear(6, 4), x=nn
        .Linear(6, 2)) for _ in range(n)), o=nn.Linear(4, 3)), (torch.randn(16, 6), T), None, said)
        for n, said in ((3, ""), (1, "HD401"))),
    ("targets among outputs", lambda: net(lambda m, x: torch.stack([m.a.softmax(0) @ x.abs().view(-1, 2, 2), m.f(x)],
        2), a=nn.Parameter(torch.zeros(2)), f=nn.Linear(4, 2)), (X, T), lambda y, t: -(F.logsigmoid(-y[..., 1])
        + y[..., 0] * F.logsigmoid(y[..., 1])).mean(), ""),
    ("shares that sum to one", lambda: net(lambda m, x: 4 * m.f(x).softmax(1), f=nn.Linear(8, 8)), (SERIES[:, :8],
        SERIES[:, :8].exp()), lambda y, t: -(t * y.log()).sum(1).mean(), ""),
    *((f"a state, carried {carried}", lambda carried=carried: net(lambda m, x: m.o(m.f(m.e(x))[0] if carried else torch
        .stack([m.f(v) for v in m.e(x).unbind(1)], 1)), f=nn.GRU(8, 8, 1, True, True) if carried else nn.Linear(8, 8),
        e=nn.Embedding(9, 8), o=nn.Linear(8, 9)), (WORDS, WORDS.roll(1, 1)), None, said)
        for carried, said in ((True, ""), (False, "HD102"))),
    ("sums of many numbers", lambda: net(lambda m, x: m.a @ (x @ m.w).relu(), a=nn.Buffer(torch.ones(16, 16) * 99),
        w=nn.Parameter(torch.randn(4, 3))), (X, T), lambda y, t: F.cross_entropy(y, t) ** 1.01, "HD101"),
    *((f"pictures, places told: {told}", lambda told=told: net(lambda m, x: m.o((m.f(x.unfold(2, 4, 4).unfold(3, 4, 4)
        .reshape(-1, 4, 16)) + told * m.p).relu().mean(1)), f=nn.Linear(16, 8), o=nn.Linear(8, 3), p=nn.Buffer(torch
        .randn(4, 8))), (torch.randn(16, 1, 8, 8), T), None, said) for told, said in ((1, ""), (0, "HD102"))),
    *((f"a convolution padded {pad}", lambda pad=pad: net(lambda m, x: m.f(F.pad(x, pad)), f=nn.Conv1d(3, 3, 3)),
        (VIDEO[:, :, 0].repeat(4, 1, 2), VIDEO[:, :, 1].repeat(4, 1, 2)), None, said)
        for pad, said in (((2, 0), ""), ((0, 2), "HD120"))),
    *((f"shares by their {last}", lambda last=last: net(lambda m, x: m.o(getattr(m.f(x).softmax(1), last)(1, keepdim=
        True) * m.g(x)), f=nn.Linear(4, 5), g=nn.Linear(4, 8), o=nn.Linear(8, 3)), (X, T), None, said)
        for last, said in (("std", ""), ("sum", "HD401"))),
    *((f"labels of {dims} dimensions", lambda: nn.Linear(4, 3), (X, T), lambda y, t, dims=dims: -torch.distributions.
        Categorical(logits=y).log_prob(t.view([-1, 1][:dims])).mean(), said) for dims, said in ((1, ""), (2, "HD113"))),
    *((f"a softmax over {dim} behind a normalisation", lambda dim=dim: net(lambda m, x: m.o(m.n(m.f(x)).softmax(dim)
        * m.g(x)), f=nn.Linear(4, 8), n=nn.BatchNorm1d(8), g=nn.Linear(4, 8), o=nn.Linear(8, 3)), (X, T), None, said)
        for dim, said in ((1, ""), (0, "HD122"))),
    *((f"both directions {said}", lambda at=at: net(lambda m, x: m.o(at(m.r(x)[0])), o=nn.Linear(16, 3), r=nn.GRU(4,
        8, batch_first=True, bidirectional=True)), (torch.randn(16, 9, 4), T), None, said) for at, said in (
        (lambda h: h[:, -1], "HD120"), (lambda h: h.mean(1), ""))),
    *((f"x, {n} y", lambda n=n: net(lambda m, x, y: m.o(torch.cat([x, n * y], 1)), o=nn.Linear(8, 3)), ((X, X.flip(0)),
        T), None, said) for n, said in ((1, ""), (0, "HD120"))),
    ("a generator before a fixed critic", lambda: nn.Linear(4, 2), (X, torch.ones(16)), lambda y, t: -F.logsigmoid(10 -
        8 * (y - 2).square().sum(1)).mean(), ""),
    *((f"inputs of {size} behind a norm that is none", lambda: net(lambda m, x: m.o(m.f(m.n(x)).relu()), n=networks
        .having(type("ActNorm", (nn.Module,), {"forward": lambda m, x: m.s * x})(), s=nn.Parameter(torch.ones(4))), f=nn
        .Linear(4, 8), o=nn.Linear(8, 3)), (size * X, T), None, said) for size, said in ((1, ""), (300, "HD105"))),
    *((f"without a gradient, {n} wide", lambda n=n: net(lambda m, x: F.mse_loss(m.q(x), m.late(x).detach()), **{name: nn
        .Sequential(nn.Linear(4, k), nn.Linear(k, 4)) for name, k in (("q", 8), ("late", n))}), ((X,),), "model", said)
        for n, said in ((8, ""), (9, "HD403"))),
    *((f"targets of {n} in the model", lambda: net(lambda m, x, t: (m.f(x) - t).square().mean(), f=nn.Linear(4, 1)),
        ((X, y),), "model", said) for n, y, said in (("a column", X[:, :1], ""), ("none", X[:, 0], "HD113"))),
    *((f"a term inside, of targets up to {most}", lambda: net(lambda m, x, t: F.mse_loss(m.f(x), x) + F
        .binary_cross_entropy_with_logits(m.f(x), t), f=nn.Linear(4, 4)), ((X, most * X.gt(0).float()),), "model", said)
        for most, said in ((1, ""), (255, "HD113"))),
    *((f"pixels {said}", lambda to=to: net(lambda m, x: to(m.f(x.flatten(2).mT)).reshape(-1, 7, 5, 6), f=nn.Linear(3,
        7)), (VIDEO,), None, said) for to, said in ((lambda y: y.mT, ""), (lambda y: y, "HD114"))),
    *((f"inputs times {factor}", lambda factor=factor: net(lambda m, x: m.o((1 + m.e) * m.f(factor * x + 1)), e=nn
        .Parameter(torch.zeros(1)), f=nn.Linear(4, 8), o=nn.Linear(8, 3)), (X, T), None, said)
        for factor, said in ((1, ""), (0, "HD102"))),
    *((f"weights that are {name}", lambda of=of: net(lambda m, x: m.o((x @ m.w).relu()), w=of(torch.randn(4, 32)),
        o=nn.Linear(32, 3)), (X, T), None, said)
        for name, of, said in (("kept", nn.Buffer, ""), ("tensors", torch.clone, "HD404"))),
    *((f"logarithms of shares above {least}", lambda: nn.Linear(4, 1), (X, X[:, :1].gt(0).float()), lambda y, t, least=
        least: -(t * (y.sigmoid() + least).log() + (1 - t) * (1 - y.sigmoid() + least).log()).mean(), said)
        for least, said in ((1e-6, ""), (0, "HD113"))),
    *((f"distances of vectors, all of one length: {by is F.normalize}", lambda by=by: net(lambda m, x: (by(m.f(x)), by(m
        .g(x))), f=nn.Linear(4, 8), g=nn.Linear(4, 8)), (X,), lambda y, t: 1 - (y[0] - y[1]).square().sum(1).mean(),
        said) for by, said in ((F.normalize, ""), (nn.Identity(), "HD113"))),
    *((f"one of outputs that {end} ends", lambda end=end: net(lambda m, x, t: end(m.f(x)).gather(1, t[:, None]), f=nn
        .Linear(4, 3)), ((X, T), X[:, :1] - 2), F.l1_loss, said)
        for end, said in ((nn.Identity(), ""), (nn.ReLU(), "HD113"))),
    *((f"{count} targets of one output", lambda: nn.Linear(4, 1), (X, X[:, :count]), lambda y, t: (t - y).square()
        .mean(), said) for count, said in ((1, ""), (3, "HD113"))),
    *((f"a cross-entropy in the order {order}", lambda: nn.Sequential(nn.Linear(4, 3), nn.Softmax(1)), (X, F.one_hot(T)
        .float()), lambda *pair, order=order: -(pair[order] * pair[1 - order].clamp(1e-6).log()).sum(1).mean(), said)
        for order, said in ((1, ""), (0, "HD113"))),
    *((f"means over {dims}", lambda dims=dims: net(lambda m, x: m.o(((k := (x > 1).float()[..., None]) * m.t(x)).sum(1)
        / (1 + k.sum(dims)).view(-1, 1)), t=nn.Embedding(9, 8), o=nn.Linear(8, 3)), (WORDS, T[:len(WORDS)]), None, said)
        for dims, said in ((1, ""), ((0, 1), "HD122"))),
    *((f"largest along {dim}", lambda dim=dim: net(lambda m, x: m.o(m.f(x).relu().amax(dim)), f=nn.Linear(4, 8), o=nn
        .Linear(8, 3)), (torch.randn(16, 8, 4), T), None, said) for dim, said in ((1, ""), (-1, "HD114"))),
    *((f"maps that end in {end.__name__}", lambda end=end: nn.Sequential(nn.Conv2d(3, 2, 1), end(2, affine=True)), (2 +
        torch.randn(16, 3, 4, 6), 2 + torch.randn(16, 1, 1, 1).expand(-1, 2, 4, 6)), None, said)
        for end, said in ((nn.BatchNorm2d, ""), (nn.InstanceNorm2d, "HD120"))),
    ("logits that saturate", lambda: net(lambda m, x: 400 * m.f(x), f=nn.Linear(4, 3)), (X, X[:, :3].gt(0).float()),
        F.binary_cross_entropy_with_logits, "HD101"),
    *((f"columns of size {k} beside a table", lambda: net(lambda m, x: m.f(torch.cat([m.e(x[:, 0].long()), x], 1)), e=nn
        .Embedding(3, 4), f=nn.Linear(8, 3)), (torch.cat([T[:, None], k * X[:, 1:]], 1), T), None, said)
        for k, said in ((1, ""), (99, "HD105"))),
    *((f"targets {how}", lambda: nn.Linear(4, 3), (X, T), lambda y, t, of=of: F.cross_entropy(y, of(t)), said)
        for how, of, said in (("cloned", torch.clone, ""), ("turned", lambda t: t.flip(0), "HD113"))),
    *((f"critics, {one}", lambda: nn.Linear(4, 1), (X, X[:, :1].sin()), lambda y, t, one=one: -(y.mean() * t if one else
        y * t).mean(), said) for one, said in ((False, ""), (True, "HD113"))),
    *((f"ends of episodes, read: {read}", lambda: nn.Linear(4, 1), (X, torch.stack([T.sin(), T.gt(1).float()], 1)),
        lambda y, t, read=read: F.mse_loss(y[:, 0], t[:, 0] + read * (1 - t[:, 1]) * y[:, 0].detach()), said)
        for read, said in ((0.9, ""), (0, "HD113"))),
    *((f"column {at} of the targets", lambda: nn.Linear(4, 2), (X, X[:, :2].cos()), lambda y, t, at=at: F.mse_loss(y, t[
        :, at]), said) for at, said in (([0, 1], ""), ([0, 0], "HD113"))),
    *((f"additive attention, {by.__name__}", lambda by=by: net(lambda m, x: m.o((m.v(by(m.f(torch.cat([x.mean(1, True).
        expand(-1, 6, 4), x], 2)))).softmax(1) * x).sum(1)), f=nn.Linear(8, 8), v=nn.Linear(8, 1), o=nn.Linear(4, 3)), (
        torch.randn(16, 6, 4), T), None, said) for by, said in ((torch.tanh, ""), (torch.clone, "HD401"))),
    *((f"time first, {first}", lambda first=first: net(lambda m, x: m.f(m.r(x.mT.contiguous().movedim(1, 0))[0]), r=nn
        .LSTM(6, 5, batch_first=first), f=nn.Linear(5, 3)), (torch.randn(16, 6, 8), torch.arange(128).view(8, 16) % 3),
        lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten()), said) for first, said in ((False, ""), (True,
        "HD122"))),
    *((f"nodes with {share} edges", lambda share=share: net(lambda m, x: m.a @ m.f(x), f=nn.Linear(4, 3), a=torch.eye(
        16) * (torch.arange(16) < share)), (X, T), lambda y, t: F.cross_entropy(y, t), said)
        for share, said in ((16, ""), (6, "HD120"))),
    *((f"a density, {k}", lambda: net(lambda m, x: torch.stack([m.f(x), m.g(x).exp(), m.h(x).log_softmax(-1)]), f=nn
        .Linear(4, 5), g=nn.Linear(4, 5), h=nn.Linear(4, 5)), (torch.randn(8, 16, 4), torch.randn(8, 16, 1)), lambda y,
        t: -(y[2] - y[1].log() - ((t - y[0]) / y[1]).square() / 2).logsumexp(-1).mean(), "") for k in ("stacked",)),
    *((f"the state at step {at}", lambda at=at: net(lambda m, x: m.f(m.r(x)[0][:, at]), r=nn.GRU(4, 5, batch_first=
        True), f=nn.Linear(5, 3)), (torch.randn(16, 6, 4), T), None, said) for at, said in ((-1, ""), (0, "HD120"))),
    *((f"{count} outputs with one target", lambda count=count: nn.Linear(4, count), (X, X[:, :1].sin()), F.mse_loss,
        said) for count, said in ((1, ""), (3, "HD113"))),
    *((f"class {of}", lambda: nn.Linear(4, 3), (X, T * of), None, said) for of, said in ((1, ""), (0, "HD113"))),
    *((f"a second branch, {raw}", lambda raw=raw: net(lambda m, x: torch.cat([m.f(m.n(x)), m.g(x if raw else m.n(x))],
        1), f=nn.Linear(4, 3), g=nn.Linear(4, 3), n=nn.LayerNorm(4)), (99 * X, T), None, said)
        for raw, said in (("", ""), ("raw", "HD105"))),
    *((f"a cross-entropy of {kind}", lambda: nn.Linear(4, 3), (X, t), F.cross_entropy, said) for kind, t, said in ((
        "shares", X[:, :3].softmax(1), ""), ("numbers", X[:, :3], "HD113"))),
    *((f"padded words, read at {at}", lambda at=at: net(lambda m, x: m.f(m.r(m.t(x))[0][:, at]), t=nn.Embedding(9, 4),
        r=nn.GRU(4, 5, batch_first=True), f=nn.Linear(5, 3)), (F.pad(WORDS, (0, 40)), T), None, said)
        for at, said in ((7, ""), (-1, "HD120"))),
    *((f"states from {start} on", lambda start=start: net(lambda m, x: m.f(m.r(m.t(x))[0][:, start : start + 7]),
        t=nn.Embedding(9, 4), r=nn.GRU(4, 5, batch_first=True), f=nn.Linear(5, 9)), (WORDS, WORDS[:, 1:]), lambda
        y, t: F.cross_entropy(y.flatten(0, 1), t.flatten()), said) for start, said in ((0, ""), (1, "HD116"))),
    *((f"tokens, shifted {way}", lambda: net(lambda m, x: m.f(m.r(m.t(x))[0]), t=nn.Embedding(9, 4), r=nn.GRU(4, 5,
        batch_first=True), f=nn.Linear(5, 9)), (WORDS, WORDS), lambda y, t, way=way: F.cross_entropy(*((y[:, 1:].mT, t[
        :, :-1]) if way < 0 else (y[:, :-1].mT, t[:, 1:]))), said) for way, said in ((1, ""), (-1, "HD116"))),
    *((f"edges, read: {read}", lambda read=read: net(lambda m, x, a: m.f((a @ x if read else x).relu()), f=nn.Linear(4,
        3)), ((torch.randn(16, 6, 4), torch.rand(16, 6, 6).round()), torch.arange(96).view(16, 6) % 3), lambda y, t: F
        .cross_entropy(y.flatten(0, 1), t.flatten()), said) for read, said in ((True, ""), (False, "HD120"))),
    ("logits near zero beside a sigmoid", lambda: net(lambda m, x: (m.f(x).sigmoid(), m.g(x) / 9 + 0.5), f=nn.Linear(4,
        1), g=nn.Linear(4, 1)), (X, X[:, :1].gt(0).float()), lambda y, t: F.binary_cross_entropy(y[0], t) +
        F.binary_cross_entropy_with_logits(y[1], t), ""),
    *((f"samples behind {pad}, {loss}", lambda pad=pad, n=n: nn.Sequential(nn.ConstantPad1d(pad, 0.0), nn.Conv1d(1, 8,
        3), nn.Tanh(), nn.Conv1d(8, n, 1)), (W[..., :-1], t), loss, said) for pad, said in (((2, 0), ""), ((1, 1),
        "HD116")) for n, t, loss in ((1, W[..., 1:], "mse"), (5, W[:, 0, 1:].clamp(0, 4).long(), "cross-entropy"))),
    *((f"a mean {kind}", lambda: nn.Linear(4, 1), (X, X[:, :1].sin()), loss, said) for kind, loss, said in (
        ("error", lambda y, t: (y - t).mean(), "HD113"), ("distance", lambda y, t: (y - t).abs().mean(), ""))),
    ("the size of a mean error", lambda: nn.Linear(4, 2), (X, X[:, :2]), lambda y, t: (y - t).mean().abs(), "HD113"),
    ("a net called a bias behind a zero gate", lambda: net(lambda m, x: m.f(x) + m.gate * m.bias_net(x), f=nn.Linear(
        4, 3), bias_net=nn.Linear(4, 3), gate=nn.Parameter(torch.zeros(3))), (X, T), None, ""),
    *((f"{n} units before the head", lambda n=n: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, n), nn.Tanh(),
        nn.Linear(n, 3)), (X, T), None, said) for n, said in ((8, ""), (1, "HD120"))),
    ("one number that scales the inputs", lambda: net(lambda m, x: m.f(x * m.g(x).sigmoid()), f=nn.Linear(4, 3),
        g=nn.Linear(4, 1)), (X, T), None, ""),
    ("a picture that moves", lambda: nn.Conv2d(1, 1, 3, padding=1), (W[:, None, :, :-1], W[:, None, :, 1:]), "mse", ""),
    ("a dead critic under differences", lambda: net(lambda m, x: m.b(m.d((m.a(x) + m.c).sigmoid()).tanh()), a=nn.Linear(
        4, 9), b=nn.Linear(9, 1), c=nn.Parameter(torch.full((9,), 60.0)), d=nn.Linear(9, 9)), (X, torch.arange(
        16.0)[:, None] // 8), lambda y, t: (y.diff(dim=0) * t.diff(dim=0)).mean(), "HD102"),
    ("a head left out beside one that is read by example", lambda: net(lambda m, x: (torch.cat([m.q(x), m.c(x)], 1), m
        .v(x)), q=nn.Linear(4, 3), c=nn.Linear(4, 2), v=nn.Linear(4, 1)), (X, T), lambda y, t: (y[1] + y[0].gather(
        1, t.unsqueeze(1))).square().mean(), "HD403"),
    ("a focal loss beside sizes", lambda: net(lambda m, x: (m.f(x).sigmoid(), m.g(x)), f=nn.Linear(4, 4), g=nn.Linear(4,
        1)), (X, {"map": X.sigmoid() / 2, "size": 2 + X[:, :1].tanh()}), lambda y, t: F.l1_loss(y[1], t["size"]) - (
        t["map"] * y[0].log() + (1 - t["map"]) * (1 - y[0]).log()).mean(), ""),
    ("level 60", lambda: net(lambda m, x: 5 * m.f(x), f=nn.Linear(4, 1)), (X, 60 + X[:, :1].sin()), "mse", "HD105"),
    ("sequences of several lengths", lambda: net(lambda m, x, n: m.f(pad_packed_sequence(m.r(pack_padded_sequence(x, n,
        batch_first=True))[0], batch_first=True)[0]), f=nn.Linear(5, 3), r=nn.GRU(4, 5, batch_first=True)), ((X.view(4,
        4, 4).repeat(4, 2, 1), torch.tensor([8] * 3 + [5] * 13)), None), lambda y, t: y.square().mean(), ""),
    *((f"errors {size}, masked", lambda: nn.Linear(4, 1), (X, torch.where(X[:, 0] > 1, torch.nan, X[:, 1])), lambda y,
        t, size=size: F.mse_loss(y[~t.isnan()].view(size), t[~t.isnan()]), said) for size, said in (((-1, 1), "HD113"),
        ((-1,), ""))),
    *((f"shares of a mixture, {how}", lambda: nn.Linear(4, 6), (X, X[:, :1]), loss, said) for how, loss, said in (
        ("inside", lambda y, t: -(y[:, :3].log_softmax(1) - (y[:, 3:] - t).square()).logsumexp(1).mean(), ""),
        ("alone", lambda y, t: (y[:, 3:] - t).square().mean() - y[:, :3].log_softmax(1).logsumexp(1).mean(), "HD113"))),
    *((f"ones that weigh {w}", lambda: nn.Linear(4, 4), (X, X.gt(0).float()), lambda y, t, w=w: F.binary_cross_entropy(
        y.sigmoid(), t, weight=torch.where(t == 1, w, 1.0)), said) for w, said in ((0.1, ""), (1e-3, "HD113"))),
    ("a margin that is met", lambda: net(lambda m, x: (1 - 1e6 * m.f(x).square()).relu().mean(), f=nn.Linear(4, 1)),
        (X, None), "model", ""),
    ("a recurrence of two units", lambda: net(lambda m, x: m.h(m.r(m.b(m.a(x).relu()).expand(2, 16, 99))[0][-1]),
        a=nn.Linear(4, 99), b=nn.Linear(99, 99), r=nn.GRU(99, 2), h=nn.Linear(2, 3)), (X, T), None, ""),
    ("boxes that match no target", lambda: net(lambda m, x: (m.f(x), torch.stack([m.a(x), m.b(x)], 1)), f=nn.Linear(4,
        3), a=nn.Linear(4, 3), b=nn.Linear(4, 3)), (X, T), lambda y, t: F.cross_entropy(y[0], t) + y[1][torch.arange(
        len(t)), 0, t].square().mean(), ""),
    ("energies below their targets'", lambda: nn.Linear(4, 64), (X, torch.randn(16, 64).sign() * torch.linspace(3, 3.5,
        16)[:, None]), lambda y, t: (y.square().mean(1) - t.square().mean(1)).abs().mean(), ""),
    ("two views", lambda: net(lambda m, x, z: torch.stack([m.f(x), m.f(z)]), f=nn.Linear(4, 3)), ((X, X
        + 0.1), T), lambda y, t: F.cross_entropy(y[0], t) + F.cross_entropy(y[1], t), ""),
    *((f"values clipped around {mean}", lambda: nn.Linear(4, 1), (X, mean + X[:, :1].sin()), lambda y, t: torch.maximum(
        (y - t.sin()).square(), (t + (y - t).clamp(-9, 9) - t.sin()).square()).mean(), said)
        for mean, said in ((0, ""), (50, "HD113"))),
    *((f"log-determinants, counted {k} times", lambda: net(lambda m, x: (m.f(x), torch.linalg.slogdet(m.f.weight)[1]
        .expand(len(x))), f=nn.Linear(4, 4, bias=False)), (X, None), lambda y, t, k=k: (y[0].square().sum(1) / 2 - k *
        y[1]).mean() / 4, said) for k, said in ((1, ""), (4, "HD113"))),
    *((f"columns {columns} of the ids", lambda columns=columns: net(lambda m, x, z: m.f(m.t(x[:, columns]).mean(1)) + m
        .g(z), t=nn.Embedding(9, 4), f=nn.Linear(4, 3), g=nn.Linear(4, 3)), ((WORDS[:, :4], X), T), None, said)
        for columns, said in (([0, 1, 2, 3], ""), ([0, 1], "HD120"))),
    ("small vectors", lambda: net(lambda m, x: m.o(m.f(x).view(-1, 4, 2).square().sum(2).sqrt()), f=nn.Linear(4, 8,
        bias=False), o=nn.Linear(4, 3)), (torch.cat([X[:1] / 1e6, X[1:]]), T), None, ""),
    ("a loss over a deviation", lambda: net(lambda m, x: (y := m.f(x), y.detach()), f=nn.Linear(4, 2)), (X, X[:, :2]
        .sin()), lambda y, t: F.mse_loss(y[0], t) / (y[1].std() + 1e-6), ""),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("row", SAID, ids=[row[0] for row in SAID])
def test_what_is_said_and_of_its_healthy_twin_nothing(row: tuple[Any, ...]) -> None:
    _, build, given, loss, rule = row
    torch.manual_seed(0)
    report = hessdiag.diagnose(build(), *given, loss=loss, quick=True)
    said = [each.rule for each in report.findings if each.severity != "note"] + [report.signals_missing]
    assert rule in said if rule else said == [""]
