from tasks import *
from nets_b import lenet, deepcnn, cifar
from nets_c import audio, Audio, hefan
PY = "https://github.com/Hong-Shuo/PYSIASSIST "; FO = "https://discuss.pytorch.org/t/"; SB = "https://github.com/amin-nikanjam/SilentBugsInTensorFlowKeras tensorflow/tensorflow#"; HU = "Humbatova et al., Taxonomy of Real Faults (arXiv 1910.11015), from memory: "

def tones(B=32, Tn=24, C=6):
    W = T(41, 4, C); fr = torch.tensor([1., 2., 3., 5.])
    def data(s):
        y = R(s, 4, (B,)); t = torch.arange(float(Tn))[None, None] / Tn; ph = 6.28 * torch.rand(B, C, 1, generator=gen(s + 1))
        return torch.sin(6.28 * fr[y][:, None, None] * t + ph) + .3 * T(s + 2, B, C, Tn), y
    return data

class Seq(nn.Module):
    def __init__(s, C=6, H=48, K=4, how=None):
        super().__init__(); s.lstm = nn.LSTM(C, H, batch_first=how != "time_first"); s.fc = nn.Linear(H, K); s.how = how; s.C = C
    def forward(s, x):                       # x: (B, C, T)
        B, C, L = x.shape; x = x.view(B, L, C) if s.how == "view" else x.transpose(1, 2)
        z = s.fc(s.lstm(x)[0].mean(1)); return z.softmax(-1) if s.how == "softmax" else z

@case(PY + FO + "for-beginners-do-not-use-view-or-reshape-to-swap-dimensions-of-tensors/75524", "view instead of transpose to bring the channels last: time and channels scrambled", "lstm / view")
def py_view(planted): return dict(model=lambda: Seq(how="view" if planted else None), data=tones(), loss=ce)

@case(PY + FO + "lstm-with-inputs-as-mfcc-features-not-learning/131120 (thread not read; batch_first from the dataset's class)", "batch_first missing: the LSTM runs along the batch", "lstm")
def py_batchfirst(planted): return dict(model=lambda: Seq(how="time_first" if planted else None), data=tones(), loss=ce)

@case(PY + FO + "lstm-plateauing-at-25-accuracy-on-train-set-tensorflow-version-achieves-95-test-acc/140936", "softmax in the LSTM classifier before CrossEntropyLoss", "fc / softmax")
def py_lstm_softmax(planted): return dict(model=lambda: Seq(how="softmax" if planted else None), data=tones(), loss=ce)

@case(PY + FO + "weights-not-getting-updated-when-creating-tensor-in-the-middle-of-the-computation/109524", "a new tensor made from the features cuts the graph: the layers in front get no gradient", "enc")
def py_newtensor(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.enc = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3)); s.head = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 4))
        def forward(s, x):
            z = s.enc(x); z = torch.tensor(z.tolist()) if planted else z
            return s.head(z)
    return dict(model=Net, data=proto(32, 4, 32, 1.), loss=ce)

@case(PY + FO + "embeddings-not-getting-updated/3796", "embedding's output taken under .data: it is never trained", "emb")
def py_embdata(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.emb = nn.Embedding(200, 8); s.conv = nn.Conv1d(8, 16, 3, padding=1); s.fc = nn.Linear(16, 4)
        def forward(s, x):
            e = s.emb(x); e = e.data if planted else e
            return s.fc(F.relu(s.conv(e.transpose(1, 2))).amax(2))
    return dict(model=Net, data=text(K=4, B=64), loss=ce)

@case(PY + FO + "bcewithlogitsloss-giving-negative-loss/123902", "masks of 0 and 255 as targets of BCEWithLogitsLoss", "targets / loss")
def py_mask255(planted):
    class UNet(nn.Module):
        def __init__(s):
            super().__init__(); c = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU())
            s.d1, s.d2, s.u1 = c(1, 12), c(12, 24), c(36, 12); s.out = nn.Conv2d(12, 1, 1)
        def forward(s, x): a = s.d1(x); b = s.d2(F.max_pool2d(a, 2)); return s.out(s.u1(torch.cat([a, F.interpolate(b, scale_factor=2)], 1)))
    def data(s):
        m = (F.interpolate(T(s, 8, 1, 5, 5), (24, 24), mode="bilinear") > .2).float(); return m * .5 + .4 * T(s + 1, 8, 1, 24, 24), m * 255
    return dict(model=UNet, data=data, loss=bcel if planted else lambda o, t: bcel(o, t / 255))

