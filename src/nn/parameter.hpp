// What is a parameter? A name, a global shape, a layout and an initialisation; its memory belongs
// to someone else.
#pragma once

#include "core/types.hpp"
#include "mesh/context.hpp"
#include "mesh/layout.hpp"
#include "mesh/random.hpp"

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace colossal {

/// Everything about a parameter but its bytes; the same on every layout and stage.
struct ParamSpec {
  std::string name;  ///< canonical: "blocks.3.attn.qkv.weight"
  Shape shape;       ///< logical global shape: what checkpoints store
  Shape padded;      ///< stored global shape; equal to shape unless padded (vocabulary)
  Layout layout;     ///< replicated on dr, dp, sp always; tensor axes as the mode says
  InitSpec init;
  std::string tied_to;  ///< name of the parameter whose memory this one shares; empty: none
};

/// A parameter of a block. tensor() is the only access to its data; owners give and take the
/// memory.
class Parameter {
 public:
  explicit Parameter(ParamSpec spec);
  /// What the parameter is; `padded` is filled in.
  [[nodiscard]] const ParamSpec& spec() const noexcept { return spec_; }
  /// This rank's part, a leaf of autograd. Errors: internal "parameter-unavailable" naming the
  /// parameter while its owner has not acquired it.
  [[nodiscard]] const at::Tensor& tensor() const;

  /// For owners of the memory only: gives the leaf (local shape, requires_grad, .grad()
  /// preinstalled if wanted).
  void attach(at::Tensor leaf);
  /// For owners only: marks the data valid or not; the leaf stays.
  void set_available(bool available) noexcept { available_ = available; }
  /// For owners only: the leaf whether available or not.
  [[nodiscard]] at::Tensor& leaf() noexcept { return leaf_; }

 private:
  ParamSpec spec_;
  at::Tensor leaf_;
  bool available_ = false;
};

/// Boxes of the *logical* tensor that this rank holds (padding clipped off), and their owner rule:
/// this rank writes them to checkpoints iff its coordinate is 0 on every axis that does not shard
/// the parameter (pp excluded).
[[nodiscard]] std::vector<Region> logical_regions(const ParamSpec& spec, const Mesh& mesh);
/// See logical_regions.
/// `cut`: axes whose ranks hold different parts of what this rank holds of the tensor.
[[nodiscard]] bool is_owner(const ParamSpec& spec, const Mesh& mesh, const AxisSet& cut = {});

/// Fills `local` (contiguous, local padded shape) with this parameter's initial values.
void initialize(at::Tensor& local, const ParamSpec& spec, const ParallelContext& context);

/// Plain allocation and initialisation, for tests and inference; tied parameters share memory.
/// Gradients are left undefined.
void materialize(std::span<Parameter* const> parameters, const ParallelContext& context);

}  // namespace colossal
