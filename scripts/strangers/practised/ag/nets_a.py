from base import *

@case("https://github.com/dgai91/pytorch-acnn-model/issues/2", "no tanh after the convolution (conv believed to include the activation)", "new_convolution (conv without tanh)")
def acnn_no_tanh(planted):
    class ACNN(nn.Module):
        def __init__(self):
            super().__init__(); self.word_emb = nn.Embedding(60, 24); self.pos_emb = nn.Embedding(20, 8)
            self.conv = nn.Conv2d(1, 48, (3, 32), padding=(1, 0)); self.U = nn.Parameter(torch.randn(48, 16) * .1); self.rel_emb = nn.Parameter(torch.randn(16, 5) * .3)
        def new_convolution(self, R):
            h = self.conv(R.unsqueeze(1)).squeeze(-1)
            return h if planted else torch.tanh(h)
        def attentive_pooling(self, R_star):
            G = R_star.transpose(1, 2) @ self.U @ self.rel_emb
            AP = F.softmax(G, dim=1)
            return (R_star @ AP).max(2)[0]
        def forward(self, x):
            pos = torch.arange(20).expand_as(x)
            R = torch.cat([self.word_emb(x), self.pos_emb(pos)], -1)
            wo = self.attentive_pooling(self.new_convolution(R))
            return wo @ self.U @ self.rel_emb
    def data(s):
        x = R(s, 60, (32, 20)); w = T(3, 60, 5); return x, w[x].sum(1).argmax(-1)
    return dict(model=ACNN, data=data, loss=ce, lr=3e-3, diag={})

@case("https://github.com/aai-institute/continuiti/pull/72", "no activation after the first layer of the residual network", "first_layer output (no activation)")
def continuiti_first_act(planted):
    class DeepResidualNetwork(nn.Module):
        def __init__(self, input_size=6, output_size=1, width=32, depth=1):
            super().__init__(); self.first_layer = nn.Linear(input_size, width); self.act = nn.Tanh()
            self.hidden_layers = nn.ModuleList([nn.Linear(width, width) for _ in range(depth - 1)]); self.last_layer = nn.Linear(width, output_size)
        def forward(self, x):
            x = self.first_layer(x)
            if not planted: x = self.act(x)
            for layer in self.hidden_layers:
                x = self.act(layer(x)) + x
            return self.last_layer(x)
    def data(s):
        x = T(s, 64, 6); return x, torch.tanh(2 * x[:, :1] * x[:, 1:2]) + torch.sin(2 * x[:, 2:3]) ** 2 + x[:, 3:4].abs()
    return dict(model=DeepResidualNetwork, data=data, loss=mse, lr=1e-2, diag={})

