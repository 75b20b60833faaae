// Where do the ids of an HDF5 file lie? The library finds the places; reading goes through the
// mapped bytes, so that threads need no lock and errors name a byte.
#pragma once

#include "data/detail/token_index.hpp"

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace colossal::detail {

/// Whether a file begins as HDF5 does.
[[nodiscard]] bool is_hdf5(std::span<const std::uint8_t> bytes) noexcept;

/// The dataset `tokens` of a file, and its documents.
struct Hdf5Tokens {
  TokenType type = TokenType::u16;
  std::int64_t count = 0;
  std::int64_t run = 0;                    ///< ids that lie together; the last run may be shorter
  std::vector<std::int64_t> offsets = {};  ///< bytes before each run
  std::vector<std::int64_t> begins =
      {};  ///< of documents, and the end of the last; empty: not told
};

/// Reads what the file says of itself (optimizers-and-recipes 7.3): `tokens`, whole numbers in one
/// dimension, contiguous or in chunks without filters, and where it is there `doc_offsets`.
/// `file_bytes`: the size of the file. Errors: data "token-format" for what is no such file or
/// cannot be mapped (compressed, big-endian, more than 10,000 chunks); "token-file" for one that is
/// truncated or contradicts itself.
[[nodiscard]] Hdf5Tokens read_hdf5_tokens(const std::filesystem::path& path,
                                          std::int64_t file_bytes);

}  // namespace colossal::detail
