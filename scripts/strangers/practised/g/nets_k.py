from base import *

def lin_task(seed, n=32, d=16, k=4, ts=7):
    x = T(seed, n, d); W = T(ts, d, k); return x, (x @ W).argmax(-1)
def reg_task(seed, n=32, d=8, ts=7):
    x = T(seed, n, d); w, v = T(ts, d, 1) / d ** .5, T(ts + 1, d, 1) / d ** .5; return x, torch.sin(2 * x @ w) + x @ v
def img_task(seed, n=32, c=1, h=12, k=4, noise=.7, ts=5):
    P = T(ts, k, c, h, h); t = R(seed + 50000, k, (n,)); return P[t] + noise * T(seed, n, c, h, h), t

@case("https://github.com/piEsposito/blitz-bayesian-deep-learning/pull/15", "log-posterior of the Bayesian layer subtracts sigma instead of log(sigma)", "log_posterior / KL term")
def bayes_sigma_not_log(planted):
    class BayesianLinear(nn.Module):
        def __init__(self, i, o): super().__init__(); self.mu = nn.Parameter(torch.randn(o, i) * .1); self.rho = nn.Parameter(torch.full((o, i), -3.)); self.bias = nn.Parameter(torch.zeros(o))
        def forward(self, x):
            sigma = F.softplus(self.rho); w = self.mu + sigma * torch.randn_like(sigma)
            lp = -(sigma if planted else sigma.log()) - (w - self.mu) ** 2 / (2 * sigma ** 2); prior = -w ** 2 / 2
            self.kl = (lp - prior).sum(); return x @ w.T + self.bias
    class Net(nn.Module):
        def __init__(self): super().__init__(); self.l1, self.l2 = BayesianLinear(8, 64), BayesianLinear(64, 1)
        def forward(self, x): y = self.l2(torch.relu(self.l1(x))); return torch.cat([y, ((self.l1.kl + self.l2.kl) / 20000).expand_as(y)], 1)
    def loss(o, t): return F.mse_loss(o[:, :1], t) + o[0, 1]
    def metric(m): x, t = reg_task(777, 256); return F.mse_loss(m(x)[:, :1], t).item()
    return dict(model=Net, data=lambda s: reg_task(s, 64), loss=loss, metric=metric, lr=1e-2, diag={})

@case("https://medium.com/mcgill-artificial-intelligence-review/the-dangers-of-reshaping-and-other-fun-mistakes-ive-learnt-from-pytorch-b6a5bdc1c275", "bidirectional hidden state (2, B, H) is reshaped to (B, 2H) with view: samples are mixed", "hidden.view before the classifier")
def bi_hidden_view(planted):
    class Encoder(nn.Module):
        def __init__(self): super().__init__(); self.embedding = nn.Embedding(10, 16); self.rnn = nn.GRU(16, 32, bidirectional=True, batch_first=True); self.fc = nn.Linear(64, 4)
        def forward(self, x):
            _, hidden = self.rnn(self.embedding(x)); B = x.size(0)
            hidden = hidden.view(B, -1) if planted else hidden.transpose(0, 1).reshape(B, -1)
            return self.fc(hidden)
    def data(seed): x = R(seed, 10, (32, 8)); return x, T(11, 10, 4)[x].sum(1).argmax(1)
    return dict(model=Encoder, data=data, loss=ce, lr=5e-3, diag={})

@case("https://solofox.github.io/torch/broadcasting/2025/12/07/torch-broadcasting-trap.html", "mse_loss(outputs (N,1), targets (N,)) broadcasts to (N,N): every slope goes to zero", "loss: shapes")
def mse_broadcast_trap(planted):
    class LinearRegressionModule(nn.Module):
        def __init__(self, f=4): super().__init__(); self.weights = nn.Parameter(torch.rand(f, 1) * .01); self.bias = nn.Parameter(torch.randn(1) * .01)
        def forward(self, x): return x @ self.weights + self.bias
    def loss(o, t): return ((o - t) ** 2).mean() if planted else F.mse_loss(o.squeeze(1), t)
    def data(seed): x = T(seed, 64, 4); return x, (x @ T(3, 4, 1)).squeeze(1) + .5
    return dict(model=LinearRegressionModule, data=data, loss=loss, lr=2e-2, diag={})

