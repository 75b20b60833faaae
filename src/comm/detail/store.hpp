// How do ranks share small texts? One key-value store over TCP; its c10d type stays in two .cpp
// files.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace c10d {
class Store;
}

namespace colossal::detail {

/// Where a store listens. Port 0 when hosting: the operating system picks a free one.
struct Endpoint {
  std::string address = "127.0.0.1";
  int port = 0;
  /// All keys begin with this: keeps attempts apart that share a server (torchrun's restarts).
  std::string prefix;
};

/// The first line of what c10d says, without its backtrace.
[[nodiscard]] std::string reason(const std::exception& error);

/// True for addresses that only processes of this machine can reach.
[[nodiscard]] bool is_loopback(std::string_view address);

/// One connection to a c10d TCPStore, and the server itself for the process that hosts it. Calls
/// are serialised. Errors of all members: comm "store-lost" if the server does not answer.
class Store {
 public:
  /// Hosts a server and connects to it; a loopback address is not reachable from other machines.
  /// Errors: environment "port-in-use" or "port-bind".
  static std::unique_ptr<Store> host(const Endpoint& endpoint, std::chrono::milliseconds timeout);
  /// Connects to a server, retrying until `timeout`, which also bounds each wait for an answer.
  /// Errors: comm "rendezvous".
  static std::unique_ptr<Store> join(const Endpoint& endpoint, std::chrono::milliseconds timeout);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  [[nodiscard]] const Endpoint& endpoint() const noexcept;
  [[nodiscard]] bool is_host() const noexcept;

  /// From now on a server that does not answer is waited for: a launcher that was paused comes
  /// back.
  void wait_without_end() noexcept;
  /// Puts another bound in the place of that of join().
  void extend(std::chrono::milliseconds timeout);

  void set(const std::string& key, std::string_view value);
  /// The value, or nothing if the key is absent.
  [[nodiscard]] std::optional<std::string> get(const std::string& key);
  /// Values of keys that all exist.
  [[nodiscard]] std::vector<std::string> get_all(const std::vector<std::string>& keys);
  /// Sets the key unless it exists; returns the value it then has.
  std::string set_if_absent(const std::string& key, const std::string& value);
  /// Adds to a counter (absent: 0) and returns the new value.
  std::int64_t add(const std::string& key, std::int64_t amount);
  /// Blocks until the key exists; false after `timeout`.
  [[nodiscard]] bool wait(const std::string& key, std::chrono::milliseconds timeout);

  /// For the backends, which need the c10d object.
  [[nodiscard]] c10d::Store& native() const noexcept;

 private:
  struct Impl;
  explicit Store(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace colossal::detail
