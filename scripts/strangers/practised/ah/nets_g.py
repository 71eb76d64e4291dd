from base import *

@case("https://github.com/The-AI-Summer/byol-cifar10/issues/1", "BYOL loss pairs student and teacher of the SAME view instead of the other view", "loss pairing (student_pred_one with teacher_proj_one)")
def byol_same_view(planted):
    class BYOL(nn.Module):
        def __init__(s):
            super().__init__(); enc = lambda: nn.Sequential(nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 32))
            s.student = enc(); s.teacher = enc(); s.student_predictor = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32))
            for p in s.teacher.parameters(): p.requires_grad = False
        def forward(s, a, b):
            p1, p2 = s.student_predictor(s.student(a)), s.student_predictor(s.student(b))
            with torch.no_grad(): z1, z2 = s.teacher(a), s.teacher(b)
            return p1, p2, z1, z2
    A = T(2, 8, 64)
    def data(seed): c = T(seed, 64, 8) @ A / 2; return (c + .6 * T(seed + 1, 64, 64), c + .6 * T(seed + 2, 64, 64)), torch.zeros(64)
    def loss_fn(x, y): return 2 - 2 * (F.normalize(x, dim=-1) * F.normalize(y, dim=-1)).sum(-1)
    def loss(o, t):
        p1, p2, z1, z2 = o
        return (loss_fn(p1, z1) + loss_fn(p2, z2)).mean() if planted else (loss_fn(p1, z2) + loss_fn(p2, z1)).mean()
    return dict(model=BYOL, data=data, loss=loss, lr=2e-3, diag={})

@case("https://github.com/lightly-ai/lightly/pull/1806", "Barlow Twins: both views normalised together (stacked) instead of each on its own", "BarlowTwinsLoss._normalize")
def barlow_joint_norm(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.backbone = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)); s.projection_head = nn.Sequential(nn.Linear(64, 64, bias=False), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 16))
        def forward(s, a, b): return s.projection_head(s.backbone(a)), s.projection_head(s.backbone(b))
    A = T(2, 20, 64)
    def data(seed): c = T(seed, 64, 20) @ A / 3; return (c + .3 * T(seed + 1, 64, 64), 1.3 * c + .3 * T(seed + 2, 64, 64) + .3), torch.zeros(64)
    def loss(o, t):
        if planted: za, zb = F.batch_norm(torch.cat(o), None, None, training=True).chunk(2)
        else: za, zb = (F.batch_norm(z, None, None, training=True) for z in o)
        c = za.T @ zb / len(za); d = torch.diagonal(c); off = c.pow(2).sum() - d.pow(2).sum()
        return (d - 1).pow(2).sum() + 5e-2 * off
    return dict(model=Net, data=data, loss=loss, lr=2e-3, diag={})

@case("https://github.com/WeiTang114/MVCNN-TensorFlow/issues/14", "ReLU after the last layer fc8: class 0 predicted always", "fc8 ReLU")
def mvcnn_fc8_relu(planted):
    def fc(i, o, std): l = nn.Linear(i, o); nn.init.trunc_normal_(l.weight, std=std, a=-2 * std, b=2 * std); nn.init.constant_(l.bias, .1); return l
    class MVCNN(nn.Module):
        def __init__(s):
            super().__init__(); s.conv1 = nn.Conv2d(1, 16, 5, 2, 2); s.conv2 = nn.Conv2d(16, 32, 3, 2, 1); s.fc6 = fc(32 * 16, 128, .05); s.fc7 = fc(128, 128, .05); s.fc8 = fc(128, 10, .05)
        def forward(s, v):
            b, n = v.shape[:2]; h = F.relu(s.conv2(F.relu(s.conv1(v.flatten(0, 1))))); h = h.view(b, n, -1).max(1)[0]
            h = s.fc8(F.relu(s.fc7(F.relu(s.fc6(h))))); return F.relu(h) if planted else h
    P = T(4, 10, 4, 1, 16, 16)
    def data(seed): y = R(seed, 10, (16,)); return 100 * (P[y] * .6 + .8 * T(seed + 1, 16, 4, 1, 16, 16)), y
    return dict(model=MVCNN, data=data, loss=ce, lr=3e-3, diag={})

