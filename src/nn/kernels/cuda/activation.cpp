// Which arrays do the nonlinearities of a GPU work on?
#include "nn/kernels/cuda/activation.hpp"

#include "mesh/dtype.hpp"
#include "nn/kernels/cuda/activation_launch.hpp"
#include "nn/kernels/cuda/columns_launch.hpp"
#include "nn/kernels/cuda/glue.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

namespace colossal::kernels::cuda {

namespace {

ActivationOp op_of(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::gelu:
      return ActivationOp::gelu;
    case ActivationKind::gelu_tanh:
      return ActivationOp::gelu_tanh;
    default:
      return ActivationOp::relu;
  }
}

}  // namespace

at::Tensor bias_act_forward(const at::Tensor& pre_mf,
                            const at::Tensor& bias_f,
                            ActivationKind kind) {
  at::Tensor out_mf = at::empty_like(pre_mf);
  check_launch(launch_bias_act(element_type(pre_mf),
                               {.op = op_of(kind),
                                .pre = pre_mf.const_data_ptr(),
                                .bias = data_of(bias_f),
                                .out = out_mf.mutable_data_ptr(),
                                .rows = pre_mf.size(0),
                                .width = pre_mf.size(1)},
                               stream_of(pre_mf)),
               "bias_act_forward");
  return out_mf;
}

BiasActGrad bias_act_backward(const at::Tensor& grad_mf,
                              const at::Tensor& pre_mf,
                              const at::Tensor& bias_f,
                              ActivationKind kind) {
  const std::int64_t rows = pre_mf.size(0);
  const std::int64_t width = pre_mf.size(1);
  const ElementType type = element_type(pre_mf);
  const at::TensorOptions wide = pre_mf.options().dtype(wide_dtype(pre_mf.scalar_type()));
  BiasActGrad result{at::empty_like(pre_mf), at::empty({width}, wide)};
  const at::Tensor partial = at::empty({column_parts(rows, width, type), width}, wide);
  check_launch(launch_bias_act_backward(type,
                                        {.op = op_of(kind),
                                         .grad = grad_mf.const_data_ptr(),
                                         .pre = pre_mf.const_data_ptr(),
                                         .bias = data_of(bias_f),
                                         .out = result.pre_mf.mutable_data_ptr(),
                                         .partial = partial.mutable_data_ptr(),
                                         .bias_grad = result.bias_f.mutable_data_ptr(),
                                         .rows = rows,
                                         .width = width},
                                        stream_of(pre_mf)),
               "bias_act_backward");
  return result;
}

at::Tensor swiglu_forward(const at::Tensor& gate, const at::Tensor& up) {
  at::Tensor out = at::empty_like(gate);
  check_launch(launch_swiglu(element_type(gate),
                             {.gate = gate.const_data_ptr(),
                              .up = up.const_data_ptr(),
                              .out = out.mutable_data_ptr(),
                              .count = gate.numel()},
                             stream_of(gate)),
               "swiglu_forward");
  return out;
}

SwigluGrad swiglu_backward(const at::Tensor& grad, const at::Tensor& gate, const at::Tensor& up) {
  SwigluGrad result{at::empty_like(gate), at::empty_like(up)};
  check_launch(launch_swiglu_backward(element_type(gate),
                                      {.grad = grad.const_data_ptr(),
                                       .gate = gate.const_data_ptr(),
                                       .up = up.const_data_ptr(),
                                       .out = result.gate.mutable_data_ptr(),
                                       .up_grad = result.up.mutable_data_ptr(),
                                       .count = gate.numel()},
                                      stream_of(gate)),
               "swiglu_backward");
  return result;
}

}  // namespace colossal::kernels::cuda
