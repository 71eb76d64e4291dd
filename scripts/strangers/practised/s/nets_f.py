from base import *
from nets_b import img
from nets_d import mlp
from nets_a import GPT, lmdata, SEQ, V
@case("https://github.com/NaJaeMin92/pytorch-DANN/issues/7", "Softmax at the end of classifier and discriminator before CrossEntropyLoss", "classifier.softmax / discriminator.softmax")
def dann_softmax(planted):
    class GR(torch.autograd.Function):
        @staticmethod
        def forward(c, x): return x.view_as(x)
        @staticmethod
        def backward(c, g): return -.1 * g
    class Dann(nn.Module):
        def __init__(s):
            super().__init__(); sm = (lambda: [nn.Softmax(1)]) if planted else (lambda: [])
            s.extractor = nn.Sequential(nn.Conv2d(3, 16, 5, 1, 2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 24, 5, 1, 2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
            s.classifier = nn.Sequential(nn.Linear(384, 100), nn.ReLU(), nn.Linear(100, 6), *sm()); s.discriminator = nn.Sequential(nn.Linear(384, 100), nn.ReLU(), nn.Linear(100, 2), *sm())
        def forward(s, x): f = s.extractor(x); return s.classifier(f), s.discriminator(GR.apply(f))
    def data(s): x, y = img(s); d = R(s + 5, 2, (32,)); return x + d[:, None, None, None] * .3, {"y": y, "d": d}
    return dict(model=Dann, data=data, loss=lambda o, t: F.cross_entropy(o[0], t["y"]) + F.cross_entropy(o[1], t["d"]))
@case("https://github.com/gitabcworld/MatchingNetworks/issues/5", "softmax of the similarities, then cross_entropy of the class probabilities", "attention softmax / loss")
def matching_double(planted):
    class MN(nn.Module):
        def __init__(s): super().__init__(); s.g = mlp(30, 64, 32)
        def forward(s, sup, q):                                   # sup (B, 5, 30), q (B, 30): one shot, five ways
            a = F.normalize(s.g(sup), dim=-1); b = F.normalize(s.g(q), dim=-1); sim = 10 * (a @ b[:, :, None]).squeeze(-1); return sim.softmax(1) if planted else sim
    def data(s): c = T(s, 32, 5, 4); A = T(112, 4, 30); y = R(s + 1, 5, (32,)); return (c @ A + 1.5 * T(s + 2, 32, 5, 30), c[torch.arange(32), y] @ A + 1.5 * T(s + 3, 32, 30)), y
    return dict(model=MN, data=data, loss=ce, diag=CE)
@case("https://github.com/nishnik/Deep-Semantic-Similarity-Model-PyTorch/issues/2", "softmax of gamma * cosine before CrossEntropyLoss (positive at index 0)", "learn_gamma / softmax")
def dssm_softmax(planted):
    class DSSM(nn.Module):
        def __init__(s): super().__init__(); s.q = nn.Sequential(nn.Conv1d(20, 32, 3), nn.Tanh()); s.qs = nn.Sequential(nn.Linear(32, 24), nn.Tanh()); s.d = nn.Sequential(nn.Conv1d(20, 32, 3), nn.Tanh()); s.ds = nn.Sequential(nn.Linear(32, 24), nn.Tanh()); s.learn_gamma = nn.Conv1d(1, 1, 1)
        def forward(s, q, d):
            a = s.qs(s.q(q).amax(2)); B, n = d.shape[:2]; b = s.ds(s.d(d.flatten(0, 1)).amax(2)).view(B, n, -1); c = F.cosine_similarity(a[:, None], b, dim=-1); z = s.learn_gamma(c[:, None]).squeeze(1); return z.softmax(1) if planted else z
    def data(s): k = T(s, 32, 5, 4); A = T(113, 4, 20); B = T(114, 4, 20); d = (k @ A)[..., None] + .5 * T(s + 1, 32, 5, 20, 8); q = (k[:, 0] @ B)[..., None] + .5 * T(s + 2, 32, 20, 6); return (q, d), torch.zeros(32, dtype=torch.long)
    return dict(model=DSSM, data=data, loss=ce, diag=CE)
