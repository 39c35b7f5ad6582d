#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "cli/client/command.h"

namespace lockstep {

// What may stand where a shell asks. `kind`: kFile where only the shell knows.
enum class WordKind {
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
struct WordQuestion {
  WordKind kind = WordKind::kNothing;
  std::vector<std::string> choices{};  // subcommands, flags, values of a flag
  ConnectionFlags flags{};             // those before it on the line, for what a server knows
};

// Reads the words after the program's name (the last one is being written) along the program's own
// subcommands and options. A pure function.
WordQuestion question_at(const CLI::App& app, const std::vector<std::string>& words);

// What `__complete` prints for a shell: the words that may stand where the last of `words` is being
// written, a line each.
void complete_words(const CLI::App& app, ClientContext context,
                    const std::vector<std::string>& words);

// The script that a shell reads: bash, zsh or fish; empty for others. `program`: its name.
std::string completion_script(const std::string& shell);

}  // namespace lockstep
