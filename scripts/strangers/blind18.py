"""Faults of the eighteenth set, that commits to models of attention, speech and images mend."""

from __future__ import annotations

import itertools
import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB, Parts, judged
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import Drawn
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import digits

report = partial(any_report, blind="blind18")


L = GITHUB + "lucidrains/"


class Attention(nn.Module):
    """Multi-head attention in the manner of lucidrains; mask (b, j) or (b, i, j): True is kept."""

    def __init__(self, dim, heads=2, dim_head=16, causal=False):
        super().__init__()
        self.heads, self.scale, self.causal = heads, dim_head**-0.5, causal
        self.norm = nn.LayerNorm(dim)
        self.to_q = nn.Linear(dim, heads * dim_head, bias=False)
        self.to_kv = nn.Linear(dim, heads * dim_head * 2, bias=False)
        self.to_out = nn.Linear(heads * dim_head, dim, bias=False)

    def forward(self, x, context=None, mask=None):
        x = self.norm(x)
        q, (k, v) = self.to_q(x), self.to_kv(x if context is None else context).chunk(2, dim=-1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        sim = q @ k.transpose(-1, -2) * self.scale
        if mask is not None:
            mask = mask[:, None, None, :] if mask.ndim == 2 else mask[:, None]
            sim = sim.masked_fill(~mask, -torch.finfo(sim.dtype).max)
        if self.causal:
            i, j = sim.shape[-2:]
            sim = sim.masked_fill(torch.ones(i, j, dtype=torch.bool).triu(j - i + 1), -torch.finfo(sim.dtype).max)
        return self.to_out((sim.softmax(dim=-1) @ v).transpose(1, 2).flatten(2))


def fed(model, draw, loss) -> Task:
    """Train on what is fed, and count progress on what should be fed; draw returns both, the wrong ones first."""

    def step() -> Tensor:
        (x, t), (rx, rt) = draw()
        return judged(loss(model(*x), t), loss(model(*rx), rt))

    x, t = draw()[0]
    return Task(model, (x[0] if len(x) == 1 else x, t), step, {"loss": loss})


def feed(dim, mult=2):
    return chain(nn.LayerNorm(dim), nn.Linear(dim, dim * mult), nn.GELU(), nn.Linear(dim * mult, dim))


@report(
    "TabTransformer MLP",
    L + "tab-transformer-pytorch/commit/461b57df7ac95c87a92d472d4f3a9a3d385b5252",
    guilty=r"mlp",
    says=r"relu|activation|non.?negative|zero gradient|dead|\bsign|never.*negative",
    fault="is_last is never true (off by one), so that a ReLU follows the last linear: the logit is never negative",
)
def tab(planted: bool) -> Task:
    def mlp(dims):
        pairs, layers = list(itertools.pairwise(dims)), []
        for ind, (i, o) in enumerate(pairs):
            is_last = ind >= (len(dims) - 1 if planted else len(pairs) - 1)
            layers.append(nn.Linear(i, o))
            if not is_last:
                layers.append(nn.ReLU())
        return chain(*layers)

    w = torch.randn(5, 6), torch.randn(5)

    def draw() -> Drawn:
        c, x = torch.randint(0, 6, (64, 5)), torch.randn(64, 5)
        s = sum(w[0][i, c[:, i]] for i in range(5)) + x @ w[1]
        return (c, x), (s > 0.5).float()[:, None]

    def run(m, c, x):
        e = m.embeds(c + torch.arange(5) * 6)
        e = e + m.attn(e)
        e = e + m.ff(e)
        return m.mlp(torch.cat((e.flatten(1), m.norm(x)), dim=-1))

    model = Parts(
        run,
        embeds=nn.Embedding(30, 16),
        attn=Attention(16),
        ff=feed(16),
        norm=nn.LayerNorm(5),
        mlp=mlp((85, 64, 32, 1)),
    )
    return stream(model, draw, F.binary_cross_entropy_with_logits)


def maps(count=48):
    """Real digits and fakes: blurred noise of the same scale."""
    x, _ = pick(count)
    fake = F.avg_pool2d(torch.randn(count, 1, 8, 8), 3, 1, 1) * 3
    real = torch.rand(count) < 0.5
    return torch.where(real.view(-1, 1, 1, 1), x, fake), real.float()


@report(
    "GigaGAN multiscale hinge",
    L + "gigagan-pytorch/commit/9c355bfcdf1c21e3496100214662b83abaac0253",
    guilty=r"predict",
    says=r"\bsign|opposite|swap|revers|real.*fake|fake.*real|contradict|conflict|disagree|invert",
    fault="the multiscale hinge loss has fake and real swapped: its heads learn the reverse of the main logits",
)
def multiscale(planted: bool) -> Task:
    class Discriminator(nn.Module):
        def __init__(self):
            super().__init__()
            self.from_rgb = nn.Conv2d(1, 16, 3, 1, 1)
            self.blocks = nn.ModuleList(nn.Conv2d(16, 16, 3, 1, 1) for _ in range(3))
            self.predictors = nn.ModuleList(
                chain(nn.Conv2d(16, 8, 1), nn.LeakyReLU(0.2), nn.Conv2d(8, 1, 1)) for _ in range(2)
            )
            self.to_logits = nn.Linear(16 * 4, 1)

        def forward(self, x):
            x, scales = self.from_rgb(x), []
            for i, block in enumerate(self.blocks):
                x = F.leaky_relu(block(x), 0.2) + x
                if i < 2:
                    scales.append(self.predictors[i](x).mean((1, 2, 3)))
                    x = F.avg_pool2d(x, 2)
            return torch.stack((self.to_logits(x.flatten(1))[:, 0], *scales), 1)

    def draw() -> Drawn:
        x, real = maps()
        return (x,), real

    def hinge(real, fake):
        return F.relu(1 - real).mean() + F.relu(1 + fake).mean()

    def loss(y, t, swapped=planted):
        real, fake = y[t > 0.5], y[t < 0.5]
        total = hinge(real[:, 0], fake[:, 0])
        for k in (1, 2):
            total = total + (hinge(fake[:, k], real[:, k]) if swapped else hinge(real[:, k], fake[:, k]))
        return total

    return stream(Discriminator(), draw, loss, lambda y, t: loss(y, t, False))


def encoder(vocabulary, length, dim=32, out=None, causal=False, depth=1):
    """Tokens to logits; a mask of keys may follow."""

    def run(m, ids, mask=None):
        x = m.token_emb(ids) + m.pos_emb[: ids.shape[1]]
        for attn, ff in zip(m.attns, m.ffs, strict=False):
            x = x + attn(x, mask=mask)
            x = x + ff(x)
        return m.to_logits(m.norm(x))

    return Parts(
        run,
        token_emb=nn.Embedding(vocabulary, dim),
        pos_emb=nn.Parameter(torch.randn(length, dim) * 0.1),
        attns=nn.ModuleList(Attention(dim, causal=causal) for _ in range(depth)),
        ffs=nn.ModuleList(feed(dim) for _ in range(depth)),
        norm=nn.LayerNorm(dim),
        to_logits=nn.Linear(dim, out or vocabulary, bias=False),
    )


@report(
    "MaskGit unmasked",
    L + "muse-maskgit-pytorch/commit/3f9de5cd0e8b34cac42f439c1a6006942ed8fafa",
    guilty=r"(?!)",
    says=r"(inputs?|ids?|tokens?).*(targets?|labels?|answer)|(targets?|labels?).*(inputs?|tokens?)|leak|cop(y|ied)",
    fault="the transformer is given the whole ids in place of x, the masked ones: it reads what it is to predict",
)
def maskgit(planted: bool) -> Task:
    table = torch.randint(0, 32, (10, 16))

    def draw():
        ids = table[torch.randint(0, 10, (48,))]
        ids = torch.where(torch.rand(48, 16) < 0.1, torch.randint(0, 32, (48, 16)), ids)  # codes of an image
        mask = torch.rand(48, 16) < torch.cos(torch.rand(48, 1) * math.pi / 2).clamp(min=0.15)
        labels, x = ids.masked_fill(~mask, -1), ids.masked_fill(mask, 32)
        return ((ids if planted else x,), labels), ((x,), labels)

    return fed(encoder(33, 16, out=32), draw, lambda y, t: F.cross_entropy(y.transpose(1, 2), t, ignore_index=-1))


@report(
    "PPO KL sign",
    L + "PaLM-rlhf-pytorch/commit/2bb47d4373622552d32b76ee1b4d1e60cde8f236",
    guilty=r"(?!)",
    says=r"\bkl\b|diverg|\bsign|negative|unbounded|no lower bound|below|maximi[sz]",
    fault="the KL of new and old action probabilities has the wrong sign: the loss drives the policy away",
)
def ppo(planted: bool) -> Task:
    model, old = encoder(16, 12, causal=True), encoder(16, 12, causal=True)
    model.to_logits.weight.data *= 5  # a policy that has been trained is peaked
    old.load_state_dict(model.state_dict())
    taste = torch.randn(16, 16)

    def log(t):
        return torch.log(t.clamp(min=1e-20))

    def draw() -> Drawn:
        seq = torch.randint(0, 16, (32, 12))
        with torch.no_grad():
            probs = old(seq).softmax(-1)
        actions = torch.multinomial(probs.flatten(0, 1), 1).view(32, 12)
        r = taste[seq, actions]
        return (seq,), {"actions": actions, "old_probs": probs, "advantages": (r - r.mean()) / r.std()}

    def loss(y, t, wrong=planted):
        probs = y.softmax(dim=-1)
        logp, old_logp = (log(p.gather(-1, t["actions"][..., None])).squeeze(-1) for p in (probs, t["old_probs"]))
        kl = probs * ((log(t["old_probs"]) - log(probs)) if wrong else (log(probs) - log(t["old_probs"])))
        entropy = -(probs * log(probs)).sum(-1)
        ratios = (logp - old_logp).exp()
        surr1, surr2 = ratios * t["advantages"], ratios.clamp(0.8, 1.2) * t["advantages"]
        return (-torch.min(surr1, surr2) - 0.01 * entropy).mean() + 0.1 * kl.sum(-1).mean()

    return stream(model, draw, loss, lambda y, t: loss(y, t, False))


@report(
    "PPO old log probs",
    L + "PaLM-rlhf-pytorch/commit/a159310cf411308ba6120096e53e7a4bb02e51a1",
    guilty=r"(?!)",
    says=r"ratio|old.?log|log.?prob|align|shift|clip|importance|no gradient|zero gradient",
    fault="old log probabilities of the actions are gathered at the prompt's positions: ratios are far from one",
)
def rollout(planted: bool) -> Task:
    model, old = encoder(16, 12, causal=True), encoder(16, 12, causal=True)
    model.to_logits.weight.data *= 5
    old.load_state_dict(model.state_dict())
    taste = torch.randn(16)

    memories = torch.randint(0, 16, (1024, 12))
    with torch.no_grad():
        for i in range(6, 12):
            memories[:, i] = torch.multinomial(old(memories[:, :i])[:, -1].softmax(-1), 1)[:, 0]
        logps = F.pad(old(memories).log_softmax(-1), (0, 0, 1, -1))  # shifted along the sequence by one

    def draw() -> Drawn:
        chosen = torch.randint(0, 1024, (32,))
        seq, logp = memories[chosen], logps[chosen]
        actions = seq[:, 6:]
        r, at = taste[actions].mean(1, keepdim=True), actions[..., None]
        wrong, right = (p.gather(-1, at)[..., 0] for p in (logp[:, :6], logp[:, 6:]))
        return (seq,), {
            "actions": actions,
            "advantages": ((r - r.mean()) / r.std()).expand(-1, 6),
            "right": right,
            "old_log_probs": wrong if planted else right,
        }

    def loss(y, t, old_log_probs="old_log_probs"):
        logp = F.pad(y.log_softmax(-1), (0, 0, 1, -1))[:, 6:]
        entropy = -(logp.exp() * logp).sum(-1)
        ratios = (logp.gather(-1, t["actions"][..., None])[..., 0] - t[old_log_probs]).exp()
        surr1, surr2 = ratios * t["advantages"], ratios.clamp(0.8, 1.2) * t["advantages"]
        return (-torch.min(surr1, surr2) - 0.01 * entropy).mean()

    return stream(model, draw, loss, lambda y, t: loss(y, t, "right"))


def markov(perm, count=48, length=16):
    """Each token follows from the one before it, but for one in ten."""
    rows = [torch.randint(0, len(perm), (count,))]
    for _ in range(length - 1):
        rows.append(torch.where(torch.rand(count) < 0.9, perm[rows[-1]], torch.randint(0, len(perm), (count,))))
    return torch.stack(rows, 1)


@report(
    "PaLM as encoder",
    L + "PaLM-rlhf-pytorch/commit/6e1baf655a458b43bade810728c225d919081875",
    guilty=r"attn|to_q|to_kv",
    says=r"mask|attention|uniform|q(uery|ueries)?\b|keys?\b|no gradient|zero gradient",
    fault="mask = x < 0 keeps the padding where it should keep the rest: without padding every key is masked out",
)
def palm(planted: bool) -> Task:
    net, perm = encoder(17, 16, depth=1), torch.randperm(16)

    def draw() -> Drawn:
        ids = markov(perm)
        mask = (torch.rand(48, 16) < 0.15) | (torch.arange(16) == torch.randint(1, 16, (48, 1)))
        return (ids.masked_fill(mask, 16),), ids.masked_fill(~mask, -1)

    def run(m, x):
        return m.net(x, x < 0 if planted else x >= 0)

    return stream(Parts(run, net=net), draw, lambda y, t: F.cross_entropy(y.transpose(1, 2), t, ignore_index=-1))


@report(
    "ImplicitPRM unshifted",
    L + "PaLM-rlhf-pytorch/commit/41a1a221f3028ca4104a5ff4b605a3d446579b67",
    guilty=r"(?!)",
    says=r"shift|next token|(same|own) (token|position)|inputs?.*(target|label)|leak|off by one",
    fault="rewards are log probabilities of the tokens fed at the same places, not of the tokens that follow",
)
def prm(planted: bool) -> Task:
    model, ref, perm = encoder(64, 12, causal=True), encoder(64, 12, causal=True), torch.randperm(64)
    ref.load_state_dict(model.state_dict())

    def draw() -> Drawn:
        seq, good = markov(perm, 48, 13), torch.rand(48) < 0.5
        seq = torch.where(good[:, None], seq, torch.randint(0, 64, seq.shape))
        with torch.no_grad():
            base = ref(seq[:, :-1])
        return (seq[:, :-1],), {"seq": seq, "ref": base, "labels": good.float()}

    def loss(y, t, wrong=planted):
        ids = (t["seq"][:, :-1] if wrong else t["seq"][:, 1:])[..., None]
        r = 0.1 * (y.log_softmax(-1).gather(-1, ids) - t["ref"].log_softmax(-1).gather(-1, ids))[..., 0]
        return F.binary_cross_entropy_with_logits(r, t["labels"][:, None].expand_as(r))

    return stream(model, draw, loss, lambda y, t: loss(y, t, False))


@report(
    "Resampler without time",
    L + "flamingo-pytorch/commit/3707d5875fbe2e4d89223c5a183a0c06625161c1",
    guilty=r"(?!)",
    says=r"order|positions?|frames?|permut|symmetr|invarian|\btime\b",
    fault="frames have no time embedding before they are resampled: which came first cannot be told",
)
def resampler(planted: bool) -> Task:
    def draw() -> Drawn:
        x, c = pick(128)
        return (x.view(32, 4, 1, 8, 8),), c.view(32, 4)

    def run(m, x):  # (b, time, 1, 8, 8)
        x = m.patches(x.flatten(0, 1)).flatten(2).transpose(1, 2).unflatten(0, (-1, 4))
        x = x if planted else x + m.time_pos_emb
        latents = m.latents.expand(len(x) * 4, -1, -1)
        latents = latents + m.resample(latents, x.flatten(0, 1))
        media = m.norm((latents + m.ff(latents)).unflatten(0, (-1, 4)).flatten(1, 2))
        text = m.text.expand(len(x), -1, -1)
        text = text + m.cross(text, media)
        return m.to_logits(text + m.ff2(text))

    model = Parts(
        run,
        patches=nn.Conv2d(1, 32, 4, 4),
        latents=nn.Parameter(torch.randn(4, 32)),
        resample=Attention(32),
        time_pos_emb=nn.Parameter(torch.randn(4, 1, 32)),
        ff=feed(32),
        norm=nn.LayerNorm(32),
        text=nn.Parameter(torch.randn(4, 32)),
        cross=Attention(32, 4),
        ff2=feed(32),
        to_logits=nn.Linear(32, 10),
    )
    return stream(model, draw, lambda y, t: F.cross_entropy(y.transpose(1, 2), t))


@report(
    "RETRO mask",
    L + "RETRO-pytorch/commit/0b017369f45f754580714925ca3761271e107620",
    guilty=r"cross|encoder|retriev",
    says=r"mask|pad|attention|uniform|no (effect|influence)|ignor",
    fault="mask = retrieved == pad_id: cross-attention sees the padding alone, and nothing of what was retrieved",
)
def retro(planted: bool) -> Task:
    def draw() -> Drawn:
        seq, length = torch.randint(1, 24, (48, 13)), torch.randint(6, 13, (48, 1))
        retrieved = torch.where(torch.rand(48, 12) < 0.1, torch.randint(1, 24, (48, 12)), seq[:, 1:])
        pad = torch.arange(12) >= length
        return (seq[:, :-1], retrieved.masked_fill(pad, 0)), seq[:, 1:].masked_fill(pad, 0)

    def run(m, seq, retrieved):
        mask = retrieved == 0 if planted else retrieved != 0
        r = m.token_emb(retrieved) + m.pos_emb
        r = r + m.encoder(r, mask=mask)
        x = m.token_emb(seq) + m.pos_emb
        x = x + m.attn(x)
        x = x + m.cross(x, r, mask)
        return m.to_logits(m.norm(x + m.ff(x)))

    model = Parts(
        run,
        token_emb=nn.Embedding(24, 32),
        pos_emb=nn.Parameter(torch.randn(12, 32)),
        encoder=Attention(32),
        attn=Attention(32, causal=True),
        cross=Attention(32),
        ff=feed(32),
        norm=nn.LayerNorm(32),
        to_logits=nn.Linear(32, 24),
    )
    return stream(model, draw, lambda y, t: F.cross_entropy(y.transpose(1, 2), t, ignore_index=0))


def neighbours(coors, k):
    """Of every node but itself: relative distances (b, n, n - 1)."""
    b, n, _ = coors.shape
    keep = ~torch.eye(n, dtype=torch.bool).expand(b, n, n)
    return keep, (coors[:, :, None] - coors[:, None]).norm(dim=-1).masked_select(keep).view(b, n, n - 1)


class Radial(nn.Module):
    """Features of the neighbours, weighted by a function of the distance, in the manner of ConvSE3 of type 0."""

    def __init__(self, dim, out):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, dim * out))
        self.self_interaction = nn.Linear(dim, out, bias=False)
        self.dim = dim

    def forward(self, x, rel_dist, indices):
        b, n, k = indices.shape
        near = x.gather(1, indices.view(b, -1, 1).expand(-1, -1, x.shape[-1])).view(b, n, k, -1)
        kernel = self.net(rel_dist[..., None]).unflatten(-1, (self.dim, -1))
        return torch.einsum("bnkd,bnkde->bne", near, kernel) / k + self.self_interaction(x)


