// What does a build without CUDA say when it is asked for the memory of a GPU?
#include "core/error.hpp"
#include "memory/cuda/gpu_memory.hpp"

#include <utility>

namespace colossal::cuda {
namespace {

[[noreturn]] void refuse() {
  fail(ErrorKind::internal, "no-cuda", "a build without CUDA has no memory of a GPU");
}

}  // namespace

DeviceMemory& gpu_memory(at::Device /*device*/) {
  refuse();
}

bool pin(void* /*pages*/, std::int64_t /*bytes*/) noexcept {
  return false;
}
void unpin(void* /*pages*/) noexcept {}

struct Copy::Impl {};
Copy::Copy() noexcept = default;
Copy::Copy(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Copy::~Copy() = default;
Copy::Copy(Copy&&) noexcept = default;
Copy& Copy::operator=(Copy&&) noexcept = default;
void Copy::join() const {}
void Copy::finish() {}

struct CopyStream::Impl {};
CopyStream::CopyStream(at::Device /*device*/) {
  refuse();
}
CopyStream::~CopyStream() = default;
Copy CopyStream::copy(const at::Tensor& /*to*/,
                      const at::Tensor& /*from*/,
                      const std::function<void()>& /*before*/) {
  refuse();
}

}  // namespace colossal::cuda
