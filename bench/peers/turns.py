"""Runs programs by turns and reads what they print."""
import ctypes.util
import dataclasses
import os
import pathlib
import subprocess
import sys

BUILD = pathlib.Path("build/release/bench")
PEERS = pathlib.Path(__file__).parent


def cores():
    return len(os.sched_getaffinity(0))


@dataclasses.dataclass
class Program:
    command: list
    environment: dict

    def plus(self, *words):
        return Program([*self.command, *words], self.environment)

    def output(self):
        done = subprocess.run(self.command, env={**os.environ, **self.environment}, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(self.command)}\n{done.stdout[-2000:]}{done.stderr[-4000:]}ended with {done.returncode}")
        return done.stdout

    def run(self):
        """What it printed as numbers: `figure NAME VALUE UNIT` and `NAME VALUE`."""
        numbers = {}
        for line in self.output().splitlines():
            words = line.removeprefix("figure ").split()
            if len(words) in (2, 3):
                try:
                    numbers[words[0]] = float(words[1])
                except ValueError:
                    pass
        return numbers


def threads():
    return {"OMP_NUM_THREADS": str(cores())}


def ours(name, *words):
    return Program([str(BUILD / name), *words], threads())


def allocator():
    """PyTorch takes and frees its large blocks at every step. glibc's malloc gives them back to the system each time unless told
    otherwise; tcmalloc and jemalloc keep them. CHORUS_PEERS_ALLOCATOR chooses one of the three."""
    libraries = {"tcmalloc": "tcmalloc_minimal", "jemalloc": "jemalloc", "malloc": None}
    choice = os.environ.get("CHORUS_PEERS_ALLOCATOR", "tcmalloc")
    if choice not in libraries:
        sys.exit(f"CHORUS_PEERS_ALLOCATOR={choice}; {', '.join(libraries)} are there")
    if choice == "malloc":
        return {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(256 << 20)}
    library = ctypes.util.find_library(libraries[choice])
    if not library:
        sys.exit(f"no lib{libraries[choice]}; scripts/bench setup installs it")
    return {"LD_PRELOAD": library, "MALLOC_CONF": "oversize_threshold:1,background_thread:true,dirty_decay_ms:-1,muzzy_decay_ms:-1"}


def peer(script, *words):
    return Program([sys.executable, str(PEERS / script), *words], {**threads(), **allocator()})


def take_turns(programs, repeats):
    """Every program once, then again: {name: its runs' numbers}. A machine that slows down meets all of them."""
    results = {name: [] for name in programs}
    for turn in range(repeats):
        for name, program in programs.items():
            results[name].append(program.run())
            print(f"# turn {turn + 1} of {repeats}, {name}", file=sys.stderr, flush=True)
    return results
