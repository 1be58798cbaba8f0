"""NeMo's front end in PyTorch: sound files to padded batches of log-mels.

    frontend.py FOLDER [--workers N] [--check]

FOLDER is what `bench_frontend --make` wrote. Without workers batches are made in this process, whose operators use all cores;
with them each worker is a process with one thread. Every recording is read four times against the clock. Prints seconds,
audio_seconds and memory (MiB, of this process); with --check only the relative difference of the first recording's features
from ours, which must be at most 1e-4."""
import argparse
import json
import pathlib
import sys
import time
import wave

import h5py
import numpy as np
import torch

from process import resident

RATE, WINDOW, HOP, FFT, MELS = 16000, 400, 160, 512, 80
BATCH, PASSES = 20, 4


def mel_filters():
    """Slaney's, of area 1."""
    hz = lambda mel: np.where(mel < 15, mel * 200 / 3, 1000 * np.exp((mel - 15) * np.log(6.4) / 27))
    top = 15 + 27 * np.log(RATE / 2 / 1000) / np.log(6.4)
    edges = hz(np.linspace(0, top, MELS + 2))
    bins = np.arange(FFT // 2 + 1) * RATE / FFT
    rise = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    fall = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
    return torch.tensor(np.maximum(0, np.minimum(rise, fall)) * (2 / (edges[2:] - edges[:-2]))[:, None], dtype=torch.float32)


class Frontend:
    """Each sound alone, while it is in the cache, and frames before mels as rFFT gives them: a third of the time of whole batches
    through torch.stft, |X|^2 as a sum over a dim of 2, and masks (docs/performance.md)."""

    def __init__(self, dither=1e-5):
        self.dither, self.filters, self.window = dither, mel_filters().T, torch.hann_window(WINDOW, periodic=False)

    def one(self, x):
        """[samples] -> [frames, mels]"""
        if self.dither:
            x = torch.add(x, torch.randn_like(x), alpha=self.dither)
        before = WINDOW // 2  # zeros around the signal; the window lies in the middle of a frame, the rest of which is 0
        signal = torch.zeros(before + len(x) + WINDOW)
        signal[before] = x[0]
        torch.sub(x[1:], x[:-1], alpha=0.97, out=signal[before + 1 : before + len(x)])
        frames = signal.unfold(0, WINDOW, HOP)[: len(x) // HOP] * self.window
        real, imaginary = torch.view_as_real(torch.fft.rfft(frames, FFT)).unbind(-1)
        mel = (torch.addcmul(real.square(), imaginary, imaginary) @ self.filters).add_(2.0**-24).log_()
        mel -= mel.mean(0)
        deviation = (mel.square().sum(0) / (len(mel) - 1)).sqrt()  # torch.std is ten times slower
        return mel.div_(deviation + 1e-5)

    def __call__(self, sounds):
        """Sounds of a batch -> [B, T, mels], zeros behind each, and frames of each."""
        features = [self.one(x) for x in sounds]
        return torch.nn.utils.rnn.pad_sequence(features, batch_first=True), torch.tensor([len(f) for f in features])


def read(path):
    with wave.open(str(path)) as file:
        return torch.frombuffer(bytearray(file.readframes(file.getnframes())), dtype=torch.int16).float() / 32768


class Recordings(torch.utils.data.Dataset):
    """Item i is a batch: recordings of like length."""

    def __init__(self, folder):
        entries = [json.loads(line) for line in open(folder / "manifest.jsonl")]
        self.seconds = PASSES * sum(entry["duration"] for entry in entries)
        files = [folder / e["audio_filepath"] for e in sorted(entries, key=lambda e: e["duration"])]
        self.batches = PASSES * [files[i : i + BATCH] for i in range(0, len(files), BATCH)]
        self.frontend = Frontend()

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, i):
        return self.frontend([read(path) for path in self.batches[i]])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if arguments.check:
        ours = torch.from_numpy(h5py.File(arguments.folder / "first.h5")["features"][()])
        theirs = Frontend(dither=0)([read(arguments.folder / "0.wav")])[0][0]
        difference = ((theirs - ours).norm() / ours.norm()).item()
        print(f"features: relative difference {difference:.1e}")
        sys.exit(0 if difference <= 1e-4 else 1)
    at_start = resident("VmRSS")
    recordings = Recordings(arguments.folder)
    loader = torch.utils.data.DataLoader(recordings, batch_size=None, shuffle=True, num_workers=arguments.workers,
                                         persistent_workers=arguments.workers > 0, prefetch_factor=2 if arguments.workers else None)
    for _ in range(2):
        begin = time.perf_counter()
        batches = sum(1 for _ in loader)
        seconds = time.perf_counter() - begin
        assert batches == len(recordings)
    print("seconds", seconds)
    print("audio_seconds", recordings.seconds)
    if not arguments.workers:  # workers' memory is not in this process
        print("memory", (resident("VmHWM") - at_start) / 2**20)


if __name__ == "__main__":
    main()
