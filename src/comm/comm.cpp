// What does each collective require of its arguments, and how is it run?
#include "comm/comm.hpp"

#include "comm/detail/group.hpp"
#include "core/error.hpp"
#include "core/trace.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <utility>

namespace colossal {
namespace detail {

/// A collective that the backend works on.
class PendingWork {
 public:
  PendingWork(std::shared_ptr<Group> group, Collective collective, std::unique_ptr<Work> work)
      : group_(std::move(group)), collective_(std::move(collective)), work_(std::move(work)) {}

  void wait() { group_->wait(*work_, collective_); }
  void keep(const Error& error) { group_->keep(error); }

 private:
  std::shared_ptr<Group> group_;
  Collective collective_;
  std::unique_ptr<Work> work_;
};

namespace {

/// Records a collective from here to the moment when the backend has done its part of it.
void record(Work& work, const Collective& collective, std::int64_t begin) {
  work.on_done([span = trace::Span{.phase = trace::Phase::communication,
                                   .begin = begin,
                                   .text = collective.op + " " + collective.group,
                                   .bytes = collective.bytes}]() mutable {
    span.thread = trace::thread_number();
    span.end = trace::now();
    trace::add(std::move(span));
  });
}

template <class Call>
Pending start(const std::shared_ptr<Group>& group,
              std::string_view op,
              std::int64_t bytes,
              Call call) {
  Collective collective = group->enter(op, bytes);
  const std::int64_t begin = trace::recording() ? trace::now() : 0;
  std::unique_ptr<Work> work;
  try {
    work = call(group->backend());
  } catch (const Error& error) {
    group->fail_broken(collective, error);
  }
  group->watch(*work, collective);
  if (begin != 0) {
    record(*work, collective, begin);
  }
  return Pending(std::make_unique<PendingWork>(group, std::move(collective), std::move(work)));
}

std::int64_t num_bytes(const at::Tensor& x) {
  return static_cast<std::int64_t>(x.nbytes());
}

void check_tensor(const at::Tensor& x, std::string_view op) {
  constexpr std::array kTypes{at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong};
  check(x.is_contiguous(),
        ErrorKind::internal,
        "comm-contiguous",
        "{} needs a contiguous tensor",
        op);
  check(std::find(kTypes.begin(), kTypes.end(), x.scalar_type()) != kTypes.end(),
        ErrorKind::internal,
        "comm-dtype",
        "{} does not take {}; it takes fp32, fp64, bf16, fp16 and int64",
        op,
        c10::toString(x.scalar_type()));
}

/// `large` holds `factor` times as many items of the same type as `small`.
void check_pair(const at::Tensor& large, const at::Tensor& small, int factor, std::string_view op) {
  check_tensor(large, op);
  check_tensor(small, op);
  check(large.scalar_type() == small.scalar_type(),
        ErrorKind::internal,
        "comm-dtype",
        "{} got {} and {}; both tensors need one dtype",
        op,
        c10::toString(large.scalar_type()),
        c10::toString(small.scalar_type()));
  check(large.numel() == factor * small.numel(),
        ErrorKind::internal,
        "comm-numel",
        "{} got {} and {} items; the first must be {} times the second",
        op,
        large.numel(),
        small.numel(),
        factor);
}

/// The whole of a collective on one rank.
void copy(at::Tensor& out, const at::Tensor& in) {
  const c10::AutoGradMode no_graph(false);
  if (out.data_ptr() != in.data_ptr()) {
    out.view({-1}).copy_(in.view({-1}));
  }
}

}  // namespace
}  // namespace detail

Pending::Pending() noexcept = default;
Pending::Pending(std::unique_ptr<detail::PendingWork> work) noexcept : work_(std::move(work)) {}
Pending::Pending(Pending&&) noexcept = default;

Pending& Pending::operator=(Pending&& other) noexcept {
  Pending finished(std::move(*this));  // waits for the collective that is replaced
  work_ = std::move(other.work_);
  return *this;
}

Pending::~Pending() {
  // While an exception passes, waiting could take the whole timeout; the backend keeps the tensors
  // alive.
  if (work_ == nullptr || std::uncaught_exceptions() > 0) {
    return;
  }
  try {
    work_->wait();
  } catch (const Error& error) {
    work_->keep(error);
  }
}

void Pending::wait() {
  if (const auto work = std::exchange(work_, nullptr)) {
    work->wait();
  }
}

Comm::Comm() : group_(std::make_shared<detail::Group>("self", 0)) {}
Comm::Comm(std::shared_ptr<detail::Group> group) : group_(std::move(group)) {}

int Comm::rank() const noexcept {
  return group_->rank();
}
int Comm::size() const noexcept {
  return group_->size();
}
std::string_view Comm::name() const noexcept {
  return group_->name();
}
const std::vector<int>& Comm::ranks() const noexcept {
  return group_->ranks();
}
std::vector<CommCounter> Comm::counters() const {
  return group_->counters();
}

Pending Comm::all_reduce(at::Tensor& x, ReduceOp op) const {
  detail::check_tensor(x, "all_reduce");
  if (size() == 1) {
    return {};
  }
  return detail::start(group_, "all_reduce", detail::num_bytes(x), [&](detail::Backend& backend) {
    return backend.all_reduce(x, op);
  });
}

Pending Comm::all_gather(at::Tensor& out, const at::Tensor& in) const {
  detail::check_pair(out, in, size(), "all_gather");
  if (size() == 1) {
    detail::copy(out, in);
    return {};
  }
  return detail::start(group_, "all_gather", detail::num_bytes(in), [&](detail::Backend& backend) {
    return backend.all_gather(out, in);
  });
}

Pending Comm::reduce_scatter(at::Tensor& out, const at::Tensor& in) const {
  detail::check_pair(in, out, size(), "reduce_scatter");
  if (size() == 1) {
    detail::copy(out, in);
    return {};
  }
  return detail::start(
      group_, "reduce_scatter", detail::num_bytes(in), [&](detail::Backend& backend) {
        return backend.reduce_scatter(out, in);
      });
}

Pending Comm::all_to_all(at::Tensor& out, const at::Tensor& in) const {
  detail::check_pair(out, in, 1, "all_to_all");
  check(in.dim() > 0 && in.size(0) % size() == 0,
        ErrorKind::internal,
        "comm-split",
        "all_to_all needs dim 0 to divide by {} ranks, got {} items",
        size(),
        in.dim() > 0 ? in.size(0) : 0);
  if (size() == 1) {
    detail::copy(out, in);
    return {};
  }
  return detail::start(group_, "all_to_all", detail::num_bytes(in), [&](detail::Backend& backend) {
    return backend.all_to_all(out, in);
  });
}

Pending Comm::broadcast(at::Tensor& x, int root) const {
  detail::check_tensor(x, "broadcast");
  check(root >= 0 && root < size(),
        ErrorKind::internal,
        "comm-root",
        "broadcast from rank {} of a group of {}",
        root,
        size());
  if (size() == 1) {
    return {};
  }
  return detail::start(group_, "broadcast", detail::num_bytes(x), [&](detail::Backend& backend) {
    return backend.broadcast(x, root);
  });
}

void Comm::barrier() const {
  if (size() > 1) {
    detail::start(group_, "barrier", 0, [](detail::Backend& backend) {
      return backend.barrier();
    }).wait();
  }
}

std::vector<std::string> Comm::gather_text(std::string_view mine) const {
  if (size() == 1) {
    return {std::string(mine)};
  }
  const auto num_ranks = static_cast<std::int64_t>(size());
  const auto my_bytes = static_cast<std::int64_t>(mine.size());
  at::Tensor lengths = at::empty({num_ranks}, at::kLong);
  all_gather(lengths, at::full({1}, my_bytes, at::kLong)).wait();
  const auto* length = lengths.const_data_ptr<std::int64_t>();
  const std::int64_t longest = *std::max_element(length, length + num_ranks);

  at::Tensor padded = at::zeros({longest}, at::kByte);
  at::Tensor all = at::empty({num_ranks, longest}, at::kByte);
  std::memcpy(padded.mutable_data_ptr(), mine.data(), mine.size());
  if (longest > 0) {
    detail::start(group_, "gather_text", my_bytes, [&](detail::Backend& backend) {
      return backend.all_gather(all, padded);
    }).wait();
  }
  const auto* bytes = static_cast<const char*>(all.const_data_ptr());
  std::vector<std::string> texts;
  for (std::int64_t i = 0; i < num_ranks; ++i) {
    texts.emplace_back(bytes + i * longest, static_cast<std::size_t>(length[i]));
  }
  return texts;
}

}  // namespace colossal
