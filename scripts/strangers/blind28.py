"""A twenty-eighth set of faults, a sample of reports that issues tell, written without sight of the rules."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB, Parts, judged
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import Drawn
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import text

report = partial(any_report, blind="blind28")


@report(
    "focal loss of edges at probability zero",
    GITHUB + "gnn-tracking/gnn_tracking/issues/104",
    says=rf"{BROKEN}|\blog(arithm\w*)?\b|saturat|clamp",
    fault="binary focal loss takes the logarithm of probabilities that are exactly 0 or 1",
)
def edges(planted: bool) -> Task:
    """An edge classifier on pairs of hits; slopes of false edges, whose hits lie close in r, are heavy-tailed."""

    def draw() -> Drawn:
        true = (torch.rand(256, 1) < 0.4).float()
        dr = 0.05 + torch.rand(256, 1)
        dz = torch.where(true > 0, dr * 0.8 * torch.randn(256, 1), 3 * torch.randn(256, 1))
        dphi = torch.where(true > 0, dr * 0.1 * torch.randn(256, 1), torch.randn(256, 1))
        return (torch.cat([dr, dphi, dz, dphi / dr, dz / dr], 1),), true

    def focal(inpt: Tensor, target: Tensor, alpha: float = 0.25, gamma: float = 2.0, *, safe: bool = False) -> Tensor:
        probs_pos = inpt.clamp(1e-7, 1 - 1e-7) if safe else inpt
        probs_neg = 1 - probs_pos
        pos_term = -alpha * probs_neg.pow(gamma) * target * probs_pos.log()
        neg_term = -(1 - alpha) * probs_pos.pow(gamma) * (1.0 - target) * probs_neg.log()
        return (pos_term + neg_term).mean()

    model = Parts(
        lambda m, x: torch.sigmoid(m.W(m.edge_encoder(x))),
        edge_encoder=chain(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()),
        W=nn.Linear(64, 1),
    )
    return stream(model, draw, partial(focal, safe=not planted))


@report(
    "detection loss over a small sum of scores",
    GITHUB + "meituan/YOLOv6/pull/669",
    says=rf"{BROKEN}|divi|target_scores|normali[sz].*(sum|small|zero)|(huge|explod).*loss|loss.*(huge|explod)",
    fault="classification and box losses are divided by the sum of target scores, which may be tiny or zero",
)
def yolov6(planted: bool) -> Task:
    """One object or none in each image; the cell of its middle is assigned, its score is the overlap of its box."""
    cells = torch.stack(torch.meshgrid(torch.arange(4.0), torch.arange(4.0), indexing="ij"), 2) * 4 + 2

    def draw() -> Drawn:
        x, c = pick(8)
        big, box, label = 0.3 * torch.randn(8, 1, 16, 16), torch.zeros(8, 4), torch.full((8,), -1)
        for i in range(8):
            if torch.rand(()) < 0.4:
                r, s = (int(v) for v in torch.randint(0, 9, (2,)))
                big[i, :, r : r + 8, s : s + 8] += x[i] + 0.8
                box[i], label[i] = torch.tensor([r, s, r + 8, s + 8]), c[i]
        return (big,), torch.cat([box, label.unsqueeze(1)], 1)

    def overlap(a: Tensor, b: Tensor) -> Tensor:
        size = (torch.min(a[:, 2:], b[:, 2:]) - torch.max(a[:, :2], b[:, :2])).clamp(0)
        both = size.prod(1)
        return both / ((a[:, 2:] - a[:, :2]).prod(1) + (b[:, 2:] - b[:, :2]).prod(1) - both + 1e-9)

    def loss(y: tuple[Tensor, Tensor], t: Tensor, *, safe: bool = False, fixed: bool = False) -> Tensor:
        scores, dist = y
        known = t[:, 4] >= 0
        middle = ((t[:, :2] + t[:, 2:4]) / 8).long().clamp(0, 3)
        at = torch.arange(len(t))[known], middle[known, 0], middle[known, 1]
        where, d = cells[at[1:]], dist.permute(0, 2, 3, 1)[at]
        box = torch.cat([where - d[:, :2], where + d[:, 2:]], 1)
        iou = overlap(box, t[known, :4])
        target = torch.zeros_like(scores).permute(0, 2, 3, 1).contiguous()
        target[(*at, t[known, 4].long())] = iou.detach()
        target = target.permute(0, 3, 1, 2)
        p = scores.sigmoid().detach()
        if fixed:  # progress: boxes ought to overlap, and classes to be told apart
            each = 1 - iou + F.cross_entropy(scores.permute(0, 2, 3, 1)[at], t[known, 4].long(), reduction="none")
            return each.sum() / max(len(each), 1)
        weight = 0.75 * p.square() * (target == 0) + target
        loss_cls = (F.binary_cross_entropy_with_logits(scores, target, reduction="none") * weight).sum()
        loss_iou = ((1 - iou) * iou.detach()).sum() + 0.05 * (box - t[known, :4]).abs().sum()
        target_scores_sum = target.sum()
        if safe and target_scores_sum < 1:
            return loss_cls + loss_iou
        return (loss_cls + loss_iou) / target_scores_sum

    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        h = m.backbone(x)
        return m.cls_preds(h), F.softplus(m.reg_preds(h))

    model = Parts(
        run,
        backbone=chain(
            nn.Conv2d(1, 16, 3, 1, 1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 48, 3, 2, 1), nn.BatchNorm2d(48), nn.ReLU(),
        ),
        cls_preds=nn.Conv2d(48, 10, 3, padding=1),
        reg_preds=nn.Conv2d(48, 4, 3, padding=1),
    )  # fmt: skip
    nn.init.constant_(model.cls_preds.bias, -math.log(99))
    return stream(model, draw, partial(loss, safe=not planted), partial(loss, fixed=True))


@report(
    "MiSiCNet's second layer",
    GITHUB + "inria-thoth/HySUPP/issues/3",
    guilty=r"layer2",
    says=r"unused|never used|not used|no gradient|not reach",
    fault="layer2 is defined, but not used in forward",
)
def misicnet(planted: bool) -> Task:
    """Hyperspectral unmixing: abundances by convolutions, spectra as a last layer; noisy pixels are reconstructed."""
    spectra = torch.rand(4, 24)

    def draw() -> Drawn:
        a = (3 * F.interpolate(torch.randn(4, 4, 4, 4), size=(12, 12), mode="bilinear")).softmax(1)
        clean = torch.einsum("bphw,pl->blhw", a, spectra)
        return (clean + 0.05 * torch.randn_like(clean),), clean

    def layer(n: int, m: int, kernel: int = 3) -> nn.Sequential:
        return chain(nn.ReflectionPad2d(kernel // 2), nn.Conv2d(n, m, kernel), nn.BatchNorm2d(m), nn.LeakyReLU(0.1))

    class MiSiCNet(nn.Module):
        def __init__(self, L: int = 24, p: int = 4) -> None:
            super().__init__()
            self.layer1, self.layer2 = layer(L, 48), layer(48, 48)
            self.layerskip, self.layer3 = layer(L, 4, 1), layer(52, 48)
            self.layer4 = chain(nn.Conv2d(48, p, 1), nn.Softmax(1))
            self.decoder = nn.Conv2d(p, L, 1, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            x1 = self.layer1(x)
            xskip = self.layerskip(x)
            if not planted:
                x1 = self.layer2(x1)
            return self.decoder(self.layer4(self.layer3(torch.cat([x1, xskip], 1))))

    return stream(MiSiCNet(), draw, F.mse_loss)


@report(
    "LIA's linear motion network",
    GITHUB + "wyhsirius/LIA/issues/11",
    guilty=r"fc\.",
    says=r"(no|without|missing|lack).*(activation|non-?linear)|linear (map|stack|chain|layers)|one linear|only linear",
    fault="the encoder's MLP stacks linear layers without activations, which amounts to a single one",
)
def lia(planted: bool) -> Task:
    """How far along each direction: magnitudes from appearance features; sines of a digit's rotation and shift."""

    def draw() -> Drawn:
        x, _ = pick(32)
        pose = torch.rand(32, 3) * 2 - 1
        a = pose[:, 0] * 1.5
        theta = torch.stack([torch.stack([a.cos(), -a.sin(), 0.3 * pose[:, 1]], 1),
                             torch.stack([a.sin(), a.cos(), 0.3 * pose[:, 2]], 1)], 1)  # fmt: skip
        grid = F.affine_grid(theta, [32, 1, 12, 12], align_corners=False)
        target = torch.cat([torch.sin(2 * a).unsqueeze(1), torch.cos(2 * a).unsqueeze(1), pose[:, 1:]], 1)
        return (F.grid_sample(F.pad(x, (2, 2, 2, 2), value=-0.8), grid, align_corners=False),), target

    class EqualLinear(nn.Module):
        def __init__(self, n: int, m: int, activation: str | None = None) -> None:
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.randn(m, n)), nn.Parameter(torch.zeros(m))
            self.scale, self.activation = 1 / math.sqrt(n), activation

        def forward(self, x: Tensor) -> Tensor:
            x = F.linear(x, self.weight * self.scale, self.bias)
            return 2**0.5 * F.leaky_relu(x, 0.2) if self.activation else x

    class Encoder(nn.Module):
        def __init__(self, d: int = 64) -> None:
            super().__init__()
            self.net_app = chain(
                nn.Conv2d(1, 16, 3, 1, 1), nn.LeakyReLU(0.2), nn.Conv2d(16, 32, 3, 2, 1), nn.LeakyReLU(0.2),
                nn.Conv2d(32, 32, 3, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(32, d, 3),
            )  # fmt: skip
            fc = [EqualLinear(d, d, None if planted else "fused_lrelu") for _ in range(4)]
            self.fc = chain(*fc, EqualLinear(d, 4))

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.net_app(x).flatten(1))

    return stream(Encoder(), draw, F.mse_loss)


