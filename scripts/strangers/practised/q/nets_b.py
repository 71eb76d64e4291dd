from mods import *
def ema_task(seed, B=32, T=24, D=4):        # a slow nonlinear memory of the inputs
    x = T_(seed, B, T, D); w = T_(11, D, 3); u = torch.tanh(x @ w); h = torch.zeros(B, 3); out = []
    for t in range(T): h = .8 * h + .6 * u[:, t]; out.append(h)
    return x, torch.stack(out, 1)
class LRU(nn.Module):
    def __init__(s, d, N=24, planted=False):
        super().__init__(); u1, u2 = torch.rand(N), torch.rand(N); s.nu = nn.Parameter(torch.log(-.5 * torch.log(u1 * (.99 ** 2 - .5 ** 2) + .5 ** 2))); s.theta = nn.Parameter(torch.log(6.28 * u2 / 20))
        lam = torch.exp(-torch.exp(s.nu)); s.gamma = nn.Parameter(torch.log(torch.sqrt(1 - lam.detach() ** 2)))
        s.Br, s.Bi = (nn.Parameter(torch.randn(N, d) / (2 * d) ** .5) for _ in range(2)); s.Cr, s.Ci = (nn.Parameter(torch.randn(d, N) / N ** .5) for _ in range(2)); s.D = nn.Parameter(torch.randn(d)); s.planted = planted
    def forward(s, x):
        m = torch.exp(-torch.exp(s.nu)); ph = torch.exp(s.theta); lr, li = m * ph.cos(), m * ph.sin(); g = s.gamma.exp()
        ur, ui = x @ s.Br.T * g, x @ s.Bi.T * g; hr = torch.zeros_like(ur[:, 0]); hi = hr; out = []
        for t in range(x.shape[1]):
            a, b = lr * hr - li * hi, lr * hi + li * hr
            if s.planted: a, b = a.sum(-1, keepdim=True), b.sum(-1, keepdim=True)
            hr, hi = a + ur[:, t], b + ui[:, t]; out.append(hr @ s.Cr.T - hi @ s.Ci.T)
        return torch.stack(out, 1) + x * s.D
class SeqNet(nn.Module):
    def __init__(s, cell, d=32, L=2, i=4, o=3):
        super().__init__(); s.enc = nn.Linear(i, d); s.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(L)); s.cells = nn.ModuleList(cell(d) for _ in range(L)); s.ff = nn.ModuleList(mlp(d, 2) for _ in range(L)); s.head = nn.Linear(d, o)
    def forward(s, x):
        x = s.enc(x)
        for n, c, f in zip(s.norms, s.cells, s.ff): x = x + f(c(n(x)))
        return s.head(x)
@case("https://github.com/Gothos/LRU-pytorch/pull/2", "dot product Lambda @ state collapses the diagonal recurrence to one scalar", "cells (recurrence)")
def lru_dot(planted):
    return dict(model=lambda: SeqNet(lambda d: LRU(d, planted=planted)), data=ema_task, loss=mse, diag=dict(MSE))

class SLSTM(nn.Module):
    def __init__(s, d, planted=False):
        super().__init__(); s.planted = planted; s.d = d
        if planted: s.lstm = nn.LSTMCell(d, d); s.f_gate, s.i_gate = nn.Linear(d, d), nn.Linear(d, d)
        else: s.W = nn.Linear(d, 4 * d); s.Rr = nn.Linear(d, 4 * d, bias=False); nn.init.zeros_(s.W.bias); nn.init.constant_(s.W.bias.data[d:2 * d], 2.)
    def forward(s, x):
        B, T, d = x.shape; z = x.new_zeros(B, d); h = c = n = z; m = z; out = []
        for t in range(T):
            if s.planted:
                h, c = s.lstm(x[:, t], (h, c)); f = torch.exp(s.f_gate(h)); i = torch.exp(s.i_gate(h)); c = f * c + i * z
            else:
                i, f, g, o = (s.W(x[:, t]) + s.Rr(h)).chunk(4, -1); f = F.logsigmoid(f); mn = torch.maximum(f + m, i); ie, fe = torch.exp(i - mn), torch.exp(f + m - mn); m = mn
                c = fe * c + ie * torch.tanh(g); n = fe * n + ie; h = torch.sigmoid(o) * c / n
            out.append(h)
        return torch.stack(out, 1)
@case("https://github.com/muditbhargava66/PyxLSTM/issues/15", "sLSTM without stabiliser and normaliser state: c = exp(f) c + exp(i) * 0", "cells (exp gates)")
def slstm_no_stabilizer(planted):
    return dict(model=lambda: SeqNet(lambda d: SLSTM(d, planted)), data=ema_task, loss=mse, diag=dict(MSE))

