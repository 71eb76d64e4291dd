"""All rules: what each measures and why, as `rules.md` has it, and how findings are ordered."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from textwrap import fill

from hessdiag.diagnosis import signal_rules, weight_rules
from hessdiag.diagnosis.network_view import Net
from hessdiag.results.findings import GRAVITY, Finding
from hessdiag.results.signals import Signals

WIDTH = 100
PARTS = {"Measures": "What it measures"}  # of a section of `rules.md`, that `hessdiag explain` calls otherwise


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
        told = [pair for text in paragraphs for pair in re.findall(r"^\*(.+?):\* (.*)", text)]
        entries[rule] = Entry(title.strip("*").rstrip("."), {PARTS.get(key, key): _plain(text) for key, text in told})
    return entries


def _plain(text: str) -> str:
    """Take out what is Markdown's: links become addresses, and escaped characters themselves."""
    text = re.sub(r"\[[^\]]*\]\((gallery[^)]*)\)", r"docs/\1", text)
    return re.sub(r"\\([*<>.+-])", r"\1", re.sub(r"\[[^\]]*\]\((https[^)]*)\)", r"\1", text))


CATALOGUE: Mapping[str, Entry] = _read()


def explain(rule: str, *, width: int = WIDTH) -> str:
    """Return one rule as text, in lines of at most `width`."""
    entry = CATALOGUE[rule]
    lines = [fill(f"{rule}: {entry.title}", width, subsequent_indent="  ", break_on_hyphens=False), ""]
    for heading, text in entry.parts.items():
        first, *items = re.split(r" (?=- \*)", text)
        rows = [("  ", first), *(("    ", item.replace("*", "")) for item in items)]
        lines += [heading, *(fill(row, width, initial_indent="  ", subsequent_indent=by, break_on_hyphens=False)
                             for by, row in rows), ""]  # fmt: skip
    return "\n".join(lines).rstrip()


def overview() -> str:
    """List all rules, one a line."""
    return "\n".join(f"{rule}  {entry.title}" for rule, entry in CATALOGUE.items())


# At equal gravity the likelier cause comes first.
ORDER = (
    "HD113", "HD404", "HD105", "HD402", "HD114", "HD122", "HD120", "HD116", "HD405", "HD208", "HD401", "HD201",
    "HD202", "HD205", "HD204", "HD207", "HD206", "HD106", "HD115", "HD107", "HD109", "HD104", "HD110",
    "HD112", "HD103", "HD102", "HD101", "HD117", "HD403", "HD121",
)  # fmt: skip
CAUSES = {
    "HD113", "HD114", "HD404", "HD105", "HD402", "HD201", "HD202", "HD204", "HD205", "HD106", "HD206", "HD207",
    "HD208", "HD109", "HD115", "HD103", "HD104", "HD122", "HD120",
}  # fmt: skip
EFFECTS = {"HD101", "HD102", "HD103", "HD104", "HD106", "HD110", "HD112", "HD116", "HD121", "HD206", "HD401"}
# A cause and what it accounts for whatever layers both name; other effects name one of its layers.
BECAUSE = {
    ("HD402", "HD401"), ("HD402", "HD102"), ("HD114", "HD116"), ("HD115", "HD101"), ("HD113", "HD101"),
    ("HD104", "HD101"), ("HD115", "HD106"), ("HD109", "HD102"), ("HD109", "HD401"), ("HD103", "HD101"),
    ("HD103", "HD102"), ("HD103", "HD110"), ("HD202", "HD110"),
    ("HD122", "HD116"), ("HD122", "HD102"), ("HD120", "HD102"), ("HD105", "HD102"), ("HD105", "HD110"),
}  # fmt: skip
# What cannot learn, or fall, whatever the loss is.
NOT_LEARNING = {"HD113", "HD114", "HD121", "HD122", "HD116", "HD401", "HD403", "HD404", "HD405"}
RULES = (*signal_rules.RULES, *weight_rules.RULES)


def find(signals: Signals) -> tuple[Finding, ...]:
    """Apply every rule, and order what it found, gravest first."""
    net = Net(signals)
    found = [finding for rule in RULES if (finding := rule(net))]
    if net.learnt:  # whatever it looks like, it got there
        found = [f if f.rule in NOT_LEARNING and not signals.solved else replace(f, severity="note") for f in found]
    kept = sorted(without_effects(found), key=_place)
    return tuple(replace(f, advice="") if f.severity == "note" else f for f in kept)  # a note is no cause to act


def _place(finding: Finding) -> tuple[int, int]:
    return GRAVITY.index(finding.severity), ORDER.index(finding.rule)


def without_effects(found: Sequence[Finding]) -> list[Finding]:
    """Leave out each effect that a cause accounts for, and lend the cause its gravity."""
    causes = sorted((f for f in found if f.rule in CAUSES), key=_place)
    kept, lent = list(found), {f: f.severity for f in found}
    for effect in (f for f in found if f.rule in EFFECTS):
        if cause := next((cause for cause in causes if cause in kept and explains(cause, effect)), None):
            kept.remove(effect)
            lent[cause] = min(lent[cause], lent[effect], key=GRAVITY.index)
    return [replace(f, severity=lent[f]) for f in kept]


def explains(cause: Finding, effect: Finding) -> bool:
    """Whether a finding accounts for another one: by their rules, or in a layer that both name; growth for no zeros."""
    pair = (cause.rule, effect.rule)
    shared = {*cause.blocks} & {*effect.blocks} or (effect.rule, effect.severity) == ("HD121", "warning")  # by any
    alike = bool(shared) and cause.rule != "HD120" and pair != ("HD115", "HD401")
    return cause.rule != effect.rule and (pair in BECAUSE or alike)