@report(
    "SE3 neighbours are self",
    L + "se3-transformer-pytorch/commit/f6d616b7d828f2ed32046a0da6449498161ad9b3",
    guilty=r"(?!)",
    says=r"neighbou?r|index|indices|nodes?.*(mix|interact|independen|depend|reach|influence)|itself",
    fault="the indices of neighbours are i for every j: each node gathers its own features as its neighbours'",
)
def se3(planted: bool) -> Task:
    def draw() -> Drawn:
        q, coors = torch.randint(0, 2, (32, 12)), torch.rand(32, 12, 3) * 3
        d = torch.cdist(coors, coors) + torch.eye(12) * 1e4
        return (q, coors), ((2.0 * q - 1)[:, None] * 2 / (d + 0.3)).sum(-1)  # Coulomb

    def run(m, q, coors):
        b, n = q.shape
        keep, rel_dist = neighbours(coors, n)
        r = torch.arange(n)
        indices = (r[:, None] if planted else r[None]).expand(b, n, n).masked_select(keep).view(b, n, n - 1)
        rel_dist, nearest = rel_dist.topk(8, dim=-1, largest=False)
        indices = indices.gather(2, nearest)
        x = m.token_emb(q)
        x = x + F.gelu(m.conv_in(x, rel_dist, indices))
        return m.conv_out(x, rel_dist, indices)[..., 0]

    model = Parts(run, token_emb=nn.Embedding(2, 8), conv_in=Radial(8, 8), conv_out=Radial(8, 1))
    return stream(model, draw, F.mse_loss)


