"""The same model, data and loss have the same digest in every process; a changed one has another."""

import pytest
import torch
from torch import nn

from hessdiag.data.batch import Batch
from hessdiag.execution.identity import (
    UNREPEATABLE,
    digest_of_attributes,
    digest_of_batch,
    digest_of_code,
    digest_of_loss,
    digest_of_model,
    digest_of_outputs,
)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv1d(1, 2, 3), nn.BatchNorm1d(2), nn.ReLU()).eval()


def changed_weight(m: nn.Module) -> nn.Module:
    m[0].weight.data[0, 0, 0] += 1e-7
    return m


def changed_buffer(m: nn.Module) -> nn.Module:
    m[1].running_mean[0] = 1.0
    return m


def changed_stride(m: nn.Module) -> nn.Module:
    m[0].stride = (2,)
    return m


def test_equal_models_have_equal_digests() -> None:
    assert digest_of_model(model()) == digest_of_model(model())


@pytest.mark.parametrize("change", [changed_weight, changed_buffer, changed_stride, nn.Module.train, nn.Module.double])
def test_any_change_shows(change) -> None:
    assert digest_of_model(change(model())) != digest_of_model(model())


def test_batches() -> None:
    x, t = torch.randn(3, 2), torch.tensor([0, 1, 2])
    digests = {
        digest_of_batch(Batch.of(*each))
        for each in [(x, None), (x, t), (x.double(), t), (x.flip(0), t), ({"x": x}, t), ({"y": x}, t), ((x, 2), t)]
    }
    assert len(digests) == 7
    assert digest_of_batch(Batch.of(x, t)) == digest_of_batch(Batch.of(x.clone(), t.clone()))


def test_losses_differ_by_their_code() -> None:
    assert digest_of_loss("mse") == "mse"
    assert digest_of_loss(lambda y, t: y.sum()) != digest_of_loss(lambda y, t: y.mean())
    assert digest_of_loss(nn.MSELoss()) == digest_of_loss(nn.MSELoss())


class Plain(nn.Linear):
    """A user's layer."""

    def forward(self, x):
        return super().forward(x)


class Edited(nn.Linear):
    """The same after an edit."""

    def forward(self, x):
        return 2 * super().forward(x)


Edited.__name__ = Edited.__qualname__ = "Plain"


def built(kind: type[nn.Module] = Plain) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(kind(3, 2), nn.Tanh())


def test_an_edited_forward_is_other_code_with_the_same_weights_and_text() -> None:
    assert digest_of_model(built()) == digest_of_model(built(Edited))
    assert digest_of_code(built()) == digest_of_code(built()) != digest_of_code(built(Edited))


def set_number(m: nn.Module) -> None:
    m[0].slope = 0.5


def set_tensor(m: nn.Module) -> None:
    m[1].mask = torch.tensor([1.0, 0.0])


def set_function(m: nn.Module) -> None:
    m[0].forward = lambda x: x


def add_hook(m: nn.Module) -> None:
    m[0].register_forward_hook(lambda module, args, y: -y)


CHANGES = [set_number, set_tensor, set_function, add_hook]


@pytest.mark.parametrize("change", CHANGES)
def test_attributes_that_no_text_shows(change) -> None:
    plain, changed, again = built(), built(), built()
    change(changed)
    change(again)
    assert digest_of_model(plain) == digest_of_model(changed)
    assert digest_of_attributes(changed) == digest_of_attributes(again) != digest_of_attributes(plain)


def test_parts_that_point_at_each_other() -> None:
    m = built()
    m[0].parent, m[1].beside = [m], m[0].weight
    assert digest_of_attributes(m) != digest_of_attributes(built())


def outputs(m: nn.Module, x: torch.Tensor) -> str:
    return digest_of_outputs(m, Batch.of(x, None), seed=0)


def test_outputs_are_those_of_the_first_examples_in_one_thread() -> None:
    x = torch.randn(5, 3)
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    digests = [outputs(built(kind), value) for kind in (Plain, Edited) for value in (x, x[:2], x.flip(0))]
    assert digests[0] == digests[1] != digests[2]
    assert len(set(digests)) == 4
    try:
        torch.set_num_threads(threads + 1)
        again = [outputs(built(), x), str(torch.get_num_threads())]
    finally:
        torch.set_num_threads(threads)
    assert again == [digests[0], str(threads + 1)]
    torch.set_rng_state(state)
    m = nn.Sequential(built(), nn.BatchNorm1d(2), nn.Dropout(0.5))
    torch.set_rng_state(state)
    assert outputs(m, x) == outputs(m, x) != UNREPEATABLE
    assert int(m[1].num_batches_tracked) == 0
    assert torch.equal(torch.get_rng_state(), state)


def test_a_model_that_is_another_each_time_is_known_by_that() -> None:
    import random

    class Moody(nn.Linear):
        def forward(self, x):
            return super().forward(x) * random.random()

    assert outputs(Moody(3, 2), torch.ones(2, 3)) == UNREPEATABLE


def closed_over(scale: float):
    return lambda y, t: scale * y.square().mean()


def test_a_loss_is_known_by_what_it_closes_over() -> None:
    assert digest_of_loss(closed_over(1.0)) == digest_of_loss(closed_over(1.0)) != digest_of_loss(closed_over(2.0))
    assert digest_of_loss(nn.HuberLoss(delta=1.0)) != digest_of_loss(nn.HuberLoss(delta=2.0))
