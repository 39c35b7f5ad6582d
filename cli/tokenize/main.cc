// lockstep-tokenize: `lockstep tokenize`. A program of its own, so that the sentencepiece library
// is linked into it alone.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "cli/tokenize/commands.h"
#include "common/base/clock.h"
#include "common/base/run_main.h"

namespace lockstep::cli {
namespace {

constexpr int kExitUserError = 2;  // the user can correct it
constexpr int kThreadsMax = 1024;
constexpr int64_t kVocabularyMax = 1 << 20;

volatile std::sig_atomic_t interrupted = 0;

bool is_interrupted() {
  return interrupted != 0;
}

int exit_code_of(const Status& status) {
  if (status.ok()) return 0;
  const std::string& text = status.error().message;
  const size_t end = text.starts_with("[") ? text.find("] ") : std::string::npos;
  std::fprintf(stderr, "%s\n", text.substr(end == std::string::npos ? 0 : end + 2).c_str());
  if (is_interrupted()) return 128 + SIGINT;
  const Code code = status.error().code;
  const bool is_users =
      code == Code::kInvalid || code == Code::kNotFound || code == Code::kConflict;
  return is_users ? kExitUserError : 1;
}

void add_apply(CLI::App& app, const Clock& clock, int& exit_code) {
  const auto options = std::make_shared<ApplyOptions>();
  options->threads = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, kThreadsMax);
  CLI::App* command =
      app.add_subcommand("apply", "Write text as a file of token ids, and the table of its pieces");
  command
      ->add_option("MODEL", options->model,
                   "A sentencepiece model, or a folder with GPT-2's vocab.json and merges.txt")
      ->required();
  command->add_option("TEXT", options->texts, "Files, and folders whose files follow by name")
      ->required();
  command
      ->add_option("-o,--output", options->output,
                   "NAME of the files to write: NAME.u16 (NAME.u32 for more than 65,536 pieces) "
                   "and NAME.pieces; they must not exist yet")
      ->type_name("NAME")
      ->required();
  command->add_option("--end", options->end,
                      "Piece to write after each file, such as \"<|endoftext|>\" or \"</s>\"");
  command->add_option("--threads", options->threads, "Threads (default: one for each CPU)")
      ->check(CLI::Range(1, kThreadsMax));
  command->callback([options, &clock, &exit_code] {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      std::signal(signal, [](int number) {
        interrupted = 1;
        std::signal(number, SIG_DFL);  // a second one ends the program at once
      });
    }
    exit_code = exit_code_of(apply_tokenizer(*options, clock, is_interrupted));
  });
}

void add_train(CLI::App& app, const Clock& clock, int& exit_code) {
  const auto options = std::make_shared<TrainOptions>();
  const auto kind = std::make_shared<std::string>("bpe");
  options->training.vocabulary = 8192;
  options->sample_bytes = 64'000'000;
  CLI::App* command = app.add_subcommand("train", "Train a sentencepiece model on text");
  command->add_option("TEXT", options->texts, "Files, and folders whose files follow by name")
      ->required();
  command->add_option("-o,--output", options->output, "File for the model; it must not exist yet")
      ->type_name("FILE")
      ->required();
  command->add_option("--vocabulary", options->training.vocabulary, "Number of pieces")
      ->check(CLI::Range(int64_t{260}, kVocabularyMax))
      ->capture_default_str();
  command->add_option("--kind", *kind, "bpe or unigram")
      ->check(CLI::IsMember({"bpe", "unigram"}))
      ->capture_default_str();
  command
      ->add_option("--sample", options->sample_bytes,
                   "Size such as 64MB: longer text is sampled, in blocks at equal distances")
      ->type_name("SIZE")
      ->transform(CLI::AsSizeValue(true))
      ->capture_default_str();
  command->callback([options, kind, &clock, &exit_code] {
    if (*kind == "unigram") options->training.kind = SentencepieceKind::kUnigram;
    exit_code = exit_code_of(train_tokenizer(*options, clock));
  });
}

int program(int argc, char** argv) {
  const SystemClock clock;
  int exit_code = 0;
  CLI::App app("Turns text into token ids, which a job reads with tokenizer: u16 or u32.",
               "lockstep tokenize");
  app.require_subcommand(1);
  add_train(app, clock, exit_code);
  add_apply(app, clock, exit_code);
  app.footer(
      "Examples: lockstep tokenize train text.txt -o text.model --vocabulary 4096\n"
      "          lockstep tokenize apply text.model text.txt -o tokens\n"
      "          lockstep tokenize apply gpt2 texts -o tokens --end \"<|endoftext|>\"\n"
      "Exit codes: 0; 2 bad input, nothing was written; 130 interrupted; else 1.");
  std::signal(SIGPIPE, SIG_IGN);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUserError;
  }
  return exit_code;
}

}  // namespace
}  // namespace lockstep::cli

int main(int argc, char** argv) {
  return lockstep::run_main("lockstep-tokenize", lockstep::cli::program, argc, argv);
}
