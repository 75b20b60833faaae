// Which signals does a run answer itself, in its program, its launcher and its ranks?
#pragma once

#include <csignal>
#include <string>

namespace colossal {

/// Exit code of a run that was asked to stop and has saved a complete checkpoint: start it again.
inline constexpr int kStoppedExit = 75;
/// Exit code of a process that signal n ended: this plus n.
inline constexpr int kSignalExit = 128;

/// SIGINT, SIGTERM, SIGUSR1, SIGUSR2, and SIGHUP unless this process was started to ignore it
/// (nohup).
[[nodiscard]] sigset_t run_signals();

/// Blocks them in this thread and all that it makes. What arrives waits for whoever takes it, also
/// over an exec.
void hold_run_signals();

/// "SIGTERM"; "signal 99" if it has no name.
[[nodiscard]] std::string signal_name(int signal);

}  // namespace colossal
