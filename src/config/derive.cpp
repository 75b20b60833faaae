// How are open values found: preset, tokenizer size, mesh, defaults that depend on other keys?
#include "config/derive.hpp"

#include "config/presets.hpp"
#include "config/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

namespace colossal::detail {
namespace {

constexpr double kLambTrustClip = 10;

/// One key that a preset fills.
struct PresetKey {
  std::string_view path;
  std::int64_t ModelConfig::* target;
  std::int64_t Preset::* source;
};
constexpr std::array<PresetKey, 5> kPresetKeys = {{
    {"model.num_layers", &ModelConfig::num_layers, &Preset::num_layers},
    {"model.hidden_size", &ModelConfig::hidden_size, &Preset::hidden_size},
    {"model.num_heads", &ModelConfig::num_heads, &Preset::num_heads},
    {"model.vocab_size", &ModelConfig::vocab_size, &Preset::vocab_size},
    {"model.max_seq_length", &ModelConfig::max_seq_length, &Preset::max_seq_length},
}};

void fill_preset(Config& config, Origins& origins) {
  const Preset* preset = find_preset(config.model.preset);
  if (preset == nullptr) {
    return;
  }
  Origin origin = origins.of("model.preset");
  origin.via = fmt::format("preset {}", preset->name);
  for (const PresetKey& key : kPresetKeys) {
    if (!origins.given(key.path)) {
      config.model.*key.target = preset->*key.source;
      origins.set(std::string(key.path), origin);
    }
  }
}

/// Sets `value` by `rule` if it is still open.
void fill(std::int64_t& value,
          std::int64_t derived,
          std::string_view path,
          std::string_view rule,
          Origins& origins) {
  if (value == 0) {
    value = derived;
    origins.derive(path, rule);
  }
}

void fill_vocabulary(Config& config, Origins& origins, Report& report) {
  if (config.model.vocab_size != 0) {
    return;
  }
  if (config.data.tokenizer) {
    // Stays 0, `auto`, until the files of the tokenizer are read with the data.
    config.model.vocab_size = tokenizer_size(*config.data.tokenizer);
    origins.derive("model.vocab_size", "data.tokenizer");
    return;
  }
  Diagnostic& error = report.error("required",
                                   "model.vocab_size",
                                   origins.place_for("model.vocab_size"),
                                   "model.vocab_size is required without a tokenizer");
  error.why = "synthetic data and token files do not say how many ids there are";
  error.fix = "add `vocab_size: 256` to `model`, or a preset";
  if (config.data.type == DataType::tokens) {
    error.fix +=
        ", or the tokenizer that made the files: `tokenizer: {type: bpe, path: FILE}` to `data`";
  }
}

void require_sequence(const Config& config, const Origins& origins, Report& report) {
  if (config.data.seq_length != 0) {
    return;
  }
  Diagnostic& error = report.error("required",
                                   "data.seq_length",
                                   origins.place_for("data.seq_length"),
                                   "data.seq_length is required");
  error.why = "tokens per sample";
  error.fix = "add `seq_length: 128` to `data`";
}

void fill_gpt(Config& config, Origins& origins, Report& report) {
  ModelConfig& model = config.model;
  require_sequence(config, origins, report);
  fill_preset(config, origins);
  fill(model.num_kv_heads, model.num_heads, "model.num_kv_heads", "num_heads", origins);
  fill(model.ffn_hidden_size,
       4 * model.hidden_size,
       "model.ffn_hidden_size",
       "4 * hidden_size",
       origins);
  fill(model.max_seq_length,
       config.data.seq_length,
       "model.max_seq_length",
       "data.seq_length",
       origins);
  fill_vocabulary(config, origins, report);
}

void fill_model(Config& config, Origins& origins, Report& report) {
  switch (config.model.type) {
    case ModelType::gpt:
      return fill_gpt(config, origins, report);
    case ModelType::mlp:  // a row is a sequence of one token
      return fill(config.data.seq_length, 1, "data.seq_length", "model.type", origins);
  }
}

void fill_run(Config& config, Origins& origins, const DeriveInput& input) {
  if (config.run.name.empty()) {
    config.run.name = input.stem;
    origins.derive("run.name", "file name");
  }
  if (config.run.output_dir.empty()) {
    const auto dir = std::filesystem::absolute(std::filesystem::path("runs") / config.run.name);
    config.run.output_dir = dir.lexically_normal().string();
    if (const auto name = config.secrets.shown.find("run.name");
        name != config.secrets.shown.end()) {
      // "\"X\"" -> "\"/.../runs/X\"": a secret name must not come out by the folder.
      config.secrets.shown["run.output_dir"] =
          "\"" + dir.parent_path().lexically_normal().string() + "/" + name->second.substr(1);
    }
    origins.derive("run.output_dir", "run.name");
  }
}

/// lamb's true and false are its words moments and none.
BiasCorrection lamb_correction(BiasCorrection written) {
  return written == BiasCorrection::on    ? BiasCorrection::moments
         : written == BiasCorrection::off ? BiasCorrection::none
                                          : written;
}

void fill_optimizer(OptimizerConfig& optimizer, Origins& origins) {
  if (!optimizer.eps) {
    optimizer.eps = default_eps(optimizer.type);
    origins.derive("optimizer.eps", "optimizer.type");
  }
  if (!origins.given("optimizer.betas")) {
    optimizer.betas = {0.9, optimizer.type == OptimizerType::lion ? 0.99 : 0.999};
    origins.derive("optimizer.betas", "optimizer.type");
  }
  const bool lamb = optimizer.type == OptimizerType::lamb;
  if (lamb) {
    optimizer.bias_correction = lamb_correction(optimizer.bias_correction);
  }
  if (lamb && !origins.given("optimizer.trust_clip")) {
    optimizer.trust_clip = kLambTrustClip;
    origins.derive("optimizer.trust_clip", "optimizer.type");
  }
  if ((lamb || optimizer.type == OptimizerType::lars) && !origins.given("optimizer.no_adapt")) {
    optimizer.no_adapt = optimizer.no_decay;
    origins.derive("optimizer.no_adapt", "optimizer.no_decay");
  }
}

void fill_scheduler(SchedulerConfig& scheduler, Origins& origins) {
  const bool flat =
      scheduler.type == SchedulerType::wsd || scheduler.type == SchedulerType::flat_cosine;
  if (flat && !scheduler.stable_ratio) {
    scheduler.stable_ratio = stable_ratio(scheduler);
    origins.derive("scheduler.stable_ratio", "scheduler.type");
  }
}

void fill_eval(Config& config, Origins& origins) {
  if (!config.eval.at_end) {
    config.eval.at_end = !config.data.eval.empty();
    origins.derive("eval.at_end", "data.eval");
  }
  fill(config.eval.micro_batch_size,
       config.train.micro_batch_size,
       "eval.micro_batch_size",
       "train.micro_batch_size",
       origins);
}

}  // namespace

std::int64_t tokenizer_size(const TokenizerConfig& tokenizer) {
  constexpr std::int64_t kBytes = 256;
  return tokenizer.type == TokenizerType::byte ? kBytes : 0;
}

bool is_preset_key(std::string_view path) {
  return std::any_of(kPresetKeys.begin(), kPresetKeys.end(), [&](const PresetKey& key) {
    return key.path == path;
  });
}

void derive(Config& config, Origins& origins, const DeriveInput& input, Report& report) {
  fill_run(config, origins, input);
  fill_model(config, origins, report);
  if (input.world_size) {
    fill(config.parallel.data, *input.world_size, "parallel.data", "world size", origins);
  }
  derive_batch(config, origins, input, report);
  fill_optimizer(config.optimizer, origins);
  fill_scheduler(config.scheduler, origins);
  fill_eval(config, origins);
}

}  // namespace colossal::detail
