from base import *

@case("https://github.com/USTC-Video-Understanding/I3D_Finetune/issues/2", "ReLU activation on the class logits", "fc_out = dense(..., activation=relu)")
def i3d_fc_out(planted):
    P = T(20, 8, 3, 6, 8, 8)
    class I3D(nn.Module):
        def __init__(self, n=8):
            super().__init__(); self.c1 = nn.Conv3d(3, 12, 3, padding=1); self.b1 = nn.BatchNorm3d(12); self.c2 = nn.Conv3d(12, 24, 3, stride=2, padding=1); self.b2 = nn.BatchNorm3d(24)
            self.drop = nn.Dropout(.3); self.fc_out = nn.Linear(24 * 3 * 4 * 4, n)
        def forward(self, x):
            x = F.relu(self.b1(self.c1(x))); x = F.relu(self.b2(self.c2(x))); x = self.fc_out(self.drop(x.flatten(1)))
            return F.relu(x) if planted else x
    def data(seed):
        t = R(seed, 8, (24,)); return P[t] * .6 + T(seed + 1, 24, 3, 6, 8, 8), t
    return dict(model=I3D, data=data, loss=ce, lr=1e-3, diag={})

@case("https://github.com/GoogleCloudPlatform/cloudml-samples/pull/241", "softmax activation on a single output unit", "Dense(labels_dim=1, activation='softmax')")
def census_keras(planted):
    W = T(21, 11)
    class Model(nn.Module):
        def __init__(self):
            super().__init__(); d = [11, 100, 70, 50, 20]; self.hidden = nn.ModuleList([nn.Linear(a, b) for a, b in zip(d, d[1:])]); self.out = nn.Linear(20, 1)
        def forward(self, x):
            for l in self.hidden: x = F.relu(l(x))
            x = self.out(x); return torch.softmax(x, -1) if planted else torch.sigmoid(x)
    def data(seed):
        x = T(seed, 40, 11); return x, ((x @ W) > 1.5).float()[:, None]
    return dict(model=Model, data=data, loss=lambda o, t: F.binary_cross_entropy(o.clamp(1e-7, 1 - 1e-7), t), lr=1e-3, diag={})

@case("https://github.com/IBM/pytorchpipe/pull/53", "Fusion mode concatenates the projected question instead of the attention-weighted image", "torch.cat((latent_q, enc_q)) in the VQA attention component")
def vqa_fusion(planted):
    class VQAAttention(nn.Module):
        def __init__(self, d=24, V=10):
            super().__init__(); self.q = nn.Embedding(V, d); self.image_linear = nn.Linear(8, d); self.question_linear = nn.Linear(d, d); self.att = nn.Linear(d, 1); self.cls = nn.Sequential(nn.Linear(2 * d, 64), nn.ReLU(), nn.Linear(64, 6))
        def forward(self, img, q):
            enc_q = self.q(q); latent_q = self.question_linear(enc_q); latent_img = self.image_linear(img)
            a = torch.softmax(self.att(torch.tanh(latent_img + latent_q[:, None])), 1); att_img = (a * latent_img).sum(1)
            return self.cls(torch.cat([latent_q if planted else att_img, enc_q], 1))
    K = T(25, 6, 8) * 1.5
    def data(seed):
        q = R(seed, 10, (64,)); c = R(seed + 1, 6, (64,)); img = .4 * T(seed + 2, 64, 9, 8); img = img + (K[c][:, None] * .8)
        return (img, q), (c + (q > 4).long()) % 6
    return dict(model=VQAAttention, data=data, loss=ce, lr=3e-3, diag={})

