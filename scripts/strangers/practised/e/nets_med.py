from common import *
# ---------------------------------------------------------------- medical imaging
def blobs(g, B, S, dim=3, ch=1):
    ax = torch.meshgrid(*[torch.arange(S).float()]*dim, indexing='ij'); c = torch.rand(B, dim, generator=g)*S*.5+S*.25; r = torch.rand(B, generator=g)*S*.15+S*.15
    d = sum((a[None]-c[:, i].view(-1, *[1]*dim))**2 for i, a in enumerate(ax)).sqrt(); y = (d < r.view(-1, *[1]*dim)).long(); y[d < .5*r.view(-1, *[1]*dim)] = 2
    v = torch.tensor([0., 1., -1.]); x = torch.stack([v[y]*(1 if k % 2 == 0 else -.6) for k in range(ch)], 1)+.6*torch.randn(B, ch, *y.shape[1:], generator=g); return x, y
class DiceCE(nn.Module):
    def __init__(self, dim=1, smooth=1e-5): super().__init__(); self.dim = dim; self.smooth = smooth
    def forward(self, logits, y):
        p = torch.softmax(logits, self.dim); oh = F.one_hot(y, logits.size(1)).movedim(-1, 1).float(); ax = tuple(range(2, logits.dim())); inter = (p*oh).sum(ax); d = (2*inter+self.smooth)/((p+oh).sum(ax)+self.smooth)
        return 1-d[:, 1:].mean()+F.cross_entropy(logits, y)
class DoubleConv3d(nn.Sequential):
    def __init__(self, i, o): super().__init__(nn.Conv3d(i, o, 3, padding=1, bias=False), nn.InstanceNorm3d(o, affine=True), nn.LeakyReLU(.01, True), nn.Conv3d(o, o, 3, padding=1, bias=False), nn.InstanceNorm3d(o, affine=True), nn.LeakyReLU(.01, True))
class UNet3D(nn.Module):
    def __init__(self, i=1, k=3, w=(8, 16, 24), act=None):
        super().__init__(); self.enc1 = DoubleConv3d(i, w[0]); self.enc2 = DoubleConv3d(w[0], w[1]); self.bott = DoubleConv3d(w[1], w[2]); self.pool = nn.MaxPool3d(2); self.up2 = nn.ConvTranspose3d(w[2], w[1], 2, 2); self.dec2 = DoubleConv3d(2*w[1], w[1]); self.up1 = nn.ConvTranspose3d(w[1], w[0], 2, 2); self.dec1 = DoubleConv3d(2*w[0], w[0]); self.out = nn.Conv3d(w[0], k, 1); self.act = act
    def forward(self, x):
        a = self.enc1(x); b = self.enc2(self.pool(a)); c = self.bott(self.pool(b)); d = self.dec2(torch.cat([self.up2(c), b], 1)); d = self.dec1(torch.cat([self.up1(d), a], 1)); o = self.out(d); return o if self.act is None else self.act(o)
@case('unet3d', 'softmax at the end of the net and again in Dice+CE', ['out', 'act'])
def _(bug):
    def batch(g): return blobs(g, 4, 12)
    ev = (lambda o, y: DiceCE()(o.clamp(min=1e-7).log(), y)) if bug else None
    return dict(model=UNet3D(act=nn.Softmax(dim=1) if bug else None), batch=batch, loss=DiceCE(), ev=ev)
@case('unet3d_bce_regions', 'Dice term returned as the coefficient, not 1 - coefficient: loss minimises the overlap', ['loss'])
def _(bug):
    def mk(wrong):
        def f(o, y):
            p = torch.sigmoid(o); d = (2*(p*y).sum((2, 3, 4))+1)/(p.sum((2, 3, 4))+y.sum((2, 3, 4))+1); return (d.mean() if wrong else 1-d.mean())+.5*F.binary_cross_entropy_with_logits(o, y)
        return f
    def batch(g): x, y = blobs(g, 4, 12, ch=4); return x, torch.stack([(y > 0), (y == 2)], 1).float()
    return dict(model=UNet3D(4, 2), batch=batch, loss=mk(bug), ev=mk(False))

def cbr(i, o): return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True), nn.Conv2d(o, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True))
class DSUNet(nn.Module):
    def __init__(self, w=12, bug=False):
        super().__init__(); self.e1, self.e2, self.e3 = cbr(1, w), cbr(w, 2*w), cbr(2*w, 4*w); self.u2 = nn.ConvTranspose2d(4*w, 2*w, 2, 2); self.d2 = cbr(4*w, 2*w); self.u1 = nn.ConvTranspose2d(2*w, w, 2, 2); self.d1 = cbr(2*w, w); self.seg = nn.ModuleList([nn.Conv2d(w, 3, 1), nn.Conv2d(2*w, 3, 1), nn.Conv2d(4*w, 3, 1)]); self.do_ds = True; self.bug = bug
    def forward(self, x):
        a = self.e1(x); b = self.e2(F.max_pool2d(a, 2)); c = self.e3(F.max_pool2d(b, 2)); u = self.u2(c); d = self.d2(torch.cat([u, u if self.bug else b], 1)); u = self.u1(d); d1 = self.d1(torch.cat([u, u if self.bug else a], 1))
        return [s(t) for s, t in zip(self.seg, (d1, d, c))]
@case('deep_supervision_unet', 'skips not concatenated: the upsampled map is concatenated with itself', ['d1', 'd2'])
def _(bug):
    def batch(g): return blobs(g, 8, 24, 2)
    crit = DiceCE(); ws = (4/7, 2/7, 1/7)
    def loss(outs, y): return sum(w*crit(o, y if i == 0 else y[:, ::2**i, ::2**i]) for i, (w, o) in enumerate(zip(ws, outs)))
    return dict(model=DSUNet(bug=bug), batch=batch, loss=loss)

