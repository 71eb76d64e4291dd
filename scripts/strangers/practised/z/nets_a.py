from base import *
from tasks import *
def dconv(i, o): return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True), nn.Conv2d(o, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True))
def bcel(o, t): return F.binary_cross_entropy_with_logits(o, t)

@case("https://github.com/avBuffer/UNet3plus_pth/issues/23", "UNet3+ returns sigmoid(d1) and the loss is BCEWithLogits: sigmoid twice", "output sigmoid after outconv1")
def unet3plus_double_sigmoid(planted):
    class UNet3Plus(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = dconv(3, 12); self.conv2 = dconv(12, 24); self.conv3 = dconv(24, 32); self.pool = nn.MaxPool2d(2)
            self.h1_d2 = nn.Conv2d(12, 12, 3, padding=1); self.h2_d2 = nn.Conv2d(24, 12, 3, padding=1); self.h3_d2 = nn.Conv2d(32, 12, 3, padding=1); self.fuse2 = nn.Sequential(nn.Conv2d(36, 36, 3, padding=1), nn.BatchNorm2d(36), nn.ReLU())
            self.h1_d1 = nn.Conv2d(12, 12, 3, padding=1); self.d2_d1 = nn.Conv2d(36, 12, 3, padding=1); self.h3_d1 = nn.Conv2d(32, 12, 3, padding=1); self.fuse1 = nn.Sequential(nn.Conv2d(36, 36, 3, padding=1), nn.BatchNorm2d(36), nn.ReLU())
            self.outconv1 = nn.Conv2d(36, 1, 3, padding=1)
        def forward(self, x):
            h1 = self.conv1(x); h2 = self.conv2(self.pool(h1)); h3 = self.conv3(self.pool(h2)); up = lambda z, s: F.interpolate(z, scale_factor=s, mode="bilinear")
            d2 = self.fuse2(torch.cat([self.h1_d2(self.pool(h1)), self.h2_d2(h2), self.h3_d2(up(h3, 2))], 1))
            d1 = self.fuse1(torch.cat([self.h1_d1(h1), self.d2_d1(up(d2, 2)), self.h3_d1(up(h3, 4))], 1))
            d1 = self.outconv1(d1)
            return torch.sigmoid(d1) if planted else d1
    return dict(model=UNet3Plus, data=blobs, loss=bcel, lr=1e-3, diag={})

@case("https://github.com/CongWeilin/mtcnn-caffe/issues/42", "layers initialised with a gaussian of very low std instead of xavier: cls_loss stays at 0.693", "weight init of the conv/fc layers (very low std)")
def mtcnn_gaussian_init(planted):
    class ONet(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(3, 32, 3, padding=1); self.prelu1 = nn.PReLU(32); self.conv2 = nn.Conv2d(32, 32, 3, padding=1); self.prelu2 = nn.PReLU(32)
            self.conv3 = nn.Conv2d(32, 48, 3, padding=1); self.prelu3 = nn.PReLU(48); self.conv4 = nn.Conv2d(48, 48, 2); self.prelu4 = nn.PReLU(48)
            self.conv5 = nn.Linear(48 * 3 * 3, 96); self.prelu5 = nn.PReLU(96); self.conv6_1 = nn.Linear(96, 2)
            for m in self.modules():
                if isinstance(m, (nn.Conv2d, nn.Linear)):
                    nn.init.normal_(m.weight, std=0.001) if planted else nn.init.xavier_uniform_(m.weight)
                    nn.init.zeros_(m.bias)
        def forward(self, x):
            x = F.max_pool2d(self.prelu1(self.conv1(x)), 2); x = F.max_pool2d(self.prelu2(self.conv2(x)), 2)
            x = self.prelu4(self.conv4(self.prelu3(self.conv3(x)))); x = self.prelu5(self.conv5(x.flatten(1))); return self.conv6_1(x)
    def data(seed): x, y = digits(seed, 32, 3, 16, 8, .3); return (x - .5) / .5, y % 2
    return dict(model=ONet, data=data, loss=ce, lr=2e-4, diag={})

def focal(p, t, mask_pos):
    p = p.clamp(1e-4, 1 - 1e-4); a = torch.where(t > 0, .25, .75); w = torch.where(t > 0, 1 - p, p)
    return (a * w ** 2 * F.binary_cross_entropy(p, t, reduction="none")).sum() / mask_pos.clamp(min=1)
@case("https://github.com/yhenon/pytorch-retinanet/issues/41", "custom classification head without the prior initialisation (weight 0, bias -log((1-p)/p)): classification loss sticks", "classificationModel.output bias/weight init")
def retinanet_no_prior(planted):
    class ClassificationModel(nn.Module):
        def __init__(self, c=32, k=3, anchors=3):
            super().__init__(); self.k = k
            self.conv1 = nn.Conv2d(c, 32, 3, padding=1); self.conv2 = nn.Conv2d(32, 32, 3, padding=1); self.conv3 = nn.Conv2d(32, 32, 3, padding=1); self.output = nn.Conv2d(32, k * anchors, 3, padding=1)
            if not planted: nn.init.zeros_(self.output.weight); nn.init.constant_(self.output.bias, -math.log(.99 / .01))
        def forward(self, x):
            for c in (self.conv1, self.conv2, self.conv3): x = F.relu(c(x))
            return torch.sigmoid(self.output(x)).permute(0, 2, 3, 1).reshape(x.shape[0], -1, self.k)
    class RetinaNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1))
            self.classificationModel = ClassificationModel()
        def forward(self, x): return self.classificationModel(self.body(x))
    def data(seed):
        n = 16; y = R(seed, 3, (n,)); p = R(seed + 1, 8, (n, 2)); a = R(seed + 2, 3, (n,)); x = T(seed + 3, n, 3, 16, 16, k=.2); t = torch.zeros(n, 8, 8, 3, 3)
        for i in range(n):
            s = int(a[i]); r, c = 2 * int(p[i, 0]), 2 * int(p[i, 1]); x[i, int(y[i]), max(0, r - s):r + 2 + s, max(0, c - s):c + 2 + s] += 2; t[i, p[i, 0], p[i, 1], a[i], y[i]] = 1
        return x, t.reshape(n, -1, 3)
    return dict(model=RetinaNet, data=data, loss=lambda o, t: focal(o, t, t.sum()), lr=1e-3, diag={})

