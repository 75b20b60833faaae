// What can a run be told? One struct per YAML section; every field is a key that works
// (config-and-cli section 2).
#pragma once

#include "config/checkpoint_config.hpp"
#include "config/optimizer_config.hpp"
#include "config/parallel_config.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace colossal {

/// Words of the configuration.
enum class DeviceKind : std::uint8_t { automatic, cpu, cuda };
enum class ModelType : std::uint8_t { gpt, mlp };
enum class ActivationKind : std::uint8_t { gelu, gelu_tanh, relu, swiglu };
enum class AttentionKind : std::uint8_t { automatic, math };
enum class DataType : std::uint8_t { text, synthetic, tokens };
enum class TokenFormat : std::uint8_t { automatic, megatron, llmc, hdf5 };
enum class Packing : std::uint8_t { concat, greedy, pad };
enum class LastBatch : std::uint8_t { drop, pad, wrap };
enum class DataValidation : std::uint8_t { header, full, none };
enum class TokenizerType : std::uint8_t { byte, bpe, wordpiece };
enum class Precision : std::uint8_t { fp64, fp32, tf32, bf16, fp16 };
enum class GradDtype : std::uint8_t { automatic, fp32, same };
enum class RecomputeMode : std::uint8_t { none, selective, full };
enum class InputOffload : std::uint8_t { none, cpu };
enum class NonFinite : std::uint8_t { stop, skip };
enum class CudaGraph : std::uint8_t { automatic, on, off };
enum class LossReduction : std::uint8_t { token, micro_batch };
enum class LogLevel : std::uint8_t { trace, debug, info, warn, error };
enum class ConsoleForm : std::uint8_t { automatic, plain, json };

/// YAML section `run`.
struct RunConfig {
  std::string name;        ///< default: stem of the config file
  std::string output_dir;  ///< default: runs/<name> under the working directory
  std::int64_t seed = 1234;
  bool deterministic = false;
  DeviceKind device = DeviceKind::automatic;
  std::optional<std::int64_t> device_memory = {};  ///< bytes a rank may use; unset: no limit
  std::optional<std::int64_t> threads =
      {};  ///< intra-op threads per rank; unset = auto: cores / local world size
  std::optional<double> max_time_seconds = {};  ///< of the process; unset: no limit
  std::vector<std::string> stop_signals = {"SIGTERM", "SIGUSR1"};
};

/// YAML section `model`.
struct ModelConfig {
  ModelType type = ModelType::gpt;
  std::string preset;  ///< empty: none
  std::int64_t num_layers = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;     ///< derived: num_heads
  std::int64_t ffn_hidden_size = 0;  ///< derived: 4 * hidden_size
  std::int64_t vocab_size = 0;       ///< `auto` is derived from the tokenizer
  std::int64_t vocab_pad_multiple = 128;
  std::int64_t max_seq_length = 0;  ///< derived: data.seq_length
  ActivationKind activation = ActivationKind::gelu_tanh;
  double norm_eps = 1e-5;
  double dropout = 0;
  double attention_dropout = 0;
  bool tie_embeddings = true;
  AttentionKind attention = AttentionKind::automatic;
  double init_std = 0.02;
  std::vector<std::int64_t> layers = {};  ///< mlp only: widths of the hidden layers
  std::int64_t in_features = 0;           ///< mlp only
  std::int64_t out_features = 0;          ///< mlp only
  std::string init_from;  ///< weights to begin with: a checkpoint or a .safetensors; empty: random
};

/// YAML section `data.tokenizer`.
struct TokenizerConfig {
  TokenizerType type = TokenizerType::byte;
  std::string path;  ///< bpe: folder of vocab.json and merges.txt, or tokenizer.json; wordpiece:
                     ///< vocab.txt
};

/// An item of `data.train` or `data.eval`: a path, or {path, weight}.
struct DataSource {
  std::string path;  ///< file or glob; absolute after load
  std::optional<double> weight =
      {};  ///< share of the samples; unset in all items: files are joined
  bool operator==(const DataSource&) const = default;
};

/// YAML section `data`.
struct DataConfig {
  DataType type = DataType::text;
  std::vector<DataSource> train = {};  ///< in order
  std::vector<DataSource> eval = {};
  std::optional<TokenizerConfig> tokenizer = {};
  std::int64_t seq_length = 0;
  bool shuffle = true;
  std::int64_t workers = 2;
  std::int64_t prefetch = 4;                    ///< micro-batches
  std::int64_t num_samples = 10'000;            ///< synthetic only
  TokenFormat format = TokenFormat::automatic;  ///< tokens only
  Packing packing = Packing::concat;
  bool cross_document_attention = true;  ///< false: block-diagonal mask, positions reset
  LastBatch last_batch = LastBatch::drop;
  DataValidation validate = DataValidation::header;
};

