from common import *
from nets_rec import ctr_batch, tab_batch
from nets_ts import series, spk_batch
from nets_med import clouds, blobs, square_distance, index_points

class MMoE(nn.Module):
    """click + like, 4 experts, gate per task"""
    def __init__(self, cards, k=8, E=4, h=32, bug=False):
        super().__init__()
        self.embedding = nn.ModuleList([nn.Embedding(c, k) for c in cards]); [nn.init.normal_(e.weight, 0, .05) for e in self.embedding]
        D = k*len(cards)+13; self.bn = nn.BatchNorm1d(13)
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(D, h), nn.ReLU(), nn.Linear(h, 16), nn.ReLU()) for _ in range(E)])
        self.gates = nn.ModuleList([nn.Linear(D, E) for _ in range(2)]); self.towers = nn.ModuleList([nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1)) for _ in range(2)]); self.bug = bug
    def forward(self, dense, cats):
        x = torch.cat([self.bn(dense)]+[e(cats[:, i]) for i, e in enumerate(self.embedding)], -1); ex = torch.stack([e(x) for e in self.experts], 1); out = {}
        for name, g, t in zip(('click', 'like'), self.gates, self.towers):
            w = torch.softmax(g(x), 0 if self.bug else 1); out[name] = t((w.unsqueeze(-1)*ex).sum(1)).squeeze(-1)
        return out
@case('mmoe', 'gate softmax over the batch (dim 0) instead of the experts', ['gates'])
def _(bug):
    cards = [50, 20, 30]; b0, b1 = ctr_batch(cards, 51), None
    def batch(g):
        d, c, y = b0(g); return {'dense': d, 'cats': c}, {'click': y, 'like': y*(d[:, 0] > 2).float()}
    return dict(model=MMoE(cards, bug=bug), batch=batch, loss=lambda o, y: sum(F.binary_cross_entropy_with_logits(o[k], y[k]) for k in o))

class DIN(nn.Module):
    def __init__(self, n=80, d=16, bug=False):
        super().__init__(); self.item = nn.Embedding(n+1, d, padding_idx=0); self.att = nn.Sequential(nn.Linear(4*d, 32), nn.Sigmoid(), nn.Linear(32, 1)); self.fc = nn.Sequential(nn.Linear(3*d, 48), nn.PReLU(), nn.Linear(48, 1)); self.bug = bug
    def forward(self, hist, target):
        h, t = self.item(hist), self.item(target)[:, None].expand(-1, hist.size(1), -1); s = self.att(torch.cat([t, h, t-h, t*h], -1)).squeeze(-1)
        s = s.masked_fill(hist != 0 if self.bug else hist == 0, -1e9).softmax(1); u = (s[..., None]*h).sum(1); t = t[:, 0]; return self.fc(torch.cat([u, t, u*t], -1)).squeeze(-1)
@case('din', 'history mask inverted: attends only to the padding', ['att', 'item'])
def _(bug):
    cat = torch.randint(4, (81,), generator=G(52))
    def batch(g):
        h = torch.randint(1, 81, (64, 12), generator=g); pref = torch.randint(4, (64, 1), generator=g); cand = torch.randint(1, 81, (64, 12, 12), generator=g); k = (cat[cand] == pref[..., None]).float().argmax(-1); h = cand.gather(2, k[..., None])[..., 0]
        h = h.masked_fill(torch.arange(12)[None] >= torch.randint(4, 12, (64, 1), generator=g), 0); t = torch.randint(1, 81, (64,), generator=g); y = (cat[t] == pref[:, 0]).float(); return {'hist': h, 'target': t}, y
    return dict(model=DIN(bug=bug), batch=batch, loss=nn.BCEWithLogitsLoss())

class AutoInt(nn.Module):
    def __init__(self, cards, d=16, L=2, bug=False):
        super().__init__(); self.off = torch.tensor([0]+list(cards[:-1])).cumsum(0); self.emb = nn.Embedding(sum(cards), d); nn.init.xavier_uniform_(self.emb.weight); self.a = nn.ModuleList(nn.MultiheadAttention(d, 2, dropout=.1, batch_first=True) for _ in range(L)); self.res = nn.ModuleList(nn.Linear(d, d) for _ in range(L)); self.plin = nn.Linear(d*len(cards), 1); self.bug = bug
    def forward(self, x):
        h = self.emb(x+self.off)
        for a, r in zip(self.a, self.res):
            z = a(h, h, h)[0]
            h = F.relu(z+r(h)) if not self.bug else F.relu(F.relu(z+r(h))-5.)
        return self.plin(h.flatten(1))[:, 0]
