#!/usr/bin/env python3
# What does PyTorch compute for tiny GPT models? Records tests/golden/fixtures/gpt.h5.
"""Records what PyTorch computes for tiny GPT models: tests/golden/fixtures/gpt.h5.

An independent implementation in plain PyTorch, fp64 on the CPU. For each variant: the model's
options (attributes), weights (fp32-representable), tokens, labels (-100: no loss), logits, the summed
loss, all gradients, for some both once more with label smoothing, and ten AdamW steps (loss and gradient norm of
each, final weights).

    python scripts/golden/gpt.py            # needs torch, numpy, h5py; rewrites the fixture
"""

import math
import pathlib
import platform

import h5py
import numpy as np
import torch
import torch.nn.functional as F

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "fixtures" / "gpt.h5"
BATCH, STEPS = 3, 10
SMOOTHING = 0.15
SMOOTHED = ("default", "gqa_swiglu_untied_padded")  # a tied and a padded head
ADAMW = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "clip": 1.0}
BASE = {
    "num_layers": 2, "hidden_size": 16, "num_heads": 4, "num_kv_heads": 4, "ffn_hidden_size": 32,
    "vocab_size": 40, "vocab_pad_multiple": 1, "max_seq_length": 8, "activation": "gelu_tanh",
    "norm_eps": 1e-5, "tie_embeddings": True,
}  # fmt: skip
VARIANTS = {
    "default": {},
    "gqa_swiglu_untied_padded": {
        "num_kv_heads": 2, "activation": "swiglu", "tie_embeddings": False,
        "vocab_size": 250, "vocab_pad_multiple": 128,
    },
    "gelu": {"activation": "gelu"},
    "relu": {"activation": "relu"},
}  # fmt: skip


def make_weights(o, generator):
    """Weights by canonical name, [out, in]; values are exact in fp32."""
    d, f = o["hidden_size"], o["ffn_hidden_size"]
    kv = d // o["num_heads"] * o["num_kv_heads"]
    shapes = {"embed.tokens.weight": (o["vocab_size"], d),
              "embed.positions.weight": (o["max_seq_length"], d)}
    for i in range(o["num_layers"]):
        wide = ["gate", "up"] if o["activation"] == "swiglu" else ["up"]
        linears = {"attn.qkv": (d + 2 * kv, d), "attn.out": (d, d), "mlp.down": (d, f),
                   **{f"mlp.{name}": (f, d) for name in wide}}
        for name, shape in linears.items():
            shapes[f"blocks.{i}.{name}.weight"] = shape
            shapes[f"blocks.{i}.{name}.bias"] = shape[:1]
        for name in ("norm1", "norm2"):
            shapes[f"blocks.{i}.{name}.weight"] = shapes[f"blocks.{i}.{name}.bias"] = (d,)
    shapes["norm.weight"] = shapes["norm.bias"] = (d,)
    if not o["tie_embeddings"]:
        shapes["head.weight"] = (o["vocab_size"], d)
    weights = {}
    for name, shape in shapes.items():
        w = 0.3 * torch.randn(shape, generator=generator, dtype=torch.float32)
        w = w + 1 if "norm" in name and name.endswith(".weight") else w
        weights[name] = w.double()
    return weights


def activate(o, x, w, prefix):
    up = F.linear(x, w[prefix + "up.weight"], w[prefix + "up.bias"])
    if o["activation"] == "swiglu":
        return F.silu(F.linear(x, w[prefix + "gate.weight"], w[prefix + "gate.bias"])) * up
    if o["activation"] == "relu":
        return F.relu(up)
    return F.gelu(up, approximate="tanh" if o["activation"] == "gelu_tanh" else "none")


