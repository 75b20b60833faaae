# How fast is a step of llm.c on this GPU, measured as gpu_vs_torch.py measures ours?
"""llm.c is not shipped. Where its users build it (CUDA toolkit, cuDNN and the headers of cudnn-frontend):

    git clone https://github.com/karpathy/llm.c && cd llm.c && make train_gpt2cu USE_CUDNN=1 NO_MULTI_GPU=1

Then, in one call on one machine, ours before and after it:

    python3 scripts/bench/gpu_vs_torch.py --bundle .gpu --peers compile --case 124m:64
    python3 scripts/bench/gpu_llmc.py --binary llm.c/train_gpt2cu --case 124m:64

It trains the same shape on the same random tokens of the same batch with AdamW, weight decay 0.1, clipping at 1 and bf16 with fp32
masters, without recomputation, and prints tokens a second of the steps after the warm-up. Divide ours by it. `--more '-ge 2'` gives
it further options of its own, as the fused gelu that it has for Hopper cards; report the fastest.
"""

import argparse
import pathlib
import re
import statistics
import struct
import subprocess
import sys
import tempfile

import gpu_vs_torch

DEPTHS = {"124m": 12, "350m": 24, "774m": 36, "1558m": 48}
MAGIC, VERSION, HEADER = 20240520, 1, 256  # of its token files: integers before the uint16 ids
STEP = re.compile(r"^step +(\d+)/(\d+) \| loss +([\d.naif+-]+).*\| +([\d.]+) ms \|")
MEMORY = re.compile(r"device memory usage: (\d+) MiB")


def write_tokens(path, count, vocabulary):
    """Ids of a multiplicative generator: data are nothing to be learnt from, as on our side."""
    state, ids = 1, bytearray()
    for _ in range(count):
        state = state * 48271 % 2147483647
        ids += struct.pack("<H", state % vocabulary)
    path.write_bytes(struct.pack(f"<{HEADER}i", MAGIC, VERSION, count, *[0] * (HEADER - 3)) + ids)


def command_of(options, case, data):
    sequence = case.shape[5]
    return [str(options.binary), "-i", str(data), "-j", str(data), "-e", f"d{DEPTHS[options.size]}", "-b", str(case.batch),
            "-t", str(sequence), "-d", str(case.batch * sequence), "-x", str(options.warmup + options.steps),
            "-v", "1000000", "-m", "1", "-s", "0", "-l", "1e-4", "-c", "0.1", "-r", "0", *options.more.split()]


def steps_of(text):
    """Milliseconds and losses of the steps that its output tells, in order."""
    found = [STEP.match(line) for line in text.splitlines()]
    return [(float(step[4]), float(step[3])) for step in found if step]


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, required=True, help="llm.c's train_gpt2cu")
    parser.add_argument("--case", required=True, metavar="SIZE:BATCH", help=f"sizes: {', '.join(DEPTHS)}")
    parser.add_argument("--steps", type=gpu_vs_torch.positive, default=40, help="timed steps (40)")
    parser.add_argument("--warmup", type=gpu_vs_torch.positive, default=10, help="steps before them (10)")
    parser.add_argument("--more", default="", help="further options of llm.c")
    options = parser.parse_args()
    options.size = options.case.partition(":")[0]
    if options.size not in DEPTHS:
        parser.error(f"--case: '{options.case}' is not SIZE:BATCH with a size of {', '.join(DEPTHS)}")
    try:
        case = gpu_vs_torch.Case(options.case)
    except argparse.ArgumentTypeError as error:
        parser.error(f"--case: {error}")
    return options, case


def main():
    options, case = read_options()
    with tempfile.TemporaryDirectory(prefix="gpu-llmc-") as folder:
        data = pathlib.Path(folder) / "tokens.bin"
        tokens = case.batch * case.shape[5]
        write_tokens(data, 4 * tokens + 1, case.shape[3])
        command = command_of(options, case, data)
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=gpu_vs_torch.PATIENCE_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            sys.exit(f"error: {options.binary}: {error}")
    steps = steps_of(done.stdout)
    if done.returncode != 0 or len(steps) < options.warmup + options.steps:
        sys.exit(f"error: llm.c ended with exit code {done.returncode} after {len(steps)} steps:\n{(done.stdout + done.stderr)[-3000:]}")
    timed = [milliseconds for milliseconds, _ in steps[options.warmup:]]
    gpu_vs_torch.check_losses("llm.c", {"losses": [loss for _, loss in steps[-1:]]}, case)
    rates = sorted(1000 * tokens / milliseconds for milliseconds in timed)
    memory = MEMORY.search(done.stdout)
    print(f"{options.case}: llm.c {statistics.median(rates):,.0f} tokens/s, median of {len(timed)} steps ({rates[0]:,.0f} - {rates[-1]:,.0f}), "
          f"{statistics.median(timed):.2f} ms a step{f', {memory[1]} MiB' if memory else ''}; loss {steps[-1][1]:.3f}")
    print(f"command: {' '.join(command)}\n{'; '.join(gpu_vs_torch.gpu_facts()) or 'no GPU'}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except gpu_vs_torch.Failed as failure:
        sys.exit(f"error: {failure}")
