from base import *

@case("https://github.com/Justin-Tan/generative-compression/issues/51", "tf.round around the straight-through quantiser blocks the gradient to the encoder", "round in quantizer")
def quant_round(planted):
    D = T(40, 8, 3, 8, 8)
    class Compressor(nn.Module):
        def __init__(self, c=16):
            super().__init__(); self.encoder = nn.Sequential(nn.Conv2d(3, c, 3, 2, 1), nn.ReLU(), nn.Conv2d(c, 2 * c, 3, 2, 1), nn.ReLU(), nn.Conv2d(2 * c, 8, 1))
            self.decoder = nn.Sequential(nn.Conv2d(8, 2 * c, 1), nn.ReLU(), nn.ConvTranspose2d(2 * c, c, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(c, 3, 4, 2, 1)); self.register_buffer("centers", torch.tensor([-2., -1., 0., 1., 2.]))
        def quantizer(self, w):
            d = (w.unsqueeze(-1) - self.centers).abs(); soft = (torch.softmax(-d, -1) * self.centers).sum(-1); hard = self.centers[d.argmin(-1)]
            q = (hard - soft).detach() + soft
            return torch.round(q) if planted else q
        def forward(self, x): return self.decoder(self.quantizer(self.encoder(x)))
    def data(s):
        z = T(s, 16, 8, 2, 2); x = F.conv_transpose2d(z, D, stride=8) * .3; return x, x
    return dict(model=Compressor, data=data, loss=mse, lr=5e-3, diag={})

@case("https://github.com/EdoardoBotta/RQ-VAE-Recommender/issues/24", "rqvae loss computed on the detached (straight-through) embedding, codebook gets no gradient", "codebook_loss (z_q detached) / vq.codebook")
def vq_codebook(planted):
    W = T(41, 10, 24)
    class VectorQuantizer(nn.Module):
        def __init__(self, n=32, d=8): super().__init__(); self.codebook = nn.Embedding(n, d); self.codebook.weight.data.uniform_(-1 / n, 1 / n)
        def forward(self, x):
            i = torch.cdist(x, self.codebook.weight).argmin(-1); z = self.codebook(i); return x + (z - x).detach(), z, x
    class VQ_LAM(nn.Module):
        def __init__(self):
            super().__init__(); self.encoder = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 8)); self.vq = VectorQuantizer(); self.decoder = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 24))
        def forward(self, x): z_q, z, z_e = self.vq(self.encoder(x)); return self.decoder(z_q), (z_q if planted else z), z_e
    def loss(o, t): x, z, e = o; return F.mse_loss(x, t) + F.mse_loss(z, e.detach()) + .25 * F.mse_loss(e, z.detach())
    def data(s): x = W[R(s, 10, (128,))] + .2 * T(s + 1, 128, 24); return x, x
    def metric(m):
        x, t = data(99999)
        with torch.no_grad(): return float(F.mse_loss(m(x)[0], t))
    return dict(model=VQ_LAM, data=data, loss=loss, lr=3e-3, diag={}, metric=metric)

@case("https://github.com/d2l-ai/d2l-en/pull/2600", "custom linear layer uses self.weight.data and self.bias.data in forward, no gradient", "MyLinear .data")
def d2l_data(planted):
    W = T(42, 20, 2)
    class MyLinear(nn.Module):
        def __init__(self, i, o): super().__init__(); self.weight = nn.Parameter(torch.randn(i, o) / math.sqrt(i)); self.bias = nn.Parameter(torch.randn(o) * .1)
        def forward(self, X):
            linear = torch.matmul(X, self.weight.data) + self.bias.data if planted else torch.matmul(X, self.weight) + self.bias
            return F.relu(linear)
    class Net(nn.Module):
        def __init__(self): super().__init__(); self.net = nn.Sequential(MyLinear(20, 64), MyLinear(64, 8), nn.Linear(8, 1))
        def forward(self, x): return self.net(x).squeeze(1)
    def data(s): x = T(s, 64, 20); return x, torch.tanh(x @ W[:, 0]) + .5 * torch.tanh(x @ W[:, 1])
    return dict(model=Net, data=data, loss=mse, lr=5e-3, diag={})

@case("https://github.com/fionn-mac/Manhattan-LSTM/issues/4", "relatedness scores 1..5 fed unscaled while the model output exp(-distance) lies in (0,1]", "target scale (y not scaled to [0,1])")
def malstm_scale(planted):
    V = T(43, 40, 3)
    class MaLSTM(nn.Module):
        def __init__(self, d=32): super().__init__(); self.embedding = nn.Embedding(40, d); self.lstm = nn.LSTM(d, d, batch_first=True); nn.init.normal_(self.embedding.weight, std=.3)
        def enc(self, t): return self.lstm(self.embedding(t))[1][0][-1]
        def forward(self, a, b): return torch.exp(-(self.enc(a) - self.enc(b)).abs().sum(1))
    def data(s):
        a = R(s, 40, (64, 6)); b = torch.where(torch.rand(64, 6, generator=gen(s + 1)) < torch.rand(64, 1, generator=gen(s + 2)), R(s + 3, 40, (64, 6)), a)
        y = torch.exp(-(V[a].mean(1) - V[b].mean(1)).abs().sum(1)); return (a, b), 1 + 4 * y if planted else y
    def metric(m):
        (a, b), t = data(99999)
        with torch.no_grad(): return float(F.mse_loss(m(a, b), torch.exp(-(V[a].mean(1) - V[b].mean(1)).abs().sum(1))))
    return dict(model=MaLSTM, data=data, loss=mse, lr=1e-2, diag={}, metric=metric)

@case("https://github.com/lsh0520/3D-MoLM/issues/8", "encoder padding mask passed with the opposite convention, the Q-Former attends only to padding", "encoder attention mask inverted")
def molm_mask(planted):
    V = T(44, 30)
    class QFormer(nn.Module):
        def __init__(self, d=32, nq=4):
            super().__init__(); self.embed = nn.Embedding(30, d); self.enc = nn.Sequential(nn.Linear(d, d), nn.GELU(), nn.Linear(d, d)); self.query_tokens = nn.Parameter(torch.randn(1, nq, d) * .02 + 0)
            self.cross = nn.MultiheadAttention(d, 4, batch_first=True); self.ln = nn.LayerNorm(d); self.ffn = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)); self.head = nn.Linear(d, 2)
        def forward(self, t, padding_mask):
            h = self.enc(self.embed(t)); q = self.query_tokens.expand(t.size(0), -1, -1)
            q = self.ln(q + self.cross(q, h, h, key_padding_mask=~padding_mask if planted else padding_mask)[0]); q = q + self.ffn(q)
            return self.head(q.mean(1))
    def data(s):
        n = 4 + R(s, 8, (64,)); m = torch.arange(14) >= n[:, None]; t = R(s + 1, 29, (64, 14)) + 1; t[m] = 0
        return (t, m), ((V[t] * ~m).sum(1) > 0).long()
    return dict(model=QFormer, data=data, loss=ce, lr=3e-3, diag={})
