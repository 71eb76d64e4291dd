from common import *
# ---------------------------------------------------------------- time series
def series(g, B, L, C=1):
    t = torch.arange(L).float()
    ph = torch.rand(B, C, 1, generator=g)*6.28; per = 6+torch.rand(B, C, 1, generator=g)*10
    a = .5+torch.rand(B, C, 1, generator=g)*1.5; tr = torch.randn(B, C, 1, generator=g)*.02
    return a*torch.sin(6.28*t/per+ph)+tr*t+.1*torch.randn(B, C, L, generator=g)

class Chomp1d(nn.Module):
    def __init__(self, s): super().__init__(); self.chomp_size = s
    def forward(self, x): return x[:, :, :-self.chomp_size].contiguous()
class TemporalBlock(nn.Module):
    def __init__(self, i, o, k, dil, p=0.1):
        super().__init__(); wn = nn.utils.parametrizations.weight_norm; pad = (k-1)*dil
        self.conv1 = nn.Conv1d(i, o, k, padding=pad, dilation=dil); self.conv2 = nn.Conv1d(o, o, k, padding=pad, dilation=dil)
        self.conv1.weight.data.normal_(0, 0.1); self.conv2.weight.data.normal_(0, .1)
        self.conv1 = wn(self.conv1); self.conv2 = wn(self.conv2)
        self.net = nn.Sequential(self.conv1, Chomp1d(pad), nn.ReLU(), nn.Dropout(p), self.conv2, Chomp1d(pad), nn.ReLU(), nn.Dropout(p))
        self.downsample = nn.Conv1d(i, o, 1) if i != o else None; self.relu = nn.ReLU()
    def forward(self, x):
        return self.relu(self.net(x)+(x if self.downsample is None else self.downsample(x)))
class TCN(nn.Module):
    def __init__(self, c_in=7, chans=(24, 24, 24, 24), out=1, bug=False):
        super().__init__(); cs = [c_in, *chans]; self.network = nn.Sequential(*[TemporalBlock(cs[i], cs[i+1], 3, 2**i) for i in range(len(chans))]); self.linear = nn.Linear(chans[-1], out); self.bug = bug
    def forward(self, x):
        x = x.reshape(x.size(0), x.size(2), x.size(1)) if self.bug else x.permute(0, 2, 1)
        return self.linear(self.network(x)[:, :, -1])
@case('tcn', 'reshape (B,C,T) of (B,T,C) instead of permute', ['network.0'])
def _(bug):
    def batch(g):
        x = series(g, 32, 33, 7); return x[..., :32].transpose(1, 2).contiguous(), x[:, 0, 32:]
    return dict(model=TCN(bug=bug), batch=batch, loss=nn.MSELoss())

class NBeatsBlock(nn.Module):
    def __init__(self, L, H, units=64, theta=16):
        super().__init__(); self.fc1 = nn.Linear(L, units); self.fc2 = nn.Linear(units, units); self.fc3 = nn.Linear(units, units); self.fc4 = nn.Linear(units, units)
        self.theta_b_fc = nn.Linear(units, theta, bias=False); self.theta_f_fc = nn.Linear(units, theta, bias=False); self.backcast_fc = nn.Linear(theta, L); self.forecast_fc = nn.Linear(theta, H)
    def forward(self, x):
        for f in (self.fc1, self.fc2, self.fc3, self.fc4): x = F.relu(f(x))
        return self.backcast_fc(self.theta_b_fc(x)), self.forecast_fc(self.theta_f_fc(x))
class NBeats(nn.Module):
    def __init__(self, L=40, H=8, stacks=2, blocks=2, bug=False):
        super().__init__(); self.stacks = nn.ModuleList(nn.ModuleList(NBeatsBlock(L, H) for _ in range(blocks)) for _ in range(stacks)); self.H = H; self.bug = bug
    def forward(self, backcast):
        forecast = torch.zeros(backcast.size(0), self.H)
        for st in self.stacks:
            for blk in st:
                b, f = blk(backcast)
                if self.bug: backcast = b.detach(); forecast = f
                else: backcast = backcast-b; forecast = forecast+f
        return forecast
@case('nbeats', 'next block fed the detached backcast instead of the residual, forecast overwritten', ['stacks.0', 'stacks.1.0'])
def _(bug):
    def batch(g):
        x = series(g, 48, 48)[:, 0]; return x[:, :40], x[:, 40:]
    return dict(model=NBeats(bug=bug), batch=batch, loss=lambda o, y: F.l1_loss(o, y))

