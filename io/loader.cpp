#include <chorus/io/loader.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

namespace chorus {

LoadedBatch load_batch(const GlobalBatch& batch, const SampleMaker& maker, const LoaderConfig& config, DataCursor cursor,
                       int dp_rank, int dp_size, std::vector<Microbatch> spare) {
  require(dp_rank >= 0 && dp_rank < dp_size, "load_batch", "dp rank ", dp_rank, " of ", dp_size);
  LoadedBatch out{
      .cursor = cursor, .next = cursor, .microbatches = {}, .counts = {}, .drops = {}, .failures = {}, .failed = {}};
  std::int64_t number = -1;
  const int count = microbatch_count(batch, dp_size, config.micro_batch_size, config.micro_batch_frames);
  const auto dealt = deal(batch, dp_size, count, static_cast<int>(config.micro_batch_size));
  for (const std::vector<int>& indices : dealt[dp_rank]) {
    Microbatch& micro = out.microbatches.emplace_back();
    micro.mels = maker.frontend().config().mels;
    if (!spare.empty()) {
      micro.features = std::move(spare.back().features);
      micro.features.clear();
      spare.pop_back();
    }
    std::int64_t planned = 0;
    for (const int i : indices) planned += batch[i].frames;
    micro.features.reserve(static_cast<std::size_t>(planned * micro.mels));
    for (const int i : indices) {
      ++number;
      SampleData data;
      try {
        data = maker.append(batch[i], cursor.epoch, micro.features);
      } catch (const BadSample& bad) {
        if (!config.skip_bad_audio) throw;
        ++out.drops.failed;
        out.failures.emplace_back(bad.what());
        out.failed.push_back(number);
        continue;
      }
      out.counts.samples += 1;
      out.counts.frames += data.frames;
      out.counts.tokens += static_cast<std::int64_t>(data.tokens.size());
      micro.frames += data.frames;
      micro.ids.push_back(data.id);
      micro.frames_of.push_back(data.frames);
      micro.numbers.push_back(number);
      micro.tokens.push_back(std::move(data.tokens));
      micro.texts.push_back(std::move(data.text));
    }
  }
  return out;
}

void leave_out(LoadedBatch& batch, std::span<const std::int64_t> numbers) {
  for (Microbatch& micro : batch.microbatches) {
    Microbatch kept;
    auto feature = micro.features.begin();
    for (std::size_t i = 0; i < micro.ids.size(); ++i) {
      const auto end = feature + static_cast<std::ptrdiff_t>(micro.frames_of[i] * micro.mels);
      if (std::ranges::find(numbers, micro.numbers[i]) == numbers.end()) {
        kept.features.insert(kept.features.end(), feature, end);
        kept.frames += micro.frames_of[i];
        kept.ids.push_back(micro.ids[i]);
        kept.frames_of.push_back(micro.frames_of[i]);
        kept.numbers.push_back(micro.numbers[i]);
        kept.tokens.push_back(std::move(micro.tokens[i]));
        kept.texts.push_back(std::move(micro.texts[i]));
      } else {
        ++batch.drops.failed;
        --batch.counts.samples;
        batch.counts.frames -= micro.frames_of[i];
        batch.counts.tokens -= static_cast<std::int64_t>(micro.tokens[i].size());
      }
      feature = end;
    }
    kept.mels = micro.mels;
    micro = std::move(kept);
  }
}

/// Threads claim batches in order, finish them in any order, and `next` hands them out in order again.
struct Loader::Impl {
  struct Finished {
    LoadedBatch batch;
    std::exception_ptr error;
  };

  const BatchPlanner& planner;
  const SampleMaker& maker;
  const LoaderConfig config;
  const std::int64_t end;
  const int dp_rank, dp_size;

  mutable std::mutex mutex{};
  std::condition_variable changed{};
  DataCursor cursor{};                      // of the next batch to claim
  std::shared_ptr<const EpochPlan> plan{};  // of its epoch
  std::uint64_t claimed = 0, delivered = 0;
  std::map<std::uint64_t, Finished> finished{};
  std::vector<std::vector<Microbatch>> spare{};  // of batches that were taken back
  bool stopping = false;
  double waited = 0;
  std::vector<std::thread> threads{};

