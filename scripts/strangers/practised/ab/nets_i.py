from base import *
def bce(o, t): return F.binary_cross_entropy_with_logits(o, t)

@case("https://github.com/cvg/glue-factory/issues/89", "nn.Sigmoid in the token head although its loss is BCEWithLogitsLoss", "token head Sigmoid (twice)")
def token_confidence_sigmoid(planted):
    w = T(3, 64)
    class TokenConfidence(nn.Module):
        def __init__(s, dim=64):
            super().__init__(); s.proj = nn.Linear(dim, dim); s.token = nn.Sequential(nn.Linear(dim, 1), nn.Sigmoid()) if planted else nn.Sequential(nn.Linear(dim, 1))
        def forward(s, desc): return s.token(F.relu(s.proj(desc))).squeeze(-1)
    def data(seed):
        d = T(seed, 8, 32, 64); return d, (d @ w > 8).float()
    return dict(model=TokenConfidence, data=data, loss=bce, lr=2e-3, diag={})

@case("https://github.com/itakurah/focal-loss-pytorch/pull/5", "focal loss passes sigmoid probabilities into binary_cross_entropy_with_logits", "FocalLoss: sigmoid before BCE with logits")
def focal_loss_sigmoid(planted):
    w = T(3, 20)
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.body, s.head = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()), nn.Linear(64, 1)
        def forward(s, x): return s.head(s.body(x)).squeeze(1)
    def data(seed):
        x = T(seed, 64, 20); return x, (x @ w > 4).float()
    def loss(o, t):
        probs = torch.sigmoid(o); ce = F.binary_cross_entropy_with_logits(probs if planted else o, t, reduction="none")
        pt = probs * t + (1 - probs) * (1 - t); return ((.25 * t + .75 * (1 - t)) * (1 - pt) ** 2 * ce).mean()
    def metric(m):
        with torch.no_grad(): return sum(float(F.binary_cross_entropy_with_logits(m(x), t)) for x, t in map(data, range(9000, 9005))) / 5
    return dict(model=Net, data=data, loss=loss, metric=metric, lr=1e-3, diag={})

@case("https://github.com/guocheng2025/Transformer-Encoder/issues/1", "positional embeddings are defined but never added to the encoder's input", "positional embedding (unused)")
def encoder_pe_unused(planted):
    V, L = 16, 12
    class TransformerEncoder(nn.Module):
        def __init__(s):
            super().__init__(); s.token_embedding, s.position_embedding = nn.Embedding(V, 48), nn.Embedding(L, 48)
            s.layers = nn.ModuleList([nn.TransformerEncoderLayer(48, 4, 96, 0., batch_first=True) for _ in range(2)]); s.fc = nn.Linear(48, V)
        def forward(s, x):
            y = s.token_embedding(x); p = s.position_embedding(torch.arange(x.size(1)))
            if not planted: y = y + p
            for l in s.layers: y = l(y)
            return s.fc(y)
    def data(seed):
        x = R(seed, V, (32, L)); return x, x.flip(1)
    return dict(model=TransformerEncoder, data=data, loss=ceseq, lr=3e-3, diag={})

@case("https://github.com/Photon-AI-Research/NeuralSolvers/issues/20", "initial condition target of shape [batch] against a prediction [batch,1] in mse_loss", "loss broadcasting [N,1] vs [N]")
def pinn_ic_broadcast(planted):
    class MLP(nn.Module):
        def __init__(s):
            super().__init__(); s.l = nn.Sequential(nn.Linear(3, 50), nn.Tanh(), nn.Linear(50, 50), nn.Tanh(), nn.Linear(50, 1))
        def forward(s, x): return s.l(x)
    def data(seed):
        x = torch.rand(64, 3, generator=gen(seed)) * 2 - 1; return x, torch.sin(2 * x[:, 0]) * torch.cos(x[:, 1]) + x[:, 2]
    def loss(o, t): return F.mse_loss(o if planted else o.reshape(-1), t)
    def metric(m):
        with torch.no_grad(): return sum(float(F.mse_loss(m(x)[:, 0], t)) for x, t in map(data, range(9000, 9005))) / 5
    return dict(model=MLP, data=data, loss=loss, metric=metric, lr=5e-3, diag={})

