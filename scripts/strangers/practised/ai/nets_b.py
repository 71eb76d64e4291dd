from base import *

@case("https://github.com/lightonai/pylate/pull/115", "contrastive loss on cosine MaxSim scores without a temperature (1.0 instead of 0.02)", "scores / temperature in the contrastive loss")
def colbert_temperature(planted):
    temperature = 1.0 if planted else .02
    class ColBERT(nn.Module):
        def __init__(s):
            super().__init__(); s.emb = nn.Embedding(64, 32); s.enc = nn.GRU(32, 32, batch_first=True, bidirectional=True); s.linear = nn.Linear(64, 16, bias=False)
        def embed(s, x): return F.normalize(s.linear(s.enc(s.emb(x))[0]), dim=-1)
        def forward(s, q, d):
            return torch.einsum("qid,bjd->qbij", s.embed(q), s.embed(d)).max(-1).values.mean(-1)
    syn = torch.randperm(32, generator=gen(5)) + 32
    def data(seed):
        d = torch.stack([torch.randperm(32, generator=gen(seed * 100 + k))[:6] for k in range(24)])
        pick = torch.stack([torch.randperm(6, generator=gen(seed * 100 + 50 + k))[:3] for k in range(24)])
        return (syn[d.gather(1, pick)], d), torch.arange(24)
    def loss(o, t): return F.cross_entropy(o / temperature, t)
    def metric(m):
        with torch.no_grad(): return sum(float((m(*data(s)[0]).argmax(1) != torch.arange(24)).float().mean()) for s in range(9000, 9005)) / 5
    return dict(model=ColBERT, data=data, loss=loss, lr=5e-3, diag={}, metric=metric)

@case("https://github.com/shenyangHuang/TGB/issues/83", "LinkPredictor already applies sigmoid, the criterion is BCEWithLogitsLoss", "LinkPredictor.forward .sigmoid()")
def tgb_sigmoid(planted):
    adj = (torch.rand(40, 40, generator=gen(2)) < .12).float(); adj = ((adj + adj.t()) > 0).float(); A = adj + torch.eye(40); dn = A.sum(1) ** -.5; A = dn[:, None] * A * dn[None]
    z = T(6, 40, 3); y = (z @ z.t() > .5).float()
    class LinkPredictor(nn.Module):
        def __init__(s, c): super().__init__(); s.lin_src = nn.Linear(c, c); s.lin_dst = nn.Linear(c, c); s.lin_final = nn.Linear(c, 1)
        def forward(s, a, b):
            h = s.lin_final((s.lin_src(a) + s.lin_dst(b)).relu()); return h.sigmoid() if planted else h
    class TGN(nn.Module):
        def __init__(s): super().__init__(); s.memory = nn.Embedding(40, 32); s.conv = nn.Linear(32, 32); s.link_pred = LinkPredictor(32); s.register_buffer("A", A)
        def forward(s, e):
            h = s.memory.weight; h = h + F.relu(s.conv(s.A @ h)); return s.link_pred(h[e[:, 0]], h[e[:, 1]])
    def data(seed):
        e = R(seed, 40, (64, 2)); return e, y[e[:, 0], e[:, 1]][:, None]
    return dict(model=TGN, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t), lr=1e-2, diag={})

@case("https://github.com/mead-ml/mead-baseline/pull/679", "masked_fill (out of place) is not assigned: attention also looks at the padding", "masked_fill result in the Bahdanau attention")
def mead_mask(planted):
    class Attn(nn.Module):
        def __init__(s, d): super().__init__(); s.W_a = nn.Linear(d, d, bias=False); s.E_a = nn.Linear(d, d, bias=False); s.v = nn.Linear(d, 1, bias=False)
        def forward(s, q, k, mask):
            a = s.v(torch.tanh(s.W_a(q)[:, None] + s.E_a(k))).squeeze(-1)
            if planted: a.masked_fill(mask == 0, -1e9)
            else: a = a.masked_fill(mask == 0, -1e9)
            return (F.softmax(a, -1)[..., None] * k).sum(1)
    class Seq2Seq(nn.Module):
        def __init__(s): super().__init__(); s.emb = nn.Embedding(22, 32); s.rnn = nn.GRU(32, 32, batch_first=True); s.attn = Attn(32); s.dec = nn.GRUCell(32, 32); s.out = nn.Linear(64, 22)
        def forward(s, src, mask, tgt):
            k, h = s.rnn(s.emb(src)); h = h[0]; o = []
            for i in range(tgt.size(1)):
                h = s.dec(s.emb(tgt[:, i]), h); o.append(s.out(torch.cat([h, s.attn(h, k, mask)], -1)))
            return torch.stack(o, 1)
    def data(seed):
        n = R(seed, 4, (32,)) + 3; x = R(seed + 1, 20, (32, 12)) + 2; m = (torch.arange(12)[None] < n[:, None]).long(); x = x * m
        y = torch.stack([x.gather(1, (n - 1 - i).clamp(min=0)[:, None])[:, 0] for i in range(3)], 1); return (x, m, torch.cat([torch.ones(32, 1).long(), y[:, :-1]], 1)), y
    return dict(model=Seq2Seq, data=data, loss=ceseq, lr=1e-2, diag={})

