"""The page on strangers' networks is what its script writes of the numbers that are kept."""

import json

from strangers import STRANGERS
from strangers.gallery import enter
from strangers.page import PAGE, RESULTS, page


def test_the_page_is_of_the_numbers_kept() -> None:
    enter()
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    scored = {STRANGERS[name].part for name in found["first"]}  # a set is scored as a whole, or not yet
    assert list(found["now"]) == list(found["first"]) == [n for n, case in STRANGERS.items() if case.part in scored]
    assert PAGE.read_text(encoding="utf-8") == page(found)
