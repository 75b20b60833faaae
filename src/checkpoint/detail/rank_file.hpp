// What is in rank-XXXX.h5? One plain dataset per box that the rank owns, written once, read with
// its checksum.
#pragma once

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/detail/hdf5.hpp"
#include "checkpoint/detail/manifest.hpp"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace colossal::detail {

/// What one rank adds to the manifest.
struct RankTable {
  StoredFile file;  ///< no name: the rank owns no box and made no file
  std::vector<StoredTensor>
      tensors;  ///< of every record; boxes of owned ones, StoredBox::file is 0
};

/// "rank-0003.h5".
[[nodiscard]] std::string rank_file_name(int rank);

/// Writes the owned boxes, one at a time, with their checksums if wanted, and flushes the file to
/// the device; the folder is the caller's. Errors: checkpoint "checkpoint-write".
[[nodiscard]] RankTable write_rank_file(const std::filesystem::path& folder,
                                        int rank,
                                        std::span<const TensorRecord> records,
                                        bool checksum = true);

/// Reads boxes of one checkpoint; keeps a few files open.
class BoxReader {
 public:
  /// Both must outlive the reader.
  BoxReader(const std::filesystem::path& checkpoint, const Manifest& manifest)
      : checkpoint_(checkpoint), manifest_(manifest) {}

  /// Fills `out` (contiguous, on the CPU, of the stored type, as many elements) with a box. Errors:
  /// checkpoint "checkpoint-incomplete" if the file cannot give it, "checkpoint-checksum" naming
  /// tensor and file.
  void read(const StoredTensor& tensor, const StoredBox& box, const at::Tensor& out);

  /// The box in new memory. Errors: as read().
  [[nodiscard]] at::Tensor read(const StoredTensor& tensor, const StoredBox& box);

 private:
  const H5File& file(std::int64_t index);

  const std::filesystem::path& checkpoint_;
  const Manifest& manifest_;
  std::map<std::int64_t, H5File> open_;
};

}  // namespace colossal::detail
