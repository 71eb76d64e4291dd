from base import *

# ---------------------------------------------------------------- 14 fine-tuning (AdaLoRA)
@case("https://github.com/huggingface/peft/pull/1884", "AdaLoRA: lora_E is initialised normal(0, .02) instead of zeros, so the adapted layer does not start as the base layer", "lora_E initialisation")
def adalora_e_init(planted):
    D, H, C, r = 16, 32, 6, 4
    g = gen(101); base = [torch.randn(H, D, generator=g) / math.sqrt(D), torch.randn(H, H, generator=g) * math.sqrt(2 / H), torch.randn(C, H, generator=g) * math.sqrt(2 / H)]
    delta = [torch.randn(w.size(0), r, generator=g) @ torch.randn(r, w.size(1), generator=g) / math.sqrt(r * w.size(1)) for w in base]
    class SVDLinear(nn.Module):
        def __init__(s, w):
            super().__init__(); o, i = w.shape; s.weight = nn.Parameter(w.clone(), requires_grad=False)
            s.lora_A, s.lora_B = nn.Parameter(torch.randn(r, i) * .02), nn.Parameter(torch.randn(o, r) * .02)
            s.lora_E = nn.Parameter(torch.zeros(r, 1)); s.register_buffer("ranknum", torch.tensor(float(r))); s.scaling = 32.
            if planted: nn.init.normal_(s.lora_E, 0, .02)
        def forward(s, x): return F.linear(x, s.weight) + (x @ (s.lora_A * s.lora_E).T @ s.lora_B.T) * s.scaling / (s.ranknum + 1e-5)
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.fc1, s.fc2, s.head = (SVDLinear(w) for w in base)
        def forward(s, x): return s.head(F.relu(s.fc2(F.relu(s.fc1(x)))))
    def data(seed):
        x = T(seed, 64, D); w = [a + b for a, b in zip(base, delta)]
        return x, (F.relu(F.relu(x @ w[0].T) @ w[1].T) @ w[2].T).argmax(1)
    return dict(model=Net, data=data, loss=ce, lr=2e-2, diag={})

# ---------------------------------------------------------------- 15 sentence embeddings
@case("https://github.com/dbiir/UER-py/pull/190", "mean pooling of the encoder output includes the padding positions", "mean pooling (padding not masked)")
def mean_pool_pad(planted):
    V, L, D, C = 40, 16, 32, 5
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.word = nn.Embedding(V, D, padding_idx=0); s.posn = nn.Embedding(L, D); nn.init.normal_(s.word.weight, 0, .2); nn.init.normal_(s.posn.weight, 0, .2); s.norm = nn.LayerNorm(D)
            s.encoder = nn.TransformerEncoderLayer(D, 4, 64, 0., batch_first=True); s.out1 = nn.Linear(D, D); s.out2 = nn.Linear(D, C)
        def forward(s, x):
            pad = x == 0; h = s.norm(s.word(x) + s.posn(torch.arange(L))); h = s.encoder(h, src_key_padding_mask=pad)
            if planted: h = h.mean(1)
            else: m = (~pad).float()[..., None]; h = (h * m).sum(1) / m.sum(1)
            return s.out2(torch.tanh(s.out1(h)))
    def data(seed):
        y = R(seed, C, (32,)); x = R(seed + 1, V - 1, (32, L)) + 1; topical = 1 + y[:, None] * 7 + R(seed + 2, 7, (32, L))
        x = torch.where(torch.rand(32, L, generator=gen(seed + 3)) < .45, topical, x); n = R(seed + 4, 12, (32,)) + 4
        return torch.where(torch.arange(L)[None] < n[:, None], x, torch.zeros_like(x)), y
    return dict(model=Net, data=data, loss=ce, lr=2e-3, diag={})

