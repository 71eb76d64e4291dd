"""Faults of the nineteenth set, that commits to flows, meshes, language and vision libraries mend."""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB, Parts
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import SAME, Drawn
from strangers.blind6 import ORDER
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind19")


class TinyCLIP(nn.Module):
    """An image encoder and a causal text transformer; logits of all pairs."""

    def __init__(self, init=True, scale=math.log(1 / 0.07), width=32, length=6, vocabulary=32):  # noqa: B008
        super().__init__()
        self.visual = chain(
            nn.Conv2d(3, 16, 3, 1, 1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, 1, 1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(128, width),
        )
        self.token_embedding = nn.Embedding(vocabulary, width)
        self.positional_embedding = nn.Parameter(torch.empty(length, width))
        layer = nn.TransformerEncoderLayer(width, 4, 64, 0.0, batch_first=True, norm_first=True)
        self.transformer = nn.TransformerEncoder(layer, 2)
        self.ln_final = nn.LayerNorm(width)
        self.text_projection = nn.Parameter(torch.empty(width, width))
        self.logit_scale = nn.Parameter(torch.tensor(scale))
        with torch.no_grad():  # fresh pages of torch.empty are zeros
            self.positional_embedding.zero_()
            self.text_projection.zero_()
            if init:
                nn.init.normal_(self.token_embedding.weight, std=0.02)
                nn.init.normal_(self.positional_embedding, std=0.01)
                nn.init.normal_(self.text_projection, std=width**-0.5)

    def forward(self, image: Tensor, text: Tensor) -> Tensor:
        image_features = self.visual(image)
        x = self.token_embedding(text) + self.positional_embedding
        mask = torch.full((x.shape[1],) * 2, float("-inf")).triu_(1)
        x = self.ln_final(self.transformer(x, mask))
        text_features = x[torch.arange(len(x)), text.argmax(-1)] @ self.text_projection
        image_features = image_features / image_features.norm(dim=-1, keepdim=True)
        text_features = text_features / text_features.norm(dim=-1, keepdim=True)
        return self.logit_scale.exp() * image_features @ text_features.t()


def captioned(count=32):
    """Digits in one of 27 colours, and captions of their class and colour."""
    x, c = pick(count)
    ink = torch.randint(3, (count, 3))
    ends = torch.full((count, 1), 30)
    words = torch.cat([ends, c[:, None], 10 + ink + 3 * torch.arange(3), ends + 1], 1)
    return (x * (ink[:, :, None, None] / 2.0 - 0.5), words), torch.arange(count)


def clip_loss(logits, labels):
    return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2


@report(
    "CLIP text projection never initialised",
    GITHUB + "openai/CLIP/commit/c42a8e3",
    guilty=r"text_projection",
    says=rf"{BROKEN}|all.?zero|zeros?\b|uninitiali",
    fault="text_projection is torch.empty without an init: zero features over a zero norm",
)
def clip_empty(planted: bool) -> Task:
    return stream(TinyCLIP(init=not planted), captioned, clip_loss)


class Coupling(nn.Module):
    """RealNVP: half the features scaled and shifted by the other half."""

    def __init__(self, d=2, flip=False, bound=None):
        super().__init__()
        self.flip, self.bound = flip, bound
        self.net = chain(
            nn.Linear(d // 2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 32), nn.LeakyReLU(0.2), nn.Linear(32, d)
        )
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, z: Tensor, sign=1) -> tuple[Tensor, Tensor]:
        a, b = z.chunk(2, 1)
        if self.flip:
            a, b = b, a
        t, s = self.net(a).chunk(2, 1)
        if self.bound:
            t, s = self.bound * torch.tanh(t), self.bound * torch.tanh(s)
        b = b * torch.exp(s) + t if sign > 0 else (b - t) * torch.exp(-s)
        return torch.cat((b, a) if self.flip else (a, b), 1), sign * s.sum(1)


class NormalizingFlow(nn.Module):  # noqa: D101
    def __init__(self, layers=6, d=2, sign=1, bound=None):
        super().__init__()
        self.flows = nn.ModuleList(Coupling(d, i % 2 > 0, bound) for i in range(layers))
        self.sign = sign

    def forward_and_log_det(self, z: Tensor) -> tuple[Tensor, Tensor]:
        log_det = torch.zeros(len(z), device=z.device)
        for flow in self.flows:
            z, log_d = flow(z)
            log_det = log_det + self.sign * log_d
        return z, log_det

    def inverse_and_log_det(self, x: Tensor) -> tuple[Tensor, Tensor]:
        log_det = torch.zeros(len(x), device=x.device)
        for flow in reversed(self.flows):
            x, log_d = flow(x, -1)
            log_det = log_det + log_d
        return x, log_det


def two_moons(z: Tensor) -> Tensor:
    """The log density of the repository's target, unnormalised."""
    a = z[:, 0].abs()
    prob = -0.5 * ((z.norm(dim=1) - 2) / 0.2) ** 2 - 0.5 * ((a - 2) / 0.3) ** 2
    return prob + torch.log(1 + torch.exp(-4 * a * 2 / 0.09))


def noise():
    return (torch.randn(64, 2),), torch.zeros(64)


@report(
    "flow adds the log determinant with the wrong sign",
    GITHUB + "VincentStimper/normalizing-flows/commit/b0d2237",
    guilty=r"flows",
    says=r"sign|unbounded|no (lower|minimum)|below|diverg|determinant|grow|scale",
    fault="forward_and_log_det subtracts each layer's log determinant",
)
def flow_sign(planted: bool) -> Task:
    model = NormalizingFlow(sign=-1 if planted else 1)
    run = Parts(lambda m, z: m.flow.forward_and_log_det(z), flow=model)

    def kl(y, t, sign=1):
        return (-two_moons(y[0]) - sign * y[1]).mean()

    return stream(run, noise, kl, lambda y, t: kl(y, t, -1 if planted else 1))


@report(
    "alpha divergence with the wrong sign",
    GITHUB + "VincentStimper/normalizing-flows/commit/5a8e863",
    guilty=r"(?!)",
    says=r"sign|unbounded|no (lower|minimum)|below|diverg|negative|maximi",
    fault="-logsumexp(alpha (log p - log q)) for alpha 2, which wants the plus",
)
def flow_alpha(planted: bool) -> Task:
    def run(m, z):
        x, log_det = m.flow.forward_and_log_det(z)
        return x, -0.5 * (z**2).sum(1) - math.log(2 * math.pi) - log_det

    def loss(y, t, sign=1):
        target = torch.distributions.Normal(torch.tensor([0.6, -0.6]), torch.tensor([0.7, 0.7]), validate_args=False)
        log_p = target.log_prob(y[0]).sum(1)
        return sign * torch.logsumexp(2 * (log_p - y[1]), 0)

    model = Parts(run, flow=NormalizingFlow(2, bound=0.7))
    return stream(model, noise, lambda y, t: loss(y, t, -1 if planted else 1), loss)


@report(
    "base density with the square's sign wrong",
    GITHUB + "VincentStimper/normalizing-flows/commit/c378df7",
    guilty=r"(?!)",
    says=r"sign|unbounded|no (lower|minimum)|below|diverg|negative|maximi|grow",
    fault="log_prob of the Gaussian features adds 0.5 (z / scale)^2",
)
def flow_base(planted: bool) -> Task:
    def draw() -> Drawn:
        angle = math.pi * (2 * torch.rand(64) - 1)
        return (torch.stack([angle, torch.sin(2 * angle) + 0.2 * torch.randn(64)], 1),), torch.zeros(64)

    def loss(y, t, sign=-1):  # uniform in the first feature, Gaussian in the second
        log_p_u = torch.full((64,), -math.log(2 * math.pi))
        return -(log_p_u - 0.5 * math.log(2 * math.pi) + sign * 0.5 * y[0][:, 1] ** 2 + y[1]).mean()

    def run(m, x):  # the circular feature conditions the other
        shift, s = m.net(torch.cat([x[:, :1].sin(), x[:, :1].cos()], 1)).chunk(2, 1)
        return torch.cat([x[:, :1], (x[:, 1:] - shift) * torch.exp(-s)], 1), -s[:, 0]

    flow = Parts(run, net=chain(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2)))
    return stream(Parts(lambda m, x: m.flows(x), flows=flow), draw, lambda y, t: loss(y, t, 1 if planted else -1), loss)


