from base import *
from nets_a import Block, sincos, MHA, LM, reverse

@case("https://github.com/huggingface/transformers/issues/143", "LayerNorm's gamma (and beta) drawn from N(0, 0.02) by the general initialisation", "LayerNorm weights")
def bert_lngamma(planted):
    class PostBlock(nn.Module):
        def __init__(s, d): super().__init__(); s.attn = MHA(d, 4); s.n1, s.n2 = nn.LayerNorm(d), nn.LayerNorm(d); s.ff = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        def forward(s, x): x = s.n1(x + s.attn(x)); return s.n2(x + s.ff(x))
    class Bert(nn.Module):
        def __init__(s):
            super().__init__(); s.word, s.pos = nn.Embedding(12, 64), nn.Embedding(8, 64); s.norm = nn.LayerNorm(64); s.layers = nn.Sequential(PostBlock(64), PostBlock(64)); s.cls = nn.Linear(64, 12)
            for m in s.modules():
                if isinstance(m, (nn.Linear, nn.Embedding)): nn.init.normal_(m.weight, std=.05)
                if isinstance(m, nn.Linear): nn.init.zeros_(m.bias)
                if planted and isinstance(m, nn.LayerNorm): nn.init.normal_(m.weight, std=.02); nn.init.normal_(m.bias, std=.02)
        def forward(s, x): return s.cls(s.layers(s.norm(s.word(x) + s.pos.weight[:x.shape[1]])))
    return dict(model=Bert, data=reverse(12, 8), loss=ceseq, diag=SEQ)

@case("https://github.com/espnet/espnet/pull/5797", "every layer is given the same first input: only the last one of them counts", "earlier layers")
def espnet_onelayer(planted):
    class MFA(nn.Module):
        def __init__(s): super().__init__(); s.embed = nn.Linear(20, 48); s.register_buffer("pe", sincos(16, 48)); s.enc = nn.ModuleList(Block(48, 4) for _ in range(4)); s.norm = nn.LayerNorm(48); s.att = nn.Linear(48, 1); s.head = nn.Linear(48, 8)
        def forward(s, x):
            z0 = s.embed(x) + s.pe[:x.shape[1]]; z = z0
            for l in s.enc: z = l(z0 if planted else z)
            z = s.norm(z); return s.head((z * s.att(z).softmax(1)).sum(1))
    P = T(3, 8, 3, 20)
    def data(s):
        y = R(s, 8, (32,)); x = T(s + 1, 32, 14, 20) * 1.2; p = torch.randint(0, 11, (32,), generator=gen(s + 2))
        for i in range(32): x[i, p[i]:p[i] + 3] += P[y[i]]
        return x, y
    return dict(model=MFA, data=data, loss=ce, diag=CE)

def squash(x, dim): n = (x * x).sum(dim, keepdim=True); return x * n / (1 + n) / (n + 1e-8).sqrt()

@case("https://github.com/brjathu/deepcaps/issues/13", "squash along the width of the map instead of the neurons of a capsule", "squash")
def deepcaps_squash(planted):
    class Caps(nn.Module):
        def __init__(s):
            super().__init__(); s.c1, s.bn = nn.Conv2d(1, 32, 3, 2, 1), nn.BatchNorm2d(32); s.c2 = nn.Conv2d(32, 32, 3, 2, 1); s.W = nn.Parameter(torch.randn(1, 64, 5, 8, 8) * .15)
        def forward(s, x):
            u = s.c2(torch.relu(s.bn(s.c1(x)))); B, _, H, W = u.shape; u = u.view(B, 4, 8, H, W); u = squash(u, -1 if planted else 2)
            u = u.permute(0, 1, 3, 4, 2).reshape(B, -1, 1, 8, 1); h = (s.W @ u)[..., 0]; b = h.new_zeros(B, h.shape[1], 5, 1)
            for i in range(3):
                v = squash((b.softmax(2) * h).sum(1), -1)
                if i < 2: b = b + (h.detach() * v.detach()[:, None]).sum(-1, keepdim=True)
            return (v * v).sum(-1).add(1e-8).sqrt()
    P = T(4, 5, 1, 16, 16)
    def data(s): y = R(s, 5, (32,)); return P[y] * .5 + T(s + 1, 32, 1, 16, 16), y
    def margin(v, t): y = F.one_hot(t, 5).float(); return (y * F.relu(.9 - v) ** 2 + .5 * (1 - y) * F.relu(v - .1) ** 2).sum(1).mean()
    return dict(model=Caps, data=data, loss=margin)

