// How does a test of tiny tensors avoid waking other threads, which would take most of its time?
#pragma once

#include <ATen/Parallel.h>

namespace colossal::test {

/// While alive, torch and our kernels run on the calling thread.
class OneThread {
 public:
  OneThread() { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(kept_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int kept_ = at::get_num_threads();
};

}  // namespace colossal::test
