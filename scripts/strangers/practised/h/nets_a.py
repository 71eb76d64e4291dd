from base import *

@case("https://github.com/bkitano/llama-from-scratch/issues/5", "softmax on the logits before cross_entropy (language model)", "linear.2 / softmax")
def llama_softmax(bug):
    V = 32; perm = torch.randperm(V, generator=gen(1))
    def data(s):
        x = R(s, V, (32, 16)); t = perm[x]; n = torch.rand(32, 16, generator=gen(s + 7)) < .05
        return x, torch.where(n, R(s + 3, V, (32, 16)), t)
    def f(m, x):
        a = m.linear(m.embedding(x)); return a.softmax(-1) if bug else a
    return dict(model=lambda: M(f, embedding=nn.Embedding(V, 64), linear=nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, V))), data=data, loss=ceseq, diag=SEQ)

@case("https://github.com/DEEP-PolyU/KEQA_WSDM19/issues/2", "attention softmax over a dimension of size 1: all weights 1.0", "attn")
def keqa_attention(bug):
    V = 40
    def data(s):
        x = R(s, V - 8, (32, 20)) + 8; k = R(s + 1, 8, (32,)); p = R(s + 2, 20, (32,)); x[torch.arange(32), p] = k; return x, k
    def f(m, x):
        e = m.emb(x); h, _ = m.lstm(e); w = m.attn(torch.cat([e, h], -1))
        w = w.softmax(-1 if bug else 1); return m.out((w * h).sum(1))
    return dict(model=lambda: M(f, emb=nn.Embedding(V, 32), lstm=nn.LSTM(32, 32, batch_first=True, bidirectional=True), attn=nn.Linear(96, 1), out=nn.Linear(64, 8)), data=data, loss=ce, diag=CE)

class FFN(nn.Module):
    def __init__(s, d): super().__init__(); s.net = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
    def forward(s, x): return s.net(x)
class BitT(nn.Module):
    def __init__(s, bug, V=24, d=48, n=4, L=16):
        super().__init__(); s.bug = bug; s.emb = nn.Embedding(V, d); s.pos = nn.Parameter(torch.randn(L, d) * .1)
        s.layers = nn.ModuleList([nn.MultiheadAttention(d, 4, batch_first=True) for _ in range(n)]); s.ffn_layers = nn.ModuleList([FFN(d) for _ in range(n)])
        s.norm = nn.LayerNorm(d); s.head = nn.Linear(d, V)
    def forward(s, x):
        x = s.emb(x) + s.pos
        for a, f in zip(s.layers, s.ffn_layers):
            if s.bug: x, _ = a(x, x, x, need_weights=False); x = x + x
            else: x = x + a(x, x, x, need_weights=False)[0]
            x = f(x) + x
        return s.head(s.norm(x))
@case("https://github.com/kyegomez/BitNet/issues/32", "x, _ = attn(x, x, x); x = x + x: the residual adds the attention to itself, not to its input", "layers (attention)")
def bitnet_residual(bug):
    perm = torch.randperm(24, generator=gen(2))
    def data(s): x = R(s, 24, (32, 16)); return x, perm[x]
    return dict(model=lambda: BitT(bug), data=data, loss=ceseq, diag=SEQ)

@case("https://github.com/keras-team/keras/pull/3383", "VAE: reconstruction averaged over pixels, KL summed: posterior collapses", "loss (mu/logvar)")
def keras_vae(bug):
    P = (T(3, 10, 64) > 0).float()
    def data(s):
        k = R(s, 10, (64,)); x = P[k]; n = (torch.rand(64, 64, generator=gen(s + 1)) < .05).float(); x = (x - n).abs(); return x, x
    def f(m, x):
        h = m.enc(x); mu, lv = m.mu(h), m.logvar(h); z = mu + torch.randn_like(mu) * (lv / 2).exp(); return m.dec(z), mu, lv
    def loss(o, t, b=bug):
        y, mu, lv = o; r = F.binary_cross_entropy_with_logits(y, t, reduction="none"); r = r.mean(1) if b else r.sum(1)
        return (r - .5 * (1 + lv - mu ** 2 - lv.exp()).sum(1)).mean()
    return dict(model=lambda: M(f, enc=nn.Sequential(nn.Linear(64, 64), nn.ReLU()), mu=nn.Linear(64, 4), logvar=nn.Linear(64, 4), dec=nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64))), data=data, loss=loss)

