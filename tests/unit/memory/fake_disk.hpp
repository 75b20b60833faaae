// How does a test make a disk misbehave? A queue that carries out requests at once, as it is told.
#pragma once

#include "memory/disk_queue.hpp"

#include <cerrno>
#include <deque>
#include <functional>
#include <memory>
#include <unistd.h>
#include <utility>

namespace colossal::test {

/// What the fake does with one request.
struct DiskAct {
  std::int64_t result;   ///< bytes to move, at most those asked for; or a negative errno
  bool corrupt = false;  ///< flips a bit of what was read
};

/// Decides about each request; `count` is its number, from 0.
using DiskPlan = std::function<DiskAct(const DiskRequest& request, int count)>;

class FakeDisk final : public DiskQueue {
 public:
  FakeDisk(int file, int depth, DiskPlan plan)
      : file_(file), depth_(static_cast<std::size_t>(depth)), plan_(std::move(plan)) {}

  [[nodiscard]] std::string_view name() const noexcept override { return "fake"; }

  [[nodiscard]] bool submit(const DiskRequest& request) override {
    if (results_.size() == depth_) {
      return false;
    }
    const DiskAct act = plan_(request, count_++);
    std::int64_t result = act.result;
    if (result > 0) {
      const auto bytes = static_cast<std::size_t>(result);
      result = request.write ? ::pwrite(file_, request.data, bytes, request.offset)
                             : ::pread(file_, request.data, bytes, request.offset);
      result = result < 0 ? -std::int64_t{errno} : result;
    }
    if (act.corrupt && result > 0) {
      request.data[result / 2] ^= std::byte{4};
    }
    results_.push_back({request.id, result});
    return true;
  }

  [[nodiscard]] DiskResult wait() override {
    const DiskResult last = results_.back();  // order is not kept
    results_.pop_back();
    return last;
  }

 private:
  int file_;
  std::size_t depth_;
  DiskPlan plan_;
  int count_ = 0;
  std::deque<DiskResult> results_;
};

/// A factory of fakes that follow `plan`.
inline DiskQueueFactory fake_disk(DiskPlan plan) {
  return [plan = std::move(plan)](int file, int depth) {
    return std::make_unique<FakeDisk>(file, depth, plan);
  };
}

}  // namespace colossal::test
