from base import *

@case("https://github.com/neuraloperator/neuraloperator/issues/4", "x = self.conv3(x) instead of x1: the last block adds the previous block's x1", "the fourth Fourier block (stale x1)")
def fno_stale(planted):
    class Spec(nn.Module):
        def __init__(s, c, m): super().__init__(); s.m = m; s.w = nn.Parameter(torch.rand(c, c, m, 2) / (c * c))
        def forward(s, x):
            f = torch.fft.rfft(x); o = torch.zeros_like(f); o[..., :s.m] = torch.einsum("bix,iox->box", f[..., :s.m], torch.view_as_complex(s.w)); return torch.fft.irfft(o, n=x.shape[-1])
    class Block(nn.Module):
        def __init__(s, c=24, m=12):
            super().__init__(); s.fc0 = nn.Linear(2, c)
            for i in range(4): setattr(s, f"conv{i}", Spec(c, m)); setattr(s, f"w{i}", nn.Conv1d(c, c, 1)); setattr(s, f"bn{i}", nn.BatchNorm1d(c))
            s.fc1, s.fc2 = nn.Linear(c, 64), nn.Linear(64, 1)
        def forward(s, x):
            x = s.fc0(x).permute(0, 2, 1)
            for i in range(3):
                x1 = getattr(s, f"conv{i}")(x); x2 = getattr(s, f"w{i}")(x); x = F.relu(getattr(s, f"bn{i}")(x1 + x2))
            if planted: x = s.conv3(x)
            else: x1 = s.conv3(x)
            x2 = s.w3(x); x = s.bn3(x1 + x2).permute(0, 2, 1)
            return s.fc2(F.relu(s.fc1(x)))
    def data(s):
        n = 64; gx = torch.linspace(0, 1, n + 1)[:-1]; a = T(s, 32, 4, 2) / torch.arange(1, 5)[:, None].float(); k = torch.arange(1, 5)[:, None] * 2 * math.pi * gx
        u = torch.einsum("bk,kn->bn", a[..., 0], k.sin()) + torch.einsum("bk,kn->bn", a[..., 1], k.cos()); y = u - .5 * u * torch.roll(u, 3, 1)
        return torch.stack([u, gx.expand(32, n) * 3.46 - 1.73], -1), y[..., None]
    def rel(o, t): return ((o - t).flatten(1).norm(dim=1) / t.flatten(1).norm(dim=1)).mean()
    return dict(model=Block, data=data, loss=rel, lr=3e-3)

@case("https://github.com/PetarV-/DGI/issues/8", "masked average readout divides by the mask sum of the whole batch, not of each graph", "the AvgReadout (sum(msk) over the batch)")
def dgi_readout(planted):
    class DGI(nn.Module):
        def __init__(s, f=10, h=32):
            super().__init__(); s.fc = nn.Linear(f, h, bias=False); s.bias = nn.Parameter(torch.zeros(h)); s.act = nn.PReLU(); s.disc = nn.Bilinear(h, h, 1); nn.init.xavier_uniform_(s.fc.weight); nn.init.xavier_uniform_(s.disc.weight); nn.init.zeros_(s.disc.bias)
        def gcn(s, x, a): return s.act(torch.bmm(a, s.fc(x)) + s.bias)
        def forward(s, x1, x2, adj, msk):
            h1, h2 = s.gcn(x1, adj), s.gcn(x2, adj); m = msk[..., None]
            c = (h1 * m).sum(1) / (m.sum() if planted else m.sum(1)); c = c.sigmoid()[:, None].expand_as(h1).contiguous()
            return torch.cat([s.disc(h1, c), s.disc(h2, c)], 1).squeeze(-1)
    def data(s):
        B, N = 16, 12; g = gen(s); com = torch.randn(B, 1, 10, generator=g)
        blk = torch.randint(0, 2, (B, N), generator=g); mu = torch.randn(B, 2, 10, generator=g); x = torch.gather(mu, 1, blk[..., None].expand(B, N, 10)) * .5 + com + .5 * torch.randn(B, N, 10, generator=g)
        adj = (blk[:, :, None] == blk[:, None]).float() * (torch.rand(B, N, N, generator=g) < .5); adj = ((adj + adj.transpose(1, 2)) > 0).float() + torch.eye(N); adj = adj.clamp(max=1); d = adj.sum(-1).rsqrt(); adj = d[..., None] * adj * d[:, None]
        n = torch.randint(6, N + 1, (B,), generator=g); msk = (torch.arange(N) < n[:, None]).float()
        flat = x.reshape(B * N, 10)[torch.randperm(B * N, generator=g)].view(B, N, 10)
        return (x / 1.3, flat / 1.3, adj, msk), torch.cat([torch.ones(B, N), torch.zeros(B, N)], 1)
    return dict(model=DGI, data=data, loss=nn.BCEWithLogitsLoss(), lr=5e-3)

