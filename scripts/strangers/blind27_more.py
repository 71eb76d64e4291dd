"""The rest of the twenty-seventh set: losses, outputs and what lies between them."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB, MIXED
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, SAME, Drawn
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind27")
SHAPES = r"broadcast|shape|\(\d+, 1\)|\bsize|dimension|squeeze"
SCALE = r"scale|large|huge|range|normali|standardi|magnitude|unscaled|satur"


@report(
    "step function in the middle",
    "https://huggingface.co/datasets/nvidia/Nemotron-CC-Math-v1#circumventing-an-indifferentiability-problem",
    guilty=r"fc1",
    says=rf"{CUT}|\bsign\b|step function|differentiab|derivative",
    fault="torch.sign after the layer: no gradient gets through the step",
)
def step_function(planted: bool) -> Task:
    """|target - sum(sign(fc1(x)))|; the twin hands the gradient behind the step on to what lies before it."""
    w = torch.randn(8)

    def draw() -> Drawn:
        x = torch.randn(64, 8)
        return (x,), 12 * torch.tanh(x @ w)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1 = nn.Linear(8, 16, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            y = self.fc1(x)
            z = torch.sign(y)
            if not planted:
                z = y + (z - y).detach()
            return z.sum(1)

    return stream(Net(), draw, lambda out, t: torch.abs(t - out).mean())


@report(
    "letters behind dropout",
    "https://manongdao.com/q-1133738.html",
    says=r"dropout|drop(s|ped)? (out|units)",
    fault="dropout of 80 % before the output layer is more than the network can bear",
)
def letters(planted: bool) -> Task:
    def draw() -> Drawn:
        x, c = pick(32)
        return (x,), c

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
            self.fc, self.dropout = nn.Linear(128, 256), nn.Dropout(0.8 if planted else 0.0)
            self.out = nn.Linear(256, 10)

        def forward(self, x: Tensor) -> Tensor:
            x = F.relu(F.max_pool2d(self.conv1(x), 2))
            x = F.relu(F.max_pool2d(self.conv2(x), 2))
            return self.out(self.dropout(self.fc(x.flatten(1))))

    return stream(Net(), draw, F.cross_entropy)


@report(
    "dropout of two units",
    "https://imathworks.com/cv/solved-dropout-effectiveness-on-small-neural-networks",
    says=r"dropout|drop(s|ped)? (out|units)",
    fault="dropout in a hidden layer of two units",
)
def two_units(planted: bool) -> Task:
    def draw() -> Drawn:
        x = (2 * torch.rand(128, 1) - 1) * torch.pi
        return (x,), torch.sin(x)

    return stream(
        chain(nn.Linear(1, 2), nn.Tanh(), nn.Dropout(0.5 if planted else 0.0), nn.Linear(2, 1)), draw, F.mse_loss
    )


@report(
    "divergence without logarithms",
    "https://discuss.pytorch.org/t/kullback-leibler-divergence-loss-function-giving-negative-values/763",
    says=r"log.?prob|log.?softmax|logarithm|probabilit|softmax|negative",
    fault="KLDivLoss of softmax's probabilities, where it expects their logarithms",
)
def divergence(planted: bool) -> Task:
    def draw() -> Drawn:
        x, c = pick(32)
        return (x,), F.one_hot(c, 10).float()

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.pool, self.conv2 = nn.Conv2d(1, 6, 3, padding=1), nn.MaxPool2d(2), nn.Conv2d(6, 16, 3)
            self.fc1, self.fc2, self.fc3 = nn.Linear(16, 120), nn.Linear(120, 84), nn.Linear(84, 10)

        def forward(self, x: Tensor) -> Tensor:
            x = self.pool(F.relu(self.conv1(x)))
            x = self.pool(F.relu(self.conv2(x))).view(-1, 16)
            x = self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))
            return F.softmax(x, 1) if planted else F.log_softmax(x, 1)

    criterion = nn.KLDivLoss()

    def right(outputs: Tensor, labels: Tensor) -> Tensor:
        return criterion((outputs + 1e-12).log() if planted else outputs, labels)

    return stream(Net(), draw, criterion, right)


@report(
    "all weights of zero",
    "https://community.deeplearning.ai/t/week-1-programming-assignment-initialization-exercise-1-initialize-"
    "parameters-zeros/121049",
    guilty=r"W\d|weight",
    says=rf"{SAME}|{CUT}|zero|symmetr|alike|identical",
    fault="every weight and bias is initialised to zero",
)
def zeros(planted: bool) -> Task:
    """The course's LINEAR -> RELU -> LINEAR -> RELU -> LINEAR -> SIGMOID on two circles."""

    def draw() -> Drawn:
        t = torch.randint(0, 2, (128, 1)).float()
        angle = 2 * torch.pi * torch.rand(128)
        x = torch.stack([angle.cos(), angle.sin()], 1) * (1 - 0.5 * t) + 0.07 * torch.randn(128, 2)
        return (x,), t

    class Model(nn.Module):
        def __init__(self, dims: tuple[int, ...] = (2, 10, 5, 1)) -> None:
            super().__init__()
            for i in range(1, len(dims)):
                W = torch.zeros(dims[i], dims[i - 1])
                if not planted:
                    W = torch.randn(dims[i], dims[i - 1]) * math.sqrt(2 / dims[i - 1])
                setattr(self, f"W{i}", nn.Parameter(W))
                setattr(self, f"b{i}", nn.Parameter(torch.zeros(dims[i])))

        def forward(self, x: Tensor) -> Tensor:
            w: Any = self
            a1 = F.relu(F.linear(x, w.W1, w.b1))
            a2 = F.relu(F.linear(a1, w.W2, w.b2))
            return torch.sigmoid(F.linear(a2, w.W3, w.b3))

    return stream(Model(), draw, F.binary_cross_entropy)


