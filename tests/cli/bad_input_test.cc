// A user's bad input to the real program: exit code 2, a helpful message, and nothing started or
// written.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/support/job_run.h"
#include "tests/support/npy_bytes.h"

namespace lockstep::cli {
namespace {

struct Outcome {
  int exit_code = -1;
  std::string text;
};

Outcome run_command(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  Outcome outcome;
  std::array<char, 4096> block;
  while (size_t bytes = fread(block.data(), 1, block.size(), pipe))
    outcome.text.append(block.data(), bytes);
  int raw = pclose(pipe);
  outcome.exit_code = WIFEXITED(raw) ? WEXITSTATUS(raw) : 128;
  return outcome;
}

Outcome run_program(const std::string& arguments) {
  return run_command(std::string(LOCKSTEP_BIN_DIR) + "/lockstep " + arguments);
}

struct Case {
  const char* what;
  std::string document;
  std::vector<const char*> words;  // the message contains all of them
};

class BadInput : public testing::Test {
 protected:
  BadInput() : folder_(testing::TempDir() + "bad-input-" + std::to_string(getpid())) {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ + "/text.txt") << "In the beginning\n";
  }
  ~BadInput() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& text) {
    std::string file = folder_ + "/job.yaml";
    std::ofstream(file) << text;
    return file;
  }

  // By `validate` and by `run`, which starts nothing.
  void expect_refused(const Case& bad) {
    std::string file = write(bad.document);
    Outcome validated = run_program("validate " + file);
    EXPECT_EQ(validated.exit_code, 2) << bad.what << ": " << validated.text;
    for (const char* word : bad.words)
      EXPECT_NE(validated.text.find(word), std::string::npos)
          << bad.what << " does not say \"" << word << "\": " << validated.text;
    EXPECT_LT(validated.text.size(), 10'000u) << bad.what;
    if (validated.exit_code != 2) return;  // a run might never end
    Outcome run = run_program("run " + file + " --output " + folder_ + "/out");
    EXPECT_EQ(run.exit_code, 2) << bad.what << ": " << run.text;
    EXPECT_FALSE(std::filesystem::exists(folder_ + "/out")) << bad.what;
  }

  std::string folder_;
};

std::string job(const std::string& more = "", const std::string& name = "good",
                const std::string& train = "") {
  return "apiVersion: lockstep.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: " + name +
         "}\nspec:\n" + more +
         "  train:\n    model: {layers: 2, width: 32, heads: 2, context: 8}\n"
         "    data: {path: text.txt}\n" +
         train;
}

std::string alias_bomb() {
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    std::string n = std::to_string(i), p = "*a" + std::to_string(i - 1);
    text += "a" + n + ": &a" + n + " [" + p + "," + p + "," + p + "," + p + "," + p + "," + p +
            "," + p + "," + p + "," + p + "," + p + "]\n";
  }
  return text;
}

std::string with_data_path(const std::string& path) {
  std::string text = job();
  return text.replace(text.find("text.txt"), 8, path);
}

std::string with_heads(const std::string& heads) {
  std::string text = job("  nodes: 3\n  parallelism: {tensor: 3}\n");
  return text.replace(text.find("heads: 2"), 8, "heads: " + heads);
}

std::string with_template(const std::string& pod_spec) {
  return job("  podTemplate: {spec: {" + pod_spec + "}}\n");
}

std::string with_weights(const std::string& path) {
  std::string text = job();
  return text.replace(text.find("context: 8"), 10, "context: 8, weights: {path: " + path + "}");
}

std::string with_held_back(const std::string& path, double fraction) {
  std::string text = with_data_path(path);
  return text.replace(text.find("path: " + path), 6 + path.size(),
                      "path: " + path + ", validationFraction: " + std::to_string(fraction));
}

std::string with_tokens(const std::string& path) {
  std::string text = with_data_path(path);
  text.replace(text.find("path: " + path), 6 + path.size(), "path: " + path + ", tokenizer: u16");
  return text.replace(text.find("context: 8"), 10, "context: 8, vocabulary: 100");
}

std::string with_table(const std::string& features, const std::string& targets) {
  return "apiVersion: lockstep.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: table}\nspec:\n"
         "  train:\n    model: {family: mlp, inputs: 2, hidden: [4], outputs: 3}\n"
         "    data: {features: " +
         features + ", targets: " + targets + "}\n";
}

