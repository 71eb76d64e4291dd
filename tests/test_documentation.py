"""The README and docs/ keep their word: commands and Python are run, and what they print is compared.
`HESSDIAG_OVERWRITE_GOLDEN=1 pytest tests/test_documentation.py` writes what was printed into the pages; read the
difference before it is committed. Outputs with an ellipsis are left for the author.
"""

import importlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import json_schemas
import pytest
import reference_pages
import torch
import typer.main
import yaml
from strangers import STRANGERS
from strangers.gallery import enter
from strangers.page import PAGE, RESULTS
from strangers.page import page as strangers_page

import hessdiag
from hessdiag.__main__ import main
from hessdiag.cli import app
from hessdiag.diagnosis.rules import CATALOGUE
from hessdiag.results.findings import CHECKS
from tests.pages import ELLIPSES, ROOT, Command, Fence, commands, difference, documents, fences, prose, read
from tests.test_pytest_plugin import LOADED

OVERWRITE = os.environ.get("HESSDIAG_OVERWRITE_GOLDEN") == "1"
MAX_README_WORDS = 700
MAX_DOCS_WORDS = 16_000
MAX_SENTENCE = 25  # words of README, tutorial and findings
MAX_COLUMNS = 100
PROGRAMS = ("hessdiag", "echo", "pytest")  # what is run; a block of anything else says why it is not
OPTIONS_OF_OTHERS = {"--help", "--nproc-per-node", "--durations", "--doctest-modules"}
CLI = typer.main.get_command(app)


def cli_commands() -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, command in CLI.commands.items():  # type: ignore[attr-defined]
        below = getattr(command, "commands", None)
        flat |= {f"{name} {word}": sub for word, sub in below.items()} if below else {name: command}
    return flat


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "figures").symlink_to(ROOT / "figures")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # the pages show what a CPU prints
    return tmp_path


@pytest.mark.parametrize("page", documents())
def test_what_a_page_prints_is_printed(page: str, folder: Path) -> None:
    namespace: dict[str, Any] = {}
    printed: str | None = None  # by the Python block before
    problems: list[str] = []
    for fence in fences(page):
        if fence.language == "console":
            problems += check_console(fence)
        elif fence.language == "python" and not fence.reason:
            printed = run_python(fence, namespace, folder)
        elif fence.language == "text" and fence.follows and printed is not None:
            problems += compared(fence, fence.text.splitlines(), printed)
            printed = None
    assert not problems, "\n".join(problems)


def check_console(fence: Fence) -> Iterator[str]:
    listed = commands(fence.text)
    status = 0
    for number, command in enumerate(listed):
        for words in (shlex.split(part, comments=True) for part in command.text.split("&&")):
            if fence.reason:
                check_words(words)
                continue
            assert words[0] in PROGRAMS, f"{fence.place}: say why {words[0]} is not run"
            status, printed = (0, f"{status}\n") if words == ["echo", "$?"] else RUNNERS[words[0]](words[1:])
            asked = number + 1 < len(listed) and listed[number + 1].text == "echo $?"
            assert status == 0 or asked, f"{fence.place}: exit status {status}: {printed}"
            if command.output:
                yield from compared(fence, command.output, printed)


def run_hessdiag(words: list[str]) -> tuple[int, str]:
    screen = io.StringIO()
    with redirect_stdout(screen), redirect_stderr(screen):
        status = main(words)
    return status, re.sub(r"^hessdiag: .* so far: .*\n", "", screen.getvalue(), flags=re.MULTILINE)  # on slow machines


def run_pytest(words: list[str]) -> tuple[int, str]:
    """Run it as a user does, in a process of its own; a failing test is what a page shows, and no problem."""
    done = subprocess.run([sys.executable, "-m", "pytest", *LOADED, *words], capture_output=True, text=True)
    return (0 if done.returncode == 1 else done.returncode), done.stdout + done.stderr


RUNNERS = {"hessdiag": run_hessdiag, "pytest": run_pytest}


