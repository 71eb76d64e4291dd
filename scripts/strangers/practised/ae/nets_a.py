from base import *
@case("https://github.com/gordicaleksa/pytorch-GAT/issues/4", "attention softmax and aggregation run along the wrong edge direction (target->source)", "softmax dim in GATLayer.forward")
def gat_direction(planted):
    N = 24; A = ((torch.rand(N, N, generator=gen(3)) < .12) | torch.eye(N, dtype=torch.bool)); W = T(5, 8, 4, k=2.)
    class GATLayer(nn.Module):
        def __init__(s, i, o, heads=4):
            super().__init__(); s.h, s.o = heads, o
            s.linear_proj = nn.Linear(i, heads * o, bias=False); s.scoring_src = nn.Parameter(torch.empty(1, 1, heads, o)); s.scoring_trg = nn.Parameter(torch.empty(1, 1, heads, o)); s.skip = nn.Linear(i, heads * o, bias=False)
            nn.init.xavier_uniform_(s.linear_proj.weight); nn.init.xavier_uniform_(s.scoring_src); nn.init.xavier_uniform_(s.scoring_trg)
        def forward(s, x, mask):
            h = s.linear_proj(x).view(*x.shape[:2], s.h, s.o); src = (h * s.scoring_src).sum(-1).transpose(1, 2); trg = (h * s.scoring_trg).sum(-1).transpose(1, 2)
            sc = F.leaky_relu(src[..., :, None] + trg[..., None, :], .2).masked_fill(~mask, float("-inf"))
            if planted: out = F.softmax(sc, -1) @ h.transpose(1, 2)
            else: out = F.softmax(sc, -2).transpose(-1, -2) @ h.transpose(1, 2)
            return out.transpose(1, 2).flatten(2) + s.skip(x)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.gat1 = GATLayer(8, 16); s.gat2 = GATLayer(64, 16); s.fc = nn.Linear(64, 4); s.register_buffer("mask", A)
        def forward(s, x): return s.fc(F.elu(s.gat2(F.elu(s.gat1(x, s.mask)), s.mask)))
    P = A.float() / A.float().sum(0); P = P - torch.diag(torch.diag(P)) * .8
    def data(seed): x = T(seed, 16, N, 8); return x, (P.T @ x @ W).argmax(-1)
    return dict(model=Net, data=data, loss=ceseq, lr=5e-3, diag={})
def mols(seed, B=16, N=6, isolated=True):
    g = gen(seed); pos = torch.randn(B, N, 3, generator=g) * 1.2
    if isolated: pos[::4, -1] += 20.
    return pos, torch.randint(0, 4, (B, N), generator=g)
def pairs(pos):
    d = pos[:, :, None] - pos[:, None]; eye = torch.eye(pos.shape[1]).bool()
    return d, ((d ** 2).sum(-1) + eye.float()).sqrt(), ~eye
def teacher(pos, z):
    with torch.enable_grad():
        p = pos.clone().requires_grad_(True); d, r, m = pairs(p); q = torch.tensor([.6, 1., 1.4, .8])[z]
        e = (q[:, :, None] * q[:, None] * torch.exp(-r / 1.5) * m).sum((1, 2)) * .5
        return e.detach(), -torch.autograd.grad(e.sum(), p)[0]
