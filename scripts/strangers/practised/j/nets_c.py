from base import *
from nets_a import mlp, vec, imgs, bce, bcel
def qkdata(B=32, L=6, D=16):
    # a query picks the context row whose key matches; label from its value
    K = T(3, 8, 8)
    def data(s):
        kid = torch.stack([torch.randperm(8, generator=gen(s * 31 + i))[:L] for i in range(B)]); v = R(s + 1, 4, (B, L)); j = R(s + 2, L, (B,)); i = torch.arange(B)
        ctx = torch.cat([K[kid], F.one_hot(v, 4).float() * 2, torch.zeros(B, L, D - 12)], -1); return (K[kid[i, j]], ctx), v[i, j]
    return data

@case("https://github.com/PetrochukM/PyTorch-NLP/issues/2", "attention softmax over dim 0, the batch, instead of the context", "attention softmax")
def ptnlp_softmax(bug):
    def f(m, q, c):
        s = (m.k(c) @ m.q(q)[:, :, None])[..., 0]; w = s.softmax(0 if bug else -1); x = (w[:, None] @ c)[:, 0]; return m.o(torch.tanh(m.l(torch.cat([x, q], -1))))
    return dict(model=lambda: M(f, q=nn.Linear(8, 16, bias=False), k=nn.Linear(16, 16, bias=False), l=nn.Linear(24, 64), o=nn.Linear(64, 4)), data=qkdata(), loss=ce, diag=CE)

@case("https://github.com/phanideepgampa/stacked-capsule-networks/pull/5", "softmax over an axis of length 1: attention is constant 1", "attention softmax")
def caps_softmax1(bug):
    def data(s):
        x = T(s, 32, 40, 8, k=.7); t = R(s + 1, 4, (32,)); j = R(s + 2, 40, (32,)); i = torch.arange(32); x[i, j, 0] = 5.; x[i, j, 1:5] = F.one_hot(t, 4).float() * 4 - 1; return x, t
    def f(m, x): w = m.a(torch.tanh(m.p(x))).softmax(2 if bug else 1); return m.o((w * m.v(x)).sum(1))
    return dict(model=lambda: M(f, p=nn.Linear(8, 32), a=nn.Linear(32, 1), v=nn.Linear(8, 32), o=nn.Linear(32, 4)), data=data, loss=ce, diag=CE)

@case("https://github.com/DeepReinforcementLearning/DeepReinforcementLearningInAction/issues/32", "policy softmax over the batch (dim 0)", "softmax")
def drl_dim0(bug):
    def data(s): x = T(s, 64, 4); a = R(s + 1, 2, (64,)); r = torch.where((x[:, 2] + x[:, 3] > 0).long() == a, 1., .1); return x, (a, r)
    def loss(o, t): return -(o.gather(1, t[0][:, None])[:, 0].log() * t[1]).mean()
    return dict(model=lambda: M(lambda m, x: m.n(x).softmax(0 if bug else 1), n=mlp(4, 150, 2, act=nn.LeakyReLU)), data=data, loss=loss)

@case("https://github.com/speechbrain/speechbrain/issues/1396", "features detached before the encoder: front end gets no gradient", "front end")
def sb_detach(bug):
    fr = T(4, 10).abs() * .8 + .2
    def data(s): t = R(s, 10, (32,)); n = torch.arange(400.) ; return torch.sin(fr[t][:, None] * n + T(s + 1, 32, 1) * 3)[:, None] + .5 * T(s + 2, 32, 1, 400), t
    def f(m, x): h = m.fe(x).square(); h = h.detach() if bug else h; return m.o(m.enc(h).relu().mean(-1))
    return dict(model=lambda: M(f, fe=nn.Conv1d(1, 12, 40, 10), enc=nn.Conv1d(12, 32, 3), o=nn.Linear(32, 10)), data=data, loss=ce, diag=CE)

