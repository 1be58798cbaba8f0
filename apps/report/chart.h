// Curves as HTML: an SVG that stretches with the page, with its labels beside it as text, so that they keep their size.
#pragma once
#include <chorus/apps/report/html.h>
#include <chorus/apps/report/series.h>

namespace chorus::report {

struct Curve {
  std::string name;
  int color = 1;  ///< 1 to 8, of the palette; 0: the colour of text
  std::vector<Bucket> buckets;
  std::string prefix;   ///< of the keys of its figures (page.h): the run
  std::string column;   ///< in them
  bool band = false;    ///< shade between min and max
  bool points = false;  ///< mark the single values
  bool dashed = false;
};

struct Chart {
  std::string id, title;
  std::string unit;  ///< as people say it, e.g. "nats per label"
  std::string note;  ///< below; may be empty
  Format format;     ///< of values
  bool from_zero = true;
  double least_high = 0;     ///< the scale reaches at least up to here: noise around nothing isn't blown up
  bool logarithmic = false;  ///< where the values span enough; from_zero is ignored then
  bool stacked = false;      ///< areas of the largest values on top of each other; the last curve is a line over them
  std::vector<Curve> curves;
  std::vector<PhaseSpan> phases;
  std::int64_t first = 1, last = 1;  ///< steps
};

/// A <figure> with legend, phases and a table of a dozen values. Empty without any curve.
std::string draw(const Chart& chart);

/// What the read-outs of the page's script need: {"unit": ..., "curves": [{"name", "first", "last", "mean", "min", "max"}]}.
std::string data_of(const Chart& chart);

}  // namespace chorus::report
