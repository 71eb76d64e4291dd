from base import *

class MHA(nn.Module):
    def __init__(s, d, h):
        super().__init__(); s.h = h; s.q = nn.Linear(d, d); s.k = nn.Linear(d, d); s.v = nn.Linear(d, d); s.o = nn.Linear(d, d)
    def forward(s, x, y=None, mask=None):
        y = x if y is None else y
        sp = lambda t: t.view(t.size(0), t.size(1), s.h, -1).transpose(1, 2)
        q, k, v = sp(s.q(x)), sp(s.k(y)), sp(s.v(y)); a = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))
        if mask is not None: a = a.masked_fill(mask, -1e9)
        o = (a.softmax(-1) @ v).transpose(1, 2).reshape(x.shape)
        return s.o(o)
class Enc(nn.Module):
    def __init__(s, d, h=4):
        super().__init__(); s.n1 = nn.LayerNorm(d); s.n2 = nn.LayerNorm(d); s.att = MHA(d, h); s.ff = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
    def forward(s, x, mask=None): x = x + s.att(s.n1(x), mask=mask); return x + s.ff(s.n2(x))

@case("https://github.com/Kyubyong/transformer/pull/69", "padding mask built from the sum of (embedding + position), never zero: padding attended", "enc.att softmax / mask")
def kyubyong_padmask(planted):
    class Net(nn.Module):
        def __init__(s, V=40, d=48, L=24):
            super().__init__(); s.emb = nn.Embedding(V, d, padding_idx=0); s.pos = nn.Parameter(torch.randn(L, d) * .02)
            nn.init.normal_(s.emb.weight, std=d ** -.5); s.emb.weight.data[0] = 0
            s.enc = nn.ModuleList(Enc(d) for _ in range(2)); s.norm = nn.LayerNorm(d); s.head = nn.Linear(d, 8); s.d = d
        def forward(s, x):
            e = s.emb(x) * math.sqrt(s.d); h = e + s.pos
            pad = (h.abs().sum(-1) == 0) if planted else (e.abs().sum(-1) == 0)
            for l in s.enc: h = l(h, pad[:, None, None, :])
            return s.head(s.norm(h)[:, 0])
    def data(seed):
        B, L = 48, 24; x = R(seed, 39, (B, L)) + 1; n = R(seed + 1, 9, (B,)) + 4; x[torch.arange(L)[None] >= n[:, None]] = 0
        g = T(5, 40, 8); g[0] = 0; t = g[x].sum(1).argmax(1); return x, t
    return dict(model=Net, data=data, loss=ce, diag={})

@case("https://github.com/gabrielmittag/NISQA/issues/17", "padded attention set to -inf AFTER the softmax", "align")
def nisqa_alignment(planted):
    class Align(nn.Module):
        def __init__(s, d): super().__init__(); s.W = nn.Linear(d, d, bias=False)
        def forward(s, q, y, n):
            att = q @ s.W(y).transpose(1, 2) / math.sqrt(q.size(-1)); m = torch.arange(y.size(1))[None] < n[:, None]; m = m[:, None, :].expand_as(att)
            if planted: att = att.softmax(-1); att = att.masked_fill(~m, float("-inf"))
            else: att = att.masked_fill(~m, float("-inf")).softmax(-1)
            return att @ y
    class Net(nn.Module):
        def __init__(s, f=20, d=32):
            super().__init__(); s.cnn = nn.Sequential(nn.Conv1d(f, d, 3, padding=1), nn.BatchNorm1d(d), nn.ReLU(), nn.Conv1d(d, d, 3, padding=1), nn.BatchNorm1d(d), nn.ReLU())
            s.align = Align(d); s.fuse = nn.Sequential(nn.Linear(3 * d, 64), nn.ReLU()); s.lstm = nn.LSTM(64, 32, batch_first=True, bidirectional=True); s.out = nn.Linear(64, 1)
        def forward(s, x, y, n):
            a = s.cnn(x.transpose(1, 2)).transpose(1, 2); b = s.cnn(y.transpose(1, 2)).transpose(1, 2); c = s.align(a, b, n)
            return s.out(s.lstm(s.fuse(torch.cat([a, c, a - c], -1)))[0].mean(1))
    def data(seed):
        y = T(seed, 24, 16, 20); n = R(seed + 1, 6, (24,)) + 10; y = y * (torch.arange(16)[None] < n[:, None])[..., None]; k = torch.rand(24, generator=gen(seed + 2)) * 2
        x = y[:, :12] + T(seed + 3, 24, 12, 20) * k[:, None, None]; return (x, y, n), (1 - k)[:, None]
    return dict(model=Net, data=data, loss=mse, diag={})