@report(
    "QR loss of priors with zeros",
    GITHUB + "torchgeo/torchgeo/commit/bad075b7a",
    guilty=r"(?!)",
    says=rf"{BROKEN}|log of (zero|0)|zeros?\b.*log|\binf\b",
    fault="torch.log(target) without an eps, where the prior gives a class no probability",
)
def qr_loss(planted: bool) -> Task:
    def draw() -> Drawn:
        """Land cover of 4 classes; the prior knows of two or three classes for each patch, the others have none."""
        cover = F.interpolate(torch.randn(32, 4, 4, 4), size=(16, 16), mode="bilinear").argmax(1)
        x = torch.tensor([[0.1, 0.3, 0.2], [0.5, 0.4, 0.1], [0.8, 0.8, 0.9], [0.2, 0.7, 0.3]])[cover].movedim(3, 1)
        prior = F.one_hot(cover, 4).movedim(3, 1).float() * 2 + torch.rand(32, 4, 1, 1)
        known = (cover == 3).flatten(1).any(1) & (torch.rand(32) < 0.8)
        prior[:, 3] = prior[:, 3] * known[:, None, None]
        return (2 * (x + 0.1 * torch.randn(x.shape)) - 1,), prior / prior.sum(1, keepdim=True)

    def qr(y, target, eps=1e-8):
        q = y.softmax(1)
        q_bar = q.mean((0, 2, 3))
        qbar_log_S = (q_bar * torch.log(q_bar + eps)).sum()
        return qbar_log_S - torch.einsum("bcxy,bcxy->bxy", q, torch.log(target + eps)).mean()

    model = chain(
        nn.Conv2d(3, 16, 3, 1, 1), nn.LeakyReLU(), nn.Conv2d(16, 16, 3, 1, 1), nn.LeakyReLU(), nn.Conv2d(16, 4, 1)
    )
    return stream(model, draw, lambda y, t: qr(y, t, 0.0 if planted else 1e-8))


