// What must a communication library offer? The few asynchronous calls that Comm is made of.
#pragma once

#include "comm/comm.hpp"
#include "comm/detail/store.hpp"

#include <ATen/core/Tensor.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace colossal::detail {

/// One operation under way. Keeps its tensors alive until the backend has finished with them, even
/// if dropped.
class Work {
 public:
  Work() = default;
  virtual ~Work() = default;
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  /// Blocks until the result is usable; false if that takes longer than `timeout`.
  /// Errors: comm "peer-lost" with the library's reason if the operation failed.
  virtual bool wait(std::chrono::milliseconds timeout) = 0;
  /// Calls `notify` once, from any thread, when the operation has ended; never if it is lost.
  virtual void on_done(std::function<void()> notify) = 0;
};

/// One process group of at least two ranks. Arguments are checked by Comm; ranks are ranks of the
/// group.
class Backend {
 public:
  Backend() = default;
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  virtual std::unique_ptr<Work> all_reduce(at::Tensor& x, ReduceOp op) = 0;
  virtual std::unique_ptr<Work> all_gather(at::Tensor& out, const at::Tensor& in) = 0;
  virtual std::unique_ptr<Work> reduce_scatter(at::Tensor& out, const at::Tensor& in) = 0;
  virtual std::unique_ptr<Work> all_to_all(at::Tensor& out, const at::Tensor& in) = 0;
  virtual std::unique_ptr<Work> broadcast(at::Tensor& x, int root) = 0;
  virtual std::unique_ptr<Work> barrier() = 0;
};

/// Everything a backend needs to connect one group.
struct BackendOptions {
  /// Store keys of the group start with this; unique among groups.
  std::string prefix;
  int rank = 0;
  int size = 1;
  /// All ranks are processes of this machine: use the loopback interface.
  bool local = false;
  std::chrono::milliseconds connect_timeout{300'000};
  std::chrono::milliseconds collective_timeout{600'000};
};

/// Connects a Gloo group; every member calls it. Errors: comm "group-connect".
[[nodiscard]] std::unique_ptr<Backend> connect_gloo(Store& store, const BackendOptions& options);

}  // namespace colossal::detail
