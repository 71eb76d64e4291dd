from base import *

def imgs(seed, B=64, n=10, hi=255.):
    P = (torch.rand(n, 14, 14, generator=gen(77)) > .75).float(); y = R(seed, n, (B,))
    x = P[y] * torch.rand(B, 14, 14, generator=gen(seed + 1)); x = torch.where(torch.rand(B, 14, 14, generator=gen(seed + 2)) < .08, torch.rand(B, 14, 14, generator=gen(seed + 3)), x)
    return x * hi, y

@case("https://github.com/GoogleCloudPlatform/tensorflow-without-a-phd/issues/39", "pixels 0..255 into softmax regression and log(softmax): log(0), NaN", "input / loss log")
def tfphd_log_nan(planted):
    def model():
        m = M(lambda s, x: s.fc((x if planted else x / 255).flatten(1)), fc=nn.Linear(196, 10)); nn.init.zeros_(m.fc.weight); nn.init.zeros_(m.fc.bias); return m
    def loss(o, t):
        lp = torch.log(o.softmax(1)) if planted else o.log_softmax(1); h = F.one_hot(t, 10).float(); return -(h * lp).sum(1).mean()
    return dict(model=model, data=imgs, loss=loss)

@case("https://github.com/YunYang1994/TensorFlow2.0-Examples/issues/63", "binary_crossentropy of raw scores (no sigmoid in the discriminator): clipped at eps, no gradient", "out / loss")
def yunyang_bce_raw(planted):
    def model():
        return M(lambda s, x: s.out(F.dropout(F.leaky_relu(s.c2(F.leaky_relu(s.c1(x), .2)), .2), 0.).flatten(1)).squeeze(1), c1=nn.Conv2d(1, 16, 5, 2, 2), c2=nn.Conv2d(16, 32, 5, 2, 2), out=nn.Linear(32 * 16, 1))
    def data(seed):
        x, _ = imgs(seed, 32, 4, 2.); f = torch.rand(32, 14, 14, generator=gen(seed + 9)) * .6; f = F.avg_pool2d(f[:, None], 3, 1, 1)[:, 0]
        return torch.cat([x - 1, f * 2 - 1])[:, None], torch.cat([torch.ones(32), torch.zeros(32)])
    def loss(o, t):
        if planted: p = o.clamp(1e-7, 1 - 1e-7); return -(t * p.log() + (1 - t) * (1 - p).log()).mean()
        return F.binary_cross_entropy_with_logits(o, t)
    return dict(model=model, data=data, loss=loss)

@case("https://github.com/hfslyc/AdvSemiSeg/issues/39", "extra sigmoid before BCEWithLogits in the discriminator: its loss hardly changes", "sigmoid at the end")
def advsemiseg_double_sigmoid(planted):
    def model():
        def f(s, x): y = s.net(x); return torch.sigmoid(y) if planted else y
        return M(f, net=nn.Sequential(nn.Conv2d(5, 16, 4, 2, 1), nn.LeakyReLU(.2), nn.Conv2d(16, 32, 4, 2, 1), nn.LeakyReLU(.2), nn.Conv2d(32, 1, 3, 1, 1), nn.Upsample(scale_factor=4)))
    def data(seed):
        r = F.interpolate(T(seed, 16, 5, 4, 4), scale_factor=4, mode="bilinear"); real = F.one_hot(r.argmax(1), 5).permute(0, 3, 1, 2).float()
        fake = (F.interpolate(T(seed + 1, 16, 5, 4, 4), scale_factor=4, mode="bilinear") * 3 + .5 * T(seed + 2, 16, 5, 16, 16)).softmax(1)
        return torch.cat([real, fake]), torch.cat([torch.ones(16, 1, 16, 16), torch.zeros(16, 1, 16, 16)])
    return dict(model=model, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t))

