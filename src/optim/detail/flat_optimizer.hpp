// How does a rule reach all shards? Pieces are shared by threads, tiles carry each to the rule's
// kernels.
#pragma once

#include "core/hash.hpp"
#include "optim/detail/cuda/sweeps.hpp"
#include "optim/detail/flat_kernels.hpp"
#include "optim/detail/tiles.hpp"
#include "optim/optimizer.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <type_traits>
#include <utility>

namespace colossal::detail {

/// An optimizer over flat arrays. `Rule` gives
///   kSweeps                      1, or 2 if each parameter has a rate of its own (LAMB, LARS);
///   Factors                      what is equal for all elements of a parameter, a plain struct;
///   states()                     names of at most kMostStates states;
///   access(sweep)                what the sweep reads and writes;
///   factors(group, info, squares)  the Factors of a parameter; squares: its sums in the second of
///                                two sweeps, else zero;
///   run<T>(sweep, tile, factors)   changes the tile's states and values, T = float or double;
///   measure<T>(tile, factors)      Squares of the tile after the first of two sweeps;
///   run_on_gpu(sweep, shard, factors)  all of the above for a shard in the memory of a GPU;
///   run_mixed(arrays, count, factors)  if it has a kernel of its own for float masters and states
///                                with 16-bit gradients or working copies.
template <class Rule>
class FlatOptimizer : public Optimizer {
 public:
  explicit FlatOptimizer(Rule rule) : rule_(std::move(rule)) {}

  [[nodiscard]] std::vector<std::string_view> states() const override { return rule_.states(); }
  [[nodiscard]] int sweeps() const override { return Rule::kSweeps; }
  [[nodiscard]] StateAccess access(int sweep) const override {
    const Access access = Rule::access(sweep);
    if (access.writes_states) {
      return StateAccess::update;
    }
    return access.reads_states ? StateAccess::read : StateAccess::none;
  }

  void sweep(int index,
             std::span<FlatShard> shards,
             std::span<const ParamGroup> groups,
             const StepInfo& info,
             at::Tensor& sums) const override {
    // Shards of the host and of a GPU in turn, as an offloading store has them.
    for (std::size_t begin = 0; begin < shards.size();) {
      const bool on_gpu = shards[begin].master.is_cuda();
      std::size_t end = begin + 1;
      while (end < shards.size() && shards[end].master.is_cuda() == on_gpu) {
        ++end;
      }
      const std::span<FlatShard> part = shards.subspan(begin, end - begin);
      if (on_gpu) {
        run_on_gpu(index, part, groups, info, sums);
      } else if (part.front().master.scalar_type() == at::kDouble) {
        run<double>(index, part, groups, info, sums);
      } else {
        run<float>(index, part, groups, info, sums);
      }
      begin = end;
    }
  }

 private:
  using AllFactors = std::vector<typename Rule::Factors>;

  [[nodiscard]] AllFactors factors_of(int index,
                                      std::span<const ParamGroup> groups,
                                      const StepInfo& info,
                                      const at::Tensor& sums) const {
    AllFactors factors;
    const auto num_params = static_cast<std::int64_t>(groups.size());
    const double* const squares = index > 0 ? sums.const_data_ptr<double>() : nullptr;
    for (std::int64_t p = 0; p < num_params; ++p) {
      const Squares own = squares == nullptr
                              ? Squares{}
                              : Squares{.weights = squares[2 * p], .update = squares[2 * p + 1]};
      const ParamGroup& group = groups[static_cast<std::size_t>(p)];
      const bool as_before =
          squares == nullptr && p > 0 && group == groups[static_cast<std::size_t>(p - 1)];
      factors.push_back(as_before ? factors.back() : rule_.factors(group, info, own));
    }
    return factors;
  }

  /// One piece; returns its squares in the first of two sweeps.
  template <class T>
  static Squares carry(int index,
                       const Piece& piece,
                       const Carrier& carrier,
                       const typename Rule::Factors& factors) {
    constexpr bool kMeasures = Rule::kSweeps > 1;
    if constexpr (std::is_same_v<T, float> && requires { &Rule::run_mixed; }) {
      if (is_mixed(carrier.arrays)) {
        Rule::run_mixed(mixed_arrays(carrier.arrays, piece.at), piece.count, factors);
        return {};
      }
    }
    const bool measures = kMeasures && index == 0;
    const std::int64_t tile_size =
        measures || has_halves(carrier.arrays) ? kTile : std::max(piece.count, kTile);
    TileBuffers<T> buffers;
    Squares squares;
    for (std::int64_t done = 0; done < piece.count; done += tile_size) {
      const std::int64_t at = piece.at + done;
      const Tile<T> tile = buffers.load(carrier, at, std::min(tile_size, piece.count - done));
      Rule::template run<T>(index, tile, factors);
      buffers.store_states(carrier, at, piece.element + done, tile);
      buffers.store_working(carrier, at, tile);
      if constexpr (kMeasures) {
        const Squares more = measures ? Rule::template measure<T>(tile, factors) : Squares{};
        squares.weights += more.weights;
        squares.update += more.update;
      }
    }
    return squares;
  }

