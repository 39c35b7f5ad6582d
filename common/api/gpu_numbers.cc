#include "common/api/gpu_numbers.h"

#include <algorithm>
#include <cstdio>

namespace lockstep {
namespace {

struct KnownXid {
  uint64_t number;
  const char* words;
};
constexpr KnownXid kKnown[] = {
    {13, "an exception in a kernel, usually a bug in the program"},
    {31, "a kernel accessed invalid memory, usually a bug in the program"},
    {43, "the GPU stopped working for this program"},
    {45, "the program's work was removed from the GPU, usually after an earlier error"},
    {48, "an uncorrectable error in the GPU's memory"},
    {61, "an internal error of the GPU's microcontroller"},
    {62, "an internal error of the GPU's microcontroller"},
    {63, "a bad part of the GPU's memory was remapped"},
    {64, "a bad part of the GPU's memory could not be remapped"},
    {74, "an NVLink error"},
    {79, "the GPU has fallen off the bus"},
    {92, "many corrected errors in the GPU's memory"},
    {94, "an uncorrectable error in the GPU's memory, contained in this program"},
    {95, "an uncorrectable error in the GPU's memory, not contained"},
    {119, "the GPU's system processor did not answer in time"},
    {120, "an error of the GPU's system processor"},
};

std::string times(uint32_t count) {
  if (count == 1) return "";
  return count == 2 ? " twice" : " " + std::to_string(count) + " times";
}

}  // namespace

void count_xid(GpuNumbers& gpu, uint64_t number) {
  const auto wanted = static_cast<uint32_t>(number);
  for (XidCount& xid : gpu.xids) {
    const bool is_last = &xid == &gpu.xids.back();
    const bool is_free = xid.count == 0;
    if (!is_free && !is_last && xid.number != wanted) continue;
    if (is_free) xid.number = wanted;
    if (xid.number != wanted) xid.number = 0;  // the last entry counts several kinds
    ++xid.count;
    return;
  }
}

std::string uuid_text(const std::array<uint8_t, 16>& uuid) {
  std::string text = "GPU";
  for (size_t i = 0; i < uuid.size(); ++i) {
    char byte[4];
    std::snprintf(byte, sizeof(byte), "%02x", static_cast<unsigned>(uuid[i]));
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += byte;
  }
  return text;
}

const char* xid_meaning(uint64_t number) {
  const auto* found = std::find_if(std::begin(kKnown), std::end(kKnown),
                                   [&](const KnownXid& xid) { return xid.number == number; });
  return found == std::end(kKnown) ? "see NVIDIA's list of Xid errors" : found->words;
}

std::string xids_text(const GpuNumbers& gpu) {
  std::string text;
  for (const XidCount& xid : gpu.xids) {
    if (xid.count == 0) continue;
    text += text.empty()
                ? "GPU " + std::string(gpu.bus.data()) + " (" + gpu.name.data() + ") reported "
                : ", ";
    const std::string what = xid.number == 0 ? "other Xids" : "Xid " + std::to_string(xid.number);
    text += what + times(xid.count);
    if (xid.number != 0) text += std::string(" (") + xid_meaning(xid.number) + ")";
  }
  return text;
}

}  // namespace lockstep
