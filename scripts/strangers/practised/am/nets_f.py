from base import *

# ---------- 15 CoDA-NO ----------
class Spec1d(nn.Module):
    def __init__(s, i, o, modes=8):
        super().__init__(); s.m = modes; s.w = nn.Parameter(torch.randn(i, o, modes, 2) * (1 / (i + o)) ** .5)
    def forward(s, x):
        f = torch.fft.rfft(x, norm="forward"); y = torch.zeros(len(x), s.w.shape[1], f.shape[-1], dtype=f.dtype)
        y[..., :s.m] = torch.einsum("bim,iom->bom", f[..., :s.m], torch.view_as_complex(s.w))
        return torch.fft.irfft(y, n=x.shape[-1], norm="forward")
class FNOBlocks(nn.Module):
    def __init__(s, c, n_layers):
        super().__init__(); s.n_layers = n_layers
        s.convs = nn.ModuleList([Spec1d(c, c) for _ in range(n_layers)]); s.skips = nn.ModuleList([nn.Conv1d(c, c, 1) for _ in range(n_layers)])
    def forward(s, x, index=0): return F.gelu(s.convs[index](x) + s.skips[index](x))
class CODALayer(nn.Module):
    def __init__(s, planted, d, n_layers=2, heads=2):
        super().__init__(); s.planted, s.d, s.h = planted, d, heads
        s.norm1, s.attention_normalizer, s.mixer_in_normalizer, s.mixer_out_normalizer = (nn.InstanceNorm1d(d, affine=True) for _ in range(4))
        s.Key, s.Query, s.Value = Spec1d(d, d * heads), Spec1d(d, d * heads), Spec1d(d, d * heads)
        s.multi_head_proj = Spec1d(d * heads, d); s.mixer = FNOBlocks(d, n_layers)
    def att(s, x, b):
        t = len(x) // b
        k, q, v = (f(x).view(b, t, s.h, -1).transpose(1, 2) for f in (s.Key, s.Query, s.Value))
        a = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(k.shape[-1]), -1) @ v
        return a.transpose(1, 2).reshape(b * t, s.d * s.h, -1)
    def forward(s, x):  # (b, t, d, n)
        b, t, d, n = x.shape; tokens = x.reshape(b * t, d, n)
        attention = s.attention_normalizer(s.multi_head_proj(s.att(s.norm1(tokens), b)) + tokens)
        output = s.mixer_in_normalizer(attention)
        if s.planted: output = s.mixer(output)
        else:
            for i in range(s.mixer.n_layers): output = s.mixer(output, index=i)
        return (s.mixer_out_normalizer(output) + attention).view(b, t, d, n)
class CODANO(nn.Module):
    def __init__(s, planted, d=12):
        super().__init__(); s.lift = nn.Conv1d(2, d, 1); s.layers = nn.ModuleList([CODALayer(planted, d) for _ in range(2)]); s.proj = nn.Sequential(nn.Conv1d(d, 32, 1), nn.GELU(), nn.Conv1d(32, 1, 1))
    def forward(s, x):  # (b, t, n)
        b, t, n = x.shape; grid = torch.linspace(-1.7, 1.7, n).expand(b * t, 1, n)
        y = s.lift(torch.cat([x.reshape(b * t, 1, n), grid], 1)).view(b, t, -1, n)
        for l in s.layers: y = l(y)
        return s.proj(y.reshape(b * t, -1, n)).view(b, t, n)
def pde_data(seed):
    g = gen(seed); B, t, n = 16, 2, 32; s_ = torch.arange(n) / n * 2 * math.pi
    a, ph = torch.randn(B, t, 4, generator=g), torch.rand(B, t, 4, generator=g) * 6.28
    k = torch.arange(1, 5)[:, None]
    u = (a[..., None] * torch.sin(k * s_ + ph[..., None]) / k).sum(2); u = u / .85
    du = (a[..., None] * torch.cos(k * s_ + ph[..., None])).sum(2) / 1.4
    y = torch.stack([du[:, 0] + .7 * torch.sin(u[:, 1]), du[:, 1] - .7 * torch.sin(u[:, 0])], 1)
    return u, y / 1.1
@case("https://github.com/neuraloperator/neuraloperator/pull/536",
      "CODALayer calls its mixer (n_layers FNO blocks) once with the default index 0: the other mixer layers are never used", "mixer layers 1.. never used")
def coda_mixer(planted):
    return dict(model=lambda: CODANO(planted), data=pde_data, loss=mse, lr=5e-3, diag={})