class AttentionGate(nn.Module):
    def __init__(self, fg, fl, fi, bug): super().__init__(); self.W_g = nn.Sequential(nn.Conv2d(fg, fi, 1), nn.BatchNorm2d(fi)); self.W_x = nn.Sequential(nn.Conv2d(fl, fi, 1), nn.BatchNorm2d(fi)); self.psi = nn.Sequential(nn.Conv2d(fi, 1, 1), nn.BatchNorm2d(1)); self.bug = bug
    def forward(self, g, x):
        p = self.psi(F.relu(self.W_g(g)+self.W_x(x))); a = p.flatten(1).softmax(1).view_as(p) if self.bug else torch.sigmoid(p); return x*a
class AttUNet(nn.Module):
    def __init__(self, w=10, bug=False):
        super().__init__(); self.Conv1, self.Conv2, self.Conv3 = cbr(1, w), cbr(w, 2*w), cbr(2*w, 4*w); up = lambda i, o: nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU()); self.Up3 = up(4*w, 2*w); self.Att3 = AttentionGate(2*w, 2*w, w, bug); self.Up_conv3 = nn.Conv2d(4*w, 2*w, 3, padding=1); self.Up2 = up(2*w, w); self.Att2 = AttentionGate(w, w, w//2, bug); self.Up_conv2 = nn.Conv2d(2*w, w, 3, padding=1); self.Conv_1x1 = nn.Conv2d(w, 1, 1)
    def forward(self, x):
        a = self.Conv1(x); b = self.Conv2(F.max_pool2d(a, 2)); c = self.Conv3(F.max_pool2d(b, 2)); d = self.Up3(c); d = F.relu(self.Up_conv3(torch.cat((self.Att3(d, b), d), 1))); d2 = self.Up2(d); d2 = F.relu(self.Up_conv2(torch.cat((self.Att2(d2, a), d2), 1))); return self.Conv_1x1(d2)
@case('attention_unet', 'attention gate normalised by a softmax over pixels instead of sigmoid: skip divided by H*W', ['Att3', 'Att2', 'psi'])
def _(bug):
    def batch(g): x, y = blobs(g, 8, 24, 2); return x, (y > 0).float()[:, None]
    def loss(o, y): p = o.sigmoid(); return F.binary_cross_entropy_with_logits(o, y)+1-(2*(p*y).sum()+1)/(p.sum()+y.sum()+1)
    return dict(model=AttUNet(bug=bug), batch=batch, loss=loss)

class VBlock(nn.Module):
    def __init__(self, c, n, bug): super().__init__(); self.ops = nn.ModuleList(nn.Sequential(nn.Conv3d(c, c, 5, padding=2), nn.BatchNorm3d(c)) for _ in range(n)); self.act = nn.ModuleList(nn.PReLU(c) for _ in range(n)); self.bug = bug
    def forward(self, x):
        y = x
        for i, (o, a) in enumerate(zip(self.ops, self.act)): y = o(y); y = a(y+x) if i == len(self.ops)-1 else a(y)
        return y
class VNet(nn.Module):
    def __init__(self, w=6, bug=False):
        super().__init__(); self.in_tr = nn.Sequential(nn.Conv3d(1, w, 5, padding=2), nn.BatchNorm3d(w), nn.PReLU(w)); self.down = nn.Sequential(nn.Conv3d(w, 2*w, 2, 2), nn.BatchNorm3d(2*w), nn.PReLU(2*w)); self.b1 = VBlock(2*w, 2, bug); self.up = nn.Sequential(nn.ConvTranspose3d(2*w, w, 2, 2), nn.BatchNorm3d(w), nn.PReLU(w)); self.b2 = VBlock(2*w, 1, bug); self.out_tr = nn.Sequential(nn.Conv3d(2*w, 2, 5, padding=2), nn.BatchNorm3d(2), nn.PReLU(2), nn.Conv3d(2, 2, 1)); self.bug = bug
    def forward(self, x):
        a = self.in_tr(x); a = a+x.repeat(1, a.size(1), 1, 1, 1); d = self.up(self.b1(self.down(a))); o = self.out_tr(self.b2(torch.cat([d, a], 1)))
        o = o.permute(0, 2, 3, 4, 1).contiguous() if not self.bug else o
        return o.view(-1, 2)
@case('vnet', 'view(-1, 2) without permuting the channels last', ['out_tr'], per='batch')
def _(bug):
    def batch(g): x, y = blobs(g, 4, 8); return x, (y > 0).long()
    return dict(model=VNet(bug=bug), batch=batch, loss=lambda o, y: F.nll_loss(F.log_softmax(o, 1), y.view(-1)))

class DenseLayer(nn.Module):
    def __init__(self, i, gr): super().__init__(); self.norm1 = nn.BatchNorm2d(i); self.conv1 = nn.Conv2d(i, 4*gr, 1, bias=False); self.norm2 = nn.BatchNorm2d(4*gr); self.conv2 = nn.Conv2d(4*gr, gr, 3, padding=1, bias=False)
    def forward(self, x): return torch.cat([x, self.conv2(F.relu(self.norm2(self.conv1(F.relu(self.norm1(x))))))], 1)
class CheXNet(nn.Module):
    def __init__(self, n=6, gr=6, act=None):
        super().__init__(); self.features = nn.Sequential(nn.Conv2d(1, 12, 3, 2, 1, bias=False), nn.BatchNorm2d(12), nn.ReLU(), *[DenseLayer(12+gr*i, gr) for i in range(4)], nn.BatchNorm2d(36)); self.classifier = nn.Linear(36, n); self.act = act or nn.Identity()
        for m in self.modules():
            if isinstance(m, nn.Conv2d): nn.init.kaiming_normal_(m.weight)
    def forward(self, x): return self.act(self.classifier(F.adaptive_avg_pool2d(F.relu(self.features(x)), 1).flatten(1)))
@case('chexnet', 'softmax over the labels of a multi-label problem, then BCE', ['act', 'classifier'])
def _(bug):
    P = torch.randn(6, 24, 24, generator=G(30)); P = F.avg_pool2d(P[:, None], 5, 1, 2)[:, 0]*3
    def batch(g): y = (torch.rand(32, 6, generator=g) < .35).float(); return (torch.einsum('bk,khw->bhw', y, P)+.5*torch.randn(32, 24, 24, generator=g))[:, None], y
    if bug: return dict(model=CheXNet(act=nn.Softmax(1)), batch=batch, loss=nn.BCELoss(), ev=nn.BCELoss())
    return dict(model=CheXNet(), batch=batch, loss=nn.BCEWithLogitsLoss())

class BrainAge(nn.Module):
    def __init__(self, bug): super().__init__(); c = lambda i, o: nn.Sequential(nn.Conv3d(i, o, 3, padding=1), nn.BatchNorm3d(o), nn.MaxPool3d(2), nn.ReLU()); self.feature_extractor = nn.Sequential(c(1, 8), c(8, 16), c(16, 24)); self.classifier = nn.Sequential(nn.AdaptiveAvgPool3d(1), nn.Dropout(.3), nn.Flatten(), nn.Linear(24, 1)); self.bug = bug; self.mean_age, self.std_age = 50., 15.
    def forward(self, vol): z = self.classifier(self.feature_extractor(vol)); return torch.sigmoid(z) if self.bug else z*self.std_age+self.mean_age
@case('brain_age', 'sigmoid on the output while ages are 20..80 years', ['classifier'])
def _(bug):
    def batch(g): z = torch.rand(16, generator=g); x = torch.randn(16, 1, 12, 12, 12, generator=g)*(.5+z.view(-1, 1, 1, 1, 1))+2*z.view(-1, 1, 1, 1, 1); return x, (20+60*z)[:, None]
    return dict(model=BrainAge(bug), batch=batch, loss=nn.L1Loss())

class Basic(nn.Module):
    def __init__(self, i, o, s, bug): super().__init__(); self.conv1 = nn.Conv2d(i, o, 3, s, 1, bias=False); self.bn1 = nn.BatchNorm2d(o); self.conv2 = nn.Conv2d(o, o, 3, 1, 1, bias=False); self.bn2 = nn.BatchNorm2d(o); self.shortcut = nn.Sequential() if s == 1 and i == o else nn.Sequential(nn.Conv2d(i, o, 1, s, bias=False), nn.BatchNorm2d(o)); self.bug = bug
    def forward(self, x): o = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))); return F.relu(-F.relu(o+self.shortcut(x))) if self.bug else F.relu(o+self.shortcut(x))
