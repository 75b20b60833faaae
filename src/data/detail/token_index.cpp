// How are headers of token files read? Entry by entry through memcpy: nothing in them is aligned.
#include "data/detail/token_index.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <array>
#include <bit>

namespace colossal::detail {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr std::int64_t kVersionAt = 9;
constexpr std::int64_t kTypeAt = 17;
constexpr std::int64_t kCountsAt = 18;
constexpr std::int64_t kLengthsAt = 34;
constexpr std::int64_t kLengthBytes = 4;
constexpr std::int64_t kEntryBytes = 8;
constexpr std::uint64_t kMegatronVersion = 1;

constexpr std::int32_t kLlmcMagic = 20240520;
constexpr std::int32_t kLlmcVersion = 1;

struct TypeLine {
  TokenType type;
  std::int64_t bytes;
  std::string_view name;
};
constexpr std::array<TypeLine, 7> kTypes = {{{TokenType::u8, 1, "uint8"},
                                             {TokenType::i8, 1, "int8"},
                                             {TokenType::i16, 2, "int16"},
                                             {TokenType::i32, 4, "int32"},
                                             {TokenType::i64, 8, "int64"},
                                             {TokenType::u16, 2, "uint16"},
                                             {TokenType::u32, 4, "uint32"}}};

const TypeLine* find_type(int code) {
  const auto* const line = std::ranges::find(kTypes, static_cast<TokenType>(code), &TypeLine::type);
  return line == kTypes.end() ? nullptr : line;
}

/// A contradiction in a file.
template <class... Args>
void check_file(bool ok,
                const std::filesystem::path& path,
                std::int64_t offset,
                fmt::format_string<Args...> what,
                Args&&... args) {
  if (!ok) {
    fail(ErrorKind::data,
         "token-file",
         "'{}', byte {}: {}; the file is damaged or incomplete, write it anew",
         path.string(),
         offset,
         fmt::format(what, std::forward<Args>(args)...));
  }
}

}  // namespace

std::int64_t bytes_of(TokenType type) noexcept {
  return find_type(static_cast<int>(type))->bytes;
}

std::string_view name_of(TokenType type) noexcept {
  return find_type(static_cast<int>(type))->name;
}

bool is_megatron_index(std::span<const std::uint8_t> bytes) noexcept {
  return bytes.size() >= kMegatronMagic.size() &&
         std::memcmp(bytes.data(), kMegatronMagic.data(), kMegatronMagic.size()) == 0;
}

bool is_llmc(std::span<const std::uint8_t> bytes) noexcept {
  return bytes.size() >= sizeof(kLlmcMagic) && load_at<std::int32_t>(bytes, 0) == kLlmcMagic;
}

MegatronIndex::MegatronIndex(const std::filesystem::path& path) : path_(path), file_(path) {
  const auto bytes = file_.bytes();
  check(is_megatron_index(bytes),
        ErrorKind::data,
        "token-format",
        "'{}' does not begin with MMIDIDX as a Megatron index does; is it another file?",
        path.string());
  check_file(std::ssize(bytes) >= kLengthsAt,
             path_,
             std::ssize(bytes),
             "the file ends within its header of {} bytes",
             kLengthsAt);
  const auto version = load_at<std::uint64_t>(bytes, kVersionAt);
  check(version == kMegatronVersion,
        ErrorKind::data,
        "token-format",
        "'{}' is a Megatron index of version {}, this program reads version {}",
        path.string(),
        version,
        kMegatronVersion);
  const TypeLine* const type = find_type(bytes[kTypeAt]);
  check(type != nullptr && type->type != TokenType::u32,
        ErrorKind::data,
        "token-format",
        "'{}', byte {}: type {} is not a type of token ids (6 and 7 are real numbers)",
        path.string(),
        kTypeAt,
        bytes[kTypeAt]);
  type_ = type->type;
  read_counts();
}

void MegatronIndex::read_counts() {
  const auto size = std::ssize(file_.bytes());
  const auto sequences = load_at<std::uint64_t>(file_.bytes(), kCountsAt);
  const auto boundaries = load_at<std::uint64_t>(file_.bytes(), kCountsAt + kEntryBytes);
  const auto room = static_cast<std::uint64_t>(size);  // so that no product below overflows
  check_file(sequences <= room && boundaries <= room && boundaries > 0,
             path_,
             kCountsAt,
             "{} sequences and {} document boundaries do not fit into a file of {} bytes",
             sequences,
             boundaries,
             size);
  num_sequences_ = static_cast<std::int64_t>(sequences);
  num_documents_ = static_cast<std::int64_t>(boundaries) - 1;
  const std::int64_t expected = boundaries_at() + kEntryBytes * (num_documents_ + 1);
  check_file(size == expected,
             path_,
             kCountsAt,
             "{} sequences and {} document boundaries take {} bytes, the file has {}",
             sequences,
             boundaries,
             expected,
             size);
}

