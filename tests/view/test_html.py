"""Pages: whole, self-contained, and safe whatever the model calls its parts."""

import base64
import math
import re
from dataclasses import dataclass, field, replace
from functools import cache
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from hessdiag import to_html
from hessdiag.diagnosis.rules import CATALOGUE
from hessdiag.results.findings import Finding
from hessdiag.results.report import Report, block_table, layer_table
from tests.view.figures import build_block, build_report

VOID = {"meta", "br", "hr", "img", "source", "wbr", "input", "link"}
SVG = "data:image/svg+xml;base64,"
HOSTILE = (
    "<script>alert(1)</script>.weight", "a&b\"c'.weight", "</script><img src=x onerror=alert(1)>.weight", "<!--.weight",
    "$\\frac{x$.weight", "x\x07\u202ey\ud800.weight", "{{ 7*7 }}.weight", "a#b url(#c).weight",
    '"><svg onload=alert(1)>.bias',
)  # fmt: skip


@dataclass
class Page(HTMLParser):
    """Every element with its attributes, and the text inside each tag; a tag that is not closed in turn fails."""

    source: str
    elements: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    texts: dict[str, list[str]] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"an attribute of <{tag}> stands twice: {names}"
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        raise AssertionError(f"<{tag} /> is no HTML")

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in set(self.open):
            self.texts.setdefault(tag, []).append(data)

    def text(self, tag: str = "body") -> str:
        return " ".join("".join(self.texts.get(tag, [])).split())


def several() -> Report:
    """Every rule has found something in its last block, and a rule of another version as well."""
    names = ("conv1.weight", "conv1.bias", "gate.scale", "fc.weight")
    words = {"severity": "note", "message": "m", "advice": "a", "value": 36.6, "threshold": 4.0}
    findings = tuple(Finding(rule=rule, blocks=("fc.weight", "x"), **words) for rule in (*CATALOGUE, "HD999"))
    blocks = [build_block(name, avg_sq_singular_value=1.0 + i) for i, name in enumerate(names)]
    return replace(build_report(blocks), findings=findings)


def hostile() -> Report:
    blocks = [build_block(name, avg_sq_singular_value=1.0 + i) for i, name in enumerate(HOSTILE)]
    return build_report(
        blocks, model="<b>&\"'{{ model }}", init="</title><script>", loss="<i>", data="<!--", method_reason="</dd>",
        skipped=((HOSTILE[0], HOSTILE[2]), (HOSTILE[2], "</td>"), (HOSTILE[5], HOSTILE[5])),
        versions={"<u>": "</script>"},
    )  # fmt: skip


def odd() -> Report:
    undefined = dict.fromkeys(("gamma", "nu", "ratio", "relative_ratio", "avg_sq_singular_value"), math.nan)
    values = ({}, undefined, {"avg_sq_singular_value": 0.0}, {"avg_sq_singular_value": math.inf})
    blocks = [build_block(f"{i}$x^2$b.weight", **each) for i, each in enumerate(values)]
    blocks[0] = replace(blocks[0], stderr=1.0, ended="budget", products=400)
    return build_report(blocks, method="probe", matrix="hessian", per="batch")


REPORTS = {
    "several": several(), "hostile": hostile(), "none": build_report([]),
    "biases alone": build_report([build_block("a.bias")]), "odd": odd(),
}  # fmt: skip


@cache
def page_of(name: str) -> str:
    return to_html(REPORTS[name])


