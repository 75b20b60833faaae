# What do the GPU benchmarks compare with? A PyTorch GPT-2, tuned as its users would tune it, and the worker that trains it.
"""A worker of gpu_vs_torch.py; needs torch only. It reads commands from standard input, one a line, and answers each with one
line of JSON: `about` tells what it trains, `run WARMUP STEPS WINDOW` trains and tells the seconds a step took in each window,
`quit` ends it. Between two runs it keeps its weights and optimizer states in host memory, so that the GPU belongs to others.
RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in the environment make it one rank of a group, as torchrun does.

What it does for speed: bf16 autocast with fp32 weights (FSDP2: its own mixed precision), PyTorch's choice of fused attention,
fused AdamW, TensorFloat-32 for what is left of fp32, a vocabulary padded to a multiple of 64, gradients set to none, no
synchronisation inside a window, gradients that are views of DDP's buckets.
"""

import argparse
import contextlib
import json
import math
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

WEIGHT_DECAY, BETAS, CLIP, NORM_EPS, INIT_STD = 0.1, (0.9, 0.95), 1.0, 1e-5, 0.02
LEARNING_RATE = 1e-4
PEERS = ("eager", "compile", "ddp-eager", "ddp", "fsdp2")


class Layer(nn.Module):
    """Pre-norm transformer layer of GPT-2."""

    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden, NORM_EPS), nn.LayerNorm(hidden, NORM_EPS)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        batch, sequence, hidden = x.shape
        q, k, v = (part.view(batch, sequence, self.heads, hidden // self.heads).transpose(1, 2)
                   for part in self.qkv(self.norm1(x)).split(hidden, dim=2))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, sequence, hidden))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


def token_loss(x, weight, labels):
    """Mean cross-entropy of the head's logits."""
    logits = F.linear(x, weight)
    return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), labels.reshape(-1))


