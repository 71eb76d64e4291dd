from base import *

@case("https://github.com/pytorch/pytorch/issues/104776", "class weights together with label smoothing: the rare class's weight multiplies the smoothing mass", "CrossEntropyLoss(weight=..., label_smoothing=0.1)")
def torch_weighted_smoothing(planted):
    n = 20; weight = torch.ones(n); weight[0] = 800.0
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.fc1 = nn.Linear(n, 64); s.fc2 = nn.Linear(64, n)
        def forward(s, x): return s.fc2(F.relu(s.fc1(x)))
    def data(seed):
        t = 1 + R(seed, n - 1, (64,)); t[0] = 0 if seed % 10 == 0 else t[0]; return F.one_hot(t, n).float(), t
    def metric(m):
        x, t = data(9001)
        with torch.no_grad(): return float((m(x).argmax(1) != t).float().mean())
    return dict(model=Net, data=data, loss=lambda o, t: F.cross_entropy(o, t, weight=weight, label_smoothing=0.1 if planted else 0.0), lr=1e-2, diag={}, metric=metric)

@case("https://github.com/itakurah/focal-loss-pytorch/pull/5", "inputs get a sigmoid before binary_cross_entropy_with_logits", "FocalLoss: sigmoid applied twice")
def focal_double_sigmoid(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.body = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()); s.head = nn.Linear(64, 1)
        def forward(s, x): return s.head(s.body(x))[:, 0]
    def loss(inputs, targets, alpha=0.25, gamma=2):
        probs = torch.sigmoid(inputs); l = F.binary_cross_entropy_with_logits(probs if planted else inputs, targets, reduction="none"); pt = probs * targets + (1 - probs) * (1 - targets)
        return ((alpha * targets + (1 - alpha) * (1 - targets)) * (1 - pt) ** gamma * l).mean()
    w = T(6, 16)
    def data(seed):
        x = T(seed, 64, 16); return x, ((x @ w) > 4).float()
    def metric(m):
        with torch.no_grad(): return sum(float(F.binary_cross_entropy_with_logits(m(data(9000 + k)[0]), data(9000 + k)[1])) for k in range(5)) / 5
    return dict(model=Net, data=data, loss=loss, lr=2e-3, diag={}, metric=metric)

