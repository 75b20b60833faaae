// Does a checkpoint of any mesh load on any other, bit for bit, and do all ranks fail together?
#include "mesh/layout.hpp"
#include "support/ranks.hpp"
#include "unit/checkpoint/fixture.hpp"

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <signal.h>
#include <sys/resource.h>
#include <thread>

using namespace colossal;  // NOLINT(google-build-using-namespace): a test's vocabulary
using namespace colossal::test;

namespace {

namespace fs = std::filesystem;

/// A folder that all ranks see, made and removed by rank 0.
class SharedDir {
 public:
  explicit SharedDir(const RankContext& ctx) {
    if (ctx.rank() == 0) {
      owned_ = std::make_unique<TempDir>();
    }
    path_ = ctx.comm().gather_text(owned_ ? owned_->path().string() : "").front();
  }
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  std::unique_ptr<TempDir> owned_;
  fs::path path_;
};

/// A tensor of the test model and how tensor-parallel ranks split it.
struct Spec {
  std::string name;
  Shape global;
  at::ScalarType dtype = at::kFloat;
  Layout layout;

  [[nodiscard]] at::Tensor values() const {
    return counting(global, dtype, static_cast<std::int64_t>(name.size()));
  }
};

/// Odd sizes over the data axis; a fused projection of two blocks and a column split over t0.
std::vector<Spec> specs() {
  const DimShard fused{{Axis::t0}, {4, 8}};
  const DimShard plain{{Axis::t0}, {}};
  return {{"model/fused", {12, 5}, at::kFloat, {{fused}, {}, {}}},
          {"model/column", {3, 4, 2}, at::kDouble, {{{}, plain}, {}, {}}},
          {"model/whole", {7, 3}, at::kBFloat16, {}},
          {"model/scalar", {}, at::kFloat, {}},
          {"model/count", {5}, at::kLong, {}},
          {"model/none", {0, 3}, at::kFloat, {}},
          {"optim/exp_avg/fused", {12, 5}, at::kFloat, {{fused}, {}, {}}}};
}

/// What rank `rank` of this mesh holds if every local tensor is cut into flat ranges over dp. The
/// local memory has the true values where `filled`, else zeros.
std::vector<TensorRecord> shard_records(const MeshShape& shape, int rank, bool filled) {
  const Mesh mesh(shape, rank);
  std::vector<TensorRecord> records;
  for (const Spec& spec : specs()) {
    const Shape local = local_shape(spec.layout, spec.global, mesh);
    const std::vector<Region> parts = regions(spec.layout, spec.global, mesh);
    const std::int64_t share = (numel(local) + mesh.size(Axis::dp) - 1) / mesh.size(Axis::dp);
    const std::int64_t begin = std::min(numel(local), share * mesh.coord(Axis::dp));
    const std::int64_t end = std::min(numel(local), begin + share);
    TensorRecord record;
    record.name = spec.name;
    record.global = spec.global;
    record.regions = flat_range(parts, local, begin, end);
    record.local = at::zeros(local, at::TensorOptions().dtype(spec.dtype));
    // Replicas over t0 of what t0 does not split are written once.
    record.owner = spec.layout.sharded().any() || mesh.coord(Axis::t0) == 0;
    for (const Region& region : record.regions) {
      at::Tensor source = spec.values();
      at::Tensor target = record.local;
      for (std::size_t d = 0; d < region.extent.size(); ++d) {
        const auto dim = static_cast<std::int64_t>(d);
        source = source.narrow(dim, region.global_offset[d], region.extent[d]);
        target = target.narrow(dim, region.local_offset[d], region.extent[d]);
      }
      if (filled) {
        target.copy_(source);
      }
    }
    records.push_back(std::move(record));
  }
  return records;
}

void save_shards(const fs::path& root, const MeshShape& shape, const Comm& group) {
  const std::vector<TensorRecord> records = shard_records(shape, group.rank(), true);
  save_checkpoint(root, state_at(1), records, group, {});
}

void require_shards(const fs::path& root, const MeshShape& shape, const Comm& group) {
  std::vector<TensorRecord> records = shard_records(shape, group.rank(), false);
  const std::vector<TensorRecord> expected = shard_records(shape, group.rank(), true);
  load_tensors(folder_of(root, 1), records, group);
  for (std::size_t i = 0; i < records.size(); ++i) {
    INFO(records[i].name);
    REQUIRE(at::equal(records[i].local, expected[i].local));
  }
}

void require_whole(const fs::path& root) {
  std::vector<TensorRecord> expected;
  for (const Spec& spec : specs()) {
    expected.push_back(whole(spec.name, spec.values()));
  }
  require_loads(folder_of(root, 1), expected);
}

}  // namespace

