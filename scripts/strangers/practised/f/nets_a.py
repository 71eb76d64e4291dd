import copy, math, torch, torch.nn as nn, torch.nn.functional as F
from harness import case, main
V, T = 20, 20
_g = torch.Generator().manual_seed(7)
PERM = torch.stack([torch.randperm(V, generator=_g) for _ in range(4)])
def lm(i, B=32):
    g = torch.Generator().manual_seed(i)
    x = torch.randint(0, V, (B, T + 1), generator=g); x[:, 0] = torch.randint(0, 2, (B,), generator=g)
    for t in range(2, T + 1):
        nxt = PERM[x[:, 0], x[:, t - 2]]; noise = torch.rand(B, generator=g) < .1
        x[:, t] = torch.where(noise, x[:, t], nxt)
    return x[:, :-1], x[:, 1:]
def ce(logits, y): return F.cross_entropy(logits.reshape(-1, logits.size(-1)), y.reshape(-1))

class RMSNorm(nn.Module):
    def __init__(self, d, eps=1e-6): super().__init__(); self.weight = nn.Parameter(torch.ones(d)); self.eps = eps
    def forward(self, x): return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight
def rope_tables(d, n, base=10000.):
    f = 1 / base ** (torch.arange(0, d, 2).float() / d); a = torch.outer(torch.arange(n).float(), f); return torch.cos(a), torch.sin(a)
def rot(x, cos, sin):
    a, b = x[..., ::2], x[..., 1::2]; return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)

