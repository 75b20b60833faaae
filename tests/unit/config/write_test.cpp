// Does what is written read back to the same configuration, and are changes classed for resume?
#include "config/flatten.hpp"
#include "config_sandbox.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <set>
#include <string>

namespace colossal::test {
namespace {

/// A configuration in which almost nothing has its default.
const std::string kFull =
    "version: 1\n"
    "run: {name: full-1, output_dir: /tmp/o u, seed: 9, device: cpu, threads: 3}\n"
    "model: {type: gpt, preset: gpt2-124m, num_layers: 3, num_kv_heads: 4, ffn_hidden_size: 100,\n"
    "        vocab_pad_multiple: 8, activation: swiglu, norm_eps: 1e-6, dropout: 0.1,\n"
    "        attention_dropout: 0.25, tie_embeddings: false, attention: math, init_std: 0.01,\n"
    "        init_from: some/weights}\n"
    "data: {type: text, train: [a.txt, 'b c.txt', {path: \"*.txt\", weight: 0.5}], eval: [e.txt],\n"
    "       tokenizer: {type: bpe, path: gpt2}, seq_length: 1_024, shuffle: false, workers: 0,\n"
    "       prefetch: 1,\n"
    "       last_batch: wrap, packing: greedy, cross_document_attention: false}\n"
    "train: {tokens: 3M, global_batch_size: 12, micro_batch_size: 2, precision: fp64,\n"
    "        clip_grad_norm: 0.5, nonfinite: skip, max_skipped_steps: 3, label_smoothing: 0.1,\n"
    "        loss_reduction: micro_batch, loss_spike: 2.5}\n"
    "optimizer: {type: adamw, lr: 6.0e-4, weight_decay: 0.1, no_decay: ['*.bias'],\n"
    "            betas: [0.9, 0.95], eps: 1e-9, eps_inside_sqrt: true, bias_correction: false,\n"
    "            groups: [{match: '*emb*', lr_scale: 0.1, weight_decay: 0}, {match: x}]}\n"
    "scheduler: {type: cosine, warmup_ratio: 0.1, warmup_start: 0.5, decay_steps: 100,\n"
    "            min_lr_ratio: 0.1}\n"
    "parallel: {zero: {prefetch: 3, overlap: false, reduce_dtype: same, unused_params: zero},\n"
    "           gemini: {placement: static, shard_param_frac: 1, offload_optim_frac: 0.5,\n"
    "                    chunk_size: 1.5MiB, host_memory: 4GiB,\n"
    "                    nvme: {path: disk, fraction: 0.5, limit: 1GB, queue_depth: 4}},\n"
    "           comm: {backend: gloo, init_timeout: 90s, timeout: 0.5h}}\n"
    "checkpoint: {every_steps: 5, at_end: false, keep_last: 3, resume: some/dir}\n"
    "eval: {every_steps: 7, at_start: true, at_end: false, max_batches: 2, micro_batch_size: 1}\n"
    "logging: {every_steps: 1, level: debug, tensorboard: false, csv: true,\n"
    "          profiler: {start_step: 5, steps: 2, memory: true, trace: false}}\n";

/// A batch that grows, on any number of processes.
const std::string kRamped =
    "version: 1\n"
    "model: {type: gpt, num_layers: 2, hidden_size: 64, num_heads: 4, vocab_size: 256}\n"
    "data: {type: synthetic, seq_length: 64}\n"
    "train: {samples: 5k, micro_batch_size: 4, gradient_accumulation: 6,\n"
    "        batch_ramp: {start: 12, increment: 12, samples: 1k}}\n"
    "optimizer: {type: adamw, lr: 1e-3}\n";

void check_round_trip(const std::string& text, std::int64_t world) {
  const ConfigSandbox box;
  const LoadOptions with = options({}, world);
  const Loaded first = box.load(text, with);
  REQUIRE_FALSE(first.has_errors());
  for (const std::string& written : {to_yaml(first.config), to_minimal_yaml(first.config)}) {
    const Loaded second = load(box.write("elsewhere/resolved.yaml", written), with);
    INFO(written << render(second.diagnostics));
    REQUIRE_FALSE(second.has_errors());
    CHECK(diff(first.config, second.config).empty());
    CHECK(second.config.optimizer.no_decay_given == first.config.optimizer.no_decay_given);
    CHECK(to_yaml(second.config) == to_yaml(first.config));
    CHECK(to_minimal_yaml(second.config) == to_minimal_yaml(first.config));
    CHECK(config_hash(second.config) == config_hash(first.config));
  }
}

}  // namespace

TEST_CASE("written configurations read back the same (marian 402)", "[config]") {
  for (const std::int64_t world : {0, 1, 3}) {
    check_round_trip(kSynthetic, world);
    check_round_trip(kText, world);
    check_round_trip(kTokens, world);
    check_round_trip(kFull, world);
    check_round_trip(kText + "eval: {at_end: false, every_steps: null}\n", world);
    check_round_trip(kRamped, world);
    for (const char* keys : {"type: lion",
                             "type: lion, betas: [0.9, 0.999]",
                             "type: adafactor, scale_parameter: false, relative_step: true",
                             "type: lamb",
                             "type: lamb, bias_correction: false, trust_clip: null",
                             "type: lamb, bias_correction: lr, eps: 0, trust_clip: 3, no_adapt: []",
                             "type: lars, momentum_mode: larc, nesterov: true",
                             "type: lars, trust_clip: 2, lr_scaling: linear, base_batch_size: 8",
                             "type: adam, bias_correction: False, state_dtype: bf16"}) {
      check_round_trip(with_optimizer(keys), world);
    }
  }
}

/// Keys of types that kFull does not use.
const std::set<std::string> kOfOtherTypes = {"data.num_samples",
                                             "data.format",
                                             "data.validate",
                                             "model.layers",
                                             "model.in_features",
                                             "model.out_features",
                                             "optimizer.momentum",
                                             "optimizer.nesterov",
                                             "optimizer.momentum_mode",
                                             "optimizer.trust_coefficient",
                                             "optimizer.trust_clip",
                                             "optimizer.no_adapt",
                                             "optimizer.scale_parameter",
                                             "optimizer.relative_step",
                                             "train.loss_scale.init",
                                             "train.loss_scale.growth_interval",
                                             "train.loss_scale.growth",
                                             "train.loss_scale.backoff",
                                             "train.loss_scale.hysteresis",
                                             "train.loss_scale.min",
                                             "train.loss_scale.max",
                                             "scheduler.power",
                                             "scheduler.step_size",
                                             "scheduler.milestones",
                                             "scheduler.gamma",
                                             "scheduler.stable_ratio",
                                             "scheduler.decay_shape",
                                             "parallel.gemini.const_budget",
                                             "parallel.gemini.steady_cuda_cap_ratio",
                                             "parallel.gemini.margin_ratio",
                                             "parallel.gemini.reserve"};

TEST_CASE("the full file says something about every key", "[config]") {
  const ConfigSandbox box;
  const Loaded loaded = box.load(kFull,
                                 options({"train.batch_ramp={start: 4, increment: 4, samples: 9}",
                                          "checkpoint.keep_best={metric: train/loss, mode: min}"},
                                         2));
  REQUIRE_FALSE(loaded.has_errors());
  const std::string yaml = to_yaml(loaded.config);
  for (const std::string& path : detail::all_paths()) {
    const std::string key = path.substr(path.rfind('.') + 1);
    INFO(path);
    const bool other_variant = kOfOtherTypes.contains(path);
    if (other_variant) {
      CHECK(yaml.find(" " + key + ":") == std::string::npos);
    } else {
      CHECK((yaml.find(key + ": ") != std::string::npos ||
             yaml.find(key + ":\n") != std::string::npos));
    }
  }
}

TEST_CASE("a resolved file keeps preset values without the preset's help", "[config]") {
  const ConfigSandbox box;
  const Loaded loaded = box.load(kFull, options({}, 2));
  const std::string minimal = to_minimal_yaml(loaded.config);
  CHECK(minimal.find("hidden_size: 768") == std::string::npos);
  CHECK(minimal.find("num_layers: 3") != std::string::npos);
  CHECK(to_yaml(loaded.config).find("hidden_size: 768") != std::string::npos);
}

TEST_CASE("the minimal form of the smallest file holds what it must", "[config]") {
  const ConfigSandbox box;
  CHECK(to_minimal_yaml(box.load(kSynthetic).config) ==
        "version: 1\n"
        "run:\n  name: run\n"
        "model:\n  type: gpt\n  num_layers: 2\n  hidden_size: 64\n  num_heads: 4\n"
        "  vocab_size: 256\n"
        "data:\n  type: synthetic\n  seq_length: 64\n"
        "train:\n  steps: 50\n  micro_batch_size: 4\n"
        "optimizer:\n  type: adamw\n  lr: 0.001\n");
}

TEST_CASE("strings are quoted where a plain one would mean something else", "[config]") {
  CHECK(detail::yaml_string("a/b-c_d.txt") == "a/b-c_d.txt");
  for (const char* text : {"null",
                           "No",
                           "true",
                           "1e3",
                           "12",
                           ".5",
                           "-x",
                           "a b",
                           "*",
                           "a: b",
                           "a#b",
                           "",
                           "~",
                           "y",
                           "+1",
                           "0x10",
                           "'",
                           "{",
                           "caf\xc3\xa9"}) {
    CHECK(detail::yaml_string(text) == "\"" + std::string(text) + "\"");
  }
  CHECK(detail::yaml_string("a\"\\b") == "\"a\\\"\\\\b\"");
}

TEST_CASE("odd file names survive", "[config]") {
  const ConfigSandbox box;
  const Loaded first =
      box.load(kText, options({R"(data.train=["a \"b\" \\ c: #d.txt", "null", "caf\u00e9"])"}));
  REQUIRE(summary(first).empty());
  const Loaded second = load(box.write("again.yaml", to_yaml(first.config)));
  CHECK(second.config.data.train == first.config.data.train);
}

TEST_CASE("differences carry the resume class of config-and-cli 6.4", "[config]") {
  const ConfigSandbox box;
  const auto classes = [&](std::vector<std::string> sets) {
    std::string text;
    const Config saved = box.load(kText, options({}, 2)).config;
    for (const Difference& d : diff(saved, box.load(kText, options(std::move(sets), 2)).config)) {
      text += d.path + " " + d.saved + " " + d.now + " " +
              std::string(1, "mfna"[static_cast<int>(d.resume_class)]) + ";";
    }
    return text;
  };
  CHECK(classes({}).empty());
  CHECK(classes({"model.num_layers=3"}) == "model.num_layers 2 3 m;");
  CHECK(classes({"optimizer.lr=0.5"}) == "optimizer.lr 0.001 0.5 n;");
  CHECK(classes({"optimizer.betas=[0,0]"}) == "optimizer.betas [0.9, 0.999] [0, 0] n;");
  CHECK(classes({"logging.every_steps=1"}) == "logging.every_steps 10 1 f;");
  CHECK(classes({"train.steps=60"}) == "train.steps 50 60 n;");
  CHECK(classes({"train.gradient_accumulation=2"}) ==
        "train.global_batch_size 8 16 a;train.gradient_accumulation 1 2 f;");
  CHECK(classes({"optimizer.groups=[{match: a}]"}) ==
        "optimizer.groups [] (not a key now) n;"
        "optimizer.groups[0].match (not a key then) a n;"
        "optimizer.groups[0].lr_scale (not a key then) 1 n;"
        "optimizer.groups[0].weight_decay (not a key then) null n;");
}

TEST_CASE("a change of data set or tokenizer must match", "[config]") {
  const ConfigSandbox box;
  const Config text = box.load(kText).config;
  const Config synthetic = box.load(kSynthetic).config;
  const auto changes = diff(text, synthetic);
  const auto class_of = [&](const char* path) {
    const auto it = std::find_if(
        changes.begin(), changes.end(), [&](const Difference& d) { return d.path == path; });
    REQUIRE(it != changes.end());
    return it->resume_class;
  };
  CHECK(class_of("data.type") == ResumeClass::must_match);
  CHECK(class_of("data.tokenizer.type") == ResumeClass::must_match);
  // Where the files lie is free: what is in them has a fingerprint.
  CHECK(class_of("data.train") == ResumeClass::free);
}

TEST_CASE("the hash changes with every key", "[config]") {
  const ConfigSandbox box;
  const std::string hash = config_hash(box.load(kText).config);
  CHECK(hash.size() == 64);
  CHECK(config_hash(box.load(kText).config) == hash);
  CHECK(config_hash(box.load(kText, options({"logging.level=warn"})).config) != hash);
}

TEST_CASE("enumerators have their YAML words", "[config]") {
  CHECK(yaml_word(Precision::fp64) == "fp64");
  CHECK(yaml_word(ModelType::gpt) == "gpt");
  CHECK(yaml_word(OptimizerType::adamw) == "adamw");
  CHECK(yaml_word(SchedulerType::cosine) == "cosine");
  CHECK(yaml_word(DataType::synthetic) == "synthetic");
}

TEST_CASE("the help names every key with its default", "[config]") {
  const std::string help = key_help();
  CHECK(help.find("optimizer.lr  (number > 0; required)") != std::string::npos);
  CHECK(help.find("run.threads  (integer in [1, 4096] or auto; default: cores") !=
        std::string::npos);
  CHECK(help.find("optimizer.groups[0].match  (text; required)") != std::string::npos);
  CHECK(
      help.find(
          "data.num_samples  (count in [1, 1000000000000]; default 10000; type synthetic only)") !=
      std::string::npos);
  CHECK(help.find("optimizer.betas  (list of 2, each number in [0, 1); default: [0.9, 0.999], "
                  "lion [0.9, 0.99]; type adamw or adam or lamb or lion only)") !=
        std::string::npos);
  CHECK(help.find("checkpoint.resume  (auto, never, require or path; default auto)") !=
        std::string::npos);
}

}  // namespace colossal::test
