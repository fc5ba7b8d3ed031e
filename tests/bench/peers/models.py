# models.py - the models that are compared, as PyTorch modules that give their loss. Shapes are those of
# `zerox new` where that makes the model; the others are exported for zerox by export().
# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn as nn
import torch.nn.functional as F

# batch, sequence: of a rank. `new`: how zerox makes the same shapes (None: by export).
SHAPES = {
    "gpt2": dict(batch=4, sequence=64, vocab=50257, context=1024, new="gpt2 --preset 124m --set sequence=64"),
    "long": dict(batch=1, sequence=2048, vocab=50257, context=2048,
                 new="gpt2 --preset 124m --set context=2048 --set sequence=2048"),
    "llama": dict(batch=1, sequence=256, vocab=32000, kv=4, hidden=2048,
                  new="llama --preset medium --set layers=12 --set width=768 --set heads=12 --set kv_heads=4 "
                      "--set hidden=2048 --set vocab=32000 --set context=256 --set sequence=256"),
    "bert": dict(batch=2, sequence=128, vocab=30522, context=512, new=None),
    "resnet": dict(batch=8, size=56, classes=1000, new=None),
}
LAYERS, WIDTH, HEADS = 12, 768, 12


class Attention(nn.Module):
    def __init__(self, causal, bias=True, kv=HEADS, rotary=False):
        super().__init__()
        d = WIDTH // HEADS
        self.sizes, self.causal, self.rotary, self.d = [WIDTH, kv * d, kv * d], causal, rotary, d
        if rotary:
            self.q, self.k, self.v = (nn.Linear(WIDTH, n, bias=bias) for n in self.sizes)
        else:
            self.qkv = nn.Linear(WIDTH, sum(self.sizes), bias=bias)
        self.out = nn.Linear(WIDTH, WIDTH, bias=bias)

    def forward(self, x, turn=None):
        b, t, _ = x.shape
        parts = (self.q(x), self.k(x), self.v(x)) if self.rotary else self.qkv(x).split(self.sizes, -1)
        q, k, v = (p.view(b, t, -1, self.d).transpose(1, 2) for p in parts)
        if self.rotary:
            q, k = rotate(q, turn), rotate(k, turn)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal, enable_gqa=q.shape[1] != k.shape[1])
        return self.out(y.transpose(1, 2).reshape(b, t, -1))


def rotate(x, turn):
    a, b = x.chunk(2, -1)
    return x * turn[0] + torch.cat((-b, a), -1) * turn[1]


class GptBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2, self.attn = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), Attention(True)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(s["vocab"], WIDTH), nn.Embedding(s["context"], WIDTH)
        self.h = nn.ModuleList(GptBlock() for _ in range(LAYERS))
        self.ln = nn.LayerNorm(WIDTH)

    def forward(self, ids, labels):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.h:
            x = block(x)
        scores = F.linear(self.ln(x), self.wte.weight)
        return F.cross_entropy(scores.view(-1, scores.shape[-1]), labels.view(-1))


class LlamaBlock(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.norm_1, self.norm_2 = nn.RMSNorm(WIDTH, 1e-5), nn.RMSNorm(WIDTH, 1e-5)
        self.attn = Attention(True, False, s["kv"], True)
        self.gate, self.up = (nn.Linear(WIDTH, s["hidden"], bias=False) for _ in range(2))
        self.down = nn.Linear(s["hidden"], WIDTH, bias=False)

    def forward(self, x, turn):
        x = x + self.attn(self.norm_1(x), turn)
        y = self.norm_2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.embed, self.head = nn.Embedding(s["vocab"], WIDTH), nn.Linear(WIDTH, s["vocab"], bias=False)
        self.layers = nn.ModuleList(LlamaBlock(s) for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH, 1e-5)
        d = WIDTH // HEADS
        angles = torch.outer(torch.arange(s["sequence"]), 10000.0 ** (-torch.arange(0, d, 2) / d))
        angles = torch.cat((angles, angles), -1)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, ids, labels):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, (self.cos, self.sin))
        scores = self.head(self.norm(x))
        return F.cross_entropy(scores.view(-1, scores.shape[-1]), labels.view(-1))


class BertBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2, self.attn = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), Attention(False)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = self.ln_1(x + self.attn(x))
        return self.ln_2(x + self.down(F.gelu(self.up(x))))


class Bert(nn.Module):  # masked words; the head is the table
    def __init__(self, s):
        super().__init__()
        self.words, self.places = nn.Embedding(s["vocab"], WIDTH), nn.Embedding(s["context"], WIDTH)
        self.ln, self.layers = nn.LayerNorm(WIDTH), nn.ModuleList(BertBlock() for _ in range(LAYERS))

    def forward(self, ids, labels):
        x = self.ln(self.words(ids) + self.places(torch.arange(ids.shape[1])))
        for layer in self.layers:
            x = layer(x)
        scores = F.linear(x, self.words.weight)
        return F.cross_entropy(scores.view(-1, scores.shape[-1]), labels.view(-1))


class ResBlock(nn.Module):
    def __init__(self, n, m, stride):
        super().__init__()
        self.a, self.b = (nn.Conv2d(i, m, 3, s, 1, bias=False) for i, s in ((n, stride), (m, 1)))
        self.na, self.nb = nn.BatchNorm2d(m), nn.BatchNorm2d(m)
        self.way = nn.Sequential(nn.Conv2d(n, m, 1, stride, bias=False), nn.BatchNorm2d(m)) if n != m else None

    def forward(self, x):
        y = self.nb(self.b(F.relu(self.na(self.a(x)))))
        return F.relu(y + (x if self.way is None else self.way(x)))


class ResNet(nn.Module):  # 18 layers
    def __init__(self, s):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        sizes = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1),
                 (256, 512, 2), (512, 512, 1)]
        self.layers, self.head = nn.ModuleList(ResBlock(*x) for x in sizes), nn.Linear(512, s["classes"])

    def forward(self, images, labels):
        x = F.max_pool2d(F.relu(self.norm(self.stem(images))), 3, 2, 1)
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(x.mean((2, 3))), labels)


def make(name):
    torch.manual_seed(0)
    kind = {"gpt2": Gpt, "long": Gpt, "llama": Llama, "bert": Bert, "resnet": ResNet}[name]
    model = kind(SHAPES[name])
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, 0, 0.02)
    return model


def blocks(model):  # what FSDP wraps
    return list(model.h if isinstance(model, Gpt) else model.layers)


def batch(name, generator=None):
    s = SHAPES[name]
    if name == "resnet":
        x = torch.randn(s["batch"], 3, 2 * s["size"], 2 * s["size"], generator=generator)
        return x, torch.randint(s["classes"], (s["batch"],), generator=generator)
    ids = torch.randint(s["vocab"], (s["batch"], s["sequence"]), generator=generator)
    return ids, torch.randint(s["vocab"], (s["batch"], s["sequence"]), generator=generator)


def export(name, path):  # the model as a file, and one .npy an input, 16 samples each
    import logging
    import warnings

    import numpy
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    x, y = batch(name)
    names = ["images" if name == "resnet" else "input_ids", "labels"]
    torch.onnx.export(make(name).train(), (x, y), path, dynamo=True, optimize=False, input_names=names,
                      training=torch.onnx.TrainingMode.TRAINING, external_data=False, verbose=False)
    for i, one in enumerate(names):
        numpy.save(path.replace(".onnx", "." + one + ".npy"),
                   torch.cat([batch(name)[i] for _ in range(max(1, 16 // x.shape[0]))]).numpy())
    return names
