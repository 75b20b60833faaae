// What is in a checkpoint, is it whole, and how does it differ from another one?
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/detail/boxes.hpp"
#include "checkpoint/detail/folders.hpp"
#include "checkpoint/detail/hdf5.hpp"
#include "checkpoint/detail/manifest.hpp"
#include "checkpoint/detail/rank_file.hpp"
#include "core/error.hpp"
#include "core/text.hpp"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>

namespace colossal {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using detail::Manifest;
using detail::StoredBox;
using detail::StoredTensor;

/// A checkpoint whose manifest and file sizes are right.
struct Opened {
  fs::path path;
  Manifest manifest;
};

Opened open_checkpoint(const fs::path& path) {
  Opened opened{find_checkpoint(path), {}};
  opened.manifest = detail::read_manifest(opened.path);
  detail::check_files(opened.path, opened.manifest);
  return opened;
}

/// What a comparison found; names in order.
struct Differences {
  fs::path other;
  std::vector<std::string> only_here;
  std::vector<std::string> only_there;
  std::vector<std::string> shapes;
  std::vector<std::pair<std::string, double>> values;  ///< max|a-b| of tensors that differ
  std::size_t num_equal = 0;

  [[nodiscard]] bool equal() const {
    return only_here.empty() && only_there.empty() && shapes.empty() && values.empty();
  }
};

/// What was asked about one checkpoint, and the answers.
struct Report {
  Opened opened;
  InspectOptions options;
  std::size_t verified_boxes = 0;
  std::optional<Differences> differences;
};

/// The whole tensor as fp64 on the CPU.
at::Tensor assemble(detail::BoxReader& reader, const StoredTensor& tensor) {
  at::Tensor whole = at::empty(tensor.global, at::TensorOptions().dtype(at::kDouble));
  const detail::Box everything{Shape(tensor.global.size(), 0), tensor.global};
  for (const StoredBox& box : tensor.boxes) {
    detail::view_of(whole, everything, box.box).copy_(reader.read(tensor, box));
  }
  return whole;
}

/// Equal NaNs count as equal, one NaN as infinitely far.
double max_difference(const at::Tensor& a, const at::Tensor& b) {
  const auto* x = a.const_data_ptr<double>();
  const auto* y = b.const_data_ptr<double>();
  double largest = 0;
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) {
      continue;
    }
    const double distance = std::abs(x[i] - y[i]);
    largest = std::isnan(distance) ? std::numeric_limits<double>::infinity()
                                   : std::max(largest, distance);
  }
  return largest;
}

Differences compare(const Opened& here, const Opened& there) {
  Differences found{there.path, {}, {}, {}, {}, 0};
  std::map<std::string_view, const StoredTensor*> others;
  for (const StoredTensor& tensor : there.manifest.tensors) {
    others[tensor.name] = &tensor;
  }
  detail::BoxReader reader_here(here.path, here.manifest);
  detail::BoxReader reader_there(there.path, there.manifest);
  for (const StoredTensor& tensor : here.manifest.tensors) {
    const auto it = others.find(tensor.name);
    if (it == others.end()) {
      found.only_here.push_back(tensor.name);
      continue;
    }
    const StoredTensor& other = *it->second;
    others.erase(it);
    if (tensor.global != other.global) {
      found.shapes.push_back(fmt::format("{}: {} here, {} there",
                                         tensor.name,
                                         detail::to_text(tensor.global),
                                         detail::to_text(other.global)));
      continue;
    }
    const double distance =
        max_difference(assemble(reader_here, tensor), assemble(reader_there, other));
    if (distance > 0) {
      found.values.emplace_back(tensor.name, distance);
    } else {
      ++found.num_equal;
    }
  }
  for (const auto& [name, tensor] : others) {
    found.only_there.emplace_back(name);
  }
  return found;
}

/// Reads every box; returns their number.
std::size_t verify(const Opened& opened) {
  detail::BoxReader reader(opened.path, opened.manifest);
  std::size_t boxes = 0;
  for (const StoredTensor& tensor : opened.manifest.tensors) {
    for (const StoredBox& box : tensor.boxes) {
      static_cast<void>(reader.read(tensor, box));
      ++boxes;
    }
  }
  return boxes;
}

std::int64_t num_elements(const Manifest& manifest) {
  std::int64_t total = 0;
  for (const StoredTensor& tensor : manifest.tensors) {
    total += numel(tensor.global);
  }
  return total;
}

/// "39 model, 78 optim".
std::string groups_text(const Manifest& manifest) {
  std::map<std::string, int> counts;
  for (const StoredTensor& tensor : manifest.tensors) {
    ++counts[tensor.name.substr(0, tensor.name.find('/'))];
  }
  std::string text;
  for (const auto& [group, count] : counts) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, group);
  }
  return text;
}

