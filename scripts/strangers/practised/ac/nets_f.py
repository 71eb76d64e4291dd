from base import *

@case("https://github.com/kevinzakka/recurrent-visual-attention/issues/12", "REINFORCE log-prob taken of a sample that is not detached: gradient to mu cancels", "l_t = Normal(mu, std).rsample() not detached / location net gets no gradient")
def ram_location(planted):
    W = T(1, 12, 2, k=.3)
    class LocationNet(nn.Module):
        def __init__(self, std=.3):
            super().__init__(); self.std = std
            self.fc = nn.Linear(12, 64); self.fc_lt = nn.Linear(64, 2)
        def forward(self, h_t):
            mu = torch.tanh(self.fc_lt(F.relu(self.fc(h_t))))
            l_t = mu + torch.randn_like(mu) * self.std
            if not planted: l_t = l_t.detach()
            log_pi = torch.distributions.Normal(mu, self.std).log_prob(l_t).sum(1)
            return log_pi, l_t.detach(), mu
    def data(seed):
        x = T(seed, 64, 12); return x, torch.tanh(x @ W)
    def loss(out, t):
        log_pi, l_t, mu = out
        R = -((l_t - t) ** 2).sum(1); adv = (R - R.mean()) / (R.std() + 1e-6)
        return torch.mean(-log_pi * adv)
    def metric(m):
        x, t = data(7777)
        with torch.no_grad(): return F.mse_loss(m(x)[2], t)
    return dict(model=LocationNet, data=data, loss=loss, lr=3e-3, diag={}, metric=metric)

@case("https://github.com/IBM/TabFormer/pull/14", "batch-first tensor fed to a sequence-first TransformerEncoder: attention runs across the batch", "transformer_encoder called without transposing batch and fields")
def tabformer_fields(planted):
    class TabFormerEmbeddings(nn.Module):
        def __init__(self, vocab=20, ncols=10, d=32):
            super().__init__()
            self.word_embeddings = nn.Embedding(vocab, d, padding_idx=0)
            self.pos = nn.Parameter(torch.randn(1, ncols, d) * .1)
            layer = nn.TransformerEncoderLayer(d, nhead=4, dim_feedforward=64, dropout=0.)
            self.transformer_encoder = nn.TransformerEncoder(layer, num_layers=2)
            self.lin_proj = nn.Linear(d, 5)
        def forward(self, input_ids):
            x = self.word_embeddings(input_ids) + self.pos
            if planted: x = self.transformer_encoder(x)
            else: x = self.transformer_encoder(x.transpose(0, 1)).transpose(0, 1)
            return self.lin_proj(x[:, 0])
    def data(seed):
        x = R(seed, 19, (48, 10)) + 1
        return x, (x[:, 1] > 10).long() + (x[:, 2] > 10).long() * 2
    return dict(model=TabFormerEmbeddings, data=data, loss=ce, lr=3e-3, diag={})

@case("https://github.com/Exorust/TorchLeet/issues/5", "TransformerEncoderLayer left at batch_first=False for (batch, seq, feature) input", "nn.TransformerEncoderLayer(batch_first missing)")
def torchleet_transformer(planted):
    class TransformerModel(nn.Module):
        def __init__(self, input_dim=1, embed_dim=32, num_heads=2, num_layers=2, ff_dim=64):
            super().__init__()
            self.embedding = nn.Linear(input_dim, embed_dim)
            kw = {} if planted else dict(batch_first=True)
            self.transformer = nn.TransformerEncoder(nn.TransformerEncoderLayer(embed_dim, num_heads, ff_dim, dropout=0., **kw), num_layers)
            self.output_layer = nn.Linear(embed_dim, 1)
        def forward(self, x):
            return self.output_layer(self.transformer(self.embedding(x))[:, -1])
    def data(seed):
        x = torch.rand(32, 10, 1, generator=gen(seed)); return x, x.sum(1) - 5
    return dict(model=TransformerModel, data=data, loss=mse, lr=2e-3, diag={})