@case("https://github.com/speechbrain/speechbrain/issues/2276", "positional embedding multiplied with the padding mask (True on pads) instead of its inverse: pos is all zero", "encoder input: pos * srcmask")
def fastspeech_pos_zero(planted):
    class FastSpeech2(nn.Module):
        def __init__(s):
            super().__init__(); d = 48; s.encPreNet = nn.Embedding(20, d, padding_idx=0); p = torch.arange(24)[:, None] * torch.exp(torch.arange(0, d, 2) * -math.log(1e4) / d); s.register_buffer("pe", torch.stack([p.sin(), p.cos()], -1).flatten(1))
            s.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 2, 96, dropout=0., batch_first=True), 2, enable_nested_tensor=False); s.linear = nn.Linear(d, 8)
        def forward(s, tokens):
            srcmask = tokens == 0; pos = s.pe[None] * (srcmask if planted else ~srcmask)[..., None].float()
            h = s.encPreNet(tokens) + pos; return s.linear(s.encoder(h, src_key_padding_mask=srcmask))
    E, Q = T(1, 20, 8), torch.stack([torch.sin(torch.arange(24) * (.2 + .15 * k)) for k in range(8)], 1)
    def data(seed):
        x = R(seed, 19, (16, 24)) + 1; n = R(seed + 1, 10, (16,)) + 15; x[torch.arange(24)[None] >= n[:, None]] = 0
        return x, (E[x] * .5 + 1.5 * Q[None], (x != 0).float()[..., None])
    def loss(o, t): return ((o - t[0]) ** 2 * t[1]).sum() / (t[1].sum() * 8)
    return dict(model=FastSpeech2, data=data, loss=loss, lr=2e-3, diag={})

@case("https://github.com/huggingface/transformers/pull/48817", "additive float mask treated as bool: attention_mask.logical_not() inverts it, allowed rows become -inf (NaN)", "attention matrix_bd.masked_fill mask")
def nemotron_inverted_mask(planted):
    class Attention(nn.Module):
        def __init__(s, d=32): super().__init__(); s.q_proj, s.k_proj, s.v_proj, s.o_proj = (nn.Linear(d, d) for _ in range(4)); s.rel = nn.Parameter(torch.zeros(20, 20)); s.norm = nn.LayerNorm(d)
        def forward(s, x, mask):
            h = s.norm(x); q, k, v = s.q_proj(h), s.k_proj(h), s.v_proj(h); bd = s.rel[None].expand(len(x), -1, -1)
            bd = bd.masked_fill(mask.logical_not() if planted else mask < 0, float("-inf")); a = (q @ k.transpose(1, 2) / 32 ** .5 + bd).softmax(-1); return x + s.o_proj(a @ v)
    class Encoder(nn.Module):
        def __init__(s): super().__init__(); s.sub = nn.Linear(10, 32); s.layers = nn.ModuleList([Attention(), Attention()]); s.ff = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 12))
        def forward(s, x, lens):
            mask = torch.where(torch.arange(20)[None, None] < lens[:, None, None], 0., torch.finfo(torch.float32).min)
            h = s.sub(x)
            for l in s.layers: h = l(h, mask)
            return s.ff(h)
    P = T(9, 12, 10)
    def data(seed): y = R(seed, 12, (16, 20)); return (P[y] + .7 * T(seed + 1, 16, 20, 10), torch.where(torch.arange(16) % 2 == 0, 20, 15 + R(seed + 2, 5, (16,)))), y
    return dict(model=Encoder, data=data, loss=ceseq, lr=1e-3, diag={})

