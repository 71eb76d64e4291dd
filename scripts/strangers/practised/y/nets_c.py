from base import *
from nets_a import Enc, imgcls
cb = lambda i, o, st=1, k=3: nn.Sequential(nn.Conv2d(i, o, k, st, k // 2, bias=False), nn.BatchNorm2d(o), nn.ReLU())

@case("https://github.com/d2l-ai/d2l-en/issues/1360", "FM forward ends in a sigmoid, loss is the with-logits one", "FM output sigmoid")
def d2l_fm(planted):
    class FM(nn.Module):
        def __init__(s, field=(20, 15, 10, 8, 30), k=8):
            super().__init__(); n = sum(field); s.register_buffer("off", torch.tensor([0, *torch.tensor(field).cumsum(0)[:-1].tolist()])); s.embedding = nn.Embedding(n, k); s.fc = nn.Embedding(n, 1); s.linear_layer = nn.Linear(1, 1)
            nn.init.normal_(s.embedding.weight, std=.1); nn.init.normal_(s.fc.weight, std=.1)
        def forward(s, x):
            x = x + s.off; e = s.embedding(x); sq = e.sum(1) ** 2; q = (e ** 2).sum(1); o = s.linear_layer(s.fc(x).sum(1)) + .5 * (sq - q).sum(1, keepdim=True); return o.sigmoid() if planted else o
    def data(seed):
        f = (20, 15, 10, 8, 30); x = torch.stack([R(seed + j, n, (64,)) for j, n in enumerate(f)], 1); z = sum(T(200 + j, n)[x[:, j]] for j, n in enumerate(f)); z = z + (T(210, 20, 4)[x[:, 0]] * T(211, 15, 4)[x[:, 1]]).sum(1) * .7; return x, (z > -1.5).float()[:, None]
    return dict(model=FM, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t), diag={})

@case("https://github.com/PannenetsF/TQT/issues/4", "straight-through estimator's backward returns ones instead of grad_output", "quantizer STE")
def tqt_ste(planted):
    class Round(torch.autograd.Function):
        generate_vmap_rule = True
        @staticmethod
        def forward(x): return x.round()
        @staticmethod
        def setup_context(ctx, inputs, output): pass
        @staticmethod
        def backward(ctx, g): return torch.ones_like(g) if planted else g
    class Q(nn.Module):
        def __init__(s, bits=4, t=1.): super().__init__(); s.b = bits; s.log2_t = nn.Parameter(torch.tensor(t))
        def forward(s, x):
            sc = 2 ** s.log2_t / 2 ** (s.b - 1); r = Round.apply(x / sc); return r.clamp(-2 ** (s.b - 1), 2 ** (s.b - 1) - 1) * sc
    class QL(nn.Module):
        def __init__(s, i, o): super().__init__(); s.l = nn.Linear(i, o); s.qw = Q(6, 0.); s.qa = Q(6, 2.)
        def forward(s, x): return s.qa(F.linear(x, s.qw(s.l.weight), s.l.bias))
    def model(): return nn.Sequential(QL(16, 48), nn.ReLU(), QL(48, 48), nn.ReLU(), nn.Linear(48, 5))
    def data(seed): x = T(seed, 64, 16); return x, (x @ T(221, 16, 5)).argmax(1)
    return dict(model=model, data=data, loss=ce, diag={})

@case("https://github.com/castorini/howl/pull/47", "CTC blank set to the out-of-vocabulary label that occurs in the targets", "ctc blank / output labels")
def howl_ctc(planted):
    class Net(nn.Module):
        def __init__(s, f=20, V=6): super().__init__(); s.cnn = nn.Sequential(nn.Conv1d(f, 32, 3, padding=1), nn.BatchNorm1d(32), nn.ReLU()); s.rnn = nn.GRU(32, 32, batch_first=True, bidirectional=True); s.fc = nn.Linear(64, V)
        def forward(s, x): return s.fc(s.rnn(s.cnn(x.transpose(1, 2)).transpose(1, 2))[0])
    def loss(o, t):
        lp = o.log_softmax(-1).transpose(0, 1); B = o.size(0); return F.ctc_loss(lp, t, torch.full((B,), o.size(1)), torch.full((B,), t.size(1)), blank=4 if planted else 5)
    def data(seed):
        B = 24; t = R(seed, 5, (B, 4)); P = T(231, 5, 20) * 1.5; x = T(seed + 1, B, 20, 20) * .5
        for j in range(4): x[:, 5 * j + 1:5 * j + 4] += P[t[:, j]][:, None]
        return x, t
    return dict(model=Net, data=data, loss=loss, diag={})

@case("https://github.com/neubig/nn4nlp-code/pull/13", "decoder starts from the encoder state, not from the sampled z: the VAE's z is unused by the reconstruction", "z / mu, logvar linears")
def nn4nlp_vae(planted):
    class Net(nn.Module):
        def __init__(s, V=16, d=40, z=40):
            super().__init__(); s.e = nn.Embedding(V + 1, d); s.enc = nn.GRU(d, d, batch_first=True); s.mu = nn.Linear(d, z); s.lv = nn.Linear(d, z); s.dec = nn.GRU(d, z, batch_first=True); s.o = nn.Linear(z, V)
        def forward(s, x, y, eps):
            h = s.enc(s.e(x))[1][0]; mu, lv = s.mu(h), s.lv(h); z = mu + (lv / 2).exp() * eps; o = s.dec(s.e(y), (h if planted else z)[None])[0]; kl = -.5 * (1 + lv - mu ** 2 - lv.exp()).sum(1)
            return s.o(o), kl
    def loss(o, t): return F.cross_entropy(o[0].flatten(0, 1), t.flatten()) + .002 * o[1].mean()
    def data(seed): x = R(seed, 16, (32, 4)); y = torch.cat([torch.full((32, 1), 16), x[:, :-1]], 1); return (x, y, T(seed + 1, 32, 40)), x
    return dict(model=Net, data=data, loss=loss, diag={})

class Basic(nn.Module):
    def __init__(s, i, o, st=1):
        super().__init__(); s.c1 = nn.Conv2d(i, o, 3, st, 1, bias=False); s.b1 = nn.BatchNorm2d(o); s.c2 = nn.Conv2d(o, o, 3, 1, 1, bias=False); s.b2 = nn.BatchNorm2d(o); s.d = nn.Sequential(nn.Conv2d(i, o, 1, st, bias=False), nn.BatchNorm2d(o)) if st > 1 or i != o else nn.Identity()
    def forward(s, x): return (s.d(x) + s.b2(s.c2(s.b1(s.c1(x)).relu()))).relu()
@case("https://github.com/pytorch/vision/issues/2164", "first backbone layers frozen although the backbone is randomly initialised", "backbone.conv1, layer1 (requires_grad False)")
def vision_frozen(planted):
    class Det(nn.Module):
        def __init__(s):
            super().__init__(); s.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False); s.bn1 = nn.BatchNorm2d(16); s.layer1 = Basic(16, 16); s.layer2 = Basic(16, 32, 2); s.layer3 = Basic(32, 48, 2); s.cls = nn.Conv2d(48, 7, 1); s.box = nn.Conv2d(48, 2, 1)
            if planted:
                for n, p in s.named_parameters():
                    if n.split(".")[0] in ("conv1", "bn1", "layer1"): p.requires_grad_(False)
        def forward(s, x): h = s.layer3(s.layer2(s.layer1(s.bn1(s.conv1(x)).relu()))); return torch.cat([s.cls(h), s.box(h)], 1)
    def loss(o, t): return F.cross_entropy(o[:, :7], t[:, 0].long()) + (F.l1_loss(o[:, 7:], t[:, 1:], reduction="none") * (t[:, :1] > 0)).sum() / (t[:, 0] > 0).sum().clamp(min=1)
    def data(seed):
        B = 16; P = T(77, 6, 3, 6, 6) * 1.2; c = R(seed, 6, (B,)); x = T(seed + 1, B, 3, 16, 16) * .7; o = R(seed + 2, 10, (B, 2)); t = torch.zeros(B, 3, 4, 4)
        for i in range(B):
            a, b = o[i].tolist(); x[i, :, a:a + 6, b:b + 6] += P[c[i]]; u, v = (a + 3) // 4, (b + 3) // 4; t[i, 0, u, v] = c[i] + 1.; t[i, 1, u, v] = (a + 3) / 4 - u - .5; t[i, 2, u, v] = (b + 3) / 4 - v - .5
        return x, t
    return dict(model=Det, data=data, loss=loss, diag={})