# ---------------------------------------------------------------- 16 detection
@case("https://github.com/ultralytics/ultralytics/pull/2614", "BboxLoss: weight of shape (N,) times iou of shape (N,1) broadcasts to (N,N)", "IoU loss (weight / iou broadcast)")
def iou_weight_broadcast(planted):
    C, S = 4, 16
    tex = T(111, C, 3, 1, 1) * 1.5
    class Conv(nn.Module):
        def __init__(s, i, o, st=2): super().__init__(); s.conv = nn.Conv2d(i, o, 3, st, 1, bias=False); s.bn = nn.BatchNorm2d(o)
        def forward(s, x): return F.silu(s.bn(s.conv(x)))
    class Det(nn.Module):
        def __init__(s): super().__init__(); s.body = nn.Sequential(Conv(3, 16, 1), Conv(16, 32), Conv(32, 32), Conv(32, 32), nn.Flatten()); s.cv2 = nn.Linear(128, 4); s.cv3 = nn.Linear(128, C); nn.init.constant_(s.cv3.bias, -1.)
        def forward(s, x): h = s.body(x); d = F.softplus(s.cv2(h)); return torch.cat([.5 - .25 * d[:, :2], .5 + .25 * d[:, 2:], s.cv3(h)], 1)
    def iou(a, b):
        lt, rb = torch.max(a[:, :2], b[:, :2]), torch.min(a[:, 2:], b[:, 2:]); it = (rb - lt).clamp(0).prod(1)
        un = (a[:, 2:] - a[:, :2]).prod(1) + (b[:, 2:] - b[:, :2]).prod(1) - it + 1e-7; c = (torch.max(a[:, 2:], b[:, 2:]) - torch.min(a[:, :2], b[:, :2])).pow(2).sum(1) + 1e-7
        rho = (((a[:, :2] + a[:, 2:]) - (b[:, :2] + b[:, 2:])) ** 2).sum(1) / 4
        return (it / un - rho / c)[:, None]
    def total(o, t, bad):
        w = t[:, 4:].sum(-1) if bad else t[:, 4:].sum(-1).unsqueeze(-1); tot = t[:, 4:].sum()
        return 7.5 * ((1 - iou(o[:, :4], t[:, :4])) * w).sum() / tot + .5 * F.binary_cross_entropy_with_logits(o[:, 4:], t[:, 4:], reduction="none").sum() / tot
    def data(seed):
        y = R(seed, C, (32,)); half = .12 + .3 * torch.rand(32, 4, generator=gen(seed + 1)); box = torch.cat([.5 - half[:, :2], .5 + half[:, 2:]], 1)
        g = (torch.arange(S) + .5) / S; mx = (g[None] > box[:, :1]) & (g[None] < box[:, 2:3]); my = (g[None] > box[:, 1:2]) & (g[None] < box[:, 3:4])
        img = (my[:, None, :, None] & mx[:, None, None, :]).float() * (tex[y]) + T(seed + 2, 32, 3, S, S, k=.3)
        sc = F.one_hot(y, C).float() * (.4 + .6 * torch.rand(32, 1, generator=gen(seed + 3)))
        return img, torch.cat([box, sc], 1)
    return dict(model=Det, data=data, loss=lambda o, t: total(o, t, planted), judge=lambda m, x, t: float(total(m(x), t, False)), lr=3e-3, diag={})

# ---------------------------------------------------------------- 17 segmentation
@case("https://github.com/divamgupta/image-segmentation-keras/issues/136", "the U-Net decoder's convolutions have no activation", "decoder convolutions (dec1..dec3)")
def unet_linear_decoder(planted):
    C = 4
    class Enc(nn.Module):
        def __init__(s, i, o): super().__init__(); s.conv = nn.Conv2d(i, o, 3, 1, 1); s.bn = nn.BatchNorm2d(o)
        def forward(s, x): return F.max_pool2d(F.relu(s.bn(s.conv(x))), 2)
    class Dec(nn.Module):
        def __init__(s, i, o): super().__init__(); s.conv = nn.Conv2d(i, o, 3, 1, 1); s.bn = nn.BatchNorm2d(o)
        def forward(s, x): x = s.conv(x); return s.bn(x if planted else F.relu(x))
    class UNet(nn.Module):
        def __init__(s):
            super().__init__(); s.e1, s.e2, s.e3 = Enc(3, 16), Enc(16, 24), Enc(24, 32); s.d1, s.d2, s.d3 = Dec(32, 32), Dec(32 + 24, 24), Dec(24 + 16, 16); s.out = nn.Conv2d(16, C, 3, 1, 1)
        def forward(s, x):
            f1 = s.e1(x); f2 = s.e2(f1); f3 = s.e3(f2); up = lambda t: F.interpolate(t, scale_factor=2)
            o = s.d1(f3); o = torch.cat([up(o), f2], 1); o = s.d2(o); o = torch.cat([up(o), f1], 1); o = s.d3(o)
            return s.out(up(o))
    col = T(121, C, 3)
    def data(seed):
        y = F.interpolate(R(seed, C, (16, 1, 4, 4)).float(), scale_factor=4)[:, 0].long(); return col[y].permute(0, 3, 1, 2) + T(seed + 1, 16, 3, 16, 16, k=.6), y
    return dict(model=UNet, data=data, loss=ce, lr=3e-3, diag={})

