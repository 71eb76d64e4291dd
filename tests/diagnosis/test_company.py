"""Networks and processes that came to measurements unasked: measured right, or refused in a sentence."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hessdiag
from hessdiag.errors import HessdiagError
from tests.diagnosis.test_pitfalls import measured_right
from tests.kinds import rows
from tests.networks import Net


def clip() -> nn.Module:
    def forward(m: Any, x: Tensor) -> Tensor:
        image, text = F.normalize(m.image(x), dim=-1), F.normalize(m.text(m.tokens), dim=-1)
        return m.logit_scale.exp() * image @ text.T + m.bias

    parts = {"logit_scale": nn.Parameter(torch.tensor(0.3)), "bias": nn.Parameter(torch.randn(3))}
    return Net(forward, image=nn.Linear(4, 5), text=nn.Linear(2, 5), tokens=nn.Parameter(torch.randn(3, 2)), **parts)


def diagonal() -> nn.Module:
    held = {"weight": nn.Parameter(torch.randn(4)), "bias": nn.Parameter(torch.ones(4))}
    return Net(lambda m, x: x * m.weight + m.bias, **held)


def centres() -> nn.Module:
    return Net(lambda m, x: -torch.cdist(m.l(x), m.centres), l=nn.Linear(4, 3), centres=nn.Parameter(torch.randn(5, 3)))


def empty_before() -> nn.Module:
    with pytest.warns(UserWarning, match="zero-element"):
        return nn.Sequential(nn.Linear(4, 0), nn.Linear(0, 3))


def empty_beside() -> nn.Module:
    with pytest.warns(UserWarning, match="zero-element"):
        return Net(lambda m, x: torch.cat([m.none(x), m.some(x)], 1), none=nn.Linear(4, 0), some=nn.Linear(4, 3))


def scaled_in_place() -> nn.Module:
    """Inputs have no gradient in training, and none here: their standard deviation would need what is written to."""

    def forward(m: Any, x: Tensor) -> Tensor:
        x = x - x.mean(1, keepdim=True)
        x /= x.std(1, keepdim=True)
        return m.l(x)

    return Net(forward, l=nn.Linear(4, 3))


@pytest.mark.parametrize("make", [clip, diagonal, centres, empty_beside, empty_before, scaled_in_place])
@pytest.mark.parametrize("per", ["example", "batch"])
def test_parameters_in_unusual_places(make: Callable[[], nn.Module], per: str) -> None:
    """In the root module, which rules look at, in distances, and of no entries."""
    assert measured_right(make().double(), rows(), matrix="ggn", per=per).signals is not None


def test_what_has_no_second_derivative_or_another_default_device_is_refused_and_a_mask_named() -> None:
    known = [(centres(), torch.randn(3, 4))] * (torch.__version__ < "2.15")  # which has those of a distance
    for model, x in (*known, (nn.EmbeddingBag(5, 4), torch.randint(5, (3, 2)))):
        with pytest.raises(HessdiagError, match=r"no way to a right hessian product.*try matrix='ggn'"):
            hessdiag.diagnose(model, x, matrix="hessian")
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    model[0].weight.register_hook(lambda gradient: gradient * torch.eye(3, 4))
    report = hessdiag.diagnose(model, torch.randn(3, 4))
    assert "0.weight" not in [block.name for block in report.blocks]
    assert "a hook of its own changes its gradient" in dict(report.skipped)["0.weight"]
    model, x = nn.Linear(4, 3), torch.randn(3, 4)
    told = r"default device is meta: measure inside `with torch\.device\('cpu'\):`"
    with torch.device("meta"):
        with pytest.raises(HessdiagError, match=told):
            hessdiag.diagnose(model, x)
        with torch.device("cpu"):
            assert hessdiag.diagnose(model, x).blocks


@pytest.mark.parametrize("matrix", ["ggn", "hessian"])
def test_gradients_that_an_embedding_scales_are_measured_as_the_loss_has_them(matrix: str) -> None:
    model = Net(lambda m, i: m.last(m.rows(i).mean(1)), rows=nn.Embedding(5, 4), last=nn.Linear(4, 3)).double()
    x = torch.tensor([[0, 0, 1], [2, 0, 2]])
    plain = hessdiag.diagnose(model, x, matrix=matrix, method="exact")
    model.rows.scale_grad_by_freq = True
    scaled = hessdiag.diagnose(model, x, matrix=matrix, method="exact")
    assert model.rows.scale_grad_by_freq
    for mine, theirs in zip(scaled.blocks, plain.blocks, strict=True):
        assert mine.avg_sq_singular_value == pytest.approx(theirs.avg_sq_singular_value, rel=1e-10)


class Unwilling(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        raise KeyError("no way back")


def made_in_inference_mode() -> nn.Module:
    with torch.inference_mode():
        return nn.Linear(4, 3)


@pytest.mark.parametrize(("model", "message"), [
    (Net(lambda m, x: Unwilling.apply(m.l(x)), l=nn.Linear(4, 3)), r"backward pass fails \(KeyError: 'no way back'\)"),
    (made_in_inference_mode(), "'weight' was made in inference mode"),
    (Net(lambda m, x: x, type=nn.Linear(4, 3)), "the name of a method of nn.Module, 'type': rename it"),
])  # fmt: skip
@pytest.mark.parametrize("matrix", ["ggn", "hessian"])
def test_networks_without_derivatives_are_refused(model: nn.Module, message: str, matrix: str) -> None:
    with pytest.raises(HessdiagError, match=message):
        hessdiag.diagnose(model, torch.randn(3, 4), matrix=matrix)


def test_names_that_spreadsheets_compute_and_files_cannot_hold(tmp_path: Path) -> None:
    model = nn.Sequential()
    for name in ("=1+1", "bell\a", "half\ud800"):
        model.add_module(name, nn.Linear(3, 3, bias=False))
    text = hessdiag.diagnose(model, torch.randn(4, 3)).to_csv(tmp_path / "blocks.csv")
    names = [line.partition(",")[0] for line in text.splitlines()[1:]]
    assert names == ["'=1+1.weight", "bell�.weight", "half�.weight"]
    (tmp_path / "deep.json").write_text('{"a": ' + "[" * 100_000)
    with pytest.raises(HessdiagError, match=r"is not valid JSON \(.*recursion.*\): expected a hessdiag\.report/2 file"):
        hessdiag.Report.from_json(tmp_path / "deep.json")


def test_interrupts_of_a_hessian_are_keyboard_interrupts() -> None:
    model, x = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 4)), torch.randn(8, 6)
    hessdiag.diagnose(model, x, matrix="hessian", method="exact")  # imports what an interrupt would leave half imported
    before, interrupted = signal.signal(signal.SIGALRM, signal.default_int_handler), 0
    try:
        for number in range(10):
            signal.setitimer(signal.ITIMER_REAL, 0.01 * 1.6**number)
            try:
                hessdiag.diagnose(model, x, matrix="hessian", method="exact")
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupted += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupted
    assert hessdiag.diagnose(model, x).verdict
