#!/usr/bin/env python3
"""Writes goldens.h5, the values that the C++ models are held against. Needs NumPy, PyTorch and h5py; run without arguments.

Datasets of the file are listed in golden_file.h. Seeds are fixed: equal library versions write equal values.
"""
import pathlib

import frontend
import h5py
import numpy as np
import reference as ref
import torch


def write(group, name, values):
    """Small datasets lie in their headers, large ones are one compressed chunk: hundreds of datasets then cost little room."""
    values = values.detach().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)
    if values.nbytes <= 512:
        layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        layout.set_layout(h5py.h5d.COMPACT)
        group.create_dataset(name, data=values, dcpl=layout)
    else:
        group.create_dataset(name, data=values, chunks=values.shape, compression="gzip", compression_opts=9, shuffle=True)


def finish(group, parameters, loss, inputs, config):
    """Writes configuration, parameters, inputs and the gradient of `loss` with respect to all of them."""
    for key, value in config.items():
        group.attrs[key] = int(value) if isinstance(value, bool) else value
    leaves = list(parameters.leaves.items())
    grads = torch.autograd.grad(loss, [v for _, v in leaves] + [v for _, v in inputs])
    for (name, value), grad in zip(leaves, grads):
        write(group, "parameters/" + name, value)
        write(group, "gradients/" + name, grad)
    for name, value in parameters.buffers.items():
        write(group, "parameters/" + name, value)
    for (name, value), grad in zip(inputs, grads[len(leaves):]):
        write(group, name, value)
        write(group, f"gradients/{name}", grad)


def block_case(file, name, seed, lengths, width, config, forward):
    """One block on packed sequences, with the gradients of sum(cotangent * output)."""
    generator = np.random.default_rng(seed)
    parameters = ref.Parameters(generator)
    x = parameters.draw((sum(lengths), width), 1.0).requires_grad_()
    outputs = [forward(parameters, part, config) for part in x.split(lengths)]
    y = torch.cat(outputs)
    cotangent = parameters.draw(y.shape, 1.0)
    group = file.create_group(name)
    write(group, "lengths", lengths)
    write(group, "output_lengths", [len(o) for o in outputs])
    write(group, "output", y)
    write(group, "cotangent", cotangent)
    finish(group, parameters, (cotangent * y).sum(), [("input", x)], config)


def waveform(generator, samples, rate):
    t = np.arange(samples) / rate
    x = sum(a * np.sin(2 * np.pi * f * t + p) for a, f, p in [(0.3, 220, 0), (0.15, 1370, 1), (0.05, 0.41 * rate, 2)])
    x *= 0.6 + 0.4 * np.sin(2 * np.pi * 5 * t)
    return np.round((x + generator.normal(size=samples) * 0.01) * 32768) / 32768


def frontend_cases(file):
    generator = np.random.default_rng(1)
    for name, samples in [("frontend/nemo_0", 4000), ("frontend/nemo_1", 5237)]:
        group = file.create_group(name)
        x = waveform(generator, samples, 16000)
        log_mel, normalised = frontend.nemo(x)
        for key, value in [("waveform", x), ("log_mel", log_mel), ("normalised", normalised)]:
            write(group, key, value)
    group = file.create_group("frontend/small")
    x = waveform(generator, 2499, 8000)
    write(group, "waveform", x)
    write(group, "log_mel", frontend.small(x))