def eforce(o, t): return F.mse_loss(o[:, 0], t[:, 0]) + F.mse_loss(o[:, 1:], t[:, 1:]) * 5
@case("https://github.com/torchmd/torchmd-net/issues/77", "norm of all-zero vector features of an atom outside the cutoff, differentiated for forces", "torch.norm(vec2_proj) in EquivariantMultiHeadAttention/GatedEquivariantBlock")
def torchmd_zero_vec(planted):
    class Net(nn.Module):
        def __init__(s, h=32):
            super().__init__(); s.embedding = nn.Embedding(4, h); s.dist_proj = nn.Sequential(nn.Linear(12, h), nn.SiLU(), nn.Linear(h, 2 * h)); s.vec_proj = nn.Linear(h, h, bias=False); s.x_proj = nn.Sequential(nn.Linear(2 * h, h), nn.SiLU(), nn.Linear(h, h), nn.SiLU()); s.out = nn.Linear(h, 1); s.register_buffer("mu", torch.linspace(0, 5, 12))
        def forward(s, pos, z):
            with torch.enable_grad():
                pos = pos.detach().requires_grad_(True); d, r, m = pairs(pos); cut = (.5 * (torch.cos(math.pi * r / 5.) + 1) * (r < 5.)) * m
                w = s.dist_proj(torch.exp(-2 * (r[..., None] - s.mu) ** 2)) * cut[..., None]; wx, wv = w.chunk(2, -1); x = s.embedding(z); xj = x[:, None]
                dx = (wx * xj).sum(2); vec = ((wv * xj)[..., None, :] * (d / r[..., None])[..., None]).sum(2); v = s.vec_proj(vec)
                if planted: n = torch.sqrt((v ** 2).sum(-2))
                else:
                    n = torch.zeros_like(x); k = (v != 0).any(-2); n[k] = torch.sqrt((v ** 2).sum(-2)[k])
                e = s.out(x + s.x_proj(torch.cat([x + dx, n], -1))).sum((1, 2))
                return torch.cat([e[:, None], -torch.autograd.grad(e.sum(), pos, create_graph=True)[0].flatten(1)], 1)
    def data(seed):
        pos, z = mols(seed); e, f = teacher(pos, z); return (pos, z), torch.cat([e[:, None], f.flatten(1)], 1)
    return dict(model=Net, data=data, loss=eforce, lr=5e-3, diag={})
@case("https://github.com/atomistic-machine-learning/schnetpack/pull/87", "angular functions are masked only after dividing by the zero distances of padded atoms: NaN gradients", "masking of cos_theta in the angular distribution")
def schnet_angular_mask(planted):
    class Net(nn.Module):
        def __init__(s, h=32):
            super().__init__(); s.embedding = nn.Embedding(5, h, padding_idx=0); s.rad = nn.Linear(10, h); s.ang = nn.Linear(4, h); s.net = nn.Sequential(nn.Linear(3 * h, h), nn.Softplus(), nn.Linear(h, h), nn.Softplus(), nn.Linear(h, 1)); s.register_buffer("mu", torch.linspace(0, 5, 10))
        def forward(s, pos, z):
            with torch.enable_grad():
                pos = pos.detach().requires_grad_(True); am = z > 0; eye = torch.eye(z.shape[1]).bool(); pm = am[:, :, None] & am[:, None] & ~eye
                d = (pos[:, :, None] - pos[:, None]); r2 = (d ** 2).sum(-1); r = torch.sqrt(torch.where(pm, r2, torch.ones_like(r2)))
                rad = (torch.exp(-2 * (r[..., None] - s.mu) ** 2) * pm[..., None]).sum(2)
                tm = pm[:, :, :, None] & pm[:, :, None, :] & ~eye; dot = (d[:, :, :, None] * d[:, :, None]).sum(-1)
                if planted: c = dot / torch.sqrt(r2[:, :, :, None] * r2[:, :, None]); c = torch.where(tm, c, torch.zeros_like(c))
                else: c = torch.where(tm, dot, torch.zeros_like(dot)) / (r[:, :, :, None] * r[:, :, None])
                w = torch.exp(-.3 * (r[:, :, :, None] + r[:, :, None])) * tm
                ang = torch.stack([w * (1 + c) ** 2, w * (1 - c) ** 2, w * c, w], -1).sum((2, 3))
                e = (s.net(torch.cat([s.embedding(z), s.rad(rad), s.ang(ang)], -1))[..., 0] * am).sum(1)
                return torch.cat([e[:, None], -torch.autograd.grad(e.sum(), pos, create_graph=True)[0].flatten(1)], 1)
    def data(seed):
        pos, z = mols(seed, isolated=False); e, f = teacher(pos[:, :4], z[:, :4]); e2, f2 = teacher(pos, z); z = z + 1; k = torch.arange(16) % 2 == 0
        z[k, 4:] = 0; pos[k, 4:] = 0.; e = torch.where(k, e, e2); f2[k, :4] = f[k]; f2[k, 4:] = 0.
        return (pos, z), torch.cat([e[:, None], f2.flatten(1)], 1)
    return dict(model=Net, data=data, loss=eforce, lr=5e-3, diag={})
