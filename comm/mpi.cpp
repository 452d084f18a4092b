// The job that mpirun or srun started: joins MPI, finds the node, makes groups.
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "comm/communicator.h"
#include "comm/mpi_communicator.h"
#include "comm/shared_memory.h"

namespace tessera::comm {
namespace {

/// MPI_Abort asks the launcher to end the job; where that takes longer than this, the process ends
/// itself.
constexpr auto kAbortPatience = std::chrono::seconds(5);
/// A rank that fails because another did leaves it this long to end the job and to be heard first.
constexpr auto kSecondaryPatience = std::chrono::seconds(2);

/// Processes of one job do not start at once: however impatient the user, they have this long.
constexpr double kLeastJoinSeconds = 10.0;

int number_in_environment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::atoi(text);
}

bool in_environment(const char* name) { return std::getenv(name) != nullptr; }

void set_default(const char* name, const char* value) { setenv(name, value, 0); }

/// How many ranks the launcher says there are, in the order of trust; 0: it does not say.
int ranks_expected() {
  if (in_environment("OMPI_COMM_WORLD_SIZE")) return number_in_environment("OMPI_COMM_WORLD_SIZE");
  if (in_environment("PMI_SIZE")) return number_in_environment("PMI_SIZE");
  return in_environment("SLURM_PROCID") ? number_in_environment("SLURM_STEP_NUM_TASKS") : 0;
}

bool has_launcher() {
  return in_environment("OMPI_COMM_WORLD_SIZE") || in_environment("PMI_SIZE") ||
         in_environment("PMI_RANK") || in_environment("PMIX_RANK");
}

bool is_on_one_node() {
  if (in_environment("OMPI_COMM_WORLD_LOCAL_SIZE")) {
    return number_in_environment("OMPI_COMM_WORLD_LOCAL_SIZE") ==
           number_in_environment("OMPI_COMM_WORLD_SIZE");
  }
  return number_in_environment("SLURM_STEP_NUM_NODES") == 1;
}

[[noreturn]] void fail_split_job(int expected) {
  throw Error(Error::Kind::rank_lost,
              "the launcher started " + std::to_string(expected) +
                  " processes, but MPI joins this one with no other: each would train alone. Start "
                  "the job with `srun --mpi=pmix`, or with the mpirun of the Open MPI that this "
                  "program is linked with");
}

/// Settings of Open MPI, where the user made none.
void set_defaults() {
  // Copies between processes by ptrace are forbidden in most containers; ranks of a node have our
  // own shared memory anyway.
  set_default("OMPI_MCA_btl_vader_single_copy_mechanism", "none");
  // On one node MPI only brings the ranks together: looking for networks takes 0.2 s of the start.
  if (is_on_one_node()) {
    set_default("OMPI_MCA_pml", "ob1");
    set_default("OMPI_MCA_btl", "self,vader");
  }
}

std::unique_ptr<Communicator> make_lone_communicator(int rank, Watchdog& watchdog) {
  const std::int64_t slot = Segment::slot_bytes_for(1, 0);
  Segment segment(SharedBytes::ordinary(Segment::bytes_for(1, slot)), 1, slot);
  return std::make_unique<SharedCommunicator>(std::move(segment), 0, std::vector<int>{rank},
                                              watchdog, false);
}

/// Memory that all ranks of `communicator` (on one node) map, or nothing on all of them when one of
/// them cannot.
std::optional<SharedBytes> share(MPI_Comm communicator, std::size_t bytes) {
  int rank = 0;
  check_mpi(MPI_Comm_rank(communicator, &rank), "shared memory");
  std::optional<SharedBytes> memory;
  char name[64] = "";
  if (rank == 0) {
    memory = SharedBytes::create(bytes);
    if (memory) std::snprintf(name, sizeof name, "%s", memory->name().c_str());
  }
  check_mpi(MPI_Bcast(name, sizeof name, MPI_CHAR, 0, communicator), "shared memory");
  if (rank != 0 && name[0] != 0) memory = SharedBytes::open(name, bytes);
  int attached = memory ? 1 : 0;
  int all_attached = 0;
  check_mpi(MPI_Allreduce(&attached, &all_attached, 1, MPI_INT, MPI_MIN, communicator),
            "shared memory");
  if (rank == 0 && memory) memory->unlink();
  if (all_attached == 0) memory.reset();
  return memory;
}

/// One process that no launcher started: MPI is not touched.
class LoneWorld final : public World {
 public:
  LoneWorld() : host_(host_name()), watchdog_(nullptr, 0, {0}) {
    communicator_ = make_lone_communicator(0, watchdog_);
  }

