from kbase import *
# ---------- seq2seq, Bahdanau
class S2S(nn.Module):
    def __init__(s, v):
        super().__init__(); s.v = v; s.es, s.et = nn.Embedding(13, 32, padding_idx=0), nn.Embedding(13, 32); s.enc = nn.GRU(32, 32, batch_first=True, bidirectional=True)
        s.br = nn.Linear(64, 64); s.W1, s.W2, s.V = nn.Linear(64, 32), nn.Linear(64, 32), nn.Linear(32, 1); s.cell = nn.GRUCell(96, 64); s.out = nn.Linear(128, 13)
    def forward(s, x, y):
        e, h = s.enc(s.es(x)); m = (x == 0) if s.v != "maskinv" else (x != 0); hid = torch.tanh(s.br(torch.cat([h[0], h[1]], -1))); k = s.W1(e); o = []
        if s.v == "resethid": hid = hid.detach() * 0
        for t in range(y.shape[1]):
            sc = s.V(torch.tanh(k + s.W2(hid)[:, None]))[..., 0]; sc = sc.masked_fill(m, -1e9); a = torch.softmax(sc, 0 if s.v == "softdim" else 1)
            c = (a[..., None] * e).sum(1); h2 = s.cell(torch.cat([s.et(y[:, t]), c], -1), hid); o.append(s.out(torch.cat([h2, c], -1)))
            if s.v != "carry": hid = h2
        o = torch.stack(o, 1)
        return torch.softmax(o, -1) if s.v == "probs" else o
@net(maskinv=("source pad mask inverted", "W1/V/mask"), softdim=("attention softmax over the batch", "V/softmax"), carry=("decoder state not carried between steps", "cell"),
     probs=("softmax before cross-entropy", "out"))
def bahdanau(v):
    def data(s):
        g = gen(s); L = 3 + I(g, 4, 64); x = 1 + I(g, 10, 64, 6); k = torch.arange(6); x = x * (k < L[:, None]); t = torch.where(k < L[:, None], (x + 2) % 11 + 1, torch.zeros(()).long())
        y = torch.cat([torch.full((64, 1), 12), t[:, :-1]], 1); return (x, y), torch.where(k < L[:, None], t, torch.tensor(-100))
    return dict(model=lambda: S2S(v), data=data, loss=lambda o, t: F.cross_entropy(o.flatten(0, 1), t.flatten()))
# ---------- BiLSTM-CRF
class CRF(nn.Module):
    def __init__(s, v):
        super().__init__(); s.v = v; s.emb = nn.Embedding(20, 32); s.lstm = nn.LSTM(32, 32, bidirectional=True, batch_first=v != "timeaxis"); s.lin = nn.Linear(64, 5)
        s.trans = nn.Parameter(torch.randn(5, 5) * .1); s.start, s.end = nn.Parameter(torch.zeros(5)), nn.Parameter(torch.zeros(5))
        if v == "forbid":
            with torch.no_grad(): s.trans[:, :3] = -10000.
    def forward(s, x, y):
        e = s.lin(s.lstm(s.emb(x))[0])
        if s.v == "relu": e = F.relu(e - 1)
        a = s.start + e[:, 0]; g = torch.gather; sc = s.start[y[:, 0]] + e[:, 0].gather(1, y[:, :1])[:, 0]
        for t in range(1, x.shape[1]):
            a = torch.logsumexp(a[:, :, None] + s.trans + e[:, t, None], 2 if s.v == "lse" else 1); sc = sc + s.trans[y[:, t - 1], y[:, t]] + e[:, t].gather(1, y[:, t:t + 1])[:, 0]
        z = torch.logsumexp(a + s.end, 1); sc = sc + s.end[y[:, -1]]
        return (sc - z) if s.v == "sign" else (-sc) if s.v == "nonorm" else z - sc
@net(sign=("score - log Z minimised (sign)", "loss"), nonorm=("no partition function", "trans/lin/loss"), lse=("forward recursion logsumexp over the next tags", "trans"),
     timeaxis=("LSTM without batch_first", "lstm"), relu=("ReLU(e-1) on the emissions", "lin"))
def bilstmcrf(v):
    def data(s):
        g = gen(s); x = I(g, 20, 32, 10); p = torch.cat([torch.zeros(32, 1).long(), x[:, :-1]], 1); y = (x % 2 + 2 * (p % 2)); y = torch.where(x > 15, torch.tensor(4), y); return (x, y), None
    return dict(model=lambda: CRF(v), data=data, loss=lambda o, t: o.mean(), twin=v in ("sign", "nonorm", "lse"))
