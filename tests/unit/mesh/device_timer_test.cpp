// Does a timer say how long the device worked, and nothing about the time around it?
#include "mesh/device_timer.hpp"

#include "core/error.hpp"
#include "mesh/device.hpp"
#include "support/catch.hpp"

#include <chrono>
#include <string>
#include <thread>

namespace colossal {
namespace {

void sleep_for(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

TEST_CASE("a timer of the cpu measures what lies between start and stop", "[mesh][timer]") {
  const std::unique_ptr<DeviceTimer> timer = make_device_timer(at::kCPU);
  sleep_for(60);  // before the start: not counted
  timer->start();
  sleep_for(20);
  const double seconds = timer->stop();
  CHECK(seconds >= 0.020);
  CHECK(seconds < 0.060);
}

TEST_CASE("a timer can be started again, and reads on until it is", "[mesh][timer]") {
  const std::unique_ptr<DeviceTimer> timer = make_device_timer(at::kCPU);
  timer->start();
  sleep_for(5);
  const double first = timer->stop();
  sleep_for(5);
  CHECK(timer->stop() >= first + 0.005);
  timer->start();
  CHECK(timer->stop() < first);
}

TEST_CASE("a build without CUDA has no timer of a GPU", "[mesh][timer]") {
  if (survey_gpus().built_for != 0) {
    return;  // tests/cuda measures a real one
  }
  try {
    static_cast<void>(make_device_timer(at::Device(at::kCUDA, 0)));
    FAIL("a timer was made");
  } catch (const Error& error) {
    CHECK(error.id() == "no-cuda");
    CHECK(std::string(error.what()).find("cuda:0") != std::string::npos);
  }
}

}  // namespace
}  // namespace colossal