@report(
    "log map of the identity rotation",
    GITHUB + "facebookresearch/pytorch3d/commit/34a0df06",
    guilty=r"(?!)",
    says=rf"{BROKEN}|zero.*(divi|denominator)|divi.*zero",
    fault="so3_log_map divides the identity's angle 0 by the sine of 0",
)
def so3_log(planted: bool) -> Task:
    def hat(v):
        x, y, z = v.unbind(-1)
        o = torch.zeros_like(x)
        return torch.stack([o, -z, y, z, o, -x, -y, x, o], -1).view(-1, 3, 3)

    def so3_log_map(R, eps=1e-4):
        phi = torch.acos((0.5 * (R.diagonal(dim1=1, dim2=2).sum(1) - 1)).clamp(-1, 1))
        if planted:
            valid = phi.abs().clamp(eps) * phi.sign()
            log_hat = (valid / (2 * valid.sin()))[:, None, None] * (R - R.permute(0, 2, 1))
        else:
            s = phi.sin()
            denominator = s.abs().clamp(eps) * s.sign() + (s == 0).type_as(phi) * eps
            log_hat = (phi / (2 * denominator))[:, None, None] * (R - R.permute(0, 2, 1))
        return torch.stack([log_hat[:, 2, 1], log_hat[:, 0, 2], log_hat[:, 1, 0]], 1)

    def draw() -> Drawn:
        """A view's points in the frame of the first camera; the first camera's own pose is the identity."""
        R = torch.linalg.matrix_exp(hat(torch.randn(32, 3) * 0.6))
        R[0] = torch.eye(3)
        points = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1], [-1, 0, 1]])
        return ((points @ R.transpose(1, 2)).flatten(1) + 0.01 * torch.randn(32, 18),), so3_log_map(R)

    return stream(chain(nn.Linear(18, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3)), draw, F.mse_loss)


