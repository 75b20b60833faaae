// How do files of token ids become samples?
#pragma once

#include "data/dataset.hpp"

#include <memory>

namespace colossal {

/// Dataset `tokens`: the ids of all files in order, as they are (nothing is put between documents
/// or files), cut to rows by make_token_dataset(). Of a Megatron pair one name is enough; a pair
/// whose .bin and .idx are both named (by a glob) is read once. With data.tokenizer every id must
/// be one of its ids. Errors (data): those of open_token_file(), make_token_dataset() and
/// open_tokenizer(); "vocab-too-small" if the model has fewer ids than the tokenizer.
[[nodiscard]] std::unique_ptr<Dataset> make_tokens_dataset(const DatasetRequest& request);

}  // namespace colossal
