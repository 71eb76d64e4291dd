from harness import *
import torch.nn as nn, torch.nn.functional as F
def G(seed): return torch.Generator().manual_seed(seed)

# ---------------------------------------------------------------- N-BEATS
@net(sign="residual = residual + backcast (sign)", fore="forecast overwritten by each block (= instead of +=)", basis="seasonality basis: cos/sin arguments without 2 pi (t in 0..1)")
def nbeats(s):
    Lb, Hf = 30, 10
    class Block(nn.Module):
        def __init__(self, basis):
            super().__init__(); self.fc = nn.Sequential(*[l for i in range(3) for l in (nn.Linear(Lb if i == 0 else 64, 64), nn.ReLU())]); self.basis = basis; n = 12 if basis == "seasonal" else 4
            self.theta_b = nn.Linear(64, n, bias=False); self.theta_f = nn.Linear(64, n, bias=False); t = torch.arange(-Lb, Hf)/Lb
            T = torch.stack([t**i for i in range(4)]) if basis == "trend" else torch.cat([f((1 if s == "basis" else 2*math.pi)*k*t)[None] for k in range(1, 7) for f in (torch.cos, torch.sin)])
            self.register_buffer("Bb", T[:, :Lb].clone()); self.register_buffer("Bf", T[:, Lb:].clone())
        def forward(self, x): h = self.fc(x); return self.theta_b(h) @ self.Bb, self.theta_f(h) @ self.Bf
    class NB(nn.Module):
        def __init__(self): super().__init__(); self.blocks = nn.ModuleList([Block("trend"), Block("trend"), Block("seasonal"), Block("seasonal")])
        def forward(self, x):
            f = x.new_zeros(len(x), Hf)
            for b in self.blocks:
                bc, fc = b(x); x = x + bc if s == "sign" else x - bc; f = fc if s == "fore" else f + fc
            return f
    def data(seed):
        g = G(seed); B = 64; r = torch.rand(B, 5, generator=g); t = torch.arange(-Lb, Hf)[None]/Lb; y = 2*(r[:, :1]-.5) + 3*(r[:, 1:2]-.5)*t + torch.sin(6.28*(t*(2+2*(r[:, 2:3] > .5)) + r[:, 3:4]))*(.5+r[:, 4:5]) + .05*torch.randn(B, Lb+Hf, generator=g); return y[:, :Lb].contiguous(), y[:, Lb:].contiguous()
    return dict(model=NB, data=data, loss=F.mse_loss)

# ---------------------------------------------------------------- MoE transformer (Mixtral-like)
@net(share="experts = nn.ModuleList([Expert()]*n)", norm="routing softmax over dim=0 (tokens), not experts", res="x = self.moe(ln(x)): residual forgotten", rope="rotary sin/cos applied to q only")
def moe(s):
    V, C, T, H, E = 16, 48, 20, 4, 4
    class Expert(nn.Module):
        def __init__(self): super().__init__(); self.w1 = nn.Linear(C, 64, bias=False); self.w2 = nn.Linear(64, C, bias=False); self.w3 = nn.Linear(C, 64, bias=False)
        def forward(self, x): return self.w2(F.silu(self.w1(x))*self.w3(x))
    class MoE(nn.Module):
        def __init__(self): super().__init__(); self.gate = nn.Linear(C, E, bias=False); self.experts = nn.ModuleList([Expert()]*E if s == "share" else [Expert() for _ in range(E)])
        def forward(self, x):
            B, L, _ = x.shape; x = x.reshape(-1, C); w = F.softmax(self.gate(x), 0 if s == "norm" else 1); w, idx = torch.topk(w, 2, -1)
            if s != "norm": w = w/w.sum(-1, keepdim=True)
            o = torch.zeros_like(x)
            for e in range(E): m = (w*(idx == e)).sum(-1, keepdim=True); o = o + m*self.experts[e](x)
            return o.view(B, L, C)
    def rope(x):
        d = x.shape[-1]; f = 100.**(-torch.arange(0, d, 2)/d); a = torch.arange(x.shape[-2])[:, None]*f; c, n = a.cos(), a.sin(); x1, x2 = x[..., :d//2], x[..., d//2:]; return torch.cat([x1*c - x2*n, x1*n + x2*c], -1)
    class Attn(nn.Module):
        def __init__(self): super().__init__(); self.wq, self.wk, self.wv, self.wo = (nn.Linear(C, C, bias=False) for _ in range(4))
        def forward(self, x):
            q, k, v = (w(x).view(x.shape[0], x.shape[1], H, -1).transpose(1, 2) for w in (self.wq, self.wk, self.wv)); q = rope(q); k = k if s == "rope" else rope(k)
            return self.wo(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape))
    class Block(nn.Module):
        def __init__(self): super().__init__(); self.attention_norm = nn.RMSNorm(C); self.attention = Attn(); self.ffn_norm = nn.RMSNorm(C); self.moe = MoE()
        def forward(self, x): x = x + self.attention(self.attention_norm(x)); h = self.moe(self.ffn_norm(x)); return h if s == "res" else x + h
    class M(nn.Module):
        def __init__(self): super().__init__(); self.tok_embeddings = nn.Embedding(V, C); self.layers = nn.ModuleList([Block() for _ in range(2)]); self.norm = nn.RMSNorm(C); self.output = nn.Linear(C, V, bias=False)
        def forward(self, x):
            x = self.tok_embeddings(x)
            for l in self.layers: x = l(x)
            return self.output(self.norm(x))
    def data(seed):
        g = G(seed); B = 24; x = [torch.randint(V, (B,), generator=g) for _ in range(3)]
        for t in range(3, T+1): x.append(torch.where(torch.rand(B, generator=g) < .9, (x[t-3]*5+3) % V, torch.randint(V, (B,), generator=g)))
        x = torch.stack(x, 1); return x[:, :-1].contiguous(), x[:, 1:].contiguous()
    return dict(model=M, data=data, loss=lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten()))