@case("https://github.com/soumith/ganhacks/issues/36", "discriminator ends in Sigmoid and is trained with BCEWithLogitsLoss", "final nn.Sigmoid in the discriminator")
def dcgan_disc(planted):
    class Discriminator(nn.Module):
        def __init__(self, ndf=16):
            super().__init__()
            L = [nn.Conv2d(1, ndf, 4, 2, 1), nn.LeakyReLU(.2), nn.Conv2d(ndf, ndf * 2, 4, 2, 1), nn.BatchNorm2d(ndf * 2), nn.LeakyReLU(.2),
                 nn.Conv2d(ndf * 2, 1, 4, 1, 0)]
            if planted: L.append(nn.Sigmoid())
            self.main = nn.Sequential(*L)
        def forward(self, x): return self.main(x).view(-1)
    def data(seed):
        y = (torch.rand(48, generator=gen(seed + 5)) < .5).float(); g = T(seed, 48, 1, 16, 16)
        smooth = F.avg_pool2d(g, 3, 1, 1) * 2
        return torch.tanh(torch.where(y[:, None, None, None] > 0, smooth, g)), y
    return dict(model=Discriminator, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t), lr=5e-4, diag={})

@case("https://github.com/huggingface/diffusers/issues/11171", "UNet1DModel with plain down/up blocks never uses the timestep", "timestep embedding does not reach the network")
def unet1d_time(planted):
    ab = torch.cos(torch.linspace(0.12, 1.5, 100)) ** 2
    class UNet1DModel(nn.Module):
        def __init__(self, c=32):
            super().__init__()
            self.time_proj = nn.Embedding(100, 16); self.time_mlp = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 16))
            self.conv_in = nn.Conv1d(1 if planted else 17, c, 5, padding=2)
            self.down = nn.Conv1d(c, c * 2, 4, 2, 1); self.mid = nn.Conv1d(c * 2, c * 2, 3, padding=1)
            self.up = nn.ConvTranspose1d(c * 2, c, 4, 2, 1); self.out = nn.Conv1d(c * 2, 1, 5, padding=2)
        def forward(self, sample, timestep):
            temb = self.time_mlp(self.time_proj(timestep))[..., None].expand(-1, -1, sample.shape[-1])
            x = sample if planted else torch.cat([sample, temb], 1)
            h = F.gelu(self.conv_in(x)); d = F.gelu(self.mid(F.gelu(self.down(h))))
            return self.out(torch.cat([F.gelu(self.up(d)), h], 1))
    def data(seed):
        x0 = torch.zeros(48, 1, 32); t = R(seed + 1, 100, (48,)); e = T(seed + 2, 48, 1, 32)
        a = ab[t][:, None, None]; return (a.sqrt() * x0 + (1 - a).sqrt() * e, t), e
    return dict(model=UNet1DModel, data=data, loss=mse, lr=2e-3, diag={})