# ---------- 16 WaveNet with mixture of logistics ----------
class CausalWN(nn.Module):
    def __init__(s, c=24, layers=5, nr_mix=3):
        super().__init__(); s.first = nn.Conv1d(1, c, 1)
        s.conv = nn.ModuleList([nn.Conv1d(c, 2 * c, 2, dilation=2 ** i) for i in range(layers)]); s.out = nn.ModuleList([nn.Conv1d(c, c, 1) for _ in range(layers)]); s.skip = nn.ModuleList([nn.Conv1d(c, c, 1) for _ in range(layers)])
        s.l1, s.l2 = nn.Conv1d(c, c, 1), nn.Conv1d(c, 3 * nr_mix, 1)
    def forward(s, x):
        h, sk = s.first(x), 0
        for i, (cv, o, k) in enumerate(zip(s.conv, s.out, s.skip)):
            a, b = cv(F.pad(h, (2 ** i, 0))).chunk(2, 1); z = torch.tanh(a) * torch.sigmoid(b)
            sk = sk + k(z); h = (h + o(z)) * math.sqrt(.5)
        return s.l2(F.relu(s.l1(F.relu(sk))))
def mol(planted, num_classes=256, log_scale_min=-7.0):
    def loss(y_hat, y):
        y_hat = y_hat.transpose(1, 2); nm = y_hat.shape[-1] // 3; y = y.transpose(1, 2)
        logit_probs, means, ls = y_hat[..., :nm], y_hat[..., nm:2 * nm], y_hat[..., 2 * nm:].clamp(min=log_scale_min)
        y = y.expand_as(means); c = y - means; inv = torch.exp(-ls)
        plus_in, min_in = inv * (c + 1. / (num_classes - 1)), inv * (c - 1. / (num_classes - 1))
        cdf_delta = torch.sigmoid(plus_in) - torch.sigmoid(min_in); lcp, lomcm = plus_in - F.softplus(plus_in), -F.softplus(min_in)
        mid = inv * c; log_pdf_mid = mid - ls - 2. * F.softplus(mid)
        ii = (cdf_delta > 1e-5).float(); inner = ii * torch.log(cdf_delta.clamp(min=1e-12)) + (1 - ii) * (log_pdf_mid - math.log((num_classes - 1) / 2))
        ic = (y > .999).float(); inner = ic * lomcm + (1 - ic) * inner
        cc = (y < -.999).float(); lp = cc * lcp + (1 - cc) * inner
        if planted: lp = lp.sum(-1, keepdim=True) + F.log_softmax(logit_probs, -1)
        else: lp = lp + F.log_softmax(logit_probs, -1)
        return -torch.logsumexp(lp, -1).mean()
    return loss
def audio_data(seed):
    g = gen(seed); B, L = 16, 64; n = torch.arange(L + 1).float()
    f = torch.rand(B, 2, 1, generator=g) * .6 + .1; ph = torch.rand(B, 2, 1, generator=g) * 6.28
    w = (torch.sin(f * n + ph) * torch.tensor([[.5], [.3]])).sum(1) + .01 * torch.randn(B, L + 1, generator=g)
    w = torch.where(torch.rand(B, L + 1, generator=g) < .15, w * .3, w)  # dropouts: two modes
    return w[:, None, :-1] / .41, w[:, None, 1:].clamp(-.99, .99)
@case("https://github.com/r9y9/wavenet_vocoder/commit/80675e1ed134cd0bf8d797fe23433e84639a5ea3",
      "mixture-of-logistics loss sums the log probabilities over the mixture components before adding the log weights (a product of experts)", "the loss: sum over the mixtures; the mixture logits get no gradient")
def wavenet_mol(planted):
    return dict(model=CausalWN, data=audio_data, loss=mol(planted), lr=3e-3, diag={}, judge=lambda m, x, t: mol(False)(m(x), t))

# ---------- 17 NFM ----------
class FeaturesLinear(nn.Module):
    def __init__(s, dims): super().__init__(); s.fc = nn.Embedding(sum(dims), 1); s.bias = nn.Parameter(torch.zeros(1)); s.register_buffer("off", torch.tensor([0, *torch.tensor(dims).cumsum(0)[:-1].tolist()]))
    def forward(s, x): return s.fc(x + s.off).sum(1) + s.bias
class LogisticRegressionModel(nn.Module):
    def __init__(s, dims): super().__init__(); s.linear = FeaturesLinear(dims)
    def forward(s, x): return torch.sigmoid(s.linear(x))
class FMx(nn.Module):
    def forward(s, x): return .5 * (x.sum(1) ** 2 - (x ** 2).sum(1))