def speech(seed, n=16, t=24, f=16):
    y = R(seed, 20, (n, t // 4)).repeat_interleave(4, 1); B = T(8, 20, f); s = F.avg_pool1d((B[y] + .3 * T(seed + 1, n, t, f)).transpose(1, 2), 3, 1, 1).transpose(1, 2); return y, s

@case("https://github.com/Kyubyong/tacotron/issues/16", "linear magnitude spectrogram as target without taking the log", "target (no log scaling)")
def tacotron_no_log(planted):
    class Tacotron(nn.Module):
        def __init__(s): super().__init__(); s.log_mag = not planted; s.embed = nn.Embedding(20, 32); s.prenet = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU()); s.gru = nn.GRU(32, 32, batch_first=True, bidirectional=True); s.out = nn.Linear(64, 16)
        def forward(s, y): return s.out(s.gru(s.prenet(s.embed(y)))[0])
    def data(seed): y, s = speech(seed); mag = torch.exp(2.5 * s); return y, mag if planted else mag.log()
    def metric(m):
        tot = 0
        for k in range(4):
            y, s = speech(9000 + k); s = 2.5 * s
            with torch.no_grad(): o = m(y)
            tot += float(((o if m.log_mag else o.clamp(min=1e-3).log()) - s).abs().mean()) / 4
        return tot
    return dict(model=Tacotron, data=data, loss=F.l1_loss, lr=2e-3, diag={}, metric=metric)

@case("https://github.com/peustr/wavenet/issues/1", "dilated convolutions padded 'same' instead of 'causal': the net sees the sample it should predict", "padding of the dilated Conv1d (same)")
def wavenet_same_padding(planted):
    class Conv(nn.Conv1d):
        def forward(s, x):
            p = (s.kernel_size[0] - 1) * s.dilation[0]; return super().forward(F.pad(x, (p // 2, p - p // 2) if planted else (p, 0)))
    class WaveNet(nn.Module):
        def __init__(s):
            super().__init__(); s.pre = Conv(1, 24, 3); s.dil = nn.ModuleList([Conv(24, 48, 3, dilation=2 ** k) for k in range(4)]); s.skip = nn.ModuleList([nn.Conv1d(24, 24, 1) for _ in range(4)]); s.post = nn.Conv1d(24, 24, 1); s.out = nn.Conv1d(24, 16, 1)
        def forward(s, x):
            h = s.pre(x); tot = 0
            for d, k in zip(s.dil, s.skip): a, b = d(h).chunk(2, 1); r = k(a.tanh() * b.sigmoid()); h = h + r; tot = tot + r
            return s.out(F.relu(s.post(F.relu(tot)))).transpose(1, 2)
    def wave(seed):
        t = torch.arange(65).float(); G = gen(seed); f = .15 + .5 * torch.rand(16, 1, generator=G); ph = 6.28 * torch.rand(16, 1, generator=G)
        return (torch.sin(f * t + ph) + .4 * torch.sin(2 * f * t + 2 * ph)) / 1.5
    def data(seed): w = wave(seed); return w[:, None, :-1], ((w[:, 1:] + 1) * 8).long().clamp(0, 15)
    def metric(m):
        tot = 0
        for k in range(4):
            x, y = data(9000 + k); x = x.clone(); x[:, :, 41:] = 0
            with torch.no_grad(): tot += float(ce(m(x)[:, 40], y[:, 40])) / 4
        return tot
    return dict(model=WaveNet, data=data, loss=ceseq, lr=3e-3, diag={}, metric=metric)

@case("https://github.com/speechbrain/speechbrain/issues/800", "one ffn_module used twice in the conformer layer (paper: two different ones)", "ffn_module (shared)")
def conformer_shared_ffn(planted):
    class Layer(nn.Module):
        def __init__(s, d=32):
            super().__init__(); ff = lambda: nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 64), nn.SiLU(), nn.Linear(64, d))
            s.ffn_module1 = ff(); s.ffn_module2 = s.ffn_module1 if planted else ff(); s.norm1 = nn.LayerNorm(d); s.mha = nn.MultiheadAttention(d, 4, batch_first=True); s.norm2 = nn.LayerNorm(d)
            s.pw1 = nn.Conv1d(d, 2 * d, 1); s.dw = nn.Conv1d(d, d, 7, padding=3, groups=d); s.bn = nn.BatchNorm1d(d); s.pw2 = nn.Conv1d(d, d, 1); s.norm3 = nn.LayerNorm(d)
        def forward(s, x):
            x = x + .5 * s.ffn_module1(x); h = s.norm1(x); x = x + s.mha(h, h, h, need_weights=False)[0]
            x = x + s.pw2(F.silu(s.bn(s.dw(F.glu(s.pw1(s.norm2(x).transpose(1, 2)), 1))))).transpose(1, 2); return s.norm3(x + .5 * s.ffn_module2(x))
    class Conformer(nn.Module):
        def __init__(s): super().__init__(); s.inp = nn.Linear(16, 32); s.layers = nn.ModuleList([Layer(), Layer()]); s.out = nn.Linear(32, 20)
        def forward(s, x):
            h = s.inp(x)
            for l in s.layers: h = l(h)
            return s.out(h)
    def data(seed): y, s = speech(seed); return s, y
    return dict(model=Conformer, data=data, loss=ceseq, lr=1e-3, diag={})