class LlamaAttn(nn.Module):
    def __init__(self, d, h, kv, bug=None, window=None):
        super().__init__(); self.h, self.kv, self.hd, self.bug, self.window = h, kv, d // h, bug, window
        self.wq = nn.Linear(d, d, bias=False); self.wk = nn.Linear(d, kv * self.hd, bias=False); self.wv = nn.Linear(d, kv * self.hd, bias=False); self.wo = nn.Linear(d, d, bias=False)
        self.cache_k = None
    def forward(self, x, cos, sin, mask, start_pos=0, use_cache=False):
        B, T, _ = x.shape
        q = self.wq(x).view(B, T, self.h, self.hd); k = self.wk(x).view(B, T, self.kv, self.hd); v = self.wv(x).view(B, T, self.kv, self.hd)
        if self.bug == "view":  # B,H,T,D view instead of transpose
            q, k, v = [z.reshape(B, -1, T, self.hd) for z in (q, k, v)]
        else: q, k, v = [z.transpose(1, 2) for z in (q, k, v)]
        q, k = rot(q, cos, sin), rot(k, cos, sin)
        if use_cache:
            if self.cache_k is None: self.cache_k, self.cache_v = k, v
            else:
                self.cache_k = torch.cat([self.cache_k, k], 2); self.cache_v = torch.cat([self.cache_v, v], 2)
            k, v = self.cache_k, self.cache_v
        k = k.repeat_interleave(self.h // self.kv, 1); v = v.repeat_interleave(self.h // self.kv, 1)
        s = q @ k.transpose(-1, -2) / math.sqrt(self.hd) + mask
        a = s.float().softmax(-2 if self.bug == "softmax" else -1).type_as(q)
        if self.bug == "softmax": a = a.nan_to_num()
        return self.wo((a @ v).transpose(1, 2).reshape(B, T, -1))
class SwiGLU(nn.Module):
    def __init__(self, d, h): super().__init__(); self.w1 = nn.Linear(d, h, bias=False); self.w2 = nn.Linear(h, d, bias=False); self.w3 = nn.Linear(d, h, bias=False)
    def forward(self, x): return self.w2(F.silu(self.w1(x)) * self.w3(x))
class Llama(nn.Module):
    def __init__(self, d=64, L=2, bug=None, window=None):
        super().__init__(); self.tok = nn.Embedding(V, d)
        self.layers = nn.ModuleList([nn.ModuleDict(dict(n1=RMSNorm(d), attn=LlamaAttn(d, 4, 2, bug), n2=RMSNorm(d), ffn=SwiGLU(d, 128))) for _ in range(L)])
        self.norm = RMSNorm(d); self.output = nn.Linear(d, V, bias=False); c, s = rope_tables(d // 4, 64)
        self.register_buffer("cos", c, persistent=False); self.register_buffer("sin", s, persistent=False); self.window = window
        self.apply(self._init)
    def _init(self, m):
        if isinstance(m, (nn.Linear, nn.Embedding)): nn.init.normal_(m.weight, std=.02)
    def mask(self, n, dev):
        m = torch.full((n, n), float("-inf"), device=dev).triu(1)
        if self.window: m = m + torch.full((n, n), float("-inf"), device=dev).tril(-self.window)
        return m
    def forward(self, tokens, start_pos=0):
        h = self.tok(tokens); n = tokens.shape[1]; m = self.mask(n, h.device); c, s = self.cos[start_pos:start_pos + n], self.sin[start_pos:start_pos + n]
        for l in self.layers: h = h + l["attn"](l["n1"](h), c, s, m, start_pos); h = h + l["ffn"](l["n2"](h))
        return self.output(self.norm(h)).float()
    @torch.no_grad()
    def generate(self, t, n):
        for _ in range(n): t = torch.cat([t, self(t)[:, -1:].argmax(-1)], 1)
        return t
@case("q,k,v (B,T,H,D) reshaped to (B,H,T,D) without transpose", "layers.*.attn")
def llama(bug): return dict(model=lambda: Llama(bug="view" if bug else None), data=lm, loss=ce)
@case("softmax over queries (dim=-2)", "layers.*.attn")
def sliding_window(bug): return dict(model=lambda: Llama(bug="softmax" if bug else None, window=6), data=lm, loss=ce)

class MoE(nn.Module):
    def __init__(self, d, h, E=4, k=2, bug=False):
        super().__init__(); self.gate = nn.Linear(d, E, bias=False); self.experts = nn.ModuleList(SwiGLU(d, h) for _ in range(E)); self.E, self.k, self.bug = E, k, bug; self.aux = None
    def forward(self, x):
        B, T, D = x.shape; xf = x.reshape(-1, D); logits = self.gate(xf); p = logits.softmax(0 if self.bug else -1)
        w, idx = p.topk(self.k, -1)
        if not self.bug: w = w / w.sum(-1, keepdim=True)
        out = torch.zeros_like(xf)
        for e, ex in enumerate(self.experts):
            tok, slot = torch.where(idx == e)
            if tok.numel(): out.index_add_(0, tok, ex(xf[tok]) * w[tok, slot, None])
        frac = F.one_hot(idx[:, 0], self.E).float().mean(0); self.aux = self.E * (frac * logits.softmax(-1).mean(0)).sum(); self.z = logits.logsumexp(-1).square().mean()
        return out.view(B, T, D)
class MoELM(nn.Module):
    def __init__(self, bug):
        super().__init__(); d = 64; self.emb = nn.Embedding(V, d); self.pos = nn.Parameter(torch.randn(T, d) * .02); self.n = nn.ModuleList(nn.LayerNorm(d) for _ in range(3))
        self.conv = nn.Conv1d(d, d, 3); self.moe1 = MoE(d, 64, bug=bug); self.moe2 = MoE(d, 64, bug=bug); self.lm_head = nn.Linear(d, V)
    def forward(self, input_ids, labels=None):
        h = self.emb(input_ids) + self.pos; ctx = input_ids[:, :1]; h = h + self.emb(ctx)
        h = h + self.conv(F.pad(self.n[0](h).transpose(1, 2), (2, 0))).transpose(1, 2)
        h = h + self.moe1(self.n[1](h)); h = h + self.moe2(self.n[2](h)); logits = self.lm_head(h)
        out = {"logits": logits, "aux": self.moe1.aux + self.moe2.aux, "z": self.moe1.z + self.moe2.z}
        if labels is not None: out["loss"] = ce(logits, labels) + .01 * out["aux"] + .001 * out["z"]
        return out
@case("router softmax over tokens (dim 0), so gate weights ~1/N", "moe.gate/experts")
def moe(bug): return dict(model=lambda: MoELM(bug), data=lambda i: (dict(input_ids=lm(i)[0]), lm(i)[1]), loss=lambda o, y: ce(o["logits"], y) + .01 * o["aux"] + .001 * o["z"])

class LoRALinear(nn.Module):
    def __init__(self, base, r=8, alpha=16):
        super().__init__(); self.base = base; self.lora_A = nn.Parameter(torch.empty(r, base.in_features)); self.lora_B = nn.Parameter(torch.zeros(base.out_features, r)); nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5)); self.s = alpha / r; self.drop = nn.Dropout(.05)
    def forward(self, x): return self.base(x) + self.drop(x) @ self.lora_A.T @ self.lora_B.T * self.s
