// How does the registry become text: for --help and for schemas/keys.md?
#include "config/help.hpp"

#include "config/convert.hpp"
#include "config/explain.hpp"
#include "config/fields.hpp"
#include "config/flatten.hpp"
#include "config/tree.hpp"

#include <fmt/format.h>

#include <map>

namespace colossal {
namespace detail {
namespace {

std::string_view number_word(const Spec& spec) {
  return spec.form == Form::count ? "count" : spec.form == Form::bytes ? "bytes" : "integer";
}

std::string_view real_word(const Spec& spec) {
  return spec.form == Form::duration ? "duration" : "number";
}

/// Name of the type of a member, as in the key tables.
struct TypeWord {
  const Spec& spec;

  std::string operator()(const bool* /*value*/) const { return "true or false"; }
  std::string operator()(const std::int64_t* /*value*/) const {
    return std::string(number_word(spec));
  }
  std::string operator()(const double* /*value*/) const { return std::string(real_word(spec)); }
  std::string operator()(const std::string* /*value*/) const {
    const std::string text = spec.form == Form::path ? "path" : "text";
    return spec.words.empty()        ? text
           : spec.form == Form::path ? fmt::format("{} or path", join(spec.words))
                                     : fmt::format("one of {}", join(spec.words));
  }
  std::string operator()(const DataSource* /*value*/) const {
    return fmt::format("path or {{{}, {}}}", kSourcePath, kSourceWeight);
  }
  std::string operator()(const EnumSlot& slot) const {
    return fmt::format("one of {}", join(slot.words));
  }
  template <class T>
  std::string operator()(const std::optional<T>* /*value*/) const {
    const T* none = nullptr;
    return (*this)(none);
  }
  template <class T>
  std::string operator()(const std::vector<T>* /*value*/) const {
    const T* none = nullptr;
    const std::string either =
        std::is_same_v<T, std::int64_t> && !spec.words.empty() ? join(spec.words) + " or " : "";
    const std::string items =
        either + (spec.length == 0 ? "list" : fmt::format("list of {}", spec.length));
    return fmt::format("{}, each {}", items, (*this)(none));
  }
};

class DocWriter : public PathVisitor {
 public:
  DocWriter() : PathVisitor(true) {}

  [[nodiscard]] std::vector<KeyDoc> take() { return std::move(docs_); }

 protected:
  void on_field(std::string_view key, const Slot& slot, const Spec& spec) override {
    const bool ranged = spec.range.min > -std::numeric_limits<double>::infinity();
    if (spec.selects) {
      selecting_[path_of("")] = key;
    }
    KeyDoc doc = make(key, spec);
    doc.type = std::visit(TypeWord{spec}, slot);
    doc.type += ranged ? " " + range_text(spec.range) : "";
    doc.type += spec.all_word ? " or all" : "";
    doc.type += spec.auto_word ? " or auto" : "";
    doc.words = words_of(slot, spec);
    if (spec.required) {
      doc.standard =
          spec.unless.empty() ? "required" : fmt::format("required without {}", spec.unless);
    } else if (!spec.derived.empty()) {
      doc.standard = fmt::format("default: {}", spec.derived);
    } else {
      doc.standard = "default " + slot_text(slot, spec);
    }
    docs_.push_back(std::move(doc));
  }

  bool enter(std::string_view key, bool present, const Spec& spec) override {
    add_section(
        key,
        present,
        spec,
        spec.single.empty() ? "mapping" : fmt::format("mapping, or its `{}` alone", spec.single));
    return PathVisitor::enter(key, present, spec);
  }

  std::size_t enter_list(std::string_view key, std::size_t size, const Spec& spec) override {
    add_section(key, true, spec, "list of mappings");
    return PathVisitor::enter_list(key, size, spec);
  }

