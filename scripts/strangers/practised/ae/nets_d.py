from base import *
@case("https://github.com/juliusfrost/dreamer-pytorch/pull/78", "rollout returns (prior, post) but the loss unpacks (post, prior)", "prior, post = rollout_representation(...) in the model loss")
def dreamer_prior_post(planted):
    class WorldModel(nn.Module):
        def __init__(s): super().__init__(); s.enc = nn.Sequential(nn.Linear(12, 32), nn.ELU()); s.rnn = nn.GRUCell(8 + 2, 32); s.prior = nn.Sequential(nn.Linear(32, 32), nn.ELU(), nn.Linear(32, 16)); s.repr = nn.Sequential(nn.Linear(64, 32), nn.ELU(), nn.Linear(32, 16)); s.dec = nn.Sequential(nn.Linear(40, 32), nn.ELU(), nn.Linear(32, 12))
        def rollout_representation(s, obs, act, eps):
            h, z, pr, po = obs.new_zeros(len(obs), 32), obs.new_zeros(len(obs), 8), [], []
            for t in range(obs.shape[1]):
                h = s.rnn(torch.cat([z, act[:, t]], -1), h); p = s.prior(h); q = s.repr(torch.cat([h, s.enc(obs[:, t])], -1)); mu, sd = q.chunk(2, -1); z = mu + (F.softplus(sd) + .1) * eps[:, t]
                pr.append(torch.cat([h, p], -1)); po.append(torch.cat([h, q], -1))
            return torch.stack(pr, 1), torch.stack(po, 1)
        def forward(s, obs, act, eps):
            if planted: post, prior = s.rollout_representation(obs, act, eps)
            else: prior, post = s.rollout_representation(obs, act, eps)
            mu, sd = post[..., 32:].chunk(2, -1); feat = torch.cat([post[..., :32], mu + (F.softplus(sd) + .1) * eps], -1); pm, ps = prior[..., 32:].chunk(2, -1)
            kl = torch.distributions.kl_divergence(torch.distributions.Normal(mu, F.softplus(sd) + .1), torch.distributions.Normal(pm, F.softplus(ps) + .1)).sum(-1, keepdim=True)
            return torch.cat([s.dec(feat), kl], -1)
    W = T(1, 4, 12, k=.6)
    def data(seed): z = T(seed, 32, 8, 4) + .5 * T(seed + 1, 32, 1, 4); o = z @ W; return (o, T(seed + 2, 32, 8, 2), T(seed + 3, 32, 8, 8)), o
    def loss(o, t): return ((o[..., :-1] - t) ** 2).sum(-1).mean() / 2 + .1 * o[..., -1].mean()
    return dict(model=WorldModel, data=data, loss=loss, lr=3e-3, diag={})
@case("https://github.com/xmindflow/INCODE/issues/2", "sigmoid on the output of an audio network whose targets lie in (-1, 1)", "sigmoid at the output layer")
def incode_audio_sigmoid(planted):
    class INR(nn.Module):
        def __init__(s): super().__init__(); s.register_buffer("f", 2. ** torch.arange(8) * math.pi); s.net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
        def forward(s, x): x = s.net(torch.cat([torch.sin(x * s.f), torch.cos(x * s.f)], -1)); return torch.sigmoid(x) if planted else x
    def data(seed): x = torch.rand(256, 1, generator=gen(seed)) * 2 - 1; return x, .6 * torch.sin(23 * x) * torch.cos(3 * x) + .35 * torch.sin(61 * x + 1)
    return dict(model=INR, data=data, loss=mse, lr=3e-3, diag={})
