from base import *
from tasks import *
G = "https://github.com/"
def tf_layer(d, h=4): return nn.TransformerEncoderLayer(d, h, 2 * d, 0., batch_first=True, norm_first=True)

@case(G + "dasguptar/treelstm.pytorch/issues/4", "ChildSumTreeLSTM declares fx, fh but the forget gate uses ix, ih", "fx, fh / forget gate")
def treelstm_fx_unused(planted):
    class Tree(nn.Module):                      # complete binary trees of depth 4, nodes in heap order
        def __init__(s, v=24, d=32, m=48, k=5):
            super().__init__(); s.emb = nn.Embedding(v, d); L = nn.Linear; s.ix, s.ih, s.fx, s.fh, s.ox, s.oh, s.ux, s.uh = [L(a, m) for _ in range(4) for a in (d, m)]; s.wh, s.wp = L(m, 48), L(48, k); s.m = m
        def forward(s, t):
            e = s.emb(t); n = t.shape[1]; c, h = {}, {}; z = e.new_zeros(len(t), 1, s.m)
            fx, fh = (s.ix, s.ih) if planted else (s.fx, s.fh)
            for j in reversed(range(n)):
                kids = [q for q in (2 * j + 1, 2 * j + 2) if q < n]; ch = torch.stack([h[q] for q in kids], 1) if kids else z; cc = torch.stack([c[q] for q in kids], 1) if kids else z
                x = e[:, j]; hs = ch.sum(1); i, o, u = torch.sigmoid(s.ix(x) + s.ih(hs)), torch.sigmoid(s.ox(x) + s.oh(hs)), torch.tanh(s.ux(x) + s.uh(hs))
                f = torch.sigmoid(fh(ch) + fx(x)[:, None]); c[j] = i * u + (f * cc).sum(1); h[j] = o * torch.tanh(c[j])
            return s.wp(torch.sigmoid(s.wh(h[0])))
    S = T(71, 24)
    def data(seed): t = R(seed, 24, (64, 15)); v = S[t]; q = v[:, 7:].sum(1) * .5 + v[:, 3:7].sum(1) + v[:, 0] * v[:, 1]; return t, torch.bucketize(q, torch.tensor([-3., -1., 1., 3.]))
    return dict(model=Tree, data=data, loss=ce, diag={})

@case(G + "salesforce/decaNLP/issues/9", "PackedLSTM returns h as the cell state too", "final state of PackedLSTM")
def decanlp_c_is_h(planted):
    class S2S(nn.Module):
        def __init__(s, v=20, d=64): super().__init__(); s.emb = nn.Embedding(v, d); s.enc = nn.LSTM(d, d, batch_first=True); s.dec = nn.LSTM(d, d, batch_first=True); s.out = nn.Linear(d, v)
        def forward(s, x, y): _, (h, c) = s.enc(s.emb(x)); c = h if planted else c; return s.out(s.dec(s.emb(y), (h, c))[0])
    def data(seed): x = R(seed, 19, (64, 6)) + 1; return (x, torch.cat([torch.zeros(64, 1, dtype=torch.long), x.flip(1)[:, :-1]], 1)), x.flip(1)
    return dict(model=S2S, data=data, loss=ceseq, diag=SEQ)

@case(G + "ray-project/ray/issues/21392", "the LSTM state is taken after the padding, not at seq_lens", "recurrent state / LSTM")
def rllib_state_after_padding(planted):
    class Wrap(nn.Module):
        def __init__(s): super().__init__(); s.fc = nn.Sequential(nn.Linear(6, 48), nn.Tanh()); s.lstm = nn.LSTM(48, 48, batch_first=True); s.logits = nn.Linear(48, 5)
        def forward(s, o, n):
            y, _ = s.lstm(s.fc(o)); i = torch.full_like(n, o.shape[1] - 1) if planted else n - 1; return s.logits(y[torch.arange(len(y)), i])
    W = T(81, 6, 5)
    def data(seed):
        g = gen(seed); n = torch.randint(2, 21, (64,), generator=g); o = torch.randn(64, 20, 6, generator=g) * (torch.arange(20)[None] < n[:, None])[..., None]; i = torch.arange(64); return (o, n), ((o[i, n - 1] + .5 * o[i, n - 2]) @ W).argmax(1)
    return dict(model=Wrap, data=data, loss=ce, diag={})