@report(
    "SE3 distances overwritten",
    L + "se3-transformer-pytorch/commit/52deee1aee112f73dbd74efabbbba44296d3fb57",
    guilty=r"net|conv",
    says=r"distance|constant|coor|no (effect|influence)|ignor|in.?place|zero",
    fault="bonded neighbours are ranked first by writing zeros into the distances that the radial nets then read",
)
def bonded(planted: bool) -> Task:
    def draw() -> Drawn:
        q, steps = torch.randint(0, 2, (32, 12)), F.normalize(torch.randn(32, 12, 3), dim=-1)
        coors = (steps * (0.6 + torch.rand(32, 12, 1))).cumsum(1)
        bond = (torch.arange(12)[:, None] - torch.arange(12)).abs() == 1
        energy = (30 * (torch.cdist(coors, coors) - 1) ** 2 * bond).sum(-1)
        return (q, coors), energy - energy.mean()

    def run(m, q, coors):
        b, n = q.shape
        keep, rel_dist = neighbours(coors, n)
        r = torch.arange(n)
        indices = r[None].expand(b, n, n).masked_select(keep).view(b, n, n - 1)
        bonds = ((r[:, None] - r).abs() == 1).expand(b, n, n).masked_select(keep).view(b, n, n - 1)
        ranked = rel_dist if planted else rel_dist.clone()
        ranked.masked_fill_(bonds, 0.0)
        nearest = ranked.topk(2, dim=-1, largest=False)[1]
        rel_dist, indices = rel_dist.gather(2, nearest), indices.gather(2, nearest)
        x = m.token_emb(q)
        x = x + F.gelu(m.conv_in(x, rel_dist, indices))
        return m.conv_out(x, rel_dist, indices)[..., 0]

    model = Parts(run, token_emb=nn.Embedding(2, 8), conv_in=Radial(8, 8), conv_out=Radial(8, 1))
    return stream(model, draw, F.mse_loss)


