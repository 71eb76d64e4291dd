from base import *
def E(a): return "experience: " + a
def mlp(*d, act=nn.ReLU): return nn.Sequential(*[m for i in range(len(d) - 1) for m in (nn.Linear(d[i], d[i + 1]), act())][:-1])

@case(E("time series"), "RevIN normalises the input and the forecast is never denormalised", "output / revin")
def revin_no_denorm(planted):
    class P(nn.Module):
        def __init__(s):
            super().__init__(); s.g, s.b = nn.Parameter(torch.ones(3)), nn.Parameter(torch.zeros(3)); s.patch = nn.Linear(8, 48); s.pos = nn.Parameter(torch.randn(6, 48) * .02)
            s.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(48, 4, 96, dropout=0., batch_first=True, norm_first=True), 2); s.head = nn.Linear(6 * 48, 12)
        def forward(s, x):
            mu, sd = x.mean(1, keepdim=True), x.std(1, keepdim=True) + 1e-5; z = ((x - mu) / sd) * s.g + s.b; n = len(x)
            z = z.transpose(1, 2).reshape(n * 3, 6, 8); y = s.head(s.enc(s.patch(z) + s.pos).flatten(1)).view(n, 3, 12).transpose(1, 2)
            return y if planted else (y - s.b) / (s.g + 1e-5) * sd + mu
    def data(seed):
        g = gen(seed); t = torch.arange(60.)[None, :, None]; f = .15 + .3 * torch.rand(16, 1, 3, generator=g); ph = 6.3 * torch.rand(16, 1, 3, generator=g)
        x = 4 * torch.randn(16, 1, 3, generator=g) + torch.sin(f * t + ph) * 1.5 + .1 * torch.randn(16, 60, 3, generator=g); return x[:, :48], x[:, 48:]
    return dict(model=P, data=data, loss=mse, diag=MSE)

@case(E("temporal convolution"), "Chomp cuts the left end instead of the right: the network sees the future only", "chomp")
def tcn_chomp_side(planted):
    class B(nn.Module):
        def __init__(s, i, o, d): super().__init__(); s.c1, s.c2 = nn.Conv1d(i, o, 3, padding=2 * d, dilation=d), nn.Conv1d(o, o, 3, padding=2 * d, dilation=d); s.p = 2 * d; s.down = nn.Conv1d(i, o, 1) if i != o else nn.Identity()
        def ch(s, y): return y[:, :, s.p:] if planted else y[:, :, :-s.p]
        def forward(s, x): return F.relu(s.down(x) + F.relu(s.ch(s.c2(F.relu(s.ch(s.c1(x)))))))
    class TCN(nn.Module):
        def __init__(s): super().__init__(); s.b = nn.Sequential(B(4, 48, 1), B(48, 48, 2), B(48, 48, 4)); s.out = nn.Linear(48, 5)
        def forward(s, x): return s.out(s.b(x.transpose(1, 2)).transpose(1, 2))
    A, C = T(3, 4, 5), T(4, 4, 5)
    def data(seed): x = T(seed, 16, 32, 4); return x, (torch.roll(x, 3, 1) @ A + torch.roll(x, 6, 1) @ C).argmax(-1)
    return dict(model=TCN, data=data, loss=ceseq, diag=SEQ)

