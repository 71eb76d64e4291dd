from base import *
from nets_a import digits, HF
from torch.distributions import Normal, Categorical, MixtureSameFamily
bcep = lambda o, t: F.binary_cross_entropy(o, t)

@case("https://discuss.pytorch.org/t/mixture-density-network/108250", "gmm.log_prob(yy) with yy (N,1) broadcasts over the batch of mixtures", "loss shapes")
def c_mdn(planted):
    def data(s):
        x = T(s, 64, 1); y = 2 * x + (.1 + .3 * x.abs()) * T(s + 1, 64, 1); return x, (y if planted else y.squeeze(1))
    def model():
        def f(s, x):
            z = s.base(x); return s.means(z), F.elu(s.stds(z)) + 1.01, F.softmax(s.weights(z), dim=1)
        return M(f, base=nn.Sequential(nn.Linear(1, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()), means=nn.Linear(64, 5), stds=nn.Linear(64, 5), weights=nn.Linear(64, 5))
    def loss(o, y): return -MixtureSameFamily(Categorical(o[2]), Normal(o[0], o[1])).log_prob(y).mean()
    return dict(model=model, data=data, loss=loss)

@case("https://discuss.pytorch.org/t/optimize-masking-parameter/204381", "learnable threshold used in a hard comparison: no gradient", "threshold")
def c_hard_mask(planted):
    def data(s):
        x = T(s, 128, 6); y = (x * (x.abs() < .7)).sum(1, keepdim=True); return x, y
    def model():
        def f(s, x):
            m = (x.abs() < s.threshold).float() if planted else torch.sigmoid(10. * (s.threshold - x.abs()))
            return s.lin(x * m)
        return M(f, threshold=nn.Parameter(torch.tensor(1.1)), lin=nn.Linear(6, 1))
    return dict(model=model, data=data, loss=mse)

@case("https://discuss.pytorch.org/t/built-in-0-1-loss-function/216747", "0-1 loss with requires_grad=True set on the result", "loss")
def c_zero_one(planted):
    def loss(o, t):
        if planted: return torch.tensor((o.argmax(1) != t).float().mean().item(), requires_grad=True)
        return 1 - o.softmax(1).gather(1, t[:, None]).mean()
    def data(s): x, y = digits(s); return (x - .5) / .3, y
    return dict(model=lambda: nn.Sequential(nn.Linear(196, 64), nn.ReLU(), nn.Linear(64, 10)), data=data, loss=loss)

@case(HF + "how-to-not-lose-the-gradient-on-this-operation", "softmax output turned into a 0/1 indicator of its maximum", "w == max")
def c_indicator(planted):
    W = T(61, 12, 12)
    def data(s):
        x = T(s, 64, 12); y = (x @ W).view(64, 4, 3).argmax(2); return x, F.one_hot(y, 3).float()
    def model():
        def f(s, x):
            w = s.net(x).view(-1, 4, 3).softmax(2); return (w == w.max(2, keepdim=True)[0]).float() if planted else w
        return M(f, net=nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 12)))
    return dict(model=model, data=data, loss=mse)

@case(HF + "how-to-solve-the-loss-becoming-nan-due-to-using-torchlog", "torch.log of an unconstrained linear output inside forward", "fc1 / log")
def c_log_forward(planted):
    def data(s):
        x = T(s, 64, 8); return x, (x[:, :4].sum(1, keepdim=True) * .5)
    def model():
        def f(s, x):
            t = s.fc1(x); t = torch.log(t) if planted else torch.log(F.softplus(t) + 1e-7); return s.fc2(t)
        return M(f, fc1=nn.Linear(8, 32), fc2=nn.Linear(32, 1))
    return dict(model=model, data=data, loss=mse)

@case(HF + "pytorch-forums-multivariate-gaussian-variational-autoencoder", "decoder: relu'd mean and relu'd log-variance sampled before the last layer", "fc3/fc31")
def c_vae_decoder(planted):
    A = T(71, 4, 40)
    def data(s): x = T(s, 64, 4) @ A * .5 + .1 * T(s + 1, 64, 40); return x, x
    def model():
        def rep(mu, lv): return mu + torch.randn_like(mu) * (.5 * lv).exp()
        def f(s, x):
            h = F.relu(s.fc1(x)); mu, lv = s.fc21(h), s.fc22(h); z = rep(mu, lv)
            h = rep(F.relu(s.fc3(z)), F.relu(s.fc31(z))) if planted else F.relu(s.fc3(z))
            return s.fc4(h), mu, lv
        kw = dict(fc31=nn.Linear(8, 64)) if planted else {}
        return M(f, fc1=nn.Linear(40, 64), fc21=nn.Linear(64, 8), fc22=nn.Linear(64, 8), fc3=nn.Linear(8, 64), fc4=nn.Linear(64, 40), **kw)
    def loss(o, x):
        r, mu, lv = o; return .5 * ((r - x) ** 2).sum(1).mean() - .5 * (1 + lv - mu ** 2 - lv.exp()).sum(1).mean()
    return dict(model=model, data=data, loss=loss)

