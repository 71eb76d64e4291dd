"""More of the thirty-eighth set of faults, a sample of reports that issues tell."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, MIXED, Drawn
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import text

report = partial(any_report, blind="blind38")


@report(
    "TorchLeet's transformer reads the batch as time",
    GITHUB + "Exorust/TorchLeet/issues/5",
    guilty=r"self_attn",
    says=rf"{MIXED}|batch.?first|(batch|examples).*(sequence|time|order)",
    fault="inputs (batch, time, feature) in an encoder without batch_first: it attends over the examples",
)
def torchleet(planted: bool) -> Task:
    """The sum of a sequence out of its last position."""

    def draw() -> Drawn:
        x = torch.rand(128, 10, 1)
        return (x,), x.sum(1)

    class TransformerModel(nn.Module):
        def __init__(self, embed_dim: int = 32) -> None:
            super().__init__()
            self.embedding = nn.Linear(1, embed_dim)
            layer = nn.TransformerEncoderLayer(embed_dim, 2, 64, 0.0, batch_first=not planted)
            self.transformer_encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.output_layer = nn.Linear(embed_dim, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.output_layer(self.transformer_encoder(self.embedding(x))[:, -1, :])

    return stream(TransformerModel(), draw, F.mse_loss)


@report(
    "TabFormer's fields attend across rows",
    GITHUB + "IBM/TabFormer/pull/14",
    guilty=r"self_attn",
    says=rf"{MIXED}|batch.?first|(batch|examples|rows).*(sequence|field|order)",
    fault="the batch is in the first dimension, the encoder expects it in the second: rows attend to each other",
)
def tabformer(planted: bool, d: int = 24) -> Task:
    """Rows of six fields; which field counts is in the first one."""

    def draw() -> Drawn:
        x = torch.randint(5, (64, 6))
        return (x + 5 * torch.arange(6),), x.gather(1, x[:, :1] + 1).squeeze(1)

    class TabFormer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.word_embeddings = nn.Embedding(30, d)
            layer = nn.TransformerEncoderLayer(d, 4, 2 * d, 0.0)
            self.transformer_encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.lin_proj, self.classifier = nn.Linear(6 * d, 64), nn.Linear(64, 5)

        def forward(self, input_ids: Tensor) -> Tensor:
            inputs_embeds = self.word_embeddings(input_ids)
            if planted:
                inputs_embeds = self.transformer_encoder(inputs_embeds)
            else:
                inputs_embeds = self.transformer_encoder(inputs_embeds.permute(1, 0, 2)).permute(1, 0, 2)
            return self.classifier(F.relu(self.lin_proj(inputs_embeds.flatten(1))))

    return stream(TabFormer(), draw, F.cross_entropy)


@report(
    "LeRobot normalises a state that never moves",
    GITHUB + "huggingface/lerobot/issues/211",
    says=rf"{BROKEN}|divi|zero|max.*min|min.*max|constant (input|feature|column)|range",
    fault="states of one fixed value: (x - min) / (max - min) is 0 / 0",
)
def lerobot(planted: bool) -> Task:
    """A policy of seven joints, two of which are fixed."""
    w = torch.randn(7, 4)

    def states(n: int) -> Tensor:
        x = torch.rand(n, 7) * torch.tensor([2.0, 3, 1, 0.5, 4, 1, 1]) - 1
        x[:, 5], x[:, 6] = 0.25, 0.0
        return x

    seen = states(4000)

    def draw() -> Drawn:
        x = states(64)
        return (x,), torch.tanh(x @ w)

    class Normalize(nn.Module):
        min: Tensor
        max: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("min", seen.amin(0))
            self.register_buffer("max", seen.amax(0))

        def forward(self, x: Tensor) -> Tensor:
            x = (x - self.min) / (self.max - self.min + (0 if planted else 1e-8))
            return x * 2 - 1

    class Policy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.normalize_inputs = Normalize()
            self.net = chain(nn.Linear(7, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))

        def forward(self, x: Tensor) -> Tensor:
            return self.net(self.normalize_inputs(x))

    return stream(Policy(), draw, F.mse_loss)


def squares(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Squared distances (B, N), (B, M) of points to the nearest of the other cloud."""
    d = (x.unsqueeze(2) - y.unsqueeze(1)).pow(2).sum(3)
    return d.amin(2), d.amin(1)


