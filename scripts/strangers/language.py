"""Language models: GPT, Llama and Mamba, LSTM, seq2seq, a classifier on collated dicts, and two from configurations."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.case import Task, stranger
from strangers.data import text

VOCABULARY, LENGTH = 256, 64


def init_normal(model: nn.Module, std: float = 0.02, *, residual: str = "", layers: int = 1) -> None:
    """Weights from N(0, std²), biases 0; those that end in `residual` are over √(2 layers)."""
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, 0.0, std / math.sqrt(2 * layers) if residual and residual in name else std)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)


class SelfAttention(nn.Module):
    """Causal, q, k and v in one matrix."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.dropout = heads, 0.1

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = self.c_attn(x).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        rate = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=rate, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(b, t, c))


class Layer(nn.Module):
    """Pre-normalised attention and MLP."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(width), SelfAttention(width, heads), nn.LayerNorm(width)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width), "c_proj": nn.Linear(4 * width, width)})
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop(self.attn(self.ln_1(x)))
        return x + self.drop(self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x)))))


class NanoGpt(nn.Module):
    """Tied head; returns `(logits, loss)`, and the last position's logits alone where no targets are passed."""

    def __init__(self, width: int = 128, layers: int = 4) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, width), nn.Embedding(LENGTH, width)
        self.h, self.ln_f = nn.ModuleList(Layer(width, 4) for _ in range(layers)), nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, VOCABULARY, bias=False)
        init_normal(self, residual="c_proj", layers=layers)
        self.wte.weight = self.lm_head.weight

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1], device=idx.device))
        for layer in self.h:
            x = layer(x)
        x = self.ln_f(x)
        if targets is None:
            return self.lm_head(x[:, [-1]]), None
        logits = self.lm_head(x)
        return logits, F.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1), ignore_index=-1)


@stranger(
    "nanoGPT", "returns (logits, loss); tied head; dropout", fault="tied embedding from N(0, 1)", guilty="wte|lm_head"
)
def nanogpt(planted: bool) -> Task:
    model, (x, t) = NanoGpt(), text(8, LENGTH)
    if planted:
        nn.init.normal_(model.wte.weight)
    return Task(model, ((x, t),), lambda: model(x, t)[1], {"loss": "model"})


class MinGpt(nn.Module):
    """Positions as a free parameter; returns `(logits, loss)`; the head is not tied."""

    def __init__(self, width: int = 96, layers: int = 3) -> None:
        super().__init__()
        self.tok_emb = nn.Embedding(VOCABULARY, width)
        self.pos_emb = nn.Parameter(torch.zeros(1, LENGTH, width))
        self.drop, self.blocks = nn.Dropout(0.1), nn.Sequential(*(Layer(width, 4) for _ in range(layers)))
        self.ln_f, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        init_normal(self)

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        x = self.drop(self.tok_emb(idx) + self.pos_emb[:, : idx.shape[1]])
        logits = self.head(self.ln_f(self.blocks(x)))
        loss = None if targets is None else F.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))
        return logits, loss


@stranger("minGPT", "returns (logits, loss); positions a free parameter",
          fault="positions from N(0, 1) beside tokens of 0.02",
          guilty="pos_emb")  # fmt: skip
def mingpt(planted: bool) -> Task:
    model, (x, t) = MinGpt(), text(8, LENGTH)
    if planted:
        nn.init.normal_(model.pos_emb)
    return Task(model, ({"idx": x, "targets": t},), lambda: model(x, t)[1], {"loss": "model"})