  bool ended() const { return end >= 0 && cursor.epoch >= end; }

  void work() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock,
                   [&] { return stopping || ended() || claimed < delivered + static_cast<std::uint64_t>(config.prefetch); });
      if (stopping || ended()) return;
      const std::uint64_t number = claimed++;
      const DataCursor here = cursor;
      const std::shared_ptr<const EpochPlan> of = plan;
      Finished done;
      try {
        advance();
        const DataCursor after = cursor;
        std::vector<Microbatch> memory;
        if (!spare.empty()) {
          memory = std::move(spare.back());
          spare.pop_back();
        }
        lock.unlock();
        done.batch = load_batch(of->batches[static_cast<std::size_t>(here.batch)], maker, config, here, dp_rank, dp_size,
                                std::move(memory));
        done.batch.next = after;
      } catch (...) {
        done.error = std::current_exception();
      }
      if (!lock.owns_lock()) lock.lock();
      finished.emplace(number, std::move(done));
      changed.notify_all();
    }
  }

  /// Planning an epoch keeps the lock, once per epoch: the others have nothing to claim before it is done.
  void advance() {
    if (++cursor.batch < static_cast<std::int64_t>(plan->batches.size())) return;
    cursor = {cursor.epoch + 1, 0};
    if (!ended()) plan = std::make_shared<const EpochPlan>(planner.epoch(cursor.epoch));
    changed.notify_all();
  }
};

Loader::Loader(const BatchPlanner& planner, const SampleMaker& maker, const LoaderConfig& config, DataCursor start,
               std::int64_t end, int dp_rank, int dp_size)
    : impl_(
          new Impl{.planner = planner, .maker = maker, .config = config, .end = end, .dp_rank = dp_rank, .dp_size = dp_size}) {
  require(dp_rank >= 0 && dp_rank < dp_size, "Loader", "dp rank ", dp_rank, " of ", dp_size);
  require(config.threads > 0 && config.prefetch > 0, "Loader", "threads ", config.threads, " and prefetch ", config.prefetch,
          " must be positive");
  require(start.epoch >= 0, "Loader", "epoch ", start.epoch, " is negative");
  impl_->cursor = start;
  if (!impl_->ended()) {
    impl_->plan = std::make_shared<const EpochPlan>(planner.epoch(start.epoch));
    const auto batches = static_cast<std::int64_t>(impl_->plan->batches.size());
    require(start.batch >= 0 && start.batch < batches, "Loader", "the data cursor says batch ", start.batch, " of epoch ",
            start.epoch, ", which has ", batches, ": were the data or the batch keys changed?");
  }
  try {
    for (int t = 0; t < config.threads; ++t)
      impl_->threads.emplace_back([impl = impl_.get()] {
        omp_set_num_threads(1);  // of this thread: the cores belong to the training step
        impl->work();
      });
  } catch (...) {
    stop();
    throw;
  }
}

Loader::~Loader() { stop(); }

void Loader::stop() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->changed.notify_all();
  for (std::thread& thread : impl_->threads) thread.join();
  impl_->threads.clear();
}

std::optional<LoadedBatch> Loader::next() {
  Impl& s = *impl_;
  std::unique_lock lock(s.mutex);
  require(!s.stopping, "Loader::next", "the loader was stopped");
  const auto begin = std::chrono::steady_clock::now();
  s.changed.wait(lock, [&] { return s.finished.contains(s.delivered) || (s.ended() && s.delivered == s.claimed); });
  s.waited += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const auto it = s.finished.find(s.delivered);
  if (it == s.finished.end()) return std::nullopt;
  if (it->second.error) std::rethrow_exception(it->second.error);
  LoadedBatch batch = std::move(it->second.batch);
  s.finished.erase(it);
  ++s.delivered;
  lock.unlock();
  s.changed.notify_all();
  return batch;
}

void Loader::reuse(LoadedBatch batch) {
  const std::lock_guard lock(impl_->mutex);
  impl_->spare.push_back(std::move(batch.microbatches));
}

double Loader::waited() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->waited;
}

}  // namespace chorus
