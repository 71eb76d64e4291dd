"""A second set of bugs, written after the first rules and scored once before they were changed again."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor, nn

from tests.gallery.case import Batch, Case
from tests.gallery.convolutional import he
from tests.gallery.data import images, noise, points, rare, regression, text, topics
from tests.gallery.extra import (
    all_of,
    calibrated_resnet,
    case,
    either,
    fill,
    llama,
    normal,
    relu_net,
    times,
    vit,
)
from tests.gallery.healthy import denoiser, detector, recurrent, resnet18
from tests.gallery.language import gpt2
from tests.gallery.plain import dense
from tests.networks import Net


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
    case("lstm-hh", "lstm-hh", partial(recurrent, nn.LSTM), normal("weight_hh_l0", 1.0), topics, "rnn.weight_hh_l0"),
    case("patch-embedding", "patch-embedding", vit, times("patch_embeddings.projection.weight", 30.0), images,
         "*projection.weight"),
    case("wpe-1", "wpe-1", gpt2, normal("wpe.weight", 1.0), text, "*wpe.weight"),
    case("constant-init", "constant-init", relu_net, fill("4.weight", 0.05), points, "4.weight"),
    case("two-zero-layers", "two-zero-layers", relu_net, all_of(fill("4.weight", 0.0), fill("6.weight", 0.0)), points,
         "4.weight", "6.weight"),
    case("bn-gain-0.02", "bn-gain-0.02", resnet18, bn_gains, images, "*bn?.weight", "*shortcut.1.weight", widths=SMALL),
    case("bn-bias-dead", "bn-bias-dead", calibrated_resnet, fill("blocks.3.bn1.bias", -10.0), images, "blocks.3.bn1.*",
         widths=SMALL),
    case("residual-mlp", "24 blocks unscaled", either(residual_mlp, 1.0, 24**-0.5), None, points, "blocks.*.2.weight"),
    case("query-key-1", "query-key-1", llama, normal(("q_proj.weight", "k_proj.weight"), 1.0), text,
         "*q_proj.weight", "*k_proj.weight"),
    case("raw-targets", "targets around 100", either(regressor, None, 100.0), None, raw_targets, "4.bias", "4.weight",
         loss="mse"),
    case("detector-no-prior", "detector-no-prior", lambda width: detector(), fill("4.bias", 0.0), rare,
         "4.bias", "4.weight"),
    case("embedding-1e-4", "embedding-1e-4", llama, normal("embed_tokens.weight", 1e-4), text, "*embed_tokens.weight"),
    case("gate-0.002", "gate-0.002", llama, normal("2.mlp.gate_proj.weight", 0.002), text, "*2.mlp.gate_proj.weight"),
    case("unet-not-zero", "zero module overwritten", denoiser, overwrite_zeros, noise, "blocks.*.conv2.weight",
         loss="mse", widths=(32, 48, 64)),
    case("lenet-fc-gain", "lenet-fc-gain", lenet_like, times("7.weight", 8.0), images, "7.weight", widths=SMALL),
    case("frozen-layer", "frozen-layer", relu_net,
         lambda model: model.get_parameter("6.weight").requires_grad_(False), points, "6.weight"),
)  # fmt: skip
