from base import *

@case("https://github.com/tiny-dnn/tiny-dnn/issues/961", "the dropout mask is drawn with p = dropout rate of keeping: with rate 0.1 nearly everything is dropped", "dropout_layer mask")
def tinydnn_dropout(planted):
    W = T(4, 16, 6)
    class DropoutLayer(nn.Module):
        def __init__(s, dropout_rate): super().__init__(); s.dropout_rate = dropout_rate; s.scale = 1 / (1 - dropout_rate)
        def forward(s, x):
            mask = torch.bernoulli(torch.full_like(x, s.dropout_rate if planted else 1 - s.dropout_rate)); return mask * s.scale * x
    def Net(): return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), DropoutLayer(.02), nn.Linear(64, 64), nn.ReLU(), DropoutLayer(.02), nn.Linear(64, 6))
    def data(seed): x = T(seed, 64, 16); return x, (x @ W).argmax(1)
    return dict(model=Net, data=data, loss=ce, lr=3e-3, diag={})

@case("https://github.com/jsboige/CoursIA/pull/15256", "rollout stores value.item(): the critic head's loss is detached from the graph", "critic head")
def coursia_critic(planted):
    Wv, Wp = T(5, 10, 1), T(6, 10, 4)
    class ActorCritic(nn.Module):
        def __init__(s): super().__init__(); s.body = nn.Sequential(nn.Linear(10, 64), nn.Tanh()); s.actor, s.critic = nn.Linear(64, 4), nn.Linear(64, 1)
        def forward(s, obs):
            h = s.body(obs); values = s.critic(h).squeeze(-1)
            if planted: values = torch.tensor([v.item() for v in values])
            return s.actor(h), values
    def loss(o, t):
        act, ret = t; logits, v = o; adv = (ret - v).detach(); lp = F.log_softmax(logits, -1).gather(1, act[:, None])[:, 0]
        return -(lp * adv).mean() * .2 + .5 * F.mse_loss(v, ret)
    def data(seed):
        x = T(seed, 64, 10); a = R(seed + 1, 4, (64,)); return x, (a, torch.tanh(x @ Wv / 2)[:, 0] * 2 + 2 + ((x @ Wp).argmax(1) == a).float())
    return dict(model=ActorCritic, data=data, loss=loss, lr=3e-3, diag={})

@case("https://github.com/awslabs/gluonts/pull/1401", "masked scores are set to 1e-9 instead of -1e9", "attention score mask")
def gluonts_mask(planted):
    Wo = T(7, 8, 1)
    class TFTAttention(nn.Module):
        def __init__(s, d=32):
            super().__init__(); s.inp = nn.Linear(8, d); s.pos = nn.Parameter(torch.randn(1, 16, d) * .1); s.q, s.k, s.v, s.o = (nn.Linear(d, d) for _ in range(4)); s.grn = nn.Sequential(nn.Linear(d, d), nn.ELU(), nn.Linear(d, d)); s.ln = nn.LayerNorm(d); s.head = nn.Linear(d, 1)
        def forward(s, x, mask):
            h = s.inp(x) + s.pos; score = s.q(h) @ s.k(h).transpose(1, 2) / h.size(-1) ** .5
            score = score.masked_fill(mask[:, None] == 0, 1e-9 if planted else -1e9)
            h = s.ln(h + s.o(score.softmax(-1) @ s.v(h))); return s.head((h + s.grn(h))[:, 0])
    def data(seed):
        n = R(seed, 12, (64, 1)) + 3; m = (torch.arange(16)[None] < n).float(); x = T(seed + 1, 64, 16, 8); x = x * m[..., None] + 3 * T(seed + 2, 64, 16, 8) * (1 - m[..., None])
        y = torch.tanh((x * m[..., None]).sum(1) / m.sum(1, keepdim=True) @ Wo * 1.5); return (x, m), y
    return dict(model=TFTAttention, data=data, loss=mse, lr=5e-3, diag={})

@case("https://github.com/georg-wolflein/good-features/pull/1", "attention scores are multiplied by the binary mask before the softmax", "ABMIL masked attention")
def goodfeatures_mask(planted):
    class AttentionMIL(nn.Module):
        def __init__(s): super().__init__(); s.enc = nn.Sequential(nn.Linear(16, 32), nn.ReLU()); s.att = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)); s.head = nn.Linear(32, 2)
        def forward(s, x, mask):
            h = s.enc(x); a = s.att(h).squeeze(-1)
            a = (a * mask if planted else a.masked_fill(mask == 0, -torch.inf)).softmax(1); return s.head((a[..., None] * h).sum(1))
    W = T(4, 16)
    def data(seed):
        n = R(seed, 10, (64, 1)) + 2; m = (torch.arange(24)[None] < n).float(); t = R(seed + 1, 2, (64,)); x = T(seed + 2, 64, 24, 16); x[:, 0] += (t.float() * 2 - 1)[:, None] * W * .6 + 2 * torch.eye(16)[3]
        return (x * m[..., None], m), t
    return dict(model=AttentionMIL, data=data, loss=ce, lr=5e-3, diag={})

