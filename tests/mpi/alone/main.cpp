// A program that leaves MPI to the library, as `chorus` does: it is initialised and finalized by the only group. With an
// argument, rank 1 throws after a call, or is stopped for ever; every rank then tells why and exits with an error.
#include <chorus/parallel/group/mpi.h>

#include <csignal>
#include <cstdio>
#include <string>

int main(int argc, char** argv) {
  using namespace chorus;
  const std::string how = argc > 1 ? argv[1] : "";
  MpiOptions options;
  options.time_limit = how == "stop" ? 0.5 : 60;
  try {
    run_mpi(options, [&](Group& world) {
      std::int64_t sum = world.rank() + 1;
      world.all_reduce(std::span<std::int64_t>(&sum, 1));
      if (world.rank() == 1) {
        require(how != "throw", "reader", "no such file");
        if (how == "stop") std::raise(SIGSTOP);
      }
      world.barrier();
      if (world.rank() == 0) std::printf("sum %lld of %d ranks\n", static_cast<long long>(sum), world.size());
    });
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 3;
  }
}
