from base import *

# ---------- language, knowledge graphs, noisy labels, generative
class BiRNN(nn.Module):
    def __init__(s, bad):
        super().__init__(); s.lstm = nn.LSTM(12, 24, 2, batch_first=True, bidirectional=True); s.fc = nn.Linear(48, 6); s.bad = bad
    def forward(s, x):
        o, _ = s.lstm(x)
        return s.fc(o[:, -1] if s.bad else torch.cat([o[:, -1, :24], o[:, 0, 24:]], -1))
_dig = F.interpolate(T(51, 6, 1, 4, 4), size=(12, 12), mode="bilinear")[:, 0]
def digits(s, B=64):
    y = R(s, 6, (B,)); x = _dig[y] * 1.3 + T(s + 1, B, 12, 12, k=.9); return x / x.std(), y
@case("https://github.com/prabhuomkar/pytorch-cpp/pull/13", "the bidirectional RNN's output is taken at the last step for both directions (the backward one has seen one step there)", "lstm output selection before fc")
def birnn_last_step(planted): return dict(model=lambda: BiRNN(planted), data=digits, loss=ce, lr=3e-3)

class SNLI(nn.Module):
    def __init__(s, bad, d=32):
        super().__init__(); s.emb = nn.Embedding(12, d); s.lstm = nn.LSTM(d, d, batch_first=True); s.hyp = nn.LSTM(d, d, batch_first=True)
        s.Wy, s.Wh, s.w, s.Wp, s.Wx, s.out = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False), nn.Linear(d, 1), nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, 3); s.bad = bad
    def forward(s, p, h):
        Y, _ = s.lstm(s.emb(p)); _, (hn, _) = s.hyp(s.emb(h)); hn = hn[-1]
        a = torch.softmax(s.w(torch.tanh(s.Wy(Y) + s.Wh(hn)[:, None])), -1 if s.bad else 1)
        return s.out(torch.tanh(s.Wp((a * Y).sum(1)) + s.Wx(hn)))
@case("https://github.com/keras-team/keras/issues/2067", "the attention softmax runs over the last dimension, which has one unit, so every weight is 1", "attention softmax (after w)")
def snli_softmax_of_one(planted):
    def data(s):
        g = gen(s); B = 64; v = torch.randint(0, 3, (B, 3), generator=g); tok = torch.arange(3) * 3 + v
        order = torch.rand(B, 3, generator=g).argsort(1); p = tok.gather(1, order); k = torch.randint(0, 3, (B,), generator=g)
        return (p, (9 + k)[:, None].expand(B, 2).contiguous()), v[torch.arange(B), k]
    return dict(model=lambda: SNLI(planted), data=data, loss=ce, lr=8e-3)

class Seq2Seq(nn.Module):
    def __init__(s, bad, V=10, d=32):
        super().__init__(); s.emb = nn.Embedding(V + 1, d, padding_idx=0); s.enc = nn.GRU(d, d, batch_first=True); s.demb = nn.Embedding(V + 2, d); s.dec = nn.GRU(d, d, batch_first=True)
        s.W, s.linear, s.v, s.out = nn.Linear(d, d, bias=False), nn.Linear(d, d), nn.Linear(d, 1, bias=False), nn.Linear(2 * d, V + 1); s.bad = bad
    def forward(s, src, lens, dec_in):
        real = torch.arange(src.shape[1])[None] < lens[:, None]
        o, _ = s.enc(s.emb(src)); o = o * real[..., None]; h = o[torch.arange(len(o)), lens - 1]
        q, _ = s.dec(s.demb(dec_in), h[None])
        e = s.v(torch.tanh(s.W(o)[:, None] + s.linear(q)[:, :, None]))[..., 0]
        if not s.bad: e = e.masked_fill(~real[:, None], float("-inf"))
        return s.out(torch.cat([torch.softmax(e, -1) @ o, q], -1))
@case("https://github.com/tensorflow/tensorflow/issues/512", "the attention of seq2seq does not mask the padded part of the encoder sequence", "attention scores (no padding mask)")
def seq2seq_attends_padding(planted):
    def data(s):
        g = gen(s); B, L = 64, 16; lens = torch.randint(3, L + 1, (B,), generator=g); x = torch.randint(1, 11, (B, L), generator=g)
        x = x * (torch.arange(L)[None] < lens[:, None]); y = (x[torch.arange(B)[:, None], (lens[:, None] - 1 - torch.arange(3)[None])])
        return (x, lens, torch.cat([torch.full((B, 1), 11), y[:, :-1]], 1)), y
    return dict(model=lambda: Seq2Seq(planted), data=data, loss=ceseq, lr=8e-3)

NE, NR = 40, 4
_ee, _er = T(61, NE, 6), T(62, NR, 6)
_kg = torch.einsum("ed,rd,fd->erf", _ee, _er, _ee); _kg = (_kg > _kg.flatten().quantile(.94)).float()
class ConvE(nn.Module):
    def __init__(s):
        super().__init__(); s.E, s.Rl = nn.Embedding(NE, 32), nn.Embedding(NR, 32); nn.init.xavier_normal_(s.E.weight); nn.init.xavier_normal_(s.Rl.weight)
        s.bn0 = nn.BatchNorm2d(1); s.conv = nn.Conv2d(1, 16, 3); s.bn1 = nn.BatchNorm2d(16); s.fc = nn.Linear(16 * 6 * 6, 32); s.bn2 = nn.BatchNorm1d(32); s.b = nn.Parameter(torch.zeros(NE)); s.inp_drop, s.map_drop, s.hid_drop = nn.Dropout(.2), nn.Dropout2d(.2), nn.Dropout(.3)
    def forward(s, e, r):
        x = torch.cat([s.E(e).view(-1, 1, 4, 8), s.Rl(r).view(-1, 1, 4, 8)], 2)
        x = s.map_drop(F.relu(s.bn1(s.conv(s.inp_drop(s.bn0(x))))))
        x = F.relu(s.bn2(s.hid_drop(s.fc(x.flatten(1)))))
        return torch.sigmoid(x @ s.E.weight.T + s.b)
