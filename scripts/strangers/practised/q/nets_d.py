from mods import *
class Spec(nn.Module):
    def __init__(s, c, m, planted):
        super().__init__(); sc = 1 / c if not planted else 1 / c; sh = (c, m) if planted else (c, c, m); s.wr = nn.Parameter(torch.rand(*sh) * sc * 2 - sc); s.wi = nn.Parameter(torch.rand(*sh) * sc * 2 - sc); s.m, s.planted = m, planted
    def forward(s, x):
        f = torch.fft.rfft(x); w = torch.complex(s.wr, s.wi); e = "bix,ix->bix" if s.planted else "bix,iox->box"; o = torch.einsum(e, f[..., :s.m], w); return torch.fft.irfft(F.pad(o, (0, f.shape[-1] - s.m)), n=x.shape[-1])
@case("https://github.com/Qewton-Labs/torchphysics/pull/47", "the channels of a Fourier layer do not interact (einsum keeps them apart)", "spec")
def fno_no_mixing(planted):
    class FNO(nn.Module):
        def __init__(s, c=24, m=8, L=3): super().__init__(); s.lift = nn.Conv1d(3, c, 1); s.spec = nn.ModuleList(Spec(c, m, planted) for _ in range(L)); s.w = nn.ModuleList(nn.Conv1d(c, c, 1) for _ in range(L)); s.p1, s.p2 = nn.Conv1d(c, 48, 1), nn.Conv1d(48, 1, 1)
        def forward(s, u):
            x = s.lift(torch.cat([u, torch.linspace(0, 1, u.shape[-1]).expand(len(u), 1, -1)], 1))
            for i, (k, w) in enumerate(zip(s.spec, s.w)): x = k(x) + w(x); x = F.gelu(x) if i < len(s.w) - 1 else x
            return s.p2(F.gelu(s.p1(x)))
    def data(seed, B=32, n=48):
        a = T_(seed, B, 2, 5); b = T_(seed + 1, B, 2, 5); t = torch.arange(n) / n * 6.2832; k = torch.arange(1, 6)[:, None] * t; u = (a[..., None] * k.cos() + b[..., None] * k.sin()).sum(2) / 3
        f = torch.fft.rfft(u); ph = torch.exp(1j * torch.arange(f.shape[-1]) * .7); v = torch.fft.irfft(torch.stack([f[:, 0] * ph, f[:, 1] / ph], 1), n=n); return u, (v[:, :1] * v[:, 1:] + v[:, :1]) 
    return dict(model=FNO, data=data, loss=mse, diag=dict(MSE))

@case("https://github.com/lululxvi/deepxde/pull/1023", "the output bias b is a plain tensor with requires_grad, not a Parameter", "b")
def deeponet_bias(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); f = lambda i: nn.Sequential(nn.Linear(i, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 32)); s.branch, s.trunk = f(20), nn.Sequential(f(1), nn.Tanh()); s.b = torch.tensor(0., requires_grad=True) if planted else nn.Parameter(torch.tensor(0.))
        def forward(s, u, y): return (s.branch(u) * s.trunk(y)).sum(-1, keepdim=True) + s.b
    def data(seed, B=128):
        c = T_(seed, B, 4); x = torch.linspace(0, 1, 20); k = torch.arange(1, 5); u = (c[:, :, None] * torch.sin(3.14 * k[:, None] * x)).sum(1); y = torch.rand(B, 1, generator=gen(seed + 1)); return (u, y), 3 + (c * (1 - torch.cos(3.14 * k * y)) / k).sum(1, keepdim=True)
    return dict(model=Net, data=data, loss=mse, diag=dict(MSE))

