#include <chorus/apps/report/chart.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace chorus::report {
namespace {

constexpr double width = 1000, height = 300;  // of the drawing; the page stretches it

std::string short_number(double x) {
  std::string text = decimal(std::round(10 * x) / 10, 1);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  std::erase(text, ',');
  return text;
}

/// Where values and steps lie in the drawing.
struct Axes {
  double low = 0, high = 1;
  bool log = false;
  double first = 0, last = 1;
  double x(double step) const { return last > first ? width * (step - first) / (last - first) : width / 2; }
  double share(double value) const { return log ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low); }
  double y(double value) const { return height * (1 - std::clamp(share(value), -0.5, 1.5)); }
  double x(const Bucket& b) const { return x((static_cast<double>(b.first) + static_cast<double>(b.last)) / 2); }
};

/// A command of a path: 'M' moves there, 'L' draws a line.
std::string to(char command, double x, double y) { return std::string(1, command) + short_number(x) + ' ' + short_number(y); }

/// Of the stack's areas: what lies below curve i, in bucket k.
double height_below(const Chart& chart, std::size_t i, std::size_t k) {
  double below = 0;
  for (std::size_t j = 0; j < i; ++j) {
    const double value = chart.curves[j].buckets[k].max;
    if (std::isfinite(value)) below += value;
  }
  return below;
}

Axes axes_of(const Chart& chart) {
  Axes axes;
  axes.first = static_cast<double>(chart.first);
  axes.last = static_cast<double>(chart.last);
  std::vector<double> values, tops, bottoms;
  for (std::size_t i = 0; i < chart.curves.size(); ++i) {
    const Curve& curve = chart.curves[i];
    for (std::size_t k = 0; k < curve.buckets.size(); ++k) {
      const Bucket& b = curve.buckets[k];
      if (!std::isfinite(b.mean)) continue;
      if (chart.stacked) {
        values.push_back(i + 1 < chart.curves.size() ? height_below(chart, i + 1, k) : b.max);
        continue;
      }
      values.push_back(b.mean);
      if (curve.band) {
        tops.push_back(b.max);
        bottoms.push_back(b.min);
      }
    }
  }
  axes.low = std::ranges::min(values);
  axes.high = std::ranges::max(values);
  axes.log = chart.logarithmic && axes.low > 0 && axes.high / axes.low > 10;
  // The scale is made for the means. Most of the bands' range is shown too, unless it would flatten the curves.
  if (!tops.empty()) {
    std::ranges::sort(tops);
    std::ranges::sort(bottoms);
    const double top = std::max(axes.high, tops[tops.size() - 1 - tops.size() / 50]),
                 bottom = std::min(axes.low, bottoms[bottoms.size() / 50]);
    if (axes.log) {
      const double most = std::pow(axes.high / axes.low, 0.3);
      axes.high = std::min(top, axes.high * most);
      axes.low = std::max(bottom, axes.low / most);
    } else {
      const double most = 0.3 * (axes.high - axes.low);
      axes.high = std::min(top, axes.high + most);
      axes.low = std::max(bottom, axes.low - most);
    }
  }
  if (axes.log) {
    axes.low /= 1.1;
    axes.high *= 1.1;
    return axes;
  }
  axes.high = std::max(axes.high, chart.least_high);
  if (chart.from_zero && axes.low >= 0) axes.low = 0;
  const double room = axes.high > axes.low ? 0.06 * (axes.high - axes.low) : std::max(std::abs(axes.high), 1.0) * 0.1;
  axes.high += room;
  if (axes.low != 0) axes.low -= room;
  return axes;
}

/// Lines break where a bucket has no value.
std::string line_path(const Curve& curve, const Axes& axes, double Bucket::*value) {
  std::string path;
  bool down = false;
  for (const auto& b : curve.buckets) {
    if (!std::isfinite(b.*value)) {
      down = false;
      continue;
    }
    path += to(down ? 'L' : 'M', axes.x(b), axes.y(b.*value));
    down = true;
  }
  return path;
}

/// Closed areas between two edges, given as functions of the bucket's number; one for each stretch with values.
template <class Low, class High>
std::string area_path(const std::vector<Bucket>& buckets, const Axes& axes, Low low, High high) {
  std::string path, back;
  const auto close = [&] {
    if (!back.empty()) path += back + 'Z';
    back.clear();
  };
  for (std::size_t k = 0; k < buckets.size(); ++k) {
    const double bottom = low(k), top = high(k);
    if (!std::isfinite(top)) {
      close();
      continue;
    }
    const double x = axes.x(buckets[k]);
    path += to(back.empty() ? 'M' : 'L', x, axes.y(top));
    back.insert(0, to('L', x, axes.y(bottom)));
  }
  close();
  return path;
}

std::string marks(const Curve& curve, const Axes& axes) {
  std::string path;  // strokes without length and with round ends: circles that don't stretch
  for (const auto& b : curve.buckets)
    if (std::isfinite(b.mean)) path += to('M', axes.x(b), axes.y(b.mean)) + "h0";
  return path;
}

