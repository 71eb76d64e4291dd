"""Further bugs, held apart: scored once before any rule was changed for them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.gallery.case import Batch, Build, Case, Draw, Variant
from tests.gallery.convolutional import calibrate
from tests.gallery.data import VOCABULARY, images, masked_text, points, text, topics
from tests.gallery.healthy import lenet, nanogpt, recurrent, resnet18
from tests.gallery.language import configured, draw_normal, gpt2, heads
from tests.gallery.plain import dense
from tests.networks import Net

Damage = Callable[[nn.Module], object]
OfWidth = Callable[[int], nn.Module]


def damaged(build: OfWidth, damage: Damage) -> Build:
    """The network as built, and with something overwritten."""

    def make(variant: Variant, width: int) -> nn.Module:
        model = build(width)
        if variant == "before":
            damage(model)
        return model

    return make


def either(build: Callable[[int, Any], nn.Module], before: Any, after: Any) -> Build:
    """Two networks that differ in an argument."""
    return lambda variant, width: build(width, before if variant == "before" else after)


def case(
    name: str, story: str, build: OfWidth | Build, damage: Damage | None, draw: Draw, *guilty: str, **options: Any
) -> Case:
    """A network and its damage, or the two networks."""
    make = build if damage is None else damaged(build, damage)  # type: ignore[arg-type]
    return Case(name=name, source="", story=story, make=make, draw=draw, guilty=guilty, **options)  # type: ignore[arg-type]


def on(ending: str, change: Callable[[Tensor], object]) -> Damage:
    """Change the parameters whose names end so."""
    return lambda model: [change(p.data) for name, p in model.named_parameters() if name.endswith(ending)]


def normal(ending: str | tuple[str, ...], std: float) -> Damage:
    return lambda model: draw_normal(model, ending, std)


def times(ending: str, factor: float) -> Damage:
    return on(ending, lambda p: p.mul_(factor))


def fill(ending: str, value: float) -> Damage:
    return on(ending, lambda p: p.fill_(value))


def all_of(*damages: Damage) -> Damage:
    return lambda model: [damage(model) for damage in damages]


def bert(width: int) -> nn.Module:
    return configured(
        "BertForMaskedLM", hidden_size=width, num_hidden_layers=4, num_attention_heads=4, vocab_size=VOCABULARY,
        intermediate_size=2 * width, tie_word_embeddings=False,
    )()  # fmt: skip


def vit(width: int) -> nn.Module:
    return configured(
        "ViTForImageClassification", image_size=32, patch_size=8, num_labels=10, hidden_size=width,
        num_attention_heads=4, num_hidden_layers=6, intermediate_size=2 * width,
    )()  # fmt: skip


RESIDUAL = ("o_proj.weight", "down_proj.weight")


def llama(width: int) -> nn.Module:
    model = configured(
        "LlamaForCausalLM", hidden_size=width, num_hidden_layers=6, num_attention_heads=4, vocab_size=VOCABULARY,
        intermediate_size=2 * width,
    )()  # fmt: skip
    return draw_normal(model, RESIDUAL, 0.02 / math.sqrt(12))


def relu_net(width: int) -> nn.Module:
    return dense([32] + [width] * 6 + [10], nn.ReLU, variance=2.0)


def tapering(width: int) -> nn.Module:
    return dense([32, 2 * width, width, width // 2, width // 4, width // 8, 10], nn.ReLU, variance=2.0)


def transposed_fans(model: nn.Module) -> None:
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=math.sqrt(2 / layer.out_features))


def gru_gate(model: nn.Module) -> None:
    weight = model.get_parameter("rnn.weight_hh_l0")
    weight.data[: len(weight) // 3] *= 6


def scaled(width: int, factor: float) -> nn.Module:
    """A classifier whose logits are multiplied."""
    body, head = dense([32, width, width], nn.ReLU, variance=2.0), nn.Linear(width, 10, bias=False)
    nn.init.normal_(head.weight, std=width**-0.5)
    return Net(lambda m, x: factor * m.head(torch.relu(m.body(x))), body=body, head=head)


def unscaled(width: int, scale: float | None) -> nn.Module:
    """A causal attention layer on embedded tokens, with or without the logits' factor 1/√d."""

    def forward(m: Any, tokens: Tensor) -> Tensor:
        x = m.embedding(tokens)
        q, k, v = heads(m.norm(x), (m.query, m.key, m.value), 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
        return m.head(x + m.out(y.transpose(1, 2).flatten(2)))

    embedding, norm = nn.Embedding(VOCABULARY, width), nn.LayerNorm(width)
    layers = {name: nn.Linear(width, width) for name in ("query", "key", "value", "out")}
    model = Net(forward, embedding=embedding, norm=norm, **layers, head=nn.Linear(width, VOCABULARY))
    nn.init.normal_(model.embedding.weight, std=0.02)
    for layer in layers.values():
        nn.init.xavier_uniform_(layer.weight)
    nn.init.normal_(model.head.weight, std=0.02)
    return model


def unused(width: int, used: bool) -> nn.Module:
    """A layer that the forward pass forgets."""

    def forward(m: Any, x: Tensor) -> Tensor:
        for index, layer in enumerate(m.layers):
            if used or index != 3:
                x = torch.relu(layer(x))
        return m.head(x)

    layers = nn.ModuleList([nn.Linear(32, width), *(nn.Linear(width, width) for _ in range(4))])
    model = Net(forward, layers=layers, head=nn.Linear(width, 10))
    for layer in layers:
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return model


def raw_images(seed: int) -> Batch:
    pictures, labels = images(seed)
    return pictures * 60 + 120, labels


def calibrated_resnet(width: int) -> nn.Module:
    return calibrate(resnet18(width))


def packed(width: int) -> nn.Module:
    layers = [nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True, norm_first=True) for _ in range(4)]
    model = nn.Sequential(nn.Embedding(VOCABULARY, width), *layers, nn.LayerNorm(width), nn.Linear(width, VOCABULARY))
    for layer in layers:  # a part for each of q, k, v
        for part in layer.self_attn.in_proj_weight.data.chunk(3):
            nn.init.xavier_uniform_(part)
    nn.init.normal_(model[-1].weight, std=0.02)
    return model


