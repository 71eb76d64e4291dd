from harness import *
import torch.nn as nn, torch.nn.functional as F
def G(seed): return torch.Generator().manual_seed(seed)

# ---------------------------------------------------------------- Swin
@net(rev="window_reverse: view(B,H//w,W//w,w,w,C).view(B,H,W,C) without permute", roll="reverse shift rolls with (-shift) again", scale="scale = head_dim ** 0.5 (multiplied)", bias="relative_position_bias added after the softmax")
def swin(s):
    W, C, H, N = 4, 48, 4, 8
    def part(x): B = x.shape[0]; return x.view(B, N//W, W, N//W, W, C).permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, W*W, C)
    def rev(w):
        B = w.shape[0]//(N//W)**2; x = w.view(B, N//W, N//W, W, W, C)
        return (x if s == "rev" else x.permute(0, 1, 3, 2, 4, 5)).contiguous().view(B, N, N, C)
    class WA(nn.Module):
        def __init__(self):
            super().__init__(); self.scale = (C//H)**(.5 if s == "scale" else -.5); self.qkv = nn.Linear(C, 3*C); self.proj = nn.Linear(C, C)
            self.relative_position_bias_table = nn.Parameter(torch.zeros((2*W-1)**2, H)); nn.init.trunc_normal_(self.relative_position_bias_table, std=.02)
            c = torch.stack(torch.meshgrid(torch.arange(W), torch.arange(W), indexing="ij")).flatten(1); r = (c[:, :, None]-c[:, None]).permute(1, 2, 0) + W-1
            self.register_buffer("relative_position_index", r[..., 0]*(2*W-1)+r[..., 1])
        def forward(self, x, mask):
            B_, L, _ = x.shape; q, k, v = self.qkv(x).reshape(B_, L, 3, H, C//H).permute(2, 0, 3, 1, 4).unbind(0)
            a = (q*self.scale) @ k.transpose(-2, -1); b = self.relative_position_bias_table[self.relative_position_index.view(-1)].view(L, L, H).permute(2, 0, 1).unsqueeze(0)
            if s != "bias": a = a + b
            if mask is not None: nw = mask.shape[0]; a = (a.view(B_//nw, nw, H, L, L) + mask[None, :, None]).view(-1, H, L, L)
            a = a.softmax(-1)
            if s == "bias": a = a + b
            return self.proj((a @ v).transpose(1, 2).reshape(B_, L, C))
    class Block(nn.Module):
        def __init__(self, shift):
            super().__init__(); self.shift = shift; self.norm1 = nn.LayerNorm(C); self.attn = WA(); self.norm2 = nn.LayerNorm(C); self.mlp = nn.Sequential(nn.Linear(C, 2*C), nn.GELU(), nn.Linear(2*C, C)); m = None
            if shift:
                im = torch.zeros(N, N); c = 0
                for h in (slice(0, -W), slice(-W, -shift), slice(-shift, None)):
                    for w in (slice(0, -W), slice(-W, -shift), slice(-shift, None)): im[h, w] = c; c += 1
                mw = im.view(N//W, W, N//W, W).permute(0, 2, 1, 3).reshape(-1, W*W); d = mw[:, None]-mw[:, :, None]; m = d.masked_fill(d != 0, -100.).masked_fill(d == 0, 0.)
            self.register_buffer("attn_mask", m)
        def forward(self, x):
            h = self.norm1(x)
            if self.shift: h = torch.roll(h, (-self.shift,)*2, (1, 2))
            h = rev(self.attn(part(h), self.attn_mask))
            if self.shift: h = torch.roll(h, ((-1 if s == "roll" else 1)*self.shift,)*2, (1, 2))
            x = x + h; return x + self.mlp(self.norm2(x))
    class Swin(nn.Module):
        def __init__(self): super().__init__(); self.patch_embed = nn.Conv2d(1, C, 2, 2); self.norm0 = nn.LayerNorm(C); self.layers = nn.ModuleList([Block(0), Block(1), Block(0), Block(1)]); self.norm = nn.LayerNorm(C); self.head = nn.Linear(C, 4)
        def forward(self, x):
            x = self.norm0(self.patch_embed(x).permute(0, 2, 3, 1))
            for l in self.layers: x = l(x)
            return self.head(self.norm(x)).permute(0, 3, 1, 2)
    def data(seed):  # each patch predicts content of the patch diagonal neighbour
        g = G(seed); k = torch.randint(4, (16, N, N), generator=g); pat = torch.tensor([[1., 0, 0, 1], [0, 1, 1, 0], [1, 1, 0, 0], [0, 0, 1, 1]])*2-1
        x = pat[k].view(16, N, N, 2, 2).permute(0, 1, 3, 2, 4).reshape(16, 1, 2*N, 2*N) + .2*torch.randn(16, 1, 2*N, 2*N, generator=g)
        t = k.clone(); t[:, 1:, 1:] = k[:, :-1, :-1]; return x, t
    return dict(model=Swin, data=data, loss=F.cross_entropy)

# ---------------------------------------------------------------- Conformer
@net(glu="GLU gate forgotten: chunk(2,1)[0] only", ff="half-step residual taken of the output: 0.5*(x+ff(x))", mask="key_padding_mask inverted (True = valid)", pad="loss averages over padded frames too (mask not applied)")
def conformer(s):
    C, T, V = 48, 32, 6
    class FF(nn.Module):
        def __init__(self): super().__init__(); self.ln = nn.LayerNorm(C); self.l1 = nn.Linear(C, 4*C); self.l2 = nn.Linear(4*C, C)
        def forward(self, x): return self.l2(F.silu(self.l1(self.ln(x))))
    class Conv(nn.Module):
        def __init__(self): super().__init__(); self.ln = nn.LayerNorm(C); self.pw1 = nn.Conv1d(C, 2*C, 1); self.dw = nn.Conv1d(C, C, 7, padding=3, groups=C); self.bn = nn.BatchNorm1d(C); self.pw2 = nn.Conv1d(C, C, 1)
        def forward(self, x, pad):
            x = self.pw1(self.ln(x).transpose(1, 2)); x = x.chunk(2, 1)[0] if s == "glu" else F.glu(x, 1)
            x = x.masked_fill(pad[:, None], 0.); return self.pw2(F.silu(self.bn(self.dw(x)))).transpose(1, 2)
    class Block(nn.Module):
        def __init__(self): super().__init__(); self.ff1 = FF(); self.ln = nn.LayerNorm(C); self.attn = nn.MultiheadAttention(C, 4, batch_first=True); self.conv = Conv(); self.ff2 = FF(); self.norm = nn.LayerNorm(C)
        def forward(self, x, pad):
            x = .5*(x+self.ff1(x)) if s == "ff" else x + .5*self.ff1(x); h = self.ln(x)
            x = x + self.attn(h, h, h, key_padding_mask=~pad if s == "mask" else pad, need_weights=False)[0]; x = x + self.conv(x, pad)
            x = .5*(x+self.ff2(x)) if s == "ff" else x + .5*self.ff2(x); return self.norm(x)
    class Conformer(nn.Module):
        def __init__(self): super().__init__(); self.proj = nn.Linear(8, C); self.layers = nn.ModuleList([Block() for _ in range(2)]); self.out = nn.Linear(C, V)
        def forward(self, x, lengths):
            pad = torch.arange(x.size(1))[None] >= lengths[:, None]; x = self.proj(x)
            for l in self.layers: x = l(x, pad)
            return self.out(x)
    E = torch.randn(V, 8, generator=G(3))
    def data(seed):  # label = (own symbol + majority "speaker" shift of valid frames)
        g = G(seed); B = 32; L = torch.randint(12, T+1, (B,), generator=g); L[0] = T; k = torch.randint(V, (B, T//2), generator=g).repeat_interleave(2, 1); sp = torch.randint(2, (B,), generator=g)
        x = E[k] + .3*torch.randn(B, T, 8, generator=g); x[:, :, 7] = (sp*2-1.)[:, None] + 1.5*torch.randn(B, T, generator=g); pad = torch.arange(T)[None] >= L[:, None]; x = torch.where(pad[..., None], 2*torch.randn(B, T, 8, generator=g), x)
        y = (torch.roll(k, 2, 1) + sp[:, None]*3) % V; y = y.masked_fill(pad, 0 if s == "pad" else -100); return (x, L), y
    return dict(model=Conformer, data=data, loss=lambda o, t: F.cross_entropy(o.transpose(1, 2), t, ignore_index=-100))

# ---------------------------------------------------------------- Tacotron2
@net(cum="attention_weights_cum never accumulated (location features see zeros)", ctx="decoder_rnn gets the previous context, frozen at the zeros of the start (context not stored)", go="teacher frames not shifted: frame t is the decoder input at t", prenet="prenet output detached")
def tacotron(s):
    V, E, M, A, R, T = 12, 32, 8, 32, 48, 8
    class Att(nn.Module):
        def __init__(self): super().__init__(); self.query_layer = nn.Linear(R, A, bias=False); self.memory_layer = nn.Linear(E, A, bias=False); self.v = nn.Linear(A, 1, bias=False); self.location_conv = nn.Conv1d(2, 8, 5, padding=2, bias=False); self.location_dense = nn.Linear(8, A, bias=False)
        def forward(self, h, mem, pm, wcat, mask):
            e = self.v(torch.tanh(self.query_layer(h)[:, None] + pm + self.location_dense(self.location_conv(wcat).transpose(1, 2)))).squeeze(-1)
            w = F.softmax(e.masked_fill(mask, -float("inf")), 1); return torch.bmm(w[:, None], mem).squeeze(1), w
    class Taco(nn.Module):
        def __init__(self):
            super().__init__(); self.embedding = nn.Embedding(V, E); self.conv = nn.Sequential(nn.Conv1d(E, E, 3, padding=1), nn.BatchNorm1d(E), nn.ReLU()); self.lstm = nn.LSTM(E, E//2, bidirectional=True, batch_first=True)
            self.prenet = nn.Sequential(nn.Linear(M, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU()); self.attention_rnn = nn.LSTMCell(24+E, R); self.attention = Att(); self.decoder_rnn = nn.LSTMCell(R+E, R); self.linear_projection = nn.Linear(R+E, M)
            self.postnet = nn.Sequential(nn.Conv1d(M, 16, 5, padding=2), nn.BatchNorm1d(16), nn.Tanh(), nn.Conv1d(16, M, 5, padding=2))
        def forward(self, text, lengths, mels):
            x = self.embedding(text).transpose(1, 2); mem, _ = self.lstm(self.conv(x).transpose(1, 2)); B = len(text); pm = self.attention.memory_layer(mem); mask = torch.arange(T)[None] >= lengths[:, None]
            inp = mels if s == "go" else torch.cat([mels.new_zeros(B, 1, M), mels[:, :-1]], 1); inp = self.prenet(inp)
            if s == "prenet": inp = inp.detach()
            z = lambda n: mem.new_zeros(B, n)
            ah, ac, dh, dc, ctx, w, cum = z(R), z(R), z(R), z(R), z(E), z(T), z(T); outs = []
            for i in range(inp.size(1)):
                ah, ac = self.attention_rnn(torch.cat([inp[:, i], ctx], -1), (ah, ac)); c, w = self.attention(ah, mem, pm, torch.stack([w, cum], 1), mask)
                if s != "cum": cum = cum + w
                if s != "ctx": ctx = c
                dh, dc = self.decoder_rnn(torch.cat([ah, ctx], -1), (dh, dc)); outs.append(self.linear_projection(torch.cat([dh, ctx], -1)))
            o = torch.stack(outs, 1); return o, o + self.postnet(o.transpose(1, 2)).transpose(1, 2)
    P = torch.randn(V, 2, M, generator=G(5))
    def data(seed):
        g = G(seed); B = 32; L = torch.randint(5, T+1, (B,), generator=g); L[0] = T; k = torch.randint(V, (B, T), generator=g); mel = P[k].reshape(B, 2*T, M) + .1*torch.randn(B, 2*T, M, generator=g)
        m = torch.arange(2*T)[None] >= 2*L[:, None]; return (k, L, mel.masked_fill(m[..., None], 0.)), mel.masked_fill(m[..., None], 0.)
    return dict(model=Taco, data=data, loss=lambda o, t: F.mse_loss(o[0], t) + F.mse_loss(o[1], t))

# ---------------------------------------------------------------- WaveNet
@net(skip="skip = s: overwritten in each layer, only the last counts", dil="dilation not passed to the convolution (padding cut as if)", gate="tanh in both branches (filter and gate)", share="[ResidualBlock]*n: one block for all dilations")
def wavenet(s):
    V, C, S, DI = 16, 32, 32, (1, 2, 4, 8)
    class RB(nn.Module):
        def __init__(self, d): super().__init__(); self.pad = 1 if s == "dil" else d; self.conv_filter = nn.Conv1d(C, C, 2, dilation=self.pad); self.conv_gate = nn.Conv1d(C, C, 2, dilation=self.pad); self.res = nn.Conv1d(C, C, 1); self.skip = nn.Conv1d(C, S, 1)
        def forward(self, x):
            p = F.pad(x, (self.pad, 0)); h = torch.tanh(self.conv_filter(p)); g = self.conv_gate(p); h = h*(torch.tanh(g) if s == "gate" else torch.sigmoid(g)); return x + self.res(h), self.skip(h)
    class WN(nn.Module):
        def __init__(self): super().__init__(); self.embed = nn.Embedding(V, C); self.blocks = nn.ModuleList([RB(2)]*8 if s == "share" else [RB(d) for _ in range(2) for d in DI]); self.end1 = nn.Conv1d(S, S, 1); self.end2 = nn.Conv1d(S, V, 1)
        def forward(self, x):
            x = self.embed(x).transpose(1, 2); skip = 0
            for b in self.blocks:
                x, k = b(x); skip = k if s == "skip" else skip + k
            return self.end2(F.relu(self.end1(F.relu(skip))))
    def data(seed):
        g = G(seed); B = 32; T = 48; f = torch.rand(B, 1, generator=g)*.5+.15; a = torch.arange(T+1.)[None]; y = torch.sin(6.28*torch.rand(B, 1, generator=g) + f*a) + .6*torch.sin(6.28*torch.rand(B, 1, generator=g) + 2.7*f*a) + .05*torch.randn(B, T+1, generator=g)
        q = ((y/1.8+1)/2*V).long().clamp(0, V-1); return q[:, :-1].contiguous(), q[:, 1:].contiguous()
    return dict(model=WN, data=data, loss=F.cross_entropy)

# ---------------------------------------------------------------- GAT
@net(mask="adjacency mask inverted: masked_fill(adj > 0, -9e15)", dim="softmax over dim=1 of (H,N,N): the receiving nodes", heads="concat heads with transpose missing: h.reshape(N,-1) of (H,N,D)", self_="self loops forgotten (adj without eye)")
def gat(s):
    N, Fi, D, H, K = 60, 12, 8, 4, 4
    class GATLayer(nn.Module):
        def __init__(self, i, o, concat): super().__init__(); self.W = nn.Parameter(torch.empty(H, i, o)); self.a1 = nn.Parameter(torch.empty(H, o, 1)); self.a2 = nn.Parameter(torch.empty(H, o, 1)); self.concat = concat; [nn.init.xavier_uniform_(p, gain=1.414) for p in (self.W, self.a1, self.a2)]
        def forward(self, x, adj):
            h = x @ self.W; e = F.leaky_relu(h @ self.a1 + (h @ self.a2).transpose(1, 2), .2)
            e = e.masked_fill(adj > 0, -9e15) if s == "mask" else e.masked_fill(adj == 0, -9e15); a = F.softmax(e, 1 if s == "dim" else 2); o = a @ h
            if not self.concat: return o.mean(0)
            return F.elu(o.reshape(x.shape[0], -1) if s == "heads" else o.transpose(0, 1).reshape(x.shape[0], -1))
    class GAT(nn.Module):
        def __init__(self): super().__init__(); self.l1 = GATLayer(Fi, D, True); self.l2 = GATLayer(D*H, D*H, True) if 0 else GATLayer(D*H, K, False)
        def forward(self, x, adj):
            if s != "self_": adj = adj + torch.eye(len(adj))
            return self.l2(self.l1(x, adj), adj)
    mu = torch.randn(K, Fi, generator=G(9))
    def data(seed):
        g = G(seed); y = torch.randint(K, (N,), generator=g); P = torch.where(y[:, None] == y[None], .25, .01); A = (torch.rand(N, N, generator=g) < P).float().triu(1); A = A + A.T
        return (mu[y]*.5 + torch.randn(N, Fi, generator=g), A), y
    return dict(model=GAT, data=data, loss=F.cross_entropy, diag=dict(examples="one"))
