import copy, math, torch, torch.nn as nn, torch.nn.functional as F
from harness import case, main
from nets_a import lm, V, Llama, base_lm
from nets_b import blobs
from nets_d import feats, feats_hard, views, Spike
G = lambda i: torch.Generator().manual_seed(i)
mse = lambda o, t: F.mse_loss(o, t); ce = lambda o, y: F.cross_entropy(o, y)
class LIFConv(nn.Module):  # snntorch-like rate-coded conv SNN, soft reset, learnable beta
    def __init__(self, bug): super().__init__(); self.c1, self.c2 = nn.Conv2d(1, 12, 5), nn.Conv2d(12, 24, 5); self.fc = nn.Linear(24, 4); self.beta = nn.Parameter(torch.full((3,), .8)); self.bug = bug
    def forward(self, x):
        m = [0, 0, 0]; spk = []
        for t in range(8):
            c = F.max_pool2d(self.c1(x), 2); m[0] = self.beta[0] * m[0] + c; s = Spike.apply(m[0] - .5); m[0] = m[0] - .5 * s.detach(); c = F.max_pool2d(self.c2(s), 2); m[1] = self.beta[1] * m[1] + c; s = Spike.apply(m[1] - .5); m[1] = m[1] - .5 * s.detach(); m[2] = self.beta[2] * m[2] + self.fc(s.flatten(1)); spk.append(m[2])
            if self.bug: m = [z.detach() * 0 for z in m]
        return torch.stack(spk)
@case("membrane reset to zero each step: no time integration", "beta")
def snn_conv(bug): return dict(model=lambda: LIFConv(bug), data=lambda i: ((blobs(i)[0] + 1) / 2, blobs(i)[1]), loss=lambda o, y: sum(F.cross_entropy(z, y) for z in o) / len(o), diag=dict(batch_dim=0))
class DINO(nn.Module):
    def __init__(self, bug): super().__init__(); mk = lambda: nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)); self.student = mk(); self.teacher = copy.deepcopy(self.student).requires_grad_(False); self.register_buffer("center", torch.zeros(32)); self.bug = bug
    def forward(self, a, b):
        with torch.no_grad(): t = self.teacher(torch.cat([a, b])); tt = ((t - self.center) / .04).softmax(-1); self.center.mul_(.9).add_(t.mean(0), alpha=.1)
        s = (self.student(torch.cat([b, a])) / .1).log_softmax(-1); return s, tt
    @torch.no_grad()
    def ema(self):
        for p, q in zip(self.student.parameters(), self.teacher.parameters()): q.lerp_(p, .01)
@case()
def dino(bug): return dict(model=lambda: DINO(bug), data=views, loss=lambda o, _: -(o[1] * o[0]).sum(-1).mean(), after=lambda m: m.ema())
class CLIP(nn.Module):
    def __init__(self, bug): super().__init__(); self.visual = nn.Sequential(nn.Conv2d(1, 16, 4, 4), nn.ReLU(), nn.Flatten(), nn.Linear(256, 32)); self.tok = nn.Embedding(40, 32); self.txt = nn.GRU(32, 32, batch_first=True); self.ls = nn.Parameter(torch.ones([]) * math.log(1 / .07)); self.bug = bug
    def forward(self, image, text): i = F.normalize(self.visual(image), dim=-1); t = self.txt(self.tok(text))[0]; t = F.normalize(t[:, 0] if self.bug else t[:, -1], dim=-1); l = self.ls.exp() * i @ t.t(); return l, l.t()
def cap(i, B=32): g = G(i); p = torch.rand(B, 2, generator=g); r = (torch.arange(16) + .5) / 16; im = torch.exp(-((r[None, :, None] - p[:, 1, None, None]) ** 2 + (r[None, None] - p[:, 0, None, None]) ** 2) / .02)[:, None]; q = (p * 12).long(); return dict(image=im, text=torch.stack([torch.full((B,), 39), 12 + q[:, 1], q[:, 0], torch.full((B,), 38)], 1)), torch.arange(B)
@case("text feature read at the first token (GRU: sees only BOS)", "txt output index")
def clip(bug): return dict(model=lambda: CLIP(bug), data=cap, loss=lambda o, y: (F.cross_entropy(o[0], y) + F.cross_entropy(o[1], y)) / 2, diag=dict(per="batch"))
class WGANGP(nn.Module):
    def __init__(self, bug): super().__init__(); self.f = nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(.2), nn.Linear(64, 64), nn.LeakyReLU(.2), nn.Linear(64, 1)); self.bug = bug
    def forward(self, real, fake, eps): x = (eps * real + (1 - eps) * fake).requires_grad_(True); g = torch.autograd.grad(self.f(x).sum(), x, create_graph=True)[0]; return self.f(real), self.f(fake), g.norm(2, dim=0 if self.bug else 1)