@case(G + "thunlp/FewRel/issues/17", "piecewise max pooling: the mask comes after the pool's padding and does nothing (padding wins the max)", "mask of the PCNN encoder")
def fewrel_mask_no_effect(planted):
    class PCNN(nn.Module):
        def __init__(s, v=60, d=40, c=48): super().__init__(); s.emb = nn.Embedding(v, d, padding_idx=0); s.pos = nn.Embedding(40, 8); s.conv = nn.Conv1d(d + 8, c, 3, padding=1); s.fc = nn.Linear(3 * c, 6)
        def forward(s, w, p, m):
            x = s.conv(torch.cat([s.emb(w), s.pos(p)], -1).transpose(1, 2)); M = F.one_hot(m, 4)[..., 1:].float().transpose(1, 2)  # 0 = padding
            if planted: pooled = [(x * (M.sum(1, keepdim=True) * 0 + 1)).max(-1).values] * 3
            else: pooled = [(x + 100 * M[:, [k]] ).max(-1).values - 100 for k in range(3)]
            return s.fc(F.relu(torch.cat(pooled, 1)))
    A = T(91, 60, 6)
    def data(seed):
        g = gen(seed); n = 48; w = torch.randint(1, 60, (n, 24), generator=g); a = torch.randint(3, 7, (n, 1), generator=g); b = a + torch.randint(3, 7, (n, 1), generator=g); l = b + torch.randint(3, 7, (n, 1), generator=g); i = torch.arange(24)[None]
        m = torch.where(i <= a, 1, torch.where(i <= b, 2, torch.where(i < l, 3, 0))); w = w * (m > 0); mid = (A[w] * (m == 2)[..., None]).max(1).values; return (w, (i - a + 12).clamp(0, 39), m), mid.argmax(1)
    return dict(model=PCNN, data=data, loss=ce, diag={})

@case(G + "sooftware/attentions/issues/4", "q, k, v are laid out (heads, batch) but the mask (batch, heads): masks meet other examples", "mask of MultiHeadAttention")
def sooftware_mask_order(planted):
    class MHA(nn.Module):
        def __init__(s, d, h=4): super().__init__(); s.h, s.dh = h, d // h; s.query_proj, s.key_proj, s.value_proj = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        def forward(s, q, k, v, mask):
            B = v.size(0); f = lambda p, x: p(x).view(B, -1, s.h, s.dh).permute(2, 0, 1, 3).contiguous().view(B * s.h, -1, s.dh); q, k, v = f(s.query_proj, q), f(s.key_proj, k), f(s.value_proj, v)
            mask = mask.unsqueeze(1).repeat(1, s.h, 1, 1); mask = mask if planted else mask.permute(1, 0, 2, 3); mask = mask.reshape(B * s.h, *mask.shape[2:])
            a = F.softmax((q @ k.transpose(1, 2) / math.sqrt(s.dh)).masked_fill(mask, -1e9), -1); return (a @ v).view(s.h, B, -1, s.dh).permute(1, 2, 0, 3).reshape(B, -1, s.h * s.dh)
    class Blk(nn.Module):
        def __init__(s, d): super().__init__(); s.n1, s.n2 = nn.LayerNorm(d), nn.LayerNorm(d); s.attn = MHA(d); s.o = nn.Linear(d, d); s.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.ReLU(), nn.Linear(2 * d, d))
        def forward(s, x, m): y = s.n1(x); x = x + s.o(s.attn(y, y, y, m)); return x + s.ff(s.n2(x))
    class Net(nn.Module):
        def __init__(s, d=48): super().__init__(); s.emb = nn.Embedding(30, d); s.pos = nn.Parameter(torch.randn(16, d) * .3); s.l = nn.ModuleList([Blk(d), Blk(d)]); s.n = nn.LayerNorm(d); s.out = nn.Linear(d, 5)
        def forward(s, x, n):
            m = (torch.arange(16)[None] >= n[:, None]); h = s.emb(x) + s.pos; mm = m[:, None].expand(-1, 16, -1)
            for l in s.l: h = l(h, mm)
            h = s.n(h); return s.out(h[:, 0])
    Q = T(77, 30, 5)
    def data(seed): g = gen(seed); n = torch.randint(2, 17, (48,), generator=g); x = torch.randint(0, 30, (48, 16), generator=g); k = (torch.arange(16)[None] < n[:, None]); return (x, n), (Q[x] * k[..., None]).sum(1).argmax(1)
    return dict(model=Net, data=data, loss=ce, diag={})

