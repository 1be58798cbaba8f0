"""What the peer models are made of. Rows of all sequences lie end to end, [rows, features], so that linear layers and norms do
no work for padding; only attention and convolutions see a padded batch, through `Layout`.

`logical(prefix)` of a module yields (path of ours, parameter, view): view(parameter or gradient) is ours in shape and order."""
import torch
import torch.nn.functional as F
from torch import nn


def whole(t):
    return t


def simple(prefix, module):
    for name, parameter in module.named_parameters(recurse=False):
        yield f"{prefix}.{name}", parameter, whole


class RMSNorm(nn.RMSNorm):
    def forward(self, x):
        return F.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)  # fused for equal types only


class Stacked(nn.Linear):
    """Several linear layers of one input as one product."""

    def __init__(self, features, parts, bias):
        super().__init__(features, sum(parts.values()), bias)
        self.parts = parts

    def logical(self, prefix):
        first = 0
        for name, size in self.parts.items():
            for kind, parameter in self.named_parameters():
                yield f"{prefix}.{name}.{kind}", parameter, lambda t, a=first, n=size: t[a : a + n]
            first += size


class Gather(torch.autograd.Function):
    """x[index] along dim 0, where index hits each row once at most: the gradient is a gather too. Row -1 is zeros."""

    @staticmethod
    def forward(ctx, x, index, inverse):
        ctx.save_for_backward(index, inverse)
        return gather(x, index)

    @staticmethod
    def backward(ctx, dy):
        index, inverse = ctx.saved_tensors
        return gather(dy, inverse), None, None


def gather(x, index):
    return F.pad(x, (0, 0, 0, 1)).index_select(0, index % (x.shape[0] + 1))


class Layout:
    """Where the rows of sequences of these lengths lie, packed and padded."""

    def __init__(self, lengths):
        self.lengths = [int(n) for n in lengths]
        self.batch, self.longest, self.rows = len(self.lengths), max(self.lengths), sum(self.lengths)
        self.equal = min(self.lengths) == self.longest
        if self.equal:
            return
        position = torch.arange(self.longest)
        valid = position[None] < torch.tensor(self.lengths)[:, None]  # [B, T]
        self.valid = valid
        self.to_padded = torch.full((self.batch * self.longest,), -1, dtype=torch.long)
        self.to_packed = valid.flatten().nonzero()[:, 0]
        self.to_padded[self.to_packed] = torch.arange(self.rows)

    def pad(self, x):
        """[rows, C] -> [B, T, C], zeros behind each sequence."""
        if not self.equal:
            x = Gather.apply(x, self.to_padded, self.to_packed)
        return x.view(self.batch, self.longest, -1)

    def unpad(self, x):
        """[B, T, C] -> [rows, C]."""
        x = x.reshape(self.batch * self.longest, -1)
        return x if self.equal else Gather.apply(x, self.to_packed, self.to_padded)


def heads_first(x, heads):
    """[B, T, heads * dim] -> [B, heads, T, dim], a view."""
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def rotary_tables(positions, dim, base):
    """cos, sin [rows, 1, dim / 2] of pairs (i, i + dim / 2)."""
    angle = positions.double()[:, None, None] * base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    return angle.cos().float(), angle.sin().float()


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class RotaryAttention(nn.Module):
    def __init__(self, features, heads, kv_heads, head_dim, causal, bias, dropout):
        super().__init__()
        self.heads, self.kv_heads, self.dim, self.causal, self.dropout = heads, kv_heads, head_dim, causal, dropout
        parts = {"q": heads * head_dim, "k": kv_heads * head_dim, "v": kv_heads * head_dim}
        self.qkv = Stacked(features, parts, bias)
        self.out = nn.Linear(heads * head_dim, features, bias)

    def core(self, q, k, v, layout, separate):
        """q, k, v [rows, heads, dim] -> [rows, heads * dim]."""
        p = self.dropout if self.training else 0.0
        attend = lambda q, k, v, mask=None: F.scaled_dot_product_attention(
            q, k, v, mask, dropout_p=p, is_causal=self.causal, enable_gqa=self.heads != self.kv_heads)
        if separate and not layout.equal:  # a call per sequence: no work for padding
            parts = zip(*(x.transpose(0, 1)[None].split(layout.lengths, 2) for x in (q, k, v)))
            return torch.cat([attend(*part) for part in parts], 2)[0].transpose(0, 1).flatten(1)
        q, k, v = (heads_first(layout.pad(x.flatten(1)), n) for x, n in ((q, self.heads), (k, self.kv_heads), (v, self.kv_heads)))
        # What lies behind the end of a sequence is never visible to its rows where attention is causal.
        mask = None if self.causal or layout.equal else layout.valid[:, None, None]
        return layout.unpad(attend(q, k, v, mask).transpose(1, 2).flatten(2))

    def forward(self, x, layout, cos, sin, separate):
        q, k, v = self.qkv(x).unflatten(1, (-1, self.dim)).split([self.heads, self.kv_heads, self.kv_heads], 1)
        cos, sin = cos.to(q.dtype), sin.to(q.dtype)
        return self.out(self.core(rotate(q, cos, sin), rotate(k, cos, sin), v, layout, separate))

    def logical(self, prefix):
        yield from self.qkv.logical(prefix)
        yield from simple(prefix + ".out", self.out)
