// How is the store reached? c10d's TCPStore on a socket that we bind, so that bind errors are ours
// to explain.
#include "comm/detail/store.hpp"

#include "core/error.hpp"
#include "core/system.hpp"

#include <c10/util/Logging.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <future>
#include <netdb.h>
#include <netinet/in.h>
#include <optional>
#include <sys/socket.h>
#include <thread>
#include <type_traits>
#include <utility>

namespace colossal::detail {
namespace {

/// How much longer than its own time c10d may take to say that it is over.
constexpr std::chrono::milliseconds kGrace{500};

/// What `call` gives, or nothing if it takes longer than `patience`. c10d waits without end for the
/// answer of a server that has taken the connection, so the call has a thread of its own, which is
/// left behind then with all that it holds: `call` must own what it uses.
template <class Call>
std::optional<std::invoke_result_t<Call>> answer_within(std::chrono::milliseconds patience,
                                                        Call call) {
  using Answer = std::invoke_result_t<Call>;
  std::packaged_task<Answer()> task(std::move(call));
  std::future<Answer> answer = task.get_future();
  std::thread(std::move(task)).detach();
  if (answer.wait_for(patience) != std::future_status::ready) {
    return std::nullopt;
  }
  return std::optional<Answer>(std::in_place, answer.get());  // an answer may itself be nothing
}

c10::intrusive_ptr<c10d::Store> open_store(const std::string& address,
                                           const c10d::TCPStoreOptions& options,
                                           const std::string& prefix) {
  auto store = c10::make_intrusive<c10d::TCPStore>(address, options);
  return c10::make_intrusive<c10d::PrefixStore>(prefix, std::move(store));
}

/// c10d logs every retry and lost connection, with a C++ backtrace; our errors carry the reason
/// instead. TORCH_CPP_LOG_LEVEL brings its log back.
void silence_c10d() {
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) {
    FLAGS_caffe2_log_level = c10::GLOG_FATAL;
  }
}

void fail_bind(const Endpoint& endpoint, int error_number) {
  check(
      error_number != EADDRINUSE,
      ErrorKind::environment,
      "port-in-use",
      "port {} is in use on this machine, so rank 0 cannot host the rendezvous store\n  fix   set "
      "MASTER_PORT (mpirun, mpiexec, srun: --master-port) to a free port, or use --nproc, which "
      "picks one itself",
      endpoint.port);
  fail(ErrorKind::environment,
       "port-bind",
       "cannot listen on {}:{} for the rendezvous store: {}\n  fix   give MASTER_PORT "
       "(--master-port) "
       "another port that this user may listen on, or raise `ulimit -n`",
       endpoint.address,
       endpoint.port,
       std::strerror(error_number));
}

/// A listening IPv4 socket on the loopback interface or on all interfaces.
Descriptor listen_on(const Endpoint& endpoint) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) {
    fail_bind(endpoint, errno);
  }
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(endpoint.port));
  address.sin_addr.s_addr = htonl(is_loopback(endpoint.address) ? INADDR_LOOPBACK : INADDR_ANY);
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  if (::bind(socket.get(), generic, sizeof address) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0) {
    fail_bind(endpoint, errno);
  }
  return socket;
}

int bound_port(const Descriptor& socket) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.sin_port);
}

double as_seconds(std::chrono::milliseconds time) {
  return static_cast<double>(time.count()) / 1000.0;
}

[[noreturn]] void fail_rendezvous(const Endpoint& endpoint,
                                  std::chrono::milliseconds timeout,
                                  const std::string& why) {
  fail(ErrorKind::comm,
       "rendezvous",
       "no rendezvous store answered at {}:{} within {} s ({})\n  fix   check that rank 0 has "
       "started "
       "and does not hang, and that MASTER_ADDR and MASTER_PORT name its machine and no other "
       "program's port",
       endpoint.address,
       endpoint.port,
       as_seconds(timeout),
       why);
}

}  // namespace