 private:
  [[nodiscard]] static std::vector<std::string> words_of(const Slot& slot, const Spec& spec) {
    if (const auto* choice = std::get_if<EnumSlot>(&slot)) {
      return {choice->words.begin(), choice->words.end()};
    }
    if (std::holds_alternative<bool*>(slot) || std::holds_alternative<std::optional<bool>*>(slot)) {
      return {"true", "false"};
    }
    return {spec.words.begin(), spec.words.end()};
  }

  [[nodiscard]] KeyDoc make(std::string_view key, const Spec& spec) const {
    KeyDoc doc;
    doc.path = path_of(key);
    if (!spec.variant.empty()) {
      doc.variant = fmt::format("{} {}", selecting_.at(path_of("")), either_word(spec.variant));
    }
    doc.help = spec.help;
    doc.resume = spec.resume;
    return doc;
  }

  void add_section(std::string_view key, bool present, const Spec& spec, std::string type) {
    KeyDoc doc = make(key, spec);
    doc.section = true;
    doc.type = std::move(type);
    doc.standard = !spec.required ? (present ? "optional" : "default null")
                   : spec.required_for.empty()
                       ? "required"
                       : fmt::format("required for {}", either_word(spec.required_for));
    docs_.push_back(std::move(doc));
  }

  std::vector<KeyDoc> docs_;
  std::map<std::string, std::string_view> selecting_;  ///< by section: the key that selects
};

/// "number > 0; required; type text only"
std::string facts(const KeyDoc& doc) {
  const std::string variant = doc.variant.empty() ? "" : fmt::format("; {} only", doc.variant);
  return fmt::format("{}; {}{}", doc.type, doc.standard, variant);
}

std::string cell(std::string text) {
  for (std::size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2)) {
    text.insert(at, 1, '\\');
  }
  return text;
}

/// Heading of a section and of its table; `doc` is the section's own entry or its first key.
std::string section_markdown(const KeyDoc& doc, const std::string& section) {
  return fmt::format("\n## {}\n\n", section) +
         (doc.section ? fmt::format("{} ({}).\n\n", doc.help, doc.standard) : "") +
         "| key | type | default | meaning |\n|---|---|---|---|\n";
}

std::string row_markdown(const KeyDoc& doc) {
  return fmt::format("| `{}` | {} | {} | {}{} |\n",
                     doc.path,
                     cell(doc.type),
                     cell(doc.standard),
                     cell(doc.help),
                     doc.variant.empty() ? "" : fmt::format(" ({} only)", doc.variant));
}

}  // namespace

std::vector<KeyDoc> key_docs() {
  Config defaults;
  DocWriter writer;
  describe(writer, defaults);
  return writer.take();
}

}  // namespace detail

std::string key_help() {
  std::string text;
  for (const detail::KeyDoc& doc : detail::key_docs()) {
    if (!doc.section) {
      text += fmt::format("{}  ({})\n    {}\n", doc.path, detail::facts(doc), doc.help);
    }
  }
  return text;
}

std::vector<std::pair<std::string, std::vector<std::string>>> key_words() {
  std::vector<std::pair<std::string, std::vector<std::string>>> all;
  for (detail::KeyDoc& doc : detail::key_docs()) {
    if (!doc.section && doc.path.find('[') == std::string::npos) {
      all.emplace_back(std::move(doc.path), std::move(doc.words));
    }
  }
  return all;
}

std::string key_markdown() {
  std::string text =
      "# Keys of a configuration\n\n"
      "Generated: `colossal-train config schema --format markdown > schemas/keys.md`. How they are "
      "written\n(numbers, durations, `extends`, `${...}`) is in the README.\n";
  std::string top;
  for (const detail::KeyDoc& doc : detail::key_docs()) {
    const std::string section = doc.path.substr(0, doc.path.find('.'));
    const bool begins = section != top;
    text += begins ? detail::section_markdown(doc, section) : "";
    text += begins && doc.section ? "" : detail::row_markdown(doc);
    top = section;
  }
  return text;
}

}  // namespace colossal
