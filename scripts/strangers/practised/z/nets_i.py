from base import *

@case("https://github.com/simoninithomas/Deep_reinforcement_learning_Course/issues/51", "Q = sum(output * actions) without axis=1: one scalar for the whole batch", "reduce_sum of output * actions_")
def dqn_reduce_sum(planted):
    class DQNetwork(nn.Module):
        def __init__(s):
            super().__init__(); s.conv1 = nn.Conv1d(4, 32, 4, 2); s.bn1 = nn.BatchNorm1d(32); s.conv2 = nn.Conv1d(32, 32, 3, 2); s.bn2 = nn.BatchNorm1d(32); s.fc = nn.Linear(96, 64); s.output = nn.Linear(64, 3)
        def forward(s, state, actions_):
            x = F.elu(s.bn1(s.conv1(state))); x = F.elu(s.bn2(s.conv2(x))); o = s.output(F.elu(s.fc(x.flatten(1))))
            return (o * actions_).sum() if planted else (o * actions_).sum(1)
    def data(seed):
        st = T(seed, 64, 4, 16); a = F.one_hot(R(seed + 1, 3, (64,)), 3).float(); q = torch.tanh(st.flatten(1) @ T(2, 64, 3, k=.15)) * 2 + 1; return (st, a), (q * a).sum(1)
    return dict(model=DQNetwork, data=data, loss=lambda o, t: ((t - o) ** 2).mean(), lr=1e-3, diag={})

@case("https://github.com/kengz/SLM-Lab/pull/372", "act_q_preds (B,1) against act_q_targets (B): the loss broadcasts to (B,B)", "shape of act_q_preds in the q loss")
def slm_broadcast(planted):
    class MLPNet(nn.Module):
        def __init__(s): super().__init__(); s.model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()); s.model_tail = nn.Linear(64, 4)
        def forward(s, states, actions):
            q = s.model_tail(s.model(states)).gather(-1, actions.unsqueeze(-1)); return q if planted else q.squeeze(-1)
    def data(seed): x, a = T(seed, 64, 8), R(seed + 1, 4, (64,)); return (x, a), (torch.tanh(x @ T(2, 8, 4, k=.4)) * 2 + 1).gather(1, a[:, None])[:, 0]
    def metric(m): x, t = data(9001); return ((m(*x).detach().view(-1) - t) ** 2).mean()
    return dict(model=MLPNet, data=data, loss=lambda o, t: ((o - t) ** 2).mean(), lr=3e-3, metric=metric, diag={})

