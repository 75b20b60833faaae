// Does the store keep texts, and does it explain why it cannot be hosted or reached?
#include "comm/detail/store.hpp"

#include "comm/detail/backend.hpp"
#include "comm/detail/file_rendezvous.hpp"
#include "comm/detail/local_job.hpp"
#include "core/error.hpp"
#include "support/catch.hpp"
#include "support/temp_dir.hpp"

#include <string>
#include <sys/resource.h>
#include <thread>
#include <vector>

using colossal::Error;
using colossal::detail::Store;
using namespace std::chrono_literals;

TEST_CASE("texts set through one connection are read through another", "[store]") {
  const auto server = Store::host({}, 10s);
  REQUIRE(server->is_host());
  REQUIRE(server->endpoint().port > 0);
  const auto client = Store::join(server->endpoint(), 10s);
  REQUIRE_FALSE(client->is_host());
  CHECK(client->get("text") == std::nullopt);
  server->set("text", std::string_view("a\0b", 3));
  // `set` does not wait for the server, so another connection may ask before it has arrived.
  REQUIRE(client->wait("text", 10s));
  CHECK(client->get("text") == std::string("a\0b", 3));
  CHECK(client->set_if_absent("first", "mine") == "mine");
  CHECK(server->set_if_absent("first", "other") == "mine");
  CHECK(client->add("count", 2) == 2);
  CHECK(server->add("count", 3) == 5);
  CHECK(client->get_all({"first", "text"}).at(0) == "mine");
  CHECK(client->wait("first", 1s));
  CHECK_FALSE(client->wait("never", 50ms));
}

TEST_CASE("attempts that share a server do not see each other's keys", "[store]") {
  const auto server = Store::host({}, 10s);
  colossal::detail::Endpoint endpoint = server->endpoint();
  endpoint.prefix = "colossal/0";
  const auto first = Store::join(endpoint, 10s);
  endpoint.prefix = "colossal/1";
  const auto second = Store::join(endpoint, 10s);
  first->set("abort", "failed");
  CHECK_FALSE(second->get("abort").has_value());
}

TEST_CASE("a port in use is an environment error that names it", "[store]") {
  const auto server = Store::host({}, 10s);
  try {
    static_cast<void>(Store::host(server->endpoint(), 10s));
    FAIL("bound twice");
  } catch (const Error& error) {
    CHECK(error.id() == "port-in-use");
    CHECK(error.exit_code() == 9);
    CHECK(std::string(error.what()).find(std::to_string(server->endpoint().port)) !=
          std::string::npos);
  }
}

TEST_CASE("a socket that cannot be made is an environment error with the reason", "[store]") {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit nothing{0, before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &nothing);
  std::string id;
  std::string message;
  try {
    static_cast<void>(Store::host({}, 10s));
  } catch (const Error& error) {
    id = error.id();
    message = error.what();
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
  CHECK(id == "port-bind");
  CHECK(message.find("Too many open files") != std::string::npos);
}

TEST_CASE("a group whose members do not come is an error", "[store]") {
  const auto server = Store::host({}, 10s);
  colossal::detail::BackendOptions options;
  options.prefix = "pg/data/0";
  options.size = 2;
  options.local = true;
  options.connect_timeout = 200ms;
  try {
    static_cast<void>(colossal::detail::connect_gloo(*server, options));
    FAIL("connected to nobody");
  } catch (const Error& error) {
    CHECK(error.id() == "group-connect");
    CHECK(std::string(error.what()).find("pg/data/0") != std::string::npos);
  }
}

TEST_CASE("a rank that cannot be started is an environment error with the reason", "[store]") {
  colossal::detail::LocalJobOptions options;
  options.arguments = {"rank", std::string(300'000, 'x')};  // longer than the kernel takes
  try {
    const colossal::detail::LocalJob job(options,
                                         [](int, colossal::detail::Stream, std::string_view) {});
    FAIL("started");
  } catch (const Error& error) {
    CHECK(error.id() == "launch-spawn");
    CHECK(std::string(error.what()).find("Argument list too long") != std::string::npos);
  }
}

TEST_CASE("the time of one try bounded all later waits of a rank that met by a file", "[store]") {
  const colossal::test::TempDir folder;
  const colossal::detail::AddressFile file{folder.path() / "address", "job"};
  const auto server = colossal::detail::host_by_file(file, {"127.0.0.1", 0, ""}, 60s);
  const auto client = colossal::detail::join_by_file(file, {}, 60s);
  const std::jthread late([&] {
    std::this_thread::sleep_for(3500ms);
    server->set("late", "text");
  });
  CHECK(client->get_all({"late"}) == std::vector<std::string>{"text"});
}

TEST_CASE("a server that does not answer is named with the time waited", "[store]") {
  const int port = [] { return Store::host({}, 10s)->endpoint().port; }();
  try {
    static_cast<void>(Store::join({"127.0.0.1", port, ""}, 300ms));
    FAIL("connected to nobody");
  } catch (const Error& error) {
    CHECK(error.id() == "rendezvous");
    CHECK(error.exit_code() == 8);
    CHECK(std::string(error.what()).find("127.0.0.1:" + std::to_string(port) + " within 0.3 s") !=
          std::string::npos);
  }
}

TEST_CASE("a server that ends is noticed", "[store]") {
  auto server = Store::host({}, 10s);
  const auto client = Store::join(server->endpoint(), 10s);
  server.reset();
  try {
    client->set("key", "value");
    static_cast<void>(client->get("key"));
    FAIL("nobody could answer");
  } catch (const Error& error) {
    CHECK(error.id() == "store-lost");
    CHECK(error.exit_code() == 8);
  }
}

TEST_CASE("loopback addresses are recognised", "[store]") {
  CHECK(colossal::detail::is_loopback("127.0.0.1"));
  CHECK(colossal::detail::is_loopback("localhost"));
  CHECK(colossal::detail::is_loopback("::1"));
  CHECK_FALSE(colossal::detail::is_loopback("10.0.0.1"));
}
