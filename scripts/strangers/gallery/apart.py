"""Networks of the gallery that no test is made on, to score rules that were written without them.

`EXTRA` and `UNSEEN` were scored once before any rule was changed for them, `APART` holds healthy networks likewise, and
`VARIANTS` the public bugs in other networks than those that the rules were made on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from strangers.gallery import CASES, HEALTHY
from strangers.gallery.case import Batch, Build, Case, Draw, Healthy, Variant
from strangers.gallery.convolutional import calibrate, he, tower
from strangers.gallery.data import (
    VOCABULARY,
    images,
    masked_text,
    noise,
    pixels,
    points,
    rare,
    regression,
    text,
    topics,
)
from strangers.gallery.healthy import denoiser, detector, lenet, nanogpt, plain, recurrent, resnet18, trained
from strangers.gallery.language import configured, draw_normal, gpt2, heads
from strangers.gallery.plain import Sine, dense
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


def case(name: str, build: Any, damage: Damage | None, draw: Draw, *guilty: str, **options: Any) -> Case:
    """A network and its damage, or the two networks."""
    return Case(name, build if damage is None else damaged(build, damage), draw, guilty, **options)


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
    places = Net(lambda m, x: x + m.codes[: x.shape[1]], codes=nn.Buffer(torch.randn(512, width)))
    ends = nn.LayerNorm(width), nn.Linear(width, VOCABULARY)
    model = nn.Sequential(nn.Embedding(VOCABULARY, width), places, *layers, *ends)
    for layer in layers:  # a part for each of q, k, v
        for part in layer.self_attn.in_proj_weight.data.chunk(3):
            nn.init.xavier_uniform_(part)
    nn.init.normal_(model[-1].weight, std=0.02)
    return model


def part_of_packed(model: nn.Module) -> None:
    model.get_parameter("3.self_attn.in_proj_weight").data.chunk(3)[2].mul_(6)


def lenet_of(width: int) -> nn.Module:
    model = lenet()
    nn.init.normal_(model[-1].weight, std=0.03)
    return model


EXTRA: tuple[Case, ...] = (
    case("bert-head", bert, normal("predictions.decoder.weight", 0.5), masked_text, "*decoder.weight"),
    case("gru-gate", lambda width: recurrent(nn.GRU, width), gru_gate, topics,
         "rnn.weight_hh_l0"),
    case("tied-embedding", nanogpt, normal("wte.weight", 1.0), text, "*wte.weight"),
    case("llama-residual", llama,
         all_of(*(normal(ending, 0.02) for ending in RESIDUAL)), text, "*o_proj.weight", "*down_proj.weight"),
    case("std-0.2", vit, normal("3.mlp.fc1.weight", 0.2), images, "*3.mlp.fc1.weight"),
    case("gain-10", relu_net, times("6.weight", 10.0), points, "6.weight"),
    case("gain-10-resnet", calibrated_resnet, times("blocks.4.conv1.weight", 10.0),
         images, "blocks.4.conv1.weight", widths=(32, 40, 48)),  # statistics are taken before
    case("transposed-fan", tapering, transposed_fans, points, "*.weight"),
    case("norm-gain-zero", gpt2, fill("ln_f.weight", 0.0), text, "*ln_f.weight"),
    case("dead-relu", relu_net, fill("4.bias", -30.0), points, "4.bias", "4.weight"),
    case("unused-layer", either(unused, False, True), None, points, "layers.3.*"),
    case("huge-bias", relu_net, normal("6.bias", 10.0), points, "6.bias", "6.weight"),
    case("raw-inputs", lambda variant, width: lenet_of(width), None, raw_images,
         "0.weight", "0.bias"),
    case("logit-scale", either(scaled, 30.0, 0.5), None, points, "head.weight"),
    case("unscaled-attention", either(unscaled, 1.0, None), None, text,
         "query.weight", "key.weight"),
    case("sigmoid-saturation",
         lambda width: dense([32] + [width] * 3 + [10], nn.Sigmoid, variance=4.0),
         all_of(*(times(name, 15) for name in ("0.weight", "2.weight", "4.weight"))), points,
         "0.weight", "2.weight", "4.weight"),
    case("vanishing-tanh",
         lambda width: dense([32] + [width] * 12 + [10], nn.Tanh, variance=1.0), times("weight", 0.3), points,
         "*.weight"),
    case("packed-part", packed, part_of_packed, masked_text,
         "3.self_attn.in_proj_weight"),
)  # fmt: skip


def bn_gains(model: nn.Module) -> None:
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.normal_(layer.weight, 0.0, 0.02)


def residual_mlp(width: int, last: float, blocks: int = 24) -> nn.Module:
    """A residual MLP without normalisation."""

    def forward(m: Any, x: Tensor) -> Tensor:
        x = m.stem(x)
        for block in m.blocks:
            x = x + block(x)
        return m.head(x)

    ends = {"stem": nn.Linear(32, width), "head": nn.Linear(width, 10)}
    layers = nn.ModuleList(dense([width, width, width], nn.ReLU, variance=2.0) for _ in range(blocks))
    for block in layers:
        block[2].weight.data *= last
    return Net(forward, **ends, blocks=layers)


def raw_targets(seed: int) -> Batch:
    x, y = regression(seed)
    return x, 100 + 10 * y


def regressor(width: int, bias: float | None) -> nn.Module:
    model = dense([64, width, width, 4], nn.ReLU, variance=2.0)
    if bias is not None:
        model[-1].bias.data.fill_(bias)
    return model


def lenet_like(width: int) -> nn.Module:
    model = he(nn.Sequential(
        nn.Conv2d(3, width, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(width, 2 * width, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(50 * width, 256), nn.ReLU(), nn.Linear(256, 10),
    ))  # fmt: skip
    nn.init.normal_(model[-1].weight, std=0.03)
    return model


def overwrite_zeros(model: nn.Module) -> None:
    for block in model.blocks:
        nn.init.kaiming_normal_(block.conv2.weight)


SMALL = (32, 40, 48)
UNSEEN: tuple[Case, ...] = (
    case("lstm-hh", partial(recurrent, nn.LSTM), normal("weight_hh_l0", 1.0), topics, "rnn.weight_hh_l0"),
    case("patch-embedding", vit, times("patch_embeddings.projection.weight", 30.0), images,
         "*projection.weight"),
    case("wpe-1", gpt2, normal("wpe.weight", 1.0), text, "*wpe.weight"),
    case("constant-init", relu_net, fill("4.weight", 0.05), points, "4.weight"),
    case("two-zero-layers", relu_net, all_of(fill("4.weight", 0.0), fill("6.weight", 0.0)), points,
         "4.weight", "6.weight"),
    case("bn-gain-0.02", resnet18, bn_gains, images, "*bn?.weight", "*shortcut.1.weight", widths=SMALL),
    case("bn-bias-dead", calibrated_resnet, fill("blocks.3.bn1.bias", -10.0), images, "blocks.3.bn1.*",
         widths=SMALL),
    case("residual-mlp", either(residual_mlp, 1.0, 24**-0.5), None, points, "blocks.*.2.weight"),
    case("query-key-1", llama, normal(("q_proj.weight", "k_proj.weight"), 1.0), text,
         "*q_proj.weight", "*k_proj.weight"),
    case("raw-targets", either(regressor, None, 100.0), None, raw_targets, "4.bias", "4.weight",
         loss="mse"),
    case("detector-no-prior", lambda width: detector(), fill("4.bias", 0.0), rare,
         "4.bias", "4.weight"),
    case("embedding-1e-4", llama, normal("embed_tokens.weight", 1e-4), text, "*embed_tokens.weight"),
    case("gate-0.002", llama, normal("2.mlp.gate_proj.weight", 0.002), text, "*2.mlp.gate_proj.weight"),
    case("unet-not-zero", denoiser, overwrite_zeros, noise, "blocks.*.conv2.weight",
         loss="mse", widths=(32, 48, 64)),
    case("lenet-fc-gain", lenet_like, times("7.weight", 8.0), images, "7.weight", widths=SMALL),
    case("frozen-layer", relu_net,
         lambda model: model.get_parameter("6.weight").requires_grad_(False), points, "6.weight"),
)  # fmt: skip


def every_tensor_truncated(variant: Variant, width: int) -> nn.Module:
    """Entries at ±2 in one of 20000, in all tensors."""
    model = nanogpt(width)
    if variant == "before":
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.data[torch.rand_like(parameter) < 5e-5] = 2.0
    return model


def draw_xavier(layer: nn.Conv2d, variant: Variant) -> None:
    m, n, k, _ = layer.weight.shape
    fans = 2 * k + n + m if variant == "before" else k * k * (n + m)
    nn.init.normal_(layer.weight, std=math.sqrt(2 / fans))


def xavier_resnet(variant: Variant, width: int) -> nn.Module:
    """The tower with batch normalisation, fresh and in evaluation mode."""
    model = resnet18(width)
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d) and layer.kernel_size[0] == 3:
            draw_xavier(layer, variant)
    return model


def xavier_residual(variant: Variant, width: int) -> nn.Module:
    """A residual tower without normalisation."""
    model = tower(width, blocks=6)
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Conv2d):
            draw_xavier(layer, variant)
            if name.endswith("conv2") and variant == "after":
                layer.weight.data *= 6**-0.5
    nn.init.normal_(model.head.weight, std=0.05)
    return model


def separable_chain(width: int) -> nn.Module:
    """Depthwise and pointwise convolutions with batch normalisation, no skips (MobileNetV1)."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    for n, m in ((1, 2), (2, 2), (2, 4), (4, 4)):
        n, m = n * width, m * width
        layers += [nn.Conv2d(n, n, 3, 1, 1, groups=n, bias=False), nn.BatchNorm2d(n), nn.ReLU()]
        layers += [nn.Conv2d(n, m, 1, bias=False), nn.BatchNorm2d(m), nn.ReLU()]
    rule = lambda m, x: m.head(m.features(x).mean((2, 3)))  # noqa: E731
    return Net(rule, features=nn.Sequential(*layers), head=nn.Linear(4 * width, 10))