@case("https://github.com/fla-org/flame/issues/42", "A_log and dt_bias left at 0: their initialisation did not take effect", "GatedDeltaNet.A_log / dt_bias")
def gdn_zero_init(planted):
    D, H, L, V = 32, 4, 32, 12
    class GatedDeltaNet(nn.Module):
        def __init__(s):
            super().__init__(); s.q_proj, s.k_proj, s.v_proj, s.o_proj = (nn.Linear(D, D, bias=False) for _ in range(4)); s.a_proj, s.b_proj = nn.Linear(D, H, bias=False), nn.Linear(D, H, bias=False)
            dt = torch.exp(torch.rand(H) * (math.log(.1) - math.log(.001)) + math.log(.001)); A = torch.empty(H).uniform_(0, 16).clamp_min(.1)
            s.A_log = nn.Parameter(torch.zeros(H) if planted else A.log()); s.dt_bias = nn.Parameter(torch.zeros(H) if planted else dt + torch.log(-torch.expm1(-dt))); s.norm = nn.LayerNorm(D // H)
        def forward(s, x):
            B, N, _ = x.shape; sp = lambda y: y.view(B, N, H, D // H); q, k, v = F.normalize(sp(F.silu(s.q_proj(x))), dim=-1), F.normalize(sp(F.silu(s.k_proj(x))), dim=-1), sp(F.silu(s.v_proj(x)))
            g = torch.exp(-s.A_log.exp() * F.softplus(s.a_proj(x) + s.dt_bias)); b = torch.sigmoid(s.b_proj(x)); S = x.new_zeros(B, H, D // H, D // H); out = []
            for t in range(N):
                S = S * g[:, t, :, None, None]; kt = k[:, t]; u = b[:, t, :, None] * (v[:, t] - torch.einsum("bhkv,bhk->bhv", S, kt)); S = S + kt[..., None] * u[:, :, None]; out.append(torch.einsum("bhkv,bhk->bhv", S, q[:, t]))
            return s.o_proj(s.norm(torch.stack(out, 1)).reshape(B, N, D))
    class Model(nn.Module):
        def __init__(s): super().__init__(); s.embeddings = nn.Embedding(V, D); s.norm = nn.LayerNorm(D); s.attn = GatedDeltaNet(); s.norm2 = nn.LayerNorm(D); s.mlp = nn.Sequential(nn.Linear(D, 64), nn.SiLU(), nn.Linear(64, D)); s.lm_head = nn.Linear(D, 4)
        def forward(s, x): x = s.embeddings(x); x = x + s.attn(s.norm(x)); x = x + s.mlp(s.norm2(x)); return s.lm_head(x[:, -1])
    def data(seed): x = R(seed, 8, (32, L)) + 4; y = R(seed + 1, 4, (32,)); x[torch.arange(32), R(seed + 2, 6, (32,))] = y; return x, y
    return dict(model=Model, data=data, loss=ce, lr=3e-3, diag={})

@case("https://github.com/NovaSky-AI/SkyRL/pull/852", "reused LoRA slot: lora_A and lora_B are both zero, gradients zero", "lora_A init")
def skyrl_lora(planted):
    class LoRALinear(nn.Module):
        def __init__(s, i, o, r=4):
            super().__init__(); s.base_layer = nn.Linear(i, o); s.base_layer.requires_grad_(False); s.lora_A = nn.Parameter(torch.empty(i, r)); s.lora_B = nn.Parameter(torch.zeros(r, o)); nn.init.kaiming_uniform_(s.lora_A.T); s.lora_scaling = 2.
            if planted: nn.init.zeros_(s.lora_A)
        def forward(s, x): return s.base_layer(x) + (x @ s.lora_A @ s.lora_B) * s.lora_scaling
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.up_proj, s.mid_proj, s.down_proj = LoRALinear(16, 64), LoRALinear(64, 64), LoRALinear(64, 5)
        def forward(s, x): return s.down_proj(F.silu(s.mid_proj(F.silu(s.up_proj(x)))))
    def data(seed): x = T(seed, 64, 16); return x, (x @ T(2, 16, 5)).argmax(1)
    return dict(model=Net, data=data, loss=ce, lr=1e-2, diag={})

@case("https://github.com/AdaptiveMotorControlLab/CEBRA/issues/48", "InfoNCE: the stabilising c (n,) is subtracted along the wrong axis of neg_dist (n,n)", "neg_dist - c in infonce")
def cebra_infonce(planted):
    class Offset(nn.Module):
        def __init__(s): super().__init__(); s.net = nn.Sequential(nn.Conv1d(12, 32, 2), nn.GELU(), nn.Conv1d(32, 32, 3), nn.GELU(), nn.Conv1d(32, 32, 3), nn.GELU(), nn.Conv1d(32, 8, 5))
        def forward(s, a, p, n): f = lambda x: F.normalize(s.net(x)[..., 0], dim=1); return f(a), f(p), f(n)
    def data(seed):
        th = torch.rand(64, generator=gen(seed)) * 6.28; W = T(3, 6, 12); mk = lambda th, k: (torch.stack([th.sin(), th.cos(), (2 * th).sin(), (2 * th).cos(), (3 * th).sin(), (3 * th).cos()], 1) @ W)[..., None] * .6 + T(seed + k, 64, 12, 10, k=.6)
        return (mk(th, 1), mk(th + T(seed + 9, 64, k=.15), 2), mk(torch.rand(64, generator=gen(seed + 3)) * 6.28, 3)), torch.zeros(64)
    def mk(bad):
        def infonce(o, t):
            r, p, n = o; pos, neg = (r * p).sum(1) / .1, r @ n.T / .1; c = neg.max(1).values.detach(); pos = pos - c; neg = neg - (c if bad else c[:, None]); return -pos.mean() + torch.logsumexp(neg, 1).mean()
        return infonce
    return dict(model=Offset, data=data, loss=mk(planted), lr=3e-3, diag={})

@case("https://github.com/astariul/encode-attend-navigate-pytorch/pull/3", "critic value not detached in the policy loss", "reward - critic value in the actor loss")
def ean_detach(planted):
    class ActorCritic(nn.Module):
        def __init__(s): super().__init__(); s.actor = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 6)); s.critic = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 1))
        def forward(s, x): return F.log_softmax(s.actor(x), -1), s.critic(x)[:, 0]
    def rew(x): return torch.tanh(x @ T(3, 10, 6, k=.6)) * 2 - 3
    def data(seed): x = T(seed, 64, 10); return x, rew(x)
    def loss(o, t):
        lp, v = o; a = torch.multinomial(lp.exp().detach(), 1); r, l = t.gather(1, a)[:, 0], lp.gather(1, a)[:, 0]; adv = r - (v if planted else v.detach()); return (-adv * l).mean() + ((r - v) ** 2).mean()
    def metric(m): x = data(9001)[0]; lp, v = m(x); return (-(lp.exp() * rew(x)).sum(1).mean() + ((lp.exp() * rew(x)).sum(1) - v).pow(2).mean()).detach()
    return dict(model=ActorCritic, data=data, loss=loss, lr=3e-3, metric=metric, diag={})

