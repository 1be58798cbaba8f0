// Style and script of the page, compiled in from report.css and report.js.
#pragma once
#include <string_view>

namespace chorus::report {

extern const std::string_view style, script;

}  // namespace chorus::report
