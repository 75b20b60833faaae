// How do weights come into a run that has not begun? Checked by one rank before anything is built,
// then read by every rank for its own part.
#include "train/init_weights.hpp"

#include "checkpoint/stored_config.hpp"
#include "config/load.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "models/weights_file.hpp"
#include "train/model.hpp"

#include <c10/core/ScalarType.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace colossal {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWeights = "model/";

bool is_weight(const std::string& name) {
  return name.starts_with(kWeights);
}

bool is_folder(const fs::path& path) {
  std::error_code failed;
  check(fs::exists(path, failed),
        ErrorKind::data,
        "file-not-found",
        "model.init_from: {} does not exist",
        path.string());
  return fs::is_directory(path, failed);
}

/// Every parameter of the whole model that owns memory.
std::vector<ParamSpec> owning_parameters(const Config& config, const ParallelContext& context) {
  const ModelParts parts = make_model(config, context);
  std::vector<ParamSpec> specs = param_uses(parts.blocks).specs;
  std::erase_if(specs, [](const ParamSpec& spec) { return !spec.tied_to.empty(); });
  return specs;
}

/// Where the checkpoint's model computes another function, by key.
std::vector<std::string> other_function(const fs::path& checkpoint, const Config& config) {
  std::vector<std::string> problems;
  for (const Difference& key : diff(stored_config(read_state(checkpoint)), config)) {
    if (key.resume_class == ResumeClass::must_match && key.path.starts_with("model.")) {
      problems.push_back(
          fmt::format("{}: {} in the checkpoint, {} here", key.path, key.saved, key.now));
    }
  }
  return problems;
}

void compare_tensors(const std::vector<TensorInfo>& stored,
                     const std::vector<ParamSpec>& wanted,
                     std::vector<std::string>& problems) {
  std::map<std::string, const TensorInfo*> left;
  for (const TensorInfo& tensor : stored) {
    if (is_weight(tensor.name)) {
      left[tensor.name] = &tensor;
    }
  }
  for (const ParamSpec& spec : wanted) {
    const auto found = left.find(std::string(kWeights) + spec.name);
    if (found == left.end()) {
      problems.push_back("missing: " + spec.name);
      continue;
    }
    if (found->second->global != spec.shape) {
      problems.push_back(fmt::format("shape: {} is {} in the checkpoint, {} here",
                                     spec.name,
                                     found->second->global,
                                     spec.shape));
    } else if (!c10::isFloatingType(found->second->dtype)) {
      problems.push_back(fmt::format("type: {} holds whole numbers", spec.name));
    }
    left.erase(found);
  }
  for (const auto& [name, tensor] : left) {
    problems.push_back("unknown: " + name.substr(kWeights.size()));
  }
}

/// Copies what the record holds of `values`, its whole tensor.
void fill(const TensorRecord& record, const at::Tensor& values) {
  for (const Region& region : record.regions) {
    at::Tensor to = record.local;
    at::Tensor from = values;
    for (std::size_t d = 0; d < region.extent.size(); ++d) {
      const auto dim = static_cast<std::int64_t>(d);
      to = to.narrow(dim, region.local_offset[d], region.extent[d]);
      from = from.narrow(dim, region.global_offset[d], region.extent[d]);
    }
    to.copy_(from);
  }
}

/// Parts of one tensor lie behind each other: the tensor is read once for all of them.
void load_file(const WeightsFile& file, std::span<const TensorRecord> weights) {
  std::string name;
  at::Tensor values;
  for (const TensorRecord& record : weights) {
    if (record.name != name) {
      name = record.name;
      values = file.values(name.substr(kWeights.size()));
    }
    fill(record, values);
  }
}

}  // namespace

fs::path check_initial_weights(const Config& config) {
  const fs::path path = config.model.init_from;
  const ParallelContext alone(config);
  const std::vector<ParamSpec> specs = owning_parameters(config, alone);
  if (!is_folder(path)) {
    WeightsFile(path, config.model, specs).require_range(alone.master_dtype());
    return path;
  }
  const fs::path checkpoint = find_checkpoint(path);
  std::vector<std::string> problems = other_function(checkpoint, config);
  compare_tensors(list_tensors(checkpoint), specs, problems);
  check_weights(checkpoint, problems);
  return checkpoint;
}

fs::path settle_initial_weights(const Config& config, const CheckpointChoice& chosen) {
  if (config.model.init_from.empty()) {
    return {};
  }
  if (!chosen.candidates.empty()) {
    log::info("[checkpoint] the run goes on from {}, the weights of {} are not used [init-ignored]",
              chosen.candidates.front().path.string(),
              config.model.init_from);
    return {};
  }
  return blaming("model.init_from", [&] { return check_initial_weights(config); });
}

void load_initial_weights(const fs::path& from,
                          const Config& config,
                          const ParallelContext& context,
                          std::span<const TensorRecord> records,
                          const Comm& world) {
  std::vector<TensorRecord> weights;
  std::ranges::copy_if(records, std::back_inserter(weights), [](const TensorRecord& record) {
    return is_weight(record.name);
  });
  if (is_folder(from)) {
    load_tensors(from, weights, world);
  } else {
    load_file(WeightsFile(from, config.model, owning_parameters(config, context)), weights);
  }
}

}  // namespace colossal