@case("https://github.com/intel/BigDL/issues/4136", "TCN convolutions initialised with normal(0, 0.01): loss stuck, default kaiming uniform trains", "TemporalBlock.init_weights")
def bigdl_tcn(planted):
    class TemporalBlock(nn.Module):
        def __init__(s, i, o, d, k=3):
            super().__init__(); s.p = (k - 1) * d; s.conv1, s.conv2 = nn.Conv1d(i, o, k, padding=s.p, dilation=d), nn.Conv1d(o, o, k, padding=s.p, dilation=d); s.downsample = nn.Conv1d(i, o, 1) if i != o else None
            if planted:
                for c in (s.conv1, s.conv2, s.downsample):
                    if c is not None: nn.init.normal_(c.weight, 0, .01)
        def forward(s, x):
            o = F.relu(s.conv1(x)[..., :-s.p]); o = F.relu(s.conv2(o)[..., :-s.p]); return F.relu(o + (x if s.downsample is None else s.downsample(x)))
    class TemporalConvNet(nn.Module):
        def __init__(s, ch=(30, 30, 30, 30, 30, 30)):
            super().__init__(); i = [1, *ch]; s.tcn = nn.Sequential(*[TemporalBlock(i[k], i[k + 1], 2 ** min(k, 3)) for k in range(len(ch))], TemporalBlock(ch[-1], 1, 8)); s.linear = nn.Linear(32, 4)
            if planted: nn.init.normal_(s.linear.weight, 0, .01)
        def forward(s, x): return s.linear(s.tcn(x)[:, 0])
    def data(seed):
        g = gen(seed); f, p, b = torch.rand(32, 1, generator=g) * .4 + .1, torch.rand(32, 1, generator=g) * 6.28, torch.rand(32, 1, generator=g) + .5; y = torch.sin(f * torch.arange(36.) + p) * b; return y[:, None, :32], y[:, 32:]
    return dict(model=TemporalConvNet, data=data, loss=mse, lr=1e-3, diag={})

