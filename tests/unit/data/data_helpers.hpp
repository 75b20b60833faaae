// What do the data tests share? Small files, error ids, and rows as plain vectors.
#pragma once

#include "core/error.hpp"
#include "data/dataset.hpp"
#include "support/catch.hpp"

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace colossal::test {

/// Writes `content` to folder/name and returns the path.
inline std::string write_file(const std::filesystem::path& folder,
                              const std::string& name,
                              std::string_view content) {
  const std::filesystem::path path = folder / name;
  std::ofstream(path, std::ios::binary) << content;
  return path.string();
}

/// Settings of a text set with these training files.
inline DataConfig text_config(std::vector<std::string> files, std::int64_t sequence) {
  DataConfig config;
  config.type = DataType::text;
  for (std::string& file : files) {
    config.train.push_back({.path = std::move(file)});
  }
  config.eval = config.train;
  config.seq_length = sequence;
  return config;
}

/// Row `row` of a [n,S] field.
inline std::vector<std::int64_t> row_of(const Batch& batch,
                                        std::string_view field,
                                        std::int64_t row) {
  const at::Tensor values = batch.at(field).select(0, row).contiguous();
  const auto* data = values.const_data_ptr<std::int64_t>();
  return {data, data + values.numel()};
}

/// Runs `action`, which must throw Error, and returns that error.
template <class Action>
Error error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  throw std::logic_error("no error was thrown");
}

}  // namespace colossal::test
