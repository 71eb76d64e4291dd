from base import *
GH = "https://github.com/"
def mlpd(*d, act=nn.ReLU): return nn.Sequential(*[m for i in range(len(d) - 1) for m in ((nn.Linear(d[i], d[i + 1]), act()) if i < len(d) - 2 else (nn.Linear(d[i], d[i + 1]),))])
def smooth_d(s, b, c, n): return F.interpolate(T(s, b, c, n // 4, n // 4), size=(n, n), mode="bilinear", align_corners=False)

@case(GH + "jsyoon0823/Time-series-prediction/issues/3", "sigmoid output for targets outside of [0, 1]", "output sigmoid")
def tsp_sigmoid(planted):
    class N(nn.Module):
        def __init__(s): super().__init__(); s.rnn = nn.GRU(3, 32, batch_first=True); s.att = nn.Linear(32, 1); s.out = nn.Linear(32, 1)
        def forward(s, x):
            h, _ = s.rnn(x); y = s.out((s.att(h).softmax(1) * h).sum(1)).squeeze(-1); return torch.sigmoid(y) if planted else y
    def data(seed):
        x = T(seed, 64, 14, 3) * .4
        for t in range(1, 14): x[:, t] += .8 * x[:, t - 1]
        return x, 2 * x[:, -1, 0] - x[:, -1, 1] + x.mean((1, 2))
    return dict(model=N, data=data, loss=mse, diag=MSE)

@case(GH + "autogluon/autogluon/issues/1158", "no scaling of the regression target", "targets / output layer")
def autogluon_target(planted):
    W, V = T(1, 8, 12, k=.5), T(2, 12, 1, k=.5)
    class N(nn.Module):
        def __init__(s): super().__init__(); s.bn = nn.BatchNorm1d(8); s.layers = nn.Sequential(nn.Linear(8, 100), nn.ReLU(), nn.BatchNorm1d(100), nn.Linear(100, 50), nn.ReLU(), nn.BatchNorm1d(50), nn.Linear(50, 1))
        def forward(s, x): y = s.layers(s.bn(x)).squeeze(-1); return y if planted else y * 45. + 280.
    def data(seed): x = T(seed, 64, 8); return x, (torch.tanh(x @ W) @ V).squeeze(-1) * 50 + 280
    return dict(model=N, data=data, loss=mse, diag=MSE)

@case(GH + "thu-ml/tianshou/issues/40", "log_prob not summed over the action dimensions: the critic's target broadcasts", "loss / log_prob shape")
def sac_logprob_sum(planted):
    W, V = T(3, 14, 16, k=.4), T(4, 16, 1, k=1.)
    def data(seed):
        x, a = T(seed, 64, 8), torch.tanh(T(seed + 1, 64, 6)); r = torch.tanh(torch.cat([x, a], 1) @ W) @ V
        lp = -.5 * T(seed + 2, 64, 6) ** 2 - a.abs() * .5
        return (x, a), (r, lp)
    class N(nn.Module):
        def __init__(s): super().__init__(); s.q = mlpd(14, 128, 128, 1)
        def forward(s, x, a): return s.q(torch.cat([x, a], 1))
    def loss(q, t):
        r, lp = t; target = r - .2 * (lp if planted else lp.sum(1, keepdim=True)); return F.mse_loss(q, target)
    return dict(model=N, data=data, loss=loss)

@case(GH + "tracel-ai/burn/issues/2701", "GRU does not use the updated hidden state in its iteration", "GRU")
def burn_gru(planted):
    class G(nn.Module):
        def __init__(s, i, h): super().__init__(); s.cell = nn.GRUCell(i, h); s.h = h
        def forward(s, x):
            h0 = h = x.new_zeros(len(x), s.h); out = []
            for t in range(x.shape[1]):
                h = s.cell(x[:, t], h0 if planted else h); out.append(h)
            return torch.stack(out, 1)
    class N(nn.Module):
        def __init__(s): super().__init__(); s.emb = nn.Embedding(12, 24); s.gru = G(24, 48); s.out = nn.Linear(48, 12)
        def forward(s, x): return s.out(s.gru(s.emb(x)))
    def data(seed): x = R(seed, 12, (32, 12)); y = x.clone(); y[:, 1:] = x[:, :-1]; y[:, 0] = 0; return x, y
    return dict(model=N, data=data, loss=ceseq, diag=SEQ)

@case(GH + "facebookresearch/neuromorph/issues/2", "max pooling over the features instead of over the points", "pool")
def neuromorph_pool(planted):
    class N(nn.Module):
        def __init__(s): super().__init__(); s.inp = nn.Linear(3, 64); s.b0 = nn.Linear(64, 32); s.b1 = nn.Linear(64, 32); s.b2 = nn.Linear(64, 32); s.out = nn.Linear(32, 4)
        def pool(s, n): return n.amax(2 if planted else 1, keepdim=True).expand(n.shape)
        def forward(s, p):
            h = F.relu(s.b0(F.relu(s.inp(p))))
            for b in (s.b1, s.b2): h = F.relu(b(torch.cat([h, s.pool(h)], -1)))
            return s.out(h)
    def data(seed):  # each point: quadrant relative to the cloud's extremes
        g = gen(seed); p = torch.randn(16, 20, 3, generator=g) + torch.randn(16, 1, 3, generator=g) * 2; c = (p.amax(1, keepdim=True) + p.amin(1, keepdim=True)) / 2
        return p, (p[..., 0] > c[..., 0]).long() * 2 + (p[..., 1] > c[..., 1]).long()
    return dict(model=N, data=data, loss=ceseq, diag=SEQ)

@case(GH + "hunkim/DeepLearningZeroToAll/issues/244", "W and b of softmax regression from random_normal (std 1)", "W")
def hunkim_randn(planted):
    P = smooth_d(5, 10, 1, 28).flatten(1)
    class N(nn.Module):
        def __init__(s): super().__init__(); s.W = nn.Parameter(torch.randn(784, 10) if planted else torch.zeros(784, 10)); s.b = nn.Parameter(torch.randn(10) if planted else torch.zeros(10))
        def forward(s, x): return x @ s.W + s.b
    def data(seed): y = R(seed, 10, (64,)); return torch.sigmoid(P[y] * 2 + 1.5 * T(seed + 1, 64, 784)), y
    return dict(model=N, data=data, loss=ce, diag=CE)

@case(GH + "tensorflow/models/issues/1529", "weight_variable returns zeros instead of random values", "W (all layers)")
def tf_zero_weights(planted):
    def model():
        m = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 6))
        for l in m:
            if hasattr(l, "weight"):
                if planted: nn.init.zeros_(l.weight); nn.init.constant_(l.bias, .01)
                else: nn.init.kaiming_normal_(l.weight, nonlinearity="relu"); nn.init.constant_(l.bias, .01)
        if not planted:
            with torch.no_grad(): m[-1].weight.mul_(.3)
        return m
    P = smooth_d(6, 6, 1, 16) * 1.2
    def data(seed): y = R(seed, 6, (32,)); return P[y] + T(seed + 1, 32, 1, 16, 16), y
    return dict(model=model, data=data, loss=ce, diag=CE)