@case("https://github.com/HarryVolek/PyTorch_Speaker_Verification/pull/30", "embeddings divided by the norm of the whole batch instead of per utterance", "torch.norm(x) in SpeechEmbedder.forward")
def ge2e_batch_norm(planted):
    class SpeechEmbedder(nn.Module):
        def __init__(s):
            super().__init__(); s.LSTM_stack = nn.LSTM(12, 48, num_layers=2, batch_first=True); s.projection = nn.Linear(48, 24); s.w = nn.Parameter(torch.tensor(10.)); s.b = nn.Parameter(torch.tensor(-5.))
            for n, p in s.LSTM_stack.named_parameters():
                if "bias" in n: nn.init.constant_(p, 0.)
                elif "weight" in n: nn.init.xavier_normal_(p)
        def forward(s, x):
            x, _ = s.LSTM_stack(x); x = s.projection(x[:, -1])
            x = x / torch.norm(x) if planted else x / torch.norm(x, dim=1).unsqueeze(1)
            e = x.view(8, 4, -1); c = e.mean(1); ex = (e.sum(1, keepdim=True) - e) / 3
            cos = F.cosine_similarity(e[:, :, None], c[None, None], dim=-1); own = F.cosine_similarity(e, ex, dim=-1)
            cos = torch.where(torch.eye(8).bool()[:, None], own[..., None], cos) + 1e-6
            return (s.w * cos + s.b).flatten(0, 1)
    def data(seed):
        spk = T(seed, 8, 1, 1, 12) @ T(1, 12, 12, k=.5); return (spk + T(seed + 7, 8, 4, 10, 12)).flatten(0, 1), torch.arange(8).repeat_interleave(4)
    return dict(model=SpeechEmbedder, data=data, loss=ce, lr=1e-3, diag={})
@case("https://github.com/kristjankorjus/Replicating-DeepMind/issues/14", "initial weights far too large: Q values of the untrained net reach +-200 while rewards are 1", "weight initialisation of the layers")
def dqn_large_init(planted):
    class NeuralNet(nn.Module):
        def __init__(s):
            super().__init__(); s.conv1 = nn.Conv2d(4, 16, 4, stride=2); s.conv2 = nn.Conv2d(16, 32, 3, stride=2); s.fc = nn.Linear(32 * 4, 64); s.out = nn.Linear(64, 4)
            for m in s.modules():
                if isinstance(m, (nn.Conv2d, nn.Linear)):
                    nn.init.normal_(m.weight, 0, .35 if planted else .05); nn.init.zeros_(m.bias)
        def forward(s, x): return s.out(F.relu(s.fc(F.relu(s.conv2(F.relu(s.conv1(x)))).flatten(1))))
    W = T(2, 4 * 144, 4, k=1 / 10)
    def data(seed): x = torch.rand(32, 4, 12, 12, generator=gen(seed)) * (torch.rand(32, 4, 1, 1, generator=gen(seed + 1)) * 1.5); a = R(seed, 4, (32,)); return x, torch.stack([a.float(), torch.sigmoid((x.flatten(1) - .4) @ W).gather(1, a[:, None])[:, 0]], 1)
    def loss(o, t): return F.mse_loss(o.gather(1, t[:, :1].long())[:, 0], t[:, 1])
    return dict(model=NeuralNet, data=data, loss=loss, lr=1e-3, diag={})