def wg(i): g = G(i); th = torch.rand(64, generator=g) * 6.28; return (torch.stack([th.cos(), th.sin()], 1) * 2, torch.randn(64, 2, generator=g), torch.rand(64, 1, generator=g)), torch.zeros(64)
@case()
def wgan_gp(bug): return dict(model=lambda: WGANGP(bug), data=wg, loss=lambda o, _: o[1].mean() - o[0].mean() + 10 * ((o[2] - 1) ** 2).mean())
class PointNet(nn.Module):
    def __init__(self, bug):
        super().__init__(); self.t = nn.Sequential(nn.Conv1d(3, 32, 1), nn.BatchNorm1d(32), nn.ReLU()); self.tfc = nn.Linear(32, 9); nn.init.zeros_(self.tfc.weight); nn.init.zeros_(self.tfc.bias); self.m = nn.Sequential(nn.Conv1d(3, 32, 1), nn.BatchNorm1d(32), nn.ReLU(), nn.Conv1d(32, 64, 1), nn.BatchNorm1d(64), nn.ReLU()); self.fc = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(.3), nn.Linear(32, 3)); self.bug = bug
    def forward(self, p): T = self.tfc(self.t(p.transpose(1, 2)).amax(2)).view(-1, 3, 3) + (0 if self.bug else torch.eye(3)); h = self.m((p @ T).transpose(1, 2)); return self.fc(h.amax(2)), T
def pc(i, B=32): g = G(i); y = torch.randint(0, 3, (B,), generator=g); x = torch.randn(B, 40, 3, generator=g); s = F.normalize(x, dim=-1); c = x.clamp(-1, 1) / x.clamp(-1, 1).abs().amax(-1, keepdim=True); l = torch.stack([x[..., 0], x[..., 0] * .2, x[..., 2] * .2], -1); return torch.stack([s, c, l], 1)[torch.arange(B), y] + .03 * torch.randn(B, 40, 3, generator=g), y
@case("T-net starts at the zero matrix, not the identity", "tfc")
def pointnet(bug): return dict(model=lambda: PointNet(bug), data=pc, loss=lambda o, y: F.cross_entropy(o[0], y) + .001 * torch.linalg.matrix_norm(torch.eye(3) - o[1] @ o[1].transpose(1, 2)).mean())
class CRF(nn.Module):
    def __init__(self, bug): super().__init__(); self.emb = nn.Embedding(V, 32); self.lstm = nn.LSTM(32, 32, bidirectional=True, batch_first=True); self.fc = nn.Linear(64, 5); self.trans = nn.Parameter(torch.randn(5, 5) * .1); self.bug = bug
    def forward(self, x, y):
        e = self.fc(self.lstm(self.emb(x))[0]); sc = e.gather(2, y[..., None]).squeeze(-1).sum(1) + self.trans[y[:, :-1], y[:, 1:]].sum(1); a = e[:, 0]
        for t in range(1, x.size(1)): a = torch.logsumexp(a[:, :, None] + self.trans[None] + e[:, t, None], 2 if self.bug else 1)
        return (torch.logsumexp(a, 1) - sc).mean()
def tags(i): x, _ = lm(i); return dict(x=x, y=(x + F.pad(x, (1, 0))[:, :-1]) % 5), torch.zeros(32)
@case("forward algorithm reduces over the wrong tag axis (dim 2)", "trans/loss")
def bilstm_crf(bug): return dict(model=lambda: CRF(bug), data=lambda i: (tags(i)[0], torch.zeros(())), loss=lambda o, t: o / 20, diag=dict(loss="model", targets_none=True))
class FSQ(nn.Module):
    def __init__(self, bug): super().__init__(); self.e = nn.Sequential(nn.Conv2d(1, 24, 4, 2, 1), nn.GELU(), nn.Conv2d(24, 24, 4, 2, 1), nn.GELU(), nn.Conv2d(24, 4, 1)); self.d = nn.Sequential(nn.Conv2d(4, 24, 3, 1, 1), nn.GELU(), nn.ConvTranspose2d(24, 24, 4, 2, 1), nn.GELU(), nn.ConvTranspose2d(24, 1, 4, 2, 1)); self.bug = bug
    def forward(self, x): z = torch.tanh(self.e(x)) * 3.5; q = z.round() if self.bug else z + (z.round() - z).detach(); return self.d(q / 3.5)
