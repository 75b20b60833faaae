// How do global batch, micro-batch, accumulation and replicas agree (config-and-cli 5.2)?
#include "config/derive.hpp"
#include "core/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace colossal::detail {
namespace {

constexpr std::string_view kGlobal = "train.global_batch_size";
constexpr std::string_view kMicro = "train.micro_batch_size";
constexpr std::string_view kAccumulation = "train.gradient_accumulation";

/// The four numbers; 0 = unknown.
struct Batch {
  std::int64_t data = 0;
  std::int64_t global = 0;
  std::int64_t micro = 0;
  std::int64_t accumulation = 0;

  /// data * micro * accumulation as far as known; at most about 10^27, hence double.
  [[nodiscard]] double product() const {
    const auto known = [](std::int64_t n) { return n == 0 ? 1.0 : static_cast<double>(n); };
    return known(data) * known(micro) * known(accumulation);
  }
  /// global / (the known factors); nothing if that is not a whole number >= 1.
  [[nodiscard]] std::optional<std::int64_t> quotient() const {
    if (product() > static_cast<double>(global)) {
      return std::nullopt;
    }
    const auto divisor = static_cast<std::int64_t>(product());
    return global % divisor == 0 ? std::optional(global / divisor) : std::nullopt;
  }
};

/// The divisors of `number` nearest to `near`: the largest below it and the smallest above.
std::vector<std::int64_t> near_divisors(std::int64_t number, std::int64_t near) {
  std::int64_t below = 0;
  std::int64_t above = 0;
  const auto take = [&](std::int64_t divisor) {
    if (divisor < near) {
      below = std::max(below, divisor);
    } else if (divisor > near) {
      above = above == 0 ? divisor : std::min(above, divisor);
    }
  };
  for (std::int64_t k = 1; k * k <= number; ++k) {
    if (number % k == 0) {
      take(k);
      take(number / k);
    }
  }
  std::vector<std::int64_t> found;
  for (const std::int64_t divisor : {below, above}) {
    if (divisor != 0) {
      found.push_back(divisor);
    }
  }
  return found;
}

class BatchRule {
 public:
  BatchRule(Config& config, Origins& origins, const DeriveInput& input, Report& report)
      : config_(config), origins_(origins), input_(input), report_(report) {
    const TrainConfig& train = config.train;
    given_ = {config.parallel.data,
              train.global_batch_size,
              train.micro_batch_size,
              train.gradient_accumulation};
  }

  void run() {
    if (given_.global == 0 && given_.micro == 0) {
      report_missing();
      return;
    }
    Batch batch = given_;
    if (batch.accumulation == 0 && (batch.global == 0 || batch.micro == 0)) {
      batch.accumulation = 1;
      set(config_.train.gradient_accumulation, 1, kAccumulation, "1");
    }
    if (batch.global == 0) {
      set_global(batch);
      return;
    }
    const auto rest = batch.quotient();
    if (!rest || (complete(batch) && *rest != 1)) {
      report_mismatch();
      return;
    }
    if (batch.data != 0 && batch.micro == 0) {
      set(config_.train.micro_batch_size, *rest, kMicro, "global / (data * accumulation)");
    } else if (batch.data != 0 && batch.accumulation == 0) {
      set(config_.train.gradient_accumulation, *rest, kAccumulation, "global / (data * micro)");
    }
  }

 private:
  [[nodiscard]] static bool complete(const Batch& batch) {
    return batch.data != 0 && batch.micro != 0 && batch.accumulation != 0;
  }

  void set(std::int64_t& value, std::int64_t number, std::string_view path, std::string_view rule) {
    value = number;
    origins_.derive(path, rule);
  }

  void set_global(const Batch& batch) {
    if (batch.data == 0) {
      return;
    }
    constexpr double kLargest = 1e9;
    if (batch.product() > kLargest) {
      Diagnostic& error = report_.error("batch-mismatch",
                                        kMicro,
                                        origins_.place_for(kMicro),
                                        fmt::format("data {} x micro_batch_size {} x "
                                                    "gradient_accumulation {} is over 10^9",
                                                    batch.data,
                                                    batch.micro,
                                                    batch.accumulation));
      error.fix = "choose smaller batch sizes";
      return;
    }
    set(config_.train.global_batch_size,
        static_cast<std::int64_t>(batch.product()),
        kGlobal,
        "data * micro * accumulation");
  }

