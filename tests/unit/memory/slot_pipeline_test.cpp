// Do disk and processor work at once, and does nothing get lost when one of them fails?
#include "memory/slot_pipeline.hpp"

#include "fake_disk.hpp"
#include "memory/gauge.hpp"
#include "memory/host_memory.hpp"
#include "memory_helpers.hpp"
#include "support/temp_dir.hpp"

#include <ATen/ops/full.h>

#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

namespace colossal {
namespace {

using test::DiskAct;
using test::error_of;
using test::fake_disk;
using test::TempDir;
using namespace std::chrono_literals;

/// Slots of 1, 2, 3, ... pages and a few bytes.
std::vector<std::int64_t> sizes(int count) {
  std::vector<std::int64_t> bytes;
  for (int i = 0; i < count; ++i) {
    bytes.push_back((i + 1) * 4096 - 4 * i);
  }
  return bytes;
}

std::vector<int> all_of(const NvmeFile& file) {
  std::vector<int> slots(static_cast<std::size_t>(file.num_slots()));
  std::iota(slots.begin(), slots.end(), 0);
  return slots;
}

/// Adds slot + 1 to every float of a slot, as an optimizer would.
void add_slot(int slot, const at::Tensor& bytes) {
  bytes.view(at::kFloat).add_(slot + 1);
}

TEST_CASE("passes update every slot once, in order", "[memory][nvme]") {
  const TempDir folder;
  const int count = GENERATE(1, 2, 3, 4, 11);
  NvmeFile file({.folder = folder.path()}, sizes(count));
  SlotPipeline pipeline(file);
  for (int pass = 0; pass < 3; ++pass) {
    std::vector<int> seen;
    pipeline.visit(all_of(file), StateAccess::update, [&](int slot, const at::Tensor& bytes) {
      CHECK(bytes.numel() == file.slot_bytes(slot));
      seen.push_back(slot);
      add_slot(slot, bytes);
    });
    CHECK(seen == all_of(file));
  }
  pipeline.visit(all_of(file), StateAccess::read, [&](int slot, const at::Tensor& bytes) {
    const at::Tensor values = bytes.view(at::kFloat);
    CHECK(values.eq(3 * (slot + 1)).all().item<bool>());
    values.zero_();  // not written back
  });
  pipeline.visit(all_of(file), StateAccess::read, [&](int slot, const at::Tensor& bytes) {
    CHECK(bytes.view(at::kFloat)[0].item<float>() == static_cast<float>(3 * (slot + 1)));
  });
}

TEST_CASE("some of the slots, in any order, and none at all", "[memory][nvme]") {
  const TempDir folder;
  NvmeFile file({.folder = folder.path()}, sizes(5));
  SlotPipeline pipeline(file);
  pipeline.visit(std::vector<int>{4, 0, 2}, StateAccess::update, add_slot);
  pipeline.visit(std::vector<int>{}, StateAccess::update, add_slot);
  std::vector<float> first;
  pipeline.visit(all_of(file), StateAccess::read, [&](int, const at::Tensor& bytes) {
    first.push_back(bytes.view(at::kFloat)[0].item<float>());
  });
  CHECK(first == std::vector<float>{1, 0, 3, 0, 5});
}

TEST_CASE("three buffers of the largest slot are all the memory a pass takes", "[memory][nvme]") {
  const TempDir folder;
  NvmeFile file({.folder = folder.path()}, sizes(20));
  MemoryGauge& host = gauge(MemoryKind::host);
  const std::int64_t before = host.use().current;
  host.reset_peak();
  {
    SlotPipeline pipeline(file);
    pipeline.visit(all_of(file), StateAccess::update, add_slot);
  }
  CHECK(host.use().peak == before + 3 * 20 * 4096);
  CHECK(host.use().current == before);
}

TEST_CASE("the disk works while slots are used", "[memory][nvme]") {
  const TempDir folder;
  constexpr int kSlots = 10;
  NvmeFile file({.folder = folder.path(), .queue = fake_disk([](const DiskRequest& request, int) {
                                            std::this_thread::sleep_for(
                                                20ms);  // a slow disk: reading or writing one slot
                                            return DiskAct{request.bytes};
                                          })},
                std::vector<std::int64_t>(kSlots, 4096));
  SlotPipeline pipeline(file);
  const auto pass = [&] {
    const auto start = std::chrono::steady_clock::now();
    pipeline.visit(all_of(file), StateAccess::update, [](int slot, const at::Tensor& bytes) {
      std::this_thread::sleep_for(40ms);
      add_slot(slot, bytes);
    });
    return std::chrono::steady_clock::now() - start;
  };
  static_cast<void>(pass());      // slots that were never written need no reading
  CHECK(pass() < kSlots * 65ms);  // one after the other: 80 ms a slot; together: 40
}

TEST_CASE("a pass that fails ends at the fault, and no later pass starts", "[memory][nvme]") {
  const TempDir folder;
  const bool write = GENERATE(true, false);
  bool broken = false;
  NvmeFile file({.folder = folder.path(), .queue = fake_disk([&](const DiskRequest& request, int) {
                                            const bool hit = broken && request.write == write &&
                                                             request.offset == 4 * 4096;
                                            return DiskAct{hit ? -EIO : request.bytes};
                                          })},
                std::vector<std::int64_t>(10, 4096));
  SlotPipeline pipeline(file);
  // A run in small: a pass over the states, then the checkpoint, which must never be of a pass that
  // failed.
  int checkpoint = 0;
  const auto step = [&](int number) {
    pipeline.visit(all_of(file), StateAccess::update, add_slot);
    checkpoint = number;
  };
  step(1);
  step(2);
  broken = true;
  CHECK(error_of([&] { step(3); }).id() == "nvme-io");
  broken = false;
  CHECK(error_of([&] { step(4); }).id() == "nvme-io");
  CHECK(checkpoint == 2);
}

#if COLOSSAL_FAULTS
TEST_CASE("a real run's disk fails when a test asks for it", "[memory][nvme]") {
  const TempDir folder;
  const auto backend = GENERATE(NvmeBackend::automatic, NvmeBackend::pread);
  ::setenv("COLOSSAL_FAULT", "rank=3,kind=nvme-error:61440", 1);  // 15 slots of a page
  NvmeFile file({.folder = folder.path(), .rank = 3, .backend = backend},
                std::vector<std::int64_t>(10, 4096));
  ::unsetenv("COLOSSAL_FAULT");
  SlotPipeline pipeline(file);
  pipeline.visit(all_of(file), StateAccess::update, add_slot);
  const Error error =
      error_of([&] { pipeline.visit(all_of(file), StateAccess::update, add_slot); });
  CHECK(error.id() == "nvme-io");
  CHECK_THAT(error.what(), Catch::Matchers::Contains("slot 5 of"));
}
#endif

TEST_CASE("an error of the user of a slot comes through, and the file stays usable",
          "[memory][nvme]") {
  const TempDir folder;
  NvmeFile file({.folder = folder.path()}, sizes(6));
  SlotPipeline pipeline(file);
  const Error error = error_of([&] {
    pipeline.visit(all_of(file), StateAccess::update, [](int slot, const at::Tensor& bytes) {
      check(slot < 3, ErrorKind::numerics, "nonfinite-loss", "slot {}", slot);
      add_slot(slot, bytes);
    });
  });
  CHECK(error.id() == "nonfinite-loss");
  std::vector<float> first;
  pipeline.visit(all_of(file), StateAccess::read, [&](int, const at::Tensor& bytes) {
    first.push_back(bytes.view(at::kFloat)[0].item<float>());
  });
  CHECK(first == std::vector<float>{1, 2, 3, 0, 0, 0});
}

}  // namespace
}  // namespace colossal
