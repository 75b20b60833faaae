// How does plain text become samples? Byte tokens of all files, one document each, cut to rows of S
// tokens.
#pragma once

#include "data/dataset.hpp"

#include <memory>

namespace colossal {

/// The token that stands between two documents; the byte of this value may not occur inside one.
inline constexpr std::uint8_t kSeparator = 0;

/// Dataset `text`: the stream file 0, separator, file 1, ... of T byte tokens; sample i predicts
/// tokens (i*S, (i+1)*S] from the one before each. Train keeps the (T-1)/S whole samples; eval also
/// the last, shorter one, so that every token but the first is predicted exactly once. Names in
/// data.train and data.eval may be globs. Errors (data): "file-not-found", "data-unreadable",
/// "data-empty", "data-too-short", "separator-in-text", "vocab-too-small".
[[nodiscard]] std::unique_ptr<Dataset> make_text_dataset(const DatasetRequest& request);

}  // namespace colossal
