// Do boxes meet, tile and map to memory as they should, and are bad records refused?
#include "checkpoint/detail/boxes.hpp"

#include "unit/checkpoint/fixture.hpp"

#include <ATen/ops/stack.h>

using colossal::Comm;
using colossal::Region;
using colossal::TensorRecord;
using colossal::detail::Box;
using colossal::test::contains;
using colossal::test::counting;
using colossal::test::failure_of;
using colossal::test::whole;

TEST_CASE("intersection of boxes", "[boxes]") {
  const Box a{{0, 0}, {4, 3}};
  CHECK(intersect(a, Box{{2, 1}, {5, 5}}) == Box{{2, 1}, {2, 2}});
  CHECK(intersect(a, a) == a);
  CHECK_FALSE(intersect(a, Box{{4, 0}, {1, 3}}));
  CHECK_FALSE(intersect(a, Box{{1, 1}, {0, 2}}));
  CHECK(intersect(Box{}, Box{}) == Box{});
}

TEST_CASE("boxes tile a tensor or they do not", "[boxes]") {
  using colossal::detail::tiles;
  CHECK(tiles({{{0, 0}, {2, 3}}, {{2, 0}, {1, 2}}, {{2, 2}, {1, 1}}}, {3, 3}));
  CHECK_FALSE(tiles({{{0, 0}, {2, 3}}, {{2, 0}, {1, 2}}}, {3, 3}));
  // As many elements as the tensor, but one twice and one never.
  CHECK_FALSE(tiles({{{0, 0}, {2, 3}}, {{1, 0}, {1, 1}}, {{2, 0}, {1, 2}}}, {3, 3}));
  CHECK_FALSE(tiles({{{1}, {3}}}, {3}));
  CHECK_FALSE(tiles({{{0}, {3}}}, {3, 1}));
  CHECK(tiles({Box{}}, {}));
  CHECK_FALSE(tiles({Box{}, Box{}}, {}));
  CHECK_FALSE(tiles({}, {}));
  CHECK(tiles({}, {0, 4}));
}

TEST_CASE("a box of a larger box in memory", "[boxes]") {
  const at::Tensor held = counting({3, 4});
  const at::Tensor part = colossal::detail::view_of(held, {{10, 20}, {3, 4}}, {{11, 21}, {2, 2}});
  CHECK(part.contiguous().equal(at::stack({held[1].narrow(0, 1, 2), held[2].narrow(0, 1, 2)})));
}

TEST_CASE("a region of a local tensor in memory", "[boxes]") {
  const at::Tensor tensor = counting({4, 5});
  const TensorRecord record = whole("model/x", tensor);
  const Region region{{7, 7}, {2, 1}, {1, 4}};
  CHECK(colossal::detail::view_of(record, region).equal(tensor.narrow(0, 2, 1).narrow(1, 1, 4)));
}

TEST_CASE("records that cannot be boxes of tensors are refused", "[boxes]") {
  const auto refused = [](const TensorRecord& record) {
    const auto failure = failure_of([&] { colossal::detail::check_records(std::vector{record}); });
    return failure.id == "checkpoint-record" && failure.exit_code == 1 &&
           contains(failure.text, record.name);
  };
  CHECK_FALSE(refused(whole("model/x", counting({2, 3}))));
  CHECK(refused(whole("x", counting({2}))));
  CHECK(refused(whole("/model/x", counting({2}))));
  CHECK(refused(whole("model//x", counting({2}))));
  CHECK(refused(whole("model/x#1", counting({2}))));
  CHECK(refused(whole("model/x", counting({2}, at::kInt))));
  CHECK(refused(whole("model/x", at::Tensor(counting({2}).to(at::kBool)))));

  TensorRecord outside = whole("model/x", counting({2, 3}));
  outside.regions[0].global_offset = {1, 0};
  CHECK(refused(outside));
  TensorRecord rank = whole("model/x", counting({2, 3}));
  rank.regions[0].local_offset = {0};
  CHECK(refused(rank));
  const auto pair_failure = [](const TensorRecord& a, const TensorRecord& b) {
    return failure_of([&] { colossal::detail::check_records(std::vector{a, b}); }).id;
  };
  const TensorRecord x = whole("model/x", counting({2}));
  CHECK(pair_failure(x, x).empty());
  CHECK(pair_failure(x, whole("model/x", counting({3}))) == "checkpoint-record");
  CHECK(pair_failure(x, whole("model/x", counting({2}, at::kHalf))) == "checkpoint-record");
}
