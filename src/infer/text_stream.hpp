// When is generated text ready to be shown? Tokens become bytes as they come, and bytes are shown
// when their character is whole.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace colossal {

/// Length of the longest prefix of `bytes` that does not stop inside a UTF-8 sequence. What is no
/// UTF-8 at all is never held back.
[[nodiscard]] std::size_t whole_characters(std::string_view bytes) noexcept;

/// Text of a growing sequence of tokens.
class TextStream {
 public:
  /// Text of ids; the text of a longer sequence begins with that of a shorter one.
  using Decode = std::function<std::string(std::span<const std::int64_t>)>;

  /// `prompt`: the ids before the first new one; how a token reads can depend on its neighbours.
  TextStream(Decode decode, std::span<const std::int64_t> prompt);

  /// Takes the next token; returns the text that is now certain, whole characters only.
  [[nodiscard]] std::string push(std::int64_t id);
  /// What is still held back at the end: a character that was never finished.
  [[nodiscard]] std::string finish();

 private:
  Decode decode_;
  std::vector<std::int64_t> window_;  // the last ids: enough to read the next one right
  std::string held_;
};

}  // namespace colossal
