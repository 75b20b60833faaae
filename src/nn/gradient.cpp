// Where does a gradient keep whether it was written? In the counter that autograd keeps of its
// changes.
#include "nn/gradient.hpp"

#include <cstdint>

namespace colossal {

namespace {

/// Far above any number of writes, and far from the end of the counter.
constexpr std::uint32_t kUnwritten = 0x40000000;

}  // namespace

void mark_unwritten(const at::Tensor& gradient) {
  gradient.unsafeGetTensorImpl()->set_version_counter(c10::VariableVersion(kUnwritten));
}

bool is_unwritten(const at::Tensor& gradient) {
  return gradient._version() == static_cast<std::int64_t>(kUnwritten);
}

void count_write(const at::Tensor& gradient) {
  gradient.unsafeGetTensorImpl()->bump_version();
}

void zero_before_accumulating(const at::Tensor& leaf) {
  const at::Tensor gradient = leaf.grad();
  leaf.register_hook([gradient](const at::TensorBase& added) {
    if (added.defined() && is_unwritten(gradient)) {
      gradient.zero_();
    }
  });
}

bool takes_gradient(const at::Tensor& parameter) {
  return parameter.is_cuda() && parameter.is_leaf() && parameter.grad().defined() &&
         parameter.grad().is_contiguous();
}

}  // namespace colossal
