// What can be said to the commands that use checkpoints: inspect, generate?
#include "checkpoint/checkpoint.hpp"
#include "commands.hpp"
#include "infer/generate.hpp"

#include <fmt/format.h>

#include <memory>

namespace colossal {
namespace {

void add_inspect(CommandLine& line) {
  CLI::App* command = add_command(line.app,
                                  "inspect",
                                  "what a checkpoint holds, whether it is whole, how two differ",
                                  "colossal-train inspect runs/tiny-cpu --tensors --verify");
  struct Options {
    std::string path;
    std::string diff;
    InspectOptions inspect;
  };
  const auto options = std::make_shared<Options>();
  need(line,
       command,
       add_option(command, "PATH", options->path, "checkpoint folder or run directory", ""));
  command->add_flag("--tensors", options->inspect.tensors, "list every tensor");
  command->add_flag("--verify", options->inspect.verify, "read every byte and compare checksums");
  add_option(command, "--diff", options->diff, "compare with another checkpoint", "OTHER");
  add_format(command, options->inspect.json);
  set_action(line, command, [options] {
    if (!options->diff.empty()) {
      options->inspect.diff = options->diff;
    }
    fmt::print("{}", inspect(options->path, options->inspect));
    return 0;
  });
}

void add_sampling(CLI::App* command, SamplingOptions& options) {
  add_option(command,
             "--temperature",
             options.temperature,
             "logits are divided by it (default 1); 0: always the most likely token",
             "T");
  add_option(
      command, "--top-k", options.top_k, "only the K most likely tokens (default 0: all)", "K");
  add_option(command,
             "--top-p",
             options.top_p,
             "only the most likely tokens that together reach P (default 1: all)",
             "P");
  add_option(command,
             "--repetition-penalty",
             options.repetition_penalty,
             "above 1 makes tokens of the text so far less likely (default 1)",
             "R");
  add_option(command, "--seed", options.seed, "of the random numbers (default 0)", "N");
}

void add_generate(CommandLine& line) {
  CLI::App* command = add_command(line.app,
                                  "generate",
                                  "continue texts with the model of a checkpoint",
                                  "colossal-train generate --checkpoint runs/gpt-kjv-cpu --prompt "
                                  "\"In the beginning \" --top-p 0.9");
  const auto options = std::make_shared<GenerateOptions>();
  need(line,
       command,
       add_option(command,
                  "--checkpoint",
                  options->checkpoint,
                  "checkpoint folder or run directory",
                  "DIR"));
  need(line,
       command,
       add_option(command,
                  "--prompt",
                  options->prompt,
                  "text to continue; '-': one a line from stdin",
                  "TEXT"));
  add_option(
      command, "--max-tokens", options->max_tokens, "new tokens of each prompt (default 200)", "N");
  add_sampling(command, options->sampling);
  add_format(command, options->json);
  add_sets(command, options->sets);
  set_action(line, command, [options] { return run_generate(*options); });
}

}  // namespace

void add_checkpoint_commands(CommandLine& line) {
  add_inspect(line);
  add_generate(line);
}

}  // namespace colossal
