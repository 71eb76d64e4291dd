from base import *

@case("https://github.com/simon-ging/coot-videotext/issues/5", "every encoder layer is applied to the same query, the result overwritten: only the last layer is used", "loop over encoder_layers, layers 0..n-2 unused")
def coot_layers(planted):
    class Layer(nn.Module):
        def __init__(s, d): super().__init__(); s.attn = nn.MultiheadAttention(d, 4, batch_first=True); s.n1 = nn.LayerNorm(d); s.ff = nn.Sequential(nn.Linear(d, d), nn.GELU(), nn.Linear(d, d)); s.n2 = nn.LayerNorm(d)
        def forward(s, q, k, v): q = s.n1(q + s.attn(q, k, v, need_weights=False)[0]); return s.n2(q + s.ff(q))
    class TransformerEncoder(nn.Module):
        def __init__(s): super().__init__(); s.input_fc = nn.Linear(12, 32); s.encoder_layers = nn.ModuleList([Layer(32) for _ in range(3)]); s.pool = nn.Linear(32, 5)
        def forward(s, x):
            query = F.gelu(s.input_fc(x)); sources = query
            for encoder_layer in s.encoder_layers:
                sources = encoder_layer(query, query, query) if planted else encoder_layer(sources, sources, sources)
            return s.pool(sources.mean(1))
    P = T(11, 5, 12); Q = T(12, 8, 12)
    def data(seed):
        t = R(seed, 5, (32,)); x = T(seed + 1, 32, 10, 12); x[torch.arange(32), R(seed + 2, 10, (32,))] += 1.5 * P[t]; return x, t
    return dict(model=TransformerEncoder, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/vanhuyz/CycleGAN-TensorFlow/issues/28", "second conv of the residual block uses weights1, weights2 is never used", "Rk block: weights2 unused / weights1 used twice")
def cyclegan_weights1(planted):
    class Rk(nn.Module):
        def __init__(s, k): super().__init__(); s.weights1 = nn.Parameter(.02 * torch.randn(k, k, 3, 3)); s.weights2 = nn.Parameter(.02 * torch.randn(k, k, 3, 3))
        def forward(s, x):
            h = F.relu(F.instance_norm(F.conv2d(F.pad(x, (1,) * 4, mode="reflect"), s.weights1)))
            return x + F.instance_norm(F.conv2d(F.pad(h, (1,) * 4, mode="reflect"), s.weights1 if planted else s.weights2))
    class Generator(nn.Module):
        def __init__(s): super().__init__(); s.c7s1 = nn.Conv2d(3, 16, 7, padding=3); s.d32 = nn.Conv2d(16, 24, 3, stride=2, padding=1); s.res = nn.Sequential(*[Rk(24) for _ in range(3)]); s.u = nn.ConvTranspose2d(24, 16, 4, stride=2, padding=1); s.out = nn.Conv2d(16, 3, 7, padding=3)
        def forward(s, x):
            h = F.relu(F.instance_norm(s.c7s1(x))); h = F.relu(F.instance_norm(s.d32(h))); h = s.res(h); return torch.tanh(s.out(F.relu(F.instance_norm(s.u(h)))))
    K = T(7, 3, 3, 3, 3, k=.3)
    def data(seed):
        x = torch.tanh(F.interpolate(T(seed, 8, 3, 4, 4, k=1.5), size=16, mode="bilinear")); return x, torch.tanh(F.conv2d(x, K, padding=1))
    return dict(model=Generator, data=data, loss=lambda o, t: F.l1_loss(o, t), lr=2e-3, diag={})

@case("https://github.com/clankur/einygpt/pull/3", "K, V, Q projections are scaled by head_dim**-0.5 instead of n_embd**-0.5", "attention_kvq init scale")
def einygpt_kvq(planted):
    n, hd, nh = 128, 8, 16
    class Block(nn.Module):
        def __init__(s):
            super().__init__(); s.attention_kvq = nn.Parameter(torch.randn(3, nh, n, hd) * (hd if planted else n) ** -.5); s.out = nn.Parameter(torch.randn(nh * hd, n) * (nh * hd) ** -.5); s.ln1 = nn.LayerNorm(n); s.ln2 = nn.LayerNorm(n); s.mlp = nn.Sequential(nn.Linear(n, 2 * n), nn.GELU(), nn.Linear(2 * n, n))
        def forward(s, x):
            k, v, q = torch.einsum("btn,chnd->cbhtd", s.ln1(x), s.attention_kvq); a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + a.transpose(1, 2).flatten(2) @ s.out; return x + s.mlp(s.ln2(x))
    class GPT(nn.Module):
        def __init__(s): super().__init__(); s.emb = nn.Embedding(24, n); s.pos = nn.Embedding(24, n); s.blocks = nn.Sequential(*[Block() for _ in range(3)]); s.ln = nn.LayerNorm(n); s.head = nn.Linear(n, 24, bias=False)
        def forward(s, x): return s.head(s.ln(s.blocks(s.emb(x) + s.pos(torch.arange(x.size(1))))))
    def data(seed):
        x = R(seed, 24, (16, 17)); x[:, 1::2] = (x[:, 0::2][:, :8] * 5 + 3) % 24; x[:, 4::4] = x[:, 2::4][:, :x[:, 4::4].size(1)]; return x[:, :-1], x[:, 1:]
    return dict(model=GPT, data=data, loss=ceseq, lr=1e-3, diag={})

@case("https://github.com/ageron/handson-ml3/pull/20", "wide and deep concatenates and feeds the raw inputs instead of the normalized ones", "input_ instead of normalized into hidden1 and concat")
def wide_deep_raw(planted):
    mean = torch.tensor([3.9, 28.6, 5.4, 1.1, 1425., 3.1, 35.6, -119.6]); std = torch.tensor([1.9, 12.6, 2.5, .5, 1130., 1.5, 2.1, 2.])
    class WideDeep(nn.Module):
        def __init__(s):
            super().__init__(); s.register_buffer("mean", mean); s.register_buffer("std", std); s.hidden1 = nn.Linear(8, 30); s.hidden2 = nn.Linear(30, 30); s.output = nn.Linear(38, 1)
        def forward(s, input_):
            normalized = (input_ - s.mean) / s.std; z = input_ if planted else normalized
            return s.output(torch.cat([z, F.relu(s.hidden2(F.relu(s.hidden1(z))))], 1))
    w = T(21, 8); v = T(22, 8)
    def data(seed):
        z = T(seed, 64, 8); return mean + std * z, (2.07 + .4 * z @ w + .4 * torch.tanh(z @ v) + .1 * T(seed + 1, 64)).unsqueeze(1)
    return dict(model=WideDeep, data=data, loss=mse, lr=1e-2, diag={})

@case("https://github.com/lxtGH/dfn_seg/issues/4", "refinement residual block misses the ReLU between batch norm and the second conv", "RRB: relu between bn and conv3")
def dfn_rrb(planted):
    class RRB(nn.Module):
        def __init__(s, i, c): super().__init__(); s.unify = nn.Conv2d(i, c, 1); s.conv1 = nn.Conv2d(c, c, 3, padding=1); s.bn = nn.BatchNorm2d(c); s.conv2 = nn.Conv2d(c, c, 3, padding=1, bias=False)
        def forward(s, x):
            x = s.unify(x); r = s.bn(s.conv1(x)); r = s.conv2(r if planted else F.relu(r)); return F.relu(x + r)
    class DFN(nn.Module):
        def __init__(s): super().__init__(); s.rrb1 = RRB(3, 16); s.rrb2 = RRB(16, 16); s.rrb3 = RRB(32, 16); s.out = nn.Conv2d(16, 4, 1)
        def forward(s, x):
            a = s.rrb1(x); b = F.interpolate(s.rrb2(F.max_pool2d(a, 2)), scale_factor=2); return s.out(s.rrb3(torch.cat([a, b], 1)))
    col = T(3, 4, 3)
    def data(seed):
        y = F.interpolate(R(seed, 4, (8, 1, 4, 4)).float(), scale_factor=5)[:, 0].long(); x = col[y].permute(0, 3, 1, 2) * (1 - 2. * R(seed + 2, 2, (8, 1, 1, 1))); return x + .4 * T(seed + 1, 8, 3, 20, 20), y
    return dict(model=DFN, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/EdanToledo/Stoix/issues/72", "both critics of the twin Q network start from the same parameters and stay identical", "critics init: copies of one network")
def stoix_twins(planted):
    class TwinQ(nn.Module):
        def __init__(s):
            super().__init__(); mk = lambda: nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)); s.q1 = mk(); s.q2 = mk()
            if planted: s.q2.load_state_dict(s.q1.state_dict())
        def forward(s, obs, act): x = torch.cat([obs, act], -1); return torch.cat([s.q1(x), s.q2(x)], -1)
    w = T(31, 8)
    def data(seed):
        o, a = T(seed, 64, 6), torch.tanh(T(seed + 1, 64, 2)); y = torch.tanh(torch.cat([o, a], 1) @ w)[:, None] + .5 * a[:, :1] * o[:, :1]; return (o, a), y.expand(-1, 2) + .1 * T(seed + 2, 64, 1)
    return dict(model=TwinQ, data=data, loss=mse, lr=1e-3, diag={})

