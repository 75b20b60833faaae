// How is a synthetic sample computed? From a keyed counter, token by token: nothing is stored but
// the rule.
#include "data/synthetic.hpp"

#include "core/hash.hpp"
#include "core/text.hpp"
#include "data/detail/token_rows.hpp"
#include "data/sampler.hpp"
#include "data/synthetic_features.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace colossal {
namespace {

/// One token in ten breaks the rule.
constexpr std::uint64_t kNoise = 10;

class SyntheticDataset : public Dataset {
 public:
  explicit SyntheticDataset(const DatasetRequest& request)
      : split_(request.split),
        sequence_(request.data.seq_length),
        vocabulary_(request.vocab_size),
        seed_(static_cast<std::uint64_t>(request.seed)),
        size_(split_ == Split::train ? request.data.num_samples
                                     : std::max(request.data.num_samples / 10, std::int64_t{1})) {
    check(vocabulary_ >= 2,
          ErrorKind::data,
          "vocab-too-small",
          "synthetic data needs model.vocab_size >= 2, it is {}",
          vocabulary_);
    for (std::int64_t token = 0; token < vocabulary_; ++token) {
      rule_.push_back(feistel(token, vocabulary_, seed_, 0));
    }
  }

  [[nodiscard]] std::int64_t size() const override { return size_; }

  [[nodiscard]] Batch read(std::span<const std::int64_t> indices) const override {
    return detail::read_token_rows(
        indices,
        {.size = size_, .sequence = sequence_},
        [this](std::int64_t index, const detail::TokenRow& row) { read_row(index, row); });
  }

  [[nodiscard]] std::string fingerprint() const override {
    return sha256(fmt::format("synthetic 1 seed {} vocabulary {} sequence {} samples {}",
                              seed_,
                              vocabulary_,
                              sequence_,
                              size_));
  }

  [[nodiscard]] std::string summary() const override {
    return fmt::format("synthetic: {} of {}, vocabulary {}",
                       counted(size_, "sample"),
                       counted(sequence_, "token"),
                       vocabulary_);
  }

 private:
  void read_row(std::int64_t index, const detail::TokenRow& row) const {
    const std::uint64_t stream = splitmix64(seed_) ^ (split_ == Split::train ? 1U : 2U);
    const std::uint64_t key = splitmix64(splitmix64(stream) ^ static_cast<std::uint64_t>(index));
    std::int64_t token = any_token(splitmix64(key));
    for (std::size_t at = 0; at < row.tokens.size(); ++at) {
      row.tokens[at] = token;
      token = successor(token, splitmix64(key + at + 1));
      row.labels[at] = token;
    }
  }

  [[nodiscard]] std::int64_t any_token(std::uint64_t random) const {
    return static_cast<std::int64_t>(random % static_cast<std::uint64_t>(vocabulary_));
  }

  [[nodiscard]] std::int64_t successor(std::int64_t token, std::uint64_t random) const {
    return random % kNoise == 0 ? any_token(random / kNoise)
                                : rule_[static_cast<std::size_t>(token)];
  }

  Split split_;
  std::int64_t sequence_;
  std::int64_t vocabulary_;
  std::uint64_t seed_;
  std::int64_t size_;
  std::vector<std::int64_t> rule_;
};

}  // namespace

std::unique_ptr<Dataset> make_synthetic_dataset(const DatasetRequest& request) {
  if (request.num_features > 0) {
    return make_synthetic_features(request);
  }
  return std::make_unique<SyntheticDataset>(request);
}

}  // namespace colossal
