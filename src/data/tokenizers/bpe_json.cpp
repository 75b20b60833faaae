// How is a tokenizer.json of model type BPE read? Each component by name; an unknown one is
// refused.
#include "core/error.hpp"
#include "core/hash.hpp"
#include "data/tokenizers/bpe_spec.hpp"
#include "data/tokenizers/json_file.hpp"

#include <fmt/format.h>

namespace colossal::detail {
namespace {

constexpr std::string_view kBlock = "\xE2\x96\x81";  // U+2581, written for a space

/// Refuses a setting that would change ids in a way this program does not do.
void require_text(const JsonValue& value, std::string_view wanted) {
  if (value.text(wanted) != wanted) {
    unsupported(value, value.text(), fmt::format("'{}'", wanted));
  }
}

/// Normalizers of LLaMA-2: Prepend and Replace " " by the block, in a Sequence or alone.
void read_normalizer(const JsonValue& normalizer, BpeSpec& spec) {
  const std::string type = normalizer["type"].text();
  if (type == "Sequence") {
    for (const JsonValue& part : normalizer["normalizers"].items()) {
      read_normalizer(part, spec);
    }
  } else if (type == "Prepend") {
    require_text(normalizer["prepend"], kBlock);
    spec.prepend = Prepend::always;
  } else if (type == "Replace") {
    require_text(normalizer["pattern"]["String"], " ");
    require_text(normalizer["content"], kBlock);
    spec.block_for_space = true;
  } else {
    unsupported(normalizer, type, "Prepend, Replace, Sequence");
  }
  spec.byte_level = false;
}

void read_split(const JsonValue& split, BpeSpec& spec) {
  const std::string regex = split["pattern"]["Regex"].text();
  const std::optional<SplitPattern> pattern = known_pattern(regex);
  if (!pattern) {
    unsupported(split["pattern"], regex, "the patterns of GPT-2, LLaMA-3 and Qwen2");
  }
  require_text(split["behavior"], "Isolated");
  if (split["invert"].flag(false)) {
    unsupported(split["invert"], "true", "false");
  }
  spec.pattern = *pattern;
}

void read_metaspace(const JsonValue& metaspace, BpeSpec& spec) {
  require_text(metaspace["replacement"], kBlock);
  const JsonValue scheme = metaspace["prepend_scheme"];
  const std::string word =
      scheme.text(metaspace["add_prefix_space"].flag(true) ? "always" : "never");
  if (word == "always") {
    spec.prepend = Prepend::unless_there;
  } else if (word == "first") {
    spec.prepend = Prepend::first_piece_only;
  } else if (word != "never") {
    unsupported(scheme, word, "always, first, never");
  }
  spec.block_for_space = true;
  spec.split_words = metaspace["split"].flag(true);
  spec.byte_level = false;
}

/// ByteLevel after a Split has no pattern of its own.
void read_byte_level(const JsonValue& part, bool after_split, BpeSpec& spec) {
  spec.prefix_space = part["add_prefix_space"].flag(true);
  if (part["use_regex"].flag(true) == after_split) {
    unsupported(part["use_regex"],
                after_split ? "true" : "false",
                "true for ByteLevel alone, false after a Split");
  }
  if (after_split && spec.prefix_space) {
    unsupported(part["add_prefix_space"], "true", "false after a Split");
  }
}

void read_pre_tokenizer(const JsonValue& pre, BpeSpec& spec) {
  if (!pre) {
    spec.byte_level = false;
    return;
  }
  const std::string type = pre["type"].text();
  if (type == "ByteLevel") {
    read_byte_level(pre, false, spec);
  } else if (type == "Metaspace") {
    read_metaspace(pre, spec);
  } else if (type == "Sequence") {
    const std::vector<JsonValue> parts = pre["pretokenizers"].items();
    const bool known = parts.size() == 2 && parts[0]["type"].text() == "Split" &&
                       parts[1]["type"].text() == "ByteLevel";
    if (!known) {
      unsupported(pre, "Sequence of other parts", "Split, then ByteLevel");
    }
    read_split(parts[0], spec);
    read_byte_level(parts[1], true, spec);
  } else {
    unsupported(pre, type, "ByteLevel, Metaspace, Sequence of Split and ByteLevel");
  }
}

void read_model_merges(const JsonValue& merges, BpeSpec& spec) {
  for (const JsonValue& merge : merges.items()) {
    if (merge.json().is_array()) {
      const std::vector<JsonValue> parts = merge.items();
      check(parts.size() == 2,
            ErrorKind::data,
            "tokenizer-file",
            "{} has {} parts, a merge has 2",
            merge.place(),
            parts.size());
      add_merge(spec, parts[0].text(), parts[1].text(), merge.place());
      continue;
    }
    const std::string text = merge.text();
    const std::size_t space = text.find(' ');
    check(space != std::string::npos,
          ErrorKind::data,
          "tokenizer-file",
          "{}: '{}' is no merge; it needs two tokens with a space between them",
          merge.place(),
          text);
    const std::string_view view = text;
    add_merge(spec, view.substr(0, space), view.substr(space + 1), merge.place());
  }
}

void read_model(const JsonValue& model, BpeSpec& spec) {
  if (model["dropout"]) {
    unsupported(model["dropout"], model["dropout"].json().dump(), "null");
  }
  require_text(model["continuing_subword_prefix"], "");
  require_text(model["end_of_word_suffix"], "");
  spec.ignore_merges = model["ignore_merges"].flag(false);
  spec.byte_fallback = model["byte_fallback"].flag(false);
  spec.fuse_unknown = model["fuse_unk"].flag(false);
  Vocabulary written;
  read_vocabulary(model["vocab"], written);
  for (std::size_t id = 0; id < written.tokens().size(); ++id) {
    const std::string& token = written.tokens()[id];
    if (!token.empty()) {
      const auto bytes = spec.byte_level ? from_printable(token) : std::nullopt;
      spec.vocabulary.add(
          bytes.value_or(token), static_cast<std::int64_t>(id), model["vocab"].place());
    }
  }
  if (model["unk_token"]) {
    spec.unknown = spec.vocabulary.find(model["unk_token"].text());
  }
  read_model_merges(model["merges"], spec);
}

}  // namespace

/// `post_processor` is not read: it only puts special tokens around a text, which encode() does
/// not.
BpeSpec read_bpe_json(const std::filesystem::path& path) {
  const std::string text = read_tokenizer_file(path);
  const nlohmann::json json = parse_tokenizer_json(text, path);
  const JsonValue root(json, path.string());
  const JsonValue model = root["model"];
  const std::string type = model["type"].text("BPE");
  if (type != "BPE") {
    unsupported(model["type"], type, "BPE (WordPiece: data.tokenizer.type wordpiece)");
  }
  BpeSpec spec;
  const JsonValue normalizer = root["normalizer"];
  read_pre_tokenizer(root["pre_tokenizer"], spec);
  if (normalizer && root["pre_tokenizer"] && spec.byte_level) {
    unsupported(normalizer, normalizer["type"].text(), "no normalizer before ByteLevel");
  }
  if (normalizer) {
    read_normalizer(normalizer, spec);
  }
  read_model(model, spec);
  spec.added =
      read_added_tokens(root["added_tokens"], static_cast<bool>(normalizer), spec.vocabulary);
  spec.fingerprint = sha256("bpe " + sha256(text));
  return spec;
}

}  // namespace colossal::detail