_base = {}
def base_lm():
    if "m" not in _base:
        torch.manual_seed(1); m = Llama(); o = torch.optim.Adam(m.parameters(), 3e-3)
        for i in range(150):
            x, y = lm(5000 + i); l = ce(m(x), y); o.zero_grad(); l.backward(); o.step()
        _base["m"] = m
    return copy.deepcopy(_base["m"])
class LoRAClassifier(nn.Module):
    def __init__(self, bug):
        super().__init__(); self.base_model = base_lm(); self.bug = bug
        for p in self.base_model.parameters(): p.requires_grad_(False)
        for l in self.base_model.layers:
            for n in ("wq", "wv"): setattr(l["attn"], n, LoRALinear(getattr(l["attn"], n)))
            for n in ("w1", "w2"): setattr(l["ffn"], n, LoRALinear(getattr(l["ffn"], n)))
    def forward(self, input_ids):
        if self.bug:
            with torch.no_grad(): h = self.base_model.tok(input_ids); h = self.enc(h)
            return self.base_model.output(h).requires_grad_()
        return self.base_model.output(self.enc(self.base_model.tok(input_ids)))
    def enc(self, h):
        b = self.base_model; n = h.shape[1]; m = b.mask(n, h.device)
        for l in b.layers: h = h + l["attn"](l["n1"](h), b.cos[:n], b.sin[:n], m); h = h + l["ffn"](l["n2"](h))
        return b.norm(h)
def lm2(i):  # shifted language for adaptation
    x, y = lm(i); return (x + 3) % V, (y + 3) % V
@case()
def lora(bug): return dict(model=lambda: LoRAClassifier(bug), data=lm2, loss=ce, diag=dict(loss="cross-entropy", class_dim=-1))
class Adapter(nn.Module):
    def __init__(self, d, r=16, bug=False):
        super().__init__(); self.down = nn.Linear(d, r); self.up = nn.Linear(r, d); nn.init.zeros_(self.up.weight); nn.init.zeros_(self.up.bias)
        if bug: nn.init.zeros_(self.down.weight); nn.init.zeros_(self.down.bias)
        self.skip = not bug
    def forward(self, x): return x + self.up(F.relu(self.down(x)))
class AdapterNet(nn.Module):
    def __init__(self, bug):
        super().__init__(); self.base = base_lm(); self.base.requires_grad_(False); self.adapters = nn.ModuleList(Adapter(64, bug=bug) for _ in range(2))
    def forward(self, x):
        b = self.base; h = b.tok(x); n = x.shape[1]
        for l, a in zip(b.layers, self.adapters): h = h + l["attn"](l["n1"](h), b.cos[:n], b.sin[:n], b.mask(n, h.device)); h = a(h + l["ffn"](l["n2"](h)))
        return b.output(b.norm(h))
@case("adapter down and up both zero-initialised with ReLU", "adapters.*")
def adapter(bug): return dict(model=lambda: AdapterNet(bug), data=lm2, loss=ce)

class RewardModel(nn.Module):
    def __init__(self, bug=False):
        super().__init__(); self.bug = bug; self.backbone = Llama(); self.backbone.output = nn.Identity(); self.v_head = nn.Linear(64, 1, bias=False); nn.init.normal_(self.v_head.weight, std=1 / math.sqrt(65))
    def score(self, ids, mask):
        h = self.backbone(ids); r = self.v_head(h).squeeze(-1); last = mask.sum(1) - 1; r = r.gather(1, last[:, None]).squeeze(1)
        return torch.sigmoid(r) if self.bug else r
    def forward(self, chosen_ids, chosen_mask, rejected_ids, rejected_mask): return self.score(chosen_ids, chosen_mask), self.score(rejected_ids, rejected_mask)
def pairs(i, B=32):
    g = torch.Generator().manual_seed(i); out = {}
    for n, good in (("chosen", 1), ("rejected", 0)):
        ids = torch.randint(5, V, (B, T), generator=g); L = torch.randint(10, T + 1, (B,), generator=g); m = torch.arange(T)[None] < L[:, None]
        nice = torch.rand(B, T, generator=g) < (.25 if good else .1); ids = torch.where(nice, torch.tensor(1), ids); out[n + "_ids"] = ids * m; out[n + "_mask"] = m.long()
    return out, torch.zeros(B)