@case('autoint', 'a shift of -5 before a second ReLU kills every unit', ['a', 'res'])
def _(bug):
    cards = [40, 20, 60, 8]; b0 = ctr_batch(cards, 53)
    def batch(g): _, c, y = b0(g); return (c,), y
    return dict(model=AutoInt(cards, bug=bug), batch=batch, loss=nn.BCEWithLogitsLoss())

class LightGCN(nn.Module):
    def __init__(self, A, nu, ni, d=24, K=2): super().__init__(); self.register_buffer('A', A); self.user_emb, self.item_emb = nn.Embedding(nu, d), nn.Embedding(ni, d); nn.init.normal_(self.user_emb.weight, std=.1); nn.init.normal_(self.item_emb.weight, std=.1); self.K = K; self.nu = nu
    def computer(self):
        e = torch.cat([self.user_emb.weight, self.item_emb.weight]); es = [e]
        for _ in range(self.K): e = self.A@e; es.append(e)
        o = torch.stack(es, 1).mean(1); return o[:self.nu], o[self.nu:]
    def forward(self, users, pos, neg): U, I = self.computer(); u = U[users]; return (u*I[pos]).sum(-1), (u*I[neg]).sum(-1)
@case('lightgcn_bpr', 'adjacency not normalised by degree', ['user_emb', 'item_emb'])
def _(bug):
    nu, ni = 60, 50; P = torch.randn(nu, 4, generator=G(54)); Q = torch.randn(ni, 4, generator=G(55)); R = ((P@Q.t()) > 1.2).float(); A = torch.zeros(nu+ni, nu+ni); A[:nu, nu:] = R; A[nu:, :nu] = R.t(); d = A.sum(1).clamp(min=1)
    if not bug: A = A/(d[:, None]*d[None]).sqrt()
    def batch(g): u = torch.randint(nu, (64,), generator=g); p = torch.multinomial(R[u]+1e-9, 1, generator=g)[:, 0]; n = torch.multinomial(1-R[u]+1e-9, 1, generator=g)[:, 0]; return {'users': u, 'pos': p, 'neg': n}, None
    return dict(model=LightGCN(A, nu, ni), batch=batch, loss=lambda o, t: -F.logsigmoid(o[0]-o[1]).mean())

class DLinear(nn.Module):
    def __init__(self, L=48, H=8, k=13, bug=False): super().__init__(); self.avg = nn.AvgPool1d(k, 1, 0); self.k = k; self.Linear_Seasonal, self.Linear_Trend = nn.Linear(L, H), nn.Linear(L, H); self.Linear_Seasonal.weight = nn.Parameter(torch.ones(H, L)/L); self.Linear_Trend.weight = nn.Parameter(torch.ones(H, L)/L); self.bug = bug
    def forward(self, x):
        x = x.transpose(1, 2); p = (self.k-1)//2; t = self.avg(torch.cat([x[..., :1].repeat(1, 1, p), x, x[..., -1:].repeat(1, 1, p)], -1)); s = x-t
        return (self.Linear_Seasonal(s.detach() if not self.bug else s*0)+self.Linear_Trend(t)).transpose(1, 2)
@case('dlinear', 'seasonal part multiplied by zero', ['Linear_Seasonal'])
def _(bug):
    def batch(g): x = series(g, 32, 56, 2).transpose(1, 2); return x[:, :48], x[:, 48:]
    return dict(model=DLinear(bug=bug), batch=batch, loss=nn.MSELoss())

class ECGMAE(nn.Module):
    """masked autoencoder for 1-lead ECG, own random masking passed in"""
    def __init__(self, P=8, N=16, d=32, bug=False): super().__init__(); self.embed = nn.Linear(P, d); self.mask_token = nn.Parameter(torch.zeros(1, 1, d)); nn.init.normal_(self.mask_token, std=.02); self.pos = nn.Parameter(torch.randn(1, N, d)*(0. if bug else .02), requires_grad=not bug); el = lambda: nn.TransformerEncoderLayer(d, 4, 64, 0., 'gelu', batch_first=True, norm_first=True); self.encoder = nn.TransformerEncoder(el(), 2, enable_nested_tensor=False); self.decoder = nn.Sequential(el(), nn.LayerNorm(d)); self.to_pix = nn.Linear(d, P); self.P = P
    def forward(self, ecg, mask): p = ecg.unflatten(1, (-1, self.P)); x = self.embed(p); x = torch.where(mask[..., None], self.mask_token, x)+self.pos; return self.to_pix(self.decoder(self.encoder(x)))
