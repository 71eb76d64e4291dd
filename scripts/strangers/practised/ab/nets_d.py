from base import *

@case("https://github.com/weihua916/powerful-gnns/issues/16", "dropout is applied to the prediction scores themselves", "F.dropout on the outputs of linears_prediction")
def powergnn_output_dropout(planted):
    class GraphCNN(nn.Module):
        def __init__(s, L=3, d=32):
            super().__init__(); s.mlps = nn.ModuleList([nn.Sequential(nn.Linear(6 if i == 0 else d, d), nn.BatchNorm1d(d), nn.ReLU(), nn.Linear(d, d)) for i in range(L)]); s.bns = nn.ModuleList([nn.BatchNorm1d(d) for _ in range(L)]); s.linears_prediction = nn.ModuleList([nn.Linear(6 if i == 0 else d, 3) for i in range(L + 1)]); s.final_dropout = 0.5
        def forward(s, h, adj):
            B, N, _ = h.shape; score = 0; hs = [h]
            for m, b in zip(s.mlps, s.bns): h = F.relu(b(m((adj @ h + h).flatten(0, 1)))).view(B, N, -1); hs.append(h)
            for l, h in zip(s.linears_prediction, hs): o = l(h.mean(1)); score = score + (F.dropout(o, s.final_dropout, training=s.training) if planted else o)
            return score
    def data(seed):
        t = R(seed, 3, (32,)); x = F.one_hot(R(seed + 1, 6, (32, 12)), 6).float(); a = (torch.rand(32, 12, 12, generator=gen(seed + 2)) < (0.04 + 0.12 * t)[:, None, None]).float().triu(1)
        return (x, a + a.transpose(1, 2)), t
    return dict(model=GraphCNN, data=data, loss=ce, lr=5e-3, diag={})

@case("https://github.com/datawhalechina/easy-rl/issues/95", "advantage.mean() is taken over the whole batch instead of over the actions", "dueling forward: value + advantage - advantage.mean()")
def easyrl_dueling_mean(planted):
    class DuelingNet(nn.Module):
        def __init__(s, n=6, a=4, h=64):
            super().__init__(); s.hidden = nn.Sequential(nn.Linear(n, h), nn.ReLU()); s.advantage = nn.Sequential(nn.Linear(h, h), nn.ReLU(), nn.Linear(h, a)); s.value = nn.Sequential(nn.Linear(h, h), nn.ReLU(), nn.Linear(h, 1))
        def forward(s, x):
            x = s.hidden(x); adv = s.advantage(x); return s.value(x) + adv - (adv.mean() if planted else adv.mean(1, keepdim=True))
    w = T(4, 6, 4)
    def data(seed):
        x = T(seed, 64, 6); return x, torch.tanh(x @ w) + x[:, :1] * x[:, 1:2]
    return dict(model=DuelingNet, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/EleutherAI/aria/pull/40", "padding tokens take part in the language model's loss", "cross entropy without ignore_index=pad")
def aria_pad_in_loss(planted):
    pad = 0; P = torch.softmax(4 * T(7, 24, 23), -1)
    class LM(nn.Module):
        def __init__(s, V=24, d=48):
            super().__init__(); s.tok = nn.Embedding(V, d); s.pos = nn.Parameter(0.1 * torch.randn(1, 48, d)); s.block = nn.TransformerEncoderLayer(d, 4, 2 * d, 0.0, batch_first=True, norm_first=True); s.ln = nn.LayerNorm(d); s.head = nn.Linear(d, V, bias=False)
        def forward(s, ids): m = torch.full((ids.shape[1],) * 2, float("-inf")).triu(1); return s.head(s.ln(s.block(s.tok(ids) + s.pos, src_mask=m)))
    def data(seed):
        g = gen(seed); s = [torch.randint(1, 24, (16,), generator=g)]
        for _ in range(48): s.append(1 + torch.multinomial(P[s[-1]], 1, generator=g)[:, 0])
        s = torch.stack(s, 1); n = torch.randint(3, 8, (16, 1), generator=g); s = torch.where(torch.arange(49)[None] < n, s, pad); return s[:, :-1], s[:, 1:]
    def loss(o, t): return F.cross_entropy(o.flatten(0, 1), t.flatten(), ignore_index=-100 if planted else pad)
    return dict(model=LM, data=data, loss=loss, lr=2e-3, diag={})

@case("https://github.com/yihong-chen/neural-collaborative-filtering/pull/23", "embeddings keep nn.Embedding's N(0, 1) instead of N(0, 0.01)", "embedding_user / embedding_item init")
def ncf_default_embedding(planted):
    class NeuMF(nn.Module):
        def __init__(s, U=60, I=60, d=16):
            super().__init__(); s.embedding_user_mlp = nn.Embedding(U, d); s.embedding_item_mlp = nn.Embedding(I, d); s.embedding_user_mf = nn.Embedding(U, d); s.embedding_item_mf = nn.Embedding(I, d); s.fc_layers = nn.ModuleList([nn.Linear(2 * d, 32), nn.Linear(32, 16)]); s.affine_output = nn.Linear(16 + d, 1)
            if not planted:
                for m in s.modules():
                    if isinstance(m, (nn.Embedding, nn.Linear)): nn.init.normal_(m.weight, 0.0, 0.01 if isinstance(m, nn.Embedding) else 1 / math.sqrt(m.in_features))
        def forward(s, u, i):
            h = torch.cat([s.embedding_user_mlp(u), s.embedding_item_mlp(i)], -1)
            for l in s.fc_layers: h = F.relu(l(h))
            return s.affine_output(torch.cat([h, s.embedding_user_mf(u) * s.embedding_item_mf(i)], -1))[:, 0]
    A, B, bu, bi = T(3, 60, 2), T(4, 60, 2), T(5, 60), T(6, 60)
    def data(seed):
        u, i = R(seed, 60, (256,)), R(seed + 500000, 60, (256,)); return (u, i), ((A[u] * B[i]).sum(1) + 1.5 * bu[u] + 1.5 * bi[i] > 0).float()
    return dict(model=NeuMF, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t), lr=5e-3, diag={})

