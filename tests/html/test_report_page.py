"""The page: whole, self-contained, and safe whatever the model calls its parts."""

from __future__ import annotations

import base64
import hashlib
import html
import math
import re
import subprocess
import sys
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

import hessdiag
from hessdiag import to_html
from hessdiag.diagnosis.rules import CATALOGUE
from hessdiag.errors import HessdiagError
from hessdiag.html.block_table import rows
from hessdiag.plots.style import DARK, LIGHT
from hessdiag.results.findings import Finding
from hessdiag.results.numbers import short
from hessdiag.results.report import COLUMNS, BlockReport, Report, cells
from tests.synthetic import build_block, build_report

VOID = {"meta", "br", "hr", "img", "source", "wbr", "input", "link"}
SVG = "data:image/svg+xml;base64,"
HOSTILE = (
    "<script>alert(1)</script>.weight",
    "a&b\"c'.weight",
    "</script><img src=x onerror=alert(1)>.weight",
    "<!--.weight",
    "$\\frac{x$.weight",
    "x\x07\u202ey\ud800.weight",
    "{{ 7*7 }}.weight",
    "a#b url(#c).weight",
    '"><svg onload=alert(1)>.bias',
)


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
    names = ("conv1.weight", "conv1.bias", "gate.scale", "fc.weight")
    return build_report([build_block(name, avg_sq_singular_value=1.0 + i) for i, name in enumerate(names)])


def hostile() -> Report:
    blocks = [build_block(name, avg_sq_singular_value=1.0 + i) for i, name in enumerate(HOSTILE)]
    return build_report(
        blocks,
        model="<b>&\"'{{ model }}",
        init="</title><script>",
        loss="<i>",
        data="<!--",
        method_reason="</dd>",
        skipped=((HOSTILE[0], HOSTILE[2]), (HOSTILE[2], "</td>"), (HOSTILE[5], HOSTILE[5])),
        versions={"<u>": "</script>"},
    )


def awkward() -> dict[str, Report]:
    undefined = dict.fromkeys(("gamma", "nu", "ratio", "relative_ratio", "avg_sq_singular_value"), math.nan)
    many = [build_block(f"layers.{i}.weight", avg_sq_singular_value=2.0**i) for i in range(20)]
    short = [replace(block, stderr=1.0, ended="budget", products=400) for block in several().blocks]
    return {
        "several": several(),
        "hostile": hostile(),
        "none": build_report([]),
        "biases alone": build_report([build_block("a.bias")]),
        "one": build_report([build_block("a.weight")]),
        "dollars": build_report([build_block("a$x^2$b.weight")]),
        "undefined": build_report([build_block("a.weight", **undefined), build_block("b.weight")]),
        "zero": build_report([build_block("a.weight", avg_sq_singular_value=0.0), build_block("b.weight")]),
        "nowhere": build_report([build_block(n, avg_sq_singular_value=0.0) for n in ("a.weight", "b.weight")]),
        "overflow": build_report([build_block("a.weight", avg_sq_singular_value=math.inf), build_block("b.weight")]),
        "many": build_report(many),
        "budget": build_report(short, method="probe", matrix="hessian", per="batch"),
    }


AWKWARD = awkward()


class Pages(dict[str, str]):
    """Each once it is asked for: workers of a run have different tests."""

    def __missing__(self, name: str) -> str:
        return self.setdefault(name, to_html(AWKWARD[name]))


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return Pages()


@pytest.mark.parametrize("name", AWKWARD)
def test_is_well_formed_with_unique_ids_that_resolve(pages: dict[str, str], name: str) -> None:
    page = Page(pages[name])
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    referred = [v for _, a in page.elements for v in re.findall(r"url\(#([^)]+)\)", " ".join(a.values()))]
    referred += [a["href"].removeprefix("#") for _, a in page.elements if a.get("href", "").startswith("#")]
    labels = ("aria-labelledby", "aria-describedby")
    referred += [one for _, a in page.elements for key in labels for one in a.get(key, "").split()]
    assert set(referred) <= set(ids)


