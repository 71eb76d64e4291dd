"""Rules from signals to findings, and their score on the gallery: a prototype in pure functions.

    python scripts/gallery_rules_prototype.py gallery.jsonl [--show NAME]

Every rule reads the plain numbers that `gallery_signals.py` writes, and nothing else.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import median
from typing import Any

Row = dict[str, Any]
GRAVITY = {"fault": 0, "warning": 1, "note": 2}
# Rules in the order of cause and effect: at equal gravity the earlier one is the likelier cause.
CAUSES = ("HD105", "HD402", "HD208", "HD401", "HD201", "HD203", "HD202", "HD205", "HD204", "HD207", "HD206", "HD106",
          "HD107", "HD109", "HD104", "HD110", "HD103", "HD102", "HD101", "HD209", "HD108", "HD111",
          "HD403")  # fmt: skip
CRITICAL = {"relu": 2.0, "relu6": 2.0, "leaky_relu": 1.92, "gelu": 2.35, "silu": 2.81, "elu": 1.0, "tanh": 1.0}


@dataclass(frozen=True)
class Finding:
    """What is wrong, where, and the number that passed its threshold."""

    rule: str
    severity: str
    blocks: tuple[str, ...]
    number: float
    threshold: float
    message: str


def findings(row: Row) -> list[Finding]:
    """Every finding on a network, gravest first, effects of a named cause left out."""
    net = Net(row)
    found = [finding for rule in RULES for finding in rule(net)]
    return sorted(suppressed(found), key=lambda f: (GRAVITY[f.severity], CAUSES.index(f.rule)))


def assign_siblings(parameters: list[Row]) -> None:
    """Name the group of each parameter: same name but for one number, same shape; of several such numbers the one that
    counts most, so that `blocks.3.conv2` belongs to `blocks.#.conv2` and not to `blocks.3.conv#`."""
    choices = {
        p["name"]: [
            f"{p['name'][: m.start()]}#{p['name'][m.end() :]}{p['shape']}" for m in re.finditer(r"\d+", p["name"])
        ]
        for p in parameters
    }
    members = Counter(key for keys in choices.values() for key in keys)
    for p in parameters:
        keys = choices[p["name"]]
        p["sibling"] = max(keys, key=members.__getitem__) if keys else p["name"]


class Net:
    """Signals of one network, by role."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.parameters = row["parameters"]
        self.layers = {layer["path"]: layer for layer in row["layers"]}
        assign_siblings(self.parameters)
        self.order = {path: i for i, path in enumerate(self.layers)}
        self.matrices = [p for p in self.parameters if len(p["shape"]) > 1]
        self.weights = [p for p in self.matrices if "Embedding" not in p["type"]]
        self.owner_weight = {o: p for p in self.matrices for o in p["owners"] if o in self.layers}
        self.backbone = sorted(
            (
                o
                for p in self.matrices
                for o in p["owners"]
                if o in self.layers and self.layers[o]["type"] != "Embedding"
            ),
            key=self.order.__getitem__,
        )
        outputs = [path for path in self.backbone if "output" in self.layers[path]["labels"]]
        self.head = outputs[-1] if outputs else None
        self.hidden = [path for path in self.backbone if path != self.head]
        self.normalised = row["active_norms"] > 0
        self.fixed_norms = row["norms"] - row["active_norms"]  # batch normalisations in evaluation mode
        self.residual = any("add" in self.layers[path]["labels"] for path in self.hidden)

    def labels(self, path: str) -> set[str]:
        """Where the output of a layer goes."""
        return set(self.layers[path]["labels"]) if path in self.layers else set()

    def scale(self, path: str) -> float:
        """n k² E[W²]: what the layer multiplies E[x²] by, were its inputs uncorrelated."""
        p = self.owner_weight[path]
        return p["n"] * p["k"] * p["sq"] if p["sq"] else 0.0

    def bias_of(self, path: str) -> Row | None:
        """The bias of a layer."""
        return next((p for p in self.parameters if p["name"] == f"{path}.bias"), None)


# -- HD1xx: signals ----------------------------------------------------------------------------------------------------


