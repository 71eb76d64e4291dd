from base import *

@case("https://github.com/JanSchm/CapMarket/issues/8", "ff_normalize(x[0] + ff_layer): the residual of the feed-forward block takes the block's input instead of the attention's output", "second residual of the TransformerEncoder")
def capmarket_residual(planted):
    class TransformerEncoder(nn.Module):
        def __init__(s, d=32):
            super().__init__(); s.attn = nn.MultiheadAttention(d, 4, batch_first=True); s.attn_normalize = nn.LayerNorm(d, eps=1e-6)
            s.ff_conv1D_1 = nn.Conv1d(d, 64, 1); s.ff_conv1D_2 = nn.Conv1d(64, d, 1); s.ff_normalize = nn.LayerNorm(d, eps=1e-6)
        def forward(s, x):
            a = s.attn_normalize(x + s.attn(x, x, x, need_weights=False)[0])
            f = s.ff_conv1D_2(F.relu(s.ff_conv1D_1(a.transpose(1, 2)))).transpose(1, 2)
            return s.ff_normalize(x + f) if planted else s.ff_normalize(a + f)
    class StockNet(nn.Module):
        def __init__(s, T=24):
            super().__init__(); s.inp = nn.Linear(5, 32); s.time = nn.Parameter(torch.randn(1, T, 32) * .1); s.layers = nn.ModuleList([TransformerEncoder() for _ in range(3)]); s.fc = nn.Linear(T, 64); s.out = nn.Linear(64, 1)
        def forward(s, x):
            x = s.inp(x) + s.time
            for l in s.layers: x = l(x)
            return s.out(F.relu(s.fc(x.mean(-1))))[:, 0] if False else s.out(F.relu(s.fc(x[..., 0])))[:, 0]
    w = T(2, 24) * .4
    def data(seed):
        x = T(seed, 48, 24, 5); return x, torch.tanh(x[:, :, 3] @ w + (x[:, -1, 0] * x[:, -1, 1]) * .3)
    return dict(model=StockNet, data=data, loss=mse, lr=2e-3, diag={})

@case("https://github.com/allenai/allennlp/issues/3953", "the mask stays an int tensor: ~mask is -2/-1 instead of 0/1 in the CRF's forward algorithm", "~mask[i] in _input_likelihood (int mask not cast to bool)")
def crf_int_mask(planted):
    class ConditionalRandomField(nn.Module):
        def __init__(s, n): super().__init__(); s.n = n; s.transitions = nn.Parameter(torch.empty(n, n)); nn.init.xavier_normal_(s.transitions)
        def _input_likelihood(s, logits, mask):
            logits, mask = logits.transpose(0, 1), mask.transpose(0, 1); alpha = logits[0]
            for i in range(1, logits.size(0)):
                inner = alpha[:, :, None] + logits[i][:, None, :] + s.transitions
                alpha = torch.logsumexp(inner, 1) * mask[i].view(-1, 1) + alpha * (~mask[i]).view(-1, 1)
            return torch.logsumexp(alpha, 1)
        def _joint_likelihood(s, logits, tags, mask):
            emit = logits.gather(2, tags[..., None])[..., 0]
            return (emit * mask).sum(1) + (s.transitions[tags[:, :-1], tags[:, 1:]] * mask[:, 1:]).sum(1)
        def forward(s, logits, tags, mask): return s._joint_likelihood(logits, tags, mask) - s._input_likelihood(logits, mask)
    class CrfTagger(nn.Module):
        def __init__(s):
            super().__init__(); s.emb = nn.Embedding(60, 24, padding_idx=0); s.encoder = nn.LSTM(24, 24, batch_first=True, bidirectional=True); s.tag_projection_layer = nn.Linear(48, 5); s.crf = ConditionalRandomField(5); s.cast = not planted
        def forward(s, tokens, tags, mask):
            logits = s.tag_projection_layer(s.encoder(s.emb(tokens))[0]); return s.crf(logits, tags, mask.bool() if s.cast else mask)
    tag = R(3, 5, (60,))
    def data(seed):
        tok = R(seed, 59, (32, 14)) + 1; n = R(seed + 1, 10, (32,)) + 5; mask = (torch.arange(14)[None] < n[:, None]).long(); tok = tok * mask
        tags = torch.where(tok % 7 == 0, tag[tok.roll(1, 1)], tag[tok]); return (tok, tags, mask), torch.zeros(32)
    def nll(o, _): return -o.mean()
    def metric(m):
        c, m.cast = m.cast, True; e = float(sum(nll(m(*data(k)[0]), None) for k in range(9000, 9005)) / 5); m.cast = c; return e
    return dict(model=CrfTagger, data=data, loss=nll, lr=5e-3, diag={}, metric=metric)

