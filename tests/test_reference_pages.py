"""docs/rules.md is the file that `hessdiag explain` reads, and docs/file-formats.md names every schema."""

from __future__ import annotations

import re

import reference_pages

from hessdiag.diagnosis.prescribe import Prescription
from hessdiag.diagnosis.rules import CATALOGUE
from hessdiag.results.comparison import Comparison
from hessdiag.results.init_check import InitCheck
from hessdiag.results.learning_rates import LearningRates
from hessdiag.results.prediction import Prediction
from hessdiag.results.report import Report
from hessdiag.results.setups import Setups, Study
from hessdiag.results.sharpness import Sharpness
from tests.pages import ROOT

RECORDS = (Report, Comparison, Prediction, Prescription, InitCheck, LearningRates, Sharpness, Setups, Study)


def test_the_page_is_that_of_the_code_and_has_a_section_for_every_rule() -> None:
    page = reference_pages.rules_page()
    assert reference_pages.PAGE.read_text(encoding="utf-8") == page, "run python scripts/reference_pages.py"
    assert re.findall(r"^### (.+)$", page, re.MULTILINE) == list(CATALOGUE)


def test_every_schema_is_listed_with_its_class() -> None:
    page = (ROOT / "docs" / "file-formats.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(hessdiag\.[\w-]+/\d+)` \| `(\w+)` \|", page, re.MULTILINE)
    assert listed == [(record.schema, record.__name__) for record in RECORDS]