@case("https://github.com/tanatosuu/GDE/issues/3", "log of the score difference without the sigmoid: NaN", "loss/log")
def gde_bpr(bug):
    A, Bm = T(2, 12, 4), T(3, 15, 4)
    def data(s):
        u = R(s, 12, (128,)); i, j = R(s + 1, 15, (128,)), R(s + 2, 15, (128,)); w = (A[u] * Bm[i]).sum(1) < (A[u] * Bm[j]).sum(1); i, j = torch.where(w, j, i), torch.where(w, i, j)
        return (u, i, j), torch.ones(128)
    def f(m, u, i, j): return (m.u(u) * m.i(i)).sum(1) - (m.u(u) * m.i(j)).sum(1)
    def loss(o, t): return -(o if bug else o.sigmoid()).log().mean()
    def mk(): m = M(f, u=nn.Embedding(12, 16), i=nn.Embedding(15, 16)); nn.init.normal_(m.u.weight, std=.3); nn.init.normal_(m.i.weight, std=.3); return m
    return dict(model=mk, data=data, loss=loss)

def lm(V=40, L=16, B=16):
    P = torch.randperm(V, generator=gen(8))
    def data(s):
        x = [R(s, V, (B,))]; n = torch.rand(L, B, generator=gen(s + 1)); r = R(s + 2, V, (L, B))
        for i in range(L): x.append(torch.where(n[i] < .15, r[i], P[x[-1]]))
        x = torch.stack(x, 1); return x[:, :-1], x[:, 1:]
    return data
@case("https://github.com/facebookresearch/fairseq/issues/47", "embeddings multiplied by sqrt(512) without a norm: loss explodes", "embedding")
def fconv_scale(bug):
    def f(m, x):
        h = m.e(x) + m.p.weight[:x.shape[1]]; h = m.i(h).transpose(1, 2)
        for c in m.cs: a, b = c(F.pad(h, (2, 0))).chunk(2, 1); h = (h + a * b.sigmoid()) * math.sqrt(.5)
        return m.o(h.transpose(1, 2))
    def mk():
        e, p = nn.Embedding(40, 256), nn.Embedding(16, 256)
        for w in (e, p): nn.init.normal_(w.weight, std=.1 * (22.6 if bug else 1))
        return M(f, e=e, p=p, i=nn.Linear(256, 64), cs=nn.ModuleList(nn.Conv1d(64, 128, 3) for _ in range(4)), o=nn.Linear(64, 40))
    return dict(model=mk, data=lm(), loss=ceseq, diag=SEQ)

@case("https://github.com/fastai/fastai/pull/2090", "init skips the embedding: std 1 with tied output weights, loss starts at 95", "embedding (tied)")
def tied_std1(bug):
    def f(m, x): return F.linear(m.n(m.g(m.e(x) )[0]), m.e.weight)
    def mk():
        e = nn.Embedding(40, 256); nn.init.normal_(e.weight, std=1. if bug else .02)
        return M(f, e=e, g=nn.GRU(256, 256, batch_first=True), n=nn.LayerNorm(256))
    return dict(model=mk, data=lm(), loss=ceseq, diag=SEQ)

@case("https://github.com/espnet/espnet/issues/3454", "embedding of variance 1 scaled by sqrt(d): drowns the positions", "embedding")
def espnet_embed(bug):
    d = 64; pos = torch.arange(12.)[:, None]; k = torch.exp(torch.arange(0, d, 2) * -(math.log(1e4) / d)); PE = torch.zeros(12, d); PE[:, ::2] = torch.sin(pos * k); PE[:, 1::2] = torch.cos(pos * k)
    def data(s): x = R(s, 10, (32, 12)); y = x.clone(); y[:, 1:] = x[:, :-1]; return x, y
    def f(m, x): h = m.e(x) * math.sqrt(d) + m.PE; return m.o(m.t(h))
    def mk():
        e = nn.Embedding(10, d)
        if not bug: nn.init.normal_(e.weight, std=d ** -.5)
        return M(f, e=e, PE=PE, t=nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 128, 0., batch_first=True, norm_first=True), 2, enable_nested_tensor=False), o=nn.Linear(d, 10))
    return dict(model=mk, data=data, loss=ceseq, diag=SEQ)