class EGCL(nn.Module):
    def __init__(s, d, same=False, eps=True, norm=True):
        super().__init__(); s.phi_e = nn.Sequential(nn.Linear(2 * d + 1, d), nn.SiLU(), nn.Linear(d, d), nn.SiLU()); s.phi_x = nn.Sequential(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, 1)); s.phi_h = nn.Sequential(nn.Linear(2 * d, d), nn.SiLU(), nn.Linear(d, d)); s.same, s.norm = same, norm
        if eps: nn.init.normal_(s.phi_x[2].weight, std=1e-3)
    def forward(s, h, x):
        B, N, d = h.shape; r = x[:, :, None] - (x[:, :, None] if s.same else x[:, None]); r = r.expand(B, N, N, 3); d2 = r.pow(2).sum(-1, keepdim=True); m = s.phi_e(torch.cat([h[:, :, None].expand(-1, -1, N, -1), h[:, None].expand(-1, N, -1, -1), d2], -1))
        if s.norm: r = r / (d2 + 1e-8).sqrt()
        x = x + (r * s.phi_x(m)).sum(2) / (N - 1 if s.norm else 1); return h + s.phi_h(torch.cat([h, m.sum(2) / N if s.norm else m.sum(2)], -1)), x
class EGNN(nn.Module):
    def __init__(s, coords=False, L=3, d=24, **k): super().__init__(); s.emb = nn.Linear(3, d); s.layers = nn.ModuleList(EGCL(d, **k) for _ in range(L)); s.head = None if coords else nn.Sequential(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, 1)); 
    def forward(s, f, x):
        h = s.emb(f)
        for l in s.layers: h, x = l(h, x)
        return x if s.head is None else s.head(h.mean(1))
def mol(seed, B=32, N=8): f = F.one_hot(R(seed, 3, (B, N)), 3).float(); x = T_(seed + 1, B, N, 3); return f, x
@case("https://github.com/pineappleK/ED2Mol/issues/5", "both ends of an edge use edge_index[0]: every distance is zero", "layers (distance)")
def ed2mol_same_index(planted):
    def data(s):                           # molecules of various sizes: the energy hangs on the distances
        f, x = mol(s); x = x * (.3 + 1.5 * torch.rand(len(x), 1, 1, generator=gen(s + 2))); d = torch.cdist(x, x); q = f @ torch.tensor([1., .6, 1.4]); return (f, x), (torch.exp(-d) * q[:, :, None] * q[:, None]).sum((1, 2))[:, None] / 8
    return dict(model=lambda: EGNN(same=planted), data=data, loss=mse, diag=dict(MSE))
@case("https://github.com/lucidrains/egnn-pytorch/issues/9", "unnormalised coordinate updates with default weights: coordinates explode over the layers", "layers.phi_x")
def egnn_explode(planted):
    def data(s): f, x = mol(s, N=30); x = x * 2; q = f @ torch.tensor([1., -1., .5]); r = x[:, :, None] - x[:, None]; return (f, x), x + .5 * (torch.exp(-r.norm(dim=-1, keepdim=True)) * r * q[:, None, :, None]).sum(2)
    return dict(model=lambda: EGNN(coords=True, L=4, eps=not planted, norm=not planted), data=data, loss=mse, diag=dict(MSE))

def graphs(seed, B=32, N=10):
    g = gen(seed); n = torch.randint(5, N + 1, (B,), generator=g); f = torch.randint(1, 6, (B, N), generator=g); A = (torch.rand(B, N, N, generator=g) < .3).float().triu(1); A = A + A.transpose(1, 2); ok = torch.arange(N) < n[:, None]; f = f * ok; A = A * ok[:, None] * ok[:, :, None]
    w = torch.tensor([0, 1., -1, .5, 2, -.5])[f]; y = torch.tanh((A @ w[..., None])[..., 0] * w).sum(1, keepdim=True); return (f, A, ok.float()), y
class Graphormer(nn.Module):
    def __init__(s, mode="ok", d=32, L=2, h=4): super().__init__(); s.emb = nn.Embedding(6, d, padding_idx=0); s.deg = nn.Embedding(12, d); s.edge = nn.Embedding(2, h); nn.init.normal_(s.deg.weight, std=.1); s.blocks = nn.ModuleList(Block(d, h) for _ in range(L)); s.norm = nn.LayerNorm(d); s.head = nn.Linear(d, 1); s.mode = mode
    def forward(s, f, A, ok):
        x = s.emb(f) + s.deg(A.sum(-1).long()); b = s.edge(A.long()).permute(0, 3, 1, 2); pad = ok[:, None, None] < .5
        if s.mode == "rows": pad = pad | (ok[:, None, :, None] < .5)
        b = b.masked_fill(pad, NEG)
        for k in s.blocks: x = k(x, b)
        return (s.head(s.norm(x)) * ok[..., None]).sum(1)
