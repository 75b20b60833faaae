// Does the store keep texts, and does it explain why it cannot be hosted or reached?
#include "comm/detail/store.hpp"

#include "comm/detail/backend.hpp"
#include "comm/detail/file_rendezvous.hpp"
#include "comm/detail/local_job.hpp"
#include "core/error.hpp"
#include "core/system.hpp"
#include "support/catch.hpp"
#include "support/temp_dir.hpp"

#include <array>
#include <atomic>
#include <netinet/in.h>
#include <poll.h>
#include <stdexcept>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thread>
#include <vector>

using colossal::Descriptor;
using colossal::Error;
using colossal::detail::Store;
using namespace std::chrono_literals;

namespace {

/// A program that listens on a port of its own and takes connections without a word.
class SilentListener {
 public:
  SilentListener() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    REQUIRE(::bind(socket_.get(), generic, sizeof address) == 0);
    REQUIRE(::listen(socket_.get(), 8) == 0);
    socklen_t length = sizeof address;
    ::getsockname(socket_.get(), generic, &length);
    port_ = ntohs(address.sin_port);
  }
  [[nodiscard]] int port() const { return port_; }
  [[nodiscard]] int next() const {
    return ::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC);
  }

 private:
  Descriptor socket_;
  int port_ = 0;
};

/// Passes one connection on to a server until it is stopped; then it holds both and is silent, as a
/// process is that was stopped by a signal.
class Relay {
 public:
  explicit Relay(int server_port) : server_port_(server_port), thread_([this] { run(); }) {}
  ~Relay() {
    pass_ = false;
    thread_.join();
  }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;
  [[nodiscard]] int port() const { return listener_.port(); }
  void stop() { pass_ = false; }
  /// What was sent meanwhile waits in the sockets.
  void pause(bool paused) { paused_ = paused; }

 private:
  void run() {
    near_ = Descriptor(listener_.next());
    far_ = Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(server_port_));
    static_cast<void>(::connect(far_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address));
    while (pass_) {
      if (paused_) {
        std::this_thread::sleep_for(10ms);
        continue;
      }
      std::array<pollfd, 2> ends{{{near_.get(), POLLIN, 0}, {far_.get(), POLLIN, 0}}};
      ::poll(ends.data(), ends.size(), 10);
      copy(ends[0], far_);
      copy(ends[1], near_);
    }
  }
  void copy(const pollfd& from, const Descriptor& to) {
    std::array<char, 4096> bytes{};
    if (!pass_ || (from.revents & POLLIN) == 0) {
      return;
    }
    const ssize_t count = ::recv(from.fd, bytes.data(), bytes.size(), 0);
    if (count > 0) {
      static_cast<void>(::send(to.get(), bytes.data(), static_cast<std::size_t>(count), 0));
    }
  }

  int server_port_;
  SilentListener listener_;
  Descriptor near_;
  Descriptor far_;
  std::atomic<bool> pass_{true};
  std::atomic<bool> paused_{false};
  std::thread thread_;
};

template <class Call>
Error error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return Error(error);
  }
  FAIL("no error");
  throw std::logic_error("not reached");
}

}  // namespace

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

TEST_CASE("a foreign program on the port held a rank for ever", "[store]") {
  const SilentListener foreign;
  const auto start = std::chrono::steady_clock::now();
  const Error error =
      error_of([&] { static_cast<void>(Store::join({"127.0.0.1", foreign.port(), ""}, 300ms)); });
  CHECK(std::chrono::steady_clock::now() - start < 10s);
  CHECK(error.id() == "rendezvous");
  CHECK(error.exit_code() == 8);
  const std::string text = error.what();
  CHECK(text.find("127.0.0.1:" + std::to_string(foreign.port()) + " within 0.3 s") !=
        std::string::npos);
  CHECK(text.find("takes the connection there and says nothing)\n  fix   ") != std::string::npos);
}

TEST_CASE("a server that stopped after the first word held a rank for ever", "[store]") {
  const auto server = Store::host({}, 10s);
  Relay relay(server->endpoint().port);
  const auto client = Store::join({"127.0.0.1", relay.port(), ""}, 1s);
  client->set("key", "value");
  CHECK(client->get("key") == "value");
  relay.stop();
  const auto start = std::chrono::steady_clock::now();
  const Error first = error_of([&] { static_cast<void>(client->get("key")); });
  const Error second = error_of([&] { static_cast<void>(client->wait("key", 60s)); });
  CHECK(std::chrono::steady_clock::now() - start < 10s);  // the second is told at once
  for (const Error& error : {first, second}) {
    CHECK(error.id() == "store-lost");
    CHECK(error.exit_code() == 8);
  }
  CHECK(std::string(first.what()).find("not within 1 s") != std::string::npos);
}

TEST_CASE("a connection that waits without end outlasts a pause of the server", "[store]") {
  const auto server = Store::host({}, 10s);
  server->set("key", "value");
  Relay relay(server->endpoint().port);
  const auto client = Store::join({"127.0.0.1", relay.port(), ""}, 100ms);
  client->wait_without_end();
  relay.pause(true);
  const std::jthread late([&] {
    std::this_thread::sleep_for(2s);  // far longer than the patience of 0.1 s and what is added
    relay.pause(false);
  });
  CHECK(client->get("key") == std::string("value"));
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