def initial_loss(net: Net) -> Iterator[Finding]:
    """HD101: the first loss is far above that of a constant guess; the layer that made the outputs large is named."""
    loss, output = net.row["loss"], net.row["output"]["sq"]
    note, warn, fault = (2.0, 3.0, 5.0) if loss["kind"] == "cross-entropy" else (3.0, 5.0, 10.0)
    surely = (loss["initial"] - 2 * loss["stderr"]) / loss["chance"]  # what sampling of the batch leaves
    if not loss["ratio"] > note or not surely > note / 2:
        return
    severity = "fault" if surely > fault else "warning" if surely > warn else "note"
    if net.row["inputs"].get("sq", 0) > INPUT_SQ:
        return  # HD105 names the cause
    if output < 1 and net.head:  # small outputs, and yet a bad guess: the labels are skewed and the bias does not know
        bias = net.bias_of(net.head)
        blocks = (bias["name"] if bias else net.owner_weight[net.head]["name"],)
        severity = "warning" if loss["ratio"] > 4 else "note"
        yield Finding(
            "HD101", severity, blocks, loss["ratio"], note, "the output's bias ignores how rare the classes are"
        )
        return
    blocks = tuple(loudest(net))
    yield Finding("HD101", severity, blocks, loss["ratio"], note, "initial loss over that of a constant guess")


def loudest(net: Net) -> list[str]:
    """Weights behind the last normalisation that multiply their input most, over what their nonlinearity takes back."""
    norms = [net.order[path] for path, layer in net.layers.items() if layer["active_norm"]]
    after = max(norms, default=-1)
    tail = [path for path in net.backbone if net.order[path] > after] or ([net.head] if net.head else [])
    excess = {}
    for path in tail:
        layer = net.layers[path]
        need = 1.0 if path == net.head else max((CRITICAL.get(a, 1.0) for a in layer["labels"]), default=1.0)
        gain = layer["out_sq"] / layer["x_sq"] if layer.get("x_sq") else math.inf
        excess[path] = gain / need
        bias = net.bias_of(path)
        if bias and bias["sq"] > 0.5 * layer["out_sq"]:
            yield_bias = bias["name"]
            excess[path] = math.inf
            return [yield_bias, net.owner_weight[path]["name"]]
    ranked = sorted(excess, key=excess.__getitem__, reverse=True)
    if net.head and net.row["output"]["sq"] > 4 * net.layers[net.head]["out_sq"]:
        ranked = [net.head, *(path for path in ranked if path != net.head)]  # multiplied behind the head
        return [net.owner_weight[net.head]["name"]]
    top = excess[ranked[0]] if ranked else 0.0
    chosen = [path for path in ranked if excess[path] > max(1.5, top / 4)] or ranked[:1]
    return [net.owner_weight[path]["name"] for path in chosen]


INPUT_SQ = 100.0


def raw_inputs(net: Net) -> Iterator[Finding]:
    """HD105: inputs far from unit scale, such as pixels from 0 to 255, into a layer that no normalisation follows."""
    sq = net.row["inputs"].get("sq", 1.0)
    if sq <= INPUT_SQ or not net.backbone:
        return
    first = [path for path in net.backbone if net.layers[path].get("x_sq", 0) > 0.2 * sq][:1] or net.backbone[:1]
    active = "norm" in net.labels(first[0]) and net.normalised
    severity = "note" if active else "fault" if net.row["loss"]["ratio"] > 4 else "warning"
    names = tuple(net.owner_weight[path]["name"] for path in first)
    yield Finding("HD105", severity, names, sq, INPUT_SQ, "E[x²] of the network's inputs")


def depth_scale(net: Net) -> Iterator[Finding]:
    """HD103: in a chain without normalisation or skips the scale multiplies up, or down, with depth."""
    if net.normalised or net.residual or len(net.hidden) < 4:
        return
    chain = [path for path in net.hidden if "LSTM" not in net.layers[path]["type"] and net.scale(path) > 0]
    if len(chain) < 4 or len(chain) < len(net.hidden):
        return
    need = {path: critical(net, path) for path in chain}
    steps = {path: math.log(net.scale(path) / n) for path, n in need.items() if n}
    product = sum(steps.values())
    forward = log_ratio(net.layers[chain[-1]]["out_sq"], net.layers[chain[0]]["out_sq"])
    backward = log_ratio(net.layers[chain[0]]["gradient_total"], net.layers[chain[-1]]["gradient_total"])
    varies = net.layers[net.head].get("x_varies", 1.0) if net.head else 1.0
    measured = max(abs(forward), abs(backward))
    limit = math.log(1e4)
    if max(abs(product), measured) < limit and varies > 1e-3:
        return
    if measured < math.log(5) and varies > 1e-2:
        return  # a nonlinearity that holds its own scale, as a saturating one does
    severity = "fault" if measured > math.log(1e6) or varies < 1e-4 else "warning"
    if net.fixed_norms:
        severity = "note"
    sign = 1 if (product or max(forward, backward, key=abs)) > 0 else -1
    blamed = sorted((path for path in steps if sign * steps[path] > 0.2), key=lambda path: -sign * steps[path])
    names = tuple(net.owner_weight[path]["name"] for path in blamed or chain)
    word = "grows" if sign > 0 else "decays"
    worst = math.exp(min(max(measured, abs(product)), 700))
    yield Finding("HD103", severity, names, worst, 1e4, f"E[x²] or its gradient {word} with depth")


