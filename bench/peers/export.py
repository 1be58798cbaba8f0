"""Reads what `bench_step --export` wrote: the sizes, batch, weights, loss and gradients that both sides share."""
import h5py
import torch


class Export:
    def __init__(self, path):
        self.file = h5py.File(path, "r")
        self.sizes = {key: self._size(value[()]) for key, value in self.file["sizes"].items()}
        self.loss = float(self.file["loss"][()])

    @staticmethod
    def _size(value):
        if getattr(value, "ndim", 0):  # a text, as bytes
            return bytes(value).decode()
        return int(value) if float(value).is_integer() else float(value)

    def part(self, prefix):
        """The sizes under `prefix`, e.g. "llm."."""
        return {key.removeprefix(prefix): value for key, value in self.sizes.items() if key.startswith(prefix)}

    def input(self, name):
        return torch.from_numpy(self.file["inputs"][name][()])

    def names(self):
        return list(self.file["weights"])

    def weight(self, name):
        return torch.from_numpy(self.file["weights"][name][()])

    def gradient(self, name):
        return torch.from_numpy(self.file["gradients"][name][()])


def load_weights(model, export):
    """Copies the exported weights; every weight must meet a parameter and the reverse."""
    logical = {path: view(parameter.data) for path, parameter, view in model.logical("")}
    missing, unknown = set(export.names()) - set(logical), set(logical) - set(export.names())
    assert not missing and not unknown, f"only in the export: {sorted(missing)}; only in the model: {sorted(unknown)}"
    for path, target in logical.items():
        target.copy_(export.weight(path).view(target.shape))