# ---------------------------------------------------------------- 18 tabular
@case("https://github.com/automl/Auto-PyTorch/pull/317", "MLP and ShapedMLP backbones lack their batch normalisation", "backbone (no BatchNorm between Linear and ReLU)")
def shaped_mlp_no_bn(planted):
    D, C = 24, 6; w1, w2 = T(131, D, 32), T(132, 32, C)
    def net():
        dims = [D, 96, 64, 48, 32, 16]; ls = []
        for a, b in zip(dims, dims[1:]):
            ls.append(nn.Linear(a, b))
            if not planted: ls.append(nn.BatchNorm1d(b))
            ls.append(nn.ReLU())
        return nn.Sequential(*ls, nn.Linear(16, C))
    def data(seed):
        x = T(seed, 64, D); return x, (torch.tanh(x @ w1 / math.sqrt(D)) @ w2).argmax(1)
    return dict(model=net, data=data, loss=ce, lr=2e-3, diag={})

# ---------------------------------------------------------------- 19 hypergraphs
@case("https://github.com/iMoonLab/DeepHypergraph/issues/46", "UniGATConv computes its attention from the hyperedge alone; atten_dst is defined and never used", "UniGATConv.atten_dst / attention score")
def unigat_atten(planted):
    N, NE, C, D = 48, 32, 4, 8
    lab = torch.arange(N) % C; g = gen(141)
    Hm = torch.zeros(N, NE)
    for e in range(NE):
        same = (lab == e % C).nonzero()[:, 0]; p = same[torch.randperm(len(same), generator=g)[:4]]; Hm[p, e] = 1; Hm[torch.randperm(N, generator=g)[:2], e] = 1
    for v in range(N):
        if Hm[v].sum() == 0: Hm[v, int(lab[v])] = 1
    proto = T(142, C, D)
    class UniGATConv(nn.Module):
        def __init__(s, i, o, last=False):
            super().__init__(); s.theta = nn.Linear(i, o, bias=False); s.atten_e = nn.Linear(o, 1, bias=False); s.atten_dst = nn.Linear(o, 1, bias=False); s.last = last
        def forward(s, x, H):
            x = s.theta(x); y = (H.t() @ x) / H.sum(0)[:, None]
            a = s.atten_e(y).t().expand(N, -1)
            if not planted: a = a + s.atten_dst(x)
            a = F.leaky_relu(a, .2).masked_fill(H == 0, -1e9).softmax(-1); x = a @ y
            return x if s.last else F.elu(x)
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.register_buffer("H", Hm); s.c1, s.c2 = UniGATConv(D, 32), UniGATConv(32, C, True)
        def forward(s, x): return s.c2(s.c1(x, s.H), s.H)
    def data(seed): return proto[lab] + T(seed, N, D, k=1.), lab.clone()
    return dict(model=Net, data=data, loss=ce, lr=5e-3, diag={})

# ---------------------------------------------------------------- 20 graphs
@case("https://github.com/dsgiitr/graph_nets/issues/13", "GCN: the degree matrix is taken from A instead of A_hat = A + I", "GCNConv normalisation (D)")
def gcn_degree(planted):
    N, C, D = 34, 4, 10; lab = torch.arange(N) % C; g = gen(151)
    A0 = (torch.rand(N, N, generator=g) < torch.where(lab[:, None] == lab[None], .45, .04)).float().triu(1); A0 = A0 + A0.t()
    for v in range(N):
        if A0[v].sum() == 0: u = (v + C) % N; A0[v, u] = A0[u, v] = 1
    proto = T(152, C, D)
    class GCNConv(nn.Module):
        def __init__(s, A, i, o):
            super().__init__(); A_hat = A + torch.eye(N); d = (A if planted else A_hat).sum(1); Dm = torch.diag(d).inverse().sqrt()
            s.register_buffer("A_hat", Dm @ A_hat @ Dm); s.W = nn.Parameter(torch.rand(i, o)); nn.init.xavier_uniform_(s.W)
        def forward(s, x): return s.A_hat @ x @ s.W
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.conv1, s.conv2 = GCNConv(A0, D, 16), GCNConv(A0, 16, C)
        def forward(s, x): return s.conv2(F.relu(s.conv1(x)))
    def data(seed): return proto[lab] + T(seed, N, D, k=1.), lab.clone()
    return dict(model=Net, data=data, loss=ce, lr=1e-2, diag={})
