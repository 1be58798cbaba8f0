"""The models of the golden file in PyTorch, float64, one sequence at a time: no packing, no padding, no masks of borders.

Written from the papers and the public descriptions of the systems, not from the C++ sources, so that the two can disagree.
"""
import math

import torch
import torch.nn.functional as F


class Parameters:
    """Named leaves, drawn when first asked for. Values are multiples of 1/1024: exact in float32, small when compressed."""

    def __init__(self, generator):
        self.generator, self.leaves, self.buffers = generator, {}, {}

    def draw(self, shape, scale, around=0.0):
        values = self.generator.normal(size=shape) * scale + around
        return torch.tensor((values * 1024).round() / 1024, dtype=torch.float64)

    def get(self, name, shape, scale=None, around=0.0):
        if name not in self.leaves:
            scale = shape[-1] ** -0.5 if scale is None else scale
            self.leaves[name] = self.draw(shape, scale, around).requires_grad_()
        assert self.leaves[name].shape == tuple(shape), name
        return self.leaves[name]

    def buffer(self, name, shape, scale, around=0.0):
        if name not in self.buffers:
            self.buffers[name] = self.draw(shape, scale, around)
        return self.buffers[name]

    def linear(self, name, x, out, bias=True):
        y = x @ self.get(name + ".weight", (out, x.shape[-1])).T
        return y + self.get(name + ".bias", (out,), 0.1) if bias else y

    def layer_norm(self, name, x):
        n = x.shape[-1]
        return F.layer_norm(x, (n,), self.get(name + ".weight", (n,), 0.1, 1), self.get(name + ".bias", (n,), 0.1), 1e-5)

    def rms_norm(self, name, x):
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6) * self.get(name + ".weight", (x.shape[-1],), 0.1, 1)


