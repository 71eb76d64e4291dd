from base import *

@case("https://github.com/yanx27/Pointnet_Pointnet2_pytorch/issues/30", "nll_loss on raw scores: log_softmax is missing", "labels_pred / nll_loss")
def pointnet_nll(planted):
    P = T(1, 5, 3, 3) * .8
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.mlp = nn.Sequential(nn.Conv1d(3, 32, 1), nn.BatchNorm1d(32), nn.ReLU(), nn.Conv1d(32, 64, 1), nn.BatchNorm1d(64), nn.ReLU(), nn.Conv1d(64, 128, 1), nn.BatchNorm1d(128)); s.fc1 = nn.Linear(128, 64); s.bn = nn.BatchNorm1d(64); s.fc2 = nn.Linear(64, 5)
        def forward(s, x):
            x = s.fc2(F.relu(s.bn(s.fc1(s.mlp(x).max(2)[0]))))
            return x if planted else F.log_softmax(x, -1)
    def data(seed):
        t = R(seed, 5, (32,)); return P[t] @ T(seed + 7, 32, 3, 64), t
    def metric(m): return sum(float(F.cross_entropy(m(data(9000 + k)[0]).detach(), data(9000 + k)[1])) for k in range(5)) / 5
    return dict(model=Net, data=data, loss=F.nll_loss, lr=3e-3, metric=metric, diag={})

@case("https://github.com/jamesli1618/Obj-GAN/issues/30", "NLLLoss is fed with softmax probabilities (loss is -P instead of -log P)", "label softmax in front of NLLLoss")
def objgan_box_label(planted):
    V = 16; A = torch.softmax(T(1, V, V) * 4, -1)
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.emb = nn.Embedding(V, 32); s.lstm = nn.LSTM(32, 48, batch_first=True); s.l_out = nn.Linear(48, V)
        def forward(s, x):
            y = s.l_out(s.lstm(s.emb(x))[0]); return F.softmax(y, -1) if planted else F.log_softmax(y, -1)
    def loss(o, t): return F.nll_loss(o.flatten(0, 1), t.flatten())
    def data(seed):
        g = gen(seed); x = [torch.randint(0, V, (32,), generator=g)]
        for _ in range(8): x.append(torch.multinomial(A[x[-1]], 1, generator=g)[:, 0])
        x = torch.stack(x, 1); return x[:, :-1], x[:, 1:]
    def metric(m):
        r = 0
        for k in range(4):
            x, t = data(9000 + k); o = m(x).detach(); o = o if float(o.max()) <= 0 else (o + 1e-9).log(); r += float(loss(o, t)) / 4
        return r
    return dict(model=Net, data=data, loss=loss, lr=1e-2, metric=metric, diag={})

@case("https://github.com/sagelywizard/pytorch-mdn/issues/6", "component densities are multiplied over the output dimension (torch.prod) and underflow", "mdn_loss torch.prod of gaussian probabilities")
def mdn_prod_underflow(planted):
    O, G = 31, 4; W = T(1, 6, O)
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.h = nn.Sequential(nn.Linear(6, 64), nn.Tanh()); s.pi = nn.Linear(64, G); s.sigma = nn.Linear(64, G * O); s.mu = nn.Linear(64, G * O)
        def forward(s, x):
            h = s.h(x); return F.softmax(s.pi(h), -1), torch.exp(s.sigma(h)).view(-1, G, O), s.mu(h).view(-1, G, O)
    def loss(o, t):
        pi, sigma, mu = o; t = t[:, None].expand_as(mu)
        lp = -.5 * ((t - mu) / sigma) ** 2 - sigma.log() - .5 * math.log(2 * math.pi)
        if planted: return -torch.log((pi * torch.prod(lp.exp(), 2)).sum(1)).mean()
        return -torch.logsumexp(pi.log() + lp.sum(2), 1).mean()
    def data(seed):
        x = T(seed, 32, 6); return x, x @ W + .3 * T(seed + 5, 32, O)
    return dict(model=Net, data=data, loss=loss, lr=3e-3, diag={})