@case("https://github.com/kuangliu/pytorch-retinanet/issues/10", "focal-loss head without the prior bias -log((1-pi)/pi) and N(0,0.01) init", "cls head bias")
def retina_prior(bug):
    def data(s):
        y = (torch.rand(16, 4, 16, 16, generator=gen(s)) < .004).float(); w = T(5, 3, 4); x = torch.einsum("bkhw,ck->bchw", y, w) * 3 + T(s + 1, 16, 3, 16, 16, k=.5); return x, y
    def mk():
        b = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()); h = nn.Conv2d(32, 4, 3, padding=1)
        if not bug: nn.init.normal_(h.weight, std=.01); nn.init.constant_(h.bias, -math.log(99))
        return M(lambda m, x: m.cls(m.body(x)), body=b, cls=h)
    def loss(o, t):
        p = o.sigmoid(); pt = p * t + (1 - p) * (1 - t); a = .25 * t + .75 * (1 - t)
        return (a * (1 - pt) ** 2 * F.binary_cross_entropy_with_logits(o, t, reduction="none")).sum() / t.sum().clamp(min=1)
    return dict(model=mk, data=data, loss=loss)

class S4B(nn.Module):
    def __init__(s, d, bug): super().__init__(); s.bug = bug; s.norm = nn.LayerNorm(d); s.layer = nn.Conv1d(d, d, 5, padding=2); s.act = nn.GELU()
    def forward(s, x):
        y = s.norm(x); z = s.act(s.layer(y.transpose(1, 2)).transpose(1, 2))
        return y if s.bug else z
@case("https://github.com/state-spaces/s4/pull/30", "without residual the block returns its input: output of self.layer ignored, never trained", "blocks.*.layer")
def s4_ignored(bug):
    def data(s):
        x = T(s, 32, 24, 4); k = T(9, 4); y = (x * k).sum(-1); t = torch.tanh(y.roll(1, 1) * y.roll(-1, 1)); t = (t.mean(1) * 4); return x, (t > 0).long()
    return dict(model=lambda: M(lambda m, x: m.dec(m.blocks(m.enc(x)).mean(1)), enc=nn.Linear(4, 48), blocks=nn.Sequential(*[S4B(48, bug) for _ in range(3)]), dec=nn.Linear(48, 2)), data=data, loss=ce, diag=CE)

class Attn2d(nn.Module):
    def __init__(s, d, dim): super().__init__(); s.dim = dim; s.qkv = nn.Linear(d, 3 * d); s.o = nn.Linear(d, d); s.d = d
    def forward(s, x):
        B, C, H, W = x.shape; y = x.flatten(2).transpose(1, 2); q, k, v = s.qkv(y).chunk(3, -1)
        a = torch.einsum("bid,bjd->bij", q, k) * s.d ** -.5; a = a.softmax(s.dim); r = s.o(torch.einsum("bij,bjd->bid", a, v)) + y
        return r.transpose(1, 2).view(B, C, H, W)
@case("https://github.com/labmlai/annotated_deep_learning_paper_implementations/issues/146", "DDPM UNet attention: softmax over queries (dim=1), not keys (dim=2)", "attn")
def ddpm_softmax(bug):
    def data(s):
        g = R(s, 6, (16,)); b = T(4, 6, 1, 1, 8).expand(6, 1, 8, 8)[g]; n = T(s + 1, 16, 1, 8, 8); a = torch.rand(16, 1, 1, 1, generator=gen(s + 2)) * .8 + .1
        return (a.sqrt() * b + (1 - a).sqrt() * n, a.flatten()), n
    def f(m, x, t):
        h = m.inp(x) + m.time(t[:, None])[:, :, None, None]; h = F.silu(m.n1(h)); h = m.attn(m.c1(h)); return m.out(F.silu(m.n2(h)))
    return dict(model=lambda: M(f, inp=nn.Conv2d(1, 32, 3, padding=1), time=nn.Sequential(nn.Linear(1, 32), nn.SiLU(), nn.Linear(32, 32)), n1=nn.GroupNorm(4, 32), c1=nn.Conv2d(32, 32, 3, padding=1), attn=Attn2d(32, 1 if bug else 2), n2=nn.GroupNorm(4, 32), out=nn.Conv2d(32, 1, 3, padding=1)), data=data, loss=mse, diag=MSE)