class NHitsBlock(nn.Module):
    def __init__(self, L, H, pool, r, w=64):
        super().__init__(); self.pool = nn.MaxPool1d(pool, pool, ceil_mode=True); n = math.ceil(L/pool); self.nth = max(H//r, 1); self.L, self.H = L, H
        self.mlp = nn.Sequential(nn.Linear(n, w), nn.ReLU(), nn.Linear(w, w), nn.ReLU(), nn.Linear(w, L+self.nth))
    def forward(self, x):
        th = self.mlp(self.pool(x[:, None])[:, 0])
        return th[:, :self.L], F.interpolate(th[:, None, self.L:], size=self.H, mode='linear')[:, 0]
class NHits(nn.Module):
    def __init__(self, L=40, H=8, bug=False):
        super().__init__(); bl = [NHitsBlock(L, H, p, r) for p, r in ((8, 4), (4, 2), (1, 1))]
        self.blocks = bl if bug else nn.ModuleList(bl); self.scale = nn.Parameter(torch.ones(H)) 
    def forward(self, insample_y):
        res = insample_y.flip(1); fc = insample_y[:, -1:].repeat(1, 8)
        for b in self.blocks:
            back, f = b(res); res = res-back; fc = fc+f
        return fc*self.scale
@case('nhits', 'blocks kept in a Python list: not registered', ['blocks'])
def _(bug):
    def batch(g):
        x = series(g, 48, 48)[:, 0]; return {'insample_y': x[:, :40]}, x[:, 40:]
    return dict(model=NHits(bug=bug), batch=batch, loss=F.l1_loss)

class GRN(nn.Module):
    def __init__(self, i, h, o=None, ctx=None):
        super().__init__(); o = o or i; self.fc1 = nn.Linear(i, h); self.ctx = nn.Linear(ctx, h, bias=False) if ctx else None; self.fc2 = nn.Linear(h, h); self.gate = nn.Linear(h, 2*o); self.norm = nn.LayerNorm(o); self.skip = nn.Linear(i, o) if i != o else nn.Identity(); self.drop = nn.Dropout(.1)
    def forward(self, x, c=None):
        h = self.fc1(x)
        if c is not None: h = h+self.ctx(c)
        return self.norm(self.skip(x)+F.glu(self.gate(self.drop(self.fc2(F.elu(h)))), -1))
class VSN(nn.Module):
    def __init__(self, n, d, dim=-1):
        super().__init__(); self.flat = GRN(n*d, d, n); self.single = nn.ModuleList(GRN(d, d) for _ in range(n)); self.dim = dim
    def forward(self, xs):
        w = torch.softmax(self.flat(torch.cat(xs, -1)), self.dim).unsqueeze(-2)
        return (torch.stack([g(x) for g, x in zip(self.single, xs)], -1)*w).sum(-1), w
class TFT(nn.Module):
    def __init__(self, nvar=4, d=24, H=6, q=3, bug=False):
        super().__init__(); self.emb = nn.ModuleList(nn.Linear(1, d) for _ in range(nvar)); self.known = nn.Linear(2, d); self.static = nn.Embedding(10, d); self.vsn = VSN(nvar, d); self.static_ctx = GRN(d, d)
        self.enc = nn.LSTM(d, d, batch_first=True); self.dec = nn.LSTM(d, d, batch_first=True); self.gate = nn.Linear(d, 2*d); self.norm = nn.LayerNorm(d); self.enrich = GRN(d, d, ctx=d)
        self.attn = nn.MultiheadAttention(d, 4, dropout=.1, batch_first=True); self.gate2 = nn.Linear(d, 2*d); self.norm2 = nn.LayerNorm(d); self.pos_ff = GRN(d, d); self.out = nn.Linear(d, q); self.H = H; self.bug = bug
    def forward(self, x_cat, x_past, x_future):
        s = self.static_ctx(self.static(x_cat)); p, w = self.vsn([e(x_past[..., i:i+1]) for i, e in enumerate(self.emb)]); f = self.known(x_future)
        h, st = self.enc(p, (s[None].contiguous(), s[None].contiguous())); hd, _ = self.dec(f, st)
        y = self.norm(torch.cat([p, f], 1)+F.glu(self.gate(torch.cat([h, hd], 1)), -1)); e = self.enrich(y, s[:, None])
        T = y.size(1); mask = torch.triu(torch.ones(T, T, dtype=torch.bool), 1)
        if self.bug: mask = ~mask & ~torch.eye(T, dtype=torch.bool) | False
        a = self.attn(e, e, e, attn_mask=mask, need_weights=False)[0]
        if self.bug: a = a[:, -self.H:]; z = F.glu(self.gate2(a), -1); return {'prediction': self.out(self.pos_ff(self.norm2(z))), 'weights': w}
        z = self.norm2(e+F.glu(self.gate2(a), -1))[:, -self.H:]
        return {'prediction': self.out(self.pos_ff(z)), 'weights': w}
class QuantileLoss(nn.Module):
    def __init__(self, qs=(.1, .5, .9), wrong=False): super().__init__(); self.qs = qs; self.wrong = wrong
    def forward(self, out, y):
        p = out['prediction'] if isinstance(out, dict) else out; L = []
        for i, q in enumerate(self.qs):
            e = y-p[..., i]; L.append((torch.min if self.wrong else torch.max)((q-1)*e, q*e))
        return torch.stack(L, -1).sum(-1).mean()
@case('tft', 'attention mask inverted (True means blocked): decoder sees only the future; residual around it forgotten', ['attn'])
def _(bug):
    def batch(g):
        x = series(g, 32, 30, 4).transpose(1, 2); k = torch.stack([torch.sin(torch.arange(30)*6.28/7), torch.cos(torch.arange(30)*6.28/7)], -1).expand(32, 30, 2)
        c = torch.randint(10, (32,), generator=g); y = x[:, 24:, 0]+(c[:, None]-4.5)*.2+k[:, 24:, 0]
        x = x.clone(); x[:, :, 0] += (c[:, None]-4.5)*.2+k[:, :, 0]
        return {'x_cat': c, 'x_past': x[:, :24], 'x_future': k[:, 24:]}, y
    return dict(model=TFT(bug=bug), batch=batch, loss=QuantileLoss())

class TokenEmbedding(nn.Module):
    def __init__(self, c, d):
        super().__init__(); self.tokenConv = nn.Conv1d(c, d, 3, padding=1, padding_mode='circular'); nn.init.kaiming_normal_(self.tokenConv.weight, mode='fan_in', nonlinearity='leaky_relu')
    def forward(self, x): return self.tokenConv(x.permute(0, 2, 1)).transpose(1, 2)
class DataEmbedding(nn.Module):
    def __init__(self, c, d):
        super().__init__(); self.value_embedding = TokenEmbedding(c, d); self.hour = nn.Embedding(24, d); pe = torch.zeros(64, d); pos = torch.arange(64)[:, None].float(); div = torch.exp(torch.arange(0, d, 2)*-(math.log(10000.)/d)); pe[:, 0::2] = torch.sin(pos*div); pe[:, 1::2] = torch.cos(pos*div); self.register_buffer('pe', pe); self.dropout = nn.Dropout(.05)
    def forward(self, x, mark): return self.dropout(self.value_embedding(x)+self.pe[:x.size(1)]+self.hour(mark))
class InfAttention(nn.Module):
    def __init__(self, d, h, causal=False, bug=False):
        super().__init__(); self.query_projection, self.key_projection, self.value_projection, self.out_projection = (nn.Linear(d, d) for _ in range(4)); self.h = h; self.causal = causal; self.bug = bug
    def forward(self, q, k, v):
        B, L, D = q.shape; S = k.size(1); q, k, v = (p(t).view(B, -1, self.h, D//self.h) for p, t in ((self.query_projection, q), (self.key_projection, k), (self.value_projection, v)))
        s = torch.einsum('blhe,bshe->bhls', q, k)
        if self.causal: s = s.masked_fill(torch.triu(torch.ones(L, S, dtype=torch.bool), 1), -math.inf)
        E = D//self.h; A = torch.softmax(s*(E if self.bug else 1/math.sqrt(E)), -1)
        return self.out_projection(torch.einsum('bhls,bshd->blhd', A, v).reshape(B, L, D))
class EncLayer(nn.Module):
    def __init__(self, d, bug):
        super().__init__(); self.attention = InfAttention(d, 4, bug=bug); self.conv1 = nn.Conv1d(d, 2*d, 1); self.conv2 = nn.Conv1d(2*d, d, 1); self.norm1 = nn.LayerNorm(d); self.norm2 = nn.LayerNorm(d)
    def forward(self, x):
        x = self.norm1(x+self.attention(x, x, x)); return self.norm2(x+self.conv2(F.gelu(self.conv1(x.transpose(1, 2)))).transpose(1, 2))
class Distil(nn.Module):
    def __init__(self, c): super().__init__(); self.downConv = nn.Conv1d(c, c, 3, padding=1, padding_mode='circular'); self.norm = nn.BatchNorm1d(c); self.act = nn.ELU(); self.maxPool = nn.MaxPool1d(3, 2, 1)
    def forward(self, x): return self.maxPool(self.act(self.norm(self.downConv(x.permute(0, 2, 1))))).transpose(1, 2)
class Informer(nn.Module):
    def __init__(self, c=3, d=32, H=8, label=12, bug=False):
        super().__init__(); self.enc_embedding = DataEmbedding(c, d); self.dec_embedding = DataEmbedding(c, d); self.e1 = EncLayer(d, bug); self.distil = Distil(d); self.e2 = EncLayer(d, bug); self.enc_norm = nn.LayerNorm(d)
        self.self_attn = InfAttention(d, 4, True, bug); self.cross = InfAttention(d, 4, bug=bug); self.n1, self.n2, self.n3 = (nn.LayerNorm(d) for _ in range(3)); self.ff = nn.Sequential(nn.Linear(d, 2*d), nn.GELU(), nn.Linear(2*d, d)); self.projection = nn.Linear(d, c); self.H = H
    def forward(self, x_enc, x_mark_enc, x_dec, x_mark_dec):
        m = self.enc_norm(self.e2(self.distil(self.e1(self.enc_embedding(x_enc, x_mark_enc))))); y = self.dec_embedding(x_dec, x_mark_dec)
        y = self.n1(y+self.self_attn(y, y, y)); y = self.n2(y+self.cross(y, m, m)); return self.projection(self.n3(y+self.ff(y)))[:, -self.H:]
@case('informer', 'attention scores multiplied by E instead of divided by sqrt(E)', ['attention', 'self_attn', 'cross'])
def _(bug):
    def batch(g):
        x = series(g, 32, 44, 3).transpose(1, 2); st = torch.randint(24, (32, 1), generator=g); h = (st+torch.arange(44))%24; x = x+torch.sin(h*6.28/24)[..., None]*1.5
        dec = torch.cat([x[:, 24:36], torch.zeros(32, 8, 3)], 1); return {'x_enc': x[:, :36], 'x_mark_enc': h[:, :36], 'x_dec': dec, 'x_mark_dec': h[:, 24:]}, x[:, 36:]
    return dict(model=Informer(bug=bug), batch=batch, loss=nn.MSELoss())

class DeepAR(nn.Module):
    def __init__(self, n_series=20, d=8, hid=40, scaled=True):
        super().__init__(); self.embedding = nn.Embedding(n_series, d); self.lstm = nn.LSTM(1+d, hid, num_layers=2, bias=True, dropout=.1)
        for names in self.lstm._all_weights:
            for nme in filter(lambda n: 'bias' in n, names):
                b = getattr(self.lstm, nme); n = b.size(0); b.data[n//4:n//2].fill_(1.)
        self.distribution_mu = nn.Linear(hid*2, 1); self.distribution_presigma = nn.Linear(hid*2, 1); self.distribution_sigma = nn.Softplus(); self.scaled = scaled; self.proj = nn.Linear(hid, hid*2)
    def forward(self, z, idx):
        v = z.abs().mean(1, keepdim=True)+1 if self.scaled else torch.ones(len(z), 1)
        x = torch.cat([(z/v)[..., None], self.embedding(idx)[:, None].expand(-1, z.size(1), -1)], -1).transpose(0, 1)
        o, _ = self.lstm(x); h = torch.relu(self.proj(o)).transpose(0, 1)
        return (self.distribution_mu(h)[..., 0]*v, self.distribution_sigma(self.distribution_presigma(h))[..., 0]*v+1e-3)
@case('deepar', 'series of scale 1 to 1000 fed and predicted without the scale', ['lstm', 'distribution_mu', 'distribution_presigma'])
def _(bug):
    sc = torch.logspace(0.5, 3, 20)
    def batch(g):
        i = torch.randint(20, (32,), generator=g); x = (series(g, 32, 25)[:, 0]*.5+2).clamp(min=0)*sc[i][:, None]; return (x[:, :-1], i), x[:, 1:]
    def nll(o, y):
        mu, s = o; return -torch.distributions.Normal(mu, s).log_prob(y).mean()
    return dict(model=DeepAR(scaled=not bug), batch=batch, loss=nll)

class QLSTM(nn.Module):
    def __init__(self): super().__init__(); self.rnn = nn.LSTM(3, 32, batch_first=True); self.head = nn.Sequential(nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 4*3))
    def forward(self, x): return self.head(self.rnn(x)[0][:, -1]).unflatten(-1, (4, 3))
@case('quantile_lstm', 'pinball loss with min instead of max', ['loss'])
def _(bug):
    def batch(g):
        x = series(g, 48, 28, 3).transpose(1, 2); return x[:, :24], x[:, 24:, 0]
    return dict(model=QLSTM(), batch=batch, loss=QuantileLoss(wrong=bug))

class Seq2SeqLSTM(nn.Module):
    def __init__(self, bug):
        super().__init__(); self.encoder = nn.LSTM(4, 40, 2, batch_first=True, dropout=.1); self.decoder = nn.LSTMCell(1, 40); self.fc_out = nn.Linear(40, 1); self.act = nn.ReLU() if bug else nn.Identity()
    def forward(self, src, horizon=6):
        _, (h, c) = self.encoder(src); h, c = h[-1], c[-1]; y = src[:, -1, :1]; out = []
        for _ in range(horizon):
            h, c = self.decoder(y, (h, c)); y = self.act(self.fc_out(h)); out.append(y)
        return torch.cat(out, 1)
@case('seq2seq_lstm', 'ReLU after the output while targets are standardised (half negative)', ['act', 'fc_out'])
def _(bug):
    def batch(g):
        x = series(g, 32, 26, 4).transpose(1, 2); return x[:, :20], x[:, 20:, 0]
    return dict(model=Seq2SeqLSTM(bug), batch=batch, loss=nn.MSELoss())

class RevIN(nn.Module):
    def __init__(self, n): super().__init__(); self.affine_weight = nn.Parameter(torch.ones(n)); self.affine_bias = nn.Parameter(torch.zeros(n))
    def norm(self, x):
        m = x.mean(1, keepdim=True).detach(); s = torch.sqrt(x.var(1, keepdim=True, unbiased=False)+1e-5).detach(); return (x-m)/s*self.affine_weight+self.affine_bias, m, s
    def denorm(self, x, m, s): return (x-self.affine_bias)/(self.affine_weight+1e-10)*s+m
class PatchTST(nn.Module):
    def __init__(self, n=3, L=48, H=8, P=8, S=4, d=32, bug=False):
        super().__init__(); self.revin = RevIN(n); self.P, self.S = P, S; N = (L-P)//S+1; self.W_P = nn.Linear(P, d); self.W_pos = nn.Parameter(torch.empty(N, d).uniform_(-.02, .02))
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 64, .1, 'gelu', batch_first=True), 2, enable_nested_tensor=False); self.head = nn.Sequential(nn.Flatten(-2), nn.Linear(N*d, H)); self.bug = bug
    def forward(self, x):
        B, L, C = x.shape; z, m, s = self.revin.norm(x); z = z.transpose(1, 2).unfold(-1, self.P, self.S)
        z = (self.W_P(z)+self.W_pos).flatten(0, 1); z = self.encoder(z).unflatten(0, (B, C)); y = self.head(z).transpose(1, 2)
        return y if self.bug else self.revin.denorm(y, m, s)
@case('patchtst', 'RevIN never denormalised: outputs of unit scale against raw targets', ['revin', 'head'])
def _(bug):
    def batch(g):
        x = (series(g, 24, 56, 3)+torch.randn(24, 3, 1, generator=g)*5+10).transpose(1, 2); return x[:, :48], x[:, 48:]
    return dict(model=PatchTST(bug=bug), batch=batch, loss=nn.MSELoss())

# ---------------------------------------------------------------- speech and audio
class Swish(nn.Module):
    def forward(self, x): return x*x.sigmoid()
class ConvModule(nn.Module):
    def __init__(self, d, k=7): super().__init__(); self.ln = nn.LayerNorm(d); self.pw1 = nn.Conv1d(d, 2*d, 1); self.dw = nn.Conv1d(d, d, k, padding=k//2, groups=d); self.bn = nn.BatchNorm1d(d); self.act = Swish(); self.pw2 = nn.Conv1d(d, d, 1); self.do = nn.Dropout(.1)
    def forward(self, x): x = self.ln(x).transpose(1, 2); x = F.glu(self.pw1(x), 1); return self.do(self.pw2(self.act(self.bn(self.dw(x))))).transpose(1, 2)
class ConformerBlock(nn.Module):
    def __init__(self, d):
        super().__init__(); ff = lambda: nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 4*d), Swish(), nn.Dropout(.1), nn.Linear(4*d, d), nn.Dropout(.1)); self.ff1, self.ff2 = ff(), ff(); self.ln = nn.LayerNorm(d); self.mhsa = nn.MultiheadAttention(d, 4, dropout=.1, batch_first=True); self.conv = ConvModule(d); self.norm = nn.LayerNorm(d)
    def forward(self, x, pad):
        x = x+.5*self.ff1(x); h = self.ln(x); x = x+self.mhsa(h, h, h, key_padding_mask=pad, need_weights=False)[0]; x = x+self.conv(x); x = x+.5*self.ff2(x); return self.norm(x)