@case("https://github.com/udacity/deep-reinforcement-learning/issues/14", "hidden_init takes fan_in from weight.size()[0], which is the fan-out", "hidden_init of fc1/fc2")
def ddpg_fanin(planted):
    def hidden_init(layer):
        fan_in = layer.weight.data.size()[0 if planted else 1]; lim = 1. / math.sqrt(fan_in); return (-lim, lim)
    class Critic(nn.Module):
        def __init__(s):
            super().__init__(); s.fcs1 = nn.Linear(33, 256); s.fc2 = nn.Linear(256 + 4, 128); s.fc3 = nn.Linear(128, 1)
            s.fcs1.weight.data.uniform_(*hidden_init(s.fcs1)); s.fc2.weight.data.uniform_(*hidden_init(s.fc2)); s.fc3.weight.data.uniform_(-3e-3, 3e-3)
        def forward(s, state, action): xs = F.leaky_relu(s.fcs1(state)); return s.fc3(F.leaky_relu(s.fc2(torch.cat([xs, action], 1))))
    w = T(33, 33, k=.2); u = T(34, 4, k=.5)
    def data(seed):
        x, a = T(seed, 64, 33), torch.tanh(T(seed + 1, 64, 4)); return (x, a), (torch.tanh(x @ w) + a @ u)[:, None]
    return dict(model=Critic, data=data, loss=mse, lr=1e-3, diag={})

