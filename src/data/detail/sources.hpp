// Which files do the items of data.train and data.eval name, and how are they told to people?
#pragma once

#include "data/dataset.hpp"
#include "data/tokenizers/tokenizer.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace colossal::detail {

/// Files of all items of the request's split, in order; those of a glob sorted. A name with *, ? or
/// [ that is not itself a file is a glob. Errors: data "data-empty" without any item, or for a glob
/// without a match.
[[nodiscard]] std::vector<std::string> files_of(const DatasetRequest& request);

/// Opens data.tokenizer, which the request has. Errors: those of open_tokenizer(), of the key
/// data.tokenizer.path; data "vocab-too-small" if the model has fewer ids.
[[nodiscard]] std::unique_ptr<Tokenizer> tokenizer_of(const DatasetRequest& request);

/// The path as a user would type it here.
[[nodiscard]] std::string shown(const std::filesystem::path& path);

/// "a.txt", or "a.txt and 2 more".
[[nodiscard]] std::string shown_files(const std::vector<std::string>& files);

}  // namespace colossal::detail
