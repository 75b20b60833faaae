// How do threads that share one object each get a workspace? From a pool, for the time of one call.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace colossal::detail {

/// Workspaces, as many as threads ever used it at once. Thread-safe.
template <class T>
class Pool {
 public:
  /// A workspace; goes back to the pool when it is destroyed. The pool must live longer.
  class Lease {
   public:
    Lease(Pool& pool, std::unique_ptr<T> object) : pool_(pool), object_(std::move(object)) {}
    ~Lease() { pool_.give_back(std::move(object_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    T& operator*() const { return *object_; }
    T* operator->() const { return object_.get(); }

   private:
    Pool& pool_;
    std::unique_ptr<T> object_;
  };

  /// A workspace that was used before if one is free.
  [[nodiscard]] Lease take() {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<T> object;
    if (!free_.empty()) {
      object = std::move(free_.back());
      free_.pop_back();
    }
    return Lease(*this, object ? std::move(object) : std::make_unique<T>());
  }

 private:
  void give_back(std::unique_ptr<T> object) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(object));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> free_;
};

}  // namespace colossal::detail
