// How is a run directory owned? One lock, atomic replacement of small files, whole lines of
// metrics.
#include "train/run_dir.hpp"

#include "core/error.hpp"
#include "core/log.hpp"
#include "core/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

namespace colossal {
namespace {

namespace fs = std::filesystem;

/// A dying predecessor (killed by its launcher a moment ago) gets this long to drop the lock.
constexpr std::chrono::seconds kLockPatience{5};
constexpr std::chrono::milliseconds kLockPoll{50};
constexpr const char* kLockName = "run.lock";
/// Free space that must remain beside two checkpoints: logs, metrics and other users of the volume.
constexpr std::int64_t kSpareBytes = std::int64_t{1} << 30;

[[noreturn]] void not_writable(const fs::path& path, const std::string& cause) {
  fail(ErrorKind::config,
       "output-not-writable",
       "run.output_dir: cannot write {}: {}\n  fix   choose another folder with --output-dir, or "
       "repair its permissions",
       path.string(),
       cause);
}

std::string cause_of(int error) {
  if (error == EDQUOT) {
    return "your disk quota is used up (EDQUOT)";
  }
  return std::strerror(error);  // NOLINT(concurrency-mt-unsafe): before any thread exists
}

/// Makes the folder if it is not there; returns whether it did.
bool make_folder(const fs::path& folder) {
  std::error_code error;
  const bool made = fs::create_directories(folder, error);
  if (error) {
    not_writable(folder, error.message());
  }
  if (!fs::is_directory(folder)) {
    not_writable(folder, "it exists and is not a folder");
  }
  return made;
}

void check_space(const fs::path& folder, std::int64_t checkpoint_bytes) {
  struct statvfs volume{};
  if (::statvfs(folder.c_str(), &volume) != 0) {
    return;  // a file system without this call cannot be judged; the probe file decides
  }
  const auto free =
      static_cast<std::int64_t>(volume.f_bavail) * static_cast<std::int64_t>(volume.f_frsize);
  const std::int64_t needed = 2 * checkpoint_bytes + kSpareBytes;
  const std::string spare = human_bytes(static_cast<double>(kSpareBytes));
  check(free >= needed,
        ErrorKind::config,
        "disk-low",
        "the volume of {} has {} free; {}\n  fix   free some space, or choose another volume with "
        "--output-dir",
        folder.string(),
        human_bytes(static_cast<double>(free)),
        checkpoint_bytes == 0 ? spare + " to spare are needed"
                              : fmt::format("two checkpoints of {} and {} to spare need {}",
                                            human_bytes(static_cast<double>(checkpoint_bytes)),
                                            spare,
                                            human_bytes(static_cast<double>(needed))));
}

/// Something that is there already, if only a link to nothing.
bool is_there(const fs::path& path) {
  std::error_code ignored;
  const fs::file_type type = fs::symlink_status(path, ignored).type();
  return type != fs::file_type::not_found && type != fs::file_type::none;
}

/// Whether a record could be added to a file that is there. What is no file could block for ever.
void probe_file(const fs::path& file) {
  if (!is_there(file)) {
    return;
  }
  std::error_code ignored;
  const bool leads_nowhere = !fs::exists(file, ignored);  // a link that a first record makes true
  const Descriptor handle(
      ::open(file.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0644));
  const int error = errno;
  if (leads_nowhere && handle.get() >= 0) {
    fs::remove(fs::canonical(file, ignored), ignored);
  }
  struct stat info{};
  const bool known =
      handle.get() >= 0 ? ::fstat(handle.get(), &info) == 0 : ::stat(file.c_str(), &info) == 0;
  if (known && !S_ISREG(info.st_mode)) {
    not_writable(file, "it exists and is not a file");
  }
  if (handle.get() < 0) {
    not_writable(file, cause_of(error));
  }
}

void probe(const fs::path& folder) {
  const fs::path file = folder / (".probe-" + std::to_string(::getpid()));
  const Descriptor handle(::open(file.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644));
  if (handle.get() < 0) {
    not_writable(folder, cause_of(errno));
  }
  const bool written = ::write(handle.get(), "probe", 5) == 5 && ::fsync(handle.get()) == 0;
  const int error = errno;
  ::unlink(file.c_str());
  if (!written) {
    not_writable(folder, cause_of(error));
  }
}

/// What the run will write into and what an earlier one has left: a run that cannot save, or tell
/// what it does, must not begin. New names are made by the folder's own probe.
void probe_content(const fs::path& folder) {
  std::error_code error;
  for (const char* name : {"status.json", "abort.json"}) {  // read, and replaced by renaming
    if (fs::exists(folder / name, error) && !fs::is_regular_file(folder / name, error)) {
      not_writable(folder / name, "it exists and is not a file");
    }
  }
  const fs::path logs = log_folder(folder, last_attempt(folder) + 1);
  for (const fs::path& inner : {folder / "checkpoints", folder / "logs", logs, folder / "export"}) {
    if (is_there(inner)) {
      make_folder(inner);
      probe(inner);
    }
  }
  probe_file(folder / "metrics.jsonl");
  for (fs::directory_iterator entry(logs, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == ".log") {
      probe_file(entry->path());
    }
  }
}

/// Locks the open run.lock of `folder`; waits for a dying predecessor.
void hold_lock(const Descriptor& handle, const fs::path& folder) {
  const fs::path file = folder / kLockName;
  const auto deadline = std::chrono::steady_clock::now() + kLockPatience;
  while (::flock(handle.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      not_writable(file, "cannot lock it: " + cause_of(errno));
    }
    if (std::chrono::steady_clock::now() >= deadline) {
      std::string holder = read_text(file);
      holder.erase(holder.find_last_not_of('\n') + 1);
      fail(ErrorKind::config,
           "output-in-use",
           "run.output_dir {} is in use by {}\n  fix   wait for that run, stop it, or choose "
           "another folder with --output-dir",
           folder.string(),
           holder.empty() ? "another run" : holder);
    }
    std::this_thread::sleep_for(kLockPoll);
  }
}

/// Opens run.lock and holds it; waits for a dying predecessor.
Descriptor take_lock(const fs::path& folder) {
  const fs::path file = folder / kLockName;
  Descriptor handle(::open(file.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644));
  if (handle.get() < 0) {
    not_writable(file, cause_of(errno));
  }
  hold_lock(handle, folder);
  const std::string owner =
      "host " + host_name() + ", process " + std::to_string(::getpid()) + "\n";
  if (::ftruncate(handle.get(), 0) != 0 ||
      ::pwrite(handle.get(), owner.data(), owner.size(), 0) != std::ssize(owner)) {
    not_writable(file, cause_of(errno));
  }
  return handle;
}

bool looks_like_a_run(const fs::path& folder) {
  return fs::exists(folder / "config.resolved.yaml") || fs::exists(folder / "checkpoints") ||
         fs::exists(folder / "run.lock");
}

}  // namespace

fs::path log_folder(const fs::path& run, std::int64_t attempt) {
  const fs::path logs = run / "logs";
  return attempt <= 1 ? logs : logs / ("attempt-" + std::to_string(attempt));
}

std::int64_t last_attempt(const fs::path& run) {
  constexpr std::int64_t kMost = 1'000'000'000;  // beyond, it is no number that we wrote
  const auto status =
      nlohmann::json::parse(read_text(run / "status.json"), nullptr, /*allow_exceptions=*/false);
  const auto attempt = status.find("attempt");  // at its end for whatever is no object
  const bool whole = attempt != status.end() && attempt->is_number_integer();
  return whole ? std::clamp<std::int64_t>(attempt->get<std::int64_t>(), 0, kMost) : 0;
}

void check_unused(const fs::path& folder) {
  const Descriptor handle(::open((folder / kLockName).c_str(), O_RDWR | O_CLOEXEC));
  if (handle.get() >= 0) {  // else no run has ever held it, or check_writable() says why
    hold_lock(handle, folder);
  }
}

void check_writable(const fs::path& folder, std::int64_t checkpoint_bytes, bool moved_aside) {
  const bool made = make_folder(folder);
  try {
    check_space(folder, checkpoint_bytes);
    probe(folder);
    if (!moved_aside) {
      probe_content(folder);
    }
  } catch (const Error&) {
    std::error_code ignored;
    if (made) {
      fs::remove(folder, ignored);  // a run that does not begin leaves nothing behind
    }
    throw;
  }
}

std::unique_ptr<RunDir> RunDir::open(const fs::path& folder, std::int64_t checkpoint_bytes) {
  check_writable(folder, checkpoint_bytes, false);
  std::unique_ptr<RunDir> run_dir(new RunDir(folder, take_lock(folder)));
  std::error_code ignored;
  fs::remove(folder / "abort.json", ignored);  // of an attempt that this one follows
  return run_dir;
}

fs::path RunDir::move_aside(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::exists(folder) || fs::is_empty(folder, ignored)) {
    return {};
  }
  check(looks_like_a_run(folder),
        ErrorKind::config,
        "overwrite-not-a-run",
        "--overwrite: {} is not empty and holds no run; it is left alone\n  fix   choose another "
        "folder with --output-dir",
        folder.string());
  const RunDir old(folder, take_lock(folder));
  int k = 1;
  fs::path target;
  do {
    target = folder.string() + ".old-" + std::to_string(k++);
  } while (fs::exists(target));
  std::error_code error;
  fs::rename(folder, target, error);
  if (error) {
    not_writable(target, error.message());
  }
  return target;
}

