// How does a storage change its memory? By its data pointer; nobody but the buffer owns the bytes.
#include "memory/swap_buffer.hpp"

#include "core/error.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Storage.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

namespace colossal {
namespace {

template <class Make>
at::Tensor allocate(std::int64_t numel, at::ScalarType dtype, at::Device device, const Make& make) {
  try {
    return make(at::TensorOptions(dtype).device(device));
  } catch (const c10::Error& error) {
    fail(ErrorKind::memory,
         "out-of-memory",
         "cannot allocate {} bytes for {} elements of weights, gradients or optimizer states: {}",
         numel * static_cast<std::int64_t>(at::elementSize(dtype)),
         numel,
         error.what_without_backtrace());
  }
}

}  // namespace

at::Tensor allocate_flat(std::int64_t numel, at::ScalarType dtype, at::Device device) {
  return allocate(numel, dtype, device, [&](const at::TensorOptions& options) {
    return at::zeros({numel}, options);
  });
}

at::Tensor BlockPool::get(std::int64_t bytes) {
  const auto fitting =
      std::ranges::find_if(free_, [&](const at::Tensor& block) { return block.numel() == bytes; });
  at::Tensor block;
  if (fitting != free_.end()) {
    block = std::move(*fitting);
    free_.erase(fitting);
  } else {
    free_.clear();
    block = allocate(bytes, at::kByte, device_, [&](const at::TensorOptions& options) {
      return at::empty({bytes}, options);
    });
  }
  bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, bytes_);
  return block;
}

void BlockPool::put(at::Tensor block) {
  bytes_ -= block.numel();
  if (keeps_) {
    free_.push_back(std::move(block));
  }
}

std::int64_t BlockPool::held_bytes() const noexcept {
  std::int64_t bytes = bytes_;
  for (const at::Tensor& block : free_) {
    bytes += block.numel();
  }
  return bytes;
}

SwapBuffer::SwapBuffer(std::int64_t numel, at::ScalarType dtype, at::Device device) {
  const auto bytes = static_cast<std::size_t>(numel) * at::elementSize(dtype);
  // The size stays although the memory goes, so that views can be made of an empty buffer.
  c10::Storage storage(c10::Storage::use_byte_size_t(),
                       bytes,
                       c10::DataPtr(nullptr, device),
                       /*allocator=*/nullptr,
                       /*resizable=*/false);
  tensor_ = at::empty({0}, at::TensorOptions(dtype).device(device));
  tensor_.set_(std::move(storage), 0, {numel}, {1});
}

std::int64_t SwapBuffer::bytes() const noexcept {
  return static_cast<std::int64_t>(tensor_.nbytes());
}

void SwapBuffer::fill(at::Tensor block) {
  check(!filled() && static_cast<std::int64_t>(block.nbytes()) >= bytes(),
        ErrorKind::internal,
        "swap-buffer",
        "a buffer of {} bytes that is {} cannot take a block of {} bytes",
        bytes(),
        filled() ? "full" : "empty",
        block.nbytes());
  block_ = std::move(block);
  tensor_.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(
      c10::DataPtr(block_.mutable_data_ptr(), block_.device()));
}

at::Tensor SwapBuffer::empty() {
  tensor_.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(
      c10::DataPtr(nullptr, tensor_.device()));
  return std::exchange(block_, at::Tensor());
}

}  // namespace colossal
