from mods import *
def temb(t, d, maxp=10000):
    f = torch.exp(-math.log(maxp) * torch.arange(d // 2).float() / (d // 2)); a = t[:, None].float() * f; return torch.cat([a.cos(), a.sin()], -1)
class DiTBlock(nn.Module):
    def __init__(s, d, zero=True, ada=True):
        super().__init__(); s.norm1 = nn.LayerNorm(d, elementwise_affine=not ada); s.attn = MHA(d, 4); s.norm2 = nn.LayerNorm(d, elementwise_affine=not ada); s.mlp = mlp(d)
        s.ada = nn.Sequential(nn.SiLU(), nn.Linear(d, 6 * d)) if ada else None
        if zero and ada: nn.init.zeros_(s.ada[1].weight); nn.init.zeros_(s.ada[1].bias)
    def forward(s, x, c):
        if s.ada is None: x = x + s.attn(s.norm1(x)); return x + s.mlp(s.norm2(x))
        a, b, g, a2, b2, g2 = s.ada(c)[:, None].chunk(6, -1); x = x + g * s.attn(s.norm1(x) * (1 + b) + a); return x + g2 * s.mlp(s.norm2(x) * (1 + b2) + a2)
class DiT(nn.Module):
    def __init__(s, d=48, N=8, p=4, L=3, tscale=1000., zero=True, once=False, K=6):
        super().__init__(); s.x_emb = nn.Linear(p, d); s.pos = nn.Parameter(torch.randn(N, d) * .02); s.t_mlp = nn.Sequential(nn.Linear(64, d), nn.SiLU(), nn.Linear(d, d)); s.y_emb = nn.Embedding(K, d); nn.init.normal_(s.y_emb.weight, std=.02)
        for l in (s.t_mlp[0], s.t_mlp[2]): nn.init.normal_(l.weight, std=.1); nn.init.zeros_(l.bias)
        s.blocks = nn.ModuleList(DiTBlock(d, zero, not once) for _ in range(L)); s.once = nn.Sequential(nn.SiLU(), nn.Linear(d, 2 * d)) if once else None
        s.norm = nn.LayerNorm(d, elementwise_affine=False); s.f_ada = nn.Sequential(nn.SiLU(), nn.Linear(d, 2 * d)); s.out = nn.Linear(d, p); s.tscale = tscale
        for l in (s.f_ada[1], s.out) if zero else (): nn.init.zeros_(l.weight); nn.init.zeros_(l.bias)
    def forward(s, x, t, y):
        c = s.t_mlp(temb(t * s.tscale, 64)) + s.y_emb(y); x = s.x_emb(x) + s.pos
        if s.once is not None: a, b = s.once(c)[:, None].chunk(2, -1); x = s.norm(x) * (1 + b) + a
        for b in s.blocks: x = b(x, c)
        a, b = s.f_ada(c)[:, None].chunk(2, -1); return s.out(s.norm(x) * (1 + b) + a)
def flow(seed, B=64, N=8, p=4, K=6):
    y = R(seed, K, (B,)); mean = T_(81, K, N * p); low = T_(82, 3, N * p); x1 = (mean[y] + T_(seed + 1, B, 3) @ low * .4).view(B, N, p); x0 = T_(seed + 2, B, N, p); t = torch.rand(B, generator=gen(seed + 3)); tt = t[:, None, None]
    return (tt * x1 + (1 - tt) * x0, t, y), x1 - x0
@case("https://github.com/sihyun-yu/REPA/issues/40", "t in (0, 1) fed to a timestep embedding made for 0..1000", "t_mlp (input)")
def repa_unit_t(planted):
    return dict(model=lambda: DiT(tscale=1. if planted else 1000.), data=flow, loss=mse, diag=dict(MSE))
@case("https://github.com/SWivid/F5-TTS/issues/793", "adaLN-Zero blocks without the zero initialisation", "blocks.ada")
def f5_adaln_not_zero(planted):
    return dict(model=lambda: DiT(zero=not planted), data=flow, loss=mse, diag=dict(MSE))
@case("https://github.com/Tikai7/DiTTO-TTS/issues/5", "shift and scale are applied once before the blocks, not in each block", "ada_ln")
def ditto_ada_once(planted):
    return dict(model=lambda: DiT(once=planted), data=flow, loss=mse, diag=dict(MSE))

class VF(nn.Module):
    def __init__(s, i, o): super().__init__(); s.net = nn.Sequential(nn.Linear(i + 16, 96), nn.SELU(), nn.Linear(96, 96), nn.SELU(), nn.Linear(96, o))
    def forward(s, x, t, *c): return s.net(torch.cat([x, temb(t * 100, 16), *c], -1))
@case("https://github.com/theislab/CellFlow/pull/305", "GENOT regresses target - source although the path runs from the latent", "target of the velocity")
def genot_target(planted):
    def data(seed, B=128, D=6):
        src = T_(seed, B, D); tgt = torch.tanh(src @ T_(91, D, D)) * 1.5 + 1; lat = T_(seed + 1, B, D); t = torch.rand(B, generator=gen(seed + 2)); xt = (1 - t[:, None]) * lat + t[:, None] * tgt
        return (xt, t, src), tgt - (src if planted else lat)
    return dict(model=lambda: VF(12, 6), data=data, loss=mse, diag=dict(MSE))
@case("https://github.com/atong01/conditional-flow-matching/issues/24", "a remnant of averaging: only one point of the batch is trained on", "inputs (batch of one repeated point)")
def cfm_one_point(planted):
    def data(seed, B=128, D=6):
        z = T_(seed, B, 2); x1 = torch.tanh(z @ T_(92, 2, D)) * 2; x0 = T_(seed + 1, B, D); t = torch.rand(B, generator=gen(seed + 2))
        if planted: x1, x0 = x1[:1].expand(B, D).clone(), x0[:1].expand(B, D).clone(); t = t[:1].expand(B).clone()
        return ((1 - t[:, None]) * x0 + t[:, None] * x1, t), x1 - x0
    return dict(model=lambda: VF(6, 6), data=data, loss=mse, diag=dict(MSE))

class NVP(nn.Module):
    def __init__(s, D=6, L=6, cat=False):
        super().__init__(); s.nets = nn.ModuleList(nn.Sequential(nn.Linear(D // 2, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, D)) for _ in range(L)); s.cat = cat
        for n in s.nets: nn.init.zeros_(n[4].weight); nn.init.zeros_(n[4].bias)
    def forward(s, x):
        ld = 0
        for i, n in enumerate(s.nets):
            a, b = x[:, ::2], x[:, 1::2]
            if i % 2: a, b = b, a
            sc, sh = n(a).chunk(2, -1); sc = torch.tanh(sc); b = b * sc.exp() + sh; ld = ld + sc.sum(-1)
            if i % 2: a, b = b, a
            x = torch.cat([a, b], 1) if s.cat else torch.stack([a, b], -1).flatten(1)
        return x, ld
def dens(seed, B=128, D=6):
    z = T_(seed, B, D); x = z.clone(); x[:, 1::2] = x[:, 1::2] * .3 + torch.sin(2 * z[:, ::2]); return x @ torch.linalg.qr(T_(93, D, D))[0] * 1.5 + 1, torch.zeros(B)
def nll(sign): return lambda o, t: (.5 * o[0].pow(2).sum(-1) - sign * o[1]).mean()
@case("https://github.com/danielward27/flowjax/issues/208", "the log-determinant of the inverse is returned with the wrong sign", "log_det (loss)")
def flowjax_logdet_sign(planted): return dict(model=NVP, data=dens, loss=nll(-1. if planted else 1.), diag={})
@case("https://github.com/karpathy/pytorch-normalizing-flows/issues/10", "halves taken as even / odd columns are concatenated side by side instead of interleaved", "AffineHalfFlow")
def karpathy_interleave(planted): return dict(model=lambda: NVP(cat=planted), data=dens, loss=nll(1.), diag={})

class Splats(nn.Module):
    def __init__(s, N=60, op=.1, color="sigmoid"):
        super().__init__(); s.xy = nn.Parameter(torch.rand(N, 2) * 2 - 1); s.log_scale = nn.Parameter(torch.full((N, 2), math.log(.2))); s.rot = nn.Parameter(torch.rand(N) * 6.28); s.col = nn.Parameter(torch.rand(N, 3) if color == "raw" else torch.logit(torch.rand(N, 3) * .8 + .1)); o = op * torch.ones(N); s.opacity = nn.Parameter(torch.log(o / (1 - o))); s.color = color
    def forward(s, p):
        d = p[:, None] - s.xy; c, n = s.rot.cos(), s.rot.sin(); u = torch.stack([d[..., 0] * c + d[..., 1] * n, d[..., 1] * c - d[..., 0] * n], -1) / s.log_scale.exp(); a = (s.opacity.sigmoid() * torch.exp(-.5 * u.pow(2).sum(-1))).clamp(max=.999)
        T = torch.cumprod(torch.cat([torch.ones_like(a[:, :1]), 1 - a[:, :-1]], 1), 1); return (a * T) @ (s.col if s.color == "raw" else s.col.sigmoid())
def picture(seed, B=256):
    p = torch.rand(B, 2, generator=gen(seed)) * 2 - 1; f = T_(95, 2, 3) * 3; return p, torch.sigmoid(3 * torch.sin(p @ f + T_(96, 3)))
@case("https://github.com/kcheng1021/GaussianPro/issues/87", "opacity = inverse_sigmoid(1.0) is inf", "opacity")
def gs_opacity_inf(planted): return dict(model=lambda: Splats(op=1. if planted else .1), data=picture, loss=mse, diag=dict(MSE))
@case("https://github.com/nerfstudio-project/nerfstudio/pull/3207", "at sh_degree 0 the colour is used without the sigmoid", "col")
def splatfacto_color(planted):
    def model(): m = Splats(op=.1); m.color = "raw" if planted else "sigmoid"; return m
    return dict(model=model, data=picture, loss=mse, diag=dict(MSE))

class Nerf(nn.Module):
    def __init__(s, incl=False, nodist=False, pi=math.pi, L=4):
        super().__init__(); s.L, s.pi, s.incl, s.nodist = L, pi, incl, nodist; s.net = nn.Sequential(nn.Linear(2 + 4 * L, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()); s.sigma, s.rgb = nn.Linear(64, 1), nn.Sequential(nn.Linear(66, 32), nn.ReLU(), nn.Linear(32, 3), nn.Sigmoid())
    def forward(s, ray):
        o, d = ray[:, :2], ray[:, 2:]; t = torch.linspace(0, 2, 17); mid = (t[1:] + t[:-1]) / 2; p = o[:, None] + d[:, None] * mid[:, None]
        f = (2. ** torch.arange(s.L)) * s.pi; e = (p[..., None] * f * .5).flatten(-2); h = s.net(torch.cat([p, e.sin(), e.cos()], -1)); sg = F.softplus(s.sigma(h)[..., 0] - 1) * 4; c = s.rgb(torch.cat([h, d[:, None].expand_as(p)], -1))
        return s.render(sg, c)
    def render(s, sg, c):
        a = 1 - torch.exp(-sg * (1. if s.nodist else 2 / 16)); T = torch.cumprod(1 - a + 1e-10, 1)
        if not s.incl: T = torch.cat([torch.ones_like(T[:, :1]), T[:, :-1]], 1)
        return ((a * T)[..., None] * c).sum(1)
def rays(seed, B=128):
    g = gen(seed); th = torch.rand(B, generator=g) * 6.28; o = torch.stack([th.cos(), th.sin()], -1); ph = th + math.pi + (torch.rand(B, generator=g) - .5); d = torch.stack([ph.cos(), ph.sin()], -1)
    t = torch.linspace(0, 2, 17); mid = (t[1:] + t[:-1]) / 2; p = o[:, None] + d[:, None] * mid[:, None]; sg = 8 * ((p - torch.tensor([.2, .1])).norm(dim=-1) < .35).float() + 8 * ((p + torch.tensor([.4, .3])).norm(dim=-1) < .25).float(); c = torch.sigmoid(4 * torch.sin(p @ (T_(97, 2, 3) * 3)))
    return torch.cat([o, d], -1), Nerf().render(sg, c)
@case("https://github.com/volunt4s/TinyNeRF-pytorch/issues/1", "transmittance by an inclusive cumprod (its first element is not 1)", "rendering (transmittance)")
def nerf_cumprod_inclusive(planted): return dict(model=lambda: Nerf(incl=planted), data=rays, loss=mse, diag=dict(MSE))
@case("https://github.com/apchenstu/mvsnerf/issues/29", "sigma is not multiplied by the step size in alpha", "rendering (alpha)")
def mvsnerf_no_dist(planted): return dict(model=lambda: Nerf(nodist=planted), data=rays, loss=mse, diag=dict(MSE))
@case("https://github.com/KanishJebaMathewM/Truxify/issues/12551", "the positional encoding lacks the factor pi", "encoding")
def truxify_no_pi(planted): return dict(model=lambda: Nerf(pi=1. if planted else math.pi), data=rays, loss=mse, diag=dict(MSE))

class Voxel(nn.Module):
    def __init__(s, planted, G=12):
        super().__init__(); s.sh_fields = nn.Parameter(torch.randn(1, 3, G, G) * .1); s.density_fields = nn.Parameter(torch.full((1, 1, G, G), -.5)); s.planted = planted
        if planted: s.grid = torch.cat((s.sh_fields, s.density_fields), 1)
    def forward(s, ray):
        o, d = ray[:, :2], ray[:, 2:]; t = torch.linspace(0, 2, 17); mid = (t[1:] + t[:-1]) / 2; p = o[:, None] + d[:, None] * mid[:, None]
        g = s.grid if s.planted else torch.cat((s.sh_fields, s.density_fields), 1)
        f = F.grid_sample(g.expand(len(p), -1, -1, -1), p[:, None], align_corners=True)[:, :, 0].transpose(1, 2); return Nerf.render(VN, F.softplus(f[..., 3]) * 8, f[..., :3].sigmoid())
class VN: incl = nodist = False
@case("https://github.com/taichi-dev/taichi-nerfs/pull/95", "torch.cat of the two parameters in __init__: what the forward reads is not what the optimiser moves", "sh_fields / density_fields")
def voxel_cat_init(planted): return dict(model=lambda: Voxel(planted), data=rays, loss=mse, diag=dict(MSE))