@case("https://github.com/Blaizzy/mlx-vlm/issues/841", "LoRA update scaled by alpha instead of alpha/rank", "LoRaLayer scale")
def mlx_lora(planted):
    class Lora(nn.Module):
        def __init__(s, lin, r=8, alpha=16.):
            super().__init__(); s.lin = lin.requires_grad_(False); s.A = nn.Parameter((torch.rand(lin.in_features, r) * 2 - 1) / math.sqrt(lin.in_features)); s.B = nn.Parameter(torch.zeros(r, lin.out_features)); s.sc = alpha if planted else alpha / r
        def forward(s, x): return s.lin(x) + s.sc * (x @ s.A @ s.B)
    class Net(nn.Module):
        def __init__(s, V=24, d=48, L=12):
            super().__init__(); s.t = nn.Embedding(V, d); s.p = nn.Embedding(L, d); s.b = nn.ModuleList(Enc(d) for _ in range(3)); s.n = nn.LayerNorm(d); s.h = nn.Linear(d, V)
            for p in s.parameters(): p.requires_grad_(False)
            for b in s.b: b.att.q = Lora(b.att.q); b.att.v = Lora(b.att.v); b.att.k = Lora(b.att.k); b.att.o = Lora(b.att.o); b.ff[0] = Lora(b.ff[0]); b.ff[2] = Lora(b.ff[2])
        def forward(s, x):
            h = s.t(x) + s.p(torch.arange(x.size(1))); m = torch.ones(12, 12).triu(1).bool()
            for b in s.b: h = b(h, m)
            return s.h(s.n(h))
    def data(seed): x = R(seed, 24, (24, 12)); P = R(241, 24, (24,)); return x, P[x]
    return dict(model=Net, data=data, loss=ceseq, diag=SEQ)