def separable(variant: Variant, width: int) -> nn.Module:
    """Fan-in of depthwise convolutions taken over all channels, as in Keras."""
    model = he(separable_chain(width))
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d) and layer.groups > 1 and variant == "before":
            layer.weight.data /= math.sqrt(layer.groups)
    nn.init.normal_(model.head.weight, std=0.05)
    return model


def peft_linear(base: nn.Linear) -> nn.Module:
    """A layer and its low-rank update as modules, as in peft."""
    down, up = nn.Linear(base.in_features, 8, bias=False), nn.Linear(8, base.out_features, bias=False)
    nn.init.zeros_(up.weight)
    return Net(lambda m, x: m.base(x) + 2 * m.lora_B(m.lora_A(x)), base=base, lora_A=down, lora_B=up)


def peft(variant: Variant, width: int) -> nn.Module:
    """Updates on the fused projection of nanoGPT alone."""
    model = nanogpt(width).requires_grad_(False)
    for block in model.h:
        block.c_attn = peft_linear(block.c_attn)
        block.c_attn.base.requires_grad_(False)
        if variant == "before":
            nn.init.zeros_(block.c_attn.lora_A.weight)
    return model


def field(width: int, first: bool) -> nn.Module:
    """A SIREN of modules, with two coordinates and a learnable last layer."""

    def forward(m: Any, x: Tensor) -> Tensor:
        for layer in m.layers:
            x = m.sine(layer(x))
        return m.last(x)

    layers = nn.ModuleList([nn.Linear(2, width), *(nn.Linear(width, width) for _ in range(3))])
    model = Net(forward, layers=layers, last=nn.Linear(width, 1), sine=Sine(30.0))
    for index, layer in enumerate([*layers, model.last]):
        n = layer.in_features
        bound = 1 / n if index == 0 and first else math.sqrt(6 / n) / 30
        nn.init.uniform_(layer.weight, -bound, bound)
    return model


