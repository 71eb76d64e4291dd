from base import *

def mol_data(seed, n=5, B=32, ang=False):
    g = gen(seed); z = torch.randint(0, 4, (B, n), generator=g)
    base = torch.tensor([[0., 0, 0], [1.4, 0, 0], [0, 1.4, 0], [0, 0, 1.4], [-1.2, -1.2, 0]])[:n]
    pos = base + .35 * torch.randn(B, n, 3, generator=g)
    q = torch.tensor([1., -1., .5, -.5])[z]; d = torch.cdist(pos, pos) + torch.eye(n) * 1e3
    e = (q[:, :, None] * q[:, None] / d).sum((1, 2)) / 2 + .4 * torch.exp(-d).sum((1, 2))
    return (z, pos), ((e - .75) / 1.15)[:, None]
def rbf(d, k=8, cut=5.0): return torch.exp(-4 * (d[..., None] - torch.linspace(.5, cut - .5, k)) ** 2)
def cutoff(d, cut=5.0): return .5 * (torch.cos(math.pi * d / cut) + 1) * (d < cut)
def geom(pos):
    r = pos[:, :, None] - pos[:, None]; n = pos.shape[1]; eye = torch.eye(n, dtype=torch.bool)
    d = (r.pow(2).sum(-1) + eye * 1.0).sqrt()
    return r / d[..., None], d, (~eye).float()

# ---------- 21 DimeNet output blocks ----------
def glorot_orthogonal(w, scale):
    nn.init.orthogonal_(w.data); sc = scale / ((w.size(-2) + w.size(-1)) * w.var()); w.data *= sc.sqrt()
class DimeOut(nn.Module):
    def __init__(s, planted, h, k=8, out=1, nl=2):
        super().__init__(); s.lin_rbf = nn.Linear(k, h, bias=False); s.lins = nn.ModuleList([nn.Linear(h, h) for _ in range(nl)]); s.lin = nn.Linear(h, out, bias=False)
        glorot_orthogonal(s.lin_rbf.weight, 2.)
        for l in s.lins: glorot_orthogonal(l.weight, 2.); l.bias.data.fill_(0)
        if planted: s.lin.weight.data.fill_(0)
        else: glorot_orthogonal(s.lin.weight, 2.)
    def forward(s, x, rb, m):
        x = ((s.lin_rbf(rb) * x) * m[..., None]).sum(2)
        for l in s.lins: x = F.silu(l(x))
        return s.lin(x)
class DimeInt(nn.Module):
    def __init__(s, h, k=8):
        super().__init__(); s.lin_rbf = nn.Linear(k, h, bias=False); s.lin_sbf = nn.Linear(k * 4, h, bias=False); s.lin_kj, s.lin_ji, s.l1, s.l2 = (nn.Linear(h, h) for _ in range(4))
        for l in (s.lin_kj, s.lin_ji, s.l1, s.l2): glorot_orthogonal(l.weight, 2.); l.bias.data.fill_(0)
        for l in (s.lin_rbf, s.lin_sbf): glorot_orthogonal(l.weight, 2.)
    def forward(s, x, rb, sbf, m3):  # x (B,i,j,h) message j->i ; sbf (B,i,j,k,.)
        ji = F.silu(s.lin_ji(x)); kj = F.silu(s.lin_kj(x)) * s.lin_rbf(rb)
        kj = (kj[:, None] * s.lin_sbf(sbf) * m3[..., None]).sum(3)  # messages k->j summed over k
        y = ji + kj
        return x + F.silu(s.l2(F.silu(s.l1(y))))
class DimeNet(nn.Module):
    def __init__(s, planted, h=24):
        super().__init__(); s.emb = nn.Embedding(4, h); s.emb.weight.data.uniform_(-math.sqrt(3), math.sqrt(3)); s.lin_rbf = nn.Linear(8, h); s.lin = nn.Linear(3 * h, h)
        s.out = nn.ModuleList([DimeOut(planted, h) for _ in range(2)]); s.int = nn.ModuleList([DimeInt(h)])
    def forward(s, z, pos):
        u, d, m = geom(pos); rb = rbf(d) * cutoff(d)[..., None]; e = s.emb(z); B, n, h = e.shape
        x = F.silu(s.lin(torch.cat([e[:, :, None].expand(B, n, n, h), e[:, None].expand(B, n, n, h), F.silu(s.lin_rbf(rb))], -1)))
        cosang = -(u[:, :, :, None] * u[:, None, :, :]).sum(-1)  # angle at j between i and k
        ang = torch.stack([torch.ones_like(cosang), cosang, cosang ** 2, cosang ** 3], -1)
        sbf = (rb[:, None, :, :, :, None] * ang[..., None, :]).flatten(-2)
        m3 = m[:, :, None] * m[None, :, :] * m[:, None, :]; m3 = m3.expand(B, n, n, n)
        P = s.out[0](x, rb, m)
        for i, o in zip(s.int, s.out[1:]): x = i(x, rb, sbf, m3); P = P + o(x, rb, m)
        return P.sum(1)