@case("https://github.com/ZhuoYulang/IF-MMIN/issues/2", "residual autoencoder feeds x_in + shared into every block instead of the former block's output", "ResidualAE.forward x_in")
def residual_ae_wrong_input(planted):
    class ResidualAE(nn.Module):
        def __init__(self, d=24, n=4):
            super().__init__(); self.n_blocks = n; self.shared_fc = nn.Linear(d, d); self.out = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 12))
            for i in range(n): setattr(self, f"encoder_{i}", nn.Sequential(nn.Linear(d, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())); setattr(self, f"decoder_{i}", nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, d)))
        def forward(self, x):
            shared = self.shared_fc(x); x_in = x; x_out = torch.zeros_like(x)
            for i in range(self.n_blocks):
                x_in = x_in + shared if planted or i == 0 else x_out + x_in
                x_out = getattr(self, f"decoder_{i}")(getattr(self, f"encoder_{i}")(x_in))
            return self.out(x_out + x)
    def data(seed): x = T(seed, 48, 24); return x, torch.tanh(x @ T(5, 24, 12) / 3)
    return dict(model=ResidualAE, data=data, loss=mse, lr=3e-3, diag={})

class GPT(nn.Module):
    def __init__(self, mask, sliding=None, V=24, d=48, L=12, n=2):
        super().__init__(); self.tok, self.pos = nn.Embedding(V, d), nn.Embedding(L, d); self.register_buffer("mask", mask); self.register_buffer("sliding", sliding)
        self.ln = nn.ModuleList([nn.LayerNorm(d) for _ in range(2 * n)]); self.attn = nn.ModuleList([nn.MultiheadAttention(d, 4, batch_first=True) for _ in range(n)])
        self.mlp = nn.ModuleList([nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)) for _ in range(n)]); self.ln_f = nn.LayerNorm(d); self.head = nn.Linear(d, V)
    def forward(self, x):
        h = self.tok(x) + self.pos.weight[:x.size(1)]
        for i in range(len(self.mlp)):
            a = self.ln[2 * i](h); m = self.mask if self.sliding is None or i % 2 else self.sliding; m = None if m is None else m[:x.size(1), :x.size(1)]
            h = h + self.attn[i](a, a, a, attn_mask=m, need_weights=False)[0]; h = h + self.mlp[i](self.ln[2 * i + 1](h))
        return self.head(self.ln_f(h))
def markov(seed, n=32, L=13, V=24):
    g = gen(seed); P = torch.softmax(2.5 * T(6, V, V), 1); x = [torch.randint(0, V, (n,), generator=g)]
    for _ in range(L - 1): x.append(torch.multinomial(P[x[-1]], 1, generator=g).squeeze(1))
    return torch.stack(x, 1)
def lm_data(seed): x = markov(seed); return x[:, :-1], x[:, 1:]
def last_metric(m):
    x, t = lm_data(4242)
    with torch.no_grad(): return sum(F.cross_entropy(m(x[:, :k])[:, -1], t[:, k - 1]).item() for k in range(2, 13)) / 11

@case("https://github.com/alex-matton/causal-transformer-decoder/issues/1", "no causal mask while training: the decoder sees the tokens it has to predict", "attention mask")
def no_causal_mask(planted):
    mask = torch.full((12, 12), float("-inf")).triu(1)
    return dict(model=lambda: GPT(None if planted else mask), data=lm_data, loss=ceseq, metric=last_metric, lr=3e-3, diag={})

