# Does a run here learn as PyTorch does, step by step, on a GPU? Prints the losses of both and their difference.
"""Both sides start from the weights of one of our checkpoints and see the same samples in the same order: 200 steps in fp32
(limit of the difference: 1e-4) and in bf16 (2e-2; ours with bf16 weights and fp32 masters, PyTorch with autocast).

    python3 scripts/bench/gpu_loss_curve.py --bundle .gpu --size 124m --batch 8
    .venv/bin/python scripts/bench/gpu_loss_curve.py --program build/cpu/colossal-train --device cpu --size tiny

The initial weights are read by h5py from the checkpoint of a run of one step with a learning rate of 1e-30. A machine without
h5py is given them as a file of safetensors (read here by hand), exported before on another one by the same seed and size:

    .venv/bin/python scripts/bench/gpu_loss_curve.py --program build/cpu/colossal-train --device cpu --size small --export w.st
    python3 scripts/bench/gpu_loss_curve.py --bundle .gpu --size small --weights w.st

The data are a file of llm.c's format that this script writes: tokens of which half follow from the one before.
"""

import argparse
import array
import contextlib
import json
import os
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import tempfile

import torch
from torch import nn

import gpu_torch_gpt as peer

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHAPES = {  # layers, hidden, heads, vocabulary (no padding: a multiple of 128), tokens of a sample
    "tiny": (2, 64, 4, 256, 64),
    "small": (6, 256, 4, 4096, 256),
    "124m": (12, 768, 12, 50304, 1024),
    "350m": (24, 1024, 16, 50304, 1024),
}
LIMITS = {"fp32": 1e-4, "bf16": 2e-2}
NO_RATE = 1e-30
LEARNING_RATE, WARMUP_STEPS = 1e-4, 60
LEAST_FALL = 0.1  # of the loss: a curve that does not fall compares nothing
LLMC_MAGIC, LLMC_VERSION, LLMC_HEADER = 20240520, 1, 256


def make_tokens(count, vocabulary):
    """`count` token ids: with even odds the successor that a fixed permutation names, else one drawn with a long tail."""
    draw = random.Random(5)
    successor = list(range(vocabulary))
    draw.shuffle(successor)
    tokens = array.array("H", [0])
    while len(tokens) < count:
        tokens.append(successor[tokens[-1]] if draw.random() < 0.5 else int(vocabulary * draw.random() ** 3))
    return tokens


def write_llmc(path, tokens):
    header = struct.pack(f"<{LLMC_HEADER}i", LLMC_MAGIC, LLMC_VERSION, len(tokens), *[0] * (LLMC_HEADER - 3))
    path.write_bytes(header + tokens.tobytes())


class Experiment:
    """What both sides agree on."""

    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.layers, self.hidden, self.heads, self.vocabulary, self.sequence = SHAPES[options.size]
        self.tokens = make_tokens(options.steps * options.batch * self.sequence + 1, self.vocabulary)
        write_llmc(folder / "train.bin", self.tokens)

    def ours(self, precision, name, rate=LEARNING_RATE, steps=None):
        """Runs ours; returns its folder."""
        steps, options, run = steps or self.options.steps, self.options, self.folder / name
        config = self.folder / f"{name}.yaml"
        config.write_text(f"""version: 1
run: {{name: {name}, device: {options.device}, seed: {options.seed}}}
model: {{type: gpt, num_layers: {self.layers}, hidden_size: {self.hidden}, num_heads: {self.heads}, vocab_size: {self.vocabulary}}}
data: {{type: tokens, format: llmc, train: [{self.folder}/train.bin], seq_length: {self.sequence}, shuffle: false}}
train: {{steps: {steps}, micro_batch_size: {options.batch}, precision: {precision}, clip_grad_norm: {peer.CLIP}}}
optimizer: {{type: adamw, lr: {rate}, weight_decay: {peer.WEIGHT_DECAY}, betas: [{peer.BETAS[0]}, {peer.BETAS[1]}]}}
scheduler: {{type: constant, warmup_steps: {min(WARMUP_STEPS, steps - 1)}}}
checkpoint: {{at_end: {str(rate == NO_RATE).lower()}}}
logging: {{every_steps: 1, tensorboard: false}}
""", encoding="utf-8")
        done = subprocess.run(program_of(options) + ["train", str(config), "--output-dir", str(run)], capture_output=True,
                              text=True, check=False, env={**os.environ, "PYTHON": sys.executable})
        if done.returncode != 0:
            sys.exit(f"error: ours ended with exit code {done.returncode}:\n{done.stderr[-3000:]}")
        return run

    def our_curve(self, precision):
        """(losses, rates) of each step."""
        lines = (self.ours(precision, precision) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        records = [record for record in map(json.loads, lines) if record["kind"] == "train"]
        return [record["loss"] for record in records], [record["lr"] for record in records]

    def their_curve(self, precision, weights, rates):
        """Losses of PyTorch from the same weights, at the rates that ours used."""
        device = torch.device(self.options.device)
        torch.set_float32_matmul_precision("highest")
        with device:
            model = peer.Gpt(self.layers, self.hidden, self.heads, self.vocabulary, self.sequence)
        model.load_state_dict({their_name(name): value for name, value in weights.items()})
        optimizer = peer.make_optimizer(model, LEARNING_RATE)
        stream = torch.tensor(self.tokens, dtype=torch.int64)
        length, losses = self.options.batch * self.sequence, []
        for step, rate in enumerate(rates):
            at = step * length
            tokens, labels = (stream[begin:begin + length].view(self.options.batch, -1).to(device) for begin in (at, at + 1))
            for group in optimizer.param_groups:
                group["lr"] = rate
            with arithmetic(device, precision):
                loss = model(tokens, labels)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), peer.CLIP)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.detach())
        return torch.stack(losses).double().tolist()

    def weights(self):
        """Our initial weights by our names, and where they come from."""
        if self.options.weights:
            return read_safetensors(self.options.weights), f"safetensors {self.options.weights}"
        run = self.ours("fp32", "initial", NO_RATE, 1)
        return read_checkpoint(run / "checkpoints" / "step-00000001"), "h5py, from our checkpoint"


