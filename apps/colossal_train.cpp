// Where does the program start? The only main(); the command line is apps/cli.cpp.
#include "cli.hpp"

int main(int argc, char** argv) {
  return colossal::run_cli(argc, argv);
}
