# Is a training step here at least as fast as in eager PyTorch on the same CPU? Prints the ratio of median step times.
"""Same model, batch, optimizer and clipping on both sides (scripts/bench/torch_gpt.py is the peer). Both stay alive; only
one runs at any time: ours is paused with SIGSTOP, the peer waits for a command. They alternate in blocks of 20 steps.
A step of ours is the time between two records of metrics.jsonl, so it includes data, hooks and logging. The first step
of each block is dropped on both sides: on ours it contains the pause, on the peer's it starts with cold caches.

    .venv/bin/python scripts/bench/cpu_vs_torch.py [--rounds 7] [--case single|ddp|all]
"""

import argparse
import json
import os
import pathlib
import platform
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = ROOT / "build" / "cpu" / "colossal-train"
CONFIG = ROOT / "configs" / "gpt-kjv-cpu.yaml"
DATA = ROOT / "datasets" / "kjv" / "train.txt"
PYTHON = ROOT / ".venv" / "bin" / "python"
BLOCK = 20
PATIENCE_SECONDS = 120
CASES = {  # name: (processes, threads of each, what the peer is)
    "single": (1, 2, "eager PyTorch"),
    "ddp": (2, 1, "PyTorch DDP (gloo)"),
}


def descendants(pid):
    """Process ids of `pid` and all it started, parents first."""
    children = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it ended while we looked
            children.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for process in found:
        found += children.get(process, [])
    return found


class Ours:
    """A running colossal-train; paused except inside block()."""

    def __init__(self, processes, threads, folder):
        self.metrics = folder / "metrics.jsonl"
        settings = {"run.threads": threads, "train.steps": 1000000, "logging.every_steps": 1, "eval.every_steps": "null",
                    "eval.at_end": "false", "checkpoint.every_steps": "null", "checkpoint.at_end": "false",
                    "parallel.data": processes}
        self.command = [str(BINARY), "train", str(CONFIG), "--nproc", str(processes), "--output-dir", str(folder)]
        for key, value in settings.items():
            self.command += ["--set", f"{key}={value}"]
        self.log = open(folder.parent / "ours.log", "w+", encoding="utf-8")  # pylint: disable=consider-using-with
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log)
        self.records = []
        self.unread = 0  # where the records that are not read yet begin in the file
        self.wait_for(BLOCK)  # warm-up
        self.signal(signal.SIGSTOP)

    def signal(self, number):
        for process in descendants(self.process.pid):
            os.kill(process, number)

    def wait_for(self, count):
        """Waits until `count` more steps are recorded."""
        wanted = len(self.records) + count
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(self.records) < wanted:
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.log.seek(0)
                sys.exit(f"error: {' '.join(self.command)} gives no more steps (exit {self.process.poll()}):\n{self.log.read()[-2000:]}")
            time.sleep(0.05)
            self.read_records()

    def read_records(self):
        """Reads what was written since the last time: this script must not take the time of what it measures."""
        if not self.metrics.exists():
            return
        with self.metrics.open("rb") as file:
            file.seek(self.unread)
            written = file.read()
        whole = written[:written.rfind(b"\n") + 1]
        self.unread += len(whole)
        self.records += [record for record in map(json.loads, whole.splitlines()) if record["kind"] == "train"]

    def block(self):
        """(seconds, losses) of the next block."""
        first = len(self.records)
        self.signal(signal.SIGCONT)
        self.wait_for(BLOCK + 1)
        self.signal(signal.SIGSTOP)
        steps = self.records[first:first + BLOCK + 1]
        return [b["t"] - a["t"] for a, b in zip(steps, steps[1:])], [record["loss"] for record in steps[1:]]

    def end(self):
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)
        self.process.wait(timeout=30)


class Peer:
    """The PyTorch side: one process, or one for each rank."""

    def __init__(self, processes, threads):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.ranks = []
        for rank in range(processes):
            environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
            if processes > 1:
                environment.update(RANK=str(rank), WORLD_SIZE=str(processes), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
            command = [PYTHON, ROOT / "scripts" / "bench" / "torch_gpt.py", "--data", DATA, "--threads", str(threads)]
            self.ranks.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment))
        self.about = self.ask("tune")

    def ask(self, command):
        """Gives all ranks a command; the answer is rank 0's."""
        for rank in self.ranks:
            rank.stdin.write(command + "\n")
            rank.stdin.flush()
        answers = [rank.stdout.readline() for rank in self.ranks]
        if not all(answers):
            sys.exit("error: a PyTorch process ended; see its message above")
        return json.loads(answers[0])

    def block(self):
        """(seconds, losses) of the next block."""
        answer = self.ask(f"run {BLOCK + 1}")
        return answer["seconds"][1:], answer["losses"][1:]

    def end(self):
        for rank in self.ranks:
            rank.stdin.write("quit\n")
            rank.stdin.close()
            rank.wait(timeout=30)