class MLSTM(nn.Module):
    def __init__(s, d, planted=False):
        super().__init__(); s.q, s.k, s.v, s.o = (nn.Linear(d, d) for _ in range(4)); s.i, s.f = nn.Linear(d, 1), nn.Linear(d, 1); nn.init.constant_(s.f.bias, 3.); s.planted, s.d = planted, d
    def forward(s, x):
        B, T, d = x.shape; q, k, v, o = s.q(x), s.k(x) * d ** -.5, s.v(x), torch.sigmoid(s.o(x)); C = x.new_zeros(B, d, d); n = x.new_zeros(B, d); m = x.new_zeros(B, 1); out = []
        for t in range(T):
            i, f = s.i(x[:, t]), s.f(x[:, t])
            if s.planted: ie, fe = torch.exp(i), torch.exp(f)
            else: f = F.logsigmoid(f); mn = torch.maximum(f + m, i); ie, fe = torch.exp(i - mn), torch.exp(f + m - mn); m = mn
            C = fe[..., None] * C + ie[..., None] * v[:, t, :, None] * k[:, t, None]; n = fe * n + ie * k[:, t]; h = (C @ q[:, t, :, None])[..., 0]
            if not s.planted: h = h / torch.maximum((n * q[:, t]).sum(-1, keepdim=True).abs(), torch.exp(-m))
            out.append(o[:, t] * h)
        return torch.stack(out, 1)
@case("https://github.com/muditbhargava66/PyxLSTM/issues/27", "mLSTM without normaliser (n) and stabiliser state", "cells (exp gates)")
def mlstm_no_normalizer(planted):
    return dict(model=lambda: SeqNet(lambda d: MLSTM(d, planted)), data=ema_task, loss=mse, diag=dict(MSE))

# a "pretrained" MLP 16 -> 32 -> 32 -> 6 with frozen weights, to be adapted to a teacher near it
DIMS = [(32, 16), (32, 32), (6, 32)]
def W0(i): o, n = DIMS[i]; return T_(40 + i, o, n) * 2.5 / n ** .5
def adapted(seed, kind, B=64):
    x = T_(seed, B, 16); h = x
    for i, (o, n) in enumerate(DIMS):
        W = W0(i)
        if kind == "lowrank": W = W + 1.2 * T_(50 + i, o, 2) @ T_(60 + i, 2, n) / (2 * n) ** .5
        else: W = W * (.3 + 1.4 * torch.rand(o, 1, generator=gen(70 + i)))
        h = h @ W.T
        if i < 2: h = torch.tanh(h * .5)
    return x, h
class Adapted(nn.Module):
    def __init__(s, make): super().__init__(); s.layers = nn.ModuleList(make(i) for i in range(3))
    def forward(s, x):
        for i, l in enumerate(s.layers): x = l(x); x = torch.tanh(x * .5) if i < 2 else x
        return x
class LoRA(nn.Module):
    def __init__(s, i, r=4, randB=False, dora=None):
        super().__init__(); o, n = DIMS[i]; s.base = nn.Linear(n, o, bias=False); rnd = s.base.weight.detach().clone(); s.base.weight.data.copy_(W0(i)); s.base.weight.requires_grad_(False)
        s.lora_A = nn.Parameter(torch.empty(r, n)); nn.init.kaiming_uniform_(s.lora_A, a=5 ** .5); s.lora_B = nn.Parameter(torch.zeros(o, r)); s.sc = 2.
        if randB: nn.init.kaiming_uniform_(s.lora_B, a=5 ** .5)
        s.m = None
        if dora: s.m = nn.Parameter((rnd if dora == "random" else W0(i)).norm(dim=1), requires_grad=dora != "frozen")
    def forward(s, x):
        if s.m is None: return s.base(x) + s.sc * (x @ s.lora_A.T @ s.lora_B.T)
        W = s.base.weight + s.sc * s.lora_B @ s.lora_A; return x @ (W * (s.m / W.norm(dim=1).detach())[:, None]).T
@case("https://github.com/ml-explore/mlx-examples/issues/832", "DoRA's magnitude m is computed from the randomly drawn layer, not from the adapted weight", "layers.m")
def dora_m_random(planted):
    return dict(model=lambda: Adapted(lambda i: LoRA(i, dora="random" if planted else "yes")), data=lambda s: adapted(s, "lowrank"), loss=mse, diag=dict(MSE))
