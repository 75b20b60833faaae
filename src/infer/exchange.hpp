// How does a trained model leave to other programs, and how does one of theirs come in?
#pragma once

#include <string>
#include <vector>

namespace colossal {

/// Command line of `export`.
struct ExportOptions {
  std::string checkpoint;      ///< checkpoint folder or run directory (its newest one)
  std::string output;          ///< the .safetensors file; config.json is written beside it
  std::string dtype = "fp32";  ///< of the file: fp32, bf16, fp16 or fp64
  bool untie = false;          ///< tied embeddings also as a head of their own
};

/// Writes the weights of a checkpoint without padding of the vocabulary, by the names of Hugging
/// Face's GPT-2 where it computes the same function, else by our own. Host memory grows by two
/// copies of the largest tensor. Errors: usage "file-exists"; numerics "weights-overflow";
/// environment "output-write"; checkpoint.
void export_weights(const ExportOptions& options);

/// The same as a command: prints the path, returns the exit code.
int run_export(const ExportOptions& options);

/// Command line of `import`.
struct ImportOptions {
  std::string file;               ///< the .safetensors file
  std::string config;             ///< complete configuration whose model the weights are for
  std::vector<std::string> sets;  ///< --set texts over it
  std::string output;             ///< folder that is made; the checkpoint is its step-00000000
  std::string build_id;           ///< of this program
};

/// Writes a checkpoint of weights alone, at step 0, that train --resume, eval and generate read;
/// prints its path. A config.json beside the file must describe the same function. Host memory
/// grows by two copies of the largest tensor. Returns the exit code. Errors: config
/// "output-exists" and those of the configuration (printed); data "file-not-found" and those of the
/// tokenizer; checkpoint "weights-damaged", "weights-dtype", "weights-config", "weights-mismatch"
/// (names the first ten tensors that are missing, unknown or of another shape), "checkpoint-write".
int run_import(const ImportOptions& options);

}  // namespace colossal
