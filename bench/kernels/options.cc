#include "bench/kernels/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>
#include <string_view>

namespace lockstep::bench {

namespace {

using Setter = std::function<bool(KernelOptions&, std::string_view value)>;

template <class T>
bool read_number(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool set_device(KernelOptions& options, std::string_view value) {
  options.device = value == "cuda" ? kernels::DeviceType::kCuda : kernels::DeviceType::kCpu;
  return value == "cuda" || value == "cpu";
}

bool set_dtype(KernelOptions& options, std::string_view value) {
  options.dtype = value == "bf16" ? kernels::DType::kBf16 : kernels::DType::kF32;
  return value == "bf16" || value == "fp32";
}

bool set_threads(KernelOptions& options, std::string_view value) {
  return read_number(value, options.threads) && options.threads > 0;
}

bool set_seconds(KernelOptions& options, std::string_view value) {
  return read_number(value, options.seconds) && std::isfinite(options.seconds) &&
         options.seconds >= 0;
}

// Reads the next number, up to an 'x' or the end.
bool take_number(std::string_view& text, int64_t& value) {
  const size_t end = std::min(text.find('x'), text.size());
  const bool is_number = read_number(text.substr(0, end), value) && value > 0;
  text.remove_prefix(std::min(end + 1, text.size()));
  return is_number;
}

// Reads "64x1024x12x64" or, with a number of key/value heads, "8x1024x32x128x8".
bool read_shape(std::string_view text, kernels::AttentionShape& s) {
  for (int64_t* size : {&s.batch, &s.sequence, &s.heads, &s.head_dim}) {
    if (!take_number(text, *size)) return false;
  }
  s.kv_heads = s.heads;
  if (text.empty()) return true;
  return take_number(text, s.kv_heads) && text.empty() && s.heads % s.kv_heads == 0;
}

bool set_attention(KernelOptions& options, std::string_view value) {
  while (!value.empty()) {
    const size_t end = std::min(value.find(','), value.size());
    if (!read_shape(value.substr(0, end), options.attention.emplace_back())) return false;
    value.remove_prefix(std::min(end + 1, value.size()));
  }
  return !options.attention.empty();
}

bool set_by(KernelOptions& options, std::string_view value) {
  options.by = value == "cudnn" ? kernels::AttentionBy::kCudnn : kernels::AttentionBy::kOwn;
  return value == "cudnn" || value == "own";
}

const std::map<std::string_view, Setter>& setters() {
  static const std::map<std::string_view, Setter> kSetters = {
      {"--device", set_device},
      {"--dtype", set_dtype},
      {"--threads", set_threads},
      {"--seconds", set_seconds},
      {"--attention", set_attention},
      {"--by", set_by},
      {"--filter",
       [](KernelOptions& options, std::string_view value) {
         options.filter = value;
         return true;
       }},
      {"--json", [](KernelOptions& options, std::string_view value) {
         options.json = value;
         return !value.empty();
       }}};
  return kSetters;
}

}  // namespace

Result<KernelOptions> parse_kernel_options(int argc, char** argv) {
  KernelOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--tiny") {
      options.tiny = true;
      options.seconds = 0.0;
      continue;
    }
    const auto setter = setters().find(name);
    if (setter == setters().end()) return invalid("unknown flag " + name);
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (++i >= argc || !setter->second(options, value)) {
      return invalid(name + ": a value in range expected, got '" + value + "'");
    }
  }
  return options;
}

}  // namespace lockstep::bench