std::string reason(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text =
      torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

bool is_loopback(std::string_view address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

struct Store::Impl {
  c10::intrusive_ptr<c10d::Store> store;
  Endpoint endpoint;
  bool hosting = false;
  /// The longest wait for an answer, while it is bounded.
  std::optional<std::chrono::milliseconds> patience;
  std::atomic<bool> silent{false};  ///< has not answered once: its connection is held by that call

  [[noreturn]] void lost(const std::string& why) const {
    fail(ErrorKind::comm,
         "store-lost",
         "the rendezvous store at {}:{} does not answer ({}): the launcher or rank 0 has ended or "
         "hangs\n  fix   look for its first error, and start all ranks again",
         endpoint.address,
         endpoint.port,
         why);
  }

  /// Runs one store call, which owns what it uses, and explains its failure. Beyond `extra` time
  /// that the call itself may wait, the server has its patience.
  template <class Call>
  std::invoke_result_t<Call> guarded(Call call, std::chrono::milliseconds extra = {}) {
    if (silent) {
      lost("a call before this one is still waiting");
    }
    try {
      if (!patience || hosting) {
        return call();
      }
      if (auto answer = answer_within(*patience + extra + kGrace, std::move(call))) {
        return *std::move(answer);
      }
    } catch (const std::exception& error) {
      lost(reason(error));
    }
    silent = true;
    lost(fmt::format("not within {} s", as_seconds(*patience + extra)));
  }
};

std::unique_ptr<Store> Store::host(const Endpoint& endpoint, std::chrono::milliseconds timeout) {
  silence_c10d();
  Descriptor socket = listen_on(endpoint);
  auto impl = std::make_unique<Impl>();
  impl->endpoint = endpoint;
  impl->endpoint.port = bound_port(socket);
  impl->hosting = true;
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(impl->endpoint.port);
  options.isServer = true;
  options.waitWorkers = false;
  options.timeout = timeout;
  options.masterListenFd = socket.release();
  impl->guarded([&] {
    // The server's own connection stays on this machine, whatever name the other ranks use for it.
    impl->store = open_store("127.0.0.1", options, endpoint.prefix);
    return 0;
  });
  return std::unique_ptr<Store>(new Store(std::move(impl)));
}

std::unique_ptr<Store> Store::join(const Endpoint& endpoint, std::chrono::milliseconds timeout) {
  silence_c10d();
  auto impl = std::make_unique<Impl>();
  impl->endpoint = endpoint;
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(endpoint.port);
  options.waitWorkers = false;
  options.timeout = timeout;
  impl->patience = timeout;
  std::optional<c10::intrusive_ptr<c10d::Store>> store;
  try {
    store = answer_within(timeout + kGrace, [options, endpoint] {
      return open_store(endpoint.address, options, endpoint.prefix);
    });
  } catch (const std::exception& error) {
    fail_rendezvous(endpoint, timeout, reason(error));
  }
  if (!store) {
    fail_rendezvous(endpoint,
                    timeout,
                    "no answer came: the name is not found in time, or something takes the "
                    "connection there and says nothing");
  }
  impl->store = *std::move(store);
  return std::unique_ptr<Store>(new Store(std::move(impl)));
}

Store::Store(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Store::~Store() = default;

const Endpoint& Store::endpoint() const noexcept {
  return impl_->endpoint;
}
bool Store::is_host() const noexcept {
  return impl_->hosting;
}
c10d::Store& Store::native() const noexcept {
  return *impl_->store;
}

void Store::wait_without_end() noexcept {
  impl_->patience.reset();
}

void Store::extend(std::chrono::milliseconds timeout) {
  native().setTimeout(timeout);
  impl_->patience = timeout;
}

void Store::set(const std::string& key, std::string_view value) {
  impl_->guarded([store = impl_->store, key, value = std::string(value)] {
    store->set(key, value);
    return true;
  });
}

std::optional<std::string> Store::get(const std::string& key) {
  return impl_->guarded([store = impl_->store, key]() -> std::optional<std::string> {
    if (!store->check({key})) {
      return std::nullopt;
    }
    return store->get_to_str(key);
  });
}

std::vector<std::string> Store::get_all(const std::vector<std::string>& keys) {
  return impl_->guarded([store = impl_->store, keys] {
    std::vector<std::string> values;
    for (const auto& bytes : store->multiGet(keys)) {
      values.emplace_back(bytes.begin(), bytes.end());
    }
    return values;
  });
}

std::string Store::set_if_absent(const std::string& key, const std::string& value) {
  return impl_->guarded(
      [store = impl_->store, key, value] { return store->compareSet(key, std::string(), value); });
}

std::int64_t Store::add(const std::string& key, std::int64_t amount) {
  return impl_->guarded([store = impl_->store, key, amount] { return store->add(key, amount); });
}

bool Store::wait(const std::string& key, std::chrono::milliseconds timeout) {
  const auto call = [store = impl_->store, key, timeout] {
    try {
      store->wait({key}, timeout);
      return true;
    } catch (const c10::DistStoreError&) {
      return false;  // c10d's only sign of a timeout; a lost server is a DistNetworkError
    }
  };
  return impl_->guarded(call, timeout);
}

}  // namespace colossal::detail