@pytest.mark.parametrize("name", REPORTS)
def test_is_well_formed_and_loads_and_runs_nothing(name: str) -> None:
    page = Page(page_of(name))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    referred = [a["href"].removeprefix("#") for _, a in page.elements if "href" in a]
    referred += [a["aria-labelledby"] for _, a in page.elements if "aria-labelledby" in a]
    assert set(referred) <= set(ids)
    for tag, attributes in page.elements:
        assert tag not in {"script", "link", "svg", "iframe", "object", "embed", "base", "form", "foreignobject"}
        assert not [key for key in attributes if key.startswith("on") or key in {"srcset", "action", "data"}]
        assert re.match(r"#|$", attributes.get("href", ""))
        assert re.fullmatch(rf"({re.escape(SVG)}[A-Za-z0-9+/=]+)?", attributes.get("src", ""))
        assert "url(" not in " ".join(attributes.values())
    assert not re.search(r"@import|url\(|//", page.text("style"))
    policy = next(a["content"] for _, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@pytest.mark.parametrize("name", REPORTS)
def test_pictures_are_whole_and_load_and_run_nothing(name: str) -> None:
    for svg in pictures(page_of(name)):
        for element in ElementTree.fromstring(svg).iter():
            tag = element.tag.rpartition("}")[2]
            assert tag not in {"script", "foreignObject", "a", "metadata", "iframe", "set", "animate"}
            for key, value in element.attrib.items():
                assert not key.rpartition("}")[2].startswith("on")
                if key.rpartition("}")[2] == "href":
                    assert re.match(r"#|data:image/png;base64,", value)
                if key != "id":  # which nothing follows
                    assert "url(" not in value.replace("url(#", "")


def pictures(page: str) -> list[bytes]:
    return [base64.b64decode(found) for found in re.findall(rf'="{re.escape(SVG)}([^"]+)"', page)]


def test_names_are_text_wherever_they_stand() -> None:
    page = Page(page_of("hostile"))
    body = page.text("tbody")
    for name in HOSTILE:
        assert re.sub(r"[\x07\u202e\ud800]", "\ufffd", name) in body
    assert page.text("title").startswith("<b>&\"'{{ model }}: Undecided")
    assert "</title><script>" in page.text("h1")
    assert "</script>" in body  # a version
    assert not {"u", "i"} & {tag for tag, _ in page.elements}
    assert not re.search("[\x07\u202e\ud800]", page_of("hostile"))
    for _, attributes in page.elements:
        assert not any("alert(1)" in value for value in attributes.values())


def test_is_read_without_seeing() -> None:
    page = Page(page_of("several"))
    tags = [tag for tag, _ in page.elements]
    assert tags.count("h1") == 1
    assert ("html", {"lang": "en-GB"}) in page.elements
    assert all("scope" in attributes for tag, attributes in page.elements if tag == "th")
    drawn = [attributes for tag, attributes in page.elements if tag == "img"]
    assert [a["alt"] for a in drawn] == ["Map of the size of every pair of weights", "γ, σ² and ν of every layer"]
    assert all(int(a["width"]) > 0 for a in drawn)
    assert tags.count("figcaption") == tags.count("figure") == 2
    scrolling = [a for _, a in page.elements if a.get("class") in ("scroll", "plate")]
    assert all(a["tabindex"] == "0" and (a.get("aria-label") or a.get("aria-labelledby")) for a in scrolling)


@pytest.mark.parametrize("name", REPORTS)
def test_says_what_the_text_table_says(name: str) -> None:
    report, page = REPORTS[name], Page(page_of(name))
    assert report.verdict.balance.sentence.split("x\x07")[0] in page.text("p")
    symbols = block_table(report)
    assert all(title in page.text("thead") for title in symbols.titles)
    body = page.text("tbody")
    assert all(row[2] in body for row in layer_table(report.weights).rows)
    assert all(text in body for row in symbols.rows for text in row[1:])
    if report.loss != "<i>":
        assert " ".join(report.header()[0].split()) in page.text("p")
    assert f"seed{report.seed}" in body


def test_a_finding_leads_to_its_blocks_and_is_explained() -> None:
    page = Page(page_of("several"))
    assert [a["href"] for tag, a in page.elements if tag == "a"] == ["#row-3"] * (len(CATALOGUE) + 1)
    assert [a for tag, a in page.elements if tag == "details"] == [{}] * len(CATALOGUE)  # closed; none for HD999
    summaries, explained = page.text("summary"), page.text("dd")
    for rule, entry in CATALOGUE.items():
        assert f"Why {rule}: {entry.title}" in summaries
        assert all(text in explained for text in entry.parts.values())
    assert "36.6; threshold 4.00" in explained
