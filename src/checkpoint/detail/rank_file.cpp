// What is in rank-XXXX.h5? One plain dataset per box that the rank owns, written once, read with
// its checksum.
#include "checkpoint/detail/rank_file.hpp"

#include "checkpoint/detail/boxes.hpp"
#include "checkpoint/detail/durable.hpp"
#include "core/error.hpp"
#include "core/fault.hpp"
#include "core/hash.hpp"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

namespace colossal::detail {
namespace {

namespace fs = std::filesystem;

/// Enough for the ranks of one host, below every usual limit of open files.
constexpr std::size_t kMaxOpenFiles = 64;

std::uint32_t crc_of(const at::Tensor& contiguous) {
  return crc32c({static_cast<const std::byte*>(contiguous.const_data_ptr()), contiguous.nbytes()});
}

/// One open rank file and the property lists that all its datasets share.
class RankWriter {
 public:
  /// `limit`: bytes of boxes after which writing fails, for tests.
  RankWriter(const fs::path& path, std::int64_t limit)
      : file_(path, H5Access::create),
        groups_(h5_make_groups()),
        layout_(H5Pcreate(H5P_DATASET_CREATE)),
        bytes_left_(limit) {
    H5Pset_fill_time(layout_.id(), H5D_FILL_TIME_NEVER);
  }

  void write(const std::string& dataset, const Shape& extent, const at::Tensor& values) {
    bytes_left_ -= static_cast<std::int64_t>(values.nbytes());
    if (bytes_left_ < 0) {
      fail_write(file_.path(), ENOSPC, "");
    }
    const H5Type type = h5_type(values.scalar_type());
    const H5Space space = h5_space(extent);
    H5Dataset target(H5Dcreate2(file_.id(),
                                dataset.c_str(),
                                type.id(),
                                space.id(),
                                groups_.id(),
                                layout_.id(),
                                H5P_DEFAULT));
    file_.require(target.valid(), "create a dataset");
    const herr_t written =
        H5Dwrite(target.id(), type.id(), H5S_ALL, H5S_ALL, H5P_DEFAULT, values.const_data_ptr());
    file_.require(written >= 0, "write a dataset");
    // Small datasets leave the library's buffer only here.
    file_.require(target.close(), "flush a dataset");
  }

  void close() { file_.close(); }

 private:
  H5File file_;
  H5Properties groups_;
  H5Properties layout_;
  std::int64_t bytes_left_;
};

void write_boxes(RankWriter& writer,
                 const TensorRecord& record,
                 StoredTensor& stored,
                 bool checksum) {
  if (record.bring) {
    record.bring();
  }
  for (const Region& region : record.regions) {
    if (numel(region.extent) == 0) {
      continue;
    }
    const at::Tensor values = view_of(record, region).cpu().contiguous();
    StoredBox& box = stored.boxes.emplace_back();
    box.dataset = fmt::format("/{}#{}", record.name, stored.boxes.size() - 1);
    box.box = {region.global_offset, region.extent};
    if (checksum) {
      box.crc = crc_of(values);
    }
    writer.write(box.dataset, region.extent, values);
  }
}

bool owns_elements(const TensorRecord& record) {
  return record.owner && std::ranges::any_of(record.regions, [](const Region& region) {
           return numel(region.extent) > 0;
         });
}

}  // namespace

std::string rank_file_name(int rank) {
  return fmt::format("rank-{:04}.h5", rank);
}

RankTable write_rank_file(const fs::path& folder,
                          int rank,
                          std::span<const TensorRecord> records,
                          bool checksum) {
  RankTable table;
  std::map<std::string_view, std::size_t> index;
  for (const TensorRecord& record : records) {
    if (index.try_emplace(record.name, index.size()).second) {
      table.tensors.push_back({record.name, record.local.scalar_type(), record.global, {}});
    }
  }
  if (std::ranges::none_of(records, owns_elements)) {
    return table;
  }
  table.file.name = rank_file_name(rank);
  const fs::path path = folder / table.file.name;
  RankWriter writer(path, fault::write_limit(rank));
  for (const TensorRecord& record : records) {
    if (record.owner) {
      write_boxes(writer, record, table.tensors[index.at(record.name)], checksum);
    }
  }
  fault::pause_write(rank);
  writer.close();
  sync_to_disk(path);  // its name in the folder: with those of all ranks, by rank 0
  table.file.bytes = static_cast<std::int64_t>(fs::file_size(path));
  return table;
}

const H5File& BoxReader::file(std::int64_t index) {
  if (const auto it = open_.find(index); it != open_.end()) {
    return it->second;
  }
  if (open_.size() == kMaxOpenFiles) {
    open_.clear();
  }
  const fs::path path = checkpoint_ / manifest_.files[static_cast<std::size_t>(index)].name;
  return open_.emplace(index, H5File(path, H5Access::read)).first->second;
}

void BoxReader::read(const StoredTensor& tensor, const StoredBox& box, const at::Tensor& out) {
  const H5File& source = file(box.file);
  const H5Dataset dataset(H5Dopen2(source.id(), box.dataset.c_str(), H5P_DEFAULT));
  source.require(dataset.valid(), "open dataset " + box.dataset);
  const H5Type type = h5_type(tensor.dtype);
  const H5Type found_type(H5Dget_type(dataset.id()));
  const H5Space found_space(H5Dget_space(dataset.id()));
  // The library would convert another type and read past the end of `out` for another size.
  const bool same =
      H5Tequal(type.id(), found_type.id()) > 0 &&
      H5Sget_simple_extent_npoints(found_space.id()) == static_cast<hssize_t>(out.numel());
  check(same,
        ErrorKind::checkpoint,
        "checkpoint-incomplete",
        "{} is damaged: dataset {} is not {} {} as the manifest says",
        source.path().string(),
        box.dataset,
        dtype_name(tensor.dtype),
        to_text(box.box.extent));
  const herr_t done =
      H5Dread(dataset.id(), type.id(), H5S_ALL, H5S_ALL, H5P_DEFAULT, out.mutable_data_ptr());
  source.require(done >= 0, "read dataset " + box.dataset);
  if (!box.crc) {
    return;
  }
  const std::uint32_t crc = crc_of(out);
  check(crc == *box.crc,
        ErrorKind::checkpoint,
        "checkpoint-checksum",
        "tensor {} is damaged in {} (dataset {}): its checksum is {:08x}, {:08x} was written; use "
        "another checkpoint",
        tensor.name,
        source.path().string(),
        box.dataset,
        crc,
        *box.crc);
}

at::Tensor BoxReader::read(const StoredTensor& tensor, const StoredBox& box) {
  at::Tensor out = at::empty(box.box.extent, at::TensorOptions().dtype(tensor.dtype));
  read(tensor, box, out);
  return out;
}

}  // namespace colossal::detail