@case("https://github.com/michaal94/torch_DCEC/issues/1", "KLDivLoss gets probabilities instead of log-probabilities", "torch.log missing in front of KLDivLoss")
def dcec_kldiv(planted):
    C = T(1, 5, 12) * 1.5
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.enc = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 6)); s.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(5, 6)))
        def forward(s, x):
            q = 1. / (1. + (s.enc(x)[:, None] - s.weight).pow(2).sum(-1)); return q / q.sum(1, keepdim=True)
    def loss(o, t): return F.kl_div(o if planted else torch.log(o), t, reduction="sum") / len(t)
    def data(seed):
        k = R(seed, 5, (48,)); return C[k] + .5 * T(seed + 7, 48, 12), F.one_hot(k, 5).float() * .35 + .13
    def metric(m): return sum(float(F.kl_div(m(data(9000 + k)[0]).detach().log(), data(9000 + k)[1], reduction="batchmean")) for k in range(4)) / 4
    return dict(model=Net, data=data, loss=loss, lr=1e-2, metric=metric, diag={})

@case("https://github.com/Holmeyoung/crnn-pytorch/issues/55", "CRNN is trained without the BatchNorm layers: stalls and returns the same letter", "missing BatchNorm in the conv stack")
def crnn_without_bn(planted):
    C = 10; P = T(1, C, 1, 16, 8)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); cnn = []; i = 1
            for k, (o, p) in enumerate([(16, (2, 2)), (32, (2, 2)), (48, None), (48, (2, 1)), (64, None), (64, (2, 1))]):
                cnn.append(nn.Conv2d(i, o, 3, padding=1)); i = o
                if not planted: cnn.append(nn.BatchNorm2d(o))
                cnn.append(nn.ReLU())
                if p: cnn.append(nn.MaxPool2d(p, p))
            s.cnn = nn.Sequential(*cnn); s.rnn = nn.LSTM(64, 32, bidirectional=True, batch_first=True); s.embedding = nn.Linear(64, C)
            for m in s.cnn:
                if isinstance(m, nn.Conv2d): m.weight.data.normal_(0, .02)
        def forward(s, x):
            y = s.cnn(x)[:, :, 0]; return s.embedding(s.rnn(y.transpose(1, 2))[0])
    def data(seed):
        t = R(seed, C, (12, 4)); x = torch.cat([P[t[:, i]] for i in range(4)], -1); return torch.sigmoid(x + .5 * T(seed + 7, 12, 1, 16, 32)), t.repeat_interleave(2, 1)
    return dict(model=Net, data=data, loss=ceseq, lr=3e-3, diag={})

@case("https://github.com/MorvanZhou/Reinforcement-learning-with-tensorflow/issues/107", "actor applies sigmoid on top of a tanh output", "sigmoid(tanh(.)) scaled_a")
def ddpg_actor_double_squash(planted):
    W = T(1, 10, 3)
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.l1 = nn.Linear(10, 100); s.a = nn.Linear(100, 3)
        def forward(s, x):
            a = s.a(F.relu(s.l1(x))); return torch.sigmoid(torch.tanh(a) if planted else a)
    def data(seed):
        x = T(seed, 32, 10); return x, (x @ W > 0).float()
    return dict(model=Net, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/NVIDIA/Megatron-LM/issues/894", "top-1 router: softmax is taken after topk over a single logit, the gate is constant 1", "router softmax after topk")
def megatron_top1_router(planted):
    C = T(1, 8, 16) * 1.5; W = T(2, 8, 16, 4)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.router = nn.Linear(16, 4, bias=False); s.experts = nn.ModuleList([nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 16)) for _ in range(4)]); s.out = nn.Linear(16, 4)
        def forward(s, x):
            logits = s.router(x)
            if planted: v, i = logits.topk(1, -1); p = F.softmax(v, -1)
            else: p, i = F.softmax(logits, -1).topk(1, -1)
            y = torch.stack([e(x) for e in s.experts], 1).gather(1, i[:, :, None].expand(-1, -1, 16))[:, 0]
            return s.out(x + p * y)
    def data(seed):
        k = R(seed, 8, (64,)); x = C[k] + T(seed + 7, 64, 16); return x, torch.einsum("bi,bio->bo", x - C[k], W[k]).argmax(-1)
    return dict(model=Net, data=data, loss=ce, lr=5e-3, diag={})

