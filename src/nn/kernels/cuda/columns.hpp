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

/// The same of x_mi = g_mo W: its sums are those of g_mo times W, which are computed where the sums
/// of g_mo are known; no pass over x_mi. Otherwise nothing is done.
void remember_product_sums(const at::Tensor& x_mi,
                           const at::Tensor& g_mo,
                           const at::Tensor& weight_oi);

/// The same of the gradient of a packed qkv, as wide for k and v as for q, where the sums of the
/// gradient of attention's result are known: a row of the softmax adds up to 1, so those for v are
/// the same; to add a constant to all keys changes no softmax, so those for k are 0; those for q
/// are computed. Not for attention with dropout. Otherwise nothing is done.
void remember_attention_sums(const at::Tensor& qkv_grad_md, const at::Tensor& g_mh);

}  // namespace colossal::kernels::cuda
