"""The page on strangers' networks, of the numbers that are kept of them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, get_args

from strangers.case import STRANGERS
from strangers.split import SOURCES, Blind

ROOT = Path(__file__).resolve().parents[2]
RESULTS, PAGE = ROOT / "figures" / "strangers.json", ROOT / "docs" / "strangers.md"
PRACTICE = ROOT / "figures" / "practice.json"
RATES, COSTS, AFTER, PAIRS, REPAIRS, FITS = (
    ROOT / "figures" / f"strangers_{name}.json" for name in ("rates", "costs", "trained", "pairs", "repairs", "fits")
)
BLIND = ("apart", *get_args(Blind))  # written without sight of the rules
REPORTS = ("blind13", "blind14", "blind15", "blind16")
COMMITS = ("blind17", "blind18", "blind19", "blind20")
LATER = BLIND[BLIND.index("blind21") :]
SETS = {part: (part,) for part in ("writing", "held out", *BLIND)} | {
    "faults of new kinds": tuple(part for part in BLIND if part not in (*REPORTS, *COMMITS, *LATER)),
    "samples of reports": REPORTS, "samples of commits": COMMITS, "later reports": LATER,
}  # fmt: skip
GRAVE = ("fault", "warning")
NEAR = 4
LOUD = 0.1
MUTE = 0.5  # of the blind sets'
ASKED = 40  # training steps, in the median


def grave(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Its findings but for notes."""
    return [each for each in found.get("findings", []) if each["severity"] in GRAVE]


def told(found: Mapping[str, Any]) -> str:
    """The verdict with the rules behind it."""
    rules = ", ".join(dict.fromkeys(f"{each['rule']} {each['severity']}" for each in grave(found)))
    if found.get("verdict") == "undecided" and found.get("missing"):
        return f"undecided: {found['missing']}"
    return found.get("verdict", "–") + (f" ({rules})" if rules else "")


def measured(rows: Mapping[str, Mapping[str, Any]]) -> tuple[int, int, int]:
    """How many healthy networks are measured, and how many of these get a warning or a fault, and a fault."""
    healthy = [each["healthy"] for each in rows.values() if each["healthy"]["verdict"] not in ("refused", "crashed")]
    alarmed = [each for each in healthy if grave(each)]
    faulty = sum(any(finding["severity"] == "fault" for finding in each["findings"]) for each in alarmed)
    return len(healthy), len(alarmed), faulty


