// Do tables line up, and do spreadsheets read them?
#include "train/table.hpp"

#include "support/catch.hpp"

namespace colossal::test {

TEST_CASE("columns are as wide as their widest cell, numbers to the right", "[table]") {
  const std::vector<TableRow> rows = {{"name", "n", "long title"}, {"a", "1000", "-"}};
  CHECK(to_table(rows) ==
        "name     n  long title\n"
        "a     1000           -\n");
  CHECK(to_table(rows, {.left = 3}) ==
        "name  n     long title\n"
        "a     1000  -\n");
  CHECK(to_table(rows, {.first_width = 8}) ==
        "name         n  long title\n"
        "a         1000           -\n");
  CHECK(to_table({}).empty());
}

TEST_CASE("cells with commas, quotes and line breaks are quoted in CSV", "[table]") {
  const std::vector<TableRow> rows = {{"a", "b,c", "d\"e", "", "f\ng", " h "}};
  CHECK(to_csv(rows) == "a,\"b,c\",\"d\"\"e\",,\"f\ng\", h \n");
  CHECK(to_csv({}).empty());
}

}  // namespace colossal::test
