"""Torch's global random state is set and put back."""

import pytest
import torch

from hessdiag.network.torch_state import seed_torch, seeded_rng


def test_what_is_drawn_is_what_torch_draws(device: str) -> None:
    torch.manual_seed(7)
    theirs = torch.rand(3, device=device)
    seed_torch(7, [0] if device == "cuda" else [])
    assert torch.equal(torch.rand(3, device=device), theirs)
    with seeded_rng(7):
        assert torch.equal(torch.rand(3, device=device), theirs)


def test_the_users_state_is_put_back_also_after_an_error(device: str) -> None:
    torch.manual_seed(1)
    torch.rand(2, device=device)
    torch.manual_seed(1)
    with seeded_rng(7):
        torch.rand(5, device=device)
    with pytest.raises(KeyError), seeded_rng(8):
        raise KeyError
    after = torch.rand(3, device=device)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(3, device=device), after)


def test_nothing_is_kept_for_devices_that_are_not_in_use() -> None:
    """`torch.manual_seed` keeps a stack trace a call, which a long training with measurements would gather."""
    kept = len(torch.cuda._queued_calls)
    for seed in range(3):
        with seeded_rng(seed):
            seed_torch(seed)
    assert len(torch.cuda._queued_calls) == kept
