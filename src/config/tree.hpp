// How does the loader hold YAML with provenance? A plain tree: every value and key knows where it
// was written.
#pragma once

#include "config/load.hpp"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace colossal::detail {

/// One value of the composed configuration. Children serve lists and mappings; `key` is set in
/// mappings.
struct Node {
  enum class Kind : std::uint8_t { null, scalar, list, map };
  Kind kind = Kind::null;
  std::string text;        ///< scalar as written, without quotes; after phase P2 without `${...}`
  bool quoted = false;     ///< the scalar was in quotes, or a block
  bool block = false;      ///< the scalar was a block of lines, after | or >
  std::string expression;  ///< the text before phase P2, if it held `${...}`
  std::string shown;       ///< what to write out instead of a text with a secret in it
  Origin origin;
  int layer = 0;  ///< order of precedence: file loaded first = 1; overrides are highest
  std::string key;
  Origin key_origin;
  std::vector<Node> children;
  std::vector<Node> before;  ///< values of lower layers that this one replaced, in order

  /// Child of a mapping by key; nullptr if absent.
  [[nodiscard]] const Node* find(std::string_view name) const;
  [[nodiscard]] Node* find(std::string_view name);
};

/// "a mapping", "a list", "null" or the quoted scalar, for messages.
[[nodiscard]] std::string kind_text(const Node& node);

/// Value as it would be written in flow style, for `with` lines; at most 60 characters.
[[nodiscard]] std::string flow_text(const Node& node);

/// "a.b" + "c" -> "a.b.c"; an empty parent gives the key.
[[nodiscard]] std::string join_path(std::string_view parent, std::string_view key);

/// "--set#2", "<default>", "derived(num_heads)" or "file:line:col".
[[nodiscard]] std::string place(const Origin& origin);

/// What stands for standard input in the place of a file's name.
inline constexpr const char* kStdinName = "<stdin>";

/// "error", "warning" or "note".
[[nodiscard]] const char* severity_word(Diagnostic::Severity severity);

/// One JSON object per line and diagnostic: id, severity, message, file, line, column, path,
/// related, fix. Unknown lines and columns are 0.
[[nodiscard]] std::string json_lines(std::span<const Diagnostic> diagnostics);

/// Sorts diagnostics by place, those of `main_file` first, and keeps the first 20 errors.
void settle(std::vector<Diagnostic>& items, const std::string& main_file);

/// Collects diagnostics in the order they are found.
class Report {
 public:
  /// Adds an error; the reference lets the caller fill in why, fix and related. Valid until the
  /// next add.
  Diagnostic& error(std::string_view id,
                    std::string_view path,
                    const Origin& origin,
                    std::string message);
  /// Adds a warning, else as error().
  Diagnostic& warning(std::string_view id,
                      std::string_view path,
                      const Origin& origin,
                      std::string message);
  /// Adds a note, else as error().
  Diagnostic& note(std::string_view id,
                   std::string_view path,
                   const Origin& origin,
                   std::string message);

  /// Whether any error (not only warnings and notes) was added.
  [[nodiscard]] bool has_errors() const;
  /// Everything added so far.
  [[nodiscard]] std::vector<Diagnostic>& items() { return items_; }

 private:
  Diagnostic& add(Diagnostic::Severity severity, std::string_view id, std::string_view path);
  std::vector<Diagnostic> items_;
};

}  // namespace colossal::detail
