"""docs/rules.md and docs/file-formats.md are those that `python scripts/reference_pages.py` writes from the code."""

from __future__ import annotations

import re

import pytest
import reference_pages
import torch
from torch import nn

import hessdiag
from hessdiag.diagnosis.rules import CATALOGUE
from hessdiag.results.init_check import InitCheck
from hessdiag.results.records import Record
from tests.pages import ROOT

RECORDS = [record for records in reference_pages.RECORDS.values() for record in records]


@pytest.mark.parametrize("name", reference_pages.PAGES)
def test_the_page_is_that_of_the_code(name: str) -> None:
    written = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert written == reference_pages.PAGES[name](), "run python scripts/reference_pages.py"


def test_every_rule_has_a_section_under_its_id() -> None:
    assert re.findall(r"^### (.+)$", reference_pages.rules_page(), re.MULTILINE) == list(CATALOGUE)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_every_key_of_a_record_is_explained(record: type[Record]) -> None:
    told = {key: meaning for keys, _, meaning in reference_pages.rows(record) for key in keys}
    assert sorted(told) == sorted(reference_pages.keys_of(record))
    assert [key for key, meaning in told.items() if not meaning] == []


def test_keys_are_those_of_a_file() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    record = hessdiag.diagnose(model, torch.randn(8, 3)).to_dict()
    assert record.keys() - {"schema"} == set(reference_pages.keys_of(hessdiag.Report))
    check = hessdiag.check_init("fan-in", model="mlp:3-4-2", against=[], setups=2).to_dict()
    assert check.keys() - {"schema"} == set(reference_pages.keys_of(InitCheck))


def test_all_schemas_of_results_that_the_reference_lists_are_explained() -> None:
    """But for those of figures, which `hessdiag reproduce` writes for itself."""
    reference = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(hessdiag\.[\w-]+/\d+)` \| (.+) \|$", reference, re.MULTILINE)
    of_results = {schema for schema, by in listed if "to_json" in by}
    assert of_results == set(reference_pages.RECORDS)