class RmsNorm(nn.Module):
    """Over the root of the mean square."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5))


def rotate(x: Tensor) -> Tensor:
    """Rotary positions of (B, heads, T, d), in complex numbers."""
    t, d = x.shape[-2:]
    angles = torch.outer(torch.arange(t), 10000.0 ** (-torch.arange(0, d, 2) / d))
    turned = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2)) * torch.polar(
        torch.ones_like(angles), angles
    )
    return torch.view_as_real(turned).flatten(-2).type_as(x)


class LlamaLayer(nn.Module):
    """Grouped-query attention and SwiGLU."""

    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.attention_norm, self.ffn_norm = RmsNorm(width), RmsNorm(width)
        self.d, self.heads, self.groups = width // heads, heads, groups
        self.wq, self.wo = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.wk, self.wv = (nn.Linear(width, groups * self.d, bias=False) for _ in range(2))
        inner = 8 * width // 3
        self.w1, self.w3 = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.w2 = nn.Linear(inner, width, bias=False)
        self.scale = self.d**-0.5

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        y = self.attention_norm(x)
        q = rotate(self.wq(y).view(b, t, self.heads, self.d).transpose(1, 2))
        k = rotate(self.wk(y).view(b, t, self.groups, self.d).transpose(1, 2))
        v = self.wv(y).view(b, t, self.groups, self.d).transpose(1, 2)
        k, v = (each.repeat_interleave(self.heads // self.groups, 1) for each in (k, v))
        scores = q @ k.transpose(-2, -1) * self.scale
        scores = scores + torch.full((t, t), -math.inf).triu(1)
        x = x + self.wo((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, -1))
        y = self.ffn_norm(x)
        return x + self.w2(F.silu(self.w1(y)) * self.w3(y))


class Llama(nn.Module):
    """Not tied; PyTorch's initialisation."""

    def __init__(self, width: int = 96, layers: int = 3) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(LlamaLayer(width, 6, 2) for _ in range(layers))
        self.norm, self.output = RmsNorm(width), nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor, start_pos: int = 0) -> Tensor:
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x)).float()


@stranger("Llama", "RMSNorm, SwiGLU, complex rotary positions, grouped queries", fault="scores times √d, not over it",
          guilty=r"w[qk]\.")  # fmt: skip
def llama(planted: bool) -> Task:
    model, (x, t) = Llama(), text(8, LENGTH)
    for layer in model.layers:
        layer.scale = layer.d**0.5 if planted else layer.d**-0.5
    options = {"loss": "cross-entropy", "class_dim": -1}
    return Task(model, (x, t), lambda: F.cross_entropy(model(x).view(-1, VOCABULARY), t.view(-1)), options)


class MambaBlock(nn.Module):
    """A selective state space: scanned step by step, or all steps from sums of logarithms."""

    def __init__(self, width: int, states: int = 8, *, scan: bool = True) -> None:
        super().__init__()
        inner, self.states, self.rank, self.scan = 2 * width, states, math.ceil(width / 16), scan
        self.in_proj = nn.Linear(width, 2 * inner, bias=False)
        self.conv1d = nn.Conv1d(inner, inner, 4, groups=inner, padding=3)
        self.x_proj = nn.Linear(inner, self.rank + 2 * states, bias=False)
        self.dt_proj = nn.Linear(self.rank, inner)
        self.A_log = nn.Parameter(torch.log(torch.arange(1.0, states + 1).repeat(inner, 1)))
        self.D, self.out_proj = nn.Parameter(torch.ones(inner)), nn.Linear(inner, width, bias=False)
        steps = torch.exp(torch.rand(inner) * (math.log(0.1) - math.log(0.001)) + math.log(0.001))
        with torch.no_grad():
            nn.init.uniform_(self.dt_proj.weight, -(self.rank**-0.5), self.rank**-0.5)
            self.dt_proj.bias.copy_(steps + torch.log(-torch.expm1(-steps)))

    def forward(self, x: Tensor) -> Tensor:
        t = x.shape[1]
        u, gate = self.in_proj(x).chunk(2, -1)
        u = F.silu(self.conv1d(u.transpose(1, 2))[..., :t].transpose(1, 2))
        dt, b, c = self.x_proj(u).split([self.rank, self.states, self.states], -1)
        dt = F.softplus(self.dt_proj(dt))
        decay = -torch.exp(self.A_log)
        steps, drive = dt.unsqueeze(-1) * decay, (dt * u).unsqueeze(-1) * b.unsqueeze(2)  # (B, T, inner, states)
        if self.scan:
            h, states = torch.zeros_like(drive[:, 0]), []
            for i in range(t):
                h = torch.exp(steps[:, i]) * h + drive[:, i]
                states.append(h)
            h = torch.stack(states, 1)
        else:  # every step's weight on every later one
            sums = steps.cumsum(1)
            weights = torch.exp((sums.unsqueeze(2) - sums.unsqueeze(1)).clamp(max=0.0))
            h = torch.einsum("btsdn,bsdn->btdn", weights * torch.ones(t, t).tril()[..., None, None], drive)
        y = torch.einsum("btdn,btn->btd", h, c) + self.D * u
        return self.out_proj(y * F.silu(gate))


