import copy, math, torch, torch.nn as nn, torch.nn.functional as F
from harness import case, main
from nets_b import blobs, temb
from nets_d import feats, feats_hard, views
G = lambda i: torch.Generator().manual_seed(i)
mse = lambda o, t: F.mse_loss(o, t); ce = lambda o, y: F.cross_entropy(o, y)
class Hetero(nn.Module):
    def __init__(self, d=8): super().__init__(); self.net = nn.Sequential(nn.Linear(d, 64), nn.ELU(), nn.Linear(64, 64), nn.ELU()); self.mean, self.raw = nn.Linear(64, 1), nn.Linear(64, 1)
    def forward(self, x): h = self.net(x); return torch.distributions.Normal(self.mean(h), F.softplus(self.raw(h)) + 1e-3) if False else {"loc": self.mean(h), "scale": F.softplus(self.raw(h)) + 1e-3}
def house(i): g = G(i); x = torch.randn(64, 8, generator=g); y = x[:, 0] - .7 * x[:, 1] * x[:, 2] + .2 * torch.randn(64, generator=g) * (1 + x[:, 3].abs()); return x, y
def hl(bug):
    def f(o, y):
        if not bug: y = y[:, None]
        return -torch.distributions.Normal(o["loc"], o["scale"]).log_prob(y).mean()
    return f
@case("Normal((B,1)).log_prob(y (B,)) broadcasts to (B,B)", "loss broadcasting")
def hetero_nll(bug): return dict(model=Hetero, data=house, loss=hl(bug))
class ViT(nn.Module):
    def __init__(self, bug): super().__init__(); d = 48; self.bug = bug; self.proj = nn.Conv2d(1, d, 4, 4); self.cls_token = nn.Parameter(torch.zeros(1, 1, d)); self.pos_embed = nn.Parameter(torch.randn(1, 17, d) * .02); self.blocks = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 96, .1, "gelu", batch_first=True, norm_first=True), 3, enable_nested_tensor=False); self.norm = nn.LayerNorm(d); self.head = nn.Linear(d, 6)
    def forward(self, x): h = self.proj(x).flatten(2).transpose(1, 2); h = torch.cat([self.cls_token.expand(len(x), -1, -1), h], 1); h = h if self.bug else h + self.pos_embed; return self.head(self.norm(self.blocks(h))[:, 0])
def posimg(i, B=48): g = G(i); y = torch.randint(0, 6, (B,), generator=g); x = .4 * torch.randn(B, 1, 16, 16, generator=g); [x[k, 0, 4 * (int(y[k]) // 3) * 2:, 4 * (int(y[k]) % 3):].__getitem__((slice(0, 4), slice(0, 4))).add_(1.2) for k in range(B)]; return x, y
@case("position embedding made but never added", "pos_embed")
def vit(bug): return dict(model=lambda: ViT(bug), data=posimg, loss=ce)
class Seg(nn.Module):
    def __init__(self, bug): super().__init__(); self.bug = bug; c = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True)); self.e1, self.e2, self.d1 = c(1, 16), c(16, 32), c(48, 16); self.pool = nn.MaxPool2d(2); self.out = nn.Conv2d(16, 1, 1)
    def forward(self, x): a = self.e1(x); b = self.e2(self.pool(a)); u = F.interpolate(b, scale_factor=2, mode="bilinear"); o = self.out(self.d1(torch.cat([a, u], 1))); return torch.softmax(o, 1) if self.bug else torch.sigmoid(o)
def segd(i): x, _ = blobs(i); return x + .3 * torch.randn(x.shape, generator=G(i)), (x > 0).float()
def dice(p, t): p, t = p.flatten(1), t.flatten(1); return 1 - ((2 * (p * t).sum(1) + 1) / (p.sum(1) + t.sum(1) + 1)).mean()
@case("softmax over one channel: output constant 1", "out")
def unet_dice(bug): return dict(model=lambda: Seg(bug), data=segd, loss=dice)
class Char(nn.Module):
    def __init__(self, bug): super().__init__(); self.bug = bug; self.conv = nn.Sequential(nn.Conv1d(8, 32, 5, padding=2), nn.BatchNorm1d(32), nn.ReLU(), nn.MaxPool1d(2)); self.rnn = nn.LSTM(32, 48, bidirectional=True, batch_first=True); self.fc = nn.Linear(96, 6)
    def forward(self, x): h = self.conv(x).transpose(1, 2); h, _ = self.rnn(h); o = self.fc(h).log_softmax(-1); return o if self.bug else o.transpose(0, 1)
def speech(i, B=16): g = G(i); y = torch.randint(1, 6, (B, 4), generator=g); M = torch.randn(6, 8, generator=G(2)); x = M[y.repeat_interleave(8, 1)] + .4 * torch.randn(B, 32, 8, generator=g); return x.transpose(1, 2).contiguous(), y
ctc = nn.CTCLoss(zero_infinity=True)
def ctcl(o, y): return ctc(o, y, torch.full((16,), 16), torch.full((16,), 4))
@case("CTC given (B,T,C) where it takes (T,B,C) (B = T = 16)", "fc / loss axes")
def ctc_speech(bug): return dict(model=lambda: Char(bug), data=speech, loss=ctcl, diag={} if bug else dict(output=None))
class DQN(nn.Module):
    def __init__(self, bug): super().__init__(); self.q = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()); self.adv, self.val = nn.Linear(64, 3), nn.Linear(64, 1); self.bug = bug
    def forward(self, s, a): h = self.q(s); A = self.adv(h); q = self.val(h) + A - A.mean(0 if not self.bug else 1, keepdim=True) if False else self.val(h) + A - A.mean(1, keepdim=True); return q.sum(1, keepdim=True) / 3 if self.bug else q.gather(1, a)