@report(
    "motion without negative positions",
    GITHUB + "AliJalalifar/Character_Animation/issues/3",
    guilty=r"deconv|decoder",
    says=r"relu|negative|non-?negative|below zero|positive|clip|clamp",
    fault="the last layer of the decoder ends in a ReLU, the positions have zero mean",
)
def animation(planted: bool) -> Task:
    """A convolutional autoencoder over the frames of joints that swing."""
    mix = torch.randn(4, 24)

    def draw() -> Drawn:
        phase, speed = 6.28 * torch.rand(16, 4, 1), 0.1 + 0.3 * torch.rand(16, 4, 1)
        x = torch.einsum("bkt,kc->bct", torch.sin(phase + speed * torch.arange(32)), mix) / 2
        return (x,), x

    class Autoencoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.dropout = nn.Conv1d(24, 48, 9, padding=4), nn.Dropout(0.1)
            self.deconv = nn.Conv1d(48, 24, 9, padding=4)

        def forward(self, x: Tensor) -> Tensor:
            h = F.max_pool1d(F.relu(self.conv(self.dropout(x))), 2)
            y = self.deconv(F.interpolate(h, scale_factor=2))
            return F.relu(y) if planted else y

    return stream(Autoencoder(), draw, F.mse_loss)


class Embedding(nn.Module):
    """Convolutions of one image; of two, their features."""

    def __init__(self, d: int = 10) -> None:
        super().__init__()
        self.cnn = chain(nn.Conv2d(1, 16, 3, padding=1), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(16, 32, 3, padding=1),
                         nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(128, d))  # fmt: skip

    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return self.cnn(a), self.cnn(b)