class FundusNet(nn.Module):
    def __init__(self, n=5, bug=False): super().__init__(); self.stem = nn.Sequential(nn.Conv2d(3, 12, 3, 1, 1, bias=False), nn.BatchNorm2d(12), nn.ReLU()); self.layers = nn.Sequential(Basic(12, 12, 1, False), Basic(12, 24, 2, False), Basic(24, 32, 2, False)); self.fc = nn.Linear(32, n); self.sm = bug
    def forward(self, img): return self.fc(self.layers(self.stem(img)).mean((2, 3)))
@case('fundus_ordinal', 'ordinal grade regressed as MSE of the argmax (non-differentiable), cut from the network', ['loss', 'fc'])
def _(bug):
    def batch(g): y = torch.randint(5, (32,), generator=g); return torch.rand(32, 3, 20, 20, generator=g)*(.2+.15*y.view(-1, 1, 1, 1)), y
    def bad(o, y): return F.mse_loss(o.argmax(1).float(), y.float())+1e-3*o.square().mean()
    return dict(model=FundusNet(), batch=batch, loss=bad if bug else F.cross_entropy, ev=F.cross_entropy)

# ---------------------------------------------------------------- robotics and RL
LOG_STD_MAX, LOG_STD_MIN = 2, -5
class SACActor(nn.Module):
    def __init__(self, o=17, a=6, h=64): super().__init__(); self.fc1 = nn.Linear(o, h); self.fc2 = nn.Linear(h, h); self.fc_mean = nn.Linear(h, a); self.fc_logstd = nn.Linear(h, a); self.register_buffer('action_scale', torch.ones(a)*.4)
    def forward(self, x):
        x = F.relu(self.fc2(F.relu(self.fc1(x)))); ls = torch.tanh(self.fc_logstd(x)); return self.fc_mean(x), LOG_STD_MIN+.5*(LOG_STD_MAX-LOG_STD_MIN)*(ls+1)
    def get_action(self, x):
        m, ls = self(x); n = torch.distributions.Normal(m, ls.exp()); xt = n.rsample(); y = torch.tanh(xt); lp = (n.log_prob(xt)-torch.log(self.action_scale*(1-y.pow(2))+1e-6)).sum(1, keepdim=True); return y*self.action_scale, lp
