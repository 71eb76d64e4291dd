from base import *

@case("https://taourl.com/read-3773789.html", "all weights initialised to zero (kernel_initializer='zeros'): relu hidden layer never gets a gradient", "nn.init.zeros_ of the Dense weights")
def zeros_init(planted):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.dense1 = nn.Linear(10, 64); self.dense2 = nn.Linear(64, 1)
            for m in (self.dense1, self.dense2):
                (nn.init.zeros_ if planted else nn.init.xavier_uniform_)(m.weight); nn.init.zeros_(m.bias)
        def forward(self, x): return self.dense2(F.relu(self.dense1(x)))
    w = T(2, 10, 1)
    def data(seed):
        x = torch.rand(32, 10, generator=gen(seed)); return x, ((x - .5) @ w > 0).float()
    return dict(model=Model, data=data, loss=F.binary_cross_entropy_with_logits, lr=1e-2, diag={})

@case("https://statedai.com/how-to-handle-variable-length-sequences-padding-in-pytorch-rnn.html", "the sentence representation is the LSTM output at the last padded step, after many useless pad symbols", "out[:, -1] of the padded batch (no pack_padded_sequence)")
def lstm_last_pad(planted):
    class SentimentLSTM(nn.Module):
        def __init__(self, vocab=60, emb=24, hidden=32, classes=3):
            super().__init__()
            self.embedding = nn.Embedding(vocab, emb); self.lstm = nn.LSTM(emb, hidden, batch_first=True); self.fc = nn.Linear(hidden, classes)
        def forward(self, text, lengths):
            e = self.embedding(text)
            if planted: return self.fc(self.lstm(e)[0][:, -1])
            packed = nn.utils.rnn.pack_padded_sequence(e, lengths, batch_first=True, enforce_sorted=False)
            return self.fc(self.lstm(packed)[1][0][-1])
    def data(seed):
        t = R(seed, 3, (32,)); n = 3 + R(seed + 1, 8, (32,))
        own = 1 + t[:, None] * 12 + R(seed + 2, 12, (32, 60)); common = 37 + R(seed + 3, 23, (32, 60))
        text = torch.where(torch.rand(32, 60, generator=gen(seed + 4)) < .6, own, common)
        return (torch.where(torch.arange(60) < n[:, None], text, 0), n), t
    return dict(model=SentimentLSTM, data=data, loss=ce, lr=5e-3, diag={})

@case("https://huggingface.co/datasets/nvidia/Nemotron-CC-Math-v1#simple-linear-regression-in-pytorch", "out of shape (N, 1) minus y of shape (N,) broadcasts to (N, N)", "loss = mean((out - y)**2) with out (N, 1), y (N,)")
def linreg_broadcast(planted):
    class Regression(nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = nn.Parameter(torch.randn(5, 1)); self.bias = nn.Parameter(torch.randn(1))
        def forward(self, x):
            out = x.mm(self.weights) + self.bias
            return out if planted else out.view(-1)
    w = T(3, 5)
    def data(seed):
        x = T(seed, 32, 5); return x, x @ w + .5
    def metric(model):
        with torch.no_grad():
            x, y = data(9000); return ((model(x).view(-1) - y) ** 2).mean().item()
    return dict(model=Regression, data=data, loss=lambda out, y: torch.mean((out - y) ** 2), lr=2e-2, diag={}, metric=metric)

@case("https://imathworks.com/cv/solved-cross-entropy-loss-function-and-division-by-zero", "cross-entropy log(y) on output neurons that are not sigmoid: y reaches zero", "the output activation (relu) before -t*log(y)")
def ce_without_sigmoid(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1 = nn.Linear(16, 32); self.fc2 = nn.Linear(32, 4)
        def forward(self, x):
            y = self.fc2(torch.tanh(self.fc1(x)))
            return torch.relu(y) if planted else torch.sigmoid(y)
    c = T(7, 4, 16)
    def cross_entropy(y, t): return -(t * torch.log(y) + (1 - t) * torch.log(1 - y)).sum(1).mean()
    def data(seed):
        t = R(seed, 4, (32,)); return c[t] + T(seed + 1, 32, 16), F.one_hot(t, 4).float()
    return dict(model=Net, data=data, loss=cross_entropy, lr=1e-2, diag={})
