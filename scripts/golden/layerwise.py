# What do LAMB and LARS give? Both written from their papers, for scripts/golden/optimizers.py: one tensor after the
# other, whole tensors, fp64. You et al. 2020 (LAMB); You, Gitman and Ginsburg 2017 (LARS).
import torch


class Layerwise(torch.optim.Optimizer):
    """Rate r of each tensor; one-dimensional ones (biases, norms) have r = 1 unless adapt_all."""

    def __init__(self, groups, lr, trust_clip=None, adapt_all=False, **settings):
        self.trust_clip, self.adapt_all, self.settings, self.updates = trust_clip, adapt_all, settings, 0
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure=None):
        assert closure is None
        self.updates += 1
        for group in self.param_groups:
            for weight in group["params"]:
                self.update(weight, weight.grad, group["lr"], group["weight_decay"], self.state[weight])

    def adapts(self, weight):
        return self.adapt_all or weight.dim() > 1

    def clip(self, rate):
        return rate if self.trust_clip is None else min(rate, self.trust_clip)


class Lamb(Layerwise):
    def update(self, weight, grad, lr, decay, state):
        (beta1, beta2), kind = self.settings["betas"], self.settings["bias_correction"]
        first = state["first"] = beta1 * state.get("first", torch.zeros_like(weight)) + (1 - beta1) * grad
        second = state["second"] = beta2 * state.get("second", torch.zeros_like(weight)) + (1 - beta2) * grad * grad
        short1, short2 = 1 - beta1**self.updates, 1 - beta2**self.updates
        if kind == "moments":
            first, second = first / short1, second / short2
        if kind == "lr":
            lr = lr * short2**0.5 / short1
        direction = first / (second.sqrt() + self.settings["eps"]) + decay * weight
        length, step = weight.norm().item(), direction.norm().item()
        rate = self.clip(length / step if length > 0 and step > 0 else 1.0) if self.adapts(weight) else 1.0
        weight -= lr * rate * direction


class Lars(Layerwise):
    def update(self, weight, grad, lr, decay, state):
        rate, length, slope = 1.0, weight.norm().item(), grad.norm().item()
        if not self.adapts(weight):
            decay = 0.0
        elif length > 0 and slope > 0:
            rate = self.clip(self.settings["trust_coefficient"] * length / (slope + decay * length + self.settings["eps"]))
        into, out = {"scaled": (lr * rate, 1.0), "unscaled": (1.0, lr * rate), "larc": (rate, lr)}[self.settings["momentum_mode"]]
        enters = into * (grad + decay * weight)
        momentum = self.settings["momentum"]
        buffer = state["buffer"] = momentum * state["buffer"] + enters if "buffer" in state else enters
        weight -= out * (enters + momentum * buffer if self.settings.get("nesterov") else buffer)
