// The calls of cuBLASLt. Its matrices are column-major: the row-major product a b is b^T a^T there,
// so b comes first.
#include "nn/kernels/cuda/matmul.hpp"

#include "nn/kernels/cuda/cublas.hpp"
#include "nn/kernels/cuda/fastest.hpp"
#include "nn/kernels/cuda/glue.hpp"
#include "nn/kernels/cuda/linear.hpp"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

namespace colossal::kernels::cuda {

namespace {

constexpr int kCandidates = 16;
constexpr int kSplitLike = 4;  // candidates of which are made those whose blocks share a long sum
constexpr int kMostSplits = 4;

/// A matrix as the library is told of it.
struct Operand {
  bool transposed = false;  ///< of the row-major view
  std::int64_t stride = 0;  ///< elements between its rows, or columns where transposed
};

Operand operand_of(const at::Tensor& x) {
  return x.stride(1) == 1 ? Operand{false, x.stride(0)} : Operand{true, x.stride(1)};
}

/// All that decides which kernel runs.
struct Key {
  int device = 0;
  at::ScalarType dtype = at::kBFloat16;
  at::ScalarType out_dtype = at::kBFloat16;
  Epilogue epilogue = Epilogue::none;
  bool adds = false;
  bool deterministic = false;
  std::uint32_t alignment = 0;  ///< bytes, of all matrices
  std::int64_t m = 0;
  std::int64_t k = 0;
  std::int64_t n = 0;
  Operand a;
  Operand b;

  [[nodiscard]] auto tied() const {
    return std::tuple(device,
                      dtype,
                      out_dtype,
                      epilogue,
                      adds,
                      deterministic,
                      alignment,
                      m,
                      k,
                      n,
                      a.transposed,
                      a.stride,
                      b.transposed,
                      b.stride);
  }
  bool operator<(const Key& other) const { return tied() < other.tied(); }
};

/// How one key is multiplied.
struct Plan {
  Layout a;
  Layout b;
  Layout out;
  bool found = false;
  cublasLtMatmulAlgo_t algorithm{};
};

struct Pointers {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* added = nullptr;  // to the product, of the result's type and shape; may be out itself
  void* out = nullptr;
  void* bias = nullptr;
  void* aux = nullptr;
};

cublasLtEpilogue_t epilogue_of(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::bias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::gelu:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Epilogue::gelu_gradient:
      return CUBLASLT_EPILOGUE_DGELU;
    default:
      return CUBLASLT_EPILOGUE_DEFAULT;
  }
}

Layout make_layout(at::ScalarType dtype,
                   std::int64_t rows,
                   std::int64_t columns,
                   std::int64_t stride) {
  cublasLtMatrixLayout_t layout = nullptr;
  check_cublas(cublasLtMatrixLayoutCreate(&layout,
                                          type_of(dtype),
                                          static_cast<std::uint64_t>(rows),
                                          static_cast<std::uint64_t>(columns),
                                          stride),
               "cublasLtMatrixLayoutCreate");
  return Layout(layout);
}

/// Rows and columns of `x_rc` in memory, column-major.
Layout layout_of(at::ScalarType dtype, std::int64_t rows, std::int64_t columns, const Operand& x) {
  return x.transposed ? make_layout(dtype, rows, columns, x.stride)
                      : make_layout(dtype, columns, rows, x.stride);
}

template <class T>
void set(const Operation& operation, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check_cublas(cublasLtMatmulDescSetAttribute(operation.get(), attribute, &value, sizeof(value)),
               "cublasLtMatmulDescSetAttribute");
}

/// The pointers of an epilogue are part of the operation, so each call makes its own.
Operation make_operation(const Key& key, const Pointers& at) {
  cublasLtMatmulDesc_t created = nullptr;
  check_cublas(cublasLtMatmulDescCreate(&created, CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "cublasLtMatmulDescCreate");
  Operation operation(created);
  set(operation, CUBLASLT_MATMUL_DESC_TRANSA, key.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(operation, CUBLASLT_MATMUL_DESC_TRANSB, key.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(key.epilogue));
  if (at.bias != nullptr) {
    set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, at.bias);
    set(operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(key.dtype));
  }
  if (at.aux != nullptr) {
    set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, at.aux);
    set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, key.n);
  }
  return operation;
}

