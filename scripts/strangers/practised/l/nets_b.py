from base import *
GH = "https://github.com/"
def smooth_b(s, b, c, n): return F.interpolate(T(s, b, c, n // 4, n // 4), size=(n, n), mode="bilinear", align_corners=False)
def mlp(*d, act=nn.ReLU): return nn.Sequential(*[m for i in range(len(d) - 1) for m in ((nn.Linear(d[i], d[i + 1]), act()) if i < len(d) - 2 else (nn.Linear(d[i], d[i + 1]),))])

@case(GH + "dennybritz/reinforcement-learning/pull/104", "Q values leave through a default ReLU: negative values impossible", "output ReLU")
def pong_q_relu(planted):
    W = T(1, 3 * 16, 24, k=.3); V = T(2, 24, 4, k=.5)
    def model(): return nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 16, 128), nn.ReLU(), nn.Linear(128, 4), *([nn.ReLU()] if planted else []))
    def data(seed): x = smooth_b(seed, 32, 3, 16); return x, torch.tanh(F.avg_pool2d(x, 4).flatten(1) @ W) @ V - .8
    return dict(model=model, data=data, loss=mse, diag=MSE)

@case(GH + "thu-ml/tianshou/issues/725", "softmax on the Q values of a DQN", "output softmax")
def dqn_softmax(planted):
    W, V = T(3, 4, 16), T(4, 16, 2, k=1.)
    def model(): return nn.Sequential(mlp(4, 128, 128, 2), *([nn.Softmax(-1)] if planted else []))
    def data(seed): x = T(seed, 64, 4); return x, torch.tanh(x @ W) @ V + 5
    def tdloss(q, t): return F.smooth_l1_loss(q, t)
    return dict(model=model, data=data, loss=tdloss)

@case(GH + "Bowen1911/ML_practice/issues/2", "ReLU between the last layer and the policy's softmax", "fc2 / ReLU")
def policy_relu(planted):
    W = T(5, 4, 12); V = T(6, 12, 3)
    class N(nn.Module):
        def __init__(s): super().__init__(); s.fc1 = nn.Linear(4, 128); s.fc2 = nn.Linear(128, 3)
        def forward(s, x):
            x = s.fc2(F.relu(s.fc1(x)))
            return F.softmax(F.relu(x) if planted else x, 1)
    def data(seed):
        x = T(seed, 64, 4); return x, (torch.tanh(x @ W) @ V).argmax(1)
    def loss(p, a): return -torch.log(p.gather(1, a[:, None]) + 1e-8).mean()
    return dict(model=N, data=data, loss=loss)

@case(GH + "NVlabs/GA3C/issues/17", "ReLU on the action logits", "logits_p / ReLU")
def ga3c_relu(planted):
    W = T(7, 16, 6, k=1.)
    class N(nn.Module):
        def __init__(s): super().__init__(); s.n1 = nn.Conv2d(1, 16, 4, 2); s.n2 = nn.Conv2d(16, 32, 3, 2); s.fc = nn.Linear(32 * 9, 128); s.p = nn.Linear(128, 6); s.v = nn.Linear(128, 1)
        def forward(s, x):
            h = F.relu(s.fc(F.relu(s.n2(F.relu(s.n1(x)))).flatten(1))); p = s.p(h)
            return F.softmax(F.relu(p) if planted else p, -1), s.v(h).squeeze(-1)
    def data(seed):
        x = smooth_b(seed, 32, 1, 16); z = F.avg_pool2d(x, 4).flatten(1); return x, ((z @ W).argmax(1), z.mean(1) * 3)
    def loss(o, t):
        (p, v), (a, r) = o, t; logp = torch.log(p.clamp(min=1e-6))
        return -logp.gather(1, a[:, None]).mean() + .5 * ((v - r) ** 2).mean() + .01 * (p * logp).sum(1).mean()
    return dict(model=N, data=data, loss=loss)

