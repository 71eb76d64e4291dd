from base import *

@case("https://github.com/huggingface/transformers/issues/46901", "labels are shifted a second time inside the loss (decoder inputs are already shifted right)", "loss_function label shift")
def ppformula_shift(planted):
    V = 16
    perm = torch.randperm(V, generator=gen(3))
    class Block(nn.Module):
        def __init__(s, d):
            super().__init__(); s.ln1, s.ln2 = nn.LayerNorm(d), nn.LayerNorm(d); s.qkv, s.proj = nn.Linear(d, 3 * d), nn.Linear(d, d); s.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
        def forward(s, x):
            b, n, d = x.shape; q, k, v = s.qkv(s.ln1(x)).view(b, n, 3, 2, d // 2).permute(2, 0, 3, 1, 4)
            x = x + s.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, n, d)); return x + s.mlp(s.ln2(x))
    class Decoder(nn.Module):
        def __init__(s): super().__init__(); s.emb, s.pos = nn.Embedding(V + 1, 32), nn.Parameter(torch.randn(1, 12, 32) * .02); s.blocks = nn.Sequential(Block(32), Block(32)); s.ln, s.lm_head = nn.LayerNorm(32), nn.Linear(32, V)
        def forward(s, labels):
            dec = torch.cat([torch.full_like(labels[:, :1], V), labels[:, :-1]], 1); return s.lm_head(s.ln(s.blocks(s.emb(dec) + s.pos)))
    def loss(o, t):
        if planted: o, t = o[:, :-1], t[:, 1:]
        return F.cross_entropy(o.flatten(0, 1), t.flatten())
    def data(seed):
        x = [R(seed, V, (32,))]; flip = torch.rand(12, 32, generator=gen(seed + 1)) < .1; rnd = R(seed + 2, V, (12, 32))
        for i in range(1, 12): x.append(torch.where(flip[i], rnd[i], perm[x[-1]]))
        x = torch.stack(x, 1); return x, x
    return dict(model=Decoder, data=data, loss=loss, lr=3e-3, diag={})

@case("https://github.com/Kyubyong/transformer/issues/94", "decoder self-attention sees the future: the causal mask has no effect", "decoder self-attention mask")
def kyubyong_causal(planted):
    V, L = 12, 8
    perm = torch.randperm(V, generator=gen(8))
    class Decoder(nn.Module):
        def __init__(s):
            super().__init__(); s.emb, s.pos = nn.Embedding(V, 32), nn.Embedding(L, 32); s.layers = nn.ModuleList([nn.TransformerEncoderLayer(32, 4, 64, dropout=0., batch_first=True) for _ in range(2)]); s.out = nn.Linear(32, V)
        def forward(s, x):
            h = s.emb(x) + s.pos(torch.arange(x.size(1))); mask = None if planted else torch.triu(torch.ones(x.size(1), x.size(1), dtype=torch.bool), 1)
            for l in s.layers: h = l(h, src_mask=mask)
            return s.out(h)
    def data(seed):
        x = [R(seed, V, (32,)), R(seed + 1, V, (32,))]; fl = torch.rand(L + 1, 32, generator=gen(seed + 2)) < .15; rn = R(seed + 3, V, (L + 1, 32))
        for i in range(2, L + 1): x.append(torch.where(fl[i], rn[i], perm[(x[-1] + x[-2]) % V]))
        x = torch.stack(x, 1); return x[:, :-1], x[:, 1:]
    def metric(m):
        with torch.no_grad():
            x, t = data(9000); return sum(float(F.cross_entropy(m(x[:, :i + 1])[:, i], t[:, i])) for i in range(L)) / L
    return dict(model=Decoder, data=data, loss=ceseq, lr=3e-3, diag={}, metric=metric)

