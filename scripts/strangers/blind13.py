"""A thirteenth set of faults, a sample of what people ask and tell, written without sight of the rules."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, Parts
from strangers.blind2 import drawn, pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, SAME, Drawn
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind13")


SE = "https://datascience.stackexchange.com/questions/"


TAO = "https://taourl.com/"


DEEP = r"vanish|shrink|small|fad|constant|same|depth|deep|scale|norm|init|alike"


def table(count: int, width: int) -> tuple[Tensor, Tensor]:
    """Rows of centred uniform numbers, and their sums with a little noise."""
    x = torch.rand(count, width) - 0.5
    return x, x.sum(1, keepdim=True) + 0.1 * torch.randn(count, 1)


@report(
    "rows all alike",
    "https://pages.dogdog.run/machine_learning/weight_initialization.html",
    guilty=r"^[02]\.w",
    says=r"symmetr|identical|copies|duplicat|\brank\b|(units|rows|columns|weights|neurons).*(same|equal|alike)",
    fault="the weights of a layer are one random vector repeated, so that all of its units compute the same",
)
def alike(planted: bool) -> Task:
    class Layer(nn.Module):
        def __init__(self, in_features: int, out_features: int) -> None:
            super().__init__()
            self.w = nn.Parameter(
                torch.randn(in_features).repeat(out_features, 1).transpose(0, 1)
                if planted
                else torch.randn(in_features, out_features) / in_features**0.5
            )

        def forward(self, x: Tensor) -> Tensor:
            return torch.matmul(x, self.w)

    def draw() -> Drawn:
        x, c = pick(64)
        return (x.flatten(1),), c

    model = chain(Layer(64, 32), nn.Sigmoid(), Layer(32, 32), nn.Sigmoid(), nn.Linear(32, 10))
    return stream(model, draw, F.cross_entropy)


@report(
    "ten classes, one sigmoid",
    SE + "38604/too-low-accuracy-on-mnist-dataset-using-a-neural-network",
    guilty=r"^2\.",
    says=r"targets?.*(range|class|label|above|beyond|exceed)|outside|\[0, ?1\]|"
    r"(0|zero) (and|to) (1|one)|negative|unbounded|one (output|unit)|single",
    fault="digits 0 to 9 as they are to binary cross-entropy over one sigmoid unit (repaired: ten and softmax)",
)
def one_sigmoid(planted: bool) -> Task:
    def draw() -> Drawn:
        x, c = pick(64)
        return ((x * 0.376 + 0.3).flatten(1) * 255,), c.float().view(-1, 1) if planted else c

    def binary(p: Tensor, t: Tensor) -> Tensor:
        p = p.clamp(1e-7, 1 - 1e-7)  # Keras's binary_crossentropy, which takes any target
        return -(t * p.log() + (1 - t) * (1 - p).log()).mean()

    def right(p: Tensor, t: Tensor) -> Tensor:
        """Cross-entropy over the ten digits; one unit can only say 0 or 1."""
        if p.shape[1] == 1:
            return F.nll_loss(torch.cat([1 - p, p, torch.zeros(len(p), 8)], 1).clamp(1e-7, 1).log(), t.long().flatten())
        return F.nll_loss(p.softmax(1).clamp(1e-7, 1).log(), t)

    head = (nn.Linear(64, 1), nn.Sigmoid()) if planted else (nn.Linear(64, 10),)
    return stream(chain(nn.Linear(64, 64), nn.ReLU(), *head), draw, binary if planted else F.cross_entropy, right)


@report(
    "softmax, then its clipped logarithm",
    "https://epcsirmaz.blogspot.com/2019/",
    guilty=r"^6\.",
    says=r"softmax|saturat|clip|clamp|underflow|probabilit|logits?.*large|large.*logit",
    fault="Keras's categorical_crossentropy of a softmax layer: large logits, clipped probabilities, no gradients",
)
def clipped(planted: bool) -> Task:
    def draw() -> Drawn:
        x, c = pick(64)
        return ((x * 0.376 + 0.3).flatten(1) * 255,), F.one_hot(c, 10).float()

    def keras(y: Tensor, t: Tensor) -> Tensor:
        return -(t * (y if planted else y.softmax(1)).clamp(1e-7, 1).log()).sum(1).mean()

    model = chain(
        nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)
    )
    for m in model:
        if isinstance(m, nn.Linear):
            nn.init.kaiming_normal_(m.weight)
    model = chain(*model, nn.Softmax(1)) if planted else model
    return stream(model, draw, keras if planted else F.cross_entropy, keras)


@report(
    "logarithm of what may be negative",
    "https://huggingface.co/datasets/nvidia/Nemotron-CC-Math-v1"
    "#how-to-solve-the-loss-becoming-nan-due-to-using-torch-log",
    guilty=r"^first",
    says=rf"{BROKEN}|\blog(arithm)?\b",
    fault="torch.log of a layer's outputs in the forward pass, without relu and eps",
)
def logarithm(planted: bool) -> Task:
    def draw() -> Drawn:
        x, c = pick(64)
        return (x.flatten(1),), c

    def run(m: nn.Module, x: Tensor) -> Tensor:
        t = m.first(x)
        t = torch.log(t) if planted else torch.log(F.relu(t) + 1e-7)
        return m.second(t)

    return stream(Parts(run, first=nn.Linear(64, 64), second=nn.Linear(64, 10)), draw, F.cross_entropy)


@report(
    "weights uniform to a thousand",
    TAO + "read-2208585.html",
    guilty=r"^fc",
    says=r"large|explo|scale|init|huge|magnitude|saturat",
    fault="all parameters uniform in (-1000, 1000) (repaired: Xavier's)",
)
def thousand(planted: bool) -> Task:
    def draw() -> Drawn:
        x = torch.randn(32, 10)
        return (x,), x[:, :5].sum(1, keepdim=True).sin() + x[:, 5:6]

    model = Parts(lambda m, x: m.fc2(torch.relu(m.fc1(x))), fc1=nn.Linear(10, 50), fc2=nn.Linear(50, 1))
    for p in model.parameters():
        if planted:
            p.data.uniform_(-1000, 1000)
        elif p.dim() > 1:
            nn.init.xavier_uniform_(p)
    return stream(model, draw, F.mse_loss)


@report(
    "four layers from zeros",
    TAO + "read-2675780.html",
    guilty=r"^[024]\.",
    says=r"zero|constant|same|init|dead|symmetr",
    fault="kernel_initializer='zeros' in three hidden layers (repaired: He's)",
)
def zeros(planted: bool) -> Task:
    model = chain(
        nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)
    )
    for m in model:
        if isinstance(m, nn.Linear):
            nn.init.xavier_uniform_(m.weight)
            nn.init.zeros_(m.bias)
    for m in model[0], model[2], model[4]:
        nn.init.zeros_(m.weight) if planted else nn.init.kaiming_normal_(m.weight)

    def draw() -> Drawn:
        x, y = table(32, 10)
        return (x,), y

    return stream(model, draw, F.mse_loss)


@report(
    "LSTM with a softmax of one",
    "https://stackguides.com/questions/46620813/keras-lstm-model-not-learning-binary-sequence",
    guilty=r"^(dense|lstm)",
    says=rf"softmax|always (1|one)|single|one (output|unit|class)|{SAME}|{CUT}",
    fault="softmax over the one output unit, always 1, into binary cross-entropy (repaired: sigmoid)",
)
def softmax_of_one(planted: bool) -> Task:
    def draw() -> Drawn:
        x = torch.randint(2, (64, 3, 1)).float()
        return (x,), (x[:, 0] != x[:, 2]).float()

    def run(m: nn.Module, x: Tensor) -> Tensor:
        y = m.dense(m.lstm(x)[0][:, -1])
        return torch.softmax(y, -1) if planted else torch.sigmoid(y)

    def loss(p: Tensor, t: Tensor) -> Tensor:
        return F.binary_cross_entropy(p.clamp(1e-7, 1 - 1e-7), t)

    return stream(Parts(run, lstm=nn.LSTM(1, 16, batch_first=True), dense=nn.Linear(16, 1)), draw, loss)


@report(
    "VAE drowned by its latent loss",
    SE + "35741/latent-loss-in-variational-autoencoder-drowns-generative-loss/35778",
    guilty=r"^(mean|log_var)",
    says=r"\bKL\b|latent|diverg|balance|dominat|\bterms?\b|collapse|ignor",
    fault="KL divergence summed over 32 latents, plus the mean squared error (repaired: KL's mean, weighted)",
)
def drowned(planted: bool) -> Task:
    def draw() -> Drawn:
        x, _ = pick(40)
        x, ink, paper = x * 0.376 + 0.3, torch.rand(40, 3, 1, 1), torch.rand(40, 3, 1, 1)
        x = (x * ink + (1 - x) * paper).flatten(1)
        return (x,), x

    def run(m: nn.Module, x: Tensor) -> Any:
        h = m.enc(x)
        mean, log_var = m.mean(h), m.log_var(h)
        return m.dec(mean + (log_var / 2).exp() * torch.randn_like(mean)), mean, log_var

    def loss(y: Any, t: Tensor) -> Tensor:
        latent = 1 + y[2] - y[1].square() - y[2].exp()
        return F.mse_loss(y[0], t) + (-0.5 * latent.sum(1).mean() if planted else -0.5e-3 * latent.mean())

    enc = chain(nn.Linear(192, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
    dec = chain(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 192), nn.Sigmoid())
    model = Parts(run, enc=enc, mean=nn.Linear(64, 32), log_var=nn.Linear(64, 32), dec=dec)
    return stream(model, draw, loss, lambda y, t: F.mse_loss(y[0], t))


@report(
    "XOR by one hidden neuron",
    "https://ai.stackexchange.com/questions/27010/"
    "why-does-my-neural-network-to-solve-the-xor-problem-always-output-0-5",
    guilty=r"^[02]\.",
    says=r"one (neuron|unit|number|feature)|single|width|wide|narrow|bottleneck|\brank\b|capacity|separab|only 1\b",
    fault="one neuron before the two outputs: a linear decision only (repaired: several)",
)
def one_neuron(planted: bool) -> Task:
    def draw() -> Drawn:
        x = torch.randint(2, (32, 2))
        return (x.float(),), F.one_hot(1 - (x[:, 0] ^ x[:, 1]), 2).float()

    width = 1 if planted else 16
    model = chain(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 2), nn.Softmax(1))
    return stream(model, draw, F.binary_cross_entropy)


@report(
    "twenty convolutions without batch norm",
    "https://midnight2104.github.io/2018/04/06/%E6%89%B9%E9%87%8F%E5%BD%92%E4%B8%80%E5%8C%96%E5%AE%9E%E4%BE%8B",
    guilty=r"^\d+\.",
    says=DEEP,
    fault="19 convolutions with ReLU and no normalisation, TensorFlow's initialisation (repaired: "
    "batch normalisation after each)",
)
def twenty(planted: bool) -> Task:
    layers, width = [], 1
    for depth in range(1, 20):
        conv = nn.Conv2d(width, 16, 3, 2 if depth in (2, 4) else 1, 1, bias=planted)
        nn.init.xavier_uniform_(conv.weight)
        if planted:
            nn.init.zeros_(conv.bias)
        layers += [conv, nn.ReLU()] if planted else [conv, nn.BatchNorm2d(16), nn.ReLU()]
        width = 16
    layers += [nn.Flatten(), nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10)]

    def draw() -> Drawn:
        x, c = pick(24)
        return (x * 0.376 + 0.3,), c

    return stream(chain(*layers), draw, F.cross_entropy)


@report(
    "eleven layers of small weights",
    "http://freydom.com/2017/03/04/experience-with-batchnorm/",
    guilty=r"^\d+\.",
    says=DEEP,
    fault="an 11-layer CNN from small random numbers: signals and gradients die (repaired: batch normalisation)",
)
def eleven(planted: bool) -> Task:
    layers, width = [], 1
    for depth in range(10):
        conv = nn.Conv2d(width, 16, 3, 2 if depth in (3, 6) else 1, 1)
        nn.init.normal_(conv.weight, std=0.02)
        nn.init.zeros_(conv.bias)
        layers += [conv] + ([] if planted else [nn.BatchNorm2d(16)]) + [nn.ReLU()]
        width = 16

    draw = drawn(pick, 32)
    return stream(chain(*layers, nn.Flatten(), nn.Linear(64, 10)), draw, F.cross_entropy)


@report(
    "ten sigmoid layers",
    "https://dev.to/zeromathai/neural-network-optimization-challenges-fixing-"
    "vanishing-gradients-with-better-architecture-design-1gf5",
    guilty=r"^\d+\.",
    says=rf"sigmoid|saturat|{DEEP}",
    fault="ten layers of sigmoids (repaired: ReLU)",
)
def sigmoids(planted: bool) -> Task:
    layers = [nn.Linear(64, 64)]
    for _ in range(9):
        layers += [nn.Sigmoid() if planted else nn.ReLU(), nn.Linear(64, 64)]
    for m in layers:
        if isinstance(m, nn.Linear):
            nn.init.xavier_uniform_(m.weight)

    def draw() -> Drawn:
        x, c = pick(64)
        return (x.flatten(1),), c

    return stream(chain(*layers, nn.Sigmoid() if planted else nn.ReLU(), nn.Linear(64, 10)), draw, F.cross_entropy)


@report(
    "deep tanh from plain random weights",
    "https://krishnajeena.substack.com/p/why-your-deep-network-isnt-learning",
    guilty=r"^\d+\.",
    says=r"saturat|large|explo|vanish|init|scale|tanh",
    fault="weights of N(0, 1) before tanh in a deep network (repaired: Glorot's and ReLU)",
)
def plain_random(planted: bool) -> Task:
    layers = []
    for _ in range(8):
        layers += [nn.Linear(64, 64), nn.Tanh() if planted else nn.ReLU()]
    layers.append(nn.Linear(64, 10))
    for m in layers:
        if isinstance(m, nn.Linear):
            nn.init.normal_(m.weight) if planted else nn.init.xavier_normal_(m.weight)

    def draw() -> Drawn:
        x, c = pick(64)
        return (x.flatten(1),), c

    return stream(chain(*layers), draw, F.cross_entropy)


@report(
    "U-Net sees background only",
    "https://laganvalleydup.co.uk/post/u-net-segmentor-only-identifies-background-class",
    says=r"imbalanc|unbalanc|background|\brare|majority|class weight|frequen|skew|most (of|pixels|targets)",
    fault="plain cross-entropy where one pixel in fifty is an object's (repaired: class weights)",
)
def background(planted: bool) -> Task:
    def draw() -> Drawn:
        x = 0.7 * torch.randn(16, 1, 16, 16)
        t = torch.zeros(16, 16, 16, dtype=torch.long)
        for i in range(16):  # two small fruits of different kinds, among noise
            for kind in (1, 2):
                r, c = torch.randint(0, 14, (2,)).tolist()
                t[i, r : r + 2, c : c + 2] = kind
                x[i, 0, r : r + 2, c : c + 2] += (1.0, -1.0)[kind - 1]
        return (x,), t

    def run(m: nn.Module, x: Tensor) -> Tensor:
        a = m.down1(x)
        b = m.down2(F.max_pool2d(a, 2))
        return m.out(m.up(torch.cat([a, F.interpolate(b, scale_factor=2)], 1)))

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(y, t, None if planted else torch.tensor([1.0, 50.0, 50.0]))

    def block(i, o):
        return chain(nn.Conv2d(i, o, 3, 1, 1), nn.ReLU(), nn.Conv2d(o, o, 3, 1, 1), nn.ReLU())

    model = Parts(run, down1=block(1, 8), down2=block(8, 16), up=block(24, 8), out=nn.Conv2d(8, 3, 1))
    return stream(model, draw, loss, lambda y, t: F.cross_entropy(y, t, torch.tensor([1.0, 50.0, 50.0])))


@report(
    "categorical cross-entropy of one neuron",
    "https://errorhandle.ai/loss-and-accuracy-are-0-when-using-a-neural-network-with-a-single-output-neuron-tensorflow",
    guilty=r"^4\.",
    says=rf"softmax|categorical|always|zero|single|one (output|unit|class|neuron)|{SAME}|{CUT}",
    fault="Keras's categorical_crossentropy, which divides by the units' sum, on one sigmoid (repaired: binary)",
)
def categorical(planted: bool) -> Task:
    def draw() -> Drawn:
        x = torch.randn(32, 8)
        return (x,), (x[:, :1] * x[:, 1:2] + x[:, 2:3] > 0).float()

    def keras(p: Tensor, t: Tensor) -> Tensor:
        return -(t * (p / p.sum(-1, keepdim=True)).clamp(1e-7, 1 - 1e-7).log()).sum(-1).mean()

    model = chain(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1), nn.Sigmoid())
    return stream(model, draw, keras if planted else F.binary_cross_entropy, F.binary_cross_entropy)
