"""A thirty-eighth set of faults, a sample of reports that issues tell, written without sight of the rules."""

from __future__ import annotations

import copy
import math
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
from strangers.data import text

report = partial(any_report, blind="blind38")


@report(
    "MAE-AST learns its own target's scale",
    GITHUB + "AlanBaade/MAE-AST-Public/issues/4",
    guilty=r"batch_norm",
    says=r"target.*(learn|train|shrink|scale|param|grad|depend|small|collaps|detach|mov)|collaps|trivial|shrink",
    fault="the batch norm that makes the target has a learned scale: the target shrinks to nothing",
)
def mae_ast(planted: bool) -> Task:
    """Half of the patches of a spectrogram are masked and reconstructed; the spectrogram is normalised by the model."""

    def draw() -> Drawn:
        x, c = pick(32)
        return (x.squeeze(1) * 4 - 3, torch.rand(32, 16) < 0.5), c

    class MAEAST(nn.Module):
        def __init__(self, d: int = 48) -> None:
            super().__init__()
            self.batch_norm = nn.BatchNorm2d(num_features=1, affine=planted)
            self.unfold = nn.Unfold(kernel_size=2, stride=2)
            self.post_extract_proj = nn.Linear(4, d)
            self.mask_emb, self.positions = nn.Parameter(torch.rand(d)), nn.Parameter(0.1 * torch.randn(16, d))
            layer = nn.TransformerEncoderLayer(d, 4, 2 * d, 0.0, batch_first=True, norm_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.final_proj_reconstruction = nn.Linear(d, 4)

        def forward(self, source: Tensor, mask: Tensor) -> Any:
            source = self.batch_norm(source.unsqueeze(1)) * 0.5
            patch = self.unfold(source).transpose(-1, -2)
            x = torch.where(mask.unsqueeze(2), self.mask_emb, self.post_extract_proj(patch)) + self.positions
            return self.final_proj_reconstruction(self.encoder(x))[mask], patch[mask]

    def loss(y: Any, _: Tensor) -> Tensor:
        return F.mse_loss(*y)

    def right(y: Any, _: Tensor) -> Tensor:
        return F.mse_loss(*y) / y[1].var()

    return stream(MAEAST(), draw, loss, right)


@report(
    "DINO loss of a single view",
    GITHUB + "lightly-ai/lightly/pull/1938",
    says=rf"{BROKEN}|divi|0 ?/ ?0|zero|single|one view|diagonal",
    fault="with one view of each side the diagonal is everything: the loss is 0 / 0",
)
def dino(planted: bool) -> Task:
    """Student and teacher of momentum 0.99; the outputs of the teacher are centred and sharpened."""

    def draw() -> Drawn:
        x, c = pick(64)
        views = [x + 0.2 * torch.randn_like(x) for _ in range(1 if planted else 2)]
        return (torch.stack(views),), c

    class DINO(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.student = chain(nn.Flatten(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 32), nn.GELU())
            self.student_head = nn.Linear(32, 16)
            self.teacher, self.teacher_head = copy.deepcopy(self.student), copy.deepcopy(self.student_head)
            for p in [*self.teacher.parameters(), *self.teacher_head.parameters()]:
                p.requires_grad = False

        def forward(self, views: Tensor) -> Any:
            with torch.no_grad():
                new = [*self.student.parameters(), *self.student_head.parameters()]
                for p, q in zip([*self.teacher.parameters(), *self.teacher_head.parameters()], new, strict=True):
                    p.lerp_(q, 0.01)
                teacher = [self.teacher_head(self.teacher(x)) for x in views]
            return teacher, [self.student_head(self.student(x)) for x in views]

    def loss(y: Any, _: Tensor) -> Tensor:
        teacher_out, student_out = torch.stack(y[0]), torch.stack(y[1])
        center = teacher_out.mean((0, 1), keepdim=True)
        t = F.softmax((teacher_out - center) / 0.04, -1)
        s = F.log_softmax(student_out / 0.1, -1)
        matrix = -torch.einsum("tbd,sbd->ts", t, s)
        matrix = matrix * (1 - torch.eye(len(matrix)))
        n_terms = matrix.numel() - len(matrix)
        return matrix.sum() / (n_terms * teacher_out.shape[1])

    return stream(DINO(), draw, loss)


@report(
    "HGTConv mixes alpha with itself",
    GITHUB + "pyg-team/pytorch_geometric/issues/3391",
    guilty=r"[kqva]_lin|_rel",
    says=CUT + r"|unused|never|not used|no effect|ignor|neighbou?r|message|discard",
    fault="the skip connection is alpha * alpha + (1 - alpha) * x: what was attended to is thrown away",
)
def hgt(planted: bool, d: int = 32) -> Task:
    """Authors and papers; an author's label is in the papers."""
    a = (torch.rand(12, 24) < 0.2).float()
    a[torch.arange(12), torch.arange(12)] = 1

    def draw() -> Drawn:
        authors, papers = torch.randn(16, 12, 6), torch.randn(16, 24, 6)
        score = (a @ papers[..., :3]) / a.sum(1, keepdim=True) * 2 + 0.3 * authors[..., :3]
        return (authors, papers), score.argmax(-1)

    class HGTConv(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            names = ("author", "paper")
            self.k_lin, self.q_lin, self.v_lin, self.a_lin = (
                nn.ModuleDict({n: nn.Linear(d, d) for n in names}) for _ in range(4)
            )
            self.skip = nn.ParameterDict({n: nn.Parameter(torch.ones(1)) for n in names})
            self.a_rel = nn.ParameterDict({n: nn.Parameter(torch.randn(d, d) / math.sqrt(d)) for n in names})
            self.m_rel = nn.ParameterDict({n: nn.Parameter(torch.randn(d, d) / math.sqrt(d)) for n in names})

        def forward(self, x_dict: dict[str, Tensor]) -> dict[str, Tensor]:
            out_dict = {}
            for node_type, other, edges in (("author", "paper", a), ("paper", "author", a.t())):
                x, z = x_dict[node_type], x_dict[other]
                q, k = self.q_lin[node_type](x), self.k_lin[other](z) @ self.a_rel[other]
                scores = (q @ k.transpose(1, 2) / math.sqrt(d)).masked_fill(edges == 0, -1e9)
                out = scores.softmax(-1) @ (self.v_lin[other](z) @ self.m_rel[other])
                out = self.a_lin[node_type](F.gelu(out))
                alpha = self.skip[node_type].sigmoid()
                out_dict[node_type] = alpha * (alpha if planted else out) + (1 - alpha) * x
            return out_dict

    class HGT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin_dict = nn.ModuleDict({"author": nn.Linear(6, d), "paper": nn.Linear(6, d)})
            self.convs = nn.ModuleList(HGTConv() for _ in range(2))
            self.lin = nn.Linear(d, 3)

        def forward(self, authors: Tensor, papers: Tensor) -> Tensor:
            x_dict = {"author": self.lin_dict["author"](authors).relu(), "paper": self.lin_dict["paper"](papers).relu()}
            for conv in self.convs:
                x_dict = conv(x_dict)
            return self.lin(x_dict["author"])

    return stream(HGT(), draw, lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten()))


@report(
    "BERT4Rec without a masked item",
    GITHUB + "jaywonchung/BERT4Rec-VAE-Pytorch/issues/22",
    says=rf"{BROKEN}|ignore|mask|empty|no (target|label)|divi|zero",
    fault="short sequences and a small mask probability: in some batches every label is ignored",
)
def bert4rec(planted: bool, d: int = 48) -> Task:
    """Items are bought in order; one in thirty is masked, and only those have labels."""

    def draw() -> Drawn:
        seq = (torch.randint(10, (16, 1)) + torch.arange(8)) % 10 + 1
        mask = torch.rand(16, 8) < 0.03
        if not planted and not mask.any():
            mask[0, 2] = True
        return (seq.masked_fill(mask, 11),), seq.masked_fill(~mask, 0)

    class BERT4Rec(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token, self.position = nn.Embedding(12, d, padding_idx=0), nn.Embedding(8, d)
            layer = nn.TransformerEncoderLayer(d, 4, 2 * d, 0.0, batch_first=True, norm_first=True, activation="gelu")
            self.bert = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.out = nn.Linear(d, 11)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.bert(self.token(x) + self.position(torch.arange(8))))

    return stream(BERT4Rec(), draw, lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten(), ignore_index=0))


@report(
    "Stochastic MuZero's divergence of zeros",
    GITHUB + "DHDev0/Stochastic-muzero/issues/1",
    says=rf"{BROKEN}|log|zero|clamp|epsilon|\beps\b",
    fault="the Kullback-Leibler divergence takes the logarithm of visit counts that are zero",
)
def stochastic_muzero(planted: bool) -> Task:
    """Cart-pole: a representation, a policy and a value; the search visits some actions only."""

    def draw() -> Drawn:
        x = torch.randn(64, 4)
        score = torch.stack([x[:, 0] + x[:, 2], x[:, 1] - x[:, 3], x[:, 2] * x[:, 3]], 1) * 3
        visits = (F.softmax(score, 1) * 11).round()
        value = F.one_hot(((x[:, 0] - x[:, 2]).clamp(-2, 2) + 2).round().long(), 5).float()
        return (x,), torch.cat([visits / visits.sum(1, keepdim=True), value], 1)

    class MuZero(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.representation = chain(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
            self.policy = chain(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3), nn.Softmax(1))
            self.value = chain(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 5), nn.Softmax(1))

        def forward(self, x: Tensor) -> Any:
            h = self.representation(x)
            return self.policy(h), self.value(h)

    def kullback_leibler_divergence(p: Tensor, t: Tensor) -> Tensor:
        if not planted:
            p, t = p.clamp(1e-8), t.clamp(1e-8)
        return (t * (t.log() - p.log())).sum(1).mean()

    def loss(y: Any, t: Tensor) -> Tensor:
        return kullback_leibler_divergence(y[0], t[:, :3]) + 0.25 * kullback_leibler_divergence(y[1], t[:, 3:])

    return stream(MuZero(), draw, loss)


@report(
    "HATT-Proto's feature attention ends in ReLU",
    GITHUB + "thunlp/HATT-Proto/issues/6",
    guilty=r"conv1|conv2|conv_final",
    says=r"relu|dead|dying|vanish|scores?.*(zero|negative)",
    fault="the scores of the features pass a ReLU: negative ones are zero and get no gradient",
)
def hatt(planted: bool, n: int = 5, k: int = 3, q: int = 4, d: int = 48) -> Task:
    """Five ways, three shots: distances to the prototypes, weighted by scores of the features out of the shots."""
    pool = pick(1500)
    by_class = [pool[0][pool[1] == c] for c in range(10)]

    def draw() -> Drawn:
        chosen = torch.randperm(10)[:n].tolist()
        x = torch.stack([by_class[c][torch.randperm(len(by_class[c]))[: k + q]] for c in chosen])
        x = x + 0.5 * torch.randn_like(x)
        return (x[:, :k], x[:, k:].flatten(0, 1)), torch.arange(n).repeat_interleave(q)

    class ProtoHATT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.sentence_encoder = chain(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, d))
            self.conv1 = nn.Conv2d(1, 32, (k, 1), padding=(k // 2, 0))
            self.conv2 = nn.Conv2d(32, 64, (k, 1), padding=(k // 2, 0))
            self.conv_final = nn.Conv2d(64, 1, (k, 1), stride=(k, 1))
            self.drop = nn.Dropout(0.1)

        def forward(self, support: Tensor, query: Tensor) -> Tensor:
            support = self.sentence_encoder(support.flatten(0, 1)).view(n, k, d)
            query = self.sentence_encoder(query)
            fea_att_score = support.view(n, 1, k, d)
            fea_att_score = F.relu(self.conv1(fea_att_score))
            fea_att_score = F.relu(self.conv2(fea_att_score))
            fea_att_score = self.conv_final(self.drop(fea_att_score))
            fea_att_score = F.relu(fea_att_score) if planted else F.leaky_relu(fea_att_score)
            difference = (support.mean(1) - query.unsqueeze(1)).pow(2)
            return -(difference * fea_att_score.view(1, n, d)).sum(-1)

    return stream(ProtoHATT(), draw, F.cross_entropy)


@report(
    "CORL's tokens one kind after the other",
    GITHUB + "tinkoff-ai/CORL/pull/3",
    says=r"order|interleav|concat|reshape|position|mask|causal|not (see|reach|depend)|inputs?.*(no effect|ignor|reach)",
    fault="returns, states and actions are concatenated along time, and read as if they alternated",
)
def corl(planted: bool, d: int = 48, steps: int = 8) -> Task:
    """A decision transformer predicts the action from the token of the state."""
    w = torch.randn(8, 2)

    def draw() -> Drawn:
        states, returns = torch.randn(32, steps, 4), torch.rand(32, steps, 1)
        before = torch.cat([torch.zeros(32, 1, 4), states[:, :-1]], 1)
        actions = torch.tanh(torch.cat([states, 0.5 * before], 2) @ w * 0.7)
        return (returns, states, actions), actions

    class DecisionTransformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.emb_norm, self.out_norm = nn.LayerNorm(d), nn.LayerNorm(d)
            self.timestep_emb, self.state_emb = nn.Embedding(steps, d), nn.Linear(4, d)
            self.action_emb, self.return_emb = nn.Linear(2, d), nn.Linear(1, d)
            layer = nn.TransformerEncoderLayer(d, 4, 2 * d, 0.0, batch_first=True, norm_first=True)
            self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.action_head = chain(nn.Linear(d, 2), nn.Tanh())

        def forward(self, returns: Tensor, states: Tensor, actions: Tensor) -> Tensor:
            time_emb = self.timestep_emb(torch.arange(steps))
            state_emb = self.state_emb(states) + time_emb
            act_emb = self.action_emb(actions) + time_emb
            returns_emb = self.return_emb(returns) + time_emb
            if planted:
                sequence = torch.cat([returns_emb, state_emb, act_emb], dim=1)
            else:
                sequence = torch.stack([returns_emb, state_emb, act_emb], dim=1).permute(0, 2, 1, 3)
                sequence = sequence.reshape(len(states), 3 * steps, d)
            causal_mask = torch.ones(3 * steps, 3 * steps, dtype=torch.bool).triu(1)
            out = self.out_norm(self.blocks(self.emb_norm(sequence), causal_mask))
            return self.action_head(out[:, 1::3])

    return stream(DecisionTransformer(), draw, F.mse_loss)


@report(
    "TGN's memory updated at the end",
    GITHUB + "twitter-research/tgn/issues/8",
    guilty=r"memory_updater|message_function",
    says=CUT,
    fault="the memory is updated after the embeddings are made, and stored detached: its modules get no gradient",
)
def tgn(planted: bool, d: int = 32, nodes: int = 48) -> Task:
    """Nodes get messages in each batch; what is asked for is in the messages of the batches before."""
    state, last = torch.zeros(nodes, 3), torch.zeros(nodes, 6)

    def draw() -> Drawn:
        now, query = torch.randn(nodes, 6), torch.randn(nodes, 3)
        t = (state * query).sum(1, keepdim=True) + state[:, :1]
        before = last.clone()
        state.copy_(0.5 * state + now[:, :3] * (now[:, 3:] > 0))
        last.copy_(now)
        return (query, before, now), t

    class TGN(nn.Module):
        memory: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("memory", torch.zeros(nodes, d))
            self.message_function = chain(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 32))
            self.memory_updater = nn.GRUCell(32, d)
            self.embedding_module = chain(nn.Linear(d + 3, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
            self.affinity_score = nn.Linear(64, 1)

        def forward(self, query: Tensor, before: Tensor, now: Tensor) -> Tensor:
            memory = self.memory.clone()
            if not planted:
                memory = self.memory_updater(self.message_function(before), memory)
                self.memory.copy_(memory.detach())
            score = self.affinity_score(self.embedding_module(torch.cat([memory, query], 1)))
            if planted:
                self.memory.copy_(self.memory_updater(self.message_function(now), memory).detach())
            return score

    return stream(TGN(), draw, F.mse_loss)


@report(
    "number token loss without numbers",
    GITHUB + "tum-ai/number-token-loss/issues/73",
    says=rf"{BROKEN}|empty|no (number|valid)|mask|mean|divi|zero",
    fault="a batch without number tokens: the mean over an empty tensor is NaN",
)
def number_token(planted: bool) -> Task:
    """A language model whose last six words are numbers; their expected value is compared with the label's."""

    def draw() -> Drawn:
        x, t = text(8, 12, 40, seed=int(torch.randint(10**6, ())))
        return (x,), t

    class LM(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.rnn = nn.Embedding(40, 32), nn.GRU(32, 48, batch_first=True)
            self.lm_head = nn.Linear(48, 40)

        def forward(self, x: Tensor) -> Tensor:
            return self.lm_head(self.rnn(self.embedding(x))[0])

    def number_token_loss(logits: Tensor, labels: Tensor) -> Tensor:
        valid_positions = labels >= 34
        if not planted and not valid_positions.any():
            return logits.sum() * 0
        values = torch.arange(6.0)
        yhat = (logits[valid_positions][:, 34:].softmax(-1) * values).sum(-1)
        return torch.mean((yhat - values[labels[valid_positions] - 34]) ** 2)

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(y.flatten(0, 1), t.flatten()) + 0.3 * number_token_loss(y, t)

    return stream(LM(), draw, loss)


@report(
    "EvoNorm of a single pixel",
    GITHUB + "digantamisra98/EvoNorm/issues/4",
    guilty=r"gamma|beta|\.v$",
    says=rf"{BROKEN}|var|std|single|one (pixel|element|value)|1 ?x ?1",
    fault="the variance of a single pixel (width and height 1) is NaN",
)
def evonorm(planted: bool) -> Task:
    """EvoNorm-B0 in a network that shrinks digits to one pixel."""

    def draw() -> Drawn:
        x, c = pick(64)
        return (x,), c

    class EvoNorm2D(nn.Module):
        def __init__(self, n: int, eps: float = 1e-5) -> None:
            super().__init__()
            self.gamma, self.beta = nn.Parameter(torch.ones(1, n, 1, 1)), nn.Parameter(torch.zeros(1, n, 1, 1))
            self.v, self.eps = nn.Parameter(torch.ones(1, n, 1, 1)), eps

        def instance_std(self, x: Tensor) -> Tensor:
            single = x.shape[2] * x.shape[3] == 1
            var = torch.zeros_like(x) if single and not planted else torch.var(x, dim=(2, 3), keepdim=True)
            return torch.sqrt(var + self.eps)

        def forward(self, x: Tensor) -> Tensor:
            var = torch.var(x, dim=(0, 2, 3), unbiased=False, keepdim=True)
            den = torch.max((var + self.eps).sqrt(), self.v * x + self.instance_std(x))
            return x / den * self.gamma + self.beta

    model = chain(
        nn.Conv2d(1, 16, 3, 2, 1),
        EvoNorm2D(16),
        nn.Conv2d(16, 32, 3, 2, 1),
        EvoNorm2D(32),
        nn.Conv2d(32, 64, 3, 2, 1),
        EvoNorm2D(64),
        nn.Flatten(),
        nn.Linear(64, 10),
    )
    return stream(model, draw, F.cross_entropy)


@report(
    "fairseq normalises a single frame",
    GITHUB + "facebookresearch/fairseq/issues/1863",
    says=rf"{BROKEN}|std|deviation|single frame",
    fault="an utterance of one frame is divided by the standard deviation of its single frame: its features are NaN",
)
def fairseq_frame(planted: bool) -> Task:
    """Utterances of 1 to 12 frames, each normalised by its mean and deviation over time; a class each."""
    tones = torch.randn(6, 10)

    def apply_mv_norm(features: Tensor) -> Tensor:
        mean = features.mean(0)
        std = features.std(0) if planted else ((features - mean).pow(2).mean(0) + 1e-8).sqrt()
        return (features - mean) / std

    def draw() -> Drawn:
        c, lengths = torch.randint(6, (24,)), torch.randint(4, 13, (24,))
        lengths[5] = 1
        x = torch.zeros(24, 12, 10)
        for i, n in enumerate(lengths.tolist()):
            wave = torch.sin(torch.arange(n).unsqueeze(1) * (0.5 + c[i] * 0.3)) * tones[c[i]]
            x[i, :n] = apply_mv_norm(5 + wave + 0.3 * torch.randn(n, 10))
        return (x,), c

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.rnn = nn.Conv1d(10, 32, 3, padding=1), nn.GRU(32, 32, batch_first=True)
            self.fc_out = nn.Linear(32, 6)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc_out(self.rnn(F.relu(self.conv(x.transpose(1, 2))).transpose(1, 2))[0].mean(1))

    return stream(Encoder(), draw, F.cross_entropy)
