from kbase import *
# ---------- RealNVP
class Coupling(nn.Module):
    def __init__(s, d, mask, v):
        super().__init__(); s.register_buffer("mask", mask); s.v = v
        mk = lambda: nn.Sequential(nn.Linear(d, 64), nn.LeakyReLU(), nn.Linear(64, 64), nn.LeakyReLU(), nn.Linear(64, d))
        s.s, s.t = mk(), mk()
        if v == "sraw": nn.init.normal_(s.s[-1].weight, std=1.0)
    def forward(s, x):
        m = s.mask; xm = x * m; sc = s.s(xm) * (1 - m); t = s.t(xm) * (1 - m)
        if s.v != "sraw": sc = torch.tanh(sc)
        return xm + (1 - m) * (x - t) * torch.exp(-sc), -sc.sum(1)
class RealNVP(nn.Module):
    def __init__(s, v):
        super().__init__(); s.v = v; m = torch.tensor([1., 1, 1, 0, 0, 0])
        s.layers = nn.ModuleList(Coupling(6, m if i % 2 == 0 or v == "mask" else 1 - m, v) for i in range(6))
    def forward(s, x):
        ld = 0
        for l in s.layers: x, d = l(x); ld = ld + d
        lp = -0.5 * (x ** 2 + math.log(2 * math.pi)); lp = lp.mean(1) if s.v == "prior" else lp.sum(1)
        return lp - ld if s.v == "logdet" else lp + ld
@net(logdet=("log-determinant subtracted, not added", "log_det/loss"), sraw=("scale net without tanh and last layer N(0,1)", "layers.*.s"),
     mask=("same mask in every coupling layer", "layers.*.mask"), prior=("prior log-prob averaged over dims, log-det summed", "loss/prior"))
def realnvp(v):
    def data(s):
        g = gen(s); z = N(g, 64, 6); a = z[:, :3] * torch.tensor([.3, 2., .2]); b = torch.sin(2 * z[:, :3]) + .1 * z[:, 3:]; return torch.cat([a, b], 1), None
    return dict(model=lambda: RealNVP(v), data=data, loss=lambda o, t: -o.mean(), twin=v in ("logdet", "prior", "mask0"))
# ---------- beta-VAE
class VAE(nn.Module):
    def __init__(s, v):
        super().__init__(); s.v = v
        s.enc = nn.Sequential(nn.Conv2d(1, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 4, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 64), nn.ReLU())
        s.fc_mu, s.fc_lv = nn.Linear(64, 4), nn.Linear(64, 4); s.fc = nn.Linear(4, 512)
        s.dec = nn.Sequential(nn.ReLU(), nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 1, 4, 2, 1))
    def forward(s, x):
        h = s.enc(x); mu, lv = s.fc_mu(h), s.fc_lv(h); z = mu + torch.randn_like(mu) * torch.exp(.5 * lv)
        if s.v == "detach": z = z.detach()
        if s.v == "mixbatch": z = z.t().reshape(z.shape)
        y = s.dec(s.fc(z).view(-1, 32, 4, 4))
        if s.v == "sigtwice": y = torch.sigmoid(y)
        return y, mu, lv
@net(detach=("z detached before the decoder", "fc_mu/enc"), sigtwice=("sigmoid before BCE with logits", "dec/loss"),
     recmean=("reconstruction averaged over pixels, KL summed (x beta): collapse", "loss/fc_mu"), klsign=("sign of the KL wrong", "loss/fc_lv"))
def betavae(v):
    def data(s):
        g = gen(s); th = U(g, 32, 1, 1) * 2 * math.pi; o = N(g, 32, 1, 1) * .4; c = torch.linspace(-1, 1, 16)
        x = torch.sigmoid(20 * (c[None, :, None] * th.sin() + c[None, None] * th.cos() - o * .5))[:, None]; return x, x
    def loss(o, t):
        y, mu, lv = o; kl = -.5 * (1 + lv - mu ** 2 - lv.exp()).sum(1).mean()
        r = F.binary_cross_entropy_with_logits(y, t, reduction="sum") / t.shape[0]
        if v == "recmean": r = r / 256; kl = 4 * kl
        if v == "klsign": kl = -kl * 10
        return r + kl
    return dict(model=lambda: VAE(v), data=data, loss=loss)