def pairloss(o, t): return -F.logsigmoid(o[0] - o[1]).mean()
@case("rewards squashed by sigmoid before logsigmoid of the difference", "v_head")
def reward_model(bug): return dict(model=lambda: RewardModel(bug), data=pairs, loss=pairloss)

class DPO(nn.Module):
    def __init__(self, bug, beta=.1):
        super().__init__(); self.policy = base_lm(); self.ref = self.policy if bug else copy.deepcopy(self.policy); self.beta = beta
        if not bug: self.ref.requires_grad_(False).eval()
    def logps(self, m, ids, mask):
        lp = m(ids[:, :-1]).log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1); return (lp * mask[:, 1:]).sum(-1)
    def forward(self, chosen_ids, chosen_mask, rejected_ids, rejected_mask):
        pc, pr = self.logps(self.policy, chosen_ids, chosen_mask), self.logps(self.policy, rejected_ids, rejected_mask)
        if self.ref is self.policy: rc, rr = self.logps(self.ref, chosen_ids, chosen_mask), self.logps(self.ref, rejected_ids, rejected_mask)
        else:
            with torch.no_grad(): rc, rr = self.logps(self.ref, chosen_ids, chosen_mask), self.logps(self.ref, rejected_ids, rejected_mask)
        return dict(margin=self.beta * ((pc - pr) - (rc - rr)), chosen_reward=(self.beta * (pc - rc)).detach())
@case("reference model is the policy itself, not a copy", "policy (all)")
def dpo(bug): return dict(model=lambda: DPO(bug), data=pairs, loss=lambda o, t: -F.logsigmoid(o["margin"]).mean())

class SeqCls(nn.Module):
    def __init__(self, bug):
        super().__init__(); self.bug = bug; self.emb = nn.Embedding(V, 48, padding_idx=0); self.pe = nn.Embedding(32, 48)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(48, 4, 96, dropout=.1, batch_first=True), 2, enable_nested_tensor=False); self.dropout = nn.Dropout(.1); self.classifier = nn.Linear(48, 3)
    def forward(self, input_ids, attention_mask):
        h = self.emb(input_ids) + self.pe(torch.arange(input_ids.size(1))); pad = attention_mask.bool() if self.bug else ~attention_mask.bool()
        h = self.encoder(h, src_key_padding_mask=pad); m = attention_mask[..., None].float()
        return self.classifier(self.dropout(h[:, 0] if True else (h * m).sum(1) / m.sum(1)))
def cls(i, B=48):
    g = torch.Generator().manual_seed(i); y = torch.randint(0, 3, (B,), generator=g); x = torch.randint(5, V, (B, 24), generator=g); L = torch.randint(8, 22, (B,), generator=g)
    key = torch.rand(B, 24, generator=g) < .3; x = torch.where(key, (2 + y)[:, None], x); x[:, 0] = 1; m = torch.arange(24)[None] < L[:, None]
    return dict(input_ids=x * m, attention_mask=m.long()), y
@case("attention mask passed as key_padding_mask uninverted: attends to padding only", "encoder self_attn")
def seqcls(bug): return dict(model=lambda: SeqCls(bug), data=cls, loss=nn.CrossEntropyLoss())

class S2S(nn.Module):
    def __init__(self, bug):
        super().__init__(); self.bug = bug; self.src = nn.Embedding(V, 48); self.tgt = nn.Embedding(V + 1, 48); self.pos = nn.Embedding(12, 48); self.encoder = nn.GRU(48, 64, batch_first=True, bidirectional=True); self.decoder = nn.GRU(48, 64, batch_first=True)
        self.key = nn.Linear(128, 64); self.comb = nn.Linear(192, 64); self.out = nn.Linear(64, V)
    def forward(self, src, tgt_in):
        mem, _ = self.encoder(self.src(src) + self.pos.weight[:src.size(1)]); dec, _ = self.decoder(self.tgt(tgt_in) + self.pos.weight[:tgt_in.size(1)])
        e = torch.bmm(dec, self.key(mem).transpose(1, 2)); a = torch.softmax(e, 0 if self.bug else 2); ctx = torch.bmm(a, mem)
        return self.out(torch.tanh(self.comb(torch.cat([dec, ctx], -1))))
def s2s(i, B=48):
    g = torch.Generator().manual_seed(i); s = torch.randint(0, V, (B, 8), generator=g); y = PERM[2][s]; return (s, torch.cat([torch.full((B, 1), V), y[:, :-1]], 1)), y
