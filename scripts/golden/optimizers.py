#!/usr/bin/env python3
# What do twelve steps of PyTorch's optimizers, and of those in layerwise.py and lion_adafactor.py, give? Records the fixture of
# tests/golden/optimizers_test.cpp: two parameter groups of different rate, decayed and undecayed tensors, clipping by the
# global norm, cosine schedule with warm-up. Run: scripts/golden/optimizers.py
import json
import pathlib

import torch
from layerwise import Lamb, Lars
from lion_adafactor import Adafactor, Lion, check_against_torch

FIXTURE = pathlib.Path(__file__).parents[2] / "tests/golden/fixtures/optimizers.json"
SHAPES = {"embed.weight": [7, 3], "norm.weight": [5], "mlp.weight": [5, 13], "mlp.bias": [13]}
STEPS, WARMUP, LR, FLOOR, CLIP, DECAY = 12, 3, 0.02, 0.1, 1.5, 0.1
GROUP = {"match": "mlp.*", "lr_scale": 0.5, "weight_decay": 0.3}
LAMB = {"betas": [0.9, 0.98], "eps": 1e-6}
LARS = {"momentum": 0.9, "trust_coefficient": 0.1, "eps": 1e-9}
ADAM = {"betas": [0.9, 0.95], "eps": 1e-8}
CASES = {
    "adamw": (torch.optim.AdamW, {"type": "adamw", **ADAM}),
    "adam": (torch.optim.Adam, {"type": "adam", **ADAM}),
    "sgd with momentum": (torch.optim.SGD, {"type": "sgd", "momentum": 0.9, "nesterov": False}),
    "sgd with nesterov": (torch.optim.SGD, {"type": "sgd", "momentum": 0.8, "nesterov": True}),
    "sgd without momentum": (torch.optim.SGD, {"type": "sgd", "momentum": 0.0, "nesterov": False}),
    "lamb": (Lamb, {"type": "lamb", **LAMB, "bias_correction": "moments", "trust_clip": 10.0}),
    "lamb scaling its rate": (Lamb, {"type": "lamb", **LAMB, "bias_correction": "lr"}),
    "lamb without correction": (Lamb, {"type": "lamb", **LAMB, "bias_correction": "none", "trust_clip": 0.4}),
    "lamb adapting all": (Lamb, {"type": "lamb", **LAMB, "bias_correction": "moments", "adapt_all": True}),
    "lars": (Lars, {"type": "lars", **LARS, "momentum_mode": "scaled"}),
    "lars unscaled": (Lars, {"type": "lars", **LARS, "momentum_mode": "unscaled", "trust_clip": 0.04}),
    "larc with nesterov": (Lars, {"type": "lars", **LARS, "momentum_mode": "larc", "nesterov": True}),
    "lars without momentum": (Lars, {"type": "lars", **LARS, "momentum": 0.0, "momentum_mode": "scaled", "adapt_all": True}),
    "lion": (Lion, {"type": "lion", "betas": [0.9, 0.99]}),
    "lion with other betas": (Lion, {"type": "lion", "betas": [0.95, 0.6]}),
    "adafactor": (Adafactor, {"type": "adafactor", "scale_parameter": True, "relative_step": False}),
    "adafactor with a rate of its own": (Adafactor, {"type": "adafactor", "scale_parameter": False, "relative_step": False}),
}


def rates():
    """Warm-up from 1/WARMUP to 1, then cosine to FLOOR, by PyTorch's schedulers."""
    probe = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=LR)
    lr = torch.optim.lr_scheduler
    warm = lr.LinearLR(probe, start_factor=1 / WARMUP, end_factor=1, total_iters=WARMUP - 1)
    cosine = lr.CosineAnnealingLR(probe, T_max=STEPS - WARMUP, eta_min=FLOOR * LR)
    probe.param_groups[0]["lr"] = LR / WARMUP
    recorded = []
    for step in range(STEPS):
        recorded.append(probe.param_groups[0]["lr"])
        probe.step()
        if step + 1 != WARMUP:  # the last warm-up step and the first of the decay both have the peak rate
            (warm if step + 1 < WARMUP else cosine).step()
    return recorded


def settings(name, weight):
    """Rate factor and weight decay of a parameter: groups, and no decay for one-dimensional tensors."""
    scaled = name.startswith("mlp.")
    decay = GROUP["weight_decay"] if scaled else DECAY
    return (GROUP["lr_scale"] if scaled else 1.0), (decay if weight.dim() > 1 else 0.0)


def run(make, options, start, grads, schedule):
    """Weights after every step, and the norms before clipping."""
    weights = {name: value.clone().requires_grad_() for name, value in start.items()}
    scales = [settings(name, weight)[0] for name, weight in weights.items()]
    optimizer = make([{"params": [weight], "weight_decay": settings(name, weight)[1]} for name, weight in weights.items()],
                     lr=LR, **{key: value for key, value in options.items() if key != "type"})
    steps = []
    for rate, step_grads in zip(schedule, grads):
        for name, weight in weights.items():
            weight.grad = step_grads[name].clone()
        norm = torch.nn.utils.clip_grad_norm_(weights.values(), CLIP)
        for group, scale in zip(optimizer.param_groups, scales):
            group["lr"] = rate * scale
        optimizer.step()
        steps.append({"norm": norm.item(), "weights": flat(weights)})
    return steps


def flat(tensors):
    return {name: value.detach().flatten().tolist() for name, value in tensors.items()}


def main():
    torch.manual_seed(11)
    start = {name: torch.randn(shape, dtype=torch.float64) for name, shape in SHAPES.items()}
    grads = [{name: torch.randn_like(value) * (0.05 if step % 3 == 0 else 1.0) for name, value in start.items()}
             for step in range(STEPS)]
    check_against_torch(start, grads)
    schedule = rates()
    config = {"lr": LR, "warmup_steps": WARMUP, "min_lr_ratio": FLOOR, "clip": CLIP, "weight_decay": DECAY, "group": GROUP}
    cases = [{"name": name, "optimizer": options, "steps": run(make, options, start, grads, schedule)}
             for name, (make, options) in CASES.items()]
    FIXTURE.parent.mkdir(parents=True, exist_ok=True)
    FIXTURE.write_text(json.dumps({"torch": torch.__version__, "config": config, "shapes": SHAPES, "start": flat(start),
                                   "grads": [flat(step) for step in grads], "lr": schedule, "cases": cases}) + "\n")


if __name__ == "__main__":
    main()
