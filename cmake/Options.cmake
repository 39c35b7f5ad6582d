# Build options, and settings for every target.
option(LOCKSTEP_WORKER_ONLY "Build lockstep-worker, its tests and benches with a compiler and headers alone" OFF)
option(LOCKSTEP_FUZZ "Build the libFuzzer targets (clang only)" OFF)
set(LOCKSTEP_CUDA AUTO CACHE STRING
  "CUDA: AUTO if it is found, ON if it must be found, CARD for the installed card alone (OFF without one), OFF")
set(LOCKSTEP_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize takes them: address,undefined or thread")
set(LOCKSTEP_HEADERS "" CACHE PATH "A folder with the headers (nlohmann/, gtest sources) that the system does not have")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
# Everything is linked into programs. All targets use the same flag, so that they can share
# precompiled headers.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fPIE> $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fPIE>)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")
set(CMAKE_CXX_FLAGS_RELEASE "-O3")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g")
set(CMAKE_CUDA_FLAGS_RELWITHDEBINFO "-O2 -lineinfo")
set(CMAKE_CUDA_FLAGS_RELEASE "-O3")

find_program(LOCKSTEP_CCACHE ccache)
if(LOCKSTEP_CCACHE)
  # ccache needs these settings to cache files that include precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env CCACHE_SLOPPINESS=pch_defines,time_macros
    "${LOCKSTEP_CCACHE}")
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${LOCKSTEP_CCACHE}")
endif()

# A build with all tests links more than 200 programs. lld links each in a fifth of the time. It does
# not read what g++ writes for link-time optimisation.
find_program(LOCKSTEP_LLD ld.lld)
if(LOCKSTEP_LLD AND NOT CMAKE_INTERPROCEDURAL_OPTIMIZATION)
  add_link_options(-fuse-ld=lld)
endif()

if(LOCKSTEP_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "LOCKSTEP_FUZZ needs clang (libFuzzer): cmake --preset fuzz, packages clang and libclang-rt-14-dev")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(LOCKSTEP_SANITIZE)
  add_compile_options(-fsanitize=${LOCKSTEP_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${LOCKSTEP_SANITIZE})
  # cpprestsdk's library, which no fuzz target links, has its own type information for its headers,
  # which the vptr check does not accept.
  if(LOCKSTEP_SANITIZE MATCHES undefined AND NOT LOCKSTEP_FUZZ)
    add_compile_options(-fno-sanitize=vptr)
  endif()
  # g++ 12 warns of std::regex's own code once it is instrumented.
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)
endif()
