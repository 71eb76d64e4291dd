from base import *
from tasks import *

@case("https://github.com/FluxML/Flux.jl/issues/1546", "softmax over the only output unit", "linear2")
def softmax_one_unit(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.linear1 = nn.Linear(2, 24); s.linear2 = nn.Linear(24, 1)
        def forward(s, x): o = s.linear2(torch.sigmoid(s.linear1(x))); return F.softmax(o, -1) if planted else torch.sigmoid(o)
    def data(seed): x = T(seed, 64, 2) * 2; return x, (x[:, :1] + x[:, 1:] > .3).float()
    return dict(model=Net, data=data, loss=mse, diag=MSE)

@case("https://github.com/illiterate/BertClassifier/issues/2", "the classifier ends in a softmax before CrossEntropyLoss", "softmax output")
def bert_double_softmax(planted):
    class BertClassifier(nn.Module):
        def __init__(s):
            super().__init__(); d = 32; s.word = nn.Embedding(60, d); s.pos = nn.Embedding(16, d); s.ln = nn.LayerNorm(d)
            s.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 64, dropout=.1, activation="gelu", batch_first=True), 2)
            s.pooler = nn.Linear(d, d); s.classifier = nn.Linear(d, 10)
        def forward(s, ids, mask):
            x = s.ln(s.word(ids) + s.pos(torch.arange(ids.shape[1]))); x = s.encoder(x, src_key_padding_mask=mask == 0)
            o = s.classifier(torch.tanh(s.pooler(x[:, 0]))); return F.softmax(o, 1) if planted else o
    def data(seed):
        y = R(seed, 10, (48,)); n = R(seed + 1, 8, (48,)) + 8; x = R(seed + 2, 58, (48, 16)) + 2; m = torch.rand(48, 16, generator=gen(seed + 3)) < .5
        x = torch.where(m, R(seed + 4, 5, (48, 16)) + 5 * y[:, None] + 2, x); x[:, 0] = 1; k = (torch.arange(16)[None] < n[:, None]).long(); return (x * k, k), y
    return dict(model=BertClassifier, data=data, loss=ce, diag=CE)

@case("https://github.com/allenai/allennlp/issues/2797", "log of a softmax that underflows to 0, times the labels: 0 * inf", "loss log(softmax)")
def softmax_then_log(planted):
    class DecomposableAttention(nn.Module):
        def __init__(s):
            super().__init__(); d = 24; s.register_buffer("glove", T(3, 80, 50) * 5); s.proj = nn.Linear(50, d, bias=False)
            ff = lambda i: nn.Sequential(nn.Linear(i, d), nn.ReLU(), nn.Linear(d, d), nn.ReLU()); s.attend = ff(d); s.compare = ff(2 * d); s.score = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 1))
        def forward(s, q, a):                                   # q (B, T), a (B, N, T): score each answer
            B, N, L = a.shape; p = s.proj(s.glove[q]); h = s.proj(s.glove[a.flatten(0, 1)]); p = p.repeat_interleave(N, 0)
            sim = s.attend(p) @ s.attend(h).transpose(1, 2); hp = sim.softmax(1).transpose(1, 2) @ p
            return s.score(s.compare(torch.cat([h, hp], -1)).sum(1)).view(B, N) * 20
    def loss(o, t):
        y = F.one_hot(t, o.shape[1]).float()
        if planted: return (-torch.log(torch.softmax(o, -1)) * y).sum(-1).mean()
        return (-torch.log_softmax(o, -1) * y).sum(-1).mean()
    def data(seed):
        q = R(seed, 80, (24, 6)); a = R(seed + 1, 80, (24, 5, 6)); y = R(seed + 2, 5, (24,)); a[torch.arange(24), y] = torch.where(torch.rand(24, 6, generator=gen(seed)) < .7, R(seed + 3, 10, (24, 6)), a[torch.arange(24), y]); return (q, a), y
    return dict(model=DecomposableAttention, data=data, loss=loss, diag={})

@case("https://discuss.pytorch.org/t/output-of-the-binary-classification-model/56327", "ReLU after the last layer, then sigmoid: never below 0.5", "fc_last_2")
def relu_before_sigmoid(planted):
    class XceptionLike(nn.Module):
        def __init__(s):
            super().__init__(); sep = lambda i, o: nn.Sequential(nn.Conv2d(i, i, 3, padding=1, groups=i), nn.Conv2d(i, o, 1), nn.BatchNorm2d(o), nn.ReLU())
            s.c16 = nn.Sequential(sep(3, 16), nn.MaxPool2d(2), sep(16, 24)); s.c32 = nn.Sequential(sep(3, 16), nn.MaxPool2d(2), sep(16, 24))
            s.fc_last_1 = nn.Linear(48, 32); s.fc_last_2 = nn.Linear(32, 1)
        def forward(s, a, b):
            o = torch.cat([s.c16(a).mean((2, 3)), s.c32(b).mean((2, 3))], 1); o = F.relu(s.fc_last_1(o)); o = s.fc_last_2(o)
            return torch.sigmoid(F.relu(o) if planted else o).squeeze(1)
    def data(seed): x, y = imgs(seed, 40, 3, 16, 2, 1.5); return (F.avg_pool2d(x, 2), x), y.float()
    return dict(model=XceptionLike, data=data, loss=lambda o, t: F.binary_cross_entropy(o, t), diag={})



