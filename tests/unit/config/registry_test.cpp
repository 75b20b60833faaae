// Does every key of the registry behave as its own description says? Written once for all keys,
// present and future.
#include "config/fields.hpp"
#include "config/flatten.hpp"
#include "config/scalar.hpp"
#include "config_sandbox.hpp"
#include "support/catch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace colossal::test {
namespace {

/// A key as the registry describes it.
struct Key {
  std::string path;
  detail::Spec spec;
  bool integer = false;
  bool real = false;
  bool list = false;
  bool boolean = false;
  std::vector<std::string> words;  ///< of an enumeration
};

class Collector : public detail::PathVisitor {
 public:
  Collector() : PathVisitor(true) {}
  std::vector<Key> keys;

 protected:
  void on_field(std::string_view name,
                const detail::Slot& slot,
                const detail::Spec& spec) override {
    Key key;
    key.path = path_of(name);
    key.spec = spec;
    key.integer = std::holds_alternative<std::int64_t*>(slot) ||
                  std::holds_alternative<std::optional<std::int64_t>*>(slot);
    key.real = std::holds_alternative<double*>(slot) ||
               std::holds_alternative<std::optional<double>*>(slot);
    key.list = std::holds_alternative<std::vector<double>*>(slot) ||
               std::holds_alternative<std::vector<std::int64_t>*>(slot) ||
               std::holds_alternative<std::vector<std::string>*>(slot) ||
               std::holds_alternative<std::vector<DataSource>*>(slot);
    key.boolean =
        std::holds_alternative<bool*>(slot) || std::holds_alternative<std::optional<bool>*>(slot);
    if (const auto* choice = std::get_if<detail::EnumSlot>(&slot)) {
      key.words.assign(choice->words.begin(), choice->words.end());
    }
    keys.push_back(std::move(key));
  }
};

std::vector<Key> all_keys() {
  Config config;
  Collector collector;
  describe(collector, config);
  return collector.keys;
}

std::string first_word(std::string_view list) {
  return std::string(list.substr(0, list.find(' ')));
}

/// The base file in which a key is legal, with one group so that its keys can be set.
std::string base_for(const Key& key) {
  const bool text = detail::among_words("text", key.spec.variant);
  std::string base = text || key.path.starts_with("data.tokenizer") ? kText
                     : key.spec.variant == "tokens"                 ? kTokens
                                                                    : kSynthetic;
  if (key.path == "data.tokenizer.path") {
    base.replace(base.find("byte"), 4, "bpe, path: gpt2");
  } else if (key.spec.variant == "mlp") {
    base =
        "version: 1\n"
        "model: {type: mlp, in_features: 4, layers: [8], out_features: 3}\n"
        "data: {type: synthetic}\n"
        "train: {steps: 50, micro_batch_size: 4}\n"
        "optimizer: {type: adamw, lr: 1e-3}\n";
  }
  base.insert(base.rfind('}'), ", groups: [{match: x}]");
  const std::string type = key.spec.variant.empty() ? "cosine" : first_word(key.spec.variant);
  if (key.path.starts_with("optimizer.") && !key.spec.variant.empty()) {
    base.replace(base.find("type: adamw"), 11, "type: " + type);
  }
  if (key.path == "optimizer.bias_correction") {
    base.replace(base.find("type: adamw"), 11, "type: lamb");  // it knows all words
  }
  if (key.path.starts_with("parallel.gemini.nvme.")) {
    base += "parallel: {gemini: {nvme: {path: disk}}}\n";
  } else if (key.path.starts_with("parallel.gemini.") && !key.spec.variant.empty()) {
    base += "parallel: {gemini: {placement: " + type + "}}\n";
  }
  if (key.path.starts_with("train.batch_ramp.")) {
    base.replace(
        base.find("steps: 50"), 9, "steps: 50, batch_ramp: {start: 4, increment: 4, samples: 9}");
  }
  const bool curve = key.path.starts_with("scheduler.");
  const std::string needed = type == "step"        ? ", step_size: 5"
                             : type == "multistep" ? ", milestones: [5]"
                                                   : "";
  return base + "scheduler: {type: " + (curve ? type + needed : "cosine") + "}\n";
}

/// Ids of errors at the override that sets `key` to `value`.
std::string set(const Key& key, const std::string& value) {
  static const ConfigSandbox box;
  std::string ids;
  const LoadOptions with = options({key.path + "=" + value});
  for (const Diagnostic& item : box.load(base_for(key), with).diagnostics) {
    // one-of is about the base's train.steps beside another budget, not about this value.
    const bool here =
        item.origin.file == "--set" && item.path.starts_with(key.path) && item.id != "one-of";
    ids += here && item.severity == Diagnostic::Severity::error ? item.id + ";" : "";
  }
  return ids;
}

/// Schema-phase ids only: a legal value may still break a rule across keys.
bool refused(const Key& key, const std::string& value, const std::string& id) {
  const std::string ids = set(key, value);
  INFO(key.path << " = " << value << ": " << ids);
  CHECK(ids == id + ";");
  return ids == id + ";";
}

bool accepted(const Key& key, const std::string& value) {
  const std::string ids = set(key, value);
  INFO(key.path << " = " << value << ": " << ids);
  for (const char* id : {"bad-", "out-of-range", "wrong-type", "list-length", "quoted-number"}) {
    CHECK(ids.find(id) == std::string::npos);
  }
  return true;
}

/// Id of what is no whole number.
std::string bad_integer(const Key& key) {
  return key.spec.form == detail::Form::bytes ? "bad-bytes" : "bad-int";
}

std::string number(const Key& key, double value) {
  if (key.integer) {
    return std::to_string(static_cast<std::int64_t>(value));
  }
  return detail::real_text(value) + (key.spec.form == detail::Form::duration ? "s" : "");
}

/// The nearest representable value above (+1) or below (-1).
double step(const Key& key, double value, int direction) {
  const double towards = direction * std::numeric_limits<double>::infinity();
  return key.integer ? value + direction : std::nextafter(value, towards);
}

}  // namespace

