// How does Comm run on CPUs? c10d's ProcessGroupGloo, compiled against our own stand-ins for Gloo's
// headers.
#include "comm/detail/backend.hpp"
#include "core/error.hpp"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <algorithm>
#include <atomic>
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

class GlooWork final : public Work {
 public:
  explicit GlooWork(c10::intrusive_ptr<c10d::Work> work) : work_(std::move(work)) {}

  bool wait(std::chrono::milliseconds timeout) override {
    try {
      return work_->wait(timeout);
    } catch (const std::exception& error) {
      if (!work_->isCompleted()) {
        return false;
      }
      if (work_->isSuccess()) {
        return true;  // it ended between the time-out and this line
      }
      fail(ErrorKind::comm, "peer-lost", "{}", reason(error));
    }
  }

  void on_done(std::function<void()> notify) override {
    work_->getFuture()->addCallback(
        [notify = std::move(notify)](c10::ivalue::Future&) { notify(); });
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
};

/// Several operations that are one collective, and what is left to do when they have ended.
class CombinedWork final : public Work {
 public:
  CombinedWork(std::vector<std::unique_ptr<Work>> works, std::function<void()> finish)
      : works_(std::move(works)), finish_(std::move(finish)) {}

  bool wait(std::chrono::milliseconds timeout) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    for (const std::unique_ptr<Work>& work : works_) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - std::chrono::steady_clock::now());
      if (!work->wait(std::max(left, std::chrono::milliseconds(1)))) {
        return false;
      }
    }
    if (finish_) {
      std::exchange(finish_, nullptr)();
    }
    return true;
  }

  void on_done(std::function<void()> notify) override {
    auto left = std::make_shared<std::atomic<std::size_t>>(works_.size());
    auto shared = std::make_shared<std::function<void()>>(std::move(notify));
    const auto one_less = [left, shared] {
      if (left->fetch_sub(1) == 1) {
        (*shared)();
      }
    };
    for (const std::unique_ptr<Work>& work : works_) {
      work->on_done(one_less);
    }
  }

 private:
  std::vector<std::unique_ptr<Work>> works_;
  std::function<void()> finish_;
};

/// Starts one c10d operation; a failure to start means that a connection is gone.
template <class Call>
std::unique_ptr<Work> start(Call call) {
  try {
    return std::make_unique<GlooWork>(call());
  } catch (const std::exception& error) {
    fail(ErrorKind::comm, "peer-lost", "{}", reason(error));
  }
}

class Gloo final : public Backend {
 public:
  explicit Gloo(c10::intrusive_ptr<c10d::ProcessGroupGloo> group) : group_(std::move(group)) {}

  std::unique_ptr<Work> all_reduce(at::Tensor& x, ReduceOp op) override {
    return start([&] {
      Tensors tensors{x};
      c10d::AllreduceOptions options;
      options.reduceOp = to_c10d(op);
      return group_->allreduce(tensors, options);
    });
  }

  /// One broadcast of each part, straight into its place: c10d's own gathers into a second buffer
  /// of the whole size and copies from there.
  std::unique_ptr<Work> all_gather(at::Tensor& out, const at::Tensor& in) override {
    const std::int64_t part = in.numel();
    const at::Tensor whole = out.view({-1});
    at::Tensor own = whole.narrow(0, group_->getRank() * part, part);
    if (own.data_ptr() != in.data_ptr()) {
      own.copy_(in.view({-1}));
    }
    std::vector<std::unique_ptr<Work>> works;
    for (int rank = 0; rank < group_->getSize(); ++rank) {
      at::Tensor from = whole.narrow(0, rank * part, part);
      works.push_back(broadcast(from, rank));
    }
    return std::make_unique<CombinedWork>(std::move(works), nullptr);
  }

  /// In place on the input, which nobody reads again: c10d's own works on a copy of it, and its
  /// work cannot tell when it is done.
  std::unique_ptr<Work> reduce_scatter(at::Tensor& out, const at::Tensor& in) override {
    at::Tensor whole = in.view({-1});
    std::vector<std::unique_ptr<Work>> works;
    works.push_back(all_reduce(whole, ReduceOp::sum));
    const at::Tensor mine = whole.narrow(0, group_->getRank() * out.numel(), out.numel());
    return std::make_unique<CombinedWork>(std::move(works), [mine, out = out.view({-1})] {
      if (out.data_ptr() != mine.data_ptr()) {
        out.copy_(mine);
      }
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
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

}  // namespace

std::unique_ptr<Backend> connect_gloo(Store& store, const BackendOptions& options) {
  try {
    auto shared = c10::intrusive_ptr<c10d::Store>::reclaim_copy(&store.native());
    auto own_keys = c10::make_intrusive<c10d::PrefixStore>(options.prefix, shared);
    auto gloo = c10d::ProcessGroupGloo::Options::create(options.connect_timeout);
    gloo->devices.push_back(options.local
                                ? c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
                                : c10d::ProcessGroupGloo::createDefaultDevice());
    auto group =
        c10::make_intrusive<c10d::ProcessGroupGloo>(own_keys, options.rank, options.size, gloo);
    // Work::wait enforces our timeout, and explains it; Gloo's own must never come first.
    group->setTimeout(2 * options.collective_timeout);
    return std::make_unique<Gloo>(std::move(group));
  } catch (const std::exception& error) {
    fail(ErrorKind::comm,
         "group-connect",
         "cannot connect group {}: {}",
         options.prefix,
         reason(error));
  }
}

}  // namespace colossal::detail
