"""Forward and backward of attention on one causal sequence: 9 heads of 64 over 3 key/value heads.

    attention.py --length 1k|8k|32k [--dtype f32|bf16]

Prints seconds (median) and memory (MiB)."""
import argparse
import statistics
import time

import torch
import torch.nn.functional as F

from process import resident


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--length", required=True)
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    arguments = parser.parse_args()
    at_start = resident("VmRSS")
    length = 1024 * int(arguments.length.removesuffix("k"))
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[arguments.dtype]
    # As a product of q, k and v leaves them: [1, T, heads, dim].
    qkv = torch.randn(1, length, 15, 64).to(dtype).requires_grad_()
    dy = torch.randn(1, length, 9, 64).to(dtype)

    def run():
        begin = time.perf_counter()
        qkv.grad = None
        q, k, v = (x.transpose(1, 2) for x in qkv.split([9, 3, 3], 2))
        F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2).backward(dy)
        return time.perf_counter() - begin

    run()
    times = []
    while len(times) < 3 or sum(times) < 1:
        times.append(run())
    print("seconds", statistics.median(times))
    print("memory", (resident("VmHWM") - at_start) / 2**20)


if __name__ == "__main__":
    main()
