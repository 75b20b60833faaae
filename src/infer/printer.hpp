// How do continuations reach the reader? In the order of the prompts: the first unfinished one as
// it comes, the others when it is their turn.
#pragma once

#include "infer/generator.hpp"
#include "infer/text_stream.hpp"

#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace colossal {

/// Prints what the generator tells. Text: each prompt, its continuation and a newline. JSON: one
/// object a line: prompt, text, ids, tokens, finish ("end" or "length").
class Printer {
 public:
  /// `out` must outlive the printer.
  Printer(std::FILE* out, TextStream::Decode decode, bool json);

  /// A prompt was taken in; requests count up. Errors: environment "output-write"; a reader who has
  /// gone is none.
  void open(std::uint64_t request, std::string prompt, const std::vector<std::int64_t>& ids);
  /// Errors: as open().
  void take(const GeneratedToken& token);
  /// Has the reader closed his end of the pipe (`| head`)? Nothing more is written then.
  [[nodiscard]] bool reader_gone() const noexcept { return reader_gone_; }

 private:
  struct Entry {
    std::string prompt;
    TextStream stream;
    std::string text;       // of the continuation so far
    std::size_t shown = 0;  // bytes of it
    bool started = false;   // its prompt is printed
    std::vector<std::int64_t> ids;
    std::optional<Finish> finish;
  };

  /// Prints what can be printed of the first entries and forgets finished ones.
  void print();
  void print_text(Entry& entry);
  void print_json(const Entry& entry);
  void write(std::string_view bytes);

  std::FILE* out_;
  TextStream::Decode decode_;
  bool json_;
  bool reader_gone_ = false;
  std::map<std::uint64_t, Entry> entries_;
};

}  // namespace colossal