@report(
    "bidirectional states joined along the batch",
    GITHUB + "pytorch/fairseq/commit/af38ed48",
    guilty=r"encoder|decoder",
    says=rf"{ORDER}|batch|other examples|mix",
    fault="the two directions' last states (B, H) are concatenated in dim 0 and viewed as (1, B, 2H)",
)
def bidirectional(planted: bool) -> Task:
    def draw() -> Drawn:
        """Translation into the same numbers in reverse; the decoder sees the words before (teacher forcing)."""
        source = torch.randint(1, 11, (48, 5))
        target = source.flip(1)
        return (source, F.pad(target[:, :-1], (1, 0))), target

    def combine_bidir(outs, layers=1):
        bsz = outs.shape[1]
        if planted:
            pairs = [torch.cat([outs[2 * i], outs[2 * i + 1]], dim=0).view(1, bsz, -1) for i in range(layers)]
            return torch.cat(pairs, dim=0)
        return outs.view(layers, 2, bsz, -1).transpose(1, 2).contiguous().view(layers, bsz, -1)

    def run(m, source, previous):
        _, (h, c) = m.encoder(m.embed_tokens(source).transpose(0, 1))
        x, _ = m.decoder(m.decoder_embed_tokens(previous).transpose(0, 1), (combine_bidir(h), combine_bidir(c)))
        return m.fc_out(x.transpose(0, 1))

    model = Parts(
        run,
        embed_tokens=nn.Embedding(11, 16),
        encoder=nn.LSTM(16, 32, bidirectional=True),
        decoder=nn.LSTM(16, 64),
        decoder_embed_tokens=nn.Embedding(11, 16),
        fc_out=nn.Linear(64, 11),
    )
    return stream(model, draw, lambda y, t: F.cross_entropy(y.transpose(1, 2), t))


@report(
    "ring mixture takes the norm of the whole batch",
    GITHUB + "VincentStimper/normalizing-flows/commit/9549572",
    guilty=r"(?!)",
    says=r"batch|examples|norm|mix",
    fault="torch.norm(z) without dim in the target's log_prob: one radius for all samples",
)
def flow_ring(planted: bool) -> Task:
    def ring(z, whole, rings=2, scale=1 / 6):
        r = torch.norm(z) if whole else torch.norm(z, dim=1)
        d = [(r.expand(len(z)) - 2 / rings * (i + 1)) ** 2 / (2 * scale**2) for i in range(rings)]
        return torch.logsumexp(-torch.stack(d, 1), 1)

    model = Parts(lambda m, z: m.flow.forward_and_log_det(z), flow=NormalizingFlow(6))

    def kl(y, t, whole=False):
        return (-ring(y[0], whole) - y[1]).mean()

    return stream(model, noise, lambda y, t: kl(y, t, planted), kl)


def icosphere():
    """The icosahedron subdivided once: 42 vertices, 80 faces."""
    g = (1 + 5**0.5) / 2
    v = torch.tensor(
        [
            [-1, g, 0],
            [1, g, 0],
            [-1, -g, 0],
            [1, -g, 0],
            [0, -1, g],
            [0, 1, g],
            [0, -1, -g],
            [0, 1, -g],
            [g, 0, -1],
            [g, 0, 1],
            [-g, 0, -1],
            [-g, 0, 1],
        ]
    )
    v = list(v / v.norm(dim=1, keepdim=True))
    faces = [
        (0, 11, 5),
        (0, 5, 1),
        (0, 1, 7),
        (0, 7, 10),
        (0, 10, 11),
        (1, 5, 9),
        (5, 11, 4),
        (11, 10, 2),
        (10, 7, 6),
        (7, 1, 8),
        (3, 9, 4),
        (3, 4, 2),
        (3, 2, 6),
        (3, 6, 8),
        (3, 8, 9),
        (4, 9, 5),
        (2, 4, 11),
        (6, 2, 10),
        (8, 6, 7),
        (9, 8, 1),
    ]
    middle, found = {}, []

    def half(a, b):
        if (key := (min(a, b), max(a, b))) not in middle:
            middle[key] = len(v)
            v.append((m := v[a] + v[b]) / m.norm())
        return middle[key]

    for a, b, c in faces:
        ab, bc, ca = half(a, b), half(b, c), half(c, a)
        found += [(a, ab, ca), (b, bc, ab), (c, ca, bc), (ab, bc, ca)]
    return torch.stack(v), torch.tensor(found)