class Blk(nn.Module):
    def __init__(s, d, h=4): super().__init__(); s.n1, s.n2 = nn.LayerNorm(d), nn.LayerNorm(d); s.qkv = nn.Linear(d, 3 * d); s.o = nn.Linear(d, d); s.ff = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d)); s.h = h
    def rot(s, q): return q
    def forward(s, x, causal=True):
        n, t, d = x.shape; q, k, v = s.qkv(s.n1(x)).view(n, t, 3, s.h, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(s.rot(q), s.rot(k), v, is_causal=causal); x = x + s.o(a.transpose(1, 2).reshape(n, t, d)); return x + s.ff(s.n2(x))
@case(E("language models"), "output tied to an nn.Embedding with the default N(0, 1) initialisation: huge logits", "wte / lm_head")
def gpt_tied_default_init(planted):
    class G(nn.Module):
        def __init__(s, d=128, v=64):
            super().__init__(); s.wte, s.wpe = nn.Embedding(v, d), nn.Embedding(24, d); s.h = nn.ModuleList([Blk(d), Blk(d)]); s.ln = nn.LayerNorm(d); s.lm_head = nn.Linear(d, v, bias=False)
            s.lm_head.weight = s.wte.weight
            if not planted:
                for m in s.modules():
                    if isinstance(m, (nn.Linear, nn.Embedding)): nn.init.normal_(m.weight, std=.02)
                    if isinstance(m, nn.Linear) and m.bias is not None: nn.init.zeros_(m.bias)
        def forward(s, i):
            x = s.wte(i) + s.wpe(torch.arange(i.shape[1]))
            for b in s.h: x = b(x)
            return s.lm_head(s.ln(x))
    pm = torch.randperm(64, generator=gen(6))
    def data(seed):
        g = gen(seed); x = torch.zeros(16, 25, dtype=torch.long); x[:, 0] = torch.randint(0, 64, (16,), generator=g); r = torch.randint(0, 64, (16, 25), generator=g); u = torch.rand(16, 25, generator=g)
        for t in range(1, 25): x[:, t] = torch.where(u[:, t] < .85, pm[x[:, t - 1]], r[:, t])
        return x[:, :-1], x[:, 1:]
    return dict(model=G, data=data, loss=ceseq, diag=SEQ)

@case(E("translation"), "cross-attention is given the target as memory; the encoder's output is dropped", "encoder / cross attention")
def mt_cross_self(planted):
    class D(nn.Module):
        def __init__(s, d): super().__init__(); s.b = Blk(d); s.ca = nn.MultiheadAttention(d, 4, batch_first=True); s.n = nn.LayerNorm(d)
        def forward(s, x, m): x = s.b(x); y = s.n(x); m = y if planted else m; return x + s.ca(y, m, m, need_weights=False, attn_mask=torch.ones(8, 8).triu(1).bool() if planted else None)[0]
    class MT(nn.Module):
        def __init__(s, d=64): super().__init__(); s.se, s.te = nn.Embedding(12, d), nn.Embedding(13, d); s.pos = nn.Parameter(torch.randn(8, d)); s.enc = nn.ModuleList([Blk(d)]); s.en = nn.LayerNorm(d); s.dec = nn.ModuleList([D(d), D(d)]); s.out = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 12))
        def forward(s, x, y):
            m = s.se(x) + s.pos
            for l in s.enc: m = l(m, False)
            m = s.en(m); h = s.te(y) + s.pos
            for l in s.dec: h = l(h, m)
            return s.out(h)
    pm = torch.randperm(12, generator=gen(2))
    def data(seed): x = R(seed, 12, (32, 8)); y = pm[x]; return (x, torch.cat([torch.full((32, 1), 12), y[:, :-1]], 1)), y
    return dict(model=MT, data=data, loss=ceseq, diag=SEQ)

@case(E("rotary embeddings"), "RoPE written for (B, T, H, D) applied to (B, H, T, D): rotates by the head's number", "rotary")
def rope_wrong_axis(planted):
    class RB(Blk):
        def rot(s, q):
            dim = 1 if planted else 2; n = q.shape[dim]; D = q.shape[-1]; f = 1 / 100 ** (torch.arange(0, D, 2) / D); a = torch.arange(n)[:, None] * f
            sh = [1, 1, 1, D // 2]; sh[dim] = n; c, sn = a.cos().view(sh), a.sin().view(sh); u, w = q[..., ::2], q[..., 1::2]; return torch.stack([u * c - w * sn, u * sn + w * c], -1).flatten(-2)
    class G(nn.Module):
        def __init__(s, d=64): super().__init__(); s.e = nn.Embedding(8, d); s.h = nn.ModuleList([RB(d), RB(d)]); s.out = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 8))
        def forward(s, i):
            x = s.e(i)
            for b in s.h: x = b(x)
            return s.out(x)
    def data(seed): x = R(seed, 8, (32, 16)); return x, torch.cat([x[:, :1], x[:, :-1]], 1)
    return dict(model=G, data=data, loss=ceseq, diag=SEQ)