@case("https://github.com/clvrai/ACGAN-PyTorch/pull/4", "auxiliary classifier ends in Softmax but is trained with NLLLoss", "Softmax in front of NLLLoss (no log)")
def acgan_softmax_nll(planted):
    class netD(nn.Module):
        def __init__(s, num_classes=40):
            super().__init__(); s.conv1 = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.LeakyReLU(0.2), nn.Dropout(0.1)); s.conv2 = nn.Sequential(nn.Conv2d(16, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.LeakyReLU(0.2), nn.Dropout(0.1))
            s.fc_aux = nn.Linear(32 * 16, num_classes); s.out = nn.Softmax(dim=1) if planted else nn.LogSoftmax(dim=1)
        def forward(s, x): return s.out(s.fc_aux(s.conv2(s.conv1(x)).flatten(1)))
    tm = T(3, 40, 3, 16, 16)
    def data(seed):
        t = R(seed, 40, (64,)); return tm[t] + 1.5 * T(seed + 1, 64, 3, 16, 16), t
    def metric(m):
        with torch.no_grad(): return sum(float((m(data(9000 + k)[0]).argmax(1) != data(9000 + k)[1]).float().mean()) for k in range(5)) / 5
    return dict(model=netD, data=data, loss=F.nll_loss, lr=5e-4, diag={}, metric=metric)

@case("https://github.com/Skyorca/OpenGDA/issues/3", "Wasserstein critic ends in a sigmoid", "discriminator: final sigmoid")
def opengda_critic_sigmoid(planted):
    class Discriminator(nn.Module):
        def __init__(s):
            super().__init__(); s.net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
        def forward(s, x):
            x = s.net(x); return torch.sigmoid(x) if planted else x
    def loss(o, dom):
        o = o[:, 0]; return o[dom == 0].mean() - o[dom == 1].mean() + 1e-2 * o.pow(2).mean()
    sh = T(5, 16, k=0.5)
    def data(seed):
        dom = torch.arange(64) % 2; return T(seed, 64, 16) + dom[:, None] * sh, dom
    return dict(model=Discriminator, data=data, loss=loss, lr=1e-3, diag={})

@case("https://github.com/pyg-team/pytorch_geometric/issues/1561", "norm is applied to the layer's input, the convolution's output is overwritten", "DeepGCNLayer: h = norm(x) after h = conv(x)")
def pyg_deepgcn_norm_x(planted):
    class GraphConv(nn.Module):
        def __init__(s, d): super().__init__(); s.lin = nn.Linear(d, d); s.root = nn.Linear(d, d, bias=False)
        def forward(s, x, adj): return s.lin(adj @ x / adj.sum(-1, keepdim=True).clamp(min=1)) + s.root(x)
    class DeepGCNLayer(nn.Module):
        def __init__(s, d): super().__init__(); s.conv = GraphConv(d); s.norm = nn.LayerNorm(d)
        def forward(s, x, adj):
            h = s.conv(x, adj); h = s.norm(x if planted else h); return x + F.relu(h)
    class DeepGCN(nn.Module):
        def __init__(s, n=4, d=32):
            super().__init__(); s.enc = nn.Linear(8, d); s.layers = nn.ModuleList([DeepGCNLayer(d) for _ in range(n)]); s.lin = nn.Linear(d, 3)
        def forward(s, x, adj):
            x = s.enc(x)
            for l in s.layers: x = l(x, adj)
            return s.lin(x)
    w = T(4, 8, 3)
    def data(seed):
        x = T(seed, 8, 24, 8); a = (torch.rand(8, 24, 24, generator=gen(seed + 1)) < 0.12).float(); a = ((a + a.transpose(1, 2)) > 0).float(); return (x, a), ((a @ x / a.sum(-1, keepdim=True).clamp(min=1) + 0.3 * x) @ w).argmax(-1)
    return dict(model=DeepGCN, data=data, loss=ceseq, lr=3e-3, diag={})

@case("https://github.com/pytorch/translate/pull/220", "embeddings keep N(0, 1) instead of N(0, 1/sqrt(d))", "embed_tokens init (std 1, scaled by sqrt(d) and tied to the output)")
def translate_embedding_std(planted):
    class TransformerDecoder(nn.Module):
        def __init__(s, V=40, d=128):
            super().__init__(); s.embed_tokens = nn.Embedding(V, d); s.d = d; s.pos = nn.Parameter(torch.randn(1, 12, d) * d ** -0.5); s.layers = nn.ModuleList([nn.TransformerEncoderLayer(d, 4, 256, 0.0, batch_first=True) for _ in range(2)])
            nn.init.normal_(s.embed_tokens.weight, 0, 1.0 if planted else d ** -0.5)
        def forward(s, ids):
            x = s.embed_tokens(ids) * math.sqrt(s.d) + s.pos; m = torch.full((ids.shape[1],) * 2, float("-inf")).triu(1)
            for l in s.layers: x = l(x, src_mask=m)
            return F.linear(x, s.embed_tokens.weight)
    P = torch.softmax(2.5 * T(7, 40, 40), -1)
    def data(seed):
        g = gen(seed); s = [torch.randint(0, 40, (32,), generator=g)]
        for _ in range(12): s.append(torch.multinomial(P[s[-1]], 1, generator=g)[:, 0])
        s = torch.stack(s, 1); return s[:, :-1], s[:, 1:]
    return dict(model=TransformerDecoder, data=data, loss=ceseq, lr=1e-3, diag={})

def tags(seed, B=32, L=12, V=10):
    x = R(seed, V, (B, L)); nxt = torch.cat([x[:, 1:], torch.zeros(B, 1, dtype=torch.long)], 1); return x, (x + nxt) % 2 + 2 * (nxt > 4).long()

@case("https://github.com/stanfordmlgroup/nlc/issues/8", "the backward RNN gets the same, unreversed inputs as the forward RNN", "bidirectional encoder: input of the backward cell")
def nlc_backward_unreversed(planted):
    class Encoder(nn.Module):
        def __init__(s):
            super().__init__(); s.emb = nn.Embedding(10, 24); s.fw = nn.GRU(24, 32, batch_first=True); s.bw = nn.GRU(24, 32, batch_first=True); s.out = nn.Linear(32, 4)
        def forward(s, ids):
            x = s.emb(ids); f, _ = s.fw(x)
            b = s.bw(x)[0] if planted else s.bw(x.flip(1))[0].flip(1)
            return s.out(torch.tanh(f + b))
    return dict(model=Encoder, data=tags, loss=ceseq, lr=1e-2, diag={})

@case("https://github.com/sbillburg/CRNN-with-STN/issues/12", "output of the go_backwards LSTM is not flipped back before the merge", "rnn_1b / rnn_2b outputs (time reversed) merged with rnn_1 / rnn_2")
def crnn_go_backwards(planted):
    class CRNN(nn.Module):
        def __init__(s):
            super().__init__(); s.emb = nn.Embedding(10, 24); s.rnn_1 = nn.LSTM(24, 32, batch_first=True); s.rnn_1b = nn.LSTM(24, 32, batch_first=True); s.rnn_2 = nn.LSTM(32, 32, batch_first=True); s.rnn_2b = nn.LSTM(32, 32, batch_first=True); s.fc = nn.Linear(64, 4)
        def forward(s, ids):
            x = s.emb(ids); back = lambda r, z: r(z.flip(1))[0] if planted else r(z.flip(1))[0].flip(1)
            x = s.rnn_1(x)[0] + back(s.rnn_1b, x); return s.fc(torch.cat([s.rnn_2(x)[0], back(s.rnn_2b, x)], -1))
    return dict(model=CRNN, data=tags, loss=ceseq, lr=1e-2, diag={})

class ATan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): ctx.save_for_backward(x); return (x > 0).float()
    @staticmethod
    def backward(ctx, g): x, = ctx.saved_tensors; return g / (1 + (math.pi * x) ** 2)