@case(PY + FO + "constant-segmentation-loss/29840", "prediction rounded before the loss: no gradient passes", "loss / round")
def py_round(planted):
    def model(): return nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 1, 1), nn.Sigmoid())
    def data(s):
        m = (F.interpolate(T(s, 8, 1, 5, 5), (24, 24), mode="bilinear") > .2).float(); return m * .5 + .4 * T(s + 1, 8, 1, 24, 24), m
    def dice(o, t):
        if planted: o = torch.round(o)
        return 1 - (2 * (o * t).sum((1, 2, 3)) + 1) / (o.sum((1, 2, 3)) + t.sum((1, 2, 3)) + 1)
    def loss(o, t): return dice(o, t).mean()
    return dict(model=model, data=data, loss=loss)

@case(PY + FO + "grads-are-none-after-backward-broken-graph/165574 (thread not read; pattern: layers in a Python list)", "hidden layers kept in a plain list: not parameters of the model", "hidden layers")
def py_list(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.inp = nn.Linear(784, 32); h = [nn.Linear(32, 32) for _ in range(3)]; s.hidden = h if planted else nn.ModuleList(h); s.out = nn.Linear(32, 10)
        def forward(s, x):
            x = F.relu(s.inp(x))
            for l in s.hidden: x = F.relu(l(x))
            return s.out(x)
    return dict(model=Net, data=digits(32, flat=True), loss=ce)

@case(PY + "patterns/10 NLLLoss", "NLLLoss is given softmax probabilities instead of log-probabilities", "last Linear / softmax / loss")
def py_nll_softmax(planted):
    def model(): return nn.Sequential(*lenet(), nn.Softmax(1) if planted else nn.LogSoftmax(1))
    def good(o, t): return F.nll_loss(o if (o <= 0).all() else o.clamp(min=1e-12).log(), t)
    return dict(model=model, data=digits(32), loss=F.nll_loss if planted else good, diag={} if planted else dict(loss=F.nll_loss))

@case(PY + "patterns/10 NLLLoss", "NLLLoss is given raw outputs: unbounded below", "last Linear / loss")
def py_nll_logits(planted):
    def model(): return nn.Sequential(*lenet(), *([] if planted else [nn.LogSoftmax(1)]))
    def good(o, t): return F.cross_entropy(o, t)
    return dict(model=model, data=digits(32), loss=F.nll_loss if planted else good, diag={} if planted else dict(loss=F.nll_loss))

@case(PY + "patterns/10 KLDivLoss", "KLDivLoss is given probabilities instead of log-probabilities", "student / softmax / loss")
def py_kldiv(planted):
    W = T(17, 24, 6)
    def model(): return nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 6), nn.Softmax(1) if planted else nn.LogSoftmax(1))
    def data(s): x = T(s, 64, 24); return x, (x @ W / 2).softmax(1)
    def loss(o, t): return F.kl_div(o, t, reduction="batchmean")
    def good(o, t): return loss(o if (o <= 0).all() else o.clamp(min=1e-12).log(), t)
    return dict(model=model, data=data, loss=loss if planted else good, diag={} if planted else dict(loss=loss))

@case(PY + FO + "need-help-loss-and-acc-stay-the-same-too-early-by-using-bcewithlogitsloss/88994", "sigmoid in the network and BCEWithLogitsLoss", "last Linear / Sigmoid")
def py_bce_sigmoid(planted):
    class CNN(nn.Module):
        def __init__(s): super().__init__(); s.c1, s.c2 = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 32, 3); s.f1, s.f2 = nn.Linear(32 * 36, 64), nn.Linear(64, 1)
        def forward(s, x):
            x = F.max_pool2d(F.relu(s.c1(x)), 2); x = F.max_pool2d(F.relu(s.c2(x)), 2); z = s.f2(F.relu(s.f1(x.flatten(1)))); return torch.sigmoid(z) if planted else z
    d = digits(32, 32, 3, 6)
    def data(s): x, y = d(s); return x, (y < 2).float()[:, None]
    return dict(model=CNN, data=data, loss=nn.BCEWithLogitsLoss())