def check_words(words: list[str]) -> None:
    if "hessdiag" not in words:
        return
    words = words[words.index("hessdiag") + 1 :]
    name = next(name for name in cli_commands() if words[: len(name.split())] == name.split())
    cli_commands()[name].make_context(name, words[len(name.split()) :])


def run_python(fence: Fence, namespace: dict[str, Any], folder: Path) -> str:
    """Run a block, and save one that begins with `# name.py` under that name; return what it printed."""
    named = re.match(r"# (\w+\.py)\n", fence.text)
    if named:
        (folder / named[1]).write_text(fence.text, encoding="utf-8")
    screen = io.StringIO()
    with redirect_stdout(screen):
        exec(compile("\n" * fence.line + fence.text, str(ROOT / fence.page), "exec"), namespace)
    return screen.getvalue()


def compared(fence: Fence, expected: list[str], printed: str) -> list[str]:
    problem = difference(expected, printed.splitlines())
    told = any(line.strip() for line in expected)  # an empty block could not be told from any other place in the page
    if problem and OVERWRITE and told and not any(mark in line for line in expected for mark in ELLIPSES):
        path = ROOT / fence.page
        before, after = "\n".join(expected).strip("\n"), printed.strip("\n")
        text = path.read_text(encoding="utf-8").replace(f"\n{before}\n", f"\n{after}\n", 1)  # whole lines alone
        path.write_text(text, encoding="utf-8")
        return []
    return [f"{fence.place}: {problem}"] if problem else []


def test_the_workflow_can_be_run() -> None:
    workflow = yaml.safe_load(read("examples/github-workflow.yml"))
    assert workflow[True] == ["push", "pull_request"]  # YAML 1.1, which GitHub's own reader is not, takes on for true
    (job,) = workflow["jobs"].values()
    assert all(("uses" in step) != ("run" in step) for step in job["steps"])
    commands = [step["run"] for step in job["steps"] if step.get("run", "").startswith("hessdiag")]
    assert len(commands) == 2
    for command in commands:
        check_words(shlex.split(command))


@pytest.mark.parametrize("page", [*documents(), "CONTRIBUTING.md"])
def test_what_the_text_names_exists_and_prose_is_wrapped(page: str) -> None:
    text = prose(page)
    codes = re.findall(r"`([^`\n]+)`", text)
    given = [param for command in cli_commands().values() for param in command.params]
    known = {opt for param in given for opt in param.opts + param.secondary_opts}
    named = {o for code in codes for o in re.findall(r"(?<![\w-])--[a-z][a-z-]*", code)}
    assert named - known - OPTIONS_OF_OTHERS == set()
    for code in codes:
        match = re.fullmatch(r"(hessdiag(?:\.\w+)+)(?:\(.*\))?", code)
        if match:
            resolve(match[1])
        if re.fullmatch(r"(hessdiag|tests|scripts|docs|figures)(/\w+)*/(\w+\.\w+)?", code):
            assert (ROOT / code).exists(), code
        elif re.fullmatch(r"[a-z_]+/[\w/]+\.py", code):
            assert (ROOT / code).exists() or (ROOT / "hessdiag" / code).exists(), code
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        if path.startswith("http"):
            continue
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), link
        if anchor:
            headers = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", header).strip().lower().replace(" ", "-") for header in headers}
    lines = text.splitlines()
    assert [line for line in lines if len(line) > MAX_COLUMNS and not line.startswith(("|", "![", "<"))] == []


def resolve(name: str) -> Any:
    found: Any = hessdiag
    path = "hessdiag"
    for part in name.split(".")[1:]:
        path = f"{path}.{part}"
        found = getattr(found, part) if hasattr(found, part) else importlib.import_module(path)
    return found


def test_pages_are_few_words_and_every_package_and_top_module_is_described() -> None:
    """But those that scripts write: the commands' help, and the tables of all cases."""
    pages = set(documents()) - {"docs/commands.md", "docs/gallery.md", "docs/strangers.md"}
    assert sum(len(read(page).split()) for page in pages) <= MAX_DOCS_WORDS
    package, text = ROOT / "hessdiag", read("CONTRIBUTING.md")
    packages = {path.parent.name for path in package.glob("*/__init__.py")}
    modules = {path.stem for path in package.glob("*.py") if not path.name.startswith("__")}
    assert {name for name in packages | modules if f"`{name}`" not in text} == set()


