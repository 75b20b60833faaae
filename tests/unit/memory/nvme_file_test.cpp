// Does a slot come back as it was written, and does every fault of a disk show?
#include "memory/nvme_file.hpp"

#include "core/log.hpp"
#include "core/system.hpp"
#include "fake_disk.hpp"
#include "memory/gauge.hpp"
#include "memory/host_memory.hpp"
#include "memory_helpers.hpp"
#include "support/temp_dir.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros_like.h>

#include <array>
#include <csignal>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>

namespace colossal {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;
using test::DiskAct;
using test::error_of;
using test::fake_disk;
using test::TempDir;

constexpr std::int64_t kFileMiB = std::int64_t{1} << 20U;
constexpr std::array<std::int64_t, 5> kSlots = {1, 4096, 4097, 3 * kFileMiB + 5, 0};

/// Bytes that differ from slot to slot and from round to round; at most 4 MiB.
at::Tensor pattern(std::int64_t bytes, int seed) {
  static const at::Tensor source =
      at::arange(5 * kFileMiB, at::kInt).mul(40503).remainder(251).to(at::kByte);
  const at::Tensor memory = host_empty(bytes, at::kByte);
  memory.copy_(source.narrow(0, seed * 97, bytes));
  return memory;
}

/// Writes every slot, all at once, and waits.
void write_all(NvmeFile& file, int seed) {
  std::vector<NvmePending> pending;
  for (int slot = 0; slot < file.num_slots(); ++slot) {
    pending.push_back(file.write(slot, pattern(file.slot_bytes(slot), seed + slot)));
  }
  for (NvmePending& one : pending) {
    one.wait();
  }
}

void require_all(NvmeFile& file, int seed) {
  std::vector<at::Tensor> found;
  std::vector<NvmePending> pending;
  for (int slot = 0; slot < file.num_slots(); ++slot) {
    found.push_back(host_empty(file.slot_bytes(slot), at::kByte));
    pending.push_back(file.read(slot, found.back()));
  }
  for (int slot = 0; slot < file.num_slots(); ++slot) {
    INFO("slot " << slot);
    pending[static_cast<std::size_t>(slot)].wait();
    REQUIRE(at::equal(found[static_cast<std::size_t>(slot)],
                      pattern(file.slot_bytes(slot), seed + slot)));
  }
}

/// A file of one slot of 3 MiB whose disk follows `plan`.
NvmeFile faulty(const TempDir& folder, test::DiskPlan plan) {
  const std::array<std::int64_t, 1> slots = {3 * kFileMiB};
  return NvmeFile({.folder = folder.path(), .queue = fake_disk(std::move(plan))}, slots);
}

/// Lowers a soft limit of this process until the end of the scope.
class LowerLimit {
 public:
  LowerLimit(decltype(RLIMIT_FSIZE) what, rlim_t value) : what_(what) {
    ::getrlimit(what_, &before_);
    const rlimit lower{value, before_.rlim_max};
    ::setrlimit(what_, &lower);
  }
  ~LowerLimit() { ::setrlimit(what_, &before_); }
  LowerLimit(const LowerLimit&) = delete;
  LowerLimit& operator=(const LowerLimit&) = delete;

