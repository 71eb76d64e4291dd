from base import *
def lm(s, V, n=16, L=12):
    perm = torch.randperm(V, generator=gen(3)); x = [R(s, V, (n,))]; g = gen(s + 1)
    for _ in range(L): nxt = perm[x[-1]]; r = torch.rand(n, generator=g) < .1; x.append(torch.where(r, torch.randint(0, V, (n,), generator=g), nxt))
    return torch.stack(x, 1)

@case("https://github.com/reiniscimurs/DRL-robot-navigation/issues/12", "critic multiplies by layer_2_s.weight.data / layer_2_a.weight.data: these layers get no gradient", "layer_2_s, layer_2_a")
def robot_critic(planted):
    class Critic(nn.Module):
        def __init__(s):
            super().__init__(); s.layer_1 = nn.Linear(12, 64); s.layer_2_s = nn.Linear(64, 64); s.layer_2_a = nn.Linear(2, 64); s.layer_3 = nn.Linear(64, 1)
        def forward(s, st, a):
            s1 = F.relu(s.layer_1(st))
            if planted:
                s11 = torch.mm(s1, s.layer_2_s.weight.data.t()); s12 = torch.mm(a, s.layer_2_a.weight.data.t()); s1 = F.relu(s11 + s12 + s.layer_2_a.bias.data)
            else: s1 = F.relu(s.layer_2_s(s1) + s.layer_2_a(a))
            return s.layer_3(s1)
    w = T(4, 12, 2) * .4
    def data(seed): st, a = T(seed, 64, 12), torch.tanh(T(seed + 1, 64, 2)); return (st, a), (torch.tanh(st @ w) * a * 2).sum(-1, keepdim=True)
    return dict(model=Critic, data=data, loss=mse, lr=3e-3, diag={})

class Attn(nn.Module):
    def __init__(s, d, h, view): super().__init__(); s.h, s.view = h, view; s.q = nn.Linear(d, d); s.k = nn.Linear(d, d); s.v = nn.Linear(d, d); s.out = nn.Linear(d, d)
    def forward(s, x, mask=None):
        B, L, D = x.shape
        f = (lambda t: t.view(B, L, s.h, -1).view(B, s.h, L, -1)) if s.view else (lambda t: t.view(B, L, s.h, -1).transpose(1, 2))
        q, k, v = f(s.q(x)), f(s.k(x)), f(s.v(x)); a = q @ k.transpose(-1, -2) / math.sqrt(D // s.h)
        if mask is not None: a = a + mask
        y = a.softmax(-1) @ v
        return s.out(y.reshape(B, L, D) if s.view else y.transpose(1, 2).reshape(B, L, D))

@case("https://github.com/aymericdamien/TensorFlow-Examples/issues/207", "no activation function between the layers of the MLP", "layer_1, layer_2 without relu")
def tf_examples_linear(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.h1 = nn.Linear(8, 64); s.h2 = nn.Linear(64, 64); s.out = nn.Linear(64, 4)
        def forward(s, x):
            a = (lambda z: z) if planted else F.relu
            return s.out(a(s.h2(a(s.h1(x)))))
    def data(seed): x = T(seed, 64, 8); return x, (x[:, 0] * x[:, 1] > 0).long() * 2 + (x[:, 2].abs() > .7).long()
    return dict(model=Net, data=data, loss=ce, lr=5e-3, diag={})

class GPT(nn.Module):
    def __init__(s, V, d=32, L=12):
        super().__init__(); s.wte = nn.Embedding(V, d); s.wpe = nn.Embedding(L, d); s.ln1 = nn.LayerNorm(d); s.attn = Attn(d, 4, False); s.ln2 = nn.LayerNorm(d); s.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d)); s.ln_f = nn.LayerNorm(d); s.head = nn.Linear(d, V, bias=False)
    def forward(s, x):
        L = x.shape[1]; m = torch.full((L, L), float("-inf")).triu(1); h = s.wte(x) + s.wpe(torch.arange(L)); h = h + s.attn(s.ln1(h), m); return s.head(s.ln_f(h + s.mlp(s.ln2(h))))

