// How is a key described once and used by the reader, writer, schema, difference and help? By
// describe() and Visitor.
#pragma once

#include "config/config.hpp"
#include "config/load.hpp"
#include "config/words.hpp"

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace colossal::detail {

/// How the text of a value is read, where the C++ type alone does not say.
enum class Form : std::uint8_t { plain, count, duration, path, bytes };

/// Legal interval of a number.
struct Range {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool min_open = false;
  bool max_open = false;
};
/// "in [0, 1)", ">= 1", ...
[[nodiscard]] std::string range_text(const Range& range);
/// "auto, cpu"
[[nodiscard]] std::string join(std::span<const std::string_view> words);
/// [min, infinity)
constexpr Range at_least(double min) {
  return {.min = min};
}
/// (min, infinity)
constexpr Range above(double min) {
  return {.min = min, .min_open = true};
}
/// [min, max]
constexpr Range between(double min, double max) {
  return {.min = min, .max = max};
}
/// [min, max)
constexpr Range below(double min, double max) {
  return {.min = min, .max = max, .max_open = true};
}

/// Keys of a DataSource that is written as a mapping.
inline constexpr std::string_view kSourcePath = "path";
inline constexpr std::string_view kSourceWeight = "weight";

/// What a key accepts and means, besides its C++ type and its default (the member's initialiser).
struct Spec {
  std::string_view help = {};
  Form form = Form::plain;
  Range range = {};
  bool required = false;
  std::string_view required_for = {};  ///< with `required`: for these words of `variant` only
  std::string_view unless = {};        ///< a sibling key that lifts `required`
  std::string_view derived =
      {};  ///< how the value is found when unset; a number is then 0 until it is derived
  bool auto_word = false;  ///< `auto` may be written for "unset"
  bool all_word = false;   ///< `all` may be, too, and is what "unset" is written as
  bool null_is_value =
      false;             ///< a written null is a choice: the rule of `derived` does not fill it
  bool selects = false;  ///< a word on which the other keys of its section depend; it comes first
  std::string_view variant =
      {};  ///< only for these words of the key that selects, with spaces between
  std::span<const std::string_view> words =
      {};                  ///< texts a string may have; a path: besides a path; a list of whole
                           ///< numbers: in its place, the word i for the number -1 - i alone
  std::size_t length = 0;  ///< number of items of a list; 0: any
  std::string_view single =
      {};  ///< of a section: its key that a single value in place of the mapping sets
  std::string_view single_with = {};   ///< and what that implies: "key=value key=value"
  std::string_view mapping_with = {};  ///< what a mapping implies unless it says otherwise
  ResumeClass resume = ResumeClass::free;
};

/// Whether `word` is one of the words of `list`, which have spaces between them.
[[nodiscard]] bool among_words(std::string_view word, std::string_view list);

/// Whether a key of this variant applies in a section whose key that selects has this word.
[[nodiscard]] bool variant_applies(const Spec& spec, std::string_view word);

/// The words with which a required key is required; empty: with all of them.
[[nodiscard]] std::string_view required_words(const Spec& spec);

/// "cosine or linear" for "cosine linear".
[[nodiscard]] std::string either_word(std::string_view list);

/// An enumeration seen as its words; `value` is the enumerator's number.
struct EnumSlot {
  std::uint8_t* value;
  std::span<const std::string_view> words;
};

/// A member of Config, by reference.
using Slot = std::variant<bool*,
                          std::int64_t*,
                          double*,
                          std::string*,
                          std::optional<bool>*,
                          std::optional<std::int64_t>*,
                          std::optional<double>*,
                          std::vector<std::string>*,
                          std::vector<double>*,
                          std::vector<std::int64_t>*,
                          std::vector<DataSource>*,
                          EnumSlot>;

/// The key of a section that selects, and its word: both empty until it was met.
struct Selected {
  std::string_view key;
  std::string_view word;
};

/// The key as the one that selects, with its present word.
[[nodiscard]] Selected selected_by(std::string_view key, const Slot& slot);

/// Walks over keys in YAML order; describe() calls it. Subclasses say what happens at each key.
class Visitor {
 public:
  virtual ~Visitor() = default;

  /// A scalar or list key.
  template <class T>
  void field(std::string_view key, T& value, const Spec& spec) {
    if constexpr (std::is_enum_v<T>) {
      static_assert(std::is_same_v<std::underlying_type_t<T>, std::uint8_t> && !kWords<T>.empty());
      on_field(key, EnumSlot{reinterpret_cast<std::uint8_t*>(&value), kWords<T>}, spec);
    } else {
      on_field(key, &value, spec);
    }
  }
  /// A mapping that always exists.
  template <class S>
  void section(std::string_view key, S& value, const Spec& spec) {
    if (enter(key, true, spec)) {
      describe(*this, value);
      leave();
    }
  }
  /// A mapping that may be absent.
  template <class S>
  void optional_section(std::string_view key, std::optional<S>& value, const Spec& spec) {
    if (enter(key, value.has_value(), spec)) {
      S inner = value.value_or(S{});
      describe(*this, inner);
      value = inner;
      leave();
    }
  }
  /// A list of mappings.
  template <class S>
  void list(std::string_view key, std::vector<S>& items, const Spec& spec) {
    items.resize(enter_list(key, items.size(), spec));
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (enter_item(i)) {
        describe(*this, items[i]);
        leave();
      }
    }
    leave_list();
  }
  /// A part whose keys are data: its owner reads the tree.
  virtual void tree(std::string_view /*key*/, const Spec& /*spec*/) {}
  /// Of these keys of the section at most one is given; exactly one if `required`.
  virtual void one_of(std::span<const std::string_view> /*keys*/, bool /*required*/) {}

 protected:
  virtual void on_field(std::string_view key, const Slot& slot, const Spec& spec) = 0;
  /// Returns whether to walk through the mapping; if so, leave() follows.
  virtual bool enter(std::string_view key, bool present, const Spec& spec) = 0;
  virtual void leave() = 0;
  /// Returns the number of items to walk through; leave_list() follows.
  virtual std::size_t enter_list(std::string_view key, std::size_t size, const Spec& spec) = 0;
  virtual bool enter_item(std::size_t index) = 0;
  virtual void leave_list() = 0;
};

