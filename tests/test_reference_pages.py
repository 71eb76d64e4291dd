"""Pages that are written from the code are those of the code, and docs/file-formats.md names every schema."""

import re

import pytest
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


@pytest.mark.parametrize("name", reference_pages.PAGES)
def test_the_page_is_that_of_the_code(name: str) -> None:
    written = (ROOT / name).read_text(encoding="utf-8")
    assert written == reference_pages.PAGES[name](), "run python scripts/reference_pages.py"


def test_every_rule_has_a_section_and_every_schema_is_listed_with_its_class() -> None:
    assert re.findall(r"^### (.+)$", reference_pages.rules_page(), re.MULTILINE) == list(CATALOGUE)
    page = (ROOT / "docs" / "file-formats.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(hessdiag\.[\w-]+/\d+)` \| `(\w+)` \|", page, re.MULTILINE)
    assert listed == [(record.schema, record.__name__) for record in RECORDS]
