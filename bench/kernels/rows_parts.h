#pragma once

#include "bench/kernels/rows.h"

// The parts of rows_of().
namespace lockstep::bench {

void add_block_rows(const Model& model, std::vector<Row>& list);
void add_embedding_loss_rows(const Model& model,
                             std::vector<Row>& list);              // embedding, loss, sampling
void add_conv_rows(const Model& model, std::vector<Row>& list);    // of images
void add_update_rows(const Model& model, std::vector<Row>& list);  // optimizer, elementwise

}  // namespace lockstep::bench
