"""The rest of the forty-first set: losses, physics-informed networks, and layers that no optimiser knows."""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB
from strangers.blind2 import each, pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import Drawn
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind41")
UNKNOWN = r"regist|not.*(a|among).*parameter|parameters\(\)|nn\.Parameter|leaf|optimi[sz]er|never.*(train|updat)"


@report(
    "weights of five hundred classes",
    "https://ai.stackexchange.com/questions/37618",
    says=r"class.*weight|weight.*class|rare|minorit|imbalanc|balanced|weight=",
    fault="balanced class weights of 20 on the rare classes: they are predicted where the frequent ones are right",
)
def class_weights(planted: bool) -> Task:
    """Three linear layers, then an LSTM; forty classes, ten of them rare."""
    frequency = torch.where(torch.arange(40) < 10, 50.0, 1000.0)
    weight = frequency.sum() / (40 * frequency)
    centres = torch.randn(40, 8)

    def draw() -> Drawn:
        c = torch.multinomial(frequency, 64, replacement=True)
        return (centres[c].unsqueeze(1) + 1.5 * torch.randn(64, 6, 8),), c

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = chain(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
            self.lstm, self.out = nn.LSTM(32, 48, batch_first=True), nn.Linear(48, 40)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.lstm(self.fc(x))[0][:, -1])

    loss = partial(F.cross_entropy, weight=weight) if planted else F.cross_entropy
    return stream(Net(), draw, loss, F.cross_entropy)


