from base import *

@case("https://discuss.pytorch.org/t/in-a-number-sequence-1-2-3-4-estimate-the-next-number-using-lstm/202270", "every step's outputs are flattened and broadcast against the single target of the window", "forward: self.flatten(self.fc(out)) of shape (B, 2T) against a target (B, 1)")
def lstm_next_number(planted):
    class LSTM(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(1, 20, 1, batch_first=True)
            self.fc = nn.Linear(20, 2 if planted else 1)
            self.flatten = nn.Flatten(1, 2)
        def forward(self, x):
            out, _ = self.lstm(x)
            return self.flatten(self.fc(out)) if planted else self.fc(out[:, -1])
    def data(seed):
        p = T(seed, 32, 1, k=2.0); w = .3 + .1 * T(seed + 7, 32, 1); t = torch.arange(11.)
        s = torch.sin(p + w * t); return s[:, :10, None], s[:, 10:]
    return dict(model=LSTM, data=data, loss=mse, lr=1e-2, diag={})

@case("https://stats.stackexchange.com/questions/320289/approximate-the-sine-function-with-shallow-neural-network", "weights drawn from torch.randn without scaling by the fan-in, no biases, in front of tanh", "the layer weights' initialisation torch.randn(n_in, n_out)")
def sine_randn_weights(planted):
    sizes = [1, 128, 1]
    class Layer(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(i, o) if planted else torch.randn(i, o) / i ** .5)
            self.bias = None if planted else nn.Parameter(torch.rand(o) * 2 - 1)
        def forward(self, x):
            y = x.mm(self.weight)
            return y if self.bias is None else y + self.bias
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(Layer(i, o) for i, o in zip(sizes, sizes[1:]))
        def forward(self, x):
            for l in self.layers: x = torch.tanh(l(x))
            return x
    def data(seed):
        x = torch.rand(64, 1, generator=gen(seed)) * 10 - 1
        return x, torch.sin(x) / 2.5 + .05 * T(seed + 1, 64, 1)
    return dict(model=Net, data=data, loss=mse, lr=1e-2, diag={})

@case("https://whosebug.com/question/5407576/Why-does-my-autoencoder-for-de-noising-in-PyTorch-learns-to-zero-out-everything", "the decoder ends in ReLU (targets are cosines in [-1, 1]) and all kernels have size 1", "the last nn.ReLU of self.decoder (kernel_size=1 of the layers)")
def denoise_relu_decoder(planted):
    k = 1 if planted else 7
    class ConvAutoencoder(nn.Module):
        def __init__(self, enc=(1, 16, 32), dec=(32, 16, 1)):
            super().__init__()
            e, d = [], []
            for i, o in zip(enc, enc[1:]): e += [nn.ConvTranspose1d(i, o, k, padding=k // 2), nn.ReLU()]
            for i, o in zip(dec, dec[1:]): d += [nn.ConvTranspose1d(i, o, k, padding=k // 2), nn.ReLU()]
            self.encoder = nn.Sequential(*e)
            self.decoder = nn.Sequential(*(d if planted else d[:-1]))
        def forward(self, x): return self.decoder(self.encoder(x))
    def data(seed):
        p = T(seed, 32, 1, 1, k=3.0); c = torch.cos(p + torch.arange(40.) * 2 * math.pi / 8)
        return c + .5 * T(seed + 3, 32, 1, 40), c
    return dict(model=ConvAutoencoder, data=data, loss=mse, lr=1e-3, diag={})

@case("https://newbe.dev/cross-entropy-loss-for-semantic-segmentation-keras", "class scores are normalised over axis 0 (the batch) instead of over the class axis", "depth_softmax: sigmoided / sigmoided.sum(0)")
def seg_depth_softmax(planted):
    W = T(5, 7, 3, 3, 3)
    def depth_softmax(m):
        s = torch.sigmoid(m)
        return s / s.sum(0, keepdim=True) if planted else torch.softmax(m, 1)
    class SegNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(3, 24, 3, padding=1); self.bn1 = nn.BatchNorm2d(24)
            self.conv2 = nn.Conv2d(24, 24, 3, padding=1); self.bn2 = nn.BatchNorm2d(24)
            self.conv_out = nn.Conv2d(24, 7, 1)
        def forward(self, x):
            x = F.relu(self.bn1(self.conv1(x))); x = F.relu(self.bn2(self.conv2(x)))
            return depth_softmax(self.conv_out(x))
    def data(seed):
        x = T(seed, 16, 3, 12, 12); return x, F.conv2d(x, W, padding=1).argmax(1)
    return dict(model=SegNet, data=data, loss=lambda p, t: F.nll_loss(torch.log(p + 1e-7), t), lr=3e-3, diag={})

@case("https://openillumi.com/en/en-pytorch-transformer-multidim-output-same-fix", "zeros are passed as the decoder's input instead of the shifted target", "the call model(x, torch.zeros): the tgt argument")
def transformer_zero_tgt(planted):
    pe = torch.stack([torch.sin(torch.arange(16.) / 10 ** (i / 8)) for i in range(32)], -1)
    class TransformerReconstruct(nn.Module):
        def __init__(self, feat=8, d=32):
            super().__init__()
            self.src_proj = nn.Linear(feat, d); self.tgt_proj = nn.Linear(feat, d)
            self.transformer = nn.Transformer(d, 4, 1, 1, 64, dropout=0., batch_first=True)
            self.out = nn.Linear(d, feat); self.register_buffer("pe", pe)
        def forward(self, src, tgt):
            mask = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1])
            h = self.transformer(self.src_proj(src) + self.pe[:src.shape[1]], self.tgt_proj(tgt), tgt_mask=mask)
            return self.out(h)
    A = T(3, 4, 8); 
    def data(seed):
        t = torch.arange(17.); ph = T(seed, 32, 4, 1, k=3.0); w = torch.tensor([.3, .5, .7, .9])[None, :, None]
        y = torch.sin(ph + w * t).transpose(1, 2) @ A / 1.5
        src = y[:, :16] + .1 * T(seed + 1, 32, 16, 8)
        tgt = torch.zeros(32, 16, 8) if planted else y[:, :16]
        return (src, tgt), y[:, 1:]
    return dict(model=TransformerReconstruct, data=data, loss=mse, lr=2e-3, diag={})

@case("https://openillumi.com/en/en-pytorch-transformer-non-ar-seq2seq-mask-guide", "the autoregressive (causal) mask of the sample code is left in a non-autoregressive spectrogram-to-spectrogram model", "self.src_mask = generate_square_subsequent_mask in the encoder")
def causal_mask_reconstruct(planted):
    class PositionalEncoding(nn.Module):
        def __init__(self, d, n=32):
            super().__init__()
            p = torch.arange(n)[:, None] * torch.exp(torch.arange(0, d, 2) * (-math.log(1e4) / d))
            self.register_buffer("pe", torch.stack([p.sin(), p.cos()], -1).flatten(1))
        def forward(self, x): return x + self.pe[:x.shape[1]]
    class TransformerReconstruct(nn.Module):
        def __init__(self, feature=12, d=48):
            super().__init__()
            self.embed = nn.Linear(feature, d); self.pos_encoder = PositionalEncoding(d)
            layer = nn.TransformerEncoderLayer(d, 4, 96, dropout=0., batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.decoder = nn.Linear(d, feature)
        def forward(self, x):
            mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1]) if planted else None
            return self.decoder(self.encoder(self.pos_encoder(self.embed(x)), mask=mask))
    A = T(1, 12, 12) / 12 ** .5
    def data(seed):
        x = T(seed, 32, 16, 12); return x, (x.roll(-2, 1) + .5 * x.roll(-4, 1)) @ A
    return dict(model=TransformerReconstruct, data=data, loss=mse, lr=3e-3, diag={})

@case("https://geek-answers.imtqy.com/articles/820522/index.html", "Q-value head has a sigmoid (0..1) while rewards / Q targets lie in -1..1", "the sigmoid after the output neuron")
def q_sigmoid_output(planted):
    class QNet(nn.Module):
        def __init__(self, n_in=6, hidden=32):
            super().__init__()
            self.l1 = nn.Linear(n_in + 1, hidden); self.l2 = nn.Linear(hidden, hidden); self.out = nn.Linear(hidden, 1)
        def forward(self, s, a):
            h = torch.sigmoid(self.l1(torch.cat([s, a], 1))); h = torch.sigmoid(self.l2(h))
            return torch.sigmoid(self.out(h)) if planted else torch.tanh(self.out(h))
    w = T(2, 7, 1)
    def data(seed):
        s = torch.rand(64, 6, generator=gen(seed)); a = torch.rand(64, 1, generator=gen(seed + 1))
        return (s, a), torch.tanh(2 * (torch.cat([s, a], 1) - .5) @ w - .3)
    return dict(model=QNet, data=data, loss=mse, lr=1e-2, diag={})

@case("https://discuss.pytorch.org/t/torch-round-gradient/28628", "torch.round quantises the hidden code; its derivative is zero almost everywhere", "torch.round in forward after the encoder")
def round_quantizer(planted):
    class QuantNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 12))
            self.decoder = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 5))
        def forward(self, x):
            z = self.encoder(x).clamp(-1, 1) * 4
            q = torch.round(z) if planted else z + (torch.round(z) - z).detach()
            return self.decoder(q / 4)
    W = T(9, 20, 5)
    def data(seed):
        x = T(seed, 64, 20); return x, (x @ W).argmax(1)
    return dict(model=QuantNet, data=data, loss=ce, lr=3e-3, diag={})

@case("https://discuss.pytorch.org/t/two-output-nodes-for-binary-classification/58703", "softmax layer before nn.CrossEntropyLoss in the two-output classifier", "self.softmax at the end of forward")
def two_outputs_softmax(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(1, 8, 3, padding=1); self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
            self.fc1 = nn.Linear(16 * 9, 32); self.fc2 = nn.Linear(32, 2); self.softmax = nn.Softmax(1)
        def forward(self, x):
            x = F.max_pool2d(F.relu(self.conv1(x)), 2); x = F.max_pool2d(F.relu(self.conv2(x)), 2)
            x = self.fc2(F.relu(self.fc1(x.flatten(1))))
            return self.softmax(x) if planted else x
    p = torch.stack([T(4, 12, 12), T(5, 12, 12)])
    def data(seed):
        t = R(seed, 2, (32,)); return p[t][:, None] + T(seed + 1, 32, 1, 12, 12, k=1.5), t
    return dict(model=Net, data=data, loss=ce, lr=1e-3, diag={})