@case("https://github.com/valeoai/SLidR/issues/24", "output features not L2-normalised before the temperature-scaled NCE loss", "missing F.normalize on VoxelNet output")
def slidr_nce(planted):
    A = T(26, 16, 20)
    class VoxelNet(nn.Module):
        def __init__(self, d=32):
            super().__init__(); self.enc = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, d)); self.img = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, d))
        def forward(self, p, im):
            k = self.enc(p); q = F.normalize(self.img(im), dim=1)
            if not planted: k = F.normalize(k, dim=1)
            return k @ q.T / .07
    def data(seed):
        p = T(seed, 64, 16); return (p, torch.tanh(p @ A * .3) + .1 * T(seed + 1, 64, 20)), torch.arange(64)
    return dict(model=VoxelNet, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/blei-lab/treeffuser/pull/57", "normalised integer data stays int: inputs become mostly -1, 0, 1", "int dtype kept when standardising (input truncated)")
def treeffuser_int(planted):
    W = T(28, 6)
    class ScoreModel(nn.Module):
        def __init__(self): super().__init__(); self.net = nn.Sequential(nn.Linear(6, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))
        def forward(self, x): return self.net(x)[:, 0]
    def data(seed):
        X = (T(seed, 64, 6) * 12 + 40).round(); y = ((X - 40) / 12) @ W; Xn = (X - 40) / 12
        return (Xn.int().float() if planted else Xn), y
    return dict(model=ScoreModel, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/NVIDIA/Isaac-GR00T/pull/758", "min-max normalisation written into an integer array: every state collapses to -1", "np.zeros_like(values) inherits the int dtype in normalize_values_minmax")
def groot_minmax(planted):
    W = T(29, 7, 4)
    class StateActionPolicy(nn.Module):
        def __init__(self): super().__init__(); self.state_encoder = nn.Sequential(nn.Linear(7, 64), nn.ReLU(), nn.Linear(64, 64)); self.norm = nn.LayerNorm(64); self.action_head = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
        def forward(self, s): return self.action_head(self.norm(self.state_encoder(s)))
    def data(seed):
        v = R(seed, 181, (48, 7)); n = 2 * v / 181. - 1; t = torch.tanh(n @ W)
        if planted: out = torch.zeros_like(v); out[...] = (v / 181.).to(v.dtype); n = (2 * out - 1).float()
        return n, t
    return dict(model=StateActionPolicy, data=data, loss=mse, lr=2e-3, diag={})

@case("https://github.com/srenevey/neuro/issues/4", "hidden layer weights all initialised to the constant 0.01", "Initializer::Constant(0.01) on the hidden Dense layer")
def neuro_xor(planted):
    class Network(nn.Module):
        def __init__(self):
            super().__init__(); self.d1 = nn.Linear(2, 8); self.d2 = nn.Linear(8, 1)
            nn.init.kaiming_normal_(self.d2.weight); nn.init.zeros_(self.d1.bias); nn.init.zeros_(self.d2.bias)
            nn.init.constant_(self.d1.weight, .01) if planted else nn.init.kaiming_normal_(self.d1.weight)
        def forward(self, x): return self.d2(torch.tanh(self.d1(x)))
    def data(seed):
        x = R(seed, 2, (32, 2)).float(); return x, (x[:, :1] != x[:, 1:]).float()
    return dict(model=Network, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t), lr=5e-2, diag={})

@case("https://github.com/atomistic-machine-learning/schnetpack/issues/336", "raw property values used as targets: output module has no mean and stddev", "Atomwise(mean, stddev) not set: targets unscaled")
def schnet_targets(planted):
    a = torch.tensor([0.6, 38., 54.7, 75.]) * -27.
    class SchNet(nn.Module):
        def __init__(self, d=32, stats=(0., 1.) if planted else (-1140., 650.)):
            super().__init__(); self.embedding = nn.Embedding(4, d); self.filters = nn.ModuleList([nn.Sequential(nn.Linear(12, d), nn.Softplus(), nn.Linear(d, d)) for _ in range(2)]); self.inter = nn.ModuleList([nn.Linear(d, d) for _ in range(2)]); self.out = nn.Sequential(nn.Linear(d, d // 2), nn.Softplus(), nn.Linear(d // 2, 1)); self.mean, self.std = stats
        def forward(self, z, pos):
            r = (pos[:, :, None] - pos[:, None]).norm(dim=-1); g = torch.exp(-4 * (r[..., None] - torch.linspace(0, 4, 12)) ** 2); x = self.embedding(z)
            for f, l in zip(self.filters, self.inter): x = x + F.softplus(l((f(g) * x[:, None]).mean(2)))
            return (self.out(x) * self.std + self.mean).sum(1)[:, 0]
    def data(seed):
        z = R(seed, 4, (32, 6)); p = T(seed + 1, 32, 6, 3); r = (p[:, :, None] - p[:, None]).norm(dim=-1); return (z, p), a[z].sum(1) + 20 * torch.exp(-r).sum((1, 2))
    return dict(model=SchNet, data=data, loss=mse, lr=5e-3, diag={})

@case("https://github.com/ibalazevic/TuckER/issues/17", "padding_idx=0 on entity and relation embeddings although index 0 is a real item", "nn.Embedding(..., padding_idx=0) for E and R")
def tucker_pad(planted):
    class TuckER(nn.Module):
        def __init__(self, n=30, r=4, d=24):
            super().__init__(); kw = dict(padding_idx=0) if planted else {}
            self.E = nn.Embedding(n, d, **kw); self.R = nn.Embedding(r, d, **kw); nn.init.xavier_normal_(self.E.weight); nn.init.xavier_normal_(self.R.weight)
            self.W = nn.Parameter(torch.empty(d, d, d).uniform_(-1, 1)); self.bn0 = nn.BatchNorm1d(d); self.bn1 = nn.BatchNorm1d(d)
        def forward(self, e, r):
            x = self.bn0(self.E(e)); M = torch.einsum("br,rde->bde", self.R(r), self.W); x = self.bn1(torch.einsum("bd,bde->be", x, M)); return x @ self.E.weight.T
    def data(seed):
        e = R(seed, 30, (64,)); r = R(seed + 1, 4, (64,)); return (e, r), (e * (r + 1) + 7 * r) % 30
    return dict(model=TuckER, data=data, loss=ce, lr=1e-2, diag={})

@case("https://github.com/andyzeng/3dmatch-toolbox/issues/11", "Gaussian(0.01) initialisation instead of Xavier on the conv stack", "weight_filler gaussian of conv layers")
def match3d_init(planted):
    class Match3D(nn.Module):
        def __init__(self, c=(1, 8, 8, 8, 8, 12, 12, 12, 12)):
            super().__init__(); self.convs = nn.ModuleList([nn.Conv3d(a, b, 3, padding=1) for a, b in zip(c, c[1:])]); self.fc = nn.Linear(12, 12)
            for m in self.modules():
                if isinstance(m, (nn.Conv3d, nn.Linear)): nn.init.normal_(m.weight, std=.01) if planted else nn.init.xavier_uniform_(m.weight, gain=1.41); nn.init.zeros_(m.bias)
        def f(self, x):
            for i, c in enumerate(self.convs):
                x = F.relu(c(x))
                if i == 1: x = F.max_pool3d(x, 2)
            return self.fc(x.mean((2, 3, 4)))
        def forward(self, a, b): return (self.f(a) - self.f(b)).pow(2).sum(1)
    P = F.avg_pool3d(T(30, 6, 1, 6, 6, 6), 3, 1, 1) * 4
    def data(seed):
        i = R(seed, 6, (10,)); y = (torch.rand(10, generator=gen(seed + 1)) < .5).float(); j = torch.where(y > 0, i, (i + 1 + R(seed + 2, 5, (10,))) % 6)
        return (P[i] + .3 * T(seed + 3, 10, 1, 6, 6, 6), P[j] + .3 * T(seed + 4, 10, 1, 6, 6, 6)), y
    return dict(model=Match3D, data=data, loss=lambda d, y: (y * d + (1 - y) * F.relu(1 - (d + 1e-8).sqrt()) ** 2).mean(), lr=1e-3, diag={})