@case("https://github.com/meta-pytorch/torchtune/issues/2250", "DoRA's magnitude is no longer trainable", "layers.m")
def torchtune_dora_frozen(planted):
    return dict(model=lambda: Adapted(lambda i: LoRA(i, dora="frozen" if planted else "yes")), data=lambda s: adapted(s, "rows"), loss=mse, diag=dict(MSE))
@case("https://github.com/hao-ai-lab/FastVideo/pull/781", "lora_B drawn kaiming-uniform instead of zero", "layers.lora_B")
def lora_b_random(planted):
    return dict(model=lambda: Adapted(lambda i: LoRA(i, randB=planted)), data=lambda s: adapted(s, "lowrank"), loss=mse, diag=dict(MSE))

class HQQ(LoRA):
    planted = False
    def forward(s, x):
        W = s.base.weight + s.sc * s.lora_B @ s.lora_A; lo, hi = W.detach().amin(1, keepdim=True), W.detach().amax(1, keepdim=True); sc = (hi - lo) / 63
        q = (W - lo) / sc; r = q.round()
        if not s.planted: r = q + (r - q).detach()
        return x @ (r * sc + lo).T
@case("https://github.com/dropbox/hqq/issues/84", "torch.round without straight-through estimator in HQQLinearLoRAWithFakeQuant", "layers.lora_A / lora_B (round)")
def hqq_round(planted):
    def mk(i): l = HQQ(i); l.planted = planted; return l
    return dict(model=lambda: Adapted(mk), data=lambda s: adapted(s, "lowrank"), loss=mse, diag=dict(MSE))

def clusters(seed, B=64, D=16, K=12):
    c = T_(21, K, D) * 1.5; return (lambda x: (x, x))(c[R(seed, K, (B,))] + .2 * T_(seed + 1, B, D))
class VQ(nn.Module):
    def __init__(s, K=32, d=8): super().__init__(); s.emb = nn.Embedding(K, d); nn.init.uniform_(s.emb.weight, -1 / K, 1 / K)
    def forward(s, z):
        e = s.emb.weight; d = z.pow(2).sum(-1, keepdim=True) - 2 * z @ e.T + e.pow(2).sum(-1); return F.embedding(d.argmin(-1), e)
class VQVAE(nn.Module):
    def __init__(s):
        super().__init__(); s.enc = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 8)); s.vq = VQ(); nn.init.normal_(s.vq.emb.weight); s.dec = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 16))
    def forward(s, x): z = s.enc(x); q = s.vq(z); return s.dec(z + (q - z).detach()), z, q
@case("https://github.com/CompVis/taming-transformers/issues/57", "beta multiplies the codebook term instead of the commitment term", "vq (loss weights)")
def taming_beta(planted):
    def loss(o, t):
        y, z, q = o; commit, code = F.mse_loss(z, q.detach()), F.mse_loss(q, z.detach()); return F.mse_loss(y, t) + (commit + .25 * code if planted else .25 * commit + code)
    return dict(model=VQVAE, data=clusters, loss=loss, diag={})