cublasStatus_t multiply(const Operation& operation,
                        const Plan& plan,
                        const cublasLtMatmulAlgo_t& algorithm,
                        const Pointers& at,
                        cudaStream_t stream) {
  const at::Tensor workspace =
      at::empty({kWorkspaceBytes},
                at::TensorOptions(at::kByte).device(c10::cuda::getCurrentCUDAStream().device()));
  const float one = 1;
  const float beta = at.added == nullptr ? 0 : 1;
  return cublasLtMatmul(library_handle(),
                        operation.get(),
                        &one,
                        at.b,
                        plan.b.get(),
                        at.a,
                        plan.a.get(),
                        &beta,
                        at.added == nullptr ? at.out : at.added,
                        plan.out.get(),
                        at.out,
                        plan.out.get(),
                        &algorithm,
                        workspace.mutable_data_ptr(),
                        kWorkspaceBytes,
                        stream);
}

struct Candidates {
  std::array<cublasLtMatmulHeuristicResult_t, kCandidates + kSplitLike * kMostSplits> found{};
  int count = 0;
};

template <class T>
void set(const Preference& preference,
         cublasLtMatmulPreferenceAttributes_t attribute,
         const T& value) {
  check_cublas(
      cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)),
      "cublasLtMatmulPreferenceSetAttribute");
}

Candidates candidates_of(const Key& key, const Operation& operation, const Plan& plan) {
  cublasLtMatmulPreference_t created = nullptr;
  check_cublas(cublasLtMatmulPreferenceCreate(&created), "cublasLtMatmulPreferenceCreate");
  const Preference preference(created);
  set(preference,
      CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
      static_cast<std::uint64_t>(kWorkspaceBytes));
  // By default the library may add parts of a long sum in 16 bits.
  set(preference,
      CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  for (const cublasLtMatmulPreferenceAttributes_t attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    set(preference, attribute, key.alignment);
  }
  Candidates candidates;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(library_handle(),
                                                               operation.get(),
                                                               plan.b.get(),
                                                               plan.a.get(),
                                                               plan.out.get(),
                                                               plan.out.get(),
                                                               preference.get(),
                                                               kCandidates,
                                                               candidates.found.data(),
                                                               &candidates.count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) {
    candidates.count = 0;
  } else {
    check_cublas(status, "cublasLtMatmulAlgoGetHeuristic");
  }
  return candidates;
}

/// Adds kernels that the library's heuristics may leave out: those of the first candidates with
/// long sums cut into parts, which are added in fp32. A gradient of a small weight has fewer tiles
/// than the device has processors.
void add_split(Candidates& candidates, const Operation& operation, const Plan& plan) {
  const int like = std::min(candidates.count, kSplitLike);
  for (int i = 0; i < like * (kMostSplits - 1); ++i) {
    cublasLtMatmulAlgo_t algorithm = candidates.found.at(static_cast<std::size_t>(i % like)).algo;
    const auto splits = static_cast<std::int32_t>(2 + i / like);
    const auto scheme = static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    const bool set =
        cublasLtMatmulAlgoConfigSetAttribute(
            &algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits, sizeof(splits)) ==
            CUBLAS_STATUS_SUCCESS &&
        cublasLtMatmulAlgoConfigSetAttribute(
            &algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, sizeof(scheme)) ==
            CUBLAS_STATUS_SUCCESS;
    cublasLtMatmulHeuristicResult_t result{};
    if (set &&
        cublasLtMatmulAlgoCheck(library_handle(),
                                operation.get(),
                                plan.b.get(),
                                plan.a.get(),
                                plan.out.get(),
                                plan.out.get(),
                                &algorithm,
                                &result) == CUBLAS_STATUS_SUCCESS &&
        result.workspaceSize <= kWorkspaceBytes) {
      result.algo = algorithm;
      result.state = CUBLAS_STATUS_SUCCESS;
      candidates.found.at(static_cast<std::size_t>(candidates.count++)) = result;
    }
  }
}

/// The one that the library thinks best, -1 if there is none.
int first_of(const Candidates& candidates) {
  return candidates.count > 0 && candidates.found.front().state == CUBLAS_STATUS_SUCCESS ? 0 : -1;
}

Plan make_plan(const Key& key, const Pointers& at, cudaStream_t stream) {
  Plan plan;
  plan.a = layout_of(key.dtype, key.m, key.k, key.a);
  plan.b = layout_of(key.dtype, key.k, key.n, key.b);
  plan.out = make_layout(key.out_dtype, key.n, key.m, key.n);
  const Operation operation = make_operation(key, at);
  Candidates candidates = candidates_of(key, operation, plan);
  if (!key.deterministic && key.k > key.m && key.k > key.n) {
    add_split(candidates, operation, plan);
  }
  // Each of them writes the same result, several times.
  const auto run = [&](int i) {
    const auto& found = candidates.found.at(static_cast<std::size_t>(i));
    return found.state == CUBLAS_STATUS_SUCCESS &&
           multiply(operation, plan, found.algo, at, stream) == CUBLAS_STATUS_SUCCESS;
  };
  const int best = key.deterministic || candidates.count == 1 ? first_of(candidates)
                                                              : fastest(candidates.count, run);
  plan.found = best >= 0;
  if (plan.found) {
    plan.algorithm = candidates.found.at(static_cast<std::size_t>(best)).algo;
  }
  return plan;
}

/// Plans of this process, as the library's own handles are. Forward and backward run on different
/// threads.
class Plans {
 public:
  const Plan& of(const Key& key,
                 const Pointers& at,
                 const at::Tensor& out_mn,
                 cudaStream_t stream) {
    const std::lock_guard lock(mutex_);
    if (const auto found = plans_.find(key); found != plans_.end()) {
      return found->second;
    }
    Pointers trial = at;
    const at::Tensor scratch =
        at.added == at.out ? at::empty_like(out_mn) : out_mn;  // trials must not add to it
    trial.out = scratch.mutable_data_ptr();
    return plans_.emplace(key, make_plan(key, trial, stream)).first->second;
  }

 private:
  std::mutex mutex_;
  std::map<Key, Plan> plans_;  // references stay valid
};

/// Bytes at whose multiples all of these begin, as far as the library cares.
std::uint32_t alignment_of(const Pointers& at) {
  constexpr std::uintptr_t kMost = 256;
  std::uintptr_t bits = kMost;
  for (const void* const pointer : {at.a, at.b, at.added, static_cast<const void*>(at.out)}) {
    bits |= reinterpret_cast<std::uintptr_t>(pointer);
  }
  return static_cast<std::uint32_t>(bits & (~bits + 1));  // the lowest bit
}

Key key_of(const at::Tensor& a_mk, const at::Tensor& b_kn) {
  return {.device = a_mk.get_device(),
          .dtype = a_mk.scalar_type(),
          .out_dtype = a_mk.scalar_type(),
          .epilogue = Epilogue::none,
          .adds = false,
          .deterministic = at::globalContext().deterministicAlgorithms(),
          .alignment = 0,
          .m = a_mk.size(0),
          .k = a_mk.size(1),
          .n = b_kn.size(1),
          .a = operand_of(a_mk),
          .b = operand_of(b_kn)};
}

bool run(Key key, const Pointers& at, const at::Tensor& out_mn, cudaStream_t stream) {
  static Plans plans;
  key.alignment = alignment_of(at);
  const Plan& plan = plans.of(key, at, out_mn, stream);
  if (plan.found) {
    check_cublas(multiply(make_operation(key, at), plan, plan.algorithm, at, stream),
                 "cublasLtMatmul");
  }
  return plan.found;
}

}  // namespace