std::string token_bytes(const std::vector<uint16_t>& tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(uint16_t)};
}

// A safetensors file of F32 zeros. Source: huggingface.co/docs/safetensors.
std::string safetensors(const std::vector<std::pair<std::string, std::vector<int64_t>>>& tensors) {
  Json header = Json::object();
  int64_t at = 0;
  for (const auto& [name, shape] : tensors) {
    int64_t bytes = 4;
    for (const int64_t dim : shape) bytes *= dim;
    header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {at, at + bytes}}};
    at += bytes;
  }
  const std::string text = dump_json(header);
  std::string file(8, '\0');
  for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(text.size() >> 8 * i & 255);
  return file + text + std::string(static_cast<size_t>(at), '\0');
}

std::vector<Case> cases() {
  return {
      {"unknown field", job("  nodse: 2\n"), {"spec.nodse", "nodes"}},
      {"wrong type", job("  nodes: two\n"), {"spec.nodes", "two"}},
      {"mesh that does not fit", job("  nodes: 2\n  parallelism: {tensor: 3}\n"), {"tensor"}},
      {"heads and tensor", with_heads("4"), {"heads", "tensor"}},
      {"missing data file", with_data_path("nowhere.txt"), {"spec.train.data.path", "nowhere.txt"}},
      {"empty data folder", with_data_path("empty"), {"spec.train.data.path", "empty"}},
      {"missing weights",
       with_weights("nowhere.safetensors"),
       {"spec.train.model.weights.path", "nowhere.safetensors"}},
      {"a folder of weights",
       with_weights("empty"),
       {"spec.train.model.weights.path", "expected a safetensors file"}},
      {"port out of range",
       job("  rendezvous: {port: 70000}\n"),
       {"spec.rendezvous.port", "70000"}},
      {"bad name", job("", "Bad_Name"), {"metadata.name", "Bad_Name"}},
      {"duplicate key", job("  nodes: 1\n  nodes: 2\n"), {"nodes", "line"}},
      {"alias bomb", alias_bomb(), {"alias"}},
      {"cyclic alias", "a: &a [*a]\n", {"alias"}},
      {"10 MB document", job() + "# " + std::string(10u << 20, 'x') + "\n", {"bytes"}},
      {"endless ,", ",", {","}},
      {"no nodes", job("  nodes: 0\n"), {"spec.nodes", "0"}},
      {"not in this version",
       job("  scheduling: {}\n"),
       {"spec.scheduling", "not in this version"}},
      {"micro batch",
       job("", "good", "    batch: {global: 512, micro: 48}\n"),
       {"spec.train.batch.micro", "48", "512"}},
      {"empty document", "", {}},
      {"a list", "[1, 2]", {}},
      {"another kind", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n", {"Pod"}},
      {"nothing to run",
       "apiVersion: lockstep.dev/v1alpha1\nkind: TrainingJob\n"
       "metadata: {name: a}\nspec: {nodes: 1}\n",
       {"train"}},
      {"broken YAML", "spec: {a: [}\n", {"line"}},
      {"suspended for ever", job("  suspend: true\n"), {"spec.suspend", "true"}},
      {"managed by another",
       job("  managedBy: example.com/other\n"),
       {"spec.managedBy", "example.com/other"}},
      {"restart policy", with_template("restartPolicy: Always"), {"spec.podTemplate", "Never"}},
      {"list without names",
       with_template("volumes: [{emptyDir: {}}]"),
       {"spec.podTemplate.spec.volumes[0].name"}},
      {"init container",
       with_template("initContainers: [{name: a}]"),
       {"spec.podTemplate.spec.initContainers", "local node"}},
      {"second container without a command",
       with_template("containers: [{name: sidecar}]"),
       {"spec.podTemplate.spec.containers[1].command", "no images"}},
      {"claim of a volume",
       with_template("volumes: [{name: h, persistentVolumeClaim: {claimName: c}}], containers: "
                     "[{name: node, volumeMounts: [{name: h, mountPath: /h}]}]"),
       {"spec.podTemplate", "volumes h", "hostPath"}},
  };
}

TEST_F(BadInput, EndsWithExitCode2AndWords) {
  std::filesystem::create_directories(folder_ + "/empty");
  for (const Case& bad : cases()) expect_refused(bad);
}

TEST_F(BadInput, DataThatNoRankCanTrainWithIsRefused) {
  std::vector<uint16_t> ids(200, 99);
  std::ofstream(folder_ + "/good.u16") << token_bytes(ids);
  ids[150] = 100;
  std::ofstream(folder_ + "/beyond.u16") << token_bytes(ids);
  std::ofstream(folder_ + "/odd.u16") << token_bytes(ids) << "x";
  std::ofstream(folder_ + "/short.txt") << "too short";
  EXPECT_EQ(run_program("validate " + write(with_tokens("good.u16"))).exit_code, 0);
  const Case cases[] = {
      {"too few tokens for a sequence",
       with_held_back("short.txt", 0.2),
       {"spec.train.data.path: ", "short.txt: 7 training tokens are too few"}},
      {"too few tokens to validate",
       with_held_back("text.txt", 0.01),
       {"spec.train.data.path: ", "text.txt: 17 tokens are too few to hold back 0.01 of them"}},
      {"an odd number of bytes",
       with_tokens("odd.u16"),
       {"spec.train.data.path: ", "odd.u16: 401 bytes is not a whole number of tokens of 2 bytes"}},
      {"ids beyond the vocabulary",
       with_tokens("beyond.u16"),
       {"spec.train.data.path: ",
        "beyond.u16: the token at byte 300 is not below the model's "
        "vocabulary of 100"}},
  };
  for (const Case& bad : cases) expect_refused(bad);
}

TEST_F(BadInput, TablesThatTheModelCannotBeTrainedOnAreRefused) {
  const auto write_array = [&](const char* name, const char* dtype, const char* shape,
                               const std::string& bytes) {
    std::ofstream(folder_ + "/" + name) << npy_bytes(npy_dict(dtype, shape), bytes);
  };
  write_array("x.npy", "|i1", "(3, 2)", "abcdef");
  write_array("wide.npy", "|i1", "(3, 3)", "abcdefghi");
  write_array("y.npy", "|u1", "(3,)", std::string("\0\1\2", 3));
  write_array("beyond.npy", "|u1", "(3,)", std::string("\0\1\3", 3));
  write_array("short.npy", "|u1", "(2,)", std::string(2, '\0'));
  const Case cases[] = {
      {"no features",
       with_table("nowhere.npy", "y.npy"),
       {"spec.train.data.features", "nowhere.npy"}},
      {"no targets",
       with_table("x.npy", "nowhere.npy"),
       {"spec.train.data.targets", "nowhere.npy"}},
      {"a text",
       with_table("text.txt", "y.npy"),
       {"spec.train.data.features: ", "not a .npy file"}},
      {"columns",
       with_table("wide.npy", "y.npy"),
       {"spec.train.data.features: ", "found rows of 3 values, expected the model's 2 inputs"}},
      {"rows", with_table("x.npy", "short.npy"), {"spec.train.data.targets: ", "found 2 rows"}},
      {"classes",
       with_table("x.npy", "beyond.npy"),
       {"spec.train.data.targets: ", "row 2 (from 0): found 3, expected a class from 0 to 2"}},
  };
  for (const Case& bad : cases) expect_refused(bad);
}

TEST_F(BadInput, WeightsThatTheModelCannotTakeAreRefused) {
  const std::string file = "w.safetensors";
  const std::string at = "spec.train.model.weights.path: ";
  const struct {
    const char* what;
    std::string bytes;
    std::string words;
  } cases[] = {
      {"no safetensors", std::string(100, 'x'), "safetensors"},
      {"cut off", safetensors({{"wte.weight", {256, 32}}}).substr(0, 200), "bytes"},
      {"a missing tensor", safetensors({{"wte.weight", {256, 32}}, {"wpe.weight", {1024, 32}}}),
       "h.0.ln_1.weight is missing, expected F32, F16 or BF16 [32]"},
      {"another shape", safetensors({{"wte.weight", {256, 16}}, {"wpe.weight", {8, 16}}}),
       "spec.train.model.width: 32, the file has 16"},
      {"too few positions", safetensors({{"wte.weight", {256, 32}}, {"wpe.weight", {7, 32}}}),
       "spec.train.model.context: 8, the file has 7 positions, expected at most as many"},
  };
  for (const auto& [what, bytes, words] : cases) {
    std::ofstream(folder_ + "/" + file) << bytes;
    expect_refused({what, with_weights(file), {at.c_str(), words.c_str()}});
  }
}

TEST_F(BadInput, WhatTheWorkerFindsIsToldTogether) {
  std::ofstream(folder_ + "/w.safetensors") << "x";
  std::string text = with_weights("w.safetensors");
  text.replace(text.find("context: 8"), 10, "context: 17");
  expect_refused({"both", text, {"spec.train.data.path: ", "spec.train.model.weights.path: "}});
}

TEST_F(BadInput, WithoutAWorkerOnlyAWarningSaysThatDataAndWeightsWereNotRead) {
  std::filesystem::copy(std::string(LOCKSTEP_BIN_DIR) + "/lockstep", folder_ + "/lockstep");
  const Outcome outcome = run_command(folder_ + "/lockstep validate " + write(job()));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_NE(outcome.text.find("warning: data and weights were not read: "), std::string::npos)
      << outcome.text;
}

// `validate` only warns: another machine may have the GPUs.
TEST_F(BadInput, MoreGpusThanThereAreAreWarnedOfAndNotRunOn) {
  const std::string file = write(
      "apiVersion: lockstep.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: gpus}\n"
      "spec: {nodes: 100, gpusPerNode: 64, command: [\"true\"]}\n");
  const std::string words = "spec.gpusPerNode: 64 for each of 100 nodes are 6400, but this machine";
  const Outcome validated = run_program("validate " + file);
  EXPECT_EQ(validated.exit_code, 0) << validated.text;
  EXPECT_NE(validated.text.find("warning: " + words), std::string::npos) << validated.text;
  const Outcome run = run_program("run " + file + " --output " + folder_ + "/out");
  EXPECT_EQ(run.exit_code, 2) << run.text;
  EXPECT_NE(run.text.find(words), std::string::npos) << run.text;
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/out"));
}

TEST_F(BadInput, AGoodOneIsValid) {
  Outcome outcome = run_program("validate " + write(job()));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_NE(outcome.text.find("valid"), std::string::npos);
}

TEST_F(BadInput, EveryFileIsChecked) {
  std::string good = folder_ + "/good.yaml";
  std::ofstream(good) << job();
  Outcome outcome = run_program("validate " + write("a: [") + " " + good + " " + folder_ + "/none");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.text.find("good.yaml: valid"), std::string::npos) << outcome.text;
  EXPECT_NE(outcome.text.find("/none"), std::string::npos);
}

