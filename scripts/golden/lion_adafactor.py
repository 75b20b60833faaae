# What do Lion and Adafactor give? Both written from their papers, for scripts/golden/optimizers.py: whole tensors, fp64.
# Chen et al. 2023 (Lion); Shazeer and Stern 2018 (Adafactor, with the decoupled decay of the transformers library).
import torch


class Lion(torch.optim.Optimizer):
    def __init__(self, groups, lr, betas):
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0, "betas": betas})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            (beta1, beta2), lr = group["betas"], group["lr"]
            for weight in group["params"]:
                state = self.state[weight]
                mean = state.get("mean", torch.zeros_like(weight))
                direction = torch.sign(mean.lerp(weight.grad, 1 - beta1))
                state["mean"] = mean.lerp(weight.grad, 1 - beta2)
                weight -= lr * (direction + group["weight_decay"] * weight)


class Adafactor(torch.optim.Optimizer):
    def __init__(self, groups, lr, scale_parameter=True, relative_step=False):
        self.scale_parameter, self.relative_step, self.updates = scale_parameter, relative_step, 0
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure=None):
        self.updates += 1
        for group in self.param_groups:
            for weight in group["params"]:
                self.update(weight, weight.grad, group, self.state[weight])

    def update(self, weight, grad, group, state):
        keep = 1 - self.updates**-0.8
        squares = grad * grad + 1e-30
        if weight.dim() > 1:
            rows = state["rows"] = keep * state.get("rows", 0) + (1 - keep) * squares.mean(-1)
            columns = state["columns"] = keep * state.get("columns", 0) + (1 - keep) * squares.mean(-2)
            second = torch.einsum("...r,...c->...rc", rows / rows.mean(-1, keepdim=True), columns)
        else:
            second = state["second"] = keep * state.get("second", 0) + (1 - keep) * squares
        step = grad / second.sqrt()
        step = step / max(1.0, step.square().mean().sqrt().item())
        rate = group["lr"]
        if self.relative_step:
            rate = min(rate, self.updates**-0.5)
        if self.scale_parameter:
            rate *= max(1e-3, weight.square().mean().sqrt().item())
        weight -= rate * (step + group["weight_decay"] * weight)


def check_against_torch(start, grads, lr=0.4):
    """Adafactor above is torch.optim.Adafactor where that can say the same: relative steps, no decay."""
    ours, theirs = ({name: value.clone().requires_grad_() for name, value in start.items()} for _ in range(2))
    mine = Adafactor(list(ours.values()), lr, relative_step=True)
    reference = torch.optim.Adafactor(list(theirs.values()), lr=lr, weight_decay=0.0)
    for step_grads in grads:
        for name, grad in step_grads.items():
            ours[name].grad, theirs[name].grad = grad.clone(), grad.clone()
        mine.step()
        reference.step()
        for name, value in ours.items():
            torch.testing.assert_close(value, theirs[name], rtol=1e-9, atol=1e-12)
