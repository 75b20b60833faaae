// Do checkpoints go from any split into any other, and does no damage ever pass for a value?
#include "checkpoint/detail/boxes.hpp"
#include "checkpoint/detail/manifest.hpp"
#include "checkpoint/safetensors.hpp"
#include "unit/checkpoint/fixture.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstdint>

namespace colossal::test {
namespace {

namespace fs = std::filesystem;

/// Numbers that look random, the same every time.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ULL + 1) {}
  /// From 0 to n - 1.
  std::int64_t below(std::int64_t n) {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::int64_t>((state_ >> 33U) % static_cast<std::uint64_t>(n));
  }

 private:
  std::uint64_t state_;
};

/// Cuts a box at random places until pieces are few or small.
void cut(const detail::Box& box, Draws& draws, int depth, std::vector<detail::Box>& pieces) {
  std::vector<std::size_t> dims;
  for (std::size_t d = 0; d < box.extent.size(); ++d) {
    if (box.extent[d] > 1) {
      dims.push_back(d);
    }
  }
  if (depth == 0 || dims.empty() || draws.below(5) == 0) {
    pieces.push_back(box);
    return;
  }
  const std::size_t dim = dims[static_cast<std::size_t>(draws.below(std::ssize(dims)))];
  const std::int64_t at = 1 + draws.below(box.extent[dim] - 1);
  detail::Box first = box;
  detail::Box second = box;
  first.extent[dim] = at;
  second.offset[dim] += at;
  second.extent[dim] -= at;
  cut(first, draws, depth - 1, pieces);
  cut(second, draws, depth - 1, pieces);
}

std::vector<detail::Box> tiling(const Shape& shape, Draws& draws) {
  std::vector<detail::Box> pieces;
  cut({Shape(shape.size(), 0), shape}, draws, 4, pieces);
  return pieces;
}

/// One record a piece: its values stand somewhere inside of larger local memory.
TensorRecord record_of(const std::string& name,
                       const Shape& global,
                       const detail::Box& piece,
                       at::ScalarType dtype,
                       Draws& draws) {
  Shape local;
  Shape offset;
  for (const std::int64_t size : piece.extent) {
    offset.push_back(draws.below(3));
    local.push_back(offset.back() + size + draws.below(3));
  }
  TensorRecord record;
  record.name = name;
  record.global = global;
  record.local = at::zeros(local, dtype).sub(1);
  record.regions = {{piece.offset, offset, piece.extent}};
  return record;
}

at::Tensor part_of(const at::Tensor& whole, const Shape& offset, const Shape& extent) {
  at::Tensor part = whole;
  for (std::size_t d = 0; d < offset.size(); ++d) {
    part = part.narrow(static_cast<std::int64_t>(d), offset[d], extent[d]);
  }
  return part;
}

/// A tensor in a random split; with `values`, its pieces hold them.
std::vector<TensorRecord> split(const std::string& name,
                                const at::Tensor& whole,
                                at::ScalarType dtype,
                                Draws& draws,
                                bool values) {
  const Shape global(whole.sizes().begin(), whole.sizes().end());
  std::vector<TensorRecord> records;
  for (const detail::Box& piece : tiling(global, draws)) {
    records.push_back(record_of(name, global, piece, dtype, draws));
    if (values) {
      const Region& region = records.back().regions.front();
      part_of(records.back().local, region.local_offset, region.extent)
          .copy_(part_of(whole, region.global_offset, region.extent));
    }
  }
  return records;
}

Shape draw_shape(Draws& draws) {
  Shape shape(static_cast<std::size_t>(draws.below(4)));
  for (std::int64_t& size : shape) {
    size = 1 + draws.below(9);
  }
  return shape;
}

/// What loading the records of a damaged checkpoint did: an id of its own, or "" and right values.
std::string outcome(const fs::path& checkpoint, const std::vector<TensorRecord>& expected) {
  std::vector<TensorRecord> loaded = blank(expected);
  const Failure failure = failure_of([&] { load_tensors(checkpoint, loaded, Comm()); });
  if (!failure.id.empty()) {
    CHECK(failure.exit_code == 5);
    return failure.id;
  }
  for (std::size_t i = 0; i < loaded.size(); ++i) {
    REQUIRE(at::equal(loaded[i].local, expected[i].local));
  }
  return "";
}

}  // namespace

TEST_CASE("any split is read into any other, what lies beside is left alone", "[random]") {
  constexpr std::array kTypes = {at::kFloat, at::kDouble, at::kBFloat16, at::kLong};
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Draws draws(seed);
    const TempDir dir;
    const at::ScalarType stored = kTypes[static_cast<std::size_t>(draws.below(4))];
    const at::ScalarType wanted =
        stored == at::kLong ? at::kLong : kTypes[static_cast<std::size_t>(draws.below(3))];
    const Shape shape = draw_shape(draws);
    INFO(fmt::format("seed {}: shape {}", seed, shape));
    const at::Tensor whole = counting(shape, stored, 3).remainder(250);  // exact in all types
    const auto saved = split("model/w", whole, stored, draws, true);
    const fs::path checkpoint = save_one(dir.path(), 1, saved);
    std::vector<TensorRecord> loaded = split("model/w", whole, wanted, draws, false);
    load_tensors(checkpoint, loaded, Comm());
    for (const TensorRecord& record : loaded) {
      const Region& region = record.regions.front();
      const at::Tensor inside = part_of(record.local, region.local_offset, region.extent);
      REQUIRE(at::equal(inside, part_of(whole, region.global_offset, region.extent).to(wanted)));
      const std::int64_t beside = record.local.numel() - inside.numel();
      REQUIRE(record.local.eq(-1).sum().item<std::int64_t>() == beside);
    }
    const std::vector<TensorRecord> one = {test::whole("model/w", whole)};
    require_loads(checkpoint, one);
  }
}

