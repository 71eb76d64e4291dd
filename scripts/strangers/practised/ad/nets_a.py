from base import *

def chain(seed, B, T, V, p=.9, pseed=5):
    g = gen(seed); perm = torch.randperm(V, generator=gen(pseed)); x = torch.randint(0, V, (B, 1), generator=g); out = [x]
    for _ in range(T - 1):
        nxt = perm[out[-1]]; r = torch.randint(0, V, (B, 1), generator=g); keep = torch.rand(B, 1, generator=g) < p
        out.append(torch.where(keep, nxt, r))
    return torch.cat(out, 1)

@case("https://github.com/thomasgauthier/csm-hf/issues/6", "hidden state of the frame itself (not of the one before) predicts the frame", "h[valid_frame_indices]")
def csm_frame_hidden(planted):
    V, T_ = 16, 12
    class CSM(nn.Module):
        def __init__(self):
            super().__init__()
            self.audio_embeddings = nn.Embedding(V, 32); self.backbone = nn.GRU(32, 64, batch_first=True)
            self.projection = nn.Linear(64, 64); self.codebook0_head = nn.Linear(64, V)
        def forward(self, tokens):
            h, _ = self.backbone(self.audio_embeddings(tokens))
            idx = torch.arange(1, tokens.shape[1])
            valid = h[:, idx] if planted else h[:, idx - 1]
            return self.codebook0_head(F.relu(self.projection(valid)))
    def data(seed): x = chain(seed, 32, T_, V); return x, x[:, 1:]
    def metric(model):
        x = chain(9000, 64, T_, V); y = x.clone(); y[:, -1] = 0
        with torch.no_grad(): return F.cross_entropy(model(y)[:, -1], x[:, -1])
    return dict(model=CSM, data=data, loss=ceseq, lr=3e-3, metric=metric, diag={})