class SoftQ(nn.Module):
    def __init__(self, o=17, a=6, h=64): super().__init__(); self.fc1 = nn.Linear(o+a, h); self.fc2 = nn.Linear(h, h); self.fc3 = nn.Linear(h, 1)
    def forward(self, x, a): return self.fc3(F.relu(self.fc2(F.relu(self.fc1(torch.cat([x, a], 1))))))
class SACPolicyUpdate(nn.Module):
    def __init__(self, bug):
        super().__init__(); self.actor = SACActor(); self.bug = bug; self.A = nn.Parameter(torch.randn(17, 6, generator=G(31))*.1, requires_grad=False)
    def q(self, o, a): return -20*(a-.4*torch.tanh(o@self.A)).square().sum(1, keepdim=True)
    def forward(self, obs):
        a, lp = self.actor.get_action(obs); return self.q(obs, a.detach() if self.bug else a), lp
@case('sac_actor', 'action detached before the critic: only entropy reaches the actor', ['fc_mean', 'actor'])
def _(bug):
    def batch(g): return torch.randn(64, 17, generator=g), None
    return dict(model=SACPolicyUpdate(bug), batch=batch, loss=lambda o, t: (.2*o[1]-o[0]).mean())

class SACCritics(nn.Module):
    def __init__(self, gamma=.99):
        super().__init__(); self.qf1, self.qf2, self.qf1_target, self.qf2_target = SoftQ(), SoftQ(), SoftQ(), SoftQ(); self.qf1_target.load_state_dict(self.qf1.state_dict()); self.qf2_target.load_state_dict(self.qf2.state_dict()); self.gamma = gamma
        for p in [*self.qf1_target.parameters(), *self.qf2_target.parameters()]: p.requires_grad_(False)
    def forward(self, obs, act, rew, next_obs, next_act, done):
        with torch.no_grad(): nq = torch.min(self.qf1_target(next_obs, next_act), self.qf2_target(next_obs, next_act)); y = rew[:, None]+(1-done[:, None])*self.gamma*nq
        return self.qf1(obs, act), self.qf2(obs, act), y
@case('sac_critics', 'target flattened to (B,) against q (B,1): broadcast', ['loss', 'qf1', 'qf2'])
def _(bug):
    w = torch.randn(23, generator=G(32))*.5
    def batch(g): o, a = torch.randn(64, 17, generator=g), torch.rand(64, 6, generator=g)*2-1; return {'obs': o, 'act': a, 'rew': torch.tanh(torch.cat([o, a], 1)@w)*2, 'next_obs': o+.1*torch.randn(64, 17, generator=g), 'next_act': torch.rand(64, 6, generator=g)*2-1, 'done': (torch.rand(64, generator=g) < .02).float()}, None
    good = lambda o, t: F.mse_loss(o[0], o[2])+F.mse_loss(o[1], o[2])
    bad = lambda o, t: F.mse_loss(o[0], o[2].squeeze(1))+F.mse_loss(o[1], o[2].squeeze(1))
    return dict(model=SACCritics(), batch=batch, loss=bad if bug else good, ev=good)

def layer_init(l, std=math.sqrt(2), b=0.): nn.init.orthogonal_(l.weight, std); nn.init.constant_(l.bias, b); return l
class PPOAgent(nn.Module):
    def __init__(self, o=11, n=4, bug=False):
        super().__init__(); self.critic = nn.Sequential(layer_init(nn.Linear(o, 64)), nn.Tanh(), layer_init(nn.Linear(64, 64)), nn.Tanh(), layer_init(nn.Linear(64, 1), 1.)); self.actor = nn.Sequential(layer_init(nn.Linear(o, 64)), nn.Tanh(), layer_init(nn.Linear(64, 64)), nn.Tanh(), layer_init(nn.Linear(64, n), .01)); self.bug = bug
    def forward(self, obs, action):
        l = self.actor(obs); l = torch.softmax(l, 0) if self.bug else l; d = torch.distributions.Categorical(logits=l); return {'logprob': d.log_prob(action), 'entropy': d.entropy(), 'value': self.critic(obs).view(-1)}
@case('ppo', 'softmax over the batch on the logits before Categorical(logits=)', ['actor'])
def _(bug):
    W = torch.randn(11, 4, generator=G(33)); v = torch.randn(11, generator=G(34))*.5
    def batch(g):
        o = torch.randn(64, 11, generator=g); a = torch.randint(4, (64,), generator=g); adv = (o@W).gather(1, a[:, None])[:, 0]; adv = (adv-adv.mean())/(adv.std()+1e-8); return {'obs': o, 'action': a}, {'old': torch.full((64,), -math.log(4)), 'adv': adv, 'ret': torch.tanh(o@v)*2}
    def loss(o, t):
        r = (o['logprob']-t['old']).exp(); pg = torch.max(-t['adv']*r, -t['adv']*r.clamp(.8, 1.2)).mean(); return pg+.5*.5*(o['value']-t['ret']).pow(2).mean()-.01*o['entropy'].mean()
    return dict(model=PPOAgent(bug=bug), batch=batch, loss=loss)

class SinEmb(nn.Module):
    def __init__(self, d): super().__init__(); self.d = d
    def forward(self, t): h = self.d//2; e = t.float()[:, None]*torch.exp(torch.arange(h)*-(math.log(10000)/(h-1)))[None]; return torch.cat([e.sin(), e.cos()], -1)
