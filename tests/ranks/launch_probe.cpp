// A stand-in for colossal-train in the failure tests: one scenario per run, with short timeouts.
// Usage: launch_probe NPROC SCENARIO [FLAG=VALUE]...; NPROC 0 takes the launcher's environment as
// it is. Flags: those of colossal::LaunchFlags, and --init, seconds to wait for all ranks.
#include "comm/launch.hpp"
#include "comm/world.hpp"
#include "core/fault.hpp"
#include "core/log.hpp"

#include <ATen/ops/ones.h>
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

using colossal::World;

/// Five steps of one all-reduce each; COLOSSAL_FAULT breaks them.
void run_steps(World& world) {
  for (int step = 0; step < 5; ++step) {
    world.set_phase(fmt::format("step {} data", step));
    colossal::fault::at_step(world.rank(), step);
    at::Tensor x = at::ones({1000});
    world.comm().all_reduce(x).wait();
  }
  if (world.rank() == 0) {
    std::puts("{\"exit\": 0}");
  }
}

/// SIGTERM asks the watchdog before the process ends by it, as a run does.
void yield_on_sigterm(World& world) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  std::thread([&world, set] {
    int number = 0;
    sigwait(&set, &number);
    world.yield_to_failure();
    std::_Exit(128 + number);
  }).detach();
}

/// A process of this rank that outlives it and holds its output open.
void leave_a_child_behind() {
  const pid_t child = ::fork();
  if (child == 0) {
    std::this_thread::sleep_for(std::chrono::seconds(300));
    std::_Exit(0);
  }
  std::printf("pid %d\n", static_cast<int>(child));
  std::fflush(stdout);
}

/// What programs write that is not short lines: a line longer than any buffer, bytes that are no
/// text, many lines at once, an end without a newline.
void write_noise(int rank) {
  std::FILE* out = rank == 0 ? stdout : stderr;
  const std::string bytes("\0\xff\x1b[31m", 7);
  fmt::print(out, "long {}\n", std::string(1 << 20, static_cast<char>('a' + rank)));
  std::fwrite(bytes.data(), 1, bytes.size(), out);
  std::fputc('\n', out);
  for (int line = 0; line < 20'000; ++line) {
    fmt::print(out, "line {} of {}\n", line, rank);
  }
  fmt::print(out, "the end of {}", rank);
  std::fflush(out);
}

void run_scenario(World& world, std::string_view scenario) {
  if (scenario == "yield") {
    yield_on_sigterm(world);
  }
  if (scenario == "warn") {
    colossal::log::warn("the same on every rank");
    std::fprintf(stderr, "raw line of rank %d\n", world.rank());
  } else if (scenario == "noise") {
    write_noise(world.rank());
  } else if (scenario == "family") {
    leave_a_child_behind();
  } else if (scenario == "linger" || scenario == "stubborn") {
    if (scenario == "stubborn") {
      std::signal(SIGINT, SIG_IGN);
    }
    std::printf("pid %d\n", static_cast<int>(::getpid()));
    std::fflush(stdout);
    std::this_thread::sleep_for(std::chrono::seconds(60));
  } else {
    run_steps(world);
  }
}

/// The value of "--name=VALUE" among the arguments, or nothing.
std::string flag(const std::vector<std::string>& arguments, const std::string& name) {
  for (const std::string& argument : arguments) {
    if (argument.starts_with(name + "=")) {
      return argument.substr(name.size() + 1);
    }
  }
  return "";
}

int run_rank(const std::vector<std::string>& arguments) {
  const std::string_view scenario = arguments[2];
  const std::string port = flag(arguments, "--master-port");
  const colossal::LaunchOptions options =
      colossal::detect_launch({.mode = "auto",
                               .master_addr = flag(arguments, "--master-addr"),
                               .master_port = port.empty() ? 0 : std::stoi(port),
                               .rendezvous = flag(arguments, "--rendezvous")});
  colossal::log::configure({colossal::log::Level::info, options.rank, {}});
  if (scenario == "absent" && options.rank == 1) {
    std::this_thread::sleep_for(std::chrono::seconds(30));
  }
  const std::string hash = scenario == "hash" ? fmt::format("hash-{}", options.rank) : "hash";
  colossal::WorldTimeouts timeouts;
  const std::string init = flag(arguments, "--init");
  timeouts.init = std::chrono::seconds(scenario == "absent" ? 2
                                       : init.empty()       ? 20
                                                            : std::stoi(init));
  timeouts.collective = std::chrono::seconds(3);
  timeouts.heartbeat = std::chrono::milliseconds(400);
  timeouts.peer_lost = std::chrono::seconds(2);
  const auto world = World::connect(options, {"probe", hash}, timeouts);
  try {
    run_scenario(*world, scenario);
    world->close();
  } catch (const colossal::Error& error) {
    world->abort(error);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv, argv + argc);
  const int num_processes = argc >= 3 ? std::atoi(argv[1]) : -1;
  if (num_processes < 0) {
    std::fputs("usage: launch_probe NPROC SCENARIO [FLAG=VALUE]...\n", stderr);
    return 2;
  }
  colossal::guard_child();
  if (arguments[2] == "yield") {  // before any thread exists, which would take the signal
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
  }
  try {
    const bool is_launcher = num_processes > 0 && colossal::detect_launch().mode == "single";
    colossal::LaunchRequest request;
    request.num_processes = num_processes;
    request.arguments = arguments;
    return is_launcher ? colossal::launch_local(request).exit_code : run_rank(arguments);
  } catch (const colossal::Error& error) {
    colossal::log::failure(error);
    return error.exit_code();
  }
}