@report(
    "Dice of images without a lesion",
    "https://discuss.pytorch.org/t/71359",
    says=r"dice|empty|background|no gradient|without.*gradient|saturat|flat|sigmoid",
    fault="the Dice loss of an image of background only is 1 whatever is predicted: it never learns background",
)
def empty_dice(planted: bool) -> Task:
    """A small U-Net; half of the images have no lesion; mended, with cross-entropy beside the Dice loss."""
    at = torch.stack(torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij"))

    def draw() -> Drawn:
        centre = torch.randint(4, 12, (16, 2)).float()
        disc = ((at - centre.view(-1, 2, 1, 1)) ** 2).sum(1, keepdim=True) < 6
        mask = disc.float() * (torch.arange(16) % 2).view(-1, 1, 1, 1)
        return (mask + 0.5 * torch.randn(16, 1, 16, 16),), mask

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down1 = chain(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
            self.down2 = chain(nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
            self.up = nn.ConvTranspose2d(16, 8, 2, 2)
            self.final = chain(nn.Conv2d(16, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 1))

        def forward(self, x: Tensor) -> Tensor:
            x = self.down1(x)
            return self.final(torch.cat([x, self.up(self.down2(x))], 1))

    def dice(y: Tensor, t: Tensor) -> Tensor:
        p = y.sigmoid()
        return (1 - 2 * (p * t).sum((1, 2, 3)) / ((p + t).sum((1, 2, 3)) + 1e-7)).mean()

    def both(y: Tensor, t: Tensor) -> Tensor:
        return dice(y, t) + F.binary_cross_entropy_with_logits(y, t)

    return stream(UNet(), draw, dice if planted else both, both)


@report(
    "electronic softplus",
    "https://procomputingproducts.co.uk/post/custom-parametric-activation-function-leading-to-na-n-loss",
    says=rf"{BROKEN}|\bexp|overflow|softplus",
    fault="a parametric softplus is written as log(1 + exp(...)), which overflows for large inputs",
)
def electronic(planted: bool) -> Task:
    """x3 log(1 + exp(x1 (x − x2))) with learned x1, x2, x3 in place of ReLU."""

    class ParametricActivation(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.x1, self.x2 = nn.Parameter(torch.tensor(40.0)), nn.Parameter(torch.tensor(0.1))
            self.x3 = nn.Parameter(torch.tensor(1 / 40))

        def forward(self, x: Tensor) -> Tensor:
            z = self.x1 * (x - self.x2)
            return self.x3 * (torch.log(1 + torch.exp(z)) if planted else F.softplus(z))

    def draw() -> Drawn:
        x, c = pick(64)
        return (x.flatten(1) * 3,), c

    model = chain(nn.Linear(64, 64), ParametricActivation(), nn.Linear(64, 64), ParametricActivation())
    return stream(chain(*model, nn.Linear(64, 10)), draw, F.cross_entropy)


def slope(y: Tensor, x: Tensor) -> Tensor:
    return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]


class Physics(nn.Module):
    """Outputs of `mlp` and their derivatives, whatever `run` makes of them."""

    def __init__(self, run: object, mlp: nn.Module) -> None:
        super().__init__()
        self.run, self.mlp = run, mlp

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            return self.run(self.mlp, x.detach().requires_grad_())  # type: ignore[operator, no-any-return]


@report(
    "second differential of both",
    "https://discuss.pytorch.org/t/2nd-order-differential-for-pinn-model/117834",
    says=r"deriv|second|residual|mixed|summed|autograd|grad_outputs",
    fault="the gradient of both first derivatives at once is taken for u_xx: it is u_xx + u_xt",
)
def second(planted: bool) -> Task:
    """The heat equation u_t = 0.1 u_xx from sin πx, by a network of (x, t)."""

    def draw() -> Drawn:
        inside, start, side = torch.rand(64, 2), torch.rand(32, 2), torch.rand(32, 2)
        start[:, 1], side[:, 0] = 0, (side[:, 0] > 0.5).float()
        x = torch.cat([inside, start, side])
        return (x,), torch.exp(-0.1 * math.pi**2 * x[:, 1:]) * torch.sin(math.pi * x[:, :1])

    def run(mlp: nn.Module, x: Tensor) -> Tensor:
        p = mlp(x)
        grads = slope(p, x)
        both, right = slope(grads, x)[:, :1], slope(grads[:, :1], x)[:, :1]
        return torch.cat([p, grads[:, 1:], both, right], 1)

    def of(column: int, y: Tensor, t: Tensor) -> Tensor:
        residual = y[:64, 1] - 0.1 * y[:64, column]
        return residual.square().mean() + (y[64:, :1] - t[64:]).square().mean()

    mlp = chain(nn.Linear(2, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 1))
    return stream(Physics(run, mlp), draw, partial(of, 2 if planted else 3), partial(of, 3))


@report(
    "Schrödinger by ReLU",
    "https://coderapp.vercel.app/answer/78712449",
    says=r"ReLU|deriv|second|piecewise|curvature|linear",
    fault="a network of ReLUs has no second derivative: the kinetic energy is zero everywhere",
)
def schroedinger(planted: bool) -> Task:
    """−ψ'' + (V − E) ψ = 0 of the harmonic oscillator, ψ at three points given."""
    energy = math.sqrt(0.5)

    def draw() -> Drawn:
        x = torch.cat([torch.rand(100, 1) * 10 - 5, torch.tensor([[-5.0], [0.0], [5.0]])])
        return (x,), torch.exp(-energy * x**2 / 2)

    def run(mlp: nn.Module, x: Tensor) -> Tensor:
        psi = mlp(x)
        dpsi = slope(psi, x)
        d2psi = slope(dpsi, x) if dpsi.requires_grad and dpsi.grad_fn is not None else torch.zeros_like(x)
        return torch.cat([psi, -d2psi + (0.5 * x**2 - energy) * psi], 1)

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return y[:100, 1].square().mean() + (y[100:, :1] - t[100:]).square().mean()

    act = nn.ReLU if planted else nn.Tanh
    mlp = chain(nn.Linear(1, 50), act(), nn.Linear(50, 50), act(), nn.Linear(50, 50), act(), nn.Linear(50, 1))
    return stream(Physics(run, mlp), draw, loss)


@report(
    "gates sent to a device",
    GITHUB + "davidmrau/mixture-of-experts/issues/12",
    guilty=r"w_gate|w_noise",
    says=UNKNOWN + r"|gate",
    fault="the weights of the gate are nn.Parameter(...).to(device), plain tensors that are never trained",
)
def gates(planted: bool) -> Task:
    """Four experts, the noisy best two of them; each of four regions of the input follows a function of its own."""
    w = torch.randn(4, 8)

    def draw() -> Drawn:
        x = torch.randn(128, 8)
        region = (x[:, 0] > 0).long() * 2 + (x[:, 1] > 0).long()
        return (x,), (w[region] * x).sum(1, keepdim=True)

    def to_device(p: nn.Parameter) -> Tensor:
        return p.clone() if planted else p  # as .to("cuda") of a parameter: not a leaf

    class MoE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.experts = each(4, lambda: chain(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)))
            self.w_gate = to_device(nn.Parameter(torch.zeros(8, 4), requires_grad=True))
            self.w_noise = to_device(nn.Parameter(torch.zeros(8, 4), requires_grad=True))

        def forward(self, x: Tensor) -> Tensor:
            logits = x @ self.w_gate
            logits = logits + torch.randn_like(logits) * (F.softplus(x @ self.w_noise) + 0.01)
            top, index = logits.topk(2, 1)
            gate = torch.zeros_like(logits).scatter(1, index, top.softmax(1))
            return (gate.unsqueeze(1) * torch.stack([e(x) for e in self.experts], 2)).sum(2)

    return stream(MoE(), draw, F.mse_loss)


@report(
    "init_weight on a device",
    GITHUB + "pytorch/pytorch/issues/127760",
    guilty=r"wh",
    says=UNKNOWN,
    fault="the weight comes out of a helper as nn.Parameter(...).to(device): no leaf, and not the module's",
)
def init_weight(planted: bool) -> Task:
    """A matrix (37, 19) of the module's own, before a linear layer."""
    truth = chain(nn.Linear(37, 19), nn.Tanh(), nn.Linear(19, 4)).requires_grad_(False)
    nn.init.normal_(truth[2].weight)  # type: ignore[arg-type]

    def draw() -> Drawn:
        x = 2 * torch.randn(64, 37)
        return (x,), truth(x)

    class Way(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wh = self.init_weight((37, 19))
            self.out = nn.Linear(19, 4)

        def init_weight(self, shape: tuple[int, int]) -> Tensor:
            para = nn.Parameter(torch.zeros(shape), requires_grad=True)
            nn.init.xavier_normal_(para)
            return para.clone() if planted else para  # .to(self.device)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(torch.tanh(x @ self.wh))

    return stream(Way(), draw, F.mse_loss)


@report(
    "torque clamped",
    GITHUB + "FluxML/Gym.jl/issues/25",
    says=r"clamp|clip|saturat|no gradient|gradient.*(zero|vanish|cut)|vanish",
    fault="the torque is clamped inside the differentiated pendulum: beyond the limit no gradient comes back",
)
def torque(planted: bool) -> Task:
    """A policy is trained through thirty steps of a pendulum, to hold it upright from where it starts."""

    def draw() -> Drawn:
        x = torch.rand(64, 2) * 2 - 1
        return (x * torch.tensor([1.0, 1.0]),), torch.zeros(64, 1)

    class Policy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = chain(nn.Linear(3, 24), nn.ReLU(), nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 1))

        def forward(self, start: Tensor) -> Tensor:
            angle, speed = start[:, :1], start[:, 1:]
            costs = []
            for _ in range(20):
                u = self.net(torch.cat([angle.cos(), angle.sin(), speed], 1))
                v = u.clamp(-2, 2) if planted else u
                costs.append(angle**2 + 0.1 * speed**2 + 0.001 * v**2)
                speed = speed + (15 * angle.sin() + 3 * v) * 0.05
                angle = angle + speed * 0.05
            return torch.stack(costs).mean(0)

    def loss(y: Tensor, _: Tensor) -> Tensor:
        return y.mean()

    return stream(Policy(), draw, loss)