  int rank() const override { return 0; }
  int size() const override { return 1; }
  int local_rank() const override { return 0; }
  int local_size() const override { return 1; }
  const std::string& host() const override { return host_; }
  Communicator& all() override { return *communicator_; }
  Watchdog& watchdog() override { return watchdog_; }
  Communicator& group(std::span<const int> ranks) override {
    check(ranks.size() == 1 && ranks[0] == 0, "group: there is only rank 0");
    return *communicator_;
  }
  [[noreturn]] void abort(int status, const std::string& message) override {
    print_error(message, 0, 1);
    std::fflush(nullptr);
    _exit(status);
  }

 private:
  std::string host_;
  Watchdog watchdog_;
  std::unique_ptr<Communicator> communicator_;
};

/// Until the watchdog stands, ranks wait for each other inside MPI, where nothing can be asked of
/// it: this ends the process when that takes too long.
class JoinGuard {
 public:
  explicit JoinGuard(double seconds) {
    if (seconds > 0) thread_ = std::thread([this, seconds] { watch(seconds); });
  }
  ~JoinGuard() {
    if (!thread_.joinable()) return;
    {
      const std::scoped_lock lock(mutex_);
      joined_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  JoinGuard(const JoinGuard&) = delete;
  JoinGuard& operator=(const JoinGuard&) = delete;

 private:
  void watch(double seconds) {
    std::unique_lock lock(mutex_);
    if (wake_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return joined_; }))
      return;
    print_error("not all ranks joined the job within " + std::to_string(std::lround(seconds)) +
                    " s: one of them is stopped, ended without joining, or was started with "
                    "another program or command",
                number_in_environment("OMPI_COMM_WORLD_RANK"),
                number_in_environment("OMPI_COMM_WORLD_SIZE"));
    // MPI_Abort needs an MPI that is up.
    _exit(exit_status(Error::Kind::rank_lost));
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  bool joined_ = false;
  std::thread thread_;
};

class MpiWorld final : public World {
 public:
  MpiWorld(int expected, double seconds);
  ~MpiWorld() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int local_rank() const override { return local_rank_; }
  int local_size() const override { return local_size_; }
  const std::string& host() const override { return host_; }
  Communicator& all() override { return group(everyone_); }
  Watchdog& watchdog() override { return *watchdog_; }
  Communicator& group(std::span<const int> ranks) override;
  [[noreturn]] void abort(int status, const std::string& message) override;

 private:
  void find_node();
  std::unique_ptr<Communicator> make_group(const std::vector<int>& members);
  bool may_share(const std::vector<int>& members) const;

  int rank_ = 0;
  int size_ = 1;
  int local_rank_ = 0;
  int local_size_ = 1;
  std::string host_;
  int exceptions_;  // in flight when the job was joined
  std::vector<int> everyone_;
  std::vector<int> node_of_;  // of each rank: the lowest rank of its node
  std::optional<SharedBytes> board_;
  std::unique_ptr<Watchdog> watchdog_;
  std::map<std::vector<int>, std::unique_ptr<Communicator>> groups_;
};

MpiWorld::MpiWorld(int expected, double seconds)
    : host_(host_name()), exceptions_(std::uncaught_exceptions()) {
  set_defaults();
  const JoinGuard guard(seconds > 0 ? std::max(seconds, kLeastJoinSeconds) : 0.0);
  int provided = 0;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "error handler");
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size_), "size");
  if (size_ == 1 && expected > 1) {
    MPI_Finalize();
    fail_split_job(expected);
  }
  everyone_.resize(static_cast<std::size_t>(size_));
  std::iota(everyone_.begin(), everyone_.end(), 0);
  find_node();
}