@case("https://github.com/HobbitLong/SupContrast/issues/104", "features not L2-normalised at temperature 0.07: exp underflows, log(0), NaN", "features / loss")
def supcon_unnormalised(planted):
    def model():
        def f(s, x):
            h = s.net(x.flatten(0, 1)[:, None]).mean((-1, -2)); h = h if planted else F.normalize(h, dim=1); return h.view(len(x), 2, -1)
        cb = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, 2, 1), nn.BatchNorm2d(o), nn.ReLU())
        return M(f, net=nn.Sequential(cb(1, 32), cb(32, 64), nn.Conv2d(64, 128, 1), nn.BatchNorm2d(128), nn.ReLU()))
    def data(seed):
        x, y = imgs(seed, 32, 6, 1.); a = x[:, None] + .3 * T(seed + 5, 32, 2, 14, 14); return a, y
    def loss(o, t):
        z = torch.cat(o.unbind(1)) ; y = torch.cat([t, t]); lg = z @ z.T / .07; lg = lg - lg.max(1, keepdim=True)[0].detach()
        m = 1 - torch.eye(len(z)); pos = (y[:, None] == y[None]).float() * m
        lp = lg - torch.log((lg.exp() * m).sum(1, keepdim=True)); return -((pos * lp).sum(1) / pos.sum(1)).mean()
    return dict(model=model, data=data, loss=loss)

class QLinear(nn.Linear):
    ste = True
    def forward(s, x):
        q = torch.round(s.weight * 16) / 16
        return F.linear(x, s.weight + (q - s.weight).detach() if s.ste else q, s.bias)

@case("https://github.com/pytorch/pytorch/issues/72772", "weights quantised by rounding in the forward pass, no straight-through estimator: gradient 0", "quantised layers")
def quant_no_ste(planted):
    def model():
        L = [QLinear(40, 64), QLinear(64, 64), QLinear(64, 8)]
        for l in L: l.ste = not planted
        return M(lambda s, x: s.net(x), net=nn.Sequential(L[0], nn.ReLU(), L[1], nn.ReLU(), L[2]))
    W = T(4, 40, 8)
    def data(seed): x = T(seed, 64, 40); return x, (x @ W).argmax(1)
    return dict(model=model, data=data, loss=ce, diag=CE)

@case("https://github.com/stevezheng23/reading_comprehension_tf/pull/30", "attention softmax over the wrong axis", "attention softmax")
def rc_softmax_axis(planted):
    def model():
        def f(s, c, q):
            C, Q = s.emb(c), s.emb(q) + s.pos; a = (s.wc(C) @ s.wq(Q).transpose(1, 2)) / 32 ** .5
            u = a.softmax(1 if planted else 2) @ s.v(Q)
            return s.out(F.relu(s.h(torch.cat([C, u, C * u], -1))))
        return M(f, emb=nn.Embedding(30, 32), pos=nn.Parameter(torch.randn(6, 32) * .3), wc=nn.Linear(32, 32), wq=nn.Linear(32, 32), v=nn.Linear(32, 32), h=nn.Linear(96, 48), out=nn.Linear(48, 7))
    def data(seed):
        q = torch.stack([torch.randperm(30, generator=gen(seed + k))[:6] for k in range(32)]); c = R(seed + 50, 30, (32, 16))
        pick = torch.gather(q, 1, R(seed + 51, 6, (32, 16))); c = torch.where(torch.rand(32, 16, generator=gen(seed + 52)) < .7, pick, c)
        m = c[:, :, None] == q[:, None]; return (c, q), torch.where(m.any(-1), m.float().argmax(-1) + 1, 0)
    return dict(model=model, data=data, loss=ceseq, diag=SEQ)

@case("https://github.com/etzinis/sudo_rm_rf/issues/1", "SI-SNR of an all-zero source: log of 0, NaN", "loss (log10)")
def sisnr_zero_source(planted):
    e = 0. if planted else 1e-3
    def model():
        def f(s, x):
            h = F.relu(s.enc(x[:, None])); m = torch.sigmoid(s.mask(h)).view(len(x), 2, 32, -1); return s.dec((m * h[:, None]).flatten(0, 1)).view(len(x), 2, -1)
        return M(f, enc=nn.Conv1d(1, 32, 16, 8), mask=nn.Sequential(nn.Conv1d(32, 48, 3, padding=1), nn.ReLU(), nn.Conv1d(48, 64, 1)), dec=nn.ConvTranspose1d(32, 1, 16, 8))
    t = torch.arange(160.)
    def data(seed):
        ph = torch.rand(16, 2, 1, generator=gen(seed)) * 6.28; fr = torch.stack([.15 + .1 * torch.rand(16, generator=gen(seed + 1)), 1. + .5 * torch.rand(16, generator=gen(seed + 2))], 1)[..., None]
        s = torch.sin(fr * t + ph); s = s * (torch.rand(16, 2, 1, generator=gen(seed + 3)) > .15); return s.sum(1), s
    def loss(o, t):
        a = (o * t).sum(-1, keepdim=True) / ((t ** 2).sum(-1, keepdim=True) + e); p = a * t; n = o - p
        return -10 * torch.log10(((p ** 2).sum(-1) + e) / ((n ** 2).sum(-1) + e)).mean()
    return dict(model=model, data=data, loss=loss)

