"""The pages in a headless browser: sorting, marking, colours and room on a phone. Skipped where there is no browser."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from hessdiag import to_html
from hessdiag.results.report import Report
from tests.browser import Browser, launched
from tests.html.test_report_page import HOSTILE, Page
from tests.synthetic import build_block, build_report

SIGMA = {"b": 20.0, "a": 3.0, "d": 100.0, "c": math.nan}
NAMES = "[...document.querySelectorAll('table.blocks tbody th')].map(cell => cell.textContent)"
STATES = "[...document.querySelectorAll('table.blocks thead th')].map(cell => cell.getAttribute('aria-sort'))"
BUTTON = "document.querySelectorAll('table.blocks thead button')[{}]"
IN_SIGHT = """[...document.querySelectorAll('table.blocks td.sigma')].map(cell => cell.getBoundingClientRect())
    .every(box => box.width > 0 && box.left >= 0 && box.right <= innerWidth)"""


def report() -> Report:
    blocks = [build_block(f"{name}.weight", avg_sq_singular_value=value) for name, value in SIGMA.items()]
    return build_report([*blocks, build_block("a.bias", avg_sq_singular_value=1e-9)])


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with launched(tmp_path_factory.mktemp("profile")) as one:
        yield one


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "report.html"
    to_html(report(), path)
    return path


def stems(browser: Browser) -> list[str]:
    return [name.removesuffix(".weight") for name in browser.evaluate(NAMES)]


def test_a_click_sorts_by_value_down_up_and_back(browser: Browser, page: Path) -> None:
    browser.open(page, width=1280)
    as_measured = [*SIGMA, "a.bias"]
    assert stems(browser) == as_measured
    orders = {"descending": ["d", "b", "a", "a.bias", "c"], "ascending": ["a.bias", "a", "b", "d", "c"]}
    for state, order in orders.items():  # what is undefined stands last either way
        browser.evaluate(BUTTON.format(1) + ".click()")
        assert stems(browser) == order
        assert browser.evaluate(STATES)[:3] == [None, state, None]
    browser.evaluate(BUTTON.format(1) + ".click()")
    assert stems(browser) == as_measured
    assert set(browser.evaluate(STATES)) == {None}


def test_keys_reach_the_titles_and_sort_names(browser: Browser, page: Path) -> None:
    browser.open(page, width=1280)
    browser.evaluate("document.querySelector('.scroll').focus()")
    browser.press("Tab")
    assert browser.evaluate("document.activeElement === " + BUTTON.format(0))
    browser.press("Enter")
    assert browser.evaluate(NAMES) == ["a.bias", "a.weight", "b.weight", "c.weight", "d.weight"]
    browser.press("Tab")
    browser.press("Enter")
    assert browser.evaluate(STATES)[:2] == [None, "descending"]  # one column at a time


def test_a_link_marks_the_block_in_table_and_figures(browser: Browser, page: Path) -> None:
    browser.open(page, width=1280)
    browser.evaluate("document.querySelectorAll('table.blocks tbody a')[2].click()")
    marked = "[...document.querySelectorAll('.marked')].map(each => each.id)"
    places = ["block-2", "heatmap-0-block-2", "layers-0-block-2"]
    assert browser.evaluate(f"new Promise(done => setTimeout(() => done({marked}), 50))") == places
    assert browser.evaluate("location.hash") == "#layers-0-block-2"
    browser.evaluate("document.getElementById('layers-0-block-0').click()")
    assert browser.evaluate(f"new Promise(done => setTimeout(() => done({marked}[0]), 50))") == "block-0"


def test_links_have_names_for_those_who_cannot_see(browser: Browser, page: Path) -> None:
    browser.open(page, width=1280)
    root = browser.call("DOM.getDocument")["root"]["nodeId"]
    links = browser.call("Accessibility.queryAXTree", nodeId=root, role="link")["nodes"]
    names = [link["name"]["value"].replace(" ", "") for link in links]  # a place to break the line reads as a space
    assert names.count("b.weight") == 3  # in the table, the map and the layers


@pytest.mark.parametrize("dark", [False, True])
def test_figures_follow_the_page(browser: Browser, page: Path, dark: bool) -> None:
    browser.open(page, width=1280, dark=dark)
    tag, key = ("source", "srcset") if dark else ("img", "src")
    first = next(a for name, a in Page(page.read_text(encoding="utf-8")).elements if name == tag)
    shown = "[...document.images].every(one => one.complete && one.naturalWidth > 100) && document.images[0].currentSrc"
    assert browser.evaluate(shown) == first[key]


def test_a_phone_shows_the_measured_values_and_nothing_sticks_out(browser: Browser, page: Path) -> None:
    browser.open(page, width=390)
    assert browser.evaluate(IN_SIGHT)
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_figures_stay_legible_on_a_phone(browser: Browser, page: Path) -> None:
    """They scroll in their frame rather than shrink to less than two thirds."""
    browser.open(page, width=390)
    widths = "[...document.images].map(one => one.getBoundingClientRect().width / one.getAttribute('width'))"
    assert min(browser.evaluate(widths)) >= 0.64
    browser.open(page, width=1280)
    assert browser.evaluate(widths) == pytest.approx([1, 1], abs=0.01)


def test_links_on_a_figure_cover_the_rows_of_the_picture(browser: Browser, page: Path) -> None:
    """At any width: the picture shrinks, and they with it."""
    inside = """[...document.querySelectorAll('.spot')].every(spot => {
        const [inner, outer] = [spot, spot.parentElement.querySelector('img')].map(e => e.getBoundingClientRect());
        return inner.height > 5 && inner.top >= outer.top && inner.bottom <= outer.bottom && inner.right <= outer.right;
    })"""
    for width in (390, 700, 1280):
        browser.open(page, width=width)
        assert browser.evaluate("document.querySelectorAll('.spot').length") == 8
        assert browser.evaluate(inside)


def test_names_run_nothing_and_the_policy_refuses_nothing_of_ours(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "hostile.html"
    report = build_report([build_block(name) for name in HOSTILE], model="</title><script>alert(1)</script>")
    to_html(report, path)
    browser.open(path, width=1280)
    browser.evaluate(BUTTON.format(0) + ".click()")
    assert browser.evaluate(STATES)[0] == "ascending"
    assert browser.evaluate("document.scripts.length") == 2
    assert browser.complaints == []
