"""All rules: what each measures and why, as `rules.md` has it, and how findings are ordered."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from textwrap import fill

from hessdiag.diagnosis import signal_rules, weight_rules
from hessdiag.diagnosis.network_view import CRITICAL, Net, log_ratio
from hessdiag.results.findings import GRAVITY, Finding
from hessdiag.results.signals import Signals

WIDTH = 100
PARTS = {  # of a section of `rules.md`, by what `hessdiag explain` calls them
    "Measures": "What it measures",
    "Threshold": "Threshold",
    "A real case": "A real case",
    "Exceptions": "Exceptions",
    "What to do": "What to do",
    "Before and after the repair": "Before and after the repair",
}


@dataclass(frozen=True)
class Entry:
    """One rule, as `hessdiag explain` prints it.

    Attributes:
        title: in a few words.
        parts: by heading: the number and who is named; where its threshold stands and why, with the healthy range; a
            public bug that it finds, if any; what looks like it on purpose, and what the rule
            cannot see; what to do; and cases of docs/gallery.md, if any.
    """

    title: str
    parts: Mapping[str, str]


def _read() -> dict[str, Entry]:
    """The sections of `rules.md`: a title in bold, then paragraphs that begin with a heading in italics."""
    page = resources.files(__package__).joinpath("rules.md").read_text(encoding="utf-8")
    entries = {}
    for section in re.split(r"^### ", re.sub(r"^## .*\n", "", page, flags=re.MULTILINE), flags=re.MULTILINE)[1:]:
        rule, title, *paragraphs = (" ".join(text.split()) for text in section.strip().split("\n\n"))
        told = dict(pair for text in paragraphs for pair in re.findall(r"^\*(.+?):\* (.*)", text))
        entries[rule] = Entry(title.strip("*").rstrip("."), {PARTS[key]: _plain(text) for key, text in told.items()})
    return entries


def _plain(text: str) -> str:
    """Take out what is Markdown's: links become addresses, and escaped characters themselves."""
    text = re.sub(r"\[[^\]]*\]\((gallery[^)]*)\)", r"docs/\1", text)
    text = re.sub(r"\[[^\]]*\]\((https[^)]*)\)", r"\1", text)
    return re.sub(r"\\([*<>.+-])", r"\1", text)


CATALOGUE: Mapping[str, Entry] = _read()


def explain(rule: str, *, width: int = WIDTH) -> str:
    """Return one rule as text, in lines of at most `width`."""
    entry = CATALOGUE[rule]
    lines = [fill(f"{rule}: {entry.title}", width, subsequent_indent="  ", break_on_hyphens=False), ""]
    for heading, text in entry.parts.items():
        lines += [heading, fill(text, width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False), ""]
    return "\n".join(lines).rstrip()


def overview() -> str:
    """List all rules, one a line."""
    return "\n".join(f"{rule}  {entry.title}" for rule, entry in CATALOGUE.items())


# At equal gravity the likelier cause comes first.
ORDER = (
    "HD113", "HD404", "HD105", "HD402", "HD114", "HD120", "HD116", "HD405", "HD208", "HD401", "HD201", "HD203", "HD202",
    "HD205", "HD204", "HD207", "HD206", "HD106", "HD115", "HD107", "HD109", "HD104", "HD110", "HD112", "HD103", "HD102",
    "HD101", "HD118", "HD117", "HD121", "HD403",
)  # fmt: skip
CAUSES = {
    "HD113", "HD114", "HD404", "HD105", "HD402", "HD201", "HD202", "HD203", "HD204", "HD205", "HD106", "HD206", "HD207",
    "HD208", "HD109", "HD115",
}  # fmt: skip
EFFECTS = {"HD101", "HD102", "HD103", "HD104", "HD106", "HD110", "HD112", "HD116", "HD401"}
DEPTH = {"HD103", "HD104"}  # themselves the cause of these:
OF_DEPTH = {"HD101", "HD102", "HD110"}
# What cannot learn, or fall, whatever the loss is.
NOT_LEARNING = {"HD113", "HD121", "HD116", "HD401", "HD403", "HD404", "HD405"}
RULES = (*signal_rules.RULES, *weight_rules.RULES)


def find(signals: Signals) -> tuple[Finding, ...]:
    """Apply every rule, and order what it found, gravest first."""
    net = Net(signals)
    found = [finding for rule in RULES if (finding := rule(net))]
    if net.learnt:  # whatever it looks like, it got there
        found = [f if f.rule in NOT_LEARNING else replace(f, severity="note") for f in found]
    kept = sorted(without_effects(net, found), key=_place)
    return tuple(replace(f, advice="") if f.severity == "note" else f for f in kept)  # a note is no cause to act


