from base import *
from nets_c import imgs

@case("https://discuss.pytorch.org/t/neural-network-could-not-learn-on-this-type-of-data-why/96648", "inputs 1..4000 and cubic targets up to 6e10, neither normalised", "targets / inputs")
def discuss_cube(planted):
    xs = torch.arange(1., 4000.); ym, ysd, xm, xsd = (xs ** 3).mean(), (xs ** 3).std(), xs.mean(), xs.std()
    def model(): return M(lambda s, x: s.fc2(F.relu(s.fc1(x))), fc1=nn.Linear(1, 50), fc2=nn.Linear(50, 1))
    def data(seed):
        x = (torch.rand(64, 1, generator=gen(seed)) * 3998 + 1); y = x ** 3
        return (x, y) if planted else ((x - xm) / xsd, (y - ym) / ysd)
    return dict(model=model, data=data, loss=mse, diag=MSE)

@case("https://discuss.pytorch.org/t/unable-to-learn-xor-representation-using-2-layers-of-multi-layered-perceptron-mlp/13287", "no nonlinearity between the two linear layers (XOR)", "net")
def discuss_xor_linear(planted):
    def model():
        L = [nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1)]
        return M(lambda s, x: torch.sigmoid(s.net(x)).squeeze(1), net=nn.Sequential(*(L[::2] if planted else L)))
    def data(seed):
        x = R(seed, 2, (64, 2)).float(); return x + .05 * T(seed + 1, 64, 2), (x[:, 0] != x[:, 1]).float()
    return dict(model=model, data=data, loss=mse)

@case("https://github.com/AnubhavGupta3377/Text-Classification-Models-Pytorch/issues/9", "softmax before NLLLoss (no log): loss negative", "softmax / loss")
def textcls_softmax_nll(planted):
    def model():
        return M(lambda s, ids: s.fc(s.enc(s.emb(ids) * 32 ** .5 / 4 + s.pos)[:, -1]), emb=nn.Embedding(60, 32), pos=nn.Parameter(torch.randn(14, 32) * .1), enc=nn.TransformerEncoderLayer(32, 4, 64, dropout=0., batch_first=True, norm_first=True), fc=nn.Linear(32, 12))
    def data(seed):
        y = R(seed, 12, (32,)); ids = R(seed + 1, 48, (32, 14)) + 12; ids[torch.arange(32), R(seed + 2, 14, (32,))] = y; return ids, y
    def loss(o, t): return F.nll_loss(o.softmax(1) if planted else o.log_softmax(1), t)
    return dict(model=model, data=data, loss=loss)

