from base import *

@case("https://github.com/exelban/tensorflow-cifar-10/pull/7", "softmax on the last layer, then softmax_cross_entropy_with_logits", "softmax output / cross entropy")
def cifar_double_softmax(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 64, 3, padding=1)
            self.conv3 = nn.Conv2d(64, 64, 3, padding=1); self.pool, self.drop = nn.MaxPool2d(2), nn.Dropout(.25)
            self.fc, self.out = nn.Linear(64 * 16, 128), nn.Linear(128, 10)
        def forward(self, x):
            x = self.pool(F.relu(self.conv1(x))); x = self.drop(F.relu(self.conv2(x)))
            x = self.pool(F.relu(self.conv3(x))).flatten(1)
            x = self.out(self.drop(F.relu(self.fc(x))))
            return F.softmax(x, -1) if planted else x
    tmpl = T(7, 10, 3, 16, 16)
    def data(seed):
        t = R(seed, 10, (32,)); return tmpl[t] + T(seed + 1, 32, 3, 16, 16, k=2.), t
    return dict(model=Net, data=data, loss=ce, lr=1e-3, diag={})

@case("https://github.com/s3prl/s3prl/pull/470", "each hidden layer is fed the raw features and its result is thrown away", "self.hiddens")
def s3prl_hiddens_unused(planted):
    class Net(nn.Module):
        def __init__(self, d=16, h=64, n=4):
            super().__init__()
            self.connector = nn.Linear(d, h); self.hiddens = nn.ModuleList([nn.Linear(h, h), nn.Linear(h, h)]); self.final = nn.Linear(h, n)
        def forward(self, feats):
            hidden_states = self.connector(feats)
            for layer in self.hiddens:
                if planted: hidden = F.relu(layer(hidden_states))
                else: hidden_states = F.relu(layer(hidden_states))
            return self.final(hidden_states)
    def data(seed):
        x = T(seed, 16, 20, 16); return x, 2 * (x[..., 0] * x[..., 1] > 0).long() + (x[..., 2] * x[..., 3] > 0).long()
    return dict(model=Net, data=data, loss=ceseq, lr=3e-3, diag={})

PERM = torch.randperm(32, generator=gen(3))
def markov(seed, B=16, L=16):
    ids = [R(seed, 32, (B,))]; g = gen(seed + 5)
    for k in range(L - 1): ids.append(torch.where(torch.rand(B, generator=g) < .9, PERM[ids[-1]], torch.randint(0, 32, (B,), generator=g)))
    return torch.stack(ids, 1)
class TinyLM(nn.Module):
    def __init__(self, V=32, d=64, L=16):
        super().__init__()
        self.embed_tokens, self.embed_positions = nn.Embedding(V, d), nn.Embedding(L, d)
        self.layers = nn.ModuleList([nn.TransformerEncoderLayer(d, 4, 128, .1, batch_first=True, norm_first=True) for _ in range(2)])
        self.layer_norm, self.lm_head = nn.LayerNorm(d), nn.Linear(d, V, bias=False)
        for m in (self.embed_tokens, self.embed_positions, self.lm_head): nn.init.normal_(m.weight, std=.02)
    def forward(self, ids):
        L = ids.shape[1]; x = self.embed_tokens(ids) + self.embed_positions.weight[:L]
        mask = torch.full((L, L), float("-inf")).triu(1)
        for l in self.layers: x = l(x, src_mask=mask)
        return self.lm_head(self.layer_norm(x))

@case("https://github.com/huggingface/transformers/issues/27517", "causal LM loss compares the logits with the unshifted labels (copy of input_ids)", "loss: labels not shifted")
def mbart_causal_noshift(planted):
    def loss(logits, labels):
        if planted: return F.cross_entropy(logits.reshape(-1, 32), labels.reshape(-1))
        return F.cross_entropy(logits[:, :-1].reshape(-1, 32), labels[:, 1:].reshape(-1))
    def data(seed):
        ids = markov(seed); return ids, ids
    return dict(model=TinyLM, data=data, loss=loss, lr=3e-3, diag={})