def num_parameters():
    """Parameters of our model, from the plan."""
    done = subprocess.run([BINARY, "plan", CONFIG, "--world-size", "1", "--set", "parallel.data=1", "--format", "json"],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["parameters"]


def measure(case, rounds):
    """Runs one case; returns its row of the table and the ratio, and prints the losses."""
    processes, threads, peer_name = CASES[case]
    with tempfile.TemporaryDirectory() as folder:
        peer = Peer(processes, threads)
        if peer.about["parameters"] != num_parameters():
            sys.exit(f"error: the peer has {peer.about['parameters']} parameters, we have {num_parameters()}: not the same model")
        ours = Ours(processes, threads, pathlib.Path(folder) / "run")
        blocks = [(ours.block(), peer.block()) for _ in range(rounds)]
        ours.end()
        peer.end()
    ours_times = [second for (seconds, _), _ in blocks for second in seconds]
    peer_times = [second for _, (seconds, _) in blocks for second in seconds]
    ratios = [statistics.median(a[0]) / statistics.median(b[0]) for a, b in blocks]
    for name, losses in (("ours", [a[1] for a, _ in blocks]), (peer_name, [b[1] for _, b in blocks])):
        first, last = statistics.mean(losses[0]), statistics.mean(losses[-1])
        print(f"{case}: loss of {name}: {first:.3f} in the first block, {last:.3f} in the last")
        if last >= first:
            sys.exit(f"error: the loss of {name} does not fall: the comparison is void")
    print(f"{case}: the peer uses {peer.about['variant']}, fastest of "
          + ", ".join(f"{name} {1000 * value:.1f} ms" for name, value in peer.about["medians"].items()))
    ours_median, peer_median = statistics.median(ours_times), statistics.median(peer_times)
    return (f"| {processes} x {threads} | {1000 * ours_median:.1f} ms | {peer_name}: {1000 * peer_median:.1f} ms "
            f"| **{ours_median / peer_median:.3f}** | {min(ratios):.3f} - {max(ratios):.3f} |"), ours_median / peer_median


def main():
    parser = argparse.ArgumentParser(description="Step time here against eager PyTorch and DDP on this CPU.")
    parser.add_argument("--rounds", type=int, default=7, help="blocks of each side (at least 5 for a claim)")
    parser.add_argument("--case", choices=[*CASES, "all"], default="all")
    parser.add_argument("--goal", type=float, default=0.90, help="exit code 1 if a ratio is above it (0.90)")
    arguments = parser.parse_args()
    for path, remedy in ((BINARY, "scripts/train.sh"), (DATA, "scripts/data/kjv.sh"), (PYTHON, "scripts/setup.sh")):
        if not path.exists():
            sys.exit(f"error: {path} is missing: run {remedy} first")
    if os.getloadavg()[0] > 0.5 * os.cpu_count():
        print(f"warning: load average {os.getloadavg()[0]:.1f}: something else is running", file=sys.stderr)
    cases = list(CASES) if arguments.case == "all" else [arguments.case]
    rows, ratios = zip(*(measure(case, arguments.rounds) for case in cases))
    model = next((line.split(": ")[1] for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.machine())
    version = subprocess.run([BINARY, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    print(f"\n{version}; torch 2.11.0; {model.strip()}, {os.cpu_count()} cores; blocks of {BLOCK} steps, {arguments.rounds} rounds")
    print(f"command: {' '.join(sys.argv)}\n")
    print("| processes x threads | ours, median step | peer, median step | ratio of medians | ratio by round |")
    print("|---|---|---|---|---|\n" + "\n".join(rows))
    if max(ratios) > arguments.goal:
        sys.exit(f"missed: {max(ratios):.3f} is above {arguments.goal:.2f}")


if __name__ == "__main__":
    main()
