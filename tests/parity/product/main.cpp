// Judges the whole product of choices, or a part: parity_product [--part i/n] [--print]. Exit status 1 when a case fails. How
// far it has come goes to stderr.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "parity/cases.h"

using namespace chorus::testing;

int main(int count, char** arguments) {
  int part = 0, parts = 1;
  bool print = false;
  for (int i = 1; i < count; ++i) {
    if (std::strcmp(arguments[i], "--print") == 0) {
      print = true;
    } else if (i + 1 < count && std::strcmp(arguments[i], "--part") == 0 &&
               std::sscanf(arguments[++i], "%d/%d", &part, &parts) == 2 && parts > 0 && part >= 0 && part < parts) {
    } else {
      std::fprintf(stderr, "parity_product: '%s'; takes --part i/n and --print\n", arguments[i]);
      return 2;
    }
  }
  const auto product = whole_product();
  std::map<std::string, int> refused;
  int equal = 0, failed = 0, judged = 0;
  double worst = 0;
  SerialRuns serial;
  for (std::size_t i = static_cast<std::size_t>(part); i < product.size(); i += static_cast<std::size_t>(parts)) {
    const ParityCase c = parity_case(product[i]);
    const Verdict verdict = judge(c, serial);
    worst = verdict.worst > worst ? verdict.worst : worst;
    switch (verdict.kind) {
      case Verdict::equal: ++equal; break;
      case Verdict::refused: ++refused[c.refusal()]; break;
      case Verdict::failed: ++failed; break;
    }
    if (print || verdict.kind == Verdict::failed) {
      const char* kinds[] = {"equal", "refused", "FAILED"};
      std::printf("%s: %s, off by %.2g%s%s\n", c.name().c_str(), kinds[verdict.kind], verdict.worst,
                  verdict.text.empty() ? "" : ": ", verdict.text.c_str());
    }
    std::fflush(stdout);
    if (++judged % 250 == 0)
      std::fprintf(stderr, "part %d of %d: %d of %zu cases judged, %d failed\n", part, parts, judged,
                   product.size() / static_cast<std::size_t>(parts), failed);
  }
  int refusals = 0;
  for (const auto& [rule, times] : refused) std::printf("refused %d times: %s\n", times, rule.c_str()), refusals += times;
  std::printf("figure parity.equal %d cases\nfigure parity.refused %d cases\nfigure parity.failed %d cases\n", equal, refusals,
              failed);
  std::printf("figure parity.worst %.2g relative\n", worst);
  return failed > 0;
}
