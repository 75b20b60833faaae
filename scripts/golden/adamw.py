#!/usr/bin/env python3
# What do ten steps of torch.optim.AdamW give? Records the fixture of tests/golden/adamw_test.cpp: two parameter groups
# (decayed and not), clipping by the global norm, cosine schedule with warm-up. Run: scripts/golden/adamw.py
import json
import pathlib

import torch

FIXTURE = pathlib.Path(__file__).parents[2] / "tests/golden/fixtures/adamw.json"
SHAPES = {"embed.weight": [7, 3], "norm.weight": [5], "mlp.weight": [5, 13], "mlp.bias": [13]}
STEPS, WARMUP, LR, FLOOR, CLIP, DECAY = 10, 3, 0.02, 0.1, 1.5, 0.1


def schedule(optimizer):
    """Warm-up from 1/WARMUP to 1, then cosine to FLOOR."""
    lr = torch.optim.lr_scheduler
    warm = lr.LinearLR(optimizer, start_factor=1 / WARMUP, end_factor=1, total_iters=WARMUP - 1)
    cosine = lr.CosineAnnealingLR(optimizer, T_max=STEPS - WARMUP, eta_min=FLOOR * LR)
    return warm, cosine


def main():
    torch.manual_seed(11)
    weights = {name: torch.randn(shape, dtype=torch.float64).requires_grad_() for name, shape in SHAPES.items()}
    decayed = [weight for name, weight in weights.items() if weight.dim() > 1]
    plain = [weight for name, weight in weights.items() if weight.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": DECAY}, {"params": plain, "weight_decay": 0.0}],
                                  lr=LR, betas=(0.9, 0.95), eps=1e-8)
    start = {name: weight.detach().flatten().tolist() for name, weight in weights.items()}
    warm, cosine = schedule(optimizer)
    steps = []
    for group in optimizer.param_groups:
        group["lr"] = LR / WARMUP
    for step in range(STEPS):
        for weight in weights.values():
            weight.grad = torch.randn_like(weight) * (0.05 if step % 3 == 0 else 1.0)
        grads = {name: weight.grad.flatten().tolist() for name, weight in weights.items()}
        norm = torch.nn.utils.clip_grad_norm_(weights.values(), CLIP)
        rate = optimizer.param_groups[0]["lr"]
        optimizer.step()
        if step + 1 != WARMUP:  # the last warm-up step and the first of the decay both have the peak rate
            (warm if step + 1 < WARMUP else cosine).step()
        steps.append({"lr": rate, "norm": norm.item(), "grads": grads,
                      "weights": {name: weight.detach().flatten().tolist() for name, weight in weights.items()}})
    config = {"lr": LR, "warmup_steps": WARMUP, "min_lr_ratio": FLOOR, "clip": CLIP, "weight_decay": DECAY,
              "betas": [0.9, 0.95], "eps": 1e-8}
    FIXTURE.parent.mkdir(parents=True, exist_ok=True)
    FIXTURE.write_text(json.dumps({"torch": torch.__version__, "config": config, "shapes": SHAPES, "start": start,
                                   "steps": steps}) + "\n")


if __name__ == "__main__":
    main()
