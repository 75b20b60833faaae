// How do ranks exchange tensors? One group handle over c10d; torch's distributed headers stay in
// the .cpp files.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace colossal {

/// How all_reduce combines the members' items.
enum class ReduceOp : std::uint8_t { sum, max, min };

namespace detail {
class Group;        // one process group of a backend
class PendingWork;  // one running collective
}  // namespace detail

/// A collective under way. wait() blocks until the result is usable; the destructor waits if nobody
/// did. Errors (wait): comm "collective-timeout" naming group, op, sequence number, bytes and the
/// ranks that did not enter; comm "peer-lost" if a peer failed.
class [[nodiscard]] Pending {
 public:
  Pending() noexcept;  ///< already complete
  explicit Pending(std::unique_ptr<detail::PendingWork> work) noexcept;
  Pending(Pending&&) noexcept;
  Pending& operator=(Pending&&) noexcept;
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;
  ~Pending();
  void wait();

 private:
  std::unique_ptr<detail::PendingWork> work_;
};

/// Bytes this rank handed to collectives of one label since the start, for tests and metrics.
struct CommCounter {
  std::string label;
  std::int64_t calls = 0;
  std::int64_t bytes = 0;
};

/// One group of ranks; a cheap handle. Size 1 never calls the backend. All calls: one thread,
/// program order, the same on every member. Tensors must be contiguous and of one dtype of {fp32,
/// fp64, bf16, fp16, int64}.
class Comm {
 public:
  Comm();  ///< the group of this rank alone
  explicit Comm(std::shared_ptr<detail::Group> group);
  /// Index of this rank in the group, and the number of its members.
  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int size() const noexcept;
  /// Name of the group ("data") and its global ranks in group order.
  [[nodiscard]] std::string_view name() const noexcept;
  [[nodiscard]] const std::vector<int>& ranks() const noexcept;

  /// In place on every member.
  Pending all_reduce(at::Tensor& x, ReduceOp op = ReduceOp::sum) const;
  /// out.numel == size * in.numel, rank-major. `in` may be this rank's part of `out`.
  Pending all_gather(at::Tensor& out, const at::Tensor& in) const;
  /// Sum; in.numel == size * out.numel, rank-major. Uses up `in`: its values mean nothing
  /// afterwards. `out` may be this rank's part of it.
  Pending reduce_scatter(at::Tensor& out, const at::Tensor& in) const;
  /// Sends the s-th of size() equal parts of dim 0 to rank s.
  Pending all_to_all(at::Tensor& out, const at::Tensor& in) const;
  /// From group rank `root`.
  Pending broadcast(at::Tensor& x, int root) const;
  void barrier() const;

  /// Text of every member, in group order (collective; small texts).
  [[nodiscard]] std::vector<std::string> gather_text(std::string_view mine) const;

  /// What this group's collectives moved so far, by operation name.
  [[nodiscard]] std::vector<CommCounter> counters() const;

 private:
  std::shared_ptr<detail::Group> group_;
};

}  // namespace colossal
