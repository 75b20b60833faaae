// Which tensors of another program's file are the weights of a model? All of them, by name, shape
// and kind of number, or none.
#pragma once

#include "checkpoint/safetensors.hpp"
#include "config/config.hpp"
#include "models/exchange.hpp"
#include "nn/parameter.hpp"

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace colossal {

/// Refuses weights that do not fit the model. `problems`: what is missing, unknown or different,
/// one a line; the first ten are told. Errors: checkpoint "weights-mismatch" if there is any.
void check_weights(const std::filesystem::path& weights, const std::vector<std::string>& problems);

/// A .safetensors file whose tensors are those of a model. GPT-2 files may hold causal masks and,
/// with tied embeddings, the head once more; a config.json beside the file must describe the same
/// function.
class WeightsFile {
 public:
  /// `parameters`: those that own memory. Errors: data "file-not-found", "data-unreadable";
  /// checkpoint "weights-damaged", "weights-dtype", "weights-config", "weights-mismatch".
  WeightsFile(const std::filesystem::path& path,
              const ModelConfig& model,
              std::span<const ParamSpec> parameters);

  /// No number may become infinite in the type of the masters. Errors: numerics "weights-overflow".
  void require_range(at::ScalarType master) const;
  /// The values of a parameter, in its own shape and the type of the file.
  [[nodiscard]] at::Tensor values(const std::string& parameter) const;

 private:
  struct Source {
    const SafeTensor* entry = nullptr;
    bool transposed = false;
  };

  void match(const std::vector<ExchangedTensor>& wanted);
  const SafeTensor* find(const std::string& name);
  bool fits(const SafeTensor& entry, const Shape& shape);
  void match_rest(const SafeTensor& entry);

  SafetensorsFile file_;
  const ModelConfig& model_;
  std::map<std::string, Source> sources_;  // by parameter
  std::set<const SafeTensor*> used_;
  std::vector<std::string> problems_;
};

}  // namespace colossal
