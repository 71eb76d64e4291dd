"""What is a block and what is not, the sizes that the theory needs, and what the hooks see, and that they leave."""

import math
from collections import Counter

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import hessdiag
from hessdiag.data.batch import Batch
from hessdiag.network.blocks import Block, block_parameter, find_blocks
from hessdiag.network.trace import backpropagate, owners_of, run_dry, trace
from tests.layouts import own_forward
from tests.networks import BUILDERS, Multiplier, build, having
from tests.test_init import LAYERS


def blocks_of(model: nn.Module) -> dict[str, Block]:
    return {block.name: block for block in find_blocks(model)[0]}


def reasons_of(model: nn.Module) -> dict[str, str]:
    return dict(find_blocks(model)[1])


ONE = {"linear 1x1": (lambda: nn.Linear(1, 1), 1, 1, (), 1)}


@pytest.mark.parametrize("name", LAYERS | ONE)
def test_weight_and_bias_of_a_layer(name: str) -> None:
    make, fan_in, fed, *sizes = (LAYERS | ONE)[name]
    layer = make()
    found = blocks_of(nn.Sequential(layer))
    assert list(found) == ["0.weight", "0.bias"]
    for block, parameter in zip(found.values(), layer.parameters(), strict=True):
        assert (block.fan_in, block.fan_out, block.kernel, block.groups) == (fan_in, fed * sizes[-1], *sizes)
        assert block.shape == tuple(parameter.shape)
        assert block.numel == parameter.numel()
        assert block.layer == type(layer).__name__
        assert block.owners == ("0",)
    assert (found["0.weight"].kind, found["0.bias"].kind) == ("weight", "bias")
    assert (found["0.weight"].attribute, found["0.bias"].attribute) == ("weight", "bias")


def test_a_layer_on_its_own_a_tied_weight_and_a_subclass() -> None:
    found = blocks_of(nn.Linear(3, 2))
    assert list(found) == ["weight", "bias"]
    assert found["weight"].owners == ("",)
    assert list(blocks_of(nn.Linear(3, 2, bias=False))) == ["weight"]
    model, _ = build("tied")
    found = blocks_of(model)
    assert list(found) == ["first.weight", "first.bias", "second.bias", "last.weight", "last.bias"]
    assert found["first.weight"].owners == ("first", "second")
    assert found["second.bias"].owners == ("second",)
    assert owners_of(found.values()) == ["first", "second", "last"]
    block = blocks_of(nn.Sequential(own_forward(nn.Conv2d, nn.Conv2d.forward, 2, 3, 3)))["0.weight"]
    assert (block.kind, block.layer) == ("weight", "Own")
    model = nn.Module()
    model.last = nn.Linear(3, 5)
    model.bias = model.last.bias
    block = blocks_of(model)["bias"]
    assert (block.layer, block.owners, block.fan_in, block.structured) == ("Linear", ("last",), 3, True)


@pytest.mark.parametrize("make", [Multiplier, lambda: Multiplier(1.0), nn.PReLU])
def test_a_parameter_of_one_entry_is_a_scalar(make) -> None:
    (block,) = blocks_of(nn.Sequential(make())).values()
    assert (block.kind, block.numel, block.fan_in, block.fan_out, block.kernel) == ("scalar", 1, 1, 1, ())


@pytest.mark.parametrize(("layer", "reasons"), [
    (nn.LayerNorm(4), {"0.weight": "vector of 4 in LayerNorm", "0.bias": "vector of 4 in LayerNorm"}),
    (nn.PReLU(3), {"0.weight": "vector of 3 in PReLU"}),
    (nn.InstanceNorm2d(3, affine=True),
        {"0.weight": "vector of 3 in InstanceNorm2d", "0.bias": "vector of 3 in InstanceNorm2d"}),
    (nn.BatchNorm2d(3, affine=False), {}),
])  # fmt: skip
def test_other_parameters_are_listed_with_their_shape_and_layer(layer: nn.Module, reasons: dict[str, str]) -> None:
    found, skipped = find_blocks(nn.Sequential(layer))
    assert not found
    neither = ": neither a weight matrix, a bias nor a scalar"
    assert dict(skipped) == {name: why + neither for name, why in reasons.items()}


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_a_frozen_parameter_is_no_block(name: str) -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    model[0].get_parameter(name).requires_grad_(False)
    assert reasons_of(model) == {f"0.{name}": "frozen (requires_grad=False) in Linear"}
    assert f"0.{name}" not in blocks_of(model)
    assert len(blocks_of(model)) == 3


