// The difference that a token makes to the text of its neighbourhood, and where characters end.
#include "infer/text_stream.hpp"

#include <algorithm>
#include <utility>

namespace colossal {
namespace {

/// Ids before a token that can change how it reads (spaces between words, pieces of one character).
constexpr std::size_t kContext = 8;

bool continues(char c) noexcept {
  return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;
}

/// Bytes of the sequence that starts with `lead`; 1 if none does.
std::size_t sequence_bytes(char lead) noexcept {
  const auto byte = static_cast<unsigned char>(lead);
  if (byte >= 0xC2U && byte <= 0xDFU) {
    return 2;
  }
  if (byte >= 0xE0U && byte <= 0xEFU) {
    return 3;
  }
  return byte >= 0xF0U && byte <= 0xF4U ? 4 : 1;
}

}  // namespace

std::size_t whole_characters(std::string_view bytes) noexcept {
  std::size_t lead = bytes.size();
  while (lead > 0 && bytes.size() - lead < 3 && continues(bytes[lead - 1])) {
    --lead;
  }
  if (lead == 0) {
    return bytes.size();
  }
  --lead;
  return lead + sequence_bytes(bytes[lead]) > bytes.size() ? lead : bytes.size();
}

TextStream::TextStream(Decode decode, std::span<const std::int64_t> prompt)
    : decode_(std::move(decode)) {
  const std::span<const std::int64_t> last = prompt.last(std::min(kContext, prompt.size()));
  window_.assign(last.begin(), last.end());
}

std::string TextStream::push(std::int64_t id) {
  const std::string before = decode_(window_);
  window_.push_back(id);
  const std::string after = decode_(window_);
  held_ += after.substr(std::min(before.size(), after.size()));
  if (window_.size() > 2 * kContext) {
    window_.erase(window_.begin(), window_.end() - kContext);
  }
  std::string shown = held_.substr(0, whole_characters(held_));
  held_.erase(0, shown.size());
  return shown;
}

std::string TextStream::finish() {
  return std::exchange(held_, {});
}

}  // namespace colossal
