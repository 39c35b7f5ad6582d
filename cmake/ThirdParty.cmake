# Third parties as Debian packages them. Each becomes one imported target. The error for a missing
# one names its package.
find_package(Threads REQUIRED)

# nlohmann/json: headers only, from the system or from LOCKSTEP_HEADERS.
add_library(third_json INTERFACE)
find_path(NLOHMANN_INCLUDE nlohmann/json.hpp HINTS "${LOCKSTEP_HEADERS}")
if(NOT NLOHMANN_INCLUDE)
  message(FATAL_ERROR "nlohmann/json.hpp not found: install nlohmann-json3-dev, or give its folder as -DLOCKSTEP_HEADERS=")
endif()
target_include_directories(third_json SYSTEM INTERFACE "${NLOHMANN_INCLUDE}")

# GoogleTest: built from its sources, so that the sanitizers see through it.
find_path(GTEST_SOURCE src/gtest-all.cc HINTS "${LOCKSTEP_HEADERS}/googletest" /usr/src/googletest/googletest)
if(NOT GTEST_SOURCE)
  message(FATAL_ERROR "GoogleTest's sources not found: install googletest, or give their folder as -DLOCKSTEP_HEADERS=")
endif()
add_library(gtest_main_local STATIC EXCLUDE_FROM_ALL "${GTEST_SOURCE}/src/gtest-all.cc" "${GTEST_SOURCE}/src/gtest_main.cc")
target_include_directories(gtest_main_local SYSTEM PUBLIC "${GTEST_SOURCE}/include" PRIVATE "${GTEST_SOURCE}")
target_link_libraries(gtest_main_local PUBLIC Threads::Threads)

# oneDNN: the CPU's matrix products. Without it kernels/ builds its own, slower ones (twin file).
# It brings libgomp, which the thread sanitizer does not understand.
if(NOT LOCKSTEP_SANITIZE MATCHES "thread")
  find_path(DNNL_INCLUDE oneapi/dnnl/dnnl.hpp)
  find_library(DNNL_LIBRARY dnnl)
endif()
if(DNNL_INCLUDE AND DNNL_LIBRARY)
  set(LOCKSTEP_HAVE_DNNL ON)
  add_library(third_dnnl INTERFACE)
  target_include_directories(third_dnnl SYSTEM INTERFACE "${DNNL_INCLUDE}")
  target_link_libraries(third_dnnl INTERFACE "${DNNL_LIBRARY}")
else()
  set(LOCKSTEP_HAVE_DNNL OFF)
endif()
message(STATUS "oneDNN: ${LOCKSTEP_HAVE_DNNL}")

# CUDA: found even if nvcc is not on the PATH; the build works without it.
include(CheckLanguage)
if(NOT CMAKE_CUDA_COMPILER AND EXISTS /usr/local/cuda/bin/nvcc)
  set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
endif()
set(cuda ${LOCKSTEP_CUDA})
if(cuda STREQUAL "CARD")
  # "9.0" becomes 90a: from Hopper on, code for one architecture has instructions of its own.
  set(cuda OFF)
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
    OUTPUT_VARIABLE capabilities ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed AND capabilities MATCHES "^([0-9]+)\\.([0-9])")
    set(cuda AUTO)
    set(CMAKE_CUDA_ARCHITECTURES ${CMAKE_MATCH_1}${CMAKE_MATCH_2})
    if(CMAKE_MATCH_1 GREATER_EQUAL 9)
      string(APPEND CMAKE_CUDA_ARCHITECTURES a)
    endif()
  endif()
endif()
if(LOCKSTEP_SANITIZE OR LOCKSTEP_FUZZ OR cuda STREQUAL "OFF")
  set(LOCKSTEP_HAVE_CUDA OFF)
else()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80 90a)
    endif()
    enable_language(CUDA)
    # nvcc supports C++20 since 12.0, but CMake 3.25 doesn't know that.
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    endif()
    # CMake 3.25's module expects nvToolsExt, which CUDA 13 no longer has. We don't use it.
    if(NOT TARGET CUDA::nvToolsExt)
      add_library(CUDA::nvToolsExt INTERFACE IMPORTED)
    endif()
    find_package(CUDAToolkit REQUIRED)
    set(LOCKSTEP_HAVE_CUDA ON)
  else()
    set(LOCKSTEP_HAVE_CUDA OFF)
  endif()
