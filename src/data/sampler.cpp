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

Blend::Blend(const std::vector<SampleSource>& sources) : counts_(sources.size(), 0) {
  double sum = 0;
  for (const SampleSource& source : sources) {
    sum += source.weight;
  }
  for (const SampleSource& source : sources) {
    weights_.push_back(source.weight / sum);
  }
}

std::size_t Blend::choose() const {
  const auto scale = static_cast<double>(std::max<std::int64_t>(next_, 1));
  std::size_t best = 0;
  double most = weights_[0] * scale - static_cast<double>(counts_[0]);
  for (std::size_t d = 1; d < weights_.size(); ++d) {
    const double missing = weights_[d] * scale - static_cast<double>(counts_[d]);
    if (missing > most) {
      best = d;
      most = missing;
    }
  }
  return best;
}

Blend::Draw Blend::at(std::int64_t position) {
  if (position < next_) {
    std::ranges::fill(counts_, 0);
    next_ = 0;
  }
  for (; next_ < position; ++next_) {
    ++counts_[choose()];
  }
  const std::size_t source = choose();
  return {source, counts_[source]};
}

std::int64_t positions_per_epoch(std::int64_t size,
                                 std::int64_t global_batch,
                                 LastBatch last_batch) {
  const std::int64_t rest = size % global_batch;
  switch (last_batch) {
    case LastBatch::drop:
      return size - rest;
    case LastBatch::pad:
      return rest == 0 ? size : size - rest + global_batch;
    case LastBatch::wrap:
      break;
  }
  return size;
}

SampleOrder::SampleOrder(std::vector<SampleSource> sources, const OrderSpec& spec)
    : shuffle_(spec.shuffle) {
  std::int64_t size = 0;
  for (const SampleSource& source : sources) {
    // Equal sizes must not mean equal orders.
    const std::uint64_t seed =
        sources_.empty() ? spec.seed : splitmix64(spec.seed + sources_.size());
    sources_.push_back({.first = size, .size = source.size, .seed = seed});
    size += source.size;
  }
  if (sources.size() > 1) {
    blend_.emplace(sources);
  }
  const LastBatch last_batch = blend_ ? LastBatch::wrap : spec.last_batch;
  per_epoch_ = positions_per_epoch(size, spec.global_batch, last_batch);
  check(per_epoch_ > 0,
        ErrorKind::data,
        "data-too-small",
        "the training set has {} samples, one step needs train.global_batch_size = {}; add data, "
        "shorten seq_length or make the batch smaller",
        size,
        spec.global_batch);
}

std::int64_t SampleOrder::index(std::int64_t position) {
  if (blend_) {
    const Blend::Draw draw = blend_->at(position);
    Source& source = sources_[draw.source];
    return index_in(source, draw.count / source.size, draw.count % source.size);
  }
  const std::int64_t place = position % per_epoch_;
  return place < sources_[0].size ? index_in(sources_[0], epoch(position), place) : -1;
}

std::int64_t SampleOrder::index_in(Source& source, std::int64_t epoch, std::int64_t place) const {
  if (epoch != source.epoch) {
    source.order.emplace(source.size, source.seed, epoch, shuffle_);
    source.epoch = epoch;
  }
  return source.first + (*source.order)[place];
}

}  // namespace colossal
