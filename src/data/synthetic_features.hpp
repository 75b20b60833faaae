// What can a classifier be trained on without any file? Rows of features whose class is a rule.
#pragma once

#include "data/dataset.hpp"

#include <memory>

namespace colossal {

/// Dataset `synthetic` of a model that reads features: "features" [n,1,F] fp32 uniform in [-1, 1),
/// "labels" [n,1]: the class of the nearest of 3 prototypes a class, which the seed places alike.
/// Noise-free, not linearly separable. Content = f(seed, split, sample index); sizes of the splits
/// as for tokens. Errors: data "too-few-classes" below 2 classes.
[[nodiscard]] std::unique_ptr<Dataset> make_synthetic_features(const DatasetRequest& request);

}  // namespace colossal