@case(E("contrastive learning"), "cosine similarities go into the cross-entropy without a temperature", "output / logit scale")
def infonce_no_temperature(planted):
    class C(nn.Module):
        def __init__(s):
            super().__init__(); s.a, s.b = mlp(24, 96, 96, 32), mlp(20, 96, 96, 32)
            if not planted: s.logit_scale = nn.Parameter(torch.tensor(math.log(1 / .07)))
        def forward(s, x, y):
            r = F.normalize(s.a(x), dim=-1) @ F.normalize(s.b(y), dim=-1).T
            return r if planted else r * s.logit_scale.exp()
    A, B = T(1, 8, 24), T(2, 8, 20)
    def data(seed): z = T(seed, 64, 8); return (z @ A + .2 * T(seed + 1, 64, 24), torch.tanh(z @ B * .5)), torch.arange(64)
    return dict(model=C, data=data, loss=lambda o, t: (F.cross_entropy(o, t) + F.cross_entropy(o.T, t)) / 2, diag={})

@case(E("retrieval"), "F.normalize with its default dim=1 on (batch, tokens, features)", "normalize")
def colbert_normalize_dim(planted):
    class C(nn.Module):
        def __init__(s): super().__init__(); s.e = nn.Embedding(200, 64); s.enc = nn.GRU(64, 64, batch_first=True); s.proj = nn.Linear(64, 32, bias=False)
        def f(s, i): h = s.proj(s.enc(s.e(i))[0] + s.e(i)); return F.normalize(h) if planted else F.normalize(h, dim=-1)
        def forward(s, q, d): return torch.einsum("qtc,dsc->qdts", s.f(q), s.f(d)).amax(-1).sum(-1) / .2
    syn = torch.randperm(100, generator=gen(4)) + 100
    def data(seed): d = R(seed, 100, (32, 20)); g = gen(seed + 1); i = torch.stack([torch.randperm(20, generator=g)[:5] for _ in range(32)]); return (syn[d.gather(1, i)], d), torch.arange(32)
    return dict(model=C, data=data, loss=ce, diag={})

@case(E("recommenders"), "one table for all fields, offsets forgotten: the fields share rows", "embedding ids")
def fm_no_offsets(planted):
    class FM(nn.Module):
        def __init__(s): super().__init__(); s.emb, s.lin = nn.Embedding(96, 16), nn.Embedding(96, 1); nn.init.normal_(s.emb.weight, std=.1); nn.init.zeros_(s.lin.weight); s.bias = nn.Parameter(torch.zeros(1)); s.mlp = mlp(128, 64, 1); s.register_buffer("off", torch.arange(8) * 12)
        def forward(s, x):
            if not planted: x = x + s.off
            e = s.emb(x); return s.bias + s.lin(x).sum((1, 2)) + .5 * (e.sum(1) ** 2 - (e ** 2).sum(1)).sum(1) + s.mlp(e.flatten(1)).squeeze(1)
    W = T(5, 8, 12)
    def data(seed): x = R(seed, 12, (128, 8)); return x, (W[torch.arange(8), x].sum(1) > 0).float()
    return dict(model=FM, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t), diag={})

def sm(e, i, n): w = (e - e.max()).exp(); return w / torch.zeros(n, e.shape[1]).index_add(0, i, w)[i].clamp(min=1e-12)
@case(E("graph attention"), "attention softmax over all edges, not over each node's edges", "gat attention softmax")
def gat_softmax_edges(planted):
    class L(nn.Module):
        def __init__(s, i, o, h=4): super().__init__(); s.w = nn.Linear(i, h * o, bias=False); s.a, s.b = nn.Parameter(torch.empty(1, h, o)), nn.Parameter(torch.empty(1, h, o)); nn.init.xavier_uniform_(s.a); nn.init.xavier_uniform_(s.b); s.bias = nn.Parameter(torch.zeros(h * o)); s.h = h
        def forward(s, x, ei):
            n = len(x); z = s.w(x).view(n, s.h, -1); j, i = ei; e = F.leaky_relu((z * s.a).sum(-1)[j] + (z * s.b).sum(-1)[i], .2); al = e.softmax(0) if planted else sm(e, i, n)
            return torch.zeros_like(z).index_add(0, i, z[j] * al[..., None]).flatten(1) + s.bias
    class G(nn.Module):
        def __init__(s): super().__init__(); s.a, s.b = L(8, 16), L(64, 16); s.c = nn.Linear(64, 5)
        def forward(s, x, ei): return s.c(F.elu(s.b(F.elu(s.a(x, ei)), ei)))
    W = T(1, 8, 5)
    def data(seed):
        g = gen(seed); x = torch.randn(200, 8, generator=g); s = torch.randint(0, 200, (800,), generator=g); d = torch.randint(0, 200, (800,), generator=g); l = torch.arange(200)
        ei = torch.stack([torch.cat([s, l]), torch.cat([d, l])]); m = torch.zeros(200, 8).index_add(0, ei[1], x[ei[0]]); return (x, ei), (m @ W).argmax(1)
    return dict(model=G, data=data, loss=ce, diag=dict(loss="cross-entropy", examples="one"))

