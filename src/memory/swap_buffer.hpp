// How can memory come and go under tensors that stay? One storage that lives for ever, whose bytes
// are lent to it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace colossal {

/// Blocks of memory that chunks borrow: gathered parameters, gradients of one micro-batch. Free
/// blocks are used again; before new memory is taken, free blocks of other sizes are given back, so
/// that never more is held than was in use at once.
class BlockPool {
 public:
  /// `keeps`: false gives every block back at once, where a budget counts every byte.
  BlockPool(at::Device device, bool keeps) : device_(device), keeps_(keeps) {}
  /// A flat block of `bytes`, uninitialised. Errors: memory "out-of-memory".
  [[nodiscard]] at::Tensor get(std::int64_t bytes);
  void put(at::Tensor block);
  /// Bytes in use now, and their highest value since the start or the last reset_peak().
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }
  /// The same and free blocks.
  [[nodiscard]] std::int64_t held_bytes() const noexcept;
  [[nodiscard]] std::int64_t peak_bytes() const noexcept { return peak_bytes_; }
  void reset_peak() noexcept { peak_bytes_ = bytes_; }

 private:
  at::Device device_;
  bool keeps_;
  std::vector<at::Tensor> free_;
  std::int64_t bytes_ = 0;
  std::int64_t peak_bytes_ = 0;
};

/// A flat tensor whose storage object stays while its memory comes and goes, at any address: views
/// of it, also those that autograd saved, are valid again after a refill (zero-gemini-elixir 6.1).
/// Reading it while it is empty is undefined; Parameter::tensor() guards against that.
class SwapBuffer {
 public:
  SwapBuffer() = default;
  /// Without memory.
  SwapBuffer(std::int64_t numel, at::ScalarType dtype, at::Device device);

  /// The flat tensor; the same object for ever.
  [[nodiscard]] const at::Tensor& tensor() const noexcept { return tensor_; }
  [[nodiscard]] std::int64_t bytes() const noexcept;
  [[nodiscard]] bool filled() const noexcept { return block_.defined(); }
  /// Lends it the memory of `block`, which has at least bytes() bytes and must not be filled.
  void fill(at::Tensor block);
  /// Takes the memory back.
  [[nodiscard]] at::Tensor empty();

 private:
  at::Tensor tensor_;
  at::Tensor block_;
};

/// A flat, zeroed tensor. Errors: memory "out-of-memory" with the bytes asked for.
[[nodiscard]] at::Tensor allocate_flat(std::int64_t numel, at::ScalarType dtype, at::Device device);

}  // namespace colossal
