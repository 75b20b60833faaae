// How do the boxes of one mesh become those of another?
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/detail/agree.hpp"
#include "checkpoint/detail/boxes.hpp"
#include "checkpoint/detail/hdf5.hpp"
#include "checkpoint/detail/manifest.hpp"
#include "checkpoint/detail/rank_file.hpp"
#include "core/error.hpp"
#include "core/text.hpp"

#include <c10/core/ScalarType.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

namespace colossal {
namespace {

namespace fs = std::filesystem;
using detail::Manifest;
using detail::StoredTensor;

constexpr std::string_view kIncomplete = "checkpoint-incomplete";

/// At most ten items, one a line.
std::string first_ten(const std::vector<std::string>& items) {
  constexpr std::size_t kShown = 10;
  std::string text;
  for (std::size_t i = 0; i < std::min(items.size(), kShown); ++i) {
    text += "\n  " + items[i];
  }
  return items.size() > kShown ? text + fmt::format("\n  and {} more", items.size() - kShown)
                               : text;
}

const StoredTensor* find(const Manifest& manifest, std::string_view name) {
  const auto it = std::ranges::lower_bound(manifest.tensors, name, {}, &StoredTensor::name);
  return it == manifest.tensors.end() || it->name != name ? nullptr : &*it;
}

bool same_family(at::ScalarType a, at::ScalarType b) {
  return a == b || (c10::isFloatingType(a) && c10::isFloatingType(b));
}

/// Every record has a stored tensor of its shape and kind of number.
void check_wanted(const fs::path& checkpoint,
                  const Manifest& manifest,
                  std::span<const TensorRecord> records) {
  std::vector<std::string> missing;
  std::vector<std::string> shapes;
  std::vector<std::string> types;
  for (const TensorRecord& record : records) {
    const StoredTensor* stored = find(manifest, record.name);
    if (stored == nullptr) {
      missing.push_back(record.name);
    } else if (stored->global != record.global) {
      shapes.push_back(fmt::format("{}: {} in the checkpoint, {} in this run",
                                   record.name,
                                   detail::to_text(stored->global),
                                   detail::to_text(record.global)));
    } else if (!same_family(stored->dtype, record.local.scalar_type())) {
      types.push_back(fmt::format("{}: {} in the checkpoint, {} in this run",
                                  record.name,
                                  detail::dtype_name(stored->dtype),
                                  detail::dtype_name(record.local.scalar_type())));
    }
  }
  check(missing.empty(),
        ErrorKind::checkpoint,
        "checkpoint-missing-tensor",
        "{} lacks {} that this run needs (another model or optimizer?):{}",
        checkpoint.string(),
        counted(std::ssize(missing), "tensor"),
        first_ten(missing));
  check(shapes.empty(),
        ErrorKind::checkpoint,
        "checkpoint-shape",
        "{} holds {} of another shape (another model size?):{}",
        checkpoint.string(),
        counted(std::ssize(shapes), "tensor"),
        first_ten(shapes));
  check(types.empty(),
        ErrorKind::checkpoint,
        "checkpoint-dtype",
        "{} holds {} of another type:{}",
        checkpoint.string(),
        counted(std::ssize(types), "tensor"),
        first_ten(types));
}

std::string_view group_of(std::string_view name) {
  return name.substr(0, name.find('/'));
}

/// `wanted`: the names of each rank, one a line.
void check_unexpected(const fs::path& checkpoint,
                      const Manifest& manifest,
                      const std::vector<std::string>& wanted) {
  std::set<std::string_view> names;
  std::set<std::string_view> groups;
  for (std::string_view lines : wanted) {
    while (!lines.empty()) {
      const std::string_view line = lines.substr(0, lines.find('\n'));
      names.insert(line);
      groups.insert(group_of(line));
      lines.remove_prefix(line.size() + 1);
    }
  }
  std::vector<std::string> unexpected;
  for (const StoredTensor& tensor : manifest.tensors) {
    if (groups.contains(group_of(tensor.name)) && !names.contains(tensor.name)) {
      unexpected.push_back(tensor.name);
    }
  }
  check(unexpected.empty(),
        ErrorKind::checkpoint,
        "checkpoint-unexpected-tensor",
        "{} has {} that this run does not know (another model or optimizer?):{}",
        checkpoint.string(),
        counted(std::ssize(unexpected), "tensor"),
        first_ten(unexpected));
}

/// A stored box that is read when somebody needs it, once and whole: its checksum needs all of it.
class LazyBox {
 public:
  LazyBox(detail::BoxReader& reader, const StoredTensor& tensor, const detail::StoredBox& box)
      : reader_(reader), tensor_(tensor), box_(box) {}

  /// Copies what the box shares with a region into the record's memory.
  void copy_to(const TensorRecord& record, const Region& region) {
    const detail::Box wanted{region.global_offset, region.extent};
    const std::optional<detail::Box> common = detail::intersect(box_.box, wanted);
    if (!common) {
      return;
    }
    const at::Tensor target = detail::view_of(detail::view_of(record, region), wanted, *common);
    const bool as_stored =
        target.is_contiguous() && target.is_cpu() && target.scalar_type() == tensor_.dtype;
    if (as_stored && *common == box_.box) {
      reader_.read(tensor_, box_, target);
      return;
    }
    if (!values_.defined()) {
      values_ = reader_.read(tensor_, box_);
    }
    target.copy_(detail::view_of(values_, box_.box, *common));
  }

 private:
  detail::BoxReader& reader_;
  const StoredTensor& tensor_;
  const detail::StoredBox& box_;
  at::Tensor values_;
};

void read_tensor(detail::BoxReader& reader,
                 const StoredTensor& stored,
                 const TensorRecord& record) {
  if (record.bring) {
    record.bring();  // what it shares memory with must not be lost
  }
  for (const detail::StoredBox& box : stored.boxes) {
    LazyBox lazy(reader, stored, box);
    for (const Region& region : record.regions) {
      lazy.copy_to(record, region);
    }
  }
  if (record.keep) {
    record.keep();
  }
}

}  // namespace

void load_tensors(const fs::path& checkpoint, std::span<TensorRecord> into, const Comm& world) {
  detail::check_records(into);
  Manifest manifest;
  const std::vector<std::string> wanted = detail::agree(world, kIncomplete, [&] {
    manifest = detail::read_manifest(checkpoint);
    detail::check_files(checkpoint, manifest);
    check_wanted(checkpoint, manifest, into);
    std::string names;
    for (const TensorRecord& record : into) {
      names += record.name + "\n";
    }
    return names;
  });
  static_cast<void>(detail::agree(world, kIncomplete, [&] {
    check_unexpected(checkpoint, manifest, wanted);
    detail::BoxReader reader(checkpoint, manifest);
    for (const TensorRecord& record : into) {
      read_tensor(reader, *find(manifest, record.name), record);
    }
    return std::string();
  }));
}

std::vector<TensorInfo> list_tensors(const fs::path& checkpoint) {
  std::vector<TensorInfo> tensors;
  for (StoredTensor& stored : detail::read_manifest(checkpoint).tensors) {
    tensors.push_back({std::move(stored.name), std::move(stored.global), stored.dtype});
  }
  return tensors;
}

RunState read_state(const fs::path& checkpoint) {
  return detail::read_manifest(checkpoint).state;
}

}  // namespace colossal