@case("https://github.com/IntelLabs/coach/issues/29", "quantile Huber loss uses abs(u) where the indicator u < 0 belongs, the asymmetry is lost", "quantile regression loss weight")
def coach_quantile_abs(planted):
    N = 9; tau = (torch.arange(N) + 0.5) / N
    class QRHead(nn.Module):
        def __init__(s):
            super().__init__(); s.body = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()); s.quantiles = nn.Linear(64, N)
        def forward(s, x): return s.quantiles(s.body(x))
    def qloss(o, t, bug):
        u = t[:, None] - o; hub = torch.where(u.abs() < 0.1, 5 * u ** 2, u.abs() - 0.05); ind = (u.abs() < 0).float() if bug else (u < 0).float()
        return ((tau - ind).abs() * hub).mean()
    def data(seed):
        x = T(seed, 64, 4); return x, x[:, 0] + (1 + x[:, 1].abs()) * 2 * T(seed + 500000, 64)
    return dict(model=QRHead, data=data, loss=lambda o, t: qloss(o, t, planted), lr=5e-3, diag={})

@case("https://github.com/karpathy/char-rnn/issues/60", "multi-layer LSTM whose forget gate biases start at 0", "forget gate bias of the stacked LSTM layers")
def charrnn_forget_bias(planted):
    class LSTM(nn.Module):
        def __init__(s, V=10, h=48, n=3):
            super().__init__(); s.h, s.n = h, n; s.emb = nn.Embedding(V, h); s.i2h = nn.ModuleList([nn.Linear(h, 4 * h) for _ in range(n)]); s.h2h = nn.ModuleList([nn.Linear(h, 4 * h) for _ in range(n)]); s.decoder = nn.Linear(h, V)
            for p in s.parameters(): nn.init.uniform_(p, -0.08, 0.08)
            nn.init.uniform_(s.emb.weight, -1, 1)
            for l in s.i2h: nn.init.constant_(l.bias[h:2 * h], 0.0 if planted else 1.0)
        def forward(s, ids):
            st = [(torch.zeros(len(ids), s.h),) * 2 for _ in range(s.n)]; out = []
            for t in range(ids.shape[1]):
                x = s.emb(ids[:, t])
                for k in range(s.n):
                    h, c = st[k]; i, f, o, g = (s.i2h[k](x) + s.h2h[k](h)).chunk(4, 1); c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g); x = torch.sigmoid(o) * torch.tanh(c); st[k] = (x, c)
                out.append(s.decoder(x))
            return torch.stack(out, 1)
    perm = torch.randperm(10, generator=gen(3))
    def data(seed):
        a = R(seed, 10, (32, 1)); s = [a[:, 0]]; n = torch.rand(32, 12, generator=gen(seed + 500000)) < 0.1; r = R(seed + 600000, 10, (32, 12))
        for k in range(12): s.append(torch.where(n[:, k], r[:, k], perm[s[-1]]))
        s = torch.stack(s, 1); return s[:, :-1], s[:, 1:]
    return dict(model=LSTM, data=data, loss=ceseq, lr=5e-3, diag={})

@case("https://github.com/RuidongZ/Deep_Matrix_Factorization_Models/issues/2", "first user and item layers have no activation and no bias", "user_W1 / item_W1 layers (activation and bias lost)")
def dmf_input_activation(planted):
    class DMF(nn.Module):
        def __init__(s, U=40, I=40, h=64, d=32):
            super().__init__(); s.user_1 = nn.Linear(I, h, bias=not planted); s.user_2 = nn.Linear(h, d); s.item_1 = nn.Linear(U, h, bias=not planted); s.item_2 = nn.Linear(h, d)
        def forward(s, u, i):
            act = (lambda z: z) if planted else F.relu
            u = F.relu(s.user_2(act(s.user_1(u)))); i = F.relu(s.item_2(act(s.item_1(i)))); return F.cosine_similarity(u, i).clamp(1e-6, 1 - 1e-6)
    Rm = (T(3, 40, 3) @ T(4, 3, 40) > 0.5).float()
    def data(seed):
        u, i = R(seed, 40, (128,)), R(seed + 500000, 40, (128,)); return (Rm[u], Rm[:, i].T), Rm[u, i]
    return dict(model=DMF, data=data, loss=lambda o, t: F.binary_cross_entropy(o, t), lr=3e-3, diag={})