@case("attention softmax over the batch (dim=0)", "key / encoder attention")
def seq2seq(bug): return dict(model=lambda: S2S(bug), data=s2s, loss=ce)

class BiEncoder(nn.Module):
    def __init__(self, bug):
        super().__init__(); self.bug = bug; self.q = nn.Sequential(nn.EmbeddingBag(200, 64), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 32)); self.d = nn.Sequential(nn.EmbeddingBag(200, 64), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 32)); self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / .07)))
    def forward(self, query, doc):
        q, d = F.normalize(self.q(query), dim=-1), F.normalize(self.d(doc), dim=-1); return q @ d.T * (1. if self.bug else self.logit_scale.exp())
def ret(i, B=32):
    g = torch.Generator().manual_seed(i); topic = torch.randint(0, 50, (B, 1), generator=g)
    return (topic * 4 + torch.randint(0, 4, (B, 4), generator=g), topic * 4 + torch.randint(0, 4, (B, 10), generator=g)), torch.arange(B)
def nce(s, y): return (F.cross_entropy(s, y) + F.cross_entropy(s.T, y)) / 2
@case("no temperature on normalised in-batch similarities (logits within ±1)", "output / logits")
def biencoder(bug): return dict(model=lambda: BiEncoder(bug), data=ret, loss=nce, diag=dict(per="batch"))

class Distill(nn.Module):
    def __init__(self, teacher, bug):
        super().__init__(); self.teacher = teacher.requires_grad_(False).eval(); self.student = nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    def forward(self, x):
        with torch.no_grad(): t = self.teacher(x)
        return self.student(x), t
def mk_distill(bug):
    def mk():
        torch.manual_seed(3); t = nn.Sequential(nn.Linear(20, 128), nn.ReLU(), nn.Linear(128, 10)); t[2].weight.data *= 8; torch.manual_seed(0); return Distill(t, bug)
    def kd(o, y, Tm=2.):
        s, t = o; return Tm * Tm * F.kl_div(F.log_softmax(s / Tm, 1), F.softmax(t / Tm, 1), reduction="batchmean") * .7 + .3 * F.cross_entropy(s, t.argmax(1))
    def kdbug(o, y, Tm=2.):
        s, t = o; return Tm * Tm * F.kl_div(F.softmax(s / Tm, 1), F.softmax(t / Tm, 1), reduction="batchmean") * .7
    return dict(model=mk, data=lambda i: (torch.randn(64, 20, generator=torch.Generator().manual_seed(i)), torch.zeros(64)), loss=kdbug if bug else kd)
@case("kl_div given softmax instead of log_softmax of the student", "student.5 / loss")
def distill(bug): return mk_distill(bug)

class RWKVTime(nn.Module):
    def __init__(self, d, bug):
        super().__init__(); self.bug = bug; self.time_decay = nn.Parameter(torch.linspace(-5, 1, d)); self.time_first = nn.Parameter(torch.full((d,), .3)); self.mix = nn.Parameter(torch.linspace(0, 1, d).repeat(3, 1)); self.key, self.value, self.receptance, self.output = [nn.Linear(d, d, bias=False) for _ in range(4)]; self.time_shift = nn.ZeroPad2d((0, 0, 1, -1))
    def forward(self, x):
        xx = self.time_shift(x); k, v, r = [f(x * m + xx * (1 - m)) for f, m in zip((self.key, self.value, self.receptance), self.mix)]; w = self.time_decay.exp() if self.bug else -self.time_decay.exp()
        num = torch.zeros_like(x[:, 0]); den = num.clone(); out = []
        for t in range(x.size(1)):
            e = (self.time_first + k[:, t]).exp(); out.append((num + e * v[:, t]) / (den + e)); num = w.exp() * num + k[:, t].exp() * v[:, t]; den = w.exp() * den + k[:, t].exp()
        return self.output(torch.sigmoid(r) * torch.stack(out, 1))
class RWKVChannel(nn.Module):
    def __init__(self, d): super().__init__(); self.key = nn.Linear(d, 2 * d, bias=False); self.value = nn.Linear(2 * d, d, bias=False); self.receptance = nn.Linear(d, d, bias=False)
    def forward(self, x): xx = F.pad(x, (0, 0, 1, -1)); return torch.sigmoid(self.receptance(xx)) * self.value(F.relu(self.key((x + xx) / 2)) ** 2)
