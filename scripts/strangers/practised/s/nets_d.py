from base import *
from nets_b import img, Basic, ResNet, SAM
from nets_c import blobs
from nets_a import GPT, lmdata, SEQ
def mlp(i, h, o, n=2, act=nn.ReLU): return nn.Sequential(*[l for j in range(n) for l in (nn.Linear(i if j == 0 else h, h), act())], nn.Linear(h, o))
def reg(s, B=64): x = T(s, B, 5); return x, (x[:, 0] ** 2 + x[:, 1] * x[:, 2] - 2 * x[:, 3])
@case("https://github.com/FluxML/MLJFlux.jl/issues/152", "mse of (B,1) predictions against (B,) targets broadcasts to (B,B)", "loss")
def mlj_broadcast(planted): return dict(model=lambda: mlp(5, 64, 1), data=reg, loss=(lambda o, t: ((o - t) ** 2).mean()) if planted else lambda o, t: ((o.squeeze(-1) - t) ** 2).mean())
# actor-critic; the model returns (logits, value); targets (action, old logp, advantage, return)
class AC(nn.Module):
    def __init__(s, sq=True): super().__init__(); s.body = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()); s.pi = nn.Linear(64, 4); s.v = nn.Linear(64, 1); s.sq = sq
    def forward(s, x): h = s.body(x); v = s.v(h); return s.pi(h), v.squeeze(-1) if s.sq else v
def acdata(s, B=64): x = T(s, B, 6); W = T(81, 6, 4); r = x @ W; a = R(s + 1, 4, (B,)); adv = r[torch.arange(B), a] - r.mean(1); adv = (adv - adv.mean()) / adv.std(); return x, {"a": a, "adv": adv, "ret": x[:, 0] * x[:, 1] + x[:, 2], "old": torch.full((B,), -math.log(4.))}
def ppo(shape):
    def loss(o, t):
        lp = o[0].log_softmax(-1).gather(1, t["a"][:, None]).squeeze(1); ratio = (lp - t["old"]).exp(); adv = t["adv"][:, None] if shape == "surr" else t["adv"]
        v = o[1][:, None] if shape == "surr" else o[1]; surr = -torch.min(ratio * adv, ratio.clamp(.2, 1.8) * adv).mean(); ret = t["ret"][:, None] if shape in ("surr", "critic") else t["ret"]; return surr + .5 * (v - ret).pow(2).mean()
    return loss
@case("https://github.com/pythonlessons/Reinforcement_Learning/issues/6", "advantages (B,1) times ratios (B,)", "loss (policy) / pi")
def ppo_adv(planted): return dict(model=AC, data=acdata, loss=ppo("surr" if planted else ""))
@case("https://github.com/automl/Mighty/pull/126", "values (B,) against returns (B,1)", "loss (critic) / v")
def ppo_critic(planted): return dict(model=AC, data=acdata, loss=ppo("critic" if planted else ""))
@case("https://github.com/google-deepmind/acme/issues/277", "CRR: logp (B,) times coeff (B,1)", "loss")
def crr_broadcast(planted):
    def loss(o, t): lp = o.log_softmax(-1).gather(1, t["a"][:, None]).squeeze(1); c = (2 * t["adv"]).exp().clamp(max=20); return -(lp * (c[:, None] if planted else c)).mean()
    return dict(model=lambda: mlp(6, 64, 4), data=acdata, loss=loss)
@case("https://github.com/BY571/QR-DQN/issues/1", "quantiles tau broadcast along the wrong axis of the pairwise error", "loss")
def qr_tau(planted):
    N = 8; tau = (torch.arange(N) + .5) / N
    def loss(o, t):
        u = t[:, :, None] - o[:, None, :]; h = torch.where(u.abs() < 1, .5 * u ** 2, u.abs() - .5); tt = tau[:, None] if planted else tau
        return ((tt - (u.detach() < 0).float()).abs() * h).sum(-1).mean(1).mean()
    def data(s): x = T(s, 64, 6); return x, (x[:, :1] * 2 + x[:, 1:2] * x[:, 2:3]) + 2.5 * T(s + 1, 64, N)
    return dict(model=lambda: mlp(6, 64, N), data=data, loss=loss)