@case("https://github.com/yudi-mars/daisyRec/pull/15", "sigmoid on the prediction, then BCEWithLogitsLoss (NFM recommender)", "out (sigmoid)")
def daisy_sigmoid(bug):
    U, I = T(1, 50, 4), T(2, 80, 4)
    def data(s):
        u, i = R(s, 50, (128,)), R(s + 1, 80, (128,)); return (u, i), ((U[u] * I[i]).sum(1) > 1.2).float()
    def f(m, u, i):
        e = m.user(u) * m.item(i); o = m.out(m.mlp(e)).squeeze(1) + m.bu(u).squeeze(1) + m.bi(i).squeeze(1); return o.sigmoid() if bug else o
    return dict(model=lambda: M(f, user=nn.Embedding(50, 16), item=nn.Embedding(80, 16), bu=nn.Embedding(50, 1), bi=nn.Embedding(80, 1), mlp=nn.Sequential(nn.Linear(16, 32), nn.ReLU()), out=nn.Linear(32, 1)), data=data, loss=F.binary_cross_entropy_with_logits)

@case("https://github.com/jakeret/tf_unet/issues/58", "ReLU after the final 1x1 convolution, on the logits of U-Net", "final conv / ReLU")
def unet_relu(bug):
    def data(s):
        t = torch.zeros(16, 16, 16, dtype=torch.long)
        for b in range(16):
            r = R(s * 31 + b, 10, (2,)); t[b, r[0]:r[0] + 5, r[1]:r[1] + 5] = 1
        return t[:, None].float() + T(s + 1, 16, 1, 16, 16, k=.8), t
    cb = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.ReLU(), nn.Conv2d(o, o, 3, padding=1), nn.ReLU())
    def f(m, x):
        a = m.d1(x); b = m.d2(F.max_pool2d(a, 2)); o = m.final(m.u1(torch.cat([a, m.up(b)], 1))); return o.relu() if bug else o
    return dict(model=lambda: M(f, d1=cb(1, 16), d2=cb(16, 32), up=nn.ConvTranspose2d(32, 16, 2, stride=2), u1=cb(32, 16), final=nn.Conv2d(16, 2, 1)), data=data, loss=ce, diag=CE)

@case("https://github.com/jvargasmu/population_estimation/issues/68", "output ReLU: the initial solution predicts only zeros, no gradient", "scale head / output ReLU")
def popest_relu(bug):
    w = T(8, 12)
    def data(s): x = torch.rand(64, 12, generator=gen(s)); return x, F.softplus(x @ w).unsqueeze(1)
    def mk():
        torch.manual_seed(2)
        for k in range(40):
            n = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
            if n(data(0)[0]).max() < 0: break
        return M(lambda m, x: (F.relu if bug else F.softplus)(m.net(x)), net=n)
    return dict(model=mk, data=data, loss=mse, diag=MSE)

@case("https://github.com/ComputationalDomain/PINNs/issues/1", "PINN with ReLU: the second derivative of the network is zero", "activations")
def pinn_relu(bug):
    A = nn.ReLU if bug else nn.Tanh
    def data(s):
        x = torch.rand(64, 1, generator=gen(s)) * 2 - 1; x[:8] = -1; x[8:16] = 1; return x, torch.cat([math.pi ** 2 * torch.sin(math.pi * x), (x.abs() == 1).float()], 1)
    def f(m, x):
        with torch.enable_grad():
            x = x.detach().requires_grad_(); u = m.net(x); g, = torch.autograd.grad(u.sum(), x, create_graph=True)
            g2 = torch.autograd.grad(g.sum(), x, create_graph=True)[0] if g.requires_grad else torch.zeros_like(x)
        return torch.cat([u, g2], 1)
    def loss(o, t): return ((o[:, 1] + t[:, 0]) ** 2 * (1 - t[:, 1])).mean() / 50 + (o[:, 0] ** 2 * t[:, 1]).mean() * 4
    return dict(model=lambda: M(f, net=nn.Sequential(nn.Linear(1, 32), A(), nn.Linear(32, 32), A(), nn.Linear(32, 1))), data=data, loss=loss)

class GRN(nn.Module):
    def __init__(s, d, n, bug): super().__init__(); s.norm = nn.RMSNorm(d); s.linear = nn.Linear(d, n, bias=False); (nn.init.zeros_ if bug else lambda w: nn.init.normal_(w, std=.1))(s.linear.weight)
    def forward(s, outs): w = s.linear(s.norm(outs[-1])).relu(); return sum(w[:, j:j + 1] * o for j, o in enumerate(outs))
