"""Markdown pages as tests read them: fenced blocks, commands with what they print, and whether two outputs agree."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
FENCE = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]+?) -->\n+)?```(?P<language>[\w{}-]*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?")
ELLIPSES = ("…", "...")
RELATIVE = 0.01  # by which printed numbers may differ between processors, or one unit of their last digit


@dataclass(frozen=True)
class Fence:
    """A fenced block of a page."""

    page: str
    language: str  # behind the opening fence, such as console, python or text
    text: str
    line: int  # number of the opening fence
    reason: str = ""  # why the block is not run; empty if it is
    follows: bool = False  # nothing stands between the block before it and this one

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass
class Command:
    """A command after `$ ` and the lines that it is said to print."""

    text: str
    output: list[str] = field(default_factory=list)


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def documents() -> list[str]:
    return ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]


def fences(page: str) -> Iterator[Fence]:
    text, end = read(page), 0
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start("language")) + 1
        follows = end > 0 and not text[end : match.start()].strip()
        yield Fence(page, match["language"], match["text"], line, match["reason"] or "", follows)
        end = match.end()


def prose(page: str) -> str:
    return FENCE.sub("", read(page))


def commands(text: str) -> list[Command]:
    """Split a console block; a command may go on behind a backslash.

    >>> commands("$ hessdiag diagnose \\\\\\n    lenet\\nlenet, as built\\n")
    [Command(text='hessdiag diagnose lenet', output=['lenet, as built'])]
    """
    found: list[Command] = []
    for line in re.sub(r"\s*\\\n\s*", " ", text).splitlines():
        if line.startswith("$ "):
            found.append(Command(line[2:]))
        elif found:
            found[-1].output.append(line)
        elif line.strip():
            raise ValueError(f"a console block starts with a command, not with {line!r}")
    return found


def difference(expected: Sequence[str], actual: Sequence[str]) -> str:
    """Say where an output is not what a page prints; empty if they agree.

    A line `…` stands for any number of lines, `…` in a line for any text, and numbers may differ by rounding.

    >>> difference(["a  1.00", "…", "end"], ["a 1.001", "b", "c", "end"])
    ''
    >>> difference(["a 1.10"], ["a 1.20"])
    "printed 'a 1.20', the page says 'a 1.10'"
    """
    expected, actual = _without_blank_ends(expected), _without_blank_ends(actual)
    cuts = [i for i, line in enumerate(expected) if line.strip() in ELLIPSES]
    starts, ends = [0, *(cut + 1 for cut in cuts)], [*cuts, len(expected)]
    position = 0
    for chunk, (start, end) in enumerate(zip(starts, ends, strict=True)):
        wanted = expected[start:end]
        first = position if chunk == 0 else _find(wanted, actual, position, at_end=chunk == len(cuts))
        problem = _first_difference(wanted, actual[first : first + len(wanted)])
        if problem:
            return problem
        position = first + len(wanted)
    return "" if cuts or position >= len(actual) else f"printed {actual[position]!r}, the page says nothing more"


def _find(wanted: Sequence[str], actual: Sequence[str], position: int, *, at_end: bool) -> int:
    last = max(position, len(actual) - len(wanted))
    if at_end:
        return last
    places = range(position, last + 1)
    return next((i for i in places if not _first_difference(wanted, actual[i : i + len(wanted)])), position)


def _first_difference(wanted: Sequence[str], found: Sequence[str]) -> str:
    for number, line in enumerate(wanted):
        if number >= len(found):
            return f"printed nothing more, the page says {line!r}"
        if not same_line(line, found[number]):
            return f"printed {found[number]!r}, the page says {line!r}"
    return ""


def same_line(expected: str, actual: str) -> bool:
    """Compare two lines: texts must be equal up to white space, numbers up to rounding.

    >>> same_line("σ²  0.123  in … s", "σ² 0.1231 in 12 s"), same_line("3 of 5", "4 of 5")
    (True, False)
    """
    expected, actual = " ".join(expected.split()), " ".join(actual.split())
    if "…" in expected and expected != actual:
        texts = [re.escape(part) for part in NUMBER.sub("0", expected).split("…")]
        return re.fullmatch(".*".join(texts), NUMBER.sub("0", actual)) is not None
    if NUMBER.split(expected) != NUMBER.split(actual):
        return False
    pairs = zip(NUMBER.findall(expected), NUMBER.findall(actual), strict=True)
    return all(math.isclose(float(a), float(b), rel_tol=RELATIVE, abs_tol=_last_digit(a)) for a, b in pairs)


def _last_digit(text: str) -> float:
    mantissa, _, exponent = text.partition("e")
    digits = len(mantissa.partition(".")[2])
    return 1.01 * 10 ** (int(exponent or 0) - digits) if digits or exponent else 0.0


def _without_blank_ends(lines: Sequence[str]) -> list[str]:
    text = "\n".join(line.rstrip() for line in lines).strip("\n")
    return text.split("\n") if text else []