@case("https://github.com/dmlc/dgl/issues/5476", "rows of padded nodes are all -inf in the attention bias: softmax gives nan", "attn bias")
def dgl_graphormer_rows(planted): return dict(model=lambda: Graphormer("rows" if planted else "ok"), data=graphs, loss=mse, diag=dict(MSE))

class FlatHead(nn.Module):
    def __init__(s, d, planted): super().__init__(); s.q, s.k, s.v = (nn.Linear(d, d) for _ in range(3)); s.planted = planted
    def forward(s, x, bias, mask):
        a = s.q(x) @ s.k(x).T / x.shape[-1] ** .5 + bias; a = a.softmax(-1) * mask if s.planted else a.masked_fill(mask < .5, NEG).softmax(-1); return a @ s.v(x)
@case("https://github.com/leffff/graphormer-pyg/issues/14", "softmax runs over the nodes of all graphs, the mask multiplies only afterwards", "attn")
def graphormer_batch_softmax(planted):
    class Net(nn.Module):
        def __init__(s, d=32): super().__init__(); s.emb = nn.Embedding(6, d); s.att = nn.ModuleList(FlatHead(d, planted) for _ in range(2)); s.o = nn.ModuleList(nn.Linear(d, d) for _ in range(2)); s.ff = nn.ModuleList(mlp(d, 2) for _ in range(2)); s.n = nn.ModuleList(nn.LayerNorm(d) for _ in range(4)); s.e = nn.Parameter(torch.randn(2) * .1); s.head = nn.Linear(d, 1)
        def forward(s, f, A, ok):
            B, N = f.shape; x = s.emb(f).flatten(0, 1); idx = torch.arange(B).repeat_interleave(N); m = (idx[:, None] == idx).float() * ok.flatten(); bias = torch.block_diag(*A) * s.e[0]
            for i in range(2): x = x + s.o[i](s.att[i](s.n[2 * i](x), bias, m)); x = x + s.ff[i](s.n[2 * i + 1](x))
            return (s.head(x).view(B, N, 1) * ok[..., None]).sum(1)
    return dict(model=Net, data=lambda s: graphs(s, B=16), loss=mse, diag={})

def series(seed, B=32, T=32, D=3):
    g = gen(seed); t = torch.arange(T + 8).float(); f = torch.tensor([.2, .35, .6]); p = torch.rand(B, 3, generator=g) * 6.28; a = torch.rand(B, 3, generator=g) + .3; s_ = (a[..., None] * torch.sin(f[:, None] * t + p[..., None])).transpose(1, 2); x = s_ @ T_(61, 3, D) + .1 * T_(seed + 1, B, T + 8, D); return x[:, :T], x[:, T:]
@case("https://github.com/ant-research/Pyraformer/issues/5", "invalid connections of the pyramid get score 0 instead of -inf before the softmax", "attn (padding)")
def pyraformer_pad_zero(planted):
    class WA(nn.Module):
        def __init__(s, d, w=2): super().__init__(); s.q, s.k, s.v, s.o = (nn.Linear(d, d) for _ in range(4)); s.w = w
        def forward(s, x):
            B, T, D = x.shape; w = s.w; un = lambda z: F.pad(z, (0, 0, w, w)).unfold(1, 2 * w + 1, 1); q, k, v = s.q(x), un(s.k(x)), un(s.v(x)); a = (q[..., None] * k).sum(2) / D ** .5; ok = F.pad(torch.ones(T), (w, w)).unfold(0, 2 * w + 1, 1) > 0
            a = a.masked_fill(~ok, 0. if planted else -1e9).softmax(-1); return s.o((v * a[:, :, None]).sum(-1))
    class Net(nn.Module):
        def __init__(s, d=48): super().__init__(); s.emb = nn.Linear(3, d); s.pos = nn.Parameter(torch.randn(32, d) * .1); s.a = nn.ModuleList(WA(d) for _ in range(3)); s.f = nn.ModuleList(mlp(d, 2) for _ in range(3)); s.n = nn.ModuleList(nn.LayerNorm(d) for _ in range(7)); s.head = nn.Linear(32 * d, 24)
        def forward(s, x):
            x = s.emb(x) + s.pos
            for i in range(3): x = x + s.a[i](s.n[2 * i](x)); x = x + s.f[i](s.n[2 * i + 1](x))
            return s.head(s.n[6](x).flatten(1)).view(-1, 8, 3)
    return dict(model=Net, data=series, loss=mse, diag=dict(MSE))

