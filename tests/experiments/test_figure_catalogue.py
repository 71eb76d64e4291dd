"""The list of figures: what the help says is there, and the files that are kept can still be read and drawn."""

from pathlib import Path

import pytest

from hessdiag.errors import HessdiagError
from hessdiag.experiments.figure_catalogue import CATALOGUE, find_figure

FIGURES = Path(__file__).parents[2] / "figures"


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_figure_is_called_what_the_command_calls_it(name: str) -> None:
    figure = find_figure(name)
    assert figure.name == name
    assert 0 < figure.steps(quick=True) <= figure.steps(quick=False)


@pytest.mark.parametrize("name", CATALOGUE)
def test_kept_numbers_are_read_and_written_to_the_byte(name: str, tmp_path: Path) -> None:
    figure = find_figure(name)
    measured = figure.read(FIGURES / f"{name}.json")
    figure.write(measured, tmp_path / "again.json")
    assert figure.read(tmp_path / "again.json") is not measured
    assert (tmp_path / "again.json").read_text() == (FIGURES / f"{name}.json").read_text()
    assert figure.summary(measured) == figure.summary(figure.read(tmp_path / "again.json"))


def test_a_part_is_a_figure_of_its_own_and_the_first_one_the_default() -> None:
    assert find_figure("resnet", part="conditioning") is find_figure("resnet")
    assert find_figure("resnet", part="training").name == "resnet-training"
    assert find_figure("resnet", part="cifar").name == "resnet-cifar"


@pytest.mark.parametrize(
    ("name", "part", "said"),
    [
        ("resnet", "trainig", "--part 'trainig': use conditioning or cifar or training"),
        ("ratios", "training", "--part 'training': ratios has no parts, leave it out"),
    ],
)
def test_a_part_that_is_not_there_is_refused(name: str, part: str, said: str) -> None:
    with pytest.raises(HessdiagError, match=f"^{said}$"):
        find_figure(name, part=part)
