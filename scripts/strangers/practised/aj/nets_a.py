from base import *

@case("https://github.com/keras-team/keras/issues/5992", "Dropout(0.5) applied to the softmax output", "out_drop (dropout after softmax)")
def keras_dropout_on_softmax(planted):
    class FeedForward(nn.Module):
        def __init__(self, input_dim=10, nb_classes=4):
            super().__init__()
            self.h1 = nn.Linear(input_dim, 14); self.drop1 = nn.Dropout(0.5)
            self.h2 = nn.Linear(14, 8); self.drop2 = nn.Dropout(0.5)
            self.out = nn.Linear(8, nb_classes)
            self.out_drop = nn.Dropout(0.5) if planted else nn.Identity()
        def forward(self, x):
            x = self.drop1(F.relu(self.h1(x))); x = self.drop2(F.relu(self.h2(x)))
            return self.out_drop(F.softmax(self.out(x), -1))
    w = T(3, 10, 4)
    def data(seed):
        x = T(seed, 64, 10); return x, F.one_hot((x @ w).argmax(-1), 4).float()
    return dict(model=FeedForward, data=data, loss=mse, lr=1e-2, diag={})

@case("https://github.com/pytorch/pytorch/issues/19699", "MSELoss between output (N,1) and target (N,): broadcasts to N x N", "loss / output shape")
def mse_n1_vs_n(planted):
    class Regressor(nn.Module):
        def __init__(self):
            super().__init__(); self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
        def forward(self, x): return self.net(x)
    w = T(5, 8) * .5
    def data(seed):
        x = T(seed, 64, 8); return x, torch.tanh(x @ w) + .3 * x[:, 0]
    loss_fn = nn.MSELoss()
    def loss(o, t): return loss_fn(o, t) if planted else loss_fn(o, t.reshape(-1, 1))
    return dict(model=Regressor, data=data, loss=loss, lr=3e-3, diag={})

