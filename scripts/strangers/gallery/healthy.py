"""Networks that train well, with what looks odd about some of them on purpose."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.gallery.case import Batch, Case, Draw, Healthy
from strangers.gallery.cases import CASES
from strangers.gallery.convolutional import calibrate, chain, conv3, he, mobile, normalised
from strangers.gallery.data import VOCABULARY, images, masked_text, noise, pairs, points, rare, regression, text, topics
from strangers.gallery.language import configured, heads, t5
from strangers.gallery.plain import dense
from tests.networks import Net

TEXT = {"hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 4, "vocab_size": VOCABULARY}
PICTURE = {
    "image_size": 32, "patch_size": 8, "num_labels": 10, "hidden_size": 256, "num_attention_heads": 4,
    "num_hidden_layers": 6,
}  # fmt: skip


def mlp_default() -> nn.Module:
    layers = [layer for n in (32, 256, 256) for layer in (nn.Linear(n, 256), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(256, 10))


def basic_block(n: int, m: int, stride: int) -> nn.Module:
    """ResNet's block of two convolutions."""

    def forward(b: Any, x: Tensor) -> Tensor:
        y = b.bn2(b.conv2(F.relu(b.bn1(b.conv1(x)))))
        return F.relu(y + b.shortcut(x))

    layers = {"conv1": nn.Conv2d(n, m, 3, stride, 1, bias=False), "bn1": nn.BatchNorm2d(m)}
    layers |= {"conv2": nn.Conv2d(m, m, 3, 1, 1, bias=False), "bn2": nn.BatchNorm2d(m)}
    same = stride == 1 and n == m
    return Net(
        forward, **layers, shortcut=nn.Identity() if same else normalised(nn.Conv2d(n, m, 1, stride, bias=False))
    )


def resnet18(width: int = 32, *, zero_last: bool = False) -> nn.Module:
    """ResNet-18 for images of 32x32, initialised as torchvision's."""
    sizes = [(1, 1, 1), (1, 1, 1), (1, 2, 2), (2, 2, 1), (2, 4, 2), (4, 4, 1), (4, 8, 2), (8, 8, 1)]
    model = Net(
        lambda m, x: m.fc(m.blocks(F.relu(m.bn1(m.conv1(x)))).mean((2, 3))),
        conv1=nn.Conv2d(3, width, 3, 1, 1, bias=False),
        bn1=nn.BatchNorm2d(width),
        blocks=nn.Sequential(*(basic_block(n * width, m * width, stride) for n, m, stride in sizes)),
        fc=nn.Linear(8 * width, 10),
    )
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    for block in model.blocks if zero_last else []:
        nn.init.zeros_(block.bn2.weight)
    return model