@case("https://github.com/catalyst-team/catalyst/pull/285", "attention pooling normalised over the wrong axis: weights all 1", "attention softmax")
def lama_pool(bug):
    def data(s):
        x = T(s, 64, 4, 10); b = R(s + 1, 4, (64,)); i = torch.arange(64); x[..., 0] = 0; x[i, b, 0] = 3; return x, x[i, b, 1:3] * 2
    def f(m, x):
        sc = m.c(x.transpose(1, 2)); w = sc.softmax(1 if bug else 2); return m.o((w * x.transpose(1, 2)).sum(-1))
    return dict(model=lambda: M(f, c=nn.Conv1d(10, 1, 1), o=mlp(10, 64, 2)), data=data, loss=mse)

@case("https://github.com/PacktPublishing/Tensorflow-2-Reinforcement-Learning-Cookbook/pull/46", "log prob summed over the batch as well: entropy swamps the critic", "loss/log_prob")
def sac_sum(bug):
    W = T(3, 6, 2)
    def data(s): x = T(s, 128, 6); return x, torch.tanh(x @ W)
    def f(m, x): mu, ls = m.n(x).chunk(2, -1); ls = ls.clamp(-5, 2); e = torch.randn(mu.shape); u = mu + ls.exp() * e; a = torch.tanh(u); return a, (-.5 * e ** 2 - ls - (1 - a ** 2 + 1e-6).log())
    def loss(o, t): a, lp = o; lp = lp.sum() if bug else lp.sum(1); return (.05 * lp + 5 * (a - t).square().sum(1)).mean()
    return dict(model=lambda: M(f, n=mlp(6, 64, 4)), data=data, loss=loss)

@case("https://github.com/mindspore-lab/mindone/pull/955", "all linear weights zero instead of Xavier", "all linears")
def mind_zero(bug):
    K = qkdata()
    def f(m, q, c):
        a = ((m.k(c) @ m.q(q)[:, :, None])[..., 0] / 4).softmax(-1); h = m.p(torch.cat([(a[:, None] @ m.v(c))[:, 0], q], -1)); return m.o(m.ff(h).relu())
    def mk():
        m = M(f, q=nn.Linear(8, 16), k=nn.Linear(16, 16), v=nn.Linear(16, 16), p=nn.Linear(24, 32), ff=nn.Linear(32, 64), o=nn.Linear(64, 4))
        for l in (m.q, m.k, m.v, m.p, m.ff, m.o): nn.init.zeros_(l.bias); nn.init.zeros_(l.weight) if bug else nn.init.xavier_uniform_(l.weight)
        return m
    return dict(model=mk, data=K, loss=ce, diag=CE)

@case("https://github.com/LianpoWang/SLIIF/issues/13", "sub-networks in a plain list: never registered nor trained", "mlps")
def sliif_list(bug):
    def data(s): x = torch.rand(128, 2, generator=gen(s)) * 2 - 1; return x, torch.cat([torch.sin(3 * x[:, :1]) * x[:, 1:], torch.cos(4 * x[:, :1] + x[:, 1:])], 1)
    def f(m, x):
        h = m.c(x)
        for l in m.l: h = h + .5 * l(h)
        return m.o(h)
    def mk():
        l = [mlp(4, 32, 4) for _ in range(5)]; return M(f, c=nn.Linear(2, 4), l=l if bug else nn.ModuleList(l), o=nn.Linear(4, 2))
    return dict(model=mk, data=data, loss=mse)

def graph(N=80, C=4, p=.12, hub=0, s0=11, self_feat=False):
    g = gen(s0); lab = torch.randint(0, C, (N,), generator=g); same = lab[:, None] == lab; A = (torch.rand(N, N, generator=g) < torch.where(same, p * 2.5, p * .2)).float(); A = ((A + A.T) > 0).float(); A.fill_diagonal_(0)
    if hub: A[:hub] = 1; A[:, :hub] = 1; A.fill_diagonal_(0)
    return A, lab
@case("https://github.com/dmlc/dgl/pull/249", "no degree normalisation in the graph convolution", "aggregation")
def gcn_nonorm(bug):
    A, lab = graph(hub=4, p=.2); A1 = A + torch.eye(80); d = A1.sum(1) ** -.5; An = A1 if bug else d[:, None] * A1 * d
    mu = T(12, 4, 16)
    def data(s): return (mu[lab] * .5 + T(s, 80, 16)), lab
    def f(m, x): h = (m.A @ m.a(x)).relu(); h = (m.A @ m.b(h)).relu(); return m.A @ m.c(h)
    return dict(model=lambda: M(f, A=An, a=nn.Linear(16, 32), b=nn.Linear(32, 32), c=nn.Linear(32, 4)), data=data, loss=ce, diag=dict(loss="cross-entropy", examples="one"))

