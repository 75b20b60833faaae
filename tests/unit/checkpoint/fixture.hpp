// What do the checkpoint tests share? Small tensors with known values, saves of one rank, and
// errors as values.
#pragma once

#include "checkpoint/checkpoint.hpp"
#include "core/error.hpp"
#include "support/catch.hpp"
#include "support/temp_dir.hpp"
#include "support/text.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace colossal::test {

/// Values first, first + 1, ... in this shape.
inline at::Tensor counting(const Shape& shape,
                           at::ScalarType dtype = at::kFloat,
                           std::int64_t first = 0) {
  return at::arange(first, first + numel(shape), at::TensorOptions().dtype(at::kLong))
      .to(dtype)
      .view(shape);
}

/// A record of a tensor that this rank holds whole.
inline TensorRecord whole(std::string name, at::Tensor values) {
  TensorRecord record;
  record.name = std::move(name);
  record.global = Shape(values.sizes().begin(), values.sizes().end());
  record.local = std::move(values);
  const Shape zeros(record.global.size(), 0);
  record.regions = {{zeros, zeros, record.global}};
  return record;
}

/// The same records with zeros for values.
inline std::vector<TensorRecord> blank(std::vector<TensorRecord> records) {
  for (TensorRecord& record : records) {
    record.local = at::zeros_like(record.local);
  }
  return records;
}

/// A small model and its optimizer state; values depend on `first`.
inline std::vector<TensorRecord> small_model(std::int64_t first = 0) {
  return {whole("model/embed.weight", counting({7, 5}, at::kFloat, first)),
          whole("model/head.weight", counting({5, 3, 2}, at::kFloat, first + 100)),
          whole("optim/exp_avg/embed.weight", counting({7, 5}, at::kFloat, first + 200))};
}

/// With a loss scale at even steps.
inline RunState state_at(std::int64_t step) {
  const auto scale = step % 2 == 0
                         ? std::optional(LossScale{0.1 * static_cast<double>(step), 7, -1})
                         : std::nullopt;
  return {.step = step,
          .consumed = step * 32,
          .skipped = 1,
          .attempt = 2,
          .loss_scale = scale,
          .config_yaml = "version: 1\nrun: {name: \"test\"}\n",
          .data_fingerprint = "data-0123",
          .build_id = "build-4567"};
}

inline std::filesystem::path folder_of(const std::filesystem::path& root, std::int64_t step) {
  const std::string digits = std::to_string(step);
  return root / ("step-" + std::string(8 - digits.size(), '0') + digits);
}

/// Saves as the only rank; returns the folder.
inline std::filesystem::path save_one(const std::filesystem::path& root,
                                      std::int64_t step,
                                      const std::vector<TensorRecord>& records,
                                      const SaveOptions& options = {}) {
  save_checkpoint(root, state_at(step), records, Comm(), options);
  return folder_of(root, step);
}

/// Loads as the only rank and compares every record with the expected ones.
inline void require_loads(const std::filesystem::path& checkpoint,
                          const std::vector<TensorRecord>& expected) {
  std::vector<TensorRecord> loaded = blank(expected);
  load_tensors(checkpoint, loaded, Comm());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    INFO(expected[i].name);
    REQUIRE(at::equal(loaded[i].local, expected[i].local));
  }
}

/// Id and text of the error that `body` throws; both empty if it throws none.
struct Failure {
  std::string id;
  std::string text;
  int exit_code = 0;
};

inline Failure failure_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return {std::string(error.id()), error.what(), error.exit_code()};
  }
  return {};
}

inline void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// Names in a folder, sorted.
inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace colossal::test