/// YAML section `train.loss_scale` (fp16 only).
struct LossScaleConfig {
  double init = 65536;
  std::int64_t growth_interval = 1000;  ///< clean steps between two rises
  double growth = 2;
  double backoff = 0.5;
  double min = 1;
  double max = 4294967296;
  std::int64_t hysteresis = 2;  ///< overflows before the scale falls
};

/// YAML section `train.activation_checkpoint`.
struct ActivationCheckpointConfig {
  RecomputeMode mode = RecomputeMode::none;
  std::int64_t every = 1;                   ///< blocks per checkpoint
  std::optional<std::int64_t> blocks = {};  ///< only the first of each stage; unset = auto: all
  std::vector<std::string> recompute = {"gelu", "norm"};  ///< selective only
  InputOffload offload = InputOffload::none;  ///< where the inputs of blocks that run again wait
};

/// YAML section `train.batch_ramp`: the global batch grows to train.global_batch_size.
struct BatchRampConfig {
  std::int64_t start = 0;      ///< samples of the first step
  std::int64_t increment = 0;  ///< samples by which it grows
  std::int64_t samples = 0;    ///< consumed until it is full
};

/// YAML section `train`.
struct TrainConfig {
  std::optional<std::int64_t> steps = {};  ///< exactly one of steps, epochs, tokens, samples
  std::optional<double> epochs = {};
  std::optional<std::int64_t> tokens = {};
  std::optional<std::int64_t> samples = {};
  std::int64_t global_batch_size =
      0;  ///< derived when absent, as the next two (config-and-cli 5.2)
  std::int64_t micro_batch_size = 0;
  std::int64_t gradient_accumulation = 0;
  std::optional<BatchRampConfig> batch_ramp = {};
  Precision precision = Precision::fp32;
  GradDtype grad_dtype = GradDtype::automatic;
  LossReduction loss_reduction = LossReduction::token;
  std::optional<LossScaleConfig> loss_scale = {};  ///< fp16 only; unset there: the defaults
  ActivationCheckpointConfig activation_checkpoint;
  double clip_grad_norm = 0;  ///< 0: off
  double label_smoothing = 0;
  NonFinite nonfinite = NonFinite::stop;
  std::int64_t max_skipped_steps = 50;
  CudaGraph cuda_graph = CudaGraph::automatic;
  std::optional<double> loss_spike = {};  ///< factor on the mean of the last losses; unset: off
};

/// YAML section `eval`.
struct EvalConfig {
  std::optional<std::int64_t> every_steps = {};
  bool at_start = false;
  std::optional<bool> at_end = {};  ///< unset: true if data.eval is given (resolved by load)
  std::optional<std::int64_t> max_batches = {};
  std::int64_t micro_batch_size = 0;  ///< derived: train.micro_batch_size
};

/// YAML section `logging.profiler`.
struct ProfilerConfig {
  std::int64_t start_step = 2;
  std::int64_t steps = 1;
  bool memory = false;
  bool trace = true;
};

/// Words of logging.ranks in place of a list: `zero` and `all`.
inline constexpr std::int64_t kNoOtherRank = -1;
inline constexpr std::int64_t kEveryRank = -2;

/// YAML section `logging`.
struct LoggingConfig {
  std::int64_t every_steps = 10;
  LogLevel level = LogLevel::info;
  ConsoleForm console = ConsoleForm::automatic;
  std::vector<std::int64_t> ranks = {kNoOtherRank};  ///< or kEveryRank: that alone
  bool tensorboard = true;
  bool csv = false;
  std::optional<ProfilerConfig> profiler = {};
};

/// What must not be written out: values that came from environment variables whose names say so.
struct Secrets {
  std::map<std::string, std::string> shown;   ///< by key path: YAML to write instead of the value
  std::map<std::string, std::string> values;  ///< by value of a variable: its `${env:NAME}`
};

/// Everything that decides a run's behaviour. Built by load(), then const.
struct Config {
  std::int64_t version = 1;
  RunConfig run;
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  OptimizerConfig optimizer;
  SchedulerConfig scheduler;
  ParallelConfig parallel;
  CheckpointConfig checkpoint;
  EvalConfig eval;
  LoggingConfig logging;
  Secrets secrets;  ///< not keys
};

/// Rows of the embedding matrix: vocab_size rounded up to vocab_pad_multiple.
[[nodiscard]] std::int64_t padded_vocab(const ModelConfig& model);

/// Standard optimizer.eps of a type: 1e-8, lamb 1e-6, lars 1e-9.
[[nodiscard]] double default_eps(OptimizerType type) noexcept;

/// Optimizer steps of the whole run. `train_samples`: size of one epoch of the training set (needed
/// for epochs only; 0 = unknown). Token and sample budgets round up to whole steps; steps of a
/// train.batch_ramp count as they are. Errors:
/// internal if epochs is set and `train_samples` is 0.
[[nodiscard]] std::int64_t total_steps(const Config& config, std::int64_t train_samples);

}  // namespace colossal
