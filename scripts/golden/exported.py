#!/usr/bin/env python3
# What do other programs make of exported weights? The oracle of `export`.
"""exported.py MODEL.safetensors TEXT [--transformers]: reads the file with the Python package safetensors and the shape of
the model from config.json beside it, computes GPT-2 in plain PyTorch, fp64 on the CPU, and prints one JSON object: the mean
loss over the bytes of TEXT as `eval` takes it (rows of n_positions, next byte as label), the number of labels, and the names
and sizes of the tensors. --transformers: Hugging Face's GPT2LMHeadModel computes instead, in the type of the file (needs the package)."""

import json
import math
import pathlib
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
}  # fmt: skip


def gpt2_logits(config, w, tokens):
    """The function of GPT2LMHeadModel; its linear layers keep [in, out]."""
    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], config["layer_norm_epsilon"])

    def conv1d(x, name):
        return x @ w[name + ".weight"] + w[name + ".bias"]

    b, s = tokens.shape
    n, d = config["n_head"], config["n_embd"]
    future = torch.ones(s, s, dtype=torch.bool).triu(1)
    x = w["transformer.wte.weight"][tokens] + w["transformer.wpe.weight"][:s]
    for i in range(config["n_layer"]):
        h = f"transformer.h.{i}."
        q, k, v = (part.view(b, s, n, d // n).transpose(1, 2)
                   for part in conv1d(norm(x, h + "ln_1"), h + "attn.c_attn").split(d, dim=-1))
        scores = (q @ k.transpose(-1, -2) / math.sqrt(d // n)).masked_fill(future, float("-inf"))
        x = x + conv1d((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, s, d), h + "attn.c_proj")
        y = ACTIVATIONS[config["activation_function"]](conv1d(norm(x, h + "ln_2"), h + "mlp.c_fc"))
        x = x + conv1d(y, h + "mlp.c_proj")
    head = w["transformer.wte.weight"] if config["tie_word_embeddings"] else w["lm_head.weight"]
    return norm(x, "transformer.ln_f") @ head.T


def batches_of(text, length):
    """Tokens and labels of whole rows, 64 at a time, and of what is left; -100 where the text has no next byte."""
    ids = torch.tensor(list(text))
    labels = torch.cat([ids[1:], torch.tensor([-100])])
    whole = len(ids) // length * length
    batches = list(zip(ids[:whole].view(-1, length).split(64), labels[:whole].view(-1, length).split(64)))
    return batches + ([(ids[whole:][None], labels[whole:][None])] if whole < len(ids) else [])


def mean_loss(logits_of, batches):
    """Loss a label, and how many there are."""
    total = count = 0
    with torch.no_grad():
        for tokens, labels in batches:
            logits = logits_of(tokens).flatten(0, 1).double()
            total += F.cross_entropy(logits, labels.flatten(), ignore_index=-100, reduction="sum").item()
            count += int((labels != -100).sum())
    return {"loss": total / count, "labels": count}


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    file, text = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    config = json.loads((file.parent / "config.json").read_text())
    weights = load_file(file)
    batches = batches_of(text.read_bytes(), config["n_positions"])
    if sys.argv[3:] == ["--transformers"]:
        from transformers import GPT2LMHeadModel  # pylint: disable=import-error
        model = GPT2LMHeadModel.from_pretrained(file.parent).eval()
        result = mean_loss(lambda tokens: model(tokens).logits, batches)
    else:
        wide = {name: value.double() for name, value in weights.items()}
        result = mean_loss(lambda tokens: gpt2_logits(config, wide, tokens), batches)
    print(json.dumps({**result, "tensors": {name: list(value.shape) for name, value in weights.items()}}))


if __name__ == "__main__":
    main()
