"""Ours against PyTorch on this machine: processes of both by turns, paired ratios, medians. scripts/bench calls it.

    compare.py step [a|b|c ...] [f32|bf16 ...] [--repeats N] [--steps N] [--warm N] [--no-check]
    compare.py attention [1k|8k|32k ...] [f32|bf16 ...] [--repeats N]
    compare.py frontend [--repeats N]
    compare.py parallel|sharding [f32|bf16 ...] [--repeats N] [--steps N] [--warm N] [--no-check]"""
import argparse
import pathlib
import statistics
import sys

from turns import Program, cores, ours, peer, take_turns

WORKLOADS = {"a": "salm-small", "b": "salm-110m", "c": "decoder"}
# How each peer is written best, found by trying (docs/performance.md says what was tried).
STYLES = {"a": ["--padded"], "b": [], "c": []}
STEPS = {"a": 50, "b": 2, "c": 3}
FOLDER = pathlib.Path("build/bench")


def figure(name, value, unit):
    print(f"figure {name} {value:.4g} {unit}", flush=True)


def verdict(name, results, rate, peer_rate):
    """Prints and returns what the best variant of the peer is and how we compare. rate: (figure, amount of work, unit)."""
    ratios = {variant: statistics.median(p["seconds"] / o["seconds"] for p, o in zip(runs, results["ours"]))
              for variant, runs in results.items() if variant != "ours"}
    best = min(ratios, key=ratios.get)
    times = {variant: " ".join(f"{run['seconds']:.4g}" for run in runs) for variant, runs in results.items()}
    print(f"# {name}: ours {times['ours']} s")
    for variant, ratio in ratios.items():
        print(f"# {name}: {variant} {times[variant]} s, {ratio:.3f} of our time")
    print(f"# {name}: PyTorch's best is {best}")
    middle = lambda variant, key: statistics.median(run[key] for run in results[variant])
    figure(f"{name}.ratio", ratios[best], "x")
    figure(f"{name}.{rate[0]}", rate[1] / middle("ours", "seconds"), rate[2])
    figure(f"{name}.{peer_rate}", rate[1] / middle(best, "seconds"), rate[2])
    if all("memory" in run for runs in results.values() for run in runs):
        # Against the smallest variant, which need not be the fastest.
        smallest = min(middle(variant, "memory") for variant in ratios)
        figure(f"{name}.memory_ratio", middle("ours", "memory") / smallest, "x")
        figure(f"{name}.memory", middle("ours", "memory"), "MiB")
        figure(f"{name}.peer_memory", smallest, "MiB")
    return middle


def compare_steps(letter, dtype, arguments):
    export = FOLDER / f"{WORKLOADS[letter]}.h5"
    steps = ["--dtype", dtype, "--steps", str(arguments.steps or STEPS[letter]), "--warm", str(arguments.warm)]
    program = peer("step.py", str(export), *steps, *STYLES[letter])
    results = take_turns({
        "ours": ours("bench_step", WORKLOADS[letter], *steps),
        "eager": program,
        "eager, head in pieces": program.plus("--chunked-head"),
        "compiled": program.plus("--compile"),
    }, arguments.repeats)
    name = f"step.{letter}.{dtype}"
    for run in results["ours"]:
        run.update({key: run[f"{name}.{key}"] for key in ("seconds", "memory", "peak_percent", "tokens_per_s", "flops")})
    tokens = results["ours"][0]["tokens_per_s"] * results["ours"][0]["seconds"]
    middle = verdict(name, results, ("tokens_per_s", tokens, "tokens/s"), "peer_tokens_per_s")
    figure(f"{name}.peak_percent", middle("ours", "peak_percent"), "%")
    figure(f"{name}.flops", middle("ours", "flops"), "GFLOP")


