// Does a timer see how long a GPU works, whatever the host does meanwhile?
#include "mesh/device_timer.hpp"
#include "support/catch.hpp"
#include "support/gpu.hpp"

#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>

#include <chrono>
#include <thread>

namespace colossal::test {

TEST_CASE("GPU: a timer measures kernels, not the host that waits beside them", "[timer]") {
  NEEDS_GPUS(1)
  const at::Tensor a = at::randn({4096, 4096}, at::TensorOptions(at::kFloat).device(at::kCUDA, 0));
  const std::unique_ptr<DeviceTimer> timer = make_device_timer(a.device());
  const auto seconds_of = [&](int products) {
    timer->start();
    for (int i = 0; i < products; ++i) {
      (void)at::mm(a, a);
    }
    return timer->stop();
  };
  (void)seconds_of(3);  // loads the library
  const double one = seconds_of(1);
  const double twenty = seconds_of(20);
  CHECK(one > 1e-4);  // 137 GFLOP of fp32
  CHECK(twenty > 10 * one);
  CHECK(twenty < 40 * one);

  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(seconds_of(1) < 0.040);  // the pause before is not part of it
}

}  // namespace colossal::test
