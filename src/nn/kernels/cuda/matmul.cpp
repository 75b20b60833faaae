// The calls of cuBLASLt. Its matrices are column-major: the row-major product a b is b^T a^T there,
// so b comes first.
#include "nn/kernels/cuda/matmul.hpp"

#include "mesh/device_timer.hpp"
#include "nn/kernels/cuda/glue.hpp"

#include <ATen/Context.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <array>
#include <cublasLt.h>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

namespace colossal::kernels::cuda {

namespace {

constexpr int kCandidates = 8;
constexpr int kTimedCalls = 5;

void check_cublas(cublasStatus_t status, const char* call) {
  check(status == CUBLAS_STATUS_SUCCESS,
        ErrorKind::internal,
        "cuda-launch",
        "{} failed: {}; the device may have failed before",
        call,
        cublasLtGetStatusString(status));
}

template <auto kDestroy>
struct Destroyer {
  template <class T>
  void operator()(T* handle) const {
    kDestroy(handle);
  }
};
using Layout =
    std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Destroyer<cublasLtMatrixLayoutDestroy>>;
using Operation = std::unique_ptr<cublasLtMatmulDescOpaque_t, Destroyer<cublasLtMatmulDescDestroy>>;
using Preference =
    std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, Destroyer<cublasLtMatmulPreferenceDestroy>>;

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

cudaDataType_t type_of(at::ScalarType dtype) {
  if (dtype == at::kFloat) {
    return CUDA_R_32F;
  }
  return dtype == at::kBFloat16 ? CUDA_R_16BF : CUDA_R_16F;
}

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
  const float one = 1;
  const float beta = at.added == nullptr ? 0 : 1;
  return cublasLtMatmul(at::cuda::getCurrentCUDABlasLtHandle(),
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
                        at::cuda::getCUDABlasLtWorkspace(),
                        at::cuda::getCUDABlasLtWorkspaceSize(),
                        stream);
}

struct Candidates {
  std::array<cublasLtMatmulHeuristicResult_t, kCandidates> found{};
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

Candidates candidates_of(const Operation& operation, const Plan& plan) {
  cublasLtMatmulPreference_t created = nullptr;
  check_cublas(cublasLtMatmulPreferenceCreate(&created), "cublasLtMatmulPreferenceCreate");
  const Preference preference(created);
  set(preference,
      CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
      static_cast<std::uint64_t>(at::cuda::getCUDABlasLtWorkspaceSize()));
  // By default the library may add parts of a long sum in 16 bits.
  set(preference,
      CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  Candidates candidates;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(at::cuda::getCurrentCUDABlasLtHandle(),
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

/// The one that the library thinks best, -1 if there is none.
int first_of(const Candidates& candidates) {
  return candidates.count > 0 && candidates.found.front().state == CUBLAS_STATUS_SUCCESS ? 0 : -1;
}

/// The fastest of the candidates on these arrays, -1 if none runs; each writes the same result,
/// several times.
int fastest(const Candidates& candidates,
            const Operation& operation,
            const Plan& plan,
            const Pointers& at,
            cudaStream_t stream) {
  const std::unique_ptr<DeviceTimer> timer =
      make_device_timer(c10::cuda::getCurrentCUDAStream().device());
  int best = -1;
  double best_time = std::numeric_limits<double>::infinity();
  for (int i = 0; i < candidates.count; ++i) {
    const cublasLtMatmulHeuristicResult_t& found = candidates.found.at(static_cast<std::size_t>(i));
    const cublasLtMatmulAlgo_t& algorithm = found.algo;
    if (found.state != CUBLAS_STATUS_SUCCESS ||
        multiply(operation, plan, algorithm, at, stream) != CUBLAS_STATUS_SUCCESS) {
      continue;
    }
    timer->start();
    for (int call = 0; call < kTimedCalls; ++call) {
      check_cublas(multiply(operation, plan, algorithm, at, stream), "cublasLtMatmul");
    }
    const double time = timer->stop();
    if (time < best_time) {
      best_time = time;
      best = i;
    }
  }
  return best;
}

Plan make_plan(const Key& key, const Pointers& at, cudaStream_t stream) {
  Plan plan;
  plan.a = layout_of(key.dtype, key.m, key.k, key.a);
  plan.b = layout_of(key.dtype, key.k, key.n, key.b);
  plan.out = make_layout(key.out_dtype, key.n, key.m, key.n);
  const Operation operation = make_operation(key, at);
  const Candidates candidates = candidates_of(operation, plan);
  const int best = key.deterministic || candidates.count == 1
                       ? first_of(candidates)
                       : fastest(candidates, operation, plan, at, stream);
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

Key key_of(const at::Tensor& a_mk, const at::Tensor& b_kn) {
  return {.device = a_mk.get_device(),
          .dtype = a_mk.scalar_type(),
          .out_dtype = a_mk.scalar_type(),
          .epilogue = Epilogue::none,
          .adds = false,
          .deterministic = at::globalContext().deterministicAlgorithms(),
          .m = a_mk.size(0),
          .k = a_mk.size(1),
          .n = b_kn.size(1),
          .a = operand_of(a_mk),
          .b = operand_of(b_kn)};
}

bool run(const Key& key, const Pointers& at, const at::Tensor& out_mn, cudaStream_t stream) {
  static Plans plans;
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

bool add_matmul(const at::Tensor& out_mn, const at::Tensor& a_mk, const at::Tensor& b_kn) {
  Key key = key_of(a_mk, b_kn);
  key.out_dtype = out_mn.scalar_type();
  key.adds = true;
  const Pointers at{.a = a_mk.const_data_ptr(),
                    .b = b_kn.const_data_ptr(),
                    .added = out_mn.const_data_ptr(),
                    .out = out_mn.mutable_data_ptr(),
                    .bias = nullptr,
                    .aux = nullptr};
  return run(key, at, out_mn, stream_of(a_mk));
}

}  // namespace colossal::kernels::cuda
