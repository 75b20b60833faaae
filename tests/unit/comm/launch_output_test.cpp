// Is the output of several ranks merged without losing, splitting or reordering lines?
#include "comm/detail/launch_output.hpp"

#include "support/catch.hpp"

#include <string>

using colossal::detail::LaunchOutput;
using colossal::detail::short_list;
using colossal::detail::Stream;
using namespace std::chrono_literals;

namespace {

struct Fixture {
  std::string out;
  std::string err;
  LaunchOutput output{4, [this](Stream stream, std::string_view text) {
                        (stream == Stream::out ? out : err) += text;
                      }};
  LaunchOutput::Clock::time_point now;

  void say(int rank, std::string_view text, Stream stream = Stream::err) {
    output.line(rank, stream, text, now);
  }
  void pass(std::chrono::milliseconds time) {
    now += time;
    output.flush(now);
  }
};

}  // namespace

TEST_CASE("rank 0 is passed on at once and unchanged", "[launch-output]") {
  Fixture f;
  f.say(0, "step 1 loss 2.0\n");
  f.say(0, "{\"exit\": 0}", Stream::out);
  CHECK(f.err == "step 1 loss 2.0\n");
  CHECK(f.out == "{\"exit\": 0}");
}

TEST_CASE("other ranks go to stderr with their number, once", "[launch-output]") {
  Fixture f;
  f.say(2, "raw\n");
  f.say(2, "[rank 2] warning: slow disk\n");
  f.say(3, "printed\n", Stream::out);
  CHECK(f.err.empty());
  f.pass(300ms);
  CHECK(f.err == "[rank 2] raw\n[rank 2] warning: slow disk\n[rank 3] printed\n");
  CHECK(f.out.empty());
}

TEST_CASE("objects of a JSON console pass at once, and name their rank", "[launch-output]") {
  Fixture f;
  const std::string error =
      R"({"kind":"log","level":"error","rank":2,"text":"error: no room left [full]"})"
      "\n";
  const std::string step = R"({"kind":"train","step":1})"
                           "\n";
  f.say(2, error);
  f.say(0, step);
  CHECK(f.err == error + step);
  CHECK(f.output.last_error(2) == "error: no room left [full]");
  f.say(1,
        R"({"kind":"result"})"
        "\n",
        Stream::out);
  f.pass(300ms);
  CHECK(f.err == error + step +
                     R"([rank 1] {"kind":"result"})"
                     "\n");
}

TEST_CASE("equal lines of several ranks become one", "[launch-output]") {
  Fixture f;
  f.say(0, "warning: old key\n");
  f.say(1, "[rank 1] warning: old key\n");
  f.say(3, "[rank 3] warning: old key\n");
  f.pass(300ms);
  CHECK(f.err == "[ranks 0-1,3] warning: old key\n");
}

TEST_CASE("errors with a place are held as others are, and merged", "[launch-output]") {
  Fixture f;
  f.say(0, "a.yaml:3:7: error: cannot write x [output-not-writable]\n");
  f.say(1, "[rank 1] a.yaml:3:7: error: cannot write x [output-not-writable]\n");
  f.pass(300ms);
  CHECK(f.err.empty());
  CHECK(f.output.last_error(1) == "a.yaml:3:7: error: cannot write x [output-not-writable]");
  f.pass(2'700ms);
  CHECK(f.err == "[ranks 0-1] a.yaml:3:7: error: cannot write x [output-not-writable]\n");
}

TEST_CASE("a line that one rank repeats stays twice", "[launch-output]") {
  Fixture f;
  f.say(1, "again\n");
  f.say(1, "again\n");
  f.output.flush_all();
  CHECK(f.err == "[rank 1] again\n[rank 1] again\n");
}

TEST_CASE("nothing of rank 0 overtakes its held warning", "[launch-output]") {
  Fixture f;
  f.say(0, "warning: first\n");
  f.say(0, "second\n");
  CHECK(f.err.empty());
  f.pass(300ms);
  CHECK(f.err == "warning: first\nsecond\n");
  f.say(0, "third\n");
  CHECK(f.err == "warning: first\nsecond\nthird\n");
}

TEST_CASE("errors wait for ranks that hear of them by heartbeat", "[launch-output]") {
  Fixture f;
  f.say(1, "[rank 1] error: rank 3 failed: no space\n");
  f.pass(2s);
  f.say(0, "error: rank 3 failed: no space\n");
  f.pass(1s);
  CHECK(f.err == "[ranks 0-1] error: rank 3 failed: no space\n");
}

TEST_CASE("the last error line of a rank is remembered", "[launch-output]") {
  Fixture f;
  CHECK(f.output.last_error(1).empty());
  f.say(1, "starting\n");
  CHECK(f.output.last_error(1) == "starting");
  f.say(1, "[rank 1] error: no space\n");
  f.say(1, "goodbye\n");
  CHECK(f.output.last_error(1) == "error: no space");
  f.say(1, "error: printed\n", Stream::out);
  CHECK(f.output.last_error(1) == "error: no space");
}

TEST_CASE("ranks are listed briefly", "[launch-output]") {
  CHECK(short_list({4}) == "4");
  CHECK(short_list({3, 1, 2, 0}) == "0-3");
  CHECK(short_list({0, 2, 3, 9}) == "0,2-3,9");
}