@case(G + "HKUST-KnowComp/R-Net/issues/13", "the backward direction runs the forward GRU (gru_bw is never used)", "gru_bw")
def rnet_bw_uses_fw(planted):
    class R_(nn.Module):
        def __init__(s, d=48): super().__init__(); s.emb = nn.Embedding(25, d); s.fw = nn.ModuleList([nn.GRU(d, d, batch_first=True), nn.GRU(2 * d, d, batch_first=True)]); s.bw = nn.ModuleList([nn.GRU(d, d, batch_first=True), nn.GRU(2 * d, d, batch_first=True)]); s.out = nn.Linear(2 * d, 6)
        def forward(s, x):
            h = s.emb(x)
            for f, b in zip(s.fw, s.bw): b = f if planted else b; h = torch.cat([f(h)[0], b(h.flip(1))[0].flip(1)], -1)
            return s.out(h)
    def data(seed): x = R(seed, 25, (32, 14)); p = F.pad(x, (2, 2)); return x, (2 * p[:, :-4] + 3 * p[:, 3:-1] + x) % 6
    return dict(model=R_, data=data, loss=ceseq, diag=SEQ)

@case(G + "s3prl/s3prl/pull/470", "the loop over self.hiddens feeds the layers but its result (hidden_states) is not what the output reads", "self.hiddens")
def s3prl_hiddens_ignored(planted):
    class Framewise(nn.Module):
        def __init__(s, i=20, d=48, k=7): super().__init__(); s.proj = nn.Linear(i, d); s.hiddens = nn.ModuleList([nn.Linear(d, d) for _ in range(3)]); s.out = nn.Linear(d, k)
        def forward(s, x):
            hidden_states = F.relu(s.proj(x)); h = hidden_states
            for l in s.hiddens:
                if planted: h = F.relu(l(hidden_states))
                else: hidden_states = F.relu(l(hidden_states))
            return s.out(hidden_states)
    A, B = T(51, 20, 10, k=.4), T(52, 10, 7)
    def data(seed): x = T(seed, 32, 20, 20); return x, (F.relu(x @ A) @ B).argmax(-1)
    return dict(model=Framewise, data=data, loss=ceseq, diag=SEQ)

@case(G + "janvainer/speedyspeech/issues/23", "positional encoding a ** b ** c is a ** (b ** c): frequencies wrong", "positional encoding")
def speedyspeech_pe_power(planted):
    def pe(L, d):
        pos = torch.arange(L).float()[:, None]; i = torch.arange(0, d, 2).float(); e = torch.zeros(L, d)
        div = 10000. ** (torch.full_like(i, 2.) ** (i / d)) if planted else 10000. ** (i / d)
        e[:, ::2], e[:, 1::2] = torch.sin(pos / div), torch.cos(pos / div); return e
    class Dec(nn.Module):
        def __init__(s, d=64): super().__init__(); s.emb = nn.Embedding(30, d); s.register_buffer("pe", pe(24, d)); s.q = nn.Parameter(torch.randn(1, 1, d) * .1); s.attn = nn.MultiheadAttention(d, 4, batch_first=True); s.n = nn.LayerNorm(d); s.ff = nn.Sequential(nn.Linear(d, 128), nn.ReLU(), nn.Linear(128, d)); s.out = nn.Linear(d, 8)
        def forward(s, x): m = s.emb(x) + s.pe; q = (s.q + s.pe).expand(len(x), -1, -1); y = s.attn(q, m, m, need_weights=False)[0]; return s.out(s.n(y + s.ff(y)))
    E = T(44, 30, 8)
    def data(seed): x = R(seed, 30, (32, 24)); return x, E[x]
    return dict(model=Dec, data=data, loss=mse, diag={})