def gpt2_deep(variant: Variant, width: int) -> nn.Module:
    size = {"n_embd": width, "n_layer": 12, "n_head": 4, "vocab_size": VOCABULARY, "n_positions": 64}
    std = 0.02 if variant == "before" else 0.02 / math.sqrt(2 * 12)
    return draw_normal(configured("GPT2LMHeadModel", **size)(), "c_proj.weight", std)


def selu(variant: Variant, width: int) -> nn.Module:
    return dense([32] + [width] * 24 + [10], nn.SELU, variance=9 / 16 if variant == "before" else 1.0)


def fixup_deep(variant: Variant, width: int) -> nn.Module:
    model = he(tower(width, blocks=28))
    for block in model.tower if variant == "after" else []:
        nn.init.zeros_(block.conv2.weight)
    return model


def conv1x1_attention(width: int) -> nn.Module:
    """A diffusion model's attention: GroupNorm, 1x1 convolutions, a last one that starts at zero."""

    def forward(m: Any, x: Tensor) -> Tensor:
        q, k, v = m.qkv(m.norm(x)).flatten(2).transpose(1, 2).chunk(3, -1)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).unflatten(2, x.shape[2:])
        return x + m.proj_out(y)

    qkv, proj_out = nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)
    return Net(forward, norm=nn.GroupNorm(8, width), qkv=qkv, proj_out=proj_out)


