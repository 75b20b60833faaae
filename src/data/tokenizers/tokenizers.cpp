// Which tokenizers exist? One line each.
#include "config/load.hpp"
#include "core/error.hpp"
#include "data/tokenizers/bpe.hpp"
#include "data/tokenizers/byte.hpp"
#include "data/tokenizers/tokenizer.hpp"
#include "data/tokenizers/wordpiece.hpp"

namespace colossal {

std::unique_ptr<Tokenizer> open_tokenizer(const TokenizerConfig& config) {
  switch (config.type) {
    case TokenizerType::byte:
      return make_byte_tokenizer(config);
    case TokenizerType::bpe:
      return make_bpe_tokenizer(config);
    case TokenizerType::wordpiece:
      return make_wordpiece_tokenizer(config);
  }
  fail(ErrorKind::internal,
       "tokenizer-type",
       "no tokenizer has number {}",
       static_cast<int>(config.type));
}

std::string stored_fingerprint(const TokenizerConfig& config, const Tokenizer& tokenizer) {
  return config.type == TokenizerType::byte ? "" : tokenizer.fingerprint();
}

void resolve_vocabulary(Loaded& loaded) {
  Config& config = loaded.config;
  if (config.model.vocab_size == 0 && config.data.tokenizer) {
    config.model.vocab_size = blaming(
        "data.tokenizer.path", [&] { return open_tokenizer(*config.data.tokenizer)->size(); });
    loaded.origins["model.vocab_size"].file = "derived(data.tokenizer)";
  }
}

TokenId require_eod(const Tokenizer& tokenizer) {
  const std::optional<TokenId> id = tokenizer.eod();
  check(id.has_value(),
        ErrorKind::data,
        "tokenizer-eod",
        "the vocabulary has no token that ends a document; add one of {} to it",
        "<|endoftext|>, <|end_of_text|>, </s>, <eos>, [SEP]");
  return *id;
}

}  // namespace colossal