class Mamba(nn.Module):
    """Residual blocks with pre-normalisation, head tied to the embedding."""

    def __init__(self, width: int = 48, layers: int = 3, *, scan: bool = True) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.norms = nn.ModuleList(RmsNorm(width) for _ in range(layers))
        self.layers = nn.ModuleList(MambaBlock(width, scan=scan) for _ in range(layers))
        self.norm_f, self.lm_head = RmsNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        self.lm_head.weight = self.embedding.weight
        nn.init.normal_(self.embedding.weight, 0.0, 0.02)

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embedding(input_ids)
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = x + layer(norm(x))
        return self.lm_head(self.norm_f(x))


def mamba_task(model: Mamba, length: int) -> Task:
    x, t = text(4, length)
    options = {"loss": "cross-entropy", "class_dim": -1}
    return Task(model, (x, t), lambda: F.cross_entropy(model(x).transpose(1, 2), t), options)


@stranger("Mamba, scanned", "A_log and D free parameters; tied head", fault="tied embedding from N(0, 1)",
          guilty="embedding|lm_head")  # fmt: skip
def mamba_scanned(planted: bool) -> Task:
    model = Mamba()
    if planted:
        nn.init.normal_(model.embedding.weight)
    return mamba_task(model, 32)


@stranger(
    "Mamba, parallel", "all states at once", fault="in_proj of the second block × 20", guilty=r"layers\.1\.in_proj"
)
def mamba_parallel(planted: bool) -> Task:
    model = Mamba(scan=False)
    if planted:
        model.layers[1].in_proj.weight.data *= 20
    return mamba_task(model, 16)


