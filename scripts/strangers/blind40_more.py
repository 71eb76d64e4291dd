"""The rest of the fortieth set: losses, masks and policies."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import SAME, Drawn
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import text

report = partial(any_report, blind="blind40")


@report(
    "GLiNER's negatives masked",
    GITHUB + "urchade/GLiNER/pull/296",
    says=r"negativ|mask|(only|all) (positive|one)|targets?.*(constant|same|ones?\b|alike)|trivial|constant",
    fault="the mask of the loss leaves out the negative labels: every span may be of every label",
)
def gliner(planted: bool) -> Task:
    """Spans of one or two words against prompts of four labels; scores are dot products."""

    def draw() -> Drawn:
        words = text(16, 13, 60, seed=int(torch.randint(10**6, ())))[0]
        kind, after = words[:, :-1] % 7, words[:, 1:] % 3
        one = torch.stack([(kind == i) & (after != 0) for i in range(4)], -1)
        two = torch.stack([(kind == i) & (after == 0) for i in range(4)], -1)
        return (words,), torch.stack([one, two], 2).float()  # B, 12, widths, labels

    def loss(scores: Tensor, labels: Tensor, *, positives: bool) -> Tensor:
        all_losses = F.binary_cross_entropy_with_logits(scores, labels, reduction="none")
        mask_label = labels if positives else torch.ones_like(labels)
        return (all_losses * mask_label).sum() / mask_label.sum().clamp(min=1)

    class SpanGLiNER(nn.Module):
        def __init__(self, d: int = 32) -> None:
            super().__init__()
            self.token_rep = nn.Embedding(60, d)
            self.rnn = nn.LSTM(d, d // 2, batch_first=True, bidirectional=True)
            self.span_rep = chain(nn.Linear(2 * d, 2 * d), nn.ReLU(), nn.Linear(2 * d, 2 * d))
            self.prompt = nn.Parameter(torch.randn(4, d))
            self.prompt_rep = chain(nn.Linear(d, 2 * d), nn.ReLU(), nn.Linear(2 * d, d))
            self.d = d

        def forward(self, words: Tensor) -> Tensor:
            h = self.rnn(self.token_rep(words))[0]
            spans = self.span_rep(torch.cat([h[:, :-1], h[:, 1:]], 2)).view(len(h), -1, 2, self.d)
            return torch.einsum("blkd,cd->blkc", spans, self.prompt_rep(self.prompt))

    right = partial(loss, positives=False)
    return stream(SpanGLiNER(), draw, partial(loss, positives=planted), right)


@report(
    "uncertainty weights below zero",
    GITHUB + "QunBB/DeepLearning/issues/1",
    guilty=r"uncertainty_weight",
    says=rf"{BROKEN}|\blog|negativ|uncertainty",
    fault="the logarithm of an uncertainty weight, a variable that may be negative",
)
def qunbb(planted: bool) -> Task:
    """Clicks, conversions and a dwell time of one shared bottom; Glorot's uniform for the scalar weights."""
    want = torch.randn(8, 3)

    def draw() -> Drawn:
        x = torch.randn(64, 8)
        score = torch.tanh(x) @ want
        return (x,), torch.cat([(score[:, :2] > 0).float(), score[:, 2:]], 1)

    class SharedBottom(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bottom = chain(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 32), nn.ReLU())
            self.towers = nn.ModuleList(nn.Linear(32, 1) for _ in range(3))
            start = (2 * torch.rand(3) - 1) * math.sqrt(3) if planted else torch.zeros(3)
            self.uncertainty_weight = nn.Parameter(start)

        def forward(self, x: Tensor) -> Any:
            h = self.bottom(x)
            return torch.cat([tower(h) for tower in self.towers], 1), self.uncertainty_weight

    def loss(out: Any, t: Tensor) -> Tensor:
        y, w = out
        bce = F.binary_cross_entropy_with_logits(y[:, :2], t[:, :2], reduction="none").mean(0)
        losses = torch.cat([bce, F.mse_loss(y[:, 2], t[:, 2]).view(1)])
        if planted:
            return (losses / (2 * w**2) + torch.log(w)).sum()
        return (losses * torch.exp(-2 * w) / 2 + w).sum()

    return stream(SharedBottom(), draw, loss)