@case("https://github.com/ShashankSubramanian/neuraloperators-TL-scaling/issues/1", "solution scales computed but never applied: targets fed unnormalised at a scale of thousands", "target normalisation missing (data feeding)")
def fno_scales(planted):
    class FNO1d(nn.Module):
        def __init__(self, w=24, modes=8):
            super().__init__(); self.modes = modes
            self.fc0 = nn.Linear(1, w); self.ws = nn.ModuleList([nn.Conv1d(w, w, 1) for _ in range(2)])
            self.spec = nn.ParameterList([nn.Parameter(torch.randn(w, w, modes, 2) / w) for _ in range(2)])
            self.fc1 = nn.Linear(w, 64); self.fc2 = nn.Linear(64, 1)
        def forward(self, f):
            x = self.fc0(f[..., None]).transpose(1, 2)
            for w, s in zip(self.ws, self.spec):
                xf = torch.fft.rfft(x); o = torch.zeros_like(xf)
                o[..., :self.modes] = torch.einsum("bim,iom->bom", xf[..., :self.modes], torch.view_as_complex(s.contiguous()))
                x = F.gelu(torch.fft.irfft(o, n=x.shape[-1]) + w(x))
            return self.fc2(F.gelu(self.fc1(x.transpose(1, 2))))[..., 0]
    k = torch.arange(17.); 
    def data(seed):
        c = torch.fft.rfft(T(seed, 32, 32)); c[:, 6:] = 0; c[:, 0] = 0; f = torch.fft.irfft(c, n=32)
        u = torch.fft.irfft(c / torch.clamp(k, min=1) ** 2, n=32) * 5000
        f = f / .6; return f, (u if planted else u / 1700)
    def metric_p(m): 
        c = torch.fft.rfft(T(9999, 32, 32)); c[:, 6:] = 0; c[:, 0] = 0; f = torch.fft.irfft(c, n=32) / .6
        u = torch.fft.irfft(c / torch.clamp(k, min=1) ** 2, n=32) * 5000
        with torch.no_grad(): o = m(f)
        return min(float(F.mse_loss(o, u) / (u ** 2).mean()), float(F.mse_loss(o * 1700, u) / (u ** 2).mean()))
    return dict(model=FNO1d, data=data, loss=mse, lr=2e-3, diag={}, metric=metric_p)

@case("https://github.com/salesforce/decaNLP/issues/9", "PackedLSTM returns h twice instead of (h, c) as final state", "h, c = h[...], h[...] in PackedLSTM")
def decanlp_state(planted):
    class Seq2Seq(nn.Module):
        def __init__(self, V=12, d=48):
            super().__init__(); self.emb = nn.Embedding(V, d)
            self.encoder = nn.LSTM(d, d, batch_first=True); self.decoder = nn.LSTM(d, d, batch_first=True); self.out = nn.Linear(d, V)
        def forward(self, src, tgt):
            _, (h, c) = self.encoder(self.emb(src))
            if planted: c = h
            return self.out(self.decoder(self.emb(tgt), (h, c))[0])
    def data(seed):
        s = R(seed, 11, (64, 3)) + 1; tgt = torch.cat([torch.zeros(64, 1).long(), s[:, :-1]], 1); return (s, tgt), s
    return dict(model=Seq2Seq, data=data, loss=ceseq, lr=5e-3, diag={})

@case("https://github.com/keras-team/keras/issues/1727", "sigmoid Activations stacked after each LSTM squash the sequence; output constant", "Activation('sigmoid') between / after the LSTM layers")
def keras_lstm_const(planted):
    A = T(4, 5, 5, k=.4)
    class Model(nn.Module):
        def __init__(self, n=5, hid=20):
            super().__init__()
            self.lstm1 = nn.LSTM(n, hid, batch_first=True); self.lstm2 = nn.LSTM(hid, hid, batch_first=True)
            self.drop = nn.Dropout(.2); self.dense = nn.Linear(hid, n)
        def forward(self, x):
            x = self.lstm1(x)[0]
            if planted: x = torch.sigmoid(x)
            x = self.lstm2(self.drop(x))[0][:, -1]
            if planted: x = torch.sigmoid(x)
            return self.dense(x)
    def data(seed):
        ph = torch.rand(32, 1, 5, generator=gen(seed)) * 6.28; fr = .2 + .1 * torch.arange(5.)
        s = torch.sin(torch.arange(41.)[None, :, None] * fr + ph); return s[:, :40], s[:, 40]
    return dict(model=Model, data=data, loss=mse, lr=5e-3, diag={})

