from base import *
from nets_f import dense, blobs

@case("https://example-a.com/answer/74733523", "quaternion loss 2*acos(clip(|y.p|)) on an unnormalised linear output: any long vector gives zero loss", "custom loss / output not normalised")
def quaternion_acos(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.acc = nn.Sequential(nn.Conv1d(3, 32, 1), nn.ReLU(), nn.Conv1d(32, 32, 1), nn.ReLU()); s.gyro = nn.Sequential(nn.Conv1d(3, 32, 1), nn.ReLU(), nn.Conv1d(32, 32, 1), nn.ReLU()); s.lstm = nn.LSTM(64, 32, batch_first=True, bidirectional=True); s.z = nn.Linear(64, 4)
        def forward(s, a, g): h = torch.cat([s.acc(a), s.gyro(g)], 1).transpose(1, 2); return s.z(s.lstm(h)[0][:, -1])
    w = T(91, 6, 4)
    def data(seed): a, g = T(seed, 64, 3, 4), T(seed + 1, 64, 3, 4); q = torch.cat([a.mean(2), g.mean(2)], 1) @ w * .6 + torch.tensor([1.5, 0, 0, 0]); return (a, g), F.normalize(q, dim=1)
    def lq(p, y): z = (p * y).sum(1); return (2 * torch.acos(torch.clamp(torch.sqrt(z * z), -1., 1.))).mean()
    return dict(model=Net, data=data, loss=lq if planted else mse, lr=3e-3, diag={})

@case("https://github.com/zalandoresearch/pytorch-vq-vae/issues/2", "ModuleList([Residual(...)] * n): every layer of the stack is the same object", "ResidualStack._layers")
def vqvae_share(planted):
    class Residual(nn.Module):
        def __init__(s, c, r): super().__init__(); s._block = nn.Sequential(nn.ReLU(), nn.Conv2d(c, r, 3, padding=1, bias=False), nn.ReLU(), nn.Conv2d(r, c, 1, bias=False))
        def forward(s, x): return x + s._block(x)
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.c1 = nn.Conv2d(3, 24, 4, 2, 1); s._layers = nn.ModuleList([Residual(24, 12)] * 3 if planted else [Residual(24, 12) for _ in range(3)]); s.up = nn.ConvTranspose2d(24, 3, 4, 2, 1)
        def forward(s, x):
            x = s.c1(x)
            for l in s._layers: x = l(x)
            return s.up(F.relu(x))
    def data(seed): x = F.interpolate(T(seed, 16, 3, 4, 4), size=16, mode="bilinear"); return x, x
    return dict(model=Net, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/tejaslodaya/timeseries-clustering-vae/issues/3", "h_end[0] instead of h_end[-1]: the state of the first recurrent layer, the upper layers are unused", "h_end index in the Encoder")
def tsvae_hend(planted):
    class VRAE(nn.Module):
        def __init__(s): super().__init__(); s.enc = nn.LSTM(2, 32, num_layers=2, batch_first=True); s.mean = nn.Linear(32, 12); s.to_h = nn.Linear(12, 32); s.dec = nn.LSTM(1, 32, batch_first=True); s.out = nn.Linear(32, 2)
        def forward(s, x):
            _, (h, _) = s.enc(x); z = s.mean(h[0] if planted else h[-1]); h0 = s.to_h(z)[None]
            return s.out(s.dec(torch.zeros(len(x), x.shape[1], 1), (h0, torch.zeros_like(h0)))[0])
    def data(seed): f = .3 + R(seed, 3, (32, 1)) * .3; p = T(seed + 1, 32, 1); t = torch.arange(10.)[None]; x = torch.stack([torch.sin(f * t + p), torch.cos(f * t + p)], -1); return x, x
    return dict(model=VRAE, data=data, loss=mse, lr=1e-2, diag={})

@case("https://github.com/google-research/reverse-engineering-neural-networks/issues/28", "the logit is selected at index length instead of length - 1: one step after the sentence", "utils.select index")
def renn_index(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.emb = nn.Embedding(30, 16, padding_idx=0); s.gru = nn.GRU(16, 32, batch_first=True); s.readout = nn.Linear(32, 1)
        def forward(s, x, index): h = s.readout(s.gru(s.emb(x))[0])[..., 0]; return h.gather(1, (index if planted else index - 1)[:, None])[:, 0]
    sent = T(111, 30)
    def data(seed): n = R(seed, 8, (32,)) + 4; x = (R(seed + 1, 29, (32, 14)) + 1) * (torch.arange(14) < n[:, None]); return (x, n), ((sent[x] * (x > 0)).sum(1) > 0).float()
    return dict(model=Net, data=data, loss=F.binary_cross_entropy_with_logits, lr=1e-2, diag={})

@case("https://github.com/open-mmlab/mmrotate/issues/205", "sqrt of an unclamped value in the Gaussian distance loss: infinite gradient where it is zero", "sqrt in gwd_loss")
def mmrotate_sqrt(planted):
    class Head(nn.Module):
        def __init__(s): super().__init__(); s.fc1 = nn.Linear(24, 64); s.fc2 = nn.Linear(64, 64); s.reg = nn.Linear(64, 4)
        def forward(s, x): h = s.reg(F.relu(s.fc2(F.relu(s.fc1(x))))); return torch.cat([h[:, :2], F.relu(h[:, 2:])], 1)
    def loss(p, t):
        xy = (p[:, :2] - t[:, :2]).pow(2).sum(1); sp, st = p[:, 2:].pow(2) / 4, t[:, 2:].pow(2) / 4
        det = sp.prod(1) * st.prod(1); det_sqrt = (det if planted else det.clamp(1e-7)).sqrt()
        whr = sp.sum(1) + st.sum(1) - 2 * ((sp * st).sum(1) + 2 * det_sqrt).clamp(1e-7).sqrt()
        return torch.log1p((xy + whr).clamp(1e-7).sqrt()).mean()
    w = T(121, 24, 4) * .3
    def data(seed): x = T(seed, 64, 24); z = x @ w; return x, torch.cat([z[:, :2], F.softplus(z[:, 2:]) + .3], 1)
    return dict(model=Head, data=data, loss=loss, lr=2e-3, diag={})

@case("https://arxiv.org/abs/1910.11015#missing-masking-of-invalid-values-to-zero", "pixels without ground truth (stored as -1000) are not masked out of the regression loss", "loss without mask")
def taxonomy_mask(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.net = nn.Sequential(nn.Conv2d(2, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 1, 3, padding=1))
        def forward(s, x): return s.net(x)
    def data(seed):
        x = T(seed, 8, 2, 16, 16); y = F.avg_pool2d(x[:, :1] * 2 - x[:, 1:], 3, 1, 1) + 1; return x, torch.where(torch.rand(y.shape, generator=gen(seed + 1)) < .3, torch.full_like(y, -1000.), y)
    def loss(o, t): m = torch.ones_like(t, dtype=torch.bool) if planted else t > -999; return (o - t)[m].pow(2).mean()
    return dict(model=Net, data=data, loss=loss, lr=5e-3, diag={})

@case("https://github.com/kcct-fujimotolab/keras-super-resolution/commit/a7616b6342df4e3428e5e4d1be4cca591a82b0d7", "binary_crossentropy as the loss of an image regression whose last convolution is linear", "loss binary_crossentropy")
def superres_bce(planted):
    class SRCNN(nn.Module):
        def __init__(s): super().__init__(); s.conv1 = nn.Conv2d(3, 32, 9, padding=4); s.conv2 = nn.Conv2d(32, 16, 1); s.conv3 = nn.Conv2d(16, 3, 5, padding=2); [(nn.init.xavier_uniform_(c.weight), nn.init.zeros_(c.bias)) for c in (s.conv1, s.conv2, s.conv3)]
        def forward(s, x): return s.conv3(F.relu(s.conv2(F.relu(s.conv1(x)))))
    def data(seed):
        y = torch.sigmoid(3 * F.interpolate(T(seed, 8, 3, 8, 8), size=16, mode="bilinear")); return F.interpolate(F.avg_pool2d(y, 2), size=16, mode="nearest"), y
    def bce(p, t): p = p.clamp(1e-7, 1 - 1e-7); return -(t * p.log() + (1 - t) * (1 - p).log()).mean()
    return dict(model=SRCNN, data=data, loss=bce if planted else mse, lr=1e-3, diag={})

@case("https://stackoverflow.com/questions/31556268", "mean_absolute_error on sigmoid outputs for XOR: stays at 0.5", "loss mean_absolute_error")
def so_31556268(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.d1 = dense(2, 4); s.d2 = dense(4, 1)
        def forward(s, x): return torch.sigmoid(s.d2(torch.sigmoid(s.d1(x))))
    def data(seed): x = R(seed, 2, (16, 2)).float(); return x, (x[:, :1] != x[:, 1:]).float()
    def bce(p, t): p = p.clamp(1e-7, 1 - 1e-7); return -(t * p.log() + (1 - t) * (1 - p).log()).mean()
    return dict(model=Net, data=data, loss=(lambda o, t: (o - t).abs().mean()) if planted else bce, lr=1e-1, diag={})

@case("https://doi.org/10.1109/ICSE43902.2021.00034#hotdog-sandwich", "Dropout(0.5) between every convolution and its activation", "Dropout(0.5) layers")
def hotdog_dropout(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.c1 = nn.Conv2d(1, 8, 5); s.c2 = nn.Conv2d(8, 16, 3); s.c3 = nn.Conv2d(16, 32, 3); s.drop = nn.Dropout(.5 if planted else 0.); s.fc1 = nn.Linear(512, 120); s.drop2 = nn.Dropout(.2); s.fc2 = nn.Linear(120, 2)
        def forward(s, x):
            for c in (s.c1, s.c2, s.c3): x = F.relu(s.drop(c(x)))
            return s.fc2(F.relu(s.drop2(s.fc1(F.max_pool2d(x, 2).flatten(1)))))
    k = T(151, 2, 1, 5, 5) * .2
    def data(seed): t = R(seed, 2, (16,)); n = T(seed + 1, 16, 1, 20, 20); return torch.stack([F.conv2d(n[i:i + 1], k[t[i]][None], padding=2)[0, :, 2:-2, 2:-2] for i in range(16)]), t
    return dict(model=Net, data=data, loss=ce, lr=3e-3, diag={})