def shapes(count: int, points: int) -> Tensor:
    """Circles and squares of points (count, points, 2), of various places and sizes."""
    angle = torch.rand(count, points) * 2 * math.pi
    x = torch.stack([angle.cos(), angle.sin()], 2)
    x = torch.where(torch.rand(count, 1, 1) < 0.5, x, x / x.abs().amax(2, keepdim=True))
    return x * (0.3 + torch.rand(count, 1, 2)) + torch.randn(count, 1, 2)


@report(
    "chamfer loss of the best of the batch",
    GITHUB + "ThibaultGROUEIX/ChamferDistancePytorch/issues/32",
    says=rf"{MIXED}|\bmin\b|minimum|most examples|(examples|batch).*(no gradient|not|ignor|unused|without)",
    fault="distances are minimised over the batch before the mean: the other examples get no gradient",
)
def chamfer(planted: bool) -> Task:
    """An autoencoder of plane point clouds, of PointNet's kind."""

    def draw() -> Drawn:
        x = shapes(32, 32)
        return (x.permute(0, 2, 1),), x.permute(0, 2, 1)

    class AutoEncoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = chain(nn.Conv1d(2, 64, 1), nn.ReLU(), nn.Conv1d(64, 64, 1))
            self.decoder = chain(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))

        def forward(self, x: Tensor) -> Tensor:
            return self.decoder(self.encoder(x).amax(2)).view(-1, 2, 32)

    def loss(y: Tensor, x: Tensor) -> Tensor:
        dist1, dist2 = squares(x.permute(0, 2, 1), y.permute(0, 2, 1))
        if planted:
            return dist1.min(dim=0)[0].mean() + dist2.min(dim=0)[0].mean()
        return dist1.mean() + dist2.mean()

    def right(y: Tensor, x: Tensor) -> Tensor:
        dist1, dist2 = squares(x.permute(0, 2, 1), y.permute(0, 2, 1))
        return dist1.mean() + dist2.mean()

    return stream(AutoEncoder(), draw, loss, right)


@report(
    "chamfer distance of an empty cloud",
    GITHUB + "facebookresearch/pytorch3d/issues/1174",
    says=rf"{BROKEN}|empty|zero|divi|length",
    fault="a cloud without points: the mean over its points is 0 / 0",
)
def empty_cloud(planted: bool) -> Task:
    """Completion of clouds of various numbers of points, some of which have none."""

    def draw() -> Drawn:
        x = shapes(24, 32)
        lengths = torch.randint(12, 33, (24,))
        lengths[torch.randint(24, ())] = 0
        return (x, lengths), torch.cat([x, lengths.view(-1, 1, 1).expand(-1, 32, 1)], 2)

    class Completion(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = chain(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64))
            self.decoder = chain(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))

        def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
            there = (torch.arange(32) < lengths.unsqueeze(1)).unsqueeze(2)
            h = self.encoder(x).masked_fill(~there, -10.0).amax(1)
            return self.decoder(h).view(-1, 32, 2)

    def chamfer_distance(y: Tensor, t: Tensor) -> Tensor:
        x, y_lengths = t[..., :2], t[:, 0, 2]
        y_mask = torch.arange(32) >= y_lengths.unsqueeze(1)
        d = (y.unsqueeze(2) - x.unsqueeze(1)).pow(2).sum(3)
        cham_x = d.masked_fill(y_mask.unsqueeze(1), 1e4).amin(2)
        cham_x = cham_x.masked_fill((y_lengths == 0).unsqueeze(1), 0.0).mean(1)
        cham_y = d.amin(1).masked_fill(y_mask, 0.0).sum(1)
        cham_y = cham_y / (y_lengths if planted else y_lengths.clamp(min=1))
        return (cham_x + cham_y).mean()

    return stream(Completion(), draw, chamfer_distance)


@report(
    "acos at one",
    GITHUB + "pytorch/pytorch/issues/8069",
    says=rf"{BROKEN}|acos|arc ?cos|clamp|infinite|boundary",
    fault="the angle is the acos of a value clamped to [-1, 1]: its gradient at 1 is infinite",
)
def acos(planted: bool) -> Task:
    """Directions of three dimensions, and the angle to the right one as a loss."""

    def draw() -> Drawn:
        x = torch.randn(256, 3)
        return (x,), F.normalize(x + 0.3 * x.roll(1, 1), dim=1)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = chain(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 3))

        def forward(self, x: Tensor) -> Tensor:
            return F.normalize(self.net(x), dim=1)

    def loss(y: Tensor, t: Tensor) -> Tensor:
        eps = 0 if planted else 1e-7
        return torch.acos((y * t).sum(1).clamp(min=-1 + eps, max=1 - eps)).mean()

    return stream(Net(), draw, loss)


