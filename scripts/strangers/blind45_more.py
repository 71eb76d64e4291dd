"""The second half of the forty-fifth set: faults that forum pages and issues tell, written without sight of rules."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import GITHUB, MIXED
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, SAME, Drawn
from strangers.blind45 import SCALE, TARGETS
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind45")
SHARED = r"shar|same (module|layer|weight|object|instance)|tied|twice|reus|one (module|layer)|instance"


@report(
    "all nodes squashed to one",
    "https://thearchivebase.com/question/im-using-this-article-to-implement-a-neural-network-with-backpropagation-but-having-trouble",
    guilty=r"weights|hidden|output",
    says=rf"saturat|sigmoid|initial|positive|{SAME}|(weights?|pre-?activations?|sums?|logits?).*large|{SCALE}",
    fault="weights between 0 and 1 add up over all inputs of a node: each sigmoid returns 1.0",
)
def squashed(planted: bool) -> Task:
    def draw() -> Drawn:
        x, c = pick(50)
        return ((x * 0.376 + 0.3).flatten(1),), F.one_hot(c, 10).float()

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden_weights, self.output_weights = (
                nn.Parameter(torch.rand(64, 40)),
                nn.Parameter(torch.rand(40, 10)),
            )
            if not planted:
                for w in (self.hidden_weights, self.output_weights):
                    w.data /= w.data.sum(0)

        def forward(self, x: Tensor) -> Tensor:
            return ((x @ self.hidden_weights).sigmoid() @ self.output_weights).sigmoid()

    return stream(Network(), draw, lambda y, t: 0.5 * F.mse_loss(y, t))


@report(
    "a sigmoid asked for a hundred",
    "http://stackoverflow.com/questions/14982358",
    guilty=r"jk",
    says=rf"sigmoid|{TARGETS}|saturat|(outputs?|last layer).*(bound|range|between)",
    fault="targets are 0 to 100, the output is a sigmoid",
)
def hundred(planted: bool) -> Task:
    mix = torch.randn(43) / 43**0.5

    def draw() -> Drawn:
        x = torch.randn(64, 43)
        return (x,), 100 * (1.5 * (x @ mix) + 0.5 * (x[:, 0] * x[:, 1]).tanh()).sigmoid().unsqueeze(1)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ij, self.jk = nn.Linear(43, 20), nn.Linear(20, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.jk(self.ij(x).sigmoid()).sigmoid()

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return 0.5 * F.mse_loss(y, t if planted else t / 100)

    def right(y: Tensor, t: Tensor) -> Tensor:
        return loss(y, t) / (1e4 if planted else 1.0)

    return stream(Net(), draw, loss, right)


@report(
    "a sine without negatives",
    "http://stackoverflow.com/questions/5105718",
    guilty=r"output",
    says=rf"sigmoid|{TARGETS}|negative|(outputs?|last layer).*(bound|range|between|positive)",
    fault="the sine of a sum is asked of a sigmoid, which has no negative values",
)
def sine(planted: bool) -> Task:
    def draw() -> Drawn:
        x = torch.cat([torch.randint(-1, 2, (81, 4)).float(), torch.ones(81, 1)], 1)
        return (x,), x.sum(1, keepdim=True).sin()

    class Perceptron(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden, self.output = nn.Linear(5, 6, bias=False), nn.Linear(6, 1)

        def forward(self, x: Tensor) -> Tensor:
            a = self.output(self.hidden(x).sigmoid())
            return a.sigmoid() if planted else a.tanh()

    return stream(Perceptron(), draw, lambda y, t: 0.5 * F.mse_loss(y, t))


@report(
    "stripes attend across the batch",
    GITHUB + "aipixel/AEMatter/issues/3",
    guilty=r"attn|multihead",
    says=rf"{MIXED}|batch.?first|sequence dim|wrong (axis|dim)",
    fault="stripes (b h1, tokens, c) enter nn.MultiheadAttention without batch_first: stripes attend to one another",
)
def aematter(planted: bool) -> Task:
    """Appearance enhanced axis-wise learning: half of the channels attends within rows, the other within columns."""

    def draw() -> Drawn:
        x, _ = pick(24)
        x = x * (0.3 + torch.rand(24, 1, 1, 1)) + torch.randn(24, 1, 1, 1)
        stripe = x.unflatten(2, (4, 2)).mean((3, 4), keepdim=True).expand(-1, -1, 4, 2, 8).flatten(2, 3)
        return (x,), (x > stripe).float()

    class AEALblock(nn.Module):
        def __init__(self, c: int = 32, width: int = 2) -> None:
            super().__init__()
            self.width = width
            self.self_attn1 = nn.MultiheadAttention(c // 2, 2, batch_first=not planted)
            self.self_attn2 = nn.MultiheadAttention(c // 2, 2, batch_first=not planted)
            self.norm1, self.norm2 = nn.LayerNorm(c), nn.LayerNorm(c)
            self.linear1, self.linear2 = nn.Linear(c, 2 * c), nn.Linear(2 * c, c)

        def forward(self, src: Tensor) -> Tensor:
            b, c, h, w = src.shape
            n = self.width
            x1, x2 = src[:, : c // 2], src[:, c // 2 :].transpose(2, 3)
            outs = []
            for x, attn in ((x1, self.self_attn1), (x2, self.self_attn2)):
                x_ = x.unflatten(2, (h // n, n)).permute(0, 2, 3, 4, 1).reshape(b * h // n, n * w, c // 2)
                y = attn(x_, x_, x_)[0]
                outs.append(y.reshape(b, h // n, n, w, c // 2).flatten(1, 2).permute(0, 3, 1, 2))
            y = torch.cat([outs[0], outs[1].transpose(2, 3)], 1)
            z = self.norm1((src + y).permute(0, 2, 3, 1))
            z = self.norm2(z + self.linear2(F.relu(self.linear1(z))))
            return z.permute(0, 3, 1, 2)

    class Matting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.head = nn.Conv2d(1, 32, 1), nn.Conv2d(32, 1, 1)
            self.blocks = chain(AEALblock(), AEALblock())

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.blocks(self.stem(x)))

    return stream(Matting(), draw, F.binary_cross_entropy_with_logits)


@report(
    "one residual block times three",
    GITHUB + "zalandoresearch/pytorch-vq-vae/issues/2",
    guilty=r"residual_stack|_layers",
    says=SHARED,
    fault="[Residual(...)] * n in a ModuleList: all residual layers are one and the same",
)
def residual_stack(planted: bool) -> Task:
    """The autoencoder of the notebook without its quantiser, on digits with noise."""

    def draw() -> Drawn:
        x, _ = pick(32)
        return (x + 0.5 * torch.randn_like(x),), x

    class Residual(nn.Module):
        def __init__(self, in_channels: int, num_hiddens: int, num_residual_hiddens: int) -> None:
            super().__init__()
            self._block = chain(
                nn.ReLU(),
                nn.Conv2d(in_channels, num_residual_hiddens, 3, padding=1, bias=False),
                nn.ReLU(),
                nn.Conv2d(num_residual_hiddens, num_hiddens, 1, bias=False),
            )

        def forward(self, x: Tensor) -> Tensor:
            return x + self._block(x)

    class ResidualStack(nn.Module):
        def __init__(self, in_channels: int, num_hiddens: int, num_residual_layers: int, hiddens: int) -> None:
            super().__init__()
            if planted:
                layers = [Residual(in_channels, num_hiddens, hiddens)] * num_residual_layers
            else:
                layers = [Residual(in_channels, num_hiddens, hiddens) for _ in range(num_residual_layers)]
            self._layers = nn.ModuleList(layers)

        def forward(self, x: Tensor) -> Tensor:
            for layer in self._layers:
                x = layer(x)
            return F.relu(x)

    model = chain(
        nn.Conv2d(1, 24, 4, 2, 1),
        nn.ReLU(),
        nn.Conv2d(24, 24, 3, padding=1),
        ResidualStack(24, 24, 3, 12),
        nn.ConvTranspose2d(24, 1, 4, 2, 1),
    )
    return stream(model, draw, F.mse_loss)


@report(
    "one MLP for pitch and loudness",
    GITHUB + "acids-ircam/ddsp_pytorch/issues/37",
    guilty=r"in_mlps",
    says=SHARED,
    fault="ModuleList([mlp(1, hidden, 3)] * 2): pitch and loudness pass through one MLP of shared weights",
)
def ddsp(planted: bool) -> Task:
    """Amplitudes of eight harmonics out of pitch and loudness over time."""

    def mlp(in_size: int, hidden_size: int, n_layers: int) -> nn.Sequential:
        sizes = [in_size] + n_layers * [hidden_size]
        net: list[nn.Module] = []
        for i in range(n_layers):
            net += [nn.Linear(sizes[i], sizes[i + 1]), nn.LayerNorm(sizes[i + 1]), nn.LeakyReLU()]
        return nn.Sequential(*net)

    def draw() -> Drawn:
        pitch, loudness = (torch.randn(16, 12, 1).cumsum(1) / 3 for _ in range(2))
        k = torch.arange(1, 9)
        t = loudness.sigmoid() * (1 + (k * pitch + loudness).cos()) / k.sqrt()
        return (pitch, loudness), t

    class DDSP(nn.Module):
        def __init__(self, hidden_size: int = 32, n_harmonic: int = 8) -> None:
            super().__init__()
            if planted:
                self.in_mlps = nn.ModuleList([mlp(1, hidden_size, 3)] * 2)
            else:
                self.in_mlps = nn.ModuleList(mlp(1, hidden_size, 3) for _ in range(2))
            self.gru = nn.GRU(2 * hidden_size, hidden_size, batch_first=True)
            self.out_mlp = mlp(hidden_size + 2, hidden_size, 3)
            self.proj = nn.Linear(hidden_size, n_harmonic)

        def forward(self, pitch: Tensor, loudness: Tensor) -> Tensor:
            hidden = torch.cat([self.in_mlps[0](pitch), self.in_mlps[1](loudness)], -1)
            hidden = torch.cat([self.gru(hidden)[0], pitch, loudness], -1)
            return 2 * self.proj(self.out_mlp(hidden)).sigmoid() ** 2.3 + 1e-7

    return stream(DDSP(), draw, F.mse_loss)


@report(
    "a transposed copy of the cores",
    GITHUB + "KhrulkovV/tt-pytorch/issues/4",
    guilty=r"core|weight",
    says=rf"{CUT}|regist|copy|never.*(used|train)|unused|parameters?.*(not|no).*(gradient|used|reach)|no effect",
    fault="TTLinear computes with weight_t, a transposed copy made once: the parameters of weight are never used",
)
def tt_linear(planted: bool) -> Task:
    def draw() -> Drawn:
        x, c = pick(64)
        return (x.flatten(1),), c

    class TTLinear(nn.Module):
        """Matrix of (8 a, 8 b) as a train of two cores of rank 4."""

        def __init__(self, shape: tuple[int, int], rank: int = 4) -> None:
            super().__init__()
            a, b = shape
            self.core0 = nn.Parameter(torch.randn(8, a, rank) / (8 * rank) ** 0.5)
            self.core1 = nn.Parameter(torch.randn(rank, 8, b) / 8**0.5)
            self.weight_t = [self.core0.detach().clone().transpose(0, 1), self.core1.detach().clone().transpose(1, 2)]
            self.bias = nn.Parameter(torch.zeros(a * b))

        def forward(self, x: Tensor) -> Tensor:
            cores = self.weight_t if planted else [self.core0.transpose(0, 1), self.core1.transpose(1, 2)]
            y = torch.einsum("nij,air,rbj->nab", x.unflatten(1, (8, 8)), *cores)
            return y.flatten(1) + self.bias

    model = chain(TTLinear((8, 8)), nn.ReLU(), TTLinear((2, 5)))
    return stream(model, draw, F.cross_entropy)


class Vae(nn.Module):
    """An encoder to a mean and a log variance, a decoder that ends in a sigmoid."""

    def __init__(
        self, n: int = 64, hidden: int = 64, latent: int = 8, *, samples: int = 1, linear: bool = False
    ) -> None:
        super().__init__()
        hidden = 64
        self.encoder = chain(nn.Linear(n, hidden), nn.ReLU())
        self.fc_mu, self.fc_var = nn.Linear(hidden, latent), nn.Linear(hidden, latent)
        self.decoder = chain(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, n))
        self.samples, self.linear = samples, linear

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = self.encoder(x)
        mu, log_var = self.fc_mu(h), self.fc_var(h)
        z = mu + torch.randn(self.samples, *mu.shape) * (0.5 * log_var).exp()
        y = self.decoder(z)
        return (y if self.linear else y.sigmoid()), mu, log_var


def divergence(mu: Tensor, log_var: Tensor) -> Tensor:
    return -0.5 * (1 + log_var - mu.square() - log_var.exp()).sum(1).mean()


@report(
    "BCE of normalised images",
    GITHUB + "Lightning-Universe/lightning-bolts/issues/177",
    guilty=r"decoder\.2",
    says=rf"{TARGETS}|sigmoid|binary|bce|negative|unbounded|probabilit|\[0, 1\]|between 0 and 1",
    fault="targets of the binary cross entropy are standardised pixels, outside of 0 to 1",
)
def bolts(planted: bool) -> Task:
    def draw() -> Drawn:
        x = pick(64)[0].flatten(1)
        return (x,), x

    def loss(y: tuple[Tensor, Tensor, Tensor], x: Tensor) -> Tensor:
        y_hat, mu, log_var = y
        t = x.expand_as(y_hat)
        p = y_hat.clamp(1e-6, 1 - 1e-6)  # as binary_cross_entropy did before it refused such targets
        recon = -(t * p.log() + (1 - t) * (1 - p).log()).mean() if planted else F.mse_loss(y_hat, t)
        return recon + 0.01 * divergence(mu, log_var)

    def right(y: tuple[Tensor, Tensor, Tensor], x: Tensor) -> Tensor:
        return F.mse_loss(y[0], x.expand_as(y[0]))

    return stream(Vae(linear=not planted), draw, loss, right)


@report(
    "variational loss falls below zero",
    GITHUB + "Lasagne/Recipes/issues/54",
    guilty=r"decoder\.2|encoder\.0",
    says=rf"{TARGETS}|{SCALE}|sigmoid|binary|bce|negative|unbounded|probabilit|\[0, 1\]|between 0 and 1",
    fault="colour images of 0 to 255 as targets of a binary cross entropy: the loss has no lower bound",
)
def lasagne(planted: bool) -> Task:
    unit = 1.0 if planted else 255.0

    def draw() -> Drawn:
        x = (pick(64)[0] * 0.376 + 0.3).clamp(0, 1) * (0.3 + 0.7 * torch.rand(64, 3, 1, 1))
        x = (255 * x).round().flatten(1) / unit
        return (x,), x

    def loss(y: tuple[Tensor, Tensor, Tensor], x: Tensor) -> Tensor:
        p, mu, log_sigma = y
        p = p.clamp(1e-6, 1 - 1e-6)
        each = -(x * p.log() + (1 - x) * (1 - p).log())
        return each.sum(2).mean() + divergence(mu, log_sigma)

    def right(y: tuple[Tensor, Tensor, Tensor], x: Tensor) -> Tensor:
        return F.mse_loss(y[0], (x * unit / 255).expand_as(y[0]))

    return stream(Vae(192, samples=2), draw, loss, right)


@report(
    "ReLU on the output layer",
    GITHUB + "chelsea0x3b/dfdx/issues/486",
    guilty=r"^4\.",
    says=rf"relu|negative|{TARGETS}|dead|clip|zero.*gradient|gradient.*zero|no gradient|last (layer|activation)",
    fault="a ReLU clips the outputs, many of whose targets are negative",
)
def dfdx(planted: bool) -> Task:
    mix = torch.randn(6, 3) / 6**0.5

    def draw() -> Drawn:
        x = torch.randn(32, 6)
        return (x,), (x @ mix).tanh() - 0.3 + 0.1 * torch.randn(32, 3)

    model = chain(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))
    return stream(chain(*model, nn.ReLU()) if planted else model, draw, F.mse_loss)


@report(
    "contrastive loss turned around",
    GITHUB + "keras-team/keras/issues/4980",
    says=r"contrastive|margin|\bsign\b|swap|invert|revers|turned|pairs?.*(apart|together|wrong|same|one class)",
    fault="pairs of one class are labelled 1, and the contrastive loss pushes those labelled 1 apart",
)
def contrastive(planted: bool) -> Task:
    def draw() -> Drawn:
        a, c = pick(64)
        b, d = pick(64)
        same = torch.arange(64) < 32
        order = torch.stack([(c[i] == d).float().add(1e-6 * torch.rand(64)).argmax() for i in range(64)])
        b, d = torch.where(same[:, None, None, None], b[order], b), torch.where(same, d[order], d)
        return (a, b), (c == d).float()

    def loss(y_pred: Tensor, y_true: Tensor, *, swapped: bool = planted, margin: float = 1.0) -> Tensor:
        pull, push = y_pred.square(), F.relu(margin - y_pred).square()
        return ((1 - y_true) * pull + y_true * push if swapped else y_true * pull + (1 - y_true) * push).mean()

    class Siamese(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base_network = chain(
                nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 64), nn.ReLU()
            )

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            a, b = self.base_network(a), self.base_network(b)
            return (a - b).square().sum(1).clamp(min=1e-7).sqrt()

    return stream(Siamese(), draw, loss, lambda y, t: loss(y, t, swapped=False))


@report(
    "solitaire returns in thousands",
    GITHUB + "google-deepmind/open_spiel/issues/742",
    guilty=r"q_network\.4",
    says=rf"{TARGETS}|rewards?|returns?|loss.*(large|huge|start|grow)|(outputs?|values?).*(large|scale|far)",
    fault="rewards of solitaire are in the thousands: Q values must grow that far from a start near zero",
)
def solitaire(planted: bool) -> Task:
    """One-step Q learning with a frozen target network; returns are of the order of 1000 or within 0 and 1."""
    scale, mix = (3000.0 if planted else 1.0), torch.randn(10, 4) / 10**0.5

    def draw() -> Drawn:
        s, a = torch.randn(64, 10), torch.randint(4, (64, 1))
        value = (s @ mix).sigmoid().gather(1, a)
        return (s, a), scale * (value + 0.05 * torch.randn(64, 1))

    class DQN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q_network = chain(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))

        def forward(self, s: Tensor, a: Tensor) -> Tensor:
            return self.q_network(s).gather(1, a)

    return stream(DQN(), draw, F.mse_loss, lambda y, t: F.mse_loss(y / scale, t / scale))
