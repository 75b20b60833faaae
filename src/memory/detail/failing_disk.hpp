// How does a test let the disk of a real run fail? A queue that refuses writes after some bytes.
#pragma once

#include "memory/disk_queue.hpp"

#include <cerrno>
#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>
#include <utility>

namespace colossal::detail {

/// The queue `inner` until `limit` bytes are written; from then on writes end with EIO.
class FailingDisk final : public DiskQueue {
 public:
  FailingDisk(std::unique_ptr<DiskQueue> inner, std::int64_t limit)
      : inner_(std::move(inner)), left_(limit) {}

  [[nodiscard]] std::string_view name() const noexcept override { return inner_->name(); }

  [[nodiscard]] bool submit(const DiskRequest& request) override {
    if (request.write && request.bytes > left_) {
      left_ = 0;
      refused_.push_back({request.id, -EIO});
      return true;
    }
    const bool taken = inner_->submit(request);
    left_ -= taken && request.write ? request.bytes : 0;
    return taken;
  }

  [[nodiscard]] DiskResult wait() override {
    if (refused_.empty()) {
      return inner_->wait();
    }
    const DiskResult result = refused_.front();
    refused_.pop_front();
    return result;
  }

 private:
  std::unique_ptr<DiskQueue> inner_;
  std::int64_t left_;
  std::deque<DiskResult> refused_;
};

}  // namespace colossal::detail
