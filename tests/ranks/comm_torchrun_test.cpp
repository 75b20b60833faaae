// Does a run under torchrun's environment, without our launcher, end by itself when a rank fails?
#include "process.hpp"
#include "support/catch.hpp"
#include "support/free_port.hpp"

#include <memory>
#include <netinet/in.h>
#include <signal.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

using colossal::test::count_of;
using colossal::test::free_port;
using colossal::test::Process;
using namespace std::chrono_literals;

namespace {

std::vector<std::string> variables(int rank, int num_ranks, int port) {
  return {"RANK=" + std::to_string(rank),
          "LOCAL_RANK=" + std::to_string(rank),
          "WORLD_SIZE=" + std::to_string(num_ranks),
          "LOCAL_WORLD_SIZE=" + std::to_string(num_ranks),
          "MASTER_ADDR=127.0.0.1",
          "MASTER_PORT=" + std::to_string(port),
          "OMP_NUM_THREADS=1"};
}

std::unique_ptr<Process> start(const char* scenario, const std::vector<std::string>& environment) {
  return std::make_unique<Process>(std::vector<std::string>{COLOSSAL_LAUNCH_PROBE, "0", scenario},
                                   environment);
}

std::vector<std::unique_ptr<Process>> start_all(int num_ranks, const std::string& fault) {
  const int port = free_port();
  std::vector<std::unique_ptr<Process>> ranks;
  for (int rank = 0; rank < num_ranks; ++rank) {
    std::vector<std::string> environment = variables(rank, num_ranks, port);
    environment.push_back("COLOSSAL_FAULT=" + fault);
    ranks.push_back(start("steps", environment));
  }
  return ranks;
}

}  // namespace

TEST_CASE("ranks under torchrun's variables find each other and part", "[torchrun]") {
  for (const auto& rank : start_all(3, "rank=9,kind=nan")) {
    REQUIRE(rank->wait(60s) == 0);
    REQUIRE(rank->err().empty());
  }
}

TEST_CASE("when a rank throws the others exit 8, and one message names it", "[torchrun]") {
  const int culprit = GENERATE(0, 2);
  const auto ranks = start_all(3, "rank=" + std::to_string(culprit) + ",step=1,kind=throw");
  REQUIRE(ranks[static_cast<std::size_t>(culprit)]->wait(60s) == 1);
  const std::string prefix = culprit == 0 ? "" : "[rank " + std::to_string(culprit) + "] ";
  for (int rank = 0; rank < 3; ++rank) {
    Process& process = *ranks[static_cast<std::size_t>(rank)];
    REQUIRE(process.wait(10s) == (rank == culprit ? 1 : 8));
    INFO(process.err());
    CHECK(process.err() ==
          (rank == culprit ? prefix + "error: fault asked for at step 1 [fault-thrown]\n" : ""));
  }
}

TEST_CASE("when a rank is killed the others exit 8, and one message names it", "[torchrun]") {
  const auto ranks = start_all(3, "rank=1,step=1,kind=kill");
  REQUIRE(ranks[1]->wait(60s) == 137);
  REQUIRE(ranks[0]->wait(10s) == 8);
  REQUIRE(ranks[2]->wait(10s) == 8);
  const std::string told = ranks[0]->err() + ranks[2]->err();
  INFO(told);
  CHECK(count_of(told, "error: ") == 1);
  CHECK(count_of(told, "rank 1 died without a message: all_reduce #2 of group world") == 1);
  CHECK(count_of(told, "[peer-lost]") == 1);
}

TEST_CASE("what the group check finds is told once", "[torchrun]") {
  const int port = free_port();
  std::vector<std::unique_ptr<Process>> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back(start("hash", variables(rank, 3, port)));
  }
  std::string told;
  for (const auto& rank : ranks) {
    REQUIRE(rank->wait(60s) == 3);
    told += rank->err();
  }
  INFO(told);
  CHECK(count_of(told, "error: ") == 1);
  CHECK(count_of(told, "configuration differs from rank 0 (hash hash-1 vs hash-0)") == 1);
  CHECK(count_of(told, "[config-differs]") == 1);
}

