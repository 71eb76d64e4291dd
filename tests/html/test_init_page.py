"""The page of an initialisation check: whole, self-contained, and safe whatever the names are."""

import base64
import html
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

from hessdiag import InitCheck, check_init, to_html
from hessdiag.plots import draw_init_check
from hessdiag.plots.frame import to_svg
from hessdiag.plots.style import LIGHT, themed
from tests.html.test_report_page import SVG, Page


def hostile(weight: torch.Tensor) -> None:
    torch.nn.init.normal_(weight)


hostile.__name__ = "</script><b onclick=x>$y$&"


def measured(init: Any, **options: Any) -> InitCheck:
    return check_init(init, model="mlp:6-5-4", setups=2, batch_size=4, against=["fan-in"], **options)


@pytest.fixture(scope="module")
def checks() -> dict[str, InitCheck]:
    return {"geometric": measured("geometric", widths=(1.0, 2.0)), "hostile": measured(hostile)}


@pytest.fixture(scope="module")
def pages(checks: dict[str, InitCheck]) -> dict[str, str]:
    return {name: to_html(check) for name, check in checks.items()}


def test_it_holds_the_verdict_the_ranking_and_the_data(checks: dict[str, InitCheck], pages: dict[str, str]) -> None:
    check, text = checks["geometric"], pages["geometric"]
    assert check.verdict.split(";")[0] in text
    assert text.count("<figure>") == 2
    data = re.search(r'<script type="application/json" id="init-check">\n(.*)</script>', text, re.DOTALL)
    assert data is not None
    assert repr(InitCheck.from_json(data[1])) == repr(check)
    assert to_html(check) == text


def test_the_code_on_the_page_reads_it_back(
    checks: dict[str, InitCheck], pages: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "init-check.html").write_text(pages["hostile"], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    code = re.search(r"<pre[^>]*><code>(.*?)</code>", pages["hostile"], re.DOTALL)
    assert code is not None
    scope: dict[str, InitCheck] = {}
    exec(html.unescape(code[1]), scope)
    assert repr(scope["init_check"]) == repr(checks["hostile"])


@pytest.mark.parametrize("name", ["geometric", "hostile"])
def test_it_loads_nothing(pages: dict[str, str], name: str) -> None:
    assert not re.search(r'(?:src|srcset|href)="(?!#|data:image/svg)', pages[name])
    assert "default-src 'none'" in pages[name]


@pytest.mark.parametrize("name", ["geometric", "hostile"])
def test_it_is_well_formed_and_read_without_seeing(pages: dict[str, str], name: str) -> None:
    page = Page(pages[name])
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {a["aria-labelledby"] for _, a in page.elements if "aria-labelledby" in a} <= set(ids)
    images = [attributes for tag, attributes in page.elements if tag == "img"]
    assert all(a["alt"].endswith("The tables of this page hold the numbers.") for a in images)
    assert [tag for tag, _ in page.elements].count("figcaption") == len(images) == (2 if name == "geometric" else 1)
    for _, attributes in page.elements:
        for key in ("src", "srcset"):
            if key in attributes:
                ElementTree.fromstring(base64.b64decode(attributes[key].removeprefix(SVG)))


def test_names_cannot_become_markup(pages: dict[str, str]) -> None:
    assert [a for _, a in Page(pages["hostile"]).elements if "onclick" in a] == []
    assert pages["hostile"].count("</script>") == 2
    assert re.findall(r"<script[^>]*>", pages["hostile"]) == [
        "<script>",
        '<script type="application/json" id="init-check">',
    ]


def test_the_maps_are_over_their_own_level(checks: dict[str, InitCheck], pages: dict[str, str]) -> None:
    with themed(LIGHT):
        drawn = to_svg(draw_init_check(checks["geometric"], relative=True))
    (light, *_) = [a["src"] for tag, a in Page(pages["geometric"]).elements if tag == "img"]
    assert base64.b64decode(light.removeprefix(SVG)) == drawn


def test_values_are_exact_and_rows_lead_to_figures(checks: dict[str, InitCheck], pages: dict[str, str]) -> None:
    check, page = checks["geometric"], Page(pages["geometric"])
    titles = {a["title"] for tag, a in page.elements if tag == "td"}
    for scheme in check.schemes:
        spread = scheme.spread()
        assert f"{spread.value!r}, {spread.low!r} to {spread.high!r}" in titles
        assert {repr(scheme.ratio), repr(scheme.output_sq_mean)} <= titles
    assert check.widths is not None
    assert {repr(value) for value in check.widths.spreads()} <= titles
    ids = {a["id"] for _, a in page.elements if "id" in a}
    links = [a["href"] for tag, a in page.elements if tag == "a"]
    assert {href.removeprefix("#") for href in links} <= ids
    place = check.rank - 1
    assert f"#maps-{place}-layer-1" in links  # the map of the scheme that was asked about
    assert {f"#maps-0-scheme-{number}" for number in range(len(check.schemes))} <= set(links)
    assert [a for tag, a in page.elements if tag == "th" and a["scope"] == "col"]
    assert [t for t, _ in page.elements].count("button") == 10 + 5 + 3  # a title each