at::Tensor matmul(const at::Tensor& a_mk,
                  const at::Tensor& b_kn,
                  Epilogue epilogue,
                  const EpilogueArrays& arrays) {
  Key key = key_of(a_mk, b_kn);
  key.epilogue = epilogue;
  key.adds = arrays.residual_mn.defined();
  at::Tensor out_mn = at::empty({key.m, key.n}, a_mk.options());
  const Pointers at{.a = a_mk.const_data_ptr(),
                    .b = b_kn.const_data_ptr(),
                    .added = data_of(arrays.residual_mn),
                    .out = out_mn.mutable_data_ptr(),
                    .bias = arrays.bias.defined() ? arrays.bias.data_ptr() : nullptr,
                    .aux = arrays.aux_mn.defined() ? arrays.aux_mn.data_ptr() : nullptr};
  return run(key, at, out_mn, stream_of(a_mk)) ? out_mn : at::Tensor();
}

bool matmul_into(const at::Tensor& out_mn,
                 const at::Tensor& a_mk,
                 const at::Tensor& b_kn,
                 bool adds) {
  Key key = key_of(a_mk, b_kn);
  key.out_dtype = out_mn.scalar_type();
  key.adds = adds;
  const Pointers at{.a = a_mk.const_data_ptr(),
                    .b = b_kn.const_data_ptr(),
                    .added = adds ? out_mn.const_data_ptr() : nullptr,
                    .out = out_mn.mutable_data_ptr(),
                    .bias = nullptr,
                    .aux = nullptr};
  return run(key, at, out_mn, stream_of(a_mk));
}

}  // namespace colossal::kernels::cuda
