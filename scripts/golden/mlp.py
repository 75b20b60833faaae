#!/usr/bin/env python3
# What does PyTorch compute for tiny multi-layer perceptrons? Records tests/golden/fixtures/mlp.h5.
"""For each variant: sizes (attributes), weights (fp32-representable), features, labels (-100: no loss), logits, the
summed loss, the number of rows classified right and all gradients, in fp64 on the CPU, loss and gradients once more with
label smoothing; and ten steps each of AdamW and
of SGD with Nesterov momentum (loss and gradient norm of each step, final weights).

    python scripts/golden/mlp.py            # needs torch, numpy, h5py; rewrites the fixture
"""

import platform

import h5py
import numpy as np
import torch
import torch.nn.functional as F

from gpt import OUT as GPT_OUT, note, record_smoothed, store

OUT = GPT_OUT.with_name("mlp.h5")
BATCH = 9
STEPS = 10
CLIP = 1.0
OPTIMIZERS = {
    "adamw": {"lr": 1e-2, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "clip": CLIP},
    "sgd": {"lr": 5e-2, "momentum": 0.9, "nesterov": 1, "weight_decay": 0.01, "clip": CLIP},
}
VARIANTS = {"one": (4, [6], 3), "two": (5, [8, 7], 4)}


def logits_of(weights, depth, x):
    for i in range(depth):
        x = torch.relu(F.linear(x, weights[f"layers.{i}.weight"], weights[f"layers.{i}.bias"]))
    return F.linear(x, weights["head.weight"], weights["head.bias"])


def make_optimizer(name, o, weights):
    """Biases are not decayed."""
    groups = [{"params": [w for key, w in weights.items() if key.endswith(".weight")], "weight_decay": o["weight_decay"]},
              {"params": [w for key, w in weights.items() if key.endswith(".bias")], "weight_decay": 0.0}]
    if name == "sgd":
        return torch.optim.SGD(groups, lr=o["lr"], momentum=o["momentum"], nesterov=bool(o["nesterov"]))
    return torch.optim.AdamW(groups, lr=o["lr"], betas=(o["beta1"], o["beta2"]), eps=o["eps"])


def train(group, name, weights, features, labels):
    """Ten steps on the mean loss with clipping: loss and gradient norm of each, final weights."""
    options = OPTIMIZERS[name]
    w = {key: value.double().clone().requires_grad_() for key, value in weights.items()}
    optimizer = make_optimizer(name, options, w)
    losses, norms = [], []
    for _ in range(STEPS):
        optimizer.zero_grad()
        logits = logits_of(w, len(w) // 2 - 1, features.double())
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(w.values(), CLIP).item())
        optimizer.step()
        losses.append(loss.item())
    note(group, options)
    group["losses"], group["grad_norms"] = np.array(losses), np.array(norms)
    store(group.create_group("weights"), {key: value.detach() for key, value in w.items()})


def record(group, sizes, seed):
    inputs, layers, classes = sizes
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for i, (into, out) in enumerate(zip([inputs, *layers], [*layers, classes])):
        name = f"layers.{i}" if i < len(layers) else "head"
        weights[f"{name}.weight"] = torch.randn((out, into), generator=generator)
        weights[f"{name}.bias"] = torch.randn((out,), generator=generator)
    features = torch.randn((BATCH, 1, inputs), generator=generator)
    labels = torch.randint(0, classes, (BATCH, 1), generator=generator)
    labels[4] = -100
    leaves = {name: value.double().requires_grad_() for name, value in weights.items()}
    logits = logits_of(leaves, len(layers), features.double())
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
    loss.backward()
    note(group, {"in_features": inputs, "out_features": classes,
                 "num_correct": int((logits.argmax(-1) == labels).sum())})
    store(group, {"layers": torch.tensor(layers), "features": features, "labels": labels,
                  "logits": logits.detach(), "loss_sum": loss.detach()})
    store(group.create_group("weights"), weights)
    store(group.create_group("grads"), {name: value.grad for name, value in leaves.items()})
    record_smoothed(group.create_group("smoothed"), {name: value.double() for name, value in weights.items()},
                    lambda w: logits_of(w, len(layers), features.double()), labels)
    for name in OPTIMIZERS:
        train(group.create_group(name), name, weights, features, labels)


def main():
    torch.set_num_threads(1)
    with h5py.File(OUT, "w") as file:
        note(file, {"script": "scripts/golden/mlp.py", "torch": torch.__version__, "numpy": np.__version__,
                    "h5py": h5py.__version__, "python": platform.python_version()})
        for seed, (name, sizes) in enumerate(VARIANTS.items()):
            record(file.create_group(name), sizes, seed)


if __name__ == "__main__":
    main()