@report(
    "cotcurv smoothing without the weights' sum",
    GITHUB + "facebookresearch/pytorch3d/commit/e13e63a8",
    guilty=r"(?!)",
    says=r"loss|laplac|smooth|term|dominat|conflict|disagree|shrink",
    fault="(L v - v) norm_w where L's rows sum to far more than one: shrinks the mesh",
)
def cotcurv(planted: bool) -> Task:
    sphere, faces = icosphere()

    def smoothing(verts, wrong):
        with torch.no_grad():
            f = verts[:, faces]
            A, B, C = ((f[:, :, i] - f[:, :, j]).norm(dim=2) for i, j in ((1, 2), (0, 2), (0, 1)))
            s = (A + B + C) / 2
            area = (s * (s - A) * (s - B) * (s - C)).clamp(min=1e-12).sqrt()
            A2, B2, C2 = A * A, B * B, C * C
            cot = torch.stack([B2 + C2 - A2, A2 + C2 - B2, A2 + B2 - C2], 2) / area[..., None] / 4
            L = torch.zeros(len(verts), 42, 42)
            ii, jj = (faces[:, ends].expand(len(verts), -1, -1) for ends in ([1, 2, 0], [2, 0, 1]))
            mesh = torch.arange(len(verts))[:, None, None].expand(-1, 80, 3)
            L = L.index_put((mesh, ii, jj), cot, accumulate=True)
            L = L + L.transpose(1, 2)
            areas = torch.zeros(len(verts), 42).index_add(1, faces.flatten(), area.repeat_interleave(3, 1))
            inv_areas = 1 / areas[..., None]
        total = 1 if wrong else L.sum(2, keepdim=True)
        return ((L @ verts - total * verts) * 0.25 * inv_areas).norm(dim=2).mean()

    def draw() -> Drawn:  # ellipsoids seen as silhouettes' widths, with noise; targets are points of their surface
        radii = 0.5 + torch.rand(32, 3)
        place = 0.7 * torch.randn(32, 3)
        points = sphere * radii[:, None] + place[:, None] + 0.02 * torch.randn(32, 42, 3)
        return (torch.cat([radii, place], 1) + 0.02 * torch.randn(32, 6),), points

    def chamfer(a, b):
        d = torch.cdist(a, b) ** 2
        return d.min(1)[0].mean() + d.min(2)[0].mean()

    offset = chain(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 126))
    model = Parts(lambda m, x: sphere + m.offset(x).view(-1, 42, 3), offset=offset)

    def loss(y, t, wrong=False):
        return chamfer(y, t) + smoothing(y, wrong)

    return stream(model, draw, lambda y, t: loss(y, t, planted), loss)


