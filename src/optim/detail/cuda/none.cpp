// What do sweeps over the memory of a GPU do in a build without CUDA? They say so.
#include "core/error.hpp"
#include "optim/detail/cuda/squares.hpp"
#include "optim/detail/cuda/sweeps.hpp"

namespace colossal::detail::cuda {

namespace {

[[noreturn]] void missing(const char* sweep) {
  fail(ErrorKind::internal,
       "no-cuda",
       "'{}' was given shards of a GPU, but this program is built without CUDA; configure with "
       "`cmake --preset cuda`",
       sweep);
}

}  // namespace

void adam(const Sweep& /*sweep*/, std::span<const AdamFactors> /*factors*/) {
  missing("adam");
}
void lamb_moments(const Sweep& /*sweep*/, std::span<const LambFactors> /*factors*/) {
  missing("lamb_moments");
}
void lamb_apply(const Sweep& /*sweep*/, std::span<const LambFactors> /*factors*/) {
  missing("lamb_apply");
}
void sgd(const Sweep& /*sweep*/, std::span<const SgdFactors> /*factors*/) {
  missing("sgd");
}
void squares(const Sweep& /*sweep*/) {
  missing("squares");
}
at::Tensor squares_of(std::span<const at::Tensor> /*parts*/) {
  missing("squares_of");
}

}  // namespace colossal::detail::cuda
