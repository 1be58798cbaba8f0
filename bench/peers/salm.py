"""SALM: encoder, bridge and decoder, as models/salm has them."""
import torch
import torch.nn.functional as F
from torch import nn

from decoder import Decoder
from encoder import Encoder
from layers import Layout, RMSNorm, rotary_tables, simple

IGNORED = -100


class Spliced:
    """Where texts and audio rows stand in the decoder's input, and its labels; one audio per conversation."""

    def __init__(self, conversations, audio_tag, audio_lengths, restart_positions, tables):
        texts = sum(len(tokens) - 2 for tokens, _ in conversations)  # neither the tag nor the last token
        index, labels, positions, lengths, ids, text, audio = [], [], [], [], [], 0, texts
        for (tokens, answer), length in zip(conversations, audio_lengths):
            at = tokens.index(audio_tag)
            count = len(tokens) - 2
            before, behind = torch.arange(text, text + at), torch.arange(text + at, text + count)
            index += [before, torch.arange(audio, audio + length), behind]
            own = tokens[:at] + [IGNORED] * length + tokens[at + 1 :]
            trained = answer[:at] + [False] * length + answer[at + 1 :]
            labels += [t if a else IGNORED for t, a in zip(own[1:], trained[1:])]
            text_positions = torch.arange(count)
            parts = [text_positions[:at], torch.arange(length), text_positions[at:]]
            positions.append(torch.cat(parts) if restart_positions else torch.arange(count + length))
            ids += tokens[:at] + tokens[at + 1 : -1]
            lengths.append(count + length)
            text, audio = text + count, audio + length
        self.index, self.ids, self.layout = torch.cat(index), torch.tensor(ids), Layout(lengths)
        labels = torch.tensor(labels)
        self.labelled = (labels != IGNORED).nonzero()[:, 0]
        self.labels = labels[self.labelled]
        rows = torch.cat(positions)
        self.tables = tuple(table[rows] for table in tables)


def compress(x, logits, layout):
    """Means of runs of equal best classes without the runs of blank (a sequence of blank alone keeps its run), and how many
    each sequence keeps."""
    best, blank = logits.argmax(-1), logits.shape[-1] - 1
    owner = torch.repeat_interleave(torch.arange(layout.batch), torch.tensor(layout.lengths))
    first = torch.ones(len(best), dtype=torch.bool)
    first[1:] = (best[1:] != best[:-1]) | (owner[1:] != owner[:-1])
    run = first.cumsum(0) - 1
    starts = first.nonzero()[:, 0]
    run_owner, spoken = owner[starts], best[starts] != blank
    any_spoken = torch.zeros(layout.batch, dtype=torch.bool).index_put((run_owner[spoken],), torch.tensor(True))
    kept = (spoken | ~any_spoken[run_owner]).nonzero()[:, 0]
    sums = x.new_zeros(len(starts), x.shape[1]).index_add(0, run, x)
    means = sums / torch.bincount(run, minlength=len(starts))[:, None].to(x.dtype)
    return means[kept], torch.bincount(run_owner[kept], minlength=layout.batch).tolist()


class Salm(nn.Module):
    def __init__(self, export, options):
        super().__init__()
        c = self.c = export.part("")
        self.options = options
        assert c["modality_adapter"] == "identity", "an adapter has no peer"
        frames = export.input("frames").tolist()
        self.encoder = Encoder(export.part("encoder."), frames)
        self.decoder = Decoder(export.part("llm."))
        d, hidden = self.encoder.c["d_model"], self.decoder.c["hidden_size"]
        self.ctc_head = nn.Linear(d, c["ctc_classes"]) if c["ctc_head"] else None
        self.projection = nn.Linear(d + (c["ctc_classes"] if c["ctc_posteriors"] else 0), hidden)
        self.projection_norm = RMSNorm(hidden, self.decoder.c["rms_norm_eps"]) if c["projection_norm"] else None

        self.features = Layout(frames).pad(export.input("features")).contiguous()
        counts = export.input("token_counts").tolist()
        tokens, answers = (export.input(name).split(counts) for name in ("tokens", "answers"))
        self.conversations = [(t.tolist(), a.bool().tolist()) for t, a in zip(tokens, answers)]
        transcripts = [[t for t, a in zip(*both) if a][:-1] for both in self.conversations]
        self.targets = torch.tensor(sum(transcripts, []))
        self.target_lengths = torch.tensor([len(t) for t in transcripts])
        self.frame_lengths = torch.tensor(self.encoder.layout.lengths)
        self.tables = rotary_tables(torch.arange(4096), self.decoder.dim, self.decoder.c["rope_theta"])
        # Without a compressor the rows are the same at every step.
        self.spliced = None if c["ctc_compressor"] else self.splice(self.encoder.layout.lengths)

    def splice(self, audio_lengths):
        return Spliced(self.conversations, self.c["audio_tag"], audio_lengths, self.c["restart_text_positions"], self.tables)

    @torch.compiler.disable  # the number of rows depends on the values
    def compressed(self, x, logits):
        x, lengths = compress(x, logits, self.encoder.layout)
        return x, self.splice(lengths)

    def forward(self):
        c, loss = self.c, 0.0
        x, spliced = self.encoder(self.features), self.spliced
        logits = self.ctc_head(x) if self.ctc_head else None
        if c["ctc_weight"] > 0:
            log_p = self.encoder.layout.pad(logits.float().log_softmax(-1)).transpose(0, 1)  # [T, B, classes]
            ctc = F.ctc_loss(log_p, self.targets, self.frame_lengths, self.target_lengths, log_p.shape[-1] - 1, "sum")
            loss = loss + c["ctc_weight"] * ctc / len(self.targets)
        if c["ctc_posteriors"]:
            x = torch.cat([x, self.encoder.c["d_model"] ** 0.5 * logits.detach().softmax(-1).to(x.dtype)], 1)
        if c["ctc_compressor"]:
            x, spliced = self.compressed(x, logits.detach())
        x = self.projection(x)
        if self.projection_norm:
            x = self.projection_norm(x)
        text = self.decoder.embedding(spliced.ids)
        x = torch.cat([text, x.to(text.dtype)]).index_select(0, spliced.index)
        x = self.decoder(x, spliced.layout, *spliced.tables, self.options).index_select(0, spliced.labelled)
        self.tokens = spliced.layout.rows
        return loss + c["llm_weight"] * self.decoder.loss(x, spliced.labels, c["label_smoothing"], self.options)

    def logical(self, prefix):
        yield from self.encoder.logical(prefix + "encoder.")
        for name in ("ctc_head", "projection", "projection_norm"):
            if getattr(self, name):
                yield from simple(prefix + name, getattr(self, name))
        yield from self.decoder.logical(prefix + "llm.")
