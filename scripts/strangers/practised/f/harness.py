"""Where the networks enter themselves: by name a function of whether the mistake is in, the mistake, and the guilty."""

from collections.abc import Callable
from typing import Any

CASES: dict[str, tuple[Callable[[bool], dict[str, Any]], str | None, str | None]] = {}


def case(bug: str | None = None, guilty: str | None = None) -> Callable[[Any], Any]:
    def enter(make: Any) -> Any:
        CASES[make.__name__] = make, bug, guilty
        return make

    return enter


def main() -> None:
    """Each file was a script of its own once."""