def attention(o, x, w, prefix):
    b, s, d = x.shape
    n, m = o["num_heads"], o["num_kv_heads"]
    h = d // n
    qkv = F.linear(x, w[prefix + "qkv.weight"], w[prefix + "qkv.bias"])
    q, k, v = qkv.split([d, m * h, m * h], dim=-1)
    q = q.view(b, s, n, h).transpose(1, 2)
    k = k.view(b, s, m, h).transpose(1, 2).repeat_interleave(n // m, dim=1)
    v = v.view(b, s, m, h).transpose(1, 2).repeat_interleave(n // m, dim=1)
    scores = q @ k.transpose(-1, -2) / math.sqrt(h)
    future = torch.ones(s, s, dtype=torch.bool).triu(1)
    y = scores.masked_fill(future, float("-inf")).softmax(-1) @ v
    y = y.transpose(1, 2).reshape(b, s, d)
    return F.linear(y, w[prefix + "out.weight"], w[prefix + "out.bias"])


def logits_of(o, w, tokens):
    def norm(x, name):
        shape = (o["hidden_size"],)
        return F.layer_norm(x, shape, w[name + ".weight"], w[name + ".bias"], o["norm_eps"])

    x = w["embed.tokens.weight"][tokens] + w["embed.positions.weight"][: tokens.shape[1]]
    for i in range(o["num_layers"]):
        x = x + attention(o, norm(x, f"blocks.{i}.norm1"), w, f"blocks.{i}.attn.")
        y = activate(o, norm(x, f"blocks.{i}.norm2"), w, f"blocks.{i}.mlp.")
        x = x + F.linear(y, w[f"blocks.{i}.mlp.down.weight"], w[f"blocks.{i}.mlp.down.bias"])
    head = w["embed.tokens.weight"] if o["tie_embeddings"] else w["head.weight"]
    return F.linear(norm(x, "norm"), head)


def loss_sum(logits, labels, smoothing=0.0):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum",
                           label_smoothing=smoothing)


def record_smoothed(group, weights, logits_with, labels):
    """The loss with label smoothing, and its gradients."""
    leaves = {name: value.clone().requires_grad_() for name, value in weights.items()}
    loss = loss_sum(logits_with(leaves), labels, SMOOTHING)
    loss.backward()
    note(group, {"label_smoothing": SMOOTHING})
    store(group, {"loss_sum": loss.detach()})
    store(group.create_group("grads"), {name: value.grad for name, value in leaves.items()})


def train(o, weights, tokens, labels):
    """Ten AdamW steps on the mean loss with clipping; biases and norms are not decayed."""
    w = {name: value.clone().requires_grad_() for name, value in weights.items()}
    kept = [v for k, v in w.items() if k.endswith(".bias") or "norm" in k]
    decayed = [v for k, v in w.items() if not (k.endswith(".bias") or "norm" in k)]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": ADAMW["weight_decay"]},
         {"params": kept, "weight_decay": 0.0}],
        lr=ADAMW["lr"], betas=(ADAMW["beta1"], ADAMW["beta2"]), eps=ADAMW["eps"])
    losses, norms = [], []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_sum(logits_of(o, w, tokens), labels) / (labels != -100).sum()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(w.values(), ADAMW["clip"]).item())
        optimizer.step()
        losses.append(loss.item())
    return losses, norms, {name: value.detach() for name, value in w.items()}


def note(group, values):
    """Attributes a C reader takes easily: fixed strings, integers, doubles."""
    for key, value in values.items():
        value = int(value) if isinstance(value, bool) else value
        group.attrs[key] = np.bytes_(str(value)) if isinstance(value, str) else value


def store(group, tensors):
    for name, value in tensors.items():
        group.create_dataset(name, data=value.numpy())


def record(group, o, seed):
    generator = torch.Generator().manual_seed(seed)
    weights = make_weights(o, generator)
    shape = (BATCH, o["max_seq_length"])
    tokens = torch.randint(0, o["vocab_size"], shape, generator=generator)
    labels = torch.randint(0, o["vocab_size"], shape, generator=generator)
    labels[0, 1] = labels[2, -2:] = -100
    leaves = {name: value.clone().requires_grad_() for name, value in weights.items()}
    logits = logits_of(o, leaves, tokens)
    loss = loss_sum(logits, labels)
    loss.backward()
    losses, norms, final = train(o, weights, tokens, labels)
    note(group, o)
    store(group, {"tokens": tokens, "labels": labels, "logits": logits.detach(),
                  "loss_sum": loss.detach()})
    store(group.create_group("weights"), {k: v.float() for k, v in weights.items()})
    store(group.create_group("grads"), {k: v.grad for k, v in leaves.items()})
    if group.name[1:] in SMOOTHED:
        record_smoothed(group.create_group("smoothed"), weights, lambda w: logits_of(o, w, tokens), labels)
    adamw = group.create_group("adamw")
    note(adamw, ADAMW)
    adamw["losses"], adamw["grad_norms"] = np.array(losses), np.array(norms)
    store(adamw.create_group("weights"), final)


def main():
    torch.set_num_threads(1)
    with h5py.File(OUT, "w") as file:
        note(file, {"script": "scripts/golden/gpt.py", "torch": torch.__version__,
                    "numpy": np.__version__, "h5py": h5py.__version__,
                    "python": platform.python_version()})
        for seed, (name, options) in enumerate(VARIANTS.items()):
            record(file.create_group(name), {**BASE, **options}, seed)
    print(f"{OUT.name}: {OUT.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