TEST_F(BadInput, WarnsAboutWhatALocalNodeCannotDoFieldByField) {
  Outcome outcome =
      run_program("validate " + write(job("  image: registry/x\n  podTemplate: {spec: "
                                          "{nodeSelector: {a: b}, priorityClassName: high}}\n")));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  for (const char* field : {"spec.image", "spec.podTemplate.spec.nodeSelector.a",
                            "spec.podTemplate.spec.priorityClassName"})
    EXPECT_NE(outcome.text.find(field), std::string::npos) << outcome.text;
}

TEST_F(BadInput, WarnsOfNothingThatALocalNodeCarriesOut) {
  Outcome outcome = run_program(
      "validate " + write(job("  managedBy: lockstep.dev/controller\n  podTemplate:\n"
                              "    metadata: {labels: {team: a}}\n    spec:\n"
                              "      volumes: [{name: scratch, emptyDir: {}}]\n      containers:\n"
                              "      - {name: node, image: registry/x, workingDir: /tmp,\n"
                              "         env: [{name: DEBUG, value: \"1\"}],\n"
                              "         volumeMounts: [{name: scratch, mountPath: /scratch}]}\n")));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_NE(outcome.text.find("spec.podTemplate.spec.containers[0].image"), std::string::npos)
      << outcome.text;
  for (const char* field : {"env", "workingDir", "volumeMounts", "volumes", "name", "metadata"})
    EXPECT_EQ(outcome.text.find(std::string(".") + field), std::string::npos) << outcome.text;
}

