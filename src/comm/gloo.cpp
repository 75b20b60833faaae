// How does Comm run on CPUs? c10d's ProcessGroupGloo, compiled against our own stand-ins for Gloo's
// headers.
#include "comm/detail/c10d_backend.hpp"
#include "core/error.hpp"

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>
#include <vector>

namespace colossal::detail {
namespace {

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

class Gloo final : public C10dBackend<c10d::ProcessGroupGloo, GlooWork> {
 public:
  using C10dBackend::C10dBackend;

  /// One broadcast of each part, straight into its place: c10d's own gathers into a second buffer
  /// of the whole size and copies from there.
  std::unique_ptr<Work> all_gather(at::Tensor& out, const at::Tensor& in) override {
    const std::int64_t part = in.numel();
    const at::Tensor whole = out.view({-1});
    at::Tensor own = whole.narrow(0, group().getRank() * part, part);
    if (own.data_ptr() != in.data_ptr()) {
      own.copy_(in.view({-1}));
    }
    std::vector<std::unique_ptr<Work>> works;
    for (int rank = 0; rank < group().getSize(); ++rank) {
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
    const at::Tensor mine = whole.narrow(0, group().getRank() * out.numel(), out.numel());
    return std::make_unique<CombinedWork>(std::move(works), [mine, out = out.view({-1})] {
      if (out.data_ptr() != mine.data_ptr()) {
        out.copy_(mine);
      }
    });
  }
};

}  // namespace

std::unique_ptr<Backend> connect_gloo(Store& store, const BackendOptions& options) {
  try {
    auto gloo = c10d::ProcessGroupGloo::Options::create(options.connect_timeout);
    gloo->devices.push_back(options.local
                                ? c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
                                : c10d::ProcessGroupGloo::createDefaultDevice());
    auto group = c10::make_intrusive<c10d::ProcessGroupGloo>(
        keys_of(store, options.prefix), options.rank, options.size, gloo);
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