@case("https://github.com/chemprop/chemprop/pull/138", "the bond features are cut from the wrong end of [atom | bond]: the first atom features are taken, the bond features never used", "the bond feature slice (bond input unused)")
def chemprop_slice(planted):
    Fa, Fb, H = 12, 4, 48
    class MPN(nn.Module):
        def __init__(s):
            super().__init__(); s.W_i = nn.Linear(Fa, H, bias=False); s.W_h = nn.Linear(H + Fb, H, bias=False); s.W_o = nn.Linear(Fa + H, H); s.ffn = nn.Sequential(nn.Linear(H, H), nn.ReLU(), nn.Linear(H, 1))
        def forward(s, atoms, bonds, adj):
            B, N, _ = atoms.shape
            fb = torch.cat([atoms[:, None].expand(B, N, N, Fa), bonds], -1)      # atom | bond
            fb = fb[..., :Fb] if planted else fb[..., -Fb:]
            i = s.W_i(atoms); h = F.relu(i)
            for _ in range(2):
                m = torch.cat([h[:, None].expand(B, N, N, H), fb], -1); m = (adj[..., None] * m).sum(2); h = F.relu(i + s.W_h(m))
            m = (adj[..., None] * h[:, None]).sum(2)
            return s.ffn(F.relu(s.W_o(torch.cat([atoms, m], -1))).mean(1))
    wa = T(1, Fa); wb = torch.tensor([1.5, -.5, -1.5, .8])
    def data(s):
        B, N = 32, 7; g = gen(s); k = torch.randint(0, Fa, (B, N), generator=g); a = F.one_hot(k, Fa).float()
        adj = (torch.rand(B, N, N, generator=g) < .35).float().triu(1); adj = adj + adj.transpose(1, 2); t = torch.randint(0, Fb, (B, N, N), generator=g).triu(1); t = t + t.transpose(1, 2); b = F.one_hot(t, Fb).float() * adj[..., None]
        q = wa[k]; y = (adj * wb[t] * (1 + .5 * q[:, :, None] * q[:, None])).sum((1, 2)) / 10 + q.mean(1)
        return (a, b, adj), y[:, None]
    return dict(model=MPN, data=data, loss=mse, lr=3e-3)

@case("https://github.com/chengtan9907/OpenSTL/issues/68", "ConvLSTM: h = o * g instead of o * tanh(c): the cell state is never read", "the ConvLSTM output (cell state, input and forget gates unused)")
def convlstm_og(planted):
    C = 12
    class Cell(nn.Module):
        def __init__(s, i): super().__init__(); s.conv_x = nn.Conv2d(i, 4 * C, 3, padding=1); s.conv_h = nn.Conv2d(C, 4 * C, 3, padding=1)
        def forward(s, x, h, c):
            ix, fx, gx, ox = s.conv_x(x).chunk(4, 1); ih, fh, gh, oh = s.conv_h(h).chunk(4, 1)
            i, f, g, o = (ix + ih).sigmoid(), (fx + fh + 1).sigmoid(), (gx + gh).tanh(), (ox + oh).sigmoid(); c = f * c + i * g
            return (o * g if planted else o * c.tanh()), c
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.cells = nn.ModuleList([Cell(1), Cell(C)]); s.last = nn.Conv2d(C, 1, 1)
        def forward(s, x):
            B, L, _, H, W = x.shape; z = x.new_zeros(B, C, H, W); h, c = [z, z], [z, z]; out = []
            for t in range(L):
                v = x[:, t]
                for k, cell in enumerate(s.cells): h[k], c[k] = cell(v, h[k], c[k]); v = h[k]
                out.append(s.last(v))
            return torch.stack(out, 1)
    def data(s):
        g = gen(s); B, L, n = 16, 9, 10; p = torch.rand(B, 2, generator=g) * n; v = (torch.rand(B, 2, generator=g) - .5) * 3; r = torch.arange(n).float(); fr = []
        for t in range(L + 1):
            q = (p + v * t) % n; d = lambda a: torch.minimum((r - a[:, None]).abs(), n - (r - a[:, None]).abs())
            fr.append(torch.exp(-d(q[:, 0])[:, :, None] ** 2 / 3) * torch.exp(-d(q[:, 1])[:, None] ** 2 / 3))
        fr = (torch.stack(fr, 1)[:, :, None] - .09) / .2; return fr[:, :-1], fr[:, 1:]
    return dict(model=Net, data=data, loss=mse, lr=5e-3)