def counts(now: Mapping[str, Mapping[str, Any]], first: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Sum up a table: healthy networks, and the faults of each part; apart and blind as first scored."""
    steps = {name: each["healthy"]["steps"] for name, each in now.items() if "steps" in each["healthy"]}
    public = [steps[name] for name in SOURCES if name in steps]
    known = {name: each for name, each in now.items() if STRANGERS[name].part not in BLIND}
    healthy, alarmed, faulty = measured(known)
    lines = [
        f"- {healthy} healthy networks measured, {alarmed} with a warning or fault, {faulty} with a fault",
        f"- median time {median(public):.0f} training steps for the {len(public)} after public architectures,"
        f" {median(steps.values()):.0f} for {len(steps)}",
    ]
    for part, parts in SETS.items():
        table_ = first if parts[0] in BLIND else now
        rows = {name: each for name, each in table_.items() if STRANGERS[name].part in parts}
        if not rows:  # not scored yet
            continue
        told_ = {name: each["named"] for name, each in rows.items() if "named" in each}
        loud, others = ([name for name in told_ if is_loud(name) is of] for of in (True, False))
        ahead, other = ([told_[name] for name in names] for names in (loud, others))
        silent = sum(rows[name]["planted"]["verdict"] == "no-problem" for name in loud)
        within = ahead.count("first") + ahead.count("three")
        if parts[0] in BLIND:  # shorter, as there are many
            healthy, alarmed, faulty = measured(rows)
            line = f"- {part}: {len(loud)} loud: {ahead.count('first')} first, {within} near, {silent} passed;"
            line += f" {healthy} healthy: {alarmed} alarmed, {faulty} faulty"
        else:
            line = f"- {part}: of {len(loud)} loud faults {ahead.count('first')} named first, {within} within three,"
            line += f" {silent} passed; of {len(others)} others {other.count('first')} named first"
        lines.append(line)
    return [*lines, *practised(), *repaired(), *trained(), *repeated(), *fitted(first)]


PRACTISED = {  # folders
    "from memory": {*"efux"},
    "after reports": {*"abcdghjlmnopqrstvwyz", "ab", "ac", "ad", "ae", "af", "ag", "ah", "ai", "aj", "ak", "al", "am"},
    "slips of one line": {*"ik"},
}


def practised() -> Iterator[str]:
    """Lines on the networks of `practice.py`, as their authors judged what was said of them at first."""
    for what, folders in PRACTISED.items():
        rows = [each for name, each in kept(PRACTICE).items() if name.split()[-1] in folders]
        loud, healthy = [each for each in rows if each.get("loud")], [each for each in rows if "healthy" in each]
        named = [each["named"] for each in loud]
        silent = [each for each in loud if each["named"] == "no" and not each["planted"]["first"]]
        alarmed = [told_ for each in healthy if (told_ := each["healthy"]["first"]) and "refused" not in told_[0]]
        faulty = sum(" fault: " in told_[0] for told_ in alarmed)
        yield (
            f"- {what}: {len(loud)} loud: {named.count('first')} first, {len(named) - named.count('no')} near,"
            f" {len(silent)} passed; {len(healthy)} healthy: {len(alarmed)} alarmed, {faulty} faulty"
        )


def repaired() -> Iterator[str]:
    """A line on loud faults whose advice changes weights: which share of the loss that they cost it brings back."""
    rows = kept(REPAIRS)
    shares = []
    for name, each in rows.items():
        healthy, planted = kept(COSTS)[name]["ends"]
        if "end" in each:
            shares.append((planted - each["end"]) / (planted - healthy))
    if shares:
        yield (
            f"- advice on {len(rows)} loud faults: {len(shares)} times a line that changes weights, which\n"
            f"  brings back {100 * median(shares):.0f} % of the loss in the median, at least 80 % in"
            f" {sum(s >= 0.8 for s in shares)} of them"
        )


def trained() -> Iterator[str]:
    """A line on healthy networks that training brought to half of their loss: on the same examples, and on others."""
    learnt = [each for each in kept(AFTER).values() if each["end"] < each["start"] / 2]
    rows = [each[where] for each in learnt for where in ("fitted", "held out")]
    rows = [each for each in rows if "findings" in each]
    faulty = sum(any(each["severity"] == "fault" for each in row["findings"]) for row in rows)
    alarmed = sum(bool(grave(row)) for row in rows)
    if rows:
        yield f"- after training: {len(rows)} reports, {alarmed} with a warning or fault, {faulty} with a fault"


def repeated() -> Iterator[str]:
    """A line on pairs of reports that differ in seed or number of examples."""
    pairs = [
        (each[f"{twin}, as is"], each[f"{twin}, {changed}"])
        for each in kept(PAIRS).values()
        for twin in ("healthy", "planted")
        for changed in ("seed", "quarter")
        if f"{twin}, as is" in each
    ]
    told_ = [pair for pair in pairs if any(pair)]
    same, both = (sum(one == other for one, other in each) for each in (pairs, told_))
    yield (
        f"- another seed, or a quarter of the batch: {same} of {len(pairs)} pairs alike, and"
        f" {both} of {len(told_)} with findings"
    )


def fitted(first: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A line on what `fit=True` adds (HD121), also to loud faults of which nothing was said at first sight."""
    rows = kept(FITS)
    healthy = [each["healthy"] for each in rows.values() if each["healthy"] is not None]
    loud = [name for name, each in rows.items() if each.get("planted") is not None and is_loud(name)]
    passed = [name for name in loud if STRANGERS[name].part in BLIND and first[name]["named"] != "first"]
    stay, others = (sum(rows[name]["planted"] for name in names) for names in (loud, passed))
    if rows:
        yield (
            f"- with `fit=True`: {sum(healthy)} of {len(healthy)} healthy networks do not fit their batch, {stay} of"
            f" {len(loud)} loud\n  faults do not, and {others} of the {len(passed)} that were not named first at"
            " first sight"
        )


@cache
def kept(path: Path) -> dict[str, Any]:
    """What is kept in one of the files, by case."""
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def lost(name: str) -> float:
    """Which share of the healthy twin's progress the fault costs; NaN where it was not trained."""
    run = kept(COSTS).get(name, {})
    if "ends" not in run:
        return math.nan
    (start, own), (healthy, planted) = run["starts"], run["ends"]
    if not math.isfinite(planted):
        return 1.0
    other = not STRANGERS[name].blind and (own > 100 * start or start > 100 * own)  # targets
    scale = own if other else start
    return 1 - (1 - planted / scale) / (1 - healthy / start)


def is_loud(name: str) -> bool:
    """Whether a fault costs at least a tenth of the progress, or half of it in the blind sets."""
    return lost(name) >= (MUTE if STRANGERS[name].blind else LOUD)


def table(now: Mapping[str, Any], first: Mapping[str, Any]) -> Iterator[str]:
    """A line a case: its half, what is said of the healthy one, its fault, what that costs, and whether it is named."""
    yield "| network | source | half | healthy | steps | fault | lost | at first | today |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name, each in now.items():
        case = STRANGERS[name]
        cost = lost(name)
        cells = [name, case.source, case.part, told(each["healthy"]), str(each["healthy"].get("steps", "–"))]
        cells += [case.fault or "–"]
        cells += ["–" if math.isnan(cost) else f"{100 * min(max(cost, 0.0), 1.0):.0f} %"]
        cells += [first.get(name, {}).get("named", "–"), each.get("named", "–")]
        yield "| " + " | ".join(cells) + " |"


def rates(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Predicted learning rates beside the best ones."""
    ratios = [max(row["predicted"] / row["best"], row["best"] / row["predicted"]) for row in rows]
    yield f"{sum(ratio <= NEAR for ratio in ratios)} of {len(rows)} are within a factor {NEAR} of the best."
    yield ""
    yield "| network | optimizer | predicted | best | good | off by | steps |"
    yield "|---|---|---|---|---|---|---|"
    for row, ratio in zip(rows, ratios, strict=True):
        numbers = [f"{row['predicted']:.2g}", f"{row['best']:.2g}", f"{row['low']:.2g} to {row['high']:.2g}"]
        cells = [row["network"], row["optimizer"], *numbers, f"×{ratio:.1f}", str(len(row["along"]))]
        yield "| " + " | ".join(cells) + " |"


def page(found: Mapping[str, Any]) -> str:
    """The scores, the table, and the learning rates."""
    now, first = found["now"], found["first"]
    parts = [
        "# Strangers' code",
        "",
        "Networks after public architectures with their authors' conventions, faults out of public reports,",
        "and the gallery: each healthy and, mostly, once more with one fault. Each is measured with one",
        "call of `hessdiag.diagnose(…, quick=True)`, just built, in training mode. `scripts/strangers.py`",
        "scores the rules on all of them and writes this page; the networks are in `scripts/strangers/` and",
        "`scripts/strangers/gallery/`. *Steps* is the time of a call with curvature, in training steps.",
        "",
        "Rules may be written on one *half* of the sources; the other is *held out*, only scored. The hash",
        "of a source's name says which it belongs to (`scripts/strangers/split.py`). The gallery is of the",
        "first half. Cases *apart*, whose source is an address, were written on November 23 without sight of",
        "the rules; the counts below take them as they were first scored. So were the *blind* ones, on the",
        "evening of that day, and then those of *blind3*. Since then rules were mended on all of these, so",
        "that what is said *today* is no evidence of what is new. Those of *blind4* came the day after, and",
        "those of *blind5* to *blind12* on November 25, each asked for faults of new kinds. Those of",
        "*blind13* to *blind16*, of November 26, are samples: every report that a fixed list of searches",
        "brought up and that could be rebuilt, and repositories drawn by chance. Those of *blind17* to",
        "*blind20* are of commits that mend a model, in the histories of fixed lists of repositories: what",
        f"their authors found, mostly without a symptom to report. *{LATER[0]}* to *{LATER[-1]}* are reports again,",
        "of other searches.",
        "",
        "*Lost* is the share of the healthy twin's progress that the fault costs in 60 steps of Adam on the",
        "batch, each at the better of the rates 0.001 and 0.01; from 10 % on it is loud (blind cases: 200",
        "steps, mostly on new examples, and 50 %). *First* says that",
        "the first layer of all warnings and faults is guilty, *three* that one of the first three is; *at",
        "first*, as each case was first measured (until November 23 among the first three of the first",
        "finding).",
        "",
        "*After training*: healthy networks that 200 steps of Adam at 0.001 on their batch have brought to",
        "half of their loss, measured on that batch and on other examples.",
        "",
        *counts(now, first),
        "",
        *table(now, first),
        "",
        "## Learning rates",
        "",
        "Six of the networks were trained on CIFAR-10 for 200 steps at rates that are powers of two, in",
        "batches of 32 (`scripts/strangers_rates.py`). *Best* is the rate whose loss is lowest over the last",
        "25 steps, *good* are those that lose at most 5 % of its gain, and *predicted* is what",
        "`hessdiag.learning_rates` says before training, along as many virtual *steps*.",
        "",
        *rates(json.loads(RATES.read_text(encoding="utf-8"))["rows"]),
    ]
    return "\n".join(parts) + "\n"