def lenet(*, own: bool = False) -> nn.Module:
    model = nn.Sequential(
        nn.Conv2d(3, 32, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1600, 256), nn.ReLU(), nn.Linear(256, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip
    if not own:
        he(model)
        nn.init.xavier_normal_(model[-1].weight)
    return model


def nanogpt(width: int = 256, layers: int = 6) -> nn.Module:
    """nanoGPT: tied embedding, residual projections scaled by 1/√(2L)."""

    def forward(m: Any, tokens: Tensor) -> Tensor:
        x = m.wte(tokens) + m.wpe(torch.arange(tokens.shape[1]))
        for block in m.h:
            x = block(x)
        return m.lm_head(m.ln_f(x))

    model = Net(
        forward,
        wte=nn.Embedding(VOCABULARY, width),
        wpe=nn.Embedding(64, width),
        h=nn.ModuleList(nano_block(width) for _ in range(layers)),
        ln_f=nn.LayerNorm(width, bias=False),
        lm_head=nn.Linear(width, VOCABULARY, bias=False),
    )
    model.lm_head.weight = model.wte.weight
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.02 / (math.sqrt(2 * layers) if "c_proj" in name else 1))
    return model


def nano_block(width: int) -> nn.Module:
    """A pre-norm block with a fused projection to q, k and v."""

    def forward(m: Any, x: Tensor) -> Tensor:
        parts = m.c_attn(m.ln_1(x)).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (width // 64, -1)).transpose(1, 2) for part in parts)
        x = x + m.attn_c_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + m.mlp_c_proj(F.gelu(m.c_fc(m.ln_2(x))))

    sizes = {"c_attn": (1, 3), "attn_c_proj": (1, 1), "c_fc": (1, 4), "mlp_c_proj": (4, 1)}
    layers = {name: nn.Linear(n * width, m * width, bias=False) for name, (n, m) in sizes.items()}
    return Net(forward, ln_1=nn.LayerNorm(width), ln_2=nn.LayerNorm(width), **layers)


def deepnorm_layer(width: int, layers: int) -> nn.Module:
    """A post-norm block with DeepNorm's α and β: v, o and the feed-forward layers are scaled by β."""
    alpha, beta = (2 * layers) ** 0.25, (8 * layers) ** -0.25

    def forward(m: Any, x: Tensor) -> Tensor:
        q, k, v = heads(x, (m.q, m.k, m.v), width // 64)
        mixed = m.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        x = m.norm_1(alpha * x + mixed)
        return m.norm_2(alpha * x + m.down(F.relu(m.up(x))))

    parts = {name: nn.Linear(width, width) for name in "qkvo"}
    parts |= {"up": nn.Linear(width, 4 * width), "down": nn.Linear(4 * width, width)}
    for name, layer in parts.items():
        nn.init.xavier_normal_(layer.weight, gain=1 if name in "qk" else beta)
        nn.init.zeros_(layer.bias)
    return Net(forward, **parts, norm_1=nn.LayerNorm(width), norm_2=nn.LayerNorm(width))


def encoder(block: Callable[[], nn.Module], layers: int, width: int = 256) -> nn.Module:
    """Embedding with random codes of the places, blocks, head."""
    model = Net(
        lambda m, tokens: m.head(m.norm(m.blocks(m.embedding(tokens) + m.places[: tokens.shape[1]]))),
        embedding=nn.Embedding(VOCABULARY, width),
        places=nn.Buffer(torch.randn(512, width, generator=torch.Generator().manual_seed(1))),
        blocks=nn.Sequential(*(block() for _ in range(layers))),
        norm=nn.LayerNorm(width),
        head=nn.Linear(width, VOCABULARY),
    )
    nn.init.normal_(model.head.weight, std=0.02)
    return model


def recurrent(kind: type[nn.Module] = nn.LSTM, width: int = 256) -> nn.Module:
    """A classifier on the last state of an LSTM or GRU with torch's own initialisation."""
    model = Net(
        lambda m, tokens: m.head(m.rnn(m.embedding(tokens))[0][:, -1]),
        embedding=nn.Embedding(VOCABULARY, width),
        rnn=kind(width, width, num_layers=2, batch_first=True),
        head=nn.Linear(width, 10),
    )
    for name, parameter in model.rnn.named_parameters() if kind is nn.LSTM else []:
        if name.startswith("bias_ih"):
            parameter.data[width : 2 * width] = 1.0  # the forget gate starts open
    return model


def discriminator() -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 4, 2, 1, bias=False), nn.LeakyReLU(0.2)]
    for n in (32, 64):
        layers += [nn.Conv2d(n, 2 * n, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * n), nn.LeakyReLU(0.2)]
    model = nn.Sequential(*layers, nn.Conv2d(128, 2, 4, 1, 0, bias=False), nn.Flatten())
    for layer in model:
        if isinstance(layer, nn.Conv2d):
            nn.init.normal_(layer.weight, std=0.02)
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.normal_(layer.weight, 1.0, 0.02)
    return model


def detector() -> nn.Module:
    """A dense binary detector whose last bias knows that positives are rare."""
    model = nn.Sequential(
        nn.Conv2d(3, 64, 3, 1, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU(), nn.Conv2d(64, 2, 1)
    )
    he(model)
    nn.init.normal_(model[-1].weight, std=0.01)
    model[-1].bias.data = torch.tensor([0.0, -math.log(99.0)])
    return model


def policy() -> nn.Module:
    """PPO's policy: orthogonal layers of gain √2, a head of gain 0.01."""
    model = nn.Sequential(nn.Linear(32, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 10))
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.orthogonal_(layer.weight, gain=0.01 if layer.out_features == 10 else math.sqrt(2))
            nn.init.zeros_(layer.bias)
    return model


def unet_block(width: int) -> nn.Module:
    """GroupNorm, SiLU and a convolution, twice; the last convolution starts at zero."""
    norms = {"norm1": nn.GroupNorm(8, width), "norm2": nn.GroupNorm(8, width)}
    rule = lambda m, x: x + m.conv2(F.silu(m.norm2(m.conv1(F.silu(m.norm1(x))))))  # noqa: E731
    model = Net(rule, **norms, conv1=conv3(width, width), conv2=conv3(width, width))
    nn.init.zeros_(model.conv2.weight)
    nn.init.zeros_(model.conv2.bias)
    return model


def denoiser(width: int = 64, blocks: int = 6) -> nn.Module:
    """A stack of a diffusion model's blocks."""
    return Net(
        lambda m, x: m.head(F.silu(m.norm(m.blocks(m.stem(x))))),
        stem=conv3(3, width),
        blocks=nn.Sequential(*(unet_block(width) for _ in range(blocks))),
        norm=nn.GroupNorm(8, width),
        head=conv3(width, 3),
    )


def trained(build: Callable[[], nn.Module], draw: Draw, steps: int = 50, *, kind: Any = torch.optim.Adam) -> nn.Module:
    """Train with Adam on fresh batches; the batches of the gallery are others."""
    model = build()
    optimizer = kind(model.parameters(), lr=1e-3)
    for step in range(steps):
        inputs, targets = draw(1000 + step)
        optimizer.zero_grad()
        F.cross_entropy(model(inputs).flatten(0, -2), targets.flatten()).backward()
        optimizer.step()
    model.zero_grad(set_to_none=True)
    return model


def real_or_not(seed: int) -> Batch:
    pictures, _ = images(seed)
    return pictures, torch.arange(len(pictures)) % 2


def repaired(case: Case) -> Healthy:
    return Healthy(f"{case.name} (repaired)", partial(case.make, "after", case.widths[0]), case.draw, loss=case.loss)


def plain(*widths: int, activation: type[nn.Module] = nn.ReLU, variance: float = 2.0) -> Callable[[], nn.Module]:
    return lambda: dense([*widths], activation, variance=variance)


MLP = plain(32, 256, 256, 256, 256, 10)

HEALTHY: tuple[Healthy, ...] = (
    *(repaired(case) for case in CASES),
    Healthy("lenet-he", lenet, images),
    Healthy("lenet-default", partial(lenet, own=True), images),
    Healthy("mlp-he", MLP, points),
    Healthy("mlp-default", mlp_default, points),
    Healthy("mlp-tanh", plain(32, 256, 256, 256, 256, 10, activation=nn.Tanh, variance=1.0), points),
    Healthy("resnet-18", resnet18, images, note="fresh running statistics in evaluation mode normalise nothing"),
    Healthy("resnet-18-calibrated", lambda: calibrate(resnet18()), images),
    Healthy("resnet-18-zero-gamma", partial(resnet18, zero_last=True), images, note="last gains are zero on purpose"),
    Healthy("resnet-transformers", configured(
        "ResNetForImageClassification", embedding_size=32, hidden_sizes=[32, 64, 128, 256], depths=[2, 2, 2, 2],
        layer_type="basic", num_labels=10,
    ), images),
    Healthy("mobilenet-calibrated", partial(mobile, 32), images),
    Healthy("gpt2", configured("GPT2LMHeadModel", n_embd=256, n_layer=6, n_head=4, vocab_size=VOCABULARY), text),
    Healthy("llama", configured("LlamaForCausalLM", **TEXT, intermediate_size=688, num_key_value_heads=2), text),
    Healthy("bert", configured("BertForMaskedLM", **TEXT, intermediate_size=1024), masked_text),
    Healthy("gpt-neox", configured("GPTNeoXForCausalLM", **TEXT, intermediate_size=1024), text),
    Healthy("opt", configured("OPTForCausalLM", **TEXT, ffn_dim=1024, word_embed_proj_dim=256), text),
    Healthy("vit", configured("ViTForImageClassification", **PICTURE, intermediate_size=1024), images),
    Healthy("dinov2", configured("Dinov2ForImageClassification", **PICTURE, layerscale_value=1e-5), images,
            note="LayerScale 1e-5"),
    Healthy("convnext", configured(
        "ConvNextForImageClassification", hidden_sizes=[48, 96, 192, 384], depths=[2, 2, 4, 2], patch_size=2,
        num_labels=10,
    ), images, note="LayerScale 1e-6"),
    Healthy("t5-tied", partial(t5, 256, tied=True), pairs, note="q is √d smaller than k and v"),
    Healthy("nanogpt", nanogpt, text),
    Healthy("deepnorm", lambda: encoder(lambda: deepnorm_layer(256, 6), 6), masked_text,
            note="v, o and feed-forward layers are scaled by β"),
    Healthy("torch-encoder", lambda: encoder(
        lambda: nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, norm_first=True), 4,
    ), masked_text),
    Healthy("lstm", recurrent, topics),
    Healthy("gru", partial(recurrent, nn.GRU), topics),
    Healthy("dcgan-discriminator", discriminator, real_or_not, note="std 0.02 relies on batch statistics"),
    Healthy("dcgan-discriminator-calibrated", lambda: calibrate(discriminator()), real_or_not),
    Healthy("detector", detector, rare, note="one pixel in a hundred is positive"),
    Healthy("ppo-policy", policy, points, note="the head's gain is 0.01"),
    Healthy("autoencoder", plain(64, 256, 256, 32, 256, 256, 4, activation=nn.SiLU), regression, loss="mse"),
    Healthy("denoiser", denoiser, noise, loss="mse", note="last convolutions of branches are zero"),
    Healthy("mlp-trained", partial(trained, MLP, points), points),
    Healthy("cnn-trained", partial(trained, lambda: he(chain(32, depth=3)), images, 30), images),
)  # fmt: skip
