// What does the header of a token file say, and is it true?
#pragma once

#include "data/detail/mapped_file.hpp"

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>

namespace colossal::detail {

/// Type of the ids in a file; the values are Megatron's codes, but for u32, which it has not.
enum class TokenType : std::uint8_t {
  u8 = 1,
  i8 = 2,
  i16 = 3,
  i32 = 4,
  i64 = 5,
  u16 = 8,
  u32 = 255
};

/// Bytes of one id.
[[nodiscard]] std::int64_t bytes_of(TokenType type) noexcept;
/// "uint16", ...
[[nodiscard]] std::string_view name_of(TokenType type) noexcept;

/// The little-endian value at `offset`, which may be unaligned.
template <class T>
[[nodiscard]] T load_at(std::span<const std::uint8_t> bytes, std::int64_t offset) noexcept {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

/// What a Megatron index begins with.
inline constexpr std::string_view kMegatronMagic("MMIDIDX\0\0", 9);

/// Whether a file begins as a Megatron index or as an llm.c file.
[[nodiscard]] bool is_megatron_index(std::span<const std::uint8_t> bytes) noexcept;
[[nodiscard]] bool is_llmc(std::span<const std::uint8_t> bytes) noexcept;

/// A Megatron .idx, mapped: sequences that lie one after another in the .bin, and documents, which
/// are whole sequences.
class MegatronIndex {
 public:
  /// Checks magic, version, type and the length of the file. Errors: data "token-format",
  /// "token-file", and those of MappedFile.
  explicit MegatronIndex(const std::filesystem::path& path);

  [[nodiscard]] TokenType type() const noexcept { return type_; }
  [[nodiscard]] std::int64_t num_sequences() const noexcept { return num_sequences_; }
  [[nodiscard]] std::int64_t num_documents() const noexcept { return num_documents_; }
  [[nodiscard]] std::span<const std::uint8_t> bytes() const noexcept { return file_.bytes(); }
  /// Bytes of all sequences, by the last one.
  [[nodiscard]] std::int64_t data_bytes() const noexcept;
  /// Token position at which a document begins; not checked.
  [[nodiscard]] std::int64_t document_begin(std::int64_t document) const noexcept;
  /// Checks every entry against the .bin of `bin_bytes` bytes. Errors: data "token-file".
  void check_entries(std::int64_t bin_bytes) const;

 private:
  [[nodiscard]] std::int64_t length(std::int64_t sequence) const noexcept;
  [[nodiscard]] std::int64_t pointer(std::int64_t sequence) const noexcept;
  [[nodiscard]] std::int64_t boundary(std::int64_t entry) const noexcept;
  [[nodiscard]] std::int64_t pointers_at() const noexcept;
  [[nodiscard]] std::int64_t boundaries_at() const noexcept;
  void read_counts();
  void check_sequences(std::int64_t bin_bytes) const;
  void check_boundaries() const;

  std::filesystem::path path_;
  MappedFile file_;
  TokenType type_ = TokenType::u16;
  std::int64_t num_sequences_ = 0;
  std::int64_t num_documents_ = 0;
};

/// Where the uint16 ids of an llm.c file begin.
inline constexpr std::int64_t kLlmcHeaderBytes = 1024;

/// Checks an llm.c file and returns its number of tokens. Errors: data "token-format",
/// "token-file".
[[nodiscard]] std::int64_t check_llmc(const std::filesystem::path& path,
                                      std::span<const std::uint8_t> bytes);

}  // namespace colossal::detail