def _gravity(finding: Finding) -> int:
    return GRAVITY.index(finding.severity)


def _place(finding: Finding) -> tuple[int, int]:
    return _gravity(finding), ORDER.index(finding.rule)


def without_effects(net: Net, found: Sequence[Finding]) -> list[Finding]:
    """Leave out each effect whose size a cause accounts for, and lend the cause its gravity."""
    rules = {f.rule for f in found}
    if "HD202" in rules:
        found = [f for f in found if f.rule != "HD206"]
    strong = sorted((f for f in found if f.rule in CAUSES and f.severity != "note"), key=_place)
    if not strong and rules & DEPTH:
        found = [f for f in found if f.rule != "HD206"]
    because: dict[str, Finding] = {}
    for effect in (f for f in found if f.rule in EFFECTS):
        depth = [f for f in found if f.rule in DEPTH and effect.rule in OF_DEPTH]
        if causes := [cause for cause in (*strong, *depth) if explains(net, cause, effect)]:
            because[effect.rule] = causes[0]
    kept = []
    for finding in (f for f in found if f.rule not in because):
        lent = [f for f in found if f.rule in because and _root(f, because) is finding]
        kept.append(replace(finding, severity=min([finding, *lent], key=_gravity).severity))
    return kept


def _root(effect: Finding, because: Mapping[str, Finding]) -> Finding:
    return _root(because[effect.rule], because) if effect.rule in because else effect


def explains(net: Net, cause: Finding, effect: Finding) -> bool:
    """Whether the layers that a cause names make at least half of an effect, in logarithms of what was measured."""
    if cause.rule == "HD402" and effect.rule == "HD401":  # nothing gets through it: neither forward nor back
        place = min(net.order[o] for name in cause.blocks for o in net.named[name].owners)
        behind = [o for name in effect.blocks for o in net.named[name].owners if net.order.get(o, -1) > place]
        return all(not net.layers[o].x_sq > 0 or net.layers[o].x_varies == 0 for o in behind)
    if cause.rule == "HD402" and effect.rule == "HD102" and effect.value == 0:
        return True
    if effect.rule == "HD116":
        return cause.rule == "HD114"
    if effect.rule == "HD106":  # what it reads was large before
        read = [net.layers[o].x_sq for name in effect.blocks[:1] for o in net.named[name].owners if o in net.layers]
        return cause.rule == "HD115" and max(read, default=0.0) > signal_rules.LARGE
    parts = _parts(net, effect)
    if cause.rule == "HD115" and effect.rule in SIZES:
        return effect.rule == "HD101" or math.log(cause.value) > math.log(effect.value) / 2
    if cause.rule == "HD113" and effect.rule == "HD101":
        return cause.value >= signal_rules.OUT_OF_REACH_FAULT
    if cause.rule == "HD104" and effect.rule == "HD101":
        return math.log(cause.value) > sum(parts.values()) / 2
    if any(part > USUAL for part in parts.values()):
        parts = {name: part for name, part in parts.items() if part > USUAL}
    named, total = sum(parts.get(name, 0.0) for name in cause.blocks), sum(parts.values())
    return named > 0 and (named >= total / 2 or effect.rule not in SIZES)


USUAL = math.log(2)  # 98 % of 1,948 hidden layers of healthy and repaired networks enlarge E[x²] by less
SIZES = {"HD101", "HD102", "HD103", "HD104"}  # effects with parts that add up; of others it is enough to share a layer


def _parts(net: Net, effect: Finding) -> dict[str, float]:
    """What each parameter contributes to an effect: logarithms of factors where it has a size."""
    if effect.rule == "HD101":
        return {name: max(0.0, min(log_ratio(each, 1.0), 700.0)) for name, each in signal_rules.excesses(net).items()}
    if effect.rule not in SIZES:
        return dict.fromkeys(effect.blocks, 1.0)
    parts = {}
    for path, layer in net.layers.items():
        p, (read, wrote) = net.weight_of.get(path) or net.gain_of(path), layer.varying
        if p and read > 0 == wrote and effect.rule == "HD102":
            parts[p.name] = -700.0
        elif p and read > 0 and wrote > 0:  # a normalisation writes 1 whatever it reads
            need = CRITICAL.get(next((label for label in layer.labels if label in CRITICAL), ""), 1.0)
            parts[p.name] = log_ratio(wrote, 1.0 if layer.normalises else need * read)
    grows = effect.rule == "HD104" or (effect.rule == "HD103" and sum(parts.values()) > 0)
    sign = 1 if grows else -1
    return {name: max(0.0, sign * each) for name, each in parts.items()}