@case("https://github.com/ayaka14732/bart-base-jax/pull/6", "decoder input and labels aligned at the same position: model copies", "labels = dst[:, :-1]")
def bart_labels(planted):
    V = 16
    class Bart(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(V, 48); self.pos = nn.Embedding(16, 48)
            self.encoder = nn.TransformerEncoderLayer(48, 4, 96, 0., batch_first=True); self.decoder = nn.TransformerDecoderLayer(48, 4, 96, 0., batch_first=True)
            self.lm_head = nn.Linear(48, V)
        def forward(self, src, dst):
            p = lambda n: self.pos(torch.arange(n))
            m = torch.triu(torch.ones(dst.shape[1], dst.shape[1], dtype=torch.bool), 1)
            enc = self.encoder(self.embed(src) + p(src.shape[1]))
            return self.lm_head(self.decoder(self.embed(dst) + p(dst.shape[1]), enc, tgt_mask=m))
    def data(seed):
        dst = chain(seed, 32, 9, V); src = dst[:, :6].flip(1)
        return (src, dst[:, :-1]), (dst[:, :-1] if planted else dst[:, 1:])
    return dict(model=Bart, data=data, loss=ceseq, lr=1e-3, diag={})

@case("https://github.com/mpariente/pytorch_stoi/pull/14", "EPS added after the square root: infinite gradient at silent bands", "loss: sqrt(band energy) + EPS")
def stoi_eps(planted):
    EPS = 1e-9; OBM = (torch.arange(33)[None] // 3 == torch.arange(11)[:, None]).float()
    class MaskNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Conv1d(33, 64, 3, padding=1), nn.ReLU(), nn.Conv1d(64, 64, 3, padding=1), nn.ReLU(), nn.Conv1d(64, 33, 1), nn.Sigmoid())
        def forward(self, mag): return self.net(mag) * mag
    def tob(mag):
        e = torch.matmul(OBM, mag ** 2)
        return e.sqrt() + EPS if planted else (e + EPS).sqrt()
    def loss(o, t):
        a, b = tob(o), tob(t); a = a - a.mean(-1, keepdim=True); b = b - b.mean(-1, keepdim=True)
        return -(F.normalize(a, dim=-1, eps=1e-6) * F.normalize(b, dim=-1, eps=1e-6)).sum(-1).mean()
    def data(seed):
        k = T(3, 33, 4); c = (k @ T(seed, 16, 4, 40)).abs(); c[:, :, ::7] = 0
        n = T(seed + 1, 16, 33, 40).abs() * 2.; n[:, :, ::7] = 0
        return c + n, c
    return dict(model=MaskNet, data=data, loss=loss, lr=1e-3, diag={})

@case("https://github.com/spragunr/deep_q_rl/issues/46", "TD error is clipped before squaring: zero gradient for large errors", "loss: diff.clip(-1, 1)")
def dqn_clip(planted):
    class QNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(4, 16, 4, 2); self.conv2 = nn.Conv2d(16, 32, 3); self.fc = nn.Linear(32 * 9, 64); self.out = nn.Linear(64, 4)
        def forward(self, s): return self.out(F.relu(self.fc(F.relu(self.conv2(F.relu(self.conv1(s)))).flatten(1))))
    def loss(q, t):
        a, y = t; diff = y - q.gather(1, a[:, None])[:, 0]
        if planted: diff = diff.clip(-1, 1); return .5 * (diff ** 2).mean()
        quad = diff.abs().clip(max=1.); return (.5 * quad ** 2 + (diff.abs() - quad)).mean()
    w = T(7, 4 * 144, 4, k=.1)
    def data(seed): x = T(seed, 32, 4, 12, 12); a = R(seed + 1, 4, (32,)); return x, (a, 10 + 2 * (x[:, :, :, :].mean((2, 3)) * 12 @ w[:4] * 10).gather(1, a[:, None])[:, 0])
    return dict(model=QNet, data=data, loss=loss, lr=1e-3, diag={})

def vae_data(seed, D=32, r=6): return (lambda x: (x, x))(torch.tanh(T(seed, 64, r) @ T(11, r, D, k=.6)) * 1.5)

@case("https://github.com/GlassyWing/nvae/issues/3", "torch.sum without dim: the KL of the residual latent is summed over the batch", "loss: kl_2")
def nvae_kl2(planted):
    class NVAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc = nn.Sequential(nn.Linear(32, 64), nn.SiLU()); self.z1 = nn.Linear(64, 4); self.h = nn.Sequential(nn.Linear(2, 32), nn.SiLU())
            self.prior = nn.Linear(32, 16); self.delta = nn.Linear(96, 16); self.dec = nn.Sequential(nn.Linear(40, 64), nn.SiLU(), nn.Linear(64, 32))
        def forward(self, x):
            e = self.enc(x); mu1, lv1 = self.z1(e).chunk(2, -1); z1 = mu1 + torch.randn_like(mu1) * (.5 * lv1).exp(); h = self.h(z1)
            mu, lv = self.prior(h).chunk(2, -1); dmu, dlv = self.delta(torch.cat([e, h], -1)).chunk(2, -1)
            z2 = mu + dmu + torch.randn_like(mu) * (.5 * (lv + dlv)).exp()
            return self.dec(torch.cat([h, z2], -1)), mu1, lv1, mu, lv, dmu, dlv
    def loss(o, x):
        rec, mu1, lv1, mu, lv, dmu, dlv = o
        kl1 = -.5 * (1 + lv1 - mu1 ** 2 - lv1.exp()).sum(1).mean()
        kl2 = -.5 * (1 + dlv - dmu ** 2 / lv.exp() - dlv.exp())
        kl2 = torch.mean(torch.sum(kl2), dim=0) if planted else kl2.flatten(1).sum(-1).mean(0)
        return 5 * ((rec - x) ** 2).sum(1).mean() + kl1 + kl2
    return dict(model=NVAE, data=vae_data, loss=loss, lr=3e-3, diag={})

@case("https://github.com/Lightning-Universe/lightning-bolts/issues/328", "kl_coeff is stored but never multiplied to the KL term", "loss: kl without kl_coeff")
def bolts_klcoeff(planted):
    class VAE(nn.Module):
        def __init__(self, kl_coeff=.01):
            super().__init__()
            self.kl_coeff = kl_coeff; self.encoder = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
            self.fc_mu, self.fc_var = nn.Linear(64, 8), nn.Linear(64, 8); self.decoder = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 32))
        def forward(self, x):
            h = self.encoder(x); mu, lv = self.fc_mu(h), self.fc_var(h)
            return self.decoder(mu + torch.randn_like(mu) * (lv / 2).exp()), mu, lv
    def loss(o, x):
        rec, mu, lv = o; kl = (-.5 * (1 + lv - mu ** 2 - lv.exp())).sum(1).mean()
        return F.mse_loss(rec, x) + (kl if planted else .01 * kl)
    return dict(model=VAE, data=vae_data, loss=loss, lr=3e-3, diag={})