# ---------- BERT MLM
class Bert(nn.Module):
    def __init__(s, v):
        super().__init__(); s.v = v; s.tok, s.pos = nn.Embedding(34, 48), nn.Embedding(16, 48); s.ln = nn.LayerNorm(48)
        s.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(48, 4, 96, 0., "gelu", batch_first=v != "attnbatch"), 2, enable_nested_tensor=False)
        s.tr = nn.Sequential(nn.Linear(48, 48), nn.GELU(), nn.LayerNorm(48)); s.bias = nn.Parameter(torch.zeros(34))
        for m in s.modules():
            if isinstance(m, (nn.Linear, nn.Embedding)): nn.init.normal_(m.weight, std=.02 if v != "std2" else 2.)
    def forward(s, x):
        h = s.ln(s.tok(x) + s.pos.weight[:x.shape[1]]); pad = (x == 0)
        if s.v == "attnbatch": h = s.enc(h)
        else: h = s.enc(h, src_key_padding_mask=~pad if s.v == "maskinv" else pad)
        o = s.tr(h) @ s.tok.weight.t() + s.bias
        return torch.softmax(o, -1) if s.v == "probs" else o
@net(attnbatch=("encoder without batch_first: attention over the batch", "enc"), maskinv=("padding mask inverted", "enc/mask"), probs=("softmax before cross-entropy", "tok/bias"),
     labels=("labels -100 on the masked, not the others", "targets"), std2=("all weights N(0, 2²)", "tok/enc"), maskall=("MASK written where not selected", "inputs"))
def bert(v):
    def data(s):
        g = gen(s); top = I(g, 8, 32, 1); x = 2 + top * 4 + I(g, 4, 32, 16); L = 10 + I(g, 7, 32, 1); k = torch.arange(16); x = x * (k < L); sel = (U(g, 32, 16) < .2) & (x > 0)
        sel[:, 1] = True; lab = torch.where((sel if v != "labels" else ~sel) & (x > 0), x, torch.tensor(-100)); mk = ~sel & (x > 0) if v == "maskall" else sel
        return torch.where(mk, torch.tensor(1), x), lab
    return dict(model=lambda: Bert(v), data=data, loss=lambda o, t: F.cross_entropy(o.flatten(0, 1), t.flatten()), twindata=v in ("labels", "maskall"))
# ---------- ViT
class ViT(nn.Module):
    def __init__(s, v):
        super().__init__(); s.v = v; s.proj = nn.Linear(16, 48); s.cls = nn.Parameter(torch.randn(1, 1, 48) * .02); s.pos = nn.Parameter(torch.randn(1, 17, 48) * (.0 if v == "nopos" else .5))
        if v == "nopos": s.pos.requires_grad_(False)
        s.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(48, 4, 96, 0., "gelu", batch_first=v != "attnbatch", norm_first=True), 2, enable_nested_tensor=False)
        s.norm = nn.LayerNorm(48); s.head = nn.Linear(48, 6)
        if v == "headbn": s.norm = nn.BatchNorm1d(48, affine=False)
    def forward(s, x):
        b = x.shape[0]; p = x.unfold(2, 4, 4).unfold(3, 4, 4).reshape(b, 16, 16); p = s.proj(p); c = s.cls.expand(b, -1, -1)
        if s.v == "clsafter": h = torch.cat([c, s.enc(p + s.pos[:, 1:])], 1)
        elif s.v == "catbatch": h = s.enc((torch.cat([c, p], 1) + s.pos).reshape(17, b, 48)).reshape(b, 17, 48)
        else: h = s.enc(torch.cat([c, p], 1) + s.pos)
        o = s.head(s.norm(h[:, 0]))
        return F.softmax(o, 0) if s.v == "softbatch" else o
@net(nopos=("position embedding zero and frozen", "pos"), clsafter=("class token joined after the encoder", "cls/enc"), attnbatch=("encoder without batch_first", "enc"),
     softbatch=("softmax over the batch before cross-entropy", "head"), catbatch=("tokens reshaped to (17,B,D) without permute", "enc"))