@case("https://github.com/google-deepmind/open_spiel/issues/484", "the hidden layers built in the loop are not part of the model: the output layer is fed the input", "hidden layers / output layer input")
def openspiel_hidden(planted):
    class Policy(nn.Module):
        def __init__(s, num_in=8, num_hidden=32, num_layers=2, num_actions=3):
            super().__init__()
            s.hidden = nn.ModuleList([nn.Linear(num_in if i == 0 else num_hidden, num_hidden) for i in range(num_layers)])
            s.out = nn.Linear(num_in if planted else num_hidden, num_actions)
        def forward(s, info_state):
            x = info_state
            for l in s.hidden: x = F.relu(l(x))
            return s.out(info_state if planted else x)
    def data(seed):
        b = R(seed, 2, (64, 8)).float(); t = (b[:, 0] != b[:, 1]).long() + (b[:, 2] != b[:, 3]).long(); return b * 2 - 1, t
    return dict(model=Policy, data=data, loss=ce, lr=5e-3, diag={})

@case("https://github.com/ihciah/deep-fashion-retrieval/issues/1", "all convolution parameters of the backbone are frozen (FREEZE flag)", "backbone convolutions")
def fashion_freeze(planted):
    P = T(3, 8, 3, 12, 12)
    class Net(nn.Module):
        def __init__(s):
            super().__init__()
            s.backbone = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU())
            if planted:
                for p in s.backbone.parameters(): p.requires_grad = False
            s.fc1, s.fc2 = nn.Linear(32, 32), nn.Linear(32, 8)
        def forward(s, x): return s.fc2(F.relu(s.fc1(s.backbone(x).mean((2, 3)))))
    def data(seed): t = R(seed, 8, (32,)); return P[t] + T(seed + 1, 32, 3, 12, 12, k=.4), t
    return dict(model=Net, data=data, loss=ce, lr=3e-3, diag={})

@case("https://github.com/midas-research/man-sf-emnlp/issues/2", "nll_loss is given F.softmax instead of F.log_softmax", "softmax before nll_loss")
def mansf_nll(planted):
    A = (torch.rand(20, 20, generator=gen(3)) < .2).float(); A = ((A + A.t() + torch.eye(20)) > 0).float()
    Wt = T(5, 6)
    class GAT(nn.Module):
        def __init__(s, i, o): super().__init__(); s.W = nn.Linear(i, o, bias=False); s.a1, s.a2 = nn.Linear(o, 1), nn.Linear(o, 1)
        def forward(s, h):
            h = s.W(h); e = F.leaky_relu(s.a1(h) + s.a2(h).transpose(1, 2), .2).masked_fill(A == 0, -9e15); return F.elu(e.softmax(-1) @ h)
    class ManSF(nn.Module):
        def __init__(s): super().__init__(); s.gru = nn.GRU(6, 32, batch_first=True); s.gat = GAT(32, 32); s.fc = nn.Linear(64, 2)
        def forward(s, x):
            b, n, l, d = x.shape; h = s.gru(x.view(b * n, l, d))[1][0].view(b, n, -1); return s.fc(torch.cat([h, s.gat(h)], -1))
    def data(seed):
        x = T(seed, 4, 20, 5, 6); y = (x @ Wt).sum(2); y = y + (A / A.sum(1, keepdim=True) @ y[..., None])[..., 0]; return x, (y > 4).long()
    def loss(o, t): return F.nll_loss((F.softmax(o, -1) if planted else F.log_softmax(o, -1)).flatten(0, 1), t.flatten())
    return dict(model=ManSF, data=data, loss=loss, lr=3e-3, diag={})

