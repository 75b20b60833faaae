// How is each parameter found in the file? By its exchanged name; everything that does not fit is
// collected first.
#include "models/weights_file.hpp"

#include "core/error.hpp"
#include "core/system.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/isfinite.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <system_error>

namespace colossal {
namespace {

namespace fs = std::filesystem;

/// Equal as numbers, whatever types hold them.
bool same_values(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() ? at::equal(a, b)
                                            : at::equal(a.to(at::kDouble), b.to(at::kDouble));
}

/// What config.json, if there is one, says otherwise than the configuration.
std::vector<std::string> described_otherwise(const fs::path& weights, const ModelConfig& model) {
  const fs::path file = weights.parent_path() / "config.json";
  std::error_code failed;
  if (!fs::exists(file, failed)) {
    return {};
  }
  return config_differences(model, read_text(file));
}

}  // namespace

void check_weights(const fs::path& weights, const std::vector<std::string>& problems) {
  constexpr std::size_t kShown = 10;
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, problems.size()); ++i) {
    text += "\n  " + problems[i];
  }
  if (problems.size() > kShown) {
    text += fmt::format("\n  and {} more", problems.size() - kShown);
  }
  check(problems.empty(),
        ErrorKind::checkpoint,
        "weights-mismatch",
        "{} does not fit the model of the configuration:{}\n  fix   change the section model",
        weights.string(),
        text);
}

WeightsFile::WeightsFile(const fs::path& path,
                         const ModelConfig& model,
                         std::span<const ParamSpec> parameters)
    : file_(path), model_(model), problems_(described_otherwise(path, model)) {
  match(exchanged_tensors(model, parameters));
  check_weights(path, problems_);
}

void WeightsFile::match(const std::vector<ExchangedTensor>& wanted) {
  for (const ExchangedTensor& tensor : wanted) {
    if (const SafeTensor* const entry = find(tensor.name); entry == nullptr) {
      problems_.push_back(fmt::format("missing: {}", tensor.name));
    } else if (fits(*entry, tensor.shape)) {
      sources_[tensor.parameter] = {entry, tensor.transposed};
    }
  }
  for (const SafeTensor& entry : file_.tensors()) {
    if (!used_.contains(&entry) && !is_mask_buffer(entry.name)) {
      match_rest(entry);
    }
  }
}

void WeightsFile::require_range(at::ScalarType master) const {
  for (const auto& [parameter, source] : sources_) {
    if (source.entry->dtype != at::kDouble || master == at::kDouble) {
      continue;  // masters hold what any narrower type does
    }
    const at::Tensor values = file_.read(*source.entry);
    check(at::equal(at::isfinite(values), at::isfinite(values.to(master))),
          ErrorKind::numerics,
          "weights-overflow",
          "'{}' has values that {} cannot hold\n  fix   --set train.precision=fp64",
          source.entry->name,
          safetensors_word(master));
  }
}

at::Tensor WeightsFile::values(const std::string& parameter) const {
  const auto& [entry, transposed] = sources_.at(parameter);
  const at::Tensor values = file_.read(*entry);
  return transposed ? values.t() : values;
}

const SafeTensor* WeightsFile::find(const std::string& name) {
  const SafeTensor* entry = file_.find(name);
  entry = entry != nullptr ? entry : file_.find(without_prefix(name));
  used_.insert(entry);
  return entry;
}

bool WeightsFile::fits(const SafeTensor& entry, const Shape& shape) {
  const bool is_number =
      entry.dtype != at::ScalarType::Undefined && c10::isFloatingType(entry.dtype);
  if (!is_number) {
    problems_.push_back(
        fmt::format("type: {} is stored as {}, weights must be F64, F32, F16 or BF16",
                    entry.name,
                    safetensors_word(entry.dtype)));
  } else if (entry.shape != shape) {
    problems_.push_back(
        fmt::format("shape: {} is {} in the file, {} here", entry.name, entry.shape, shape));
  }
  return is_number && entry.shape == shape;
}

/// A tensor that no parameter asked for: the head of tied embeddings may be stored twice.
void WeightsFile::match_rest(const SafeTensor& entry) {
  const auto embedding = sources_.find("embed.tokens.weight");
  const bool is_head = entry.name == "lm_head.weight" || entry.name == "head.weight";
  if (!is_head || !model_.tie_embeddings || embedding == sources_.end()) {
    problems_.push_back(fmt::format("unknown: {}", entry.name));
  } else if (fits(entry, embedding->second.entry->shape) &&
             !same_values(file_.read(entry), file_.read(*embedding->second.entry))) {
    problems_.push_back(fmt::format(
        "{} differs from the embeddings: it needs model.tie_embeddings: false", entry.name));
  }
}

}  // namespace colossal