endif()
if(LOCKSTEP_CUDA STREQUAL "ON" AND NOT LOCKSTEP_HAVE_CUDA)
  message(FATAL_ERROR "LOCKSTEP_CUDA=ON, and there is no nvcc on the PATH or in /usr/local/cuda/bin")
endif()
message(STATUS "CUDA: ${LOCKSTEP_HAVE_CUDA}")

# NCCL: only its header; the library is loaded on first use.
if(LOCKSTEP_HAVE_CUDA)
  find_path(NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
endif()
if(LOCKSTEP_HAVE_CUDA AND NCCL_INCLUDE)
  set(LOCKSTEP_HAVE_NCCL ON)
  add_library(third_nccl INTERFACE)
  target_include_directories(third_nccl SYSTEM INTERFACE "${NCCL_INCLUDE}")
  target_link_libraries(third_nccl INTERFACE CUDA::cudart_static ${CMAKE_DL_LIBS})
else()
  set(LOCKSTEP_HAVE_NCCL OFF)
endif()
message(STATUS "NCCL: ${LOCKSTEP_HAVE_NCCL}")

# cuBLASLt: only its header, which the tests' fake needs too, even without nvcc. The library is
# loaded on first use.
find_path(CUBLASLT_INCLUDE cublasLt.h HINTS ${CUDAToolkit_INCLUDE_DIRS} /usr/local/cuda/include)
if(CUBLASLT_INCLUDE)
  set(LOCKSTEP_HAVE_CUBLASLT ON)
  add_library(third_cublaslt INTERFACE)
  target_include_directories(third_cublaslt SYSTEM INTERFACE "${CUBLASLT_INCLUDE}")
else()
  set(LOCKSTEP_HAVE_CUBLASLT OFF)
endif()
message(STATUS "cuBLASLt: ${LOCKSTEP_HAVE_CUBLASLT}")

# cuDNN 9.16 and later: likewise, and optional. Searched in the toolkit's folder, among the Python
# packages that PyTorch brings (nvidia.cudnn of the python3 on the PATH), and in LOCKSTEP_CUDNN. The
# library is loaded on first use. Programs in the build folder also search the lib folder next to
# these headers; those from tools/bundle don't.
set(LOCKSTEP_CUDNN "" CACHE PATH "A folder with cuDNN's include/ and lib/, where it is in no usual place")
find_program(LOCKSTEP_PYTHON_ON_PATH python3)
set(cudnn_package)
if(LOCKSTEP_PYTHON_ON_PATH)
  execute_process(COMMAND "${LOCKSTEP_PYTHON_ON_PATH}" -c
    "import importlib.util as u; print(*u.find_spec('nvidia.cudnn').submodule_search_locations)"
    OUTPUT_VARIABLE cudnn_package OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
find_path(CUDNN_INCLUDE cudnn_graph.h HINTS "${LOCKSTEP_CUDNN}/include" ${CUDAToolkit_INCLUDE_DIRS}
  /usr/local/cuda/include "${cudnn_package}/include")
set(cudnn_version 0)
if(CUDNN_INCLUDE AND EXISTS "${CUDNN_INCLUDE}/cudnn_version.h")
  file(STRINGS "${CUDNN_INCLUDE}/cudnn_version.h" lines REGEX "define CUDNN_(MAJOR|MINOR) [0-9]+")
  string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*" "\\1.\\2" cudnn_version "${lines}")
endif()
if(CUBLASLT_INCLUDE AND cudnn_version VERSION_GREATER_EQUAL 9.16 AND cudnn_version VERSION_LESS 10)
  set(LOCKSTEP_HAVE_CUDNN ON)
  get_filename_component(cudnn_libraries "${CUDNN_INCLUDE}/../lib" ABSOLUTE)
  list(APPEND CMAKE_BUILD_RPATH "${cudnn_libraries}")
  add_library(third_cudnn INTERFACE)
  target_include_directories(third_cudnn SYSTEM INTERFACE "${CUDNN_INCLUDE}" "${CUBLASLT_INCLUDE}")
else()
  set(LOCKSTEP_HAVE_CUDNN OFF)
endif()
message(STATUS "cuDNN: ${LOCKSTEP_HAVE_CUDNN}")

# The bare worker's build has no OpenSSL, and cannot encrypt.
set(LOCKSTEP_HAVE_OPENSSL OFF)
if(LOCKSTEP_WORKER_ONLY)
  return()
endif()

# yaml-cpp, used by one codec.
find_path(YAML_CPP_INCLUDE yaml-cpp/yaml.h)
find_library(YAML_CPP_LIBRARY yaml-cpp)
# cpprestsdk: HTTP clients. Boost.Beast: HTTP servers.
find_path(CPPREST_INCLUDE cpprest/http_client.h)
find_library(CPPREST_LIBRARY cpprest)
find_package(Boost 1.74 REQUIRED)
find_package(OpenSSL REQUIRED)
set(LOCKSTEP_HAVE_OPENSSL ON)
# prometheus-cpp: only its core, since our own HTTP servers serve the metrics.
find_path(PROMETHEUS_INCLUDE prometheus/registry.h)
find_library(PROMETHEUS_CORE_LIBRARY prometheus-cpp-core)
find_path(CLI11_INCLUDE CLI/CLI.hpp)
# RE2: Kubernetes uses its syntax for patterns in schemas, and it matches in linear time.
find_path(RE2_INCLUDE re2/re2.h)
find_library(RE2_LIBRARY re2)
foreach(need
    "YAML_CPP_INCLUDE:libyaml-cpp-dev" "YAML_CPP_LIBRARY:libyaml-cpp-dev"
    "CPPREST_INCLUDE:libcpprest-dev" "CPPREST_LIBRARY:libcpprest-dev"
    "PROMETHEUS_INCLUDE:prometheus-cpp-dev" "PROMETHEUS_CORE_LIBRARY:prometheus-cpp-dev"
    "CLI11_INCLUDE:libcli11-dev" "RE2_INCLUDE:libre2-dev" "RE2_LIBRARY:libre2-dev")
  string(REPLACE ":" ";" need "${need}")
  list(GET need 0 variable)
  list(GET need 1 package)
  if(NOT ${variable})
    message(FATAL_ERROR "${variable} not found: install the package ${package}")
  endif()
endforeach()

# sentencepiece: optional, for `lockstep tokenize` alone. Without it a twin file says so.
find_path(SENTENCEPIECE_INCLUDE sentencepiece_trainer.h)
find_library(SENTENCEPIECE_LIBRARY sentencepiece)
find_library(SENTENCEPIECE_TRAIN_LIBRARY sentencepiece_train)
if(SENTENCEPIECE_INCLUDE AND SENTENCEPIECE_LIBRARY AND SENTENCEPIECE_TRAIN_LIBRARY)
  set(LOCKSTEP_HAVE_SENTENCEPIECE ON)
else()
  set(LOCKSTEP_HAVE_SENTENCEPIECE OFF)
endif()
message(STATUS "sentencepiece: ${LOCKSTEP_HAVE_SENTENCEPIECE}")

function(third_party name include)
  add_library(${name} INTERFACE)
  target_include_directories(${name} SYSTEM INTERFACE "${include}")
  target_link_libraries(${name} INTERFACE ${ARGN})
endfunction()
third_party(third_yaml "${YAML_CPP_INCLUDE}" "${YAML_CPP_LIBRARY}")
third_party(third_cpprest "${CPPREST_INCLUDE}" "${CPPREST_LIBRARY}" OpenSSL::SSL OpenSSL::Crypto Threads::Threads)
third_party(third_crypto "${OPENSSL_INCLUDE_DIR}" OpenSSL::Crypto)
third_party(third_openssl "${OPENSSL_INCLUDE_DIR}" OpenSSL::SSL OpenSSL::Crypto)
third_party(third_beast "${Boost_INCLUDE_DIRS}" Threads::Threads)
if(LOCKSTEP_SANITIZE MATCHES "thread")
  # The thread sanitizer does not model fences; asio's locks give the same ordering.
  target_compile_definitions(third_beast INTERFACE BOOST_ASIO_DISABLE_FENCED_BLOCK)
endif()
third_party(third_prometheus "${PROMETHEUS_INCLUDE}" "${PROMETHEUS_CORE_LIBRARY}" Threads::Threads)
third_party(third_cli11 "${CLI11_INCLUDE}")
third_party(third_re2 "${RE2_INCLUDE}" "${RE2_LIBRARY}" Threads::Threads)
if(LOCKSTEP_HAVE_SENTENCEPIECE)
  third_party(third_sentencepiece "${SENTENCEPIECE_INCLUDE}" "${SENTENCEPIECE_TRAIN_LIBRARY}" "${SENTENCEPIECE_LIBRARY}")
endif()
