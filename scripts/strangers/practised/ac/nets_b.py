from base import *
import copy

@case("https://github.com/SciML/DiffEqFlux.jl/issues/189", "drift and diffusion nets read the same slice of the parameter vector; the diffusion parameters get no gradient", "p2 / diffusion parameters")
def neural_dsde_slice(planted):
    class NeuralDSDE(nn.Module):
        def __init__(self):
            super().__init__()
            n1, n2 = 2 * 50 + 50 + 50 * 2 + 2, 2 * 50 + 50 + 50 * 2 + 2
            self.len = n1
            def flat(): return torch.cat([torch.randn(100) * .5, torch.zeros(50), torch.randn(100) * .14, torch.zeros(2)])
            self.p1 = nn.Parameter(flat()); self.p2 = nn.Parameter(flat())
        def chain(self, u, p):
            W1, b1, W2, b2 = p[:100].view(50, 2), p[100:150], p[150:250].view(2, 50), p[250:]
            return F.linear(torch.tanh(F.linear(u, W1, b1)), W2, b2)
        def forward(self, u):
            p = torch.cat([self.p1, self.p2])
            drift, diff = p[:self.len], (p[:self.len] if planted else p[self.len:])
            return torch.cat([u + self.chain(u, drift), self.chain(u, diff)], 1)
    A = T(3, 2, 2, k=.7)
    def data(seed):
        u = T(seed, 64, 2); s = .1 + .5 * (u[:, :1] > 0).float()
        return u, u + torch.tanh(u @ A) + 1 + s * T(seed + 9, 64, 2)
    def loss(o, t):
        m, ls = o.chunk(2, 1); return (ls + .5 * ((t - m) / ls.exp()) ** 2).mean()
    return dict(model=NeuralDSDE, data=data, loss=loss, lr=1e-2, diag={})

@case("https://github.com/SciML/DiffEqFlux.jl/issues/127", "NeuralODE integrates its own copy of the network; the parameters handed to the optimiser are never used", "nODE (copied parameters)")
def neuralode_copied(planted):
    class NeuralODE:
        def __init__(self, nn_, steps=8): self.re = copy.deepcopy(nn_) if planted else nn_; self.n = steps
        def __call__(self, x):
            for _ in range(self.n): x = x + self.re(x) / self.n
            return x
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.NN = nn.Sequential(nn.Linear(10, 100), nn.Tanh(), nn.Linear(100, 10)); self.nODE = NeuralODE(self.NN)
        def forward(self, x): return self.nODE(x)
    W = T(5, 10, 10, k=.5)
    def data(seed):
        x = torch.rand(48, 10, generator=gen(seed)); return x, torch.tanh(x @ W)
    return dict(model=Model, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/kuleshov-group/caduceus/issues/37", "linear prediction head left with uninitialised memory (huge values)", "score.weight")
def caduceus_head_uninit(planted):
    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(8, 32); self.conv = nn.Conv1d(32, 32, 5, padding=2); self.norm = nn.LayerNorm(32); self.score = nn.Linear(32, 2, bias=False)
            nn.init.normal_(self.embed.weight, std=.5); nn.init.normal_(self.score.weight, std=.02)
            if planted: self.score.weight.data = torch.randn(2, 32) * 1e28
        def forward(self, ids):
            h = self.embed(ids); h = self.norm(h + F.gelu(self.conv(h.transpose(1, 2)).transpose(1, 2)))
            return self.score(h.mean(1))
    def data(seed):
        y = R(seed, 2, (32,)); x = R(seed + 1, 4, (32, 40)); m = R(seed + 2, 3, (32, 40)) == 0
        return torch.where(m & (y[:, None] > 0), torch.full_like(x, 2), x), y
    return dict(model=Classifier, data=data, loss=ce, lr=1e-3, diag={})

@case("https://whosebug.com/question/6496401/Output-of-the-model-depends-on-the-shape-of-the-weights-tensor", "out is (N, 1) and y is (N,): MSE broadcasts to (N, N)", "loss / shape of y")
def mse_broadcast(planted):
    def Net(): return nn.Sequential(nn.Linear(3, 1, bias=False))
    def data(seed):
        x = torch.rand(64, 3, generator=gen(seed)); y = x.sum(1)
        return x, (y if planted else y[:, None])
    def metric(m):
        x, y = data(9000)
        with torch.no_grad(): return ((m(x)[:, 0] - y.flatten()) ** 2).mean()
    return dict(model=Net, data=data, loss=mse, lr=3e-2, diag={}, metric=metric)

@case("https://github.com/higgsfield-ai/higgsfield/issues/24", "log_probs (N,) times advantage (N, 1) becomes (N, N)", "actor_loss")
def a2c_advantage(planted):
    class ActorCritic(nn.Module):
        def __init__(self):
            super().__init__()
            self.critic = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 1)); self.actor = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 3))
        def forward(self, x): return self.actor(x), self.critic(x)
    W = T(8, 4, 3)
    def data(seed):
        x = T(seed, 80, 4); a = R(seed + 1, 3, (80,)); r = (a == (x @ W).argmax(1)).float()
        return x, torch.stack([a.float(), r], 1)
    def loss(o, t):
        logits, values = o; a, returns = t[:, 0].long(), t[:, 1:]
        log_probs = F.log_softmax(logits, 1).gather(1, a[:, None])[:, 0]
        advantage = returns - values
        adv = advantage if planted else advantage[:, 0]
        return -(log_probs * adv.detach()).mean() + .5 * advantage.pow(2).mean() + .05 * (F.softmax(logits, 1) * F.log_softmax(logits, 1)).sum(1).mean()
    def metric(m):
        x = T(9000, 500, 4)
        with torch.no_grad(): return (m(x)[0].argmax(1) != (x @ W).argmax(1)).float().mean()
    return dict(model=ActorCritic, data=data, loss=loss, lr=3e-3, diag={}, metric=metric)

