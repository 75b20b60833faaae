#!/usr/bin/env python3
# What are the learning rates of every step? Records the fixture of tests/golden/schedules_test.cpp from PyTorch's
# schedulers where it has one, else from a closed form written here; past the end of the run too where PyTorch goes on.
# Run: scripts/golden/schedules.py
import json
import math
import pathlib

import torch
from torch.optim import lr_scheduler

FIXTURE = pathlib.Path(__file__).parents[2] / "tests/golden/fixtures/schedules.json"
LR = 0.3
BEYOND = 40  # steps recorded past the end


def rates_of(make, steps):
    """Rates (and momenta) of `steps` updates under the scheduler that make(optimizer) returns."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=LR, momentum=0.9)
    scheduler = make(optimizer)
    rates, momenta = [], []
    for step in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        momenta.append(optimizer.param_groups[0]["momentum"])
        optimizer.step()
        if step + 1 < steps:
            scheduler.step()
    return rates, momenta


def warmup(steps):
    """Our warm-up: update k of W has (k + 1) / W of the rate."""
    return [LR * (k + 1) / steps for k in range(steps)]


def after_warmup(config, total, make, beyond):
    """PyTorch's scheduler, started when the warm-up ends."""
    first = config.get("warmup_steps", 0)
    return warmup(first) + rates_of(make, total - first + beyond)[0]


def from_the_start(config, make, total):
    """PyTorch's scheduler over absolute steps; the warm-up replaces its first rates, which are all the peak."""
    first = config.get("warmup_steps", 0)
    rates = rates_of(make, total + BEYOND)[0]
    assert all(rate == LR for rate in rates[:first])
    return warmup(first) + rates[first:]


def closed_form(config, total, factor):
    """factor(k) gives the share of the peak after the warm-up; the floor lifts it where lifts is set."""
    first = config.get("warmup_steps", 0)
    return warmup(first) + [LR * factor(k) for k in range(first, total + BEYOND)]


def lifted(config, share):
    floor = config.get("min_lr_ratio", 0)
    return floor + (1 - floor) * share


def decay_share(config, total, k, start):
    """Share q in [0, 1] of a decay that starts at `start`."""
    end = config.get("warmup_steps", 0) + config["decay_steps"] if "decay_steps" in config else total
    return min(1, max(0, (k - start) / (end - start)))


def record_linear(config, total):
    span = config.get("decay_steps", total - config.get("warmup_steps", 0))
    make = lambda o: lr_scheduler.LinearLR(o, 1, config.get("min_lr_ratio", 0), span)  # noqa: E731
    return after_warmup(config, total, make, BEYOND)


def record_cosine(config, total):
    span = config.get("decay_steps", total - config.get("warmup_steps", 0))
    floor = config.get("min_lr_ratio", 0) * LR
    make = lambda o: lr_scheduler.CosineAnnealingLR(o, span, floor)  # noqa: E731
    return after_warmup(config, total, make, 1 if span == total - config.get("warmup_steps", 0) else 0)


def record_polynomial(config, total):
    span = total - config.get("warmup_steps", 0)
    make = lambda o: lr_scheduler.PolynomialLR(o, span, config["power"])  # noqa: E731
    return after_warmup(config, total, make, BEYOND)


def record_step(config, total):
    return from_the_start(config, lambda o: lr_scheduler.StepLR(o, config["step_size"], config["gamma"]), total)


def record_multistep(config, total):
    return from_the_start(config, lambda o: lr_scheduler.MultiStepLR(o, config["milestones"], config["gamma"]), total)


def record_inverse_sqrt(config, total):
    floor = config.get("min_lr_ratio", 0)
    return closed_form(config, total, lambda k: max(floor, (config["warmup_steps"] / k) ** 0.5))


def record_wsd(config, total):
    shapes = {"linear": lambda q: 1 - q, "cosine": lambda q: math.cos(math.pi * q / 2) ** 2,
              "sqrt": lambda q: 1 - q ** 0.5, "exponential": lambda q: 2 * 2 ** -q - 1}
    end = config.get("warmup_steps", 0) + config["decay_steps"] if "decay_steps" in config else total
    start = config.get("stable_ratio", 0.8) * end
    shape = shapes[config.get("decay_shape", "sqrt")]
    return closed_form(config, total, lambda k: lifted(config, shape(decay_share(config, total, k, start))))


def record_flat_cosine(config, total):
    first = config.get("warmup_steps", 0)
    start = first + config.get("stable_ratio", 0.72) * (total - first)
    cosine = lambda q: math.cos(math.pi * q / 2) ** 2  # noqa: E731
    return closed_form(config, total, lambda k: lifted(config, cosine(decay_share(config, total, k, start))))


def record_constant(config, total):
    return closed_form(config, total, lambda k: 1)


CASES = [
    ({"type": "constant"}, 5), ({"type": "constant", "warmup_steps": 5}, 20),
    ({"type": "linear"}, 50), ({"type": "linear", "warmup_steps": 7, "min_lr_ratio": 0.1}, 60),
    ({"type": "linear", "warmup_steps": 3, "decay_steps": 20}, 60), ({"type": "linear", "decay_steps": 200}, 60),
    ({"type": "cosine"}, 50), ({"type": "cosine", "warmup_steps": 7, "min_lr_ratio": 0.1}, 64),
    ({"type": "cosine", "decay_steps": 200, "warmup_steps": 1}, 64),
    ({"type": "polynomial", "power": 2}, 50), ({"type": "polynomial", "power": 0.5, "warmup_steps": 9}, 50),
    ({"type": "step", "step_size": 7, "gamma": 0.5}, 50),
    ({"type": "step", "step_size": 10, "gamma": 0.1, "warmup_steps": 9}, 50),
    ({"type": "multistep", "milestones": [10, 30, 31], "gamma": 0.3}, 50),
    ({"type": "multistep", "milestones": [20, 60], "gamma": 0.1, "warmup_steps": 12}, 50),
    ({"type": "inverse_sqrt", "warmup_steps": 1}, 50),
    ({"type": "inverse_sqrt", "warmup_steps": 12, "min_lr_ratio": 0.5}, 50),
    ({"type": "wsd"}, 50), ({"type": "wsd", "warmup_steps": 10, "min_lr_ratio": 0.1}, 100),
    ({"type": "wsd", "decay_shape": "linear", "stable_ratio": 0.31, "warmup_steps": 5}, 57),
    ({"type": "wsd", "decay_shape": "cosine", "stable_ratio": 0.5, "decay_steps": 30, "warmup_steps": 5}, 57),
    ({"type": "wsd", "decay_shape": "exponential", "stable_ratio": 0, "min_lr_ratio": 0.2}, 57),
    ({"type": "flat_cosine"}, 50), ({"type": "flat_cosine", "warmup_steps": 6, "min_lr_ratio": 0.05}, 57),
    ({"type": "flat_cosine", "stable_ratio": 0.4, "warmup_steps": 6}, 57),
]


def main():
    cases = [{"scheduler": config, "steps": total, "lr": globals()["record_" + config["type"]](config, total)}
             for config, total in CASES]
    for total in (2, 3, 10, 57, 100):
        rates, momenta = rates_of(lambda o: lr_scheduler.OneCycleLR(o, LR, total_steps=total), total)
        cases.append({"scheduler": {"type": "one_cycle"}, "steps": total, "lr": rates, "momentum": momenta})
    FIXTURE.write_text(json.dumps({"torch": torch.__version__, "lr": LR, "cases": cases}) + "\n")


if __name__ == "__main__":
    main()
