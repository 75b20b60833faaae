// Which checks span several keys (phase P5)? One list per topic; each check is a small named
// function.
#pragma once

#include "config/config.hpp"
#include "config/derive.hpp"
#include "config/origins.hpp"
#include "config/tree.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace colossal::detail {

/// What a rule sees: the derived configuration, where its values came from, and how to complain.
struct RuleInput {
  const Config& config;
  const Origins& origins;
  const DeriveInput& host;
  Report& report;

  /// Adds an error at the value of `path`.
  Diagnostic& error(std::string_view id, std::string_view path, std::string message) const;
  /// Adds a warning at the value of `path`.
  Diagnostic& warning(std::string_view id, std::string_view path, std::string message) const;
  /// Adds a note at the value of `path`.
  Diagnostic& note(std::string_view id, std::string_view path, std::string message) const;
  /// `path` with its value and origin, for Diagnostic::related.
  [[nodiscard]] Related with(std::string_view path) const;
  /// Text of the value of `path`.
  [[nodiscard]] std::string value(std::string_view path) const;
  /// Steps of the run; nothing while they depend on the data or on an unknown world size.
  [[nodiscard]] std::optional<std::int64_t> steps() const;
};

/// One check.
using Rule = void (*)(const RuleInput&);

/// Whether a text is 1 to 80 of A-Z a-z 0-9 . _ - and no folder by itself: what names a run.
[[nodiscard]] bool names_a_folder(std::string_view name);

/// bad-name, not-utf8.
[[nodiscard]] std::span<const Rule> run_rules();
/// world-size.
[[nodiscard]] std::span<const Rule> mesh_rules();
/// zero-offload, gemini-zero, gemini-fractions, gemini-device-memory, gpu-only, comm-backend,
/// unused-section.
[[nodiscard]] std::span<const Rule> memory_rules();
/// gpt: heads-divisible, kv-heads-divisible, seq-too-long, vocab-too-small; mlp: model-data.
[[nodiscard]] std::span<const Rule> model_rules(ModelType type);
/// data-weights, sequence-packing, unused-section.
[[nodiscard]] std::span<const Rule> data_rules();
/// required, bad-enum, unused-section.
[[nodiscard]] std::span<const Rule> optimizer_rules();
/// warmup-too-long, warmup-required, milestones-order, never-runs, unused-section.
[[nodiscard]] std::span<const Rule> scheduler_rules();
/// lr-too-large, never-runs, checkpoint-none, tokens-not-multiple, batch-ramp.
[[nodiscard]] std::span<const Rule> schedule_rules();
/// eval-needs-data, out-of-range, unused-section.
[[nodiscard]] std::span<const Rule> usage_rules();
/// keep-best-metric, async-nvme, export-at-end, weights-only-run, unused-section.
[[nodiscard]] std::span<const Rule> checkpoint_rules();

/// loss-scale-range, fp16-slow, gpu-only, recompute-attention, unused-section.
[[nodiscard]] std::span<const Rule> precision_rules();

/// Reports a key that was written with a value other than its default although nothing reads it:
/// unused-section, naming the key `with` that makes it so.
void report_unused(const RuleInput& in,
                   std::string_view path,
                   std::string_view with,
                   std::string_view reason);

/// Runs all rules.
void check_rules(const RuleInput& input);

/// Runs those of the mesh alone, which hold whatever the batch is.
void check_mesh(const RuleInput& input);

/// The key that sets the length of the run.
[[nodiscard]] std::string_view budget_key(const TrainConfig& train);

/// Up to 8 divisors of `number` nearest to `wanted`, ascending, as "1 | 2 | 4".
[[nodiscard]] std::string nearest_divisors(std::int64_t number, std::int64_t wanted);

}  // namespace colossal::detail