@case("https://github.com/xiangking/ark-nlp/issues/47", "RoPE: cos/sin tiled with repeat (1 2 3 1 2 3) while the rotated vector is interleaved", "the rotary embedding (cos_pos, sin_pos)")
def rope_repeat(planted):
    V, L, D, E, hs = 40, 12, 32, 2, 16
    class GP(nn.Module):
        def __init__(s):
            super().__init__(); s.emb = nn.Embedding(V, D); s.lstm = nn.LSTM(D, D // 2, batch_first=True, bidirectional=True); s.dense = nn.Linear(D, E * hs * 2)
            p = torch.arange(L).float()[:, None] * torch.pow(10000., -2 * torch.arange(hs // 2).float() / hs); s.register_buffer("pos", torch.stack([p.sin(), p.cos()], -1).flatten(-2))
        def forward(s, x):
            o = s.dense(s.lstm(s.emb(x))[0]).view(len(x), L, E, 2 * hs); q, k = o[..., :hs], o[..., hs:]
            c, sn = s.pos[:, None, 1::2], s.pos[:, None, ::2]
            if planted: c, sn = c.repeat(1, 1, 2), sn.repeat(1, 1, 2)
            else: c, sn = c.repeat_interleave(2, -1), sn.repeat_interleave(2, -1)
            rot = lambda u: u * c + torch.stack([-u[..., 1::2], u[..., ::2]], -1).reshape(u.shape) * sn
            lg = torch.einsum("bmhd,bnhd->bhmn", rot(q), rot(k)) / hs ** .5
            return lg - torch.tril(torch.ones(L, L), -1) * 1e12
    def loss(o, t):
        o, t = o.flatten(2).flatten(0, 1), t.flatten(2).flatten(0, 1); o = (1 - 2 * t) * o; neg = o - t * 1e12; ps = o - (1 - t) * 1e12; z = torch.zeros_like(o[:, :1])
        return (torch.logsumexp(torch.cat([neg, z], 1), 1) + torch.logsumexp(torch.cat([ps, z], 1), 1)).mean()
    def data(s):
        g = gen(s); x = torch.randint(8, V, (32, L), generator=g); t = torch.zeros(32, E, L, L)
        for b in range(32):
            for e in range(E):
                i = int(torch.randint(0, 3, (1,), generator=g)) + 6 * e; n = int(torch.randint(1, 4, (1,), generator=g)); x[b, i] = 2 * e; x[b, i + n] = 2 * e + 1; t[b, e, i, i + n] = 1
        return x, t
    return dict(model=GP, data=data, loss=loss, lr=5e-3)

@case("https://github.com/NTMC-Community/MatchZoo-py/issues/159", "rank hinge loss: negatives' scores are averaged first, then one hinge on the mean", "the rank hinge loss (mean of the negatives inside the hinge)")
def rankhinge_mean(planted):
    K = 4
    def rh(o, bad):
        o = o.view(-1, K + 1); p, n = o[:, :1], o[:, 1:]
        if bad: n = n.mean(1, keepdim=True)
        return F.relu(1 - (p - n)).mean()
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.emb = nn.Embedding(80, 32); s.conv = nn.Conv1d(32, 32, 3, padding=1); s.mlp = nn.Sequential(nn.Linear(96, 32), nn.ReLU(), nn.Linear(32, 1))
        def enc(s, x): return torch.tanh(s.conv(s.emb(x).transpose(1, 2))).amax(2)
        def forward(s, l, r): a, b = s.enc(l), s.enc(r); return s.mlp(torch.cat([a, b, a * b], 1))
    def data(s):
        g = gen(s); B = 12; top = torch.randint(0, 8, (B,), generator=g); draw = lambda t, n: t[:, None] * 10 + torch.randint(0, 10, (len(t), n), generator=g)
        other = (top[:, None] + torch.randint(1, 8, (B, K), generator=g)) % 8; rt = torch.cat([top[:, None], other], 1).flatten(); lt = top.repeat_interleave(K + 1)
        l = draw(top, 6).repeat_interleave(K + 1, 0); r = draw(rt, 8)
        noise = torch.randint(0, 80, r.shape, generator=g); r = torch.where(torch.rand(r.shape, generator=g) < .3, noise, r)
        return (l, r), (lt == rt).float()[:, None]
    def judge(m, x, t):
        o = m(*x).view(-1, K + 1); return 1 - float((1 / (1 + (o[:, 1:] >= o[:, :1]).sum(1)).float()).mean())   # 1 - MRR
    return dict(model=Net, data=data, loss=lambda o, t: rh(o, planted), lr=3e-3, judge=judge)

@case("https://github.com/labmlai/annotated_deep_learning_paper_implementations/pull/221", "ViT: position embeddings are added to the patches before the cls token is put in front, which gets none", "the position embedding / cls token")
def vit_clspos(planted):
    D = 32
    class ViT(nn.Module):
        def __init__(s):
            super().__init__(); s.patch = nn.Conv2d(3, D, 4, 4); s.pos = nn.Parameter(torch.zeros(64, 1, D)); s.cls = nn.Parameter(torch.randn(1, 1, D))
            s.tf = nn.TransformerEncoder(nn.TransformerEncoderLayer(D, 4, 64, dropout=.1, activation="gelu", norm_first=True), 2, enable_nested_tensor=False); s.norm = nn.LayerNorm(D); s.head = nn.Sequential(nn.Linear(D, 64), nn.ReLU(), nn.Linear(64, 6))
        def forward(s, x):
            x = s.patch(x).flatten(2).permute(2, 0, 1); c = s.cls.expand(-1, x.shape[1], -1)
            if planted: x = torch.cat([c, x + s.pos[:len(x)]])
            else: x = torch.cat([c, x]); x = x + s.pos[:len(x)]
            return s.head(s.norm(s.tf(x)[0]))
    P = F.interpolate(T(4, 6, 3, 4, 4), size=16, mode="nearest")
    def data(s): y = R(s, 6, (64,)); return P[y] + .7 * T(s + 1, 64, 3, 16, 16), y
    return dict(model=ViT, data=data, loss=ce, lr=2e-3)

@case("https://github.com/tensorflow/swift-models/issues/179", "autoencoder of [0,1] pixels ends in tanh instead of sigmoid", "the tanh output")
def swift_tanh(planted):
    def model():
        return nn.Sequential(nn.Linear(144, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 3), nn.ReLU(), nn.Linear(3, 12), nn.ReLU(), nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 144), nn.Tanh() if planted else nn.Sigmoid())
    r = torch.arange(12.)
    def data(s):
        g = gen(s); c = 2 + 8 * torch.rand(64, 2, generator=g); x = torch.exp(-((r - c[:, :1]) ** 2)[:, :, None] / 25 - ((r - c[:, 1:]) ** 2)[:, None] / 25).flatten(1)
        return x, x.clone()
    return dict(model=model, data=data, loss=mse, lr=4e-3)

@case("https://github.com/ixaxaar/pytorch-dnc/pull/57", "batch cosine similarity: norms expanded over the word size before bmm, so the similarity is divided by the word size", "the content addressing (cosine similarity theta)")
def dnc_theta(planted):
    Wd, N = 24, 6
    class Mem(nn.Module):
        def __init__(s):
            super().__init__(); s.write_key = nn.Linear(12, Wd); s.write_val = nn.Linear(12, Wd); s.read = nn.Linear(12, Wd); s.strength = nn.Linear(12, 1); s.out = nn.Linear(Wd, 8)
        def forward(s, keys, vals, query):
            M, k = s.write_key(keys), s.read(query)[:, None]
            dt = 1e-6
            if planted:
                an = M.norm(dim=2, keepdim=True).expand_as(M) + dt; kn = k.norm(dim=2, keepdim=True).expand_as(k) + dt
                th = torch.bmm(M, k.transpose(1, 2)).transpose(1, 2) / (torch.bmm(an, kn.transpose(1, 2)).transpose(1, 2) + dt)
            else:
                th = torch.bmm(M, k.transpose(1, 2)).transpose(1, 2) / (torch.bmm(M.norm(dim=2, keepdim=True), k.norm(dim=2, keepdim=True).transpose(1, 2)).transpose(1, 2) + dt)
            b = 1 + F.softplus(s.strength(query))[:, :, None]
            return s.out(torch.bmm((th * b).softmax(-1), s.write_val(vals))[:, 0])
    E = T(1, 8, 12)
    def data(s):
        g = gen(s); k = torch.randn(64, N, 12, generator=g); v = torch.randint(0, 8, (64, N), generator=g); i = torch.randint(0, N, (64,), generator=g); a = torch.arange(64)
        return (k, E[v], k[a, i] + .1 * torch.randn(64, 12, generator=g)), v[a, i]
    return dict(model=Mem, data=data, loss=ce, lr=1e-2)
