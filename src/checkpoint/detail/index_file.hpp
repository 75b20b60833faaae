// What do foreign readers open? index.h5: every tensor whole, under its canonical path, as a view
// into the rank files.
#pragma once

#include "checkpoint/detail/manifest.hpp"

#include <filesystem>

namespace colossal::detail {

/// Writes index.h5 into `folder` and flushes it: one virtual dataset per tensor (relative file
/// names; where a rank file is missing, readers see NaN), an external link for a scalar, a plain
/// dataset for a tensor without elements. Returns its size. Our own loader never reads it. Errors:
/// checkpoint "checkpoint-write".
[[nodiscard]] StoredFile write_index(const std::filesystem::path& folder, const Manifest& manifest);

}  // namespace colossal::detail