@case("https://github.com/gjylt/DoubleAttentionNet/issues/3", "softmax of the attention maps over channels (implicit dim) instead of positions", "a2 softmaxB")
def double_attention(planted):
    class A2(nn.Module):
        def __init__(s, c, m, n): super().__init__(); s.A = nn.Conv2d(c, m, 1); s.B = nn.Conv2d(c, n, 1); s.V = nn.Conv2d(c, n, 1); s.Z = nn.Conv2d(m, c, 1); s.m = m; s.n = n
        def forward(s, x):
            b, c, h, w = x.shape; A = s.A(x).view(b, s.m, h * w); tB, tV = s.B(x), s.V(x)
            B = tB.softmax(1).view(b, s.n, h * w) if planted else tB.view(b, s.n, h * w).softmax(-1)
            V = tV.view(b, s.n, h * w).softmax(1); G = A @ B.transpose(1, 2); return s.Z((G @ V).view(b, s.m, h, w))
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); cb = lambda i, o, st=1: nn.Sequential(nn.Conv2d(i, o, 3, st, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU())
            s.stem = nn.Sequential(cb(3, 24), cb(24, 32, 2)); s.a2 = A2(32, 16, 16); s.l2 = cb(32, 48, 2); s.fc = nn.Linear(48, 6)
        def forward(s, x): x = s.stem(x); x = x + s.a2(x); return s.fc(s.l2(x).mean((2, 3)))
    return dict(model=Net, data=imgcls, loss=ce, diag={})

def imgcls(seed, B=32, n=16, C=6, ch=3):
    P = T(77, C, ch, 6, 6) * 1.2; t = R(seed, C, (B,)); x = T(seed + 1, B, ch, n, n) * .7; o = R(seed + 2, n - 6, (B, 2))
    for i in range(B): x[i, :, o[i, 0]:o[i, 0] + 6, o[i, 1]:o[i, 1] + 6] += P[t[i]]
    return x, t

@case("https://github.com/jax-ml/jax/issues/442", "stax.BatchNorm divides by (var+eps)**2 instead of the root", "BatchNorm")
def stax_batchnorm(planted):
    class BN(nn.Module):
        def __init__(s, c): super().__init__(); s.beta = nn.Parameter(torch.zeros(c)); s.gamma = nn.Parameter(torch.ones(c))
        def forward(s, x):
            m = x.mean((0, 2, 3), keepdim=True); v = x.var((0, 2, 3), keepdim=True, unbiased=False)
            z = (x - m) / ((v + 1e-5) ** 2 if planted else (v + 1e-5).sqrt()); return z * s.gamma[:, None, None] + s.beta[:, None, None]
    def cv(i, o, k, st=1): m = nn.Conv2d(i, o, k, st, k // 2); nn.init.xavier_normal_(m.weight); nn.init.normal_(m.bias, std=1e-6); return m
    def model():
        blk = lambda i, o, st: [cv(i, o, 3, st), BN(o), nn.ReLU()]
        return nn.Sequential(*blk(3, 16, 1), *blk(16, 32, 2), *blk(32, 32, 1), *blk(32, 48, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 6))
    return dict(model=model, data=imgcls, loss=ce, diag={})

@case("https://github.com/OpenTabular/DeepTab/issues/441", "targets (B,1,1) against predictions (B,1): all-pairs loss", "loss / targets")
def deeptab_broadcast(planted):
    class FT(nn.Module):
        def __init__(s, n=10, d=32):
            super().__init__(); s.w = nn.Parameter(torch.randn(n, d) * .3); s.b = nn.Parameter(torch.zeros(n, d)); s.cls = nn.Parameter(torch.randn(1, 1, d) * .3)
            s.enc = nn.ModuleList(Enc(d) for _ in range(2)); s.norm = nn.LayerNorm(d); s.head = nn.Linear(d, 1)
        def forward(s, x):
            h = torch.cat([s.cls.expand(len(x), -1, -1), x[..., None] * s.w + s.b], 1)
            for l in s.enc: h = l(h)
            return s.head(s.norm(h[:, 0]).relu())
    def data(seed):
        x = T(seed, 64, 10); w = T(3, 10, 1); y = (x @ w) / 3 + (x[:, :1] * x[:, 1:2]) * .3; return x, (y[:, :, None] if planted else y)
    return dict(model=FT, data=data, loss=mse, diag={})

@case("https://github.com/dingmyu/CamNet/pull/4", "prediction [B,3,1,1] against label [B,3] in the L1 loss", "loss / trans head")
def camnet_l1(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); cb = lambda i, o, st: nn.Sequential(nn.Conv2d(i, o, 3, st, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU())
            s.enc = nn.Sequential(cb(1, 16, 1), cb(16, 32, 2), cb(32, 32, 2)); s.corr = nn.Sequential(nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU(), nn.Conv2d(64, 64, 4), nn.ReLU())
            s.trans = nn.Conv2d(64, 3, 1)
        def forward(s, a, b):
            t = s.trans(s.corr(torch.cat([s.enc(a), s.enc(b)], 1))); return t if planted else t.flatten(1)
    def data(seed):
        B = 24; u = torch.rand(B, 6, generator=gen(seed)) * 2 - 1; g = torch.linspace(-1, 1, 16); im = lambda c, r: torch.exp(-((g[None, :, None] - c[:, 0, None, None]) ** 2 + (g[None, None] - c[:, 1, None, None]) ** 2) / (.15 + .1 * r[:, None, None]))[:, None] * 3
        p, q = u[:, :2] * .6, u[:, 2:4] * .6; return (im(p, u[:, 4].abs()), im(q, u[:, 5].abs())), torch.cat([q - p, (u[:, 5].abs() - u[:, 4].abs())[:, None]], 1)
    return dict(model=Net, data=data, loss=lambda o, t: F.l1_loss(o, t), diag={})

@case("https://github.com/alexhernandezgarcia/gflownet/pull/251", "policy outputs detached when cloned into logits in get_logprobs", "policy")
def gflownet_tb(planted):
    class GFN(nn.Module):
        def __init__(s, n=7):
            super().__init__(); s.n = n; s.policy = nn.Sequential(nn.Linear(2 * n, 64), nn.LeakyReLU(), nn.Linear(64, 64), nn.LeakyReLU(), nn.Linear(64, 2)); s.logZ = nn.Parameter(torch.zeros(1))
        def get_logprobs(s, out, act):
            logits = out.clone().detach() if planted else out.clone()
            return logits.log_softmax(-1).gather(-1, act[..., None])[..., 0]
        def forward(s, st, act):
            h = F.one_hot(st, s.n).float().flatten(-2); return s.logZ + s.get_logprobs(s.policy(h), act).sum(1, keepdim=True)
    def data(seed):
        B, L = 64, 6; a = R(seed, 2, (B, L)); a1 = F.one_hot(a, 2); c = a1.cumsum(1); st = torch.cat([torch.zeros(B, 1, 2, dtype=torch.long), c[:, :-1]], 1)
        lr = T(4, 7)[c[:, -1, 0]] * 1.5; nx = torch.ones(B); par = (c > 0).sum(-1).float().clamp(min=1); return (st, a), (lr - par.log().sum(1))[:, None]
    return dict(model=GFN, data=data, loss=mse, diag={})

@case("https://github.com/zzr-idam/UVM-Net/issues/6", "x.reshape(b,-1,c) of a (b,c,h,w) map without permute", "ln / vim block reshape")
def uvmnet_reshape(planted):
    class Vim(nn.Module):
        def __init__(s, c):
            super().__init__(); s.convb = nn.Sequential(nn.Conv2d(c, c, 3, 1, 1), nn.BatchNorm2d(c), nn.ReLU(), nn.Conv2d(c, c, 1), nn.BatchNorm2d(c), nn.ReLU())
            s.ln = nn.LayerNorm(c); s.m1 = nn.Linear(c, c); s.m2 = nn.Linear(c, c); s.m3 = nn.Linear(256, 256); s.smooth = nn.Conv2d(c, c, 3, 1, 1)
        def forward(s, x):
            b, c, w, h = x.shape; x = s.convb(x) + x
            t = s.ln(x.reshape(b, -1, c)) if planted else s.ln(x.permute(0, 2, 3, 1).reshape(b, -1, c))
            y = F.silu(s.m1(t)).permute(0, 2, 1); z = s.m3(y).permute(0, 2, 1); o = s.m2(t).softmax(-1) * z
            o = o.reshape(b, c, w, h) if planted else o.permute(0, 2, 1).reshape(b, c, w, h); return s.smooth(o)
    class Net(nn.Module):
        def __init__(s, c=24): super().__init__(); s.inc = nn.Conv2d(3, c, 3, 1, 1); s.v1 = Vim(c); s.v2 = Vim(c); s.out = nn.Conv2d(2 * c, 3, 3, 1, 1)
        def forward(s, x): f = s.inc(x).relu(); a = s.v1(f); return s.out(torch.cat([f + a, s.v2(a)], 1))
    def data(seed):
        z = T(seed, 16, 3, 4, 4); y = F.interpolate(z, 16, mode="bilinear"); tr = torch.rand(16, 1, 1, 1, generator=gen(seed + 1)) * .6 + .3; return y * tr + (1 - tr) * 1.5 + T(seed + 2, 16, 3, 16, 16) * .1, y
    return dict(model=Net, data=data, loss=mse, diag={})

@case("https://github.com/dome272/Diffusion-Models-pytorch/issues/27", "SiLU straight on the sinusoidal code, no learned time projection", "emb_layer")
def dome_time(planted):
    class Blk(nn.Module):
        def __init__(s, c, td): super().__init__(); s.c = nn.Sequential(nn.GroupNorm(4, c), nn.SiLU(), nn.Conv1d(c, c, 3, padding=1), nn.GroupNorm(4, c), nn.SiLU(), nn.Conv1d(c, c, 3, padding=1)); s.emb = nn.Sequential(nn.SiLU(), nn.Linear(td, c))
        def forward(s, x, t): return x + s.c(x) + s.emb(t)[..., None]
    class Net(nn.Module):
        def __init__(s, c=32, td=64):
            super().__init__(); s.td = td; s.te = None if planted else nn.Sequential(nn.Linear(td, td), nn.SiLU(), nn.Linear(td, td)); s.i = nn.Conv1d(1, c, 3, padding=1); s.b = nn.ModuleList(Blk(c, td) for _ in range(3)); s.o = nn.Sequential(nn.GroupNorm(4, c), nn.SiLU(), nn.Conv1d(c, 1, 3, padding=1))
        def forward(s, x, t):
            f = 1 / 10000 ** (torch.arange(0, s.td, 2) / s.td); a = t[:, None].float() * f; e = torch.cat([a.sin(), a.cos()], -1); e = s.te(e) if s.te is not None else e
            h = s.i(x)
            for b in s.b: h = b(h, e)
            return s.o(h)
    def data(seed):
        ph = torch.rand(32, 2, generator=gen(seed)) * 6.28; g = torch.arange(32) / 32 * 6.28; x0 = (g[None] * 2 + ph[:, :1]).sin() + .5 * (g[None] * 3 + ph[:, 1:]).cos()
        t = R(seed + 1, 200, (32,)); ab = torch.cumprod(1 - torch.linspace(1e-4, .04, 200), 0)[t][:, None]; e = T(seed + 2, 32, 32); return ((ab.sqrt() * x0 + (1 - ab).sqrt() * e)[:, None], t), e[:, None]
    return dict(model=Net, data=data, loss=mse, diag={})

@case("https://github.com/Quantum-Cheese/DeepReinforcementLearning_Pytorch/issues/1", "log_probs rebuilt by torch.tensor([...]): the actor has no gradient", "actor")
def a3c_logprob(planted):
    class AC(nn.Module):
        def __init__(s): super().__init__(); s.actor = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)); s.critic = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
        def forward(s, x, a):
            lp = s.actor(x).log_softmax(-1).gather(1, a[:, None])[:, 0]
            if planted: lp = torch.tensor([float(p.detach()) for p in lp], dtype=torch.float)
            return torch.stack([lp, s.critic(x)[:, 0]], 1)
    def loss(o, R_):
        adv = (R_ - o[:, 1]).detach(); return -(o[:, 0] * adv.clamp(min=0)).mean() * 2 + .5 * F.mse_loss(o[:, 1], R_)
    def data(seed):
        x = T(seed, 64, 6); W = T(8, 6, 4); a = R(seed + 1, 4, (64,)); q = x @ W * .5; return (x, a), q.gather(1, a[:, None])[:, 0] * .7 + x[:, 0]
    return dict(model=AC, data=data, loss=loss, diag={})

@case("https://github.com/hieuvmphan/REMINDER/issues/6", "features.transpose(1,3) is (B,W,H,C) but labels flatten as (B,H,W)", "loss: pixel features and labels misaligned")
def reminder_proto(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); cb = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU()); s.body = nn.Sequential(cb(3, 24), cb(24, 32), cb(32, 32)); s.proj = nn.Conv2d(32, 16, 1)
        def forward(s, x): return s.proj(s.body(x))
    def loss(f, seg):
        B, C, H, W = f.shape; f = (f.transpose(1, 3) if planted else f.permute(0, 2, 3, 1)).reshape(B * H * W, -1); y = seg.reshape(-1); oh = F.one_hot(y, 4).float(); f = F.normalize(f, dim=-1)
        pr = F.normalize(oh.t() @ f / oh.sum(0)[:, None].clamp(min=1), dim=-1); return F.cross_entropy(f @ pr.t() / .2, y)
    def data(seed):
        z = T(seed, 12, 4, 4, 4); seg = F.interpolate(z, 16, mode="bilinear").argmax(1); c = T(6, 4, 3); return c[seg].permute(0, 3, 1, 2) + T(seed + 1, 12, 3, 16, 16) * .6, seg
    return dict(model=Net, data=data, loss=loss, diag={})