@case("https://github.com/deepfindr/gvae/issues/1", "decoder layers 2 and 3 take the decoder's inputs instead of x; layers 1 and 2 have no effect", "decoder_dense_1 / decoder_dense_2")
def gvae_decoder(planted):
    class GVAEDecoder(nn.Module):
        def __init__(self):
            super().__init__()
            d = 16
            self.decoder_dense_1 = nn.Linear(d, d); self.decoder_bn_1 = nn.BatchNorm1d(d)
            self.decoder_dense_2 = nn.Linear(d, d); self.decoder_bn_2 = nn.BatchNorm1d(d)
            self.decoder_dense_3 = nn.Linear(d, d); self.decoder_bn_3 = nn.BatchNorm1d(d)
            self.decoder_dense_4 = nn.Linear(d, 1)
        def forward(self, a, b):
            inputs = torch.cat([a, b], 1)
            x = self.decoder_bn_1(self.decoder_dense_1(inputs).relu())
            x = self.decoder_bn_2(self.decoder_dense_2(inputs if planted else x).relu())
            x = self.decoder_bn_3(self.decoder_dense_3(inputs if planted else x).relu())
            return self.decoder_dense_4(x)[:, 0]
    def data(seed):
        a, b = T(seed, 64, 8), T(seed + 1, 64, 8)
        return (a, b), ((a * b).sum(1) > 0).float()
    return dict(model=GVAEDecoder, data=data, loss=F.binary_cross_entropy_with_logits, lr=1e-2, diag={})

@case("https://github.com/y0ast/VAE-Torch/issues/11", "reconstruction criterion with sizeAverage=true: the KLD overwhelms it", "criterion (mean over all pixels)")
def vae_size_average(planted):
    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc = nn.Sequential(nn.Linear(144, 100), nn.ReLU()); self.mean = nn.Linear(100, 8); self.logvar = nn.Linear(100, 8)
            self.dec = nn.Sequential(nn.Linear(8, 100), nn.ReLU(), nn.Linear(100, 144), nn.Sigmoid())
        def forward(self, x):
            h = self.enc(x); mu, lv = self.mean(h), self.logvar(h)
            return self.dec(mu + torch.randn_like(mu) * (.5 * lv).exp()), mu, lv
    basis = T(2, 4, 144, k=1.5)
    def data(seed):
        x = torch.sigmoid(T(seed, 64, 4) @ basis); return x, x
    def loss(o, t):
        r, mu, lv = o; bce = F.binary_cross_entropy(r, t, reduction="sum")
        kld = -.5 * (1 + lv - mu ** 2 - lv.exp()).sum()
        return bce / t.numel() + kld / len(t) if planted else (bce + kld) / len(t)
    def metric(m):
        x, _ = data(9000)
        with torch.no_grad(): return F.mse_loss(m(x)[0], x)
    return dict(model=VAE, data=data, loss=loss, lr=3e-3, diag={}, metric=metric)