class RWKV(nn.Module):
    def __init__(self, bug):
        super().__init__(); d = 64; self.emb = nn.Embedding(V, d); self.ln0 = nn.LayerNorm(d); self.blocks = nn.ModuleList(nn.ModuleList([nn.LayerNorm(d), RWKVTime(d, bug), nn.LayerNorm(d), RWKVChannel(d)]) for _ in range(2)); self.head = nn.Linear(d, V, bias=False)
    def forward(self, x):
        h = self.ln0(self.emb(x))
        for a, b, c, e in self.blocks: h = h + b(a(h)); h = h + e(c(h))
        return self.head(F.layer_norm(h, h.shape[-1:]))
@case("time decay sign lost: w=exp(exp(w)) grows the past", "blocks.*.time_decay")
def rwkv(bug): return dict(model=lambda: RWKV(bug), data=lm, loss=ce)

class Retention(nn.Module):
    def __init__(self, d, h, bug):
        super().__init__(); self.h = h; self.qkvg = nn.Linear(d, 4 * d, bias=False); self.o = nn.Linear(d, d, bias=False); self.gn = nn.GroupNorm(h, d); self.register_buffer("gamma", 1 - 2. ** (-1 - torch.arange(h).float())); self.bug = bug
    def forward(self, x, c, s):
        B, T, D = x.shape; q, k, v, g = self.qkvg(x).chunk(4, -1); q, k, v = [z.view(B, T, self.h, -1).transpose(1, 2) for z in (q, k, v)]; q, k = rot(q, c, s), rot(k, c, s) * (D // self.h) ** -.5
        i = torch.arange(T); e = (i[:, None] - i[None]).float(); e = -e if self.bug else e; dm = self.gamma[:, None, None] ** e.clamp(min=0 if not self.bug else -1e9) * (i[:, None] >= i[None]); y = (q @ k.transpose(-1, -2) * dm) @ v
        y = self.gn(y.transpose(1, 2).reshape(B * T, D)).view(B, T, D); return self.o(F.silu(g) * y)
class RetNet(nn.Module):
    def __init__(self, bug):
        super().__init__(); d = 64; self.emb = nn.Embedding(V, d); self.ret = nn.ModuleList(Retention(d, 4, bug) for _ in range(2)); self.ffn = nn.ModuleList(nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 128), nn.GELU(), nn.Linear(128, d)) for _ in range(2)); self.ln = nn.ModuleList(nn.LayerNorm(d) for _ in range(2)); self.head = nn.Linear(d, V); self.c, self.s = rope_tables(16, 64)
    def forward(self, x):
        h = self.emb(x); n = x.size(1)
        for r, f, l in zip(self.ret, self.ffn, self.ln): h = h + r(l(h), self.c[:n], self.s[:n]); h = h + f(h)
        return self.head(h)
@case("decay exponent sign flipped: gamma**(j-i), the remotest token weighs most", "ret.*")
def retnet(bug): return dict(model=lambda: RetNet(bug), data=lm, loss=ce)

class MambaBlock(nn.Module):
    def __init__(self, d, N=8, bug=False):
        super().__init__(); e = 2 * d; self.e, self.N, self.bug = e, N, bug; self.in_proj = nn.Linear(d, 2 * e, bias=False); self.conv1d = nn.Conv1d(e, e, 4, groups=e, padding=3); self.x_proj = nn.Linear(e, 4 + 2 * N, bias=False); self.dt_proj = nn.Linear(4, e); self.A_log = nn.Parameter(torch.arange(1, N + 1).float().log().repeat(e, 1)); self.D = nn.Parameter(torch.ones(e)); self.out_proj = nn.Linear(e, d, bias=False)
        dt = torch.exp(torch.rand(e) * (math.log(.1) - math.log(.001)) + math.log(.001)); self.dt_proj.bias.data = dt + torch.log(-torch.expm1(-dt)); nn.init.uniform_(self.dt_proj.weight, -.5, .5)
    def forward(self, u):
        B, L, _ = u.shape; x, z = self.in_proj(u).chunk(2, -1); x = F.silu(self.conv1d(x.transpose(1, 2))[..., :L]).transpose(1, 2); dt, Bm, Cm = self.x_proj(x).split([4, self.N, self.N], -1); dt = F.softplus(self.dt_proj(dt))
        A = self.A_log.exp() if self.bug else -self.A_log.exp(); h = x.new_zeros(B, self.e, self.N); ys = []
        for t in range(L): h = (dt[:, t, :, None] * A).exp() * h + (dt[:, t] * x[:, t])[..., None] * Bm[:, t, None]; ys.append((h * Cm[:, t, None]).sum(-1))
        return self.out_proj((torch.stack(ys, 1) + x * self.D) * F.silu(z))
