from base import *
from nets_a import Block, sincos, MHA, LM

class SSM(nn.Module):
    def __init__(s, d, how):
        super().__init__(); s.inp = nn.Linear(d, 2 * d); s.dt = nn.Linear(d, d); s.B, s.C = nn.Linear(d, 8, bias=False), nn.Linear(d, 8, bias=False); s.A_log = nn.Parameter(torch.arange(1, 9.).log().repeat(d, 1)); s.D = nn.Parameter(torch.ones(d)); s.out = nn.Linear(d, d)
        with torch.no_grad():
            nn.init.uniform_(s.dt.weight, -.1, .1); ldt = torch.rand(d) * (math.log(.1) - math.log(.001)) + math.log(.001); dt = ldt.exp()
            if how == "logdt": s.dt.bias.copy_(ldt + torch.log1p(-torch.exp(-ldt.exp())))
            elif how == "ones": s.dt.bias.fill_(1.)
            else: s.dt.bias.copy_(dt + torch.log(-torch.expm1(-dt)))
    def forward(s, x):
        u, z = s.inp(x).chunk(2, -1); u = F.silu(u); dt = F.softplus(s.dt(u)); A = -s.A_log.exp(); B, C = s.B(u), s.C(u); h = 0; ys = []
        for t in range(x.shape[1]):
            h = torch.exp(dt[:, t, :, None] * A) * h + (dt[:, t] * u[:, t])[..., None] * B[:, t, None]; ys.append((h * C[:, t, None]).sum(-1))
        return s.out((torch.stack(ys, 1) + s.D * u) * F.silu(z))

class MambaNet(nn.Module):
    def __init__(s, how, L=2, d=32, reinit=False):
        super().__init__(); s.inp = nn.Linear(4, d); s.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(L)); s.layers = nn.ModuleList(SSM(d, how) for _ in range(L)); s.norm = nn.LayerNorm(d); s.head = nn.Linear(d, 2)
        if reinit:
            for m in s.modules():
                if isinstance(m, nn.Linear): nn.init.normal_(m.weight, std=.02); m.bias is not None and nn.init.zeros_(m.bias)
    def forward(s, x):
        h = s.inp(x)
        for n, l in zip(s.norms, s.layers): h = h + l(n(h))
        return s.head(s.norm(h[:, -1]))

def memory(s): x = T(s, 32, 16, 4); return x, (x[:, :, 0].sum(1) > 0).long()

@case("https://github.com/kmheckel/spyx/pull/42", "dt bias initialised from log(dt), not dt: steps of about dt^2", "dt")
def spyx_logdt(planted): return dict(model=lambda: MambaNet("logdt" if planted else None), data=memory, loss=ce, diag=CE)

@case("https://github.com/fla-org/flash-linear-attention/pull/739", "dt bias left at one instead of the inverse softplus of small steps", "dt")
def fla_dtones(planted): return dict(model=lambda: MambaNet("ones" if planted else None), data=memory, loss=ce, diag=CE)

@case("https://github.com/jejjohnson/research_notebook/pull/93", "coupling layers with one fixed mask: half of the coordinates never change", "coupling masks")
def flow_fixedmask(planted):
    class Flow(nn.Module):
        def __init__(s): super().__init__(); s.nets = nn.ModuleList(nn.Sequential(nn.Linear(1, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 2)) for _ in range(4))
        def forward(s, x):
            ld = 0; a, b = x.chunk(2, -1)
            for i, n in enumerate(s.nets):
                l, t = n(a).chunk(2, -1); l = torch.tanh(l) * 2; b = b * l.exp() + t; ld = ld + l[:, 0]
                if not planted: a, b = b, a
            z = torch.cat([a, b], -1); return -(-.5 * (z ** 2).sum(-1) - math.log(2 * math.pi) + ld)
    def data(s):
        y = R(s, 2, (256,)); u = torch.rand(256, generator=gen(s + 1)) * math.pi; x = torch.stack([u.cos() + y, u.sin() * (1 - 2 * y) + .5 * y], 1) + T(s + 2, 256, 2) * .05; return x * 2 + torch.tensor([3., 0.]), torch.zeros(256)
    return dict(model=Flow, data=data, loss=lambda o, t: o.mean())