/// A visitor that knows the path it is at. It walks into what exists, or into everything there
/// could be.
class PathVisitor : public Visitor {
 public:
  explicit PathVisitor(bool everything) : everything_(everything) {}

 protected:
  /// Path of a key of the current section.
  [[nodiscard]] std::string path_of(std::string_view key) const;
  bool enter(std::string_view key, bool present, const Spec& spec) override;
  void leave() override;
  std::size_t enter_list(std::string_view key, std::size_t size, const Spec& spec) override;
  bool enter_item(std::size_t index) override;
  void leave_list() override;

 private:
  bool everything_;
  std::vector<std::string> paths_ = {""};
};

/// Calls `v` for every key of the section, in YAML order.
void describe(Visitor& v, Config& c);
void describe(Visitor& v, RunConfig& c);
void describe(Visitor& v, ModelConfig& c);
void describe(Visitor& v, TokenizerConfig& c);
void describe(Visitor& v, DataConfig& c);
void describe(Visitor& v, LossScaleConfig& c);
void describe(Visitor& v, ActivationCheckpointConfig& c);
void describe(Visitor& v, BatchRampConfig& c);
void describe(Visitor& v, TrainConfig& c);
void describe(Visitor& v, OptimizerGroup& c);
void describe(Visitor& v, OptimizerConfig& c);
void describe(Visitor& v, SchedulerConfig& c);
void describe(Visitor& v, ZeroConfig& c);
void describe(Visitor& v, NvmeConfig& c);
void describe(Visitor& v, GeminiConfig& c);
void describe(Visitor& v, CommConfig& c);
void describe(Visitor& v, ParallelConfig& c);
void describe(Visitor& v, KeepBestConfig& c);
void describe(Visitor& v, CheckpointConfig& c);
void describe(Visitor& v, EvalConfig& c);
void describe(Visitor& v, LoggingConfig& c);

}  // namespace colossal::detail
