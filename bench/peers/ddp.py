"""Times data-parallel training steps of PyTorch over gloo, processes of one thread each: DistributedDataParallel or FSDP2.

    ddp.py EXPORT [--ranks N] [--dtype f32|bf16] [--steps N] [--warm N] [--bucket-mb N] [--static-graph]
        [--fsdp auto|always|never] [--chunked-head] [--check LIMIT]

The process that is started only starts the ranks; rank 0 prints what step.py prints. With --check it compares the loss and the
averaged gradients with the export's, whose loss and gradients are sums over ranks of the same batch, and takes no steps."""
import argparse
import os
import socket
import statistics
import subprocess
import sys
import time

import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from check import compare_gradients
from export import Export
from process import resident
from workloads import Options, make_model


def start_ranks(ranks):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks),
              "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    running = [subprocess.Popen([sys.executable, *sys.argv], env={**common, "RANK": str(rank)}) for rank in range(ranks)]
    sys.exit(max(abs(process.wait()) for process in running))


def sharded(model, ranks, dtype, reshard):
    """FSDP2: every layer a unit, the rest the root. Its compute type is the policy's, no autocast."""
    mesh = init_device_mesh("cpu", (ranks,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if dtype == "bf16" else MixedPrecisionPolicy()
    options = {"mesh": mesh, "mp_policy": policy, "reshard_after_forward": {"auto": None, "always": True, "never": False}[reshard]}
    for layer in model.decoder.layers:
        fully_shard(layer, **options)
    return fully_shard(model, **options)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("export")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--warm", type=int, default=1)
    parser.add_argument("--bucket-mb", type=int, default=25, help="PyTorch's own default")
    parser.add_argument("--static-graph", action="store_true")
    parser.add_argument("--fsdp", choices=["auto", "always", "never"], help="fully_shard per layer; reshard_after_forward")
    parser.add_argument("--chunked-head", action="store_true", help="F.linear_cross_entropy in pieces")
    parser.add_argument("--check", type=float)
    arguments = parser.parse_args()
    if "RANK" not in os.environ:
        start_ranks(arguments.ranks)
    rank = int(os.environ["RANK"])
    at_start = resident("VmRSS")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    distributed.init_process_group("gloo")
    export = Export(arguments.export)
    options = Options(chunked_head=arguments.chunked_head, rank=rank, ranks=arguments.ranks)
    model = make_model(export, options).train(arguments.check is None)
    if arguments.fsdp:
        parallel = sharded(model, arguments.ranks, arguments.dtype, arguments.fsdp)
    else:
        parallel = torch.nn.parallel.DistributedDataParallel(
            model, gradient_as_bucket_view=True, bucket_cap_mb=arguments.bucket_mb, static_graph=arguments.static_graph)
    if arguments.check is not None:
        loss = parallel()
        loss.backward()
        loss = loss.detach()
        distributed.all_reduce(loss)
        if arguments.fsdp:
            whole = {id(p): p.grad.full_tensor() for p in model.parameters()}
            gradient_of = lambda p: whole[id(p)]
        else:
            gradient_of = lambda p: p.grad
        passed = rank > 0 or compare_gradients(model, export, loss.item() / arguments.ranks, lambda path: arguments.check, gradient_of)
        distributed.destroy_process_group()
        sys.exit(0 if passed else 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, betas=(0.9, 0.98), weight_decay=1e-2, fused=True)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=arguments.dtype == "bf16" and not arguments.fsdp):
            loss = parallel()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        return loss.item()

    for _ in range(arguments.warm):
        step()
    times = []
    for _ in range(arguments.steps):
        distributed.barrier()
        begin = time.perf_counter()
        loss = step()
        times.append(time.perf_counter() - begin)
    memory = torch.tensor([resident("VmHWM") - at_start], dtype=torch.float64)
    distributed.all_reduce(memory)
    if rank == 0:
        print("memory", memory.item() / 2**20)
        print("step_seconds", *(f"{t:.4f}" for t in times))
        print("seconds", statistics.median(times))
        print("tokens", model.tokens * arguments.ranks)
        print("loss", loss)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
