"""Write into docs/gallery.md what hessdiag says to the cases, and how they trained (from figures/gallery.json).

python scripts/gallery_page.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from tests.gallery import CASES  # noqa: E402
from tests.gallery.page import PAGE, TRAINED, replaced, summary, told_of_training  # noqa: E402
from tests.gallery.said import said  # noqa: E402


def main() -> None:
    runs: list[dict[str, Any]] = json.loads(TRAINED.read_text(encoding="utf-8"))["runs"]
    text = PAGE.read_text(encoding="utf-8")
    for case in CASES:
        for variant in ("before", "after"):
            text = replaced(text, f"{case.name}, {variant}", said(case, variant))  # type: ignore[arg-type]
        text = replaced(text, f"{case.name}, trained", told_of_training(runs, case.name))
    text = replaced(text, "summary", summary(runs))
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