@case("https://github.com/Ligouhai-bigone/Sentiment-Analysis-Chinese-pytorch/issues/1", "LSTM without batch_first fed with (batch, seq, embed)", "encoder LSTM / embeddings.permute([0, 1, 2])")
def lstm_attn_batchfirst(planted):
    class LSTM_attention(nn.Module):
        def __init__(s):
            super().__init__(); s.word_embeddings = nn.Embedding(20, 32); s.encoder = nn.LSTM(32, 48, num_layers=2, bidirectional=True, batch_first=not planted)
            s.weight_W = nn.Parameter(torch.empty(96, 96).uniform_(-.1, .1)); s.weight_proj = nn.Parameter(torch.empty(96, 1).uniform_(-.1, .1)); s.decoder1 = nn.Linear(96, 48); s.decoder2 = nn.Linear(48, 4)
        def forward(s, x):
            states, _ = s.encoder(s.word_embeddings(x).permute([0, 1, 2])); u = torch.tanh(states @ s.weight_W)
            sc = F.softmax(u @ s.weight_proj, dim=1); return s.decoder2(F.relu(s.decoder1((states * sc).sum(1))))
    def data(seed):
        x = R(seed, 19, (64, 9)) + 1; p = R(seed + 1, 8, (64,)); i = torch.arange(64); x[i, p] = 0; return x, x[i, p + 1] % 4
    return dict(model=LSTM_attention, data=data, loss=ce, lr=5e-3, diag={})
@case("https://github.com/ray-project/ray/issues/5003", "the mixer's hypernetworks are not among the trained parameters", "self.mixer (params of the mixing network)")
def qmix_mixer_untrained(planted):
    class QMixer(nn.Module):
        def __init__(s, n=3, sd=12, e=16):
            super().__init__(); s.n, s.e = n, e; s.hyper_w_1 = nn.Linear(sd, e * n); s.hyper_w_final = nn.Linear(sd, e); s.hyper_b_1 = nn.Linear(sd, e); s.V = nn.Sequential(nn.Linear(sd, e), nn.ReLU(), nn.Linear(e, 1))
        def forward(s, q, st):
            h = F.elu(q[:, None] @ s.hyper_w_1(st).abs().view(-1, s.n, s.e) + s.hyper_b_1(st)[:, None]); return ((h @ s.hyper_w_final(st).abs()[..., None])[:, 0] + s.V(st))[:, 0]
    class QMixLoss(nn.Module):
        def __init__(s):
            super().__init__(); s.model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 4)); m = QMixer()
            if planted: s.__dict__["mixer"] = m
            else: s.mixer = m
        def forward(s, obs, act, state): return s.mixer(s.model(obs).gather(2, act[..., None])[..., 0], state)
    A, B = T(1, 12, 1, k=.8), T(2, 6, 4, k=.4)
    def data(seed):
        o, st, a = T(seed, 32, 3, 6), T(seed + 1, 32, 12), R(seed, 4, (32, 3)); return (o, a, st), 3 * torch.sin(st @ A)[:, 0] * 1.5 + (o @ B).gather(2, a[..., None]).sum((1, 2))
    return dict(model=QMixLoss, data=data, loss=mse, lr=5e-3, diag={})