# ---------------------------------------------------------------- SAC (behaviour-cloned actor + twin critics on a logged batch)
@net(corr="tanh correction with the wrong sign: + log(1 - a^2)", std="std = log_std (exp forgotten, softened by abs)", act="critic: cat([s, s_detached action]) -> action not passed: cat([s, zeros])", scale="action = tanh(mu)*scale, but the correction and the atanh omit the division by scale")
def sac(s):
    S, A, SC = 6, 2, 2.
    def mlp(i, o): return nn.Sequential(nn.Linear(i, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, o))
    class SAC(nn.Module):
        def __init__(self): super().__init__(); self.trunk = nn.Sequential(nn.Linear(S, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()); self.mu = nn.Linear(64, A); self.log_std = nn.Linear(64, A); self.q1 = mlp(S+A, 1); self.q2 = mlp(S+A, 1)
        def forward(self, o, a):
            h = self.trunk(o); mu, ls = self.mu(h), self.log_std(h).clamp(-5, 2); sd = ls.abs() + 1e-3 if s == "std" else ls.exp(); u = (a if s == "scale" else a/SC).clamp(-.999, .999); pre = torch.atanh(u)
            lp = (-(pre-mu)**2/(2*sd**2) - torch.log(sd) - .919).sum(-1); c = torch.log(SC*(1-u**2) + 1e-6).sum(-1); lp = lp + c if s == "corr" else lp - c
            x = torch.cat([o, torch.zeros_like(a) if s == "act" else a], -1); return lp, self.q1(x).squeeze(-1), self.q2(x).squeeze(-1)
    K = torch.randn(S, A, generator=G(6))*.6
    def data(seed):
        g = G(seed); B = 64; o = torch.randn(B, S, generator=g); a = SC*torch.tanh(o @ K + .4*torch.randn(B, A, generator=g)); r = (a*torch.sin(o[:, :2])).sum(-1) - .3*(a**2).sum(-1); return (o, a), r
    def loss(o, r): return -o[0].mean() + F.mse_loss(o[1], r) + F.mse_loss(o[2], r)
    return dict(model=SAC, data=data, loss=loss)

# ---------------------------------------------------------------- CRNN (CTC)
@net(lsm="log_softmax over dim=0 (time)", seq="(B,C,H,W) -> view(W,B,C*H) instead of permute(3,0,1,2)", blank="targets start at 0 = blank (alphabet not shifted by one)", hid="bidirectional outputs: linear reads the last step only, expanded over time")
def crnn(s):
    K, W, NC = 5, 40, 4
    class CRNN(nn.Module):
        def __init__(self): super().__init__(); self.cnn = nn.Sequential(nn.Conv2d(1, 16, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 24, 3, 1, 1), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d((2, 1))); self.rnn = nn.LSTM(24*2, 32, bidirectional=True); self.embedding = nn.Linear(64, K+1)
        def forward(self, x):
            c = self.cnn(x); B, C, H, Wd = c.shape; c = c.reshape(Wd, B, C*H) if s == "seq" else c.permute(3, 0, 1, 2).flatten(2); r, _ = self.rnn(c)
            if s == "hid": r = r[-1:].expand_as(r)
            return F.log_softmax(self.embedding(r), 0 if s == "lsm" else 2)
    P = (torch.rand(K, 8, 6, generator=G(8)) > .5).float()
    def data(seed):
        g = G(seed); B = 16; k = torch.randint(K, (B, NC), generator=g); x = .1*torch.randn(B, 1, 8, W, generator=g)
        for b in range(B):
            for j in range(NC): p = j*10 + int(torch.randint(4, (1,), generator=g)); x[b, 0, :, p:p+6] += P[k[b, j]]
        return x, (k if s == "blank" else k+1)
    def loss(o, t): return F.ctc_loss(o, t, torch.full((o.shape[1],), o.shape[0]), torch.full((t.shape[0],), NC), blank=0)
    return dict(model=CRNN, data=data, loss=loss, )
