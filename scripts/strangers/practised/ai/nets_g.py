from base import *

@case("https://runebook.dev/ru/docs/pytorch/generated/torch.nn.transformerencoderlayer", "(N, S, E) input to TransformerEncoderLayer without batch_first=True", "encoder layers (batch_first)")
def encoder_not_batch_first(planted):
    V, D, S = 12, 32, 8
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.emb = nn.Embedding(V, D); s.pos = nn.Parameter(torch.randn(1, S, D) * .3)
            s.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(D, 4, 64, dropout=0., batch_first=not planted), 2); s.fc = nn.Linear(D, V)
        def forward(s, x): return s.fc(s.encoder(s.emb(x) + s.pos)[:, -1])
    def data(seed): x = R(seed, V, (32, S)); return x, x[:, 2]
    return dict(model=Net, data=data, loss=ce, lr=3e-3, diag={})

@case("https://tubenews.eu/?p=94902", "TD target of the critic not detached (gradient flows through the next state's value)", "td target in the loss")
def td_moving_target(planted):
    N, gam = 12, .95
    class Critic(nn.Module):
        def __init__(s): super().__init__(); s.net = nn.Sequential(nn.Linear(N, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
        def forward(s, st, nx): return torch.cat([s.net(st), s.net(nx)], 1)
    P = T(1, N, N, k=1.).softmax(-1); r = T(2, N); Vt = torch.linalg.solve(torch.eye(N) - gam * P, r)
    eye = torch.eye(N)
    def data(seed):
        i = R(seed, N, (64,)); j = torch.multinomial(P[i], 1, generator=gen(seed + 1))[:, 0]; return (eye[i], eye[j]), r[i]
    def loss(o, t):
        nxt = o[:, 1] if planted else o[:, 1].detach()
        return F.mse_loss(o[:, 0], t + gam * nxt)
    def metric(m):
        with torch.no_grad(): return F.mse_loss(m(eye, eye)[:, 0], Vt)
    return dict(model=Critic, data=data, loss=loss, lr=5e-3, diag={}, metric=metric)

@case("https://blog.chidansh.me/cis731/project/weekly-update/week-2", "windows stored (time, channels) reach Conv1d that expects (channels, time)", "input layout before conv1")
def gait_transposed(planted):
    C, L = 6, 48
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.conv1 = nn.Conv1d(C, 32, 5, padding=2); s.bn1 = nn.BatchNorm1d(32); s.conv2 = nn.Conv1d(32, 32, 5, padding=2, stride=2); s.bn2 = nn.BatchNorm1d(32); s.fc = nn.Linear(32, 8)
        def forward(s, x):
            x = x.reshape(-1, C, L) if planted else x.transpose(1, 2)
            x = F.relu(s.bn1(s.conv1(x))); x = F.relu(s.bn2(s.conv2(x))); return s.fc(x.mean(-1))
    fr = .3 + 1.2 * torch.rand(8, C, generator=gen(3))
    def data(seed):
        t = R(seed, 8, (32,)); ph = 6.28 * torch.rand(32, 1, C, generator=gen(seed + 1)); n = torch.arange(L).float()[None, :, None]
        return torch.sin(fr[t][:, None] * n + ph) + .3 * T(seed + 2, 32, L, C), t
    return dict(model=Net, data=data, loss=ce, lr=3e-3, diag={})

@case("https://runebook.dev/ru/docs/pytorch/generated/torch.nn.modulelist/torch.nn.ModuleList.append", "hidden layers kept in a plain python list, unknown to the optimizer", "layers")
def python_list_layers(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); dims = [12, 24, 24, 24, 16]
            layers = [nn.Linear(a, b) for a, b in zip(dims, dims[1:])]; s.layers = layers if planted else nn.ModuleList(layers); s.out = nn.Linear(16, 3)
        def forward(s, x):
            for l in s.layers: x = torch.relu(l(x))
            return s.out(x)
    W, U = T(4, 12, 16), T(5, 16, 3)
    def data(seed): x = T(seed, 64, 12); return x, torch.tanh(x @ W * .4) @ U * .4
    return dict(model=Net, data=data, loss=mse, lr=5e-3, diag={})