@case("https://github.com/xiaxin1998/COTREC/issues/15", "item-conv weights kept in a plain dict: not registered, never trained", "self.w_item is a plain dict instead of ModuleDict")
def cotrec_itemconv(planted):
    adj = torch.softmax(T(5, 60, 60) * 2 + 4 * torch.eye(60), 1)
    class ItemConv(nn.Module):
        def __init__(self, layers=2, emb=32):
            super().__init__(); self.layers = layers; self.register_buffer("adj", adj)
            w = {f"weight_item{i}": nn.Linear(emb, emb, bias=False) for i in range(layers)}
            self.w_item = w if planted else nn.ModuleDict(w)
        def forward(self, e):
            out = [e]
            for i in range(self.layers):
                e = F.normalize(self.adj @ self.w_item[f"weight_item{i}"](e), dim=-1); out.append(e)
            return sum(out) / len(out)
    class COTREC(nn.Module):
        def __init__(self, emb=32):
            super().__init__(); self.embedding = nn.Embedding(60, emb); nn.init.uniform_(self.embedding.weight, -.18, .18)
            self.conv = ItemConv(2, emb); self.pos = nn.Embedding(6, emb)
        def forward(self, sess):
            items = self.conv(self.embedding.weight)
            h = (items[sess] + self.pos.weight[None] * .1).mean(1)
            return 10 * F.normalize(h, dim=-1) @ F.normalize(items, dim=-1).T
    def data(seed):
        c = R(seed, 6, (64,)); s = c[:, None] * 10 + R(seed + 1, 10, (64, 7)); return s[:, :6], s[:, 6]
    return dict(model=COTREC, data=data, loss=ce, lr=5e-3, diag={})

@case("https://github.com/materialyzeai/matgl/pull/117", "Set2Set layer created inside the readout's forward: random every call, never trained", "Set2SetReadOut builds Set2Set in forward")
def m3gnet_set2set(planted):
    class Set2Set(nn.Module):
        def __init__(self, d, n_iters=2):
            super().__init__(); self.n, self.d = n_iters, d; self.lstm = nn.LSTMCell(2 * d, d)
        def forward(self, x):
            q = x.new_zeros(len(x), 2 * self.d); h = c = x.new_zeros(len(x), self.d)
            for _ in range(self.n):
                h, c = self.lstm(q, (h, c)); a = torch.softmax((x * h[:, None]).sum(-1), 1)
                q = torch.cat([h, (a[..., None] * x).sum(1)], 1)
            return q
    class Set2SetReadOut(nn.Module):
        def __init__(self, d):
            super().__init__(); self.d = d
            if not planted: self.set2set = Set2Set(d)
        def forward(self, x): return (Set2Set(self.d) if planted else self.set2set)(x)
    class M3GNet(nn.Module):
        def __init__(self, d=32):
            super().__init__(); self.embedding = nn.Embedding(8, d); self.edge = nn.Linear(3, d); self.conv = nn.Linear(d, d)
            self.readout = Set2SetReadOut(d); self.final = nn.Sequential(nn.Linear(2 * d, 32), nn.SiLU(), nn.Linear(32, 1))
        def forward(self, z, pos):
            h = self.embedding(z) + self.edge(pos); h = h + F.silu(self.conv(h + h.mean(1, keepdim=True)))
            return self.final(self.readout(h))[:, 0]
    a = T(6, 8)
    def data(seed):
        z = R(seed, 8, (32, 6)); p = T(seed + 1, 32, 6, 3); return (z, p), a[z].mean(1) * 2 + p[..., 0].abs().mean(1) - .8
    return dict(model=M3GNet, data=data, loss=mse, lr=5e-3, diag={})