TEST_F(BadInput, WrongCommandLinesAreBadInput) {
  for (const char* arguments :
       {"", "run", "validate", "fly", "run a.yaml --speed 3", "run a.yaml -o xml"})
    EXPECT_EQ(run_program(arguments).exit_code, 2) << arguments;
  EXPECT_EQ(run_program("--help").exit_code, 0);
  EXPECT_EQ(run_program("run --help").exit_code, 0);
  Outcome version = run_program("version");
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_TRUE(version.text.starts_with("lockstep ")) << version.text;
}

TEST_F(BadInput, AnUnknownCommandIsNamed) {
  EXPECT_EQ(run_program("fly").text, "fly: unknown command; lockstep --help lists all commands\n");
  const Outcome nothing = run_program("");
  EXPECT_NE(nothing.text.find("Subcommands:"), std::string::npos) << nothing.text;
}

TEST_F(BadInput, NoCommandShowsTheExampleOfAnother) {
  const std::string example = "lockstep run examples/kjv-gpt.yaml";
  EXPECT_NE(run_program("--help").text.find(example), std::string::npos);
  for (const char* command : {"list", "status", "scale", "validate", "version"}) {
    const Outcome help = run_program(std::string(command) + " --help");
    EXPECT_EQ(help.exit_code, 0) << command;
    EXPECT_EQ(help.text.find(example), std::string::npos) << help.text;
  }
}

