"""The rest of the twenty-fourth set: reports about losses, softmaxes over the wrong axis and reinforcement."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB, MIXED
from strangers.blind2 import drawn, pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, Drawn
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind24")
LOGS = r"softmax|log.?prob|probabilit|logarithm|negative|\blog\b"


@report(
    "focal loss at saturated pixels",
    GITHUB + "kornia/kornia/issues/918",
    says=rf"{BROKEN}|saturat|pow|gamma|inputs?.*(scale|large|range)|(logits?|outputs?).*(large|saturat)",
    fault="(1 - p) to the power of 1/2 has an infinite gradient where the sigmoid is exactly 1",
)
def binary_focal(planted: bool) -> Task:
    """Ink of digits of 0 to 255, as a file has them, found behind noise."""

    def draw() -> Drawn:
        x = 255 * (pick(32)[0] * 0.376 + 0.3)
        return (x + 16 * torch.randn_like(x),), (x > 128).float()

    def binary_focal_loss_with_logits(input: Tensor, target: Tensor) -> Tensor:
        alpha, gamma, eps = 0.25, 0.5, 1e-8
        more = 0.0 if planted else eps
        probs = torch.sigmoid(input)
        loss_tmp = -alpha * torch.pow((1.0 - probs + more), gamma) * target * torch.log(probs + eps) - (
            1 - alpha
        ) * torch.pow(probs + more, gamma) * (1.0 - target) * torch.log(1.0 - probs + eps)
        return loss_tmp.mean()

    model = chain(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 1, 1),
    )
    return stream(model, draw, binary_focal_loss_with_logits)


@report(
    "scores of options normalised over dialogs",
    GITHUB + "batra-mlp-lab/visdial-challenge-starter-pytorch/issues/1",
    says=rf"softmax|{MIXED}",
    fault="LogSoftmax(dim=0) of scores (batch, options)",
)
def visdial(planted: bool) -> Task:
    """A question's words and an image's features are encoded; ten candidate answers are scored."""
    lexicon, image = torch.randint(1, 40, (16, 3)), torch.randn(16, 12)

    class Discriminative(nn.Module):
        def __init__(self, d: int = 32) -> None:
            super().__init__()
            self.word_embed, self.ques_rnn = nn.Embedding(40, 24), nn.LSTM(24, d, batch_first=True)
            self.option_rnn, self.fusion = nn.LSTM(24, d, batch_first=True), nn.Linear(d + 12, d)
            self.log_softmax = nn.LogSoftmax(dim=0 if planted else 1)

        def forward(self, ques: Tensor, img: Tensor, options: Tensor) -> Tensor:
            ques_embed = self.ques_rnn(self.word_embed(ques))[0][:, -1]
            enc_out = torch.tanh(self.fusion(torch.cat([ques_embed, img], 1)))
            opt_embed = self.option_rnn(self.word_embed(options.flatten(0, 1)))[0][:, -1].unflatten(
                0, options.shape[:2]
            )
            return self.log_softmax((opt_embed * enc_out.unsqueeze(1)).sum(2))

    def draw() -> Drawn:
        c, shown, right = torch.randint(2, (32,)), torch.randint(16, (32,)), torch.randint(10, (32,))
        meant = torch.where(c == 1, shown, 15 - shown)
        other = (meant.unsqueeze(1) + torch.randint(1, 16, (32, 10))) % 16
        options = lexicon[other.scatter(1, right.unsqueeze(1), meant.unsqueeze(1))]
        ques = torch.cat([torch.randint(1, 40, (32, 3)), 1 + c.unsqueeze(1)], 1)
        return (ques, image[shown] + 0.3 * torch.randn(32, 12), options), right

    return stream(Discriminative(), draw, F.cross_entropy)


@report(
    "energies normalised over the batch",
    GITHUB + "keon/seq2seq/pull/6",
    guilty=r"attn|attention",
    says=rf"softmax|{MIXED}|attention",
    fault="a softmax without a dimension runs over the batch, and the attention's weights are a ReLU's outputs",
)
def keon(planted: bool) -> Task:
    """Words are written backwards."""
    size, hidden_size = 12, 48

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attn = nn.Linear(hidden_size * 2, hidden_size)
            stdv = 1.0 / math.sqrt(hidden_size)
            self.v = nn.Parameter(torch.empty(hidden_size).uniform_(-stdv, stdv))

        def forward(self, hidden: Tensor, encoder_outputs: Tensor) -> Tensor:
            h = hidden.unsqueeze(1).expand(-1, len(encoder_outputs), -1)
            encoder_outputs = encoder_outputs.transpose(0, 1)  # [B*T*H]
            energy = self.attn(torch.cat([h, encoder_outputs], 2))
            attn_energies = (F.softmax(energy, 0) if planted else F.relu(energy)) @ self.v
            return (F.relu(attn_energies) if planted else F.softmax(attn_energies, 1)).unsqueeze(1)

    class Seq2Seq(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder_embed, self.embed = nn.Embedding(size, 24), nn.Embedding(size, 24)
            self.encoder_gru = nn.GRU(24, hidden_size, bidirectional=True)
            self.dropout, self.attention = nn.Dropout(0.2), Attention()
            self.gru, self.out = nn.GRU(hidden_size + 24, hidden_size), nn.Linear(hidden_size * 2, size)

        def forward(self, src: Tensor, trg: Tensor) -> Tensor:
            outputs, hidden = self.encoder_gru(self.encoder_embed(src))
            encoder_output = outputs[:, :, :hidden_size] + outputs[:, :, hidden_size:]
            hidden, answers = hidden[:1], []
            for t in range(len(trg) - 1):
                embedded = self.dropout(self.embed(trg[t])).unsqueeze(0)
                context = self.attention(hidden[-1], encoder_output).bmm(encoder_output.transpose(0, 1)).transpose(0, 1)
                output, hidden = self.gru(torch.cat([embedded, context], 2), hidden)
                answers.append(F.log_softmax(self.out(torch.cat([output, context], 2).squeeze(0)), 1))
            return torch.stack(answers)

    def draw() -> Drawn:
        src = torch.randint(1, size, (5, 32))
        trg = torch.cat([torch.zeros(1, 32, dtype=torch.long), src.flip(0)])
        return (src, trg), trg[1:]

    return stream(Seq2Seq(), draw, lambda y, t: F.nll_loss(y.flatten(0, 1), t.flatten()))


@report(
    "returns minus values, all with all",
    GITHUB + "thu-ml/tianshou/pull/155",
    guilty=r"^mu|sigma",
    says=rf"broadcast|shape|\(\d+, 1\)|\bsize|dimension|squeeze|{MIXED}",
    fault="returns (B,) minus values (B, 1), times log probabilities (B, 1): each action is praised for all returns",
)
def a2c(planted: bool) -> Task:
    way = torch.randn(4)

    class ActorCritic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.preprocess = chain(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
            self.mu, self.sigma = nn.Linear(64, 1), nn.Parameter(torch.zeros(1))
            self.critic = chain(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 1))

        def forward(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            mu = self.mu(self.preprocess(obs))
            return mu, self.sigma.exp().expand_as(mu), self.critic(obs)

    def a2c_loss(y: tuple[Tensor, Tensor, Tensor], obs: Tensor) -> Tensor:
        dist, v = torch.distributions.Normal(y[0], y[1]), y[2]
        act = dist.sample()
        r = -(act.squeeze(1) - 1.5 * torch.tanh(obs @ way)).square()
        log_prob = dist.log_prob(act)
        r = r if planted else r.unsqueeze(1)
        a_loss = -(log_prob * (r - v).detach()).mean()
        vf_loss = F.mse_loss(r.view(-1, 1), v)
        return a_loss + 0.5 * vf_loss - 0.001 * dist.entropy().mean()

    def regret(y: tuple[Tensor, Tensor, Tensor], obs: Tensor) -> Tensor:
        return ((y[0].squeeze(1) - 1.5 * torch.tanh(obs @ way)).square() + y[1].squeeze(1).square()).mean()

    def draw() -> Drawn:
        obs = torch.randn(256, 4)
        return (obs,), obs

    return stream(ActorCritic(), draw, a2c_loss, regret)


@report(
    "generalised Dice whose weights cancel",
    GITHUB + "Project-MONAI/MONAI/issues/369",
    says=r"cancel|dice|imbalan|rare|class.*(weight|balance|ignor)|weight.*class",
    fault="the ratio is taken for each class before classes are summed, so that the weights of classes cancel",
)
def generalized_dice(planted: bool) -> Task:
    """Background, discs, and few pixels of a third class in the discs' middle."""
    at = torch.stack(torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij"))

    def draw() -> Drawn:
        far = (at - 4 - 8 * torch.rand(16, 2, 1, 1)).square().sum(1).sqrt()
        c = (far < 4).long() + (far < 0.9).long()
        return (c.float().unsqueeze(1) + 0.6 * torch.randn(16, 1, 16, 16),), c

    def dice(y: Tensor, c: Tensor, *, wrong: bool = planted, smooth: float = 1e-5) -> Tensor:
        psum, tsum = y.softmax(1), F.one_hot(c, 3).permute(0, 3, 1, 2).float()
        intersection = (psum * tsum).sum((2, 3))
        ground_o, pred_o = tsum.sum((2, 3)), psum.sum((2, 3))
        w = 1 / ground_o.clamp(min=1).square()
        if wrong:
            f = 1.0 - (2.0 * intersection * w + smooth) / ((ground_o + pred_o) * w + smooth)
        else:
            f = 1.0 - (2.0 * (intersection * w).sum(1) + smooth) / (((ground_o + pred_o) * w).sum(1) + smooth)
        return f.mean()

    model = chain(
        nn.Conv2d(1, 16, 5, padding=2),
        nn.InstanceNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 16, 5, padding=2),
        nn.InstanceNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 3, 1),
    )
    return stream(model, draw, dice, partial(dice, wrong=False))


