"""The decoder of the Llama family."""
import torch
import torch.nn.functional as F
from torch import nn

from layers import RMSNorm, RotaryAttention, Stacked, simple


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        hidden, heads = c["hidden_size"], c["num_attention_heads"]
        self.dropout = nn.Dropout(c["dropout"])
        self.attention_norm = RMSNorm(hidden, c["rms_norm_eps"])
        self.attention = RotaryAttention(hidden, heads, c["num_key_value_heads"], c["head_dim"] or hidden // heads, True, False,
                                         c["attention_dropout"])
        self.mlp_norm = RMSNorm(hidden, c["rms_norm_eps"])
        self.gate_up = Stacked(hidden, {"gate": c["intermediate_size"], "up": c["intermediate_size"]}, False)
        self.down = nn.Linear(c["intermediate_size"], hidden, False)

    def forward(self, x, layout, cos, sin, separate):
        x = x + self.dropout(self.attention(self.attention_norm(x), layout, cos, sin, separate))
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, -1)
        return x + self.dropout(self.down(F.silu(gate) * up))

    def logical(self, prefix):
        yield from simple(prefix + ".attention_norm", self.attention_norm)
        yield from self.attention.logical(prefix + ".attention")
        yield from simple(prefix + ".mlp_norm", self.mlp_norm)
        yield from self.gate_up.logical(prefix + ".mlp")
        yield from simple(prefix + ".mlp.down", self.down)


class Decoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c, self.dim = c, c["head_dim"] or c["hidden_size"] // c["num_attention_heads"]
        self.embedding = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"]))
        self.norm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        if not c["tie_word_embeddings"]:
            self.head = nn.Linear(c["hidden_size"], c["vocab_size"], False)

    def forward(self, x, layout, cos, sin, options):
        if torch.is_autocast_enabled("cpu") and options.low_residual:
            x = x.to(torch.get_autocast_dtype("cpu"))
        for layer in self.layers:
            x = layer(x, layout, cos, sin, options.separate)
        return self.norm(x)

    def loss(self, x, labels, smoothing, options):
        """Mean cross-entropy of rows x that all have a label."""
        weight = self.embedding.weight if self.c["tie_word_embeddings"] else self.head.weight
        if options.chunked_head:
            if torch.is_autocast_enabled("cpu"):
                x, weight = (t.to(torch.get_autocast_dtype("cpu")) for t in (x, weight))
            return F.linear_cross_entropy(x, weight, labels, label_smoothing=smoothing, options=nn.LinearCrossEntropyOptions())
        return F.cross_entropy(F.linear(x, weight), labels, label_smoothing=smoothing)

    def logical(self, prefix):
        yield from simple(prefix + "embedding", self.embedding)
        for i, layer in enumerate(self.layers):
            yield from layer.logical(f"{prefix}layers.{i}")
        yield from simple(prefix + "norm", self.norm)
        if not self.c["tie_word_embeddings"]:
            yield from simple(prefix + "head", self.head)