def salm_small(file):
    """Compressed audio before BOS and text, both counting positions from 0; CTC beside cross-entropy."""
    config = dict(subsampling="conv1d", mels=16, width=12, layers=2, heads=2, ff_multiplier=2, kernel=7, attention="rotary",
                  conv_norm="layer_norm", norm_final=True, llm_width=16, llm_layers=2, llm_heads=4, llm_kv_heads=4, llm_inner=24,
                  vocabulary=13, embedding_rows=15, eos=12, bos=13, label_smoothing=0.1, ctc_weight=0.3, llm_weight=0.7,
                  projection_norm=True, compress=True, posteriors=True, positions="restart")
    texts = [torch.tensor(t) for t in ([3, 0, 7, 1], [5], [2, 2, 9, 11, 4, 6], [8, 10, 8])]
    mel_lengths, characters = [30, 2, 45, 23], 12

    def forward(seed):
        p = ref.Parameters(np.random.default_rng(seed))
        features = p.draw((sum(mel_lengths), config["mels"]), 1.0).requires_grad_()
        ctc_sum = ce_sum = 0
        audio_lengths, positions, labels, patterns, margin = [], [], [], [], np.inf
        for mels, text in zip(features.split(mel_lengths), texts):
            frames = ref.encode(p, mels, config)
            logits = frames @ p.get("ctc_head.weight", (characters + 1, config["width"]), 0.6).T
            logits = logits + p.get("ctc_head.bias", (characters + 1,), 0.1)
            ctc_sum = ctc_sum + ref.ctc(logits, text)
            posteriors = config["width"] ** 0.5 * logits.detach().softmax(-1)
            audio, runs = ref.compress(torch.cat([frames, posteriors], 1), logits.detach())
            audio = p.rms_norm("projection_norm", p.linear("projection", audio, config["llm_width"]))
            table = p.get("llm.embedding.weight", (config["embedding_rows"], config["llm_width"]), 0.5)
            x = torch.cat([audio, table[torch.cat([torch.tensor([config["bos"]]), text])]])
            position = torch.cat([torch.arange(len(audio)), torch.arange(len(text) + 1)])
            label = torch.cat([torch.full((len(audio),), -100), text, torch.tensor([config["eos"]])])
            ce_sum = ce_sum + ref.cross_entropy(p, ref.decode(p, x, position, config), label, config)
            audio_lengths.append(len(audio)), positions.append(position), labels.append(label), patterns.append(runs)
            best = logits.detach().topk(2).values
            margin = min(margin, (best[:, 0] - best[:, 1]).min().item())
        return p, features, ctc_sum, ce_sum, audio_lengths, positions, labels, patterns, margin

    # The first seed whose compressor has all its cases: a dropped blank run, a run of several frames, nothing but blank, and
    # no best label so close to the second that rounding could turn it.
    for seed in range(10000):
        with torch.no_grad():
            *_, patterns, margin = forward(seed)
        blank = [[label == characters for label, _, _ in runs] for runs in patterns]
        long_run = any(b - a > 1 for runs in patterns for label, a, b in runs if label != characters)
        if margin > 1e-3 and long_run and any(map(all, blank)) and any(any(b) and not all(b) for b in blank):
            break
    else:
        raise RuntimeError("no seed gives every case of the compressor")
    p, features, ctc_sum, ce_sum, audio_lengths, positions, labels, _, _ = forward(seed)
    ctc_count, label_count = sum(map(len, texts)), sum(int((l >= 0).sum()) for l in labels)
    loss = config["ctc_weight"] * ctc_sum / ctc_count + config["llm_weight"] * ce_sum / label_count
    group = file.create_group("salm_small")
    write(group, "lengths", mel_lengths)
    write(group, "text", torch.cat(texts))
    write(group, "text_lengths", [len(t) for t in texts])
    write(group, "audio_lengths", audio_lengths)
    write(group, "positions", torch.cat(positions))
    write(group, "labels", torch.cat(labels))
    for key, value in [("ctc_sum", ctc_sum), ("ce_sum", ce_sum), ("ctc_count", ctc_count), ("label_count", label_count), ("loss", loss)]:
        write(group, key, value)
    finish(group, p, loss, [("input", features)], config)