@case("https://github.com/ethanfetaya/NRI/issues/25", "my_softmax normalises the edge types along the batch dimension", "my_softmax")
def nri_my_softmax(planted):
    class NRI(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc = nn.Sequential(nn.Linear(8, 48), nn.ELU(), nn.Linear(48, 2)); self.msg = nn.ModuleList([nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4)) for _ in range(2)])
        def forward(self, e):
            logits = self.enc(e); z = F.softmax(logits, 0 if planted else -1)
            return sum(z[..., k:k + 1] * f(e) for k, f in enumerate(self.msg))
    A, B = T(1, 8, 4, k=.5), T(2, 8, 4, k=.5)
    def data(seed):
        e = T(seed, 24, 6, 8); s = (e[..., :1] > 0).float(); return e, s * (e @ A) + (1 - s) * (e @ B)
    return dict(model=NRI, data=data, loss=mse, lr=5e-3, diag={})

@case("https://github.com/ctallec/world-models/issues/10", "log_softmax of pi over the batch dimension (dim=-2) instead of the gaussians", "logpi in forward")
def mdrnn_pi_dim(planted):
    class MDRNN(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(3, 32); self.gmm_linear = nn.Linear(32, 3 * 5)
        def forward(self, x):
            outs, _ = self.rnn(x); mus, sig, pi = self.gmm_linear(outs).chunk(3, -1)
            return torch.stack([mus, sig.exp(), F.log_softmax(pi, -2 if planted else -1)], 0)
    def data(seed):
        x = T(seed, 10, 16, 3); c = (torch.rand(10, 16, generator=gen(seed + 1)) > .5).float() * 2 - 1
        return x, x[..., 0] + 1.5 * c + .1 * T(seed + 2, 10, 16)
    def loss(o, t):
        mu, s, lp = o; return -torch.logsumexp(lp - s.log() - .5 * ((t[..., None] - mu) / s) ** 2, -1).mean()
    return dict(model=MDRNN, data=data, loss=loss, lr=1e-2, diag={})

@case("https://github.com/pytorch/tutorials/issues/2121", "attention weights from the decoder's hidden state and embedding only; encoder outputs are not looked at", "attn")
def attn_no_encoder(planted):
    class AttnDecoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.key = nn.Embedding(12, 32); self.val = nn.Embedding(8, 32); self.embedding = nn.Embedding(12, 32)
            self.attn = nn.Linear(32, 8); self.q = nn.Linear(32, 32); self.k = nn.Linear(32, 32); self.out = nn.Linear(64, 8)
        def forward(self, keys, vals, query):
            enc = self.key(keys) + self.val(vals); emb = self.embedding(query)
            s = self.attn(emb) if planted else (self.k(enc) @ self.q(emb)[:, :, None])[..., 0] / 32 ** .5
            c = (F.softmax(s, 1)[:, None] @ enc)[:, 0]
            return self.out(torch.cat([c, emb], 1))
    def data(seed):
        g = gen(seed); keys = torch.stack([torch.randperm(12, generator=g)[:8] for _ in range(64)])
        vals = torch.randint(0, 8, (64, 8), generator=g); i = torch.randint(0, 8, (64, 1), generator=g)
        return (keys, vals, keys.gather(1, i)[:, 0]), vals.gather(1, i)[:, 0]
    return dict(model=AttnDecoder, data=data, loss=ce, lr=1e-2, diag={})

@case("https://github.com/cazala/synaptic/issues/225", "sigmoid output unit, targets not normalised (far above 1)", "output layer activation / targets")
def synaptic_regression(planted):
    class Perceptron(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden = nn.Linear(2, 12); self.output = nn.Linear(12, 1)
        def forward(self, x): return torch.sigmoid(self.output(torch.sigmoid(self.hidden(x))))
    def data(seed):
        x = torch.rand(48, 2, generator=gen(seed)); y = 12 * x[:, :1] + 6 * x[:, 1:] + 1
        return x, (y if planted else y / 20)
    return dict(model=Perceptron, data=data, loss=mse, lr=2e-2, diag={})