class ConformerCTC(nn.Module):
    def __init__(self, mel=20, d=32, V=12, bug=False):
        super().__init__(); self.subsample = nn.Sequential(nn.Conv2d(1, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 16, 3, (1, 2), (1, 0)), nn.ReLU()); self.proj = nn.Linear(16*4, d); self.blocks = nn.ModuleList(ConformerBlock(d) for _ in range(2)); self.head = nn.Linear(d, V); self.bug = bug
    def forward(self, feats, lens):
        x = self.subsample(feats[:, None]); x = self.proj(x.transpose(1, 2).flatten(2)); ol = ((lens-1)//2).clamp(max=x.size(1)); pad = torch.arange(x.size(1))[None] >= ol[:, None]
        for b in self.blocks: x = b(x, pad)
        return self.head(x).log_softmax(1 if self.bug else -1), ol
@case('conformer_ctc', 'log_softmax over time (dim=1) instead of the vocabulary', ['head'])
def _(bug):
    proto = torch.randn(12, 20, generator=G(20))*1.2
    def batch(g):
        n = torch.randint(4, 8, (16,), generator=g); y = torch.randint(1, 12, (16, 8), generator=g); x = proto[y].repeat_interleave(7, 1)+.4*torch.randn(16, 56, 20, generator=g); return (x, n*7), (y, n)
    def ctc(o, t):
        lp, ol = o; y, n = t; return F.ctc_loss(lp.transpose(0, 1), y, ol, n, blank=0, zero_infinity=True)
    ev = (lambda o, t: ctc((o[0].log_softmax(-1), o[1]), t)) if bug else None
    return dict(model=ConformerCTC(bug=bug), batch=batch, loss=ctc, ev=ev)

class RNNT(nn.Module):
    def __init__(self, f=16, h=32, V=10, bug=False):
        super().__init__(); self.encoder = nn.LSTM(f, h, 2, batch_first=True); self.embed = nn.Embedding(V, h); self.prediction = nn.GRU(h, h, batch_first=True); self.enc_proj = nn.Linear(h, 48); self.pred_proj = nn.Linear(h, 48); self.joint = nn.Linear(48, V); self.bug = bug
    def forward(self, audio, labels):
        e = self.enc_proj(self.encoder(audio)[0]); y = F.pad(labels, (1, 0)); p = self.pred_proj(self.prediction(self.embed(y))[0])
        j = e[:, :, None]+p[:, None]; 
        j = (torch.relu(j)*0 + torch.sigmoid(j*30)) if self.bug else torch.tanh(j)
        return self.joint(j).log_softmax(-1)
def rnnt_loss(lp, y):
    B, T, U1, V = lp.shape; blank = lp[..., 0]; emit = lp[:, :, :-1].gather(-1, y[:, None, :, None].expand(B, T, -1, 1))[..., 0]; rows = []
    for t in range(T):
        row = []
        for u in range(U1):
            c = []
            if t > 0: c.append(rows[t-1][u]+blank[:, t-1, u])
            if u > 0: c.append(row[u-1]+emit[:, t, u-1])
            row.append(torch.logsumexp(torch.stack(c), 0) if c else torch.zeros(B))
        rows.append(row)
    return -(rows[-1][-1]+blank[:, -1, -1]).mean()
@case('rnnt', 'joint uses sigmoid(30 x): saturated', ['joint', 'enc_proj', 'pred_proj'])
def _(bug):
    proto = torch.randn(10, 16, generator=G(21))
    def batch(g):
        y = torch.randint(1, 10, (16, 4), generator=g); x = proto[y].repeat_interleave(2, 1)+.3*torch.randn(16, 8, 16, generator=g); return {'audio': x, 'labels': y}, y
    return dict(model=RNNT(bug=bug), batch=batch, loss=rnnt_loss)

class FFTBlock(nn.Module):
    def __init__(self, d): super().__init__(); self.slf_attn = nn.MultiheadAttention(d, 2, dropout=.1, batch_first=True); self.n1 = nn.LayerNorm(d); self.c1 = nn.Conv1d(d, 2*d, 9, padding=4); self.c2 = nn.Conv1d(2*d, d, 1); self.n2 = nn.LayerNorm(d)
    def forward(self, x, pad=None):
        x = self.n1(x+self.slf_attn(x, x, x, key_padding_mask=pad, need_weights=False)[0]); return self.n2(x+self.c2(F.relu(self.c1(x.transpose(1, 2)))).transpose(1, 2))
class FastSpeech(nn.Module):
    def __init__(self, V=30, d=32, mel=20, T=40, bug=False):
        super().__init__(); self.phone = nn.Embedding(V, d, padding_idx=0); self.pos_src = nn.Embedding(16, d); self.pos_mel = nn.Embedding(T, d); self.encoder = nn.ModuleList([FFTBlock(d)]); self.decoder = nn.ModuleList([FFTBlock(d)]); self.dp = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.LayerNorm(d), nn.Linear(d, 1)); self.mel_linear = nn.Linear(d, mel); self.postnet = nn.Sequential(nn.Conv1d(mel, d, 5, padding=2), nn.BatchNorm1d(d), nn.Tanh(), nn.Conv1d(d, mel, 5, padding=2), nn.BatchNorm1d(mel)); self.T = T; self.bug = bug
    def length_regulate(self, x, dur):
        end = dur.cumsum(1); f = torch.arange(self.T); idx = (f[None, :, None] >= end[:, None]).sum(-1).clamp(max=x.size(1)-1); return x.gather(1, idx[..., None].expand(-1, -1, x.size(-1)))
    def forward(self, phones, durations):
        pad = phones == 0; x = self.phone(phones)+self.pos_src(torch.arange(phones.size(1)))
        for l in self.encoder: x = l(x, pad)
        ld = self.dp(x.detach()).squeeze(-1).masked_fill(pad, 0); y = self.length_regulate(x, durations)+self.pos_mel(torch.arange(self.T))
        for l in self.decoder: y = l(y)
        m = self.mel_linear(y)
        if self.bug: m = torch.sigmoid(m); return m, m, ld
        return m, m+self.postnet(m.transpose(1, 2)).transpose(1, 2), ld