 private:
  decltype(RLIMIT_FSIZE) what_;
  rlimit before_{};
};

TEST_CASE("slots come back as written, by every backend and queue depth", "[memory][nvme]") {
  const TempDir folder;
  const auto backend = GENERATE(NvmeBackend::automatic, NvmeBackend::pread);
  const auto depth = GENERATE(1, 2, 32);
  const std::int64_t before = gauge(MemoryKind::nvme).use().current;
  {
    NvmeFile file({.folder = folder.path() / "new", .backend = backend, .queue_depth = depth},
                  kSlots);
    CHECK(file.num_slots() == 5);
    CHECK(file.slot_bytes(3) == 3 * kFileMiB + 5);
    CHECK(file.file_bytes() == 4096 + 4096 + 8192 + 3 * kFileMiB + 4096);
    CHECK(gauge(MemoryKind::nvme).use().current == before + file.file_bytes());
    CHECK((backend == NvmeBackend::automatic || file.backend() == "pread"));
    for (const int seed : {1, 50, 99}) {
      write_all(file, seed);
      require_all(file, seed);
    }
  }
  CHECK(gauge(MemoryKind::nvme).use().current == before);
  CHECK(fs::is_empty(folder.path() / "new"));
}

TEST_CASE("io_uring is used where the kernel allows it", "[memory][nvme]") {
  const TempDir folder;
  const Descriptor probe(::open((folder.path() / "probe").c_str(), O_CREAT | O_RDWR, 0600));
  const bool available = make_uring_queue(probe.get(), 4) != nullptr;
  NvmeFile file({.folder = folder.path()}, kSlots);
  CHECK(file.backend() == (available ? "io_uring" : "pread"));
  if (!available) {
    WARN("this kernel or build has no io_uring: only threads were tested");
  }
}

TEST_CASE("the file has no name while it is used and takes its space at once", "[memory][nvme]") {
  const TempDir folder;
  int descriptor = -1;
  const std::array<std::int64_t, 1> slots = {3 * kFileMiB};
  const NvmeFile file({.folder = folder.path(),
                       .queue =
                           [&](int opened, int depth) {
                             descriptor = opened;
                             return make_thread_queue(opened, depth);
                           }},
                      slots);
  CHECK(fs::is_empty(folder.path()));
  struct stat status{};
  REQUIRE(::fstat(descriptor, &status) == 0);
  CHECK(status.st_nlink == 0);
  CHECK(status.st_size == 3 * kFileMiB);
  CHECK(status.st_blocks * 512 >= 3 * kFileMiB);
}

TEST_CASE("a slot that was never written reads as zeros", "[memory][nvme]") {
  const TempDir folder;
  NvmeFile file({.folder = folder.path()}, kSlots);
  const at::Tensor memory = pattern(4097, 1);
  file.read(2, memory).wait();
  CHECK(at::equal(memory, at::zeros_like(memory)));
}

TEST_CASE("a read after a write of the same slot sees it, waited for or not", "[memory][nvme]") {
  const TempDir folder;
  NvmeFile file({.folder = folder.path()}, kSlots);
  const at::Tensor memory = host_empty(3 * kFileMiB + 5, at::kByte);
  for (int round = 0; round < 5; ++round) {
    NvmePending write = file.write(3, pattern(3 * kFileMiB + 5, round));
    file.read(3, memory).wait();
    REQUIRE(at::equal(memory, pattern(3 * kFileMiB + 5, round)));
  }
}

TEST_CASE("typed views of host memory are slots, too", "[memory][nvme]") {
  const TempDir folder;
  const std::array<std::int64_t, 1> slots = {1000 * 4};
  NvmeFile file({.folder = folder.path()}, slots);
  const at::Tensor states = host_empty(1000, at::kFloat);
  states.copy_(at::arange(1000, at::kFloat));
  file.write(0, states).wait();
  const at::Tensor back = host_empty(4096, at::kFloat).narrow(0, 1024, 1000);
  file.read(0, back).wait();
  CHECK(at::equal(back, states));
}

TEST_CASE("short transfers go on where they stopped", "[memory][nvme]") {
  const TempDir folder;
  const auto most = GENERATE(std::int64_t{1} << 19U, 4096, 5000);  // 5000: not a whole page
  int requests = 0;
  NvmeFile file = faulty(folder, [&](const DiskRequest& request, int) {
    ++requests;
    return DiskAct{std::min<std::int64_t>(request.bytes, most / 4096 * 4096)};
  });
  write_all(file, 7);
  require_all(file, 7);
  CHECK(requests == 2 * 3 * kFileMiB / (most / 4096 * 4096));
}

TEST_CASE("interrupted and deferred requests are repeated", "[memory][nvme]") {
  const TempDir folder;
  NvmeFile file = faulty(folder, [](const DiskRequest& request, int count) {
    constexpr std::array kPassing = {EINTR, EAGAIN, EBUSY};
    return DiskAct{count % 4 == 3 ? request.bytes : -kPassing[static_cast<std::size_t>(count % 4)]};
  });
  write_all(file, 3);
  require_all(file, 3);
}

TEST_CASE("a failed write ends with its reason, and so does every call after it",
          "[memory][nvme]") {
  const TempDir folder;
  const auto reason = GENERATE(EIO, ENOSPC);
  NvmeFile file = faulty(folder, [=](const DiskRequest& request, int) {
    return DiskAct{request.write && request.offset == kFileMiB ? -std::int64_t{reason}
                                                               : request.bytes};
  });
  NvmePending write = file.write(0, pattern(3 * kFileMiB, 1));
  const Error error = error_of([&] { write.wait(); });
  CHECK(error.id() == "nvme-io");
  CHECK(error.exit_code() == 9);
  CHECK_THAT(error.what(), Contains("writing 1048576 bytes at 1048576 of slot 0 of"));
  CHECK_THAT(error.what(), Contains(std::strerror(reason)));
  const at::Tensor memory = host_empty(3 * kFileMiB, at::kByte);
  CHECK(error_of([&] { static_cast<void>(file.read(0, memory)); }).id() == "nvme-io");
  CHECK(error_of([&] { static_cast<void>(file.write(0, memory)); }).id() == "nvme-io");
}

TEST_CASE("an error of a transfer that nobody waited for is not lost", "[memory][nvme]") {
  const TempDir folder;
  NvmeFile file = faulty(folder, [](const DiskRequest&, int) { return DiskAct{-EIO}; });
  {
    const NvmePending dropped = file.write(0, pattern(3 * kFileMiB, 1));
  }
  CHECK(error_of([&] { static_cast<void>(file.write(0, pattern(3 * kFileMiB, 1))); }).id() ==
        "nvme-io");
}

TEST_CASE("a disk that moves nothing any more is given up", "[memory][nvme]") {
  const TempDir folder;
  NvmeFile file = faulty(folder, [](const DiskRequest& request, int count) {
    return DiskAct{count == 0 ? request.bytes : 0};
  });
  NvmePending write = file.write(0, pattern(3 * kFileMiB, 1));
  CHECK_THAT(error_of([&] { write.wait(); }).what(), Contains("moves no more bytes"));
}

TEST_CASE("one changed bit is found when the slot is read", "[memory][nvme]") {
  const TempDir folder;
  NvmeFile file = faulty(folder, [](const DiskRequest& request, int) {
    return DiskAct{request.bytes, !request.write && request.offset == 2 * kFileMiB};
  });
  write_all(file, 1);
  const at::Tensor memory = host_empty(3 * kFileMiB, at::kByte);
  NvmePending read = file.read(0, memory);
  const Error error = error_of([&] { read.wait(); });
  CHECK(error.id() == "nvme-checksum");
  CHECK(error.exit_code() == 9);
  CHECK_THAT(error.what(), Contains("slot 0 of"));
}

TEST_CASE("damage on the disk itself is found", "[memory][nvme]") {
  const TempDir folder;
  int descriptor = -1;
  NvmeFile file({.folder = folder.path(),
                 .queue =
                     [&](int opened, int depth) {
                       descriptor = opened;
                       return make_thread_queue(opened, depth);
                     }},
                kSlots);
  write_all(file, 1);
  const at::Tensor page = host_empty(4096, at::kByte);
  REQUIRE(::pwrite(descriptor, page.data_ptr(), 4096, 4096) == 4096);  // slot 1
  const at::Tensor memory = host_empty(4096, at::kByte);
  NvmePending read = file.read(1, memory);
  CHECK(error_of([&] { read.wait(); }).id() == "nvme-checksum");
}

TEST_CASE("a full disk shows at the start, with what is missing", "[memory][nvme]") {
  const TempDir folder;
  struct statfs volume{};
  REQUIRE(::statfs(folder.path().c_str(), &volume) == 0);
  const std::array<std::int64_t, 1> slots = {
      static_cast<std::int64_t>(volume.f_blocks) * volume.f_bsize + kFileMiB};
  const Error error = error_of([&] { NvmeFile({.folder = folder.path()}, slots); });
  CHECK(error.id() == "nvme-space");
  CHECK(error.exit_code() == 3);
  CHECK_THAT(error.what(), Contains("are missing"));
  CHECK(fs::is_empty(folder.path()));
}

TEST_CASE("a file system that refuses the allocation says so at the start", "[memory][nvme]") {
  const TempDir folder;
  std::signal(SIGXFSZ, SIG_IGN);
  const LowerLimit limit(RLIMIT_FSIZE, 1'000'000);
  const std::array<std::int64_t, 1> slots = {3 * kFileMiB};
  const Error error = error_of([&] { NvmeFile({.folder = folder.path()}, slots); });
  CHECK(error.id() == "nvme-space");
  CHECK_THAT(error.what(), Contains("3145728 bytes") && Contains(std::strerror(EFBIG)));
}

TEST_CASE("nvme.limit counts whole pages", "[memory][nvme]") {
  const TempDir folder;
  const std::array<std::int64_t, 2> slots = {4097, 1};
  CHECK_NOTHROW(NvmeFile({.folder = folder.path(), .limit = 3 * 4096}, slots));
  const Error error = error_of(
      [&] { NvmeFile({.folder = folder.path(), .rank = 2, .limit = 3 * 4096 - 1}, slots); });
  CHECK(error.id() == "nvme-limit");
  CHECK_THAT(error.what(), Contains("12287 bytes") && Contains("rank 2") && Contains("1 more"));
}

TEST_CASE("a folder that cannot be written is named", "[memory][nvme]") {
  for (const char* path : {"/proc/colossal", "/proc/self", "/dev/null/states"}) {
    const Error error = error_of([&] { NvmeFile({.folder = path}, kSlots); });
    CHECK(error.id() == "nvme-path");
    CHECK_THAT(error.what(), Contains(path));
  }
}

TEST_CASE("io_uring by name is an error where there is none", "[memory][nvme]") {
  const TempDir folder;
  const int next = ::dup(STDIN_FILENO);
  REQUIRE(next >= 0);
  ::close(next);
  // Room for the file itself, none for the ring.
  const LowerLimit limit(RLIMIT_NOFILE, static_cast<rlim_t>(next) + 1);
  CHECK(error_of([&] {
          NvmeFile({.folder = folder.path(), .backend = NvmeBackend::io_uring}, kSlots);
        }).id() == "nvme-backend");
  CHECK(NvmeFile({.folder = folder.path()}, kSlots).backend() == "pread");
}

TEST_CASE("a folder in memory is used with a warning", "[memory][nvme]") {
  struct statfs volume{};
  if (::statfs("/dev/shm", &volume) != 0 || volume.f_type != TMPFS_MAGIC) {
    WARN("no tmpfs at /dev/shm: not tested");
    return;
  }
  const TempDir logs;
  log::configure({.level = log::Level::info, .rank = 0, .folder = logs.path()});
  const fs::path folder = "/dev/shm/colossal-nvme-" + std::to_string(::getpid());
  {
    NvmeFile file({.folder = folder}, kSlots);
    write_all(file, 1);
    require_all(file, 1);
  }
  log::configure({});
  fs::remove(folder);
  CHECK_THAT(read_text(logs.path() / "train.log"), Contains("[nvme-tmpfs]"));
}

TEST_CASE("transfers through the page cache work, with a warning", "[memory][nvme]") {
  const TempDir folder;
  const TempDir logs;
  log::configure({.level = log::Level::info, .rank = 0, .folder = logs.path()});
  NvmeFile file({.folder = folder.path(), .direct = false}, kSlots);
  log::configure({});
  CHECK_FALSE(file.is_direct());
  write_all(file, 1);
  require_all(file, 1);
  CHECK_THAT(read_text(logs.path() / "train.log"), Contains("[nvme-buffered]"));
}

TEST_CASE("memory that the disk cannot use is refused", "[memory][nvme]") {
  const TempDir folder;
  NvmeFile file({.folder = folder.path()}, kSlots);
  const at::Tensor host = host_empty(3 * 4096, at::kByte);
  const auto id = [&](const at::Tensor& memory) {
    return std::string(error_of([&] { static_cast<void>(file.read(2, memory)); }).id());
  };
  CHECK(id(host.narrow(0, 8, 4097)) == "nvme-buffer");     // not at a page
  CHECK(id(host.narrow(0, 0, 4096)) == "nvme-buffer");     // smaller than the slot
  CHECK(id(host.narrow(0, 8192, 4096)) == "nvme-buffer");  // ends before the slot's last page
  CHECK(id(host.view({2, 6144}).t()) == "nvme-buffer");    // not contiguous
  CHECK(error_of([&] { static_cast<void>(file.read(5, host)); }).id() == "nvme-slot");
  CHECK(error_of([&] { static_cast<void>(file.write(-1, host)); }).id() == "nvme-slot");
}

TEST_CASE("the disk is measured before it is used, and described", "[memory][nvme]") {
  const TempDir folder;
  NvmeFile file({.folder = folder.path()}, kSlots);
  const at::Tensor memory = host_empty(16384, at::kByte);
  const NvmeSpeed speed = file.measure(memory);
  CHECK(speed.read > 0);
  CHECK(speed.write > 0);
  CHECK_THAT(describe(file, folder.path(), {.read = 2e9, .write = 1e9}),
             Contains("MB of optimizer states") &&
                 Contains("read 2.00 GB/s, written 1.00 GB/s, about 0.00475 s a step") &&
                 Contains(file.backend().data()));
  write_all(file, 1);
  CHECK(error_of([&] { static_cast<void>(file.measure(memory)); }).id() == "nvme-slot");
  require_all(file, 1);
}

}  // namespace
}  // namespace colossal