@case("https://github.com/mlcommons/GaNDLF/issues/142", "resunet's residual flag not passed on: blocks without residual connections", "EncodingModule residual")
def gandlf_resunet(planted):
    class Mod(nn.Module):
        def __init__(s, c, res=False): super().__init__(); s.n0 = nn.InstanceNorm2d(c, affine=True); s.c0 = nn.Conv2d(c, c, 3, 1, 1, bias=False); s.n1 = nn.InstanceNorm2d(c, affine=True); s.c1 = nn.Conv2d(c, c, 3, 1, 1, bias=False); s.res = res
        def forward(s, x): h = s.c0(F.leaky_relu(s.n0(x))); h = s.c1(F.leaky_relu(s.n1(h))); return x + h if s.res else h
    class Net(nn.Module):
        def __init__(s, res=True, b=12):
            super().__init__(); kw = {} if planted else dict(res=res); s.i = nn.Conv2d(1, b, 3, 1, 1); s.e0 = Mod(b, **kw); s.d0 = nn.Conv2d(b, 2 * b, 3, 2, 1); s.e1 = Mod(2 * b, **kw); s.d1 = nn.Conv2d(2 * b, 4 * b, 3, 2, 1); s.e2 = Mod(4 * b, **kw)
            s.u1 = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(4 * b, 2 * b, 1)); s.f1 = nn.Conv2d(4 * b, 2 * b, 1); s.g1 = Mod(2 * b, **kw); s.u0 = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(2 * b, b, 1)); s.f0 = nn.Conv2d(2 * b, b, 1); s.g0 = Mod(b, **kw); s.o = nn.Conv2d(b, 3, 1)
        def forward(s, x):
            a = s.e0(s.i(x)); c = s.e1(s.d0(a)); e = s.e2(s.d1(c)); h = s.g1(s.f1(torch.cat([s.u1(e), c], 1))); return s.o(s.g0(s.f0(torch.cat([s.u0(h), a], 1))))
    def data(seed):
        z = T(seed, 8, 3, 4, 4); t = F.interpolate(z, 16, mode="bilinear").argmax(1); return (t.float()[:, None] - 1) + T(seed + 1, 8, 1, 16, 16) * .6, t
    return dict(model=Net, data=data, loss=ce, diag={})

