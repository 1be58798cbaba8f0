"""NeMo's front end in PyTorch: sound files to padded batches of log-mels.

    frontend.py FOLDER [--workers N] [--check]

FOLDER is what `bench_frontend --make` wrote. Without workers batches are made in this process, whose operators use all cores;
with them each worker is a process with one thread. Prints seconds, audio_seconds and memory (MiB, of this process); with
--check only the relative difference of the first recording's features from ours, which must be at most 1e-3."""
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
BATCH = 20


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
    def __init__(self, dither=1e-5):
        self.dither, self.filters, self.window = dither, mel_filters(), torch.hann_window(WINDOW, periodic=False)

    def __call__(self, sounds):
        """Sounds of a batch -> [B, mels, T], zeros behind each, and frames of each."""
        frames = torch.tensor([len(x) // HOP for x in sounds])
        x = torch.nn.utils.rnn.pad_sequence(sounds, batch_first=True)
        if self.dither:
            x = x + self.dither * torch.randn_like(x)
        x = torch.cat([x[:, :1], x[:, 1:] - 0.97 * x[:, :-1]], 1)
        # Behind a sound there is silence, not what dither and the filter leave there.
        x = x * (torch.arange(x.shape[1]) < torch.tensor([len(s) for s in sounds])[:, None])
        spectrum = torch.stft(x, FFT, HOP, WINDOW, self.window, center=True, pad_mode="constant", return_complex=True)
        power = torch.view_as_real(spectrum).square().sum(-1)
        mel = torch.log(self.filters @ power + 2.0**-24)[..., : int(frames.max())]
        valid = torch.arange(mel.shape[2]) < frames[:, None, None]
        count = frames[:, None, None].float()
        mean = (mel * valid).sum(2, keepdim=True) / count
        centred = (mel - mean) * valid
        deviation = (centred.square().sum(2, keepdim=True) / (count - 1)).sqrt()
        return centred / (deviation + 1e-5), frames


def read(path):
    with wave.open(str(path)) as file:
        return torch.frombuffer(bytearray(file.readframes(file.getnframes())), dtype=torch.int16).float() / 32768


class Recordings(torch.utils.data.Dataset):
    """Item i is a batch: recordings of like length."""

    def __init__(self, folder):
        entries = [json.loads(line) for line in open(folder / "manifest.jsonl")]
        self.seconds = sum(entry["duration"] for entry in entries)
        files = [folder / e["audio_filepath"] for e in sorted(entries, key=lambda e: e["duration"])]
        self.batches = [files[i : i + BATCH] for i in range(0, len(files), BATCH)]
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
        theirs = Frontend(dither=0)([read(arguments.folder / "0.wav")])[0][0].T
        difference = ((theirs - ours).norm() / ours.norm()).item()
        print(f"features: relative difference {difference:.1e}")
        sys.exit(0 if difference <= 1e-3 else 1)
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