@case("https://github.com/MccreeZhao/FR-Loss-on-Mnist/issues/2", "ArcFace sine = sqrt(1 - cos²) at cos = 1 (2-d embedding, easy data): NaN", "sine in the margin")
def arcface_2d_nan(planted):
    def model():
        def f(s, x):
            h = s.net(x); return F.linear(F.normalize(h), F.normalize(s.W))
        return M(f, net=nn.Sequential(nn.Linear(20, 64), nn.PReLU(), nn.Linear(64, 32), nn.PReLU(), nn.Linear(32, 2)), W=nn.Parameter(torch.randn(5, 2)))
    P = T(1, 5, 20) * 2
    def data(seed): y = R(seed, 5, (64,)); return P[y] + .3 * T(seed + 1, 64, 20), y
    def loss(c, t):
        si = torch.sqrt(1 - c ** 2) if planted else torch.sqrt((1 - c ** 2).clamp(1e-6, 1))
        m = .3; phi = c * math.cos(m) - si * math.sin(m); phi = torch.where(c > math.cos(math.pi - m), phi, c - math.sin(math.pi - m) * m)
        h = F.one_hot(t, 5).float(); return F.cross_entropy(16 * (h * phi + (1 - h) * c), t)
    return dict(model=model, data=data, loss=loss)

@case("https://github.com/jonasgrebe/pt-femb-face-embeddings/issues/3", "the header makes a new nn.Parameter of its weight in each forward: the optimizer holds the old one", "linear.weight")
def femb_new_parameter(planted):
    def model():
        def f(s, x):
            h = F.normalize(s.net(x))
            if planted: s.linear.weight = nn.Parameter(F.normalize(s.linear.weight)); return 16 * s.linear(h)
            return 16 * F.linear(h, F.normalize(s.linear.weight))
        return M(f, net=nn.Sequential(nn.Linear(60, 48), nn.ReLU(), nn.Linear(48, 24)), linear=nn.Linear(24, 30, bias=False))
    P = T(2, 30, 60)
    def data(seed): y = R(seed, 30, (64,)); return P[y] + 1.2 * T(seed + 1, 64, 60), y
    return dict(model=model, data=data, loss=ce, diag=CE)

@case("https://github.com/Farama-Foundation/Gymnasium/issues/1336", "REINFORCE multiplies the MEAN log-probability with the sum of the returns", "loss")
def gym_reinforce_mean(planted):
    def model():
        return M(lambda s, x: s.net(x), net=nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4)))
    W = T(3, 8, 4)
    def data(seed):
        x = T(seed, 64, 8); a = R(seed + 1, 4, (64,)); r = (a == (x @ W).argmax(1)).float() * 2 + .1; return x, torch.stack([a.float(), r], 1)
    def loss(o, t):
        lp = o.log_softmax(-1).gather(1, t[:, :1].long()).squeeze(1)
        return -(lp.mean() * t[:, 1]).mean() if planted else -(lp * t[:, 1]).mean()
    return dict(model=model, data=data, loss=loss)

@case("https://github.com/MrLeeeee/GCN-GAT-and-Graphsage/issues/3", "mean over neighbours divides by a degree of 0: NaN", "aggregation")
def sage_zero_degree(planted):
    n = 150; y0 = R(1, 4, (n,)); g = gen(2); A = (torch.rand(n, n, generator=g) < torch.where(y0[:, None] == y0[None], .12, .01)).float(); A = ((A + A.T) > 0).float(); A.fill_diagonal_(0.); A[:5] = 0; A[:, :5] = 0
    deg = A.sum(1, keepdim=True); P = T(3, 4, 20)
    def model():
        def agg(s, h): return (s.A @ h) / (s.deg if planted else s.deg + 1e-5)
        def f(s, x):
            h = F.relu(s.l1(torch.cat([x, agg(s, x)], 1))); return s.l2(torch.cat([h, agg(s, h)], 1))
        return M(f, A=A, deg=deg, l1=nn.Linear(40, 32), l2=nn.Linear(64, 4))
    def data(seed): return P[y0] * .3 + T(seed, n, 20), y0
    return dict(model=model, data=data, loss=ce, diag=dict(loss="cross-entropy", examples="one"))