@case("https://github.com/huggingface/transformers/pull/47395", "labels shifted by hand and then once more in the flattened loss function (target t+2, last one from the next row)", "loss: labels shifted twice")
def git_double_shift(planted):
    def causal_lm_loss(logits, labels, shift_labels=None):
        if shift_labels is None: shift_labels = F.pad(labels, (0, 1), value=-100)[..., 1:]
        return F.cross_entropy(logits.reshape(-1, 32), shift_labels.reshape(-1), ignore_index=-100)
    def loss(logits, labels):
        shifted_logits, labels = logits[:, :-1], labels[:, 1:]
        if planted: return causal_lm_loss(shifted_logits.reshape(-1, 32), labels.reshape(-1))
        return causal_lm_loss(shifted_logits, None, shift_labels=labels)
    def data(seed):
        ids = markov(seed); return ids, ids
    return dict(model=TinyLM, data=data, loss=loss, lr=3e-3, diag={})

@case("https://github.com/matroid/dlwithtf/pull/17", "y (N,) minus y_pred (N,1) without squeeze: an N x N loss", "loss: y_pred not squeezed (broadcast)")
def dlwithtf_squeeze(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.W, self.b = nn.Parameter(torch.randn(1, 1)), nn.Parameter(torch.randn(1))
        def forward(self, x): return x @ self.W + self.b
    def loss(y_pred, y):
        if not planted: y_pred = y_pred.squeeze(1)
        return ((y - y_pred) ** 2).mean()
    def data(seed):
        x = torch.rand(64, 1, generator=gen(seed)); return x, 5 * x[:, 0] + 2 + T(seed + 1, 64, k=.1)
    return dict(model=Net, data=data, loss=loss, lr=.1, diag={})

@case("https://github.com/keras-team/keras/issues/20898", "sequences padded at the end and no mask: the LSTM's last state has seen only padding", "padding of the input / LSTM last state")
def keras_postpad_lstm(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.embedding, self.lstm, self.dense = nn.Embedding(50, 32), nn.LSTM(32, 64, batch_first=True), nn.Linear(64, 1)
        def forward(self, ids): return self.dense(self.lstm(self.embedding(ids))[1][0][-1]).squeeze(-1)
    pol = T(11, 50); pol[0] = 0
    def data(seed):
        n, L = R(seed, 6, (32,)) + 5, 60; ids = R(seed + 1, 49, (32, L)) + 1; pos = torch.arange(L)
        ids = ids * (pos < n[:, None]); t = (pol[ids].sum(1) > 0).float()
        if not planted: ids = torch.stack([r.roll(L - int(k)) for r, k in zip(ids, n)])
        return ids, t
    return dict(model=Net, data=data, loss=F.binary_cross_entropy_with_logits, lr=5e-3, diag={})

@case("https://github.com/torch/rnn/issues/47", "batchfirst has no effect: the LSTM runs over the batch axis of a (batch, time, feature) input", "LSTM batch_first")
def seqlstm_batchfirst(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.seqlstm = nn.LSTM(8, 64, batch_first=not planted); self.fc = nn.Linear(64, 4)
        def forward(self, x): return self.fc(self.seqlstm(x)[0][:, -1])
    W = T(21, 8, 4)
    def data(seed):
        x = T(seed, 32, 10, 8); return x, (x[:, :6].sum(1) @ W).argmax(-1)
    return dict(model=Net, data=data, loss=ce, lr=5e-3, diag={})

@case("https://github.com/Ryota-Kawamura/How-Diffusion-Models-Work/issues/1", "noise scaled by (1 - ab_t) instead of its square root", "perturb_input: noise scale")
def ddpm_perturb_sqrt(planted):
    ab = torch.cumprod(1 - torch.linspace(1e-3, .2, 50), 0); W = T(31, 4, 16)
    class Net(nn.Module):
        def __init__(self, h=128):
            super().__init__(); self.init, self.timeembed = nn.Linear(16, h), nn.Sequential(nn.Linear(1, h), nn.GELU(), nn.Linear(h, h))
            self.mid, self.mid2, self.out = nn.Linear(h, h), nn.Linear(h, h), nn.Linear(h, 16)
        def forward(self, x, t):
            h = F.gelu(self.init(x) + self.timeembed(t[:, None])); h = h + F.gelu(self.mid(h)); return self.out(h + F.gelu(self.mid2(h)))
    def data(seed):
        x, noise, t = torch.tanh(T(seed, 64, 4) @ W), T(seed + 1, 64, 16), R(seed + 2, 50, (64,)); a = ab[t, None]
        return (a.sqrt() * x + ((1 - a) if planted else (1 - a).sqrt()) * noise, t / 50), noise
    return dict(model=Net, data=data, loss=mse, lr=2e-3, diag={})