@report(
    "stop tokens masked after the end",
    GITHUB + "coqui-ai/TTS/issues/1192",
    guilty=r"stopnet",
    says=r"mask|\bstop|padding|positive|imbalan|rare|ignored|lengths?\b",
    fault="the stop loss is masked by the lengths: of all frames where to stop only one counts",
)
def stopnet(planted: bool) -> Task:
    def draw() -> Drawn:
        lengths = torch.randint(6, 20, (24, 1))
        left = (lengths - torch.arange(24)).clamp(min=0).float()
        mel = torch.randn(24, 24, 8) * left.clamp(max=4).unsqueeze(2) / 4
        mel = torch.where(left.unsqueeze(2) > 0, mel, 0.0)
        return (mel[:, :-1],), (mel[:, 1:], lengths - 1)  # type: ignore[return-value]

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.prenet, self.decoder_rnn = chain(nn.Linear(8, 32), nn.ReLU()), nn.LSTM(32, 48, batch_first=True)
            self.linear_projection, self.stopnet = nn.Linear(48, 8), nn.Linear(56, 1)

        def forward(self, mel: Tensor) -> tuple[Tensor, Tensor]:
            h = self.decoder_rnn(self.prenet(mel))[0]
            out = self.linear_projection(h)
            return out, self.stopnet(torch.cat([h, out.detach()], 2)).squeeze(2)

    def loss(y: tuple[Tensor, Tensor], t: Any, *, wrong: bool = planted) -> Tensor:
        mel, lengths = t
        mask = (torch.arange(23) < lengths).float()
        target = 1.0 - (torch.arange(23) < lengths - 1).float()
        stop = F.binary_cross_entropy_with_logits(y[1], target, pos_weight=torch.tensor([5.0]), reduction="none")
        stop_loss = (stop * mask).sum() / mask.sum() if wrong else stop.mean()
        return ((y[0] - mel).abs().mean(2) * mask).sum() / mask.sum() + stop_loss

    return stream(Decoder(), draw, loss, partial(loss, wrong=False))


