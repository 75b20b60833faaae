// How does Adafactor see whole rows and columns of parameters that are cut into shards? Each rank
// sums over the boxes it holds.
#include "optim/adafactor.hpp"

#include "core/error.hpp"
#include "nn/parameter.hpp"
#include "optim/detail/pieces.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

namespace colossal {
namespace {

using detail::Piece;

constexpr double kTiny = 1e-30;       // of squares
constexpr double kLeastScale = 1e-3;  // of a parameter
constexpr double kMostUpdate = 1;     // root mean square
constexpr double kDecay = -0.8;
/// Pieces whose sums are kept before they are added up in order.
constexpr std::size_t kWave = 64;

/// A parameter: where its elements are, and its states.
struct Whole {
  Shape shape;                ///< without padding
  Shape local;                ///< of this rank's part, padding included
  std::vector<Region> boxes;  ///< of this rank, in `shape`
  at::Tensor row;             ///< R; of vectors V
  at::Tensor col;             ///< C; undefined for vectors
  at::Tensor share;           ///< R / mean(R); V
  double weights = 0;         ///< root mean square of this step's weights
  double update = 0;          ///< and of the update before it is clipped

  [[nodiscard]] bool is_matrix() const { return shape.size() >= 2; }
  /// Sums of a parameter in the first sweep: rows, columns, and the squares of weights.
  [[nodiscard]] std::int64_t num_sums() const {
    return row.numel() + (is_matrix() ? col.numel() : 0) + 1;
  }
};

Shape row_shape(const Shape& shape) {
  return shape.size() < 2 ? shape : Shape(shape.begin(), shape.end() - 1);
}

Shape col_shape(Shape shape) {
  shape.erase(shape.end() - 2);
  return shape;
}

/// The elements of a box in a vector that `whole` has one of: a number per row.
at::Tensor rows_of(at::Tensor vector, const Whole& whole, const Region& box) {
  const std::size_t dims = whole.is_matrix() ? whole.shape.size() - 1 : whole.shape.size();
  for (std::size_t dim = 0; dim < dims; ++dim) {
    vector = vector.narrow(static_cast<std::int64_t>(dim), box.global_offset[dim], box.extent[dim]);
  }
  return vector;
}

/// The same with a number per column.
at::Tensor cols_of(at::Tensor vector, const Region& box) {
  const std::size_t last = box.extent.size() - 1;
  for (std::size_t dim = 0; dim + 1 < last; ++dim) {
    vector = vector.narrow(static_cast<std::int64_t>(dim), box.global_offset[dim], box.extent[dim]);
  }
  return vector.narrow(-1, box.global_offset[last], box.extent[last]);
}

/// The box as a view of a flat array, in which the piece lies.
at::Tensor view(const at::Tensor& flat, const Piece& piece, const Whole& whole, const Region& box) {
  Shape strides(whole.local.size(), 1);
  for (std::size_t dim = strides.size(); dim-- > 1;) {
    strides[dim - 1] = strides[dim] * whole.local[dim];
  }
  std::int64_t at = flat.storage_offset() + piece.at - piece.element;
  for (std::size_t dim = 0; dim < strides.size(); ++dim) {
    at += box.local_offset[dim] * strides[dim];
  }
  return flat.as_strided(box.extent, strides, at);
}

/// What a piece gives to the sums of a box.
struct BoxSums {
  Region box;
  at::Tensor rows;  ///< of vectors: of the elements
  at::Tensor cols;
  double squares = 0;  ///< of weights, then of updates
};

/// Elements of a piece of a GPU: enough to keep it busy, and 32 MB for each fp64 array of them.
constexpr std::int64_t kDevicePiece = 1 << 22;

/// Pieces of a CPU as its threads share them, those of a GPU large.
struct Pieces {
  std::vector<Piece> host;
  std::vector<Piece> device;
};

Pieces cut(std::span<const FlatShard> shards) {
  Pieces pieces;
  for (const Piece& piece : detail::cut(shards)) {
    const FlatShard& shard = shards[static_cast<std::size_t>(piece.shard)];
    std::vector<Piece>& known = shard.master.is_cuda() ? pieces.device : pieces.host;
    const bool goes_on = shard.master.is_cuda() && !known.empty() &&
                         known.back().shard == piece.shard && known.back().param == piece.param &&
                         known.back().element + known.back().count == piece.element &&
                         known.back().count + piece.count <= kDevicePiece;
    if (goes_on) {
      known.back().count += piece.count;
    } else {
      known.push_back(piece);
    }
  }
  std::int64_t before = 0;
  for (Piece& piece : pieces.host) {
    piece.before = before;
    before += piece.count;
  }
  return pieces;
}

/// The pieces [begin, end) as a list of its own.
std::vector<Piece> wave_of(std::span<const Piece> pieces, std::size_t begin, std::size_t end) {
  std::vector<Piece> wave(pieces.begin() + static_cast<std::ptrdiff_t>(begin),
                          pieces.begin() + static_cast<std::ptrdiff_t>(end));
  const std::int64_t before = wave.front().before;
  for (Piece& piece : wave) {
    piece.before -= before;
  }
  return wave;
}

class Adafactor : public Optimizer {
 public:
  explicit Adafactor(const OptimizerConfig& config)
      : scale_parameter_(config.scale_parameter), relative_step_(config.relative_step) {}