@case("https://github.com/lucidrains/deep-cross-attention/issues/2", "GRN weights zero-initialised before a ReLU without bias: no gradient ever", "grn.*.linear")
def grn_zero(bug):
    W = T(6, 16, 4)
    def data(s): x = T(s, 64, 16); return x, (torch.sin(2 * x @ W)).sum(1, keepdim=True).gt(0).long().squeeze(1)
    def f(m, x):
        outs = [m.emb(x)]
        for g, b in zip(m.grn, m.blocks): outs.append(b(g(outs)) + 0 * outs[-1])
        return m.head(outs[-1])
    return dict(model=lambda: M(f, emb=nn.Linear(16, 64), grn=nn.ModuleList([GRN(64, i + 1, bug) for i in range(2)]), blocks=nn.ModuleList([nn.Sequential(nn.RMSNorm(64), nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64)) for _ in range(2)]), head=nn.Linear(64, 2)), data=lambda s: (lambda x: (x, (x[:, :2].sum(1) * x[:, 2] > 0).long()))(T(s, 64, 16)), loss=ce, diag=CE)

@case("https://github.com/pytorch/pytorch/issues/3121", "nn.Embedding at N(0,1), summed over the tokens: values too high, net does not train", "emb")
def emb_normal(bug):
    V = 200; w = T(4, V, 3)
    def data(s): x = R(s, V, (32, 40)); return x, w[x].sum(1).argmax(1)
    def mk():
        e = nn.Embedding(V, 64)
        if not bug: nn.init.normal_(e.weight, std=.05)
        return M(lambda m, x: m.net(m.emb(x).sum(1)), emb=e, net=nn.Sequential(nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3)))
    return dict(model=mk, data=data, loss=ce, diag=CE)

@case("https://github.com/huggingface/transformers/pull/26441", "lm_head initialised with variance 1: logits of variance d_model, initial loss 110", "lm_head")
def t5_lmhead(bug):
    V, d = 64, 128; perm = torch.randperm(V, generator=gen(2))
    def data(s): x = R(s, V, (16, 12)); return x, perm[x]
    def mk():
        h = nn.Linear(d, V, bias=False); nn.init.normal_(h.weight, std=1 if bug else d ** -.5)
        return M(lambda m, x: m.lm_head(m.norm(m.enc(m.emb(x)))), emb=nn.Embedding(V, d), enc=nn.TransformerEncoderLayer(d, 4, 256, 0., batch_first=True, norm_first=True), norm=nn.RMSNorm(d), lm_head=h)
    return dict(model=mk, data=data, loss=ceseq, diag=SEQ)

class Caps(nn.Module):
    def __init__(s, std): super().__init__(); s.conv = nn.Conv2d(1, 32, 5, stride=2); s.prim = nn.Conv2d(32, 32, 3, stride=1); s.W = nn.Parameter(torch.randn(1, 64, 5, 8, 8) * std)
    @staticmethod
    def squash(v): n = (v ** 2).sum(-1, keepdim=True); return n / (1 + n) * v / (n + 1e-7).sqrt()
    def forward(s, x):
        u = s.squash(s.prim(s.conv(x).relu()).view(len(x), 4, 8, 16).transpose(2, 3).reshape(len(x), 64, 8))
        uh = (s.W @ u[:, :, None, :, None]).squeeze(-1); b = torch.zeros(len(x), 64, 5, 1)
        for i in range(2):
            v = s.squash((b.softmax(2) * uh).sum(1, keepdim=True)); b = b + (uh * v).sum(-1, keepdim=True)
        return ((v.squeeze(1) ** 2).sum(-1) + 1e-7).sqrt()
@case("https://github.com/ageron/handson-ml/pull/176", "capsule transformation matrices at std 0.01: ~50 batches before the loss moves", "W")
def caps_init(bug):
    P = T(5, 5, 1, 16, 16)
    def data(s): k = R(s, 5, (32,)); return P[k] + T(s + 1, 32, 1, 16, 16), k
    def loss(o, t):
        y = F.one_hot(t, 5).float(); return (y * (.9 - o).relu() ** 2 + .5 * (1 - y) * (o - .1).relu() ** 2).sum(1).mean()
    return dict(model=lambda: Caps(.01 if bug else .1), data=data, loss=loss)