@case("https://github.com/huggingface/transformers/pull/37830", "logits and labels are shifted once in the model and again in the loss: next-next token prediction", "shift in the loss")
def jetmoe_shift(planted):
    def data(seed): x = lm(seed, 20, L=12)[:, :12]; return x, x
    def loss(o, t):
        if planted: o, t = o[:, :-1], torch.cat([t[:, 1:]], 1)
        return F.cross_entropy(o[:, :-1].flatten(0, 1), t[:, 1:].flatten())
    return dict(model=lambda: GPT(20), data=data, loss=loss, lr=5e-3, diag={})

@case("https://github.com/macrocosm-os/pretraining/pull/64", "labels are not shifted in the causal LM loss: the model learns to predict the current token", "labels in the loss")
def bart_unshifted(planted):
    def data(seed): x = lm(seed, 24, L=12); return x[:, :-1], x[:, :-1] if planted else x[:, 1:]
    return dict(model=lambda: GPT(24), data=data, loss=ceseq, lr=5e-3, diag={})

@case("https://github.com/THUDM/WebRL/issues/39", "softmax applied before CrossEntropyLoss in the value head", "critic softmax / loss")
def webrl_softmax(planted):
    class Critic(nn.Module):
        def __init__(s): super().__init__(); s.base = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()); s.head = nn.Linear(64, 2)
        def forward(s, x): v = s.head(s.base(x)); return F.softmax(v, -1) if planted else v
    w = T(14, 32)
    def data(seed): x = T(seed, 32, 32); return x, (x @ w > 0).long()
    return dict(model=Critic, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/Emory-Melody/GraphSlim/issues/4", "GraphConvolution multiplies by the raw adjacency: no normalisation and no self loops", "adj in GraphConvolution")
def graphslim_adj(planted):
    n = 60; y = torch.arange(n) % 3; P = torch.where(y[:, None] == y[None], .6, .15); A = (torch.rand(n, n, generator=gen(2)) < P).float().triu(1); A = A + A.T
    if not planted: A = A + torch.eye(n); d = A.sum(1).rsqrt(); A = d[:, None] * A * d
    class GCN(nn.Module):
        def __init__(s):
            super().__init__(); s.register_buffer("adj", A); s.w = nn.ParameterList([nn.Parameter(torch.empty(i, o)) for i, o in ((8, 32), (32, 32), (32, 3))])
            for w in s.w: nn.init.uniform_(w, -1 / math.sqrt(w.shape[1]), 1 / math.sqrt(w.shape[1]))
        def forward(s, x):
            for i, w in enumerate(s.w): x = s.adj @ (x @ w); x = F.relu(x) if i < 2 else x
            return x
    mu = T(17, 3, 8) * .5
    def data(seed): return mu[y] + T(seed, n, 8), y
    return dict(model=GCN, data=data, loss=ce, lr=1e-2, diag={})

class AC(nn.Module):
    def __init__(s): super().__init__(); s.actor = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 3)); s.critic = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 1))
    def forward(s, x): return s.actor(x), s.critic(x)[:, 0]
Wac = T(21, 6, 3)
def acdata(seed, n=64):
    x = T(seed, n, 6); a = R(seed + 1, 3, (n,)); r = (a == (x @ Wac).argmax(1)).float() + 2 * x[:, 0] + 1; return x, torch.stack([a.float(), r], 1)

@case("https://github.com/jsboige/CoursIA/pull/15256", "the value loss is computed on detached values: the critic is never trained", "value loss (v.detach())")
def dead_critic(planted):
    def loss(o, t):
        lg, v = o; lp = F.log_softmax(lg, -1).gather(1, t[:, :1].long())[:, 0]; adv = t[:, 1] - v.detach()
        return -(adv * lp).mean() * .1 + .5 * (t[:, 1] - (v.detach() if planted else v)).pow(2).mean()
    def metric(m): x, t = acdata(9000, 512); return float(F.mse_loss(m(x)[1], t[:, 1]))
    return dict(model=AC, data=acdata, loss=loss, lr=1e-2, diag={}, metric=metric)