@case(GH + "mrchor/HiNet/issues/1", "ReLU before the gate's softmax on a zero-initialised domain embedding: the gate never learns", "gate, domain embedding")
def hinet_gate(planted):
    W = T(8, 4, 10, 1)
    class N(nn.Module):
        def __init__(s):
            super().__init__(); s.dom = nn.Embedding(4, 8); nn.init.zeros_(s.dom.weight); s.gate = nn.Linear(8, 4, bias=False)
            s.experts = nn.ModuleList([mlp(10, 32, 16) for _ in range(4)]); s.tower = nn.Sequential(nn.ReLU(), nn.Linear(16, 1))
        def forward(s, x, d):
            g = s.gate(s.dom(d)); g = F.relu(g) if planted else g
            e = torch.stack([m(x) for m in s.experts], 1); return s.tower((g.softmax(-1)[..., None] * e).sum(1)).squeeze(-1)
    def data(seed): x = T(seed, 128, 10); d = R(seed + 1, 4, (128,)); return (x, d), ((x[:, None] @ W[d]).squeeze() > 0).float()
    return dict(model=N, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t))

@case(GH + "yuanyuanli85/Stacked_Hourglass_Network_Keras/issues/3", "ReLU instead of linear output on the heatmaps: all zeros", "head ReLU")
def heatmap_relu(planted):
    tm = T(9, 3, 3, 5, 5, k=1.5)
    def model():
        return nn.Sequential(nn.Conv2d(3, 24, 5, padding=2), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(24, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Upsample(scale_factor=2), nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 3, 1), *([nn.ReLU()] if planted else []))
    yy, xx = torch.meshgrid(torch.arange(20.), torch.arange(20.), indexing="ij")
    def data(seed):
        g = gen(seed); x = torch.randn(16, 3, 20, 20, generator=g) * .5; h = torch.zeros(16, 3, 20, 20)
        for b in range(16):
            for k in range(3):
                i, j = torch.randint(2, 18, (2,), generator=g).tolist(); x[b, :, i - 2:i + 3, j - 2:j + 3] += tm[k]; h[b, k] = torch.exp(-((yy - i) ** 2 + (xx - j) ** 2) / 4)
        return x, h
    return dict(model=model, data=data, loss=mse, diag=MSE)

@case(GH + "circle-hit/SAPT/issues/11", "lora_A and lora_B both start at zero", "lora_A, lora_B")
def sapt_lora(planted):
    class L(nn.Module):
        def __init__(s, i, o, r=4):
            super().__init__(); s.w = nn.Linear(i, o)
            for p in s.w.parameters(): p.requires_grad_(False)
            s.lora_A = nn.Parameter(torch.zeros(i, r) if planted else torch.randn(i, r) / r ** .5); s.lora_B = nn.Parameter(torch.zeros(r, o))
        def forward(s, x): return s.w(x) + x @ s.lora_A @ s.lora_B
    D = T(10, 16, 64, k=.5); V = T(11, 64, 5)
    def model(): return nn.Sequential(L(16, 64), nn.ReLU(), L(64, 64), nn.ReLU(), L(64, 5))
    def data(seed): x = T(seed, 64, 16); return x, (torch.relu(x @ D) @ V).argmax(1)
    return dict(model=model, data=data, loss=ce, diag=CE)

@case(GH + "NicolasHug/Surprise/issues/22", "all factors start at the same 0.1: users and items stay symmetric", "P, Q")
def svd_const(planted):
    A, B = T(12, 40, 5, k=.7), T(13, 50, 5, k=.7)
    class N(nn.Module):
        def __init__(s):
            super().__init__(); s.P = nn.Embedding(40, 8); s.Q = nn.Embedding(50, 8); s.bu = nn.Embedding(40, 1); s.bi = nn.Embedding(50, 1); s.mu = nn.Parameter(torch.tensor(3.))
            for e in (s.P, s.Q): nn.init.constant_(e.weight, .1) if planted else nn.init.normal_(e.weight, std=.3)
            for e in (s.bu, s.bi): nn.init.zeros_(e.weight)
        def forward(s, u, i): return s.mu + (s.bu(u) + s.bi(i)).squeeze(-1) + (s.P(u) * s.Q(i)).sum(-1)
    def data(seed): u, i = R(seed, 40, (1024,)), R(seed + 1, 50, (1024,)); return (u, i), 3.2 + (A[u] * B[i]).sum(-1)
    return dict(model=N, data=data, loss=mse, diag=MSE)

