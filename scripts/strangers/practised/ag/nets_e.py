from base import *

@case("http://pullrequest.ru/14648367/neironnaya-set-sigmovidnymi-neironami-uznaet-dobavlen-faktor-vsem-vesam-smescheniyam-posle-initsializatsii", "constant 0.28 added to all weights and biases after initialisation: sigmoids saturate", "initial weights (offset)")
def sigmoid_net_shifted_weights(planted):
    class Network(nn.Module):
        def __init__(self, sizes=(784, 30, 10)):
            super().__init__(); off = .28 if planted else 0.
            self.weights = nn.ParameterList(nn.Parameter(torch.randn(y, x) + off) for x, y in zip(sizes[:-1], sizes[1:]))
            self.biases = nn.ParameterList(nn.Parameter(torch.randn(y) + off) for y in sizes[1:])
        def forward(self, a):
            for w, b in zip(self.weights, self.biases): a = torch.sigmoid(a @ w.t() + b)
            return a
    P = (torch.rand(10, 784, generator=gen(1)) < .19).float()
    def data(seed):
        y = R(seed, 10, (64,)); x = P[y] * torch.rand(64, 784, generator=gen(seed + 1)).clamp(.3, 1) + (torch.rand(64, 784, generator=gen(seed + 2)) < .05).float()
        return x.clamp(0, 1), F.one_hot(y, 10).float()
    def cost(a, y): return .5 * ((a - y) ** 2).sum(1).mean()
    return dict(model=Network, data=data, loss=cost, lr=5e-3, diag={})

@case("https://ai.stackexchange.com/questions/36451/why-do-smaller-weights-converge-faster-for-rnns", "RNN weights from np.random.randn (std 1) instead of divided by 1000", "initial weights (Wxh, Whh, Why)")
def rnn_randn_weights(planted):
    class RNN(nn.Module):
        def __init__(self, i=18, o=2, h=64):
            super().__init__(); k = 1. if planted else 1e-3
            self.Whh = nn.Parameter(torch.randn(h, h) * k); self.Wxh = nn.Parameter(torch.randn(h, i) * k); self.Why = nn.Parameter(torch.randn(o, h) * k)
            self.bh = nn.Parameter(torch.zeros(h)); self.by = nn.Parameter(torch.zeros(o))
        def forward(self, x):
            h = x.new_zeros(len(x), self.Whh.size(0))
            for k in range(x.size(1)): h = torch.tanh(x[:, k] @ self.Wxh.t() + h @ self.Whh.t() + self.bh)
            return h @ self.Why.t() + self.by
    v = T(3, 18)
    def data(seed):
        ids = R(seed, 18, (64, 8)); return F.one_hot(ids, 18).float(), (v[ids].sum(1) > v.sum() / 18 * 8).long()
    return dict(model=RNN, data=data, loss=ce, lr=3e-3, diag={})

@case("https://github.com/keras-team/keras/issues/16916", "dot-product Attention layer without 1/sqrt(dim) scaling (keras default) in a perceiver", "attention scores not scaled")
def perceiver_unscaled_attention(planted):
    D = 128
    class Attention(nn.Module):
        def forward(self, q, v):
            s = q @ v.transpose(1, 2)
            if not planted: s = s / math.sqrt(q.size(-1))
            return s.softmax(-1) @ v
    class Perceiver(nn.Module):
        def __init__(self):
            super().__init__(); self.latent = nn.Parameter(torch.randn(8, D) * .05); self.embed = nn.Linear(1 + 16, D)
            self.ln_q = nn.ModuleList(nn.LayerNorm(D) for _ in range(2)); self.ln_x = nn.LayerNorm(D); self.ln_f = nn.ModuleList(nn.LayerNorm(D) for _ in range(2))
            self.att = Attention(); self.ff = nn.ModuleList(nn.Sequential(nn.Linear(D, D), nn.GELU(), nn.Linear(D, D)) for _ in range(2)); self.out = nn.Linear(D, 10)
            p = torch.linspace(-1, 1, 8); yy, xx = torch.meshgrid(p, p, indexing="ij")
            f = torch.stack([g(math.pi * 2. ** k * c) for k in range(4) for c in (yy, xx) for g in (torch.sin, torch.cos)], -1)
            self.register_buffer("fourier", f.reshape(64, 16))
        def forward(self, x):
            t = self.embed(torch.cat([x.flatten(1)[..., None], self.fourier.expand(len(x), -1, -1)], -1)); t = self.ln_x(t)
            l = self.latent.expand(len(x), -1, -1)
            for q, f, ff in zip(self.ln_q, self.ln_f, self.ff): l = l + self.att(q(l), t); l = l + ff(f(l))
            return self.out(l.mean(1))
    P = (T(1, 10, 1, 8, 8) > .3).float()
    def data(seed):
        y = R(seed, 10, (64,)); return (P[y] + T(seed + 1, 64, 1, 8, 8, k=.2)), y
    return dict(model=Perceiver, data=data, loss=ce, lr=2e-3, diag={})