@case("https://github.com/lululxvi/deepxde/issues/33", "the solution is of size 30, the outputs of the tanh network are not scaled", "outputs")
def deepxde_scale(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); L = [nn.Linear(1, 50), nn.Tanh(), nn.Linear(50, 50), nn.Tanh(), nn.Linear(50, 50), nn.Tanh(), nn.Linear(50, 1)]; s.net = nn.Sequential(*L)
            for m in L[::2]: nn.init.xavier_uniform_(m.weight); nn.init.zeros_(m.bias)
        def forward(s, x): y = s.net(x); return y if planted else 30 * y
    def data(s): x = torch.rand(64, 1, generator=gen(s)) * 2 - 1; return x, 30 * torch.sin(4 * x) + 10
    return dict(model=Net, data=data, loss=mse, diag=dict(loss="mse"))

@case("https://github.com/closeheat/pytorch-lstm-text-generation-tutorial/issues/3", "batches first given to an LSTM without batch_first: it runs over the examples", "lstm")
def closeheat_lstm(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.embedding = nn.Embedding(12, 32); s.lstm = nn.LSTM(32, 64, num_layers=2, batch_first=not planted); s.fc = nn.Linear(64, 12)
        def forward(s, x): return s.fc(s.lstm(s.embedding(x))[0])
    def data(s): x = R(s, 12, (32, 10)); return x, (x + torch.cat([x[:, :1], x[:, :-1]], 1)) % 12
    return dict(model=Net, data=data, loss=ceseq, diag=SEQ)

@case("https://github.com/titu1994/keras-squeeze-excite-network/issues/7", "softmax instead of sigmoid as the excitation of SE blocks", "se")
def se_softmax(planted):
    class SEBlock(nn.Module):
        def __init__(s, c): super().__init__(); s.c1, s.c2, s.b1, s.b2 = nn.Conv2d(c, c, 3, padding=1, bias=False), nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c), nn.BatchNorm2d(c); s.fc1, s.fc2 = nn.Linear(c, c // 4), nn.Linear(c // 4, c)
        def forward(s, x):
            y = s.b2(s.c2(torch.relu(s.b1(s.c1(x))))); e = s.fc2(torch.relu(s.fc1(y.mean((2, 3))))); e = e.softmax(1) if planted else e.sigmoid(); return torch.relu(x + y * e[..., None, None])
    def model(): return nn.Sequential(nn.Conv2d(3, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), SEBlock(32), nn.MaxPool2d(2), SEBlock(32), SEBlock(32), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 5))
    P = T(4, 5, 3, 6, 6)
    def data(s):
        y = R(s, 5, (32,)); x = T(s + 1, 32, 3, 12, 12); p = torch.randint(0, 7, (32, 2), generator=gen(s + 2))
        for i in range(32): x[i, :, p[i, 0]:p[i, 0] + 6, p[i, 1]:p[i, 1] + 6] += P[y[i]]
        return x, y
    return dict(model=model, data=data, loss=ce, diag=CE)