@case(E("graph classification"), "readout averages over all nodes of the batch, the batch vector is unused", "readout")
def gin_pool_batch(planted):
    class G(nn.Module):
        def __init__(s): super().__init__(); s.m = nn.ModuleList([nn.Sequential(nn.Linear(i, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU()) for i in (6, 48, 48)]); s.c = nn.Linear(48, 3)
        def forward(s, x, ei, b):
            for m in s.m: x = m(x + torch.zeros_like(x).index_add(0, ei[1], x[ei[0]]))
            n = 24
            if planted: r = x.mean(0, keepdim=True).expand(n, -1)
            else: r = torch.zeros(n, 48).index_add(0, b, x) / torch.bincount(b, minlength=n)[:, None]
            return s.c(r)
    def data(seed):
        g = gen(seed); y = torch.randint(0, 3, (24,), generator=g); b = torch.arange(24).repeat_interleave(10); x = F.one_hot(torch.randint(0, 6, (240,), generator=g), 6).float(); es = []
        for k in range(24): u = torch.randint(0, 10, (2, [8, 16, 32][y[k]]), generator=g) + 10 * k; es += [u, u.flip(0)]
        return (x, torch.cat(es, 1), b), y
    return dict(model=G, data=data, loss=ce, diag=dict(loss="cross-entropy", examples="one"))

@case(E("point clouds"), "topk of the distances picks the farthest points, not the neighbours", "knn / edge conv")
def knn_farthest(planted):
    class D(nn.Module):
        def __init__(s): super().__init__(); s.e1 = nn.Sequential(nn.Conv2d(6, 32, 1), nn.BatchNorm2d(32), nn.LeakyReLU(.2), nn.Conv2d(32, 48, 1)); s.f = nn.Sequential(nn.Conv1d(48, 64, 1), nn.BatchNorm1d(64), nn.LeakyReLU(.2)); s.c = mlp(128, 64, 4)
        def forward(s, x):
            d = torch.cdist(x, x) ** 2; i = (d if planted else -d).topk(3, -1)[1]; n = len(x); xj = x[torch.arange(n)[:, None, None], i]; xi = x[:, :, None].expand_as(xj)
            h = s.f(s.e1(torch.cat([xj - xi, xi], -1).permute(0, 3, 1, 2)).amax(-1)); return s.c(torch.cat([h.amax(-1), h.mean(-1)], 1))
    def data(seed):
        g = gen(seed); y = torch.randint(0, 4, (24,), generator=g); c = torch.rand(24, 24, 3, generator=g) * 4 - 2; o = torch.tensor([[1., 0, 0], [0, 1, 0], [0, 0, 1], [.6, .6, .6]])[y][:, None] * .45 + .03 * torch.randn(24, 24, 3, generator=g)
        return torch.cat([c, c + o], 1), y
    return dict(model=D, data=data, loss=ce, diag=CE)

@case(E("meshes"), "face normal is the cross product of an edge with itself: always zero", "normals input")
def mesh_zero_normals(planted):
    class Mesh(nn.Module):
        def __init__(s): super().__init__(); s.spatial, s.struct = mlp(3, 32, 32), mlp(3, 32, 32); s.mix = mlp(64, 96, 64); s.c = mlp(64, 32, 4)
        def forward(s, v):
            a, b, c = v.unbind(2); e1 = b - a; e2 = (b - a) if planted else (c - a); n = F.normalize(torch.linalg.cross(e1, e2), dim=-1, eps=1e-6)
            return s.c(s.mix(torch.cat([s.spatial(v.mean(2)), s.struct(n)], -1).relu()).mean(1))
    def data(seed):
        g = gen(seed); y = torch.randint(0, 4, (32,), generator=g); m = F.normalize(T(8, 4, 3), dim=-1)[y][:, None] + .5 * torch.randn(32, 24, 3, generator=g); r = torch.randn(32, 24, 3, generator=g)
        u = F.normalize(torch.linalg.cross(m, r), dim=-1); w = F.normalize(torch.linalg.cross(m, u), dim=-1); a = torch.randn(32, 24, 3, generator=g); return torch.stack([a, a + u, a + w], 2), y
    return dict(model=Mesh, data=data, loss=ce, diag=CE)

@case(E("proteins"), "average product correction (for positive maps) applied to signed maps: divides by a mean near zero", "apc")
def apc_signed(planted):
    class P(nn.Module):
        def __init__(s): super().__init__(); s.e = nn.Embedding(20, 48); s.c = nn.Sequential(nn.Conv1d(48, 48, 3, padding=1), nn.ReLU()); s.n = nn.LayerNorm(48); s.q, s.k = nn.Linear(48, 64), nn.Linear(48, 64); s.reg = nn.Linear(8, 1)
        def forward(s, i):
            h = s.e(i); h = s.n(h + s.c(h.transpose(1, 2)).transpose(1, 2)); n, l, _ = h.shape; q, k = s.q(h).view(n, l, 8, 8), s.k(h).view(n, l, 8, 8)
            m = torch.einsum("nihc,njhc->nhij", q, k) / 8 ** .5; m = m + m.transpose(-1, -2)
            if planted: a1, a2, a12 = m.sum(-1, keepdim=True), m.sum(-2, keepdim=True), m.sum((-1, -2), keepdim=True); m = m - a1 * a2 / a12
            return s.reg(m.permute(0, 2, 3, 1)).squeeze(-1)
    S = T(6, 20, 4)
    def data(seed): i = R(seed, 20, (16, 20)); f = S[i]; return i, (f @ f.transpose(1, 2) > 1.5).float()
    return dict(model=P, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t), diag={})

