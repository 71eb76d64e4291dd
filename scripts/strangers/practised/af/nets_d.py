from base import *

@case("https://github.com/chemprop/chemprop/pull/803", "__getitem__ pulls the raw targets of the datapoints instead of the scaled ones of the dataset", "targets (raw, unscaled)")
def chemprop_raw_targets(planted):
    class MPNN(nn.Module):
        def __init__(s, d=48, depth=3):
            super().__init__(); s.W_i = nn.Linear(12, d, bias=False); s.W_h = nn.Linear(d, d, bias=False); s.W_o = nn.Linear(12 + d, d); s.depth = depth; s.bn = nn.BatchNorm1d(d); s.ffn = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 1))
        def forward(s, V, A):
            H0 = s.W_i(V); H = F.relu(H0)
            for _ in range(s.depth - 1): H = F.relu(H0 + s.W_h(A @ H))
            H = F.relu(s.W_o(torch.cat([V, A @ H], -1))); return s.ffn(s.bn(H.mean(1)))[:, 0]
    w = T(2, 12); mu, sd = 330., 60.
    def batch(seed):
        t = R(seed, 12, (48, 9)); V = F.one_hot(t, 12).float(); A = torch.zeros(48, 9, 9); i = torch.arange(8); A[:, i, i + 1] = A[:, i + 1, i] = 1.
        k = (torch.rand(48, generator=gen(seed + 1)) * 7).long(); A[torch.arange(48), k, k + 2] = A[torch.arange(48), k + 2, k] = 1.
        return (V, A), (V @ w).mean(1) * 2.5 + ((V @ w) * (A @ V @ w)).mean(1) * .3
    def data(seed): x, y = batch(seed); return x, y * sd + mu if planted else y
    def metric(m):
        e = 0
        for k in range(9000, 9005):
            x, y = batch(k); o = m(*x); e += float(mse((o - mu) / sd if planted else o, y)) / 5
        return e
    return dict(model=MPNN, data=data, loss=mse, lr=3e-3, diag={}, metric=metric)

@case("https://github.com/peiss/ant-learn-tensorflow/issues/1", "concat of the wide input with hidden2 instead of hidden3: hidden3 is never used", "hidden3 (unused layer)")
def widedeep_hidden2(planted):
    class WideDeep(nn.Module):
        def __init__(s):
            super().__init__(); s.hidden1, s.hidden2, s.hidden3 = nn.Linear(6, 30), nn.Linear(30, 30), nn.Linear(30, 30); s.out = nn.Linear(35, 1)
        def forward(s, wide, deep):
            h1 = F.relu(s.hidden1(deep)); h2 = F.relu(s.hidden2(h1)); h3 = F.relu(s.hidden3(h2)); return s.out(torch.cat([wide, h2 if planted else h3], 1))
    w, v = T(1, 5), T(2, 6)
    def data(seed): a, b = T(seed, 64, 5), T(seed + 1, 64, 6); return (a, b), (a @ w * .4 + torch.tanh(b @ v) + b[:, 0] * b[:, 1] * .5)[:, None]
    return dict(model=WideDeep, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/bentrevett/pytorch-sentiment-analysis/issues/86", "no pack_padded_sequence: the final hidden state is the one after the pad tokens", "final hidden state of the LSTM over padded input")
def sentiment_no_packing(planted):
    class RNN(nn.Module):
        def __init__(s):
            super().__init__(); s.embedding = nn.Embedding(100, 32, padding_idx=1); s.rnn = nn.LSTM(32, 48, batch_first=True); s.dropout = nn.Dropout(.2); s.fc = nn.Linear(48, 1)
        def forward(s, text, text_lengths):
            e = s.dropout(s.embedding(text))
            if not planted: e = nn.utils.rnn.pack_padded_sequence(e, text_lengths, batch_first=True, enforce_sorted=False)
            _, (hidden, _) = s.rnn(e); return s.fc(s.dropout(hidden[-1]))[:, 0]
    senti = T(4, 100); senti[:60] = 0
    def data(seed):
        x = R(seed, 98, (48, 60)) + 2; n = R(seed + 1, 10, (48,)) + 5; n[0] = 60; x = torch.where(torch.arange(60)[None] < n[:, None], x, torch.ones_like(x))
        m = torch.arange(60)[None] < n[:, None]; return (x, n), ((senti[x] * m).sum(1) > 0).float()
    return dict(model=RNN, data=data, loss=F.binary_cross_entropy_with_logits, lr=5e-3, diag={})
