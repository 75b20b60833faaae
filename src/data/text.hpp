// How does plain text become samples? Byte tokens of all files, one document each, cut to rows of S
// tokens.
#pragma once

#include "data/dataset.hpp"

#include <memory>

namespace colossal {

/// The token that stands between two documents; the byte of this value may not occur inside one.
inline constexpr std::uint8_t kSeparator = 0;

/// Dataset `text`: the stream file 0, separator, file 1, ... of byte tokens, one document a file,
/// cut to rows by make_token_dataset(). Errors (data): "file-not-found", "data-unreadable",
/// "data-empty", "separator-in-text", "vocab-too-small", and those of make_token_dataset().
[[nodiscard]] std::unique_ptr<Dataset> make_text_dataset(const DatasetRequest& request);

}  // namespace colossal