TEST_CASE("a rank that never arrives is told once, by those that wait", "[torchrun]") {
  const int port = free_port();
  const auto first = start("absent", variables(0, 3, port));
  const auto last = start("absent", variables(2, 3, port));
  REQUIRE(first->wait(60s) == 8);
  REQUIRE(last->wait(60s) == 8);
  const std::string told = first->err() + last->err();
  INFO(told);
  CHECK(count_of(told, "error: ") == 1);
  CHECK(count_of(told, "rank 1 of 3 did not arrive within 2 s") == 1);
}

TEST_CASE("a signal does not hide the failure that it follows", "[torchrun]") {
  // As torchrun does: the peers of a rank that has failed get SIGTERM at once.
  const int port = free_port();
  std::vector<std::unique_ptr<Process>> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<std::string> environment = variables(rank, 2, port);
    environment.push_back("COLOSSAL_FAULT=rank=1,step=1,kind=throw");
    ranks.push_back(start("yield", environment));
  }
  REQUIRE(ranks[1]->wait(60s) == 1);
  ranks[0]->signal(SIGTERM);
  REQUIRE(ranks[0]->wait(10s) == 8);
}

TEST_CASE("when the store's host is killed the others exit 8", "[torchrun]") {
  const auto ranks = start_all(3, "rank=0,step=1,kind=kill");
  REQUIRE(ranks[0]->wait(60s) == 137);
  for (const int rank : {1, 2}) {
    Process& process = *ranks[static_cast<std::size_t>(rank)];
    REQUIRE(process.wait(10s) == 8);
    INFO(process.err());
    CHECK(count_of(process.err(), "the launcher or rank 0 has ended") == 1);
    CHECK(count_of(process.err(), "[store-lost]") == 1);
  }
}

TEST_CASE("a rank that stops beating is lost", "[torchrun]") {
  const int port = free_port();
  const auto first = start("linger", variables(0, 2, port));
  const auto second = start("linger", variables(1, 2, port));
  REQUIRE(first->wait_for_text("pid ", 1));
  REQUIRE(second->wait_for_text("pid ", 1));
  second->signal(SIGSTOP);
  REQUIRE(first->wait(10s) == 8);
  CHECK(count_of(first->err(), "rank 1 is lost: no heartbeat for 2 s") == 1);
  CHECK(count_of(first->err(), "[peer-lost]") == 1);
}

TEST_CASE("a port in use is named with the fix", "[torchrun]") {
  const int taken = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  REQUIRE(::bind(taken, reinterpret_cast<const sockaddr*>(&address), length) == 0);
  REQUIRE(::listen(taken, 1) == 0);
  ::getsockname(taken, reinterpret_cast<sockaddr*>(&address), &length);
  const int port = ntohs(address.sin_port);
  const auto rank = start("steps", variables(0, 2, port));
  REQUIRE(rank->wait(60s) == 9);
  INFO(rank->err());
  CHECK(count_of(rank->err(), "port " + std::to_string(port) + " is in use on this machine") == 1);
  CHECK(count_of(rank->err(), "MASTER_PORT") == 1);
  CHECK(count_of(rank->err(), "[port-in-use]") == 1);
  ::close(taken);
}

TEST_CASE("an incomplete launcher environment exits 9", "[torchrun]") {
  const auto rank = start("steps", {"RANK=0", "WORLD_SIZE=2"});
  REQUIRE(rank->wait(60s) == 9);
  CHECK(count_of(rank->err(), "LOCAL_WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT not set") ==
        1);
}

TEST_CASE("a world of one needs no port", "[torchrun]") {
  const auto rank = start("steps", variables(0, 1, free_port()));
  REQUIRE(rank->wait(60s) == 0);
  REQUIRE(rank->out() == "{\"exit\": 0}\n");
}
