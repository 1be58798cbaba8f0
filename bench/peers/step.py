"""Times whole training steps of a peer in this process: forward, backward, clipping, AdamW.

    step.py EXPORT [--dtype f32|bf16] [--compile] [--steps N] [--warm N] [--padded] [--chunked-head] [--f32-residual]

f32 masters and AdamW state; bf16 means autocast. Prints step_seconds, seconds (median), tokens, memory (MiB)."""
import argparse
import statistics
import time

import torch

from process import resident
from workloads import Options, make_model
from export import Export


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("export")
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--warm", type=int, default=2)
    parser.add_argument("--padded", action="store_true", help="attention on a padded batch")
    parser.add_argument("--chunked-head", action="store_true", help="F.linear_cross_entropy in pieces")
    parser.add_argument("--f32-residual", action="store_true")
    arguments = parser.parse_args()
    at_start = resident("VmRSS")  # after start-up, before there is a model
    torch.manual_seed(1)
    options = Options(not arguments.padded, arguments.chunked_head, not arguments.f32_residual)
    model = make_model(Export(arguments.export), options).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, betas=(0.9, 0.98), weight_decay=1e-2, fused=True)
    forward = torch.compile(model) if arguments.compile else model

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=arguments.dtype == "bf16"):
            loss = forward()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        return loss.item()

    begin = time.perf_counter()
    for _ in range(arguments.warm):
        step()
    print(f"warm {time.perf_counter() - begin:.1f} s for {arguments.warm} steps")
    times, processor = [], time.process_time()
    for _ in range(arguments.steps):
        begin = time.perf_counter()
        loss = step()
        times.append(time.perf_counter() - begin)
    processor = (time.process_time() - processor) / arguments.steps
    print("step_seconds", *(f"{t:.4f}" for t in times))
    print("seconds", statistics.median(times))
    print("cpu_seconds", processor)  # on a busy machine it says more than the clock
    print("tokens", model.tokens)
    print("memory", (resident("VmHWM") - at_start) / 2**20)
    print("loss", loss)


if __name__ == "__main__":
    main()
