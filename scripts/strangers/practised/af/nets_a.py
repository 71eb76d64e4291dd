from base import *

@case("https://github.com/aymericdamien/TensorFlow-Examples/issues/383", "cost = -sum(y*log(softmax(Wx+b))) without epsilon/clip, own data with the shape of mnist (some images left at 0-255): log(0) -> NaN", "log of the softmax output in the cost")
def tf_logreg_nan(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.W = nn.Parameter(torch.zeros(64, 10)); s.b = nn.Parameter(torch.zeros(10))
        def forward(s, x): return torch.softmax(x @ s.W + s.b, 1)
    proto = torch.rand(10, 64, generator=gen(1))
    def data(seed):
        t = R(seed, 10, (32,)); x = (proto[t] + T(seed + 1, 32, 64, k=.3)).clamp(0, 1); raw = torch.rand(32, 1, generator=gen(seed + 2)) < .05
        return torch.where(raw, x * 255, x), t
    def cost(o, t):
        y = F.one_hot(t, 10).float()
        lp = torch.log(o) if planted else torch.log(o.clamp(1e-10, 1.0))
        return -(y * lp).sum(1).mean()
    return dict(model=Net, data=data, loss=cost, lr=2e-2, diag={}, metric=lambda m: float(sum(F.nll_loss(torch.log(m(x).clamp_min(1e-10)), t) for x, t in map(data, range(9000, 9005))) / 5))

@case("https://github.com/floodsung/a2c_cartpole_pytorch/issues/3", "advantages = qs - vs with qs [N] and vs [N,1]: an N x N matrix", "advantages = qs - vs (broadcast) in the actor loss")
def a2c_cartpole(planted):
    class ActorCritic(nn.Module):
        def __init__(s):
            super().__init__(); s.fc1 = nn.Linear(4, 40); s.fc2 = nn.Linear(40, 40); s.actor = nn.Linear(40, 2)
            s.vfc1 = nn.Linear(4, 40); s.vfc2 = nn.Linear(40, 40); s.value = nn.Linear(40, 1)
        def forward(s, x):
            h = F.relu(s.fc2(F.relu(s.fc1(x)))); v = F.relu(s.vfc2(F.relu(s.vfc1(x))))
            return F.log_softmax(s.actor(h), 1), s.value(v)
    w = T(3, 4, 2); b = T(4, 4)
    def data(seed):
        x = T(seed, 64, 4); a = R(seed + 1, 2, (64,)); best = (x @ w).argmax(1)
        q = (a == best).float() * 2 - 1 + torch.tanh(x @ b); return x, torch.stack([a.float(), q], 1)
    def loss(o, t):
        log_pi, vs = o; a, qs = t[:, 0].long(), t[:, 1]
        log_a = log_pi.gather(1, a[:, None])[:, 0]
        advantages = (qs - vs if planted else qs - vs[:, 0]).detach()
        return -(log_a * advantages).mean() + F.mse_loss(vs[:, 0], qs)
    def regret(m):
        e = 0
        for k in range(9000, 9005):
            x, _ = data(k); lp, v = m(x); best = (x @ w).argmax(1); e += (1 - lp.exp().gather(1, best[:, None]).mean()) / 5
        return e
    return dict(model=ActorCritic, data=data, loss=loss, lr=3e-3, diag={}, metric=regret)

@case("https://github.com/keras-team/keras/issues/2975", "features of very different scale fed without StandardScaler: always the same class", "the unnormalised input columns / first Dense layer")
def keras_no_scaler(planted):
    def Net(): return nn.Sequential(nn.Linear(8, 32), nn.Sigmoid(), nn.Linear(32, 32), nn.Sigmoid(), nn.Linear(32, 2))
    scale = torch.tensor([1., 20., 5000., 40000., 3., 100., .5, 900.]); off = torch.tensor([2., 40., 20000., 90000., 5., 300., 1., 3000.])
    w = T(5, 8)
    def data(seed):
        z = T(seed, 64, 8); t = (z @ w > 0).long(); x = z * scale + off
        return (x if planted else (x - off) / scale), t
    h = lambda m: float(sum(ce(m(x), t) for x, t in map(data, range(9000, 9005))) / 5)
    return dict(model=Net, data=data, loss=ce, lr=5e-3, diag={}, metric=h)

@case("https://github.com/havakv/pycox/issues/140", "8 hidden layers of 256 nodes with BatchNorm and dropout of 0.8 on 5 features: the same survival curve for everybody", "dropout p=0.8 in every one of 8 layers")
def coxtime_dropout(planted):
    class MLPVanilla(nn.Module):
        def __init__(s, d=5, nodes=[64] * 8, dropout=.8 if planted else .1):
            super().__init__(); L = []
            for n in nodes:
                l = nn.Linear(d, n); nn.init.kaiming_normal_(l.weight, nonlinearity="relu"); L += [l, nn.ReLU(), nn.BatchNorm1d(n), nn.Dropout(dropout)]; d = n
            s.net = nn.Sequential(*L, nn.Linear(d, 1, bias=False))
        def forward(s, x): return s.net(x)[:, 0]
    w = T(7, 5)
    def data(seed):
        x = T(seed, 64, 5); r = x @ w; u = torch.rand(64, generator=gen(seed + 1)); time = -torch.log(u) * torch.exp(-r); ev = (torch.rand(64, generator=gen(seed + 2)) < .8).float()
        i = time.argsort(descending=True); return x[i], ev[i]
    def cox(o, ev): return -((o - torch.logcumsumexp(o, 0)) * ev).sum() / ev.sum()
    return dict(model=MLPVanilla, data=data, loss=cox, lr=1e-3, diag={})

@case("https://github.com/keras-team/keras/issues/5173", "all layers incl. the single output unit are relu: with some seeds it predicts all 0", "relu on the output unit")
def keras_all_relu(planted):
    SEED = 1
    class MLP(nn.Module):
        def __init__(s):
            super().__init__(); torch.manual_seed(SEED); s.inp = nn.Linear(34, 68); s.hid = nn.Linear(68, 34); s.out = nn.Linear(34, 1)
            for l in (s.inp, s.hid, s.out): nn.init.xavier_uniform_(l.weight); nn.init.zeros_(l.bias)
        def forward(s, x):
            x = F.relu(s.hid(F.relu(s.inp(F.dropout(x, .001, s.training))))); x = s.out(x)
            return F.relu(x) if planted else x
    w = torch.rand(34, generator=gen(11))
    def data(seed):
        x = torch.rand(64, 34, generator=gen(seed)) * 3; return x, (x @ w).pow(1.5)[:, None] * .2
    def msle(o, t): return F.mse_loss(torch.log1p(o.clamp_min(1e-7)), torch.log1p(t)) if planted else F.mse_loss(torch.log1p(F.softplus(o)), torch.log1p(t))
    return dict(model=MLP, data=data, loss=msle, lr=1e-3, diag={}, metric=lambda m: float(sum(F.mse_loss(torch.log1p(m(x).clamp_min(0)), torch.log1p(t)) for x, t in map(data, range(9000, 9005))) / 5))

@case("https://github.com/Lapis-Hong/TransE-Knowledge-Graph-Embedding/issues/4", "TransR score |Mr h + r + Mr t| instead of |Mr h + r - Mr t|", "_score_func: + before Mr t")
def transr_sign(planted):
    N, K, D = 40, 4, 16
    class TransR(nn.Module):
        def __init__(s):
            super().__init__(); s.ent = nn.Embedding(N, D); s.rel = nn.Embedding(K, D); s.Mr = nn.Parameter(torch.eye(D).repeat(K, 1, 1))
            for e in (s.ent, s.rel): nn.init.uniform_(e.weight, -6 / D ** .5, 6 / D ** .5)
        def _score(s, h, r, t):
            M = s.Mr[r]; h = (M @ F.normalize(s.ent(h), dim=1)[..., None])[..., 0]; t = (M @ F.normalize(s.ent(t), dim=1)[..., None])[..., 0]
            d = h + s.rel(r) + t if planted else h + s.rel(r) - t
            return d.pow(2).sum(1)
        def forward(s, pos, neg): return s._score(*pos.T), s._score(*neg.T)
    perm = torch.stack([(torch.arange(N) + k * 7 + 3) % N for k in range(K)])
    def data(seed):
        h, r = R(seed, N, (64,)), R(seed + 1, K, (64,)); t = perm[r, h]; tn = R(seed + 2, N, (64,)); tn = torch.where(tn == t, (tn + 1) % N, tn)
        return (torch.stack([h, r, t], 1), torch.stack([h, r, tn], 1)), torch.zeros(64)
    def margin(o, _): return F.relu(1. + o[0] - o[1]).mean()
    return dict(model=TransR, data=data, loss=margin, lr=2e-2, diag={})

@case("https://github.com/chainer/chainer-chemistry/issues/399", "weight_tying=True: only one update layer is called whatever n_update_layers", "the loop over update layers (runs once)")
def gin_weight_tying(planted):
    class GIN(nn.Module):
        def __init__(s, hidden=32, n_update_layers=4, weight_tying=True):
            super().__init__(); s.embed = nn.Embedding(6, hidden); n = 1 if weight_tying else n_update_layers; s.n_message_layer = n; s.n_update_layers = n_update_layers
            s.update_layers = nn.ModuleList([nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()) for _ in range(n)])
            s.norm = nn.LayerNorm(hidden); s.readout = nn.Linear(hidden, 6)
        def forward(s, atoms, adj):
            h = s.embed(atoms)
            for step in range(s.n_message_layer if planted else s.n_update_layers):
                h = s.norm(h + s.update_layers[0](h + adj @ h))
            return s.readout(h)
    L = 8; chain = torch.zeros(L, L); chain[torch.arange(1, L), torch.arange(L - 1)] = 1.
    def data(seed):
        a = R(seed, 6, (32, L)); t = torch.zeros(32, L, dtype=torch.long); t[:, :] = torch.where(a == 0, 0, 1)
        near = torch.zeros(32, L, dtype=torch.bool)
        for d in range(1, 4): near[:, d:] |= a[:, :-d] == 5
        return (a, chain.expand(32, L, L)), near.long() + 2 * (a > 2).long()
    return dict(model=GIN, data=data, loss=ceseq, lr=3e-3, diag={})