@case("https://github.com/leaderj1001/Stand-Alone-Self-Attention/issues/2", "the relative position parameters are created anew in every forward", "rel_h, rel_w")
def sasa_forwardparam(planted):
    class Attn(nn.Module):
        def __init__(s, i, o, k=3):
            super().__init__(); s.q, s.k_, s.v = (nn.Conv2d(i, o, 1, bias=False) for _ in range(3)); s.k, s.o = k, o
            if not planted: s.rel_h, s.rel_w = nn.Parameter(torch.randn(o // 2, 1, 1, k, 1)), nn.Parameter(torch.randn(o // 2, 1, 1, 1, k))
        def forward(s, x):
            B, _, H, W = x.shape; p = F.pad(x, (1,) * 4); q = s.q(x); k = s.k_(p).unfold(2, s.k, 1).unfold(3, s.k, 1); v = s.v(p).unfold(2, s.k, 1).unfold(3, s.k, 1)
            rh, rw = (nn.Parameter(torch.randn(s.o // 2, 1, 1, s.k, 1)), nn.Parameter(torch.randn(s.o // 2, 1, 1, 1, s.k))) if planted else (s.rel_h, s.rel_w)
            a, b = k.split(s.o // 2, 1); k = torch.cat([a + rh, b + rw], 1)
            a = (q[..., None, None] * k).flatten(4).softmax(-1); return (a * v.flatten(4)).sum(-1)
    def model(): return nn.Sequential(Attn(3, 24), nn.BatchNorm2d(24), nn.ReLU(), Attn(24, 24), nn.BatchNorm2d(24), nn.ReLU(), nn.Conv2d(24, 3, 1))
    K = T(3, 3, 3, 3, 3) * .4
    def data(s): x = T(s, 12, 3, 10, 10); return x, F.conv2d(x, K, padding=1).argmax(1)
    return dict(model=model, data=data, loss=ce, diag=CE)

@case("https://github.com/pytorch/pytorch/issues/11991", "InstanceNorm1d on (batch, features): every value normalised by itself, all zero", "norm")
def instnorm_2d(planted):
    class IN(nn.Module):
        def __init__(s, d): super().__init__(); s.weight, s.bias = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))
        def forward(s, x):        # torch itself refuses one element today; it did not in the report
            if planted: x = x[..., None]
            x = (x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-5)
            if planted: x = x[..., 0]
            return x * s.weight + s.bias
    def model(): return nn.Sequential(nn.Linear(10, 64), IN(64), nn.ReLU(), nn.Linear(64, 64), IN(64), nn.ReLU(), nn.Linear(64, 4))
    W = T(1, 10, 4)
    def data(s): x = T(s, 64, 10); return x, (x @ W).argmax(1)
    return dict(model=model, data=data, loss=ce, diag=CE)

@case("https://github.com/dreamquark-ai/tabnet/issues/515", "errors divided by the (negative) mean of a constant feature: loss goes to minus infinity", "loss")
def tabnet_negloss(planted):
    class AE(nn.Module):
        def __init__(s): super().__init__(); s.net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
        def forward(s, x, m): return s.net(x * (1 - m))
    W = T(2, 3, 8)
    def data(s): x = T(s, 64, 3) @ W; x[:, 5] = -.3; m = (torch.rand(64, 8, generator=gen(s + 1)) < .25).float(); return (x, m), (x, m)
    def loss(o, t):
        x, m = t; sd = x.std(0) ** 2; mu = x.mean(0)
        sd = torch.where(sd < 1e-10, mu if planted else torch.ones_like(mu), sd); return (((o - x) * m) ** 2 / sd).sum(1).div(m.sum(1) + 1e-9).mean()
    return dict(model=AE, data=data, loss=loss)

@case("https://github.com/mattiasegu/uncertainty_estimation_deep_learning/pull/7", "reset_parameters lost: the linear layers start at (nearly) zero", "linear layers")
def adf_zerolinear(planted):
    class Lin(nn.Linear):
        def reset_parameters(s):
            if planted:
                with torch.no_grad(): s.weight.zero_(); s.bias.zero_()
            else: super().reset_parameters()
    def model(): return nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Flatten(), Lin(144, 64), nn.ReLU(), Lin(64, 6))
    P = T(4, 6, 1, 12, 12)
    def data(s): y = R(s, 6, (32,)); return P[y] * .7 + T(s + 1, 32, 1, 12, 12), y
    return dict(model=model, data=data, loss=ce, diag=CE)

@case("https://github.com/nttcslab/byol-a/issues/7", "parameters once frozen stay frozen: the encoder is not trained", "encoder")
def byola_frozen(planted):
    class Audio(nn.Module):
        def __init__(s):
            super().__init__(); c = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2)); s.features = nn.Sequential(c(1, 16), c(16, 16)); s.fc = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()); s.head = nn.Linear(64, 6)
            if planted:
                for m in (s.features, s.fc):
                    for p in m.parameters(): p.requires_grad = False
        def forward(s, x): h = s.features(x).transpose(1, 3).flatten(2); h = s.fc(h); return s.head(h.mean(1) + h.max(1)[0])
    P = T(3, 6, 1, 16, 6)
    def data(s):
        y = R(s, 6, (32,)); x = T(s + 1, 32, 1, 16, 20) * 1.2; p = torch.randint(0, 15, (32,), generator=gen(s + 2))
        for i in range(32): x[i, :, :, p[i]:p[i] + 6] += P[y[i]]
        return x, y
    return dict(model=Audio, data=data, loss=ce, diag=CE)

