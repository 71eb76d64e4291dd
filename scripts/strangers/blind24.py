"""A twenty-fourth set of faults out of issues: language models, sequences, graphs, recommendation, forecasts."""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB, MIXED
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, SAME, Drawn
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import text

report = partial(any_report, blind="blind24")
SCALED = r"scal|large|huge|range|normali|standardi|magnitude|offset|far from|spread|saturat"


def attend(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor, fill: float, heads: int = 4) -> Tensor:
    """multi_head_attention_forward: (B, T, d), what is hidden (B, 1, T or 1, S) filled before the softmax."""
    b, t, d = q.shape
    q, k, v = (z.view(b, -1, heads, d // heads).transpose(1, 2) for z in (q, k, v))
    attn_output_weights = q @ k.transpose(2, 3) / math.sqrt(d // heads)
    attn_output_weights = attn_output_weights.masked_fill(hidden, fill).softmax(-1)
    return (attn_output_weights @ v).transpose(1, 2).reshape(b, t, d)


class Attention(nn.Module):
    """Self-attention over what is not hidden."""

    def __init__(self, d: int, fill: float) -> None:
        super().__init__()
        self.in_proj, self.out_proj, self.fill = nn.Linear(d, 3 * d), nn.Linear(d, d), fill

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        return self.out_proj(attend(*self.in_proj(x).chunk(3, -1), hidden, self.fill))


@report(
    "padding masks that hide whole rows",
    GITHUB + "pytorch/pytorch/issues/26098",
    says=rf"{BROKEN}|mask|-inf|softmax",
    fault="a random key padding mask hides every position of some sequences: the softmax of -inf alone is NaN",
)
def whole_rows(planted: bool) -> Task:
    def draw() -> Drawn:
        src, padding_mask = torch.randn(64, 10, 16), torch.rand(64, 10) < 0.7
        total = (src[:, :, :1] * ~padding_mask.unsqueeze(2)).sum(1)
        return (src, padding_mask), total

    class EncoderLayer(nn.Module):
        def __init__(self, d: int = 32) -> None:
            super().__init__()
            self.self_attn = Attention(d, -torch.inf if planted else -1e20)
            self.linear1, self.linear2 = nn.Linear(d, 64), nn.Linear(64, d)
            self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)

        def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
            x = self.norm1(x + self.self_attn(x, hidden))
            return self.norm2(x + self.linear2(F.relu(self.linear1(x))))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Linear(16, 32), nn.Linear(32, 1)
            self.layers = nn.ModuleList([EncoderLayer(), EncoderLayer()])

        def forward(self, src: Tensor, padding_mask: Tensor) -> Tensor:
            x = self.embed(src)
            for layer in self.layers:
                x = layer(x, padding_mask[:, None, None])
            return (self.head(x) * ~padding_mask.unsqueeze(2)).sum(1)

    return stream(Model(), draw, F.mse_loss)


@report(
    "pruned rows of NaN",
    GITHUB + "pytorch/pytorch/issues/41508",
    says=rf"{BROKEN}|mask|-inf|softmax|padding",
    fault="left padding and a causal mask hide all keys of padded queries: pruned later, yet their gradients are NaN",
)
def pruned(planted: bool) -> Task:
    def draw() -> Drawn:
        x, t = text(24, 16, 64, seed=int(torch.randint(10**6, ())))
        padded = torch.arange(16) < torch.randint(1, 8, (24, 1))
        return (x.masked_fill(padded, 64), padded), t.masked_fill(padded, -100)

    class Decoder(nn.Module):
        def __init__(self, d: int = 48) -> None:
            super().__init__()
            self.embed, self.position = nn.Embedding(65, d), nn.Embedding(16, d)
            self.attn, self.norm = Attention(d, -torch.inf if planted else -1e9), nn.LayerNorm(d)
            self.ffn, self.head = chain(nn.Linear(d, 96), nn.ReLU(), nn.Linear(96, d)), nn.Linear(d, 64)

        def forward(self, idx: Tensor, padded: Tensor) -> Tensor:
            x = self.embed(idx) + self.position.weight
            hidden = torch.ones(16, 16, dtype=torch.bool).triu(1) | padded[:, None, None]
            x = self.norm(x + self.attn(x, hidden))
            return self.head(x + self.ffn(x))

    def loss(y: Tensor, t: Tensor) -> Tensor:
        kept = t.flatten() != -100
        return F.cross_entropy(y.flatten(0, 1)[kept], t.flatten()[kept])

    return stream(Decoder(), draw, loss)


class RMSNorm(nn.Module):
    """T5LayerNorm."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def language(model: nn.Module, count: int = 8, length: int = 24) -> Task:
    def draw() -> Drawn:
        x, t = text(count, length, 256, seed=int(torch.randint(10**6, ())))
        return (x,), t

    return stream(model, draw, lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten()))


@report(
    "T5 head of variance one",
    GITHUB + "huggingface/transformers/pull/26441",
    guilty=r"lm_head",
    says=r"(logits?|outputs?|head|loss).*(large|huge|scale|spread|confident|high|far)|init.*(large|std|varian|scale)",
    fault="the untied language model head is drawn with variance 1: logits of variance d",
)
def t5_head(planted: bool) -> Task:
    class T5(nn.Module):
        def __init__(self, d: int = 128) -> None:
            super().__init__()
            self.shared, self.position = nn.Embedding(256, d), nn.Embedding(24, d)
            self.norm1, self.norm2, self.final_layer_norm = RMSNorm(d), RMSNorm(d), RMSNorm(d)
            self.attention = Attention(d, -torch.inf)
            self.wi, self.wo = nn.Linear(d, 2 * d, bias=False), nn.Linear(2 * d, d, bias=False)
            self.lm_head = nn.Linear(d, 256, bias=False)
            nn.init.normal_(self.shared.weight, 0.0, 1.0)
            nn.init.normal_(self.lm_head.weight, 0.0, 1.0 if planted else d**-0.5)
            nn.init.normal_(self.wi.weight, 0.0, d**-0.5)
            nn.init.normal_(self.wo.weight, 0.0, (2 * d) ** -0.5)

        def forward(self, idx: Tensor) -> Tensor:
            x = self.shared(idx) + self.position.weight
            x = x + self.attention(self.norm1(x), torch.ones(24, 24, dtype=torch.bool).triu(1))
            x = x + self.wo(F.relu(self.wi(self.norm2(x))))
            return self.lm_head(self.final_layer_norm(x))

    return language(T5())


@report(
    "RetNet's words not initialised",
    GITHUB + "syncdoth/RetNet/issues/31",
    guilty=r"embed_tokens|lm_head",
    says=r"(logits?|outputs?|head|loss).*(large|huge|scale|spread|confident|high|far)|init.*(large|std|varian|scale)",
    fault="the word embedding keeps N(0, 1) and is the output projection as well: the loss starts far above log V",
)
def retnet(planted: bool) -> Task:
    class Retention(nn.Module):
        def __init__(self, d: int) -> None:
            super().__init__()
            self.qkv, self.gate, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(d, d)
            gap = torch.arange(24)[:, None] - torch.arange(24)
            self.register_buffer("decay", torch.where(gap >= 0, 0.9 ** gap.clamp(min=0), 0.0))
            self.group_norm = nn.LayerNorm(d)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(x).chunk(3, -1)
            out = (q @ k.transpose(1, 2) / math.sqrt(x.shape[-1]) * self.decay) @ v
            return self.proj(F.silu(self.gate(x)) * self.group_norm(out))

    class RetNetLM(nn.Module):
        def __init__(self, d: int = 64) -> None:
            super().__init__()
            self.embed_tokens = nn.Embedding(256, d)
            if not planted:
                nn.init.normal_(self.embed_tokens.weight, 0.0, d**-0.5)
            self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(5))
            self.retentions = nn.ModuleList(Retention(d) for _ in range(2))
            self.ffns = nn.ModuleList(chain(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)) for _ in range(2))
            self.lm_head = nn.Linear(d, 256, bias=False)
            self.lm_head.weight = self.embed_tokens.weight

        def forward(self, idx: Tensor) -> Tensor:
            x = self.embed_tokens(idx)
            for i in range(2):
                x = x + self.retentions[i](self.norms[2 * i](x))
                x = x + self.ffns[i](self.norms[2 * i + 1](x))
            return self.lm_head(self.norms[4](x))

    return language(RetNetLM())


@report(
    "positions added without gradients",
    GITHUB + "espnet/espnet/pull/465",
    guilty=r"embed|conv",
    says=CUT,
    fault="the positional encoding runs under no_grad: subsampling and input layer before it never learn",
)
def no_grad_positions(planted: bool) -> Task:
    """Frames of a drawn sequence of digits are subsampled by convolutions; a transformer names the digits."""

    def draw() -> Drawn:
        x, c = pick(96)
        return (torch.cat(x.chunk(3), 3),), torch.stack(c.chunk(3), 1)

    class PositionalEncoding(nn.Module):
        def __init__(self, d: int) -> None:
            super().__init__()
            at = torch.arange(12).unsqueeze(1) * torch.exp(-math.log(1e4) * torch.arange(0, d, 2) / d)
            self.register_buffer("pe", torch.stack([at.sin(), at.cos()], 2).flatten(1))
            self.scale = math.sqrt(d)

        def forward(self, x: Tensor) -> Tensor:
            with torch.set_grad_enabled(torch.is_grad_enabled() and not planted):
                return x * self.scale + self.pe[: x.shape[1]]

    class E2E(nn.Module):
        def __init__(self, d: int = 32) -> None:
            super().__init__()
            self.conv = chain(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, (2, 1), 1), nn.ReLU())
            self.embed, self.pos = nn.Linear(32, d), PositionalEncoding(d)
            layer = nn.TransformerEncoderLayer(d, 4, 64, 0.0, batch_first=True, norm_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(d), enable_nested_tensor=False)
            self.out = nn.Linear(4 * d, 10)

        def forward(self, x: Tensor) -> Tensor:
            h = self.encoder(self.pos(self.embed(self.conv(x).flatten(1, 2).transpose(1, 2))))
            return self.out(h.unflatten(1, (3, 4)).flatten(2))

    return stream(E2E(), draw, lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten()))


@report(
    "rows of the batch as time steps",
    GITHUB + "yunjey/pytorch-tutorial/issues/196",
    guilty=r"lstm",
    says=rf"{MIXED}|batch.?first|batch.*(time|sequence)|(time|sequence).*batch",
    fault="batch_first=False for images (batch, rows, pixels): the LSTM runs over the examples",
)
def mnist_rows(planted: bool) -> Task:
    class RNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden_size, self.num_layers = 64, 2
            self.lstm = nn.LSTM(8, 64, 2, batch_first=not planted)
            self.fc = nn.Linear(64, 10)

        def forward(self, x: Tensor) -> Tensor:
            h0 = torch.zeros(self.num_layers, x.size(1 if planted else 0), self.hidden_size)
            out, _ = self.lstm(x, (h0, torch.zeros_like(h0)))
            return self.fc(out[:, -1, :])

    def draw() -> Drawn:
        x, c = pick(64)
        return (x.reshape(-1, 8, 8),), c

    return stream(RNN(), draw, F.cross_entropy)


def graph(n: int, share: float) -> Tensor:
    """A symmetric adjacency without loops; rows of the last nodes are empty."""
    a = (torch.rand(n, n) < share).float().triu(1)
    a[:, -n // 3 :] = 0
    return a + a.t()


@report(
    "GraphConv without self loops",
    GITHUB + "dmlc/dgl/issues/1566",
    says=r"self.?loop|isolat|neighbou?r|degree|zero|own feature|" + SAME,
    fault="no self loops: a node's own features are not used, and those of isolated nodes are washed out",
)
def self_loops(planted: bool) -> Task:
    def draw() -> Drawn:
        a = graph(60, 0.08)
        a = a if planted else a + torch.eye(60)
        degree = a.sum(1).clamp(min=1)
        a = a / (degree.unsqueeze(1) * degree).sqrt()
        c = torch.randint(4, (60,))
        return (a, base[c] + torch.randn(60, 12)), c

    class GraphConv(nn.Linear):
        def forward(self, a: Tensor, x: Tensor) -> Tensor:  # type: ignore[override]
            return a @ super().forward(x)

    class GCN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([GraphConv(12, 32), GraphConv(32, 4)])

        def forward(self, a: Tensor, x: Tensor) -> Tensor:
            return self.layers[1](a, F.relu(self.layers[0](a, x)))

    base = 2 * torch.randn(4, 12)
    return stream(GCN(), draw, F.cross_entropy)


@report(
    "BPR of two items",
    GITHUB + "tanatosuu/GDE/pull/2",
    says=rf"{BROKEN}|sigmoid|overflow|log of (zero|0)|bound",
    fault="the negative score is item times item, not user times item: it grows until the log of a sigmoid of 0",
)
def gde(planted: bool) -> Task:
    """Graph denoising encoder: embeddings smoothed by the spectrum of the interactions, BPR by sampled triples."""
    taste, kind = torch.randn(40, 3), torch.randn(60, 3)
    rate_matrix = ((taste @ kind.t() + 0.5 * torch.randn(40, 60)) > 1.5).float()
    rate_matrix[torch.arange(40), torch.randint(60, (40,))] = 1
    d_u, d_i = rate_matrix.sum(1, keepdim=True).clamp(min=1), rate_matrix.sum(0, keepdim=True).clamp(min=1)
    left, values, right = torch.linalg.svd(rate_matrix / d_u.sqrt() / d_i.sqrt())
    weights = torch.exp(5.0 * values[:8]) / math.exp(2.5)

    class GDE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.user_embed, self.item_embed = nn.Embedding(40, 16), nn.Embedding(60, 16)
            nn.init.xavier_normal_(self.user_embed.weight)
            nn.init.xavier_normal_(self.item_embed.weight)
            self.m = nn.Dropout(0.1)
            self.register_buffer("L_u", (left[:, :8] * weights) @ left[:, :8].t())
            self.register_buffer("L_i", (right[:8].t() * weights) @ right[:8])

        def forward(self, user: Tensor, pos_item: Tensor, nega_item: Tensor) -> tuple[Tensor, ...]:
            user_all, item_all = self.user_embed.weight, self.item_embed.weight
            final_user = (self.m(self.L_u[user]) * 0.9) @ user_all
            return final_user, *((self.m(self.L_i[item]) * 0.9) @ item_all for item in (pos_item, nega_item))

    def draw() -> Drawn:
        u = torch.randint(40, (128,))
        p, nega = (torch.multinomial(m[u], 1).squeeze(1) for m in (rate_matrix, 1 - rate_matrix))
        return (u, p, nega), u

    def bpr(y: tuple[Tensor, ...], _: Tensor, *, wrong: bool = planted) -> Tensor:
        final_user, final_pos, final_nega = y
        negative = ((final_pos if wrong else final_user) * final_nega).sum(1)
        out = ((final_user * final_pos).sum(1) - negative).sigmoid()
        reg_term = 0.001 * (final_user**2 + final_pos**2 + final_nega**2).sum()
        return (-torch.log(out).sum() + reg_term) / 128

    return stream(GDE(), draw, bpr, partial(bpr, wrong=False))


@report(
    "GraphSAGE divides by no neighbours",
    GITHUB + "MrLeeeee/GCN-GAT-and-Graphsage/issues/3",
    says=rf"{BROKEN}|divi|degree|zero|isolat|neighbou?r",
    fault="sums over neighbours are divided by degrees, which are zero for some nodes",
)
def graphsage(planted: bool) -> Task:
    class Graphsage(nn.Module):
        def __init__(self, infeat: int, outfeat: int) -> None:
            super().__init__()
            stdv = 1.0 / math.sqrt(outfeat)
            self.W = nn.Parameter(torch.empty(2 * infeat, outfeat).uniform_(-stdv, stdv))
            self.bias = nn.Parameter(torch.empty(outfeat).uniform_(-stdv, stdv))

        def forward(self, input: Tensor, adj: Tensor) -> Tensor:
            h1 = torch.mm(adj, input)
            degree = adj.sum(dim=1, keepdim=True).expand_as(h1)
            h1 = h1 / (degree if planted else degree + 1e-5)
            return torch.mm(torch.cat([input, h1], dim=1), self.W)

    class PyGraphsage(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dropout = nn.Dropout()
            self.sage1, self.sage2, self.att = Graphsage(12, 32), Graphsage(32, 32), nn.Linear(32, 4)

        def forward(self, input: Tensor, adj: Tensor) -> Tensor:
            hid1 = self.dropout(self.sage1(input, adj))
            return F.log_softmax(self.att(self.sage2(hid1, adj)), dim=1)

    def draw() -> Drawn:
        c = torch.randint(4, (60,))
        return (base[c] + torch.randn(60, 12), graph(60, 0.08)), c

    base = torch.randn(4, 12)
    return stream(PyGraphsage(), draw, F.nll_loss)


@report(
    "GCNConv of signed edges",
    GITHUB + "pyg-team/pytorch_geometric/issues/61",
    says=rf"{BROKEN}|negative|degree|sqrt|root|pow|power|edge",
    fault="edge weights of both signs make weighted degrees negative, and their power of -1/2 NaN",
)
def signed_edges(planted: bool) -> Task:
    class GCNConv(nn.Linear):
        def forward(self, x: Tensor, edge: Tensor) -> Tensor:  # type: ignore[override]
            weight = edge + torch.eye(len(edge))
            deg = (weight if planted else torch.ones_like(weight) * (weight != 0)).sum(1)
            deg_inv = deg.pow(-0.5)
            deg_inv = deg_inv.masked_fill(deg_inv == torch.inf, 0)
            return (deg_inv.unsqueeze(1) * weight * deg_inv) @ super().forward(x)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2, self.out = GCNConv(12, 32), GCNConv(32, 32), nn.Linear(32, 1)

        def forward(self, x: Tensor, edge: Tensor) -> Tensor:
            return self.out(F.relu(self.conv2(F.relu(self.conv1(x, edge)), edge)))

    def draw() -> Drawn:
        x, edge = torch.randn(60, 12), graph(60, 0.08) * torch.randn(60, 60)
        return (x, edge), (x[:, :1] + edge @ x[:, 1:2]) / (1 + (edge != 0).sum(1, keepdim=True))

    return stream(Net(), draw, F.mse_loss)


@report(
    "captcha of as many frames as letters",
    GITHUB + "ypwhs/captcha_break/issues/29",
    says=rf"{BROKEN}|\binf\b|length|frames?|too short|align|steps",
    fault="pooling leaves six frames for four letters: four equal letters need seven, and CTC is infinite",
)
def captcha(planted: bool) -> Task:
    def draw() -> Drawn:
        x, c = pick(256)
        return (torch.cat(x.chunk(4), 3),), torch.stack(c.chunk(4), 1) + 1

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cnn = chain(
                nn.Conv2d(1, 16, 3, padding=1),
                nn.BatchNorm2d(16),
                nn.ReLU(),
                nn.MaxPool2d((2, 1)),
                nn.Conv2d(16, 32, 3, padding=1),
                nn.BatchNorm2d(32),
                nn.ReLU(),
                nn.MaxPool2d((2, 5) if planted else (2, 2)),
            )
            self.lstm, self.fc = nn.LSTM(64, 32, bidirectional=True), nn.Linear(64, 11)

        def forward(self, x: Tensor) -> Tensor:
            x = self.cnn(x).flatten(1, 2).permute(2, 0, 1)
            return self.fc(self.lstm(x)[0])

    def ctc(output: Tensor, target: Tensor) -> Tensor:
        n = output.shape[1]
        output_log_softmax = F.log_softmax(output, dim=-1)
        return F.ctc_loss(output_log_softmax, target, torch.full((n,), len(output)), torch.full((n,), 4))

    return stream(Model(), draw, ctc)


@report(
    "log variance taken for a deviation",
    GITHUB + "deepchem/deepchem/pull/4888",
    guilty=r"logvar|log_var",
    says=r"\bKL\b|log.?var|varian|\bexp\b|deviation|diverg",
    fault="the KL term squares the log variance as if it were a standard deviation",
)
def kl_formula(planted: bool) -> Task:
    class VAE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = chain(nn.Flatten(), nn.Linear(64, 64), nn.ReLU())
            self.mu, self.logvar = nn.Linear(64, 8), nn.Linear(64, 8)
            self.decoder = chain(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.Sigmoid())

        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            h = self.encoder(x)
            mu, logvar = self.mu(h), self.logvar(h)
            return self.decoder(mu + (0.5 * logvar).exp() * torch.randn_like(mu)), mu, logvar

    def draw() -> Drawn:
        x, _ = pick(64)
        return (x,), (x.flatten(1) * 0.376 + 0.3).clamp(0, 1)

    def elbo(y: tuple[Tensor, ...], t: Tensor, *, wrong: bool = planted) -> Tensor:
        mu, logvar = y[1:]
        if wrong:
            kl = 0.5 * (mu.square() + logvar.square() - torch.log(1e-20 + logvar.square()) - 1).mean(1)
        else:
            kl = 0.5 * (mu.square() + logvar.exp() - logvar - 1).mean(1)
        return F.binary_cross_entropy(y[0], t) + kl.mean()

    return stream(VAE(), draw, elbo, partial(elbo, wrong=False))


@report(
    "TabNet divides by the mean of a constant",
    GITHUB + "dreamquark-ai/tabnet/issues/572",
    says=r"varian|\bstd\b|deviation|constant|divi|negative|bound|huge|not vary|no spread|normalis|normaliz",
    fault="errors of pretraining are divided by batch variances, and where these are 0 by the means, tiny and negative",
)
def tabnet(planted: bool) -> Task:
    """Some features are hidden; encoder and decoder restore them. One feature does not vary."""
    mix = torch.randn(3, 8)

    def draw() -> Drawn:
        x = torch.randn(64, 3) @ mix + 0.3 * torch.randn(64, 8)
        x = torch.cat([x, torch.full((64, 1), -0.004)], 1)
        obf_vars = torch.bernoulli(torch.full_like(x, 0.3))
        return (x, obf_vars), x

    class TabNetPretraining(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.initial_bn = nn.BatchNorm1d(9)
            self.encoder = chain(nn.Linear(9, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
            self.decoder = chain(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 9))

        def forward(self, x: Tensor, obf_vars: Tensor) -> tuple[Tensor, Tensor]:
            return self.decoder(self.encoder(self.initial_bn(x) * (1 - obf_vars))), obf_vars

    def unsupervised(y: tuple[Tensor, Tensor], embedded_x: Tensor, *, wrong: bool = planted) -> Tensor:
        y_pred, obf_vars = y
        reconstruction_errors = (torch.mul(y_pred - embedded_x, obf_vars)) ** 2
        batch_means = torch.mean(embedded_x, dim=0)
        batch_means = torch.where(batch_means == 0, 1.0, batch_means) if wrong else torch.ones_like(batch_means)
        batch_stds = torch.std(embedded_x, dim=0) ** 2
        batch_stds = torch.where(batch_stds < 1e-12, batch_means, batch_stds)
        features_loss = torch.matmul(reconstruction_errors, 1 / batch_stds)
        return (features_loss / (obf_vars.sum(1) + 1e-9)).mean()

    return stream(TabNetPretraining(), draw, unsupervised, partial(unsupervised, wrong=False))


@report(
    "critic trained by the policy's loss",
    GITHUB + "astariul/encode-attend-navigate-pytorch/issues/2",
    guilty=r"critic",
    says=r"critic|baseline|detach|stop.*gradient|advantage",
    fault="the critic's value is not detached in the policy's loss, which drives it away from the reward",
)
def tsp(planted: bool) -> Task:
    """Tours of six cities: an encoder, a pointer decoder that samples, a critic of the whole."""

    class Agent(nn.Module):
        def __init__(self, d: int = 48) -> None:
            super().__init__()
            self.embed = nn.Linear(2, d)
            self.encoder = nn.TransformerEncoderLayer(d, 4, 96, 0.0, batch_first=True)
            self.w_ref, self.w_q, self.v = nn.Linear(d, d), nn.Linear(2 * d, d), nn.Linear(d, 1)
            self.critic = chain(nn.Linear(d, 32), nn.ReLU(), nn.Linear(32, 1))

        def forward(self, coords: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            h = self.encoder(self.embed(coords))
            ref, rows = self.w_ref(h), torch.arange(len(h))
            visited, at = torch.zeros(h.shape[:2]), torch.zeros(len(h), dtype=torch.long)
            tour, log_probs = [at], torch.zeros(len(h))
            for _ in range(5):
                visited = visited.index_put((rows, at), torch.ones(()))
                query = self.w_q(torch.cat([h[rows, at], h[:, 0]], 1)).unsqueeze(1)
                logits = self.v(torch.tanh(ref + query)).squeeze(2) * 3 - 1e8 * visited
                at = torch.multinomial(logits.detach().softmax(1), 1).squeeze(1)
                log_probs = log_probs + logits.log_softmax(1)[rows, at]
                tour.append(at)
            ordered = coords.gather(1, torch.stack([*tour, tour[0]], 1).unsqueeze(2).expand(-1, -1, 2))
            reward = (ordered[:, 1:] - ordered[:, :-1]).square().sum(2).add(1e-9).sqrt().sum(1)
            return reward, self.critic(h.mean(1)).squeeze(1), log_probs

    def loss(y: tuple[Tensor, Tensor, Tensor], _: Tensor) -> Tensor:
        reward, critique, log_probs = y[0].detach(), y[1], y[2]
        loss1 = ((reward - (critique if planted else critique.detach())) * log_probs).mean()
        return loss1 + F.mse_loss(reward, critique)

    def logged(y: tuple[Tensor, Tensor, Tensor], _: Tensor) -> Tensor:
        return y[0].mean() + F.mse_loss(y[1], y[0])

    def draw() -> Drawn:
        x = torch.rand(128, 6, 2)
        return (x,), x

    return stream(Agent(), draw, loss, logged)


@report(
    "DeepAR without scaling",
    GITHUB + "awslabs/gluonts/issues/2413",
    guilty=r"args_proj|weight_ih_l0",
    says=SCALED + r"|target",
    fault="scaling=False: series in the thousands are fed and forecast as they are",
)
def deepar(planted: bool) -> Task:
    class DeepAR(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.args_proj = nn.LSTM(1, 40, 2, batch_first=True), nn.Linear(40, 2)

        def forward(self, past: Tensor) -> tuple[Tensor, Tensor]:
            scale = torch.ones(len(past), 1) if planted else past.abs().mean(1, keepdim=True).clamp(min=1e-10)
            loc, raw = self.args_proj(self.lstm((past / scale).unsqueeze(2))[0]).unbind(2)
            return loc * scale, (F.softplus(raw) + 1e-6) * scale

    def draw() -> Drawn:
        level = torch.exp(torch.empty(32, 1).uniform_(6, 9))
        at = torch.arange(25) * 2 * math.pi / 8 + torch.rand(32, 1) * 6.28
        x = level * (1 + 0.5 * at.sin() + 0.05 * torch.randn(32, 25))
        return (x[:, :-1],), x[:, 1:]

    def nll(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return -torch.distributions.StudentT(6.0, y[0], y[1]).log_prob(t).mean()

    return stream(DeepAR(), draw, nll)


@report(
    "shuttles by latitude and speed",
    GITHUB + "Shubble-LLC/shubble/pull/353",
    guilty=r"lstm.*ih",
    says=SCALED,
    fault="latitudes, longitudes and speeds are fed to the LSTM as they are: the position hardly varies",
)
def shuttle(planted: bool) -> Task:
    """Speed of a shuttle on a loop a kilometre long, where stops are; the last ten fixes are known."""

    class LSTMModel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.fc = nn.LSTM(3, 50, 1, batch_first=True), nn.Linear(50, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.lstm(x)[0][:, -1])

    def draw() -> Drawn:
        at = torch.rand(64, 1) * 6.28 + 0.12 * torch.arange(11)
        speed = 10 + 9 * torch.sin(3 * at) + 0.5 * torch.randn(64, 11)
        place = torch.stack([42.73 + 0.005 * at.sin(), -73.676 + 0.005 * at.cos(), speed + 2 * torch.randn(64, 11)], 2)
        if not planted:
            place = (place - torch.tensor([42.73, -73.676, 10])) / torch.tensor([0.0035, 0.0035, 7])
        return (place[:, :-1],), (speed[:, -1:] - 10) / 7

    return stream(LSTMModel(), draw, F.mse_loss)
