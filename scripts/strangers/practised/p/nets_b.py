from base import *
from nets_a import digits, HF
def topics(s, n=48, L=12, V=16, c=4, early=False):
    y = R(s, c, (n,)); p = (T(41, c, V) * 1.2).softmax(1)
    x = torch.multinomial(p[y], L, True, generator=gen(s + 3))
    if early: x[:, L // 2:] = R(s + 4, V, (n, L - L // 2))
    return x, y

@case("https://discuss.pytorch.org/t/the-loss-in-pytorch-decreases-slower-than-in-keras/61598", "Keras port: nn.LSTM without batch_first on (B,T,E), then x[:,-1]", "lstm")
def b_keras_lstm(planted):
    code = (T(42, 4, 16) > 0).float()
    def data(s): x, y = topics(s); return x, code[y]
    def model():
        def f(s, x):
            h, _ = s.lstm(s.embedding(x)); return s.fc(h[:, -1, :]).sigmoid()
        return M(f, embedding=nn.Embedding(16, 10), lstm=nn.LSTM(10, 50, batch_first=not planted), fc=nn.Linear(50, 16))
    return dict(model=model, data=data, loss=lambda o, t: F.binary_cross_entropy(o, t))

@case("https://discuss.pytorch.org/t/transformer-based-ocr-model-not-learning/122218", "features.reshape(S, B, d) instead of permute: batch and sequence mixed", "reshape before transformer")
def b_ocr_reshape(planted):
    def data(s): x, y = digits(s, 48, 16); return x.view(-1, 1, 16, 16) - .5, y
    def model():
        def f(s, x):
            x = s.proj(s.cnn(x).flatten(2))                       # B, 24, d
            x = x.reshape(24, -1, 32) if planted else x.permute(1, 0, 2)
            return s.head(s.enc(x + s.pos).mean(0))
        return M(f, cnn=nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
                 proj=nn.Linear(16, 32), pos=nn.Parameter(torch.randn(24, 1, 32) * .02),
                 enc=nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, dropout=0.), 1, enable_nested_tensor=False), head=nn.Linear(32, 10))
    return dict(model=model, data=data, loss=ce)

@case("https://discuss.pytorch.org/t/transformers-are-unable-to-count-sequences-of-integers/168718", "12 post-norm encoder layers do not train (pre-norm does)", "transformer_encoder")
def b_count12(planted):
    def data(s):
        n = R(s, 10, (32,)); return (torch.arange(10)[None] <= n[:, None]).long(), n
    def model():
        def f(s, x): return s.head(s.transformer_encoder(s.embedding(x) + s.pos).flatten(1))
        lay = nn.TransformerEncoderLayer(32, 4, 64, dropout=0., batch_first=True, norm_first=not planted)
        return M(f, embedding=nn.Embedding(2, 32), pos=nn.Parameter(torch.randn(1, 10, 32) * .1),
                 transformer_encoder=nn.TransformerEncoder(lay, 12, norm=None if planted else nn.LayerNorm(32), enable_nested_tensor=False),
                 head=nn.Sequential(nn.Linear(320, 64), nn.ReLU(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 20)))
    return dict(model=model, data=data, loss=ce)

@case("https://discuss.pytorch.org/t/transformer-cannot-predict-next-number-in-linear-sequence/184454", "transformer with d_model = 1: LayerNorm over one feature is constant", "norm1/norm2")
def b_dim1(planted):
    def data(s):
        a = T(s, 48, 1); b = T(s + 1, 48, 1) * .2; k = torch.arange(17.)[None]; q = a + b * k * .3
        return q[:, :16, None], q[:, 16:]
    def model():
        d = 1 if planted else 16
        def f(s, x): return s.lin(s.trans(s.inp(x) + s.pos).flatten(1))
        lay = nn.TransformerEncoderLayer(d, 1, 32, dropout=0., batch_first=True)
        return M(f, inp=nn.Identity() if planted else nn.Linear(1, 16), pos=nn.Parameter(torch.randn(1, 16, d) * .1), trans=nn.TransformerEncoder(lay, 2, enable_nested_tensor=False), lin=nn.Linear(16 * d, 1))
    return dict(model=model, data=data, loss=mse)

def ar(s, n=48, L=16):
    e = T(s, L + 40, n) ; x = torch.zeros(L + 40, n)
    for i in range(2, L + 40): x[i] = 1.6 * x[i - 1] - .85 * x[i - 2] + e[i] * .25
    x = (x[-L - 1:] / .9).t(); return x[:, :L, None], x[:, L:]
@case("https://stackguides.com/questions/51432661/time-series-keras-lstm-echoing-instead-of-predicting", "ReLU on the inputs and on the output of an LSTM forecaster of signed values", "relu before lstm / dense")
def b_lstm_relu_io(planted):
    def model():
        def f(s, x):
            if planted: x = F.relu(x)
            h, _ = s.lstm(x); o = s.dense(h[:, -1]); return F.relu(o) if planted else o
        return M(f, lstm=nn.LSTM(1, 64, batch_first=True), dense=nn.Linear(64, 1))
    return dict(model=model, data=ar, loss=mse)

