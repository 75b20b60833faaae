#!/usr/bin/env python3
# Which tokens follow a prompt? Records tests/golden/fixtures/generate.json.
"""Records continuations of tiny GPT models: tests/golden/fixtures/generate.json.

An independent implementation: the PyTorch model of gpt.py on the weights of gpt.h5, in fp64, run anew
over everything the model sees for each token (no cache); sampling rules and random numbers (Philox)
in plain Python. Each case: model, options, prompts, and the ids that follow.

    python scripts/golden/generate.py       # needs torch, numpy, h5py; rewrites the fixture
"""

import json
import math
import pathlib

import h5py
import torch
from gpt import BASE, OUT, VARIANTS, logits_of

FIXTURE = OUT.with_name("generate.json")
MASK64, MASK32 = (1 << 64) - 1, (1 << 32) - 1
DEFAULTS = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "repetition_penalty": 1.0, "seed": 0}
CASES = [
    ("default", {"temperature": 0.0}),
    ("gqa_swiglu_untied_padded", {"temperature": 0.0}),
    ("gelu", {"temperature": 0.0, "repetition_penalty": 1.3}),
    ("default", {"seed": 1}),
    ("gqa_swiglu_untied_padded", {"temperature": 1.7, "top_k": 20, "seed": 2}),
    ("relu", {"temperature": 0.8, "top_p": 0.9, "seed": 12345678901}),
    ("gqa_swiglu_untied_padded",
     {"temperature": 2.5, "top_k": 50, "top_p": 0.8, "repetition_penalty": 1.2, "seed": 3}),
]  # fmt: skip
PROMPTS = [[3], [1, 2, 3, 4, 5], [7, 7, 39, 0, 12, 5, 30, 21]]
MAX_TOKENS = 24  # the models see 8: the window slides


def splitmix64(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK64
    return x ^ (x >> 31)


def fnv1a64(text):
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK64
    return h


def philox4x32(key, counter):
    c, k = list(counter), [key & MASK32, key >> 32]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & MASK32, (p0 >> 32) ^ c[3] ^ k[1], p0 & MASK32]
        k = [(k[0] + 0x9E3779B9) & MASK32, (k[1] + 0xBB67AE85) & MASK32]
    return c


def uniform(seed, request, position):
    """53 bits keyed by (seed, "generate") at counter (position, request)."""
    key = splitmix64(splitmix64(seed) ^ fnv1a64("generate"))
    w = philox4x32(key, [position & MASK32, position >> 32, request & MASK32, request >> 32])
    return (((w[1] << 32) | w[0]) >> 11) / 2**53


def choose(logits, sequence, o, request):
    logits = list(logits)
    for token in set(sequence):
        x = logits[token]
        logits[token] = x / o["repetition_penalty"] if x > 0 else x * o["repetition_penalty"]
    if o["temperature"] == 0:
        return logits.index(max(logits))
    logits = [x / o["temperature"] for x in logits]
    least = sorted(logits, reverse=True)[o["top_k"] - 1] if o["top_k"] else -math.inf
    top = max(logits)
    weights = {i: math.exp(x - top) for i, x in enumerate(logits) if x >= least}
    total = sum(weights.values())
    kept, before = [], 0.0
    for token in sorted(weights, key=lambda i: (-weights[i], i)):
        if before > o["top_p"]:
            break
        kept.append(token)
        before += weights[token] / total
    rest = uniform(o["seed"], request, len(sequence)) * sum(weights[i] for i in kept)
    for token in sorted(kept):
        rest -= weights[token]
        if rest < 0:
            return token
    return max(kept)


def generate(model, weights, prompt, o, request):
    tokens, begin, sees = list(prompt), 0, model["max_seq_length"]
    for _ in range(MAX_TOKENS):
        if len(tokens) - begin > sees:
            begin = len(tokens) - sees // 2
        seen = torch.tensor([tokens[begin:]])
        tokens.append(choose(logits_of(model, weights, seen)[0, -1].tolist(), tokens, o, request))
    return tokens[len(prompt):]


def main():
    torch.set_num_threads(1)
    cases = []
    with h5py.File(OUT) as file:
        for variant, options in CASES:
            model = {**BASE, **VARIANTS[variant]}
            weights = {name: torch.from_numpy(data[()]).double()
                       for name, data in file[variant]["weights"].items()}
            o = {**DEFAULTS, **options}
            ids = [generate(model, weights, prompt, o, i) for i, prompt in enumerate(PROMPTS)]
            cases.append({"variant": variant, **o, "ids": ids})
    fixture = {"script": "scripts/golden/generate.py", "torch": torch.__version__,
               "uniform": [uniform(5, request, position) for request, position in ((0, 0), (2**33 + 1, 2**32 + 7))],
               "max_tokens": MAX_TOKENS, "prompts": PROMPTS, "cases": cases}
    FIXTURE.write_text(json.dumps(fixture) + "\n", encoding="utf-8")
    print(f"{FIXTURE.name}: {FIXTURE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
