from base import *
def causal_lm(V, L, planted, d=48, layers=2):
    class TransformerModel(nn.Module):
        def __init__(s):
            super().__init__(); s.embedding, s.pos = nn.Embedding(V, d), nn.Embedding(L, d)
            s.transformer_encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 96, 0., batch_first=True), layers); s.linear = nn.Linear(d, V)
        def forward(s, x):
            n = x.size(1); m = None if planted else torch.triu(torch.full((n, n), float("-inf")), 1)
            return s.linear(s.transformer_encoder(s.embedding(x) * math.sqrt(d) + s.pos(torch.arange(n)), mask=m))
    return TransformerModel
def prefix_metric(data, L):
    def metric(m):
        tot = 0
        with torch.no_grad():
            for s in range(9000, 9003):
                x, t = data(s)
                for k in (L // 2, L - 1, L): tot += float(F.cross_entropy(m(x[:, :k])[:, -1], t[:, k - 1])) / 9
        return tot
    return metric

@case("https://github.com/pytorch/tutorials/issues/2478", "TransformerEncoder language model is run without src_mask: it sees the next word", "missing causal mask")
def tutorial_no_src_mask(planted):
    V, L = 14, 16; Q = T(4, V, V, k=2.)
    def data(seed):
        g = gen(seed); x = [torch.randint(0, V, (32,), generator=g)]
        for _ in range(L): x.append(torch.multinomial(Q[x[-1]].softmax(1), 1, generator=g)[:, 0])
        x = torch.stack(x, 1); return x[:, :-1], x[:, 1:]
    return dict(model=causal_lm(V, L, planted), data=data, loss=ceseq, metric=prefix_metric(data, L), lr=5e-3, diag={})

