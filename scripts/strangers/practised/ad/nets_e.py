from base import *

@case("https://github.com/OpenTabular/DeepTab/issues/414", "anchors repeat_interleave(2k) do not line up with cat([positives, negatives])", "loss: anchor layout")
def deeptab_contrast(planted):
    K = 2
    class Backbone(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Sequential(nn.Linear(20, 64), nn.ReLU()); self.encoder = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
        def forward(self, x): return self.encoder(self.embedding(x))
    C = T(11, 6, 20)
    def data(seed): y = R(seed, 6, (48,)); return C[y] + 1.2 * T(seed + 1, 48, 20), y
    def loss(e, y):
        N = len(e); g = torch.Generator().manual_seed(int(y.sum())); same = y[:, None] == y[None]
        r = torch.rand(N, N, generator=g); pos = (r + (~same) * 2. + torch.eye(N) * 3).topk(K, 1, largest=False)[1]; neg = (r + same * 2.).topk(K, 1, largest=False)[1]
        pairs = torch.cat([e[pos].flatten(0, 1), e[neg].flatten(0, 1)]); label = torch.cat([torch.ones(N * K), -torch.ones(N * K)])
        a = e.repeat_interleave(2 * K, 0) if planted else e.repeat_interleave(K, 0).repeat(2, 1)
        return F.cosine_embedding_loss(a, pairs, label, margin=0.)
    return dict(model=Backbone, data=data, loss=loss, lr=1e-3, diag={})

@case("https://github.com/huggingface/transformers/pull/25074", "image embeddings repeat()ed instead of repeat_interleave(): prompts meet the wrong image", "MaskDecoder image_embeddings.repeat")
def sam_repeat(planted):
    P = 4
    class MaskDecoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.image_encoder = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.GELU(), nn.Conv2d(16, 32, 3, 2, 1)); self.prompt = nn.Sequential(nn.Linear(2, 32), nn.GELU(), nn.Linear(32, 32))
            self.hyper = nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 32)); self.up = nn.Sequential(nn.ConvTranspose2d(32, 16, 2, 2), nn.GELU(), nn.Conv2d(16, 32, 1)); self.out = nn.Conv2d(32, 3, 1)
        def forward(self, img, pts):
            e = self.image_encoder(img); B = len(img); p = self.prompt(pts).flatten(0, 1)
            e = e.repeat(P, 1, 1, 1) if planted else e.repeat_interleave(P, 0)
            h = self.up(e + p[:, :, None, None]); h = torch.relu(h) * self.hyper(p)[:, :, None, None]
            return self.out(h).view(B, P, 3, 8, 8)
    def data(seed):
        im = T(seed, 8, 3, 4, 4); x = F.interpolate(im, scale_factor=4); p = torch.rand(8, P, 2, generator=gen(seed + 1)) * 2 - 1
        return (x, p), F.interpolate(im, scale_factor=2)[:, None] * (1 + .3 * p[..., :1, None, None])
    return dict(model=MaskDecoder, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/mlverse/torch/issues/555", "std = gain * sqrt(2 / fan_in + fan_out): missing brackets in xavier", "weight initialisation")
def mlverse_xavier(planted):
    def xavier_normal_(w, gain=1.):
        fan_in, fan_out = w.shape[1], w.shape[0]; std = gain * math.sqrt(2. / fan_in + fan_out) if planted else gain * math.sqrt(2. / (fan_in + fan_out))
        with torch.no_grad(): return w.normal_(0, std)
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc2, self.fc3, self.out = nn.Linear(20, 64), nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 5)
            for m in self.children(): xavier_normal_(m.weight); nn.init.zeros_(m.bias)
        def forward(self, x):
            for l in (self.fc1, self.fc2, self.fc3): x = torch.tanh(l(x))
            return self.out(x)
    def data(seed): x = T(seed, 32, 20); return x, (x @ T(5, 20, 5)).argmax(1)
    return dict(model=Net, data=data, loss=ce, lr=1e-3, diag={})

@case("https://github.com/huggingface/sentence-transformers/pull/3453", "gathered candidates are ordered P N N P N N per device, labels assume P..P N..N", "loss: labels of the gathered candidates")
def st_gather(planted):
    W = 4; B = 8
    class Bi(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(60, 48); self.dense = nn.Sequential(nn.Linear(48, 64), nn.Tanh(), nn.Linear(64, 32))
        def forward(self, a, p, n1, n2): return [F.normalize(self.dense(self.emb(t).mean(1)), dim=-1) for t in (a, p, n1, n2)]
    perm = torch.randperm(60, generator=gen(2))
    def data(seed): a = R(seed, 60, (W * B, 4)); return (a, perm[a], R(seed + 1, 60, (W * B, 4)), R(seed + 2, 60, (W * B, 4))), torch.zeros(W * B)
    def loss(o, t):
        a, p, n1, n2 = o
        if planted: c = torch.cat([torch.cat([x[r * B:(r + 1) * B] for x in (p, n1, n2)]) for r in range(W)])
        else: c = torch.cat([p, n1, n2])
        return F.cross_entropy(a @ c.t() * 20., torch.arange(W * B))
    return dict(model=Bi, data=data, loss=loss, lr=5e-3, diag={})