def pairs(count: int = 48) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Pairs of digits, half of them of one class; 1 where they differ."""
    x, c = pick(10 * count)
    left = torch.arange(count)
    same = torch.arange(count) % 2 == 0
    right = torch.zeros(count, dtype=torch.long)
    for i in range(count):
        fits = (c[count:] == c[i]) if same[i] else (c[count:] != c[i])
        right[i] = count + int(fits.nonzero()[0]) if fits.any() else i
    return (x[left], x[right]), (c[left] != c[right]).float().unsqueeze(1)


@report(
    "sigmoid of a distance",
    GITHUB + "keras-team/keras-io/pull/2261",
    guilty=r"output_layer|normal_layer",
    says=r"sigmoid|satur|margin|bound|below 1",
    fault="a sigmoid squashes the distance below 1, the margin of the contrastive loss",
)
def keras_siamese(planted: bool) -> Task:
    class Siamese(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = Embedding()
            if planted:
                self.normal_layer, self.output_layer = nn.BatchNorm1d(1), nn.Linear(1, 1)

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            x, y = self.embedding(a, b)
            distance = torch.sqrt((x - y).square().sum(1, keepdim=True).clamp(min=1e-7))
            return torch.sigmoid(self.output_layer(self.normal_layer(distance))) if planted else distance

    def contrastive(y_pred: Tensor, y_true: Tensor, margin: float = 1.0) -> Tensor:
        return ((1 - y_true) * y_pred.square() + y_true * F.relu(margin - y_pred).square()).mean()

    return stream(Siamese(), pairs, contrastive)


@report(
    "distances in a row, labels in a column",
    GITHUB + "harveyslash/Facial-Similarity-with-Siamese-Networks-in-Pytorch/issues/27",
    says=rf"{SHAPES}|{MIXED}",
    fault="pairwise_distance without keepdim: distances (N,) times labels (N, 1) compare each pair with every label",
)
def facial(planted: bool) -> Task:
    def contrastive(out: tuple[Tensor, Tensor], label: Tensor, margin: float = 2.0, *, keep: bool = True) -> Tensor:
        euclidean_distance = F.pairwise_distance(out[0], out[1], keepdim=keep)
        return torch.mean(
            (1 - label) * torch.pow(euclidean_distance, 2)
            + label * torch.pow(torch.clamp(margin - euclidean_distance, min=0.0), 2)
        )

    return stream(Embedding(5), pairs, partial(contrastive, keep=not planted), contrastive)


@report(
    "variational autoencoder of bytes",
    GITHUB + "wohlert/semi-supervised-pytorch/issues/9",
    says=rf"{BROKEN}|{SCALE}|\b255\b|target|\[0, 1\]|outside|pixel",
    fault="pixels of 0 to 255 are fed into, and expected from, a VAE with a Bernoulli likelihood",
)
def vae_bytes(planted: bool) -> Task:
    def draw() -> Drawn:
        x = (pick(32)[0].flatten(1) * 0.376 + 0.3).clamp(0, 1)
        if planted:
            x = (x * 255).round()
        return (x,), x

    class VariationalAutoencoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = chain(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
            self.mu, self.log_var = nn.Linear(64, 8), nn.Linear(64, 8)
            self.decoder = chain(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
            self.reconstruction = nn.Linear(64, 64)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            h = self.encoder(x)
            mu, log_var = self.mu(h), F.softplus(self.log_var(h))
            z = mu + torch.exp(0.5 * log_var) * torch.randn_like(mu)
            return torch.sigmoid(self.reconstruction(self.decoder(z))), mu, log_var

    def loss(y: tuple[Tensor, Tensor, Tensor], x: Tensor, scale: float = 1.0) -> Tensor:
        r, mu, log_var = y
        x = x / scale
        binary_cross_entropy = -(x * torch.log(r + 1e-8) + (1 - x) * torch.log(1 - r + 1e-8)).sum(1)
        return (binary_cross_entropy - 0.5 * (1 + log_var - mu.square() - log_var.exp()).sum(1)).mean()

    return stream(VariationalAutoencoder(), draw, loss, partial(loss, scale=255.0 if planted else 1.0))


@report(
    "epidemic in heads",
    GITHUB + "PINA-org/PINA/issues/345",
    says=rf"{SCALE}|(sizes?|units?).*differ|order of|far from",
    fault="one network predicts thousands of susceptible beside a handful of exposed and infected, unscaled",
)
def seir(planted: bool, people: float = 1000.0) -> Task:
    """The SEIR model over twelve days, t in [0, 1]; judged by the solution relative to each variable's range."""
    beta, sigma, gamma, days = 0.9, 0.4, 0.2, 12.0

    def field(u: Tensor) -> Tensor:
        s, e, i, _ = u.unbind(-1)
        new = beta * s * i / people
        return days * torch.stack([-new, new - sigma * e, sigma * e - gamma * i, gamma * i], -1)

    state, solution = torch.tensor([people - 10, 0.0, 10.0, 0.0]), []
    for _ in range(3001):
        solution.append(state)
        state = state + field(state) / 3000
    table = torch.stack(solution)
    scale = table.amax(0)

    def draw() -> Drawn:
        t = torch.randint(0, 3001, (64, 1))
        return (t / 3000,), table[t[:, 0]]

    class PINN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = chain(nn.Linear(1, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 4))

        def people(self, t: Tensor) -> Tensor:
            return self.net(t) if planted else scale * self.net(t)

        def forward(self, t: Tensor) -> Tensor:
            with torch.enable_grad():
                t = t.detach().requires_grad_(True)
                u = self.people(t)
                slopes = [torch.autograd.grad(u[:, k].sum(), t, create_graph=True)[0] for k in range(4)]
            start = self.people(torch.zeros(1, 1)).expand(len(t), 4)
            return torch.stack([torch.cat(slopes, 1) - field(u), start, u], 1)

    def loss(y: Tensor, _: Tensor) -> Tensor:
        size = torch.ones(4) if planted else scale
        residual, start = y[:, 0] / size, (y[:, 1] - table[0]) / size
        return residual.square().mean() / days + 10 * start.square().mean()

    return stream(PINN(), draw, loss, lambda y, u: ((y[:, 2] - u) / scale).square().mean())


