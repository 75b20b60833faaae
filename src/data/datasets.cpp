// Which datasets exist? One line each.
#include "config/load.hpp"
#include "data/blend.hpp"
#include "data/dataset.hpp"
#include "data/synthetic.hpp"
#include "data/text.hpp"
#include "data/tokens.hpp"

#include <algorithm>

namespace colossal {
namespace {

std::unique_ptr<Dataset> open_one(const DatasetRequest& request) {
  return datasets().make(yaml_word(request.data.type), request);
}

}  // namespace

const Registry<Dataset, const DatasetRequest&>& datasets() {
  static const Registry<Dataset, const DatasetRequest&> table(
      "data.type",
      {{"text", make_text_dataset},
       {"synthetic", make_synthetic_dataset},
       {"tokens", make_tokens_dataset}});
  return table;
}

const std::vector<DataSource>& items_of(const DatasetRequest& request) {
  return request.split == Split::train ? request.data.train : request.data.eval;
}

std::unique_ptr<Dataset> open_dataset(const DatasetRequest& request) {
  const std::vector<DataSource>& items = items_of(request);
  if (std::ranges::none_of(items, [](const DataSource& item) { return item.weight.has_value(); })) {
    return open_one(request);
  }
  std::vector<BlendPart> parts;
  for (const DataSource& item : items) {
    DataConfig data = request.data;
    data.train = {{.path = item.path}};
    data.eval = data.train;
    const DatasetRequest part{.data = data,
                              .vocab_size = request.vocab_size,
                              .seed = request.seed,
                              .split = request.split,
                              .num_features = request.num_features,
                              .threads = request.threads};
    parts.push_back({open_one(part), item.weight.value_or(1)});
  }
  return blend_datasets(std::move(parts));
}

}  // namespace colossal