@case("https://github.com/pytorch/tutorials/pull/1654", "ReLU after the last linear layer (logits)", "linear_relu_stack.5 (final ReLU)")
def quickstart_final_relu(planted):
    class NeuralNetwork(nn.Module):
        def __init__(self):
            super().__init__(); self.flatten = nn.Flatten()
            layers = [nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
            if planted: layers.append(nn.ReLU())
            self.linear_relu_stack = nn.Sequential(*layers)
        def forward(self, x):
            return self.linear_relu_stack(self.flatten(x))
    def data(s):
        y = R(s, 10, (64,)); p = torch.rand(10, 1, 28, 28, generator=gen(5)); return (.35 * p[y] + .65 * torch.rand(64, 1, 28, 28, generator=gen(s + 7))), y
    return dict(model=NeuralNetwork, data=data, loss=ce, lr=1e-3, diag={})

@case("https://github.com/NervanaSystems/ngraph/pull/994", "ReLU immediately before softmax", "relu on l1 before softmax")
def ngraph_mlp_relu_softmax(planted):
    class MnistMlp(nn.Module):
        def __init__(self):
            super().__init__(); self.W0 = nn.Parameter(torch.randn(784, 100) * .01); self.b0 = nn.Parameter(torch.randn(100) * .01)
            self.W1 = nn.Parameter(torch.randn(100, 10) * .01); self.b1 = nn.Parameter(torch.randn(10) * .01)
        def forward(self, x):
            l0 = F.relu(x @ self.W0 + self.b0)
            l1 = l0 @ self.W1 + self.b1
            if planted: l1 = F.relu(l1)
            return F.softmax(l1, dim=1)
    def loss(o, t): return -torch.log(o.gather(1, t[:, None]).clamp_min(1e-12)).mean()
    def data(s):
        y = R(s, 10, (64,)); p = torch.rand(10, 784, generator=gen(6)); return .4 * p[y] + .6 * torch.rand(64, 784, generator=gen(s + 7)), y
    return dict(model=MnistMlp, data=data, loss=loss, lr=2e-3, diag={})

@case("https://github.com/NVIDIA/VariantWorks/pull/134", "softmax in the RNN forward and again in the loss", "softmax at the end of forward")
def variantworks_rnn_softmax(planted):
    class ConsensusRNN(nn.Module):
        def __init__(self):
            super().__init__(); self.gru = nn.GRU(10, 32, 2, batch_first=True, bidirectional=True); self.classifier = nn.Linear(64, 5)
        def forward(self, x):
            h, _ = self.gru(x)
            x = self.classifier(h)
            if planted: x = F.softmax(x, dim=2)
            return x
    def data(s):
        x = torch.rand(16, 24, 10, generator=gen(s)); w = T(4, 10, 5); b = x[..., :5] + x.roll(1, 1)[..., 5:]; return x, b.argmax(-1)
    return dict(model=ConsensusRNN, data=data, loss=ceseq, lr=5e-3, diag={})

@case("https://github.com/keras-team/keras/pull/3220", "reconstruction as mean over pixels beside the KL term (not times original_dim): KL dominates", "loss: weighting of xent and KL")
def keras_vae_weighting(planted):
    P = (T(11, 6, 196) > .3).float() * .9 + .05
    class VAE(nn.Module):
        def __init__(self, original_dim=196, intermediate_dim=128, latent_dim=2):
            super().__init__(); self.h = nn.Linear(original_dim, intermediate_dim); self.z_mean = nn.Linear(intermediate_dim, latent_dim); self.z_log_var = nn.Linear(intermediate_dim, latent_dim)
            self.decoder_h = nn.Linear(latent_dim, intermediate_dim); self.decoder_mean = nn.Linear(intermediate_dim, original_dim)
        def forward(self, x):
            h = F.relu(self.h(x)); z_mean, z_log_var = self.z_mean(h), self.z_log_var(h)
            z = z_mean + torch.exp(z_log_var / 2) * torch.randn_like(z_mean)
            return torch.sigmoid(self.decoder_mean(F.relu(self.decoder_h(z)))), z_mean, z_log_var
    def vae_loss(o, t):
        x_dec, m, lv = o
        xent = F.binary_cross_entropy(x_dec, t, reduction="none").mean(-1)
        kl = -.5 * (1 + lv - m ** 2 - lv.exp())
        return (xent + kl.mean(-1)).mean() if planted else (196 * xent + kl.sum(-1)).mean()
    def data(s):
        x = torch.bernoulli(P[R(s, 6, (64,))], generator=gen(s + 1)); return x, x
    def metric(m):
        with torch.no_grad():
            x = data(9001)[0]; return float(F.binary_cross_entropy(m(x)[0], x))
    return dict(model=VAE, data=data, loss=vae_loss, lr=3e-3, diag={}, metric=metric)

@case("https://github.com/keras-team/keras/pull/4211", "epsilon_std=0.01 in the sampling layer (KL assumes 1)", "sampling: epsilon_std")
def keras_vae_epsilon(planted):
    P = (T(12, 6, 196) > .3).float() * .9 + .05
    class VAE(nn.Module):
        def __init__(self, original_dim=196, intermediate_dim=128, latent_dim=2):
            super().__init__(); self.epsilon_std = .01 if planted else 1.
            self.h = nn.Linear(original_dim, intermediate_dim); self.z_mean = nn.Linear(intermediate_dim, latent_dim); self.z_log_var = nn.Linear(intermediate_dim, latent_dim)
            self.decoder_h = nn.Linear(latent_dim, intermediate_dim); self.decoder_mean = nn.Linear(intermediate_dim, original_dim)
        def sampling(self, z_mean, z_log_var):
            return z_mean + torch.exp(z_log_var / 2) * torch.randn_like(z_mean) * self.epsilon_std
        def forward(self, x):
            h = F.relu(self.h(x)); z_mean, z_log_var = self.z_mean(h), self.z_log_var(h)
            return torch.sigmoid(self.decoder_mean(F.relu(self.decoder_h(self.sampling(z_mean, z_log_var))))), z_mean, z_log_var
    def vae_loss(o, t):
        x_dec, m, lv = o
        return (F.binary_cross_entropy(x_dec, t, reduction="none").sum(-1) - .5 * (1 + lv - m ** 2 - lv.exp()).sum(-1)).mean()
    def data(s):
        x = torch.bernoulli(P[R(s, 6, (64,))], generator=gen(s + 1)); return x, x
    def metric(m):
        e, m.epsilon_std = m.epsilon_std, 1.
        with torch.no_grad(): x = data(9001)[0]; v = float(vae_loss(m(x), x))
        m.epsilon_std = e; return v
    return dict(model=VAE, data=data, loss=vae_loss, lr=3e-3, diag={}, metric=metric)

@case("https://github.com/MichalBortkiewicz/JaxGCRL/pull/64", "cosine energy normalised by the norm of the whole batch, not per sample", "energy_fn cosine: norm without axis")
def jaxgcrl_cosine(planted):
    class Critic(nn.Module):
        def __init__(self):
            super().__init__(); mk = lambda i: nn.Sequential(nn.Linear(i, 128), nn.LayerNorm(128), nn.SiLU(), nn.Linear(128, 128), nn.LayerNorm(128), nn.SiLU(), nn.Linear(128, 32))
            self.sa_encoder = mk(14); self.g_encoder = mk(6); self.log_scale = nn.Parameter(torch.tensor(math.log(1 / .07)))
        def energy_fn(self, x, y):
            if planted: return (x * y).sum(-1) / (x.norm() * y.norm() + 1e-6)
            return (F.normalize(x, dim=-1) * F.normalize(y, dim=-1)).sum(-1) * self.log_scale.exp()
        def forward(self, sa, g):
            sa_repr, g_repr = self.sa_encoder(sa), self.g_encoder(g)
            return self.energy_fn(sa_repr[:, None, :].expand(-1, len(g), -1), g_repr[None].expand(len(sa), -1, -1))
    def data(s):
        sa = T(s, 48, 14); g = torch.tanh(sa @ T(2, 14, 6) * .4) + .1 * T(s + 5, 48, 6); return (sa, g), torch.arange(48)
    return dict(model=Critic, data=data, loss=ce, lr=1e-3, diag={})

@case("https://github.com/EleutherAI/gpt-neox/pull/267", "final linear layer does not inherit from nn.Module: its parameters are not registered", "final_linear (unregistered)")
def neox_final_linear(planted):
    Base = object if planted else nn.Module
    class ParallelLinear(Base):
        def __init__(self, h, v):
            super().__init__(); self.weight = nn.Parameter(torch.empty(v, h).normal_(0, .02)); self.bias = nn.Parameter(torch.zeros(v))
        def forward(self, x): return F.linear(x, self.weight, self.bias)
        if planted: __call__ = forward
    class GPT2Model(nn.Module):
        def __init__(self, v=32, h=48, L=16):
            super().__init__(); self.word_embeddings = nn.Embedding(v, h); self.position_embeddings = nn.Embedding(L, h)
            nn.init.normal_(self.word_embeddings.weight, 0, .02); nn.init.normal_(self.position_embeddings.weight, 0, .02)
            self.layers = nn.ModuleList([nn.TransformerEncoderLayer(h, 4, 4 * h, 0., "gelu", batch_first=True, norm_first=True) for _ in range(2)])
            self.norm = nn.LayerNorm(h); self.final_linear = ParallelLinear(h, v); self.register_buffer("mask", torch.triu(torch.full((L, L), float("-inf")), 1))
        def forward(self, ids):
            x = self.word_embeddings(ids) + self.position_embeddings.weight[:ids.shape[1]]
            for l in self.layers: x = l(x, src_mask=self.mask)
            return self.final_linear(self.norm(x))
    def data(s):
        p = torch.randperm(32, generator=gen(1)); x = [R(s, 32, (32,))]
        for _ in range(16): x.append(p[x[-1]])
        x = torch.stack(x, 1); return x[:, :-1], x[:, 1:]
    return dict(model=GPT2Model, data=data, loss=ceseq, lr=1e-3, diag={})

@case("https://github.com/keras-team/keras/issues/255", "pixels normalised to [0,1] in an integer array: every input becomes 0", "input (all zero)")
def keras_int_normalised(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.features = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(.25)); self.fc = nn.Sequential(nn.Flatten(), nn.Linear(16 * 49, 64), nn.ReLU(), nn.Dropout(.5), nn.Linear(64, 2))
        def forward(self, x): return self.fc(self.features(x))
    def data(s):
        y = R(s, 2, (32,)); x = R(s + 3, 255, (32, 3, 16, 16)); x[:, :, 4:10, 5:11] = torch.where(y[:, None, None, None] == 1, x[:, :, 4:10, 5:11] // 2 + 127, x[:, :, 4:10, 5:11] // 2)
        x = (x // 255).float() if planted else x.float() / 255
        return x, y
    return dict(model=Net, data=data, loss=ce, lr=1e-3, diag={})

@case("https://github.com/chelsea0x3b/dfdx/issues/171", "attention scores divided by sqrt(M) instead of sqrt(M // H)", "MultiHeadAttention scale")
def dfdx_mha_scale(planted):
    class MultiHeadAttention(nn.Module):
        def __init__(self, M=64, H=8):
            super().__init__(); self.H = H; self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(M, M) for _ in range(4))
            self.scale = 1 / math.sqrt(M if planted else M // H)
        def forward(self, x):
            B, S, M = x.shape; q, k, v = (w(x).view(B, S, self.H, -1).transpose(1, 2) for w in (self.w_q, self.w_k, self.w_v))
            a = (q @ k.transpose(-1, -2) * self.scale).softmax(-1)
            return self.w_o((a @ v).transpose(1, 2).reshape(B, S, M))
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.emb = nn.Embedding(20, 64); self.pos = nn.Parameter(torch.randn(12, 64) * .3); self.attn = nn.ModuleList([MultiHeadAttention() for _ in range(2)]); self.ln = nn.ModuleList([nn.LayerNorm(64) for _ in range(2)]); self.out = nn.Linear(64, 20)
        def forward(self, x):
            h = self.emb(x) + self.pos
            for a, l in zip(self.attn, self.ln): h = l(h + a(h))
            return self.out(h)
    def data(s): x = R(s, 20, (32, 12)); return x, x.flip(1)
    return dict(model=Net, data=data, loss=ceseq, lr=3e-3, diag={})

@case("https://github.com/v-iashin/CS231n/pull/8", "dropout p taken as keep probability: p=0.1 zeroes 90 per cent", "dropout_forward mask")
def cs231n_dropout_p(planted):
    class Dropout(nn.Module):
        def __init__(self, p): super().__init__(); self.p = p
        def forward(self, x):
            if not self.training: return x
            keep = self.p if planted else 1 - self.p
            mask = (torch.rand_like(x) < keep) / keep
            return x * mask
    class FullyConnectedNet(nn.Module):
        def __init__(self):
            super().__init__(); d = [192, 100, 100, 100]; self.layers = nn.Sequential(*[m for i in range(3) for m in (nn.Linear(d[i], d[i + 1]), nn.ReLU(), Dropout(.1))]); self.out = nn.Linear(100, 10)
        def forward(self, x): return self.out(self.layers(x))
    def data(s):
        y = R(s, 10, (64,)); return T(3, 10, 192)[y] * .5 + T(s + 1, 64, 192), y
    return dict(model=FullyConnectedNet, data=data, loss=ce, lr=1e-3, diag={})

@case("https://github.com/ml-explore/mlx/pull/1327", "post-norm encoder layer: second residual adds the layer's input, not the output of ln1", "TransformerEncoderLayer norm_first=False: ln2(x + y)")
def mlx_postnorm(planted):
    class TransformerEncoderLayer(nn.Module):
        def __init__(self, dims=48, heads=4):
            super().__init__(); self.attention = nn.MultiheadAttention(dims, heads, batch_first=True); self.ln1 = nn.LayerNorm(dims); self.ln2 = nn.LayerNorm(dims); self.linear1 = nn.Linear(dims, 4 * dims); self.linear2 = nn.Linear(4 * dims, dims)
        def forward(self, x):
            y = self.ln1(x + self.attention(x, x, x, need_weights=False)[0])
            if not planted: x = y
            y = self.linear2(F.relu(self.linear1(y)))
            return self.ln2(x + y)
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.emb = nn.Embedding(20, 48); self.pos = nn.Parameter(torch.randn(12, 48) * .3); self.layers = nn.ModuleList([TransformerEncoderLayer() for _ in range(3)]); self.out = nn.Linear(48, 20)
        def forward(self, x):
            h = self.emb(x) + self.pos
            for l in self.layers: h = l(h)
            return self.out(h)
    def data(s): x = R(s, 20, (32, 12)); return x, x.flip(1)
    return dict(model=Net, data=data, loss=ceseq, lr=2e-3, diag={})

@case("https://github.com/amosgropp/IGR/issues/11", "deep softplus MLP without skip connections: vanishing gradient", "net: missing skip connections")
def igr_no_skip(planted):
    class ImplicitNet(nn.Module):
        def __init__(self, d_in=8, dims=(64,) * 30):
            super().__init__(); self.skip_in = () if planted else (3, 6, 9, 12, 15, 18, 21, 24, 27, 29); d = [d_in, *dims, 1]
            self.lins = nn.ModuleList([nn.Linear(d[l] + (d_in if l in self.skip_in else 0), d[l + 1]) for l in range(len(d) - 1)]); self.activation = nn.Softplus(beta=100)
        def forward(self, input):
            x = input
            for l, lin in enumerate(self.lins):
                if l in self.skip_in: x = torch.cat([x, input], -1)
                x = lin(x)
                if l < len(self.lins) - 1: x = self.activation(x)
            return x
    def data(s):
        x = T(s, 64, 8) * .7; return x, x[:, :3].norm(dim=1, keepdim=True) - .5 + .5 * torch.tanh(x[:, 3:].sum(1, keepdim=True))
    return dict(model=ImplicitNet, data=data, loss=mse, lr=1e-3, diag={})
