# Is a training step here faster than in PyTorch on the same GPU? Prints the ratios of medians, with their spread.
"""Both sides train the same GPT-2 shape with the same batch, AdamW, clipping at 1 and bf16 products (scripts/bench/gpu_torch_gpt.py
is the peer). They alternate: in each round every peer runs a block of steps, then ours does. A block is some steps of warm-up
and some windows of steps, timed by the clock on the wall from the end of one window to the end of the next. A peer stays
alive, with its weights in host memory while it waits; ours is started anew in each round. Data are random tokens made for each step.

    python3 scripts/bench/gpu_vs_torch.py --bundle .gpu --case 124m:64 --case 350m:32,1558m:16 --json result.json
    python3 scripts/bench/gpu_vs_torch.py --bundle .gpu --case 1558m:8 --nproc 2 --peers ddp,fsdp2
    python3 scripts/bench/gpu_vs_torch.py --program build/cpu/colossal-train --device cpu --case tiny:4

Needs python3 with torch 2.11 and, as --bundle, what scripts/gpu_bundle.sh has packed (or, as --program, a program built here).
A case is SIZE:BATCH, the samples of one process in a step, T = 1024 tokens each.
"""

import argparse
import json
import math
import os
import pathlib
import queue
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHAPES = {  # layers, hidden, heads, vocabulary, its rows, tokens of a sample
    "tiny": (2, 64, 4, 250, 256, 64),
    "124m": (12, 768, 12, 50257, 50304, 1024),
    "350m": (24, 1024, 16, 50257, 50304, 1024),
    "774m": (36, 1280, 20, 50257, 50304, 1024),
    "1558m": (48, 1600, 25, 50257, 50304, 1024),
}
SHAPE_WORDS = ("layers", "hidden", "heads", "vocabulary", "rows", "sequence")
PEAK_FLOPS = {"H100": 989e12, "H200": 989e12}  # bf16, dense
PEERS = ("eager", "compile", "ddp-eager", "ddp", "fsdp2")
PATIENCE_SECONDS = 400
LOSS_MARGIN = 0.6  # above ln(vocabulary): the peers' tokens teach nothing, ours follow a rule that can be learnt


class Failed(Exception):
    """One side of a comparison gave no numbers; the message says why."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Peer:
    """The PyTorch side of one case: a process, or one for each rank."""

    def __init__(self, name, case, options, folder):
        self.name, self.processes = name, []
        self.log = open(folder / f"{name}.log", "w+", encoding="utf-8")  # pylint: disable=consider-using-with
        self.command = [sys.executable, str(ROOT / "scripts" / "bench" / "gpu_torch_gpt.py"), "--peer", name,
                        "--batch", str(case.batch), "--device", options.device, "--precision", options.precision,
                        "--attention", options.attention, "--compile-mode", options.compile_mode]
        for word, number in zip(SHAPE_WORDS, case.shape):
            self.command += [f"--{word}", str(number)]
        port = free_port()
        for rank in range(options.nproc):
            environment = {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(options.nproc),
                           "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
                                       text=True, env=environment)
            process.lines = queue.Queue()
            threading.Thread(target=self.read, args=(process,), daemon=True).start()
            self.processes.append(process)
        self.about = self.ask("about")[0]

    @staticmethod
    def read(process):
        for line in process.stdout:
            if line.startswith("{"):  # others are told by compilers
                process.lines.put(json.loads(line))
        process.lines.put(None)

    def ask(self, command):
        """Gives all ranks a command; returns their answers."""
        answers = []
        try:
            for process in self.processes:
                process.stdin.write(command + "\n")
                process.stdin.flush()
            answers = [process.lines.get(timeout=PATIENCE_SECONDS) for process in self.processes]
        except (queue.Empty, BrokenPipeError):
            answers.append(None)
        for answer in answers:
            if answer is None or "error" in answer:
                self.end()
                raise Failed(answer["error"] if answer else f"a PyTorch process gave no answer:\n{tail(self.log)}")
        return answers

    def block(self, options):
        """One block; a step of several ranks takes as long as rank 0's, the memory is the fullest rank's."""
        answers = self.ask(f"run {options.warmup} {options.steps} {options.window}")
        return {**answers[0], "peak": max(answer["peak"] for answer in answers)}

    def end(self):
        for process in self.processes:
            try:
                process.stdin.write("quit\n")
                process.stdin.close()
            except OSError:
                pass
        for process in self.processes:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def tail(log, most=3000):
    log.seek(0)
    return log.read()[-most:]


class Ours:
    """Our side of one case: a run of its own for each block."""

    def __init__(self, case, options, folder):
        self.case, self.folder, self.runs = case, folder, 0
        self.config = folder / "ours.yaml"
        self.config.write_text(config_of(case, options), encoding="utf-8")
        self.command = program_of(options) + ["train", str(self.config)]
        if options.nproc > 1:
            self.command += ["--nproc", str(options.nproc)]
        for setting in options.set:
            self.command += ["--set", setting]
        self.parameters = None

    def block(self, options):
        self.runs += 1
        run = self.folder / f"run-{self.runs}"
        with open(self.folder / f"ours-{self.runs}.log", "w+", encoding="utf-8") as log:
            begin = time.perf_counter()
            done = subprocess.run(self.command + ["--output-dir", str(run)], stdout=log, stderr=log, check=False,
                                  timeout=PATIENCE_SECONDS, env={**os.environ, "PYTHON": sys.executable})
            if done.returncode != 0:
                raise Failed(f"ours ended with exit code {done.returncode}:\n{tail(log)}")
        self.parameters = json.loads((run / "plan.json").read_text(encoding="utf-8"))["parameters"]
        lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        records = [record for record in map(json.loads, lines) if record["kind"] == "train"]
        ends = [record for record in records if record["step"] >= options.warmup]
        return {"seconds": [(b["t"] - a["t"]) / (b["step"] - a["step"]) for a, b in zip(ends, ends[1:])],
                "losses": [record["loss"] for record in ends[1:]],
                "peak": ends[-1]["device_peak"],
                "wall": time.perf_counter() - begin}


def program_of(options):
    return [str(options.bundle / "run"), "colossal-train"] if options.program is None else [str(options.program)]


def config_of(case, options):
    """Our configuration. The loss shows that both compute."""
    layers, hidden, heads, vocabulary, _, sequence = case.shape
    steps, samples = options.warmup + options.steps, case.batch * options.nproc
    return f"""version: 1
