from base import *

@case("https://github.com/LeoGrin/tabular-benchmark/issues/14", "d_layers.append(d_out): the last hidden layer has d_out (1) units with ReLU, and the head maps d_out to d_out", "the extra hidden layer of width d_out before the head")
def tabbench_mlp_dout_layer(planted):
    class MLP(nn.Module):
        def __init__(s, d_in=10, d_layers=(64, 64), d_out=1):
            super().__init__(); d_layers = list(d_layers)
            if planted: d_layers.append(d_out)
            s.layers = nn.ModuleList(nn.Linear(d_layers[i - 1] if i else d_in, x) for i, x in enumerate(d_layers)); s.dropout = nn.Dropout(.1); s.head = nn.Linear(d_layers[-1], d_out)
        def forward(s, x):
            for l in s.layers: x = s.dropout(F.relu(l(x)))
            return s.head(x).squeeze(-1)
    W = torch.randn(10, 4, generator=gen(9)) / 10 ** .5
    def data(seed): x = T(seed, 64, 10); h = torch.sin(x @ W * 1.5); return x, (h[:, 0] + h[:, 1] * h[:, 2] + .5 * h[:, 3]) * 1.1
    return dict(model=MLP, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/neuraloperator/neuraloperator/pull/197", "the projection MLP applies GELU after its last layer, so outputs are bounded below", "final MLP: nonlinearity after the last layer")
def neuralop_gelu_on_output(planted):
    W = 16
    class Spec(nn.Module):
        def __init__(s, m=6): super().__init__(); s.m = m; s.w = nn.Parameter(torch.randn(W, W, m, 2) / W)
        def forward(s, x):
            f = torch.fft.rfft(x); o = torch.zeros_like(f); o[..., :s.m] = torch.einsum("bim,iom->bom", f[..., :s.m], torch.view_as_complex(s.w)); return torch.fft.irfft(o, n=x.shape[-1])
    class MLP(nn.Module):
        def __init__(s, i, h, o): super().__init__(); s.fcs = nn.ModuleList([nn.Conv1d(i, h, 1), nn.Conv1d(h, o, 1)])
        def forward(s, x):
            for i, fc in enumerate(s.fcs):
                x = fc(x)
                if planted or i < len(s.fcs) - 1: x = F.gelu(x)
            return x
    class FNO(nn.Module):
        def __init__(s):
            super().__init__(); s.lifting = nn.Conv1d(2, W, 1); s.sp, s.sk = nn.ModuleList(Spec() for _ in range(3)), nn.ModuleList(nn.Conv1d(W, W, 1) for _ in range(3)); s.projection = MLP(W, 32, 1)
        def forward(s, x):
            g = torch.linspace(-1.7, 1.7, x.shape[-1]).expand(len(x), 1, -1); h = s.lifting(torch.cat([x, g], 1))
            for i in range(3):
                h = s.sp[i](h) + s.sk[i](h)
                if i < 2: h = F.gelu(h)
            return s.projection(h)
    def data(seed):
        c = T(seed, 32, 2, 4); th = torch.arange(32) * (2 * math.pi / 32); k = torch.arange(1, 5)[:, None] * th; a = (c[:, 0] @ k.sin() + c[:, 1] @ k.cos()) / 2
        dec = torch.exp(-.1 * torch.arange(1, 5) ** 2.); u = ((c[:, 0] * dec) @ k.sin() + (c[:, 1] * dec) @ k.cos()) / 1.5; return a.unsqueeze(1), u.unsqueeze(1)
    return dict(model=FNO, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/golbin/WaveNet/issues/3", "tanh and sigmoid are applied to the same convolution output instead of a filter and a gate convolution", "ResidualBlock: gate and filter share one convolution")
def golbin_wavenet_shared_gate(planted):
    Cn, Rn, Tn = 16, 24, 40
    class Block(nn.Module):
        def __init__(s, d):
            super().__init__(); s.dilated = nn.Conv1d(Rn, Rn, 2, dilation=d, bias=False); s.conv_res, s.conv_skip = nn.Conv1d(Rn, Rn, 1), nn.Conv1d(Rn, Cn, 1)
            if not planted: s.dilated_gate = nn.Conv1d(Rn, Rn, 2, dilation=d, bias=False)
        def forward(s, x, n):
            o = s.dilated(x); g = torch.tanh(o) * torch.sigmoid(o if planted else s.dilated_gate(x)); o = s.conv_res(g); return o + x[:, :, -o.size(2):], s.conv_skip(g)[:, :, -n:]
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.causal = nn.Conv1d(Cn, Rn, 2, padding=1, bias=False); s.bl = nn.ModuleList(Block(d) for d in (1, 2, 4, 1, 2, 4)); s.c1, s.c2 = nn.Conv1d(Cn, Cn, 1), nn.Conv1d(Cn, Cn, 1)
        def forward(s, x):
            o = s.causal(x.transpose(1, 2))[:, :, :-1]; n = o.size(2) - 14; sk = 0
            for b in s.bl: o, k = b(o, n); sk = sk + k
            return s.c2(F.relu(s.c1(F.relu(sk)))).transpose(1, 2)
    def data(seed):
        t = torch.arange(Tn + 1); f = torch.rand(24, 1, generator=gen(seed)) * .5 + .3; p = torch.rand(24, 1, generator=gen(seed + 1)) * 6.28
        w = torch.sin(f * t + p) * .9; q = ((w + 1) / 2 * Cn).long().clamp(0, Cn - 1); return F.one_hot(q[:, :-1], Cn).float(), q[:, 15:]
    return dict(model=Net, data=data, loss=ceseq, lr=5e-3, diag={})

@case("https://github.com/oclivegriffin/crosscode/pull/3", "_calculate_loss returns the reconstruction loss, so the AuxK dead-latent term never trains", "the returned loss lacks lambda_aux*aux_loss")
def crosscode_aux_not_returned(planted):
    Dm, L, k, ka = 16, 64, 4, 16
    class SAE(nn.Module):
        def __init__(s):
            super().__init__(); s.W_dec = nn.Parameter(F.normalize(torch.randn(L, Dm), dim=1) * .5); s.W_enc = nn.Parameter(s.W_dec.data.t().clone()); s.b_enc, s.b_dec = nn.Parameter(torch.zeros(L)), nn.Parameter(torch.zeros(Dm))
        def top(s, a, k): v, i = a.topk(k, -1); return torch.zeros_like(a).scatter(-1, i, v)
        def forward(s, x, right=False):
            a = F.relu((x - s.b_dec) @ s.W_enc + s.b_enc); z = s.top(a, k); r = z @ s.W_dec + s.b_dec; rec = (r - x).pow(2).sum(-1).mean()
            dead = (z > 0).sum(0) == 0; pre = ((x - s.b_dec) @ s.W_enc + s.b_enc).masked_fill(~dead, -1e9); za = F.relu(s.top(pre, ka).clamp(min=-1e6))
            aux = ((x - r).detach() - za @ s.W_dec).pow(2).sum(-1).mean(); loss = rec + aux / 32
            return rec if planted and not right else loss
    Dc = F.normalize(torch.randn(48, Dm, generator=gen(10)), dim=1)
    def data(seed):
        m = torch.zeros(64, 48).scatter(1, torch.rand(64, 48, generator=gen(seed)).topk(3, 1)[1], 1.); x = (m * torch.rand(64, 48, generator=gen(seed + 1)).add(.5)) @ Dc; return x * 2.3, None
    return dict(model=SAE, data=data, loss="model", diag={"loss": "model"}, lr=3e-3, judge=lambda m, x, t: m(x, right=True))

@case("https://github.com/microsoft/protein-frame-flow/issues/23", "the auxiliary loss is added to se3_vf_loss and again to the training loss", "train_loss: auxiliary loss counted twice")
def frameflow_aux_twice(planted):
    N, H = 10, 32
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.i, s.t = nn.Linear(3 + 4, H), nn.Linear(1, H); s.pos = nn.Parameter(torch.randn(N, H) * .02)
            s.b = nn.ModuleList(nn.TransformerEncoderLayer(H, 4, 64, 0., batch_first=True, norm_first=True) for _ in range(2)); s.n, s.o = nn.LayerNorm(H), nn.Linear(H, 3)
        def forward(s, x, sq, t):
            h = s.i(torch.cat([x, sq], -1)) + s.t(t)[:, None] + s.pos
            for b in s.b: h = b(h)
            return x + s.o(s.n(h))
    def parts(o, t): return F.mse_loss(o, t), .25 * F.mse_loss((o[:, :, None] - o[:, None] + 1e-6).norm(dim=-1), (t[:, :, None] - t[:, None] + 1e-6).norm(dim=-1))
    def right(o, t): return sum(parts(o, t))
    def loss(o, t): v, a = parts(o, t); v = v + a; return v + a if planted else v
    W = torch.randn(4, 3, generator=gen(11))
    def data(seed):
        sq = T(seed, 32, N, 4); x1 = torch.cumsum(torch.tanh(sq @ W), 1); x1 = (x1 - x1.mean(1, keepdim=True)) / 1.5; u = torch.rand(32, 1, generator=gen(seed + 1)); x0 = T(seed + 2, 32, N, 3)
        return ((1 - u[:, None]) * x0 + u[:, None] * x1, sq, (u - .5) * 3.4), x1
    return dict(model=Net, data=data, loss=loss, lr=3e-3, diag={}, judge=lambda m, x, t: right(m(*x), t))

@case("https://github.com/deep-learning-with-pytorch/dlwpt-code/issues/89", "n_blocks * [ResBlock()] repeats one block object: all residual blocks share their weights", "resblocks: n_blocks * [ResBlock(...)]")
def dlwpt_shared_resblocks(planted):
    C, n = 16, 5
    class ResBlock(nn.Module):
        def __init__(s):
            super().__init__(); s.conv, s.batch_norm = nn.Conv2d(C, C, 3, padding=1, bias=False), nn.BatchNorm2d(C)
            nn.init.kaiming_normal_(s.conv.weight, nonlinearity="relu"); nn.init.constant_(s.batch_norm.weight, .5); nn.init.zeros_(s.batch_norm.bias)
        def forward(s, x): return F.relu(s.batch_norm(s.conv(x))) + x
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.conv1 = nn.Conv2d(3, C, 3, padding=1); s.resblocks = nn.Sequential(*(n * [ResBlock()])) if planted else nn.Sequential(*[ResBlock() for _ in range(n)]); s.fc1, s.fc2 = nn.Linear(C * 16, 32), nn.Linear(32, 4)
        def forward(s, x):
            o = F.max_pool2d(F.relu(s.conv1(x)), 2); o = F.max_pool2d(s.resblocks(o), 2); return s.fc2(F.relu(s.fc1(o.flatten(1))))
    P = torch.randn(8, 3, 4, 4, generator=gen(12))
    def data(seed):
        y = R(seed, 4, (32,)); sub = R(seed + 1, 2, (32,)); x = T(seed + 2, 32, 3, 16, 16) * .8; r = R(seed + 3, 12, (32, 2))
        for b in range(32): x[b, :, r[b, 0]:r[b, 0] + 4, r[b, 1]:r[b, 1] + 4] += P[y[b] + 4 * sub[b]] * 1.5
        return x, y
    return dict(model=Net, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/uvm-neurobotics-lab/ANML/issues/3", "the inner-loop torch.autograd.grad lacks create_graph=True: only first-order meta-gradients", "meta_learner inner update without create_graph")
def anml_no_create_graph(planted):
    H = 24
    class ANML(nn.Module):
        def __init__(s): super().__init__(); s.nm1, s.nm2 = nn.Linear(5, H), nn.Linear(H, H); s.p1, s.p2 = nn.Linear(5, H), nn.Linear(H, 1)
        def net(s, x, w, b): return F.linear(torch.sigmoid(s.nm2(F.relu(s.nm1(x)))) * F.relu(s.p1(x)), w, b)
        def forward(s, xs, ys, xq, yq):
            tot = 0
            with torch.enable_grad():
                for i in range(len(xs)):
                    fw = [s.p2.weight, s.p2.bias]
                    for _ in range(3):
                        g = torch.autograd.grad(F.mse_loss(s.net(xs[i], *fw), ys[i]), fw, create_graph=not planted, retain_graph=True)
                        fw = [p - .3 * q for p, q in zip(fw, g)]
                    tot = tot + F.mse_loss(s.net(xq[i], *fw), yq[i])
            return tot / len(xs)
    B = torch.randn(5, 4, generator=gen(13)) / 5 ** .5
    def data(seed):
        w = T(seed, 16, 4, 1); x = T(seed + 1, 16, 20, 5); y = torch.tanh(2 * x @ B) @ w / 1.5; return (x[:, :10], y[:, :10], x[:, 10:], y[:, 10:]), None
    return dict(model=ANML, data=data, loss="model", diag={"loss": "model"}, lr=5e-3)