@case("https://github.com/didriknielsen/survae_flows/pull/12", "log(1 - tanh²) of large inputs is -inf in the flow's log-determinant", "tanh bijection")
def survae_tanh_ldj(planted):
    class Coup(nn.Module):
        def __init__(s, flip): super().__init__(); s.flip = flip; s.net = nn.Sequential(nn.Linear(1, 32), nn.ReLU(), nn.Linear(32, 2))
        def forward(s, x):
            a, b = x.chunk(2, 1); a, b = (b, a) if s.flip else (a, b); t, c = s.net(a / 5).chunk(2, 1); c = torch.tanh(c); b = b * c.exp() + t; return torch.cat([b, a] if s.flip else [a, b], 1), c.sum(1)
    def model():
        def f(s, x):
            l = 0
            for k in s.c: x, d = k(x); l = l + d
            x = x * s.ls.exp(); l = l + s.ls.sum()
            if planted: z = torch.tanh(x); l = l + torch.log(1 - z ** 2).sum(1)
            else: l = l + (2 * (math.log(2) - x - F.softplus(-2 * x))).sum(1)
            return l - 2 * math.log(2)
        return M(f, c=nn.ModuleList([Coup(i % 2) for i in range(4)]), ls=nn.Parameter(torch.zeros(2)))
    def data(seed):
        a = T(seed, 128, 1) * 4; return torch.cat([a, a ** 2 / 6 + T(seed + 1, 128, 1)], 1), torch.zeros(128)
    return dict(model=model, data=data, loss=lambda o, t: -o.mean())

class Lora(nn.Module):
    def __init__(s, i, o, g, zeroA):
        super().__init__(); s.base = nn.Linear(i, o); s.base.weight.data = torch.randn(o, i, generator=g) / i ** .5; s.base.bias.data.zero_(); s.base.requires_grad_(False)
        s.A, s.B = nn.Parameter(torch.empty(4, i)), nn.Parameter(torch.zeros(o, 4)); nn.init.kaiming_uniform_(s.A, a=5 ** .5)
        if zeroA: nn.init.zeros_(s.A)
    def forward(s, x): return s.base(x) + 2 * (x @ s.A.T) @ s.B.T

@case("https://github.com/nvidia-cosmos/cosmos-predict2.5/pull/15", "LoRA added before the weights are initialised: lora_A is zero as well as lora_B", "lora A / B")
def cosmos_lora_zero(planted):
    def model():
        g = gen(5); return M(lambda s, x: s.b(F.gelu(s.a(x))), a=Lora(24, 64, g, planted), b=Lora(64, 12, g, planted))
    g = gen(5); W1 = torch.randn(64, 24, generator=g) / 24 ** .5; W2 = torch.randn(12, 64, generator=g) / 8; D1 = T(6, 64, 2) @ T(7, 2, 24) * .15; D2 = T(8, 12, 2) @ T(9, 2, 64) * .12
    def data(seed): x = T(seed, 64, 24); return x, F.gelu(x @ (W1 + D1).T) @ (W2 + D2).T
    return dict(model=model, data=data, loss=mse)

@case("https://github.com/XPixelGroup/HAT/issues/132", "output forced into [0, 1] by assignment: all ones or zeros, training stops", "clamp at the end")
def hat_clamp_output(planted):
    def model():
        def f(s, x):
            h = s.first(x); h = h + s.body(h); y = s.last(F.pixel_shuffle(s.up(h), 2))
            if planted: y = torch.where(y < 0, torch.zeros(()), y); y = torch.where(y > 1, torch.ones(()), y)
            return y
        m = M(f, first=nn.Conv2d(1, 24, 3, padding=1), body=nn.Sequential(nn.Conv2d(24, 24, 3, padding=1), nn.GELU(), nn.Conv2d(24, 24, 3, padding=1)), up=nn.Conv2d(24, 96, 3, padding=1), last=nn.Conv2d(24, 1, 3, padding=1))
        return m
    def data(seed):
        hr = F.interpolate(torch.rand(16, 1, 6, 6, generator=gen(seed)), size=20, mode="bicubic").clamp(0, 1); return F.avg_pool2d(hr, 2), hr
    return dict(model=model, data=data, loss=lambda o, t: F.l1_loss(o, t))
