"""Further bugs, held apart: scored once before any rule was changed for them."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    LlamaConfig,
    LlamaForCausalLM,
    ViTConfig,
    ViTForImageClassification,
)

from tests.gallery.case import Batch, Build, Case, Variant
from tests.gallery.convolutional import calibrate
from tests.gallery.data import VOCABULARY, images, masked_text, text
from tests.gallery.healthy import FirstOutput, NanoGPT, Recurrent, ResNet18, lenet
from tests.gallery.language import gpt2
from tests.gallery.plain import dense, points

Damage = Callable[[nn.Module], None]


def damaged(build: Callable[[int], nn.Module], damage: Damage) -> Build:
    """The network as built, and with something overwritten."""

    def make(variant: Variant, width: int) -> nn.Module:
        model = build(width)
        if variant == "before":
            damage(model)
        return model

    return make


def normal(ending: str, std: float) -> Damage:
    def damage(model: nn.Module) -> None:
        for name, parameter in model.named_parameters():
            if name.endswith(ending):
                nn.init.normal_(parameter, std=std)

    return damage


def times(ending: str, factor: float) -> Damage:
    def damage(model: nn.Module) -> None:
        for name, parameter in model.named_parameters():
            if name.endswith(ending):
                parameter.data *= factor

    return damage


def fill(ending: str, value: float) -> Damage:
    def damage(model: nn.Module) -> None:
        for name, parameter in model.named_parameters():
            if name.endswith(ending):
                parameter.data.fill_(value)

    return damage


def bert(width: int) -> nn.Module:
    config = BertConfig(
        hidden_size=width, num_hidden_layers=4, num_attention_heads=4, vocab_size=VOCABULARY,
        intermediate_size=2 * width, tie_word_embeddings=False,
    )  # fmt: skip
    return FirstOutput(BertForMaskedLM(config))


def vit(width: int) -> nn.Module:
    config = ViTConfig(
        image_size=32, patch_size=8, num_labels=10, hidden_size=width, num_attention_heads=4, num_hidden_layers=6,
        intermediate_size=2 * width,
    )  # fmt: skip
    return FirstOutput(ViTForImageClassification(config))


def llama(width: int) -> nn.Module:
    config = LlamaConfig(
        hidden_size=width,
        num_hidden_layers=6,
        num_attention_heads=4,
        vocab_size=VOCABULARY,
        intermediate_size=2 * width,
    )
    model = LlamaForCausalLM(config)
    for name, parameter in model.named_parameters():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            nn.init.normal_(parameter, std=0.02 / math.sqrt(12))
    return FirstOutput(model)


def relu_net(width: int) -> nn.Module:
    return dense([32] + [width] * 6 + [10], nn.ReLU, variance=2.0)


def tapering(width: int) -> nn.Module:
    return dense([32, 2 * width, width, width // 2, width // 4, width // 8, 10], nn.ReLU, variance=2.0)


def transposed_fans(model: nn.Module) -> None:
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=math.sqrt(2 / layer.out_features))


def sigmoid_net(width: int) -> nn.Module:
    return dense([32] + [width] * 3 + [10], nn.Sigmoid, variance=4.0)


def tanh_net(width: int) -> nn.Module:
    return dense([32] + [width] * 12 + [10], nn.Tanh, variance=1.0)


def shrink_tanh(model: nn.Module) -> None:
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            layer.weight.data.mul_(0.3)


def grow_sigmoid(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if name.endswith("weight") and not name.startswith("6"):
            parameter.data.mul_(15)


def gru(width: int) -> nn.Module:
    return Recurrent(nn.GRU, width)


def gru_gate(model: nn.Module) -> None:
    weight = model.get_parameter("rnn.weight_hh_l0")
    weight.data[: len(weight) // 3] *= 6


class Scaled(nn.Module):
    """A classifier whose logits are multiplied."""

    def __init__(self, width: int, factor: float) -> None:
        super().__init__()
        self.body = dense([32, width, width], nn.ReLU, variance=2.0)
        self.head = nn.Linear(width, 10, bias=False)
        nn.init.normal_(self.head.weight, std=width**-0.5)
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * self.head(torch.relu(self.body(x)))


def scaled(variant: Variant, width: int) -> nn.Module:
    return Scaled(width, 30.0 if variant == "before" else 0.5)


class Unscaled(nn.Module):
    """A causal attention layer on embedded tokens, with or without the logits' factor 1/√d."""

    def __init__(self, width: int, scale: float | None) -> None:
        super().__init__()
        self.embedding, self.norm = nn.Embedding(VOCABULARY, width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.head, self.scale = nn.Linear(width, VOCABULARY), scale
        nn.init.normal_(self.embedding.weight, std=0.02)
        for layer in (self.query, self.key, self.value, self.out):
            nn.init.xavier_uniform_(layer.weight)
        nn.init.normal_(self.head.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        h = self.norm(x)
        q, k, v = (f(h).unflatten(-1, (2, -1)).transpose(1, 2) for f in (self.query, self.key, self.value))
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.scale)
        return self.head(x + self.out(y.transpose(1, 2).flatten(2)))


def unscaled(variant: Variant, width: int) -> nn.Module:
    return Unscaled(width, 1.0 if variant == "before" else None)


class Unused(nn.Module):
    """A layer that the forward pass forgets."""

    def __init__(self, width: int, used: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(32, width), *(nn.Linear(width, width) for _ in range(4))])
        self.head = nn.Linear(width, 10)
        self.used = used
        for layer in self.layers:
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        for index, layer in enumerate(self.layers):
            if self.used or index != 3:
                x = torch.relu(layer(x))
        return self.head(x)


