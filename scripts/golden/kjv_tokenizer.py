#!/usr/bin/env python3
# Where does datasets/tokenizers/kjv-bpe-1024.json come from? Byte-pair merges learnt from the training text of gpt-kjv by
# Python's `tokenizers`. Run after scripts/data/kjv.sh: .venv/bin/python scripts/golden/kjv_tokenizer.py
import json
import pathlib

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).parents[2]
SIZE, END = 1024, "<|endoftext|>"


def main():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    end = AddedToken(END, normalized=False, special=True)
    tokenizer.train([str(ROOT / "datasets/kjv/train.txt")], trainers.BpeTrainer(
        vocab_size=SIZE, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=[end], show_progress=False))
    text = json.dumps(json.loads(tokenizer.to_str()), separators=(",", ":"))
    (ROOT / "datasets/tokenizers/kjv-bpe-1024.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
