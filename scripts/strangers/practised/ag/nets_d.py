from base import *

@case("https://github.com/tensorflow/tensorflow/issues/59944", "raw ratings 0.5..5 as targets of a dot product of l2-normalised vectors (range [-1,1])", "output range of dot / unscaled targets")
def movie_recommender_cosine(planted):
    def tower(i): return nn.Sequential(nn.Linear(i, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 32))
    class Recommender(nn.Module):
        def __init__(self):
            super().__init__(); self.embedding = nn.Embedding(60, 32); nn.init.uniform_(self.embedding.weight, -.05, .05)
            self.user_NN = tower(32); self.item_NN = tower(21)
        def forward(self, u, m):
            vu = F.normalize(self.user_NN(self.embedding(u)), dim=-1); vm = F.normalize(self.item_NN(m), dim=-1)
            return (vu * vm).sum(-1)
    U = F.normalize(T(3, 60, 21), dim=1) ; W = (T(4, 60) * .3)
    def data(seed):
        u = R(seed, 60, (64,)); m = (torch.rand(64, 21, generator=gen(seed + 1)) < .3).float()
        m[:, 0] = torch.rand(64, generator=gen(seed + 2))
        r = (3 + 1.2 * torch.tanh(2 * (m @ U.mean(0) * 2 + W[u] * 3)) + .8 * torch.tanh((m[:, 1:6].sum(1) - 1.5))).clamp(.5, 5)
        return (u, m), r if planted else (r - 2.75) / 2.25
    return dict(model=Recommender, data=data, loss=mse, lr=1e-3, diag={})

@case("https://getcodesolution.com/python/why-are-neural-networks-not-learning/", "categorical_crossentropy with a single output unit: loss and gradient are zero", "loss categorical_crossentropy on Dense(1)")
def cce_single_unit(planted):
    Net = lambda: nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())
    w = T(2, 12)
    def data(seed): x = T(seed, 32, 12); return x, ((x @ w + .5 * x[:, 0] * x[:, 1]) > 0).float()[:, None]
    def cce(o, t):
        o = (o / o.sum(-1, keepdim=True)).clamp(1e-7, 1 - 1e-7)
        return -(t * o.log()).sum(-1).mean()
    return dict(model=Net, data=data, loss=cce if planted else mse, lr=5e-3, diag={}, metric=lambda m: sum(float(mse(m(data(9000 + k)[0]), data(9000 + k)[1]).detach()) for k in range(5)) / 5)

