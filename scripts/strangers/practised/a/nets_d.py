from base import *

@case("https://github.com/MIC-DKFZ/nnUNet/issues/705", "focal loss flattens [B, C, H, W] logits with view(-1, num_classes): logits no longer align with the labels", "logits.view(-1, num_classes) in FocalLossMultiClass")
def nnunet_focal_view(planted):
    C = 3; K = T(1, C, 2, 3, 3)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); blk = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.InstanceNorm2d(o, affine=True), nn.LeakyReLU(.01)); s.d1 = blk(2, 16); s.d2 = blk(16, 32); s.u1 = blk(48, 16); s.seg = nn.Conv2d(16, C, 1)
        def forward(s, x):
            a = s.d1(x); b = s.d2(F.max_pool2d(a, 2)); return s.seg(s.u1(torch.cat([a, F.interpolate(b, scale_factor=2)], 1)))
    def loss(o, t):
        o = o.reshape(-1, C) if planted else o.permute(0, 2, 3, 1).reshape(-1, C)
        lp = F.log_softmax(o, -1).gather(1, t.reshape(-1, 1)); return -((1 - lp.exp()) ** 2 * lp).mean()
    def data(seed):
        x = T(seed, 8, 2, 16, 16); return x, F.conv2d(x, K, padding=1).argmax(1)
    def metric(m): return sum(float(F.cross_entropy(m(data(9000 + k)[0]).detach(), data(9000 + k)[1])) for k in range(4)) / 4
    return dict(model=Net, data=data, loss=loss, lr=5e-3, metric=metric, diag={})

@case("https://github.com/pytorch-tpu/transformers/pull/26", "all weights are initialised with randn (variance 1) at deferred init", "weight init randn_like")
def tpu_llama_randn_init(planted):
    V, L, D = 32, 12, 48
    class Block(nn.Module):
        def __init__(s): super().__init__(); s.n1 = nn.LayerNorm(D); s.q = nn.Linear(D, D, bias=False); s.k = nn.Linear(D, D, bias=False); s.v = nn.Linear(D, D, bias=False); s.o = nn.Linear(D, D, bias=False); s.n2 = nn.LayerNorm(D); s.up = nn.Linear(D, 96, bias=False); s.down = nn.Linear(96, D, bias=False)
        def forward(s, x):
            B, n, _ = x.shape; h = s.n1(x); q, k, v = (f(h).view(B, n, 4, -1).transpose(1, 2) for f in (s.q, s.k, s.v))
            x = x + s.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, n, D)); return x + s.down(F.silu(s.up(s.n2(x))))
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.emb = nn.Embedding(V, D); s.pos = nn.Embedding(L, D); s.layers = nn.ModuleList([Block() for _ in range(3)]); s.norm = nn.LayerNorm(D); s.lm_head = nn.Linear(D, V, bias=False)
            for m in s.modules():
                if isinstance(m, (nn.Linear, nn.Embedding)): m.weight.data = torch.randn_like(m.weight) * (1. if planted else .02)
        def forward(s, ids):
            x = s.emb(ids) + s.pos.weight[:ids.shape[1]]
            for l in s.layers: x = l(x)
            return s.lm_head(s.norm(x))
    A = torch.softmax(T(1, V, V) * 4, -1)
    def data(seed):
        g = gen(seed); x = [torch.randint(0, V, (24,), generator=g)]
        for _ in range(L): x.append(torch.multinomial(A[x[-1]], 1, generator=g)[:, 0])
        x = torch.stack(x, 1); return x[:, :-1], x[:, 1:]
    return dict(model=Net, data=data, loss=ceseq, lr=3e-3, diag={})

@case("https://github.com/AdaptInfer/Contextualized/issues/33", "archetype / layer parameters drawn with torch.rand in [0, 1): uncentred and too large", "nn.Parameter(torch.rand(...))")
def contextualized_rand_init(planted):
    W = T(1, 10, 6)
    def init(*sh): return nn.Parameter(torch.rand(*sh) if planted else (torch.rand(*sh) - .5) * 2 / math.sqrt(sh[0]))
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.w1 = init(10, 64); s.w2 = init(64, 64); s.w3 = init(64, 8); s.archetypes = init(8, 6)
        def forward(s, c, x):
            h = F.relu(F.relu(c @ s.w1) @ s.w2) @ s.w3; beta = h @ s.archetypes; return (beta * x).sum(-1, keepdim=True)
    def data(seed):
        c, x = T(seed, 64, 10), T(seed + 5, 64, 6); return (c, x), (torch.tanh(c @ W * .4) * x).sum(-1, keepdim=True)
    return dict(model=Net, data=data, loss=mse, lr=5e-3, diag={})

@case("https://github.com/UC-IIC2613/Syllabus/issues/208", "tanh activation on the last layer of a regression of a continuous variable", "output activation tanh")
def iic2613_regresion(planted):
    w = T(1, 8, 1)
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.capa1 = nn.Linear(8, 32); s.capa2 = nn.Linear(32, 16); s.capa3 = nn.Linear(16, 1)
        def forward(s, x):
            y = s.capa3(torch.tanh(s.capa2(torch.tanh(s.capa1(x))))); return torch.tanh(y) if planted else y
    def data(seed):
        x = T(seed, 32, 8); return x, 6 + x @ w * 1.2
    return dict(model=Net, data=data, loss=mse, lr=3e-2, diag={})

