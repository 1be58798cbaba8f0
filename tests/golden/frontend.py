"""Log-mel front ends in NumPy, float64, frame by frame."""
import numpy as np


def slaney_filters(rate, n_fft, mels):
    """Triangles on the mel scale of Slaney's Auditory Toolbox (linear to 1 kHz, then logarithmic), each of area 1 in Hz."""
    step = np.log(6.4) / 27

    def to_mel(f):
        return np.where(f < 1000, 3 * f / 200, 15 + np.log(np.maximum(f, 1e-9) / 1000) / step)

    def to_hz(m):
        return np.where(m < 15, 200 * m / 3, 1000 * np.exp(step * (m - 15)))

    edges = to_hz(np.linspace(to_mel(np.array(0.0)), to_mel(np.array(rate / 2)), mels + 2))
    return triangles(edges, rate, n_fft) * (2 / (edges[2:] - edges[:-2]))[:, None]


def htk_filters(rate, n_fft, mels, low, high):
    """Triangles of height 1 on the mel scale 2595 log10(1 + f/700)."""
    mel = np.linspace(2595 * np.log10(1 + low / 700), 2595 * np.log10(1 + high / 700), mels + 2)
    return triangles(700 * (10 ** (mel / 2595) - 1), rate, n_fft)


def triangles(edges, rate, n_fft):
    f = np.arange(n_fft // 2 + 1) * rate / n_fft
    left, centre, right = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    return np.maximum(0, np.minimum((f - left) / (centre - left), (right - f) / (right - centre)))


def emphasise(x):
    return np.concatenate([x[:1], x[1:] - 0.97 * x[:-1]])


def power_spectrum(frame, n_fft):
    """By the definition of the transform, not by a fast one."""
    n, k = np.arange(len(frame)), np.arange(n_fft // 2 + 1)
    angle = 2 * np.pi * ((k[:, None] * n[None]) % n_fft) / n_fft
    return (np.cos(angle) @ frame) ** 2 + (np.sin(angle) @ frame) ** 2


def nemo(x, rate=16000, n_fft=512, window=400, hop=160, mels=128):
    """Log-mels [floor(n / hop), mels] before and after normalisation over time."""
    x = np.pad(emphasise(x), n_fft // 2)
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / (window - 1))
    first = (n_fft - window) // 2  # the window stands in the middle of the transform
    frames = (len(x) - n_fft) // hop
    power = np.stack([power_spectrum(x[t * hop + first : t * hop + first + window] * hann, n_fft) for t in range(frames)])
    log_mel = np.log(power @ slaney_filters(rate, n_fft, mels).T + 2.0**-24)
    return log_mel, (log_mel - log_mel.mean(0)) / (log_mel.std(0, ddof=1) + 1e-5)


def small(x, rate=8000, n_fft=512, window=200, hop=80, mels=80):
    """Log-mels [1 + floor((n - window) / hop), mels] of frames that lie within the signal."""
    x = emphasise(x)
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    frames = 1 + (len(x) - window) // hop
    power = np.stack([power_spectrum(x[t * hop : t * hop + window] * hann, n_fft) for t in range(frames)])
    return np.log(power @ htk_filters(rate, n_fft, mels, 20.0, 4000.0).T + 1e-5)
