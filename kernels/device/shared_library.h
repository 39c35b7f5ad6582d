#pragma once

#include <dlfcn.h>

#include <string>

#include "common/base/result.h"

namespace lockstep {

// A library that was loaded at run time, by dlopen().
struct SharedLibrary {
  void* handle = nullptr;
  const char* name = "";  // in errors: "nvml"
};

// The function of that name, which must be of the type that is asked for. kUnavailable: "[nvml] the
// library has no nvmlInit_v2".
template <class Function>
Status find_function(const SharedLibrary& library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library.handle, name));
  if (function != nullptr) return {};
  return unavailable(std::string("[") + library.name + "] the library has no " + name);
}

}  // namespace lockstep