run: {{name: gpu-vs-torch, device: {options.device}}}
model: {{type: gpt, num_layers: {layers}, hidden_size: {hidden}, num_heads: {heads}, vocab_size: {vocabulary}}}
data: {{type: synthetic, seq_length: {sequence}, num_samples: {samples * steps}}}
train: {{steps: {steps}, micro_batch_size: {case.batch}, global_batch_size: {samples}, precision: {options.precision}, clip_grad_norm: 1.0}}
optimizer: {{type: adamw, lr: 1e-4, weight_decay: 0.1, betas: [0.9, 0.95]}}
checkpoint: {{at_end: false}}
logging: {{every_steps: {options.window}, tensorboard: false}}
"""


class Case:
    """SIZE:BATCH."""

    def __init__(self, text):
        size, _, batch = text.partition(":")
        if size not in SHAPES or (batch and not batch.isdigit()):
            raise argparse.ArgumentTypeError(f"'{text}' is not SIZE:BATCH with a size of {', '.join(SHAPES)}")
        self.name, self.shape, self.batch = text, SHAPES[size], int(batch or 4)

    def flops_per_token(self, parameters):
        """By the PaLM convention: 6 N + 12 L C T, without the savings of causal attention."""
        layers, hidden, _, _, _, sequence = self.shape
        return 6 * parameters + 12 * layers * hidden * sequence


def check_losses(name, block, case):
    expected = math.log(case.shape[3])
    for loss in block["losses"]:
        if not 0 < loss < expected + LOSS_MARGIN:
            raise Failed(f"{name} has a loss of {loss:.3f}, where knowing nothing costs {expected:.3f}: the comparison is void")


class Comparison:
    """All sides of one case; a side that fails is left out, with its message in `notes`."""

    def __init__(self, case, options, folder):
        self.case, self.options, self.folder = case, options, folder
        self.notes, self.blocks = {}, {}
        self.ours = Ours(case, options, folder)
        self.peers, self.sides = {}, {}

    def attempt(self, name, call):
        """The result of call(), or None with a note."""
        try:
            return call()
        except Failed as error:
            self.notes[name] = str(error)
        except (subprocess.TimeoutExpired, OSError, KeyError, IndexError) as error:
            self.notes[name] = f"{type(error).__name__}: {error}"
        print(f"{self.case.name}: {name} fails: {self.notes[name]}", file=sys.stderr)
        self.sides.pop(name, None)
        return None

    def run_block(self, name, side):
        block = side.block(self.options)
        check_losses(name, block, self.case)
        self.blocks.setdefault(name, []).append(block)

    def next_round_seconds(self):
        """What a round will take: without compilation, which the first one has paid."""
        share = 1 + self.options.warmup / self.options.steps
        return sum(blocks[-1].get("wall") or share * self.options.window * sum(blocks[-1]["seconds"]) for blocks in self.blocks.values())

    def run(self):
        begin = time.perf_counter()
        try:
            for name in self.options.peers:
                peer = self.attempt(name, lambda name=name: Peer(name, self.case, self.options, self.folder))
                if peer is not None:
                    self.peers[name] = peer
            self.sides = {**self.peers, "ours": self.ours}
            for number in range(self.options.rounds):
                if number and time.perf_counter() - begin + self.next_round_seconds() > self.options.limit_seconds:
                    self.notes["rounds"] = f"stopped after {number}: --limit-seconds {self.options.limit_seconds}"
                    break
                for name, side in list(self.sides.items()):
                    self.attempt(name, lambda name=name, side=side: self.run_block(name, side))
        finally:
            for peer in self.peers.values():
                peer.end()
        self.check_parameters()

    def check_parameters(self):
        """Drops a peer that is not our model. Rows of the vocabulary beyond its size may be counted or not."""
        padding = (self.case.shape[4] - self.case.shape[3]) * self.case.shape[1]
        for name, peer in self.peers.items():
            theirs = peer.about["parameters"]
            if self.ours.parameters not in (None, theirs, theirs - padding):
                self.notes[name] = f"the peer has {theirs} parameters, ours {self.ours.parameters}: not the same model"
                self.blocks.pop(name, None)

    def result(self):
        return {"case": self.case.name, "blocks": self.blocks, "notes": self.notes, "parameters": self.ours.parameters,
                "ours": self.ours.command,
                "peers": {name: {**peer.about, "command": peer.command} for name, peer in self.peers.items()}}


def times_of(blocks):
    return [seconds for block in blocks for seconds in block["seconds"]]


def rows_of(result, case, options):
    """The table of one case, a row for each side; numbers for people and for --json."""
    blocks, rows = result["blocks"], []
    tokens = case.batch * case.shape[5] * options.nproc
    for name in [*options.peers, "ours"]:
        if name not in blocks:
            continue
        rates = sorted(tokens / seconds for seconds in times_of(blocks[name]))
        row = {"case": case.name, "side": name, "tokens_per_s": statistics.median(rates), "least": rates[0], "most": rates[-1],
               "step_ms": 1000 * statistics.median(times_of(blocks[name])), "rounds": len(blocks[name]),
               "peak_bytes": max(block["peak"] for block in blocks[name])}
        if name != "ours" and "ours" in blocks:
            ratios = [statistics.median(a["seconds"]) / statistics.median(b["seconds"])
                      for a, b in zip(blocks[name], blocks["ours"])]
            row.update(ratio=statistics.median(ratios), ratio_least=min(ratios), ratio_most=max(ratios))
            ours_peak = max(block["peak"] for block in blocks["ours"])
            row["memory_ratio"] = ours_peak / row["peak_bytes"] if row["peak_bytes"] else None
        rows.append(row)
    card = options.gpu or next((peer["device"] for peer in result["peers"].values()), "")
    peak = next((flops for name, flops in PEAK_FLOPS.items() if name in card), None)
    for row in rows:
        flops = case.flops_per_token(result["parameters"] or 0)
        row["mfu"] = flops * row["tokens_per_s"] / (peak * options.nproc) if peak and result["parameters"] else None
    return rows


def line_of(row):
    def ratio(key):
        return f"{row[key]:.3f}" if row.get(key) is not None else "-"
    spread = f"{ratio('ratio_least')} - {ratio('ratio_most')}" if "ratio" in row else "-"
    mfu = f"{100 * row['mfu']:.1f} %" if row["mfu"] else "-"
    return (f"| {row['case']} | {row['side']} | {row['tokens_per_s']:,.0f} | {row['least']:,.0f} - {row['most']:,.0f} "
            f"| {row['step_ms']:.2f} | {mfu} | {row['peak_bytes'] / 2**30:.2f} | {ratio('ratio')} | {spread} | {ratio('memory_ratio')} |")


HEAD = """| case | side | tokens/s, median | least - most | step, ms | MFU (PaLM) | peak, GiB | ours / it | by round | our peak / its |
|---|---|---|---|---|---|---|---|---|---|"""


def gpu_facts():
    """Name, driver and power limit of the cards; empty without an NVIDIA driver."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version,power.limit", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().splitlines()
    except (OSError, subprocess.CalledProcessError):
        return []


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--case", action="append", required=True, metavar="SIZE:BATCH[,...]", help=f"sizes: {', '.join(SHAPES)}; repeatable")
    add("--bundle", type=pathlib.Path, default=ROOT / ".gpu", help="folder of scripts/gpu_bundle.sh (default: .gpu)")
    add("--program", type=pathlib.Path, help="colossal-train, in place of a bundle")
    add("--device", choices=("cuda", "cpu"), default="cuda")
    add("--precision", choices=("bf16", "fp32"), help="default: bf16 on cuda, fp32 on cpu")
    add("--nproc", type=positive, default=1, help="processes of each side, a GPU each")
    add("--peers", help=f"of {', '.join(PEERS)} (default: eager,compile; with --nproc: ddp,fsdp2)")
    add("--steps", type=positive, default=20, help="timed steps of a block")
    add("--warmup", type=positive, default=10, help="steps before them")
    add("--window", type=positive, default=10, help="steps between two looks at the clock; divides the two above")
    add("--rounds", type=positive, default=3, help="blocks of each side (at least 3 for a claim)")
    add("--limit-seconds", type=positive, default=175, help="of a case: no further round starts that would exceed them")
    add("--attention", choices=("default", "cudnn"), default="default", help="kernel of the peers' attention")
    add("--compile-mode", default="default", help="of torch.compile")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="further settings of ours")
    add("--json", type=pathlib.Path, help="file for all numbers")
    options = parser.parse_args()
    options.precision = options.precision or ("bf16" if options.device == "cuda" else "fp32")
    options.peers = (options.peers or ("eager,compile" if options.nproc == 1 else "ddp,fsdp2")).split(",")
    try:
        options.cases = [Case(text) for texts in options.case for text in texts.split(",")]
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))
    distributed = set(options.peers) & {"ddp-eager", "ddp", "fsdp2"}
    if set(options.peers) - set(PEERS):
        parser.error(f"--peers: {', '.join(sorted(set(options.peers) - set(PEERS)))} is none of {', '.join(PEERS)}")
    if options.nproc > 1 and set(options.peers) != distributed:
        parser.error("--nproc: eager and compile train on one GPU; compare with ddp-eager, ddp or fsdp2")
    if options.steps % options.window or options.warmup % options.window:
        parser.error(f"--window {options.window} must divide --steps {options.steps} and --warmup {options.warmup}")
    program = pathlib.Path(program_of(options)[0])
    if not os.access(program, os.X_OK):
        parser.error(f"{program} is no program: run scripts/gpu_bundle.sh, or give --bundle or --program")
    return options


