#include <chorus/parallel/group/mpi/exchange.h>

#include <numeric>

namespace chorus {
namespace mpi {
namespace {

class Work final : public Pending::Work {
 public:
  Work(std::shared_ptr<Engine> engine, std::unique_ptr<Exchange> exchange)
      : engine_(std::move(engine)), exchange_(std::move(exchange)) {}
  void wait() override {
    try {
      engine_->wait(*exchange_);
    } catch (...) {
      engine_->drop(*exchange_);
      throw;
    }
  }
  void leave() noexcept override { engine_->drop(*exchange_); }

 private:
  std::shared_ptr<Engine> engine_;
  std::unique_ptr<Exchange> exchange_;
};

class MpiGroup final : public Group {
 public:
  /// `owned`: the communicator is freed with the group; the engine has that of the world.
  MpiGroup(const std::string& name, int rank, std::vector<int> members, std::shared_ptr<Engine> engine, MPI_Comm communicator,
           bool owned)
      : Group(name, rank, std::move(members), engine->options, engine->recorder()),
        engine_(std::move(engine)),
        communicator_(communicator),
        owned_(owned) {
    int* bound = nullptr;
    int given = 0;
    check(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&bound), &given), "MPI_Comm_get_attr");
    tag_bound_ = given ? *bound : 32767;  // what the standard promises
  }
  ~MpiGroup() override {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (owned_ && !finalized && !engine_->failed()) MPI_Comm_free(&communicator_);
  }

  void end_all(const std::string& cause) override {
    engine_->fail("rank " + std::to_string(engine_->rank()) + " ended the world: " + cause);
  }

 protected:
  std::unique_ptr<Pending::Work> start(const Call& call) override {
    if (engine_->failed())
      engine_->stop(call.describe() + ", call " + std::to_string(call.sequence) + " of group '" + name() + "'");
    auto exchange = std::make_unique<Exchange>(*engine_, communicator_, tag_bound_, call, rank(), members(), name());
    engine_->add(*exchange);
    engine_->poll(exchange.get());
    if (exchange->done()) return nullptr;
    return std::make_unique<Work>(engine_, std::move(exchange));
  }

  std::unique_ptr<Group> make(const std::string& name, int rank, const std::vector<int>& members) override {
    MPI_Group all = MPI_GROUP_NULL, chosen = MPI_GROUP_NULL;
    MPI_Comm communicator = MPI_COMM_NULL;
    check(MPI_Comm_group(communicator_, &all), "MPI_Comm_group");
    check(MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &chosen), "MPI_Group_incl");
    const int tag = static_cast<int>(collectives() % 16384);
    check(MPI_Comm_create_group(communicator_, chosen, tag, &communicator), "MPI_Comm_create_group");
    check(MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    MPI_Group_free(&chosen);
    MPI_Group_free(&all);
    return std::make_unique<MpiGroup>(name, rank, world_ranks(members), engine_, communicator, true);
  }

 private:
  std::shared_ptr<Engine> engine_;
  MPI_Comm communicator_;
  const bool owned_;
  int tag_bound_;
};

}  // namespace
}  // namespace mpi

bool mpi_built() { return true; }

std::string mpi_library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string all(text);  // a length may count the zero at its end
  return all.substr(0, all.find('\n'));
}

std::unique_ptr<Group> mpi_group(const MpiOptions& options) {
  int initialized = 0, finalized = 0;
  mpi::check(MPI_Initialized(&initialized), "MPI_Initialized");
  mpi::check(MPI_Finalized(&finalized), "MPI_Finalized");
  require(!finalized, "mpi_group", "MPI has been finalized and can't be initialised again");
  require(initialized || !options.communicator, "mpi_group", "a communicator was given, but MPI is not initialised");
  if (!initialized) {
    int provided = 0;
    mpi::check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
    require(provided >= MPI_THREAD_FUNNELED, "mpi_group", "MPI offers no MPI_THREAD_FUNNELED");
  }
  const MPI_Comm given = options.communicator ? *static_cast<const MPI_Comm*>(options.communicator) : MPI_COMM_WORLD;
  const auto engine = std::make_shared<mpi::Engine>(options, given, !initialized);
  int size = 1;
  mpi::check(MPI_Comm_size(engine->world(), &size), "MPI_Comm_size");
  std::vector<int> members(static_cast<std::size_t>(size));
  std::iota(members.begin(), members.end(), 0);
  return std::make_unique<mpi::MpiGroup>("world", engine->rank(), std::move(members), engine, engine->world(), false);
}

void run_mpi(const MpiOptions& options, const std::function<void(Group& world)>& rank_main) {
  const auto world = mpi_group(options);
  const auto told = [&](const std::string& what) {
    return "rank " + std::to_string(world->rank()) + ": " + what + " (its last call: " + world->recorder().last() + ")";
  };
  try {
    rank_main(*world);
    world->barrier();  // a rank that ends while others go on differs from their call
  } catch (const std::exception& e) {
    const std::string text = told(e.what());
    world->end_all(text);
    throw Error(text);
  } catch (...) {
    const std::string text = told("an exception that is no std::exception");
    world->end_all(text);
    throw Error(text);
  }
}

}  // namespace chorus
