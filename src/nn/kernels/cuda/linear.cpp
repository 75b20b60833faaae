// Where does the library do more than multiply, and what runs where it does not?
#include "nn/kernels/cuda/linear.hpp"

#include "nn/gradient.hpp"
#include "nn/kernels/cuda/activation.hpp"
#include "nn/kernels/cuda/gelu_gradient.hpp"
#include "nn/kernels/cuda/gelu_product.hpp"
#include "nn/kernels/cuda/matmul.hpp"

#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <initializer_list>

namespace colossal::kernels::cuda {

namespace {

constexpr std::int64_t kPack = 8;  // elements of 16 bits in 16 bytes

bool is_half(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf;
}

/// A matrix or the transpose of one, without gaps, of whole packs.
bool is_packed(const at::Tensor& x) {
  const bool dense = x.is_contiguous() || x.t().is_contiguous();
  return dense && x.numel() > 0 && x.size(1) % kPack == 0 && x.size(0) % kPack == 0 &&
         reinterpret_cast<std::uintptr_t>(x.const_data_ptr()) % 16 == 0;
}

bool are_packed(std::initializer_list<at::Tensor> matrices) {
  return std::all_of(matrices.begin(), matrices.end(), is_packed);
}

}  // namespace

bool fuses_gelu(const at::Tensor& x_mi, const at::Tensor& weight_fi, ActivationKind kind) {
  return x_mi.is_cuda() && is_half(x_mi) && kind == ActivationKind::gelu_tanh &&
         are_packed({x_mi, weight_fi});
}

LinearGelu linear_gelu(const at::Tensor& x_mi,
                       const at::Tensor& weight_fi,
                       const at::Tensor& bias_f) {
  LinearGelu result = gelu_product(x_mi, weight_fi, bias_f);
  if (result.y_mf.defined()) {
    return result;
  }
  result.pre_mf = at::empty({x_mi.size(0), weight_fi.size(0)}, x_mi.options());
  result.y_mf = matmul(x_mi,
                       weight_fi.t(),
                       Epilogue::gelu,
                       {.bias = bias_f, .aux_mn = result.pre_mf, .residual_mn = {}});
  if (!result.y_mf.defined()) {
    result.pre_mf = product(bias_f, x_mi, weight_fi.t());
    result.y_mf = bias_act_forward(result.pre_mf, {}, ActivationKind::gelu_tanh);
  }
  return result;
}

bool rebuilds_gelu(const at::Tensor& x_mi, const at::Tensor& weight_fi) {
  return takes_gelu_gradient(x_mi, weight_fi);
}

BiasActGrad linear_gelu_backward(const at::Tensor& g_mo,
                                 const at::Tensor& weight_of,
                                 const at::Tensor& pre_mf,
                                 at::Tensor* y_mf) {
  if (BiasActGrad grad = gelu_gradient(g_mo, weight_of, pre_mf, y_mf != nullptr);
      grad.pre_mf.defined()) {
    if (y_mf != nullptr) {
      *y_mf = pre_mf;
    }
    return grad;
  }
  if (y_mf != nullptr) {
    *y_mf = bias_act_forward(pre_mf, {}, ActivationKind::gelu_tanh);
  }
  if (are_packed({g_mo, weight_of, pre_mf})) {
    const at::Tensor grad_mf = matmul(g_mo,
                                      weight_of,
                                      Epilogue::gelu_gradient,
                                      {.bias = {}, .aux_mn = pre_mf, .residual_mn = {}});
    if (grad_mf.defined()) {
      return {grad_mf, {}};
    }
  }
  return bias_act_backward(product(g_mo, weight_of), pre_mf, {}, ActivationKind::gelu_tanh);
}

at::Tensor product(const at::Tensor& a_mk, const at::Tensor& b_kn) {
  at::Tensor out_mn;
  if (is_half(a_mk) && are_packed({a_mk, b_kn})) {
    out_mn = matmul(a_mk, b_kn);
  }
  return out_mn.defined() ? out_mn : at::mm(a_mk, b_kn);
}

at::Tensor product(const at::Tensor& bias_n, const at::Tensor& a_mk, const at::Tensor& b_kn) {
  at::Tensor out_mn;
  if (is_half(a_mk) && are_packed({a_mk, b_kn})) {
    out_mn = matmul(a_mk, b_kn, Epilogue::bias, {.bias = bias_n, .aux_mn = {}, .residual_mn = {}});
  }
  return out_mn.defined() ? out_mn : at::addmm(bias_n, a_mk, b_kn);
}

bool fuses_residual(const at::Tensor& residual_mo,
                    const at::Tensor& x_mi,
                    const at::Tensor& weight_oi) {
  return x_mi.is_cuda() && is_half(x_mi) && residual_mo.scalar_type() == x_mi.scalar_type() &&
         residual_mo.is_contiguous() && residual_mo.size(0) == x_mi.size(0) &&
         residual_mo.size(1) == weight_oi.size(0) && are_packed({residual_mo, x_mi, weight_oi});
}

at::Tensor product_onto(const at::Tensor& residual_mn,
                        const at::Tensor& bias_n,
                        const at::Tensor& a_mk,
                        const at::Tensor& b_kn) {
  const Epilogue epilogue = bias_n.defined() ? Epilogue::bias : Epilogue::none;
  const at::Tensor out_mn =
      matmul(a_mk, b_kn, epilogue, {.bias = bias_n, .aux_mn = {}, .residual_mn = residual_mn});
  if (out_mn.defined()) {
    return out_mn;
  }
  return at::add(residual_mn, bias_n.defined() ? product(bias_n, a_mk, b_kn) : product(a_mk, b_kn));
}

bool add_weight_gradient(const at::Tensor& grad_oi,
                         const at::Tensor& g_mo,
                         const at::Tensor& x_mi) {
  const bool fits =
      is_half(g_mo) && are_packed({g_mo, x_mi, grad_oi}) && grad_oi.is_contiguous() &&
      (grad_oi.scalar_type() == g_mo.scalar_type() || grad_oi.scalar_type() == at::kFloat);
  if (!fits || !matmul_into(grad_oi, g_mo.t(), x_mi, !is_unwritten(grad_oi))) {
    return false;
  }
  count_write(grad_oi);
  return true;
}

}  // namespace colossal::kernels::cuda