TEST_F(BadInput, BenchSaysWhatItCanMeasure) {
  Outcome wrong = run_program("bench all-redoo");
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_NE(wrong.text.find("'all-redoo' is not one of barrier, broadcast, all-reduce"),
            std::string::npos)
      << wrong.text;
  EXPECT_EQ(run_program("bench").exit_code, 2);
  EXPECT_EQ(run_program("bench all-reduce --sizes 8:x").exit_code, 2);
  EXPECT_EQ(run_program("bench --help").exit_code, 0);
  Outcome right = run_program("bench all-reduce --ranks 2 --sizes 8:8K:32 --iterations 2");
  EXPECT_EQ(right.exit_code, 0) << right.text;
  EXPECT_NE(right.text.find("busbw"), std::string::npos) << right.text;
}

TEST_F(BadInput, PlanTellsTheMemoryOfAJobWhoseDataIsNotThere) {
  std::string text = job();
  text.replace(text.find("text.txt"), 8, "not-here");
  const std::string file = write(text);
  const Outcome plan = run_program("plan " + file + " 1 2");
  EXPECT_EQ(plan.exit_code, 0) << plan.text;
  for (const char* words :
       {"gradients: fp32", "optimizer: second moments", "\n1 GB: fits, ", "\n2 GB: fits, "})
    EXPECT_NE(plan.text.find(words), std::string::npos) << words << ": " << plan.text;
  const Outcome here = run_program("plan " + file);
  EXPECT_EQ(here.exit_code, 0) << here.text;
  EXPECT_NE(here.text.find("\nthis machine ("), std::string::npos) << here.text;
}

TEST_F(BadInput, PlanRefusesWhatIsNoJobItCanPlan) {
  const Outcome bad = run_program("plan " + write(job("  nodez: 3\n")));
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_NE(bad.text.find("spec.nodez"), std::string::npos) << bad.text;
  const Outcome command =
      run_program("plan " + write("apiVersion: lockstep.dev/v1alpha1\nkind: TrainingJob\n"
                                  "metadata: {name: any}\nspec: {command: [\"true\"]}\n"));
  EXPECT_EQ(command.exit_code, 2);
  EXPECT_NE(command.text.find("spec.train: missing"), std::string::npos) << command.text;
  const Outcome size = run_program("plan " + write(job()) + " none");
  EXPECT_EQ(size.exit_code, 2);
  EXPECT_NE(size.text.find("none is no size in GB"), std::string::npos) << size.text;
}

TEST_F(BadInput, PlanSaysWhereItLooksForTheWorker) {
  std::filesystem::copy(std::string(LOCKSTEP_BIN_DIR) + "/lockstep", folder_ + "/lockstep");
  const Outcome outcome = run_command(folder_ + "/lockstep plan " + write(job()));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.text.find("can't start " + folder_ + "/lockstep-worker: No such file"),
            std::string::npos)
      << outcome.text;
}