TEST_CASE("every key has help and a unique path", "[config]") {
  std::vector<std::string> paths;
  for (const Key& key : all_keys()) {
    INFO(key.path);
    CHECK(key.spec.help.size() > 5);
    CHECK(key.spec.help.back() != '.');
    paths.push_back(key.path);
  }
  std::sort(paths.begin(), paths.end());
  CHECK(std::adjacent_find(paths.begin(), paths.end()) == paths.end());
  CHECK(paths.size() > 70);
}

TEST_CASE("every range holds exactly at its ends", "[config]") {
  int bounds = 0;
  for (const Key& key : all_keys()) {
    const detail::Range& range = key.spec.range;
    if ((!key.integer && !key.real) || key.spec.form == detail::Form::duration) {
      continue;
    }
    if (std::isfinite(range.min)) {
      const double first = range.min_open ? step(key, range.min, 1) : range.min;
      accepted(key, number(key, first));
      const double outside = range.min_open ? range.min : step(key, range.min, -1);
      refused(key, number(key, outside), "out-of-range");
      ++bounds;
    }
    if (std::isfinite(range.max)) {
      const double last = range.max_open ? step(key, range.max, -1) : range.max;
      if (key.path != "model.hidden_size") {  // a rule bounds the weights of the whole model
        accepted(key, number(key, last));
      }
      const double outside = range.max_open ? range.max : step(key, range.max, 1);
      refused(key, number(key, outside), "out-of-range");
      ++bounds;
    }
  }
  CHECK(bounds > 50);
}

TEST_CASE("every number refuses text, quotes and fractions of integers", "[config]") {
  for (const Key& key : all_keys()) {
    if (key.integer) {
      const std::string id = bad_integer(key);
      refused(key, "many", id);
      refused(key, "1.5", id);
      refused(key, "0x1", id);
      refused(key, "'1'", "quoted-number");
      refused(key, "1k1", id);
    } else if (key.real && key.spec.form != detail::Form::duration) {
      refused(key, "much", "bad-real");
      refused(key, ".nan", "bad-real");
      refused(key, "-.inf", "bad-real");
      refused(key, "\"0.5\"", "quoted-number");
    } else if (key.real) {
      refused(key, "5", "bad-duration");
      accepted(key, "5s");
    }
  }
}

TEST_CASE("counts take suffixes, other integers do not", "[config]") {
  for (const Key& key : all_keys()) {
    if (key.integer && key.spec.form == detail::Form::count) {
      accepted(key, "2k");
      accepted(key, "0.002M");
    } else if (key.integer) {
      refused(key, "2k", bad_integer(key));
    }
    if (key.spec.form == detail::Form::bytes) {
      accepted(key, "2KiB");
      accepted(key, "0.5MB");
    }
  }
}

TEST_CASE("every word of an enumeration is accepted, any other refused", "[config]") {
  for (const Key& key : all_keys()) {
    for (const std::string& word : key.words) {
      accepted(key, word);
      std::string upper = word;
      upper[0] = static_cast<char>(std::toupper(upper[0]));
      if (word != "true" && word != "false") {  // which YAML takes in any case
        refused(key, upper, "bad-enum");
      }
    }
    if (!key.words.empty()) {
      refused(key, "qqqqqq", "bad-enum");
    }
  }
}

