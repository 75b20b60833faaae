// Which models do tests train? A few thousand parameters, complete without any file.
#pragma once

#include "config/config.hpp"
#include "support/token_files.hpp"

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace colossal::test {

/// A resolved configuration of a two-layer GPT on synthetic data in fp64: dropout and attention
/// dropout 0.1, clipping on, AdamW with warm-up and cosine decay, 6 steps of 16 samples.
inline Config tiny_gpt() {
  Config config;
  config.run.name = "tiny";
  config.run.seed = 7;
  config.model.num_layers = 2;
  config.model.hidden_size = 16;
  config.model.num_heads = 2;
  config.model.num_kv_heads = 2;
  config.model.ffn_hidden_size = 64;
  config.model.vocab_size = 61;
  config.model.vocab_pad_multiple = 16;  // pads to 64: padding must not show anywhere
  config.model.max_seq_length = 12;
  config.model.dropout = 0.1;
  config.model.attention_dropout = 0.1;
  config.data.type = DataType::synthetic;
  config.data.seq_length = 12;
  config.data.num_samples = 80;  // five steps an epoch: six steps cross its end
  config.data.workers = 1;
  config.train.steps = 6;
  config.train.precision = Precision::fp64;
  config.train.clip_grad_norm = 0.5;
  config.train.global_batch_size = 16;
  config.train.micro_batch_size = 16;
  config.train.gradient_accumulation = 1;
  config.optimizer.lr = 1e-2;
  config.optimizer.weight_decay = 0.1;
  config.scheduler.type = SchedulerType::cosine;
  config.scheduler.warmup_steps = 2;
  config.scheduler.min_lr_ratio = 0.1;
  config.parallel.data = 1;
  config.eval.micro_batch_size = 16;
  config.logging.every_steps = 1;
  return config;
}

/// A resolved configuration of a classifier of synthetic rows in fp64, trained as tiny_gpt() is.
inline Config tiny_mlp() {
  Config config = tiny_gpt();
  config.model = {};
  config.model.type = ModelType::mlp;
  config.model.in_features = 3;
  config.model.layers = {12, 9};
  config.model.out_features = 4;
  config.model.init_std = 0.3;
  config.data.seq_length = 1;
  return config;
}

/// The same training split over `data` processes with `accumulation` micro-batches each.
inline Config split(Config config, std::int64_t data, std::int64_t accumulation) {
  config.parallel.data = data;
  config.train.gradient_accumulation = accumulation;
  config.train.micro_batch_size = config.train.global_batch_size / (data * accumulation);
  return config;
}

/// Writes `num_words` words that look like text, the same every time.
inline void write_text(const std::filesystem::path& file, int num_words) {
  static constexpr std::string_view kWords[] = {"and",
                                                "the",
                                                "light",
                                                "was",
                                                "upon",
                                                "waters",
                                                "in",
                                                "a",
                                                "beginning",
                                                "earth",
                                                "void",
                                                "he"};
  std::ofstream out(file);
  unsigned state = 12345;
  for (int i = 0; i < num_words; ++i) {
    state = state * 1664525U + 1013904223U;
    out << kWords[(state >> 16U) % std::size(kWords)] << (i % 9 == 8 ? ".\n" : " ");
  }
}

/// tiny_gpt() on text files made in `folder`, wide enough that its gradients fill several chunks.
inline Config tiny_text_gpt(const std::filesystem::path& folder) {
  write_text(folder / "train.txt", 1000);
  write_text(folder / "eval.txt", 150);
  Config config = tiny_gpt();
  config.model.hidden_size = 48;
  config.model.ffn_hidden_size = 192;
  config.model.vocab_size = 256;
  config.data.type = DataType::text;
  config.data.train = {{.path = (folder / "train.txt").string()}};
  config.data.eval = {{.path = (folder / "eval.txt").string()}};
  config.data.tokenizer = TokenizerConfig{};
  return config;
}

/// Documents of 2 to 11 tokens that count on from different ids.
inline std::vector<std::vector<std::int64_t>> varied_documents(std::int64_t count) {
  std::vector<std::vector<std::int64_t>> documents;
  for (std::int64_t i = 0; i < count; ++i) {
    std::vector<std::int64_t> ids = ids_from(i * i, 2 + i * 7 % 10);
    for (std::int64_t& id : ids) {
      id %= 61;
    }
    documents.push_back(std::move(ids));
  }
  return documents;
}

/// tiny_gpt() on token files made in `folder`: short documents, several a row, that do not see each
/// other.
inline Config tiny_tokens_gpt(const std::filesystem::path& folder) {
  Config config = tiny_gpt();
  config.data.type = DataType::tokens;
  config.data.train = {{.path = write_megatron(folder, "train", varied_documents(150))}};
  config.data.eval = {{.path = write_megatron(folder, "eval", varied_documents(30))}};
  config.data.packing = Packing::greedy;
  config.data.cross_document_attention = false;
  config.data.last_batch = LastBatch::wrap;
  return config;
}

/// The same with one document a row, drawn from two files by weight.
inline Config tiny_blend_gpt(const std::filesystem::path& folder) {
  Config config = tiny_tokens_gpt(folder);
  config.data.train = {{.path = write_megatron(folder, "one", varied_documents(40)), .weight = 3},
                       {.path = write_megatron(folder, "two", varied_documents(25)), .weight = 1}};
  config.data.packing = Packing::pad;
  config.data.last_batch = LastBatch::drop;
  return config;
}

}  // namespace colossal::test