std::string path(const std::string& classes, const std::string& d) {
  return d.empty() ? "" : "<path class=\"" + classes + "\" d=\"" + d + "\"/>";
}

std::string shapes(const Chart& chart, const Axes& axes) {
  std::string svg;
  for (std::size_t i = 0; i < chart.curves.size(); ++i) {
    const Curve& curve = chart.curves[i];
    const std::string color = std::string(" c") + std::to_string(curve.color);
    if (chart.stacked && i + 1 < chart.curves.size()) {
      svg += path("area" + color, area_path(
                                      curve.buckets, axes, [&](std::size_t k) { return height_below(chart, i, k); },
                                      [&](std::size_t k) { return height_below(chart, i + 1, k); }));
      continue;
    }
    if (curve.band)
      svg += path("band" + color, area_path(
                                      curve.buckets, axes, [&](std::size_t k) { return curve.buckets[k].min; },
                                      [&](std::size_t k) { return curve.buckets[k].max; }));
    svg += path("line" + color + (curve.dashed ? " dashed" : ""),
                line_path(curve, axes, chart.stacked ? &Bucket::max : &Bucket::mean));
    if (curve.points) svg += path("marks" + color, marks(curve, axes));
  }
  return svg;
}

std::string percent(double share) { return short_number(100 * share) + '%'; }

std::string legend(const Chart& chart) {
  if (chart.curves.size() < 2 && chart.curves[0].prefix.empty()) return "";
  std::string out = "<ul class=\"legend\">";
  for (std::size_t i = 0; i < chart.curves.size(); ++i) {
    const Curve& curve = chart.curves[i];
    const bool area = chart.stacked && i + 1 < chart.curves.size();
    out += "<li><i class=\"key c" + std::to_string(curve.color) +
           (area           ? " filled"
            : curve.dashed ? " dashed"
                           : "") +
           "\"></i>" + escape(curve.name) + "</li>";
  }
  return out + "</ul>";
}

double shown(const Chart& chart, const Bucket& b) { return chart.stacked ? b.max : b.mean; }

/// For who listens instead of looking.
std::string summary(const Chart& chart) {
  std::string out = chart.title + ", steps " + decimal(static_cast<double>(chart.first), 0) + " to " +
                    decimal(static_cast<double>(chart.last), 0);
  for (const auto& curve : chart.curves) {
    const auto has_value = [&](const Bucket& b) { return std::isfinite(b.mean); };
    const auto begin = std::ranges::find_if(curve.buckets, has_value);
    if (begin == curve.buckets.end()) continue;
    auto end = curve.buckets.end() - 1;
    while (!has_value(*end)) --end;
    out += "; " + curve.name + " from " + formatted(shown(chart, *begin), chart.format) + " to " +
           formatted(shown(chart, *end), chart.format);
  }
  return out;
}

std::string range_text(const Bucket& b) {
  const std::string last = decimal(static_cast<double>(b.last), 0);
  return b.first == b.last ? last : decimal(static_cast<double>(b.first), 0) + "–" + last;
}

/// The table shows the same buckets as the curves, a dozen of them.
std::string table(const Chart& chart) {
  std::string out = "<details class=\"values\"><summary>Table of values</summary><div class=\"scroll\"><table>";
  for (const auto& curve : chart.curves) {
    out += "<tbody><tr><th scope=\"rowgroup\" colspan=\"2\">" + escape(curve.name) + "</th></tr>";
    const std::size_t n = curve.buckets.size(), rows = std::min<std::size_t>(n, 12);
    for (std::size_t r = 0; r < rows; ++r) {
      const Bucket& b = curve.buckets[rows > 1 ? r * (n - 1) / (rows - 1) : 0];
      if (!std::isfinite(b.mean)) continue;
      const std::string steps = ':' + std::to_string(b.first) + '-' + std::to_string(b.last);
      out += "<tr><td>" + std::string(b.first == b.last ? "step " : "steps ") + range_text(b) + "</td><td>" +
             figure(curve.prefix + (chart.stacked ? "max:" : "mean:") + curve.column + steps, shown(chart, b), chart.format);
      if (curve.band && b.first != b.last)
        out += " <small>" + figure(curve.prefix + "min:" + curve.column + steps, b.min, chart.format) + " to " +
               figure(curve.prefix + "max:" + curve.column + steps, b.max, chart.format) + "</small>";
      out += "</td></tr>";
    }
    out += "</tbody>";
  }
  return out + "</table></div></details>";
}

/// Digits that tell neighbouring ticks apart.
Format tick_format(const Chart& chart, const std::vector<double>& ticks, bool log) {
  Format format = chart.format;
  format.unit = "";
  if (log) {
    format.digits = -2;
    return format;
  }
  const double step = ticks.size() > 1 ? (ticks[1] - ticks[0]) / format.scale : 1;
  format.digits = std::max(0, static_cast<int>(std::ceil(-std::log10(step) - 1e-9)));
  return format;
}

