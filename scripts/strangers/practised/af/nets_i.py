from base import *

@case("https://github.com/zemofreedom/PSMNet-Tensorflow/issues/1", "invalid ground-truth pixels (disparity 0 in KITTI) are not masked out of the loss", "loss / targets: invalid zeros not masked")
def psmnet_invalid_gt(planted):
    D = 8
    class PSMNet(nn.Module):
        def __init__(s):
            super().__init__(); c = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU()); s.feature = nn.Sequential(c(1, 12), nn.Conv2d(12, 8, 3, padding=1, bias=False))
            k = lambda i, o: nn.Sequential(nn.Conv3d(i, o, 3, padding=1, bias=False), nn.BatchNorm3d(o)); s.dres0 = nn.Sequential(k(16, 12), nn.ReLU(), k(12, 12), nn.ReLU()); s.dres1 = nn.Sequential(k(12, 12), nn.ReLU(), k(12, 12)); s.classif = nn.Sequential(k(12, 12), nn.ReLU(), nn.Conv3d(12, 1, 3, padding=1, bias=False))
        def forward(s, l, r):
            a, b = s.feature(l), s.feature(r); cost = torch.stack([torch.cat([a[..., d:], b[..., :b.shape[-1] - d]], 1) if d == 0 else F.pad(torch.cat([a[..., d:], b[..., :-d]], 1), (d, 0)) for d in range(D)], 2)
            h = s.dres0(cost); h = s.dres1(h) + h; return (s.classif(h).squeeze(1).softmax(1) * torch.arange(D).view(1, D, 1, 1)).sum(1)
    def data(seed):
        g = gen(seed); tex = torch.randn(4, 1, 8, 32, generator=g); d = 1 + torch.randint(0, 6, (4, 2), generator=g); col = torch.arange(24)
        disp = d[:, :1, None].expand(4, 8, 24).clone(); disp[:, 4:] = d[:, 1:, None]; r = tex[..., :24]; l = torch.gather(tex, 3, (col - disp).unsqueeze(1).clamp(min=-8) % 32) + .05 * torch.randn(4, 1, 8, 24, generator=g)
        valid = torch.rand(4, 8, 24, generator=g) < .35; return (l, r), disp.float() * valid
    def mk(bad):
        def f(o, t): return F.smooth_l1_loss(o, t) if bad else F.smooth_l1_loss(o[t > 0], t[t > 0])
        return f
    def ref(m):
        with torch.no_grad(): return sum(float(mk(False)(m(*data(9000 + k)[0]), data(9000 + k)[1])) for k in range(3)) / 3
    return dict(model=PSMNet, data=data, loss=mk(planted), lr=3e-3, diag={}, metric=ref)

@case("https://github.com/aimagelab/mammoth/issues/38", "Permutation transform draws a new pixel permutation at every call instead of one fixed permutation", "data: Permutation transform (inputs)")
def perm_mnist_runtime(planted):
    P = T(91, 10, 1, 14, 14); fixed = torch.randperm(196, generator=gen(92))
    class MNISTMLP(nn.Module):
        def __init__(s):
            super().__init__(); s.fc1, s.fc2, s.classifier = nn.Linear(196, 100), nn.Linear(100, 100), nn.Linear(100, 10)
            for m in (s.fc1, s.fc2, s.classifier): nn.init.xavier_uniform_(m.weight); nn.init.zeros_(m.bias)
        def forward(s, x): return s.classifier(F.relu(s.fc2(F.relu(s.fc1(x.flatten(1))))))
    def data(seed):
        t = R(seed, 10, (32,)); x = (P[t] + T(seed + 1, 32, 1, 14, 14, k=.8)).flatten(1)
        x = torch.stack([v[torch.randperm(196, generator=gen(seed * 40 + i))] for i, v in enumerate(x)]) if planted else x[:, fixed]
        return x.view(-1, 1, 14, 14), t
    return dict(model=MNISTMLP, data=data, loss=ce, lr=1e-3, diag={})
