// Output in order of prompts.
#include "infer/printer.hpp"

#include "core/error.hpp"

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

namespace colossal {

Printer::Printer(std::FILE* out, TextStream::Decode decode, bool json)
    : out_(out), decode_(std::move(decode)), json_(json) {}

void Printer::open(std::uint64_t request,
                   std::string prompt,
                   const std::vector<std::int64_t>& ids) {
  entries_.try_emplace(request,
                       Entry{.prompt = std::move(prompt),
                             .stream = TextStream(decode_, ids),
                             .text = {},
                             .ids = {},
                             .finish = {}});
  print();
}

void Printer::take(const GeneratedToken& token) {
  Entry& entry = entries_.at(token.request);
  entry.finish = token.finish;
  if (token.finish != Finish::end) {
    entry.ids.push_back(token.id);
    entry.text += entry.stream.push(token.id);
  }
  if (token.finish) {
    entry.text += entry.stream.finish();
  }
  print();
}

void Printer::print() {
  while (!entries_.empty()) {
    Entry& first = entries_.begin()->second;
    if (!json_) {
      print_text(first);
    }
    if (!first.finish) {
      return;
    }
    if (json_) {
      print_json(first);
    }
    entries_.erase(entries_.begin());
  }
}

void Printer::print_text(Entry& entry) {
  std::string news = entry.started ? "" : entry.prompt;
  entry.started = true;
  news += entry.text.substr(entry.shown);
  entry.shown = entry.text.size();
  if (entry.finish) {
    news += "\n";
  }
  write(news);
}

void Printer::print_json(const Entry& entry) {
  nlohmann::ordered_json json;
  json["prompt"] = entry.prompt;
  json["text"] = entry.text;
  json["ids"] = entry.ids;
  json["tokens"] = entry.ids.size();
  json["finish"] = *entry.finish == Finish::end ? "end" : "length";
  // bytes that are no UTF-8 become U+FFFD; `ids` has them as they are
  write(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

void Printer::write(std::string_view bytes) {
  if (reader_gone_) {
    return;
  }
  const bool written =
      std::fwrite(bytes.data(), 1, bytes.size(), out_) == bytes.size() && std::fflush(out_) == 0;
  const int error = errno;
  reader_gone_ = !written && error == EPIPE;
  check(written || reader_gone_,
        ErrorKind::environment,
        "output-write",
        "cannot write the generated text: {}",
        std::strerror(error));
  if (reader_gone_) {
    std::clearerr(out_);  // else the program would take it for lost results at its end
  }
}

}  // namespace colossal
