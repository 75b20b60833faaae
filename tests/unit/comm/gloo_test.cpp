// Is an operation that ends at the very moment of its time-out a success?
#include "comm/detail/backend.hpp"
#include "core/error.hpp"
#include "support/catch.hpp"

#include <ATen/ops/ones.h>

#include <string>
#include <thread>
#include <utility>

using colossal::detail::Backend;
using colossal::detail::Store;
using colossal::detail::Work;
using namespace std::chrono_literals;

namespace {

/// So many that two of three runs of this test meet the moment.
constexpr int kTries = 3000;

std::unique_ptr<Backend> connect(Store& store, int rank) {
  colossal::detail::BackendOptions options;
  options.prefix = "pg";
  options.rank = rank;
  options.size = 2;
  options.local = true;
  options.connect_timeout = 20s;
  options.collective_timeout = 20s;
  return colossal::detail::connect_gloo(store, options);
}

}  // namespace

TEST_CASE("work that ended just after its time-out was taken for a lost peer", "[gloo]") {
  const auto server = Store::host({}, 10s);
  std::thread peer([&] {
    const auto store = Store::join(server->endpoint(), 10s);
    const auto backend = connect(*store, 1);
    for (int i = 0; i < kTries; ++i) {
      std::this_thread::sleep_for(std::chrono::microseconds(i % 1500));
      at::Tensor x = at::ones({1});
      backend->all_reduce(x, colossal::ReduceOp::sum)->wait(20s);
    }
  });
  std::string told;
  {
    const auto store = Store::join(server->endpoint(), 10s);
    const auto backend = connect(*store, 0);
    for (int i = 0; i < kTries; ++i) {
      at::Tensor x = at::ones({1});
      const std::unique_ptr<Work> work = backend->all_reduce(x, colossal::ReduceOp::sum);
      try {
        while (!work->wait(1ms)) {
        }
      } catch (const colossal::Error& error) {
        told = error.what();
        work->wait(20s);  // it has ended all the same
      }
      CHECK(x.item<float>() == 2);
    }
    peer.join();
  }
  CHECK(told.empty());
}