def log_ratio(a: float, b: float) -> float:
    return math.log(max(a, 1e-300) / max(b, 1e-300))


def critical(net: Net, path: str) -> float | None:
    """n k² E[W²] at which E[x²] stays, for the layer's nonlinearity."""
    kinds = [a for a in net.layers[path]["labels"] if a in CRITICAL]
    return CRITICAL[kinds[0]] if kinds else None


def residual_growth(net: Net) -> Iterator[Finding]:
    """HD104: residual branches without normalisation double E[x²] again and again; their last layers are named."""
    if net.normalised or not net.residual or len(net.hidden) < 6:
        return
    first, last = net.hidden[0], net.hidden[-1]
    forward = net.layers[last].get("x_sq", 0) / max(net.layers[first]["out_sq"], 1e-300)
    total = net.layers[net.head]["x_sq"] / max(net.layers[first]["out_sq"], 1e-300) if net.head else forward
    slopes = [net.layers[path]["gradient_total"] for path in net.hidden if net.layers[path]["gradient_total"] > 0]
    backward = slopes[0] / slopes[-1] if slopes else 1.0
    growth = max(forward, total, backward)
    limit = 30.0 if not net.fixed_norms else 1e4
    if growth < limit:
        return
    ends = [path for path in net.hidden if "add" in net.labels(path) and net.scale(path) > 0]
    names = tuple(net.owner_weight[path]["name"] for path in ends)
    severity = "note" if net.fixed_norms else "fault" if growth > 1e4 or net.row["loss"]["ratio"] > 4 else "warning"
    yield Finding("HD104", severity, names, growth, limit, "residual branches multiply E[x²] with depth")