def salm_nemo(file):
    """Audio in the place of its placeholders in the prompt, running positions, loss on the answers."""
    config = dict(subsampling="dw_striding", mels=16, channels=4, width=12, layers=1, heads=2, ff_multiplier=2, kernel=9,
                  attention="relative", conv_norm="batch_norm", norm_final=False, llm_width=16, llm_layers=2, llm_heads=4,
                  llm_kv_heads=2, llm_inner=24, vocabulary=13, embedding_rows=13, audio_token=13, label_smoothing=0.0,
                  ctc_weight=0.0, llm_weight=1.0, projection_norm=False, compress=False, posteriors=False, positions="running")
    a = config["audio_token"]
    # Prompt and answer of each sample: one audio each; then none, one and two.
    batches = {
        "salm_nemo": [([3, a, 7, 2], [1, 9, 4]), ([0, 5, a], [12]), ([a, 8, 3, 3], [6, 6, 10, 2])],
        "salm_nemo_multi": [([4, 1, 1], [2, 7]), ([5, a, 2], [11, 0]), ([a, 6, a, 3], [9])],
    }
    mel_lengths = [37, 9, 64]
    p = ref.Parameters(np.random.default_rng(77))
    for name, samples in batches.items():
        features = p.draw((sum(mel_lengths), config["mels"]), 1.0).requires_grad_()
        audios = iter([p.linear("projection", ref.encode(p, m, config), config["llm_width"]) for m in features.split(mel_lengths)])
        table = p.get("llm.embedding.weight", (config["embedding_rows"], config["llm_width"]), 0.5)
        ce_sum, rows, positions, labels = 0, [], [], []
        for prompt, answer in samples:
            parts, targets = [], []  # of every row: its embedding, and its own token where the loss may ask for it
            for token, asked in [(t, False) for t in prompt] + [(t, True) for t in answer]:
                part = next(audios) if token == a else table[token][None]
                parts.append(part)
                targets += [token if asked else -100] * len(part)
            x = torch.cat(parts)
            label = torch.tensor(targets[1:] + [-100])
            position = torch.arange(len(x))
            ce_sum = ce_sum + ref.cross_entropy(p, ref.decode(p, x, position, config), label, config)
            rows.append(len(x)), positions.append(position), labels.append(label)
        label_count = sum(int((l >= 0).sum()) for l in labels)
        loss = ce_sum / label_count
        group = file.create_group(name)
        write(group, "lengths", mel_lengths)
        write(group, "ids", sum((prompt + answer for prompt, answer in samples), []))
        write(group, "ids_lengths", [len(prompt) + len(answer) for prompt, answer in samples])
        write(group, "loss_mask", sum(([0] * len(prompt) + [1] * len(answer) for prompt, answer in samples), []))
        write(group, "rows", rows)
        write(group, "positions", torch.cat(positions))
        write(group, "labels", torch.cat(labels))
        for key, value in [("ce_sum", ce_sum), ("label_count", label_count), ("loss", loss)]:
            write(group, key, value)
        if name == "salm_nemo":
            finish(group, p, loss, [("input", features)], config)
        else:  # the same parameters; two gradients tell whether the audio went where it belongs
            write(group, "input", features)
            for key, grad in zip(["input", "projection.weight"], torch.autograd.grad(loss, [features, p.leaves["projection.weight"]])):
                write(group, "gradients/" + key, grad)


def main():
    path = pathlib.Path(__file__).with_name("goldens.h5")
    with h5py.File(path, "w", libver=("v110", "v110")) as file:
        for module in (np, torch, h5py):
            file.attrs[module.__name__] = str(module.__version__)
        frontend_cases(file)
        conformer = dict(heads=3, ff_multiplier=4, kernel=9, conv_norm="layer_norm")
        layer = lambda p, x, c: ref.conformer_layer(p, "encoder.layers.0", x, c)
        block_case(file, "conformer_relative", 2, [7, 1, 12], 24, dict(conformer, attention="relative"), layer)
        block_case(file, "conformer_rotary", 3, [7, 1, 12], 24, dict(conformer, attention="rotary", ff_multiplier=2), layer)
        block_case(file, "conformer_batch_norm", 4, [5, 1, 8], 12,
                   dict(conformer, attention="relative", conv_norm="batch_norm", ff_multiplier=2), layer)
        block_case(file, "subsampling_dw_striding", 5, [19, 8, 1, 30], 16, dict(channels=8, width=16),
                   lambda p, x, c: ref.subsample_dw_striding(p, "encoder.subsampling", x, c))
        block_case(file, "subsampling_conv1d", 6, [19, 8, 1, 30], 16, dict(width=16),
                   lambda p, x, c: ref.subsample_conv1d(p, "encoder.subsampling", x, c))
        block_case(file, "decoder_layer", 7, [5, 1, 9], 24, dict(llm_heads=4, llm_kv_heads=2, llm_inner=40),
                   lambda p, x, c: ref.decoder_layer(p, "llm.layers.0", x, torch.arange(len(x)), c))
        salm_small(file)
        salm_nemo(file)
    size = path.stat().st_size
    assert size <= 1 << 20, f"{size} bytes"
    print(f"{path.name}: {size} bytes")


if __name__ == "__main__":
    main()
