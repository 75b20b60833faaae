// Sums of columns on a GPU; contract as in nn/kernels/columns.hpp.
#pragma once

#include <ATen/core/Tensor.h>

namespace colossal::kernels::cuda {

/// kernels::column_sums on a GPU; the order of additions depends on the shape only.
[[nodiscard]] at::Tensor column_sums(const at::Tensor& x_mf);

/// The same sums, given to a gradient: added to what it holds and rounded once, or written where it
/// is_unwritten(). `gradient_f` is contiguous. Counts as a change of it for autograd.
void give_column_sums(const at::Tensor& gradient_f, const at::Tensor& x_mf);

/// Gives sums that are there already.
void give_sums(const at::Tensor& gradient_f, const at::Tensor& sums_f);

/// Tells that a kernel has summed the columns of the matrix it wrote: while x_mf is neither changed
/// nor gone nor followed by another one of this thread, its sums are not computed again.
void remember_column_sums(const at::Tensor& x_mf, const at::Tensor& sums_f);

}  // namespace colossal::kernels::cuda
