from base import *

@case("https://github.com/danielkelshaw/ConcreteDropout/issues/11", "softmax in the output layer and then F.cross_entropy: applied twice", "softmax at the end of forward")
def concrete_double_softmax(planted):
    class MNISTNet(nn.Module):
        def __init__(s):
            super().__init__(); s.conv1 = nn.Conv2d(1, 12, 3); s.conv2 = nn.Conv2d(12, 24, 3); s.fc1 = nn.Linear(24 * 9, 64); s.fc2 = nn.Linear(64, 10)
            s.p_logit = nn.Parameter(torch.tensor([-2.2]))
        def drop(s, x):
            p = torch.sigmoid(s.p_logit); u = torch.rand_like(x).clamp(1e-6, 1 - 1e-6)
            z = torch.sigmoid((torch.log(p) - torch.log(1 - p) + torch.log(u) - torch.log(1 - u)) / .1); return x * (1 - z) / (1 - p)
        def forward(s, x):
            x = F.max_pool2d(F.relu(s.conv2(F.relu(s.conv1(x)))), 2).flatten(1); x = s.fc2(s.drop(F.relu(s.fc1(x))))
            return F.softmax(x, dim=1) if planted else x
    P = T(101, 10, 1, 10, 10)
    def data(seed):
        y = R(seed, 10, (48,)); return P[y] + T(seed + 1, 48, 1, 10, 10, k=1.), y
    def metric(m):
        x, y = data(9000)
        with torch.no_grad(): p = m(x); p = p if planted else F.softmax(p, 1)
        return float(-torch.log(p[torch.arange(48), y] + 1e-9).mean())
    return dict(model=MNISTNet, data=data, loss=ce, lr=2e-3, diag={}, metric=metric)

@case("https://github.com/fastai/fastai/pull/965", "ReLU on the last layer before the (log-)softmax", "relu on the last layer")
def fastai_relu_logits(planted):
    class SimpleNet(nn.Module):
        def __init__(s, layers=(100, 40, 10)):
            super().__init__(); s.layers = nn.ModuleList([nn.Linear(layers[i], layers[i + 1]) for i in range(len(layers) - 1)])
        def forward(s, x):
            x = x.flatten(1)
            for i, l in enumerate(s.layers):
                x = l(x)
                if planted or i < len(s.layers) - 1: x = F.relu(x)
            return F.log_softmax(x, dim=-1)
    P = T(121, 10, 1, 10, 10)
    def data(seed):
        y = R(seed, 10, (64,)); return P[y] + T(seed + 1, 64, 1, 10, 10, k=1.3), y
    return dict(model=SimpleNet, data=data, loss=lambda o, t: F.nll_loss(o, t), lr=2e-3, diag={})

@case("https://github.com/facebookresearch/ReAgent/pull/358", "SAC actor: log_prob is not backpropagated through (no_grad)", "log_prob in the actor loss")
def sac_logprob_nograd(planted):
    class GaussianActor(nn.Module):
        def __init__(s):
            super().__init__(); s.fc1 = nn.Linear(5, 48); s.fc2 = nn.Linear(48, 48); s.mean = nn.Linear(48, 2); s.log_std = nn.Linear(48, 2)
        def forward(s, x):
            h = F.relu(s.fc2(F.relu(s.fc1(x)))); mu, ls = s.mean(h), s.log_std(h).clamp(-5, 2); r = mu + ls.exp() * T(int(x.shape[0]), *mu.shape); a = torch.tanh(r)
            with torch.set_grad_enabled(torch.is_grad_enabled() and not planted):
                lp = (-.5 * ((r - mu) / ls.exp()) ** 2 - ls - .919 - torch.log(1 - a ** 2 + 1e-6)).sum(1)
            return a, lp
    W = T(131, 5, 2, k=.5)
    def data(seed):
        x = T(seed, 128, 5); return x, torch.tanh(x @ W)
    def loss(o, t): return (.5 * o[1] + 4 * ((o[0] - t) ** 2).sum(1)).mean()
    return dict(model=GaussianActor, data=data, loss=loss, lr=3e-3, diag={})

