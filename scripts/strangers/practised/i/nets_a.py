from harness import *
import torch.nn as nn, torch.nn.functional as F
def G(seed): return torch.Generator().manual_seed(seed)

# ---------------------------------------------------------------- nanoGPT
@net(view="y.contiguous().view(B,T,C) without transpose(1,2)", softdim="softmax over dim=-2 (queries)", tgt="targets = idx, not shifted by one", emb="tied embedding initialised N(0,1) (init_weights without the embedding case)")
def nanogpt(s):
    V, T, C, H = 16, 24, 64, 4
    class Attn(nn.Module):
        def __init__(self):
            super().__init__(); self.c_attn = nn.Linear(C, 3*C); self.c_proj = nn.Linear(C, C)
            self.register_buffer("bias", torch.tril(torch.ones(T, T)).view(1, 1, T, T))
        def forward(self, x):
            B, T, C = x.size(); q, k, v = self.c_attn(x).split(C, dim=2)
            q, k, v = (u.view(B, T, H, C//H).transpose(1, 2) for u in (q, k, v))
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
            att = F.softmax(att, dim=-2 if s == "softdim" else -1)
            y = att @ v
            y = y.contiguous().view(B, T, C) if s == "view" else y.transpose(1, 2).contiguous().view(B, T, C)
            return self.c_proj(y)
    class MLP(nn.Module):
        def __init__(self): super().__init__(); self.c_fc = nn.Linear(C, 4*C); self.gelu = nn.GELU(); self.c_proj = nn.Linear(4*C, C)
        def forward(self, x): return self.c_proj(self.gelu(self.c_fc(x)))
    class Block(nn.Module):
        def __init__(self): super().__init__(); self.ln_1 = nn.LayerNorm(C); self.attn = Attn(); self.ln_2 = nn.LayerNorm(C); self.mlp = MLP()
        def forward(self, x): x = x + self.attn(self.ln_1(x)); return x + self.mlp(self.ln_2(x))
    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.transformer = nn.ModuleDict(dict(wte=nn.Embedding(V, C), wpe=nn.Embedding(T, C), h=nn.ModuleList([Block() for _ in range(3)]), ln_f=nn.LayerNorm(C)))
            self.lm_head = nn.Linear(C, V, bias=False); self.transformer.wte.weight = self.lm_head.weight
            self.apply(self._init)
            if s == "emb": nn.init.normal_(self.transformer.wte.weight)
            for n, p in self.named_parameters():
                if n.endswith("c_proj.weight"): nn.init.normal_(p, 0, 0.02/math.sqrt(6))
        def _init(self, m):
            if isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, 0, 0.02)
                if m.bias is not None: nn.init.zeros_(m.bias)
            elif isinstance(m, nn.Embedding): nn.init.normal_(m.weight, 0, 0.02)
        def forward(self, idx):
            t = self.transformer; x = t.wte(idx) + t.wpe(torch.arange(idx.size(1)))
            for b in t.h: x = b(x)
            return self.lm_head(t.ln_f(x))
    P = torch.softmax(torch.randn(V, V, generator=G(7))*2, -1)
    def data(seed):
        g = G(seed); B = 32; x = [torch.randint(V, (B,), generator=g) for _ in range(3)]
        for t in range(3, T+1):  # next = perm of x[t-3] with probability .8, else a markov step
            a = (x[t-3]*5+3) % V; b = torch.multinomial(P[x[t-1]], 1, generator=g)[:, 0]
            x.append(torch.where(torch.rand(B, generator=g) < .85, a, b))
        x = torch.stack(x, 1); return x[:, :-1].contiguous(), (x[:, :-1] if s == "tgt" else x[:, 1:]).contiguous()
    return dict(model=GPT, data=data, loss=lambda y, t: F.cross_entropy(y.view(-1, V) if y.is_contiguous() else y.reshape(-1, V), t.reshape(-1)), diag={})

# ---------------------------------------------------------------- DETR
@net(temb="time embedding not passed on: ResBlock ignores emb (self.emb_proj unused)", skip="up path concatenates h with itself, not with the stored skip", tscale="timesteps divided by T before the sinusoidal embedding (t in 0..1)", noise="loss target is the clean image instead of the noise")
def ddpm(s):
    C, TT = 24, 100
    ab = torch.cumprod(1 - torch.linspace(1e-3, .08, TT), 0)
    def temb(t, d):
        if s == "tscale": t = t / TT
        f = torch.exp(-math.log(10000)*torch.arange(d//2)/(d//2)); a = t.float()[:, None]*f[None]
        return torch.cat([a.sin(), a.cos()], -1)
    class Res(nn.Module):
        def __init__(self, i, o):
            super().__init__(); self.in_layers = nn.Sequential(nn.GroupNorm(4, i), nn.SiLU(), nn.Conv2d(i, o, 3, padding=1)); self.emb_proj = nn.Linear(4*C, o)
            self.norm = nn.GroupNorm(4, o); self.conv = nn.Conv2d(o, o, 3, padding=1); self.skip = nn.Conv2d(i, o, 1) if i != o else nn.Identity()
            nn.init.zeros_(self.conv.weight); nn.init.zeros_(self.conv.bias)
        def forward(self, x, e):
            h = self.in_layers(x)
            if s != "temb": h = h + self.emb_proj(F.silu(e))[:, :, None, None]
            return self.skip(x) + self.conv(F.silu(self.norm(h)))
    class UNet(nn.Module):
        def __init__(self):
            super().__init__(); self.time = nn.Sequential(nn.Linear(C, 4*C), nn.SiLU(), nn.Linear(4*C, 4*C)); self.conv_in = nn.Conv2d(1, C, 3, padding=1)
            self.d1 = Res(C, C); self.down = nn.Conv2d(C, C, 3, 2, 1); self.d2 = Res(C, 2*C); self.mid = Res(2*C, 2*C); self.u2 = Res(4*C, C); self.up = nn.Conv2d(C, C, 3, padding=1); self.u1 = Res(2*C, C)
            self.out = nn.Sequential(nn.GroupNorm(4, C), nn.SiLU(), nn.Conv2d(C, 1, 3, padding=1))
        def forward(self, x, t):
            e = self.time(temb(t, C)); h = self.conv_in(x); h1 = self.d1(h, e); h2 = self.d2(self.down(h1), e); h = self.mid(h2, e)
            h = self.u2(torch.cat([h, h if s == "skip" else h2], 1), e); h = self.up(F.interpolate(h, scale_factor=2.))
            return self.out(self.u1(torch.cat([h, h if s == "skip" else h1], 1), e))
    def data(seed):
        g = G(seed); B = 32; yy, xx = torch.meshgrid(torch.arange(12.), torch.arange(12.), indexing="ij"); a = torch.rand(B, 3, 1, 1, generator=g)
        x0 = torch.sin(xx*(.5+a[:, 0]) + yy*(.5+a[:, 1]) + 6.28*a[:, 2]).unsqueeze(1)
        t = torch.randint(TT, (B,), generator=g); n = torch.randn(x0.shape, generator=g); A = ab[t][:, None, None, None]
        return (A.sqrt()*x0 + (1-A).sqrt()*n, t), (x0 if s == "noise" else n)
    return dict(model=UNet, data=data, loss=F.mse_loss)

# ---------------------------------------------------------------- FPN + dense heads (RetinaNet/FCOS)
@net(bias="focal prior bias with the wrong sign (+log((1-pi)/pi))", lateral="top-down path forgets the lateral: inner = upsampled only", sig="sigmoid in the head, and BCE-with-logits in the loss", inplace="heads share one tower by [conv]*3 and outputs overwritten: level logits of p3 returned for all levels")
def fpn(s):
    C = 24
    class FPN(nn.Module):
        def __init__(self):
            super().__init__(); cb = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True), nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))
            self.c2, self.c3, self.c4 = cb(1, 16), cb(16, 24), cb(24, 32)
            self.inner = nn.ModuleList([nn.Conv2d(c, C, 1) for c in (16, 24, 32)]); self.layer = nn.ModuleList([nn.Conv2d(C, C, 3, 1, 1) for _ in range(3)])
            self.tower = nn.Sequential(nn.Conv2d(C, C, 3, 1, 1), nn.ReLU(), nn.Conv2d(C, C, 3, 1, 1), nn.ReLU()); self.cls = nn.Conv2d(C, 2, 3, 1, 1); self.box = nn.Conv2d(C, 1, 3, 1, 1)
            for m in [*self.inner, *self.layer]: nn.init.kaiming_uniform_(m.weight, a=1); nn.init.zeros_(m.bias)
            nn.init.normal_(self.cls.weight, 0, .01); nn.init.constant_(self.cls.bias, (1 if s == "bias" else -1)*math.log(.99/.01))
        def forward(self, x):
            c2 = self.c2(x); c3 = self.c3(c2); c4 = self.c4(c3); last = self.inner[2](c4); P = [self.layer[2](last)]
            for i, c in ((1, c3), (0, c2)):
                up = F.interpolate(last, scale_factor=2., mode="nearest"); last = up if s == "lateral" else self.inner[i](c) + up
                P.insert(0, self.layer[i](last))
            out = []
            for i, p in enumerate(P):
                if s == "inplace": p = F.adaptive_avg_pool2d(P[0], p.shape[-2:])
                t = self.tower(p); l = self.cls(t); l = l.sigmoid() if s == "sig" else l
                out.append(torch.cat([l, F.softplus(self.box(t))], 1).flatten(2))
            return torch.cat(out, -1)
    def data(seed):
        g = G(seed); B = 16; img = torch.randn(B, 1, 24, 24, generator=g)*.1; T = [torch.zeros(B, 3, n, n) for n in (12, 6, 3)]
        for b in range(B):
            for o in range(3):
                lv = int(torch.randint(3, (1,), generator=g)); w = (2, 5, 10)[lv]; k = int(torch.randint(2, (1,), generator=g)); y, x = (int(torch.randint(24-w, (1,), generator=g)) for _ in range(2))
                img[b, 0, y:y+w, x:x+w] = 1 if k else -1
                cy, cx = int((y+w/2)/2**(lv+1)), int((x+w/2)/2**(lv+1)); cy, cx = min(cy, T[lv].shape[-1]-1), min(cx, T[lv].shape[-1]-1)
                T[lv][b, k, cy, cx] = 1; T[lv][b, 2, cy, cx] = w/10
        return img, torch.cat([t.flatten(2) for t in T], -1)
    def loss(o, t):
        l, y = o[:, :2], t[:, :2]; p = l.sigmoid(); ce = F.binary_cross_entropy_with_logits(l, y, reduction="none"); pt = p*y + (1-p)*(1-y); al = .75*y + .25*(1-y)
        n = y.sum().clamp(min=1); m = (y.sum(1) > 0).float()
        return (al*(1-pt)**2*ce).sum()/n + ((o[:, 2]-t[:, 2]).abs()*m).sum()/n
    return dict(model=FPN, data=data, loss=loss)

