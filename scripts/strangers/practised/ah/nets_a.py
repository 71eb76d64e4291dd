from base import *

@case("https://geek-questions.imtqy.com/articles/1667900/index.html", "inputs and row-sum targets (up to 9000) not scaled to [0,1] for an RNN with sigmoid units/output: always predicts 1", "data: unnormalised x and y; sigmoid output")
def rnn_always_one(planted):
    class Trainr(nn.Module):
        def __init__(self, hidden_dim=10):
            super().__init__(); self.h = hidden_dim
            self.synapse_0 = nn.Linear(5, hidden_dim); self.synapse_h = nn.Linear(hidden_dim, hidden_dim, bias=False); self.synapse_1 = nn.Linear(hidden_dim, 1)
        def forward(self, X):
            h = X.new_zeros(X.size(0), self.h); out = []
            for t in range(X.size(1)):
                h = torch.sigmoid(self.synapse_0(X[:, t]) + self.synapse_h(h)); out.append(torch.sigmoid(self.synapse_1(h)))
            return torch.stack(out, 1)
    def data(seed):
        M = torch.rand(32, 1, 5, generator=gen(seed)) * 900 + R(seed + 1, 900, (32, 1, 1)).float(); Y = M.sum(-1, keepdim=True)
        return (M, Y) if planted else (M / 1800, Y / 9000)
    return dict(model=Trainr, data=data, loss=mse, lr=3e-2, diag={})

@case("https://wiki.hoelee.com/content/stats.stackexchange.com_en_all_2022-05/questions/329619/learning-a-simple-sequence-with-rnn-keras", "series reshaped to (n,1,1): every sample is a sequence of one step, y=x[t-2] is out of reach", "data: reshape to one time step")
def rnn_one_step(planted):
    class Model(nn.Module):
        def __init__(self, units=16):
            super().__init__(); self.rnn = nn.RNN(1, units, batch_first=True); self.dense = nn.Linear(units, 1)
        def forward(self, x): return self.dense(self.rnn(x)[0])
    def data(seed):
        z = (R(seed, 100, (16, 22)).float() - 49.5) / 28.9; x, y = z[:, 2:, None], z[:, :-2, None]
        return (x.reshape(-1, 1, 1), y.reshape(-1, 1, 1)) if planted else (x, y)
    return dict(model=Model, data=data, loss=mse, lr=1e-2, diag={})

@case("https://datascience.stackexchange.com/q/10529", "binary_crossentropy on raw MIDI features (pitch 69 ...): loss runs to large negative values", "loss: binary cross-entropy with targets outside [0,1]")
def midi_bce(planted):
    class Music(nn.Module):
        def __init__(self):
            super().__init__(); self.lstm1 = nn.LSTM(4, 32, batch_first=True); self.lstm2 = nn.LSTM(32, 32, batch_first=True); self.dense = nn.Linear(32, 4)
        def forward(self, x): return self.dense(self.lstm2(self.lstm1(x)[0])[0])
    scale, mean = torch.tensor([8., 4., .5, .3]), torch.tensor([64., 0., .5, .75]); A = T(5, 4, 4) * .5
    def data(seed):
        z = [T(seed, 16, 4)]
        for k in range(10): z.append(torch.tanh(z[-1] @ A) * 1.4 + .15 * T(seed * 31 + k, 16, 4))
        z = torch.stack(z, 1); z = z * scale + mean if planted else z
        return z[:, :-1], z[:, 1:]
    def loss(o, t):
        if not planted: return F.mse_loss(o, t)
        p = o.clamp(1e-7, 1 - 1e-7); return -(t * p.log() + (1 - t) * (1 - p).log()).mean()
    return dict(model=Music, data=data, loss=loss, lr=5e-3, diag={})

@case("https://github.com/sktime/pytorch-forecasting/pull/2393", "encoder window normalised per series, decoder target y left on the raw scale", "data: target scale")
def raw_decoder_target(planted):
    class Forecaster(nn.Module):
        def __init__(self):
            super().__init__(); self.encoder = nn.LSTM(1, 32, batch_first=True); self.head = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
        def forward(self, x): return self.head(self.encoder(x)[1][0][-1])
    def data(seed):
        t = torch.arange(24.)[None]; ph = torch.rand(32, 1, generator=gen(seed)) * 6.28
        level, amp = 200 + 150 * torch.rand(32, 1, generator=gen(seed + 1)), 5 + 30 * torch.rand(32, 1, generator=gen(seed + 2))
        s = level + amp * torch.sin(t * .5 + ph); x, y = s[:, :20], s[:, 20:]; m, sd = x.mean(1, keepdim=True), x.std(1, keepdim=True)
        return ((x - m) / sd)[..., None], y if planted else (y - m) / sd
    return dict(model=Forecaster, data=data, loss=mse, lr=5e-3, diag={})