@case("https://github.com/phlippe/uvadlc_notebooks/issues/119", "sigmoid as activation of the deep MLP", "act_fn")
def uvadlc_sigmoid(planted):
    P = torch.rand(10, 196, generator=gen(4)); mu = P.mean()
    class BaseNetwork(nn.Module):
        def __init__(s, input_size=196, num_classes=10, hidden_sizes=(128, 64, 64, 32)):
            super().__init__(); layers, ls = [], [input_size, *hidden_sizes]; act = nn.Sigmoid if planted else nn.ReLU
            for i in range(1, len(ls)): layers += [nn.Linear(ls[i - 1], ls[i]), act()]
            s.layers = nn.Sequential(*layers, nn.Linear(ls[-1], num_classes))
        def forward(s, x): return s.layers(x.view(x.size(0), -1))
    def data(seed): t = R(seed, 10, (32,)); return (P[t] - mu) * 2 + T(seed + 1, 32, 196, k=.7), t
    return dict(model=BaseNetwork, data=data, loss=ce, lr=1e-3, diag={})

@case("https://github.com/duanyiqun/YOLO-Minimal/issues/2", "object masks are taken from channel 5 (first class) instead of channel 4 (confidence)", "coord_mask / noobj_mask")
def yolo_mask(planted):
    P = T(5, 3, 3, 3).sign()
    class Yolo(nn.Module):
        def __init__(s):
            super().__init__(); c = lambda i, o: [nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.LeakyReLU(.1), nn.MaxPool2d(2)]
            s.net = nn.Sequential(*c(1, 16), *c(16, 32), nn.Conv2d(32, 8, 1), nn.Sigmoid())
        def forward(s, x): return s.net(x).permute(0, 2, 3, 1).flatten(1, 2)
    def data(seed):
        x = T(seed, 16, 1, 16, 16, k=.3); t = torch.zeros(16, 4, 4, 8); pos, cl = R(seed + 1, 13, (16, 2)), R(seed + 2, 3, (16,))
        for i in range(16):
            r, c = pos[i].tolist(); x[i, 0, r:r + 3, c:c + 3] += 1.5 * P[cl[i]]; cy, cx = (r + 1.5) / 4, (c + 1.5) / 4; gy, gx = int(cy), int(cx)
            t[i, gy, gx, :5] = torch.tensor([cx - gx, cy - gy, .3, .3, 1.]); t[i, gy, gx, 5 + cl[i]] = 1
        return x, t.flatten(1, 2)
    def loss(o, t):
        k = 5 if planted else 4
        coord, noobj = t[:, :, k] > 0, t[:, :, k] == 0
        return (5 * ((o[coord][:, :4] - t[coord][:, :4]) ** 2).sum() + ((o[coord][:, 4] - 1) ** 2).sum() + .5 * (o[noobj][:, 4] ** 2).sum() + ((o[coord][:, 5:] - t[coord][:, 5:]) ** 2).sum()) / len(o)
    return dict(model=Yolo, data=data, loss=loss, lr=3e-3, diag={})

@case("https://github.com/craffel/nntools/issues/19", "forget gate bias initialised around zero instead of a large value", "LSTM forget gate bias")
def nntools_forget(planted):
    L = 30
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.lstm = nn.LSTM(8, 32, batch_first=True); s.fc = nn.Linear(32, 4)
            for n, p in s.lstm.named_parameters():
                if "weight" in n: nn.init.normal_(p, std=.1)
                else: nn.init.normal_(p, std=.05); p.data[32:64] += 0. if planted else 2.5
        def forward(s, x): return s.fc(s.lstm(x)[0][:, -1])
    def data(seed):
        t = R(seed, 4, (32,)); x = T(seed + 1, 32, L, 8, k=.3); x[:, 0, :4] += 2 * F.one_hot(t, 4).float(); return x, t
    return dict(model=Net, data=data, loss=ce, lr=1e-2, diag={})

@case("https://github.com/zalandoresearch/pytorch-vq-vae/issues/2", "[Residual(...)] * n repeats one module, so all residual layers share their weights", "ResidualStack._layers")
def vqvae_shared(planted):
    W = T(3, 8, 3 * 64) / 3
    class Residual(nn.Module):
        def __init__(s, c): super().__init__(); s._block = nn.Sequential(nn.ReLU(), nn.Conv2d(c, 16, 3, padding=1, bias=False), nn.ReLU(), nn.Conv2d(16, c, 1, bias=False))
        def forward(s, x): return x + s._block(x)
    class ResidualStack(nn.Module):
        def __init__(s, c, n): super().__init__(); s._layers = nn.ModuleList([Residual(c)] * n if planted else [Residual(c) for _ in range(n)])
        def forward(s, x):
            for l in s._layers: x = l(x)
            return F.relu(x)
    class AE(nn.Module):
        def __init__(s):
            super().__init__(); s.enc = nn.Sequential(nn.Conv2d(3, 32, 4, stride=2, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), ResidualStack(32, 3), nn.Conv2d(32, 4, 1)); s.dec = nn.Sequential(nn.Conv2d(4, 32, 3, padding=1), ResidualStack(32, 3), nn.ConvTranspose2d(32, 3, 4, stride=2, padding=1))
        def forward(s, x): return s.dec(s.enc(x))
    def data(seed): x = torch.tanh(T(seed, 32, 8) @ W).view(32, 3, 8, 8); return x, x
    return dict(model=AE, data=data, loss=mse, lr=3e-3, diag={})
