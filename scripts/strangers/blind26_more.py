"""The rest of the twenty-sixth set: losses, policies, gates and layers of which reports tell."""

from __future__ import annotations

from functools import partial
from itertools import permutations
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Normal

from strangers.apart import BROKEN, GITHUB, judged
from strangers.blind2 import stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, Drawn
from strangers.blind26 import SHAPES
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind26")
UNREGISTERED = r"regist|ModuleList|\blist\b|parameters\(\)|not.*(train|optimi)"


@report(
    "U-Net masks of 255",
    GITHUB + "milesial/Pytorch-UNet/issues/269",
    says=r"(target|label|mask).*(range|\b[01]\b|one|scale|large|255|outside|between|binar|probabilit)|negative",
    fault="the target masks are 0 and 255, not 0 and 1: the binary cross entropy goes far below zero",
)
def unet(planted: bool) -> Task:
    """Bright discs in noise are to be segmented."""
    at = torch.arange(16).float()

    def draw() -> Drawn:
        centre, r = torch.rand(12, 2) * 10 + 3, torch.rand(12) * 2 + 2
        d = (at.view(1, 16, 1) - centre[:, 0].view(-1, 1, 1)) ** 2 + (at - centre[:, 1].view(-1, 1, 1)) ** 2
        mask = (d < (r**2).view(-1, 1, 1)).float().unsqueeze(1)
        return (mask + 0.8 * torch.randn_like(mask),), mask * (255 if planted else 1)

    def double_conv(a: int, b: int) -> nn.Sequential:
        return chain(
            nn.Conv2d(a, b, 3, padding=1),
            nn.BatchNorm2d(b),
            nn.ReLU(inplace=True),
            nn.Conv2d(b, b, 3, padding=1),
            nn.BatchNorm2d(b),
            nn.ReLU(inplace=True),
        )

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inc, self.down1, self.down2 = double_conv(1, 8), double_conv(8, 16), double_conv(16, 16)
            self.up1, self.up2, self.outc = double_conv(32, 8), double_conv(16, 8), nn.Conv2d(8, 1, 1)

        def forward(self, x: Tensor) -> Tensor:
            a = self.inc(x)
            b = self.down1(F.max_pool2d(a, 2))
            c = self.down2(F.max_pool2d(b, 2))
            b = self.up1(torch.cat([b, F.interpolate(c, scale_factor=2.0, mode="bilinear")], 1))
            return self.outc(self.up2(torch.cat([a, F.interpolate(b, scale_factor=2.0, mode="bilinear")], 1)))

    def right(y: Tensor, t: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(y, t.clamp(max=1))

    return stream(UNet(), draw, F.binary_cross_entropy_with_logits, right)


@report(
    "batch-based Monte Carlo of one example",
    GITHUB + "jiawei-ren/BalancedMSE/issues/19",
    says=rf"{CUT}|batch.*(\bof 1\b|\b1\b|\bone\b|single)|(\bone|single|only) example|loss.*(constant|always|zero)",
    fault="the loss contrasts the examples of a batch, and a batch has one: it is 0 whatever the outputs",
)
def bmc(planted: bool) -> Task:
    w = torch.randn(6)

    def draw(count: int = 1 if planted else 32) -> Drawn:
        x = torch.randn(count, 6)
        return (x,), (torch.sin(x @ w) + x[:, 0]).unsqueeze(1)

    def bmc_loss(pred: Tensor, target: Tensor, noise_var: float = 0.01) -> Tensor:
        logits = -(pred - target.T).pow(2) / (2 * noise_var)
        return F.cross_entropy(logits, torch.arange(pred.shape[0])) * (2 * noise_var)

    model = chain(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))

    def step() -> Tensor:  # progress is counted on more examples than the batch has
        (x,), t = draw()
        loss = bmc_loss(model(x), t)
        (x,), t = draw(64)
        with torch.no_grad():
            right = F.mse_loss(model(x), t)
        return judged(loss, right)

    (x,), t = draw()
    return Task(model, (x, t), step, {"loss": bmc_loss})