TEST_CASE("random cuts tile, and cease to when one piece is touched", "[random]") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Draws draws(seed);
    const Shape shape = draw_shape(draws);
    std::vector<detail::Box> pieces = tiling(shape, draws);
    INFO(fmt::format("seed {}: shape {} in {} pieces", seed, shape, pieces.size()));
    REQUIRE(detail::tiles(pieces, shape));
    const auto victim = static_cast<std::size_t>(draws.below(std::ssize(pieces)));
    std::vector<detail::Box> twice = pieces;
    twice.push_back(pieces[victim]);
    CHECK_FALSE(detail::tiles(twice, shape));
    std::vector<detail::Box> without = pieces;
    without.erase(without.begin() + static_cast<std::ptrdiff_t>(victim));
    CHECK_FALSE(detail::tiles(without, shape));
    if (!shape.empty()) {
      const auto dim = static_cast<std::size_t>(draws.below(std::ssize(shape)));
      std::vector<detail::Box> moved = pieces;
      moved[victim].offset[dim] += draws.below(2) == 0 ? 1 : -1;
      CHECK_FALSE(detail::tiles(moved, shape));
      std::vector<detail::Box> grown = pieces;
      grown[victim].extent[dim] += 1;
      CHECK_FALSE(detail::tiles(grown, shape));
    }
  }
}

TEST_CASE("a byte changed anywhere in a rank file is found, or changes no value", "[random]") {
  const TempDir dir;
  const std::vector<TensorRecord> records = small_model();
  const fs::path checkpoint = save_one(dir.path(), 1, records);
  const fs::path file = checkpoint / "rank-0000.h5";
  const std::string whole = read_file(file);
  Draws draws(5);
  int found = 0;
  for (int i = 0; i < 300; ++i) {
    std::string damaged = whole;
    const std::int64_t at = draws.below(std::ssize(whole));
    damaged[static_cast<std::size_t>(at)] ^= static_cast<char>(1 << draws.below(8));
    write_file(file, damaged);
    INFO("byte " << at << " of " << whole.size());
    found += outcome(checkpoint, records).empty() ? 0 : 1;
  }
  CHECK(found > 10);  // most bytes of so small a file are never used
  write_file(file, whole);
  CHECK(outcome(checkpoint, records).empty());
}

TEST_CASE("a byte changed anywhere in a manifest is found", "[random]") {
  const TempDir dir;
  const std::vector<TensorRecord> records = small_model();
  const fs::path checkpoint = save_one(dir.path(), 1, records);
  const fs::path file = checkpoint / "manifest.json";
  const std::string whole = read_file(file);
  Draws draws(6);
  for (int i = 0; i < 400; ++i) {
    std::string damaged = whole;
    const auto at = static_cast<std::size_t>(draws.below(std::ssize(whole)));
    const char before = damaged[at];
    damaged[at] = static_cast<char>(draws.below(256));
    write_file(file, damaged);
    INFO("byte " << at << ": " << static_cast<int>(before) << " to "
                 << static_cast<int>(damaged[at]));
    const std::string id = outcome(checkpoint, records);
    // White space between values is no part of what is summed.
    const bool blank = std::string_view(" \n\t\r").find(before) != std::string_view::npos;
    CHECK((!id.empty() || damaged[at] == before || blank));
  }
}

TEST_CASE("a safetensors header changed anywhere is refused or read consistently", "[random]") {
  const TempDir dir;
  const fs::path file = dir.path() / "w";
  {
    std::vector<SafeTensor> entries = {{.name = "a", .dtype = at::kFloat, .shape = {2, 3}},
                                       {.name = "b", .dtype = at::kHalf, .shape = {5}}};
    SafetensorsWriter writer(file, entries);
    writer.write(counting({2, 3}));
    writer.write(counting({5}, at::kHalf));
    writer.commit();
  }
  const std::string whole = read_file(file);
  const std::size_t header = whole.size() - 34;
  Draws draws(7);
  int refused = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string damaged = whole;
    const auto at = static_cast<std::size_t>(draws.below(static_cast<std::int64_t>(header)));
    damaged[at] = static_cast<char>(draws.below(256));
    write_file(file, damaged);
    INFO("byte " << at << " is " << static_cast<int>(damaged[at]));
    const Failure failure = failure_of([&] {
      const SafetensorsFile read(file);
      std::int64_t bytes = 0;
      for (const SafeTensor& tensor : read.tensors()) {  // whatever it says is inside the file
        const at::Tensor values = read.read(tensor);
        REQUIRE(values.sizes() == at::IntArrayRef(tensor.shape));
        bytes += static_cast<std::int64_t>(values.nbytes());
      }
      REQUIRE(bytes == 34);
    });
    CHECK((failure.id.empty() || failure.id == "weights-damaged" || failure.id == "weights-dtype"));
    refused += failure.id.empty() ? 0 : 1;
  }
  CHECK(refused > 700);
}

}  // namespace colossal::test