def main():
    options = read_options()
    cards = gpu_facts() if options.device == "cuda" else []
    options.gpu = cards[0] if cards else ""
    version = subprocess.run(program_of(options) + ["--version"], capture_output=True, text=True, check=True,
                             env={**os.environ, "PYTHON": sys.executable}).stdout.strip()
    results, rows = [], []
    for case in options.cases:
        with tempfile.TemporaryDirectory(prefix="gpu-vs-torch-") as folder:
            begin = time.perf_counter()
            comparison = Comparison(case, options, pathlib.Path(folder))
            comparison.run()
        result = comparison.result()
        result["wall_seconds"] = time.perf_counter() - begin
        result["rows"] = rows_of(result, case, options)
        results.append(result)
        rows += result["rows"]
        print("\n".join([f"{case.name}: {result['wall_seconds']:.0f} s", HEAD, *map(line_of, result["rows"])]), flush=True)
    torch_version = next((about["torch"] for result in results for about in result["peers"].values()), "none")
    facts = {"version": version, "torch": torch_version, "gpus": cards, "command": " ".join(sys.argv), "precision": options.precision,
             "nproc": options.nproc, "attention": options.attention, "compile_mode": options.compile_mode,
             "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())}
    print(f"\n{version}; torch {torch_version}; {'; '.join(cards) or 'no GPU'}; {options.precision}, {options.nproc} process(es); "
          f"blocks of {options.warmup} + {options.steps} steps, windows of {options.window}; {facts['date']}")
    print(f"command: {facts['command']}\n\n{HEAD}\n" + "\n".join(map(line_of, rows)))
    for result in results:
        for name, note in result["notes"].items():
            lines = note.strip().splitlines()
            print(f"note: {result['case']}: {name}: {' ... '.join(dict.fromkeys([lines[0], lines[-1]]))}")
    if options.json:
        options.json.write_text(json.dumps({**facts, "results": results}, indent=1) + "\n", encoding="utf-8")
    failed = any("ours" not in result["blocks"] or len(result["blocks"]) < 2 for result in results)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