RANKS_TEST_CASE("saved by 2 ranks, loaded by 1", "[checkpoint]", 2) {
  const SharedDir dir(ctx);
  save_shards(dir.path(), {.dp = 2}, ctx.comm());
  require_whole(dir.path());
  require_shards(dir.path(), {.dp = 2}, ctx.comm());
  CHECK(names_in(folder_of(dir.path(), 1)) ==
        std::vector<std::string>{"index.h5", "manifest.json", "rank-0000.h5", "rank-0001.h5"});
  ctx.comm().barrier();
}

RANKS_TEST_CASE("saved by 1 rank, loaded by 3", "[checkpoint]", 3) {
  const SharedDir dir(ctx);
  if (ctx.rank() == 0) {
    save_shards(dir.path(), {}, Comm());
  }
  ctx.comm().barrier();
  require_shards(dir.path(), {.dp = 3}, ctx.comm());
  ctx.comm().barrier();
}

RANKS_TEST_CASE("saved by 4 ranks, loaded by 2 and by other splits", "[checkpoint]", 4) {
  const SharedDir dir(ctx);
  const bool low = ctx.rank() < 2;
  const Comm pair = ctx.world().make_group("pair", low ? std::vector{0, 1} : std::vector{2, 3});
  const std::vector<MeshShape> meshes = {{.dp = 4}, {.dp = 2, .t0 = 2}, {.t0 = 4}};
  for (std::size_t i = 0; i < meshes.size(); ++i) {
    const fs::path root = dir.path() / std::to_string(i);
    save_shards(root, meshes[i], ctx.comm());
    require_whole(root);
    require_shards(root, low ? MeshShape{.dp = 2} : MeshShape{.t0 = 2}, pair);
    for (const MeshShape& mesh : meshes) {
      require_shards(root, mesh, ctx.comm());
    }
  }
  ctx.comm().barrier();
}

RANKS_TEST_CASE("a replica that owns nothing makes no file", "[checkpoint]", 2) {
  const SharedDir dir(ctx);
  std::vector<TensorRecord> records = small_model();
  for (TensorRecord& record : records) {
    record.owner = ctx.rank() == 0;
  }
  const std::int64_t bytes = save_checkpoint(dir.path(), state_at(3), records, ctx.comm(), {});
  CHECK(ctx.comm().gather_text(std::to_string(bytes)) ==
        std::vector<std::string>(2, std::to_string(bytes)));
  CHECK(names_in(folder_of(dir.path(), 3)).size() == 3);
  require_loads(folder_of(dir.path(), 3), records);
  ctx.comm().barrier();
}