@case("https://github.com/amirhossein-razlighi/mlx3D/pull/22", "ReLU on the NeRF density: zero everywhere at init, all gradients zero", "relu on sigma head")
def nerf_density(planted):
    class NeRF(nn.Module):
        def __init__(s):
            super().__init__(); s.pts = nn.ModuleList([nn.Linear(18, 32), nn.Linear(32, 32), nn.Linear(32, 32)]); s.sigma = nn.Linear(32, 1); s.feat = nn.Linear(32, 32); s.rgb = nn.Linear(32, 3)
        def forward(s, o, d):
            t = torch.linspace(.2, 2, 16); p = o[:, None] + d[:, None] * t[:, None]
            h = torch.cat([f(p * 2 ** k) for k in range(3) for f in (torch.sin, torch.cos)], -1)
            for l in s.pts: h = F.relu(l(h))
            sig = s.sigma(h).squeeze(-1); sig = F.relu(sig) if planted else F.softplus(sig)
            a = 1 - torch.exp(-sig * .12); T_ = torch.cumprod(torch.cat([torch.ones_like(a[:, :1]), 1 - a + 1e-10], 1), 1)[:, :-1]
            return ((a * T_)[..., None] * torch.sigmoid(s.rgb(F.relu(s.feat(h))))).sum(1)
    def data(seed):
        o = torch.cat([T(seed, 64, 2, k=.5), -torch.ones(64, 1)], 1); d = F.normalize(torch.cat([T(seed + 1, 64, 2, k=.2), torch.ones(64, 1)], 1), dim=-1)
        b = (o * d).sum(1); disc = b ** 2 - (o ** 2).sum(1) + .36; n = o - d * (b + disc.clamp(min=0).sqrt())[:, None]
        return (o, d), torch.where(disc[:, None] > 0, .5 + n * .7, torch.zeros(64, 3)).clamp(0, 1)
    return dict(model=NeRF, data=data, loss=mse, lr=2e-3, diag={})

@case("https://github.com/rll-research/url_benchmark/issues/16", "obs and next_obs are detached again after the update_encoder switch: the encoder gets no gradient", "obs.detach() behind the encoder")
def icm_detach(planted):
    class Agent(nn.Module):
        def __init__(s):
            super().__init__(); s.encoder = nn.Sequential(nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten()); s.trunk = nn.Sequential(nn.Linear(256, 32), nn.LayerNorm(32), nn.Tanh()); s.backward_net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
        def forward(s, obs, next_obs):
            obs, next_obs = s.encoder(obs), s.encoder(next_obs)
            if planted: obs, next_obs = obs.detach(), next_obs.detach()
            return s.backward_net(torch.cat([s.trunk(obs), s.trunk(next_obs)], -1))
    mv = 3 * torch.tensor([[0, 1], [1, 0], [0, -1], [-1, 0]]); g = torch.arange(16)
    def draw(p, seed):
        x = torch.exp(-((g[None, :, None] - p[:, 0, None, None]) ** 2 + (g[None, None] - p[:, 1, None, None]) ** 2).float() / 8); return 2 * x[:, None] + .1 * T(seed, 32, 1, 16, 16)
    def data(seed):
        p = R(seed, 8, (32, 2)) + 4; a = R(seed + 1, 4, (32,)); return (draw(p, seed + 2), draw(p + mv[a], seed + 3)), a
    return dict(model=Agent, data=data, loss=ce, lr=3e-3, diag={})