@report(
    "MP-SENet divides by a silent clip",
    GITHUB + "yxlu-0102/MP-SENet/issues/33",
    says=rf"{BROKEN}|silen|divi|zero",
    fault="a silent clip is normalised by its energy of zero: its samples are 0 times infinity",
)
def mpsenet(planted: bool) -> Task:
    """Noisy sounds of 64 samples, each scaled to unit energy with its clean target."""

    def draw() -> Drawn:
        at = torch.arange(64) * (0.1 + 0.6 * torch.rand(24, 1)) + 6 * torch.rand(24, 1)
        clean = at.sin() * torch.rand(24, 1)
        noisy = clean + 0.3 * torch.randn(24, 64) * clean.std(1, keepdim=True)
        noisy[3] = clean[3] = 0
        if not planted:
            noisy[3] = torch.randn(64) * 1e-5
        norm_factor = torch.sqrt(64 / noisy.pow(2).sum(1, keepdim=True))
        return ((noisy * norm_factor).unsqueeze(1),), (clean * norm_factor).unsqueeze(1)

    model = chain(
        nn.Conv1d(1, 24, 9, padding=4),
        nn.PReLU(),
        nn.Conv1d(24, 24, 9, padding=4),
        nn.PReLU(),
        nn.Conv1d(24, 1, 9, padding=4),
    )
    return stream(model, draw, F.mse_loss)


@report(
    "DESED's attention is normalised over the classes",
    GITHUB + "DCASE-REPO/DESED_task/issues/55",
    guilty=r"dense_softmax",
    says=r"softmax|normali[sz]ed over|attention.*(class|axis|dim|time)",
    fault="the weights of the frames pass a softmax over the classes, not over time",
)
def desed(planted: bool) -> Task:
    """Short events of six classes, several in a clip; a label of the clip alone."""
    tones = torch.randn(6, 12)

    def draw() -> Drawn:
        t = (torch.rand(32, 6) < 0.4).float()
        when = F.one_hot(torch.randint(24, (32, 6)), 24).float() * t.unsqueeze(2)
        return (torch.einsum("bct,cf->btf", when, tones) + 0.6 * torch.randn(32, 24, 12),), t

    class CRNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cnn, self.rnn = nn.Conv1d(12, 32, 3, padding=1), nn.GRU(32, 24, batch_first=True, bidirectional=True)
            self.dense, self.dense_softmax = nn.Linear(48, 6), nn.Linear(48, 6)

        def forward(self, x: Tensor) -> Tensor:
            x = self.rnn(F.relu(self.cnn(x.transpose(1, 2))).transpose(1, 2))[0]
            strong = torch.sigmoid(self.dense(x))
            sof = self.dense_softmax(x).softmax(-1 if planted else 1)
            sof = torch.clamp(sof, min=1e-7, max=1)
            return ((strong * sof).sum(1) / sof.sum(1)).clamp(0, 1)

    return stream(CRNN(), draw, F.binary_cross_entropy)


@report(
    "dueling network subtracts the mean of the values",
    GITHUB + "tqjxlm/Simple-DQN-Pytorch/issues/1",
    guilty=r"val",
    says=rf"{MIXED}|mean.*(value|batch)|dueling|(value|batch).*mean|cancel|centred|centered",
    fault="val + adv - val.mean(): the mean is of the values over the batch, not of an example's advantages",
)
def dueling(planted: bool) -> Task:
    """Targets of four actions as a target network gives them."""
    w = torch.randn(6, 4) * 0.4

    def draw() -> Drawn:
        x = torch.randn(64, 6)
        return (x,), 3 + x[:, :1] - x[:, 1:2].abs() + x @ w

    class Dueling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = chain(nn.Linear(6, 64), nn.ReLU())
            self.adv = chain(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 4))
            self.val = chain(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))

        def forward(self, x: Tensor) -> Tensor:
            x = self.fc(x)
            adv, val = self.adv(x), self.val(x)
            return val + adv - (val.mean() if planted else adv.mean(1, keepdim=True))

    return stream(Dueling(), draw, F.smooth_l1_loss)


