// What can be said to the commands that make and check token files: dataset prepare, dataset
// inspect?
#include "commands.hpp"
#include "core/error.hpp"
#include "data/inspect.hpp"
#include "data/prepare.hpp"

#include <fmt/format.h>

#include <memory>

namespace colossal {
namespace {

DocumentSplit split_from(const std::string& word) {
  return word == "line"         ? DocumentSplit::line
         : word == "blank-line" ? DocumentSplit::blank_line
                                : DocumentSplit::file;
}

void add_prepare(CommandLine& line, CLI::App& parent) {
  CLI::App* command =
      add_command(parent,
                  "prepare",
                  "turn text into a file of token ids (Megatron-LM's .bin and .idx)",
                  "colossal-train dataset prepare --tokenizer bpe:gpt2 books/*.txt "
                  "-o datasets/books");
  struct Options {
    PrepareOptions prepare;
    std::string tokenizer;
    std::string split = "file";
    bool no_eod = false;
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  need(line,
       command,
       add_option(command,
                  "--tokenizer",
                  options->tokenizer,
                  "byte, bpe:PATH or wordpiece:PATH",
                  "KIND[:PATH]"));
  need(line,
       command,
       command->add_option("IN", options->prepare.inputs, "text files; - for standard input")
           ->type_name(""));
  need(line,
       command,
       add_option(
           command, "-o,--output", options->prepare.output, "writes OUT.bin and OUT.idx", "OUT"));
  command
      ->add_option("--split-documents",
                   options->split,
                   "what a document is: file (default), line, or blank-line for paragraphs")
      ->type_name("AT")
      ->check(CLI::IsMember({"file", "line", "blank-line"}));
  command->add_flag(
      "--no-eod", options->no_eod, "leave out the id that ends each document otherwise");
  add_format(command, options->json);
  set_action(line, command, [options] {
    options->prepare.tokenizer = parse_tokenizer(options->tokenizer);
    options->prepare.split = split_from(options->split);
    options->prepare.end_documents = !options->no_eod;
    const PrepareReport report = prepare_dataset(options->prepare);
    fmt::print("{}", options->json ? to_json(report) : to_text(report));
    return 0;
  });
}

void add_inspect_dataset(CommandLine& line, CLI::App& parent) {
  CLI::App* command = add_command(parent,
                                  "inspect",
                                  "check every id of token files and say what they hold",
                                  "colossal-train dataset inspect datasets/books.bin --tokenizer "
                                  "bpe:gpt2");
  struct Options {
    InspectDatasetOptions inspect;
    std::string tokenizer;
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  need(line,
       command,
       command
           ->add_option(
               "FILE", options->inspect.files, "Megatron-LM's .bin or .idx, llm.c's .bin, HDF5")
           ->type_name(""));
  add_option(command,
             "--tokenizer",
             options->tokenizer,
             "show the beginning as text, and check that its vocabulary holds every id",
             "KIND[:PATH]");
  add_format(command, options->json);
  set_action(line, command, [options] {
    if (!options->tokenizer.empty()) {
      options->inspect.tokenizer = parse_tokenizer(options->tokenizer);
    }
    for (const DatasetReport& report : inspect_datasets(options->inspect)) {
      fmt::print("{}", options->json ? to_json(report) : to_text(report));
    }
    return 0;
  });
}

}  // namespace

void add_dataset_commands(CommandLine& line) {
  CLI::App* dataset = add_command(line.app,
                                  "dataset",
                                  "make and check files of token ids",
                                  "colossal-train dataset inspect datasets/books.bin");
  add_prepare(line, *dataset);
  add_inspect_dataset(line, *dataset);
}

}  // namespace colossal