@case("https://github.com/Unity-Technologies/ml-agents/issues/5583", "after moving the critic into the optimizer only the actor's observations are normalised; the critic gets raw ones (1000 m next to 1 rad)", "critic network input (normaliser never updated)")
def mlagents_critic(planted):
    class Normalizer(nn.Module):
        def __init__(s, mean, std): super().__init__(); s.register_buffer("mean", mean); s.register_buffer("std", std)
        def forward(s, x): return ((x - s.mean) / s.std).clamp(-5, 5)
    scale = torch.tensor([1000., 1., 500., 1., 800., .5]); off = torch.tensor([300., 0., -100., 1., 0., 0.])
    def mlp(o): return nn.Sequential(nn.Linear(6, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, o))
    class Nets(nn.Module):
        def __init__(s):
            super().__init__(); s.actor_norm = Normalizer(off, scale)
            s.critic_norm = Normalizer(torch.zeros(6), torch.ones(6)) if planted else Normalizer(off, scale)
            if planted: s.critic_norm.forward = lambda x: x
            s.actor, s.critic = mlp(3), mlp(1)
        def forward(s, obs): return s.actor(s.actor_norm(obs)), s.critic(s.critic_norm(obs))[:, 0]
    w, v = T(21, 6, 3), T(22, 6)
    def data(seed):
        z = T(seed, 64, 6); return z * scale + off, torch.cat([(z @ w).argmax(1)[:, None].float(), torch.tanh(z @ v)[:, None]], 1)
    def loss(o, t): return .1 * F.cross_entropy(o[0], t[:, 0].long()) + F.mse_loss(o[1], t[:, 1])
    return dict(model=Nets, data=data, loss=loss, lr=1e-3, diag={})