std::string tensors_text(const Manifest& manifest) {
  std::size_t width = 0;
  for (const StoredTensor& tensor : manifest.tensors) {
    width = std::max(width, tensor.name.size());
  }
  std::string text;
  for (const StoredTensor& tensor : manifest.tensors) {
    text += fmt::format("  {:{}}  {:8}  {:>10}  {}\n",
                        tensor.name,
                        width,
                        detail::dtype_name(tensor.dtype),
                        counted(std::ssize(tensor.boxes), "box", "boxes"),
                        detail::to_text(tensor.global));
  }
  return text;
}

std::string differences_text(const Differences& found) {
  std::string text = fmt::format("diff        {}\n", found.other.string());
  for (const std::string& name : found.only_here) {
    text += fmt::format("  only here   {}\n", name);
  }
  for (const std::string& name : found.only_there) {
    text += fmt::format("  only there  {}\n", name);
  }
  for (const std::string& line : found.shapes) {
    text += fmt::format("  shape       {}\n", line);
  }
  for (const auto& [name, distance] : found.values) {
    text += fmt::format("  max|a-b|    {:<10.4g}  {}\n", distance, name);
  }
  return text + fmt::format("  {}{} equal values\n",
                            found.equal() ? "equal: all " : "",
                            counted(found.num_equal, "tensor has", "tensors have"));
}

/// What was measured of these weights; empty if nothing was.
std::string metrics_line(const RunState& state) {
  std::string text;
  for (const auto& [name, value] : state.metrics) {
    text += fmt::format("{}{} {:.6g}", text.empty() ? "metrics     " : ", ", name, value);
  }
  return text.empty() ? text : text + "\n";
}

std::string as_text(const Report& report) {
  const auto& [opened, options, verified_boxes, differences] = report;
  const Manifest& manifest = opened.manifest;
  const RunState& state = manifest.state;
  std::string text = fmt::format(
      "checkpoint  {}\n"
      "step        {} (attempt {}), {} consumed, {} skipped{}\n"
      "files       {} and the manifest, {}, written by {}\n"
      "tensors     {}; {} elements\n"
      "build       {}\n"
      "data        {}\n",
      opened.path.string(),
      state.step,
      state.attempt,
      counted(state.consumed, "sample"),
      counted(state.skipped, "update"),
      state.weights_only ? "; weights only" : "",
      manifest.files.size(),
      human_bytes(static_cast<double>(detail::total_bytes(opened.path, manifest)), 2),
      counted(manifest.world_size, "rank"),
      groups_text(manifest),
      num_elements(manifest),
      state.build_id,
      state.data_fingerprint);
  text += metrics_line(state);
  if (options.tensors) {
    text += tensors_text(manifest);
  }
  if (options.verify) {
    const std::size_t unchecked = detail::count_unchecked(manifest);
    text += fmt::format(
        "verified    {}, {}\n",
        counted(verified_boxes, "box", "boxes"),
        unchecked == 0
            ? "every checksum is right"
            : fmt::format("{} of them without a checksum: readable, nothing more", unchecked));
  }
  return differences ? text + differences_text(*differences) : text;
}

std::string as_json(const Report& report) {
  const auto& [opened, options, verified_boxes, differences] = report;
  const Manifest& manifest = opened.manifest;
  Json json = {{"checkpoint", opened.path.string()},
               {"state", detail::to_json(manifest.state)},
               {"world_size", manifest.world_size},
               {"bytes", detail::total_bytes(opened.path, manifest)},
               {"num_tensors", manifest.tensors.size()},
               {"num_elements", num_elements(manifest)}};
  if (options.tensors) {
    json["tensors"] = detail::to_json(manifest.tensors);
  }
  if (options.verify) {
    json["verified_boxes"] = verified_boxes;
    json["unchecked_boxes"] = detail::count_unchecked(manifest);
  }
  if (differences) {
    Json values = Json::object();
    for (const auto& [name, distance] : differences->values) {
      // JSON has no infinity: null means one side is NaN or infinite.
      values[name] = distance;
    }
    json["diff"] = {{"other", differences->other.string()},
                    {"equal", differences->equal()},
                    {"only_here", differences->only_here},
                    {"only_there", differences->only_there},
                    {"shapes", differences->shapes},
                    {"max_difference", std::move(values)}};
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string inspect(const fs::path& checkpoint_or_run, const InspectOptions& options) {
  Report report{open_checkpoint(checkpoint_or_run), options, 0, std::nullopt};
  if (options.verify) {
    report.verified_boxes = verify(report.opened);
  }
  if (options.diff) {
    report.differences = compare(report.opened, open_checkpoint(*options.diff));
  }
  return options.json ? as_json(report) : as_text(report);
}

}  // namespace colossal
