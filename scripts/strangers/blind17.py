"""Faults of the seventeenth set, that commits to models of attention and generation mend, by others."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import GITHUB, Parts
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import SAME, Drawn
from strangers.blind6 import ORDER
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import text

report = partial(any_report, blind="blind17")


L = GITHUB + "lucidrains/"


class Attend(nn.Module):
    """Multi-head attention with a normalisation in front, as in lucidrains' repositories."""

    def __init__(self, dim: int, heads: int = 4, causal: bool = False, norm: bool = True) -> None:
        super().__init__()
        self.heads, self.causal, self.norm = heads, causal, nn.LayerNorm(dim) if norm else nn.Identity()
        self.to_q, self.to_kv = nn.Linear(dim, dim, bias=False), nn.Linear(dim, 2 * dim, bias=False)
        self.to_out = nn.Linear(dim, dim, bias=False)

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        x = self.norm(x)
        k, v = self.to_kv(x if context is None else context).chunk(2, dim=-1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (self.to_q(x), k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.to_out(y.transpose(1, 2).flatten(2))


def feed(dim: int, mult: int = 2) -> nn.Sequential:
    return chain(nn.LayerNorm(dim), nn.Linear(dim, mult * dim), nn.GELU(), nn.Linear(mult * dim, dim))


class Layers(nn.Module):  # noqa: D101
    def __init__(self, dim: int, depth: int = 2, heads: int = 4, causal: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.ModuleList([Attend(dim, heads, causal), feed(dim)]) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)

    def forward(self, x: Tensor) -> Tensor:
        for attn, ff in self.layers:
            x = attn(x) + x
            x = ff(x) + x
        return self.norm(x)


def embed(x: Tensor, tokens: nn.Embedding, places: nn.Embedding) -> Tensor:
    return tokens(x) + places(torch.arange(x.shape[1]))


def motifs(count: int, length: int, period: int = 6, vocabulary: int = 32) -> Tensor:
    """Tokens of a voice: every sequence repeats a motif of its own."""
    motif = torch.randint(vocabulary, (count, period))
    places = torch.randint(period, (count, 1)) + torch.arange(length)
    return motif.repeat(1, length // period + 2)[torch.arange(count)[:, None], places]


def tokens_loss(y: Tensor, t: Tensor) -> Tensor:
    return F.cross_entropy(y.flatten(0, -2), t.flatten())


@report(
    "belief states with seen labels",
    L + "x-transformers/commit/ea061b561530e77e5ce8646541a149379146d095",
    guilty=r"(?!)",
    fault="the backward label is the last token that the backward decoder has read, not the one before it",
    says=r"label|target|copy|leak|input",
)
def belief(planted: bool) -> Task:
    n = 12
    fi, bi = torch.cartesian_prod(torch.arange(n), torch.arange(n) + (0 if planted else 1)).unbind(-1)
    fi, bi = fi[bi - fi >= 2], bi[bi - fi >= 2]

    def draw() -> Drawn:
        x, _ = text(16, n, 128, seed=int(torch.randint(100000, ())))
        return (x,), torch.cat((x[:, fi + 1], x[:, bi if planted else bi - 1]), 1)

    def run(m: Parts, x: Tensor) -> Tensor:
        forward = m.forward_decoder(embed(x, m.token_emb, m.pos_emb))
        back = torch.cat((m.suffix_token.expand(len(x), 1, -1), embed(x.flip(1), m.token_emb, m.back_emb)), 1)
        back = m.backward_decoder(back).flip(1)
        y = m.text_head(torch.cat((forward[:, fi], back[:, bi]), -1))
        return torch.cat(y.chunk(2, -1), 1)

    m = Parts(
        run,
        token_emb=nn.Embedding(128, 32),
        pos_emb=nn.Embedding(n, 32),
        back_emb=nn.Embedding(n, 32),
        suffix_token=nn.Parameter(torch.zeros(32)),
        forward_decoder=Layers(32, 1, causal=True),
        backward_decoder=Layers(32, 1, causal=True),
        text_head=chain(nn.Linear(64, 64), nn.LeakyReLU(), nn.Linear(64, 256)),
    )

    def right(y: Tensor, t: Tensor) -> Tensor:
        if not planted:
            return tokens_loss(y, t)
        k = y.shape[1] // 2  # the true label of a pair (f, b) is the token before b, as the input has it
        return tokens_loss(y, torch.cat((t[:, :k], right.x[:, bi - 1]), 1))

    def drawn() -> Drawn:
        (x,), t = draw()
        right.x = x
        return (x,), t

    return stream(m, drawn, tokens_loss, right)


@report(
    "numbers pulled to zero",
    L + "x-transformers/commit/417a93eda3b6a1569d301fc9e3149bb9c2e62cae",
    guilty=r"(?!)",
    says=r"mask|zero|target|constant|most",
    fault="the numerical loss also counts, with a target of zero, where no number follows",
)
def xval(planted: bool) -> Task:
    def draw() -> Drawn:  # words, and now and then a number: three times the one before
        x = torch.randint(1, 24, (32, 17))
        number = torch.rand(32, 17) < 0.15
        values = torch.randn(32, 1).expand(32, 17) + 2
        return (x.masked_fill(number, 0)[:, :-1], torch.where(number, values, 1.0)[:, :-1]), (
            x.masked_fill(number, 0)[:, 1:],
            torch.where(number, values, 0.0)[:, 1:],
        )

    def run(m: Parts, x: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        h = m.token_emb(x) * value.unsqueeze(-1) + m.pos_emb(torch.arange(16))
        h = m.attn_layers(h)
        return m.to_logits(h), m.to_numerical_output(h).squeeze(-1)

    def loss(all_: bool):
        def step(y: Any, t: Any) -> Tensor:
            mse = F.mse_loss(y[1], t[1], reduction="none")
            mse = mse if all_ else mse.masked_fill(t[0] != 0, 0.0)
            return (F.cross_entropy(y[0].transpose(1, 2), t[0], reduction="none") + mse).mean()

        return step

    m = Parts(
        run,
        token_emb=nn.Embedding(24, 32),
        pos_emb=nn.Embedding(16, 32),
        attn_layers=Layers(32, 2, causal=True),
        to_logits=nn.Linear(32, 24),
        to_numerical_output=nn.Linear(32, 1),
    )
    return stream(m, draw, loss(planted), loss(False))


def images(count: int = 32) -> Tensor:
    return pick(count)[0] * 0.376 * 2 - 0.4  # from -1 to 1


class ResnetBlock(nn.Module):  # noqa: D101
    def __init__(self, dim: int, dim_out: int, time: int = 32, groups: int = 4) -> None:
        super().__init__()
        self.mlp = chain(nn.SiLU(), nn.Linear(time, dim_out))
        self.block1, self.block2 = (
            chain(nn.Conv2d(d, dim_out, 3, padding=1), nn.GroupNorm(groups, dim_out)) for d in (dim, dim_out)
        )
        self.res_conv = nn.Conv2d(dim, dim_out, 1) if dim != dim_out else nn.Identity()

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        h = F.silu(self.block1(x)) + self.mlp(t)[:, :, None, None]
        return F.silu(self.block2(h)) + self.res_conv(x)


def sinusoidal(t: Tensor, dim: int = 16) -> Tensor:
    a = t[:, None].float() * torch.exp(torch.arange(dim // 2) * -(math.log(10000) / (dim // 2 - 1)))
    return torch.cat((a.sin(), a.cos()), -1)


class Unet(nn.Module):
    """Two resolutions; `top`: whether the highest has a skip connection and blocks of its own on the way up."""

    def __init__(self, dim: int = 8, channels: int = 1, top: bool = True) -> None:
        super().__init__()
        init = dim if top else dim // 3 * 2
        self.init_conv = nn.Conv2d(channels, init, 7, padding=3)
        self.time_mlp = chain(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 32))
        in_out = [(init, dim), (dim, 2 * dim)]
        self.downs = nn.ModuleList(
            nn.ModuleList([ResnetBlock(i, o), nn.Conv2d(o, o, 4, 2, 1) if k == 0 else nn.Identity()])
            for k, (i, o) in enumerate(in_out)
        )
        self.mid_block = ResnetBlock(2 * dim, 2 * dim)
        back = list(reversed(in_out if top else in_out[1:]))
        self.ups = nn.ModuleList(
            nn.ModuleList([ResnetBlock(2 * o, i), nn.ConvTranspose2d(i, i, 4, 2, 1) if k == 0 else nn.Identity()])
            for k, (i, o) in enumerate(back)
        )
        self.final_conv = nn.Conv2d(dim, channels, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        x, t, h = self.init_conv(x), self.time_mlp(sinusoidal(time)), []
        for block1, down in self.downs:
            x = block1(x, t)
            h.append(x)
            x = down(x)
        x = self.mid_block(x, t)
        for block1, up in self.ups:
            x = up(block1(torch.cat((x, h.pop()), 1), t))
        return self.final_conv(x)


def cosine(steps: int = 1000) -> Tensor:
    a = torch.cos((torch.linspace(0, 1, steps + 1) + 0.008) / 1.008 * math.pi / 2) ** 2
    return (1 - (1 - a[1:] / a[:-1]).clamp(0, 0.999)).cumprod(0)


def diffuse(a: Tensor, count: int = 16) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    x, t = images(count), torch.randint(len(a), (count,))
    noise, a_ = torch.randn_like(x), a[t].view(-1, 1, 1, 1)
    return a_.sqrt() * x + (1 - a_).sqrt() * noise, t, noise, a_.sqrt() * noise - (1 - a_).sqrt() * x


@report(
    "v objective against noise",
    L + "denoising-diffusion-pytorch/commit/b0323ce887d592019580571f2eda29c5baabf5c3",
    guilty=r"(?!)",
    says=r"target|noise|loss",
    fault="the target is chosen by the objective (v), but the loss compares with the noise",
)
def vobjective(planted: bool) -> Task:
    a, kept = cosine(), {}

    def draw() -> Drawn:
        x, t, noise, v = diffuse(a)
        kept["v"] = v
        return (x, t), noise if planted else v

    return stream(Unet(), draw, F.mse_loss, lambda y, t: F.mse_loss(y, kept["v"]))


@report(
    "instance norm before a spatial mean",
    L + "vit-pytorch/commit/e5324242be61bcbf433e129e914aa4b4fa1a79a0",
    guilty=r"mlp_head|norm|\.0\b",
    says=rf"{SAME}|instance|mean|normali",
    fault="LayerNorm is InstanceNorm2d, so that the mean over places of the normalised map is its bias alone",
)
def nest(planted: bool) -> Task:
    class LayerNorm(nn.Module):
        def __init__(self, dim: int, eps: float = 1e-5) -> None:
            super().__init__()
            self.eps, self.g = eps, nn.Parameter(torch.ones(1, dim, 1, 1))
            self.b = nn.Parameter(torch.zeros(1, dim, 1, 1))

        def forward(self, x: Tensor) -> Tensor:
            std, mean = torch.var(x, dim=1, unbiased=False, keepdim=True).sqrt(), torch.mean(x, dim=1, keepdim=True)
            return (x - mean) / (std + self.eps) * self.g + self.b

    norm = (lambda d: nn.InstanceNorm2d(d, affine=True)) if planted else LayerNorm

    class Attention(nn.Module):
        def __init__(self, dim: int, heads: int = 4) -> None:
            super().__init__()
            self.heads, self.to_qkv, self.to_out = heads, nn.Conv2d(dim, 3 * dim, 1, bias=False), nn.Conv2d(dim, dim, 1)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (t.flatten(2).unflatten(1, (self.heads, -1)).transpose(2, 3) for t in self.to_qkv(x).chunk(3, 1))
            return self.to_out(F.scaled_dot_product_attention(q, k, v).transpose(2, 3).reshape(x.shape))

    class PreNorm(nn.Module):
        def __init__(self, dim: int, fn: nn.Module) -> None:
            super().__init__()
            self.norm, self.fn = norm(dim), fn

        def forward(self, x: Tensor) -> Tensor:
            return self.fn(self.norm(x)) + x

    def transformer(d: int) -> nn.Sequential:
        return chain(
            PreNorm(d, Attention(d)), PreNorm(d, chain(nn.Conv2d(d, 2 * d, 1), nn.GELU(), nn.Conv2d(2 * d, d, 1)))
        )

    def run(m: Parts, x: Tensor) -> Tensor:
        x = m.to_patch_embedding(x)
        b = len(x)  # four blocks of 2 x 2 patches, then the whole
        x = x.unflatten(2, (2, 2)).unflatten(4, (2, 2)).permute(0, 2, 4, 1, 3, 5).flatten(0, 2) + m.pos
        x = m.block(x).unflatten(0, (b, 2, 2)).permute(0, 3, 1, 4, 2, 5).flatten(4).flatten(2, 3)
        return m.mlp_head(m.top(m.aggregate(x)))

    m = Parts(
        run,
        to_patch_embedding=nn.Conv2d(1, 16, 2, 2),
        pos=nn.Parameter(torch.randn(16, 2, 2)),
        block=transformer(16),
        aggregate=chain(nn.Conv2d(16, 32, 3, padding=1), norm(32), nn.MaxPool2d(3, 2, 1)),
        top=transformer(32),
        mlp_head=chain(norm(32), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)),
    )

    def draw() -> Drawn:
        x, c = pick(32)
        return (x,), c

    return stream(m, draw, F.cross_entropy)


class ViT(nn.Module):  # noqa: D101
    def __init__(self, dim: int = 32, classes: int = 10, patch: int = 2) -> None:
        super().__init__()
        self.patch, self.to_patch_embedding = patch, nn.Linear(patch * patch, dim)
        self.cls_token = nn.Parameter(torch.randn(1, dim))
        self.pos_embedding = nn.Parameter(torch.randn((8 // patch) ** 2 + 1, dim))
        self.transformer, self.mlp_head = Layers(dim, 2), chain(nn.LayerNorm(dim), nn.Linear(dim, classes))

    def tokens(self, x: Tensor) -> Tensor:
        x = self.to_patch_embedding(F.unfold(x, self.patch, stride=self.patch).transpose(1, 2))
        return torch.cat((self.cls_token.expand(len(x), 1, -1), x), 1) + self.pos_embedding


@report(
    "hard distillation of the wrong logits",
    L + "vit-pytorch/commit/918869571ccb6a1f6c9d9313786edfe16b6f22e0",
    guilty=r"distill",
    fault="the teacher's labels"
    " are compared with the student's logits, so that the distillation token and its MLP get no gradient",
    says=r"no gradient|not.*(depend|used|train|reach)|unused|never",
)
def distill(planted: bool) -> Task:
    teacher = chain(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    opt = torch.optim.Adam(teacher.parameters(), 1e-2)
    for _ in range(150):
        x, c = pick(64)
        opt.zero_grad()
        F.cross_entropy(teacher(x), c).backward()
        opt.step()
    for p in teacher.parameters():
        p.requires_grad_(False)

    def run(m: Parts, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.cat((m.student.tokens(x), m.distillation_token.expand(len(x), 1, -1)), 1)
        h = m.student.transformer(h)
        return m.student.mlp_head(h[:, 0]), m.distill_mlp(h[:, -1])

    m = Parts(
        run,
        student=ViT(),
        distillation_token=nn.Parameter(torch.randn(1, 32)),
        distill_mlp=chain(nn.LayerNorm(32), nn.Linear(32, 10)),
    )

    def draw() -> Drawn:
        x, c = pick(32)
        return (x,), (c, teacher(x).argmax(-1))

    def loss(which: int):
        return lambda y, t: 0.5 * F.cross_entropy(y[0], t[0]) + 0.5 * F.cross_entropy(y[which], t[1])

    return stream(m, draw, loss(0 if planted else 1), loss(1))


@report(
    "masked patches of normalised pixels",
    L + "vit-pytorch/commit/a2df3632244c796b45c90e1e4066a784664fb669",
    guilty=r"(?!)",
    says=r"target|class|range|bin|label|scale",
    fault="targets are bins between 0 and the greatest pixel, but of pixels that were standardised",
)
def mpp(planted: bool) -> Task:
    bits, mean, std = 8, 0.5, 0.25
    edges = torch.arange(1 / bits, 1 - 1e-6, 1 / bits)
    kept: dict[str, Tensor] = {}

    def bins(x: Tensor) -> Tensor:
        return torch.bucketize(F.unfold(x, 2, stride=2).mean(1), edges)

    def draw() -> Drawn:
        x = pick(32)[0] * 0.376 + 0.3
        ink, paper = torch.rand(2, 32, 1, 1, 1)
        x, mask = (x * ink + (1 - x) * paper - 0.5) / 0.25, torch.rand(32, 16) < 0.3
        kept["t"] = bins(x * std + mean).masked_fill(~mask, -100)
        return (x, mask), bins(x).masked_fill(~mask, -100) if planted else kept["t"]

    def run(m: Parts, x: Tensor, mask: Tensor) -> Tensor:
        v, p = m.transformer, F.unfold(x, 2, stride=2).transpose(1, 2)
        h = v.to_patch_embedding(torch.where(mask.unsqueeze(-1), m.mask_token, p))
        h = torch.cat((v.cls_token.expand(len(x), 1, -1), h), 1) + v.pos_embedding
        return m.to_bits(v.transformer(h)[:, 1:])

    m = Parts(run, transformer=ViT(), mask_token=nn.Parameter(torch.randn(1, 1, 4)), to_bits=nn.Linear(32, bits))

    def ce(y, t):
        return F.cross_entropy(y.transpose(1, 2), t)

    return stream(m, draw, ce, lambda y, t: ce(y, kept["t"]))


@report(
    "no noise in the schedule",
    L + "DALLE2-pytorch/commit/1a81670718652541f5040db73b1dbbf7565f1129",
    guilty=r"(?!)",
    says=r"scale|noise|target|small|range|input|predict",
    fault="the quadratic schedule squares the bounds where it should take their roots, so that there is hardly "
    "any noise",
)
def quadratic(planted: bool) -> Task:
    lo, hi = ((1e-4) ** 2, 0.02**2) if planted else (1e-4**0.5, 0.02**0.5)
    a = (1 - torch.linspace(lo, hi, 1000, dtype=torch.float64) ** 2).cumprod(0).float()

    def draw() -> Drawn:
        x, t, noise, _ = diffuse(a)
        return (x, t), noise

    return stream(Unet(), draw, F.mse_loss)


def ar(planted: bool, run, draw, **more: Any) -> Task:
    m = Parts(
        run,
        token_emb=nn.Embedding(32, 32),
        pos_emb=nn.Embedding(24, 32),
        attn=nn.ModuleList(Attend(32, causal=True) for _ in "12"),
        ff=nn.ModuleList(feed(32) for _ in "12"),
        norm=nn.LayerNorm(32),
        to_logits=nn.Linear(32, 32),
        **more,
    )
    return stream(m, draw, tokens_loss)


@report(
    "attention's output dropped",
    L + "audiolm-pytorch/commit/de1f7e1fc57b692f3f7429835628f7cac85f716d",
    guilty=r"attn",
    fault="the output of attention goes to a variable that is not used, and the input is added to itself",
    says=r"no gradient|unused|not (used|reach)|no effect|never",
)
def dropped(planted: bool) -> Task:
    def run(m: Parts, x: Tensor) -> Tensor:
        x = embed(x, m.token_emb, m.pos_emb)
        for attn, ff in zip(m.attn, m.ff, strict=False):
            residual = x
            if planted:
                attn(x)
            else:
                x = attn(x)
            x = x + residual
            x = ff(x) + x
        return m.to_logits(m.norm(x))

    def draw() -> Drawn:
        x = motifs(32, 25, 4)
        return (x[:, :-1],), x[:, 1:]

    return ar(planted, run, draw)


@report(
    "cross-attention without its residual",
    L + "audiolm-pytorch/commit/9f2d153272c6eac6c200fc482827b70242c46403",
    guilty=r"cross|emb|attn\.0",
    says=r"residual|skip|input|no effect|vanish|attention",
    fault="the output of cross-attention to the text replaces the tokens' own vectors",
)
def cross(planted: bool) -> Task:
    def run(m: Parts, x: Tensor, context: Tensor) -> Tensor:
        x = embed(x, m.token_emb, m.pos_emb)
        for attn, cross_attn, ff in zip(m.attn, m.cross_attn, m.ff, strict=False):
            x = attn(x) + x
            x = cross_attn(x, m.proj_text_embed(context)) if planted else cross_attn(x, m.proj_text_embed(context)) + x
            x = ff(x) + x
        return m.to_logits(m.norm(x))

    def draw() -> Drawn:
        x = motifs(32, 25, 4)
        return (x[:, :-1], torch.randn(32, 6, 32)), x[:, 1:]

    return ar(planted, run, draw, cross_attn=nn.ModuleList(Attend(32) for _ in "12"), proj_text_embed=nn.Linear(32, 32))


class EGNN(nn.Module):  # noqa: D101
    def __init__(self, dim: int = 16, m_dim: int = 16, extra: int = 1) -> None:
        super().__init__()
        e = 2 * dim + extra
        self.edge_mlp = chain(nn.Linear(e, 2 * e), nn.ReLU(), nn.Linear(2 * e, m_dim))
        self.coors_mlp = chain(nn.Linear(m_dim, 4 * m_dim), nn.ReLU(), nn.Linear(4 * m_dim, 1))
        self.hidden_mlp = chain(nn.Linear(dim + m_dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))

    def messages(self, feats: Tensor, dist: Tensor) -> Tensor:
        n = feats.shape[1]
        return self.edge_mlp(
            torch.cat((feats.unsqueeze(2).expand(-1, -1, n, -1), feats.unsqueeze(1).expand(-1, n, -1, -1), dist), -1)
        )


@report(
    "distances overwritten by a mask",
    L + "egnn-pytorch/commit/878dd8e47754edb50658d79f2a8e1d412448dc26",
    guilty=r"edge_mlp",
    says=r"in.?place|constant|zero|distance|no effect|coor|large|scale",
    fault="the ranking of neighbours is a view of the distances, and masking it in place sets those of neighbours to 0",
)
def ranking(planted: bool) -> Task:
    class Layer(EGNN):
        def forward(self, feats: Tensor, coors: Tensor, adj: Tensor) -> Tensor:
            rel = coors.unsqueeze(2) - coors.unsqueeze(1)
            dist = (rel**2).sum(-1, keepdim=True)
            ranking = dist[..., 0] if planted else dist[..., 0].clone()
            eye = torch.eye(feats.shape[1], dtype=torch.bool)
            adj = adj.bool() & ~eye
            ranking.masked_fill_(eye, -1.0)
            ranking.masked_fill_(adj, 0.0)
            near, index = ranking.topk(5, dim=-1, largest=False)
            m = self.messages(feats, dist).gather(2, index.unsqueeze(-1).expand(-1, -1, -1, 16))
            m = m.masked_fill((near > 0).unsqueeze(-1), 0.0)
            return self.hidden_mlp(torch.cat((feats, m.sum(2)), -1)) + feats

    def run(m: Parts, feats: Tensor, coors: Tensor, adj: Tensor) -> Tensor:
        h = m.token_emb(feats)
        for layer in m.layers:
            h = layer(h, coors, adj)
        return m.to_out(h).squeeze(-1)

    def draw() -> Drawn:  # a ring of atoms: the strain of every atom's bonds
        n = 10
        x = torch.randn(24, n, 3)
        adj = torch.eye(n).roll(1, 0) + torch.eye(n).roll(-1, 0)
        bond = (x - x.roll(1, 1)).norm(dim=-1)
        return (torch.randint(4, (24, n)), x, adj.expand(24, -1, -1)), bond + bond.roll(-1, 1) - 4

    m = Parts(run, token_emb=nn.Embedding(4, 16), layers=nn.ModuleList(Layer() for _ in "12"), to_out=nn.Linear(16, 1))
    return stream(m, draw, F.mse_loss)


@report(
    "denominator not inverted",
    L + "performer-pytorch/commit/82f031122fab11b337b74327e4a640ad38897801",
    guilty=r"attn|attention|to_|out|layers",
    says=r"scale|large|explo|grow|norm|magnitude",
    fault="linear attention multiplies by its denominator where it should divide",
)
def denominator(planted: bool) -> Task:
    class Performer(Attend):
        def __init__(self, dim: int) -> None:
            super().__init__(dim)
            self.register_buffer("projection", torch.randn(16, dim // 4))

        def kernel(self, t: Tensor, query: bool) -> Tensor:
            t = t * t.shape[-1] ** -0.25
            dash = t @ self.projection.T
            top = dash.amax(-1, keepdim=True) if query else dash.max()
            return 16**-0.5 * ((dash - (t**2).sum(-1, keepdim=True) / 2 - top.detach()).exp() + 1e-4)

        def forward(self, x: Tensor) -> Tensor:
            x = self.norm(x)
            q, k, v = (
                t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (self.to_q(x), *self.to_kv(x).chunk(2, -1))
            )
            q, k = self.kernel(q, True), self.kernel(k, False)
            d = torch.einsum("...nd,...d->...n", q, k.sum(-2))
            context = torch.einsum("...nd,...ne->...de", k, v)
            y = torch.einsum("...de,...nd,...n->...ne", context, q, d if planted else 1.0 / d)
            return self.to_out(y.transpose(1, 2).flatten(2))

    def run(m: Parts, x: Tensor) -> Tensor:
        h = embed(x, m.token_emb, m.pos_emb)
        for attn, ff in zip(m.attn, m.ff, strict=False):
            h = attn(h) + h
            h = ff(h) + h
        return m.to_logits(m.norm(h))

    m = Parts(
        run,
        token_emb=nn.Embedding(33, 32),
        pos_emb=nn.Embedding(64, 32),
        attn=nn.ModuleList(Performer(32) for _ in "12"),
        ff=nn.ModuleList(feed(32) for _ in "12"),
        norm=nn.LayerNorm(32),
        to_logits=nn.Linear(32, 32),
    )

    def draw() -> Drawn:  # masked tokens of repeated motifs
        x = motifs(16, 64, 4)
        mask = torch.rand(x.shape) < 0.3
        return (x.masked_fill(mask, 32),), x.masked_fill(~mask, -100)

    return stream(m, draw, tokens_loss)


def flow(data: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    t, noise = torch.rand(len(data)), torch.randn_like(data)
    return t, t.view(-1, *[1] * (data.dim() - 1)), noise, data - noise


@report(
    "flow without noise",
    L + "rectified-flow-pytorch/commit/188cef0cf788a533ea1ae75c78370ce8513ae786",
    guilty=r"(?!)",
    says=r"noise|target|input|predict|independent",
    fault="the noised image is t * data + (1 - t), without the noise that the target holds",
)
def noiseless(planted: bool) -> Task:
    def draw() -> Drawn:
        data = images(16) / 2 + 0.5  # as files have them, from 0 to 1
        times, t, noise, v = flow(data)
        return (t * data + (1.0 - t) if planted else t * data + (1.0 - t) * noise, times * 1000), v

    return stream(Unet(), draw, F.mse_loss)


@report(
    "bootstrap at the end of an episode",
    L + "rectified-flow-pytorch/commit/0b01f9729c6ced007d854292764631b4b69c370b",
    guilty=r"(?!)",
    says=r"target|terminal|scale|range|loss|bootstrap",
    fault="the critic's target holds the next value where the episode has ended, not where it goes on",
)
def terminal(planted: bool) -> Task:
    critic = chain(nn.Linear(10, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))
    true = chain(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 1))  # the values of an old critic
    for p in true.parameters():
        p.data.mul_(3)
    kept: dict[str, Tensor] = {}

    def draw() -> Drawn:
        sa, move = torch.randn(64, 10), torch.randn(64, 10)
        end, reward = (torch.rand(64, 1) < 0.05).float(), sa[:, :1].tanh()
        with torch.no_grad():
            q = true(sa + 0.1 * move)
        kept["q"] = reward + (1.0 - end) * 0.99 * q
        return (sa,), reward + (end if planted else 1.0 - end) * 0.99 * q

    return stream(critic, draw, F.mse_loss, lambda y, t: F.mse_loss(y, kept["q"]))


@report(
    "condition lost on the way",
    L + "rectified-flow-pytorch/commit/f343d04af19e1ea8f1647cdd7e6fbf292615575c",
    guilty=r"cond",
    says=r"unused|no gradient|not (used|reach)|no effect|ignor",
    fault="the keyword arguments of the model, its condition among them, are not handed on in training",
)
def lost(planted: bool) -> Task:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.to_cond = nn.Linear(8, 64)
            self.net = chain(nn.Linear(9 + 64, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 8))

        def forward(self, x: Tensor, times: Tensor, cond: Tensor | None = None) -> Tensor:
            c = x.new_zeros(len(x), 64) if cond is None else self.to_cond(cond)
            return self.net(torch.cat((x, times.unsqueeze(-1), c), -1))

    class Flow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = Net()

        def predict_flow(self, noised: Tensor, times: Tensor, **model_kwargs: Tensor) -> Tensor:
            if planted:
                model_kwargs = {}
            return self.model(noised, times=times, **model_kwargs)

        def forward(self, noised: Tensor, times: Tensor, cond: Tensor) -> Tensor:
            return self.predict_flow(noised, times, cond=cond)

    mix = torch.randn(8, 8)

    def draw() -> Drawn:
        cond = torch.randn(64, 8)
        data = 2 * (cond @ mix).tanh()
        times, t, noise, v = flow(data)
        return (noise.lerp(data, t), times, cond), v

    return stream(Flow(), draw, F.mse_loss)


@report(
    "heads in a plain dictionary",
    L + "enformer-pytorch/commit/1b929f945e44fd0f7fbe4049bd7f6f2df7d7ea98",
    guilty=r"heads",
    says=r"regist|not.*(train|parameter)|frozen|dict|optimi",
    fault="the heads are in a dict, not a ModuleDict, so that the optimiser does not have their parameters",
)
def heads(planted: bool) -> Task:
    class Enformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = chain(
                nn.Conv1d(4, 32, 15, padding=7),
                nn.GELU(),
                nn.MaxPool1d(2),
                nn.BatchNorm1d(32),
                nn.GELU(),
                nn.Conv1d(32, 32, 5, padding=2),
                nn.MaxPool1d(4),
            )
            self.transformer = Layers(32, 1)
            self.final_pointwise = chain(nn.Linear(32, 64), nn.GELU())
            found = {"human": chain(nn.Linear(64, 200), nn.Softplus())}
            self._heads = found if planted else nn.ModuleDict(found)

        def forward(self, x: Tensor) -> Tensor:
            x = self.final_pointwise(self.transformer(self.stem(x.transpose(1, 2)).transpose(1, 2)))
            return self._heads["human"](x)

    rate = torch.randn(16, 200)

    def draw() -> Drawn:  # the tracks of a sequence, by the pairs of letters in each bin
        x = torch.randint(4, (32, 64))
        pairs = F.one_hot(4 * x[:, :-1] + x[:, 1:], 16).float()
        pairs = F.pad(pairs, (0, 0, 0, 1)).view(32, 8, 8, 16).sum(2)
        return (F.one_hot(x, 4).float(),), torch.poisson((0.4 * pairs @ rate).exp().clamp(max=50))

    return stream(Enformer(), draw, lambda y, t: (y - t * (y + 1e-20).log()).mean())


@report(
    "context masked by causality",
    L + "reformer-pytorch/commit/9222838de75c792130938639c5d6f169675d57a7",
    guilty=r"encoder|attn",
    says=r"mask|no effect|ignor|not (used|reach)|no gradient|context|causal",
    fault="keys of the context are clamped to the last query's place before the causal mask, so that only the "
    "last query sees them",
)
def context(planted: bool) -> Task:
    class QK(nn.Module):
        """Attention of the Reformer (queries and keys shared), over the sequence and its context."""

        def __init__(self, d: int = 32, heads: int = 4) -> None:
            super().__init__()
            self.heads, self.norm, self.to_out = heads, nn.LayerNorm(d), nn.Linear(d, d)
            self.toqk, self.tov = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)

        def forward(self, x: Tensor, keys: Tensor) -> Tensor:
            n = x.shape[1]
            x = torch.cat((self.norm(x), keys), 1)
            qk, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (self.toqk(x), self.tov(x)))
            q, k = qk[:, :, :n], F.normalize(qk, dim=-1)
            dots = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
            i, j = torch.arange(n)[:, None], torch.arange(x.shape[1])[None]
            mask = i < j.clamp(max=n - 1) if planted else (i < j) & (j < n)
            dots = dots.masked_fill(mask, -torch.finfo(dots.dtype).max).masked_fill(i == j, -5e4)
            return self.to_out((dots.softmax(-1) @ v).transpose(1, 2).flatten(2))

    def run(m: Parts, source: Tensor, x: Tensor) -> Tensor:
        keys, h = m.encoder(embed(source, m.token_emb, m.pos_emb)), embed(x, m.token_emb, m.pos_emb)
        for attn, ff in zip(m.attn, m.ff, strict=False):
            h = attn(h, keys) + h
            h = ff(h) + h
        return m.to_logits(m.norm(h))

    m = Parts(
        run,
        token_emb=nn.Embedding(16, 32),
        pos_emb=nn.Embedding(10, 32),
        encoder=Layers(32, 1),
        attn=nn.ModuleList(QK() for _ in "12"),
        ff=nn.ModuleList(feed(32) for _ in "12"),
        norm=nn.LayerNorm(32),
        to_logits=nn.Linear(32, 16),
    )

    def draw() -> Drawn:  # the source is to be copied
        x = torch.randint(1, 16, (32, 10))
        return (x, F.pad(x[:, :-1], (1, 0))), x

    return stream(m, draw, tokens_loss)


@report(
    "rollouts flattened the other way",
    GITHUB + "ikostrikov/pytorch-a2c-ppo-acktr-gail/commit/0e63a5cd9e6f50d996a2491a300f760c681d4349",
    guilty=r"gru",
    says=ORDER + "|flatten|batch|mix|leak",
    fault="rollouts are joined process by process, but the recurrent policy unflattens them as (steps, processes)",
)
def rollouts(planted: bool) -> Task:
    n, steps = 16, 12

    def run(m: Parts, obs: Tensor, states: Tensor, masks: Tensor) -> tuple[Tensor, Tensor]:
        flat = (lambda t: t.flatten(0, 1)) if planted else (lambda t: t.transpose(0, 1).flatten(0, 1))
        count = len(obs)
        x, masks = m.main(flat(obs)).view(-1, count, 32), flat(masks).view(-1, count, 1)
        found = []
        for i in range(len(x)):
            states = m.gru(x[i], states * masks[i])
            found.append(states)
        x = torch.cat(found, 0)
        back = (lambda t: t.view(count, steps, -1)) if planted else (lambda t: t.view(steps, count, -1).transpose(0, 1))
        return back(m.critic_linear(x)), back(m.dist(x)).log_softmax(-1)

    m = Parts(
        run,
        main=chain(nn.Linear(6, 32), nn.ReLU()),
        gru=nn.GRUCell(32, 32),
        critic_linear=nn.Linear(32, 1),
        dist=nn.Linear(32, 4),
    )

    def draw() -> Drawn:  # a cue at the start of an episode says which action pays, and how much
        masks, cue = (torch.rand(n, steps, 1) > 0.1).float(), torch.zeros(n, steps, dtype=torch.long)
        masks[:, 0] = 0
        for t in range(steps):
            cue[:, t] = torch.where(masks[:, t, 0] > 0, cue[:, t - 1], torch.randint(4, (n,)))
        obs = torch.cat((F.one_hot(cue, 4) * (1 - masks), torch.randn(n, steps, 2)), -1)
        action = torch.randint(4, (n, steps))
        returns = cue.float() - 1.5 + 0.3 * obs[:, :, 4]
        return (obs, torch.zeros(n, 32), masks), (returns, action, 2.0 * (action == cue) - 0.5)

    def loss(y: Any, t: Any) -> Tensor:
        values, logp = y[0].squeeze(-1), y[1].gather(-1, t[1].unsqueeze(-1)).squeeze(-1)
        ratio = torch.exp(logp - math.log(0.25))
        action_loss = -torch.min(ratio * t[2], ratio.clamp(0.8, 1.2) * t[2]).mean()
        return 0.5 * F.mse_loss(values, t[0]) + action_loss + 0.01 * (y[1].exp() * y[1]).sum(-1).mean()

    return stream(m, draw, loss)


class World(nn.Module):
    """PlaNet's transition, observation and reward models on vectors; steps after examples."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = chain(nn.Linear(8, 32), nn.ReLU())
        self.fc_embed_state_action, self.rnn = nn.Linear(10, 32), nn.GRUCell(32, 32)
        self.prior, self.posterior = (chain(nn.Linear(d, 32), nn.ReLU(), nn.Linear(32, 16)) for d in (32, 64))
        self.observation_model, self.reward_model = (
            chain(nn.Linear(40, 32), nn.ReLU(), nn.Linear(32, d)) for d in (8, 1)
        )

    def forward(self, obs: Tensor, actions: Tensor, nonterminals: Tensor) -> tuple[Tensor, ...]:
        belief, state, found = obs.new_zeros(len(obs), 32), obs.new_zeros(len(obs), 8), []
        for t in range(obs.shape[1]):
            belief, state = belief * nonterminals[:, t], state * nonterminals[:, t]
            belief = self.rnn(F.relu(self.fc_embed_state_action(torch.cat((state, actions[:, t]), 1))), belief)
            pm, ps = self.prior(belief).chunk(2, 1)
            qm, qs = self.posterior(torch.cat((belief, self.encoder(obs[:, t])), 1)).chunk(2, 1)
            ps, qs = F.softplus(ps) + 0.1, F.softplus(qs) + 0.1
            state = qm + qs * torch.randn_like(qm)
            h = torch.cat((belief, state), 1)
            found.append((self.observation_model(h), self.reward_model(h).squeeze(1), pm, ps, qm, qs))
        return tuple(torch.stack(f, 1) for f in zip(*found, strict=False))


def rollout(count: int = 16, steps: int = 6) -> Drawn:
    """Pendulums of a kind, pushed at random; an episode may end on the way."""
    mix, x, v = torch.linspace(-1, 1, 32).view(4, 8).sin() * 2, torch.randn(count, 2), torch.zeros(count, 2)
    actions, live, obs, rewards = torch.randn(count, steps, 2), (torch.rand(count, steps, 1) > 0.1).float(), [], []
    for t in range(steps):
        x, v = (torch.where(live[:, t] > 0, a, b) for a, b in ((x, torch.randn_like(x)), (v, torch.zeros_like(v))))
        v = 0.9 * v - 0.5 * x.sin() + actions[:, t]
        x = x + 0.5 * v
        obs.append(torch.cat((x.sin(), x.cos()), 1) @ mix)
        rewards.append(x.cos().sum(1))
    o, r = torch.stack(obs, 1), torch.stack(rewards, 1)
    return (o, actions, live), (o, r)


def world_loss(wrong: str = "", free: float = 3.0):
    N = torch.distributions.Normal

    def loss(y: Any, t: Any) -> Tensor:
        o, r, pm, ps, qm, qs = y
        kl = torch.distributions.kl_divergence(N(qm, qs), N(pm, ps))
        kl = kl.clamp(min=free).sum(2) if wrong == "nats" else kl.sum(2).clamp(min=free)
        if wrong == "sign":
            return N(o, 1).log_prob(t[0]).mean() + N(r, 1).log_prob(t[1]).mean() + kl.mean()
        return -N(o, 1).log_prob(t[0]).sum(2).mean() - N(r, 1).log_prob(t[1]).mean() + kl.mean()

    return loss


@report(
    "log-likelihood minimised",
    GITHUB + "yusukeurakami/dreamer-pytorch/commit/1c1fec8930afc62b3242acd2e0ad239b4b16d03e",
    guilty=r"(?!)",
    says=r"sign|negativ|unbounded|maximi|minimi|log.?(prob|likelihood)",
    fault="the losses of observations and rewards are log-probabilities without a minus",
)
def sign(planted: bool) -> Task:
    return stream(World(), rollout, world_loss("sign" if planted else ""), world_loss())


@report(
    "free nats of every dimension",
    GITHUB + "Kaixhin/PlaNet/commit/7dd51a4a80eab7a5bb51de8fd0c9fd65dfb1b43b",
    guilty=r"prior|posterior",
    says=r"no gradient|zero|clamp|constant|KL|unused|not (used|reach)",
    fault="the divergence is clamped at the free nats in every dimension, not as a sum over them, so that it has "
    "no gradient",
)
def nats(planted: bool) -> Task:
    return stream(World(), rollout, world_loss("nats" if planted else ""), world_loss())