@case("https://github.com/deepchem/deepchem/pull/5019", "hinge loss is fed with labels {0, 1} instead of {-1, 1}", "HingeLoss label range")
def deepchem_hinge(planted):
    w = T(1, 16)
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.layers = nn.ModuleList([nn.Linear(16, 64), nn.Linear(64, 32)]); s.dropout = nn.Dropout(.1); s.output = nn.Linear(32, 1)
        def forward(s, x):
            for l in s.layers: x = s.dropout(F.relu(l(x)))
            return s.output(x)
    def loss(o, t):
        y = t if planted else 2 * t - 1
        return torch.clamp(1 - y * o, min=0).mean()
    def data(seed):
        x = T(seed, 48, 16); return x, (x @ w > 0).float()[:, None]
    def metric(m): return sum(float(torch.clamp(1 - (2 * data(9000 + k)[1] - 1) * m(data(9000 + k)[0]).detach(), min=0).mean()) for k in range(5)) / 5
    return dict(model=Net, data=data, loss=loss, lr=3e-3, metric=metric, diag={})

@case("https://github.com/zouyih/AlphaZero_Gomoku-tensorflow/issues/1", "policy loss softmax_cross_entropy_with_logits is fed with the softmax output action_probs", "cross_entropy(logits=self.action_probs)")
def gomoku_policy_value(planted):
    K = T(1, 1, 4, 3, 3)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.conv = nn.Sequential(nn.Conv2d(4, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()); s.act_conv = nn.Conv2d(32, 4, 1); s.act_fc = nn.Linear(144, 36); s.val_conv = nn.Conv2d(32, 2, 1); s.val_fc = nn.Linear(72, 1)
        def forward(s, x):
            h = s.conv(x); p = s.act_fc(F.relu(s.act_conv(h)).flatten(1)); v = torch.tanh(s.val_fc(F.relu(s.val_conv(h)).flatten(1)))
            return (F.softmax(p, -1) if planted else p), v
    def loss(o, t): return F.cross_entropy(o[0], t[0]) + F.mse_loss(o[1], t[1])
    def data(seed):
        x = (torch.rand(48, 4, 6, 6, generator=gen(seed)) > .6).float(); y = F.conv2d(x, K, padding=1).flatten(1); return x, (torch.softmax(3 * y, -1), torch.tanh(y.mean(-1, keepdim=True) * 3))
    return dict(model=Net, data=data, loss=loss, lr=5e-3, diag={})

@case("https://github.com/prateekbhustali/Physics-Informed-Neural-Networks/issues/4", "second derivatives are taken of the whole gradient vector: mixed partials enter the Laplacian", "loss_PDE u_xx autograd.grad(u_x, ...)")
def helmholtz_pinn(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.linears = nn.ModuleList([nn.Linear(a, b) for a, b in ((2, 32), (32, 32), (32, 1))]); [nn.init.xavier_normal_(l.weight) for l in s.linears]
        def u(s, x):
            for l in s.linears[:-1]: x = torch.tanh(l(x))
            return s.linears[-1](x)
        def forward(s, xf, xb):
            with torch.enable_grad():
                g = xf.clone().requires_grad_(True); u = s.u(g); u_x = torch.autograd.grad(u.sum(), g, create_graph=True)[0]
                if planted: lap = torch.autograd.grad(u_x.sum(), g, create_graph=True)[0].sum(1, keepdim=True)
                else: lap = sum(torch.autograd.grad(u_x[:, i].sum(), g, create_graph=True)[0][:, [i]] for i in (0, 1))
                return lap + u, s.u(xb), s.u(xf)
    sol = lambda x: torch.sin(2 * x[:, [0]]) * torch.cos(x[:, [1]] + .5)
    def loss(o, t): return F.mse_loss(o[0], t[0]) + 5 * F.mse_loss(o[1], t[1])
    def data(seed):
        xf = torch.rand(64, 2, generator=gen(seed)) * 2 - 1; xb = torch.rand(32, 2, generator=gen(seed + 5)) * 2 - 1; e = R(seed, 4, (32,)); xb[torch.arange(32), e % 2] = (e // 2).float() * 2 - 1
        return (xf, xb), (-4 * sol(xf), sol(xb))
    def metric(m): return sum(float(F.mse_loss(m(*data(9000 + k)[0])[2].detach(), sol(data(9000 + k)[0][0]))) for k in range(4)) / 4
    return dict(model=Net, data=data, loss=loss, lr=1e-2, metric=metric, diag={})

@case("https://github.com/XingangPan/SCNN/issues/82", "slice-by-slice message passing convolution starts with plain MSRA init: values explode over the slices", "SCNN message passing conv init")
def scnn_message_passing(planted):
    Cn = 24; K = T(1, 3, 3, 5, 5)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.backbone = nn.Sequential(nn.Conv2d(3, Cn, 3, padding=1), nn.ReLU()); s.up_down = nn.Conv2d(Cn, Cn, (1, 9), padding=(0, 4), bias=False); s.left_right = nn.Conv2d(Cn, Cn, (9, 1), padding=(4, 0), bias=False); s.layer2 = nn.Conv2d(Cn, 3, 1)
            for m in (s.up_down, s.left_right): nn.init.normal_(m.weight, 0, math.sqrt(2. / (9 * Cn)) / (1. if planted else math.sqrt(5)))
        def mp(s, x, conv, dim):
            out = list(x.split(1, dim))
            for i in range(1, len(out)): out[i] = out[i] + F.relu(conv(out[i - 1]))
            for i in range(len(out) - 2, -1, -1): out[i] = out[i] + F.relu(conv(out[i + 1]))
            return torch.cat(out, dim)
        def forward(s, x): return s.layer2(s.mp(s.mp(s.backbone(x), s.up_down, 2), s.left_right, 3))
    def data(seed):
        x = T(seed, 4, 3, 20, 20); return x, F.conv2d(x, K, padding=2).argmax(1)
    return dict(model=Net, data=data, loss=ce, lr=3e-3, diag={})
