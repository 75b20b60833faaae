// Which datasets exist? One line each.
#include "config/load.hpp"
#include "data/dataset.hpp"
#include "data/synthetic.hpp"
#include "data/text.hpp"

namespace colossal {

const Registry<Dataset, const DatasetRequest&>& datasets() {
  static const Registry<Dataset, const DatasetRequest&> table(
      "data.type", {{"text", make_text_dataset}, {"synthetic", make_synthetic_dataset}});
  return table;
}

std::unique_ptr<Dataset> open_dataset(const DatasetRequest& request) {
  return datasets().make(yaml_word(request.data.type), request);
}

}  // namespace colossal