std::unique_ptr<RunDir> RunDir::take_over(const fs::path& folder) {
  std::error_code error;
  const bool empty = fs::is_empty(folder, error) && !error;  // no start has come far enough yet
  const int create = empty ? O_CREAT : 0;
  Descriptor lock(::open((folder / "run.lock").c_str(), create | O_RDWR | O_CLOEXEC, 0644));
  if (lock.get() < 0 || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return nullptr;
  }
  return std::unique_ptr<RunDir>(new RunDir(folder, std::move(lock)));
}

RunDir::RunDir(fs::path path, Descriptor lock)
    : path_(std::move(path)), lock_(std::move(lock)), attempt_(last_attempt(path_) + 1) {}

void RunDir::write(const std::string& name, const std::string& text) const {
  const std::lock_guard lock(writing_);
  const fs::path temporary = path_ / ("." + name + ".tmp");
  {
    std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
    out << text << std::flush;
    if (!out) {
      not_writable(temporary, cause_of(errno));
    }
  }
  std::error_code error;
  fs::rename(temporary, path_ / name, error);
  if (error) {
    not_writable(path_ / name, error.message());
  }
}

void RunDir::update(const std::string& name, const std::string& text) const {
  try {
    write(name, text);
  } catch (const Error& error) {
    log::warn("[run] {} keeps its old content: {}", name, error.what());
  }
}

}  // namespace colossal