RANKS_TEST_CASE("a write error of one rank fails the save on all, the old one stays",
                "[checkpoint]",
                2) {
  const SharedDir dir(ctx);
  save_shards(dir.path(), {.dp = 2}, ctx.comm());
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  if (ctx.rank() == 1) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{500, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  const std::vector<TensorRecord> records = shard_records({.dp = 2}, ctx.rank(), true);
  const Failure failure =
      failure_of([&] { save_checkpoint(dir.path(), state_at(2), records, ctx.comm(), {}); });
  setrlimit(RLIMIT_FSIZE, &before);
  INFO(failure.text);
  CHECK(failure.id == "checkpoint-write");
  CHECK(failure.exit_code == 5);
  CHECK(contains(failure.text, "rank-0001.h5"));
  CHECK(contains(failure.text, "File too large"));
  CHECK(contains(failure.text, "rank 1: ") == (ctx.rank() == 0));
  ctx.comm().barrier();
  CHECK(names_in(dir.path()) == std::vector<std::string>{"latest", "step-00000001"});
  require_whole(dir.path());
  ctx.comm().barrier();
}

RANKS_TEST_CASE("a lost rank file fails the load on all ranks, also on those that need none of it",
                "[checkpoint]",
                2) {
  const SharedDir dir(ctx);
  save_shards(dir.path(), {.dp = 2}, ctx.comm());
  if (ctx.rank() == 0) {
    fs::remove(folder_of(dir.path(), 1) / "rank-0001.h5");
  }
  ctx.comm().barrier();
  std::vector<TensorRecord> records = shard_records({.dp = 2}, ctx.rank(), false);
  const Failure failure =
      failure_of([&] { load_tensors(folder_of(dir.path(), 1), records, ctx.comm()); });
  CHECK(failure.id == "checkpoint-incomplete");
  CHECK(contains(failure.text, "rank-0001.h5 is missing"));
  ctx.comm().barrier();
}

RANKS_TEST_CASE("a tensor that does not fit one rank fails the load on all", "[checkpoint]", 2) {
  const SharedDir dir(ctx);
  save_shards(dir.path(), {.dp = 2}, ctx.comm());
  std::vector<TensorRecord> records = shard_records({.dp = 2}, ctx.rank(), false);
  const std::string name = records[0].name;
  if (ctx.rank() == 1) {
    // Only this rank asks for a shape that the file does not have.
    records[0].global = {24, 5};
  }
  const Failure failure =
      failure_of([&] { load_tensors(folder_of(dir.path(), 1), records, ctx.comm()); });
  CHECK(failure.id == "checkpoint-shape");
  CHECK(contains(failure.text, name));
  CHECK(contains(failure.text, "rank 1: ") == (ctx.rank() == 0));
  ctx.comm().barrier();
}

RANKS_TEST_CASE("stages know only their own tensors", "[checkpoint]", 2) {
  const SharedDir dir(ctx);
  const auto stage = [](int rank) {
    return std::vector{whole(fmt::format("model/blocks.{}.w", rank), counting({3, 2}))};
  };
  std::vector<TensorRecord> mine = stage(ctx.rank());
  save_checkpoint(dir.path(), state_at(1), mine, ctx.comm(), {});
  std::vector<TensorRecord> into = blank(mine);
  load_tensors(folder_of(dir.path(), 1), into, ctx.comm());
  CHECK(at::equal(into[0].local, mine[0].local));
  // One stage alone leaves the other's tensors unexpected.
  const Failure failure = failure_of([&] { load_tensors(folder_of(dir.path(), 1), into, Comm()); });
  CHECK(failure.id == "checkpoint-unexpected-tensor");
  CHECK(contains(failure.text, fmt::format("model/blocks.{}.w", 1 - ctx.rank())));
  ctx.comm().barrier();
}

RANKS_TEST_CASE("ranks that disagree about a tensor are a program error", "[checkpoint]", 2) {
  const SharedDir dir(ctx);
  const std::vector records = {whole("model/x", counting({2 + ctx.rank(), 2}))};
  const Failure failure =
      failure_of([&] { save_checkpoint(dir.path(), state_at(1), records, ctx.comm(), {}); });
  CHECK(failure.id == "checkpoint-record");
  CHECK(failure.exit_code == 1);
  CHECK(contains(failure.text, "ranks disagree"));
  ctx.comm().barrier();
}

RANKS_TEST_CASE("a checkpoint that threads have written is committed by all ranks together",
                "[checkpoint]",
                2) {
  const SharedDir dir(ctx);
  save_shards(dir.path(), {.dp = 2}, ctx.comm());
  RunState state = state_at(2);
  {
    CheckpointWriter writer(dir.path(), state, ctx.comm(), {.keep_last = 1});
    const std::vector<TensorRecord> records = shard_records({.dp = 2}, ctx.rank(), true);
    std::thread thread([&] { writer.write(records); });
    thread.join();
    ctx.comm().barrier();
    CHECK(list_checkpoints(dir.path()).size() == 1);  // written by all, committed by none
    CHECK(read_file(dir.path() / "latest") == "1\n");
    ctx.comm().barrier();
    CHECK(writer.commit() > 0);
  }
  ctx.comm().barrier();
  CHECK(names_in(dir.path()) == std::vector<std::string>{"latest", "step-00000002"});
  std::vector<TensorRecord> records = shard_records({.dp = 2}, ctx.rank(), false);
  load_tensors(folder_of(dir.path(), 2), records, ctx.comm());
  CHECK(at::equal(records[0].local, shard_records({.dp = 2}, ctx.rank(), true)[0].local));
  ctx.comm().barrier();
}

RANKS_TEST_CASE("what fails in the thread of one rank fails the commit of all", "[checkpoint]", 2) {
  const SharedDir dir(ctx);
  save_shards(dir.path(), {.dp = 2}, ctx.comm());
  std::vector<TensorRecord> records = shard_records({.dp = 2}, ctx.rank(), true);
  if (ctx.rank() == 1) {
    records[0].name = "no group";
  }
  CheckpointWriter writer(dir.path(), state_at(2), ctx.comm(), {.keep_last = 1});
  std::thread([&] { writer.write(records); }).join();
  const Failure failure = failure_of([&] { writer.commit(); });
  CHECK(failure.id == "checkpoint-record");
  CHECK(contains(failure.text, "rank 1: ") == (ctx.rank() == 0));
  require_whole(dir.path());
  ctx.comm().barrier();
}
