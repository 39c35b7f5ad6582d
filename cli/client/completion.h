#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "cli/client/command.h"

namespace lockstep::cli {

// The kind of word that can complete a command line. kFile: the shell completes it.
enum class CompletionKind {
  kNothing,
  kFile,
  kJob,
  kMachine,
  kNamespace,
  kContext,
  kCluster,
  kUser,
  kChoices
};
struct CompletionRequest {
  CompletionKind kind = CompletionKind::kNothing;
  std::vector<std::string> choices{};  // subcommands, flags, values of a flag
  ConnectionFlags flags{};             // from the words before, to query a server
};

// Interprets the words after the program's name with the program's own subcommands and options. The
// last word is still being typed. Pure.
CompletionRequest completion_request(const CLI::App& app, const std::vector<std::string>& words);

// Implements `__complete`: prints the words that can complete the last of `words`, one per line.
void complete_words(const CLI::App& app, ClientContext context,
                    const std::vector<std::string>& words);

// Returns the completion script for bash, zsh or fish; empty for other shells.
std::string completion_script(const std::string& shell);

}  // namespace lockstep::cli