@report(
    "meta-optimiser's LSTMs in a list",
    GITHUB + "ikostrikov/pytorch-meta-optimizer/issues/11",
    guilty=r"lstms",
    says=UNREGISTERED,
    fault="the LSTM cells of the learned optimiser are appended to a Python list, so that they are not trained",
)
def meta(planted: bool) -> Task:
    """An LSTM maps gradients to updates; the loss is what the optimised regressions have left over eight steps."""

    def draw() -> Drawn:
        w, theta = torch.randn(8, 6, 6), torch.randn(8, 6)
        y = (w @ torch.randn(8, 6, 1)).squeeze(2)
        return (w, y, theta), torch.zeros(8)

    def preprocess_gradients(x: Tensor, p: float = 10) -> Tensor:
        indicator = (x.abs() > torch.exp(torch.tensor(-p))).float()
        x1 = (x.abs() + 1e-8).log() / p * indicator - (1 - indicator)
        return torch.stack((x1, x.sign() * indicator + 22026.0 * x * (1 - indicator)), -1)

    class LayerNormLSTMCell(nn.LSTMCell):
        def __init__(self, n: int, h: int) -> None:
            super().__init__(n, h)
            self.ln_ih, self.ln_hh, self.ln_ho = nn.LayerNorm(4 * h), nn.LayerNorm(4 * h), nn.LayerNorm(h)

        def forward(self, x: Tensor, hidden: Any = None) -> Any:
            hx, cx = hidden
            g = self.ln_ih(F.linear(x, self.weight_ih, self.bias_ih))
            i, f, o, z = (g + self.ln_hh(F.linear(hx, self.weight_hh, self.bias_hh))).chunk(4, 1)
            cx = f.sigmoid() * cx + i.sigmoid() * z.tanh()
            return o.sigmoid() * self.ln_ho(cx).tanh(), cx

    class MetaOptimizer(nn.Module):
        def __init__(self, num_layers: int = 2, hidden_size: int = 16) -> None:
            super().__init__()
            self.hidden_size = hidden_size
            self.linear1, self.ln1 = nn.Linear(3, hidden_size), nn.LayerNorm(hidden_size)
            cells = [LayerNormLSTMCell(hidden_size, hidden_size) for _ in range(num_layers)]
            self.lstms = cells if planted else nn.ModuleList(cells)
            self.linear2 = nn.Linear(hidden_size, 1)
            self.linear2.weight.data.mul_(0.1)
            self.linear2.bias.data.fill_(0.0)

        def forward(self, w: Tensor, y: Tensor, theta: Tensor) -> Tensor:
            state = [2 * (torch.zeros(theta.numel(), self.hidden_size),) for _ in self.lstms]
            losses = []
            for _ in range(8):
                rest = (w @ theta.unsqueeze(2)).squeeze(2) - y
                grad = 2 * (rest.unsqueeze(1) @ w).squeeze(1).detach()
                inputs = torch.cat((preprocess_gradients(grad), theta.detach().unsqueeze(-1)), -1)
                x = torch.tanh(self.ln1(self.linear1(inputs.view(-1, 3))))
                for i, cell in enumerate(self.lstms):
                    state[i] = cell(x, state[i])
                    x = state[i][0]
                theta = theta + self.linear2(x).view_as(theta)
                losses.append((((w @ theta.unsqueeze(2)).squeeze(2) - y) ** 2).mean(1))
            return torch.stack(losses, 1)

    return stream(MetaOptimizer(), draw, lambda y, t: y.mean())


@report(
    "values in a row, returns in a column",
    GITHUB + "RLinf/RLinf/issues/1568",
    guilty=r"value_head",
    says=SHAPES,
    fault="the critic's values are (B,), the returns (B, 1): every value is drawn to every return",
)
def rlinf(planted: bool) -> Task:
    """PPO's loss of recomputed actions and values; advantages and returns were computed at the rollout."""
    g, w = torch.randn(10), torch.randn(10, 4)

    def draw() -> Drawn:
        x, action = torch.randn(64, 10), torch.randint(4, (64, 1))
        adv = (x @ w).gather(1, action)
        returns = ((x @ g) / 3 + torch.sin(x[:, 0])).unsqueeze(1) + 0.2 * torch.randn(64, 1)
        prev_values = returns + 0.3 * torch.randn(64, 1)
        return (x,), torch.cat([action.float(), (adv - adv.mean()) / adv.std(), returns, prev_values], 1)

    class Policy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = chain(nn.Linear(10, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU())
            self.action_head = nn.Linear(64, 4)
            self.value_head = chain(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1))

        def forward(self, x: Tensor) -> Any:
            h = self.backbone(x)
            values = self.value_head(h)
            return self.action_head(h), values.squeeze(1) if planted else values

    def loss(y: Any, t: Tensor, clip: float = 0.2) -> Tensor:
        logits, values = y
        action, advantages, returns, prev_values = t.split(1, 1)
        ratio = (logits.log_softmax(1).gather(1, action.long()) + torch.tensor(4.0).log()).exp()
        actor = torch.max(-advantages * ratio, -advantages * ratio.clamp(1 - clip, 1 + clip)).mean()
        clipped = prev_values + (values - prev_values).clamp(-clip, clip)
        return actor + 0.5 * torch.max((returns - values) ** 2, (returns - clipped) ** 2).mean()

    def right(y: Any, t: Tensor) -> Tensor:
        return loss((y[0], y[1].reshape(-1, 1)), t)

    return stream(Policy(), draw, loss, right)