def attention_unet(variant: Variant, width: int) -> nn.Module:
    layers = [conv1x1_attention(width) for _ in range(5)]
    model = nn.Sequential(
        nn.Conv2d(3, width, 3, 2, 1), *layers, nn.GroupNorm(8, width), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(width, 10),
    )  # fmt: skip
    for layer in layers:
        if variant == "after":
            nn.init.zeros_(layer.proj_out.weight)
            nn.init.zeros_(layer.proj_out.bias)
        else:
            nn.init.kaiming_normal_(layer.proj_out.weight)
    return model


CONV = (32, 48, 64)
DEPTHWISE = tuple(f"features.{i}.weight" for i in (3, 9, 15, 21))
VARIANTS: tuple[Case, ...] = (
    Case("trunc-everywhere", every_tensor_truncated, text, ("*c_*.weight", "w?e.weight", "*c_proj.weight")),
    Case("xavier-resnet-fresh", xavier_resnet, images, ("*conv?.weight",), widths=CONV),
    Case("xavier-resnet-calibrated", lambda variant, width: calibrate(xavier_resnet(variant, width)), images,
         ("*conv?.weight",), widths=CONV),
    Case("xavier-residual", xavier_residual, images, ("tower.*.weight", "stem.weight"), widths=CONV),
    Case("separable-fan-in", separable, images, DEPTHWISE, widths=CONV),
    Case("peft-zero", peft, text, ("*lora_?.weight",)),
    Case("siren-modules", either(field, False, True), pixels, ("layers.0.weight",), loss="mse"),
    Case("gpt2-12", gpt2_deep, text, ("*c_proj.weight",)),
    Case("selu-24", selu, points, ("*.weight",)),
    Case("fixup-28", fixup_deep, images, ("tower.*.conv2.weight",), widths=CONV),
    Case("attention-unet", attention_unet, images, ("*.proj_out.weight",), widths=(64, 96, 128)),
)  # fmt: skip


def orthogonal() -> nn.Module:
    model = dense([32] + [256] * 8 + [10], nn.Tanh, variance=1.0)
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.orthogonal_(layer.weight)
    return model


def squeeze(width: int) -> nn.Module:
    """EfficientNet's block: depthwise convolution, squeeze and excitation."""

    def forward(m: Any, x: Tensor) -> Tensor:
        y = F.silu(m.bn2(m.depthwise(F.silu(m.bn1(m.expand(x))))))
        y = y * torch.sigmoid(m.gate(F.silu(m.reduce(y.mean((2, 3), keepdim=True)))))
        return x + m.bn3(m.project(y))

    inner = 4 * width
    return Net(
        forward,
        expand=nn.Conv2d(width, inner, 1, bias=False),
        bn1=nn.BatchNorm2d(inner),
        depthwise=nn.Conv2d(inner, inner, 3, 1, 1, groups=inner, bias=False),
        bn2=nn.BatchNorm2d(inner),
        reduce=nn.Conv2d(inner, width, 1),
        gate=nn.Conv2d(width, inner, 1),
        project=nn.Conv2d(inner, width, 1, bias=False),
        bn3=nn.BatchNorm2d(width),
    )


def efficientnet() -> nn.Module:
    return calibrate(nn.Sequential(
        nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.SiLU(), *(squeeze(32) for _ in range(5)),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    ))  # fmt: skip