void MpiWorld::find_node() {
  MPI_Comm node = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node),
            "ranks of this node");
  check_mpi(MPI_Comm_set_errhandler(node, MPI_ERRORS_RETURN), "error handler");
  check_mpi(MPI_Comm_rank(node, &local_rank_), "local rank");
  check_mpi(MPI_Comm_size(node, &local_size_), "local size");
  int lowest = rank_;
  check_mpi(MPI_Bcast(&lowest, 1, MPI_INT, 0, node), "ranks of this node");
  node_of_.resize(static_cast<std::size_t>(size_));
  check_mpi(MPI_Allgather(&lowest, 1, MPI_INT, node_of_.data(), 1, MPI_INT, MPI_COMM_WORLD),
            "nodes of all ranks");
  std::vector<int> neighbours;
  for (int rank = 0; rank < size_; ++rank) {
    if (node_of_[static_cast<std::size_t>(rank)] == lowest) neighbours.push_back(rank);
  }
  board_ = share(node, Board::bytes_for(local_size_));
  watchdog_ = std::make_unique<Watchdog>(
      board_ ? reinterpret_cast<Board*>(board_->data()) : nullptr, local_rank_, neighbours);
  if (local_size_ > 1) watchdog_->start();
  MPI_Comm_free(&node);
}

MpiWorld::~MpiWorld() {
  // When an error ends this rank, the others will not come to MPI_Finalize: waiting for them would
  // hang.
  if (std::uncaught_exceptions() > exceptions_) return;
  watchdog_->leave();
  watchdog_->arm("MPI_Finalize");
  MPI_Finalize();
}

bool MpiWorld::may_share(const std::vector<int>& members) const {
  const char* forced = std::getenv("TESSERA_COMM");
  if (forced != nullptr && std::strcmp(forced, "mpi") == 0) return false;
  if (members.size() > static_cast<std::size_t>(Segment::kMostMembers)) return false;
  for (const int member : members) {
    if (node_of_[static_cast<std::size_t>(member)] != node_of_[static_cast<std::size_t>(rank_)]) {
      return false;
    }
  }
  return true;
}

Communicator& MpiWorld::group(std::span<const int> ranks) {
  std::vector<int> members(ranks.begin(), ranks.end());
  std::unique_ptr<Communicator>& made = groups_[members];
  if (!made) made = make_group(members);
  return *made;
}

std::unique_ptr<Communicator> MpiWorld::make_group(const std::vector<int>& members) {
  const int position = position_in(members, rank_);
  const int size = static_cast<int>(members.size());
  if (size == 1) return make_lone_communicator(rank_, *watchdog_);
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Comm communicator = MPI_COMM_NULL;
  check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &world), "group");
  check_mpi(MPI_Group_incl(world, size, members.data(), &group), "group");
  check_mpi(MPI_Comm_create_group(MPI_COMM_WORLD, group, 0, &communicator), "group");
  check_mpi(MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN), "error handler");
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  const bool oversubscribed = is_oversubscribed(local_size_);
  if (may_share(members)) {
    const std::int64_t slot = Segment::slot_bytes_for(size);
    if (std::optional<SharedBytes> memory = share(communicator, Segment::bytes_for(size, slot))) {
      MPI_Comm_free(&communicator);
      return std::make_unique<SharedCommunicator>(Segment(std::move(*memory), size, slot), position,
                                                  members, *watchdog_, oversubscribed);
    }
  }
  const char* check_mode = std::getenv("TESSERA_CHECK");
  const bool checked = check_mode != nullptr && std::strcmp(check_mode, "0") != 0;
  return std::make_unique<MpiCommunicator>(communicator, members, *watchdog_, oversubscribed,
                                           checked);
}

void MpiWorld::abort(int status, const std::string& message) {
  const bool first = watchdog_->board() == nullptr || watchdog_->board()->claim_end(rank_, status);
  // MPI_Abort may hang where the launcher is gone; _exit cannot.
  if (first) {
    print_error(message, rank_, size_);
  } else {
    status = watchdog_->board()->end().status;
    std::this_thread::sleep_for(kSecondaryPatience);
  }
  std::fflush(nullptr);
  std::thread([status] {
    std::this_thread::sleep_for(kAbortPatience);
    _exit(status);
  }).detach();
  MPI_Abort(MPI_COMM_WORLD, status);
  _exit(status);
}

}  // namespace

std::unique_ptr<World> join_world(double seconds) {
  const int expected = ranks_expected();
  if (!has_launcher()) {
    if (expected > 1) fail_split_job(expected);
    return std::make_unique<LoneWorld>();
  }
  if (expected == 1) return std::make_unique<LoneWorld>();
  return std::make_unique<MpiWorld>(expected, seconds);
}

}  // namespace tessera::comm