@case("https://github.com/huggingface/transformers/issues/31673", "sliding window: additive mask multiplied with tril zeroes the -inf of the future: labels leak", "attention mask of the sliding layer")
def gemma_sliding_mask(planted):
    mask = torch.full((12, 12), -1e9).triu(1); W = 6
    if planted: m = mask * torch.tril(torch.ones(12, 12), diagonal=-W)
    else: m = torch.where(torch.tril(torch.ones(12, 12, dtype=torch.bool), diagonal=-W), torch.tensor(-1e9), mask)
    return dict(model=lambda: GPT(mask, m), data=lm_data, loss=ceseq, metric=last_metric, lr=3e-3, diag={})

@case("https://github.com/KempnerInstitute/KempnerForge/issues/154", "labels are not shifted: each logit is scored against the token at its own position", "data: labels")
def labels_not_shifted(planted):
    mask = torch.full((12, 12), float("-inf")).triu(1)
    def data(seed): x = markov(seed); return x[:, :-1], x[:, :-1] if planted else x[:, 1:]
    return dict(model=lambda: GPT(mask), data=data, loss=ceseq, lr=3e-3, diag={})

@case("https://github.com/coreylowman/dfdx/issues/486", "ReLU on the output layer cuts off all negative values", "output ReLU")
def relu_on_output(planted):
    class Net(nn.Module):
        def __init__(self): super().__init__(); self.net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1), *([nn.ReLU()] if planted else []))
        def forward(self, x): return self.net(x)
    def data(s): x, t = reg_task(s, 48); return x, t - .5
    return dict(model=Net, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/google-research/vmoe/pull/218", "squared coefficient of variation goes through std: NaN gradient at balanced loads of the zero-initialised router", "router / importance loss std")
def moe_cv_nan(planted):
    class MoE(nn.Module):
        def __init__(self):
            super().__init__(); self.inp = nn.Linear(16, 32); self.router = nn.Linear(32, 4, bias=False); nn.init.zeros_(self.router.weight)
            self.experts = nn.ModuleList([nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32)) for _ in range(4)]); self.head = nn.Linear(32, 4)
        def forward(self, x):
            h = torch.relu(self.inp(x)); g = F.softmax(self.router(h), -1); imp = g.sum(0); var = ((imp - imp.mean()) ** 2).mean()
            aux = (var.sqrt() / imp.mean()) ** 2 if planted else var / imp.mean() ** 2
            y = sum(g[:, i:i + 1] * e(h) for i, e in enumerate(self.experts)); return torch.cat([self.head(h + y), aux.expand(x.size(0), 1)], 1)
    def loss(o, t): return F.cross_entropy(o[:, :4], t) + .01 * o[0, 4]
    return dict(model=MoE, data=lin_task, loss=loss, lr=3e-3, diag={})