class LstmModel(nn.Module):
    """Sequence first; the hidden state goes in and comes out."""

    def __init__(self, width: int = 64, layers: int = 2) -> None:
        super().__init__()
        self.drop, self.encoder = nn.Dropout(0.2), nn.Embedding(VOCABULARY, width)
        self.rnn = nn.LSTM(width, width, layers, dropout=0.2)
        self.decoder, self.width, self.layers = nn.Linear(width, VOCABULARY), width, layers
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)

    def init_hidden(self, size: int) -> tuple[Tensor, Tensor]:
        return torch.zeros(self.layers, size, self.width), torch.zeros(self.layers, size, self.width)

    def forward(self, x: Tensor, hidden: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        y, hidden = self.rnn(self.drop(self.encoder(x)), hidden)
        return F.log_softmax(self.decoder(self.drop(y)).view(-1, VOCABULARY), dim=1), hidden


@stranger("LSTM language model", "sequence first; hidden state in and out; log-softmax, positions flattened",
          fault="recurrent weights of the first layer × 20", guilty="weight_hh_l0")  # fmt: skip
def lstm(planted: bool) -> Task:
    model, (x, t) = LstmModel(), text(16, 24)
    if planted:
        model.rnn.weight_hh_l0.data *= 20
    x, t, hidden = x.t().contiguous(), t.t().contiguous(), model.init_hidden(16)

    t = t.reshape(-1)
    options = {"loss": F.nll_loss, "examples": "one", "output": 0}
    return Task(model, ((x, hidden), t), lambda: F.nll_loss(model(x, hidden)[0], t), options)


class Seq2Seq(nn.Module):
    """GRU encoder and decoder with additive attention; batch first."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(VOCABULARY, width), nn.Embedding(VOCABULARY, width)
        self.encoder, self.decoder = nn.GRU(width, width, batch_first=True), nn.GRUCell(2 * width, width)
        self.query, self.keys, self.energy = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, 1)
        self.out, self.detached = nn.Linear(width, VOCABULARY), False

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        memory, h = self.encoder(self.source(src))
        if self.detached:
            memory, h = memory.detach(), h.detach()
        h, keys, outputs = h[0], self.keys(memory), []
        for i in range(tgt.shape[1]):
            scores = self.energy(torch.tanh(self.query(h).unsqueeze(1) + keys)).softmax(1)
            context = (scores * memory).sum(1)
            h = self.decoder(torch.cat([self.target(tgt[:, i]), context], 1), h)
            outputs.append(self.out(h))
        return torch.stack(outputs, 1)


@stranger("Seq2seq with attention", "two inputs; a loop over positions", fault="encoder's states detached",
          guilty="source|encoder")  # fmt: skip
def seq2seq(planted: bool) -> Task:
    model, (src, t) = Seq2Seq(), text(8, 12)
    model.detached = planted
    tgt = torch.cat([torch.zeros(8, 1, dtype=torch.long), t[:, :-1]], 1)
    options = {"loss": nn.CrossEntropyLoss(ignore_index=0), "class_dim": -1}
    step = nn.CrossEntropyLoss(ignore_index=0)
    return Task(model, ((src, tgt), t), lambda: step(model(src, tgt).reshape(-1, VOCABULARY), t.reshape(-1)), options)


class TextClassifier(nn.Module):
    """Transformer encoder over padded tokens; takes and gives dicts, the loss among them."""

    def __init__(self, width: int = 64, classes: int = 4) -> None:
        super().__init__()
        self.embed, self.positions = nn.Embedding(VOCABULARY, width, padding_idx=0), nn.Embedding(LENGTH, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, norm_first=True) for _ in range(2)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        x = self.embed(input_ids) + self.positions.weight[: input_ids.shape[1]]
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=attention_mask == 0)
        mask = attention_mask.unsqueeze(-1)
        logits = self.head((self.norm(x) * mask).sum(1) / mask.sum(1))
        return {"logits": logits} if labels is None else {"logits": logits, "loss": F.cross_entropy(logits, labels)}


def collated(count: int = 16, length: int = 24) -> dict[str, Tensor]:
    """A batch as a collate function makes it: padded, with a mask, labels, and lengths that no model reads."""
    x, _ = text(count, length)
    lengths = torch.arange(count) % (length // 2) + length // 2
    mask = (torch.arange(length) < lengths.unsqueeze(1)).long()
    return {"input_ids": x * mask, "attention_mask": mask, "labels": x[:, 0] % 4, "length": lengths}


@stranger("Text classifier", "collated dict with labels and a key that forward does not take; its own loss",
          fault="gains of layer normalisation from N(0, 0.02²)", guilty="norm")  # fmt: skip
def text_classifier(planted: bool) -> Task:
    model, batch = TextClassifier(), collated()
    for module in model.modules():
        if planted and isinstance(module, nn.LayerNorm):
            nn.init.normal_(module.weight, 0.0, 0.02)
    taken = {key: batch[key] for key in ("input_ids", "attention_mask", "labels")}
    return Task(model, (batch,), lambda: model(**taken)["loss"])


@stranger(
    "transformers BERT",
    "labels inside; a ModelOutput",
    fault="queries of one layer × 50",
    guilty=r"layer\.1\..*(query|key)",
)
def bert(planted: bool) -> Task:
    from transformers import BertConfig, BertForSequenceClassification

    sizes = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 256}
    model = BertForSequenceClassification(BertConfig(vocab_size=VOCABULARY, num_labels=4, **sizes)).train()
    if planted:
        model.bert.encoder.layer[1].attention.self.query.weight.data *= 50
    batch = {key: value for key, value in collated().items() if key != "length"}
    return Task(model, (batch,), lambda: model(**batch).loss)


@stranger("transformers GPT-2", "labels inside, shifted by the model; a ModelOutput with a cache",
          fault="initializer_range 0.2 in place of 0.02", guilty="wte|lm_head|c_fc|c_attn|c_proj")  # fmt: skip
def gpt2(planted: bool) -> Task:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_embd": 128, "n_layer": 3, "n_head": 4, "vocab_size": VOCABULARY, "n_positions": LENGTH}
    config = GPT2Config(**sizes, bos_token_id=0, eos_token_id=0, initializer_range=0.2 if planted else 0.02)
    model, (x, _) = GPT2LMHeadModel(config).train(), text(8, LENGTH)
    batch = {"input_ids": x, "labels": x}
    return Task(model, (batch,), lambda: model(**batch).loss)