# ---------- U-Net, Dice
class DC(nn.Sequential):
    def __init__(s, i, o): super().__init__(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.Conv2d(o, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())
class UNet(nn.Module):
    def __init__(s, v):
        super().__init__(); s.v = v; s.d1, s.d2, s.d3 = DC(1, 12), DC(12, 24), DC(24, 48)
        s.up2, s.u2 = nn.ConvTranspose2d(48, 24, 2, 2), DC(48, 24); s.up1, s.u1 = nn.ConvTranspose2d(24, 12, 2, 2), DC(24, 12); s.out = nn.Conv2d(12, 1, 1)
        if v == "zero":
            for m in s.modules():
                if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)): nn.init.constant_(m.weight, 0.); nn.init.constant_(m.bias, 0.)
    def forward(s, x):
        a = s.d1(x); b = s.d2(F.max_pool2d(a, 2)); c = s.d3(F.max_pool2d(b, 2))
        y = s.u2(torch.cat([s.up2(c), b], 1)); y = s.out(s.u1(torch.cat([s.up1(y), a], 1)))
        if s.v == "relu": y = F.relu(y - 1)
        return torch.softmax(y, 1) if s.v == "softmax1" else torch.sigmoid(y)
@net(softmax1=("softmax over the single channel", "out"), zero=("all convolutions initialised with zeros", "d1"), relu=("ReLU(y-1) before the sigmoid: p >= .5, dead", "out"),
     dicesign=("loss returns the Dice score instead of 1 - Dice", "loss"))
def unetdice(v):
    def data(s):
        g = gen(s); c = torch.arange(32.); m = torch.zeros(16, 1, 32, 32)
        for _ in range(3):
            x0, y0, r = U(g, 16, 1, 1) * 32, U(g, 16, 1, 1) * 32, 2 + U(g, 16, 1, 1) * 3
            m[:, 0] = torch.maximum(m[:, 0], (((c[None, :, None] - y0) ** 2 + (c[None, None] - x0) ** 2) < r ** 2).float())
        x = N(g, 16, 1, 32, 32); return torch.where(m > 0, x * .2 + .3, x), m
    def loss(o, t):
        i = (o * t).sum((1, 2, 3)); d = (2 * i + 1) / (o.sum((1, 2, 3)) + t.sum((1, 2, 3)) + 1); return d.mean() if v == "dicesign" else 1 - d.mean()
    return dict(model=lambda: UNet(v), data=data, loss=loss)
# ---------- CenterNet
class Center(nn.Module):
    def __init__(s, v):
        super().__init__(); s.v = v; cb = lambda i, o, st: nn.Sequential(nn.Conv2d(i, o, 3, st, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU())
        s.body = nn.Sequential(cb(3, 16, 2), cb(16, 32, 2), cb(32, 32, 1)); hd = lambda o: nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, o, 1))
        s.hm, s.wh = hd(2), hd(2); nn.init.constant_(s.hm[-1].bias, -2.19)
        if v == "relu": s.hm.append(nn.ReLU())
    def forward(s, x):
        h = s.body(x); y = s.hm(h)
        if s.v == "sig2": y = torch.sigmoid(y)
        return y, s.wh(h)
@net(sig2=("sigmoid in the head and again in the loss", "hm"), relu=("ReLU after the last heatmap convolution (bias -2.19)", "hm"), posneg=("positives and negatives swapped in the focal loss", "loss"),
     xy=("heatmap target with x and y exchanged", "targets"))
def centernet(v):
    def data(s):
        g = gen(s); x = N(g, 16, 3, 32, 32) * .3; hm = torch.zeros(16, 2, 8, 8); wh = torch.zeros(16, 2, 8, 8); c = torch.arange(8.)
        for b in range(16):
            for k in range(2):
                i, j, r = int(I(g, 8, 1)), int(I(g, 8, 1)), 2 + int(I(g, 4, 1)); cy, cx = i * 4 + 2, j * 4 + 2
                x[b, k, max(0, cy - r):cy + r, max(0, cx - r):cx + r] += 2
                if v == "xy": i, j = j, i
                hm[b, k] = torch.maximum(hm[b, k], torch.exp(-((c[:, None] - i) ** 2 + (c[None] - j) ** 2) / 1.)); wh[b, :, i, j] = r / 4
        return x, (hm, wh)
    def loss(o, t):
        y, w = o; hm, wh = t; p = torch.sigmoid(y).clamp(1e-4, 1 - 1e-4); pos, neg = hm.eq(1).float(), hm.lt(1).float()
        if v == "posneg": pos, neg = neg, pos
        l = -(torch.log(p) * (1 - p) ** 2 * pos + torch.log(1 - p) * p ** 2 * (1 - hm) ** 4 * neg).sum() / (hm.eq(1).float().sum() + 1e-4)
        m = (wh > 0).float(); return l + .1 * (F.l1_loss(w * m, wh * m, reduction="sum") / (m.sum() + 1e-4))
    return dict(model=lambda: Center(v), data=data, loss=loss)
