"""The page of an initialisation check: whole, self-contained, and safe whatever the names are."""

import re
from html.parser import HTMLParser

import torch

from hessdiag import InitCheck, check_init


def page(init, **options) -> tuple[InitCheck, str]:
    check = check_init(init, model="mlp:6-5-4", setups=2, batch_size=4, against=["fan-in"], **options)
    return check, check.to_html()


def test_it_holds_the_verdict_the_ranking_and_the_data() -> None:
    check, text = page("geometric", widths=(1.0, 2.0))
    assert check.verdict.split(";")[0] in text
    assert text.count("<figure>") == 2
    data = re.search(r'<script type="application/json" id="init-check">\n(.*)</script>', text, re.DOTALL)
    assert data is not None
    assert repr(InitCheck.from_json(data[1])) == repr(check)
    assert check.to_html() == text


def test_it_loads_nothing() -> None:
    _, text = page("geometric")
    assert not re.search(r'(?:src|href)="(?!#|data:)', text)
    assert "default-src 'none'" in text


def test_names_cannot_become_markup() -> None:
    def hostile(weight: torch.Tensor) -> None:
        torch.nn.init.normal_(weight)

    hostile.__name__ = "</script><b onclick=x>$y$&"
    _, text = page(hostile)
    tags: list[str] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            tags.extend(name for name, _ in attrs if name == "onclick")

    Tags().feed(text)
    assert tags == []
    assert text.count("</script>") == 1