@pytest.mark.parametrize(("layer", "fans"), [
    (nn.EmbeddingBag(5, 3), (3, 5, ())), (nn.Embedding(5, 3, scale_grad_by_freq=True), (3, 5, ())),
    (own_forward(nn.Embedding, lambda m, numbers: 2 * nn.Embedding.forward(m, numbers), 5, 3), (3, 5, ())),
    (nn.Bilinear(2, 3, 4, bias=False), (2, 4, (3,))),
    (nn.ConvTranspose2d(4, 6, 2, groups=2, bias=False), (2, 6, (2, 2))),
])  # fmt: skip
def test_a_matrix_without_a_rule_is_a_block_all_the_same(layer: nn.Module, fans: tuple) -> None:
    (block,) = blocks_of(nn.Sequential(layer)).values()
    assert not block.structured
    assert (block.kind, block.fan_in, block.fan_out, block.kernel) == ("weight", *fans)


@pytest.mark.parametrize(("other", "structured"), [
    (None, True), (nn.Linear(3, 5, bias=False), True),
    (nn.Embedding(5, 3), True), (nn.Bilinear(3, 1, 5, bias=False), False),
], ids=["alone", "head", "embedding", "no rule"])  # fmt: skip
def test_an_embedding_has_no_gamma_and_is_one_block_with_what_is_tied_to_it(other, structured: bool) -> None:
    model = nn.Sequential(nn.Embedding(5, 3))
    if other is not None:
        other.weight = model[0].weight
        model.append(other)
    (block,) = blocks_of(model).values()
    assert block.owners == tuple(map(str, range(len(model))))
    assert (block.kind, block.fan_in, block.fan_out, block.kernel) == ("weight", 3, 5, ())
    assert block.looked_up
    assert not block.multiplies
    assert block.structured == structured


def every_kind() -> nn.Module:
    """Blocks and other parameters, shared, frozen and hidden in containers."""
    conv, head = nn.Conv1d(2, 2, 3, groups=2), nn.Linear(4, 4)
    conv.bias.requires_grad_(False)
    return having(
        nn.Module(), attention=nn.MultiheadAttention(4, 2),
        layers=nn.ModuleDict({"conv": conv, "norm": nn.BatchNorm1d(2)}),
        scales=nn.ParameterList([torch.ones(()), torch.ones(3)]), gain=nn.Parameter(torch.ones(2, 2)),
        recurrent=nn.GRU(3, 2), head=head, alias=head, tied=having(nn.Linear(4, 4, bias=False), weight=head.weight),
    )  # fmt: skip


def assert_each_parameter_once(model: nn.Module) -> None:
    found, skipped = find_blocks(model)
    named = [block.name for block in found] + [name for name, _ in skipped]
    assert Counter(named) == Counter(name for name, _ in model.named_parameters())
    assert all(reason for _, reason in skipped)


def test_every_parameter_is_a_block_or_listed() -> None:
    for network in BUILDERS:
        model, _ = build(network)
        assert_each_parameter_once(model)
        for block in find_blocks(model)[0]:
            assert block_parameter(model, block) is model.get_parameter(block.name)
    assert_each_parameter_once(every_kind())
    found = blocks_of(every_kind()).keys()
    assert {"layers.conv.weight", "scales.0", "head.weight", "attention.out_proj.weight"} <= found


@pytest.mark.parametrize("how", [parametrizations.weight_norm, parametrizations.spectral_norm])
def test_the_fans_of_a_parametrized_layers_bias_are_read_without_computing_its_weight(how) -> None:
    model = how(nn.Linear(4, 30))
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    found = blocks_of(model)
    assert (found["bias"].fan_in, found["bias"].fan_out) == (4, 30)
    assert all(torch.equal(buffer, buffers[name]) for name, buffer in model.named_buffers())


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