@case('fastspeech', 'mel squashed by a sigmoid while targets are log-mels in [-8, 2], postnet unused', ['mel_linear', 'postnet'])
def _(bug):
    proto = torch.randn(30, 20, generator=G(22))*1.5-3
    def batch(g):
        p = torch.randint(1, 30, (16, 12), generator=g); d = 1+(p%5); d[:, -1] = 40; n = torch.randint(8, 13, (16,), generator=g); pad = torch.arange(12)[None] >= n[:, None]; p = p.masked_fill(pad, 0); d = d.masked_fill(pad, 0)
        idx = (torch.arange(40)[None, :, None] >= d.cumsum(1)[:, None]).sum(-1).clamp(max=11); mel = proto[p.gather(1, idx)]+.2*torch.randn(16, 40, 20, generator=g); L = d.sum(1).clamp(max=40); mask = torch.arange(40)[None] < L[:, None]
        return (p, d), {'mel': mel, 'dur': d, 'src_mask': ~pad, 'mel_mask': mask}
    def loss(o, t):
        m, mp, ld = o; k = t['mel_mask'][..., None].float(); l1 = lambda a: ((a-t['mel']).abs()*k).sum()/(k.sum()*20)
        dl = (F.mse_loss(ld, torch.log(t['dur'].float()+1), reduction='none')*t['src_mask']).sum()/t['src_mask'].sum()
        return l1(m)+l1(mp)+dl
    return dict(model=FastSpeech(bug=bug), batch=batch, loss=loss)

