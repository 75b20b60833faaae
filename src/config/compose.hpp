// How do several files become one tree? `extends` in any mapping, merged key by key
// (config-and-cli 1.2).
#pragma once

#include "config/standalone.hpp"
#include "config/tree.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace colossal::detail {

/// Loads files with their `extends`. Files loaded earlier get lower layers, so that precedence
/// stays known afterwards.
class Composer {
 public:
  /// `texts`: what stands for files of these names; other files are read.
  explicit Composer(Report& report, const Texts* texts = nullptr)
      : report_(report), texts_(texts) {}

  /// The composed mapping of `file`. Reports the ids of parse_yaml and file-not-found,
  /// file-not-readable, empty-config, wrong-type, extends-cycle, extends-depth. `from` is the place
  /// that named the file (empty for the main file).
  [[nodiscard]] std::optional<Node> load(const std::filesystem::path& file,
                                         const std::optional<Origin>& from = std::nullopt);

  /// As load() for a text that lies in no file and that `name` stands for.
  [[nodiscard]] std::optional<Node> load_text(std::string_view text, const std::string& name);

  /// As load(), but the file may hold any value (`--set KEY@FILE`).
  [[nodiscard]] std::optional<Node> load_value(const std::filesystem::path& file,
                                               const std::optional<Origin>& from);

  /// Layer of whatever is loaded or set next; the highest so far.
  [[nodiscard]] int next_layer() { return ++layer_; }

 private:
  [[nodiscard]] bool enter(const std::filesystem::path& file, const Origin& place);
  [[nodiscard]] std::optional<std::string> read(const std::filesystem::path& file,
                                                const std::optional<Origin>& from,
                                                const Origin& place);
  [[nodiscard]] std::optional<Node> parse(std::string_view text,
                                          const std::filesystem::path& file,
                                          const Origin& base);
  [[nodiscard]] std::optional<Node> only_mapping(std::optional<Node> root, Origin top);
  void resolve(Node& node, const std::filesystem::path& directory);
  [[nodiscard]] std::optional<Node> parent(const Node& name,
                                           const std::filesystem::path& directory);

  Report& report_;
  const Texts* texts_;
  int layer_ = 0;
  std::vector<std::string> stack_;
};

/// Deep merge of `over` onto `base`: mappings key by key, anything else is replaced whole.
void merge(Node& base, Node over);

/// Puts `over` in the place of `base` and keeps what was there in Node::before.
void replace(Node& base, Node over);

}  // namespace colossal::detail
