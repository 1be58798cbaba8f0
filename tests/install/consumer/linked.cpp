// Names something of the topmost library, which draws in all others.
#include <chorus/apps/command_line.h>
#include <chorus/apps/trainer.h>

#include <cstdio>

int main() {
  try {
    chorus::train(chorus::RunConfig{}, {});
  } catch (const chorus::Error& error) {
    std::printf("as expected, %s\n", error.what());
    return 0;
  }
  std::printf("a run without data did not fail\n");
  return 1;
}