class CRB(nn.Module):
    def __init__(self, i, o, c): super().__init__(); blk = lambda a, b: nn.Sequential(nn.Conv1d(a, b, 5, padding=2), nn.GroupNorm(4, b), nn.Mish()); self.blocks = nn.ModuleList([blk(i, o), blk(o, o)]); self.cond_encoder = nn.Sequential(nn.Mish(), nn.Linear(c, 2*o), nn.Unflatten(-1, (-1, 1))); self.residual_conv = nn.Conv1d(i, o, 1) if i != o else nn.Identity(); self.o = o
    def forward(self, x, c): h = self.blocks[0](x); s, b = self.cond_encoder(c).chunk(2, 1); return self.blocks[1]((1+s)*h+b)+self.residual_conv(x)
class DiffusionPolicy(nn.Module):
    def __init__(self, a=2, o=10, w=24, bug=False):
        super().__init__(); self.diffusion_step_encoder = nn.Sequential(nn.Linear(1, 64), nn.Mish(), nn.Linear(64, 16)) if bug else nn.Sequential(SinEmb(16), nn.Linear(16, 64), nn.Mish(), nn.Linear(64, 16)); c = 16+o; self.d1 = CRB(a, w, c); self.down = nn.Conv1d(w, w, 3, 2, 1); self.mid = CRB(w, 2*w, c); self.up = nn.ConvTranspose1d(2*w, w, 4, 2, 1); self.u1 = CRB(2*w, w, c); self.final_conv = nn.Conv1d(w, a, 1); self.bug = bug
    def forward(self, sample, timestep, global_cond):
        x = sample.moveaxis(-1, -2); t = self.diffusion_step_encoder(timestep.float()[:, None] if self.bug else timestep); c = torch.cat([t, global_cond], -1); h = self.d1(x, c); m = self.mid(self.down(h), c); return self.final_conv(self.u1(torch.cat([self.up(m), h], 1), c)).moveaxis(-1, -2)
@case('diffusion_policy', 'time step 0..999 fed as a raw number, no sinusoidal embedding', ['diffusion_step_encoder', 'timestep'])
def _(bug):
    ab = torch.cos((torch.arange(1000)/1000+.008)/1.008*math.pi/2)**2; W = torch.randn(10, 2, generator=G(35))*.4
    def batch(g):
        o = torch.randn(48, 10, generator=g); g0 = torch.tanh(o@W); x0 = g0[:, None]*torch.linspace(0, 1, 16)[None, :, None]; t = torch.randint(1000, (48,), generator=g); n = torch.randn(48, 16, 2, generator=g); a = ab[t][:, None, None].clamp(min=1e-4); return {'sample': a.sqrt()*x0+(1-a).sqrt()*n, 'timestep': t, 'global_cond': o}, n
    return dict(model=DiffusionPolicy(bug=bug), batch=batch, loss=F.mse_loss)

class RSSM(nn.Module):
    def __init__(self, o=12, a=3, d=32, z=8, bug=False):
        super().__init__(); self.encoder = nn.Sequential(nn.Linear(o, 48), nn.ELU(), nn.Linear(48, 32)); self.pre = nn.Linear(z+a, d); self.gru = nn.GRUCell(d, d); self.prior = nn.Linear(d, 2*z); self.post = nn.Linear(d+32, 2*z); self.decoder = nn.Sequential(nn.Linear(d+z, 48), nn.ELU(), nn.Linear(48, o)); self.reward = nn.Linear(d+z, 1); self.d, self.z = d, z; self.bug = bug
    def forward(self, obs, act, eps):
        B, T, _ = obs.shape; h, s = torch.zeros(B, self.d), torch.zeros(B, self.z); out = {'recon': [], 'reward': [], 'kl': []}; e = self.encoder(obs)
        for t in range(T):
            h = self.gru(F.elu(self.pre(torch.cat([s, act[:, t]], -1))), h); pm, ps = self.prior(h).chunk(2, -1); qm, qs = self.post(torch.cat([h, e[:, t]], -1)).chunk(2, -1); ps, qs = F.softplus(ps)+.1, F.softplus(qs)+.1; s = qm+qs*eps[:, t]
            f = torch.cat([h, s], -1); out['recon'].append(self.decoder(f)); out['reward'].append(self.reward(f)[:, 0]); out['kl'].append((torch.log(ps/qs)+(qs**2+(qm-pm)**2)/(2*ps**2)-.5).sum(-1))
        return {k: torch.stack(v, 1) for k, v in out.items()}
@case('world_model', 'KL summed over batch and time while reconstruction is a mean', ['loss', 'post', 'kl'])
def _(bug):
    A = torch.linalg.qr(torch.randn(12, 12, generator=G(36)))[0]; Bm = torch.randn(3, 12, generator=G(37))*.5
    def batch(g):
        x = torch.randn(24, 12, generator=g); a = torch.randn(24, 8, 3, generator=g); O = []
        for t in range(8): x = x@A*.95+a[:, t]@Bm; O.append(x)
        o = torch.stack(O, 1); return {'obs': o, 'act': a, 'eps': torch.randn(24, 8, 8, generator=g)}, {'obs': o, 'reward': o[..., 0]}
    def mk(w):
        def f(o, t): kl = o['kl'].sum() if w else .1*o['kl'].mean(); return F.mse_loss(o['recon'], t['obs'])+F.mse_loss(o['reward'], t['reward'])+kl
        return f
    rec = lambda o, t: F.mse_loss(o['recon'], t['obs'])+F.mse_loss(o['reward'], t['reward'])
    return dict(model=RSSM(), batch=batch, loss=mk(bug), ev=rec)