@case("https://github.com/AgileRL/AgileRL/pull/63", "the bootstrapped q target is not detached", "loss (target)")
def dqn_detach(planted):
    class Q(nn.Module):
        def __init__(s): super().__init__(); s.q = mlp(6, 64, 4)
        def forward(s, x, x2): return s.q(x), (s.q(x2) if planted else s.q(x2).detach())
    def data(s): x = T(s, 64, 6); a = R(s + 1, 4, (64,)); W = T(81, 6, 4); r = (x @ W).gather(1, a[:, None]).squeeze(1); return (x, .9 * x.roll(1, 1) + .1 * T(s + 2, 64, 6)), {"a": a, "r": r}
    return dict(model=Q, data=data, loss=lambda o, t: F.mse_loss(o[0].gather(1, t["a"][:, None]).squeeze(1), t["r"] + .9 * o[1].max(1)[0]))
@case("https://github.com/pytorch/pytorch/issues/1053", "three convolutions of a text CNN in a list: never registered", "conv1d")
def textcnn_list(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.emb = nn.Embedding(30, 16); l = [nn.Conv1d(16, 4, k) for k in (3, 4, 5)]; s.conv1d = l if planted else nn.ModuleList(l); s.fc = nn.Linear(12, 4)
        def forward(s, x): e = s.emb(x).transpose(1, 2); return s.fc(torch.cat([F.relu(c(e)).amax(2) for c in s.conv1d], 1))
    def data(s):
        y = R(s, 4, (32,)); x = R(s + 1, 30, (32, 14)); tri = R(91, 30, (4, 3)); p = R(s + 2, 11, (32,))
        for b in range(32): x[b, p[b]:p[b] + 3] = tri[y[b]]
        return x, y
    return dict(model=Net, data=data, loss=ce, diag=CE)
@case("https://github.com/FluxML/Flux.jl/issues/798", "a single convolution with relu as the output of a regression", "conv (output relu)")
def flux_relu(planted):
    def data(s): x = torch.rand(32, 1, 16, 16, generator=gen(s)); z = F.conv2d(x - .5, T(97, 1, 1, 8, 8) * .12, stride=8); return x, z + .5
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.conv = nn.Conv2d(1, 1, 8, 8)
        def forward(s, x): h = s.conv(x); return F.relu(h) if planted else h
    return dict(model=Net, data=data, loss=mse, diag=MSE)
@case("https://github.com/yenchenlin/nerf-pytorch/issues/95", "no relu on the density: alpha may be negative", "sigma")
def nerf_norelu(planted):
    class Nerf(nn.Module):
        def __init__(s): super().__init__(); s.body = mlp(39, 64, 64, 3); s.sigma = nn.Linear(64, 1); nn.init.constant_(s.sigma.bias, .5); s.rgb = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 3), nn.Sigmoid())
        def forward(s, ray):                                   # (B, 6): origin, direction
            t = torch.linspace(.2, 2, 24); p = ray[:, None, :3] + t[:, None] * ray[:, None, 3:]; e = torch.cat([p] + [f(2 ** k * p) for k in range(6) for f in (torch.sin, torch.cos)], -1)
            h = F.relu(s.body(e)); sg = s.sigma(h).squeeze(-1); sg = sg if planted else F.relu(sg); a = 1 - torch.exp(-sg * (t[1] - t[0])); tr = torch.cumprod(torch.cat([torch.ones(len(a), 1), 1 - a + 1e-10], 1), 1)[:, :-1]; w = a * tr
            return (w[..., None] * s.rgb(h)).sum(1)
    def data(s): o = T(s, 64, 3) * .1 - torch.tensor([0, 0, 1.]); d = F.normalize(T(s + 1, 64, 3) * .4 + torch.tensor([0, 0, 1.]), dim=1); q = o + d; hit = (q.norm(dim=1, keepdim=True) < .45).float(); return torch.cat([o, d], 1), hit * torch.sigmoid(3 * q)
    return dict(model=Nerf, data=data, loss=mse, diag=MSE)
