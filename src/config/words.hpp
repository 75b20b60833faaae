// Which YAML words stand for which enumerators? Index = enumerator; each word is written once,
// here.
#pragma once

#include "config/config.hpp"

#include <array>
#include <string_view>

namespace colossal::detail {

/// kWords<E>[i] is the word of enumerator i of E.
template <class E>
inline constexpr std::array<std::string_view, 0> kWords{};
template <>
inline constexpr std::array<std::string_view, 3> kWords<DeviceKind> = {"auto", "cpu", "cuda"};
template <>
inline constexpr std::array<std::string_view, 2> kWords<ModelType> = {"gpt", "mlp"};
template <>
inline constexpr std::array<std::string_view, 4> kWords<ActivationKind> = {
    "gelu", "gelu_tanh", "relu", "swiglu"};
template <>
inline constexpr std::array<std::string_view, 2> kWords<AttentionKind> = {"auto", "math"};
template <>
inline constexpr std::array<std::string_view, 3> kWords<DataType> = {"text", "synthetic", "tokens"};
template <>
inline constexpr std::array<std::string_view, 4> kWords<TokenFormat> = {
    "auto", "megatron", "llmc", "hdf5"};
template <>
inline constexpr std::array<std::string_view, 3> kWords<Packing> = {"concat", "greedy", "pad"};
template <>
inline constexpr std::array<std::string_view, 3> kWords<DataValidation> = {
    "header", "full", "none"};
template <>
inline constexpr std::array<std::string_view, 3> kWords<LastBatch> = {"drop", "pad", "wrap"};
template <>
inline constexpr std::array<std::string_view, 3> kWords<TokenizerType> = {
    "byte", "bpe", "wordpiece"};
template <>
inline constexpr std::array<std::string_view, 5> kWords<Precision> = {
    "fp64", "fp32", "tf32", "bf16", "fp16"};
template <>
inline constexpr std::array<std::string_view, 3> kWords<GradDtype> = {"auto", "fp32", "same"};
template <>
inline constexpr std::array<std::string_view, 3> kWords<RecomputeMode> = {
    "none", "selective", "full"};
template <>
inline constexpr std::array<std::string_view, 2> kWords<InputOffload> = {"none", "cpu"};
template <>
inline constexpr std::array<std::string_view, 2> kWords<NonFinite> = {"stop", "skip"};
template <>
inline constexpr std::array<std::string_view, 3> kWords<CudaGraph> = {"auto", "true", "false"};
template <>
inline constexpr std::array<std::string_view, 2> kWords<LossReduction> = {"token", "micro_batch"};
template <>
inline constexpr std::array<std::string_view, 7> kWords<OptimizerType> = {
    "adamw", "adam", "sgd", "lamb", "lars", "lion", "adafactor"};
template <>
inline constexpr std::array<std::string_view, 5> kWords<BiasCorrection> = {
    "true", "false", "moments", "lr", "none"};
template <>
inline constexpr std::array<std::string_view, 3> kWords<MomentumMode> = {
    "scaled", "unscaled", "larc"};
template <>
inline constexpr std::array<std::string_view, 3> kWords<LrScaling> = {"none", "linear", "sqrt"};
template <>
inline constexpr std::array<std::string_view, 2> kWords<StateDtype> = {"fp32", "bf16"};
template <>
inline constexpr std::array<std::string_view, 10> kWords<SchedulerType> = {"constant",
                                                                           "cosine",
                                                                           "linear",
                                                                           "polynomial",
                                                                           "step",
                                                                           "multistep",
                                                                           "inverse_sqrt",
                                                                           "wsd",
                                                                           "flat_cosine",
                                                                           "one_cycle"};
template <>
inline constexpr std::array<std::string_view, 4> kWords<DecayShape> = {
    "linear", "cosine", "sqrt", "exponential"};
template <>
inline constexpr std::array<std::string_view, 3> kWords<Offload> = {
    "none", "optimizer", "optimizer+params"};
template <>
inline constexpr std::array<std::string_view, 2> kWords<ReduceDtype> = {"fp32", "same"};
template <>
inline constexpr std::array<std::string_view, 2> kWords<UnusedParams> = {"error", "zero"};
template <>
inline constexpr std::array<std::string_view, 5> kWords<Placement> = {
    "static", "cuda", "cpu", "const", "auto"};
template <>
inline constexpr std::array<std::string_view, 3> kWords<NvmeBackend> = {
    "auto", "io_uring", "pread"};
template <>
inline constexpr std::array<std::string_view, 2> kWords<BestMode> = {"min", "max"};
template <>
inline constexpr std::array<std::string_view, 2> kWords<CheckpointContent> = {"full", "weights"};
template <>
inline constexpr std::array<std::string_view, 2> kWords<ExportFormat> = {"none", "safetensors"};
template <>
inline constexpr std::array<std::string_view, 3> kWords<CommBackend> = {"auto", "gloo", "nccl"};
template <>
inline constexpr std::array<std::string_view, 3> kWords<ConsoleForm> = {"auto", "plain", "json"};
template <>
inline constexpr std::array<std::string_view, 5> kWords<LogLevel> = {
    "trace", "debug", "info", "warn", "error"};

/// Word of an enumerator.
template <class E>
[[nodiscard]] constexpr std::string_view word(E value) {
  return kWords<E>[static_cast<std::size_t>(value)];
}

}  // namespace colossal::detail
