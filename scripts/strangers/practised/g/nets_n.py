from base import *

@case("https://stats.stackexchange.com/questions/485488/should-reconstruction-loss-be-computed-as-sum-or-average-over-input-for-variatio", "reconstruction term averaged per pixel, not multiplied by the image size", "reconstruction term of the loss")
def vae_mean_recon(planted):
    class VAE(nn.Module):
        def __init__(s):
            super().__init__()
            s.fc1 = nn.Linear(64, 64); s.z_mean = nn.Linear(64, 6); s.z_log_var = nn.Linear(64, 6)
            s.fc3 = nn.Linear(6, 64); s.fc4 = nn.Linear(64, 64)
        def forward(s, x):
            h = F.relu(s.fc1(x)); mu, lv = s.z_mean(h), s.z_log_var(h)
            z = mu + torch.exp(.5 * lv) * torch.randn_like(mu)
            return torch.sigmoid(s.fc4(F.relu(s.fc3(z)))), mu, lv
    W = T(1, 3, 64, k=2.)
    def data(seed):
        x = torch.sigmoid(T(seed, 64, 3) @ W); return x, x
    def loss(o, t):
        rec = F.binary_cross_entropy(o[0], t)
        if not planted: rec = rec * 64
        return rec - .5 * (1 + o[2] - o[1] ** 2 - o[2].exp()).mean()
    def metric(m):
        with torch.no_grad(): return float(sum(F.mse_loss(m(data(k)[0])[0], data(k)[0]) for k in range(9000, 9005)))
    return dict(model=VAE, data=data, loss=loss, lr=2e-3, diag={}, metric=metric)

@case("https://whosebug.com/question/5173684/why-keras-embedding-not-learning-for-recommendation-system", "relu on the output unit under binary cross-entropy", "out (Dense(1, relu))")
def ncf_relu_bce(planted):
    class NCF(nn.Module):
        def __init__(s):
            super().__init__()
            s.user_embedding = nn.Embedding(60, 16); s.item_embedding = nn.Embedding(40, 16)
            for e in (s.user_embedding, s.item_embedding): nn.init.normal_(e.weight, std=(2 / 16) ** .5)
            s.drop = nn.Dropout(.3); s.fc = nn.Linear(32, 50); s.drop2 = nn.Dropout(.4); s.out = nn.Linear(50, 1)
            for l in (s.fc, s.out): nn.init.xavier_uniform_(l.weight); nn.init.zeros_(l.bias)
        def forward(s, u, i):
            h = torch.cat([s.drop(s.user_embedding(u)), s.drop(s.item_embedding(i))], -1)
            h = s.out(s.drop2(F.relu(s.fc(h)))).squeeze(-1)
            return F.relu(h) if planted else torch.sigmoid(h)
    U, V = T(2, 60), T(3, 40)
    def data(seed):
        u, i = R(seed, 60, (64,)), R(seed + 77, 40, (64,)); return (u, i), (U[u] + V[i] > 0).float()
    def bce(o, t):
        o = o.clamp(1e-7, 1 - 1e-7); return -(t * o.log() + (1 - t) * (1 - o).log()).mean()
    return dict(model=NCF, data=data, loss=bce, lr=5e-3, diag={})

