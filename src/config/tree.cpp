// How are nodes found, printed and reported?
#include "config/tree.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace colossal::detail {

const Node* Node::find(std::string_view name) const {
  const auto it = std::find_if(
      children.begin(), children.end(), [&](const Node& child) { return child.key == name; });
  return kind == Kind::map && it != children.end() ? &*it : nullptr;
}

Node* Node::find(std::string_view name) {
  return const_cast<Node*>(static_cast<const Node&>(*this).find(name));
}

std::string kind_text(const Node& node) {
  switch (node.kind) {
    case Node::Kind::map:
      return "a mapping";
    case Node::Kind::list:
      return "a list";
    case Node::Kind::null:
      return "null";
    case Node::Kind::scalar:
      break;
  }
  return "'" + flow_text(node) + "'";
}

namespace {

void append_flow(const Node& node, std::string& out) {
  constexpr std::size_t kLongest = 60;
  if (out.size() > kLongest) {
    return;
  }
  if (node.kind == Node::Kind::scalar || node.kind == Node::Kind::null) {
    out += node.kind == Node::Kind::null ? "null" : node.text;
    return;
  }
  const bool map = node.kind == Node::Kind::map;
  out += map ? '{' : '[';
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    out += i == 0 ? "" : ", ";
    out += map ? node.children[i].key + ": " : "";
    append_flow(node.children[i], out);
  }
  out += map ? '}' : ']';
}

}  // namespace

std::string flow_text(const Node& node) {
  constexpr std::size_t kLongest = 60;
  std::string out;
  append_flow(node, out);
  for (char& c : out) {
    c = static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  }
  if (out.size() > kLongest) {
    std::size_t cut = kLongest - 3;
    while (cut > 0 && (static_cast<unsigned char>(out[cut]) & 0xC0U) == 0x80U) {
      --cut;  // never inside a UTF-8 sequence
    }
    out.resize(cut);
    out += "...";
  }
  return out;
}

std::string join_path(std::string_view parent, std::string_view key) {
  return parent.empty() ? std::string(key) : fmt::format("{}.{}", parent, key);
}

const char* severity_word(Diagnostic::Severity severity) {
  switch (severity) {
    case Diagnostic::Severity::error:
      return "error";
    case Diagnostic::Severity::warning:
      return "warning";
    case Diagnostic::Severity::note:
      break;
  }
  return "note";
}

std::string place(const Origin& origin) {
  std::string text = origin.via.empty() ? "" : origin.via + ", ";
  if (origin.file.starts_with("--")) {
    return text + (origin.line > 0 ? fmt::format("{}#{}", origin.file, origin.line) : origin.file);
  }
  text += origin.file;
  return origin.line > 0 ? fmt::format("{}:{}:{}", text, origin.line, origin.col) : text;
}

namespace {

Diagnostic& graded(Diagnostic& diagnostic, Diagnostic::Severity severity) {
  diagnostic.severity = severity;
  return diagnostic;
}

}  // namespace

Diagnostic& Report::add(Diagnostic::Severity severity, std::string_view id, std::string_view path) {
  Diagnostic& diagnostic = items_.emplace_back();
  diagnostic.severity = severity;
  diagnostic.id = id;
  diagnostic.path = path;
  return diagnostic;
}

Diagnostic& Report::error(std::string_view id,
                          std::string_view path,
                          const Origin& origin,
                          std::string message) {
  Diagnostic& diagnostic = add(Diagnostic::Severity::error, id, path);
  diagnostic.origin = origin;
  diagnostic.message = std::move(message);
  return diagnostic;
}

Diagnostic& Report::warning(std::string_view id,
                            std::string_view path,
                            const Origin& origin,
                            std::string message) {
  return graded(error(id, path, origin, std::move(message)), Diagnostic::Severity::warning);
}

Diagnostic& Report::note(std::string_view id,
                         std::string_view path,
                         const Origin& origin,
                         std::string message) {
  return graded(error(id, path, origin, std::move(message)), Diagnostic::Severity::note);
}

bool Report::has_errors() const {
  return std::any_of(items_.begin(), items_.end(), [](const Diagnostic& item) {
    return item.severity == Diagnostic::Severity::error;
  });
}

}  // namespace colossal::detail