@case("https://github.com/vislearn/FrEIA/issues/1", "coupling subnet: fc2(x) instead of fc2(out)", "fc1 (unused) / fc2 input")
def freia_fc2(planted):
    class Sub(nn.Module):
        def __init__(s, i, o, h): super().__init__(); s.fc1 = nn.Linear(i, h); s.fc2 = nn.Linear(h, h); s.fc2b = nn.Linear(h, h); s.fc3 = nn.Linear(h, o); nn.init.normal_(s.fc3.weight, std=.05); nn.init.zeros_(s.fc3.bias)
        def forward(s, x):
            o = F.leaky_relu(s.fc1(x)); o = s.fc2(x) if planted else s.fc2(o); o = F.leaky_relu(o); o = F.leaky_relu(s.fc2b(o)); return s.fc3(o)
    class Net(nn.Module):
        def __init__(s, D=16, n=4): super().__init__(); s.s = nn.ModuleList(Sub(D // 2, D, D // 2) for _ in range(n)); s.D = D
        def forward(s, x):
            ld = 0
            for m in s.s:
                a, b = x.chunk(2, 1); sh, sc = m(a).chunk(2, 1); sc = .6366 * torch.atan(sc) * 1.9; b = b * sc.exp() + sh; x = torch.cat([b, a], 1); ld = ld + sc.sum(1)
            return x, ld
    def loss(o, t): return ((.5 * o[0] ** 2).sum(1) - o[1]).mean() / 16
    def data(seed): z = T(seed, 128, 16); a, b = z.chunk(2, 1); W = T(251, 8, 8) * .5; return torch.cat([a, b * (.3 * (a @ W).tanh()).exp() * .3 + (a @ W).sin()], 1), torch.zeros(128)
    return dict(model=Net, data=data, loss=loss, diag={})

@case("https://github.com/DIAGNijmegen/neural-odes-segmentation/issues/7", "output of the first instance norm not used in the ODE function", "norm1")
def ode_norm_unused(planted):
    class Func(nn.Module):
        def __init__(s, c): super().__init__(); s.norm1 = nn.InstanceNorm2d(c, affine=True); s.conv1 = nn.Conv2d(c + 1, c, 1); s.conv2 = nn.Conv2d(c + 1, c, 3, 1, 1); s.norm2 = nn.InstanceNorm2d(c, affine=True); s.conv3 = nn.Conv2d(c + 1, c, 1)
        def forward(s, t, x):
            k = torch.ones_like(x[:, :1]) * t; h = s.norm1(x); h = s.conv1(torch.cat([x if planted else h, k], 1)).relu(); h = s.conv2(torch.cat([h, k], 1)); h = s.norm2(h).relu(); return s.conv3(torch.cat([h, k], 1))
    class Net(nn.Module):
        def __init__(s, c=20): super().__init__(); s.i = nn.Conv2d(1, c, 3, 1, 1); s.f = Func(c); s.d = nn.Conv2d(c, c, 3, 2, 1); s.g = Func(c); s.o = nn.Conv2d(2 * c, 3, 1)
        def ode(s, f, x, n=4):
            for j in range(n): x = x + f(j / n, x) / n
            return x
        def forward(s, x): a = s.ode(s.f, s.i(x).relu()); b = s.ode(s.g, s.d(a).relu()); return s.o(torch.cat([a, F.interpolate(b, scale_factor=2)], 1))
    def data(seed): z = T(seed, 8, 3, 4, 4); t = F.interpolate(z, 16, mode="bilinear").argmax(1); return (t.float()[:, None] - 1) + T(seed + 1, 8, 1, 16, 16) * .6, t
    return dict(model=Net, data=data, loss=ce, diag={})

@case("https://github.com/djl11/PWCNetTensorFlow/issues/2", "flow head reads conv4 instead of the feature layer ft: ft unused", "flow estimator ft / wt")
def pwc_flow(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); lr = nn.LeakyReLU(.1); s.feat = nn.Sequential(nn.Conv2d(1, 16, 3, 1, 1), lr, nn.Conv2d(16, 16, 3, 1, 1), lr); cc = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, 1, 1), lr)
            s.c1 = cc(25 + 16, 48); s.c2 = cc(48, 48); s.c3 = cc(48, 40); s.c4 = cc(40, 32); s.ft = cc(32, 24); s.wt = nn.Conv2d(32 if planted else 24, 2, 3, 1, 1)
        def forward(s, a, b):
            fa, fb = (2.5 * F.normalize(s.feat(q) - .1, dim=1) for q in (a, b)); p = F.pad(fb, (2, 2, 2, 2)); H = a.size(2); cv = torch.stack([(fa * p[:, :, i:i + H, j:j + H]).sum(1) for i in range(5) for j in range(5)], 1); h = s.c4(s.c3(s.c2(s.c1(torch.cat([F.leaky_relu(cv, .1), fa], 1))))); f = s.ft(h); return s.wt(h if planted else f)
    def data(seed):
        B = 12; im = T(seed, B, 1, 20, 20); d = R(seed + 1, 5, (B, 2)); a = im[:, :, 2:18, 2:18]; b = torch.stack([im[i, :, d[i, 0]:d[i, 0] + 16, d[i, 1]:d[i, 1] + 16] for i in range(B)]); return (a, b), (d - 2).float()[:, :, None, None].expand(-1, -1, 16, 16)
    return dict(model=Net, data=data, loss=mse, diag={})