  void report_missing() {
    Diagnostic& error = report_.error("required",
                                      kMicro,
                                      origins_.place_for(kMicro),
                                      "train.micro_batch_size or train.global_batch_size is "
                                      "required");
    error.why = "global_batch_size = data * micro_batch_size * gradient_accumulation";
    error.fix = "add `micro_batch_size: ...` or `global_batch_size: ...` to `train`";
  }

  [[nodiscard]] std::string mismatch_message() const {
    const Batch& b = given_;
    const double share = b.data == 0 ? 1.0 : static_cast<double>(b.data);
    if (b.micro != 0 && static_cast<double>(b.micro) * share > static_cast<double>(b.global)) {
      return fmt::format("micro_batch_size {} on {} is more than global_batch_size {}",
                         b.micro,
                         counted(b.data == 0 ? 1 : b.data, "replica"),
                         b.global);
    }
    std::string factors;
    const auto append = [&](const char* name, std::int64_t n) {
      factors += n == 0 ? "" : fmt::format("{}{} {}", factors.empty() ? "" : " x ", name, n);
    };
    append("data", b.data);
    append("micro_batch_size", b.micro);
    append("gradient_accumulation", b.accumulation);
    return complete(b)
               ? fmt::format("global_batch_size {} is not {}", b.global, factors)
               : fmt::format("global_batch_size {} is not a multiple of {}", b.global, factors);
  }

  /// Ways out, each changing one number to the nearest values that fit.
  [[nodiscard]] std::string fixes() const {
    std::string text;
    const auto offer = [&](std::string_view name, const std::vector<std::int64_t>& values) {
      if (!values.empty()) {
        text += fmt::format("{}{}: {}", text.empty() ? "" : " | ", name, fmt::join(values, " or "));
      }
    };
    offer("gradient_accumulation", fitting(&Batch::accumulation));
    offer("micro_batch_size", fitting(&Batch::micro));
    offer("global_batch_size", fitting_globals());
    if (input_.world_size && *input_.world_size == given_.data) {  // else they do not fit, either
      for (const std::int64_t processes : fitting(&Batch::data)) {
        text += processes == given_.data ? ""
                                         : fmt::format(" | {}: --nproc {} or torchrun",
                                                       counted(processes, "process", "processes"),
                                                       processes);
      }
    }
    return text;
  }

  /// Values of a factor with which the others, as given, divide the global batch size: the only one
  /// if all factors are given, else the nearest below and above the given one.
  [[nodiscard]] std::vector<std::int64_t> fitting(std::int64_t Batch::* factor) const {
    Batch others = given_;
    others.*factor = 0;
    const auto rest = others.quotient();
    if (!rest) {
      return {};
    }
    if (complete(given_)) {
      return {*rest};
    }
    return given_.*factor == 0 ? std::vector<std::int64_t>{} : near_divisors(*rest, given_.*factor);
  }

  /// The multiples of all known factors nearest to the global batch size, from below and above.
  [[nodiscard]] std::vector<std::int64_t> fitting_globals() const {
    const double step = given_.product();
    constexpr double kLargest = 1e9;
    if (step > kLargest) {
      return {};
    }
    const auto unit = static_cast<std::int64_t>(step);
    const std::int64_t below = given_.global / unit * unit;
    if (complete(given_) || below == 0) {
      return {unit};
    }
    return {below, below + unit};
  }

  void report_mismatch() {
    const bool global_given = origins_.given(kGlobal);
    const std::string_view path = global_given ? kGlobal : kMicro;
    Diagnostic& error =
        report_.error("batch-mismatch", path, origins_.place_for(path), mismatch_message());
    error.value = std::to_string(given_.global);
    const auto relate = [&](std::string_view key, std::int64_t number) {
      if (number != 0) {
        error.related.push_back({std::string(key), std::to_string(number), origins_.of(key)});
      }
    };
    relate(kMicro, given_.micro);
    relate(kAccumulation, given_.accumulation);
    relate("parallel.data", given_.data);
    error.why = "global_batch_size = data * micro_batch_size * gradient_accumulation";
    if (input_.world_size) {
      error.why += fmt::format("; world size {}{}{}",
                               *input_.world_size,
                               input_.world_origin.empty() ? "" : ": ",
                               input_.world_origin);
    }
    error.fix = fixes();
  }

  Config& config_;
  Origins& origins_;
  const DeriveInput& input_;
  Report& report_;
  Batch given_;
};

}  // namespace

void derive_batch(Config& config, Origins& origins, const DeriveInput& input, Report& report) {
  BatchRule(config, origins, input, report).run();
}

}  // namespace colossal::detail