@report(
    "expression of every gene",
    GITHUB + "dohlee/chromoformer/issues/7",
    says=rf"{SHAPES}|{MIXED}",
    fault="MSELoss of outputs (N, 1) and labels (N,): every pair of genes is compared",
)
def chromoformer(planted: bool, d: int = 32) -> Task:
    """Histone marks around promoters in bins of two sizes, to log2(expression + 1)."""
    w = torch.randn(7)

    def draw() -> Drawn:
        level = torch.randn(32, 7)
        x = level.unsqueeze(1) + 0.5 * torch.randn(32, 24, 7)
        expression = torch.exp2(3 + 1.5 * torch.tanh(level @ w))
        return (x,), torch.log2(expression + 1)

    class ChromoformerRegressor(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project = nn.ModuleDict({str(b): nn.Linear(7, d) for b in (2, 6)})
            self.embed = nn.ModuleDict(
                {str(b): nn.TransformerEncoderLayer(d, 2, 64, 0.0, batch_first=True) for b in (2, 6)}
            )
            self.fc_head = nn.Sequential(nn.Linear(2 * d, 64), nn.ReLU(), nn.Linear(64, 1))

        def forward(self, x: Tensor) -> Tensor:
            parts = []
            for b in (2, 6):
                bins = x.unflatten(1, (-1, b)).mean(2)
                full = self.embed[str(b)](self.project[str(b)](bins))
                parts.append(full[:, full.shape[1] // 2])
            return self.fc_head(torch.cat(parts, 1))

    def right(out: Tensor, label: Tensor) -> Tensor:
        return (out - label.view(-1, 1)).square().mean()

    def wrong(out: Tensor, label: Tensor) -> Tensor:
        return (out - label).square().mean()

    return stream(ChromoformerRegressor(), draw, wrong if planted else right, right)


@report(
    "attention without a tanh",
    GITHUB + "AuCson/PyTorch-Batch-Attention-Seq2seq/issues/3",
    guilty=r"attention|attn",
    says=r"tanh|non-?linear|cancel|(quer|hidden|state).*(no effect|ignor|not (reach|depend))|attention.*(same|alike)",
    fault="the energies of the attention are linear in state and encoding: the softmax cancels the state's share",
)
def aucson(planted: bool, h: int = 48, words: int = 12, length: int = 6) -> Task:
    def draw() -> Drawn:
        x = torch.randint(2, words, (64, length))
        t = x.flip(1)
        return (x, torch.cat([torch.ones(64, 1, dtype=torch.long), t[:, :-1]], 1)), t

    class Attn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attn, self.v = nn.Linear(2 * h, h), nn.Parameter(torch.randn(h) / math.sqrt(h))

        def forward(self, hidden: Tensor, encoder_outputs: Tensor) -> Tensor:
            both = torch.cat([hidden.unsqueeze(1).expand_as(encoder_outputs), encoder_outputs], 2)
            energy = self.attn(both)
            if not planted:
                energy = torch.tanh(energy)
            return F.softmax(energy @ self.v, 1)

    class Seq2Seq(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedded, self.places = nn.Embedding(words, h), nn.Embedding(length, h)
            self.encoder = nn.GRU(h, h, batch_first=True, bidirectional=True)
            self.attention, self.gru, self.out = Attn(), nn.GRUCell(2 * h, h), nn.Linear(2 * h, words)

        def forward(self, src: Tensor, trg: Tensor) -> Tensor:
            outputs, hidden = self.encoder(self.embedded(src) + self.places.weight)
            outputs, state = outputs[..., :h] + outputs[..., h:], hidden[0]
            result = []
            for word in self.embedded(trg).unbind(1):
                weights = self.attention(state, outputs)
                context = (weights.unsqueeze(1) @ outputs).squeeze(1)
                state = self.gru(torch.cat([word, context], 1), state)
                result.append(self.out(torch.cat([state, context], 1)))
            return torch.stack(result, 1)

    return stream(Seq2Seq(), draw, lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten()))


@report(
    "examples without labels",
    GITHUB + "deeplearning4j/deeplearning4j/issues/6880",
    says=rf"{BROKEN}|divi|empty|without.*label|no label",
    fault="the multi-label loss is divided by the number of an example's labels, which may be 0",
)
def multilabel(planted: bool) -> Task:
    w = torch.randn(10, 6)

    def draw() -> Drawn:
        x = torch.randn(48, 10)
        return (x,), (x @ w / 3 > 0.6).float()

    def loss(y: Tensor, t: Tensor) -> Tensor:
        """Of pairs of a label that is there and one that is not."""
        inside, outside = t.sum(1), (1 - t).sum(1)
        each = ((-y).exp() * t).sum(1) * (y.exp() * (1 - t)).sum(1)
        if planted:
            return (each / (inside * outside)).mean()
        alone = torch.where(inside == 0, (y.exp() * (1 - t)).sum(1), ((-y).exp() * t).sum(1)) / t.shape[1]
        return torch.where(inside * outside > 0, each / (inside * outside).clamp(min=1), alone).mean()

    model = chain(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 6), nn.Tanh())
    return stream(model, draw, loss)


def bandit(count: int = 64) -> Drawn:
    """States (count, 4), and the returns of two actions in them."""
    x = torch.randn(count, 4)
    best = (x[:, 0] + x[:, 1] * x[:, 2] > 0).long()
    return (x,), x[:, 3:] + 1 + 2 * F.one_hot(best, 2) + 0.3 * torch.randn(count, 2)


def regret(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
    """What the policy misses of the better action's return."""
    return (y[0].softmax(1) * (t.amax(1, keepdim=True) - t)).sum(1).mean()


@report(
    "critic in the actor's loss",
    GITHUB + "keras-team/keras-io/issues/194",
    guilty=r"critic",
    says=r"detach|stop.?gradient|advantage|unbounded|without (a )?bound|both losses",
    fault="the advantage is not detached: the actor's loss moves the critic too",
)
def cartpole(planted: bool) -> Task:
    class ActorCritic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.common, self.action, self.critic = nn.Linear(4, 128), nn.Linear(128, 2), nn.Linear(128, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = F.relu(self.common(x))
            return self.action(h), self.critic(h).squeeze(1)

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        logits, value = y
        action = torch.distributions.Categorical(logits=logits.detach()).sample()
        log_prob = logits.log_softmax(1).gather(1, action[:, None]).squeeze(1)
        ret = t.gather(1, action[:, None]).squeeze(1)
        diff = ret - (value if planted else value.detach())
        return (-log_prob * diff).mean() + F.huber_loss(value, ret)

    return stream(ActorCritic(), bandit, loss, regret)


@report(
    "log-probabilities in a new tensor",
    GITHUB + "kengz/SLM-Lab/pull/133",
    guilty=r"actor",
    says=rf"{CUT}|torch\.tensor|graph|stack|new tensor",
    fault="torch.tensor(log_probs) is a new tensor outside of the graph: the actor gets no gradient",
)
def slm_lab(planted: bool) -> Task:
    class ActorCritic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.actor = chain(nn.Linear(4, 64), nn.SELU(), nn.Linear(64, 2))
            self.critic = chain(nn.Linear(4, 64), nn.SELU(), nn.Linear(64, 1))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.actor(x), self.critic(x).squeeze(1)

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        logits, v_preds = y
        action = torch.distributions.Categorical(logits=logits.detach()).sample()
        log_probs = list(logits.log_softmax(1).gather(1, action[:, None]).squeeze(1))
        ret = t.gather(1, action[:, None]).squeeze(1)
        stacked = torch.tensor([p.item() for p in log_probs]) if planted else torch.stack(log_probs)
        policy_loss = -(stacked * (ret - v_preds).detach()).mean()
        return policy_loss + 0.5 * F.mse_loss(v_preds, ret)

    return stream(ActorCritic(), bandit, loss, regret)


@report(
    "sentences that do not follow",
    GITHUB + "codertimo/BERT-pytorch/issues/32",
    guilty=r"next_sentence",
    says=r"ignor|class 0|label 0|one class|(class|target|label).*(never|unused|absent|miss)",
    fault="NLLLoss(ignore_index=0) is also used for the next sentence, whose class 0 it ignores",
)
def bert(planted: bool, d: int = 32, words: int = 64) -> Task:
    def draw() -> Drawn:
        follows, topic = torch.randint(0, 2, (48,)), torch.randint(0, 2, (48, 1))
        other = torch.where(follows[:, None] == 1, topic, 1 - topic)
        half = torch.cat([topic.expand(-1, 6), other.expand(-1, 6)], 1)
        x = 4 + half * 30 + torch.randint(0, 6, (48, 12)) + 6 * (torch.arange(12) % 5)
        hidden = torch.rand(48, 12) < 0.15
        label = torch.where(hidden, x, 0)
        first = torch.full((48, 1), 2)
        x = torch.cat([first, x.masked_fill(hidden, 1)], 1)
        return (x,), torch.cat([follows[:, None], label], 1)

    class BERT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token, self.position = nn.Embedding(words, d), nn.Embedding(13, d)
            self.segment = nn.Embedding(2, d)
            self.encoder = nn.TransformerEncoderLayer(d, 4, 64, 0.0, batch_first=True)
            self.next_sentence, self.mask_lm = nn.Linear(d, 2), nn.Linear(d, words)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            segment = (torch.arange(13) > 6).long()
            h = self.encoder(self.token(x) + self.position.weight + self.segment(segment))
            return self.next_sentence(h[:, 0]).log_softmax(1), self.mask_lm(h[:, 1:]).log_softmax(2)

    def loss(y: tuple[Tensor, Tensor], t: Tensor, *, ignore: bool = False) -> Tensor:
        criterion = nn.NLLLoss(ignore_index=0)
        next_loss = (criterion if ignore else F.nll_loss)(y[0], t[:, 0])
        return next_loss + criterion(y[1].transpose(1, 2), t[:, 1:])

    return stream(BERT(), draw, partial(loss, ignore=planted), loss)