@case("https://github.com/gcorso/DiffDock/issues/34", "final convolution takes node features at edge_index[0] (graph index) instead of [1] (the atom)", "center_edge_attr indexing")
def diffdock_center(planted):
    class Net(nn.Module):
        def __init__(s, f=8, d=32):
            super().__init__(); s.e = nn.Linear(f, d); s.m = nn.Sequential(nn.Linear(2 * d + 1, d), nn.ReLU(), nn.Linear(d, d)); s.fc = nn.Sequential(nn.Linear(1 + d, d), nn.ReLU(), nn.Linear(d, d)); s.o = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 1))
        def forward(s, x, pos):
            B, N, _ = x.shape; h = s.e(x); D = (pos[:, :, None] - pos[:, None]).square().sum(-1, keepdim=True); h = h + s.m(torch.cat([h[:, :, None].expand(-1, -1, N, -1), h[:, None].expand(-1, N, -1, -1), (-D).exp()], -1)).mean(2)
            flat = h.flatten(0, 1); c = pos.mean(1, keepdim=True); dist = (pos - c).square().sum(-1).flatten(); ei = torch.stack([torch.arange(B).repeat_interleave(N), torch.arange(B * N)])
            ea = torch.cat([(-dist)[:, None].exp(), flat[ei[0] if planted else ei[1]]], 1); w = s.fc(ea); g = (w * dist[:, None]).view(B, N, -1).mean(1); return s.o(g)
    def data(seed): x = T(seed, 32, 9, 8); p = T(seed + 1, 32, 9, 3); c = (p - p.mean(1, keepdim=True)).square().sum(-1); return (x, p), ((x @ T(261, 8, 1))[..., 0].tanh() * c).mean(1, keepdim=True)
    return dict(model=Net, data=data, loss=mse, diag={})

@case("https://github.com/harveyslash/Facial-Similarity-with-Siamese-Networks-in-Pytorch/issues/27", "pairwise_distance without keepdim: (B,) against labels (B,1)", "loss / distance shape")
def siamese_keepdim(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); r = lambda i, o: [nn.ReflectionPad2d(1), nn.Conv2d(i, o, 3), nn.ReLU(), nn.BatchNorm2d(o)]; s.cnn1 = nn.Sequential(*r(1, 4), *r(4, 8), *r(8, 8)); s.fc1 = nn.Sequential(nn.Linear(8 * 256, 100), nn.ReLU(), nn.Linear(100, 50), nn.ReLU(), nn.Linear(50, 5))
        def one(s, x): return s.fc1(s.cnn1(x).flatten(1))
        def forward(s, a, b): return s.one(a), s.one(b)
    def loss(o, y):
        d = F.pairwise_distance(o[0], o[1], keepdim=not planted); return ((1 - y) * d ** 2 + y * (2 - d).clamp(min=0) ** 2).mean()
    def data(seed):
        P = T(281, 6, 1, 16, 16); t = R(seed, 6, (32,)); y = R(seed + 1, 2, (32,)); u = torch.where(y == 0, t, (t + 1 + R(seed + 2, 5, (32,))) % 6); return (P[t] + T(seed + 3, 32, 1, 16, 16) * .5, P[u] + T(seed + 4, 32, 1, 16, 16) * .5), y.float()[:, None]
    return dict(model=Net, data=data, loss=loss, diag={})

