// The exit code of a worker for each failure, by which the controller decides whom to restart.
// Other files have those of a killed and of a hanging peer (worker_faults_test.cc), of checkpoints
// and weights of another model (worker_beginnings_test.cc) and of a loss that is not finite on
// several ranks (worker_test.cc).
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "agent/comm/make_communicator.h"
#include "agent/comm/socket.h"
#include "tests/agent/train/small_worker.h"

namespace lockstep::train {
namespace {

struct Failure {
  const char* name;
  std::function<void(WorkerWorld::Options&, const TemporaryFolder&)> set_up;
  std::vector<int> exit_codes;  // by rank
  const char* words;            // in rank 0's log
  std::function<void(WorkerWorld&)> before = {};
  std::function<void(WorkerWorld&)> meanwhile = {};
  int64_t without = -1;  // a rank that never starts
};

std::ostream& operator<<(std::ostream& out, const Failure& failure) {
  return out << failure.name;
}

void two_ranks(WorkerWorld::Options& options, const TemporaryFolder& /*folder*/) {
  options.nodes = 2;
  options.change = [](WorkerConfig& config) { config.rendezvous_timeout_seconds = 1; };
}

// Token ids of 16 bits, of which the first `valid` are in the vocabulary.
void use_tokens(WorkerWorld::Options& options, const TemporaryFolder& folder, size_t valid) {
  constexpr size_t kTokens = 10000;
  std::string bytes;
  for (size_t i = 0; i < kTokens; ++i) bytes += i < valid ? std::string("\1\0", 2) : "\xFF\xFF";
  options.train.data.path = folder.write("tokens", bytes);
  options.train.data.tokenizer = "u16";
  options.train.model.vocabulary = 300;
  options.train.sample = {};
}

class WorkerExitTest : public testing::TestWithParam<Failure> {};

TEST_P(WorkerExitTest, HasTheCodeOfWhatIsToBlame) {
  const Failure& failure = GetParam();
  const TemporaryFolder folder;
  WorkerWorld::Options options = small_world(1);
  failure.set_up(options, folder);
  WorkerWorld world(options);
  if (failure.before) failure.before(world);
  ASSERT_NO_FATAL_FAILURE(world.start(failure.without));
  if (failure.meanwhile) failure.meanwhile(world);
  EXPECT_EQ(world.wait(), failure.exit_codes) << world.log(0);
  EXPECT_NE(world.log(0).find(failure.words), std::string::npos) << world.log(0);
}

std::string failure_name(const testing::TestParamInfo<Failure>& info) {
  return info.param.name;
}

// ---- kExitBadConfig

const Failure kBadConfig[] = {
    {"ConfigurationOfAnotherWorld",
     [](WorkerWorld::Options& options, const TemporaryFolder&) {
       options.change = [](WorkerConfig& config) { config.hash = "0"; };
     },
     {kExitBadConfig},
     "config.hash: found"},
    {"ModelThatCannotBe",
     [](WorkerWorld::Options& options, const TemporaryFolder&) { options.train.model.width = 33; },
     {kExitBadConfig},
     "spec.train.model.heads: 2 does not divide"},
    {"BatchWithoutASampleForEachRank",
     [](WorkerWorld::Options& options, const TemporaryFolder& folder) {
       two_ranks(options, folder);
       options.train.batch = {.global = 1, .micro = 1};
     },
     {kExitBadConfig, kExitBadConfig},
     "spec.train.batch.global: 1 is less than"},
    {"EmptyToken",
     [](WorkerWorld::Options& options, const TemporaryFolder& folder) {
       options.change = [path = folder.write("token", "\n")](WorkerConfig& config) {
         config.token_file = path;
       };
     },
     {kExitBadConfig},
     "expected the job's token"},
    {"AddressOfAnotherMachine",
     [](WorkerWorld::Options& options, const TemporaryFolder&) {
       options.change = [](WorkerConfig& config) {
         config.world.members[0].host = "192.0.2.1";  // of TEST-NET-1
         config.hash = world_hash(config.world);
       };
     },
     {kExitBadConfig},
     "listening on 192.0.2.1"},
    {"PromptOfOtherTokens",
     [](WorkerWorld::Options& options, const TemporaryFolder& folder) {
       use_tokens(options, folder, 10000);
       options.train.steps = 1;
       options.train.sample = {.tokens = 1, .prompt = "300"};
     },
     {kExitBadConfig},
     "expected tokens in [0, 300), got 300"},
};
INSTANTIATE_TEST_SUITE_P(BadConfig, WorkerExitTest, testing::ValuesIn(kBadConfig), failure_name);

// ---- kExitDataError

const Failure kDataError[] = {
    {"MissingFile",
     [](WorkerWorld::Options& options, const TemporaryFolder& folder) {
       options.train.data.path = folder.file("nowhere");
     },
     {kExitDataError},
     "/nowhere: no such file or folder"},
    {"EmptyFolder",
     [](WorkerWorld::Options& options, const TemporaryFolder& folder) {
       options.train.data.path = folder.path();
     },
     {kExitDataError},
     "no regular file in this folder"},
    {"TooShortFile",
     [](WorkerWorld::Options& options, const TemporaryFolder& folder) {
       options.train.data.path = folder.write("text", "short");
     },
     {kExitDataError},
     "/text: 5 "},
    {"HalfAToken",
     [](WorkerWorld::Options& options, const TemporaryFolder& folder) {
       use_tokens(options, folder, 10000);
       options.train.data.path = folder.write("odd", "odd");
     },
     {kExitDataError},
     "3 bytes is not a whole number of tokens"},
    {"TokenOutsideTheVocabulary",
     [](WorkerWorld::Options& options, const TemporaryFolder& folder) {
       use_tokens(options, folder, 0);
     },
     {kExitDataError},
     "is not below the model's vocabulary of 300"},
    {"ValidationTokenOutsideTheVocabulary",
     [](WorkerWorld::Options& options, const TemporaryFolder& folder) {
       use_tokens(options, folder, 9600);  // the last 500 are for validation
     },
     {kExitDataError},
     "the token at byte 19200 is not below the model's vocabulary of 300"},
    {"WeightsThatAreNone",
     [](WorkerWorld::Options& options, const TemporaryFolder& folder) {
       options.train.model.weights.path = folder.write("weights.safetensors", "no such thing");
     },
     {kExitDataError},
     "spec.train.model.weights.path: "},
};
INSTANTIATE_TEST_SUITE_P(DataError, WorkerExitTest, testing::ValuesIn(kDataError), failure_name);

// ---- kExitStorageError

const Failure kStorageError[] = {
    {"FileInPlaceOfTheFolder",
     [](WorkerWorld::Options& options, const TemporaryFolder&) { options.nodes = 2; },
     {kExitStorageError, kExitPeerLost},
     "/checkpoints",
     [](WorkerWorld& world) { world.folder().write("checkpoints", "a file"); }},
    {"FolderThatVanishes",
     [](WorkerWorld::Options& options, const TemporaryFolder&) {
       options.train.steps = 200;
       options.train.validation = {};
     },
     {kExitStorageError},
     "the last checkpoint, of step 200, could not be saved",
     {},
     [](WorkerWorld& world) {
       world.wait_until(0, [](const ProgressNumbers& numbers) { return numbers.step >= 1; });
       std::filesystem::rename(world.checkpoints(), world.folder().file("elsewhere"));
     }},
};
INSTANTIATE_TEST_SUITE_P(StorageError, WorkerExitTest, testing::ValuesIn(kStorageError),
                         failure_name);

// ---- The others

const Failure kOthers[] = {
    {"PortTaken",
     [](WorkerWorld::Options& options, const TemporaryFolder&) {
       options.change = [listener = std::make_shared<comm::UniqueFd>()](WorkerConfig& config) {
         const WorldMember& node = config.world.members[0];
         *listener =
             comm::UniqueFd(comm::listen_on(node.host, static_cast<int>(node.port)).value());
       };
     },
     {kExitPortTaken},
     " is taken"},
    {"MissingGpu",
     [](WorkerWorld::Options& options, const TemporaryFolder&) { options.gpu = 63; },
     {kExitNoDevice},
     "GPU 63 (numbered from 0), but its process sees"},
    {"LossThatIsNotFinite",
     [](WorkerWorld::Options& options, const TemporaryFolder&) {
       options.train.optimizer = {
           .learningRate = 100, .schedule = "constant", .weightDecay = 10, .clipNorm = 0};
     },
     {kExitNotFinite},
     "a lower learning rate"},
    {"PeerThatNeverComes", two_ranks, {kExitPeerLost, -1}, "rank 1 has not connected", {}, {}, 1},
    {"PeerWithAnotherToken",
     [](WorkerWorld::Options& options, const TemporaryFolder& folder) {
       options.nodes = 2;
       options.change = [path = folder.write("token", "another")](WorkerConfig& config) {
         config.rendezvous_timeout_seconds = 1;
         if (config.rank == 1) config.token_file = path;
       };
     },
     {kExitPeerLost, kExitPeerLost},
     "wrong token"},
};
INSTANTIATE_TEST_SUITE_P(Others, WorkerExitTest, testing::ValuesIn(kOthers), failure_name);

}  // namespace
}  // namespace lockstep::train