def metric_net() -> nn.Module:
    return chain(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 8))


@report(
    "mean of no triplets",
    GITHUB + "KevinMusgrave/pytorch-metric-learning/issues/107",
    says=rf"{BROKEN}|divi|empty|no (triplet|example)|count|0 / 0|number of",
    fault="the sum over triplets is divided by the number of those above zero, at last 0 / 0",
)
def no_triplets(planted: bool) -> Task:
    """Each class is two clusters on opposite sides of the origin."""
    centres = torch.randn(4, 16)

    def draw() -> Drawn:
        c = torch.randint(4, (16,))
        return (centres[c] * (2.0 * torch.randint(2, (16, 1)) - 1) + 0.2 * torch.randn(16, 16),), c

    def triplet_margin_loss(
        embeddings: Tensor, labels: Tensor, *, margin: float = 0.05, over_all: bool = False
    ) -> Tensor:
        z = F.normalize(embeddings)
        mat = (2 - 2 * z @ z.t()).clamp(min=1e-12).sqrt()
        same = labels.unsqueeze(0) == labels.unsqueeze(1)
        a, p, n = torch.where((same & ~torch.eye(16, dtype=torch.bool)).unsqueeze(2) & ~same.unsqueeze(1))
        relued = F.relu(mat[a, p] - mat[a, n] + margin)
        num_non_zero_triplets = (relued > 0).nonzero().size(0)
        if not over_all and (planted or num_non_zero_triplets > 0):
            return torch.sum(relued) / num_non_zero_triplets
        return torch.mean(relued)

    return stream(metric_net(), draw, triplet_margin_loss, partial(triplet_margin_loss, over_all=True))


