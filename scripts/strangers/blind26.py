"""A twenty-sixth set of faults, a sample of reports that issues tell, written without sight of the rules."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, Drawn
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind26")
SHAPES = r"broadcast|shape|\(\d+, 1\)|\bsize|dimension|squeeze"


@report(
    "torchMoji attention from used memory",
    GITHUB + "huggingface/torchMoji/issues/11",
    guilty=r"attention",
    says=rf"{BROKEN}|uninitiali|initiali.*(large|huge|scale)|overflow",
    fault="the attention vector is Parameter(torch.FloatTensor(n)), never initialised: values up to 1e38",
)
def torchmoji(planted: bool) -> Task:
    """Two bidirectional LSTMs over words, attention over both and the embeddings, classes of sentences."""

    def draw() -> Drawn:
        c, n = torch.randint(8, (32,)), torch.randint(6, 13, (32,))
        x = torch.randint(20, 60, (32, 12))
        keys = 1 + 2 * c.unsqueeze(1) + torch.randint(2, (32, 3))
        x[torch.arange(32).unsqueeze(1), torch.randint(6, (32, 3))] = keys
        return (x * (torch.arange(12) < n.unsqueeze(1)),), c

    class Attention(nn.Module):
        def __init__(self, attention_size: int) -> None:
            super().__init__()
            vector = torch.empty(attention_size)
            if planted:  # what used memory holds: any exponent that a float has
                vector = torch.randn(attention_size) * 10 ** torch.empty(attention_size).uniform_(-38, 37)
            else:
                nn.init.uniform_(vector, -0.05, 0.05)
            self.attention_vector = nn.Parameter(vector)

        def forward(self, inputs: Tensor, input_lengths: Tensor) -> Tensor:
            logits = inputs.matmul(self.attention_vector)
            unnorm_ai = (logits - logits.max()).exp()
            mask = (torch.arange(unnorm_ai.size(1)) < input_lengths.unsqueeze(1)).float()
            masked_weights = unnorm_ai * mask
            attentions = masked_weights.div(masked_weights.sum(dim=1, keepdim=True))
            return torch.mul(inputs, attentions.unsqueeze(-1)).sum(1)

    class TorchMoji(nn.Module):
        def __init__(self, d: int = 32, h: int = 24) -> None:
            super().__init__()
            self.embed = nn.Embedding(60, d, padding_idx=0)
            self.lstm_0 = nn.LSTM(d, h, batch_first=True, bidirectional=True)
            self.lstm_1 = nn.LSTM(2 * h, h, batch_first=True, bidirectional=True)
            self.attention_layer = Attention(d + 4 * h)
            self.output_layer = nn.Linear(d + 4 * h, 8)

        def forward(self, x: Tensor) -> Tensor:
            e = torch.tanh(self.embed(x))
            a = self.lstm_0(e)[0]
            b = self.lstm_1(a)[0]
            return self.output_layer(self.attention_layer(torch.cat((b, a, e), 2), (x > 0).sum(1)))

    return stream(TorchMoji(), draw, F.cross_entropy)


@report(
    "aggregated scores of zero",
    GITHUB + "summerlvsong/Aggregation-Cross-Entropy/issues/2",
    says=rf"{BROKEN}|\blog\b|logarithm|underflow|\beps|saturat",
    fault="log of a softmax score summed over all places, which is 0 for a class that is nowhere: 0 x -inf",
)
def ace(planted: bool) -> Task:
    """Three digits in a row; how many of each there are is compared with scores summed over places."""

    def draw() -> Drawn:
        x, c = pick(96)
        counts = F.one_hot(c.view(3, 32).t() + 1, 11).sum(1).float()
        return (torch.cat(x.split(32), 3),), counts

    class Crnn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cnn = chain(
                nn.Conv2d(1, 16, 3, padding=1),
                nn.BatchNorm2d(16),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(16, 32, 3, padding=1),
                nn.BatchNorm2d(32),
                nn.ReLU(),
                nn.MaxPool2d((2, 1)),
                nn.Conv2d(32, 64, (2, 3), padding=(0, 1)),
                nn.BatchNorm2d(64),
                nn.ReLU(),
            )
            self.out = nn.Linear(64, 11)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.cnn(x).permute(0, 2, 3, 1)).softmax(-1)  # B, H, W, classes

    def loss(input: Tensor, label: Tensor) -> Tensor:
        bs, h, w, _ = input.size()
        t = h * w
        input = input.view(bs, t, -1)
        if not planted:
            input = input + 1e-10
        label = torch.cat([t - label.sum(1, keepdim=True), label[:, 1:]], 1)
        input = torch.sum(input, 1) / t
        return (-torch.sum(torch.log(input) * (label / t))) / bs

    return stream(Crnn(), draw, loss)


@report(
    "pointer network's gate at one",
    GITHUB + "yym6472/ms_pointer_network/issues/1",
    guilty=r"gate_projection",
    says=rf"{BROKEN}|\blog\b|logarithm|saturat|\beps",
    fault="log of the sigmoid gate and of 1 - gate: minus infinity where the gate is exactly 0 or 1",
)
def pointer(planted: bool) -> Task:
    """Copy from two sources with a soft gate; the word before tells from which one, and where."""

    def draw() -> Drawn:
        a, b = torch.randint(1, 30, (32, 6)), torch.randint(30, 59, (32, 6))
        which = torch.rand(32, 5) < 0.5
        t = torch.where(which, a[:, :5], b[:, :5])
        return (a, b, torch.cat([torch.full((32, 1), 59), t[:, :-1]], 1)), t

    class MSPointerNetwork(nn.Module):
        def __init__(self, d: int = 24, h: int = 32) -> None:
            super().__init__()
            self._source_embedder_1 = nn.Embedding(60, d)
            self._source_encoder_1 = nn.LSTM(d, h // 2, batch_first=True, bidirectional=True)
            self._source_encoder_2 = nn.LSTM(d, h // 2, batch_first=True, bidirectional=True)
            self._attention_1, self._attention_2 = nn.Linear(2 * h, h), nn.Linear(2 * h, h)
            self._v_1, self._v_2 = nn.Linear(h, 1, bias=False), nn.Linear(h, 1, bias=False)
            self._decoder_cell = nn.LSTMCell(2 * h + d, h)
            self._encoder_out_projection_layer = nn.Linear(2 * h, h)
            self._gate_projection_layer = nn.Linear(3 * h + d, 1, bias=False)

        def forward(self, s1: Tensor, s2: Tensor, last: Tensor) -> Any:
            o1, o2 = (
                f(self._source_embedder_1(s))[0]
                for f, s in ((self._source_encoder_1, s1), (self._source_encoder_2, s2))
            )
            hidden = torch.relu(self._encoder_out_projection_layer(torch.cat([o1[:, -1], o2[:, -1]], -1)))
            context = torch.zeros_like(hidden)
            out = []
            for i in range(last.shape[1]):
                e = self._source_embedder_1(last[:, i])
                q = hidden.unsqueeze(1).expand_as(o1)
                w1 = self._v_1(torch.tanh(self._attention_1(torch.cat([q, o1], -1)))).squeeze(-1).softmax(-1)
                w2 = self._v_2(torch.tanh(self._attention_2(torch.cat([q, o2], -1)))).squeeze(-1).softmax(-1)
                r1, r2 = (w1.unsqueeze(1) @ o1).squeeze(1), (w2.unsqueeze(1) @ o2).squeeze(1)
                gate = torch.sigmoid(self._gate_projection_layer(torch.cat((e, r1, r2, hidden), -1)).squeeze(-1))
                hidden, context = self._decoder_cell(torch.cat((e, r1, r2), -1), (hidden, context))
                out.append((w1, w2, gate))
            w1s, w2s, gates = (torch.stack(each, 1) for each in zip(*out, strict=True))
            return w1s, w2s, gates, s1, s2

    def loss(y: Any, t: Tensor) -> Tensor:
        w1, w2, gate, s1, s2 = y
        tiny = 1e-45
        p1, p2 = (
            ((w + tiny).log() + ((s.unsqueeze(1) == t.unsqueeze(2)).float() + tiny).log()).logsumexp(-1)
            for w, s in ((w1, s1), (w2, s2))
        )
        eps = 0.0 if planted else tiny
        items = torch.stack([(gate + eps).log() + p1, (1 - gate + eps).log() + p2], -1)
        return -items.logsumexp(-1).sum() / len(t)

    return stream(MSPointerNetwork(), draw, loss)


@report(
    "ES-RNN of negative series",
    GITHUB + "kdgutier/esrnn_torch/issues/18",
    says=rf"{BROKEN}|\blog\b|logarithm|negative",
    fault="the series have negative values, whose logarithm the multiplicative model takes",
)
def esrnn(planted: bool) -> Task:
    """Exponential smoothing with a level and seasons per series, and an LSTM over windows of what remains."""
    n, season, length, inp, out = 40, 4, 20, 4, 4
    base = torch.randn(n, 1) * 2
    wave = torch.randn(n, season).repeat(1, length // season)
    slope = 0.15 * torch.randn(n, 1)

    def draw() -> Drawn:
        idxs = torch.randint(n, (16,))
        y = base[idxs] + wave[idxs] + slope[idxs] * torch.arange(length) + 0.3 * torch.randn(16, length)
        return (idxs, y if planted else y - y.min() + 10), torch.zeros(16)

    class ES(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embeds = nn.Embedding(n, 2 + season)
            nn.init.constant_(self.embeds.weight, 0.5)

        def forward(self, y: Tensor, idxs: Tensor) -> Any:
            embeds = self.embeds(idxs)
            lev_sms, seas_sms = torch.sigmoid(embeds[:, 0]), torch.sigmoid(embeds[:, 1])
            seasonalities = [*torch.exp(embeds[:, 2:]).unbind(1)]
            seasonalities.append(seasonalities[0])
            levels = [y[:, 0] / seasonalities[0]]
            for t in range(1, length):
                newlev = lev_sms * (y[:, t] / seasonalities[t]) + (1 - lev_sms) * levels[t - 1]
                levels.append(newlev)
                seasonalities.append(seas_sms * (y[:, t] / newlev) + (1 - seas_sms) * seasonalities[t])
            return torch.stack(levels, 1), torch.stack(seasonalities, 1)

    class ESRNN(nn.Module):
        def __init__(self, h: int = 32) -> None:
            super().__init__()
            self.es = ES()
            self.rnn_stack = nn.ModuleList([nn.LSTM(inp, h), nn.LSTM(h, h)])
            self.MLPW, self.adapterW = nn.Linear(h, h), nn.Linear(h, out)

        def forward(self, idxs: Tensor, y: Tensor) -> Any:
            levels, seasons = self.es(y, idxs)
            hat, real = [], []
            for w in range(length - inp - out + 1):
                e = w + inp
                hat.append(torch.log(y[:, w:e] / levels[:, e - 1 : e] / seasons[:, w:e]))
                real.append(torch.log(y[:, e : e + out] / levels[:, e : e + 1] / seasons[:, e : e + out]))
            x = torch.stack(hat)
            x = x + 0.01 * torch.randn_like(x)
            x = self.rnn_stack[0](x)[0]
            x = self.rnn_stack[1](x)[0] + x
            return torch.stack(real), self.adapterW(torch.tanh(self.MLPW(x)))

    def loss(y: Any, _: Tensor) -> Tensor:
        delta = y[0] - y[1]
        return torch.max(0.5 * delta, -0.5 * delta).mean()

    return stream(ESRNN(), draw, loss)


@report(
    "fewer frames than labels",
    GITHUB + "SeanNaren/warp-ctc/issues/59",
    says=rf"{BROKEN}|{CUT}|shorter|length|\bCTC\b|align",
    fault="the features have fewer frames than the sequence has labels: no alignment, the CTC loss is zero",
)
def frames(planted: bool) -> Task:
    """Five digits in a row; the third pooling leaves 3 frames of 10."""

    def draw() -> Drawn:
        x, c = pick(160)
        return (torch.cat(x.split(32), 3),), c.view(5, 32).t() + 1

    class Crnn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = chain(
                nn.Conv2d(1, 16, 3, padding=1),
                nn.BatchNorm2d(16),
                nn.Hardtanh(0, 20),
                nn.MaxPool2d(2),
                nn.Conv2d(16, 32, 3, padding=1),
                nn.BatchNorm2d(32),
                nn.Hardtanh(0, 20),
                nn.MaxPool2d(2),
                nn.Conv2d(32, 32, 3, padding=1),
                nn.BatchNorm2d(32),
                nn.Hardtanh(0, 20),
                nn.MaxPool2d((2, 3 if planted else 1)),
            )
            self.rnns = nn.GRU(32, 32, batch_first=True, bidirectional=True)
            self.fc = nn.Linear(64, 11)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.rnns(self.conv(x).squeeze(2).transpose(1, 2))[0])

    def ctc(y: Tensor, t: Tensor) -> Tensor:
        sizes = torch.full((len(t),), y.shape[1]), torch.full((len(t),), t.shape[1])
        return F.ctc_loss(y.log_softmax(2).transpose(0, 1), t, *sizes, zero_infinity=True)

    def right(y: Tensor, t: Tensor) -> Tensor:
        return ctc(y.repeat_interleave(4, 1) if planted else y, t)

    return stream(Crnn(), draw, ctc, right)


@report(
    "linear regression on flat targets",
    GITHUB + "pytorch/pytorch/issues/16045",
    says=SHAPES,
    fault="MSELoss of predictions (100, 1) and targets (100,): all pairs are compared",
)
def linear(planted: bool) -> Task:
    def draw() -> Drawn:
        x = torch.randn(100, 2)
        y = 10 + 9 * x[:, 0] - 2 * x[:, 1] + torch.randn(100)
        return (x,), y if planted else y.reshape(100, 1)

    def right(y: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(y, t.reshape(-1, 1))

    return stream(nn.Linear(2, 1), draw, F.mse_loss, right)


@report(
    "chess positions and flat targets",
    GITHUB + "LaurentMazare/tch-rs/issues/510",
    says=SHAPES,
    fault="the outputs have the shape (batch, 1), the targets (batch,): the loss is that of all pairs",
)
def chess(planted: bool) -> Task:
    """773 bits of a position and its evaluation."""
    worth = torch.tensor([1.0, 3, 3, 5, 9, 0, -1, -3, -3, -5, -9, 0]).repeat_interleave(64)
    worth = torch.cat([worth + 0.3 * torch.randn(768), torch.zeros(5)])

    def draw() -> Drawn:
        x = (torch.rand(64, 773) < 0.03).float()
        y = (x @ worth) / 8
        return (x,), y if planted else y.view(-1, 1)

    def right(y: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(y, t.view(-1, 1))

    model = chain(nn.Linear(773, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    return stream(model, draw, F.mse_loss, right)


@report(
    "masked softmax before cross entropy",
    GITHUB + "bowang-lab/Transformer-GCN-QA/pull/32",
    says=r"softmax|probabilit|log.?prob",
    fault="the network ends in a softmax over candidates, and CrossEntropyLoss has another one",
)
def gcnqa(planted: bool) -> Task:
    """A graph of mentions, two of each of eight candidates; relational graph convolutions without activations."""
    u, v = torch.randn(24), torch.randn(24)

    def draw() -> Drawn:
        m, q = torch.randn(32, 16, 24), torch.randn(32, 24)
        a = (torch.rand(32, 4, 16, 16) < 0.15).float()
        a = a / a.sum(-1, keepdim=True).clamp(min=1)
        score = m @ u + 2 * (a[:, 0] @ m) @ v
        return (q, m, a), score.view(32, 8, 2).amax(2).argmax(1)

    class RGCNConv(nn.Module):
        def __init__(self, d: int, relations: int = 4, bases: int = 3) -> None:
            super().__init__()
            self.basis = nn.Parameter(torch.empty(bases, d, d).uniform_(-(d**-0.5), d**-0.5))
            self.att = nn.Parameter(torch.empty(relations, bases).uniform_(-1, 1))
            self.root = nn.Linear(d, d)

        def forward(self, x: Tensor, a: Tensor) -> Tensor:
            w = torch.einsum("rb,bij->rij", self.att, self.basis)
            return torch.einsum("nrst,nti,rij->nsj", a, x, w) + self.root(x)

    class TransformerGCNQA(nn.Module):
        def __init__(self, d: int = 48, n_rgcn_layers: int = 3) -> None:
            super().__init__()
            self.fc_1, self.fc = nn.Linear(48, d), nn.Linear(d, d)
            for i in range(n_rgcn_layers):
                self.add_module(f"RGCN_{i}", RGCNConv(d))
            self.fc_logits, self.n_rgcn_layers = nn.Linear(d + 24, 1), n_rgcn_layers

        def forward(self, q: Tensor, m: Tensor, a: Tensor) -> Tensor:
            queries = q.unsqueeze(1).expand(-1, 16, -1)
            x = self.fc(F.leaky_relu(self.fc_1(torch.cat((queries, m), -1))))
            outputs = []
            for i in range(self.n_rgcn_layers):
                x = getattr(self, f"RGCN_{i}")(x, a)
                outputs.append(x)
            logits = self.fc_logits(torch.cat([torch.stack(outputs).sum(0), queries], -1)).squeeze(-1)
            logits = logits.view(-1, 8, 2).amax(2)
            return logits.softmax(1) if planted else logits

    def right(y: Tensor, t: Tensor) -> Tensor:
        return F.nll_loss(y.clamp(min=1e-30).log(), t) if planted else F.cross_entropy(y, t)

    return stream(TransformerGCNQA(), draw, F.cross_entropy, right)


@report(
    "TabNet divides by a negative mean",
    GITHUB + "dreamquark-ai/tabnet/issues/515",
    says=r"negative|unbounded|no (lower )?bound|constant (feature|column|target)|\bstd\b|variance|deviation",
    fault="where a feature has no variance its mean takes the variance's place: small and negative",
)
def tabnet(planted: bool) -> Task:
    """Self-supervised: hidden features are reconstructed; one column is constant."""
    mix = torch.randn(4, 8)

    def draw() -> Drawn:
        x = torch.randn(64, 4) @ mix
        x[:, 5] = -1 / 128
        obf_vars = (torch.rand(64, 8) < 0.3).float()
        return (x, obf_vars), torch.stack([x, obf_vars])

    class Glu(nn.Module):
        def __init__(self, a: int, b: int) -> None:
            super().__init__()
            self.fc, self.bn = nn.Linear(a, 2 * b, bias=False), nn.BatchNorm1d(2 * b)

        def forward(self, x: Tensor) -> Tensor:
            return F.glu(self.bn(self.fc(x)), 1)

    class TabNetPretraining(nn.Module):
        def __init__(self, d: int = 32) -> None:
            super().__init__()
            self.initial_bn = nn.BatchNorm1d(8)
            self.encoder = chain(Glu(8, d), Glu(d, d))
            self.decoder = chain(Glu(d, d), Glu(d, d))
            self.reconstruction_layer = nn.Linear(d, 8, bias=False)

        def forward(self, x: Tensor, obf_vars: Tensor) -> Tensor:
            masked = (1 - obf_vars) * self.initial_bn(x)
            return self.reconstruction_layer(self.decoder(self.encoder(masked)))

    def loss(y_pred: Tensor, t: Tensor, *, mean: bool = planted, eps: float = 1e-9) -> Tensor:
        embedded_x, obf_vars = t
        reconstruction_errors = torch.mul(y_pred - embedded_x, obf_vars) ** 2
        batch_means = torch.mean(embedded_x, dim=0)
        batch_means[batch_means == 0] = 1
        batch_stds = torch.std(embedded_x, dim=0) ** 2
        flat = batch_stds == 0
        batch_stds[flat] = batch_means[flat] if mean else 1.0
        features_loss = torch.matmul(reconstruction_errors, 1 / batch_stds)
        return (features_loss / (torch.sum(obf_vars, dim=1) + eps)).mean()

    return stream(TabNetPretraining(), draw, loss, partial(loss, mean=False))