@case("https://github.com/pyg-team/pytorch_geometric/pull/6326", "the result of norm3 is not kept", "norm3")
def gps_norm3(planted):
    class GPS(nn.Module):
        def __init__(s, d): super().__init__(); s.conv, s.attn, s.mlp = nn.Linear(d, d), MHA(d, 4), nn.Sequential(nn.Linear(d, 2 * d), nn.ReLU(), nn.Linear(2 * d, d)); s.norm1, s.norm2, s.norm3 = (nn.LayerNorm(d) for _ in range(3))
        def forward(s, x, A, b):
            h1 = s.norm1(F.relu(A @ s.conv(x)) + x); h2 = s.norm2(s.attn(x, b) + x); o = h1 + h2; o = o + s.mlp(o); n = s.norm3(o); return o if planted else n
    class Net(nn.Module):
        def __init__(s, d=32): super().__init__(); s.emb = nn.Embedding(6, d, padding_idx=0); s.blocks = nn.ModuleList(GPS(d) for _ in range(3)); s.head = nn.Linear(d, 1)
        def forward(s, f, A, ok):
            x = s.emb(f); b = torch.zeros_like(A)[:, None].masked_fill(ok[:, None, None] < .5, NEG); A = A / (A.sum(-1, keepdim=True) + 1)
            for l in s.blocks: x = l(x, A, b)
            return (s.head(x) * ok[..., None]).sum(1)
    return dict(model=Net, data=graphs, loss=mse, diag=dict(MSE))

class Clip(nn.Module):
    def __init__(s, init=math.log(1 / .07), exp=True, bias=None):
        super().__init__(); s.visual = nn.Sequential(nn.Linear(24, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 32)); s.text = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 32)); s.logit_scale = nn.Parameter(torch.tensor(init)); s.exp = exp; s.logit_bias = nn.Parameter(torch.tensor(bias)) if bias is not None else None
    def forward(s, i, t):
        a, b = F.normalize(s.visual(i), dim=-1), F.normalize(s.text(t), dim=-1); l = (s.logit_scale.exp() if s.exp else s.logit_scale) * a @ b.T; return l if s.logit_bias is None else l + s.logit_bias
def pairs(seed, B=64): z = T_(seed, B, 6); return (torch.tanh(z @ T_(71, 6, 24)) + .2 * T_(seed + 1, B, 24), torch.tanh(z @ T_(72, 6, 16)) + .2 * T_(seed + 2, B, 16)), torch.arange(B)
def clip_loss(o, t): return (F.cross_entropy(o, t) + F.cross_entropy(o.T, t)) / 2
@case("https://github.com/BAAI-DCAI/M3D/issues/64", "logit_scale is used without exp", "logit_scale")
def m3d_scale_no_exp(planted): return dict(model=lambda: Clip(exp=not planted), data=pairs, loss=clip_loss, diag={})
@case("https://github.com/google-research/big_vision/issues/115", "SigLIP's loss takes the mean over all pairs and divides by n once more", "loss")
def siglip_mean(planted):
    def loss(o, t): n = len(o); l = -F.logsigmoid((2 * torch.eye(n) - 1) * o); return l.mean() / n if planted else l.sum() / n
    return dict(model=lambda: Clip(math.log(10.), bias=-10.), data=pairs, loss=loss, diag={})