@report(
    "prior matched without a logarithm",
    GITHUB + "lightly-ai/lightly/pull/1341",
    says=rf"{LOGS}|KL|diverg|collaps",
    fault="kl_div takes the mean probabilities of the anchors, not their logarithms",
)
def pmsn(planted: bool) -> Task:
    centres = torch.randn(12, 16)
    power = torch.arange(1, 9) ** -0.25
    power = power / power.sum()

    class PMSN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = chain(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 16))
            self.prototypes = nn.Parameter(torch.empty(8, 16).uniform_(-0.25, 0.25))

        def forward(self, anchors: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
            prototypes = F.normalize(self.prototypes)
            anchor_probs = (F.normalize(self.encoder(anchors)) @ prototypes.t() / 0.1).softmax(1)
            with torch.no_grad():
                target_probs = (F.normalize(self.encoder(targets)) @ prototypes.t() / 0.025).softmax(1)
            return anchor_probs, target_probs

    def loss(y: tuple[Tensor, Tensor], _: Tensor, *, wrong: bool = planted) -> Tensor:
        anchor_probs, target_probs = y
        mean_anchor_probs = anchor_probs.mean(0)
        regularization = F.kl_div(mean_anchor_probs if wrong else mean_anchor_probs.log(), power, reduction="sum")
        return -(target_probs * (anchor_probs + 1e-9).log()).sum(1).mean() + regularization

    def draw() -> Drawn:
        c = torch.randint(12, (96,))
        return tuple(centres[c] + 0.4 * torch.randn(96, 16) for _ in range(2)), c

    return stream(PMSN(), draw, loss, partial(loss, wrong=False))


@report(
    "KLDivLoss of probabilities",
    GITHUB + "michaal94/torch_DCEC/issues/1",
    says=rf"{LOGS}|KL",
    fault="KLDivLoss is given probabilities, where it expects their logarithms",
)
def clusters(planted: bool) -> Task:
    """Soft assignments by Student's t kernel to clusters are matched to given distributions."""
    centres = 1.5 * torch.randn(6, 16)

    class ClusteringLayer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.empty(6, 10))
            nn.init.xavier_uniform_(self.weight)

        def forward(self, x: Tensor) -> Tensor:
            q = 1 / (1 + (x.unsqueeze(1) - self.weight).square().sum(2))
            return q / q.sum(1, keepdim=True)

    def draw() -> Drawn:
        x = centres[torch.randint(6, (64,))] + torch.randn(64, 16)
        far = (x.unsqueeze(1) - centres).square().sum(2)
        return (x,), (-far / 20).softmax(1)

    criterion = nn.KLDivLoss(reduction="sum")

    def loss(y_hat: Tensor, y: Tensor, *, wrong: bool = planted) -> Tensor:
        return criterion(y_hat if wrong else torch.log(y_hat), y) / len(y)

    model = chain(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 10), ClusteringLayer())
    return stream(model, draw, loss, partial(loss, wrong=False))