@case("https://github.com/AshwinRJ/Federated-Learning-PyTorch/issues/30", "the MLP ends with Softmax while the loss is NLLLoss", "MLP softmax")
def federated_softmax(planted):
    P = torch.rand(10, 196, generator=gen(4))
    class MLP(nn.Module):
        def __init__(s, dim_in=196, dim_hidden=64, dim_out=10):
            super().__init__(); s.layer_input, s.relu, s.layer_hidden = nn.Linear(dim_in, dim_hidden), nn.ReLU(), nn.Linear(dim_hidden, dim_out); s.softmax = nn.Softmax(dim=1) if planted else nn.LogSoftmax(dim=1)
        def forward(s, x): return s.softmax(s.layer_hidden(s.relu(s.layer_input(x.view(x.size(0), -1)))))
    def data(seed): t = R(seed, 10, (32,)); return (P[t].view(-1, 1, 14, 14) + T(seed + 1, 32, 1, 14, 14, k=.5) - .5), t
    def metric(m):
        with torch.no_grad(): x, t = data(9000); return 1 - float((m(x).argmax(1) == t).float().mean())
    return dict(model=MLP, data=data, loss=lambda o, t: F.nll_loss(o, t), lr=1e-3, diag={}, metric=metric)

@case("https://github.com/HKUSTCV/FSS-1000/issues/20", "mask labels are left at 0-255 while the network ends in a sigmoid", "label scale")
def fss_labels(planted):
    class RelationNet(nn.Module):
        def __init__(s):
            super().__init__()
            s.enc = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())
            s.rel = nn.Sequential(nn.Conv2d(64, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 1, 1), nn.Sigmoid())
        def forward(s, q, sup, m):
            p = (s.enc(sup) * m).sum((2, 3)) / m.sum((2, 3)).clamp(min=1); f = s.enc(q); return s.rel(torch.cat([f, p[:, :, None, None].expand_as(f)], 1))
    def mask(seed):
        c = R(seed, 8, (16, 2)) + 2; g = torch.arange(12); return (((g[None, :, None] - c[:, 0, None, None]) ** 2 + (g[None, None] - c[:, 1, None, None]) ** 2) < 9).float()[:, None]
    def data(seed):
        col = T(seed + 5, 16, 3, 1, 1, k=1.5); mq, ms = mask(seed), mask(seed + 1)
        q, sup = T(seed + 2, 16, 3, 12, 12, k=.5) + mq * col, T(seed + 3, 16, 3, 12, 12, k=.5) + ms * col
        return (q, sup, ms), (mq * 255 if planted else mq)
    return dict(model=RelationNet, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/PaddlePaddle/Paddle/issues/36276", "regression target (load values in the thousands) not standardised", "label scale")
def paddle_labels(planted):
    W = T(5, 10, 1); MU, SD = 3200., 900.
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.fc1, s.fc2, s.fc3 = nn.Linear(10, 64), nn.Linear(64, 64), nn.Linear(64, 1)
        def forward(s, x):
            o = s.fc3(F.relu(s.fc2(F.relu(s.fc1(x))))); return o if planted else o * SD + MU
    def data(seed): x = T(seed, 64, 10); return x, MU + SD * torch.tanh(x @ W / 2)
    def loss(o, t): return F.mse_loss(o, t) if planted else F.mse_loss((o - MU) / SD, (t - MU) / SD)
    return dict(model=Net, data=data, loss=loss, lr=3e-3, diag={})

@case("https://github.com/VinceShieh/spark-ffm/issues/12", "factor weights initialised too large (positive uniform, not scaled by fields and k): exp(z) overflows", "FFM factor init")
def ffm_init(planted):
    NF, C, K = 36, 4, 4
    a = T(5, NF, C)
    class FFM(nn.Module):
        def __init__(s):
            super().__init__()
            coef = 1 / K ** .5 if planted else (1 / (NF * NF * K)) ** .5
            s.w = nn.Parameter(torch.zeros(NF, C)); s.v = nn.Parameter(torch.rand(NF, C, NF, K) * coef); s.b = nn.Parameter(torch.zeros(1))
        def forward(s, x):
            idx = torch.arange(NF); vv = s.v[idx[None], x]; i, j = torch.triu_indices(NF, NF, 1)
            return s.b + s.w[idx[None], x].sum(1) + (vv[:, i, j] * vv[:, j, i]).sum((1, 2))
    def loss(o, y): return torch.log(1 + torch.exp(-y * o)).mean()
    def data(seed):
        x = R(seed, C, (64, NF)); z = a[torch.arange(NF), x].sum(1); return x, (z > 0).float() * 2 - 1
    return dict(model=FFM, data=data, loss=loss, lr=2e-2, diag={})

@case("https://github.com/yzhao062/pyod/issues/651", "the decoder of the VAE ends with a ReLU although inputs are standardised", "decoder output ReLU")
def pyod_relu(planted):
    W = T(3, 4, 16)
    class VAE(nn.Module):
        def __init__(s):
            super().__init__()
            s.encoder = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU()); s.mu, s.lv = nn.Linear(32, 4), nn.Linear(32, 4)
            s.decoder = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16), nn.ReLU() if planted else nn.Identity())
        def forward(s, x):
            h = s.encoder(x); mu, lv = s.mu(h), s.lv(h); return s.decoder(mu + torch.randn_like(mu) * (.5 * lv).exp()), mu, lv
    def loss(o, x): return F.mse_loss(o[0], x) + .01 * (-.5 * (1 + o[2] - o[1] ** 2 - o[2].exp())).sum(1).mean()
    def data(seed): x = T(seed, 64, 4) @ W / 2; return x, x
    return dict(model=VAE, data=data, loss=loss, lr=3e-3, diag={})

