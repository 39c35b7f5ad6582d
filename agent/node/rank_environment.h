#pragma once

#include <string>
#include <vector>

#include "agent/node/launch.h"

namespace lockstep::node {

// Environment variables for the ranks of a user's command, compatible with torchrun, JAX,
// TensorFlow and MPI. Pure functions of the assignment. docs/trainingjob.md lists the variables for
// users.

// A file that all ranks of a node read, written before they start.
struct RoundFile {
  std::string path;
  std::string text;
};

// Returns the world as JSON (see WorldAssignment), and the hostfiles for `mpi`. Empty for train.
std::vector<RoundFile> round_files(const Assignment& assignment, const std::string& work_folder);

// Returns NAME=value entries that replace existing variables: torchrun's and LOCKSTEP_*, and for a
// command those that assignment.variables asks for.
std::vector<std::string> rank_variables(const Assignment& assignment, int64_t local_rank,
                                        const std::string& work_folder);

// Returns the variables that apply only if the user has not set them.
std::vector<std::string> default_variables(const Assignment& assignment, int64_t threads);

// Returns the path of the file to which the rank's program writes its progress.
std::string progress_path(const std::string& work_folder, int64_t rank);

}  // namespace lockstep::node
