// Are bytes counted exactly, and does a device of a given size refuse as a real one would?
#include "memory/device_memory.hpp"

#include "memory/host_memory.hpp"
#include "memory_helpers.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace colossal {
namespace {

using test::error_of;

constexpr std::int64_t kMiB = std::int64_t{1} << 20U;

/// The device with a limit that ends with the object: other tests allocate freely.
struct Limited {
  explicit Limited(std::int64_t beyond) {
    device_memory().set_limit(device_memory().use().current + beyond);
  }
  ~Limited() { device_memory().set_limit(std::nullopt); }
  Limited(const Limited&) = delete;
  Limited& operator=(const Limited&) = delete;
};

/// What torch's profiler would be told of memory.
struct Listener final : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void* /*at*/,
                         std::int64_t bytes,
                         std::size_t allocated,
                         std::size_t /*reserved*/,
                         c10::Device /*device*/) override {
    told.push_back(bytes);
    held.push_back(static_cast<std::int64_t>(allocated));
  }
  bool memoryProfilingEnabled() const override { return true; }

  std::vector<std::int64_t> told;
  std::vector<std::int64_t> held;
};

/// Counts before anything else of the program allocates a tensor.
const bool kCounting = (static_cast<void>(device_memory()), true);

TEST_CASE("a gauge counts, keeps two peaks and honours its limit", "[memory][device]") {
  MemoryGauge gauge;
  CHECK(gauge.try_add(100));
  CHECK(gauge.try_add(50));
  gauge.remove(120);
  CHECK(gauge.use().current == 30);
  CHECK(gauge.use().peak == 150);
  gauge.reset_peak();
  CHECK(gauge.use().peak == 30);
  CHECK(gauge.use().highest == 150);
  CHECK_FALSE(gauge.limit().has_value());
  gauge.set_limit(40);
  CHECK(gauge.try_add(10));
  CHECK_FALSE(gauge.try_add(1));
  CHECK(gauge.use().current == 40);
  CHECK(gauge.use().peak == 40);
  CHECK(gauge.limit() == 40);
  gauge.set_limit(std::nullopt);
  CHECK(gauge.try_add(1000));
  CHECK(gauge.use().highest == 1040);
}