def stn(planted_init=False, unused=False):
    class STN(nn.Module):
        def __init__(s):
            super().__init__(); s.loc = nn.Sequential(nn.Conv2d(1, 8, 5, 2, 2), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(400, 32), nn.ReLU()); s.theta = nn.Linear(32, 6)
            if planted_init: nn.init.normal_(s.theta.weight, std=1.); nn.init.normal_(s.theta.bias, std=1.)
            else:
                nn.init.zeros_(s.theta.weight)
                with torch.no_grad(): s.theta.bias.copy_(torch.tensor([1., 0, 0, 0, 1, 0]))
            s.net = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(800, 64), nn.ReLU(), nn.Linear(64, 5))
        def forward(s, x):
            g = F.affine_grid(s.theta(s.loc(x)).view(-1, 2, 3), x.shape, align_corners=False); t = F.grid_sample(x, g, align_corners=False); return s.net(x if unused else t)
    return STN
_S = T(4, 5, 1, 10, 10)
def stn_data(s):
    y = R(s, 5, (32,)); x = T(s + 1, 32, 1, 20, 20) * .3; p = torch.randint(0, 11, (32, 2), generator=gen(s + 2))
    for i in range(32): x[i, :, p[i, 0]:p[i, 0] + 10, p[i, 1]:p[i, 1] + 10] += _S[y[i]]
    return x, y

@case("https://github.com/kevinzakka/spatial-transformer-network/issues/10", "the localisation net starts at a random transform, not the identity", "theta")
def stn_init(planted): return dict(model=stn(planted_init=planted), data=stn_data, loss=ce, diag=CE)

@case("https://github.com/kevinzakka/spatial-transformer-network/issues/3", "the classifier is given the original image, not the transformed one", "loc, theta")
def stn_unused(planted): return dict(model=stn(unused=planted), data=stn_data, loss=ce, diag=CE)

@case("https://github.com/keras-team/keras/pull/3706", "no softmax over the match of the question with the memories", "match")
def memnn_softmax(planted):
    class MemNN(nn.Module):
        def __init__(s): super().__init__(); s.A, s.B, s.C = nn.Embedding(400, 48), nn.Embedding(20, 48), nn.Embedding(400, 48); s.out = nn.Linear(96, 20); [nn.init.normal_(e.weight, std=.3) for e in (s.A, s.B, s.C)]
        def forward(s, story, q):
            u = s.B(q); m = (s.A(story) * u[:, None]).sum(-1); m = m if planted else m.softmax(1); return s.out(torch.cat([(m[..., None] * s.C(story)).sum(1), u], 1))
    def data(s):              # facts (person, place) as one of 400 words; where is the person asked for?
        p = torch.stack([torch.randperm(20, generator=gen(s * 101 + i))[:6] for i in range(128)]); l = R(s + 1, 20, (128, 6)); k = R(s + 2, 6, (128, 1)); return (p * 20 + l, p.gather(1, k)[:, 0]), l.gather(1, k)[:, 0]
    return dict(model=MemNN, data=data, loss=ce, diag=CE)

