// How do files of token ids become samples?
#pragma once

#include "data/dataset.hpp"

#include <memory>

namespace colossal {

/// Dataset `tokens`: the ids of all files in order, as they are (nothing is put between documents
/// or files), cut to rows by make_token_dataset(). Of a Megatron pair one name is enough; a pair
/// whose .bin and .idx are both named (by a glob) is read once. Errors (data): those of
/// open_token_file() and make_token_dataset().
[[nodiscard]] std::unique_ptr<Dataset> make_tokens_dataset(const DatasetRequest& request);

}  // namespace colossal