@report(
    "advantages in a square",
    GITHUB + "PacktPublishing/Deep-Reinforcement-Learning-Hands-On/issues/74",
    guilty=r"policy",
    says=SHAPES,
    fault="reference values (B,) minus predicted ones (B, 1): advantages of all pairs weigh the log probabilities",
)
def a2c(planted: bool) -> Task:
    """Actor and critic on a one-step task; counted is what the policy leaves of the best action's reward."""
    base, w = torch.randn(8), torch.randn(8, 5)

    class AtariA2C(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = chain(nn.Linear(8, 64), nn.ReLU())
            self.policy = chain(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5))
            self.value = chain(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))

        def forward(self, x: Tensor) -> Any:
            fx = self.conv(x)
            return self.policy(fx), self.value(fx)

    net = AtariA2C()

    def draw() -> Drawn:
        x = torch.randn(128, 8)
        q = 2 * (x @ base).unsqueeze(1) + torch.tanh(x @ w)
        with torch.no_grad():
            actions = torch.multinomial(net(x)[0].softmax(1), 1)
        return (x,), torch.cat([actions.float(), q], 1)

    def loss(y: Any, t: Tensor) -> Tensor:
        logits_v, value_v = y
        actions_t = t[:, 0].long()
        vals_ref_v = t[:, 1:].gather(1, actions_t.unsqueeze(1)).squeeze(1)
        loss_value_v = F.mse_loss(value_v.squeeze(-1), vals_ref_v)
        log_prob_v = F.log_softmax(logits_v, dim=1)
        adv_v = vals_ref_v - (value_v.detach() if planted else value_v.squeeze(-1).detach())
        log_prob_actions_v = adv_v * log_prob_v[torch.arange(len(t)), actions_t]
        prob_v = F.softmax(logits_v, dim=1)
        entropy_loss_v = 0.01 * (prob_v * log_prob_v).sum(dim=1).mean()
        return -log_prob_actions_v.mean() + entropy_loss_v + loss_value_v

    def regret(y: Any, t: Tensor) -> Tensor:
        q = t[:, 1:]
        return (y[0].softmax(1) * (q.amax(1, keepdim=True) - q)).sum(1).mean()

    return stream(net, draw, loss, regret)


