"""Every rule speaks just above its threshold and is silent just below it, from plain numbers alone."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hessdiag
from hessdiag.diagnosis.network_view import Net
from hessdiag.diagnosis.rules import CATALOGUE, ORDER, RULES, find
from hessdiag.results.findings import CHECKS, Finding
from hessdiag.results.signals import Signals
from tests import networks
from tests.signals import layer, network, plus, relabelled, vector, weight

Make = Callable[[Any], Signals]


def of(rule: str, signals: Signals) -> list[Finding]:
    """What the rules say under one id, before effects are left out."""
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
    """A number of the third weight."""
    return lambda value: network(weights={"l2": {key: value}})


def layer_of(key: str, path: str = "l1") -> Make:
    """A number of one layer."""
    return lambda value: network(layers={path: {key: value}})


def attending(count: int) -> Signals:
    """Layers that are queries, one upon the other."""
    paths = [f"l{n}" for n in range(count)]
    chained = network(layers={path: {"sources": tuple(paths[max(n - 1, 0) : n])} for n, path in enumerate(paths)})
    return relabelled(chained, "attention", paths=tuple(paths))


def bias(value: float) -> Signals:
    return plus(layer_of("x_sq", "l2")(0.1), parameters=(vector("l2.bias", weight_sq=value),))


# rule, signals for a number, a number that is silent and one that speaks
CASES: list[tuple[str, Make, Any, Any]] = [
    ("HD101", lambda v: network(initial_loss=2.3 * v), 1.98, 2.02),
    ("HD101", lambda v: network(initial_loss=2.3 * v, loss_kind="mse"), 2.98, 3.02),
    ("HD102", lambda v: network(layers={"head": {"x_sq": 1e-3, "x_varies": v / 1e-3}}), 1.02e-11, 0.98e-11),
    ("HD102", lambda v: network(layers={"l2": {"out_varies": v}, "head": {"x_varies": v}}), 0.5, 0.0),
    ("HD102", layer_of("out_sq", "l2"), 1.1e-5, 0.9e-5),
    ("HD103", chain, 0.98e4, 1.02e4),
    ("HD104", residual, 29.5, 30.5),
    ("HD105", lambda v: network(input_sq=v, layers={"l0": {"x_sq": v}}), 99.0, 101.0),
    ("HD106", layer_of("saturated"), 0.49, 0.51),
    ("HD107", sines, 1.60, 1.54),
    ("HD107", lambda v: sines(2.0, v), 6.2, 6.4),
    ("HD109", below_eps, 0.31, 0.29),
    ("HD110", layer_of("x_varies", "l2"), 0.0031, 0.0029),
    ("HD112", layer_of("peaked"), 0.09, 0.11),
    ("HD201", lambda v: network(weights={"l2": {"kurtosis": v, "largest": 9.0}}), 9.8, 10.2),
    ("HD202", lambda v: network(weights={"l2": {"weight_sq": 0.2 * v}}), 3.95, 4.05),
    ("HD202", lambda v: network(weights={"l2": {"weight_sq": 0.2 / v}}), 3.95, 4.05),
    ("HD203", lambda v: network(weights={"l2": {"parts": (0.1, 0.1, 0.1 * v), "numel": 10**8}}), 5.9, 6.1),
    ("HD204", grouped, 16 / 2.6, 16 / 2.4),
    ("HD204", grouped, 16 * 2.6, 16 * 2.4),
    ("HD205", bias, 3.95, 4.05),
    ("HD205", lambda v: plus(network(), parameters=(vector("l2.bias", weight_sq=9.0, median_sq=v),)), 3.95, 4.05),
    ("HD205", lambda v: plus(layer_of("x_sq", "l2")(1 / v), parameters=(vector("l2.bias", weight_sq=9.0),)), 0.88, 0.9),
    ("HD206", lambda v: network(weights={"l2": {"weight_sq": 0.82, "along": v}}), 0.9e-6, 1.1e-6),
    ("HD206", lambda v: network(weights={"l2": {"weight_sq": 0.2 * v}}), 3.95, 4.05),
    ("HD207", gain, 49.5, 50.5),
    ("HD207", lambda v: gain(1 / v), 49.5, 50.5),
    ("HD207", lambda v: plus(network(), parameters=(vector("gamma", weight_sq=v, uses=("branch",)),)), 49.5, 50.5),
    ("HD208", weights_of("unlike"), 1.1e-9, 0.9e-9),
    ("HD113", lambda v: network(bounded="softmax", floor=v, sources=("head",)), 0.24, 0.26),
    (
        "HD115",
        lambda v: network(
            layers={"l2": {"x_sq": 40.0, "sources": ("l1",)}, "l1": {"out_sq": 40.0 / v}}, sources=("l2",)
        ),
        29.0,
        31.0,
    ),
    ("HD105", lambda v: network(loss_kind="mse", chance_loss=v, initial_loss=v), 990.0, 1010.0),
    ("HD118", attending, 3, 4),
    ("HD114", lambda v: relabelled(network(), "relu", *v, paths=("l2",)), (), ("astray",)),
    ("HD114", lambda v: relabelled(network(), "relu", *v, paths=("l2",)), (), ("mixed",)),
    ("HD112", lambda v: relabelled(network(), "relu", *v, paths=("l2",)), (), ("drowned",)),
    ("HD117", lambda v: relabelled(network(), "norm", "linear", *v, paths=("l2",)), (), ("idle",)),
    ("HD120", lambda v: network(unseen=v), (), ("positions 1 to 3 of 4 in dimension 1 of l2", "l2")),
    ("HD120", lambda v: network(output_varies=0.5, repeated=v), 0.24, 0.26),
    ("HD101", lambda v: network(loss_kind="other", chance_loss=math.nan, logits_sq=v), 15.5, 16.5),
    ("HD113", lambda v: network(unbounded=v, sources=("head",)), False, True),
    (
        "HD117",
        lambda v: relabelled(network(layers={"l2": {"sources": ("l1",)}}), *v, paths=("l1",)),
        ("relu",),
        ("linear",),
    ),
    (
        "HD117",
        lambda v: relabelled(network(layers={"l2": {"sources": ("l1",), "x_sq": v}}), "linear", paths=("l1",)),
        1.1,
        1.0,
    ),
    ("HD404", lambda v: network(unregistered=v), (), ("l1.weight",)),
    ("HD405", lambda v: network(weights={"l2": {"uses": ("lookup",), "rows": v}}), 2, 1),
    ("HD405", lambda v: network(examples=v, weights={"l2": {"uses": ("lookup",), "rows": 1}}), 1, 2),
    ("HD401", weights_of("gradient"), "some", "zero"),
    ("HD402", layer_of("on_share", "l2"), 0.11, 0.09),
    ("HD403", weights_of("gradient"), "some", "none"),
]


@pytest.mark.parametrize(("rule", "make", "below", "above"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_it_speaks_above_the_threshold_alone(rule: str, make: Make, below: Any, above: Any) -> None:
    assert of(rule, make(below)) == []
    (found,) = of(rule, make(above))
    assert found.blocks
    assert set(found.blocks) <= {p.name for p in make(above).parameters}
    assert found.message.endswith(".")
    assert found.advice.endswith(".")


def test_a_plain_chain_is_healthy_also_where_sampling_explains_its_loss() -> None:
    assert find(network()) == find(network(initial_loss=2.3 * 2.5, initial_loss_stderr=2.0)) == ()


@pytest.mark.parametrize(("factor", "severity"), [(2.4, "note"), (2.6, "warning"), (4.9, "warning"), (5.1, "fault")])
def test_how_grave_an_initial_loss_is(factor: float, severity: str) -> None:
    """After what sampling leaves of it."""
    (found,) = find(network(initial_loss=2.3 * (factor + 0.2), initial_loss_stderr=0.23))
    assert (found.rule, found.severity) == ("HD101", severity)
    assert found.value == pytest.approx(factor + 0.2)


def test_skewed_labels_are_the_bias_of_the_head() -> None:
    signals = plus(network(initial_loss=10.0, output_sq=0.1), parameters=(vector("head.bias"),))
    (found,) = find(signals)
    assert (found.severity, found.blocks) == ("warning", ("head.bias",))


def test_what_gets_its_gradient_later_can_learn() -> None:
    zero = {"weight_sq": 0.0, "kurtosis": math.nan}
    assert of("HD401", network(weights={"l2": {"gradient": "later"}, "l3": zero})) == []
    (found,) = of("HD401", network(weights={"l2": {"gradient": "zero"} | zero, "l3": {"gradient": "zero"} | zero}))
    assert found.severity == "fault"


def test_a_bias_beside_a_weight_that_cannot_learn_is_named_too_and_makes_it_no_graver() -> None:
    stuck = plus(
        network(weights={"l2": {"gradient": "zero"}}),
        parameters=(vector("l2.bias", gradient="zero"), vector("l4.bias", gradient="zero")),
    )
    (found,) = of("HD401", stuck)
    assert (found.severity, found.blocks) == ("warning", ("l2.weight", "l4.bias", "l2.bias"))
    assert found.message.startswith("l2, l4.bias, l2.bias cannot learn: their gradient is exactly zero,")
    assert of("HD401", plus(network(), parameters=(vector("l4.bias", gradient="zero"),))) == []


@pytest.mark.parametrize(("scales", "how"), [
    ([0.2] * 4, "standard deviation 0.447"),  # all follow E[W²] = 0.2
    ([1e-4, 2e-3, 0.04, 0.8], "(Kaiming)"),  # no two agree
    ([0.2, 0.2, 0.2, 0.04], "standard deviation 0.447"),
])  # fmt: skip
def test_what_is_drawn_anew_follows_the_scheme_of_the_others(scales: list[float], how: str) -> None:
    dead = {"weight_sq": 0.0, "kurtosis": math.nan, "gradient": "zero"}
    others = {f"l{i}": {"weight_sq": scale} for i, scale in zip((0, 1, 4, 5), scales, strict=True)}
    (found,) = of("HD401", network(weights={"l2": dead, "l3": dead, **others}))
    assert how in found.advice


def test_a_scheme_by_fans_is_followed_by_the_fans_of_the_drawn() -> None:
    wide = {"shape": (10, 40), "numel": 400, "fan_in": 40}
    dead = wide | {"weight_sq": 0.0, "kurtosis": math.nan, "gradient": "zero"}
    others = {f"l{i}": {"fan_in": n, "fan_out": 7, "weight_sq": 2 / n} for i, n in enumerate((10, 20, 80, 160, 320))}
    (found,) = of("HD401", network(weights={**others, "l5": dead}))
    assert "standard deviation 0.224" in found.advice  # √(2 / 40)


def test_an_effect_is_left_out_and_lends_its_gravity_to_the_cause() -> None:
    apart, grown = {"weight_sq": 2.0}, {"out_sq": 2.0 * 10}  # what ReLUs take back, and what is left of it
    signals = network(weights={"l2": apart}, layers={"l2": grown}, initial_loss=2.3 * 6)
    (found,) = find(signals)
    assert (found.rule, found.severity, found.blocks[0]) == ("HD202", "fault", "l2.weight")


def test_a_cause_leaves_an_effect_whose_size_it_does_not_account_for() -> None:
    apart, grown = {"weight_sq": 2.0}, {"out_sq": 2.0 * 100}
    signals = network(weights={"l2": apart}, layers={"head": grown}, initial_loss=2.3 * 6)
    assert [(f.rule, f.severity, f.blocks[0]) for f in find(signals)] == [
        ("HD101", "fault", "head.weight"), ("HD202", "warning", "l2.weight"),
    ]  # fmt: skip


def test_what_is_frozen_amid_layers_that_learn_is_a_warning_and_a_frozen_beginning_none() -> None:
    kept = {"trainable": False}
    assert [f.severity for f in of("HD403", network(weights={"l2": kept}))] == ["warning"]
    assert of("HD403", network(weights={"l0": kept})) == []
    assert of("HD403", network(weights=dict.fromkeys(("l1", "l3"), kept))) == []  # adapters, perhaps


def test_what_modules_do_beside_their_weights_counts_as_it_is_measured() -> None:
    shrinks = {f"l{i}": {"weight_sq": 0.1} for i in range(6)}
    grows = {f"l{i}": {"x_sq": min(1e3 ** (i - 1), 1e6), "out_sq": min(1e3**i, 1e6)} for i in range(1, 6)}
    (found,) = of("HD103", network(weights=shrinks, layers=grows))
    assert (found.blocks[:2], "grow" in found.message, "by 0.0316" in found.advice) == (
        ("l1.weight", "l2.weight"), True, True,
    )  # fmt: skip


def test_a_constant_that_was_not_added_is_a_note() -> None:
    """Otherwise it is none, though the head sees examples apart again, past the drowned ones."""
    drowned = {"l2": {"x_varies": 5e-4}}
    for path, severity in (("l1", "warning"), ("l3", "note")):
        (found,) = of("HD110", network(layers=drowned | {path: {"out_varies": 1e-4}}))
        assert found.severity == severity


def test_what_is_frozen_beside_an_adapter_is_meant() -> None:
    for name, said in (("l2.a", []), ("l3.a", ["HD403"])):
        adapter = weight(name, shape=(4, 10), owners=(name[:2],), attribute="a")
        signals = plus(network(weights={"l2": {"trainable": False, "shape": (10, 11)}}), parameters=(adapter,))
        assert [f.rule for f in of("HD403", signals)] == said


def test_fans_without_the_kernel_are_none_where_a_usual_scheme_gives_the_same() -> None:
    """A convolution of one channel into 48, as PyTorch draws it, is as small by chance."""
    made = {"kernel": 9, "uses": ("product", "convolution"), "numel": 10**8}
    for n, m, said in ((1, 48, []), (4, 48, ["HD204"])):
        kernel = made | {"shape": (m, n, 3, 3), "fan_in": n, "fan_out": m, "weight_sq": 2 / (6 + n + m)}
        assert [f.rule for f in of("HD204", network(weights={"l1": kernel, "l2": kernel}))] == said


def test_a_zero_that_learns_lets_the_inputs_through_after_a_step() -> None:
    for gradient, severity in (("some", "warning"), ("zero", "fault")):
        signals = network(
            weights={"l2": {"weight_sq": 0.0, "gradient": gradient}},
            layers={"l2": {"out_sq": 0.0, "out_varies": 0.0}, "head": {"x_sq": 0.0, "x_varies": 0.0}},
        )
        (found,) = of("HD102", signals)
        assert (found.severity, found.blocks) == (severity, ("l2.weight",))


def test_what_is_lost_between_two_layers_is_lost_ahead_of_the_second() -> None:
    lost = {"l3": {"x_varies": 0.0, "out_varies": 0.0, "sources": ("l2",)}, "head": {"x_varies": 0.0}}
    for wrote, blocks in ((0.5, ("l3.weight",)), (0.0, ("l2.weight",))):
        (found,) = of("HD102", network(layers=lost | {"l2": {"out_varies": wrote}}))
        assert (found.severity, found.blocks) == ("fault", blocks)


def test_a_target_that_the_output_sees_is_a_fault_whatever_the_loss_is() -> None:
    for shown in ("ahead", "own"):
        (found,) = find(network(shown=shown, initial_loss=0.1))
        assert (found.rule, found.severity, found.blocks) == ("HD116", "fault", ())
    misplaced = relabelled(network(shown="ahead"), "relu", "astray", paths=("l2",))
    assert [f.rule for f in find(misplaced)] == ["HD114"]


def test_outputs_that_no_weight_moves_are_a_fault() -> None:
    (found,) = find(network(unmoved=1))
    assert (found.rule, found.severity) == ("HD401", "fault")


def test_a_zero_weight_ahead_of_what_reads_zeros_is_the_cause() -> None:
    ahead, starved = {"weight_sq": 0.0}, {"gradient": "later"}
    signals = network(weights={"l1": ahead, "l2": starved}, layers={"l2": {"x_sq": 0.0, "sources": ("l1",)}})
    (found,) = of("HD401", signals)
    assert (found.severity, found.blocks) == ("warning", ("l1.weight",))


def test_what_starts_small_and_learns_does_not_drown() -> None:
    drowned: dict[str, Any] = {"l1": {"out_varies": 0.0}, "l2": {"x_varies": 5e-4}, "head": {"x_varies": 5e-4}}
    (found,) = of("HD110", network(layers=drowned))
    assert found.severity == "warning"
    (found,) = of(
        "HD110", plus(network(layers=drowned), parameters=(vector("l1.scale", weight_sq=1e-8, uses=("branch",)),))
    )
    assert found.severity == "note"
    (found,) = of("HD110", network(layers=drowned, weights={"l0": {"weight_sq": 1e-8}}))
    assert found.severity == "note"
    (found,) = of(
        "HD110",
        relabelled(network(layers=drowned | {"l1": {"out_varies": 0.0, "x_varies": 0.0}}), "attention", paths=("l1",)),
    )
    assert found.severity == "note"


@pytest.mark.parametrize(("rule", "numbers"), [
    ("HD110", {"l1": {"out_varies": 0.0}, "l2": {"x_varies": 5e-4}, "head": {"x_varies": 5e-4}}),
])  # fmt: skip
def test_tables_that_start_small_grow(rule: str, numbers: dict[str, Any]) -> None:
    for size, grave in ((0.2, [rule]), (1e-7, [])):
        reads = {"l1": {"sources": ("wte",), "x_sq": size} | numbers.get("l1", {})}
        table = weight("wte.weight", owners=("wte",), kind="Embedding", uses=("lookup",), weight_sq=size)
        made = plus(network(layers=numbers | reads), layers=(layer("wte", kind="Embedding", x_sq=math.nan),),
                    parameters=(table, vector("l1.bias", weight_sq=0.1)))  # fmt: skip
        assert [f.rule for f in of(rule, made) if f.severity != "note"] == grave


def test_a_table_that_only_a_normalisation_reads_is_soon_as_large_as_that_makes_it() -> None:
    for labels, rows in ((("norm", "self-add"), 1), (("norm",), 0)):
        small = relabelled(below_eps(0.1), *labels, paths=("wte",))
        tables = tuple(replace(p, weight_sq=1e-8) if p.name == "wte.weight" else p for p in small.parameters)
        assert len(of("HD109", replace(small, parameters=tables))) == rows


def test_a_depthwise_convolution_is_no_larger_than_its_inputs_ask() -> None:
    thin = {"fan_in": 1, "kernel": 9, "weight_sq": 0.2 * 30}
    assert [f.severity for f in of("HD206", network(depth=8, weights={"l2": thin}))] == ["warning"]
    assert of("HD206", network(depth=8, weights={"l2": thin | {"kernel": 1, "weight_sq": 2.0}})) == []


def test_what_reads_zeros_learns_once_their_writer_does_whom_it_sends_a_gradient() -> None:
    for gradient, found in (("some", []), ("zero", ["HD401"])):
        stuck = {"l2": {"gradient": "zero"}, "l1": {"gradient": gradient}}
        reads = {"l2": {"x_sq": 0.0, "x_gradient_sq": 1e-3, "sources": ("l1",)}}
        assert [f.rule for f in of("HD401", network(weights=stuck, layers=reads))] == found


def test_outputs_that_are_equal_along_a_dimension_are_a_warning() -> None:
    (found,) = of("HD120", network(output_varies=0.5, same_along=1))
    assert (found.severity, "dimension 1" in found.message) == ("warning", True)


def test_a_gated_network_is_no_plain_chain() -> None:
    grown = chain(1e5)
    assert of("HD103", grown)
    assert of("HD103", relabelled(grown, "relu", "gate", paths=("l3",))) == []


def test_a_large_constant_that_is_wanted_is_told_from_outputs_that_are_too_large() -> None:
    (found,) = of("HD101", network(loss_kind="other", initial_loss=20.0, chance_sq=900.0, sources=("head",)))
    assert (found.blocks, "where the targets want 30" in found.message) == (("head.weight",), True)


def test_the_last_of_its_siblings_may_have_no_reader() -> None:
    unread = {"gradient": "none"}
    assert [f.severity for f in of("HD403", network(weights={"l3": unread}))] == ["warning"]
    assert [f.severity for f in of("HD403", network(weights={"l5": unread}))] == ["note"]


def test_dead_units_of_a_network_that_has_learnt_are_a_note() -> None:
    (found,) = find(network(layers={"l2": {"on_share": 0.0}}, initial_loss=0.1))
    assert (found.rule, found.severity) == ("HD402", "note")


def test_a_dead_layer_explains_zero_gradients() -> None:
    stuck = {path: {"gradient": "zero"} for path in ("l1", "l4")}
    dead = {"l2": {"on_share": 0.0}}
    (found,) = find(network(weights=stuck, layers=dead | {"l4": {"x_sq": 0.0}}))
    assert (found.rule, found.severity) == ("HD402", "fault")


def test_fixed_positions_that_drown_the_inputs_are_a_note() -> None:
    table = {"owners": ("wpe",), "kind": "Embedding", "uses": ("lookup",)}
    for trainable, severity in ((True, "warning"), (False, "note")):
        positions = layer("wpe", kind="Embedding", x_sq=math.nan, out_varies=0.0, out_sq=10.0)
        signals = plus(network(layers={key: {"x_varies": 5e-4} for key in ("l0", "head")}), layers=(positions,),
                       parameters=(weight("wpe.weight", trainable=trainable, **table),))  # fmt: skip
        (found,) = of("HD110", signals)
        assert (found.severity, found.blocks) == (severity, ("wpe.weight",))


def test_a_layer_that_reads_nothing_of_the_inputs_is_not_drowned_and_steps_may_have_a_large_bias() -> None:
    assert of("HD110", network(layers={"l2": {"x_varies": 0.0}})) == []
    assert of("HD205", relabelled(bias(30.0), "softplus", paths=("l2",))) == []


def test_a_zero_that_stops_all_gradients_is_no_decay_with_depth() -> None:
    assert of("HD103", network(layers={"l0": {"out_gradient_total": 0.0}})) == []


def test_the_catalogue_explains_every_rule_and_no_other() -> None:
    spoken = {rule for rule, *_ in CASES} | {"HD116"} | {f"HD60{number}" for number in range(5)}
    assert set(CATALOGUE) == spoken
    for rule, entry in CATALOGUE.items():
        assert entry.title
        assert {"What it measures", "Threshold", "Exceptions"} <= set(entry.parts), rule
        assert all(entry.parts.values()), rule
        threshold = entry.parts["Threshold"]
        assert any(character.isdigit() for character in threshold) or "zero" in threshold or rule == "HD403"


def test_the_verdict_counts_the_rules() -> None:
    assert len(ORDER) == CHECKS


def test_what_is_wrong_with_the_batch_is_not_laid_to_weights() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 50), nn.ReLU(), nn.Linear(50, 5))
    x, t = torch.randn(64, 20), torch.arange(64) % 5
    for inputs, targets, rule, what in (
        (x[:1].repeat(64, 1), t, "HD102", "have the same inputs"),
        (x, torch.zeros_like(t), "HD101", "nearly all labels of the batch are of one class"),
    ):
        found = hessdiag.diagnose(model, inputs, targets, quick=True).findings
        assert [(each.rule, what in each.message) for each in found if each.severity != "note"] == [(rule, True)]


def test_a_layer_of_zeros_is_named_and_not_the_inputs_and_shapes_that_torch_would_broadcast_are_a_note() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 50), nn.BatchNorm1d(50), nn.ReLU(), nn.Linear(50, 1))
    x = torch.randn(64, 20)
    (note,) = hessdiag.diagnose(model, x, x[:, 0], quick=True).findings
    assert (note.rule, note.severity, "(64, 1) and (64,) to (64, 64)" in note.message) == ("HD113", "note", True)
    assert hessdiag.diagnose(model, x, x[:, :1], quick=True).findings == ()
    nn.init.zeros_(model[0].weight)
    found = {each.rule: each.blocks for each in hessdiag.diagnose(model, x, x[:, :1], quick=True).findings}
    assert found["HD102"] == ("0.weight",)


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_a_loss_that_cannot_see_the_outputs_is_a_fault() -> None:
    torch.manual_seed(0)
    x, t = torch.randn(8, 4), torch.randint(3, (8,))
    for last, loss, what in (
        (nn.Identity(), lambda y, t: y.softmax(1).sum(1).mean(), "Whatever the outputs are"),
        (nn.Identity(), lambda y, t: F.cross_entropy(y.detach(), t).requires_grad_(), "sends no gradient"),
        (nn.Identity(), lambda y, t: F.l1_loss(y.gather(1, t[:, None]), t.float()), "(8, 1) and (8,) to (8, 8)"),
        (nn.Identity(), lambda y, t: (y[:, :1] * (t - 0.5)).square().mean(), "(8, 1) and (8,) to (8, 8)"),
        (nn.Dropout(1.0), "cross-entropy", "2 drops everything"),
    ):
        model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), last)
        (found,) = hessdiag.diagnose(model, x, t, loss=loss, quick=True).findings[:1]
        assert (found.rule, found.severity) == ("HD113", "fault")
        assert what in found.message


def test_a_softmax_cannot_be_right_of_several_classes_at_once() -> None:
    torch.manual_seed(0)
    x, t = torch.randn(16, 4), (torch.rand(16, 6) < 0.5).float()
    for last, rules in ((nn.Softmax(1), ["HD113"]), (nn.Sigmoid(), [])):
        found = hessdiag.diagnose(nn.Sequential(nn.Linear(4, 6), last), x, t, loss=F.binary_cross_entropy, quick=True)
        assert [each.rule for each in found.findings] == rules


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


@pytest.mark.parametrize(("field", "below", "above"), [
    ("swing", 0.051, 0.049), ("learnable", 1.1e-3, 0.9e-3), ("agrees", -0.49, -0.51),
])  # fmt: skip
def test_a_loss_that_asks_for_nothing_or_the_opposite_is_told_without_a_layer(
    field: str, below: float, above: float
) -> None:
    assert of("HD113", network(**{field: below})) == []
    (found,) = of("HD113", network(**{field: above}))
    assert (found.severity, found.blocks) == ("warning", ())


def overlap(y: Tensor, t: Tensor) -> Tensor:
    p, one = y.softmax(1), F.one_hot(t, 3)
    return ((p * one).sum(1) / (p + one - p * one).sum(1)).mean()


def unit(y: Tensor, t: Tensor) -> Tensor:
    return F.cosine_similarity(y, F.one_hot(t, 3) + 0.1 * t.unsqueeze(1)).mean()


ASKED: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor, Tensor], Tensor], str]] = {
    "likelihood": (lambda y, t: -F.nll_loss(y.log_softmax(1), t), lambda y, t: F.nll_loss(y.log_softmax(1), t), "away"),
    "overlap": (overlap, lambda y, t: 1 - overlap(y, t), "away"),
    "cosine": (unit, lambda y, t: 1 - unit(y, t), "away"),
    "hinge": (
        lambda y, t: F.relu(1 - y * F.one_hot(t, 3)).mean(),
        lambda y, t: F.relu(1 - y * (2 * F.one_hot(t, 3) - 1)).mean(),
        "constant",
    ),
    "norm of all": (
        lambda y, t: F.cross_entropy(0.3 * y / y.norm(), t), lambda y, t: F.cross_entropy(9 * F.normalize(y), t),
        "Whatever",
    ),
    "distances": (
        lambda y, t: y.softmax(1).sum(1).mean(), lambda y, t: F.cross_entropy(-y.square(), t), "Whatever"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
def test_what_a_loss_asks_is_compared_with_the_targets(name: str) -> None:
    torch.manual_seed(0)
    wrong, right, what = ASKED[name]
    model, x, t = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)), torch.randn(32, 8), torch.arange(32) % 3
    how: dict[str, Any] = {"per": "batch", "quick": True}
    (found,) = (f for f in hessdiag.diagnose(model, x, t, loss=wrong, **how).findings if f.severity != "note")
    assert (found.rule, what in found.message) == ("HD113", True)
    assert [f for f in hessdiag.diagnose(model, x, t, loss=right, **how).findings if f.severity != "note"] == []


def test_notes_advise_nothing() -> None:
    found = find(network(loss_kind="mse", output_sq=0.1, initial_loss=8.0, chance_loss=2.0))
    assert [(each.rule, each.severity, each.advice) for each in found] == [("HD101", "note", "")]