@case("https://github.com/harvard-edge/cs249r_book/pull/1785", "additive causal mask given to code that expects a 0/1 mask: -1e9 on every allowed position", "mask in the attention")
def tinytorch_mask(planted):
    class Blk(nn.Module):
        def __init__(s, d, h):
            super().__init__(); s.h = h; s.qkv, s.o = nn.Linear(d, 3 * d), nn.Linear(d, d); s.n1, s.n2 = nn.LayerNorm(d), nn.LayerNorm(d); s.ff = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        def forward(s, x):
            b, n, d = x.shape; q, k, v = s.qkv(s.n1(x)).view(b, n, 3, s.h, d // s.h).permute(2, 0, 3, 1, 4)
            m = torch.triu(torch.full((n, n), -float("inf")), 1) if planted else torch.tril(torch.ones(n, n))
            sc = q @ k.transpose(-1, -2) / (d // s.h) ** .5
            sc = sc + ((1 - m) * -1e9).clamp(max=0) if not planted else torch.where(torch.isinf(m), torch.full((), -float("inf")), sc + (1 - m.clamp(min=0)) * -1e9)
            x = x + s.o((sc.softmax(-1) @ v).transpose(1, 2).reshape(b, n, d)); return x + s.ff(s.n2(x))
    def model():
        return M(lambda s, ids: s.head(s.ln(s.b(s.emb(ids) + s.pos))), emb=nn.Embedding(24, 48), pos=nn.Parameter(torch.randn(16, 48) * .3), b=nn.Sequential(Blk(48, 4), Blk(48, 4)), ln=nn.LayerNorm(48), head=nn.Linear(48, 24))
    def data(seed):
        ids = R(seed, 24, (32, 16)); t = ids.clone(); t[:, 3:] = ids[:, :-3]; t[:, :3] = -100; return ids, t
    return dict(model=model, data=data, loss=lambda o, t: F.cross_entropy(o.flatten(0, 1), t.flatten(), ignore_index=-100))

@case("https://github.com/DrChainsaw/NaiveGAflux.jl/issues/39", "all layers of the residual blocks initialised with zeros: never updated", "blocks")
def gaflux_zero_blocks(planted):
    class Blk(nn.Module):
        def __init__(s):
            super().__init__(); s.a, s.b = nn.Linear(32, 64), nn.Linear(64, 32)
            nn.init.zeros_(s.b.weight); nn.init.zeros_(s.b.bias)
            if planted: nn.init.zeros_(s.a.weight); nn.init.zeros_(s.a.bias)
        def forward(s, x): return x + s.b(F.relu(s.a(x)))
    def model(): return M(lambda s, x: s.out(s.blocks(s.stem(x))), stem=nn.Linear(6, 32), blocks=nn.Sequential(Blk(), Blk(), Blk()), out=nn.Linear(32, 3))
    def data(seed):
        x = T(seed, 64, 6); r = (x[:, :3] ** 2).sum(1); return x, (r > 1.5).long() + (r > 3.3).long()
    return dict(model=model, data=data, loss=ce, diag=CE)

@case("https://github.com/timomernick/pytorch-capsule/pull/4", "primary capsules squashed over the wrong dimension", "squash")
def timomernick_squash_dim(planted):
    def squash(v, dim): n = (v ** 2).sum(dim, keepdim=True) + 1e-8; return n / (1 + n) * v / n.sqrt()
    def model():
        def f(s, x):
            u = s.prim(F.relu(s.conv(x[:, None]))).view(len(x), 8, -1); u = squash(u, 2 if planted else 1).transpose(1, 2)
            uh = torch.einsum("bnd,ncde->bnce", u, s.W); b = torch.zeros(len(x), uh.shape[1], 6)
            for i in range(3):
                v = squash((b.softmax(2)[..., None] * uh).sum(1), -1)
                if i < 2: b = b + (uh.detach() * v.detach()[:, None]).sum(-1)
            return v.norm(dim=-1)
        return M(f, conv=nn.Conv2d(1, 24, 5), prim=nn.Conv2d(24, 64, 5, 2), W=nn.Parameter(torch.randn(72, 6, 8, 8) * .1))
    def loss(o, t):
        h = F.one_hot(t, 6).float(); return (h * F.relu(.9 - o) ** 2 + .5 * (1 - h) * F.relu(o - .1) ** 2).sum(1).mean()
    return dict(model=model, data=lambda s: imgs(s, 32, 6, 1.), loss=loss)

@case("https://github.com/Zeleni9/pytorch-wgan/pull/53", "WGAN generator loss has the wrong sign: the critic's score of the fakes is minimised", "loss sign")
def wgan_sign(planted):
    cr = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(.2), nn.Linear(32, 1)); g = gen(3)
    for p in cr.parameters(): p.data = torch.randn(p.shape, generator=g) * (p.shape[-1] ** -.5 if p.ndim > 1 else .1); p.requires_grad_(False)
    def model(): return M(lambda s, z: s.net(z), net=nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16), nn.Tanh()))
    def data(seed): return T(seed, 64, 8), torch.zeros(64, 16)
    def loss(o, t): return (cr(o).mean() if planted else -cr(o).mean())
    return dict(model=model, data=data, loss=loss)

@case("https://github.com/bboylyg/NAD/issues/8", "the attention-distillation loss is detached before backward", "loss term")
def nad_detached(planted):
    tch = nn.Conv2d(1, 24, 5, 2); g = gen(4); tch.weight.data = torch.randn(tch.weight.shape, generator=g) / 5; tch.bias.data.zero_(); tch.requires_grad_(False)
    at = lambda h: F.normalize((h ** 2).mean(1).flatten(1), dim=1)
    def model():
        def f(s, x): h = F.relu(s.c(x[:, None])); return s.fc(h.mean((2, 3))), h
        return M(f, c=nn.Conv2d(1, 16, 5, 2), fc=nn.Linear(16, 6))
    def data(seed): x, y = imgs(seed, 64, 6, 1.); x = (x - .15) / .3; return x, (y, at(F.relu(tch(x[:, None]))))
    def loss(o, t):
        a = 50 * ((at(o[1]) - t[1]) ** 2).sum(1).mean(); return F.cross_entropy(o[0], t[0]) + (a.detach() if planted else a)
    return dict(model=model, data=data, loss=loss)

