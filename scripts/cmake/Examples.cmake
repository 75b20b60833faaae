# How does the program hold the files of configs/? Run as a script: writes them as one C++ source, with their names.
file(GLOB_RECURSE files RELATIVE ${SOURCE}/configs ${SOURCE}/configs/*.yaml)
list(FILTER files EXCLUDE REGEX "^sweeps/")  # no configurations
list(SORT files)
set(text "// Written by scripts/cmake/Examples.cmake: the files of configs/.
#include \"train/examples.hpp\"

#include <array>

namespace colossal {
namespace {

constexpr std::array kExamples = {
")
foreach(file IN LISTS files)
  file(READ ${SOURCE}/configs/${file} content)
  string(REGEX REPLACE "\\.yaml$" "" name ${file})
  string(APPEND text "    Example{\"${name}\", R\"yaml(${content})yaml\"},\n")
endforeach()
string(APPEND text "};

}  // namespace

std::span<const Example> examples() {
  return kExamples;
}

}  // namespace colossal
")
file(WRITE ${OUTPUT} "${text}")