TEST_CASE("threads count side by side without losing a byte", "[memory][device]") {
  MemoryGauge gauge;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&gauge] {
      for (int round = 0; round < 20'000; ++round) {
        if (gauge.try_add(8)) {
          gauge.remove(8);
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(gauge.use().current == 0);
  CHECK(gauge.use().peak >= 8);
  CHECK(gauge.use().peak <= 32);
}

TEST_CASE("tensors are counted by what they asked for, and until their last view",
          "[memory][device]") {
  REQUIRE(kCounting);
  const std::int64_t before = device_memory().use().current;
  at::Tensor view;
  {
    const at::Tensor tensor = at::zeros({1000}, at::kFloat);
    CHECK(device_memory().use().current == before + 4000);
    view = tensor.narrow(0, 10, 3);
  }
  CHECK(device_memory().use().current == before + 4000);
  view.reset();
  CHECK(device_memory().use().current == before);
  const at::Tensor empty = at::empty({0}, at::kFloat);
  CHECK(device_memory().use().current == before);
}

TEST_CASE("the peak holds temporaries, and starts anew when asked", "[memory][device]") {
  device_memory().reset_peak();
  const std::int64_t before = device_memory().use().current;
  {
    const at::Tensor temporary = at::empty({3 * kMiB}, at::kByte);
  }
  CHECK(device_memory().use().peak == before + 3 * kMiB);
  CHECK(device_memory().use().highest >= before + 3 * kMiB);
  device_memory().reset_peak();
  CHECK(device_memory().use().peak == before);
  CHECK(device_memory().use().highest >= before + 3 * kMiB);
}

TEST_CASE("a matrix product counts its result, and its scratch memory comes back",
          "[memory][device]") {
  const at::Tensor a = at::ones({64, 96}, at::kFloat);
  const at::Tensor b = at::ones({96, 32}, at::kFloat);
  const std::int64_t before = device_memory().use().current;
  const at::Tensor c = at::matmul(a, b);
  CHECK(device_memory().use().current == before + 64 * 32 * 4);
  CHECK(c.sum().item<float>() == 64 * 32 * 96.0F);
  const at::Tensor half =
      at::matmul(a.to(at::kBFloat16), b.to(at::kBFloat16));  // oneDNN's raw interface
  CHECK(device_memory().use().current == before + 64 * 32 * 4 + 64 * 32 * 2);
  CHECK(half.to(at::kFloat).sum().item<float>() == Approx(64 * 32 * 96.0));
}

TEST_CASE("whoever asks torch for what a thread takes is told", "[memory][device]") {
  const std::int64_t before = device_memory().use().current;
  const auto listener = std::make_shared<Listener>();
  {
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, listener);
    {
      const at::Tensor x = at::empty({1000}, at::kFloat);
    }
    std::thread([] { const at::Tensor other = at::empty({10}, at::kFloat); }).join();
  }
  {
    const at::Tensor later = at::empty({10}, at::kFloat);
  }
  CHECK(listener->told == std::vector<std::int64_t>{4000, -4000});
  CHECK(listener->held == std::vector<std::int64_t>{before + 4000, before});
}

TEST_CASE("the raw interface of the allocator counts and gives back", "[memory][device]") {
  c10::Allocator* allocator = c10::GetCPUAllocator();
  const std::int64_t before = device_memory().use().current;
  void* block = allocator->raw_allocate(1234);
  REQUIRE(block != nullptr);
  CHECK(reinterpret_cast<std::uintptr_t>(block) % 64 == 0);
  CHECK(device_memory().use().current == before + 1234);
  allocator->raw_deallocate(block);
  CHECK(device_memory().use().current == before);
}

TEST_CASE("a device of a given size refuses one byte more, and goes on afterwards",
          "[memory][device]") {
  const std::int64_t before = device_memory().use().current;
  const Limited limited(kMiB);
  const at::Tensor half = at::ones({kMiB / 2}, at::kByte);
  {
    const trace::Scope scope(trace::Phase::forward, 2, 1);
    CHECK_THROWS_AS(at::empty({kMiB / 2 + 1}, at::kByte), c10::OutOfMemoryError);
  }
  const std::optional<Refusal> refusal = device_memory().last_refusal();
  REQUIRE(refusal.has_value());
  CHECK(refusal->requested == kMiB / 2 + 1);
  CHECK(refusal->allocated == before + kMiB / 2);
  CHECK(refusal->peak >= before + kMiB / 2);
  CHECK(refusal->limit == before + kMiB);
  REQUIRE(refusal->place.has_value());
  CHECK(refusal->place->phase == trace::Phase::forward);
  CHECK(refusal->place->block == 2);
  CHECK(refusal->place->micro_batch == 1);

  CHECK(device_memory().use().current == before + kMiB / 2);
  const at::Tensor rest = at::empty({kMiB / 2}, at::kByte);
  CHECK(half.const_data_ptr<std::uint8_t>()[kMiB / 2 - 1] == 1);
}

TEST_CASE("an operation that fails half-way leaves nothing behind", "[memory][device]") {
  const at::Tensor a = at::ones({512, 512}, at::kFloat);
  const std::int64_t before = device_memory().use().current;
  const Limited limited(512 * 512 * 4);
  CHECK_THROWS_AS(a.add(a).mul(a.sub(a)),
                  c10::OutOfMemoryError);  // the second temporary has no room
  CHECK(device_memory().use().current == before);
}

TEST_CASE("what the machine itself refuses has no limit of ours", "[memory][device]") {
  const std::int64_t before = device_memory().use().current;
  CHECK_THROWS_AS(at::empty({std::int64_t{1} << 55}, at::kByte), c10::OutOfMemoryError);
  const std::optional<Refusal> refusal = device_memory().last_refusal();
  REQUIRE(refusal.has_value());
  CHECK(refusal->requested == std::int64_t{1} << 55);
  CHECK_FALSE(refusal->limit.has_value());
  CHECK_FALSE(refusal->place.has_value());
  CHECK(device_memory().use().current == before);
}

TEST_CASE("host memory is aligned, zero, writable to its padded end, and not the device's",
          "[memory][device]") {
  const std::int64_t device = device_memory().use().current;
  const std::int64_t host = gauge(MemoryKind::host).use().current;
  {
    at::Tensor tensor = host_empty(1025, at::kFloat);
    CHECK(tensor.numel() == 1025);
    CHECK(tensor.scalar_type() == at::kFloat);
    CHECK(reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) % kHostPage == 0);
    CHECK(static_cast<std::int64_t>(tensor.storage().nbytes()) == 2 * kHostPage);
    CHECK(tensor.abs().sum().item<float>() == 0);
    tensor.fill_(1);
    static_cast<std::byte*>(tensor.data_ptr())[2 * kHostPage - 1] = std::byte{1};
    CHECK(tensor.sum().item<float>() == 1025);
    CHECK(gauge(MemoryKind::host).use().current == host + 2 * kHostPage);
    const at::Tensor view = tensor.narrow(0, 3, 5);
    tensor.reset();
    CHECK(gauge(MemoryKind::host).use().current == host + 2 * kHostPage);
  }
  CHECK(device_memory().use().current == device);
  CHECK(gauge(MemoryKind::host).use().current == host);
  CHECK(host_empty(0, at::kDouble).numel() == 0);
}