class StatsPool(nn.Module):
    def forward(self, x): return torch.cat([x.mean(-1), (x.var(-1)+1e-5).sqrt()], 1)
class AAMSoftmax(nn.Module):
    def __init__(self, d, n, m=.2, s=30.): super().__init__(); self.weight = nn.Parameter(torch.empty(n, d)); nn.init.xavier_normal_(self.weight); self.m, self.s = m, s; self.ce = nn.CrossEntropyLoss()
    def forward(self, x, y):
        c = F.linear(F.normalize(x), F.normalize(self.weight)); sn = torch.sqrt((1-c*c).clamp(0, 1)+1e-9); phi = c*math.cos(self.m)-sn*math.sin(self.m); phi = torch.where(c > math.cos(math.pi-self.m), phi, c-math.sin(math.pi-self.m)*self.m)
        oh = F.one_hot(y, c.size(1)).to(c.dtype); return self.ce(self.s*(oh*phi+(1-oh)*c), y), self.s*c
class XVector(nn.Module):
    def __init__(self, s=30., n=20): 
        super().__init__(); c = 48; self.tdnn = nn.Sequential(nn.Conv1d(20, c, 5), nn.ReLU(), nn.BatchNorm1d(c), nn.Conv1d(c, c, 3, dilation=2), nn.ReLU(), nn.BatchNorm1d(c), nn.Conv1d(c, 96, 1), nn.ReLU(), nn.BatchNorm1d(96)); self.pool = StatsPool(); self.fc = nn.Linear(192, 48); self.bn = nn.BatchNorm1d(48); self.loss_fn = AAMSoftmax(48, n, s=s)
    def forward(self, mel, speaker): 
        mel = mel-mel.mean(-1, keepdim=True); return self.loss_fn(self.bn(self.fc(self.pool(self.tdnn(mel)))), speaker)[0]