@case("https://github.com/fuweifuvtoo/Semantic-segmentation/issues/5", "SegNet ends in a sigmoid and the loss (NLL) misses the log: loss turns negative", "output sigmoid / loss without log")
def segnet_sigmoid_nll(planted):
    class SegNet(nn.Module):
        def __init__(self, k=2):
            super().__init__()
            self.enc1 = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()); self.enc2 = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())
            self.dec2 = nn.Sequential(nn.Conv2d(32, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()); self.dec1 = nn.Conv2d(16, k, 3, padding=1)
        def forward(self, x):
            x, i1 = F.max_pool2d(self.enc1(x), 2, return_indices=True); x, i2 = F.max_pool2d(self.enc2(x), 2, return_indices=True)
            x = self.dec2(F.max_unpool2d(x, i2, 2)); x = self.dec1(F.max_unpool2d(x, i1, 2))
            return torch.sigmoid(x) if planted else F.log_softmax(x, 1)
    def data(seed): x, m = blobs(seed); return x, m[:, 0].long()
    x0, t0 = data(4242)
    return dict(model=SegNet, data=data, loss=lambda o, t: F.nll_loss(o, t), lr=1e-3, diag={}, metric=lambda m: float((m(x0).argmax(1)[t0 == 1] != 1).float().mean() + (m(x0).argmax(1)[t0 == 0] != 0).float().mean()))

@case("https://github.com/amdegroot/ssd.pytorch/issues/218", "softmax on the confidences before F.cross_entropy in the multibox loss: converges slowly", "conf softmax")
def ssd_softmax_conf(planted):
    class SSD(nn.Module):
        def __init__(self, k=21):
            super().__init__(); self.k = k
            self.vgg = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU())
            self.conf = nn.Conv2d(64, 2 * k, 3, padding=1); self.loc = nn.Conv2d(64, 8, 3, padding=1); self.softmax = nn.Softmax(-1)
        def forward(self, x):
            f = self.vgg(x); c = self.conf(f).permute(0, 2, 3, 1).reshape(x.shape[0], -1, self.k); l = self.loc(f).permute(0, 2, 3, 1).reshape(x.shape[0], -1, 4)
            return (self.softmax(c) if planted else c), l
    tp = templates(20, 3, 4, 31)
    def data(seed):
        n = 32; y = R(seed, 20, (n, 4)); x = T(seed + 1, n, 3, 16, 16, k=.3); t = torch.zeros(n, 4, 4, 2, dtype=torch.long); g = torch.zeros(n, 4, 4, 2, 4)
        for i in range(n):
            for j, c in enumerate(torch.randperm(16, generator=gen(seed * 7 + i))[:4]):
                r, q = int(c) // 4, int(c) % 4; x[i, :, 4 * r:4 * r + 4, 4 * q:4 * q + 4] += 1.5 * tp[y[i, j]]; t[i, r, q] = y[i, j] + 1; g[i, r, q] = tp[y[i, j], 0].flatten()[:4]
        return x, (t.reshape(n, -1), g.reshape(n, -1, 4))
    def multibox(o, t):
        conf, loc = o; pos = t[0] > 0; l = F.cross_entropy(conf.flatten(0, 1), t[0].flatten(), reduction="none").view(t[0].shape)
        neg = torch.rand(pos.shape, generator=gen(5)) < .3
        return l[pos | neg].mean() + F.smooth_l1_loss(loc[pos], t[1][pos])
    return dict(model=SSD, data=data, loss=multibox, lr=1e-3, diag={})