@case("https://discuss.pytorch.org/t/multi-label-activation-function/83238", "softmax instead of sigmoid for independent labels", "softmax output")
def c_multilabel_softmax(planted):
    W = T(72, 20, 6)
    def data(s): x = T(s, 64, 20); return x, (x @ W > 0).float()
    def model():
        def f(s, x): z = s.net(x); return z.softmax(1) if planted else z.sigmoid()
        return M(f, net=nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 6)))
    return dict(model=model, data=data, loss=bcep)

@case("https://geeksmental.com/question/why-is-using-sigmoid-in-last-layer-of-nn-for-general-matrix-factorisation-showing-better-performance", "raw ratings 1-5 from an unscaled dot product of N(0,1) embeddings, no bias", "user/item embeddings")
def c_mf(planted):
    P, Q, b = T(73, 30, 3), T(74, 40, 3), T(75, 40)
    def data(s):
        u, i = R(s, 30, (64,)), R(s + 1, 40, (64,)); return (u, i), (1 + 4 * torch.sigmoid((P[u] * Q[i]).sum(1) * .4 + b[i] * 1.5))
    def model():
        def f(s, u, i):
            z = (s.user(u) * s.item(i)).sum(1)
            return z if planted else 1 + 4 * torch.sigmoid(z + s.ub(u).squeeze(1) + s.ib(i).squeeze(1))
        m = M(f, user=nn.Embedding(30, 50), item=nn.Embedding(40, 50), **({} if planted else dict(ub=nn.Embedding(30, 1), ib=nn.Embedding(40, 1))))
        if not planted:
            for e in (m.user, m.item): nn.init.normal_(e.weight, 0, .1)
            nn.init.zeros_(m.ub.weight); nn.init.zeros_(m.ib.weight)
        return m
    return dict(model=model, data=data, loss=mse)

@case("https://datascience.stackexchange.com/questions/82486/siamese-network-sigmoid-function-to-compute-similarity-score", "sigmoid of the bare L1 distance (no weights, no bias): in [0.5,1), rising with distance; label 1 = same", "sigmoid of distance")
def c_siamese(planted):
    C = T(76, 8, 20)
    def data(s):
        a = R(s, 8, (64,)); same = R(s + 1, 2, (64,)); b = torch.where(same == 1, a, (a + 1 + R(s + 2, 7, (64,))) % 8)
        return (C[a] + .3 * T(s + 3, 64, 20), C[b] + .3 * T(s + 4, 64, 20)), same.float()[:, None]
    def model():
        def f(s, a, b):
            d = (s.enc(a) - s.enc(b)).abs(); return torch.sigmoid(d.sum(1, keepdim=True) if planted else s.alpha(d))
        return M(f, enc=nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 16), nn.Sigmoid()), **({} if planted else dict(alpha=nn.Linear(16, 1))))
    return dict(model=model, data=data, loss=bcep)

@case("https://stackoverflow.max-everyday.com/?p=6577", "discriminator ends in Sigmoid and the loss is BCEWithLogits", "sigmoid output")
def c_disc_sigmoid(planted):
    def data(s):
        x, _ = digits(s, 32, 16); f = torch.rand(32, 256, generator=gen(s + 9)); f = f * .5 + x[torch.randperm(32, generator=gen(s))] * .4
        return torch.cat([x, f]).view(-1, 1, 16, 16) * 2 - 1, torch.cat([torch.ones(32, 1), torch.zeros(32, 1)])
    def model():
        l = [nn.Conv2d(1, 16, 4, 2, 1), nn.LeakyReLU(.2), nn.Conv2d(16, 32, 4, 2, 1), nn.LeakyReLU(.2), nn.Flatten(), nn.Linear(512, 1)]
        return nn.Sequential(*l, *([nn.Sigmoid()] if planted else []))
    return dict(model=model, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t))

def boxes(s, n=48, side=16):
    w = 3 + R(s, 5, (n,)); x = R(s + 1, side - 8, (n,)); y = R(s + 2, side - 8, (n,)); g = torch.arange(side)
    m = ((g[None] >= x[:, None]) & (g[None] < (x + w)[:, None])); k = ((g[None] >= y[:, None]) & (g[None] < (y + w)[:, None]))
    im = (k[:, :, None] & m[:, None]).float() + .1 * T(s + 3, n, side, side)
    return im[:, None], torch.stack([x, x + w, y, y + w], 1).float()
@case("http://pullrequest.ru/9938386/svertochnaya-neironnaya-set-dlya-lokalizatsii-obekta", "sigmoid output for box coordinates in pixels", "sigmoid output / targets")
def c_box_sigmoid(planted):
    def data(s): x, b = boxes(s); return x, b if planted else b / 16
    def model():
        return nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 4), nn.Sigmoid())
    return dict(model=model, data=data, loss=mse)