def check(letter):
    """The same loss and gradients from the same weights; without that no comparison of speed means anything."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    export = FOLDER / f"{WORKLOADS[letter]}.h5"
    ours("bench_step", WORKLOADS[letter], "--steps", "0", "--export", str(export)).run()
    print(peer("check.py", str(export), *[o for o in STYLES[letter] if o == "--padded"]).output(), end="", flush=True)


def compare_attention(length, dtype, arguments):
    name = f"attention.{length}.{dtype}"
    common = ["--length", length, "--dtype", dtype]
    results = take_turns({"ours": ours("bench_attention", *common), "eager": peer("attention.py", *common)}, arguments.repeats)
    flops = results["ours"][0]["flops"]
    verdict(name, results, ("rate", flops / 1e9, "GFLOP/s"), "peer_rate")


def compare_frontend(arguments):
    folder = str(FOLDER / "frontend")
    ours("bench_frontend", "--make", folder).run()
    print(peer("frontend.py", folder, "--check").output(), end="", flush=True)
    variants = {f"{n} workers": peer("frontend.py", folder, "--workers", str(n)) for n in (0, cores())}
    results = take_turns({"ours": ours("bench_frontend", folder), **variants}, arguments.repeats)
    verdict("frontend", results, ("seconds_per_s", results["ours"][0]["audio_seconds"], "audio s/s"), "peer_seconds_per_s")


def compare_ranks(kind, dtype, arguments):
    """Steps of the decoder on two ranks of one thread each, by us and by PyTorch, and another way of ours: for data parallelism
    one rank with two threads, for sharding our data parallelism."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    export = str(FOLDER / f"{kind}.h5")
    sharded = kind == "sharding"
    program = ours("bench_parallel", *(["--sharding", "full"] if sharded else []))
    theirs = peer("ddp.py", export)
    if not arguments.no_check:
        program.plus("--steps", "0", "--export", export).run()
        print(theirs.plus(*(["--fsdp", "auto"] if sharded else []), "--check", "1e-4").output(), end="", flush=True)
    steps = ["--dtype", dtype, "--steps", str(arguments.steps or 2), "--warm", str(arguments.warm)]
    theirs = theirs.plus(*steps)
    if sharded:
        name, other, ratio = "sharding.full", ours("bench_parallel", *steps), "over_ddp"
        variants = {"fsdp": theirs.plus("--fsdp", "auto"),
                    "fsdp, head in pieces": theirs.plus("--fsdp", "auto", "--chunked-head"),
                    "fsdp, kept after forward": theirs.plus("--fsdp", "never")}
    else:
        name, other = "parallel.ddp", ours("bench_parallel", "--ranks", "1", "--threads", "2", *steps)
        ratio = "two_ranks_over_two_threads"
        variants = {"ddp": theirs,
                    "ddp, head in pieces": theirs.plus("--chunked-head"),
                    "ddp, large buckets": theirs.plus("--bucket-mb", "160"),
                    "ddp, static graph": theirs.plus("--static-graph")}
    name += "" if dtype == "f32" else f".{dtype}"
    results = take_turns({"ours": program.plus(*steps), "other": other, **variants}, arguments.repeats)
    before = results.pop("other")
    verdict(name, results, ("tokens_per_s", results["ours"][0]["tokens"], "tokens/s"), "peer_tokens_per_s")
    print(f"# {name}: {ratio.removeprefix('two_ranks_').replace('_', ' ')}:", *(f"{run['seconds']:.4g} s" for run in before))
    figure(f"{name}.exchange_percent",
           100 * statistics.median(run["exchange_seconds"] / run["seconds"] for run in results["ours"]), "%")
    figure(f"{name}.{ratio}", statistics.median(a["seconds"] / b["seconds"] for a, b in zip(before, results["ours"])), "x")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["step", "attention", "frontend", "parallel", "sharding"])
    parser.add_argument("which", nargs="*", help="workloads and types; all when absent")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--warm", type=int, default=2)
    parser.add_argument("--no-check", action="store_true")
    arguments = parser.parse_args()
    if arguments.what == "frontend":
        return compare_frontend(arguments)
    if arguments.what in ("parallel", "sharding"):
        for dtype in arguments.which or ["f32"]:
            if dtype not in ("f32", "bf16"):
                sys.exit(f"compare.py: '{dtype}'; f32 and bf16 are there")
            compare_ranks(arguments.what, dtype, arguments)
        return
    known = list(WORKLOADS) if arguments.what == "step" else ["1k", "8k", "32k"]
    unknown = set(arguments.which) - set(known) - {"f32", "bf16"}
    if unknown:
        sys.exit(f"compare.py: {sorted(unknown)}; {known} and f32, bf16 are there")
    for one in [k for k in known if k in arguments.which] or known:
        if arguments.what == "step" and not arguments.no_check:
            check(one)
        for dtype in [t for t in ("f32", "bf16") if t in arguments.which] or ["f32", "bf16"]:
            (compare_steps if arguments.what == "step" else compare_attention)(one, dtype, arguments)


if __name__ == "__main__":
    main()
