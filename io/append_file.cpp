#include <chorus/io/append_file.h>

#include <utility>

namespace chorus {

AppendFile::AppendFile(const std::filesystem::path& path, Report report, std::size_t most_waiting)
    : file_(PosixFile::append(path)), report_(std::move(report)), most_waiting_(most_waiting) {}

void AppendFile::append(std::string_view record) {
  if (record.empty()) return;
  waiting_.emplace_back(record);
  waiting_bytes_ += record.size();
  const std::size_t earlier = waiting_.size() - 1;
  try {
    write_waiting();
    if (failing_)
      report_(file_.path().string() + " can be written again, with the " + std::to_string(earlier) + " records that waited");
    failing_ = false;
  } catch (const Error& error) {
    if (!report_) throw;
    if (!failing_) report_(std::string(error.what()) + "; this goes on, and what is to be written waits for the next time");
    failing_ = true;
    // The oldest go first, except one that has begun: without its rest the next could not be read.
    while (waiting_bytes_ > most_waiting_ && waiting_.size() > 1) {
      const auto oldest = waiting_.begin() + (begun_ > 0 ? 1 : 0);
      waiting_bytes_ -= oldest->size();
      waiting_.erase(oldest);
      // Powers of two: a disk that stays full must not fill the console.
      if (const std::size_t n = ++dropped_; (n & (n - 1)) == 0)
        report_(file_.path().string() + ": " + std::to_string(n) + " records are lost: more than " +
                std::to_string(most_waiting_) + " bytes wait for it");
    }
  }
}

void AppendFile::write_waiting() {
  while (!waiting_.empty()) {
    const std::string& record = waiting_.front();
    while (begun_ < record.size()) begun_ += file_.write_some(record.data() + begun_, record.size() - begun_);
    waiting_bytes_ -= record.size();
    begun_ = 0;
    waiting_.pop_front();
  }
}

void AppendFile::finish() {
  std::string why;
  try {
    write_waiting();
    failing_ = false;
    file_.flush();
  } catch (const Error& error) {
    why = error.what();
  }
  if (waiting_.empty() && dropped_ == 0 && why.empty()) return;
  fail("AppendFile", file_.path().string(), " is not complete: ", waiting_.size(), " records could not be written and ",
       dropped_, " were dropped before", why.empty() ? "" : ": ", why);
}

}  // namespace chorus
