// How are the token files of a split opened?
#include "data/tokens.hpp"

#include "data/detail/sources.hpp"
#include "data/token_dataset.hpp"
#include "data/token_file.hpp"

#include <algorithm>
#include <utility>

namespace colossal {
namespace {

bool uses_documents(const DataConfig& data) {
  return data.packing != Packing::concat || !data.cross_document_attention;
}

}  // namespace

std::unique_ptr<Dataset> make_tokens_dataset(const DatasetRequest& request) {
  TokenFileOptions options{.format = request.data.format,
                           .vocab_size = request.vocab_size,
                           .validate = request.data.validate};
  if (options.validate == DataValidation::none && uses_documents(request.data)) {
    options.validate = DataValidation::header;  // reading relies on true boundaries
  }
  TokenSourceName name{"tokens", {}};
  if (request.data.tokenizer) {
    const std::unique_ptr<Tokenizer> tokenizer = detail::tokenizer_of(request);
    options.vocab_size = tokenizer->size();  // a further row of the model is an id without a text
    name.tokenizer = stored_fingerprint(*request.data.tokenizer, *tokenizer);
  }
  std::vector<std::unique_ptr<TokenStream>> files;
  for (const std::string& path : detail::files_of(request)) {
    const bool twin = path.ends_with(".idx") &&
                      std::ranges::count(name.files, path.substr(0, path.size() - 3) + "bin") > 0;
    if (!twin) {
      files.push_back(open_token_file(path, options));
      name.files.push_back(path);
    }
  }
  return make_token_dataset(join_streams(std::move(files), {}), request, std::move(name));
}

}  // namespace colossal