def decoder() -> nn.Module:
    """A generator: transposed convolutions of std 0.02 with GroupNorm."""
    layers: list[nn.Module] = [nn.Linear(64, 128 * 16), nn.Unflatten(1, (128, 4, 4))]
    for n in (128, 64):
        layers += [nn.ConvTranspose2d(n, n // 2, 4, 2, 1, bias=False), nn.GroupNorm(8, n // 2), nn.ReLU()]
    model = nn.Sequential(*layers, nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Tanh())
    for layer in model:
        if isinstance(layer, nn.ConvTranspose2d):
            nn.init.normal_(layer.weight, std=0.02)
    return model


def perceptron(size: int, hidden: int) -> nn.Module:
    return nn.Sequential(nn.Linear(size, hidden), nn.GELU(), nn.Linear(hidden, size))


def mixer(tokens: int, width: int) -> nn.Module:
    """MLP-Mixer's block."""

    def forward(m: Any, x: Tensor) -> Tensor:
        x = x + m.token(m.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + m.channel(m.norm2(x))

    norms = {"norm1": nn.LayerNorm(width), "norm2": nn.LayerNorm(width)}
    return Net(forward, **norms, token=perceptron(tokens, 64), channel=perceptron(width, 2 * width))


def mixer_net() -> nn.Module:
    """Patches, mixers, mean, head."""
    model = Net(
        lambda m, x: m.head(m.norm(m.blocks(m.patch(x).flatten(2).transpose(1, 2))).mean(1)),
        patch=nn.Conv2d(3, 256, 8, 8),
        blocks=nn.Sequential(*(mixer(16, 256) for _ in range(4))),
        norm=nn.LayerNorm(256),
        head=nn.Linear(256, 10),
    )
    nn.init.zeros_(model.head.weight)
    return model


def growing(width: int, growth: int) -> nn.Module:
    """DenseNet's block: what came before is kept beside what is new."""
    rule = lambda m, x: torch.cat([x, m.conv(F.relu(m.norm(x)))], 1)  # noqa: E731
    return Net(rule, norm=nn.BatchNorm2d(width), conv=nn.Conv2d(width, growth, 3, 1, 1, bias=False))


def densenet() -> nn.Module:
    return calibrate(he(nn.Sequential(
        nn.Conv2d(3, 32, 3, 2, 1), *(growing(32 + 16 * i, 16) for i in range(6)), nn.BatchNorm2d(128), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10),
    )))  # fmt: skip


def weight_norm() -> nn.Module:
    model = dense([32, 256, 256, 10], nn.ReLU, variance=2.0)
    for layer in model:
        if isinstance(layer, nn.Linear):
            parametrizations.weight_norm(layer)
    return model


def fixup() -> nn.Module:
    """Post-activation residual MLP, last layers of branches at zero, so is the head."""

    def block() -> nn.Module:
        layers = {"first": nn.Linear(256, 256), "last": nn.Linear(256, 256)}
        nn.init.kaiming_normal_(layers["first"].weight)
        nn.init.zeros_(layers["last"].weight)
        nn.init.zeros_(layers["last"].bias)
        return Net(lambda m, x: x + m.last(F.relu(m.first(x))), **layers)

    model = nn.Sequential(nn.Linear(32, 256), *(block() for _ in range(8)), nn.Linear(256, 10))
    nn.init.zeros_(model[-1].weight)
    return model


def gpt_loss_trained() -> nn.Module:
    """nanoGPT after 120 steps of AdamW."""
    return trained(lambda: nanogpt(256, 4), text, 120, kind=torch.optim.AdamW)


def attention_classifier() -> nn.Module:
    def forward(m: Any, tokens: Tensor) -> Tensor:
        x = m.embedding(tokens)
        return m.head(x.mean(1) + m.attention(x, x, x, need_weights=False)[0].mean(1))

    return Net(
        forward,
        embedding=nn.Embedding(VOCABULARY, 256, padding_idx=0),
        attention=nn.MultiheadAttention(256, 4, batch_first=True),
        head=nn.Linear(256, 10),
    )


def dirac() -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 1, 1)]
    for _ in range(5):
        conv = nn.Conv2d(64, 64, 3, 1, 1)
        nn.init.dirac_(conv.weight)
        layers += [nn.ReLU(), conv]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def latent(seed: int) -> Batch:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(16, 64, generator=draw), images(seed)[0] / 3


APART: tuple[Healthy, ...] = (
    Healthy("orthogonal-tanh", orthogonal, points),
    Healthy("he-20-layers", plain(32, *[256] * 20, 10), points),
    Healthy("efficientnet-se", efficientnet, images),
    Healthy("dcgan-generator", decoder, latent, loss="mse"),
    Healthy("mixer-zero-head", mixer_net, images, note="the head starts at zero"),
    Healthy("densenet", densenet, images),
    Healthy("weight-norm", weight_norm, points),
    Healthy("fixup-zero-head", fixup, points, note="head and last layers of branches start at zero"),
    Healthy("nanogpt-trained", gpt_loss_trained, text),
    Healthy("attention-classifier", attention_classifier, topics),
    Healthy("dirac", dirac, images),
    Healthy("resnet-trained", partial(trained, lambda: calibrate(resnet18(32)), images, 20), images),
    Healthy(
        "regression-mlp", plain(64, 256, 256, 4, activation=nn.GELU, variance=math.sqrt(2)), regression, loss="mse"
    ),
)

TABLES = {"cases": CASES, "healthy": HEALTHY, "extra": EXTRA, "unseen": UNSEEN, "variants": VARIANTS, "apart": APART}