@case("https://github.com/kqhuynguyen/gcn-japan-weather-forecast/pull/2", "batch (B, seq, nodes) reshaped to (B, nodes, seq) without transpose", "reshape in forward before gcn1")
def gcn_weather_reshape(planted):
    N, S = 12, 10
    A = (torch.rand(N, N, generator=gen(1)) < .25).float(); A = ((A + A.t()) > 0).float(); A.fill_diagonal_(1.); d = A.sum(1).rsqrt(); A = d[:, None] * A * d[None]
    class GCN(nn.Module):
        def __init__(self, hidden=32):
            super().__init__(); self.register_buffer("adj", A)
            self.gcn1 = nn.Linear(S, hidden); self.gcn2 = nn.Linear(hidden, hidden); self.out = nn.Linear(hidden + S, 1)
        def forward(self, batch):
            b = batch.shape[0]
            x = batch.reshape(b, N, S) if planted else batch.transpose(1, 2).reshape(b, N, S)
            h = F.relu(self.adj @ self.gcn1(x)); h = F.relu(self.adj @ self.gcn2(h))
            return self.out(torch.cat([h, x], -1)).squeeze(-1)
    def data(seed):
        g = gen(seed); ph = torch.rand(32, 1, N, generator=g) * 6.28; fr = .3 + .5 * torch.rand(32, 1, N, generator=g)
        s = torch.sin(fr * torch.arange(S + 1.)[None, :, None] + ph); s = s + .5 * s @ A
        return s[:, :S], s[:, S]
    return dict(model=GCN, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/pytorch/tutorials/issues/192", "final hidden state of one GRU pass used to initialise the next stacked pass", "EncoderRNN.gru loop (hidden)")
def seq2seq_encoder_hidden(planted):
    V, H = 10, 48
    class EncoderRNN(nn.Module):
        def __init__(self, n_layers=2):
            super().__init__(); self.n_layers = n_layers; self.embedding = nn.Embedding(V, H); self.gru = nn.GRU(H, H, batch_first=True)
        def forward(self, input):
            output = self.embedding(input); hidden = torch.zeros(1, input.shape[0], H)
            for i in range(self.n_layers):
                output, h = self.gru(output, hidden)
                if planted: hidden = h
            return output, h
    class Seq2Seq(nn.Module):
        def __init__(self):
            super().__init__(); self.encoder = EncoderRNN(); self.embedding = nn.Embedding(V, H); self.gru = nn.GRU(H, H, batch_first=True); self.out = nn.Linear(H, V)
        def forward(self, src, dec):
            _, h = self.encoder(src); o, _ = self.gru(F.relu(self.embedding(dec)), h); return self.out(o)
    def data(seed):
        src = R(seed, V - 1, (64, 4)) + 1; tgt = src.flip(1); dec = torch.cat([torch.zeros(64, 1, dtype=torch.long), tgt[:, :-1]], 1)
        return (src, dec), tgt
    return dict(model=Seq2Seq, data=data, loss=ceseq, lr=5e-3, diag={})

@case("https://github.com/bentrevett/pytorch-sentiment-analysis/issues/75", "sigmoid in the model while the criterion is BCEWithLogitsLoss", "sigmoid (output)")
def sentiment_double_sigmoid(planted):
    class RNN(nn.Module):
        def __init__(self, vocab=60, emb=32, hid=32):
            super().__init__(); self.embedding = nn.Embedding(vocab, emb); self.rnn = nn.LSTM(emb, hid, num_layers=2, bidirectional=True, dropout=.2, batch_first=True)
            self.fc = nn.Linear(2 * hid, 1); self.dropout = nn.Dropout(.2); self.sigmoid = nn.Sigmoid()
        def forward(self, text):
            o, (h, c) = self.rnn(self.dropout(self.embedding(text))); h = self.dropout(torch.cat([h[-2], h[-1]], 1))
            return self.sigmoid(self.fc(h)).squeeze(1) if planted else self.fc(h).squeeze(1)
    pol = T(9, 60)
    def data(seed):
        x = R(seed, 60, (64, 12)); return x, (pol[x].sum(1) > 0).float()
    return dict(model=RNN, data=data, loss=nn.BCEWithLogitsLoss(), lr=5e-3, diag={})

@case("https://github.com/aidotse/LeakPro/issues/229", "redundant sigmoid at the end of AdultNet with BCEWithLogitsLoss", "sigmoid (output)")
def adult_redundant_sigmoid(planted):
    class AdultNet(nn.Module):
        def __init__(self, input_size=14, hidden_size=64, num_classes=1):
            super().__init__(); self.fc1 = nn.Linear(input_size, hidden_size); self.relu = nn.ReLU(); self.fc2 = nn.Linear(hidden_size, hidden_size); self.fc3 = nn.Linear(hidden_size, num_classes)
        def forward(self, x):
            out = self.fc3(self.relu(self.fc2(self.relu(self.fc1(x)))))
            return torch.sigmoid(out) if planted else out
    w = T(4, 14)
    def data(seed):
        x = T(seed, 64, 14); return x, (x @ w + x[:, 0] * x[:, 1] > 2.5).float()[:, None]
    return dict(model=AdultNet, data=data, loss=nn.BCEWithLogitsLoss(), lr=1e-3, diag={})

def blobs(seed, n=64, s=12):
    g = gen(seed); c = torch.rand(n, 2, 1, 1, generator=g) * (s - 5) + 2; yy, xx = torch.meshgrid(torch.arange(s * 1.), torch.arange(s * 1.), indexing="ij")
    return torch.exp(-((yy - c[:, 0]) ** 2 + (xx - c[:, 1]) ** 2) / 5).flatten(1)

@case("https://github.com/ethanluoyc/pytorch-vae/issues/3", "ReLU on the decoder output while the images are normalised to negative values too", "decoder (relu after linear2)")
def vae_decoder_relu(planted):
    class Encoder(nn.Module):
        def __init__(self, D_in, H, D_out): super().__init__(); self.linear1 = nn.Linear(D_in, H); self.linear2 = nn.Linear(H, D_out)
        def forward(self, x): return F.relu(self.linear2(F.relu(self.linear1(x))))
    class Decoder(nn.Module):
        def __init__(self, D_in, H, D_out): super().__init__(); self.linear1 = nn.Linear(D_in, H); self.linear2 = nn.Linear(H, D_out)
        def forward(self, x):
            x = self.linear2(F.relu(self.linear1(x))); return F.relu(x) if planted else x
    class VAE(nn.Module):
        def __init__(self, latent_dim=8):
            super().__init__(); self.encoder = Encoder(144, 100, 100); self.decoder = Decoder(latent_dim, 100, 144)
            self._enc_mu = nn.Linear(100, latent_dim); self._enc_log_sigma = nn.Linear(100, latent_dim)
        def forward(self, state):
            h = self.encoder(state); mu = self._enc_mu(h); sigma = torch.exp(self._enc_log_sigma(h))
            return self.decoder(mu + sigma * torch.randn_like(sigma)), mu, sigma
    def data(seed): x = (blobs(seed) - .5) / .5; return x, x
    def loss(o, t):
        dec, mu, sd = o; return F.mse_loss(dec, t) + 1e-3 * .5 * (mu ** 2 + sd ** 2 - torch.log(sd ** 2) - 1).mean()
    return dict(model=VAE, data=data, loss=loss, lr=3e-3, diag={})

class UNet(nn.Module):
    def __init__(self, cin=1, n_class=2, f=8):
        super().__init__(); c = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.ReLU(), nn.Conv2d(o, o, 3, padding=1), nn.ReLU())
        self.down1 = c(cin, f); self.down2 = c(f, 2 * f); self.pool = nn.MaxPool2d(2); self.up = nn.ConvTranspose2d(2 * f, f, 2, stride=2); self.dec = c(2 * f, f); self.out = nn.Conv2d(f, n_class, 1)
    def forward(self, x):
        a = self.down1(x); b = self.down2(self.pool(a)); return self.out(self.dec(torch.cat([a, self.up(b)], 1)))
def discs(seed, n=16, s=24):
    g = gen(seed); c = torch.rand(n, 2, 1, 1, generator=g) * (s - 14) + 7; r = 5 + 3 * torch.rand(n, 1, 1, generator=g); yy, xx = torch.meshgrid(torch.arange(s * 1.), torch.arange(s * 1.), indexing="ij")
    m = ((yy - c[:, 0]) ** 2 + (xx - c[:, 1]) ** 2 < r ** 2).float(); return (m + .4 * torch.randn(n, s, s, generator=g))[:, None], m

@case("https://github.com/jakeret/tf_unet/pull/16", "dice loss computed on logits instead of softmax probabilities", "loss (dice on raw logits)")
def tf_unet_dice_logits(planted):
    def data(seed): x, m = discs(seed); return x, torch.stack([1 - m, m], 1)
    def loss(logits, y):
        p = logits if planted else F.softmax(logits, 1)
        return 1 - 2 * (p * y).sum() / (1e-5 + p.sum() + y.sum())
    def metric(m):
        with torch.no_grad():
            x, y = data(9000); p = F.softmax(m(x), 1); return float(1 - 2 * (p * y)[:, 1].sum() / (p[:, 1].sum() + y[:, 1].sum()))
    return dict(model=UNet, data=data, loss=loss, lr=3e-3, diag={}, metric=metric)
