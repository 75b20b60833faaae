// Are scalars read strictly (config-and-cli 1.1)?
#include "config/scalar.hpp"

#include "support/catch.hpp"

#include <limits>

using namespace colossal::detail;

namespace {

std::int64_t integer(std::string_view text, bool suffixes = false) {
  const auto parsed = parse_int(text, suffixes);
  INFO(text);
  REQUIRE(std::holds_alternative<std::int64_t>(parsed));
  return std::get<std::int64_t>(parsed);
}

double real(std::string_view text) {
  const auto parsed = parse_real(text);
  INFO(text);
  REQUIRE(std::holds_alternative<double>(parsed));
  return std::get<double>(parsed);
}

template <class T>
std::string fix_of(const Parsed<T>& parsed) {
  REQUIRE(std::holds_alternative<Problem>(parsed));
  return std::get<Problem>(parsed).fix;
}

}  // namespace

TEST_CASE("integers may use underscores and exponents", "[config]") {
  CHECK(integer("12") == 12);
  CHECK(integer("-3") == -3);
  CHECK(integer("0") == 0);
  CHECK(integer("1_000_000") == 1'000'000);
  CHECK(integer("1e3") == 1000);
  CHECK(integer("3.0e9") == 3'000'000'000);
  CHECK(integer("1.25e2") == 125);
  CHECK(integer("1200e-2") == 12);
  CHECK(integer("9223372036854775807") == std::numeric_limits<std::int64_t>::max());
  CHECK(integer("-9223372036854775808") == std::numeric_limits<std::int64_t>::min());
}

TEST_CASE("counts take the suffixes k M B T", "[config]") {
  CHECK(integer("2k", true) == 2000);
  CHECK(integer("2.5M", true) == 2'500'000);
  CHECK(integer("300B", true) == 300'000'000'000);
  CHECK(integer("1T", true) == 1'000'000'000'000);
}

TEST_CASE("texts that are not whole numbers are refused", "[config]") {
  for (const char* text : {"1.5",
                           "1e-1",
                           "",
                           "-",
                           "+1",
                           "+-5",
                           "-+5",
                           "--5",
                           "1e+-3",
                           "abc",
                           "1_",
                           "_1",
                           "1__0",
                           "1k",
                           "1e",
                           "0x1G",
                           "1 2",
                           "1e99999",
                           "99999999999999999999",
                           "1e19"}) {
    INFO(text);
    CHECK(std::holds_alternative<Problem>(parse_int(text, false)));
  }
  CHECK(std::holds_alternative<Problem>(parse_int("1.0005k", true)));
  CHECK(std::holds_alternative<Problem>(parse_int("1K", true)));
  CHECK(std::holds_alternative<Problem>(parse_int("1kk", true)));
}

TEST_CASE("ambiguous bases name the decimal value", "[config]") {
  CHECK(fix_of(parse_int("010", false)) == "write 10 or 8");
  CHECK(fix_of(parse_int("0x10", false)) == "write 16");
  CHECK(fix_of(parse_int("-010", false)) == "write -10 or -8");
  CHECK(fix_of(parse_int("-0x10", false)) == "write -16");
  CHECK(fix_of(parse_int("-089", false)) == "write -89");
  CHECK(fix_of(parse_int("-00", false)) == "write 0");
  CHECK(fix_of(parse_int("09", false)) == "write 9");
  CHECK(fix_of(parse_int("00", false)) == "write 0");
}

TEST_CASE("reals are plain decimal numbers", "[config]") {
  CHECK(real("1e-5") == 1e-5);
  CHECK(real("2E-5") == 2e-5);
  CHECK(real("6.0e-4") == 6e-4);
  CHECK(real(".5") == 0.5);
  CHECK(real("2") == 2.0);
  CHECK(real("-0.25") == -0.25);
  for (const char* text : {"1,5",
                           "nan",
                           ".nan",
                           "inf",
                           "-.inf",
                           "1e",
                           "",
                           "0x1p3",
                           "1.2.3",
                           "1e999",
                           "1_0",
                           "infinity",
                           "+-0",
                           "+-5",
                           "-+5",
                           "++5",
                           "--5",
                           "5e+-1"}) {
    INFO(text);
    CHECK(std::holds_alternative<Problem>(parse_real(text)));
  }
  CHECK(real("+0.5") == 0.5);
  for (const char* text : {"1e400", "-1e400", "1e-400", "+1e999"}) {
    INFO(text);
    const auto parsed = parse_real(text);
    REQUIRE(std::holds_alternative<Problem>(parsed));
    CHECK(std::get<Problem>(parsed).message ==
          std::string("'") + text + "' is beyond the numbers of 64 bits");
  }
  CHECK(std::holds_alternative<double>(parse_real("1e308")));
  CHECK(std::holds_alternative<double>(parse_real("1e-307")));
  CHECK(fix_of(parse_real("1,5")) == "use a decimal point");
}

TEST_CASE("every real is written so that it reads back", "[config]") {
  for (const double value : {1e-5, 0.1, 1.0 / 3, 6e-4, 1e300, 5e-324, 123456789.125}) {
    CHECK(real(real_text(value)) == value);
  }
}

TEST_CASE("only true and false are booleans", "[config]") {
  CHECK(std::get<bool>(parse_bool("true")));
  CHECK(std::get<bool>(parse_bool("True")));
  CHECK_FALSE(std::get<bool>(parse_bool("FALSE")));
  for (const char* text : {"yes", "no", "on", "off", "y", "n", "0", "1", ""}) {
    CHECK(std::holds_alternative<Problem>(parse_bool(text)));
  }
}

TEST_CASE("durations need a unit", "[config]") {
  const auto seconds = [](std::string_view text) { return std::get<double>(parse_duration(text)); };
  CHECK(seconds("30s") == 30);
  CHECK(seconds("10m") == 600);
  CHECK(seconds("2h") == 7200);
  CHECK(seconds("1d") == 86400);
  CHECK(seconds("0.5s") == 0.5);
  CHECK(seconds("0") == 0);
  CHECK(fix_of(parse_duration("30")) == "add a unit: 30s, 30m, 30h or 30d");
  for (const char* text : {"s", "", "-1s", "+-0s", "5 m", "5ms", "1w"}) {
    INFO(text);
    CHECK(std::holds_alternative<Problem>(parse_duration(text)));
  }
}