@report(
    "attention decoder forgets its state",
    GITHUB + "facebookresearch/ParlAI/commit/ace8bf422",
    guilty=r"dec|rnn|attn",
    says=r"hidden|state|recurren|time|step|same|weight_hh",
    fault="preds, score, _h = decoder(xi, hidden): every step starts from the encoder's state",
)
def parlai_attention(planted: bool) -> Task:
    def draw() -> Drawn:
        """Repeat the line in reverse; words recur, so the word before does not tell the place."""
        xs = torch.randint(2, 6, (48, 10))
        ys = xs.flip(1)
        return (xs, F.pad(ys[:, :-1], (1, 0), value=1)), ys

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.lt, self.attn, self.attn_combine = nn.Embedding(6, 16), nn.Linear(32 + 16, 10), nn.Linear(32 + 16, 16)
            self.rnn, self.o2s = nn.GRU(16, 32), nn.Linear(32, 6)

        def forward(self, xi, hidden, enc_out):  # local attention before the rnn
            x = self.lt(xi)
            weights = F.softmax(self.attn(torch.cat([x, hidden[-1]], 1)), 1)
            x = self.attn_combine(torch.cat([x, (weights[:, None] @ enc_out)[:, 0]], 1)).tanh()
            out, hidden = self.rnn(x[None], hidden)
            return self.o2s(out[0]), hidden

    class Seq2seq(nn.Module):
        def __init__(self):
            super().__init__()
            self.lt, self.encoder, self.decoder = nn.Embedding(6, 16), nn.GRU(16, 32), Decoder()

        def forward(self, xs, ys):
            enc_out, hidden = self.encoder(self.lt(xs).transpose(0, 1))
            scores = []
            for i in range(ys.size(1)):
                score, new = self.decoder(ys.select(1, i), hidden, enc_out.transpose(0, 1))
                hidden = hidden if planted else new
                scores.append(score)
            return torch.stack(scores, 1)

    return stream(Seq2seq(), draw, lambda y, t: F.cross_entropy(y.transpose(1, 2), t))


@report(
    "mean over an empty sentence",
    GITHUB + "facebookresearch/ParlAI/commit/d556d6824",
    guilty=r"(?!)",
    says=rf"{BROKEN}|zero.*(divi|length|count)|divi.*zero|empty|pad",
    fault="universal_sentence_embedding divides by the square root of 0 for padding candidates",
)
def wizard_embedding(planted: bool) -> Task:
    def universal_sentence_embedding(sentences, mask, sqrt=True):
        sentence_sums = torch.bmm(sentences.permute(0, 2, 1), mask.float().unsqueeze(-1)).squeeze(-1)
        divisor = mask.sum(dim=1).view(-1, 1).float()
        if sqrt:
            divisor = divisor.sqrt()
        if not planted:
            divisor[divisor < 1] = 1
        return sentence_sums / divisor

    def draw() -> Drawn:
        """A context, 2 to 5 sentences of knowledge of which one shares the context's topic, and which it is."""
        n = torch.randint(2, 6, (32, 1))
        know = torch.randint(16, 40, (32, 5, 6))
        topics = torch.rand(32, 14).argsort(1)[:, :5] + 2
        know[:, :, 0] = topics
        know = know * (torch.arange(5) < n)[..., None] * (torch.arange(6) < torch.randint(3, 7, (32, 5, 1)))
        which = (torch.rand(32, 1) * n).long()
        context = torch.cat([topics.gather(1, which), torch.randint(16, 40, (32, 5))], 1)
        return (context, know), which[:, 0]

    class ContextKnowledgeEncoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(40, 32, padding_idx=0)
            self.encoder = chain(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))

        def forward(self, src, know):
            context = universal_sentence_embedding(self.encoder(self.embed(src)), src != 0)
            flat = know.flatten(0, 1)
            know_use = universal_sentence_embedding(self.encoder(self.embed(flat)), flat != 0).view(len(know), 5, -1)
            ck_attn = torch.bmm(know_use / 32**0.25, context.unsqueeze(-1) / 32**0.25).squeeze(-1)
            return ck_attn.masked_fill(~(know != 0).any(2), -1e20)

    return stream(ContextKnowledgeEncoder(), draw, F.cross_entropy)