@case("https://github.com/pyg-team/pytorch_geometric/pull/7774",
      "the last linear layer of every DimeNet output block starts at zero instead of glorot_orthogonal", "out.*.lin initialised with zeros")
def dimenet_zero(planted):
    return dict(model=lambda: DimeNet(planted), data=mol_data, loss=mse, lr=2e-3, diag={})

# ---------- 22 HGT ----------
class HGT(nn.Module):
    def __init__(s, planted, d=24, H=2):
        super().__init__(); s.planted, s.H, s.D = planted, H, d // H
        s.inp = nn.ModuleDict({"paper": nn.Linear(8, d), "author": nn.Linear(6, d)})
        s.kqv = nn.ModuleDict({t: nn.Linear(d, 3 * d) for t in ("paper", "author")})
        s.k_rel, s.v_rel = (nn.Parameter(nn.init.xavier_uniform_(torch.empty(2 * H, d // H, d // H))) for _ in range(2))
        s.p_rel = nn.Parameter(torch.ones(2, H)); s.out = nn.Linear(d, d); s.skip = nn.Parameter(torch.ones(1)); s.head = nn.Linear(d, 3)
    def forward(s, xp, xa, App, Aap):
        h = {"paper": F.relu(s.inp["paper"](xp)), "author": F.relu(s.inp["author"](xa))}
        sp = lambda t: [y.view(-1, s.H, s.D) for y in s.kqv[t](h[t]).chunk(3, -1)]
        (kp, q, vp), (ka, _, va) = sp("paper"), sp("author")
        def rel(w, i, x): return torch.einsum("nhd,hde->nhe", x, w[i * s.H:(i + 1) * s.H])
        vw = s.k_rel if s.planted else s.v_rel
        k = torch.cat([rel(s.k_rel, 0, kp), rel(s.k_rel, 1, ka)]); v = torch.cat([rel(vw, 0, vp), rel(vw, 1, va)])
        A = torch.cat([App, Aap], 1)
        p = torch.cat([s.p_rel[:1].expand(len(xp), -1), s.p_rel[1:].expand(len(xa), -1)])
        a = (torch.einsum("nhd,mhd->nmh", q, k) * p[None] / math.sqrt(s.D)).masked_fill(A[..., None] == 0, float("-inf"))
        o = torch.einsum("nmh,mhd->nhd", torch.softmax(a, 1), v).flatten(1)
        o = s.out(F.gelu(o)); al = torch.sigmoid(s.skip); o = al * o + (1 - al) * h["paper"]
        return s.head(o)
def het_data(seed):
    g = gen(seed); n, m = 48, 24; xp, xa = torch.randn(n, 8, generator=g), torch.randn(m, 6, generator=g)
    App = ((torch.rand(n, n, generator=g) < .06).float() + torch.eye(n)).clamp(max=1); Aap = (torch.rand(n, m, generator=g) < .12).float()
    sc = xp[:, 0] + 2.0 * (Aap @ xa[:, :1]).squeeze(1) / Aap.sum(1).clamp(min=1) + (App @ xp[:, 1:2]).squeeze(1) / App.sum(1)
    return (xp, xa, App, Aap), (sc > -.7).long() + (sc > .7).long()
@case("https://github.com/pyg-team/pytorch_geometric/pull/7050",
      "FastHGTConv passes the values through k_rel instead of v_rel: v_rel is never used", "v_rel never used")
def hgt_krel(planted):
    return dict(model=lambda: HGT(planted), data=het_data, loss=ce, lr=5e-3, diag={})

# ---------- 23 PaiNN ----------
class PInt(nn.Module):
    def __init__(s, h): super().__init__(); s.net = nn.Sequential(nn.Linear(h, h), nn.SiLU(), nn.Linear(h, 3 * h))
    def forward(s, q, mu, W, u, m):
        x = s.net(q)[:, None] * W * m[..., None]; dq, dR, dmu = x.chunk(3, -1)
        return q + dq.sum(2), mu + (dR[..., None, :] * u[..., None] + dmu[..., None, :] * mu[:, None]).sum(2)
class PMix(nn.Module):
    def __init__(s, h): super().__init__(); s.vw = nn.Linear(h, 2 * h, bias=False); s.net = nn.Sequential(nn.Linear(2 * h, h), nn.SiLU(), nn.Linear(h, 3 * h))
    def forward(s, q, mu):
        V, W = s.vw(mu).chunk(2, -1); vn = (V.pow(2).sum(-2) + 1e-8).sqrt()
        dq, dmu, dqmu = s.net(torch.cat([q, vn], -1)).chunk(3, -1)
        return q + dq + dqmu * (V * W).sum(-2), mu + dmu[..., None, :] * W
class PaiNN(nn.Module):
    def __init__(s, planted, h=20, nb=3):
        super().__init__(); s.planted, s.nb = planted, nb; s.emb = nn.Embedding(4, h); s.filter_net = nn.Linear(8, nb * 3 * h)
        s.interaction_modules, s.mixing_modules = nn.ModuleList([PInt(h) for _ in range(nb)]), nn.ModuleList([PMix(h) for _ in range(nb)]); s.readout = nn.Sequential(nn.Linear(h, h), nn.SiLU(), nn.Linear(h, 1))
    def forward(s, z, pos):
        u, d, m = geom(pos); fl = (s.filter_net(rbf(d)) * cutoff(d)[..., None]).chunk(s.nb, -1)
        q0 = s.emb(z); mu0 = q0.new_zeros(*z.shape, 3, q0.shape[-1]); q, mu = q0, mu0
        for i, (a, b) in enumerate(zip(s.interaction_modules, s.mixing_modules)):
            if s.planted: q, mu = a(q0, mu0, fl[i], u, m)
            else: q, mu = a(q, mu, fl[i], u, m)
            q, mu = b(q, mu)
        return s.readout(q).sum(1)
@case("https://github.com/choderalab/modelforge/pull/62",
      "each iteration starts again from the initial q and mu: only the last interaction + mixing block counts", "interaction_modules / mixing_modules before the last have no effect")
def painn_reset(planted):
    return dict(model=lambda: PaiNN(planted), data=mol_data, loss=mse, lr=2e-3, diag={})

# ---------- 24 N-BEATS ----------
class NBlock(nn.Module):
    def __init__(s, b, f, units=48, th=8):
        super().__init__(); s.fc = nn.Sequential(nn.Linear(b, units), nn.ReLU(), nn.Linear(units, units), nn.ReLU(), nn.Linear(units, units), nn.ReLU(), nn.Linear(units, units), nn.ReLU())
        s.theta_b, s.theta_f, s.bc, s.fcst = nn.Linear(units, th), nn.Linear(units, th), nn.Linear(th, b), nn.Linear(th, f)
    def forward(s, x): h = s.fc(x); return s.bc(s.theta_b(h)), s.fcst(s.theta_f(h))
class NBeats(nn.Module):
    def __init__(s, planted, b=24, f=8, stacks=2, blocks=2): super().__init__(); s.planted = planted; s.blocks = nn.ModuleList([NBlock(b, f) for _ in range(stacks * blocks)])
    def forward(s, x):
        for i, bl in enumerate(s.blocks):
            bc, fc = bl(x); x = x - bc
            y = fc if i == 0 else y + fc
            if s.planted: y = y + fc
        return y
def ts_data(seed):
    g = gen(seed); B = 64; n = torch.arange(32).float()
    y = torch.randn(B, 1, generator=g) * .6 + torch.randn(B, 1, generator=g) * .04 * (n - 16) + sum(torch.randn(B, 1, generator=g) * .7 * torch.sin(2 * math.pi * n / p + torch.rand(B, 1, generator=g) * 6.28) for p in (8, 12)) + .05 * torch.randn(B, 32, generator=g)
    y = y / .98
    return y[:, :24].contiguous(), y[:, 24:].contiguous()
@case("https://github.com/philipperemy/n-beats/commit/25da160f1b9da4432e04b183381ba1903a1c6445",
      "every block's forecast is added twice to the sum", "the forecast sum (each block's forecast counted twice)")
def nbeats_twice(planted):
    return dict(model=lambda: NBeats(planted), data=ts_data, loss=lambda o, t: F.l1_loss(o, t), lr=2e-3, diag={})

# ---------- 25 CTGAN discriminator ----------
class CTD(nn.Module):
    def __init__(s, planted, d=9, z=8, pac=2):
        super().__init__(); s.planted, s.pac, s.d = planted, pac, d
        s.seq = nn.Sequential(nn.Linear(d * pac, 64), nn.LeakyReLU(.2), nn.Dropout(.5), nn.Linear(64, 64), nn.LeakyReLU(.2), nn.Dropout(.5), nn.Linear(64, 1))
        st = torch.get_rng_state(); torch.manual_seed(3); s.G = nn.Sequential(nn.Linear(z, 32), nn.ReLU(), nn.Linear(32, d)); torch.set_rng_state(st)
        for p in s.G.parameters(): p.requires_grad_(False)
    def D(s, x): return s.seq(x.view(-1, s.pac * s.d))
    def act(s, f): return torch.cat([torch.tanh(f[:, :1]), F.gumbel_softmax(f[:, 1:5], tau=.2), torch.tanh(f[:, 5:6]), F.gumbel_softmax(f[:, 6:], tau=.2)], 1)
    def forward(s, fakez, real):
        fake = s.G(fakez); fakeact = s.act(fake); fake_cat = fake if s.planted else fakeact
        y_fake, y_real = s.D(fake_cat), s.D(real)
        with torch.enable_grad():
            a = torch.rand(len(real) // s.pac, 1, 1).expand(-1, s.pac, s.d).reshape(-1, s.d); xi = (a * real + (1 - a) * fake_cat).detach().requires_grad_(True)
            gr = torch.autograd.grad(s.D(xi).sum(), xi, create_graph=True)[0]
            pen = ((gr.view(-1, s.pac * s.d).norm(2, 1) - 1) ** 2).mean() * 10
        return -(y_real.mean() - y_fake.mean()) + pen
def tab_data(seed):
    g = gen(seed); B = 64; m = torch.randint(0, 4, (B,), generator=g); c = (torch.rand(B, generator=g) < .8).long() * (m % 3)
    real = torch.cat([.3 * torch.randn(B, 1, generator=g), F.one_hot(m, 4).float(), .2 * torch.randn(B, 1, generator=g) + .4, F.one_hot(c, 3).float()], 1)
    return (torch.randn(B, 8, generator=g), real), None
def ct_judge(m, x, t):
    z, real = x; return -(m.D(real).mean() - m.D(m.act(m.G(z))).mean())
@case("https://github.com/sdv-dev/CTGAN/commit/2dbbc18770d0dc17e7c5e83da6980ace424e9326",
      "without conditions the discriminator is trained on the generator's raw outputs (fake) instead of the activated ones (fakeact)", "fake_cat = fake: raw, unactivated fakes into the discriminator")
def ctgan_fake(planted):
    return dict(model=lambda: CTD(planted), data=tab_data, loss=lambda o, t: o, lr=2e-3, diag={"loss": "model"}, judge=ct_judge)

# ---------- 26 Galerkin transformer ----------
class PosEnc(nn.Module):
    def __init__(s, planted, d, max_len=256, p=.1):
        super().__init__(); s.planted = planted; s.dropout = nn.Dropout(p)
        pe = torch.zeros(max_len, d); pos = torch.arange(max_len).float()[:, None]; div = torch.exp(torch.arange(0, d, 2).float() * (-math.log(2 ** 13) / d))
        pe[:, 0::2], pe[:, 1::2] = torch.sin(pos * div), torch.cos(pos * div)
        s.register_buffer("pe", pe.unsqueeze(0).transpose(0, 1) if planted else pe.unsqueeze(0))
    def forward(s, x): return s.dropout(x + (s.pe[:x.size(0), :] if s.planted else s.pe[:, :x.size(1), :]))
class Galerkin(nn.Module):
    def __init__(s, planted, d=32, h=4, nl=2):
        super().__init__(); s.h = h; s.inp = nn.Linear(1, d); s.pos = PosEnc(planted, d)
        s.qkv = nn.ModuleList([nn.Linear(d, 3 * d) for _ in range(nl)]); s.nk, s.nv = (nn.ModuleList([nn.LayerNorm(d // h) for _ in range(nl)]) for _ in range(2))
        s.fc = nn.ModuleList([nn.Linear(d, d) for _ in range(nl)]); s.ff = nn.ModuleList([nn.Sequential(nn.Linear(d, 2 * d), nn.ReLU(), nn.Linear(2 * d, d)) for _ in range(nl)]); s.out = nn.Sequential(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, 1))
    def forward(s, u):
        x = s.pos(s.inp(u)); B, n, d = x.shape
        for qkv, nk, nv, fc, ff in zip(s.qkv, s.nk, s.nv, s.fc, s.ff):
            q, k, v = (y.view(B, n, s.h, -1).transpose(1, 2) for y in qkv(x).chunk(3, -1))
            a = q @ ((nk(k).transpose(-1, -2) @ nv(v)) / n)
            x = x + fc(a.transpose(1, 2).reshape(B, n, d)); x = x + ff(x)
        return s.out(x)
def gal_data(seed):
    g = gen(seed); B, n = 32, 32; xs = torch.arange(n) / n; a = torch.randn(B, 3, generator=g); k = torch.arange(1, 4)[:, None]
    u = (a[..., None] * torch.sin(math.pi * k * xs)).sum(1)  # -y'' = f on (0,1): y = sum a_k sin / k^2, and a variable coefficient
    y = u * (1 + 2 * xs) + (a[..., None] * torch.sin(math.pi * k * xs) / k ** 2).sum(1) + 1.5 * torch.cos(2 * math.pi * xs)
    return (u / 1.21)[..., None], (y / 3.2)[..., None]
@case("https://github.com/scaomath/galerkin-transformer/commit/2c9d23e146c7d78b69ed78ecff1e47f15a7cd173",
      "positional encoding indexed by the batch: pe[:x.size(0)] with (batch, seq, d) inputs, every position of a sample gets the same code", "pos: the encoding varies over the batch, not the sequence")
def galerkin_pe(planted):
    return dict(model=lambda: Galerkin(planted), data=gal_data, loss=mse, lr=3e-3, diag={})

# ---------- 27 DGCNN ----------
class DGCNN(nn.Module):
    def __init__(s, planted, k=6, c=(3, 16, 32), emb=48, nc=4):
        super().__init__(); s.planted, s.k = planted, k
        def cb(i, o): return nn.Sequential(nn.Conv2d(i, o, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(.2))
        s.conv1, s.conv2 = cb(2 * c[0], c[1]), cb(2 * c[1], c[2]); s.conv5 = nn.Sequential(nn.Conv1d(c[1] + c[2], emb, 1, bias=False), nn.BatchNorm1d(emb), nn.LeakyReLU(.2))
        s.linear1, s.bn6, s.dp1, s.linear3 = nn.Linear(2 * emb, 32, bias=False), nn.BatchNorm1d(32), nn.Dropout(.5), nn.Linear(32, nc)
    def graph(s, x):  # (B,C,N)
        B, C, N = x.shape; xt = x.transpose(1, 2)
        idx = (-torch.cdist(xt, xt)).topk(s.k, -1)[1]
        f = xt[torch.arange(B)[:, None, None], idx]; c = xt[:, :, None].expand(-1, -1, s.k, -1)
        return torch.cat([f if s.planted else f - c, c], -1).permute(0, 3, 1, 2)
    def forward(s, x):
        a = s.conv1(s.graph(x)).max(-1)[0]; b = s.conv2(s.graph(a)).max(-1)[0]; y = s.conv5(torch.cat([a, b], 1))
        y = torch.cat([y.max(-1)[0], y.mean(-1)], 1)
        return s.linear3(s.dp1(F.leaky_relu(s.bn6(s.linear1(y)), .2)))
def pc_data(seed):
    g = gen(seed); B, N = 32, 40; y = torch.randint(0, 4, (B,), generator=g); p = torch.randn(B, N, 3, generator=g)
    sph = F.normalize(p, dim=-1) * 1.7; cube = torch.rand(B, N, 3, generator=g) * 3.4 - 1.7; cyl = torch.cat([F.normalize(p[..., :2], dim=-1) * 1.4, torch.rand(B, N, 1, generator=g) * 3.4 - 1.7], -1)
    t = torch.rand(B, N, 1, generator=g) * 6.28; hel = torch.cat([1.4 * torch.cos(t), 1.4 * torch.sin(t), (t - 3.14) / 1.9], -1)
    x = torch.stack([sph, cube, cyl, hel], 1)[torch.arange(B), y] + .05 * torch.randn(B, N, 3, generator=g)
    x = x * (torch.rand(B, 1, 1, generator=g) * .5 + .75)
    return x.transpose(1, 2).contiguous(), y
@case("https://github.com/WangYueFt/dgcnn/commit/72375d3ff8c85e629b4216cc3b430c7a2dc79903",
      "edge features concatenate the neighbour and the point instead of (neighbour - point) and the point", "get_graph_feature: feature instead of feature - x")
def dgcnn_edge(planted):
    return dict(model=lambda: DGCNN(planted), data=pc_data, loss=ce, lr=3e-3, diag={})
