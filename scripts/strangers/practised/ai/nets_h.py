from base import *

@case("https://gitea.computersurge.dev/github-starred/TinyTorch/src/commit/c23946b20e7e389ad8ddad76ab961aaa4f828c1b/tinytorch", "attention computed on .data, no gradient to the query/key/value projections", "scaled_dot_product_attention (.data)")
def attention_on_data(planted):
    V, D, S = 10, 32, 6
    class MultiHeadAttention(nn.Module):
        def __init__(s, h=4): super().__init__(); s.h = h; s.q_proj, s.k_proj, s.v_proj, s.out_proj = (nn.Linear(D, D) for _ in range(4))
        def forward(s, x):
            B, L, _ = x.shape
            q, k, v = (p(x).view(B, L, s.h, -1).transpose(1, 2) for p in (s.q_proj, s.k_proj, s.v_proj))
            if planted: q, k, v = q.data, k.data, v.data
            w = (q @ k.transpose(-1, -2) / (D // s.h) ** .5).softmax(-1)
            return s.out_proj((w @ v).transpose(1, 2).reshape(B, L, D))
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.tok = nn.Embedding(V, D); s.pos = nn.Embedding(S, D); s.ln1, s.ln2, s.ln_f = (nn.LayerNorm(D) for _ in range(3)); s.attn = MultiHeadAttention(); s.mlp = nn.Sequential(nn.Linear(D, 64), nn.GELU(), nn.Linear(64, D)); s.head = nn.Linear(D, V)
        def forward(s, i):
            x = s.tok(i) + s.pos(torch.arange(S)); x = x + s.attn(s.ln1(x)); x = x + s.mlp(s.ln2(x)); return s.head(s.ln_f(x))
    def data(seed): x = R(seed, V, (32, S)); return x, x.flip(1)
    return dict(model=Net, data=data, loss=ceseq, lr=5e-3, diag={})

@case("https://mejorcodigo.com/p/107273.html", "Softmax(dim=0) in a policy fed with batches: normalises over the states", "softmax dim")
def policy_softmax_dim0(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.model = nn.Sequential(nn.Linear(4, 150), nn.LeakyReLU(), nn.Linear(150, 2), nn.Softmax(dim=0 if planted else 1))
        def forward(s, x): return s.model(x)
    W = T(1, 4, 2)
    def data(seed):
        x = T(seed, 32, 4); a = R(seed + 1, 2, (32,)); r = (a == (x @ W + torch.tensor([1., 0.])).argmax(1)).float(); return x, torch.stack([a.float(), r], 1)
    def loss(o, t): return -(t[:, 1] * o.gather(1, t[:, :1].long())[:, 0].log()).mean()
    return dict(model=Net, data=data, loss=loss, lr=2e-3, diag={})

@case("https://stats.stackexchange.com/questions/345044/generative-adversarial-networks-gradient-saturation", "generator minimises log(1 - D(G(z))) against a discriminator that rejects its samples", "generator loss")
def gan_saturating(planted):
    class Generator(nn.Module):
        def __init__(s): super().__init__(); s.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
        def forward(s, z): return s.net(z)
    mu = torch.tensor([2., -1.5])
    def disc(x): return 10. - 8. * (x - mu).pow(2).sum(1)
    def data(seed): return T(seed, 64, 8), torch.ones(64)
    def loss(x, t):
        d = disc(x)
        return torch.log(1 - torch.sigmoid(d) + 1e-8).mean() if planted else -F.logsigmoid(d).mean()
    def metric(m):
        with torch.no_grad(): return (m(data(9001)[0]) - mu).pow(2).sum(1).mean()
    return dict(model=Generator, data=data, loss=loss, lr=2e-3, diag={}, metric=metric)