def test_the_readme_is_short_and_is_what_is_run_first() -> None:
    readme, run = read("README.md"), read(".ci/run")
    diagnose = "hessdiag diagnose lenet"
    assert len(readme.split()) < MAX_README_WORDS
    assert f"pip install -c constraints.txt -e . && {diagnose}" in readme
    assert "pip install -c constraints.txt -e '.[test]' && pytest" in readme
    assert "pip install -q -c constraints.txt -e .\n" in run
    assert f"\n{diagnose}\n" in run


def sentences(page: str) -> list[str]:
    """Sentences of a page, without code, tables, links' addresses and markup."""
    lines = [line for line in prose(page).splitlines() if not line.startswith(("|", "#", "![", "<"))]
    paragraphs = re.split(r"\n\s*\n|\n(?=[*\d]+[. ])", re.sub(r"\]\([^)]*\)", "]", "\n".join(lines)))
    return [s for p in paragraphs for s in re.split(r"(?<=[.:?!])\s+(?=[A-Z*`\[\"0-9])", " ".join(p.split())) if s]


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md", "docs/read-a-report.md", "docs/faq.md"])
def test_sentences_are_short_and_begin_with_their_subject(page: str) -> None:
    found = sentences(page)
    assert [each for each in found if len(each.split()) > MAX_SENTENCE] == []
    assert [each for each in found if re.match(r"(What|Which|Where)\b", each) and not each.endswith("?")] == []


def test_numbers_of_the_readme_are_those_of_the_evidence() -> None:
    readme, evidence = (" ".join(read(page).split()) for page in ("README.md", "docs/evidence.md"))
    measured = json.loads(read("figures/benchmark_peers.json"))["items"]
    ((healthy, alarms),) = re.findall(r"(\d+) healthy networks measured, (\d+) with", evidence)
    unseen = re.findall(r"passed; (\d+) healthy: (\d+) alarmed", evidence)
    loud = re.compile(r"- [a-z, ]*: (\d+) loud: (\d+) first, .*?(\d+) passed")
    assert f"{alarms} of {healthy} healthy" in readme
    others, warnings = (sum(map(int, column)) for column in zip(*unseen, strict=True))
    assert f"Of {others} written apart from rules, {warnings} were" in readme
    public = json.loads(read("figures/public_models.json"))
    models = [each for rows in public.values() for each in rows.values()]
    warned = [each for each in models if each.get("findings")]
    assert f"Of {len(models)} public models as they are, {len(warned)} get a warning" in readme
    for page in ("README.md", "llms.txt", "docs/limitations.md"):
        assert f"{CHECKS} checks" in read(page)
    faults, first, missed = (sum(map(int, column)) for column in zip(*loud.findall(evidence), strict=True))
    assert f"Of {faults} that cost much" in readme
    assert f"{first} are named first and {missed} missed" in readme
    seconds = measured["whole-resnet50"]["methods"]["hessdiag"]["seconds"]["median"]
    assert f"{seconds:.0f} seconds for ResNet-50" in readme
    before, after = re.findall(r"loss at the end: ([\d.]+)", read("docs/tutorial.md").replace("{", ""))[-2:]
    assert f"a loss of {after} instead of {before}" in readme


def test_comparison_notices_what_changed() -> None:
    """The comparison itself: a number, a word, a missing and an additional line."""
    page = ["a  1.23  balanced", "b  4"]
    assert difference(page, ["a 1.231 balanced", "b 4"]) == ""
    for printed in (["a 1.26 balanced", "b 4"], ["a 1.23 uneven", "b 4"], ["a 1.23 balanced"], [*page, "c"]):
        assert difference(page, printed)
    assert difference(["a", "…", "z"], ["a", "b", "y"])
    assert commands("$ a\n1\n$ b\n") == [Command("a", ["1"]), Command("b")]


@pytest.mark.parametrize("name", reference_pages.PAGES)
def test_the_page_is_that_of_the_code(name: str) -> None:
    assert read(name) == reference_pages.PAGES[name](), "run python scripts/reference_pages.py"


