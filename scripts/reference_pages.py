"""Write docs/rules.md, a copy of what `hessdiag explain` reads: python scripts/reference_pages.py."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "rules.md"


def rules_page() -> str:
    """The page on the rules."""
    return (ROOT / "hessdiag" / "diagnosis" / "rules.md").read_text(encoding="utf-8")


if __name__ == "__main__":
    PAGE.write_text(rules_page(), encoding="utf-8")
