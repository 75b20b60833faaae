// Does a group of one behave like any other without communicating, and are wrong arguments refused?
#include "comm/comm.hpp"

#include "comm/world.hpp"
#include "support/catch.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>

#include <string>
#include <vector>

using colossal::Comm;
using colossal::Error;
using colossal::World;

namespace {

template <class Call>
std::string id_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(error.id());
  }
  return "";
}

}  // namespace

TEST_CASE("collectives of one rank copy their input and count nothing", "[comm]") {
  const Comm comm;
  const at::Tensor in = at::arange(6, at::kFloat).view({2, 3});
  at::Tensor x = in.clone();
  comm.all_reduce(x).wait();
  comm.broadcast(x, 0).wait();
  CHECK(at::equal(x, in));
  for (const auto op : {&Comm::all_gather, &Comm::reduce_scatter, &Comm::all_to_all}) {
    at::Tensor out = at::empty({6});
    (comm.*op)(out, in).wait();
    CHECK(at::equal(out, in.view({-1})));
  }
  comm.barrier();
  CHECK(comm.gather_text("alone") == std::vector<std::string>{"alone"});
  CHECK(comm.counters().empty());
}

TEST_CASE("copies of one rank leave no autograd graph", "[comm]") {
  const Comm comm;
  const at::Tensor in = at::ones({4}).requires_grad_();
  at::Tensor out = at::empty({4});
  comm.all_gather(out, in).wait();
  REQUIRE_FALSE(out.requires_grad());
}

TEST_CASE("wrong tensors are refused before anything is sent", "[comm]") {
  const Comm comm;
  at::Tensor good = at::ones({4});
  at::Tensor transposed = at::ones({2, 3}).t();
  at::Tensor bytes = at::ones({4}, at::kByte);
  at::Tensor scalar = at::ones({});
  CHECK(id_of([&] { comm.all_reduce(transposed).wait(); }) == "comm-contiguous");
  CHECK(id_of([&] { comm.all_reduce(bytes).wait(); }) == "comm-dtype");
  CHECK(id_of([&] { comm.all_gather(good, at::ones({4}, at::kDouble)).wait(); }) == "comm-dtype");
  CHECK(id_of([&] { comm.all_gather(good, at::ones({3})).wait(); }) == "comm-numel");
  CHECK(id_of([&] { comm.reduce_scatter(good, at::ones({8})).wait(); }) == "comm-numel");
  CHECK(id_of([&] { comm.all_to_all(scalar, at::ones({})).wait(); }) == "comm-split");
  CHECK(id_of([&] { comm.broadcast(good, 1).wait(); }) == "comm-root");
}

TEST_CASE("a world of one needs no store", "[world]") {
  const auto world = World::connect({}, {"build", "hash"}, {});
  CHECK(world->size() == 1);
  CHECK(world->comm().size() == 1);
  CHECK(world->comm().name() == "world");
  CHECK(world->make_group("data", {0}).name() == "data");
  world->set_phase("nothing to tell");
  world->close();
  world->close();
}
