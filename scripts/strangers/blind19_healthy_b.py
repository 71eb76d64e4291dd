"""Healthy networks of the nineteenth set, of every second word, without sight of the rules."""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from strangers.apart import GITHUB, Parts
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import _digits

healthy = partial(any_report, blind="blind19")


@healthy("directional self-attention for SNLI", GITHUB + "baaesh/SAN4NLI-pytorch/blob/12cec61/model.py")
def san4nli(_: bool) -> Task:  # noqa: C901
    """Forward and backward masked attention blocks, fusion gates with ONE shared LayerNorm, source2token and max
    pooling."""
    V, d, heads = 120, 20, 2

    def masked_softmax(vec, mask, dim):
        masked = vec * mask
        e = torch.exp(masked - masked.max(dim, keepdim=True)[0]) * mask
        s = e.sum(dim, keepdim=True)
        return e / (s + (s == 0).float() + 1e-20)

    class Heads(nn.Module):
        def __init__(self, fw):
            super().__init__()
            self.fw, k = fw, d // heads
            for n in "qkv":
                setattr(self, f"w_{n}s", nn.Parameter(nn.init.xavier_normal_(torch.empty(heads, d, k))))
            self.layer_norm, self.layer_norm2 = nn.LayerNorm(k), nn.LayerNorm(d)
            self.proj, self.dropout = nn.Linear(d, d), nn.Dropout(0.1)

        def forward(self, x, rep_mask):
            b, n, _ = x.shape

            def one(w):
                return self.layer_norm(torch.bmm(x.repeat(heads, 1, 1).view(heads, -1, d), w).view(-1, n, d // heads))

            q, k, v = one(self.w_qs), one(self.w_ks), one(self.w_vs)
            m = rep_mask.repeat(heads, 1, 1)
            tri = torch.ones(n, n).tril(-1) if self.fw else torch.ones(n, n).triu(1)
            attn = masked_softmax(torch.bmm(q, k.transpose(1, 2)) / d**0.5, m * m.transpose(1, 2) * tri, 2)
            out = torch.cat(torch.split(torch.bmm(attn, v), b, dim=0), dim=-1)
            return self.dropout(self.layer_norm2(self.proj(out)))

    class Gate(nn.Module):
        def __init__(self):
            super().__init__()
            self.w_s = nn.Parameter(nn.init.xavier_normal_(torch.empty(d, d)))
            self.w_h = nn.Parameter(nn.init.xavier_normal_(torch.empty(d, d)))
            self.b, self.dropout, self.layer_norm = nn.Parameter(torch.zeros(d)), nn.Dropout(0.1), nn.LayerNorm(d)

        def forward(self, s, h):
            s, h = self.layer_norm(s @ self.w_s), self.layer_norm(h @ self.w_h)
            f = torch.sigmoid(self.dropout(s + h + self.b))
            return self.layer_norm(f * s + (1 - f) * h)

    class Block(nn.Module):
        def __init__(self, fw):
            super().__init__()
            self.attn_layer, self.fusion_gate = Heads(fw), Gate()
            self.w_1, self.w_2 = nn.Conv1d(d, 4 * d, 1), nn.Conv1d(4 * d, d, 1)
            self.layer_norm, self.dropout = nn.LayerNorm(d), nn.Dropout(0.1)

        def forward(self, x, m):
            x = self.fusion_gate(x, self.attn_layer(x, m))
            y = self.dropout(self.w_2(F.relu(self.w_1(x.transpose(1, 2)))).transpose(2, 1))
            return self.layer_norm(y + x)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.word_emb = nn.Embedding(V, d)
            self.word_emb.weight.requires_grad = False  # GloVe
            self.word_emb.weight.data.mul_(0.4)
            self.fw_block, self.bw_block = Block(True), Block(False)
            self.fc1, self.fc2, self.s2t_norm = nn.Linear(2 * d, 2 * d), nn.Linear(2 * d, 2 * d), nn.LayerNorm(2 * d)
            self.fc, self.fc_out, self.layer_norm = nn.Linear(16 * d, d), nn.Linear(d, 3), nn.LayerNorm(d)
            self.dropout = nn.Dropout(0.1)

        def encode(self, w):
            m = (w > 0).float().unsqueeze(-1)
            x = self.word_emb(w)
            u = torch.cat([self.fw_block(x, m), self.bw_block(x, m)], -1)
            a = self.s2t_norm(self.fc2(F.elu(self.s2t_norm(self.fc1(u)))))
            return torch.cat([(u * masked_softmax(a, m, 1)).sum(1), (u * m).max(1)[0]], -1)

        def forward(self, p, h):
            p, h = self.encode(p), self.encode(h)
            s = torch.cat([p, h, (p - h).abs(), p * h], -1)
            return self.fc_out(self.dropout(F.relu(self.layer_norm(self.fc(s)))))

    def draw():
        p, t = torch.randint(3, V, (64, 10)), torch.randint(3, (64,))
        near, far = p[:, torch.randperm(10)[:6]], torch.randint(3, V, (64, 6))
        h = torch.where((t == 0).view(-1, 1), near, far)
        h[:, 5] = torch.where(t == 1, 1, torch.randint(3, V, (64,)))  # "not"
        p[torch.arange(10) >= torch.randint(7, 11, (64, 1))] = 0
        return (p, h), t

    return stream(Net(), draw, F.cross_entropy)


@healthy(
    "learned U-Net iterator for the heat equation",
    GITHUB + "ermongroup/Neural-PDE-Solver/blob/04d56e3/models/heat_model.py",
)
def neural_pde(_: bool) -> Task:  # noqa: C901
    """A Jacobi step plus a LINEAR U-Net of single-channel convolutions without biases on its residual; MSE to the
    solution."""
    n, jac = 13, torch.tensor([[0, 0.25, 0], [0.25, 0, 0.25], [0, 0.25, 0]]).view(1, 1, 3, 3)

    def one(s=1, p=1):
        return nn.Conv2d(1, 1, 3, stride=s, padding=p, bias=False)

    def run(m, x, bc):
        y = F.conv2d(x.unsqueeze(1), jac)
        r, kept = y - x.unsqueeze(1)[:, :, 1:-1, 1:-1], []
        for i in range(3):
            for j in range(2):
                r = m.first_layers[2 * i + j](r)
            kept.append(r)
            if i < 2:
                r = m.pooling_layers[i](r)
        for i in range(3):
            for j in range(2):
                r = m.second_layers[2 * i + j](r)
            r = r + kept[2 - i]
            if i < 2:
                r = F.pad(r, (1, 1, 1, 1))
                r = F.interpolate(r, size=r.size(-1) * 2 - 1, mode="bilinear", align_corners=True)[:, :, 1:-1, 1:-1]
        out = bc.clone()
        out[:, 1:-1, 1:-1] = (y + r).squeeze(1)
        return out

    def draw():
        bc = torch.zeros(32, n, n)
        side = torch.rand(32, 4, 1)
        bc[:, 0], bc[:, -1], bc[:, :, 0], bc[:, :, -1] = side[:, 0], side[:, 1], side[:, 2], side[:, 3]
        x = bc.clone()
        start = x.clone()
        start[:, 1:-1, 1:-1] = torch.rand(32, n - 2, n - 2)
        for _ in range(150):
            x[:, 1:-1, 1:-1] = F.conv2d(x.unsqueeze(1), jac).squeeze(1)
        return (start, bc), x

    model = Parts(
        run,
        first_layers=nn.ModuleList(one() for _ in range(6)),
        second_layers=nn.ModuleList(one() for _ in range(6)),
        pooling_layers=nn.ModuleList(one(2, 0) for _ in range(2)),
    )
    return stream(model, draw, F.mse_loss)


@healthy(
    "BeatNet non-causal temporal convolutions",
    GITHUB + "ben-hayes/beat-tracking-tcn/blob/ae22044/beat_tracking_tcn/models/beat_net.py",
)
def beatnet(_: bool) -> Task:
    """Mel frames; ELU convolutions; dilated weight-normed layers WITHOUT a residual where channels agree; N(0, 0.01);
    BCELoss."""
    from torch.nn.utils import weight_norm

    c, drop = 16, 0.1

    def layer(dil):
        def conv():
            return weight_norm(nn.Conv1d(c, c, 5, padding=2 * dil, dilation=dil))

        a, b = conv(), conv()
        for m in (a, b):
            m.weight.data.normal_(0, 0.01)
        return chain(a, nn.ELU(), nn.Dropout(drop), b, nn.ELU(), nn.Dropout(drop), nn.ELU())

    front = chain(
        nn.Conv2d(1, c, 3, padding=(1, 0)),
        nn.ELU(),
        nn.Dropout(drop),
        nn.MaxPool2d((1, 3)),
        nn.Conv2d(c, c, 3, padding=(1, 0)),
        nn.ELU(),
        nn.Dropout(drop),
        nn.MaxPool2d((1, 3)),
        nn.Conv2d(c, c, (1, 1)),
        nn.ELU(),
    )
    model = chain(front, nn.Flatten(2), chain(*[layer(2**i) for i in range(4)]), nn.Conv1d(c, 1, 1), nn.Sigmoid())

    def draw():
        period, phase = torch.randint(8, 16, (16, 1)), torch.randint(0, 8, (16, 1))
        beat = ((torch.arange(64) - phase) % period == 0).float()
        x = torch.rand(16, 1, 64, 18) * 0.3 + beat.view(16, 1, 64, 1) * torch.rand(16, 1, 1, 18) * 2
        return (x,), torch.maximum(beat, 0.5 * F.max_pool1d(beat.unsqueeze(1), 3, 1, 1).squeeze(1)).unsqueeze(1)

    return stream(model, draw, F.binary_cross_entropy)


@healthy(
    "two-layer GRU tagger of UD parts of speech",
    GITHUB + "JakobEdding/pytorch-dist-pos-tagger/blob/f614356/src/common/trainer.py",
)
def pos(_: bool) -> Task:
    """All parameters from N(0, 0.1^2), embeddings with a zero padding row, dropout 0.25, one direction, padding
    ignored."""
    V, tags = 200, 17
    model = Parts(
        lambda m, t: m.fc(m.dropout(m.rnn(m.dropout(m.embedding(t.T)))[0])).transpose(0, 1),
        embedding=nn.Embedding(V, 50, padding_idx=1),
        rnn=nn.GRU(50, 48, num_layers=2, dropout=0.25),
        fc=nn.Linear(48, tags + 1),
        dropout=nn.Dropout(0.25),
    )
    for p in model.parameters():
        nn.init.normal_(p.data, mean=0, std=0.1)
    model.embedding.weight.data[1] = 0
    kind = torch.randint(1, tags + 1, (V,), generator=torch.Generator().manual_seed(3))

    def draw():
        w = torch.randint(2, V, (32, 16))
        t = kind[w]
        t[:, 1:] = torch.where((w[:, 1:] % 5 == 0) & (t[:, :-1] < 8), t[:, :-1], t[:, 1:])
        pad = torch.arange(16) >= torch.randint(8, 17, (32, 1))
        return (w.masked_fill(pad, 1),), t.masked_fill(pad, 0)

    return stream(model, draw, lambda y, t: F.cross_entropy(y.reshape(-1, tags + 1), t.reshape(-1), ignore_index=0))


@healthy(
    "NT-Xent encoder of handwritten formulas",
    GITHUB + "njtech-zyd/handwritten-math-formula-recognition/blob/55b1021/contrastive_learning/train_encoder.py",
)
def formula(_: bool) -> Task:
    """Black ink on white in [0, 1], two augmented views of each formula; normalised projections, temperature 0.5."""

    def c(i, o, k):
        return (nn.Conv2d(i, o, k, stride=2, padding=k // 2), nn.BatchNorm2d(o), nn.ReLU())

    conv = chain(*c(1, 8, 7), nn.MaxPool2d(2), *c(8, 16, 5), *c(16, 32, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    proj = chain(nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 32))

    def run(m, a, b):
        z = F.normalize(m.proj(m.conv(torch.cat([a, b], 0))), dim=1)
        return torch.stack(z.chunk(2), 1)

    def nt_xent(z, _t):
        z = torch.cat(z.unbind(1), 0)
        n = len(z)
        sim = (z @ z.T / 0.5)[~torch.eye(n, dtype=torch.bool)].view(n, -1)
        i = torch.arange(n)
        pos = torch.where(i < n // 2, i + n // 2, i - n // 2)
        return (-sim[i, torch.where(pos > i, pos - 1, pos)] + torch.logsumexp(sim, 1)).mean()

    def draw():
        g = [F.interpolate(_digits()[0][torch.randint(1700, (32,))], size=(20, 14)) for _ in range(2)]
        x = F.pad(torch.cat(g, -1), (2, 2, 6, 6))  # two symbols a formula

        def view():
            s = torch.empty(32).uniform_(0.85, 1.15)
            a = torch.empty(32).uniform_(-0.14, 0.14)
            o = torch.zeros(32)
            th = torch.stack(
                [
                    torch.stack([a.cos() / s, -a.sin(), torch.empty(32).uniform_(-0.1, 0.1)], 1),
                    torch.stack([a.sin(), a.cos() / s, o], 1),
                ],
                1,
            )
            return 1 - F.grid_sample(x, F.affine_grid(th, x.shape, align_corners=False), align_corners=False)

        return (view(), view()), torch.arange(32)

    return stream(Parts(run, conv=conv, proj=proj), draw, nt_xent)


@healthy(
    "deep and cross network with an LSTM for ad clicks",
    GITHUB + "nimnusmik/toss-ad-click-prediction/blob/21e5e19/src/model.py",
)
def toss(_: bool) -> Task:
    """Batch-normed numbers, embeddings, an LSTM over raw event ids, vector cross layers; weighted BCE with a pairwise
    hinge."""
    cards, dims, nums, hid = [2, 8, 12], [2, 4, 6], 10, 16
    tot = nums + sum(dims) + hid

    class DCN(nn.Module):
        def __init__(self):
            super().__init__()
            self.bn_numeric, self.embedding_dropout = nn.BatchNorm1d(nums), nn.Dropout(0.05)
            self.embedding_layers = nn.ModuleList(nn.Embedding(*p) for p in zip(cards, dims, strict=False))
            self.lstm = nn.LSTM(1, hid, batch_first=True)
            self.cross_layers = nn.ModuleList(nn.Linear(tot, 1) for _ in range(4))
            deep, i = [], tot
            for o in (64, 32, 16):
                deep += [nn.Linear(i, o), nn.BatchNorm1d(o), nn.ReLU(), nn.Dropout(0.3)]
                i = o
            self.deep_net, self.final_layer = chain(*deep), nn.Linear(tot + 16, 1)

        def forward(self, num, cat, seq, lengths):
            e = self.embedding_dropout(torch.cat([m(cat[:, i]) for i, m in enumerate(self.embedding_layers)], 1))
            packed = nn.utils.rnn.pack_padded_sequence(
                seq.unsqueeze(-1), lengths.cpu(), batch_first=True, enforce_sorted=False
            )
            x0 = torch.cat([self.bn_numeric(num), e, self.lstm(packed)[1][0][-1]], 1)
            x = x0
            for l in self.cross_layers:  # noqa: E741
                x = x0 * l(x) + x
            return self.final_layer(torch.cat([x, self.deep_net(x0)], 1)).squeeze(1)

    def loss(y, t):
        m = t.mean().clamp(1e-7, 1 - 1e-7)
        w = t * 0.5 / m + (1 - t) * 0.5 / (1 - m)
        wll = (F.binary_cross_entropy_with_logits(y, t, reduction="none") * w).mean()
        rank = F.relu(1.0 - (y[t == 1].unsqueeze(1) - y[t == 0].unsqueeze(0))).mean()
        return 0.7 * wll + 0.3 * rank

    def draw():
        num = torch.randn(64, nums).exp() * 3
        cat = torch.stack([torch.randint(c, (64,)) for c in cards], 1)
        seq, n = torch.randint(1, 500, (64, 12)).float(), torch.randint(3, 13, (64,))
        s = num[:, :3].log().sum(1) + (cat[:, 1] < 3) * 2.5 - (cat[:, 2] > 8) * 2.5 + 0.1 * torch.randn(64)
        return (num, cat, seq, n), (s > s.topk(12)[0][-1]).float()

    return stream(DCN(), draw, loss)


@healthy(
    "PCA-Net from initial to final Burgers states",
    GITHUB + "Zhengyu-Huang/Operator-Learning/blob/1e18fbf/burgers/nn/PCA/learnPCAtoPCA.py",
)
def pcanet(_: bool) -> Task:
    """Coefficients of principal components to those of the outputs; a narrow ReLU network; the SUM of squares times
    1000."""
    n, k = 64, 8
    g = torch.Generator().manual_seed(0)
    f = torch.arange(1, k + 1).float()

    def burgers(u):
        for _ in range(60):
            u = (
                u
                - 0.05 * u * (torch.roll(u, -1, 1) - torch.roll(u, 1, 1))
                + 0.1 * (torch.roll(u, -1, 1) + torch.roll(u, 1, 1) - 2 * u)
            )
        return u

    x = torch.linspace(0, 1, n + 1)[:-1]
    base = (
        torch.cat([torch.sin(2 * math.pi * f[:4, None] * x), torch.cos(2 * math.pi * f[:4, None] * x)])
        / f[:4].repeat(2)[:, None]
    )
    a = torch.randn(512, 8, generator=g) @ base * 0.7
    b = burgers(a)
    fh, gh = (
        a @ torch.linalg.svd(a, full_matrices=False)[2][:8].T,
        b @ torch.linalg.svd(b, full_matrices=False)[2][:k].T,
    )
    model = chain(
        nn.Linear(8, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, k)
    )

    def draw():
        i = torch.randint(512, (64,))
        return (fh[i],), gh[i]

    return stream(model, draw, lambda y, t: F.mse_loss(y, t, reduction="sum") * 1000)


@healthy(
    "pairwise scorer of coreferent event spans",
    GITHUB + "lwang114/MultimediaEventCoreference/blob/68e1888/coref/models.py",
)
def coref(_: bool) -> Task:
    """Span embedder of start, end, attended tokens and a width; linear layers Xavier with biases UNIFORM in [0, 1);
    BCE with logits."""
    h, hid, w, L = 24, 48, 6, 5

    def init(m):
        if isinstance(m, nn.Linear):
            nn.init.xavier_uniform_(m.weight)
            nn.init.uniform_(m.bias)

    att = chain(nn.Dropout(0.3), nn.Linear(h, hid), nn.ReLU(), nn.Linear(hid, 1)).apply(init)
    d = (3 * h + w) * 3
    mlp = chain(
        nn.Dropout(0.3),
        nn.Linear(d, hid),
        nn.ReLU(),
        nn.Linear(hid, hid),
        nn.Dropout(0.3),
        nn.ReLU(),
        nn.Linear(hid, 1),
    ).apply(init)

    def span(m, tok, n):
        mask = (torch.arange(L) < n.unsqueeze(1)).float()
        s = m.self_attention_layer(tok).squeeze(-1) * mask
        s = F.softmax(torch.where(s != 0, s, torch.tensor(-9e9)), 1)
        end = tok[torch.arange(len(tok)), n - 1]
        return torch.cat([tok[:, 0], end, (s.unsqueeze(-1) * tok).sum(1), m.width_feature(n.clamp(max=4))], 1)

    def run(m, a, na, b, nb):
        g1, g2 = span(m, a, na), span(m, b, nb)
        return m.pairwise_mlp(torch.cat((g1, g2, g1 * g2), 1)).squeeze(1)

    model = Parts(run, self_attention_layer=att, width_feature=nn.Embedding(5, w), pairwise_mlp=mlp)
    ent = torch.randn(12, h, generator=torch.Generator().manual_seed(1)) * 0.5

    def draw():
        t = (torch.rand(64) < 0.3).float()
        i = torch.randint(12, (64,))
        j = torch.where(t == 1, i, (i + torch.randint(1, 12, (64,))) % 12)

        def mention(e):
            n = torch.randint(1, L + 1, (64,))
            return (ent[e].unsqueeze(1) + 0.15 * torch.randn(64, L, h)) * (torch.arange(L) < n.unsqueeze(1)).unsqueeze(
                -1
            ), n

        return (*mention(i), *mention(j)), t

    return stream(model, draw, F.binary_cross_entropy_with_logits)


@healthy(
    "tabular classifier of network flows, focal loss",
    GITHUB + "Simone-Albero/intrusion-forge/blob/1b18308/src/engine/dl/module/mlp.py",
)
def intrusion(_: bool) -> Task:
    """Embeddings beside scaled numbers; batch-normed linear layers without biases, the encoder ends in a bare linear
    layer; focal loss."""
    cards, nums, cls = [5, 30], 20, 6
    emb = nn.ModuleList(nn.Embedding(c, min(50, (c + 1) // 2)) for c in cards)
    layers, i = [], nums + 3 + 15
    for o in (64, 48):
        layers += [nn.Linear(i, o, bias=False), nn.BatchNorm1d(o), nn.ReLU(), nn.Dropout(0.1)]
        i = o
    mlp = chain(*layers, nn.Linear(i, 32, bias=False))
    for m in mlp:
        if isinstance(m, nn.Linear):
            nn.init.xavier_uniform_(m.weight)
    model = Parts(
        lambda m, x, c: m.head(m.mlp(torch.cat([x, *[e(c[:, k]) for k, e in enumerate(m.emb)]], 1))),
        emb=emb,
        mlp=mlp,
        head=nn.Linear(32, cls),
    )
    centre = torch.randn(cls, nums, generator=torch.Generator().manual_seed(2))

    def draw():
        t = torch.multinomial(torch.tensor([0.6, 0.2, 0.1, 0.05, 0.03, 0.02]), 64, True)
        x = (centre[t] * 0.8 + torch.randn(64, nums)).clamp(-4, 6)
        c = torch.stack(
            [torch.where(torch.rand(64) < 0.7, t % 5, torch.randint(5, (64,))), torch.randint(30, (64,))], 1
        )
        return (x, c), t

    def focal(y, t):
        p = torch.softmax(y, 1).gather(1, t.unsqueeze(1)).squeeze(1)
        return ((1 - p) ** 2 * F.cross_entropy(y, t, reduction="none")).mean()

    return stream(model, draw, focal)


@healthy(
    "one-dimensional CNN of bearing vibrations",
    GITHUB + "supsmwhite/bearing-fault-diagnosis/blob/6ba3ff8/src/models/cnn1d.py",
)
def bearing(_: bool) -> Task:
    """Windows of a vibration, each z-scored; four conv-norm-ReLU stages, global average, dropout, ten conditions."""
    l, i = [], 1  # noqa: E741
    for o, k in ((8, 7), (16, 5), (32, 3)):
        l += [nn.Conv1d(i, o, k, padding=k // 2), nn.BatchNorm1d(o), nn.ReLU(), nn.MaxPool1d(2)]  # noqa: E741
        i = o
    model = Parts(
        lambda m, x: m.classifier(m.features(x)),
        features=chain(*l, nn.Conv1d(32, 48, 3, padding=1), nn.BatchNorm1d(48), nn.ReLU(), nn.AdaptiveAvgPool1d(1)),
        classifier=chain(nn.Flatten(), nn.Dropout(0.2), nn.Linear(48, 10)),
    )

    def draw():
        t, c = torch.arange(256).float(), torch.randint(10, (48,))
        f, rate = 0.15 + 0.03 * (c % 3).float(), torch.tensor([1e9, 40.0, 60.0, 90.0])[(c + 2) // 3]
        since = (t + 90 * torch.rand(48, 1)) % rate.unsqueeze(1)
        hit = torch.exp(-since / 8) * torch.sin(2 * math.pi * f.unsqueeze(1) * since) * (c > 0).unsqueeze(1) * 2
        x = hit + 0.3 * torch.sin(0.2 * t + 6 * torch.rand(48, 1)) + 0.2 * torch.randn(48, 256)
        return (((x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)).unsqueeze(1),), c

    return stream(model, draw, F.cross_entropy)


@healthy(
    "ConvLSTM of rain radar frames with whole-clip LayerNorm",
    GITHUB + "tsugumi-sys/ppoteka-rainfall-prediction/tree/c200a43/poteka-pipeline-pytorch/train/src",
)
def ppoteka(_: bool) -> Task:
    """Peephole weights of zeros, ReLU as the state's activation, LayerNorm over channels, time and place, Conv3d,
    sigmoid; BCELoss on soft targets."""
    C, T, S = 8, 5, 10

    class ConvLSTM(nn.Module):
        def __init__(self, i):
            super().__init__()
            self.conv = nn.Conv2d(i + C, 4 * C, 3, padding="same")
            for n in "iof":
                setattr(self, f"W_c{n}", nn.Parameter(torch.zeros(C, S, S)))

        def forward(self, x):
            h = c = x.new_zeros(len(x), C, S, S)
            out = []
            for t in range(x.shape[2]):
                i, f, g, o = torch.chunk(self.conv(torch.cat([x[:, :, t], h], 1)), 4, 1)
                c = torch.sigmoid(f + self.W_cf * c) * c + torch.sigmoid(i + self.W_ci * c) * torch.relu(g)
                h = torch.sigmoid(o + self.W_co * c) * torch.relu(c)
                out.append(h)
            return torch.stack(out, 2)

    seq = chain(
        ConvLSTM(3),
        nn.LayerNorm([C, T, S, S]),
        ConvLSTM(C),
        nn.LayerNorm([C, T, S, S]),
        nn.Conv3d(C, 1, 3, padding="same"),
        nn.Sigmoid(),
    )

    def draw():
        p, v = torch.rand(16, 2) * 6 + 2, torch.rand(16, 2) * 1.2 - 0.6
        g = torch.arange(S).float()

        def frame(t):
            q = p + v * t
            d = (g - q[:, :1]).unsqueeze(2) ** 2 + (g - q[:, 1:]).unsqueeze(1) ** 2
            return torch.exp(-d / 6)

        x = torch.stack([frame(t) for t in range(T + 1)], 1)
        others = (0.5 - 0.2 * x[:, :T] + 0.05 * torch.randn(16, T, S, S)).clamp(0, 1)
        return (torch.stack([x[:, :T], others, others.flip(3)], 1),), x[:, T:].unsqueeze(1)

    return stream(Parts(lambda m, x: m.sequential(x)[:, :, -1:], sequential=seq), draw, F.binary_cross_entropy)


@healthy(
    "temporal convolution and LSTM for a plant's daily output",
    GITHUB + "JiangJiaWei1103/Solar-Power-Generation-Forecasting/blob/54b5435/modeling/dl/Baseline.py",
)
def solar(_: bool) -> Task:
    """A bare Conv1d over the lookback window, an LSTM's last state and a linear head; L1 loss on kilowatt-hours."""
    w, f = 14, 6

    def run(m, x):
        _, (h, _) = m.rnn(m.tconv(x.transpose(1, 2)).transpose(1, 2))
        return m.output(h.squeeze(0)).squeeze(-1)

    model = Parts(run, tconv=nn.Conv1d(f, 16, 3), rnn=nn.LSTM(16, 32, batch_first=True), output=nn.Linear(32, 1))

    def draw():
        x = torch.randn(64, w, f).cumsum(1) * 0.3 + torch.randn(64, 1, f)
        return (x,), 3 + 1.5 * torch.tanh(x[:, -3:, 0].mean(1)) - 0.8 * x[:, -1, 1].sigmoid() + 0.5 * x[:, :, 2].mean(1)

    return stream(model, draw, F.l1_loss)


@healthy(
    "mask U-Net with channel attention and a bottleneck BiLSTM",
    GITHUB + "Backspace44/VAD-Speech-Enhancement/blob/149e30f/project_root/src/models/mask_model.py",
)
def masknet(_: bool) -> Task:
    """Noisy magnitudes to an ideal ratio mask: attention on the skips, an LSTM over channels x frequencies, a
    sigmoid; MSE."""
    b, fr, T = 4, 25, 16

    def pair(i, o):
        def one(i, o):
            return (nn.Conv2d(i, o, 3, 1, 1), nn.BatchNorm2d(o), nn.ReLU(inplace=True))

        return chain(*one(i, o), *one(o, o))

    class Attention(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.fc = chain(nn.Linear(c, c // 2, bias=False), nn.ReLU(), nn.Linear(c // 2, c, bias=False), nn.Sigmoid())

        def forward(self, x):
            return x * self.fc(x.mean((2, 3)))[:, :, None, None]

    def run(m, x):
        s1 = m.enc1(x)
        s2 = m.enc2(F.max_pool2d(s1, 2))
        s3 = m.enc3(F.max_pool2d(s2, 2))
        x = m.bottleneck(F.max_pool2d(s3, 2))
        n, c, f, t = x.shape
        y = m.lin(m.lstm(x.permute(0, 3, 1, 2).reshape(n, t, c * f))[0])
        x = y.view(n, t, c, f).permute(0, 2, 3, 1)
        for s, a, u, d in ((s3, m.att3, m.up3, m.dec3), (s2, m.att2, m.up2, m.dec2), (s1, m.att1, m.up1, m.dec1)):
            x = u(x)
            h, w = s.shape[2] - x.shape[2], s.shape[3] - x.shape[3]
            x = d(torch.cat([F.pad(x, [w // 2, w - w // 2, h // 2, h - h // 2]), a(s)], 1))
        return torch.sigmoid(m.out_conv(x))

    def up(i, o):
        return nn.ConvTranspose2d(i, o, 2, 2)

    z = 8 * b * (fr // 8)
    model = Parts(
        run,
        enc1=pair(1, b),
        enc2=pair(b, 2 * b),
        enc3=pair(2 * b, 4 * b),
        bottleneck=pair(4 * b, 8 * b),
        lstm=nn.LSTM(z, 16, num_layers=2, batch_first=True, bidirectional=True, dropout=0.2),
        lin=nn.Linear(32, z),
        att1=Attention(b),
        att2=Attention(2 * b),
        att3=Attention(4 * b),
        up3=up(8 * b, 4 * b),
        up2=up(4 * b, 2 * b),
        up1=up(2 * b, b),
        dec3=pair(8 * b, 4 * b),
        dec2=pair(4 * b, 2 * b),
        dec1=pair(2 * b, b),
        out_conv=chain(nn.Conv2d(b, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.Conv2d(b, 1, 1)),
    )

    def draw():
        f, on = torch.arange(fr).view(1, 1, fr, 1), (torch.rand(16, 1, 1, T // 4) < 0.5).float().repeat_interleave(4, 3)
        pitch = torch.randint(4, 8, (16, 1, 1, 1))
        clean = on * ((f % pitch) == 0) * torch.exp(-f / 20) * 3 * (0.5 + torch.rand(16, 1, fr, T))
        noise = 0.6 * torch.rand(16, 1, 1, 1) * torch.rand(16, 1, fr, T)
        return (clean + noise,), clean / (clean + noise + 1e-8)

    return stream(model, draw, F.mse_loss)


@healthy(
    "temporal convolutions over context epochs of a night",
    GITHUB
    + "AkidaSoto/Physionet-Sleep-Staging-Experiment/blob/ee414bb/src/physionet_sleep/experiments/sequence_cnn.py",
)
def sleep(_: bool) -> Task:
    """Five epochs of robustly scaled features (median and IQR, heavy tails left in), two conv-norm-ReLU layers,
    average, five stages."""
    f, h = 24, 32

    def run(m, x):
        x = F.relu(m.bn1(m.conv1(x.transpose(1, 2))))
        return m.head(F.relu(m.bn2(m.conv2(x))).mean(2))

    model = Parts(
        run,
        conv1=nn.Conv1d(f, h, 3, padding=1),
        bn1=nn.BatchNorm1d(h),
        conv2=nn.Conv1d(h, h, 3, padding=1),
        bn2=nn.BatchNorm1d(h),
        head=nn.Linear(h, 5),
    )
    mean = torch.randn(5, f, generator=torch.Generator().manual_seed(5))

    def draw():
        c = torch.multinomial(torch.tensor([0.2, 0.08, 0.45, 0.12, 0.15]), 64, True)
        path = c.unsqueeze(1).repeat(1, 5)
        path[:, 0] = torch.where(torch.rand(64) < 0.3, torch.randint(5, (64,)), c)
        tail = torch.distributions.StudentT(3.0).sample((64, 5, f))
        return (mean[path] + 0.8 * tail,), c

    return stream(model, draw, F.cross_entropy)


@healthy(
    "residual recurrent volumes for nodules, summed BCE",
    GITHUB + "gbymb4/Lung-Nodule-Segmentation/blob/4bcc930/models/unet/r2unet.py",
)
def nodules(_: bool) -> Task:  # noqa: C901
    """Slices as depth with (1, 3, 3) kernels, recurrent layers of shared weights with a norm a step, sigmoid, a hand-
    written BCE SUMMED over voxels."""

    def conv(c):
        return nn.Conv3d(c, c, (1, 3, 3), padding=(0, 1, 1), bias=False)

    class RCL(nn.Module):
        def __init__(self, c, steps=2):
            super().__init__()
            self.conv, self.shortcut, self.bn = conv(c), conv(c), nn.ModuleList(nn.BatchNorm3d(c) for _ in range(steps))

        def forward(self, x):
            rx = x
            for i, bn in enumerate(self.bn):
                x = bn(F.relu(self.conv(x) + (self.shortcut(rx) if i else 0)))
            return x

    class RR(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.rcl1, self.rcl2, self.bn1, self.bn2 = RCL(c), RCL(c), nn.BatchNorm3d(c), nn.BatchNorm3d(c)

        def forward(self, x):
            return F.relu(self.bn2(self.rcl2(F.relu(self.bn1(self.rcl1(x)))) + x))

    def enc(i, o, s):
        return chain(
            nn.Conv3d(i, o, (1, 3, 3), stride=(1, s, s), padding=(0, 1, 1)), nn.ReLU(), nn.BatchNorm3d(o), RR(o)
        )

    def run(m, x):
        a = m.rrel1(x)
        b = m.rrel2(a)
        y = m.bn_1(F.relu(m.dcn(b)))
        y = m.b(m.bn_2(F.relu(m.cn(torch.cat((y, a), 1)))))
        return torch.sigmoid(m.cn14(y))

    model = Parts(
        run,
        rrel1=enc(1, 4, 1),
        rrel2=enc(4, 6, 2),
        dcn=nn.ConvTranspose3d(6, 4, (1, 2, 2), stride=(1, 2, 2)),
        bn_1=nn.BatchNorm3d(4),
        cn=nn.Conv3d(8, 4, (1, 3, 3), padding=(0, 1, 1)),
        bn_2=nn.BatchNorm3d(4),
        b=RR(4),
        cn14=nn.Conv3d(4, 1, (1, 3, 3), padding=(0, 1, 1)),
    )

    def loss(p, t):
        return -1 / p.shape[0] * (5 * t * torch.log(p) + (1 - t) * torch.log(1 - p)).sum()

    def draw():
        g = torch.arange(10).float()
        q, r = torch.rand(16, 2) * 6 + 2, torch.rand(16) * 1.2 + 1
        d = (g - q[:, :1]).unsqueeze(2) ** 2 + (g - q[:, 1:]).unsqueeze(1) ** 2
        m = (d < r.view(-1, 1, 1) ** 2).float()[:, None, None].repeat(1, 1, 2, 1, 1)
        return ((0.5 * m + 0.2 * torch.rand(16, 1, 2, 10, 10)),), m

    return stream(model, draw, loss)


@healthy(
    "sine network from brain places and a gene's order to its expression",
    GITHUB + "vsingh-group/gene-expression-inr/blob/020944d/modules.py",
)
def inr(_: bool) -> Task:
    """SIREN: omega 30, first weights U(1/n), others U(sqrt(6/n)/omega), a linear end; places scaled to [-1, 1], the
    order encoded; MSE."""
    d, h = 5 + 2 * 4, 48

    class Sine(nn.Module):
        def __init__(self, i, o, first=False):
            super().__init__()
            self.linear = nn.Linear(i, o)
            s = 1 / i if first else math.sqrt(6 / i) / 30
            self.linear.weight.data.uniform_(-s, s)

        def forward(self, x):
            return torch.sin(30 * self.linear(x))

    end = nn.Linear(h, 1)
    end.weight.data.uniform_(-math.sqrt(6 / h) / 30, math.sqrt(6 / h) / 30)
    model = chain(Sine(d, h, True), Sine(h, h), Sine(h, h), end)
    g = torch.Generator().manual_seed(4)
    place, order = torch.rand(400, 3, generator=g) * 2 - 1, torch.rand(400, 1, generator=g)
    enc = torch.cat(
        [place, (torch.rand(400, 1, generator=g) > 0.5).float(), order]
        + [fn(2**k * math.pi * order) for k in range(4) for fn in (torch.sin, torch.cos)],
        1,
    )
    val = 0.5 + 0.3 * torch.sin(3 * place[:, :1] + 6 * order) * place[:, 1:2] + 0.1 * torch.cos(5 * place[:, 2:])

    def draw():
        i = torch.randperm(400)[:64]
        return (enc[i],), val[i]

    return stream(model, draw, lambda y, t: torch.mean((y - t) ** 2))


@healthy(
    "phase-folded light curves, ReLU before the norm",
    GITHUB + "ares0311/2026-Exoplanet-Research/blob/2010986/Skills/train_cnn.py",
)
def exoplanet(_: bool) -> Task:
    """Conv, ReLU, BatchNorm, pool; dense layers with dropout 0.5 and 0.3; a sigmoid and BCELoss; flux scaled and
    jittered."""
    l, i = [], 1  # noqa: E741
    for o, k in ((8, 5), (16, 5), (24, 3)):
        l += [nn.Conv1d(i, o, k, padding=k // 2), nn.ReLU(), nn.BatchNorm1d(o), nn.MaxPool1d(2)]  # noqa: E741
        i = o
    fc = chain(
        nn.Linear(24 * 25, 64),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(64, 32),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(32, 1),
        nn.Sigmoid(),
    )
    model = Parts(lambda m, x: m.fc(m.conv(x).flatten(1)).squeeze(1), conv=chain(*l), fc=fc)

    def draw():
        t, p = (torch.rand(64) < 0.4).float(), torch.linspace(-0.5, 0.5, 201)
        w, d = 0.03 + 0.05 * torch.rand(64, 1), 0.3 + 0.7 * torch.rand(64, 1)
        u = torch.sigmoid((w - p.abs()) * 300)
        v = (1 - p.abs() / (2 * w)).clamp(min=0)  # eclipsing binaries: V-shaped, with a second dip
        dip = torch.where(
            t.unsqueeze(1) == 1, d * u, d * v + 0.4 * d * torch.sigmoid((w - (p.abs() - 0.5).abs()) * 300)
        )
        return ((-dip + 0.12 * torch.randn(64, 201)).unsqueeze(1) * torch.empty(64, 1, 1).uniform_(0.95, 1.05),), t

    return stream(model, draw, F.binary_cross_entropy)


@healthy(
    "three-layer jet tagger, softmax into BCELoss",
    GITHUB + "fastmachinelearning/hawq-jet-tagging/blob/7a9dbc6/training/jet_tagging/train_jettagger.py",
)
def jets(_: bool) -> Task:
    """Sixteen scaled jet features, 64-32-32, a SOFTMAX over five kinds of jet, binary cross-entropy against one-hot
    targets."""
    model = chain(
        nn.Linear(16, 64),
        nn.ReLU(),
        nn.Linear(64, 32),
        nn.ReLU(),
        nn.Linear(32, 32),
        nn.ReLU(),
        nn.Linear(32, 5),
        nn.Softmax(1),
    )
    mean = torch.randn(5, 16, generator=torch.Generator().manual_seed(7))
    mix = torch.randn(16, 16, generator=torch.Generator().manual_seed(8)) / 4

    def draw():
        c = torch.randint(5, (64,))
        return ((mean[c] + torch.randn(64, 16)) @ (torch.eye(16) + mix),), F.one_hot(c, 5).float()

    return stream(model, draw, F.binary_cross_entropy)


@healthy(
    "light-weight RefineNet of buildings, BCE with a soft Dice",
    GITHUB + "fuzailpalnak/building-footprint-segmentation/tree/a1e6a0a/building_footprint_segmentation/seg",
)
def buildings(_: bool) -> Task:  # noqa: C901
    """A residual trunk, 1x1 reductions and fusions without biases, chained pooling that uses ONE convolution twice,
    bilinear x4."""

    class Res(nn.Module):
        def __init__(self, i, o, s):
            super().__init__()
            self.body = chain(
                nn.Conv2d(i, o, 3, s, 1, bias=False),
                nn.BatchNorm2d(o),
                nn.ReLU(),
                nn.Conv2d(o, o, 3, 1, 1, bias=False),
                nn.BatchNorm2d(o),
            )
            self.down = chain(nn.Conv2d(i, o, 1, s, bias=False), nn.BatchNorm2d(o)) if s > 1 else nn.Identity()

        def forward(self, x):
            return F.relu(self.body(x) + self.down(x))

    def one(i, o):
        return nn.Conv2d(i, o, 1, bias=False)

    class Refine(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.lower, self.higher, self.crp = one(i, o), one(o, o), one(o, o)

        def forward(self, x, y=None):
            x = self.higher(x)
            if y is not None:
                x = x + F.interpolate(self.lower(y), scale_factor=2, mode="bilinear", align_corners=True)
            x = F.relu(x)
            a = self.crp(F.max_pool2d(x, 5, 1, 2))
            return self.crp(F.max_pool2d(a, 5, 1, 2)) + a + x

    def run(m, x):
        f, x = [], m.layer0(x)
        for l in m.layers:  # noqa: E741
            x = l(x)
            f.append(x)
        y = None
        for k in (3, 2, 1, 0):
            y = m.refine[k](m.reduce[k](f[k]), y)
        return F.interpolate(m.final_layer(y), scale_factor=4, mode="bilinear", align_corners=True)

    model = Parts(
        run,
        layer0=chain(nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1)),
        layers=nn.ModuleList([Res(8, 8, 1), Res(8, 12, 2), Res(12, 16, 2), Res(16, 24, 2)]),
        reduce=nn.ModuleList([one(8, 12), one(12, 12), one(16, 12), one(24, 16)]),
        refine=nn.ModuleList([Refine(12, 12), Refine(12, 12), Refine(16, 12), Refine(16, 16)]),
        final_layer=nn.Conv2d(12, 1, 3, padding=1),
    )

    def loss(y, t):
        p = y.sigmoid()
        return F.binary_cross_entropy_with_logits(y, t) + 0.5 * (1 - (2 * (p * t).sum() + 1) / (p.sum() + t.sum() + 1))

    def draw():
        x = torch.rand(16, 3, 1, 1) * 0.3 + 0.3 + 0.05 * torch.randn(16, 3, 32, 32)
        t, g = torch.zeros(16, 1, 32, 32), torch.arange(32)
        for _ in range(3):
            a, s = torch.randint(0, 22, (16, 2, 1)), torch.randint(6, 11, (16, 2, 1))
            i = (g >= a) & (g < a + s)
            m = (i[:, 0].unsqueeze(2) & i[:, 1].unsqueeze(1)).unsqueeze(1).float()
            x, t = x * (1 - m) + m * (0.85 + 0.1 * torch.randn(16, 3, 32, 32)), torch.maximum(t, m)
        mean, std = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1), torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
        return ((x - mean) / std,), t

    return stream(model, draw, loss)


@healthy(
    "document pages, paired convolutions and a three-by-three head",
    GITHUB + "Harsh020802/document-classification-cnn-from-scratch/blob/4c868aa/src/models/cnn.py",
)
def docs(_: bool) -> Task:
    """Grey pages; conv-norm-ReLU twice and a pool a block, Kaiming fan-out, the head N(0, 0.01^2) after dropout 0.5;
    logits."""
    l, i = [], 1  # noqa: E741
    for o in (8, 16, 32):
        l += [  # noqa: E741
            nn.Conv2d(i, o, 3, padding=1, bias=False),
            nn.BatchNorm2d(o),
            nn.ReLU(True),
            nn.Conv2d(o, o, 3, padding=1, bias=False),
            nn.BatchNorm2d(o),
            nn.ReLU(True),
            nn.MaxPool2d(2),
        ]
        i = o
    model = Parts(
        lambda m, x: m.head(m.backbone(x)),
        backbone=chain(*l),
        head=chain(nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Dropout(0.5), nn.Linear(32 * 9, 10)),
    )
    for m in model.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
        if isinstance(m, nn.Linear):
            nn.init.normal_(m.weight, 0, 0.01)
            nn.init.zeros_(m.bias)
    g = torch.Generator().manual_seed(9)
    plan = (torch.rand(10, 1, 6, 4, generator=g) < 0.5).float()  # where a kind of page has text

    def draw():
        c = torch.randint(10, (24,))
        ink = (
            F.interpolate(plan[c], size=(24, 24))
            * (torch.rand(24, 1, 24, 24) < 0.5)
            * ((torch.arange(24) % 3) > 0).view(1, 1, 24, 1)
        )
        page = 1 - 0.8 * ink - 0.05 * torch.rand(24, 1, 24, 24)
        return ((page - 0.9) / 0.2,), c

    return stream(model, draw, F.cross_entropy)


@healthy(
    "attribute-adaptive denormalisation for swapping faces",
    GITHUB + "faddey-w/face-swap/blob/80b5db7/reface/faceshifter/AEI_Net.py",
)
def faces(_: bool) -> Task:  # noqa: C901
    """Attributes by a U-Net, an identity vector of a frozen recogniser; InstanceNorm, linear layers N(0, 0.001^2),
    tanh; identity, attribute and same-person losses (without the adversary)."""
    cid = 16

    def init(m):
        if isinstance(m, nn.Linear):
            nn.init.normal_(m.weight, 0, 0.001)
            nn.init.zeros_(m.bias)
        if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
            nn.init.xavier_normal_(m.weight)
            if m.bias is not None:
                nn.init.zeros_(m.bias)

    class AAD(nn.Module):
        def __init__(self, c, a):
            super().__init__()
            self.conv1, self.conv2, self.conv_h = nn.Conv2d(a, c, 1), nn.Conv2d(a, c, 1), nn.Conv2d(c, 1, 1)
            self.fc1, self.fc2, self.norm = nn.Linear(cid, c), nn.Linear(cid, c), nn.InstanceNorm2d(c, affine=False)

        def forward(self, h, attr, z):
            h = self.norm(h)
            a = self.conv1(attr) * h + self.conv2(attr)
            i = self.fc1(z)[:, :, None, None] * h + self.fc2(z)[:, :, None, None]
            m = torch.sigmoid(self.conv_h(h))
            return (1 - m) * a + m * i

    class Block(nn.Module):
        def __init__(self, i, o, a):
            super().__init__()

            def c(i, o):
                return nn.Conv2d(i, o, 3, padding=1, bias=False)

            self.AAD1, self.conv1, self.AAD2, self.conv2 = AAD(i, a), c(i, i), AAD(i, a), c(i, o)
            self.same = i == o
            if not self.same:
                self.AAD3, self.conv3 = AAD(i, a), c(i, o)

        def forward(self, h, a, z):
            x = self.conv1(F.relu(self.AAD1(h, a, z)))
            x = self.conv2(F.relu(self.AAD2(x, a, z)))
            return x + (h if self.same else self.conv3(F.relu(self.AAD3(h, a, z))))

    def down(i, o):
        return chain(nn.Conv2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(0.1))

    def up(i, o):
        return chain(nn.ConvTranspose2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(0.1))

    def big(x):
        return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)

    def attributes(m, x):
        a = m.down1(x)
        b = m.down2(a)
        c = m.down3(b)
        d = torch.cat([m.up_1(c), b], 1)
        e = torch.cat([m.up_2(d), a], 1)
        return c, d, e, big(e)

    def run(m, x, z):
        attr = attributes(m, x)
        h = m.up1(z[:, :, None, None])
        for blk, a in zip(m.blocks[:3], attr[:3], strict=False):
            h = big(blk(h, a, z))
        y = torch.tanh(m.blocks[3](h, attr[3], z))
        return (y, F.normalize(m.recognizer(y), dim=1), *attr, *attributes(m, y))

    rec = chain(
        nn.Conv2d(3, 12, 3, 2, 1),
        nn.Tanh(),
        nn.Conv2d(12, cid, 3, 2, 1),
        nn.Tanh(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(4 * cid, cid),
    )
    model = Parts(
        run,
        down1=down(3, 6),
        down2=down(6, 12),
        down3=down(12, 24),
        up_1=up(24, 12),
        up_2=up(24, 6),
        up1=nn.ConvTranspose2d(cid, 24, 2),
        blocks=nn.ModuleList([Block(24, 24, 24), Block(24, 12, 24), Block(12, 12, 12), Block(12, 3, 12)]),
    )
    model.apply(init)
    model.recognizer = rec.requires_grad_(False)

    def draw():
        x = (
            F.interpolate(pick(16)[0] * 0.376 + 0.3, size=(16, 16), mode="bilinear")
            * (0.4 + 0.6 * torch.rand(16, 3, 1, 1))
            * 2
            - 1
        )
        same = (torch.rand(16) < 0.5).float()
        source = torch.where(same.view(-1, 1, 1, 1) == 1, x, x[torch.randperm(16)])
        z = F.normalize(rec(source), dim=1)
        return (x, z), (x, z, same)

    def loss(out, t):
        y, e, attr, again = out[0], out[1], out[2:6], out[6:]
        x, z, same = t
        l_attr = sum((a - b).pow(2).flatten(1).mean(1).mean() for a, b in zip(attr, again, strict=False)) / 2
        l_rec = (0.5 * (y - x).pow(2).flatten(1).mean(1) * same).sum() / (same.sum() + 1e-6)
        return l_attr + 0.5 * (1 - F.cosine_similarity(z, e, dim=1)).mean() + l_rec

    return stream(model, draw, loss)


@healthy(
    "three slices of two speakers, a loss of cosines alone",
    GITHUB + "ychnlgy/TIMIT-diarization/blob/707193e/src/training/train.py",
)
def speakers(_: bool) -> Task:
    """Pre-activation residual blocks with shake-shake shortcuts; no margin and no targets: differing cosines minus
    the same speaker's."""

    class Shortcut(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.c1, self.c2, self.bn = (
                nn.Conv2d(i, o // 2, 1, bias=False),
                nn.Conv2d(i, o // 2, 1, bias=False),
                nn.BatchNorm2d(o),
            )

        def forward(self, x):
            x = F.relu(x)
            return self.bn(
                torch.cat([self.c1(x[:, :, ::2, ::2]), self.c2(F.pad(x, (-1, 1, -1, 1))[:, :, ::2, ::2])], 1)
            )

    class Block(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            s = 2 if o > i else 1
            self.bk = chain(
                nn.ReLU(),
                nn.Conv2d(i, o, 3, s, 1, bias=False),
                nn.BatchNorm2d(o),
                nn.ReLU(),
                nn.Conv2d(o, o, 3, padding=1, bias=False),
                nn.BatchNorm2d(o),
            )
            self.sc = Shortcut(i, o) if o > i else nn.Identity()

        def forward(self, x):
            return self.sc(x) + self.bk(x)

    net = chain(
        nn.Conv2d(1, 8, 3, padding=1),
        Block(8, 12),
        Block(12, 12),
        Block(12, 16),
        Block(16, 16),
        nn.ReLU(),
        nn.AvgPool2d(4),
        nn.Flatten(),
        nn.Linear(16, 16),
    )

    def run(m, x):
        v1, v2, w1 = (m.net(x[:, k : k + 1]) for k in range(3))

        def cos(a, b):
            return F.cosine_similarity(a, b, dim=1)

        return cos(v1, v2), cos(v1, w1), cos(v2, w1)

    voice = torch.randn(20, 16, 1, generator=torch.Generator().manual_seed(6))

    def draw():
        a = torch.randint(20, (32,))
        who = torch.stack([a, a, (a + torch.randint(1, 20, (32,))) % 20], 1)
        return (voice[who] + torch.randn(32, 3, 16, 16).cumsum(3) * 0.3,), who

    return stream(Parts(run, net=net), draw, lambda y, t: (y[1] + y[2] - y[0]).mean())


@healthy(
    "frames and two flows in three volumetric streams",
    GITHUB + "vkhoi/KTH-Action-Recognition/blob/302790a/main/models/cnn_block_frame_flow.py",
)
def kth(_: bool) -> Task:
    """Unpadded Conv3d, norm, ReLU, pool and dropout 0.5 twice in each stream; 128 hidden units and dropout 0.5; six
    actions."""

    def stage(i, o):
        return (nn.Conv3d(i, o, 3), nn.BatchNorm3d(o), nn.ReLU(), nn.MaxPool3d(2), nn.Dropout(0.5))

    def one():
        return chain(*stage(1, 6), *stage(6, 12), nn.Flatten())

    def run(m, f, x, y):
        return m.fc2(m.dropfc1(F.relu(m.fc1(torch.cat([m.conv_frame(f), m.conv_flow_x(x), m.conv_flow_y(y)], 1)))))

    n = 12 * 1 * 2 * 2
    model = Parts(
        run,
        conv_frame=one(),
        conv_flow_x=one(),
        conv_flow_y=one(),
        fc1=nn.Linear(3 * n, 64),
        dropfc1=nn.Dropout(0.5),
        fc2=nn.Linear(64, 6),
    )
    way = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, 2.0], [1.0, 1.0], [-1.0, 1.0]])

    def draw():
        c, g, t = torch.randint(6, (16,)), torch.arange(14).float(), torch.arange(10).float()
        v = way[c] * (0.4 + 0.2 * torch.rand(16, 1))
        p = 3 + torch.rand(16, 2) * 4 + (v < 0) * 5
        q = p.unsqueeze(2) + v.unsqueeze(2) * t * torch.where(c.view(-1, 1, 1) % 2 == 0, torch.ones(10), torch.sin(t))
        d = (g.view(1, 1, 14, 1) - q[:, 1, :, None, None]) ** 2 + (g.view(1, 1, 1, 14) - q[:, 0, :, None, None]) ** 2
        body = torch.exp(-d / 4)
        u = torch.diff(q, dim=2, prepend=q[:, :, :1] - v.unsqueeze(2))

        def flow(k):
            return ((body * u[:, k, :, None, None]) * 2 + 0.1 * torch.randn(16, 10, 14, 14)).unsqueeze(1)

        return ((body + 0.1 * torch.randn(16, 10, 14, 14) - 0.2).unsqueeze(1) / 0.3, flow(0), flow(1)), c

    return stream(model, draw, F.cross_entropy)