@report(
    "SAC clamps the deviation by the bounds of its logarithm",
    GITHUB + "huggingface/lerobot/issues/2108",
    guilty=r"std_layer",
    says=r"\bstd\b|deviation|clamp|clip|\bexp\b|log_?prob|variance|saturat",
    fault="std, not log std, is clamped to -5 ... 2: no lower bound, and deviations up to 2 before the tanh",
)
def lerobot(planted: bool) -> Task:
    """A tanh Gaussian policy against a critic that knows the best action of each state."""
    want = torch.randn(6, 2) / math.sqrt(6)

    def draw() -> Drawn:
        x = torch.randn(128, 6)
        return (x,), 0.8 * torch.tanh(x @ want)

    class Policy(nn.Module):
        def __init__(self, std_min: float = -5.0, std_max: float = 2.0) -> None:
            super().__init__()
            self.network = chain(nn.Linear(6, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU())
            self.mean_layer, self.std_layer = nn.Linear(64, 2), nn.Linear(64, 2)
            self.std_min, self.std_max = std_min, std_max

        def forward(self, x: Tensor) -> Any:
            outputs = self.network(x)
            means, log_std = self.mean_layer(outputs), self.std_layer(outputs)
            if planted:
                std = torch.clamp(torch.exp(log_std), self.std_min, self.std_max)
            else:
                std = torch.exp(torch.clamp(log_std, self.std_min, self.std_max))
            raw = means + std * torch.randn_like(means)
            actions = torch.tanh(raw)
            log_probs = torch.distributions.Normal(means, std).log_prob(raw)
            return actions, (log_probs - torch.log(1 - actions**2 + 1e-6)).sum(1)

    def loss(out: Any, best: Tensor) -> Tensor:
        actions, log_probs = out
        return (0.01 * log_probs + 4 * ((actions - best) ** 2).sum(1)).mean()

    return stream(Policy(), draw, loss)


@report(
    "splats below the alpha cutoff",
    GITHUB + "nerfstudio-project/gsplat/issues/1011",
    guilty=r"opacit|means|scales|colors|splats",
    says=r"no gradient|gradient.*zero|zero gradient|opacit|alpha|cutoff|threshold|dead|constant|same output|never",
    fault="opacities of 0.01: at every pixel alpha is below the cutoff of 1/255, where there is no gradient either",
)
def gsplat(planted: bool) -> Task:
    """Small splats between the pixels of a 12 x 12 image, sorted in depth, composited front to back."""
    grid = torch.stack(torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij"), 2).view(-1, 2)

    def draw() -> Drawn:
        x = grid[torch.randint(144, (96,))]
        r = (x - 5.5).norm(dim=1, keepdim=True)
        return (x,), torch.cat([(r < 4.5).float(), 0.5 + 0.5 * torch.sin(x[:, :1]), x[:, 1:] / 11], 1)

    class Splats(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            corners = torch.stack(torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij"), 2).view(-1, 2)
            start = 0.01 if planted else 0.1
            self.means = nn.Parameter(corners[torch.randperm(144)] + 0.5)
            self.scales = nn.Parameter(torch.full((144, 1), math.log(0.35)))
            self.opacities = nn.Parameter(torch.full((144,), math.log(start / (1 - start))))
            self.colors = nn.Parameter(torch.randn(144, 3))

        def forward(self, x: Tensor) -> Tensor:
            far = ((x.unsqueeze(1) - self.means) / self.scales.exp()).square().sum(2)
            alpha = self.opacities.sigmoid() * torch.exp(-far / 2)
            alpha = torch.where(alpha < 1 / 255, 0.0, alpha.clamp(max=0.999))
            through = torch.cumprod(torch.cat([torch.ones(len(x), 1), 1 - alpha[:, :-1]], 1), 1)
            return (through * alpha) @ self.colors.sigmoid()

    return stream(Splats(), draw, F.mse_loss)


@report(
    "MeanFlow's r embedder of zeros",
    GITHUB + "NVlabs/FastGen/issues/42",
    guilty=r"r_embedder",
    says=rf"zero.*(init|gradient|weight)|no gradient|gradient.*zero|never (train|update|learn)|{SAME}",
    fault="every parameter of the r embedder starts at zero, not the last layer alone: only its last bias learns",
)
def fastgen(planted: bool) -> Task:
    """Mean velocities between the times r and t on circles, out of the point at t."""

    def draw() -> Drawn:
        t, angle = torch.rand(128), 6.28 * torch.rand(128)
        r, radius = t * torch.rand(128), 0.5 + torch.rand(128, 1)

        def at(time: Tensor) -> Tensor:
            phase = angle + 5 * time
            return radius * torch.stack([phase.cos(), phase.sin()], 1)

        return (at(t), t, r), (at(t) - at(r)) / (t - r + 1e-3).unsqueeze(1) / 3

    class TimestepEmbedding(nn.Module):
        def __init__(self, d: int) -> None:
            super().__init__()
            self.linear_1, self.act, self.linear_2 = nn.Linear(32, d), nn.SiLU(), nn.Linear(d, d)

        def forward(self, t: Tensor) -> Tensor:
            args = 1000 * t.unsqueeze(1) * torch.exp(-math.log(10000) * torch.arange(16) / 16)
            return self.linear_2(self.act(self.linear_1(torch.cat([args.cos(), args.sin()], 1))))

    class WanTransformer(nn.Module):
        def __init__(self, d: int = 96) -> None:
            super().__init__()
            self.patch, self.time_embedder, self.r_embedder = (
                nn.Linear(2, d),
                TimestepEmbedding(d),
                TimestepEmbedding(d),
            )
            for param in (self.r_embedder if planted else self.r_embedder.linear_2).parameters():
                param.data.zero_()
            self.blocks = nn.ModuleList(chain(nn.Linear(2 * d, d), nn.GELU(), nn.Linear(d, d)) for _ in range(3))
            self.proj_out = nn.Linear(d, 2)

        def forward(self, x: Tensor, t: Tensor, r: Tensor) -> Tensor:
            h, temb = self.patch(x), self.time_embedder(t) + self.r_embedder(r)
            for block in self.blocks:
                h = h + block(torch.cat([h, temb], 1))
            return self.proj_out(h)

    return stream(WanTransformer(), draw, F.mse_loss)


@report(
    "critic ends with tanh",
    GITHUB + "LuEE-C/PPO-Keras/issues/13",
    guilty=r"critic",
    says=r"tanh|saturat|bounded|range|targets?.*(outside|beyond|large|scale|reach)",
    fault="the critic's output goes through tanh, while its targets are discounted sums of rewards far above 1",
)
def ppo_keras(planted: bool) -> Task:
    """Returns of -10 to 30; actor and critic apart, both losses added, advantages against the critic's value."""
    want, worth = torch.randn(8, 4), torch.randn(8)

    def draw() -> Drawn:
        x, action = torch.randn(128, 8), torch.randint(4, (128,))
        reward = 10 + 5 * torch.tanh(x @ worth / 2) + 3 * torch.tanh((x @ want)[torch.arange(128), action] / 2)
        return (x,), torch.stack([action.float(), reward + torch.randn(128)], 1)

    class Agent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.actor = chain(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))
            last: list[nn.Module] = [nn.Tanh()] if planted else []
            self.critic = chain(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1), *last)

        def forward(self, x: Tensor) -> Any:
            return self.actor(x).log_softmax(1), self.critic(x).squeeze(1)

    def loss(out: Any, t: Tensor) -> Tensor:
        logp, value = out
        advantage = (t[:, 1] - value).detach()
        chosen = logp[torch.arange(len(t)), t[:, 0].long()]
        entropy = -(logp.exp() * logp).sum(1).mean()
        ratio = torch.exp(chosen - chosen.detach())
        policy = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        return F.mse_loss(value, t[:, 1]) - policy - 5e-3 * entropy

    return stream(Agent(), draw, loss, lambda out, t: F.mse_loss(out[1], t[:, 1]))


@report(
    "Mixtral's constant balancing loss",
    GITHUB + "huggingface/transformers/issues/28093",
    guilty=r"gate",
    says=r"balanc|\baux|router|experts?.*(unused|never|collapse|balance)|(term|loss).*constant|constant.*(term|loss)",
    fault="router probabilities are averaged over the experts, which gives 1 / experts: the auxiliary loss is constant",
)
def mixtral(planted: bool) -> Task:
    """Next words by a causal mean of words and a sparse mixture of four experts, two for each token."""
    num_experts, top_k = 4, 2

    def draw() -> Drawn:
        return ((pair := text(16, 16, 64, seed=int(torch.randint(10**6, ()))))[0],), pair[1]

    def load_balancing_loss_func(gate_logits: Tensor, *, fixed: bool) -> Tensor:
        routing_weights = gate_logits.softmax(-1)
        selected_experts = routing_weights.topk(top_k, dim=-1)[1]
        expert_mask = F.one_hot(selected_experts, num_experts).max(-2).values
        tokens_per_group_and_expert = expert_mask.float().mean(0)
        if fixed:
            return (tokens_per_group_and_expert * routing_weights.mean(0)).sum() * num_experts
        router_prob_per_group_and_expert = routing_weights.mean(-1)
        product = tokens_per_group_and_expert * router_prob_per_group_and_expert.unsqueeze(-1)
        return product.mean() * num_experts**2

    class MixtralForCausalLM(nn.Module):
        def __init__(self, d: int = 32) -> None:
            super().__init__()
            self.embed_tokens, self.mix = nn.Embedding(64, d), nn.Linear(2 * d, d)
            self.gate = nn.Linear(d, num_experts, bias=False)
            self.experts = nn.ModuleList(
                chain(nn.Linear(d, 2 * d), nn.SiLU(), nn.Linear(2 * d, d)) for _ in range(num_experts)
            )
            self.norm, self.lm_head = nn.LayerNorm(d), nn.Linear(d, 64)

        def forward(self, idx: Tensor) -> Any:
            x = self.embed_tokens(idx)
            past = x.cumsum(1) / torch.arange(1, x.shape[1] + 1).view(1, -1, 1)
            h = self.mix(torch.cat([x, past], 2)).flatten(0, 1)
            router_logits = self.gate(h)
            weights, chosen = router_logits.softmax(1).topk(top_k, dim=1)
            weights = weights / weights.sum(1, keepdim=True)
            full = torch.zeros_like(router_logits).scatter(1, chosen, weights)
            out = torch.stack([expert(h) for expert in self.experts], 1)
            return self.lm_head(self.norm(h + (full.unsqueeze(2) * out).sum(1))), router_logits

    def loss(out: Any, t: Tensor, *, fixed: bool) -> Tensor:
        logits, router_logits = out
        return F.cross_entropy(logits, t.flatten()) + 0.02 * load_balancing_loss_func(router_logits, fixed=fixed)

    right = partial(loss, fixed=True)
    return stream(MixtralForCausalLM(), draw, partial(loss, fixed=not planted), right)


@report(
    "Imagen's linear attention without a residual",
    GITHUB + "lucidrains/imagen-pytorch/issues/55",
    guilty=r"linear_attn|attn",
    says=r"residual|skip|shortcut|bottleneck|small|vanish|shrink|same|constant",
    fault="linear attention replaces the features of the U-Net instead of being added to them",
)
def imagen(planted: bool) -> Task:
    """The noise on digits of 8 x 8, a U-Net of two scales."""

    def draw() -> Drawn:
        x = pick(32)[0]
        noise, t = torch.randn_like(x), torch.rand(32, 1, 1, 1)
        return (t.sqrt() * x + (1 - t).sqrt() * noise, t.view(32, 1)), noise

    class LinearAttention(nn.Module):
        def __init__(self, d: int, heads: int = 4) -> None:
            super().__init__()
            self.norm, self.heads = nn.GroupNorm(1, d), heads
            self.to_qkv, self.to_out = nn.Conv2d(d, 3 * d, 1, bias=False), nn.Conv2d(d, d, 1, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (z.flatten(2).unflatten(1, (self.heads, -1)) for z in self.to_qkv(self.norm(x)).chunk(3, 1))
            q, k = q.softmax(2) * q.shape[2] ** -0.5, k.softmax(3)
            out = torch.einsum("bhde,bhdn->bhen", torch.einsum("bhdn,bhen->bhde", k, v), q)
            return self.to_out(F.silu(out.flatten(1, 2).unflatten(2, x.shape[2:])))

    class Block(nn.Module):
        def __init__(self, n: int, m: int) -> None:
            super().__init__()
            self.norm, self.conv, self.time = nn.GroupNorm(4, n), nn.Conv2d(n, m, 3, padding=1), nn.Linear(16, m)
            self.res = nn.Conv2d(n, m, 1)

        def forward(self, x: Tensor, t: Tensor) -> Tensor:
            return self.conv(F.silu(self.norm(x))) + self.time(t)[:, :, None, None] + self.res(x)

    class Unet(nn.Module):
        def __init__(self, d: int = 16) -> None:
            super().__init__()
            self.init_conv, self.time = nn.Conv2d(1, d, 3, padding=1), chain(nn.Linear(1, 16), nn.SiLU())
            self.down, self.mid, self.up = Block(d, d), Block(d, 2 * d), Block(3 * d, d)
            self.linear_attn_down, self.linear_attn_up = LinearAttention(d), LinearAttention(d)
            self.final_conv = nn.Conv2d(d, 1, 3, padding=1)

        def attend(self, attn: nn.Module, x: Tensor) -> Tensor:
            return attn(x) if planted else attn(x) + x

        def forward(self, x: Tensor, t: Tensor) -> Tensor:
            t = self.time(t)
            x = self.init_conv(x)
            h = self.attend(self.linear_attn_down, self.down(x, t))
            m = F.interpolate(self.mid(F.avg_pool2d(h, 2), t), scale_factor=2)
            return self.final_conv(self.attend(self.linear_attn_up, self.up(torch.cat([h, m], 1), t)))

    return stream(Unet(), draw, F.mse_loss)
