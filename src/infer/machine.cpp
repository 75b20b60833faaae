// How are threads and memory bounded? By LibTorch's own switch, and by the allocator under it.
#include "infer/machine.hpp"

#include "memory/device_memory.hpp"

#include <ATen/Parallel.h>

namespace colossal {

void use_machine(const RunConfig& run) {
  device_memory().set_limit(run.device_memory);
  if (run.threads) {
    at::set_num_threads(static_cast<int>(*run.threads));
  }
}

}  // namespace colossal