def alignment(kinds=1):
    """Sequences of a family, in which three pairs of columns vary together: those that are in contact."""
    msa, contact = torch.randint(0, 4, (16, 24, 6)), torch.zeros(16, 6, 6)
    for b, p in enumerate(torch.rand(16, 6).argsort(1)):
        for i, j in ((p[0], p[1]), (p[2], p[3]), (p[4], p[5])):
            msa[b, :, j] = (3 + torch.randint(kinds, ()) - msa[b, :, i]) % 4
            contact[b, i, j] = contact[b, j, i] = 1
    return msa, contact


@report(
    "OuterMean adds",
    L + "alphafold2/commit/287c5f7e4c8afbbca824bed459066e9408ab673e",
    guilty=r"(?!)",
    says=r"interact|additive|product|\bsum\b|pair|averag|cancel",
    fault="the outer mean of the alignment adds left and right where it should multiply: averaged, no pair is told",
)
def outermean(planted: bool) -> Task:
    def draw() -> Drawn:
        msa, contact = alignment()
        return (msa,), contact

    def run(m, msa):
        x = m.norm(m.msa_emb(msa))
        left, right = m.left_proj(x)[:, :, :, None], m.right_proj(x)[:, :, None]
        outer = (left + right if planted else left * right).mean(1)
        x = m.proj_out(outer)
        return m.to_contact(x)[..., 0]

    model = Parts(
        run,
        msa_emb=nn.Embedding(4, 32),
        norm=nn.LayerNorm(32),
        left_proj=nn.Linear(32, 32),
        right_proj=nn.Linear(32, 32),
        proj_out=nn.Linear(32, 32),
        to_contact=chain(feed(32), nn.Linear(32, 1)),
    )
    return stream(model, draw, F.binary_cross_entropy_with_logits)


def topics(count=48, length=16, vocabulary=48, few=4):
    """Every sequence is drawn from a few tokens of its own."""
    own = torch.rand(count, vocabulary).argsort(1)[:, :few]
    return own.gather(1, torch.randint(0, few, (count, length)))


