"""A second set of bugs, written after the first rules and scored once before they were changed again."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from tests.gallery.case import Batch, Case, Variant
from tests.gallery.convolutional import calibrate, he
from tests.gallery.data import images, rare, regression
from tests.gallery.extra import damaged, fill, llama, normal, pictures, relu_net, times, topics, vit, words
from tests.gallery.healthy import Denoiser, Recurrent, ResNet18, detector
from tests.gallery.language import gpt2
from tests.gallery.plain import dense, points


def constant(ending: str) -> object:
    return fill(ending, 0.05)


def two_zero_layers(model: nn.Module) -> None:
    fill("4.weight", 0.0)(model)
    fill("6.weight", 0.0)(model)


def bn_gains(model: nn.Module) -> None:
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.normal_(layer.weight, 0.0, 0.02)


class ResidualMLP(nn.Module):
    """A residual MLP without normalisation."""

    def __init__(self, width: int, blocks: int, last: float) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(32, width), nn.Linear(width, 10)
        self.blocks = nn.ModuleList(dense([width, width, width], nn.ReLU, variance=2.0) for _ in range(blocks))
        for block in self.blocks:
            block[2].weight.data *= last

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def residual_mlp(variant: Variant, width: int) -> nn.Module:
    return ResidualMLP(width, 24, 1.0 if variant == "before" else 24**-0.5)


def query_key(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            nn.init.normal_(parameter, std=1.0)


def no_prior(model: nn.Module) -> None:
    nn.init.zeros_(model[-1].bias)


def unet(variant: Variant, width: int) -> nn.Module:
    model = Denoiser(width)
    if variant == "before":
        for block in model.blocks:
            nn.init.kaiming_normal_(block.conv2.weight)
    return model


def noise(seed: int, width: int) -> Batch:
    from tests.gallery.healthy import noise as draw

    return draw(seed)


def raw_targets(seed: int, width: int) -> Batch:
    x, y = regression(seed, inputs=64)
    return x, 100 + 10 * y


def regressor(variant: Variant, width: int) -> nn.Module:
    model = dense([64, width, width, 4], nn.ReLU, variance=2.0)
    if variant == "after":
        model[-1].bias.data.fill_(100.0)
    return model


def rare_labels(seed: int, width: int) -> Batch:
    return rare(seed)


def resnet(width: int) -> nn.Module:
    return ResNet18(width)


def calibrated(width: int) -> nn.Module:
    model = ResNet18(width)
    calibrate(model)
    return model


def lenet_like(width: int) -> nn.Module:
    model = nn.Sequential(
        nn.Conv2d(3, width, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(width, 2 * width, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(50 * width, 256), nn.ReLU(), nn.Linear(256, 10),
    )  # fmt: skip
    he(model)
    nn.init.normal_(model[-1].weight, std=0.03)
    return model


def frozen(model: nn.Module) -> None:
    model.get_parameter("6.weight").requires_grad_(False)


def image_batch(seed: int, width: int) -> Batch:
    return images(seed)


def _unseen(
    name: str, build: object, damage: object, draw: object, *guilty: str, widths: tuple[int, int, int] = (256, 320, 384)
) -> Case:
    return Case(name=name, source="", story=name, make=damaged(build, damage), draw=draw, guilty=guilty, widths=widths)  # type: ignore[arg-type]


SMALL = (32, 40, 48)
UNSEEN: tuple[Case, ...] = (
    _unseen("lstm-hh", partial(Recurrent, nn.LSTM), normal("weight_hh_l0", 1.0), topics, "rnn.weight_hh_l0"),
    _unseen("patch-embedding", vit, times("patch_embeddings.projection.weight", 30.0), pictures, "*projection.weight"),
    _unseen("wpe-1", gpt2, normal("wpe.weight", 1.0), words, "*wpe.weight"),
    _unseen("constant-init", relu_net, constant("4.weight"), points, "4.weight"),
    _unseen("two-zero-layers", relu_net, two_zero_layers, points, "4.weight", "6.weight"),
    _unseen("bn-gain-0.02", resnet, bn_gains, pictures, "*bn?.weight", "*shortcut.1.weight", widths=SMALL),
    _unseen("bn-bias-dead", calibrated, fill("blocks.3.bn1.bias", -10.0), pictures, "blocks.3.bn1.*", widths=SMALL),
    Case(name="residual-mlp", source="", story="24 blocks unscaled", make=residual_mlp, draw=points,
         guilty=("blocks.*.2.weight",)),
    _unseen("query-key-1", llama, query_key, words, "*q_proj.weight", "*k_proj.weight"),
    Case(name="raw-targets", source="", story="targets around 100", make=regressor, draw=raw_targets, loss="mse",
         guilty=("4.bias", "4.weight")),
    _unseen("detector-no-prior", lambda width: detector(), no_prior, rare_labels, "4.bias", "4.weight"),
    _unseen("embedding-1e-4", llama, normal("embed_tokens.weight", 1e-4), words, "*embed_tokens.weight"),
    _unseen("gate-0.002", llama, normal("2.mlp.gate_proj.weight", 0.002), words, "*2.mlp.gate_proj.weight"),
    Case(name="unet-not-zero", source="", story="zero module overwritten", make=unet, draw=noise, loss="mse",
         guilty=("blocks.*.conv2.weight",), widths=(32, 48, 64)),
    _unseen("lenet-fc-gain", lenet_like, times("7.weight", 8.0), image_batch, "7.weight", widths=SMALL),
    _unseen("frozen-layer", relu_net, frozen, points, "6.weight"),
)  # fmt: skip