class Mamba(nn.Module):
    def __init__(self, bug): super().__init__(); self.embedding = nn.Embedding(V, 48); self.layers = nn.ModuleList(MambaBlock(48, bug=bug) for _ in range(2)); self.norms = nn.ModuleList(RMSNorm(48) for _ in range(3)); self.lm_head = nn.Linear(48, V, bias=False); nn.init.normal_(self.embedding.weight, std=.02); self.lm_head.weight = self.embedding.weight
    def forward(self, input_ids):
        h = self.embedding(input_ids)
        for l, n in zip(self.layers, self.norms): h = h + l(n(h))
        return self.lm_head(self.norms[2](h))
@case("A = +exp(A_log): state grows", "layers.*.A_log")
def mamba(bug): return dict(model=lambda: Mamba(bug), data=lm, loss=ce)

class GLA(nn.Module):
    def __init__(self, d, h=2, bug=False):
        super().__init__(); self.h, self.bug = h, bug; self.q, self.k, self.v, self.g, self.o = [nn.Linear(d, d, bias=False) for _ in range(5)]; self.gk = nn.Sequential(nn.Linear(d, 8, bias=False), nn.Linear(8, d)); self.norm = RMSNorm(d // h)
    def forward(self, x):
        B, T, D = x.shape; sp = lambda z: z.view(B, T, self.h, -1); q, k, v = sp(self.q(x)) * (D // self.h) ** -.5, sp(self.k(x)), sp(self.v(x)); gk = sp(F.logsigmoid(self.gk(x)) / 16).exp(); S = x.new_zeros(B, self.h, D // self.h, D // self.h); o = []
        for t in range(T): S = S * (gk[:, t, ..., None] if not self.bug else (1 - gk[:, t, ..., None])) + k[:, t, ..., None] * v[:, t, ..., None, :]; o.append(torch.einsum("bhd,bhde->bhe", q[:, t], S))
        return self.o(self.norm(torch.stack(o, 1)).reshape(B, T, D) * F.silu(self.g(x)))
class XL(nn.Module):  # sLSTM with exponential gating and stabiliser
    def __init__(self, d): super().__init__(); self.W = nn.Linear(d, 4 * d); self.R = nn.Linear(d, 4 * d, bias=False); self.gn = nn.GroupNorm(4, d); self.W.bias.data[d:2 * d] = torch.linspace(3, 6, d)
    def forward(self, x):
        B, T, d = x.shape; h = c = n = x.new_zeros(B, d); m = x.new_zeros(B, d); out = []
        for t in range(T):
            i, f, z, o = (self.W(x[:, t]) + self.R(h)).chunk(4, -1); lf = F.logsigmoid(f); m2 = torch.maximum(lf + m, i); ip, fp = (i - m2).exp(), (lf + m - m2).exp(); m = m2; c = fp * c + ip * z.tanh(); n = fp * n + ip; h = o.sigmoid() * c / n.clamp(min=1e-6); out.append(h)
        return self.gn(torch.stack(out, 1).flatten(0, 1)).view(B, T, d)
class RecLM(nn.Module):
    def __init__(self, mk): super().__init__(); d = 48; self.wte = nn.Embedding(V, d); self.blocks = nn.ModuleList(nn.ModuleDict({"ln": nn.LayerNorm(d), "mixer": mk(d), "ffn": nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 96), nn.GELU(), nn.Linear(96, d))}) for _ in range(2)); self.ln_f = nn.LayerNorm(d); self.head = nn.Linear(d, V, bias=False)
    def forward(self, idx):
        h = self.wte(idx)
        for b in self.blocks: h = h + b["mixer"](b["ln"](h)); h = h + b["ffn"](h)
        return self.head(self.ln_f(h))
@case("state multiplied by (1 - gate), so the past is forgotten at once", "blocks.*.mixer.gk")
def gla(bug): return dict(model=lambda: RecLM(lambda d: GLA(d, bug=bug)), data=lm, loss=ce)
@case()
def xlstm(bug): return dict(model=lambda: RecLM(XL), data=lm, loss=ce)
if __name__ == "__main__": main()
