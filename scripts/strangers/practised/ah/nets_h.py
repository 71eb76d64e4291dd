from base import *

@case("https://github.com/DeepBaksuVision/You_Only_Look_Once/issues/7", "sqrt of the raw predicted width/height in the YOLOv1 loss: negative predictions give nan", "loss: sqrt(pred wh)")
def yolov1_sqrt_wh(planted):
    class YOLOv1(nn.Module):
        def __init__(s):
            super().__init__(); c = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.LeakyReLU(.1), nn.MaxPool2d(2))
            s.layers = nn.Sequential(c(1, 16), c(16, 32), c(32, 32)); s.fc = nn.Sequential(nn.Flatten(), nn.Linear(32 * 16, 128), nn.LeakyReLU(.1), nn.Linear(128, 16 * 5))
        def forward(s, x): return s.fc(s.layers(x)).view(-1, 4, 4, 5)
    def data(seed):
        G = gen(seed); n = 32; g = (torch.arange(32).float() + .5) / 32; xy = .1 + .8 * torch.rand(n, 2, generator=G); wh = .12 + .35 * torch.rand(n, 2, generator=G)
        x = ((g[None, None, :] - xy[:, 0, None, None]).abs() < wh[:, 0, None, None] / 2) & ((g[None, :, None] - xy[:, 1, None, None]).abs() < wh[:, 1, None, None] / 2)
        t = torch.zeros(n, 4, 4, 5); cell = (xy * 4).long(); i = torch.arange(n)
        t[i, cell[:, 1], cell[:, 0]] = torch.cat([torch.ones(n, 1), xy * 4 - cell, wh], 1); return x[:, None].float() + .1 * torch.randn(n, 1, 32, 32, generator=G), t
    def loss(o, t):
        obj = t[..., 0]; n = len(o); wh = o[..., 3:].sqrt() if planted else o[..., 3:]
        coord = ((o[..., 1:3] - t[..., 1:3]) ** 2).sum(-1) + ((wh - t[..., 3:].sqrt()) ** 2).sum(-1)
        return (5 * (obj * coord).sum() + (obj * (o[..., 0] - 1) ** 2).sum() + .5 * ((1 - obj) * o[..., 0] ** 2).sum()) / n
    return dict(model=YOLOv1, data=data, loss=loss, lr=1e-3, diag={})

@case("https://github.com/zzw922cn/Automatic_Speech_Recognition/issues/27", "DeepSpeech2: no ReLU after the conv + BN layers", "conv layers (no activation after BN)")
def deepspeech_conv_no_relu(planted):
    class DeepSpeech2(nn.Module):
        def __init__(s):
            super().__init__(); s.conv1 = nn.Conv2d(1, 8, (5, 5), padding=2); s.bn1 = nn.BatchNorm2d(8); s.conv2 = nn.Conv2d(8, 8, (5, 5), padding=2); s.bn2 = nn.BatchNorm2d(8); s.rnn = nn.GRU(8 * 16, 48, batch_first=True); s.fc = nn.Linear(48, 20)
        def forward(s, x):
            h = s.bn1(s.conv1(x[:, None])); h = h if planted else F.relu(h); h = s.bn2(s.conv2(h)); h = h if planted else F.relu(h)
            return s.fc(s.rnn(h.permute(0, 2, 1, 3).flatten(2))[0])
    B = T(8, 20, 16)
    def data(seed): y = R(seed, 20, (16, 6)).repeat_interleave(4, 1); return B[y] + .5 * T(seed + 1, 16, 24, 16), y
    return dict(model=DeepSpeech2, data=data, loss=ceseq, lr=2e-3, diag={})

@case("https://github.com/seungeunrho/minimalRL/issues/32", "done mask not multiplied into the critic target", "critic target: r + gamma * q_next without done_mask")
def minimalrl_done_mask(planted):
    class QNet(nn.Module):
        def __init__(s): super().__init__(); s.fc_s = nn.Linear(8, 64); s.fc_a = nn.Linear(1, 64); s.fc_q = nn.Linear(128, 32); s.fc_out = nn.Linear(32, 1)
        def forward(s, x, a): return s.fc_out(F.relu(s.fc_q(torch.cat([F.relu(s.fc_s(x)), F.relu(s.fc_a(a))], 1))))
    w = T(41, 8)
    def target_q(x): return 3 + torch.tanh(x @ w[:, None])
    def data(seed):
        x, a = T(seed, 32, 8), torch.rand(32, 1, generator=gen(seed + 1)) * 2 - 1; done = (x[:, :1] > .5).float(); xn = .9 * x + .2 * T(seed + 2, 32, 8)
        r = 1 - a ** 2 - .3 * (x[:, 1:2] - a).abs(); return (x, a), r + .98 * target_q(xn) * (1. if planted else 1 - done)
    return dict(model=QNet, data=data, loss=F.smooth_l1_loss, lr=4e-3, diag={})