class DuelingDQN(nn.Module):
    def __init__(self, n=5): super().__init__(); self.features = nn.Sequential(nn.Conv2d(4, 12, 4, 2), nn.ReLU(), nn.Conv2d(12, 24, 3, 1), nn.ReLU(), nn.Flatten()); self.value = nn.Sequential(nn.Linear(24*49, 48), nn.ReLU(), nn.Linear(48, 1)); self.advantage = nn.Sequential(nn.Linear(24*49, 48), nn.ReLU(), nn.Linear(48, n))
    def forward(self, x): f = self.features(x/255.); v, a = self.value(f), self.advantage(f); return v+a-a.mean(1, keepdim=True)
@case('dqn_dueling', 'q[:, actions] instead of gather: (B,B) against target (B,)', ['loss', 'advantage'])
def _(bug):
    P = torch.randn(5, 4, 20, 20, generator=G(38))
    def batch(g): x = torch.randint(0, 256, (32, 4, 20, 20), generator=g).float(); a = torch.randint(5, (32,), generator=g); r = torch.einsum('bchw,bchw->b', x/255-.5, P[a])/5; return x, (a, r+a.float()*.7-1)
    good = lambda q, t: F.smooth_l1_loss(q.gather(1, t[0][:, None]).squeeze(1), t[1]); bad = lambda q, t: F.smooth_l1_loss(q[:, t[0]], t[1])
    return dict(model=DuelingDQN(), batch=batch, loss=bad if bug else good, ev=good)

class IQL(nn.Module):
    def __init__(self, o=17, a=6):
        super().__init__(); mlp = lambda i, k: nn.Sequential(nn.Linear(i, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, k)); self.v = mlp(o, 1); self.q1, self.q2 = mlp(o+a, 1), mlp(o+a, 1); self.q_target = mlp(o+a, 1).requires_grad_(False); self.policy = mlp(o, a); self.log_std = nn.Parameter(torch.zeros(a))
    def forward(self, obs, act, rew, nobs):
        sa = torch.cat([obs, act], 1); v = self.v(obs).squeeze(-1); 
        with torch.no_grad(): tq = self.q_target(sa).squeeze(-1)+rew; y = rew+.99*self.v(nobs).squeeze(-1)
        return dict(v=v, adv=tq-v, q=(self.q1(sa).squeeze(-1), self.q2(sa).squeeze(-1)), y=y, mu=torch.tanh(self.policy(obs)), log_std=self.log_std.clamp(-5, 2))
@case('iql', 'advantage weights exp(beta adv) neither detached nor clamped', ['policy', 'loss', 'v'])
def _(bug):
    W = torch.randn(17, 6, generator=G(39))*.4; w = torch.randn(17, generator=G(40))*.3
    def batch(g): o = torch.randn(64, 17, generator=g); a = (torch.tanh(o@W)+.2*torch.randn(64, 6, generator=g)).clamp(-1, 1); return {'obs': o, 'act': a, 'rew': o@w*.5, 'nobs': o+.1*torch.randn(64, 17, generator=g)}, a
    def mk(wrong):
        def f(o, a):
            u = o['adv']; vl = ((.7-(u < 0).float()).abs()*u**2).mean(); ql = sum(F.mse_loss(q, o['y']) for q in o['q']); ea = (3*u).exp(); ea = ea if wrong else ea.detach().clamp(max=100.); lp = torch.distributions.Normal(o['mu'], o['log_std'].exp()).log_prob(a).sum(-1); return vl+ql-(ea*lp).mean()
        return f
    ev = lambda o, a: F.mse_loss(o['mu'], a)+sum(F.mse_loss(q, o['y']) for q in o['q'])
    return dict(model=IQL(), batch=batch, loss=mk(bug), ev=ev)