class Cell(nn.Module):
    def __init__(s, i, h, act, init):
        super().__init__(); s.act, s.h = act, h; s.kernel = nn.Linear(i, 4 * h); s.rec = nn.Linear(h, 4 * h, bias=False)
        nn.init.orthogonal_(s.rec.weight); nn.init.zeros_(s.kernel.bias); s.kernel.bias.data[h:2 * h] = 1.
        nn.init.uniform_(s.kernel.weight, -.05, .05) if init else nn.init.xavier_uniform_(s.kernel.weight)
    def forward(s, x):
        h = c = x.new_zeros(x.shape[0], s.h); out = []
        for t in range(x.shape[1]):
            i, f, g, o = (s.kernel(x[:, t]) + s.rec(h)).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * s.act(g); h = o.sigmoid() * s.act(c); out.append(h)
        return torch.stack(out, 1)
@case("https://techfeed.net/es/485530/", "stacked LSTM with activation='relu' and uniform(-0.05,0.05) kernels", "lstm1/lstm2 cells")
def b_lstm_relu_cell(planted):
    def model():
        act = F.relu if planted else torch.tanh
        def f(s, x): return s.out(s.dense(s.lstm2(s.lstm1(x))[:, -1]))
        m = M(f, lstm1=Cell(1, 48, act, planted), lstm2=Cell(48, 32, act, planted), dense=nn.Linear(32, 64), out=nn.Linear(64, 1))
        if planted:
            nn.init.uniform_(m.dense.weight, -.05, .05); nn.init.zeros_(m.dense.bias); nn.init.normal_(m.out.weight, 0, .05)
        return m
    return dict(model=model, data=ar, loss=mse)

@case("https://datascience.stackexchange.com/questions/67599/use-lstm-to-predict-the-proportion-of-steps-with-nonzero-feature-values", "regression LSTM ends in Dense(1, relu)", "dense / relu")
def b_lstm_prop(planted):
    def data(s):
        n = R(s, 40, (48,)); return (torch.arange(40)[None] < n[:, None]).float().flip(1)[..., None], n[:, None] / 40.
    def model():
        def f(s, x):
            h, _ = s.lstm(x); o = s.dense(h[:, -1]); return F.relu(o) if planted else o
        return M(f, lstm=nn.LSTM(1, 10, batch_first=True), dense=nn.Linear(10, 1))
    return dict(model=model, data=data, loss=mse)

@case("https://stackoverflow.com/questions/38059247/using-tensorflows-connectionist-temporal-classification-ctc-implementation", "LSTM with num_classes units used directly as the logits (bounded in (-1,1))", "rnn (output)")
def b_bounded_logits(planted):
    E = T(51, 12, 13)
    def data(s):
        y = R(s, 12, (24, 14)); return E[y] + .3 * T(s + 1, 24, 14, 13), y
    def model():
        def f(s, x):
            h, _ = s.rnn(x); return h if planted else s.fc(h)
        return M(f, rnn=nn.LSTM(13, 12 if planted else 48, batch_first=True), **({} if planted else dict(fc=nn.Linear(48, 12))))
    return dict(model=model, data=data, loss=ceseq, diag=SEQ)

@case("https://discuss.pytorch.org/t/bi-lstm-acc-doesnt-improve-over-65/145062", "bidirectional LSTM read at lstm_out[:, -1]: backward half saw one token", "lstm1 output")
def b_bilstm(planted):
    def data(s): x, y = topics(s, L=20, c=2, early=True); return x, (y[:, None] % 2).float()
    def model():
        def f(s, x):
            o, (h, c) = s.lstm1(s.emb(x)); h = o[:, -1] if planted else torch.cat([h[-2], h[-1]], 1)
            return s.lin2(s.lin1(h).relu()).sigmoid()
        return M(f, emb=nn.Embedding(16, 16), lstm1=nn.LSTM(16, 24, bidirectional=True, batch_first=True), lin1=nn.Linear(48, 24), lin2=nn.Linear(24, 1))
    return dict(model=model, data=data, loss=lambda o, t: F.binary_cross_entropy(o, t))

@case("https://thecodeforge.io/ml-ai/attention-is-all-you-need/", "no positional encoding added: the order of the tokens is lost", "emb / missing position")
def b_no_pos(planted):
    def data(s): x = R(s, 8, (64, 8)); return x, x[:, 2]
    def model():
        def f(s, x):
            h = s.emb(x)
            if not planted: h = h + s.pos
            return s.head(s.enc(h).mean(1))
        kw = {} if planted else dict(pos=nn.Parameter(torch.randn(1, 8, 32)))
        return M(f, emb=nn.Embedding(8, 32), enc=nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, dropout=0., batch_first=True), 1, enable_nested_tensor=False), head=nn.Linear(32, 8), **kw)
    return dict(model=model, data=data, loss=ce)