TEST_F(BadInput, AJobThatNeedsMoreMemoryThanThereIsIsWarnedOf) {
  std::string text = job();
  const Outcome small = run_program("validate " + write(text));
  EXPECT_EQ(small.exit_code, 0) << small.text;
  EXPECT_NE(small.text.find(": memory: the process takes "), std::string::npos) << small.text;
  EXPECT_EQ(small.text.find("does not fit"), std::string::npos) << small.text;
  const std::string dims = "layers: 2, width: 32";
  text.replace(text.find(dims), dims.size(), "layers: 500, width: 16384");  // 24 TiB
  const Outcome huge = run_program("validate " + write(text));
  EXPECT_EQ(huge.exit_code, 0) << huge.text;
  EXPECT_NE(huge.text.find(": warning: this machine ("), std::string::npos) << huge.text;
  EXPECT_NE(huge.text.find("does not fit, "), std::string::npos) << huge.text;
}

TEST_F(BadInput, PlanTakesSizesOfGpus) {
  EXPECT_EQ(run_program("plan none").exit_code, 2);
  EXPECT_EQ(run_program("plan 80 0").exit_code, 2);
  Outcome right = run_program("plan 80");
  EXPECT_EQ(right.exit_code, 0) << right.text;
  EXPECT_NE(right.text.find("| gpt2-124m | 124439808 |"), std::string::npos) << right.text;
}

TEST_F(BadInput, ExportSaysWhatItNeeds) {
  EXPECT_EQ(run_program("export").exit_code, 2);
  EXPECT_EQ(run_program("export " + folder_).exit_code, 2);
  Outcome none = run_program("export " + folder_ + " " + folder_ + "/model.safetensors");
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_NE(none.text.find(folder_ + " has no valid checkpoint"), std::string::npos) << none.text;
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/model.safetensors"));
}

TEST_F(BadInput, ExportNamesTheOptionThatIsWrong) {
  const std::string from = "export " LOCKSTEP_SOURCE_DIR "/tests/golden/checkpoint ";
  const std::string to = folder_ + "/exported";
  for (const char* size : {"0", "-1", "2XB", "1.5GB", "GB", "99999999999GB"}) {
    const Outcome outcome = run_program(from + to + " --max-file-size=" + size);
    EXPECT_EQ(outcome.exit_code, 2) << size;
    EXPECT_NE(outcome.text.find("--max-file-size: "), std::string::npos) << outcome.text;
    EXPECT_NE(outcome.text.find("such as 500MB, 2GB or 4GiB"), std::string::npos) << outcome.text;
  }
  const Outcome precision = run_program(from + to + " --precision fp16");
  EXPECT_EQ(precision.exit_code, 2);
  EXPECT_NE(precision.text.find("--precision: fp16 not in {fp32,bf16}"), std::string::npos)
      << precision.text;
  EXPECT_FALSE(std::filesystem::exists(to));
  for (const char* size : {"1kB", "1KiB", "1000", "2GB"}) {
    const Outcome outcome = run_program(from + to + size + " --max-file-size " + size);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  }
  EXPECT_TRUE(std::filesystem::is_directory(to + "1kB"));
  EXPECT_TRUE(std::filesystem::is_regular_file(to + "2GB"));
}

TEST_F(BadInput, MissingProgramsAreAFailureInOneLineOfJson) {
  std::filesystem::copy(std::string(LOCKSTEP_BIN_DIR) + "/lockstep", folder_ + "/lockstep");
  Outcome outcome = run_command(folder_ + "/lockstep run " + write(job()) + " -o json --output " +
                                folder_ + "/out");
  EXPECT_EQ(outcome.exit_code, 1) << outcome.text;
  EXPECT_NE(outcome.text.find("\"state\":\"Failed\""), std::string::npos) << outcome.text;
}

TEST_F(BadInput, CtrlCEndsTheReadingOfAJobThatNeverComes) {
  std::string fifo = folder_ + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  test::JobRun run({.job = fifo, .output = folder_ + "/out", .log = folder_ + "/log"});
  int writer = -1;  // can be opened as soon as the program reads
  ASSERT_TRUE(test::eventually(
      [&] { return (writer = open(fifo.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC)) >= 0; }));
  run.signal(SIGINT);
  EXPECT_EQ(run.wait(20), 128 + SIGINT);
  close(writer);
}

TEST_F(BadInput, AnOutputFolderThatCannotBeMadeIsNamed) {
  std::ofstream(folder_ + "/file") << "x";
  Outcome outcome = run_program("run " + write(job()) + " --output " + folder_ + "/file/out");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.text.find("/file/out"), std::string::npos) << outcome.text;
}

}  // namespace
}  // namespace lockstep::cli