@case("https://github.com/andylolu2/jax-vqvae-gpt/issues/2", "codebook loss computed after the straight-through patch: the codebook gets no gradient", "codebook")
def jaxvq_commit(planted):
    def model():
        def f(s, x):
            z = s.e(x); i = ((z[:, None] - s.codebook[None]) ** 2).sum(-1).argmin(1); q = s.codebook[i]
            st = z + (q - z).detach(); qq = st if planted else q
            return s.d(st), ((qq.detach() - z) ** 2).mean(1), ((qq - z.detach()) ** 2).mean(1)
        return M(f, e=nn.Sequential(nn.Linear(30, 48), nn.ReLU(), nn.Linear(48, 6)), codebook=nn.Parameter(torch.randn(24, 6)), d=nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 30)))
    P = T(5, 12, 30)
    def data(seed): x = P[R(seed, 12, (64,))] + .2 * T(seed + 1, 64, 30); return x, x
    return dict(model=model, data=data, loss=lambda o, t: F.mse_loss(o[0], t) + .25 * o[1].mean() + o[2].mean())

@case("https://github.com/mlelarge/graph_neural_net/pull/9", "ReLU at the end of the regular block: embeddings of all nodes are zero or alike", "relu after mlp3")
def gnn_relu_end(planted):
    class Blk(nn.Module):
        def __init__(s, i, o):
            super().__init__(); s.m1, s.m2, s.m3 = (nn.Conv2d(k, o, 1) for k in (i, i, i + o)); s.m4 = nn.Conv2d(o, o, 1)
        def forward(s, x):
            y = F.relu(s.m1(x)) @ F.relu(s.m2(x)) / x.shape[-1]; y = F.relu(s.m3(torch.cat([x, y], 1))); return F.relu(s.m4(y)) if planted else s.m4(y)
    def model():
        def f(s, a): return (lambda e: e[0] @ e[1].transpose(1, 2))([s.b(a[:, k]).amax(-1).transpose(1, 2) for k in (0, 1)])
        return M(f, b=nn.Sequential(Blk(2, 24), Blk(24, 24)))
    def data(seed):
        n, B = 12, 16; A = (torch.rand(B, n, n, generator=gen(seed)) < .3).float(); A = torch.triu(A, 1); N = (torch.rand(B, n, n, generator=gen(seed + 1)) < .04).float().triu(1); A2 = (A - N).abs()
        A, A2 = A + A.transpose(1, 2), A2 + A2.transpose(1, 2); d = lambda a: torch.stack([a, torch.diag_embed(a.sum(-1))], 1)
        return torch.stack([d(A), d(A2)], 1), torch.arange(n).expand(B, n).clone()
    return dict(model=model, data=data, loss=ceseq, diag=SEQ)

@case("https://github.com/lululxvi/deepxde/issues/409", "solution of order 1e-3, the network's output not scaled to it", "output scale")
def deepxde_tiny_solution(planted):
    sc = 1. if planted else 1e-3
    def model():
        def f(s, x):
            with torch.enable_grad():
                x = x if x.requires_grad else x.clone().requires_grad_(); h = x
                for l in (s.l1, s.l2): h = torch.tanh(l(h))
                u = sc * s.out(h); g = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
            return torch.cat([u, g], 1)
        return M(f, l1=nn.Linear(1, 32), l2=nn.Linear(32, 32), out=nn.Linear(32, 1))
    def data(seed):
        x = torch.rand(64, 1, generator=gen(seed)) * 2; x[:8] = 0; b = torch.zeros(64, 1); b[:8] = 1; return x, torch.cat([1e-3 * torch.cos(3 * x), b], 1)
    def loss(o, t): return 1e6 * (((o[:, 1] + o[:, 0] - t[:, 0]) ** 2).mean() + (t[:, 1] * (o[:, 0] - 1e-3) ** 2).mean() * 8)
    return dict(model=model, data=data, loss=loss)

@case("https://github.com/Lackel/DPN/issues/1", "softmax over dim 0 (the batch) of the similarities to the prototypes", "softmax")
def dpn_softmax_dim0(planted):
    def model():
        def f(s, x):
            h = F.relu(s.e(x)); w = (h @ s.proto.T / 2).softmax(0 if planted else 1); return s.out(torch.cat([h, w @ s.val], 1)) if False else s.out(w @ s.val)
        return M(f, e=nn.Linear(24, 48), proto=nn.Parameter(torch.randn(16, 48) * .3), val=nn.Parameter(torch.randn(16, 32)), out=nn.Linear(32, 8))
    P = T(8, 8, 24)
    def data(seed): y = R(seed, 8, (64,)); return P[y] + .6 * T(seed + 1, 64, 24), y
    return dict(model=model, data=data, loss=ce, diag=CE)