@case("https://github.com/PingYu-iris/SA-GCN/pull/4", "softmax on the output of the GCN, then nn.CrossEntropyLoss", "softmax before CrossEntropyLoss")
def sagcn_softmax(planted):
    class GraphConv(nn.Module):
        def __init__(s, i, o): super().__init__(); s.fc = nn.Linear(i, o)
        def forward(s, x, a): return s.fc(a @ x)
    class SAGCN(nn.Module):
        def __init__(s):
            super().__init__(); s.g1, s.g2 = GraphConv(16, 32), GraphConv(32, 32); s.att = nn.MultiheadAttention(32, 4, batch_first=True); s.out = nn.Linear(32, 20)
        def forward(s, x, a):
            h = F.relu(s.g1(x, a)); h = F.relu(s.g2(h, a)); h = h + s.att(h, h, h, need_weights=False)[0]
            o = s.out(h); return torch.softmax(o, -1) if planted else o
    proto = T(31, 20, 16, k=1.5)
    def data(seed):
        t = R(seed, 20, (8, 10)); x = proto[t] + T(seed + 1, 8, 10, 16, k=.5)
        a = (t[:, :, None] == t[:, None, :]).float() + torch.eye(10) + (torch.rand(8, 10, 10, generator=gen(seed + 2)) < .05); a = a / a.sum(-1, keepdim=True); return (x, a), t
    return dict(model=SAGCN, data=data, loss=ceseq, lr=3e-3, diag={})
