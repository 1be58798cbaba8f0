"""Checks that a peer computes the loss and the gradients of ours: same weights and batch, no dropout, f32.

    check.py EXPORT [--limit 1e-4]

Prints the largest relative difference of each class of tensors (paths with layers' numbers left out): |peer - ours| / |ours|,
both in the Euclidean norm over a tensor. A gradient that is zero but for rounding (a bias that softmax takes out again) has no
relative difference; no tensor counts as smaller than a hundredth of the whole gradient's root mean square. Ends with status 1
where the limit is passed.

Behind a ReLU the limit is tenfold: an input that is zero but for rounding falls on one side here and on the other there. Of
10^8 elements some ten do, which moves a gradient by the root of 10^-7, 3e-4; PyTorch's own f32 and f64 differ by 4e-4 there."""
import argparse
import collections
import re
import sys

import torch

from export import Export
from workloads import Options, make_model


def compare_gradients(model, export, loss, limit, gradient_of=lambda parameter: parameter.grad):
    """Prints the differences of loss and of `model`'s gradients from the export's; limit: of a path. Returns whether all pass."""
    ours = {name: export.gradient(name).double() for name in export.names()}
    mean_square = sum(g.square().sum().item() for g in ours.values()) / sum(g.numel() for g in ours.values())
    worst = collections.defaultdict(float)
    for path, parameter, view in model.logical(""):
        gradient = view(gradient_of(parameter)).double().reshape(ours[path].shape)
        floor = 1e-2 * (mean_square * gradient.numel()) ** 0.5
        difference = (gradient - ours[path]).norm().item() / max(ours[path].norm().item(), floor)
        name = re.sub(r"\.\d+\.", ".*.", path)
        worst[name] = max(worst[name], difference)
    difference = abs(loss - export.loss) / abs(export.loss)
    print(f"loss {loss:.6f}, ours {export.loss:.6f}: relative difference {difference:.1e}")
    for name, value in worst.items():
        print(f"  {value:.1e} {'' if value <= limit(name) else 'TOO LARGE '}{name}")
    passed = difference <= limit("") and all(value <= limit(name) for name, value in worst.items())
    print(f"{'equal' if passed else 'DIFFERENT'} within {limit(''):.0e}: loss and {len(ours)} gradients")
    return passed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("export")
    parser.add_argument("--limit", type=float, default=1e-4)
    parser.add_argument("--padded", action="store_true", help="attention on a padded batch")
    parser.add_argument("--chunked-head", action="store_true")
    arguments = parser.parse_args()
    limit = lambda path: arguments.limit * (10 if re.search(r"subsampling\.(conv0|depthwise|pointwise)", path) else 1)
    export = Export(arguments.export)
    model = make_model(export, Options(separate=not arguments.padded, chunked_head=arguments.chunked_head)).eval()
    loss = model()
    loss.backward()
    sys.exit(0 if compare_gradients(model, export, loss.item(), limit) else 1)


if __name__ == "__main__":
    main()