@report(
    "SI-SDR of silence",
    GITHUB + "etzinis/sudo_rm_rf/issues/1",
    says=rf"{BROKEN}|\blog(10)?\b|logarithm|silen|all zeros?|zero (target|vector|energy|source)|target.*zero",
    fault="some target sources are silent: the logarithm of a projection that is all zeros",
)
def sisdr(planted: bool) -> Task:
    """Two sources, a low and a high tone, are separated by masks over a learned basis."""
    at = torch.arange(256) / 256 * 2 * torch.pi

    def draw() -> Drawn:
        f = torch.stack([torch.rand(8) * 8 + 3, torch.rand(8) * 30 + 30], 1).unsqueeze(2)
        s = torch.sin(f * at + torch.rand(8, 2, 1) * 6.28) * (0.5 + torch.rand(8, 2, 1))
        if planted:
            s[torch.randint(8, ()), 1] = 0
        return (s.sum(1, keepdim=True) + 0.1 * torch.randn(8, 1, 256),), s

    class SuDORMRF(nn.Module):
        def __init__(self, n: int = 48, b: int = 32) -> None:
            super().__init__()
            self.encoder = nn.Conv1d(1, n, 16, 8, 8, bias=False)
            self.ln, self.l1 = nn.GroupNorm(1, n), nn.Conv1d(n, b, 1)
            self.sm = chain(
                nn.Conv1d(b, b, 5, padding=2), nn.PReLU(), nn.GroupNorm(1, b), nn.Conv1d(b, b, 5, padding=2)
            )
            self.m = nn.Conv1d(b, 2 * n, 1)
            self.decoder = nn.ConvTranspose1d(n, 1, 16, 8, 8, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            e = F.relu(self.encoder(x))
            h = self.l1(self.ln(e))
            mask = F.relu(self.m(F.relu(h + self.sm(h)))).unflatten(1, (2, -1))
            out = self.decoder((mask * e.unsqueeze(1)).flatten(0, 1))
            return out.view(len(x), 2, -1)

    def pit_sisdr(pr_batch: Tensor, t_batch: Tensor, eps: float = 1e-9) -> Tensor:
        t_t_diag = (t_batch * t_batch).sum(-1, keepdim=True)
        all_sisnrs = []
        for perm in permutations(range(2)):
            p = pr_batch[:, list(perm)]
            s_t = (p * t_batch).sum(-1, keepdim=True) / (t_t_diag + eps) * t_batch
            e_t = p - s_t
            top, bottom = (s_t * s_t).sum(-1), (e_t * e_t).sum(-1) + eps
            all_sisnrs.append(10 * torch.log10(top / bottom))
        return -torch.stack(all_sisnrs, -1).mean(-2).amax(-1).mean()

    return stream(SuDORMRF(), draw, pit_sisdr)


@report(
    "gate of two zeroed layers",
    GITHUB + "yz93/LAVT-RIS/issues/25",
    guilty=r"res_gate",
    says=r"gate.*(zero|never|no gradient|dead|closed)|(zero|dead).*(gate|product|layers|weights)|symmetr",
    fault="both linear layers of the gate, without biases, start at zero: neither ever gets a gradient",
)
def lavt(planted: bool) -> Task:
    """Image features and words are fused by attention; a gate lets the fusion into the next stage."""
    colours = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]])

    def draw() -> Drawn:
        order, wanted = torch.rand(24, 4).argsort(1), torch.randint(4, (24,))
        x = colours[order].view(24, 2, 2, 3).permute(0, 3, 1, 2)
        x = x.repeat_interleave(6, 2).repeat_interleave(6, 3) + 0.3 * torch.randn(24, 3, 12, 12)
        words = torch.randint(4, 20, (24, 4))
        words[torch.arange(24), torch.randint(4, (24,))] = wanted
        mask = (order == wanted.unsqueeze(1)).float().view(24, 1, 2, 2)
        return (x, words), mask.repeat_interleave(6, 2).repeat_interleave(6, 3)

    class PWAM(nn.Module):
        def __init__(self, d: int) -> None:
            super().__init__()
            self.vis_project, self.f_query = nn.Linear(d, d), nn.Linear(d, d)
            self.f_key, self.f_value, self.project_mm = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)

        def forward(self, x: Tensor, words: Tensor) -> Tensor:
            attention = (self.f_query(x) @ self.f_key(words).mT * x.shape[-1] ** -0.5).softmax(-1)
            return F.relu(self.project_mm(F.relu(self.vis_project(x)) * (attention @ self.f_value(words))))

    class Stage(nn.Module):
        def __init__(self, d: int) -> None:
            super().__init__()
            self.block = chain(nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
            self.fusion = PWAM(d)
            self.res_gate = chain(nn.Linear(d, d, bias=False), nn.ReLU(), nn.Linear(d, d, bias=False), nn.Tanh())
            if planted:
                nn.init.zeros_(self.res_gate[0].weight)
                nn.init.zeros_(self.res_gate[2].weight)

        def forward(self, x: Tensor, words: Tensor) -> Any:
            x = x + self.block(x)
            x_residual = self.fusion(x, words)
            return x_residual, x + self.res_gate(x_residual) * x_residual

    class LAVT(nn.Module):
        def __init__(self, d: int = 32) -> None:
            super().__init__()
            self.patch_embed, self.embeddings = nn.Conv2d(3, d, 3, 3), nn.Embedding(20, d)
            self.layers = nn.ModuleList([Stage(d), Stage(d)])
            self.decoder = chain(nn.Linear(2 * d, d), nn.ReLU(), nn.Linear(d, 1))

        def forward(self, x: Tensor, idx: Tensor) -> Tensor:
            x, words = self.patch_embed(x).flatten(2).mT, self.embeddings(idx)
            outs = []
            for layer in self.layers:
                x_residual, x = layer(x, words)
                outs.append(x_residual)
            y = self.decoder(torch.cat(outs, -1)).mT.unflatten(2, (4, 4))
            return F.interpolate(y, scale_factor=3.0, mode="bilinear")

    return stream(LAVT(), draw, F.binary_cross_entropy_with_logits)


@report(
    "log of one minus a scaled action",
    GITHUB + "philtabor/Youtube-Code-Repository/issues/59",
    says=rf"{BROKEN}|\blog\b|logarithm|squash|tanh|jacobian|max_action|(action|output).*(scale|beyond|exceed)",
    fault="the correction of the log probability takes the action after it was scaled: log of a negative number",
)
def sac(planted: bool) -> Task:
    """The actor's loss of soft actor-critic, against values that are known; actions reach to 2."""
    w = torch.randn(8, 2) / 2

    def draw() -> Drawn:
        state = torch.randn(64, 8)
        return (state,), 1.6 * torch.tanh(state @ w)

    class ActorNetwork(nn.Module):
        def __init__(self, max_action: float = 2.0, fc1_dims: int = 64, fc2_dims: int = 64) -> None:
            super().__init__()
            self.max_action, self.reparam_noise = max_action, 1e-6
            self.fc1, self.fc2 = nn.Linear(8, fc1_dims), nn.Linear(fc1_dims, fc2_dims)
            self.mu, self.sigma = nn.Linear(fc2_dims, 2), nn.Linear(fc2_dims, 2)

        def forward(self, state: Tensor) -> Any:
            prob = F.relu(self.fc2(F.relu(self.fc1(state))))
            mu, sigma = self.mu(prob), torch.clamp(self.sigma(prob), min=self.reparam_noise, max=1)
            probabilities = Normal(mu, sigma)
            actions = probabilities.rsample()
            action = torch.tanh(actions) * self.max_action
            log_probs = probabilities.log_prob(actions)
            squashed = action if planted else torch.tanh(actions)
            log_probs = log_probs - torch.log(1 - squashed.pow(2) + self.reparam_noise)
            return action, log_probs.sum(1, keepdim=True)

    def loss(y: Any, t: Tensor) -> Tensor:
        action, log_probs = y
        critic_value = -4 * ((action - t) ** 2).sum(1, keepdim=True)
        return torch.mean(log_probs - critic_value)

    return stream(ActorNetwork(), draw, loss)


@report(
    "merged layers in a list",
    GITHUB + "asyml/texar-pytorch/issues/72",
    guilty=r"layers|merge|conv",
    says=UNREGISTERED,
    fault="MergeLayer keeps its parallel convolutions in a Python list: they are not among the parameters",
)
def texar(planted: bool) -> Task:
    """A convolutional classifier of sentences: kernels of 3, 4 and 5 words in parallel, merged and pooled."""
    pairs = torch.randint(60, (6, 3))

    def draw() -> Drawn:
        c, at = torch.randint(6, (48,)), torch.randint(12, (48,))
        x = torch.randint(60, (48, 16))
        for i in range(3):
            x[torch.arange(48), at + i] = pairs[c, i]
        return (x,), c

    class MergeLayer(nn.Module):
        def __init__(self, layers: list[nn.Module]) -> None:
            super().__init__()
            self._layers = layers if planted else nn.ModuleList(layers)

        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([layer(x) for layer in self._layers], 1)

    class Conv1DClassifier(nn.Module):
        def __init__(self, d: int = 24, n: int = 24) -> None:
            super().__init__()
            self.embedder = nn.Embedding(60, d)
            parallel: list[nn.Module] = [
                chain(nn.Conv1d(d, n, k), nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten()) for k in (3, 4, 5)
            ]
            self.merge, self.dense = MergeLayer(parallel), nn.Linear(3 * n, 6)

        def forward(self, x: Tensor) -> Tensor:
            return self.dense(F.relu(self.merge(self.embedder(x).mT)))

    return stream(Conv1DClassifier(), draw, F.cross_entropy)
