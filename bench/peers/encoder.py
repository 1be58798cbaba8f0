"""FastConformer, as models/conformer has it."""
import math

import torch
import torch.nn.functional as F
from torch import nn

from layers import Layout, RotaryAttention, Stacked, heads_first, rotary_tables, simple, whole


class FeedForward(nn.Module):
    def __init__(self, c):
        super().__init__()
        d = c["d_model"]
        self.norm, self.dropout = nn.LayerNorm(d), nn.Dropout(c["dropout"])
        self.up = nn.Linear(d, c["ff_expansion_factor"] * d, bool(c["use_bias"]))
        self.down = nn.Linear(c["ff_expansion_factor"] * d, d, bool(c["use_bias"]))

    def forward(self, x):
        return self.dropout(self.down(self.dropout(F.silu(self.up(self.norm(x))))))

    def logical(self, prefix):
        for name, module in self.named_children():
            yield from simple(f"{prefix}.{name}", module)


class RelativeAttention(nn.Module):
    """Transformer-XL's, bidirectional; `encoding` [2 T - 1, d] holds the offsets T - 1 ... -(T - 1)."""

    def __init__(self, c):
        super().__init__()
        d = c["d_model"]
        self.heads, self.p = c["heads"], c["dropout_att"]
        self.qkv = Stacked(d, {"q": d, "k": d, "v": d}, bool(c["attention_bias"]))
        self.pos = nn.Linear(d, d, False)
        self.out = nn.Linear(d, d, bool(c["attention_bias"]))
        self.pos_bias_u, self.pos_bias_v = nn.Parameter(torch.zeros(d)), nn.Parameter(torch.zeros(d))

    def forward(self, x, layout, encoding):
        q, k, v = (layout.pad(part) for part in self.qkv(x).chunk(3, -1))  # [B, T, d]
        q_u, q_v = heads_first(q + self.pos_bias_u.to(q.dtype), self.heads), heads_first(q + self.pos_bias_v.to(q.dtype), self.heads)
        p = heads_first(self.pos(encoding)[None], self.heads)  # [1, h, 2 T - 1, dim]
        by_offset = q_v @ p.transpose(-1, -2)  # [B, h, T, 2 T - 1]
        b, h, t, _ = by_offset.shape
        shifted = F.pad(by_offset, (1, 0)).view(b, h, 2 * t, t)[:, :, 1:].view(b, h, t, 2 * t - 1)[..., :t]
        bias = shifted / math.sqrt(q_u.shape[-1])
        if not layout.equal:
            bias = bias.masked_fill(~layout.valid[:, None, None], -math.inf)
        y = F.scaled_dot_product_attention(q_u, heads_first(k, h), heads_first(v, h), bias, self.p if self.training else 0.0)
        return self.out(layout.unpad(y.transpose(1, 2).flatten(2)))

    def logical(self, prefix):
        yield from self.qkv.logical(prefix)
        yield from simple(prefix + ".pos", self.pos)
        yield from simple(prefix, self)
        yield from simple(prefix + ".out", self.out)