@contextlib.contextmanager
def arithmetic(device, precision):
    """fp32 without TensorFloat, which fused attention would use; bf16 by autocast."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    if precision == "bf16":
        with torch.autocast(device.type, dtype=torch.bfloat16):
            yield
    else:
        with sdpa_kernel(SDPBackend.MATH):
            yield


def program_of(options):
    return [str(options.bundle / "run"), "colossal-train"] if options.program is None else [str(options.program)]


def their_name(name):
    """The peer's name of one of our parameters."""
    for ours, theirs in (("embed.", ""), ("blocks.", "layers."), (".attn.", "."), (".mlp.", ".")):
        name = name.replace(ours, theirs)
    return name


def read_checkpoint(folder):
    """Weights by our names, of an index.h5."""
    try:
        import h5py
    except ImportError:
        sys.exit("error: this python has no h5py to read our checkpoint; give --weights FILE, which --export FILE writes elsewhere")
    with h5py.File(folder / "index.h5", "r") as file:
        return {name: torch.from_numpy(item[...]) for name, item in file["model"].items()}


def write_safetensors(path, weights):
    header, at = {}, 0
    for name, value in weights.items():
        size = 4 * value.numel()
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for value in weights.values():
            file.write(value.contiguous().numpy().tobytes())


def read_safetensors(path):
    raw = bytearray(pathlib.Path(path).read_bytes())
    start = 8 + struct.unpack("<Q", raw[:8])[0]
    weights = {}
    for name, entry in json.loads(raw[8:start]).items():
        begin, end = entry["data_offsets"]
        weights[name] = torch.frombuffer(raw, dtype=torch.float32, count=(end - begin) // 4, offset=start + begin).view(entry["shape"])
    return weights


def compare(precision, ours, theirs):
    """Prints both curves; returns what --json keeps, with `passed`."""
    differences = [abs(a - b) for a, b in zip(ours, theirs)]
    print(f"\n{precision}: step, loss of ours, of PyTorch, difference")
    for step in sorted({*range(0, len(ours), max(1, len(ours) // 20)), len(ours) - 1}):
        print(f"{step + 1:5d}  {ours[step]:.6f}  {theirs[step]:.6f}  {ours[step] - theirs[step]:+.2e}")
    worst = max(range(len(differences)), key=differences.__getitem__)
    tenth = max(1, len(ours) // 10)
    fall = statistics.mean(theirs[:tenth]) - statistics.mean(theirs[-tenth:])
    passed = differences[worst] <= LIMITS[precision] and fall >= LEAST_FALL
    print(f"{precision}: largest difference {differences[worst]:.2e} at step {worst + 1}, limit {LIMITS[precision]:.0e}; median "
          f"{statistics.median(differences):.2e}; the loss falls by {fall:.3f}: {'ok' if passed else 'FAILED'}")
    return {"precision": precision, "ours": ours, "theirs": theirs, "largest": differences[worst], "fall": fall, "passed": passed}


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--bundle", type=pathlib.Path, default=ROOT / ".gpu", help="folder of scripts/gpu_bundle.sh (default: .gpu)")
    add("--program", type=pathlib.Path, help="colossal-train, in place of a bundle")
    add("--device", choices=("cuda", "cpu"), default="cuda")
    add("--size", choices=SHAPES, default="small")
    add("--batch", type=int, default=8)
    add("--steps", type=int, default=200)
    add("--seed", type=int, default=1234, help="of our initial weights")
    add("--precision", default="fp32,bf16")
    add("--weights", help="initial weights as written by --export, of the same --size and --seed")
    add("--export", help="only write the initial weights to this file")
    add("--json", type=pathlib.Path, help="file for all numbers")
    options = parser.parse_args()
    options.precisions = options.precision.split(",")
    if set(options.precisions) - set(LIMITS):
        parser.error(f"--precision: give {', '.join(LIMITS)} or both")
    if options.steps < 2 or options.batch < 1:
        parser.error("--steps must be 2 or more, --batch 1 or more")
    return options


def main():
    options = read_options()
    with tempfile.TemporaryDirectory(prefix="gpu-loss-curve-") as folder:
        experiment = Experiment(options, pathlib.Path(folder))
        weights, source = experiment.weights()
        if options.export:
            write_safetensors(options.export, weights)
            print(f"{options.export}: {len(weights)} tensors, {sum(value.numel() for value in weights.values()):,} parameters")
            return 0
        results = []
        for precision in options.precisions:
            ours, rates = experiment.our_curve(precision)
            results.append(compare(precision, ours, experiment.their_curve(precision, weights, rates)))
    name = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
    print(f"\n{options.size}, batch {options.batch}, {options.steps} steps; torch {torch.__version__}; {name}; weights: {source}")
    print(f"command: {' '.join(sys.argv)}")
    if options.json:
        options.json.write_text(json.dumps({"size": options.size, "device": name, "results": results}) + "\n", encoding="utf-8")
    return 0 if all(result["passed"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
