// How do several datasets with weights become one?
#pragma once

#include "data/dataset.hpp"

#include <memory>
#include <vector>

namespace colossal {

/// One dataset of a blend.
struct BlendPart {
  std::unique_ptr<Dataset> dataset;
  double weight = 1;
};

/// The samples of all parts, numbered one after another; SampleOrder draws from them by weight. The
/// summary states the share of each. Parts must give batches with the same fields.
[[nodiscard]] std::unique_ptr<Dataset> blend_datasets(std::vector<BlendPart> parts);

}  // namespace colossal