@case("https://github.com/ultralytics/yolov3/issues/202", "predicted wh are put through a sigmoid during training", "sigmoid on p[..., 2:4]")
def yolov3_sigmoid_wh(planted):
    class Darknet(nn.Module):
        def __init__(self):
            super().__init__(); cbl = lambda i, o, s: nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(.1))
            self.module_list = nn.ModuleList([cbl(3, 16, 1), cbl(16, 32, 2), cbl(32, 32, 1), cbl(32, 64, 2), cbl(64, 64, 1)]); self.yolo = nn.Conv2d(64, 5 + 3, 1)
        def forward(self, x):
            for m in self.module_list: x = m(x)
            p = self.yolo(x).permute(0, 2, 3, 1); xy = torch.sigmoid(p[..., :2]); wh = torch.sigmoid(p[..., 2:4]) if planted else p[..., 2:4]
            return torch.cat([xy, wh, p[..., 4:]], -1)
    def data(seed):
        n = 32; y = R(seed, 3, (n,)); x = T(seed + 1, n, 3, 16, 16, k=.15); t = torch.zeros(n, 4, 4, 8); w = torch.rand(n, 2, generator=gen(seed + 2)) * 7 + 2; c = torch.rand(n, 2, generator=gen(seed + 3)) * 10 + 3
        gx = torch.arange(16).float() + .5
        for i in range(n):
            m = torch.sigmoid(3 * (w[i, 0] / 2 - (gx - c[i, 0]).abs()))[None] * torch.sigmoid(3 * (w[i, 1] / 2 - (gx - c[i, 1]).abs()))[:, None]; x[i, y[i]] += 2 * m
            ci, cj = int(c[i, 0] / 4), int(c[i, 1] / 4); t[i, cj, ci, 0] = c[i, 0] / 4 - ci; t[i, cj, ci, 1] = c[i, 1] / 4 - cj; t[i, cj, ci, 2:4] = torch.log(w[i] / 7.); t[i, cj, ci, 4] = 1; t[i, cj, ci, 5 + y[i]] = 1
        return x, t
    def loss(p, t):
        m = t[..., 4] > 0
        return F.mse_loss(p[..., :2][m], t[..., :2][m]) + 4 * F.mse_loss(p[..., 2:4][m], t[..., 2:4][m]) + F.binary_cross_entropy_with_logits(p[..., 4], t[..., 4]) + F.cross_entropy(p[..., 5:][m], t[..., 5:][m].argmax(-1))
    return dict(model=Darknet, data=data, loss=loss, lr=2e-3, diag={})

