# Which compiler cache and linker are used: whatever is installed, nothing is required.
find_program(COLOSSAL_CCACHE ccache)
if(COLOSSAL_CCACHE)
  # base_dir and nohashdir let worktrees of one project share cached objects.
  get_filename_component(_parent ${CMAKE_SOURCE_DIR} DIRECTORY)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${_parent} CCACHE_NOHASHDIR=1
                                  CCACHE_SLOPPINESS=pch_defines,time_macros ${COLOSSAL_CCACHE})
endif()

find_program(COLOSSAL_MOLD mold)
find_program(COLOSSAL_LLD ld.lld)
if(COLOSSAL_MOLD)
  add_link_options(-fuse-ld=mold)
elseif(COLOSSAL_LLD)
  add_link_options(-fuse-ld=lld)
endif()

# Development and CI setting: -O1 -g1 compiles fast; the hot loops live in ATen and in nn/kernels (-O3, its own CMakeLists).
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g1")
if(COLOSSAL_SANITIZE)
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
endif()