@case("https://github.com/facebookresearch/encodec/issues/25", "residual = residual - quantized without detach: no commitment gradient beyond the first quantiser", "rvq / encoder")
def encodec_rvq_detach(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.enc = nn.Sequential(nn.Linear(16, 48), nn.ELU(), nn.Linear(48, 8)); s.rvq = nn.ModuleList(VQ(16) for _ in range(3)); s.dec = nn.Sequential(nn.Linear(8, 48), nn.ELU(), nn.Linear(48, 16))
            for v in s.rvq: nn.init.normal_(v.emb.weight, std=.3)
        def forward(s, x):
            r = s.enc(x); out = 0; cl = kl = 0
            for v in s.rvq:
                q = v(r); cl = cl + (r - q.detach()).pow(2).mean(-1); kl = kl + (q - r.detach()).pow(2).mean(-1); st = r + (q - r).detach(); out = out + st; r = r - (st if planted else st.detach())
            return s.dec(out), cl, kl
    def loss(o, t): return F.mse_loss(o[0], t) + .25 * o[1].mean() + o[2].mean()
    return dict(model=Net, data=clusters, loss=loss, diag={})

@case("https://github.com/myscience/open-genie/issues/9", "the codebook-diversity entropy is added to the loss instead of subtracted", "lfq (entropy loss)")
def lfq_entropy_sign(planted):
    class Net(nn.Module):
        def __init__(s, b=6):
            super().__init__(); s.enc = nn.Sequential(nn.Linear(16, 48), nn.GELU(), nn.Linear(48, b)); s.dec = nn.Sequential(nn.Linear(b, 48), nn.GELU(), nn.Linear(48, 16)); s.register_buffer("codes", torch.tensor([[(i >> j & 1) * 2. - 1 for j in range(b)] for i in range(2 ** b)]))
        def forward(s, x):
            z = s.enc(x); q = torch.where(z > 0, 1., -1.); p = (2 * z @ s.codes.T * 1.).softmax(-1); return s.dec(z + (q - z).detach()), p, (z - q.detach()).pow(2).mean(-1)
    def loss(o, t):
        y, p, c = o; ent = -(p * (p + 1e-9).log()).sum(-1).mean(); a = p.mean(0); avg = -(a * (a + 1e-9).log()).sum(); e = ent + avg if planted else ent - avg
        return F.mse_loss(y, t) + .1 * e + .25 * c.mean()
    return dict(model=Net, data=clusters, loss=loss, diag={})

def sparse_data(seed, B=64, D=24, K=64):
    g = gen(seed); W = F.normalize(T_(31, K, D), dim=1); a = torch.rand(B, K, generator=g) * (torch.rand(B, K, generator=g) < .06); return (lambda x: (x, x))(a @ W * 3 + T_(32, D))
class SAE(nn.Module):
    def __init__(s, mode="", planted=False, D=24, K=64):
        super().__init__(); s.encoder = nn.Linear(D, K); nn.init.zeros_(s.encoder.bias); s.W_dec = nn.Parameter(F.normalize(s.encoder.weight.detach().clone(), dim=1)); s.b_dec = nn.Parameter(sparse_data(1)[0].mean(0)); s.mode, s.planted = mode, planted
    def forward(s, x):
        W = s.encoder.weight
        if s.mode == "unit" and s.planted: W = F.normalize(W, dim=1)
        pre = F.relu((x - s.b_dec) @ W.T + s.encoder.bias)
        if s.mode == "unit": a = pre; return a @ F.normalize(s.W_dec, dim=1) + s.b_dec, a
        v, i = pre.topk(6, -1); a = torch.zeros_like(pre).scatter(-1, i, v); y = a @ s.W_dec + s.b_dec
        rest = pre * (a == 0); v, i = rest.topk(12, -1); aux = torch.zeros_like(pre).scatter(-1, i, v) @ s.W_dec; return y, aux + s.b_dec if s.planted else aux
@case("https://github.com/EleutherAI/sparsify/issues/132", "decode() adds b_dec again in the AuxK term", "b_dec (aux loss)")
def sae_auxk_bdec(planted):
    def loss(o, t): y, e = o; v = t.var(0).sum(); return (y - t).pow(2).sum(-1).mean() / v + (e - (t - y).detach()).pow(2).sum(-1).mean() / v / 8
    return dict(model=lambda: SAE("topk", planted), data=sparse_data, loss=loss, diag={})
@case("https://github.com/ai-safety-foundation/sparse_autoencoder/pull/52", "the encoder's weights are constrained to unit norm as well", "encoder.weight")
def sae_encoder_unit(planted):
    def loss(o, t): return (o[0] - t).pow(2).mean() + .01 * o[1].sum(-1).mean()
    return dict(model=lambda: SAE("unit", planted), data=sparse_data, loss=loss, diag={})

def waves(seed, B=32, T=64):
    g = gen(seed); f = torch.rand(B, 1, generator=g) * .3 + .05; p = torch.rand(B, 1, generator=g) * 6.28; t = torch.arange(T); x = torch.tanh(3 * torch.sin(f * t + p)) * (.3 + torch.rand(B, 1, generator=g)); x = x[:, None]; return x, x
@case("https://github.com/facebookresearch/AudioDec/issues/9", "activations are missing between the strided convolutions", "encoder / decoder")
def audiodec_no_act(planted):
    act = nn.Identity if planted else nn.ELU
    def model():
        c = 24; return nn.Sequential(nn.Conv1d(1, c, 7, padding=3), act(), nn.Conv1d(c, c, 4, 2, 1), act(), nn.Conv1d(c, c, 4, 2, 1), act(), nn.Conv1d(c, c, 4, 2, 1), act(), nn.Conv1d(c, 1, 3, padding=1),
            nn.Conv1d(1, c, 3, padding=1), act(), nn.ConvTranspose1d(c, c, 4, 2, 1), act(), nn.ConvTranspose1d(c, c, 4, 2, 1), act(), nn.ConvTranspose1d(c, c, 4, 2, 1), act(), nn.Conv1d(c, 1, 7, padding=3))
    return dict(model=model, data=waves, loss=mse, diag=dict(MSE))