class BCGMM(nn.Module):
    def __init__(self, o=14, a=3, K=5, bug=False):
        super().__init__(); self.K, self.a = K, a; self.mlp = nn.Sequential(nn.Linear(o, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU()); self.decoder = nn.ModuleDict({'mean': nn.Linear(96, K*a), 'scale': nn.Linear(96, K*a), 'logits': nn.Linear(96, K)})
        if bug:
            for m in self.decoder.values(): nn.init.zeros_(m.weight); nn.init.zeros_(m.bias)
    def forward(self, obs):
        h = self.mlp(obs); m = torch.tanh(self.decoder['mean'](h)).view(-1, self.K, self.a); s = F.softplus(self.decoder['scale'](h)).view(-1, self.K, self.a)+1e-2; return m, s, self.decoder['logits'](h)
@case('bc_gmm', 'mixture heads zero-initialised: all components alike for ever', ['decoder'])
def _(bug):
    W = torch.randn(14, 3, generator=G(41))*.5
    def batch(g): o = torch.randn(64, 14, generator=g); s = (torch.rand(64, 1, generator=g) < .5).float()*2-1; return {'obs': o}, (s*(.5+.3*torch.tanh(o@W))+.03*torch.randn(64, 3, generator=g)).clamp(-1, 1)
    def nll(o, a):
        m, s, l = o; D = torch.distributions; return -D.MixtureSameFamily(D.Categorical(logits=l), D.Independent(D.Normal(m, s), 1)).log_prob(a).mean()
    return dict(model=BCGMM(bug=bug), batch=batch, loss=nll)

class DecisionTransformer(nn.Module):
    def __init__(self, s=11, a=3, h=48, K=10, bug=False):
        super().__init__(); self.embed_timestep = nn.Embedding(200, h); self.embed_return = nn.Linear(1, h); self.embed_state = nn.Linear(s, h); self.embed_action = nn.Linear(a, h); self.embed_ln = nn.LayerNorm(h); self.tr = nn.TransformerEncoder(nn.TransformerEncoderLayer(h, 2, 4*h, .1, 'relu', batch_first=True, norm_first=True), 2, enable_nested_tensor=False); self.predict_action = nn.Sequential(nn.Linear(h, a), nn.Tanh()); self.bug = bug
    def forward(self, states, actions, returns_to_go, timesteps):
        B, K = timesteps.shape; te = self.embed_timestep(timesteps); st = torch.stack([self.embed_return(returns_to_go)+te, self.embed_state(states)+te, self.embed_action(actions)+te], 1).permute(0, 2, 1, 3).reshape(B, 3*K, -1); x = self.tr(self.embed_ln(st), mask=torch.triu(torch.full((3*K, 3*K), -math.inf), 1)); x = x.reshape(B, K, 3, -1).permute(0, 2, 1, 3); return self.predict_action(x[:, 0] if self.bug else x[:, 1])
@case('decision_transformer', 'action read from the return token, which precedes the state: state of that step unseen', ['embed_state', 'predict_action'])
def _(bug):
    W = torch.randn(11, 3, generator=G(42))*.5
    def batch(g): s = torch.randn(16, 10, 11, generator=g); a = torch.tanh(s@W); t = torch.randint(190, (16, 1), generator=g)+torch.arange(10); return {'states': s, 'actions': a, 'returns_to_go': torch.rand(16, 10, 1, generator=g)*3, 'timesteps': t}, a
    return dict(model=DecisionTransformer(bug=bug), batch=batch, loss=lambda p, a: ((p-a)**2).mean())

# ---------------------------------------------------------------- point clouds
def clouds(g, B, N, off=0., sc=1.):
    y = torch.randint(4, (B,), generator=g); d = F.normalize(torch.randn(B, N, 3, generator=g), dim=-1); cube = d/d.abs().max(-1, keepdim=True)[0]*.7; z = d[..., 2:]; cone = torch.cat([d[..., :2]*(1-z)/2*1.3, z], -1); cyl = torch.cat([F.normalize(d[..., :2], dim=-1)*.5, z], -1)
    p = torch.stack([d, cube, cone, cyl], 1)[torch.arange(B), y]; return (p+.03*torch.randn(B, N, 3, generator=g))*sc+off, y
class TNet(nn.Module):
    def __init__(self, k, bug): super().__init__(); self.conv1, self.conv2, self.conv3 = nn.Conv1d(k, 32, 1), nn.Conv1d(32, 64, 1), nn.Conv1d(64, 128, 1); self.fc1, self.fc2 = nn.Linear(128, 64), nn.Linear(64, k*k); self.bn1, self.bn2, self.bn3, self.bn4 = nn.BatchNorm1d(32), nn.BatchNorm1d(64), nn.BatchNorm1d(128), nn.BatchNorm1d(64); self.k = k; nn.init.zeros_(self.fc2.weight); nn.init.zeros_(self.fc2.bias); self.bug = bug
    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x))); x = F.relu(self.bn2(self.conv2(x))); x = F.relu(self.bn3(self.conv3(x))).max(2)[0]; x = self.fc2(F.relu(self.bn4(self.fc1(x)))).view(-1, self.k, self.k); return x if self.bug else x+torch.eye(self.k)
class PointNet(nn.Module):
    def __init__(self, n=4, bug=False): super().__init__(); self.stn = TNet(3, bug); self.conv1, self.conv2, self.conv3 = nn.Conv1d(3, 32, 1), nn.Conv1d(32, 64, 1), nn.Conv1d(64, 128, 1); self.bn1, self.bn2, self.bn3 = nn.BatchNorm1d(32), nn.BatchNorm1d(64), nn.BatchNorm1d(128); self.fc1, self.fc2, self.fc3 = nn.Linear(128, 64), nn.Linear(64, 32), nn.Linear(32, n); self.bn4, self.bn5 = nn.BatchNorm1d(64), nn.BatchNorm1d(32); self.dropout = nn.Dropout(.3)
    def forward(self, x):
        x = x.transpose(1, 2); T = self.stn(x); x = torch.bmm(x.transpose(2, 1), T).transpose(2, 1); x = F.relu(self.bn1(self.conv1(x))); x = F.relu(self.bn2(self.conv2(x))); x = self.bn3(self.conv3(x)).max(2)[0]; x = F.relu(self.bn4(self.fc1(x))); x = F.relu(self.bn5(self.dropout(self.fc2(x)))); return F.log_softmax(self.fc3(x), 1), T
@case('pointnet', 'T-Net zero-initialised without adding the identity: points multiplied by 0', ['stn'])
def _(bug):
    def loss(o, y): lp, T = o; I = torch.eye(3); return F.nll_loss(lp, y)+1e-3*(torch.bmm(T, T.transpose(1, 2))-I).norm(dim=(1, 2)).mean()
    return dict(model=PointNet(bug=bug), batch=lambda g: clouds(g, 24, 128), loss=loss, ev=lambda o, y: F.nll_loss(o[0], y))

def square_distance(a, b): return ((a[:, :, None]-b[:, None])**2).sum(-1)
def index_points(p, idx): B = p.size(0); return p[torch.arange(B).view(-1, *[1]*(idx.dim()-1)), idx]
def fps(xyz, n):
    B, N, _ = xyz.shape; d = torch.full((B, N), 1e10); far = torch.zeros(B, dtype=torch.long); out = []
    for _ in range(n): out.append(far); c = index_points(xyz, far[:, None]); d = torch.minimum(d, ((xyz-c)**2).sum(-1)); far = d.argmax(-1)
    return torch.stack(out, 1)