@case(GH + "tadax/glcic/issues/6", "batch norm's gamma and beta from a truncated normal around 0 instead of 1 and 0", "gamma (BatchNorm weights)")
def glcic_bn_init(planted):
    def model():
        m = nn.Sequential(*[l for i, (a, b, d) in enumerate([(4, 24, 1), (24, 24, 1), (24, 24, 2), (24, 24, 4), (24, 24, 1), (24, 16, 1)]) for l in (nn.Conv2d(a, b, 3, padding=d, dilation=d), nn.BatchNorm2d(b), nn.ReLU())], nn.Conv2d(16, 3, 3, padding=1), nn.Tanh())
        if planted:
            for l in m:
                if isinstance(l, nn.BatchNorm2d): nn.init.trunc_normal_(l.weight, std=.1, a=-.2, b=.2); nn.init.trunc_normal_(l.bias, std=.1, a=-.2, b=.2)
        return m
    def data(seed):
        x = torch.tanh(smooth_d(seed, 12, 3, 20)); m = torch.zeros(12, 1, 20, 20); m[:, :, 7:12, 8:13] = 1; return torch.cat([x * (1 - m), m], 1), x
    return dict(model=model, data=data, loss=mse, diag=MSE)

@case(GH + "pkmital/pycadl/pull/5", "images divided by 255 twice", "inputs")
def pycadl_double_norm(planted):
    P = torch.sigmoid(smooth_d(7, 12, 1, 16) * 2)
    class N(nn.Module):
        def __init__(s): super().__init__(); s.enc = mlpd(256, 128, 64, 20); s.dec = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 256))
        def forward(s, x):
            x = x / 255
            if planted: x = x / 255
            mu, lv = s.enc(x.flatten(1)).chunk(2, 1); z = mu + torch.randn_like(mu) * (.5 * lv).exp() if s.training else mu
            return s.dec(z), mu, lv, x.flatten(1)
    def data(seed): y = R(seed, 12, (32,)); x = (P[y] * (.7 + .3 * torch.rand(32, 1, 1, 1, generator=gen(seed + 1)))) * 255; return x, torch.zeros(32)
    def loss(o, t): r, mu, lv, x = o; return (F.binary_cross_entropy_with_logits(r, x, reduction="none").sum(1) - .5 * (1 + lv - mu ** 2 - lv.exp()).sum(1)).mean()
    return dict(model=N, data=data, loss=loss)