@case("https://github.com/danielegrattarola/keras-gat/issues/11", "no self loops: a node's own features are masked away", "attention mask")
def gat_noself(bug):
    A, _ = graph(p=.03); m0 = A > 0 if bug else (A + torch.eye(80)) > 0; W = T(5, 12, 4)
    def data(s): x = T(s, 80, 12); return x, (x @ W).argmax(1)
    def f(m, x):
        for w, l, r in ((m.w1, m.l1, m.r1), (m.w2, m.l2, m.r2)):
            h = w(x); e = F.leaky_relu(l(h) + r(h).T, .2).masked_fill(~m.A, -1e9); x = e.softmax(-1) @ h; x = F.elu(x) if w is m.w1 else x
        return x
    return dict(model=lambda: M(f, A=m0, w1=nn.Linear(12, 32), l1=nn.Linear(32, 1), r1=nn.Linear(32, 1), w2=nn.Linear(32, 4), l2=nn.Linear(4, 1), r2=nn.Linear(4, 1)), data=data, loss=ce, diag=dict(loss="cross-entropy", examples="one"))

@case("https://github.com/pyg-team/pytorch_geometric/issues/224", "attention softmax over the source's edges instead of the target's", "attention softmax")
def gat_src(bug):
    A, _ = graph(hub=3); m0 = (A + torch.eye(80)) > 0; mf = m0.float()
    def data(s): x = T(s, 80, 12); return x, ((mf @ x[:, :2]) / mf.sum(1, keepdim=True)) * 4
    def f(m, x):
        h = m.w(x).relu(); e = F.leaky_relu(m.l(h) + m.r(h).T, .2).masked_fill(~m.A, -1e9); return m.o(e.softmax(0 if bug else 1) @ h)
    return dict(model=lambda: M(f, A=m0, w=nn.Linear(12, 32), l=nn.Linear(32, 1), r=nn.Linear(32, 1), o=nn.Linear(32, 2)), data=data, loss=mse, diag=dict(loss="mse", examples="one"))

@case("https://github.com/sooftware/kospeech/issues/37", "mask of -inf over rows without any key: NaN", "attention mask")
def inf_rows(bug):
    def data(s): x = R(s, 10, (16, 12)); n = R(s + 1, 9, (16,)); n[0] = 0; return (x, torch.arange(12) < n[:, None]), (x + x[:, :1]) % 10
    def f(m, x, mask):
        h = m.e(x) + m.p; q, k, v = m.q(h).chunk(3, -1); s = q @ k.transpose(1, 2) / 32 ** .5; w = s.masked_fill(~mask[:, None], -math.inf if bug else -1e9).softmax(-1); return m.o(torch.cat([h, w @ v, h[:, :1].expand_as(h)], -1))
    return dict(model=lambda: M(f, e=nn.Embedding(10, 32), p=nn.Parameter(T(9, 12, 32, k=.3)), q=nn.Linear(32, 96), o=mlp(96, 128, 10)), data=data, loss=ceseq, diag=SEQ)

@case("https://github.com/huggingface/pytorch-image-models/pull/2236", "-inf mask applied after the softmax", "attention mask")
def eva_mask(bug):
    def data(s):
        x = T(s, 16, 10, 16, k=.5); t = R(s + 1, 4, (16,)); n = R(s + 2, 6, (16,)) + 3; x[:, 0, :4] += F.one_hot(t, 4).float() * 3; return (x, torch.arange(10) < n[:, None]), t
    def f(m, x, mask):
        q, k, v = m.q(x).chunk(3, -1); s = q @ k.transpose(1, 2) / 4
        w = s.softmax(-1).masked_fill(~mask[:, None], -math.inf) if bug else s.masked_fill(~mask[:, None], -math.inf).softmax(-1)
        return m.o((x + w @ v)[:, 0])
    return dict(model=lambda: M(f, q=nn.Linear(16, 48), o=nn.Linear(16, 4)), data=data, loss=ce, diag=CE)

