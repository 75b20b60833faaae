// How does Comm run on GPUs? c10d's ProcessGroupNCCL, without its own ideas of failure.
#include "comm/detail/c10d_backend.hpp"
#include "core/error.hpp"

#include <c10/cuda/CUDAFunctions.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <cstdlib>
#include <memory>
#include <utility>

namespace colossal::detail {
namespace {

/// c10d's work runs on a stream of the group; waiting for it orders the current stream behind it.
class NcclWork final : public Work {
 public:
  explicit NcclWork(c10::intrusive_ptr<c10d::Work> work) : work_(std::move(work)) {}

  bool wait(std::chrono::milliseconds /*timeout*/) override {
    try {
      return work_->wait();
    } catch (const std::exception& error) {
      fail(ErrorKind::comm, "peer-lost", "{}", reason(error));
    }
  }

  /// When the streams have it: nobody waits for the GPU to know the very moment.
  void on_done(std::function<void()> notify) override { notify(); }

  [[nodiscard]] WorkProbe probe() const override {
    return [work = work_] {
      if (!work->isCompleted()) {
        return WorkState::running;
      }
      return work->exception() ? WorkState::broken : WorkState::done;
    };
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
};

class Nccl final : public C10dBackend<c10d::ProcessGroupNCCL, NcclWork> {
 public:
  using C10dBackend::C10dBackend;
  ~Nccl() override {
    try {
      c10::cuda::device_synchronize();
      group().waitForPendingWorks();
      group().shutdown();
    } catch (const std::exception&) {  // the run has succeeded, and nothing depends on it any more
    }
  }
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  std::unique_ptr<Work> all_gather(at::Tensor& out, const at::Tensor& in) override {
    return start([&] {
      at::Tensor whole = out.view({-1});
      at::Tensor part = in.view({-1});
      return group()._allgather_base(whole, part);
    });
  }

  std::unique_ptr<Work> reduce_scatter(at::Tensor& out, const at::Tensor& in) override {
    return start([&] {
      at::Tensor whole = in.view({-1});
      at::Tensor part = out.view({-1});
      return group()._reduce_scatter_base(part, whole);
    });
  }
};

}  // namespace

void prepare_nccl() {
  constexpr int kKeep = 0;  // what the user has set stays
  // Our watchdog explains failures and ends the process: c10d's would abort it without a reason.
  ::setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", kKeep);
  ::setenv("TORCH_NCCL_ENABLE_MONITORING", "0", kKeep);
  ::setenv("TORCH_NCCL_DUMP_ON_TIMEOUT", "0", kKeep);
  ::setenv("TORCH_NCCL_PROPAGATE_ERROR", "0", kKeep);
}

std::unique_ptr<Backend> connect_nccl(Store& store, const BackendOptions& options) {
  try {
    auto nccl = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
    nccl->timeout = 2 * options.collective_timeout;  // ours comes first, and is explained
    auto group = c10::make_intrusive<c10d::ProcessGroupNCCL>(
        keys_of(store, options.prefix + "/nccl"), options.rank, options.size, nccl);
    group->setBoundDeviceId(options.device);
    // Now, while a failure still has a name, and not within the first step.
    group->eagerConnectSingleDevice(options.device);
    return std::make_unique<Nccl>(std::move(group));
  } catch (const std::exception& error) {
    fail(ErrorKind::comm,
         "group-connect",
         "cannot connect group {} by NCCL: {}\n  fix   NCCL_DEBUG=WARN tells more; "
         "NCCL_SOCKET_IFNAME chooses the network",
         options.prefix,
         reason(error));
  }
}

}  // namespace colossal::detail