# ---- contrastive: the model gets (view 1, view 2), returns both embeddings
class Sim(nn.Module):
    def __init__(s): super().__init__(); s.f = mlp(20, 64, 16)
    def forward(s, a, b): return F.normalize(s.f(a), dim=1), F.normalize(s.f(b), dim=1)
def views(s, B=32): c = T(s, B, 4); A = T(95, 4, 20); f = lambda k: c @ A + 1.5 * T(s + k, B, 20); return (f(1), f(2)), torch.arange(B)
def ntx(mask):
    def loss(o, t):
        z = torch.cat(o); sim = z @ z.t() / .5; n = len(t); pos = (o[0] * o[1]).sum(1).repeat(2) / .5; e = sim.exp()
        neg = (e * (1 - torch.eye(2 * n))).sum(1) if mask == "ok" else e.sum(1) - math.exp(1 / .5); return -(pos - neg.log()).mean()
    return loss
@case("https://github.com/Lightning-Universe/lightning-bolts/issues/695", "self-similarity removed by subtracting e^(1/T), not masked", "loss")
def simclr_sub(planted): return dict(model=Sim, data=views, loss=ntx("sub" if planted else "ok"))
@case("https://github.com/argusswift/YOLOv4-pytorch/issues/89", "BCEWithLogits on predictions which already passed a sigmoid", "head / loss")
def yolo_double(planted):
    class Y(nn.Module):
        def __init__(s): super().__init__(); s.b = ResNet().stem; s.l = nn.Sequential(Basic(16, 16, 2), Basic(16, 32, 2)); s.head = nn.Conv2d(32, 6, 1)
        def forward(s, x): h = s.head(s.l(s.b(x))); return torch.sigmoid(h) if planted else h
    def data(s):
        x = T(s, 16, 3, 16, 16) * .3; y = torch.zeros(16, 6, 4, 4); k = R(s + 1, 6, (16, 2)); c = R(s + 2, 4, (16, 2, 2)); pt = T(96, 6, 3, 4, 4)
        for b in range(16):
            for j in range(2): r, q = c[b, j].tolist(); x[b, :, 4*r:4*r+4, 4*q:4*q+4] += pt[k[b, j]]; y[b, k[b, j], r, q] = 1
        return x, y
    return dict(model=Y, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t))
@case("https://github.com/rosinality/vq-vae-2-pytorch/issues/60", "ReLU(inplace) first in the residual branch also rectifies the identity", "ResBlock")
def vqvae_inplace(planted):
    class RB(nn.Module):
        def __init__(s): super().__init__(); s.conv = nn.Sequential(nn.ReLU(inplace=planted), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(16, 16, 1))
        def forward(s, x): o = s.conv(x); o += x; return o
    def data(s): x, _ = img(s, 16); return x, x
    return dict(model=lambda: nn.Sequential(nn.Conv2d(3, 16, 4, 2, 1), RB(), RB(), nn.ReLU(), nn.ConvTranspose2d(16, 3, 4, 2, 1)), data=data, loss=mse, diag=MSE)
@case("https://github.com/jvmncs/safe-grid-agents/pull/47", "advantages not normalised before the PPO loss", "loss")
def ppo_unnorm(planted):
    def data(s): x, t = acdata(s); t["adv"] = t["adv"] * 3 + 40; return x, t
    def loss(o, t): a = t["adv"]; a = a if planted else (a - a.mean()) / (a.std() + 1e-8); return ppo("")(o, dict(t, adv=a))
    return dict(model=AC, data=data, loss=loss)
