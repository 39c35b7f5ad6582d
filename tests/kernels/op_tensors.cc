// The memory of a case's run.
#include <bit>

#include "common/base/check.h"
#include "tests/kernels/op_cases.h"

namespace lockstep::op_cases {

namespace {

// Waits until it is done.
void copy_now(const RunOn& on, const CopyArgs& args) {
  Result<Stream> stream = Stream::create(on.device);
  CHECK(stream.ok() && copy_bytes(*stream, args).ok() && stream->synchronize().ok());
}

// By truncation: values that are tested are exact in bf16, or NaN.
std::vector<uint16_t> to_bf16(const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (const float value : values) {
    bits.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
  }
  return bits;
}

template <class T>
std::vector<T> read(const RunOn& on, const Buffer& from) {
  std::vector<T> values(from.bytes() / sizeof(T));
  copy_now(on, {.to = values.data(), .from = from.data(), .bytes = from.bytes()});
  return values;
}

}  // namespace

void Tensors::store(const std::string& name, Kind kind, const void* bytes, size_t count) {
  Result<Buffer> buffer = Buffer::allocate(on_.device, count, name);
  CHECK(buffer.ok());
  copy_now(on_, {.to = buffer->data(), .from = bytes, .bytes = count});
  stored_[name] = {std::move(buffer).value(), kind};
}

void Tensors::put(const std::string& name, std::vector<float> values, bool as_bf16) {
  if (as_bf16) {
    const std::vector<uint16_t> bits = to_bf16(values);
    store(name, Kind::kBf16, bits.data(), bits.size() * sizeof(uint16_t));
  } else {
    store(name, Kind::kF32, values.data(), values.size() * sizeof(float));
  }
  floats[name] = std::move(values);
}

void Tensors::put(const std::string& name, std::vector<int32_t> values) {
  store(name, Kind::kInt, values.data(), values.size() * sizeof(int32_t));
  ints[name] = std::move(values);
}

void Tensors::put_doubles(const std::string& name, const std::vector<double>& values) {
  store(name, Kind::kDouble, values.data(), values.size() * sizeof(double));
  floats[name].assign(values.begin(), values.end());
}

const std::vector<float>& Tensors::get(const std::string& name) {
  const Stored& stored = stored_.at(name);
  std::vector<float>& values = floats[name];
  if (stored.kind == Kind::kF32) {
    values = read<float>(on_, stored.buffer);
  } else if (stored.kind == Kind::kDouble) {
    values.clear();
    for (const double value : read<double>(on_, stored.buffer)) {
      values.push_back(static_cast<float>(value));
    }
  } else {
    values.clear();
    for (const uint16_t bits : read<uint16_t>(on_, stored.buffer)) {
      values.push_back(std::bit_cast<float>(uint32_t{bits} << 16));
    }
  }
  return values;
}

void Tensors::get_all() {
  for (const auto& [name, stored] : stored_) {
    if (stored.kind != Kind::kInt) get(name);
  }
}

void Tensors::copy(const std::string& from, const std::string& to) {
  const Buffer &source = stored_.at(from).buffer, &target = stored_.at(to).buffer;
  CHECK(source.bytes() == target.bytes());
  copy_now(on_, {.to = target.data(), .from = source.data(), .bytes = source.bytes()});
}

}  // namespace lockstep::op_cases