def trans(i): g = G(i); s = torch.randn(64, 6, generator=g); a = torch.randint(0, 3, (64, 1), generator=g); W = torch.randn(6, 3, generator=G(3)); return (s, a), (torch.tanh(s @ W).gather(1, a) * 2 + s[:, :1])
@case("dueling DQN: mean over actions in place of gather: advantage cancels to zero", "adv")
def dueling_dqn(bug): return dict(model=lambda: DQN(bug), data=trans, loss=lambda o, t: F.smooth_l1_loss(o, t))
class PPO(nn.Module):
    def __init__(self): super().__init__(); self.body = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()); self.pi, self.v = nn.Linear(64, 4), nn.Linear(64, 1); [nn.init.orthogonal_(m.weight, 2 ** .5) for m in self.body if isinstance(m, nn.Linear)]; nn.init.orthogonal_(self.pi.weight, .01); nn.init.orthogonal_(self.v.weight, 1.)
    def forward(self, obs): h = self.body(obs); return self.pi(h), self.v(h).squeeze(-1)
def roll(i): g = G(i); o = torch.randn(64, 8, generator=g); a = torch.randint(0, 4, (64,), generator=g); adv = (o[:, :4].gather(1, a[:, None]).squeeze(1)); return o, dict(act=a, adv=(adv - adv.mean()) / adv.std(), ret=o[:, :4].amax(1), old=torch.full((64,), -math.log(4)))
def ppo(o, t): lp = o[0].log_softmax(-1); r = (lp.gather(1, t["act"][:, None]).squeeze(1) - t["old"]).exp(); pg = -torch.minimum(r * t["adv"], r.clamp(.8, 1.2) * t["adv"]).mean(); return pg + .5 * F.mse_loss(o[1], t["ret"]) + .01 * (lp.exp() * lp).sum(-1).mean()
def ppo_bug(o, t): lp = o[0].log_softmax(-1); r = (lp.gather(1, t["act"][:, None]).squeeze(1).detach() - t["old"]).exp(); pg = -torch.minimum(r * t["adv"], r.clamp(.8, 1.2) * t["adv"]).mean(); return pg + .5 * F.mse_loss(o[1], t["ret"]) + .01 * (lp.exp() * lp).sum(-1).mean()
@case("new log-probabilities detached: no policy gradient but that of the entropy bonus", "pi")
def ppo_actor_critic(bug): return dict(model=PPO, data=roll, loss=ppo_bug if bug else ppo)
class TS(nn.Module):  # forecasting with RevIN
    def __init__(self, bug): super().__init__(); self.bug = bug; self.w, self.b = nn.Parameter(torch.ones(1, 1, 4)), nn.Parameter(torch.zeros(1, 1, 4)); self.patch = nn.Linear(8, 48); self.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(48, 4, 96, .1, batch_first=True), 2, enable_nested_tensor=False); self.pos = nn.Parameter(torch.randn(6, 48) * .02); self.head = nn.Linear(6 * 48, 12)
    def forward(self, x):
        B, L, C = x.shape; mu, sd = x.mean(1, keepdim=True), x.std(1, keepdim=True) + 1e-5; h = (x - mu) / sd * self.w + self.b; p = h.transpose(1, 2).reshape(B * C, 6, 8) if not self.bug else h.reshape(B * C, 6, 8); z = self.enc(self.patch(p) + self.pos); y = self.head(z.flatten(1)).view(B, C, 12).transpose(1, 2); return (y - self.b) / self.w * sd + mu
