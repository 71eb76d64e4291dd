"""What a notebook shows: the text table's content, escaped, without a page around it."""

from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser

import pytest

import hessdiag
from hessdiag.results.findings import Finding
from hessdiag.tables.report_table import COLUMNS, rows
from tests.reports import build_block, build_report

VOID = {"br", "wbr"}


class Reader(HTMLParser):
    """Cells of the table, and whether all that is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1] += data


def read(fragment: str) -> Reader:
    reader = Reader()
    reader.feed(fragment)
    assert reader.open == []
    return reader


def test_has_the_cells_of_the_text_table() -> None:
    report = build_report(build_block(), build_block(name="fc2.weight", stderr=0.1, ended="rtol"), method="probe")
    found = read(report._repr_html_())
    assert found.cells == [*COLUMNS, *(cell for row in rows(report) for cell in row)]
    assert not found.tags & {"html", "head", "body", "style", "script", "link"}


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "a&b"])
def test_texts_of_the_model_are_escaped(name: str) -> None:
    finding = Finding(
        rule="HD101", severity="fault", blocks=(name,), message=name, advice=name, value=1.0, threshold=1.0
    )
    skipped = ((name, name),)
    report = build_report(build_block(name=name), model=name, skipped=skipped)
    report = dataclasses.replace(report, findings=(finding,), data=name, loss=name)
    found = read(report._repr_html_())
    assert not found.tags & {"script", "img"}
    assert name in found.cells


def test_verdict_findings_balance_and_omissions_are_told() -> None:
    texts = {"message": "Zero it is.", "advice": "Draw it."}
    finding = Finding(rule="HD104", severity="fault", blocks=("a",), value=1.0, threshold=1.0, **texts)
    report = build_report(build_block(), skipped=tuple((f"norm{i}", f"vector of {i}") for i in range(3)))
    text = " ".join(re.sub(r"<[^>]*>", "", dataclasses.replace(report, findings=(finding,))._repr_html_()).split())
    for said in ("fault HD104: Zero it is. Draw it.", "Nothing to compare: ", "3 not measured", "vector of 0 to 2"):
        assert said in text


@pytest.mark.parametrize(("count", "opened"), [(3, True), (60, False)])
def test_the_table_of_many_blocks_is_closed_at_first(count: int, opened: bool) -> None:
    report = build_report(*(build_block(name=f"b{i}") for i in range(count)), heatmap=build_report().heatmap)
    assert ("<details open>" in report._repr_html_()) == opened


def test_a_report_is_a_collection_of_its_blocks() -> None:
    report = build_report(build_block(name="a"), build_block(name="b"), heatmap=build_report().heatmap)
    assert [block.name for block in report] == ["a", "b"]
    assert len(report) == 2
    assert report["b"] is report.blocks[1]
    assert "b" in report
    assert report.blocks[0] in report
    assert "c" not in report
    assert bool(dataclasses.replace(report, blocks=()))
    with pytest.raises(hessdiag.HessdiagError, match="the report has no block 'c': it has 2 blocks"):
        report["c"]


@pytest.mark.parametrize(("name", "said"), [("layers", "γ"), ("heatmap", "fc1"), ("ratios", "Theory over measurement")])
def test_a_report_draws_itself(name: str, said: str) -> None:
    figure = getattr(build_report(build_block(name="fc1.weight")).plot, name)()
    texts = [text.get_text() for text in figure.findobj(lambda artist: hasattr(artist, "get_text"))]
    assert any(said in text for text in texts)


def test_a_notebook_shows_its_figures() -> None:
    figure = build_report(build_block(name="fc1.weight")).plot.layers()
    png, shown = figure._repr_png_()
    assert png.startswith(b"\x89PNG")
    assert shown == {"width": round(96 * figure.get_size_inches()[0])}