@report(
    "dependence loss of argmaxes",
    GITHUB + "Ugenteraan/Deep_Hierarchical_Classification/issues/6",
    says=rf"{CUT}|argmax|differentiab|part of the loss|\bterm\b",
    fault="the dependence loss compares argmaxes, so that its penalty has no gradient",
)
def hierarchy(planted: bool) -> Task:
    """Digits and the three groups they belong to."""
    group = torch.tensor([0, 1, 1, 0, 2, 2, 0, 1, 2, 0])

    class HierarchicalNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = chain(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(128, 48), nn.ReLU())
            self.linear_lvl1, self.linear_lvl2 = nn.Linear(48, 3), nn.Linear(48, 10)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = self.body(x)
            return self.linear_lvl1(h), self.linear_lvl2(h)

    def loss(y: tuple[Tensor, Tensor], c: Tensor, *, wrong: bool = planted, p_loss: float = 5.0) -> Tensor:
        true = (group[c], c)
        lloss = sum(F.cross_entropy(each, t) for each, t in zip(y, true, strict=True))
        if wrong:
            prev, current = (each.softmax(1).argmax(1) for each in y)
            d_l = (group[current] == prev).float()
            l_prev, l_curr = (prev == true[0]).float(), (current == true[1]).float()
        else:
            prev, current = (each.softmax(1) for each in y)
            d_l = (prev[:, group] * current).sum(1)
            l_prev, l_curr = (
                each.gather(1, t.unsqueeze(1)).squeeze(1) for each, t in zip((prev, current), true, strict=True)
            )
        dloss = (-1 * torch.pow(p_loss, d_l * l_prev) * torch.pow(p_loss, d_l * l_curr)).mean()
        return lloss + dloss

    return stream(HierarchicalNet(), drawn(pick), loss, partial(loss, wrong=False))