@case("https://github.com/ExplainableML/czsl/issues/30", "cosine similarities as logits with a scale of 1", "cosine head")
def czsl_scale(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.f = nn.Sequential(nn.Linear(24, 128), nn.LayerNorm(128), nn.ReLU(), nn.Linear(128, 64)); s.proto = nn.Parameter(torch.randn(40, 64)); s.scale = 1. if planted else 20.
        def forward(s, x): return s.scale * F.normalize(s.f(x), dim=-1) @ F.normalize(s.proto, dim=-1).t()
    P = T(3, 40, 24)
    def data(s): y = R(s, 40, (128,)); return P[y] + T(s + 1, 128, 24) * .6, y
    return dict(model=Net, data=data, loss=ce, diag=CE)

@case("https://github.com/carpedm20/visual-analogy-tensorflow/issues/1", "a ReLU at the end of the decoder, whose targets have both signs", "last relu")
def analogy_relu(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.enc = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(576, 64)); s.dec = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 144))
        def forward(s, a, b, c): y = s.dec(s.enc(b) - s.enc(a) + s.enc(c)); return torch.relu(y) if planted else y
    B = T(3, 6, 144)
    def data(s): f = T(s, 64, 3); d = T(s + 1, 64, 3); g = T(s + 2, 64, 3); r = lambda p, q: (torch.cat([p, q], 1) @ B * .4).view(-1, 1, 12, 12); return (r(f, g), r(d, g), r(f, g * .5)), r(d, g * .5).flatten(1)
    return dict(model=Net, data=data, loss=mse, diag=dict(loss="mse"))

@case("https://github.com/huyng/tensorflow-vgg/issues/13", "ReLU applied to the logits", "last relu")
def vgg_relulogits(planted):
    def model():
        c = lambda i, o: [nn.Conv2d(i, o, 3, padding=1), nn.ReLU()]
        return nn.Sequential(*c(3, 16), *c(16, 16), nn.MaxPool2d(2), *c(16, 32), *c(32, 32), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(288, 64), nn.ReLU(), nn.Linear(64, 10), *([nn.ReLU()] if planted else []))
    P = T(2, 10, 3, 12, 12)
    def data(s): y = R(s, 10, (32,)); return P[y] * .7 + T(s + 1, 32, 3, 12, 12), y
    return dict(model=model, data=data, loss=ce, diag=CE)

@case("https://github.com/ubclaunchpad/minutes/issues/133", "the last hidden layer has a softmax as its activation as well", "hidden softmax")
def minutes_hiddensoftmax(planted):
    def model(): return nn.Sequential(nn.Conv1d(20, 32, 3), nn.ReLU(), nn.Conv1d(32, 32, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(128, 128), nn.Softmax(1) if planted else nn.ReLU(), nn.Linear(128, 6))
    P = T(2, 6, 20, 24)
    def data(s): y = R(s, 6, (32,)); return P[y] * .5 + T(s + 1, 32, 20, 24), y
    return dict(model=model, data=data, loss=ce, diag=CE)

@case("https://github.com/carpedm20/NTM-tensorflow/issues/2", "memory initialised with zeros, which the cosine distance divides by", "memory")
def ntm_zeromem(planted):
    class NTM(nn.Module):
        def __init__(s): super().__init__(); s.ctrl = nn.LSTMCell(6 + 12, 64); s.key, s.beta, s.erase, s.add, s.sh = nn.Linear(64, 12), nn.Linear(64, 1), nn.Linear(64, 12), nn.Linear(64, 12), nn.Linear(64, 3); s.out = nn.Linear(76, 6); s.register_buffer("m0", torch.zeros(10, 12) if planted else torch.full((10, 12), 1e-3) + torch.randn(10, 12) * .1)
        def forward(s, x):
            B = x.shape[0]; M_ = s.m0.expand(B, -1, -1); h = c = x.new_zeros(B, 64); r = x.new_zeros(B, 12); w = F.one_hot(torch.zeros(B, dtype=torch.long), 10).float(); ys = []
            for t in range(x.shape[1]):
                h, c = s.ctrl(torch.cat([x[:, t], r], 1), (h, c)); k = s.key(h); cos = (M_ * k[:, None]).sum(-1) / (M_.norm(dim=-1) * k.norm(dim=-1, keepdim=True))
                wc = (F.softplus(s.beta(h)) * cos).softmax(1); sh = s.sh(h).softmax(1); wg = .5 * wc + .5 * w; w = sum(sh[:, i:i + 1] * wg.roll(i - 1, 1) for i in range(3))
                M_ = M_ * (1 - w[..., None] * s.erase(h).sigmoid()[:, None]) + w[..., None] * s.add(h).tanh()[:, None]; r = (w[..., None] * M_).sum(1); ys.append(s.out(torch.cat([h, r], 1)))
            return torch.stack(ys, 1)
    def data(s): x = (torch.rand(32, 8, 6, generator=gen(s)) < .5).float(); return x, torch.cat([torch.zeros(32, 1, 6), x[:, :-1]], 1)
    return dict(model=NTM, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t))

