// How do blocks of a file become documents?
#include "data/detail/document_reader.hpp"

#include "config/suggest.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>

namespace colossal::detail {
namespace {

constexpr std::size_t kBlockBytes = 1U << 20U;
constexpr std::size_t kPieceBytes = 256U << 10U;

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\f\v") == std::string_view::npos;
}

}  // namespace

DocumentReader::DocumentReader(const std::vector<std::string>& inputs,
                               DocumentSplit split,
                               const Tokenizer& tokenizer)
    : inputs_(inputs), split_(split), tokenizer_(tokenizer) {}

DocumentReader::~DocumentReader() {
  close();
}

void DocumentReader::open() {
  const std::string& name = inputs_[input_];
  descriptor_ = name == "-" ? ::dup(STDIN_FILENO) : ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
  const int code = errno;
  if (descriptor_ < 0 && code == ENOENT) {
    const auto near = nearest_file(name);
    fail(ErrorKind::data,
         "file-not-found",
         "input '{}' does not exist; {}",
         name,
         near ? fmt::format("did you mean '{}'?", *near)
              : "name text files, or - for standard input");
  }
  check(descriptor_ >= 0,
        ErrorKind::data,
        "data-unreadable",
        "input '{}' cannot be opened: {}\n  fix   give this user the right to read it",
        name,
        std::generic_category().message(code));
  end_ = false;
  buffer_.clear();
  begin_ = 0;
  scanned_ = 0;
}

void DocumentReader::close() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
    descriptor_ = -1;
  }
}

bool DocumentReader::fill() {
  if (end_) {
    return false;
  }
  buffer_.erase(0, begin_);
  begin_ = 0;
  const std::size_t size = buffer_.size();
  buffer_.resize(size + kBlockBytes);
  ssize_t count = 0;
  do {
    count = ::read(descriptor_, buffer_.data() + size, kBlockBytes);
  } while (count < 0 && errno == EINTR);
  check(count >= 0,
        ErrorKind::data,
        "data-unreadable",
        "input '{}' cannot be read: {}\n  fix   name a file, not a directory, on a disk that is "
        "sound",
        inputs_[input_],
        std::generic_category().message(errno));
  buffer_.resize(size + static_cast<std::size_t>(count));
  end_ = count == 0;
  return !end_;
}

std::string_view DocumentReader::rest() const {
  return std::string_view(buffer_).substr(begin_);
}

std::optional<std::string> DocumentReader::next_line() {
  std::size_t searched = 0;
  std::size_t end = rest().find('\n');
  while (end == std::string_view::npos) {
    searched = rest().size();
    if (!fill()) {
      break;
    }
    end = rest().find('\n', searched);
  }
  if (end == std::string_view::npos && rest().empty()) {
    return std::nullopt;
  }
  std::string line(rest().substr(0, end));
  begin_ += std::min(line.size() + 1, rest().size());
  if (line.ends_with('\r')) {
    line.pop_back();
  }
  return line;
}

std::optional<DocumentPiece> DocumentReader::next_paragraph() {
  std::optional<DocumentPiece> piece;
  while (const auto line = next_line()) {
    if (!is_blank(*line)) {
      piece = piece ? std::move(piece) : DocumentPiece{};
      piece->text += (piece->text.empty() ? "" : "\n") + *line;
    } else if (piece) {
      break;
    }
  }
  return piece;
}

/// Part of a whole file: up to a place to cut after some 256 KiB, or its end.
std::optional<DocumentPiece> DocumentReader::next_part() {
  for (;;) {
    const std::size_t from = std::max(scanned_, kPieceBytes);
    const std::size_t cut =
        rest().size() > from ? tokenizer_.boundary(rest(), from) : rest().size();
    if (cut < rest().size()) {
      DocumentPiece piece{.text = std::string(rest().substr(0, cut)), .ends_document = false};
      begin_ += cut;
      scanned_ = 0;
      return piece;
    }
    scanned_ = rest().size();
    if (!fill()) {
      return DocumentPiece{.text = std::string(rest())};
    }
  }
}

std::optional<DocumentPiece> DocumentReader::next_of_input() {
  if (split_ == DocumentSplit::file) {
    return next_part();
  }
  if (split_ == DocumentSplit::blank_line) {
    return next_paragraph();
  }
  auto line = next_line();
  return line ? std::optional(DocumentPiece{.text = std::move(*line)}) : std::nullopt;
}

std::optional<DocumentPiece> DocumentReader::next() {
  while (input_ < inputs_.size()) {
    if (descriptor_ < 0) {
      open();
    }
    std::optional<DocumentPiece> piece = next_of_input();
    if (piece) {
      piece->input = input_;
    }
    if (!piece || (split_ == DocumentSplit::file && piece->ends_document)) {
      close();
      ++input_;
    }
    if (piece) {
      return piece;
    }
  }
  return std::nullopt;
}

}  // namespace colossal::detail