@case(GH + "cpnota/autonomous-learning-library/issues/139", "log(1 - action^2) with actions scaled beyond 1: NaN", "log in sample")
def sac_log_nan(planted):
    W = T(8, 8, 2, k=.5)
    class N(nn.Module):
        def __init__(s): super().__init__(); s.net = mlpd(8, 64, 64, 4)
        def forward(s, x):
            mu, ls = s.net(x).chunk(2, 1); sd = ls.clamp(-5, 2).exp(); raw = mu + sd * torch.randn_like(mu); a = 2 * torch.tanh(raw)
            lp = (-.5 * ((raw - mu) / sd) ** 2 - sd.log() - .919 - torch.log(1 - (a if planted else torch.tanh(raw)) ** 2 + 1e-6)).sum(1)
            return a, lp
    def data(seed): x = T(seed, 64, 8); return x, 1.5 * torch.tanh(x @ W)
    def loss(o, t): return (.02 * o[1] + ((o[0] - t) ** 2).sum(1)).mean()
    return dict(model=N, data=data, loss=loss)

@case(GH + "VinceShieh/spark-ffm/issues/12", "factor weights not scaled by 1/sqrt(fields * k): the score is huge, exp overflows", "factors V")
def ffm_init(planted):
    fields, k = 16, 8; tt = T(9, fields, 20, k=.8); u = T(10, fields, 20, 3, k=.4)
    class N(nn.Module):
        def __init__(s): super().__init__(); s.w = nn.Parameter(torch.zeros(fields, 20)); s.V = nn.Parameter(torch.randn(fields, 20, fields, k) * (1. if planted else (1 / (fields * k)) ** .5)); s.register_buffer("f", torch.arange(fields))
        def forward(s, x):
            v = s.V[s.f, x]  # B, fi, fj, k
            z = (v * v.transpose(1, 2)).sum(-1); return s.w[s.f, x].sum(1) + (z.sum((1, 2)) - z.diagonal(dim1=1, dim2=2).sum(1)) / 2
    def data(seed):
        x = R(seed, 20, (128, fields)); f = torch.arange(fields); e = u[f, x]; return x, ((tt[f, x].sum(1) + .5 * (e.sum(1) ** 2 - (e ** 2).sum(1)).sum(1)) > 0).float()
    return dict(model=N, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t))