class XV2(XVector):
    def forward(self, mel): mel = mel-mel.mean(-1, keepdim=True); return self.bn(self.fc(self.pool(self.tdnn(mel))))
def spk_batch(B=32, T=40, n=20, seed=23):
    A = torch.randn(n, 20, 4, generator=G(seed))
    def f(y, g): return torch.einsum('bfk,bkt->bft', A[y], torch.randn(len(y), 4, T, generator=g))+.5*torch.randn(len(y), 20, T, generator=g)
    return f
@case('xvector_aam', 'scale s of AAM-softmax left at 1', ['loss_fn', 'weight'])
def _(bug):
    f = spk_batch(); m = XV2(s=1. if bug else 30.)
    def batch(g): y = torch.randint(20, (32,), generator=g); return f(y, g), y
    def ev(e, y): return F.cross_entropy(30*F.linear(F.normalize(e), F.normalize(m.loss_fn.weight)), y)
    return dict(model=m, batch=batch, loss=lambda e, y: m.loss_fn(e, y)[0], ev=ev)
@case('xvector_aam_module', None, loss='model')
def _(bug):
    f = spk_batch()
    def batch(g): y = torch.randint(20, (32,), generator=g); return {'mel': f(y, g), 'speaker': y}, None
    return dict(model=XVector(), batch=batch, loss=lambda o, t: o)

