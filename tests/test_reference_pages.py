"""Pages that scripts write are of the code and of the numbers kept, and docs/file-formats.md names every schema."""

import json
import re

import json_schemas
import pytest
import reference_pages
from strangers import STRANGERS
from strangers.gallery import enter
from strangers.page import PAGE, RESULTS, page

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


def test_the_page_on_strangers_networks_is_of_the_numbers_kept() -> None:
    enter()
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    scored = {STRANGERS[name].part for name in found["first"]}  # a set is scored as a whole, or not yet
    assert list(found["now"]) == list(found["first"]) == [n for n, case in STRANGERS.items() if case.part in scored]
    assert PAGE.read_text(encoding="utf-8") == page(found)