@case(G + "lucidrains/protein-bert-pytorch/issues/2", "Layer: the local track's result never reaches the annotation (global attention output overwritten)", "global cross attention over local")
def proteinbert_local_unused(planted):
    class Layer(nn.Module):
        def __init__(s, d, g):
            super().__init__(); s.conv = nn.Conv1d(d, d, 5, padding=2); s.wide = nn.Conv1d(d, d, 5, padding=4, dilation=2); s.to_local = nn.Linear(g, d); s.n1, s.n2, s.n3, s.n4 = nn.LayerNorm(d), nn.LayerNorm(d), nn.LayerNorm(g), nn.LayerNorm(g)
            s.lff = nn.Sequential(nn.Linear(d, d), nn.GELU()); s.gd = nn.Sequential(nn.Linear(g, g), nn.GELU()); s.gff = nn.Sequential(nn.Linear(g, g), nn.GELU()); s.q, s.k, s.v = nn.Linear(g, g), nn.Linear(d, g), nn.Linear(d, g)
        def forward(s, t, a):
            x = t.transpose(1, 2); t = s.n1(t + F.gelu(s.conv(x)).transpose(1, 2) + F.gelu(s.wide(x)).transpose(1, 2) + s.to_local(a)[:, None]); t = s.n2(t + s.lff(t))
            att = ((torch.tanh(s.q(a))[:, None] @ torch.tanh(s.k(t)).transpose(1, 2)) * a.shape[-1] ** -.5).softmax(-1) @ F.gelu(s.v(t))
            a2 = a + s.gd(a) + (0 if planted else att[:, 0]); a2 = s.n3(a2); return t, s.n4(a2 + s.gff(a2))
    class PB(nn.Module):
        def __init__(s, d=40, g=48): super().__init__(); s.tok = nn.Embedding(22, d); s.ann = nn.Linear(12, g); s.layers = nn.ModuleList([Layer(d, g), Layer(d, g)]); s.lo, s.go = nn.Linear(d, 22), nn.Linear(g, 12)
        def forward(s, t, a):
            t, a = s.tok(t), F.gelu(s.ann(a))
            for l in s.layers: t, a = l(t, a)
            return s.lo(t), s.go(a)
    C = T(66, 22, 12)
    def data(seed):
        g = gen(seed); t = torch.randint(0, 21, (32, 20), generator=g); t[:, 1::2] = (t[:, ::2] * 2 + 1) % 21; y = (C[t].mean(1) > 0).float(); a = y * (torch.rand(32, 12, generator=g) > .6); x = torch.where(torch.rand(t.shape, generator=g) < .15, torch.full_like(t, 21), t); return (x, a), (t, y)
    return dict(model=PB, data=data, loss=lambda o, t: F.cross_entropy(o[0].flatten(0, 1), t[0].flatten()) + F.binary_cross_entropy_with_logits(o[1], t[1]) * 3, diag={})

@case(G + "coqui-ai/TTS/issues/2348", "the speaker encoder's spectrogram is taken in torch.no_grad: the consistency loss gives the generator nothing", "speaker consistency path / generator")
def yourtts_spec_no_grad(planted):
    Wse = T(55, 24, 17, k=.3)
    class Gen(nn.Module):
        def __init__(s):
            super().__init__(); s.net = nn.Sequential(nn.Conv1d(6, 48, 5, padding=2), nn.GELU(), nn.Conv1d(48, 48, 5, padding=2), nn.GELU()); s.spk = nn.Linear(12, 48); s.out = nn.Conv1d(48, 1, 5, padding=2); s.register_buffer("win", torch.hann_window(32)); s.register_buffer("se", Wse)
        def forward(s, x, e):
            w = s.out(torch.tanh(s.net(x) * (1 + s.spk(e)[..., None])))[:, 0]
            with torch.set_grad_enabled(torch.is_grad_enabled() and not planted): f = w.unfold(1, 32, 16) * s.win; spec = torch.log(torch.fft.rfft(f).abs().pow(2) + 1e-2).mean(1)
            return w, spec @ s.se.T
    M = T(56, 12, 6)
    def data(seed):
        x = smooth(seed, 24, 6, 8, 4).mean(-1); x = F.interpolate(T(seed, 24, 6, 16), size=96, mode="linear"); e = T(seed + 3, 24, 12, k=.6); w = torch.einsum("ncl,nc->nl", x, e @ M) * .3
        f = w.unfold(1, 32, 16) * torch.hann_window(32); return (x, e), (w, torch.log(torch.fft.rfft(f).abs().pow(2) + 1e-2).mean(1) @ Wse.T)
    return dict(model=Gen, data=data, loss=lambda o, t: .3 * F.l1_loss(o[0], t[0]) + F.mse_loss(o[1], t[1]), diag={})