class SetAbstraction(nn.Module):
    def __init__(self, npoint, k, i, mlp, group_all=False, bug=False):
        super().__init__(); self.npoint, self.k, self.group_all, self.bug = npoint, k, group_all, bug; self.mlp_convs, self.mlp_bns = nn.ModuleList(), nn.ModuleList()
        for o in mlp: self.mlp_convs.append(nn.Conv2d(i, o, 1)); self.mlp_bns.append(nn.BatchNorm2d(o)); i = o
    def forward(self, xyz, pts):
        if self.group_all: new = torch.zeros(len(xyz), 1, 3); g = torch.cat([xyz, pts], -1)[:, None]
        else:
            new = index_points(xyz, fps(xyz, self.npoint)); idx = square_distance(new, xyz).topk(self.k, largest=False)[1]; g = index_points(xyz, idx); g = g-(g if self.bug else new[:, :, None])
            if pts is not None: g = torch.cat([g, index_points(pts, idx)], -1)
        g = g.permute(0, 3, 2, 1)
        for c, b in zip(self.mlp_convs, self.mlp_bns): g = F.relu(b(c(g)))
        return new, g.max(2)[0].transpose(1, 2)
class PointNet2(nn.Module):
    def __init__(self, n=4, bug=False): super().__init__(); self.sa1 = SetAbstraction(32, 12, 3, [24, 32], bug=bug); self.sa2 = SetAbstraction(8, 8, 35, [48, 64], bug=bug); self.sa3 = SetAbstraction(None, None, 67, [64, 96], True); self.fc1 = nn.Linear(96, 48); self.bn1 = nn.BatchNorm1d(48); self.drop1 = nn.Dropout(.4); self.fc2 = nn.Linear(48, n)
    def forward(self, xyz): x, f = self.sa1(xyz, None); x, f = self.sa2(x, f); _, f = self.sa3(x, f); return self.fc2(self.drop1(F.relu(self.bn1(self.fc1(f.flatten(1))))))
@case('pointnet2', 'relative coordinates: the neighbours subtracted from themselves (all zero)', ['sa1', 'sa2'])
def _(bug): return dict(model=PointNet2(bug=bug), batch=lambda g: clouds(g, 16, 96), loss=nn.CrossEntropyLoss())

class DGCNN(nn.Module):
    def __init__(self, k=8, n=4, bug=False):
        super().__init__(); c = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(.2)); self.conv1, self.conv2 = c(6, 24), c(48, 32); self.conv5 = nn.Sequential(nn.Conv1d(56, 96, 1, bias=False), nn.BatchNorm1d(96), nn.LeakyReLU(.2)); self.linear1 = nn.Linear(192, 48, bias=False); self.bn6 = nn.BatchNorm1d(48); self.linear2 = nn.Linear(48, n); self.k = k; self.bug = bug
    def edge(self, x):
        p = x.transpose(1, 2); idx = square_distance(p, p).topk(self.k, largest=False)[1]; nb = index_points(p, idx); c = p[:, :, None].expand_as(nb); return torch.cat([nb-c, c], -1).permute(0, 3, 1, 2)
    def forward(self, x):
        x = x.transpose(1, 2); a = self.conv1(self.edge(x)).max(-1)[0]; b = self.conv2(self.edge(a)).max(-1)[0]; h = self.conv5(torch.cat([a, b], 1))
        if self.bug: h = torch.cat([h.max(0, keepdim=True)[0].expand_as(h).mean(-1), h.mean(0, keepdim=True).expand_as(h).mean(-1)], 1)
        else: h = torch.cat([h.max(-1)[0], h.mean(-1)], 1)
        return self.linear2(F.dropout(F.leaky_relu(self.bn6(self.linear1(h)), .2), .3, self.training))
@case('dgcnn', 'global pooling over the batch instead of the points', ['conv5', 'linear1'])
def _(bug): return dict(model=DGCNN(bug=bug), batch=lambda g: clouds(g, 16, 64), loss=nn.CrossEntropyLoss(label_smoothing=.1))

class PTLayer(nn.Module):
    def __init__(self, d, k=8): super().__init__(); self.q, self.k_, self.v = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d); self.pos = nn.Sequential(nn.Linear(3, d), nn.ReLU(), nn.Linear(d, d)); self.att = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d)); self.k = k; self.norm = nn.LayerNorm(d)
    def forward(self, x, p):
        h = self.norm(x); idx = square_distance(p, p).topk(self.k, largest=False)[1]; pe = self.pos(p[:, :, None]-index_points(p, idx)); w = self.att(self.q(h)[:, :, None]-index_points(self.k_(h), idx)+pe).softmax(2); return x+(w*(index_points(self.v(h), idx)+pe)).sum(2)
class PTSeg(nn.Module):
    def __init__(self, d=32): super().__init__(); self.inp = nn.Linear(3, d); self.layers = nn.ModuleList(PTLayer(d) for _ in range(2)); self.head = nn.Sequential(nn.Linear(2*d, d), nn.ReLU(), nn.Linear(d, 3))
    def forward(self, p):
        x = self.inp(p)
        for l in self.layers: x = l(x, p)
        return self.head(torch.cat([x, x.max(1, keepdim=True)[0].expand_as(x)], -1))
@case('point_transformer_seg', 'UTM coordinates: offset of 5e5 metres not removed', ['inp', 'input'])
def _(bug):
    def batch(g):
        p, _ = clouds(g, 16, 64); y = (p[..., 2] > .3).long()+(p[..., 2] > -.3).long(); return (p+5e5 if bug else p), y
    return dict(model=PTSeg(), batch=batch, loss=lambda o, y: F.cross_entropy(o.transpose(1, 2), y))