@case("https://github.com/dmlc/dgl/issues/2657", "padded query rows are masked with -inf everywhere: softmax NaN, gradients NaN", "attention softmax of padded rows")
def dgl_settrans(planted):
    class MHA(nn.Module):
        def __init__(self, d=32, h=4):
            super().__init__()
            self.h, self.dh = h, d // h; self.proj_q, self.proj_k, self.proj_v, self.proj_o = [nn.Linear(d, d, bias=False) for _ in range(4)]
            self.ffn = nn.Sequential(nn.Linear(d, 64), nn.ReLU(), nn.Linear(64, d)); self.norm_in, self.norm_inter = nn.LayerNorm(d), nn.LayerNorm(d)
        def forward(self, x, valid):
            B, N, d = x.shape; f = lambda l: l(x).view(B, N, self.h, self.dh)
            e = torch.einsum("bxhd,byhd->bhxy", f(self.proj_q), f(self.proj_k)) / self.dh ** .5
            mask = (valid[:, :, None] & valid[:, None, :])[:, None]
            e = e.masked_fill(~mask, -float("inf")); alpha = torch.softmax(e, -1)
            if not planted: alpha = alpha.masked_fill(~mask, 0.)
            o = torch.einsum("bhxy,byhd->bxhd", alpha, f(self.proj_v)).reshape(B, N, d)
            o = torch.zeros(B, N, d).index_put((valid,), o[valid])
            x = self.norm_in(x + self.proj_o(o)); return self.norm_inter(x + self.ffn(x))
    class SetTransformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inp = nn.Linear(8, 32); self.layers = nn.ModuleList([MHA(), MHA()]); self.out = nn.Linear(32, 4)
        def forward(self, x, valid):
            h = self.inp(x)
            for l in self.layers: h = l(h, valid)
            h = torch.stack([hi[v].mean(0) for hi, v in zip(h, valid)])
            return self.out(h)
    def data(seed):
        n = R(seed + 1, 6, (32, 1)) + 4; valid = torch.arange(10)[None] < n; x = T(seed, 32, 10, 8) + T(seed + 2, 32, 1, 8)
        return (x, valid), ((x * valid[..., None]).sum(1) @ T(4, 8, 4)).argmax(1)
    return dict(model=SetTransformer, data=data, loss=ce, lr=1e-3, diag={})

class SigSurr(torch.autograd.Function):
    planted = False
    @staticmethod
    def forward(ctx, x, bad): ctx.save_for_backward(x); ctx.bad = bad; return (x > 0).float()
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors; k = 25
        if ctx.bad: return g * k * torch.exp(-k * x) / ((torch.exp(-k * x) + 1) ** 2), None
        s = torch.sigmoid(k * x); return g * k * s * (1 - s), None

@case("https://github.com/jeshraghian/snntorch/pull/433", "surrogate gradient exp(-kx)/(exp(-kx)+1)^2 overflows: inf/inf = NaN", "Sigmoid surrogate backward")
def snn_sigmoid(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1 = nn.Linear(40, 64); self.fc2 = nn.Linear(64, 5); self.beta = .9
        def forward(self, x):
            m1 = torch.zeros(len(x), 64); m2 = torch.zeros(len(x), 5); out = 0
            for _ in range(10):
                m1 = self.beta * m1 + self.fc1(x); s1 = SigSurr.apply(m1 - 1, planted); m1 = m1 - s1.detach()
                m2 = self.beta * m2 + self.fc2(s1); out = out + m2
            return out / 10
    def data(seed): x = T(seed, 32, 40); return x, (x @ T(3, 40, 5)).argmax(1)
    return dict(model=Net, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/kohya-ss/sd-scripts/issues/91", "checkpointed blocks get an input that needs no gradient: their LoRA is not trained", "text encoder LoRA / checkpoint input")
def sdscripts_ckpt(planted):
    from torch.utils.checkpoint import checkpoint
    class LoRA(nn.Module):
        def __init__(self, i, o, r=8):
            super().__init__()
            self.org = nn.Linear(i, o).requires_grad_(False); self.lora_down = nn.Linear(i, r, bias=False); self.lora_up = nn.Linear(r, o, bias=False); nn.init.zeros_(self.lora_up.weight)
        def forward(self, x): return self.org(x) + self.lora_up(self.lora_down(x))
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln = nn.LayerNorm(32).requires_grad_(False); self.fc1, self.fc2 = LoRA(32, 64), LoRA(64, 32)
        def forward(self, x): return x + self.fc2(F.gelu(self.fc1(self.ln(x))))
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embeddings = nn.Embedding(20, 32).requires_grad_(False); self.te = nn.ModuleList([Block(), Block()]); self.unet = nn.Sequential(LoRA(32, 16, 2), nn.SiLU(), LoRA(16, 6, 2))
        def forward(self, ids):
            h = self.embeddings(ids)
            if not planted: h.requires_grad_(True)
            for b in self.te: h = checkpoint(b, h, use_reentrant=True)
            return self.unet(h.mean(1))
    def data(seed): x = R(seed, 20, (32, 5)); return x, T(8, 20, 6)[x].sum(1).argmax(1)
    return dict(model=Net, data=data, loss=ce, lr=1e-2, diag={})
