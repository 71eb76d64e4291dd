"""Where healthy networks stand on every number that a rule compares with a threshold.

python scripts/gallery_quantiles.py gallery.jsonl ...
"""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterator
from statistics import median
from typing import Any

from gallery_rules_prototype import Net, critical, laws, layer_scale, log_ratio


def numbers(row: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """The extreme of each quantity in one network."""
    net = Net(row)
    loss = row["loss"]
    yield f"HD101 initial loss / chance ({loss['kind']})", loss["ratio"]
    yield (
        f"HD101 (initial loss - 2 stderr) / chance ({loss['kind']})",
        (loss["initial"] - 2 * loss["stderr"]) / loss["chance"],
    )
    yield "E[y²]", row["output"]["sq"]
    if row["inputs"]:
        yield "HD105 E[x²] of the inputs", row["inputs"]["sq"]
    head = net.layers.get(net.head or "", {})
    if head.get("x_sq") and net.scale(net.head or "") > 0:
        yield "HD102 varying E[x²] at the head (smallest)", head["x_sq"] * head["x_varies"]
    yield from depth(net)
    reads = [
        layer["x_varies"]
        for layer in net.layers.values()
        if layer.get("x_sq") and "Embedding" not in layer["type"] and not math.isnan(layer["x_varies"])
    ]
    if reads:
        yield "HD110 varying share of E[x²] (smallest)", min(reads)
    off = [
        layer["off_share"]
        for path, layer in net.layers.items()
        if {"relu", "relu6"} & set(layer["labels"]) and "add" not in layer["labels"] and layer.get("x_sq")
        and layer["samples"] >= 16 and (path not in net.owner_weight or net.owner_weight[path]["sq"] > 0)
    ]  # fmt: skip
    yield "HD402 share of units that never fire (largest)", max(off, default=0.0)
    saturated = [
        layer["activation"]["saturated"] for layer in net.layers.values() if "saturated" in layer["activation"]
    ]
    if saturated:
        yield "HD106 saturated share (largest)", max(saturated)
    yield from weights(net)
    yield from norms(net)


def depth(net: Net) -> Iterator[tuple[str, float]]:
    if net.normalised or len(net.hidden) < 4 or any(net.scale(path) == 0 for path in net.hidden):
        return
    kind = "residual" if net.residual else "chain"
    kind += ", BatchNorm eval" if net.fixed_norms else ""
    first, last = net.layers[net.hidden[0]], net.layers[net.hidden[-1]]
    yield f"HD103/104 |log10 forward| ({kind})", abs(log_ratio(last["out_sq"], first["out_sq"])) / math.log(10)
    backward = log_ratio(first["gradient_total"], last["gradient_total"])
    yield f"HD103/104 |log10 backward| ({kind})", abs(backward) / math.log(10)
    if not net.residual:
        steps = [math.log10(net.scale(path) / need) for path in net.hidden if (need := critical(net, path))]
        yield f"HD103 |log10 product of n k² E[W²] / critical| ({kind})", abs(sum(steps))


def weights(net: Net) -> Iterator[tuple[str, float]]:
    tails = [p for p in net.matrices if p["zeros"] < 0.2 and p["kurtosis"] == p["kurtosis"] and p["numel"] >= 64]
    yield "HD201 kurtosis (largest)", max((p["kurtosis"] for p in tails), default=3.0)
    yield "HD201 largest entry over rms", max((p["max_rms"] for p in tails), default=3.0)
    groups = defaultdict(list)
    for p in net.matrices:
        if p["sq"] > 0:
            groups[p["sibling"]].append(math.log(p["sq"]))
    away = [abs(v - median(g)) for g in groups.values() if len(g) > 2 for v in g]
    if away:
        yield "HD202 E[W²] against siblings (largest factor)", math.exp(max(away))
    parts = [p["parts"] for p in net.matrices if len(p["parts"]) > 2 and min(p["parts"]) > 0]
    if parts:
        yield "HD203 E[W²] among parts (largest factor)", max(max(v) / min(v) for v in parts)
    found = laws(net)
    if found and found[0] >= 0.4:
        yield "HD206 share that follows the scheme", found[0]
        yield "HD206 above the scheme (largest factor)", math.exp(max(0.0, *found[2].values()))
    hidden = [
        (b["sq"], b["sq"] / net.layers[path]["out_sq"])
        for path in net.hidden
        if (b := net.bias_of(path)) and net.layers[path]["out_sq"] > 0
    ]
    if hidden:
        yield "HD205 E[b²] of hidden layers (largest)", max(b for b, _ in hidden)


def norms(net: Net) -> Iterator[tuple[str, float]]:
    own = {p["name"]: p["sq"] for p in net.parameters}
    active = {path: layer for path, layer in net.layers.items() if layer["active_norm"] and layer.get("x_sq")}
    outs = [layer["out_sq"] / own[f"{path}.weight"] for path, layer in active.items() if own.get(f"{path}.weight")]
    if outs:
        yield "HD109 E[y²] / E[gain²] behind a normalisation (smallest)", min(outs)
    gains = [
        own[f"{path}.weight"]
        for path, layer in net.layers.items()
        if "Norm" in layer["type"] and own.get(f"{path}.weight")
    ]
    if gains:
        yield "HD207 E[gain²] (farthest from 1)", max(gains, key=lambda g: abs(math.log(g)))
    plain = [path for path, layer in active.items() if "self-add" not in layer["labels"]]
    shares = [
        net.layers[path]["out_sq"] * layer_scale(net, path) / net.layers[read[-1]]["x_sq"]
        for path in net.hidden
        if "add" in net.labels(path) and net.scale(path) > 0
        and (read := [norm for norm in plain if net.order[norm] < net.order[path]])
    ]  # fmt: skip
    if len(shares) >= 4:
        yield "HD108 E[branch²] / E[stream²] (largest)", max(shares)


def main() -> None:
    table: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for file in sys.argv[1:]:
        for line in open(file):  # noqa: SIM115
            row = json.loads(line)
            if row["variant"] == "before":
                continue
            for name, value in numbers(row):
                table[name].append((value, row["name"]))
    print("| number | networks | min | 5 % | median | 95 % | max | smallest in | largest in |\n" + 9 * "|---" + "|")
    for name in sorted(table):
        values = sorted(table[name])
        pick = [values[min(len(values) - 1, int(q * len(values)))][0] for q in (0, 0.05, 0.5, 0.95, 1)]
        cells = " | ".join(f"{v:.3g}" for v in pick)
        print(f"| {name} | {len(values)} | {cells} | {values[0][1]} | {values[-1][1]} |")


if __name__ == "__main__":
    main()