@case("https://github.com/andrewgcodes/xlstm/issues/4", "y_true of one sample [1,k] is broadcast over the [10,k] predictions of the whole batch", "loss target shape")
def xlstm_target_broadcast(planted):
    class mLSTM(nn.Module):
        def __init__(s):
            super().__init__(); s.Wq, s.Wk, s.Wv, s.Wi, s.Wf, s.Wo = nn.Linear(2, 16), nn.Linear(2, 16), nn.Linear(2, 16), nn.Linear(2, 1), nn.Linear(2, 1), nn.Linear(2, 16); s.out = nn.Linear(16, 1)
        def forward(s, x):
            C, n = torch.zeros(len(x), 16, 16), torch.zeros(len(x), 16); y = []
            for t in range(x.size(1)):
                v = x[:, t]; i, f = torch.exp(s.Wi(v).clamp(max=3)), torch.sigmoid(s.Wf(v)); k = s.Wk(v) / 4; q = s.Wq(v)
                C = f[..., None] * C + i[..., None] * s.Wv(v)[:, :, None] * k[:, None]; n = f * n + i * k
                y.append(s.out(torch.sigmoid(s.Wo(v)) * (C @ q[..., None])[..., 0] / (n * q).sum(1, keepdim=True).abs().clamp(min=1)))
            return torch.cat(y, 1)
    def data(seed):
        x = T(seed, 16, 8, 2); return x, .6 * x[..., 0] * x[..., 1] + x[..., 0]
    def loss(o, t): return F.mse_loss(o, t[:1].expand_as(o) if planted else t)
    def metric(m):
        with torch.no_grad(): return sum(float(F.mse_loss(m(x), t)) for x, t in map(data, range(9000, 9005))) / 5
    return dict(model=mLSTM, data=data, loss=loss, metric=metric, lr=1e-2, diag={})

@case("https://github.com/lululxvi/deepxde/issues/22", "the solution is of order 100 but the network's output is not scaled (outputs_modify(100*y) missing)", "output scale")
def dde_output_scale(planted):
    class FNN(nn.Module):
        def __init__(s):
            super().__init__(); s.linears = nn.ModuleList([nn.Linear(a, b) for a, b in ((2, 50), (50, 50), (50, 50), (50, 1))])
            for l in s.linears: nn.init.xavier_uniform_(l.weight); nn.init.zeros_(l.bias)
        def forward(s, x):
            for l in s.linears[:-1]: x = torch.tanh(l(x))
            y = s.linears[-1](x); return y if planted else 100 * y
    def data(seed):
        x = torch.rand(64, 2, generator=gen(seed)); return x, 100 * torch.sin(math.pi * x[:, :1]) * torch.exp(-x[:, 1:])
    return dict(model=FNN, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/aymericdamien/TensorFlow-Examples/pull/413", "no activation function between the fully connected layers", "layer_1/layer_2 (linear)")
def tf_examples_linear(planted):
    class neural_net(nn.Module):
        def __init__(s): super().__init__(); s.layer_1, s.layer_2, s.out_layer = nn.Linear(12, 64), nn.Linear(64, 64), nn.Linear(64, 4)
        def forward(s, x):
            act = (lambda v: v) if planted else torch.relu
            return s.out_layer(act(s.layer_2(act(s.layer_1(x)))))
    C = T(4, 8, 12) * 2
    def data(seed):
        k = R(seed, 8, (64,)); return C[k] * torch.where(R(seed + 2, 2, (64, 1)) > 0, 1., -1.) + .5 * T(seed + 1, 64, 12), k // 2
    return dict(model=neural_net, data=data, loss=ce, lr=3e-3, diag={})

@case("https://github.com/datawhalechina/easy-rl/pull/117", "TD target is not detached and target_net is the policy net itself", "loss: target not detached")
def td_not_detached(planted):
    W, Wn = T(9, 6, 3), T(10, 6, 6) / 6 ** .5
    class MLP(nn.Module):
        def __init__(s): super().__init__(); s.fc1, s.fc2, s.fc3 = nn.Linear(6, 64), nn.Linear(64, 64), nn.Linear(64, 3)
        def q(s, x): return s.fc3(F.relu(s.fc2(F.relu(s.fc1(x)))))
        def forward(s, x, x2): return s.q(x), s.q(x2)
    def data(seed):
        x = T(seed, 64, 6); a = R(seed + 1, 3, (64, 1)); return (x, torch.tanh(x @ Wn + .3 * a)), (a, torch.sigmoid((x @ W).gather(1, a)))
    def loss(o, t):
        q, qn = o; a, r = t; nxt = qn.max(1, keepdim=True)[0]
        return F.mse_loss(q.gather(1, a), r + .9 * (nxt if planted else nxt.detach()))
    def metric(m):
        tot = 0
        with torch.no_grad():
            for s in range(9000, 9005):
                (x, _), (a, _) = data(s); v = 0; g = 1; y = x; b = a
                for _ in range(40): v = v + g * torch.sigmoid((y @ W).gather(1, b)); g *= .9; y = torch.tanh(y @ Wn + .3 * b); b = m.q(y).argmax(1, keepdim=True)
                tot += float(F.mse_loss(m.q(x).gather(1, a), v)) / 5
        return tot
    return dict(model=MLP, data=data, loss=loss, metric=metric, lr=3e-3, diag={})

def graphs(seed, n=16, k=10):
    a = (torch.rand(n, k, k, generator=gen(seed)) < (.15 + .5 * torch.rand(n, 1, 1, generator=gen(seed + 1)))).float().triu(1); a = a + a.transpose(1, 2); return a

@case("https://github.com/pyg-team/pytorch_geometric/issues/2916", "log_softmax over the single output column of a binary node classifier where a sigmoid belongs", "final log_softmax")
def gcn_log_softmax(planted):
    w = T(3, 8)
    class GCN(nn.Module):
        def __init__(s): super().__init__(); s.conv1, s.conv2 = nn.Linear(8, 32), nn.Linear(32, 1)
        def forward(s, x, adj):
            d = adj.sum(2).clamp(min=1) ** -.5; n = adj * d[..., None] * d[:, None]
            y = n @ s.conv2(torch.relu(n @ s.conv1(x))); return F.log_softmax(y, -1).exp()[..., 0] if planted else torch.sigmoid(y)[..., 0]
    def data(seed):
        a = graphs(seed) + torch.eye(10); y = R(seed + 5, 2, (16, 10)).float(); a = a * (1 - .8 * (y[:, :, None] - y[:, None]).abs()); x = .6 * T(seed + 2, 16, 10, 8) + (2 * y[..., None] - 1) * w; return (x, a), y
    def loss(p, t): return F.binary_cross_entropy(p, t)
    return dict(model=GCN, data=data, loss=loss, lr=5e-3, diag={})

@case("https://github.com/diningphil/gnn-comparison/issues/50", "GraphSAGE with mean aggregation on graphs whose node features are all 1: every graph gives one output", "constant node features under mean aggregation")
def sage_constant_features(planted):
    class GraphSAGE(nn.Module):
        def __init__(s): super().__init__(); s.l1, s.r1, s.l2, s.r2, s.fc = nn.Linear(1, 32), nn.Linear(1, 32), nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 2)
        def forward(s, x, adj):
            n = adj / adj.sum(2, keepdim=True).clamp(min=1)
            n = torch.where(adj.sum(2, keepdim=True) > 0, n, torch.eye(10))
            x = torch.relu(s.l1(n @ x) + s.r1(x)); x = torch.relu(s.l2(n @ x) + s.r2(x)); return s.fc(x.amax(1))
    def data(seed):
        a = graphs(seed, 32); y = (a.sum((1, 2)) > 36).long(); x = torch.ones(32, 10, 1) if planted else a.sum(2, keepdim=True) / 4 - 1; return (x, a), y
    return dict(model=GraphSAGE, data=data, loss=ce, lr=5e-3, diag={})

