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

/// What has become of an operation of a GPU.
enum class WorkState : std::uint8_t { running, done, broken };

/// Asks for it, from any thread and without waiting.
using WorkProbe = std::function<WorkState()>;

/// One operation under way. Keeps its tensors alive until the backend has finished with them, even
/// if dropped.
class Work {
 public:
  Work() = default;
  virtual ~Work() = default;
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  /// Blocks until the result is usable; false if that takes longer than `timeout`. On a GPU the
  /// result is usable by what this thread gives to its stream from now on, and nothing blocks: the
  /// time-out is the watchdog's, by probe().
  /// Errors: comm "peer-lost" with the library's reason if the operation failed.
  virtual bool wait(std::chrono::milliseconds timeout) = 0;
  /// Calls `notify` once, from any thread, when the operation has ended; never if it is lost.
  virtual void on_done(std::function<void()> notify) = 0;
  /// Of an operation whose end wait() does not see; empty for all others.
  [[nodiscard]] virtual WorkProbe probe() const { return {}; }
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
  /// Whose tensors it moves.
  at::Device device = at::kCPU;
  std::chrono::milliseconds connect_timeout{300'000};
  std::chrono::milliseconds collective_timeout{600'000};
};

/// Connects a Gloo group; every member calls it. Errors: comm "group-connect".
[[nodiscard]] std::unique_ptr<Backend> connect_gloo(Store& store, const BackendOptions& options);

/// Sets what NCCL and c10d read from the environment, where the user has not: before any thread of
/// theirs or ours runs.
void prepare_nccl();

/// Connects an NCCL group for tensors of options.device, the current GPU; every member calls it.
/// The destructor is the orderly end: it waits for what is under way, and for the other members.
/// Errors: comm "group-connect".
[[nodiscard]] std::unique_ptr<Backend> connect_nccl(Store& store, const BackendOptions& options);

/// `host` for tensors of the CPU and for barriers, `device` for tensors of a GPU.
[[nodiscard]] std::unique_ptr<Backend> by_device(std::unique_ptr<Backend> host,
                                                 std::unique_ptr<Backend> device);

}  // namespace colossal::detail
