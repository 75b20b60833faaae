// How is AdamW applied to shards? Segments of equal settings become ranges, which the threads
// share.
#include "optim/adamw.hpp"

#include "core/error.hpp"
#include "optim/detail/flat_kernels.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

namespace colossal {
namespace {

constexpr std::int64_t kGrain = 32768;  // elements a thread takes at least

/// A stretch of a shard whose elements share all factors; `begin` counts the elements of all ranges
/// before it.
template <class T>
struct Range {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  T* param = nullptr;
  T* exp_avg = nullptr;
  T* exp_avg_sq = nullptr;
  const T* grad = nullptr;
  detail::AdamwFactors factors;
};

/// 1 - beta^t without cancellation for beta near 1.
double bias_factor(double beta, std::int64_t t) {
  return -std::expm1(static_cast<double>(t) * std::log(beta));
}

at::Tensor& state_of(FlatShard& shard, std::string_view name) {
  const auto found = shard.state.find(name);
  check(found != shard.state.end() && found->second.numel() == shard.master.numel(),
        ErrorKind::internal,
        "optimizer-state",
        "a shard of {} elements has no state '{}' of its length",
        shard.master.numel(),
        name);
  return found->second;
}

class AdamW : public Optimizer {
 public:
  explicit AdamW(const OptimizerConfig& config) : config_(config) {
    check(config_.betas.size() == 2,
          ErrorKind::config,
          "betas-count",
          "optimizer.betas needs 2 numbers for adamw, it has {}",
          config_.betas.size());
  }

  [[nodiscard]] std::vector<std::string_view> states() const override {
    return {"exp_avg", "exp_avg_sq"};
  }

  void step(std::span<FlatShard> shards,
            std::span<const ParamGroup> groups,
            const StepInfo& info) override {
    if (!shards.empty() && shards.front().master.scalar_type() == at::kDouble) {
      update<double>(shards, groups, info);
    } else {
      update<float>(shards, groups, info);
    }
  }

 private:
  [[nodiscard]] detail::AdamwFactors factors(const ParamGroup& group, const StepInfo& info) const {
    const double lr = info.lr * group.lr_scale;
    const double c1 = config_.bias_correction ? bias_factor(config_.betas[0], info.step + 1) : 1;
    const double c2 = config_.bias_correction ? bias_factor(config_.betas[1], info.step + 1) : 1;
    return {.beta1 = config_.betas[0],
            .beta2 = config_.betas[1],
            .grad = info.grad_factor,
            .shrink = 1 - lr * group.weight_decay,
            .step = lr / c1,
            .correction = config_.eps_inside_sqrt ? 1 / c2 : 1 / std::sqrt(c2),
            .eps = config_.eps,
            .eps_inside_sqrt = config_.eps_inside_sqrt};
  }

  /// Appends the ranges of one shard. Neighbouring segments of equal settings are one range;
  /// padding between segments is left out (it would divide zero by zero if eps is 0).
  template <class T>
  void add_ranges(std::vector<Range<T>>& ranges,
                  FlatShard& shard,
                  std::span<const ParamGroup> groups,
                  const StepInfo& info) const {
    T* const param = shard.master.data_ptr<T>();
    T* const exp_avg = state_of(shard, "exp_avg").data_ptr<T>();
    T* const exp_avg_sq = state_of(shard, "exp_avg_sq").data_ptr<T>();
    const T* const grad = shard.grad.const_data_ptr<T>();
    const ParamGroup* previous = nullptr;
    std::int64_t previous_end = 0;
    for (const Segment& segment : shard.segments) {
      const ParamGroup& group = groups[static_cast<std::size_t>(segment.param)];
      const std::int64_t count = segment.end - segment.begin;
      const std::int64_t at = segment.offset;
      if (previous != nullptr && *previous == group && previous_end == at) {
        ranges.back().count += count;
      } else {
        const std::int64_t begin = ranges.empty() ? 0 : ranges.back().begin + ranges.back().count;
        ranges.push_back({begin,
                          count,
                          param + at,
                          exp_avg + at,
                          exp_avg_sq + at,
                          grad + at,
                          factors(group, info)});
      }
      previous = &group;
      previous_end = at + count;
    }
  }

  template <class T>
  void update(std::span<FlatShard> shards,
              std::span<const ParamGroup> groups,
              const StepInfo& info) const {
    std::vector<Range<T>> ranges;
    for (FlatShard& shard : shards) {
      add_ranges(ranges, shard, groups, info);
    }
    const std::int64_t total = ranges.empty() ? 0 : ranges.back().begin + ranges.back().count;
    // One parallel region for all shards: many short ones cost more than the update of a small
    // model.
    at::parallel_for(0, total, kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (const Range<T>& range : ranges) {
        const std::int64_t skip = std::max(begin - range.begin, std::int64_t{0});
        const std::int64_t count = std::min(end - range.begin, range.count) - skip;
        if (count > 0) {
          detail::adamw(range.param + skip,
                        range.exp_avg + skip,
                        range.exp_avg_sq + skip,
                        range.grad + skip,
                        count,
                        range.factors);
        }
      }
    });
  }

  OptimizerConfig config_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const OptimizerConfig& config) {
  return std::make_unique<AdamW>(config);
}

}  // namespace colossal