class GE2E(nn.Module):
    def __init__(self): super().__init__(); self.lstm = nn.LSTM(20, 48, 2, batch_first=True); self.linear = nn.Linear(48, 32); self.similarity_weight = nn.Parameter(torch.tensor([10.])); self.similarity_bias = nn.Parameter(torch.tensor([-5.]))
    def forward(self, utt): e = torch.relu(self.linear(self.lstm(utt)[1][0][-1])); return e/(e.norm(dim=1, keepdim=True)+1e-5)
@case('ge2e', 'embeddings viewed as (utterances, speakers) instead of (speakers, utterances)', ['loss'], per='batch')
def _(bug):
    N, M = 8, 4; mu = torch.randn(60, 20, generator=G(24)); m = GE2E()
    def batch(g):
        s = torch.randperm(60, generator=g)[:N].repeat_interleave(M); return mu[s][:, None]+.7*torch.randn(N*M, 16, 20, generator=g), torch.arange(N).repeat_interleave(M)
    def sim(e, wrong):
        E = e.view(M, N, -1).transpose(0, 1) if wrong else e.view(N, M, -1); c = F.normalize(E.mean(1), dim=-1); ce = F.normalize((E.sum(1, keepdim=True)-E)/(M-1), dim=-1)
        S = torch.einsum('nmd,kd->nmk', E, c); own = (E*ce).sum(-1); eye = torch.eye(N, dtype=torch.bool)[:, None]; S = torch.where(eye, own[..., None], S); return (S*m.similarity_weight+m.similarity_bias).reshape(N*M, N)
    return dict(model=m, batch=batch, loss=lambda e, y: F.cross_entropy(sim(e, bug), y), ev=lambda e, y: F.cross_entropy(sim(e, False), y))

