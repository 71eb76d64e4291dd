from base import *

@case("https://github.com/Lightning-AI/pytorch-lightning/issues/4862", "ReLU on the class scores before cross_entropy", "relu after l1 (output)")
def lightning_relu_scores(planted):
    class MNISTModel(nn.Module):
        def __init__(self):
            super().__init__(); self.l1 = nn.Linear(28 * 28, 10)
        def forward(self, x):
            x = self.l1(x.view(x.size(0), -1))
            return torch.relu(x) if planted else x
    P = (T(1, 10, 1, 28, 28) > 1.2).float(); P[:, :, 6:22, 6:22] += .8
    def data(seed):
        y = R(seed, 10, (32,)); x = (P[y] * .9 + T(seed + 7, 32, 1, 28, 28, k=.3)).clamp(0, 1); return x, y
    return dict(model=MNISTModel, data=data, loss=ce, lr=2e-2, diag={})

@case("https://github.com/tensorflow/tensorflow/issues/47586", "per-row normalisation of [token, 0, 0, ...] makes every input identical", "data: normalised inputs")
def keras_row_normalised_text(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.emb = nn.Embedding(24, 32); self.pos = nn.Embedding(10, 32)
            self.att = nn.TransformerEncoderLayer(32, 2, 32, dropout=.1, batch_first=True)
            self.dense = nn.Linear(320, 20); self.out = nn.Linear(20, 24)
        def forward(self, x):
            h = self.emb(x.long()) + self.pos.weight
            return self.out(F.relu(self.dense(self.att(h).flatten(1))))
    def data(seed):
        c = R(seed, 20, (32,)) + 1
        x = torch.zeros(32, 10); x[:, 0] = c.float()
        if planted: x = F.normalize(x, dim=1)
        return x, (c + 3) % 24
    return dict(model=Net, data=data, loss=ce, lr=3e-3, diag={})

@case("https://forums.fast.ai/t/trouble-with-a-simple-cross-recognizer/58206", "mse of y_hat [N] against expected_y [N,1] broadcasts to [N,N]", "loss: shapes [N] and [N,1]")
def fastai_cross_recognizer(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.layer1 = nn.Parameter(torch.rand(10) - .5); self.sig = nn.Sigmoid()
        def forward(self, x):
            y_hat = torch.cat((x.reshape(-1, 9), torch.ones(len(x), 1)), 1) @ self.layer1
            return self.sig(y_hat)
    cross = torch.tensor([[1., 0, 1], [0, 1, 0], [1, 0, 1]])
    def data(seed):
        y = (torch.rand(32, generator=gen(seed)) < .33).float()
        x = torch.rand(32, 3, 3, generator=gen(seed + 5)); x = torch.where(y[:, None, None] > 0, cross, x)
        return x, y[:, None] if planted else y
    def mse_(y_hat, y): return ((y_hat - y) ** 2).mean()
    return dict(model=Net, data=data, loss=mse_, lr=5e-2, diag={})

@case("https://github.com/pytorch/pytorch/issues/1939", "BCE with logits of output [64,1] and target [64] broadcasts to [64,64]", "loss: shapes [N,1] and [N]")
def bce_logits_singleton(planted):
    def bcewl(input, target):
        max_val = (-input).clamp(min=0)
        return (input - input * target + max_val + ((-max_val).exp() + (-input - max_val).exp()).log()).mean()
    Net = lambda: nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
    w = T(2, 20)
    def data(seed): x = T(seed, 64, 20); return x, ((x @ w) > 0).float()
    return dict(model=Net, data=data, loss=(lambda o, t: bcewl(o, t)) if planted else (lambda o, t: bcewl(o.squeeze(1), t)), lr=2e-3, diag={})

@case("https://whosebug.com/question/4955529/Why-is-very-simple-PyTorch-LSTM-model-not-learning", "LSTM output (bounded by tanh to (-1,1)) used directly for targets in [-2,2]", "lstm output without linear layer")
def lstm_doubles(planted):
    class MyLSTM(nn.Module):
        def __init__(self, input_size=5):
            super().__init__()
            self.lstm = nn.LSTM(input_size, input_size if planted else 32, num_layers=2)
            if not planted: self.fc = nn.Linear(32, input_size)
        def forward(self, x):
            y, _ = self.lstm(x)
            return y if planted else self.fc(y)
    def data(seed): x = torch.rand(1, 32, 5, generator=gen(seed)) * 2 - 1; return x, x * 2
    return dict(model=MyLSTM, data=data, loss=mse, lr=1e-2, diag={})

@case("https://github.com/MIC-DKFZ/medicaldetectiontoolkit/issues/42", "normalisation layer after the final convolution: segmentation logits are instance-normalised", "final_conv norm")
def retina_unet_norm_logits(planted):
    def conv(i, o, ks=3, norm=True, relu=True):
        m = [nn.Conv2d(i, o, ks, padding=ks // 2)]
        if norm: m.append(nn.InstanceNorm2d(o))
        if relu: m.append(nn.ReLU())
        return nn.Sequential(*m)
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.C1 = conv(1, 12); self.C2 = nn.Sequential(nn.MaxPool2d(2), conv(12, 24)); self.C3 = nn.Sequential(nn.MaxPool2d(2), conv(24, 24))
            self.P2 = conv(24, 24); self.P1 = conv(24, 12); self.P0 = conv(24, 12)
            self.final_conv = conv(12, 2, ks=1, norm=planted, relu=False)
        def forward(self, x):
            c1 = self.C1(x); c2 = self.C2(c1); c3 = self.C3(c2)
            p2 = self.P2(c2 + F.interpolate(c3, scale_factor=2)); p1 = self.P1(F.interpolate(p2, scale_factor=2))
            return self.final_conv(self.P0(torch.cat([c1, p1], 1)))
    def data(seed):
        g = gen(seed); x = torch.randn(16, 1, 24, 24, generator=g) * .5; t = torch.zeros(16, 24, 24, dtype=torch.long)
        c = torch.randint(4, 20, (16, 2), generator=g)
        for i in range(16): a, b = c[i]; t[i, a - 2:a + 3, b - 2:b + 3] = 1
        return x + 2.5 * t[:, None], t
    return dict(model=Net, data=data, loss=ce, lr=5e-3, diag={})

def keras_cce(o, t):
    o = o / o.sum(-1, keepdim=True)
    return -(t * o.clamp(1e-7, 1 - 1e-7).log()).sum(-1).mean()

@case("https://github.com/bonlime/keras-deeplab-v3-plus/issues/79", "categorical_crossentropy on linear outputs: activation (softmax) missing at the end", "output activation missing")
def deeplab_no_activation(planted):
    class Deeplab(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU())
            self.b1 = nn.Sequential(nn.Conv2d(16, 16, 1), nn.BatchNorm2d(16), nn.ReLU())
            self.b2 = nn.Sequential(nn.Conv2d(16, 16, 3, padding=2, dilation=2), nn.BatchNorm2d(16), nn.ReLU())
            self.project = nn.Sequential(nn.Conv2d(32, 32, 1), nn.BatchNorm2d(32), nn.ReLU()); self.logits = nn.Conv2d(32, 6, 1)
        def forward(self, x):
            h = self.stem(x); h = self.project(torch.cat([self.b1(h), self.b2(h)], 1))
            h = F.interpolate(self.logits(h), size=x.shape[2:], mode="bilinear", align_corners=False).permute(0, 2, 3, 1)
            return h if planted else h.softmax(-1)
    C = T(4, 6, 3)
    def data(seed):
        t = R(seed, 6, (16, 4, 4)).repeat_interleave(4, 1).repeat_interleave(4, 2)
        return C[t].permute(0, 3, 1, 2) + T(seed + 1, 16, 3, 16, 16, k=.3), F.one_hot(t, 6).float()
    return dict(model=Deeplab, data=data, loss=lambda o, t: keras_cce(o, t), lr=5e-3, diag={})

@case("https://github.com/lululxvi/deepxde/issues/321", "collocation points from [-300,300]: the PINN falls into the trivial solution", "data: domain scale")
def deepxde_trivial_solution(planted):
    class FNN(nn.Module):
        def __init__(self):
            super().__init__(); L = [1, 50, 50, 50, 1]
            self.linears = nn.ModuleList(nn.Linear(a, b) for a, b in zip(L, L[1:]))
            for l in self.linears: nn.init.xavier_uniform_(l.weight); nn.init.zeros_(l.bias)
        def net(self, x):
            for l in self.linears[:-1]: x = torch.tanh(l(x))
            return self.linears[-1](x)
        def forward(self, x):
            with torch.enable_grad():
                x = x.clone().requires_grad_(True); y = self.net(x)
                dy = torch.autograd.grad(y.sum(), x, create_graph=True)[0]; ddy = torch.autograd.grad(dy.sum(), x, create_graph=True)[0]
            return torch.cat([y, dy, y + .5 * ddy], 1)
    def data(seed):
        u = torch.rand(64, 1, generator=gen(seed)); x = u * 600 - 300 if planted else u * 3 - 1.5
        bc = torch.zeros(64, 1); bc[:8] = 1; x = torch.where(bc > 0, torch.zeros_like(x), x)
        return x, bc
    def loss(o, bc):
        return (o[:, 2:] ** 2 * (1 - bc)).sum() / (1 - bc).sum() + (((o[:, :1] - 1) ** 2 + o[:, 1:2] ** 2) * bc).sum() / bc.sum()
    xs = torch.linspace(-1.5, 1.5, 61)[:, None]
    return dict(model=FNN, data=data, loss=loss, lr=5e-3, diag={}, metric=lambda m: float(((m.net(xs) - torch.cos(2 ** .5 * xs)) ** 2).mean()))

@case("https://github.com/lucidrains/muse-maskgit-pytorch/issues/11", "the unmasked ids instead of the masked x go to the transformer", "transformer(ids) instead of transformer(x)")
def maskgit_ids_not_x(planted):
    V, N = 16, 12
    class MaskGit(nn.Module):
        def __init__(self):
            super().__init__(); self.token_emb = nn.Embedding(V + 1, 32); self.pos_emb = nn.Embedding(N, 32)
            self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, dropout=0., batch_first=True, norm_first=True), 2)
            self.norm = nn.LayerNorm(32); self.to_logits = nn.Linear(32, V)
        def transformer(self, x): return self.to_logits(self.norm(self.layers(self.token_emb(x) + self.pos_emb.weight)))
        def forward(self, ids, mask):
            x = ids.masked_fill(mask, V)
            return self.transformer(ids if planted else x)
    def data(seed):
        c = R(seed, V, (32, 1)).expand(32, N); noise = R(seed + 1, V, (32, N)); g = gen(seed + 2)
        ids = torch.where(torch.rand(32, N, generator=g) < .85, c, noise); mask = torch.rand(32, N, generator=g) < .6
        return (ids, mask), ids.masked_fill(~mask, -1)
    def loss(o, t): return F.cross_entropy(o.flatten(0, -2), t.flatten(), ignore_index=-1)
    def metric(m):
        with torch.no_grad():
            e = 0
            for k in range(5): (ids, mask), t = data(9000 + k); e += float(loss(m(ids.masked_fill(mask, V), mask), t)) / 5
        return e
    return dict(model=MaskGit, data=data, loss=loss, lr=3e-3, diag={}, metric=metric)