  [[nodiscard]] std::vector<std::string_view> states() const override { return {}; }
  [[nodiscard]] int sweeps() const override { return 3; }
  [[nodiscard]] StateAccess access(int /*sweep*/) const override { return StateAccess::none; }

  void prepare(std::span<Parameter* const> parameters, const Mesh& mesh) override {
    wholes_.clear();
    states_.clear();
    for (const Parameter* parameter : parameters) {
      const ParamSpec& spec = parameter->spec();
      Whole whole{.shape = spec.shape,
                  .local = local_shape(spec.layout, spec.padded, mesh),
                  .boxes = logical_regions(spec, mesh),
                  .row = at::zeros(row_shape(spec.shape), at::kDouble),
                  .col = {},
                  .share = {}};
      const auto param = static_cast<int>(wholes_.size());
      if (whole.is_matrix()) {
        whole.col = at::zeros(col_shape(spec.shape), at::kDouble);
        states_.push_back({param, "exp_avg_sq_row", whole.row});
        states_.push_back({param, "exp_avg_sq_col", whole.col});
      } else {
        states_.push_back({param, "exp_avg_sq", whole.row});
      }
      wholes_.push_back(std::move(whole));
    }
  }

  [[nodiscard]] std::span<const WholeState> whole_states() const override { return states_; }

  [[nodiscard]] std::int64_t gpu_scratch_bytes() const override {
    constexpr std::int64_t kArrays = 6;  // fp64 of a piece at once, in apply_to()
    std::int64_t largest = 0;
    for (const Whole& whole : wholes_) {
      largest = std::max(largest, std::min(numel(whole.local), kDevicePiece));
    }
    return kArrays * largest * static_cast<std::int64_t>(sizeof(double));
  }

  [[nodiscard]] std::vector<std::int64_t> sum_borders(int sweep,
                                                      std::int64_t num_params) const override {
    require_prepared(num_params);
    std::vector<std::int64_t> borders = {0};
    for (const Whole& whole : wholes_) {
      borders.push_back(borders.back() + (sweep == 0 ? whole.num_sums() : 1));
    }
    return borders;
  }

  void take_sums(int sweep, const StepInfo& info, const at::Tensor& sums) override {
    const double keep = 1 - std::pow(static_cast<double>(info.step + 1), kDecay);
    const std::vector<std::int64_t> borders = sum_borders(sweep, std::ssize(wholes_));
    for (std::size_t p = 0; p < wholes_.size(); ++p) {
      Whole& whole = wholes_[p];
      const double squares = sums[borders[p + 1] - 1].item<double>();
      const double rms = std::sqrt(squares / static_cast<double>(numel(whole.shape)));
      (sweep == 0 ? whole.weights : whole.update) = rms;
      if (sweep == 0) {
        take_rows(whole, sums.narrow(0, borders[p], whole.num_sums()), keep);
      }
    }
  }

  void sweep(int index,
             std::span<FlatShard> shards,
             std::span<const ParamGroup> groups,
             const StepInfo& info,
             at::Tensor& sums) const override {
    require_prepared(std::ssize(groups));
    const Pieces pieces = cut(shards);
    if (index + 1 < sweeps()) {
      measure(index, shards, pieces, info, sums);
      return;
    }
    const auto apply = [&](const Piece& piece) {
      const ParamGroup& group = groups[static_cast<std::size_t>(piece.param)];
      apply_to(shards[static_cast<std::size_t>(piece.shard)], piece, group, info);
    };
    detail::for_each_piece(pieces.host, [&](std::size_t i) { apply(pieces.host[i]); });
    std::ranges::for_each(pieces.device, apply);
  }

 private:
  void require_prepared(std::int64_t num_params) const {
    check(num_params == std::ssize(wholes_),
          ErrorKind::internal,
          "optimizer-state",
          "adafactor is prepared for {} parameters and was given {}",
          wholes_.size(),
          num_params);
  }

  [[nodiscard]] const Whole& whole_of(const Piece& piece) const {
    return wholes_[static_cast<std::size_t>(piece.param)];
  }

  /// Boxes of the elements of a piece; padding is in none.
  [[nodiscard]] std::vector<Region> boxes_of(const Piece& piece) const {
    const Whole& whole = whole_of(piece);
    return flat_range(whole.boxes, whole.local, piece.element, piece.element + piece.count);
  }

  static void take_rows(Whole& whole, const at::Tensor& sums, double keep) {
    const std::int64_t num_rows = whole.row.numel();
    const at::Tensor rows = sums.narrow(0, 0, num_rows).view(whole.row.sizes());
    if (!whole.is_matrix()) {
      whole.row.mul_(keep).add_(rows, 1 - keep);
      whole.share = whole.row;
      return;
    }
    const std::size_t dims = whole.shape.size();
    const at::Tensor cols = sums.narrow(0, num_rows, whole.col.numel()).view(whole.col.sizes());
    whole.row.mul_(keep).add_(rows, (1 - keep) / static_cast<double>(whole.shape[dims - 1]));
    whole.col.mul_(keep).add_(cols, (1 - keep) / static_cast<double>(whole.shape[dims - 2]));
    whole.share = whole.row / whole.row.mean(-1, true);
  }

