// What do the process groups of c10d have in common? Most collectives; each library adds its own.
#pragma once

#include "comm/detail/backend.hpp"
#include "core/error.hpp"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace colossal::detail {

/// The word of c10d for it.
inline c10d::ReduceOp to_c10d(ReduceOp op) {
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

/// `store`, for keys that start with `prefix`.
inline c10::intrusive_ptr<c10d::Store> keys_of(Store& store, const std::string& prefix) {
  auto shared = c10::intrusive_ptr<c10d::Store>::reclaim_copy(&store.native());
  return c10::make_intrusive<c10d::PrefixStore>(prefix, std::move(shared));
}

/// A backend on `Group`, one of c10d's, whose works are `GroupWork`.
template <class Group, class GroupWork>
class C10dBackend : public Backend {
 public:
  explicit C10dBackend(c10::intrusive_ptr<Group> group) : group_(std::move(group)) {}

  std::unique_ptr<Work> all_reduce(at::Tensor& x, ReduceOp op) override {
    return start([&] {
      std::vector<at::Tensor> tensors{x};
      c10d::AllreduceOptions options;
      options.reduceOp = to_c10d(op);
      return group_->allreduce(tensors, options);
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
      std::vector<at::Tensor> tensors{x};
      c10d::BroadcastOptions options;
      options.rootRank = root;
      return group_->broadcast(tensors, options);
    });
  }

  std::unique_ptr<Work> barrier() override {
    return start([&] { return group_->barrier(); });
  }

 protected:
  /// Starts one c10d operation; a failure to start means that a peer is gone.
  template <class Call>
  static std::unique_ptr<Work> start(Call call) {
    try {
      return std::make_unique<GroupWork>(call());
    } catch (const std::exception& error) {
      fail(ErrorKind::comm, "peer-lost", "{}", reason(error));
    }
  }

  [[nodiscard]] Group& group() const { return *group_; }

 private:
  c10::intrusive_ptr<Group> group_;
};

}  // namespace colossal::detail
