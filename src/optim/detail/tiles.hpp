// How do kernels of one type reach arrays of several? Through tiles: 16-bit numbers are widened
// into buffers that stay in the first cache, and rounded back from there, so memory is passed once.
#pragma once

#include "memory/chunk_store.hpp"
#include "optim/detail/half_kernels.hpp"
#include "optim/detail/pieces.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace colossal::detail {

inline constexpr std::int64_t kTile = 1024;  ///< elements of a tile that has buffers
inline constexpr std::size_t kMostStates = 2;

/// Where an array begins, and whether its elements are of the master's type or of 16 bits.
struct Array {
  void* data = nullptr;
  at::ScalarType dtype = at::kFloat;

  [[nodiscard]] bool is_half() const { return dtype == at::kBFloat16 || dtype == at::kHalf; }
  [[nodiscard]] HalfFormat format() const {
    return dtype == at::kHalf ? HalfFormat::fp16 : HalfFormat::bf16;
  }
  template <class T>
  [[nodiscard]] T* at(std::int64_t element) const {
    return data == nullptr ? nullptr : static_cast<T*>(data) + element;
  }
};

/// Array of a tensor; none of an undefined one. Errors: internal "optimizer-dtype" unless its type
/// is that of the masters or one of 16 bits.
[[nodiscard]] Array array_of(const at::Tensor& tensor, at::ScalarType master);

/// The arrays of one shard.
struct ShardArrays {
  Array master;
  Array grad;
  Array working;
  std::array<Array, kMostStates> states;
  bool is_large = false;  ///< all shards together exceed every cache
};

/// Elements from which ShardArrays::is_large.
inline constexpr std::int64_t kLarge = 4 << 20;

/// Arrays of each shard with these states. Errors: internal "optimizer-state" if a shard lacks one,
/// "optimizer-dtype" as array_of().
[[nodiscard]] std::vector<ShardArrays> arrays_of(std::span<const FlatShard> shards,
                                                 std::span<const std::string_view> states);

/// What a kernel sees: elements of one parameter in the type of the masters.
template <class T>
struct Tile {
  T* param = nullptr;
  std::array<T*, kMostStates> states = {};
  const T* grad = nullptr;
  std::int64_t count = 0;
};

/// What a sweep reads and writes besides the masters' values.
struct Access {
  bool grad = true;           ///< reads gradients
  bool reads_states = true;   ///< of the shard's
  bool writes_states = true;  ///< and writes them
  bool writes_param = true;   ///< changes masters, so that working copies follow
};

/// How the elements of one piece are carried to kernels.
struct Carrier {
  const ShardArrays& arrays;
  Access access;
  std::uint32_t key = 0;  ///< of the random words of this parameter and step
};

/// Buffers of one tile.
template <class T>
class TileBuffers {
 public:
  /// The tile of elements [at, at + count): pointers into the arrays, or to widened copies.
  Tile<T> load(const Carrier& carrier, std::int64_t at, std::int64_t count) {
    Tile<T> tile{.param = carrier.arrays.master.at<T>(at), .states = {}, .count = count};
    if (carrier.access.grad) {
      tile.grad = wide(carrier.arrays.grad, at, count, grad_);
    }
    for (std::size_t i = 0; carrier.access.reads_states && i < kMostStates; ++i) {
      tile.states[i] = wide(carrier.arrays.states[i], at, count, states_[i]);
    }
    return tile;
  }

  /// Writes 16-bit states back and leaves in the tile what was written. `element`: number of the
  /// first element in its parameter.
  void store_states(const Carrier& carrier,
                    std::int64_t at,
                    std::int64_t element,
                    const Tile<T>& tile) {
    for (std::size_t i = 0; carrier.access.writes_states && i < kMostStates; ++i) {
      const Array& array = carrier.arrays.states[i];
      if (array.is_half()) {
        const RandomWords words{.key = carrier.key,
                                .first = static_cast<std::uint32_t>(element),
                                .shift = static_cast<std::uint32_t>(16 * i)};
        round_at_random(tile.states[i], tile.count, words, array.at<std::uint16_t>(at));
      }
    }
  }

  /// Writes the 16-bit copy of the masters, if there is one.
  void store_working(const Carrier& carrier, std::int64_t at, const Tile<T>& tile) {
    const Array& array = carrier.arrays.working;
    if (!carrier.access.writes_param || array.data == nullptr) {
      return;
    }
    round_to_nearest(array.format(), tile.param, tile.count, array.at<std::uint16_t>(at));
  }

 private:
  using Buffer = std::array<T, kTile>;

  static T* wide(const Array& array, std::int64_t at, std::int64_t count, Buffer& buffer) {
    if (!array.is_half()) {
      return array.at<T>(at);
    }
    widen(array.format(), array.at<const std::uint16_t>(at), count, buffer.data());
    return buffer.data();
  }

  // Filled before they are read; to clear them would cost as much as the update.
  Buffer grad_;                             // NOLINT(cppcoreguidelines-pro-type-member-init)
  std::array<Buffer, kMostStates> states_;  // NOLINT(cppcoreguidelines-pro-type-member-init)
};

/// Whether some array of the shard needs buffers.
[[nodiscard]] inline bool has_halves(const ShardArrays& arrays) {
  return arrays.grad.is_half() || arrays.working.data != nullptr ||
         std::ranges::any_of(arrays.states, &Array::is_half);
}

}  // namespace colossal::detail
