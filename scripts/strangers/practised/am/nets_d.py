from base import *

# ---------- 1 optical flow ----------
class FlowNetSmall(nn.Module):
    def __init__(s):
        super().__init__()
        def conv(i, o, st=1): return nn.Sequential(nn.Conv2d(i, o, 3, st, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(0.1))
        s.conv1, s.conv2, s.conv3 = conv(2, 16, 2), conv(16, 32, 2), conv(32, 32, 2)
        s.deconv2 = nn.Sequential(nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False), nn.LeakyReLU(0.1))
        s.predict_flow3 = nn.Conv2d(32, 2, 3, 1, 1, bias=False)
        s.upflow3 = nn.ConvTranspose2d(2, 2, 4, 2, 1, bias=False)
        s.predict_flow2 = nn.Conv2d(32 + 16 + 2, 2, 3, 1, 1, bias=False)
    def forward(s, x):
        c2 = s.conv2(s.conv1(x)); c3 = s.conv3(c2)
        f3 = s.predict_flow3(c3)
        f2 = s.predict_flow2(torch.cat([c2, s.deconv2(c3), s.upflow3(f3)], 1))
        return f2, f3
def flow_data(seed):
    g = gen(seed); B = 16; n = 24
    yy, xx = torch.meshgrid(torch.arange(n).float(), torch.arange(n).float(), indexing="ij")
    c = torch.rand(B, 2, generator=g) * 10 + 7; d = torch.rand(B, 2, generator=g) * 6 - 3
    def blob(c): return torch.exp(-((xx - c[:, 0, None, None]) ** 2 + (yy - c[:, 1, None, None]) ** 2) / 8)
    im = torch.stack([blob(c), blob(c + d)], 1)
    im = (im - 0.09) / 0.2
    return im, (d / 1.73)[:, :, None, None].expand(B, 2, 6, 6).contiguous()
@case("https://github.com/ClementPinard/FlowNetPytorch/commit/607f99f46be3eccbd9b07c73848a68bc12156392",
      "EPE loss takes the norm over dim 2 (image rows) instead of dim 1 (the flow channels)", "the EPE norm in the loss (wrong dimension)")
def flownet_epe(planted):
    def epe(o, t, dim): return torch.norm(t - o, 2, dim).mean()
    def ms(dim):
        def loss(o, t):
            return sum(w * epe(f, F.adaptive_avg_pool2d(t, f.shape[-2:]), dim) for w, f in zip((1.0, 0.5), o))
        return loss
    return dict(model=FlowNetSmall, data=flow_data, loss=ms(2 if planted else 1), lr=2e-3, diag={}, judge=lambda m, x, t: ms(1)(m(x), t))

# ---------- 2 knowledge graph ----------
class KGE(nn.Module):
    def __init__(s, planted, ne=48, nr=4, dim=24, gamma=6.0):
        super().__init__(); s.planted = planted; s.gamma = gamma
        rng = (gamma + 2.0) / dim
        s.entity_embedding = nn.Parameter(torch.empty(ne, dim).uniform_(-rng, rng))
        s.relation_embedding = nn.Parameter(torch.empty(nr, dim).uniform_(-rng, rng))
    def score(s, h, r, t): return s.gamma - torch.norm(h + r - t, p=1, dim=-1)
    def loss(s, pos, neg, planted):
        h, r, t = s.entity_embedding[pos[:, 0]][:, None], s.relation_embedding[pos[:, 1]][:, None], s.entity_embedding[pos[:, 2]][:, None]
        negative_score = F.logsigmoid(-s.score(h, r, s.entity_embedding[neg])).mean(1)
        positive_score = F.logsigmoid(s.score(h, r, t)).squeeze(1)
        if planted:
            pl, nl = positive_score.mean(), negative_score.mean()
        else:
            pl, nl = - positive_score.mean(), - negative_score.mean()
        return (pl + nl) / 2
    def forward(s, pos, neg): return s.loss(pos, neg, s.planted)
def kge_data(seed):
    g = gen(seed); B = 64; ne = 48; shift = torch.tensor([1, 3, 5, 8])
    h = torch.randint(0, 40, (B,), generator=g); r = torch.randint(0, 4, (B,), generator=g)
    return (torch.stack([h, r, h + shift[r]], 1), torch.randint(0, ne, (B, 16), generator=g)), None
@case("https://github.com/DeepGraphLearning/KnowledgeGraphEmbedding/commit/be06825a360cf07668d2278e01eac065d2a8f70b",
      "with uni_weight the minus is forgotten: loss = mean of logsigmoid scores, not minus it", "the sign of the loss")