@case(GH + "pyg-team/pytorch_geometric/issues/1561", "DeepGCN layer normalises x instead of the convolution's output h: the convolution is dropped", "conv")
def deepgcn_norm(planted):
    class L(nn.Module):
        def __init__(s, c): super().__init__(); s.conv = nn.Linear(c, c); s.norm = nn.LayerNorm(c)
        def forward(s, x, A):
            h = s.conv(A @ x); h = s.norm(x if planted else h); return x + F.relu(h)
    class N(nn.Module):
        def __init__(s): super().__init__(); s.inp = nn.Linear(6, 32); s.ls = nn.ModuleList([L(32) for _ in range(3)]); s.out = nn.Linear(32, 3)
        def forward(s, x, A):
            A = A + torch.eye(A.shape[-1]); A = A / A.sum(-1, keepdim=True); h = s.inp(x)
            for l in s.ls: h = l(h, A)
            return s.out(h)
    W = T(11, 6, 3)
    def data(seed):
        g = gen(seed); x = torch.randn(16, 12, 6, generator=g); A = (torch.rand(16, 12, 12, generator=g) < .25).float(); A = torch.maximum(A, A.transpose(1, 2)); A.diagonal(dim1=1, dim2=2).zero_()
        return (x, A), ((A @ x) @ W).argmax(-1)
    return dict(model=N, data=data, loss=ceseq, diag=SEQ)

@case(GH + "lululxvi/deepxde/issues/22", "solution of size 200 without an output transform that scales it", "output scale")
def pinn_output_scale(planted):
    class N(nn.Module):
        def __init__(s):
            super().__init__(); s.net = mlpd(1, 48, 48, 48, 1, act=nn.Tanh)
            for l in s.net:
                if isinstance(l, nn.Linear): nn.init.xavier_normal_(l.weight); nn.init.zeros_(l.bias)
        def forward(s, t):
            y = s.net(t); return y if planted else y * 100
    # fit of the density at collocation points (data term of the inverse problem)
    def data(seed): t = torch.rand(64, 1, generator=gen(seed)) * 2 - 1; return t, 200 * torch.exp(-t ** 2 / .08)
    return dict(model=N, data=data, loss=mse, diag=MSE)

@case(GH + "EleutherAI/gpt-neox/pull/267", "final linear layer not a Module: its parameters are not registered", "final linear")
def neox_final(planted):
    nx = torch.randperm(40, generator=gen(12))
    class Plain:
        def __init__(s): s.weight = (torch.randn(40, 32) * .02).requires_grad_()
        def __call__(s, x): return F.linear(x, s.weight)
    class N(nn.Module):
        def __init__(s):
            super().__init__(); s.emb = nn.Embedding(40, 32); nn.init.normal_(s.emb.weight, std=.02); s.ln = nn.LayerNorm(32); s.ff = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)); s.norm = nn.LayerNorm(32)
            lin = nn.Linear(32, 40, bias=False); nn.init.normal_(lin.weight, std=.02); s.final = Plain() if planted else lin
        def forward(s, x): h = s.emb(x); h = h + s.ff(s.ln(h)); return s.final(s.norm(h))
    def data(seed): x = R(seed, 40, (32, 12)); return x, nx[x]
    return dict(model=N, data=data, loss=ceseq, diag=SEQ)

@case(GH + "bold-lab-ai/JaxMARL/issues/126", "two dense layers of the Q network without nonlinearity between them", "dense layers")
def jaxmarl_dense(planted):
    W = T(13, 5 * 5 * 4, 24, k=.3); V = T(14, 24, 6, k=.5)
    def model(): return nn.Sequential(nn.Conv2d(4, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(400, 64), nn.Identity() if planted else nn.ReLU(), nn.Linear(64, 6))
    def data(seed): x = T(seed, 48, 4, 5, 5); return x, torch.relu(x.flatten(1) @ W) @ V
    return dict(model=model, data=data, loss=mse, diag=MSE)