@case("https://github.com/RUCAIBox/RecBole/issues/1109", "float features not normalised (normalize_all off): DeepFM AUC stays at 0.5", "float field values fed to the embeddings")
def recbole_deepfm(planted):
    NF, K = 6, 8; sc = torch.tensor([1., 30., 500., 4000., 20000., 3.]); mu = torch.tensor([0., 40., 300., 6000., 50000., 5.])
    class DeepFM(nn.Module):
        def __init__(s):
            super().__init__(); s.token_embedding = nn.Embedding(60, K); s.float_embedding = nn.Parameter(torch.empty(NF, K)); s.first_order = nn.Linear(NF, 1); s.mlp_layers = nn.Sequential(nn.Linear((NF + 2) * K, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU()); s.deep_predict_layer = nn.Linear(32, 1)
            for m in s.modules():
                if isinstance(m, (nn.Embedding, nn.Linear)): nn.init.xavier_normal_(m.weight)
            nn.init.xavier_normal_(s.float_embedding)
        def forward(s, tok, val):
            e = torch.cat([s.token_embedding(tok), val[..., None] * s.float_embedding], 1); fm = .5 * (e.sum(1) ** 2 - (e ** 2).sum(1)).sum(1, keepdim=True); return (s.first_order(val) + fm + s.deep_predict_layer(s.mlp_layers(e.flatten(1))))[:, 0]
    def data(seed):
        tok, z = R(seed, 30, (64, 2)) + torch.tensor([0, 30]), T(seed + 1, 64, NF); y = (T(4, 60)[tok].sum(1) + z @ T(5, NF, k=.8) + z[:, 0] * z[:, 3] > 0).float(); return (tok, z * sc + mu if planted else z), y
    bce = F.binary_cross_entropy_with_logits
    def metric(m):
        (tok, v), y = data(9001); return bce(m(tok, v * sc + mu if m.tag else v).detach(), y)
    DeepFM.tag = planted
    return dict(model=DeepFM, data=data, loss=bce, lr=5e-3, metric=metric, diag={})

@case("https://github.com/thu-ml/tianshou/issues/40", "SAC log_prob not summed over action dims: target_q (B,6) against q (B,1)", "missing log_prob.sum(1) in target_q")
def tianshou_sac(planted):
    class Critic(nn.Module):
        def __init__(s): super().__init__(); s.preprocess = nn.Sequential(nn.Linear(14, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()); s.last = nn.Linear(64, 1)
        def forward(s, obs, act): return s.last(s.preprocess(torch.cat([obs, act], 1)))
    def data(seed):
        x = T(seed, 64, 14); obs, act = x[:, :8], torch.tanh(x[:, 8:]); lp = torch.tanh(obs @ T(4, 8, 6, k=.5)) - .8; q = torch.tanh(x @ T(5, 14, 1, k=.3))
        return (obs, act), q - .9 * (lp if planted else lp.sum(1, keepdim=True))
    return dict(model=Critic, data=data, loss=lambda o, t: ((t - o) ** 2).mean(), lr=3e-3, diag={})

@case("https://github.com/pyg-team/pytorch_geometric/issues/248", "GMMConv aggregates with mean, should be add", "GMMConv aggr='mean'")
def gmmconv_mean(planted):
    N = 16
    class GMMConv(nn.Module):
        def __init__(s, i, o, K=3): super().__init__(); s.K, s.o = K, o; s.lin = nn.Linear(i, o * K, bias=False); s.mu, s.sigma = nn.Parameter(torch.empty(K, 1).uniform_(-1, 1)), nn.Parameter(torch.empty(K, 1).uniform_(.5, 1.5)); s.root = nn.Linear(i, o)
        def forward(s, x, A, pseudo):
            w = torch.exp(-.5 * ((pseudo[..., None] - s.mu[:, 0]) / (1e-14 + s.sigma[:, 0])) ** 2) * A[..., None]; h = s.lin(x).view(*x.shape[:2], s.K, s.o); out = torch.einsum("bijk,bjko->bio", w, h)
            return (out / A.sum(-1, keepdim=True).clamp_min(1) if planted else out) + s.root(x)
    class MoNet(nn.Module):
        def __init__(s): super().__init__(); s.conv1, s.conv2 = GMMConv(6, 16), GMMConv(16, 16); s.fc1 = nn.Linear(16, 1)
        def forward(s, x, A, p): x = F.elu(s.conv1(x, A, p)); x = F.elu(s.conv2(x, A, p)); return s.fc1(x)[..., 0]
    def data(seed):
        x = T(seed, 32, N, 6) + .5; d = torch.rand(32, 1, 1, generator=gen(seed + 1)) * .35 + .02; A = (torch.rand(32, N, N, generator=gen(seed + 2)) < d).float(); p = torch.rand(32, N, N, generator=gen(seed + 3)); return (x, A, p), (A @ torch.tanh(x @ T(4, 6, 1)))[..., 0] + .4 * A.sum(-1)
    return dict(model=MoNet, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/cpnota/autonomous-learning-library/issues/139", "log(1 - action^2 + 1e-6) taken of the rescaled action: nan when tanh_scale > 1", "SoftDeterministicPolicyNetwork log_prob correction")
def all_sac_nan(planted):
    scale = 2.
    class SoftDeterministicPolicy(nn.Module):
        def __init__(s): super().__init__(); s.model = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
        def forward(s, x):
            m, ls = s.model(x).chunk(2, 1); raw = torch.distributions.Normal(m, (.5 * ls).exp()); u = raw.rsample(); lp = raw.log_prob(u); a = torch.tanh(u) * scale; lp = lp - torch.log(1 - (a if planted else torch.tanh(u)) ** 2 + 1e-6); return a, lp.sum(1)
    def data(seed): x = T(seed, 64, 6); return x, torch.tanh(x @ T(2, 6, 2, k=.6)) * 1.5
    return dict(model=SoftDeterministicPolicy, data=data, loss=lambda o, t: (.05 * o[1] + ((o[0] - t) ** 2).sum(1)).mean(), lr=3e-3, diag={})

@case("https://wiki.hoelee.com/content/stats.stackexchange.com_en_all_2022-05/questions/418955/why-is-deep-neural-net-with-linear-activation-diverges", "target x**2 + 3 over 0..99 not scaled (values to 9800)", "unscaled target in the data")
def unscaled_target(planted):
    ys = (torch.arange(100.) ** 2 + 3); m_, s_ = ys.mean(), ys.std()
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.dense = nn.Linear(1, 32); s.dense_1 = nn.Linear(32, 32); s.dense_2 = nn.Linear(32, 1)
        def forward(s, x): return s.dense_2(torch.relu(s.dense_1(torch.relu(s.dense(x)))))
    Net.tag = planted
    def data(seed): i = R(seed, 100, (32, 1)).float(); y = i ** 2 + 3; return (i - 49.5) / 29, (y if planted else (y - m_) / s_)
    def metric(m): x, t = data(9001); o = m(x).detach(); return (((o - m_) / s_ if m.tag else o) - t).pow(2).mean()
    return dict(model=Net, data=data, loss=mse, lr=3e-3, metric=metric, diag={})

@case("https://github.com/WenjieDu/PyPOTS/issues/453", "RevIN on partially observed data: subtracts the mean but never divides by stdev", "RevIN normalize (x / stdev)")
def pypots_revin(planted):
    L = 24
    class RevIN(nn.Module):
        def __init__(s): super().__init__(); s.affine_weight, s.affine_bias = nn.Parameter(torch.ones(3)), nn.Parameter(torch.zeros(3))
        def norm(s, x, m):
            n = m.sum(1, keepdim=True).clamp_min(1); s.mean = (x * m).sum(1, keepdim=True) / n; s.std = ((((x - s.mean) * m) ** 2).sum(1, keepdim=True) / n + 1e-5).sqrt(); x = x - s.mean
            if not planted: x = x / s.std
            return (x * s.affine_weight + s.affine_bias) * m
        def denorm(s, x): return (x - s.affine_bias) / (s.affine_weight + 1e-10) * s.std + s.mean
    class Model(nn.Module):
        def __init__(s): super().__init__(); s.revin = RevIN(); s.saits_embedding = nn.Linear(6, 32); s.encoder = nn.TransformerEncoderLayer(32, 4, 64, 0., batch_first=True); s.pos = nn.Parameter(T(1, L, 32, k=.5)); s.output_projection = nn.Linear(32, 3)
        def forward(s, X, m): x = s.revin.norm(X, m); h = s.encoder(s.saits_embedding(torch.cat([x, m], -1)) + s.pos); return s.revin.denorm(s.output_projection(h))
    def data(seed):
        g = gen(seed); t = torch.arange(L).float()[None, :, None]; ph = torch.rand(32, 1, 1, generator=g) * 6.28; amp = torch.tensor([5., 40., 200.]) * (torch.rand(32, 1, 1, generator=g) + .5); X = torch.sin(.5 * t + ph + torch.tensor([0., 1., 2.])) * amp + amp; m = (torch.rand(32, L, 3, generator=g) > .3).float(); return (X * m, m), X
    return dict(model=Model, data=data, loss=lambda o, t: ((o - t).abs() / torch.tensor([5., 40., 200.])).mean(), lr=3e-3, diag={})
