"""Pages that are written from the code are those of the code, and docs/file-formats.md names every schema."""

import re

import json_schemas
import pytest
import reference_pages

from hessdiag.diagnosis.rules import CATALOGUE
from tests.pages import ROOT


@pytest.mark.parametrize("name", reference_pages.PAGES)
def test_the_page_is_that_of_the_code(name: str) -> None:
    written = (ROOT / name).read_text(encoding="utf-8")
    assert written == reference_pages.PAGES[name](), "run python scripts/reference_pages.py"


def test_every_rule_has_a_section_and_every_schema_is_listed_with_its_class() -> None:
    assert re.findall(r"^### (.+)$", reference_pages.rules_page(), re.MULTILINE) == list(CATALOGUE)
    page = (ROOT / "docs" / "file-formats.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[`(hessdiag\.[\w-]+/\d+)`\]\((.+?)\) \| `(\w+)` \|", page, re.MULTILINE)
    path = json_schemas.path
    assert [(schema, f"docs/{file}", name) for schema, file, name in listed] == [
        (record.schema, path(record), record.__name__) for record in json_schemas.RECORDS
    ]