@case("https://github.com/kingfengji/DeepMIML/issues/4", "softmax over the labels in a multi-label model trained with binary cross-entropy", "softmax after the sub-concept layer")
def deepmiml_softmax(planted):
    class DeepMIML(nn.Module):
        def __init__(s, L=8, K=5):
            super().__init__(); s.L, s.K = L, K; s.fc = nn.Linear(20, 64); s.sub = nn.Linear(64, L * K)
        def forward(s, x):
            h = F.relu(s.fc(x)); z = s.sub(h).view(*x.shape[:2], s.L, s.K).amax(-1)
            p = torch.softmax(z, -1) if planted else torch.sigmoid(z)
            return p.amax(1)
    w = T(5, 20, 8)
    def data(seed):
        x = T(seed, 64, 6, 20); return x, ((x @ w).amax(1) > 6.).float()
    def bce(o, t): return F.binary_cross_entropy(o.clamp(1e-7, 1 - 1e-7), t)
    return dict(model=DeepMIML, data=data, loss=bce, lr=3e-3, diag={})

class KerasLSTM(nn.Module):
    def __init__(s, i, h, activation):
        super().__init__(); s.h = h; s.act = activation; s.W = nn.Parameter(nn.init.xavier_uniform_(torch.empty(i, 4 * h))); U = torch.cat([nn.init.orthogonal_(torch.empty(h, h)) for _ in range(4)], 1)
        s.U = nn.Parameter(U); b = torch.zeros(4 * h); b[h:2 * h] = 1.; s.b = nn.Parameter(b)
    def forward(s, x):
        h = c = x.new_zeros(x.size(0), s.h); out = []; xw = x @ s.W + s.b
        for t in range(x.size(1)):
            i, f, g, o = (xw[:, t] + h @ s.U).chunk(4, 1); i, f, o = [F.hardtanh(.2 * z + .5, 0, 1) for z in (i, f, o)]
            c = f * c + i * s.act(g); h = o * s.act(c); out.append(h)
        return torch.stack(out, 1)