@case("https://github.com/banditml/offline-policy-evaluation/pull/10", "column index of the id features advances by 1 although each takes 2 columns", "id_feature_col_idx += 1 in EmbedDnn.forward")
def embed_dnn_column(planted):
    class EmbedDnn(nn.Module):
        def __init__(s): super().__init__(); s.embeddings = nn.ModuleList(nn.Embedding(12, 6) for _ in range(3)); s.layers = nn.Sequential(nn.Linear(4 + 18, 48), nn.ReLU(), nn.Linear(48, 1))
        def forward(s, X_float, X_id_list):
            k = 0
            for e in s.embeddings: X_float = torch.cat([X_float, e(X_id_list[:, k:k + 2]).mean(1)], 1); k += 1 if planted else 2
            return s.layers(X_float)
    E = T(1, 3, 12); W = T(2, 4, 1, k=.3)
    def data(seed): f, i = T(seed, 64, 4), R(seed, 12, (64, 6)); return (f, i), f @ W + sum(E[k][i[:, 2 * k:2 * k + 2]].mean(1, keepdim=True) for k in range(3)) * 1.2
    return dict(model=EmbedDnn, data=data, loss=mse, lr=1e-2, diag={})
@case("https://github.com/ivanvovk/WaveGrad/issues/12", "exponents computed as exponents ** 1e-4 instead of 1e-4 ** exponents", "PositionalEncoding in linear_modulation")
def wavegrad_exponents(planted):
    class PositionalEncoding(nn.Module):
        def __init__(s, n): super().__init__(); s.n = n
        def forward(s, lvl):
            e = torch.arange(s.n // 2, dtype=torch.float32) / (s.n // 2); e = e ** 1e-4 if planted else 1e-4 ** e; e = 5000 * lvl[:, None] * e; return torch.cat([e.sin(), e.cos()], -1)
    class WaveGradNN(nn.Module):
        def __init__(s, h=32): super().__init__(); s.pre = nn.Conv1d(1, h, 5, padding=2); s.pe = PositionalEncoding(h); s.film = nn.Linear(h, 2 * h); s.c1, s.c2, s.post = nn.Conv1d(h, h, 5, padding=2), nn.Conv1d(h, h, 5, padding=4, dilation=2), nn.Conv1d(h, 1, 5, padding=2)
        def forward(s, x, lvl): h = F.leaky_relu(s.pre(x), .2); g, b = s.film(s.pe(lvl))[..., None].chunk(2, 1); return s.post(F.leaky_relu(s.c2(F.leaky_relu(s.c1(h) * (1 + g) + b, .2)), .2))
    def data(seed):
        g = torch.rand(16, 2, 1, 1, generator=gen(seed)); y = torch.sin(torch.arange(64.) * (.1 + .15 * g[:, 0]) + 6 * g[:, 1]); l = torch.rand(16, generator=gen(seed + 1)) * .9 + .05; e = T(seed + 2, 16, 1, 64); return (l[:, None, None] * y + (1 - l[:, None, None] ** 2).sqrt() * e, l), e
    return dict(model=WaveGradNN, data=data, loss=lambda o, t: (o - t).abs().mean(), lr=2e-3, diag={})
@case("https://github.com/pukkapies/dl-imperial-maths/pull/8", "entropy enters the PPO objective with the wrong sign", "entropy term of the loss")
def ppo_entropy_sign(planted):
    class Policy(nn.Module):
        def __init__(s): super().__init__(); s.body = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()); s.logits = nn.Linear(64, 4)
        def forward(s, x): return s.logits(s.body(x))
    W = T(1, 8, 4)
    def data(seed): x = T(seed, 64, 8); a = R(seed, 4, (64, 1)); adv = (x @ W - (x @ W).mean(1, keepdim=True)).gather(1, a) * .3 + T(seed + 1, 64, 1) * .3; return x, torch.cat([a.float(), adv], 1)
    def loss(o, t):
        d = torch.distributions.Categorical(logits=o); r = torch.exp(d.log_prob(t[:, 0].long()) - math.log(.25)); s = torch.min(r * t[:, 1], r.clamp(.5, 3.) * t[:, 1]).mean()
        return -s + .2 * d.entropy().mean() if planted else -s - .2 * d.entropy().mean()
    return dict(model=Policy, data=data, loss=loss, lr=2e-3, diag={})
