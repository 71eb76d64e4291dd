"""All rules: what each measures and why, as `rules.md` has it, and how findings are ordered."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from textwrap import fill

from hessdiag.diagnosis import signal_rules, weight_rules
from hessdiag.diagnosis.network_view import Net
from hessdiag.results.findings import GRAVITY, Finding
from hessdiag.results.report import BlockReport
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
            public bug that it finds, or one that was built for it; what looks like it on purpose, and what the rule
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
    "HD105", "HD402", "HD208", "HD401", "HD201", "HD203", "HD202", "HD205", "HD204", "HD207", "HD206", "HD106",
    "HD107", "HD109", "HD104", "HD110", "HD112", "HD103", "HD102", "HD101", "HD209", "HD108", "HD111", "HD301", "HD403",
)  # fmt: skip
CAUSES = {
    "HD105", "HD402", "HD201", "HD202", "HD203", "HD204", "HD205", "HD106", "HD206", "HD207", "HD208", "HD109",
}  # fmt: skip
EFFECTS = {"HD101", "HD102", "HD103", "HD104", "HD110", "HD112", "HD401", "HD108", "HD209", "HD111"}
DEPTH = {"HD103", "HD104"}  # themselves the cause of these:
OF_DEPTH = {"HD101", "HD102", "HD110"}
RULES = (*signal_rules.RULES, *weight_rules.RULES)


def find(signals: Signals, blocks: Sequence[BlockReport] = ()) -> tuple[Finding, ...]:
    """Apply every rule, and order what it found, gravest first."""
    net = Net(signals, blocks)
    found = [finding for rule in RULES if (finding := rule(net))]
    return tuple(sorted(without_effects(found), key=_place))


def _gravity(finding: Finding) -> int:
    return GRAVITY.index(finding.severity)


def _place(finding: Finding) -> tuple[int, int]:
    return _gravity(finding), ORDER.index(finding.rule)


def without_effects(found: Sequence[Finding]) -> list[Finding]:
    """Leave out what a cause already explains, and lend the cause the gravity of its effect."""
    rules = {f.rule for f in found}
    if "HD202" in rules:
        found = [f for f in found if f.rule != "HD206"]
    strong = [f for f in found if f.rule in CAUSES and f.severity != "note"]
    if strong:
        top = min(strong, key=_place)
        grave = min([f for f in found if f.rule in EFFECTS or f in strong], key=_gravity).severity
        return [replace(f, severity=grave) if f is top else f for f in found if f.rule not in EFFECTS]
    if rules & DEPTH:
        effects = [f for f in found if f.rule in OF_DEPTH]
        kept = [f for f in found if f.rule not in OF_DEPTH | {"HD206"}]
        return [_as_grave(f, effects) if f.rule in DEPTH else f for f in kept]
    return list(found)


def _as_grave(finding: Finding, effects: Sequence[Finding]) -> Finding:
    return replace(finding, severity=min([finding, *effects], key=_gravity).severity)