@case("https://github.com/keras-team/keras/issues/6259", "images of range 0..255 (mean-subtracted only) into a glorot-initialised network: initial loss 14 instead of 2.3", "data: input scale")
def keras_cifar_unscaled(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.c = nn.ModuleList([nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1), nn.Conv2d(32, 32, 3, padding=1)])
            self.fc1 = nn.Linear(32 * 16, 64); self.fc2 = nn.Linear(64, 10)
            for m in [*self.c, self.fc1, self.fc2]: nn.init.xavier_uniform_(m.weight); nn.init.zeros_(m.bias)
        def forward(self, x):
            if not planted: x = x / 128
            for i, c in enumerate(self.c):
                x = F.relu(c(x))
                if i % 2: x = F.max_pool2d(x, 2)
            return self.fc2(F.relu(self.fc1(x.flatten(1))))
    P = T(1, 10, 3, 4, 4)
    def data(seed):
        y = R(seed, 10, (32,)); x = F.interpolate(P[y], scale_factor=4) * 35 + T(seed + 1, 32, 3, 16, 16) * 45
        return x.clamp(-128, 127), y
    return dict(model=Net, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/keras-team/keras/issues/12805", "weights set by np.random.rand (all positive) and pixels 0..255: softmax saturated, weights do not move", "initial weights uniform [0,1] / inputs 0..255")
def keras_rand_weights(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.conv = nn.Conv2d(3, 2, 3, bias=False); self.dense = nn.Linear(18, 10, bias=False)
            for p in self.parameters(): nn.init.uniform_(p, 0, 1) if planted else nn.init.xavier_uniform_(p)
        def forward(self, x): return self.dense(self.conv(x).flatten(1)).softmax(-1)
    P = T(1, 10, 3, 5, 5)
    def data(seed):
        y = R(seed, 10, (32,)); x = (P[y] * 60 + 125 + T(seed + 1, 32, 3, 5, 5) * 20).clamp(0, 255).round()
        return x if planted else x / 255, y
    def cce(o, t): return -o.clamp(1e-7, 1 - 1e-7).log().gather(1, t[:, None]).mean()
    return dict(model=Net, data=data, loss=cce, lr=2e-2, diag={})

@case("https://github.com/keras-team/keras/issues/1917", "kld loss on ReLU heat maps that are no distribution (softmax removed, labels 0..1): loss becomes negative", "loss kld without softmax")
def keras_kld_saliency(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.base = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU())
            self.conv5 = nn.Conv2d(32, 32, 7, padding=3); self.conv6 = nn.Conv2d(32, 8, 7, padding=3); self.conv7 = nn.Conv2d(8, 1, 7, padding=3)
        def forward(self, x):
            x = self.conv7(F.relu(self.conv6(F.relu(self.conv5(self.base(x)))))).flatten(1)
            return F.relu(x) if planted else x.softmax(-1)
    yy, xx = torch.meshgrid(torch.arange(10.), torch.arange(10.), indexing="ij")
    def data(seed):
        c = torch.rand(16, 2, generator=gen(seed)) * 6 + 2
        heat = torch.exp(-((yy - c[:, 0, None, None]) ** 2 + (xx - c[:, 1, None, None]) ** 2) / 4)
        x = (F.interpolate(heat[:, None], scale_factor=2) * .7 + torch.rand(16, 3, 20, 20, generator=gen(seed + 1)) * .3)
        t = heat.flatten(1); return x, t if planted else t / t.sum(1, keepdim=True)
    def kld(o, t): t = t.clamp(1e-7, 1); o = o.clamp(1e-7, 1); return (t * (t / o).log()).sum(-1).mean()
    def metric(m):
        with torch.no_grad():
            e = 0
            for k in range(5):
                x, t = data(9000 + k); o = m(x).clamp(1e-7, 1); e += float(kld(o / o.sum(1, keepdim=True), t / t.sum(1, keepdim=True))) / 5
        return e
    return dict(model=Net, data=data, loss=kld, lr=2e-3, diag={}, metric=metric)

@case("https://github.com/hitachi-speech/EEND/issues/31", "sigmoid added to the model although the (PIT) loss applies sigmoid itself", "sigmoid on the output")
def eend_double_sigmoid(planted):
    class TransformerDiarization(nn.Module):
        def __init__(self):
            super().__init__(); self.linear_in = nn.Linear(20, 32); self.lnorm_in = nn.LayerNorm(32)
            self.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, dropout=.1, batch_first=True), 2); self.linear = nn.Linear(32, 2)
        def forward(self, x):
            h = self.linear(self.enc(self.lnorm_in(self.linear_in(x))))
            return torch.sigmoid(h) if planted else h
    S = T(5, 2, 20)
    def data(seed):
        t = (torch.rand(16, 10, 2, generator=gen(seed)) < .25).float().repeat_interleave(4, 1)
        return t @ S + T(seed + 1, 16, 40, 20, k=.6), t
    def pit_loss(o, t):
        l = torch.stack([F.binary_cross_entropy_with_logits(o, p, reduction="none").mean((1, 2)) for p in (t, t.flip(-1))])
        return l.min(0).values.mean()
    return dict(model=TransformerDiarization, data=data, loss=pit_loss, lr=1e-3, diag={})