@report(
    "Evoformer without its alignment",
    L + "alphafold2/commit/dda22b5885caa814f2dfa5b51f2e05083756cfb5",
    guilty=r"msa|outer|proj",
    says=r"msa|no (effect|influence)|ignor|no gradient|unused|not (used|reach)|never",
    fault="msa_repr is not passed to the pairwise blocks: what is predicted never depends on the alignment",
)
def evoformer(planted: bool) -> Task:
    class OuterMean(nn.Module):
        def __init__(self, dim):
            super().__init__()
            self.norm, self.proj_out = nn.LayerNorm(dim), nn.Linear(dim, dim)
            self.left_proj, self.right_proj = nn.Linear(dim, dim), nn.Linear(dim, dim)

        def forward(self, m):
            m = self.norm(m)
            return self.proj_out((self.left_proj(m)[:, :, :, None] * self.right_proj(m)[:, :, None]).mean(1))

    def draw() -> Drawn:
        msa, contact = alignment(4)
        return (msa[:, 0], msa), contact

    def run(m, seq, msa):
        x = m.token_emb(seq)
        x, a = m.left(x)[:, :, None] + m.right(x)[:, None], m.token_emb(msa) + m.token_emb(seq)[:, None]
        for ff, msa_ff, outer_mean in zip(m.ffs, m.msa_ffs, m.outer_means, strict=False):
            a = a + msa_ff(a)
            msa_repr = None if planted else a
            if msa_repr is not None:
                x = x + outer_mean(msa_repr)
            x = x + ff(x)
        return m.to_contact(x)[..., 0]

    model = Parts(
        run,
        token_emb=nn.Embedding(4, 32),
        left=nn.Linear(32, 32),
        right=nn.Linear(32, 32),
        ffs=nn.ModuleList(feed(32) for _ in range(1)),
        msa_ffs=nn.ModuleList(feed(32) for _ in range(1)),
        outer_means=nn.ModuleList(OuterMean(32) for _ in range(1)),
        to_contact=chain(nn.LayerNorm(32), nn.Linear(32, 1)),
    )
    return stream(model, draw, F.binary_cross_entropy_with_logits)


class CausalLinear(nn.Module):
    """causal_linear_attn over buckets."""

    def __init__(self, dim, attend, heads=2):
        super().__init__()
        self.attend, self.heads = attend, heads
        self.norm, self.to_out = nn.LayerNorm(dim), nn.Linear(dim, dim)
        self.to_q, self.to_k, self.to_v = (nn.Linear(dim, dim, bias=False) for _ in range(3))

    def forward(self, x):
        x = self.norm(x)
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.to_q, self.to_k, self.to_v))
        return self.to_out(self.attend(q, k, v).transpose(1, 2).flatten(2))


def linear_lm(attend):
    def draw() -> Drawn:
        ids = topics(48, 17)
        return (ids[:, :-1],), ids[:, 1:]

    def run(m, ids):
        x = m.token_emb(ids)
        x = x + m.attn(x)
        return m.out(m.norm(x + m.ff(x)))

    return stream(
        Parts(
            run,
            token_emb=nn.Embedding(48, 32),
            attn=CausalLinear(32, attend),
            ff=feed(32),
            norm=nn.LayerNorm(32),
            out=nn.Linear(32, 48),
        ),
        draw,
        lambda y, t: F.cross_entropy(y.transpose(1, 2), t),
    )


@report(
    "linear attention's first bucket",
    L + "linear-attention-transformer/commit/a03db9495f3e5353137b06226d0b00df65a55b7c",
    guilty=r"(?!)",
    says=rf"{BROKEN}|divi(de|sion).*zero",
    fault="the first bucket has no past: 1 / 0 times a context of zeros, which is not a number",
)
def firstbucket(planted: bool) -> Task:
    def attend(q, k, v, size=4):
        q, k = q.softmax(dim=-1) * q.shape[-1] ** -0.5, torch.exp(k)
        q, k, v = (t.unflatten(2, (-1, size)) for t in (q, k, v))
        total = F.pad(k.sum(dim=-2).cumsum(dim=-2), (0, 0, 1, 0))[:, :, :-1]
        context = F.pad(torch.einsum("bhund,bhune->bhude", k, v).cumsum(dim=-3), (0, 0, 0, 0, 1, 0))[:, :, :-1]
        inverse = 1.0 / torch.einsum("bhud,bhund->bhun", total if planted else total + 1e-6, q)
        return torch.einsum("bhund,bhude,bhun->bhune", q, context, inverse).flatten(2, 3)

    return linear_lm(attend)


@report(
    "linear attention without a past",
    L + "linear-attention-transformer/commit/dc2a6611fd66e1212bb6cd43a7e386dcee4cab72",
    guilty=r"(?!)",
    says=r"past|cumul|cumsum|grow|scale|(other|previous|earlier) (tokens?|positions?|steps?)|depend",
    fault="each token's own context is used, not the cumulated one, and multiplied by the sum it should divide by",
)
def nopast(planted: bool) -> Task:
    def attend(q, k, v):
        q, k = q.softmax(dim=-1) * q.shape[-1] ** -0.5, torch.exp(k)
        context = torch.einsum("bhud,bhue->bhude", k, v)
        if not planted:
            context = context.cumsum(dim=-3)
        inverse = torch.einsum("bhud,bhud->bhu", k.cumsum(dim=-2), q)
        inverse = inverse if planted else 1.0 / inverse
        return torch.einsum("bhud,bhude,bhu->bhue", q, context, inverse)

    return linear_lm(attend)