@case("round without straight-through", "e")
def fsq(bug): return dict(model=lambda: FSQ(bug), data=lambda i: (blobs(i)[0], blobs(i)[0]), loss=mse)
class RSSM(nn.Module):
    def __init__(self, bug): super().__init__(); self.enc = nn.Linear(6, 32); self.gru = nn.GRUCell(8 + 2, 32); self.prior, self.post = nn.Linear(32, 16), nn.Linear(64, 16); self.dec = nn.Sequential(nn.Linear(40, 48), nn.ELU(), nn.Linear(48, 6)); self.rew = nn.Linear(40, 1); self.bug = bug
    def forward(self, obs, act):
        B, T, _ = obs.shape; h = obs.new_zeros(B, 32); z = obs.new_zeros(B, 8); R, W, K = [], [], []
        for t in range(T):
            h = self.gru(torch.cat([z, act[:, t]], 1), h); pm, ps = self.prior(h).chunk(2, 1); qm, qs = self.post(torch.cat([h, F.elu(self.enc(obs[:, t]))], 1)).chunk(2, 1); ps, qs = F.softplus(ps) + .1, F.softplus(qs) + .1; z = qm + qs * torch.randn_like(qm); f = torch.cat([h, z.detach() if self.bug else z], 1); R.append(self.dec(f)); W.append(self.rew(f).squeeze(1)); K.append(torch.distributions.kl_divergence(torch.distributions.Normal(qm, qs), torch.distributions.Normal(pm, ps)).sum(1))
        return dict(recon=torch.stack(R, 1), reward=torch.stack(W, 1), kl=torch.stack(K, 1))
def env(i, B=24):
    g = G(i); a = torch.randn(B, 10, 2, generator=g); s = torch.randn(B, 3, generator=g); o = []; M = torch.randn(3, 6, generator=G(1))
    for t in range(10): s = .9 * s + .3 * F.pad(a[:, t], (0, 1)) + .05 * torch.randn(B, 3, generator=g); o.append(s)
    s = torch.stack(o, 1); return (s @ M, a), dict(obs=s @ M, rew=s[..., 0])
def rl(o, t): return F.mse_loss(o["recon"], t["obs"]) + F.mse_loss(o["reward"], t["rew"]) + .1 * F.relu(o["kl"].mean() - 1.)
@case("posterior sample detached before the decoder: no reconstruction gradient to the encoder", "enc/post")
def dreamer_rssm(bug): return dict(model=lambda: RSSM(bug), data=env, loss=rl)
class GRPO(nn.Module):
    def __init__(self, bug): super().__init__(); self.policy = base_lm(); self.ref = copy.deepcopy(self.policy).requires_grad_(False); self.bug = bug
    def forward(self, ids):
        f = lambda m: m(ids[:, :-1]).log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
        lp = f(self.policy)
        with torch.no_grad(): r = f(self.ref)
        return lp, r
def gl(o, t): lp, r = o; ratio = (lp - lp.detach()).exp(); kl = (r - lp).exp() - (r - lp) - 1; return -(ratio * t[:, None] - .04 * kl).mean()
def gdat(i): g = G(i); ids = lm(i)[0]; R = (ids == 3).float().sum(1); A = R.view(4, 8); A = (A - A.mean(1, keepdim=True)) / (A.std(1, keepdim=True) + 1e-4); return ids, A.flatten()
@case()
def grpo(bug): return dict(model=lambda: GRPO(bug), data=gdat, loss=gl)
class TabT(nn.Module):  # FT-transformer
    def __init__(self, bug): super().__init__(); d = 32; self.w, self.b = nn.Parameter(torch.randn(8, d) * .2), nn.Parameter(torch.randn(8, d) * .2); self.cat = nn.Embedding(15, d); self.register_buffer("off", torch.tensor([0, 5, 10]) * (0 if bug else 1)); self.cls = nn.Parameter(torch.randn(1, 1, d) * .02); self.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 64, .1, batch_first=True, norm_first=True), 2, enable_nested_tensor=False); self.head = nn.Sequential(nn.LayerNorm(d), nn.ReLU(), nn.Linear(d, 1))
    def forward(self, num, cat): h = torch.cat([self.cls.expand(len(num), -1, -1), num[..., None] * self.w + self.b, self.cat(cat + self.off)], 1); return self.head(self.enc(h)[:, 0]).squeeze(-1)