@pytest.mark.parametrize("name", AWKWARD)
def test_loads_nothing_and_runs_its_own_script_alone(pages: dict[str, str], name: str) -> None:
    page = Page(pages[name])
    for tag, attributes in page.elements:
        assert tag not in {"link", "svg", "iframe", "object", "embed", "base", "form", "foreignobject"}
        assert not [key for key in attributes if key.startswith("on")]
        if tag == "script" and attributes:
            assert attributes == {"type": "application/json", "id": "report"}
        for key in ("href", "action", "data"):
            assert re.match(r"#|$", attributes.get(key, ""))
        for key in ("src", "srcset"):
            assert re.fullmatch(rf"({re.escape(SVG)}[A-Za-z0-9+/=]+)?", attributes.get(key, ""))
        assert "url(" not in " ".join(attributes.values())
    assert [tag for tag, _ in page.elements].count("script") == 2
    (own,) = re.findall(r"<script>(.*?)</script>", pages[name], re.DOTALL)
    assert own == (Path(hessdiag.__file__).parent / "html" / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
    assert not re.search(r"@import|url\(|//", page.text("style"))
    policy = next(a["content"] for _, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy == (f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:")


@pytest.mark.parametrize("name", AWKWARD)
def test_holds_the_report_itself(pages: dict[str, str], name: str) -> None:
    text = re.search(r'<script type="application/json" id="report">(.*?)</script>', pages[name], re.DOTALL)[1]
    assert Report.from_json(text) == AWKWARD[name]


def test_the_code_on_the_page_reads_it_back(
    pages: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "report.html").write_text(pages["hostile"], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Report] = {}
    exec(html.unescape(re.search(r"<pre[^>]*><code>(.*?)</code>", pages["hostile"], re.DOTALL)[1]), scope)
    assert scope["report"] == AWKWARD["hostile"]


def test_names_are_text_wherever_they_stand(pages: dict[str, str]) -> None:
    page = Page(pages["hostile"])
    shown = [re.sub(r"[\x07\u202e\ud800]", "\ufffd", name) for name in HOSTILE]
    body = page.text("tbody")
    for name in shown:
        assert name in body
    assert page.text("title").startswith("<b>&\"'{{ model }}: undecided")
    assert not {"u", "svg"} & {tag for tag, _ in page.elements}
    assert all(a["src"].startswith(SVG) for tag, a in page.elements if tag == "img")
    assert "<b>&\"'{{ model }}" in page.text("h1")
    assert "</title><script>" in page.text("h1")
    assert "</script>" in page.text("dl")
    assert not re.search("[\x07\u202e\ud800]", pages["hostile"])
    for _, attributes in page.elements:
        assert not any("alert(1)" in value for value in attributes.values())


def pictures(page: str) -> list[bytes]:
    """Every SVG of a page, light and dark in turn."""
    return [base64.b64decode(found) for found in re.findall(rf'="{re.escape(SVG)}([^"]+)"', page)]


@pytest.mark.parametrize("name", AWKWARD)
def test_pictures_are_whole_and_load_and_run_nothing(pages: dict[str, str], name: str) -> None:
    for svg in pictures(pages[name]):
        for element in ElementTree.fromstring(svg).iter():
            tag = element.tag.rpartition("}")[2]
            assert tag not in {"script", "foreignObject", "a", "metadata", "iframe", "set", "animate"}
            for key, value in element.attrib.items():
                assert not key.rpartition("}")[2].startswith("on")
                if key.rpartition("}")[2] == "href":
                    assert re.match(r"#|data:image/png;base64,", value)
                if key != "id":  # which nothing follows
                    assert "url(" not in value.replace("url(#", "")


def test_every_picture_is_there_for_a_light_and_for_a_dark_page(pages: dict[str, str]) -> None:
    page = Page(pages["several"])
    media = [a["media"] for tag, a in page.elements if tag == "source"]
    assert media == ["screen and (prefers-color-scheme: dark)"] * 2
    drawn = pictures(pages["several"])
    assert len(drawn) == 4
    for dark, light in zip(drawn[::2], drawn[1::2], strict=True):
        assert DARK.page.encode() in dark
        assert DARK.ink.encode() in dark
        assert DARK.page.encode() not in light
        assert LIGHT.ink.encode() in light
        assert LIGHT.ink.encode() not in dark


def glyphs(svg: bytes, near: str) -> str:
    """What is written after the comment that names a text: matplotlib draws one outline a letter."""
    text = svg.decode()
    return text[text.index(f"<!-- {near} -->") :].partition("</g>")[0]


def test_a_dollar_in_a_name_is_drawn_as_one(pages: dict[str, str]) -> None:
    for svg in pictures(pages["dollars"]):
        assert glyphs(svg, "a$x^2$b").count("<use") == len("a$x^2$b")


@pytest.mark.parametrize("name", ["several", "hostile", "many"])
def test_the_same_report_gives_the_same_bytes(pages: dict[str, str], name: str) -> None:
    report = Report.from_json(AWKWARD[name].to_json())
    assert to_html(report) == pages[name]


def test_is_read_without_seeing(pages: dict[str, str]) -> None:
    page = Page(pages["several"])
    tags = [tag for tag, _ in page.elements]
    assert tags.count("h1") == 1
    assert ("html", {"lang": "en-GB"}) in page.elements
    assert all("scope" in attributes for tag, attributes in page.elements if tag == "th")
    drawn = [attributes for tag, attributes in page.elements if tag == "img"]
    assert [a["alt"].partition(".")[0] for a in drawn] == [
        "Map of the size of every pair of weight blocks",
        "γ, σ² and ν of every layer",
    ]
    spreads = several().spread
    assert all(f"σ² {short(spreads['avg_sq_singular_value'])}." in a["alt"] for a in drawn)
    assert all(int(a["width"]) > 0 and int(a["height"]) > 0 for a in drawn)
    assert tags.count("figcaption") == tags.count("figure") == 2
    assert page.text("figcaption").startswith("One square for each pair")
    scrolling = [a for _, a in page.elements if a.get("class") in ("scroll", "plate")]
    assert all(a["tabindex"] == "0" and (a.get("aria-label") or a.get("aria-labelledby")) for a in scrolling)


@pytest.mark.parametrize("name", AWKWARD)
def test_says_what_the_text_table_says(pages: dict[str, str], name: str) -> None:
    report, page = AWKWARD[name], Page(pages[name])
    assert report.verdict.balance.sentence.split("x\x07")[0] in page.text("p")
    header = page.text("thead")
    assert all(column in header for column in COLUMNS)
    body = page.text("tbody")
    for block in report.blocks:
        assert all(text in body for text in cells(block)[1:])
    assert str(report.seed) in page.text("dl")


def test_says_what_ended_the_sampling_and_what_was_left_out(pages: dict[str, str]) -> None:
    assert "Nothing was sampled" in pages["several"]
    assert (
        "Sampling: rtol 0.05 missed with at most 400 products a block on conv1.weight" in Page(pages["budget"]).text()
    )
    assert "Nothing was left out" in pages["several"]
    left_out = to_html(replace(several(), skipped=(("norm.weight", "normalisation layers are not blocks"),)))
    assert "normalisation layers are not blocks" in left_out
    assert "Nothing was left out" not in left_out


def test_says_how_many_batches_were_read() -> None:
    page = to_html(replace(several(), batches_read=2, batches_given=9))
    assert "2 of 9 batches of the data read: diagnose(model, batches)" in Page(page).text("p")
    assert "of the data read" not in to_html(several())


def test_says_per_example_or_per_batch(pages: dict[str, str]) -> None:
    assert "Gauss-Newton matrix of each example, averaged over the batch" in Page(pages["several"]).text()
    assert "Hessian of the mean loss of the batch" in Page(pages["budget"]).text()
    assert "γ is divided by the batch size" in Page(pages["budget"]).text()


def cells_of(page: Page, column: str) -> list[dict[str, str]]:
    """Attributes of the cells of a column of the first table, row by row."""
    texts = [text for text in page.texts["button"] if text.strip()]
    tags = [(tag, a) for tag, a in page.elements if tag in {"thead", "tr", "th", "td"}]
    tags = tags[next(i for i, (tag, _) in enumerate(tags) if tag == "thead") + 1 :]
    rows: list[list[dict[str, str]]] = []
    for tag, attributes in tags:
        if tag == "thead":
            break
        rows.append([]) if tag == "tr" else rows[-1].append(attributes)
    return [row[texts.index(column)] for row in rows[1:]]


def test_every_title_of_a_table_is_a_button_that_says_what_it_means(pages: dict[str, str]) -> None:
    for page in map(Page, pages.values()):
        tags = [tag for tag, _ in page.elements]
        heads = [i for i, (tag, a) in enumerate(page.elements) if tag == "th" and a["scope"] == "col"]
        assert heads
        assert all(tags[i + 1] == "button" for i in heads)
        buttons = [a for tag, a in page.elements if tag == "button"]
        assert len(buttons) == len(heads)
        assert all(a["type"] == "button" and a["title"].endswith("sorts the table") for a in buttons)


def test_titles_of_cells_hold_all_digits() -> None:
    known = {"activation_scaling": 0.1 + 0.2, "gamma": 1 / 3, "avg_sq_singular_value": 2 / 3, "stderr": 1 / 7}
    blocks = [build_block("a.weight", **known, ended="rtol"), build_block("b.weight", nu=math.nan)]
    page = Page(to_html(build_report(blocks)))
    assert [a["title"] for a in cells_of(page, "ς")] == ["0.30000000000000004", "1.0"]
    assert cells_of(page, "γ")[0]["title"] == "0.3333333333333333"
    assert cells_of(page, "σ²")[0]["title"] == "0.6666666666666666 ± 0.14285714285714285"
    assert float(cells_of(page, "σ²")[0]["data-value"]) == 2 / 3
    assert float(cells_of(page, "± %")[0]["title"]) == 100 * (1 / 7) / (2 / 3)
    assert cells_of(page, "shape")[0]["title"] == "100 parameters"
    assert cells_of(page, "ν")[1]["title"] == "undefined"
    assert "data-value" not in cells_of(page, "ν")[1]  # it has no place in an order


def test_the_measured_value_stands_beside_the_names(pages: dict[str, str]) -> None:
    """So that a phone shows it without scrolling aside."""
    assert [text for text in Page(pages["several"]).texts["button"] if text.strip()][:3] == ["block", "σ²", "± %"]


def test_rows_and_figures_lead_to_one_another(pages: dict[str, str]) -> None:
    page = Page(pages["several"])
    names = ["conv1.weight", "conv1.bias", "gate.scale", "fc.weight"]
    links = [a["href"] for tag, a in page.elements if tag == "a" and a.get("class") != "spot"]
    assert links == [f"#layers-0-block-{number}" for number in (0, 0, 2, 3)]  # a bias is on the row of its weight
    spots = [a for tag, a in page.elements if tag == "a" and a.get("class") == "spot"]
    assert [a["href"] for a in spots] == [f"#block-{number}" for number in (0, 3, 0, 2, 3)]
    rows_of_table = {a["id"]: a for tag, a in page.elements if tag == "tr" and "id" in a}
    assert list(rows_of_table) == [f"block-{number}" for number in range(len(names))]
    for spot in spots:
        sides = dict(re.findall(r"(\w+): ([\d.]+)%", spot["style"]))
        assert 0 <= float(sides["left"]) < float(sides["left"]) + float(sides["width"]) <= 100
        assert 0 < float(sides["top"]) < float(sides["top"]) + float(sides["height"]) < 100


def test_a_finding_leads_to_its_blocks() -> None:
    named = Finding(
        rule="HD201", severity="warning", blocks=("fc.weight", "x"), message="m", advice="a", value=1.0, threshold=1.0
    )
    page = Page(to_html(replace(several(), findings=(named,))))
    at = next(i for i, (tag, a) in enumerate(page.elements) if a.get("class") == "advice")
    assert page.elements[at + 1] == ("a", {"href": "#block-3"})


def test_a_finding_is_explained_where_it_stands() -> None:
    words = {"severity": "note", "blocks": (), "message": "m", "advice": "a", "value": 36.6, "threshold": 4.0}
    findings = tuple(Finding(rule=rule, **words) for rule in (*CATALOGUE, "HD999"))
    page = Page(to_html(replace(several(), findings=findings)))
    folded = [attributes for tag, attributes in page.elements if tag == "details"]
    assert folded == [{}] * len(CATALOGUE)  # closed until it is asked for, and none for a rule that is not known
    said, told = page.text("summary"), page.text("dd")
    for rule, entry in CATALOGUE.items():
        assert f"Why {rule}: {entry.title}" in said
        assert all(text in told for text in entry.parts.values())
    assert "36.6; threshold 4.00" in told
    assert "Measured here" in page.text("dt")


def place_of(*blocks: BlockReport) -> list[tuple[float | None, str]]:
    return [(row.place, row.extreme) for row in rows(build_report(blocks))]


def test_dots_lie_on_a_logarithmic_scale_of_the_weights() -> None:
    sizes = (0.1, 1.0, 10.0)
    blocks = [build_block(f"{size}.weight", avg_sq_singular_value=size) for size in sizes]
    bias = build_block("a.bias", avg_sq_singular_value=1e6)
    assert place_of(*blocks, bias) == [(0.0, "smallest"), (50.0, ""), (100.0, "largest"), (None, "")]


def test_equal_blocks_lie_in_the_middle_and_none_is_largest() -> None:
    assert place_of(build_block("a.weight"), build_block("b.weight")) == [(50.0, ""), (50.0, "")]


def test_a_block_without_a_place_has_no_dot() -> None:
    values = (0.0, math.nan, math.inf, 1.0)
    blocks = [build_block(f"{value}.weight", avg_sq_singular_value=value) for value in values]
    assert [place for place, _ in place_of(*blocks)] == [None, None, None, 50.0]


def test_is_written_whole_or_refused(pages: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hessdiag.html.report_page.render", lambda report: pages["several"])
    assert to_html(several(), tmp_path / "page.html") == pages["several"]
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == pages["several"]
    with pytest.raises(HessdiagError, match="cannot write"):
        to_html(several(), tmp_path / "missing" / "page.html")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_needs_no_torch() -> None:
    code = (
        "import sys, hessdiag; from tests.synthetic import build_block, build_report;"
        "hessdiag.to_html(build_report([build_block('a.weight')])); assert 'torch' not in sys.modules"
    )
    root = Path(hessdiag.__file__).parents[1]
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True)