@case("https://github.com/orybkin/sigma-vae-tensorflow/issues/2", "KL and MSE are both averaged over their own dimensions (reduce_mean) instead of summed", "loss reduction (KL vs. reconstruction)")
def vae_reduce_mean(planted):
    A = T(3, 4, 100) / 2
    class VAE(nn.Module):
        def __init__(s): super().__init__(); s.enc, s.mu, s.logvar = nn.Sequential(nn.Linear(100, 64), nn.ReLU()), nn.Linear(64, 8), nn.Linear(64, 8); s.dec = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 100))
        def forward(s, x):
            h = s.enc(x); mu, lv = s.mu(h), s.logvar(h); return s.dec(mu + torch.randn_like(mu) * (lv / 2).exp()), mu, lv
    def data(seed):
        x = torch.tanh(T(seed, 64, 4) @ A); return x, x
    def loss(o, t):
        y, mu, lv = o; se = (y - t) ** 2; kl = -.5 * (1 + lv - mu ** 2 - lv.exp())
        return se.mean() + kl.mean() if planted else (se.sum() + kl.sum()) / len(t)
    def metric(m):
        with torch.no_grad(): return sum(float(mse(m(x)[0], x)) for x, _ in map(data, range(9000, 9005))) / 5
    return dict(model=VAE, data=data, loss=loss, metric=metric, lr=3e-3, diag={})

@case("https://github.com/FluxML/model-zoo/issues/8", "mean squared error on softmax outputs for a classification problem", "loss (mse instead of cross entropy)")
def flux_mnist_mse(planted):
    P = T(5, 10, 144)
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.d1, s.d2 = nn.Linear(144, 32), nn.Linear(32, 10)
        def forward(s, x): return torch.softmax(s.d2(torch.relu(s.d1(x))), 1)
    def data(seed):
        t = R(seed, 10, (32,)); return .7 * P[t] + 1.5 * T(seed + 1, 32, 144), t
    def loss(p, t): return F.mse_loss(p, F.one_hot(t, 10).float()) if planted else F.nll_loss((p + 1e-8).log(), t)
    def metric(m):
        with torch.no_grad(): return sum(float(F.nll_loss((m(x) + 1e-8).log(), t)) for x, t in map(data, range(9000, 9005))) / 5
    return dict(model=Net, data=data, loss=loss, metric=metric, lr=1e-3, diag={})
