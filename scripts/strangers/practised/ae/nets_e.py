from base import *
@case("https://github.com/Sierkinhane/CRNN_Chinese_Characters_Rec/issues/312", "CTCLoss gets raw logits: no log_softmax at the end of forward, the loss turns negative", "missing log_softmax before CTCLoss")
def crnn_ctc_logits(planted):
    V = 6
    class CRNN(nn.Module):
        def __init__(s): super().__init__(); s.cnn = nn.Sequential(nn.Conv1d(10, 32, 5, padding=2, bias=False), nn.BatchNorm1d(32), nn.ReLU()); s.rnn = nn.GRU(32, 32, bidirectional=True, batch_first=True); s.embedding = nn.Linear(64, V)
        def forward(s, x): x = s.embedding(s.rnn(s.cnn(x.transpose(1, 2)).transpose(1, 2))[0]).transpose(0, 1); return x if planted else x.log_softmax(dim=2)
    P = T(1, V, 10)
    def data(seed):
        y = R(seed, V - 1, (16, 5)) + 1; x = T(seed, 16, 24, 10) * .3
        for k in range(5): x[:, 4 * k + 2:4 * k + 5] += P[y[:, k]][:, None]
        return x, y
    def loss(o, t): return F.ctc_loss(o, t, torch.full((16,), 24), torch.full((16,), 5), blank=0)
    def metric(m):
        x, t = data(9000)
        with torch.no_grad(): return float(loss(m(x).log_softmax(2), t))
    return dict(model=CRNN, data=data, loss=loss, lr=3e-3, diag={}, metric=metric)
@case("https://github.com/XifengGuo/CapsNet-Keras/issues/43", "stacked capsule layers with far too small initial transformation matrices", "initialisation of W in CapsuleLayer")
def capsnet_small_W(planted):
    def squash(v): n = (v ** 2).sum(-1, keepdim=True); return n / (1 + n) / torch.sqrt(n + 1e-7) * v
    class CapsuleLayer(nn.Module):
        def __init__(s, ni, di, no, do):
            super().__init__(); s.W = nn.Parameter(torch.empty(no, ni, do, di))
            if planted: nn.init.uniform_(s.W, -.01, .01)
            else: nn.init.uniform_(s.W, -1, 1)
        def forward(s, x):
            u = torch.einsum("oihd,bid->boih", s.W, x); b = torch.zeros(u.shape[:3])
            for r in range(3):
                c = F.softmax(b, 1); v = squash((c[..., None] * u).sum(2))
                if r < 2: b = b + (u * v[:, :, None]).sum(-1)
            return v
    class CapsNet(nn.Module):
        def __init__(s): super().__init__(); s.conv1 = nn.Conv2d(1, 16, 5); s.primary = nn.Conv2d(16, 32, 5, stride=2); s.digit2 = CapsuleLayer(36, 8, 10, 16); s.digit = CapsuleLayer(10, 16, 5, 16)
        def forward(s, x): p = s.primary(F.relu(s.conv1(x))); p = squash(p.view(len(x), 4, 8, -1).permute(0, 1, 3, 2).flatten(1, 2)); return torch.sqrt((s.digit(s.digit2(p)) ** 2).sum(-1) + 1e-7)
    P = T(2, 5, 1, 13, 13)
    def data(seed): t = R(seed, 5, (32,)); return P[t] + .5 * T(seed, 32, 1, 13, 13), t
    def loss(o, t): y = F.one_hot(t, 5).float(); return (y * F.relu(.9 - o) ** 2 + .5 * (1 - y) * F.relu(o - .1) ** 2).sum(1).mean()
    return dict(model=CapsNet, data=data, loss=loss, lr=1e-3, diag={})
@case("https://github.com/LeiBAI/AGCRN/issues/12", "weight pool created by torch.FloatTensor and never initialised: memory garbage as weights", "weights_pool of AVWGCN")
def agcrn_uninitialised(planted):
    N, D = 12, 4
    class AVWGCN(nn.Module):
        def __init__(s, i, o):
            super().__init__(); s.weights_pool = nn.Parameter(torch.FloatTensor(D, 2, i, o)); s.bias_pool = nn.Parameter(torch.FloatTensor(D, o))
            if planted:
                with torch.no_grad():
                    for p in (s.weights_pool, s.bias_pool): p.zero_(); p.view(-1)[::7] = 4.5895e-41; p.view(-1)[3::29] = -1.6775e31
            else: nn.init.xavier_uniform_(s.weights_pool); nn.init.uniform_(s.bias_pool)
        def forward(s, x, E):
            A = F.softmax(F.relu(E @ E.T), 1); S = torch.stack([torch.eye(N), A]); W = torch.einsum("nd,dkio->nkio", E, s.weights_pool); return torch.einsum("bnki,nkio->bno", torch.einsum("knm,bmc->bnkc", S, x), W) + E @ s.bias_pool
    class AGCRN(nn.Module):
        def __init__(s, h=16): super().__init__(); s.node_embeddings = nn.Parameter(torch.randn(N, D)); s.gate, s.update = AVWGCN(1 + h, 2 * h), AVWGCN(1 + h, h); s.end_conv = nn.Linear(h, 1); s.h = h
        def forward(s, x):
            st = x.new_zeros(len(x), N, s.h)
            for t in range(x.shape[1]):
                z, r = torch.sigmoid(s.gate(torch.cat([x[:, t], st], -1), s.node_embeddings)).chunk(2, -1); hc = torch.tanh(s.update(torch.cat([x[:, t], z * st], -1), s.node_embeddings)); st = r * st + (1 - r) * hc
            return s.end_conv(st)[..., 0]
    W = torch.softmax(T(1, N, N) * 1.5, 1)
    def data(seed): x = torch.sin(torch.rand(16, 1, N, generator=gen(seed)) * 6 + torch.arange(7.)[None, :, None] * .6) + .1 * T(seed, 16, 7, N); return x[:, :6, :, None], .5 * x[:, 6] + .5 * x[:, 5] @ W.T
    return dict(model=AGCRN, data=data, loss=lambda o, t: F.l1_loss(o, t), lr=5e-3, diag={})
