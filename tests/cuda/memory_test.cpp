// Does the memory layer work on a GPU: buffers whose memory comes and goes, counts, copies beside
// the computation?
#include "core/error.hpp"
#include "memory/chunk_store.hpp"
#include "memory/cuda/gpu_memory.hpp"
#include "memory/device_memory.hpp"
#include "memory/gauge.hpp"
#include "memory/host_memory.hpp"
#include "memory/swap_buffer.hpp"
#include "support/gpu.hpp"
#include "unit/memory/memory_helpers.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <optional>
#include <string>
#include <vector>

namespace colossal {
namespace {

using test::kGpu;

constexpr std::int64_t kMiB = std::int64_t{1} << 20U;

TEST_CASE("views of a buffer on a GPU are valid again after a refill", "[cuda][memory]") {
  NEEDS_GPUS(1)
  BlockPool pool(kGpu, /*keeps=*/true);
  SwapBuffer buffer(1000, at::kFloat, kGpu);
  const at::Tensor view = buffer.tensor().narrow(0, 10, 5);
  buffer.fill(pool.get(buffer.bytes()));
  buffer.tensor().fill_(3);
  CHECK(at::equal(view, at::full({5}, 3.0F, view.options())));
  const at::Tensor other = pool.get(4000);  // so that the refill lies elsewhere
  pool.put(buffer.empty());
  buffer.fill(at::empty({4000}, at::TensorOptions(at::kByte).device(kGpu)));
  buffer.tensor().fill_(4);
  CHECK(at::equal(view, at::full({5}, 4.0F, view.options())));
  CHECK(view.is_cuda());
}

TEST_CASE("a GPU that is not there cannot be used", "[cuda][device]") {
  NEEDS_GPUS(1)
  try {
    use_device(at::Device(at::kCUDA, 100));
    FAIL("GPU 100 was used");
  } catch (const Error& error) {
    CHECK(error.id() == "gpu-unusable");
    CHECK(error.exit_code() == 9);
  }
}

TEST_CASE("a GPU's memory is counted, limited and refused by name", "[cuda][memory]") {
  NEEDS_GPUS(1)
  DeviceMemory& memory = cuda::gpu_memory(kGpu);
  REQUIRE(memory.limit());
  CHECK(*memory.limit() > 1024 * kMiB);
  const MemoryUse before = memory.use();
  {
    const at::Tensor block = at::empty({64 * kMiB}, at::TensorOptions(at::kByte).device(kGpu));
    CHECK(memory.use().current == before.current + 64 * kMiB);
  }
  CHECK(memory.use().current == before.current);
  CHECK(memory.use().peak >= before.current + 64 * kMiB);
  memory.reset_peak();
  CHECK(memory.use().peak == before.current);
  CHECK(memory.use().highest >= before.current + 64 * kMiB);

  memory.set_limit(512 * kMiB);
  CHECK_THROWS_AS(at::empty({600 * kMiB}, at::TensorOptions(at::kByte).device(kGpu)),
                  c10::OutOfMemoryError);
  memory.set_limit(std::nullopt);
  const std::optional<Refusal> refusal = memory.last_refusal();
  REQUIRE(refusal);
  CHECK(refusal->requested == 600 * kMiB);
  CHECK(refusal->limit == 512 * kMiB);
  REQUIRE(refusal->cached);
  CHECK(refusal->cached->reserved >= refusal->allocated);
  CHECK(refusal->cached->pieces <= refusal->cached->reserved);
  CHECK(refusal->cached->largest_free <= refusal->cached->reserved);
  CHECK(at::empty({600 * kMiB}, at::TensorOptions(at::kByte).device(kGpu)).defined());
}

TEST_CASE("copies beside the computation keep its order", "[cuda][memory]") {
  NEEDS_GPUS(1)
  cuda::CopyStream to_device(kGpu);
  cuda::CopyStream to_host(kGpu);
  constexpr std::int64_t kCount = 8 << 20;
  const at::Tensor source = host_empty(kCount, at::kFloat, HostPages::pinned);
  const at::Tensor target = host_empty(kCount, at::kFloat, HostPages::pinned);
  source.copy_(at::arange(kCount, at::kFloat));
  const at::Tensor there = at::zeros({kCount}, at::TensorOptions(at::kFloat).device(kGpu));
  for (int round = 0; round < 10; ++round) {
    there.fill_(-1);  // must come before the copy
    cuda::Copy up = to_device.copy(there, source);
    up.join();
    there.add_(1);  // and this after it
    cuda::Copy down = to_host.copy(target, there);
    down.join();
    there.fill_(-2);  // and this after the way back
    down.finish();
    CHECK(at::equal(target, source.add(1)));
  }
}

TEST_CASE("a copy waits for what its own stream is told to wait for", "[cuda][memory]") {
  NEEDS_GPUS(1)
  cuda::CopyStream stream(kGpu);
  const at::Tensor there = at::zeros({1000}, at::TensorOptions(at::kFloat).device(kGpu));
  const at::Tensor host = host_empty(1000, at::kFloat, HostPages::pinned);
  cuda::Copy copy = stream.copy(host, there, [&] { there.fill_(5); });  // on the copies' stream
  copy.finish();
  CHECK(at::equal(host, at::full({1000}, 5.0F)));
}

TEST_CASE("a gradient that nobody writes is zero, not what the step before has left",
          "[cuda][memory]") {
  NEEDS_GPUS(1)
  for (const std::string stage : {"0", "0 lent", "2"}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      for (const int micro_batches : {1, 2}) {
        StoreOptions options = test::plain_options(dtype);
        options.lend_grads = stage == "0 lent";
        const ParallelContext context(Config{}, kGpu);
        Parameter used(test::spec_of("used", {3}));
        Parameter idle(test::spec_of("idle", {4}));
        const auto planner =
            chunk_planners().make(stage.substr(0, 1), {.chunk_bytes = 1024, .item_bytes = 4});
        const std::vector<ChunkStore::Block> blocks = {{"block", {&used, &idle}}};
        ChunkStore store(blocks, *planner, {}, options, context);
        for (const bool both : {true, false}) {
          store.begin_gradients();
          for (int batch = 1; batch <= micro_batches; ++batch) {
            store.acquire(0, BlockUse::backward);
            used.tensor().sum().backward();
            if (both) {
              idle.tensor().sum().mul(100).backward();
            }
            store.gradients_ready(0, batch == micro_batches);
            store.release(0);
          }
          store.finish_gradients();
          INFO("stage " << stage << ", " << c10::toString(dtype) << ", " << micro_batches
                        << " micro-batches, idle " << !both);
          const double sum = store.shards().front().grad.to(at::kDouble).sum().item<double>();
          CHECK(sum == micro_batches * (3 + (both ? 400 : 0)));
          store.publish();
        }
      }
    }
  }
}

TEST_CASE("pinned memory is counted as long as it lives, other host memory is not",
          "[cuda][memory]") {
  NEEDS_GPUS(1)
  const std::int64_t before = gauge(MemoryKind::pinned).use().current;
  {
    const at::Tensor pinned = host_empty(100'000, at::kFloat, HostPages::pinned);
    const at::Tensor other = host_empty(100'000, at::kFloat, HostPages::plain);
    const std::int64_t held = gauge(MemoryKind::pinned).use().current - before;
    CHECK(held >= 400'000);
    CHECK(held < 800'000);
  }
  CHECK(gauge(MemoryKind::pinned).use().current == before);
}

}  // namespace
}  // namespace colossal