@case('ecg_mae', 'position embedding frozen at zero', ['pos'])
def _(bug):
    def batch(g):
        x = torch.sin(torch.arange(128)*6.28/32+torch.rand(24, 1, generator=g)*6.28)+torch.exp(-((torch.arange(128)+torch.randint(32, (24, 1), generator=g))%32-16.)**2/4)*3; x = x+.1*torch.randn(24, 128, generator=g); m = torch.rand(24, 16, generator=g) < .4; return {'ecg': x, 'mask': m}, (x.unflatten(1, (16, 8)), m)
    def loss(o, t): y, m = t; return ((o-y).square().mean(-1)*m).sum()/m.sum()
    return dict(model=ECGMAE(bug=bug), batch=batch, loss=loss)

class C51(nn.Module):
    def __init__(self, o=8, n=3, atoms=21, vmin=-5, vmax=5): super().__init__(); self.register_buffer('support', torch.linspace(vmin, vmax, atoms)); self.n, self.atoms = n, atoms; self.network = nn.Sequential(nn.Linear(o, 96), nn.ReLU(), nn.Linear(96, 64), nn.ReLU(), nn.Linear(64, n*atoms))
    def forward(self, obs): return self.network(obs).view(-1, self.n, self.atoms)
@case('c51', 'log of probabilities softmaxed over the actions instead of the atoms', ['network.4', 'loss'])
def _(bug):
    W = torch.randn(8, 3, generator=G(56)); sup = torch.linspace(-5, 5, 21)
    def batch(g):
        o = torch.randn(48, 8, generator=g); a = torch.randint(3, (48,), generator=g); v = (o@W).gather(1, a[:, None]).clamp(-5, 5); return o, {'a': a, 'p': torch.softmax(-(sup-v)**2/.3, 1)}
    def mk(d):
        def f(z, t): return -(t['p']*z.log_softmax(d)[torch.arange(len(z)), t['a']]).sum(-1).mean()
        return f
    return dict(model=C51(), batch=batch, loss=mk(1 if bug else 2), ev=mk(2))

class ACTPolicy(nn.Module):
    """CVAE action chunking, style encoder + decoder queries"""
    def __init__(self, s=10, a=3, K=8, d=32, z=8, bug=False): super().__init__(); self.enc_a, self.enc_s, self.cls = nn.Linear(a, d), nn.Linear(s, d), nn.Embedding(1, d); L = lambda: nn.TransformerEncoderLayer(d, 4, 64, .1, batch_first=True); self.encoder = nn.TransformerEncoder(L(), 1, enable_nested_tensor=False); self.latent_proj = nn.Linear(d, 2*z); self.latent_out = nn.Linear(z, d); self.inp = nn.Linear(s, d); self.query = nn.Embedding(K, d); self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(d, 4, 64, .1, batch_first=True), 1); self.head = nn.Linear(d, a); self.bug = bug; self.register_buffer('pos', SinP(K+2, d))
    def forward(self, qpos, actions, eps):
        B = len(qpos); x = torch.cat([self.cls.weight[None].expand(B, -1, -1), self.enc_s(qpos)[:, None], self.enc_a(actions)], 1)+self.pos; mu, lv = self.latent_proj(self.encoder(x)[:, 0]).chunk(2, -1); z = mu+(lv/2).exp()*eps; mem = torch.stack([self.latent_out(z), self.inp(qpos)], 1); q = self.query.weight[None].expand(B, -1, -1)
        if self.bug: q = torch.zeros_like(q)
        return self.head(self.decoder(q, mem)), mu, lv