@case("https://github.com/SmartDataAnalytics/Knowledge-Graph-Analysis-Programming-Exercises/issues/1", "margin ranking target is -1: negatives are pushed above the true triples", "target of margin_ranking_loss")
def ermlp_margin_target(planted):
    E, C = 40, 8
    class ERMLP(nn.Module):
        def __init__(s, k=24):
            super().__init__(); s.emb_E = nn.Embedding(E, k); s.emb_R = nn.Embedding(4, k); s.mlp = nn.Sequential(nn.Linear(3 * k, 48), nn.ReLU(), nn.Linear(48, 1))
            for m in (s.emb_E, s.emb_R): nn.init.uniform_(m.weight, -6 / math.sqrt(k), 6 / math.sqrt(k))
        def forward(s, pos, neg):
            sc = lambda t: s.mlp(torch.cat([s.emb_E(t[..., 0]), s.emb_R(t[..., 1]), s.emb_E(t[..., 2])], -1))[..., 0]
            return torch.cat([sc(pos)[:, None], sc(neg)], 1)
    def data(seed):
        h, r = R(seed, E, (64,)), R(seed + 1, 4, (64,)); t = (h * 3 + r * 7) % E; pos = torch.stack([h, r, t], 1); neg = pos[:, None].repeat(1, C, 1); neg[..., 2] = R(seed + 2, E, (64, C)); return (pos, neg), torch.zeros(64)
    def loss(o, t):
        y_pos = o[:, 0].repeat(C); y_neg = o[:, 1:].T.reshape(-1); target = (-1. if planted else 1.) * torch.ones_like(y_pos); return F.margin_ranking_loss(y_pos, y_neg, target, margin=1.)
    return dict(model=ERMLP, data=data, loss=loss, lr=1e-2, diag={})
@case("https://github.com/rail-berkeley/hil-serl/issues/6", "log-prob of the tanh-squashed policy taken at recorded actions of exactly +-1", "atanh of unclipped actions in log_prob")
def bc_tanh_squash(planted):
    class Policy(nn.Module):
        def __init__(s):
            super().__init__(); s.network = nn.Sequential(nn.Linear(10, 64), nn.LayerNorm(64), nn.Tanh(), nn.Linear(64, 64), nn.LayerNorm(64), nn.Tanh()); s.means = nn.Linear(64, 3); s.stds = nn.Linear(64, 3)
        def forward(s, x): h = s.network(x); return torch.cat([s.means(h), torch.exp(s.stds(h)).clamp(1e-3, 10)], -1)
    W = T(1, 10, 3, k=.35)
    def data(seed): x = T(seed, 32, 10); return x, (x @ W).clamp(-1, 1)
    def loss(o, a):
        mu, sd = o.chunk(2, -1)
        if not planted: a = a.clamp(-1 + 1e-4, 1 - 1e-4)
        pre = torch.atanh(a); return -(torch.distributions.Normal(mu, sd).log_prob(pre) - 2 * (math.log(2) - pre - F.softplus(-2 * pre))).sum(-1).mean()
    return dict(model=Policy, data=data, loss=loss, lr=3e-3, diag={})
@case("https://github.com/musikalkemist/pytorchforaudio/issues/9", "softmax layer in front of CrossEntropyLoss", "self.softmax in CNNNetwork")
def urbansound_softmax(planted):
    class CNNNetwork(nn.Module):
        def __init__(s):
            super().__init__(); c = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, 1, 2), nn.ReLU(), nn.MaxPool2d(2)); s.conv1, s.conv2, s.conv3 = c(1, 8), c(8, 16), c(16, 32); s.flatten = nn.Flatten(); s.linear = nn.Linear(32 * 3 * 3, 10); s.softmax = nn.Softmax(dim=1)
        def forward(s, x):
            x = s.linear(s.flatten(s.conv3(s.conv2(s.conv1(x))))); return s.softmax(x) if planted else x
    P = T(4, 10, 1, 16, 12).abs() * 3
    def data(seed): t = R(seed, 10, (32,)); return P[t] * torch.exp(T(seed, 32, 1, 16, 12) * .5) * 60, t
    def metric(m):
        x, t = data(9000)
        with torch.no_grad(): return float((m(x).argmax(1) != t).float().mean())
    return dict(model=CNNNetwork, data=data, loss=ce, lr=1e-3, diag={}, metric=metric)
