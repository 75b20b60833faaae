// How do documents become Megatron-LM's two files?
#include "data/megatron_writer.hpp"

#include <limits>
#include <system_error>

namespace colossal {
namespace {

constexpr std::int64_t kWideVocabulary = 65'500;
constexpr std::int64_t kLongestSequence = std::numeric_limits<std::int32_t>::max();
constexpr std::uint64_t kIndexVersion = 1;

std::filesystem::path without_suffix(const std::filesystem::path& out) {
  const bool suffix = out.extension() == ".bin" || out.extension() == ".idx";
  return suffix ? std::filesystem::path(out).replace_extension() : out;
}

}  // namespace

MegatronWriter::MegatronWriter(const std::filesystem::path& out, std::int64_t vocab_size)
    : bin_path_(without_suffix(out).string() + ".bin"),
      idx_path_(without_suffix(out).string() + ".idx"),
      type_(vocab_size < kWideVocabulary ? detail::TokenType::u16 : detail::TokenType::i32),
      bin_(bin_path_),
      idx_(idx_path_) {}

void MegatronWriter::add(std::span<const TokenId> ids) {
  for (const TokenId id : ids) {
    if (sequence_tokens_ == kLongestSequence) {
      end_sequence();
    }
    if (type_ == detail::TokenType::u16) {
      bin_.write_value(static_cast<std::uint16_t>(id));
    } else {
      bin_.write_value(id);
    }
    ++sequence_tokens_;
  }
}

void MegatronWriter::end_sequence() {
  lengths_.push_back(static_cast<std::int32_t>(sequence_tokens_));
  sequence_tokens_ = 0;
}

void MegatronWriter::end_document() {
  end_sequence();
  documents_.push_back(static_cast<std::int64_t>(lengths_.size()));
}

void MegatronWriter::write_index() {
  idx_.write(std::as_bytes(std::span(detail::kMegatronMagic)));
  idx_.write_value(kIndexVersion);
  idx_.write_value(static_cast<std::uint8_t>(type_));
  idx_.write_value(static_cast<std::uint64_t>(lengths_.size()));
  idx_.write_value(static_cast<std::uint64_t>(documents_.size()));
  for (const std::int32_t length : lengths_) {
    idx_.write_value(length);
  }
  std::int64_t offset = 0;
  for (const std::int32_t length : lengths_) {
    idx_.write_value(offset);
    offset += length * detail::bytes_of(type_);
  }
  for (const std::int64_t document : documents_) {
    idx_.write_value(document);
  }
}

void MegatronWriter::finish() {
  bin_.finish();
  write_index();
  idx_.finish();
  // An old index must not describe the new data, not even for a moment.
  std::error_code ignored;
  std::filesystem::remove(idx_path_, ignored);
  bin_.commit();
  idx_.commit();
}

}  // namespace colossal