# ---------- SchNet
class SSP(nn.Module):
    def forward(s, x): return F.softplus(x) - math.log(2)
class Sch(nn.Module):
    def __init__(s, v):
        super().__init__(); s.v = v; s.emb = nn.Embedding(4, 32); s.register_buffer("mu", torch.linspace(0, 5, 20)); s.gamma = 10.
        s.filt = nn.ModuleList(nn.Sequential(nn.Linear(20, 32), SSP(), nn.Linear(32, 32)) for _ in range(2))
        s.lin = nn.ModuleList(nn.Linear(32, 32) for _ in range(2)); s.upd = nn.ModuleList(nn.Sequential(nn.Linear(32, 32), SSP(), nn.Linear(32, 32)) for _ in range(2))
        s.out = nn.Sequential(nn.Linear(32, 16), SSP(), nn.Linear(16, 1))
    def forward(s, z, r):
        if s.v == "units": r = r * .01
        d = ((r[:, :, None] - r[:, None]) ** 2).sum(-1).clamp(min=1e-12).sqrt(); e = torch.exp(-s.gamma * (d[..., None] - s.mu) ** 2)
        eye = torch.eye(z.shape[1]); c = .5 * (torch.cos(math.pi * d / 5) + 1) * (d < 5)
        w = c * (eye if s.v == "self" else 1 - eye); x = s.emb(z)
        for f, l, u in zip(s.filt, s.lin, s.upd):
            x = x + u(torch.einsum("bijc,bjc->bic", f(e) * w[..., None], l(x)))
        y = s.out(x).mean(1)
        if s.v == "relu": y = F.relu(y)
        return y if s.v == "squeeze" else y.squeeze(-1)
@net(units=("positions in other units (x .01): all RBFs alike", "mu/filt"), self=("neighbour mask inverted: messages from itself only", "filt/mask"),
     relu=("ReLU at the end, energies normalised", "out"), squeeze=("prediction (B,1) against targets (B)", "out/loss"))
def schnet(v):
    def data(s):
        g = gen(s); z = I(g, 4, 32, 6); r = N(g, 32, 6, 3) * 1.3; d = (r[:, :, None] - r[:, None] + 1e-6).norm(dim=-1); q = torch.tensor([-1., -.5, .5, 1.])[z]
        e = ((1 + q[:, :, None] * q[:, None]) * torch.exp(-d) * (1 - torch.eye(6))).sum((1, 2)); return (z, r), (e - 2.85) / 1.4
    return dict(model=lambda: Sch(v), data=data, loss=lambda o, t: F.mse_loss(o, t))
# ---------- dueling DQN
class Duel(nn.Module):
    def __init__(s, v):
        super().__init__(); s.v = v; s.conv = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(128, 64), nn.ReLU())
        s.val = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1)); s.adv = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 4))
    def forward(s, x):
        h = s.conv(x); a = s.adv(h); q = s.val(h) + a - a.mean(1, keepdim=True)
        return F.relu(q) if s.v == "relu" else torch.tanh(q) if s.v == "tanh" else q
@net(relu=("ReLU on the Q values, returns negative", "val/adv"), tanh=("tanh on the Q values, returns to -14", "val/adv"), index=("q[:, a] instead of gather: (B,B)", "loss"),
     clip=("returns clipped to [-1, 1] as rewards are", "targets"))
def dueling(v):
    def data(s):
        g = gen(s); n = 64; p = I(g, 8, n, 2); w = I(g, 8, n, 2); x = torch.zeros(n, 1, 8, 8); k = torch.arange(n); x[k, 0, w[:, 0], w[:, 1]] = 1.; x[k, 0, p[:, 0], p[:, 1]] = -1.
        a = I(g, 4, n); mv = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])[a]; return x, (a, -((p + mv - w).abs().sum(1)).float())
    def loss(o, t):
        a, q = t; y = o[:, a] if v == "index" else o.gather(1, a[:, None])[:, 0]
        if v == "index": q = q.expand_as(y).t()
        if v == "clip": q = q.clamp(-1, 1)
        return F.smooth_l1_loss(y, q)
    return dict(model=lambda: Duel(v), data=data, loss=loss)