class AST(nn.Module):
    def __init__(self, d=48, depth=2, ncls=8):
        super().__init__(); self.patch_embed = nn.Conv2d(1, d, 8, 6); n = 5*8; self.cls_token = nn.Parameter(torch.zeros(1, 1, d)); self.dist_token = nn.Parameter(torch.zeros(1, 1, d)); self.pos_embed = nn.Parameter(torch.zeros(1, n+2, d)); nn.init.trunc_normal_(self.pos_embed, std=.02); nn.init.trunc_normal_(self.cls_token, std=.02); nn.init.trunc_normal_(self.dist_token, std=.02)
        self.blocks = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 2*d, 0., 'gelu', batch_first=True, norm_first=True), depth, norm=nn.LayerNorm(d), enable_nested_tensor=False); self.mlp_head = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, ncls))
    def forward(self, x):
        x = self.patch_embed(x.unsqueeze(1).transpose(2, 3)).flatten(2).transpose(1, 2); B = len(x); x = torch.cat([self.cls_token.expand(B, -1, -1), self.dist_token.expand(B, -1, -1), x], 1)+self.pos_embed; x = self.blocks(x); return self.mlp_head((x[:, 0]+x[:, 1])/2)
@case('ast', 'power spectrogram fed without the log (values 1e-4 to 1e4)', ['patch_embed', 'input'])
def _(bug):
    P = torch.randn(8, 1, 32, generator=G(25))
    def batch(g):
        y = torch.randint(8, (24,), generator=g); x = P[y]+torch.randn(24, 50, 32, generator=g)+torch.randn(24, 1, 1, generator=g)*.5; return (((x*1.5).exp()*20 if bug else x/2)), y
    return dict(model=AST(), batch=batch, loss=nn.CrossEntropyLoss(label_smoothing=.1))

class DSConv(nn.Module):
    def __init__(self, i, o, s=1): super().__init__(); self.dw = nn.Conv2d(i, i, 3, s, 1, groups=i, bias=False); self.bn1 = nn.BatchNorm2d(i); self.pw = nn.Conv2d(i, o, 1, bias=False); self.bn2 = nn.BatchNorm2d(o)
    def forward(self, x): return F.relu(self.bn2(self.pw(F.relu(self.bn1(self.dw(x))))))
class DSCNN(nn.Module):
    def __init__(self, ncls=10, w=48, bug=False):
        super().__init__(); self.conv1 = nn.Conv2d(1, w, (10, 4), (2, 2), bias=False); self.bn = nn.BatchNorm2d(w); self.layers = nn.Sequential(*[DSConv(w, w) for _ in range(4)]); self.fc = nn.Linear(w, ncls)
        for m in self.modules():
            if isinstance(m, nn.BatchNorm2d): nn.init.constant_(m.weight, 0. if bug else 1.); nn.init.constant_(m.bias, 0)
    def forward(self, mfcc): x = self.layers(F.relu(self.bn(self.conv1(mfcc.unsqueeze(1))))); return self.fc(x.mean((2, 3)))
@case('kws_dscnn', 'all BatchNorm weights initialised to 0', ['bn', 'layers'])
def _(bug):
    P = torch.randn(10, 40, 10, generator=G(26))*3
    def batch(g): y = torch.randint(10, (32,), generator=g); return {'mfcc': P[y]+3*torch.randn(32, 40, 10, generator=g)-5}, y
    return dict(model=DSCNN(bug=bug), batch=batch, loss=nn.CrossEntropyLoss())

class WaveNet(nn.Module):
    def __init__(self, q=64, r=24, s=32, dil=(1, 2, 4, 8, 1, 2, 4, 8), bug=False):
        super().__init__(); self.q = q; self.bug = bug; self.front = nn.Conv1d(1 if bug else q, r, 1); self.fil = nn.ModuleList(nn.Conv1d(r, r, 2, dilation=d) for d in dil); self.gate = nn.ModuleList(nn.Conv1d(r, r, 2, dilation=d) for d in dil); self.res = nn.ModuleList(nn.Conv1d(r, r, 1) for _ in dil); self.skip = nn.ModuleList(nn.Conv1d(r, s, 1) for _ in dil); self.end = nn.Sequential(nn.ReLU(), nn.Conv1d(s, s, 1), nn.ReLU(), nn.Conv1d(s, q, 1)); self.dil = dil
    def forward(self, x):
        h = self.front(x[:, None].float() if self.bug else F.one_hot(x, self.q).float().transpose(1, 2)); sk = 0
        for f, g, r, s, d in zip(self.fil, self.gate, self.res, self.skip, self.dil):
            p = F.pad(h, (d, 0)); z = torch.tanh(f(p))*torch.sigmoid(g(p)); sk = sk+s(z); h = h+r(z)
        return self.end(sk)
@case('wavenet', 'mu-law indices 0..63 fed as floats instead of one-hot', ['front'])
def _(bug):
    def batch(g):
        x = (series(g, 12, 65)[:, 0]/2.5).clamp(-1, 1); mu = 63; q = ((x.sign()*torch.log1p(mu*x.abs())/math.log1p(mu)+1)/2*mu+.5).long(); return q[:, :-1], q[:, 1:]
    return dict(model=WaveNet(bug=bug), batch=batch, loss=lambda o, t: F.cross_entropy(o, t))