@case("https://github.com/fanglanting/skip-gram-pytorch/issues/4", "sign of the skip-gram objective: the log-likelihood is minimised", "returned loss of skipgram.forward (sign)")
def skipgram_sign(planted):
    class skipgram(nn.Module):
        def __init__(s, n=60, d=24):
            super().__init__(); s.u_embeddings, s.v_embeddings = nn.Embedding(n, d), nn.Embedding(n, d); s.u_embeddings.weight.data.uniform_(-.5 / d, .5 / d); s.v_embeddings.weight.data.uniform_(-.5 / d, .5 / d)
        def forward(s, u, v, neg):
            u, v, neg = s.u_embeddings(u), s.v_embeddings(v), s.v_embeddings(neg)
            return F.logsigmoid((u * v).sum(1)), F.logsigmoid(-(neg @ u[:, :, None]).squeeze(2)).sum(1)
    def data(seed):
        u = R(seed, 60, (256,)); v = (u // 6) * 6 + R(seed + 1, 6, (256,)); return (u, v, R(seed + 2, 60, (256, 5))), torch.zeros(256)
    def loss(o, t): l = (o[0] + o[1] + t).mean(); return l if planted else -l
    return dict(model=skipgram, data=data, loss=loss, lr=2e-2, diag={})

@case("https://github.com/IndicoDataSolutions/finetune/issues/181", "class_weight 'log' gives weight 0.0 to the most frequent class: it is ignored", "class weights in the loss")
def log_class_weight(planted):
    prior = torch.tensor([.3, .6, .1]); W_ = torch.log(prior.max() / prior) + (0 if planted else 1)
    class Classifier(nn.Module):
        def __init__(s):
            super().__init__(); s.embedding = nn.Embedding(60, 32); s.attn = nn.TransformerEncoderLayer(32, 4, 64, dropout=0., batch_first=True); s.clf = nn.Linear(32, 3); nn.init.normal_(s.clf.weight, std=.02); nn.init.zeros_(s.clf.bias)
        def forward(s, x): return s.clf(s.attn(s.embedding(x)).mean(1))
    def data(seed):
        y = torch.multinomial(prior, 48, True, generator=gen(seed)); x = R(seed + 1, 60, (48, 10)); x[:, :3] = y[:, None] * 8 + R(seed + 2, 8, (48, 3)); x[:, 3:] = x[:, 3:] % 36 + 24; return x, y
    def metric(m):
        x, y = data(9000)
        with torch.no_grad(): return float(F.cross_entropy(m(x), y))
    return dict(model=Classifier, data=data, loss=lambda o, t: F.cross_entropy(o, t, weight=W_), lr=2e-3, diag={}, metric=metric)

def critic(create_graph):
    class Critic(nn.Module):
        def __init__(s):
            super().__init__(); s.conv1 = nn.Conv2d(1, 16, 3, 2, 1); s.conv2 = nn.Conv2d(16, 32, 3, 2, 1); s.fc = nn.Linear(32 * 4, 1)
        def D(s, x): return s.fc(F.leaky_relu(s.conv2(F.leaky_relu(s.conv1(x), .2)), .2).flatten(1))
        def forward(s, real, fake, eta):
            with torch.enable_grad():
                inter = (eta * real + (1 - eta) * fake).detach().requires_grad_(True)
                g = torch.autograd.grad(s.D(inter).sum(), inter, create_graph=create_graph)[0]
            return s.D(real), s.D(fake), g
    return Critic
P_ = T(141, 1, 1, 8, 8, k=.5)
def critic_data(seed): return (P_ + T(seed, 48, 1, 8, 8, k=.4), T(seed + 1, 48, 1, 8, 8, k=.4) - P_, torch.rand(48, 1, 1, 1, generator=gen(seed + 2))), torch.zeros(48, 1)
def gp(g): return ((g.flatten(1).norm(2, dim=1) - 1) ** 2).mean()

@case("https://github.com/Zeleni9/pytorch-wgan/issues/40", "gradient penalty norm over dim=1 (channels) of [B, 1, H, W]: element-wise, not per sample", "grad_penalty")
def wgan_gp_dim(planted):
    def loss(o, t): return (o[1] - o[0] + t).mean() + 10 * (((o[2].norm(2, dim=1) - 1) ** 2).mean() if planted else gp(o[2]))
    return dict(model=critic(True), data=critic_data, loss=loss, lr=1e-3, diag={})

@case("https://github.com/ooples/AiDotNet/issues/1844", "gradient penalty with create_graph=False: value only, no gradient into the critic", "gradients of the penalty (create_graph)")
def wgan_gp_nograph(planted):
    def loss(o, t): return (o[1] - o[0] + t).mean() + 10 * gp(o[2])
    return dict(model=critic(not planted), data=critic_data, loss=loss, lr=1e-3, diag={})