def rotate(x, positions, base=10000.0):
    """Rotary embedding of x [T, heads, dim]: pairs (i, i + dim/2), angle position * base^(-2i/dim)."""
    dim = x.shape[-1]
    angle = positions.double()[:, None, None] * base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    first, second = x[..., : dim // 2], x[..., dim // 2 :]
    return torch.cat([first * angle.cos() - second * angle.sin(), first * angle.sin() + second * angle.cos()], -1)


def relative_encoding(length, width):
    """[T, T, width]: the sinusoid encoding of offset i - j, sine and cosine interleaved (Vaswani et al. 2017)."""
    offset = (torch.arange(length)[:, None] - torch.arange(length)[None]).double()
    angle = offset[..., None] * torch.exp(-math.log(10000.0) * torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)


# Conformer (Gulati et al. 2020), as in FastConformer.


def conformer_attention(p, name, x, c):
    length, width = x.shape
    heads, dim = c["heads"], x.shape[1] // c["heads"]
    bias = c["attention"] == "relative"
    q, k, v = (p.linear(f"{name}.{part}", x, width, bias).view(length, heads, dim) for part in "qkv")
    if c["attention"] == "relative":  # Transformer-XL (Dai et al. 2019), biases of each layer its own
        u = p.get(name + ".pos_bias_u", (width,), 0.2).view(heads, dim)
        w = p.get(name + ".pos_bias_v", (width,), 0.2).view(heads, dim)
        offsets = p.linear(name + ".pos", relative_encoding(length, width), width, False).view(length, length, heads, dim)
        scores = torch.einsum("ihd,jhd->hij", q + u, k) + torch.einsum("ihd,ijhd->hij", q + w, offsets)
    else:
        positions = torch.arange(length)
        scores = torch.einsum("ihd,jhd->hij", rotate(q, positions), rotate(k, positions))
    y = torch.einsum("hij,jhd->ihd", (scores / math.sqrt(dim)).softmax(-1), v)
    return p.linear(name + ".out", y.reshape(length, width), width, bias)


def conformer_convolution(p, name, x, c):
    width, kernel = x.shape[1], c["kernel"]
    left, right = p.linear(name + ".pointwise1", x, 2 * width).chunk(2, -1)
    y = left * torch.sigmoid(right)
    weight = p.get(name + ".depthwise.weight", (kernel, width), kernel**-0.5)  # [kernel, C]
    y = F.conv1d(y.T[None], weight.T[:, None], padding=kernel // 2, groups=width)[0].T
    y = y + p.get(name + ".depthwise.bias", (width,), 0.1)
    if c["conv_norm"] == "layer_norm":
        y = p.layer_norm(name + ".conv_norm", y)
    else:  # batch norm on given statistics
        y = (y - p.buffer(name + ".conv_norm.mean", (width,), 0.3)) / torch.sqrt(
            p.buffer(name + ".conv_norm.variance", (width,), 0.2, 1.2) + 1e-5)
        y = y * p.get(name + ".conv_norm.weight", (width,), 0.1, 1) + p.get(name + ".conv_norm.bias", (width,), 0.1)
    return p.linear(name + ".pointwise2", F.silu(y), width)


def conformer_layer(p, name, x, c):
    def feed_forward(part, x):
        y = F.silu(p.linear(f"{name}.{part}.up", p.layer_norm(f"{name}.{part}.norm", x), x.shape[1] * c["ff_multiplier"]))
        return p.linear(f"{name}.{part}.down", y, x.shape[1])

    x = x + 0.5 * feed_forward("ff1", x)
    x = x + conformer_attention(p, name + ".attention", p.layer_norm(name + ".attention.norm", x), c)
    x = x + conformer_convolution(p, name + ".conv", p.layer_norm(name + ".conv.norm", x), c)
    x = x + 0.5 * feed_forward("ff2", x)
    return p.layer_norm(name + ".norm_out", x)


def subsample_conv1d(p, name, x, c):
    """Two convolutions of kernel 3, stride 2, pad 1, each followed by SiLU; then a linear layer. x [T, mels]."""
    width = c["width"]
    for i in range(2):
        channels = x.shape[1]
        weight = p.get(f"{name}.conv.{i}.weight", (width, 3 * channels)).view(width, 3, channels).permute(0, 2, 1)
        x = F.silu(F.conv1d(x.T[None], weight, p.get(f"{name}.conv.{i}.bias", (width,), 0.1), stride=2, padding=1)[0].T)
    return p.linear(name + ".out", x, width)


def subsample_dw_striding(p, name, x, c):
    """3x3 convolution, then two depthwise separable ones, each of stride 2 and followed by ReLU. x [T, mels]."""
    channels = c["channels"]
    weight = p.get(name + ".conv0.weight", (channels, 9)).view(channels, 3, 3, 1).permute(0, 3, 1, 2)
    y = torch.relu(F.conv2d(x[None, None], weight, p.get(name + ".conv0.bias", (channels,), 0.1), stride=2, padding=1))
    for i in range(2):
        taps = p.get(f"{name}.depthwise.{i}.weight", (9, channels), 1 / 3).view(3, 3, channels).permute(2, 0, 1)[:, None]
        bias = p.get(f"{name}.depthwise.{i}.bias", (channels,), 0.1)
        y = F.conv2d(y, taps, bias, stride=2, padding=1, groups=channels)
        y = torch.relu(p.linear(f"{name}.pointwise.{i}", y.permute(0, 2, 3, 1), channels).permute(0, 3, 1, 2))
    rows = y[0].permute(1, 2, 0).flatten(1)  # [T', bins * channels], channel innermost
    return p.linear(name + ".out", rows, c["width"])


def encode(p, x, c):
    x = {"conv1d": subsample_conv1d, "dw_striding": subsample_dw_striding}[c["subsampling"]](p, "encoder.subsampling", x, c)
    for layer in range(c["layers"]):
        x = conformer_layer(p, f"encoder.layers.{layer}", x, c)
    return p.layer_norm("encoder.norm_final", x) if c["norm_final"] else x


# Decoder: pre-norm transformer with RMSNorm, rotary positions, grouped queries and SwiGLU.


def decoder_layer(p, name, x, positions, c):
    length, width = x.shape
    heads, kv_heads, dim = c["llm_heads"], c["llm_kv_heads"], width // c["llm_heads"]
    y = p.rms_norm(name + ".attention_norm", x)
    q = p.linear(name + ".attention.q", y, width, False).view(length, heads, dim)
    k = p.linear(name + ".attention.k", y, kv_heads * dim, False).view(length, kv_heads, dim)
    v = p.linear(name + ".attention.v", y, kv_heads * dim, False).view(length, kv_heads, dim)
    group = torch.arange(heads) // (heads // kv_heads)
    scores = torch.einsum("ihd,jhd->hij", rotate(q, positions), rotate(k, positions)[:, group]) / math.sqrt(dim)
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    y = torch.einsum("hij,jhd->ihd", scores.masked_fill(future, -math.inf).softmax(-1), v[:, group])
    x = x + p.linear(name + ".attention.out", y.reshape(length, width), width, False)
    y = p.rms_norm(name + ".mlp_norm", x)
    gate, up = p.linear(name + ".mlp.gate", y, c["llm_inner"], False), p.linear(name + ".mlp.up", y, c["llm_inner"], False)
    return x + p.linear(name + ".mlp.down", F.silu(gate) * up, width, False)


def decode(p, x, positions, c):
    """Hidden states after the final norm; the head is applied by `cross_entropy`."""
    for layer in range(c["llm_layers"]):
        x = decoder_layer(p, f"llm.layers.{layer}", x, positions, c)
    return p.rms_norm("llm.norm", x)


def cross_entropy(p, hidden, labels, c):
    """Sum over rows whose label is not -100, with the smoothing spread over the whole vocabulary."""
    logp = p.linear("llm.head", hidden, c["vocabulary"], False).log_softmax(-1)
    kept = labels >= 0
    target = logp[kept].gather(1, labels[kept][:, None])[:, 0]
    e = c["label_smoothing"]
    return -((1 - e) * target + e * logp[kept].mean(-1)).sum()


def ctc(logits, text):
    blank = logits.shape[1] - 1
    return F.ctc_loss(logits.log_softmax(-1)[:, None], text[None], torch.tensor([len(logits)]), torch.tensor([len(text)]),
                      blank=blank, reduction="sum")


def compress(frames, logits):
    """Means of runs of equal best labels without the runs of blank; all runs where there is nothing else."""
    best, blank = logits.argmax(-1).tolist(), logits.shape[1] - 1
    runs, start = [], 0
    for t in range(1, len(best) + 1):
        if t == len(best) or best[t] != best[start]:
            runs.append((best[start], start, t))
            start = t
    kept = [r for r in runs if r[0] != blank] or runs
    return torch.stack([frames[a:b].mean(0) for _, a, b in kept]), runs