std::string tick_label(double value, const Format& format) {
  if (format.digits >= 0) return formatted(value, format);
  std::string text = decimal(value / format.scale, format.digits);  // "1.0" of a logarithmic axis is 1
  if (text.find('.') != text.npos && text.find('e') == text.npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.ends_with('.')) text.pop_back();
  }
  return text;
}

std::string frame(const Chart& chart, const Axes& axes) {
  // Ticks are round in the unit that is shown.
  const double scale = chart.format.scale;
  auto ticks =
      axes.log ? log_ticks(axes.low / scale, axes.high / scale, 6) : linear_ticks(axes.low / scale, axes.high / scale, 5);
  for (double& tick : ticks) tick *= scale;
  const Format format = tick_format(chart, ticks, axes.log);
  std::string ys, grid;
  for (const double tick : ticks) {
    ys += "<span style=\"bottom:" + percent(axes.share(tick)) + "\">" + tick_label(tick, format) + "</span>";
    grid += to('M', 0, axes.y(tick)) + "H1000";
  }
  std::string xs, names, borders;
  for (const double tick : linear_ticks(axes.first, axes.last, 5))
    if (tick == std::floor(tick))
      xs += std::string("<span") + (axes.x(tick) > 0.97 * width ? " class=\"end\"" : "") +
            " style=\"left:" + percent(axes.x(tick) / width) + "\">" + decimal(tick, 0) + "</span>";
  for (const auto& phase : chart.phases) {
    const double begin = std::max(0.0, axes.x(static_cast<double>(phase.first) - 0.5) / width),
                 end = std::min(1.0, axes.x(static_cast<double>(phase.last) + 0.5) / width);
    if (begin > 0) borders += to('M', width * begin, 0) + "V300";
    if (chart.phases.size() > 1)
      names +=
          "<span style=\"left:" + percent(begin) + ";width:" + percent(end - begin) + "\">" + escape(phase.name) + "</span>";
  }
  return std::string("<div class=\"frame") + (names.empty() ? "" : " phased") + "\"><div class=\"ys\" aria-hidden=\"true\">" +
         ys + "</div><div class=\"box\" role=\"group\" tabindex=\"0\" data-chart=\"" + escape(chart.id) + "\" aria-label=\"" +
         escape(chart.title) + ": arrow keys read out values\">" +
         "<svg viewBox=\"0 0 1000 300\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"" + escape(summary(chart)) +
         "\">" + path("grid", grid) + path("border", borders) + shapes(chart, axes) + "</svg>" +
         (names.empty() ? "" : "<div class=\"phases\" aria-hidden=\"true\">" + names + "</div>") +
         "</div><div class=\"xs\" aria-hidden=\"true\">" + xs + "</div></div>";
}

}  // namespace

std::string draw(const Chart& chart) {
  const bool empty = std::ranges::none_of(chart.curves, [](const Curve& curve) {
    return std::ranges::any_of(curve.buckets, [](const Bucket& b) { return std::isfinite(b.mean); });
  });
  if (empty) return "";
  const Axes axes = axes_of(chart);
  const std::string log = axes.log ? ", logarithmic" : "";
  return "<figure class=\"chart\"><figcaption><h3>" + escape(chart.title) + "</h3> <span class=\"unit\">" + escape(chart.unit) +
         log + "</span></figcaption>" + legend(chart) + frame(chart, axes) +
         (chart.note.empty() ? "" : "<p class=\"note\">" + escape(chart.note) + "</p>") + table(chart) + "</figure>\n";
}

std::string data_of(const Chart& chart) {
  using Json = nlohmann::ordered_json;
  const auto number = [](double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); };
  nlohmann::ordered_json out;
  out["unit"] = std::string(chart.format.unit);
  out["scale"] = chart.format.scale;
  out["digits"] = chart.format.digits;
  out["first"] = chart.first;
  out["last"] = chart.last;
  out["stacked"] = chart.stacked;
  out["curves"] = nlohmann::json::array();
  for (const auto& curve : chart.curves) {
    nlohmann::ordered_json c;
    c["name"] = curve.name;
    c["color"] = curve.color;
    c["key"] = curve.prefix + curve.column;
    const bool ranges = std::ranges::any_of(curve.buckets, [](const Bucket& b) { return b.first != b.last; });
    for (const auto& b : curve.buckets) {
      if (ranges) {
        c["first"].push_back(b.first);
        c["min"].push_back(number(b.min));
        c["max"].push_back(number(b.max));
      }
      c["last"].push_back(b.last);
      c["mean"].push_back(number(b.mean));
    }
    out["curves"].push_back(std::move(c));
  }
  // Names come from files: what is no UTF-8 is replaced, and nothing may end the page's script.
  std::string text = out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  for (std::size_t at = 0; (at = text.find('<', at)) != text.npos;) text.replace(at, 1, "\\u003c");
  return text;
}

}  // namespace chorus::report