@case("https://github.com/dmlc/dgl/issues/1204", "RGCN's last layer has a softmax activation and is trained with F.cross_entropy", "last layer activation softmax / double softmax")
def rgcn_double_softmax(planted):
    class RelGraphConv(nn.Module):
        def __init__(self, i, o, activation=None):
            super().__init__(); self.activation = activation
            self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(2, i, o), gain=nn.init.calculate_gain("relu"))); self.loop_weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(i, o))); self.h_bias = nn.Parameter(torch.zeros(o))
        def forward(self, adj, h):
            h = torch.einsum("rnm,mi,rio->no", adj, h, self.weight) + h @ self.loop_weight + self.h_bias
            return self.activation(h) if self.activation else h
    A = (torch.rand(2, 64, 64, generator=gen(1)) < .06).float(); A = A / A.sum(-1, keepdim=True).clamp(min=1); W = T(2, 3, 12, 5)
    class EntityClassify(nn.Module):
        def __init__(self):
            super().__init__(); self.register_buffer("adj", A)
            self.l1 = RelGraphConv(12, 32, F.relu); self.l2 = RelGraphConv(32, 5, (lambda x: F.softmax(x, dim=1)) if planted else None)
        def forward(self, x): return self.l2(self.adj, self.l1(self.adj, x))
    def data(seed):
        x = T(seed, 64, 12); return x, (A[0] @ x @ W[0] + A[1] @ x @ W[1] + x @ W[2]).argmax(-1)
    return dict(model=EntityClassify, data=data, loss=ce, lr=1e-2, diag={})

@case("https://github.com/jessicayung/blog-code-snippets/issues/6", "X_train.view([input_size, -1, 1]) without transposing first mixes windows and time", "data: view instead of t().view")
def lstm_baseline_view(planted):
    class LSTM(nn.Module):
        def __init__(self, hidden=32):
            super().__init__(); self.lstm = nn.LSTM(1, hidden, 2); self.linear = nn.Linear(hidden, 1)
        def forward(self, input):
            out, self.hidden = self.lstm(input); return self.linear(out[-1]).view(-1)
    def data(seed):
        t = torch.arange(21.)[None]; w = .3 + .6 * torch.rand(32, 1, generator=gen(seed)); X = torch.sin(w * t + 6.28 * torch.rand(32, 1, generator=gen(seed + 1)))
        X, y = X[:, :20], X[:, 20]
        return X.contiguous().view(20, -1, 1) if planted else X.t().reshape(20, -1, 1), y
    return dict(model=LSTM, data=data, loss=mse, lr=5e-3, diag={})

@case("https://github.com/alibaba/EasyRec/issues/380", "FM features concatenated then expand_dims: sum over an axis of size one, second-order output always 0", "FM layer: concat axis")
def easyrec_fm_zero(planted):
    class FM(nn.Module):
        def forward(self, feas):
            fm_feas = torch.cat(feas, 1).unsqueeze(1) if planted else torch.stack(feas, 1)
            return .5 * (fm_feas.sum(1) ** 2 - (fm_feas ** 2).sum(1))
    class Model(nn.Module):
        def __init__(self, fields=4, vocab=10, dim=8):
            super().__init__(); self.wide = nn.ModuleList([nn.Embedding(vocab, 1) for _ in range(fields)]); self.emb = nn.ModuleList([nn.Embedding(vocab, dim) for _ in range(fields)]); self.fm = FM(); self.bias = nn.Parameter(torch.zeros(1))
            for e in self.wide: nn.init.zeros_(e.weight)
            for e in self.emb: nn.init.normal_(e.weight, std=.2)
        def forward(self, ids):
            wide = sum(e(ids[:, i]) for i, e in enumerate(self.wide)).squeeze(1)
            return self.bias + wide + self.fm([e(ids[:, i]) for i, e in enumerate(self.emb)]).sum(1)
    V = T(11, 4, 10, 3)
    def data(seed):
        ids = R(seed, 10, (64, 4)); v = torch.stack([V[i, ids[:, i]] for i in range(4)], 1)
        return ids, ((v.sum(1) ** 2 - (v ** 2).sum(1)).sum(1) > 0).float()
    return dict(model=Model, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t), lr=2e-2, diag={})
