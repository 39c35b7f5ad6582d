#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/optim/optimizer.h"
#include "common/base/result.h"
#include "common/base/sha256.h"

namespace lockstep::server {

// A dense tensor of `count` floats. Its initial values are zero until a worker puts others
// (ParameterClient::put).
struct TensorSpec {
  std::string name;
  uint64_t count = 0;
  optim::OptimizerOptions optimizer;
};

// How long the rows of a table live. Clocks are those of the table's most advanced worker.
struct RowLife {
  // A row expires if it has not been used for this many clocks and its frequency is below
  // frequency_min; 0: rows live forever. The sweep that finds them takes kSweepClocks
  // (row_store.h) for all rows.
  uint32_t idle_max = 0;
  // The frequency of a row is its number of uses, of which a use `t` clocks ago counts
  // 2^(-t / half_life); half_life 0: each counts 1.
  float frequency_min = 0;
  float half_life = 0;
  // Each clock after a row's first update multiplies its values by 1 - decay. A row is multiplied
  // when it is next used, once for all clocks since its last update, so a pull changes nothing. The
  // optimizer's states do not decay.
  double decay = 0;
};

// A table of sparse rows of `dim` floats, one for each 64-bit key. A row begins with normal numbers
// of this deviation (0: zeros), a function of the servers' seed, the table and the key.
struct TableSpec {
  std::string name;
  uint32_t dim = 0;
  float deviation = 0;
  optim::OptimizerOptions optimizer;
  RowLife life;
};

// The parameters of a job. A tensor or table is named by its index. All servers and workers of a
// round have the same catalog; a view holds its digest.
struct Catalog {
  std::vector<TensorSpec> tensors;
  std::vector<TableSpec> tables;
};

// kInvalid, with the name of the tensor or table, for what limits.h or an optimizer does not allow:
// FTRL computes a parameter from its states, so rows that it updates begin with zeros.
Status check_catalog(const Catalog& catalog);

// SHA-256 of a text that has one line for each tensor and table, with every option, numbers
// in hexadecimal. The life of rows does not matter: it may change between rounds.
Digest digest_of(const Catalog& catalog);

}  // namespace lockstep::server
