#!/usr/bin/env python3
# What does Hugging Face compute for tiny GPT-2 models? Records tests/golden/fixtures/gpt2_*.
"""Makes GPT2LMHeadModels of random weights, saves them as their library does (model.safetensors, config.json), and records
what they compute for real text: expected.safetensors holds "tokens" and "logits" (fp32).

    python scripts/golden/hugging_face.py    # needs torch, transformers, safetensors; rewrites the fixtures
"""

import pathlib

import safetensors
import torch
import transformers
from safetensors.torch import save_file

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "fixtures"
TEXT = b"And God said, Let there be light: and there was light."
BASE = {"n_layer": 2, "n_embd": 16, "n_head": 4, "n_positions": 24, "vocab_size": 128, "bos_token_id": None,
        "eos_token_id": None}  # fmt: skip
VARIANTS = {
    "gpt2_default": {},
    "gpt2_wide": {"activation_function": "gelu", "n_inner": 24, "layer_norm_epsilon": 1e-3},
    "gpt2_untied": {"activation_function": "relu", "tie_word_embeddings": False, "n_head": 2},
}  # fmt: skip


def fill(model, seed):
    """Values far from the initial ones, biases and norms too."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        values = 0.3 * torch.randn(parameter.shape, generator=generator)
        parameter.data.copy_(values + 1 if "ln_" in name and name.endswith("weight") else values)


def main():
    torch.set_num_threads(1)
    versions = {"script": "scripts/golden/hugging_face.py", "torch": torch.__version__,
                "transformers": transformers.__version__, "safetensors": safetensors.__version__}
    for seed, (name, options) in enumerate(VARIANTS.items()):
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**{**BASE, **options})).eval()
        fill(model, seed)
        folder = FIXTURES / name
        model.save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        tokens = torch.tensor([list(TEXT[:24]), list(TEXT[-24:])])
        with torch.no_grad():
            logits = model(tokens).logits
        save_file({"tokens": tokens, "logits": logits.contiguous()}, folder / "expected.safetensors", versions)
        print(name, sum(file.stat().st_size for file in folder.iterdir()) // 1024, "KiB")


if __name__ == "__main__":
    main()
