// What can be said to the commands that use checkpoints: inspect, generate, export, import?
#include "checkpoint/checkpoint.hpp"
#include "commands.hpp"
#include "infer/exchange.hpp"
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
  add_checkpoint(line, command, options->checkpoint);
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

void add_export(CommandLine& line) {
  CLI::App* command = add_command(line.app,
                                  "export",
                                  "write the weights of a checkpoint for other programs",
                                  "colossal-train export --checkpoint runs/gpt-kjv-cpu --to "
                                  "safetensors -o gpt-kjv/model.safetensors");
  struct Options {
    ExportOptions file;
    std::string format = "safetensors";
  };
  const auto options = std::make_shared<Options>();
  add_checkpoint(line, command, options->file.checkpoint);
  add_option(command, "--to", options->format, "kind of file: safetensors (default)", "KIND")
      ->check(CLI::IsMember({"safetensors"}));
  need(line,
       command,
       add_option(command,
                  "-o,--output",
                  options->file.output,
                  "file to write; config.json comes beside it",
                  "FILE"));
  add_option(command,
             "--dtype",
             options->file.dtype,
             "type of the weights: fp32 (default), bf16, fp16 or fp64",
             "TYPE")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16", "fp64"}));
  command->add_flag("--untie",
                    options->file.untie,
                    "write tied embeddings a second time, as the head that some programs expect");
  set_action(line, command, [options] { return run_export(options->file); });
}

void add_import(CommandLine& line) {
  CLI::App* command = add_command(line.app,
                                  "import",
                                  "make a checkpoint of weights that another program wrote",
                                  "colossal-train import gpt2/model.safetensors --model "
                                  "configs/gpt2.yaml -o runs/gpt2-weights");
  const auto options = std::make_shared<ImportOptions>();
  need(line, command, add_option(command, "FILE", options->file, "a .safetensors file", ""));
  need(line,
       command,
       add_option(command,
                  "--model",
                  options->config,
                  "configuration with the model that the weights are for",
                  "CONFIG"));
  need(line, command, add_option(command, "-o,--output", options->output, "folder to make", "DIR"));
  add_sets(command, options->sets);
  set_action(line, command, [options] {
    options->build_id = build_id();
    return run_import(*options);
  });
}

}  // namespace

void add_checkpoint_commands(CommandLine& line) {
  add_inspect(line);
  add_generate(line);
  add_export(line);
  add_import(line);
}

}  // namespace colossal
