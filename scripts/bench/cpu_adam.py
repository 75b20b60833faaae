#!/usr/bin/env python3
# Is our AdamW update on the CPU as fast as PyTorch's fused one, and how much faster with 16-bit gradients and weights?
"""Both sides hold parameters of the same number and alternate; only one runs at any time. fp32: one update of masters
by fp32 gradients. mixed: bf16 gradients in, fp32 masters and moments, bf16 weights out; ours in one pass, PyTorch by
g32.copy_(g16), fused AdamW, p16.copy_(p32). Prints medians, their ratio, and the quartiles of the rounds' ratios.

    ninja -C build/cpu bench_cpu_adam && .venv/bin/python scripts/bench/cpu_adam.py [--rounds 31] [--elements 100000000]
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import time

import torch

BINARY = pathlib.Path(__file__).resolve().parents[2] / "build" / "cpu" / "bench_cpu_adam"
GOALS = {"fp32": 0.97, "mixed": 1.7}
PAUSE_SECONDS = 0.02  # the other side's threads go to sleep


class Ours:
    """bench_cpu_adam, which makes one update a line."""

    def __init__(self, elements, threads):
        self.process = subprocess.Popen([str(BINARY), str(elements), str(threads)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def update(self, case):
        self.process.stdin.write(case + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"error: {BINARY.name} ended with exit code {self.process.wait()}")
        return float(answer)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Torch:
    """torch.optim.AdamW(fused=True) with the same settings."""

    def __init__(self, elements, threads):
        torch.set_num_threads(threads)
        self.weight = torch.full([elements], 0.1, requires_grad=True)
        self.weight.grad = torch.full([elements], 1e-3)
        self.grad16 = torch.full([elements], 1e-3, dtype=torch.bfloat16)
        self.weight16 = torch.zeros([elements], dtype=torch.bfloat16)
        self.optimizer = torch.optim.AdamW([self.weight], lr=1e-3, weight_decay=0.1, fused=True)

    @torch.no_grad()
    def update(self, case):
        start = time.perf_counter()
        if case == "mixed":
            self.weight.grad.copy_(self.grad16)
        self.optimizer.step()
        if case == "mixed":
            self.weight16.copy_(self.weight)
        return time.perf_counter() - start


def measure(case, ours, peer, rounds):
    times = {"ours": [], "torch": []}
    for number in range(rounds + 2):
        order = [("ours", ours), ("torch", peer)]
        for name, side in order if number % 2 == 0 else reversed(order):
            time.sleep(PAUSE_SECONDS)
            seconds = side.update(case)
            if number >= 2:  # the first ones touch the memory
                times[name].append(seconds)
    return times


def report(case, times, elements):
    medians = {name: statistics.median(values) for name, values in times.items()}
    ratios = [theirs / mine for mine, theirs in zip(times["ours"], times["torch"])]
    low, _, high = statistics.quantiles(ratios, n=4)
    rate = medians["torch"] / medians["ours"]
    print(f"{case}: ours {medians['ours'] * 1e3:.1f} ms (fastest {min(times['ours']) * 1e3:.1f}), "
          f"torch {medians['torch'] * 1e3:.1f} ms (fastest {min(times['torch']) * 1e3:.1f}); "
          f"{elements / medians['ours'] / 1e9:.2f} billion parameters a second; "
          f"rate {rate:.3f} x torch (quartiles of rounds {low:.3f} to {high:.3f}), goal >= {GOALS[case]}")
    return rate >= GOALS[case]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--elements", type=int, default=100_000_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--case", choices=[*GOALS, "all"], default="all")
    args = parser.parse_args()
    if not BINARY.exists():
        sys.exit(f"error: {BINARY} does not exist; build it: ninja -C build/cpu bench_cpu_adam")
    ours, peer = Ours(args.elements, args.threads), Torch(args.elements, args.threads)
    cases = list(GOALS) if args.case == "all" else [args.case]
    reached = [report(case, measure(case, ours, peer, args.rounds), args.elements) for case in cases]
    ours.close()
    sys.exit(0 if all(reached) else 1)


if __name__ == "__main__":
    main()
