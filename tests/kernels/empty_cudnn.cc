// A replacement for libcudnn.so.9 that reports a version but can do nothing.
#include <cstddef>

#define NOTHING(name)     \
  extern "C" int name() { \
    return 1;             \
  }

extern "C" size_t cudnnGetVersion() {
  return VERSION;
}
NOTHING(cudnnGetErrorString)
NOTHING(cudnnGetLastErrorString)
NOTHING(cudnnCreate)
NOTHING(cudnnSetStream)
NOTHING(cudnnBackendCreateDescriptor)
NOTHING(cudnnBackendDestroyDescriptor)
NOTHING(cudnnBackendSetAttribute)
NOTHING(cudnnBackendGetAttribute)
NOTHING(cudnnBackendFinalize)
#if VERSION != 91700
NOTHING(cudnnBackendExecute)
#endif