TEST_CASE("every boolean takes true and false only", "[config]") {
  for (const Key& key : all_keys()) {
    if (key.boolean) {
      accepted(key, "true");
      accepted(key, "FALSE");
      for (const char* word : {"yes", "no", "on", "0", "'true'"}) {
        refused(key, word, "bad-bool");
      }
    }
  }
}

TEST_CASE("every key refuses a value of another kind", "[config]") {
  for (const Key& key : all_keys()) {
    refused(key, "{a: 1}", "wrong-type");
    if (key.list) {
      // A word may stand for the list, and x is none of the words.
      refused(key, "x", key.path == "logging.ranks" ? "bad-enum" : "wrong-type");
    } else {
      refused(key, "[a]", "wrong-type");
    }
  }
}

TEST_CASE("null is the default, or the key is required", "[config]") {
  const ConfigSandbox box;
  for (const Key& key : all_keys()) {
    const std::string base = base_for(key);
    const Config before = box.load(base).config;
    const Loaded loaded = box.load(base, options({key.path + "=null"}));
    INFO(key.path << "\n" << render(loaded.diagnostics));
    if (key.spec.required) {
      REQUIRE(loaded.diagnostics.size() == 1);
      CHECK(loaded.diagnostics[0].id == "required");
      CHECK(loaded.diagnostics[0].path == key.path);
      CHECK(loaded.diagnostics[0].origin.file == "--set");
    } else if (!loaded.has_errors()) {
      // Only what the base file gives may differ from the default.
      for (const Difference& d : diff(before, loaded.config)) {
        const bool of_variant = d.now.starts_with("(not a key");
        // Naming a key makes its optional section appear, with defaults.
        const bool of_section = d.saved.starts_with("(not a key") &&
                                d.path.starts_with(key.path.substr(0, key.path.rfind('.') + 1));
        // For lamb a written null is "no bound" and nothing written is 10.
        const bool of_bound = d.path == "optimizer.trust_clip";
        const bool of_base =
            of_bound || base.find(d.path.substr(d.path.rfind('.') + 1)) != std::string::npos;
        CHECK((of_variant || of_section || of_base));
      }
    }
  }
}

TEST_CASE("every typo of every key leads back to it", "[config]") {
  const ConfigSandbox box;
  for (const Key& key : all_keys()) {
    const std::string name = key.path.substr(key.path.rfind('.') + 1);
    if (name.size() < 5) {
      continue;  // a short word has too many neighbours
    }
    for (const std::size_t at : {std::size_t{1}, name.size() / 2, name.size() - 2}) {
      std::string swapped = name;
      std::swap(swapped[at], swapped[at + 1]);
      std::string shorter = name;
      shorter.erase(at, 1);
      for (const std::string& typo : {swapped, shorter}) {
        const std::string path = key.path.substr(0, key.path.size() - name.size()) + typo;
        if (typo == name) {
          continue;
        }
        const Loaded loaded = box.load(base_for(key), options({path + "=1"}));
        INFO(path << "\n" << render(loaded.diagnostics));
        REQUIRE(loaded.diagnostics.size() == 1);
        CHECK(loaded.diagnostics[0].id == "unknown-key");
        CHECK(loaded.diagnostics[0].fix == "use " + key.path);
      }
    }
  }
}

TEST_CASE("a bad value is reported at its own line and column", "[config]") {
  const ConfigSandbox box;
  for (const Key& key : all_keys()) {
    if (key.path.find('[') != std::string::npos) {
      continue;
    }
    // One key per line below its sections, two spaces a level; the base comes from a parent.
    box.write("base.yaml", base_for(key));
    std::string text = "extends: base.yaml\n";
    std::string indent;
    std::size_t begin = 0;
    int line = 1;
    for (std::size_t dot = key.path.find('.'); dot != std::string::npos;
         dot = key.path.find('.', begin)) {
      text += indent + key.path.substr(begin, dot - begin) + ":\n";
      indent += "  ";
      begin = dot + 1;
      ++line;
    }
    const std::string name = key.path.substr(begin);
    text += indent + name + ": {a: 1}\n";
    const Loaded loaded = box.load(text);
    INFO(text << render(loaded.diagnostics));
    const std::string expected =
        fmt::format("wrong-type {} {}", line + 1, indent.size() + name.size() + 3);
    CHECK(summary(loaded).ends_with(expected));
  }
}

}  // namespace colossal::test