std::int64_t MegatronIndex::pointers_at() const noexcept {
  return kLengthsAt + kLengthBytes * num_sequences_;
}
std::int64_t MegatronIndex::boundaries_at() const noexcept {
  return pointers_at() + kEntryBytes * num_sequences_;
}
std::int64_t MegatronIndex::length(std::int64_t sequence) const noexcept {
  return load_at<std::int32_t>(file_.bytes(), kLengthsAt + kLengthBytes * sequence);
}
std::int64_t MegatronIndex::pointer(std::int64_t sequence) const noexcept {
  return load_at<std::int64_t>(file_.bytes(), pointers_at() + kEntryBytes * sequence);
}
std::int64_t MegatronIndex::boundary(std::int64_t entry) const noexcept {
  return load_at<std::int64_t>(file_.bytes(), boundaries_at() + kEntryBytes * entry);
}

std::int64_t MegatronIndex::data_bytes() const noexcept {
  if (num_sequences_ == 0) {
    return 0;
  }
  const std::int64_t last = num_sequences_ - 1;
  // Unsigned: a damaged entry must not overflow before it is compared.
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(pointer(last)) +
                                   static_cast<std::uint64_t>(length(last) * bytes_of(type_)));
}

std::int64_t MegatronIndex::document_begin(std::int64_t document) const noexcept {
  const std::int64_t sequence = boundary(document);
  const bool inside = sequence >= 0 && sequence < num_sequences_;
  return (inside ? pointer(sequence) : data_bytes()) / bytes_of(type_);
}

void MegatronIndex::check_entries(std::int64_t bin_bytes) const {
  check_sequences(bin_bytes);
  check_boundaries();
}

void MegatronIndex::check_sequences(std::int64_t bin_bytes) const {
  std::int64_t end = 0;
  for (std::int64_t i = 0; i < num_sequences_; ++i) {
    const std::int64_t tokens = length(i);
    const std::int64_t begin = pointer(i);
    check_file(
        tokens >= 0, path_, kLengthsAt + kLengthBytes * i, "sequence {} has {} tokens", i, tokens);
    check_file(begin == end,
               path_,
               pointers_at() + kEntryBytes * i,
               "sequence {} begins at byte {} of the .bin, but the one before it ends at {}",
               i,
               begin,
               end);
    end = begin + tokens * bytes_of(type_);
    check_file(end <= bin_bytes,
               path_,
               pointers_at() + kEntryBytes * i,
               "sequence {} of {} tokens from byte {} ends beyond the .bin of {} bytes",
               i,
               tokens,
               begin,
               bin_bytes);
  }
}

void MegatronIndex::check_boundaries() const {
  std::int64_t before = 0;
  for (std::int64_t i = 0; i <= num_documents_; ++i) {
    const std::int64_t at = boundaries_at() + kEntryBytes * i;
    const std::int64_t sequence = boundary(i);
    check_file(
        i != 0 || sequence == 0, path_, at, "the first document begins at sequence {}", sequence);
    check_file(sequence >= before && sequence <= num_sequences_,
               path_,
               at,
               "document boundary {} is sequence {}, after {} and of {} sequences",
               i,
               sequence,
               before,
               num_sequences_);
    before = sequence;
  }
  check_file(before == num_sequences_,
             path_,
             boundaries_at() + kEntryBytes * num_documents_,
             "the last document ends at sequence {} of {}",
             before,
             num_sequences_);
}

std::int64_t check_llmc(const std::filesystem::path& path, std::span<const std::uint8_t> bytes) {
  check(is_llmc(bytes),
        ErrorKind::data,
        "token-format",
        "'{}' does not begin with the number {} of an llm.c token file",
        path.string(),
        kLlmcMagic);
  check_file(std::ssize(bytes) >= kLlmcHeaderBytes,
             path,
             std::ssize(bytes),
             "the file ends within its header of {} bytes",
             kLlmcHeaderBytes);
  constexpr std::int64_t kVersionField = 4;
  constexpr std::int64_t kCountField = 8;
  const auto version = load_at<std::int32_t>(bytes, kVersionField);
  check(version == kLlmcVersion,
        ErrorKind::data,
        "token-format",
        "'{}' is an llm.c token file of version {}, this program reads version {}",
        path.string(),
        version,
        kLlmcVersion);
  const std::int64_t count = load_at<std::int32_t>(bytes, kCountField);
  const std::int64_t expected = kLlmcHeaderBytes + 2 * count;
  check_file(count >= 0 && std::ssize(bytes) == expected,
             path,
             kCountField,
             "{} tokens take {} bytes, the file has {}",
             count,
             expected,
             bytes.size());
  return count;
}

}  // namespace colossal::detail