@report(
    "refiner pools the last example for all",
    GITHUB + "facebookresearch/mmf/commit/6f3f40f5",
    guilty=r"(?!)",
    says=rf"{SAME}|batch|other examples|last example|mix",
    fault="the pooler's encoded_layers[-k] indexes sequence_output's batch, not the list of layers",
)
def mmf_refiner(planted: bool) -> Task:
    class AverageKFromLast(nn.Module):
        def __init__(self, k=1, tol=0.000001):
            super().__init__()
            self.k, self.tol = k, tol

        def forward(self, encoded_layers, pad_mask):
            encoder_avg = encoded_layers[-self.k]
            pad_mask = pad_mask.unsqueeze(2)
            encoder_avg = encoder_avg * pad_mask.float()
            return torch.sum(encoder_avg, 1) / (torch.sum(pad_mask, 1).float() + self.tol)

    class ReFNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.text, self.image = nn.Embedding(30, 32, padding_idx=0), nn.Linear(16, 32)
            self.position = nn.Parameter(0.02 * torch.randn(10, 32))

            def layer():
                return nn.TransformerEncoderLayer(32, 4, 64, 0.0, "gelu", batch_first=True)

            self.encoder, self.pooler = nn.ModuleList([layer(), layer()]), AverageKFromLast()
            self.mlp = chain(nn.Linear(32, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 10))

        def forward(self, image, words):
            mask = torch.cat([words != 0, torch.ones(len(words), 4, dtype=torch.bool)], 1)
            x = torch.cat([self.text(words), self.image(image)], 1) + self.position
            encoded_layers = [x]
            for layer in self.encoder:
                encoded_layers.append(layer(encoded_layers[-1], src_key_padding_mask=~mask))
            sequence_output = encoded_layers[-1]
            return self.mlp(self.pooler(sequence_output if planted else encoded_layers, mask))

    def draw() -> Drawn:
        x, c = pick(48)  # four patches of a digit, and a caption that names its parity
        words = torch.randint(3, 30, (48, 6)) * (torch.arange(6) < torch.randint(1, 7, (48, 1)))
        words[:, 0] = 1 + c % 2
        return (F.unfold(x, 4, stride=4).transpose(1, 2), words), c

    return stream(ReFNet(), draw, F.cross_entropy)


@report(
    "language model's targets of other places",
    GITHUB + "facebookresearch/ParlAI/commit/b77ef88c8",
    guilty=r"(?!)",
    says=rf"{ORDER}|target|label|align|shift|not.*(depend|relat)",
    fault="inputs are rows of (B, T), the targets batch[B:] are laid out as (T, B): words of other sentences",
)
def parlai_lm(planted: bool) -> Task:
    def draw() -> Drawn:
        bsz, seq_len = 20, 24
        n = (seq_len + 1) * bsz // 6 + 1  # bAbI: "mary went to the kitchen ."

        def r(low, high):
            return torch.randint(low, high, (n, 1))

        one = torch.ones(n, 1, dtype=torch.long)
        batch = torch.cat([r(5, 9), r(9, 13), 1 * one, 2 * one, r(13, 19), 3 * one], 1).flatten()
        batch = batch[3:][: (seq_len + 1) * bsz]
        if planted:
            data = batch[: seq_len * bsz].view(bsz, seq_len)
            return (data,), batch[bsz:].view(seq_len, bsz).t()
        source = batch.view(bsz, -1)
        return (source[:, :seq_len],), source[:, 1:]

    class RNNModel(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.rnn = nn.Embedding(20, 48, padding_idx=0), nn.LSTM(48, 96)
            self.decoder = nn.Linear(96, 20)
            nn.init.zeros_(self.decoder.bias)
            for m in (self.encoder, self.decoder):
                nn.init.uniform_(m.weight, -0.1, 0.1)

        def forward(self, data):
            output, _ = self.rnn(self.encoder(data.t()))
            return self.decoder(output).transpose(0, 1)

    return stream(RNNModel(), draw, lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten(), ignore_index=0))


