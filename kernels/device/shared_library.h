#pragma once

#include <dlfcn.h>

#include <string>

#include "common/base/result.h"

namespace lockstep::kernels {

// A library loaded at run time with dlopen().
struct SharedLibrary {
  void* handle = nullptr;
  const char* name = "";  // shown in errors: "nvml"
};

// Looks up a function by name; the caller must ask for its real type. kUnavailable: "[nvml] the
// library does not export nvmlInit_v2".
template <class Function>
Status find_function(const SharedLibrary& library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library.handle, name));
  if (function != nullptr) return {};
  return unavailable(std::string("[") + library.name + "] the library does not export " + name);
}

}  // namespace lockstep::kernels
