// The two forms of a PieceStream, for make_piece_stream().
#pragma once

#include <memory>
#include <vector>

#include "agent/parallel/offload/piece_stream.h"

namespace lockstep::parallel {

std::unique_ptr<PieceStream> make_host_piece_stream(std::vector<StreamedArray> arrays,
                                                    const PieceMemory& memory, const Clock& clock);
Result<std::unique_ptr<PieceStream>> make_device_piece_stream(kernels::Stream& stream,
                                                              std::vector<StreamedArray> arrays,
                                                              const PieceMemory& memory);

}  // namespace lockstep::parallel
