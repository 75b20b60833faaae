// What does a block see of the data? The one header of core that includes torch (header only: core
// links no torch).
#pragma once

#include "core/error.hpp"
#include "core/types.hpp"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace colossal {

/// How training takes the loss of a micro-batch. Evaluation takes the plain sum.
struct LossRule {
  /// What the sum of the losses is multiplied by for the gradient, where it is known.
  std::optional<double> factor = {};
  /// Share of each target that is spread evenly over all classes (label smoothing).
  double smoothing = 0;
  /// What the sum of the losses counts in the loss of the step.
  double weight = 1;

  bool operator==(const LossRule&) const = default;
};

/// One micro-batch of this data coordinate: named tensors whose dim 0 is the sample, and what keyed
/// random numbers need.
struct Batch {
  /// "tokens" [B,S] int64, "labels" [B,S] int64 with -100 where no loss is taken,
  /// "document_starts" [B,S] int64 where documents do not see each other: the place in its row at
  /// which the document of each token begins, at most the token's own and never decreasing.
  std::map<std::string, at::Tensor, std::less<>> fields;
  /// Row of this micro-batch's first sample in the step's global batch: keys dropout independently
  /// of the layout.
  std::int64_t first_row = 0;
  /// Optimizer step (0-based) this batch belongs to; keys dropout.
  std::int64_t step = 0;
  /// In the memory of a GPU that repeats recorded work: added to `step` there; may be null.
  const std::uint32_t* later = nullptr;
  /// False in evaluation: dropout is off.
  bool training = true;
  LossRule loss;

  /// The field called `name`. Errors: internal "batch-field" if absent.
  [[nodiscard]] const at::Tensor& at(std::string_view name) const {
    const auto it = fields.find(name);
    check(it != fields.end(), ErrorKind::internal, "batch-field", "batch has no field '{}'", name);
    return it->second;
  }

  /// The field called `name`; an undefined tensor if absent.
  [[nodiscard]] at::Tensor find(std::string_view name) const {
    const auto it = fields.find(name);
    return it == fields.end() ? at::Tensor() : it->second;
  }
};

/// Label that takes no part in the loss.
inline constexpr std::int64_t kIgnoreLabel = -100;

/// Micro-batch shape a model is asked about before any data exists: B sequences of S tokens.
struct BatchShape {
  std::int64_t batch = 0;
  std::int64_t sequence = 0;
};

}  // namespace colossal