@case(GH + "huggingface/transformers/issues/13430", "logit_scale starts at 1 instead of log(1/0.07)", "logit_scale")
def clip_scale(planted):
    A, B = T(14, 8, 24), T(15, 8, 20)
    class N(nn.Module):
        def __init__(s): super().__init__(); s.img = mlp(24, 64, 32); s.txt = mlp(20, 64, 32); s.logit_scale = nn.Parameter(torch.tensor(1. if planted else math.log(1 / .07)))
        def forward(s, a, b): return s.logit_scale.exp() * F.normalize(s.img(a), dim=-1) @ F.normalize(s.txt(b), dim=-1).t()
    def data(seed): z = T(seed, 32, 8); return (z @ A + .1 * T(seed + 1, 32, 24), z @ B + .1 * T(seed + 2, 32, 20)), torch.arange(32)
    def loss(o, t): return (F.cross_entropy(o, t) + F.cross_entropy(o.t(), t)) / 2
    return dict(model=N, data=data, loss=loss, diag=dict(per="batch"))

@case(GH + "HHTseng/video-classification/issues/42", "LSTM without batch_first gets (batch, time, features): time and batch swapped", "LSTM")
def video_batch_first(planted):
    class N(nn.Module):
        def __init__(s): super().__init__(); s.cnn = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(64, 48)); s.LSTM = nn.LSTM(48, 64, batch_first=not planted); s.fc = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 4))
        def forward(s, x):
            b, t = x.shape[:2]; h = s.cnn(x.flatten(0, 1)).view(b, t, -1); o, _ = s.LSTM(h); return s.fc(o[:, -1])
    def data(seed):  # a blob moves; which way?
        g = gen(seed); y = torch.randint(0, 4, (32,), generator=g); x = torch.randn(32, 8, 1, 8, 8, generator=g) * .2; p = torch.randint(0, 8, (32, 2), generator=g); d = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])[y]
        for t in range(8):
            q = (p + t * d) % 8; x[torch.arange(32), t, 0, q[:, 0], q[:, 1]] += 3
        return x, y
    return dict(model=N, data=data, loss=ce, diag=CE)

@case(GH + "vitrioil/Speech-Separation/issues/4", "view(B, -1, T, 1) instead of a permute scrambles channels, time and frequency", "reshape before the LSTM")
def speech_view(planted):
    class N(nn.Module):
        def __init__(s): super().__init__(); s.conv = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()); s.lstm = nn.LSTM(64, 64, batch_first=True, bidirectional=True); s.fc = nn.Linear(128, 16)
        def forward(s, x):  # (B, T, F)
            b, t, f = x.shape; h = s.conv(x[:, None])  # B, 4, T, F
            h = h.view(b, -1, t).transpose(1, 2) if planted else h.permute(0, 2, 1, 3).reshape(b, t, -1)
            return torch.sigmoid(s.fc(s.lstm(h)[0]))
    pr = T(16, 6, 16).abs() * 1.2
    def data(seed):
        g = gen(seed); a, b = torch.randint(0, 6, (2, 16, 5), generator=g); S = pr[a].repeat_interleave(6, 1) * (torch.rand(16, 30, 1, generator=g) + .3); Nn = torch.rand(16, 30, 16, generator=g) * 1.2
        return torch.log1p(S + Nn), S / (S + Nn + 1e-6)
    return dict(model=N, data=data, loss=mse, diag=MSE)