def test_every_rule_has_a_section_and_every_schema_is_listed_with_its_class() -> None:
    assert re.findall(r"^### (.+)$", reference_pages.rules_page(), re.MULTILINE) == list(CATALOGUE)
    page = read("docs/file-formats.md")
    listed = re.findall(r"^\| \[`(hessdiag\.[\w-]+/\d+)`\]\((.+?)\) \| `(\w+)` \|", page, re.MULTILINE)
    known = [(record.schema, json_schemas.path(record), record.__name__) for record in json_schemas.RECORDS]
    assert [(schema, f"docs/{file}", name) for schema, file, name in listed] == known


def test_the_page_on_strangers_networks_is_of_the_numbers_kept() -> None:
    enter()
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    scored = {STRANGERS[name].part for name in found["first"]}  # a set is scored as a whole, or not yet
    assert list(found["now"]) == list(found["first"]) == [n for n, case in STRANGERS.items() if case.part in scored]
    assert PAGE.read_text(encoding="utf-8") == strangers_page(found)


if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")


PROJECT = tomllib.loads(read("pyproject.toml"))["project"]
PINS = dict(line.split("==") for line in read("constraints.txt").splitlines() if "==" in line)


def test_one_version_everywhere_and_all_that_tests_need_is_pinned() -> None:
    version = PROJECT["version"]
    assert hessdiag.__version__ == version
    assert re.findall(r"^version: (.+)$", read("CITATION.cff"), re.MULTILINE) == [version]
    headings = re.findall(r"^## (.+)$", read("CHANGELOG.md"), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert re.fullmatch(rf"{re.escape(version)} - \d{{4}}-\d\d-\d\d", headings[1])
    extras = [PROJECT["optional-dependencies"][extra] for extra in ("test", "dev", "docs", "hf")]
    listed = sum(extras, PROJECT["dependencies"])
    assert {re.split(r"[>=<\[]", each)[0] for each in listed} - {"hessdiag"} - PINS.keys() - {"pillow"} == set()
    assert re.findall(r'^  "torch>=(.*)",$', read("pyproject.toml"), re.MULTILINE) == ["2.6"]


def test_workflows_call_what_is_there() -> None:
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        lines = path.read_text(encoding="utf-8")
        assert all((ROOT / script).exists() for script in re.findall(r"bash (\.ci/\w+)", lines))
        named = {extra for extras in re.findall(r"'\.\[([\w,]+)\]'", lines) for extra in extras.split(",")}
        assert named <= PROJECT["optional-dependencies"].keys()


def test_every_page_and_public_name_is_listed() -> None:
    index = read("docs/index.md")
    listed = {name for block in re.findall(r"```\{toctree\}\n(.*?)```", index, re.DOTALL) for name in block.split("\n")}
    pages = {path.stem for path in (ROOT / "docs").iterdir() if path.suffix in {".md", ".rst"}} - {"index"}
    assert pages - listed == set()
    named = set(re.findall(r"^\.\. auto\w+:: (\S+)$", read("docs/api.rst"), re.MULTILINE))
    modules = {name: getattr(hessdiag, name) for name in ("calculus", "plots", "models")}
    wanted = {f"hessdiag.{name}" for name in hessdiag.__all__}
    wanted |= {f"hessdiag.{name}.{each}" for name, module in modules.items() for each in module.__all__}
    of_modules = {name for name in wanted if any(each.startswith(f"{name}.") for each in named)}
    also = {"hessdiag.calculus.Prediction", "hessdiag.calculus.predict"}  # of hessdiag itself
    assert wanted - named - of_modules - also == set()
    for name in ("AGENTS.md", "llms.txt"):
        assert len(read(name).splitlines()) < 60
    links = re.findall(r"\]\(([^)]+)\)", read("llms.txt"))
    assert len(links) > 8
    assert [link for link in links if not (ROOT / link).exists()] == []
    named = re.findall(r"`([\w./-]+\.(?:md|py))`", read("AGENTS.md"))
    assert [name for name in named if not (ROOT / name).exists()] == []
