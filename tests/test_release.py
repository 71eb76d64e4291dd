"""What a release consists of agrees with itself: versions, changelog, citation, extras, pins, pages for agents."""

import re
import sys

import pytest

import hessdiag
from tests.pages import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


PROJECT = tomllib.loads(text("pyproject.toml"))["project"]
PINS = dict(line.split("==") for line in text("constraints.txt").splitlines() if "==" in line)


def test_one_version_everywhere_and_all_that_tests_need_is_pinned() -> None:
    version = PROJECT["version"]
    assert hessdiag.__version__ == version
    assert re.findall(r"^version: (.+)$", text("CITATION.cff"), re.MULTILINE) == [version]
    headings = re.findall(r"^## (.+)$", text("CHANGELOG.md"), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert re.fullmatch(rf"{re.escape(version)} - \d{{4}}-\d\d-\d\d", headings[1])
    listed = PROJECT["dependencies"] + [
        each for extra in ("test", "dev", "docs", "hf") for each in PROJECT["optional-dependencies"][extra]
    ]
    names = {re.split(r"[>=<\[]", each)[0] for each in listed} - {"hessdiag"}
    assert names - PINS.keys() - {"pillow"} == set()
    assert re.findall(r'^  "torch>=(.*)",$', text("pyproject.toml"), re.MULTILINE) == ["2.6"]


def test_workflows_call_what_is_there() -> None:
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        lines = path.read_text(encoding="utf-8")
        assert all((ROOT / script).exists() for script in re.findall(r"bash (\.ci/\w+)", lines))
        named = {extra for extras in re.findall(r"'\.\[([\w,]+)\]'", lines) for extra in extras.split(",")}
        assert named <= PROJECT["optional-dependencies"].keys()


def test_every_page_and_public_name_is_listed() -> None:
    index = text("docs/index.md")
    listed = {name for block in re.findall(r"```\{toctree\}\n(.*?)```", index, re.DOTALL) for name in block.split("\n")}
    pages = {path.stem for path in (ROOT / "docs").iterdir() if path.suffix in {".md", ".rst"}} - {"index"}
    assert pages - listed == set()
    named = set(re.findall(r"^\.\. auto\w+:: (\S+)$", text("docs/api.rst"), re.MULTILINE))
    modules = {name: getattr(hessdiag, name) for name in ("calculus", "plots", "models")}
    wanted = {f"hessdiag.{name}" for name in hessdiag.__all__}
    wanted |= {f"hessdiag.{name}.{each}" for name, module in modules.items() for each in module.__all__}
    of_modules = {name for name in wanted if any(each.startswith(f"{name}.") for each in named)}
    also = {"hessdiag.calculus.Prediction", "hessdiag.calculus.predict"}  # of hessdiag itself
    assert wanted - named - of_modules - also == set()
    for name in ("AGENTS.md", "llms.txt"):
        assert len(text(name).splitlines()) < 60
    links = re.findall(r"\]\(([^)]+)\)", text("llms.txt"))
    assert len(links) > 8
    assert [link for link in links if not (ROOT / link).exists()] == []
    named = re.findall(r"`([\w./-]+\.(?:md|py))`", text("AGENTS.md"))
    assert [name for name in named if not (ROOT / name).exists()] == []
