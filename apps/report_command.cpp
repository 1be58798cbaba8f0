#include <chorus/apps/commands.h>
#include <chorus/apps/report/page.h>
#include <chorus/apps/run_folder.h>
#include <chorus/core/error.h>
#include <chorus/core/posix_file.h>

#include <algorithm>
#include <cstdio>

namespace chorus {
namespace {

/// Runs of equal names are told apart by their folders.
void make_names_differ(std::vector<report::Run>& runs) {
  const auto shared = [&](const std::string& name) { return std::ranges::count(runs, name, &report::Run::name) > 1; };
  std::vector<bool> rename;
  for (const auto& run : runs) rename.push_back(shared(run.name));
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (rename[i]) runs[i].name = runs[i].folder.string();
}

}  // namespace

int run_report(const ReportOptions& options) {
  require(!options.runs.empty(), "report", "no run folder was given");
  std::vector<report::Run> runs;
  for (const auto& folder : options.runs) runs.push_back(report::read_run(folder));
  make_names_differ(runs);
  const auto out = options.out.empty() ? options.runs[0] / "report.html" : options.out;
  write_file_atomically(std::filesystem::absolute(out), report::page(runs));
  std::printf("%s\n", out.c_str());
  return 0;
}

}  // namespace chorus
