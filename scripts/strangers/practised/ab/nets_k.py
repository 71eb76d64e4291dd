from base import *
P10 = T(5, 6, 1, 12, 12)
def images(seed, n=32, noise=1.0):
    t = R(seed + 77, 6, (n,)); return P10[t] + noise * T(seed, n, 1, 12, 12), t

@case("https://github.com/pytorch/pytorch/issues/72580", "the hidden layers live in a plain python list: not in parameters(), never trained", "self.my_modules (unregistered)")
def thesis_modules_list(planted):
    W = T(4, 24, 3)
    class Net(nn.Module):
        def __init__(s, n_hid=24, n_layers=4):
            super().__init__(); hids = [nn.Linear(n_hid, n_hid) for _ in range(n_layers)]
            s.my_modules = hids if planted else nn.ModuleList(hids); s.classifier = nn.Linear(n_hid, 3)
        def forward(s, x):
            for h in s.my_modules: x = torch.relu(h(x))
            return s.classifier(x)
    def data(seed):
        x = T(seed, 64, 24); return x, (x @ W + 2 * (x[:, :3] * x[:, 3:6])).argmax(1)
    return dict(model=Net, data=data, loss=ce, lr=5e-3, diag={})

@case("https://github.com/liangstein/ByteNet-Keras/issues/3", "every encoder block takes input_tensor instead of the previous block's output", "encoder2 input (blocks skipped)")
def bytenet_wrong_input(planted):
    V, L = 16, 20
    class Block(nn.Module):
        def __init__(s, d, r): super().__init__(); s.norm, s.conv, s.out = nn.LayerNorm(d), nn.Conv1d(d, d, 3, padding=r, dilation=r), nn.Conv1d(d, d, 1)
        def forward(s, x): return x + s.out(torch.relu(s.conv(s.norm(x).transpose(1, 2)))).transpose(1, 2)
    class ByteNet(nn.Module):
        def __init__(s): super().__init__(); s.emb = nn.Embedding(V, 48); s.blocks = nn.ModuleList([Block(48, r) for r in (1, 2, 4)]); s.fc = nn.Linear(48, V)
        def forward(s, x):
            input_tensor = s.emb(x); encoder = input_tensor
            for b in s.blocks: encoder = b(input_tensor if planted else encoder)
            return s.fc(encoder)
    def data(seed):
        x = R(seed, V, (16, L)); return x, (x.roll(3, 1) + 0 * x)
    return dict(model=ByteNet, data=data, loss=ceseq, lr=5e-3, diag={})

@case("https://github.com/sanyam5/skip-thoughts/issues/1", "prev_lstm decodes both sentences, next_lstm is never called", "next_lstm (unused)")
def skip_thoughts_same_lstm(planted):
    V, L = 12, 6; p1, p2 = torch.randperm(V, generator=gen(1)), torch.randperm(V, generator=gen(2))
    class UniSkip(nn.Module):
        def __init__(s):
            super().__init__(); s.word_emb = nn.Embedding(V, 24); s.encoder = nn.LSTM(24, 64, batch_first=True)
            s.prev_lstm, s.next_lstm = nn.LSTM(88, 64, batch_first=True), nn.LSTM(88, 64, batch_first=True); s.worder = nn.Linear(64, V)
        def forward(s, x, prev, nxt):
            th = s.encoder(s.word_emb(x))[1][0][0]; d = lambda y: F.pad(s.word_emb(y)[:, :-1], (0, 0, 1, 0)); c = lambda y: torch.cat([th[:, None].expand(-1, L, -1), d(y)], 2)
            a = s.prev_lstm(c(prev))[0]; b = (s.prev_lstm if planted else s.next_lstm)(c(nxt))[0]
            return s.worder(torch.cat([a, b], 1))
    def data(seed):
        w = R(seed, V, (32, 1)); x = (w + torch.arange(L)) % V; prev, nxt = p1[x], p2[x]; return (x, prev, nxt), torch.cat([prev, nxt], 1)
    return dict(model=UniSkip, data=data, loss=ceseq, lr=5e-3, diag={})

@case("https://github.com/apache/mxnet/issues/1422", "AlexNet without BN gets mean-subtracted pixels (not divided by 128) with the default Xavier initialiser", "input scale / FC initialisation")
def alexnet_xavier_pixels(planted):
    class AlexNet(nn.Module):
        def __init__(s):
            super().__init__(); s.conv1, s.conv2 = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1); s.fc1, s.fc2, s.fc3 = nn.Linear(288, 128), nn.Linear(128, 128), nn.Linear(128, 6)
            for l in s.children():
                f = l.weight[0].numel(); b = (3 * 2.34 / f) ** .5 if planted else 0
                nn.init.uniform_(l.weight, -b, b) if planted else nn.init.normal_(l.weight, std=.03); nn.init.zeros_(l.bias)
        def forward(s, x):
            x = F.max_pool2d(torch.relu(s.conv1(x)), 2); x = F.max_pool2d(torch.relu(s.conv2(x)), 2).flatten(1)
            x = F.dropout(torch.relu(s.fc1(x)), .5, s.training); return s.fc3(F.dropout(torch.relu(s.fc2(x)), .5, s.training))
    def data(seed):
        x, t = images(seed); return (x * 30).clamp(-128, 128), t
    return dict(model=AlexNet, data=data, loss=ce, lr=1e-3, diag={})
