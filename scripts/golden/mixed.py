#!/usr/bin/env python3
# How does PyTorch's loss fall when the weights are bf16 or fp16 with fp32 masters? Records mixed.h5.
"""Records loss curves of a tiny GPT in mixed precision: tests/golden/fixtures/mixed.h5.

Masters, AdamW states and clipping are fp32; weights, activations and gradients are bf16 or fp16, the loss is taken in
fp32; fp16 gradients are those of the loss times 1024. The model is that of gpt.py, the fp64 curve of the same steps is
recorded too.

    python scripts/golden/mixed.py            # needs torch, numpy, h5py; rewrites the fixture
"""

import h5py
import numpy as np
import torch

import gpt

OUT = gpt.OUT.with_name("mixed.h5")
OPTIONS = {**gpt.BASE, "hidden_size": 32, "ffn_hidden_size": 64, "max_seq_length": 16}
STEPS = 40
ADAMW = {**gpt.ADAMW, "lr": 1e-3}
SCALE = {torch.float64: 1.0, torch.bfloat16: 1.0, torch.float16: 1024.0}


def train(weights, tokens, labels, dtype):
    """Losses of STEPS steps; dtype is that of weights, activations and gradients."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    masters = {name: value.detach().clone().to(wide).requires_grad_() for name, value in weights.items()}
    kept = [v for k, v in masters.items() if k.endswith(".bias") or "norm" in k]
    decayed = [v for k, v in masters.items() if not (k.endswith(".bias") or "norm" in k)]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": ADAMW["weight_decay"]},
         {"params": kept, "weight_decay": 0.0}],
        lr=ADAMW["lr"], betas=(ADAMW["beta1"], ADAMW["beta2"]), eps=ADAMW["eps"])
    losses = []
    for _ in range(STEPS):
        working = {k: v.detach().to(dtype).requires_grad_() for k, v in masters.items()}
        logits = gpt.logits_of(OPTIONS, working, tokens)
        loss = gpt.loss_sum(logits.to(wide), labels) / (labels != -100).sum()
        (loss * SCALE[dtype]).backward()
        for name, master in masters.items():
            master.grad = working[name].grad.to(wide) / SCALE[dtype]
        torch.nn.utils.clip_grad_norm_(masters.values(), ADAMW["clip"])
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(11)
    weights = gpt.make_weights(OPTIONS, generator)
    shape = (4, OPTIONS["max_seq_length"])
    tokens = torch.randint(0, OPTIONS["vocab_size"], shape, generator=generator)
    labels = torch.randint(0, OPTIONS["vocab_size"], shape, generator=generator)
    labels[0, 1] = labels[2, -2:] = -100
    with h5py.File(OUT, "w") as file:
        gpt.note(file, {"script": "scripts/golden/mixed.py", "torch": torch.__version__})
        group = file.create_group("gpt")
        gpt.note(group, OPTIONS)
        gpt.store(group, {"tokens": tokens, "labels": labels})
        gpt.store(group.create_group("weights"), {k: v.float() for k, v in weights.items()})
        gpt.note(group.create_group("adamw"), ADAMW)
        for name, dtype in (("fp64", torch.float64), ("bf16", torch.bfloat16), ("fp16", torch.float16)):
            group[f"adamw/{name}"] = np.array(train(weights, tokens, labels, dtype))
            print(name, group[f"adamw/{name}"][::10])


if __name__ == "__main__":
    main()