@case("https://github.com/xmu-xiaoma666/External-Attention-pytorch/issues/18", "SKAttention: softmax over dim=1 (batch) instead of dim=0 (kernels)", "SKAttention softmax dim")
def sk_attention(planted):
    P = T(1, 6, 8, 8, 8)
    class SK(nn.Module):
        def __init__(s, c, ks=(1, 3, 5)):
            super().__init__(); s.convs = nn.ModuleList([nn.Sequential(nn.Conv2d(c, c, k, padding=k // 2), nn.BatchNorm2d(c), nn.ReLU()) for k in ks]); s.fc = nn.Linear(c, 16); s.fcs = nn.ModuleList([nn.Linear(16, c) for _ in ks])
        def forward(s, x):
            feats = torch.stack([c(x) for c in s.convs], 0); S = feats.sum(0).mean((-1, -2)); Z = s.fc(S)
            w = torch.stack([f(Z)[:, :, None, None] for f in s.fcs], 0); w = F.softmax(w, 1 if planted else 0)
            return (w * feats).sum(0)
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.sk = SK(8); s.fc = nn.Linear(128, 6)
        def forward(s, x): return s.fc(F.adaptive_avg_pool2d(s.sk(x), 4).flatten(1))
    def data(seed):
        t = R(seed, 6, (24,)); return P[t] + 1.5 * T(seed + 7, 24, 8, 8, 8), t
    return dict(model=Net, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/keras-team/keras/issues/3687", "TimeDistributed(Dense(1)) output with relu: predictions are all zero", "output Dense activation relu")
def keras_rnn_relu_out(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.lstm1 = nn.LSTM(4, 48, batch_first=True); s.lstm2 = nn.LSTM(48, 24, batch_first=True); s.dense = nn.Linear(24, 1)
        def forward(s, x):
            y = s.dense(s.lstm2(s.lstm1(x)[0])[0]); return F.relu(y) if planted else y
    def data(seed):
        x = T(seed, 32, 12, 4); return x, torch.tanh(x[..., :1] + .5 * x[..., 1:2]) - .3
    return dict(model=Net, data=data, loss=mse, lr=5e-3, diag={})

@case("https://github.com/pytorch/pytorch/issues/6126", "LogSoftmax is used as the hidden activation of a hand-written RNN", "RNN.forward h = softmax(h2h + i2h)")
def char_rnn_logsoftmax_hidden(planted):
    V = 12
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.i2h = nn.Linear(V, 90); s.h2o = nn.Linear(90, V); s.h2h = nn.Linear(90, 90); s.softmax = nn.LogSoftmax(dim=1)
        def forward(s, x):
            x = F.one_hot(x, V).float(); h = x.new_zeros(x.shape[0], 90); out = []
            for k in range(x.shape[1]):
                h = s.h2h(h) + s.i2h(x[:, k]); h = s.softmax(h) if planted else torch.tanh(h); out.append(s.softmax(s.h2o(h)))
            return torch.stack(out, 1)
    def data(seed):
        x = R(seed, V, (32, 10)); t = x.roll(1, 1); t[:, 0] = 0; return x, t
    return dict(model=Net, data=data, loss=lambda o, t: F.nll_loss(o.flatten(0, 1), t.flatten()), lr=5e-3, diag={})

@case("https://github.com/BVLC/caffe/issues/2546", "no weight_filler: all weights start at the constant default 0", "conv / fc weights initialised to 0")
def caffe_default_filler(planted):
    P = T(1, 10, 1, 16, 16)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.conv1 = nn.Conv2d(1, 20, 5); s.conv2 = nn.Conv2d(20, 50, 3); s.ip1 = nn.Linear(200, 100); s.ip2 = nn.Linear(100, 10)
            for m in (s.conv1, s.conv2, s.ip1, s.ip2):
                nn.init.zeros_(m.bias)
                if planted: nn.init.zeros_(m.weight)
                else: nn.init.xavier_uniform_(m.weight)
        def forward(s, x):
            x = F.max_pool2d(s.conv1(x), 2); x = F.max_pool2d(s.conv2(x), 2).flatten(1); return s.ip2(F.relu(s.ip1(x)))
    def data(seed):
        t = R(seed, 10, (32,)); return torch.sigmoid(P[t] + T(seed + 7, 32, 1, 16, 16)), t
    return dict(model=Net, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/InhwanBae/GPGraph/issues/2", "hand-written sigmoid 1/(1+exp((d-th)/tau)) overflows, gradient is nan", "sig = 1 / (1 + ((dist_mat - th) / tau).exp())")
def gpgraph_sigmoid(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.feat = nn.Linear(4, 16); s.th = nn.Parameter(torch.tensor(1.)); s.tau = .03; s.gcn = nn.Linear(16, 32); s.out = nn.Linear(32, 2)
        def forward(s, x):
            f = s.feat(x); dist_mat = (f[:, :, None] - f[:, None]).norm(dim=-1)
            sig = 1 / (1 + ((dist_mat - s.th) / s.tau).exp()) if planted else torch.sigmoid(-(dist_mat - s.th) / s.tau)
            A = sig / sig.sum(-1, keepdim=True); return s.out(F.relu(s.gcn(A @ f)) )
    def data(seed):
        x = T(seed, 24, 8, 4) * 2; return x, torch.tanh(x[..., :2] + .5 * x[..., 2:])
    return dict(model=Net, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/magenta/magenta/pull/925", "imagenet images are divided by 255 twice before they go into the network", "image_utils /255")
def magenta_imagenet_norm(planted):
    P = F.interpolate(T(1, 6, 3, 4, 4), size=16, mode="bilinear")
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.c1 = nn.Conv2d(3, 16, 3, stride=2, padding=1); s.c2 = nn.Conv2d(16, 32, 3, stride=2, padding=1); s.u1 = nn.Conv2d(32, 16, 3, padding=1); s.u2 = nn.Conv2d(16, 3, 3, padding=1)
        def forward(s, x):
            x = x / 255.
            if planted: x = x / 255.
            h = F.relu(s.c2(F.relu(s.c1(x)))); h = F.relu(s.u1(F.interpolate(h, scale_factor=2))); return s.u2(F.interpolate(h, scale_factor=2))
    def data(seed):
        t = R(seed, 6, (16,)); x = torch.sigmoid(2 * P[t] + .5 * T(seed + 7, 16, 3, 16, 16)); return (x * 255).round(), F.avg_pool2d(x, 3, 1, 1)
    return dict(model=Net, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/pytorch/pytorch/pull/12968", "LayerNorm with normalized dim 1: output is constant and gradient zero", "LayerNorm(1)")
def layernorm_dim_one(planted):
    w = T(1, 10)
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.fc1 = nn.Linear(10, 32); s.ln1 = nn.LayerNorm(32); s.fc2 = nn.Linear(32, 1); s.ln2 = nn.LayerNorm(1) if planted else nn.Identity()
        def forward(s, x): return s.ln2(s.fc2(F.relu(s.ln1(s.fc1(x)))))
    def data(seed):
        x = T(seed, 48, 10); return x, (x @ w > 0).float()[:, None]
    return dict(model=Net, data=data, loss=F.binary_cross_entropy_with_logits, lr=5e-3, diag={})
