// How is a permutation of any size computed without storing it?
#include "data/sampler.hpp"

#include "core/error.hpp"
#include "core/hash.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <utility>

namespace colossal {
namespace {

constexpr std::int64_t kTableLimit = std::int64_t{1}
                                     << 16;  // small Feistel permutations are visibly structured
constexpr std::size_t kRounds = 6;

std::uint64_t epoch_key(std::uint64_t seed, std::int64_t epoch) {
  return splitmix64(splitmix64(seed) ^ static_cast<std::uint64_t>(epoch));
}

/// Fisher-Yates with one keyed draw per element; the bias of the remainder is below 2^-47 here.
std::vector<std::int64_t> shuffled(std::int64_t size, std::uint64_t key) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t last = order.size(); last-- > 1;) {
    std::swap(order[last], order[splitmix64(key ^ last) % (last + 1)]);
  }
  return order;
}

}  // namespace

std::int64_t feistel(std::int64_t position,
                     std::int64_t size,
                     std::uint64_t seed,
                     std::int64_t epoch) {
  const auto limit = static_cast<std::uint64_t>(size);
  const auto bits = std::max(2U, static_cast<unsigned>(std::bit_width(limit - 1)));
  const unsigned half = (bits + 1) / 2;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  std::array<std::uint64_t, kRounds> keys = {};
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    keys[round] = splitmix64(epoch_key(seed, epoch) ^ round);
  }
  auto value = static_cast<std::uint64_t>(position);
  do {  // cycle walking: the network permutes a power of 4 >= size
    std::uint64_t left = value >> half;
    std::uint64_t right = value & mask;
    for (const std::uint64_t key : keys) {
      left = std::exchange(right, left ^ (splitmix64(right ^ key) & mask));
    }
    value = left << half | right;
  } while (value >= limit);
  return static_cast<std::int64_t>(value);
}

EpochOrder::EpochOrder(std::int64_t size, std::uint64_t seed, std::int64_t epoch, bool shuffle)
    : size_(size), seed_(seed), epoch_(epoch), shuffle_(shuffle) {
  if (shuffle_ && size_ < kTableLimit) {
    table_ = shuffled(size_, epoch_key(seed_, epoch_));
  }
}

std::int64_t EpochOrder::operator[](std::int64_t position) const {
  check(position >= 0 && position < size_,
        ErrorKind::internal,
        "sample-position",
        "position {} is outside an epoch of {} samples",
        position,
        size_);
  if (!shuffle_) {
    return position;
  }
  return table_.empty() ? feistel(position, size_, seed_, epoch_)
                        : table_[static_cast<std::size_t>(position)];
}

SampleOrder::SampleOrder(std::int64_t size,
                         std::int64_t global_batch,
                         std::uint64_t seed,
                         bool shuffle)
    : size_(size), per_epoch_(size - size % global_batch), seed_(seed), shuffle_(shuffle) {
  check(per_epoch_ > 0,
        ErrorKind::data,
        "data-too-small",
        "the training set has {} samples, one step needs train.global_batch_size = {}; add data, "
        "shorten seq_length or "
        "make the batch smaller",
        size,
        global_batch);
}

std::int64_t SampleOrder::index(std::int64_t position) {
  const std::int64_t wanted = epoch(position);
  if (wanted != cached_epoch_) {
    order_.emplace(size_, seed_, wanted, shuffle_);
    cached_epoch_ = wanted;
  }
  return (*order_)[position % per_epoch_];
}

}  // namespace colossal
