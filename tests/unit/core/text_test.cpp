// Are digits grouped from the right, whatever the sign?
#include "core/text.hpp"

#include "support/catch.hpp"

#include <limits>

namespace colossal {
namespace {

TEST_CASE("digits come in groups of three", "[text]") {
  CHECK(thousands(0) == "0");
  CHECK(thousands(999) == "999");
  CHECK(thousands(1000) == "1,000");
  CHECK(thousands(4'190'000) == "4,190,000");
  CHECK(thousands(-100) == "-100");
  CHECK(thousands(-123'456) == "-123,456");
  CHECK(thousands(std::numeric_limits<std::int64_t>::min()) == "-9,223,372,036,854,775,808");
}

}  // namespace
}  // namespace colossal