def adult(i): g = G(i); n = torch.randn(96, 8, generator=g); c = torch.randint(0, 5, (96, 3), generator=g); W = torch.randn(3, 5, generator=G(5)); return (n, c), .5 * n[:, 0] * n[:, 1] + W[0][c[:, 0]] - 1.5 * W[1][c[:, 1]] + W[2][c[:, 2]]
@case("categorical offsets all zero: columns share rows", "cat")
def ft_transformer(bug): return dict(model=lambda: TabT(bug), data=adult, loss=mse)
class ConvLSTM(nn.Module):
    def __init__(self, bug): super().__init__(); self.g = nn.Conv2d(1 + 12, 48, 3, padding=1); self.out = nn.Conv2d(12, 1, 1); self.bug = bug; self.g.bias.data[12:24] = 1
    def forward(self, x):
        B, T, C, H, W = x.shape; h = c = x.new_zeros(B, 12, H, W)
        for t in range(T):
            i, f, o, z = self.g(torch.cat([x[:, t], h], 1)).chunk(4, 1); c = f.sigmoid() * c + i.sigmoid() * z.tanh(); h = o.sigmoid() * c.tanh()
            if self.bug: h = torch.zeros_like(h); c = torch.zeros_like(c)
        return self.out(h)
def mov(i, B=16): g = G(i); p = torch.rand(B, 2, generator=g) * 8 + 2; v = torch.randn(B, 2, generator=g) * .8; r = torch.arange(12.); fr = torch.stack([torch.exp(-((r[None, :, None] - (p + k * v)[:, 1, None, None]) ** 2 + (r[None, None] - (p + k * v)[:, 0, None, None]) ** 2) / 3) for k in range(6)], 1)[:, :, None]; return fr[:, :5], fr[:, 5]
@case()
def convlstm(bug): return dict(model=lambda: ConvLSTM(False), data=mov, loss=mse)
class DKT(nn.Module):  # GRU with packed padding
    def __init__(self, bug): super().__init__(); self.emb = nn.Embedding(V + 1, 32, padding_idx=V); self.gru = nn.GRU(32, 48, 2, batch_first=True, dropout=.1); self.fc = nn.Linear(48, 3); self.bug = bug
    def forward(self, ids, lengths):
        o, h = self.gru(self.emb(ids)); return self.fc(o[:, -1] if self.bug else o[torch.arange(len(ids)), lengths - 1])
def ptext(i, B=48): g = G(i); y = torch.randint(0, 3, (B,), generator=g); L = torch.randint(3, 12, (B,), generator=g); x = torch.randint(3, V, (B, 60), generator=g); k = torch.rand(B, 60, generator=g) < .4; x = torch.where(k, y[:, None], x); return dict(ids=torch.where(torch.arange(60)[None] < L[:, None], x, torch.tensor(V)), lengths=L), y
@case("last output read at index -1, behind 50 paddings", "gru output index")
def gru_padding(bug): return dict(model=lambda: DKT(bug), data=ptext, loss=ce)
class IJEPA2(nn.Module):  # CPC-like: context of the first half predicts latents of the second
    def __init__(self, bug): super().__init__(); self.enc = nn.Linear(6, 24); self.ctx = nn.GRU(24, 32, batch_first=True); self.W = nn.ModuleList(nn.Linear(32, 24) for _ in range(3)); self.bug = bug
    def forward(self, x): z = self.enc(x).tanh(); c = self.ctx(z[:, :7])[0][:, -1]; return torch.stack([W(c) @ z[:, 7 + k].T for k, W in enumerate(self.W)])
@case()
def cpc(bug): return dict(model=lambda: IJEPA2(bug), data=lambda i: (env(i)[0][0], torch.arange(24)), loss=lambda o, y: sum(F.cross_entropy(s, y) for s in o) / 3, diag=dict(per="batch"))
if __name__ == "__main__": main()