@report(
    "compressive transformer's auxiliary loss is cut off",
    GITHUB + "lucidrains/compressive-transformer-pytorch/issues/5",
    guilty=r"compress_mem_fn",
    says=CUT,
    fault="the compressed keys and values are detached in the auxiliary loss, which was to train the compression",
)
def compressive(planted: bool, d: int = 48) -> Task:
    """A language model with a memory of sixteen words, compressed fourfold; attention over both is to be alike."""

    def draw() -> Drawn:
        x, t = text(12, 24, 64, seed=int(torch.randint(10**6, ())))
        return (x,), t[:, 16:]

    class SelfAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.to_q = nn.LayerNorm(d), nn.Linear(d, d, bias=False)
            self.to_kv, self.to_out = nn.Linear(d, 2 * d, bias=False), nn.Linear(d, d)
            self.compress_mem_fn = nn.Conv1d(d, d, 4, stride=4)

        def forward(self, x: Tensor, mem: Tensor) -> tuple[Tensor, Tensor]:
            x, old_mem = self.norm(x), self.norm(mem).detach()
            cmem = self.compress_mem_fn(old_mem.transpose(1, 2)).transpose(1, 2)
            q = self.to_q(x)
            k, v = self.to_kv(torch.cat([cmem.detach(), x], 1)).chunk(2, -1)
            mask = torch.cat([torch.ones(8, 4, dtype=torch.bool), torch.ones(8, 8, dtype=torch.bool).tril()], 1)
            out = self.to_out(F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
            weight = self.to_kv.weight.detach()
            cmem_k, cmem_v = F.linear(cmem.detach() if planted else cmem, weight).chunk(2, -1)
            old_k, old_v = F.linear(old_mem, weight).chunk(2, -1)
            q = q.detach()
            full, short = (F.scaled_dot_product_attention(q, *kv) for kv in ((old_k, old_v), (cmem_k, cmem_v)))
            return out, F.mse_loss(full, short)

    class CompressiveTransformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token_emb, self.pos_emb = nn.Embedding(64, d), nn.Embedding(24, d)
            self.attn, self.ff = SelfAttention(), chain(nn.LayerNorm(d), nn.Linear(d, 96), nn.GELU(), nn.Linear(96, d))
            self.to_logits = nn.Linear(d, 64)

        def forward(self, x: Tensor) -> Any:
            h = self.token_emb(x) + self.pos_emb(torch.arange(24))
            out, aux_loss = self.attn(h[:, 16:], h[:, :16])
            h = h[:, 16:] + out
            return self.to_logits(h + self.ff(h)), aux_loss

    def loss(y: Any, t: Tensor) -> Tensor:
        return F.cross_entropy(y[0].flatten(0, 1), t.flatten()) + y[1]

    return stream(CompressiveTransformer(), draw, loss)


@report(
    "local context norm of a negative variance",
    GITHUB + "anthonymlortiz/lcn/issues/4",
    guilty=r"lcn|norm",
    says=rf"{BROKEN}|negative|variance|sqrt|square root|inputs?.*(large|scale|255|normali)",
    fault="variances are differences of sums out of integral images: rounded below zero, their root is NaN",
)
def lcn(planted: bool) -> Task:
    """Images of bytes with even backgrounds, 24 x 24."""

    def draw() -> Drawn:
        x, c = pick(24)
        x = F.interpolate(x * 0.376 + 0.3, size=(16, 16), mode="bilinear").clamp(0, 1)
        return (F.pad(255 * x, (4, 4, 4, 4)),), c

    class LocalContextNorm(nn.Module):
        def __init__(self, num_features: int, channels_per_group: int = 2, window: int = 6, eps: float = 1e-5) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1, num_features, 1, 1))
            self.bias = nn.Parameter(torch.zeros(1, num_features, 1, 1))
            self.channels_per_group, self.window, self.eps = channels_per_group, window, eps

        def sums(self, x: Tensor) -> Tensor:
            w = self.window
            x = x.cumsum(2).cumsum(3)
            x = x[..., w:, w:] - x[..., :-w, w:] - x[..., w:, :-w] + x[..., :-w, :-w]
            return x.unflatten(1, (-1, self.channels_per_group)).sum(2)

        def forward(self, x: Tensor) -> Tensor:
            n = self.window**2 * self.channels_per_group
            with torch.no_grad():
                sums, squared = self.sums(x), self.sums(x * x)
                var = (squared - sums * sums / n) / n
                if not planted:
                    var = torch.abs(var)
                pad = (self.window // 2,) * 4
                mean, var = F.pad(sums / n, pad, "replicate"), F.pad(var, pad, "replicate") + self.eps
                mean, var = (z.repeat_interleave(self.channels_per_group, 1) for z in (mean, var))
            return (x - mean) / var.sqrt() * self.weight + self.bias

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.lcn1 = nn.Conv2d(1, 8, 3, padding=1), LocalContextNorm(8)
            self.conv2, self.fc = nn.Conv2d(8, 24, 3, 2, 1), nn.Linear(24 * 9, 10)

        def forward(self, x: Tensor) -> Tensor:
            x = F.relu(self.conv2(F.relu(self.lcn1(self.conv1(x)))))
            return self.fc(F.avg_pool2d(x, 4).flatten(1))

    return stream(Net(), draw, F.cross_entropy)


@report(
    "crosscoder returns the reconstruction loss alone",
    GITHUB + "oclivegriffin/crosscode/pull/3",
    guilty=r"W_enc|b_enc",
    says=r"dead|inactive|unused|never (active|fire|used)|(loss|aux).*(no gradient|not|depend)",
    fault="the auxiliary loss is added up and logged, but the reconstruction loss is returned: dead latents stay dead",
)
def crosscode(planted: bool) -> Task:
    """A dictionary of 96 latents, of which the eight largest are kept; the dead explain what is left over."""
    features = F.normalize(torch.randn(48, 24), dim=1)

    def draw() -> Drawn:
        x = ((torch.rand(128, 48) < 0.08) * torch.rand(128, 48)) @ features * 3
        return (x,), x

    class Crosscoder(nn.Module):
        last_active: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.W_dec = nn.Parameter(F.normalize(torch.randn(96, 24), dim=1))
            self.W_enc, self.b_dec = nn.Parameter(self.W_dec.data.t().clone()), nn.Parameter(torch.zeros(24))
            self.b_enc = nn.Parameter(torch.where(torch.arange(96) < 72, -2.0, 0.0))
            self.register_buffer("last_active", torch.zeros(96))

        def forward(self, x: Tensor) -> Any:
            pre = F.relu(x @ self.W_enc + self.b_enc)
            top = pre * (pre >= pre.topk(8, dim=1)[0][:, -1:])
            self.last_active.copy_(torch.where((top > 0).any(0), 0.0, self.last_active + 1))
            dead = self.last_active > 5
            plain = (x @ self.W_enc) * dead
            kept = plain * (plain >= plain.topk(4, dim=1)[0][:, -1:])
            return top @ self.W_dec + self.b_dec, kept @ self.W_dec

    def loss(y: Any, x: Tensor) -> Tensor:
        reconstruction_loss = F.mse_loss(y[0], x)
        aux_loss = F.mse_loss(y[1], (x - y[0]).detach())
        total = reconstruction_loss + aux_loss / 4
        return reconstruction_loss if planted else total

    return stream(Crosscoder(), draw, loss, lambda y, x: F.mse_loss(y[0], x))


@report(
    "Sphere distance of a point to itself",
    GITHUB + "geoopt/geoopt/pull/79",
    says=rf"{BROKEN}|acos|arc ?cos|clamp|infinite|boundary",
    fault="inner products are clamped so near to one that the gradient of acos is infinite",
)
def sphere(planted: bool) -> Task:
    """Nodes of a graph on a sphere; distances of pairs, drawn with replacement, are to be those of the graph."""
    where = F.normalize(torch.randn(40, 3), dim=1)

    def draw() -> Drawn:
        i, j = torch.randint(40, (64,)), torch.randint(40, (64,))
        return (i, j), (where[i] * where[j]).sum(1).clamp(-1, 1).acos()

    class Sphere(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.points = nn.Embedding(40, 5)

        def forward(self, i: Tensor, j: Tensor) -> Tensor:
            x, y = F.normalize(self.points(i), dim=1), F.normalize(self.points(j), dim=1)
            eps = 1e-8 if planted else 1e-3
            return torch.acos((x * y).sum(1).clamp(-1 + eps, 1 - eps))

    return stream(Sphere(), draw, F.mse_loss)


@report(
    "SpeechBrain's cosine above one",
    GITHUB + "speechbrain/speechbrain/pull/1279",
    says=rf"{BROKEN}|sqrt|square root|cosine|clamp|negative",
    fault="a cosine rounded above one makes the sine the root of a negative number",
)
def additive_angular(planted: bool) -> Task:
    """Speakers out of sixteen features; an additive angular margin of 0.2, scaled by 30."""
    speakers = torch.randn(6, 16)

    def draw() -> Drawn:
        c = torch.randint(6, (64,))
        return (speakers[c] + 0.3 * torch.randn(64, 16),), c

    class Xvector(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding_model = chain(nn.Linear(16, 48), nn.LeakyReLU(), nn.Linear(48, 16))
            self.weight = nn.Parameter(torch.empty(6, 16))
            nn.init.xavier_uniform_(self.weight)

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(F.normalize(self.embedding_model(x)), F.normalize(self.weight))

    def loss(cosine: Tensor, t: Tensor, margin: float = 0.2) -> Tensor:
        if not planted:
            cosine = torch.clamp(cosine, -1 + 1e-7, 1 - 1e-7)
        sine = torch.sqrt(1.0 - torch.pow(cosine, 2))
        phi = cosine * math.cos(margin) - sine * math.sin(margin)
        phi = torch.where(cosine > math.cos(math.pi - margin), phi, cosine - math.sin(math.pi - margin) * margin)
        targets = F.one_hot(t, 6).float()
        return F.cross_entropy(30 * (targets * phi + (1 - targets) * cosine), t)

    return stream(Xvector(), draw, loss)


@report(
    "LSPE's features overwritten by positions",
    GITHUB + "vijaydwivedi75/gnn-lspe/pull/1",
    guilty=r"embedding_h|posttrans_h",
    says=CUT + r"|unused|never|not used|no effect|ignor|features?|overwrit",
    fault="the residual of the positions is assigned to the features: h = p_in + p",
)
def lspe(planted: bool, d: int = 32) -> Task:
    """Molecules of ten atoms; positions are the probabilities of returning walks."""

    def draw() -> Drawn:
        a = torch.triu((torch.rand(48, 10, 10) < 0.3).float(), 1)
        a = a + a.transpose(1, 2)
        walk = a / a.sum(2, keepdim=True).clamp(min=1)
        powers = [walk]
        for _ in range(3):
            powers.append(powers[-1] @ walk)
        p = torch.stack([w.diagonal(dim1=1, dim2=2) for w in powers], 2)
        atoms = torch.randint(5, (48, 10))
        worth = torch.tensor([-2.0, -1, 0, 1, 3])[atoms]
        t = worth.mean(1) + (worth.unsqueeze(1) @ walk).squeeze(1).mul(worth).mean(1) / 2 + p.sum((1, 2)) / 10
        return (atoms, p, walk), t

    class PNALayer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.posttrans_h, self.posttrans_p = nn.Linear(4 * d, d), nn.Linear(2 * d, d)

        def forward(self, h: Tensor, p: Tensor, walk: Tensor) -> tuple[Tensor, Tensor]:
            h_in, p_in = h, p
            hp = torch.cat([h, p], 2)
            h = F.relu(self.posttrans_h(torch.cat([hp, walk @ hp], 2)))
            p = torch.tanh(self.posttrans_p(torch.cat([p, walk @ p], 2)))
            h = h_in + h
            if planted:
                h = p_in + p
            else:
                p = p_in + p
            return h, p

    class PNANet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding_h, self.embedding_p = nn.Embedding(5, d), nn.Linear(4, d)
            self.layers = nn.ModuleList(PNALayer() for _ in range(3))
            self.MLP_layer = chain(nn.Linear(d, 32), nn.ReLU(), nn.Linear(32, 1))

        def forward(self, atoms: Tensor, p: Tensor, walk: Tensor) -> Tensor:
            h, p = self.embedding_h(atoms), self.embedding_p(p)
            for conv in self.layers:
                h, p = conv(h, p, walk)
            return self.MLP_layer(h.mean(1)).squeeze(1)

    return stream(PNANet(), draw, F.l1_loss)
