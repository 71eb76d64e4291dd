from base import *

@case("https://github.com/schmidt-ju/crat-pred/issues/8", "LSTM encoder hidden and cell state drawn with randn in every forward", "lstm_hidden_state/lstm_cell_state randn in forward")
def crat_randn(planted):
    class EncoderLstm(nn.Module):
        def __init__(self, h=48): super().__init__(); self.h = h; self.lstm = nn.LSTM(3, h, batch_first=True)
        def forward(self, x):
            f = torch.randn if planted else torch.zeros
            return self.lstm(x, (f(1, x.shape[0], self.h), f(1, x.shape[0], self.h)))[0][:, -1, :]
    class CratPred(nn.Module):
        def __init__(self, h=48): super().__init__(); self.encoder_lstm = EncoderLstm(h); self.decoder = nn.Sequential(nn.Linear(h, h), nn.ReLU(), nn.Linear(h, 2))
        def forward(self, x): return self.decoder(self.encoder_lstm(x))
    def data(s):
        v = T(s, 64, 1, 2); tt = torch.arange(6.).view(1, 6, 1); a = .2 * T(s + 1, 64, 1, 2); p = v * (tt - 5) * .3 + a * (tt - 5) ** 2 * .1
        return torch.cat([p[:, 1:] - p[:, :-1], torch.ones(64, 5, 1)], -1), (v * .3 * 3 + a * .9).squeeze(1)
    return dict(model=CratPred, data=data, loss=mse, lr=5e-3, diag={})

@case("https://github.com/idiap/attention-sampling/issues/23", "attention-weighted mean of L2-normalised features used directly as logits: logits near zero, predictions stay uniform", "logits scale (normalised features * attention) before softmax")
def ats_uniform(planted):
    P = T(50, 6, 3, 6, 6)
    class ATS(nn.Module):
        def __init__(self, c=16):
            super().__init__(); self.attention = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.Tanh(), nn.Conv2d(8, 1, 3, padding=1)); self.features = nn.Sequential(nn.Conv2d(3, c, 5, padding=2), nn.ReLU(), nn.Conv2d(c, 2 * c, 3, padding=1), nn.ReLU(), nn.Conv2d(2 * c, 6, 1)); self.classifier = nn.Identity() if planted else nn.Linear(6, 6)
        def forward(self, x):
            a = torch.softmax(self.attention(x).flatten(1), 1); f = self.features(x).flatten(2)
            return self.classifier((a.unsqueeze(1) * (F.normalize(f, dim=1) if planted else f)).sum(-1))
    def data(s):
        y = R(s, 6, (32,)); x = .4 * T(s + 1, 32, 3, 24, 24); p = R(s + 2, 18, (32, 2))
        for b in range(32): i, j = p[b].tolist(); x[b, :, i:i + 6, j:j + 6] += 1.5 * P[y[b]]
        return x, y
    return dict(model=ATS, data=data, loss=ce, lr=5e-3, diag={})

@case("https://github.com/hustvl/YOLOP/issues/117", "segmentation head ends in sigmoid while the loss is BCEWithLogitsLoss", "double sigmoid (seg head)")
def yolop_seg(planted):
    class MCnet(nn.Module):
        def __init__(self, c=12):
            super().__init__()
            def cb(i, o): return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())
            self.conv1, self.conv2, self.conv3 = cb(1, c), cb(c, 2 * c), cb(2 * c, 2 * c); self.h1, self.h2, self.h3 = cb(c, c), cb(2 * c, c), cb(2 * c, c); self.fuse = cb(3 * c, c); self.seg_out = nn.Conv2d(c, 1, 3, padding=1)
        def forward(self, x):
            a = self.conv1(x); b = self.conv2(F.max_pool2d(a, 2)); c = self.conv3(F.max_pool2d(b, 2)); up = lambda t, k: F.interpolate(t, scale_factor=k, mode="bilinear")
            d1 = self.seg_out(self.fuse(torch.cat([self.h1(a), up(self.h2(b), 2), up(self.h3(c), 4)], 1)))
            return torch.sigmoid(d1) if planted else d1
    def data(s):
        z = F.avg_pool2d(T(s, 8, 1, 32, 32), 7, 1, 3) * 7; return z + .7 * T(s + 1, 8, 1, 32, 32), (z > .8).float()
    return dict(model=MCnet, data=data, loss=F.binary_cross_entropy_with_logits, lr=3e-3, diag={})

@case("https://github.com/bfortuner/ml-glossary/pull/113", "hinge loss of the {-1,1} form used with y in {0,1}: constant 1 for y=0 whatever yhat", "labels 0/1 in hinge loss")
def hinge_01(planted):
    w = T(54, 16)
    class Net(nn.Module):
        def __init__(self): super().__init__(); self.net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
        def forward(self, x): return self.net(x).squeeze(1)
    def data(s): x = T(s, 64, 16); y = (x @ w > 0).float(); return x, y if planted else 2 * y - 1
    def hinge(o, t): return torch.clamp(1 - t * o, min=0).mean()
    return dict(model=Net, data=data, loss=hinge, lr=3e-3, diag={})