@case("https://github.com/kyegomez/zeta/issues/180", "RMSNorm normalises along the sequence and multiplies by dim ** -0.5", "norms")
def zeta_rmsnorm(planted):
    class RMS(nn.Module):
        def __init__(s, d): super().__init__(); s.scale = d ** (-.5 if planted else .5); s.g = nn.Parameter(torch.ones(d))
        def forward(s, x): return F.normalize(x, dim=-2 if planted else -1) * s.scale * s.g
    class B(nn.Module):
        def __init__(s, d): super().__init__(); s.n1, s.n2 = RMS(d), RMS(d); s.attn = MHA(d, 4); s.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
        def forward(s, x): x = x + s.attn(s.n1(x)); return x + s.ff(s.n2(x))
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.emb = nn.Embedding(10, 64); nn.init.normal_(s.emb.weight, std=.5); s.register_buffer("pe", sincos(16, 64)); s.blocks = nn.Sequential(B(64), B(64)); s.norm = RMS(64); s.head = nn.Linear(64, 10, bias=False)
        def forward(s, x): return s.head(s.norm(s.blocks(s.emb(x) + s.pe[:x.shape[1]])))
    def data(s): x = R(s, 10, (32, 8)); return x, x.flip(1)
    return dict(model=Net, data=data, loss=ceseq, diag=SEQ)

@case("https://github.com/keras-rl/keras-rl/pull/239", "dueling mean of the advantages taken over the whole batch", "advantage mean")
def kerasrl_dueling(planted):
    class Duel(nn.Module):
        def __init__(s): super().__init__(); s.f = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()); s.y = nn.Linear(64, 5)
        def forward(s, x): a = s.y(s.f(x)); return a[:, :1] + a[:, 1:] - (a[:, 1:].mean() if planted else a[:, 1:].mean(1, keepdim=True))
    W = T(1, 8, 4)
    def data(s): x = T(s, 64, 8); return x, torch.tanh(x @ W) + x[:, :1]
    return dict(model=Duel, data=data, loss=mse, diag=dict(loss="mse"))

@case("https://github.com/TheodoreWolf/pinns/pull/3", "time of 0..1000 s and temperatures of about 100 reach and leave the network unscaled", "input and output")
def theodore_pinn(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.net = nn.Sequential(nn.Linear(1, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 1))
        def forward(s, t): return s.net(t) if planted else 25 + 75 * s.net(t / 1000)
    def data(s): t = torch.rand(64, 1, generator=gen(s)) * 1000; return t, 25 + 75 * torch.exp(-.005 * t) + T(s + 1, 64, 1) * .5
    return dict(model=Net, data=data, loss=mse, diag=dict(loss="mse"))

@case("https://github.com/athms/mad-lab/issues/3", "the language model wrapper draws all linear layers anew with std 0.02 and zero bias, over Mamba's own dt", "dt")
def madlab_reinit(planted):
    return dict(model=lambda: MambaNet(None, L=2, reinit=planted), data=memory, loss=ce, diag=CE)