def SinP(n, d): p = torch.arange(n)[:, None]/10000**(torch.arange(d)//2*2/d); return torch.where(torch.arange(d)%2 == 0, p.sin(), p.cos())
@case('act_cvae', 'decoder queries zero and without query embedding: all steps of the chunk alike', ['query', 'decoder'])
def _(bug):
    W = torch.randn(10, 3, generator=G(57))*.5
    def batch(g): q = torch.randn(24, 10, generator=g); a = torch.tanh(q@W)[:, None]*torch.cos(torch.arange(8)*.8)[None, :, None]+.1*torch.randn(24, 8, 3, generator=g); return {'qpos': q, 'actions': a, 'eps': torch.randn(24, 8, generator=g)}, a
    def loss(o, a): h, mu, lv = o; return F.l1_loss(h, a)+.1*(-.5*(1+lv-mu**2-lv.exp())).sum(-1).mean()
    return dict(model=ACTPolicy(bug=bug), batch=batch, loss=loss)

class Tacotron(nn.Module):
    def __init__(self, V=20, d=32, mel=16, bug=False): super().__init__(); self.emb = nn.Embedding(V, d); self.conv = nn.Sequential(nn.Conv1d(d, d, 5, padding=2), nn.BatchNorm1d(d), nn.ReLU()); self.bi = nn.LSTM(d, d//2, batch_first=True, bidirectional=True); self.prenet = nn.Sequential(nn.Linear(mel, 32), nn.ReLU(), nn.Dropout(.5), nn.Linear(32, 32), nn.ReLU()); self.arnn = nn.LSTMCell(32+d, d); self.query, self.memory, self.v, self.loc = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False), nn.Linear(d, 1, bias=False), nn.Conv1d(2, d, 7, padding=3, bias=False); self.proj = nn.Linear(2*d, mel); self.gate = nn.Linear(2*d, 1); self.bug = bug
    def forward(self, text, mels):
        m = self.bi(self.conv(self.emb(text).transpose(1, 2)).transpose(1, 2))[0]; B, L, d = m.shape; pm = self.memory(m); h = c = torch.zeros(B, d); w = cum = torch.zeros(B, L); ctx = torch.zeros(B, d); P = self.prenet(F.pad(mels, (0, 0, 1, 0))[:, :-1]); o, gs = [], []
        for t in range(mels.size(1)):
            h, c = self.arnn(torch.cat([P[:, t], ctx], -1), (h, c)); e = self.v(torch.tanh(self.query(h)[:, None]+pm+self.loc(torch.stack([w, cum], 1)).transpose(1, 2))).squeeze(-1)
            w = e.softmax(1); cum = cum+w; ctx = (w[..., None]*m).sum(1); f = torch.cat([h, ctx], -1)
            if self.bug: f = torch.cat([h.detach(), ctx.detach()], -1); h, c = h.detach(), c.detach()
            o.append(self.proj(f)); gs.append(self.gate(f)[:, 0])
        return torch.stack(o, 1), torch.stack(gs, 1)
@case('tacotron', 'decoder state detached before the projection: encoder and attention untrained', ['arnn', 'bi', 'query', 'memory', 'conv', 'emb', 'prenet', 'loc', 'v'])
def _(bug):
    proto = torch.randn(20, 16, generator=G(58))
    def batch(g): t = torch.randint(20, (16, 6), generator=g); y = proto[t].repeat_interleave(2, 1)+.1*torch.randn(16, 12, 16, generator=g); gate = torch.zeros(16, 12); gate[:, -1] = 1; return (t, y), (y, gate)
    return dict(model=Tacotron(bug=bug), batch=batch, loss=lambda o, t: F.mse_loss(o[0], t[0])+F.binary_cross_entropy_with_logits(o[1], t[1]))

class PointPillars(nn.Module):
    def __init__(self, G_=12, c=24, bug=False): super().__init__(); self.G = G_; self.pfn = nn.Sequential(nn.Linear(5, c, bias=False)); self.norm = nn.BatchNorm1d(c, eps=1e-3); self.backbone = nn.Sequential(nn.Conv2d(c, 24, 3, padding=1, bias=False), nn.BatchNorm2d(24), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1, bias=False), nn.BatchNorm2d(24), nn.ReLU()); self.cls = nn.Conv2d(24, 1, 1); self.reg = nn.Conv2d(24, 2, 1); nn.init.constant_(self.cls.bias, -math.log(99)); self.bug = bug
    def forward(self, points):
        B, N, _ = points.shape; ij = (points[..., :2]*self.G).long().clamp(0, self.G-1); off = points[..., :2]*self.G-ij-.5; f = torch.cat([points, off], -1); f = F.relu(self.norm(self.pfn(f).flatten(0, 1))).view(B, N, -1); cell = ij[..., 0]*self.G+ij[..., 1]
        if not self.bug: pass
        canvas = torch.zeros(B, self.G**2, f.size(-1)).scatter_reduce(1, cell[..., None].expand_as(f), f, 'amax', include_self=True); x = canvas.view(B, self.G, self.G, -1)
        x = x.permute(0, 3, 1, 2) if not self.bug else x.reshape(B, -1, self.G, self.G)
        h = self.backbone(x); return {'heatmap': self.cls(h), 'offset': self.reg(h)}
@case('pointpillars', 'canvas reshaped to (B,C,H,W) instead of permuted', ['backbone.0', 'pfn'])
def _(bug):
    def batch(g):
        c = torch.rand(16, 2, 2, generator=g)*.8+.1; bg = torch.rand(16, 60, 3, generator=g)*torch.tensor([1, 1, .2]); ob = torch.cat([c.repeat_interleave(20, 1)+.02*torch.randn(16, 40, 2, generator=g), torch.rand(16, 40, 1, generator=g)], -1); ij = (c*12).long(); hm = torch.zeros(16, 1, 12, 12); off = torch.zeros(16, 2, 12, 12); b = torch.arange(16)
        for k in range(2): hm[b, 0, ij[:, k, 0], ij[:, k, 1]] = 1; off[b, :, ij[:, k, 0], ij[:, k, 1]] = c[:, k]*12-ij[:, k]-.5
        return torch.cat([bg, ob], 1), {'heatmap': hm, 'offset': off}
    def loss(o, t):
        p, y = o['heatmap'], t['heatmap']; ce = F.binary_cross_entropy_with_logits(p, y, reduction='none'); pt = torch.exp(-ce); fl = ((.25*y+.75*(1-y))*(1-pt)**2*ce).sum()/y.sum(); return fl+.2*((o['offset']-t['offset']).abs()*y).sum()/y.sum()
    return dict(model=PointPillars(bug=bug), batch=batch, loss=loss)

class GraspNet6D(nn.Module):
    """pose regression, 6D rotation"""
    def __init__(self, bug=False): super().__init__(); self.mlp = nn.Sequential(nn.Conv1d(3, 32, 1), nn.ReLU(), nn.Conv1d(32, 96, 1), nn.ReLU()); self.fc = nn.Sequential(nn.Linear(192, 64), nn.ReLU()); self.rot = nn.Linear(64, 6); self.trans = nn.Linear(64, 3); self.bug = bug
    def r6(self, x): a, b = x[:, :3], x[:, 3:]; a = F.normalize(a, dim=0 if self.bug else -1); b = b-(a*b).sum(-1, keepdim=True)*a; b = F.normalize(b, dim=0 if self.bug else -1); return torch.stack([a, b, torch.cross(a, b, dim=-1)], -1)
    def forward(self, p): f = self.mlp(p.transpose(1, 2)); f = self.fc(torch.cat([f.max(-1)[0], f.mean(-1)], 1)); return self.r6(self.rot(f)), self.trans(f)
@case('pose6d', 'F.normalize over dim 0 (the batch) of the 6D rotation', ['rot', 'fc'])
def _(bug):
    shape = torch.cat([torch.rand(40, 3, generator=G(59))*torch.tensor([2., .6, .3]), torch.rand(24, 3, generator=G(60))*torch.tensor([.3, 1.5, .8])])-.3
    def batch(g): ang = (torch.rand(32, generator=g)-.5)*3; c, s, z, o = ang.cos(), ang.sin(), ang*0, ang*0+1; R = torch.stack([c, -s, z, s, c, z, z, z, o], -1).view(-1, 3, 3); t = torch.randn(32, 3, generator=g)*.3; return torch.einsum('bij,nj->bni', R, shape)+t[:, None]+.01*torch.randn(32, 64, 3, generator=g), {'R': R, 't': t}
    return dict(model=GraspNet6D(bug=bug), batch=batch, loss=lambda o, t: (o[0]-t['R']).square().sum((1, 2)).mean()+F.mse_loss(o[1], t['t']))

class VAD(nn.Module):
    def __init__(self, bug=False): super().__init__(); self.conv = nn.Sequential(nn.Conv1d(20, 32, 5, padding=2), nn.BatchNorm1d(32), nn.ReLU()); self.gru = nn.GRU(32, 24, bidirectional=True, batch_first=True); self.out = nn.Linear(48, 1); self.bug = bug
    def forward(self, x): h, _ = self.gru(self.conv(x).transpose(1, 2)); o = self.out(h).squeeze(-1); return o
@case('vad_frame', 'BCE pos_weight computed upside-down and reduction sum over frames with lr the same: pos_weight 0 (labels cast to bool-int division)', ['loss'])
def _(bug):
    P = torch.randn(20, generator=G(61))
    def batch(g): y = (torch.rand(16, 6, generator=g) < .4).float().repeat_interleave(8, 1); return y[:, None]*P[None, :, None]+torch.randn(16, 20, 48, generator=g), y
    good = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(1.5)); bad = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(float(10//16)))
    return dict(model=VAD(), batch=batch, loss=bad if bug else good, ev=good)

class SAINTlike(nn.Module):
    """row attention on purpose: intersample attention"""
    def __init__(self, n=10, d=16): super().__init__(); self.tok = nn.Parameter(torch.randn(n, d)*.3); self.tb = nn.Parameter(torch.zeros(n, d)); self.col = nn.TransformerEncoderLayer(d, 2, 32, .1, batch_first=True); self.row = nn.TransformerEncoderLayer(n*d, 4, 64, .1, batch_first=True); self.head = nn.Sequential(nn.Linear(n*d, 32), nn.ReLU(), nn.Linear(32, 1))
    def forward(self, x): h = self.col(x[..., None]*self.tok+self.tb); h = self.row(h.flatten(1)[None])[0]; return self.head(h).squeeze(-1)
@case('saint_rowattention', None)
def _(bug): return dict(model=SAINTlike(), batch=tab_batch(62), loss=F.smooth_l1_loss)

class WaveGAN_D(nn.Module):
    """multi-scale audio discriminator, least squares, real+fake stacked"""
    def __init__(self): super().__init__(); wn = nn.utils.parametrizations.weight_norm; D = lambda: nn.ModuleList([wn(nn.Conv1d(1, 12, 15, 2, 7)), wn(nn.Conv1d(12, 24, 11, 2, 5, groups=4)), wn(nn.Conv1d(24, 24, 5, 1, 2)), wn(nn.Conv1d(24, 1, 3, 1, 1))]); self.ds = nn.ModuleList([D(), D()]); self.pool = nn.AvgPool1d(4, 2, 2)
    def forward(self, wav):
        outs, fm = [], []
        for i, d in enumerate(self.ds):
            x = wav if i == 0 else self.pool(wav)
            for l in d[:-1]: x = F.leaky_relu(l(x), .1); fm.append(x)
            outs.append(d[-1](x).flatten(1))
        return outs, fm
@case('audio_discriminator', None)
def _(bug):
    def batch(g): r = torch.sin(torch.arange(256)*(.1+torch.rand(16, 1, generator=g)*.5)); f = r+.3*torch.randn(16, 256, generator=g); y = (torch.rand(16, generator=g) < .5).float(); return torch.where(y[:, None] > 0, r, f)[:, None], y
    return dict(model=WaveGAN_D(), batch=batch, loss=lambda o, y: sum((d-y[:, None]).square().mean() for d in o[0]))

class UNETRlike(nn.Module):
    def __init__(self, d=32): super().__init__(); self.patch = nn.Conv3d(1, d, 4, 4); self.pos = nn.Parameter(torch.zeros(1, 27, d)); nn.init.trunc_normal_(self.pos, std=.02); self.vit = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 64, 0., 'gelu', batch_first=True, norm_first=True), 2, enable_nested_tensor=False); self.up = nn.Sequential(nn.ConvTranspose3d(d, 16, 2, 2), nn.InstanceNorm3d(16), nn.LeakyReLU(.01), nn.ConvTranspose3d(16, 8, 2, 2)); self.enc0 = nn.Sequential(nn.Conv3d(1, 8, 3, padding=1), nn.InstanceNorm3d(8), nn.LeakyReLU(.01)); self.out = nn.Conv3d(16, 3, 1)
    def forward(self, x): t = self.vit(self.patch(x).flatten(2).transpose(1, 2)+self.pos); u = self.up(t.transpose(1, 2).unflatten(2, (3, 3, 3))); return self.out(torch.cat([u, self.enc0(x)], 1))
@case('unetr', 'class weights of CE all on the background (order reversed): weight [1,1,0]..', ['loss'])
def _(bug):
    def batch(g): return blobs(g, 4, 12)
    good = lambda o, y: F.cross_entropy(o, y, weight=torch.tensor([.2, 1., 1.])); bad = lambda o, y: F.cross_entropy(o, y, weight=torch.tensor([1., 0., 0.]))
    return dict(model=UNETRlike(), batch=batch, loss=bad if bug else good, ev=good)
