// Which keys exist? One line per key: type (by the member), range, default (the member's
// initialiser), help, variant, resume class. This is the only place where a key is named.
#include "config/fields.hpp"
#include "config/presets.hpp"

#include <array>

namespace colossal::detail {
namespace {

constexpr auto kMustMatch = ResumeClass::must_match;
constexpr auto kNoted = ResumeClass::noted;
/// Sizes stay below 10^9, so that products of two of them fit into 64 bits.
constexpr Range kSize = between(1, 1e9);
/// A budget of steps, samples or tokens.
constexpr Range kBudget = between(1, 1e15);
/// More blocks than anybody trains, few enough to be listed one by one.
constexpr Range kLayers = between(1, 1e5);
/// Seconds of a wait: up to a year.
constexpr Range kWait = {.min = 0, .max = 366.0 * 86400, .min_open = true};
constexpr Range kFraction = below(0, 1);
/// Bytes of memory or disk: up to a petabyte.
constexpr Range kBytes = between(1, 1e15);
constexpr std::array<std::string_view, 4> kBudgets = {"steps", "epochs", "tokens", "samples"};
constexpr std::array<std::string_view, 2> kWarmups = {"warmup_steps", "warmup_ratio"};
/// Schedules with a warm-up, with a decay that ends, and with a lowest rate.
constexpr std::string_view kWarm =
    "constant linear cosine polynomial step multistep inverse_sqrt wsd flat_cosine";
constexpr std::string_view kEnding = "linear cosine polynomial wsd flat_cosine";
constexpr std::string_view kFloored =
    "linear cosine polynomial step multistep inverse_sqrt wsd flat_cosine";
constexpr std::array<std::string_view, 4> kRecomputed = {"gelu", "norm", "attention", "mlp"};
constexpr std::array<std::string_view, 2> kStopSignals = {"SIGTERM", "SIGUSR1"};
constexpr std::array<std::string_view, 4> kBestMetrics = {
    "train/loss", "eval/loss", "eval/ppl", "eval/accuracy"};
/// In the order of kNoOtherRank and kEveryRank.
constexpr std::array<std::string_view, 2> kRankWords = {"zero", "all"};
constexpr std::array<std::string_view, 3> kResumeWords = {"auto", "never", "require"};

}  // namespace

// clang-format off: one key per line reads as a table
void describe(Visitor& v, Config& c) {
  v.field("version", c.version, {.help = "version of the configuration schema; must be 1", .range = at_least(1)});
  v.section("run", c.run, {.help = "name, output, seed and device of the run"});
  v.section("model", c.model, {.help = "what is trained", .required = true});
  v.section("data", c.data, {.help = "what it is trained on", .required = true});
  v.section("train", c.train, {.help = "length, batch and numerics", .required = true});
  v.section("optimizer", c.optimizer, {.help = "update rule", .required = true});
  v.section("scheduler", c.scheduler, {.help = "learning rate over the run"});
  v.section("parallel", c.parallel, {.help = "how processes share the work"});
  v.section("checkpoint", c.checkpoint, {.help = "when state is saved and how it is resumed"});
  v.section("eval", c.eval, {.help = "when the model is evaluated"});
  v.section("logging", c.logging, {.help = "what is printed and recorded"});
}

void describe(Visitor& v, RunConfig& c) {
  v.field("name", c.name, {.help = "name of the run: up to 80 of A-Z a-z 0-9 . _ -", .derived = "stem of the configuration file"});
  v.field("output_dir", c.output_dir, {.help = "folder of everything the run writes", .form = Form::path, .derived = "runs/NAME in the working directory"});
  v.field("seed", c.seed, {.help = "base of all random numbers: initial weights, dropout, data order; inside an epoch a resume takes another one with --allow run.seed", .range = at_least(0), .resume = kNoted});
  v.field("deterministic", c.deterministic, {.help = "the same program, configuration and processes give the same bits; a cpu always does, and a GPU then uses only algorithms that do, and is a little slower"});
  v.field("device", c.device, {.help = "where tensors live; auto is cuda where the program can use a GPU, else cpu"});
  v.field("device_memory", c.device_memory, {.help = "bytes of tensors a process may hold on its device, more is out of memory; on a cpu it simulates a device of this size; unset: no limit", .form = Form::bytes, .range = kBytes});
  v.field("threads", c.threads, {.help = "computing threads per process", .range = between(1, 4096), .derived = "cores / processes on this host", .auto_word = true});
  v.field("max_time", c.max_time_seconds, {.help = "longest time of a start: ends it with a checkpoint and exit code 75 while there is still time to save; unset: no limit", .form = Form::duration, .range = kWait});
  v.field("stop_signals", c.stop_signals, {.help = "signals that end the run after its step with a checkpoint and exit code 75, as SIGHUP and, with checkpoint.every_steps or every_time, SIGINT do; any other ends it at once", .words = kStopSignals});
}

void describe(Visitor& v, ModelConfig& c) {
  v.field("type", c.type, {.help = "model family: gpt, or mlp, a classifier of rows of features", .required = true, .selects = true, .resume = kMustMatch});
  v.field("preset", c.preset, {.help = "named size that fills num_layers, hidden_size, num_heads, vocab_size and max_seq_length", .variant = "gpt", .words = preset_names()});
  v.field("num_layers", c.num_layers, {.help = "transformer blocks", .range = kLayers, .required = true, .unless = "preset", .variant = "gpt", .resume = kMustMatch});
  v.field("hidden_size", c.hidden_size, {.help = "width of the residual stream", .range = kSize, .required = true, .unless = "preset", .variant = "gpt", .resume = kMustMatch});
  v.field("num_heads", c.num_heads, {.help = "attention heads; must divide hidden_size", .range = kSize, .required = true, .unless = "preset", .variant = "gpt", .resume = kMustMatch});
  v.field("num_kv_heads", c.num_kv_heads, {.help = "key and value heads (grouped-query attention); must divide num_heads", .range = kSize, .derived = "num_heads", .variant = "gpt", .resume = kMustMatch});
  v.field("ffn_hidden_size", c.ffn_hidden_size, {.help = "width of the feed-forward layer", .range = between(1, 4e9), .derived = "4 * hidden_size", .variant = "gpt", .resume = kMustMatch});
  v.field("vocab_size", c.vocab_size, {.help = "number of token ids", .range = kSize, .derived = "size of the tokenizer", .auto_word = true, .variant = "gpt", .resume = kMustMatch});
  v.field("vocab_pad_multiple", c.vocab_pad_multiple, {.help = "embedding rows are padded to a multiple of this", .range = kSize, .variant = "gpt"});
  v.field("max_seq_length", c.max_seq_length, {.help = "number of positions", .range = kSize, .derived = "data.seq_length", .variant = "gpt", .resume = kMustMatch});
  v.field("activation", c.activation, {.help = "non-linearity of the feed-forward layer", .variant = "gpt", .resume = kMustMatch});
  v.field("norm_eps", c.norm_eps, {.help = "epsilon of the normalisation layers", .range = above(0), .variant = "gpt", .resume = kMustMatch});
  v.field("dropout", c.dropout, {.help = "dropout after the embedding and on both residual branches", .range = kFraction, .variant = "gpt", .resume = kNoted});
  v.field("attention_dropout", c.attention_dropout, {.help = "dropout on attention probabilities", .range = kFraction, .variant = "gpt", .resume = kNoted});
  v.field("tie_embeddings", c.tie_embeddings, {.help = "output layer shares the embedding weights", .variant = "gpt", .resume = kMustMatch});
  v.field("attention", c.attention, {.help = "attention kernel; auto picks the fastest available", .variant = "gpt"});
  v.field("init_std", c.init_std, {.help = "standard deviation of initial weights; residual projections of gpt use init_std / sqrt(2 * num_layers)", .range = above(0)});
  v.field("layers", c.layers, {.help = "widths of the hidden layers", .range = kSize, .required = true, .variant = "mlp", .resume = kMustMatch});
  v.field("in_features", c.in_features, {.help = "features of a row", .range = kSize, .required = true, .variant = "mlp", .resume = kMustMatch});
  v.field("out_features", c.out_features, {.help = "classes", .range = between(2, 1e9), .required = true, .variant = "mlp", .resume = kMustMatch});
  v.field("init_from", c.init_from, {.help = "weights that a new run begins with: a checkpoint, a run folder or a .safetensors file; names, shapes and the function of the model must match; once the run has a checkpoint of its own, that comes first", .form = Form::path});
}

void describe(Visitor& v, TokenizerConfig& c) {
  v.field("type", c.type, {.help = "byte: token ids are the bytes 0-255; bpe: byte-pair encoding of GPT-2 or LLaMA; wordpiece: BERT", .required = true, .selects = true, .resume = kMustMatch});
  v.field("path", c.path, {.help = "files of the tokenizer: vocab.json and merges.txt, tokenizer.json or vocab.txt; one of them, or their folder", .form = Form::path, .required = true, .variant = "bpe wordpiece"});
}

void describe(Visitor& v, DataConfig& c) {
  v.field("type", c.type, {.help = "text: files of UTF-8 text; tokens: files of token ids, of Megatron-LM, llm.c or in HDF5; synthetic: generated token ids (for an mlp: features and classes), no files", .required = true, .selects = true, .resume = kMustMatch});
  v.field("train", c.train, {.help = "training files or globs, in order; an item may be {path, weight}: with any weight, samples are drawn from the items by weight (default 1)", .form = Form::path, .required = true, .variant = "text tokens"});
  v.field("eval", c.eval, {.help = "evaluation files or globs, in order", .form = Form::path, .variant = "text tokens"});
  v.field("format", c.format, {.help = "format of token files; auto: megatron if an .idx lies beside the file, else by magic number; hdf5: a dataset `tokens` of whole numbers without filters, and `doc_offsets` (where documents begin, and the end) if documents matter", .variant = "tokens"});
  v.optional_section("tokenizer", c.tokenizer, {.help = "how text becomes token ids; of token files: what made them, by which generate reads and writes text", .required = true, .required_for = "text", .variant = "text tokens", .resume = kMustMatch});
  v.field("seq_length", c.seq_length, {.help = "tokens per sample; not for an mlp, whose samples are rows of features", .form = Form::count, .range = kSize, .derived = "1 for an mlp, else required", .resume = kMustMatch});
  v.field("packing", c.packing, {.help = "concat: all documents in a row, cut every seq_length tokens; greedy: several whole documents a sample; pad: one document a sample", .variant = "text tokens", .resume = kMustMatch});
  v.field("cross_document_attention", c.cross_document_attention, {.help = "false: tokens see their own document only, and positions start anew in each", .variant = "text tokens", .resume = kMustMatch});
  v.field("shuffle", c.shuffle, {.help = "visit training samples in an order given by seed and epoch; inside an epoch a resume takes another one with --allow data.shuffle", .resume = kNoted});
  v.field("last_batch", c.last_batch, {.help = "the end of an epoch that fills no global batch: drop it, pad it with samples without weight, or wrap into the next epoch", .resume = kMustMatch});
  v.field("workers", c.workers, {.help = "loader threads per process", .range = between(0, 1024)});
  v.field("prefetch", c.prefetch, {.help = "micro-batches prepared ahead", .range = between(1, 4096)});
  v.field("validate", c.validate, {.help = "checks of token files before the first step: header, also every id (full), or sizes only (none); an id outside the vocabulary that only reading meets ends the run before its step, with exit code 4, file and byte", .variant = "tokens"});
  v.field("num_samples", c.num_samples, {.help = "size of the synthetic data set", .form = Form::count, .range = between(1, 1e12), .variant = "synthetic", .resume = kMustMatch});
}

void describe(Visitor& v, LossScaleConfig& c) {
  v.field("init", c.init, {.help = "first scale", .range = above(0), .resume = kNoted});
  v.field("growth_interval", c.growth_interval, {.help = "steps without overflow after which the scale grows", .range = at_least(1), .resume = kNoted});
  v.field("growth", c.growth, {.help = "factor of growth; 1: the scale never grows", .range = at_least(1), .resume = kNoted});
  v.field("backoff", c.backoff, {.help = "factor on overflow; 1: the scale never falls", .range = {.min = 0, .max = 1, .min_open = true}, .resume = kNoted});
  v.field("min", c.min, {.help = "lowest scale", .range = above(0), .resume = kNoted});
  v.field("max", c.max, {.help = "highest scale", .range = above(0), .resume = kNoted});
  v.field("hysteresis", c.hysteresis, {.help = "overflows since the last growth before the scale falls", .range = at_least(1), .resume = kNoted});
}

void describe(Visitor& v, ActivationCheckpointConfig& c) {
  v.field("mode", c.mode, {.help = "none: keep all activations for backward; selective: drop those of the operations in `recompute`; full: keep block inputs only and run the blocks again"});
  v.field("every", c.every, {.help = "full only: blocks between two kept inputs", .range = kSize});
  v.field("blocks", c.blocks, {.help = "full only: the first so many blocks with products; all, or auto: every one", .range = kSize, .auto_word = true, .all_word = true});
  v.field("recompute", c.recompute, {.help = "selective only: operations that run again in backward", .words = kRecomputed});
  v.field("offload", c.offload, {.help = "full only: where the kept inputs wait for backward: none: on the device; cpu: in host memory, on a GPU copied beside the computation"});
}

void describe(Visitor& v, BatchRampConfig& c) {
  v.field("start", c.start, {.help = "samples of the first step", .form = Form::count, .range = kSize, .required = true, .resume = ResumeClass::allow});
  v.field("increment", c.increment, {.help = "samples by which a step grows", .form = Form::count, .range = kSize, .required = true, .resume = ResumeClass::allow});
  v.field("samples", c.samples, {.help = "samples until steps are of global_batch_size, in equal parts for each size before", .form = Form::count, .range = kSize, .required = true, .resume = ResumeClass::allow});
}

void describe(Visitor& v, TrainConfig& c) {
  v.field("steps", c.steps, {.help = "length of the run in optimizer steps", .form = Form::count, .range = kBudget, .resume = kNoted});
  v.field("epochs", c.epochs, {.help = "length of the run in passes over the training data", .range = {.min = 0, .max = 1e6, .min_open = true}, .resume = kNoted});
  v.field("tokens", c.tokens, {.help = "length of the run in tokens, rounded up to whole steps", .form = Form::count, .range = kBudget, .resume = kNoted});
  v.field("samples", c.samples, {.help = "length of the run in samples, rounded up to whole steps", .form = Form::count, .range = kBudget, .resume = kNoted});
  v.one_of(kBudgets, true);
  v.field("global_batch_size", c.global_batch_size, {.help = "samples per optimizer step over all processes", .form = Form::count, .range = kSize, .derived = "data * micro_batch_size * gradient_accumulation", .resume = ResumeClass::allow});
  v.field("micro_batch_size", c.micro_batch_size, {.help = "samples per data-parallel replica per forward pass", .form = Form::count, .range = kSize, .derived = "global_batch_size / (data * gradient_accumulation)"});
  v.field("gradient_accumulation", c.gradient_accumulation, {.help = "micro-batches per optimizer step", .range = kSize, .derived = "global_batch_size / (data * micro_batch_size), or 1"});
  v.optional_section("batch_ramp", c.batch_ramp, {.help = "steps that grow from start to global_batch_size by more gradient accumulation; the learning rate is that of the full batch"});
  v.field("precision", c.precision, {.help = "data type of weights and arithmetic; bf16 and fp16 keep fp32 master weights, tf32 is fp32 whose products a GPU rounds to 10 bits"});
  v.field("grad_dtype", c.grad_dtype, {.help = "data type of accumulated gradients; auto: fp32 if gradient_accumulation > 1, else as the weights"});
  v.field("loss_reduction", c.loss_reduction, {.help = "token: mean over the labelled tokens of the step; micro_batch: mean of the means of its micro-batches, which depends on their size where numbers of labels differ; evaluation is always by token", .resume = kNoted});
  v.optional_section("loss_scale", c.loss_scale, {.help = "fp16 only: dynamic scale of the loss; a number: constant scale", .single = "init", .single_with = "growth=1 backoff=1"});
  v.section("activation_checkpoint", c.activation_checkpoint, {.help = "what backward computes again instead of keeping it; a mapping without mode is full", .single = "mode", .mapping_with = "mode=full"});
  v.field("clip_grad_norm", c.clip_grad_norm, {.help = "largest L2 norm of the gradient; 0 is off", .range = at_least(0), .resume = kNoted});
  v.field("label_smoothing", c.label_smoothing, {.help = "share of each target that is spread over all classes (of a vocabulary: without its padding); evaluation does not smooth", .range = kFraction, .resume = kNoted});
  v.field("nonfinite", c.nonfinite, {.help = "on a non-finite loss or gradient norm: stop with exit code 7, or skip the update", .resume = kNoted});
  v.field("max_skipped_steps", c.max_skipped_steps, {.help = "consecutive skipped steps before the run stops with exit code 7", .range = at_least(0)});
  v.field("cuda_graph", c.cuda_graph, {.help = "give forward and backward to a GPU by one call, recorded in earlier steps, where steps are alike and one process computes; auto: where the host would be busy for more than 15 % of a step"});
  v.field("loss_spike", c.loss_spike, {.help = "stop with exit code 7, before the update, when the loss exceeds so many times the mean of the last 100 steps; unset: never", .range = above(1), .resume = kNoted});
}

void describe(Visitor& v, OptimizerGroup& c) {
  v.field("match", c.match, {.help = "glob on parameter names; the first group that matches wins", .required = true, .resume = kNoted});
  v.field("lr_scale", c.lr_scale, {.help = "factor on optimizer.lr", .range = at_least(0), .resume = kNoted});
  v.field("weight_decay", c.weight_decay, {.help = "weight decay of this group", .range = at_least(0), .derived = "optimizer.weight_decay", .resume = kNoted});
}

void describe(Visitor& v, OptimizerConfig& c) {
  v.field("type", c.type, {.help = "update rule", .required = true, .selects = true, .resume = kMustMatch});
  v.field("lr", c.lr, {.help = "peak learning rate", .range = above(0), .required = true, .resume = kNoted});
  v.field("weight_decay", c.weight_decay, {.help = "weight decay: decoupled from the gradient with adamw, lamb, lion and adafactor, added to it (L2) with adam, sgd and lars", .range = at_least(0), .resume = kNoted});
  v.field("no_decay", c.no_decay, {.help = "globs on names of parameters without weight decay", .resume = kNoted});
  v.field("betas", c.betas, {.help = "decay rates of the two moments; lion: share of the momentum in a step, and its decay rate", .range = kFraction, .derived = "[0.9, 0.999], lion [0.9, 0.99]", .variant = "adamw adam lamb lion", .length = 2, .resume = kNoted});
  v.field("eps", c.eps, {.help = "added to the root of the second moment; lars: to the norms", .range = at_least(0), .derived = "1e-8, lamb 1e-6, lars 1e-9", .variant = "adamw adam lamb lars", .resume = kNoted});
  v.field("eps_inside_sqrt", c.eps_inside_sqrt, {.help = "add eps under the root", .variant = "adamw adam lamb", .resume = kNoted});
  v.field("bias_correction", c.bias_correction, {.help = "divide the moments by 1 - beta^t; lamb: moments (as true), lr (scale the rate instead), none (as false)", .variant = "adamw adam lamb", .resume = kNoted});
  v.field("momentum", c.momentum, {.help = "share of the last step that goes on; 0: none, and no state is kept", .range = kFraction, .variant = "sgd lars", .resume = kNoted});
  v.field("nesterov", c.nesterov, {.help = "look ahead along the momentum (Nesterov)", .variant = "sgd lars", .resume = kNoted});
  v.field("momentum_mode", c.momentum_mode, {.help = "where the layer's rate acts: scaled (on the gradient that enters the momentum, with lr), unscaled (on the momentum), larc (on the gradient, without lr)", .variant = "lars", .resume = kNoted});
  v.field("trust_coefficient", c.trust_coefficient, {.help = "factor of a layer's rate, the ratio of the norms of weight and gradient", .range = above(0), .variant = "lars", .resume = kNoted});
  v.field("trust_clip", c.trust_clip, {.help = "upper bound of a layer's rate; null: none", .range = above(0), .derived = "10 (lamb), null (lars)", .null_is_value = true, .variant = "lamb lars", .resume = kNoted});
  v.field("no_adapt", c.no_adapt, {.help = "globs on names of parameters whose layer rate is 1; lars does not decay them either", .derived = "no_decay", .variant = "lamb lars", .resume = kNoted});
  v.field("scale_parameter", c.scale_parameter, {.help = "lr is a share of the root mean square of each parameter (at least of 0.001)", .variant = "adafactor", .resume = kNoted});
  v.field("relative_step", c.relative_step, {.help = "lr is the cap of the rate, which falls as 1 / sqrt(step)", .variant = "adafactor", .resume = kNoted});
  v.field("lr_scaling", c.lr_scaling, {.help = "scale lr with the batch: linear is lr * B / base_batch_size, sqrt is lr * sqrt(B / base_batch_size)", .resume = kNoted});
  v.field("base_batch_size", c.base_batch_size, {.help = "batch for which lr was chosen", .form = Form::count, .range = kSize, .resume = kNoted});
  v.field("state_dtype", c.state_dtype, {.help = "data type of the moments", .variant = "adamw adam lamb", .resume = kNoted});
  v.list("groups", c.groups, {.help = "parameters with their own rate or weight decay", .resume = kNoted});
}

void describe(Visitor& v, SchedulerConfig& c) {
  v.field("type", c.type, {.help = "shape of the learning rate after warm-up; one_cycle rises and falls by itself and moves the momentum too", .selects = true, .resume = kNoted});
  v.field("warmup_steps", c.warmup_steps, {.help = "steps of linear warm-up", .form = Form::count, .range = at_least(0), .variant = kWarm, .resume = kNoted});
  v.field("warmup_ratio", c.warmup_ratio, {.help = "warm-up as a share of the run", .range = kFraction, .variant = kWarm, .resume = kNoted});
  v.one_of(kWarmups, false);
  v.field("warmup_start", c.warmup_start, {.help = "share of lr from which warm-up starts; above 1 it falls to lr", .range = at_least(0), .variant = kWarm, .resume = kNoted});
  v.field("decay_steps", c.decay_steps, {.help = "steps of the decay after warm-up", .form = Form::count, .range = at_least(1), .derived = "total steps - warm-up", .variant = kEnding, .resume = kNoted});
  v.field("min_lr_ratio", c.min_lr_ratio, {.help = "lowest rate as a share of lr", .range = between(0, 1), .variant = kFloored, .resume = kNoted});
  v.field("power", c.power, {.help = "exponent of the decay; 1 is linear", .range = above(0), .variant = "polynomial", .resume = kNoted});
  v.field("step_size", c.step_size, {.help = "steps between two drops", .form = Form::count, .range = at_least(1), .required = true, .variant = "step", .resume = kNoted});
  v.field("milestones", c.milestones, {.help = "steps of the drops, rising, all after the warm-up", .form = Form::count, .range = at_least(1), .required = true, .variant = "multistep", .resume = kNoted});
  v.field("gamma", c.gamma, {.help = "factor of each drop", .range = {.min = 0, .max = 1, .min_open = true}, .variant = "step multistep", .resume = kNoted});
  v.field("stable_ratio", c.stable_ratio, {.help = "share that stays at lr before the decay: of the whole run (wsd), of what follows the warm-up (flat_cosine)", .range = kFraction, .derived = "0.8 (wsd) or 0.72 (flat_cosine)", .variant = "wsd flat_cosine", .resume = kNoted});
  v.field("decay_shape", c.decay_shape, {.help = "how wsd falls: sqrt is 1 - sqrt(q)", .variant = "wsd", .resume = kNoted});
}

void describe(Visitor& v, ZeroConfig& c) {
  v.field("stage", c.stage, {.help = "what data-parallel ranks share instead of holding it all: 1 optimizer states, 2 gradients too, 3 weights too", .range = between(0, 3)});
  v.field("offload", c.offload, {.help = "what lives in host memory: optimizer states and masters; with stage 3 also weights"});
  v.field("bucket_size", c.bucket_size, {.help = "bytes of a chunk, the unit of reductions and gathers", .form = Form::bytes, .range = kBytes, .derived = "an eighth of the model, at most 32 MiB", .auto_word = true});
  v.field("overlap", c.overlap, {.help = "reduce and gather while blocks compute"});
  v.field("prefetch", c.prefetch, {.help = "blocks gathered ahead (stage 3, gemini)", .range = between(0, 1000)});
  v.field("reduce_dtype", c.reduce_dtype, {.help = "data type in which gradients of 16 bits are summed over ranks"});
  v.field("unused_params", c.unused_params, {.help = "parameters without a gradient in a step: an error, or a gradient of zero"});
}

void describe(Visitor& v, NvmeConfig& c) {
  v.field("path", c.path, {.help = "folder on the disk", .form = Form::path, .required = true});
  v.field("fraction", c.fraction, {.help = "share of the optimizer states on disk", .range = between(0, 1)});
  v.field("limit", c.limit, {.help = "most bytes of a rank on disk; unset: what is free", .form = Form::bytes, .range = kBytes});
  v.field("backend", c.backend, {.help = "how files are read and written; auto: io_uring where the kernel has it"});
  v.field("queue_depth", c.queue_depth, {.help = "transfers in flight", .range = between(1, 4096)});
}

void describe(Visitor& v, GeminiConfig& c) {
  v.field("placement", c.placement, {.help = "where chunks live: static by the three fractions; cuda = static(1, 0, 0); cpu = static(1, 1, 1); const: within const_budget; auto: by measured memory", .selects = true});
  v.field("shard_param_frac", c.shard_param_frac, {.help = "share of the weights that is sharded; 1 as zero stage 3, 0 as stage 2", .range = between(0, 1), .variant = "static"});
  v.field("offload_optim_frac", c.offload_optim_frac, {.help = "share of the optimizer states in host memory", .range = between(0, 1), .variant = "static"});
  v.field("offload_param_frac", c.offload_param_frac, {.help = "share of the weights in host memory; above 0 the two above must be 1", .range = between(0, 1), .variant = "static"});
  v.field("const_budget", c.const_budget, {.help = "bytes of gathered weights on the device", .form = Form::bytes, .range = kBytes, .variant = "const"});
  v.field("steady_cuda_cap_ratio", c.steady_cuda_cap_ratio, {.help = "share of the device in use after the measurement", .range = {.min = 0, .max = 1, .min_open = true}, .variant = "auto"});
  v.field("margin_ratio", c.margin_ratio, {.help = "share of the free margin given to optimizer states; homes of weights take the rest", .range = {.min = 0, .max = 1, .min_open = true}, .variant = "auto"});
  v.field("chunk_size", c.chunk_size, {.help = "bytes of a chunk", .form = Form::bytes, .range = kBytes, .derived = "the size with the least waste", .auto_word = true});
  v.field("host_memory", c.host_memory, {.help = "host memory a rank may use for weights, states and inputs (activation_checkpoint.offload)", .form = Form::bytes, .range = kBytes, .derived = "a rank's share of what the host has", .auto_word = true});
  v.field("reserve", c.reserve, {.help = "share of the device that stays free", .range = kFraction, .variant = "auto"});
  v.optional_section("nvme", c.nvme, {.help = "optimizer states on disk"});
}

void describe(Visitor& v, CommConfig& c) {
  v.field("backend", c.backend, {.help = "collective library; auto is gloo on cpu, nccl on cuda"});
  v.field("init_timeout", c.init_timeout_seconds, {.help = "longest wait for all processes to arrive", .form = Form::duration, .range = kWait});
  v.field("timeout", c.timeout_seconds, {.help = "longest wait for a collective", .form = Form::duration, .range = kWait});
}

void describe(Visitor& v, ParallelConfig& c) {
  v.field("data", c.data, {.help = "number of data-parallel replicas", .range = kSize, .derived = "number of processes", .auto_word = true});
  v.section("zero", c.zero, {.help = "memory: what data-parallel ranks share (ZeRO)"});
  v.optional_section("gemini", c.gemini, {.help = "memory: chunks over device, host and disk (Gemini)"});
  v.section("comm", c.comm, {.help = "communication between processes"});
}

void describe(Visitor& v, KeepBestConfig& c) {
  v.field("metric", c.metric, {.help = "which number of the metrics, measured at the very step that is saved: train/loss of its batch, eval/loss, eval/ppl (gpt) or eval/accuracy (mlp)", .required = true, .words = kBestMetrics});
  v.field("mode", c.mode, {.help = "min: the lowest is best, of losses and ppl; max: the highest, of accuracy"});
}

void describe(Visitor& v, CheckpointConfig& c) {
  v.field("every_steps", c.every_steps, {.help = "save every so many steps", .form = Form::count, .range = at_least(1)});
  v.field("every_time", c.every_time_seconds, {.help = "save after the first step that ends so long after the last save, by the clock of rank 0; beside every_steps or alone", .form = Form::duration, .range = kWait});
  v.field("at_end", c.at_end, {.help = "save after the last step"});
  v.field("keep_last", c.keep_last, {.help = "number of newest complete checkpoints kept", .range = at_least(1)});
  v.field("keep_every", c.keep_every, {.help = "checkpoints of steps that this divides are never removed", .form = Form::count, .range = at_least(1)});
  v.optional_section("keep_best", c.keep_best, {.help = "keep the best checkpoint as well; only those of steps at which the metric was measured count"});
  v.field("async", c.async, {.help = "copy the state to host memory and write it beside training; the next save waits for the one under way; the last save does not"});
  v.field("resume", c.resume, {.help = "auto: newest complete checkpoint if any; never; require; or a checkpoint folder", .form = Form::path, .words = kResumeWords});
  v.field("content", c.content, {.help = "full: all that a run needs to go on; weights: those alone, for eval, generate and export: a run that is stopped cannot go on"});
  v.field("checksum", c.checksum, {.help = "store a CRC-32C of every dataset, which loading compares; false: damage inside of a file is not found"});
  v.field("export_at_end", c.export_at_end, {.help = "write the final weights to export/ of the run, as the command export does, in fp32 (fp64 after training in it)"});
}

void describe(Visitor& v, EvalConfig& c) {
  v.field("every_steps", c.every_steps, {.help = "evaluate every so many steps", .form = Form::count, .range = at_least(1)});
  v.field("at_start", c.at_start, {.help = "evaluate before the first step"});
  v.field("at_end", c.at_end, {.help = "evaluate after the last step", .derived = "true if data.eval is given"});
  v.field("max_batches", c.max_batches, {.help = "stop an evaluation after so many batches; unset: all", .form = Form::count, .range = at_least(1)});
  v.field("micro_batch_size", c.micro_batch_size, {.help = "samples per replica per forward pass of an evaluation", .form = Form::count, .range = kSize, .derived = "train.micro_batch_size"});
}

void describe(Visitor& v, ProfilerConfig& c) {
  v.field("start_step", c.start_step, {.help = "first optimizer step that is recorded", .form = Form::count, .range = at_least(1)});
  v.field("steps", c.steps, {.help = "number of steps recorded", .range = between(1, 1000)});
  v.field("memory", c.memory, {.help = "also record resident memory"});
  v.field("trace", c.trace, {.help = "write a Chrome trace per process into profile/; false: print the table of phases only"});
}

void describe(Visitor& v, LoggingConfig& c) {
  v.field("every_steps", c.every_steps, {.help = "log every so many steps; step 1 always", .form = Form::count, .range = at_least(1)});
  v.field("level", c.level, {.help = "least severe level that is printed"});
  v.field("console", c.console, {.help = "form of what is printed: auto, lines with colours where the terminal has them; plain, without colours; json, one object a line with the full precision of metrics.jsonl (what is said before the first step is prepared, and errors that end the run, stay text)"});
  v.field("ranks", c.ranks, {.help = "processes besides the first that write more than warnings and errors into logs/rank-*.log: none (zero), all, or a list", .range = at_least(0), .words = kRankWords});
  v.field("tensorboard", c.tensorboard, {.help = "write event files for TensorBoard into tensorboard/"});
  v.field("csv", c.csv, {.help = "write metrics.csv as well as metrics.jsonl"});
  v.optional_section("profiler", c.profiler, {.help = "record where the time of some steps goes"});
}
// clang-format on

}  // namespace colossal::detail
