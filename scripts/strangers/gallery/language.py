"""Language models of the gallery, from transformers' configurations and by hand."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn

from strangers.gallery.case import Variant
from strangers.gallery.data import VOCABULARY
from tests.networks import Net


def logits(model: nn.Module) -> nn.Module:
    """A transformers model that returns its logits alone."""
    model.config.use_cache = False
    return Net(lambda m, *args, **kwargs: m.model(*args, **kwargs).logits, model=model)


def configured(name: str, **options: Any) -> Callable[[], nn.Module]:
    """Build the model of that name in transformers, from its configuration; imported when it is built."""

    def make() -> nn.Module:
        kind = getattr(transformers, name)
        return logits(kind(kind.config_class(**options)))

    return make


def heads(x: Tensor, layers: Iterable[Callable[[Tensor], Tensor]], count: int) -> Iterator[Tensor]:
    """Apply each layer, and split its outputs into heads, (B, heads, T, width / heads)."""
    return (layer(x).unflatten(-1, (count, -1)).transpose(1, 2) for layer in layers)


def draw_normal(model: nn.Module, ending: str | tuple[str, ...], std: float) -> nn.Module:
    """Draw the parameters whose names end so from N(0, std²)."""
    for name, parameter in model.named_parameters():
        if name.endswith(ending):
            nn.init.normal_(parameter, std=std)
    return model


def gpt2(width: int, layers: int = 8) -> nn.Module:
    """GPT-2 with its own initialisation, residual projections scaled by 1/√(2L)."""
    config = transformers.GPT2Config(
        n_embd=width, n_layer=layers, n_head=width // 64, vocab_size=VOCABULARY, n_positions=64,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    return draw_normal(logits(transformers.GPT2LMHeadModel(config)), "c_proj.weight", 0.02 / math.sqrt(2 * layers))


def gpt2_cproj(variant: Variant, width: int) -> nn.Module:
    model = gpt2(width)
    return draw_normal(model, "c_proj.weight", 0.02) if variant == "before" else model


def trunc_normal(variant: Variant, width: int) -> nn.Module:
    """Entries at the absolute bounds ±2 in the fused projection of a few blocks."""
    model = gpt2(width)
    if variant == "before":
        for name, parameter in model.named_parameters():
            if name.endswith(("2.attn.c_attn.weight", "5.mlp.c_fc.weight")):
                flat = parameter.data.view(-1)
                hit = torch.randperm(flat.numel())[: max(4, flat.numel() // 50000)]
                flat[hit] = 2.0 * torch.randn(len(hit)).sign()
    return model


def t5(width: int, *, tied: bool = False, layers: int = 4) -> nn.Module:
    config = transformers.T5Config(
        d_model=width, d_kv=64, num_heads=width // 64, d_ff=2 * width, num_layers=layers, num_decoder_layers=layers,
        vocab_size=VOCABULARY, dropout_rate=0.0, tie_word_embeddings=tied, decoder_start_token_id=0, pad_token_id=0,
        feed_forward_proj="gated-gelu",
    )  # fmt: skip
    model = transformers.T5ForConditionalGeneration(config)
    if not tied:  # whatever the configuration says, recent releases tie the two
        model.lm_head.weight = nn.Parameter(torch.randn_like(model.shared.weight) * width**-0.5)
    return logits(model)


def t5_head(variant: Variant, width: int) -> nn.Module:
    model = t5(width)
    nn.init.normal_(model.get_parameter("model.lm_head.weight"), std=1.0 if variant == "before" else width**-0.5)
    return model


def lora_linear(width_in: int, width_out: int, rank: int = 8) -> nn.Module:
    """A frozen layer with a low-rank update beside it."""
    return Net(
        lambda m, x: F.linear(x, m.weight) + 2 * F.linear(F.linear(x, m.lora_A), m.lora_B),
        weight=nn.Parameter(torch.randn(width_out, width_in) * 0.02, requires_grad=False),
        lora_A=nn.Parameter(torch.zeros(rank, width_in)),
        lora_B=nn.Parameter(torch.zeros(width_out, rank)),
    )


def lora_block(width: int) -> nn.Module:
    """A pre-norm transformer block with low-rank updates on its projections."""

    def forward(m: Any, x: Tensor) -> Tensor:
        q, k, v = heads(m.norm_1(x), (m.q, m.k, m.v), width // 64)
        x = x + m.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + m.down(F.gelu(m.up(m.norm_2(x))))

    layers = {"norm_1": nn.LayerNorm(width), "norm_2": nn.LayerNorm(width)}
    layers |= {name: lora_linear(width, width) for name in "qkvo"}
    return Net(forward, **layers, up=lora_linear(width, 4 * width), down=lora_linear(4 * width, width))


def lora_model(width: int, layers: int = 4) -> nn.Module:
    """A frozen small language model whose updates alone are trained."""
    model = Net(
        lambda m, tokens: m.head(m.norm(m.blocks(m.embedding(tokens)))),
        embedding=nn.Embedding(VOCABULARY, width),
        blocks=nn.Sequential(*(lora_block(width) for _ in range(layers))),
        norm=nn.LayerNorm(width),
        head=nn.Linear(width, VOCABULARY, bias=False),
    )
    nn.init.normal_(model.embedding.weight, std=0.02)
    nn.init.normal_(model.head.weight, std=0.02)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora" in name)
    return model


def lora_zero(variant: Variant, width: int) -> nn.Module:
    model = lora_model(width)
    if variant == "after":
        for name, parameter in model.named_parameters():
            if name.endswith("lora_A"):
                nn.init.kaiming_uniform_(parameter, a=math.sqrt(5))
    return model


class SelectiveScan(nn.Module):
    """Mamba's mixer: a causal depthwise convolution, and a linear recurrence whose step size and ends are inputs'.

    `A_log` starts at log(1 … N) in every channel, and D at one, as the architecture has it.
    """

    def __init__(self, width: int, states: int = 8) -> None:
        super().__init__()
        inner, self.rank = 2 * width, max(1, width // 16)
        self.in_proj = nn.Linear(width, 2 * inner, bias=False)
        self.conv1d = nn.Conv1d(inner, inner, 4, groups=inner, padding=3)
        self.x_proj = nn.Linear(inner, self.rank + 2 * states, bias=False)
        self.dt_proj = nn.Linear(self.rank, inner)
        self.A_log = nn.Parameter(torch.arange(1.0, states + 1).log().repeat(inner, 1))
        self.D = nn.Parameter(torch.ones(inner))
        self.out_proj = nn.Linear(inner, width, bias=False)
        steps = torch.exp(torch.empty(inner).uniform_(math.log(1e-3), math.log(0.1)))
        nn.init.uniform_(self.dt_proj.weight, -(self.rank**-0.5), self.rank**-0.5)
        self.dt_proj.bias.data = steps + torch.log(-torch.expm1(-steps))  # softplus gives the steps

    def forward(self, u: Tensor) -> Tensor:
        """(B, T, width) to the same."""
        x, gate = self.in_proj(u).chunk(2, -1)  # (B, T, inner)
        x = F.silu(self.conv1d(x.transpose(1, 2))[..., : u.shape[1]]).transpose(1, 2)
        states = self.A_log.shape[1]
        steps, start, end = self.x_proj(x).split((self.rank, states, states), -1)
        steps = F.softplus(self.dt_proj(steps)).unsqueeze(-1)  # (B, T, inner, 1)
        kept, added = torch.exp(-steps * self.A_log.exp()), steps * start.unsqueeze(2) * x.unsqueeze(-1)
        state, rows = torch.zeros_like(added[:, 0]), []  # (B, inner, N)
        for t in range(u.shape[1]):
            state = kept[:, t] * state + added[:, t]
            rows.append((state * end[:, t].unsqueeze(1)).sum(-1))
        return self.out_proj((torch.stack(rows, 1) + self.D * x) * F.silu(gate))  # type: ignore[no-any-return]


def mamba(variant: Variant, width: int, layers: int = 4) -> nn.Module:
    """Pre-norm selective scans; the embedding, tied to the head, is drawn as `nn.Embedding` does, or with std .02."""

    def forward(m: Any, tokens: Tensor) -> Tensor:
        x = m.embedding(tokens)
        for norm, mixer in zip(m.norms, m.mixers, strict=True):
            x = x + mixer(norm(x))
        return F.linear(m.norm(x), m.embedding.weight)

    model = Net(
        forward,
        embedding=nn.Embedding(VOCABULARY, width),
        norms=nn.ModuleList(nn.RMSNorm(width) for _ in range(layers)),
        mixers=nn.ModuleList(SelectiveScan(width) for _ in range(layers)),
        norm=nn.RMSNorm(width),
    )
    if variant == "after":
        nn.init.normal_(model.embedding.weight, std=0.02)
    return model
