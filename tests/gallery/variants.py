"""The public bugs in other networks than those that the rules were made on."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.gallery.case import Case, Variant
from tests.gallery.convolutional import calibrate, he, tower
from tests.gallery.data import VOCABULARY, images, pixels, points, text
from tests.gallery.extra import either
from tests.gallery.healthy import nanogpt, resnet18
from tests.gallery.language import configured, draw_normal
from tests.gallery.plain import Sine, dense
from tests.networks import Net


def every_tensor_truncated(variant: Variant, width: int) -> nn.Module:
    """Entries at ±2 in one of 20000, in all tensors."""
    model = nanogpt(width)
    if variant == "before":
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.data[torch.rand_like(parameter) < 5e-5] = 2.0
    return model


def xavier_resnet(variant: Variant, width: int) -> nn.Module:
    """The tower with batch normalisation, fresh and in evaluation mode."""
    model = resnet18(width)
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d) and layer.kernel_size[0] == 3:
            m, n, k, _ = layer.weight.shape
            fans = 2 * k + n + m if variant == "before" else k * k * (n + m)
            nn.init.normal_(layer.weight, std=math.sqrt(2 / fans))
    return model


def xavier_residual(variant: Variant, width: int) -> nn.Module:
    """A residual tower without normalisation."""
    model = tower(width, blocks=6)
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Conv2d):
            m, n, k, _ = layer.weight.shape
            fans = 2 * k + n + m if variant == "before" else k * k * (n + m)
            nn.init.normal_(layer.weight, std=math.sqrt(2 / fans))
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
    layers = 12
    size = {"n_embd": width, "n_layer": layers, "n_head": 4, "vocab_size": VOCABULARY, "n_positions": 64}
    std = 0.02 if variant == "before" else 0.02 / math.sqrt(2 * layers)
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
    Case("trunc-everywhere", "", "", every_tensor_truncated, text, ("*c_*.weight", "w?e.weight", "*c_proj.weight")),
    Case("xavier-resnet-fresh", "", "", xavier_resnet, images, ("*conv?.weight",), widths=CONV),
    Case("xavier-resnet-calibrated", "", "", lambda variant, width: calibrate(xavier_resnet(variant, width)), images,
         ("*conv?.weight",), widths=CONV),
    Case("xavier-residual", "", "", xavier_residual, images, ("tower.*.weight", "stem.weight"), widths=CONV),
    Case("separable-fan-in", "", "", separable, images, DEPTHWISE, widths=CONV),
    Case("peft-zero", "", "", peft, text, ("*lora_?.weight",)),
    Case("siren-modules", "", "", either(field, False, True), pixels, ("layers.0.weight",), loss="mse"),
    Case("gpt2-12", "", "", gpt2_deep, text, ("*c_proj.weight",)),
    Case("selu-24", "", "", selu, points, ("*.weight",)),
    Case("fixup-28", "", "", fixup_deep, images, ("tower.*.conv2.weight",), widths=CONV),
    Case("attention-unet", "", "", attention_unet, images, ("*.proj_out.weight",), widths=(64, 96, 128)),
)  # fmt: skip
