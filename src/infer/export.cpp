// How do the weights of a checkpoint become a file that other programs read?
#include "checkpoint/safetensors.hpp"
#include "checkpoint/stored_config.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "infer/detail/passage.hpp"
#include "infer/exchange.hpp"
#include "models/exchange.hpp"

#include <ATen/ops/all.h>
#include <ATen/ops/isfinite.h>
#include <fmt/format.h>

#include <span>
#include <string_view>
#include <system_error>

namespace colossal {
namespace {

namespace fs = std::filesystem;

/// What --dtype means, and what torch calls it.
struct FileType {
  at::ScalarType dtype;
  std::string_view torch_name;
};

FileType file_type(std::string_view word) {
  if (word == "bf16") {
    return {at::kBFloat16, "bfloat16"};
  }
  if (word == "fp16") {
    return {at::kHalf, "float16"};
  }
  return word == "fp64" ? FileType{at::kDouble, "float64"} : FileType{at::kFloat, "float32"};
}

bool is_finite(const at::Tensor& values) {
  return at::all(at::isfinite(values)).item<bool>();
}

/// `values` as the file has them.
at::Tensor outgoing(const ExchangedTensor& tensor, const at::Tensor& values, at::ScalarType dtype) {
  const at::Tensor converted = values.to(dtype);
  if (!is_finite(converted)) {
    check(!is_finite(values),
          ErrorKind::numerics,
          "weights-overflow",
          "'{}' has values that {} cannot hold\n  fix   choose another --dtype, such as bf16",
          tensor.parameter,
          safetensors_word(dtype));
    log::warn("[export] '{}' has values that are not finite", tensor.parameter);
  }
  return tensor.transposed ? converted.t() : converted;
}

void refuse_existing(const fs::path& file) {
  std::error_code ignored;
  check(!fs::exists(file, ignored),
        ErrorKind::usage,
        "file-exists",
        "{} exists\n  fix   choose another name with -o, or remove it",
        file.string());
}

/// Writes tensors to the file in its order, when loading brings their parameters.
class Outlet {
 public:
  Outlet(SafetensorsWriter& writer,
         const std::vector<ExchangedTensor>& tensors,
         at::ScalarType dtype)
      : writer_(writer), tensors_(tensors), dtype_(dtype) {}

  /// All tensors of the parameter that `record` holds now.
  void take(const TensorRecord& record) {
    while (next_ < tensors_.size() && "model/" + tensors_[next_].parameter == record.name) {
      writer_.write(outgoing(tensors_[next_], record.local, dtype_));
      ++next_;
    }
  }

 private:
  SafetensorsWriter& writer_;
  const std::vector<ExchangedTensor>& tensors_;
  at::ScalarType dtype_;
  std::size_t next_ = 0;
};

}  // namespace

void export_weights(const ExportOptions& options) {
  const fs::path output = options.output;
  const fs::path description = detail::config_beside(output);
  refuse_existing(output);
  refuse_existing(description);
  const fs::path checkpoint = find_checkpoint(options.checkpoint);
  const RunState state = read_state(checkpoint);
  const Config config = stored_config(state);
  const ParallelContext context(config);
  const std::vector<ParamSpec> specs = detail::owning_parameters(config, context);
  const TiedHead head = options.untie ? TiedHead::copied : TiedHead::once;
  const std::vector<ExchangedTensor> tensors = exchanged_tensors(config.model, specs, head);
  const auto [dtype, torch_name] = file_type(options.dtype);
  std::vector<SafeTensor> entries;
  for (const ExchangedTensor& tensor : tensors) {
    entries.push_back({.name = tensor.name, .dtype = dtype, .shape = tensor.shape});
  }

  std::error_code failed;  // opening the file tells what is wrong
  fs::create_directories(output.parent_path(), failed);
  SafetensorsWriter writer(output, std::move(entries));
  Outlet outlet(writer, tensors, dtype);
  std::vector<TensorRecord> records = detail::sharing_records(specs, context.master_dtype());
  for (TensorRecord& record : records) {
    record.keep = [&outlet, &record] { outlet.take(record); };
  }
  load_tensors(checkpoint, records, Comm());
  const std::string text = exchanged_config(config.model, torch_name, head);
  OutputFile description_file(description);
  description_file.write(std::as_bytes(std::span(text)));
  description_file.finish();
  detail::commit_both(description_file, description, writer);
  log::info(
      "[export] step {} of {}: {} tensors in {}, {}",
      state.step,
      checkpoint.string(),
      tensors.size(),
      options.dtype,
      is_gpt2(config.model) ? "named as in Hugging Face's GPT2LMHeadModel" : "by names of our own");
}

int run_export(const ExportOptions& options) {
  export_weights(options);
  fmt::print("{}\n", options.output);
  return 0;
}

}  // namespace colossal
