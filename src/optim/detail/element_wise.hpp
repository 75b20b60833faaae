// How does an element-wise rule reach all shards? Segments of equal settings become ranges, which
// the threads share.
#pragma once

#include "core/error.hpp"
#include "optim/optimizer.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <utility>

namespace colossal::detail {

/// An optimizer that treats every element alike and on its own. A file that instantiates it is
/// compiled with -fopenmp. `Rule` gives
///   Factors                      what is equal for all elements of a group, a plain struct;
///   states()                     names of at most two states;
///   factors(group, info)         the Factors of one group in one step;
///   run(param, states, grad, count, factors)   one pass over `count` elements, T = float or
///   double;
///                                `states` holds a pointer for each name, in order.
template <class Rule>
class ElementWise : public Optimizer {
 public:
  explicit ElementWise(Rule rule) : rule_(std::move(rule)) {}

  [[nodiscard]] std::vector<std::string_view> states() const override { return rule_.states(); }

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
  static constexpr std::int64_t kGrain = 32768;  // elements a thread takes at least

  template <class T>
  using States = std::array<T*, 2>;

  /// A stretch of a shard whose elements share all factors; `begin` counts the elements of all
  /// ranges before it.
  template <class T>
  struct Range {
    std::int64_t begin = 0;
    std::int64_t count = 0;
    T* param = nullptr;
    States<T> states = {};
    const T* grad = nullptr;
    typename Rule::Factors factors = {};
  };

  static at::Tensor& state_of(FlatShard& shard, std::string_view name) {
    const auto found = shard.state.find(name);
    check(found != shard.state.end() && found->second.numel() == shard.master.numel(),
          ErrorKind::internal,
          "optimizer-state",
          "a shard of {} elements has no state '{}' of its length",
          shard.master.numel(),
          name);
    return found->second;
  }

  template <class T>
  States<T> states_of(FlatShard& shard) const {
    States<T> pointers = {};
    const std::vector<std::string_view> names = rule_.states();
    for (std::size_t i = 0; i < names.size(); ++i) {
      pointers[i] = state_of(shard, names[i]).template data_ptr<T>();
    }
    return pointers;
  }

  template <class T>
  static States<T> moved(States<T> states, std::int64_t by) {
    for (T*& state : states) {
      state = state == nullptr ? nullptr : state + by;
    }
    return states;
  }

  /// Appends the ranges of one shard. Neighbouring segments of equal settings are one range;
  /// padding between segments is left out (Adam would divide zero by zero there if eps is 0).
  template <class T>
  void add_ranges(std::vector<Range<T>>& ranges,
                  FlatShard& shard,
                  std::span<const ParamGroup> groups,
                  const StepInfo& info) const {
    T* const param = shard.master.data_ptr<T>();
    const States<T> states = states_of<T>(shard);
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
                          moved<T>(states, at),
                          grad + at,
                          rule_.factors(group, info)});
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
          Rule::run(range.param + skip,
                    moved<T>(range.states, skip),
                    range.grad + skip,
                    count,
                    range.factors);
        }
      }
    });
  }

  Rule rule_;
};

}  // namespace colossal::detail