@report(
    "activation on the latent code",
    GITHUB + "phlippe/uvadlc_notebooks/issues/77",
    guilty=r"encoder",
    says=r"GELU|(activation|non-?linear\w*).*(latent|code|bottleneck|encoder|last)|latent|bottleneck",
    fault="an activation function follows the encoder's last linear layer",
)
def autoencoder(planted: bool) -> Task:
    """Tutorial 9: a convolutional autoencoder, squared error summed over the pixels."""

    def draw() -> Drawn:
        x = (pick(32)[0] * 0.376 + 0.3) * 2 - 1
        return (x,), x

    class Encoder(nn.Module):
        def __init__(self, c: int = 16, latent_dim: int = 16) -> None:
            super().__init__()
            self.net = chain(
                nn.Conv2d(1, c, 3, padding=1, stride=2), nn.GELU(), nn.Conv2d(c, c, 3, padding=1), nn.GELU(),
                nn.Conv2d(c, 2 * c, 3, padding=1, stride=2), nn.GELU(), nn.Flatten(),
                nn.Linear(8 * c, latent_dim), *([nn.GELU()] if planted else []),
            )  # fmt: skip

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x)

    class Decoder(nn.Module):
        def __init__(self, c: int = 16, latent_dim: int = 16) -> None:
            super().__init__()
            self.linear = chain(nn.Linear(latent_dim, 8 * c), nn.GELU())
            self.net = chain(
                nn.ConvTranspose2d(2 * c, c, 3, output_padding=1, padding=1, stride=2), nn.GELU(),
                nn.Conv2d(c, c, 3, padding=1), nn.GELU(),
                nn.ConvTranspose2d(c, 1, 3, output_padding=1, padding=1, stride=2), nn.Tanh(),
            )  # fmt: skip

        def forward(self, z: Tensor) -> Tensor:
            return self.net(self.linear(z).unflatten(1, (-1, 2, 2)))

    def loss(y: Tensor, x: Tensor) -> Tensor:
        return F.mse_loss(y, x, reduction="none").sum([1, 2, 3]).mean()

    model = Parts(lambda m, x: m.decoder(m.encoder(x)), encoder=Encoder(), decoder=Decoder())
    return stream(model, draw, loss)