@case("https://github.com/ljbkusters/YOLOv3-1D/issues/42", "indexation error for the box predictions in the loss: the IoU that weights the target objectness is near 0", "loss: box_preds = predictions[..., 0:2] instead of 1:3")
def yolo1d_box_index(planted):
    class YOLO1D(nn.Module):
        def __init__(self):
            super().__init__(); cb = lambda i, o, s: nn.Sequential(nn.Conv1d(i, o, 5, s, 2), nn.BatchNorm1d(o), nn.LeakyReLU(.1))
            self.layers = nn.Sequential(cb(1, 16, 1), cb(16, 32, 2), cb(32, 32, 2), cb(32, 48, 2)); self.pred = nn.Conv1d(48, 3, 1)
        def forward(self, x): return self.pred(self.layers(x)).permute(0, 2, 1)
    def data(seed):
        n = 32; c = torch.rand(n, generator=gen(seed)) * 56 + 4; w = torch.rand(n, generator=gen(seed + 1)) * 8 + 4; g = torch.arange(64.)
        x = torch.exp(-((g - c[:, None]) / (w[:, None] / 2)) ** 2)[:, None] * 2 + T(seed + 2, n, 1, 64, k=.2); t = torch.zeros(n, 8, 3); s = (c / 8).long()
        t[torch.arange(n), s] = torch.stack([torch.ones(n), c / 8 - s, torch.log(w / 8)], 1); return x, t
    def parts(p, t, off):
        m = t[..., 0] > 0; b = p[..., off:off + 2][m]; bx, bw = torch.sigmoid(b[:, 0]), 8 * torch.exp(b[:, 1].clamp(-4, 4)) / 8; tx, tw = t[..., 1][m], torch.exp(t[..., 2][m])
        inter = (torch.min(bx + bw / 2, tx + tw / 2) - torch.max(bx - bw / 2, tx - tw / 2)).clamp(min=0); iou = (inter / (bw + tw - inter)).detach()
        obj = t[..., 0].clone(); obj[m] = iou; pb = p[..., 1:3][m] if off == 1 else b
        return F.binary_cross_entropy_with_logits(p[..., 0], obj), F.mse_loss(torch.sigmoid(pb[:, 0]), tx) + F.mse_loss(pb[:, 1], t[..., 2][m])
    def loss(p, t): a, b = parts(p, t, 0 if planted else 1); return 2 * a + b
    return dict(model=YOLO1D, data=data, loss=loss, lr=2e-3, diag={})

