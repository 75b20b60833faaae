// How does one command become N processes on this machine?
#pragma once

#include <string>
#include <vector>

namespace colossal {

/// Hosts a TCPStore on a free port, re-executes this binary `num_processes` times with the torchrun
/// variables set (argv unchanged but for --nproc, which must not be passed), forwards their output
/// line by line, and waits. The first failing child stops the rest (SIGTERM, 10 s, SIGKILL) and a
/// block names the root-cause rank, its code and its last error line. SIGINT or SIGTERM stops all
/// children. Returns the exit code of the root cause (earliest non-zero exit that is not 8, else
/// the earliest), 130 / 143 after a signal, 0 if all succeeded. Errors: environment "launch-spawn",
/// "port-bind".
[[nodiscard]] int launch_local(int num_processes, const std::vector<std::string>& arguments);

/// In a spawned child: die with the parent (PR_SET_PDEATHSIG) and re-check it is still there. No-op
/// otherwise.
void guard_child();

}  // namespace colossal