def decay_behind_fresh_norm(net: Net) -> Iterator[Finding]:
    """HD102: the outputs do not depend on the inputs any more."""
    head = net.layers.get(net.head or "")
    if not head or "x_sq" not in head or net.scale(net.head or "") == 0:
        return
    varying = head["x_sq"] * head["x_varies"]
    if varying > 1e-7 or varying == 0:
        return
    steps = [
        (math.log(layer["out_sq"] / layer["x_sq"]), path)
        for path in net.hidden
        if (layer := net.layers[path]).get("x_sq") and layer["out_sq"] > 0
    ]
    names = tuple(net.owner_weight[path]["name"] for _, path in sorted(steps)[: max(3, len(steps) // 3)])
    severity = "warning" if net.fixed_norms else "fault"
    yield Finding("HD102", severity, names, varying, 1e-7, "hardly anything of the inputs reaches the last layer")


def saturation(net: Net) -> Iterator[Finding]:
    """HD106: a tanh or sigmoid is flat for most of its inputs."""
    hit = {
        path: net.layers[path]["activation"]["saturated"]
        for path in net.hidden
        if net.layers[path]["activation"].get("saturated", 0) > 0.5
    }
    if hit:
        names = tuple(net.owner_weight[path]["name"] for path in sorted(hit, key=hit.__getitem__, reverse=True))
        worst = max(hit.values())
        yield Finding("HD106", "fault" if worst > 0.9 else "warning", names, worst, 0.5, "share of saturated units")


def narrow_phase(net: Net) -> Iterator[Finding]:
    """HD107: the first sines of a coordinate network span less than half a period, so that they are nearly linear."""
    sines = [path for path in net.hidden if "phase_rms" in net.layers[path]["activation"]]
    if len(sines) < 2 or sines[0] != net.backbone[0] or net.owner_weight[sines[0]]["n"] > 8:
        return
    first = net.owner_weight[sines[0]]
    omega = net.layers[sines[0]]["activation"]["phase_rms"] / math.sqrt(net.layers[sines[0]]["out_sq"])
    spread = omega * math.sqrt(first["n"] * first["sq"] * net.layers[sines[0]]["x_sq"])
    if spread < math.pi / 2:
        yield Finding(
            "HD107", "warning", (first["name"],), spread, math.pi / 2, "phase of the first sines, rms in radians"
        )


def drowning_branches(net: Net) -> Iterator[Finding]:
    """HD108: a pre-norm branch is much larger than the stream that it is added to (a note: LLaMA and OPT do so)."""
    norms = [path for path, layer in net.layers.items() if layer["active_norm"] and "self-add" not in layer["labels"]]
    share: dict[str, float] = {}
    for path in net.hidden:
        read = [norm for norm in norms if net.order[norm] < net.order[path] and net.layers[norm].get("x_sq")]
        if "add" in net.labels(path) and net.scale(path) > 0 and read:
            share[path] = net.layers[path]["out_sq"] * layer_scale(net, path) / net.layers[read[-1]]["x_sq"]
    if len(share) < 4 or max(share.values()) < 3:
        return
    by_name: dict[str, list[str]] = defaultdict(list)
    for path in share:
        by_name[net.owner_weight[path]["sibling"]].append(path)
    groups = sorted(by_name.values(), key=lambda paths: -sum(net.layers[path]["out_sq"] for path in paths))
    names = tuple(net.owner_weight[path]["name"] for paths in groups for path in paths)
    yield Finding(
        "HD108", "note", names, max(share.values()), 3.0, "E[branch²] over E[stream²]; GPT-2 scales by 1/√(2L)"
    )


def layer_scale(net: Net, path: str) -> float:
    """E[λ²] of a LayerScale on the branch: a vector of the layer's parent that is no weight and no bias."""
    parent = path.rpartition(".")[0]
    vectors = [
        p["sq"]
        for p in net.parameters
        if len(p["shape"]) == 1 and p["attribute"] not in ("weight", "bias")
        and any(o == parent or o.startswith(parent + ".") for o in p["owners"])
    ]  # fmt: skip
    return min(vectors, default=1.0)


def backward_scheme(net: Net) -> Iterator[Finding]:
    """HD111: weights that keep the gradient's scale (fan-out) in a chain that changes width: a note."""
    found = laws(net)
    if net.normalised or net.fixed_norms or net.residual or not found or found[0] < 0.8 or found[1] != "fan-out":
        return
    steps = {path: math.log(net.owner_weight[path]["n"] / net.owner_weight[path]["m"]) for path in net.hidden}
    worst = max(abs(v) for v in steps.values())
    if worst < math.log(1.5):
        return
    names = tuple(net.owner_weight[path]["name"] for path in sorted(steps, key=lambda o: -abs(steps[o])))
    yield Finding("HD111", "note", names, math.exp(worst), 1.5, "fan-in over fan-out of weights drawn by fan-out")


# -- HD2xx: weights ----------------------------------------------------------------------------------------------------


def outliers(net: Net) -> Iterator[Finding]:
    """HD201: a few entries far outside the rest of their tensor."""
    tails = {p["name"]: p["kurtosis"] for p in net.matrices if p["zeros"] < 0.2 and not math.isnan(p["kurtosis"])}
    if not tails:
        return
    usual = median(tails.values())
    hit = {
        p["name"]: p["kurtosis"]
        for p in net.matrices
        if p["name"] in tails
        and p["numel"] >= 64
        and p["max_rms"] > 8
        and (p["kurtosis"] > max(10.0, 3 * usual) or (p["kurtosis"] > 30 and p["max_rms"] > 30))
    }
    if hit:
        names = tuple(sorted(hit, key=hit.__getitem__, reverse=True))
        worst = hit[names[0]]
        yield Finding("HD201", "fault" if worst > 50 else "warning", names, worst, 10.0, "kurtosis of the weights")


def siblings(net: Net) -> Iterator[Finding]:
    """HD202: one tensor is scaled differently from those of the same name and shape at other depths."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for p in net.matrices:
        if p["sq"] > 0:
            groups[p["sibling"]].append(p)
    if not any(len(g) > 2 for g in groups.values()):
        groups = {}
    hit: dict[str, float] = {}
    for group in groups.values():
        if len(group) < 3:
            continue
        away: dict[str, float] = {}
        for p in group:
            others = [math.log(o["sq"]) for o in group if o is not p]
            middle = median(others)
            spread = median(abs(o - middle) for o in others)
            ratio = math.log(p["sq"]) - middle
            if abs(ratio) > max(math.log(4), 6 * spread):
                away[p["name"]] = ratio
        if len(away) <= max(1, len(group) // 4):  # else there are two populations, not an outlier
            hit |= away
    if hit:
        names = tuple(sorted(hit, key=lambda name: abs(hit[name]), reverse=True))
        worst = math.exp(abs(hit[names[0]]))
        yield Finding("HD202", "fault" if worst > 25 else "warning", names, worst, 4.0, "E[W²] against its siblings")


def parts(net: Net) -> Iterator[Finding]:
    """HD203: one part of a fused tensor (q, k, v; the gates of an LSTM) is scaled differently from the others."""
    hit = {}
    for p in net.matrices:
        if len(p["parts"]) < 3 or min(p["parts"]) <= 0:
            continue
        peers = [
            o
            for o in net.matrices
            if o["sibling"] == p["sibling"] and o is not p and len(o["parts"]) == len(p["parts"])
        ]
        shape = [math.log(v) for v in p["parts"]]
        usual = [median(math.log(o["parts"][i]) for o in peers) if peers else 0.0 for i in range(len(shape))]
        moved = [a - b for a, b in zip(shape, usual, strict=True)]
        deviation = max(abs(m - median(moved)) for m in moved)
        if deviation > math.log(6):
            hit[p["name"]] = math.exp(deviation)
    if hit:
        names = tuple(sorted(hit, key=hit.__getitem__, reverse=True))
        yield Finding(
            "HD203", "fault" if hit[names[0]] > 25 else "warning", names, hit[names[0]], 6.0, "E[W²] of one part"
        )


def wrong_formula(net: Net) -> Iterator[Finding]:
    """HD204: E[W²] is, within its sampling error, what a known misreading of a formula gives."""
    grouped = [p for p in net.weights if p["groups"] > 1 and p["k"] > 1 and p["sq"] > 0]
    dense = [p for p in net.weights if p["groups"] == 1 and len(p["shape"]) == 4 and p["sq"] > 0]
    laws = {
        "fan-out": lambda p: p["m"] * p["k"],
        "fan-in": lambda p: p["n"] * p["k"],
        "Xavier": lambda p: (p["n"] + p["m"]) * p["k"] / 2,
    }
    for law, unit in laws.items():
        plain = [unit(p) * p["sq"] for p in dense]
        if len(plain) < 2 or len(grouped) < 2:
            continue
        constant = mode([math.log(v) for v in plain])
        if sum(abs(math.log(v) - constant) < 0.2 for v in plain) < 0.6 * len(plain):
            continue
        missing = {p["name"]: constant - math.log(unit(p) * p["sq"]) for p in grouped}
        misread = [
            p for p in grouped if p["groups"] >= 8 and abs(missing[p["name"]] - math.log(p["groups"])) < math.log(2.5)
        ]
        if len(misread) >= 0.6 * len(grouped):
            misread.sort(key=lambda p: -missing[p["name"]])
            names = tuple(p["name"] for p in misread)
            factor = math.exp(missing[names[0]])
            severity = "note" if net.normalised or (not net.row["fresh_norm"] and net.fixed_norms) else "warning"
            yield Finding("HD204", severity, names, factor, 8.0, f"{law} not divided by the groups")
            break
    summed = [
        p
        for p in net.weights
        if len(p["shape"]) >= 3 and p["k"] > 1 and p["groups"] == 1
        and near(p["sq"] * (sum(p["shape"][2:]) + p["n"] + p["m"]), 2.0, p["numel"])
    ]  # fmt: skip
    if len(summed) >= 2:
        names = tuple(p["name"] for p in summed)
        severity = "note" if net.normalised else "warning"
        yield Finding(
            "HD204", severity, names, summed[0]["k"], 1.0, "Xavier's fans summed over the dimensions of a kernel"
        )


def near(value: float, expected: float, numel: int) -> bool:
    """Within four standard errors of a sample's second moment (Gaussian: relative √(2/P)), and 1 % for rounding."""
    return abs(value / expected - 1) < 4 * math.sqrt(2 / numel) + 0.01


def biases(net: Net) -> Iterator[Finding]:
    """HD205: a bias drowns what its layer computes from the inputs."""
    hit = {}
    for path in net.hidden:
        bias, layer = net.bias_of(path), net.layers[path]
        if bias and bias["sq"] > 4 and bias["sq"] > 0.8 * layer["out_sq"]:
            hit[bias["name"]] = bias["sq"] / max(layer["out_sq"] - bias["sq"], 0.01 * bias["sq"])
            hit[net.owner_weight[path]["name"]] = 0.0
    if hit:
        names = tuple(sorted(hit, key=hit.__getitem__, reverse=True))
        yield Finding("HD205", "warning", names, hit[names[0]], 4.0, "E[b²] over the rest of E[y²]")


def laws(net: Net) -> tuple[float, str, dict[str, float]] | None:
    """The scheme that most weights follow: the share that does, its name, and the distance of each (log E[W²])."""
    candidates = [p for p in net.weights if p["sq"] > 0 and not (net.head and net.head in p["owners"])]
    if len(candidates) < 4:
        return None
    units = {
        "constant": lambda p: 1.0,
        "fan-in": lambda p: p["n"] * p["k"],
        "fan-out": lambda p: p["m"] * p["k"],
        "Xavier": lambda p: (p["n"] + p["m"]) * p["k"] / 2,
    }
    found: list[tuple[int, str, dict[str, float]]] = []
    for law, unit in units.items():
        logs = {p["name"]: math.log(unit(p) * p["sq"]) for p in candidates}
        middle = mode(list(logs.values()))
        away = {name: value - middle for name, value in logs.items()}
        found.append((sum(abs(v) < 0.2 for v in away.values()), law, away))
    most = max(followers for followers, _, _ in found)
    best = [(law, away) for followers, law, away in found if followers == most]  # several, where all shapes are alike
    away = {p["name"]: min((a[p["name"]] for _, a in best), key=abs) for p in candidates}
    return (most / len(candidates) if most >= 3 else 0.0), " or ".join(law for law, _ in best), away


def scheme(net: Net) -> Iterator[Finding]:
    """HD206: a layer is much larger than the scheme that most others follow."""
    found = laws(net)
    if not found or found[0] < 0.4:
        return
    share, law, away = found
    large = {name: v for name, v in away.items() if v > math.log(4)}
    if not large:
        return
    names = tuple(sorted(large, key=large.__getitem__, reverse=True))
    worst = math.exp(large[names[0]])
    first = net.backbone[0] in next(p for p in net.weights if p["name"] == names[0])["owners"]
    few = len(large) <= max(2, len(away) // 6) and share >= 0.6
    severity = "warning" if worst > (100 if first else 20) and few else "note"
    yield Finding("HD206", severity, names, worst, 4.0, f"E[W²] against the {law} scheme of the others")


def mode(values: list[float]) -> float:
    """The value with most others within 0.2."""
    return max(values, key=lambda v: sum(abs(v - o) < 0.2 for o in values))


def gains(net: Net) -> Iterator[Finding]:
    """HD207: a normalisation's gain is far from one, without being zero or ending a residual branch."""
    hit = {}
    for path, layer in net.layers.items():
        own = next((p for p in net.parameters if p["name"] == f"{path}.weight"), None)
        bias = next((p["sq"] for p in net.parameters if p["name"] == f"{path}.bias"), 0.0)
        if "Norm" not in layer["type"] or not own or "add" in layer["labels"] or not own["sq"]:
            continue
        effective = layer["out_sq"] - bias if layer["active_norm"] else own["sq"]  # Gemma's gain is 1 + weight
        if layer["active_norm"] and layer.get("x_sq", 1.0) < 1e-4:
            continue  # HD109
        if own["sq"] and not 0.02 < effective < 50:
            hit[own["name"]] = abs(math.log(max(effective, 1e-300)))
    if hit:
        names = tuple(sorted(hit, key=hit.__getitem__, reverse=True))
        yield Finding("HD207", "warning", names, math.exp(min(hit[names[0]], 700)), 50, "E[gain²], or one over it")


def identical_units(net: Net) -> Iterator[Finding]:
    """HD208: all outputs of a layer have the same weights, so that they learn the same."""
    alike = [
        p["name"] for p in net.weights if p["sq"] > 0 and p["unlike"] < 1e-9 and p["shape"][0] > 1 and p["trainable"]
    ]
    if alike:
        yield Finding("HD208", "fault", tuple(alike), 0.0, 1e-9, "variance of the weights between output units")


def within_block(net: Net) -> Iterator[Finding]:
    """HD209: layers that read the same tensor and have the same shape are scaled differently (a note)."""
    groups: dict[tuple[int, str], list[str]] = defaultdict(list)
    for path in net.backbone:
        p = net.owner_weight[path]
        if p["sq"] > 0 and net.layers[path]["reads"] >= 0:
            groups[net.layers[path]["reads"], str(p["shape"])].append(path)
    law = laws(net)
    hit = {}
    for paths in groups.values():
        scales = {net.owner_weight[path]["name"]: math.log(net.owner_weight[path]["sq"]) for path in paths}
        if max(scales.values()) - min(scales.values()) < math.log(4):
            continue
        middle = median(scales.values())
        away = {name: abs(law[2].get(name, v - middle) if law else v - middle) for name, v in scales.items()}
        hit |= {name: v for name, v in away.items() if v > math.log(2)} or away
    if hit:  # of two that differ, the one farther from what the rest of the network does
        names = tuple(sorted(hit, key=hit.__getitem__, reverse=True))
        yield Finding("HD209", "note", names, math.exp(hit[names[0]]), 4.0, "E[W²] against layers that read the same")


def swallowed(net: Net) -> Iterator[Finding]:
    """HD109: the signal that a normalisation reads is below its ε, so that it is not normalised."""
    hit = []
    for path, layer in net.layers.items():
        own = next((p for p in net.parameters if p["name"] == f"{path}.weight"), None)
        if not layer["active_norm"] or not own or not 0.5 < own["sq"] < 2 or not layer.get("x_sq"):
            continue
        if layer["out_sq"] < 0.3 * own["sq"] and layer["x_sq"] < 1e-4:
            before = [o for o in net.layers if net.order[o] < net.order[path] and o in net.owner_weight]
            hit.append((layer["out_sq"], net.owner_weight[before[-1]]["name"] if before else own["name"], own["name"]))
    if hit:
        names = tuple(dict.fromkeys(name for _, *pair in sorted(hit) for name in pair))
        yield Finding("HD109", "warning", names, min(hit)[0], 0.3, "E[y²] behind a normalisation that should make it 1")


# -- HD4xx: gradients --------------------------------------------------------------------------------------------------


def dead(net: Net) -> Iterator[Finding]:
    """HD402: a layer whose outputs, or the units behind them, do not change with the inputs."""
    by_name = {p["name"]: p for p in net.parameters}
    for path, layer in net.layers.items():
        own, bias = by_name.get(f"{path}.weight"), by_name.get(f"{path}.bias")
        alive = layer.get("x_sq", 0) * layer.get("x_varies", 1.0) > 0
        if path == net.head or not own or not alive or "add" in layer["labels"]:
            continue  # the last gain of a residual branch is zero on purpose
        if "Norm" in layer["type"] and own["sq"] == 0 and not layer["out_varies"] > 0:
            yield Finding("HD402", "fault", (own["name"],), 0.0, 0.0, "the gain of this normalisation is zero")
            return
        rectified = set(layer["labels"]) & {"relu", "relu6"}
        if own["sq"] > 0 and rectified and layer["off_share"] > 0.8 and layer["samples"] >= 16:
            names = [own["name"]]
            if bias and bias["mean"] < 0 and bias["mean"] ** 2 > 0.5 * layer["out_sq"]:
                names.insert(0, bias["name"])
            severity = "fault" if layer["off_share"] > 0.95 else "warning"
            yield Finding("HD402", severity, tuple(names), layer["off_share"], 0.8, "share of units that never fire")
            return


def drowned(net: Net) -> Iterator[Finding]:
    """HD110: what a layer reads is nearly the same for every example; the constant that drowns it is named."""
    before: list[str] = []
    for path, layer in net.layers.items():
        varies = layer.get("x_varies")
        if "Embedding" not in layer["type"] and varies is not None and layer["x_sq"] > 0 and varies < 0.003:
            steady = [o for o in before if not net.layers[o]["out_varies"] > 0.003]
            steady.sort(key=lambda o: -net.layers[o]["out_sq"])
            blamed = steady or before[-1:] or [path]
            names = tuple(p["name"] for o in blamed[:3] for p in net.parameters if o in p["owners"])
            severity = "fault" if varies < 1e-5 else "warning" if varies < 0.001 else "note"
            yield Finding("HD110", severity, names, varies, 0.003, "share of E[x²] that varies between examples")
            return
        before.append(path)


def zero_gradients(net: Net) -> Iterator[Finding]:
    """HD401: exactly zero gradients that no zero weight on their way, itself with a gradient, explains."""
    stuck = [p for p in net.parameters if p["trainable"] and p["gradient"] == "zero"]
    if not stuck:
        return
    opening = [p for p in net.parameters if p["trainable"] and p["sq"] == 0 and p["gradient"] == "some"]
    opening = [p for p in opening if "bias" not in p["attribute"]]  # a bias opens nothing
    unexplained = [p for p in stuck if not any(explains(net, q, p) for q in opening)]
    unexplained = [p for p in unexplained if len(p["shape"]) > 1 or p["sq"] > 0] or []
    if unexplained:
        both = [p for p in unexplained if p["sq"] == 0]
        names = tuple(p["name"] for p in both + [p for p in unexplained if p["sq"] > 0])
        yield Finding(
            "HD401", "fault" if both else "warning", names, 0.0, 0.0, "exactly zero gradient: it cannot learn"
        )


def explains(net: Net, zero: Row, stuck: Row) -> bool:
    """Whether the zero weight lies behind the stuck parameter, or beside it in the same module."""
    if set(zero["owners"]) & set(stuck["owners"]):
        return True
    place = max((net.order.get(o, -1) for o in zero["owners"]), default=-1)
    own = min((net.order.get(o, len(net.order)) for o in stuck["owners"]), default=0)
    return place >= own


def unused(net: Net) -> Iterator[Finding]:
    """HD403: a parameter that the loss does not depend on."""
    names = [p for p in net.parameters if p["trainable"] and p["gradient"] == "none"]
    learning = {p["sibling"] for p in net.parameters if p["trainable"]}
    frozen = [
        p["name"] for p in net.parameters if not p["trainable"] and p["sibling"] in learning and len(p["shape"]) > 1
    ]
    if frozen:
        yield Finding("HD403", "note", tuple(frozen), float(len(frozen)), 0.0, "frozen, unlike its siblings")
    if not names:
        return
    used = {p["sibling"] for p in net.parameters if p["gradient"] != "none"}
    alike = [p["name"] for p in names if p["sibling"] in used and len(p["shape"]) > 1]
    severity = "warning" if alike else "note"
    rest = [p["name"] for p in names if p["name"] not in alike]
    yield Finding("HD403", severity, tuple(alike + rest), float(len(names)), 0.0, "no gradient reaches these")


RULES = (
    initial_loss, raw_inputs, depth_scale, residual_growth, decay_behind_fresh_norm, saturation, narrow_phase,
    swallowed, drowning_branches, backward_scheme, outliers, siblings, parts, wrong_formula, biases, scheme, gains,
    identical_units, within_block, dead, drowned, zero_gradients, unused,
)  # fmt: skip


def suppressed(found: list[Finding]) -> list[Finding]:
    """Leave out what a cause already explains, and lend the cause the gravity of its effect."""
    rules = {f.rule for f in found}
    effects = {"HD101", "HD102", "HD103", "HD104", "HD110", "HD401", "HD108", "HD209", "HD111"}
    causes = [
        r
        for r in (
            "HD105",
            "HD402",
            "HD201",
            "HD202",
            "HD203",
            "HD204",
            "HD205",
            "HD106",
            "HD206",
            "HD207",
            "HD208",
            "HD109",
        )
        if r in rules
    ]
    strong = [f for f in found if f.rule in causes and f.severity != "note"]
    if "HD202" in rules:
        found = [f for f in found if f.rule != "HD206"]
        strong = [f for f in strong if f.rule != "HD206"]
    if strong:
        worst = min([f.severity for f in found if f.rule in effects or f in strong], key=GRAVITY.__getitem__)
        kept = [f for f in found if f.rule not in effects]
        top = min(strong, key=lambda f: (GRAVITY[f.severity], CAUSES.index(f.rule)))
        return [replace(f, severity=worst) if f is top else f for f in kept]
    if "HD103" in rules or "HD104" in rules:
        grave = [f for f in found if f.rule in ("HD101", "HD102", "HD110")]
        kept = [f for f in found if f.rule not in ("HD101", "HD102", "HD110", "HD206")]
        if grave:
            worst = min([f.severity for f in grave], key=GRAVITY.__getitem__)
            kept = [
                replace(f, severity=min(worst, f.severity, key=GRAVITY.__getitem__))
                if f.rule in ("HD103", "HD104")
                else f
                for f in kept
            ]
        return kept
    return found


# -- score -------------------------------------------------------------------------------------------------------------


def hit(names: tuple[str, ...], patterns: list[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


def gravest(found: list[Finding]) -> list[str]:
    """Blocks in the order in which a reader meets them."""
    return list(dict.fromkeys(name for f in found for name in f.blocks))


def score(rows: list[Row]) -> None:
    recall: dict[str, list[tuple[bool, bool, str]]] = defaultdict(list)
    alarms: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        found = findings(row)
        if row["variant"] == "before":
            names = gravest(found)
            label = "+".join(f"{f.rule}{f.severity[0]}" for f in found[:3])
            recall[f"{row['kind']}:{row['name']}"].append(
                (hit(tuple(names[:1]), row["guilty"]), hit(tuple(names[:3]), row["guilty"]), label)
            )
        else:
            level = found[0].severity if found else "none"
            label = "+".join(f"{f.rule}{f.severity[0]}" for f in found)
            alarms[f"{row['kind']}:{row['name']}:{row['variant']}"][f"{level} {label}"] += 1
    for name, results in recall.items():
        n = len(results)
        labels = Counter(r[2] for r in results)
        print(
            f"{name:32} recall@1 {sum(r[0] for r in results)}/{n} recall@3 {sum(r[1] for r in results)}/{n} ",
            dict(labels),
        )
    for kind in ("cases", "extra", "unseen", "variants"):
        flat = [r for name, results in recall.items() if name.startswith(kind) for r in results]
        if flat:
            first, third = (sum(r[k] for r in flat) / len(flat) for k in (0, 1))
            print(f"{kind}: recall@1 {first:.3f} recall@3 {third:.3f}")
    total: Counter[str] = Counter()
    for name, counter in alarms.items():
        for key, count in counter.items():
            total[key.split()[0]] += count
        if any(not key.startswith("none") for key in counter):
            print(f"{name:50} {dict(counter)}")
    print("healthy:", dict(total))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--show", default="")
    options = parser.parse_args()
    rows = [json.loads(line) for file in options.files for line in file.open() if line.endswith("}\n")]
    if options.show:
        for row in rows:
            if options.show in row["name"] and row["seed"] == 0:
                print("==", row["name"], row["variant"], row["width"], "guilty", row["guilty"])
                for f in findings(row):
                    print(
                        f"   {f.rule} {f.severity:8} {f.number:9.3g} > {f.threshold:.3g} {f.message}:",
                        *f.blocks[:4],
                        f"({len(f.blocks)})",
                    )
        return
    score(rows)


if __name__ == "__main__":
    main()
