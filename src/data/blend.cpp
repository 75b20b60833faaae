// How is a batch put together from rows of several datasets? Each part reads its rows, which are
// then copied to their places.
#include "data/blend.hpp"

#include "core/hash.hpp"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace colossal {
namespace {

/// Copies row k of every field of `from` to row places[k] of `to`, which gets its fields first.
void place_rows(const Batch& from,
                const std::vector<std::size_t>& places,
                std::int64_t num_rows,
                Batch& to) {
  for (const auto& [name, rows] : from.fields) {
    at::Tensor& all = to.fields[name];
    if (!all.defined()) {
      Shape shape = rows.sizes().vec();
      shape[0] = num_rows;
      all = at::empty(shape, rows.options());
    }
    const auto row_bytes = static_cast<std::size_t>(rows.nbytes()) / places.size();
    const auto* source = static_cast<const std::byte*>(rows.const_data_ptr());
    auto* const target = static_cast<std::byte*>(all.mutable_data_ptr());
    for (const std::size_t place : places) {
      std::memcpy(target + place * row_bytes, source, row_bytes);
      source += row_bytes;
    }
  }
}

class BlendedDataset : public Dataset {
 public:
  explicit BlendedDataset(std::vector<BlendPart> parts) : parts_(std::move(parts)) {
    for (const BlendPart& part : parts_) {
      firsts_.push_back(size_);
      size_ += part.dataset->size();
      weight_ += part.weight;
    }
  }

  [[nodiscard]] std::int64_t size() const override { return size_; }

  [[nodiscard]] std::vector<SampleSource> sources() const override {
    std::vector<SampleSource> all;
    for (const BlendPart& part : parts_) {
      all.push_back({part.dataset->size(), part.weight});
    }
    return all;
  }

  [[nodiscard]] Batch read(std::span<const std::int64_t> indices) const override {
    std::vector<std::vector<std::int64_t>> wanted(parts_.size());
    std::vector<std::vector<std::size_t>> places(parts_.size());
    for (std::size_t row = 0; row < indices.size(); ++row) {
      const std::size_t part = part_of(indices[row]);
      // a row without weight stays -1; an index beyond the end is refused by the last part
      wanted[part].push_back(indices[row] < 0 ? indices[row] : indices[row] - firsts_[part]);
      places[part].push_back(row);
    }
    Batch batch;
    for (std::size_t part = 0; part < parts_.size(); ++part) {
      if (!wanted[part].empty()) {
        place_rows(
            parts_[part].dataset->read(wanted[part]), places[part], std::ssize(indices), batch);
      }
    }
    return batch;
  }

  [[nodiscard]] std::string fingerprint() const override {
    std::string identity = "blend";
    for (const BlendPart& part : parts_) {
      identity += fmt::format(" {}:{}", part.weight, part.dataset->fingerprint());
    }
    const std::string tokenizer = tokenizer_part(parts_.front().dataset->fingerprint());
    return sha256(identity) + (tokenizer.empty() ? "" : "+" + tokenizer);
  }

  [[nodiscard]] std::string summary() const override {
    std::string text;
    for (const BlendPart& part : parts_) {
      text += fmt::format("{}{:.2f} % {}",
                          text.empty() ? "" : "; ",
                          100 * part.weight / weight_,
                          part.dataset->summary());
    }
    return text;
  }

 private:
  [[nodiscard]] std::size_t part_of(std::int64_t index) const {
    const auto next = std::ranges::upper_bound(firsts_, std::max<std::int64_t>(index, 0));
    return static_cast<std::size_t>(next - firsts_.begin()) - 1;
  }

  std::vector<BlendPart> parts_;
  std::vector<std::int64_t> firsts_;
  std::int64_t size_ = 0;
  double weight_ = 0;
};

}  // namespace

std::unique_ptr<Dataset> blend_datasets(std::vector<BlendPart> parts) {
  return std::make_unique<BlendedDataset>(std::move(parts));
}

}  // namespace colossal