def vit(v):
    def data(s):
        g = gen(s); n = 64; a, b = I(g, 16, n), I(g, 16, n); x = N(g, n, 1, 16, 16) * .3; k = torch.arange(n)
        pat = torch.eye(4) * 2
        for q in range(n):
            i, j = int(a[q]), int(b[q]); x[q, 0, i // 4 * 4:i // 4 * 4 + 4, i % 4 * 4:i % 4 * 4 + 4] += pat; x[q, 0, j // 4 * 4:j // 4 * 4 + 4, j % 4 * 4:j % 4 * 4 + 4] -= pat
        return x, (a // 8) + 2 * ((b % 4) // 2) + 2 * ((b % 4 > 1) & (a // 8 > 0))
    return dict(model=lambda: ViT(v), data=data, loss=lambda o, t: F.cross_entropy(o, t))
# ---------- CLIP
class Clip(nn.Module):
    def __init__(s, v):
        super().__init__(); s.v = v; s.img = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(128, 32))
        s.tok, s.pos = nn.Embedding(17, 32), nn.Parameter(torch.randn(4, 32) * .1); s.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, 0., "gelu", batch_first=True, norm_first=True), 1, enable_nested_tensor=False)
        s.ln, s.tp = nn.LayerNorm(32), nn.Linear(32, 32, bias=False); s.scale = nn.Parameter(torch.tensor(math.log(1 / .07) if v != "exp100" else 100.))
    def forward(s, x, w):
        i = s.img(x); h = s.enc(s.tok(w) + s.pos, mask=torch.full((4, 4), float("-inf")).triu(1)); t = s.tp(s.ln(h)[:, 0 if s.v == "eot" else -1])
        d = 0 if s.v == "normdim" else -1; i, t = F.normalize(i, dim=d), F.normalize(t, dim=d)
        if s.v == "scalemul": return .07 * i @ t.T
        return s.scale.exp() * i @ t.T
@net(eot=("text feature of the first token under a causal mask: all alike", "enc/tp"), scalemul=("similarities times .07, not divided", "loss/temperature"), exp100=("scale 100 exponentiated", "scale"),
     probs=("softmax before cross-entropy in the loss", "loss"), noarange=("labels all zero, not arange", "loss"))
def clip(v):
    def data(s):
        g = gen(s); n = 32; p = I(g, 8, n, 2); x = N(g, n, 1, 8, 8) * .1; k = torch.arange(n); x[k, 0, p[:, 0], p[:, 1]] += 3; return (x, torch.stack([torch.full((n,), 16), p[:, 0], 8 + p[:, 1], torch.full((n,), 16)], 1)), None
    def loss(o, t):
        y = torch.arange(o.shape[0]) * (v != "noarange"); a, b = o, o.T
        if v == "probs": a, b = a.softmax(1), b.softmax(1)
        return .5 * (F.cross_entropy(a, y) + F.cross_entropy(b, y))
    return dict(model=lambda: Clip(v), data=data, loss=loss, diag=dict(per="batch"))
# ---------- triplet
class Emb(nn.Module):
    def __init__(s, v):
        super().__init__(); s.v = v; s.f = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(512, 32))
        if v == "zerolast": nn.init.zeros_(s.f[-1].weight)
    def forward(s, x):
        e = s.f(x)
        if s.v == "relu": e = F.relu(e - 1.5)
        return F.normalize(e, dim=0 if s.v == "normdim" else 1, eps=1e-6)
@net(swap=("hardest positive and negative swapped", "loss"), sqrtnan=("sqrt of zero squared distances: NaN gradient", "loss"), margin=("margin subtracted: relu(ap - an - m)", "loss"),
     zerolast=("last layer zero: all embeddings alike", "f.7"), relu=("embedding ReLU'd after -1.5: dead", "f.7"))
def triplet(v):
    def data(s):
        g = gen(s); y = I(g, 8, 48); pr = torch.randn(8, 1, 16, 16, generator=gen(777)) * .5; sh = I(g, 3, 48); x = pr[y] + N(g, 48, 1, 16, 16); x = torch.stack([x[q].roll(int(sh[q]), -1) for q in range(48)]); return x, y
    def loss(e, y):
        d2 = (2 - 2 * e @ e.T) if v == "sqrtnan" else ((e[:, None] - e[None]) ** 2).sum(-1) ; d = ((e[:, None] - e[None]) ** 2).sum(-1).sqrt() if v == "sqrtnan" else d2.clamp(min=1e-12).sqrt()
        same = y[:, None] == y; pos = same & ~torch.eye(len(y), dtype=torch.bool); neg = ~same
        if v == "swap": pos, neg = neg, pos
        t = F.relu(d[:, :, None] - d[:, None, :] + (-.5 if v == "margin" else .5)); m = (pos[:, :, None] & neg[:, None, :]).float(); return (t * m).sum() / m.sum()
    return dict(model=lambda: Emb(v), data=data, loss=loss, diag=dict(per="batch"))