# ---------------------------------------------------------------- ConvNeXt
@net(res="block returns drop_path(x) without the residual input", act="GELU forgotten between pwconv1 and pwconv2 (and LN, all linear)", gamma="gamma = 1e-6*torch.ones: a tensor, not nn.Parameter", perm="back with view(N,C,H,W) instead of permute(0,3,1,2)")
def convnext(s):
    D = (24, 48)
    class LN2(nn.Module):
        def __init__(self, c): super().__init__(); self.weight = nn.Parameter(torch.ones(c)); self.bias = nn.Parameter(torch.zeros(c))
        def forward(self, x):
            u = x.mean(1, keepdim=True); v = (x-u).pow(2).mean(1, keepdim=True); return self.weight[:, None, None]*(x-u)/torch.sqrt(v+1e-6) + self.bias[:, None, None]
    class Block(nn.Module):
        def __init__(self, d):
            super().__init__(); self.dwconv = nn.Conv2d(d, d, 5, padding=2, groups=d); self.norm = nn.LayerNorm(d, eps=1e-6); self.pwconv1 = nn.Linear(d, 4*d); self.act = nn.GELU(); self.pwconv2 = nn.Linear(4*d, d)
            g = (1e-6 if s == "gamma" else 1e-2)*torch.ones(d); self.gamma = g if s == "gamma" else nn.Parameter(g)
        def forward(self, x):
            i = x; x = self.dwconv(x).permute(0, 2, 3, 1); x = self.norm(x); x = self.pwconv1(x)
            if s != "act": x = self.act(x)
            x = self.gamma*self.pwconv2(x); N, H, W, C = x.shape
            x = x.reshape(N, C, H, W) if s == "perm" else x.permute(0, 3, 1, 2)
            return x if s == "res" else i + x
    class CN(nn.Module):
        def __init__(self):
            super().__init__(); self.downsample_layers = nn.ModuleList([nn.Sequential(nn.Conv2d(3, D[0], 2, 2), LN2(D[0])), nn.Sequential(LN2(D[0]), nn.Conv2d(D[0], D[1], 2, 2))])
            self.stages = nn.ModuleList([nn.Sequential(*[Block(d) for _ in range(2)]) for d in D]); self.norm = nn.LayerNorm(D[1], eps=1e-6); self.head = nn.Linear(D[1], 4)
            for m in self.modules():
                if isinstance(m, (nn.Conv2d, nn.Linear)): nn.init.trunc_normal_(m.weight, std=.02 if not (isinstance(m, nn.Conv2d)) else .1); nn.init.zeros_(m.bias)
        def forward(self, x):
            for d, st in zip(self.downsample_layers, self.stages): x = st(d(x))
            return self.head(self.norm(x.mean([-2, -1])))
    def data(seed):  # class = are the two strokes parallel/crossing: horizontal bar above vertical bar etc.
        g = G(seed); B = 48; x = torch.randn(B, 3, 16, 16, generator=g)*.3; y = torch.randint(4, (B,), generator=g)
        for b in range(B):
            i, j = (int(torch.randint(1, 9, (1,), generator=g)) for _ in range(2)); k = int(y[b])
            if k & 1: x[b, :, i:i+6, j:j+2] += 1
            else: x[b, :, i:i+2, j:j+6] += 1
            if k & 2: x[b, :, i:i+2, j:j+2] -= 2
        return x, y
    return dict(model=CN, data=data, loss=F.cross_entropy)
