from base import *

B = 16
class ConvModel(nn.Module):
    def __init__(self, l2=True):
        super().__init__(); self.l2 = l2; self.conv1, self.bn1 = nn.Conv2d(1, 16, 5, 2, 2), nn.BatchNorm2d(16); self.conv2, self.bn2 = nn.Conv2d(16, 32, 5, 2, 2), nn.BatchNorm2d(32)
        self.res, self.bn3, self.affine = nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.Linear(32 * 4, 64)
    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x))); x = F.relu(self.bn2(self.conv2(x))); x = F.relu(x + self.bn3(self.res(x)))
        x = self.affine(x.mean(2).flatten(1)); return F.normalize(x, dim=1) if self.l2 else x
SPK = T(101, 20, 1, 1, 16) * torch.ones(1, 1, 16, 1) + T(102, 20, 1, 16, 16, k=.5)
def triplets(seed):
    a = R(seed, 20, (B,)); n = (a + 1 + R(seed + 1, 19, (B,))) % 20; s = torch.cat([a, a, n])
    return SPK[s] + T(seed + 2, 3 * B, 1, 16, 16, k=1.5), torch.rand(3 * B, 64, generator=gen(seed + 3))

@case("https://github.com/philipperemy/deep-speaker/pull/12", "Keras calls loss(y_true, y_pred): the triplet loss is taken on the dummy targets and the predictions are multiplied by 0", "deep_speaker_loss arguments (x1 = y_true)")
def deepspeaker_loss_args(planted):
    def cos(x1, x2): return (x1 * x2).sum(1) / (x1.norm(dim=1) * x2.norm(dim=1))
    def deep_speaker_loss(x1, x2, alpha=.2):
        l = F.relu(cos(x1[:B], x1[2 * B:]) - cos(x1[:B], x1[B:2 * B]) + alpha).mean(); return (l + 0 * x2).mean()
    def loss(y_pred, y_true): return deep_speaker_loss(y_true, y_pred) if planted else deep_speaker_loss(y_pred, y_true)
    return dict(model=ConvModel, data=triplets, loss=loss, lr=1e-3, diag={})

@case("https://github.com/philipperemy/deep-speaker/pull/12", "the norm in the cosine similarity is the squared sum over the whole batch: loss stuck at the margin", "triplet loss batch_norm (cosine norm)")
def deepspeaker_cosine_norm(planted):
    def batch_norm(x): return torch.square(torch.sum((x * x).sum(1))) if planted else torch.sqrt((x * x).sum(1))
    def cosine_similarity(x1, x2): return (x1 * x2).sum(1) / (batch_norm(x1) * batch_norm(x2))
    def loss(y, _, alpha=.1): return F.relu(cosine_similarity(y[:B], y[2 * B:]) - cosine_similarity(y[:B], y[B:2 * B]) + alpha).mean()
    return dict(model=lambda: ConvModel(False), data=triplets, loss=loss, lr=1e-3, diag={})
