"""The state of a training after an epoch, in a file, so that a killed run goes on exactly where it was."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hessdiag.errors import HessdiagError
from hessdiag.execution.ranks import Ranks
from hessdiag.results.files import write_bytes
from hessdiag.results.training_runs import Epoch


def save_state(
    path: Path,
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    epochs: list[Epoch],
    identity: Mapping[str, str],
) -> None:
    """Write weights, momenta and what the epochs came to, through a temporary file beside it."""
    write_bytes(
        path,
        packed(
            {
                "identity": dict(identity),
                "epochs": [asdict(epoch) for epoch in epochs],
                "network": network.state_dict(),
                "optimizer": optimizer.state_dict(),
            }
        ),
    )


def load_state(
    path: Path,
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    identity: Mapping[str, str],
    *,
    ranks: Ranks,
) -> list[Epoch]:
    """Put back what `save_state` wrote, on all ranks, and return the epochs that are done; none without a file.

    Only the first rank reads the file, which may be on its machine alone.

    Raises:
        HessdiagError: the file is damaged, or of another training.
    """
    content, problem = None, ""
    try:
        content = path.read_bytes() if ranks.rank == 0 and path.exists() else None
    except OSError as error:
        problem = f"cannot resume from {str(path)!r} ({error.strerror}): make it readable, or delete it"
    content, problem = ranks.from_first((content, problem))
    if problem:
        raise HessdiagError(problem)
    if content is None:
        return []
    state = _unpacked(content, path)
    for key, now in identity.items():
        was = state["identity"].get(key, "not asked for")
        if was != now:
            raise HessdiagError(
                f"cannot resume from {str(path)!r}: it is of another training, {key} was {was} and is {now}; name"
                " another --resume file or delete this one"
            )
    network.load_state_dict(state["network"])
    optimizer.load_state_dict(state["optimizer"])
    return [Epoch(**epoch) for epoch in state["epochs"]]


def packed(value: Any) -> bytes:
    """Return what `torch.save` writes."""
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


def _unpacked(content: bytes, path: Path) -> dict[str, Any]:
    try:
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        if {"identity", "epochs", "network", "optimizer"} - set(state):
            raise ValueError("it is no state of a training")
    except Exception as error:  # damaged files raise nearly anything
        reason = " ".join(str(error).split())[:80]
        raise HessdiagError(f"cannot resume from {str(path)!r} ({reason}): delete it and start again") from error
    return dict(state)