@case("https://github.com/jeshraghian/snntorch/issues/66", "device weights are all positive, membranes run away", "fc1 / fc2 weights (positive only)")
def snntorch_positive_weights(planted):
    class Net(nn.Module):
        def __init__(s, num_steps=15, beta=0.9):
            super().__init__(); s.fc1 = nn.Linear(100, 64); s.fc2 = nn.Linear(64, 10); s.num_steps, s.beta = num_steps, beta
            if planted:
                for l in (s.fc1, s.fc2): l.weight.data.abs_()
        def forward(s, x):
            mem1 = torch.zeros(len(x), 64); mem2 = torch.zeros(len(x), 10); rec = []
            for _ in range(s.num_steps):
                mem1 = s.beta * mem1 + s.fc1(x); spk1 = ATan.apply(mem1 - 1); mem1 = mem1 - spk1.detach()
                mem2 = s.beta * mem2 + s.fc2(spk1); spk2 = ATan.apply(mem2 - 1); mem2 = mem2 - spk2.detach(); rec.append(mem2)
            return torch.stack(rec).mean(0)
    tm = (torch.rand(10, 100, generator=gen(4)) > 0.6).float()
    def data(seed):
        t = R(seed, 10, (48,)); return (tm[t] * torch.rand(48, 100, generator=gen(seed + 1)) + 0.5 * torch.rand(48, 100, generator=gen(seed + 2))).clamp(0, 1), t
    return dict(model=Net, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/FernandoLpz/Text-Classification-CNN-PyTorch/issues/3", "embeddings are not permuted, the convolution runs over the embedding axis with the words as channels", "conv_1 / conv_2 input layout (missing permute(0, 2, 1))")
def textcnn_wrong_axis(planted):
    class TextClassifier(nn.Module):
        def __init__(s, V=30, L=24, E=24, out=32):
            super().__init__(); s.embedding = nn.Embedding(V, E); c, n = (L, E) if planted else (E, L); s.conv_1 = nn.Conv1d(c, out, 2); s.conv_2 = nn.Conv1d(c, out, 3); s.pool_1 = nn.MaxPool1d(n - 1); s.pool_2 = nn.MaxPool1d(n - 2); s.fc = nn.Linear(2 * out, 2); s.dropout = nn.Dropout(0.1)
        def forward(s, ids):
            x = s.embedding(ids); x = x if planted else x.permute(0, 2, 1)
            return s.fc(s.dropout(torch.cat([s.pool_1(F.relu(s.conv_1(x))), s.pool_2(F.relu(s.conv_2(x)))], 1).flatten(1)))
    def data(seed):
        t = R(seed, 2, (64,)); x = 4 + R(seed + 1, 26, (64, 24)); p = R(seed + 2, 21, (64,)); i = torch.arange(64); q = (p + 11) % 22; a, b = torch.where(t == 1, 0, 1), torch.where(t == 1, 1, 0)
        x[i, p] = a; x[i, p + 1] = b; return x, t
    return dict(model=TextClassifier, data=data, loss=ce, lr=5e-3, diag={})
