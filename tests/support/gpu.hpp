// Is there a GPU for the tests labelled cuda? Without one they pass with a message.
#pragma once

#include "mesh/device.hpp"
#include "support/catch.hpp"

namespace colossal::test {

/// The first one.
inline const at::Device kGpu(at::kCUDA, 0);

/// GPUs that this build can use here.
inline int usable_gpus() {
  const GpuSurvey survey = survey_gpus();
  int count = 0;
  for (const Gpu& gpu : survey.gpus) {
    count += survey.built_for != 0 && gpu.capability >= survey.built_for ? 1 : 0;
  }
  return count;
}

/// Whether there are `count` of them; if so the first one is ready.
inline bool have_gpus(int count) {
  const int found = usable_gpus();
  if (found < count) {
    WARN("skipped: needs " << count << " GPU(s), this machine has " << found);
    return false;
  }
  use_device(at::Device(at::kCUDA, 0));
  return true;
}

}  // namespace colossal::test

/// First line of a test of label cuda.
#define NEEDS_GPUS(count)                  \
  if (!colossal::test::have_gpus(count)) { \
    return;                                \
  }