@case(G + "kymatio/murenn/issues/42", "the filters sit in a Python list, so that they are no parameters", "conv list")
def murenn_python_list(planted):
    class Mu(nn.Module):
        def __init__(s, J=3, q=8, c=1):
            super().__init__(); cs = [nn.Conv1d(c, q, 8, stride=2, bias=False) for _ in range(J)]; s.convs = cs if planted else nn.ModuleList(cs); s.bn = nn.BatchNorm1d(J * q); s.fc = nn.Sequential(nn.Linear(J * q, 32), nn.ReLU(), nn.Linear(32, 6))
        def forward(s, x):
            o, lp = [], x
            for c in s.convs: hp = lp - F.avg_pool1d(lp, 3, 1, 1); o.append(c(hp).abs().mean(-1)); lp = F.avg_pool1d(lp, 2)
            return s.fc(s.bn(torch.cat(o, 1)))
    def data(seed):
        g = gen(seed); y = torch.randint(0, 6, (48,), generator=g); t = torch.arange(128.)[None]; ph = torch.rand(48, 1, generator=g) * 6.28; fr = torch.tensor([.9, 1.1, 1.3, 1.5, 1.75, 2.])[y][:, None]; return (torch.sin(fr * t + ph) + .5 * torch.randn(48, 128, generator=g))[:, None], y
    return dict(model=Mu, data=data, loss=ce, diag={})

@case(G + "octo-models/octo/pull/79", "the discrete action loss takes raw logits for log-probabilities: unbounded", "loss / action head")
def octo_no_log_softmax(planted):
    class Octo(nn.Module):
        def __init__(s, d=48): super().__init__(); s.obs = nn.Linear(10, d); s.task = nn.Embedding(4, d); s.readout = nn.Parameter(torch.randn(1, 1, d) * .02); s.tf = nn.TransformerEncoder(tf_layer(d), 2, nn.LayerNorm(d), enable_nested_tensor=False); s.pos = nn.Parameter(torch.randn(1, 6, d) * .1); s.vocab_proj = nn.Linear(d, 3 * 16)
        def forward(s, o, t): x = torch.cat([s.task(t)[:, None], s.obs(o), s.readout.expand(len(o), -1, -1)], 1) + s.pos; return s.vocab_proj(s.tf(x)[:, -1]).view(-1, 3, 16)
    A = T(57, 4, 10, 3, k=.3)
    def data(seed): g = gen(seed); o = torch.randn(48, 4, 10, generator=g); t = torch.randint(0, 4, (48,), generator=g); a = torch.tanh(torch.einsum("no,noa->na", o[:, -1], A[t])); return (o, t), ((a + 1) / 2 * 15.999).long()
    def loss(o, t): lp = o if planted else o.log_softmax(-1); return -(F.one_hot(t, 16) * lp).sum(-1).mean()
    return dict(model=Octo, data=data, loss=loss, diag={})

@case(G + "edreisMD/ConVIRT-pytorch/issues/7", "the text tower's projection is wrapped in torch.no_grad", "text encoder / projection")
def convirt_text_no_grad(planted):
    class CV(nn.Module):
        def __init__(s, d=48):
            super().__init__(); s.img = nn.Sequential(cbr(3, 24), nn.MaxPool2d(2), cbr(24, 48), nn.AdaptiveMaxPool2d(1), nn.Flatten()); s.ip = nn.Sequential(nn.Linear(48, d), nn.ReLU(), nn.Linear(d, 32)); s.emb = nn.Embedding(40, d); s.txt = nn.TransformerEncoder(tf_layer(d), 1, enable_nested_tensor=False); s.tp = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 32))
        def forward(s, x, t):
            u = s.ip(s.img(x))
            with torch.set_grad_enabled(torch.is_grad_enabled() and not planted): v = s.tp(s.txt(s.emb(t)).mean(1))
            return F.normalize(u, dim=-1), F.normalize(v, dim=-1)
    def loss(o, t): l = o[0] @ o[1].T / .1; y = torch.arange(len(l)); return (F.cross_entropy(l, y) + F.cross_entropy(l.T, y)) / 2
    def data(seed):
        x, _ = imgs(seed, 16, 16); g = gen(seed); y = torch.randperm(16, generator=g); tp = T(7, 16, 3, 6, 6); x = torch.randn(16, 3, 16, 16, generator=g) * .3; x[:, :, 5:11, 5:11] += tp[y]; w = torch.stack([y, y + 16], 1); return (x, torch.cat([w, torch.randint(32, 40, (16, 3), generator=g)], 1)), torch.zeros(16)
    return dict(model=CV, data=data, loss=loss, diag=dict(per="batch"))