TEST_CASE("host memory has a limit of its own", "[memory][device]") {
  MemoryGauge& host = gauge(MemoryKind::host);
  const std::int64_t before = host.use().current;
  host.set_limit(before + kMiB);
  const at::Tensor first = host_empty(kMiB / 2, at::kByte);
  const Error error = error_of([] { static_cast<void>(host_empty(kMiB / 2 + 1, at::kByte)); });
  CHECK(error.id() == "host-memory");
  CHECK(error.exit_code() == 6);
  CHECK_THAT(error.what(),
             Catch::Matchers::Contains("528384 bytes") &&
                 Catch::Matchers::Contains(std::to_string(before + kMiB)) &&
                 Catch::Matchers::Contains("train.activation_checkpoint.offload: none"));
  CHECK(host_empty(kMiB / 2, at::kByte).defined());
  host.set_limit(std::nullopt);
  const Error refused =
      error_of([] { static_cast<void>(host_empty(std::int64_t{1} << 55U, at::kByte)); });
  CHECK(refused.id() == "host-memory");
  CHECK_THAT(refused.what(), Catch::Matchers::Contains("the system gives no"));
  CHECK(host.use().current == before + kMiB / 2);
}

TEST_CASE("counting costs little beside an allocation", "[memory][device]") {
  // A step of the smallest example takes 5 ms and allocates less than 300 tensors: 0.5 % of it is
  // 83 ns an allocation, counting and the header included.
  constexpr int kRounds = 20'000;
  const auto measure = [](c10::Allocator& allocator) {
    std::int64_t best = INT64_MAX;
    for (int trial = 0; trial < 7; ++trial) {
      const std::int64_t begin = trace::now();
      for (int i = 0; i < kRounds; ++i) {
        const c10::DataPtr block = allocator.allocate(4096);
        static_cast<volatile char*>(block.get())[0] = 1;
      }
      best = std::min(best, trace::now() - begin);
    }
    return static_cast<double>(best) / kRounds;
  };
  const double counted = measure(*c10::GetCPUAllocator());
  const double plain = measure(*c10::GetDefaultCPUAllocator());
  INFO(counted << " ns an allocation, " << plain << " ns without counting");
  CHECK(counted - plain < 83);
}

}  // namespace
}  // namespace colossal
