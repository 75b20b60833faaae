// How does the first write of a step replace what the memory of a gradient holds, so that nobody
// has to zero it?
#pragma once

#include <ATen/core/Tensor.h>

namespace colossal {

/// Says that what `gradient` holds counts for nothing: the next write must replace it. Any write
/// that autograd counts ends this state; the mark is a version number that nothing else reaches.
void mark_unwritten(const at::Tensor& gradient);

/// Whether nothing was written since mark_unwritten().
[[nodiscard]] bool is_unwritten(const at::Tensor& gradient);

/// Counts a write that went past ATen.
void count_write(const at::Tensor& gradient);

/// Makes the gradient of a leaf ready for a sum that autograd adds by itself: a hook zeroes it
/// first where it is_unwritten(). `leaf` has a gradient, whose object stays.
void zero_before_accumulating(const at::Tensor& leaf);

/// Whether a kernel of a GPU may write the gradient of this parameter itself.
[[nodiscard]] bool takes_gradient(const at::Tensor& parameter);

}  // namespace colossal