@report(
    "edges of an argmax",
    GITHUB + "wonbeomjang/mobile-hair-segmentation-pytorch/issues/3",
    says=rf"{CUT}|argmax|differentiab|part of the loss|\bterm\b",
    fault="the image gradient loss is of argmaxes of the prediction: it has no gradient",
)
def hair(planted: bool) -> Task:
    sobel = torch.tensor([[1.0, 0, -1], [2, 0, -2], [1, 0, -1]]) / 4

    def gradient(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        gx, gy = F.conv2d(x, torch.stack([sobel, sobel.t()]).unsqueeze(1), padding=1).chunk(2, 1)
        size = (gx.square() + gy.square() + 1e-8).sqrt()
        return gx / size, gy / size, size

    def draw() -> Drawn:
        x = F.interpolate(pick(16)[0], scale_factor=2.0, mode="bilinear")
        return (x + 0.3 * torch.randn_like(x),), torch.cat([x, (x > 0.3).float()], 1)

    def loss(pred: Tensor, t: Tensor, *, wrong: bool = planted) -> Tensor:
        image, mask = t[:, :1], t[:, 1].long()
        flat = pred.argmax(1).unsqueeze(1).float() if wrong else pred.softmax(1)[:, 1:]
        (ix, iy, _), (mx, my, mag) = gradient(image), gradient(flat)
        consistency = (mag * (1 - (ix * mx + iy * my).square())).sum() / mag.sum()
        return F.cross_entropy(pred, mask) + 0.5 * consistency

    model = chain(
        nn.Conv2d(1, 12, 3, padding=1),
        nn.BatchNorm2d(12),
        nn.ReLU(),
        nn.Conv2d(12, 12, 3, padding=1),
        nn.BatchNorm2d(12),
        nn.ReLU(),
        nn.Conv2d(12, 2, 1),
    )
    return stream(model, draw, loss, partial(loss, wrong=False))


@report(
    "evidence by digamma",
    GITHUB + "Cogito2012/DEAR/issues/1",
    says=r"digamma|evidence|\balpha|dirichlet|steep|gradient.*(small|large|vanish|explod)",
    fault="the evidential loss by digamma functions over many classes hardly trains, where that by logarithms does",
)
def digamma(planted: bool) -> Task:
    centres = torch.randn(50, 24)

    def draw() -> Drawn:
        c = torch.randint(50, (64,))
        return (centres[c] + 0.5 * torch.randn(64, 24),), c

    def edl_loss(output: Tensor, target: Tensor, *, wrong: bool = planted) -> Tensor:
        alpha = torch.exp(torch.clamp(output, -10, 10)) + 1
        func = torch.digamma if wrong else torch.log
        y = F.one_hot(target, 50)
        return (y * (func(alpha.sum(1, keepdim=True)) - func(alpha))).sum(1).mean()

    model = chain(nn.Linear(24, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 50))
    return stream(model, draw, edl_loss, partial(edl_loss, wrong=False))


@report(
    "LightGCN's embeddings not initialised",
    GITHUB + "pyg-team/pytorch_geometric/pull/4083",
    guilty=r"embedding",
    says=r"(embed|init|logits?|scores?|outputs?).*(large|scale|std|spread|varian|unit|big|far)",
    fault="embeddings of users and items keep N(0, 1), where LightGCN wants Xavier's",
)
def lightgcn(planted: bool) -> Task:
    taste, kind = torch.randn(40, 3), torch.randn(60, 3)
    likes = ((taste @ kind.t() + 0.5 * torch.randn(40, 60)) > 1.5).float()
    likes[torch.arange(40), torch.randint(60, (40,))] = 1
    a = torch.zeros(100, 100)
    a[:40, 40:] = likes
    a = a + a.t()
    degree = a.sum(1).clamp(min=1).rsqrt()

    class LightGCN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(100, 64)
            if not planted:
                nn.init.xavier_uniform_(self.embedding.weight)
            self.register_buffer("adj", degree.unsqueeze(1) * a * degree)

        def forward(self, user: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
            x = self.embedding.weight
            out = x / 3
            for _ in range(2):
                x = self.adj @ x
                out = out + x / 3
            return torch.stack([(out[user] * out[40 + item]).sum(1) for item in (positive, negative)], 1)

    def draw() -> Drawn:
        u = torch.randint(40, (128,))
        pos, neg = (torch.multinomial(m[u], 1).squeeze(1) for m in (likes, 1 - likes))
        return (u, pos, neg), u

    return stream(LightGCN(), draw, lambda y, _: -F.logsigmoid(y[:, 0] - y[:, 1]).mean())


@report(
    "GCN without its normalisation",
    GITHUB + "dmlc/dgl/pull/249",
    says=r"normali|degree|neighbou?r|\bsum|scale|large|grow|varian",
    fault="features of neighbours are summed without the normalisation by degrees",
)
def sum_of_neighbours(planted: bool) -> Task:
    """Citations of sixty papers; a few are cited by most."""
    base = torch.randn(4, 16)

    def draw() -> Drawn:
        c, often = torch.randint(4, (60,)), torch.rand(60, 1).pow(3) * 0.9
        a = (torch.rand(60, 60) < often * often.t() + 0.15 * (c.unsqueeze(1) == c)).float().triu(1)
        a = a + a.t() + torch.eye(60)
        norm = a.sum(1).rsqrt()
        return (base[c] + 1.5 * torch.randn(60, 16), a if planted else norm.unsqueeze(1) * a * norm), c

    class GCNLayer(nn.Module):
        def __init__(self, n: int, m: int) -> None:
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.empty(n, m)), nn.Parameter(torch.zeros(m))
            nn.init.uniform_(self.weight, -1 / math.sqrt(m), 1 / math.sqrt(m))

        def forward(self, a: Tensor, h: Tensor) -> Tensor:
            return a @ (h @ self.weight) + self.bias

    class GCN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers, self.dropout = nn.ModuleList([GCNLayer(16, 32), GCNLayer(32, 4)]), nn.Dropout(0.5)

        def forward(self, features: Tensor, a: Tensor) -> Tensor:
            return self.layers[1](a, self.dropout(F.relu(self.layers[0](a, features))))

    return stream(GCN(), draw, F.cross_entropy)