@case("https://github.com/somijeong/MGUIT/issues/2", "NLL of the softmax itself, without its log", "loss")
def nll_nolog(bug):
    tm = T(3, 64, 20)
    def data(s): k = torch.randperm(64, generator=gen(s))[:32]; return (tm[k] + .4 * T(s + 1, 32, 20), tm[k] @ T(9, 20, 20) * .3 + .4 * T(s + 2, 32, 20)), torch.arange(32)
    def f(m, a, b): return (F.normalize(m.a(a), dim=-1) @ F.normalize(m.b(b), dim=-1).T / .07).softmax(-1)
    def loss(o, t): return torch.exp(F.nll_loss(o, t)) if bug else F.nll_loss((o + 1e-9).log(), t)
    return dict(model=lambda: M(f, a=mlp(20, 64, 32), b=mlp(20, 64, 32)), data=data, loss=loss)

@case("https://github.com/ustcllm/RecStudio/issues/21", "no temperature in InfoNCE of normalised features", "similarity")
def nce_T(bug):
    tm = T(3, 64, 20)
    def data(s): k = torch.randperm(64, generator=gen(s))[:32]; return (tm[k] + .4 * T(s + 1, 32, 20), tm[k] @ T(9, 20, 20) * .3 + .4 * T(s + 2, 32, 20)), torch.arange(32)
    def f(m, a, b): return F.normalize(m.a(a), dim=-1) @ F.normalize(m.b(b), dim=-1).T / (1 if bug else .1)
    return dict(model=lambda: M(f, a=mlp(20, 64, 32), b=mlp(20, 64, 32)), data=data, loss=ce, diag=CE)

@case("https://github.com/giovcandido/prototypical-networks/issues/5", "squared distances of wide embeddings as logits, unscaled (x0.01 repairs)", "distance")
def proto_scale(bug):
    P = T(3, 30, 1, 10, 10)
    def data(s):
        k = torch.randperm(30, generator=gen(s))[:5]; return (P[k].repeat(2, 1, 1, 1) + 1.2 * T(s + 1, 10, 1, 10, 10), P[k].repeat(6, 1, 1, 1) + 1.2 * T(s + 2, 30, 1, 10, 10)), torch.arange(5).repeat(6)
    def f(m, a, b): p = m.n(a).view(2, 5, -1).mean(0); q = m.n(b); return -torch.cdist(q, p).square() * (1 if bug else .01)
    return dict(model=lambda: M(f, n=nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.Flatten())), data=data, loss=ce, diag=CE)

@case("https://github.com/liuhu-bigeye/enctc.crnn/issues/9", "CTC blank taken as 0 whereas the last class is blank and 0 is a label", "loss/blank")
def ctc_blank(bug):
    E = T(3, 6, 8)
    def data(s):
        t = R(s, 6, (16, 5)); x = E[t].repeat_interleave(3, 1) + .4 * T(s + 1, 16, 15, 8); return x, t
    def loss(o, t): return F.ctc_loss(o.log_softmax(-1).transpose(0, 1), t, torch.full((len(t),), 15), torch.full((len(t),), 5), blank=0 if bug else 6, zero_infinity=True)
    return dict(model=lambda: M(lambda m, x: m.o(m.r(x)[0]), r=nn.GRU(8, 32, batch_first=True, bidirectional=True), o=nn.Linear(64, 7)), data=data, loss=loss)

@case("https://github.com/ddbourgin/numpy-ml/issues/42", "forget and update gates use the output gate's bias", "bf, bu")
def lstm_bias(bug):
    def data(s): x = T(s, 32, 15, 4); return x, (x[:, 0, :2] > 0).long() @ torch.tensor([1, 2])
    def f(m, x):
        h = c = torch.zeros(len(x), 24)
        for t in range(x.shape[1]):
            z = torch.cat([h, x[:, t]], 1); bf, bu = (m.bo, m.bo) if bug else (m.bf, m.bu)
            i, fo, o = (F.linear(z, w, b).sigmoid() for w, b in ((m.wu, bu), (m.wf, bf), (m.wo, m.bo))); c = fo * c + i * torch.tanh(F.linear(z, m.wc, m.bc)); h = o * torch.tanh(c)
        return m.y(h)
    P = nn.Parameter
    return dict(model=lambda: M(f, wu=P(T(1, 24, 28, k=.2)), wf=P(T(2, 24, 28, k=.2)), wo=P(T(3, 24, 28, k=.2)), wc=P(T(4, 24, 28, k=.2)), bf=P(torch.full((24,), 2.)), bu=P(torch.zeros(24)), bo=P(torch.zeros(24)), bc=P(torch.zeros(24)), y=nn.Linear(24, 4)), data=data, loss=ce, diag=CE)

