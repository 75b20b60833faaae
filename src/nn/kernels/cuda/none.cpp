// What do the kernels of a GPU do in a build without CUDA? They say so.
#include "core/error.hpp"
#include "nn/kernels/cuda/activation.hpp"
#include "nn/kernels/cuda/attention.hpp"
#include "nn/kernels/cuda/cached_attention.hpp"
#include "nn/kernels/cuda/columns.hpp"
#include "nn/kernels/cuda/dropout.hpp"
#include "nn/kernels/cuda/embedding.hpp"
#include "nn/kernels/cuda/few_rows.hpp"
#include "nn/kernels/cuda/layer_norm.hpp"
#include "nn/kernels/cuda/linear.hpp"
#include "nn/kernels/cuda/token_loss.hpp"

namespace colossal::kernels::cuda {

namespace {

[[noreturn]] void missing(const char* kernel) {
  fail(ErrorKind::internal,
       "no-cuda",
       "'{}' was given a tensor of a GPU, but this program is built without CUDA; configure with "
       "`cmake --preset cuda`",
       kernel);
}

}  // namespace

at::Tensor bias_act_forward(const at::Tensor& /*pre_mf*/,
                            const at::Tensor& /*bias_f*/,
                            ActivationKind /*kind*/) {
  missing("bias_act_forward");
}
BiasActGrad bias_act_backward(const at::Tensor& /*grad_mf*/,
                              const at::Tensor& /*pre_mf*/,
                              const at::Tensor& /*bias_f*/,
                              ActivationKind /*kind*/) {
  missing("bias_act_backward");
}
at::Tensor swiglu_forward(const at::Tensor& /*gate*/, const at::Tensor& /*up*/) {
  missing("swiglu_forward");
}
SwigluGrad swiglu_backward(const at::Tensor& /*grad*/,
                           const at::Tensor& /*gate*/,
                           const at::Tensor& /*up*/) {
  missing("swiglu_backward");
}
AttentionResult attention_forward(const at::Tensor& /*qkv_bsd*/,
                                  const AttentionShape& /*shape*/,
                                  const at::Tensor& /*starts_bs*/) {
  missing("attention_forward");
}
at::Tensor attention_backward(const at::Tensor& /*grad_bsh*/,
                              const at::Tensor& /*qkv_bsd*/,
                              const AttentionResult& /*forward*/,
                              const AttentionShape& /*shape*/,
                              const at::Tensor& /*starts_bs*/) {
  missing("attention_backward");
}
at::Tensor cached_attention(const at::Tensor& /*qkv_bsd*/,
                            const AttentionShape& /*shape*/,
                            const CacheRows& /*cache*/) {
  missing("cached_attention");
}
at::Tensor column_sums(const at::Tensor& /*x_mf*/) {
  missing("column_sums");
}
void give_column_sums(const at::Tensor& /*gradient_f*/, const at::Tensor& /*x_mf*/) {
  missing("give_column_sums");
}
void remember_product_sums(const at::Tensor& /*x_mi*/,
                           const at::Tensor& /*g_mo*/,
                           const at::Tensor& /*weight_oi*/) {
  missing("remember_product_sums");
}
at::Tensor dropout(const at::Tensor& /*x*/,
                   const at::Tensor& /*residual*/,
                   const DropoutKey& /*key*/) {
  missing("dropout");
}
at::Tensor embedding_forward(const at::Tensor& /*weight_rh*/, const at::Tensor& /*indices*/) {
  missing("embedding_forward");
}
at::Tensor embedding_backward(const at::Tensor& /*grad_mh*/,
                              const at::Tensor& /*indices_m*/,
                              std::int64_t /*rows*/) {
  missing("embedding_backward");
}
at::Tensor linear_few_rows(const at::Tensor& /*x_mi*/,
                           const at::Tensor& /*weight_oi*/,
                           const at::Tensor& /*bias_o*/) {
  missing("linear_few_rows");
}
LayerNormResult layer_norm_forward(const at::Tensor& /*x_mh*/,
                                   const at::Tensor& /*weight_h*/,
                                   const at::Tensor& /*bias_h*/,
                                   double /*eps*/) {
  missing("layer_norm_forward");
}
LayerNormGrad layer_norm_backward(const at::Tensor& /*grad_mh*/,
                                  const LayerNormSaved& /*saved*/,
                                  const at::Tensor& /*residual_mh*/) {
  missing("layer_norm_backward");
}
at::Tensor give_layer_norm_backward(const at::Tensor& /*grad_mh*/,
                                    const LayerNormSaved& /*saved*/,
                                    const at::Tensor& /*residual_mh*/,
                                    const at::Tensor& /*weight_gradient_h*/,
                                    const at::Tensor& /*bias_gradient_h*/) {
  missing("give_layer_norm_backward");
}
at::Tensor token_loss(at::Tensor& /*logits_mv*/,
                      const at::Tensor& /*labels_m*/,
                      std::int64_t /*vocabulary*/,
                      std::optional<double> /*grad_factor*/) {
  missing("token_loss");
}
void scale_loss_grad(at::Tensor& /*grad*/, const at::Tensor& /*factor*/, double /*expected*/) {
  missing("scale_loss_grad");
}

bool fuses_gelu(const at::Tensor& /*x_mi*/,
                const at::Tensor& /*weight_fi*/,
                ActivationKind /*kind*/) {
  return false;
}
LinearGelu linear_gelu(const at::Tensor& /*x_mi*/,
                       const at::Tensor& /*weight_fi*/,
                       const at::Tensor& /*bias_f*/) {
  missing("linear_gelu");
}
bool rebuilds_gelu(const at::Tensor& /*x_mi*/, const at::Tensor& /*weight_fi*/) {
  return false;
}
BiasActGrad linear_gelu_backward(const at::Tensor& /*g_mo*/,
                                 const at::Tensor& /*weight_of*/,
                                 const at::Tensor& /*pre_mf*/,
                                 at::Tensor* /*y_mf*/) {
  missing("linear_gelu_backward");
}
at::Tensor product(const at::Tensor& /*a_mk*/, const at::Tensor& /*b_kn*/) {
  missing("product");
}
at::Tensor product(const at::Tensor& /*bias_n*/,
                   const at::Tensor& /*a_mk*/,
                   const at::Tensor& /*b_kn*/) {
  missing("product");
}
bool fuses_residual(const at::Tensor& /*residual_mo*/,
                    const at::Tensor& /*x_mi*/,
                    const at::Tensor& /*weight_oi*/) {
  return false;
}
at::Tensor product_onto(const at::Tensor& /*residual_mn*/,
                        const at::Tensor& /*bias_n*/,
                        const at::Tensor& /*a_mk*/,
                        const at::Tensor& /*b_kn*/) {
  missing("product_onto");
}
bool add_weight_gradient(const at::Tensor& /*grad_oi*/,
                         const at::Tensor& /*g_mo*/,
                         const at::Tensor& /*x_mi*/) {
  missing("add_weight_gradient");
}

}  // namespace colossal::kernels::cuda
