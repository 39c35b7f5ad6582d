#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The bytes of a .npy file of this version with this dict and data. The dict is padded as np.save
// pads it.
inline std::string npy_bytes(std::string dict, std::string_view data, char major = 1) {
  const size_t length_bytes = major == 1 ? 2 : 4;
  const size_t before = 8 + length_bytes;
  dict.append(63 - (before + dict.size()) % 64, ' ');
  dict += '\n';
  std::string bytes = "\x93NUMPY";
  bytes += major;
  bytes += '\0';
  for (size_t i = 0; i < length_bytes; ++i) bytes += static_cast<char>(dict.size() >> (8 * i));
  return bytes + dict + std::string(data);
}

inline std::string npy_dict(std::string_view dtype, std::string_view shape) {
  return "{'descr': '" + std::string(dtype) +
         "', 'fortran_order': False, 'shape': " + std::string(shape) + ", }";
}

// The bytes of a file with these values; the dtype is that of T.
template <class T>
std::string npy_array(std::string_view dtype, std::string_view shape,
                      const std::vector<T>& values) {
  return npy_bytes(npy_dict(dtype, shape),
                   {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
}

}  // namespace lockstep