@case("https://github.com/TimDettmers/ConvE/issues/55", "label smoothing adds 1/N to every target and not label_smoothing/N", "the targets (label smoothing)")
def conve_label_smoothing(planted):
    def data(s):
        e, r = R(s, NE, (64,)), R(s + 1, NR, (64,)); return (e, r), .9 * _kg[e, r] + (1. if planted else .1) / NE
    def judge(m, x, t): return float(F.binary_cross_entropy(m(*x), (t > .5).float()))
    return dict(model=ConvE, data=data, loss=nn.BCELoss(), judge=judge, lr=3e-3)

class CleanNet(nn.Module):
    def __init__(s, bad):
        super().__init__(); s.fc0, s.fc1, s.drop, s.out = nn.Linear(20, 64), nn.Linear(64, 32), nn.Dropout(.5), nn.Linear(32, 5); s.bad = bad
    def forward(s, x):
        h0 = torch.tanh(s.fc0(x))
        if s.bad: h = s.drop(h0)
        else: h0 = s.drop(h0)
        h = torch.tanh(s.fc1(h0)); return s.out(h)
@case("https://github.com/kuanghuei/clean-net/issues/2", "h = dropout(h0) is not used: the next layer takes h0", "drop (dropout)")
def cleannet_dropout_unused(planted):
    W = T(71, 20, 5)
    def data(s):
        x = T(s, 64, 20); y = (x @ W).argmax(-1); n = torch.rand(64, generator=gen(s + 1)) < .2; return x, torch.where(n, R(s + 2, 5, (64,)), y)
    def judge(m, x, t):
        m.eval(); v = float(ce(m(x), t)); m.train(); return v
    return dict(model=lambda: CleanNet(planted), data=data, loss=ce, judge=judge, lr=5e-3)

_bp = (F.interpolate(T(81, 6, 1, 3, 3), size=(8, 8), mode="bilinear").flatten(1) > 0).float()
def binimg(s, B=64):
    x = _bp[R(s, 6, (B,))]; flip = torch.rand(B, 64, generator=gen(s + 1)) < .05; return (x - flip.float()).abs()
class VAE(nn.Module):
    def __init__(s, z=5):
        super().__init__(); s.A, s.mu, s.logs = nn.Sequential(nn.Linear(64, 48), nn.Tanh()), nn.Linear(48, z), nn.Linear(48, z); s.f = nn.Sequential(nn.Linear(z, 48), nn.Tanh(), nn.Linear(48, 64))
    def forward(s, x):
        h = s.A(x); mu, ls = s.mu(h), s.logs(h); return s.f(mu + ls.exp() * torch.randn_like(mu)), mu, ls
def elbo(bad):
    def loss(o, t):
        r, mu, ls = o
        kl = .5 * ((2 * ls).exp() + mu ** 2 - 1 + (ls ** 2 if bad else -2 * ls)).sum()
        return (F.binary_cross_entropy_with_logits(r, t, reduction="sum") + kl) / len(t)
    return loss
@case("https://github.com/FluxML/model-zoo/pull/76", "the KL divergence has log(sigma)^2 where it should have -2 log(sigma)", "the loss (KL term; logs)")
def vae_kl_logsigma_squared(planted):
    def data(s): x = binimg(s); return x, x
    return dict(model=VAE, data=data, loss=elbo(planted), judge=lambda m, x, t: float(elbo(False)(m(x), t)), lr=3e-3)

class VQVAE(nn.Module):
    def __init__(s, bad):
        super().__init__(); s.enc = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 32)); s.codebook = nn.Embedding(16, 8); nn.init.uniform_(s.codebook.weight, -1 / 16, 1 / 16); s.dec = nn.Sequential(nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, 64)); s.bad = bad
    def forward(s, x):
        z = s.enc(x).view(len(x), 4, 8); idx = torch.cdist(z, s.codebook.weight).argmin(-1); q = s.codebook(idx)
        st = z + q - z.detach() if s.bad else z + (q - z).detach()
        return s.dec(st.flatten(1)), z, q
def vqloss(o, t):
    r, z, q = o; return F.mse_loss(r, t) + F.mse_loss(q, z.detach()) + F.mse_loss(z, q.detach())
@case("https://github.com/ritheshkumar95/pytorch-vqvae/issues/7", "the straight-through quantisation also passes the reconstruction gradient to the codebook", "codebook (straight-through)")
def vqvae_recon_to_codebook(planted):
    def data(s): x = binimg(s) * 2 - 1; return x, x
    return dict(model=lambda: VQVAE(planted), data=data, loss=vqloss, judge=lambda m, x, t: float(F.mse_loss(m(x)[0], t)), lr=3e-3)
