from base import *

@case("http://mzph.cn/news/851532.shtml", "distance by sqrt() of a squared sum that is zero for the first/last code: gradient NaN", "loss term d1/d2: .sqrt()")
def latent_sqrt_nan(planted):
    eps = 0. if planted else 1e-8
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.latent_codes = nn.Embedding(12, 8); s.fc1 = nn.Linear(8, 32); s.fc2 = nn.Linear(32, 16)
        def forward(s, idx):
            e = s.latent_codes(idx); v = s.latent_codes.weight.data
            d1 = (((v[0] - e) ** 2).sum(1) + eps).sqrt(); d2 = (((v[-1] - e) ** 2).sum(1) + eps).sqrt()
            c = (d1 + d2 - torch.dist(v[0], v[-1])).abs()
            return torch.cat([s.fc2(F.relu(s.fc1(e))), c[:, None]], 1)
    Y = T(7, 12, 16)
    def data(seed):
        i = R(seed, 12, (48,)); return i, Y[i] + T(seed + 1, 48, 16, k=.05)
    return dict(model=Net, data=data, loss=lambda o, t: F.mse_loss(o[:, :-1], t) + .01 * o[:, -1].mean(), lr=5e-3, diag={})

@case("https://codewithsundeep.com/discussion/solution/11228407", "inputs of 100..300 and targets of 0.999 +- 0.0001 not normalised", "inputs and targets (no normalisation)")
def near_const_targets(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.hidden = nn.Linear(4, 32); s.hidden2 = nn.Linear(32, 32); s.out = nn.Linear(32, 1)
        def forward(s, x): return s.out(torch.tanh(s.hidden2(torch.tanh(s.hidden(x)))))
    w = T(8, 4, 1)
    def raw(seed):
        x = torch.rand(64, 4, generator=gen(seed)) * 200 + 100; return x, .999 + 1e-4 * torch.sin((x - 200) / 58 @ w)
    def data(seed):
        x, y = raw(seed); return (x, y) if planted else ((x - 200) / 58, (y - .999) / 7e-5)
    def metric(m):
        x, y = raw(9000)
        with torch.no_grad():
            a = m((x - 200) / 58) * 7e-5 + .999; b = m(x)
        return float(min(((a - y) ** 2).mean(), ((b - y) ** 2).mean()) / y.var())
    return dict(model=Net, data=data, loss=mse, lr=5e-3, diag={}, metric=metric)

@case("https://github.com/ikostrikov/pytorch-meta-optimizer/issues/11", "LSTM cells kept in a python list are not registered", "self.lstms (plain list)")
def metaopt_lstm_list(planted):
    class MetaOptimizer(nn.Module):
        def __init__(s):
            super().__init__()
            s.linear1 = nn.Linear(3, 24); s.ln1 = nn.LayerNorm(24); ls = [nn.LSTMCell(24, 24) for _ in range(2)]
            s.lstms = ls if planted else nn.ModuleList(ls); s.linear2 = nn.Linear(24, 1); s.linear2.weight.data.mul_(.1)
        def forward(s, x):
            st = [None, None]
            for k in range(x.size(1)):
                h = torch.tanh(s.ln1(s.linear1(x[:, k])))
                for i, l in enumerate(s.lstms): st[i] = l(h, st[i]); h = st[i][0]
            return s.linear2(h)
    def data(seed):
        x = T(seed, 48, 6, 3); return x, (x[:, 0, :1] * x[:, -1, :1].sign() + x[:, 2, 1:2])
    return dict(model=MetaOptimizer, data=data, loss=mse, lr=1e-2, diag={})

@case("https://github.com/ahmadchalhoub/research_implementations/issues/2", "class token and positional embedding created per sample (batch, 1, d), the same for all positions", "pos_embedding")
def vit_pos_batch(planted):
    B, N, D = 32, 9, 32
    class ViT(nn.Module):
        def __init__(s):
            super().__init__()
            s.linear_projection = nn.Linear(8, D)
            s.class_token = nn.Parameter(torch.randn(B if planted else 1, 1, D))
            s.pos_embedding = nn.Parameter(torch.randn(B, 1, D) if planted else torch.randn(1, N + 1, D))
            s.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(D, 4, 64, 0., batch_first=True), 2); s.head = nn.Linear(D, 9)
        def forward(s, x):
            x = s.linear_projection(x); c = s.class_token.expand(x.size(0), -1, -1)
            return s.head(s.enc(torch.cat([c, x], 1) + s.pos_embedding)[:, 0])
    p = T(11, 8, k=2.)
    def data(seed):
        y = R(seed, N, (B,)); x = T(seed + 1, B, N, 8, k=.3); x[torch.arange(B), y] += p; return x, y
    return dict(model=ViT, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/bennyfri/TFMacCpp/issues/6", "dropout divides the kept units by the drop rate instead of the keep rate", "dropOut()")
def dropout_div_rate(planted):
    class DropOut(nn.Module):
        def __init__(s, rate): super().__init__(); s.rate = rate
        def forward(s, x):
            if not s.training: return x
            keep = 1 - s.rate; b = torch.floor(torch.rand_like(x) + keep); return x / (s.rate if planted else keep) * b
    class CNN(nn.Module):
        def __init__(s):
            super().__init__()
            s.conv1 = nn.Conv2d(1, 12, 3, padding=1); s.d1 = DropOut(.1); s.conv2 = nn.Conv2d(12, 16, 3, padding=1); s.d2 = DropOut(.1)
            s.fc1 = nn.Linear(64, 32); s.d3 = DropOut(.1); s.fc2 = nn.Linear(32, 4)
        def forward(s, x):
            x = s.d1(F.max_pool2d(F.relu(s.conv1(x)), 2)); x = s.d2(F.max_pool2d(F.relu(s.conv2(x)), 2))
            return s.fc2(s.d3(F.relu(s.fc1(x.flatten(1)))))
    P = T(12, 4, 1, 8, 8)
    def data(seed):
        y = R(seed, 4, (32,)); return P[y] * .7 + T(seed + 1, 32, 1, 8, 8), y
    return dict(model=CNN, data=data, loss=ce, lr=2e-3, diag={})

def qdata(seed, W, n=64):
    s = T(seed, n, 6); a = R(seed + 5, 4, (n,)); q = torch.tanh(s @ W) * 2
    return s, torch.stack([a.float(), q[torch.arange(n), a]], 1)

@case("https://github.com/sherjilozair/dqn/issues/4", "VS[:, A] takes the columns of every sample's action: (B, B) against the targets", "cost: VS[:, A] - target")
def dqn_fancy_index(planted):
    class DQN(nn.Module):
        def __init__(s):
            super().__init__(); s.fc1 = nn.Linear(6, 64); s.fc2 = nn.Linear(64, 64); s.out = nn.Linear(64, 4)
        def forward(s, x): return s.out(F.relu(s.fc2(F.relu(s.fc1(x)))))
    W = T(13, 6, 4, k=.5)
    def loss(o, t):
        a = t[:, 0].long(); q = o[:, a] if planted else o.gather(1, a[:, None]).squeeze(1)
        return ((q - t[:, 1]) ** 2).mean()
    return dict(model=DQN, data=lambda seed: qdata(seed, W), loss=loss, lr=3e-3, diag={})

@case("https://github.com/PacktPublishing/Tensorflow-2-Reinforcement-Learning-Cookbook/issues/32", "targets start as zeros: the Q-values of all actions not taken are trained to 0", "targets = np.zeros (td target)")
def dqn_zero_targets(planted):
    class DQN(nn.Module):
        def __init__(s):
            super().__init__(); s.fc1 = nn.Linear(6, 64); s.fc2 = nn.Linear(64, 32); s.out = nn.Linear(32, 4)
        def forward(s, x): return s.out(F.relu(s.fc2(F.relu(s.fc1(x)))))
    W = T(14, 6, 4, k=.5)
    def loss(o, t):
        targets = torch.zeros_like(o) if planted else o.detach().clone()
        targets[torch.arange(len(t)), t[:, 0].long()] = t[:, 1]
        return F.mse_loss(o, targets)
    return dict(model=DQN, data=lambda seed: qdata(seed, W), loss=loss, lr=5e-3, diag={})

@case("https://github.com/benedekrozemberczki/AttentionWalk/issues/9", "adjacency multiplied by the degrees instead of normalised by them", "normalized_adjacency_matrix (input)")
def attentionwalk_deg(planted):
    N = 36; com = torch.arange(N) % 3
    class AttentionWalk(nn.Module):
        def __init__(s):
            super().__init__()
            s.left_factors = nn.Parameter(torch.empty(N, 8).uniform_(-.01, .01)); s.right_factors = nn.Parameter(torch.empty(8, N).uniform_(-.01, .01))
            s.attention = nn.Parameter(torch.empty(4, 1, 1).uniform_(-.01, .01))
        def forward(s, tensor, opposite):
            tm = (torch.softmax(s.attention, 0) * tensor).sum(0) * 80; est = s.left_factors @ s.right_factors
            return -tm * F.logsigmoid(est) - opposite * F.logsigmoid(-est)
    def data(seed):
        p = torch.where(com[:, None] == com, .5, .08); A = (torch.rand(N, N, generator=gen(seed)) < p).float().triu(1); A = A + A.T + torch.eye(N)
        d = A.sum(1); P = d[:, None] * A if planted else A / (d[:, None] * d).sqrt()
        Ps = [P]
        for _ in range(3): Ps.append(Ps[-1] @ P)
        return (torch.stack(Ps), (A == 0).float() * 4), torch.zeros(N, N)
    return dict(model=AttentionWalk, data=data, loss=lambda o, t: (o + t).mean(), lr=2e-2, diag={})

@case("https://github.com/NjoyimPeguy/ICDAR-2019-RRC-SROIE/issues/4", "highway transform gate uses ReLU instead of sigmoid", "transform_gate")
def highway_relu_gate(planted):
    class Highway(nn.Module):
        def __init__(s, n):
            super().__init__()
            s.affine_transformation = nn.Sequential(nn.Linear(n, n), nn.ReLU()); s.transform_gate = nn.Sequential(nn.Linear(n, n), nn.ReLU() if planted else nn.Sigmoid())
            nn.init.xavier_normal_(s.affine_transformation[0].weight); nn.init.xavier_normal_(s.transform_gate[0].weight); nn.init.constant_(s.transform_gate[0].bias, -2.)
        def forward(s, y):
            t = s.transform_gate(y); return t * s.affine_transformation(y) + (1 - t) * y
    class CharNet(nn.Module):
        def __init__(s):
            super().__init__(); s.embedding = nn.Embedding(30, 16); s.conv = nn.Conv1d(16, 48, 3, padding=1); s.highway = nn.Sequential(*[Highway(48) for _ in range(4)]); s.fc = nn.Linear(48, 5)
        def forward(s, x): return s.fc(s.highway(F.relu(s.conv(s.embedding(x).transpose(1, 2))).amax(2)))
    def data(seed):
        x = R(seed, 25, (48, 10)); y = R(seed + 1, 5, (48,)); x[torch.arange(48), R(seed + 2, 10, (48,))] = 25 + y; return x, y
    return dict(model=CharNet, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/AberHu/Knowledge-Distillation-Zoo/issues/12", "F.kl_div fed with softmax instead of log_softmax of the student", "loss: F.kl_div(F.softmax(out_s))")
def kd_softmax_no_log(planted):
    class Student(nn.Module):
        def __init__(s):
            super().__init__(); s.conv = nn.Conv1d(3, 16, 3, padding=1); s.fc1 = nn.Linear(16 * 8, 32); s.fc2 = nn.Linear(32, 6)
        def forward(s, x): return s.fc2(F.relu(s.fc1(F.relu(s.conv(x)).flatten(1))))
    W = T(15, 24, 6, k=.5)
    def data(seed):
        x = T(seed, 48, 3, 8); return x, x.flatten(1) @ W
    def loss(o, t, temp=2.):
        s = F.softmax(o / temp, 1) if planted else F.log_softmax(o / temp, 1)
        return F.kl_div(s, F.softmax(t / temp, 1), reduction="batchmean") * temp * temp
    return dict(model=Student, data=data, loss=loss, lr=5e-3, diag={})

@case("https://github.com/Cadene/pretrained-models.pytorch/issues/79", "the output of ReLU is never used: the next layer takes the batch-norm output", "relu after bn (result unused)")
def bninception_relu_unused(planted):
    class Block(nn.Module):
        def __init__(s, i, o): super().__init__(); s.conv = nn.Conv2d(i, o, 3, padding=1); s.bn = nn.BatchNorm2d(o); s.relu = nn.ReLU()
        def forward(s, x):
            out_bn = s.bn(s.conv(x)); out_relu = s.relu(out_bn)
            return out_bn if planted else out_relu
    class BNInception(nn.Module):
        def __init__(s):
            super().__init__(); s.b1, s.b2, s.b3 = Block(1, 12), Block(12, 16), Block(16, 24); s.last_linear = nn.Linear(24, 4)
        def forward(s, x): return s.last_linear(F.avg_pool2d(s.b3(s.b2(s.b1(x))), 10).flatten(1))
    g = torch.arange(10.); K = [(1.6, 0.), (0., 1.6), (1.1, 1.1), (2.4, -.8)]
    def data(seed):
        y = R(seed, 4, (32,)); ph = torch.rand(32, 1, 1, generator=gen(seed + 1)) * 6.28; k = torch.tensor(K)[y]
        x = torch.sin(k[:, :1, None] * g[None, :, None] + k[:, 1:, None] * g[None, None] + ph)
        return (x + T(seed + 2, 32, 10, 10, k=.3))[:, None], y
    return dict(model=BNInception, data=data, loss=ce, lr=5e-3, diag={})

@case("https://github.com/keras-team/keras/pull/8047", "conv features reshaped to (width, height*channels) without a permute before the RNN", "reshape before the GRU")
def ocr_no_permute(planted):
    class CRNN(nn.Module):
        def __init__(s):
            super().__init__()
            s.conv1 = nn.Conv2d(1, 12, 3, padding=1); s.conv2 = nn.Conv2d(12, 12, 3, padding=1); s.dense1 = nn.Linear(12 * 2, 32)
            s.gru = nn.GRU(32, 24, batch_first=True, bidirectional=True); s.dense2 = nn.Linear(48, 6)
        def forward(s, x):
            x = F.max_pool2d(F.relu(s.conv2(F.max_pool2d(F.relu(s.conv1(x)), 2))), 2).permute(0, 2, 3, 1); B, H, W, C = x.shape
            x = x.reshape(B, W, H * C) if planted else x.transpose(1, 2).reshape(B, W, H * C)
            return s.dense2(s.gru(F.relu(s.dense1(x)))[0])
    G = T(16, 6, 8, 4)
    def data(seed):
        y = R(seed, 6, (24, 8)); return (G[y].permute(0, 2, 1, 3).reshape(24, 8, 32) + T(seed + 1, 24, 8, 32, k=.3))[:, None], y
    return dict(model=CRNN, data=data, loss=ceseq, lr=5e-3, diag={})
