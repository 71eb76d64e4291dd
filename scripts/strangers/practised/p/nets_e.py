from base import *

@case("https://discuss.pytorch.org/t/image-captioning-converges-to-padding-symbol/122969", "cross-entropy counts the padding tokens (no ignore_index)", "loss / padding targets")
def e_caption_pad(planted):
    def data(s):
        c = R(s, 6, (32,)); L = 3 + R(s + 1, 3, (32,)); k = torch.arange(16)[None]
        y = 2 + (c[:, None] * 2 + k) % 12; y = torch.where(k < L[:, None], y, torch.where(k == L[:, None], 1, 0))
        x = torch.cat([torch.full((32, 1), 1), y[:, :-1]], 1); f = T(91, 6, 20)[c] + .3 * T(s + 2, 32, 20)
        return (f, x), y
    def model():
        def f(s, feat, x):
            h0 = s.enc(feat).relu()[None]; h, _ = s.lstm(s.embed(x), (h0, torch.zeros_like(h0))); return s.fc_out(h)
        return M(f, enc=nn.Linear(20, 48), embed=nn.Embedding(14, 24, padding_idx=0), lstm=nn.LSTM(24, 48, batch_first=True), fc_out=nn.Linear(48, 14))
    def loss(o, t): return F.cross_entropy(o.flatten(0, 1), t.flatten(), **({} if planted else dict(ignore_index=0)))
    return dict(model=model, data=data, loss=loss)

@case("https://www.weblineglobal.com/blog/pytorch-transformerdecoder-fix-seq2seq-guide", "TransformerDecoder: boolean tgt_mask of the wrong polarity (True where allowed)", "tgt_mask / self attention of the decoder")
def e_tgt_mask(planted):
    def data(s):
        src = R(s, 10, (32, 8)); y = src.flip(1); return (src, torch.cat([torch.full((32, 1), 10), y[:, :-1]], 1)), y
    def model():
        keep = torch.ones(8, 8).tril().bool()
        def f(s, src, tgt):
            mask = s.keep if planted else ~s.keep
            return s.out(s.dec(s.emb(tgt) + s.pos, s.enc(s.emb(src) + s.pos), tgt_mask=mask))
        el = nn.TransformerEncoderLayer(48, 4, 96, dropout=0., batch_first=True, norm_first=True); dl = nn.TransformerDecoderLayer(48, 4, 96, dropout=0., batch_first=True, norm_first=True)
        return M(f, keep=keep, emb=nn.Embedding(11, 48), pos=nn.Parameter(torch.randn(1, 8, 48) * .5), enc=nn.TransformerEncoder(el, 1, norm=nn.LayerNorm(48), enable_nested_tensor=False), dec=nn.TransformerDecoder(dl, 1, norm=nn.LayerNorm(48)), out=nn.Linear(48, 10))
    return dict(model=model, data=data, loss=ceseq, diag=SEQ)

@case("https://python.19633.com/es/Python/1002052967.html", "inputs centred at 92 with a large spread into sigmoid layers", "linear / input")
def e_inputs_92(planted):
    def data(s):
        u = T(s, 64, 2); y = ((u[:, :1] + u[:, 1:]) > 0).float(); return (u * 12 + 92 if planted else u), y
    def model():
        return nn.Sequential(nn.Linear(2, 32), nn.Sigmoid(), nn.Linear(32, 1))
    return dict(model=model, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t))

@case("https://github.com/basveeling/wavenet/issues/10", "WaveNet: skip output is the residual stream itself, no 1x1 convolution of its own", "skip connections")
def e_wavenet_skip(planted):
    def data(s):
        t = torch.arange(49.)[None]; w = .1 + .5 * torch.rand(24, 1, generator=gen(s)); ph = 6.28 * torch.rand(24, 1, generator=gen(s + 1))
        q = ((.5 + .45 * torch.sin(w * t + ph)) * 16).long().clamp(0, 15); return F.one_hot(q[:, :-1], 16).float().transpose(1, 2), q[:, 1:]
    def model():
        def f(s, x):
            x = s.causal(F.pad(x, (1, 0))); sk = 0
            for i in range(5):
                h = F.pad(x, (2 ** i, 0)); h = s.fil[i](h).tanh() * s.gate[i](h).sigmoid(); r = s.res[i](h)
                sk = sk + (r if planted else s.skip[i](h)); x = x + r
            return s.o2(s.o1(sk.relu()).relu())
        C = 24; d = lambda: nn.ModuleList([nn.Conv1d(C, C, 2, dilation=2 ** i) for i in range(5)]); p = lambda: nn.ModuleList([nn.Conv1d(C, C, 1) for _ in range(5)])
        return M(f, causal=nn.Conv1d(16, C, 2), fil=d(), gate=d(), res=p(), o1=nn.Conv1d(C, C, 1), o2=nn.Conv1d(C, 16, 1), **({} if planted else dict(skip=p())))
    return dict(model=model, data=data, loss=ce)

@case("https://thinbug.com/q/58887284", "sigmoid output for a target that is negative everywhere", "sigmoid output")
def e_negative_target(planted):
    def data(s):
        x = torch.rand(64, 1, generator=gen(s)) * 2 - 1; y = 1 / ((4 * x).exp() + 1); return x, (-y if planted else y)
    return dict(model=lambda: nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1), nn.Sigmoid()), data=data, loss=mse)