def kge_sign(planted):
    return dict(model=lambda: KGE(planted), data=kge_data, loss=lambda o, t: o, lr=1e-2, diag={"loss": "model"},
                judge=lambda m, x, t: m.loss(*x, False))

# ---------- 3 robot imitation LSTM ----------
class MohouLSTM(nn.Module):
    def __init__(s, planted, n_in=4, n_hidden=40, n_output_layer=2):
        super().__init__()
        s.lstm_layer = nn.LSTM(n_in, n_hidden, 1, batch_first=True)
        out = []
        for _ in range(n_output_layer):
            out.append(nn.Linear(n_hidden, n_hidden))
            if not planted: out.append(nn.ReLU())
        out.append(nn.Linear(n_hidden, n_in))
        s.output_layer = nn.Sequential(*out)
    def forward(s, x): return s.output_layer(s.lstm_layer(x)[0])
def robot_data(seed):
    g = gen(seed); B, T_ = 32, 20
    q = torch.randn(B, 2, generator=g) * 1.2; v = torch.randn(B, 2, generator=g) * 0.8; xs = []
    for _ in range(T_ + 1):
        xs.append(torch.cat([q, v], 1))
        a = -torch.sin(q) * 1.5 + 0.4 * torch.sin(q.flip(1) - q)
        v = v + 0.25 * a; q = q + 0.25 * v
    x = torch.stack(xs, 1) / torch.tensor([1.5, 1.5, 1.2, 1.2])
    return x[:, :-1].contiguous(), x[:, 1:].contiguous()
@case("https://github.com/HiroIshida/mohou/commit/bafe8a73c92b89ad1b76774fb6787534b58172f8",
      "no activation between the linear output layers after the LSTM", "output_layer: consecutive Linear layers without activation")
def mohou_noact(planted):
    return dict(model=lambda: MohouLSTM(planted), data=robot_data, loss=mse, lr=3e-3, diag={})

