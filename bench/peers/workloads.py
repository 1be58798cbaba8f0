"""The peers of bench_step's workloads: models and losses from an export."""
import dataclasses

import torch
from torch import nn

from decoder import Decoder
from export import load_weights
from layers import Layout, rotary_tables
from salm import Salm


@dataclasses.dataclass
class Options:
    """Ways to write the same thing in PyTorch; the benchmark takes what is fastest."""
    separate: bool = True  # a call of attention per sequence, not one on a padded batch
    chunked_head: bool = False  # F.linear_cross_entropy in pieces, not all logits at once
    low_residual: bool = True  # under autocast the decoder's residual stream is bf16, as ours is
    rank: int = 0  # of the ranks that share the batch, each with as many tokens
    ranks: int = 1


class TextModel(nn.Module):
    """The decoder on text (c): next token of equally long sequences."""

    def __init__(self, export, options):
        super().__init__()
        self.decoder, self.options = Decoder(export.part("llm.")), options
        lengths, ids, labels = export.input("lengths").tolist(), export.input("ids").long(), export.input("labels").long()
        own = slice(options.rank * len(lengths) // options.ranks, (options.rank + 1) * len(lengths) // options.ranks)
        first, lengths = sum(lengths[: own.start]), lengths[own]
        own = slice(first, first + sum(lengths))
        assert (own.stop - own.start) * options.ranks == len(ids), "the mean over ranks needs as many tokens on each"
        self.ids, self.labels = ids[own], labels[own]
        self.layout = Layout(lengths)
        positions = torch.cat([torch.arange(n) for n in lengths])
        self.tables = rotary_tables(positions, self.decoder.dim, self.decoder.c["rope_theta"])
        self.tokens = len(self.ids)

    def forward(self):
        x = self.decoder.embedding(self.ids)
        return self.decoder.loss(self.decoder(x, self.layout, *self.tables, self.options), self.labels, 0.0, self.options)

    def logical(self, prefix):
        return self.decoder.logical(prefix)


def make_model(export, options):
    model = Salm(export, options) if "audio_tag" in export.sizes else TextModel(export, options)
    load_weights(model, export)
    return model