  /// g / sqrt(V) of a box.
  static at::Tensor update_of(const at::Tensor& grad, const Whole& whole, const Region& box) {
    at::Tensor second = rows_of(whole.share, whole, box).to(grad.device());
    if (whole.is_matrix()) {
      second = second.unsqueeze(-1) * cols_of(whole.col, box).to(grad.device()).unsqueeze(-2);
    }
    return grad / second.sqrt();
  }

  [[nodiscard]] std::vector<BoxSums> measure(int index,
                                             const FlatShard& shard,
                                             const Piece& piece,
                                             const StepInfo& info) const {
    const Whole& whole = whole_of(piece);
    std::vector<BoxSums> all;
    for (const Region& box : boxes_of(piece)) {
      const at::Tensor grad =
          view(shard.grad, piece, whole, box).to(at::kDouble).mul(info.grad_factor);
      if (index > 0) {
        const at::Tensor update = update_of(grad, whole, box);
        all.push_back({box, {}, {}, update.mul_(update).sum().item<double>()});
        continue;
      }
      const at::Tensor squares = (grad * grad).add_(kTiny);
      const at::Tensor weights = view(shard.master, piece, whole, box).to(at::kDouble);
      all.push_back({box,
                     whole.is_matrix() ? squares.sum(-1) : squares,
                     whole.is_matrix() ? squares.sum(-2) : at::Tensor(),
                     (weights * weights).sum().item<double>()});
    }
    return all;
  }

  void add(const Piece& piece, const std::vector<BoxSums>& all, at::Tensor sums) const {
    const Whole& whole = whole_of(piece);
    for (const BoxSums& part : all) {
      sums[-1].add_(part.squares);
      if (part.rows.defined()) {
        const std::int64_t num_rows = whole.row.numel();
        rows_of(sums.narrow(0, 0, num_rows).view(whole.row.sizes()), whole, part.box)
            .add_(part.rows.cpu());
      }
      if (part.cols.defined()) {
        const at::Tensor cols = sums.narrow(0, whole.row.numel(), whole.col.numel());
        cols_of(cols.view(whole.col.sizes()), part.box).add_(part.cols.cpu());
      }
    }
  }

  void measure(int index,
               std::span<FlatShard> shards,
               const Pieces& pieces,
               const StepInfo& info,
               const at::Tensor& sums) const {
    const std::vector<std::int64_t> borders = sum_borders(index, std::ssize(wholes_));
    const auto measured = [&](const Piece& piece) {
      return measure(index, shards[static_cast<std::size_t>(piece.shard)], piece, info);
    };
    const auto keep = [&](const Piece& piece, const std::vector<BoxSums>& all) {
      const auto param = static_cast<std::size_t>(piece.param);
      add(piece, all, sums.narrow(0, borders[param], borders[param + 1] - borders[param]));
    };
    for (std::size_t begin = 0; begin < pieces.host.size(); begin += kWave) {
      const std::vector<Piece> wave =
          wave_of(pieces.host, begin, std::min(begin + kWave, pieces.host.size()));
      std::vector<std::vector<BoxSums>> parts(wave.size());
      detail::for_each_piece(wave, [&](std::size_t i) { parts[i] = measured(wave[i]); });
      for (std::size_t i = 0; i < wave.size(); ++i) {
        keep(wave[i], parts[i]);
      }
    }
    for (const Piece& piece : pieces.device) {
      keep(piece, measured(piece));
    }
  }

  void apply_to(FlatShard& shard,
                const Piece& piece,
                const ParamGroup& group,
                const StepInfo& info) const {
    const Whole& whole = whole_of(piece);
    const double cap = 1 / std::sqrt(static_cast<double>(info.step + 1));
    const double lr = group.lr_scale * (relative_step_ ? std::min(info.lr, cap) : info.lr);
    const double rate = scale_parameter_ ? lr * std::max(kLeastScale, whole.weights) : lr;
    const double step = rate / std::max(1.0, whole.update / kMostUpdate);
    for (const Region& box : boxes_of(piece)) {
      const at::Tensor grad =
          view(shard.grad, piece, whole, box).to(at::kDouble).mul(info.grad_factor);
      const at::Tensor weights = view(shard.master, piece, whole, box);
      weights.copy_(weights.to(at::kDouble)
                        .mul(1 - rate * group.weight_decay)
                        .sub_(update_of(grad, whole, box).mul_(step)));
      if (shard.working.defined()) {
        view(shard.working, piece, whole, box).copy_(weights);
      }
    }
  }

  bool scale_parameter_;
  bool relative_step_;
  std::vector<Whole> wholes_;
  std::vector<WholeState> states_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adafactor(const OptimizerConfig& config) {
  return std::make_unique<Adafactor>(config);
}

}  // namespace colossal