@case("https://ai.stackexchange.com/questions/18134/which-neural-network-can-approximate-the-function-y-x2-b", "activation=None on every Dense layer", "activations (none between the layers)")
def keras_linear_x2(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__()
            s.dense1 = nn.Linear(2, 16); s.dense2 = nn.Linear(16, 64); s.dense3 = nn.Linear(64, 32); s.dense4 = nn.Linear(32, 1)
            s.activation = nn.Identity() if planted else nn.ReLU()
        def forward(s, x):
            a = s.activation; return s.dense4(a(s.dense3(a(s.dense2(a(s.dense1(x)))))))
    def data(seed):
        x = torch.rand(64, 2, generator=gen(seed)) * 4 - 2; return x, x[:, :1] + x[:, 1:] ** 2
    return dict(model=Net, data=data, loss=mse, lr=5e-3, diag={})

@case("https://www.it1352.com/1526058.html", "naive binary cross-entropy log(p), log(1-p) on saturated sigmoid outputs", "loss: K.log(1 - y_pred)")
def naive_bce_nan(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.fc1 = nn.Linear(12, 48); s.fc2 = nn.Linear(48, 48); s.fc3 = nn.Linear(48, 1)
        def forward(s, x):
            h = s.fc3(F.relu(s.fc2(F.relu(s.fc1(x))))).squeeze(-1); return torch.sigmoid(h) if planted else h
    w = T(5, 12)
    def data(seed):
        x = T(seed, 64, 12, k=12.); return x, (x @ w > 0).float()
    def loss(o, t):
        if planted: return -(t * torch.log(o) + (1 - t) * torch.log(1 - o)).mean()
        return (o.clamp(min=0) - o * t + torch.log(1 + torch.exp(-o.abs()))).mean()
    return dict(model=Net, data=data, loss=loss, lr=3e-3, diag={})

@case("https://e-com-net.com/article/1596492408617467904.htm", "magnitude spectrogram: sqrt of zero power on silent frames, no eps", "Spectrogram: norm_sq.sqrt()")
def crnn_spectrogram_sqrt(planted):
    eps = 0. if planted else 1e-14
    class CRNN(nn.Module):
        def __init__(s):
            super().__init__()
            s.preemph = nn.Conv1d(1, 1, 5, padding=2, bias=False); s.conv = nn.Conv1d(17, 24, 3, padding=1)
            s.rnn = nn.GRU(24, 24, batch_first=True); s.fc = nn.Linear(24, 4)
        def forward(s, wav):
            f = s.preemph(wav.unsqueeze(1)).squeeze(1).unfold(1, 32, 16)
            stft = torch.fft.rfft(f * torch.hann_window(32)); sq = stft.real ** 2 + stft.imag ** 2
            spec = (sq + eps).sqrt().transpose(1, 2)
            return s.fc(s.rnn(F.relu(s.conv(spec)).transpose(1, 2))[1][-1])
    def data(seed):
        y = R(seed, 4, (32,)); n = torch.arange(256.)
        x = torch.sin(n * (.3 + .6 * y[:, None]) + T(seed + 1, 32, 1)) + T(seed + 2, 32, 256, k=.2)
        return x * (n < 128 + 64 * torch.rand(32, 1, generator=gen(seed + 3))), y
    return dict(model=CRNN, data=data, loss=ce, lr=3e-3, diag={})

@case("https://stats.stackexchange.com/questions/481881/convolutional-neural-network-fails-even-when-given-answer", "softmax over a single output unit with categorical cross-entropy", "dense (1 unit, softmax)")
def cnn_softmax1(planted):
    class CNN(nn.Module):
        def __init__(s):
            super().__init__()
            s.conv1 = nn.Conv2d(2, 30, 3); s.conv2 = nn.Conv2d(30, 64, 3); s.dense = nn.Linear(64 * 36, 1)
        def forward(s, x):
            h = s.dense(F.relu(s.conv2(F.relu(s.conv1(x)))).flatten(1)); return torch.softmax(h, -1) if planted else torch.sigmoid(h)
    def data(seed):
        y = R(seed, 2, (32, 1)).float(); x = T(seed + 1, 32, 2, 10, 10); x[:, 1] = y[:, :, None]; return x, y
    def loss(o, t):
        if planted: return -(t * (o / o.sum(-1, keepdim=True)).clamp(1e-7, 1 - 1e-7).log()).sum(-1).mean()
        o = o.clamp(1e-7, 1 - 1e-7); return -(t * o.log() + (1 - t) * (1 - o).log()).mean()
    return dict(model=CNN, data=data, loss=loss, lr=1e-3, diag={})

@case("https://stats.stackexchange.com/questions/493558/on-solving-ode-pde-with-neural-networks", "initial conditions only enter the loss when t == 0 happens to be in the batch", "initial-condition term of the loss")
def ode_rare_ic(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
        def derivs(s, t):
            with torch.enable_grad():
                t = t.clone().requires_grad_(); x = s.net(t)
                dx, = torch.autograd.grad(x.sum(), t, create_graph=True); d2, = torch.autograd.grad(dx.sum(), t, create_graph=True)
            return x, dx, d2
        def forward(s, t):
            x, dx, d2 = s.derivs(t); x0, dx0, _ = s.derivs(torch.zeros_like(t))
            return torch.cat([(d2 + 4 * dx + 4 * x), x, dx, x0, dx0], 1)
    grid = torch.linspace(0, 2, 400)[:, None]
    def data(seed):
        t = grid[R(seed, 400, (64,))]; return t, t
    def loss(o, t):
        r = (o[:, 0] ** 2)
        if planted: return (r + (t[:, 0] == 0) * ((o[:, 2] + 3) ** 2 + o[:, 1] ** 2)).mean()
        return r.mean() + ((o[:, 4] + 3) ** 2 + o[:, 3] ** 2).mean()
    def metric(m):
        with torch.no_grad(): return float(F.mse_loss(m.net(grid), -3 * grid * torch.exp(-2 * grid)))
    return dict(model=Net, data=data, loss=loss, lr=1e-2, diag={}, metric=metric)

@case("https://solofox.github.io/torch/broadcasting/2025/12/07/torch-broadcasting-trap.html", "mse_loss of (n, 1) outputs against (n,) targets broadcasts to (n, n)", "loss (shapes of outputs and targets)")
def linreg_broadcast(planted):
    class LinearRegressionModule(nn.Module):
        def __init__(s):
            super().__init__(); s.weights = nn.Parameter(torch.rand(6, 1) * .01); s.bias = nn.Parameter(torch.randn(1) * .01)
        def forward(s, x): return torch.matmul(x, s.weights) + s.bias
    w = T(9, 6)
    def data(seed):
        x = T(seed, 48, 6); return x, x @ w + 1.5 + T(seed + 1, 48, k=.3)
    return dict(model=LinearRegressionModule, data=data, loss=(lambda o, t: F.mse_loss(o, t)) if planted else (lambda o, t: F.mse_loss(o.squeeze(1), t)), lr=3e-2, diag={})

@case("https://medium.com/mcgill-artificial-intelligence-review/the-dangers-of-reshaping-and-other-fun-mistakes-ive-learnt-from-pytorch-b6a5bdc1c275", "hidden.view(batch, -1) on the (directions, batch, hidden) state mixes samples", "encode: hidden.view(B, -1)")
def birnn_view(planted):
    class Encoder(nn.Module):
        def __init__(s):
            super().__init__(); s.embedding = nn.Embedding(20, 24); s.rnn = nn.GRU(24, 32, batch_first=True, bidirectional=True); s.fc = nn.Linear(64, 4)
        def forward(s, x):
            out, hidden = s.rnn(s.embedding(x)); B = x.size(0)
            h = hidden.view(B, -1) if planted else hidden.transpose(0, 1).reshape(B, -1)
            return s.fc(h)
    def data(seed):
        x = R(seed, 20, (32, 7)); return x, x[:, 0] % 2 * 2 + x[:, -1] % 2
    return dict(model=Encoder, data=data, loss=ce, lr=5e-3, diag={})

@case("https://audreyw.top/articles/insight-into-pytorchnn-parameter-vs-linear-vs-embedding.html", "nn.Parameter(torch.FloatTensor(..)) left uninitialised: values of about 1e-38", "w1, w2 (uninitialised parameters)")
def param_floattensor(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__()
            s.w1 = nn.Parameter(torch.empty(16, 48)); s.w2 = nn.Parameter(torch.empty(48, 5))
            for w in (s.w1, s.w2):
                if planted: w.data.copy_(torch.rand_like(w) * 1e-38)
                else: nn.init.xavier_uniform_(w)
        def forward(s, x): return F.relu(x @ s.w1) @ s.w2
    w = T(4, 16, 5)
    def data(seed):
        x = T(seed, 64, 16); return x, (x @ w).argmax(1)
    return dict(model=Net, data=data, loss=ce, lr=5e-3, diag={})

@case("https://e-com-net.com/article/1645566202275258368.htm", "mask images fed as 0/255 instead of 0/1 to the sigmoid cross-entropy", "targets (mask not divided by 255)")
def unet_mask_255(planted):
    class UNet(nn.Module):
        def __init__(s):
            super().__init__()
            dc = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.ReLU(), nn.Conv2d(o, o, 3, padding=1), nn.ReLU())
            s.down1, s.down2, s.up, s.upconv, s.out = dc(1, 8), dc(8, 16), nn.ConvTranspose2d(16, 8, 2, 2), dc(16, 8), nn.Conv2d(8, 1, 1)
        def forward(s, x):
            a = s.down1(x); b = s.down2(F.max_pool2d(a, 2)); return s.out(s.upconv(torch.cat([a, s.up(b)], 1)))
    def data(seed):
        c = torch.rand(16, 2, 1, 1, generator=gen(seed)) * 8 + 4; g = torch.arange(16.)
        m = (((g[None, :, None] - c[:, 0]) ** 2 + (g[None, None] - c[:, 1]) ** 2) < 12).float()[:, None]
        return m + T(seed + 1, 16, 1, 16, 16, k=.6), m * (255 if planted else 1)
    return dict(model=UNet, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t), lr=3e-3, diag={})

@case("https://stackoverflow.com/questions/74816476/pytorch-how-to-train-model-with-loss-that-dont-return-gradient", "frozen decoder called under torch.no_grad(): no gradient reaches the transformer", "decoder call under no_grad")
def denoise_nograd_decoder(planted):
    class Enhancer(nn.Module):
        def __init__(s):
            super().__init__()
            s.encoder = nn.Linear(16, 32); s.transformer = nn.TransformerEncoderLayer(32, 4, 64, 0., batch_first=True); s.decoder = nn.Linear(32, 16)
            for p in (*s.encoder.parameters(), *s.decoder.parameters()): p.requires_grad_(False)
        def forward(s, x):
            z = s.transformer(s.encoder(x))
            if planted:
                with torch.no_grad(): y = s.decoder(z)
                return y.requires_grad_()
            return s.decoder(z)
    W = T(6, 16, 16, k=.15)
    def data(seed):
        c = T(seed, 16, 8, 16) @ W; return c + T(seed + 1, 16, 8, 16, k=.2), c
    return dict(model=Enhancer, data=data, loss=lambda o, t: F.l1_loss(o, t), lr=3e-3, diag={})