def unused(variant: Variant, width: int) -> nn.Module:
    return Unused(width, variant == "after")


def raw_images(seed: int, width: int) -> Batch:
    pictures, labels = images(seed)
    return pictures * 60 + 120, labels


def calibrated_resnet(width: int) -> nn.Module:
    model = ResNet18(width)
    calibrate(model)
    return model


def grow_after(model: nn.Module) -> None:
    """Ten times the weights of one convolution, statistics taken before."""
    model.get_parameter("blocks.4.conv1.weight").data *= 10


def deep_plain(width: int) -> nn.Module:
    model = dense([32] + [width] * 4 + [10], nn.ReLU, variance=2.0)
    nn.init.xavier_normal_(model[-1].weight)
    return model


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


def words(seed: int, width: int) -> Batch:
    return text(seed)


def masked(seed: int, width: int) -> Batch:
    return masked_text(seed)


def topics(seed: int, width: int) -> Batch:
    tokens, _ = text(seed, batch=16, length=32)
    return tokens, tokens[:, 0] % 10


def pictures(seed: int, width: int) -> Batch:
    return images(seed)


def lenet_of(width: int) -> nn.Module:
    model = lenet()
    nn.init.normal_(model[-1].weight, std=0.03)
    return model


def _tied(width: int) -> nn.Module:
    return NanoGPT(width)


def _extra(
    name: str, story: str, build: Callable[[int], nn.Module], damage: Damage, draw: object, *guilty: str
) -> Case:
    return Case(
        name=name, source="", story=story, make=damaged(build, damage), draw=draw, guilty=guilty,  # type: ignore[arg-type]
    )  # fmt: skip


def _resnet_gain() -> Case:
    return Case(
        name="gain-10-resnet", source="", story="ten times one convolution",
        make=damaged(calibrated_resnet, grow_after), draw=pictures, guilty=("blocks.4.conv1.weight",),
        widths=(32, 40, 48),
    )  # fmt: skip


EXTRA: tuple[Case, ...] = (
    _extra("bert-head", "head, std 0.5", bert, normal("predictions.decoder.weight", 0.5), masked, "*decoder.weight"),
    _extra("gru-gate", "one gate of hh six times too large", gru, gru_gate, topics, "rnn.weight_hh_l0"),
    _extra("tied-embedding", "tied embedding N(0, 1)", _tied, normal("wte.weight", 1.0), words, "*wte.weight"),
    _extra(
        "llama-residual", "residual projections at twice the width's std", llama,
        lambda m: [normal(e, 0.02)(m) for e in ("o_proj.weight", "down_proj.weight")] and None,
        words, "*o_proj.weight", "*down_proj.weight",
    ),
    _extra("std-0.2", "one layer drew std 0.2", vit, normal("3.mlp.fc1.weight", 0.2), pictures, "*3.mlp.fc1.weight"),
    _extra("gain-10", "ten times one layer of an MLP", relu_net, times("6.weight", 10.0), points, "6.weight"),
    _resnet_gain(),
    _extra("transposed-fan", "fan-out for fan-in in a tapering MLP", tapering, transposed_fans, points, "*.weight"),
    _extra("norm-gain-zero", "one gain of a norm is zero", gpt2, fill("ln_f.weight", 0.0), words, "*ln_f.weight"),
    _extra("dead-relu", "a bias of -30 before a ReLU", relu_net, fill("4.bias", -30.0), points, "4.bias", "4.weight"),
    Case(name="unused-layer", source="", story="a layer that is never called", make=unused, draw=points,
         guilty=("layers.3.*",)),
    _extra("huge-bias", "biases N(0, 10²)", relu_net, normal("6.bias", 10.0), points, "6.bias", "6.weight"),
    Case(name="raw-inputs", source="", story="inputs 0 to 255", make=lambda variant, width: lenet_of(width),
         draw=raw_images, guilty=("0.weight", "0.bias")),
    Case(name="logit-scale", source="", story="logits times 30", make=scaled, draw=points, guilty=("head.weight",)),
    Case(name="unscaled-attention", source="", story="logits without 1/√d", make=unscaled, draw=words,
         guilty=("query.weight", "key.weight")),
    _extra("sigmoid-saturation", "weights 15 times too large before sigmoids", sigmoid_net, grow_sigmoid, points,
           "0.weight", "2.weight", "4.weight"),
    _extra("vanishing-tanh", "gain 0.3 in a deep tanh net", tanh_net, shrink_tanh, points, "*.weight"),
    _extra("packed-part", "v in a packed projection six times too large", packed, part_of_packed, words,
           "2.self_attn.in_proj_weight"),
)  # fmt: skip