@case(SB + "30040", "binary cross-entropy written out, outputs (B, 1) against labels (B,): broadcast to (B, B)", "loss")
def sb_30040(planted):
    def model(): return nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())
    d = binary(10, 64, shape=(-1,))
    def loss(o, t):
        if not planted: o = o[:, 0]
        return -(t * o.clamp(min=1e-7).log() + (1 - t) * (1 - o).clamp(min=1e-7).log()).mean()
    return dict(model=model, data=d, loss=loss)

@case(SB + "29965", "sample weights (B, 1) times losses (B,): broadcast, so that each weight meets each loss", "loss weights")
def sb_29965(planted):
    def model(): return nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    w = T(19, 8) / 2
    def data(s):
        x = T(s, 64, 8); bad = R(s + 1, 2, (64,)).bool(); y = x @ w; t = torch.where(bad, -y * 1.5 + 1, y); return x, (t, (~bad).float())   # half of the labels are wrong and carry no weight
    def loss(o, t):
        y, wt = t; e = (o[:, 0] - y) ** 2; return (wt[:, None] * e).mean() if planted else (wt * e).mean()
    return dict(model=model, data=data, loss=loss)

@case(SB + "46329", "embedding comes back frozen from the saved file, at random values", "emb")
def sb_46329(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.emb = nn.Embedding(200, 12); s.gru = nn.GRU(12, 24, batch_first=True); s.fc = nn.Linear(24, 4)
            s.emb.weight.requires_grad_(not planted)
        def forward(s, x): return s.fc(s.gru(s.emb(x))[0].amax(1))
    return dict(model=Net, data=text(K=4, B=64), loss=ce)

@case(SB + "34732", "position ids by cumsum along the batch instead of the sequence", "pos")
def sb_34732(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.tok, s.pos = nn.Embedding(12, 32), nn.Embedding(65, 32); s.l = nn.TransformerEncoderLayer(32, 4, 64, 0., batch_first=True, norm_first=True); s.norm = nn.LayerNorm(32); s.head = nn.Linear(32, 12)
        def forward(s, x): p = torch.cumsum(torch.ones_like(x), 0 if planted else 1) - 1; return s.head(s.norm(s.l(s.tok(x) + s.pos(p))))
    def data(s): x = R(s, 12, (48, 8)); return x, x.roll(1, 1)
    return dict(model=Net, data=data, loss=ceseq, diag=SEQ)

@case(SB + "30423", "outputs of masked steps are zero and the last step is what the classifier reads", "lstm / last step")
def sb_30423(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.emb = nn.Embedding(40, 16); s.lstm = nn.LSTM(16, 32, batch_first=True); s.fc = nn.Linear(32, 4)
        def forward(s, x):
            m = x > 0; h = s.lstm(s.emb(x))[0] * m[..., None]
            h = h[:, -1] if planted else h.gather(1, (m.sum(1) - 1)[:, None, None].expand(-1, 1, 32))[:, 0]
            return s.fc(h)
    def data(s):
        n = R(s, 10, (32,)) + 4; x = R(s + 1, 39, (32, 16)) + 1; m = torch.arange(16)[None] < n[:, None]; y = R(s + 2, 4, (32,)); x[torch.arange(32), n - 1] = y + 1; return x * m, y
    return dict(model=Net, data=data, loss=ce)

@case(SB + "37887", "two outputs: each loss is computed with the other's targets", "loss")
def sb_37887(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.body = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()); s.a, s.b = nn.Linear(64, 1), nn.Linear(64, 1)
        def forward(s, x): h = s.body(x); return s.a(h), s.b(h)
    W = T(23, 20, 2) / 4
    def data(s): x = T(s, 64, 20); y = x @ W; return x, (y[:, :1] * 3 + 4, torch.tanh(y[:, 1:]))
    def loss(o, t):
        u, v = (t[1], t[0]) if planted else t; return F.mse_loss(o[0], u) + F.mse_loss(o[1], v)
    return dict(model=Net, data=data, loss=loss)

@case(SB + "33709", "batch dot contracts the wrong axes: queries against the keys' time axis", "attention product q, k")
def sb_33709(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.tok = nn.Embedding(12, 16); s.pos = nn.Parameter(torch.randn(16, 16) * .5); s.n1, s.n2 = nn.LayerNorm(16), nn.LayerNorm(16); s.q, s.k, s.v, s.o = (nn.Linear(16, 16) for _ in range(4)); s.ff = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16)); s.head = nn.Linear(16, 12)
        def forward(s, x):
            z = s.tok(x) + s.pos; h = s.n1(z); k = s.k(h); a = torch.bmm(s.q(h), k if planted else k.transpose(1, 2)) / 4
            z = z + s.o(a.softmax(-1) @ s.v(h)); z = z + s.ff(s.n2(z)); return s.head(z)
    def data(s): x = R(s, 12, (32, 16)); return x, x.roll(1, 1)
    return dict(model=Net, data=data, loss=ceseq, diag=SEQ)

@case(HU + "wrong axis of softmax", "softmax over the batch instead of the classes, then the log-likelihood", "softmax dim 0")
def hu_softmax_axis(planted):
    def loss(o, t): return F.nll_loss((o.softmax(0 if planted else 1) + 1e-9).log(), t)
    return dict(model=lambda: nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 5)), data=proto(20, 5, 32, .8), loss=loss)