@case("https://github.com/googledatalab/notebooks/pull/129", "second hidden layer is created but the output is computed from hidden1", "hidden2 not used")
def datalab_hidden2(planted):
    class RNN(nn.Module):
        def __init__(s): super().__init__(); s.rnn = nn.LSTM(1, 24, batch_first=True); s.hidden1 = nn.Linear(24, 32); s.hidden2 = nn.Linear(32, 32); s.pred = nn.Linear(32, 1)
        def forward(s, x):
            h1 = F.relu(s.hidden1(s.rnn(x)[0][:, -1])); h2 = F.relu(s.hidden2(h1)); return s.pred(h1 if planted else h2)
    def data(seed):
        f = .2 + .4 * torch.rand(32, 1, generator=gen(seed)); ph = 6 * torch.rand(32, 1, generator=gen(seed + 1)); k = torch.arange(13.)[None]; x = torch.sin(f * k + ph) + .05 * T(seed + 2, 32, 13); return x[:, :12, None], x[:, 12:]
    return dict(model=RNN, data=data, loss=mse, lr=5e-3, diag={})

@case("https://github.com/maxhodak/keras-molecules/issues/59", "KL term averaged over the latent dimensions instead of summed", "kl_loss K.mean over axis -1")
def molecules_kl(planted):
    class MoleculeVAE(nn.Module):
        def __init__(s):
            super().__init__(); s.conv = nn.Sequential(nn.Conv1d(10, 9, 5), nn.ReLU(), nn.Conv1d(9, 9, 5), nn.ReLU(), nn.Flatten()); s.dense = nn.Linear(9 * 12, 64); s.z_mean = nn.Linear(64, 32); s.z_log_var = nn.Linear(64, 32); s.latent = nn.Linear(32, 32); s.gru = nn.GRU(32, 64, batch_first=True); s.decoded = nn.Linear(64, 10)
        def forward(s, x):
            h = F.relu(s.dense(s.conv(F.one_hot(x, 10).float().transpose(1, 2)))); m, lv = s.z_mean(h), s.z_log_var(h)
            z = m + torch.exp(lv / 2) * .01 * torch.randn_like(m); o = s.decoded(s.gru(F.relu(s.latent(z))[:, None].expand(-1, 20, -1))[0]); return o, m, lv
    def loss(o, t):
        o, m, lv = o; kl = -.5 * (1 + lv - m ** 2 - lv.exp()); kl = kl.mean(-1) if planted else kl.sum(-1)
        return 20 * F.cross_entropy(o.flatten(0, 1), t.flatten()) + kl.mean()
    P = R(41, 10, (4, 5))
    def data(seed):
        x = P[R(seed, 4, (64, 4))].flatten(1); return x, x
    return dict(model=MoleculeVAE, data=data, loss=loss, lr=3e-3, diag={})

@case("https://github.com/wvabrinskas/Neuron/pull/124", "last batch norm of every ResNet block starts with gamma 1 instead of 0, gradients of the deep net explode", "bn2 gamma of the residual blocks")
def neuron_gamma(planted):
    class ResBlock(nn.Module):
        def __init__(s, c):
            super().__init__(); s.conv1 = nn.Conv2d(c, c, 3, padding=1); s.bn1 = nn.BatchNorm2d(c); s.conv2 = nn.Conv2d(c, c, 3, padding=1); s.bn2 = nn.BatchNorm2d(c)
            if not planted: nn.init.zeros_(s.bn2.weight)
        def forward(s, x): return F.relu(x + s.bn2(s.conv2(F.relu(s.bn1(s.conv1(x))))))
    class ResNet(nn.Module):
        def __init__(s): super().__init__(); s.stem = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2)); s.blocks = nn.Sequential(*[ResBlock(12) for _ in range(10)]); s.fc = nn.Linear(12 * 16, 6)
        def forward(s, x): return s.fc(F.avg_pool2d(s.blocks(s.stem(x)), 2).flatten(1))
    P = T(3, 6, 1, 16, 16)
    def data(seed):
        t = R(seed, 6, (32,)); return .7 * P[t] + T(seed + 1, 32, 1, 16, 16), t
    return dict(model=ResNet, data=data, loss=ce, lr=1e-3, diag={})