@case("https://github.com/lmoroney/dlaicourse/pull/119", "labels of shape [1, N] against outputs [N, 1]: broadcast in the squared error", "loss shapes")
def label_broadcast(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.d1 = nn.Linear(6, 32); s.d2 = nn.Linear(32, 32); s.d3 = nn.Linear(32, 1)
        def forward(s, x): return s.d3(F.relu(s.d2(F.relu(s.d1(x)))))
    W = T(9, 6, 1)
    def data(seed): x = T(seed, 64, 6); y = torch.tanh(x @ W) + .5 * x[:, :1].abs(); return x, y
    def loss(o, t): return ((o - (t.reshape(1, -1) if planted else t.reshape(-1, 1))) ** 2).mean()
    return dict(model=Net, data=data, loss=loss, diag={})

@case("https://github.com/pytorch/pytorch/issues/38639", "layers kept in a plain Python list: not trained", "layers")
def python_list(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); ls = [nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.ReLU()) for i, o in ((1, 12), (12, 12), (12, 12), (12, 12))]
            s.layers = ls if planted else nn.ModuleList(ls); s.fc = nn.Linear(12, 6)
        def forward(s, x):
            for i, l in enumerate(s.layers): x = l(x); x = F.max_pool2d(x, 2) if i % 2 else x
            return s.fc(x.mean((2, 3)))
    return dict(model=Net, data=lambda seed: imgs(seed, 32, 1, 16, 6, .7), loss=ce, diag=CE)

@case("https://github.com/samvanstroud/hepattn/issues/44", "Dice loss without sigmoid in the size of the predicted mask", "loss dice")
def dice_nosigmoid(planted):
    class MaskFormerLite(nn.Module):
        def __init__(s):
            super().__init__(); d = 32; s.init = nn.Sequential(nn.Linear(3, d), nn.ReLU(), nn.Linear(d, d)); s.enc = nn.TransformerEncoderLayer(d, 4, 64, dropout=0., batch_first=True, norm_first=True)
            s.query = nn.Parameter(torch.randn(4, d)); s.cross = nn.MultiheadAttention(d, 4, batch_first=True); s.ln = nn.LayerNorm(d); s.mask_net = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d))
        def forward(s, x):
            h = s.enc(s.init(x)); q = s.query.expand(x.shape[0], -1, -1); q = s.ln(q + s.cross(q, h, h)[0]); return s.mask_net(q) @ h.transpose(1, 2) / 32 ** .5
    def loss(o, t):
        p = o.sigmoid(); num = (o if planted else p).sum(-1); return (1 - 2 * (p * t).sum(-1) / (num + t.sum(-1) + 1e-6)).mean()
    C = torch.tensor([[2., 0, 0], [-2, 0, 0], [0, 2, 0], [0, -2, 0]])
    def data(seed): k = R(seed, 4, (24, 40)); return C[k] + .6 * T(seed, 24, 40, 3), F.one_hot(k, 4).transpose(1, 2).float()
    return dict(model=MaskFormerLite, data=data, loss=loss, diag={})

@case("https://github.com/lksshw/SRNet/issues/18", "discriminator has no sigmoid before the clipped log of its loss", "discriminator output")
def disc_nosigmoid(planted):
    class Discriminator(nn.Module):
        def __init__(s):
            super().__init__(); c = lambda i, o, n: nn.Sequential(nn.Conv2d(i, o, 4, 2, 1), nn.BatchNorm2d(o) if n else nn.Identity(), nn.LeakyReLU(.2)); s.m = nn.Sequential(c(3, 16, 0), c(16, 32, 1), c(32, 32, 1)); s.last = nn.Conv2d(32, 1, 2)
        def forward(s, x): o = s.last(s.m(x)).flatten(); return o if planted else torch.sigmoid(o)
    def loss(o, t): o = torch.clamp(o, 1e-8, 1 - 1e-6); return -(t * torch.log(o) + (1 - t) * torch.log(1 - o)).mean()
    def data(seed): x, y = imgs(seed, 48, 3, 16, 2, 1.5); return x, y.float()
    return dict(model=Discriminator, data=data, loss=loss, diag={})

@case("https://github.com/keras-team/keras/issues/1597", "convolution without an activation (sigmoid added by the answer)", "conv")
def conv_noact(planted):
    class TextCNN(nn.Module):
        def __init__(s): super().__init__(); s.emb = nn.Embedding(80, 24); s.conv = nn.Conv1d(24, 32, 3); s.fc = nn.Linear(32, 32); s.out = nn.Linear(32, 6)
        def forward(s, x):
            h = s.conv(s.emb(x).transpose(1, 2)); h = h if planted else torch.sigmoid(h); return s.out(F.relu(s.fc(h.mean(-1)))).sigmoid()
    def data(seed):
        y = (torch.rand(48, 6, generator=gen(seed)) < .3).float(); x = R(seed + 1, 80, (48, 24))
        for k in range(6): x[:, 4 * k] = torch.where(y[:, k] > 0, k, x[:, 4 * k].clamp(min=6)); 
        return x, y
    return dict(model=TextCNN, data=data, loss=lambda o, t: F.binary_cross_entropy(o, t), diag={})

