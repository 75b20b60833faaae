// What does a build without CUDA say when it is asked for NCCL?
#include "comm/detail/backend.hpp"
#include "core/error.hpp"

namespace colossal::detail {

void prepare_nccl() {
  fail(ErrorKind::internal, "no-cuda", "a build without CUDA has no NCCL");
}

std::unique_ptr<Backend> connect_nccl(Store&, const BackendOptions& options) {
  fail(ErrorKind::internal, "no-cuda", "a build without CUDA cannot connect {}", options.prefix);
}

}  // namespace colossal::detail
