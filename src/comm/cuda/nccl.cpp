// How does Comm run on GPUs? c10d's ProcessGroupNCCL, without its own ideas of failure.
#include "comm/detail/backend.hpp"
#include "core/error.hpp"

#include <c10/cuda/CUDAFunctions.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

namespace colossal::detail {
namespace {

using Tensors = std::vector<at::Tensor>;

c10d::ReduceOp to_c10d(ReduceOp op) {
  switch (op) {
    case ReduceOp::max:
      return c10d::ReduceOp::MAX;
    case ReduceOp::min:
      return c10d::ReduceOp::MIN;
    case ReduceOp::sum:
      break;
  }
  return c10d::ReduceOp::SUM;
}

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

/// Starts one c10d operation; a failure to start means that a peer is gone.
template <class Call>
std::unique_ptr<Work> start(Call call) {
  try {
    return std::make_unique<NcclWork>(call());
  } catch (const std::exception& error) {
    fail(ErrorKind::comm, "peer-lost", "{}", reason(error));
  }
}

class Nccl final : public Backend {
 public:
  explicit Nccl(c10::intrusive_ptr<c10d::ProcessGroupNCCL> group) : group_(std::move(group)) {}
  ~Nccl() override {
    try {
      c10::cuda::device_synchronize();
      group_->waitForPendingWorks();
      group_->shutdown();
    } catch (const std::exception&) {  // the run has succeeded, and nothing depends on it any more
    }
  }
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  std::unique_ptr<Work> all_reduce(at::Tensor& x, ReduceOp op) override {
    return start([&] {
      Tensors tensors{x};
      c10d::AllreduceOptions options;
      options.reduceOp = to_c10d(op);
      return group_->allreduce(tensors, options);
    });
  }

  std::unique_ptr<Work> all_gather(at::Tensor& out, const at::Tensor& in) override {
    return start([&] {
      at::Tensor whole = out.view({-1});
      at::Tensor part = in.view({-1});
      return group_->_allgather_base(whole, part);
    });
  }

  std::unique_ptr<Work> reduce_scatter(at::Tensor& out, const at::Tensor& in) override {
    return start([&] {
      at::Tensor whole = in.view({-1});
      at::Tensor part = out.view({-1});
      return group_->_reduce_scatter_base(part, whole);
    });
  }

  std::unique_ptr<Work> all_to_all(at::Tensor& out, const at::Tensor& in) override {
    return start([&] {
      at::Tensor source = in.view({-1});
      at::Tensor target = out.view({-1});
      std::vector<std::int64_t> equal_splits;
      return group_->alltoall_base(target, source, equal_splits, equal_splits);
    });
  }

  std::unique_ptr<Work> broadcast(at::Tensor& x, int root) override {
    return start([&] {
      Tensors tensors{x};
      c10d::BroadcastOptions options;
      options.rootRank = root;
      return group_->broadcast(tensors, options);
    });
  }

  std::unique_ptr<Work> barrier() override {
    return start([&] { return group_->barrier(); });
  }

 private:
  c10::intrusive_ptr<c10d::ProcessGroupNCCL> group_;
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
    auto shared = c10::intrusive_ptr<c10d::Store>::reclaim_copy(&store.native());
    auto own_keys = c10::make_intrusive<c10d::PrefixStore>(options.prefix + "/nccl", shared);
    auto nccl = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
    nccl->timeout = 2 * options.collective_timeout;  // ours comes first, and is explained
    auto group =
        c10::make_intrusive<c10d::ProcessGroupNCCL>(own_keys, options.rank, options.size, nccl);
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