@case("https://github.com/prs-eth/OverlapPredator/pull/14", "all_feats = feats.unsqueeze(-1).repeat(1,1,1,N): each point gathers itself, edge features vanish", "get_graph_feature")
def overlap_graphfeat(planted):
    def ggf(coords, f, k=6):
        B, C, N = f.shape; d = torch.cdist(coords.transpose(1, 2), coords.transpose(1, 2)); idx = d.topk(k + 1, dim=-1, largest=False)[1][:, :, 1:]; idx = idx[:, None].expand(-1, C, -1, -1)
        allf = f.unsqueeze(-1).repeat(1, 1, 1, N) if planted else f.unsqueeze(2).repeat(1, 1, N, 1); nb = torch.gather(allf, -1, idx); f = f.unsqueeze(-1).expand(-1, -1, -1, k); return torch.cat([f, nb - f], 1)
    class Net(nn.Module):
        def __init__(s, c=24):
            super().__init__(); q = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 1, bias=False), nn.InstanceNorm2d(o), nn.LeakyReLU(.2)); s.i = nn.Conv1d(4, c, 1); s.c1 = q(2 * c, c); s.c2 = q(2 * c, 2 * c); s.c3 = nn.Sequential(nn.Conv1d(4 * c, c, 1), nn.LeakyReLU(.2)); s.o = nn.Conv1d(c, 1, 1)
        def forward(s, p, f):
            x0 = s.i(torch.cat([p, f], 1)); x1 = s.c1(ggf(p, x0)).max(-1)[0]; x2 = s.c2(ggf(p, x1)).max(-1)[0]; return s.o(s.c3(torch.cat([x0, x1, x2], 1)))
    def data(seed):
        p = torch.rand(16, 3, 32, generator=gen(seed)); f = T(seed + 1, 16, 1, 32); d = torch.cdist(p.transpose(1, 2), p.transpose(1, 2)); i = d.topk(7, dim=-1, largest=False)[1][:, :, 1:]; nb = torch.gather(f.expand(-1, 32, -1), -1, i); return (p, f), (nb.max(-1)[0] - f[:, 0]).unsqueeze(1)
    return dict(model=Net, data=data, loss=mse, diag={})

@case("https://github.com/adambielski/siamese-triplet/issues/18", "distance sqrt(d) without an epsilon: identical pairs give infinite derivative", "loss: sqrt of the distance")
def siamese_sqrt(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.convnet = nn.Sequential(nn.Conv2d(1, 16, 5), nn.PReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.PReLU(), nn.MaxPool2d(2)); s.fc = nn.Sequential(nn.Linear(128, 64), nn.PReLU(), nn.Linear(64, 64), nn.PReLU(), nn.Linear(64, 2))
        def forward(s, a, b): return s.fc(s.convnet(a).flatten(1)), s.fc(s.convnet(b).flatten(1))
    def loss(o, y):
        d = (o[0] - o[1]).square().sum(1); return .5 * (y * d + (1 - y) * F.relu(1 - (d + (0 if planted else 1e-9)).sqrt()).square()).mean()
    def data(seed):
        P = T(291, 6, 1, 16, 16); t = R(seed, 6, (32,)); y = R(seed + 1, 2, (32,)); u = torch.where(y == 1, t, (t + 1 + R(seed + 2, 5, (32,))) % 6); a = P[t] + T(seed + 3, 32, 1, 16, 16) * .5; b = P[u] + T(seed + 4, 32, 1, 16, 16) * .5; b[0] = a[0]; y[0] = 1; return (a, b), y.float()
    return dict(model=Net, data=data, loss=loss, diag={})