@case("https://github.com/datawhalechina/llms-from-scratch-cn/issues/54", "softmax over dim=1 (queries) of the (B, q, k) attention scores in CausalAttention", "softmax dim=1 in CausalAttention")
def causal_dim1(planted):
    class CausalAttention(nn.Module):
        def __init__(s, d):
            super().__init__(); s.W_query = nn.Linear(d, d, bias=False); s.W_key = nn.Linear(d, d, bias=False); s.W_value = nn.Linear(d, d, bias=False); s.register_buffer("mask", torch.triu(torch.ones(16, 16), diagonal=1))
        def forward(s, x):
            q, k, v = s.W_query(x), s.W_key(x), s.W_value(x); a = q @ k.transpose(1, 2); n = x.size(1)
            a = a.masked_fill(s.mask.bool()[:n, :n], -torch.inf); return torch.softmax(a / k.shape[-1] ** .5, dim=1 if planted else -1) @ v
    class GPT(nn.Module):
        def __init__(s):
            super().__init__(); s.tok = nn.Embedding(16, 32); s.pos = nn.Embedding(16, 32); s.att = nn.ModuleList([CausalAttention(32) for _ in range(2)]); s.ln = nn.ModuleList([nn.LayerNorm(32) for _ in range(4)]); s.ff = nn.ModuleList([nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(2)]); s.head = nn.Linear(32, 16, bias=False)
        def forward(s, x):
            h = s.tok(x) + s.pos(torch.arange(x.size(1)))
            for i in range(2): h = h + s.att[i](s.ln[2 * i](h)); h = h + s.ff[i](s.ln[2 * i + 1](h))
            return s.head(h)
    def data(seed):
        x = R(seed, 16, (32, 16)); y = x.clone(); y[:, 1:] = x[:, :-1]; return x, y
    return dict(model=GPT, data=data, loss=ceseq, lr=5e-3, diag={})

@case("https://github.com/yihong-97/Source-free-IAPC/pull/6", "(B, H*W, C) probabilities are viewed as (B, C, H, W) instead of permuted", "view(b, c, h, w) of the (b, hw, c) map")
def iapc_view(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.backbone = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()); s.proto = nn.Linear(16, 5)
        def forward(s, x):
            f = s.backbone(x); b, c, h, w = f.shape; p = s.proto(f.flatten(2).transpose(1, 2))
            return p.reshape(b, 5, h, w) if planted else p.view(b, h, w, 5).permute(0, 3, 1, 2)
    col = T(3, 5, 3)
    def data(seed):
        y = F.interpolate(R(seed, 5, (16, 1, 4, 4)).float(), scale_factor=4)[:, 0].long(); return col[y].permute(0, 3, 1, 2) + .5 * T(seed + 1, 16, 3, 16, 16), y
    return dict(model=Net, data=data, loss=ce, lr=5e-3, diag={})

@case("https://github.com/keras-team/keras-io/issues/1003", "Conv3D with same padding over time behind the ConvLSTM sees the frame it has to predict", "final Conv3d temporal padding")
def convlstm_leak(planted):
    class Cell(nn.Module):
        def __init__(s, i, h): super().__init__(); s.conv = nn.Conv2d(i + h, 4 * h, 3, padding=1)
        def forward(s, x, h, c):
            i, f, g, o = s.conv(torch.cat([x, h], 1)).chunk(4, 1); c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g); return torch.sigmoid(o) * torch.tanh(c), c
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.cell = Cell(1, 12); s.bn = nn.BatchNorm3d(12); s.conv3d = nn.Conv3d(12, 1, 3, padding=(0, 1, 1))
        def forward(s, x):
            B, L, _, a, b = x.shape; h = x.new_zeros(B, 12, a, b); c = h; o = []
            for t in range(L): h, c = s.cell(x[:, t], h, c); o.append(h)
            o = F.pad(s.bn(torch.stack(o, 2)), (0, 0, 0, 0, 1, 1) if planted else (0, 0, 0, 0, 2, 0)); return s.conv3d(o).transpose(1, 2)
    def data(seed):
        p = R(seed, 12, (16, 2)); v = R(seed + 1, 3, (16, 2)) - 1; g = torch.arange(12)
        fr = [torch.exp(-(((g[None, :, None] - (p[:, 0] + k * v[:, 0])[:, None, None]) % 12 - 6) ** 2 + ((g[None, None] - (p[:, 1] + k * v[:, 1])[:, None, None]) % 12 - 6) ** 2).float() / 3) for k in range(6)]
        x = torch.stack(fr, 1)[:, :, None]; return x[:, :5], x[:, 1:]
    def metric(m):
        with torch.no_grad(): return sum(float(mse(m(data(s)[0])[:, -1], data(s)[1][:, -1])) for s in range(9000, 9005)) / 5
    return dict(model=Net, data=data, loss=mse, lr=5e-3, diag={}, metric=metric)
