#pragma once

#include <string>
#include <vector>

#include "agent/node/launch.h"

namespace lockstep {

// What a rank of a user's command is told, as torchrun, JAX, TensorFlow and MPI tell it: pure, made
// from the assignment. docs/trainingjob.md lists it for users.

// A file that all ranks of a node read, written before they start.
struct RoundFile {
  std::string path;
  std::string text;
};

// The world as JSON (WorldAssignment's own), and for `mpi` the hostfiles. None for train.
std::vector<RoundFile> round_files(const Assignment& assignment, const std::string& work_folder);

// NAME=value, each to replace what the environment has of that name: torchrun's variables and
// LOCKSTEP_*, and for a command those of assignment.variables.
std::vector<std::string> rank_variables(const Assignment& assignment, int64_t local_rank,
                                        const std::string& work_folder);

// The same for those that give way to what the user has set.
std::vector<std::string> default_variables(const Assignment& assignment, int64_t threads);

// Where the rank's program writes of its progress, one JSON object a line.
std::string progress_path(const std::string& work_folder, int64_t rank);

}  // namespace lockstep