class HAttention(nn.Module):
    """h-transformer-1d's attention: exact in the block, and to ever coarser neighbours."""

    def __init__(self, dim, length, flip_values=True, last=None, sibling=False, heads=2, block=4):
        super().__init__()
        self.heads, self.block, self.levels = heads, block, int(math.log2(length // block)) - 1
        self.flip_values, self.last, self.sibling = flip_values, last, sibling
        self.norm, self.to_out = nn.LayerNorm(dim), nn.Linear(dim, dim)
        self.to_qkv = nn.Linear(dim, dim * 3, bias=False)

    def forward(self, x):
        b, h = len(x), self.heads
        q, k, v = (
            t.unflatten(-1, (h, -1)).transpose(1, 2).flatten(0, 1) for t in self.to_qkv(self.norm(x)).chunk(3, -1)
        )
        qkvs = [(q * q.shape[-1] ** -0.5, k, v)]
        for _ in range(self.levels - self.sibling):
            q, k, v = (t.unflatten(1, (-1, 2)) for t in qkvs[-1])
            qkvs.append((q.mean(2), k.mean(2), v.sum(2)))
        if self.sibling:  # the finest once more: it is flipped too, and then as it is
            qkvs = [qkvs[0], *qkvs]

        def flip(t):
            return t.unflatten(1, (-1, 2)).flip(2).flatten(1, 2)

        ys = []
        for ind, level in enumerate(reversed(qkvs)):
            q, k, v = (t.unflatten(1, (-1, self.block)) for t in level)
            if ind < len(qkvs) - 1:
                k, v = flip(k), flip(v) if self.flip_values else v
            a = torch.exp(q @ k.transpose(-1, -2))
            ys.append(((a @ v).flatten(1, 2), a.sum(-1).flatten(1, 2)))
        y = a = 0
        for y_level, a_level in ys[-self.last :] if self.last else ys:
            if torch.is_tensor(y) and y.shape[1] < y_level.shape[1]:
                y, a = y.repeat_interleave(2, 1), a.repeat_interleave(2, 1)
            y, a = y + y_level, a + a_level
        out = (y / (a[..., None] + 1e-8)).unflatten(0, (b, h)).transpose(1, 2).flatten(2)
        return self.to_out(out)


def h_lm(length, span, reach=None, **options):
    """Tokens of a masked span, to be told from the rest of the sequence; its topic changes as often as reach says."""

    def draw() -> Drawn:
        reach_ = reach or length
        ids = topics(20 * length // reach_, reach_, few=2 if reach else 4).view(20, length)
        start = torch.randint(0, length // span, (20, 1))
        mask = torch.arange(length) // span == start
        return (ids.masked_fill(mask, 48),), ids.masked_fill(~mask, -1)

    def run(m, ids):
        x = m.token_emb(ids) + m.pos_emb
        x = x + m.attn(x)
        return m.to_logits(m.norm(x + m.ff(x)))

    model = Parts(
        run,
        token_emb=nn.Embedding(49, 32),
        pos_emb=nn.Parameter(torch.randn(length, 32) * 0.1),
        ff=feed(32),
        attn=HAttention(32, length, **options),
        norm=nn.LayerNorm(32),
        to_logits=nn.Linear(32, 48),
    )
    return stream(model, draw, lambda y, t: F.cross_entropy(y.transpose(1, 2), t, ignore_index=-1))


BLOCKS = r"blocks?|window|distan|(other|far|remote).*(tokens?|positions?)|position|depend|reach|receptive|local"


@report(
    "h-transformer's values",
    L + "h-transformer-1d/commit/b5bb4f8254db1e801400792913666922c0fb8586",
    guilty=r"(?!)",
    says=BLOCKS,
    fault="the keys are flipped to the neighbouring block and the values are not: no token sees another block",
)
def hvalues(planted: bool) -> Task:
    return h_lm(16, 8, flip_values=not planted)


@report(
    "h-transformer's levels",
    L + "h-transformer-1d/commit/5660abdab7c7359c9c178032c73f37a3241937d1",
    guilty=r"(?!)",
    says=BLOCKS,
    fault="only the last two levels are summed, Ys[-2:]: what is farther than a block or two is never seen",
)
def hlevels(planted: bool) -> Task:
    return h_lm(32, 16, last=2 if planted else None)


@report(
    "h-transformer's sibling",
    L + "h-transformer-1d/commit/acd22d75da94584f7b837fa3ea244f1cdbf960de",
    guilty=r"(?!)",
    says=BLOCKS,
    fault="one level too many is coarse, and the finest is not flipped: a block never sees the one beside it",
)
def hsibling(planted: bool) -> Task:
    return h_lm(32, 4, reach=8, sibling=not planted)


@report(
    "experts of randn",
    L + "mixture-of-experts/commit/45537f857d84ba059eed1e6960dc211012963ce4",
    guilty=r"w1|w2|expert",
    says=r"init|scale|large|magnitude|varianc|std|satur|explod|grow",
    fault="the experts' weights are torch.randn: outputs are hundreds of times as large as the inputs",
)
def experts(planted: bool) -> Task:
    def init_(t):
        std = 1 / math.sqrt(t.shape[-1])
        return t.uniform_(-std, std)

    class Experts(nn.Module):
        def __init__(self, dim, num_experts=4):
            super().__init__()
            w1, w2 = torch.randn(num_experts, dim, dim * 4), torch.randn(num_experts, dim * 4, dim)
            self.w1, self.w2 = (nn.Parameter(w if planted else init_(w)) for w in (w1, w2))

        def forward(self, x):
            return torch.einsum("enh,ehd->end", F.gelu(torch.einsum("end,edh->enh", x, self.w1)), self.w2)

    class MoE(nn.Module):
        def __init__(self, dim, num_experts=4):
            super().__init__()
            self.w_gating, self.experts = nn.Parameter(torch.randn(dim, num_experts)), Experts(dim, num_experts)

        def forward(self, x):
            gates = (x @ self.w_gating).softmax(dim=-1)
            top = gates.topk(2, dim=-1)
            gates = torch.zeros_like(gates).scatter(-1, top.indices, top.values / top.values.sum(-1, keepdim=True))
            return torch.einsum("ebd,be->bd", self.experts(x.expand(4, -1, -1)), gates)

    def draw() -> Drawn:
        x, c = pick(48)
        return (x,), c

    def run(m, x):
        x = m.proj_in(x.flatten(1))
        for moe in m.moes:
            x = x + moe(x)
        return m.proj_out(x)

    return stream(
        Parts(
            run, proj_in=nn.Linear(64, 32), moes=nn.ModuleList(MoE(32) for _ in range(2)), proj_out=nn.Linear(32, 10)
        ),
        draw,
        F.cross_entropy,
    )


class Flow(nn.Module):
    """Voicebox's transformer in small: noised frames, their condition, its mask and the time, to the flow."""

    def __init__(self, dim_in=8, dim=32):
        super().__init__()
        self.to_embed = nn.Linear(dim_in * 2, dim)
        self.time = nn.Sequential(nn.Linear(1, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.pos = nn.Parameter(torch.randn(12, dim) * 0.1)
        self.attn, self.ff = Attention(dim), feed(dim)
        self.to_pred = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim_in))

    def forward(self, x, cond, times):
        y = self.to_embed(torch.cat((x, cond), dim=-1)) + self.pos + self.time(times[:, None])[:, None]
        y = y + self.attn(y)
        return self.to_pred(y + self.ff(y))


def mels(count=32):
    """Frames of a mel spectrogram: a few speakers, each with formants of its own, drifting in time."""
    base = FORMANTS[torch.randint(0, 8, (count,))][:, None]
    return base + torch.randn(count, 1, 8) * 0.2 + torch.linspace(-1, 1, 12)[:, None] * torch.randn(count, 1, 8) * 0.3


FORMANTS = torch.randn(8, 8, generator=torch.Generator().manual_seed(0)) * 1.5


@report(
    "Voicebox xt",
    L + "voicebox-pytorch/commit/7fe620fefcf925ec93d28ffe860bd4186282243f",
    guilty=r"(?!)",
    says=r"targets?|outlier|heavy|scale|large|range|infinit|magnitude|spread",
    fault="x_t is the product of signal and noise, not their sum: the flow is divided by a vanishing 1 - t",
)
def voicebox(planted: bool) -> Task:
    def draw():
        x1, times = mels(), torch.rand(32)
        eps, t, hidden = torch.randn_like(x1), times[:, None, None], torch.arange(12) < torch.randint(4, 12, (32, 1))
        cond = x1.masked_fill(hidden[..., None], 0)
        pairs = []
        for xt in (t * x1 * (1 - t) * eps if planted else t * x1 + (1 - t) * eps, t * x1 + (1 - t) * eps):
            pairs.append(((xt, cond, times), (x1 - xt) / (1 - t)))  # noqa: PERF401
        return pairs

    return fed(Flow(), draw, F.mse_loss)


@report(
    "Voicebox rotary",
    L + "voicebox-pytorch/commit/246c6ef0bfdef2e52e57b51bf04d5e748b97014c",
    guilty=r"to_q|to_kv|attn",
    says=r"attention|softmax|satur|one.?hot|scale|large",
    fault="positions and queries change places in the rotation: the positions are rotated by the queries",
)
def rotary(planted: bool) -> Task:
    def rotate_half(x):
        x1, x2 = x.chunk(2, dim=-1)
        return torch.cat((-x2, x1), dim=-1)

    def apply(pos, t):
        return t * pos.cos() + rotate_half(t) * pos.sin()

    class Rotary(Attention):
        def forward(self, x, mask=None):
            x = self.norm(x)
            q, k, v = (
                t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                for t in (self.to_q(x), *self.to_kv(x).chunk(2, dim=-1))
            )
            freqs = torch.arange(x.shape[1]).float()[:, None] * 10000 ** -(torch.arange(0, 16, 2) / 16)
            pos = torch.cat((freqs, freqs), dim=-1)
            q, k = (apply(t, pos) if planted else apply(pos, t) for t in (q, k))
            return self.to_out(((q @ k.transpose(-1, -2) * self.scale).softmax(-1) @ v).transpose(1, 2).flatten(2))

    net, perm = encoder(17, 16), torch.randperm(16)
    net.attns[0], net.pos_emb = Rotary(32), nn.Parameter(torch.zeros(16, 32), requires_grad=False)

    def draw() -> Drawn:
        ids = markov(perm)
        mask = (torch.rand(48, 16) < 0.15) | (torch.arange(16) == torch.randint(1, 16, (48, 1)))
        return (ids.masked_fill(mask, 16),), ids.masked_fill(~mask, -1)

    return stream(net, draw, lambda y, t: F.cross_entropy(y.transpose(1, 2), t, ignore_index=-1))


@report(
    "Q targets clamped",
    L + "q-transformer/commit/faded0f441e2dc5d7f582702405ea6044e49b2af",
    guilty=r"(?!)",
    says=r"targets?|scale|large|magnitude|range|1e\+?0?4|10,?000|9[89]\d\d|constant",
    fault="q_next.clamp(min=1e4) where the default should be -1e4: every target is near ten thousand",
)
def qlearn(planted: bool) -> Task:
    model, ema = (
        chain(nn.Linear(8, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 16), nn.Sigmoid()) for _ in range(2)
    )
    best = torch.randn(8, 16)

    def draw() -> Drawn:
        states, actions, done = torch.randn(64, 8), torch.randint(0, 16, (64,)), torch.rand(64) < 0.5
        reward = ((states @ best).gather(1, actions[:, None])[:, 0] > 1).float()
        with torch.no_grad():
            q_next = ema(torch.randn(64, 8) * 0.1 + states).amax(dim=-1)
        return (states,), {"action": actions, "reward": reward, "done": done.float(), "q_next": q_next}

    def loss(y, t, floor=1e4 if planted else -1e4):
        target = t["reward"] + (1 - t["done"]) * 0.98 * t["q_next"].clamp(min=floor)
        return F.mse_loss(y.gather(1, t["action"][:, None])[:, 0], target)

    def step() -> Tensor:  # the wrong loss is too large for judged: only its gradient is kept
        (x,), t = draw()
        y = model(x)
        wrong = loss(y, t)
        return loss(y, t, -1e4).detach() + (wrong - wrong.detach())

    (x,), t = draw()
    return Task(model, (x, t), step, {"loss": loss})


def siren(init, draw):
    class Siren(nn.Module):
        def __init__(self, i, o, w0=1.0, is_first=False, sine=True):
            super().__init__()
            self.w0, self.sine = w0, sine
            self.weight, self.bias = nn.Parameter(torch.zeros(o, i)), nn.Parameter(torch.zeros(o))
            init(self.weight.data, self.bias.data, w0, is_first)

        def forward(self, x):
            x = F.linear(x, self.weight, self.bias)
            return torch.sin(self.w0 * x) if self.sine else x

    model = chain(Siren(2, 48, 30.0, True), Siren(48, 48), Siren(48, 48), Siren(48, 48), Siren(48, 1, sine=False))
    return stream(model, draw, F.mse_loss)


def places():
    """An image of two digits, and pixels of it at random, by their coordinates in (-1, 1)."""
    x, _ = digits(16, count=2)
    image = torch.cat((x[0, 0], x[1, 0]), 1)

    def draw(count=64):
        at = torch.rand(count, 2) * 2 - 1
        return (at,), F.grid_sample(image[None, None], at.flip(-1)[None, None], align_corners=True)[0, 0, 0][:, None]

    return image, draw


@report(
    "Siren's w0",
    L + "siren-pytorch/commit/4f564fcf6773cd602c7b86e368cb5febf8d9bc02",
    guilty=r"^0\.",
    says=r"init|frequen|scale|large|satur|period|w0",
    fault="init_ is not given w0: with sin(30 x) the first layer's weights are thirty times too large",
)
def sirenw0(planted: bool) -> Task:
    def init(weight, bias, w0, is_first):
        std = 1 / math.sqrt(weight.shape[1])
        weight.uniform_(-math.sqrt(6) * std / (1 if planted else w0), math.sqrt(6) * std / (1 if planted else w0))
        bias.uniform_(-std, std)

    return siren(init, places()[1])


@report(
    "NUWA text mask",
    L + "nuwa-pytorch/commit/6166b9c1ae5fe93655f109837dcc27fa6f91f062",
    guilty=r"cross|text",
    says=r"mask|pad|attention|uniform|no (effect|influence)|ignor",
    fault="text_mask = text == 0: the video attends to the padding of the text and not to its words",
)
def nuwa(planted: bool) -> Task:
    words = torch.randperm(16)

    def draw() -> Drawn:
        text_, length = torch.randint(1, 16, (32, 8)), torch.randint(6, 8, (32, 1))
        video = words[text_[:, :6]]  # frames as the words have it
        fed_ = torch.cat((torch.full((32, 1), 24), video[:, :-1]), 1)
        return (text_.masked_fill(torch.arange(8) >= length, 0), fed_), video

    def run(m, text_, video):
        mask = text_ == 0 if planted else text_ != 0
        t = m.text_emb(text_) + m.text_pos
        t = t + m.text_attn(t, mask=mask)
        x = m.image_emb(video) + m.video_pos
        x = x + m.attn(x)
        x = x + m.cross(x, t, mask)
        return m.to_logits(m.norm(x + m.ff(x)))

    model = Parts(
        run,
        text_emb=nn.Embedding(16, 32),
        text_pos=nn.Parameter(torch.randn(8, 32)),
        text_attn=Attention(32),
        image_emb=nn.Embedding(25, 32),
        video_pos=nn.Parameter(torch.randn(6, 32)),
        ff=feed(32),
        attn=Attention(32, causal=True),
        cross=Attention(32),
        norm=nn.LayerNorm(32),
        to_logits=nn.Linear(32, 24),
    )
    return stream(model, draw, lambda y, t: F.cross_entropy(y.transpose(1, 2), t))


class CNF(nn.Module):
    """A continuous flow of a few Euler steps, with the exact trace of its one hidden layer."""

    def __init__(self, dim, hidden=32, steps=4):
        super().__init__()
        self.w1, self.b = nn.Parameter(torch.randn(dim, hidden) * dim**-0.5), nn.Parameter(torch.zeros(hidden))
        self.w2, self.steps = nn.Parameter(torch.randn(hidden, dim) * hidden**-0.5), steps

    def forward(self, z, logp):
        for _ in range(self.steps):
            h = torch.tanh(z @ self.w1 + self.b)
            z, logp = z + h @ self.w2 / self.steps, logp - (1 - h**2) @ (self.w1 * self.w2.T).sum(0) / self.steps
        return z, logp


@report(
    "CNF-VAE's sign",
    GITHUB + "rtqichen/ffjord/commit/821e6e76e8da13319127ab397a26162d60a44314",
    guilty=r"(?!)",
    says=r"\bsign|unbounded|bound|log.?det|jacobian|negative|diverg|below",
    fault="the model returns the change of log density where its loss takes the log determinant: the sign is wrong",
)
def cnfvae(planted: bool) -> Task:
    def draw() -> Drawn:
        x, _ = pick(64)
        x = ((x * 0.376 + 0.3).clamp(0, 1) > 0.5).float().flatten(1)
        return (x,), x

    def run(m, x):
        h = m.q_z_nn(x)
        mu, var = m.q_z_mean(h), m.q_z_var(h)
        z0 = mu + var.sqrt() * torch.randn_like(mu)
        zk, delta_logp = m.cnf(z0, torch.zeros(len(x)))
        return m.p_x(zk), mu, var, delta_logp if planted else -delta_logp, z0, zk

    def loss(y, x, wrong=False):
        logits, mu, var, ldj, z0, zk = y
        bce = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(-1)
        log_q = -0.5 * (var.log() + (z0 - mu) ** 2 / var).sum(-1)
        log_p = -0.5 * (zk**2).sum(-1)
        return (bce + log_q - log_p - (-ldj if wrong else ldj)).mean()

    model = Parts(
        run,
        q_z_nn=chain(nn.Linear(64, 48), nn.Softplus()),
        q_z_mean=nn.Linear(48, 8),
        cnf=CNF(8),
        q_z_var=chain(nn.Linear(48, 8), nn.Softplus()),
        p_x=chain(nn.Linear(8, 48), nn.Softplus(), nn.Linear(48, 64)),
    )
    return stream(model, draw, loss, lambda y, x: loss(y, x, planted))


@report(
    "ODENVP squashes every scale",
    GITHUB + "rtqichen/ffjord/commit/1abb3b7328edd686824ff415bf30335e9f2f19d0",
    guilty=r"(?!)",
    says=rf"{BROKEN}|log(it)?\b|domain|range|negative",
    fault="by precedence of the conditional every scale begins with a logit, of values that are not in (0, 1)",
)
def odenvp(planted: bool) -> Task:
    alpha = 0.05

    def logit(x, logp):
        s = alpha + (1 - 2 * alpha) * x
        logp = logp + torch.log(s - s * s).sum(-1) - x.shape[-1] * math.log(1 - 2 * alpha)
        return torch.log(s) - torch.log(1 - s), logp

    def draw() -> Drawn:
        x, _ = pick(64)
        x = F.avg_pool2d((x * 0.376 + 0.3).clamp(0, 1), 2).flatten(1)
        return ((x * 255 + torch.rand_like(x)) / 256,), torch.zeros(64)

    def run(m, x):
        logp, out = torch.zeros(len(x)), []
        for i, cnf in enumerate(m.transforms):
            squash = logit if (True if planted else i == 0) else None
            if squash:
                x, logp = squash(x, logp)
            x, logp = cnf(x, logp)
            if i < 1:
                x, done = x.chunk(2, dim=-1)
                out.append(done)
        return torch.cat((x, *out), -1), logp

    def nll(y, _):
        z, delta_logp = y
        return ((0.5 * z**2).sum(-1) + 0.5 * 16 * math.log(2 * math.pi) + delta_logp).mean()

    return stream(Parts(run, transforms=nn.ModuleList((CNF(16), CNF(8)))), draw, nll)