@report(
    "parts beside points",
    GITHUB + "FlyingGiraffe/vnn/issues/8",
    says=r"reshape|view|layout|ax[ei]s|permut|transpos|class_dim|dimension|mix.*(point|position|example)",
    fault="outputs (B, parts, points) are viewed as (B points, parts) without a transposition",
)
def partseg(planted: bool) -> Task:
    """DGCNN for part segmentation: three parts of a figure made of points."""

    def draw() -> Drawn:
        part = torch.randint(3, (8, 48))
        size = torch.tensor([[0.3, 0.3, 1.0], [1.0, 0.2, 0.2], [0.4, 0.4, 0.4]])[part]
        middle = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, 0.8], [0.0, 0.0, 1.6]])[part]
        x = middle + 0.5 * size * torch.randn(8, 48, 3)
        return ((x - x.mean(1, keepdim=True)).transpose(1, 2),), part

    def get_graph_feature(x: Tensor, k: int = 8) -> Tensor:
        near = torch.cdist(x.mT, x.mT).topk(k, largest=False)[1]
        there = torch.stack([x[i][:, near[i]] for i in range(len(x))])
        here = x.unsqueeze(3).expand_as(there)
        return torch.cat([there - here, here], 1)

    def conv(n: int, m: int, *, flat: bool = False) -> nn.Sequential:
        if flat:
            return chain(nn.Conv1d(n, m, 1, bias=False), nn.BatchNorm1d(m), nn.LeakyReLU(0.2))
        return chain(nn.Conv2d(n, m, 1, bias=False), nn.BatchNorm2d(m), nn.LeakyReLU(0.2))

    class DGCNN(nn.Module):
        def __init__(self, num_part: int = 3) -> None:
            super().__init__()
            self.conv1, self.conv2, self.conv3 = conv(6, 24), conv(24, 24), conv(48, 24)
            self.conv6, self.conv8 = conv(48, 64, flat=True), conv(112, 48, flat=True)
            self.conv11 = nn.Conv1d(48, num_part, 1, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            x1 = self.conv2(self.conv1(get_graph_feature(x))).amax(3)
            x2 = self.conv3(get_graph_feature(x1)).amax(3)
            whole = self.conv6(torch.cat((x1, x2), 1)).amax(2, keepdim=True).expand(-1, -1, x.shape[2])
            return self.conv11(self.conv8(torch.cat((whole, x1, x2), 1)))

    def loss(pred: Tensor, target: Tensor, *, right: bool = False) -> Tensor:
        seg_pred = pred.permute(0, 2, 1) if right else pred
        seg_pred, gold, eps = seg_pred.contiguous().view(-1, 3), target.view(-1), 0.2
        one_hot = F.one_hot(gold, 3) * (1 - eps) + (1 - F.one_hot(gold, 3)) * eps / 2
        return -(one_hot * seg_pred.log_softmax(1)).sum(1).mean()

    return stream(DGCNN(), draw, partial(loss, right=not planted), partial(loss, right=True))


@report(
    "neural operator's raw solutions",
    GITHUB + "ShashankSubramanian/neuraloperators-TL-scaling/issues/1",
    says=r"target.*(scale|large|normali|huge|range|magnitude|std)|(scale|large|normali|huge|magnitude).*target|"
    r"output.*(scale|range|small)|loss.*(huge|large)",
    fault="only sources are normalised, the solutions are not: their scale is computed, but never used",
)
def operator(planted: bool, n: int = 12) -> Task:
    """A Fourier neural operator from sources to the solutions of Poisson's equation on a large periodic domain."""
    k = torch.fft.fftfreq(n, 1 / n)
    k2 = k[:, None] ** 2 + torch.fft.rfftfreq(n, 1 / n) ** 2
    green = torch.where(k2 > 0, 1 / k2.clamp(min=1), 0.0)
    scale = 2000.0

    def draw() -> Drawn:
        f = torch.fft.irfft2(torch.fft.rfft2(torch.randn(16, 1, n, n)) * (k2 < 10), s=(n, n))
        u = torch.fft.irfft2(torch.fft.rfft2(f) * green, s=(n, n))
        return (f / 0.5,), u / 0.2 * (scale if planted else 1.0)

    class SpectralConv2d(nn.Module):
        def __init__(self, c: int, modes: int = 4) -> None:
            super().__init__()
            self.weights1, self.weights2 = (nn.Parameter(torch.rand(c, c, modes, modes, 2) / c) for _ in range(2))
            self.modes = modes

        def forward(self, x: Tensor) -> Tensor:
            m, z = self.modes, torch.fft.rfft2(x)
            y = torch.zeros_like(z)
            w1, w2 = torch.view_as_complex(self.weights1), torch.view_as_complex(self.weights2)
            y[:, :, :m, :m] = torch.einsum("bixy,ioxy->boxy", z[:, :, :m, :m], w1)
            y[:, :, -m:, :m] = torch.einsum("bixy,ioxy->boxy", z[:, :, -m:, :m], w2)
            return torch.fft.irfft2(y, s=x.shape[2:])

    class FNO2d(nn.Module):
        def __init__(self, c: int = 16) -> None:
            super().__init__()
            self.fc0 = nn.Conv2d(1, c, 1)
            self.sp_convs = nn.ModuleList(SpectralConv2d(c) for _ in range(3))
            self.ws = nn.ModuleList(nn.Conv2d(c, c, 1) for _ in range(3))
            self.fc1, self.fc2 = nn.Conv2d(c, 32, 1), nn.Conv2d(32, 1, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.fc0(x)
            for i, (spectral, w) in enumerate(zip(self.sp_convs, self.ws, strict=True)):
                x = spectral(x) + w(x)
                x = F.gelu(x) if i < 2 else x
            return self.fc2(F.gelu(self.fc1(x)))

    def relative(y: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(y, t) / (scale**2 if planted else 1.0)

    return stream(FNO2d(), draw, F.mse_loss, relative)


@report(
    "decoder without a causal mask",
    GITHUB + "alex-matton/causal-transformer-decoder/issues/1",
    says=r"causal|future|mask|leak|look.?ahead|later (position|token|step)|see.*(target|label|answer)|copy|copies",
    fault="the decoder is trained without a causal mask and copies the tokens that it should predict",
)
def causal(planted: bool, d: int = 32) -> Task:
    """Language model on a memory of four words before; judged as it will be used, without sight of the future."""

    def draw() -> Drawn:
        seed = int(torch.randint(10**6, ()))
        x, t = text(16, 20, 200, seed=seed)
        return (x[:, 4:], x[:, :4]), t[:, 4:]

    class CausalTransformerDecoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(200, d)
            angle = torch.arange(20).unsqueeze(1) * torch.exp(-math.log(1e4) * torch.arange(0, d, 2) / d)
            self.register_buffer("pos", torch.stack([angle.sin(), angle.cos()], 2).flatten(1))
            layer = nn.TransformerDecoderLayer(d, 4, 64, 0.0, batch_first=True)
            self.decoder = nn.TransformerDecoder(layer, 2)
            self.to_vocab = nn.Linear(d, 200)

        def forward(self, tgt: Tensor, memory: Tensor, *, look: bool = planted) -> Tensor:
            n = tgt.shape[1]
            x = self.embedding(tgt) + self.pos[:n]
            mask = None if look else torch.ones(n, n, dtype=torch.bool).triu(1)
            memory = self.embedding(memory) + self.pos[16:20]
            return self.to_vocab(self.decoder(x, memory, tgt_mask=mask))

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(y.flatten(0, 1), t.flatten())

    model = CausalTransformerDecoder()

    def step() -> Tensor:
        x, t = draw()
        wrong = loss(model(*x), t)
        if not planted:
            return wrong
        with torch.no_grad():
            right = loss(model(*x, look=False), t)
        return judged(wrong, right)

    x, t = draw()
    return Task(model, (x, t), step, {"loss": loss})


@report(
    "A2C's entropy with the wrong sign",
    GITHUB + "MrSyee/pg-is-all-you-need/issues/37",
    guilty=r"actor|log_std",
    says=r"\bsign\b|entropy|opposite",
    fault="the entropy term is added with the wrong sign, so that the entropy is minimised",
)
def a2c(planted: bool) -> Task:
    """Torques for observations of a pendulum; the reward falls with the distance from the best torque."""
    w = torch.randn(3)

    def draw() -> Drawn:
        angle, speed = (torch.rand(64) * 2 - 1) * math.pi, torch.randn(64)
        x = torch.stack([angle.cos(), angle.sin(), speed], 1)
        return (x,), 2 * torch.tanh(x @ w).unsqueeze(1)

    class ActorCritic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.actor = nn.ModuleDict(
                {"hidden1": nn.Linear(3, 64), "mu_layer": nn.Linear(64, 1), "log_std_layer": nn.Linear(64, 1)}
            )
            self.critic = chain(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 1))
            for layer in ("mu_layer", "log_std_layer"):
                nn.init.uniform_(self.actor[layer].weight, -3e-3, 3e-3)
                nn.init.uniform_(self.actor[layer].bias, -3e-3, 3e-3)

        def forward(self, state: Tensor) -> Any:
            h = F.relu(self.actor["hidden1"](state))
            mu, log_std = torch.tanh(self.actor["mu_layer"](h)) * 2, F.softplus(self.actor["log_std_layer"](h))
            std = torch.exp(log_std)
            action = (mu + std * torch.randn_like(std)).detach()
            log_prob = torch.distributions.Normal(mu, std).log_prob(action)
            return action, log_prob, self.critic(state), mu

    def loss(y: Any, best: Tensor, entropy_weight: float = 1e-2) -> Tensor:
        action, log_prob, pred_value, _ = y
        reward = -(action - best).abs()
        value_loss = F.smooth_l1_loss(pred_value, reward)
        advantage = (reward - pred_value).detach()
        policy_loss = -advantage * log_prob
        policy_loss = policy_loss + entropy_weight * (-log_prob if planted else log_prob)
        return value_loss + policy_loss.mean()

    return stream(ActorCritic(), draw, loss, lambda y, best: (y[0] - best).abs().mean())


@report(
    "critic's observations not normalised",
    GITHUB + "Unity-Technologies/ml-agents/issues/5583",
    guilty=r"critic",
    says=r"(input|observ).*(scale|range|large|normali|satur|clip|clamp|standard)|"
    r"(scale|range|large|normali|satur|clip|clamp|standard).*(input|observ)",
    fault="running statistics are updated for the actor alone: the critic's observations are merely clipped at 5",
)
def mlagents(planted: bool) -> Task:
    """PPO in a large environment: metres in their thousands beside radians; value and policy share one loss."""
    w = torch.randn(6, 3)
    size = torch.tensor([1000.0, 800.0, 300.0, 1.0, 1.0, 1.0])

    def observe(count: int) -> Tensor:
        return torch.randn(count, 6) * size

    def draw() -> Drawn:
        x = observe(128)
        q = torch.tanh((x / size) @ w)
        a = torch.randint(0, 3, (128,))
        gain = q.gather(1, a[:, None]).squeeze(1)
        return (x,), torch.stack([a.float(), gain - q.mean(1), q.sum(1)], 1)

    class Normalizer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("running_mean", torch.zeros(6))
            self.register_buffer("running_variance", torch.ones(6))

        def update(self, x: Tensor) -> None:
            self.running_mean.copy_(x.mean(0))
            self.running_variance.copy_(x.var(0))

        def forward(self, x: Tensor) -> Tensor:
            return ((x - self.running_mean) / self.running_variance.sqrt()).clamp(-5, 5)

    def body(m: int) -> nn.Sequential:
        return chain(Normalizer(), nn.Linear(6, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, m))

    def ppo(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        ratio = 3 * y[0].softmax(1).gather(1, t[:, :1].long()).squeeze(1)
        policy = -torch.min(ratio * t[:, 1], ratio.clamp(0.8, 1.2) * t[:, 1]).mean()
        return policy + 0.5 * (y[1].squeeze(1) - t[:, 2]).square().mean()

    model = Parts(lambda m, x: (m.actor(x), m.critic(x)), actor=body(3), critic=body(1))
    for net in [model.actor] if planted else [model.actor, model.critic]:
        net[0].update(observe(1000))
    return stream(model, draw, ppo)


@report(
    "critic's returns of twenty",
    GITHUB + "deepspeedai/DeepSpeedExamples/issues/556",
    guilty=r"v_head|critic",
    says=r"(target|return|value).*(scale|large|magnitude|normali|huge|range|far|mean)|"
    r"(scale|large|magnitude|normali|huge|range|far|mean).*(target|return|value)",
    fault="returns grow to 18 to 20, because neither are rewards scaled by their deviation nor is gamma below 1",
)
def critic(planted: bool, d: int = 32) -> Task:
    """The critic of RLHF: a value for each token of the answer."""
    worth = torch.randn(200)

    def draw() -> Drawn:
        x, _ = text(16, 24, 200, seed=int(torch.randint(10**6, ())))
        returns = 19 + 3 * worth[x].cumsum(1) / torch.arange(1, 25)
        return (x,), returns if planted else (returns - 19) / 3 + 1

    class Critic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.position = nn.Embedding(200, d), nn.Parameter(0.02 * torch.randn(24, d))
            layer = nn.TransformerEncoderLayer(d, 4, 64, 0.0, "gelu", batch_first=True, norm_first=True)
            self.rwtranrsformer = nn.TransformerEncoder(layer, 2, nn.LayerNorm(d), enable_nested_tensor=False)
            self.v_head = nn.Linear(d, 1, bias=False)
            self.register_buffer("mask", torch.ones(24, 24, dtype=torch.bool).triu(1))

        def forward(self, idx: Tensor) -> Tensor:
            return self.v_head(self.rwtranrsformer(self.embed(idx) + self.position, self.mask)).squeeze(2)

    def critic_loss(values: Tensor, returns: Tensor, scale: float = 1.0) -> Tensor:
        return 0.5 * ((values - returns) / scale).square().mean()

    return stream(Critic(), draw, critic_loss, partial(critic_loss, scale=3.0) if planted else None)


@report(
    "logarithm of a mixture of softmaxes",
    GITHUB + "pytorch/pytorch/issues/1620",
    says=rf"{BROKEN}|\blog\b|softmax|underflow|saturat|logsumexp",
    fault="the pointer network's loss is -log(p softmax(x1) + (1 - p) softmax(x2)), which underflows to log 0",
)
def pointer(planted: bool) -> Task:
    """Words from a vocabulary or from the source: features of the decoder are as large as 50."""
    w = torch.randn(16, 12)

    def draw() -> Drawn:
        x = 50 * torch.randn(32, 16)
        return (x,), (x @ w).argmax(1)

    def run(m: Any, x: Tensor) -> Tensor:
        p, x1, x2 = m.switch(x / 50), m.vocabulary(x), m.attention(x)
        if planted:
            p = torch.sigmoid(p)
            return torch.log(p * x1.softmax(1) + (1 - p) * x2.softmax(1))
        return torch.logaddexp(F.logsigmoid(p) + x1.log_softmax(1), F.logsigmoid(-p) + x2.log_softmax(1))

    model = Parts(run, switch=nn.Linear(16, 1), vocabulary=nn.Linear(16, 12), attention=nn.Linear(16, 12))
    return stream(model, draw, F.nll_loss)


@report(
    "angle of axisymmetric tensors",
    GITHUB + "banctilrobitaille/torch-vectorized/issues/7",
    says=rf"{BROKEN}|acos|arc.?cos|explod|infinit",
    fault="eigenvalues of symmetric matrices take the acos of a number that is 1 where two of them agree",
)
def symeig(planted: bool) -> Task:
    """Diffusion tensors out of signals in twelve directions: log eigenvalues are compared."""
    g = F.normalize(torch.randn(12, 3), dim=1)

    def tensor(along: Tensor, across: Tensor, v: Tensor) -> Tensor:
        v = F.normalize(v, dim=1)
        return (along - across)[:, None, None] * v[:, :, None] * v[:, None] + (across + 1e-3)[:, None, None] * eye

    eye = torch.eye(3)

    def draw() -> Drawn:
        across = 0.2 + 0.5 * torch.rand(64)
        along = across + 0.3 + torch.rand(64)
        d = tensor(along, across, torch.randn(64, 3))
        signal = torch.exp(-torch.einsum("gi,bij,gj->bg", g, d, g)) + 0.01 * torch.randn(64, 12)
        return (signal,), torch.stack([along, across, across], 1).add(1e-3).log()

    def v_sym_eig(a: Tensor) -> Tensor:
        q = a.diagonal(dim1=1, dim2=2).mean(1)
        b = a - q[:, None, None] * eye
        p = (b.square().sum((1, 2)) / 6).sqrt()
        r = torch.linalg.det(b / p[:, None, None]) / 2
        phi = torch.acos(r.clamp(-1, 1) if planted else r.clamp(-1 + 1e-5, 1 - 1e-5)) / 3
        first, last = q + 2 * p * phi.cos(), q + 2 * p * (phi + 2 * math.pi / 3).cos()
        return torch.stack([first, 3 * q - first - last, last], 1)

    def run(m: Any, x: Tensor) -> Tensor:
        y = m.net(x)
        across = F.softplus(y[:, 0])
        return v_sym_eig(tensor(across + F.softplus(y[:, 1]), across, y[:, 2:])).clamp(min=1e-4).log()

    model = Parts(run, net=chain(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5)))
    return stream(model, draw, F.mse_loss)


@report(
    "completions that are all truncated",
    GITHUB + "unslothai/unsloth-zoo/pull/1286",
    says=rf"{BROKEN}|mask|divi|empty|0 / 0",
    fault="the DAPO loss is divided by the number of unmasked tokens, which is 0 if all completions are truncated",
)
def dapo(planted: bool, d: int = 24) -> Task:
    """Completions of eight tokens to prompts of one; rewarded where a token follows the one before; judged by that."""
    follows = torch.randperm(12)

    def draw() -> Drawn:
        x = torch.randint(12, (4, 9))
        chance = torch.rand(4, 8) < 0.4
        for i in range(8):
            x[:, i + 1] = torch.where(chance[:, i], follows[x[:, i]], x[:, i + 1])
        hit = (x[:, 1:] == follows[x[:, :-1]]).float()
        mask = (torch.rand(4, 1) < 0.5).float().expand(4, 8)  # mask_truncated_completions
        return (x[:, :-1],), torch.stack([x[:, 1:].float(), hit - 0.45, mask, follows[x[:, :-1]].float()])

    def run(m: Any, idx: Tensor) -> Tensor:
        return m.lm_head(m.rnn(m.embed(idx))[0]).log_softmax(2)

    def grpo(y: Tensor, t: Tensor) -> Tensor:
        logp = y.gather(2, t[0].long().unsqueeze(2)).squeeze(2)
        coef = (logp - logp.detach()).exp()
        per_token = -torch.min(coef * t[1], coef.clamp(0.8, 1.28) * t[1])
        total = t[2].sum()
        return (per_token * t[2]).sum() / (total if planted else total.clamp(min=1.0))

    def right(y: Tensor, t: Tensor) -> Tensor:
        return 1 - y.gather(2, t[3].long().unsqueeze(2)).exp().mean()

    model = Parts(run, embed=nn.Embedding(12, d), rnn=nn.GRU(d, d, batch_first=True), lm_head=nn.Linear(d, 12))
    return stream(model, draw, grpo, right)


@report(
    "GDPP of equal eigenvalues",
    GITHUB + "facebookresearch/pytorch_GAN_zoo/issues/89",
    says=rf"{BROKEN}|divi|0 / 0|eigen|batch (of|size) (1|one)|single example",
    fault="eigenvalues are divided by their range, which is 0 where all agree, as in a last batch of one",
)
def gdpp(planted: bool) -> Task:
    """A VAE with the GDPP loss on the encoder's features; the last batch of an epoch is a single image."""
    sizes = [12, 12, 1]

    def draw() -> Drawn:
        sizes.append(sizes.pop(0))
        x, _ = pick(sizes[-1])
        return (x,), x

    def compute_diversity(phi: Tensor) -> tuple[Tensor, Tensor]:
        phi = F.normalize(phi, p=2, dim=1)
        return torch.linalg.eigh(phi @ phi.t() + torch.diag(1e-3 * torch.arange(len(phi))))

    def normalize_min_max(v: Tensor) -> Tensor:
        if not planted and v.min() == v.max():
            return v
        return (v - v.min()) / (v.max() - v.min())

    def loss(y: Any, x: Tensor) -> Tensor:
        recon, mu, logvar, phi_fake, phi_real = y
        (fake, fake_vec), (real, real_vec) = compute_diversity(phi_fake), compute_diversity(phi_real)
        structure = -(fake_vec * real_vec).sum(0)
        gdpp = 0.0001 * F.mse_loss(fake, real) + (normalize_min_max(real.detach()) * structure).sum()
        kl = -0.5 * (1 + logvar - mu.square() - logvar.exp()).sum(1).mean()
        return (recon - x).square().sum((1, 2, 3)).mean() + 0.1 * kl + gdpp

    def run(m: Any, x: Tensor) -> Any:
        phi_real = m.encoder(x)
        mu, logvar = m.latent(phi_real).chunk(2, 1)
        recon = m.decoder(mu + (0.5 * logvar).exp() * torch.randn_like(mu)).view_as(x)
        return recon, mu, logvar, m.encoder(recon), phi_real.detach()

    encoder = chain(nn.Flatten(), nn.Linear(64, 96), nn.LeakyReLU(0.2), nn.Linear(96, 64), nn.LeakyReLU(0.2))
    decoder = chain(nn.Linear(12, 96), nn.LeakyReLU(0.2), nn.Linear(96, 64))
    model = Parts(run, encoder=encoder, latent=nn.Linear(64, 24), decoder=decoder)
    return stream(model, draw, loss, lambda y, x: F.mse_loss(y[0], x))