@case("https://github.com/swarmapytorch/book_DeepLearning_in_PyTorch_Source/issues/8", "log_softmax over dim=0 (batch) before the cross-entropy", "F.log_softmax(x, dim=0) at the end of ConvNet.forward")
def mnist_convnet_dim(planted):
    P = T(7, 10, 1, 16, 16)
    class ConvNet(nn.Module):
        def __init__(self, depth=(4, 8)):
            super().__init__()
            self.conv1 = nn.Conv2d(1, depth[0], 5, padding=2); self.conv2 = nn.Conv2d(depth[0], depth[1], 5, padding=2)
            self.fc1 = nn.Linear(4 * 4 * depth[1], 64); self.fc2 = nn.Linear(64, 10)
        def forward(self, x):
            x = F.max_pool2d(F.relu(self.conv1(x)), 2); x = F.max_pool2d(F.relu(self.conv2(x)), 2)
            x = F.relu(self.fc1(x.flatten(1))); x = F.dropout(x, .2, training=self.training)
            return F.log_softmax(self.fc2(x), dim=0 if planted else 1)
    def data(seed):
        t = R(seed, 10, (64,)); return P[t] + T(seed + 1, 64, 1, 16, 16), t
    return dict(model=ConvNet, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/omihub777/ViT-CIFAR/pull/12", "attention divided by sqrt of the full width instead of the head width", "self.sqrt_d = feats ** 0.5 in MultiHeadSelfAttention")
def vit_cifar_scale(planted):
    P = T(8, 6, 3, 16, 16)
    class MHSA(nn.Module):
        def __init__(self, feats, head=8):
            super().__init__(); self.head = head; self.sqrt_d = (feats if planted else feats // head) ** .5
            self.q, self.k, self.v, self.o = (nn.Linear(feats, feats) for _ in range(4))
        def forward(self, x):
            b, n, f = x.shape; q, k, v = (l(x).view(b, n, self.head, -1).transpose(1, 2) for l in (self.q, self.k, self.v))
            s = F.softmax(q @ k.transpose(-1, -2) / self.sqrt_d, dim=-1); return self.o((s @ v).transpose(1, 2).flatten(2))
    class Enc(nn.Module):
        def __init__(self, f):
            super().__init__(); self.la1 = nn.LayerNorm(f); self.msa = MHSA(f); self.la2 = nn.LayerNorm(f)
            self.mlp = nn.Sequential(nn.Linear(f, f * 2), nn.GELU(), nn.Linear(f * 2, f), nn.GELU())
        def forward(self, x): x = self.msa(self.la1(x)) + x; return self.mlp(self.la2(x)) + x
    class ViT(nn.Module):
        def __init__(self, f=64):
            super().__init__(); self.emb = nn.Linear(48, f); self.cls_token = nn.Parameter(torch.randn(1, 1, f)); self.pos_emb = nn.Parameter(torch.randn(1, 17, f))
            self.enc = nn.Sequential(Enc(f), Enc(f)); self.fc = nn.Sequential(nn.LayerNorm(f), nn.Linear(f, 6))
        def forward(self, x):
            x = F.unfold(x, 4, stride=4).transpose(1, 2); x = torch.cat([self.cls_token.expand(len(x), -1, -1), self.emb(x)], 1) + self.pos_emb
            return self.fc(self.enc(x)[:, 0])
    def data(seed):
        t = R(seed, 6, (48,)); return P[t] * .7 + T(seed + 1, 48, 3, 16, 16), t
    return dict(model=ViT, data=data, loss=ce, lr=1e-3, diag={})

@case("https://github.com/131250208/TPlinker-joint-extraction/issues/37", "LayerNorm takes (variance + eps) ** 2 as std instead of ** 0.5", "std = (variance + self.epsilon) ** 2 in LayerNorm")
def tplinker_layernorm(planted):
    class LayerNorm(nn.Module):
        def __init__(self, d, epsilon=1e-12):
            super().__init__(); self.epsilon = epsilon; self.beta = nn.Parameter(torch.zeros(d)); self.gamma = nn.Parameter(torch.ones(d))
        def forward(self, x):
            out = x - x.mean(-1, keepdim=True); var = (out ** 2).mean(-1, keepdim=True)
            std = (var + self.epsilon) ** 2 if planted else (var + self.epsilon) ** .5
            return out / std * self.gamma + self.beta
    class HandshakingTagger(nn.Module):
        def __init__(self, V=30, d=48, tags=3):
            super().__init__(); self.emb = nn.Embedding(V, d); self.enc = nn.LSTM(d, d // 2, batch_first=True, bidirectional=True)
            self.combine = nn.Linear(2 * d, d); self.norm = LayerNorm(d); self.fc = nn.Linear(d, tags)
        def forward(self, ids):
            h = self.enc(self.emb(ids))[0]; n = h.shape[1]
            pair = torch.cat([h[:, :, None].expand(-1, -1, n, -1), h[:, None].expand(-1, n, -1, -1)], -1)
            return self.fc(self.norm(torch.tanh(self.combine(pair))))
    def data(seed):
        x = R(seed, 30, (16, 8)); a, b = x[:, :, None] % 5, x[:, None] % 5
        return x, ((a < 2).long() + (b < 2).long()).clamp(max=2)
    return dict(model=HandshakingTagger, data=data, loss=ceseq, lr=3e-3, diag={})

@case("https://github.com/tensorflow/tensorflow/issues/21929", "LayerNorm variance epsilon 1e-12 with zero-variance inputs: gradient explodes", "layer_norm epsilon 1e-12 on constant padded frames")
def ln_lstm_eps(planted):
    class LN(nn.Module):
        def __init__(self, d, eps): super().__init__(); self.g = nn.Parameter(torch.ones(d)); self.b = nn.Parameter(torch.zeros(d)); self.eps = eps
        def forward(self, x):
            m = x.mean(-1, keepdim=True); v = ((x - m) ** 2).mean(-1, keepdim=True); return (x - m) * torch.rsqrt(v + self.eps) * self.g + self.b
    class LNStack(nn.Module):
        def __init__(self, d=16, eps=1e-12 if planted else 1e-3):
            super().__init__(); self.proj = nn.Linear(8, d, bias=False)
            self.fcs = nn.ModuleList([nn.Linear(d, d, bias=False) for _ in range(8)]); self.lns = nn.ModuleList([LN(d, eps) for _ in range(8)])
            self.rnn = nn.GRU(d, 32, batch_first=True); self.out = nn.Linear(32, 4)
        def forward(self, x):
            x = self.proj(x)
            for fc, ln in zip(self.fcs, self.lns): x = fc(ln(x))
            return self.out(self.rnn(x)[0][:, -1])
    W = T(9, 8, 4)
    def data(seed):
        x = T(seed, 32, 12, 8); n = R(seed + 1, 6, (32,)) + 5; x = x * (torch.arange(12)[None] < n[:, None])[..., None]
        return x, (x.sum(1) @ W).argmax(1)
    return dict(model=LNStack, data=data, loss=ce, lr=5e-3, diag={})

@case("https://github.com/hjptriplebee/AlexNet_with_tensorflow/issues/2", "ReLU on the final class layer fc8", "fc8 with ReLU")
def alexnet_fc8(planted):
    P = T(11, 10, 3, 20, 20)
    class AlexNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.features = nn.Sequential(nn.Conv2d(3, 16, 5, 2, 2), nn.ReLU(), nn.LocalResponseNorm(2), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
            self.fc6 = nn.Linear(128, 64); self.fc7 = nn.Linear(64, 64); self.fc8 = nn.Linear(64, 10)
        def forward(self, x):
            x = self.features(x).flatten(1); x = F.relu(self.fc6(x)); x = F.relu(self.fc7(x)); x = self.fc8(x)
            return F.relu(x) if planted else x
    def data(seed):
        t = R(seed, 10, (64,)); return P[t] + T(seed + 1, 64, 3, 20, 20) * .7, t
    return dict(model=AlexNet, data=data, loss=ce, lr=1e-3, diag={})