class Convolution(nn.Module):
    def __init__(self, c):
        super().__init__()
        d, bias = c["d_model"], bool(c["use_bias"])
        assert c["conv_norm"] == "layer_norm", "batch_norm has no peer"
        self.norm, self.conv_norm, self.dropout = nn.LayerNorm(d), nn.LayerNorm(d), nn.Dropout(c["dropout"])
        self.pointwise1, self.pointwise2 = nn.Linear(d, 2 * d, bias), nn.Linear(d, d, bias)
        self.depthwise = nn.Conv1d(d, d, c["conv_kernel_size"], padding=c["conv_kernel_size"] // 2, groups=d, bias=bias)

    def forward(self, x, layout):
        x = F.glu(self.pointwise1(self.norm(x)))
        x = layout.unpad(self.depthwise(layout.pad(x).transpose(1, 2)).transpose(1, 2))
        return self.dropout(self.pointwise2(F.silu(self.conv_norm(x))))

    def logical(self, prefix):
        for name, module in self.named_children():
            if name != "depthwise":
                yield from simple(f"{prefix}.{name}", module)
        yield prefix + ".depthwise.weight", self.depthwise.weight, lambda t: t[:, 0].T
        if self.depthwise.bias is not None:
            yield prefix + ".depthwise.bias", self.depthwise.bias, whole


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        d = c["d_model"]
        self.ff1, self.conv, self.ff2, self.norm_out = FeedForward(c), Convolution(c), FeedForward(c), nn.LayerNorm(d)
        self.attention_norm, self.dropout = nn.LayerNorm(d), nn.Dropout(c["dropout"])
        self.relative = c["self_attention_model"] == "rel_pos"
        self.attention = RelativeAttention(c) if self.relative else RotaryAttention(
            d, c["heads"], c["heads"], d // c["heads"], False, bool(c["attention_bias"]), c["dropout_att"])

    def forward(self, x, layout, positions):
        x = x + 0.5 * self.ff1(x)
        normed = self.attention_norm(x)
        y = self.attention(normed, layout, positions) if self.relative else self.attention(normed, layout, *positions, False)
        x = x + self.dropout(y)
        x = x + self.conv(x, layout)
        x = x + 0.5 * self.ff2(x)
        return self.norm_out(x)

    def logical(self, prefix):
        yield from self.ff1.logical(prefix + ".ff1")
        yield from simple(prefix + ".attention.norm", self.attention_norm)
        yield from self.attention.logical(prefix + ".attention")
        yield from self.conv.logical(prefix + ".conv")
        yield from self.ff2.logical(prefix + ".ff2")
        yield from simple(prefix + ".norm_out", self.norm_out)


class Subsampling(nn.Module):
    """Convolutions of stride 2 on a padded batch; what lies behind a sequence's end is zeroed before the next one."""

    def __init__(self, c):
        super().__init__()
        d, channels = c["d_model"], c["subsampling_conv_channels"]
        self.stages = {4: 2, 8: 3}[c["subsampling_factor"]]
        self.plane = c["subsampling"] == "dw_striding"
        if self.plane:
            bins = c["features"]
            for _ in range(self.stages):
                bins = (bins + 1) // 2
            strided = dict(stride=2, padding=1)
            self.conv0 = nn.Conv2d(1, channels, 3, **strided)
            self.depthwise = nn.ModuleList(nn.Conv2d(channels, channels, 3, groups=channels, **strided) for _ in range(1, self.stages))
            self.pointwise = nn.ModuleList(nn.Conv2d(channels, channels, 1) for _ in range(1, self.stages))
            self.to(memory_format=torch.channels_last)
            self.out = nn.Linear(bins * channels, d)
        else:
            self.conv = nn.ModuleList(nn.Conv1d(d if i else c["features"], d, 3, stride=2, padding=1) for i in range(self.stages))
            self.out = nn.Linear(d, d)

    def forward(self, x, layouts):
        """x [B, T, mels], layouts of the rows after each stage -> [rows, d]."""
        if self.plane:
            x = x[:, None].contiguous(memory_format=torch.channels_last)
            for i, layout in enumerate(layouts):
                x = self.pointwise[i - 1](self.depthwise[i - 1](x)) if i else self.conv0(x)
                if not layout.equal:
                    x = x.mul_(layout.valid[:, None, :, None])
                x = F.relu_(x)
            x = x.permute(0, 2, 3, 1).flatten(2)  # [B, T, bins * channels]
        else:
            x = x.transpose(1, 2)
            for i, layout in enumerate(layouts):
                x = self.conv[i](x)
                if not layout.equal:
                    x = x.mul_(layout.valid[:, None])  # silu(0) is 0
                x = F.silu(x)
            x = x.transpose(1, 2)
        return self.out(layouts[-1].unpad(x))

    def logical(self, prefix):
        if not self.plane:
            for i, conv in enumerate(self.conv):
                yield f"{prefix}.conv.{i}.weight", conv.weight, lambda t: t.permute(0, 2, 1)
                yield f"{prefix}.conv.{i}.bias", conv.bias, whole
        else:
            views = {"conv0": lambda t: t[:, 0], "depthwise": lambda t: t[:, 0].permute(1, 2, 0), "pointwise": lambda t: t[:, :, 0, 0]}
            for name, module in self.named_modules():
                if isinstance(module, nn.Conv2d):
                    yield f"{prefix}.{name}.weight", module.weight, views[name.split(".")[0]]
                    yield f"{prefix}.{name}.bias", module.bias, whole
        yield from simple(prefix + ".out", self.out)


def relative_encoding(reach, d):
    """[2 reach - 1, d]: sine and cosine, interleaved, of the offsets reach - 1 ... -(reach - 1)."""
    offsets = torch.arange(reach - 1, -reach, -1, dtype=torch.float64)[:, None]
    angle = offsets * 10000.0 ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1).float()


class Encoder(nn.Module):
    def __init__(self, c, frames):
        """frames: how many of each utterance."""
        super().__init__()
        self.c, self.subsampling = c, Subsampling(c)
        self.pre_dropout = nn.Dropout(c["dropout_pre_encoder"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["layers"]))
        self.norm_final = nn.LayerNorm(c["d_model"]) if c["final_norm"] else None
        self.layouts = []
        for _ in range(self.subsampling.stages):
            frames = [(n + 1) // 2 for n in frames]
            self.layouts.append(Layout(frames))
        self.layout = self.layouts[-1]
        if c["self_attention_model"] == "rel_pos":
            self.positions = relative_encoding(self.layout.longest, c["d_model"])
        else:
            rows = torch.cat([torch.arange(n) for n in frames])
            self.positions = rotary_tables(rows, c["d_model"] // c["heads"], 10000.0)

    def forward(self, features):
        x = self.subsampling(features, self.layouts)
        if self.c["xscaling"]:
            x = x * math.sqrt(self.c["d_model"])
        x = self.pre_dropout(x)
        for layer in self.layers:
            x = layer(x, self.layout, self.positions)
        return self.norm_final(x) if self.norm_final else x

    def logical(self, prefix):
        yield from self.subsampling.logical(prefix + "subsampling")
        for i, layer in enumerate(self.layers):
            yield from layer.logical(f"{prefix}layers.{i}")
        if self.norm_final:
            yield from simple(prefix + "norm_final", self.norm_final)
