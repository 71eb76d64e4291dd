from base import *

@case("https://github.com/sachaguer/jaxili/issues/4", "power-spectrum data of order 1e-8 are fed to the mixture density network unnormalised", "input scale")
def jaxili_scale(planted):
    W = T(5, 3, 12)
    class MDN(nn.Module):
        def __init__(s, K=3): super().__init__(); s.K = K; s.net = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, K * 7))
        def forward(s, x):
            if not planted: x = (x - 3e-8) / 1e-8
            o = s.net(x).view(-1, s.K, 7); return o[..., 0].log_softmax(-1), o[..., 1:4], o[..., 4:].clamp(-6, 3)
    def nll(o, th):
        lp, mu, ls = o; return -torch.logsumexp(lp - (ls + .5 * ((th[:, None] - mu) / ls.exp()) ** 2 + .9189).sum(-1), -1).mean()
    def data(seed): th = T(seed, 64, 3); return 1e-8 * (3 + .5 * th @ W + T(seed + 1, 64, 12, k=.2)), th
    return dict(model=MDN, data=data, loss=nll, lr=3e-3, diag={})

@case("https://github.com/ozanciga/gans-with-pytorch/issues/2", "the WGAN critic ends with a sigmoid", "critic output sigmoid")
def wgan_sigmoid(planted):
    class Critic(nn.Module):
        def __init__(s): super().__init__(); s.l1, s.l2, s.l3 = nn.Linear(16, 64), nn.Linear(64, 64), nn.Linear(64, 1)
        def f(s, x):
            for l in (s.l1, s.l2): x = F.leaky_relu(F.linear(x, l.weight.clamp(-.1, .1), l.bias), .2)
            x = F.linear(x, s.l3.weight.clamp(-.1, .1), s.l3.bias); return torch.sigmoid(x) if planted else x
        def forward(s, real, fake): return s.f(real), s.f(fake)
    A, B = T(3, 4, 16), T(4, 4, 16)
    def data(seed): return (torch.tanh(T(seed, 64, 4) @ A) + .5, torch.tanh(T(seed + 1, 64, 4) @ B)), torch.zeros(64)
    return dict(model=Critic, data=data, loss=lambda o, t: o[1].mean() - o[0].mean(), lr=1e-3, diag={})

@case("https://github.com/FluxML/Flux.jl/issues/1209", "backpropagation through time is cut after one step (the stored state carries no gradient)", "recurrent state")
def flux_bptt(planted):
    class RNNCell(nn.Module):
        def __init__(s, i, h): super().__init__(); s.Wi, s.Wh = nn.Linear(i, h), nn.Linear(h, h, bias=False); nn.init.xavier_uniform_(s.Wi.weight); nn.init.xavier_uniform_(s.Wh.weight)
        def forward(s, x, h): return torch.tanh(s.Wi(x) + s.Wh(h))
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.cell = RNNCell(6, 32); s.out = nn.Linear(32, 1)
        def forward(s, x):
            h = x.new_zeros(x.size(0), 32)
            for t in range(x.size(1)): h = s.cell(x[:, t], h.detach() if planted else h)
            return s.out(h)
    def data(seed):
        x = T(seed, 64, 8, 6, k=.7); return x, x[:, 0, :1] * 1.4
    return dict(model=Net, data=data, loss=mse, lr=1e-2, diag={})

@case("https://github.com/pytorch/pytorch/issues/55270", "deep transformer encoder with post-norm layers and Xavier initialisation does not train", "norm_first=False in the deep encoder")
def postnorm_deep(planted):
    V, L = 8, 6
    class Encoder(nn.Module):
        def __init__(s):
            super().__init__(); s.emb, s.pos = nn.Embedding(V, 32), nn.Parameter(torch.randn(1, L, 32) * .5)
            s.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, dropout=0., batch_first=True, norm_first=not planted), 12, norm=nn.LayerNorm(32), enable_nested_tensor=False); s.out = nn.Linear(32, V)
            for p in s.layers.parameters():
                if p.dim() > 1: nn.init.xavier_uniform_(p)
        def forward(s, x): return s.out(s.layers(s.emb(x) + s.pos))
    def data(seed): x = R(seed, V, (32, L)); return x, x.roll(1, 1)
    return dict(model=Encoder, data=data, loss=ceseq, lr=2e-3, diag={})