def ts(i): g = G(i); t = torch.arange(60.)[None, :, None]; f = torch.tensor([.2, .35, .5, .8]); x = torch.sin(t * f + 6.28 * torch.rand(16, 1, 4, generator=g)) * (1 + torch.rand(16, 1, 4, generator=g)) + torch.randn(16, 1, 4, generator=g) * 2 + .1 * torch.randn(16, 60, 4, generator=g); return x[:, :48], x[:, 48:]
@case("(B,L,C) reshaped to (B*C,patches) without transpose: series mixed", "patch")
def patch_tst(bug): return dict(model=lambda: TS(bug), data=ts, loss=mse)
class DLRM(nn.Module):
    def __init__(self, bug): super().__init__(); self.bug = bug; self.emb = nn.ModuleList(nn.Embedding(n, 16) for n in (10, 30, 50)); self.bot = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU()); self.top = nn.Sequential(nn.Linear(16 + 6, 32), nn.ReLU(), nn.Linear(32, 1)); self.register_buffer("iu", torch.triu_indices(4, 4, 1)); [nn.init.normal_(e.weight, 0, .25) for e in self.emb]
    def forward(self, dense, sparse): d = self.bot(dense); v = torch.stack([d] + [e(sparse[:, 0] if self.bug else sparse[:, k]) for k, e in enumerate(self.emb)], 1); z = v @ v.transpose(1, 2); return self.top(torch.cat([d, z[:, self.iu[0], self.iu[1]]], 1)).squeeze(1)
def ctr(i): g = G(i); B = 128; d = torch.rand(B, 5, generator=g).mul(50).log1p(); s = torch.stack([torch.randint(0, n, (B,), generator=g) for n in (10, 30, 50)], 1); u = torch.randn(10, generator=G(1))[s[:, 0]] + 1.5 * torch.randn(30, generator=G(2))[s[:, 1]] + 1.5 * torch.randn(50, generator=G(3))[s[:, 2]] + d[:, 0] - 3; return dict(dense=d, sparse=s), (u > 0).float()
@case("every embedding table looked up with the first feature", "emb.1/emb.2")
def dlrm(bug): return dict(model=lambda: DLRM(bug), data=ctr, loss=nn.BCEWithLogitsLoss())
class DETR(nn.Module):
    def __init__(self, bug): super().__init__(); d = 32; self.bb = nn.Sequential(nn.Conv2d(1, d, 4, 4), nn.ReLU()); self.pos = nn.Parameter(torch.randn(16, d) * .1); self.tr = nn.Transformer(d, 4, 1, 2, 64, 0., batch_first=True); self.query_embed = nn.Embedding(4, d); self.cls, self.box = nn.Linear(d, 3), nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 2)); (nn.init.zeros_(self.query_embed.weight) if bug else None)
    def forward(self, x): f = self.bb(x).flatten(2).transpose(1, 2) + self.pos; h = self.tr(f, self.query_embed.weight.expand(len(x), -1, -1)); return {"pred_logits": self.cls(h), "pred_boxes": self.box(h).sigmoid()}
def det(i, B=24):
    g = G(i); x = .1 * torch.randn(B, 1, 16, 16, generator=g); n = torch.randint(1, 4, (B,), generator=g); bx = torch.rand(B, 4, 2, generator=g) * .7 + .15; cl = torch.randint(0, 2, (B, 4), generator=g); m = torch.arange(4)[None] < n[:, None]; r = (torch.arange(16) + .5) / 16
    for k in range(4): x[:, 0] += m[:, k, None, None] * (1. + cl[:, k, None, None]) * torch.exp(-((r[None, :, None] - bx[:, k, 1, None, None]) ** 2 + (r[None, None] - bx[:, k, 0, None, None]) ** 2) / .006)
    return x, dict(boxes=bx, labels=torch.where(m, cl, torch.tensor(2)), m=m)