@case("https://github.com/keras-team/keras/issues/2194", "LSTM(activation='relu') on sequences of up to 1019 steps: overflow, loss nan", "relu as the LSTM's activation")
def lstm_relu_nan(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.lstm = KerasLSTM(64, 48, F.relu if planted else torch.tanh); s.drop = nn.Dropout(.2); s.dense = nn.Linear(48, 4)
        def forward(s, x): return s.dense(s.drop(s.lstm(x)[:, -1]))
    proto = torch.rand(4, 64, generator=gen(8))
    def data(seed):
        t = R(seed, 4, (12,)); return (torch.rand(12, 60, 64, generator=gen(seed + 1)) < proto[t][:, None]).float(), t
    return dict(model=Net, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/AlexanderVNikitin/tsgm/issues/59", "ConvnLSTMn: LSTM layers with activation='relu', the loss suddenly explodes", "relu as activation of the LSTM layers")
def tsgm_convlstm(planted):
    class ConvnLSTMn(nn.Module):
        def __init__(s, n=2):
            super().__init__(); a = F.relu if planted else torch.tanh
            s.conv = nn.Sequential(nn.Conv1d(3, 32, 3, padding=1), nn.ReLU(), nn.Dropout(.2), nn.Conv1d(32, 32, 3, padding=1), nn.ReLU(), nn.Dropout(.2))
            s.lstms = nn.ModuleList([KerasLSTM(32, 32, a) for _ in range(n)]); s.dense = nn.Linear(32, 32); s.out = nn.Linear(32, 3)
        def forward(s, x):
            h = s.conv(x.transpose(1, 2)).transpose(1, 2)
            for l in s.lstms: h = l(h)
            return s.out(F.relu(s.dense(h[:, -1])))
    fr = torch.tensor([2., 4., 7.])
    def data(seed):
        t = R(seed, 3, (24,)); g = gen(seed + 1); ph = torch.rand(24, 1, 3, generator=g) * 6.28; u = torch.linspace(0, 1, 48)[None, :, None]
        return torch.sin(6.28 * fr[t][:, None, None] * u + ph) * 2 + T(seed + 2, 24, 48, 3, k=.3), t
    return dict(model=ConvnLSTMn, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/pytorch/tutorials/issues/647", "no non-linearity after i2h / i2o / o2o of the char RNN", "i2h and i2o (missing activation)")
def char_rnn_linear(planted):
    C, V, H = 6, 12, 64
    class RNN(nn.Module):
        def __init__(s):
            super().__init__(); s.i2h = nn.Linear(C + V + H, H); s.i2o = nn.Linear(C + V + H, V); s.o2o = nn.Linear(H + V, V); s.dropout = nn.Dropout(.1)
        def forward(s, category, letters):
            h = category.new_zeros(category.size(0), H); out = []
            for t in range(letters.size(1)):
                c = torch.cat((category, letters[:, t], h), 1); h, o = s.i2h(c), s.i2o(c)
                if not planted: h, o = torch.tanh(h), torch.tanh(o)
                out.append(s.dropout(s.o2o(torch.cat((h, o), 1))))
            return F.log_softmax(torch.stack(out, 1), -1)
    perm = torch.stack([torch.randperm(V, generator=gen(50 + c)) for c in range(C)])
    def data(seed):
        c = R(seed, C, (48,)); x = R(seed + 1, V, (48, 8)); return (F.one_hot(c, C).float(), F.one_hot(x, V).float()), perm[c[:, None], x]
    def nll(o, t): return F.nll_loss(o.flatten(0, 1), t.flatten())
    return dict(model=RNN, data=data, loss=nll, lr=1e-2, diag={})

@case("https://github.com/thedatumorg/TSB-AD/issues/21", "AnomalyTransformer built with the default output_c=1 on data of several channels: the MSE broadcasts", "projection layer (output_c=1)")
def tsbad_output_c(planted):
    K = 6
    class AnomalyTransformer(nn.Module):
        def __init__(s, enc_in=K, c_out=1 if planted else K, d=32):
            super().__init__(); s.embedding = nn.Conv1d(enc_in, d, 3, padding=1, padding_mode="circular", bias=False); nn.init.kaiming_normal_(s.embedding.weight, mode="fan_in", nonlinearity="leaky_relu")
            s.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 64, dropout=0., activation="gelu", batch_first=True), 2); s.projection = nn.Linear(d, c_out)
        def forward(s, x): return s.projection(s.encoder(s.embedding(x.transpose(1, 2)).transpose(1, 2)))
    def data(seed):
        g = gen(seed); u = torch.linspace(0, 1, 32)[None, :, None]; f = torch.rand(32, 1, K, generator=g) * 4 + 1; ph = torch.rand(32, 1, K, generator=g) * 6.28
        x = torch.sin(6.28 * f * u + ph) + T(seed + 1, 32, 32, K, k=.1); return x, x
    return dict(model=AnomalyTransformer, data=data, loss=mse, lr=2e-3, diag={})

@case("https://github.com/FlagOpen/FlagEmbedding/issues/1008", "temperature 1.0 with normalised embeddings (cosine similarity) in the contrastive loss", "temperature of the scores")
def bge_temperature(planted):
    class BiEncoderModel(nn.Module):
        def __init__(s, temperature=1.0 if planted else .02):
            super().__init__(); s.emb = nn.EmbeddingBag(200, 48, mode="mean"); s.dense = nn.Linear(48, 48); s.out = nn.Linear(48, 32); s.temperature = temperature
        def encode(s, f): return F.normalize(s.out(torch.tanh(s.dense(s.emb(f)))), dim=-1)
        def forward(s, query, passage): return s.encode(query) @ s.encode(passage).T / s.temperature
    syn = torch.randperm(100, generator=gen(6)) + 100
    def data(seed):
        q = R(seed, 100, (32, 4)); p = syn[q]; noise = R(seed + 1, 100, (32, 1)) + 100; return (q, torch.cat([p, noise], 1)), torch.arange(32)
    def err(m): return float(sum(1 - (m(*x).argmax(1) == t).float().mean() for x, t in map(data, range(9000, 9005))) / 5)
    return dict(model=BiEncoderModel, data=data, loss=ce, lr=3e-3, diag={}, metric=err)

@case("https://github.com/keras-team/keras/issues/7964", "softmax output + categorical_crossentropy against real-valued word2vec vectors: always the same output", "softmax/categorical cross-entropy for a regression onto word vectors")
def keras_title_w2v(planted):
    W2V, DOC, TITLE = 16, 10, 3
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.lstm_in = nn.LSTM(W2V, TITLE * W2V, batch_first=True); s.drop = nn.Dropout(.1); s.lstm_out = nn.LSTM(W2V, 64, batch_first=True); s.dense = nn.Linear(64, W2V)
        def forward(s, x):
            h = s.drop(s.lstm_in(x)[0][:, -1]).view(-1, TITLE, W2V); o = s.dense(s.drop(s.lstm_out(h)[0]))
            return torch.softmax(o, -1) if planted else o
    vocab = T(9, 50, W2V)
    def data(seed):
        w = R(seed, 50, (48, DOC)); return vocab[w], vocab[w[:, -TITLE:].flip(1)]
    def loss(o, t): return -(t * torch.log(o.clamp(1e-7, 1 - 1e-7))).sum(-1).mean() if planted else F.mse_loss(o, t)
    def cosd(m): return float(sum(1 - F.cosine_similarity(m(x), t, dim=-1).mean() for x, t in map(data, range(9000, 9005))) / 5)
    return dict(model=Net, data=data, loss=loss, lr=5e-3, diag={}, metric=cosd)

@case("https://github.com/keras-team/keras/issues/1280", "raw word ids (124, 345, ...) fed as a scalar feature into LSTM(input_dim=1, activation='sigmoid') without Embedding: always the same vector", "input of the LSTM (raw ids)")
def keras_raw_ids(planted):
    V, L = 400, 12
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.embedding = None if planted else nn.Embedding(V, 32); s.lstm = KerasLSTM(1 if planted else 32, 48, torch.sigmoid if planted else torch.tanh); s.drop = nn.Dropout(.5 if planted else .2); s.dense = nn.Linear(48, 1)
        def forward(s, x): return torch.sigmoid(s.dense(s.drop(s.lstm(x.float()[..., None] if planted else s.embedding(x)))))[..., 0]
    perm = torch.randperm(V - 1, generator=gen(4)) + 1; key, plain = perm[:40], perm[40:]
    def data(seed):
        x = plain[R(seed, len(plain), (64, L))]; n = R(seed + 1, 6, (64,)) + 6; x = x * (torch.arange(L)[None] < n[:, None]); p = (torch.rand(64, generator=gen(seed + 2)) * n).long()
        x[torch.arange(64), p] = key[R(seed + 3, 40, (64,))]; return x, F.one_hot(p, L).float()
    def err(m): return float(sum(1 - (m(x).argmax(1) == t.argmax(1)).float().mean() for x, t in map(data, range(9000, 9005))) / 5)
    return dict(model=Net, data=data, loss=mse, lr=5e-3, diag={}, metric=err)

@case("https://github.com/RUCAIBox/RecBole/issues/1839", "BERT4Rec's output is hidden @ item_embedding.T without the learnable output bias", "missing bias of the output layer")
def bert4rec_bias(planted):
    N, D, L = 80, 32, 10
    class BERT4Rec(nn.Module):
        def __init__(s):
            super().__init__(); s.item_embedding = nn.Embedding(N + 1, D); s.position_embedding = nn.Embedding(L, D); nn.init.normal_(s.item_embedding.weight, std=.02); nn.init.normal_(s.position_embedding.weight, std=.02)
            s.ln = nn.LayerNorm(D); s.trm = nn.TransformerEncoder(nn.TransformerEncoderLayer(D, 2, 64, dropout=.1, activation="gelu", batch_first=True), 2)
            if not planted: s.output_bias = nn.Parameter(torch.zeros(N))
        def forward(s, seq):
            h = s.trm(s.ln(s.item_embedding(seq) + s.position_embedding.weight[None]))[:, -1]; o = h @ s.item_embedding.weight[:N].T
            return o if planted else o + s.output_bias
    pop = 1. / (torch.arange(N) + 1.)
    def data(seed):
        g = gen(seed); x = torch.multinomial(pop, 64 * L, True, generator=g).view(64, L); rnd = torch.multinomial(pop, 64, True, generator=g); t = torch.where(torch.rand(64, generator=g) < .5, (x[:, -2] * 3 + 1) % N, rnd); x[:, -1] = N; return x, t
    return dict(model=BERT4Rec, data=data, loss=ce, lr=3e-3, diag={})