@case("https://github.com/yqyao/SSD_Pytorch/issues/32", "sigmoid focal loss weights negatives by (1-P)^gamma instead of P^gamma", "loss_neg factor in FocalLossSigmoid")
def ssd_focal_negative(planted):
    class RefineSSD(nn.Module):
        def __init__(self, k=5):
            super().__init__()
            self.base = nn.Sequential(nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()); self.conf = nn.Conv2d(32, k, 3, padding=1)
        def forward(self, x): return self.conf(self.base(x)).permute(0, 2, 3, 1)
    tp = templates(5, 3, 4, 33)
    def data(seed):
        n = 32; x = T(seed + 1, n, 3, 16, 16, k=.5); t = torch.zeros(n, 8, 8, 5); y = R(seed, 5, (n, 3)); p = R(seed + 2, 7, (n, 3, 2))
        for i in range(n):
            for j in range(3): r, c = 2 * int(p[i, j, 0]), 2 * int(p[i, j, 1]); x[i, :, r:r + 4, c:c + 4] += 1.5 * tp[y[i, j]]; t[i, r // 2, c // 2, y[i, j]] = 1
        return x, t
    def make(bad):
        def loss(o, t):
            P = torch.sigmoid(o).clamp(1e-5, 1 - 1e-5); pos = -(1 - P) ** 2 * torch.log(P) * t * .25; neg = -((1 - P) if bad else P) ** 2 * torch.log(1 - P) * (1 - t) * .75
            return (pos + neg).sum() / t.sum()
        return loss
    return dict(model=RefineSSD, data=data, loss=make(planted), lr=1e-3, diag={})

@case("https://github.com/robertklee/COCO-Human-Pose/pull/11", "plain MSE on mostly-zero heatmaps instead of the weighted MSE: the model predicts all zeros", "loss: unweighted mse on heatmaps")
def pose_heatmap_mse(planted):
    class HourglassNet(nn.Module):
        def __init__(self, k=4):
            super().__init__(); b = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())
            self.front = b(3, 24); self.down1 = b(24, 32); self.down2 = b(32, 32); self.up1 = b(32, 32); self.skip = nn.Conv2d(24, 32, 1); self.head = nn.Conv2d(32, k, 1)
        def forward(self, x):
            x = self.front(x); d = self.down2(F.max_pool2d(self.down1(F.max_pool2d(x, 2)), 2)); u = F.interpolate(self.up1(F.interpolate(d, scale_factor=2)), scale_factor=2)
            return torch.sigmoid(self.head(u + self.skip(x)))
    tp = templates(4, 3, 5, 41)
    def data(seed):
        n = 16; x = T(seed + 1, n, 3, 32, 32, k=.3); t = torch.zeros(n, 4, 32, 32); p = R(seed, 27, (n, 4, 2)); g = torch.arange(32.)
        for i in range(n):
            for j in range(4): r, c = int(p[i, j, 0]), int(p[i, j, 1]); x[i, :, r:r + 5, c:c + 5] += 2 * tp[j]; t[i, j] = torch.exp(-((g - r - 2)[:, None] ** 2 + (g - c - 2)[None] ** 2) / 1.)
        return x, t
    return dict(model=HourglassNet, data=data, loss=mse if planted else (lambda o, t: (((o - t) ** 2) * (1 + 81 * t)).mean()), lr=2e-3, diag={})

@case("https://github.com/fastai/fastai2/issues/107", "the conv before SigmoidRange at the end of DynamicUnet carries a BatchNorm that forces mean 0 and std 1", "final BatchNorm2d before the sigmoid")
def fastai_unet_final_bn(planted):
    class DynamicUnet(nn.Module):
        def __init__(self):
            super().__init__(); self.c1 = dconv(3, 16); self.c2 = dconv(16, 32); self.c3 = dconv(48, 16); self.last = nn.Sequential(nn.Conv2d(16, 3, 1), nn.BatchNorm2d(3)) if planted else nn.Conv2d(16, 3, 1)
        def forward(self, x):
            a = self.c1(x); b = self.c2(F.max_pool2d(a, 2)); x = self.c3(torch.cat([F.interpolate(b, scale_factor=2), a], 1)); return torch.sigmoid(self.last(x))
    def data(seed):
        z = T(seed, 16, 6); x = torch.einsum("nk,kchw->nchw", z, templates(6, 3, 16, 61)); b = torch.randn(16, 1, 1, 1, generator=gen(seed + 5)) * 1.5
        y = torch.sigmoid(1.5 * x - 2.5 + b); return (y.logit(1e-4).clamp(-6, 6) / 3 + T(seed + 1, 16, 3, 16, 16, k=.3)), y
    return dict(model=DynamicUnet, data=data, loss=mse, lr=2e-3, diag={})