@case("https://github.com/pytorch/pytorch/issues/632", "relation-specific Linear and Parameter kept in plain dicts: not registered", "waggrs / list_relations")
def dict_params(planted):
    class Net(nn.Module):
        def __init__(s, nf=12, nr=16, K=6):
            super().__init__(); s.inp = nn.Linear(nf, 32)
            rel = {str(r): nn.Linear(32, nr) for r in range(K)}; w = {str(r): nn.Parameter(torch.randn(nr, 1) * .25) for r in range(K)}; b = {str(r): nn.Parameter(torch.zeros(1)) for r in range(K)}
            s.rel, s.w, s.b = (rel, w, b) if planted else (nn.ModuleDict(rel), nn.ParameterDict(w), nn.ParameterDict(b)); s.K = K
        def forward(s, x):
            h = s.inp(x).relu(); return torch.cat([s.rel[str(r)](h).tanh() @ s.w[str(r)] + s.b[str(r)] for r in range(s.K)], 1)
    def data(seed): x = T(seed, 64, 12); return x, ((x @ T(9, 12, 24)).tanh() @ T(10, 24, 6)).argmax(1)
    return dict(model=Net, data=data, loss=ce, diag={})

@case("https://github.com/pytorch/examples/issues/88", "decoder starts every step from the encoder's hidden state instead of the last one", "decoder rnn")
def onmt_hidden(planted):
    class Net(nn.Module):
        def __init__(s, V=20, d=48):
            super().__init__(); s.es = nn.Embedding(V, d); s.et = nn.Embedding(V + 1, d); s.enc = nn.LSTM(d, d, batch_first=True); s.cell = nn.LSTMCell(2 * d, d); s.lin_in = nn.Linear(d, d, bias=False); s.lin_out = nn.Linear(2 * d, d, bias=False); s.gen = nn.Linear(d, V); s.d = d
        def forward(s, src, tgt):
            ctx, (h, c) = s.enc(s.es(src)); hid = h0 = (h[0], c[0]); out = torch.zeros(len(src), s.d); outs = []
            for e in s.et(tgt).unbind(1):
                hid = s.cell(torch.cat([e, out], 1), h0 if planted else hid); q = hid[0]
                a = (ctx @ s.lin_in(q)[..., None])[..., 0].softmax(-1); cx = (a[:, None] @ ctx)[:, 0]; out = s.lin_out(torch.cat([cx, q], 1)).tanh(); outs.append(out)
            return s.gen(torch.stack(outs, 1))
    def data(seed):
        src = R(seed, 20, (32, 7)); t = (src + 3) % 20; return (src, torch.cat([torch.full((32, 1), 20), t[:, :-1]], 1)), t
    return dict(model=Net, data=data, loss=ceseq, diag=SEQ)
