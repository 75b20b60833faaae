// How are ids of the HDF5 C library held so that none leaks? Header only: folders that call the
// library link it.
#pragma once

#include <hdf5.h>

#include <string>
#include <utility>

namespace colossal {

/// To be called before the first other call of the library in a process, and harmless later.
inline void prepare_hdf5() {
  // The library's exit handler crashes on a file whose close failed (1.10.8, full disk), and its
  // error printing would bypass the log.
  static const bool done = [] {
    H5dont_atexit();
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    return true;
  }();
  static_cast<void>(done);
}

/// The most specific entry of the library's error stack, which any later call of it clears.
[[nodiscard]] inline std::string hdf5_failure() {
  std::string text = "unknown HDF5 failure";
  const auto take_innermost =
      [](unsigned position, const H5E_error2_t* entry, void* data) -> herr_t {
    if (position == 0 && entry->desc != nullptr) {
      *static_cast<std::string*>(data) = entry->desc;
    }
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_innermost, &text);
  return text;
}

/// Owner of one HDF5 id. The destructor drops the result of the close; writers call close() to see
/// it.
template <herr_t (*Close)(hid_t)>
class Handle {
 public:
  Handle() noexcept = default;
  explicit Handle(hid_t id) noexcept : id_(id) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { close(); }

  /// The id; negative: none.
  [[nodiscard]] hid_t id() const noexcept { return id_; }
  /// Whether there is one.
  [[nodiscard]] bool valid() const noexcept { return id_ >= 0; }
  /// Closes now; false if the library could not (a flush failed). The id is given up either way.
  bool close() noexcept { return id_ < 0 || Close(std::exchange(id_, H5I_INVALID_HID)) >= 0; }

 private:
  hid_t id_ = H5I_INVALID_HID;
};

/// Owners of the usual kinds.
using H5Dataset = Handle<&H5Dclose>;
/// See H5Dataset.
using H5Space = Handle<&H5Sclose>;
/// See H5Dataset.
using H5Type = Handle<&H5Tclose>;
/// See H5Dataset.
using H5Properties = Handle<&H5Pclose>;

}  // namespace colossal
