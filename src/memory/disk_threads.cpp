// How is a disk kept busy without io_uring? A few threads, each with one blocking call at a time.
#include "memory/disk_queue.hpp"

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <unistd.h>
#include <vector>

namespace colossal {
namespace {

constexpr int kMaxThreads = 8;  // enough to fill a disk; each only waits for it

class ThreadQueue final : public DiskQueue {
 public:
  ThreadQueue(int file, int depth) : file_(file), depth_(depth) {
    for (int i = 0; i < std::min(depth, kMaxThreads); ++i) {
      threads_.emplace_back([this] { work(); });
    }
  }

  ~ThreadQueue() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    to_do_.notify_all();
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }

  ThreadQueue(const ThreadQueue&) = delete;
  ThreadQueue& operator=(const ThreadQueue&) = delete;

  [[nodiscard]] std::string_view name() const noexcept override { return "pread"; }

  [[nodiscard]] bool submit(const DiskRequest& request) override {
    if (under_way_ == depth_) {
      return false;
    }
    ++under_way_;
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
    }
    to_do_.notify_one();
    return true;
  }

  [[nodiscard]] DiskResult wait() override {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return !results_.empty(); });
    const DiskResult result = results_.front();
    results_.pop_front();
    --under_way_;
    return result;
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      to_do_.wait(lock, [this] { return stopping_ || !requests_.empty(); });
      if (requests_.empty()) {
        return;
      }
      const DiskRequest request = requests_.front();
      requests_.pop_front();
      lock.unlock();
      const std::int64_t result = carry_out(request);
      lock.lock();
      results_.push_back({request.id, result});
      done_.notify_one();
    }
  }

  [[nodiscard]] std::int64_t carry_out(const DiskRequest& request) const {
    const auto bytes = static_cast<std::size_t>(request.bytes);
    const ssize_t moved = request.write ? ::pwrite(file_, request.data, bytes, request.offset)
                                        : ::pread(file_, request.data, bytes, request.offset);
    return moved < 0 ? -std::int64_t{errno} : std::int64_t{moved};
  }

  int file_;
  int depth_;
  int under_way_ = 0;
  std::mutex mutex_;  // of everything below
  std::condition_variable to_do_;
  std::condition_variable done_;
  std::deque<DiskRequest> requests_;
  std::deque<DiskResult> results_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<DiskQueue> make_thread_queue(int file, int depth) {
  return std::make_unique<ThreadQueue>(file, depth);
}

}  // namespace colossal
