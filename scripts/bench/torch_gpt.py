# What do we compare with? An eager PyTorch GPT of the shape of configs/gpt-kjv-cpu.yaml, tuned as its users would tune it.
"""A worker for cpu_vs_torch.py. It reads commands from standard input, one a line, and answers each with one line of JSON:
`tune` tries the variants and keeps the fastest, `run N` trains N steps and gives their seconds and losses, `quit` ends it.
RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in the environment make it one rank of a DDP (gloo) group.
"""

import argparse
import itertools
import json
import math
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

VOCABULARY, LAYERS, HIDDEN, HEADS, SEQUENCE, GLOBAL_BATCH = 256, 4, 128, 4, 128, 32
PEAK_LR, WARMUP_STEPS, WEIGHT_DECAY, BETAS, CLIP = 4e-3, 50, 0.1, (0.9, 0.95), 1.0
TUNE_STEPS = 12


class Layer(nn.Module):
    """Pre-norm transformer layer of GPT-2."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x):
        batch, sequence, _ = x.shape
        heads = self.qkv(self.norm1(x)).view(batch, sequence, 3, HEADS, HIDDEN // HEADS).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(*heads.unbind(0), is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, sequence, HIDDEN))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """GPT-2 with learned positions and the embedding matrix as head."""

    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, HIDDEN), nn.Embedding(SEQUENCE, HIDDEN)
        self.layers, self.norm = nn.ModuleList(Layer() for _ in range(LAYERS)), nn.LayerNorm(HIDDEN)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                scale = 1 / math.sqrt(2 * LAYERS) if name.endswith(("out.weight", "down.weight")) else 1
                nn.init.normal_(parameter, std=0.02 * scale)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens, labels):
        x = self.tokens(tokens) + self.positions.weight[:tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, VOCABULARY), labels.reshape(-1))


def batches(path, rank, world, seed):
    """Endless (tokens, labels) of this rank: a permutation of the text's windows for each epoch."""
    with open(path, "rb") as file:
        text = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).long()
    count = (text.numel() - 1) // SEQUENCE
    tokens = text[:count * SEQUENCE].view(count, SEQUENCE)
    labels = text[1:count * SEQUENCE + 1].view(count, SEQUENCE)
    local = GLOBAL_BATCH // world
    generator = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(count, generator=generator)
        for begin in range(0, count - GLOBAL_BATCH + 1, GLOBAL_BATCH):
            chosen = order[begin + rank * local:begin + (rank + 1) * local]
            yield tokens[chosen], labels[chosen]


class Trainer:
    """One model with one choice of the variants."""

    def __init__(self, data, optimizer, bucket_view):
        torch.manual_seed(1)
        self.data = data
        self.model = Gpt()
        decay = [p for p in self.model.parameters() if p.dim() == 2]
        rest = [p for p in self.model.parameters() if p.dim() != 2]
        groups = [{"params": decay, "weight_decay": WEIGHT_DECAY}, {"params": rest, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=PEAK_LR, betas=BETAS, **{optimizer: True})
        self.parameters = decay + rest
        self.steps = 0
        if dist.is_initialized():
            self.model = DistributedDataParallel(self.model, gradient_as_bucket_view=bucket_view, static_graph=bucket_view)

    def step(self):
        """One optimizer step; returns the loss of this rank's samples."""
        self.steps += 1
        for group in self.optimizer.param_groups:
            group["lr"] = PEAK_LR * min(1.0, self.steps / WARMUP_STEPS)
        tokens, labels = next(self.data)
        loss = self.model(tokens, labels)
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, CLIP)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()

    def run(self, count):
        """(seconds, loss) of each of `count` steps."""
        seconds, losses = [], []
        for _ in range(count):
            begin = time.perf_counter()
            losses.append(self.step())
            seconds.append(time.perf_counter() - begin)
        return seconds, losses


def tune(path, rank, world):
    """(trainer, name, {variant: median seconds}); every rank takes rank 0's choice."""
    medians = {}
    bucket_views = (False, True) if world > 1 else (False,)
    variants = {f"{optimizer} AdamW" + (", gradient_as_bucket_view + static_graph" if view else ""): (optimizer, view)
                for optimizer, view in itertools.product(("fused", "foreach"), bucket_views)}
    for name, variant in variants.items():
        trainer = Trainer(batches(path, rank, world, 1), *variant)
        medians[name] = statistics.median(trainer.run(TUNE_STEPS)[0][2:])
    best = [min(medians, key=medians.get)]
    if world > 1:
        dist.broadcast_object_list(best, 0)
    return Trainer(batches(path, rank, world, 1), *variants[best[0]]), best[0], medians


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--threads", type=int, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.set_num_interop_threads(1)
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world > 1:
        dist.init_process_group("gloo")
    trainer = None
    for line in sys.stdin:
        command = line.split()
        if command[0] == "tune":
            trainer, name, medians = tune(arguments.data, rank, world)
            parameters = sum(p.numel() for p in trainer.parameters)
            answer = {"variant": name, "medians": medians, "parameters": parameters, "torch": torch.__version__}
        elif command[0] == "run":
            seconds, losses = trainer.run(int(command[1]))
            answer = {"seconds": seconds, "losses": losses}
        else:
            break
        print(json.dumps(answer), flush=True)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