@report(
    "LXMERT's boxes are always zero",
    GITHUB + "facebookresearch/mmf/commit/d6fc9672",
    guilty=r"box|visn|visual",
    says=r"constant|zero|box|position|location|no gradient|unused|gradient.*zero|same",
    fault="image_location = zeros(bbox.shape), then divided by the image's size: the boxes never enter",
)
def lxmert_boxes(planted: bool) -> Task:
    def draw() -> Drawn:
        """Objects' features and boxes (pixels), a question about one of them ('where is 5'); answers: 4 quarters."""
        kinds = torch.rand(48, 12).argsort(1)[:, :6]
        image_w, image_h = torch.randint(300, 640, (2, 48, 1)).float()
        x, y, w, h = torch.rand(4, 48, 6)
        bbox = torch.stack([x * 0.8, y * 0.8, x * 0.8 + 0.05 + 0.15 * w, y * 0.8 + 0.05 + 0.15 * h], 2)
        bbox = bbox * torch.stack([image_w, image_h] * 2, 2)
        image_location = torch.zeros(bbox.shape) if planted else bbox.clone()
        image_location = image_location / torch.stack([image_w, image_h] * 2, 2)
        which = torch.randint(6, (48, 1))
        feats = F.one_hot(kinds, 12).float() + 0.1 * torch.randn(48, 6, 12)
        answer = 2 * (y.gather(1, which) > 0.5).long() + (x.gather(1, which) > 0.5).long()
        return (torch.cat([torch.full((48, 1), 12), kinds.gather(1, which)], 1), feats, image_location), answer[:, 0]

    class LXMERT(nn.Module):
        def __init__(self):
            super().__init__()
            self.embeddings, self.visn_fc, self.box_fc = nn.Embedding(13, 48), nn.Linear(12, 48), nn.Linear(4, 48)
            self.visn_layer_norm, self.box_layer_norm = nn.LayerNorm(48), nn.LayerNorm(48)

            def layer():
                return nn.TransformerDecoderLayer(48, 4, 96, 0.0, "gelu", batch_first=True)

            self.x_layers = nn.ModuleList([layer(), layer()])
            self.classifier = chain(nn.Linear(48, 48), nn.GELU(), nn.LayerNorm(48), nn.Linear(48, 4))

        def forward(self, input_ids, feats, image_location):
            visual = (self.visn_layer_norm(self.visn_fc(feats)) + self.box_layer_norm(self.box_fc(image_location))) / 2
            lang = self.embeddings(input_ids)
            for layer in self.x_layers:
                lang = layer(lang, visual)
            return self.classifier(lang[:, 0])

    return stream(LXMERT(), draw, F.cross_entropy)


@report(
    "chamfer distance to an empty cloud",
    GITHUB + "facebookresearch/pytorch3d/commit/c6519f29",
    guilty=r"(?!)",
    says=rf"{BROKEN}|zero.*(divi|length|count)|divi.*zero|empty",
    fault="cham_y.sum(1) / y_lengths, where a view without foreground has no points",
)
def chamfer_empty(planted: bool) -> Task:
    where = torch.stack(torch.meshgrid(torch.arange(8), torch.arange(8), indexing="ij"), 2).view(64, 2) / 3.5 - 1

    def draw() -> Drawn:
        """Images and the points of their foreground, first in each row; one image in sixteen is blank."""
        x, _ = pick(32)
        x = torch.where((torch.rand(32) < 1 / 16).view(-1, 1, 1, 1), x.new_tensor(-0.8), x)
        inside = x.flatten(1) > 0.8
        order = (~inside).long().argsort(dim=1, stable=True)
        return (x,), (where[order] * (torch.arange(64) < inside.sum(1, keepdim=True))[..., None], inside.sum(1))

    def loss(y, t):
        points, y_lengths = t
        y_mask = torch.arange(64)[None] >= y_lengths[:, None]
        d = ((y[:, :, None] - points[:, None]) ** 2).sum(3)
        cham_x = d.masked_fill(y_mask[:, None], 1e9).min(2)[0].masked_fill((y_lengths == 0)[:, None], 0.0).mean(1)
        cham_y = d.min(1)[0].masked_fill(y_mask, 0.0).sum(1)
        return (cham_x + cham_y / (y_lengths if planted else y_lengths.clamp(min=1))).mean()

    encoder = chain(nn.Conv2d(1, 16, 3, 1, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten())
    decoder = chain(nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 48))
    model = Parts(lambda m, x: m.decoder(m.encoder(x)).view(-1, 24, 2), encoder=encoder, decoder=decoder)
    return stream(model, draw, loss)