@case(GH + "timbmg/Sentence-VAE/issues/15", "hidden (2, B, H) viewed as (B, 2H): examples mixed", "hidden view")
def svae_hidden(planted):
    w = T(17, 30, 5)
    class N(nn.Module):
        def __init__(s): super().__init__(); s.emb = nn.Embedding(30, 24); s.rnn = nn.GRU(24, 32, batch_first=True, bidirectional=True); s.mean = nn.Linear(64, 16); s.out = nn.Sequential(nn.ReLU(), nn.Linear(16, 5))
        def forward(s, x):
            _, h = s.rnn(s.emb(x)); b = x.shape[0]
            h = h.contiguous().view(b, -1) if planted else torch.cat([h[0], h[1]], 1)
            return s.out(s.mean(h))
    def data(seed): x = R(seed, 30, (32, 10)); return x, w[x].sum(1).argmax(-1)
    return dict(model=N, data=data, loss=ce, diag=CE)

@case(GH + "jessicayung/blog-code-snippets/issues/6", "X.view(T, B, 1) instead of X.t(): series of different examples mixed", "input view")
def lstm_view(planted):
    class N(nn.Module):
        def __init__(s): super().__init__(); s.lstm = nn.LSTM(1, 32); s.linear = nn.Linear(32, 1)
        def forward(s, x):
            h = x.contiguous().view(x.shape[1], -1, 1) if planted else x.t().unsqueeze(-1)
            return s.linear(s.lstm(h)[0][-1]).squeeze(-1)
    def data(seed):
        x = T(seed, 48, 20) * .3
        for t in range(2, 20): x[:, t] += 1.2 * x[:, t - 1] - .8 * x[:, t - 2]
        return x, 1.2 * x[:, -1] - .8 * x[:, -2]
    return dict(model=N, data=data, loss=mse, diag=MSE)

@case(GH + "computational-cell-analytics/patho-sam/pull/55", "UNETR keeps its final sigmoid and the loss applies another", "final sigmoid")
def unetr_sigmoid(planted):
    class N(nn.Module):
        def __init__(s): super().__init__(); s.e1 = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.InstanceNorm2d(16), nn.ReLU()); s.e2 = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.InstanceNorm2d(32), nn.ReLU()); s.up = nn.ConvTranspose2d(32, 16, 2, 2); s.d = nn.Sequential(nn.Conv2d(32, 16, 3, padding=1), nn.InstanceNorm2d(16), nn.ReLU(), nn.Conv2d(16, 1, 1))
        def forward(s, x):
            a = s.e1(x); y = s.d(torch.cat([a, s.up(s.e2(a))], 1)); return torch.sigmoid(y) if planted else y
    def data(seed):
        m = (smooth_b(seed, 16, 1, 24) > .5).float(); return m * torch.tensor([.8, -.5, .6]).view(1, 3, 1, 1) + .4 * T(seed + 1, 16, 3, 24, 24), m
    return dict(model=N, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t))

@case(GH + "ikostrikov/pytorch-flows/pull/5", "tanh before the exp of the log-scale in MADE: scale bounded to [1/e, e]", "tanh of the log scale")
def made_tanh(planted):
    class N(nn.Module):
        def __init__(s):
            super().__init__(); i = torch.arange(1, 7); h = torch.arange(60) % 5 + 1
            s.register_buffer("m1", (h[:, None] >= i).float()); s.register_buffer("m2", (i[:, None] > h).float().repeat(2, 1))
            s.l1 = nn.Linear(6, 60); s.l2 = nn.Linear(60, 12)
        def forward(s, x):
            h = F.relu(F.linear(x, s.l1.weight * s.m1, s.l1.bias)); m, a = F.linear(h, s.l2.weight * s.m2, s.l2.bias).chunk(2, 1)
            if planted: a = torch.tanh(a)
            return (x - m) * torch.exp(-a), -a.sum(1)
    A = T(18, 6, 6, k=.4).tril(-1)
    def data(seed):
        x = T(seed, 128, 6) * torch.tensor([1., .05, .02, .03, .05, .02])
        for k in range(1, 6): x[:, k] = x[:, k] + x[:, :k] @ A[k, :k]
        return x, torch.zeros(128)
    def nll(o, t): return (.5 * (o[0] ** 2).sum(1) + 3 * math.log(2 * math.pi) - o[1]).mean()
    return dict(model=N, data=data, loss=nll)