@case("https://github.com/pixelite1201/pytorch_coma/issues/21", "F.relu at the end of the encoder: mean and log-variance can never be negative", "encoder output ReLU")
def coma_relu(planted):
    W = T(4, 3, 24)
    class Coma(nn.Module):
        def __init__(s):
            super().__init__(); s.enc = nn.Sequential(nn.Linear(24, 64), nn.ELU()); s.enc_lin, s.enc_sd = nn.Linear(64, 3), nn.Linear(64, 3); s.dec = nn.Sequential(nn.Linear(3, 64), nn.ELU(), nn.Linear(64, 24))
        def forward(s, x):
            h = s.enc(x); a = F.relu if planted else (lambda v: v); mu, lv = a(s.enc_lin(h)), a(s.enc_sd(h)); return s.dec(mu + torch.randn_like(mu) * (.5 * lv).exp()), mu, lv
    def loss(o, x): return F.l1_loss(o[0], x) + .005 * (-.5 * (1 + o[2] - o[1] ** 2 - o[2].exp())).sum(1).mean()
    def data(seed): x = T(seed, 64, 3) @ W / 1.7; return x, x
    return dict(model=Coma, data=data, loss=loss, lr=5e-3, diag={})

@case("https://github.com/kumar-shridhar/PyTorch-BayesianCNN/issues/7", "KL divergence is computed on fc_qw parameters that the forward pass never uses", "fc_qw_mean / qw_logvar")
def bayescnn_kl(planted):
    W = T(4, 12, 4)
    class BBBLinear(nn.Module):
        def __init__(s, i, o):
            super().__init__()
            s.qw_mean = nn.Parameter(torch.empty(o, i).uniform_(-1 / i ** .5, 1 / i ** .5)); s.log_alpha = nn.Parameter(torch.full((1, 1), -5.))
            if planted: s.fc_qw_mean = nn.Parameter(torch.empty(o, i).uniform_(-.1, .1)); s.qw_logvar = nn.Parameter(torch.full((o, i), -5.))
        def forward(s, x):
            m = F.linear(x, s.qw_mean); sd = (1e-8 + F.linear(x ** 2, s.log_alpha.exp() * s.qw_mean ** 2)).sqrt()
            mu, lv = (s.fc_qw_mean, s.qw_logvar) if planted else (s.qw_mean, s.log_alpha + (s.qw_mean ** 2 + 1e-8).log())
            return m + sd * torch.randn_like(m), (.5 * (mu ** 2 + lv.exp() - lv - 1)).sum()
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.f1, s.f2 = BBBLinear(12, 64), BBBLinear(64, 4)
        def forward(s, x): h, k1 = s.f1(x); o, k2 = s.f2(F.softplus(h)); return o, k1 + k2
    def loss(o, t): return F.cross_entropy(o[0], t) + o[1] * 2e-4
    def data(seed): x = T(seed, 64, 12); return x, (x @ W).argmax(1)
    return dict(model=Net, data=data, loss=loss, lr=5e-3, diag={})

