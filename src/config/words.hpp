// Which YAML words stand for which enumerators? Index = enumerator; each word is written once,
// here.
#pragma once

#include "config/config.hpp"

#include <array>
#include <string_view>

namespace colossal::detail {

template <class E>
struct Words;

template <>
struct Words<DeviceKind> {
  static constexpr std::array<std::string_view, 2> kAll = {"auto", "cpu"};
};
template <>
struct Words<ModelType> {
  static constexpr std::array<std::string_view, 1> kAll = {"gpt"};
};
template <>
struct Words<ActivationKind> {
  static constexpr std::array<std::string_view, 4> kAll = {"gelu", "gelu_tanh", "relu", "swiglu"};
};
template <>
struct Words<AttentionKind> {
  static constexpr std::array<std::string_view, 2> kAll = {"auto", "math"};
};
template <>
struct Words<DataType> {
  static constexpr std::array<std::string_view, 2> kAll = {"text", "synthetic"};
};
template <>
struct Words<TokenizerType> {
  static constexpr std::array<std::string_view, 1> kAll = {"byte"};
};
template <>
struct Words<Precision> {
  static constexpr std::array<std::string_view, 2> kAll = {"fp64", "fp32"};
};
template <>
struct Words<NonFinite> {
  static constexpr std::array<std::string_view, 2> kAll = {"stop", "skip"};
};
template <>
struct Words<OptimizerType> {
  static constexpr std::array<std::string_view, 1> kAll = {"adamw"};
};
template <>
struct Words<SchedulerType> {
  static constexpr std::array<std::string_view, 2> kAll = {"constant", "cosine"};
};
template <>
struct Words<CommBackend> {
  static constexpr std::array<std::string_view, 2> kAll = {"auto", "gloo"};
};
template <>
struct Words<LogLevel> {
  static constexpr std::array<std::string_view, 5> kAll = {
      "trace", "debug", "info", "warn", "error"};
};

/// Word of an enumerator.
template <class E>
[[nodiscard]] constexpr std::string_view word(E value) {
  return Words<E>::kAll[static_cast<std::size_t>(value)];
}

}  // namespace colossal::detail