@case(HU + "missing masking of invalid values in the loss", "padded steps count in the loss: they pull towards class 0", "loss mask")
def hu_mask(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.emb = nn.Embedding(30, 16); s.lstm = nn.LSTM(16, 32, batch_first=True, bidirectional=True); s.fc = nn.Linear(64, 6)
        def forward(s, x): return s.fc(s.lstm(s.emb(x))[0])
    mp = R(37, 6, (30,))
    def data(s):
        n = R(s, 6, (32,)) + 3; x = R(s + 1, 29, (32, 40)) + 1; m = torch.arange(40)[None] < n[:, None]; y = (mp[x] + mp[x.roll(1, 1)]) % 6; return x * m, torch.where(m, y, torch.full_like(y, -100))
    def loss(o, t): return F.cross_entropy(o.flatten(0, 1), t.clamp(min=0).flatten()) if planted else F.cross_entropy(o.flatten(0, 1), t.flatten())
    return dict(model=Net, data=data, loss=loss)

@case(HU + "wrong number of neurons in a layer", "a hidden layer of a single ReLU unit", "2 (Linear to one unit)")
def hu_neurons(planted):
    h = 1 if planted else 32
    return dict(model=lambda: nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, h), nn.ReLU(), nn.Linear(h, 10)), data=digits(32, flat=True), loss=ce)

@case(HU + "missing bias", "no layer has a bias, though the targets have a mean of 4", "last Linear / bias")
def hu_bias(planted):
    def model(): return nn.Sequential(nn.Linear(6, 32, bias=not planted), nn.Tanh(), nn.Linear(32, 32, bias=not planted), nn.Tanh(), nn.Linear(32, 1, bias=not planted))
    w = T(29, 6, 1) / 2
    def data(s): x = T(s, 64, 6); return x, 4 + torch.tanh(x @ w)
    return dict(model=model, data=data, loss=mse, diag=MSE)

@case(HU + "wrong filter size / stride in a convolution", "stride of the first convolution larger than its kernel: most pixels are never seen", "conv 0")
def hu_stride(planted):
    def model(): return nn.Sequential(nn.Conv2d(1, 16, 3, stride=9 if planted else 1), nn.ReLU(), nn.AdaptiveAvgPool2d(6), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 36, 10))
    return dict(model=model, data=digits(32), loss=ce)