class Gpt(nn.Module):
    """GPT-2 with learned positions and the embedding matrix as head."""

    def __init__(self, layers, hidden, heads, rows, sequence):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(rows, hidden), nn.Embedding(sequence, hidden)
        self.layers, self.norm = nn.ModuleList(Layer(hidden, heads) for _ in range(layers)), nn.LayerNorm(hidden, NORM_EPS)
        self.loss = token_loss
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                scale = 1 / math.sqrt(2 * layers) if name.endswith(("out.weight", "down.weight")) else 1
                nn.init.normal_(parameter, std=INIT_STD * scale)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens, labels):
        x = self.tokens(tokens) + self.positions.weight[:tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.loss(self.norm(x), self.tokens.weight, labels)


def make_optimizer(model, rate):
    """Fused AdamW that decays matrices only, as ours."""
    decay = [p for p in model.parameters() if p.dim() == 2]
    rest = [p for p in model.parameters() if p.dim() != 2]
    groups = [{"params": decay, "weight_decay": WEIGHT_DECAY}, {"params": rest, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=BETAS, eps=1e-8, fused=True)


class Parked:
    """Storages that can leave the device and come back; tensors on them keep their identity."""

    def __init__(self):
        self.copies = []

    def park(self, tensors):
        storages = {}
        for tensor in tensors:
            local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
            storage = local.untyped_storage()
            storages[storage.data_ptr()] = (storage, local.device)
        for storage, device in storages.values():
            size = storage.nbytes()
            self.copies.append((storage, size, device, self.bytes_of(storage, device).cpu().clone()))
            storage.resize_(0)

    def unpark(self):
        for storage, size, device, copy in self.copies:
            storage.resize_(size)
            self.bytes_of(storage, device).copy_(copy)
        self.copies = []

    @staticmethod
    def bytes_of(storage, device):
        return torch.empty(0, dtype=torch.uint8, device=device).set_(storage)


class Trainer:
    """One model, trained in one way."""

    def __init__(self, options):
        self.options = options
        self.device = torch.device("cpu" if options.device == "cpu" else f"cuda:{os.environ.get('LOCAL_RANK', 0)}")
        torch.manual_seed(1)
        with self.device:
            model = Gpt(options.layers, options.hidden, options.heads, options.rows, options.sequence)
        self.num_parameters = sum(p.numel() for p in model.parameters())
        self.model = self.prepared(model)
        self.parameters = list(model.parameters())
        self.optimizer = make_optimizer(model, LEARNING_RATE)
        torch.manual_seed(2 + int(os.environ.get("RANK", 0)))  # of the tokens: each rank has its own
        self.parked = Parked()
        self.park()

    def prepared(self, model):
        """The model as the peer runs it."""
        peer, mode = self.options.peer, self.options.compile_mode
        if peer == "eager":
            return model
        if peer == "compile":
            return torch.compile(model, mode=mode)
        if peer == "fsdp2":
            from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
            policy = (MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
                      if self.options.precision == "bf16" else MixedPrecisionPolicy())
            for layer in model.layers:  # before sharding and layer by layer, as torchtitan does
                layer.compile(mode=mode)
                fully_shard(layer, mp_policy=policy)
            model.loss = torch.compile(token_loss, mode=mode)
            return fully_shard(model, mp_policy=policy)
        devices = [self.device.index] if self.device.type == "cuda" else None
        model = nn.parallel.DistributedDataParallel(model, device_ids=devices, gradient_as_bucket_view=True)
        return torch.compile(model, mode=mode) if peer == "ddp" else model

    def autocast(self):
        if self.options.precision == "bf16" and self.options.peer != "fsdp2":
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return contextlib.nullcontext()

    def attention(self):
        """PyTorch's own choice of the kernel, or cuDNN's."""
        if self.options.attention == "cudnn":
            from torch.nn.attention import SDPBackend, sdpa_kernel
            return sdpa_kernel(SDPBackend.CUDNN_ATTENTION)
        return contextlib.nullcontext()

    def step(self):
        """One optimizer step on fresh random tokens; returns the loss, still on the device."""
        shape = (2, self.options.batch, self.options.sequence)
        tokens, labels = torch.randint(self.options.vocabulary, shape, device=self.device).unbind(0)
        with self.autocast(), self.attention():
            loss = self.model(tokens, labels)
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, CLIP)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def wait(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def run(self, warmup, steps, window):
        """Seconds a step took in each window of `steps`, the loss at the end of each, and the most bytes of tensors."""
        self.parked.unpark()
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        begin = time.perf_counter()
        for _ in range(warmup):
            self.step()
        self.wait()
        answer = {"warmup_seconds": time.perf_counter() - begin, "seconds": [], "losses": [], "peak": 0}
        for _ in range(steps // window):
            begin = time.perf_counter()
            for _ in range(window):
                loss = self.step()
            self.wait()
            answer["seconds"].append((time.perf_counter() - begin) / window)
            answer["losses"].append(loss.item())
        if self.device.type == "cuda":
            answer["peak"] = torch.cuda.max_memory_allocated(self.device)
        self.park()
        return answer

    def park(self):
        states = [value for state in self.optimizer.state.values() for value in state.values() if torch.is_tensor(value)]
        self.parked.park(self.parameters + states)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def about(self):
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "cpu"
        return {"parameters": self.num_parameters, "torch": torch.__version__, "device": name}


def serve(trainer):
    """Answers commands until `quit` or the end of the input."""
    for line in sys.stdin:
        name, *numbers = line.split()
        if name == "quit":
            return
        try:
            answer = trainer.about() if name == "about" else trainer.run(*map(int, numbers))
        except torch.OutOfMemoryError as error:
            answer = {"error": f"out of memory: {str(error).splitlines()[0]}"}
        print(json.dumps(answer), flush=True)
        if "error" in answer:
            return


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("layers", "hidden", "heads", "vocabulary", "rows", "sequence", "batch"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--peer", choices=PEERS, required=True)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--precision", choices=("bf16", "fp32"), default="bf16")
    parser.add_argument("--attention", choices=("default", "cudnn"), default="default")
    parser.add_argument("--compile-mode", default="default")
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high" if options.precision == "bf16" else "highest")
    distributed = options.peer in ("ddp-eager", "ddp", "fsdp2")
    if distributed:
        if options.device == "cuda":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl" if options.device == "cuda" else "gloo")
    serve(Trainer(options))
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