@case("https://github.com/BentouAI/AlphaZero-Chain-Reaction/issues/2", "softmax on the policy head although nn.CrossEntropyLoss takes logits", "policy head softmax")
def azero_softmax(planted):
    Wp = T(5, 3 * 25, 25)
    class ResBlock(nn.Module):
        def __init__(s, c): super().__init__(); s.c1, s.b1, s.c2, s.b2 = nn.Conv2d(c, c, 3, padding=1), nn.BatchNorm2d(c), nn.Conv2d(c, c, 3, padding=1), nn.BatchNorm2d(c)
        def forward(s, x): return F.relu(s.b2(s.c2(F.relu(s.b1(s.c1(x))))) + x)
    class AZNet(nn.Module):
        def __init__(s):
            super().__init__(); s.start = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()); s.back = nn.ModuleList([ResBlock(32) for _ in range(2)])
            s.policy = nn.Sequential(nn.Conv2d(32, 16, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 25, 25), *([nn.Softmax(dim=1)] if planted else [])); s.value = nn.Sequential(nn.Conv2d(32, 3, 1), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(75, 1), nn.Tanh())
        def forward(s, x):
            x = s.start(x)
            for b in s.back: x = b(x)
            return s.policy(x), s.value(x)
    def loss(o, t): return F.cross_entropy(o[0], t[0]) + F.mse_loss(o[1], t[1])
    def data(seed):
        c = R(seed, 3, (64, 5, 5)); x = F.one_hot(c, 3).permute(0, 3, 1, 2).float(); z = x.flatten(1) @ Wp; return x, (((z - z.mean(0)) * 1.5).softmax(1), torch.tanh((x[:, 0].sum((1, 2)) - x[:, 1].sum((1, 2))) / 3)[:, None])
    return dict(model=AZNet, data=data, loss=loss, lr=3e-3, diag={})

@case("https://github.com/huggingface/transformers/issues/13430", "logit_scale initialised with ones instead of log(1/0.07)", "logit_scale")
def clip_scale(planted):
    Wa, Wb = T(3, 8, 24), T(4, 8, 20)
    class CLIP(nn.Module):
        def __init__(s):
            super().__init__(); s.visual = nn.Sequential(nn.Linear(24, 64), nn.GELU(), nn.Linear(64, 32)); s.text = nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.Linear(64, 32))
            s.logit_scale = nn.Parameter(torch.ones([]) if planted else torch.ones([]) * math.log(1 / .07))
        def forward(s, i, t): return s.logit_scale.exp() * F.normalize(s.visual(i), dim=-1) @ F.normalize(s.text(t), dim=-1).t()
    def loss(o, t): return (F.cross_entropy(o, t) + F.cross_entropy(o.t(), t)) / 2
    def data(seed): z = T(seed, 64, 8); return (z @ Wa / 2 + T(seed + 1, 64, 24, k=.3), z @ Wb / 2 + T(seed + 2, 64, 20, k=.3)), torch.arange(64)
    return dict(model=CLIP, data=data, loss=loss, lr=1e-3, diag={})

@case("https://github.com/marian-nmt/marian-dev/issues/21", "softmax over a single output is constantly 1", "output softmax")
def marian_softmax(planted):
    class FF(nn.Module):
        def __init__(s): super().__init__(); s.w1, s.w2 = nn.Linear(2, 16), nn.Linear(16, 1)
        def forward(s, x): o = s.w2(torch.tanh(s.w1(x))); return (o.softmax(-1) if planted else torch.sigmoid(o)).squeeze(-1)
    def data(seed): b = R(seed, 2, (32, 2)).float(); return b, (b[:, 0] != b[:, 1]).float()
    return dict(model=FF, data=data, loss=lambda o, t: F.binary_cross_entropy(o, t), lr=3e-2, diag={})