import itertools
_P = torch.tensor(list(itertools.permutations(range(4))))
def hung(o, t):
    lp = o["pred_logits"].log_softmax(-1); C = -lp.gather(2, t["labels"][:, None].expand(-1, 4, -1)) + 5 * (o["pred_boxes"][:, :, None] - t["boxes"][:, None]).abs().sum(-1) * t["m"][:, None]; c = C[:, _P, torch.arange(4)].sum(-1); return c.gather(1, c.detach().argmin(1, keepdim=True)).mean() / 4
@case("object queries initialised to zeros: all alike", "query_embed")
def detr(bug): return dict(model=lambda: DETR(bug), data=det, loss=hung)
class GCN(nn.Module):
    def __init__(self, bug): super().__init__(); self.l = nn.ModuleList([nn.Linear(16, 32), nn.Linear(32, 32), nn.Linear(32, 4)]); self.bug = bug
    def forward(self, x, ei):
        n = x.size(0); A = torch.zeros(n, n); A[ei[0], ei[1]] = 1; A = A + torch.eye(n); d = A.sum(1); P = A if self.bug else A / (d[:, None] * d[None]).sqrt()
        for k, l in enumerate(self.l): x = P @ l(x); x = F.dropout(F.relu(x), .3, self.training) if k < 2 else x
        return x
def cora(i): g = G(i); n = 120; y = torch.randint(0, 4, (n,), generator=g); p = torch.where(y[:, None] == y[None], .3, .08); A = torch.rand(n, n, generator=g) < p; A = A | A.T; x = torch.randn(4, 16, generator=G(8))[y] * .3 + torch.randn(n, 16, generator=g); return (x, A.nonzero().T), y
@case("adjacency not normalised by the degree", "l.* propagation")
def gcn(bug): return dict(model=lambda: GCN(bug), data=cora, loss=ce, diag=dict(examples="one"))
class DAE(nn.Module):
    def __init__(self, bug): super().__init__(); self.enc = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 16)); self.gate = nn.Linear(16, 16); self.dec = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 256)); self.bug = bug; nn.init.constant_(self.gate.bias, -12. if bug else 1.)
    def forward(self, x): z = self.enc((x + .3 * torch.randn_like(x)).flatten(1)); return self.dec(z * torch.sigmoid(self.gate(z))).view_as(x)
@case("gate bias -12: gate closed", "gate")
def gated_dae(bug): return dict(model=lambda: DAE(bug), data=lambda i: (blobs(i)[0], blobs(i)[0]), loss=mse)
class MixAug(nn.Module):  # ResNet with SE, stochastic depth, weight norm head
    def __init__(self, bug):
        super().__init__(); c = 24; self.stem = nn.Conv2d(1, c, 3, 2, 1); self.b = nn.ModuleList(nn.ModuleDict(dict(c1=nn.Conv2d(c, c, 3, 1, 1, bias=False), n1=nn.BatchNorm2d(c), c2=nn.Conv2d(c, c, 3, 1, 1, bias=False), n2=nn.BatchNorm2d(c), s1=nn.Conv2d(c, 6, 1), s2=nn.Conv2d(6, c, 1))) for _ in range(3)); self.fc = nn.utils.parametrizations.weight_norm(nn.Linear(c, 6)); self.bug = bug
    def forward(self, x):
        h = self.stem(x)
        for b in self.b:
            r = b["n2"](b["c2"](F.relu(b["n1"](b["c1"](h))))); s = r.mean((0, 2, 3) if self.bug else (2, 3), keepdim=True); s = torch.sigmoid(b["s2"](F.relu(b["s1"](s)))); h = F.relu(h + r * s)
        p = h.mean((0, 2, 3), keepdim=False).expand(len(x), -1) if self.bug else h.mean((2, 3)); return self.fc(p)
def tex(i): g = G(i); y = torch.randint(0, 6, (48,), generator=g); f = (y + 1).float() * .4; r = torch.arange(16.); return torch.sin(f[:, None, None, None] * r + 6.28 * torch.rand(48, 1, 1, 1, generator=g)).expand(-1, 1, 16, -1) + .4 * torch.randn(48, 1, 16, 16, generator=g), y
@case("global average pool also over the batch", "pool before fc")
def se_resnet(bug): return dict(model=lambda: MixAug(bug), data=tex, loss=ce)
if __name__ == "__main__": main()