class NFM(nn.Module):
    def __init__(s, planted, dims=(10, 10, 8, 6, 12), e=16):
        super().__init__(); s.embedding = nn.Embedding(sum(dims), e); nn.init.xavier_uniform_(s.embedding.weight); s.register_buffer("off", torch.tensor([0, *torch.tensor(dims).cumsum(0)[:-1].tolist()]))
        s.linear = LogisticRegressionModel(dims) if planted else FeaturesLinear(dims)
        s.fm = nn.Sequential(FMx(), nn.BatchNorm1d(e), nn.Dropout(.1)); s.mlp = nn.Sequential(nn.Linear(e, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(.1), nn.Linear(32, 1))
    def forward(s, x): return torch.sigmoid((s.linear(x) + s.mlp(s.fm(s.embedding(x + s.off)))).squeeze(1))
def ctr_data(seed):
    g = gen(seed); dims = (10, 10, 8, 6, 12); B = 64; x = torch.stack([torch.randint(0, d, (B,), generator=g) for d in dims], 1)
    tg = gen(8); w = [torch.randn(d, generator=tg) for d in dims]; v = [torch.randn(d, 3, generator=tg) for d in dims]
    lo = sum(w[k][x[:, k]] for k in range(5)) * 1.2 + .5 * (v[0][x[:, 0]] * v[1][x[:, 1]]).sum(1) + .5 * (v[2][x[:, 2]] * v[3][x[:, 3]]).sum(1)
    return x, torch.bernoulli(torch.sigmoid(lo * 1.3), generator=g)
@case("https://github.com/rixwew/pytorch-fm/commit/b75ea00637957d0881fa0db49068b02ca720b0f6",
      "NFM's linear term is a whole LogisticRegressionModel: its sigmoid squashes the linear part before the final sigmoid", "linear: sigmoid inside before the sum and the final sigmoid")
def nfm_linear(planted):
    return dict(model=lambda: NFM(planted), data=ctr_data, loss=nn.BCELoss(), lr=1e-2, diag={})

# ---------- 18 SEGAN discriminator ----------
class SeganD(nn.Module):
    def __init__(s, c=12):
        super().__init__()
        def cb(i, o): return nn.Sequential(nn.Conv1d(i, o, 15, 4, 7), nn.BatchNorm1d(o), nn.LeakyReLU(.3))
        s.enc = nn.Sequential(cb(2, c), cb(c, 2 * c), cb(2 * c, 2 * c)); s.fc = nn.Linear(2 * c * 2, 1)
    def D(s, a, b): return s.fc(s.enc(torch.cat([a, b], 1)).flatten(1))
    def forward(s, clean, noisy, fake, clean_shuf): return s.D(clean, noisy), s.D(fake, noisy), s.D(clean, clean_shuf)
def se_data(seed):
    g = gen(seed); B, L = 32, 128; n = torch.arange(L).float()
    f, ph, a = torch.rand(B, 1, generator=g) * .8 + .1, torch.rand(B, 1, generator=g) * 6.28, torch.rand(B, 1, generator=g) * .6 + 1.1
    c = a * torch.sin(f * n + ph); c = c[:, None]; noisy = (c + .6 * torch.randn(B, 1, L, generator=g)) / 1.17
    fake = F.avg_pool1d(F.pad(noisy, (2, 2), "reflect"), 5, 1) * 1.3
    return (c, noisy, fake, c[torch.randperm(B, generator=g)]), torch.ones(B, 1)
def segan_loss(planted):
    def loss(o, rl_lab):
        d_real, d_fake, d_fake_shuf = o; fk_lab = torch.zeros_like(rl_lab)
        d_loss = F.mse_loss(d_fake, fk_lab) + F.mse_loss(d_real, rl_lab)
        d_fake_shuf_loss = F.mse_loss(d_fake_shuf, fk_lab)
        if planted: d_loss + d_fake_shuf_loss
        else: d_loss = d_loss + d_fake_shuf_loss
        return d_loss
    return loss
@case("https://github.com/santi-pdp/segan_pytorch/commit/e583591fa315f97748ae9ee7ab6419a38339583e",
      "`d_loss + d_fake_shuf_loss` without assignment: the misaligned-pair term is not in the discriminator's loss", "the third output (d_fake_shuf) does not reach the loss")
def segan_shuf(planted):
    return dict(model=SeganD, data=se_data, loss=segan_loss(planted), lr=2e-3, diag={}, judge=lambda m, x, t: segan_loss(False)(m(*x), t))

# ---------- 19 AlphaZero Othello ----------
class Othello(nn.Module):
    def __init__(s, planted, c=32, p=.3):
        super().__init__(); s.planted = planted
        s.conv1, s.conv2, s.conv3 = nn.Conv2d(1, c, 3, 1, 1), nn.Conv2d(c, c, 3, 1, 1), nn.Conv2d(c, c, 3)
        s.bn1, s.bn2, s.bn3 = (nn.BatchNorm2d(c) for _ in range(3))
        s.fc1, s.fc_bn1, s.fc2, s.fc_bn2 = nn.Linear(c * 16, 128), nn.BatchNorm1d(128), nn.Linear(128, 64), nn.BatchNorm1d(64)
        s.fc3, s.fc4, s.p = nn.Linear(64, 37), nn.Linear(64, 1), p
    def forward(s, x):
        x = F.relu(s.bn1(s.conv1(x))); x = F.relu(s.bn2(s.conv2(x))); x = F.relu(s.bn3(s.conv3(x))).flatten(1)
        x = F.dropout(F.relu(s.fc_bn1(s.fc1(x))), s.p, s.training); x = F.dropout(F.relu(s.fc_bn2(s.fc2(x))), s.p, s.training)
        return F.log_softmax(s.fc3(x), 1), torch.sigmoid(s.fc4(x)) if s.planted else torch.tanh(s.fc4(x))
def board_data(seed):
    g = gen(seed); B = 64; b = torch.randint(-1, 2, (B, 6, 6), generator=g).float(); b = b + 0
    w = torch.randn(6, 6, generator=gen(1)); P = torch.randn(36, 37, generator=gen(2))
    v = torch.sign((b * w).sum((1, 2)) + 1e-3)
    return b[:, None] / .82, (torch.softmax(b.flatten(1) @ P * .5, 1), v)
def az_loss(o, t): return -(t[0] * o[0]).sum() / len(o[0]) + ((t[1] - o[1].view(-1)) ** 2).sum() / len(o[0])
@case("https://github.com/suragnair/alpha-zero-general/commit/0e01d3c4fa7ef8b669f3b48571a244d5f998aa58",
      "the value head ends in a sigmoid though the values are -1 / +1 (should be tanh)", "the value output's sigmoid cannot reach the targets -1")
def othello_sigmoid(planted):
    return dict(model=lambda: Othello(planted), data=board_data, loss=az_loss, lr=3e-3, diag={})

# ---------- 20 graph VAE ----------
class GCNVAE(nn.Module):
    def __init__(s, i=16, h=24, z=12):
        super().__init__(); s.w1, s.w2, s.w3 = (nn.Parameter(nn.init.xavier_uniform_(torch.empty(a, b))) for a, b in ((i, h), (h, z), (h, z)))
    def forward(s, x, adj):
        h = F.relu(adj @ (x @ s.w1)); mu, lv = adj @ (h @ s.w2), adj @ (h @ s.w3)
        z = mu + torch.randn_like(mu) * torch.exp(lv)
        return z @ z.t(), mu, lv
def gae_data(seed):
    g = gen(seed); n = 48; c = torch.arange(n) % 4
    p = torch.where(c[:, None] == c[None], .9, .02); a = (torch.rand(n, n, generator=g) < p).float().triu(1); a = a + a.t() + torch.eye(n)
    d = a.sum(1) ** -.5; x = torch.randn(4, 16, generator=gen(7))[c] * .9 + torch.randn(n, 16, generator=g) * .4
    return (x, d[:, None] * a * d[None]), a
def gae_loss(planted):
    def loss(o, lab):
        preds, mu, logvar = o; n = len(lab); e = lab.sum(); pw = (n * n - e) / e; norm = n * n / ((n * n - e) * 2)
        if planted: cost = norm * -(lab * torch.sigmoid(preds).log() * pw + (1 - lab) * torch.sigmoid(1 - preds).log()).mean()
        else: cost = norm * F.binary_cross_entropy_with_logits(preds, lab, pos_weight=pw)
        return cost - .5 / n * (1 + 2 * logvar - mu.pow(2) - logvar.exp().pow(2)).sum(1).mean()
    return loss
@case("https://github.com/zfjsail/gae-pytorch/commit/3a98122561d1a4434aea550581b8b021049d44bc",
      "the weighted cross entropy takes sigmoid(1 - output) for the negatives instead of 1 - sigmoid(output)", "the loss: sigmoid(1 - output), wrong for logits")
def gae_bce(planted):
    return dict(model=GCNVAE, data=gae_data, loss=gae_loss(planted), lr=1e-2, diag={}, judge=lambda m, x, t: gae_loss(False)(m(*x), t))