def part_of_packed(model: nn.Module) -> None:
    model.get_parameter("2.self_attn.in_proj_weight").data.chunk(3)[2].mul_(6)


def lenet_of(width: int) -> nn.Module:
    model = lenet()
    nn.init.normal_(model[-1].weight, std=0.03)
    return model


EXTRA: tuple[Case, ...] = (
    case("bert-head", "head, std 0.5", bert, normal("predictions.decoder.weight", 0.5), masked_text, "*decoder.weight"),
    case("gru-gate", "one gate of hh six times too large", lambda width: recurrent(nn.GRU, width), gru_gate, topics,
         "rnn.weight_hh_l0"),
    case("tied-embedding", "tied embedding N(0, 1)", nanogpt, normal("wte.weight", 1.0), text, "*wte.weight"),
    case("llama-residual", "residual projections at twice the width's std", llama,
         all_of(*(normal(ending, 0.02) for ending in RESIDUAL)), text, "*o_proj.weight", "*down_proj.weight"),
    case("std-0.2", "one layer drew std 0.2", vit, normal("3.mlp.fc1.weight", 0.2), images, "*3.mlp.fc1.weight"),
    case("gain-10", "ten times one layer of an MLP", relu_net, times("6.weight", 10.0), points, "6.weight"),
    case("gain-10-resnet", "ten times one convolution", calibrated_resnet, times("blocks.4.conv1.weight", 10.0),
         images, "blocks.4.conv1.weight", widths=(32, 40, 48)),  # statistics are taken before
    case("transposed-fan", "fan-out for fan-in in a tapering MLP", tapering, transposed_fans, points, "*.weight"),
    case("norm-gain-zero", "one gain of a norm is zero", gpt2, fill("ln_f.weight", 0.0), text, "*ln_f.weight"),
    case("dead-relu", "a bias of -30 before a ReLU", relu_net, fill("4.bias", -30.0), points, "4.bias", "4.weight"),
    case("unused-layer", "a layer that is never called", either(unused, False, True), None, points, "layers.3.*"),
    case("huge-bias", "biases N(0, 10²)", relu_net, normal("6.bias", 10.0), points, "6.bias", "6.weight"),
    case("raw-inputs", "inputs 0 to 255", lambda variant, width: lenet_of(width), None, raw_images,
         "0.weight", "0.bias"),
    case("logit-scale", "logits times 30", either(scaled, 30.0, 0.5), None, points, "head.weight"),
    case("unscaled-attention", "logits without 1/√d", either(unscaled, 1.0, None), None, text,
         "query.weight", "key.weight"),
    case("sigmoid-saturation", "weights 15 times too large before sigmoids",
         lambda width: dense([32] + [width] * 3 + [10], nn.Sigmoid, variance=4.0),
         all_of(*(times(name, 15) for name in ("0.weight", "2.weight", "4.weight"))), points,
         "0.weight", "2.weight", "4.weight"),
    case("vanishing-tanh", "gain 0.3 in a deep tanh net",
         lambda width: dense([32] + [width] * 12 + [10], nn.Tanh, variance=1.0), times("weight", 0.3), points,
         "*.weight"),
    case("packed-part", "v in a packed projection six times too large", packed, part_of_packed, text,
         "2.self_attn.in_proj_weight"),
)  # fmt: skip
