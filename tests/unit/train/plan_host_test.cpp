// Is what a plan says of host memory and disk what a run takes there, category by category?
#include "memory/gauge.hpp"
#include "memory/host_memory.hpp"
#include "memory/slot_pipeline.hpp"
#include "support/catch.hpp"
#include "support/policies.hpp"
#include "support/text.hpp"
#include "support/tiny_models.hpp"
#include "train/plan_report.hpp"
#include "train/trainer.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

namespace colossal::test {
namespace {

std::int64_t tensor_bytes(const at::Tensor& tensor) {
  return tensor.numel() * tensor.element_size();
}

std::int64_t whole_pages(std::int64_t bytes) {
  return (bytes + kHostPage - 1) / kHostPage * kHostPage;
}

/// What the tensors of a store take beside the device.
struct BesideDevice {
  HostBytes host;
  std::int64_t host_pages = 0;  ///< the same in whole pages
  std::int64_t disk = 0;
  std::int64_t disk_pages = 0;
  std::int64_t largest_slot = 0;

  void add(std::int64_t& category, std::int64_t more) {
    category += more;
    host_pages += whole_pages(more);
  }

  void add_states(const FlatShard& shard, bool on_host) {
    std::int64_t states = 0;
    for (const auto& [name, tensor] : shard.state) {
      states += tensor_bytes(tensor);
      if (on_host && !shard.bring_states) {
        add(host.optimizer, tensor_bytes(tensor));
      }
    }
    if (shard.bring_states) {
      disk += states;
      disk_pages += whole_pages(states);
      largest_slot = std::max(largest_slot, states);
    }
  }
};

BesideDevice beside_device(ChunkStore& store) {
  BesideDevice held;
  for (std::size_t i = 0; i < store.shards().size(); ++i) {
    const ChunkSpec& chunk = store.plan().chunks[i];
    const FlatShard& shard = store.shards()[i];
    const bool mixed = shard.working.defined();
    const bool on_host = chunk.optim_home == Tier::host;
    const bool weights_on_host = !chunk.resident && chunk.param_home == Tier::host;
    if (weights_on_host) {
      held.add(held.host.weights, tensor_bytes(mixed ? shard.working : shard.master));
    }
    if (on_host) {
      held.add(held.host.optimizer, weights_on_host && !mixed ? 0 : tensor_bytes(shard.master));
      held.add(held.host.grads, tensor_bytes(shard.grad));
    }
    held.add_states(shard, on_host);
  }
  for (std::size_t i = 0; i < SlotPipeline::kBuffers; ++i) {
    held.add(held.host.buffers, held.largest_slot);
  }
  return held;
}

}  // namespace

TEST_CASE("planned host and disk bytes of each category are what a run allocates", "[plan]") {
  const SizedDevice device;
  const MemoryGauge& host = gauge(MemoryKind::host);
  const MemoryGauge& disk = gauge(MemoryKind::nvme);
  for (const Policy& policy : policies()) {
    for (const Precision precision : {Precision::fp64, Precision::bf16}) {
      INFO(policy.name << ", " << yaml_word(precision));
      Config config = with(tiny_gpt(), policy);
      config.run.device = DeviceKind::cpu;
      config.run.device_memory = kDevice;
      config.train.precision = precision;
      const RankBytes planned = make_plan(config, 80).ranks.at(0);
      const std::int64_t host_before = host.use().current;
      const std::int64_t disk_before = disk.use().current;
      const ParallelContext context(config);
      const TrainerParts parts = build(config, context, {});
      const BesideDevice held = beside_device(*parts.store);
      CHECK(planned.host.weights == held.host.weights);
      CHECK(planned.host.grads == held.host.grads);
      CHECK(planned.host.optimizer == held.host.optimizer);
      CHECK(planned.host.inputs == 0);
      CHECK(planned.host.buffers == held.host.buffers);
      CHECK(planned.nvme == held.disk);
      // and there is nothing else
      CHECK(host.use().current - host_before == held.host_pages);
      CHECK(disk.use().current - disk_before == held.disk_pages);
    }
  }
}

TEST_CASE("JSON has the categories of host and disk, which add up to them", "[plan]") {
  const SizedDevice device;
  for (const Policy& policy : policies()) {
    INFO(policy.name);
    Config config = with(tiny_gpt(), policy);
    config.run.device = DeviceKind::cpu;
    config.run.device_memory = kDevice;
    config.train.activation_checkpoint = {.mode = RecomputeMode::full,
                                          .offload = InputOffload::cpu};
    const PlanReport plan = make_plan(config, 80);
    const RankBytes& rank = plan.ranks.at(0);
    const auto json = nlohmann::json::parse(to_json(plan)).at("ranks").at(0);
    const auto sum = [&](const char* parts) {
      std::int64_t all = 0;
      for (const auto& [name, part] : json.at(parts).items()) {
        all += part.get<std::int64_t>();
      }
      return all;
    };
    CHECK(json.at("host") == sum("host_parts"));
    CHECK(json.at("nvme") == sum("nvme_parts"));
    CHECK(json.at("host_parts").at("inputs") == rank.host.inputs);
    CHECK(rank.host.inputs > 0);
    CHECK(json.at("host_parts").at("optimizer") == rank.host.optimizer);
    CHECK(json.at("moved") == rank.moved);
    CHECK(json.at("total") == rank.total());
  }
}

TEST_CASE("the text tells what host and disk hold, once for ranks that are alike", "[plan]") {
  PlanReport plan;
  plan.world = plan.data = 4;
  for (int rank = 0; rank < 4; ++rank) {
    plan.ranks.push_back({.rank = rank, .weights = 40});
  }
  CHECK_FALSE(contains(to_text(plan), "a rank: "));
  for (RankBytes& rank : plan.ranks) {
    rank.host = {.weights = 1024, .grads = 2048, .optimizer = 3, .inputs = 4, .buffers = 5};
    rank.nvme = 4096;
  }
  CHECK(contains(to_text(plan),
                 "\nhost      a rank: weights 1.0 KiB, gradients 2.0 KiB, optimizer 3 B, inputs of "
                 "blocks that run again 4 B, buffers 5 B\n"
                 "disk      a rank: optimizer 4.0 KiB\n"
                 "checkpoint  "));
  for (RankBytes& rank : plan.ranks) {
    rank.host = {.weights = rank.rank == 1 ? 7 : 1024};
    rank.moved = rank.rank == 1 ? 0 : 512;
    rank.nvme = rank.rank == 2 ? 9 : 0;
  }
  CHECK(contains(to_text(plan),
                 "\nhost      rank 0 and 2 more: weights 1.0 KiB; after the first step the device "
                 "takes 512 B of it\n"
                 "host      rank 1: weights 7 B\n"
                 "disk      rank 2: optimizer 9 B\n"
                 "checkpoint  "));
}

}  // namespace colossal::test