  template <class T>
  void run(int index,
           std::span<FlatShard> shards,
           std::span<const ParamGroup> groups,
           const StepInfo& info,
           at::Tensor& sums) const {
    const std::vector<std::string_view> names = rule_.states();
    const std::vector<ShardArrays> arrays = arrays_of(shards, names);
    const AllFactors factors = factors_of(index, groups, info, sums);
    const std::vector<Piece> pieces = cut(shards);
    std::vector<Squares> squares(pieces.size());
    for_each_piece(pieces, [&](std::size_t i) {
      const Piece& piece = pieces[i];
      const auto param = static_cast<std::size_t>(piece.param);
      const ShardArrays& own = arrays[static_cast<std::size_t>(piece.shard)];
      const Carrier carrier{
          .arrays = own, .access = Rule::access(index), .key = random_key(groups[param], info)};
      squares[i] = carry<T>(index, piece, carrier, factors[param]);
    });
    if (Rule::kSweeps > 1 && index == 0) {
      add_squares(pieces, squares, sums);
    }
  }

  /// Of the random words of a parameter in this step.
  static std::uint32_t random_key(const ParamGroup& group, const StepInfo& info) {
    return static_cast<std::uint32_t>(
        splitmix64(group.key ^ splitmix64(static_cast<std::uint64_t>(info.step))));
  }

  /// Waits for the device in the first of two sweeps only.
  void run_on_gpu(int index,
                  std::span<FlatShard> shards,
                  std::span<const ParamGroup> groups,
                  const StepInfo& info,
                  at::Tensor& sums) const {
    const std::vector<std::string_view> names = rule_.states();
    const std::vector<ShardArrays> arrays = arrays_of(shards, names);
    const AllFactors factors = factors_of(index, groups, info, sums);
    const bool measures = Rule::kSweeps > 1 && index == 0;
    std::vector<int> params;  // of all slices
    std::vector<at::Tensor> squares;
    for (std::size_t s = 0; s < shards.size(); ++s) {
      const FlatShard& shard = shards[s];
      std::vector<cuda::Slice> slices;
      AllFactors own;
      for (const Segment& segment : shard.segments) {
        const auto param = static_cast<std::size_t>(segment.param);
        slices.push_back({.at = segment.offset,
                          .count = segment.end - segment.begin,
                          .element = static_cast<std::uint32_t>(segment.begin),
                          .key = random_key(groups[param], info)});
        own.push_back(factors[param]);
        params.push_back(segment.param);
      }
      cuda::Sweep sweep{arrays[s], shard.master.scalar_type(), slices, {}};
      if (measures) {
        sweep.squares =
            at::empty({std::ssize(slices), 2}, shard.master.options().dtype(at::kDouble));
        squares.push_back(sweep.squares);
      }
      Rule::run_on_gpu(index, sweep, own);
    }
    add_squares(params, squares, sums);
  }

  /// What was measured on the device, in the order of slices.
  static void add_squares(std::span<const int> params,
                          const std::vector<at::Tensor>& squares,
                          at::Tensor& sums) {
    if (squares.empty()) {
      return;
    }
    const at::Tensor here = at::cat(squares).cpu();
    const auto* const values = here.const_data_ptr<double>();
    auto* const out = sums.data_ptr<double>();
    for (std::size_t i = 0; i < params.size(); ++i) {
      out[2 * params[i]] += values[2 * i];
      out[2 * params[i] + 1] += values[2 * i + 1];
    }
  }

  static bool is_mixed(const ShardArrays& arrays) {
    return has_halves(arrays) && std::ranges::none_of(arrays.states, &Array::is_half);
  }

  static MixedArrays mixed_arrays(const ShardArrays& arrays, std::int64_t at) {
    const bool half = arrays.grad.is_half();
    return {.param = arrays.master.at<float>(at),
            .exp_avg = arrays.states[0].at<float>(at),
            .exp_avg_sq = arrays.states[1].at<float>(at),
            .grad = half ? nullptr : arrays.grad.at<const float>(at),
            .half_grad = half ? arrays.grad.at<const std::uint16_t>(at) : nullptr,
            .grad_format = arrays.grad.format(),
            .working = arrays.working.at<std::uint16_t>(at),
            .working_format = arrays.working.format(),
            .streams = arrays.is_large};
  }

  /// In the order of the pieces, whatever thread made them.
  static void add_squares(std::span<const Piece> pieces,
                          std::span<const Squares> squares,
                          at::Tensor& sums) {
    auto* const out = sums.data_ptr<double>();
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      out[2 * pieces[i].param] += squares[i].weights;
      out[2 * pieces[i].param + 1] += squares[i].update;
    }
  }

  Rule rule_;
};

}  // namespace colossal::detail