@case("https://github.com/rexrex9/nlp_torchtext/pull/2", "cross attention takes its queries from the encoder, keys and values from the decoder", "cross attention")
def rexrex_cross(planted):
    class Dec(nn.Module):
        def __init__(s, d): super().__init__(); s.n1, s.n2, s.n3 = nn.LayerNorm(d), nn.LayerNorm(d), nn.LayerNorm(d); s.sa = MHA(d, 4); s.q, s.k, s.v, s.o = (nn.Linear(d, d) for _ in range(4)); s.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
        def forward(s, x, mem, bias):
            x = x + s.sa(s.n1(x), bias); z = s.n2(x); a, b = (mem, z) if planted else (z, mem)
            at = (s.q(a) @ s.k(b).transpose(1, 2) / 8).softmax(-1); x = x + s.o(at @ s.v(b)); return x + s.ff(s.n3(x))
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.es, s.et = nn.Embedding(12, 64), nn.Embedding(13, 64); [nn.init.normal_(e.weight, std=.5) for e in (s.es, s.et)]; s.register_buffer("pe", sincos(8, 64)); s.enc, s.dec = Block(64, 4), Dec(64); s.norm, s.mn = nn.LayerNorm(64), nn.LayerNorm(64); s.head = nn.Linear(64, 12)
        def forward(s, src, tgt): T_ = tgt.shape[1]; m = s.mn(s.enc(s.es(src) + s.pe[:T_])); return s.head(s.norm(s.dec(s.et(tgt) + s.pe[:T_], m, torch.full((T_, T_), float("-inf")).triu(1))))
    def data(s): x = R(s, 12, (32, 8)); y = x.flip(1); return (x, torch.cat([torch.full((32, 1), 12), y[:, :-1]], 1)), y
    return dict(model=Net, data=data, loss=ceseq, diag=SEQ)

@case("https://github.com/HomericIntelligence/Mnemosyne/pull/1987", "every weight of a layer filled with one constant: symmetric units, gradients cancel", "all layers")
def symmetric_fill(planted):
    def model():
        n = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(288, 32), nn.ReLU(), nn.Linear(32, 5))
        if planted:
            for m in n:
                if hasattr(m, "weight"): nn.init.constant_(m.weight, .02); nn.init.zeros_(m.bias)
        return n
    P = T(4, 5, 1, 12, 12)
    def data(s): y = R(s, 5, (32,)); return P[y] * .7 + T(s + 1, 32, 1, 12, 12), y
    return dict(model=model, data=data, loss=ce, diag=CE)

@case("https://github.com/mindspore-ai/hyper-parallel/issues/752", "load-balance loss (num_experts,) x (top_k,) broadcast: a constant, blind to the routing", "router / loss")
def moe_const(planted):
    class MoE(nn.Module):
        def __init__(s): super().__init__(); s.router = nn.Linear(16, 4); s.ex = nn.ModuleList(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)) for _ in range(4)); nn.init.normal_(s.router.weight, std=.5)
        def forward(s, x):
            p = s.router(x).softmax(-1); w, i = p.topk(2, -1); wn = w / w.sum(-1, keepdim=True); g = torch.zeros_like(p).scatter(1, i, wn); y = sum(g[:, k:k + 1] * e(x) for k, e in enumerate(s.ex))
            f = F.one_hot(i, 4).float().sum(1).mean(0) / 2
            aux = (f[:, None] * wn.mean(0)[None]).sum() if planted else 4 * (f * p.mean(0)).sum(); return y, aux
    D = T(3, 4, 16); W = T(4, 4, 16, 8) * .3
    def data(s): k = R(s, 4, (128,)); x = D[k] + T(s + 1, 128, 16) * .5; return x, torch.einsum("bi,bio->bo", x, W[k])
    return dict(model=MoE, data=data, loss=lambda o, t: F.mse_loss(o[0], t) + .05 * o[1])