@case("https://github.com/vanderschaarlab/synthcity/issues/331", "log variance of the encoder is not bounded before exp", "encoder logvar")
def vae_logvar(planted):
    class VAE(nn.Module):
        def __init__(s):
            super().__init__(); s.encoder = nn.Sequential(nn.Linear(12, 64), nn.LeakyReLU(), nn.Linear(64, 64), nn.LeakyReLU()); s.mu = nn.Linear(64, 6); s.logvar = nn.Linear(64, 6); s.decoder = nn.Sequential(nn.Linear(6, 64), nn.LeakyReLU(), nn.Linear(64, 12))
        def forward(s, x):
            h = s.encoder(x); mu, lv = s.mu(h), s.logvar(h)
            if not planted: lv = torch.clamp(lv, -30, 5)
            z = mu + torch.exp(.5 * lv) * torch.randn_like(mu); return s.decoder(z), mu, lv
    def loss(o, t): r, mu, lv = o; return F.mse_loss(r, t) + .01 * (-.5 * (1 + lv - mu ** 2 - lv.exp()).sum(1)).mean()
    A = T(8, 4, 12)
    def data(seed): x = T(seed, 64, 4) @ A * torch.exp(2.2 * T(seed + 1, 64, 1)); return x, x
    return dict(model=VAE, data=data, loss=loss, diag={})

@case("https://github.com/danielegrattarola/spektral/issues/205", "mask -1e10*(1-A) with a weighted adjacency: only self-loops of weight 1 survive", "attention mask")
def gat_weighted_mask(planted):
    class GATConv(nn.Module):
        def __init__(s, i, o, h=4):
            super().__init__(); s.h, s.o = h, o; s.kernel = nn.Parameter(torch.empty(i, h * o)); nn.init.xavier_uniform_(s.kernel); s.a_self = nn.Parameter(torch.randn(h, o) * .3); s.a_neigh = nn.Parameter(torch.randn(h, o) * .3); s.bias = nn.Parameter(torch.zeros(h * o))
        def forward(s, x, a):
            B, N, _ = x.shape; a = a * (1 - torch.eye(N)) + torch.eye(N); v = (x @ s.kernel).view(B, N, s.h, s.o)
            c = (v * s.a_self).sum(-1)[:, :, None] + (v * s.a_neigh).sum(-1)[:, None]; c = F.leaky_relu(c, .2)
            m = -10e9 * (1. - (a if planted else (a > 0).float())); c = torch.softmax(c + m[..., None], 2)
            return torch.einsum("bnmh,bmho->bnho", c, v).flatten(2) + s.bias
    class GAT(nn.Module):
        def __init__(s): super().__init__(); s.g1 = GATConv(8, 8); s.g2 = GATConv(32, 8); s.fc = nn.Linear(32, 4)
        def forward(s, x, a): return s.fc(F.elu(s.g2(F.elu(s.g1(x, a)), a)))
    P = T(21, 4, 8)
    def data(seed):
        B, N = 16, 20; z = R(seed, 4, (B, N)); w = torch.where(z[:, :, None] == z[:, None], .6, .04); a = (torch.rand(B, N, N, generator=gen(seed + 1)) < w).float().triu(1); a = a + a.transpose(1, 2)
        wt = .3 + .6 * torch.rand(B, N, N, generator=gen(seed + 2)).triu(1); wt = wt + wt.transpose(1, 2); return (P[z] * .6 + 1.6 * T(seed + 3, B, N, 8), a * wt * .5), z
    return dict(model=GAT, data=data, loss=ceseq, diag=SEQ)

@case("https://github.com/thu-ml/tianshou/issues/98", "tanh on the mean of a policy that is squashed by tanh again", "mu")
def sac_double_tanh(planted):
    class ActorProb(nn.Module):
        def __init__(s): super().__init__(); s.pre = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()); s.mu = nn.Linear(64, 2); s.sigma = nn.Linear(64, 2)
        def forward(s, o): h = s.pre(o); mu = s.mu(h); mu = torch.tanh(mu) if planted else mu; return mu, s.sigma(h).clamp(-20, 2)
    W = T(6, 8, 2)
    def loss(o, t):                                              # deterministic part and entropy of SAC with a known Q = -(a - a*)^2
        mu, ls = o; g = torch.linspace(-1.2, 1.2, 5)[:, None, None]; u = mu + ls.exp() * g; a = torch.tanh(u); return ((a - t) ** 2).mean() - .002 * ls.mean()
    def data(seed): x = T(seed, 96, 8); return x, .98 * torch.sign(x @ W)
    return dict(model=ActorProb, data=data, loss=loss, diag={})
