from base import *

@case("https://github.com/bobxwu/FASTopic/issues/3", "sinkhorn kernel exp(-M * alpha) on unnormalised embeddings underflows to 0", "sinkhorn / doc_embeddings scale")
def fastopic_sinkhorn(planted):
    K, V, D = 6, 60, 24
    def sinkhorn(M, alpha, it=15):
        a = torch.full((M.shape[0], 1), 1 / M.shape[0]); b = torch.full((M.shape[1], 1), 1 / M.shape[1])
        Km = torch.exp(-M * alpha); u = torch.ones_like(a) / len(a)
        for _ in range(it):
            v = b / (Km.T @ u + 1e-16); u = a / (Km @ v + 1e-16)
        return u * (Km * v.T)
    def dist(x, y): return (x ** 2).sum(1, keepdim=True) + (y ** 2).sum(1) - 2 * x @ y.T
    class FASTopic(nn.Module):
        def __init__(s):
            super().__init__(); s.topic_embeddings = nn.Parameter(F.normalize(torch.randn(K, D), dim=1)); s.word_embeddings = nn.Parameter(F.normalize(torch.randn(V, D), dim=1))
        def forward(s, doc):
            if not planted: doc = F.normalize(doc, dim=1)
            theta = sinkhorn(dist(doc, s.topic_embeddings), 3.) * doc.shape[0]; beta = sinkhorn(dist(s.topic_embeddings, s.word_embeddings), 2.) * K
            return theta @ beta
    C = T(85, K, D, k=1.); B = torch.softmax(T(86, K, V, k=2.5), 1)
    def data(seed):
        z = R(seed, K, (64,)); bow = torch.stack([torch.bincount(torch.multinomial(B[k], 40, True, generator=gen(seed + j)), minlength=V) for j, k in enumerate(z)]).float()
        return C[z] + T(seed + 1, 64, D, k=.5), bow
    def loss(o, t): return -(t * torch.log(o + 1e-12)).sum(1).mean()
    return dict(model=FASTopic, data=data, loss=loss, lr=2e-2, diag={})

@case("https://github.com/sogou/SogouMRCToolkit/pull/8", "highway layer: the activations of gate and transform are swapped (sigmoid on transform, relu on gate)", "highway gate/transform activation")
def mrc_highway_swap(planted):
    class Highway(nn.Module):
        def __init__(s, d):
            super().__init__(); s.trans = nn.Linear(d, d); s.gate = nn.Linear(d, d)
        def forward(s, x):
            h, g = s.trans(x), s.gate(x); h, g = (torch.sigmoid(h), F.relu(g)) if planted else (F.relu(h), torch.sigmoid(g)); return g * h + (1 - g) * x
    class BiDAF(nn.Module):
        def __init__(s):
            super().__init__(); s.embedding = nn.Embedding(50, 32); s.highway = nn.Sequential(Highway(32), Highway(32)); s.lstm = nn.LSTM(32, 24, batch_first=True, bidirectional=True); s.w = nn.Linear(48, 48); s.start = nn.Linear(96, 1)
        def forward(s, c, q):
            c = s.lstm(s.highway(s.embedding(c)))[0]; q = s.lstm(s.highway(s.embedding(q)))[0]
            a = torch.softmax(s.w(c) @ q.transpose(1, 2), -1) @ q; return s.start(torch.cat([c * a, a], 2)).squeeze(-1)
    def data(seed):
        c = torch.stack([torch.randperm(40, generator=gen(seed + k))[:10] for k in range(48)]) + 10; y = R(seed + 99, 10, (48,)); q = torch.stack([R(seed + 7, 10, (48,)), c[torch.arange(48), y]], 1); return (c, q), y
    return dict(model=BiDAF, data=data, loss=ce, lr=5e-3, diag={})
