// How does a stream of tokens become samples?
#pragma once

#include "data/dataset.hpp"
#include "data/token_stream.hpp"

#include <memory>
#include <string>
#include <vector>

namespace colossal {

/// What a dataset says of itself.
struct TokenSourceName {
  std::string kind;                ///< word of data.type, part of the fingerprint
  std::vector<std::string> files;  ///< for messages, at least one
  std::string tokenizer = {};      ///< fingerprint of a tokenizer with files
};

/// Rows of data.seq_length = S tokens. data.packing
/// - concat: sample i predicts tokens (i*S, (i+1)*S] of the stream from the one before each. Train
///   keeps the (T-1)/S whole samples; eval also the last, shorter one, so that every token but the
///   first is predicted exactly once, also the first one of a document by the last one before.
/// - greedy, pad: rows of whole documents, see RowPlan. No label where a document ends or nothing
///   stands.
/// With data.cross_document_attention false the batch has "document_starts" [n,S]: the place in the
/// row at which the document of each token begins. Errors (data): "data-too-short";
/// "sequence-packing" if documents matter and the stream has none; "token-range" when reading.
[[nodiscard]] std::unique_ptr<Dataset> make_token_dataset(std::unique_ptr<TokenStream> stream,
                                                          const DatasetRequest& request,
                                                          TokenSourceName name);

}  // namespace colossal