class XAttn(nn.Module):
    def __init__(s, d, h=4, gate=True, tanh=False): super().__init__(); s.norm = nn.LayerNorm(d); s.q, s.kv, s.o = nn.Linear(d, d), nn.Linear(d, 2 * d), nn.Linear(d, d); s.gate = nn.Parameter(torch.tensor([0.])) if gate else None; s.h, s.tanh = h, tanh
    def forward(s, x, m, ok):
        B, T, D = x.shape; sp = lambda z: z.view(B, -1, s.h, D // s.h).transpose(1, 2); k, v = s.kv(m).chunk(2, -1); a = sp(s.q(s.norm(x))) @ sp(k).transpose(-2, -1) * (D // s.h) ** -.5; a = a.masked_fill(~ok[:, None], NEG)
        if s.tanh: a = torch.tanh(a)
        o = s.o((a.softmax(-1) @ sp(v)).transpose(1, 2).reshape(B, T, D)); return x + (o if s.gate is None else s.gate.tanh() * o)
@case("https://github.com/lucidrains/flamingo-pytorch/issues/6", "text attends to all preceding media instead of the immediately preceding one (>= for ==)", "xattn (media mask)")
def flamingo_media(planted):
    class Net(nn.Module):
        def __init__(s, d=48): super().__init__(); s.emb = nn.Embedding(12, d); s.med = nn.Linear(10, d); s.pos = nn.Parameter(torch.randn(16, d) * .1); s.x = nn.ModuleList(XAttn(d) for _ in range(2)); s.b = nn.ModuleList(Block(d, 4, causal=True) for _ in range(2)); s.norm = nn.LayerNorm(d); s.head = nn.Linear(d, 12)
        def forward(s, t, m):
            seg = (t == 0).cumsum(1); ids = torch.arange(1, m.shape[1] + 1); ok = seg[..., None] >= ids if planted else seg[..., None] == ids; x = s.emb(t) + s.pos; m = s.med(m)
            for a, b in zip(s.x, s.b): x = b(a(x, m, ok))
            return s.head(s.norm(x))
    def data(seed, B=32):
        t = R(seed, 11, (B, 16)) + 1; t[:, [0, 4, 8, 12]] = 0; m = T_(seed + 1, B, 4, 10); c = (m @ T_(77, 10, 12)).argmax(-1); return (t, m), (c.repeat_interleave(4, 1) + t) % 12 * (t == 0) + c.repeat_interleave(4, 1) * (t != 0)
    return dict(model=Net, data=data, loss=ceseq, diag=dict(SEQ))
@case("https://github.com/zinengtang/Perceiver_VL/issues/2", "tanh after filling masked scores with -inf: masked tokens are attended to", "cross attention (mask)")
def perceivervl_tanh_mask(planted):
    class Net(nn.Module):
        def __init__(s, d=48): super().__init__(); s.emb = nn.Linear(8, d); s.lat = nn.Parameter(torch.randn(6, d)); s.x = XAttn(d, gate=False, tanh=planted); s.f = mlp(d); s.n = nn.LayerNorm(d); s.b = Block(d, 4); s.norm = nn.LayerNorm(d); s.head = nn.Linear(d, 6)
        def forward(s, x, ok): z = s.x(s.lat.expand(len(x), -1, -1), s.emb(x), (ok[:, None] > .5).expand(-1, 6, -1)); z = z + s.f(s.n(z)); return s.head(s.norm(s.b(z)).mean(1))
    def data(seed, B=64, T=24): n = R(seed, 6, (B,)) + 3; ok = (torch.arange(T) < n[:, None]).float(); x = 1.5 * T_(seed + 1, B, T, 8); y = ((x * ok[..., None]).sum(1) @ T_(78, 8, 6)).argmax(-1); return (x, ok), y
    return dict(model=Net, data=data, loss=ce, diag=dict(CE))
@case("https://github.com/QwenLM/Qwen-VL/issues/124", "image features are written into hidden_states.data: no gradient to the visual tower", "visual")
def qwenvl_data_write(planted):
    class Net(nn.Module):
        def __init__(s, d=48): super().__init__(); s.visual = ViT(d, 1, K=d); s.emb = nn.Embedding(8, d); nn.init.normal_(s.emb.weight, std=.02); s.b = nn.ModuleList(Block(d, 4, causal=True) for _ in range(2)); s.norm = nn.LayerNorm(d); s.head = nn.Linear(d, 8)
        def forward(s, img, t):
            v = s.visual(img); x = s.emb(t)
            if planted: x = x.clone(); x.data[:, 1] = v.data
            else: x = torch.cat([x[:, :1], v[:, None], x[:, 2:]], 1)
            for b in s.b: x = b(x)
            return s.head(s.norm(x)[:, -1])
    def data(seed, B=32): x, y = images(seed, B, noise=2.5); t = R(seed + 5, 8, (B, 6)); return (x, t), y
    return dict(model=Net, data=data, loss=ce, diag=dict(CE))
