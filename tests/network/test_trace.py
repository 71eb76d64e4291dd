"""What the hooks see, and that they leave."""

import math

import torch
from torch import nn

import hessdiag
from hessdiag.data.batch import Batch
from hessdiag.network.blocks import find_blocks
from hessdiag.network.trace import backpropagate, run_dry, trace
from tests.networks import build


def test_cotangents_sent_back_together_some_at_a_time_or_from_before_the_outputs_are_alike() -> None:
    model, x = build("groupnorm")
    seen = trace(model, Batch.of(x, None), ["0"])
    cotangents = torch.randn(4, *seen.y.shape).to(x)
    (together,) = backpropagate(seen.y, [seen.calls[0].output_edge], cotangents)
    for cotangent, got in zip(cotangents, together, strict=True):
        (alone,) = backpropagate(seen.y, [seen.calls[0].output_edge], cotangent[None])
        torch.testing.assert_close(got, alone[0])
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double(), torch.randn(5, 3).double()
    seen = trace(model, Batch.of(x, None), ["0", "2"])
    edges, v = [call.output_edge for call in seen.calls], torch.randn(3, 5, 2).double()
    whole, found = backpropagate(seen.y, edges, v), backpropagate(seen.y, edges, v, at_once=2)
    torch.testing.assert_close(found, whole)
    assert found[1] is v  # at the outputs themselves
    start = seen.calls[1].input_edge
    assert start is not None
    (before,) = backpropagate(start, edges[:1], v @ model[2].weight.detach(), at_once=2)
    torch.testing.assert_close(before, whole[0])


def test_a_layer_is_seen_without_what_a_hook_makes_of_its_output() -> None:
    """A multiplier behind a layer scales the gradients that reach it, and is no part of the layer."""
    model, x = build("mlp")
    bare = hessdiag.diagnose(model, x).blocks
    hessdiag.surgery.insert_scale(model, 3.0, after="2")
    scaled = hessdiag.diagnose(model, x).blocks
    assert [block.name for block in scaled] == [block.name for block in bare]
    for name in ("2.weight", "2.bias"):
        before, after = (next(b for b in blocks if b.name == name) for blocks in (bare, scaled))
        assert after.weight_sq == before.weight_sq
        assert math.isfinite(after.gamma)
    model[2].output_scale.factor.fill_(1.0)
    assert hessdiag.diagnose(model, x).blocks == bare


def test_weights_that_attention_uses_without_a_call_of_their_layer_are_known_after_one_call() -> None:
    """They need no second pass; a layer that nothing calls at all is no such one."""
    model = nn.ModuleDict({"encoder": nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), "idle": nn.Linear(8, 8)})
    model.forward = lambda x: model["encoder"](x)  # type: ignore[method-assign]
    blocks, _ = find_blocks(model)
    read = run_dry(model.eval(), Batch.of(torch.randn(2, 5, 8), None), blocks).blocks
    unread = {block.name for block in read if not block.structured} - {b.name for b in blocks if not b.structured}
    assert unread == {"encoder.self_attn.out_proj.weight", "encoder.self_attn.out_proj.bias"}
