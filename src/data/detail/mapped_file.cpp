// What can go wrong between a path and its bytes? Each cause has its own error.
#include "data/detail/mapped_file.hpp"

#include "config/suggest.hpp"
#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/system.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace colossal::detail {
namespace {

std::string reason(int code) {
  return std::generic_category().message(code);
}

std::string missing_advice(const std::filesystem::path& path) {
  const auto near = nearest_file(path);
  return near ? fmt::format("did you mean '{}'?", *near)
              : "check the name (in a configuration it is relative to that file)";
}

int open_for_reading(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor >= 0) {
    return descriptor;
  }
  const int code = errno;
  check(code != ENOENT && code != ENOTDIR,
        ErrorKind::data,
        "file-not-found",
        "data file '{}' does not exist; {}",
        path.string(),
        missing_advice(path));
  fail(ErrorKind::data,
       "data-unreadable",
       "data file '{}' cannot be opened: {}",
       path.string(),
       reason(code));
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  const Descriptor file(open_for_reading(path));
  struct stat info = {};
  check(::fstat(file.get(), &info) == 0,
        ErrorKind::data,
        "data-unreadable",
        "data file '{}' cannot be examined: {}",
        path.string(),
        reason(errno));
  check(S_ISREG(info.st_mode),
        ErrorKind::data,
        "data-unreadable",
        "'{}' is {}, not a file; name the files in it",
        path.string(),
        S_ISDIR(info.st_mode) ? "a directory" : "a device or pipe");
  check(info.st_size > 0,
        ErrorKind::data,
        "data-empty",
        "data file '{}' is empty (0 bytes)",
        path.string());
  const auto num_bytes = static_cast<std::size_t>(info.st_size);
  void* const address = ::mmap(nullptr, num_bytes, PROT_READ, MAP_SHARED, file.get(), 0);
  check(address != MAP_FAILED,
        ErrorKind::data,
        "data-unreadable",
        "data file '{}' ({} bytes) cannot be mapped: {}",
        path.string(),
        num_bytes,
        reason(errno));
  bytes_ = {static_cast<const std::uint8_t*>(address), num_bytes};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) {
    ::munmap(const_cast<std::uint8_t*>(bytes_.data()), bytes_.size());
  }
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

std::string identity_of(std::span<const std::uint8_t> bytes) {
  return fmt::format("{}:{:08x}", bytes.size(), crc32c(std::as_bytes(bytes)));
}

}  // namespace colossal::detail
