from base import *

@case("https://huggingface.co/datasets/nvidia/Nemotron-CC-Math-v1#why-my-weights-are-being-the-same", "all weights and biases initialised with 1", "all weights")
def ones_init(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.l1 = nn.Linear(2, 8); s.l2 = nn.Linear(8, 8); s.l3 = nn.Linear(8, 2)
            if planted:
                for p in s.parameters(): nn.init.ones_(p)
            else:
                for m in (s.l1, s.l2, s.l3): nn.init.xavier_normal_(m.weight, gain=3.); nn.init.zeros_(m.bias)
        def forward(s, x): return torch.sigmoid(s.l3(torch.sigmoid(s.l2(torch.sigmoid(s.l1(x))))))
    def data(seed):
        x = T(seed, 64, 2); return x, torch.stack([(x[:, 0] > 0).float(), (x[:, 1] > 0).float()], 1) * .8 + .1
    return dict(model=Net, data=data, loss=mse, lr=3e-2, diag={})

@case("https://discuss.pytorch.org/t/large-performance-gap-between-pytorch-and-keras-for-imdb-sentiment-analysis-model/135659", "embedding left at N(0,1) where the reference uses U(-0.05,0.05)", "embedding.weight")
def cbow_embed_init(planted):
    V, L = 400, 20
    class CBOWFlattenNet(nn.Module):
        def __init__(s):
            super().__init__(); s.embedding = nn.Embedding(V, 16, padding_idx=0); s.flatten = nn.Flatten(start_dim=-2, end_dim=-1); s.fc = nn.Linear(16 * L, 1)
            if not planted: nn.init.uniform_(s.embedding.weight, -.05, .05)
            nn.init.xavier_uniform_(s.fc.weight); nn.init.zeros_(s.fc.bias)
        def forward(s, x): return s.fc(s.flatten(s.embedding(x)))
    W = T(1, V)
    def data(seed): x = 1 + (torch.rand(64, L, generator=gen(seed)) ** 2 * (V - 1)).long(); return x, (W[x].sum(1, keepdim=True) > 0).float()
    return dict(model=CBOWFlattenNet, data=data, loss=F.binary_cross_entropy_with_logits, lr=5e-3, diag={})

@case("https://huggingface.co/datasets/nvidia/Nemotron-CC-Math-v1#how-to-solve-the-loss-becoming-nan-due-to-using-torchlog", "torch.log of a linear output that can be negative or zero", "torch.log in forward")
def log_of_linear(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.enc = nn.Linear(12, 32); s.feat = nn.Linear(32, 16); s.out = nn.Linear(16, 3)
        def forward(s, x):
            t = s.feat(torch.tanh(s.enc(x)))
            t = torch.log(t) if planted else torch.log(torch.sigmoid(t) + 1e-7)
            return s.out(t)
    W = T(2, 12, 3)
    def data(seed): x = T(seed, 32, 12); return x, (x @ W).argmax(1)
    return dict(model=Net, data=data, loss=ce, lr=3e-3, diag={})

@case("https://isolution.pro/q/so75639192/itsu-kasseika-kansu-ga-hitsuyo-nai-no-desu-ka", "sigmoid on the only layer of a linear regression y = 2x + 1", "activation of dense")
def regression_sigmoid(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.dense = nn.Linear(1, 1)
        def forward(s, x): x = s.dense(x); return torch.sigmoid(x) if planted else x
    def data(seed): x = 1. + R(seed, 7, (16, 1)).float(); return x, 2 * x + 1
    return dict(model=Net, data=data, loss=mse, lr=5e-2, diag={})

@case("https://tracker-7ex.pages.dev/00_ai_foundation/04_autoregressive_generation/01-opening-failure/", "no causal mask in the attention of a next-token model", "attention mask")
def no_causal_mask(planted):
    V, D, S = 16, 32, 10
    class Attn(nn.Module):
        def __init__(s): super().__init__(); s.q, s.k, s.v, s.o = (nn.Linear(D, D) for _ in range(4))
        def forward(s, x):
            sc = s.q(x) @ s.k(x).transpose(-1, -2) / D ** .5
            if not planted: sc = sc.masked_fill(torch.triu(torch.ones(x.shape[1], x.shape[1]), 1).bool(), float("-inf"))
            return s.o(sc.softmax(-1) @ s.v(x))
    class LM(nn.Module):
        def __init__(s):
            super().__init__(); s.tok = nn.Embedding(V, D); s.pos = nn.Embedding(S, D); s.ln1 = nn.ModuleList(nn.LayerNorm(D) for _ in range(2)); s.ln2 = nn.ModuleList(nn.LayerNorm(D) for _ in range(2)); s.attn = nn.ModuleList(Attn() for _ in range(2))
            s.ff = nn.ModuleList(nn.Sequential(nn.Linear(D, 64), nn.GELU(), nn.Linear(64, D)) for _ in range(2)); s.head = nn.Linear(D, V)
        def forward(s, i):
            x = s.tok(i) + s.pos(torch.arange(i.shape[1]))
            for a, b, c, d in zip(s.ln1, s.attn, s.ln2, s.ff): x = x + b(a(x)); x = x + d(c(x))
            return s.head(x)
    P = T(3, V, V, k=2.).softmax(-1)
    def data(seed, n=32):
        g = gen(seed); q = [torch.randint(0, V, (n,), generator=g)]
        for _ in range(S): q.append(torch.multinomial(P[q[-1]], 1, generator=g)[:, 0])
        q = torch.stack(q, 1); return q[:, :-1], q[:, 1:]
    def metric(m):
        with torch.no_grad(): x, t = data(9001, 256); return sum(F.cross_entropy(m(x[:, :k])[:, -1], t[:, k - 1]) for k in range(1, S + 1)) / S
    return dict(model=LM, data=data, loss=ceseq, lr=3e-3, diag={}, metric=metric)

@case("https://ips99.com/show/4/557508.html", "torch.clamp(pred, 0.1, 0.9) on an output that starts below 0.1", "clamp of fc output")
def output_clamp(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.body = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU()); s.fc = nn.Linear(32, 1)
            nn.init.normal_(s.fc.weight, std=.01); nn.init.constant_(s.fc.bias, .01)
        def forward(s, x):
            p = s.fc(s.body(x))
            return p.clamp(min=.1, max=.9) if planted else p.clamp(min=.1, max=.9).detach() + p - p.detach()
    W = T(4, 6, 1)
    def data(seed): x = T(seed, 64, 6); return x, .1 + .8 * torch.sigmoid(x @ W)
    return dict(model=Net, data=data, loss=mse, lr=2e-3, diag={})

@case("https://e-com-net.com/article/1610540118618177536.htm", "sqrt of a squared error that is exactly zero for masked samples (no eps)", "sqrt in the loss")
def rmse_zero(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.rnn = nn.GRU(4, 24, batch_first=True); s.fc = nn.Linear(24, 1)
        def forward(s, x): return s.fc(s.rnn(x)[0])[..., 0]
    W = T(5, 4)
    def data(seed):
        x = T(seed, 32, 8, 4); m = (torch.arange(8) < R(seed + 1, 9, (32, 1))).float(); return x, torch.stack([(x @ W).cumsum(1) / 4, m])
    def loss(o, t):
        m = ((o - t[0]) * t[1]).pow(2).mean(1)
        return (torch.sqrt(m) if planted else torch.sqrt(m + 1e-8)).mean()
    return dict(model=Net, data=data, loss=loss, lr=5e-3, diag={})

@case("https://discuss.pytorch.org/t/bilstm-output-hidden-state-mismatch/49825", "output[-1] of a BiLSTM used as the sentence vector (backward half has seen one step only)", "output[:, -1]")
def bilstm_last(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.embed = nn.Embedding(30, 16); s.lstm = nn.LSTM(16, 32, batch_first=True, bidirectional=True); s.fc = nn.Linear(64, 5)
        def forward(s, x):
            output, (h_n, c_n) = s.lstm(s.embed(x))
            return s.fc(output[:, -1] if planted else torch.cat([h_n[0], h_n[1]], -1))
    def data(seed): x = R(seed, 30, (32, 40)); return x, x[:, 0] % 5
    return dict(model=Net, data=data, loss=ce, lr=5e-3, diag={})

@case("https://blog.csdn.net/qq_24739717/article/details/102896678", "nn.init.normal_ (std 1) for the layers of a deep MLP", "linears.*.weight")
def deep_mlp_normal(planted):
    class MLP(nn.Module):
        def __init__(s, n=64, layers=10):
            super().__init__(); s.inp = nn.Linear(20, n, bias=False); s.linears = nn.ModuleList([nn.Linear(n, n, bias=False) for _ in range(layers)]); s.out = nn.Linear(n, 6); s.initialize()
        def initialize(s):
            for m in s.modules():
                if isinstance(m, nn.Linear): nn.init.normal_(m.weight.data) if planted else nn.init.kaiming_normal_(m.weight.data)
        def forward(s, x):
            x = torch.relu(s.inp(x))
            for l in s.linears: x = torch.relu(l(x))
            return s.out(x)
    W = T(7, 20, 6)
    def data(seed): x = T(seed, 64, 20); return x, (x @ W).argmax(1)
    return dict(model=MLP, data=data, loss=ce, lr=1e-3, diag={})