@case("https://github.com/ultmaster/neuralpredictor.pytorch/issues/1", "18 graph convolution layers without shortcuts: output constant near zero", "gcn (depth)")
def neural_predictor_18_layers(planted):
    class DirectedGraphConvolution(nn.Module):
        def __init__(self, i, o):
            super().__init__(); self.weight1 = nn.Parameter(torch.zeros(i, o)); self.weight2 = nn.Parameter(torch.zeros(i, o)); self.dropout = nn.Dropout(.1)
            nn.init.xavier_uniform_(self.weight1); nn.init.xavier_uniform_(self.weight2)
        def forward(self, x, adj):
            norm = lambda a: F.normalize(a + torch.eye(a.size(1)), p=1, dim=2)
            o1 = F.relu(norm(adj) @ (x @ self.weight1)); o2 = F.relu(norm(adj.transpose(1, 2)) @ (x @ self.weight2))
            return self.dropout((o1 + o2) / 2)
    class NeuralPredictor(nn.Module):
        def __init__(self):
            super().__init__(); n = 18 if planted else 3
            self.gcn = nn.ModuleList(DirectedGraphConvolution(5 if i == 0 else 48, 48) for i in range(n))
            self.fc1 = nn.Linear(48, 32, bias=False); self.dropout = nn.Dropout(.1); self.fc2 = nn.Linear(32, 1, bias=False)
        def forward(self, ops, adj):
            for l in self.gcn: ops = l(ops, adj)
            return self.fc2(self.dropout(self.fc1(ops.mean(1)))).view(-1)
    w = torch.tensor([.0, 1.2, .4, -1.2, .0])
    def data(seed):
        op = R(seed, 3, (32, 7)) + 1; op[:, 0] = 0; op[:, -1] = 4; x = F.one_hot(op, 5).float()
        adj = torch.triu((torch.rand(32, 7, 7, generator=gen(seed + 1)) < .5).float(), 1); adj[:, range(6), range(1, 7)] = 1
        y = (x @ w).mean(1) * 3 + (adj.sum((1, 2)) - 13) * .2
        return (x, adj), (y - .3) / 1.3
    return dict(model=NeuralPredictor, data=data, loss=mse, lr=3e-3, diag={})

@case("https://discuss.pytorch.org/t/loss-function-finding-extreme-local-minimum/188664", "loss = summed squared error - 100 * std(prediction): the std reward outweighs the error", "loss: - std * phi")
def std_reward_loss(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.emb = nn.Embedding(20, 32); self.gru = nn.GRU(32, 48, batch_first=True); self.out = nn.Linear(48, 24)
        def forward(self, x): return torch.sigmoid(self.out(self.gru(self.emb(x))[1][-1]))
    P = (torch.rand(20, 24, generator=gen(3)) < .12).float() * torch.rand(20, 24, generator=gen(4))
    def data(seed):
        x = R(seed, 20, (32, 8)); return x, (P[x[:, -1]] + P[x[:, -2]]).clamp(0, 1)
    def my_loss(y_pred, y, phi=100): return torch.sum(torch.square(y - y_pred)) - torch.std(y_pred) * phi
    return dict(model=Net, data=data, loss=my_loss if planted else nn.MSELoss(reduction="sum"), lr=5e-3, diag={})

@case("https://whosebug.com/question/6205875/Why-some-of-the-hidden-units-return-zero-in-the-GRU-autoencoder", "GRU autoencoder with relu as GRU activation: hidden units of the bottleneck stay zero", "E2 activation relu")
def gru_ae_relu(planted):
    class GRU(nn.Module):
        def __init__(self, i, h, seq):
            super().__init__(); self.h, self.seq = h, seq; self.kernel = nn.Linear(i, 3 * h); self.recurrent = nn.Linear(h, 3 * h)
            nn.init.xavier_uniform_(self.kernel.weight); nn.init.orthogonal_(self.recurrent.weight); nn.init.zeros_(self.kernel.bias); nn.init.zeros_(self.recurrent.bias)
        def forward(self, x):
            h = x.new_zeros(len(x), self.h); out = []
            for k in range(x.size(1)):
                xz, xr, xh = self.kernel(x[:, k]).chunk(3, -1); hz, hr, hh = self.recurrent(h).chunk(3, -1)
                z, r = torch.sigmoid(xz + hz), torch.sigmoid(xr + hr); c = xh + r * hh
                h = z * h + (1 - z) * (F.relu(c) if planted else torch.tanh(c)); out.append(h)
            return torch.stack(out, 1) if self.seq else h
    class AE(nn.Module):
        def __init__(self):
            super().__init__(); self.E1 = GRU(6, 8, True); self.E2 = GRU(8, 4, False); self.D1 = GRU(4, 4, True); self.D2 = GRU(4, 8, True); self.output = nn.Linear(8, 6)
        def forward(self, x):
            h = self.E2(self.E1(x)); h = h[:, None].expand(-1, x.size(1), -1)
            return self.output(self.D2(self.D1(h)))
    A = T(6, 2, 6)
    def data(seed):
        z = T(seed, 64, 1, 2); x = torch.tanh(z @ A).expand(64, 8, 6) + T(seed + 1, 64, 8, 6, k=.05); return x, x
    return dict(model=AE, data=data, loss=mse, lr=1e-2, diag={})