@case("https://github.com/huggingface/lerobot/pull/239", "Normalize divides by the std without eps: a state dimension with a fixed value becomes NaN", "input normalisation")
def constant_feature_std(planted):
    class Policy(nn.Module):
        def __init__(self):
            super().__init__(); self.register_buffer("mean", torch.tensor([0., 0, 0, 0, 0, 0, 0, .5])); self.register_buffer("std", torch.tensor([1., 1, 1, 1, 1, 1, 1, 0])); self.net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
        def forward(self, x): return self.net((x - self.mean) / (self.std if planted else self.std + 1e-8))
    def data(s): x = T(s, 48, 8); x[:, 7] = .5; return x, torch.sin(x[:, :1] + x[:, 1:2]) + x[:, 2:3]
    return dict(model=Policy, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/pytorch/examples/pull/76", "REINFORCE standardises the rewards without eps: 0/0 when the agent has had no reward", "loss: rewards standardisation")
def reward_std_zero(planted):
    class Policy(nn.Module):
        def __init__(self): super().__init__(); self.affine1, self.affine2 = nn.Linear(4, 64), nn.Linear(64, 3)
        def forward(self, x): return self.affine2(F.relu(self.affine1(x)))
    def loss(o, t):
        r = t[:, 1]; r = (r - r.mean()) / (r.std() + (0 if planted else 1e-8))
        logp = F.log_softmax(o, 1).gather(1, t[:, :1].long()).squeeze(1); return -(torch.exp(logp - math.log(1 / 3)).clamp(max=5) * r).mean()
    def data(seed):
        x = T(seed, 16, 4); a = R(seed + 9, 3, (16,)); q = x @ T(2, 4, 3); r = ((a == q.argmax(1)) & (q.max(1)[0] > 2)).float(); return x, torch.stack([a.float(), r], 1)
    def metric(m): x = T(777, 512, 4); q = x @ T(2, 4, 3); ok = q.max(1)[0] > 2; return -F.softmax(m(x), 1)[torch.arange(512), q.argmax(1)][ok].mean().item()
    return dict(model=Policy, data=data, loss=loss, metric=metric, lr=5e-3, diag={})

@case("https://github.com/iduta/iresnet/pull/2", "inplace ReLU at the start of the block changes x: the identity is rectified as well", "block's first relu / identity")
def inplace_relu_identity(planted):
    class Block(nn.Module):
        def __init__(self, c): super().__init__(); self.relu = nn.ReLU(inplace=planted); self.conv1, self.bn1, self.conv2, self.bn2 = nn.Conv2d(c, c, 3, padding=1), nn.BatchNorm2d(c), nn.Conv2d(c, c, 3, padding=1), nn.BatchNorm2d(c)
        def forward(self, x): identity = x; out = self.relu(x); out = self.conv1(out); out = F.relu(self.bn1(out)); return self.bn2(self.conv2(out)) + identity
    class Net(nn.Module):
        def __init__(self): super().__init__(); self.stem = nn.Conv2d(1, 8, 3, padding=1); self.blocks = nn.Sequential(*[Block(8) for _ in range(3)]); self.fc = nn.Linear(8, 4)
        def forward(self, x): return self.fc(self.blocks(self.stem(x)).relu().amax((2, 3)))
    return dict(model=Net, data=lambda s: img_task(s, h=8), loss=ce, lr=3e-3, diag={})

@case("https://github.com/zoharli/SRGAN-tensorflow/issues/1", "residual block's second conv takes conv1 instead of relu(bn(conv1))", "residual_block conv2 input")
def srresnet_skips_relu(planted):
    class Block(nn.Module):
        def __init__(self, c): super().__init__(); self.conv1, self.bn1, self.conv2, self.bn2 = nn.Conv2d(c, c, 3, padding=1), nn.BatchNorm2d(c), nn.Conv2d(c, c, 3, padding=1), nn.BatchNorm2d(c)
        def forward(self, x):
            conv1 = self.conv1(x); relu = F.relu(self.bn1(conv1)); conv2 = self.conv2(conv1 if planted else relu); return x + self.bn2(conv2)
    class Net(nn.Module):
        def __init__(self): super().__init__(); self.inp = nn.Conv2d(1, 12, 3, padding=1); self.body = nn.Sequential(*[Block(12) for _ in range(3)]); self.up = nn.Sequential(nn.Conv2d(12, 4, 3, padding=1), nn.PixelShuffle(2))
        def forward(self, x): return self.up(self.body(self.inp(x)))
    def data(seed): z = F.interpolate(T(seed, 16, 1, 5, 5), size=16, mode="bicubic"); hr = torch.tanh(3 * z); return F.avg_pool2d(hr, 2), hr
    return dict(model=Net, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/Lightning-AI/pytorch-lightning/pull/7096", "forward returns sigmoid probabilities, the loss is binary_cross_entropy_with_logits", "sigmoid output / loss")
def double_sigmoid(planted):
    class TransferLearningModel(nn.Module):
        def __init__(self): super().__init__(); self.feature_extractor = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3)); self.fc = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1))
        def forward(self, x): return torch.sigmoid(self.fc(self.feature_extractor(x).flatten(1)))
    def bce(o, t): return F.binary_cross_entropy_with_logits(o, t) if planted else F.binary_cross_entropy(o, t)
    def data(s): x, t = img_task(s, k=2); return x, t.float().unsqueeze(1)
    return dict(model=TransferLearningModel, data=data, loss=bce, lr=1e-3, diag={})