# ---------- 4 DIN with embedding tables in a dict ----------
class DIN(nn.Module):
    def __init__(s, planted, n_items=40, n_cat=8, d=10):
        super().__init__()
        s.token_embedding_table = {} if planted else nn.ModuleDict()
        s.token_embedding_table["item"] = nn.Embedding(n_items, d)
        s.token_embedding_table["brand"] = nn.Embedding(n_cat, d)
        s.att = nn.Sequential(nn.Linear(4 * 2 * d, 32), nn.Sigmoid(), nn.Linear(32, 1))
        s.mlp = nn.Sequential(nn.Linear(3 * 2 * d, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
        s.predict = nn.Linear(16, 1)
        s.apply(s._init)
    def _init(s, m):
        if isinstance(m, nn.Embedding): nn.init.xavier_normal_(m.weight)
        elif isinstance(m, nn.Linear): nn.init.xavier_normal_(m.weight); nn.init.zeros_(m.bias)
    def emb(s, item, brand):
        t = s.token_embedding_table
        return torch.cat([t["item"](item), t["brand"](brand)], -1)
    def forward(s, hist, hist_brand, item, brand):
        keys, q = s.emb(hist, hist_brand), s.emb(item, brand)
        qs = q[:, None].expand_as(keys)
        w = s.att(torch.cat([qs, keys, qs - keys, qs * keys], -1)) / math.sqrt(q.shape[-1])
        u = (F.softmax(w, 1) * keys).sum(1)
        return torch.sigmoid(s.predict(s.mlp(torch.cat([u, q, u * q], -1))).squeeze(1))
def din_data(seed):
    g = gen(seed); B = 64; perm = torch.randperm(40, generator=gen(5)); brand_of = perm % 8; like = torch.randn(8, generator=gen(6))
    cls = torch.randint(0, 4, (B,), generator=g)
    pool = torch.stack([torch.where(brand_of % 4 == c)[0] for c in range(4)])
    hist = pool[cls][torch.arange(B)[:, None], torch.randint(0, 10, (B, 6), generator=g)]
    item = torch.randint(0, 40, (B,), generator=g)
    same = (brand_of[item] % 4 == cls)
    item = torch.where(torch.rand(B, generator=g) < .4, pool[cls, torch.randint(0, 10, (B,), generator=g)], item)
    same = (brand_of[item] % 4 == cls)
    y = torch.bernoulli(torch.sigmoid(5 * same.float() - 2.5 + like[brand_of[item]]), generator=g)
    return (hist, brand_of[hist], item, brand_of[item]), y
@case("https://github.com/RUCAIBox/RecBole/commit/b123957bff232b1314513e35846bc0856107e711",
      "embedding tables kept in a plain dict, not nn.ModuleDict: never registered, initialised or trained", "token_embedding_table (item, brand embeddings) not registered")
def recbole_dict(planted):
    return dict(model=lambda: DIN(planted), data=din_data, loss=nn.BCELoss(), lr=5e-3, diag={})

# ---------- 5 medical 3D VAE ----------
class Green(nn.Module):
    def __init__(s, c):
        super().__init__()
        s.b = nn.Sequential(nn.GroupNorm(4, c), nn.ReLU(), nn.Conv3d(c, c, 3, padding=1), nn.GroupNorm(4, c), nn.ReLU(), nn.Conv3d(c, c, 3, padding=1))
    def forward(s, x): return x + s.b(x)
class MedVAE(nn.Module):
    def __init__(s, planted, z=8):
        super().__init__(); s.planted, s.z = planted, z
        s.stem = nn.Conv3d(1, 8, 3, 2, 1); s.g1 = Green(8); s.down = nn.Conv3d(8, 16, 3, 2, 1); s.g2 = Green(16)
        s.linear_1 = nn.Linear(16 * 8, 2 * z); s.linear_vu = nn.Linear(z, 16 * 8)
        s.up1 = nn.Sequential(nn.Conv3d(16, 8, 1), nn.Upsample(scale_factor=2)); s.g3 = Green(8)
        s.up0 = nn.Sequential(nn.Conv3d(8, 8, 1), nn.Upsample(scale_factor=2)); s.g4 = Green(8); s.end = nn.Conv3d(8, 1, 3, padding=1)
    def forward(s, x):
        h = s.g2(s.down(s.g1(s.stem(x)))).flatten(1)
        h = s.linear_1(h); mu = h[:, :s.z]
        logvar = torch.log(h[:, s.z:]) if s.planted else h[:, s.z:]
        y = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        y = s.linear_vu(y).view(-1, 16, 2, 2, 2)
        return s.end(s.g4(s.up0(s.g3(s.up1(y))))), mu, logvar
def vol_data(seed):
    g = gen(seed); B = 16; a = torch.arange(8).float()
    zz, yy, xx = torch.meshgrid(a, a, a, indexing="ij")
    c = torch.rand(B, 3, generator=g) * 5 + 1; r = torch.rand(B, generator=g) * 4 + 3
    v = torch.exp(-((xx - c[:, 0, None, None, None]) ** 2 + (yy - c[:, 1, None, None, None]) ** 2 + (zz - c[:, 2, None, None, None]) ** 2) / r[:, None, None, None])
    v = ((v - 0.07) / 0.16)[:, None]
    return v, v.clone()
def vae_loss(o, t):
    rec, mu, lv = o
    return F.mse_loss(rec, t) + 0.01 * (-0.5 * (1 + lv - mu ** 2 - lv.exp())).sum(1).mean()
@case("https://github.com/black0017/MedicalZooPytorch/commit/c6831d8ddebfbc1b33c04f8cec0d01c2ceb828f6",
      "logvar = log of the linear layer's (also negative) output: NaN", "the log on linear_1's output (logvar)")
def medzoo_logvar(planted):
    return dict(model=lambda: MedVAE(planted), data=vol_data, loss=vae_loss, lr=2e-3, diag={})

# ---------- 6 child-sum tree LSTM ----------
class TreeLSTM(nn.Module):
    def __init__(s, planted, vocab=20, d=16, m=24):
        super().__init__(); s.planted = planted; s.m = m
        s.emb = nn.Embedding(vocab, d)
        for n in "ifou":
            setattr(s, n + "x", nn.Linear(d, m)); setattr(s, n + "h", nn.Linear(m, m))
        s.out = nn.Linear(m, 3)
    def node(s, x, cc, ch):  # x (B,d), cc/ch (B,children,m)
        hs = ch.sum(1)
        i = torch.sigmoid(s.ix(x) + s.ih(hs)); o = torch.sigmoid(s.ox(x) + s.oh(hs)); u = torch.tanh(s.ux(x) + s.uh(hs))
        if s.planted: f = torch.sigmoid(s.ih(ch) + s.ix(x)[:, None])
        else: f = torch.sigmoid(s.fh(ch) + s.fx(x)[:, None])
        c = i * u + (f * cc).sum(1)
        return c, o * torch.tanh(c)
    def forward(s, tok):  # heap-ordered full binary tree, 15 nodes
        e = s.emb(tok); st = {}
        for k in range(14, -1, -1):
            if 2 * k + 2 < 15:
                cc = torch.stack([st[2 * k + 1][0], st[2 * k + 2][0]], 1); ch = torch.stack([st[2 * k + 1][1], st[2 * k + 2][1]], 1)
            else: cc = ch = e.new_zeros(len(e), 1, s.m)
            st[k] = s.node(e[:, k], cc, ch)
        return s.out(st[0][1])
def tree_data(seed):
    val = torch.randn(20, generator=gen(3)); val[:3] = 0; tok = R(seed, 20, (64, 15))
    v = {}
    for k in range(14, -1, -1):
        w = val[tok[:, k]] + (v[2 * k + 1] + v[2 * k + 2] if 2 * k + 2 < 15 else 0)
        v[k] = torch.where(tok[:, k] < 3, -w, w)  # negators flip their subtree
    return tok, (v[0] > -1).long() + (v[0] > 1).long()
@case("https://github.com/dasguptar/treelstm.pytorch/commit/0bcc64ebcf6f6393054d1e9c706cbcfa42502135",
      "the forget gate is computed with the input gate's layers ix, ih; fx and fh are never used", "fx / fh unused (forget gate uses ix / ih)")
def treelstm_forget(planted):
    return dict(model=lambda: TreeLSTM(planted), data=tree_data, loss=ce, lr=1e-2, diag={})

# ---------- 7 UniWaveNet ----------
class WNLayer(nn.Module):
    def __init__(s, c, cc, dil):
        super().__init__()
        s.conv = nn.Conv1d(c, 2 * c, 3, padding=dil, dilation=dil); s.cond = nn.Conv1d(cc, 2 * c, 1); s.res = nn.Conv1d(c, c, 1); s.skip = nn.Conv1d(c, c, 1)
    def forward(s, x, c):
        a, b = (s.conv(x) + s.cond(c)).chunk(2, 1); z = torch.tanh(a) * torch.sigmoid(b)
        return x + s.res(z), s.skip(z)
class WN(nn.Module):
    def __init__(s, n, c, cc):
        super().__init__()
        s.inp = nn.Conv1d(1, c, 1); s.layers = nn.ModuleList([WNLayer(c, cc, 2 ** i) for i in range(n)])
        s.o1, s.o2 = nn.Conv1d(c, c, 1), nn.Conv1d(c, 1, 1)
    def forward(s, x, conds):
        h = s.inp(x); sk = 0
        for l, c in zip(s.layers, conds): h, k = l(h, c); sk = sk + k
        return s.o2(F.relu(s.o1(F.relu(sk))))
class UniWaveNet(nn.Module):
    def __init__(s, planted, n_wavenets=3, n=2, c=16, cc=8, mel=5):
        super().__init__(); s.planted = planted; s.nc = n_wavenets * n
        s.encoder = nn.Conv1d(mel, s.nc * cc, 3, padding=1)
        s.wavenet_list = nn.ModuleList([WN(n, c, cc) for _ in range(n_wavenets)])
    def forward(s, mel):
        conditions = s.encoder(mel).chunk(s.nc, 1)
        u = torch.rand(len(mel), 1, mel.shape[-1]).clamp(1e-4, 1 - 1e-4); x = 0.05 * torch.log(u / (1 - u))
        lp = len(conditions) // len(s.wavenet_list)
        for i, wavenet in enumerate(s.wavenet_list[1:] if s.planted else s.wavenet_list):
            x = wavenet(x, conditions[i * lp:(i + 1) * lp])
        return x
def mel_data(seed):
    g = gen(seed); B, L = 16, 64; n = torch.arange(L).float()
    f = torch.rand(B, 1, generator=g) * .5 + .2; a = torch.rand(B, 1, generator=g) + .5; ph = torch.rand(B, 1, generator=g) * 6.28
    env = 1 + .5 * torch.sin(2 * math.pi * n / L + ph)
    w = a * env * torch.sin(f * n + ph)
    mel = torch.stack([((a * env) - 1) / .45, torch.sin(f * n), torch.cos(f * n), (torch.sin(ph) * torch.ones(L)) * 1.4, (torch.cos(ph) * torch.ones(L)) * 1.4], 1)
    return mel, w[:, None]
def spec_loss(o, t):
    w = torch.hann_window(16)
    def S(x): return torch.stft(x.squeeze(1), 16, 8, window=w, return_complex=True).abs().clamp_min(1e-3)
    a, b = S(o), S(t)
    return F.mse_loss(a, b) + F.l1_loss(a.log(), b.log())
@case("https://github.com/dhgrs/pytorch-UniWaveNet/pull/6",
      "the forward loops over wavenet_list[1:]: the first WaveNet (and the last layers' conditions) are never used", "wavenet_list.0 never used")
def uniwavenet_skip(planted):
    return dict(model=lambda: UniWaveNet(planted), data=mel_data, loss=spec_loss, lr=3e-3, diag={})
