// How is a row of features computed and classed? Keyed counters, and the nearest prototype.
#include "data/synthetic_features.hpp"

#include "core/hash.hpp"
#include "core/text.hpp"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace colossal {
namespace {

/// Prototypes of each class: more than one, so that no class is a half-space.
constexpr std::int64_t kPrototypes = 3;

/// Uniform in [-1, 1), exact in fp32.
float uniform(std::uint64_t random) {
  return static_cast<float>(random >> 40U) * 0x1p-23F - 1.0F;
}

void fill(std::span<float> row, std::uint64_t key) {
  for (std::size_t i = 0; i < row.size(); ++i) {
    row[i] = uniform(splitmix64(key + i));
  }
}

double distance(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += d * d;
  }
  return sum;
}

class SyntheticFeatures : public Dataset {
 public:
  explicit SyntheticFeatures(const DatasetRequest& request)
      : split_(request.split),
        width_(static_cast<std::size_t>(request.num_features)),
        classes_(request.vocab_size),
        seed_(static_cast<std::uint64_t>(request.seed)),
        size_(split_ == Split::train ? request.data.num_samples
                                     : std::max(request.data.num_samples / 10, std::int64_t{1})) {
    check(classes_ >= 2,
          ErrorKind::data,
          "too-few-classes",
          "synthetic features need model.out_features >= 2 classes, it is {}",
          classes_);
    prototypes_.resize(static_cast<std::size_t>(kPrototypes * classes_) * width_);
    for (std::int64_t i = 0; i < kPrototypes * classes_; ++i) {
      fill(row_of(prototypes_.data(), i), key(0, i));
    }
  }

  [[nodiscard]] std::int64_t size() const override { return size_; }

  [[nodiscard]] Batch read(std::span<const std::int64_t> indices) const override {
    const std::int64_t rows = std::ssize(indices);
    at::Tensor features = at::empty({rows, 1, static_cast<std::int64_t>(width_)}, at::kFloat);
    at::Tensor labels = at::empty({rows, 1}, at::kLong);
    auto* const label = labels.mutable_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t index = indices[static_cast<std::size_t>(i)];
      check(index >= -1 && index < size_,
            ErrorKind::internal,
            "sample-index",
            "sample {} does not exist, the set has {}",
            index,
            size_);
      const std::span<float> row = row_of(features.mutable_data_ptr<float>(), i);
      if (index >= 0) {
        fill(row, key(split_ == Split::train ? 1 : 2, index));
        label[i] = class_of(row);
      } else {
        std::ranges::fill(row, 0.0F);
        label[i] = kIgnoreLabel;
      }
    }
    Batch batch;
    batch.fields = {{"features", std::move(features)}, {"labels", std::move(labels)}};
    return batch;
  }

  [[nodiscard]] std::string fingerprint() const override {
    return sha256(fmt::format("synthetic features 1 seed {} classes {} features {} samples {}",
                              seed_,
                              classes_,
                              width_,
                              size_));
  }

  [[nodiscard]] std::string summary() const override {
    return fmt::format("synthetic: {} of {}, {}",
                       counted(size_, "row"),
                       counted(width_, "feature"),
                       counted(classes_, "class", "classes"));
  }

 private:
  /// Start of the random numbers of row `index` of one of the three streams: prototypes, train,
  /// eval.
  [[nodiscard]] std::uint64_t key(std::uint64_t stream, std::int64_t index) const {
    return splitmix64(splitmix64(splitmix64(seed_) ^ stream) ^ static_cast<std::uint64_t>(index));
  }

  template <class T>
  [[nodiscard]] std::span<T> row_of(T* rows, std::int64_t index) const {
    return {rows + static_cast<std::size_t>(index) * width_, width_};
  }

  [[nodiscard]] std::int64_t class_of(std::span<const float> row) const {
    std::int64_t best = 0;
    double least = std::numeric_limits<double>::infinity();
    for (std::int64_t i = 0; i < kPrototypes * classes_; ++i) {
      const double d = distance(row, row_of(prototypes_.data(), i));
      if (d < least) {
        least = d;
        best = i;
      }
    }
    return best % classes_;
  }

  Split split_;
  std::size_t width_;
  std::int64_t classes_;
  std::uint64_t seed_;
  std::int64_t size_;
  std::vector<float> prototypes_;
};

}  // namespace

std::unique_ptr<Dataset> make_synthetic_features(const DatasetRequest& request) {
  return std::make_unique<SyntheticFeatures>(request);
}

}  // namespace colossal