@case(E("molecules"), "distances in nanometres with radial basis centres in angstrom: only the first basis responds", "rbf / filter")
def rbf_units(planted):
    class S(nn.Module):
        def __init__(s, d=48):
            super().__init__(); s.e = nn.Embedding(5, d); s.register_buffer("mu", torch.linspace(0, 5, 25)); s.filt = nn.ModuleList([mlp(25, d, d, act=nn.Softplus) for _ in range(2)]); s.i = nn.ModuleList([nn.Linear(d, d, bias=False) for _ in range(2)]); s.o = nn.ModuleList([mlp(d, d, d, act=nn.Softplus) for _ in range(2)]); s.out = mlp(d, 32, 1, act=nn.Softplus)
        def forward(s, z, r):
            x = s.e(z); d = ((r[:, :, None] - r[:, None]) ** 2).sum(-1).add(1e-12).sqrt(); g = torch.exp(-10 * (d[..., None] - s.mu) ** 2); m = (1 - torch.eye(z.shape[1])) * .3
            for f, i, o in zip(s.filt, s.i, s.o): x = x + o(torch.einsum("nijc,njc,ij->nic", f(g), i(x), m))
            return s.out(x).sum(1).squeeze(-1) * .3
    Q = T(2, 5, 5)
    def data(seed):
        g = gen(seed); z = torch.randint(0, 5, (24, 7), generator=g); r = torch.randn(24, 7, 3, generator=g) * 1.2; d = torch.cdist(r, r); q = (Q + Q.T)[z[:, :, None], z[:, None]]
        return (z, r * .1 if planted else r), (.5 * q * torch.exp(-(d - 1.5) ** 2 / .5) * (1 - torch.eye(7))).sum((1, 2)) * .4
    return dict(model=S, data=data, loss=mse, diag=MSE)