@case("https://github.com/TFboys-lzz/MPSCL/issues/2", "sine = sqrt(1 - cos^2) unclamped: infinite gradient or NaN at cos 1", "loss/sqrt")
def arc_sqrt(bug):
    W = torch.cat([torch.eye(6) * 2, torch.zeros(6, 6)], 1)
    def data(s): t = R(s, 6, (32,)); x = W[t] + .3 * T(s + 1, 32, 12); x[:, 6:] *= 7; x[:8] = W[t[:8]]; return x, t
    def f(m, x): return F.normalize(m.n(x) + x, dim=-1) @ F.normalize(m.w, dim=-1).T
    def loss(c, t):
        s = 1 - c ** 2; s = s.clamp(min=0).sqrt() if bug else s.clamp(1e-4, 1).sqrt(); ph = c * math.cos(.3) - s * math.sin(.3); return F.cross_entropy(8 * torch.where(F.one_hot(t, 6) > 0, ph, c), t)
    def mk():
        n = nn.Linear(12, 12, bias=False); nn.init.zeros_(n.weight); return M(f, n=n, w=nn.Parameter(W.clone()))
    return dict(model=mk, data=data, loss=loss)

@case("https://github.com/kmkurn/pytorch-crf/issues/1", "CRF transitions from uninitialised memory: NaN", "transitions")
def crf_uninit(bug):
    E = T(3, 5, 8)
    def data(s):
        t = [R(s, 5, (16,))]; u = R(s + 1, 2, (10, 16))
        for i in range(9): t.append((t[-1] + 1 + u[i]) % 5)
        t = torch.stack(t, 1); return (E[t] * .6 + T(s + 2, 16, 10, 8), t), torch.zeros(16)
    def f(m, x, t):
        e = m.o(m.r(x)[0]); sc = e.gather(2, t[..., None]).sum((1, 2)) + m.tr[t[:, :-1], t[:, 1:]].sum(1); a = e[:, 0]
        for i in range(1, 10): a = torch.logsumexp(a[:, :, None] + m.tr + e[:, i, None], 1)
        return torch.logsumexp(a, 1) - sc
    def mk():
        tr = torch.zeros(5, 5).uniform_(-.1, .1)
        if bug: tr.view(-1)[::2] = torch.tensor([1e-38, math.nan, 4e20, 0., -3e31, 1e-41, 0., 2e12, math.nan, 0., 1e33, 0, 0])
        return M(f, r=nn.GRU(8, 16, batch_first=True), o=nn.Linear(16, 5), tr=nn.Parameter(tr))
    return dict(model=mk, data=data, loss=lambda o, t: o.mean())

@case("https://github.com/maciejkula/spotlight/issues/185", "1 - sigmoid as ranking loss instead of -log sigmoid: gradient vanishes for badly ranked pairs", "loss")
def spot_bpr(bug):
    A, Bm = T(2, 12, 4), T(3, 15, 4)
    def data(s):
        u = R(s, 12, (128,)); i, j = R(s + 1, 15, (128,)), R(s + 2, 15, (128,)); w = (A[u] * Bm[i]).sum(1) < (A[u] * Bm[j]).sum(1); i, j = torch.where(w, j, i), torch.where(w, i, j); return (u, i, j), torch.ones(128)
    def f(m, u, i, j): return (m.u(u) * (m.i(i) - m.i(j))).sum(1)
    def loss(o, t): return (1 - o.sigmoid()).mean() if bug else -F.logsigmoid(o).mean()
    return dict(model=lambda: M(f, u=nn.Embedding(12, 32), i=nn.Embedding(15, 32)), data=data, loss=loss)
