// Who takes part in this run, and what happens when one of them fails?
#pragma once

#include "comm/comm.hpp"
#include "comm/failure.hpp"
#include "comm/launch_flags.hpp"
#include "core/error.hpp"

#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace colossal {

/// Where this process stands among its peers, before any connection.
struct LaunchOptions {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  std::string address = "127.0.0.1";
  int port = 0;
  /// The TCPStore is hosted by the launcher (local spawn, torchrun's agent): rank 0 is a client
  /// too.
  bool store_is_hosted = false;
  /// How often the launcher has restarted this job; attempts may share a TCPStore.
  int attempt = 0;
  /// Instead of address and port: a file on a shared disk in which rank 0 leaves them, and the
  /// launcher's name of the job, which tells the file from that of another one.
  std::string rendezvous_file = {};
  std::string job = {};
  /// What is worth telling although the process can go on; empty: nothing.
  std::string warning = {};
  /// single, spawn, torchrun, openmpi, pmi or slurm: printed as `launch: ...`.
  std::string mode = "single";
  /// How the world size was found, for error texts: "no launcher environment found".
  std::string origin = "no launcher environment found";
};

/// Reads the launcher environment (config-and-cli 7.1: spawned child, torchrun, Open MPI, PMI,
/// Slurm, else single). Errors: environment "launch-env" listing missing or malformed variables;
/// usage "bad-launch", "bad-rendezvous", "launch-flag".
[[nodiscard]] LaunchOptions detect_launch(const LaunchFlags& flags = {});

/// What every rank publishes before the first collective (config-and-cli 7.2).
struct Identity {
  std::string build_id;
  std::string config_hash;
  /// The configuration as lines `key = value` without secrets: what people are shown of two that
  /// differ. May be empty.
  std::string config_keys = {};
  /// Where this rank computes; all ranks on devices of one kind.
  at::Device device = at::kCPU;
  /// Of a GPU: which card it is, and its model.
  std::string gpu_uuid = {};
  std::string gpu_name = {};
};

/// How long a rank waits before it names a culprit (comm.init_timeout, comm.timeout), and how peers
/// notice a death.
struct WorldTimeouts {
  std::chrono::milliseconds init{300'000};
  std::chrono::milliseconds collective{600'000};
  /// Time between two heartbeats.
  std::chrono::milliseconds heartbeat{2'000};
  /// A rank without heartbeat for this long is lost.
  std::chrono::milliseconds peer_lost{60'000};
};

/// All ranks of the run. World 1 opens no port and makes no group. The rank's watchdog thread beats
/// every 2 s, reads the store's abort key, and leaves the process by std::_Exit(8) when a peer
/// failed or was lost.
class World {
 public:
  /// Connects, checks the group (all ranks present, equal hashes), and makes the group of all
  /// ranks. `on_failure` hears of the failure that ends this process, from here on.
  /// Errors: comm "rendezvous" listing missing ranks, "gpu-shared", "gpu-differs"; config
  /// "config-differs"; environment "port-in-use". What the group check finds is thrown on one rank;
  /// the others leave with the same exit code and say nothing.
  static std::unique_ptr<World> connect(const LaunchOptions&,
                                        const Identity&,
                                        const WorldTimeouts&,
                                        FailureListener on_failure = {});
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// Rank of this process, 0 to size() - 1.
  [[nodiscard]] int rank() const noexcept;
  /// Number of processes of the run.
  [[nodiscard]] int size() const noexcept;
  /// How this process was started.
  [[nodiscard]] const LaunchOptions& launch() const noexcept;
  /// Where this rank computes (Identity::device). Groups move tensors of it, and of the CPU.
  [[nodiscard]] at::Device device() const noexcept;
  /// The group of all ranks.
  [[nodiscard]] const Comm& comm() const noexcept;
  /// Makes the group of `ranks` (global, ascending); every rank of the world must call with the
  /// list it belongs to, all in the same order of names. A list of one rank gives a size-1 Comm
  /// without any call; a name and list that exist give their group. Errors: internal "group-ranks",
  /// "group-name" for a known name with other ranks.
  [[nodiscard]] Comm make_group(std::string_view name, const std::vector<int>& ranks);

  /// Tells peers what this rank is doing ("step 12 forward"): quoted by their timeout messages.
  /// Cheap.
  void set_phase(std::string_view phase);

  /// Publishes this rank's failure (first one wins), tells the listener, flushes logs and leaves by
  /// std::_Exit with the error's exit code. stderr shows the error only if no other rank has
  /// reported it or its cause. Never runs destructors of process groups (they can hang).
  [[noreturn]] void abort(const Error& error);

  /// In a world of one, where nobody else must be stopped: tells the listener only.
  void report(const Error& error);

  /// For another thread that is about to end the process, as by a signal: if a failure of the run
  /// is known or being explained, the process leaves because of that instead, with exit code 8.
  void yield_to_failure();

  /// Orderly end: barrier, watchdog stopped, groups destroyed. Call only when everything succeeded.
  void close();

 private:
  struct Impl;
  explicit World(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace colossal
